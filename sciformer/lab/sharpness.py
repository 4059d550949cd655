"""A control for comparisons of scores: attention that is equally sharp before training, whatever the score."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sciformer.data import mnist
from sciformer.functional import InputError, Mask
from sciformer.lab.settings import ImageSetting, score_recipe
from sciformer.lab.trainers import Run, train_at_best_rate
from sciformer.scores import DotProductScore, ScoreRecipe, WrappedScore


class ScaledScore(WrappedScore):
    r"""Another score times a number that is not trained.

    .. math:: s_{ij} = c \cdot \text{score}(q_i, k_j)

    Args:
        score: recipe for the other score.
        factor: c.
    """

    def __init__(self, num_heads: int, head_dim: int, *, score: ScoreRecipe = DotProductScore, factor: float = 1.0):
        super().__init__(num_heads, head_dim, score=score)
        self.factor = factor

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Mask | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        return self.factor * super().forward(query, key, attn_mask=attn_mask, query_offset=query_offset)


@torch.no_grad()
def sharpness(model: nn.Module, images: Float[Tensor, "B C height width"]) -> float:
    r"""The largest weight of a row over the average weight, on average over all rows, heads and blocks.

    .. math:: \frac{S}{N} \sum_{\text{rows}} \max_j w_{ij}

    It is 1 where all S keys have the same weight, and S where one key has all of it. N is the number of rows.
    """
    network: Any = model
    maps = network.attention_weights(images)  # one of each block, (B, H, L, S)
    return statistics.fmean((weights.shape[-1] * weights.amax(dim=-1)).mean().item() for weights in maps)


def factor_of_sharpness(setting: ImageSetting, seed: int, wanted: float) -> float:
    """By what a model's scores have to be multiplied so that its attention is so sharp before training.

    Found by bisection on 20 training digits. A larger factor never makes a row's largest weight smaller.

    Raises:
        InputError: if no factor between 2⁻²⁰ and 2²⁰ makes it so sharp.
    """
    images = _digits(setting)

    def sharpness_with(log: float) -> float:
        torch.manual_seed(seed)
        return sharpness(scaled(setting, 2**log).model().eval(), images)

    low, high = -20.0, 20.0
    if not sharpness_with(low) < wanted < sharpness_with(high):
        raise InputError(f"no factor gives the attention of {setting.score} a sharpness of {wanted}")
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if sharpness_with(middle) < wanted else (low, middle)
    return 2 ** ((low + high) / 2)


def _digits(setting: ImageSetting) -> Tensor:
    """The training digits on which sharpness is measured."""
    return mnist("train", size=setting.size)[0][:20]


def scaled(setting: ImageSetting, factor: float) -> ImageSetting:
    """The same setting with its scores multiplied by a number."""
    own = score_recipe(setting.score, setting.score_options)
    return replace(setting, score=partial(ScaledScore, score=own, factor=factor), score_options={})


def train_equally_sharp(
    setting: ImageSetting,
    seed: int,
    *,
    wanted: float,
    rates: Sequence[float],
    device: torch.device | str = "cpu",
    **options: Any,
) -> Run:
    """Train scores that are multiplied so that attention starts as sharp as wanted, each at the best of some rates.

    The factor is found for each seed on the model before training, and then stays. The rate is chosen as in
    :func:`~sciformer.lab.trainers.train_at_best_rate`.
    """
    factor = factor_of_sharpness(setting, seed, wanted)
    run = train_at_best_rate(scaled(setting, factor), seed, rates=rates, device=device, **options)
    after = sharpness(run.model.eval(), _digits(setting).to(device))
    run.details |= {"factor": [factor], "sharpness after training": [after]}
    return run
