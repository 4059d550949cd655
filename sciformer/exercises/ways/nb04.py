import math

import torch

from sciformer import SinusoidalPositions


def attend_in_order(x, table, attention):
    return attention(x + table[: x.shape[1]])


def attend_in_order__loop(x, table, attention):
    placed = torch.zeros_like(x)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            placed[b, t] = x[b, t] + table[t]
    return attention(placed)


def attend_in_order__looked_up(x, table, attention):
    positions = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])  # (B, L)
    return torch.stack([attention(sentence[None])[0] for sentence in x + torch.embedding(table, positions)])


def sinusoidal_table(length, embed_dim):
    position = torch.arange(length)[:, None]  # (L, 1)
    frequency = 10000.0 ** (-torch.arange(0, embed_dim, 2) / embed_dim)  # (E/2,)
    angle = position * frequency  # (L, E/2)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)  # (L, E)


def sinusoidal_table__loop(length, embed_dim):
    rows = []
    for t in range(length):
        angles = [t / 10000 ** (2 * i / embed_dim) for i in range(embed_dim // 2)]
        rows.append([wave(angle) for angle in angles for wave in (math.sin, math.cos)])
    return torch.tensor(rows)


def sinusoidal_table__slices(length, embed_dim):
    table = torch.zeros(length, embed_dim, dtype=torch.float64)
    frequency = torch.exp(-math.log(10000.0) * torch.arange(0, embed_dim, 2) / embed_dim)
    table[:, 0::2] = torch.sin(torch.outer(torch.arange(length), frequency))
    table[:, 1::2] = torch.cos(torch.outer(torch.arange(length), frequency))
    return table


def sinusoidal_table__package(length, embed_dim):
    return SinusoidalPositions(embed_dim, length).table


def shift_matrix(embed_dim, shift):
    angle = shift * 10000.0 ** (-torch.arange(0, embed_dim, 2) / embed_dim)  # (E/2,)
    blocks = [torch.tensor([[b.cos(), -b.sin()], [b.sin(), b.cos()]]) for b in angle]
    return torch.block_diag(*blocks)  # (E, E)


def shift_matrix__loop(embed_dim, shift):
    matrix = torch.zeros(embed_dim, embed_dim)
    for i in range(0, embed_dim, 2):
        angle = shift / 10000 ** (i / embed_dim)
        matrix[i, i] = matrix[i + 1, i + 1] = math.cos(angle)
        matrix[i, i + 1], matrix[i + 1, i] = -math.sin(angle), math.sin(angle)
    return matrix


def shift_matrix__step_by_step(embed_dim, shift):
    """One step forward, taken ``shift`` times."""
    frequency = 10000.0 ** (-torch.arange(0, embed_dim, 2, dtype=torch.float64) / embed_dim)
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    return torch.matrix_exp(torch.kron(frequency.diag(), turn)).matrix_power(shift)


def shift_matrix__fitted(embed_dim, shift):
    """Least squares over many positions: there is one matrix only that fits them all."""
    position = torch.arange(0, 20_000, 7, dtype=torch.float64)[:, None]
    frequency = 10000.0 ** (-torch.arange(0, embed_dim, 2, dtype=torch.float64) / embed_dim)
    before, after = (
        torch.stack([(t * frequency).sin(), (t * frequency).cos()], dim=-1).flatten(1)
        for t in (position, position + shift)
    )
    return torch.linalg.lstsq(before, after).solution


def rotary_scores(query, key, turns):
    def turn(x):  # (B, H, L, D): row t is turned by its matrix
        return torch.einsum("bhtd,tde->bhte", x, turns[: x.shape[2]])

    return turn(query) @ turn(key).mT / math.sqrt(query.shape[-1])


def rotary_scores__loop(query, key, turns):
    B, H, L, D = query.shape
    scores = torch.zeros(B, H, L, key.shape[2], dtype=query.dtype, device=query.device)
    for t in range(L):
        for u in range(key.shape[2]):
            q, k = query[:, :, t] @ turns[t], key[:, :, u] @ turns[u]  # (B, H, D)
            scores[:, :, t, u] = (q * k).sum(dim=-1) / D**0.5
    return scores


def rotary_scores__rows(query, key, turns):
    L, S, D = query.shape[2], key.shape[2], query.shape[3]
    turned_query = torch.stack([query[:, :, t] @ turns[t] for t in range(L)], dim=2)
    turned_key = torch.stack([key[:, :, u] @ turns[u] for u in range(S)], dim=2)
    return torch.matmul(turned_query, turned_key.transpose(-2, -1)) / D**0.5


def rotary_scores__products(query, key, turns):
    query = (query.unsqueeze(-2) @ turns[: query.shape[-2]]).squeeze(-2)
    key = (key.unsqueeze(-2) @ turns[: key.shape[-2]]).squeeze(-2)
    return (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)


def rotary_scores__between(query, key, turns):
    between = torch.einsum("tde,uge->tudg", turns[: query.shape[2]], turns[: key.shape[2]])  # turned to and fro
    return torch.einsum("bhtd,tudg,bhug->bhtu", query, between, key) / math.sqrt(query.shape[-1])
