"""What a model remembers of the tokens before, so that generating one more does not start again from the first."""

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sciformer.fast import attention, running_mean
from sciformer.fast.separable import key_scores
from sciformer.functional import InputError
from sciformer.scores import SeparableAdditiveScore


@runtime_checkable
class Memory(Protocol):
    """What one module remembers."""

    def keep(self, rows: Int[Tensor, "N"]) -> None:
        """Remember only these texts of the batch, in this order; one may come more than once."""
        ...


class AttentionMemory(Memory, Protocol):
    """What one causal attention remembers."""

    def attend(
        self,
        score: nn.Module,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H L D"],
        value: Float[Tensor, "B H L D"],
    ) -> Float[Tensor, "B H L D"]:
        """Take in L more tokens; each attends to itself and to all before it."""
        ...


M = TypeVar("M", bound=Memory)


class Cache:
    """What a model remembers of a batch of texts, for ``model(tokens, cache=cache)``; it starts empty.

    Every module that looks at other tokens keeps a memory of its own here. Each call takes only the tokens that are
    new. A cache belongs to one model, one set of weights and one batch of texts, and to one source if there is one.
    After a call that raised an error it may have read part of the tokens: reset it.

    Attributes:
        length: how many tokens of each text the model has read; the position of the next one.
        memories: what each module remembers, by module.
    """

    length: int
    memories: dict[nn.Module, Memory]

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything; what comes next is another batch of texts."""
        self.length = 0
        self.memories = {}
        self._batch: int | None = None

    def keep(self, rows: Int[Tensor, "N"]) -> None:
        """Remember only these texts of the batch, in this order; one may come more than once.

        Beam search goes on from the best texts, two of which may have begun as the same one.
        """
        for memory in self.memories.values():
            memory.keep(rows)
        self._batch = len(rows) if self.memories else None

    def memory(self, module: nn.Module, make: Callable[[], M], batch: int) -> M:
        """What this module remembers of so many texts; in its first call what ``make`` makes.

        Raises:
            ValueError: if the cache holds another number of texts, or was filled by another model.
        """
        if self._batch not in (None, batch):
            raise InputError(f"the cache holds a batch of {self._batch} texts, got {batch}")
        if self.length and module not in self.memories:
            raise InputError(f"another model has read {self.length} tokens with this cache; start with an empty one")
        self._batch = batch
        return self.memories.setdefault(module, make())  # type: ignore[return-value]


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


class SourceMemory:
    """The keys and values of a source, projected in the first call only, and the source that they belong to."""

    def __init__(self) -> None:
        self.source: tuple[Tensor, Tensor] | None = None  # (B, S, E) each: what keys and values are projections of
        self.projected: tuple[Tensor, Tensor] | None = None  # (B, H, S, D) each

    def recall(
        self,
        key: Float[Tensor, "B S E"],
        value: Float[Tensor, "B S E"],
        project: Callable[[], tuple[Float[Tensor, "B H S D"], Float[Tensor, "B H S D"]]],
    ) -> tuple[Float[Tensor, "B H S D"], Float[Tensor, "B H S D"]]:
        """The keys and values of the source; ``project`` computes them in the first call.

        A source is the same if it is the same tensor, which costs nothing to check, or if all entries are equal.

        Raises:
            ValueError: if the source is not that of the first call.
        """
        if self.source is None or self.projected is None:
            self.projected = project()
        elif self.source[0].shape[1] != key.shape[1]:
            raise InputError(f"the cache belongs to a source of {self.source[0].shape[1]} tokens, got {key.shape[1]}")
        elif not all(_same(old, new) for old, new in zip(self.source, (key, value), strict=True)):
            raise InputError(f"the cache belongs to another source, also of {key.shape[1]} tokens")
        self.source = key, value
        return self.projected

    def keep(self, rows: Int[Tensor, "N"]) -> None:
        """Remember only the sources of these texts of the batch, in this order; one may come more than once."""
        if self.source is not None and self.projected is not None:
            self.source = self.source[0][rows], self.source[1][rows]
            self.projected = self.projected[0][rows], self.projected[1][rows]


class RecentTokens:
    """The last few tokens, for a module that looks back no further."""

    def __init__(self) -> None:
        self.tokens: Tensor | None = None  # (B, M, E)

    def keep(self, rows: Int[Tensor, "N"]) -> None:
        """Remember only these texts of the batch, in this order; one may come more than once."""
        if self.tokens is not None:
            self.tokens = self.tokens[rows]


#: Exact class of a score -> what its attention remembers, where that is not every key and value.
MEMORIES: dict[type[nn.Module], Callable[[], AttentionMemory]] = {SeparableAdditiveScore: SeparableState}


def memory_for(score: nn.Module) -> AttentionMemory:
    """An empty memory for attention under this score."""
    return MEMORIES.get(type(score), KeyValueCache)()


def _same(one: Tensor, other: Tensor) -> bool:
    return one is other or (one.dtype == other.dtype and torch.equal(one, other))
