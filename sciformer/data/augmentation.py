"""Augmentation: images rotated, zoomed and shifted."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sciformer.functional import InputError


@torch.no_grad()
def affine(
    images: Float[Tensor, "B C height width"],
    *,
    degrees: Float[Tensor, "B"],
    zoom: Float[Tensor, "B"],
    shift: Float[Tensor, "B 2"],
) -> Float[Tensor, "B C height width"]:
    r"""Rotate, zoom, then shift each image by its own amount.

    The pixel at p, measured from the center, takes the value that the original image has at

    .. math:: p' = R^{-1} (p - t) / z, \qquad R^{-1} = \begin{pmatrix} \cos θ & -\sin θ \\ \sin θ & \cos θ \end{pmatrix}

    with y pointing down, as row indices do. Values are interpolated bilinearly and are 0 outside the original image.

    Args:
        degrees: θ, counter-clockwise, in degrees.
        zoom: z, a factor; 2 shows the image twice as large.
        shift: t, in pixels, to the right and down.

    Returns:
        The new images (B, C, H, W), with the dtype and device of ``images`` and without a gradient.
    """
    height, width = images.shape[-2:]
    half = images.new_tensor([width / 2, height / 2])  # pixels per unit of grid_sample's coordinates
    angle = degrees.to(half) * (math.pi / 180)
    cos, sin = angle.cos(), angle.sin()
    inverse = torch.stack([cos, -sin, sin, cos], dim=-1).view(-1, 2, 2) / zoom.to(half)[:, None, None]  # (B, 2, 2)
    offset = -inverse @ shift.to(half)[:, :, None]  # (B, 2, 1)
    # From pixels to grid_sample's coordinates, in which the image extends from -1 to 1 in both directions.
    theta = torch.cat([inverse * half / half[:, None], offset / half[:, None]], dim=-1)  # (B, 2, 3)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)  # (B, H, W, 2)
    return F.grid_sample(images, grid, align_corners=False)


def random_affine(
    images: Float[Tensor, "B C height width"],
    generator: torch.Generator,
    *,
    degrees: float = 10.0,
    translate: float = 2.0,
    scale: float = 0.1,
) -> Float[Tensor, "B C height width"]:
    """Rotate, zoom and shift each image by its own random amounts, all uniformly distributed; see ``affine``.

    Args:
        generator: on the CPU, whatever the images' device, so that every device gets the same random numbers.
        degrees: the angle lies in ±degrees.
        translate: the shift lies in ±translate pixels, horizontally and vertically.
        scale: the zoom lies in 1 ± scale.

    Raises:
        ValueError: if ``scale`` is not in [0, 1), since the zoom could then be 0.
    """
    if not 0 <= scale < 1:
        raise InputError(f"scale must lie in [0, 1), got {scale}")
    draws = 2 * torch.rand(len(images), 4, generator=generator) - 1  # (B, 4) in [-1, 1)
    return affine(images, degrees=degrees * draws[:, 0], zoom=1 + scale * draws[:, 1], shift=translate * draws[:, 2:])
