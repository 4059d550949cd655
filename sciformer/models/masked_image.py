"""Images of which most is hidden or wrong: an encoder sees what there is, a small decoder restores the rest."""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sciformer.blocks import TransformerBlock
from sciformer.functional import InputError, check_sizes
from sciformer.models.image import ImageToSequence
from sciformer.positions import LearnedPositions
from sciformer.scores import comparing_positions


def random_visible(
    count: int,
    num_tokens: int,
    *,
    hidden_share: float = 0.75,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
) -> Bool[Tensor, "B L"]:
    """For each of ``count`` images another random choice of patches that stay visible; True = may be seen.

    Of L patches, round(``hidden_share`` · L) are hidden, as many in every image. Source: He et al. 2021,
    arXiv:2111.06377, section 3, "Masking": uniformly, without replacement.

    Args:
        generator: on the CPU, whatever the device, so that every device sees the same choice.

    Raises:
        ValueError: if ``count`` is negative, or the share is not between 0 and 1, or hides no patch or every patch.
    """
    check_sizes(0, count=count, num_tokens=num_tokens)
    if not 0 < hidden_share < 1:
        raise InputError(f"hidden_share must lie between 0 and 1, got {hidden_share}")
    num_visible = num_tokens - round(hidden_share * num_tokens)
    if not 0 < num_visible < num_tokens:
        raise InputError(
            f"a hidden_share of {hidden_share} leaves {num_visible} of {num_tokens} patches visible; "
            "at least one has to be visible and one hidden"
        )
    chosen = torch.rand(count, num_tokens, generator=generator).topk(num_visible).indices  # (B, V)
    return torch.zeros(count, num_tokens, dtype=torch.bool).scatter(1, chosen, True).to(device)


class MaskedImageModel(nn.Module):
    r"""A masked autoencoder: from the visible patches of an image, the pixels of those that are hidden.

    .. math:: z = \text{encoder}\big((W p_n + e_n)_{n \in V}\big), \qquad
              \hat p = \text{decoder}\big(u_1 + d_1, \dots, u_L + d_L\big), \quad
              u_n = \begin{cases} A z_n & n \in V \\ m & \text{else} \end{cases}

    V are the visible patches, e and d positions, m a learned vector, the mask token. The encoder's cost is that of the
    visible tokens; the decoder is narrow and shallow, and after training it is thrown away. The loss is
    ``F.mse_loss(model(images, visible), model.hidden_pixels(images, visible))``. Source: He et al. 2021,
    arXiv:2111.06377, section 3. Where they predict pixels normalized patch by patch, these are the pixels.

    Args:
        image_size: pixels of a side, or (height, width) of images that are not square.
        patch_size: pixels of a patch's side, or its (height, width).
        decoder_dim: width of the decoder's tokens.
        positions: recipe for the positions of encoder and decoder, called as ``positions(width, max_length)``.
        block: options of each :class:`~sciformer.blocks.TransformerBlock`, such as ``score``, on both sides.

    Raises:
        ValueError: if the patches do not tile the image, the heads do not divide a width, a number of layers is
            negative, or a block takes a token's position in the sequence for its position in the image, which it is
            not when most tokens are left out.
    """

    def __init__(
        self,
        image_size: int | tuple[int, int],
        patch_size: int | tuple[int, int],
        in_channels: int,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        *,
        decoder_dim: int,
        decoder_layers: int = 1,
        positions: Callable[[int, int], nn.Module] = LearnedPositions,
        **block: Any,
    ):
        super().__init__()
        check_sizes(decoder_dim=decoder_dim)
        check_sizes(0, num_layers=num_layers, decoder_layers=decoder_layers)
        self.to_sequence = ImageToSequence(image_size, patch_size, in_channels, embed_dim)
        self.num_tokens = self.to_sequence.num_tokens
        self.positions = positions(embed_dim, self.num_tokens)
        self.blocks = nn.ModuleList(TransformerBlock(embed_dim, num_heads, **block) for _ in range(num_layers))
        self.norm = nn.LayerNorm(embed_dim)

        self.to_decoder = nn.Linear(embed_dim, decoder_dim)
        self.mask_token = nn.Parameter(0.02 * torch.randn(decoder_dim))
        self.decoder_positions = positions(decoder_dim, self.num_tokens)
        self.decoder_blocks = nn.ModuleList(
            TransformerBlock(decoder_dim, num_heads, **block) for _ in range(decoder_layers)
        )
        self.decoder_norm = nn.LayerNorm(decoder_dim)
        self.to_pixels = nn.Linear(decoder_dim, in_channels * math.prod(self.to_sequence.patch_size))
        if comparing := comparing_positions(self):
            raise InputError(
                f"{comparing[0]} counts tokens from one to the next, and between two visible ones any "
                "number may be hidden; give a score without distances, and positions"
            )

    def forward(
        self, images: Float[Tensor, "B C height width"], visible: Bool[Tensor, "B L"]
    ) -> Float[Tensor, "B M P"]:
        """The pixels of the M hidden patches of each image, patch by patch in reading order.

        Raises:
            ValueError: if images or mask have a wrong shape, or the mask hides not as many patches in every image.
        """
        seen = self.to_decoder(self.encode(images, visible))  # (B, V, decoder_dim)
        mask_tokens = self.mask_token.to(seen.dtype).expand(*visible.shape, -1)
        tokens = mask_tokens.masked_scatter(visible[..., None], seen)  # (B, L, decoder_dim), each at its own position
        tokens = self.decoder_positions(tokens)
        for block in self.decoder_blocks:
            tokens, _ = block(tokens)
        return self.to_pixels(self.decoder_norm(_select(tokens, ~visible, self.num_tokens - seen.shape[1])))

    def encode(
        self, images: Float[Tensor, "B C height width"], visible: Bool[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B V E"]:
        """The tokens of the visible patches, in reading order; of all patches without ``visible``.

        Raises:
            ValueError: if images or mask have a wrong shape, or the mask hides not as many patches in every image.
        """
        tokens = self.positions(self.to_sequence(images))  # (B, L, E): positions are added before anything is left out
        if visible is not None:
            tokens = _select(tokens, visible, self._count(images, visible))
        for block in self.blocks:
            tokens, _ = block(tokens)
        return self.norm(tokens)

    def features(self, images: Float[Tensor, "B C height width"]) -> Float[Tensor, "B F"]:
        """One vector for a whole image, nothing hidden: its F = L · E features, token beside token.

        Where the position of a thing does not matter, as in a tile cut anywhere, the tokens' mean is a better summary.
        """
        return self.encode(images).flatten(1)

    def hidden_pixels(
        self, images: Float[Tensor, "B C height width"], visible: Bool[Tensor, "B L"]
    ) -> Float[Tensor, "B M P"]:
        """What :meth:`forward` should give: in each patch all of channel 0, row by row, then channel 1.

        Raises:
            ValueError: if images or mask have a wrong shape, or the mask hides not as many patches in every image.
        """
        hidden = self.num_tokens - self._count(images, visible)
        return _select(self.to_sequence.patches(images), ~visible, hidden)

    @torch.no_grad()
    def restore(
        self, images: Float[Tensor, "B C height width"], visible: Bool[Tensor, "B L"]
    ) -> Float[Tensor, "B C height width"]:
        """The images, with what is hidden filled in; of the visible patches nothing is changed.

        Raises:
            ValueError: if images or mask have a wrong shape, or the mask hides not as many patches in every image.
        """
        pixels = self(images, visible).to(images.dtype)
        patches = self.to_sequence.patches(images).masked_scatter(~visible[..., None], pixels)
        size = self.to_sequence.patch_size
        return F.fold(patches.mT, images.shape[2:], size, stride=size)

    def _count(self, images: Tensor, visible: Tensor) -> int:
        """How many patches are visible in every image."""
        wanted = (len(images), self.num_tokens)
        check_sizes(images=len(images))
        if visible.device != images.device:
            raise InputError(f"visible is on {visible.device}, but images are on {images.device}")
        if visible.dtype != torch.bool or visible.shape != wanted:
            raise InputError(f"visible must be {wanted} booleans, got {visible.dtype} of {tuple(visible.shape)}")
        fewest, most = fewest_and_most(visible)
        if fewest != most:
            raise InputError(
                f"as many patches must be visible in every image, got {fewest} in one and {most} in another"
            )
        if most in (0, self.num_tokens):
            raise InputError(f"{most} of {self.num_tokens} patches are visible; at least one has to be, and one hidden")
        return most


class CorruptedImageModel(MaskedImageModel):
    r"""A denoising autoencoder: from an image with wrong patches, the right pixels of those patches.

    .. math:: \hat p = \text{decoder}\big(A z_1 + d_1, \dots, A z_L + d_L\big), \qquad
              z = \text{encoder}\big(W \tilde p_1 + e_1, \dots, W \tilde p_L + e_L\big)

    The encoder sees every patch of the corrupted image p̃ and is not told which of them are wrong, so that there is no
    mask token. All else is :class:`MaskedImageModel`. Source: Vincent et al. 2008, doi:10.1145/1390156.1390294.

    Raises:
        ValueError: as :class:`MaskedImageModel`.
    """

    def __init__(self, *sizes: Any, **options: Any):
        super().__init__(*sizes, **options)
        self.register_parameter("mask_token", None)

    def forward(
        self, images: Float[Tensor, "B C height width"], visible: Bool[Tensor, "B L"]
    ) -> Float[Tensor, "B M P"]:
        """The right pixels of the M patches of each corrupted image that are wrong, patch by patch in reading order.

        Args:
            visible: False where a patch is wrong. The encoder does not see it: it says which patches are wanted.

        Raises:
            ValueError: if images or mask have a wrong shape, or there are not as many wrong patches in every image.
        """
        wrong = self.num_tokens - self._count(images, visible)
        tokens = self.decoder_positions(self.to_decoder(self.encode(images)))  # (B, L, decoder_dim)
        for block in self.decoder_blocks:
            tokens, _ = block(tokens)
        return self.to_pixels(self.decoder_norm(_select(tokens, ~visible, wrong)))


def corrupted(
    images: Float[Tensor, "B C height width"],
    visible: Bool[Tensor, "B L"],
    patch_size: int,
    *,
    how: Literal["noise", "swapped"],
    generator: torch.Generator,
) -> Float[Tensor, "B C height width"]:
    """Images whose patches are wrong where ``visible`` is False, as many in every image.

    Args:
        how: ``"noise"``: every pixel is drawn uniformly from [0, 1]. ``"swapped"``: these patches are permuted at
            random, and none stays where it was, unless it is the only one.
        generator: on the CPU, whatever the images' device, so that every device sees the same.

    Raises:
        ValueError: if ``how`` is neither, or the mask does not belong to the images or is not as large in every one.
    """
    B, L = visible.shape
    if how not in ("noise", "swapped"):
        raise InputError(f"how must be 'noise' or 'swapped', got {how!r}")
    if (len(images), images.shape[-2] // patch_size * (images.shape[-1] // patch_size)) != (B, L):
        raise InputError(f"visible {tuple(visible.shape)} is no mask of images {tuple(images.shape)}")
    fewest, most = fewest_and_most(visible)
    if fewest != most:
        raise InputError(f"as many patches must be wrong in every image, got {L - most} in one and {L - fewest}")
    patches = F.unfold(images, patch_size, stride=patch_size).mT  # (B, L, P)
    if how == "noise":
        others = torch.rand(patches.shape, generator=generator).to(patches)
        changed = torch.where(visible[..., None], patches, others)
    else:
        # Those that are permuted, in random order, then the others: each of the former takes the next one's content.
        order = (torch.rand(B, L, generator=generator).to(images.device) + 2 * visible).argsort(dim=1)[:, : L - most]
        rows = torch.arange(B, device=images.device)[:, None]  # (B, 1)
        changed = patches.clone()
        changed[rows, order] = patches[rows, order.roll(-1, dims=1)]
    return F.fold(changed.mT, images.shape[2:], patch_size, stride=patch_size)


def fewest_and_most(visible: Bool[Tensor, "B L"]) -> tuple[int, int]:
    """The smallest and the largest number of visible patches. Nothing else in the model is read off a GPU."""
    fewest, most = torch.stack(visible.sum(dim=1).aminmax()).tolist()
    return fewest, most


def _select(tokens: Float[Tensor, "B L E"], chosen: Bool[Tensor, "B L"], count: int) -> Float[Tensor, "B V E"]:
    """The ``count`` chosen tokens of each row, in their order. ``tokens[chosen]`` would count them, and a GPU wait."""
    B, L = chosen.shape
    positions = chosen.byte().argsort(dim=1, descending=True, stable=True)[:, :count]  # (B, V)
    rows = positions + L * torch.arange(B, device=chosen.device)[:, None]  # of all B · L tokens
    return tokens.flatten(0, 1).index_select(0, rows.flatten()).unflatten(0, (B, count))
