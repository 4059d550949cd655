"""Numbers that say how good a model is, and how sure that is."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sciformer.functional import steps_between


def accuracy(logits: Float[Tensor, "B K"], labels: Int[Tensor, "B"]) -> Float[Tensor, ""]:
    """Share of examples whose largest logit is that of the label, from 0 to 1."""
    return (logits.argmax(dim=-1) == labels).float().mean()


def confusion_matrix(predicted: Int[Tensor, "N"], labels: Int[Tensor, "N"], num_classes: int) -> Int[Tensor, "K K"]:
    """How often an example of class (row) was taken for class (column)."""
    return torch.bincount(labels * num_classes + predicted, minlength=num_classes**2).view(num_classes, num_classes)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean over seeds and its standard error, s/√n with n - 1 in s; the error of a single value is NaN, not 0.

    Raises:
        ValueError: if there is no value.
    """
    if not values:
        raise ValueError("mean_and_error needs at least one value")
    x = torch.tensor(values, dtype=torch.float64)
    error = x.std().item() / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return x.mean().item(), error


def attention_distance(weights: Float[Tensor, "B H L S"], *, width: int | None = None) -> Float[Tensor, "H"]:
    r"""How far a head looks on average over all queries, in tokens.

    .. math:: \frac{1}{BL} \sum_{b, i, j} w_{bij} |i - j|

    Source: Dosovitskiy et al. 2020, arXiv:2010.11929, section 4.5, there with Euclidean distances.

    Args:
        width: tokens in a row, if the tokens are an image; the distance is then rows plus columns.

    Raises:
        ValueError: if there are more queries than keys.
    """
    distance = steps_between(*weights.shape[-2:], width=width, device=weights.device).sum(dim=0)  # (L, S)
    return (weights * distance).sum(dim=-1).mean(dim=(0, 2))
