"""Exercises of notebook 08 in which the reader builds the language model that the notebook then trains.

The others of this notebook stand in character_model.py. More than 500 lines, since each exercise stands beside all the
mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sciformer.blocks import SquaredReLU, TransformerBlock
from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise, WrongType
from sciformer.check.modules import run_module
from sciformer.positions import LearnedPositions, SinusoidalPositions

_MODEL = "The model"
_WRITING = "Writing is a loop"
_TEMPERATURE = "Temperature"
_ROTARY = "Rung 1: rotary positions"
_SHIFT = "Rung 5: token shift"
_ONE_PASS = "One forward pass, all predictions"


class GPT(nn.Module):
    """Embedding, learned positions, causal blocks, a norm, and a read-out that is the embedding once more."""

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        *,
        positions: Callable[[int, int], nn.Module] = LearnedPositions,
        make: Callable[..., Callable[[int, int], nn.Module]] = lambda positions: positions,
        scale: Callable[[int], float] = lambda embed_dim: 1.0,
        passed_on: Callable[[dict], dict] = lambda block: block,
        causal: bool = True,
        start: Callable[..., Tensor] = lambda x, positions: positions(x),
        read: Callable[..., Any] = lambda blocks: list(blocks),
        hand_on: Callable[..., Tensor] = lambda x, new, first: new,
        each: Callable[..., Tensor] = lambda x, norm: x,
        finish: Callable[..., Tensor] = lambda x, norm, positions: norm(x),
        give: Callable[..., Tensor] = lambda logits: logits,
        **block: Any,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.positions = make(positions)(embed_dim, max_length)
        self.blocks = nn.ModuleList(
            TransformerBlock(embed_dim, num_heads, bias=False, **passed_on(block)) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(embed_dim, bias=False)
        self.read_out = nn.Linear(embed_dim, vocab_size, bias=False)
        self.read_out.weight = self.embedding.weight
        self._scale, self._causal = scale(embed_dim), causal
        self._steps = start, read, hand_on, each, finish, give

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, L, V) of the token after each."""
        start, read, hand_on, each, finish, give = self._steps
        x = first = start(self._scale * self.embedding(tokens), self.positions)  # (B, L, E)
        for block in read(self.blocks):
            x = each(hand_on(x, block(x, is_causal=self._causal)[0], first), self.norm)
        return give(self.read_out(finish(x, self.norm, self.positions)))


def _call_gpt(
    answer: Callable[..., Any],
    tokens: Tensor,
    embedding: Tensor,
    table: Tensor,
    blocks: Tensor,
    norm: Tensor,
    heads: int,
    squared: bool,
    sinusoidal: bool,
) -> Any:
    """The logits of a model whose weights are the inputs, each block's in one row."""
    (V, E), depth = embedding.shape, len(blocks)
    weights = {"embedding.weight": embedding, "positions.table": table, "norm.weight": norm}
    like = TransformerBlock(E, heads, bias=False).state_dict()
    for n, row in enumerate(blocks):
        parts = row.split([weight.numel() for weight in like.values()])
        for name, part in zip(like, parts, strict=True):
            weights[f"blocks.{n}.{name}"] = part.view(like[name].shape)
    options: dict[str, Any] = {"activation": SquaredReLU} if squared else {}
    if sinusoidal:
        options["positions"] = SinusoidalPositions
        del weights["positions.table"]  # nothing in it is learned

    def build(*sizes: int) -> Any:
        return answer(*sizes, **options)

    build.__name__ = "GPT"
    tied = {"read_out.weight": "embedding.weight"}
    return run_module(build, (V, len(table), E, heads, depth), weights, tokens, tied=tied)


def _gpt_cases(draw: Draw) -> Iterator[Case]:
    for name, batch, length, vocabulary, heads, width, depth in (
        ("1 text of 3 characters, 1 block", 1, 3, 4, 1, 2, 1),
        ("2 texts of 3 characters, 2 blocks", 2, 3, 5, 2, 4, 2),
        ("2 texts of 5 characters, 3 blocks, with activation=SquaredReLU", 2, 5, 7, 3, 6, 3),
        ("1 text of 3 characters, 1 block, with positions=SinusoidalPositions", 1, 3, 4, 1, 4, 1),
    ):
        numbers = sum(weight.numel() for weight in TransformerBlock(width, heads, bias=False).parameters())
        yield Case(
            name,
            {
                "tokens": draw.integers(0, vocabulary, batch, length),
                "embedding": draw.normal(vocabulary, width),
                "table": draw.normal(length + 1, width),
                "blocks": draw.normal(depth, numbers),
                "norm": draw.normal(width),
                "heads": heads,
                "squared": "SquaredReLU" in name,
                "sinusoidal": "SinusoidalPositions" in name,
            },
        )


#: A mistake that the model of notebook 18 allows, too.
POSITIONS_TWICE = Fault(
    "positions twice",
    "The positions are added twice. Calling `self.positions(x)` returns x with its positions already added.",
    see=_MODEL,
    start=lambda x, positions: positions(positions(x)),
)

#: Likewise.
EMBEDDING_TWICE = Fault(
    "embedding twice",
    "The embedding is added twice. Calling `self.positions(x)` returns x with its positions already added: it takes "
    "the place of x.",
    see=_MODEL,
    start=lambda x, positions: x + positions(x),
)

_GPT_FAULTS = (
    Fault(
        "always learned positions",
        "The argument `positions` has no effect: the model has LearnedPositions, whatever it is given. Call what it is "
        "given: positions(embed_dim, max_length).",
        see=_MODEL,
        make=lambda positions: LearnedPositions,
    ),
    Fault(
        "no positions",
        "The positions are not added, so that attention cannot tell where a character stands.",
        see=_MODEL,
        start=lambda x, positions: x,
    ),
    Fault(
        "positions added last",
        "The positions are added behind the blocks, where attention can no longer see them. They belong to the "
        "embedded tokens.",
        see=_MODEL,
        start=lambda x, positions: x,
        finish=lambda x, norm, positions: norm(positions(x)),
    ),
    POSITIONS_TWICE,
    EMBEDDING_TWICE,
    Fault(
        "not causal",
        "The blocks are not causal: a character sees those that come after it, so that the answer stands in what is "
        "read. Call each block with is_causal=True.",
        see=_ONE_PASS,
        causal=False,
    ),
    Fault(
        "each block reads the embedding",
        "Every block is given the embedded tokens, and only the output of the last one is used. Hand the output of "
        "each block to the next.",
        see=_MODEL,
        hand_on=lambda x, new, first: new,
        read=lambda blocks: [blocks[-1]],
    ),
    Fault(
        "first block only",
        "Only the first block is used. Go through all of them.",
        see=_MODEL,
        read=lambda blocks: [blocks[0]],
    ),
    Fault(
        "last block first",
        "The blocks are used in the wrong order: the first of the list comes first.",
        see=_MODEL,
        read=lambda blocks: list(blocks)[::-1],
    ),
    Fault(
        "residual twice",
        "The block's input is added to its output. A block of notebook 05 has its residual connections inside.",
        see=_MODEL,
        hand_on=lambda x, new, first: x + new,
    ),
    Fault(
        "no last norm",
        "The last norm is missing: in pre-norm blocks nothing has normalised the residual stream itself.",
        see=_MODEL,
        finish=lambda x, norm, positions: x,
    ),
    Fault(
        "norm behind each block",
        "The last norm is used behind every block. It comes once, behind the last.",
        see=_MODEL,
        each=lambda x, norm: norm(x),
        finish=lambda x, norm, positions: x,
    ),
    Fault(
        "options not passed on",
        "The options in `**block` do not reach the blocks. Hand them to every TransformerBlock.",
        see=_MODEL,
        passed_on=lambda block: {},
    ),
    Fault(
        "scaled by √E",
        "The embedded tokens are multiplied by √E, as in the first transformer of 2017. GPT-2 does not scale them.",
        see=_MODEL,
        scale=math.sqrt,
    ),
    Fault(
        "probabilities",
        "It returns probabilities. The logits themselves are wanted: the loss and the temperature need them.",
        see=_MODEL,
        give=lambda logits: logits.softmax(dim=-1),
    ),
    Fault(
        "last position only",
        "It returns the logits of the last position only. Each position predicts its next character.",
        see=_ONE_PASS,
        give=lambda logits: logits[:, -1:],
    ),
)


def write_on(
    model: Callable[[Tensor], Tensor],
    tokens: Tensor,
    count: int,
    temperature: float,
    draw: Callable[[Tensor], Tensor],
    longest: int,
    *,
    window: Callable[..., Tensor] = lambda tokens, prompt, longest: tokens[:, -longest:],
    choose: Callable[..., Tensor] = lambda logits: logits[:, -1],
    heat: Callable[..., Tensor] = lambda logits, temperature: logits / temperature,
    normalize: Callable[..., Tensor] = lambda logits, temperature: logits.softmax(dim=-1),
    pick: Callable[..., Tensor] = lambda p, draw: draw(p),
    append: Callable[..., Tensor] = lambda tokens, new, longest: torch.cat([tokens, new], dim=1),
    steps: Callable[[int], int] = lambda count: count,
    result: Callable[..., Tensor] = lambda tokens, prompt: tokens,
) -> Tensor:
    """The prompt and ``count`` more tokens, (B, L + count)."""
    prompt = tokens
    for _ in range(steps(count)):
        logits = choose(model(window(tokens, prompt, longest)))  # (B, V)
        p = normalize(heat(logits, temperature), temperature)
        tokens = append(tokens, pick(p, draw)[:, None], longest)
    return result(tokens, prompt)


def _call_write_on(
    answer: Callable[..., Any], table: Tensor, tokens: Tensor, count: int, temperature: float, longest: int
) -> tuple[Any, Tensor]:
    """What is written by a model that adds up the rows of a table, and the probabilities that were drawn from."""
    drawn_from: list[Tensor] = []

    def model(tokens: Tensor) -> Tensor:
        L = tokens.shape[1]
        age = torch.arange(L, device=table.device)[:, None] - torch.arange(L, device=table.device)  # (L, L)
        return torch.where(age >= 0, 0.5 ** age.clamp(min=0), 0.0).to(table) @ table[tokens]  # (B, L, V)

    def draw(p: Tensor) -> Tensor:
        """The likeliest, then the second, the likeliest again, so that a test can repeat it."""
        if not isinstance(p, Tensor) or p.dim() != 2:
            raise WrongType("draw wants the probabilities of one position for each text, a tensor of (B, V).")
        drawn_from.append(p)
        return p.sort(dim=-1, descending=True).indices[:, (len(drawn_from) - 1) % 2]

    written = answer(model, tokens, count, temperature, draw, longest)
    return written, torch.stack(drawn_from) if drawn_from else table.new_zeros(0)


def _write_on_cases(draw: Draw) -> Iterator[Case]:
    for name, batch, length, vocabulary, count, temperature, longest in (
        ("a prompt of 2 characters, 1 more", 1, 2, 3, 1, 2.0, 8),
        ("a prompt of 2 characters, 3 more, temperature 0.5", 1, 2, 4, 3, 0.5, 8),
        ("2 prompts of 3 characters, 5 more, a window of 4", 2, 3, 5, 5, 1.5, 4),
        ("2 prompts of 6 characters, 2 more, a window of 4", 2, 6, 5, 2, 0.8, 4),
    ):
        inputs = {"table": draw.normal(vocabulary, vocabulary), "tokens": draw.integers(0, vocabulary, batch, length)}
        yield Case(name, inputs | {"count": count, "temperature": temperature, "longest": longest})


_WRITE_ON_FAULTS = (
    Fault(
        "prompt cut once",
        "The prompt is cut to `longest` before the loop, and the text then grows beyond it. Cut what the model reads "
        "at every step.",
        window=lambda tokens, prompt, longest: tokens[:, max(0, prompt.shape[1] - longest) :],
    ),
    Fault(
        "window from the start",
        "The window starts with the prompt and moves on by one character a step, so it need not reach the end of the "
        "text. It should hold the last `longest` characters.",
        window=lambda tokens, prompt, longest: tokens[:, (n := tokens.shape[1] - prompt.shape[1]) : n + longest],
    ),
    Fault(
        "probabilities to the power 1/T",
        "The probabilities are raised to the power 1/T after the softmax, and no longer sum to 1. Divide the logits by "
        "T before it, or divide the powers by their sum.",
        see=_TEMPERATURE,
        heat=lambda logits, temperature: logits,
        normalize=lambda logits, temperature: logits.softmax(dim=-1) ** (1 / temperature),
    ),
    Fault(
        "temperature ignored",
        "The temperature has no effect. Divide the logits by it, before the softmax.",
        see=_TEMPERATURE,
        heat=lambda logits, temperature: logits,
    ),
    Fault(
        "multiplied by the temperature",
        "The logits are multiplied by the temperature, so that a low one makes the text wilder. Divide by it.",
        see=_TEMPERATURE,
        heat=lambda logits, temperature: logits * temperature,
    ),
    Fault(
        "temperature after the softmax",
        "The probabilities are divided by the temperature, so that they no longer sum to 1. Divide the logits.",
        see=_TEMPERATURE,
        heat=lambda logits, temperature: logits,
        normalize=lambda logits, temperature: logits.softmax(dim=-1) / temperature,
    ),
    Fault(
        "no softmax",
        "The logits go to `draw`, which wants probabilities. Take the softmax first.",
        see=_WRITING,
        normalize=lambda logits, temperature: logits,
    ),
    Fault(
        "softmax over the texts",
        "The softmax runs over the texts of the batch. It belongs on the vocabulary, the last axis.",
        see=_WRITING,
        normalize=lambda logits, temperature: logits.softmax(dim=0),
    ),
    Fault(
        "logits of the first position",
        "The logits of the first position are used: they are about the second character of the prompt. The last "
        "position speaks about what comes next.",
        see=_WRITING,
        choose=lambda logits: logits[:, 0],
    ),
    Fault(
        "greedy",
        "The likeliest character is taken every time and `draw` is never called.",
        see=_WRITING,
        pick=lambda p, draw: p.argmax(dim=-1),
    ),
    Fault(
        "what was written is not read",
        "The model reads the prompt again and again, and never what has been written since.",
        see=_WRITING,
        window=lambda tokens, prompt, longest: prompt[:, -longest:],
    ),
    Fault(
        "last character only",
        "The model is given the last character only. It can look at up to `longest` of them.",
        see=_WRITING,
        window=lambda tokens, prompt, longest: tokens[:, -1:],
    ),
    Fault(
        "beginning of the text",
        "When the text is longer than `longest`, the model reads its beginning. It should read its end.",
        see=_WRITING,
        window=lambda tokens, prompt, longest: tokens[:, :longest],
    ),
    Fault(
        "whole text",
        "The model is given the whole text, also where that is longer than `longest`. Cut off the beginning.",
        see=_WRITING,
        window=lambda tokens, prompt, longest: tokens,
    ),
    Fault(
        "put in front",
        "The new character is put in front of the text. It comes behind.",
        see=_WRITING,
        append=lambda tokens, new, longest: torch.cat([new, tokens], dim=1),
    ),
    Fault(
        "text cut",
        "The text itself is cut to its last `longest` characters, so that its beginning is missing in the result. Cut "
        "only what the model reads: model(tokens[:, -longest:]).",
        see=_WRITING,
        append=lambda tokens, new, longest: torch.cat([tokens[:, -longest:], new], dim=1),
    ),
    Fault(
        "text cut at the end",
        "The result is cut to its last `longest` characters. Cut only what the model reads, and return all of the "
        "text.",
        see=_WRITING,
        append=lambda tokens, new, longest: torch.cat([tokens, new], dim=1)[:, -longest:],
    ),
    Fault(
        "prompt left out",
        "Only what is new is returned. The prompt comes first.",
        see=_WRITING,
        result=lambda tokens, prompt: tokens[:, prompt.shape[1] :],
    ),
    Fault(
        "one character too many",
        "It writes one character too many: `count` are wanted.",
        see=_WRITING,
        steps=lambda count: count + 1,
    ),
)


def turn(
    x: Tensor,
    offset: int,
    *,
    places: Callable[..., Tensor] = lambda L, offset: offset + torch.arange(L),
    exponent: Callable[[int], Tensor] = lambda D: torch.arange(0, D, 2) / D,
    speed: Callable[[Tensor], Tensor] = lambda exponent: 10_000.0**-exponent,
    angles: Callable[..., Tensor] = lambda place, speed, offset: place * speed,
    split: Callable[..., tuple[Tensor, Tensor]] = lambda x: x.unflatten(-1, (2, -1)).unbind(-2),
    rotate: Callable[..., tuple[Tensor, Tensor]] = lambda a, b, cos, sin: (a * cos - b * sin, a * sin + b * cos),
    join: Callable[..., Tensor] = lambda a, b: torch.cat([a, b], dim=-1),
    finish: Callable[..., Tensor] = lambda turned, x: turned,
) -> Tensor:
    """Every vector of x (B, H, L, D), turned by its position: pair m of features is feature m and feature m + D/2."""
    L, D = x.shape[-2:]
    angle = angles(places(L, offset)[:, None].double(), speed(exponent(D).double()), offset).to(x)  # (L, D/2)
    return finish(join(*rotate(*split(x), angle.cos(), angle.sin())), x)


def _turn_cases(draw: Draw) -> Iterator[Case]:
    for name, shape, offset in (
        ("2 tokens of 2 features from position 0", (1, 1, 2, 2), 0),
        ("2 tokens of 4 features from position 0", (1, 1, 2, 4), 0),
        ("3 tokens of 6 features from position 5, 2 heads", (1, 2, 3, 6), 5),
        ("2 texts, 3 heads, 5 tokens of 8 features from position 2", (2, 3, 5, 8), 2),
        ("2 texts, 3 heads, 5 tokens of 8 features from position 7", (2, 3, 5, 8), 7),
    ):
        yield Case(name, {"x": draw.normal(*shape), "offset": offset})


_TURN_FAULTS = (
    Fault(
        "offset ignored",
        "The first token always gets position 0. With a cache it stands at `offset`.",
        see=_ROTARY,
        places=lambda L, offset: torch.arange(L),
    ),
    Fault(
        "offset on the angles",
        "The offset is added to the angles, so that every pair turns by as much more, whatever its speed. Add it to "
        "the positions, which the speeds then multiply.",
        see=_ROTARY,
        places=lambda L, offset: torch.arange(L),
        angles=lambda place, speed, offset: place * speed + offset,
    ),
    Fault(
        "positions from 1",
        "The positions are one too high: the first token stands at `offset`.",
        see=_ROTARY,
        places=lambda L, offset: offset + 1 + torch.arange(L),
    ),
    Fault(
        "the other way round",
        "The vectors are turned the other way. The minus belongs to the first feature of a pair: a cos − b sin.",
        see=_ROTARY,
        rotate=lambda a, b, cos, sin: (a * cos + b * sin, b * cos - a * sin),
    ),
    Fault(
        "no minus",
        "The minus is missing, so that this is no rotation and changes the lengths of vectors.",
        see=_ROTARY,
        rotate=lambda a, b, cos, sin: (a * cos + b * sin, a * sin + b * cos),
    ),
    Fault(
        "sine and cosine exchanged",
        "Sine and cosine are exchanged. At position 0 a vector has to stay as it is.",
        see=_ROTARY,
        rotate=lambda a, b, cos, sin: (a * sin - b * cos, a * cos + b * sin),
    ),
    Fault(
        "first half turned already",
        "The new second feature is computed from the new first one: a is overwritten before b' = a sin + b cos reads "
        "it. Both take the old a and b.",
        see=_ROTARY,
        rotate=lambda a, b, cos, sin: (a * cos - b * sin, (a * cos - b * sin) * sin + b * cos),
    ),
    Fault(
        "second half turned already",
        "The new first feature is computed from the new second one: b is overwritten before a' = a cos − b sin reads "
        "it. Both take the old a and b.",
        see=_ROTARY,
        rotate=lambda a, b, cos, sin: (a * cos - (a * sin + b * cos) * sin, a * sin + b * cos),
    ),
    Fault(
        "second half not turned",
        "The second feature of each pair stays as it is. Both turn.",
        see=_ROTARY,
        rotate=lambda a, b, cos, sin: (a * cos - b * sin, b),
    ),
    Fault(
        "one speed for all",
        "Every pair turns at the speed 1. Each pair has a speed of its own.",
        see=_ROTARY,
        exponent=lambda D: torch.zeros(D // 2),
    ),
    Fault(
        "speeds too close together",
        "The exponent is m/D. It is 2m/D, so that the slowest pair comes close to 1/10000.",
        see=_ROTARY,
        exponent=lambda D: torch.arange(D // 2) / D,
    ),
    Fault(
        "speeds rise",
        "The speeds rise from pair to pair. The exponent has a minus: the first pair is the fastest.",
        see=_ROTARY,
        speed=lambda exponent: 10_000.0**exponent,
    ),
    Fault(
        "neighbours paired",
        "Feature 2m is paired with feature 2m + 1, as in the paper. Here feature m is paired with feature m + D/2.",
        see=_ROTARY,
        split=lambda x: (x[..., ::2], x[..., 1::2]),
        join=lambda a, b: torch.stack([a, b], dim=-1).flatten(-2),
    ),
    Fault(
        "neighbours paired, halves joined",
        "Feature 2m is paired with feature 2m + 1, and the turned features stand in two halves. Feature m is paired "
        "with feature m + D/2: split x into halves as well.",
        see=_ROTARY,
        split=lambda x: (x[..., ::2], x[..., 1::2]),
    ),
    Fault(
        "interleaved",
        "The turned features are put together in another order than they had. First all of the first half, then all "
        "of the second.",
        see=_ROTARY,
        join=lambda a, b: torch.stack([a, b], dim=-1).flatten(-2),
    ),
    Fault(
        "added to the vector",
        "The turned vector is added to the one that was there. It replaces it.",
        see=_ROTARY,
        finish=lambda turned, x: x + turned,
    ),
)


def mix_previous(
    x: Tensor,
    weight: Tensor,
    *,
    before: Callable[[Tensor], Tensor] = lambda x: F.pad(x, (0, 0, 1, 0))[:, :-1],
    combine: Callable[..., Tensor] = lambda x, weight, before: x + weight * before,
) -> Tensor:
    """To each token of x (B, L, E) the one before it, each feature times its weight (E,)."""
    return combine(x, weight, before(x))


def _mix_previous_cases(draw: Draw) -> Iterator[Case]:
    for batch, length, width in ((1, 2, 1), (1, 3, 2), (2, 5, 3), (3, 1, 2)):
        name = f"{batch} text{'s' * (batch > 1)} of {length} token{'s' * (length > 1)}, {width} features"
        yield Case(name, {"x": draw.normal(batch, length, width), "weight": draw.normal(width)})


def _mixed_in_turn(x: Tensor, weight: Tensor, before: Tensor) -> Tensor:
    mixed = [x[:, 0]]
    for token in x.unbind(dim=1)[1:]:
        mixed.append(token + weight * mixed[-1])
    return torch.stack(mixed, dim=1)


_MIX_PREVIOUS_FAULTS = (
    Fault(
        "first token lost",
        "The first token of each text is 0. Before it there is nothing, so nothing is added to it: it stays as it is.",
        see=_SHIFT,
        combine=lambda x, weight, before: F.pad((x + weight * before)[:, 1:], (0, 0, 1, 0)),
    ),
    Fault(
        "mixed already",
        "The token before is taken from the result, where it has been mixed already, so that each token carries "
        "something of all before it. Take it from x.",
        see=_SHIFT,
        combine=_mixed_in_turn,
    ),
    Fault(
        "the next token",
        "The token after it is mixed in. That is what the model should predict: this leaks the future.",
        see=_SHIFT,
        before=lambda x: F.pad(x, (0, 0, 0, 1))[:, 1:],
    ),
    Fault(
        "around the end",
        "The first token is mixed with the last one, as `roll` does, so that the future leaks. Before the first there "
        "is nothing: 0.",
        see=_SHIFT,
        before=lambda x: x.roll(1, dims=1),
    ),
    Fault(
        "first token repeated",
        "The first token is mixed with itself. Before it there is nothing: 0.",
        see=_SHIFT,
        before=lambda x: torch.cat([x[:, :1], x[:, :-1]], dim=1),
    ),
    Fault(
        "two tokens back",
        "The token two before it is mixed in. It is the one just before.",
        see=_SHIFT,
        before=lambda x: F.pad(x, (0, 0, 2, 0))[:, : x.shape[1]],
    ),
    Fault(
        "the token itself",
        "Each token is mixed with itself. Shift first.",
        see=_SHIFT,
        before=lambda x: x,
    ),
    Fault(
        "along the features",
        "It shifts the features of a token, not the tokens. The tokens are axis 1.",
        see=_SHIFT,
        before=lambda x: F.pad(x, (1, 0))[..., :-1],
    ),
    Fault(
        "along the texts",
        "It mixes each text with the one before it in the batch. The tokens are axis 1.",
        see=_SHIFT,
        before=lambda x: F.pad(x, (0, 0, 0, 0, 1, 0))[:-1],
    ),
    Fault(
        "a share taken away",
        "The token itself is multiplied by 1 − weight. Here it stays whole, and the earlier one is added.",
        see=_SHIFT,
        combine=lambda x, weight, before: (1 - weight) * x + weight * before,
    ),
    Fault(
        "weight on the token",
        "The weight multiplies the token itself. It belongs to the one before.",
        see=_SHIFT,
        combine=lambda x, weight, before: weight * x + before,
    ),
    Fault(
        "the token left out",
        "Only the token before is left. It should be added to the token itself.",
        see=_SHIFT,
        combine=lambda x, weight, before: weight * before,
    ),
    Fault(
        "first text cleared",
        "It clears the first text of the batch, [0], and not the first token of every text, [:, 0]. So the last token "
        "of each other text gets round to its first.",
        before=lambda x: torch.cat([torch.zeros_like(x[:1]), x[1:].roll(1, dims=1)]),
    ),
    Fault(
        "the text before",
        "All texts of the batch stand in one long row, so the first token of a text gets the last one of the text "
        "before it. Nothing stands before it: 0.",
        before=lambda x: torch.cat([torch.zeros_like(x[0, :1]), x.flatten(0, 1)[:-1]]).view_as(x),
    ),
)

EXERCISES = (
    Exercise(
        GPT,
        notebook="08",
        section=_MODEL,
        level="middle",
        minutes=12,
        hints=(
            "Five attributes, in the order of the drawing: `self.embedding`, `self.positions`, `self.blocks` (an "
            "`nn.ModuleList`), `self.norm`, `self.read_out`. The names matter: they are those of the package's state "
            "dict.",
            "A block returns two things, the tokens and the attention weights: `x, _ = block(x, is_causal=True)`. And "
            "`self.read_out.weight = self.embedding.weight` makes the two tables one.",
        ),
        cases=_gpt_cases,
        faults=_GPT_FAULTS,
        call=_call_gpt,
        returns=("logits",),
        seconds=10.0,
    ),
    Exercise(
        write_on,
        notebook="08",
        section=_WRITING,
        level="middle",
        minutes=10,
        hints=(
            "Inside the loop: what may the model read, which of its positions speaks about the next character, and "
            "where does that character go?",
            "`tokens[:, -longest:]` is the end of the text, `[:, -1]` are the logits after its last character. "
            "`draw(p)` is (B,), and `torch.cat` wants (B, 1).",
        ),
        cases=_write_on_cases,
        faults=_WRITE_ON_FAULTS,
        call=_call_write_on,
        returns=("text", "probabilities drawn from"),
        differentiable=False,
    ),
    Exercise(
        turn,
        notebook="08",
        section=_ROTARY,
        level="middle",
        minutes=10,
        hints=(
            "First the angles, (L, D/2): a column of positions times a row of speeds. The speeds are "
            "`10_000.0 ** (-torch.arange(0, D, 2) / D)`.",
            "`a, b = x.chunk(2, dim=-1)` are the two features of all pairs. Turn them by the formula, and join the "
            "halves with `torch.cat`.",
        ),
        cases=_turn_cases,
        faults=_TURN_FAULTS,
    ),
    Exercise(
        mix_previous,
        notebook="08",
        section=_SHIFT,
        level="easy",
        minutes=4,
        hints=(
            "Make a tensor of the shape of x in which position t holds the token of position t − 1, and position 0 "
            "holds zeros.",
            "`F.pad(x, (0, 0, 1, 0))` adds one row of zeros in front: the pairs of numbers go from the last axis to "
            "the first.",
        ),
        cases=_mix_previous_cases,
        faults=_MIX_PREVIOUS_FAULTS,
    ),
)
