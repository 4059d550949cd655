import torch

from sciformer.functional import additive_scores, attend


def bahdanau(query, key, value, weight):
    hidden = (query[:, None] + key).tanh()  # (L, S, D)
    return (hidden @ weight).softmax(dim=-1) @ value  # (L, D)


def bahdanau__loop(query, key, value, weight):
    rows = []
    for q in query:
        weights = torch.stack([((q + k).tanh() * weight).sum() for k in key]).exp()
        rows.append(sum(a * v for a, v in zip(weights / weights.sum(), value, strict=True)))
    return torch.stack(rows)


def bahdanau__einsum(query, key, value, weight):
    hidden = torch.tanh(query.unsqueeze(1) + key.unsqueeze(0))
    scores = torch.einsum("lsd,d->ls", hidden, weight)
    return torch.einsum("ls,sd->ld", torch.softmax(scores, 1), value)


def bahdanau__package(query, key, value, weight):
    scores = additive_scores(query[None, None], key[None, None], weight[None])
    return attend(scores, value[None, None])[0][0, 0]


def causal_aft(query, key, value):
    weights = key.exp()  # (L, D)
    mean = (weights * value).cumsum(dim=0) / weights.cumsum(dim=0)  # (L, D)
    return query.sigmoid() * mean


def causal_aft__loop(query, key, value):
    rows = []
    for i in range(len(query)):
        weights = torch.softmax(key[: i + 1], dim=0)  # (i + 1, D)
        rows.append(torch.sigmoid(query[i]) * (weights * value[: i + 1]).sum(dim=0))
    return torch.stack(rows)


def causal_aft__logs(query, key, value):
    total = torch.logcumsumexp(key, dim=0)  # (L, D)
    scores = (key[None] - total[:, None]).exp()  # (L, S, D)
    seen = torch.ones(len(query), len(key), device=key.device, dtype=key.dtype).tril()
    return torch.einsum("ls,lsd,sd->ld", seen, scores, value) / (1 + torch.exp(-query))


def read_token(past, score, value):
    if past is None:
        return (score, value, torch.ones_like(score)), value
    largest, top, bottom = past
    new_largest = torch.maximum(largest, score)
    fade, weight = (largest - new_largest).exp(), (score - new_largest).exp()
    top, bottom = fade * top + weight * value, fade * bottom + weight
    return (new_largest, top, bottom), top / bottom


def read_token__total(past, score, value):
    """The past as one key: its score is the log of the sum, its value is the mean."""
    if past is None:
        return {"total": score, "mean": value}, value
    total = torch.logaddexp(past["total"], score)
    mean = past["mean"] + (score - total).exp() * (value - past["mean"])
    return {"total": total, "mean": mean}, mean


def read_token__softmax(past, score, value):
    if past is None:
        past = torch.cat([score[None], value])
        return past, value
    weights = torch.stack([past[0], score]).softmax(dim=0)
    mean = weights[0] * past[1:] + weights[1] * value
    return torch.cat([torch.stack([past[0], score]).logsumexp(dim=0, keepdim=True), mean]), mean
