"""What attention remembers of the tokens before, so that generating one more does not start again from the first."""

from collections.abc import Callable
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sciformer.fast import attention


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


#: Exact class of a score -> what its attention remembers, where that is not every key and value.
MEMORIES: dict[type[nn.Module], Callable[[], Memory]] = {}


def memory_for(score: nn.Module) -> Memory:
    """An empty memory for attention under this score."""
    return MEMORIES.get(type(score), KeyValueCache)()
