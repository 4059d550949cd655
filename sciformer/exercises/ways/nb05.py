import torch
import torch.nn.functional as F
from torch import nn

from sciformer import MultiHeadAttention


def root_mean_square_norm(x, weight, eps):
    mean_square = x.square().mean(dim=-1, keepdim=True)  # (B, L, 1)
    return x / (mean_square + eps).sqrt() * weight


def root_mean_square_norm__loop(x, weight, eps):
    tokens = []
    for token in x.flatten(0, 1):
        square = sum(number**2 for number in token) / len(token)
        tokens.append(weight * token / (square + eps) ** 0.5)
    return torch.stack(tokens).view_as(x)


def root_mean_square_norm__einsum(x, weight, eps):
    x = x.double()
    square = torch.einsum("ble,ble->bl", x, x) / x.shape[2]
    return torch.einsum("ble,bl,e->ble", x, torch.rsqrt(square + eps), weight.double())


def root_mean_square_norm__torch(x, weight, eps):
    return F.rms_norm(x, weight.shape, weight, eps)


def pre_norm_block(x, attention, norm_1, up, down, norm_2):
    x = x + attention(norm_1(x))
    return x + down(F.gelu(up(norm_2(x))))


def pre_norm_block__in_steps(x, attention, norm_1, up, down, norm_2):
    looked = x.clone()
    looked += attention(norm_1(x))
    hidden = up(norm_2(looked))
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
    return torch.add(down(hidden), looked)


def pre_norm_block__a_sum_of_three(x, attention, norm_1, up, down, norm_2):
    first = attention(norm_1(x))
    second = down(nn.GELU()(up(norm_2(x + first))))
    return sum([x, first, second])


class QuietBranch(nn.Module):
    def __init__(self, embed_dim, function):
        super().__init__()
        self.norm = nn.LayerNorm(embed_dim)
        self.function = function
        self.gain = nn.Parameter(torch.zeros(embed_dim))

    def forward(self, x):
        return x + self.gain * self.function(self.norm(x))


class QuietBranch__own_norm(nn.Module):
    def __init__(self, embed_dim, function):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(embed_dim))
        nn.init.zeros_(self.gain)
        self.g, self.b = nn.Parameter(torch.ones(embed_dim)), nn.Parameter(torch.zeros(embed_dim))
        self.f = function

    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
        branch = self.f((x - mean) / (variance + 1e-5) ** 0.5 * self.g + self.b)
        return torch.addcmul(x, branch, self.gain.expand_as(x))


def QuietBranch__sequential(embed_dim, function):
    class Branch(nn.Sequential):
        def forward(self, x):
            return x + torch.einsum("le,e->le", super().forward(x), self.gain)

    branch = Branch(nn.LayerNorm(embed_dim), function)
    branch.register_parameter("gain", nn.Parameter(torch.zeros(embed_dim)))
    return branch


class LayerNorm(nn.Module):
    def __init__(self, embed_dim, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(embed_dim))
        self.bias = nn.Parameter(torch.zeros(embed_dim))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(dim=-1, keepdim=True)  # (B, L, 1)
        variance = (x - mean).square().mean(dim=-1, keepdim=True)  # (B, L, 1)
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


class LayerNorm__in_place(nn.Module):
    def __init__(self, embed_dim, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.empty(embed_dim)), nn.Parameter(torch.empty(embed_dim))
        nn.init.ones_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=2, correction=0, keepdim=True)
        return torch.addcmul(self.bias, (x - mean) * torch.rsqrt(variance + self.eps), self.weight)


def LayerNorm__torch(embed_dim, eps=1e-5):
    return nn.LayerNorm(embed_dim, eps)


class FeedForwardNetwork(nn.Module):
    def __init__(self, embed_dim, hidden_dim):
        super().__init__()
        self.up = nn.Linear(embed_dim, hidden_dim)
        self.down = nn.Linear(hidden_dim, embed_dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class FeedForwardNetwork__by_hand(nn.Module):
    def __init__(self, embed_dim, hidden_dim):
        super().__init__()
        self.up, self.down = nn.Linear(embed_dim, hidden_dim), nn.Linear(hidden_dim, embed_dim)

    def forward(self, x):
        hidden = x @ self.up.weight.T + self.up.bias
        hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
        return hidden @ self.down.weight.T + self.down.bias


class Block(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.attention_norm = LayerNorm(embed_dim)
        self.attention = MultiHeadAttention(embed_dim, num_heads)
        self.feed_forward_norm = LayerNorm(embed_dim)
        self.feed_forward = FeedForwardNetwork(embed_dim, 4 * embed_dim)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))[0]
        return x + self.feed_forward(self.feed_forward_norm(x))


class Block__in_steps(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.attention = MultiHeadAttention(embed_dim, num_heads)
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
        self.feed_forward = FeedForwardNetwork__by_hand(embed_dim, 4 * embed_dim)

    def forward(self, x):
        looked, _ = self.attention(self.attention_norm(x), need_weights=True)
        seen = torch.add(x, looked)
        return sum([seen, self.feed_forward(self.feed_forward_norm(seen))])
