"""Pictures from anywhere, brought to the form of MNIST's digits."""

import os

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch.testing import assert_close

from sciformer.data import digit_from_picture, mnist

DIGITS = mnist("test")[0]


def save(pixels, path):
    Image.fromarray((255 * pixels).round().byte().numpy()).save(path)
    return path


def test_mnists_own_pictures_are_taken_as_they_are(tmp_path):
    for digit in DIGITS[:3]:
        assert_close(digit_from_picture(save(digit[0], tmp_path / "digit.png")), digit, rtol=0, atol=0.5 / 255 + 1e-6)


@pytest.mark.parametrize("kind", ["dark on white", "white on dark", "grey on light grey"])
def test_size_position_and_colours_do_not_matter(kind, tmp_path):
    alike = []
    for digit in DIGITS[:20]:
        large = F.interpolate(digit[None], scale_factor=7, mode="bilinear")[0, 0]  # (196, 196)
        page = F.pad(large, (150, 20, 30, 90))  # somewhere on a larger page
        page = {"dark on white": 1 - page, "white on dark": page, "grey on light grey": 0.9 - 0.5 * page}[kind]
        read = digit_from_picture(save(page, tmp_path / "page.png"))
        assert (read.shape, read.dtype) == ((1, 28, 28), torch.float32)
        assert 0 <= read.min() <= read.max() <= 1
        alike.append(torch.corrcoef(torch.stack([read.flatten(), digit.flatten()]))[0, 1].item())
    assert min(alike) > 0.75  # rounding may move a digit by one pixel
    assert sum(alike) / 20 > 0.93


def test_ink_fits_into_20_pixels_and_its_mass_is_in_the_middle(tmp_path):
    page = torch.ones(60, 90)
    page[5:45, 60:64] = 0  # a long stroke near a corner
    page[35:45, 50:60] = 0
    read = digit_from_picture(save(page, tmp_path / "page.png"))[0]
    rows, columns = read.amax(dim=1).nonzero(), read.amax(dim=0).nonzero()
    assert max(rows.max() - rows.min(), columns.max() - columns.min()) + 1 == 20
    across = torch.arange(28.0)
    for axis in (0, 1):
        assert abs((read.sum(dim=axis) * across).sum() / read.sum() - 14) <= 0.5


def test_what_is_transparent_is_white(tmp_path):
    picture = Image.new("RGBA", (40, 40), (0, 0, 0, 0))
    picture.paste((0, 0, 0, 255), (10, 5, 14, 35))
    picture.save(tmp_path / "clear.png")
    read = digit_from_picture(tmp_path / "clear.png")[0]
    assert read[13, 13] > 0.9
    assert read[:, :4].max() == 0


def test_refuses(tmp_path):
    with pytest.raises(ValueError, match=r"white\.png shows nothing: all of it is about as bright as its border"):
        digit_from_picture(save(torch.ones(30, 30), tmp_path / "white.png"))
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(ValueError, match=r"text\.png is no picture that can be read"):
        digit_from_picture(tmp_path / "text.png")
    save(DIGITS[0, 0], tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:60])
    with pytest.raises(ValueError, match=r"cut\.png is no picture that can be read"):
        digit_from_picture(tmp_path / "cut.png")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"Not a regular file: .*pipe"):
        digit_from_picture(tmp_path / "pipe")
