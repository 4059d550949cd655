"""Exercises of notebook 12: masked images.

More than 500 lines, since each exercise stands beside all the mistakes that are known for it.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from sciformer.check.causes import Fault
from sciformer.check.exercise import Case, Draw, Exercise, pair

_HIDE = "Hide three quarters"
_ENCODER = "The encoder sees what is left"
_DECODER = "The decoder sees every position"
_LOSS = "The loss: only what was hidden"
_PROBE = "What did it learn? A linear probe"


def hidden_loss(
    predicted: Tensor,
    patches: Tensor,
    visible: Tensor,
    *,
    target: Callable[[Tensor], Tensor] = lambda patches: patches,
    error: Callable[[Tensor], Tensor] = torch.square,
    counted: Callable[[Tensor], Tensor] = torch.logical_not,
    average: Callable[..., Tensor] = lambda errors, counted: errors[counted].mean(),
    finish: Callable[[Tensor], Tensor] = lambda loss: loss,
) -> Tensor:
    """Mean squared error over the pixels of the hidden patches."""
    return finish(average(error(predicted - target(patches)), counted(visible)))


def _rows_of_images(draw: Draw, images: int, length: int, num_visible: int) -> Tensor:
    """Masks (B, L), another for each image, as many visible in each; those of the first two images differ."""
    order = torch.stack([draw.permutation(length) for _ in range(images)])
    if images > 1:
        order[1] = (order[0] + 1) % length
    return order < num_visible


def _hidden_loss_cases(draw: Draw) -> Iterator[Case]:
    def case(images: int, length: int, pixels: int, num_visible: int) -> Case:
        inputs = {
            "predicted": draw.normal(images, length, pixels),
            "patches": draw.normal(images, length, pixels),
            "visible": _rows_of_images(draw, images, length, num_visible),
        }
        return Case(f"{images} image{'s' * (images > 1)}, {num_visible} of {length} patches visible", inputs)

    yield case(1, 3, 2, 1)
    yield case(2, 5, 3, 2)
    yield case(3, 7, 5, 2)
    uneven = torch.arange(4, device=draw.device) < torch.tensor([[1], [3]], device=draw.device)
    inputs = {"predicted": draw.normal(2, 4, 3), "patches": draw.normal(2, 4, 3), "visible": uneven}
    yield Case("2 images, 1 of 4 patches visible and 3 of 4", inputs)


_HIDDEN_LOSS_FAULTS = (
    Fault(
        "over all patches",
        "The mean runs over all patches. The visible ones are known; only hidden ones count.",
        counted=torch.ones_like,
    ),
    Fault(
        "over the visible patches",
        "The mean runs over the visible patches, which the model was given. The hidden ones count: ~visible.",
        counted=lambda visible: visible,
    ),
    Fault(
        "divided by the number of all pixels",
        "The visible patches' errors are 0, but still counted in the mean. Divide by the number of hidden pixels.",
        average=lambda errors, counted: (errors * counted[..., None]).mean(),
    ),
    Fault(
        "visible ones set to 0, divided by all",
        "Hidden patches are multiplied by 0 in place of the visible, and all are counted. Select: x[~visible].",
        average=lambda errors, counted: (errors * ~counted[..., None]).mean(),
    ),
    Fault(
        "divided by the hidden patches",
        "The sum is divided by the number of hidden patches. Each has several pixels: the mean is over pixels.",
        average=lambda errors, counted: errors[counted].sum() / counted.sum(),
    ),
    Fault(
        "sum",
        "The errors are summed. A mean is wanted, which does not grow with the number of images.",
        average=lambda errors, counted: errors[counted].sum(),
    ),
    Fault(
        "sum of the patches' means",
        "The means of the hidden patches are summed. One mean over all of them is wanted.",
        average=lambda errors, counted: errors[counted].mean(dim=-1).sum(),
    ),
    Fault(
        "one sum for each image",
        "The means of the images are summed. One mean over all of them is wanted.",
        average=lambda errors, counted: errors[counted].mean() * len(errors),
    ),
    Fault(
        "mean of the images' means",
        "Each image has a mean of its own, and the means are averaged. One mean over all hidden pixels weighs an image "
        "by how many of its patches are hidden.",
        average=lambda errors, counted: (
            (errors * counted[..., None]).sum(dim=(1, 2)) / counted.sum(dim=1) / errors.shape[-1]
        ).mean(),
    ),
    Fault(
        "one number for each patch",
        "It gives a number for each hidden patch. One number for the batch is wanted.",
        average=lambda errors, counted: errors[counted].mean(dim=-1),
    ),
    Fault(
        "one number for each image",
        "It gives a number for each image. One number for the batch is wanted.",
        average=lambda errors, counted: (
            (errors * counted[..., None]).sum(dim=(1, 2)) / counted.sum(dim=1) / errors.shape[-1]
        ),
    ),
    Fault(
        "the first image's mask for all",
        "The first image's mask is used for all images. Each has its own.",
        see=_HIDE,
        counted=lambda visible: ~visible[:1].expand_as(visible),
    ),
    Fault(
        "the first image's count for all",
        "The number of hidden patches is counted in the first image and taken for all. Each image may hide another "
        "number of them: count all that are hidden.",
        average=lambda errors, counted: errors[counted].sum() / (len(counted) * counted[0].sum() * errors.shape[-1]),
    ),
    Fault(
        "absolute differences",
        "The absolute differences are averaged. Their squares are wanted.",
        error=torch.abs,
    ),
    Fault(
        "not squared",
        "The differences are not squared, so that those of opposite signs cancel.",
        error=lambda difference: difference,
    ),
    Fault(
        "root taken",
        "The root is taken of the mean. The mean squared error has none.",
        finish=torch.sqrt,
    ),
    Fault(
        "halved",
        "The mean is divided by 2, as in some textbooks. Here it is the mean of the squares.",
        finish=lambda loss: loss / 2,
    ),
    Fault(
        "targets normalised",
        "The targets are normalised patch by patch, which is the paper's other variant. Here they are the pixels.",
        target=lambda patches: (
            (patches - patches.mean(dim=-1, keepdim=True)) / (patches.var(dim=-1, keepdim=True) + 1e-6).sqrt()
        ),
    ),
)


def choose_visible(
    noise: Tensor,
    hidden_share: float,
    *,
    count: Callable[[int, float], int] = lambda length, share: length - round(share * length),
    rank: Callable[[Tensor], Tensor] = lambda noise: noise.argsort(dim=1).argsort(dim=1),
    keep: Callable[..., Tensor] = lambda rank, num_visible, noise, share: rank < num_visible,
) -> Tensor:
    """Of each row, True where the noise is among the smallest; round(share · L) are False."""
    return keep(rank(noise), count(noise.shape[1], hidden_share), noise, hidden_share)


def _choose_visible_cases(draw: Draw) -> Iterator[Case]:
    """Noise of two digits, all different."""

    def case(images: int, length: int, share: float) -> Case:
        noise = torch.stack([draw.permutation(99)[:length] + 1 for _ in range(images)]).to(draw.dtype) / 100
        return Case(f"{images} images, {length} patches, hide {share:.0%}", {"noise": noise, "hidden_share": share})

    yield case(2, 4, 0.75)
    yield case(3, 5, 0.75)
    yield case(3, 7, 0.6)  # rounded down
    yield case(2, 5, 0.5)  # a half, which Python's round takes to the even number
    yield case(5, 11, 0.6)
    yield case(7, 23, 0.6)
    yield case(3, 4, 0.1)  # none is hidden


_CHOOSE_VISIBLE_FAULTS = (
    Fault(
        "hidden in every row",
        "Each row hides what any row hides, as after `visible[:, hidden] = False`: a table of indices there applies to "
        "all rows. Each image has patches of its own to hide: `scatter`, or a table of row numbers beside it.",
        keep=lambda rank, num_visible, noise, share: (rank < num_visible).all(dim=0).expand_as(rank).clone(),
    ),
    Fault(
        "share of the visible",
        "As many patches are visible as should be hidden: hidden_share is the share of the hidden ones.",
        count=lambda length, share: round(share * length),
    ),
    Fault(
        "True means hidden",
        "The mask is the wrong way round: True has to mean visible, as in every mask of this course.",
        keep=lambda rank, num_visible, noise, share: rank >= num_visible,
    ),
    Fault(
        "largest noise visible",
        "The patches with the largest noise stay visible. Those with the smallest should.",
        keep=lambda rank, num_visible, noise, share: rank >= rank.shape[1] - num_visible,
    ),
    Fault(
        "sorted once",
        "One argsort says which patch comes first, second, third. The rank of each patch is the argsort of that.",
        rank=lambda noise: noise.argsort(dim=1),
    ),
    Fault(
        "one mask for the batch",
        "All images get the first one's mask. Each image has noise of its own.",
        rank=lambda noise: noise[:1].argsort(dim=1).argsort(dim=1).expand_as(noise),
    ),
    Fault(
        "ranked over the images",
        "The ranks run over the images (dim=0). The patches of one image compete with each other: dim=1.",
        rank=lambda noise: noise.argsort(dim=0).argsort(dim=0),
    ),
    Fault(
        "ranked over the batch",
        "The noise of all images is ranked together, so that one image shows more patches than another. Rank each row.",
        rank=lambda noise: noise.flatten().argsort().argsort().view_as(noise),
        keep=lambda rank, num_visible, noise, share: rank < num_visible * len(noise),
    ),
    Fault(
        "threshold",
        "Your mask compares the noise with a threshold, so the number of visible patches is right on average only. It "
        "should be the same in every image: rank the noise.",
        keep=lambda rank, num_visible, noise, share: noise < 1 - share,
    ),
    Fault(
        "threshold at the share",
        "Noise is compared with hidden_share itself: more are visible than hidden, and not as many in every image.",
        keep=lambda rank, num_visible, noise, share: noise < share,
    ),
    Fault(
        "threshold, from above",
        "What lies above a threshold is visible, and how much that is differs from image to image. "
        "The smallest should be visible; rank each row.",
        keep=lambda rank, num_visible, noise, share: noise > share,
    ),
    Fault(
        "one too many",
        "One patch too many is visible. Ranks count from 0, so it is rank < number, not <=.",
        keep=lambda rank, num_visible, noise, share: rank <= num_visible,
    ),
    Fault(
        "one too few",
        "One patch too few is visible. Ranks count from 0, so the last visible one has rank number − 1.",
        keep=lambda rank, num_visible, noise, share: rank < num_visible - 1,
    ),
    Fault(
        "cut off in place of rounded",
        "The number of hidden patches is cut off, int(…), where it has to be rounded.",
        count=lambda length, share: length - int(share * length),
    ),
    Fault(
        "visible rounded",
        "The number of visible patches is rounded. Round that of the hidden ones, and leave the others visible: Python "
        "takes a half to the even number, so at a half the two differ by one patch.",
        count=lambda length, share: round((1 - share) * length),
    ),
    Fault(
        "hidden rounded up",
        "The number of hidden patches is rounded up, or that of the visible ones is cut off. Round the hidden ones.",
        count=lambda length, share: length - math.ceil(share * length),
    ),
    Fault(
        "the first patches",
        "The first patches are visible in every image, whatever the noise says.",
        rank=lambda noise: torch.arange(noise.shape[1], device=noise.device).expand_as(noise),
    ),
    Fault(
        "all hidden where none is",
        "Your mask hides every patch where it should hide none. The index -0 is 0: it is the first place, and not the "
        "end.",
        keep=lambda rank, num_visible, noise, share: rank < num_visible % noise.shape[1],
    ),
    Fault(
        "indices in place of a mask",
        "These are the indices of the visible patches. A mask is wanted: True or False for every patch.",
        keep=lambda rank, num_visible, noise, share: noise.argsort(dim=1)[:, :num_visible],
    ),
)


def frozen_features(
    encoder: Callable[[Tensor], Tensor],
    train: Tensor,
    test: Tensor,
    *,
    frozen: tuple[bool, bool] = (True, True),
    prepare: Callable[..., Tensor] = lambda images, train: images,
    middle: Callable[..., Tensor] = lambda own, train, test: train.mean(dim=0),
    spread: Callable[..., Tensor | float] = lambda own, train, test: train.std(dim=0),
) -> tuple[Tensor, Tensor]:
    """Features without a graph, minus the training features' mean, over their standard deviation."""
    one, two = encoder(prepare(train, train)), encoder(prepare(test, train))
    first, second = ((x - middle(x, one, two)) / spread(x, one, two) for x in (one, two))
    return first.detach() if frozen[0] else first, second.detach() if frozen[1] else second


def _call_frozen_features(answer: Callable[..., Any], weight: Tensor, train: Tensor, test: Tensor) -> Any:
    """The encoder is tanh(x W), and W still wants gradients."""
    weight = weight.clone().requires_grad_()
    features = answer(lambda images: torch.tanh(images @ weight), train, test)
    features = pair(features, "the training features", "the test features")
    return *features, *(not (isinstance(x, Tensor) and x.requires_grad) for x in features)


def _frozen_features_cases(draw: Draw) -> Iterator[Case]:
    def case(count: int, others: int, pixels: int, width: int) -> Case:
        inputs = {
            "weight": draw.normal(pixels, width) + 0.05,  # not 0
            "train": draw.normal(count, pixels),
            "test": draw.normal(others, pixels) + 0.5,
        }
        return Case(f"{count} images to train on, {others} to test; the encoder is tanh(x W), its W is shown", inputs)

    yield case(3, 2, 2, 2)
    yield case(5, 7, 3, 4)
    yield case(11, 6, 5, 3)


def _together(*features: Tensor) -> Tensor:
    return torch.cat(features)


_FROZEN_FEATURES_FAULTS = (
    Fault(
        "pixels standardised",
        "The images are standardised before the encoder sees them. The features are to be standardised: what comes out "
        "of it.",
        prepare=lambda images, train: (images - train.mean()) / train.std(),
        middle=lambda own, train, test: torch.zeros_like(train[0]),
        spread=lambda own, train, test: 1.0,
    ),
    Fault(
        "not frozen",
        "The features still depend on the encoder's weights in the graph, so that fitting a probe would train it. "
        "Compute them inside `with torch.no_grad():`, which does nothing on a line of its own, or detach them.",
        frozen=(False, False),
    ),
    Fault(
        "test not frozen",
        "The test features still depend on the encoder's weights in the graph; only those of training are frozen. "
        "Encode both inside `with torch.no_grad():`, or detach both.",
        frozen=(True, False),
    ),
    Fault(
        "training not frozen",
        "The training features still depend on the encoder's weights in the graph; only those of the test are frozen. "
        "A probe is fitted to the training features, so it would train the encoder: detach both.",
        frozen=(False, True),
    ),
    Fault(
        "each set by its own",
        "The test features are standardised by themselves. The probe knows the training features' units: use theirs.",
        middle=lambda own, train, test: own.mean(dim=0),
        spread=lambda own, train, test: own.std(dim=0),
    ),
    Fault(
        "mean of its own",
        "The test features' own mean is subtracted. It has to be the training features' mean.",
        middle=lambda own, train, test: own.mean(dim=0),
    ),
    Fault(
        "deviation of its own",
        "The test features are divided by their own deviation. It has to be that of the training features.",
        spread=lambda own, train, test: own.std(dim=0),
    ),
    Fault(
        "by the test set",
        "Mean and deviation come from the test features. Nothing may be fitted there: take the training features'.",
        middle=lambda own, train, test: test.mean(dim=0),
        spread=lambda own, train, test: test.std(dim=0),
    ),
    Fault(
        "by both sets together",
        "Mean and deviation come from both sets together, so that test images take part. Take the training images "
        "alone.",
        middle=lambda own, train, test: _together(train, test).mean(dim=0),
        spread=lambda own, train, test: _together(train, test).std(dim=0),
    ),
    Fault(
        "over the features",
        "Each image is standardised over its features (dim=-1). Each feature should be, over the images: dim=0.",
        middle=lambda own, train, test: own.mean(dim=-1, keepdim=True),
        spread=lambda own, train, test: own.std(dim=-1, keepdim=True),
    ),
    Fault(
        "one mean for all features",
        "All features share one mean and one deviation. Each has its own: dim=0.",
        middle=lambda own, train, test: train.mean(),
        spread=lambda own, train, test: train.std(),
    ),
    Fault(
        "variance",
        "The features are divided by their variance. Its root, the deviation, is wanted.",
        spread=lambda own, train, test: train.var(dim=0),
    ),
    Fault(
        "not divided",
        "Only the mean is subtracted. Divide by the deviation too, so that one penalty is fair to all features.",
        spread=lambda own, train, test: 1.0,
    ),
    Fault(
        "mean not subtracted",
        "The features are only divided. Subtract the training features' mean first.",
        middle=lambda own, train, test: torch.zeros_like(train[0]),
    ),
    Fault(
        "divided by N",
        "The deviation divides by N. That of torch's .std(dim=0), which divides by N − 1, is wanted here.",
        spread=lambda own, train, test: train.std(dim=0, correction=0),
    ),
    Fault(
        "not standardised",
        "These are the features as they are. Subtract the mean and divide by the deviation.",
        middle=lambda own, train, test: torch.zeros_like(train[0]),
        spread=lambda own, train, test: 1.0,
    ),
    Fault(
        "pixels in place of features",
        "The images are standardised, and then encoded. Encode first: it is the features that should be standardised.",
        prepare=lambda images, train: (images - train.mean(dim=0)) / train.std(dim=0),
        middle=lambda own, train, test: torch.zeros_like(train[0]),
        spread=lambda own, train, test: 1.0,
    ),
    Fault(
        "parentheses missing",
        "Only the mean is divided: division goes first. Write (features − mean) / deviation, with the parentheses.",
        middle=lambda own, train, test: train.mean(dim=0) / train.std(dim=0),
        spread=lambda own, train, test: 1.0,
    ),
    Fault(
        "test features as they are",
        "Only the training features are standardised. The test features need the same mean and deviation.",
        middle=lambda own, train, test: train.mean(dim=0) if own is train else torch.zeros_like(train[0]),
        spread=lambda own, train, test: train.std(dim=0) if own is train else 1.0,
    ),
)


def _at(indices: Tensor) -> tuple[Tensor, Tensor]:
    """An index for x[...]: of each row its own indices."""
    return torch.arange(len(indices), device=indices.device)[:, None], indices


def _drawn_order(kept: Tensor, length: int) -> Tensor:
    """The patches that are kept, then the others, ascending, (B, L)."""
    is_kept = torch.zeros(len(kept), length, dtype=torch.bool, device=kept.device).scatter(1, kept, True)
    hidden = is_kept.long().argsort(dim=1, stable=True)[:, : length - kept.shape[1]]
    return torch.cat([kept, hidden], dim=1)


def _put_back(seen: Tensor, kept: Tensor, tokens: Tensor, mask_token: Tensor) -> Tensor:
    everywhere = mask_token.expand_as(tokens).clone()
    everywhere[_at(kept)] = seen
    return everywhere


def _appended(seen: Tensor, kept: Tensor, tokens: Tensor, mask_token: Tensor) -> Tensor:
    """Visible tokens first, then mask tokens."""
    rest = mask_token.expand(len(tokens), tokens.shape[1] - seen.shape[1], -1)
    return torch.cat([seen, rest], dim=1)


def _there_again(seen: Tensor, kept: Tensor, tokens: Tensor, mask_token: Tensor) -> Tensor:
    return _appended(seen, kept, tokens, mask_token)[_at(_drawn_order(kept, tokens.shape[1]))]


def _hidden_replaced(tokens: Tensor, kept: Tensor, by: Tensor) -> Tensor:
    everywhere = by.expand_as(tokens).clone()
    everywhere[_at(kept)] = tokens[_at(kept)]
    return everywhere


def decoded_from_visible(
    patches: Tensor,
    kept: Tensor,
    embedding: Tensor,
    positions: Tensor,
    encoder: Callable[[Tensor], Tensor],
    mask_token: Tensor,
    decoder_positions: Tensor,
    decoder: Callable[[Tensor], Tensor],
    *,
    choose: Callable[[Tensor], Tensor] = lambda kept: kept,
    add_positions: Callable[..., Tensor] = lambda tokens, positions, decoder_positions: tokens + positions,
    encode: Callable[..., Tensor] = lambda tokens, kept, encoder, positions, mask_token: encoder(tokens[_at(kept)]),
    put_back: Callable[..., Tensor] = _put_back,
    add_again: Callable[..., Tensor] = lambda tokens, kept, positions, decoder_positions: tokens + decoder_positions,
    decode: Callable[..., Tensor] = lambda tokens, decoder: decoder(tokens),
) -> Tensor:
    """What a masked autoencoder's decoder gives for every position, (B, L, E)."""
    kept = choose(kept)
    tokens = add_positions(patches @ embedding, positions, decoder_positions)  # (B, L, E)
    seen = encode(tokens, kept, encoder, positions, mask_token)  # (B, V, E)
    everywhere = put_back(seen, kept, tokens, mask_token)  # (B, L, E)
    return decode(add_again(everywhere, kept, positions, decoder_positions), decoder)


def _call_decoded(answer: Callable[..., Any], **inputs: Tensor) -> Any:
    """Each token learns of all the others it is shown with: encoder x + mean, decoder x − 2 · mean."""
    return answer(
        inputs["patches"],
        inputs["kept"],
        inputs["embedding"],
        inputs["positions"],
        lambda tokens: tokens + tokens.mean(dim=1, keepdim=True),
        inputs["mask_token"],
        inputs["decoder_positions"],
        lambda tokens: tokens - 2 * tokens.mean(dim=1, keepdim=True),
    )


def _decoded_from_visible_cases(draw: Draw) -> Iterator[Case]:
    def case(kept: list[Tensor], length: int, pixels: int, embed_dim: int) -> Case:
        inputs = {
            "patches": draw.normal(len(kept), length, pixels),
            "kept": torch.stack(kept),
            "embedding": draw.normal(pixels, embed_dim),
            "positions": draw.normal(length, embed_dim),
            "mask_token": draw.normal(embed_dim),
            "decoder_positions": draw.normal(length, embed_dim),
        }
        images = f"{len(kept)} image{'s' * (len(kept) > 1)}"
        name = f"{images}, {len(kept[0])} of {length} patches visible; encoder: x + mean token, decoder: x − 2 · mean"
        return Case(name, inputs)

    yield case([torch.tensor([2, 0], device=draw.device)], 3, 2, 2)
    order = draw.permutation(5)[:3]
    yield case([order, (order + 1) % 5], 5, 3, 2)
    yield case([draw.permutation(7)[:4] for _ in range(3)], 7, 2, 5)


_DECODED_FROM_VISIBLE_FAULTS = (
    Fault(
        "encoder sees everything",
        "The encoder sees the hidden patches too, and only then are they left out. Select first, then encode.",
        see=_ENCODER,
        encode=lambda tokens, kept, encoder, positions, mask_token: encoder(tokens)[_at(kept)],
    ),
    Fault(
        "encoder sees mask tokens",
        "Mask tokens pass through the encoder. They join after it: the encoder gets visible tokens only.",
        see=_ENCODER,
        encode=lambda tokens, kept, encoder, positions, mask_token: encoder(_hidden_replaced(tokens, kept, mask_token))[
            _at(kept)
        ],
    ),
    Fault(
        "encoder sees zeros",
        "Hidden tokens are set to 0 and go through the encoder with the others. Leave them out.",
        see=_ENCODER,
        encode=lambda tokens, kept, encoder, positions, mask_token: encoder(
            _hidden_replaced(tokens, kept, torch.zeros_like(mask_token))
        )[_at(kept)],
    ),
    Fault(
        "positions after the selection",
        "The first rows of the positions are added after the selection. A patch needs the row of its own position.",
        see=_ENCODER,
        add_positions=lambda tokens, positions, decoder_positions: tokens,
        encode=lambda tokens, kept, encoder, positions, mask_token: encoder(
            tokens[_at(kept)] + positions[: kept.shape[1]]
        ),
    ),
    Fault(
        "positions after the encoder",
        "The encoder's positions are added after it, so that it never knows where a patch stands. Add them before.",
        see=_ENCODER,
        add_positions=lambda tokens, positions, decoder_positions: tokens,
        encode=lambda tokens, kept, encoder, positions, mask_token: encoder(tokens[_at(kept)]) + positions[kept],
    ),
    Fault(
        "encoder without positions",
        "The encoder gets no positions: it cannot know where a patch stands.",
        see=_ENCODER,
        add_positions=lambda tokens, positions, decoder_positions: tokens,
    ),
    Fault(
        "the decoder's positions in the encoder",
        "The encoder gets the decoder's positions. It has a table of its own.",
        see=_ENCODER,
        add_positions=lambda tokens, positions, decoder_positions: tokens + decoder_positions,
    ),
    Fault(
        "encoder skipped",
        "The visible tokens do not pass through the encoder.",
        see=_ENCODER,
        encode=lambda tokens, kept, encoder, positions, mask_token: tokens[_at(kept)],
    ),
    Fault(
        "the first image's indices for all",
        "The indices of the first image's visible patches are taken for all images. Row b of kept belongs to image b.",
        see=_HIDE,
        choose=lambda kept: kept[:1].expand_as(kept),
    ),
    Fault(
        "not put back",
        "Visible tokens stand in front and mask tokens behind. Move each to its own position before the position "
        "vectors are added.",
        put_back=_appended,
    ),
    Fault(
        "left in the order drawn",
        "Each token has its own position, but the result is in the order in which patches were drawn. "
        "Row n has to belong to patch n.",
        put_back=_appended,
        add_again=lambda tokens, kept, positions, decoder_positions: (
            tokens + decoder_positions[_drawn_order(kept, tokens.shape[1])]
        ),
    ),
    Fault(
        "put back at the first image's positions",
        "In every image the visible tokens are put back at the first image's positions. Each has its own row of kept.",
        put_back=lambda seen, kept, tokens, mask_token: _put_back(seen, kept[:1].expand_as(kept), tokens, mask_token),
    ),
    Fault(
        "put back in ascending order",
        "Visible tokens are put back from left to right, as if drawn in order. Token v belongs at position kept[b, v].",
        put_back=lambda seen, kept, tokens, mask_token: _put_back(seen, kept.sort(dim=1).values, tokens, mask_token),
    ),
    Fault(
        "shuffled again in place of restored",
        "The tokens are shuffled once more instead of back: restoring the order takes the inverse permutation, "
        "which is its argsort.",
        put_back=_there_again,
    ),
    Fault(
        "zeros for the mask token",
        "Hidden positions hold zeros. They should hold the mask token, which is learned.",
        put_back=lambda seen, kept, tokens, mask_token: _put_back(seen, kept, tokens, torch.zeros_like(mask_token)),
    ),
    Fault(
        "hidden patches handed on",
        "The decoder gets the hidden patches' own tokens, so it has nothing to restore. Put the mask token there.",
        put_back=lambda seen, kept, tokens, mask_token: _put_back(seen, kept, tokens, tokens),
    ),
    Fault(
        "mask tokens everywhere",
        "All positions hold the mask token; what the encoder made is lost. Put the visible tokens back.",
        put_back=lambda seen, kept, tokens, mask_token: mask_token.expand_as(tokens),
    ),
    Fault(
        "decoder without positions",
        "The decoder gets no positions: all mask tokens are the same to it. Add a row to every token.",
        add_again=lambda tokens, kept, positions, decoder_positions: tokens,
    ),
    Fault(
        "positions for the visible only",
        "In the decoder only the visible tokens get positions. The mask tokens need them most.",
        add_again=lambda tokens, kept, positions, decoder_positions: (
            tokens + _hidden_replaced(decoder_positions.expand_as(tokens), kept, torch.zeros_like(decoder_positions[0]))
        ),
    ),
    Fault(
        "positions for the mask tokens only",
        "In the decoder only mask tokens get positions. Add them to every token.",
        add_again=lambda tokens, kept, positions, decoder_positions: (
            tokens
            + decoder_positions
            - _hidden_replaced(decoder_positions.expand_as(tokens), kept, torch.zeros_like(decoder_positions[0]))
        ),
    ),
    Fault(
        "the encoder's positions in the decoder",
        "The decoder gets the encoder's positions. It has a table of its own.",
        add_again=lambda tokens, kept, positions, decoder_positions: tokens + positions,
    ),
    Fault(
        "decoder skipped",
        "The tokens do not pass through the decoder.",
        decode=lambda tokens, decoder: tokens,
    ),
    Fault(
        "encoder in place of the decoder",
        "After the mask tokens joined, the encoder is called once more. Now it is the decoder's turn.",
        decode=lambda tokens, decoder: tokens + tokens.mean(dim=1, keepdim=True),
    ),
)

EXERCISES = (
    Exercise(
        hidden_loss,
        notebook="12",
        section=_LOSS,
        level="easy",
        minutes=4,
        hints=(
            "Which patches count? `~` turns a mask round.",
            "`patches[mask]` is (number of True, P). How many numbers does the mean run over?",
        ),
        cases=_hidden_loss_cases,
        faults=_HIDDEN_LOSS_FAULTS,
    ),
    Exercise(
        choose_visible,
        notebook="12",
        section=_HIDE,
        level="middle",
        minutes=8,
        hints=(
            "Patch n is visible if its rank in its row is small enough. What does `argsort` give: ranks, or the order?",
            "The order says which patch comes first. Its own argsort is the inverse: at which rank each patch comes.",
        ),
        cases=_choose_visible_cases,
        faults=_CHOOSE_VISIBLE_FAULTS,
        differentiable=False,
    ),
    Exercise(
        frozen_features,
        notebook="12",
        section=_PROBE,
        level="middle",
        minutes=6,
        hints=(
            "One mean and one deviation for each feature, from one of the two sets, used for both.",
            "Frozen: nothing that is computed later may send a gradient into the encoder. `torch.no_grad()`.",
        ),
        cases=_frozen_features_cases,
        faults=_FROZEN_FEATURES_FAULTS,
        call=_call_frozen_features,
        returns=(
            "training features",
            "test features",
            "answer to 'are the training features frozen?'",
            "answer to 'are the test features frozen?'",
        ),
        differentiable=False,
    ),
    Exercise(
        decoded_from_visible,
        notebook="12",
        section=_DECODER,
        level="hard",
        minutes=15,
        hints=(
            "In turn: embed, add positions, select, encode, put back among mask tokens, add positions again, decode.",
            "With `rows = torch.arange(B)[:, None]`, `tokens[rows, kept]` is (B, V, E), and can also stand left"
            " of an `=`.",
        ),
        cases=_decoded_from_visible_cases,
        faults=_DECODED_FROM_VISIBLE_FAULTS,
        call=_call_decoded,
    ),
)
