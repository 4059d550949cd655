"""Rows of digits and their names."""

import pytest
import torch
from torch.testing import assert_close

from sciformer.data import DIGIT_NAMES, NAME_LETTERS, digit_rows, token_rows


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def painted():
    """Ten digits of 3 × 2 pixels, each filled with a value of its own, in no order of their labels."""
    labels = torch.tensor([3, 1, 4, 0, 5, 9, 2, 6, 8, 7])
    return ((labels + 1) / 10)[:, None, None, None].expand(-1, 1, 3, 2).contiguous(), labels


def test_a_row_shows_the_digits_that_its_text_names():
    rows, names = digit_rows(*painted(), 500, seeded())
    assert (rows.shape, len(names)) == ((500, 1, 3, 6), 500)
    lengths = [len(name.split()) for name in names]
    assert set(lengths) == {2, 3}
    assert 200 < lengths.count(2) < 300  # four standard deviations of a coin are 45
    assert {word for name in names for word in name.split()} == set(DIGIT_NAMES)
    for row, name in zip(rows, names, strict=True):
        called = [(DIGIT_NAMES.index(word) + 1) / 10 for word in name.split()]
        expected = torch.tensor([*called, 0.0][:3]).repeat_interleave(2).expand(1, 3, 6)
        assert_close(row, expected)


def test_pixels_keep_their_place_in_a_digit():
    digit = torch.arange(6.0).view(1, 1, 3, 2)
    rows, names = digit_rows(digit, torch.tensor([8]), 20, seeded())
    for row, name in zip(rows, names, strict=True):
        count = len(name.split())
        assert_close(row[0, :, : 2 * count], digit[0, 0].repeat(1, count))
        assert not row[0, :, 2 * count :].any()


def test_the_same_generator_gives_the_same_rows():
    first, again, other = (digit_rows(*painted(), 30, seeded(seed)) for seed in (1, 1, 2))
    assert_close(first[0], again[0])
    assert first[1] == again[1] != other[1]


def test_digits_are_augmented_before_they_stand_in_a_row():
    asked = []

    def halved(digits, generator):
        asked.append(digits.shape)
        return digits / 2

    plain, names = digit_rows(*painted(), 30, seeded())
    rows, same = digit_rows(*painted(), 30, seeded(), augment=halved)
    assert asked == [(90, 1, 3, 2)]
    assert same == names
    assert_close(rows, plain / 2)


def test_every_name_can_be_written():
    text = f"<{' '.join(DIGIT_NAMES)}>"
    assert NAME_LETTERS.decode(token_rows([text], NAME_LETTERS)[0]) == text
    assert NAME_LETTERS.characters[:3] == "_<>"
    assert set(NAME_LETTERS.characters[3:]) == set("".join(DIGIT_NAMES) + " ")


@pytest.mark.parametrize(("images", "labels", "count"), [(0, 0, 1), (4, 4, 0), (4, 3, 1)])
def test_rows_of_nothing_are_refused(images, labels, count):
    message = f"got count {count}, {images} images and {labels} labels"
    with pytest.raises(ValueError, match=message):
        digit_rows(torch.zeros(images, 1, 3, 2), torch.zeros(labels, dtype=torch.long), count, seeded())
