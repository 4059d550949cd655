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

    The query's term is one for a whole row, and the softmax cancels it. Float16 may not hold the key's and takes the
    blocks.
    """
    if type(score.well) is not GaussianWell or score.form != "field" or query.dtype == torch.float16:
        return query_blocks(score, query, key, value, **options)
    check_query_key(query, key)
    alpha = cast(Tensor, score.alpha)[:, None]  # (H, 1)
    bias = -alpha * key.to(torch.promote_types(key.dtype, torch.float32)).square().sum(dim=-1)  # (B, H, S)
    query = (2 * alpha[:, None] * query).to(query.dtype)
    return key_biased_attention(query, key, value, bias, scale=1.0, **options)
