"""An exercise that knows the mistakes people make in it.

The right answer is written with its steps as keyword arguments. A fault is one of these steps, done wrong. Whoever
makes the mistake computes the same wrong numbers, so the fault whose numbers agree with an answer's names what happened
to it.

An answer is observed, then judged: :meth:`Exercise.observe` calls it and keeps plain tensors, :meth:`Exercise.judge`
compares them. A grader does the first in a process that it does not trust.

More than 500 lines, since observing and judging share the forms that an answer can take.
"""

import linecache
import secrets
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

import torch
from torch import Tensor

from sciformer.check.limits import TimeUp, limited

Level = Literal["easy", "middle", "hard"]
POINTS: dict[Level, int] = {"easy": 1, "middle": 2, "hard": 3}

#: Files whose lines are not the student's own.
_NOT_THEIRS = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parents[1]), sysconfig.get_paths()["stdlib"])

#: What to tell the student when the backward pass stops with one of torch's own messages.
_WITHOUT_GRADIENT = {
    "inplace operation": "The numbers are right, but an in-place operation (`/=`, `*=`, `w[...] = ...`) overwrites "
    "what the backward pass still needs. Make a new tensor: `w = w / w.sum()`.",
    "Can't call numpy()": "The numbers are right, but no gradient flows back: NumPy does not record the "
    "computation. Use torch's functions throughout.",
}


class Draw:
    """Random inputs with few digits, so that they can be shown as they are."""

    def __init__(self, seed: int, dtype: torch.dtype, device: torch.device | str):
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype, self.device = dtype, device

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, rounded to one decimal."""
        return torch.randn(shape, generator=self.generator).round(decimals=1).to(self.device, self.dtype)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers from ``low`` to ``high - 1``."""
        return torch.randint(low, high, shape, generator=self.generator).to(self.device)

    def permutation(self, n: int) -> Tensor:
        """The numbers from 0 to ``n - 1`` in random order."""
        return torch.randperm(n, generator=self.generator).to(self.device)


@dataclass(frozen=True)
class Case:
    """One call of an answer.

    Args:
        name: the case in a few words, "two tokens, causal mask".
        inputs: by name, in the order of the answer's parameters.
    """

    name: str
    inputs: dict[str, Any]


class Fault:
    """One mistake: steps of the right answer, done wrong.

    Args:
        name: in a few words; no two faults of an exercise share it.
        says: the sentence that a student reads.
        see: section of the notebook to read again, where it is not the exercise's.
        steps: what stands in place of the right steps.
    """

    def __init__(self, name: str, says: str, *, see: str | None = None, **steps: Any):
        self.name, self.says, self.see, self.steps = name, says, see, steps


class WrongType(TypeError):
    """Raised by an exercise's ``call`` for an answer that it cannot go on with; the message is for the student."""


@dataclass(frozen=True)
class Problem:
    """Why an answer gave no result: the kind of problem, and a sentence about it."""

    kind: str
    says: str


@dataclass
class Observation:
    """What an answer did, call by call, until a problem stopped it.

    Args:
        outputs: one for each case, as :func:`plain` leaves them.
    """

    outputs: list[Any] = field(default_factory=list)
    problem: Problem | None = None


@dataclass(frozen=True)
class Diagnosis:
    """The judgement of one answer.

    Args:
        kind: "correct", "not attempted", "known mistake", or what else went wrong.
        says: the judgement in words.
        message: all that the student reads: the judgement, the smallest input, the section to read again.
        faults: names of the mistakes that were recognised.
    """

    exercise: str
    kind: str
    says: str
    message: str
    faults: tuple[str, ...] = ()

    @property
    def correct(self) -> bool:
        """Whether the answer is right."""
        return self.kind == "correct"


class Exercise:
    """A checker: ``exercise(mine)`` prints what it thinks of an answer, and never raises.

    Args:
        reference: the right answer, with each step that can go wrong as a keyword argument; named like the exercise.
        notebook: number of the notebook, "02".
        section: heading in that notebook where the idea is explained.
        cases: ``cases(draw)`` yields the calls to make, the smallest first.
        call: ``call(answer, **inputs)`` gives the outputs; by default the answer is a function of the inputs.
        returns: names of the outputs, if there are several or they are no single tensor.
        differentiable: whether gradients must flow from the output to the inputs.
        seconds: how long all calls together may take.
    """

    def __init__(
        self,
        reference: Callable[..., Any],
        *,
        notebook: str,
        section: str,
        level: Level,
        minutes: int,
        cases: Callable[[Draw], Iterable[Case]],
        faults: Iterable[Fault],
        call: Callable[..., Any] | None = None,
        returns: tuple[str, ...] = ("result",),
        differentiable: bool = True,
        seconds: float = 5.0,
    ):
        self.name = reference.__name__
        self.reference, self.notebook, self.section, self.level = reference, notebook, section, level
        self.minutes, self.cases, self.call, self.returns = minutes, cases, call, returns
        self.faults = tuple(faults)
        self.differentiable, self.seconds = differentiable, seconds

    @property
    def points(self) -> int:
        """1 for an easy exercise, 2 for a middle one, 3 for a hard one."""
        return POINTS[self.level]

    def __call__(
        self,
        answer: Any,
        *,
        seed: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """Print the diagnosis of an answer.

        Args:
            seed: of the inputs, which are fresh at every call without it.
        """
        print(self.diagnose(answer, seed=seed, dtype=dtype, device=device).message)

    def diagnose(
        self,
        answer: Any,
        *,
        seed: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> Diagnosis:
        """The diagnosis of an answer."""
        seed = secrets.randbits(32) if seed is None else seed
        cases = self.draw(seed, dtype, device)
        return self.judge(cases, self.observe(answer, cases, seed), seed)

    def draw(self, seed: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> list[Case]:
        """The cases of a seed."""
        return list(self.cases(Draw(seed, dtype, device)))

    def observe(self, answer: Any, cases: list[Case], seed: int) -> Observation:
        """Call an answer on every case, for ``seconds`` at most, and keep what it does."""
        seen = Observation()
        if not callable(answer):
            says = f"A function or a class is wanted, but this is {_kind(plain(answer))}."
            return Observation(problem=Problem("wrong type", says))
        try:
            with torch.random.fork_rng(devices=[]):
                limited(partial(self._observe, answer, cases, seed, seen), self.seconds)
        except BaseException as error:
            seen.problem = self._explain(error, cases[min(len(seen.outputs), len(cases) - 1)])
        return seen

    def _observe(self, answer: Any, cases: list[Case], seed: int, seen: Observation) -> None:
        for case in cases:
            _, first = self._run(answer, case, seed)
            inputs, again = self._run(answer, case, seed)
            changed = [name for name, x in inputs.items() if not _same(plain(x), plain(case.inputs[name]))]
            if changed:
                says = f"The answer changes its input `{changed[0]}`. Work on a copy, or do not assign into it."
                seen.problem = Problem("changes its input", says)
                return
            if not _same(plain(first), plain(again)):
                says = (
                    "Called twice with the same input, the answer gives different results. Is something kept, or drawn?"
                )
                seen.problem = Problem("not repeatable", says)
                return
            seen.outputs.append(plain(first))
        if self.differentiable:
            wanted = _reached(*self._run(self.reference, cases[-1], seed, True))
            try:
                found = _reached(*self._run(answer, cases[-1], seed, True))
            except RuntimeError as error:
                reasons = [says for words, says in _WITHOUT_GRADIENT.items() if words in _message(error)]
                if not reasons:
                    raise
                line = _own_line(error)
                says = reasons[0] + (f"\n  in your line: {line}" if line else "")
                seen.problem = Problem("no gradient", says)
                return
            if wanted - found:
                says = (
                    f"The numbers are right, but no gradient flows back to {', '.join(sorted(wanted - found))}. "
                    "Something takes them out of the graph: .item(), .detach(), .data, torch.tensor(...), "
                    "torch.no_grad()."
                )
                seen.problem = Problem("no gradient", says)

    def _run(self, answer: Any, case: Case, seed: int, requires_grad: bool = False) -> tuple[dict[str, Any], Any]:
        inputs = {name: _copy(x, requires_grad) for name, x in case.inputs.items()}
        torch.default_generator.manual_seed(seed)  # for the first weights of a module
        if self.call is None:
            return inputs, answer(*inputs.values())
        returned: list[Any] = []

        def watched(*args: Any, **options: Any) -> Any:
            returned[:] = [answer(*args, **options)]
            return returned[0]

        try:
            return inputs, self.call(watched, **inputs)
        except Exception:
            if any(x is None for x in returned):
                return inputs, None  # `call` tripped over a missing return, and that is what the student should read
            raise

    def _explain(self, error: BaseException, case: Case) -> Problem:
        if isinstance(error, NotImplementedError) and not _message(error):  # torch's own have a message
            return Problem("not attempted", "not attempted yet")
        if isinstance(error, TimeUp):
            says = f"The answer is not done after {self.seconds:g} seconds. Does one of its loops never end?"
            return Problem("too slow", f"{says}\n  on this input: {case.name}")
        if isinstance(error, WrongType):
            return Problem("wrong type", f"{_message(error)}\n  on this input: {case.name}")
        line = _own_line(error)
        says = f"The answer stops with {type(error).__name__}: {_message(error)}"
        if line:
            says += f"\n  in your line: {line}"
        elif self.call is None:
            says += f"\n  it is called with {', '.join(case.inputs)}"
        return Problem("raises", f"{says}\n  on this input: {case.name}")

    def judge(self, cases: list[Case], seen: Observation, seed: int) -> Diagnosis:
        """Compare what an answer gave with the right numbers, then with those of every known mistake."""
        expected = [self._numbers(self.reference, case, seed) for case in cases]
        wrong = [n for n, got in enumerate(seen.outputs) if not _same(got, expected[n])]
        if not wrong:
            return self._without_difference(cases, seen)
        got, first = seen.outputs, wrong[0]
        shown = _show(cases[first], expected[first], got[first])
        for faults in self._suspects(singly=all(isinstance(output, bool) for output in expected)):
            if self._agrees(faults, cases, got, first, seed):
                says = (
                    faults[0].says
                    if len(faults) == 1
                    else f"There are two mistakes. {faults[0].says} Also: {faults[1].says}"
                )
                names = tuple(fault.name for fault in faults)
                return self._diagnosis("known mistake", says, shown, see=faults[0].see, faults=names)
        kind, says = _difference(expected[first], got[first], self.returns)
        right = [case.name for n, case in enumerate(cases[: len(got)]) if n not in wrong]
        if kind == "wrong numbers" and right:
            says += f" They are right for: {'; '.join(right)}."
        return self._diagnosis(kind, says, shown)

    def _without_difference(self, cases: list[Case], seen: Observation) -> Diagnosis:
        if seen.problem is None and len(seen.outputs) == len(cases):
            return Diagnosis(self.name, "correct", "correct", f"{self.name}: correct")
        problem = seen.problem or Problem("incomplete", "The answer did not finish on all its inputs.")
        if problem.kind == "not attempted":
            return Diagnosis(self.name, problem.kind, problem.says, f"{self.name}: {problem.says}")
        return self._diagnosis(problem.kind, problem.says)

    def _suspects(self, singly: bool) -> Iterator[tuple[Fault, ...]]:
        """Each fault alone, then every two that change different steps; two could explain any row of yes and no."""
        yield from ((fault,) for fault in self.faults)
        for one, two in combinations(() if singly else self.faults, 2):
            if not one.steps.keys() & two.steps.keys():
                yield one, two

    def wrong_answer(self, *faults: Fault) -> Callable[..., Any]:
        """The answer of somebody who makes these mistakes."""
        steps = {name: step for fault in faults for name, step in fault.steps.items()}
        return partial(self.reference, **steps)

    def _numbers(self, answer: Callable[..., Any], case: Case, seed: int) -> Any:
        with torch.random.fork_rng(devices=[]):
            return plain(self._run(answer, case, seed)[1])

    def _agrees(self, faults: tuple[Fault, ...], cases: list[Case], got: list[Any], first: int, seed: int) -> bool:
        """Whether these mistakes give the same numbers, everywhere; most do not on the first wrong case."""
        answer = self.wrong_answer(*faults)
        try:
            return all(_same(got[n], self._numbers(answer, cases[n], seed)) for n in (first, *range(len(got))))
        except Exception:
            return False  # the mistake raises where the answer does not, or two mistakes cannot be combined

    def _diagnosis(
        self, kind: str, says: str, shown: str = "", *, see: str | None = None, faults: tuple[str, ...] = ()
    ) -> Diagnosis:
        sentence, *more = says.split("\n")
        # JupyterLab shows about 100 characters in a line and breaks longer ones within words.
        lines = [fill(f"{self.name}: not right yet. {sentence}", 96, subsequent_indent="  "), *more]
        message = "\n".join(lines) + f"{shown}\n  read again: notebook {self.notebook}, '{see or self.section}'"
        return Diagnosis(self.name, kind, says, message, faults)


def parameter(module: Any, name: str) -> Tensor:
    """What a module keeps under a name to train.

    Raises:
        WrongType: if that is no tensor.
    """
    value = getattr(module, name, None)
    if not isinstance(value, Tensor):
        raise WrongType(f"`{name}` should be an nn.Parameter, but it is {_kind(plain(value))}.")
    return value


def pair(result: Any, first: str, second: str) -> tuple[Any, Any]:
    """The two results of an answer; their names, "a longer query", are for the message.

    Raises:
        WrongType: if there are not two.
    """
    if not isinstance(result, list | tuple) or len(result) != 2:
        raise WrongType(f"Two results are wanted: {first}, and {second}. This is {_kind(plain(result))}.")
    return result[0], result[1]


def plain(value: Any) -> Any:
    """A result as tensors, numbers, texts and lists of them; anything else becomes ``{"type": its name}``.

    A truth value of torch's, as `any()` gives, is as good as Python's.
    """
    if isinstance(value, Tensor) and value.layout == torch.strided and not (value.is_complex() or value.is_meta):
        tensor = value.detach().as_subclass(Tensor).cpu().clone()
        return bool(tensor) if tensor.dtype == torch.bool and tensor.dim() == 0 else tensor
    if value is None or isinstance(value, bool | float | str) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return {"type": f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")}


def _copy(x: Any, requires_grad: bool) -> Any:
    if not isinstance(x, Tensor):
        return x
    return x.clone().requires_grad_(requires_grad and x.is_floating_point())


def _reached(inputs: dict[str, Any], result: Any) -> set[str]:
    """Names of the inputs to which a gradient flows back."""
    results = result if isinstance(result, list | tuple) else [result]
    total = sum(r.sum() for r in results if isinstance(r, Tensor) and r.requires_grad)
    leaves = {name: x for name, x in inputs.items() if isinstance(x, Tensor) and x.requires_grad}
    if not isinstance(total, Tensor) or not leaves:
        return set()
    gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return {name for name, gradient in zip(leaves, gradients, strict=True) if gradient is not None}


def _same(one: Any, two: Any) -> bool:
    """Equal up to float32's rounding."""
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        if one.shape != two.shape or _family(one) != _family(two):
            return False
        return torch.allclose(one.double(), two.double(), rtol=1e-4, atol=1e-5, equal_nan=True)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_same, one, two))
    if {type(one), type(two)} <= {int, float}:
        return _same(torch.tensor(float(one)), torch.tensor(float(two)))
    return type(one) is type(two) and bool(one == two)


def _family(x: Tensor) -> str:
    """What kind of values a tensor holds; 0 and 1 are not a mask, since ~ turns 1 into -2."""
    if x.dtype == torch.bool:
        return "truth values"
    return "real numbers" if x.is_floating_point() else "whole numbers"


def _difference(expected: Any, got: Any, names: tuple[str, ...]) -> tuple[str, str]:
    """Kind and sentence of a difference that no known mistake explains.

    The sentences fit one result, "state", and several, "looks".
    """
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for e, g, name in zip(expected, got, names, strict=True):
            if not _same(e, g):
                return _difference(e, g, (name,))
    name = names[0] if len(names) == 1 else "result"
    if got is None:
        return "wrong type", "It returns None. Is the return missing?"
    if not isinstance(expected, Tensor) or not isinstance(got, Tensor):
        if _kind(expected) != _kind(got):
            return "wrong type", f"The {name} should be {_kind(expected)}, not {_kind(got)}."
    elif expected.shape != got.shape:
        return "wrong shape", f"The {name} should have shape {tuple(expected.shape)}, not {tuple(got.shape)}."
    elif _family(expected) != _family(got):
        return "wrong type", f"The {name} should be a tensor of {expected.dtype}, not of {got.dtype}."
    elif got.isnan().any() and not expected.isnan().any():
        return "NaN", f"There is NaN in the {name}. It comes from 0/0, from ∞ − ∞ or from the softmax of a row of −∞."
    return "wrong numbers", f"Some numbers of the {name} are wrong, and the checker does not recognize why."


def _kind(value: Any) -> str:
    """What a plain value is, in words."""
    if isinstance(value, Tensor):
        return "a tensor"
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    if isinstance(value, dict):
        return f"a value of type {value['type']}"
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _message(error: BaseException) -> str:
    try:
        return str(error)[:500]
    except Exception:  # an exception of the student's own making
        return "(no message)"


def _own_line(error: BaseException) -> str | None:
    """The last line of the student's own code that an exception passed through."""
    line, trace = None, error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith(("<frozen", *_NOT_THEIRS)):
            text = linecache.getline(file, trace.tb_lineno).strip()
            line = text or f"number {trace.tb_lineno} of {trace.tb_frame.f_code.co_name}"
        trace = trace.tb_next
    return line


def _show(case: Case, expected: Any, got: Any) -> str:
    rows = {name: plain(x) for name, x in case.inputs.items()} | {"expected": expected, "got": got}
    width = max(map(len, rows)) + 6
    alike = _text(expected, 0, 3) == _text(got, 0, 3)
    text = "".join(f"\n    {name:{width - 4}}{_text(x, width, 7 if alike else 3)}" for name, x in rows.items())
    return f"\n  the smallest input that shows it: {case.name}{text}"


def _text(value: Any, indent: int, decimals: int) -> str:
    """A value as a person would write it down; of a large tensor, its shape and its first numbers."""
    if isinstance(value, list):
        return (",\n" + " " * indent).join(_text(item, indent, decimals) for item in value)
    if not isinstance(value, Tensor):
        return value["type"] if isinstance(value, dict) else repr(value)
    if value.numel() > 32:
        return f"shape {tuple(value.shape)}, beginning {_text(value.flatten()[:4], indent, decimals)}"
    numbers = [_number(x, decimals) for x in value.flatten().tolist()]
    width = max(map(len, numbers), default=0)
    words = iter(numbers)

    def nested(x: Tensor, depth: int) -> str:
        if x.dim() == 0:
            return f"{next(words):>{width}}"
        separator = ", " if x.dim() == 1 else ",\n" + " " * (indent + depth + 1)
        return "[" + separator.join(nested(part, depth + 1) for part in x) + "]"

    return nested(value, 0)


def _number(x: float | int | bool, decimals: int) -> str:
    return f"{round(x, decimals) + 0.0:.10g}" if isinstance(x, float) else str(x)
