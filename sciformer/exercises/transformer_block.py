"""Exercises of notebook 05: the transformer block.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sciformer.attention import MultiHeadAttention
from sciformer.blocks import FeedForward
from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise, WrongType
from sciformer.check.modules import run_module

_RESIDUAL = "The residual connection"
_NORM = "Layer norm"
_AXIS = "Break it: the wrong axis"
_FEED_FORWARD = "The feed-forward"
_ORDERS = "Two orders"
_BREAK = "Break it: where the `x +` goes"
_QUIETER = "Quieter branches"


def root_mean_square_norm(
    x: Tensor,
    weight: Tensor,
    eps: float,
    *,
    prepare: Callable[..., Tensor] = lambda x, weight: x,
    square: Callable[..., Tensor] = lambda x: x.square().mean(dim=-1, keepdim=True),
    size: Callable[..., Tensor] = lambda square, eps: (square + eps).sqrt(),
    apply: Callable[..., Tensor] = lambda x, size, weight: x / size * weight,
) -> Tensor:
    """x / √(mean of x² + ε) · g, (…, E). Source: Zhang & Sennrich 2019, arXiv:1910.07467, section 3."""
    x = prepare(x, weight)
    return apply(x, size(square(x), eps), weight)


def _root_mean_square_norm_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, *shape: int, eps: float) -> Case:
        return Case(name, {"x": draw.normal(*shape), "weight": draw.normal(shape[-1]), "eps": eps})

    yield case("1 sequence, 2 tokens of 2 features", 1, 2, 2, eps=0.1)
    yield case("1 sequence, 3 tokens of 3 features", 1, 3, 3, eps=0.1)
    yield case("2 sequences, 3 tokens of 5 features", 2, 3, 5, eps=0.1)
    yield case("5 sequences, 2 tokens of 7 features", 5, 2, 7, eps=0.01)
    # With a mean square and a root below ε: whether ε is added, or only a lower bound, or not used.
    x = (1 + draw.integers(0, 5, 1, 2, 3)).to(draw.dtype) / 100
    yield Case("1 sequence, 2 small tokens of 3 features", {"x": x, "weight": draw.normal(3), "eps": 0.1})


_ROOT_MEAN_SQUARE_NORM_FAULTS = (
    Fault(
        "mean subtracted",
        "The mean of each token is subtracted, as in layer norm. RMS norm leaves it in.",
        prepare=lambda x, weight: x - x.mean(dim=-1, keepdim=True),
    ),
    Fault(
        "variance in place of the mean square",
        "It divides by the standard deviation, which measures from the mean. RMS norm squares the features as they "
        "are.",
        square=lambda x: x.var(dim=-1, unbiased=False, keepdim=True),
    ),
    Fault(
        "torch's default variance",
        "It divides by torch's standard deviation, which measures from the mean and divides by E − 1. "
        "RMS norm takes the mean of the squares.",
        square=lambda x: x.var(dim=-1, keepdim=True),
    ),
    Fault(
        "over the tokens",
        "The mean of the squares runs over the tokens (dim=-2). Each token is normed by itself: dim=-1.",
        see=_AXIS,
        square=lambda x: x.square().mean(dim=-2, keepdim=True),
    ),
    Fault(
        "over the batch",
        "The mean of the squares runs over the sequences (dim=0). Each token is normed by itself: dim=-1.",
        see=_AXIS,
        square=lambda x: x.square().mean(dim=0, keepdim=True),
    ),
    Fault(
        "over tokens and features",
        "All tokens of a sequence share one root mean square. Each token has its own: dim=-1 and nothing else.",
        see=_AXIS,
        square=lambda x: x.square().mean(dim=(-2, -1), keepdim=True),
    ),
    Fault(
        "over everything",
        "One root mean square is taken of the whole tensor. Each token has its own: mean(dim=-1, keepdim=True).",
        see=_AXIS,
        square=lambda x: x.square().mean(),
    ),
    Fault(
        "sum in place of the mean",
        "The squares are summed. Their mean is wanted, so that the width of the token does not matter.",
        square=lambda x: x.square().sum(dim=-1, keepdim=True),
    ),
    Fault(
        "squares the mean",
        "The mean is taken before the square. First square each feature, then take the mean.",
        square=lambda x: x.mean(dim=-1, keepdim=True).square(),
    ),
    Fault(
        "no keepdim",
        "The mean of the squares has lost its axis, so that feature n of a token is divided by token n's size. "
        "Keep the axis: keepdim=True.",
        square=lambda x: x.square().mean(dim=-1),
    ),
    Fault(
        "no square",
        "The root is taken of the mean of the absolute values. The features have to be squared first.",
        square=lambda x: x.abs().mean(dim=-1, keepdim=True),
    ),
    Fault(
        "absolute values",
        "It divides by the mean of the absolute values. RMS is the root of the mean of the squares.",
        square=lambda x: x.abs().mean(dim=-1, keepdim=True),
        size=lambda size, eps: size + eps,
    ),
    Fault(
        "no root",
        "The root is missing: it divides by the mean of the squares.",
        size=lambda square, eps: square + eps,
    ),
    Fault(
        "no ε",
        "The given ε has no effect on these numbers: it is not added. It keeps a token of zeros from giving 0/0, and "
        "stands under the root.",
        size=lambda square, eps: square.sqrt(),
    ),
    Fault(
        "ε outside the root",
        "The ε is added to the root. It belongs under the root, beside the mean of the squares.",
        size=lambda square, eps: square.sqrt() + eps,
    ),
    Fault(
        "ε as a lower bound",
        "The ε is a lower bound of the root, as in clamp(min=eps) or max. It is added under the root, beside the mean "
        "of the squares.",
        size=lambda square, eps: square.sqrt().clamp(min=eps),
    ),
    Fault(
        "ε as a lower bound under the root",
        "Here ε is a lower bound of the mean of the squares, as in clamp(min=eps) or max. It has to be added to that "
        "mean.",
        size=lambda square, eps: square.clamp(min=eps).sqrt(),
    ),
    Fault(
        "ε squared",
        "The ε is squared before it is added. It is added to the mean of the squares as it is.",
        size=lambda square, eps: (square + eps**2).sqrt(),
    ),
    Fault(
        "multiplied",
        "It multiplies by the root mean square. To bring every token to the same size, divide by it.",
        apply=lambda x, size, weight: x * size * weight,
    ),
    Fault(
        "weight missing",
        "The learned weight g is not used: multiply by it at the end.",
        apply=lambda x, size, weight: x / size,
    ),
    Fault(
        "weight before the norm",
        "The weight g multiplies x before the norm, which then takes part of it back. Multiply at the end.",
        prepare=lambda x, weight: x * weight,
        apply=lambda x, size, weight: x / size,
    ),
    Fault(
        "weight added",
        "The weight g is added. It multiplies; only layer norm's bias b is added.",
        apply=lambda x, size, weight: x / size + weight,
    ),
    Fault(
        "weight divides",
        "The weight g ends up below the fraction line, beside the root. It multiplies the result.",
        apply=lambda x, size, weight: x / (size * weight),
    ),
    Fault(
        "1 + weight",
        "It multiplies by 1 + g. That is right for a weight that starts at 0; ours starts at 1, so multiply by g.",
        apply=lambda x, size, weight: x / size * (1 + weight),
    ),
    Fault(
        "ε divided, too",
        "The ε is added to the sum of the squares, and is divided by E with it. It is added to their mean.",
        size=lambda square, eps: (square, eps),
        apply=lambda x, size, weight: x / (size[0] + size[1] / x.shape[-1]).sqrt() * weight,
    ),
    Fault(
        "length divided by E",
        "The length is divided by E, so that the sum of the squares is divided by E². Divide the length by √E, or the "
        "sum by E.",
        square=lambda x: x.square().sum(dim=-1, keepdim=True) / x.shape[-1] ** 2,
    ),
)


class LayerNorm(nn.Module):
    r"""Each token at mean 0 and variance 1, then :math:`g` times it plus :math:`b`. Source: Ba et al. 2016."""

    def __init__(
        self,
        embed_dim: int,
        eps: float = 1e-5,
        *,
        weight: Callable[[int], Tensor] = torch.ones,
        bias: Callable[[int], Tensor] = torch.zeros,
        middle: Callable[[Tensor], Tensor] = lambda x: x.mean(dim=-1, keepdim=True),
        spread: Callable[[Tensor, Tensor], Tensor] = lambda x, mean: (x - mean).square().mean(dim=-1, keepdim=True),
        size: Callable[[Tensor, float], Tensor] = lambda variance, eps: (variance + eps).sqrt(),
        enter: Callable[..., Tensor] = lambda x, weight, bias: x,
        finish: Callable[..., Tensor] = lambda normed, weight, bias: normed * weight + bias,
    ):
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight(embed_dim)), nn.Parameter(bias(embed_dim))
        self.eps, self.middle, self.spread, self.size = eps, middle, spread, size
        self.enter, self.finish = enter, finish

    def forward(self, x: Tensor) -> Tensor:
        """Tokens, (B, L, E)."""
        x = self.enter(x, self.weight, self.bias)
        mean = self.middle(x)
        return self.finish((x - mean) / self.size(self.spread(x, mean), self.eps), self.weight, self.bias)


def _call_layer_norm(answer: Callable[..., Any], x: Tensor, eps: float, **weights: Tensor) -> Any:
    """What it gives with the given weights, and what a fresh one gives."""
    output = run_module(answer, (x.shape[-1], eps), weights, x)
    return output, answer(x.shape[-1], eps).to(x)(x)


def _layer_norm_cases(draw: Draw) -> Iterator[Case]:
    for B, L, E, eps in ((1, 2, 3, 0.1), (2, 3, 5, 0.1), (5, 2, 7, 0.01)):
        inputs = {"x": draw.normal(B, L, E), "eps": eps, "weight": draw.normal(E), "bias": draw.normal(E)}
        yield Case(f"{B} sequence{'s' * (B > 1)} of {L} tokens, {E} features each", inputs)


_LAYER_NORM_FAULTS = (
    Fault(
        "weight and bias first",
        "Weight and bias act before the norm, which takes what they did away again. They come last: normed · weight + "
        "bias.",
        enter=lambda x, weight, bias: x * weight + bias,
        finish=lambda normed, weight, bias: normed,
    ),
    Fault(
        "mean left in",
        "The mean is not subtracted, neither above the fraction line nor in the variance: this is RMS norm.",
        middle=lambda x: torch.zeros_like(x),
    ),
    Fault(
        "mean square in place of the variance",
        "It divides by the root of the mean square. The variance measures from the mean: subtract it, then square.",
        spread=lambda x, mean: x.square().mean(dim=-1, keepdim=True),
    ),
    Fault(
        "E - 1",
        "The variance is divided by E − 1, as torch does by default. Here it is the plain mean: unbiased=False.",
        spread=lambda x, mean: x.var(dim=-1, keepdim=True),
    ),
    Fault(
        "over batch and tokens",
        "Mean and variance run over the batch and the tokens, for each feature: this is batch norm. Each token is "
        "normed by itself, over its features: dim=-1.",
        see=_AXIS,
        middle=lambda x: x.mean(dim=(0, 1), keepdim=True),
        spread=lambda x, mean: (x - mean).square().mean(dim=(0, 1), keepdim=True),
    ),
    Fault(
        "over the tokens",
        "Mean and variance run over the tokens (dim=-2). Each token is normed by itself: dim=-1.",
        see=_AXIS,
        middle=lambda x: x.mean(dim=-2, keepdim=True),
        spread=lambda x, mean: (x - mean).square().mean(dim=-2, keepdim=True),
    ),
    Fault(
        "over the batch",
        "Mean and variance run over the sequences (dim=0). Each token is normed by itself: dim=-1.",
        see=_AXIS,
        middle=lambda x: x.mean(dim=0, keepdim=True),
        spread=lambda x, mean: (x - mean).square().mean(dim=0, keepdim=True),
    ),
    Fault(
        "over tokens and features",
        "All tokens of a sequence share one mean and one variance. Each token has its own: dim=-1 and nothing else.",
        see=_AXIS,
        middle=lambda x: x.mean(dim=(-2, -1), keepdim=True),
        spread=lambda x, mean: (x - mean).square().mean(dim=(-2, -1), keepdim=True),
    ),
    Fault(
        "sum in place of the mean",
        "The squares are summed. The variance is their mean, so that the width of the token does not matter.",
        spread=lambda x, mean: (x - mean).square().sum(dim=-1, keepdim=True),
    ),
    Fault(
        "absolute values",
        "It divides by the mean distance from the mean. The root of the mean squared distance is wanted.",
        spread=lambda x, mean: (x - mean).abs().mean(dim=-1, keepdim=True),
        size=lambda spread, eps: spread + eps,
    ),
    Fault(
        "no root",
        "The root is missing: it divides by the variance, and not by the standard deviation.",
        size=lambda variance, eps: variance + eps,
    ),
    Fault(
        "no ε",
        "The given ε has no effect on these numbers: it is not added. It keeps a token of equal features from giving "
        "0/0, and stands under the root.",
        size=lambda variance, eps: variance.sqrt(),
    ),
    Fault(
        "ε outside the root",
        "The ε is added to the root. It belongs under the root, beside the variance.",
        size=lambda variance, eps: variance.sqrt() + eps,
    ),
    Fault(
        "weight missing",
        "The learned weight g is not used: multiply by it after the division.",
        finish=lambda normed, weight, bias: normed + bias,
    ),
    Fault(
        "bias missing",
        "The learned bias b is not used: add it at the end.",
        finish=lambda normed, weight, bias: normed * weight,
    ),
    Fault(
        "weight and bias exchanged",
        "Weight and bias are exchanged: the weight multiplies, the bias is added.",
        finish=lambda normed, weight, bias: normed * bias + weight,
    ),
    Fault(
        "bias first",
        "The bias is added before the weight multiplies. First multiply by g, then add b.",
        finish=lambda normed, weight, bias: (normed + bias) * weight,
    ),
    Fault(
        "weight starts at 0",
        "The weight starts at 0, so that a fresh norm returns its bias whatever comes in. It starts at 1.",
        weight=torch.zeros,
    ),
    Fault(
        "weight starts at random",
        "The weight starts at random. A fresh norm should only norm: the weight starts at 1.",
        weight=torch.randn,
    ),
    Fault(
        "bias starts at 1",
        "The bias starts at 1, so that a fresh norm gives tokens of mean 1. It starts at 0.",
        bias=torch.ones,
    ),
    Fault(
        "bias starts at random",
        "The bias starts at random. A fresh norm should only norm: the bias starts at 0.",
        bias=torch.randn,
    ),
)


class FeedForwardNetwork(nn.Module):
    r"""Two linear maps with GELU between them, :math:`\phi(x W_1 + b_1) W_2 + b_2`."""

    def __init__(
        self,
        embed_dim: int,
        hidden_dim: int,
        *,
        combine: Callable[..., Tensor] = lambda x, up, down, activation: down(activation(up(x))),
        activation: Callable[[Tensor], Tensor] = F.gelu,
    ):
        super().__init__()
        self.up, self.down = nn.Linear(embed_dim, hidden_dim), nn.Linear(hidden_dim, embed_dim)
        self.combine, self.activation = combine, activation

    def forward(self, x: Tensor) -> Tensor:
        """Tokens, (B, L, E)."""
        return self.combine(x, self.up, self.down, self.activation)


def _call_feed_forward(answer: Callable[..., Any], x: Tensor, **weights: Tensor) -> Any:
    return run_module(answer, (x.shape[-1], len(weights["up.bias"])), weights, x)


def _drawn(draw: Draw, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    return {name: draw.normal(*shape) for name, shape in shapes.items()}


def _linear(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _feed_forward_cases(draw: Draw) -> Iterator[Case]:
    for B, L, E, hidden in ((1, 1, 2, 3), (1, 2, 3, 5), (2, 3, 5, 11)):
        shapes = {"x": (B, L, E)} | _linear("up", E, hidden) | _linear("down", hidden, E)
        yield Case(f"tokens of {E} features, {hidden} hidden ones", _drawn(draw, shapes))


_FEED_FORWARD_FAULTS = (
    Fault(
        "no activation",
        "There is no activation between the two linear maps, so that together they are only one linear map.",
        combine=lambda x, up, down, activation: down(up(x)),
    ),
    Fault(
        "activation at the end",
        "The activation comes after the second linear map. It belongs between the two.",
        combine=lambda x, up, down, activation: activation(down(up(x))),
    ),
    Fault(
        "activation before the first map",
        "The activation comes before the first linear map. It belongs between the two.",
        combine=lambda x, up, down, activation: down(up(activation(x))),
    ),
    Fault(
        "activation twice",
        "There is an activation after the second linear map, too. There is one only, between the two maps.",
        combine=lambda x, up, down, activation: activation(down(activation(up(x)))),
    ),
    Fault(
        "input added",
        "The input is added to the result. The block does that; here the result of the second map alone is wanted.",
        see=_RESIDUAL,
        combine=lambda x, up, down, activation: x + down(activation(up(x))),
    ),
    Fault("ReLU", "The activation is ReLU; here it is GELU, F.gelu.", activation=F.relu),
    Fault("SiLU", "The activation is SiLU, x · sigmoid(x); here it is GELU, F.gelu.", activation=F.silu),
    Fault("tanh", "The activation is tanh; here it is GELU, F.gelu.", activation=torch.tanh),
    Fault("sigmoid", "The activation is the sigmoid; here it is GELU, F.gelu.", activation=torch.sigmoid),
    Fault(
        "approximate",
        "This is the approximation of GELU by a tanh. The exact one is wanted: F.gelu without an option.",
        activation=partial(F.gelu, approximate="tanh"),
    ),
)


# The ways to get one branch of a pre-norm block wrong, `x + f(norm(x))`, with a sentence for each.
_SLIPS: dict[str, tuple[str, str, Callable[..., Tensor]]] = {
    "residual missing": (
        "The residual is missing{}: what goes in has to be added to what the branch gives.",
        _RESIDUAL,
        lambda x, f, norm: f(norm(x)),
    ),
    "norm in the path": (
        "The norm overwrites what the residual carries{}: add x as it came in, not norm(x).",
        _BREAK,
        lambda x, f, norm: norm(x) + f(norm(x)),
    ),
    "post-norm": (
        "The norm comes after the sum{}: that is post-norm, norm(x + f(x)). Pre-norm is x + f(norm(x)).",
        _ORDERS,
        lambda x, f, norm: norm(x + f(x)),
    ),
    "norm after the branch": (
        "The norm acts on what the branch gives{}, x + norm(f(x)). Pre-norm acts on what goes in: x + f(norm(x)).",
        _ORDERS,
        lambda x, f, norm: x + norm(f(x)),
    ),
    "no norm": (
        "There is no norm{}: each branch of a pre-norm block begins with one.",
        _ORDERS,
        lambda x, f, norm: x + f(x),
    ),
}


def _branch(x: Tensor, f: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]) -> Tensor:
    return x + f(norm(x))


def pre_norm_block(
    x: Tensor,
    attention: Callable[[Tensor], Tensor],
    norm_1: Callable[[Tensor], Tensor],
    up: Callable[[Tensor], Tensor],
    down: Callable[[Tensor], Tensor],
    norm_2: Callable[[Tensor], Tensor],
    *,
    norms: Callable[..., tuple] = lambda norm_1, norm_2: (norm_1, norm_2),
    look: Callable[..., Tensor] = _branch,
    feed_forward: Callable[..., Tensor] = lambda x, up, down: down(F.gelu(up(x))),
    think: Callable[..., Tensor] = lambda seen, f, norm, x: _branch(seen, f, norm),
) -> Tensor:
    """x + attention(norm(x)), then x + feed_forward(norm(x)), (L, E)."""
    first, second = norms(norm_1, norm_2)
    seen = look(x, attention, first)
    return think(seen, lambda y: feed_forward(y, up, down), second, x)


def _call_block(answer: Callable[..., Any], x: Tensor, **weights: Tensor) -> Any:
    """Functions made of small matrices, so that what a student sees can be computed by hand."""

    def norm(weight: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x: F.layer_norm(x, weight.shape, weight)

    return answer(
        x,
        lambda x: weights["attention"] @ x,
        norm(weights["norm_1"]),
        lambda x: x @ weights["up"],
        lambda x: x @ weights["down"],
        norm(weights["norm_2"]),
    )


def _pre_norm_block_cases(draw: Draw) -> Iterator[Case]:
    for length, embed_dim, hidden_dim in ((2, 3, 1), (3, 5, 7), (7, 5, 11)):
        inputs = {
            "x": draw.normal(length, embed_dim),
            "attention": draw.normal(length, length).softmax(dim=-1).round(decimals=1),
            "norm_1": draw.normal(embed_dim),
            "up": draw.normal(embed_dim, hidden_dim),
            "down": draw.normal(hidden_dim, embed_dim),
            "norm_2": draw.normal(embed_dim),
        }
        yield Case(f"{length} tokens of {embed_dim} features, each function given by its weights", inputs)


class Block(nn.Module):
    """A pre-norm block: x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        norms: Callable[..., tuple] = lambda norm_1, norm_2: (norm_1, norm_2),
        look: Callable[..., Tensor] = _branch,
        think: Callable[..., Tensor] = lambda seen, f, norm, x: _branch(seen, f, norm),
    ):
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
        self.attention = MultiHeadAttention(embed_dim, num_heads)
        self.feed_forward = FeedForward(embed_dim, 4 * embed_dim)
        self.norms, self.look, self.think = norms, look, think

    def forward(self, x: Tensor) -> Tensor:
        """Tokens, (B, L, E)."""
        first, second = self.norms(self.attention_norm, self.feed_forward_norm)
        seen = self.look(x, lambda y: self.attention(y)[0], first)
        return self.think(seen, self.feed_forward, second, x)


def _call_block_class(answer: Callable[..., Any], x: Tensor, num_heads: int, **weights: Tensor) -> Any:
    # No input: the softmax cancels it, so that its gradient is nothing but rounding errors.
    weights["attention.k_proj.bias"] = torch.zeros_like(weights["attention.q_proj.bias"])
    return run_module(answer, (x.shape[-1], num_heads), weights, x)


def _block_cases(draw: Draw) -> Iterator[Case]:
    for B, L, E, H in ((1, 2, 2, 1), (2, 3, 6, 2)):
        shapes: dict[str, tuple[int, ...]] = {"attention_norm.weight": (E,), "attention_norm.bias": (E,)}
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes |= _linear(f"attention.{name}", E, E)
        del shapes["attention.k_proj.bias"]
        shapes |= {"feed_forward_norm.weight": (E,), "feed_forward_norm.bias": (E,)}
        shapes |= _linear("feed_forward.up", E, 4 * E) | _linear("feed_forward.down", 4 * E, E)
        inputs = {"x": draw.normal(B, L, E), "num_heads": H} | _drawn(draw, shapes)
        yield Case(f"{L} tokens of {E} features, {H} head{'s' * (H > 1)}", inputs)


def _slips() -> Iterator[Fault]:
    """Each slip in both branches, then in one of them."""

    def in_think(step: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda seen, f, norm, x: step(seen, f, norm)

    for name, (says, see, step) in _SLIPS.items():
        yield Fault(f"{name}, both", says.format(""), see=see, look=step, think=in_think(step))
    for name, (says, see, step) in _SLIPS.items():
        yield Fault(f"{name}, attention", says.format(" at attention"), see=see, look=step)
        yield Fault(f"{name}, feed-forward", says.format(" at the feed-forward"), see=see, think=in_think(step))


# What goes wrong alike in a block as a class and in one as a function.
_EITHER_BLOCK_FAULTS = (
    Fault(
        "one norm shared",
        "The first norm is used twice. The feed-forward has a norm of its own, with weights of its own.",
        norms=lambda norm_1, norm_2: (norm_1, norm_1),
    ),
    Fault(
        "block's input added",
        "The second sum adds the block's input. It has to add what came out of the first sum, or attention is lost.",
        see=_RESIDUAL,
        think=lambda seen, f, norm, x: x + f(norm(seen)),
    ),
    Fault(
        "block's input added again",
        "The second sum adds the block's input once more. What came out of the first sum holds it already.",
        see=_RESIDUAL,
        think=lambda seen, f, norm, x: seen + x + f(norm(seen)),
    ),
    Fault(
        "norm at the end",
        "The result is normed once more. A pre-norm block ends with a plain sum; a norm follows after the last block.",
        think=lambda seen, f, norm, x: norm(seen + f(norm(seen))),
    ),
    Fault(
        "branches side by side",
        "The feed-forward reads the block's input, side by side with attention. It reads what the first sum gave.",
        think=lambda seen, f, norm, x: seen + f(norm(x)),
    ),
    Fault(
        "no feed-forward",
        "The block ends after attention: the feed-forward is missing.",
        see=_FEED_FORWARD,
        think=lambda seen, f, norm, x: seen,
    ),
)

_BLOCK_FAULTS = (
    *_slips(),
    *_EITHER_BLOCK_FAULTS,
    Fault(
        "norms exchanged",
        "The two norms are exchanged: attention_norm belongs before attention, the other one before the feed-forward.",
        norms=lambda norm_1, norm_2: (norm_2, norm_1),
    ),
    Fault(
        "no attention",
        "The block begins with the feed-forward: attention is missing.",
        look=lambda x, f, norm: x,
    ),
)

_PRE_NORM_BLOCK_FAULTS = (
    *_slips(),
    *_EITHER_BLOCK_FAULTS,
    Fault(
        "as it was handed out",
        "Both slips of the hunt are still there: the norm overwrites what the first sum should carry, and the second "
        "sum adds the block's input in place of the first sum.",
        see=_BREAK,
        look=_SLIPS["norm in the path"][2],
        think=lambda seen, f, norm, x: x + f(norm(seen)),
    ),
    Fault(
        "norms exchanged",
        "The two norms are exchanged: norm_1 stands before attention, norm_2 before the feed-forward.",
        norms=lambda norm_1, norm_2: (norm_2, norm_1),
    ),
    Fault(
        "attention alone read",
        "The feed-forward reads what attention gave, without the residual. It reads what the first sum gave.",
        see=_RESIDUAL,
        think=lambda seen, f, norm, x: seen + f(norm(seen - x)),
    ),
    Fault(
        "no activation",
        "There is no activation between the two linear maps, so that together they are only one linear map.",
        see=_FEED_FORWARD,
        feed_forward=lambda x, up, down: down(up(x)),
    ),
    Fault(
        "activation at the end",
        "The activation comes after the second linear map. It belongs between the two.",
        see=_FEED_FORWARD,
        feed_forward=lambda x, up, down: F.gelu(down(up(x))),
    ),
    Fault(
        "activation before the first map",
        "The activation comes before the first linear map. It belongs between the two.",
        see=_FEED_FORWARD,
        feed_forward=lambda x, up, down: down(up(F.gelu(x))),
    ),
    Fault(
        "activation twice",
        "There is an activation after each linear map. Only the one between them is wanted; the branch ends linearly.",
        see=_FEED_FORWARD,
        feed_forward=lambda x, up, down: F.gelu(down(F.gelu(up(x)))),
    ),
    Fault(
        "ReLU",
        "The activation is ReLU, as in the paper of 2017. Here it is GELU.",
        see=_FEED_FORWARD,
        feed_forward=lambda x, up, down: down(F.relu(up(x))),
    ),
    Fault(
        "SiLU",
        "The activation is SiLU. Here it is GELU, which looks like it.",
        see=_FEED_FORWARD,
        feed_forward=lambda x, up, down: down(F.silu(up(x))),
    ),
    Fault(
        "approximate GELU",
        "The activation is GELU's approximation with tanh. Take F.gelu as it is.",
        see=_FEED_FORWARD,
        feed_forward=lambda x, up, down: down(F.gelu(up(x), approximate="tanh")),
    ),
)


class QuietBranch(nn.Module):
    """x + gain · f(norm(x)), with one learned gain for each feature, 0 at the start.

    Source: Touvron et al. 2021, arXiv:2103.17239, section 2, with the start at 0 of Bachlechner et al. 2020,
    arXiv:2003.04887.
    """

    def __init__(
        self,
        embed_dim: int,
        function: nn.Module,
        *,
        gain: Callable[..., Any] = lambda embed_dim: nn.Parameter(torch.zeros(embed_dim)),
        norm: Callable[[int], nn.Module] = nn.LayerNorm,
        keep: Callable[..., Any] = lambda function: function,
        combine: Callable[..., Tensor] = lambda x, gain, function, norm: x + gain * function(norm(x)),
    ):
        super().__init__()
        self.norm, self.gain, self.combine = norm(embed_dim), gain(embed_dim), combine
        self.function = keep(function)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens, (L, E)."""
        function = self.function[0] if isinstance(self.function, list) else self.function
        return self.combine(x, self.gain, function, self.norm)


#: Up to here a gain is meant to be nearly 0, as in LayerScale, which starts with 0.1 at most.
_SMALL = 0.1


def _call_quiet_branch(answer: Callable[..., Any], x: Tensor, function: Tensor, gain: Tensor) -> Any:
    """What a fresh branch gives, how many parameters it trains, and what it gives with other gains."""
    linear = nn.Linear(x.shape[-1], x.shape[-1], bias=False).to(x)
    linear.weight.data = function.detach().clone()
    branch = answer(x.shape[-1], linear).to(x)
    if isinstance(branch.gain, Tensor) and 0 < (start := branch.gain.abs().max().item()) <= _SMALL:
        raise WrongType(
            f"The gain starts at {start:.1g}, which is small and not 0, so the output at the start is only nearly x. "
            "Let it start at exactly 0. It is trained all the same: its gradient is a product with f(norm(x)), not 0."
        )
    first, own = branch(x), branch.gain
    sizes = {id(p): p.numel() for p in branch.parameters() if p.requires_grad}
    gains = sizes.pop(id(branch.gain), 0)
    if isinstance(branch.gain, Tensor):  # not so if it was made a plain number
        del branch.gain
        branch.gain = gain  # the input itself, so that gradients show whether the output depends on it
    last = branch(x)
    used = torch.is_grad_enabled() and not torch.equal(first, last)
    if used and isinstance(own, nn.Parameter) and own.requires_grad and not _reaches(first, own):
        raise WrongType(
            "As long as the gain is 0 it takes no part in the computation, so no gradient reaches it, and it stays 0 "
            "for ever. Compute x + gain · f(norm(x)) with a gain of 0, too: its gradient is not 0."
        )
    return first, f"{gains} trained gains", f"{sum(sizes.values())} other trained parameters", last


def _reaches(output: Tensor, parameter: nn.Parameter) -> bool:
    if not output.requires_grad:
        return False
    return torch.autograd.grad(output.sum(), parameter, allow_unused=True, retain_graph=True)[0] is not None


def _quiet_branch_cases(draw: Draw) -> Iterator[Case]:
    for length, embed_dim in ((2, 3), (3, 5), (4, 7)):
        x, function = draw.normal(length, embed_dim), draw.normal(embed_dim, embed_dim)
        name = f"{length} tokens of {embed_dim} features, a linear function without bias"
        yield Case(name, {"x": x, "function": function, "gain": draw.normal(embed_dim)})


class _OverTokens(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        mean, variance = x.mean(dim=-2, keepdim=True), x.var(dim=-2, unbiased=False, keepdim=True)
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


class _Hidden:
    """A norm that no module finds."""

    def __init__(self, embed_dim: int):
        self.norm = nn.LayerNorm(embed_dim)

    def __call__(self, x: Tensor) -> Tensor:
        return self.norm.to(x)(x)


_QUIET_BRANCH_FAULTS = (
    Fault(
        "the norm's weight",
        "The gain is the norm's own weight, a single parameter for both. The norm has a weight of its own, which "
        "starts at 1: make the gain an nn.Parameter beside it.",
        combine=lambda x, gain, function, norm: x + gain * function(F.layer_norm(x, x.shape[-1:], gain, norm.bias)),
    ),
    Fault(
        "gain not a parameter",
        "The gain is not trained: no optimiser finds a plain tensor or a buffer. Make it an nn.Parameter.",
        gain=lambda embed_dim: torch.zeros(embed_dim),
    ),
    Fault(
        "gain a plain number",
        "The gain is a plain number and stays what it is. Make it an nn.Parameter of E zeros.",
        gain=lambda embed_dim: 0.0,
    ),
    Fault(
        "one gain for all",
        "There is one gain for the whole branch. Each of the E features has a gain of its own.",
        gain=lambda embed_dim: nn.Parameter(torch.zeros(1)),
    ),
    Fault(
        "gain starts at 1",
        "The gain starts at 1, so that the branch acts at full size from the first step. At 0 it begins as the "
        "identity.",
        gain=lambda embed_dim: nn.Parameter(torch.ones(embed_dim)),
    ),
    Fault(
        "gain starts at random",
        "The gain starts at random, so that the branch acts from the first step. At 0 it begins as the identity.",
        gain=lambda embed_dim: nn.Parameter(torch.randn(embed_dim)),
    ),
    Fault(
        "branch without effect",
        "The branch has no effect, whatever the gains are: it is not added, or its own weights are set to 0 as well. "
        "The gain alone starts at 0; with both at 0 no gradient would ever flow.",
        combine=lambda x, gain, function, norm: x,
    ),
    Fault(
        "function not registered",
        "The function's own weights are not trained: kept in a list or a lambda, torch does not find them. "
        "Store the module itself as an attribute.",
        keep=lambda function: [function],
    ),
    Fault(
        "norm and function not registered",
        "Neither the norm nor the function is trained: kept in a list or a dict, torch does not find their parameters. "
        "Store each as an attribute, or use nn.ModuleList.",
        keep=lambda function: [function],
        norm=_Hidden,
    ),
    Fault(
        "residual missing",
        "The residual is missing: with a gain of 0 nothing at all gets through. Add x.",
        see=_RESIDUAL,
        combine=lambda x, gain, function, norm: gain * function(norm(x)),
    ),
    Fault(
        "gain on the sum",
        "The gain multiplies the whole sum, residual included, so that a gain of 0 removes x as well. "
        "It belongs to the branch alone.",
        see=_RESIDUAL,
        combine=lambda x, gain, function, norm: gain * (x + function(norm(x))),
    ),
    Fault(
        "gain on the path",
        "The gain multiplies x. The path stays as it is; what the branch gives is multiplied.",
        see=_RESIDUAL,
        combine=lambda x, gain, function, norm: gain * x + function(norm(x)),
    ),
    Fault(
        "gain not used",
        "The gain is there, but it does not multiply anything.",
        combine=lambda x, gain, function, norm: x + function(norm(x)),
    ),
    Fault(
        "gain added",
        "The gain is added to what the branch gives. It multiplies it.",
        combine=lambda x, gain, function, norm: x + gain + function(norm(x)),
    ),
    Fault(
        "1 + gain",
        "The branch is multiplied by 1 + gain, so that it acts from the first step. At the start it has to be 0.",
        combine=lambda x, gain, function, norm: x + (1 + gain) * function(norm(x)),
    ),
    Fault(
        "gain before the function",
        "The gain multiplies what goes into the function. It belongs after it, or a bias gets through at the start.",
        combine=lambda x, gain, function, norm: x + function(gain * norm(x)),
    ),
    Fault(
        "sum of the gains",
        "It uses one number made of all gains, as `gain @ …` does. Each feature has a gain of its own: gain * ….",
        combine=lambda x, gain, function, norm: x + (function(norm(x)) @ gain)[..., None],
    ),
    Fault(
        "norm in the path",
        "The norm overwrites what the residual carries: add x as it came in, not norm(x).",
        see=_BREAK,
        combine=lambda x, gain, function, norm: norm(x) + gain * function(norm(x)),
    ),
    Fault(
        "post-norm",
        "The norm comes after the sum, as in post-norm. Here it stands before the function: f(norm(x)).",
        see=_ORDERS,
        combine=lambda x, gain, function, norm: norm(x + gain * function(x)),
    ),
    Fault(
        "norm after the function",
        "The norm acts on what the function gives. It belongs before it: f(norm(x)).",
        see=_ORDERS,
        combine=lambda x, gain, function, norm: x + gain * norm(function(x)),
    ),
    Fault(
        "norm not used",
        "The norm is there, but the function reads x itself: f(norm(x)) is wanted.",
        see=_ORDERS,
        combine=lambda x, gain, function, norm: x + gain * function(x),
    ),
    Fault(
        "no norm",
        "There is no norm before the function: f(norm(x)) is wanted.",
        see=_ORDERS,
        norm=lambda embed_dim: nn.Identity(),
    ),
    Fault(
        "norm without weights",
        "The norm has nothing to learn. nn.LayerNorm brings a weight and a bias of its own, which are trained too.",
        see=_NORM,
        norm=partial(nn.LayerNorm, elementwise_affine=False),
    ),
    Fault(
        "norm without a bias",
        "The norm has no bias. nn.LayerNorm as torch has it learns a weight and a bias.",
        see=_NORM,
        norm=partial(nn.LayerNorm, bias=False),
    ),
    Fault(
        "RMS norm",
        "The norm is RMS norm, which leaves the mean in. Layer norm is wanted.",
        see=_NORM,
        norm=partial(nn.RMSNorm, eps=1e-5),
    ),
    Fault(
        "norm over the tokens",
        "The norm runs over the tokens. Each token is normed by itself: nn.LayerNorm(embed_dim).",
        see=_AXIS,
        norm=_OverTokens,
    ),
    Fault(
        "faded from one to the other",
        "It fades from x to the branch, (1 − g) x + g f(norm(x)). The whole of x stays; the branch is added to it.",
        see=_RESIDUAL,
        combine=lambda x, gain, function, norm: (1 - gain) * x + gain * function(norm(x)),
    ),
)

EXERCISES = (
    Exercise(
        LayerNorm,
        notebook="05",
        section=_NORM,
        level="middle",
        minutes=8,
        hints=(
            "Three steps: the mean of each token, the variance of each token, and the formula. The two parameters "
            "stand in `__init__`: `self.weight = nn.Parameter(torch.ones(embed_dim))`.",
            "`x.mean(dim=-1, keepdim=True)` has shape (B, L, 1), so that each token gets a mean of its own. The "
            "variance is the mean of `(x - mean) ** 2` over the same axis.",
        ),
        cases=_layer_norm_cases,
        faults=_LAYER_NORM_FAULTS,
        call=_call_layer_norm,
        returns=("output with the given weight and bias", "output of a fresh norm"),
    ),
    Exercise(
        FeedForwardNetwork,
        notebook="05",
        section=_FEED_FORWARD,
        level="easy",
        minutes=5,
        hints=(
            "Two layers, `nn.Linear(embed_dim, hidden_dim)` and `nn.Linear(hidden_dim, embed_dim)`, are set as "
            "attributes in `__init__` after `super().__init__()`.",
            "Read the formula from the inside: first `self.up`, then `F.gelu`, then `self.down`.",
        ),
        cases=_feed_forward_cases,
        faults=_FEED_FORWARD_FAULTS,
        call=_call_feed_forward,
    ),
    Exercise(
        Block,
        notebook="05",
        section=_ORDERS,
        level="middle",
        minutes=10,
        hints=(
            "`__init__` makes four parts and nothing else. `forward` has two lines, one for each branch, and both have "
            "the form x + f(norm(x)).",
            "`self.attention(y)` returns a pair, the outputs and the weights: take `[0]`. The second line starts from "
            "the x that the first line has made.",
        ),
        cases=_block_cases,
        faults=_BLOCK_FAULTS,
        call=_call_block_class,
    ),
    Exercise(
        root_mean_square_norm,
        notebook="05",
        section=_NORM,
        level="easy",
        minutes=4,
        hints=(
            "Start from `LayerNorm`. What has to go, and over which axis does the mean of the squares run?",
            "`x.square().mean(dim=-1, keepdim=True)` has shape (B, L, 1), so that each token is divided by a "
            "number of its own. The ε stands under the root.",
        ),
        cases=_root_mean_square_norm_cases,
        faults=_ROOT_MEAN_SQUARE_NORM_FAULTS,
    ),
    Exercise(
        pre_norm_block,
        notebook="05",
        section=_ORDERS,
        level="middle",
        minutes=6,
        hints=(
            "Make the silence test finer: silence `down` alone. A pre-norm block then has to return x + "
            "attention(norm_1(x)). What does this one return?",
            "Twice the same, x + f(norm(x)). The first x is the block's input; the second is what the first sum gave, "
            "both inside the norm and before the plus.",
        ),
        cases=_pre_norm_block_cases,
        faults=_PRE_NORM_BLOCK_FAULTS,
        call=_call_block,
    ),
    Exercise(
        QuietBranch,
        notebook="05",
        section=_QUIETER,
        level="hard",
        minutes=12,
        hints=(
            "An optimiser sees what `module.parameters()` finds: an `nn.Parameter` or a module, stored as an "
            "attribute after `super().__init__()`.",
            "Which $g$ makes $x + g \\odot f(\\text{norm}(x))$ equal to $x$, whatever $f$ is? *Quieter branches* "
            "does it with weights; here it is one vector.",
        ),
        cases=_quiet_branch_cases,
        faults=_QUIET_BRANCH_FAULTS,
        call=_call_quiet_branch,
        returns=(
            "output at the start",
            "trained gains",
            "other trained parameters",
            "output with the given gains",
        ),
    ),
)
