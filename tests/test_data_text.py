"""Text: the vocabulary, Tiny Shakespeare, and rows of tokens."""

import bz2
import hashlib

import pytest
import torch
from torch.testing import assert_close

from sciformer import data
from sciformer.data import Vocabulary, token_rows

TEXT = bz2.decompress((data.ASSETS / data.SHAKESPEARE_SMALL_FILE.name).read_bytes())


def test_shakespeare_split():
    (train, vocabulary), (val, same) = data.shakespeare("train"), data.shakespeare("val")
    assert (len(train), len(val), len(vocabulary)) == (1_003_854, 111_540, 65)
    assert train.dtype == val.dtype == torch.int64
    assert vocabulary == same
    assert list(vocabulary.characters) == sorted(set(vocabulary.characters))
    assert (vocabulary.decode(train) + vocabulary.decode(val)).encode() == TEXT
    assert hashlib.sha256(TEXT).hexdigest() == data.SHAKESPEARE_FILE.sha256
    assert vocabulary.decode(train[:14]) == "First Citizen:"


def test_vocabulary():
    vocabulary = Vocabulary.of("hello")
    assert vocabulary == Vocabulary("ehlo")
    assert len(vocabulary) == 4
    assert_close(vocabulary.encode("hole"), torch.tensor([1, 3, 2, 0]))
    assert_close(vocabulary.encode(""), torch.tensor([], dtype=torch.int64))
    assert vocabulary.decode(torch.tensor([1, 3, 2, 0])) == vocabulary.decode([1, 3, 2, 0]) == "hole"
    with pytest.raises(ValueError, match="'!' at position 4 is not in the vocabulary"):
        vocabulary.encode("hell!?")
    for token in (-1, 4):
        with pytest.raises(ValueError, match=rf"token {token} at position 1 is not in 0\.\.3"):
            vocabulary.decode([0, token])
    with pytest.raises(AttributeError):
        vocabulary.characters = "abc"


def test_vocabulary_of_words():
    vocabulary = Vocabulary(("_", "is", "Anna", "here"))
    assert vocabulary.encode("here is Anna").tolist() == [3, 1, 2]
    assert vocabulary.decode([3, 1, 2]) == "here is Anna"
    assert token_rows(["Anna is here", "", "is"], vocabulary).tolist() == [[2, 1, 3], [0, 0, 0], [1, 0, 0]]
    with pytest.raises(ValueError, match="word 'Hanna' at position 1 is not in the vocabulary"):
        vocabulary.encode("is Hanna here")
    with pytest.raises(ValueError, match="word 'Hanna' of 'is Hanna here' is not in the vocabulary"):
        token_rows(["is here", "is Hanna here"], vocabulary)


def test_token_rows_are_filled_up_behind():
    vocabulary = Vocabulary("_ab")
    assert token_rows(["ab", "", "b"], vocabulary).tolist() == [[1, 2], [0, 0], [2, 0]]
    assert token_rows([], vocabulary).shape == (0, 0)
    with pytest.raises(ValueError, match="character 'c' of 'bc' is not in the vocabulary"):
        token_rows(["ab", "bc"], vocabulary)
