import math
import statistics

import torch


def log_uniform(u, low, high):
    return low * (high / low) ** u


def log_uniform__logarithms(u, low, high):
    return torch.exp(math.log(low) + u * (math.log(high) - math.log(low)))


def log_uniform__loop(u, low, high):
    a, b = math.log10(low), math.log10(high)
    return torch.stack([10 ** (a + (b - a) * x) for x in u])


def looks_given(curves, free):
    whole, looks = [], []  # curves of those that ran to their end; looks of all
    for n, row in enumerate(curves.tolist()):
        given = len(row)
        for t in range(len(row) - 1):
            if n >= free and max(row[: t + 1]) < statistics.median(other[t] for other in whole):
                given = t + 1
                break
        if given == len(row):
            whole.append(row)
        looks.append(given)
    return torch.tensor(looks)


def looks_given__tensors(curves, free):
    N, T = curves.shape
    best = curves.cummax(dim=1).values
    looks = torch.full((N,), T, device=curves.device)
    for n in range(free, N):
        whole = curves[:n][looks[:n] == T]
        below = best[n, :-1] < whole.quantile(0.5, dim=0)[:-1]
        if below.any():
            looks[n] = below.int().argmax() + 1
    return looks


def expected_best(values):
    N = len(values)
    share = torch.arange(N + 1, device=values.device) / N  # of values up to the i-th smallest
    n = torch.arange(1, N + 1, device=values.device)[:, None]
    probability = (share**n).diff(dim=1)  # (budgets, ranks): that the best of n is the i-th
    return probability.to(values.dtype) @ values.sort().values


def expected_best__loop(values):
    ordered, N = values.sort().values, len(values)
    rows = []
    for n in range(1, N + 1):
        rows.append(sum(x * ((i / N) ** n - ((i - 1) / N) ** n) for i, x in enumerate(ordered, start=1)))
    return torch.stack(rows)


def expected_best__one_draw_after_the_other(values):
    """The best of n + 1 is the larger of the best of n and one more draw."""
    ordered, N = values.sort().values, len(values)
    probability = torch.full_like(ordered, 1 / N)
    results = []
    for _ in range(N):
        results.append(probability @ ordered)
        up_to = probability.cumsum(dim=0)
        ranks = torch.arange(1, N + 1, device=values.device) / N
        both = up_to * ranks  # both at or below the i-th
        probability = torch.cat([both[:1], both.diff()]).to(values.dtype)
    return torch.stack(results)
