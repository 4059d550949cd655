"""One layer of attention, forward and backward, with its four projections: the package's and its peers'.

All contestants have the same sizes and, but for what a score has to learn, as many parameters. They take turns, so that
a noisy machine is noisy for all.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sciformer import SCORES, MultiHeadAttention
from sciformer.lab.measuring import median_seconds_in_turns, peak_bytes

BATCH, EMBED_DIM, NUM_HEADS = 1, 128, 4
HEAD_DIM = EMBED_DIM // NUM_HEADS
#: At this length every contestant is measured as often as was asked for; the longer, the less often.
REPEATS_AT = 1024


class Ours(nn.Module):
    """The package's layer.

    Args:
        readable: take the readable path, which returns the weights.
    """

    def __init__(self, score: str, *, readable: bool, is_causal: bool = True):
        super().__init__()
        self.attention = MultiHeadAttention(EMBED_DIM, NUM_HEADS, score=SCORES[score], bias=False)
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

    def __init__(self, *, readable: bool, alibi: bool):
        super().__init__()
        from x_transformers.x_transformers import AlibiPositionalBias, Attention

        self.attention = Attention(EMBED_DIM, dim_head=HEAD_DIM, heads=NUM_HEADS, causal=True, flash=not readable)
        self.bias = AlibiPositionalBias(NUM_HEADS) if alibi else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, E) to (B, L, E)."""
        return self.attention(x, rel_pos=self.bias)


def two_sided(*, readable: bool) -> nn.Module:
    """The package's layer as vit-pytorch has it: every token sees all, and a norm comes first."""
    return nn.Sequential(nn.LayerNorm(EMBED_DIM), Ours("dot", readable=readable, is_causal=False))


def vit_pytorch() -> nn.Module:
    """vit-pytorch's layer."""
    from vit_pytorch.simple_vit import Attention

    return Attention(EMBED_DIM, heads=NUM_HEADS, dim_head=HEAD_DIM)


@dataclass(frozen=True)
class Contestant:
    """One way to compute a layer of attention.

    Args:
        form: "readable" holds the weights of all pairs of tokens, "fast" is the fastest that there is.
        build: makes the layer.
        beside: the label of ours that a peer is compared with; "" of ours.
    """

    name: str
    form: Literal["fast", "readable"]
    build: Callable[[], nn.Module]
    beside: str = ""

    @property
    def label(self) -> str:
        """Name and form, which no two contestants share."""
        return f"{self.name}, {self.form}"


def contestants() -> list[Contestant]:
    """All of them; causal, but for the two-sided.

    A peer is compared with our fast form of the same attention, or with the readable one if it too returns weights.
    """
    ours, peers = [], []
    forms: tuple[Literal["fast", "readable"], ...] = ("fast", "readable")
    for form in forms:
        readable = form == "readable"
        ours += [Contestant(score, form, partial(Ours, score, readable=readable)) for score in SCORES]
        ours.append(Contestant("dot, two-sided", form, partial(two_sided, readable=readable)))
        peers += [
            Contestant("nn.MultiheadAttention", form, partial(Torchs, readable=readable), f"dot, {form}"),
            Contestant("x-transformers", form, partial(XTransformers, readable=readable, alibi=False), "dot, fast"),
            Contestant(
                "x-transformers, ALiBi", form, partial(XTransformers, readable=readable, alibi=True), "distance, fast"
            ),
        ]
    return [*ours, *peers, Contestant("vit-pytorch, two-sided", "readable", vit_pytorch, "dot, two-sided, fast")]


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


def one_pass(build: Callable[[], nn.Module], length: int, device: str) -> Callable[[], None]:
    """Forward and backward of a new layer, always on the same numbers."""
    torch.manual_seed(0)
    layer = build().to(device)
    x = torch.randn(BATCH, length, EMBED_DIM, device=device, requires_grad=True)

    def run() -> None:
        layer(x).sum().backward()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def measure(
    lengths: Sequence[int], *, repeats: int, limit: float, patience: float, device: str = "cpu"
) -> Iterator[dict[str, Any]]:
    """Time and memory of every contestant at every length, shortest first.

    Memory is the most that torch has allocated at a time during the first pass, beyond parameters and input. Times are
    medians of ``repeats`` later passes at length :data:`REPEATS_AT`, of more at shorter lengths and of fewer at longer.

    Yields:
        A row for each contestant and length, with "milliseconds" and "megabytes" or with "why not".
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
                    run = one_pass(contestant.build, length, device)
                except ImportError:
                    why_not = "not installed"
            if why_not is None:
                row["megabytes"] = peak_bytes(run, device) / 1e6
                before[contestant.label].append(row)
                runs.append(run)
            else:
                row["why not"] = why_not
            rows.append(row)
        often = max(min(7, repeats), repeats * REPEATS_AT // length)
        seconds = iter(median_seconds_in_turns(runs, often))
        for row in rows:
            if "why not" not in row:
                row["milliseconds"] = 1000 * next(seconds)
        yield from rows
