import math

import torch

from sciformer import metrics


def seed_spread(values):
    return values.mean(dim=1), values.std(dim=1) / math.sqrt(values.shape[1])


def seed_spread__by_hand(values):
    n = values.shape[1]
    mean = values.sum(dim=1) / n
    variance = ((values - mean[:, None]) ** 2).sum(dim=1) / (n - 1)
    return mean, (variance / n) ** 0.5


def seed_spread__loop(values):
    pairs = [metrics.mean_and_error(row.tolist()) for row in values]
    return values.new_tensor([mean for mean, _ in pairs]), values.new_tensor([error for _, error in pairs])


def paired_gain(ours, theirs):
    gain = ours - theirs  # (R,), a difference a seed
    return gain.mean(), gain.std() / math.sqrt(len(gain))


def paired_gain__covariance(ours, theirs):
    spread = torch.cov(torch.stack([ours, theirs]))
    variance = spread[0, 0] + spread[1, 1] - 2 * spread[0, 1]
    return ours.mean() - theirs.mean(), (variance / len(ours)) ** 0.5


def paired_gain__loop(ours, theirs):
    gains = [a - b for a, b in zip(ours, theirs, strict=True)]
    mean = sum(gains) / len(gains)
    return mean, (sum((g - mean) ** 2 for g in gains) / (len(gains) - 1) / len(gains)) ** 0.5


def holm(p):
    order = p.argsort()  # from the smallest to the largest
    factor = torch.arange(len(p), 0, -1, device=p.device)  # M, M - 1, ..., 1
    adjusted = (factor * p[order]).cummax(dim=0).values.clamp(max=1)
    return adjusted[order.argsort()]  # back to where each stood


def holm__loop(p):
    values, result, highest = p.tolist(), [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda i: values[i])):
        highest = max(highest, (len(p) - rank) * values[index])
        result[index] = min(1.0, highest)
    return p.new_tensor(result)


def holm__pairwise(p):
    """How many are no smaller: that is each one's factor; then the largest of all that are no larger."""
    distinct = p + torch.arange(len(p), device=p.device) * 1e-9
    times = p * (distinct[None, :] >= distinct[:, None]).sum(dim=1)
    below = distinct[None, :] <= distinct[:, None]
    return torch.where(below, times[None, :], 0.0).amax(dim=1).clamp(max=1)


def verdict_rule(gains, delta, t):
    n = gains.shape[1]
    error = gains.std(dim=1) / math.sqrt(n)
    low, high = gains.mean(dim=1) - t * error, gains.mean(dim=1) + t * error
    verdicts = torch.where(low > 0, 1, torch.where(high < delta, -1, 0))
    if n < 5:
        verdicts = torch.zeros_like(verdicts)
    return verdicts, (verdicts == 1).float().mean()


def verdict_rule__loop(gains, delta, t):
    verdicts = []
    for row in gains.tolist():
        mean, error = metrics.mean_and_error(row)
        if len(row) < 5:
            verdicts.append(0)
        elif mean - t * error > 0:
            verdicts.append(1)
        else:
            verdicts.append(-1 if mean + t * error < delta else 0)
    return torch.tensor(verdicts), verdicts.count(1) / len(verdicts)


def verdict_rule__t_values(gains, delta, t):
    """The mean in standard errors, from 0 and from delta."""
    n, mean = gains.shape[1], gains.mean(dim=1)
    error = ((gains - mean[:, None]).square().sum(dim=1) / (n - 1) / n).sqrt()
    shown = (mean / error > t) & (n >= 5)
    refuted = ((delta - mean) / error > t) & (n >= 5) & ~shown
    return shown.to(gains) - refuted.to(gains), shown.sum() / len(gains)


def test_holm(holm):
    by_hand = {
        (0.02, 0.01, 0.30, 0.04): (0.06, 0.04, 0.30, 0.08),  # times 3, 4, 1 and 2
        (0.90, 0.011, 0.35, 0.010, 0.02): (0.90, 0.05, 0.70, 0.05, 0.06),  # 4 · 0.011 is below 5 · 0.010
        (0.7, 0.6, 0.4): (1.0, 1.0, 1.0),
    }
    for p, corrected in by_hand.items():
        torch.testing.assert_close(holm(torch.tensor(p)), torch.tensor(corrected))


def test_holm__one_by_one(holm):
    p = torch.tensor([0.30, 0.011, 0.9, 0.010, 0.02, 0.6])
    highest = 0.0
    for rank, index in enumerate(p.argsort()):
        highest = max(highest, min(1.0, (len(p) - rank) * p[index].item()))
        assert abs(holm(p)[index].item() - highest) < 1e-5
