"""Other inputs, made from those of a case, on which an answer or a mistake may behave otherwise."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

Inputs = dict[str, Any]


def not_contiguous(inputs: Inputs) -> Inputs:
    """The same numbers in another order of memory, the first axis fastest, as after transposes."""
    return {name: _turned(x) if isinstance(x, Tensor) else x for name, x in inputs.items()}


def _turned(x: Tensor) -> Tensor:
    axes = list(range(x.dim()))[::-1]
    return x.permute(axes).contiguous().permute(axes)


def one_less(inputs: Inputs) -> Iterator[Inputs]:
    """Inputs whose axes of one size are shorter by 1, for each size; none where whole numbers would lose a meaning."""
    tensors = [x for x in inputs.values() if isinstance(x, Tensor)]
    if any(not x.is_floating_point() and x.dtype != torch.bool for x in tensors):
        return
    for size in sorted({size for x in tensors for size in x.shape if size > 1}):
        yield {name: cut(x, size, size - 1) for name, x in inputs.items()}


def cut(x: Any, size: int, fewer: int) -> Any:
    """A tensor with so many entries left along each axis of one size."""
    if not isinstance(x, Tensor):
        return x
    return x[tuple(slice(fewer) if length == size else slice(None) for length in x.shape)].clone()
