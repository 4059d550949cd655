"""Exercises of notebook 08: a character language model.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise, WrongType

_SHIFT = "The text, and the text one later"
_LOSS = "The loss"
_BREAK = "Break it: targets that are not shifted"
_TEMPERATURE = "Temperature"
_TOP_K = "Only the likeliest"
_ONE_PASS = "One forward pass, all predictions"
_CACHE = "A cache: never read twice"


def text_perplexity(
    logits: Tensor,
    tokens: Tensor,
    *,
    pair: Callable[..., tuple[Tensor, Tensor]] = lambda logits, tokens: (logits[:, :-1], tokens[:, 1:]),
    log_p: Callable[..., Tensor] = lambda logits: logits.log_softmax(dim=-1),
    average: Callable[..., Tensor] = lambda losses: losses.mean(),
    finish: Callable[..., Tensor] = lambda loss: loss.exp(),
) -> Tensor:
    """exp of the mean −log p of each character after the first, one number."""
    predicted, targets = pair(logits, tokens)
    losses = -log_p(predicted).gather(-1, targets[..., None])[..., 0]  # (B, L - 1)
    return finish(average(losses))


def _any_number(answer: Callable[..., Any], logits: Tensor, tokens: Tensor) -> Any:
    """A number of Python's is as good as a tensor."""
    perplexity = answer(logits, tokens)
    return torch.tensor(perplexity) if isinstance(perplexity, float) else perplexity


def _text_perplexity_cases(draw: Draw) -> Iterator[Case]:
    for name, batch, length, vocabulary in (
        ("1 text of 4 characters, vocabulary of 2", 1, 4, 2),
        ("1 text of 3 characters, vocabulary of 5", 1, 3, 5),
        ("3 texts of 7 characters, vocabulary of 5", 3, 7, 5),
    ):
        tokens = draw.integers(0, vocabulary, batch, length)
        yield Case(name, {"logits": 2 * draw.normal(batch, length, vocabulary), "tokens": tokens})


_TEXT_PERPLEXITY_FAULTS = (
    Fault(
        "targets not shifted",
        "The logits of a position are compared with the character at that position, which the model has just read. "
        "They are about the next one: logits[:, :-1] against tokens[:, 1:].",
        see=_BREAK,
        pair=lambda logits, tokens: (logits, tokens),
    ),
    Fault(
        "first left out, not shifted",
        "The first character is left out of both, so that nothing is shifted: each is compared with itself. Leave the "
        "last position out of the logits, and the first out of the targets.",
        see=_BREAK,
        pair=lambda logits, tokens: (logits[:, 1:], tokens[:, 1:]),
    ),
    Fault(
        "last left out, not shifted",
        "The last character is left out of both, so that nothing is shifted: each is compared with itself. Leave the "
        "last position out of the logits, and the first out of the targets.",
        see=_BREAK,
        pair=lambda logits, tokens: (logits[:, :-1], tokens[:, :-1]),
    ),
    Fault(
        "shifted by two",
        "The logits of a position are compared with the character two later. It is the next one.",
        see=_BREAK,
        pair=lambda logits, tokens: (logits[:, :-2], tokens[:, 2:]),
    ),
    Fault(
        "shifted the wrong way",
        "The logits of a position are compared with the character before it, which the model has read. Shift the "
        "targets the other way: logits[:, :-1] against tokens[:, 1:].",
        see=_BREAK,
        pair=lambda logits, tokens: (logits[:, 1:], tokens[:, :-1]),
    ),
    Fault(
        "wrapped around",
        "The last position is asked to predict the first character of the text. What comes after the text is not "
        "known: leave that position out.",
        see=_SHIFT,
        pair=lambda logits, tokens: (logits, tokens.roll(-1, dims=1)),
    ),
    Fault(
        "flattened before the shift",
        "The texts are joined before they are shifted, so that the last position of each has to predict the first "
        "character of the next text. Shift first.",
        see=_SHIFT,
        pair=lambda logits, tokens: (logits.flatten(0, 1)[None, :-1], tokens.flatten()[None, 1:]),
    ),
    Fault(
        "over the positions",
        "The softmax runs over the positions. The probabilities at one position sum to 1 over the vocabulary, the last "
        "axis.",
        see=_LOSS,
        log_p=lambda logits: logits.log_softmax(dim=1),
    ),
    Fault(
        "over the texts",
        "The softmax runs over the texts of the batch. It belongs on the vocabulary, the last axis.",
        see=_LOSS,
        log_p=lambda logits: logits.log_softmax(dim=0),
    ),
    Fault(
        "no softmax",
        "The logits are taken for log p. They become log p by a log-softmax.",
        see=_LOSS,
        log_p=lambda logits: logits,
    ),
    Fault(
        "no logarithm",
        "It averages probabilities where −log p is wanted.",
        see=_LOSS,
        log_p=lambda logits: logits.softmax(dim=-1),
    ),
    Fault(
        "softmax twice",
        "The softmax is taken twice. `F.cross_entropy` takes one itself, so it wants logits, not probabilities.",
        see=_LOSS,
        log_p=lambda logits: logits.softmax(dim=-1).log_softmax(dim=-1),
    ),
    Fault(
        "the loss itself",
        "This is the loss in nats. Perplexity is e to that power.",
        see=_LOSS,
        finish=lambda loss: loss,
    ),
    Fault(
        "bits",
        "This is the loss in bits. Perplexity is e to the loss in nats, or 2 to the loss in bits.",
        see=_LOSS,
        finish=lambda loss: loss / math.log(2),
    ),
    Fault(
        "two to the nats",
        "It is 2 to the power of a loss in nats. The base has to be that of the logarithm: e.",
        see=_LOSS,
        finish=lambda loss: 2**loss,
    ),
    Fault(
        "sign lost",
        "This is one over the perplexity: the minus of −log p is missing.",
        see=_LOSS,
        finish=lambda loss: (-loss).exp(),
    ),
    Fault(
        "summed",
        "The losses are summed, so that a longer text has a larger one. Take the mean, then the exponential.",
        see=_LOSS,
        average=lambda losses: losses.sum(),
    ),
    Fault(
        "summed along each text",
        "The losses are summed along each text, and only averaged over the texts. It is the mean over all characters.",
        see=_LOSS,
        average=lambda losses: losses.sum(dim=1).mean(),
    ),
    Fault(
        "divided by all characters",
        "The sum is divided by the number of characters, but the first of each text is not predicted.",
        see=_LOSS,
        average=lambda losses: losses.sum() / (losses.numel() + len(losses)),
    ),
    Fault(
        "last position only",
        "Only the prediction of the last character counts. Every one after the first does.",
        see=_ONE_PASS,
        average=lambda losses: losses[:, -1].mean(),
    ),
    Fault(
        "mean of exponentials",
        "The exponential is taken of each loss, then the mean. It is the other way round.",
        see=_LOSS,
        average=lambda losses: losses.exp().mean(),
        finish=lambda loss: loss,
    ),
    Fault(
        "mean over texts of perplexities",
        "Each text gets a perplexity, and these are averaged. Average the losses of all characters first.",
        see=_LOSS,
        average=lambda losses: losses.mean(dim=1).exp().mean(),
        finish=lambda loss: loss,
    ),
    Fault(
        "a number for each text",
        "Each text has a number of its own. One is wanted, for all characters together.",
        see=_LOSS,
        average=lambda losses: losses.mean(dim=1),
    ),
    Fault(
        "one over the mean p",
        "It is one over the mean probability. The mean is taken of −log p, so that one hopeless guess weighs a lot.",
        see=_LOSS,
        average=lambda losses: (-losses).exp().mean(),
        finish=lambda p: 1 / p,
    ),
)


def nucleus(
    logits: Tensor,
    temperature: float,
    top_p: float,
    *,
    heat: Callable[..., Tensor] = lambda logits, temperature: logits / temperature,
    normalize: Callable[..., Tensor] = lambda logits, temperature: logits.softmax(dim=-1),
    sort: Callable[..., tuple[Tensor, Tensor]] = lambda p: p.sort(dim=-1, descending=True),
    keep: Callable[..., Tensor] = lambda p, top_p: p.cumsum(dim=-1) - p < top_p,
    put_back: Callable[..., tuple[Tensor, Tensor]] = lambda p, ordered, kept, order: (p, kept.scatter(-1, order, kept)),
    renormalize: Callable[..., Tensor] = lambda p, kept, top_p, z: p * kept / (p * kept).sum(dim=-1, keepdim=True),
    finish: Callable[..., Tensor] = lambda p, temperature: p,
) -> Tensor:
    """Probabilities of the likeliest characters that together reach ``top_p``, (B, V); the others have 0."""
    z = heat(logits, temperature)
    p = normalize(z, temperature)
    ordered, order = sort(p)
    p, kept = put_back(p, ordered, keep(ordered, top_p), order)
    return finish(renormalize(p, kept, top_p, z), temperature)


def _nucleus_cases(draw: Draw) -> Iterator[Case]:
    # Logits of equal spacing in random order: no two are equal, and no sum of probabilities is close to top_p.
    for name, batch, vocabulary, spacing, temperature, top_p in (
        ("1 text, 3 characters, top_p 0.8", 1, 3, 0.6, 0.5, 0.8),
        ("1 text, 4 characters, top_p 0.5", 1, 4, 0.5, 2.0, 0.5),
        ("2 texts, 5 characters, top_p 0.75", 2, 5, 0.4, 0.5, 0.75),
        ("3 texts, 11 characters, top_p 0.6", 3, 11, 0.3, 2.0, 0.6),
    ):
        rows = torch.stack([draw.permutation(vocabulary) for _ in range(batch)])
        logits = ((rows - 1) * spacing).to(draw.dtype)
        yield Case(name, {"logits": logits, "temperature": temperature, "top_p": top_p})
    # The first text needs two characters, one is enough for the second, the third needs three.
    rows = torch.stack([draw.permutation(5) * spacing for spacing in (0.3, 0.75, 0.15)])
    yield Case(
        "3 texts, one likely character in the second", {"logits": rows.to(draw.dtype), "temperature": 0.5, "top_p": 0.7}
    )


_NUCLEUS_FAULTS = (
    Fault(
        "temperature ignored",
        "The temperature has no effect. Divide the logits by it.",
        see=_TEMPERATURE,
        heat=lambda logits, temperature: logits,
    ),
    Fault(
        "multiplied by the temperature",
        "The logits are multiplied by the temperature, so that a low one flattens. Divide by it.",
        see=_TEMPERATURE,
        heat=lambda logits, temperature: logits * temperature,
    ),
    Fault(
        "temperature after the softmax",
        "The probabilities are divided by the temperature, and the softmax of that is taken. Divide the logits, before "
        "the only softmax.",
        see=_TEMPERATURE,
        heat=lambda logits, temperature: logits.softmax(dim=-1) / temperature,
    ),
    Fault(
        "probabilities divided",
        "The probabilities are divided by the temperature, which cancels when they are brought to sum 1, but changes "
        "which characters are kept. Divide the logits.",
        see=_TEMPERATURE,
        heat=lambda logits, temperature: logits,
        normalize=lambda logits, temperature: logits.softmax(dim=-1) / temperature,
    ),
    Fault(
        "temperature last",
        "The characters are chosen without the temperature, which is applied afterwards. Apply it first.",
        see=_TEMPERATURE,
        heat=lambda logits, temperature: logits,
        finish=lambda p, temperature: p ** (1 / temperature) / (p ** (1 / temperature)).sum(dim=-1, keepdim=True),
    ),
    Fault(
        "over the texts",
        "The softmax runs over the texts of the batch. Each row has probabilities of its own: the last axis.",
        see=_LOSS,
        normalize=lambda logits, temperature: logits.softmax(dim=0),
    ),
    Fault(
        "the least likely",
        "It collects from the least likely on. Sort in descending order.",
        see=_TOP_K,
        sort=lambda p: p.sort(dim=-1),
    ),
    Fault(
        "stops too early",
        "The character that takes the sum over top_p is left out, so that the sum stays below. It is the last one to "
        "keep.",
        keep=lambda p, top_p: p.cumsum(dim=-1) < top_p,
    ),
    Fault(
        "stops too early, after the first",
        "The character that takes the sum over top_p is left out, unless it is the first. It is the last one to keep.",
        keep=lambda p, top_p: (p.cumsum(dim=-1) < top_p) | (torch.arange(p.shape[-1], device=p.device) == 0),
    ),
    Fault(
        "likeliest lost",
        "Where the likeliest character alone reaches top_p, none is kept, and 0/0 is left. The likeliest is always "
        "kept.",
        keep=lambda p, top_p: torch.cat([p[..., :1], p.cumsum(dim=-1)[..., :-1]], dim=-1) < top_p,
    ),
    Fault(
        "as many in every text",
        "The first text decides how many are kept, for all of them. Each row has a sum of its own.",
        keep=lambda p, top_p: (p.cumsum(dim=-1) - p < top_p)[:1].expand(p.shape),
    ),
    Fault(
        "as many as the longest",
        "One number of characters is kept in every text, the largest that any of them needs. Each row has a number of "
        "its own.",
        keep=lambda p, top_p: (p.cumsum(dim=-1) - p < top_p).any(dim=0, keepdim=True).expand(p.shape),
    ),
    Fault(
        "as many as the shortest",
        "One number of characters is kept in every text, the smallest that any of them needs. Each row has a number of "
        "its own.",
        keep=lambda p, top_p: (p.cumsum(dim=-1) - p < top_p).all(dim=0, keepdim=True).expand(p.shape),
    ),
    Fault(
        "one too many",
        "After top_p has been reached, one more character is kept.",
        keep=lambda p, top_p: F.pad(p.cumsum(dim=-1) - p < top_p, (1, 0), value=True)[..., :-1],
    ),
    Fault(
        "the rest",
        "It keeps the wrong ones: those that come after top_p has been reached.",
        keep=lambda p, top_p: p.cumsum(dim=-1) > top_p,
    ),
    Fault(
        "each above top_p",
        "It asks for single probabilities of top_p and more. Their sum, from the likeliest on, has to reach it.",
        keep=lambda p, top_p: p >= top_p,
    ),
    Fault(
        "share of the likeliest",
        "It keeps every character with top_p times the largest probability or more. That is min-p; here a sum decides.",
        keep=lambda p, top_p: p >= top_p * p.amax(dim=-1, keepdim=True),
    ),
    Fault(
        "a share of the vocabulary",
        "It keeps a share top_p of the vocabulary, whatever the probabilities. Add them up, from the likeliest on.",
        keep=lambda p, top_p: (torch.arange(p.shape[-1], device=p.device) < top_p * p.shape[-1]).expand(p.shape),
    ),
    Fault(
        "not sorted",
        "The probabilities are added in the order of the vocabulary. Start with the likeliest: sort them.",
        see=_TOP_K,
        sort=lambda p: (p, torch.arange(p.shape[-1], device=p.device).expand(p.shape)),
    ),
    Fault(
        "left in sorted order",
        "The likeliest comes first in the result. Column v has to be character v: scatter back to where they were.",
        put_back=lambda p, ordered, kept, order: (ordered, kept),
    ),
    Fault(
        "mask in sorted order",
        "The mask is made in sorted order, and used in that of the vocabulary. Bring it back first: scatter.",
        put_back=lambda p, ordered, kept, order: (p, kept),
    ),
    Fault(
        "gathered in place of scattered",
        "The mask is brought back by indexing with the sorting order. That sorts it once more; scatter undoes it.",
        put_back=lambda p, ordered, kept, order: (p, kept.gather(-1, order)),
    ),
    Fault(
        "all gathered in place of scattered",
        "The probabilities are brought back by indexing with the sorting order. That moves them once more, into wrong "
        "columns; scatter undoes the sort, or indexing with order.argsort(dim=-1).",
        put_back=lambda p, ordered, kept, order: (ordered.gather(-1, order), kept.gather(-1, order)),
    ),
    Fault(
        "not renormalised",
        "What is left does not sum to 1. Divide by its sum.",
        see=_TOP_K,
        renormalize=lambda p, kept, top_p, z: p * kept,
    ),
    Fault(
        "divided by top_p",
        "What is left is divided by top_p. It sums to a little more than that: divide by its own sum.",
        see=_TOP_K,
        renormalize=lambda p, kept, top_p, z: p * kept / top_p,
    ),
    Fault(
        "one sum for all texts",
        "What is left is divided by the sum over all texts. Each row has its own sum.",
        see=_TOP_K,
        renormalize=lambda p, kept, top_p, z: p * kept / (p * kept).sum(),
    ),
    Fault(
        "softmax of probabilities",
        "The softmax is taken once more, of probabilities, so that those left out get e⁰ = 1 as a weight. Divide by "
        "the sum, or set logits to −∞ before a single softmax.",
        see=_TOP_K,
        renormalize=lambda p, kept, top_p, z: (p * kept).softmax(dim=-1),
    ),
    Fault(
        "logits of 0",
        "The logits of those left out are set to 0, which is a logit like any other. Only −∞ gives them the "
        "probability 0.",
        see=_TOP_K,
        renormalize=lambda p, kept, top_p, z: (z * kept).softmax(dim=-1),
    ),
    Fault(
        "all alike",
        "Those that are kept all get the same probability. They keep their proportions.",
        renormalize=lambda p, kept, top_p, z: kept.to(p) / kept.sum(dim=-1, keepdim=True),
    ),
    Fault(
        "greedy",
        "Only the likeliest is left, with probability 1: this is greedy, and nothing is left to draw.",
        see=_TEMPERATURE,
        keep=lambda p, top_p: torch.arange(p.shape[-1], device=p.device).expand(p.shape) == 0,
    ),
    Fault(
        "second softmax without the temperature",
        "The softmax over the characters that are kept takes the logits as they are. Divide them by the temperature "
        "there as well.",
        finish=lambda p, temperature: (p**temperature * (p > 0)) / (p**temperature * (p > 0)).sum(dim=-1, keepdim=True),
    ),
)


def _read_whole_text(cache: dict, x: Tensor) -> Tensor:
    cache["text"] = torch.cat([cache["text"], x], dim=1) if "text" in cache else x
    return cache["text"]


def _appended(old: Tensor, new: Tensor) -> Tensor:
    return torch.cat([old, new], dim=1)


def _chunks_times_length(cache: dict, first: int, length: int) -> int:
    cache["chunks"] = cache.get("chunks", -1) + 1
    return cache["chunks"] * length


def read_piece(
    x: Tensor,
    table: Tensor,
    layers: list[Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]],
    cache: dict,
    *,
    recall: Callable[..., Tensor] = lambda cache, x: x,
    count: Callable[..., int] = lambda length, depth: length,
    start: Callable[..., int] = lambda read, length: read,
    kept_start: Callable[..., int] = lambda cache, first, length: first,
    add_positions: Callable[..., Tensor] = lambda x, positions, n: x + positions if n == 0 else x,
    slot: Callable[[int], int] = lambda n: n,
    join_keys: Callable[..., Tensor] = _appended,
    join_values: Callable[..., Tensor] = _appended,
    remember: Callable[..., tuple[Tensor, Tensor]] = lambda keys, values, key, value: (keys, values),
    scale: Callable[..., float] = lambda width: width**-0.5,
    sees: Callable[..., Tensor] = lambda i, j, read: j <= read + i,
    residual: Callable[..., Tensor] = lambda x, looked: x + looked,
) -> Tensor:
    """The states (B, L, E) of a chunk of text behind attention layers that remember the chunks before."""
    length, width = x.shape[1:]
    x = recall(cache, x)
    first = kept_start(cache, start(cache.get("read", 0), x.shape[1]), x.shape[1])
    cache["read"] = cache.get("read", 0) + count(length, len(layers))
    positions = table[first : first + x.shape[1]]
    for n, layer in enumerate(layers):
        x = add_positions(x, positions, n)
        query, key, value = layer(x)  # (B, L, E) each
        old_keys, old_values = cache.get(slot(n), (key[:, :0], value[:, :0]))
        keys, values = join_keys(old_keys, key), join_values(old_values, value)  # (B, S, E)
        cache[slot(n)] = remember(keys, values, key, value)
        i = torch.arange(x.shape[1], device=x.device)[:, None]
        j = torch.arange(keys.shape[1], device=x.device)
        hidden = ~sees(i, j, keys.shape[1] - x.shape[1])  # (L, S)
        scores = (query @ keys.transpose(1, 2) * scale(width)).masked_fill(hidden, -math.inf)
        x = residual(x, scores.softmax(dim=-1) @ values)
    return x[:, -length:]


def _read_in_chunks(
    answer: Callable[..., Any], x: Tensor, table: Tensor, weights: Tensor, chunks: Tensor
) -> tuple[Tensor, int]:
    """The states of a whole text that is read chunk by chunk, and how many tokens went through the projections."""
    projected = [0]

    def layer(matrices: Tensor) -> Callable[[Tensor], tuple[Tensor, ...]]:
        def project(x: Tensor) -> tuple[Tensor, ...]:
            projected[0] += x.shape[1]
            return tuple(x @ matrix for matrix in matrices)

        return project

    layers = [layer(matrices) for matrices in weights]
    cache: dict[Any, Any] = {}
    states = [answer(chunk, table, layers, cache) for chunk in x.split(chunks.tolist(), dim=1)]
    if not all(isinstance(state, Tensor) for state in states):
        raise WrongType("For each chunk one tensor is wanted: its states.")
    return torch.cat(states, dim=1), projected[0]


def _read_piece_cases(draw: Draw) -> Iterator[Case]:
    for name, batch, width, depth, chunks in (
        ("2 tokens at once, 1 layer", 1, 2, 1, [2]),
        ("2 tokens one by one, 1 layer", 1, 2, 1, [1, 1]),
        ("3 tokens one by one, 2 layers", 1, 2, 2, [1, 1, 1]),
        ("2 texts, chunks of 3, 1, 2 and 1 tokens, 3 layers", 2, 5, 3, [3, 1, 2, 1]),
    ):
        x, table = draw.normal(batch, sum(chunks), width), draw.normal(sum(chunks) + 1, width)
        weights = (draw.normal(depth, 3, width, width) / width).round(decimals=1)  # larger ones saturate the softmax
        yield Case(name, {"x": x, "table": table, "weights": weights, "chunks": torch.tensor(chunks)})


_READ_PIECE_FAULTS = (
    Fault(
        "chunks counted, not tokens",
        "A chunk's positions begin at the number of chunks so far times its own length. Chunks differ in length: count "
        "the tokens that have been read.",
        start=lambda read, length: 0,
        kept_start=_chunks_times_length,
    ),
    Fault(
        "positions kept by length",
        "The rows of the table are kept under the length of the chunk, so the next chunk of this length gets those of "
        "the first. They depend on where the chunk begins, too.",
        kept_start=lambda cache, first, length: cache.setdefault(("first", length), first),
    ),
    Fault(
        "read again from the start",
        "The states are right, but every chunk sends the whole text through the layers again. Keep keys and values, "
        "and project the new tokens alone.",
        recall=_read_whole_text,
        start=lambda read, length: 0,
        remember=lambda keys, values, key, value: (key[:, :0], value[:, :0]),
    ),
    Fault(
        "positions from 0",
        "The positions of every chunk start at 0. The first new token stands after all that were read before.",
        start=lambda read, length: 0,
    ),
    Fault(
        "counted in every layer",
        "The count of the tokens read grows in every layer, so that the next chunk begins at too high a position, or "
        "behind the end of `table`. Count each chunk once, outside the loop over the layers.",
        count=lambda length, depth: depth * length,
    ),
    Fault(
        "one position too late",
        "The positions are one too high: the first token of the text stands at position 0.",
        start=lambda read, length: read + 1,
    ),
    Fault(
        "no positions",
        "The rows of `table` are not added.",
        add_positions=lambda x, positions, n: x,
    ),
    Fault(
        "positions in every layer",
        "The positions are added before every layer. Once, before the first, is enough.",
        add_positions=lambda x, positions, n: x + positions,
    ),
    Fault(
        "mask ignored",
        "The tokens of a chunk see those after them in the same chunk. Between the new tokens, too, the mask is "
        "causal.",
        see=_ONE_PASS,
        sees=lambda i, j, read: (i >= 0) & (j >= 0),
    ),
    Fault(
        "mask in the first chunk only",
        "The first chunk has its causal mask, later ones have none: a new token sees the new ones after it.",
        see=_ONE_PASS,
        sees=lambda i, j, read: j <= read + i if read == 0 else (i >= 0) & (j >= 0),
    ),
    Fault(
        "mask from the first key",
        "New token i sees the first i + 1 keys, as if it were the i-th of the text. It sees all that were read before, "
        "and i + 1 of the new ones.",
        sees=lambda i, j, read: j <= i,
    ),
    Fault(
        "one key too many",
        "Each token also sees the one after it in its chunk: the mask is off by one.",
        see=_ONE_PASS,
        sees=lambda i, j, read: j <= read + i + 1,
    ),
    Fault(
        "not itself",
        "A token does not see itself, and the first one sees nothing: its softmax is 0/0. Itself is allowed.",
        see=_ONE_PASS,
        sees=lambda i, j, read: j < read + i,
    ),
    Fault(
        "mask inverted",
        "The mask is the wrong way round: what should be seen is hidden.",
        see=_ONE_PASS,
        sees=lambda i, j, read: j > read + i,
    ),
    Fault(
        "nothing is remembered",
        "A chunk sees only itself. Join the old keys and values to the new ones, and keep both.",
        remember=lambda keys, values, key, value: (key[:, :0], value[:, :0]),
    ),
    Fault(
        "only the chunk before",
        "Only the newest chunk is kept: with the next one, the older ones are forgotten. Keep all keys and values so "
        "far.",
        remember=lambda keys, values, key, value: (key, value),
    ),
    Fault(
        "only the first chunk",
        "The cache keeps what the first chunk left, and no more. Store the joined keys and values after each chunk.",
        remember=lambda keys, values, key, value: (
            (keys, values) if keys.shape[1] == key.shape[1] else (keys[:, : -key.shape[1]], values[:, : -key.shape[1]])
        ),
    ),
    Fault(
        "new ones in front",
        "The new keys and values are put in front of the old ones, while the mask counts from the oldest on. "
        "Append them.",
        join_keys=lambda old, new: torch.cat([new, old], dim=1),
        join_values=lambda old, new: torch.cat([new, old], dim=1),
    ),
    Fault(
        "keys in front, values behind",
        "New keys go in front, new values behind: weights and values no longer belong together.",
        join_keys=lambda old, new: torch.cat([new, old], dim=1),
    ),
    Fault(
        "values in front, keys behind",
        "New values go in front, new keys behind: weights and values no longer belong together.",
        join_values=lambda old, new: torch.cat([new, old], dim=1),
    ),
    Fault(
        "one cache for all layers",
        "The layers share one memory, so that a layer sees the keys and values of another. Each needs its own.",
        slot=lambda n: 0,
    ),
    Fault(
        "no scale",
        "The scores are not divided by √E.",
        see=_CACHE,
        scale=lambda width: 1.0,
    ),
    Fault(
        "divided by E",
        "The scores are divided by E; it is √E.",
        see=_CACHE,
        scale=lambda width: 1 / width,
    ),
    Fault(
        "no residual",
        "The output of attention replaces x. It should be added to x.",
        see=_CACHE,
        residual=lambda x, looked: looked,
    ),
)

EXERCISES = (
    Exercise(
        text_perplexity,
        notebook="08",
        section=_LOSS,
        level="easy",
        minutes=5,
        hints=(
            "About which character do the logits of position 0 speak? And does anyone know what comes after the last?",
            "L − 1 positions are left in each text. One mean over all of them, of −log p, and the exponential at "
            "the very end.",
        ),
        cases=_text_perplexity_cases,
        faults=_TEXT_PERPLEXITY_FAULTS,
        call=_any_number,
        differentiable=False,
    ),
    Exercise(
        nucleus,
        notebook="08",
        section=_TOP_K,
        level="middle",
        minutes=10,
        hints=(
            "Sort, add up with `cumsum`. The one that takes the sum to `top_p` is still in: look at the sum "
            "*before* each.",
            "`ordered, order = p.sort(dim=-1, descending=True)`; the inverse is "
            "`torch.zeros_like(p).scatter(-1, order, …)`.",
        ),
        large=("logits",),
        cases=_nucleus_cases,
        faults=_NUCLEUS_FAULTS,
    ),
    Exercise(
        read_piece,
        notebook="08",
        section=_CACHE,
        level="hard",
        minutes=15,
        hints=(
            "Three things to remember: how many tokens were read, and for each layer its keys and its values.",
            "With `read` old tokens, new token i may see keys 0 to `read + i`: `torch.ones(L, "
            "S).tril(diagonal=read).bool()`.",
        ),
        cases=_read_piece_cases,
        faults=_READ_PIECE_FAULTS,
        call=_read_in_chunks,
        returns=("states", "count of projected tokens"),
    ),
)
