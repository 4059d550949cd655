"""Numbers that say how good a model is, and how sure that is."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sciformer.functional import steps_between


def accuracy(logits: Float[Tensor, "B K"], labels: Int[Tensor, "B"]) -> Float[Tensor, ""]:
    """Share of examples whose largest logit is that of the label, from 0 to 1."""
    return (logits.argmax(dim=-1) == labels).float().mean()


def agreement(written: Int[Tensor, "B N"], wanted: Int[Tensor, "B L"], *, pad: int = 0) -> Bool[Tensor, "B M"]:
    """Where a sequence that was written is the one that was wanted, place by place; M is the longer of N and L.

    The shorter is filled up with padding, so ``agreement(...).all(dim=1)`` is True where both are the same text.
    """
    missing = wanted.shape[1] - written.shape[1]
    return F.pad(written, (0, max(0, missing)), value=pad) == F.pad(wanted, (0, max(0, -missing)), value=pad)


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


def cluster_concentration(
    weights: Float[Tensor, "B H L L"], clusters: Int[Tensor, "B L"], *, queries: Bool[Tensor, "B L"] | None = None
) -> Float[Tensor, "B H"]:
    r"""Attention inside the clusters: the share that stays in a token's own cluster, on average over the tokens.

    .. math:: \frac{1}{|Q|} \sum_{i \in Q} \ \sum_{j:\, c_j = c_i} w_{ij}

    The token itself counts as part of its cluster. Uniform attention gives the cluster's share of all tokens.

    Args:
        clusters: the number c of each token's cluster.
        queries: the tokens Q over which to average, such as those in clusters of high importance; by default all.

    Returns:
        One number for each set of tokens and head, so that error bars over sets can be drawn; NaN where Q is empty.
    """
    own = clusters[..., :, None] == clusters[..., None, :]  # (B, L, L)
    return _mean_attention_to(own, weights, queries)


def inter_cluster_attention(
    weights: Float[Tensor, "B H L L"],
    clusters: Int[Tensor, "B L"],
    *,
    queries: Bool[Tensor, "B L"] | None = None,
    keys: Bool[Tensor, "B L"] | None = None,
) -> Float[Tensor, "B H"]:
    r"""Attention between the clusters: the share that goes to other clusters, on average over the tokens.

    .. math:: \frac{1}{|Q|} \sum_{i \in Q} \ \sum_{j \in K:\, c_j \ne c_i} w_{ij}

    Over all keys, where rows sum to 1, it is what :func:`cluster_concentration` leaves.

    Args:
        clusters: the number c of each token's cluster.
        queries: the tokens Q over which to average, by default all.
        keys: the tokens K that count as reached, such as those in clusters of high importance; by default all.

    Returns:
        One number for each set of tokens and head; NaN where Q is empty.
    """
    other = clusters[..., :, None] != clusters[..., None, :]  # (B, L, L)
    return _mean_attention_to(other if keys is None else other & keys[..., None, :], weights, queries)


def _mean_attention_to(
    reached: Bool[Tensor, "B L L"], weights: Float[Tensor, "B H L L"], queries: Bool[Tensor, "B L"] | None
) -> Float[Tensor, "B H"]:
    share = (weights * reached[..., None, :, :]).sum(dim=-1)  # (B, H, L)
    if queries is None:
        return share.mean(dim=-1)
    chosen = queries[..., None, :]  # (B, 1, L)
    return (share * chosen).sum(dim=-1) / chosen.sum(dim=-1)
