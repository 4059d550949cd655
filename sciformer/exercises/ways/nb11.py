import math

import torch
import torch.nn.functional as F


def answer_loss(logits, target, pad):
    wanted = target[:, 1:]  # (B, L)
    log_p = logits.log_softmax(dim=-1).gather(-1, wanted[..., None]).squeeze(-1)  # (B, L)
    return -log_p[wanted != pad].mean()


def answer_loss__loop(logits, target, pad):
    losses = []
    for row, tokens in zip(logits, target, strict=True):
        for at_position, token in zip(row, tokens[1:], strict=True):
            if token != pad:
                losses.append(at_position.logsumexp(dim=0) - at_position[token])
    return sum(losses) / len(losses)


def answer_loss__torch(logits, target, pad):
    return F.cross_entropy(logits.transpose(1, 2).double(), target[:, 1:], ignore_index=pad)


def look_across(x, encoded, lengths, w_q, w_k, w_v):
    query, key, value = x @ w_q, encoded @ w_k, encoded @ w_v  # (B, L, D), (B, S, D), (B, S, D)
    scores = query @ key.mT / key.shape[-1] ** 0.5  # (B, L, S)
    real = torch.arange(encoded.shape[1], device=x.device) < lengths[:, None]  # (B, S)
    return scores.masked_fill(~real[:, None, :], -math.inf).softmax(dim=-1) @ value


def look_across__loop(x, encoded, lengths, w_q, w_k, w_v):
    outputs = []
    for target, source, length in zip(x, encoded, lengths.tolist(), strict=True):
        source = source[:length]
        rows = []
        for token in target:
            weights = torch.stack([(token @ w_q) @ (s @ w_k) / w_k.shape[1] ** 0.5 for s in source]).softmax(dim=0)
            rows.append(sum(w * (s @ w_v) for w, s in zip(weights, source, strict=True)))
        outputs.append(torch.stack(rows))
    return torch.stack(outputs)


def look_across__torch(x, encoded, lengths, w_q, w_k, w_v):
    x, encoded, w_q, w_k, w_v = (t.double() for t in (x, encoded, w_q, w_k, w_v))
    real = torch.arange(encoded.shape[1], device=x.device).expand(len(x), 1, -1) < lengths[:, None, None]
    return F.scaled_dot_product_attention(x @ w_q, encoded @ w_k, encoded @ w_v, attn_mask=real)


def widen_and_keep(log_p, logits, ended, pad):
    K, V = logits.shape
    step = logits.log_softmax(dim=-1)  # (K, V)
    step = step.masked_fill(ended[:, None], -math.inf)
    step[ended, pad] = 0.0
    total, index = (log_p[:, None] + step).flatten().topk(K)
    return index // V, index % V, total


def widen_and_keep__loop(log_p, logits, ended, pad):
    candidates = []
    for k in range(len(log_p)):
        if ended[k]:
            candidates.append((log_p[k], k, pad))
        else:
            step = torch.log_softmax(logits[k], dim=0)
            candidates += [(log_p[k] + step[v], k, v) for v in range(len(step))]
    candidates.sort(key=lambda candidate: -candidate[0].item())
    best = candidates[: len(log_p)]
    parent, token = (torch.tensor([c[n] for c in best], device=logits.device) for n in (1, 2))
    return parent, token, torch.stack([c[0] for c in best])


def widen_and_keep__masked_logits(log_p, logits, ended, pad):
    hide = ended[:, None] & (torch.arange(logits.shape[1], device=logits.device) != pad)
    total = log_p[:, None].double() + logits.double().masked_fill(hide, -math.inf).log_softmax(dim=1)
    order = total.view(-1).argsort(descending=True)[: len(log_p)]
    parent = torch.div(order, logits.shape[1], rounding_mode="floor")
    return parent, order - parent * logits.shape[1], total.view(-1)[order]
