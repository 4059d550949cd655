"""What stays with the instructor: the right answers, and the mistakes that are known, each a wrong step."""

import homework
from torch import nn

from sciformer.check import Fault


def cosine_scores(query, key, *, unit=lambda x: x / x.norm(dim=-1, keepdim=True)):
    """The right answer; each step that can go wrong is a keyword argument."""
    return unit(query) @ unit(key).T


cosine_scores = homework.cosine_scores.answered(
    cosine_scores,
    faults=[
        Fault("not normalised", "The vectors are not divided by their lengths.", unit=lambda x: x),
        Fault("squared", "It is the length, not its square.", unit=lambda x: x / x.square().sum(dim=-1, keepdim=True)),
        Fault("whole matrix", "Each row has a length of its own: dim=-1.", unit=lambda x: x / x.norm()),
    ],
)


class SharedHead(nn.Module):
    """The right answer, with its scale and the axis of its softmax as steps that can go wrong."""

    def __init__(self, embed_dim, head_dim, *, scale=lambda head_dim: head_dim**-0.5, axis=-1):
        super().__init__()
        self.look = nn.Linear(embed_dim, head_dim, bias=False)  # makes the queries, and the keys
        self.value = nn.Linear(embed_dim, head_dim, bias=False)
        self.scale, self.axis = scale(head_dim), axis

    def forward(self, x):
        look = self.look(x)  # (B, L, D)
        weights = (self.scale * look @ look.transpose(-2, -1)).softmax(dim=self.axis)  # (B, L, L)
        return weights @ self.value(x)


SharedHead = homework.SharedHead.answered(
    SharedHead,
    faults=[
        Fault("no scale", "The scores are not divided by the root of head_dim.", scale=lambda head_dim: 1.0),
        Fault("divided by D", "It is the root of head_dim, not head_dim.", scale=lambda head_dim: 1 / head_dim),
        Fault("wrong axis", "The softmax runs over the keys, the last axis.", axis=-2),
    ],
)
