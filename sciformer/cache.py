"""What attention remembers of the tokens before, so that generating one more does not start again from the first."""

from collections.abc import Callable
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sciformer.fast import attention, running_mean
from sciformer.scores import SeparableAdditiveScore


class Memory(Protocol):
    """What one attention remembers."""

    def attend(
        self,
        score: nn.Module,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H L D"],
        value: Float[Tensor, "B H L D"],
    ) -> Float[Tensor, "B H L D"]:
        """Take in L more tokens; each attends to itself and to all before it."""
        ...


class KeyValueCache:
    """Every key and value so far: right for any score, and as large as the text is long."""

    def __init__(self) -> None:
        self.key: Tensor | None = None
        self.value: Tensor | None = None

    def attend(
        self,
        score: nn.Module,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H L D"],
        value: Float[Tensor, "B H L D"],
    ) -> Float[Tensor, "B H L D"]:
        """Take in L more tokens; each attends to itself and to all before it."""
        self.key = key if self.key is None else torch.cat((self.key, key), dim=-2)  # (B, H, S, D)
        self.value = value if self.value is None else torch.cat((self.value, value), dim=-2)
        return attention(score, query, self.key, self.value, is_causal=True)[0]


class SeparableState:
    """All tokens so far as if they were one: a state whose size does not grow, for separable additive attention.

    The score does not depend on the query, so the future needs of the past keys only their largest score m, their
    mass ``sum(exp(s - m))`` and the mean of their values under these weights: D + 2 numbers for each head.
    """

    def __init__(self) -> None:
        self.past: tuple[Tensor, Tensor, Tensor] | None = None  # (B, H, 1), (B, H, 1), (B, H, 1, D)

    def attend(
        self,
        score: nn.Module,
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


#: Exact class of a score -> what its attention remembers, where that is not every key and value.
MEMORIES: dict[type[nn.Module], Callable[[], Memory]] = {SeparableAdditiveScore: SeparableState}


def memory_for(score: nn.Module) -> Memory:
    """An empty memory for attention under this score."""
    return MEMORIES.get(type(score), KeyValueCache)()
