"""Dot-product attention through torch's fused kernels, also with a bias that is itself a dot product."""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sciformer.fast.readable import combined_mask
from sciformer.functional import Mask, attend, check_mask, check_query_key, dot_product_scores
from sciformer.scores import DotProductScore


class TwiceDifferentiable(torch.autograd.Function):
    """The output of a fused kernel, which has no second derivative, with that of the readable form.

    A backward pass goes through the kernel as if nothing stood here. One whose gradients are to be differentiated
    again, ``create_graph=True``, goes through the readable form, with its (L, S) weights.
    """

    @staticmethod
    def forward(
        output: Float[Tensor, "B H L D"],
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        value: Float[Tensor, "B H S D"],
        attn_mask: Mask | None,
        is_causal: bool,
        scale: float,
    ) -> Float[Tensor, "B H L D"]:
        """``output``."""
        return output.view_as(output)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep what the readable form would need, which the kernel keeps as well."""
        _, *tensors, ctx.is_causal, ctx.scale = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "B H L D"]) -> tuple[Tensor | None, ...]:
        """The gradient of the output or, where a graph is wanted, those of query, key and value."""
        if not torch.is_grad_enabled():
            return gradient, None, None, None, None, None, None
        *inputs, attn_mask = ctx.saved_tensors
        mask = combined_mask(inputs[0].shape[-2], inputs[1].shape[-2], attn_mask, ctx.is_causal, gradient.device)

        def readable(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attend(dot_product_scores(query, key, scale=ctx.scale), value, attn_mask=mask)[0]

        return None, *torch.func.vjp(readable, *inputs)[1](gradient), None, None, None


def fused_attention(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    *,
    scale: float,
    attn_mask: Mask | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H L D"]:
    """Dot-product attention through torch's fused kernels.

    With ``dropout_p`` it has a second derivative where torch's kernel has.
    """
    check_query_key(query, key)
    L, S = query.shape[-2], key.shape[-2]
    if attn_mask is not None:
        check_mask(attn_mask, (*query.shape[:-1], S), query.device)
        attn_mask = torch.atleast_2d(attn_mask)  # as torch's kernels want it
    # torch's own causal flag counts from the first key, not from the last, so it serves L = S only.
    if not (is_causal and attn_mask is None and L == S):
        attn_mask, is_causal = combined_mask(L, S, attn_mask, is_causal, query.device), False
    # torch hides with -inf what the causal flag hides, and on a GPU what fills up a block, and scales afterwards: -inf
    # times 0 is NaN, and times a negative number it hides nothing.
    if scale <= 0:
        query, scale = scale * query, 1.0
    output = F.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal, dropout_p=dropout_p, scale=scale
    )
    if not output.requires_grad or dropout_p or torch.compiler.is_compiling():
        return output
    return TwiceDifferentiable.apply(output, query, key, value, attn_mask, is_causal, scale)


def fast_dot_product(
    score: DotProductScore,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    **options: Any,
) -> Float[Tensor, "B H L D"]:
    """:func:`fused_attention` as it is."""
    return fused_attention(query, key, value, scale=score.scale, **options)


def attention_with_features(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    of_query: Float[Tensor, "*#queries F"],
    of_key: Float[Tensor, "*#keys F"],
    *,
    scale: float,
    **options: Any,
) -> Float[Tensor, "B H L D"]:
    """Dot-product attention with a bias that is itself a dot product, ``scale * (q·k + f·g)``, through fused kernels.

    Queries and keys with F more features make it plain dot-product attention, in which no (L, S) bias is held.

    Args:
        of_query: the features f, which broadcast to (B, H, L, F).
        of_key: the features g, which broadcast to (B, H, S, F).
    """
    dim, more = query.shape[-1], of_query.shape[-1]
    filling = -(dim + more) % 8  # fused kernels want a head_dim that is a multiple of 8, the same for all three
    nothing = query.new_zeros(filling)

    def with_features(x: Tensor, features: Tensor) -> Tensor:
        return torch.cat((x, features.expand(*x.shape[:-1], -1), nothing.expand(*x.shape[:-1], -1)), dim=-1)

    output = fused_attention(
        with_features(query, of_query),
        with_features(key, of_key),
        F.pad(value, (0, more + filling)),
        scale=scale,
        **options,
    )
    return output[..., : value.shape[-1]]


def key_biased_attention(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    bias: Float[Tensor, "*#B H S"],
    *,
    scale: float,
    **options: Any,
) -> Float[Tensor, "B H L D"]:
    """Dot-product attention with a number for each key, ``scale * q·k + bias``: a feature of 1 in each query."""
    rest, parts = bias / scale, []
    # bfloat16 has 8 bits: it takes three of its numbers to hold a bias as float32 does
    count = 1 if torch.promote_types(rest.dtype, key.dtype) == key.dtype else 3
    for _ in range(count - 1):
        parts.append(rest.to(key.dtype))
        rest = rest - parts[-1]
    of_key = torch.stack((*parts, rest.to(key.dtype)), dim=-1)  # ([B,] H, S, count)
    return attention_with_features(query, key, value, query.new_ones(count), of_key, scale=scale, **options)
