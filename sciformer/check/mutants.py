"""Mistakes that nobody wrote down: the right answer with one small change, and a sentence for each.

An exercise knows some mistakes by name. Of the others, most are a single slip: another axis, a factor left out, two
arguments exchanged, an index off by one. So we make such slips automatically in the source of the right answer, its
steps included. An answer with the numbers of such a mutant has probably made its slip. Mutants are what mutation
testing judges tests by (DeMillo, Lipton & Sayward 1978, "Hints on test data selection").
"""

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from sciformer.check.programs import Replaced, made, program_of, scope_of, text_with

#: A replacement of a part of the program, and the sentence that a student reads.
Slip = tuple[ast.AST, str]


@dataclass(frozen=True)
class Names:
    """What a part of a program can speak of.

    Args:
        parameters: of the function around it.
        steps: parameters that are steps of the right answer.
        own: names that the function around it gives, in order.
    """

    parameters: tuple[str, ...] = ()
    steps: frozenset[str] = frozenset()
    own: tuple[str, ...] = ()


#: What is raised where an answer's source cannot be read, or is none of a function or class.
UNREADABLE = (OSError, TypeError, SyntaxError, ValueError, KeyError, AttributeError)
#: The slips that can be made in a node.
Changes = Callable[[ast.AST, Names], Iterator[Slip]]


@dataclass(frozen=True)
class Mutant:
    """The right answer with one slip.

    Args:
        says: the slip, as a sentence.
        answer: takes the steps of the right answer as it does.
        text: the program, without annotations and docstrings.
    """

    says: str
    answer: Callable[..., Any]
    text: str


@cache
def mutants(reference: Callable[..., Any]) -> tuple[Mutant, ...]:
    """All mutants of a right answer that are programs; none where its source cannot be read."""
    try:
        return programs(reference, slips)
    except (OSError, TypeError, SyntaxError):
        return ()


def programs(reference: Callable[..., Any], changes: Changes, *, together: bool = False) -> tuple[Mutant, ...]:
    """All programs that differ from this one in a single change; or in the same change in several places.

    Raises:
        OSError, TypeError, SyntaxError, ValueError, KeyError, AttributeError: where its source cannot be read.
    """
    program, scope = program_of(reference), scope_of(reference)
    found: dict[str, Mutant] = {}
    single = [
        (says, (parent, name, index, replacement))
        for parent, name, index, found_here in _places(program, Names(), changes)
        for replacement, says in found_here
    ]
    for says, replaced in _alike(single) if together else ((says, [one]) for says, one in single):
        try:
            text = text_with(program, replaced)
            if text not in found:
                found[text] = Mutant(says, made(text, reference.__name__, scope), text)
        except (SyntaxError, ValueError, TypeError):
            pass  # this slip is no program here
    return tuple(found.values())


#: The same is changed in so many places at most.
MOST_PLACES = 4


def _alike(single: list[tuple[str, Replaced]]) -> Iterator[tuple[str, list[Replaced]]]:
    """The changes of which the same is said, whatever the names in it, each once for a part of the program."""
    groups: dict[str, list[Replaced]] = {}
    for says, one in single:
        for key in dict.fromkeys((says, re.sub(r"`[^`]*`", "…", says))):
            groups.setdefault(key, []).append(one)
    for says, places in groups.items():
        apart = {(id(parent), name, index) for parent, name, index, _ in places}
        if len(apart) == len(places) and 1 < len(places) <= MOST_PLACES:
            yield says, places


def _places(node: ast.AST, names: Names, changes: Changes) -> Iterator[tuple[ast.AST, str, int | None, list[Slip]]]:
    """Every node of a program with the slips that can be made in it: its parent, the field, the index there."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        options = {a.arg for a in node.args.kwonlyargs}
        is_forward = getattr(node, "name", "") == "forward"  # whose options are the student's as well
        names = Names(
            tuple(a.arg for a in node.args.args if a.arg != "self"),
            names.steps if is_forward else names.steps | options,
            tuple(dict.fromkeys(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _is_given(n))),
        )
    for name, value in ast.iter_fields(node):
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.expr_context | ast.operator | ast.arg):
                continue
            yield node, name, index, list(changes(child, names))
            if not (isinstance(child, ast.UnaryOp) and isinstance(child.operand, ast.Constant)):
                yield from _places(child, names, changes)


def _is_given(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _code(node: ast.AST, steps: frozenset[str], otherwise: str = "") -> str:
    """A part of the program as a student can read it; names of steps are ours and tell nothing."""
    text = ast.unparse(node)
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return otherwise if len(text) > 40 or "\n" in text or names & steps or "self." in text else f"`{text}`"


def slips(node: ast.AST, names: Names) -> Iterator[Slip]:
    """The slips that can be made in a part of a program, or mended there."""
    parameters, steps = names.parameters, names.steps
    if isinstance(node, ast.BinOp):
        yield from _operations(node, steps)
    elif isinstance(node, ast.Call):
        yield from _calls(node, steps)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield from _comparisons(node, steps)
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.UnaryOp):
        if (value := whole(node)) is not None:
            for number in (value + 1, value - 1):
                yield ast.Constant(number), f"An index or an axis is {number}; it should be {value}."
        else:
            what = {ast.USub: "A minus sign", ast.Invert: "The inversion `~`", ast.Not: "The word `not`"}
            term = _code(node.operand, steps, "a term")
            yield node.operand, f"{what.get(type(node.op), 'A sign')} is missing before {term}."
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        yield from _sizes(node, parameters)
    elif isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        yield node.value, f"{_code(node.value, steps, 'A matrix')} is not transposed, and should be."
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in parameters:
        for name in parameters:
            if name != node.id:
                yield ast.Name(name, ast.Load()), f"`{name}` stands where `{node.id}` should stand."
    elif isinstance(node, ast.IfExp):
        test = _code(node.test, steps, "a condition")
        yield node.body, f"It does as if {test} always held."
        yield node.orelse, f"It does as if {test} never held."
    elif isinstance(node, ast.If):
        test = _code(node.test, steps, "a condition")
        for value, says in ((True, f"It does as if {test} always held."), (False, f"It does as if {test} never held.")):
            yield ast.If(ast.Constant(value), node.body, node.orelse), says
    elif isinstance(node, ast.Slice):
        if node.lower is not None:
            yield ast.Slice(None, node.upper, node.step), "A slice begins too early."
        if node.upper is not None:
            yield ast.Slice(node.lower, None, node.step), "A slice ends too late."
    elif isinstance(node, ast.AugAssign):
        yield ast.Pass(), f"A step is left out: {_code(node, steps, 'one of the sums')}."
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        target = node.targets[0].id
        if target in {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}:
            yield ast.Pass(), f"A step is left out, the one that changes `{target}`."


def _sizes(node: ast.Subscript, parameters: tuple[str, ...]) -> Iterator[Slip]:
    """Another size of an input in place of this one."""
    axis = whole(node.slice)
    right = ast.unparse(node)
    for name in parameters if axis is not None else ():
        for other in (-1, -2):
            size = f"{name}.shape[{other}]"
            if size != right:
                says = f"The size `{size}` stands where `{right}` should stand."
                yield ast.parse(size, mode="eval").body, says


def _operations(node: ast.BinOp, steps: frozenset[str]) -> Iterator[Slip]:
    left, right = _code(node.left, steps), _code(node.right, steps)

    def joined(op: ast.operator, one: ast.expr = node.left, two: ast.expr = node.right) -> ast.BinOp:
        return ast.BinOp(one, op, two)

    def says(told: str, otherwise: str) -> str:
        return told if left and right else otherwise

    turned = joined(node.op, node.right, node.left)
    match node.op:
        case ast.Add():
            yield node.left, _missing(right, left, "{} is not added to {}.", "A term of a sum is missing.")
            yield node.right, _missing(left, right, "{} is not added to {}.", "A term of a sum is missing.")
            told = f"{right} is subtracted. It should be added."
            yield joined(ast.Sub()), told if right else "Perhaps a sign is wrong."
        case ast.Sub():
            yield node.left, _missing(right, left, "{} is not subtracted from {}.", "A subtraction is missing.")
            told = f"{right} is added. It should be subtracted."
            yield joined(ast.Add()), told if right else "Perhaps a sign is wrong."
            generic = "A difference is taken the wrong way round."
            yield turned, says(f"{generic} It should be {left} minus {right}.", generic)
        case ast.Mult():
            yield node.left, _missing(right, left, "The factor {} is missing beside {}.", "A factor is missing.")
            yield node.right, _missing(left, right, "The factor {} is missing beside {}.", "A factor is missing.")
            told = f"It divides by {right} where it should multiply."
            yield joined(ast.Div()), told if right else "It divides where it should multiply."
            generic = "A sum stands where a product should stand."
            yield joined(ast.Add()), says(f"{right} is added where it should be a factor.", generic)
        case ast.Div():
            yield node.left, f"The division by {right} is missing." if right else "A division is missing."
            told = f"It multiplies by {right} where it should divide."
            yield joined(ast.Mult()), told if right else "It multiplies where it should divide."
            told = f"It subtracts {right} where it should divide by it."
            yield joined(ast.Sub()), told if right else "It subtracts where it should divide."
            generic = "A fraction is upside down."
            yield turned, says(f"{generic} {left} belongs above {right}.", generic)
        case ast.MatMult():
            generic = "The two factors of a matrix product are exchanged."
            yield turned, says(f"{generic} {left} comes first, then {right}.", generic)
            generic = "Two matrices are multiplied entry by entry. A matrix product, `@`, is wanted."
            yield joined(ast.Mult()), says(f"{left} and {right} are multiplied entry by entry. `@` is wanted.", generic)
            one, two = (ast.Attribute(side, "mT", ast.Load()) for side in (node.left, node.right))
            yield joined(node.op, one), _transposed(node.left, left)
            yield joined(node.op, node.left, two), _transposed(node.right, right)
        case ast.Pow():
            yield node.left, f"The power `** {ast.unparse(node.right)}` is missing."
            yield joined(node.op, node.left, ast.UnaryOp(ast.USub(), node.right)), "The sign of an exponent is wrong."
        case ast.FloorDiv() | ast.Mod():
            yield (
                joined(ast.Mod() if isinstance(node.op, ast.FloorDiv) else ast.FloorDiv()),
                "The quotient `//` and the remainder `%` are exchanged.",
            )
        case ast.BitAnd() | ast.BitOr():
            op = ast.BitOr() if isinstance(node.op, ast.BitAnd) else ast.BitAnd()
            yield joined(op), "*And* and *or* are exchanged between two conditions."
            yield node.left, says(f"The condition {right} is missing.", "One of two conditions is missing.")
            yield node.right, says(f"The condition {left} is missing.", "One of two conditions is missing.")


def _missing(part: str, other: str, told: str, otherwise: str) -> str:
    """What is said of a missing part; the other one may be too long to be quoted."""
    if not part:
        return otherwise
    return told.format(part, other or "what stands beside it")


def _transposed(factor: ast.expr, shown: str) -> str:
    """What is wrong where a factor of a matrix product is transposed once more."""
    already = isinstance(factor, ast.Attribute) or "transpose" in ast.unparse(factor)
    if already:
        return "A factor of a matrix product is not transposed, and should be."
    return f"{shown or 'A factor of a matrix product'} is transposed, and should not be."


_OTHER_COMPARISONS: dict[type[ast.cmpop], tuple[tuple[type[ast.cmpop], str], ...]] = {
    ast.Lt: ((ast.LtE, "equal values count, too, but should not"), (ast.Gt, "it is turned round")),
    ast.LtE: ((ast.Lt, "equal values should count, too"), (ast.Gt, "it is turned round")),
    ast.Gt: ((ast.GtE, "equal values count, too, but should not"), (ast.Lt, "it is turned round")),
    ast.GtE: ((ast.Gt, "equal values should count, too"), (ast.Lt, "it is turned round")),
    ast.Eq: ((ast.NotEq, "it is turned round"),),
    ast.NotEq: ((ast.Eq, "it is turned round"),),
}


def _comparisons(node: ast.Compare, steps: frozenset[str]) -> Iterator[Slip]:
    for other, says in _OTHER_COMPARISONS.get(type(node.ops[0]), ()):
        what = f"the comparison {shown}" if (shown := _code(node, steps)) else "a comparison"
        yield ast.Compare(node.left, [other()], node.comparators), f"In {what}, {says}."


def _constants(node: ast.Constant) -> Iterator[Slip]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value), f"An argument should be {value}, not {not value}."
    elif isinstance(value, int):
        for number in (value + 1, value - 1):
            yield ast.Constant(number), f"A number is off by one: it is {number}, and should be {value}."
    elif isinstance(value, float):
        for factor in {2 * value, value / 2, value * value} - {value}:
            yield ast.Constant(factor), f"A constant is {factor:g}, and should be {value:g}."


#: Steps that can be forgotten.
_LEFT_OUT = {
    *(
        "abs",
        "argsort",
        "clamp",
        "cos",
        "cumsum",
        "exp",
        "expand",
        "flip",
        "floor",
        "gelu",
        "layer_norm",
        "log",
        "masked_fill",
    ),
    *(
        "mean",
        "norm",
        "permute",
        "relu",
        "roll",
        "round",
        "sigmoid",
        "sin",
        "softmax",
        "log_softmax",
        "sort",
        "sqrt",
        "square",
    ),
    *(
        "std",
        "sum",
        "tanh",
        "transpose",
        "tril",
        "triu",
        "unsqueeze",
        "where",
        "softplus",
        "cummax",
        "flatten",
        "unflatten",
    ),
}
#: Functions that are taken for one another.
_TAKEN_FOR = {
    "mean": ("sum", "median"),
    "sum": ("mean",),
    "amax": ("amin",),
    "amin": ("amax",),
    "max": ("min",),
    "min": ("max",),
    "argmax": ("argmin",),
    "argmin": ("argmax",),
    "triu": ("tril",),
    "tril": ("triu",),
    "sin": ("cos",),
    "cos": ("sin",),
    "log": ("log2", "log10", "log1p"),
    "log2": ("log",),
    "log10": ("log",),
    "exp": ("exp2", "expm1", "sigmoid"),
    "sqrt": ("square", "exp", "log"),
    "square": ("abs", "sqrt"),
    "abs": ("square", "relu"),
    "softmax": ("log_softmax", "sigmoid"),
    "log_softmax": ("softmax",),
    "std": ("var",),
    "var": ("std",),
    "floor": ("round", "ceil"),
    "round": ("floor", "ceil"),
    "zeros": ("ones",),
    "ones": ("zeros",),
    "zeros_like": ("ones_like",),
    "ones_like": ("zeros_like",),
    "gelu": ("relu",),
    "relu": ("gelu",),
    "tanh": ("sigmoid", "relu"),
    "sigmoid": ("tanh",),
    "cumsum": ("cumprod",),
    "scatter_add": ("scatter",),
    "scatter_add_": ("scatter_",),
    "index_add": ("index_copy",),
    "index_add_": ("index_copy_",),
    "repeat_interleave": ("repeat",),
    "repeat": ("repeat_interleave",),
    "softplus": ("exp", "relu"),
}
_OTHER_AXES = {-1: (-2, 0), -2: (-1,), 0: (1, -1), 1: (0, 2, -1), 2: (1, 3), -3: (-2,)}


def _calls(node: ast.Call, steps: frozenset[str]) -> Iterator[Slip]:
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if isinstance(function, ast.Attribute):
        library = ast.unparse(function.value) in ("torch", "F", "math", "nn")
        inside = function.value if not library else node.args[0] if node.args else None
        if name in _LEFT_OUT and inside is not None:
            yield inside, f"The step `{name}` is left out."
        if name in ("std", "var") and inside is not None:
            yield from _not_centred(name, inside, node)
        for taken in _TAKEN_FOR.get(name, ()):
            method = ast.Attribute(function.value, taken, ast.Load())
            yield ast.Call(method, node.args, node.keywords), f"It takes `{taken}` where `{name}` is meant."
    for index, keyword in enumerate(node.keywords):
        axis = whole(keyword.value) if keyword.arg in ("dim", "start_dim", "dims") else None
        for along in _OTHER_AXES.get(axis, ()) if axis is not None else ():
            changed = copy.deepcopy(node)
            changed.keywords[index].value = ast.Constant(along)
            yield changed, f"The step `{name}` runs along axis {along}. It should run along axis {axis}."
        if keyword.arg not in (None, "device", "dtype"):
            changed = copy.deepcopy(node)
            del changed.keywords[index]
            yield changed, f"In the step `{name}`, `{keyword.arg}={ast.unparse(keyword.value)}` is missing."
    plain = [n for n, a in enumerate(node.args) if not isinstance(a, ast.Starred)]
    for one in plain:
        for two in plain[plain.index(one) + 1 :]:
            changed = copy.copy(node)
            changed.args = [*node.args]
            changed.args[one], changed.args[two] = node.args[two], node.args[one]
            first, second = (_code(node.args[n], steps) for n in (one, two))
            both = f"{first} and {second}" if first and second else "Two arguments"
            yield changed, f"{both} are exchanged."
    if name == "range" or (name == "arange" and len(node.args) == 1):
        changed = copy.copy(node)
        changed.args = [*node.args[:-1], ast.BinOp(node.args[-1], ast.Sub(), ast.Constant(1))]
        yield changed, "The count ends one too early."


def _not_centred(name: str, values: ast.expr, node: ast.Call) -> Iterator[Slip]:
    """A deviation or variance from 0 in place of the mean, divided by n and by n − 1."""
    along = [keyword for keyword in node.keywords if keyword.arg in ("dim", "keepdim")]
    given = node.args if isinstance(node.func, ast.Attribute) and values is node.func.value else node.args[1:]
    mean = ast.Call(ast.Attribute(values, "mean", ast.Load()), given, along)
    squares = ast.Call(ast.Attribute(ast.Call(ast.Attribute(values, "square"), [], []), "mean"), given, along)
    x, few, root = ast.unparse(values), ast.unparse(mean), " ** 0.5" if name == "std" else ""
    says = "The squares are taken without subtracting the mean first."
    for by_n in (f"({ast.unparse(squares)})", f"({ast.unparse(squares)} / (1 - ({few}).numel() / ({x}).numel()))"):
        yield ast.parse(by_n + root, mode="eval").body, says


def whole(node: ast.expr) -> int | None:
    """The whole number that is written here; None where something else is."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
