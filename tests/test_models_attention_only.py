"""The model of attention alone adds what its heads copy, and nothing else."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from sciformer import SCORES, AttentionOnly

V, L, E, H = 13, 11, 12, 3


def build(**options):
    torch.manual_seed(0)
    return AttentionOnly(V, L, E, H, 2, **options).double()


def test_by_hand():
    model, tokens = build(), torch.randint(V, (2, 7))
    x = model.embedding.weight[tokens] + model.positions.table[:7]
    for norm, attention in zip(model.norms, model.attentions, strict=True):
        x = x + attention(F.layer_norm(x, (E,), norm.weight, norm.bias), is_causal=True)[0]
    assert_close(model(tokens), model.norm(x) @ model.read_out.weight.T + model.read_out.bias)


@pytest.mark.parametrize("score", SCORES)
def test_it_is_causal_and_its_weights_are_those_it_used(score):
    model, tokens = build(score=SCORES[score]), torch.randint(V, (2, L))
    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % V
    assert_close(model(tokens)[:, :5], model(changed)[:, :5])
    maps = model.attention_weights(tokens)
    assert [weights.shape for weights in maps] == [(2, H, L, L)] * 2
    for weights in maps:
        assert_close(weights.sum(dim=-1), torch.ones(2, H, L).double())
        assert not weights.triu(1).any()


def test_it_starts_small_and_refuses_what_it_cannot_read():
    model = AttentionOnly(500, L, 100, 4, 1)
    assert model.embedding.weight.std().item() == pytest.approx(0.02, rel=0.05)
    with pytest.raises(ValueError, match="can look at 11 tokens, got 12 of a sequence"):
        model(torch.zeros(1, 12, dtype=torch.long))
    with pytest.raises(ValueError, match="num_layers"):
        AttentionOnly(V, L, E, H, 0)
