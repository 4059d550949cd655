"""Augmentation: images turned, zoomed and shifted by hand and at random."""

import pytest
import torch
from torch.testing import assert_close

from sciformer.data import affine, augmentation, random_affine


def still(count: int) -> dict[str, torch.Tensor]:
    return {"degrees": torch.zeros(count), "zoom": torch.ones(count), "shift": torch.zeros(count, 2)}


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(3, 2, 7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_affine_that_does_nothing(images):
    assert_close(affine(images, **still(3)), images)
    unmoved = random_affine(images, torch.Generator(), degrees=0, translate=0, scale=0)
    assert_close(unmoved, images)


def test_affine_shifts_each_image_by_its_own_pixels(images):
    shift = torch.tensor([[1.0, 0.0], [0.0, -2.0], [0.0, 0.0]])  # one right; two up; none
    moved = affine(images, **still(3) | {"shift": shift})
    expected = torch.zeros_like(images)
    expected[0, :, :, 1:] = images[0, :, :, :-1]
    expected[1, :, :-2] = images[1, :, 2:]
    expected[2] = images[2]
    assert_close(moved, expected)


def test_affine_turns_counter_clockwise(images):
    square = images[..., :5, :]
    turned = affine(square, **still(3) | {"degrees": torch.tensor([90.0, -90.0, 180.0])})
    for result, image, quarters in zip(turned, square, (1, -1, 2), strict=True):
        assert_close(result, torch.rot90(image, quarters, (-2, -1)), rtol=0, atol=1e-6)
    half_turn = affine(images, **still(3) | {"degrees": torch.full((3,), 180.0)})
    assert_close(half_turn, images.flip(-2, -1), rtol=0, atol=1e-6)


def test_affine_turns_an_oblong_image_in_pixels():
    """A quarter turn of a column that fits both ways: lengths in pixels are kept although the image is not square."""
    image = torch.zeros(1, 1, 7, 5, dtype=torch.float64)
    image[0, 0, 1:6, 2] = torch.tensor([1.0, 2, 3, 4, 5])
    expected = torch.zeros_like(image)
    expected[0, 0, 3] = torch.tensor([1.0, 2, 3, 4, 5])  # what was at the top is now at the left
    assert_close(affine(image, **still(1) | {"degrees": torch.tensor([90.0])}), expected, rtol=0, atol=1e-6)


def test_affine_zooms_then_shifts():
    image = torch.zeros(1, 1, 9, 9, dtype=torch.float64)
    image[0, 0, 4, 5] = 1.0  # one pixel right of the centre
    moved = affine(image, degrees=torch.zeros(1), zoom=torch.full((1,), 2.0), shift=torch.tensor([[1.0, 0.0]]))
    assert moved.argmax() == 4 * 9 + 7  # 2 · 1 pixel, and 1 more
    assert_close(moved.sum(), torch.tensor(4.0, dtype=torch.float64))  # twice as large both ways


def test_random_affine_stays_in_its_bounds():
    """A dot one pixel from the centre, seen through the extremes of many draws."""
    images = torch.zeros(500, 1, 15, 15)
    images[:, :, 7, 7] = 1.0
    moved = random_affine(images, torch.Generator().manual_seed(0), degrees=180, translate=2, scale=0)
    pixels = torch.arange(15.0) - 7
    mass = moved.sum(dim=(1, 2, 3))
    down = (moved.sum(dim=(1, 3)) * pixels).sum(dim=1) / mass
    right = (moved.sum(dim=(1, 2)) * pixels).sum(dim=1) / mass
    for shift in (down, right):
        assert 1.9 < shift.max() < 2.3
        assert -2.3 < shift.min() < -1.9
        assert len(shift.unique()) > 400  # every image its own
    assert abs(torch.corrcoef(torch.stack([down, right]))[0, 1]) < 0.15


@pytest.mark.parametrize(
    ("options", "bounds"),
    [({}, (10, 0.1, 2)), ({"degrees": 30.0, "scale": 0.5, "translate": 3.0}, (30, 0.5, 3))],
    ids=["default", "as given"],
)
def test_random_affine_draws_four_numbers_for_each_image(monkeypatch, options, bounds):
    amounts = {}
    monkeypatch.setattr(augmentation, "affine", lambda images, **drawn: amounts.update(drawn) or images)
    random_affine(torch.zeros(4000, 1, 5, 5), torch.Generator().manual_seed(0), **options)
    degrees, scale, translate = bounds
    right, down = (amounts["shift"] / translate).unbind(dim=1)
    draws = torch.stack([amounts["degrees"] / degrees, (amounts["zoom"] - 1) / scale, right, down])
    assert draws.abs().max() < 1 + 1e-5
    assert_close(draws.amax(dim=1), torch.ones(4), rtol=0, atol=0.01)
    assert_close(draws.amin(dim=1), -torch.ones(4), rtol=0, atol=0.01)
    assert_close(torch.corrcoef(draws), torch.eye(4), rtol=0, atol=0.06)  # four standard deviations


def test_random_affine_keeps_range_dtype_and_needs_no_gradient(images):
    for dtype in (torch.float32, torch.float64):
        x = images.to(dtype).requires_grad_()
        result = random_affine(x, torch.Generator().manual_seed(0))
        assert (result.shape, result.dtype, result.requires_grad) == (x.shape, dtype, False)
        assert result.min() >= 0
        assert result.max() <= 1
        assert not torch.equal(result, x)


def test_random_affine_refuses_a_zoom_to_nothing(images):
    for scale in (-0.1, 1.0):
        with pytest.raises(ValueError, match=rf"scale must lie in \[0, 1\), got {scale}"):
            random_affine(images, torch.Generator(), scale=scale)
