"""Training: a loop that can be read from top to bottom, in ``loop``, and the parts that it is made of."""

from sciformer.training import distributed, optimizers
from sciformer.training.config import Batch, History, OnStep, TrainConfig
from sciformer.training.evaluation import evaluate, next_token_loss, text_loss
from sciformer.training.loop import LOOK_EVERY, fit
from sciformer.training.optimizers import Muon, make_optimizers

__all__ = [
    "LOOK_EVERY",
    "Batch",
    "History",
    "Muon",
    "OnStep",
    "TrainConfig",
    "distributed",
    "evaluate",
    "fit",
    "make_optimizers",
    "next_token_loss",
    "optimizers",
    "text_loss",
]
