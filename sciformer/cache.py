"""What generation keeps of the tokens so far, so that a new one does not start over."""

import torch
from jaxtyping import Float
from torch import Tensor

from sciformer.fast import running_mean
from sciformer.scores import SeparableAdditiveScore


class SeparableState:
    """All tokens so far as if they were one: a state whose size does not grow, for separable additive attention.

    The score does not depend on the query, so the future needs of the past keys only their largest score m, their
    mass ``sum(exp(s - m))`` and the mean of their values under these weights: D + 2 numbers for each head.
    """

    def __init__(self) -> None:
        self.past: tuple[Tensor, Tensor, Tensor] | None = None  # (B, H, 1), (B, H, 1), (B, H, 1, D)

    def attend(
        self,
        score: SeparableAdditiveScore,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H L D"],
        value: Float[Tensor, "B H L D"],
    ) -> Float[Tensor, "B H L D"]:
        """Take in L more tokens; each attends to itself and to all before it.

        Raises:
            ValueError: if query and key do not fit each other or the score.
        """
        L = key.shape[2]
        wide = torch.promote_types(value.dtype, torch.float32)
        scores = score(0 * query[:, :, :1], key).squeeze(2).to(wide)  # (B, H, L)
        keys: tuple[Tensor, ...] = scores, torch.ones_like(scores), value.to(wide)  # a key alone has mass 1
        if self.past is not None:
            keys = tuple(torch.cat(pair, dim=2) for pair in zip(self.past, keys, strict=True))
        scores, mass, values = keys  # (B, H, 1 + L) twice, (B, H, 1 + L, D)
        output, _ = running_mean(scores + mass.log(), values)
        largest = scores.amax(dim=2, keepdim=True)
        mass = mass * (scores - largest).exp()
        total = mass.sum(dim=2, keepdim=True)
        mean = ((mass / total)[..., None] * values).sum(dim=2, keepdim=True)
        self.past = largest, total, mean
        return output[:, :, -L:].to(value.dtype)
