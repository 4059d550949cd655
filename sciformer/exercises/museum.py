"""Bugs that shipped: mistakes from published code, each as small as it gets and in the notation of the course.

Each is a wrong answer to an exercise of the course, so its checker can be asked for a diagnosis, and whoever mends it
is told when it is right. ``tools/museum.py`` makes docs/museum.md of them.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from sciformer.check.exercise import Diagnosis
from sciformer.exercises import EXERCISES


@dataclass(frozen=True)
class Piece:
    """One bug.

    Args:
        link: where it was reported or mended.
        tells: what happened, in two or three sentences.
        exercise: whose wrong answer it is.
        code: the bug, as an answer to this exercise.
    """

    title: str
    link: str
    tells: str
    exercise: str
    code: Callable[..., Any]


def _mask_of_another_convention(query, key, value, attn_mask=None):
    if attn_mask is not None:
        attn_mask = ~attn_mask
    return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)


def _no_mask(query, key, value, attn_mask=None):
    scores = query @ key.T / math.sqrt(query.shape[-1])
    return scores.softmax(dim=-1) @ value


def _mask_after_the_softmax(query, key, value, attn_mask=None):
    weights = (query @ key.T / math.sqrt(query.shape[-1])).softmax(dim=-1)
    if attn_mask is not None:
        weights = weights.masked_fill(~attn_mask, -math.inf)
    return weights @ value


def _boolean_mask_added(query, key, value, attn_mask=None):
    scores = query @ key.T / math.sqrt(query.shape[-1])
    if attn_mask is not None:
        scores = scores + attn_mask
    return scores.softmax(dim=-1) @ value


def _scores_times_mask(scores, attn_mask):
    return (scores * attn_mask).softmax(dim=-1)


def _softmax_over_the_queries(query, key, value, attn_mask=None):
    scores = query @ key.T / math.sqrt(query.shape[-1])
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    return scores.softmax(dim=0) @ value


def _divided_by_the_scale(query, key, value, attn_mask=None):
    scale = query.shape[-1] ** -0.5
    scores = query @ key.T / scale
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    return scores.softmax(dim=-1) @ value


def _scaled_by_the_whole_width(query, key, value, w_o, num_heads):
    dim = query.shape[-1]
    q, k, v = (x.unflatten(-1, (-1, dim // num_heads)).transpose(1, 2) for x in (query, key, value))
    k, v = (x.repeat_interleave(num_heads // x.shape[1], dim=1) for x in (k, v))
    weights = (q @ k.mT * dim**-0.5).softmax(dim=-1)
    return (weights @ v).transpose(1, 2).flatten(-2) @ w_o


def _heads_merged_as_they_stand(query, key, value, w_o, num_heads):
    D = query.shape[-1] // num_heads
    q, k, v = (x.unflatten(-1, (-1, D)).transpose(1, 2) for x in (query, key, value))
    k, v = (x.repeat_interleave(num_heads // x.shape[1], dim=1) for x in (k, v))
    values = (q @ k.mT / math.sqrt(D)).softmax(dim=-1) @ v  # (B, H, L, D)
    return values.reshape(query.shape) @ w_o


def _heads_tiled(query, key, value, w_o, num_heads):
    D = query.shape[-1] // num_heads
    q, k, v = (x.unflatten(-1, (-1, D)).transpose(1, 2) for x in (query, key, value))
    k, v = (x.repeat(1, num_heads // x.shape[1], 1, 1) for x in (k, v))
    weights = (q @ k.mT / math.sqrt(D)).softmax(dim=-1)
    return (weights @ v).transpose(1, 2).flatten(-2) @ w_o


def _split_without_transpose(packed, num_heads):
    B, L, _ = packed.shape
    return [part.reshape(B, num_heads, L, -1) for part in packed.chunk(3, dim=-1)]


def _causal_cross_attention(x, encoded, lengths, w_q, w_k, w_v):
    query, key, value = x @ w_q, encoded @ w_k, encoded @ w_v
    L, S = query.shape[1], key.shape[1]
    real = torch.arange(S, device=x.device) < lengths[:, None]  # (B, S)
    keep = real[:, None, :] & torch.ones(L, S, device=x.device).tril().bool()  # is_causal, where nobody said no
    scores = query @ key.mT / math.sqrt(key.shape[-1])
    return scores.masked_fill(~keep, -math.inf).softmax(dim=-1) @ value


def _exponent_counted_twice(length, embed_dim):
    column = torch.arange(embed_dim)
    angle = torch.arange(length)[:, None] / 10000.0 ** (2 * column / embed_dim)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos())


def _floor_division(length, embed_dim):
    pair = torch.arange(embed_dim // 2)
    frequency = torch.exp(pair * (-math.log(10000.0) / embed_dim // 2))
    angle = torch.arange(length)[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


def _one_position_for_all(x, table, attention):
    return attention(x + table[x.shape[1]])


def _batch_taken_for_the_sequence(x, table, attention):
    x = x + table[: x.shape[1]]
    return attention(x.transpose(0, 1)).transpose(0, 1)


def _residual_of_the_norm(x, attention, norm_1, up, down, norm_2):
    x = norm_1(x)
    x = x + attention(x)
    return x + down(F.gelu(up(norm_2(x))))


def _mean_of_perplexities(logits, tokens):
    losses = F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none")  # (B, L - 1)
    return losses.mean(dim=1).exp().mean()


def _temperature_that_cancels(logits, temperature, top_p):
    p = logits.exp() / temperature
    p = p / p.sum(dim=-1, keepdim=True)
    ordered, order = p.sort(dim=-1, descending=True)
    kept = ordered * (ordered.cumsum(dim=-1) - ordered < top_p)
    return torch.zeros_like(p).scatter(-1, order, kept / kept.sum(dim=-1, keepdim=True))


def _positions_kept_by_length(x, table, layers, cache):
    read, L = cache.get("read", 0), x.shape[1]
    cache["read"] = read + L
    if ("positions", L) not in cache:
        cache["positions", L] = table[read : read + L]
    x = x + cache["positions", L]
    seen = torch.ones(L, read + L, device=x.device).tril(diagonal=read).bool()
    for n, layer in enumerate(layers):
        query, key, value = layer(x)
        if n in cache:
            key, value = torch.cat([cache[n][0], key], dim=1), torch.cat([cache[n][1], value], dim=1)
        cache[n] = key, value
        scores = query @ key.mT / math.sqrt(x.shape[-1])
        x = x + scores.masked_fill(~seen, -math.inf).softmax(dim=-1) @ value
    return x


def _causal_from_the_first_key(x, table, layers, cache):
    read, L = cache.get("read", 0), x.shape[1]
    cache["read"] = read + L
    x = x + table[read : read + L]
    for n, layer in enumerate(layers):
        query, key, value = layer(x)
        if n in cache:
            key, value = torch.cat([cache[n][0], key], dim=1), torch.cat([cache[n][1], value], dim=1)
        cache[n] = key, value
        x = x + F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return x


def _patches_by_view(image, patch_size):
    return image.reshape(-1, image.shape[0] * patch_size**2)


def _loss_on_what_is_seen(predicted, patches, visible):
    return (predicted[visible] - patches[visible]).square().mean()


def _padding_in_the_divisor(logits, target, pad):
    wanted = target[:, 1:]
    log_p = logits.log_softmax(dim=-1).gather(-1, wanted[..., None]).squeeze(-1)
    return -(log_p * (wanted != pad)).sum() / wanted.numel()


def _population_deviation(values):
    return values.mean(dim=1), values.std(dim=1, correction=0) / math.sqrt(values.shape[1])


_GITHUB = "https://github.com/"
_SAME = "scaled_dot_product"

PIECES = (
    Piece(
        "A mask in the other convention",
        _GITHUB + "rasbt/LLMs-from-scratch/pull/1062",
        "In the notebooks of a well-known book a causal mask was True where a token must *not* look, and was handed as "
        "it was to torch's scaled_dot_product_attention, where True means that it may. A test now changes later tokens "
        "and looks whether earlier outputs stay.",
        _SAME,
        _mask_of_another_convention,
    ),
    Piece(
        "A language model without a mask",
        _GITHUB + "pytorch/tutorials/issues/2478",
        "PyTorch's own tutorial trained a language model with a TransformerEncoder and gave it no causal mask. A "
        "reader got a perplexity of 2.9, and a model that could not continue a sentence.",
        _SAME,
        _no_mask,
    ),
    Piece(
        "The mask after the softmax",
        _GITHUB + "huggingface/pytorch-image-models/pull/2236",
        "In one model of the widely used timm library the mask was applied to the weights, not to the scores.",
        _SAME,
        _mask_after_the_softmax,
    ),
    Piece(
        "A Boolean mask that is added",
        _GITHUB + "huggingface/diffusers/issues/14342",
        "A Boolean mask reached a kernel that expects numbers to add. True became +1 and False +0, so nothing was "
        "hidden, and what was to be seen weighed e times more.",
        _SAME,
        _boolean_mask_added,
    ),
    Piece(
        "Scores times the mask",
        _GITHUB + "georg-wolflein/good-features/pull/1",
        "The scores of what was to be hidden were multiplied by 0. e⁰ is 1, so padding took part in the average. The "
        "paper's results were spared: it had trained with a batch of 1, without padding.",
        "masked_weights",
        _scores_times_mask,
    ),
    Piece(
        "The softmax over the queries",
        _GITHUB + "labmlai/annotated_deep_learning_paper_implementations/issues/146",
        "In an annotated implementation of a diffusion model, the softmax ran over the axis of the queries. The model "
        "trained all the same; who found it measured no difference in quality at first.",
        _SAME,
        _softmax_over_the_queries,
    ),
    Piece(
        "Divided by a scale that was to be multiplied",
        _GITHUB + "esceptico/perceiver-io/issues/9",
        "The variable `scale` was D to the power of −½, which is a factor. It was used as a divisor.",
        _SAME,
        _divided_by_the_scale,
    ),
    Piece(
        "The scale of another width",
        _GITHUB + "lucidrains/vit-pytorch/issues/65",
        "The scores of each head were divided by the root of the embedding's width, where the root of the head's "
        "width belongs. The author: “i've been coding Attention for nearly a year now and still making rookie "
        "mistakes”.",
        "grouped_attention",
        _scaled_by_the_whole_width,
    ),
    Piece(
        "Heads merged as they stand",
        _GITHUB + "jsbaan/transformer-from-scratch/pull/6",
        "The heads were reshaped into one vector without bringing a token's heads together first, so that tokens were "
        "mixed up. The training test passed: copying is so easy that a scrambled model learns it, too.",
        "grouped_attention",
        _heads_merged_as_they_stand,
    ),
    Piece(
        "Key heads dealt out in turn",
        _GITHUB + "ekzhang/jax-js/pull/180",
        "Grouped-query attention tiled the key heads, 0, 1, 0, 1, where neighbours share one, 0, 0, 1, 1.",
        "grouped_attention",
        _heads_tiled,
    ),
    Piece(
        "Split by a view",
        _GITHUB + "reczoo/FuxiCTR/issues/30",
        "Features were split into heads by a view alone. With more than one head the pieces of different tokens end up "
        "in one head. Three models of the library shared the lines, and so did the article that they came from.",
        "split_packed",
        _split_without_transpose,
    ),
    Piece(
        "Cross-attention that is silently causal",
        _GITHUB + "huggingface/transformers/issues/48172",
        "A module that does not say whether it is causal was taken for causal. The cross-attention did not say it, so "
        "without a mask the text saw an image only up to its own position.",
        "look_across",
        _causal_cross_attention,
    ),
    Piece(
        "Every exponent counted twice",
        _GITHUB + "Kyubyong/transformer/issues/38",
        "The exponent 2i/E was computed with i running over all columns. It counts pairs of columns, so the "
        "frequencies fell twice as fast, and sine and cosine of a pair had different ones.",
        "sinusoidal_table",
        _exponent_counted_twice,
    ),
    Piece(
        "Two slashes, and no parentheses",
        _GITHUB + "zju3dv/LoFTR/issues/41",
        "`-math.log(10000.0) / d_model//2` rounds down to −1, because / and // are worked off from left to right. "
        "Parentheses around `d_model//2` were meant. Trained anew, the model was a little better.",
        "sinusoidal_table",
        _floor_division,
    ),
    Piece(
        "One position for all",
        _GITHUB + "DiffPoseTalk/DiffPoseTalk/issues/20",
        "A colon was missing: `pe[:, x.shape[1]]` is one row of the table, and every token got it.",
        "attend_in_order",
        _one_position_for_all,
    ),
    Piece(
        "The batch taken for the sequence",
        _GITHUB + "IBM/TabFormer/pull/14",
        "torch's encoder expected (L, B, E) and got (B, L, E), so rows of a batch attended to one another.",
        "attend_in_order",
        _batch_taken_for_the_sequence,
    ),
    Piece(
        "A residual that is normalized",
        _GITHUB + "Howuhh/faster-trajectory-transformer/issues/3",
        "The block added the attention to the normalized tokens, not to the tokens. The author saw it after the "
        "checkpoints had been published.",
        "pre_norm_block",
        _residual_of_the_norm,
    ),
    Piece(
        "An average of perplexities",
        _GITHUB + "keras-team/keras-hub/pull/2958",
        "The metric averaged the perplexities of batches. A perplexity is the exponential of a mean, and the mean has "
        "to be taken first.",
        "text_perplexity",
        _mean_of_perplexities,
    ),
    Piece(
        "A temperature that cancels",
        _GITHUB + "google/gemma.cpp/pull/981",
        "The temperature divided the exponentials, and the normalization took it out again: the flag had no effect.",
        "nucleus",
        _temperature_that_cancels,
    ),
    Piece(
        "Positions that were kept",
        _GITHUB + "lucidrains/rotary-embedding-torch/issues/11",
        "Rotations were kept in a cache under the length of the chunk, without its offset. The next chunk of the same "
        "length got those of the first.",
        "read_piece",
        _positions_kept_by_length,
    ),
    Piece(
        "Causal, counted from the first key",
        _GITHUB + "lucidrains/x-transformers/issues/187",
        "torch's `is_causal=True` lets query i see the keys up to i. With a cache the first query is not at position "
        "0, and the new token saw the first key alone.",
        "read_piece",
        _causal_from_the_first_key,
    ),
    Piece(
        "Patches by a view",
        _GITHUB + "duoan/TorchCode/issues/21",
        "An image was cut by `view`, which takes pixels in reading order: strips, not patches. It was no slip of a "
        "model but of a test: a collection of exercises accepted it as right.",
        "cut_into_patches",
        _patches_by_view,
    ),
    Piece(
        "A loss on what is seen",
        _GITHUB + "Sllambias/asparagus/pull/12",
        "A masked autoencoder with a mask of the other convention: its loss was that of the visible patches, which "
        "the encoder had been shown.",
        "hidden_loss",
        _loss_on_what_is_seen,
    ),
    Piece(
        "Padding in the divisor",
        _GITHUB + "neulab/xnmt/pull/229",
        "The perplexity of a translation toolkit counted padding among the words that it divided by. Quality as "
        "translations did not change; the reported perplexities did.",
        "answer_loss",
        _padding_in_the_divisor,
    ),
    Piece(
        "A deviation of the whole population",
        _GITHUB + "google/benchmark/issues/371",
        "A benchmark library divided by n in the variance of a few repetitions. They are a sample: n − 1.",
        "seed_spread",
        _population_deviation,
    ),
)


def diagnosis(piece: Piece, seed: int = 0) -> Diagnosis:
    """What the checker of its exercise says about a bug."""
    return EXERCISES[piece.exercise].diagnose(piece.code, seed=seed)


def source(piece: Piece) -> str:
    """The code of a bug, under the name of its exercise."""
    return inspect.getsource(piece.code).replace(f"def {piece.code.__name__}(", f"def {piece.exercise}(")
