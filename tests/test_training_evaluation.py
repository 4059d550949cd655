"""Evaluation weighs every example alike and leaves the model as it was; the loss of tokens leaves padding out."""

import pytest
import torch
import torch.nn.functional as F
from small_training import seeded, stream
from torch import nn
from torch.testing import assert_close

from sciformer.lab.metrics import accuracy
from sciformer.training import evaluate, next_token_loss


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
