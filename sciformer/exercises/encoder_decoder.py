"""Exercises of notebook 11: encoder and decoder.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise

_TWO = "Two sequences"
_CROSS = "Cross-attention"
_FORCING = "Teacher forcing"
_DEAF = "Break it: a decoder that ignores its source"
_BEAM = "Beam search"


def _mean_over(losses: Tensor, counts: Tensor) -> Tensor:
    return (losses * counts).sum() / counts.sum()


def answer_loss(
    logits: Tensor,
    target: Tensor,
    pad: int,
    *,
    wanted: Callable[..., Tensor] = lambda target: target[:, 1:],
    log_p: Callable[..., Tensor] = lambda logits: logits.log_softmax(dim=-1),
    counts: Callable[..., Tensor] = lambda target, wanted, pad: wanted != pad,
    mean: Callable[..., Tensor] = _mean_over,
    sign: Callable[..., Tensor] = lambda loss: -loss,
) -> Tensor:
    """Mean of −log p of each next token, padding left out, ()."""
    following = wanted(target)  # (B, L)
    found = log_p(logits).gather(-1, following[..., None]).squeeze(-1)  # (B, L)
    return sign(mean(found, counts(target, following, pad).to(found.dtype)))


def _answer_loss_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, lengths: list[int], longest: int, vocab: int, pad: int) -> Case:
        """Targets of so many tokens; start is the vocabulary's last token, and end the one before it."""
        target = torch.full((len(lengths), longest), pad)
        for row, length in enumerate(lengths):
            # Not all tokens alike, so that a target and its shifted copy differ.
            inner = torch.arange(length - 2) % (vocab - 3) + (pad == 0)
            target[row, :length] = torch.cat([torch.tensor([vocab - 1]), inner, torch.tensor([vocab - 2])])
        logits = 2 * draw.normal(len(lengths), longest - 1, vocab)
        return Case(name, {"logits": logits, "target": target.to(draw.device), "pad": pad})

    yield case("1 target of 1 letter, no padding", [3], 3, 4, 0)
    yield case("1 target of 2 letters, 1 token of padding", [4], 5, 5, 0)
    yield case("3 targets of 1, 3 and 4 letters", [3, 5, 6], 6, 7, 0)
    yield case("2 targets of 3 and 5 letters, padding is token 2", [5, 7], 7, 5, 2)


_ANSWER_LOSS_FAULTS = (
    Fault(
        "last position left out",
        "The last logits and the last token are left out, so that the end of the longest targets does not count. There "
        "are as many logits as tokens to predict, target[:, 1:].",
        counts=lambda target, wanted, pad: F.pad((wanted != pad)[:, :-1], (0, 1)),
    ),
    Fault(
        "not shifted",
        "Each position is asked for the token that it reads. It should predict the next one: target[:, 1:].",
        wanted=lambda target: target[:, :-1],
    ),
    Fault(
        "padding counted",
        "Padding counts as an answer. Leave out the positions where the answer is padding.",
        counts=lambda target, wanted, pad: torch.ones_like(wanted, dtype=torch.bool),
    ),
    Fault(
        "padding of what is read",
        "The mask is taken from what is read, so that the position after the end counts, too. "
        "Take it from what should be predicted.",
        counts=lambda target, wanted, pad: target[:, :-1] != pad,
    ),
    Fault(
        "end left out",
        "The end token is left out. It has to be learned like any other, or the model never stops.",
        counts=lambda target, wanted, pad: torch.cat([wanted[:, 1:] != pad, torch.zeros_like(wanted[:, :1])], dim=1),
    ),
    Fault(
        "padding is 0",
        "Token 0 is taken for padding. `pad` says which token it is.",
        counts=lambda target, wanted, pad: wanted != 0,
    ),
    Fault(
        "mask inverted",
        "The mask is the wrong way round: only padding counts.",
        counts=lambda target, wanted, pad: wanted == pad,
    ),
    Fault(
        "divided by all positions",
        "The sum is divided by the number of all positions. Divide by the number of those that count.",
        mean=lambda losses, counts: (losses * counts).mean(),
    ),
    Fault(
        "sum",
        "It is the sum over the positions. The mean is wanted.",
        mean=lambda losses, counts: (losses * counts).sum(),
    ),
    Fault(
        "divided by the batch",
        "The sum is divided by the number of sequences. Divide by the number of positions that count.",
        mean=lambda losses, counts: (losses * counts).sum() / len(losses),
    ),
    Fault(
        "mean of means",
        "Each sequence has its own mean, and these are averaged: a letter of a long one then counts less. "
        "Sum over all positions, then divide once.",
        mean=lambda losses, counts: ((losses * counts).sum(dim=1) / counts.sum(dim=1)).mean(),
    ),
    Fault("sign missing", "The sign is missing: a loss is −log p.", sign=lambda loss: loss),
    Fault(
        "softmax over the positions",
        "The softmax runs over the positions. It runs over the vocabulary, the last axis.",
        log_p=lambda logits: logits.log_softmax(dim=1),
    ),
    Fault(
        "softmax over the batch",
        "The softmax runs over the sequences. It runs over the vocabulary, the last axis.",
        log_p=lambda logits: logits.log_softmax(dim=0),
    ),
    Fault(
        "no softmax",
        "The logits are taken for logarithms of probabilities. log_softmax turns them into these.",
        log_p=lambda logits: logits,
    ),
    Fault(
        "no logarithm",
        "It is the mean of the probabilities. Take their logarithms: log_softmax.",
        log_p=lambda logits: logits.softmax(dim=-1),
    ),
    Fault(
        "softmax twice",
        "There are two softmaxes, one after the other; F.cross_entropy has one inside.",
        log_p=lambda logits: logits.softmax(dim=-1).log_softmax(dim=-1),
    ),
)


def _hide(scores: Tensor, real: Tensor) -> Tensor:
    return scores.masked_fill(~real[:, None, :], -math.inf)


def look_across(
    x: Tensor,
    encoded: Tensor,
    lengths: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    *,
    of: Callable[..., tuple[Tensor, Tensor, Tensor]] = lambda x, encoded: (x, encoded, encoded),
    weights: Callable[..., tuple[Tensor, Tensor, Tensor]] = lambda w_q, w_k, w_v: (w_q, w_k, w_v),
    scale: Callable[..., float] = lambda E, D: D**-0.5,
    real: Callable[..., Tensor] = lambda positions, lengths: positions < lengths[:, None],
    mask: Callable[..., Tensor] = _hide,
    softmax: Callable[..., Tensor] = lambda scores: scores.softmax(dim=-1),
    after: Callable[..., Tensor] = lambda weights, real: weights,
) -> Tensor:
    """Cross-attention of one head, (B, L, D)."""
    q_of, k_of, v_of = of(x, encoded)
    w_q, w_k, w_v = weights(w_q, w_k, w_v)
    scores = scale(*w_q.shape) * (q_of @ w_q) @ (k_of @ w_k).mT  # (B, L, S)
    keep = real(torch.arange(encoded.shape[1], device=x.device), lengths)  # (B, S)
    found = after(softmax(mask(scores, keep)), keep)
    return found @ (v_of @ w_v)


def _look_across_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, lengths: list[int], target: int, source: int, embed_dim: int, head_dim: int) -> Case:
        inputs = {
            "x": draw.normal(len(lengths), target, embed_dim),
            "encoded": draw.normal(len(lengths), source, embed_dim),
            "lengths": torch.tensor(lengths, device=draw.device),
            **{name: draw.normal(embed_dim, head_dim) for name in ("w_q", "w_k", "w_v")},
        }
        return Case(name, inputs)

    yield case("2 target tokens, 2 source tokens", [2], 2, 2, 2, 2)
    yield case("3 target tokens, 3 source tokens, the last of them padding", [2], 3, 3, 2, 2)
    yield case("3 target tokens, 3 source tokens, padding in two of three", [2, 3, 1], 3, 3, 3, 2)
    yield case("4 target tokens, 4 source tokens, padding in one of two", [4, 2], 4, 4, 3, 5)
    yield case("3 target tokens, 5 source tokens, padding in one of two", [3, 5], 3, 5, 4, 3)


_LOOK_ACROSS_FAULTS = (
    Fault(
        "cut to the longest length",
        "The sources are cut to the longest one's length, so that shorter ones still show padding. Each has a length "
        "of its own.",
        see=_TWO,
        real=lambda positions, lengths: (positions < lengths.max()).expand(len(lengths), -1),
    ),
    Fault(
        "padding set to 0",
        "Padding is set to 0, but a score of 0 still takes weight, since e^0 is 1. Hide it before the softmax: −∞.",
        see=_TWO,
        mask=lambda scores, real: scores.masked_fill(~real[:, None], 0.0),
        after=lambda weights, real: weights * real[:, None],
    ),
    Fault(
        "mask without an axis for the queries",
        "The mask is (B, S), and meets the scores (B, L, S) as if its rows were queries. Give it an axis: (B, 1, S).",
        see=_TWO,
        mask=lambda scores, real: scores.masked_fill(~real, -math.inf),
    ),
    Fault(
        "keys and values from the decoder",
        "Keys and values are made of x, so that the source is never seen. They are made of the encoder's output.",
        see=_DEAF,
        of=lambda x, encoded: (x, x, x),
    ),
    Fault(
        "values from the decoder",
        "The values are made of x. The source is looked at, but what is brought back comes from the decoder.",
        see=_DEAF,
        of=lambda x, encoded: (x, encoded, x),
    ),
    Fault(
        "keys from the decoder",
        "The keys are made of x, so that where to look in the source does not depend on the source.",
        see=_DEAF,
        of=lambda x, encoded: (x, x, encoded),
    ),
    Fault(
        "roles exchanged",
        "The two are exchanged: queries come from x, keys and values from the encoder's output.",
        of=lambda x, encoded: (encoded, x, x),
    ),
    Fault(
        "queries from the source",
        "The queries are made from the encoder's output, so that they do not depend on the decoder. Make them from x.",
        of=lambda x, encoded: (encoded, encoded, encoded),
    ),
    Fault(
        "w_q and w_k exchanged",
        "Two projections are exchanged: w_q makes the queries, w_k the keys.",
        weights=lambda w_q, w_k, w_v: (w_k, w_q, w_v),
    ),
    Fault(
        "values like the keys",
        "The values are made with w_k. They have a projection of their own, w_v.",
        weights=lambda w_q, w_k, w_v: (w_q, w_k, w_k),
    ),
    Fault("no scale", "The scores are not divided by √D.", scale=lambda E, D: 1.0),
    Fault(
        "divided by D",
        "The scores are divided by D, or twice by √D: torch's own function divides by it, too. Once is right.",
        scale=lambda E, D: 1 / D,
    ),
    Fault("multiplied by √D", "The scores are multiplied by √D. Divide by it.", scale=lambda E, D: D**0.5),
    Fault(
        "scaled by the embedding",
        "The scores are divided by √E. D, the size of queries and keys, is what counts.",
        scale=lambda E, D: E**-0.5,
    ),
    Fault(
        "padding ignored",
        "The padding of the source is looked at. Hide the positions from each length on.",
        see=_TWO,
        mask=lambda scores, real: scores,
    ),
    Fault(
        "mask inverted",
        "The mask is the wrong way round: padding is seen, and the real tokens are hidden.",
        see=_TWO,
        mask=lambda scores, real: _hide(scores, ~real),
    ),
    Fault(
        "padding on the wrong axis",
        "The padding mask stands on the queries' axis. It hides keys, the last axis: (B, 1, S).",
        see=_TWO,
        mask=lambda scores, real: scores.masked_fill(~real[:, :, None], -math.inf),
    ),
    Fault(
        "filled with 0",
        "Hidden scores are set to 0, and exp(0) is 1. Set them to −∞.",
        see=_TWO,
        mask=lambda scores, real: scores.masked_fill(~real[:, None, :], 0.0),
    ),
    Fault(
        "mask after the softmax",
        "The weights are hidden after the softmax, so that what is left does not add up to 1. Hide the scores.",
        see=_TWO,
        mask=lambda scores, real: scores,
        after=lambda weights, real: weights * real[:, None, :],
    ),
    Fault(
        "one too many",
        "One padding token is seen: positions count from 0, so the real ones are those below the length.",
        see=_TWO,
        real=lambda positions, lengths: positions <= lengths[:, None],
    ),
    Fault(
        "one too few",
        "The last real token is hidden, too: the real positions are those below the length.",
        see=_TWO,
        real=lambda positions, lengths: positions < lengths[:, None] - 1,
    ),
    Fault(
        "causal",
        "There is a causal mask. The whole source is there before the first token is written: hide padding only.",
        see=_TWO,
        mask=lambda scores, real: _hide(scores, real).masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf),
    ),
    Fault(
        "softmax over the queries",
        "The softmax runs over the queries. For each of them, the weights over the source add up to 1: dim=-1.",
        softmax=lambda scores: scores.softmax(dim=-2),
    ),
    Fault(
        "no softmax",
        "There is no softmax: scores are not weights.",
        mask=lambda scores, real: scores * real[:, None, :],
        softmax=lambda scores: scores,
    ),
)


def _next_log_p(logits: Tensor) -> Tensor:
    return logits.log_softmax(dim=-1)


def _freeze(log_p: Tensor, ended: Tensor, pad: int) -> Tensor:
    only_pad = torch.full_like(log_p[0], -math.inf)
    only_pad[pad] = 0.0
    return torch.where(ended[:, None], only_pad, log_p)


def _freeze_and_forbid(log_p: Tensor, ended: Tensor, pad: int) -> Tensor:
    without = log_p.clone()
    without[~ended, pad] = -math.inf
    return _freeze(without, ended, pad)


def _best(candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Index among all, and value, best first."""
    found = candidates.flatten().topk(len(candidates))
    return found.indices, found.values


def _each_its_best(candidates: Tensor) -> tuple[Tensor, Tensor]:
    values, tokens = candidates.max(dim=1)
    return torch.arange(len(candidates), device=values.device) * candidates.shape[1] + tokens, values


def _each_its_best_in_order(candidates: Tensor) -> tuple[Tensor, Tensor]:
    indices, values = _each_its_best(candidates)
    order = values.argsort(descending=True)
    return indices[order], values[order]


def _ended_and_best(candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Every target that has ended, whose padding alone is possible, and the best others beside them."""
    values, tokens = candidates.max(dim=1)
    ended = candidates.isfinite().sum(dim=1) == 1
    kept = (torch.arange(len(candidates), device=values.device) * candidates.shape[1] + tokens)[ended]
    others = candidates.masked_fill(ended[:, None], -math.inf).flatten().topk(len(candidates) - len(kept)).indices
    index = torch.cat([kept, others])
    found = candidates.flatten()[index]
    order = found.argsort(descending=True)
    return index[order], found[order]


def _worst(candidates: Tensor) -> tuple[Tensor, Tensor]:
    finite = candidates.flatten().masked_fill(candidates.flatten().isinf(), math.inf)
    found = finite.topk(len(candidates), largest=False)
    return found.indices, found.values


def widen_and_keep(
    log_p: Tensor,
    logits: Tensor,
    ended: Tensor,
    pad: int,
    *,
    next_log_p: Callable[..., Tensor] = _next_log_p,
    freeze: Callable[..., Tensor] = _freeze,
    total: Callable[..., Tensor] = lambda log_p, step: log_p[:, None] + step,
    best: Callable[..., tuple[Tensor, Tensor]] = _best,
    split: Callable[..., tuple[Tensor, Tensor]] = lambda index, V, K: (index // V, index % V),
    value: Callable[..., Tensor] = lambda values, log_p, parent: values,
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of beam search: parents (K,), tokens (K,) and log-probabilities (K,) of the K best."""
    K, V = logits.shape
    index, values = best(total(log_p, freeze(next_log_p(logits), ended, pad)))
    parent, token = split(index, V, K)
    return parent, token, value(values, log_p, parent)


def _widen_and_keep_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, log_p: list[float], vocab: int, ended: list[bool], pad: int = 0) -> Case:
        K = len(log_p)
        # Distinct numbers, so that no two candidates are equally good.
        logits = (draw.permutation(K * vocab).view(K, vocab) / 10 + draw.permutation(K).view(K, 1) / 50).to(draw.dtype)
        return Case(
            name,
            {
                "log_p": torch.tensor(log_p, dtype=draw.dtype, device=draw.device),
                "logits": logits,
                "ended": torch.tensor(ended, device=draw.device),
                "pad": pad,
            },
        )

    yield case("2 targets, the first far better", [-0.5, -9.0], 3, [False, False])
    yield case("2 targets, nearly as good", [-1.03, -1.0], 3, [False, False])
    yield case("2 targets, the better one has ended", [-0.3, -0.6], 4, [True, False])
    yield case("3 targets, the best has ended, the next is far behind", [-0.4, -7.0, -7.3], 5, [True, False, False], 3)
    yield case("4 targets, two have ended", [-2.5, -1.1, -1.7, -6.0], 5, [False, True, False, True], 1)


_WIDEN_AND_KEEP_FAULTS = (
    Fault(
        "the ended always stay",
        "A target that has ended always keeps a place, even where better ones would push it out. Its log-probability "
        "is kept as it is, and it competes with all others for the K places.",
        best=_ended_and_best,
    ),
    Fault(
        "probabilities added",
        "A probability is added to a logarithm. Add logarithms: log_softmax.",
        next_log_p=lambda logits: logits.softmax(dim=-1),
    ),
    Fault(
        "logits not normalised",
        "The logits are added as they are. Only log_softmax makes them logarithms of probabilities.",
        next_log_p=lambda logits: logits,
    ),
    Fault(
        "softmax over the targets",
        "The softmax runs over the K targets. It runs over the vocabulary: dim=-1.",
        next_log_p=lambda logits: logits.log_softmax(dim=0),
    ),
    Fault(
        "softmax over everything",
        "One softmax runs over all K · V logits. Each target has its own distribution of the next token: dim=-1.",
        next_log_p=lambda logits: logits.flatten().log_softmax(dim=0).view_as(logits),
    ),
    Fault(
        "softmax over everything, the past included",
        "One softmax runs over all K · V sums of a logit and a log-probability. Each target has its own distribution "
        "of the next token: log_softmax(dim=-1) of the logits alone, and then add `log_p`.",
        next_log_p=lambda logits: logits,
        total=lambda log_p, step: (log_p[:, None] + step).flatten().log_softmax(dim=0).view_as(step),
    ),
    Fault(
        "pad forbidden",
        "Your step forbids `pad` to the targets that have not ended. It should allow them every token, and only bind "
        "those that have ended to `pad`.",
        freeze=_freeze_and_forbid,
    ),
    Fault(
        "past forgotten",
        "Only the next token counts. Add its log-probability to the one that each target has so far, behind the "
        "log-softmax: added to the logits before it, it would cancel.",
        total=lambda log_p, step: step.clone(),
    ),
    Fault(
        "past cancelled",
        "What a target has so far counts only if it has ended. For the others `log_p` is lost: added to the logits, it "
        "is the same for all tokens and cancels in the log-softmax. Take that of the logits alone, then add `log_p`.",
        total=lambda log_p, step: torch.where(step.isinf().any(dim=1, keepdim=True), log_p[:, None] + step, step),
    ),
    Fault(
        "multiplied",
        "The logarithms are multiplied. Probabilities multiply; their logarithms add up.",
        total=lambda log_p, step: (log_p[:, None] * step).nan_to_num(neginf=-math.inf, posinf=-math.inf),
    ),
    Fault(
        "added along the wrong axis",
        "The log-probabilities meet the wrong axis. Target k's belongs to all of row k: log_p[:, None].",
        total=lambda log_p, step: step + log_p.repeat(step.shape[1])[: step.shape[1]],
    ),
    Fault(
        "each its best",
        "Each target goes on with its own best token. Take the K best of all K · V: several may share a beginning, and "
        "one may be dropped.",
        best=_each_its_best_in_order,
    ),
    Fault(
        "each its best, not sorted",
        "Each target goes on with its own best token, in its old position. Take the K best of all K · V, best first.",
        best=_each_its_best,
    ),
    Fault("the worst", "The K worst are kept. topk takes the largest by itself.", best=_worst),
    Fault(
        "end ignored",
        "A target that has ended goes on writing. It may only be filled up with `pad`, at no cost.",
        freeze=lambda log_p, ended, pad: log_p,
    ),
    Fault(
        "ended ones dropped",
        "Targets that have ended are dropped. They stay as they are, with `pad` at no cost, and compete.",
        freeze=lambda log_p, ended, pad: log_p.masked_fill(ended[:, None], -math.inf),
    ),
    Fault(
        "pad at its price",
        "An ended target gets the model's log-probability for its padding. Padding is not a choice: its "
        "log-probability is 0.",
        freeze=lambda log_p, ended, pad: torch.where(
            ended[:, None] & (torch.arange(log_p.shape[1], device=log_p.device) != pad), -math.inf, log_p
        ),
    ),
    Fault(
        "padding free for all",
        "Padding costs nothing for any target. Only one that has ended gets it at no cost.",
        freeze=lambda log_p, ended, pad: torch.where(
            torch.arange(log_p.shape[1], device=log_p.device) == pad, 0.0, log_p.masked_fill(ended[:, None], -math.inf)
        ),
    ),
    Fault(
        "ended may go on",
        "An ended target gets `pad` at no cost, but its other tokens keep their log-probabilities, so that it may go "
        "on writing. Put all of its tokens but `pad` at −∞.",
        freeze=lambda log_p, ended, pad: torch.where(
            ended[:, None] & (torch.arange(log_p.shape[1], device=log_p.device) == pad), 0.0, log_p
        ),
    ),
    Fault(
        "padding is 0",
        "Ended targets are filled up with token 0. `pad` says which token it is.",
        freeze=lambda log_p, ended, pad: _freeze(log_p, ended, 0),
    ),
    Fault(
        "ended write anything",
        "An ended target may write any token at no cost. Everything but `pad` is at −∞.",
        freeze=lambda log_p, ended, pad: log_p.masked_fill(ended[:, None], 0.0),
    ),
    Fault(
        "parent and token exchanged",
        "Parent and token are exchanged: first comes the target that is continued, then the token that is written.",
        split=lambda index, V, K: (index % V, index // V),
    ),
    Fault(
        "not divided",
        "The parent is given as an index among all K · V candidates. Its row is index // V.",
        split=lambda index, V, K: (index, index % V),
    ),
    Fault(
        "divided by K",
        "The index among all candidates is divided by K. Each row has V of them: index // V and index % V.",
        split=lambda index, V, K: (index // K, index % K),
    ),
    Fault(
        "probabilities",
        "What is returned are probabilities. Their logarithms are wanted.",
        value=lambda values, log_p, parent: values.exp(),
    ),
    Fault(
        "log-probability of the step",
        "What is returned is the log-probability of the last token. That of the whole target is wanted.",
        value=lambda values, log_p, parent: values - log_p[parent],
    ),
    Fault(
        "log-probability of the parent",
        "What is returned is the parents' log-probability. The new token's has to be in it.",
        value=lambda values, log_p, parent: log_p[parent],
    ),
    Fault(
        "an end without a past",
        "A target that has ended gets a log-probability of 0 in all. It keeps the one that it has: the step costs "
        "nothing, and is added to it.",
        total=lambda log_p, step: torch.where(step == 0, step, log_p[:, None] + step),
    ),
)


EXERCISES = (
    Exercise(
        answer_loss,
        notebook="11",
        section=_FORCING,
        level="easy",
        minutes=6,
        hints=(
            "What is read at position $t$ is `target[:, t]`. What has to be named there?",
            "`log_softmax(dim=-1)`, then `gather` the wanted tokens: (B, L, V) becomes (B, L). Then keep the "
            "positions where padding is not wanted.",
        ),
        large=("logits",),
        cases=_answer_loss_cases,
        faults=_ANSWER_LOSS_FAULTS,
    ),
    Exercise(
        look_across,
        notebook="11",
        section=_CROSS,
        level="middle",
        minutes=10,
        hints=(
            "Which of the two gives the queries, and which the keys and values? Then: which keys may be seen, and on "
            "which axis of the scores do they stand?",
            "`torch.arange(S) < lengths[:, None]` is (B, S). The scores are (B, L, S).",
        ),
        large=("x",),
        cases=_look_across_cases,
        faults=_LOOK_ACROSS_FAULTS,
    ),
    Exercise(
        widen_and_keep,
        notebook="11",
        section=_BEAM,
        level="hard",
        minutes=15,
        hints=(
            "There are K · V candidates, each with a log-probability. In the row of an ended target, all but "
            "one have to be impossible.",
            "`topk` of the flattened (K, V) gives indices from 0 to K · V − 1. Row and column follow by dividing by V.",
        ),
        cases=_widen_and_keep_cases,
        faults=_WIDEN_AND_KEEP_FAULTS,
        returns=("parent", "token", "log-probability"),
        differentiable=False,
    ),
)
