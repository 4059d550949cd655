"""A small model and a task that it can learn, for the tests of training."""

import torch
from torch import nn


class Stacked(nn.Module):
    """The smallest model with stacked blocks, and with dropout, so that the random state matters."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(5, 7), nn.Dropout(0.2), nn.Linear(7, 5)])
        self.read_out = nn.Linear(5, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.read_out(x)


def seeded(seed=0):
    torch.manual_seed(seed)
    return Stacked()


def stream(seed=0, count=None):
    """Batches of a task that can be learnt: which of the first three inputs is the largest."""
    generator = torch.Generator().manual_seed(seed)
    while count is None or count > 0:
        x = torch.randn(32, 5, generator=generator)
        yield x, x[:, :3].argmax(-1)
        count = None if count is None else count - 1
