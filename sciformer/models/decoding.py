"""How a model writes: sampling, greedy search and beam search, apart from the models."""

import math
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sciformer.blocks import evaluating
from sciformer.fast.cache import Cache
from sciformer.functional import InputError
from sciformer.models.tokens import check_tokens

if TYPE_CHECKING:
    from sciformer.models.encoder_decoder import _EncoderDecoder
    from sciformer.models.language import CharTransformer

#: What an encoder reads: tokens, or pictures.
Source = Int[Tensor, "B S"] | Float[Tensor, "B C height width"]


def sample(
    logits: Float[Tensor, "B V"],
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "B"]:
    r"""Draw one token from each row of logits.

    .. math:: p_v \propto e^{z_v / T}

    Args:
        temperature: T. 1 draws as the model believes; towards 0 the likeliest takes over, and 0 always takes it.
        top_k: draw among the so many likeliest only.

    Raises:
        ValueError: if the temperature is negative or not finite, or ``top_k`` is below 1.
    """
    if not 0 <= temperature < math.inf:
        raise InputError(f"temperature must be a finite number, 0 or more, got {temperature}")
    if top_k is not None and top_k < 1:
        raise InputError(f"top_k must be at least 1, got {top_k}")
    if temperature == 0:
        return logits.argmax(dim=-1)
    if top_k is not None and top_k < logits.shape[-1]:
        values, likeliest = logits.topk(top_k)  # (B, top_k), also where others are as likely
        logits = torch.full_like(logits, -math.inf).scatter(-1, likeliest, values)
    logits = logits - logits.amax(dim=-1, keepdim=True)  # so that a tiny temperature divides nothing above 0
    return torch.multinomial((logits / temperature).softmax(dim=-1), 1, generator=generator).squeeze(-1)


def generate(
    model: "CharTransformer",
    prompt: Int[Tensor, "B L"],
    count: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "B N"]:
    """Go on from a prompt, one token at a time; see :func:`stream`.

    Returns:
        The prompt and ``count`` more tokens, (B, L + count).

    Raises:
        ValueError: if the prompt is empty or no (B, L) integers, or a number is out of its range.
    """
    new = stream(model, prompt, count, temperature=temperature, top_k=top_k, generator=generator)
    return torch.cat((prompt, *(tokens[:, None] for tokens in new)), dim=1)


@torch.no_grad()
def stream(
    model: "CharTransformer",
    prompt: Int[Tensor, "B L"],
    count: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Iterator[Int[Tensor, "B"]]:
    """The tokens that go on from a prompt, each as soon as it is chosen; see :func:`sample` for how.

    Of a prompt longer than the model's ``max_length`` it sees the end. When ``max_length`` tokens are reached, it
    forgets the older half of them and reads the newer half again.

    Raises:
        ValueError: at the first token, if the prompt is empty or no (B, L) integers, or a number is out of its range.
    """
    if count < 0:
        raise InputError(f"count must be at least 0, got {count}")
    check_tokens("prompt", prompt, model.embedding.num_embeddings, longest=sys.maxsize)
    tokens, new, cache = prompt, prompt[:, -model.max_length :], Cache()
    with evaluating(model):
        for _ in range(count):
            if cache.length + new.shape[1] > model.max_length:
                cache.reset()
                new = tokens[:, -max(1, model.max_length // 2) :]
            logits = model(new, cache=cache)[:, -1]  # (B, V)
            new = sample(logits, temperature=temperature, top_k=top_k, generator=generator)[:, None]
            tokens = torch.cat((tokens, new), dim=1)[:, -model.max_length :]
            yield new[:, 0]


@torch.no_grad()
def greedy(model: "_EncoderDecoder", source: Source, count: int | None = None) -> Int[Tensor, "B N"]:
    """Write a target for each source, always the likeliest token next.

    Args:
        count: write at most so many tokens; as many as ``max_length`` allows if not given.

    Returns:
        ``start``, the tokens, ``end``, and then ``pad``. Without an ``end`` the target is not finished.

    Raises:
        ValueError: as the model, or if ``count`` is out of its range.
    """
    count = _count(model, count)
    with evaluating(model):
        encoded, source_mask = model.encode(source)
        cache = Cache()
        tokens = new = torch.full((len(source), 1), model.start, device=source.device)
        ended = torch.zeros_like(new, dtype=torch.bool)  # (B, 1)
        for _ in range(count):
            logits = model.decode(new, encoded, source_mask, cache=cache)[:, -1]  # (B, V)
            new = logits.argmax(dim=-1, keepdim=True).masked_fill(ended, model.pad)
            tokens = torch.cat((tokens, new), dim=1)
            ended |= new == model.end
            if ended.all():
                break
    return tokens


@torch.no_grad()
def beam(
    model: "_EncoderDecoder",
    source: Source,
    width: int,
    count: int | None = None,
    *,
    length_penalty: float = 0.0,
) -> tuple[Int[Tensor, "B K N"], Float[Tensor, "B K"]]:
    r"""Write several targets for each source side by side, and after each token keep the best.

    .. math:: \text{score}(y) = \frac{\log p(y \mid x)}{\left((5 + |y|) / 6\right)^\alpha}

    ``|y|`` counts the tokens after ``start``, ``end`` included. With α = 0 the score is the logarithm of the
    probability, a sum that every token makes smaller, so that short targets are favored; α above 0 makes up for it
    (0.6 and K = 4 in Vaswani et al. 2017, section 6.1). A target that has ended stays as it is, and keeps its position
    as long as no K others are better. The search is not exact: what it once drops it never finds again. Source: Wu et
    al. 2016, arXiv:1609.08144, section 7, without its coverage penalty.

    Args:
        width: K, how many targets are kept. 1 is :func:`greedy`.
        count: as in :func:`greedy`.
        length_penalty: α, at least 0.

    Returns:
        The K targets of each source, best first, as :func:`greedy` returns its one, and their scores; -inf where there
        are fewer than K.

    Raises:
        ValueError: as the model, or if a number is out of its range.
    """
    count = _count(model, count)
    if width < 1 or not 0 <= length_penalty < math.inf:
        raise InputError(
            f"width must be at least 1 and length_penalty a number from 0, got {width} and {length_penalty}"
        )
    with evaluating(model):
        log_p, lengths, tokens = _search(model, source, width, count, length_penalty)
    return tokens, log_p / ((5 + lengths) / 6) ** length_penalty


def _search(
    model: "_EncoderDecoder", source: Source, width: int, count: int, length_penalty: float
) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B K"], Int[Tensor, "B K N"]]:
    """The log-probabilities of the K targets of a beam, their lengths and their tokens."""
    B, K, V = len(source), width, model.target_embedding.num_embeddings
    encoded, source_mask = (x.repeat_interleave(K, dim=0) for x in model.encode(source))  # (B * K, ...)
    cache = Cache()
    tokens = torch.full((B * K, 1), model.start, device=source.device)
    log_p = encoded.new_full((B, K), -math.inf)
    log_p[:, 0] = 0.0  # the K targets begin alike: only one of them counts
    lengths = torch.zeros_like(log_p)
    ended = torch.zeros_like(log_p, dtype=torch.bool)
    only_pad = encoded.new_full((V,), -math.inf)
    only_pad[model.pad] = 0.0
    first_of_source = K * torch.arange(B, device=source.device)[:, None]  # (B, 1)
    for _ in range(count):
        logits = model.decode(tokens[:, -1:], encoded, source_mask, cache=cache)[:, -1]  # (B * K, V)
        next_log_p = logits.log_softmax(dim=-1).view(B, K, V)
        next_log_p = torch.where(ended[..., None], only_pad, next_log_p)
        lengths = lengths + ~ended
        penalty = ((5 + lengths) / 6) ** length_penalty  # (B, K)
        candidates = log_p[..., None] + next_log_p  # (B, K, V)
        best = (candidates / penalty[..., None]).flatten(1).topk(K).indices  # (B, K)
        parent, token = best // V, best % V
        log_p = candidates.flatten(1).gather(1, best)
        lengths = lengths.gather(1, parent)
        rows = (first_of_source + parent).flatten()  # (B * K,)
        tokens = torch.cat((tokens[rows], token.view(-1, 1)), dim=1)
        cache.keep(rows)
        ended = ended.gather(1, parent) | (token == model.end)
        if ended.all():
            break
    return log_p, lengths, tokens.view(B, K, -1)


def _count(model: "_EncoderDecoder", count: int | None) -> int:
    """How many tokens to write at most: the last one is never read, so one more than could be read after start."""
    if count is None:
        return model.max_length
    if not 1 <= count <= model.max_length:
        raise InputError(f"count must be from 1 to max_length {model.max_length}, got {count}")
    return count
