"""Exercises of notebook 18: heads that copy.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sciformer.attention import MultiHeadAttention
from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise, WrongType, pair
from sciformer.check.modules import run_module
from sciformer.exercises.gpt import EMBEDDING_TWICE, POSITIONS_TWICE
from sciformer.positions import LearnedPositions
from sciformer.scores import DotProductScore, ScoreRecipe

_MODEL = "The model"
_PREVIOUS = "A head that looks one token back"
_INDUCTION = "A head that looks at the token after the earlier copy"
_ABLATION = "Does the trained model copy by these heads?"


class AttentionOnly(nn.Module):
    """Embedding, learned positions, causal attention layers x + attention(norm(x)), a norm and a read-out."""

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        score: ScoreRecipe = DotProductScore,
        *,
        recipe: Callable[[ScoreRecipe], ScoreRecipe] = lambda score: score,
        causal: bool = True,
        start: Callable[..., Tensor] = lambda x, positions: positions(x),
        read: Callable[..., list] = lambda layers: layers,
        before: Callable[..., Tensor] = lambda x, norm, first: norm(x),
        add: Callable[..., Tensor] = lambda x, y, norm: x + y,
        finish: Callable[..., Tensor] = lambda x, norm, positions: norm(x),
        give: Callable[..., Tensor] = lambda logits: logits,
        keep: Callable[[list], list] = lambda maps: maps,
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.positions = LearnedPositions(embed_dim, max_length)
        self.norms = nn.ModuleList(nn.LayerNorm(embed_dim) for _ in range(num_layers))
        self.attentions = nn.ModuleList(
            MultiHeadAttention(embed_dim, num_heads, score=recipe(score)) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.read_out = nn.Linear(embed_dim, vocab_size)
        self._causal, self._steps = causal, (start, read, before, add, finish, give, keep)

    def forward(self, tokens: Tensor, need_weights: bool = False) -> tuple[Tensor, list]:
        """Logits (B, L, V) of the token after each, and the weights of every layer."""
        start, read, before, add, finish, give, keep = self._steps
        x = first = start(self.embedding(tokens), self.positions)  # (B, L, E)
        maps = []
        for norm, attention in read(list(zip(self.norms, self.attentions, strict=True))):
            y, weights = attention(before(x, norm, first), is_causal=self._causal, need_weights=need_weights)
            x = add(x, y, norm)
            maps.append(weights)
        return give(self.read_out(finish(x, self.norm, self.positions))), keep(maps)


def _shapes_of_a_layer(embed_dim: int) -> dict[str, tuple[int, ...]]:
    """Of the parameters of one norm and one attention, but for the keys' bias, which the softmax cancels."""
    E = embed_dim
    shapes: dict[str, tuple[int, ...]] = {"norms.{}.weight": (E,), "norms.{}.bias": (E,)}
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        shapes |= {f"attentions.{{}}.{name}.weight": (E, E), f"attentions.{{}}.{name}.bias": (E,)}
    del shapes["attentions.{}.k_proj.bias"]
    return shapes


def _call_attention_only(
    answer: Callable[..., Any],
    tokens: Tensor,
    embedding: Tensor,
    table: Tensor,
    layers: Tensor,
    norm: Tensor,
    read_out: Tensor,
    heads: int,
    scaled: bool,
) -> tuple[Any, Any]:
    """The logits and the weights of a model whose parameters are the inputs, each layer's in one row."""
    (V, E), shapes = embedding.shape, _shapes_of_a_layer(embedding.shape[1])
    weights = {"embedding.weight": embedding, "positions.table": table, "norm.weight": norm[0], "norm.bias": norm[1]}
    weights |= {"read_out.weight": read_out[:, :-1], "read_out.bias": read_out[:, -1]}
    for n, row in enumerate(layers):
        parts = row.split([torch.Size(shape).numel() for shape in shapes.values()])
        weights |= {name.format(n): part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        weights[f"attentions.{n}.k_proj.bias"] = table.new_zeros(E)
    sizes = (V, len(table), E, heads, len(layers))

    def build(*sizes: int) -> Any:
        return answer(*sizes, score=partial(DotProductScore, scale=2.0)) if scaled else answer(*sizes)

    build.__name__ = "AttentionOnly"
    result = run_module(build, sizes, weights, tokens, need_weights=True)
    logits, maps = pair(result, "the logits", "a list with the weights of every layer")
    if not isinstance(maps, Sequence) or not all(isinstance(one, Tensor) for one in maps) or not len(maps):
        raise WrongType("With need_weights=True the second result is a list with one tensor for each layer.")
    return logits, torch.stack(list(maps))


def _attention_only_cases(draw: Draw) -> Iterator[Case]:
    for name, batch, length, vocabulary, heads, width, depth, scaled in (
        ("1 sequence of 3 tokens, 1 layer", 1, 3, 4, 1, 2, 1, False),
        ("2 sequences of 3 tokens, 2 layers", 2, 3, 5, 2, 4, 2, False),
        ("3 sequences of 5 tokens, 2 layers, with a score of scale 2", 3, 5, 7, 3, 6, 2, True),
    ):
        numbers = sum(torch.Size(shape).numel() for shape in _shapes_of_a_layer(width).values())
        yield Case(
            name,
            {
                "tokens": draw.integers(0, vocabulary, batch, length),
                "embedding": draw.normal(vocabulary, width),
                "table": draw.normal(length + 1, width),
                "layers": draw.normal(depth, numbers),
                "norm": draw.normal(2, width),
                "read_out": draw.normal(vocabulary, width + 1),
                "heads": heads,
                "scaled": scaled,
            },
        )


_ATTENTION_ONLY_FAULTS = (
    Fault(
        "no positions",
        "The positions are not added, so that no head can tell which token stands just before.",
        see=_MODEL,
        start=lambda x, positions: x,
    ),
    Fault(
        "positions added last",
        "The positions are added behind the layers, where attention can no longer see them. They belong to the "
        "embedded tokens.",
        see=_MODEL,
        start=lambda x, positions: x,
        finish=lambda x, norm, positions: norm(positions(x)),
    ),
    POSITIONS_TWICE,
    EMBEDDING_TWICE,
    Fault(
        "not causal",
        "The layers are not causal: a token sees those that come after it. Call attention with is_causal=True.",
        see=_MODEL,
        causal=False,
    ),
    Fault(
        "no residual",
        "What a layer gives replaces x. It should be added to it: x = x + y.",
        see=_MODEL,
        add=lambda x, y, norm: y,
    ),
    Fault(
        "residual of the normed",
        "The output of attention is added to the normed tokens. It should be added to x, as it was before the norm.",
        see=_MODEL,
        add=lambda x, y, norm: norm(x) + y,
    ),
    Fault(
        "no norm in front",
        "Attention reads x itself. It has to read norm(x).",
        see=_MODEL,
        before=lambda x, norm, first: x,
    ),
    Fault(
        "norm behind",
        "The norm comes behind the sum. It belongs in front of attention: x + attention(norm(x)).",
        see=_MODEL,
        before=lambda x, norm, first: x,
        add=lambda x, y, norm: norm(x + y),
    ),
    Fault(
        "each layer reads the embedding",
        "Every layer reads the embedded tokens, so that no head can use what a head below it has found. A layer reads "
        "the x to which the layers below have added.",
        see=_MODEL,
        before=lambda x, norm, first: norm(first),
    ),
    Fault(
        "last layer first",
        "The layers are used in the wrong order: the first of the list comes first.",
        see=_MODEL,
        read=lambda layers: layers[::-1],
    ),
    Fault(
        "no last norm",
        "The last norm is missing: it stands in front of the read-out.",
        see=_MODEL,
        finish=lambda x, norm, positions: x,
    ),
    Fault(
        "score not passed on",
        "The score does not reach the layers. Hand it to every MultiHeadAttention: score=score.",
        see=_MODEL,
        recipe=lambda score: DotProductScore,
    ),
    Fault(
        "probabilities",
        "It returns probabilities. The logits themselves are wanted.",
        see=_MODEL,
        give=lambda logits: logits.softmax(dim=-1),
    ),
    Fault(
        "last position only",
        "It returns the logits of the last position only. Each position predicts its next token.",
        see=_MODEL,
        give=lambda logits: logits[:, -1:],
    ),
    Fault(
        "maps in reverse",
        "The weights of the last layer come first in the list. The first layer's come first.",
        see=_MODEL,
        keep=lambda maps: maps[::-1],
    ),
)


def previous_token_score(
    weights: Tensor,
    *,
    steps: int = 1,
    turn: Callable[[Tensor], Tensor] = lambda weights: weights,
    chosen: Callable[[Tensor], Tensor] = lambda found: found,
    average: Callable[..., Tensor] = lambda found, weights: found.mean(dim=(0, 2)),
) -> Tensor:
    """The mean weight of each head on the token just before its query, (H,)."""
    found = turn(weights).diagonal(-steps, dim1=-2, dim2=-1)  # (B, H, L - 1)
    return average(chosen(found), weights)


def _is_favourite(weights: Tensor) -> Tensor:
    """Where the token before has the largest weight, (B, H, L - 1)."""
    before = torch.arange(weights.shape[-1] - 1, device=weights.device)
    return weights[..., 1:, :].argmax(dim=-1) == before


def _causal(draw: Draw, *shape: int) -> Tensor:
    """Weights as causal attention has them: 0 above the diagonal, and rows that sum to 1."""
    hidden = torch.ones(shape[-2:], device=draw.device).triu(1).bool()
    return draw.normal(*shape).masked_fill(hidden, -torch.inf).softmax(dim=-1)


def _previous_token_score_cases(draw: Draw) -> Iterator[Case]:
    for B, H, L in ((1, 1, 3), (1, 2, 4), (2, 3, 5), (5, 2, 7)):
        yield Case(f"{B} sequence{'s' * (B > 1)}, {H} heads, {L} tokens", {"weights": _causal(draw, B, H, L, L)})


_PREVIOUS_TOKEN_SCORE_FAULTS = (
    Fault(
        "the token itself",
        "This is the weight of each token on itself. The token before stands one column to the left: diagonal(-1).",
        steps=0,
    ),
    Fault(
        "the next token",
        "This is the weight on the next token, which a causal head cannot see. The diagonal below the main one is "
        "wanted: diagonal(-1).",
        steps=-1,
    ),
    Fault(
        "two tokens back",
        "This is the weight on the token two positions back. The one just before is one position back.",
        steps=2,
    ),
    Fault(
        "how often it is the favourite",
        "It counts how often the token before has the largest weight. The mean of its weight is wanted, whether or not "
        "another one is larger.",
        average=lambda found, weights: _is_favourite(weights).to(weights).mean(dim=(0, 2)),
    ),
    Fault(
        "batch and heads exchanged",
        "There is one number for each sequence. One for each head is wanted: the mean over sequences and queries.",
        average=lambda found, weights: found.mean(dim=(1, 2)),
    ),
    Fault(
        "one number for all",
        "All heads share one number. Each head has its own: leave axis 1 out of the mean.",
        average=lambda found, weights: found.mean(),
    ),
    Fault(
        "not over the sequences",
        "The sequences are kept apart. The mean runs over axis 0 as well.",
        average=lambda found, weights: found.mean(dim=-1),
    ),
    Fault(
        "first sequence only",
        "Only the first sequence counts. The mean runs over all of them.",
        average=lambda found, weights: found[0].mean(dim=-1),
    ),
    Fault(
        "every pair of the block",
        "Without the first row and the last column, the mean runs over all that is left, each query with each key. "
        "Only the diagonal of this block holds pairs of neighbours.",
        average=lambda found, weights: weights[..., 1:, :-1].mean(dim=(0, 2, 3)),
    ),
    Fault(
        "divided by L",
        "The sum is divided by the number of all queries. The first has no token before it and does not count: L − 1.",
        average=lambda found, weights: found.sum(dim=-1).mean(dim=0) / weights.shape[-1],
    ),
    Fault(
        "sum",
        "The weights are added up. Their mean is wanted.",
        average=lambda found, weights: found.sum(dim=(0, 2)),
    ),
    Fault(
        "sum over the tokens",
        "The weights are added up over the queries. Their mean is wanted over queries and sequences.",
        average=lambda found, weights: found.sum(dim=-1).mean(dim=0),
    ),
    Fault(
        "last query only",
        "Only the last query counts. The mean runs over all queries that have a token before them.",
        average=lambda found, weights: found[..., -1].mean(dim=0),
    ),
    Fault(
        "heads and sequences mixed",
        "A reshape to one row for each head takes the sequences for heads: the sequences come first, (B, H, …). "
        "Average over the axes 0 and 2, or bring the heads to the front first.",
        average=lambda found, weights: found.reshape(found.shape[1], -1).mean(dim=1),
    ),
)


def prefix_matching_score(
    weights: Tensor,
    period: Tensor,
    *,
    key: Callable[[int, int], int] = lambda i, p: i - p + 1,
    first: Callable[[int], int] = lambda p: p,
    of_sequence: Callable[[list[int], int], int] = lambda periods, b: periods[b],
    entry: Callable[..., Tensor] = lambda one, i, j: one[:, i, j],
    average: Callable[..., Tensor] = lambda seen, shape: torch.cat(seen, dim=-1).mean(dim=-1),
) -> Tensor:
    """The mean weight of each head on the token behind the last occurrence of its query's token, (H,)."""
    L, periods, seen = weights.shape[-1], period.tolist(), []
    for b, one in enumerate(weights):
        p = of_sequence(periods, b)
        seen.append(torch.stack([entry(one, i, key(i, p)) for i in range(first(p), L)], dim=-1))  # (H, L - p)
    return average(seen, weights.shape)


def _prefix_matching_score_cases(draw: Draw) -> Iterator[Case]:
    for H, L, periods in (
        (1, 5, [3]),
        (2, 7, [3]),
        (2, 6, [4, 4]),
        (2, 4, [1, 2]),
        (3, 8, [3, 5]),
        (2, 11, [4, 3, 6, 4, 5]),
    ):
        name = f"{H} heads, {L} tokens, periods {', '.join(map(str, periods))}"
        yield Case(
            name, {"weights": _causal(draw, len(periods), H, L, L), "period": torch.tensor(periods, device=draw.device)}
        )


_PREFIX_MATCHING_SCORE_FAULTS = (
    Fault(
        "the earlier copy itself",
        "This is the weight on the earlier copy of the token, at i − p. What followed it stands at i − p + 1.",
        see=_INDUCTION,
        key=lambda i, p: i - p,
    ),
    Fault(
        "before the earlier copy",
        "This is the weight on the token before the earlier copy. The one behind it is wanted: i − p + 1.",
        see=_INDUCTION,
        key=lambda i, p: i - p - 1,
    ),
    Fault(
        "the token before",
        "This is the weight on the token just before the query. The one behind the earlier copy is wanted: i − p + 1.",
        see=_PREVIOUS,
        key=lambda i, p: i - 1,
    ),
    Fault(
        "first copy",
        "It looks at the first copy of the token. The last one before the query is wanted, at i − p.",
        see=_INDUCTION,
        key=lambda i, p: i % p + 1,
    ),
    Fault(
        "one query too many",
        "The query at p − 1 counts as well, but its token has not been there before. The first that has is at p.",
        see=_INDUCTION,
        first=lambda p: p - 1,
    ),
    Fault(
        "one query too few",
        "The query at p is left out. Its token stood at 0, so that it has something to find.",
        see=_INDUCTION,
        first=lambda p: p + 1,
    ),
    Fault(
        "period of the first sequence",
        "All sequences are read with the period of the first. Each has its own: period[b].",
        of_sequence=lambda periods, b: periods[0],
    ),
    Fault(
        "mean of means",
        "Every sequence counts alike, however many of its tokens repeat. Each query counts alike: gather them all "
        "first, then take one mean.",
        average=lambda seen, shape: torch.stack([one.mean(dim=-1) for one in seen]).mean(dim=0),
    ),
    Fault(
        "divided by all queries",
        "The sum is divided by the number of all queries. Those of the first block have nothing to find and do not "
        "count.",
        average=lambda seen, shape: torch.cat(seen, dim=-1).sum(dim=-1) / (shape[0] * shape[-1]),
    ),
    Fault(
        "sum",
        "The weights are added up. Their mean is wanted.",
        average=lambda seen, shape: torch.cat(seen, dim=-1).sum(dim=-1),
    ),
    Fault(
        "one number for all",
        "All heads share one number. Each head has its own.",
        average=lambda seen, shape: torch.cat(seen, dim=-1).mean(),
    ),
    Fault(
        "not over the sequences",
        "The sequences are kept apart. The mean runs over the queries of all of them.",
        average=lambda seen, shape: torch.stack([one.mean(dim=-1) for one in seen]),
    ),
    Fault(
        "query and key exchanged",
        "Query and key are exchanged: the query is axis 2 of the weights, the key is axis 3.",
        entry=lambda one, i, j: one[:, j, i],
    ),
    Fault(
        "share of the largest",
        "It counts how often this weight is the largest of its row. The weights themselves are averaged.",
        entry=lambda one, i, j: (one[:, i].argmax(dim=-1) == j).to(one),
    ),
)


def ablate(
    x: Tensor,
    heads: Sequence[int],
    num_heads: int,
    *,
    split: Callable[[Tensor, int], Tensor] = lambda x, H: x.unflatten(-1, (H, -1)),
    join: Callable[[Tensor], Tensor] = lambda parts: parts.flatten(-2),
    chosen: Callable[[list[int], int], list[int]] = lambda heads, H: heads,
    fill: Callable[[Tensor], Tensor] = lambda part: part.mean(dim=(0, 1)),
) -> Tensor:
    """Outputs of all heads (B, L, E), those of the chosen heads replaced by their mean over sequences and positions."""
    parts = split(x, num_heads).clone()  # (B, L, H, D)
    silent = chosen(list(heads), num_heads)
    parts[:, :, silent] = fill(parts[:, :, silent]).expand_as(parts[:, :, silent])
    return join(parts)


def _ablate_cases(draw: Draw) -> Iterator[Case]:
    for B, L, H, D, heads in ((2, 2, 2, 1, [0]), (2, 3, 2, 2, [1]), (3, 2, 3, 2, [2, 0]), (1, 5, 4, 3, [1, 2, 3])):
        name = f"{B} sequences of {L} tokens, {H} heads, silent: {', '.join(map(str, heads))}"
        yield Case(name, {"x": draw.normal(B, L, H * D), "heads": torch.tensor(heads), "num_heads": H})


_ABLATE_FAULTS = (
    Fault(
        "zeros",
        "The silent heads are 0. Layers above are used to what these heads say on average: the mean is wanted.",
        fill=lambda part: torch.zeros_like(part),
    ),
    Fault(
        "over the sequences alone",
        "Each position has a mean of its own, so the head still says where it is. The mean runs over the positions "
        "as well.",
        fill=lambda part: part.mean(dim=0, keepdim=True),
    ),
    Fault(
        "over the positions alone",
        "Each sequence has a mean of its own, so the head still says what it read. The mean runs over the sequences as "
        "well: dim=(0, 1).",
        fill=lambda part: part.mean(dim=1, keepdim=True),
    ),
    Fault(
        "one mean for all features",
        "All features of the silent heads have one value. Each feature has a mean of its own: leave the last axis out "
        "of the mean.",
        fill=lambda part: part.mean(),
    ),
    Fault(
        "one mean for a head",
        "The features of a silent head share one value. Each feature has a mean of its own.",
        fill=lambda part: part.mean(dim=(0, 1, 3), keepdim=True),
    ),
    Fault(
        "one mean for the silent heads",
        "The silent heads share their means. Each head has its own.",
        fill=lambda part: part.mean(dim=(0, 1, 2)),
    ),
    Fault(
        "sum",
        "The outputs of a silent head are added up. Their mean is wanted.",
        fill=lambda part: part.sum(dim=(0, 1)),
    ),
    Fault(
        "heads interleaved",
        "Every num_heads-th feature is taken for one head. The features of a head stand side by side: "
        "unflatten(-1, (num_heads, -1)).",
        split=lambda x, H: x.unflatten(-1, (-1, H)).transpose(-1, -2),
        join=lambda parts: parts.transpose(-1, -2).flatten(-2),
    ),
    Fault(
        "the other heads",
        "The heads of the list stay as they are, and the others are silent. It is the other way round.",
        chosen=lambda heads, H: [h for h in range(H) if h not in heads],
    ),
    Fault(
        "all heads",
        "All heads are silent. Only those of the list are to be.",
        chosen=lambda heads, H: list(range(H)),
    ),
    Fault(
        "first head of the list only",
        "Only the first head of the list is silent. All of them are to be.",
        chosen=lambda heads, H: heads[:1],
    ),
    Fault(
        "nothing silent",
        "The outputs come back as they were.",
        fill=lambda part: part,
    ),
    Fault(
        "last head only",
        "Only the last of the heads is silenced. Is the copy of x made anew for each head?",
        chosen=lambda heads, H: heads[-1:],
    ),
)

EXERCISES = (
    Exercise(
        AttentionOnly,
        notebook="18",
        section=_MODEL,
        level="middle",
        minutes=10,
        hints=(
            "`__init__` makes six attributes, in the order of the list. Two of them are an `nn.ModuleList` with one "
            "entry for each layer.",
            "`forward` has one loop: `for norm, attention in zip(self.norms, self.attentions)`. Attention returns a "
            "pair: add the first to x, and append the second to a list.",
        ),
        cases=_attention_only_cases,
        faults=_ATTENTION_ONLY_FAULTS,
        call=_call_attention_only,
        returns=("logits", "weights of the layers"),
    ),
    Exercise(
        previous_token_score,
        notebook="18",
        section=_PREVIOUS,
        level="easy",
        minutes=4,
        hints=(
            "Row i of a map belongs to query i. In which column of that row does the token before it stand?",
            "`weights.diagonal(-1, dim1=-2, dim2=-1)` has shape (B, H, L − 1). Over which two axes is the mean?",
        ),
        cases=_previous_token_score_cases,
        faults=_PREVIOUS_TOKEN_SCORE_FAULTS,
    ),
    Exercise(
        prefix_matching_score,
        notebook="18",
        section=_INDUCTION,
        level="hard",
        minutes=12,
        hints=(
            "Take one sequence and one query i. Its token stood at i − p before. Which token followed it there?",
            "Two loops, over the sequences and over i from p to L − 1, collect `weights[b, :, i, i - p + 1]`, a number "
            "for each head. `torch.stack` them all, and take one mean.",
        ),
        cases=_prefix_matching_score_cases,
        faults=_PREFIX_MATCHING_SCORE_FAULTS,
    ),
    Exercise(
        ablate,
        notebook="18",
        section=_ABLATION,
        level="middle",
        minutes=8,
        hints=(
            "Give every head an axis of its own: `x.unflatten(-1, (num_heads, -1))` has shape (B, L, H, D). Work on a "
            "copy of it.",
            "`parts[:, :, heads]` takes the chosen heads. Which two axes does the mean run over? `flatten(-2)` puts "
            "the heads side by side again.",
        ),
        cases=_ablate_cases,
        faults=_ABLATE_FAULTS,
        call=lambda answer, x, heads, num_heads: answer(x, heads.tolist(), num_heads),
    ),
)
