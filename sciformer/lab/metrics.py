"""Metrics: how good a model is, how sure that is, and how each is printed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sciformer.functional import InputError, steps_between

#: The probability, on either side, that chance alone decides; the confidence interval is of 1 − 2 · 0.025 = 95 %.
LEVEL = 0.025


def scipy_stats() -> Any:
    """``scipy.stats``, which has Student's t.

    Raises:
        ModuleNotFoundError: if scipy is not installed; says how to get it.
    """
    try:
        from scipy import stats
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "verdicts and intervals need scipy: pip install scipy, or the course's tools, "
            "pip install 'sciformer[course]'",
            name="scipy",
        ) from error
    return stats


@dataclass(frozen=True)
class Metric:
    """A measured quantity: how it is printed, and whether higher or lower is better.

    Args:
        name: as records call it.
        unit: printed behind the number; empty for a loss, in nats.
        digits: after the decimal point, in this unit.
        better: None where neither is, as with the distance at which a head looks.
        scale: what a recorded number is multiplied by to be in this unit.
        share_of: of which test examples it is a share, or of how many; None for what is no share of them.
    """

    name: str
    unit: str
    digits: int
    better: Literal["higher", "lower"] | None
    scale: int = 1
    share_of: Literal["test digits", "held-out digits"] | int | None = None

    def examples(self, setting: Mapping[str, Any]) -> int | None:
        """Of how many examples it is a share, in an experiment with this recorded setting; None if of none."""
        if self.share_of == "test digits":
            size = setting.get("test_size") or setting.get("size", "drawn")  # a look-up draws its sequences
            return {"small": 2_000, "full": 10_000, "drawn": 10_000}.get(size)
        return setting.get("held_out") if self.share_of == "held-out digits" else self.share_of

    def describe(self, values: Sequence[float]) -> str:
        """Mean ± standard error; of a single value, which says nothing of its error, the value.

        Raises:
            InputError: if there is no value.
        """
        return self._printed(values, "", self.unit)

    def describe_differences(self, differences: Sequence[float]) -> str:
        """Mean ± standard error, always with a sign; two percentages differ by points.

        Raises:
            InputError: if there is no difference.
        """
        return self._printed(differences, "+", "points" if self.unit == "%" else self.unit)

    def gain(self, difference: float) -> float:
        """A difference, with the sign that makes an improvement positive.

        Raises:
            InputError: if neither higher nor lower is better.
        """
        if self.better is None:
            raise InputError(f"{self.name} has no better side: a comparison has to say 'higher' or 'lower'")
        return difference if self.better == "higher" else -difference

    def _printed(self, values: Sequence[float], sign: str, unit: str) -> str:
        mean, error = (self.scale * value for value in mean_and_error(values))
        spread = f" ± {error:.{self.digits}f}" if len(values) > 1 else ""
        return f"{mean:{sign}.{self.digits}f}{spread} {unit}".replace("-", "−").rstrip()


def _share(
    name: str,
    share_of: Literal["test digits", "held-out digits"] | int | None = None,
    *,
    better: Literal["higher"] | None = "higher",
) -> Metric:
    """Recorded from 0 to 1, printed in percent."""
    return Metric(name, "%", 2, better, scale=100, share_of=share_of)


def _loss(name: str) -> Metric:
    return Metric(name, "", 3, "lower")


#: Every metric that an experiment records or a claim derives, by name.
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        _share("accuracy"),
        _share("test accuracy", "test digits"),
        _share("test accuracy on small digits", "test digits"),
        _share("test accuracy enlarged", "test digits"),
        _share("validation accuracy", "held-out digits"),
        Metric("rise of accuracy per doubling", "points", 2, "higher", scale=100),
        _share("probe accuracy", "test digits"),
        _share("probe accuracy untrained", "test digits"),
        _share("probe accuracy of pixels", "test digits"),
        _share("test exact match", 10_000),
        _share("test exact match at ten times the length", 100),
        _share("test exact match at twice the length", 10_000),
        _share("test exact match on new forms", 10_000),
        _share("test exact match on new days and forms", 10_000),
        _loss("loss"),
        _loss("test loss"),
        _loss("validation loss"),
        _loss("lowest validation loss"),
        _loss("held-out loss"),
        # 1, 2, 4 and 8 times the trained length, which is 64 in the quick profile and 256 in the full one.
        *(_loss(f"validation loss at {length}") for length in (64, 128, 256, 512, 1024, 2048)),
        _share("accuracy on repeats"),
        Metric("prefix-matching score", "", 3, "higher"),
        Metric("attention distance", "tokens", 2, None),
        Metric("attention distance before training", "tokens", 2, None),
        _share("attention within clusters", better=None),
        _share("attention between clusters", better=None),
        Metric("smallest slope", "per token", 2, None),
        Metric("memory against the plain form", "times", 2, "lower"),
        Metric("step time against dot", "times", 2, "lower"),
        Metric("peak MB", "MB", 1, "lower"),
    )
}


def known_metric(name: str) -> Metric:
    """The metric of that name.

    Raises:
        InputError: if there is none; names those that there are.
    """
    if name not in METRICS:
        raise InputError(f"there is no metric {name!r}; there are {', '.join(METRICS)}")
    return METRICS[name]


def accuracy(logits: Float[Tensor, "B K"], labels: Int[Tensor, "B"]) -> Float[Tensor, ""]:
    """Share of examples whose largest logit is that of the label, from 0 to 1."""
    return (logits.argmax(dim=-1) == labels).float().mean()


def agreement(written: Int[Tensor, "B N"], wanted: Int[Tensor, "B L"], *, pad: int = 0) -> Bool[Tensor, "B M"]:
    """Where a written sequence agrees with the wanted one, position by position; M is the longer of N and L.

    The shorter is filled up with padding, so ``agreement(...).all(dim=1)`` is True where both are the same text.
    """
    missing = wanted.shape[1] - written.shape[1]
    return F.pad(written, (0, max(0, missing)), value=pad) == F.pad(wanted, (0, max(0, -missing)), value=pad)


def confusion_matrix(predicted: Int[Tensor, "N"], labels: Int[Tensor, "N"], num_classes: int) -> Int[Tensor, "K K"]:
    """How often an example of class (row) was predicted as class (column).

    Raises:
        InputError: if a class is none of 0..num_classes - 1.
    """
    classes = torch.stack((labels, predicted))
    if strange := classes[(classes < 0) | (classes >= num_classes)].tolist():
        raise InputError(f"there is a class {strange[0]}, and {num_classes} classes are 0..{num_classes - 1}")
    return torch.bincount(labels * num_classes + predicted, minlength=num_classes**2).view(num_classes, num_classes)


def mean_and_error(values: Sequence[float] | Float[Tensor, " n"]) -> tuple[float, float]:
    """Mean over seeds and its standard error, s/√n with n - 1 in s; the error of a single value is NaN, not 0.

    Raises:
        InputError: if there is no value.
    """
    if not len(values):
        raise InputError("a mean needs at least one value")
    x = torch.as_tensor(values, dtype=torch.float64)
    error = x.std().item() / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return x.mean().item(), error


def mean_and_half(values: Sequence[float] | Float[Tensor, " n"]) -> tuple[float, float]:
    r"""Mean over seeds and half the length of its 95 % confidence interval; that of a single value is NaN.

    The interval is :math:`\bar x \pm t\, s/\sqrt n`, with Student's t for n - 1 degrees of freedom (2.776 for n = 5).
    Of pairs of runs, hand over the differences.

    Raises:
        InputError: if there is no value.
        ModuleNotFoundError: if scipy is not installed; says how to get it.
    """
    mean, error = mean_and_error(values)
    return mean, float(scipy_stats().t.isf(LEVEL, len(values) - 1)) * error


def power_law(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    r"""Exponent and factor of :math:`y = c\, x^p`, by least squares of the logarithms.

    On two logarithmic axes a power law is a line, and p its slope: 1 for what grows with x, 2 for what grows with x².

    Args:
        points: (x, y), all above 0.

    Returns:
        p and c.

    Raises:
        InputError: if a number is not above 0, or there are no two different x.
    """
    logs = torch.tensor(points, dtype=torch.float64).view(-1, 2).log()
    if not logs.isfinite().all() or len(logs[:, 0].unique()) < 2:
        raise InputError(f"a power law needs positive numbers and two different x, got {list(points)}")
    x, y = logs.T
    exponent = ((x - x.mean()) @ y) / (x - x.mean()).square().sum()
    return exponent.item(), (y.mean() - exponent * x.mean()).exp().item()


def previous_token_score(weights: Float[Tensor, "B H L L"]) -> Float[Tensor, "H"]:
    """The mean weight of each head on the token just before its query, over all queries but the first."""
    return weights.diagonal(-1, dim1=-2, dim2=-1).mean(dim=(0, 2))


def prefix_matching_score(weights: Float[Tensor, "B H L L"], period: Int[Tensor, "B"]) -> Float[Tensor, "H"]:
    """The mean weight of each head on the token behind the last occurrence of the query's own token.

    In a sequence that repeats every p tokens the token at i ≥ p stood at i - p before, and i - p + 1 followed it. The
    mean is over all these queries of all sequences. Source: Olsson et al. 2022, arXiv:2209.11895, "Prefix matching".

    Raises:
        ValueError: if no sequence repeats anything, since there is then nothing to average.
    """
    seen = [of_one[:, p:, 1:].diagonal(dim1=-2, dim2=-1) for of_one, p in zip(weights, period.tolist(), strict=True)]
    of_heads = torch.cat(seen, dim=-1)  # (H, queries)
    if not of_heads.shape[-1]:
        raise InputError(f"sequences of {weights.shape[-1]} tokens with the periods {period.tolist()} repeat nothing")
    return of_heads.mean(dim=-1)


def attention_distance(weights: Float[Tensor, "B H L S"], *, width: int | None = None) -> Float[Tensor, "H"]:
    r"""How far a head looks on average over all queries, in tokens.

    .. math:: \frac{1}{BL} \sum_{b, i, j} w_{bij} |i - j|

    Source: Dosovitskiy et al. 2020, arXiv:2010.11929, section 4.5, there with Euclidean distances.

    Args:
        width: tokens in a row, if the tokens are an image; the distance is then rows plus columns.

    Raises:
        InputError: if there are more queries than keys.
    """
    distance = steps_between(*weights.shape[-2:], width=width, device=weights.device).sum(dim=0)  # (L, S)
    return (weights * distance).sum(dim=-1).mean(dim=(0, 2))


def attention_by_lag(weights: Float[Tensor, "B H L S"]) -> Float[Tensor, "H R"]:
    r"""Attention from the future to the past, by how many steps lie between.

    The S keys are the last S moments, the newest one last; the L queries are the L moments that follow. From query i to
    key j, both counted from 0, the lag is r = i + S - j steps.

    .. math:: p_r = \frac{1}{B\,n_r} \sum_{b} \sum_{i + S - j = r} w_{bij}

    with n_r the number of pairs (i, j) at this lag.

    Returns:
        The mean weight at the lags 1, 2, ..., L + S - 1, in this order.
    """
    L, S = weights.shape[-2:]
    lag = torch.arange(L, device=weights.device)[:, None] + S - torch.arange(S, device=weights.device)  # (L, S)
    mean = weights.mean(dim=0)  # (H, L, S)
    return torch.stack([mean[:, lag == r].mean(dim=-1) for r in range(1, L + S)], dim=-1)


def cluster_concentration(
    weights: Float[Tensor, "B H L L"], clusters: Int[Tensor, "B L"], *, queries: Bool[Tensor, "B L"] | None = None
) -> Float[Tensor, "B H"]:
    r"""Attention inside the clusters: the share that stays in a token's own cluster, on average over the tokens.

    .. math:: \frac{1}{|Q|} \sum_{i \in Q} \ \sum_{j:\, c_j = c_i} w_{ij}

    The token itself counts as part of its cluster. Uniform attention gives the cluster's share of all tokens.

    Args:
        clusters: the index c of each token's cluster.
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
        clusters: the index c of each token's cluster.
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


def linear_probe(
    features: Float[Tensor, "N F"], labels: Int[Tensor, "N"], *, penalties: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1)
) -> nn.Linear:
    r"""How much of the classes can be read off frozen features by a linear map: logistic regression.

    .. math:: \min_{W, b}\ \frac{1}{N} \sum_n -\log p(y_n \mid W \tilde x_n + b) + \frac{\lambda}{2} \|W\|^2

    x̃ are the features minus their mean, over their standard deviation. Mean, deviation and λ come from these examples
    alone: λ is the best of ``penalties`` on the last fifth of them, and then all are fitted. Full batch, L-BFGS.
    Source: Alain and Bengio 2016, arXiv:1610.01644, section 3.

    Returns:
        A linear map of the features as they are, to the logits of classes 0 to the largest label.

    Raises:
        InputError: if there are fewer than five examples, or not a label for each.
    """
    if len(features) < 5 or labels.shape != features.shape[:1]:
        raise InputError(
            f"a probe needs five examples or more and a label for each, got {len(features)} examples, "
            f"labels of {tuple(labels.shape)}"
        )
    features, num_classes, kept = features.detach(), int(labels.max()) + 1, len(features) * 4 // 5
    scores = {}
    for penalty in penalties if len(penalties) > 1 else ():
        probe = _logistic_regression(features[:kept], labels[:kept], num_classes, penalty)
        scores[penalty] = accuracy(probe(features[kept:]), labels[kept:]).item()
    best = max(scores, key=scores.__getitem__) if scores else penalties[0]
    return _logistic_regression(features, labels, num_classes, best)


@torch.no_grad()
def probe_accuracy(
    encode: Callable[[Tensor], Tensor],
    train: tuple[Float[Tensor, "N C height width"], Int[Tensor, "N"]],
    test: tuple[Float[Tensor, "M C height width"], Int[Tensor, "M"]],
    **options: Any,
) -> float:
    """Accuracy, from 0 to 1, of :func:`linear_probe` with ``options`` on what a frozen encoder makes of images.

    Args:
        encode: from images to features (B, F), such as ``model.features``, or ``torch.nn.Flatten()`` for the pixels.
        train: images and labels to fit the probe on.
        test: images and labels that nothing was fitted on.
    """

    def features(images: Tensor) -> Tensor:
        return torch.cat([encode(part) for part in images.split(1000)])

    probe = linear_probe(features(train[0]), train[1], **options)
    return accuracy(probe(features(test[0])), test[1]).item()


@torch.enable_grad()
def _logistic_regression(features: Tensor, labels: Tensor, num_classes: int, penalty: float) -> nn.Linear:
    mean, deviation = features.mean(dim=0), features.std(dim=0)
    deviation = torch.where(deviation > 0, deviation, 1.0)  # a feature that never changes says nothing
    scaled = (features - mean) / deviation
    probe = nn.Linear(features.shape[1], num_classes).to(features)
    for parameter in probe.parameters():
        nn.init.zeros_(parameter)
    optimizer = torch.optim.LBFGS(probe.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(probe(scaled), labels) + penalty / 2 * probe.weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    with torch.no_grad():  # W (x - mean) / deviation + b, as a map of x
        probe.weight.div_(deviation)
        probe.bias.sub_(probe.weight @ mean)
    return probe.requires_grad_(False)
