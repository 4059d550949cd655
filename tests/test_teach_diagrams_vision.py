"""Diagrams of pictures in a transformer: that they show the numbers and the pixels they were given."""

import matplotlib.pyplot as plt
import pytest
import torch

from sciformer.teach.diagrams import head_windows, image_pipeline


@pytest.fixture
def drawn():
    torch.manual_seed(0)
    digit = torch.rand(1, 6, 6)
    tokens, positions, logits = torch.randn(9, 5), torch.randn(9, 5), torch.randn(4)
    yield digit, tokens, positions, logits, image_pipeline(digit, tokens, positions, logits, num_blocks=7)
    plt.close("all")


def shown(value, digits=2):
    return f"{round(float(value), digits) + 0.0:.{digits}f}".replace("-", "−")


def test_the_patches_are_the_digits_own_in_reading_order(drawn):
    digit, *_, figure = drawn
    whole, *patches = figure.axes[0].images
    assert whole.get_array().shape == (6, 6)
    assert len(patches) == 9
    for n, patch in enumerate(patches):
        row, column = 2 * (n // 3), 2 * (n % 3)
        torch.testing.assert_close(torch.tensor(patch.get_array()), digit[0, row : row + 2, column : column + 2])
    lefts = [patch.get_extent()[0] for patch in patches]
    assert lefts == sorted(lefts)


def test_the_numbers_are_those_of_the_tensors(drawn):
    _, tokens, positions, logits, figure = drawn
    words = [text.get_text() for text in figure.axes[0].texts]
    wanted = [shown(value) for value in (*tokens[:, :3].flatten(), *positions[:, :3].flatten())]
    wanted += [shown(value, digits=1) for value in logits]
    assert sorted(word for word in words if "." in word and len(word) <= 5) == sorted(wanted)
    assert any(word.startswith("7 transformer blocks") for word in words)
    assert "(5,)" in words


def test_windows_show_the_slopes_and_the_factors_that_they_make():
    torch.manual_seed(1)
    before, after = torch.full((3, 4), 0.1), torch.randn(3, 4)
    digit = torch.rand(1, 5, 5)
    figure = head_windows(digit, before, after, query=(1, 3))
    torch.testing.assert_close(torch.tensor(figure.axes[0].images[0].get_array()), digit[0])
    words = [text.get_text() for text in figure.axes[0].texts]
    assert sorted(word for word in words if "." in word) == sorted(
        shown(x) for x in (*before.flatten(), *after.flatten())
    )
    window = torch.tensor(figure.axes[0].images[4].get_array())  # the digit, 3 before training, head 0 after it
    left, right, above, below = after[0]
    torch.testing.assert_close(window[1, 3], torch.tensor(1.0))
    for (row, column), price in {(1, 1): 2 * left, (1, 4): right, (0, 3): above, (4, 2): 3 * below + left}.items():
        torch.testing.assert_close(window[row, column], (-price).exp().clamp(max=1))
    plt.close("all")
