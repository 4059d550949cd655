"""One layer of attention with its four projections, the package's and its peers': forward and backward, or forward.

All contestants have the same sizes and, but for what a score has to learn, as many parameters. They take turns, so that
a noisy machine is noisy for all.
"""

import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from sciformer import SCORES, DistanceBiasedScore, DotProductScore, MultiHeadAttention, WindowedScore
from sciformer.functional import window_mask
from sciformer.lab.measuring import median_seconds_in_turns, peak_bytes
from sciformer.lab.roofline import Machine, cost
from sciformer.scores import ScoreRecipe

BATCH, EMBED_DIM, NUM_HEADS = 1, 128, 4
HEAD_DIM = EMBED_DIM // NUM_HEADS
#: How many positions back the scores with a cut-off may look.
WINDOW = 128
#: At this length every contestant is measured as often as was asked for; the longer, the less often.
REPEATS_AT = 1024


#: "readable" holds the weights of all pairs of tokens, "fast" is the fastest that there is, both forward and backward;
#: "forward" is the fastest without a backward pass, which some peers lack.
Form = Literal["fast", "readable", "forward"]


def projected(in_proj: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The heads' queries, keys and values (B, H, L, D) of an input (B, L, E)."""
    q, k, v = (part.unflatten(-1, (NUM_HEADS, HEAD_DIM)).transpose(1, 2) for part in in_proj(x).chunk(3, dim=-1))
    return q, k, v


def joined(out_proj: nn.Module, heads: Tensor) -> Tensor:
    """What the heads return (B, H, L, D), side by side and projected: (B, L, E)."""
    return out_proj(heads.transpose(1, 2).flatten(-2))


class Ours(nn.Module):
    """The package's layer.

    Args:
        readable: take the readable path, which returns the weights.
    """

    def __init__(self, score: ScoreRecipe, *, readable: bool, is_causal: bool = True):
        super().__init__()
        self.attention = MultiHeadAttention(EMBED_DIM, NUM_HEADS, score=score, bias=False)
        self.readable, self.is_causal = readable, is_causal

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, E) to (B, L, E)."""
        return self.attention(x, is_causal=self.is_causal, need_weights=self.readable)[0]


class Torchs(nn.Module):
    """``nn.MultiheadAttention`` as it is by default, returning the mean of the heads' weights, or at its fastest."""

    def __init__(self, *, readable: bool):
        super().__init__()
        self.attention = nn.MultiheadAttention(EMBED_DIM, NUM_HEADS, bias=False, batch_first=True)
        self.options = {"need_weights": readable, "is_causal": not readable}
        self.hidden: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, E) to (B, L, E)."""
        if self.hidden is None:  # it wants this mask beside its causal flag; one is enough for every pass
            self.hidden = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return self.attention(x, x, x, attn_mask=self.hidden, **self.options)[0]


class XTransformers(nn.Module):
    """x-transformers' layer, plain or with ALiBi, with all scores at once or through torch's fused kernels."""

    def __init__(self, *, readable: bool, alibi: bool, is_causal: bool = True):
        super().__init__()
        from x_transformers.x_transformers import AlibiPositionalBias, Attention

        self.attention = Attention(EMBED_DIM, dim_head=HEAD_DIM, heads=NUM_HEADS, causal=is_causal, flash=not readable)
        self.bias = AlibiPositionalBias(NUM_HEADS) if alibi else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, E) to (B, L, E)."""
        return self.attention(x, rel_pos=self.bias)


class TorchsMasked(nn.Module):
    """The dot product within the window by torch's fused kernel, which is told by a mask what to leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj = nn.Linear(EMBED_DIM, 3 * EMBED_DIM, bias=False)
        self.out_proj = nn.Linear(EMBED_DIM, EMBED_DIM, bias=False)
        self.visible: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, E) to (B, L, E)."""
        if self.visible is None:  # one mask is enough for every pass
            self.visible = window_mask(x.shape[1], x.shape[1], window=WINDOW, device=x.device).tril()
        q, k, v = projected(self.in_proj, x)
        return joined(self.out_proj, F.scaled_dot_product_attention(q, k, v, attn_mask=self.visible))


class FlexAttention(nn.Module):
    """Distance-biased attention by torch's FlexAttention, compiled: every token sees all. On a CPU it has no backward.

    Args:
        width: tokens in a row of the grid on which distances are counted; None is a sequence.

    Raises:
        ImportError: if there is no compiler that it could be compiled with.
    """

    def __init__(self, *, width: int | None = None):
        super().__init__()
        if shutil.which(os.environ.get("CXX", "g++")) is None:
            raise ImportError("FlexAttention needs a C++ compiler")
        self.in_proj = nn.Linear(EMBED_DIM, 3 * EMBED_DIM, bias=False)
        self.out_proj = nn.Linear(EMBED_DIM, EMBED_DIM, bias=False)
        self.strength = nn.Parameter(torch.full((NUM_HEADS,), 0.1))
        self.width = width
        self.kernel = torch.compile(flex_attention, dynamic=True)

    def price(self, score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """The score of a pair, minus what its distance costs."""
        if self.width is None:
            return score - self.strength[head] * (i - j).abs()
        rows, columns = i // self.width - j // self.width, i % self.width - j % self.width
        return score - self.strength[head] * (rows.abs() + columns.abs())

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, E) to (B, L, E)."""
        return joined(self.out_proj, self.kernel(*projected(self.in_proj, x), score_mod=self.price))


def two_sided(*, readable: bool) -> nn.Module:
    """The package's layer as vit-pytorch has it: every token sees all, and a norm comes first."""
    return nn.Sequential(nn.LayerNorm(EMBED_DIM), Ours(DotProductScore, readable=readable, is_causal=False))


def on_grid(length: int, *, readable: bool) -> nn.Module:
    """The package's layer with the distance bias on a square grid."""
    return Ours(partial(DistanceBiasedScore, width=math.isqrt(length)), readable=readable, is_causal=False)


def flex_on_grid(length: int) -> nn.Module:
    """FlexAttention on the same grid."""
    return FlexAttention(width=math.isqrt(length))


def vit_pytorch() -> nn.Module:
    """vit-pytorch's layer."""
    from vit_pytorch.simple_vit import Attention

    return Attention(EMBED_DIM, heads=NUM_HEADS, dim_head=HEAD_DIM)


@dataclass(frozen=True)
class Contestant:
    """One way to compute a layer of attention.

    Args:
        build: makes the layer for sequences of a length.
        beside: the label of ours that a peer is compared with; "" of ours.
        counted: whether its operations can be counted, which a compiled kernel hides.
    """

    name: str
    form: Form
    build: Callable[[int], nn.Module]
    beside: str = ""
    counted: bool = True

    @property
    def label(self) -> str:
        """Name and form, which no two contestants share."""
        return f"{self.name}, {self.form}"


def at_any_length(build: Callable[..., nn.Module], *arguments: Any, **options: Any) -> Callable[[int], nn.Module]:
    """A layer that does not depend on the length."""
    return lambda length: build(*arguments, **options)


def contestants() -> list[Contestant]:
    """All of them; causal, but for the two-sided and the grid.

    A peer is compared with our fast form of the same attention, or with the readable one if it too returns weights.
    """
    ours, peers = [], []
    both: tuple[Form, ...] = ("fast", "readable")
    for form in both:
        readable = form == "readable"
        ours += [
            Contestant(name, form, at_any_length(Ours, score, readable=readable)) for name, score in SCORES.items()
        ]
        for name in ("dot", "distance", "gaussian_well"):
            near = at_any_length(Ours, partial(WindowedScore, window=WINDOW, score=SCORES[name]), readable=readable)
            ours.append(Contestant(f"{name}, window {WINDOW}", form, near))
        ours.append(Contestant("dot, two-sided", form, at_any_length(two_sided, readable=readable)))
        peers.append(
            Contestant("nn.MultiheadAttention", form, at_any_length(Torchs, readable=readable), f"dot, {form}"),
        )
        for name, beside, options in (
            ("x-transformers", "dot, fast", {"alibi": False}),
            ("x-transformers, ALiBi", "distance, fast", {"alibi": True}),
            ("x-transformers, ALiBi, two-sided", "distance, two-sided, fast", {"alibi": True, "is_causal": False}),
        ):
            build = at_any_length(XTransformers, readable=readable, **options)
            peers.append(Contestant(name, form, build, beside))
    forms: tuple[Form, ...] = (*both, "forward")
    for form in forms:
        readable = form == "readable"
        sequence = at_any_length(Ours, DistanceBiasedScore, readable=readable, is_causal=False)
        ours.append(Contestant("distance, two-sided", form, sequence))
        ours.append(Contestant("distance, grid", form, partial(on_grid, readable=readable)))
    return [
        *ours,
        *peers,
        Contestant("torch, masked", "fast", at_any_length(TorchsMasked), f"dot, window {WINDOW}, fast"),
        Contestant("vit-pytorch, two-sided", "readable", at_any_length(vit_pytorch), "dot, two-sided, fast"),
        Contestant("FlexAttention", "forward", at_any_length(FlexAttention), "distance, two-sided, forward", False),
        Contestant("FlexAttention, grid", "forward", flex_on_grid, "distance, grid, forward", False),
    ]


def foreseen(measured: Sequence[tuple[int, float]], length: int) -> float:
    """What a cost will be at a length, if it goes on growing as it last did, and not faster than length².

    Args:
        measured: length and cost, shortest first. After only one the growth is taken to be quadratic.
    """
    longest, cost = measured[-1]
    power = 2.0
    if len(measured) > 1:
        shorter, less = measured[-2]
        power = min(2.0, max(0.0, math.log(cost / less) / math.log(longest / shorter)))
    return cost * (length / longest) ** power


def too_much(rows: Sequence[dict[str, Any]], length: int, *, limit: float, patience: float) -> str | None:
    """Why a contestant is not measured at a length, given its rows so far; None if it is.

    Args:
        limit: gigabytes that one pass may take.
        patience: seconds that one pass may take.
    """
    if not rows:
        return None
    gigabytes = foreseen([(row["length"], row["megabytes"] / 1000) for row in rows], length)
    if gigabytes > limit:
        return f"would need {gigabytes:.0f} GB"
    seconds = foreseen([(row["length"], row["milliseconds"] / 1000) for row in rows], length)
    return f"would take {seconds:.0f} s" if seconds > patience else None


def one_pass(contestant: Contestant, length: int, device: str) -> Callable[[], None]:
    """Forward and, but for the form "forward", backward of a new layer, always on the same numbers."""
    torch.manual_seed(0)
    layer = contestant.build(length).to(device)
    backward = contestant.form != "forward"
    x = torch.randn(BATCH, length, EMBED_DIM, device=device, requires_grad=backward)

    def run() -> None:
        with torch.set_grad_enabled(backward):
            loss = layer(x).sum()
        if backward:
            loss.backward()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def measure(
    lengths: Sequence[int], *, repeats: int, limit: float, patience: float, machine: Machine, device: str = "cpu"
) -> Iterator[dict[str, Any]]:
    """Time, memory and cost of every contestant at every length, shortest first.

    Memory is the most that torch has allocated at a time during the first pass, beyond parameters and input. Times are
    medians of ``repeats`` later passes at length :data:`REPEATS_AT`, of more at shorter lengths and of fewer at longer.

    Yields:
        A row for each contestant and length, with "milliseconds" and "megabytes" or with "why not". Whatever is counted
        has "flops", "bytes" and "share" as well: how much of its time the machine needs at least.
    """
    everyone = contestants()
    before: dict[str, list[dict[str, Any]]] = {contestant.label: [] for contestant in everyone}
    for length in sorted(set(lengths)):
        rows, runs = [], []
        for contestant in everyone:
            row: dict[str, Any] = {
                "contestant": contestant.name,
                "form": contestant.form,
                "kind": "peer" if contestant.beside else "ours",
                "beside": contestant.beside,
                "length": length,
            }
            why_not = too_much(before[contestant.label], length, limit=limit, patience=patience)
            if why_not is None:
                try:
                    run = one_pass(contestant, length, device)
                except ImportError:
                    why_not = "not installed"
            if why_not is None:
                row["megabytes"] = peak_bytes(run, device) / 1e6
                if contestant.counted:
                    row |= asdict(cost(run, machine))
                before[contestant.label].append(row)
                runs.append(run)
            else:
                row["why not"] = why_not
            rows.append(row)
        often = max(min(5, repeats), repeats * REPEATS_AT // length)
        seconds = iter(median_seconds_in_turns(runs, often))
        for row in rows:
            if "why not" not in row:
                row["milliseconds"] = 1000 * next(seconds)
                if "least_seconds" in row:
                    row["share"] = 1000 * row.pop("least_seconds") / row["milliseconds"]
        yield from rows
