"""What only further calls of an answer can tell: a smaller input, an input without effect."""

from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from sciformer.check.shrinking import shrunk
from sciformer.check.symptoms import probes
from sciformer.check.tracing import line_that_changes
from sciformer.check.values import same

Inputs = dict[str, Any]


@dataclass(frozen=True)
class Look:
    """What was found.

    Args:
        probe: what an input has to do with the mistake.
        inputs: the smallest that show the mistake.
        expected: the right result for them.
        got: the student's.
    """

    probe: str | None
    inputs: Inputs
    expected: Any
    got: Any


def look_closer(
    run: Callable[[Inputs], Any],
    reference: Callable[[Inputs], Any],
    first: Inputs,
    last: Inputs | None,
) -> Look:
    """Call an answer that gives wrong numbers again.

    Args:
        run: the student's answer as a function of a case's inputs; plain values.
        reference: the right one, likewise.
        first: the first inputs on which the two differ.
        last: the last of them, to be probed; None where the mistake is known already.
    """
    found = probes(run, reference, last) if last is not None else None
    inputs = shrunk(first, lambda cut: _still_differs(run, reference, cut))
    return Look(found, inputs, reference(inputs), run(inputs))


def _still_differs(run: Callable[[Inputs], Any], reference: Callable[[Inputs], Any], inputs: Inputs) -> bool:
    try:
        wanted = reference(inputs)
        return is_finite(wanted) and not same(wanted, run(inputs))
    except Exception:
        return False  # the inputs are none of this exercise's any more


def is_finite(result: Any) -> bool:
    """Whether a result has numbers, and neither NaN nor ∞ among them."""
    parts = result if isinstance(result, list) else [result]
    tensors = [x for x in parts if isinstance(x, Tensor)]
    return all(x.numel() and bool(torch.isfinite(x.double()).all()) for x in tensors)


def line_that_writes(run: Callable[[Inputs], Any], inputs: Inputs, is_own: Callable[[CodeType], bool]) -> str | None:
    """The student's line that writes into an input."""
    watched = [x for x in inputs.values() if isinstance(x, Tensor)]
    lines = (line_that_changes(lambda: run(inputs), x, is_own) for x in watched)
    return next((line for line in lines if line), None)
