"""What an answer does not look at, what it reads in a wrong order, and whether it mixes up the sequences of a batch.

It is called with other inputs, or the right answer is.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sciformer.check.values import same

Inputs = dict[str, Any]


def probes(
    run: Callable[[Inputs], Any],
    reference: Callable[[Inputs], Any],
    inputs: Inputs,
    elsewhere: Sequence[Inputs] = (),
    mended: Callable[[Inputs], Any] | None = None,
) -> str | None:
    """What an answer does not look at, what it reads in a wrong order, and whether it mixes up sequences of a batch.

    Args:
        run: the student's answer as a function of a case's inputs; plain values.
        reference: the right one, likewise.
        inputs: of a case on which the answer is wrong.
        elsewhere: of the other cases.
        mended: the answer once its mistake is mended; what has no effect there either follows from the other inputs.
    """
    generator = torch.Generator().manual_seed(0)
    mine, right = run(inputs), reference(inputs)
    for name, x in inputs.items():
        others = [inputs | {name: other} for other in _others(x, generator)]
        seen = [other for other in others if _is_another(reference, other, right)]
        needed = mended is None or any(not same(mended(other), right) for other in others)
        if seen and needed and all(same(run(other), mine) for other in others):
            if not _counts(run, name, elsewhere, generator):
                return f"`{name}` has no effect on the result, and should have one."
            if isinstance(x, Tensor) and x.dtype == torch.bool:
                return f"In some cases `{name}` has no effect on the result, and should have one."
    for name in inputs:
        for says, read in _MISREADINGS:
            if all(_is_read(run, reference, case, name, read) for case in (inputs, *elsewhere)):
                return f"The numbers are those for another `{name}`: {says}"
    for name, x in inputs.items():
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() < 3 or len(x) < 2:
            continue
        if isinstance(right, bool | int | float):
            continue  # one answer for all of them
        for one, other, changed_part in (("first", "second", slice(1, None)), ("second", "first", slice(0, 1))):
            changed = x.clone()
            changed[changed_part] += torch.randn(x[changed_part].shape, generator=generator).to(x)
            then, at = inputs | {name: changed}, 0 if one == "first" else 1
            if _alike_at(at, reference(then), right) and not _alike_at(at, run(then), mine):
                return f"Sequences are mixed up: changing the {other} one in `{name}` changes the result of the {one}."
    return None


#: How a tensor's numbers get into other places, and what a student has probably done to read it so.
_MISREADINGS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    (
        "its last two axes are to be exchanged, and a `reshape` or `view` only cuts its numbers into other rows.",
        lambda x: x.reshape(*x.shape[:-2], x.shape[-1], x.shape[-2]).mT,
    ),
    (
        "its numbers are to be cut into other rows by a `reshape`, and its axes are exchanged.",
        lambda x: x.mT.reshape(x.shape),
    ),
    ("it is read backwards along its last axis.", lambda x: x.flip(-1)),
    ("it is read backwards along its last axis but one.", lambda x: x.flip(-2)),
)


def _is_read(
    run: Callable[[Inputs], Any],
    reference: Callable[[Inputs], Any],
    inputs: Inputs,
    name: str,
    read: Callable[[Tensor], Tensor],
) -> bool:
    """Whether an answer to these inputs is the right one to those with one tensor's numbers in other places."""
    x = inputs[name]
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() < 2:
        return False
    try:
        return same(run(inputs), reference(inputs | {name: read(x).contiguous()}))
    except Exception:
        return False


def _others(x: Any, generator: torch.Generator) -> list[Any]:
    """Other values that an input may have; none where what it means is not known."""
    if isinstance(x, float):
        return [1.5 * x, 0.5 * x, 3 * x]
    if not isinstance(x, Tensor) or x.numel() < 2:
        return []
    if x.is_floating_point():
        return [x + 4**n * torch.randn(x.shape, generator=generator).to(x) for n in range(6)]
    if x.dtype == torch.bool:  # nothing more is hidden, so that no row is left without a key
        return [x | (torch.rand(x.shape, generator=generator) < share).to(x.device) for share in (0.5, 0.9, 1.0)]
    return []


def _counts(run: Callable[[Inputs], Any], name: str, cases: Sequence[Inputs], generator: torch.Generator) -> bool:
    """Whether an input changes what an answer gives in some of these cases."""
    return any(
        _is_another(run, inputs | {name: other}, run(inputs))
        for inputs in cases
        for other in _others(inputs[name], generator)
    )


def _is_another(reference: Callable[[Inputs], Any], inputs: Inputs, right: Any) -> bool:
    """Whether an answer can be computed for these inputs, and is another one."""
    try:
        return not same(reference(inputs), right)
    except Exception:
        return False


def _alike_at(n: int, one: Any, two: Any) -> bool:
    """Whether the results of a sequence of a batch are the same."""
    if isinstance(one, list) and isinstance(two, list):
        return all(_alike_at(n, a, b) for a, b in zip(one, two, strict=False))
    if not isinstance(one, Tensor) or not isinstance(two, Tensor) or min(one.dim(), two.dim()) < 1:
        return same(one, two)
    return same(one[n : n + 1], two[n : n + 1])
