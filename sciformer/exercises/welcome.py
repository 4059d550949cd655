"""Exercises of notebook 00: a look at one word, a mask, and weights under a mask."""

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise
from sciformer.functional import causal_mask

_IDEA = "The one idea"
_MASK = "A mask"


def new_vector(
    scores: Tensor,
    value: Tensor,
    *,
    normalize: Callable[..., Tensor] = lambda scores: scores.softmax(dim=0),
    mix: Callable[..., Tensor] = lambda weights, value: weights @ value,
) -> Tensor:
    """Average of the words' vectors, weighted by the softmax of their scores, (D,)."""
    return mix(normalize(scores), value)


def _new_vector_cases(draw: Draw) -> Iterator[Case]:
    for words, head_dim in ((2, 2), (3, 5), (7, 4), (3, 1), (1, 3)):
        name = f"{words} word{'s' * (words > 1)} with {head_dim} feature{'s' * (head_dim > 1)} each"
        scores, value = draw.normal(words), draw.normal(words, head_dim)
        if torch.equal(value, value.T):
            value[0, 1] += 0.5  # rows and columns taken for each other have to show
        yield Case(name, {"scores": scores, "value": value})


_NEW_VECTOR_FAULTS = (
    Fault(
        "no softmax",
        "There is no softmax: the scores themselves are taken as weights, so they need not sum to 1.",
        normalize=lambda scores: scores,
    ),
    Fault(
        "no exponential",
        "The scores are divided by their sum, without the exponential. Such weights sum to 1, but can be negative.",
        normalize=lambda scores: scores / scores.sum(),
    ),
    Fault(
        "not divided",
        "The exponentials are not divided by their sum, so the weights do not sum to 1.",
        normalize=lambda scores: scores.exp(),
    ),
    Fault(
        "softmax twice",
        "The softmax is taken twice; the second one makes the weights nearly equal.",
        normalize=lambda scores: scores.softmax(dim=0).softmax(dim=0),
    ),
    Fault(
        "sign of the scores",
        "This is the softmax of −scores: the word that answers worst gets the largest weight.",
        normalize=lambda scores: (-scores).softmax(dim=0),
    ),
    Fault(
        "best word only",
        "This is the vector of the word with the largest score. The softmax mixes all words, and a larger score counts "
        "for more.",
        normalize=lambda scores: F.one_hot(scores.argmax(), len(scores)).to(scores),
    ),
    Fault(
        "plain mean",
        "This is the plain mean of the vectors: the scores have no effect.",
        normalize=lambda scores: torch.full_like(scores, 1 / len(scores)),
    ),
    Fault(
        "mean in place of sum",
        "The weighted vectors are averaged, which divides by the number of words as well. The weights already sum to "
        "1, so the vectors only have to be added.",
        mix=lambda weights, value: weights @ value / len(value),
    ),
    Fault(
        "not added up",
        "These are the weighted vectors one by one. The output is their sum, a single vector.",
        mix=lambda weights, value: weights[:, None] * value,
    ),
    Fault(
        "features added up",
        "It is value @ weights, which adds up along each vector. Row j of `value` is the vector of word j, so that "
        "weights @ value adds up over the words.",
        mix=lambda weights, value: value @ weights,
    ),
    Fault(
        "softmax last",
        "The softmax comes last, over the dimensions of the output. It belongs to the scores, before the vectors come "
        "in.",
        normalize=lambda scores: scores,
        mix=lambda weights, value: (weights @ value).softmax(dim=0),
    ),
    Fault(
        "weights returned",
        "These are the weights. The output is their product with the vectors.",
        mix=lambda weights, value: weights,
    ),
    Fault(
        "exponential of the sum",
        "The exponentials are divided by the exponential of the sum of the scores. Divide by the sum of the "
        "exponentials, so that the weights sum to 1.",
        normalize=lambda scores: scores.exp() / scores.sum().exp(),
    ),
)


def recent_words(
    length: int,
    back: int,
    *,
    past: Callable[..., Tensor] = lambda steps: steps >= 0,
    near: Callable[..., Tensor] = lambda steps, back: steps <= back,
    turn: Callable[..., Tensor] = lambda mask: mask,
) -> Tensor:
    """A mask: True where key j is query i itself or one of the ``back`` words before it, (L, L)."""
    position = torch.arange(length)  # (L,)
    steps = position[:, None] - position  # (L, L): how far word j lies behind word i
    return turn(past(steps) & near(steps, back))


def _slices(steps: Tensor, back: int) -> Tensor:
    """Python's own reading of ``row[i - back : i + 1]``, where negative indices count from the end."""
    mask = torch.zeros_like(steps, dtype=torch.bool)
    for i in range(len(mask)):
        mask[i, i - back : i + 1] = True
    return mask


def _recent_words_cases(draw: Draw) -> Iterator[Case]:
    drawn = int(draw.integers(6, 10, 1))
    for length, back in ((3, 1), (2, 0), (5, 2), (drawn, 3), (3, 4)):
        words = {0: "only itself", 1: "1 word back"}.get(back, f"{back} words back")
        yield Case(f"{length} words, {words}", {"length": length, "back": back})


def _full_windows(mask: Tensor) -> Tensor:
    """As many words for each as the one that sees most of them, from its first word on."""
    widest, first = int(mask.sum(dim=-1).max()), mask.int().argmax(dim=-1, keepdim=True)
    position = torch.arange(mask.shape[-1])
    return (position >= first) & (position < first + widest)


_RECENT_WORDS_FAULTS = (
    Fault(
        "mask inverted",
        "The mask is the wrong way round: True has to stand where a word may look.",
        turn=torch.logical_not,
    ),
    Fault(
        "turned to the future",
        "Each word looks at those after it: row i is the word that looks, column j the word that it looks at. "
        "j must not be larger than i.",
        turn=lambda mask: mask.T,
    ),
    Fault(
        "both sides",
        "Each word sees as many words after it as before it. The words to come must stay hidden.",
        past=lambda steps: steps == steps,
        near=lambda steps, back: steps.abs() <= back,
    ),
    Fault(
        "future open",
        "The mask limits the look back, but all words to come are visible.",
        past=lambda steps: steps == steps,
    ),
    Fault(
        "limit ahead",
        "Each word sees everything before it, and `back` words to come. The limit belongs on the other side, and no "
        "word to come may be seen.",
        past=lambda steps: steps == steps,
        near=lambda steps, back: steps >= -back,
    ),
    Fault(
        "sign of back",
        "The limit has the wrong sign: i − j ≤ −back leaves next to nothing. With triu it is triu(-back), since the "
        "past lies below the diagonal.",
        near=lambda steps, back: steps <= -back,
    ),
    Fault(
        "negative indices",
        "For the first words i − back is negative, and Python counts negative indices from the end. Begin at "
        "max(0, i − back).",
        near=_slices,
    ),
    Fault(
        "negative range",
        "For the first words i − back is negative, and index −1 is the last word: they look at the end of the "
        "sentence. Begin at max(0, i − back).",
        past=lambda steps: steps == steps,
        near=lambda steps, back: steps % len(steps) <= back,
    ),
    Fault(
        "itself hidden",
        "A word does not see itself, the diagonal of the mask, although it may.",
        past=lambda steps: steps > 0,
    ),
    Fault(
        "no limit",
        "No word looks ahead, but each word sees all the words before it. Only the last `back` of them are allowed.",
        near=lambda steps, back: steps == steps,
    ),
    Fault(
        "one too few",
        "Each word sees one word too few: itself and `back` words before it make `back` + 1.",
        near=lambda steps, back: steps < back,
    ),
    Fault(
        "itself among them",
        "A word counts itself among the `back` words before it, and so sees one too few of them. It sees itself, and "
        "`back` words besides.",
        near=lambda steps, back: (steps < back) | (steps == 0),
    ),
    Fault(
        "one too many",
        "Each word sees one word too many: besides itself it may see `back` words, no more.",
        near=lambda steps, back: steps <= back + 1,
    ),
    Fault(
        "one word only",
        "Each word sees a single word, the one exactly `back` positions before it. The words in between and the word "
        "itself are allowed as well.",
        near=lambda steps, back: steps == back,
    ),
    Fault(
        "limit turned round",
        "Each word sees the words that lie `back` positions before it or further. It should see the nearer ones.",
        near=lambda steps, back: steps >= back,
    ),
    Fault(
        "as many words for all",
        "Every word sees back + 1 words. The first ones have fewer before them, and so they see words that come after "
        "them. The window ends at the word itself.",
        turn=lambda mask: _full_windows(mask),
    ),
)


def mask_afterwards(
    weights: Tensor,
    attn_mask: Tensor,
    *,
    hide: Callable[..., Tensor] = lambda weights, mask: weights * mask,
    share: Callable[..., Tensor] = lambda kept, mask: kept / kept.sum(dim=-1, keepdim=True),
) -> Tensor:
    """The weights that the softmax would have given under the mask, (L, L)."""
    return share(hide(weights, attn_mask), attn_mask)


def _shares(draw: Draw, length: int) -> Tensor:
    """Rows of tenths that sum to 1, none of them 0, (L, L)."""
    rows = []
    for _ in range(length):
        cuts = draw.permutation(9)[: length - 1].sort().values + 1
        ends = torch.tensor([0, 10]).to(cuts)
        rows.append(torch.cat([ends[:1], cuts, ends[1:]]).diff())
    return torch.stack(rows).to(draw.dtype) / 10


def _mask_afterwards_cases(draw: Draw) -> Iterator[Case]:
    yield Case(
        "2 words, no looking ahead", {"weights": _shares(draw, 2), "attn_mask": causal_mask(2, device=draw.device)}
    )
    yield Case(
        "3 words, no looking ahead", {"weights": _shares(draw, 3), "attn_mask": causal_mask(3, device=draw.device)}
    )
    for length in (5, 7):
        mask = (draw.integers(0, 3, length, length) > 0).fill_diagonal_(True)
        yield Case(f"{length} words, each with some hidden", {"weights": _shares(draw, length), "attn_mask": mask})
    mask = causal_mask(3, device=draw.device)
    faint = _shares(draw, 3).where(~mask, 1e-6 * _shares(draw, 3))
    yield Case("3 words, hardly any weight on what stays", {"weights": faint / faint.sum(-1, True), "attn_mask": mask})


_MASK_AFTERWARDS_FAULTS = (
    Fault(
        "mask inverted",
        "The mask is the wrong way round: True means 'may attend', so the weight goes where it is False.",
        hide=lambda weights, mask: weights * ~mask,
    ),
    Fault(
        "mask ignored",
        "The mask has no effect: hidden words keep their weight.",
        hide=lambda weights, mask: weights,
    ),
    Fault(
        "rows no longer sum to 1",
        "Hidden words have weight 0, but the rest of the row no longer sums to 1.",
        share=lambda kept, mask: kept,
    ),
    Fault(
        "softmax once more",
        "The softmax is taken once more, with the weights as its scores, which makes them nearly equal. Visible words "
        "have to keep their proportions.",
        share=lambda kept, mask: kept.masked_fill(kept == 0, -math.inf).softmax(dim=-1),
    ),
    Fault(
        "−∞ as a weight",
        "Hidden words have the weight −∞. That is for scores, before the softmax. A weight is hidden by 0, and then "
        "the row has to sum to 1 again.",
        share=lambda kept, mask: kept.masked_fill(kept == 0, -math.inf),
    ),
    Fault(
        "0 as a score",
        "The logarithms are scores indeed, but hidden ones are set to 0, and e⁰ = 1 is a weight like any other.",
        hide=lambda weights, mask: weights.log() * mask,
        share=lambda kept, mask: kept.softmax(dim=-1),
    ),
    Fault(
        "softmax of the zeros",
        "The softmax is taken once more, over a row with zeros in it; but e⁰ = 1, so hidden words get weight again.",
        share=lambda kept, mask: kept.softmax(dim=-1),
    ),
    Fault(
        "columns sum to 1",
        "What is left is divided by the sums of the columns. Each row has to sum to 1: dim=-1.",
        share=lambda kept, mask: kept / kept.sum(dim=-2, keepdim=True),
    ),
    Fault(
        "sums along the wrong side",
        "Entry (i, j) is divided by the sum of row j: sum(dim=-1) gives (L,), which lines up with the columns. With "
        "keepdim=True it is (L, 1), a sum for each row.",
        share=lambda kept, mask: kept / kept.sum(dim=-1),
    ),
    Fault(
        "everything sums to 1",
        "What is left is divided by the sum of the whole matrix. Each row has to sum to 1 by itself.",
        share=lambda kept, mask: kept / kept.sum(),
    ),
    Fault(
        "divided by a number of words",
        "Each row is divided by the number of its visible words. Divide by the sum of their weights, and it sums to 1.",
        share=lambda kept, mask: kept / mask.sum(dim=-1, keepdim=True),
    ),
    Fault(
        "shared out equally",
        "The freed weight is shared out equally. A softmax shares it in proportion: all visible weights grow by the "
        "same factor.",
        share=lambda kept, mask: kept + mask * (1 - kept.sum(dim=-1, keepdim=True)) / mask.sum(dim=-1, keepdim=True),
    ),
    Fault(
        "given to the word itself",
        "The freed weight goes to the word itself. A softmax shares it among all visible words, in proportion.",
        share=lambda kept, mask: kept + (1 - kept.sum(dim=-1)).diag(),
    ),
    Fault(
        "uniform",
        "All visible words get the same weight. They have to keep the proportions that they had.",
        share=lambda kept, mask: (mask / mask.sum(dim=-1, keepdim=True)).to(kept.dtype),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        new_vector,
        notebook="00",
        section=_IDEA,
        level="easy",
        minutes=3,
        hints=(
            "S weights that sum to 1, then the sum of weight times vector.",
            "`scores.softmax(dim=0)` gives the weights. Between (S,) and (S, D), `@` multiplies and adds up over S.",
        ),
        large=("scores",),
        cases=_new_vector_cases,
        faults=_NEW_VECTOR_FAULTS,
    ),
    Exercise(
        recent_words,
        notebook="00",
        section=_MASK,
        level="middle",
        minutes=6,
        hints=(
            "`torch.zeros(length, length, dtype=torch.bool)` lets nobody look anywhere. Two loops can then set "
            "single entries.",
            "Word $j$ lies $i - j$ steps behind word $i$. How large may that be, and how small? With `position = "
            "torch.arange(length)`, `position[:, None] - position` is all of them at once.",
        ),
        cases=_recent_words_cases,
        faults=_RECENT_WORDS_FAULTS,
        differentiable=False,
    ),
    Exercise(
        mask_afterwards,
        notebook="00",
        section=_MASK,
        level="hard",
        minutes=10,
        hints=(
            "A weight is $e$ to the power of a score, divided by the row's sum. If a word is hidden, its own "
            "term is missing from that sum. What stays the same among the others?",
            "The proportions. `weights * attn_mask` sets hidden ones to 0; then every row has to sum to 1 "
            "again. `keepdim=True` keeps the sums of the rows in a column.",
        ),
        cases=_mask_afterwards_cases,
        faults=_MASK_AFTERWARDS_FAULTS,
    ),
)
