import math

import torch

from sciformer import metrics
from sciformer.data import windows


def seasonal_naive(past, season, horizon):
    last = past[:, -season:]  # (N, season)
    return last[:, torch.arange(horizon) % season]  # (N, F)


def seasonal_naive__repeat(past, season, horizon):
    return past[:, past.shape[1] - season :].repeat(1, math.ceil(horizon / season))[:, :horizon]


def seasonal_naive__month_by_month(past, season, horizon):
    known = list(past.unbind(dim=1))
    for _ in range(horizon):
        known.append(known[-season])
    return torch.stack(known[-horizon:], dim=1)


def honest_windows(series, context, horizon, cut):
    train = series[:cut]
    series = (series - train.mean()) / train.std()
    length = context + horizon
    return series[:cut].unfold(0, length, 1), series[cut - context :].unfold(0, length, 1)


def honest_windows__loop(series, context, horizon, cut):
    mean = sum(series[:cut]) / cut
    std = (sum((x - mean) ** 2 for x in series[:cut]) / (cut - 1)) ** 0.5
    train, test = [], []
    for start in range(len(series) - context - horizon + 1):
        window = (series[start : start + context + horizon] - mean) / std
        if start + context + horizon <= cut:
            train.append(window)
        elif start + context >= cut:
            test.append(window)
    return torch.stack(train), torch.stack(test)


def honest_windows__package(series, context, horizon, cut):
    std, mean = torch.std_mean(series[:cut])
    parts = series[:cut], series[cut - context :]
    return [torch.cat(windows((part - mean) / std, context, horizon), dim=1) for part in parts]


def cross_lags(future, past, w_query, w_key):
    query, key = future @ w_query, past @ w_key  # (B, L, D), (B, S, D)
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1).mean(dim=0)  # (L, S)
    L, S = weights.shape
    lag = torch.arange(L)[:, None] + S - torch.arange(S)  # (L, S)
    return torch.stack([weights[lag == r].mean() for r in range(1, L + S)])


def cross_lags__loop(future, past, w_query, w_key):
    B, L, S = len(future), future.shape[1], past.shape[1]
    total, count = [0.0] * (L + S - 1), [0] * (L + S - 1)
    for b in range(B):
        for i in range(L):
            query = future[b, i] @ w_query
            scores = torch.stack([query @ (past[b, j] @ w_key) for j in range(S)]) / len(query) ** 0.5
            for j, weight in enumerate(torch.softmax(scores, dim=0)):
                total[i + S - j - 1] = total[i + S - j - 1] + weight
                count[i + S - j - 1] += 1
    return torch.stack([t / n for t, n in zip(total, count, strict=True)])


def cross_lags__diagonals(future, past, w_query, w_key):
    scores = torch.einsum("ble,ed,bsf,fd->bls", future, w_query, past, w_key) * w_key.shape[1] ** -0.5
    newest_first = torch.softmax(scores, dim=2).mean(dim=0).flip(1)  # the lag is now i + j + 1
    mirrored = newest_first.flip(0)  # so that a lag is a diagonal
    L, S = mirrored.shape
    return torch.stack([mirrored.diagonal(offset).mean() for offset in range(1 - L, S)])


def cross_lags__package(future, past, w_query, w_key):
    query, key = future @ w_query, past @ w_key
    weights = torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, dim=-1)
    return metrics.attention_by_lag(weights[:, None])[0]
