import torch

from sciformer import attend


def new_vector(scores, value):
    weights = scores.softmax(dim=0)  # (S,)
    return weights @ value  # (S,) @ (S, D) = (D,)


def new_vector__loop(scores, value):
    exponentials = [s.exp() for s in scores]
    total = sum(exponentials)
    return sum(e / total * v for e, v in zip(exponentials, value, strict=True))


def new_vector__einsum(scores, value):
    weights = scores.double().exp() / scores.double().exp().sum()
    return torch.einsum("s,sd->d", weights, value.double())


def new_vector__attend(scores, value):
    output, _ = attend(scores[None, None, None], value[None, None])
    return output[0, 0, 0]


def recent_words(length, back):
    position = torch.arange(length)  # (L,)
    steps = position[:, None] - position  # (L, L): how far word j lies behind word i
    return (steps >= 0) & (steps <= back)


def recent_words__loop(length, back):
    return torch.tensor([[i - back <= j <= i for j in range(length)] for i in range(length)])


def recent_words__slices(length, back):
    mask = torch.zeros(length, length, dtype=torch.bool)
    for i in range(length):
        mask[i, max(0, i - back) : i + 1] = True
    return mask


def recent_words__triangles(length, back):
    return torch.ones(length, length, dtype=torch.bool).tril().triu(-back)


def mask_afterwards(weights, attn_mask):
    kept = weights * attn_mask  # (L, L)
    return kept / kept.sum(dim=-1, keepdim=True)


def mask_afterwards__loop(weights, attn_mask):
    rows = []
    for row, visible in zip(weights, attn_mask, strict=True):
        total = sum(w for w, v in zip(row, visible, strict=True) if v)
        rows.append(torch.stack([w / total if v else 0 * w for w, v in zip(row, visible, strict=True)]))
    return torch.stack(rows)


def mask_afterwards__back_to_scores(weights, attn_mask):
    scores = weights.log()  # up to a number that is the same along a row, and cancels
    return scores.masked_fill(~attn_mask, float("-inf")).softmax(dim=-1)


def mask_afterwards__einsum(weights, attn_mask):
    kept = weights.double().masked_fill(attn_mask.logical_not(), 0)
    return torch.einsum("ij,i->ij", kept, 1 / kept.sum(dim=1))


def mask_afterwards__normalize(weights, attn_mask):
    return torch.nn.functional.normalize(weights.where(attn_mask, 0), p=1, dim=-1)
