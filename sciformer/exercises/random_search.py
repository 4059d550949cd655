"""Exercises of notebook 14: random search.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise

_SPACE = "Break it: a learning rate drawn evenly"
_EARLY = "Giving up early"
_BEST = "Two teams, one idea"


def log_uniform(
    u: Tensor,
    low: float,
    high: float,
    *,
    ends: Callable[..., tuple[float, float]] = lambda low, high: (low, high),
    log: Callable[[float], float] = math.log,
    between: Callable[..., Tensor] = lambda u, a, b: a + u * (b - a),
    back: Callable[[Tensor], Tensor] = torch.exp,
) -> Tensor:
    """low · (high / low)^u, (N,)."""
    low, high = ends(low, high)
    return back(between(u, log(low), log(high)))


def _log_uniform_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, count: int, low: float, high: float) -> Case:
        u = 0.05 + 0.9 * torch.rand(count, generator=draw.generator)
        return Case(name, {"u": u.round(decimals=2).to(draw.device, draw.dtype), "low": low, "high": high})

    yield case("2 draws, from 0.1 to 100", 2, 0.1, 100.0)
    yield case("5 draws, from 2 to 50", 5, 2.0, 50.0)
    yield case("7 draws, from 0.03 to 0.5", 7, 0.03, 0.5)
    yield case("3 draws, from 0.00001 to 10", 3, 1e-5, 10.0)


_LOG_UNIFORM_FAULTS = (
    Fault(
        "drawn evenly",
        "The draws themselves are even between the ends, so nearly all have the size of the upper one. Their "
        "logarithms should be even.",
        log=lambda x: x,
        back=lambda x: x,
    ),
    Fault(
        "still a logarithm",
        "The result is the logarithm of the wanted number. Take the exponential of it.",
        back=lambda x: x,
    ),
    Fault(
        "a little added",
        "It adds a small number before the logarithm. The ends are above 0, so nothing has to be added, and a small "
        "end is no longer reached.",
        log=lambda x: math.log(x + 1e-6),
    ),
    Fault(
        "two bases",
        "The logarithm has base e, and the exponential base 10. Both need the same base.",
        back=lambda x: 10**x,
    ),
    Fault(
        "two bases, the other way",
        "The logarithm has base 10, and the exponential base e. Both need the same base.",
        back=lambda x: torch.exp(x / math.log(10)),
    ),
    Fault(
        "two bases, 2 and e",
        "The logarithm has base e, and the exponential base 2. Both need the same base.",
        back=lambda x: 2**x,
    ),
    Fault(
        "no logarithm",
        "It takes the exponential, but of the ends themselves. Take their logarithms first.",
        log=lambda x: x,
    ),
    Fault(
        "logarithm of even exponentials",
        "It is even between the exponentials of the ends, and takes the logarithm. That is the wrong way round: be "
        "even between the logarithms of the ends, and take the exponential.",
        log=math.exp,
        back=torch.log,
    ),
    Fault(
        "upside down",
        "It falls as u grows: u = 0 should give the lower end, and u = 1 the upper one.",
        ends=lambda low, high: (high, low),
    ),
    Fault(
        "not the difference",
        "Your step is u times the logarithm of the upper end. It should be u times the difference of the two "
        "logarithms.",
        between=lambda u, a, b: a + u * b,
    ),
    Fault(
        "lower end forgotten",
        "The lower end is missing: at u = 0 it gives 1. Start from its logarithm.",
        between=lambda u, a, b: u * b,
    ),
    Fault(
        "only the difference",
        "It gives (high / low)^u, which starts at 1. Start from the lower end.",
        between=lambda u, a, b: u * (b - a),
    ),
    Fault(
        "difference to the power, added",
        "It gives low + (high − low)^u, which starts at low + 1. Each step in u is a factor: the power is that of the "
        "ratio, and it multiplies the lower end.",
        log=lambda x: x,
        between=lambda u, a, b: a + (b - a) ** u,
        back=lambda x: x,
    ),
    Fault(
        "ratio to the power, added",
        "It gives low + (high / low)^u: the power is added to the lower end, where u = 0 gives low + 1. It multiplies "
        "the lower end.",
        log=lambda x: x,
        between=lambda u, a, b: a + (b / a) ** u,
        back=lambda x: x,
    ),
    Fault(
        "difference to the power, multiplied",
        "It gives low · (high − low)^u, which does not end at the upper end. The power is that of the ratio.",
        log=lambda x: x,
        between=lambda u, a, b: a * (b - a) ** u,
        back=lambda x: x,
    ),
    Fault(
        "bent alike for every range",
        "Your draw bends u by an exponential that is the same for every range, and then goes evenly from `low` to "
        "`high`. It should go evenly from log `low` to log `high`, and then take the exponential.",
        log=lambda x: x,
        between=lambda u, a, b: a + (b - a) * u.expm1() / math.expm1(1),
        back=lambda x: x,
    ),
    Fault(
        "bent by powers of 10",
        "Your draw bends u by powers of 10, whatever the range, and then goes evenly from `low` to `high`. It should "
        "go evenly from log `low` to log `high`, and then take the exponential.",
        log=lambda x: x,
        between=lambda u, a, b: a + (b - a) * (10**u - 1) / 9,
        back=lambda x: x,
    ),
    Fault(
        "even in 1 / x",
        "The draws' inverses are even, between 1 / low and 1 / high, so nearly all draws have the size of the lower "
        "end. Their logarithms should be even.",
        log=lambda x: 1 / x,
        back=lambda x: 1 / x,
    ),
)


def _best_so_far(row: Tensor, look: int) -> float:
    return row[: look + 1].max().item()


def looks_given(
    curves: Tensor,
    free: int,
    *,
    mine: Callable[..., float] = _best_so_far,
    theirs: Callable[..., float] = lambda row, look: row[look].item(),
    others: Callable[..., Any] = lambda whole, n, N, free, looks, look: whole,
    middle: Callable[[list[float]], float] = median,
    hopeless: Callable[[float, float], bool] = lambda mine, middle: mine < middle,
    spared: Callable[..., int] = lambda free: free,
    last: Callable[[int], int] = lambda T: T - 1,
    count: Callable[[int], int] = lambda look: look + 1,
) -> Tensor:
    """Number of looks that each trial gets, (N,)."""
    N, T = curves.shape
    whole: list[int] = []
    looks: list[int] = []
    for n in range(N):
        stopped = None
        for look in range(last(T)):
            if n < spared(free):
                break
            known = [theirs(curves[m], look) for m in others(whole, n, N, free, looks, look)]
            if known and hopeless(mine(curves[n], look), middle(known)):
                stopped = look
                break
        if stopped is None:
            whole.append(n)
        looks.append(T if stopped is None else count(stopped))
    return torch.tensor(looks, device=curves.device)


# A small case, and one in which every mistake below shows, and each differently, whatever is added to all of it.
_FEW = ((4.0, 4.0), (0.0, 0.0), (1.0, 9.0), (2.0, 1.0))
_TELLING = (
    (0.0, 6.0, 0.5),
    (0.0, 5.0, 5.0),
    (4.5, 1.0, 6.0),
    (1.5, 3.5, 5.0),
    (6.0, 0.5, 1.5),
    (0.0, 4.0, 5.0),
    (3.0, 1.5, 0.0),
    (4.5, 5.0, 0.5),
    (2.5, 3.5, 1.5),
    (4.0, 1.5, 0.0),
)


#: The second trial is above the first's values at both looks only if its best so far counts, not its first look.
_RISING = ((1.5, 3.5, 5.0), (2.0, 4.0, 5.5), (2.0, 3.0, 4.0))


def _looks_given_cases(draw: Draw) -> Iterator[Case]:
    def shifted(rows: tuple[tuple[float, ...], ...], free: int) -> Case:
        shift = draw.integers(-8, 9, 1).to(draw.dtype) / 4
        curves = torch.tensor(rows, device=draw.device, dtype=draw.dtype) + shift
        return Case(f"{len(rows)} trials of {len(rows[0])} looks, {free} free", {"curves": curves, "free": free})

    def case(name: str, trials: int, looks: int, free: int) -> Case:
        # Each trial has a level of its own, rises, and crosses others now and then. Multiples of 1/4 have no rounding,
        # so a tie is a tie in any precision.
        level, noise = draw.normal(trials, 1), draw.normal(trials, looks)
        rise = torch.arange(looks, device=draw.device).to(draw.dtype) / 4
        return Case(name, {"curves": (4 * (level + rise + noise)).round() / 4, "free": free})

    yield shifted(_FEW, 2)
    yield shifted(_RISING, 1)
    yield shifted(_TELLING, 3)
    yield case("9 trials of 4 looks, 3 free", 9, 4, 3)
    yield case("30 trials of 5 looks, 4 free", 30, 5, 4)


_LOOKS_GIVEN_FAULTS = (
    Fault(
        "judged by its last value",
        "A trial is judged by its value at this look. One bad look after a good one should not end it: its best value "
        "so far counts.",
        mine=lambda row, look: row[look].item(),
    ),
    Fault(
        "best of the others",
        "The others are taken by their best values so far. The median is that of their values at this look.",
        theirs=_best_so_far,
    ),
    Fault(
        "others at their end",
        "A trial on its way is held against the others' last values, which they reached after longer training. Compare "
        "at the same look.",
        theirs=lambda row, look: row[-1].item(),
    ),
    Fault(
        "given-up trials in the median",
        "Trials that were given up are in the median, too. Only those that ran to their end should be.",
        others=lambda whole, n, N, free, looks, look: [m for m in range(n) if looks[m] > look],
    ),
    Fault(
        "values never measured",
        "All trials before it are in the median, even with looks that they never had, since they were given up before.",
        others=lambda whole, n, N, free, looks, look: range(n),
    ),
    Fault(
        "the future known",
        "The median runs over all trials, those that come later included. Only the trials that ran before are known.",
        others=lambda whole, n, N, free, looks, look: range(N),
    ),
    Fault(
        "only the free trials",
        "The median stays that of the first, free trials. Trials that run to their end later join them.",
        others=lambda whole, n, N, free, looks, look: range(free),
    ),
    Fault(
        "itself among the others",
        "The trial itself is in the median that it is held against.",
        others=lambda whole, n, N, free, looks, look: [*whole, n],
    ),
    Fault(
        "mean for median",
        "It is held against the mean. One trial that failed badly would pull it down; the median does not mind.",
        middle=lambda values: sum(values) / len(values),
    ),
    Fault(
        "lower median",
        "Of an even number of values it takes the lower of the two in the middle, as torch.median does. The median is "
        "their mean: statistics.median, or torch.quantile at 0.5.",
        middle=lambda values: sorted(values)[(len(values) - 1) // 2],
    ),
    Fault(
        "the good ones given up",
        "It gives up the trials above the median. Accuracy is good when it is high.",
        hopeless=lambda mine, middle: mine > middle,
    ),
    Fault(
        "given up at the median",
        "A trial exactly at the median is given up. It has to be below.",
        hopeless=lambda mine, middle: mine <= middle,
    ),
    Fault(
        "none is free",
        "The first trials are given up, too. The first `free` ones run to their end, whatever they show.",
        spared=lambda free: 1,
    ),
    Fault(
        "one free trial too many",
        "One trial more than `free` is spared.",
        spared=lambda free: free + 1,
    ),
    Fault(
        "one free trial too few",
        "One trial fewer than `free` is spared.",
        spared=lambda free: free - 1,
    ),
    Fault(
        "given up at the last look",
        "Trials below the median at the last look count as given up. They had run to their end, and belong in the "
        "median of later ones.",
        last=lambda T: T,
    ),
    Fault(
        "looks counted from 0",
        "A trial that is given up at its first look has had 1 look, not 0.",
        count=lambda look: look,
    ),
)


def expected_best(
    values: Tensor,
    *,
    order: Callable[[Tensor], Tensor] = lambda values: values.sort().values,
    ranks: Callable[..., Tensor] = lambda i, N: i,
    budgets: Callable[[Tensor], Tensor] = lambda n: n,
    probability: Callable[..., Tensor] = lambda i, n, N: (i / N) ** n - ((i - 1) / N) ** n,
    collect: Callable[..., Tensor] = lambda weights, ordered: weights @ ordered,
) -> Tensor:
    """Expected highest of n values drawn with replacement, for n = 1, ..., N."""
    N = len(values)
    numbers = torch.arange(1, N + 1, device=values.device).to(values.dtype)
    weights = probability(ranks(numbers, N), budgets(numbers)[:, None], N)  # (N budgets, N ranks)
    return collect(weights.expand(N, N), order(values))


def _without_replacement(i: Tensor, n: Tensor, N: int) -> Tensor:
    def choose(a: Tensor, b: Tensor) -> Tensor:
        inside = (a >= b) & (b >= 0)
        log = torch.lgamma(a.clamp(min=0) + 1) - torch.lgamma(b + 1) - torch.lgamma((a - b).clamp(min=0) + 1)
        return torch.where(inside, log.exp(), torch.zeros_like(log))

    return choose(i - 1, n - 1) / choose(torch.full_like(n, N), n)


def _expected_of_different(values: Tensor) -> Tensor:
    """The expected best of n draws from the different values, for n = 1, ..., N."""
    different = values.unique()
    share = torch.arange(len(different) + 1, device=values.device).to(values.dtype) / len(different)
    n = torch.arange(1, len(values) + 1, device=values.device)[:, None]
    return (share[1:] ** n - share[:-1] ** n) @ different


def _places_of_the_best(N: int) -> Tensor:
    n = torch.arange(1, N + 1)
    return n / (n + 1)


def _expected_best_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, count: int) -> Case:
        values = 0.1 * draw.permutation(3 * count)[:count].to(draw.dtype) + 0.3
        return Case(name, {"values": values})

    yield case("3 trials", 3)
    yield case("7 trials", 7)
    yield case("13 trials", 13)
    yield case("20 trials", 20)  # 20 to the power of 20 is no whole number of 64 bits
    ties = torch.tensor([0.7, 0.4, 0.7, 0.5, 0.7], device=draw.device, dtype=draw.dtype)
    yield Case("5 trials, three of them alike", {"values": ties[draw.permutation(5)]})


def _in_whole_numbers(i: Tensor, n: Tensor, N: int) -> Tensor:
    powers = torch.arange(N + 1, device=i.device) ** n.long()  # which overflow
    return powers.diff(dim=1) / powers[:, -1:]


_EXPECTED_BEST_FAULTS = (
    Fault(
        "powers of whole numbers",
        "Powers of whole numbers soon pass 2^63, and overflow without a word: 16^16 is 2^64. Take the power of the "
        "share i / N.",
        probability=_in_whole_numbers,
    ),
    Fault(
        "quantiles",
        "These are quantiles, at n / (n + 1). There lies the expected best of n numbers that are uniform between 0 and "
        "1. Of your values, take each times the probability that it is the highest of n draws.",
        collect=lambda weights, ordered: ordered.quantile(_places_of_the_best(len(ordered)).to(ordered)),
    ),
    Fault(
        "in the order they came",
        "The values are not sorted. The probability (i / N)^n belongs to the i-th smallest.",
        order=lambda values: values,
    ),
    Fault(
        "largest first",
        "The values are sorted from the largest to the smallest, which gives the expected worst. The i-th smallest has "
        "i values up to it.",
        order=lambda values: values.sort(descending=True).values,
    ),
    Fault(
        "best so far",
        "It is the best so far in the order in which the trials happened to come. The expected one is the mean over "
        "all draws.",
        collect=lambda weights, ordered: ordered.cummax(dim=0).values,
        order=lambda values: values,
    ),
    Fault(
        "mean of the n best",
        "It averages the n best values, so it falls as n grows. More draws cannot make the best worse.",
        collect=lambda weights, ordered: (
            ordered.flip(0).cumsum(dim=0) / torch.arange(1, len(ordered) + 1, device=ordered.device)
        ),
    ),
    Fault(
        "power of the difference",
        "The power is taken of the difference, (1 / N)^n: that is the probability that all n draws give this value. "
        "Take the powers first, then the difference.",
        probability=lambda i, n, N: ((i / N) - ((i - 1) / N)) ** n + 0 * i,
    ),
    Fault(
        "nothing subtracted",
        "The best is the i-th smallest or below with probability (i / N)^n. To get that of exactly the i-th, subtract "
        "((i − 1) / N)^n.",
        probability=lambda i, n, N: (i / N) ** n + 0 * i,
    ),
    Fault(
        "the others at most as good",
        "The i-th is weighted by the probability that the other n − 1 draws are at most as good, (i / N)^(n − 1), made "
        "to sum to 1. Where several draws are the i-th that counts them several times. The best is at most the i-th "
        "with probability (i / N)^n: subtract ((i − 1) / N)^n from it.",
        probability=lambda i, n, N: (i / N) ** (n - 1) / ((i / N) ** (n - 1)).sum(dim=-1, keepdim=True),
    ),
    Fault(
        "made to sum to 1",
        "Your weights are (i / N)^n, made to sum to 1. They should be the differences (i / N)^n − ((i − 1) / N)^n, "
        "which sum to 1 already: (i / N)^n counts the smaller values as well.",
        probability=lambda i, n, N: (i / N) ** n / ((i / N) ** n).sum(dim=-1, keepdim=True),
    ),
    Fault(
        "ranks from 0",
        "The ranks run from 0 to N − 1, so the largest value gets too little. The i-th smallest has i values up to it, "
        "itself included.",
        ranks=lambda i, N: i - 1,
        probability=lambda i, n, N: (i / N) ** n - ((i - 1).clamp(min=0) / N) ** n,
    ),
    Fault(
        "one draw too many",
        "It begins with n = 2. The first entry is for a single draw, and is the mean.",
        budgets=lambda n: n + 1,
    ),
    Fault(
        "one draw too few",
        "It begins with n = 0, which is no draw at all. The first entry is for n = 1.",
        budgets=lambda n: n - 1,
    ),
    Fault(
        "without replacement",
        "It draws without replacement. Here each of the n draws may give any of the N values again.",
        probability=_without_replacement,
    ),
    Fault(
        "density for difference",
        "The probability is a density, n/N · (i/N)^(n − 1). It does not add up to 1 over the N values; the "
        "difference of two powers does.",
        probability=lambda i, n, N: n / N * (i / N) ** (n - 1),
    ),
    Fault(
        "divided by N − 1",
        "The ranks are divided by N − 1. Of N values, the share at or below the i-th is i / N.",
        probability=lambda i, n, N: (i / (N - 1)) ** n - ((i - 1) / (N - 1)) ** n,
    ),
    Fault(
        "same for every n",
        "All entries are the mean, which is right for a single draw. The power n is missing.",
        budgets=lambda n: torch.ones_like(n),
    ),
    Fault(
        "ties counted once",
        "Values that several trials share count once, as after torch.unique. Every trial counts.",
        order=lambda values: values,
        collect=lambda weights, values: _expected_of_different(values),
    ),
    Fault(
        "highest of all",
        "All entries are the highest value. With few draws it is often missed.",
        collect=lambda weights, ordered: ordered.max().expand_as(ordered),
    ),
)

EXERCISES = (
    Exercise(
        log_uniform,
        notebook="14",
        section=_SPACE,
        level="easy",
        minutes=4,
        hints=(
            "What should `u = 0`, `u = 1` and `u = 0.5` give, from 1 to 100?",
            "1, 100 and 10: each step in `u` is a factor, and all of it is `high / low`.",
        ),
        cases=_log_uniform_cases,
        faults=_LOG_UNIFORM_FAULTS,
        returns=("draws",),
        differentiable=False,
    ),
    Exercise(
        looks_given,
        notebook="14",
        section=_EARLY,
        level="middle",
        minutes=12,
        hints=(
            "Keep a list of the rows that ran to their end. Only those are in the median, each with its value "
            "at this look.",
            "`statistics.median` takes the mean of the two in the middle; `torch.median` takes the lower one.",
        ),
        cases=_looks_given_cases,
        faults=_LOOKS_GIVEN_FAULTS,
        returns=("looks",),
        differentiable=False,
    ),
    Exercise(
        expected_best,
        notebook="14",
        section=_BEST,
        level="hard",
        minutes=15,
        hints=(
            "Sorted upwards, the best of n is at or below the i-th value if all n draws are: $(i/N)^n$.",
            "It **is** the i-th with probability $(i/N)^n - ((i-1)/N)^n$. Weigh the sorted values with that.",
        ),
        cases=_expected_best_cases,
        faults=_EXPECTED_BEST_FAULTS,
        returns=("expected best",),
        differentiable=False,
    ),
)
