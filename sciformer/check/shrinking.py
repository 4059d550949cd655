"""The smallest input that still shows a mistake, cut from the one on which it was found."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sciformer.check.variants import cut

Inputs = dict[str, Any]


def shrunk(inputs: Inputs, shows: Callable[[Inputs], bool]) -> Inputs:
    """Inputs with as few tokens, features and examples as still show the mistake.

    Axes of one size are cut together, since most are the same quantity: the length of keys and values, for instance.
    Two are left of each, and one example of a batch. Whole numbers mean something that a cut would change, a token, a
    length, a class, so inputs that have tensors of them stay as they are; an axis that is at least as long as a whole
    number stays so, since a season, for instance, has to fit into the past.

    Args:
        shows: whether the right answer can still be computed, and the student's still differs from it.
    """
    tensors = [x for x in inputs.values() if isinstance(x, Tensor)]
    if any(not x.is_floating_point() and x.dtype != torch.bool for x in tensors):
        return inputs
    for size in sorted({size for x in tensors for size in x.shape}, reverse=True):
        fewest = 1 if _only_counts_examples(size, tensors) else 2
        fewest = max([fewest, *(x for x in inputs.values() if _is_whole(x) and x <= size)])
        for fewer in range(fewest, size):
            shorter = {name: cut(x, size, fewer) for name, x in inputs.items()}
            if shows(shorter):
                inputs = shorter
                break
    return inputs


def _is_whole(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _only_counts_examples(size: int, tensors: list[Tensor]) -> bool:
    return all(x.dim() >= 3 and size not in x.shape[1:] for x in tensors if size in x.shape)
