"""Findings that need no record: theorems and counts, computed when a table is made, mostly in float64."""

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from sciformer.attention import MultiHeadAttention
from sciformer.data import clustered_tokens
from sciformer.functional import (
    additive_scores,
    attend,
    causal_mask,
    dot_product_scores,
    energy_well_scores,
    separable_additive_scores,
)
from sciformer.lab.claims.rules import Finding, compare_values, describe_comparison
from sciformer.lab.experiments import MNIST_PIXELS, REVERSAL
from sciformer.lab.metrics import cluster_concentration, inter_cluster_attention
from sciformer.scores import WELLS, EnergyWellScore

#: What is 0 in exact arithmetic stays below this in float64.
ZERO = 1e-10
CHECKED = "float64, computed for this table"


def size(value: float | Tensor) -> str:
    """A size that is the same on every machine: 0 up to rounding, or not."""
    return "below 1e-10" if float(value) < ZERO else "not 0"


def half_turn() -> list[Finding]:
    """With one slope for both sides and a mean over tokens, an image and its half turn get the same logits."""
    torch.manual_seed(0)
    images = torch.rand(4, 1, 14, 14, dtype=torch.float64)

    def change(arm: str) -> float:
        model = MNIST_PIXELS["quick"][arm].model().double().eval()
        with torch.no_grad():
            return (model(images) - model(images.flip(-1, -2))).abs().max().item()

    one, each = change("published"), change("distance")
    measured = f"change of the logits: {size(one)}; with a slope for each side: {size(each)}"
    return [Finding(measured, CHECKED, computed=one < ZERO < each)]


def cancelling_query() -> list[Finding]:
    """In the separable form the softmax cancels the query's term."""
    torch.manual_seed(0)
    query, key, weight = torch.randn(1, 2, 7, 5).double(), torch.randn(1, 2, 11, 5).double(), torch.randn(2, 5).double()
    maps = [score(query, key, weight).softmax(dim=-1) for score in (separable_additive_scores, additive_scores)]
    separable, whole = ((weights - weights[..., :1, :]).abs().max().item() for weights in maps)
    measured = f"weights of two queries differ by: {size(separable)}; in Bahdanau's form: {size(whole)}"
    return [Finding(measured, CHECKED, computed=separable < ZERO < whole)]


def moat() -> list[Finding]:
    """The stated score of a Gaussian well has one minimum, at 1/√(2α), and comes back to what it is at distance 0."""
    alpha = 1.0
    distance = torch.linspace(0, 8, 80_001, dtype=torch.float64)
    query, key = torch.zeros(1, 1, 1, 1).double(), distance.view(1, 1, -1, 1)
    weight = energy_well_scores(query, key, WELLS["gaussian"], alpha=alpha).exp().flatten()  # beside that at distance 0
    middle = distance[weight.argmin()].item()
    holds = abs(middle - (2 * alpha) ** -0.5) < 1e-3 and weight[-1] > 1 - ZERO and weight.min() < 0.9
    measured = (
        f"α = 1, weight beside that of distance 0: {weight.min():.2f} at {middle:.3f}, its least, and "
        f"{weight[30_000]:.2f} at 3"
    )
    return [Finding(measured, CHECKED, computed=bool(holds))]


def leaking_mask() -> list[Finding]:
    """A finite trainable mask on the scores hides nothing: the output depends on what comes after it."""
    torch.manual_seed(0)
    x, mask = torch.randn(1, 1, 6, 4).double().requires_grad_(), torch.randn(6, 6).double()

    def future(attn_mask: Tensor | None) -> float:
        output, _ = attend(dot_product_scores(x, x) + mask, x, attn_mask=attn_mask)
        (gradient,) = torch.autograd.grad(output[..., 0, :].sum(), x)
        return gradient[..., 1:, :].abs().max().item()

    alone, beside = future(None), future(causal_mask(6))
    measured = (
        f"gradient of the first output by later tokens: {size(alone)}; with a causal mask beside it: {size(beside)}"
    )
    return [Finding(measured, CHECKED, computed=beside < ZERO < alone)]


def ignored_source() -> list[Finding]:
    """A decoder whose cross-attention takes keys and values from itself gives the same whatever the source."""
    torch.manual_seed(0)
    setting = REVERSAL["quick"]["sinusoidal"]
    model = setting.model().double().eval()
    texts, answers = ["abcd", "wxyz"], ["dcba", "dcba"]
    source, target = setting.tokens(texts, answers)

    class Deaf(MultiHeadAttention):
        def forward(self, query: Tensor, key: Tensor | None = None, *args: Any, **options: Any) -> Any:
            return super().forward(query, query, is_causal=True)

    deaf = copy.deepcopy(model)
    for block in deaf.decoder:
        block.cross_attention = Deaf(setting.embed_dim, setting.num_heads).double()
    with torch.no_grad():
        changes = [(each(source, target).diff(dim=0)).abs().max().item() for each in (deaf, model)]
    measured = f"change of the output with the source: {size(changes[0])}; in a sound decoder: {size(changes[1])}"
    return [Finding(measured, CHECKED, computed=changes[0] < ZERO < changes[1])]


def leaking_divisor() -> list[Finding]:
    """The softmax-exponential well divides by a sum over keys: over all of them, it knows what comes later."""
    torch.manual_seed(0)
    x = torch.randn(1, 1, 6, 4).double().requires_grad_()
    score = EnergyWellScore(1, 4, well="softmax_exponential").double()

    def future(over: Tensor | None) -> float:
        output, _ = attend(score(x, x, attn_mask=over), x, attn_mask=causal_mask(6))
        (gradient,) = torch.autograd.grad(output[..., 1, :].sum(), x)
        return gradient[..., 2:, :].abs().max().item()

    everything, allowed = future(None), future(causal_mask(6))
    measured = (
        f"gradient of an output by later tokens: {size(everything)}; with the sum over earlier ones: {size(allowed)}"
    )
    return [Finding(measured, CHECKED, computed=allowed < ZERO < everything)]


def published_parameters() -> list[Finding]:
    """The published pixel model, built as published."""
    count = sum(p.numel() for p in MNIST_PIXELS["full"]["published"].model().parameters())
    holds = abs(count / 250_000 - 1) < 0.1
    return [Finding(f"{count:,} parameters", "the published code's model, counted", computed=holds)]


def plain_additive_memory() -> Finding:
    """How much larger than the scores the largest tensor is that is kept for the gradient."""
    D = 64
    query, key = (torch.randn(1, 1, 16, D, requires_grad=True) for _ in range(2))
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        scores = additive_scores(query, key, torch.randn(1, D, requires_grad=True))
    times = max(kept) / scores.numel()
    measured = f"{times:g} times the numbers of the scores, for D = {D}"
    return Finding(measured, CHECKED, "if written plainly", computed=times == D)


@cache
def clusters(well: str, form: Literal["gradient", "field"], alpha: float) -> tuple[Tensor, Tensor]:
    """Attention within and between clusters, for each of 50 sets of tokens as in notebook 10."""
    points, labels, importance = clustered_tokens(50, seed=0)
    points = points.double()
    weight = {"weight": importance[:, None].double()} if well == "lorentzian" else {}
    maps = energy_well_scores(points, points, WELLS[well], form=form, alpha=alpha, **weight).softmax(dim=-1)[:, None]
    return cluster_concentration(maps, labels)[:, 0], inter_cluster_attention(maps, labels)[:, 0]


FORMS: dict[Literal["gradient", "field"], str] = {"gradient": "as stated", "field": "as a field"}


def sharper_is_more_local() -> Iterator[Finding]:
    """Attention inside a token's own cluster at a large α, against that at a small one."""
    low, high = 0.1, 10.0
    for form, condition in FORMS.items():
        for well in ("gaussian", "softmax_exponential", "lorentzian"):
            sharp, blunt = (clusters(well, form, alpha)[0] for alpha in (high, low))
            where = f"α = {high:g} against {low:g}, 50 sets of clusters"
            yield _over_sets(sharp, blunt, "attention within clusters", where, f"{condition}, {well_name(well)}")


def favours_other_clusters(well: str) -> Iterator[Finding]:
    """What goes to other clusters, against the Gaussian well at the same α."""
    for form, condition in FORMS.items():
        for alpha in (0.1, 1.0, 10.0):
            ours, gaussian = (clusters(each, form, alpha)[1] for each in (well, "gaussian"))
            where = f"{condition}, α = {alpha:g}"
            yield _over_sets(ours, gaussian, "attention between clusters", "50 sets of clusters", where)


def _over_sets(ours: Tensor, theirs: Tensor, metric: str, setting: str, condition: str) -> Finding:
    """Two values for each set of tokens, paired by set: a sample of sets, as an experiment is one of seeds."""
    by_set, by_other = (dict(enumerate(values.tolist())) for values in (ours, theirs))
    effect = compare_values(by_set, by_other, metric, "higher")
    return Finding(describe_comparison(effect, by_set, by_other, metric, of="sets"), setting, condition, effect=effect)


def well_name(well: str) -> str:
    """As it is written in a sentence."""
    return well.removesuffix("_well").replace("_", " ")
