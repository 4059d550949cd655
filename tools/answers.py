"""Print what the checkers say of the answers in tests/answers, for a person to read and to grade.

    python tools/answers.py                      every wrong answer: its mistake, its code and the message
    python tools/answers.py --exercise NAME ...  those to these exercises alone
    python tools/answers.py --counts             how many there are of each kind of diagnosis

An answer is read as a cell of a notebook is: its lines are known, its file is none.
"""

import argparse
import json
import linecache
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from sciformer.check import EXERCISES, Diagnosis

ANSWERS = Path(__file__).resolve().parents[1] / "tests" / "answers" / "answers.json"


def as_a_cell(code: str, number: int) -> dict[str, Any]:
    """The names that a cell with this code defines."""
    file = f"<ipython-input-{number}>"
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    module = sys.modules[f"cell_{number}"] = ModuleType(f"cell_{number}")
    exec(compile(code, file, "exec"), vars(module))
    return vars(module)


def diagnoses(kind: str, exercises: list[str], seed: int) -> Iterator[tuple[int, dict[str, str], Diagnosis]]:
    """The answers of one kind to some exercises, each with its number and the diagnosis."""
    for number, answer in enumerate(json.loads(ANSWERS.read_text(encoding="utf-8"))):
        name = answer["exercise"]
        if answer["kind"] == kind and name in exercises:
            yield number, answer, EXERCISES[name].diagnose(as_a_cell(answer["code"], number)[name], seed=seed)


def main() -> None:
    """Read the command line, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--exercise", nargs="+", choices=EXERCISES, default=list(EXERCISES), metavar="NAME")
    parser.add_argument("--kind", choices=["wrong", "right", "undecided"], default="wrong")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--counts", action="store_true")
    options = parser.parse_args()
    kinds: Counter[str] = Counter()
    for number, answer, diagnosis in diagnoses(options.kind, options.exercise, options.seed):
        kinds[diagnosis.kind] += 1
        if not options.counts:
            print(f"{'=' * 100}\n{number} · {answer['exercise']} · {diagnosis.kind}\nmistake: {answer['mistake']}\n")
            print(f"{answer['code']}\n{diagnosis.message}\n", flush=True)
    print("; ".join(f"{count} {kind}" for kind, count in kinds.most_common()))


if __name__ == "__main__":
    main()
