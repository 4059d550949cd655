"""Exercises of notebook 01: naive attention, also with a temperature, the bilateral filter, and attention as a memory.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise

_FORMULA = "The formula"
_INDEX = "One index at a time"
_TWICE = "Optional: the softmax twice"
_RAW = "Optional: without the softmax"
_DISTANCE = "Dot product or distance?"
_BREAK = "Break it: the sum over the wrong index"
_TEMPERATURE = "How sharp? The temperature"
_POSITIONS = "Weights from positions"
_CONTENT = "Weights from content"
_COST = "What it costs"


def plain_attention(
    x: Tensor,
    *,
    product: Callable[..., Tensor] = lambda x: x @ x.T,
    normalize: Callable[..., Tensor] = lambda scores, x: scores.softmax(dim=-1),
    mix: Callable[..., Tensor] = lambda weights, x: weights @ x,
    give: Callable[..., tuple[Tensor, Tensor]] = lambda output, weights, scores: (output, weights),
) -> tuple[Tensor, Tensor]:
    """softmax(x xᵀ) x, (L, E), and the weights, (L, L)."""
    scores = product(x)
    weights = normalize(scores, x)
    return give(mix(weights, x), weights, scores)


def _plain_attention_cases(draw: Draw) -> Iterator[Case]:
    for words, features in ((2, 2), (1, 3), (5, 3), (3, 7)):
        name = f"{words} word{'s' * (words > 1)} with {features} features"
        yield Case(name, {"x": draw.normal(words, features)})


# What goes wrong alike with the rows of weights, with and without a temperature.
_ROW_FAULTS = (
    Fault(
        "softmax over everything",
        "The softmax runs over the whole matrix at once. Each row has to sum to 1 by itself: dim=-1.",
        see=_BREAK,
        normalize=lambda scores, x: scores.flatten().softmax(dim=0).view_as(scores),
    ),
    Fault(
        "sum stops at E",
        "The sum below the fraction bar stops after E words, but E counts features. It runs over all L words.",
        see=_BREAK,
        normalize=lambda scores, x: scores.exp() / scores.exp()[:, : x.shape[1]].sum(dim=-1, keepdim=True),
    ),
    Fault(
        "no softmax",
        "There is no softmax: the scores themselves are taken as weights.",
        see=_RAW,
        normalize=lambda scores, x: scores,
    ),
    Fault(
        "distances compared",
        "The scores are those of the Gaussian kernel, −|xᵢ − xⱼ|² / 2, in place of dot products.",
        see=_DISTANCE,
        product=lambda x: -(torch.cdist(x, x) ** 2) / 2,
    ),
)

_PLAIN_ATTENTION_FAULTS = (
    Fault(
        "softmax down the columns",
        "The columns of the weights sum to 1 instead of the rows. The softmax runs over the words that are looked at, "
        "the last axis: dim=-1. By hand, the sum needs keepdim=True.",
        see=_BREAK,
        normalize=lambda scores, x: scores.softmax(dim=0),
    ),
    *_ROW_FAULTS,
    Fault(
        "softmax twice",
        "The softmax is taken twice, and the second one makes the weights nearly equal.",
        see=_TWICE,
        normalize=lambda scores, x: scores.softmax(dim=-1).softmax(dim=-1),
    ),
    Fault(
        "no exponential",
        "The rows are divided by their sums without the exponential. Such weights can be negative.",
        normalize=lambda scores, x: scores / scores.sum(dim=-1, keepdim=True),
    ),
    Fault(
        "not divided",
        "The exponentials are not divided by their sum, so the rows do not sum to 1.",
        normalize=lambda scores, x: scores.exp(),
    ),
    Fault(
        "divided by √E",
        "The scores are divided by √E, the root of the number of features. Nothing divides them here; that comes in "
        "notebook 02.",
        product=lambda x: x @ x.T / math.sqrt(x.shape[1]),
    ),
    Fault(
        "itself left out",
        "No word looks at itself: the diagonal of the weights is 0. Here each word may look at all, itself included.",
        normalize=lambda scores, x: scores.fill_diagonal_(-math.inf).softmax(dim=-1).nan_to_num(),
    ),
    Fault(
        "mean of all words",
        "Every word becomes the plain mean: the scores have no effect.",
        normalize=lambda scores, x: torch.full_like(scores, 1 / len(scores)),
    ),
    Fault(
        "weights transposed in the sum",
        "The weights are right, but the sum takes their columns: it is weights.T @ x. Row i of the weights mixes word "
        "i: weights @ x.",
        see=_INDEX,
        mix=lambda weights, x: weights.T @ x,
    ),
    Fault(
        "scores mixed",
        "The weights average the scores. What is averaged are the words, x.",
        mix=lambda weights, x: weights @ (x @ x.T),
    ),
    Fault(
        "scores returned",
        "The second result are the scores, before the softmax. The weights are asked for.",
        give=lambda output, weights, scores: (output, scores),
    ),
    Fault(
        "results exchanged",
        "The two results are exchanged: first the new words, then the weights.",
        give=lambda output, weights, scores: (weights, output),
    ),
)


def tempered_attention(
    x: Tensor,
    temperature: float,
    *,
    product: Callable[..., Tensor] = lambda x: x @ x.T,
    cool: Callable[..., Tensor] = lambda scores, temperature, x: scores / temperature,
    normalize: Callable[..., Tensor] = lambda scores, x: scores.softmax(dim=-1),
    mix: Callable[..., Tensor] = lambda weights, x, temperature: weights @ x,
) -> Tensor:
    """softmax(x xᵀ / T) x, (L, E)."""
    return mix(normalize(cool(product(x), temperature, x), x), x, temperature)


def _tempered_attention_cases(draw: Draw) -> Iterator[Case]:
    for words, features, temperature in ((2, 2, 2.0), (3, 5, 4.0), (5, 3, 0.5)):
        name = f"{words} words with {features} features, temperature {temperature:g}"
        yield Case(name, {"x": draw.normal(words, features), "temperature": temperature})


_TEMPERED_ATTENTION_FAULTS = (
    Fault(
        "temperature ignored",
        "The temperature has no effect: the numbers are those of T = 1. It divides the scores, before the softmax: a "
        "factor on the weights cancels where each row is made to sum to 1.",
        cool=lambda scores, temperature, x: scores,
    ),
    Fault(
        "multiplied by T",
        "The scores are multiplied by the temperature, or the weights are raised to the power T, which is the same. A "
        "higher temperature has to bring scores closer together: divide them by T.",
        cool=lambda scores, temperature, x: scores * temperature,
    ),
    Fault(
        "divided by T twice",
        "The scores are divided by T². If the words are divided by T, both factors of the dot product carry it.",
        cool=lambda scores, temperature, x: scores / temperature**2,
    ),
    Fault(
        "words divided by T",
        "The words are divided by T: twice in their dot product, once more in the average. Divide the scores alone.",
        cool=lambda scores, temperature, x: scores / temperature**2,
        mix=lambda weights, x, temperature: weights @ x / temperature,
    ),
    Fault(
        "words divided by √T",
        "The words are divided by √T. That makes the scores right, and shortens the words that are averaged, too. "
        "Divide the scores alone.",
        mix=lambda weights, x, temperature: weights @ x / temperature**0.5,
    ),
    Fault(
        "divided by √T",
        "The scores are divided by the root of T. It is T itself.",
        cool=lambda scores, temperature, x: scores / temperature**0.5,
    ),
    Fault(
        "√E in place of T",
        "The scores are divided by √E, the root of the number of features, in place of T.",
        cool=lambda scores, temperature, x: scores / math.sqrt(x.shape[1]),
    ),
    Fault(
        "√E beside T",
        "The scores are divided by √E as well as by T. The 1/√d of later notebooks is not asked for here.",
        cool=lambda scores, temperature, x: scores / temperature / math.sqrt(x.shape[1]),
    ),
    Fault(
        "softmax to the power 1/T",
        "The weights are raised to the power 1/T after the softmax, and their rows no longer sum to 1. Divide each row "
        "by its sum once more, or divide the scores by T before the softmax.",
        cool=lambda scores, temperature, x: scores.log_softmax(dim=-1) / temperature,
        normalize=lambda scores, x: scores.exp(),
    ),
    Fault(
        "T after the softmax",
        "The division by T comes after the softmax: the rows sum to 1/T, and are as sharp as before.",
        cool=lambda scores, temperature, x: scores,
        mix=lambda weights, x, temperature: weights @ x / temperature,
    ),
    Fault(
        "softmax down the columns",
        "The columns of the weights sum to 1 instead of the rows. The softmax runs over j, the last axis: dim=-1. By "
        "hand, the sum needs keepdim=True.",
        see=_BREAK,
        normalize=lambda scores, x: scores.softmax(dim=0),
    ),
    *_ROW_FAULTS,
    Fault(
        "softmax twice",
        "The softmax is taken twice; the second one makes the weights nearly equal.",
        see=_TWICE,
        normalize=lambda scores, x: scores.softmax(dim=-1).softmax(dim=-1),
    ),
    Fault(
        "no exponential",
        "The rows are divided by their sums without the exponential. Such weights can be negative.",
        see=_FORMULA,
        normalize=lambda scores, x: scores / scores.sum(dim=-1, keepdim=True),
    ),
    Fault(
        "not divided",
        "The exponentials are not divided by their sum, so the rows do not sum to 1.",
        see=_FORMULA,
        normalize=lambda scores, x: scores.exp(),
    ),
    Fault(
        "softmax last",
        "The softmax comes last, over the features of the output. It belongs to the scores, before they meet x.",
        see=_FORMULA,
        normalize=lambda scores, x: scores,
        mix=lambda weights, x, temperature: (weights @ x).softmax(dim=-1),
    ),
    Fault(
        "features compared",
        "The features look at each other, (E, E), in place of the words. The scores are x @ x.T, not x.T @ x.",
        see=_INDEX,
        product=lambda x: x.T @ x,
        mix=lambda weights, x, temperature: x @ weights,
    ),
    Fault(
        "weights on the wrong side",
        "It is x @ weights. Row i of the weights mixes the rows of x: weights @ x.",
        see=_INDEX,
        mix=lambda weights, x, temperature: x @ weights,
    ),
    Fault(
        "weights returned",
        "These are the weights. The output is their product with x.",
        see=_FORMULA,
        mix=lambda weights, x, temperature: weights,
    ),
    Fault(
        "scores mixed",
        "The weights average the scores. What is averaged are the words, x.",
        see=_FORMULA,
        mix=lambda weights, x, temperature: weights @ (x @ x.T) / temperature,
    ),
)


def bilateral_filter(
    signal: Tensor,
    place_width: float,
    content_width: float,
    *,
    kernel: Callable[..., Tensor] = lambda steps, width: (-(steps**2) / (2 * width**2)).exp(),
    widths: Callable[..., tuple[float, float]] = lambda place_width, content_width: (place_width, content_width),
    join: Callable[..., Tensor] = lambda positions, content: positions * content,
    normalize: Callable[..., Tensor] = lambda kernel: kernel / kernel.sum(dim=-1, keepdim=True),
    mix: Callable[..., Tensor] = lambda weights, signal: weights @ signal,
) -> Tensor:
    """Weighted mean of the samples that are near and alike, (L,)."""
    position = torch.arange(len(signal)).to(signal)  # (L,)
    place_width, content_width = widths(place_width, content_width)
    positions = kernel(position[:, None] - position, place_width)  # (L, L)
    content = kernel(signal[:, None] - signal, content_width)  # (L, L)
    return mix(normalize(join(positions, content)), signal)


def _bilateral_filter_cases(draw: Draw) -> Iterator[Case]:
    for samples, place_width, content_width in ((3, 2.0, 0.8), (5, 1.5, 0.6), (11, 3.0, 0.7)):
        inputs = {"signal": draw.normal(samples), "place_width": place_width, "content_width": content_width}
        yield Case(f"{samples} samples", inputs)


def _rows(kernel: Tensor) -> Tensor:
    return kernel / kernel.sum(dim=-1, keepdim=True)


_BILATERAL_FILTER_FAULTS = (
    Fault(
        "positions only",
        "The weights come from the positions alone: the jump is smeared.",
        join=lambda positions, content: positions,
    ),
    Fault(
        "content only",
        "The weights come from the content alone: samples far away count as much as neighbours.",
        join=lambda positions, content: content,
    ),
    Fault(
        "kernels added",
        "The kernels are added, so it is enough to be near or alike. Multiplied, a sample has to be both.",
        join=lambda positions, content: positions + content,
    ),
    Fault(
        "kernels as matrices",
        "The kernels are multiplied as matrices, with @. Each entry of one is to be multiplied by the same entry of "
        "the other: *.",
        join=lambda positions, content: positions @ content,
    ),
    Fault(
        "kernels as matrices, content first",
        "The kernels are multiplied as matrices, with @ and the content's first. Each entry of one is to be "
        "multiplied by the same entry of the other: *.",
        join=lambda positions, content: content @ positions,
    ),
    Fault(
        "two filters averaged",
        "It is the mean of two filters, one by position and one by content. The one filter wanted has the product as "
        "its kernel.",
        join=lambda positions, content: (_rows(positions) + _rows(content)) / 2,
        normalize=lambda kernel: kernel,
    ),
    Fault(
        "scores multiplied",
        "The two scores are multiplied before the exponential. To multiply kernels, add their scores: eᵃ·eᵇ = eᵃ⁺ᵇ.",
        join=lambda positions, content: (positions.log() * content.log()).exp(),
    ),
    Fault(
        "normalised before the product",
        "Each kernel is normalised by itself, and their product is not: its rows sum to less than 1. Normalise last.",
        see=_POSITIONS,
        join=lambda positions, content: _rows(positions) * _rows(content),
        normalize=lambda kernel: kernel,
    ),
    Fault(
        "one filter after the other",
        "The signal is smoothed by one kernel and the result by the other. It is one sum, with the product of both as "
        "its weights.",
        join=lambda positions, content: _rows(positions) @ _rows(content),
        normalize=lambda kernel: kernel,
    ),
    Fault(
        "one filter after the other, positions first",
        "The signal is smoothed by its positions and the result by the content. It is one sum, with the product of "
        "both kernels as its weights.",
        join=lambda positions, content: _rows(content) @ _rows(positions),
        normalize=lambda kernel: kernel,
    ),
    Fault(
        "not normalised",
        "The rows are not divided by their sums, so the result is a sum and not an average.",
        see=_POSITIONS,
        normalize=lambda kernel: kernel,
    ),
    Fault(
        "divided by L",
        "The rows are divided by the number of samples. An average divides by the sum of the weights.",
        see=_POSITIONS,
        normalize=lambda kernel: kernel / len(kernel),
    ),
    Fault(
        "columns normalised",
        "The columns of the weights sum to 1 instead of the rows. Sum over dim=-1, with keepdim=True.",
        see=_POSITIONS,
        normalize=lambda kernel: kernel / kernel.sum(dim=0),
    ),
    Fault(
        "everything normalised",
        "The kernel is divided by the sum of the whole matrix. Each row has to sum to 1 by itself.",
        see=_POSITIONS,
        normalize=lambda kernel: kernel / kernel.sum(),
    ),
    Fault(
        "softmax of the kernel",
        "The softmax is taken of the kernel, which has its exponential already. Divide it by its row sums, or take the "
        "softmax of the score.",
        see=_POSITIONS,
        normalize=lambda kernel: kernel.softmax(dim=-1),
    ),
    Fault(
        "distance not squared",
        "The distances are not squared: that is the kernel exp(−|d| / 2w²). A Gaussian takes d².",
        see=_POSITIONS,
        kernel=lambda steps, width: (-steps.abs() / (2 * width**2)).exp(),
    ),
    Fault(
        "pointed kernel",
        "The kernel is exp(−|d| / w), which comes to a point at 0. A Gaussian is exp(−d² / 2w²).",
        see=_POSITIONS,
        kernel=lambda steps, width: (-steps.abs() / width).exp(),
    ),
    Fault(
        "distance with its sign",
        "The differences keep their sign, so one side counts more than the other. A Gaussian takes d².",
        see=_POSITIONS,
        kernel=lambda steps, width: (-steps / (2 * width**2)).exp(),
    ),
    Fault(
        "width not squared",
        "The widths are not squared: a Gaussian is exp(−d² / 2w²).",
        see=_POSITIONS,
        kernel=lambda steps, width: (-(steps**2) / (2 * width)).exp(),
    ),
    Fault(
        "no 2",
        "The 2 is missing: a Gaussian is exp(−d² / 2w²).",
        see=_POSITIONS,
        kernel=lambda steps, width: (-(steps**2) / width**2).exp(),
    ),
    Fault(
        "multiplied by w²",
        "It is multiplied by w² where it should be divided: in Python -d**2 / 2 * w**2 is (−d² / 2)·w². Put 2 * w**2 "
        "in brackets.",
        see=_POSITIONS,
        kernel=lambda steps, width: (-(steps**2) / 2 * width**2).exp(),
    ),
    Fault(
        "no minus",
        "The minus is missing: the weights grow with the distance.",
        see=_POSITIONS,
        kernel=lambda steps, width: (steps**2 / (2 * width**2)).exp(),
    ),
    Fault(
        "widths exchanged",
        "The two widths are exchanged.",
        widths=lambda place_width, content_width: (content_width, place_width),
    ),
    Fault(
        "width of the positions for both",
        "Both kernels use the width of the positions.",
        widths=lambda place_width, content_width: (place_width, place_width),
    ),
    Fault(
        "width of the content for both",
        "Both kernels use the width of the content.",
        widths=lambda place_width, content_width: (content_width, content_width),
    ),
    Fault(
        "weights returned",
        "These are the weights. The output is their product with the signal.",
        see=_POSITIONS,
        mix=lambda weights, signal: weights,
    ),
)


def one_more_word(
    state: Tensor,
    word: Tensor,
    *,
    square: Callable[..., Tensor] = lambda word: torch.outer(word, word),
    keep: Callable[..., Tensor] = lambda state, new: state + new,
    seen: Callable[..., Tensor] = lambda before, after: after,
    read: Callable[..., Tensor] = lambda state, word: state @ word,
    give: Callable[..., tuple[Tensor, ...]] = lambda output, before, after: (output, after),
) -> tuple[Tensor, ...]:
    """Output (E,) of the next word in causal attention without softmax, and Σ_j x_j x_jᵀ (E, E) with that word."""
    after = keep(state, square(word))
    return give(read(seen(state, after), word), state, after)


def _one_more_word_cases(draw: Draw) -> Iterator[Case]:
    for words, features in ((0, 2), (1, 2), (4, 3), (2, 5)):
        before = draw.normal(words, features)
        name = f"{('first', 'second', 'third', 'fourth', 'fifth')[words]} word, {features} features"
        yield Case(name, {"state": before.T @ before, "word": draw.normal(features)})


_ONE_MORE_WORD_FAULTS = (
    Fault(
        "blind to itself",
        "The output is read from the old state, so the word does not see itself. Add it to the state first.",
        seen=lambda before, after: before,
    ),
    Fault(
        "itself with weight 1",
        "The word itself comes in with weight 1. Its weight is a score like the others, its dot product with itself.",
        seen=lambda before, after: before,
        read=lambda state, word: state @ word + word,
    ),
    Fault(
        "itself twice",
        "The word sees itself twice: in the state, where it stands already, and once more beside it.",
        seen=lambda before, after: after,
        read=lambda state, word: state @ word + (word @ word) * word,
    ),
    Fault(
        "itself only",
        "The output depends on the new word only; the state that came in is not used.",
        read=lambda state, word: (word @ word) * word,
    ),
    Fault(
        "state not updated",
        "The output is right, but the state comes back as it went in: the next word will not find this one.",
        give=lambda output, before, after: (output, before),
    ),
    Fault(
        "state overwritten",
        "The state holds the new word only. It has to be added to the words before.",
        keep=lambda state, new: new,
    ),
    Fault(
        "running mean",
        "The state is a mean of old and new. Without a softmax nothing is divided: it is a sum.",
        keep=lambda state, new: (state + new) / 2,
    ),
    Fault(
        "word added as it is",
        "The word itself is added to each row of the state. What is added is its product with itself, x xᵀ, (E, E).",
        square=lambda word: word,
    ),
    Fault(
        "squares entry by entry",
        "The state gets word * word, the squares of the features, (E,). x xᵀ holds every pair of features, (E, E).",
        square=lambda word: word * word,
        also=({"square": lambda word: word * word, "read": lambda state, word: word @ state},),
    ),
    Fault(
        "squares on the diagonal",
        "The state gets the squares of the features on its diagonal alone. x xᵀ holds every pair of features.",
        square=lambda word: (word * word).diag(),
    ),
    Fault(
        "inner product",
        "The state gets word @ word, a single number, xᵀx. What is added is x xᵀ, (E, E): torch.outer(word, word).",
        square=lambda word: word @ word,
    ),
    Fault(
        "softmax",
        "The answer takes a softmax. This attention has none; with one, its sum could not be kept in a state.",
        see=_RAW,
        read=lambda state, word: (state @ word).softmax(dim=-1),
    ),
    Fault(
        "entry by entry",
        "The output is state * word, which multiplies entry by entry, (E, E). A matrix times a vector is written @.",
        read=lambda state, word: state * word,
    ),
    Fault(
        "outputs exchanged",
        "The two results are exchanged: first the output, then the state.",
        give=lambda output, before, after: (after, output),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        plain_attention,
        notebook="01",
        section=_FORMULA,
        level="middle",
        minutes=8,
        hints=(
            "Entry $(i, j)$ of a product of two matrices is a row of the first times a column of the second. Which "
            "matrix has the words as its columns?",
            "`x @ x.T` has all scores. `.softmax(dim=…)` makes the entries along that axis sum to 1. The weights then "
            "multiply the words from the left.",
        ),
        large=("x",),
        cases=_plain_attention_cases,
        faults=_PLAIN_ATTENTION_FAULTS,
        returns=("output", "weights"),
    ),
    Exercise(
        tempered_attention,
        notebook="01",
        section=_TEMPERATURE,
        level="easy",
        minutes=5,
        hints=(
            "The three lines of exercise 1, and one division more.",
            "The temperature divides the scores, before the softmax. Which axis of the scores belongs to the "
            "words that answer?",
        ),
        large=("x",),
        cases=_tempered_attention_cases,
        faults=_TEMPERED_ATTENTION_FAULTS,
    ),
    Exercise(
        bilateral_filter,
        notebook="01",
        section=_CONTENT,
        level="middle",
        minutes=8,
        hints=(
            "Two matrices (L, L) of squared differences: `position[:, None] - position`, and the same with the signal.",
            "Multiply the kernels first and divide by the row sums last. Or add two scores and take one "
            "softmax: $e^a e^b = e^{a+b}$.",
        ),
        cases=_bilateral_filter_cases,
        faults=_BILATERAL_FILTER_FAULTS,
    ),
    Exercise(
        one_more_word,
        notebook="01",
        section=_COST,
        level="hard",
        minutes=12,
        hints=(
            "The output of a word $x$ is $\\sum_j (x \\cdot x_j)\\, x_j$, a row of $(X X^\\top) X$. Move the brackets.",
            "$X^\\top X = \\sum_j x_j x_j^\\top$, one matrix (E, E) a word: `torch.outer`. Which words must be in "
            "it when the new one reads?",
        ),
        cases=_one_more_word_cases,
        faults=_ONE_MORE_WORD_FAULTS,
        returns=("output", "state"),
    ),
)
