"""Small changes of a student's own program that may make it right: those of mutants, and some that only repair."""

import ast
import copy
from collections.abc import Callable, Iterator
from itertools import chain, combinations, permutations
from typing import Any

from sciformer.check.equations import other_equations
from sciformer.check.mutants import Mutant, Names, Slip, programs, slips, whole


def repairs(answer: Callable[..., Any]) -> Iterator[Mutant]:
    """A wrong answer with one small change: the likelier ones, then others, then the same change in several places.

    Raises:
        OSError, TypeError, SyntaxError, ValueError, KeyError, AttributeError: where its source cannot be read.
    """

    def less_likely() -> Iterator[Mutant]:
        yield from programs(answer, _less_likely)
        yield from programs(answer, _likely, together=True)
        yield from programs(answer, _less_likely, together=True)

    return chain(programs(answer, _likely), less_likely())


_LOWEST = "float('-inf')"
#: How the sentence about an einsum's equation begins.
EQUATION = "The equation"
#: Steps that leave an axis of size 1 in place of another one, or none.
_REDUCE = {"amax", "amin", "logsumexp", "mean", "norm", "std", "sum", "var"}


#: Steps that run along the first axis, or along all, unless they are told which.
_ALONG = {"argmax", "argmin", "cat", "chunk", "flip", "roll", "split", "stack", "unbind", "unflatten"}
#: Types that a mask is turned into, to count with it.
_NUMBERS = {"double", "float", "int", "long"}
#: Pairs of axes that should be exchanged where a `reshape` has only the right sizes.
_PAIRS = ((-2, -1), (0, 1), (1, 2), (2, 3), (0, 2), (1, 3))


def _likely(node: ast.AST, names: Names) -> Iterator[Slip]:
    """Also what is missing or taken for another step, and two inputs that are exchanged in an assignment."""
    yield from slips(node, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield from _repaired_calls(node, node.func, names)
        if node.func.attr in ("reshape", "view") and node.args and not node.keywords:
            yield from _other_shapes(node, node.func)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1:
        for axis in (1, -1):
            sizes = ast.Attribute(node.args[0], "shape", ast.Load())
            yield ast.Subscript(sizes, ast.Constant(axis), ast.Load()), f"`len` is the size of axis 0, not {axis}."
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        yield ast.BinOp(node.left, ast.Div(), node.right), "The quotient is rounded down, and should not be."
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and whole(node.right) == 2:
        for centred in _centred(node.left):
            yield ast.BinOp(centred, node.op, node.right), "The mean is not subtracted before it is squared."
    if isinstance(node, ast.BinOp):
        yield from _other_powers(node)
        yield from _other_brackets(node, node.left, node.right)
    match node:
        case ast.BinOp(left, ast.MatMult(), ast.Attribute(right, "T" | "mT")):
            yield (
                ast.Call(_expression("torch.outer"), [left, right], []),
                "For vectors this is the dot product. The outer one is wanted.",
            )
        case ast.UnaryOp(ast.Invert() as turn, ast.Call(ast.Attribute(mask, kind), [], [])) if kind in _NUMBERS:
            first = ast.Attribute(ast.UnaryOp(turn, mask), kind, ast.Load())
            yield ast.Call(first, [], []), "Of a number, `~` turns every bit round. Turn the mask round first."
        case ast.BinOp(scores, ast.Add() | ast.Mult(), ast.Name(mask)) if "mask" in mask:
            hide = ast.Attribute(scores, "masked_fill", ast.Load())
            hidden = ast.Call(hide, [ast.UnaryOp(ast.Invert(), node.right), _expression(_LOWEST)], [])
            yield hidden, "The mask is computed with. It should hide scores."
        case ast.Assign([ast.Name(own)], value) if compares(value) or isinstance(getattr(value, "op", None), ast.Not):
            both = ast.BoolOp(ast.Or(), [ast.Name(own, ast.Load()), value])
            yield ast.Assign(node.targets, both), f"Each round overwrites `{own}`."
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(own), step))) if not step.endswith("_"):
            kept = ast.Assign([ast.Name(own, ast.Store())], node.value)
            yield kept, f"The result of `{step}` is thrown away."
    if isinstance(node, ast.Slice) and node.step is None:
        yield from _other_end(node)
    if isinstance(node, ast.Assign):
        yield ast.Pass(), "A step too many."
        used = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
        for one, two in combinations([name for name in names.parameters if name in used], 2):
            changed = copy.deepcopy(node)
            for name in ast.walk(changed.value):
                if isinstance(name, ast.Name) and name.id in (one, two):
                    name.id = two if name.id == one else one
            yield changed, f"`{one}` and `{two}` are exchanged."


def _other_powers(node: ast.BinOp) -> Iterator[Slip]:
    """A quotient in the exponent, as a power binds more tightly, and a factor that belongs outside of it."""
    match node:
        case ast.BinOp(ast.BinOp(base, ast.Pow() as power, above), ast.Div() as by, below):
            yield ast.BinOp(base, power, ast.BinOp(above, by, below)), "The exponent belongs in brackets."
        case ast.BinOp(
            ast.BinOp(factor, ast.Mult() as times, ast.BinOp(base, ast.Pow() as power, above)), ast.Div() as by, below
        ):
            raised = ast.BinOp(base, power, ast.BinOp(above, by, below))
            yield ast.BinOp(factor, times, raised), "The exponent belongs in brackets."
        case ast.BinOp(
            ast.BinOp(above, ast.Div() as by, ast.BinOp(ast.Constant() as factor, ast.Mult(), below)),
            ast.Pow() as power,
            exponent,
        ):
            raised = ast.BinOp(ast.BinOp(above, by, below), power, exponent)
            yield ast.BinOp(raised, by, factor), "The factor is raised to the power, too."


def _other_brackets(node: ast.BinOp, left: ast.expr, right: ast.expr) -> Iterator[Slip]:
    """A factor or divisor of one term in place of a whole sum, and the other way round."""
    says = "Brackets are missing, or too many."
    match node.op, left, right:
        case ast.Mult(), _, ast.BinOp(one, ast.Add() | ast.Sub() as sign, two):
            yield ast.BinOp(one, sign, ast.BinOp(left, node.op, two)), says
            yield ast.BinOp(ast.BinOp(left, node.op, one), sign, two), says
        case ast.Mult() | ast.Div(), ast.BinOp(one, ast.Add() | ast.Sub() as sign, two), _:
            yield ast.BinOp(one, sign, ast.BinOp(two, node.op, right)), says
            yield ast.BinOp(ast.BinOp(one, node.op, right), sign, two), says
        case ast.Add() | ast.Sub(), _, ast.BinOp(one, ast.Mult() | ast.Div() as by, two):
            yield ast.BinOp(ast.BinOp(left, node.op, one), by, two), says
            if isinstance(by, ast.Mult):
                yield ast.BinOp(one, by, ast.BinOp(left, node.op, two)), says
        case ast.Add() | ast.Sub(), ast.BinOp(one, ast.Mult() | ast.Div() as by, two), _:
            yield ast.BinOp(one, by, ast.BinOp(two, node.op, right)), says
            if isinstance(by, ast.Mult):
                yield ast.BinOp(ast.BinOp(one, node.op, right), by, two), says


def _repaired_calls(node: ast.Call, function: ast.Attribute, names: Names) -> Iterator[Slip]:
    """What torch does otherwise than it looks: with axes, a mean, the ends of a row of numbers, or an einsum."""
    name, given = function.attr, {keyword.arg for keyword in node.keywords}
    if name in _REDUCE and "dim" in given and "keepdim" not in given:
        keeps = ast.keyword("keepdim", ast.Constant(True))
        yield ast.Call(function, node.args, [*node.keywords, keeps]), "`keepdim=True` is missing."
    if name in {*_REDUCE, "max"} and not node.args and not node.keywords:
        along = [ast.keyword("dim", ast.Constant(-1)), ast.keyword("keepdim", ast.Constant(True))]
        step = function if name != "max" else ast.Attribute(function.value, "amax", ast.Load())  # with no places
        yield ast.Call(step, [], along), "It should run along the last axis only."
        for given_one in names.parameters if name == "mean" else ():
            total = ast.Call(ast.Attribute(function.value, "sum", ast.Load()), [], [])
            says = "It is divided by the number of values, and should be by one less."
            yield ast.BinOp(total, ast.Div(), _expression(f"(len({given_one}) - 1)")), says
    if name in _ALONG and "dim" not in given:
        for axis in (-1, 1):
            told = ast.keyword("dim", ast.Constant(axis))
            yield ast.Call(function, node.args, [*node.keywords, told]), f"`dim={axis}` is missing."
    if name == "normalize" and "p" not in given:
        sums = ast.keyword("p", ast.Constant(1))
        yield ast.Call(function, node.args, [*node.keywords, sums]), "Rows of length 1 do not sum to 1."
        yield node.args[0], "The step `normalize` is too many."
    if name in ("linspace", "logspace") and len(node.args) == 3:
        *ends, count = node.args
        longer = ast.Call(function, [*ends, ast.BinOp(count, ast.Add(), ast.Constant(1))], node.keywords)
        yield (
            ast.Subscript(longer, ast.Slice(None, ast.Constant(-1)), ast.Load()),
            "The end does not belong to the numbers.",
        )
        counted = ast.Attribute(function.value, "arange", ast.Load())
        yield ast.Call(counted, [count], []), "The numbers are 0, 1, 2, …"
    if name == "softmax" and (along := [k for k in node.keywords if k.arg == "dim"]) and len(node.args) <= 1:
        shares = node.args[0] if node.args else function.value
        keeps = ast.keyword("keepdim", ast.Constant(True))
        total = ast.Call(ast.Attribute(shares, "sum", ast.Load()), [], [*along, keeps])
        yield ast.BinOp(shares, ast.Div(), total), "Shares are divided by their sum, without another exponential."
    if name == "erf" and len(node.args) == 1:
        smaller = ast.BinOp(node.args[0], ast.Div(), _expression("2 ** 0.5"))
        yield ast.Call(function, [smaller], []), "The root of 2 is missing."
    if name == "squeeze":
        yield function.value, "An axis of size 1 is dropped."
        for axis in (0, -1) if not node.args else ():
            yield ast.Call(function, [ast.Constant(axis)], []), f"Only axis {axis} should be dropped."
    if name == "square" and not node.args:
        for centred in _centred(function.value):
            squared = ast.Call(ast.Attribute(centred, name, ast.Load()), [], [])
            yield squared, "The mean is not subtracted before it is squared."
    first = node.args[0] if name == "einsum" and node.args else None
    equation = first.value if isinstance(first, ast.Constant) else None
    for other in other_equations(equation) if isinstance(equation, str) else ():
        says = f"{EQUATION} should be {other!r}."
        yield ast.Call(function, [ast.Constant(other), *node.args[1:]], node.keywords), says


def _other_shapes(node: ast.Call, function: ast.Attribute) -> Iterator[Slip]:
    """What reads the numbers in another order, or in another shape, than a `reshape` or `view`."""
    for pair in _PAIRS:
        exchanged = ast.Attribute(function.value, "transpose", ast.Load())
        says = f"The axes {pair[0]} and {pair[1]} should be exchanged."
        yield ast.Call(exchanged, [ast.Constant(axis) for axis in pair], []), says
    if len(node.args) == 2:
        turned = ast.Call(function, node.args[::-1], [])
        says = "The axes should be exchanged, and a `reshape` only cuts the numbers into other rows."
        yield ast.Attribute(turned, "T", ast.Load()), says
    for n in range(len(node.args)) if len(node.args) > 1 and -1 not in map(whole, node.args) else ():
        sizes = [*node.args[:n], ast.Constant(-1), *node.args[n + 1 :]]
        yield ast.Call(function, sizes, []), "A size is another one: −1 lets torch find it."


def _other_end(node: ast.Slice) -> Iterator[Slip]:
    """As many from the beginning in place of the end, or from the end in place of the beginning."""
    lower, upper = node.lower, node.upper
    if upper is None and isinstance(lower, ast.UnaryOp) and isinstance(lower.op, ast.USub):
        yield ast.Slice(None, lower.operand), "The end is taken in place of the beginning."
    elif upper is None and isinstance(lower, ast.Constant):
        yield ast.Slice(None, ast.UnaryOp(ast.USub(), lower)), "The beginning is left out in place of the end."
    elif lower is None and isinstance(upper, ast.UnaryOp) and isinstance(upper.op, ast.USub):
        yield ast.Slice(upper.operand, None), "The end is left out in place of the beginning."
    elif lower is None and upper is not None and not isinstance(upper, ast.UnaryOp):
        yield ast.Slice(ast.UnaryOp(ast.USub(), upper)), "The beginning is taken in place of the end."


def _centred(values: ast.expr) -> Iterator[ast.expr]:
    """The values minus their mean, all of them or along the last axis."""
    for axes in ((), (ast.keyword("dim", ast.Constant(-1)), ast.keyword("keepdim", ast.Constant(True)))):
        mean = ast.Call(ast.Attribute(values, "mean", ast.Load()), [], [*axes])
        yield ast.BinOp(values, ast.Sub(), mean)


#: Steps that are told two axes or more by their numbers.
_AXES = ("transpose", "swapaxes", "permute", "flatten")


def _less_likely(node: ast.AST, names: Names) -> Iterator[Slip]:
    """Another variable, two that are listed in the wrong order, other axes, a quotient rounded up, −∞ for a number."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        known = (*names.parameters, *names.own)
        for name in known if node.id in known else ():
            if name != node.id:
                yield ast.Name(name, ast.Load()), f"`{node.id}` stands where `{name}` should stand."
    elif isinstance(node, ast.Tuple | ast.List):
        for one, two in combinations(range(len(node.elts)), 2):
            changed = copy.copy(node)
            changed.elts = [*node.elts]
            changed.elts[one], changed.elts[two] = node.elts[two], node.elts[one]
            yield changed, f"`{ast.unparse(node.elts[one])}` and `{ast.unparse(node.elts[two])}` are exchanged."
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _AXES:
        first = next((n for n, argument in enumerate(node.args) if whole(argument) is not None), len(node.args))
        axes = [axis for argument in node.args[first:] if (axis := whole(argument)) is not None]
        for others in _other_axes(axes, node.func.attr) if len(axes) == len(node.args) - first > 1 else ():
            arguments = [*node.args[:first], *map(ast.Constant, others)]
            yield ast.Call(node.func, arguments, node.keywords), f"The axes of `{node.func.attr}` are wrong."
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Sub | ast.Add) and _is_plain(node.right):
        if isinstance(node.op, ast.Div):
            yield (
                ast.BinOp(node.left, node.op, ast.BinOp(node.right, ast.Pow(), ast.Constant(0.5))),
                "A root is missing.",
            )
        else:
            twice = ast.BinOp(ast.Constant(2), ast.Mult(), node.right)
            yield ast.BinOp(node.left, node.op, twice), "A factor of 2 is missing."
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        longer = ast.BinOp(node.args[-1], ast.Add(), ast.Constant(1))
        yield ast.Call(node.func, [*node.args[:-1], longer], []), "The count ends one too early."
        for name in (*names.parameters, *names.own):
            yield ast.Call(node.func, [*node.args[:-1], _expression(name)], []), f"The count ends at `{name}`."
        for name in names.parameters:
            least = _expression(f"min({ast.unparse(node.args[-1])}, {name})")
            yield ast.Call(node.func, [*node.args[:-1], least], []), f"The count goes on beyond `{name}`."
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
        whole_axis, second = node.slice.elts
        if isinstance(whole_axis, ast.Slice) and whole_axis.lower is whole_axis.upper is whole_axis.step is None:
            rows = _expression(f"torch.arange(len({ast.unparse(node.value)}))[:, None]")
            by_row = ast.Tuple([rows, second], ast.Load())
            yield ast.Subscript(node.value, by_row, node.ctx), "Each row has places of its own."
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name | ast.Constant | ast.BinOp):
        if not isinstance(getattr(node.slice, "value", None), str):
            behind = ast.Tuple([ast.Slice(), node.slice], ast.Load())
            yield ast.Subscript(node.value, behind, node.ctx), "The index belongs to axis 1, not to axis 0."
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        for parts in (2, 3) if isinstance(node.right, ast.Name) else ():
            yield ast.BinOp(node.left, node.op, ast.Constant(parts)), f"It should be divided by {parts}."
        down = ast.BinOp(ast.UnaryOp(ast.USub(), node.left), node.op, node.right)
        yield ast.UnaryOp(ast.USub(), down), "A quotient is rounded down. It should be rounded up."
    elif isinstance(node, ast.Constant | ast.UnaryOp) and type(_number(node)) in (int, float) and _number(node):
        yield _expression(_LOWEST), f"{ast.unparse(node)} stands where −∞ should stand."


def _other_axes(axes: list[int], step: str) -> Iterator[list[int]]:
    """Two other axes to exchange; another order, of many axes only one that comes by moving a single one."""
    if step != "permute":
        yield from map(list, combinations(range(-4, 0) if min(axes) < 0 else range(4), 2))
    elif len(axes) <= 4:
        yield from map(list, permutations(axes))
    else:
        for one in axes:
            rest = [axis for axis in axes if axis != one]
            yield from ([*rest[:n], one, *rest[n:]] for n in range(len(axes)))


def compares(node: ast.expr) -> bool:
    """Whether this part of a program compares something, with a yes or a no."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        return name in ("allclose", "equal", "isclose", "all", "any")
    return isinstance(node, ast.Compare)


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _is_plain(node: ast.expr) -> bool:
    """Whether this is a single name, or a size of a tensor."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute))


def _number(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
