import math

import torch

from sciformer.lab.metrics import mean_and_error


def seed_spread(values):
    return values.mean(dim=1), values.std(dim=1) / math.sqrt(values.shape[1])


def seed_spread__by_hand(values):
    n = values.shape[1]
    mean = values.sum(dim=1) / n
    variance = ((values - mean[:, None]) ** 2).sum(dim=1) / (n - 1)
    return mean, (variance / n) ** 0.5


def seed_spread__loop(values):
    pairs = [mean_and_error(row.tolist()) for row in values]
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
