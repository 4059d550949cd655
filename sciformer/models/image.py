"""Images as sequences of patches."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sciformer.blocks import TransformerBlock
from sciformer.functional import InputError, check_sizes
from sciformer.positions import LearnedPositions


class ImageToSequence(nn.Module):
    """Cut an image into patches and map each, linearly, to a token.

    A convolution whose stride equals its kernel does both at once. It runs here in two steps, after which each token
    is contiguous in memory, as all that follows likes it. Tokens run row by row. ``patch_size=1`` makes every pixel
    a token. Source: Dosovitskiy et al. 2020, arXiv:2010.11929, section 3.1.

    Args:
        image_size: pixels of a side, or (height, width) of images that are not square.
        patch_size: pixels of a patch's side, or its (height, width).

    Raises:
        ValueError: if the patches do not tile the image, or a size is below 1.
    """

    def __init__(
        self, image_size: int | tuple[int, int], patch_size: int | tuple[int, int], in_channels: int, embed_dim: int
    ):
        super().__init__()
        check_sizes(in_channels=in_channels, embed_dim=embed_dim)
        height, width = _height_and_width("image_size", image_size)
        self.patch_size = _height_and_width("patch_size", patch_size)
        if height % self.patch_size[0] or width % self.patch_size[1]:
            raise InputError(f"image_size {image_size} is not divisible by patch_size {patch_size}")
        self.image_shape = (in_channels, height, width)
        self.num_tokens = (height // self.patch_size[0]) * (width // self.patch_size[1])
        self.projection = nn.Conv2d(in_channels, embed_dim, self.patch_size, stride=self.patch_size)

    def forward(self, images: Float[Tensor, "B C height width"]) -> Float[Tensor, "B L E"]:
        """Tokens of each image.

        Raises:
            ValueError: if the images are not of the size that was announced.
        """
        return F.linear(self.patches(images), self.projection.weight.flatten(1), self.projection.bias)  # (B, L, E)

    def patches(self, images: Float[Tensor, "B C height width"]) -> Float[Tensor, "B L P"]:
        """The P pixels of each patch: all of channel 0, row by row, then channel 1.

        Raises:
            ValueError: if the images are not of the size that was announced.
        """
        if images.shape[1:] != self.image_shape:
            raise InputError(f"images must be (B, {', '.join(map(str, self.image_shape))}), got {tuple(images.shape)}")
        height, width = self.patch_size
        patches = images.unfold(2, height, height).unfold(3, width, width)  # (B, C, rows, columns, h, w): a view
        return patches.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)  # (B, L, P)


def _height_and_width(name: str, size: int | tuple[int, int]) -> tuple[int, int]:
    """The sides of a rectangle, given as (height, width) or, if it is a square, as one number.

    Raises:
        ValueError: naming the size, if it is neither, or a side is below 1.
    """
    if not isinstance(size, tuple):
        check_sizes(**{name: size})
        return size, size
    if len(size) != 2:
        raise InputError(f"{name} must be a number or a pair (height, width), got {size}")
    check_sizes(**{f"the height in {name}": size[0], f"the width in {name}": size[1]})
    return size


class Classifier(nn.Module):
    r"""Norm, a summary of all tokens, and a linear map to one logit for each class.

    The summary is the mean over tokens. With ``num_queries`` it is attention once more: each learned query u takes a
    weighted average of the tokens, and the averages stand side by side. A query of zeros is the mean.

    .. math:: z_m = \sum_n \text{softmax}_n(u_m \cdot x_n)\, x_n

    Source: Lee et al. 2019, arXiv:1810.00825, section 3.2 (pooling by attention to learned seeds), in its barest form.

    Raises:
        ValueError: if ``embed_dim`` or ``num_classes`` is below 1, or ``num_queries`` is negative.
    """

    def __init__(self, embed_dim: int, num_classes: int, *, num_queries: int = 0):
        super().__init__()
        check_sizes(embed_dim=embed_dim, num_classes=num_classes)
        check_sizes(0, num_queries=num_queries)
        self.norm: nn.Module = nn.LayerNorm(embed_dim)
        self.queries = nn.Linear(embed_dim, num_queries, bias=False) if num_queries else None
        self.linear = nn.Linear(embed_dim * max(1, num_queries), num_classes)

    def forward(self, tokens: Float[Tensor, "B L E"]) -> Float[Tensor, "B K"]:
        """Logits of the classes."""
        tokens = self.norm(tokens)
        if self.queries is None:
            return self.linear(tokens.mean(dim=1))
        weights = self.queries(tokens).softmax(dim=1)  # (B, L, M): over the tokens
        return self.linear((weights.mT @ tokens).flatten(1))  # (B, M * E) -> (B, K)


class ImageTransformer(nn.Module):
    """Patches, positions, transformer blocks, and a classifier on the last block's output.

    The architecture of Dosovitskiy et al. 2020 (arXiv:2010.11929); the classifier sees all tokens, not a class token.

    Args:
        image_size: pixels of a side, or (height, width) of images that are not square.
        patch_size: pixels of a patch's side, or its (height, width).
        positions: recipe for the positions, called as ``positions(embed_dim, max_length)``.
        num_queries: how many learned queries read out the last block; with 0 it is the mean over tokens.
        block: options of each :class:`~sciformer.blocks.TransformerBlock`, such as ``score`` and ``norm_first``.

    Raises:
        ValueError: if the patches do not tile the image, the heads do not divide the embedding, or ``num_layers`` is
            negative.
    """

    def __init__(
        self,
        image_size: int | tuple[int, int],
        patch_size: int | tuple[int, int],
        in_channels: int,
        num_classes: int,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        *,
        positions: Callable[[int, int], nn.Module] = LearnedPositions,
        num_queries: int = 0,
        **block: Any,
    ):
        super().__init__()
        check_sizes(0, num_layers=num_layers)
        self.to_sequence = ImageToSequence(image_size, patch_size, in_channels, embed_dim)
        self.positions = positions(embed_dim, self.to_sequence.num_tokens)
        self.blocks = nn.ModuleList(TransformerBlock(embed_dim, num_heads, **block) for _ in range(num_layers))
        self.classifier = Classifier(embed_dim, num_classes, num_queries=num_queries)

    def forward(self, images: Float[Tensor, "B C height width"]) -> Float[Tensor, "B K"]:
        """Logits of the classes."""
        return self.classifier(self._run_blocks(images, need_weights=False)[0])

    def attention_weights(self, images: Float[Tensor, "B C height width"]) -> list[Float[Tensor, "B H L L"]]:
        """The weights of every block's attention, first block first."""
        return self._run_blocks(images, need_weights=True)[1]

    def _run_blocks(
        self, images: Float[Tensor, "B C height width"], need_weights: bool
    ) -> tuple[Float[Tensor, "B L E"], list[Float[Tensor, "B H L L"]]]:
        """The last block's tokens, and the weights of every block's attention if they are wanted."""
        tokens, maps = self.positions(self.to_sequence(images)), []
        for block in self.blocks:
            tokens, weights = block(tokens, need_weights=need_weights)
            if need_weights:
                maps.append(weights)
        return tokens, maps
