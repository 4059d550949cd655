import math

import torch
import torch.nn.functional as F
from torch import nn

from sciformer import attend, dot_product_scores


def split_heads(x, num_heads):
    B, L, E = x.shape
    x = x.view(B, L, num_heads, E // num_heads)  # (B, L, H, D)
    return x.transpose(1, 2)  # (B, H, L, D)


def split_heads__loop(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


def split_heads__unflatten(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).permute(0, 2, 1, 3).contiguous()


def merge_heads(x):
    x = x.transpose(1, 2)  # (B, L, H, D)
    return x.flatten(-2)  # (B, L, H·D) = (B, L, E)


def merge_heads__loop(x):
    return torch.cat([x[:, h] for h in range(x.shape[1])], dim=-1)


class MultiHead(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, context=None, *, attn_mask=None):
        context = x if context is None else context
        q = split_heads(self.q_proj(x), self.num_heads)  # (B, H, L, D)
        k = split_heads(self.k_proj(context), self.num_heads)  # (B, H, S, D)
        v = split_heads(self.v_proj(context), self.num_heads)  # (B, H, S, D)
        output, weights = attend(dot_product_scores(q, k), v, attn_mask=attn_mask)  # (B, H, L, D), (B, H, L, S)
        return self.out_proj(merge_heads(output)), weights  # (B, L, E)


class MultiHead__loop(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.head_dim = embed_dim // num_heads
        for name in ("out_proj", "v_proj", "k_proj", "q_proj"):
            setattr(self, name, nn.Linear(embed_dim, embed_dim))

    def forward(self, x, context=None, attn_mask=None):
        context = x if context is None else context
        output, maps = self.out_proj.bias, []
        for start in range(0, x.shape[-1], self.head_dim):
            mine = slice(start, start + self.head_dim)
            q, k, v = self.q_proj(x)[..., mine], self.k_proj(context)[..., mine], self.v_proj(context)[..., mine]
            scores = q @ k.mT / self.head_dim**0.5
            scores = scores if attn_mask is None else torch.where(attn_mask, scores, -math.inf)
            maps.append(scores.softmax(dim=-1))
            output = output + maps[-1] @ v @ self.out_proj.weight[:, mine].T
        return output, torch.stack(maps, dim=1)


class MultiHead__torch(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def forward(self, x, context=None, attn_mask=None):
        context = x if context is None else context
        projections = (self.q_proj, self.k_proj, self.v_proj)
        return F.multi_head_attention_forward(
            x.transpose(0, 1), context.transpose(0, 1), context.transpose(0, 1), x.shape[-1], self.num_heads, None,
            torch.cat([p.bias for p in projections]), None, None, False, 0.0, self.out_proj.weight, self.out_proj.bias,
            attn_mask=None if attn_mask is None else ~attn_mask, use_separate_proj_weight=True,
            q_proj_weight=self.q_proj.weight, k_proj_weight=self.k_proj.weight, v_proj_weight=self.v_proj.weight,
            average_attn_weights=False,
        )[0].transpose(0, 1), self._weights(x, context, attn_mask)  # fmt: skip

    def _weights(self, x, context, attn_mask):
        q, k = (p.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for p in (self.q_proj(x), self.k_proj(context)))
        units = torch.eye(k.shape[2]).to(k).expand(*k.shape[:2], -1, -1)
        return F.scaled_dot_product_attention(q, k, units, attn_mask=attn_mask)


def split_packed(packed, num_heads):
    q, k, v = packed.unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)  # (3, B, H, L, D)
    return q, k, v


def split_packed__thirds_first(packed, num_heads):
    B, L, E = packed.shape[0], packed.shape[1], packed.shape[2] // 3
    thirds = packed.split(E, dim=-1)
    return [third.reshape(B, L, num_heads, E // num_heads).transpose(1, 2) for third in thirds]


def split_packed__loop(packed, num_heads):
    D = packed.shape[-1] // 3 // num_heads
    chunks = packed.split(D, dim=-1)  # 3·H chunks (B, L, D)
    return tuple(torch.stack(chunks[n * num_heads : (n + 1) * num_heads], dim=1) for n in range(3))


class TemperedScore(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.log_temperature = nn.Parameter(torch.zeros(num_heads, 1, 1))  # (H, 1, 1)

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # (B, H, L, S)
        return scores / self.log_temperature.exp()


class TemperedScore__einsum(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.scale = head_dim**-0.5
        self.log_temperature = nn.Parameter(torch.zeros(num_heads))

    def forward(self, query, key):
        sharpness = self.scale * torch.exp(-self.log_temperature)
        return torch.einsum("bhid,bhjd,h->bhij", query.double(), key.double(), sharpness.double())


class TemperedScore__loop(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.log_temperature = torch.nn.Parameter(torch.full((1, num_heads), 0.0))

    def forward(self, query, key):
        heads = []
        for h, t in enumerate(self.log_temperature[0]):
            heads.append(query[:, h] @ key[:, h].mT / (math.e**t * query.shape[-1] ** 0.5))
        return torch.stack(heads, dim=1)


def grouped_attention(query, key, value, w_o, num_heads):
    D = query.shape[-1] // num_heads
    q, k, v = (x.unflatten(-1, (-1, D)).transpose(1, 2) for x in (query, key, value))  # (B, H, L, D), (B, G, S, D)
    k, v = (x.repeat_interleave(num_heads // x.shape[1], dim=1) for x in (k, v))  # (B, H, S, D)
    weights = (q @ k.transpose(-2, -1) / math.sqrt(D)).softmax(dim=-1)  # (B, H, L, S)
    return (weights @ v).transpose(1, 2).flatten(-2) @ w_o  # (B, L, E)


def grouped_attention__loop(query, key, value, w_o, num_heads):
    D = query.shape[-1] // num_heads
    neighbours = query.shape[-1] // key.shape[-1]
    output = 0
    for h in range(num_heads):
        mine, shared = slice(h * D, (h + 1) * D), slice(h // neighbours * D, (h // neighbours + 1) * D)
        scores = query[..., mine] @ key[..., shared].mT / D**0.5
        output = output + scores.softmax(dim=-1) @ value[..., shared] @ w_o[mine]
    return output


def grouped_attention__einsum(query, key, value, w_o, num_heads):
    D = query.shape[-1] // num_heads
    k, v = (x.double().unflatten(-1, (-1, D)) for x in (key, value))  # (B, S, G, D)
    q = query.double().unflatten(-1, (k.shape[2], -1, D))  # (B, L, G, H/G, D)
    weights = torch.einsum("blgnd,bsgd->bgnls", q, k).mul(D**-0.5).softmax(dim=-1)
    heads = torch.einsum("bgnls,bsgd->blgnd", weights, v)
    return torch.einsum("ble,ef->blf", heads.flatten(2), w_o.double())


def grouped_attention__torch(query, key, value, w_o, num_heads):
    D = query.shape[-1] // num_heads
    q, k, v = (x.unflatten(-1, (-1, D)).transpose(1, 2) for x in (query, key, value))
    output = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    return F.linear(output.transpose(1, 2).flatten(-2), w_o.T)


def test_heads(attention):
    B, L, S, H, G, D = 8, 5, 7, 6, 2, 4
    query, key, value = torch.randn(B, L, H * D), torch.randn(B, S, G * D), torch.randn(B, S, G * D)
    w_o = torch.randn(H * D, H * D)
    heads = []
    for h in range(H):
        mine, shared = slice(h * D, (h + 1) * D), slice(h // (H // G) * D, (h // (H // G) + 1) * D)
        scores = query[..., mine] @ key[..., shared].transpose(-2, -1) / math.sqrt(D)  # (B, L, S)
        heads.append(scores.softmax(dim=-1) @ value[..., shared])  # (B, L, D)
    torch.testing.assert_close(attention(query, key, value, w_o, H), torch.cat(heads, dim=-1) @ w_o)


def test_heads__with_the_package(attention):
    """Repeated key heads make it the usual multi-head attention, whose heads are torch's."""
    H, G, D = 4, 2, 5
    query, key, value = torch.randn(3, 6, H * D), torch.randn(3, 2, G * D), torch.randn(3, 2, G * D)
    w_o = torch.randn(H * D, H * D)
    q, k, v = (x.view(*x.shape[:2], -1, D).transpose(1, 2) for x in (query, key, value))
    k, v = k[:, [0, 0, 1, 1]], v[:, [0, 0, 1, 1]]
    expected = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(query.shape) @ w_o
    assert (attention(query, key, value, w_o, H) - expected).abs().max() < 1e-3
