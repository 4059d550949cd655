"""Text as tokens: a vocabulary of characters or of words, Tiny Shakespeare, and batches of text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from sciformer.data._choice import check_choice
from sciformer.data.fetching import SHAKESPEARE_SMALL_FILE, embedded, full_shakespeare
from sciformer.functional import InputError


@dataclass(frozen=True)
class Vocabulary:
    """The characters of a text, or its words; a token is the index of one of them in the vocabulary.

    >>> vocabulary = Vocabulary.of("hello")
    >>> vocabulary.characters
    'ehlo'
    >>> vocabulary.encode("hole")
    tensor([1, 3, 2, 0])

    Words are given as a tuple, and stand in a text with spaces between them:

    >>> Vocabulary(("Anna", "is", "here", ".")).encode("here is Anna .")
    tensor([2, 1, 0, 3])
    """

    characters: str | tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Vocabulary":
        """The vocabulary of a text: its distinct characters, sorted."""
        return cls("".join(sorted(set(text))))

    def __len__(self) -> int:
        return len(self.characters)

    @property
    def separator(self) -> str:
        """What stands between two tokens of a text: nothing between characters, a space between words."""
        return "" if isinstance(self.characters, str) else " "

    @property
    def _kind(self) -> str:
        return "word" if self.separator else "character"

    @cached_property
    def _token_of(self) -> dict[str, int]:
        return {part: token for token, part in enumerate(self.characters)}

    def split(self, text: str) -> list[str]:
        """The characters of a text, or its words."""
        return text.split() if self.separator else list(text)

    def encode(self, text: str) -> Int[Tensor, "N"]:
        """Text to tokens, shape (N,), int64.

        Raises:
            ValueError: naming the first character or word that is not in the vocabulary, and its position in the text.
        """
        parts = self.split(text)
        try:
            return torch.tensor([self._token_of[part] for part in parts], dtype=torch.int64)
        except KeyError as error:
            unknown = error.args[0]
            where = f"{self._kind} {unknown!r} at position {parts.index(unknown)}"
            raise InputError(f"{where} is not in the vocabulary") from None

    def decode(self, tokens: Int[Tensor, "N"] | Sequence[int]) -> str:
        """Tokens to text.

        Raises:
            ValueError: naming the first token that is no index into the vocabulary, and its position.
        """
        tokens = torch.as_tensor(tokens).tolist()
        for position, token in enumerate(tokens):
            if not 0 <= token < len(self):
                raise InputError(f"token {token} at position {position} is not in 0..{len(self) - 1}")
        return self.separator.join(self.characters[token] for token in tokens)


def token_rows(texts: Sequence[str], vocabulary: Vocabulary) -> Int[Tensor, "N L"]:
    """Each text as a row of tokens, padded at the end to the longest with the vocabulary's first token.

    Returns:
        Tokens (N, L), int64.

    Raises:
        ValueError: naming the first character or word that is not in the vocabulary, and the text that contains it.
    """
    try:
        tokens = [[vocabulary._token_of[part] for part in vocabulary.split(text)] for text in texts]
    except KeyError as error:
        culprit = next(text for text in texts if error.args[0] in vocabulary.split(text))
        raise InputError(f"{vocabulary._kind} {error.args[0]!r} of {culprit!r} is not in the vocabulary") from None
    width = max(map(len, tokens), default=0)
    rows = [row + [0] * (width - len(row)) for row in tokens]
    return torch.tensor(rows, dtype=torch.int64).view(len(texts), width)


def shakespeare(
    split: Literal["train", "val"] = "train", *, root: str | Path | None = None
) -> tuple[Int[Tensor, "N"], Vocabulary]:
    """Tiny Shakespeare as 1,115,394 characters, 65 of them distinct.

    ``"train"`` is the first 90 % (1,003,854), ``"val"`` the rest (111,540): the standard split. The vocabulary covers
    the whole text. Source: Andrej Karpathy's char-rnn; public domain.

    Args:
        root: None reads the copy that is part of the package. With a folder, ``tinyshakespeare/input.txt`` in that
            folder is read, and fetched on first use (1.1 MB).

    Returns:
        Tokens (N,) int64 and the vocabulary that decodes them.

    Raises:
        ValueError: if ``split`` is none of the above.
        DataError: if the file is missing or damaged and cannot be fetched.
    """
    check_choice("split", split, ("train", "val"))
    text = (embedded(SHAKESPEARE_SMALL_FILE) if root is None else full_shakespeare(root)).decode()
    vocabulary = Vocabulary.of(text)
    cut = len(text) * 9 // 10
    return vocabulary.encode(text[:cut] if split == "train" else text[cut:]), vocabulary


def text_batches(
    tokens: Int[Tensor, "N"], length: int, *, batch_size: int, seed: int
) -> Iterator[tuple[Int[Tensor, "B L"], Int[Tensor, "B L"]]]:
    """Endless batches of text: inputs, and as targets the same text one token later.

    In each epoch the text is cut from a new random offset into chunks, which come in random order. No input token is
    read twice in an epoch; tokens that do not fill a chunk or a batch are left out of it. All randomness comes from a
    generator of its own, as in :func:`sciformer.data.batches`.

    Args:
        tokens: the text, on any device.
        length: tokens in a chunk, L.

    Yields:
        Inputs (B, L) and targets (B, L), on the device of ``tokens``.

    Raises:
        ValueError: if the text has too few tokens for one batch, or a size is below 1.
    """
    needed = batch_size * length + length  # the first chunk starts at offset L - 1 at most; one more for the target
    if min(length, batch_size) < 1 or len(tokens) < needed:
        raise InputError(
            f"{batch_size} chunks of {length} tokens need a text of {needed} or more, got {len(tokens)} tokens"
        )
    return _text_batches(tokens, length, batch_size, torch.Generator().manual_seed(seed))


def _text_batches(
    tokens: Tensor, length: int, batch_size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    steps = torch.arange(length + 1)
    while True:
        offset = int(torch.randint(length, (), generator=generator))
        starts = torch.arange(offset, len(tokens) - length, length)
        starts = starts[torch.randperm(len(starts), generator=generator)]
        for chosen in starts[: len(starts) // batch_size * batch_size].split(batch_size):
            chunks = tokens[(chosen[:, None] + steps).to(tokens.device)]  # (B, L + 1)
            yield chunks[:, :-1], chunks[:, 1:]
