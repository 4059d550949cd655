"""Endless shuffled batches of tensors."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sciformer.functional import InputError


def batches(
    *tensors: Tensor,
    batch_size: int,
    seed: int,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
) -> Iterator[tuple[Tensor, ...]]:
    """Endless shuffled batches, in a new order every epoch; the last incomplete batch of an epoch is dropped.

    All randomness comes from a generator of its own. The same seed therefore gives the same batches whatever else draws
    random numbers, and an interrupted run can continue exactly where it stopped.

    Args:
        tensors: all of the same length N, on any device.
        augment: called as ``augment(batch, generator)`` on each batch of the first tensor, e.g. ``random_affine``.

    Yields:
        One (batch_size, ...) tensor for each of ``tensors``.

    Raises:
        ValueError: if the tensors differ in length, or ``batch_size`` is not in 1..N.
    """
    lengths = [len(tensor) for tensor in tensors]
    if len(set(lengths)) != 1:
        raise InputError(f"batches needs tensors of one common length, got lengths {lengths}")
    if not 1 <= batch_size <= lengths[0]:
        raise InputError(f"batch_size must lie in 1..{lengths[0]}, the number of samples, got {batch_size}")
    # The generator is a separate function, so that the errors above are raised by the call, not by the first batch.
    return _batches(tensors, batch_size, torch.Generator().manual_seed(seed), augment)


def _batches(
    tensors: tuple[Tensor, ...],
    batch_size: int,
    generator: torch.Generator,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None,
) -> Iterator[tuple[Tensor, ...]]:
    while True:
        order = torch.randperm(len(tensors[0]), generator=generator)
        for start in range(0, len(order) - batch_size + 1, batch_size):
            chosen = order[start : start + batch_size]
            first, *others = (tensor[chosen.to(tensor.device)] for tensor in tensors)
            yield (augment(first, generator) if augment else first, *others)
