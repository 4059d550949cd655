"""Evaluation weighs every example alike and leaves the model as it was; the loss of tokens leaves padding out."""

import math

import pytest
import torch
import torch.nn.functional as F
from small_training import seeded, stream
from torch import nn
from torch.testing import assert_close

from sciformer import CharTransformer
from sciformer.lab.metrics import accuracy
from sciformer.training import evaluate, next_token_loss
from sciformer.training.evaluation import broken_weight


def test_evaluate_weighs_batches_by_their_size_and_restores_the_mode():
    model = nn.Dropout(0.5)
    model.register_parameter("anchor", nn.Parameter(torch.zeros(())))
    logits, labels = torch.eye(3), torch.tensor([0, 1, 1])
    batches = [(logits[:2], labels[:2]), (logits[2:], labels[2:])]
    for mode in (True, False):
        model.train(mode)
        assert evaluate(model, batches, accuracy) == pytest.approx(2 / 3)
        assert model.training is mode
    with pytest.raises(ValueError, match="empty"):
        evaluate(model, [], accuracy)


def test_evaluate_keeps_no_graph():
    def metric(logits, labels):
        assert not logits.requires_grad
        return accuracy(logits, labels)

    evaluate(seeded(), stream(count=1), metric)


def test_next_token_loss_leaves_padding_out():
    logits, targets = torch.randn(2, 3, 5), torch.tensor([[4, 1, 0], [2, 0, 0]])
    log_p = logits.log_softmax(-1)
    expected = -(log_p[0, 0, 4] + log_p[0, 1, 1] + log_p[1, 0, 2]) / 3
    assert_close(next_token_loss(logits, targets, pad=0), expected)
    assert_close(next_token_loss(logits, targets), F.cross_entropy(logits.flatten(0, 1), targets.flatten()))


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_model_that_has_diverged_is_not_judged(broken):
    """Its loss looks healthy: a fused kernel gives queries of NaN the output 0."""
    model = CharTransformer(5, 7, 6, 3, 2)
    batches = [(torch.zeros(2, 7, dtype=torch.int64), torch.zeros(2, 7, dtype=torch.int64))]
    assert math.isfinite(evaluate(model, batches, next_token_loss))
    with torch.no_grad():
        model.blocks[1].attention.q_proj.weight[0, 0] = broken
    with pytest.raises(
        FloatingPointError, match=r"blocks\.1\.attention\.q_proj\.weight has weights that are not finite"
    ):
        evaluate(model, batches, next_token_loss)


def test_weights_that_are_large_are_finite():
    """Their norm is past float32's largest number, 3.4e38; they are not."""
    model = seeded()
    with torch.no_grad():
        model.read_out.weight.fill_(3e38)
    assert broken_weight(model) is None
