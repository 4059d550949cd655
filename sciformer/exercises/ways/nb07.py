import math

import torch
from torch import nn

from sciformer.functional import distance_biased_scores, dot_product_scores, steps_between


def distance_scores(query, key, strength, query_offset=0):
    L, S, D = query.shape[-2], key.shape[-2], query.shape[-1]
    i = query_offset + torch.arange(L, device=query.device)[:, None]  # (L, 1)
    j = torch.arange(S, device=query.device)  # (S,)
    penalty = strength[:, None, None] * (i - j).abs()  # (H, L, S)
    return query @ key.transpose(-2, -1) / math.sqrt(D) - penalty


def distance_scores__loop(query, key, strength, query_offset):
    scores = torch.einsum("bhid,bhjd->bhij", query, key) * query.shape[-1] ** -0.5
    rows = [
        [scores[:, :, i, j] - strength * abs(i + query_offset - j) for j in range(key.shape[2])]
        for i in range(query.shape[2])
    ]
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


def distance_scores__package(query, key, strength, query_offset=0):
    return distance_biased_scores(query, key, strength, query_offset=query_offset)


def grid_distance(rows, width):
    token = torch.arange(rows * width)
    row, column = token // width, token % width  # (L,) each
    return (row[:, None] - row).abs() + (column[:, None] - column).abs()  # (L, L)


def grid_distance__loop(rows, width):
    positions = [(row, column) for row in range(rows) for column in range(width)]
    return torch.tensor([[float(abs(r - s) + abs(c - d)) for s, d in positions] for r, c in positions])


def grid_distance__points(rows, width):
    points = torch.cartesian_prod(torch.arange(float(rows)), torch.arange(float(width)))  # (L, 2)
    return torch.cdist(points, points, p=1)


def grid_distance__package(rows, width):
    return steps_between(rows * width, rows * width, width=width).sum(dim=0)


class TwoSidedScore(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.strength = nn.Parameter(torch.full((num_heads, 2), 0.1))

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        L, S = query.shape[-2], key.shape[-2]
        i = query_offset + torch.arange(L, device=query.device)[:, None]  # (L, 1)
        j = torch.arange(S, device=query.device)  # (S,)
        left, right = (i - j).clamp(min=0), (j - i).clamp(min=0)  # (L, S) each
        prices = self.strength[..., None, None]  # (H, 2, 1, 1)
        penalty = prices[:, 0] * left + prices[:, 1] * right  # (H, L, S)
        return query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]) - penalty


class TwoSidedScore__where(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.scale = head_dim**-0.5
        self.strength = nn.Parameter(0.1 * torch.ones(num_heads, 2))

    def forward(self, query, key, *, query_offset):
        ahead = torch.arange(key.shape[2]) - torch.arange(query.shape[2])[:, None] - query_offset
        ahead = ahead.to(query)
        slope = torch.where(ahead < 0, self.strength[:, 0, None, None], self.strength[:, 1, None, None])
        return torch.einsum("bhid,bhjd->bhij", query, key) * self.scale - slope * ahead.abs()


class TwoSidedScore__loop(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.strength = nn.Parameter(torch.full((num_heads, 2), 0.1))

    def forward(self, query, key, **options):
        rows = []
        for i in range(query.shape[2]):
            columns = []
            for j in range(key.shape[2]):
                steps = i + options["query_offset"] - j
                penalty = self.strength[:, int(steps < 0)].double() * abs(steps)
                columns.append((query[:, :, i] * key[:, :, j]).sum(dim=-1) / query.shape[-1] ** 0.5 - penalty)
            rows.append(torch.stack(columns, dim=-1))
        return torch.stack(rows, dim=-2)


class TwoSidedScore__package(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.strength = nn.Parameter(torch.full((num_heads, 2), 0.1))

    def forward(self, query, key, query_offset=0):
        steps = steps_between(query.shape[2], key.shape[2], query_offset=query_offset, device=query.device)
        return dot_product_scores(query, key) - torch.einsum("ha,aij->hij", self.strength, steps.to(query))


def grid_scores(query, key, strength, width):
    L, D = query.shape[-2:]
    token = torch.arange(L, device=query.device)
    row, column = token // width, token % width  # (L,) each
    right, down = column - column[:, None], row - row[:, None]  # (L, L): from the query to the key
    sides = torch.stack([(-right).clamp(min=0), right.clamp(min=0), (-down).clamp(min=0), down.clamp(min=0)])
    penalty = torch.einsum("ha,aij->hij", strength, sides.to(strength.dtype))  # (H, L, L)
    return query @ key.transpose(-2, -1) / math.sqrt(D) - penalty


def grid_scores__where(query, key, strength, width):
    token = torch.arange(query.shape[2], device=query.device)
    right = (token % width)[None] - (token % width)[:, None]
    down = (token // width)[None] - (token // width)[:, None]
    left_slope, right_slope, above_slope, below_slope = (slope[:, None, None] for slope in strength.T)
    across = torch.where(right < 0, left_slope, right_slope) * right.abs()
    upright = torch.where(down < 0, above_slope, below_slope) * down.abs()
    return query @ key.mT * query.shape[-1] ** -0.5 - across - upright


def grid_scores__package(query, key, strength, width):
    return distance_biased_scores(query, key, strength, width=width)


def with_time(query, key, times, strength):
    D = query.shape[-1]
    ones = torch.ones_like(query[..., :1])  # (B, H, L, 1)
    mark = math.sqrt(D + 1) * strength[:, None, None] * times[:, None]  # (H, L, 1)
    query = torch.cat([query * math.sqrt((D + 1) / D), ones], dim=-1)
    return query, torch.cat([key, mark.expand_as(ones)], dim=-1)  # (B, H, L, D + 1) each


def with_time__shared_out(query, key, times, strength):
    """A quarter of each factor's exponent on either side, and λ with the queries."""
    D = query.shape[-1]
    contents, root = ((D + 1) / D) ** 0.25, (D + 1) ** 0.25
    slopes = (root * strength)[None, :, None, None].expand(*query.shape[:-1], 1)
    clock = (root * (times - times[-1]))[None, None, :, None].expand(*key.shape[:-1], 1)
    return torch.cat([contents * query, slopes], dim=-1), torch.cat([contents * key, clock], dim=-1)


def with_time__two_numbers(query, key, times, strength):
    """The whole of −λ(t_i − t_j): the query's part does no harm."""
    D = query.shape[-1]
    ones, slope = torch.ones_like(query[..., :1]), strength[:, None, None]
    own, other = -slope * times[:, None] * ones, slope * times[:, None] * ones
    query = torch.cat([query / D**0.5, own, ones], dim=-1) * (D + 2) ** 0.5
    return query, torch.cat([key, ones, other], dim=-1)


def with_time__loop(query, key, times, strength):
    B, H, L, D = query.shape
    queries = [
        [[*(x * ((D + 1) / D) ** 0.5 for x in query[b, h, i])] for i in range(L)] for b in range(B) for h in range(H)
    ]
    longer = torch.stack([torch.stack([torch.stack([*row, row[0] * 0 + 1]) for row in head]) for head in queries])
    marks = torch.stack([strength[h] * times * (D + 1) ** 0.5 for _ in range(B) for h in range(H)])
    keys = torch.cat([key.flatten(0, 1), marks[..., None]], dim=-1)
    return longer.unflatten(0, (B, H)), keys.unflatten(0, (B, H))
