"""What attention remembers of the tokens before, so that generating one more does not start again from the first."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sciformer.fast import attention, running_mean
from sciformer.fast.separable import key_scores
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

    def keep(self, rows: Int[Tensor, "N"]) -> None:
        """Remember only these texts of the batch, in this order; one may come more than once."""
        ...


class KeyValueCache:
    """Every key and value so far: right for any score, and as large as the text is long.

    Attention to a source keeps the source's keys and values in one of these, filled once.
    """

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

    def keep(self, rows: Int[Tensor, "N"]) -> None:
        """Remember only these texts of the batch, in this order; one may come more than once."""
        if self.key is not None and self.value is not None:
            self.key, self.value = self.key[rows], self.value[rows]


class SeparableState:
    """All tokens so far as if they were one: a state whose size does not grow, for separable additive attention.

    The score does not depend on the query, so all that later tokens need of the earlier ones is what
    :func:`~sciformer.fast.running_mean` says of the last: their joint score and the mean of their values.
    """

    def __init__(self) -> None:
        self.past: tuple[Tensor, Tensor] | None = None  # (B, H, 1), (B, H, 1, D)

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
        scores, values = key_scores(score, query, key).squeeze(2), value  # (B, H, L), (B, H, L, D)
        if self.past is not None:
            scores, values = (torch.cat(pair, dim=2) for pair in zip(self.past, (scores, values), strict=True))
        mean, total = running_mean(scores, values)
        self.past = total[:, :, -1:], mean[:, :, -1:]
        return mean[:, :, -key.shape[2] :].to(value.dtype)

    def keep(self, rows: Int[Tensor, "N"]) -> None:
        """Remember only these texts of the batch, in this order; one may come more than once."""
        if self.past is not None:
            self.past = self.past[0][rows], self.past[1][rows]


#: Exact class of a score -> what its attention remembers, where that is not every key and value.
MEMORIES: dict[type[nn.Module], Callable[[], Memory]] = {SeparableAdditiveScore: SeparableState}


def memory_for(score: nn.Module) -> Memory:
    """An empty memory for attention under this score."""
    return MEMORIES.get(type(score), KeyValueCache)()


def keep_rows(cache: dict[nn.Module, Any], rows: Int[Tensor, "N"]) -> None:
    """Let a whole cache remember only these texts of its batch, in this order; one may come more than once.

    Beam search goes on from the best texts, two of which may have begun as the same one.
    """
    for module, kept in cache.items():
        if isinstance(kept, Tensor):
            cache[module] = kept[rows]
        elif not isinstance(kept, int):  # which is how many tokens a model has read, the same for every text
            kept.keep(rows)
