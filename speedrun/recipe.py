"""What notebook 08 arrives at, on two threads and with fewer steps: nothing here is special to the speedrun."""

import torch

from sciformer.data import text_batches
from sciformer.lab.experiments import SHAKESPEARE
from sciformer.training import fit, next_token_loss

STEPS = 850


def train(text, vocab_size, seed):
    """Rotary positions, normed queries and keys, squared ReLU, token shift; Muon with even rows, a line to 0."""
    setting = SHAKESPEARE["long"]["1,000 steps"]
    torch.manual_seed(seed)
    model = setting.model()
    batches = text_batches(text, setting.length, batch_size=setting.batch_size, seed=seed)
    fit(model, batches, next_token_loss, setting.train.with_steps(STEPS), progress=False)
    return model
