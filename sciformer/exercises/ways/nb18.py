import torch
from torch import nn

from sciformer import AttentionOnly as PackageAttentionOnly
from sciformer import DotProductScore, LearnedPositions, MultiHeadAttention, metrics


class AttentionOnly(nn.Module):
    def __init__(self, vocab_size, max_length, embed_dim, num_heads, num_layers, score=DotProductScore):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.positions = LearnedPositions(embed_dim, max_length)
        self.norms = nn.ModuleList(nn.LayerNorm(embed_dim) for _ in range(num_layers))
        self.attentions = nn.ModuleList(
            MultiHeadAttention(embed_dim, num_heads, score=score) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.read_out = nn.Linear(embed_dim, vocab_size)

    def forward(self, tokens, need_weights=False):  # (B, L), whole numbers
        x, maps = self.positions(self.embedding(tokens)), []  # (B, L, E)
        for norm, attention in zip(self.norms, self.attentions, strict=True):
            y, weights = attention(norm(x), is_causal=True, need_weights=need_weights)
            x = x + y
            maps.append(weights)
        return self.read_out(self.norm(x)), maps  # (B, L, V), a list of (B, H, L, L)


class AttentionOnly__package(PackageAttentionOnly):
    def __init__(self, *sizes, score=DotProductScore):
        super().__init__(*sizes, score=score)

    def forward(self, tokens, need_weights=False):
        return super().forward(tokens), self.attention_weights(tokens)


def previous_token_score(weights):  # (B, H, L, L)
    return weights.diagonal(-1, dim1=-2, dim2=-1).mean(dim=(0, 2))  # (H,)


def previous_token_score__loop(weights):
    B, H, L, _ = weights.shape
    total = torch.zeros(H)
    for b in range(B):
        for i in range(1, L):
            total = total + weights[b, :, i, i - 1]
    return total / (B * (L - 1))


def previous_token_score__package(weights):
    return metrics.previous_token_score(weights)


def prefix_matching_score(weights, period):  # (B, H, L, L), (B,)
    found = []
    for of_one, p in zip(weights, period.tolist(), strict=True):
        for i in range(p, weights.shape[-1]):
            found.append(of_one[:, i, i - p + 1])  # (H,)
    return torch.stack(found).mean(dim=0)  # (H,)


def prefix_matching_score__mask(weights, period):
    i = torch.arange(weights.shape[-1])
    chosen = (i[:, None] - i + 1 == period[:, None, None]) & (i[:, None] >= period[:, None, None])  # (B, L, L)
    return (weights * chosen[:, None]).sum(dim=(0, 2, 3)) / chosen.sum()


def prefix_matching_score__package(weights, period):
    return metrics.prefix_matching_score(weights, period)


def ablate(x, heads, num_heads):  # (B, L, E), a list, a number
    parts = x.unflatten(-1, (num_heads, -1)).clone()  # (B, L, H, D)
    parts[:, :, heads] = parts[:, :, heads].mean(dim=(0, 1))
    return parts.flatten(-2)  # (B, L, E)


def ablate__slices(x, heads, num_heads):
    D, out = x.shape[-1] // num_heads, x.clone()
    for h in heads:
        out[..., h * D : (h + 1) * D] = x[..., h * D : (h + 1) * D].mean(dim=(0, 1))
    return out
