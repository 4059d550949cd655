"""Text as tokens: a vocabulary of characters, Tiny Shakespeare, and batches of text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from sciformer.data._choice import check_choice
from sciformer.data.fetching import SHAKESPEARE_SMALL_FILE, embedded, full_shakespeare


@dataclass(frozen=True)
class Vocabulary:
    """The characters that a text is made of; a token is a character's place among them.

    >>> vocabulary = Vocabulary.of("hello")
    >>> vocabulary.characters
    'ehlo'
    >>> vocabulary.encode("hole")
    tensor([1, 3, 2, 0])
    """

    characters: str

    @classmethod
    def of(cls, text: str) -> "Vocabulary":
        """The distinct characters of a text, sorted."""
        return cls("".join(sorted(set(text))))

    def __len__(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> Int[Tensor, "N"]:
        """Text to tokens, int64.

        Raises:
            ValueError: naming the first character that is not in the vocabulary, and its place.
        """
        token_of = {character: token for token, character in enumerate(self.characters)}
        if unknown := set(text) - token_of.keys():
            place = min(text.index(character) for character in unknown)
            raise ValueError(f"character {text[place]!r} at place {place} is not in the vocabulary")
        return torch.tensor([token_of[character] for character in text], dtype=torch.int64)

    def decode(self, tokens: Int[Tensor, "N"] | Sequence[int]) -> str:
        """Tokens to text.

        Raises:
            ValueError: naming the first token that is no place in the vocabulary, and its place.
        """
        tokens = torch.as_tensor(tokens).tolist()
        for place, token in enumerate(tokens):
            if not 0 <= token < len(self):
                raise ValueError(f"token {token} at place {place} is not in 0..{len(self) - 1}")
        return "".join(self.characters[token] for token in tokens)


def token_rows(texts: Sequence[str], vocabulary: Vocabulary) -> Int[Tensor, "N L"]:
    """Each text as a row of tokens, filled up behind with the vocabulary's first, which stands for padding.

    Raises:
        ValueError: naming the first character that is not in the vocabulary, and its text.
    """
    token_of = {character: token for token, character in enumerate(vocabulary.characters)}
    width = max(map(len, texts), default=0)
    try:
        rows = [[token_of[character] for character in text] + [0] * (width - len(text)) for text in texts]
    except KeyError as error:
        strange = next(text for text in texts if error.args[0] in text)
        raise ValueError(f"character {error.args[0]!r} of {strange!r} is not in the vocabulary") from None
    return torch.tensor(rows, dtype=torch.int64).view(len(texts), width)


def shakespeare(
    split: Literal["train", "val"] = "train", *, root: str | Path | None = None
) -> tuple[Int[Tensor, "N"], Vocabulary]:
    """Tiny Shakespeare, character by character: 1,115,394 of them, 65 distinct.

    ``"train"`` is the first 90 % (1,003,854), ``"val"`` the rest (111,540): the standard split. The vocabulary is that
    of the whole text. Source: Andrej Karpathy's char-rnn; public domain.

    Args:
        root: None reads the copy that is embedded in the package. A folder reads ``tinyshakespeare/input.txt`` in it,
            which is fetched on first use (1.1 MB).

    Returns:
        Tokens (N,) int64 and the vocabulary that decodes them.

    Raises:
        ValueError: if ``split`` is none of the above.
        DataError: if the text cannot be had whole.
    """
    check_choice("split", split, ("train", "val"))
    text = (embedded(SHAKESPEARE_SMALL_FILE) if root is None else full_shakespeare(root)).decode()
    vocabulary = Vocabulary.of(text)
    cut = len(text) * 9 // 10
    return vocabulary.encode(text[:cut] if split == "train" else text[cut:]), vocabulary


def text_batches(
    tokens: Int[Tensor, "N"], length: int, *, batch_size: int, seed: int
) -> Iterator[tuple[Int[Tensor, "B L"], Int[Tensor, "B L"]]]:
    """Batches of text without end, each with the same text one token later, as a language model's targets.

    In each pass the text is cut anew, from a random place on, into pieces that come in random order, so that no token
    is read twice in a pass; what does not fill a piece or a batch is left out of it. Randomness comes from a generator
    of its own, as in :func:`batches`.

    Args:
        tokens: the text, on any device.
        length: tokens in a piece, L.

    Yields:
        Inputs and targets.

    Raises:
        ValueError: if the text has not enough tokens for one batch, or a size is below 1.
    """
    needed = batch_size * length + length  # the first piece may start up to L - 1 tokens late; one more for the target
    if min(length, batch_size) < 1 or len(tokens) < needed:
        raise ValueError(
            f"{batch_size} pieces of {length} tokens need a text of {needed} or more, got {len(tokens)} tokens"
        )
    return _text_batches(tokens, length, batch_size, torch.Generator().manual_seed(seed))


def _text_batches(
    tokens: Tensor, length: int, batch_size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    steps = torch.arange(length + 1)
    while True:
        first = int(torch.randint(length, (), generator=generator))
        starts = torch.arange(first, len(tokens) - length, length)
        starts = starts[torch.randperm(len(starts), generator=generator)]
        for some in starts[: len(starts) // batch_size * batch_size].split(batch_size):
            pieces = tokens[(some[:, None] + steps).to(tokens.device)]  # (B, L + 1)
            yield pieces[:, :-1], pieces[:, 1:]
