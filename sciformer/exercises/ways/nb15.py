import torch


def two_slopes_mod(left, right):
    def score_mod(score, b, h, i, j):
        return score - left[h] * (i - j).clamp(min=0) - right[h] * (j - i).clamp(min=0)

    return score_mod


def two_slopes_mod__where(left, right):
    def score_mod(score, b, h, i, j):
        slope = torch.where(j < i, left[h], right[h])
        return score - slope * abs(i - j)

    return score_mod


def two_slopes_mod__relu(left, right):
    slopes = torch.stack([left, right], dim=1)  # (H, 2)

    def score_mod(score, b, h, i, j):
        return score + (slopes[h, 0] * torch.relu(i - j) + slopes[h, 1] * torch.relu(j - i)).neg()

    return score_mod


def merge_halves(first, first_log, second, second_log):
    total = torch.logaddexp(first_log, second_log)  # (L,)
    a, b = (first_log - total).exp(), (second_log - total).exp()  # shares that sum to 1
    return a[:, None] * first + b[:, None] * second, total


def merge_halves__sigmoid(first, first_log, second, second_log):
    share = (second_log - first_log).sigmoid()[:, None]
    return torch.lerp(first, second, share), torch.stack([first_log, second_log]).logsumexp(dim=0)


def merge_halves__loop(first, first_log, second, second_log):
    outputs, logs = [], []
    for one, a, two, b in zip(first, first_log, second, second_log, strict=True):
        largest = max(a, b)
        weights = (a - largest).exp(), (b - largest).exp()
        outputs.append((weights[0] * one + weights[1] * two) / sum(weights))
        logs.append(largest + sum(weights).log())
    return torch.stack(outputs), torch.stack(logs)


def gradients_by_hand(query, key, value, output, log_total, gradient):
    scale = query.shape[-1] ** -0.5
    weights = (scale * query @ key.T - log_total[:, None]).exp()  # (L, S), as in the forward pass
    row = (gradient * output).sum(dim=-1, keepdim=True)  # (L, 1)
    to_scores = weights * (gradient @ value.T - row)  # (L, S)
    return scale * to_scores @ key, scale * to_scores.T @ query, weights.T @ gradient


def gradients_by_hand__autograd(query, key, value, output, log_total, gradient):
    inputs = [x.detach().requires_grad_() for x in (query, key, value)]
    q, k, v = inputs
    result = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
    return torch.autograd.grad(result, inputs, gradient)


def gradients_by_hand__blocks(query, key, value, output, log_total, gradient):
    """A block of keys at a time, as it would run on a GPU."""
    scale = query.shape[-1] ** -0.5
    row = torch.einsum("ld,ld->l", gradient, output)
    to_query, to_key, to_value = torch.zeros_like(query), [], []
    for k, v in zip(key.split(2), value.split(2), strict=True):
        weights = torch.exp(torch.einsum("ld,sd->ls", query, k) * scale - log_total[:, None])
        to_scores = weights * (torch.einsum("ld,sd->ls", gradient, v) - row[:, None]) * scale
        to_query = to_query + to_scores @ k
        to_key.append(torch.einsum("ls,ld->sd", to_scores, query))
        to_value.append(torch.einsum("ls,ld->sd", weights, gradient))
    return to_query, torch.cat(to_key), torch.cat(to_value)
