import math

import torch
import torch.nn.functional as F
from torch import nn

from sciformer import causal_mask, masked_softmax


def masked_weights(scores, attn_mask):
    hidden = scores.masked_fill(~attn_mask, -math.inf)
    return hidden.softmax(dim=-1)


def masked_weights__loop(scores, attn_mask):
    weights = torch.zeros_like(scores)
    for i in range(scores.shape[0]):
        seen = [j for j in range(scores.shape[1]) if attn_mask[i, j]]
        total = sum(scores[i, j].exp() for j in seen)
        for j in seen:
            weights[i, j] = scores[i, j].exp() / total
    return weights


def masked_weights__divide_afterwards(scores, attn_mask):
    weights = (scores - scores.amax()).exp() * attn_mask
    return weights / weights.sum(dim=1, keepdim=True)


def scaled_dot_product(query, key, value, attn_mask=None):
    scores = query @ key.T / math.sqrt(query.shape[-1])  # (L, S)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    return scores.softmax(dim=-1) @ value  # (L, D)


def scaled_dot_product__loop(query, key, value, attn_mask=None):
    rows = []
    for i in range(len(query)):
        seen = [j for j in range(len(key)) if attn_mask is None or attn_mask[i, j]]
        scores = torch.stack([(query[i] * key[j]).sum() / query.shape[1] ** 0.5 for j in seen])
        rows.append(sum(w * value[j] for w, j in zip(scores.softmax(dim=0), seen, strict=True)))
    return torch.stack(rows)


def scaled_dot_product__einsum(query, key, value, attn_mask=None):
    scores = torch.einsum("id,jd->ij", query, key).double() * query.shape[-1] ** -0.5
    return torch.einsum("ij,jd->id", masked_softmax(scores, attn_mask), value.double())


def scaled_dot_product__torch(query, key, value, attn_mask=None):
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)


def future_leaks(attention, x):
    jacobian = torch.autograd.functional.jacobian(attention, x)  # (L, D, L, E)
    influence = jacobian.abs().amax(dim=(1, 3))  # (L, L): the largest derivative of output i by word j
    return bool((influence.triu(diagonal=1) > 1e-6).any())


def future_leaks__one_output_at_a_time(attention, x):
    for i in range(len(x) - 1):
        inputs = x.clone().requires_grad_()
        for number in attention(inputs)[i]:
            (gradient,) = torch.autograd.grad(number, inputs, retain_graph=True)
            if gradient[i + 1 :].abs().max() > 0:
                return True
    return False


def future_leaks__change_a_word(attention, x):
    before = attention(x)
    for j in range(1, len(x)):
        changed = x.clone()
        changed[j] += torch.arange(1.0, x.shape[1] + 1).to(x)
        if not torch.equal(attention(changed)[:j], before[:j]):
            return True
    return False


def test_attention(attention):
    for L, S, D in ((5, 7, 3), (4, 4, 2)):
        query, key, value = torch.randn(L, D), torch.randn(S, D), torch.randn(S, D)
        for attn_mask in (None, causal_mask(L, S)):
            expected = F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)
            torch.testing.assert_close(attention(query, key, value, attn_mask), expected)


def test_attention__by_its_properties(attention):
    """No second implementation: with unit vectors as values the output is the weights, and those have a formula."""
    L, S, D = 4, 6, 3
    query, key, value = torch.randn(L, D), torch.randn(S, D), torch.randn(S, D)
    scores = query @ key.T / D**0.5
    for attn_mask in (torch.ones(L, S).bool(), torch.ones(L, S).tril().bool()):
        weights = attention(query, key, torch.eye(S), attn_mask)
        assert weights.shape == (L, S)
        assert (weights[~attn_mask] == 0).all()
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(L))
        ratios = (weights / weights[:, :1]).log()[attn_mask]
        torch.testing.assert_close(ratios, (scores - scores[:, :1])[attn_mask], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(attention(query, key, value, attn_mask), weights @ value)


class AttentionHead(nn.Module):
    def __init__(self, embed_dim, head_dim):
        super().__init__()
        self.q_proj = nn.Linear(embed_dim, head_dim)
        self.k_proj = nn.Linear(embed_dim, head_dim)
        self.v_proj = nn.Linear(embed_dim, head_dim)

    def forward(self, x, context=None, *, attn_mask=None):
        context = x if context is None else context  # what is looked at
        q = self.q_proj(x)  # (B, L, D)
        k, v = self.k_proj(context), self.v_proj(context)  # (B, S, D)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, L, S)
        weights = masked_softmax(scores, attn_mask)  # (B, L, S)
        return weights @ v, weights


class AttentionHead__one_example_at_a_time(nn.Module):
    def __init__(self, embed_dim, head_dim):
        super().__init__()
        for name in ("v_proj", "k_proj", "q_proj"):
            setattr(self, name, nn.Linear(embed_dim, head_dim))

    def forward(self, x, context=None, attn_mask=None):
        outputs, maps = [], []
        for words, others in zip(x, x if context is None else context, strict=True):
            scores = (self.k_proj(others) @ self.q_proj(words).T).T * self.q_proj.out_features**-0.5
            maps.append(scores.softmax(-1) if attn_mask is None else masked_weights(scores, attn_mask))
            outputs.append(maps[-1] @ self.v_proj(others))
        return torch.stack(outputs), torch.stack(maps)


class AttentionHead__torch(nn.Module):
    def __init__(self, embed_dim, head_dim):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(embed_dim, head_dim) for _ in range(3))

    def forward(self, x, context=None, attn_mask=None):
        context = x if context is None else context
        q, k, v = self.q_proj(x), self.k_proj(context), self.v_proj(context)
        units = torch.eye(k.shape[1]).to(k).expand(len(k), -1, -1)  # as values, they give the weights
        weights = F.scaled_dot_product_attention(q, k, units, attn_mask=attn_mask)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask), weights
