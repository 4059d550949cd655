"""Compare what notices a slip in an answer: our checkers, assert_close on one input, and torch-judge; write the page.

    pip install --target build/judge --no-deps torch-judge==0.1.1
    PYTHONPATH=build/judge:. python tools/comparison.py       write docs/comparison.md

The answers are the right ones of sciformer/exercises/ways with one generated slip each (sciformer.check.mutants):
another axis, a factor left out, two arguments exchanged. A slip that changes no result on any of 300 inputs of many
sizes is no mistake and does not count. torch-judge's tasks are classes and batches where ours are functions, so the
same answer is put into the shape that each task wants.
"""

import ast
import inspect
import itertools
import linecache
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from sciformer import causal_mask
from sciformer.check import EXERCISES, Exercise
from sciformer.check.limits import limited
from sciformer.check.mutants import mutants
from sciformer.check.programs import program_of
from sciformer.check.values import same
from sciformer.check.written_tests import WrittenTest
from sciformer.exercises.ways import ways_of

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "comparison.md"
#: Slips in each exercise of the second table; of all that there are, a random choice.
A_FEW = 16
#: What torch-judge says where numbers are wrong and nothing is known about them.
_SAYS_NOTHING = re.compile(r"mismatch|does not match|Must match|shape|Values? differ|^Assertion|Error:", re.I)


@dataclass(frozen=True)
class Slip:
    """A right answer with one slip.

    Args:
        line: the line that is not as it should be, as it stands in the answer.
    """

    exercise: Exercise
    answer: Callable[..., Any]
    line: str


def slips(exercise: Exercise, name: str, answer: Callable[..., Any]) -> Iterator[Slip]:
    """Every slip in a right answer, as a program with lines of its own."""
    right = ast.unparse(program_of(answer)).splitlines()
    for number, mutant in enumerate(mutants(answer)):
        file = f"/answers/{name}_{number}.py"
        lines = mutant.text.splitlines()
        linecache.cache[file] = (0, None, [f"{line}\n" for line in lines], file)
        scope = dict(vars(inspect.getmodule(answer)))  # type: ignore[arg-type]
        exec(compile(mutant.text, file, "exec"), scope)
        changed = [mine for mine, other in itertools.zip_longest(lines, right) if mine != other]
        if changed:
            yield Slip(exercise, scope[answer.__name__], (changed[0] or "").strip())


# Inputs of many sizes for the six tasks that exist on both sides.


def _attention_input(draw: random.Random, square: bool = False) -> list[Any]:
    L, S, D = (draw.randint(2, 6) for _ in range(3))
    S = L if square else S
    mask = draw.choice([None, causal_mask(L, S) if S >= L else None])
    return [torch.randn(L, D), torch.randn(S, D), torch.randn(S, D), mask]


def _heads_input(draw: random.Random, square: bool = False) -> list[Any]:
    B, L, S, G, shared, D = (draw.randint(1, 4) for _ in range(6))
    S = L if square else S
    H = G * shared
    return [torch.randn(B, L, H * D), torch.randn(B, S, G * D), torch.randn(B, S, G * D), torch.randn(H * D, H * D), H]


def _norm_input(draw: random.Random, square: bool = False) -> list[Any]:
    B, L, E = (draw.randint(1, 6) for _ in range(3))
    return [torch.randn(B, L, E), torch.randn(E), draw.choice([1e-6, 1e-2, 0.5])]


def _patches_input(draw: random.Random, square: bool = False) -> list[Any]:
    C, rows, columns, P = (draw.randint(1, 4) for _ in range(4))
    columns = rows if square else columns
    return [torch.randn(C, rows * P, columns * P), P]


INPUTS: dict[str, Callable[..., list[Any]]] = {
    "scaled_dot_product": _attention_input,
    "grouped_attention": _heads_input,
    "root_mean_square_norm": _norm_input,
    "cut_into_patches": _patches_input,
}


def agree(one: Callable[..., Any], two: Callable[..., Any], inputs: list[Any]) -> bool:
    """Whether two answers give the same on one input, as torch.testing.assert_close sees it."""
    try:
        results = [
            limited(partial(f, *(x.clone() if isinstance(x, Tensor) else x for x in inputs)), 5) for f in (one, two)
        ]
        torch.testing.assert_close(*(x.float() for x in results))
    except BaseException:
        return False
    return True


def is_a_mistake(slip: Slip, right: Callable[..., Any], tries: int = 300) -> bool:
    """Whether a slip changes a result on some input of many."""
    draw = random.Random(0)
    torch.manual_seed(0)
    inputs = [INPUTS[slip.exercise.name](draw) for _ in range(tries)]
    return not all(agree(slip.answer, right, x) for x in inputs)


def one_input(slip: Slip, right: Callable[..., Any]) -> bool:
    """Whether assert_close rejects a slip on one random input, square as most are that one writes down quickly."""
    torch.manual_seed(1)
    return not agree(slip.answer, right, INPUTS[slip.exercise.name](random.Random(1), square=True))


# The same answer in the shape of torch-judge's tasks.


class _Heads(nn.Module):
    """Projections around an answer of grouped_attention; with one input it attends to itself."""

    def __init__(self, answer: Callable[..., Any], d_model: int, num_heads: int, num_kv_heads: int | None = None):
        super().__init__()
        self.answer, self.num_heads = answer, num_heads
        width = d_model // num_heads * (num_kv_heads or num_heads)
        self.W_q, self.W_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.W_k, self.W_v = nn.Linear(d_model, width), nn.Linear(d_model, width)

    def forward(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None) -> Tensor:
        key, value = query if key is None else key, query if value is None else value
        parts = self.W_q(query), self.W_k(key), self.W_v(value)
        return self.answer(*parts, self.W_o.weight.T, self.num_heads) + self.W_o.bias


class _Patches(nn.Module):
    """A projection behind an answer of cut_into_patches."""

    def __init__(self, answer: Callable[..., Any], img_size: int, patch_size: int, in_channels: int, embed_dim: int):
        super().__init__()
        self.answer, self.patch_size = answer, patch_size
        self.num_patches = (img_size // patch_size) ** 2
        self.proj = nn.Linear(in_channels * patch_size**2, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(torch.stack([self.answer(image, self.patch_size) for image in x]))


def _batched(answer: Callable[..., Any], causal: bool) -> Callable[..., Tensor]:
    def attention(Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
        mask = causal_mask(Q.shape[1], K.shape[1]) if causal else None
        return torch.stack([answer(q, k, v, mask) for q, k, v in zip(Q, K, V, strict=True)])

    return attention


TASKS: dict[str, dict[str, Callable[..., Any]]] = {
    "scaled_dot_product": {
        "attention": partial(_batched, causal=False),
        "causal_attention": partial(_batched, causal=True),
    },
    "grouped_attention": {
        "mha": lambda answer: partial(_Heads, answer),
        "gqa": lambda answer: partial(_Heads, answer),
    },
    "root_mean_square_norm": {"rmsnorm": lambda answer: lambda x, weight, eps=1e-6: answer(x, weight, eps)},
    "cut_into_patches": {"vit_patch": lambda answer: partial(_Patches, answer)},
}


def judged(exercise: Exercise, answer: Callable[..., Any]) -> list[str]:
    """What torch-judge says about an answer, test by test; nothing where it accepts it."""
    from torch_judge.tasks import TASKS as JUDGE

    said = []
    for task, adapt in TASKS[exercise.name].items():
        thing = adapt(answer)
        for test in JUDGE[task]["tests"]:
            try:
                scope = {JUDGE[task]["function_name"]: thing}
                code = test["code"].replace("{fn}", JUDGE[task]["function_name"])
                limited(partial(exec, compile(code, "test", "exec"), scope), 5)
            except AssertionError as error:
                said.append(str(error) or "Assertion failed")
            except BaseException as error:
                said.append(f"{type(error).__name__}: {error}")
    return said


@dataclass
class Count:
    """How many slips, and what became of them.

    Args:
        stopped: with an error of Python's, where the message has that error and its line.
        hit: the line that is given is the one with the slip, of those located.
    """

    slips: int = 0
    detected: int = 0
    named: int = 0
    stopped: int = 0
    located: int = 0
    hit: int = 0

    def share(self, part: str) -> str:
        """A part of the slips, in percent."""
        return f"{getattr(self, part)} of {self.slips} ({getattr(self, part) / max(1, self.slips):.0%})"


#: How a message tells the line of a mistake; where Python stops, "in your line" is where it stopped and not counted.
_LINES = (
    re.compile(r"In place of your line\n    (.*)\n  write"),
    re.compile(r"Without this line of yours it would be right:\n    (.*)\n"),
    re.compile(r"\n  in your line: (.*)\n  the smallest"),
)
_FIRST_WRONG = re.compile(r"those of `(.*)` are not\.")


def ours(slip: Slip, count: Count) -> None:
    """Count what our checker says about a slip."""
    diagnosis = slip.exercise.diagnose(slip.answer, seed=0)
    found = [match[1] for pattern in _LINES if (match := pattern.search(diagnosis.message))]
    mended = "it would be right" in diagnosis.message
    found += [m[1] for m in [_FIRST_WRONG.search(" ".join(diagnosis.message.split()))] if m]
    count.slips += 1
    count.detected += not diagnosis.correct
    count.named += mended or diagnosis.kind in ("known mistake", "likely mistake")
    count.stopped += diagnosis.kind == "raises"
    if found:
        count.located += 1
        count.hit += " ".join(found[0].split()) == " ".join(slip.line.split())


def compare() -> tuple[dict[str, dict[str, Count]], dict[str, tuple[int, int]]]:
    """Counts by exercise and checker; right answers that are rejected, of how many, by checker."""
    counts: dict[str, dict[str, Count]] = {}
    alarms = {"ours": [0, 0], "assert_close": [0, 0], "torch-judge": [0, 0]}
    for name in TASKS:
        exercise = EXERCISES[name]
        answers = ways_of(exercise)
        right = answers[name]
        counts[name] = {who: Count() for who in alarms}
        for answer in answers.values():
            for who, wrong in (
                ("ours", not exercise.diagnose(answer, seed=0).correct),
                ("assert_close", one_input(Slip(exercise, answer, ""), right)),
                ("torch-judge", bool(judged(exercise, answer))),
            ):
                alarms[who][0] += wrong
                alarms[who][1] += 1
        everything = [s for n, a in answers.items() if inspect.isfunction(a) for s in slips(exercise, n, a)]
        for slip in tqdm([s for s in everything if is_a_mistake(s, right)], desc=name):
            ours(slip, counts[name]["ours"])
            counts[name]["assert_close"].slips += 1
            counts[name]["assert_close"].detected += one_input(slip, right)
            said = judged(exercise, slip.answer)
            counts[name]["torch-judge"].slips += 1
            counts[name]["torch-judge"].detected += bool(said)
            counts[name]["torch-judge"].named += any(not _SAYS_NOTHING.search(words) for words in said)
    return counts, {who: (wrong, of) for who, (wrong, of) in alarms.items()}


def survey() -> dict[str, Count]:
    """A random choice of slips in the solution of every exercise, by notebook, through our checkers."""
    found: dict[str, Count] = {}
    for exercise in tqdm(EXERCISES.values(), desc="all exercises"):
        answer = ways_of(exercise)[exercise.name]
        if isinstance(exercise, WrittenTest):
            continue
        everything = list(slips(exercise, exercise.name, answer))
        chosen = random.Random(exercise.name).sample(everything, min(A_FEW, len(everything)))
        count = found.setdefault(exercise.notebook, Count())
        for slip in chosen:
            if changes_something(slip, answer):
                ours(slip, count)
    return found


def changes_something(slip: Slip, right: Callable[..., Any], seeds: int = 10) -> bool:
    """Whether a slip changes a result on the checker's own inputs of several seeds, or what it raises."""
    for seed in range(seeds):
        for case in slip.exercise.draw(seed):
            try:
                wanted = slip.exercise.numbers(right, case, seed)
                got = limited(partial(slip.exercise.numbers, slip.answer, case, seed), 5)
            except BaseException:
                return True
            if not same(wanted, got):
                return True
    return False


def main() -> None:
    """Measure, and write the page."""
    counts, alarms = compare()
    PAGE.write_text(page(counts, alarms, survey()), encoding="utf-8")


HEAD = """# What notices a slip?

Made by `python tools/comparison.py`, on {right} right answers and {slips} wrong ones to four exercises that
[torch-judge](https://pypi.org/project/torch-judge/) 0.1.1 has, too: its tasks attention, causal_attention, mha, gqa,
rmsnorm and vit_patch. A wrong answer is a right one of `sciformer/exercises/ways` with one generated slip that changes
a result on some of 300 inputs. *assert_close* compares with the solution on one random input with as many keys as
queries, or a square image, as a test does that is written quickly.

A slip is **named** if the message says what was done wrong: for our checkers, a written or a generated mistake that
gives these numbers, or the one change of a line that makes the answer right; for torch-judge, anything but a mismatch
of numbers or shapes and Python's own errors, as "Changing future K/V affected past outputs". Our checkers generate
slips themselves, and undo them in the same way, so nearly all of these are named by construction: the figure does not
say what share of students' mistakes is named. **Stops** counts answers that Python itself stops. A slip is
**located** if a line is told in which the mistake is, or the first with wrong numbers, and that is the **right line**
if the slip is in it.
"""
SURVEY = f"""## Every exercise

Our checkers alone, on at most {A_FEW} random slips in the solution of each exercise, of those that change something on
the inputs of ten seeds. The diagnosis is that of seed 0.
"""
COLUMNS = "| detected | named | stops | located | right line |\n|---|---|---|---|---|---|"


def page(counts: dict[str, dict[str, Count]], alarms: dict[str, tuple[int, int]], all_of_ours: dict[str, Count]) -> str:
    """The page."""
    slips_in_all = sum(of["ours"].slips for of in counts.values())
    lines = [HEAD.format(right=alarms["ours"][1], slips=slips_in_all)]
    lines.append("| exercise, checker " + COLUMNS)
    for name, of in counts.items():
        lines += [_row(f"`{name}`, {who}", count, who) for who, count in of.items()]
    rejected = ", ".join(f"{who} {wrong} of {of}" for who, (wrong, of) in alarms.items())
    lines += [
        "",
        f"Right answers that are rejected: {rejected}. Three of torch-judge's are answers that return float64.",
        "",
    ]
    lines += [SURVEY, "| notebook " + COLUMNS]
    total = Count()
    for notebook, count in sorted(all_of_ours.items()):
        lines.append(_row(notebook, count, "ours"))
        for part in vars(total):
            setattr(total, part, getattr(total, part) + getattr(count, part))
    return "\n".join([*lines, _row("all", total, "ours"), ""])


def _row(name: str, count: Count, who: str) -> str:
    named = "–" if who == "assert_close" else count.share("named")
    lines = f"{count.stopped} | {count.located} | {count.hit}" if who == "ours" else "– | – | –"
    return f"| {name} | {count.share('detected')} | {named} | {lines} |"


if __name__ == "__main__":
    main()
