"""Exercises of notebook 06: images as sequences of patches.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial, reduce
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sciformer.blocks import TransformerBlock
from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise
from sciformer.check.modules import run_module
from sciformer.models import Classifier, ImageToSequence
from sciformer.positions import LearnedPositions

_CUT = "From image to sequence"
_TOKEN = "From patch to token"
_CHANNELS = "Break it: channels as tokens"
_POSITION = "Where a patch stands"
_CLASS = "From tokens to a class"
_CONVOLUTION = "A convolution cuts and maps at once"
_WHOLE = "The whole model"


def _patches(image: Tensor, p: int, *, order: str, tokens: str = "RS") -> Tensor:
    """Cut an image and flatten the patches, (number of tokens, -1).

    Args:
        order: of the axes before they are flattened; C channel, R row and S column of the grid, h row and w column
            inside the patch. The right one is RSChw.
        tokens: the axes that the tokens are counted by.
    """
    channels, height, width = image.shape
    patches = image.reshape(channels, height // p, p, width // p, p)  # CRhSw
    sizes = dict(zip("CRhSw", patches.shape, strict=True))
    return patches.permute(*map("CRhSw".index, order)).reshape(math.prod(sizes[axis] for axis in tokens), -1)


def cut_into_patches(
    image: Tensor,
    patch_size: int,
    *,
    cut: Callable[[Tensor, int], Tensor] = lambda image, p: _patches(image, p, order="RSChw"),
) -> Tensor:
    """Patches row by row; in each all of channel 0, row by row, then channel 1 (L, C·P·P)."""
    return cut(image, patch_size)


def _cut_into_patches_cases(draw: Draw) -> Iterator[Case]:
    """Pixels that are numbered where a person reads them, random ones where there are more."""

    def numbered(*shape: int) -> Tensor:
        return torch.arange(math.prod(shape)).view(shape).to(draw.device, draw.dtype)

    yield Case("1 channel of 4×2 pixels", {"image": numbered(1, 4, 2), "patch_size": 2})
    yield Case("1 channel of 2×4 pixels", {"image": numbered(1, 2, 4), "patch_size": 2})
    yield Case("1 channel of 4×4 pixels", {"image": numbered(1, 4, 4), "patch_size": 2})
    yield Case("1 channel of 4×6 pixels", {"image": numbered(1, 4, 6), "patch_size": 2})
    yield Case("2 channels of 2×4 pixels", {"image": numbered(2, 2, 4), "patch_size": 2})
    yield Case("3 channels of 6×9 pixels", {"image": draw.normal(3, 6, 9), "patch_size": 3})


_CUT_INTO_PATCHES_FAULTS = (
    Fault(
        "a square of patches",
        "The patches in a row are counted along the height, as if every image were square. In a row there are "
        "width // patch_size.",
        cut=lambda image, p: _patches(image[:, :, : image.shape[1]], p, order="RSChw"),
    ),
    Fault(
        "as many rows as columns",
        "The rows of patches are counted along the width, as if every image were square. There are height // "
        "patch_size of them.",
        cut=lambda image, p: _patches(image[:, : image.shape[2]], p, order="RSChw"),
    ),
    Fault(
        "only reshaped",
        "Your image is reshaped and not cut, so a patch holds pixels that are neighbours in memory. It should hold a "
        "square of the image.",
        cut=partial(_patches, order="CRhSw"),
    ),
    Fault(
        "channels only reshaped",
        "Your channels are reshaped and not cut, so a patch holds pixels that are neighbours in memory. It should "
        "hold a square of the image.",
        cut=lambda image, p: image.reshape(len(image), -1, p * p).transpose(0, 1).flatten(1),
    ),
    Fault(
        "channels not moved",
        "The channel axis still stands in front when the patches are flattened. It belongs between grid and pixels.",
        cut=partial(_patches, order="CRShw"),
    ),
    Fault(
        "patches by columns",
        "The patches run down the columns. They have to run along the rows, as we read.",
        cut=partial(_patches, order="SRChw"),
    ),
    Fault(
        "pixels by columns",
        "Inside a patch the pixels run down the columns. They have to run along the rows.",
        cut=partial(_patches, order="RSCwh"),
    ),
    Fault(
        "all by columns",
        "Both the patches and the pixels in them run down the columns, as if the image were transposed. Go row by row.",
        cut=partial(_patches, order="SRCwh"),
    ),
    Fault(
        "channels last",
        "In each token the channels of a pixel stand together. All of channel 0 should come first, then all of channel "
        "1.",
        cut=partial(_patches, order="RShwC"),
    ),
    Fault(
        "each channel a token",
        "Each channel of a patch has become a token of its own. All channels of a patch belong in one token.",
        see=_CHANNELS,
        cut=partial(_patches, order="RSChw", tokens="RSC"),
    ),
    Fault(
        "each channel a token, channel by channel",
        "The channels are cut one after the other, each into tokens of its own. "
        "All channels of a patch belong in one token.",
        see=_CHANNELS,
        cut=partial(_patches, order="CRShw", tokens="CRS"),
    ),
    Fault(
        "transposed",
        "Rows and columns of the result are exchanged: each patch should be a row, as in (patches, pixels).",
        cut=partial(_patches, order="ChwRS", tokens="Chw"),
    ),
    Fault(
        "F.unfold's result reshaped",
        "What F.unfold gives is reshaped, so that a row holds pixels of many patches. Exchange its two axes: .T.",
        cut=lambda image, p: _patches(image, p, order="ChwRS"),
    ),
    Fault(
        "first channel only",
        "Only the first channel is cut. A token holds the pixels of all channels.",
        cut=lambda image, p: _patches(image[:1], p, order="RSChw"),
    ),
    Fault(
        "patches overlap",
        "The patches overlap: the window moves by one pixel. It has to move by a whole patch, stride=patch_size.",
        cut=lambda image, p: F.unfold(image[None], p)[0].T,
    ),
    Fault(
        "batch axis left",
        "The patches are right, but an axis of length 1 is left in front: take [0] of what F.unfold gives.",
        cut=lambda image, p: _patches(image, p, order="RSChw")[None],
    ),
)


def _dealt(images: Tensor, size: int) -> Tensor:
    """The rows of each image in the order 0, H/P, 2H/P, …, 1, 1 + H/P, …, as cards are dealt to H/P players."""
    return images.unflatten(2, (size, -1)).transpose(2, 3).flatten(2, 3)


def embed_patches(
    images: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    meet: Callable[..., tuple[Tensor, Tensor]] = lambda images, weight: (images, weight),
    stride: Callable[[int], int] = lambda size: size,
    shift: Callable[[Tensor], Tensor] = lambda bias: bias,
    layout: Callable[[Tensor], Tensor] = lambda grid: grid.flatten(2).transpose(1, 2),
    finish: Callable[[Tensor], Tensor] = lambda tokens: tokens,
) -> Tensor:
    """Patches of each image, row by row, each mapped linearly to a token, (B, L, E)."""
    images, weight = meet(images, weight)
    grid = F.conv2d(images, weight, shift(bias), stride=stride(weight.shape[-1]))  # (B, E, rows, columns)
    return finish(layout(grid))


def _embed_patches_cases(draw: Draw) -> Iterator[Case]:
    def case(images: int, channels: int, height: int, width: int, size: int, embed_dim: int) -> Case:
        inputs = {
            "images": draw.normal(images, channels, height, width),
            "weight": draw.normal(embed_dim, channels, size, size),
            "bias": draw.normal(embed_dim),
        }
        counts = f"{images} image{'s' * (images > 1)} of {channels} channel{'s' * (channels > 1)}"
        return Case(f"{counts}, {height}×{width} pixels in patches of {size}×{size}", inputs)

    yield case(1, 1, 2, 4, 2, 3)
    yield case(1, 1, 4, 6, 2, 2)
    yield case(2, 1, 4, 4, 2, 4)  # as many tokens as features: a transposition has the right shape
    yield case(3, 2, 6, 9, 3, 5)
    yield case(1, 1, 4, 8, 4, 2)


_EMBED_PATCHES_FAULTS = (
    Fault(
        "pixels dealt out",
        "A patch gets pixels from all over the picture, as after a split of the height into (P, H/P). Its pixels are "
        "neighbours: (H/P, P), and the width likewise.",
        meet=lambda images, weight: (_dealt(_dealt(images, weight.shape[-1]).mT, weight.shape[-1]).mT, weight),
    ),
    Fault(
        "channels as tokens",
        "Each channel of the convolution has become a token: (B, E, L). The channels are the embedding; exchange the "
        "last two axes.",
        see=_CHANNELS,
        layout=lambda grid: grid.flatten(2),
    ),
    Fault(
        "reshaped in place of transposed",
        "The grid is reshaped to (B, L, E), so that a token holds features of many patches. Flatten the grid's two "
        "axes, then exchange them with the channels: .flatten(2).transpose(1, 2).",
        see=_CHANNELS,
        layout=lambda grid: grid.reshape(len(grid), -1, grid.shape[1]),
    ),
    Fault(
        "grid left",
        "The tokens still stand in a grid, (B, E, rows, columns). One sequence is wanted, (B, L, E).",
        layout=lambda grid: grid,
    ),
    Fault(
        "grid left, embedding last",
        "The tokens still stand in a grid, (B, rows, columns, E). One sequence is wanted, (B, L, E).",
        layout=lambda grid: grid.movedim(1, -1),
    ),
    Fault(
        "patches by columns",
        "The tokens run down the columns of the image. They have to run along the rows, as we read.",
        see=_CUT,
        layout=lambda grid: grid.mT.flatten(2).transpose(1, 2),
    ),
    Fault(
        "tokens before images",
        "The axes are (L, B, E). The batch comes first: (B, L, E).",
        layout=lambda grid: grid.flatten(2).permute(2, 0, 1),
    ),
    Fault(
        "first image only",
        "Only the first image is embedded. The batch has B images, and the result is (B, L, E).",
        layout=lambda grid: grid[0].flatten(1).T,
    ),
    Fault(
        "patches overlap",
        "The patches overlap: the window moves by one pixel. It has to move by a whole patch, P.",
        see=_CONVOLUTION,
        stride=lambda size: 1,
    ),
    Fault(
        "pixels by columns",
        "Inside a patch the pixels meet the weights of the transposed patch. Both have to run along the rows.",
        see=_CUT,
        meet=lambda images, weight: (images, weight.mT),
    ),
    Fault(
        "first channel only",
        "Only the first channel is seen. A token depends on the pixels of all channels.",
        meet=lambda images, weight: (images[:, :1], weight[:, :1]),
    ),
    Fault("no bias", "The bias is missing: x = W p + b.", shift=torch.zeros_like),
    Fault("bias subtracted", "The bias is subtracted. It is added: x = W p + b.", shift=lambda bias: -bias),
    Fault(
        "activation",
        "There is a ReLU behind the map. The embedding is linear, without an activation.",
        finish=lambda tokens: tokens.relu(),
    ),
    Fault(
        "normed",
        "The tokens are normed. The embedding is linear; the first block norms what it reads by itself.",
        finish=lambda tokens: F.layer_norm(tokens, tokens.shape[-1:]),
    ),
)


def logits_from_patches(
    patches: Tensor,
    embedding: Tensor,
    positions: Tensor,
    blocks: list[Callable[[Tensor], Tensor]],
    head: Tensor,
    *,
    embed: Callable[..., Tensor] = lambda patches, embedding: patches @ embedding,
    add_positions: Callable[..., Tensor] = lambda tokens, positions, embedding: tokens + positions,
    through: Callable[..., Tensor] = lambda tokens, blocks, positions: reduce(lambda x, f: f(x), blocks, tokens),
    summarise: Callable[..., Tensor] = lambda tokens: tokens.mean(dim=1),
    read: Callable[..., Tensor] = lambda summary, head: summary @ head,
) -> Tensor:
    """An image transformer whose classifier takes the mean token, (B, classes)."""
    tokens = add_positions(embed(patches, embedding), positions, embedding)
    return read(summarise(through(tokens, blocks, positions)), head)


def _call_logits(answer: Callable[..., Any], blocks: Tensor, **inputs: Tensor) -> Any:
    """Blocks made of small matrices, tokens + weights @ tokens, so that they can be computed by hand."""
    functions = [partial(lambda weights, tokens: tokens + weights @ tokens, weights) for weights in blocks]
    return answer(inputs["patches"], inputs["embedding"], inputs["positions"], functions, inputs["head"])


def _logits_from_patches_cases(draw: Draw) -> Iterator[Case]:
    def case(images: int, length: int, pixels: int, embed_dim: int, layers: int, classes: int) -> Case:
        inputs = {
            "patches": draw.normal(images, length, pixels),
            "embedding": draw.normal(pixels, embed_dim),
            "positions": draw.normal(length, embed_dim),
            "blocks": draw.normal(layers, length, length),
            "head": draw.normal(embed_dim, classes),
        }
        counts = f"{images} image{'s' * (images > 1)}, {length} patches, {layers} blocks"
        return Case(f"{counts}; a block is x + A x, and its A is shown", inputs)

    yield case(1, 2, 2, 2, 2, 2)
    yield case(2, 5, 5, 5, 3, 5)
    yield case(3, 4, 5, 7, 3, 2)


_LOGITS_FROM_PATCHES_FAULTS = (
    Fault(
        "votes after every block",
        "The tokens vote after every block, and the votes of all blocks are averaged. Only those behind the last block "
        "count: what comes out of a block goes into the next.",
        through=lambda tokens, blocks, positions: (
            sum(list(accumulate(blocks, lambda x, f: f(x), initial=tokens))[1:]) / max(1, len(blocks))
        ),
    ),
    Fault(
        "positions not added",
        "The positions are not added: nothing tells the blocks where a patch stands.",
        see=_POSITION,
        add_positions=lambda tokens, positions, embedding: tokens,
    ),
    Fault(
        "positions after the blocks",
        "The positions are added after the blocks, which then never learn where a patch stands. Add them before.",
        see=_POSITION,
        add_positions=lambda tokens, positions, embedding: tokens,
        through=lambda tokens, blocks, positions: reduce(lambda x, f: f(x), blocks, tokens) + positions,
    ),
    Fault(
        "positions before and after",
        "The positions are added twice, before the blocks and after them. Once, before, is right.",
        see=_POSITION,
        through=lambda tokens, blocks, positions: reduce(lambda x, f: f(x), blocks, tokens) + positions,
    ),
    Fault(
        "positions added in each block",
        "The positions are added before every block. They belong to the tokens once, before the first.",
        see=_POSITION,
        add_positions=lambda tokens, positions, embedding: tokens,
        through=lambda tokens, blocks, positions: reduce(lambda x, f: f(x + positions), blocks, tokens),
    ),
    Fault(
        "positions added after each block",
        "The positions are added after every block. They belong to the tokens once, before the first.",
        see=_POSITION,
        add_positions=lambda tokens, positions, embedding: tokens,
        through=lambda tokens, blocks, positions: reduce(lambda x, f: f(x) + positions, blocks, tokens),
    ),
    Fault(
        "positions added again after each block",
        "The positions are added before the blocks, and once more after each. Once, before the first, is right.",
        see=_POSITION,
        through=lambda tokens, blocks, positions: reduce(lambda x, f: f(x) + positions, blocks, tokens),
    ),
    Fault(
        "positions multiplied",
        "The positions multiply the tokens. They are added to them.",
        see=_POSITION,
        add_positions=lambda tokens, positions, embedding: tokens * positions,
    ),
    Fault(
        "positions subtracted",
        "The positions are subtracted. They are added to the tokens.",
        see=_POSITION,
        add_positions=lambda tokens, positions, embedding: tokens - positions,
    ),
    Fault(
        "one position for all",
        "Every token gets the same row of the positions. Token n needs row n.",
        see=_POSITION,
        add_positions=lambda tokens, positions, embedding: tokens + positions[0],
    ),
    Fault(
        "positions transposed",
        "The positions are transposed before they are added: row n belongs to token n.",
        see=_POSITION,
        add_positions=lambda tokens, positions, embedding: tokens + positions.T,
    ),
    Fault(
        "positions on the pixels",
        "The positions are added to the pixels, before the embedding. They belong to the tokens, after it.",
        see=_POSITION,
        add_positions=lambda tokens, positions, embedding: tokens + positions @ embedding,
    ),
    Fault(
        "embedding transposed",
        "The embedding is transposed: one row of it belongs to each pixel, so it is patches @ embedding.",
        see=_TOKEN,
        embed=lambda patches, embedding: patches @ embedding.T,
    ),
    Fault(
        "blocks not used",
        "The tokens do not pass through the blocks.",
        through=lambda tokens, blocks, positions: tokens,
    ),
    Fault(
        "last block only",
        "Only the last block has an effect. Each block has to read what the block before it gave.",
        through=lambda tokens, blocks, positions: blocks[-1](tokens),
    ),
    Fault(
        "first block only",
        "Only the first block has an effect. Each block has to read what the block before it gave.",
        through=lambda tokens, blocks, positions: blocks[0](tokens),
    ),
    Fault(
        "blocks in reverse",
        "The tokens pass through the blocks from the last to the first.",
        through=lambda tokens, blocks, positions: reduce(lambda x, f: f(x), blocks[::-1], tokens),
    ),
    Fault(
        "blocks side by side",
        "All blocks read the same tokens and their results are summed. Each has to read what the one before it gave.",
        through=lambda tokens, blocks, positions: sum(f(tokens) for f in blocks),
    ),
    Fault(
        "residual twice",
        "A residual is added around every block. The blocks have theirs inside already.",
        through=lambda tokens, blocks, positions: reduce(lambda x, f: x + f(x), blocks, tokens),
    ),
    Fault(
        "mean over the embedding",
        "The mean runs over the embedding (dim=-1). One summary token is wanted: the mean over the patches, dim=1.",
        see=_CLASS,
        summarise=lambda tokens: tokens.mean(dim=-1),
    ),
    Fault(
        "mean over the images",
        "The mean runs over the images (dim=0), so that one image's answer depends on the others. Take dim=1.",
        see=_CLASS,
        summarise=lambda tokens: tokens.mean(dim=0),
    ),
    Fault(
        "sum in place of the mean",
        "The tokens are summed. Their mean is wanted, which does not grow with the number of patches.",
        see=_CLASS,
        summarise=lambda tokens: tokens.sum(dim=1),
    ),
    Fault(
        "largest in place of the mean",
        "The maximum over the tokens is taken. The mean is wanted.",
        see=_CLASS,
        summarise=lambda tokens: tokens.amax(dim=1),
    ),
    Fault(
        "largest vote",
        "The largest of the patches' votes is taken for each class. Their mean is wanted.",
        see=_CLASS,
        summarise=lambda tokens: tokens,
        read=lambda tokens, head: (tokens @ head).amax(dim=1),
    ),
    Fault(
        "mean of probabilities",
        "The softmax is taken of each patch's votes, and the mean of that. Logits are wanted: the mean of the votes "
        "as they are.",
        see=_CLASS,
        summarise=lambda tokens: tokens,
        read=lambda tokens, head: (tokens @ head).softmax(dim=-1).mean(dim=1),
    ),
    Fault(
        "first token",
        "The first token alone is read, which is right only if a class token was put there. Take the mean of all.",
        see=_CLASS,
        summarise=lambda tokens: tokens[:, 0],
    ),
    Fault(
        "last token",
        "The last token alone is read. Take the mean of all.",
        see=_CLASS,
        summarise=lambda tokens: tokens[:, -1],
    ),
    Fault(
        "no mean",
        "These are logits for each patch. One answer for each image is wanted: take the mean over the patches.",
        see=_CLASS,
        summarise=lambda tokens: tokens,
    ),
    Fault(
        "head transposed",
        "The head is transposed: one row of it belongs to each feature of the token, so it is summary @ head.",
        see=_CLASS,
        read=lambda summary, head: summary @ head.T,
    ),
    Fault(
        "no head",
        "This is the mean token. The head, which turns it into logits, is missing.",
        see=_CLASS,
        read=lambda summary, head: summary,
    ),
    Fault(
        "probabilities",
        "These are probabilities. Logits are wanted: the loss has the softmax inside.",
        see=_CLASS,
        read=lambda summary, head: (summary @ head).softmax(dim=-1),
    ),
    Fault(
        "log-probabilities",
        "These are log-probabilities. Logits are wanted: the loss has the log-softmax inside.",
        see=_CLASS,
        read=lambda summary, head: (summary @ head).log_softmax(dim=-1),
    ),
)


def _through(tokens: Tensor, blocks: Any, positions: Tensor) -> Tensor:
    """The tokens behind the last block."""
    return reduce(lambda x, block: block(x)[0], blocks, tokens)


class VisionTransformer(nn.Module):
    """An image transformer whose classifier takes the mean token, with the parameters of ``ImageTransformer``."""

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        embed_dim: int,
        num_heads: int,
        num_layers: int,
        *,
        add_positions: Callable[..., Tensor] = lambda tokens, table: tokens + table,
        through: Callable[..., Tensor] = _through,
        summarise: Callable[..., Tensor] = lambda tokens, norm: norm(tokens).mean(dim=1),
        read: Callable[..., Tensor] = lambda summary, linear: linear(summary),
    ):
        super().__init__()
        self.to_sequence = ImageToSequence(image_size, patch_size, 1, embed_dim)
        self.positions = LearnedPositions(embed_dim, self.to_sequence.num_tokens)
        self.blocks = nn.ModuleList(TransformerBlock(embed_dim, num_heads, expansion=2) for _ in range(num_layers))
        self.classifier = Classifier(embed_dim, 10)
        self.add_positions, self.through, self.summarise, self.read = add_positions, through, summarise, read

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, 10)."""
        tokens = self.add_positions(self.to_sequence(images), self.positions.table)
        tokens = self.through(tokens, self.blocks, self.positions.table)
        return self.read(self.summarise(tokens, self.classifier.norm), self.classifier.linear)


#: Sizes of the model in the cases of `VisionTransformer`: two by two patches of two by two pixels.
_SIZES = {"image_size": 4, "patch_size": 2, "embed_dim": 6, "num_heads": 2}


def _call_vision_transformer(answer: Callable[..., Any], images: Tensor, blocks: Tensor, **others: Tensor) -> Any:
    """A model that is built and given its weights; those of a block come in one row, which is cut into parameters."""
    weights = dict(others)
    for n, row in enumerate(blocks):
        for name, like in TransformerBlock(_SIZES["embed_dim"], _SIZES["num_heads"], expansion=2).named_parameters():
            weights[f"blocks.{n}.{name}"], row = row[: like.numel()].view_as(like), row[like.numel() :]
    return run_module(answer, (*_SIZES.values(), len(blocks)), weights, images)


def _vision_transformer_cases(draw: Draw) -> Iterator[Case]:
    E, block = _SIZES["embed_dim"], TransformerBlock(_SIZES["embed_dim"], _SIZES["num_heads"], expansion=2)
    numbers = sum(parameter.numel() for parameter in block.parameters())
    for images, layers in ((1, 1), (2, 2)):
        inputs = {
            "images": draw.normal(images, 1, 4, 4),
            "to_sequence.projection.weight": draw.normal(E, 1, 2, 2),
            "to_sequence.projection.bias": draw.normal(E),
            "positions.table": draw.normal(4, E),
            "blocks": 0.5 * draw.normal(layers, numbers),
            "classifier.norm.weight": draw.normal(E),
            "classifier.norm.bias": draw.normal(E),
            "classifier.linear.weight": draw.normal(10, E),
            "classifier.linear.bias": draw.normal(10),
        }
        yield Case(f"{images} image{'s' * (images > 1)} of 4×4 pixels, {layers} block{'s' * (layers > 1)}", inputs)


_VISION_TRANSFORMER_FAULTS = (
    Fault(
        "positions not added",
        "The positions are not added: nothing tells the blocks where a patch was cut out.",
        see=_POSITION,
        add_positions=lambda tokens, table: tokens,
    ),
    Fault(
        "positions after the blocks",
        "The positions are added behind the blocks, which then never learn where a patch was. Add them before.",
        see=_POSITION,
        add_positions=lambda tokens, table: tokens,
        through=lambda tokens, blocks, table: _through(tokens, blocks, table) + table,
    ),
    Fault(
        "positions before each block",
        "The positions are added before every block. They are added once, before the first.",
        see=_POSITION,
        add_positions=lambda tokens, table: tokens,
        through=lambda tokens, blocks, table: reduce(lambda x, block: block(x + table)[0], blocks, tokens),
    ),
    Fault(
        "one position for all",
        "Every token gets the first row of the table. Token n gets row n.",
        see=_POSITION,
        add_positions=lambda tokens, table: tokens + table[0],
    ),
    Fault(
        "blocks skipped",
        "The tokens do not go through the blocks.",
        through=lambda tokens, blocks, table: tokens,
    ),
    Fault(
        "first block only",
        "Only the first block has an effect. Each block reads what the block before it returned.",
        through=lambda tokens, blocks, table: blocks[0](tokens)[0],
    ),
    Fault(
        "last block only",
        "Only the last block has an effect. Each block reads what the block before it returned.",
        through=lambda tokens, blocks, table: blocks[-1](tokens)[0],
    ),
    Fault(
        "blocks in reverse",
        "The tokens go through the blocks from the last to the first.",
        through=lambda tokens, blocks, table: reduce(lambda x, block: block(x)[0], reversed(blocks), tokens),
    ),
    Fault(
        "first block again and again",
        "The first block is applied each time. Every layer has a block of its own.",
        through=lambda tokens, blocks, table: reduce(lambda x, _: blocks[0](x)[0], blocks, tokens),
    ),
    Fault(
        "residual twice",
        "A residual is added around every block. The blocks have theirs inside already.",
        through=lambda tokens, blocks, table: reduce(lambda x, block: x + block(x)[0], blocks, tokens),
    ),
    Fault(
        "no last norm",
        "The tokens are not normed before the mean. A pre-norm stack needs one norm behind its last block: "
        "classifier.norm.",
        see=_CLASS,
        summarise=lambda tokens, norm: tokens.mean(dim=1),
    ),
    Fault(
        "norm after the mean",
        "The norm comes after the mean. Each token is normed first, and then the mean is taken.",
        see=_CLASS,
        summarise=lambda tokens, norm: norm(tokens.mean(dim=1)),
    ),
    Fault(
        "norm before the blocks too",
        "The last norm is applied before the blocks as well. It belongs behind the last block alone.",
        see=_CLASS,
        through=lambda tokens, blocks, table: _through(F.layer_norm(tokens, tokens.shape[-1:]), blocks, table),
    ),
    Fault(
        "first token",
        "The first token alone is read, which is right only where a class token was put there. Take the mean of all.",
        see=_CLASS,
        summarise=lambda tokens, norm: norm(tokens)[:, 0],
    ),
    Fault(
        "last token",
        "The last token alone is read. Take the mean of all.",
        see=_CLASS,
        summarise=lambda tokens, norm: norm(tokens)[:, -1],
    ),
    Fault(
        "sum in place of the mean",
        "The tokens are summed. Their mean is wanted, which does not grow with the number of patches.",
        see=_CLASS,
        summarise=lambda tokens, norm: norm(tokens).sum(dim=1),
    ),
    Fault(
        "largest in place of the mean",
        "The maximum over the tokens is taken. The mean is wanted.",
        see=_CLASS,
        summarise=lambda tokens, norm: norm(tokens).amax(dim=1),
    ),
    Fault(
        "largest vote",
        "The linear map is applied to every token, and the largest logit of each class is taken. The mean is wanted.",
        see=_CLASS,
        summarise=lambda tokens, norm: norm(tokens),
        read=lambda tokens, linear: linear(tokens).amax(dim=1),
    ),
    Fault(
        "no mean",
        "These are logits for each patch. One answer for each image is wanted: take the mean over the patches.",
        see=_CLASS,
        summarise=lambda tokens, norm: norm(tokens),
    ),
    Fault(
        "no linear map",
        "This is the mean token. The linear map that makes ten logits of it is missing.",
        see=_CLASS,
        read=lambda summary, linear: summary,
    ),
    Fault(
        "probabilities",
        "These are probabilities. Logits are wanted: the loss has the softmax inside.",
        see=_CLASS,
        read=lambda summary, linear: linear(summary).softmax(dim=-1),
    ),
)


def order_matters(
    model: Callable[[Tensor], Tensor],
    images: Tensor,
    patch_size: int,
    *,
    move: Callable[[Tensor], Tensor] = lambda patches: patches[:, :, torch.randperm(patches.shape[2])],
    shuffle: Callable[..., Tensor] = lambda images, p, move: F.fold(
        move(F.unfold(images, p, stride=p)), images.shape[2:], p, stride=p
    ),
    differ: Callable[..., bool] = lambda before, after: not torch.allclose(before, after, atol=1e-5),
    decide: Callable[..., bool] = any,
    answer: Callable[[bool], bool] = lambda differs: differs,
) -> bool:
    """Whether a model's output changes with the order of the patches."""
    before = model(images)
    return answer(decide(differ(before, model(shuffle(images, patch_size, move))) for _ in range(10)))


def _rows_shuffled(images: Tensor, p: int, move: Callable[[Tensor], Tensor], dim: int) -> Tensor:
    """The rows of patches in another order, or the columns of patches."""
    rows = images.split(p, dim)
    return torch.cat([rows[n] for n in torch.randperm(len(rows))], dim)


#: Of the images in `order_matters`: three by three patches of three by three pixels.
_PATCH = 3


def _models() -> dict[str, Callable[[Tensor], Tensor]]:
    """Models of (B, C, H, W) with three outputs, which know more or less of where a patch stands.

    Their outputs are kept away from 0, so that relative and absolute tolerances are equally right.
    """

    def table(like: Tensor, rows: int, columns: int) -> Tensor:
        """Fixed numbers between −1 and 1, with no order in them."""
        return torch.arange(1.0, rows * columns + 1).square().cos().view(rows, columns).to(like)

    def tokens(images: Tensor) -> Tensor:
        patches = F.unfold(images, _PATCH, stride=_PATCH).mT  # (B, L, P·P)
        return patches @ table(patches, patches.shape[2], 3)  # (B, L, 3)

    def placed(x: Tensor) -> Tensor:
        return x + 2 * table(x, *x.shape[1:])

    def attend(x: Tensor) -> Tensor:
        return x + (x @ x.mT).softmax(dim=-1) @ x

    def attend_near(x: Tensor) -> Tensor:
        position = torch.arange(x.shape[1], device=x.device)
        return x + (position[:, None] - position).abs().neg().to(x).softmax(dim=-1) @ x

    def read(x: Tensor) -> Tensor:
        return (2 + x.tanh()).mean(dim=1)  # (B, 3)

    def with_positions(images: Tensor) -> Tensor:
        return read(attend(placed(tokens(images))))

    def brightness(images: Tensor) -> Tensor:
        return F.avg_pool2d(images, _PATCH).flatten(2).mT  # (B, L, 1)

    return {
        "positions before the blocks": with_positions,
        "no positions": lambda images: read(attend(tokens(images))),
        "positions after the blocks, then the mean": lambda x: 2 + placed(attend(tokens(x))).mean(dim=1).tanh(),
        "no positions, the images' mean taken off": lambda images: read(attend(tokens(images - images.mean(dim=0)))),
        "a bag of patches": lambda images: tokens(images).amax(dim=1).exp(),
        "the mean of all pixels": lambda images: (3 + images).mean(dim=(1, 2, 3))[:, None].expand(-1, 3),
        "all pixels, one by one": lambda images: images.flatten(1) @ table(images, images[0].numel(), 3),
        "positions, probabilities": lambda images: (3 * with_positions(images)).softmax(dim=-1),
        "positions, but always the same class": lambda images: with_positions(images) + torch.eye(3).to(images)[0] * 9,
        "positions for the last class only": lambda images: torch.cat(
            [read(tokens(images))[:, :2], with_positions(images)[:, 2:]], dim=1
        ),
        "positions, the brightness of each patch": lambda images: read(
            attend(placed(brightness(images).expand(-1, -1, 3)))
        ),
        "brightness times position": lambda images: (
            brightness(images).flatten(1) @ torch.arange(brightness(images).shape[1]).to(images)[:, None].expand(-1, 3)
        ),
        "rows of patches, the brightness of each squared": lambda images: (
            (2 + F.avg_pool2d(images, _PATCH).sum(dim=3)).square().mean(dim=(1, 2))[:, None].expand(-1, 3)
        ),
        "positions that hardly count": lambda images: read(attend(tokens(images))) + 0.015 * with_positions(images),
        "positions, an image and its mirror images alike": lambda images: with_positions(
            sum(turned + turned.mT for turned in (images.flip(axes) for axes in ([], [2], [3], [2, 3])))
        ),
        "no positions, but attention to near patches": lambda images: read(attend_near(tokens(images))),
    }


def _order_matters_cases(draw: Draw) -> Iterator[Case]:
    """Eight patches and more, which hardly any order leaves where they were; and a few, which many do."""

    def case(name: str, model: Callable[[Tensor], Tensor], images: Tensor) -> Case:
        return Case(name, {"model": model, "images": images, "patch_size": _PATCH})

    models = _models()
    for name, model in models.items():
        yield case(name, model, draw.normal(5, 1, 9, 9))  # with so many, rounding does show somewhere
    black_first, black_above, same = (draw.normal(2, 1, 9, 9) for _ in range(3))
    black_first[0], black_above[:, :, :3], same[1] = 0, 0, same[0]
    for name in ("positions before the blocks", "no positions"):
        yield case(f"{name}, two channels of 6×12 pixels", models[name], draw.normal(3, 2, 6, 12))
    yield case("positions, the first image black", models["positions before the blocks"], black_first)
    yield case("positions, the upper patches black", models["positions before the blocks"], black_above)
    yield case("positions, the same image twice", models["positions before the blocks"], same)
    for name in ("positions before the blocks", "brightness times position", "all pixels, one by one"):
        yield case(f"{name}, three patches", models[name], draw.normal(2, 1, 3, 9))
    # Two orders in three leave some patch where it was, so hardly any answer that tries a single order passes all of
    # these: the orders of so many patches differ, though the random numbers are the same. All of ten hardly ever do.
    for patches in (3, 4, 5, 6, 7, 8, 10):
        for place in range(patches):
            lonely = draw.normal(2, 1, _PATCH, _PATCH * patches)
            kept = torch.zeros_like(lonely)
            kept[..., _PATCH * place : _PATCH * (place + 1)] = 1
            name = f"positions, all black but patch {place} of {patches}"
            yield case(name, models["positions before the blocks"], kept * lonely)
    # With the brightest patch last any other order makes the product smaller, with the brightest first larger.
    rising = (
        torch.arange(9).view(1, 1, 3, 3).repeat(2, 1, 1, 1).repeat_interleave(3, 2).repeat_interleave(3, 3).to(same)
    )
    yield case("brightness times position, the brightest last", models["brightness times position"], rising)
    yield case("brightness times position, the brightest first", models["brightness times position"], rising.flip(2, 3))


def _exchanged(patches: Tensor) -> Tensor:
    return torch.cat([patches[:, :, 1:2], patches[:, :, :1], patches[:, :, 2:]], dim=2)


_ORDER_MATTERS_FAULTS = (
    Fault(
        "always no",
        "It says no to every model. Does the order of the patches really change, or are they back where they were?",
        move=lambda patches: patches,
    ),
    Fault(
        "always yes",
        "It says yes to every model. Does each patch stay whole, and in its own image?",
        answer=lambda differs: True,
    ),
    Fault(
        "pixels shuffled",
        "The patches do not stay whole: where they are cut, or where they are put together again, pixels of several "
        "patches mix. Each is a square of P × P pixels with all channels.",
        see=_CUT,
        shuffle=lambda images, p, move: images.flatten(2)[:, :, torch.randperm(images[0, 0].numel())].view_as(images),
    ),
    Fault(
        "runs of pixels shuffled",
        "The image is reshaped and not cut: what is shuffled are runs of P × P pixels that follow one another in "
        "memory, pieces of the image's rows, and not patches.",
        see=_CUT,
        shuffle=lambda images, p, move: (
            move(images.flatten(2).unflatten(2, (-1, p * p)).transpose(1, 2).flatten(2).mT)
            .mT.unflatten(2, (images.shape[1], p * p))
            .transpose(1, 2)
            .reshape(images.shape)
        ),
    ),
    Fault(
        "pixels inside the patches shuffled",
        "It shuffles the pixels inside each patch. Whole patches are to be moved: they are axis 2 of what F.unfold "
        "gives, and rows times columns where a `reshape` cuts the height as (rows, P) and the width as (columns, P).",
        see=_CUT,
        move=lambda patches: patches[:, torch.randperm(patches.shape[1])],
    ),
    Fault(
        "whole rows",
        "It moves whole rows or columns of patches, so the order inside them stays. Shuffle all patches.",
        shuffle=partial(_rows_shuffled, dim=2),
        also=({"shuffle": partial(_rows_shuffled, dim=3)},),
    ),
    Fault(
        "images exchanged",
        "It changes the order of the images. The order of the patches inside each image has to change.",
        move=lambda patches: patches.flip(0),
    ),
    Fault(
        "an order for each image",
        "Every image gets an order of its own. It has to be the same for all: a model that compares the images, as one "
        "with a batch norm does, would notice that they differ.",
        move=lambda patches: torch.stack([one[:, torch.randperm(one.shape[1])] for one in patches]),
    ),
    Fault(
        "image mirrored",
        "It mirrors or turns the image, pixels and all. The patches have to stay as they are, and only their order to "
        "change.",
        shuffle=lambda images, p, move: images.flip(-1),
    ),
    Fault(
        "only reversed",
        "It only reverses the order of the patches, which a model of distances does not notice. Shuffle them.",
        move=lambda patches: patches.flip(2),
    ),
    Fault(
        "only two exchanged",
        "It only exchanges the first two patches, which may be alike, as black ones are. Shuffle them all.",
        move=_exchanged,
    ),
    Fault(
        "exact comparison",
        "It compares to the last digit, but a sum in another order is rounded differently. "
        "Allow a small difference: torch.allclose.",
        differ=lambda before, after: not torch.equal(before, after),
    ),
    Fault(
        "too tolerant",
        "It takes a small difference for rounding, although rounding changes the seventh digit only.",
        differ=lambda before, after: not torch.allclose(before, after, rtol=0, atol=0.03),
    ),
    Fault(
        "signed sum",
        "It adds differences with their signs, and they can cancel, as those of probabilities do. "
        "Take absolute values first.",
        differ=lambda before, after: (before - after).sum(dim=-1).abs().max().item() > 1e-4,
    ),
    Fault(
        "only a rise",
        "It notices only outputs that rise. They can also fall: take absolute values.",
        differ=lambda before, after: (after - before).max().item() > 1e-4,
    ),
    Fault(
        "only a fall",
        "It notices only outputs that fall. They can also rise: take absolute values.",
        differ=lambda before, after: (before - after).max().item() > 1e-4,
    ),
    Fault(
        "classes compared",
        "It compares the classes. The logits can change long before another class wins.",
        differ=lambda before, after: not torch.equal(before.argmax(dim=-1), after.argmax(dim=-1)),
    ),
    Fault(
        "every output has to change",
        "It says yes only if every output changes. One is enough.",
        differ=lambda before, after: bool(((before - after).abs() > 1e-4).all()),
    ),
    Fault(
        "every order has to change",
        "It says yes only if every one of the orders changes the output. A random order can be the old one, above all "
        "with few patches. One that changes something is enough: any, not all.",
        decide=all,
    ),
    Fault(
        "one order only",
        "It answers after a single order, or tries the same one each time. That may be the old one, above all with few "
        "patches. Draw an order in each round, and say no only when ten of them have changed nothing: return False "
        "after the loop.",
        decide=next,
    ),
    Fault(
        "first image only",
        "It compares the first image only; another one may be the one that changes.",
        differ=lambda before, after: not torch.allclose(before[0], after[0], atol=1e-5),
    ),
    Fault(
        "first logit only",
        "It compares the first logit only; another one may be the one that changes.",
        differ=lambda before, after: not torch.allclose(before[:, 0], after[:, 0], atol=1e-5),
    ),
    Fault(
        "answer turned round",
        "It says the opposite: True has to mean that the order matters.",
        answer=lambda differs: not differs,
    ),
    Fault(
        "last order only",
        "Only the last of the ten orders counts: each one overwrites what the one before has shown. Say yes as soon as "
        "one has changed something.",
        decide=lambda differs: list(differs)[-1],
    ),
    Fault(
        "softmax before the comparison",
        "The outputs go through a softmax before they are compared. What is added to all of an image's logits, or "
        "changes a class that has nearly all, drops out there. Compare what the model gives.",
        differ=lambda before, after: not torch.allclose(before.softmax(dim=-1), after.softmax(dim=-1), atol=1e-5),
    ),
)

EXERCISES = (
    Exercise(
        cut_into_patches,
        notebook="06",
        section=_CUT,
        level="easy",
        minutes=5,
        hints=(
            "The loop above does it for one channel; `image[:, …, …]` takes all of them along.",
            "Without a loop: `F.unfold` wants a batch, and gives (1, numbers, patches).",
        ),
        cases=_cut_into_patches_cases,
        faults=_CUT_INTO_PATCHES_FAULTS,
    ),
    Exercise(
        embed_patches,
        notebook="06",
        section=_TOKEN,
        level="middle",
        minutes=8,
        hints=(
            "`F.conv2d(images, weight, bias, stride=…)` does both, and gives (B, E, rows, columns). Which stride lets "
            "no two patches overlap?",
            "`.flatten(2)` makes one axis of rows and columns: (B, E, L). Which two axes have to be exchanged?",
        ),
        cases=_embed_patches_cases,
        faults=_EMBED_PATCHES_FAULTS,
    ),
    Exercise(
        VisionTransformer,
        notebook="06",
        section=_WHOLE,
        level="middle",
        minutes=8,
        hints=(
            "Follow the shapes: (B, 1, H, W), (B, L, E), again (B, L, E) after the positions and after each block, "
            "(B, E), (B, 10).",
            "`tokens, _ = block(tokens)` unpacks what a block returns. The formula norms every token, and only then "
            "takes the mean.",
        ),
        cases=_vision_transformer_cases,
        faults=_VISION_TRANSFORMER_FAULTS,
        call=_call_vision_transformer,
    ),
    Exercise(
        logits_from_patches,
        notebook="06",
        section=_WHOLE,
        level="middle",
        minutes=6,
        hints=(
            "The votes have the shape (B, L, classes): one row of logits for each patch. `head` is a matrix, so `@` "
            "makes them.",
            "Which axis of the votes has to go? The batch stays, and so do the classes.",
        ),
        cases=_logits_from_patches_cases,
        faults=_LOGITS_FROM_PATCHES_FAULTS,
        call=_call_logits,
    ),
    Exercise(
        order_matters,
        notebook="06",
        section=_POSITION,
        level="hard",
        minutes=12,
        hints=(
            "Whole patches are exchanged: `F.unfold`, a random order, `F.fold`, as in the section *Where a "
            "patch stands*.",
            "`F.unfold` of a batch gives (B, numbers, patches); only the last axis may be shuffled. Answer True at "
            "the first order that changes something, and False only after the last one.",
        ),
        cases=_order_matters_cases,
        faults=_ORDER_MATTERS_FAULTS,
        differentiable=False,
    ),
)
