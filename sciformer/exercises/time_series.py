"""Exercises of notebook 13: time series.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise

_BASELINES = "Baselines"
_CUT = "Cut first"
_WINDOWS = "Windows"
_LEAKS = "Break it: three leaks"
_CROSS = "Cross-attention"
_WHERE = "Where does it look?"


def seasonal_naive(
    past: Tensor,
    season: int,
    horizon: int,
    *,
    length: Callable[..., int] = lambda season: season,
    begin: Callable[..., int] = lambda size, length: size - length,
    order: Callable[..., Tensor] = lambda last: last,
    drift: Callable[..., Any] = lambda past, season: 0.0,
    repeat: Callable[..., Tensor] = lambda last, horizon, past: last[:, torch.arange(horizon) % last.shape[1]],
    size_of: Callable[..., int] = lambda season, horizon: season,
) -> Tensor:
    """The last season again and again, (N, F)."""
    size = min(length(size_of(season, horizon)), past.shape[1])
    start = begin(past.shape[1], size)
    return repeat(order(past[:, start : start + size]), horizon, past) + drift(past, season)


def _seasonal_naive_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, windows: int, context: int, season: int, horizon: int) -> Case:
        return Case(name, {"past": draw.normal(windows, context), "season": season, "horizon": horizon})

    yield case("1 window of 7 months, a season of 3, 2 months ahead", 1, 7, 3, 2)
    yield case("1 window of 7 months, a season of 3, 5 months ahead", 1, 7, 3, 5)
    yield case("3 windows of 11 months, a season of 4, 4 months ahead", 3, 11, 4, 4)
    yield case("2 windows of 5 months, a season of 5, 13 months ahead", 2, 5, 5, 13)
    yield case("2 windows of 8 months, a season of 3, 6 months ahead", 2, 8, 3, 6)


_SEASONAL_NAIVE_FAULTS = (
    Fault(
        "last value repeated",
        "It repeats the last value. That is the naive forecast without a season; here the last `season` values come "
        "again.",
        length=lambda season: 1,
    ),
    Fault(
        "begins where the window begins",
        "It repeats the window from its first month on, as `past` itself does, or past[:, -12:] of fewer months. "
        "Repeat the last `season` months.",
        length=lambda season: 10**6,
    ),
    Fault(
        "as many months as the horizon",
        "It takes the last `horizon` values. How long a season is has nothing to do with how far ahead it looks: "
        "past[:, -season:].",
        size_of=lambda season, horizon: horizon,
        repeat=lambda last, horizon, past: last,
    ),
    Fault(
        "one season only",
        "It ends after one season, and more months are asked for. The season comes again as often as needed.",
        repeat=lambda last, horizon, past: last[:, :horizon],
    ),
    Fault(
        "no modulo",
        "After one season the index i − season is no longer negative, with or without a modulo C, and the window comes "
        "again from its beginning. Take i modulo `season`.",
        repeat=lambda last, horizon, past: past[:, (torch.arange(horizon) - last.shape[1]) % past.shape[1]],
    ),
    Fault(
        "one month for all",
        "Every month ahead gets the value of one season before the first of them. Each gets that of its own month.",
        order=lambda last: last[:, :1].expand_as(last),
    ),
    Fault(
        "season too short",
        "The season is one month too short: take the last `season` values, past[:, -season:].",
        length=lambda season: season - 1,
    ),
    Fault(
        "begins a month late",
        "It begins with the second month of the last season. The first month ahead is one season after "
        "past[:, -season].",
        order=lambda last: last.roll(-1, dims=1),
    ),
    Fault(
        "begins a month early",
        "It begins with the newest month. The first month ahead is one season after past[:, -season], the oldest one "
        "of the last season.",
        order=lambda last: last.roll(1, dims=1),
    ),
    Fault(
        "off by one at the end",
        "The season ends one month before the newest one. A slice up to -1 leaves the last value out.",
        begin=lambda size, length: max(size - length - 1, 0),
    ),
    Fault(
        "first season",
        "It repeats the first season of the window. The last one is nearest to what comes.",
        begin=lambda size, length: 0,
    ),
    Fault(
        "first season, in step",
        "Each month ahead gets a month of the window's first season: the index (C + i) modulo `season` counts from the "
        "window's beginning. The last season is nearest to what comes: past[:, -season:].",
        repeat=lambda last, horizon, past: past[:, (past.shape[1] + torch.arange(horizon)) % last.shape[1]],
    ),
    Fault(
        "counted from the window's beginning",
        "The last season is read at (C + i) modulo `season`, which counts from the window's beginning. It begins "
        "`season` months before its end, so month i ahead is its month i modulo `season`.",
        repeat=lambda last, horizon, past: last[:, (past.shape[1] + torch.arange(horizon)) % last.shape[1]],
    ),
    Fault(
        "rounded down",
        "How often the season comes is rounded down, horizon // season, so the last months are missing unless it fits "
        "evenly. Round up, and cut off at `horizon`.",
        repeat=lambda last, horizon, past: last.repeat(1, max(horizon // last.shape[1], 1))[:, :horizon],
    ),
    Fault(
        "rounded down to none",
        "The season comes horizon // season times. Rounded down, that is not once where the horizon is shorter, and "
        "too few times unless it fits evenly. Round up, and cut off at `horizon`.",
        repeat=lambda last, horizon, past: last.repeat(1, horizon // last.shape[1])[:, :horizon],
    ),
    Fault(
        "backwards",
        "The season runs backwards. Months come again in their own order.",
        order=lambda last: last.flip(1),
    ),
    Fault(
        "mean of the season",
        "Every month ahead gets the mean of the last season. Each gets the value of its own month.",
        order=lambda last: last.mean(dim=1, keepdim=True).expand_as(last),
    ),
    Fault(
        "stretched",
        "Each month of the season is repeated before the next one comes, as repeat_interleave does. "
        "The whole season comes again.",
        repeat=lambda last, horizon, past: last.repeat_interleave(-(-horizon // last.shape[1]), dim=1)[:, :horizon],
    ),
    Fault(
        "with a drift",
        "The change over a season is added. The seasonal naive forecast repeats the values as they were.",
        drift=lambda past, season: past[:, -1:] - past[:, max(-season - 1, -past.shape[1])][:, None],
    ),
)


def honest_windows(
    series: Tensor,
    context: int,
    horizon: int,
    cut: int,
    *,
    known: Callable[..., Tensor] = lambda series, cut, length: series[:cut],
    known_in_test: Callable[..., Tensor] = lambda series, cut, context, seen: seen,
    centre: Callable[..., Tensor] = lambda known: known.mean(),
    spread: Callable[..., Tensor] = lambda known: known.std(),
    scale: Callable[..., Tensor] = lambda series, mean, std: (series - mean) / std,
    gap: int = 0,
    train_end: Callable[..., int] = lambda cut, context, horizon: cut,
    test_start: Callable[..., int] = lambda cut, context, horizon: cut - context,
    stretches: Callable[..., Tensor] = lambda series, length: series.unfold(0, length, 1),
) -> tuple[Tensor, Tensor]:
    """Training and test windows, each (N, C + F), in units of the training part."""
    length = context + horizon
    seen = known(series, cut, length)
    seen_in_test = known_in_test(series, cut, context, seen)
    train = scale(series, centre(seen), spread(seen))[: train_end(cut, context, horizon)]
    test = scale(series, centre(seen_in_test), spread(seen_in_test))[test_start(cut, context, horizon) :]
    return stretches(train, length + gap), stretches(test, length + gap)


def _honest_windows_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, length: int, context: int, horizon: int, cut: int) -> Case:
        series = draw.normal(length) + 0.2 * torch.arange(length, device=draw.device).to(draw.dtype)
        return Case(name, {"series": series, "context": context, "horizon": horizon, "cut": cut})

    yield case("11 months, 2 to look at, 1 ahead, cut before month 7", 11, 2, 1, 7)
    yield case("13 months, 3 to look at, 2 ahead, cut before month 8", 13, 3, 2, 8)
    yield case("17 months, 2 to look at, 3 ahead, cut before month 9", 17, 2, 3, 9)
    yield case("29 months, 5 to look at, 3 ahead, cut before month 17", 29, 5, 3, 17)


_HONEST_WINDOWS_FAULTS = (
    Fault(
        "standardised over everything",
        "Mean and standard deviation come from the whole series, so training already knows something of the test. Take "
        "both from series[:cut].",
        see=_CUT,
        known=lambda series, cut, length: series,
    ),
    Fault(
        "each part by itself",
        "The test is standardised with its own mean and standard deviation. When a forecast is made, these months have "
        "not been measured: use those of series[:cut].",
        see=_CUT,
        known_in_test=lambda series, cut, context, seen: series[cut:],
    ),
    Fault(
        "each part by itself, look-back included",
        "The test is standardised by itself, with the months it looks back to. When a forecast is made, its own months "
        "have not been measured: use mean and standard deviation of series[:cut].",
        see=_CUT,
        known_in_test=lambda series, cut, context, seen: series[cut - context :],
    ),
    Fault(
        "mean over the windows",
        "Mean and standard deviation are those of the windows, in which most months stand several times. Standardise "
        "the series, then make the windows.",
        see=_CUT,
        known=lambda series, cut, length: series[:cut].unfold(0, length, 1),
    ),
    Fault(
        "divided by n",
        "The standard deviation divides by n. Here it is torch's `std`, which divides by n − 1.",
        see=_CUT,
        spread=lambda known: known.std(correction=0),
    ),
    Fault(
        "cut one too late",
        "The mean takes in month `cut`, the first one of the test. series[:cut] ends just before it.",
        see=_CUT,
        known=lambda series, cut, length: series[: cut + 1],
    ),
    Fault(
        "not standardised",
        "The windows are in the series' own units. Subtract the training part's mean and divide by its standard "
        "deviation.",
        see=_CUT,
        scale=lambda series, mean, std: series,
    ),
    Fault(
        "not centred",
        "The mean is not subtracted.",
        see=_CUT,
        scale=lambda series, mean, std: series / std,
    ),
    Fault(
        "not divided",
        "The series is not divided by its standard deviation.",
        see=_CUT,
        scale=lambda series, mean, std: series - mean,
    ),
    Fault(
        "variance for the standard deviation",
        "It divides by the variance. The standard deviation, its root, has the series' units.",
        see=_CUT,
        spread=lambda known: known.var(),
    ),
    Fault(
        "windows cross the cut",
        "Training windows cross the cut: the futures of the last ones are months of the test. Cut the series first, "
        "then make windows of series[:cut].",
        train_end=lambda cut, context, horizon: cut + horizon,
    ),
    Fault(
        "futures across the cut",
        "The last training windows begin their futures before the cut and end them behind it, in the test. Cut the "
        "series first, then make windows of series[:cut].",
        train_end=lambda cut, context, horizon: cut + horizon - 1,
    ),
    Fault(
        "split by the first month",
        "All windows that begin before the cut are in training, whatever their futures hold. Their last month counts: "
        "make windows of series[:cut].",
        train_end=lambda cut, context, horizon: cut + context + horizon - 1,
    ),
    Fault(
        "one window crosses",
        "The last training window ends with month `cut`, the first one of the test. Months are counted from 0.",
        train_end=lambda cut, context, horizon: cut + 1,
    ),
    Fault(
        "training ends early",
        "The last months before the cut are missing from training. A window may end with month cut - 1: it is known.",
        train_end=lambda cut, context, horizon: cut - horizon,
    ),
    Fault(
        "last training window lost",
        "The last training window is missing, the one that ends with month cut - 1. This month is known, so the window "
        "belongs to training: it begins at cut - context - horizon.",
        train_end=lambda cut, context, horizon: cut - 1,
    ),
    Fault(
        "test starts late",
        "The first `context` months of the test are never forecast. A test window may look back over the cut, since by "
        "then these months are known: begin at cut - context.",
        see=_WINDOWS,
        test_start=lambda cut, context, horizon: cut,
    ),
    Fault(
        "test one too late",
        "The test's first month is never forecast: the windows begin one month too late. Begin at cut - context.",
        see=_WINDOWS,
        test_start=lambda cut, context, horizon: cut - context + 1,
    ),
    Fault(
        "test one too early",
        "The first test window forecasts month cut - 1, which is a month of training. Begin at cut - context.",
        see=_WINDOWS,
        test_start=lambda cut, context, horizon: cut - context - 1,
    ),
    Fault(
        "last training window in the test",
        "The test begins with a window whose future is over before the cut: the last one of training. Begin at "
        "cut - context.",
        see=_WINDOWS,
        test_start=lambda cut, context, horizon: cut - context - horizon,
    ),
    Fault(
        "test over everything",
        "The test's windows are those of the whole series, training months included.",
        see=_WINDOWS,
        test_start=lambda cut, context, horizon: 0,
    ),
    Fault(
        "a window too long",
        "The windows are one month too long: context + horizon.",
        see=_WINDOWS,
        gap=1,
    ),
    Fault(
        "no overlap",
        "The windows follow one another without overlap. Each begins one month after the one before.",
        see=_WINDOWS,
        stretches=lambda series, length: series.unfold(0, length, length),
    ),
    Fault(
        "last test window lost",
        "The last test window is missing: the last beginning is length − context − horizon.",
        see=_WINDOWS,
        train_end=lambda cut, context, horizon: cut + 1,
        stretches=lambda series, length: series.unfold(0, length, 1)[:-1],
    ),
    Fault(
        "test is all the rest",
        "All windows that are not in training are in the test, also those whose futures begin before the cut. Begin at "
        "cut - context.",
        see=_WINDOWS,
        test_start=lambda cut, context, horizon: cut - context - horizon + 1,
    ),
    Fault(
        "last window lost",
        "The last window is missing: there are length − context − horizon + 1 of them.",
        see=_WINDOWS,
        stretches=lambda series, length: series.unfold(0, length, 1)[:-1],
    ),
)


def cross_lags(
    future: Tensor,
    past: Tensor,
    w_query: Tensor,
    w_key: Tensor,
    *,
    keys_from: Callable[..., Tensor] = lambda future, past: past,
    queries_from: Callable[..., Tensor] = lambda future, past: future,
    key_weight: Callable[..., Tensor] = lambda w_query, w_key: w_key,
    scale: Callable[..., Tensor] = lambda scores, query, signal: scores / math.sqrt(query.shape[-1]),
    normalize: Callable[..., Tensor] = lambda scores: scores.softmax(dim=-1),
    lag: Callable[..., Tensor] = lambda i, j, L, S: i + S - j,
    collect: Callable[..., Tensor] = lambda chosen, queries: chosen.mean(),
    finish: Callable[..., Tensor] = lambda profile, weights: profile,
    batch: Callable[..., Tensor] = lambda weights: weights.mean(dim=0),
) -> Tensor:
    """Mean attention weight at the lags 1, ..., L + S - 1."""
    query, key = queries_from(future, past) @ w_query, keys_from(future, past) @ key_weight(w_query, w_key)
    weights = batch(normalize(scale(query @ key.mT, query, future)))  # (L, S)
    L, S = weights.shape
    i, j = torch.arange(L, device=weights.device)[:, None], torch.arange(S, device=weights.device)
    steps = lag(i, j, L, S)
    profile = [collect(weights[steps == r], L) for r in range(1, L + S)]
    return finish(torch.stack(profile), weights)


def _cross_lags_cases(draw: Draw) -> Iterator[Case]:
    def case(name: str, count: int, ahead: int, back: int, embed_dim: int, head_dim: int) -> Case:
        future, past = draw.normal(count, ahead, embed_dim), draw.normal(count, back, embed_dim)
        w_query, w_key = draw.normal(embed_dim, head_dim), draw.normal(embed_dim, head_dim)
        return Case(name, {"future": future, "past": past, "w_query": w_query, "w_key": w_key})

    yield case("1 window, 2 months ahead, 3 back", 1, 2, 3, 2, 2)
    yield case("1 window, 2 months ahead, 4 back", 1, 2, 4, 3, 2)
    yield case("3 windows, 2 months ahead, 5 back", 3, 2, 5, 3, 2)
    yield case("2 windows, 4 months ahead, 7 back", 2, 4, 7, 4, 5)


def _divided_by_too_much(profile: Tensor, weights: Tensor) -> Tensor:
    """The sums over all pairs of a lag, divided by min(lag, L, S), which is not their number at the long lags."""
    L, S = weights.shape
    lag = torch.arange(1, L + S, device=profile.device)
    at_most = lag.clamp(max=min(L, S))
    return profile * torch.minimum(at_most, L + S - lag) / at_most


_CROSS_LAGS_FAULTS = (
    Fault(
        "keys from the query's signal",
        "The keys are made of the queries' own signal, which is self-attention. They come from the other one: past.",
        see=_CROSS,
        keys_from=lambda future, past: future,
    ),
    Fault(
        "queries from the past",
        "Queries are made of the past as well. A future month asks: future @ w_query.",
        see=_CROSS,
        queries_from=lambda future, past: past,
    ),
    Fault(
        "signals exchanged",
        "The signals are exchanged: the future asks, so it is the query; the past is looked at.",
        see=_CROSS,
        keys_from=lambda future, past: future,
        queries_from=lambda future, past: past,
    ),
    Fault(
        "one projection",
        "Keys are made with the queries' projection. They have their own, w_key.",
        see=_CROSS,
        key_weight=lambda w_query, w_key: w_query,
    ),
    Fault(
        "softmax over the queries",
        "The softmax runs over the months ahead. Each of them shares out one unit among the months back: dim=-1.",
        see=_CROSS,
        normalize=lambda scores: scores.softmax(dim=-2),
    ),
    Fault(
        "softmax over the windows",
        "The softmax runs over the windows of the batch, which have nothing to do with one another: dim=-1.",
        see=_CROSS,
        normalize=lambda scores: scores.softmax(dim=0),
    ),
    Fault(
        "no softmax",
        "These are mean scores, not weights. Take the softmax over the months back first.",
        see=_CROSS,
        normalize=lambda scores: scores,
    ),
    Fault(
        "no scale",
        "The scores are not divided by √D, the root of the width of a query after its projection.",
        see=_CROSS,
        scale=lambda scores, query, signal: scores,
    ),
    Fault(
        "scaled by D",
        "The scores are divided by D. It is √D.",
        see=_CROSS,
        scale=lambda scores, query, signal: scores / query.shape[-1],
    ),
    Fault(
        "scaled by the width before the projection",
        "The scores are divided by √E, the root of the signals' width. After the projection queries and keys have D "
        "features, so their products grow with √D.",
        see=_CROSS,
        scale=lambda scores, query, signal: scores / math.sqrt(signal.shape[-1]),
    ),
    Fault(
        "softmax over the lags",
        "The scores are averaged at each lag, and the softmax runs over the lags. It runs over the months back, for "
        "each month ahead by itself: take it first, then average the weights.",
        normalize=lambda scores: scores,
        finish=lambda profile, weights: profile.softmax(dim=0),
    ),
    Fault(
        "averaged before the softmax",
        "The scores are averaged over the windows before the softmax. Each window has weights of its own: average "
        "those.",
        normalize=lambda scores: scores.mean(dim=0, keepdim=True).softmax(dim=-1),
    ),
    Fault(
        "sum over the windows",
        "The weights of all windows are added up; it is their mean.",
        batch=lambda weights: weights.sum(dim=0),
    ),
    Fault(
        "first window only",
        "Only the first window counts. The profile is the mean over all of them.",
        batch=lambda weights: weights[0],
    ),
    Fault(
        "sum at each lag",
        "The weights at a lag are added up. In the middle more pairs have the same lag, so take their mean.",
        collect=lambda chosen, queries: chosen.sum(),
    ),
    Fault(
        "divided by the queries",
        "The sum at each lag is divided by the number of queries, as if every month ahead had a month at this lag. At "
        "the ends fewer pairs have it: divide by the number of pairs.",
        collect=lambda chosen, queries: chosen.sum() / queries,
    ),
    Fault(
        "largest weight",
        "It is the largest weight at each lag; the mean is wanted.",
        collect=lambda chosen, queries: chosen.max(),
    ),
    Fault(
        "past counted from its beginning",
        "Your lag grows towards the newest month, which stands last among the keys. It should shrink there: from i to "
        "j it is i + S − j.",
        lag=lambda i, j, L, S: i + j + 1,
    ),
    Fault(
        "future counted backwards",
        "The first month ahead has the longest lag here. One more month ahead is one more month away: i + S − j.",
        lag=lambda i, j, L, S: L - i + S - j - 1,
    ),
    Fault(
        "the month ahead forgotten",
        "The lag is counted from now, S − j, whichever month is asked for. Month i ahead is i further away.",
        lag=lambda i, j, L, S: (S - j).expand(L, -1),
    ),
    Fault(
        "mean over the months ahead",
        "The weights are averaged over all months ahead, as if each asked from now. Month i ahead is i steps further "
        "away.",
        finish=lambda profile, weights: weights.mean(dim=0).flip(0),
    ),
    Fault(
        "both counted from one zero",
        "The lag is |i − j|, as within one signal. Here the months ahead follow the S months back: i + S − j.",
        lag=lambda i, j, L, S: (i - j).abs() + 1,  # a profile that begins at lag 0
    ),
    Fault(
        "one lag too early",
        "Every weight stands one lag too early: from the newest month, j = S − 1, to the first ahead, i = 0, it is one "
        "step, not none.",
        lag=lambda i, j, L, S: i + S - 1 - j,
    ),
    Fault(
        "one lag too late",
        "Every weight stands one lag too late, behind an empty lag. From the newest month, j = S − 1, to the first "
        "ahead, i = 0, it is one step, and lag 1 comes first.",
        lag=lambda i, j, L, S: i + S - j + 1,
    ),
    Fault(
        "newest month first",
        "The profile runs from the longest lag to the shortest. Lag 1 comes first.",
        finish=lambda profile, weights: profile.flip(0),
    ),
    Fault(
        "divided by its sum",
        "The profile is divided by its sum. The mean weights are wanted as they are.",
        finish=lambda profile, weights: profile / profile.sum(),
    ),
    Fault(
        "long lags divided by too much",
        "At the long lags the pairs become fewer again, L + S − r of them, and it divides by min(r, L, S). Take the "
        "mean of the pairs that there are.",
        finish=_divided_by_too_much,
    ),
)

EXERCISES = (
    Exercise(
        seasonal_naive,
        notebook="13",
        section=_BASELINES,
        level="easy",
        minutes=6,
        hints=(
            "`past[:, -season:]` is what comes again. Which of its months is the first ahead, and which the one"
            " after the season is through?",
            "Month $i$ ahead, from 0, is month $i$ modulo `season` of the last season. A list of such indices "
            "indexes the columns.",
        ),
        cases=_seasonal_naive_cases,
        faults=_SEASONAL_NAIVE_FAULTS,
        returns=("forecast",),
        differentiable=False,
    ),
    Exercise(
        honest_windows,
        notebook="13",
        section=_LEAKS,
        level="middle",
        minutes=10,
        hints=(
            "Which months are known when the first forecast of the test is made? They may enter its past, and "
            "the mean.",
            "Cut first, into `series[:cut]` and a part that begins `context` months before the cut. "
            "`x.unfold(0, length, 1)` gives all windows.",
        ),
        cases=_honest_windows_cases,
        faults=_HONEST_WINDOWS_FAULTS,
        returns=("training set", "test set"),
        differentiable=False,
    ),
    Exercise(
        cross_lags,
        notebook="13",
        section=_WHERE,
        level="hard",
        minutes=15,
        hints=(
            "Weights first, (B, L, S): scaled, softmax over the months back, then their mean over the windows. "
            "How many steps are there from the newest month to the first one ahead?",
            "The lag of the pair $(i, j)$, both from 0, is $i + S - j$. With a matrix of lags, `weights[lag == "
            "r]` picks the pairs at lag $r$.",
        ),
        cases=_cross_lags_cases,
        faults=_CROSS_LAGS_FAULTS,
        returns=("profile",),
    ),
)
