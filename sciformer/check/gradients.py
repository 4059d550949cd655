"""The gradients that flow back through an answer, and whether two answers agree in them."""

from typing import Any

import torch
from torch import Tensor

from sciformer.check.values import plain


def gradients(inputs: dict[str, Any], result: Any, seed: int) -> dict[str, Any]:
    """The gradients of a random sum of the results, for every input that can have one; None where none arrives."""
    results = [r for r in (result if isinstance(result, list | tuple) else [result]) if isinstance(r, Tensor)]
    generator = torch.Generator().manual_seed(seed)
    total: Any = 0
    for r in results:
        weights = torch.randn(r.shape, generator=generator, dtype=torch.float32)  # drawn also where r has no gradient
        if r.requires_grad:
            total = total + (r * weights.to(r.device, r.dtype)).sum()
    leaves = {name: x for name, x in inputs.items() if isinstance(x, Tensor) and x.requires_grad}
    if not isinstance(total, Tensor) or not leaves:
        return dict.fromkeys(leaves)
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return {name: plain(gradient) for name, gradient in zip(leaves, found, strict=True)}


def agree(found: Tensor, wanted: Tensor, ways: list[Tensor]) -> bool:
    """Whether two gradients are equal up to rounding, or at least lead equally far along each of some ways."""
    if found.shape != wanted.shape or not found.is_floating_point():
        return False
    found, wanted = found.double(), wanted.double()
    size = wanted.nan_to_num().abs().amax().item() if wanted.numel() else 0.0
    if torch.allclose(found, wanted, rtol=1e-2, atol=1e-3 * size + 1e-5, equal_nan=True):
        return True
    directions = [way.double() for way in ways if way.isfinite().all() and way.any()]
    return bool(directions) and all(
        abs((found * d).sum() - (wanted * d).sum()) <= 1e-2 * wanted.norm() * d.norm() + 1e-5 for d in directions
    )
