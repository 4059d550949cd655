import math

import torch

from sciformer.functional import energy_well_scores, gaussian_well, softmax_exponential_well


def lorentzian_moat(weight, alpha):
    radius = 1 / alpha**0.5  # the derivative of d / (1 + α d²) is 0 where α d² = 1
    return radius, torch.exp(-weight * radius / 2)


def lorentzian_moat__numbers(weight, alpha):
    weight, alpha = float(weight), float(alpha)
    return [math.sqrt(1 / alpha), math.exp(-weight / (2 * math.sqrt(alpha)))]


def lorentzian_moat__search(weight, alpha):
    low, high = 0.0, 100.0
    for _ in range(200):  # the derivative of d / (1 + α d²) changes its sign there
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - float(alpha) * middle**2 > 0 else (low, middle)
    return torch.tensor(low), torch.exp(-low * weight / (1 + alpha * low**2))


def far_field(query, key, weight, alpha):
    difference = query[:, :, None] - key[:, None]  # (H, L, S, D)
    log_energy = -alpha[:, None, None] * difference.square().sum(dim=-1)  # (H, L, S)
    return (weight.log() + log_energy).softmax(dim=-1)


def far_field__cdist(query, key, weight, alpha):
    squared = torch.cdist(query, key, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    return torch.softmax(torch.log(weight) - torch.einsum("h,hij->hij", alpha, squared), dim=2)


def far_field__nearest_first(query, key, weight, alpha):
    """The energies, each divided by that of the row's nearest key before exp is taken."""
    squared = (query.square().sum(dim=-1)[..., None] + key.square().sum(dim=-1)[:, None]) - 2 * query @ key.mT
    squared = squared - squared.amin(dim=-1, keepdim=True)
    energy = weight * torch.exp(-alpha.view(-1, 1, 1) * squared)
    return energy / energy.sum(dim=-1, keepdim=True)


def far_field__loop(query, key, weight, alpha):
    rows = []
    for q, k, a in zip(query.double(), key.double(), alpha.double(), strict=True):
        logs = [
            torch.stack([w.double().log() - a * ((x - y) ** 2).sum() for y, w in zip(k, weight, strict=True)])
            for x in q
        ]
        rows.append(torch.stack([(one - one.max()).exp() / (one - one.max()).exp().sum() for one in logs]))
    return torch.stack(rows).to(query)


def far_field__package(query, key, weight, alpha):
    scores = energy_well_scores(query, key, gaussian_well, form="field", alpha=alpha[:, None, None])
    return (scores + weight.log()).softmax(dim=-1)


def fair_shares(distance, alpha, attn_mask):
    exponent = -alpha[:, None, None] * distance  # (H, L, S)
    energy = exponent.masked_fill(~attn_mask, -math.inf).softmax(dim=-1)
    return -distance * energy


def fair_shares__divided(distance, alpha, attn_mask):
    energy = torch.exp(-torch.einsum("h,hij->hij", alpha, distance))
    return -distance * energy / (energy * attn_mask).sum(dim=-1, keepdim=True)


def fair_shares__loop(distance, alpha, attn_mask):
    scores = torch.zeros_like(distance)
    for h, sharpness in enumerate(alpha):
        for i in range(distance.shape[1]):
            seen = attn_mask[i]
            energy = torch.exp(-sharpness * distance[h, i, seen])
            scores[h, i, seen] = -distance[h, i, seen] * energy / energy.sum()
    return scores


def fair_shares__package(distance, alpha, attn_mask):
    return -distance * softmax_exponential_well(distance, alpha[:, None, None], attn_mask=attn_mask)
