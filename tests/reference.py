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
