"""Attention as plain Python loops over numbers: slow, and too simple to be wrong in the same way."""

import math

import torch
from torch import Tensor


def loop_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Dot-product attention, one number at a time. The mask has the scores' whole shape."""
    B, H, L, D = query.shape
    S, V = key.shape[-2], value.shape[-1]
    output = torch.zeros(B, H, L, V, dtype=query.dtype)
    for b in range(B):
        for h in range(H):
            for i in range(L):
                allowed = [j for j in range(S) if attn_mask is None or attn_mask[b, h, i, j]]
                scores = [sum(query[b, h, i, d] * key[b, h, j, d] for d in range(D)) / math.sqrt(D) for j in allowed]
                exponentials = [math.exp(s) for s in scores]
                for e, j in zip(exponentials, allowed, strict=True):
                    for d in range(V):
                        output[b, h, i, d] += e / sum(exponentials) * value[b, h, j, d]
    return output


def random_qkv(B=2, H=3, L=5, S=7, D=11, *, dtype=torch.float64, seed=0, requires_grad=False) -> tuple[Tensor, ...]:
    """Queries, keys and values; every dimension another prime, so that a swapped axis cannot pass."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (B, H, L, D), (B, H, S, D), (B, H, S, D)
    return tuple(torch.randn(s, generator=generator, dtype=dtype).requires_grad_(requires_grad) for s in shapes)


def random_mask(*shape, seed=0, empty_row=True) -> Tensor:
    """A mask that hides about half, with one row that hides everything."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    mask[..., 0] |= ~mask.any(-1)
    if empty_row:
        mask[..., 1, :] = False
    return mask
