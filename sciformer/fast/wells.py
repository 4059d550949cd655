"""The fast path of the energy wells."""

from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from sciformer.fast.blocks_of_queries import query_blocks
from sciformer.fast.fused import key_biased_attention
from sciformer.functional import GaussianWell, check_query_key
from sciformer.scores import EnergyWellScore


def fast_energy_well(
    score: EnergyWellScore,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
    **options: Any,
) -> Float[Tensor, "B H L D"]:
    r"""The Gaussian's field through torch's fused kernels, everything else in :func:`query_blocks`.

    .. math:: -\alpha \|q_i - k_j\|^2 = -\alpha \|q_i\|^2 + 2 \alpha\, q_i \cdot k_j - \alpha \|k_j\|^2

    The query's term is one for a whole row, and the softmax cancels it. The two others are large, and nearly cancel
    each other, where queries and keys lie far from 0 and close together. Half precision has too few digits for that, so
    all is done in float32 at least: a score is off by no more than in
    :func:`~sciformer.functional.squared_distances`, some α √D ε (‖q‖² + ‖k‖²).
    """
    if type(score.well) is not GaussianWell or score.form != "field":
        return query_blocks(score, query, key, value, **options)
    check_query_key(query, key)
    dtype, wide = query.dtype, torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        query, key, value = (x.to(wide) for x in (query, key, value))
        alpha = cast(Tensor, score.alpha).to(wide)[:, None]  # (H, 1)
        bias = -alpha * key.square().sum(dim=-1)  # (B, H, S)
        output = key_biased_attention(2 * alpha[:, None] * query, key, value, bias, scale=1.0, **options)
    return output.to(dtype)
