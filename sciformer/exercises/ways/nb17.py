import itertools
import math

import torch
import torch.nn.functional as F


def largest_share(temperature, keys):
    return 1 / (1 + (keys - 1) * torch.exp(-2 / temperature))


def largest_share__softmax(temperature, keys):
    cosines = torch.tensor([1.0] + [-1.0] * (keys - 1)).to(temperature)
    return (cosines / temperature).softmax(dim=0)[0]


def largest_share__a_number(temperature, keys):
    best, rest = (math.exp(cosine / float(temperature)) for cosine in (1, -1))
    return best / (best + (keys - 1) * rest)


def low_rank_scores(query, key, left, right):
    query, key = query @ left, key @ right  # (B, H, L, R), (B, H, S, R)
    return query @ key.mT / left.shape[-1] ** 0.5  # (B, H, L, S)


def low_rank_scores__einsum(query, key, left, right):
    return torch.einsum("bhld,hdr,her,bhse->bhls", query, left, right, key) / math.sqrt(left.shape[2])


def low_rank_scores__loop(query, key, left, right):
    heads = []
    for h in range(query.shape[1]):
        form = left[h] @ right[h].T / math.sqrt(left.shape[-1])  # (D, D), of rank R at most
        heads.append(F.linear(query[:, h] @ form, torch.eye(query.shape[-1]).to(query)) @ key[:, h].mT)
    return torch.stack(heads, dim=1)


def is_pairwise(score, query, key):
    whole = score(query, key)  # (L, S)
    for i in range(len(query)):
        for j in range(len(key)):
            alone = score(query[i : i + 1], key[j : j + 1])  # (1, 1)
            if not torch.allclose(alone[0, 0], whole[i, j], atol=1e-4):
                return False
    return True


def is_pairwise__all_at_once(score, query, key):
    alone = [torch.cat([score(q[None], k[None]) for k in key], dim=1) for q in query]
    return torch.allclose(torch.cat(alone), score(query, key), atol=1e-4)


def is_pairwise__by_the_largest_difference(score, query, key):
    whole, largest = score(query, key), 0.0
    for i, j in itertools.product(range(len(query)), range(len(key))):
        alone = score(query[[i]], key[[j]])
        largest = max(largest, abs(alone.item() - whole[i, j].item()))
    return largest < 1e-4
