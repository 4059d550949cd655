"""Where a token stands. Attention by itself does not know: shuffle the tokens and the outputs shuffle along.

A model adds one of these to its embedded tokens, before the first block. Rotary positions and distance biases act on
the scores instead and stand in ``scores.py``.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sciformer.functional import InputError, check_sizes


class _Positions(nn.Module):
    """Add one vector for each position."""

    table: Float[Tensor, "max_length E"]

    def forward(self, x: Float[Tensor, "B L E"], *, offset: int = 0) -> Float[Tensor, "B L E"]:
        """Add L rows of the table.

        Args:
            offset: position of the first token: how many tokens of the text the model has read before.

        Raises:
            ValueError: if x reaches past ``max_length`` or is not ``embed_dim`` wide, or ``offset`` is negative.
        """
        if offset < 0:
            raise InputError(f"offset must be at least 0, got {offset}")
        (max_length, embed_dim), (L, E) = self.table.shape, x.shape[-2:]
        if max_length < offset + L or embed_dim != E:
            raise InputError(
                f"positions are for up to {max_length} tokens of width {embed_dim}, got {offset + L} of width {E}"
            )
        return x + self.table[offset : offset + L]


class SinusoidalPositions(_Positions):
    r"""Fixed waves of geometrically growing wavelength, from 2π to 10,000 · 2π.

    .. math:: p_{t, 2i} = \sin(t / 10000^{2i/E}), \qquad p_{t, 2i+1} = \cos(t / 10000^{2i/E})

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.

    Raises:
        ValueError: if ``embed_dim`` is odd, since sines and cosines come in pairs, or a size is below 1.
    """

    def __init__(self, embed_dim: int, max_length: int):
        super().__init__()
        check_sizes(embed_dim=embed_dim, max_length=max_length)
        if embed_dim % 2:
            raise InputError(f"sinusoidal positions need an even embed_dim, got {embed_dim}")
        position = torch.arange(max_length)[:, None]
        frequency = torch.exp(-math.log(10000.0) * torch.arange(0, embed_dim, 2) / embed_dim)
        angle = position * frequency  # (max_length, E / 2)
        table = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)  # (max_length, E), sin and cos in turn
        self.register_buffer("table", table, persistent=False)  # moves with the model, but is not saved with it


class SinusoidalGridPositions(_Positions):
    r"""The waves of :class:`SinusoidalPositions` for the tokens of an image that is read row by row.

    The first half of the width says in which row a token stands, the second half in which column: row r and column c of
    an image get :math:`(p_r, p_c)`, each E/2 wide.

    Source: Parmar et al. 2018, arXiv:1802.05751, section 3.1.

    Args:
        width: tokens in a row; the square root of ``max_length``, as in a square image, if it is not given.

    Raises:
        ValueError: if ``embed_dim`` is not a multiple of 4, since row and column each need pairs of sines and cosines,
            if rows of ``width`` do not make up ``max_length``, or a size is below 1.
    """

    def __init__(self, embed_dim: int, max_length: int, width: int | None = None):
        super().__init__()
        check_sizes(embed_dim=embed_dim, max_length=max_length)
        width = math.isqrt(max_length) if width is None else width
        check_sizes(width=width)
        if embed_dim % 4:
            raise InputError(f"sinusoidal positions on a grid need an embed_dim that 4 divides, got {embed_dim}")
        if max_length % width:
            raise InputError(f"{max_length} tokens do not make up rows of {width}")
        height = max_length // width
        waves = SinusoidalPositions(embed_dim // 2, max(height, width)).table
        rows, columns = waves[:height, None], waves[None, :width]
        table = torch.cat((rows.expand(height, width, -1), columns.expand(height, width, -1)), dim=-1).flatten(0, 1)
        self.register_buffer("table", table, persistent=False)


class LearnedPositions(_Positions):
    """One trainable vector for each position, starting small and random.

    Source: Gehring et al. 2017, arXiv:1705.03122, section 3.1.

    Raises:
        ValueError: if a size is below 1.
    """

    def __init__(self, embed_dim: int, max_length: int):
        super().__init__()
        check_sizes(embed_dim=embed_dim, max_length=max_length)
        self.table = nn.Parameter(0.02 * torch.randn(max_length, embed_dim))


class NoPositions(nn.Module):
    """Leaves the tokens as they are, for comparison."""

    def __init__(self, embed_dim: int, max_length: int):
        super().__init__()

    def forward(self, x: Float[Tensor, "B L E"], *, offset: int = 0) -> Float[Tensor, "B L E"]:
        """Return x."""
        return x


#: Every kind of position by name. Each entry is a recipe: ``POSITIONS[name](embed_dim, max_length)``.
POSITIONS: dict[str, Callable[[int, int], nn.Module]] = {
    "sinusoidal": SinusoidalPositions,
    "learned": LearnedPositions,
    "none": NoPositions,
}
