"""How an answer is called, and what it then does: plain values, which the judge can trust.

A grader calls answers in a process that it does not trust, and takes nothing from there but an :class:`Observation`.
"""

import linecache
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from textwrap import fill
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.gradients import gradients
from sciformer.check.limits import PATIENCE, TimeUp, limited
from sciformer.check.values import kind_of, plain

T = TypeVar("T")

#: Files whose lines are not the student's own.
_NOT_THEIRS = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parents[1]), sysconfig.get_paths()["stdlib"])

#: What to tell the student when the backward pass stops with one of torch's own messages.
_WITHOUT_GRADIENT = {
    "inplace operation": "The numbers are right, but an in-place operation (`/=`, `*=`, `w[...] = ...`) overwrites "
    "what the backward pass still needs. Make a new tensor: `w = w / w.sum()`.",
    "Can't call numpy()": "The numbers are right, but no gradient flows back: NumPy does not record the "
    "computation. Use torch's functions throughout.",
}

#: What torch's and Python's own words for an error do not tell a beginner.
_IN_OTHER_WORDS = {
    "Boolean value of Tensor": "Python's `if`, `and`, `or`, `max` and `min` ask whether a tensor is true, and only a "
    "tensor of one element can answer. Whether an input is missing, ask with `is None`. For each number by itself, "
    "take `torch.where`, `&`, `|`, `maximum`, `minimum` or `clamp`.",
}

#: A guess at so many questions of yes or no is right once in four billion times.
_YES_OR_NO_CASES = 32


class Draw:
    """Random inputs with few digits, so that they can be shown as they are."""

    def __init__(self, seed: int, dtype: torch.dtype, device: torch.device | str):
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype, self.device = dtype, device

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, rounded to one decimal."""
        return (
            torch.randn(shape, generator=self.generator, dtype=torch.float32)
            .round(decimals=1)
            .to(self.device, self.dtype)
        )

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


class WrongType(TypeError):
    """Raised by an exercise's ``call`` for an answer that it cannot go on with; the message is for the student."""


@dataclass(frozen=True)
class Problem:
    """Why an answer gave no result: the kind of problem, and a sentence about it."""

    kind: str
    says: str


@dataclass(frozen=True)
class Call:
    """What an answer did with one case, as :func:`plain` leaves it.

    Args:
        again: the output of a second call.
        inputs: by name, as they were after the second call.
    """

    output: Any
    again: Any
    inputs: dict[str, Any]


@dataclass
class Observation:
    """What an answer did, call by call, until a problem stopped it.

    Args:
        calls: one for each case.
        gradients: of the last case, by the name of the input; None where no gradient arrives.
    """

    calls: list[Call] = field(default_factory=list)
    gradients: dict[str, Any] = field(default_factory=dict)
    problem: Problem | None = None


class Task:
    """A right answer and the inputs on which others are compared with it.

    Args:
        reference: the right answer, with each step that can go wrong as a keyword argument.
        cases: ``cases(draw)`` yields the calls to make, the smallest first.
        call: ``call(answer, **inputs)`` gives the outputs; by default the answer is a function of the inputs.
        differentiable: whether gradients must flow from the output to the inputs.
        seconds: how long all calls together may work; on the clock it may take ``limits.PATIENCE`` times as long.
    """

    def __init__(
        self,
        reference: Callable[..., Any],
        *,
        cases: Callable[[Draw], Iterable[Case]],
        call: Callable[..., Any] | None,
        differentiable: bool,
        seconds: float,
    ):
        self.name = reference.__name__
        self.reference, self.cases, self.call = reference, cases, call
        self.differentiable, self.seconds = differentiable, seconds

    def draw(self, seed: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> list[Case]:
        """The cases of a seed.

        Where yes or no is the answer there are enough cases that nobody guesses them all, in a random order, so that a
        memorized list of answers fails.
        """
        draw = Draw(seed, dtype, device)
        with _usual_dtype():
            cases = list(self.cases(draw))
            if cases and self.is_yes_or_no(cases[0], seed):
                while len(cases) < _YES_OR_NO_CASES:
                    cases += self.cases(draw)
                cases = [cases[n] for n in draw.permutation(len(cases)).tolist()]
        return cases

    def is_yes_or_no(self, first: Case, seed: int) -> bool:
        """Whether the right answer to the first case is True or False."""
        return isinstance(self.numbers(self.reference, first, seed), bool)

    def observe(self, answer: Any, cases: list[Case], seed: int) -> Observation:
        """Call an answer on every case, for ``seconds`` at most, and keep what it does."""
        seen = Observation()
        if not callable(answer):
            says = f"A function or a class is wanted, but this is {kind_of(plain(answer))}."
            return Observation(problem=Problem("wrong type", says))
        try:
            with torch.random.fork_rng(devices=[]):
                limited(partial(self._observe, answer, cases, seed, seen), self.seconds, PATIENCE)
        except BaseException as error:
            seen.problem = self._explain(error, cases[min(len(seen.calls), len(cases) - 1)])
        return seen

    def _observe(self, answer: Any, cases: list[Case], seed: int, seen: Observation) -> None:
        for case in cases:
            _, first = self.run(answer, case, seed)
            inputs, again = self.run(answer, case, seed)
            seen.calls.append(Call(plain(first), plain(again), {name: plain(x) for name, x in inputs.items()}))
        if self.differentiable:
            try:
                seen.gradients = gradients(*self.run(answer, cases[-1], seed, True), seed)
            except RuntimeError as error:
                reasons = [says for words, says in _WITHOUT_GRADIENT.items() if words in _message(error)]
                if not reasons:
                    raise
                line = own_line(error)
                says = reasons[0] + (f"\n  in your line: {line}" if line else "")
                seen.problem = Problem("no gradient", says)

    def run(self, answer: Any, case: Case, seed: int, requires_grad: bool = False) -> tuple[dict[str, Any], Any]:
        """The inputs that an answer was called with on a case, and its result."""
        inputs = {name: copied(x, requires_grad) for name, x in case.inputs.items()}
        with _usual_dtype():
            torch.default_generator.manual_seed(seed)  # for the first weights of a module
            return inputs, self.call_with(answer, inputs)

    def call_with(self, answer: Any, inputs: dict[str, Any]) -> Any:
        """The result of an answer for these very inputs, of which no copy is made."""
        if self.call is None:
            return answer(*inputs.values())
        returned: list[Any] = []

        @wraps(answer)
        def watched(*args: Any, **options: Any) -> Any:
            returned[:] = [answer(*args, **options)]
            return returned[0]

        try:
            return self.call(watched, **inputs)
        except Exception:
            if any(x is None for x in returned):
                return None  # `call` tripped over a missing return, and that is what the student should read
            raise

    def _explain(self, error: BaseException, case: Case) -> Problem:
        if isinstance(error, NotImplementedError) and not _message(error):  # torch's own have a message
            return Problem("not attempted", "not attempted yet")
        if isinstance(error, TimeUp):
            says = f"The answer is not done after {self.seconds:g} seconds. Does one of its loops never end?"
            return Problem("too slow", f"{says}\n  on this input: {case.name}")
        if isinstance(error, WrongType):
            return Problem("wrong type", f"{_message(error)}\n  on this input: {case.name}")
        line = own_line(error)
        says = f"The answer stops with {type(error).__name__}: {_message(error)}"
        if line:
            says += f"\n  in your line: {line}"
            told = [told for words, told in _IN_OTHER_WORDS.items() if words in says]
            says += "".join("\n" + fill(text, 96, initial_indent="  ", subsequent_indent="  ") for text in told)
        elif self.call is None:
            says += f"\n  it is called with {', '.join(case.inputs)}"
        return Problem("raises", f"{says}\n  on this input: {case.name}")

    def numbers(self, answer: Callable[..., Any], case: Case, seed: int) -> Any:
        """The plain results of an answer that is ours, as it gives them for a case."""
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a mistake that we try may well deserve one
            return plain(self.run(answer, case, seed)[1])

    def plainly(self, one: Any, inputs: dict[str, Any], *, seed: int) -> Any:
        """The plain results of an answer for other inputs than those of a case."""
        return plain(self.run(one, Case("", inputs), seed)[1])

    def safely(self, look: Callable[[], T]) -> T | None:
        """What a closer look finds; None where the answer does not bear being called so."""
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return limited(look, self.seconds, PATIENCE)
        except BaseException:
            return None

    def wrong_answer(self, *faults: Fault, of: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """The answer of somebody who makes these mistakes, in the right answer or in another one."""
        steps = {name: step for fault in faults for name, step in fault.steps.items()}
        return partial(of or self.reference, **steps)


def parameter(module: Any, name: str) -> Tensor:
    """What a module keeps under a name to train.

    Raises:
        WrongType: if that is no tensor, or one whose entries cannot be trained apart.
    """
    value = getattr(module, name, None)
    if not isinstance(value, Tensor):
        raise WrongType(f"`{name}` should be an nn.Parameter, but it is {kind_of(plain(value))}.")
    check_memory(name, value)
    return value


def check_memory(name: str, parameter: Tensor) -> None:
    """Whether each entry of a parameter has a place of its own in memory.

    Raises:
        WrongType: if several share one.
    """
    if any(size > 1 and step == 0 for size, step in zip(parameter.shape, parameter.stride(), strict=True)):
        raise WrongType(
            f"Several entries of the parameter {name} are one place in memory, as after `expand`. They look like "
            "many numbers, but training can only change them together, and an optimiser stops with an error. Use "
            "`repeat`, or make the tensor in its full shape."
        )


def pair(result: Any, first: str, second: str) -> tuple[Any, Any]:
    """The two results of an answer; their names, "a longer query", are for the message.

    Raises:
        WrongType: if there are not two.
    """
    if not isinstance(result, list | tuple) or len(result) != 2:
        raise WrongType(f"Two results are wanted: {first}, and {second}. This is {kind_of(plain(result))}.")
    return result[0], result[1]


def copied(x: Any, requires_grad: bool) -> Any:
    """An input that an answer may do with what it likes, as it lies in memory."""
    if not isinstance(x, Tensor):
        return x
    return x.clone().requires_grad_(requires_grad and x.is_floating_point())


@contextmanager
def _usual_dtype() -> Iterator[None]:
    """Answers are called with torch's own default dtype, whatever a notebook has made of it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _message(error: BaseException) -> str:
    try:
        return " ".join(str(error).split())[:400]  # some of torch's run over many lines
    except Exception:  # an exception of the student's own making
        return "(no message)"


def is_own(file: str) -> bool:
    """Whether a file's lines are the student's."""
    return not file.startswith(("<frozen", "<mutant", *_NOT_THEIRS))


def own_line(error: BaseException) -> str | None:
    """The last line of the student's own code that an exception passed through."""
    trace = _own_trace(error)
    if trace is None:
        return None
    text = linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno).strip()
    return text or f"number {trace.tb_lineno} of {trace.tb_frame.f_code.co_name}"


def own_names(error: BaseException) -> dict[str, Any]:
    """The local names at that line, with their values."""
    trace = _own_trace(error)
    return dict(trace.tb_frame.f_locals) if trace else {}


def _own_trace(error: BaseException) -> TracebackType | None:
    """Where an exception passed through the student's own code for the last time."""
    own, trace = None, error.__traceback__
    while trace is not None:
        own = trace if is_own(trace.tb_frame.f_code.co_filename) else own
        trace = trace.tb_next
    return own
