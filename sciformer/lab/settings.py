"""What to train: everything that a run depends on but its seed and its device.

A setting makes the model and the batches, and says how to train. More than 500 lines, since all kinds of settings stand
side by side.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sciformer.attention import MultiHeadAttention
from sciformer.blocks import SquaredReLU
from sciformer.data import (
    ISO_DATES,
    LETTERS,
    NAME_LETTERS,
    STORY_WORDS,
    WRITTEN_DATES,
    Vocabulary,
    batches,
    dates,
    digit_rows,
    lookup,
    mnist,
    random_affine,
    repeated_blocks,
    reversals,
    shakespeare,
    stories,
    text_batches,
    token_rows,
)
from sciformer.functional import InputError
from sciformer.models import (
    AttentionOnly,
    CharTransformer,
    CorruptedImageModel,
    ImageToText,
    ImageTransformer,
    MaskedImageModel,
    Transformer,
    corrupted,
    random_visible,
)
from sciformer.positions import POSITIONS, NoPositions, SinusoidalGridPositions
from sciformer.scores import SCORES, WRAPPERS, NormalizedScore, RotaryScore, ScoreRecipe
from sciformer.training import Batch, TrainConfig

#: Quick is for a notebook on two CPU cores; long is what such cores do in twenty minutes to two hours a run,
#: for those who have no GPU; full is for a GPU. Not every experiment has a long form.
Profile = Literal["quick", "long", "full"]

#: The seeds of what models are tested on, and of what choices are made on, where data are drawn. Training takes the
#: seeds of its runs, 0, 1, 2, ...
TEST_SEED, CHOICE_SEED = 1_000_000, 2_000_000

#: How far a digit may be turned, moved (in pixels) and stretched, and still be itself.
SMALL_MOVES = {"degrees": 10.0, "translate": 2.0, "scale": 0.1}


def profile() -> Literal["quick", "full"]:
    """``SCIFORMER_PROFILE`` if it is set; else "full" where there is a CUDA GPU and "quick" elsewhere.

    Raises:
        InputError: if ``SCIFORMER_PROFILE`` is neither.
    """
    choice = os.environ.get("SCIFORMER_PROFILE") or ("full" if torch.cuda.is_available() else "quick")
    if choice not in ("quick", "full"):
        raise InputError(f'SCIFORMER_PROFILE must be "quick" or "full", got {choice!r}')
    return choice  # type: ignore[return-value]


@dataclass(frozen=True)
class ImageSetting:
    """One image transformer on MNIST: data, model and training.

    Args:
        size: which MNIST, see :func:`sciformer.data.mnist`.
        score: a name of ``SCORES`` or of ``WRAPPERS``, or the recipe of a score of one's own.
        positions: a name of ``POSITIONS``, or ``"sinusoidal grid"``.
        augmentation: arguments of :func:`sciformer.data.random_affine`.
        score_options: arguments of the score's recipe.
        bias: whether the maps and norms of the blocks add one.
        held_out: so many of the training digits, the last ones, are not trained on: choices are made on them.
        test_size: which MNIST's test digits it is judged on, if not those of ``size``.
        gain: what the weights that make queries and keys are multiplied by before training. Above 1, scores differ more
            between keys, and attention starts sharper.
    """

    size: Literal["small", "full"]
    patch_size: int
    embed_dim: int
    num_heads: int
    num_layers: int
    expansion: float
    batch_size: int
    train: TrainConfig
    score: str | ScoreRecipe = "dot"
    positions: str = "learned"
    dropout: float = 0.0
    num_queries: int = 0
    augmentation: dict[str, float] = field(default_factory=dict)
    score_options: dict[str, Any] = field(default_factory=dict)
    bias: bool = True
    held_out: int = 0
    test_size: Literal["small", "full"] | None = None
    gain: float = 1.0

    def model(self) -> ImageTransformer:
        """A fresh model, random as torch's global generator has it.

        Raises:
            InputError: if the score or the positions have an unknown name.
        """
        return self._build()

    def _build(self, **changes: Any) -> ImageTransformer:
        kinds = {**POSITIONS, "sinusoidal grid": SinusoidalGridPositions}
        check_names((self.positions, kinds))
        arguments = {
            "image_size": 28,
            "patch_size": self.patch_size,
            "in_channels": 1,
            "num_classes": 10,
            "embed_dim": self.embed_dim,
            "num_heads": self.num_heads,
            "num_layers": self.num_layers,
            "score": score_recipe(self.score, self.score_options),
            "positions": kinds[self.positions],
            "expansion": self.expansion,
            "dropout": self.dropout,
            "bias": self.bias,
            "num_queries": self.num_queries,
        }
        network = ImageTransformer(**(arguments | changes))  # type: ignore[arg-type]
        apply_gain(network, self.gain)
        return network

    def training_batches(self, seed: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
        """Endless shuffled batches of digits, each shifted, turned and stretched a little."""
        images, labels = (tensor[: len(tensor) - self.held_out].to(device) for tensor in mnist("train", size=self.size))
        augment = partial(random_affine, **self.augmentation) if self.augmentation else None  # type: ignore[arg-type]
        stream = batches(images, labels, batch_size=self.batch_size, seed=seed, augment=augment)
        return ((self._seen(images), labels) for images, labels in stream)

    def test_batches(self, device: torch.device | str = "cpu") -> list[Batch]:
        """The test digits, once."""
        images, labels = (tensor.to(device) for tensor in mnist("test", size=self.test_size or self.size))
        return list(zip(self._seen(images).split(1000), labels.split(1000), strict=True))

    def held_out_batches(self, device: torch.device | str = "cpu") -> list[Batch]:
        """The training digits that are held out, once.

        Raises:
            InputError: if none is.
        """
        if self.held_out < 1:
            raise InputError(f"there is nothing to choose by: held_out is {self.held_out}")
        images, labels = (tensor[-self.held_out :].to(device) for tensor in mnist("train", size=self.size))
        return list(zip(self._seen(images).split(1000), labels.split(1000), strict=True))

    def _seen(self, images: Tensor) -> Tensor:
        """What the model sees of the digits: all of them, as they are."""
        return images


def on_all_test_digits(setting: Any) -> Any:
    """A setting that is judged on all 10,000 test digits; one that is not about digits stays as it is."""
    return replace(setting, test_size="full") if hasattr(setting, "test_size") else setting


@dataclass(frozen=True)
class PixelSetting(ImageSetting):
    """An image transformer whose tokens are single pixels, from -1 for black to 1 for white.

    Args:
        pooling: average over squares of so many by so many pixels first.
        as_published: as the first model with a learned distance bias had it: post-norm, ReLU, no projection behind the
            heads and no norm before the classifier.
        coarse_steps: how many steps on digits half as wide and half as high come before each step of ``train``.
        coarse_lr: their learning rate.
    """

    pooling: int = 1
    as_published: bool = False
    coarse_steps: int = 0
    coarse_lr: float = 1e-3

    @property
    def width(self) -> int:
        """Pixels, and so tokens, in a row."""
        return 28 // self.pooling

    def coarse(self) -> "PixelSetting":
        """The setting for digits half as wide and half as high."""
        return replace(
            self,
            pooling=2 * self.pooling,
            score_options=self.score_options | {"width": self.width // 2},
            train=replace(self.train, steps=self.coarse_steps * self.train.steps, lr=self.coarse_lr),
            coarse_steps=0,
        )

    def model(self) -> ImageTransformer:
        """A fresh model, random as torch's global generator has it.

        Raises:
            InputError: if the score or the positions have an unknown name.
        """
        style = {"norm_first": False, "activation": nn.ReLU} if self.as_published else {}
        network = self._build(image_size=self.width, **style)
        if self.as_published:
            for block in network.blocks:
                block.attention.out_proj = nn.Identity()  # type: ignore[union-attr]
            network.classifier.norm = nn.Identity()
        return network

    def _seen(self, images: Tensor) -> Tensor:
        return 2 * F.avg_pool2d(images, self.pooling) - 1


@dataclass(frozen=True)
class ConvolutionSetting(PixelSetting):
    """A small convolutional network on the same pixels: what attention is measured against.

    Three convolutions over 3 × 3 pixels, each with a batch norm and a ReLU, halve the image after the first, and a
    linear map reads the mean over the pixels. What a transformer is made of is not used.

    Args:
        channels: of each convolution.
    """

    channels: Sequence[int] = (24, 32, 48)

    def model(self) -> nn.Sequential:  # type: ignore[override]
        """A fresh model, random as torch's global generator has it."""
        layers: list[nn.Module] = []
        for before, after in zip((1, *self.channels), self.channels, strict=False):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        layers.insert(3, nn.MaxPool2d(2))
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(self.channels[-1], 10))


@dataclass(frozen=True)
class CroppedSetting(ImageSetting):
    """An image transformer on the middle of each digit, an image higher than it is wide, in patches that are, too.

    Args:
        patch_size: rows of a patch.
        columns: how many of the 28 columns are kept, those in the middle.
        patch_width: columns of a patch.
    """

    columns: int = 20
    patch_width: int = 5

    def model(self) -> ImageTransformer:
        """A fresh model, random as torch's global generator has it.

        Raises:
            InputError: if the score or the positions have an unknown name, or the patches do not tile the image.
        """
        return self._build(image_size=(28, self.columns), patch_size=(self.patch_size, self.patch_width))

    def _seen(self, images: Tensor) -> Tensor:
        first = (28 - self.columns) // 2
        return images[..., first : first + self.columns]


class SelfAttention(nn.MultiheadAttention):
    """torch's layer of attention, on one input that queries, keys and values are all made from."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """What comes out, in the shape of the input; the weights are not computed."""
        return super().forward(x, x, x, need_weights=False)[0]


@dataclass(frozen=True)
class WholeImageSetting(ImageSetting):
    """Each digit is one token, from -1 for black to 1 for white: the model that energy wells were published with.

    At most one layer of torch's attention, and a linear map to the classes. What else a transformer is made of is not
    used. With one key, a well gives it the weight 1 and returns its value, the digit itself, so nothing is left of it.

    Args:
        batch_first: whether the layer of attention is told that the first axis, (B, 1, 784), counts digits. As was
            published it is not, and takes the B digits of a batch for the tokens of one sequence. None: no attention.
    """

    batch_first: bool | None = None

    def model(self) -> nn.Sequential:  # type: ignore[override]
        """A fresh model, random as torch's global generator has it."""
        attention = (
            nn.Identity()
            if self.batch_first is None
            else SelfAttention(self.embed_dim, self.num_heads, batch_first=self.batch_first)
        )
        return nn.Sequential(nn.Flatten(2), attention, nn.Flatten(), nn.Linear(self.embed_dim, 10))

    def test_batches(self, device: torch.device | str = "cpu") -> list[Batch]:
        """The test digits, once, in batches as large as those of training: answers may depend on the batch."""
        images, labels = (torch.cat(part) for part in zip(*super().test_batches(device), strict=True))
        return list(zip(images.split(self.batch_size), labels.split(self.batch_size), strict=True))

    def _seen(self, images: Tensor) -> Tensor:
        return 2 * images - 1


@dataclass(frozen=True)
class LanguageSetting:
    """One character model on Tiny Shakespeare: model and training.

    Args:
        length: tokens in the context window, in training and in validation.
        score: a name of ``SCORES`` or of ``WRAPPERS``, or the recipe of a score of one's own.
        positions: a name of ``POSITIONS``, or ``"rotary"``.
        normalized: bring queries and keys to one length before they are compared.
        modern: division by the root mean square, with nothing to learn, for layer norm, and the squared ReLU for GELU.
        max_length: the longest text that the model can look at; ``length`` if not given.
        score_options: arguments of the score's recipe.
        text_share: how much of the training text is read, from its beginning.
        gain: what the weights that make queries and keys are multiplied by before training.
    """

    length: int
    embed_dim: int
    num_heads: int
    num_layers: int
    batch_size: int
    train: TrainConfig
    score: str | ScoreRecipe = "dot"
    positions: str = "learned"
    dropout: float = 0.0
    normalized: bool = False
    modern: bool = False
    token_shift: int = 0
    tie_weights: bool = True
    start: Literal["small", "identity"] = "small"
    max_length: int | None = None
    score_options: dict[str, Any] = field(default_factory=dict)
    text_share: float = 1.0
    gain: float = 1.0

    def model(self) -> CharTransformer:
        """A fresh model, random as torch's global generator has it.

        Raises:
            InputError: if the score or the positions have an unknown name.
        """
        kinds = {**POSITIONS, "rotary": NoPositions}
        check_names((self.positions, kinds))
        score = score_recipe(self.score, self.score_options)
        if self.positions == "rotary":
            score = partial(RotaryScore, score=score)
        if self.normalized:
            score = partial(NormalizedScore, score=score)
        modern: dict[str, Any] = (
            {"activation": SquaredReLU, "norm": partial(nn.RMSNorm, elementwise_affine=False)} if self.modern else {}
        )
        model = CharTransformer(
            len(shakespeare()[1]),
            self.max_length or self.length,
            self.embed_dim,
            self.num_heads,
            self.num_layers,
            score=score,
            positions=kinds[self.positions],
            dropout=self.dropout,
            token_shift=self.token_shift,
            tie_weights=self.tie_weights,
            start=self.start,
            **modern,
        )
        apply_gain(model, self.gain)
        return model

    def training_batches(self, seed: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
        """Endless batches of chunks of the training text, each with the same text one token later."""
        return text_batches(self._split()[0].to(device), self.length, batch_size=self.batch_size, seed=seed)

    def held_out_text(self, device: torch.device | str = "cpu") -> Tensor:
        """The rest of the training text, which is not read.

        Raises:
            InputError: if all of it is.
        """
        held_out = self._split()[1].to(device)
        if not len(held_out):
            raise InputError(f"there is nothing to choose by: text_share is {self.text_share}")
        return held_out

    def _split(self) -> tuple[Tensor, Tensor]:
        text = shakespeare("train")[0]
        read = round(self.text_share * len(text))
        return text[:read], text[read:]


@dataclass(frozen=True)
class RungSetting(LanguageSetting):
    """A character model on one rung of notebook 08's ladder, where each ingredient comes alone.

    Args:
        squared_relu: the squared ReLU for GELU, without the other norm that ``modern`` brings.
    """

    squared_relu: bool = False

    def model(self) -> CharTransformer:
        """A fresh model, random as torch's global generator has it."""
        model = super().model()
        if self.squared_relu:
            for block in model.blocks:
                block.feed_forward.activation = SquaredReLU()  # type: ignore[union-attr]
        return model


@dataclass(frozen=True)
class MaskedImageSetting:
    """One masked image model on MNIST: data, model and training.

    Args:
        size: which MNIST, see :func:`sciformer.data.mnist`.
        augmentation: arguments of :func:`sciformer.data.random_affine`.
        probe_copies: how many copies of each training digit, each moved a little, the probes are fitted on as well.
        probe_penalties: what they choose their penalty from.
        hidden_as: hidden patches are ``"missing"``, and the encoder knows where; or it sees ``"noise"`` or
            ``"swapped"`` patches in their place, as :func:`~sciformer.models.corrupted` makes them.
        test_size: which MNIST's test digits it is judged on, if not those of ``size``.
    """

    size: Literal["small", "full"]
    patch_size: int
    embed_dim: int
    num_heads: int
    num_layers: int
    decoder_dim: int
    decoder_layers: int
    expansion: float
    batch_size: int
    train: TrainConfig
    hidden_share: float = 0.75
    score: str = "dot"
    augmentation: dict[str, float] = field(default_factory=dict)
    probe_copies: int = 0
    probe_penalties: Sequence[float] = (1e-4, 1e-3, 1e-2, 1e-1)
    hidden_as: Literal["missing", "noise", "swapped"] = "missing"
    test_size: Literal["small", "full"] | None = None

    def model(self) -> MaskedImageModel:
        """A fresh model, random as torch's global generator has it.

        Raises:
            InputError: if the score has an unknown name.
        """
        check_names((self.score, SCORES))
        kind = MaskedImageModel if self.hidden_as == "missing" else CorruptedImageModel
        return kind(
            28,
            self.patch_size,
            1,
            self.embed_dim,
            self.num_heads,
            self.num_layers,
            decoder_dim=self.decoder_dim,
            decoder_layers=self.decoder_layers,
            score=SCORES[self.score],
            expansion=self.expansion,
        )

    def training_batches(
        self, model: MaskedImageModel, seed: int, device: torch.device | str = "cpu"
    ) -> Iterator[Batch]:
        """Endless shuffled batches (images, visible, pixels of the hidden patches), another mask for every image."""
        images = mnist("train", size=self.size)[0].to(device)
        augment = partial(random_affine, **self.augmentation) if self.augmentation else None  # type: ignore[arg-type]
        stream = batches(images, batch_size=self.batch_size, seed=seed, augment=augment)
        return self.hide(model, (images for (images,) in stream), seed)

    def hide(self, model: MaskedImageModel, stream: Iterable[Tensor], seed: int) -> Iterator[Batch]:
        """For each batch of images (images as the encoder sees them, visible, right pixels of the hidden patches)."""
        batches = masked_batches(model, stream, seed, hidden_share=self.hidden_share)
        if self.hidden_as == "missing":
            yield from batches
            return
        generator = torch.Generator().manual_seed(seed)
        for images, visible, pixels in batches:
            seen = corrupted(images, visible, self.patch_size, how=self.hidden_as, generator=generator)
            yield seen, visible, pixels

    def probe_digits(self, seed: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
        """The training digits and their labels, each followed by its moved copies.

        A probe keeps the last fifth to choose its penalty by. So no copy of a digit that it is fitted on is there.
        He et al. 2021 move images for the probe, too (arXiv:2111.06377, appendix A.1).
        """
        images, labels = (tensor.to(device) for tensor in mnist("train", size=self.size))
        generator = torch.Generator().manual_seed(seed)
        copies = [random_affine(images, generator, **SMALL_MOVES) for _ in range(self.probe_copies)]
        return torch.stack([images, *copies], dim=1).flatten(0, 1), labels.repeat_interleave(1 + self.probe_copies)


def masked_batches(
    model: MaskedImageModel, stream: Iterable[Tensor], seed: int, *, hidden_share: float = 0.75
) -> Iterator[Batch]:
    """For each batch of images (images, visible, pixels of the hidden patches): what ``fit`` wants.

    Every image has a mask of its own. The masks come from a generator of their own, so the same seed gives the same.
    """
    generator = torch.Generator().manual_seed(seed)
    for images in stream:
        visible = random_visible(
            len(images), model.num_tokens, hidden_share=hidden_share, generator=generator, device=images.device
        )
        yield images, visible, model.hidden_pixels(images, visible)


@dataclass(frozen=True)
class SequenceSetting:
    """One encoder–decoder on a generated task: model and training.

    Args:
        task: ``"reversal"``, of strings of 1 to ``longest`` letters; ``"dates"``, any form to ISO 8601; or
            ``"stories"``, of 2 to ``longest`` sentences, with a question.
        max_length: the longest source and target that the model can look at.
        positions: a name of ``POSITIONS``, or ``"rotary"``, then in all self-attentions.
        examples: how many different ones are drawn for training.
    """

    task: Literal["reversal", "dates", "stories"]
    embed_dim: int
    num_heads: int
    num_layers: int
    expansion: float
    batch_size: int
    examples: int
    max_length: int
    train: TrainConfig
    positions: str = "sinusoidal"
    norm_first: bool = False
    longest: int = 10

    @property
    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        """Of the source and of the target."""
        return {
            "reversal": (LETTERS, LETTERS),
            "dates": (WRITTEN_DATES, ISO_DATES),
            "stories": (STORY_WORDS, STORY_WORDS),
        }[self.task]

    def model(self) -> Transformer:
        """A fresh model, random as torch's global generator has it.

        Raises:
            InputError: if the positions have an unknown name.
        """
        kinds = {**POSITIONS, "rotary": NoPositions}
        check_names((self.positions, kinds))
        rotary: dict[str, Any] = {"encoder_score": RotaryScore, "decoder_score": RotaryScore}
        of_source, of_target = self.vocabularies
        return Transformer(
            len(of_source),
            len(of_target),
            self.max_length,
            self.embed_dim,
            self.num_heads,
            self.num_layers,
            positions=kinds[self.positions],
            expansion=self.expansion,
            norm_first=self.norm_first,
            **(rotary if self.positions == "rotary" else {}),
        )

    def tokens(self, texts: list[str], answers: list[str]) -> tuple[Tensor, Tensor]:
        """Texts as sources that close with the end token, and their answers as targets between start and end."""
        of_source, of_target = self.vocabularies
        return (
            token_rows([of_source.separator.join((text, ">")) for text in texts], of_source),
            token_rows([of_target.separator.join(("<", answer, ">")) for answer in answers], of_target),
        )

    def draw(self, count: int, seed: int, **options: Any) -> tuple[list[str], list[str]]:
        """Texts and their answers; of the trained lengths, if the options of the task's function say nothing else."""
        if self.task == "dates":
            return dates(count, seed=seed, **options)
        of_task: Callable[..., tuple[list[str], list[str]]] = {"reversal": reversals, "stories": stories}[self.task]
        return of_task(count, seed=seed, **{"longest": self.longest} | options)

    def training_batches(self, seed: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
        """Endless shuffled batches: source, target but for its last token, target but for its first."""
        texts, answers = self.draw(self.examples, seed)
        source, target = (tokens.to(device) for tokens in self.tokens(texts, answers))
        return batches(source, target[:, :-1], target[:, 1:], batch_size=self.batch_size, seed=seed)


@dataclass(frozen=True)
class NamesSetting:
    """One encoder–decoder from a row of two or three digits to their names: data, model and training.

    Args:
        size: which MNIST, see :func:`sciformer.data.mnist`.
        max_length: the longest target that the model can look at.
        augmentation: arguments of :func:`sciformer.data.random_affine`, for each digit by itself.
        held_out: so many of the training digits, the last ones, are not trained on: choices are made on them.
        test_size: which MNIST's test digits it is judged on, if not those of ``size``.
    """

    size: Literal["small", "full"]
    patch_size: int
    embed_dim: int
    num_heads: int
    num_layers: int
    decoder_layers: int
    expansion: float
    batch_size: int
    max_length: int
    train: TrainConfig
    augmentation: dict[str, float] = field(default_factory=dict)
    held_out: int = 0
    test_size: Literal["small", "full"] | None = None

    def model(self) -> ImageToText:
        """A fresh model, random as torch's global generator has it."""
        return ImageToText(
            (28, 3 * 28),
            self.patch_size,
            1,
            len(NAME_LETTERS),
            self.max_length,
            self.embed_dim,
            self.num_heads,
            self.num_layers,
            self.decoder_layers,
            expansion=self.expansion,
            norm_first=True,
        )

    def tokens(self, rows: Tensor, names: list[str]) -> tuple[Tensor, Tensor]:
        """Rows of digits as they are, and their names as targets between start and end."""
        return rows, token_rows([f"<{name}>" for name in names], NAME_LETTERS)

    def training_batches(self, seed: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
        """Endless batches of new rows: pictures, target but for its last token, target but for its first."""
        images, labels = (tensor[: len(tensor) - self.held_out].to(device) for tensor in mnist("train", size=self.size))
        augment = partial(random_affine, **self.augmentation) if self.augmentation else None  # type: ignore[arg-type]
        generator = torch.Generator().manual_seed(seed)
        while True:
            rows, target = self.tokens(*digit_rows(images, labels, self.batch_size, generator, augment=augment))
            yield rows, target[:, :-1].to(device), target[:, 1:].to(device)

    def test_rows(self, count: int, seed: int) -> tuple[Tensor, list[str]]:
        """Rows of test digits, as they are, and their names."""
        digits = mnist("test", size=self.test_size or self.size)
        return digit_rows(*digits, count, torch.Generator().manual_seed(seed))

    def held_out_rows(self, count: int, seed: int) -> tuple[Tensor, list[str]]:
        """Rows of the training digits that are held out, as they are, and their names.

        Raises:
            InputError: if none is.
        """
        if self.held_out < 1:
            raise InputError(f"there is nothing to choose by: held_out is {self.held_out}")
        images, labels = (tensor[-self.held_out :] for tensor in mnist("train", size=self.size))
        return digit_rows(images, labels, count, torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class InductionSetting:
    """One model of attention alone on sequences that repeat a block of tokens: model and training.

    Args:
        length: tokens that the model reads.
        shortest, longest: the period of a sequence.
        examples: how many different sequences are drawn for training.
    """

    length: int
    vocab_size: int
    shortest: int
    longest: int
    embed_dim: int
    num_heads: int
    num_layers: int
    batch_size: int
    examples: int
    train: TrainConfig
    score: str = "dot"
    score_options: dict[str, Any] = field(default_factory=dict)

    def model(self) -> AttentionOnly:
        """A fresh model, random as torch's global generator has it."""
        score = score_recipe(self.score, self.score_options)
        return AttentionOnly(self.vocab_size, self.length, self.embed_dim, self.num_heads, self.num_layers, score=score)

    def sequences(self, count: int, seed: int) -> tuple[Tensor, Tensor]:
        """Sequences with one token more than the model reads, and their periods."""
        sizes = {name: getattr(self, name) for name in ("vocab_size", "shortest", "longest")}
        return repeated_blocks(count, seed=seed, length=self.length + 1, **sizes)

    def training_batches(self, seed: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
        """Endless shuffled batches: sequences but for their last token, and but for their first."""
        tokens = self.sequences(self.examples, seed)[0].to(device)
        return batches(tokens[:, :-1], tokens[:, 1:], batch_size=self.batch_size, seed=seed)


class LookUpModel(nn.Module):
    """One attention layer, and nothing that could get around it, answers which value stands beside a key.

    A pair is one token, the sum of its key's and its value's embedding; the queried key is the last token. The
    answer is read from this token's output.

    Args:
        num_keys: how many different keys there are.
        num_values: how many different values, and so answers.
    """

    def __init__(self, num_keys: int, num_values: int, embed_dim: int, num_heads: int, score: ScoreRecipe):
        super().__init__()
        self.key_embed, self.value_embed = nn.Embedding(num_keys, embed_dim), nn.Embedding(num_values, embed_dim)
        self.attention = MultiHeadAttention(embed_dim, num_heads, score=score)
        self.read_out = nn.Linear(embed_dim, num_values)

    def forward(
        self, keys: Int[Tensor, "B P"], values: Int[Tensor, "B P"], queried: Int[Tensor, "B"]
    ) -> Float[Tensor, "B C"]:
        pairs = self.key_embed(keys) + self.value_embed(values)  # (B, P, E)
        tokens = torch.cat([pairs, self.key_embed(queried)[:, None]], dim=1)  # (B, P + 1, E)
        output, _ = self.attention(tokens)
        return self.read_out(output[:, -1])


@dataclass(frozen=True)
class LookUpSetting:
    """One model that looks up the value of a key among eight pairs: data, model and training.

    Args:
        examples: how many sequences are drawn for training; further ones are drawn for choices and for the test.
        score: a name of ``SCORES``.
        gain: what the weights that make queries and keys are multiplied by before training.
    """

    embed_dim: int
    num_heads: int
    batch_size: int
    examples: int
    train: TrainConfig
    score: str | ScoreRecipe = "dot"
    score_options: dict[str, Any] = field(default_factory=dict)
    gain: float = 1.0

    def model(self) -> LookUpModel:
        """A fresh model, random as torch's global generator has it.

        Raises:
            InputError: if the score has an unknown name.
        """
        recipe = score_recipe(self.score, self.score_options)
        model = LookUpModel(32, 10, self.embed_dim, self.num_heads, recipe)  # as many keys and values as lookup draws
        apply_gain(model, self.gain)
        return model

    def training_batches(self, seed: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
        """Endless shuffled batches of keys, values, a queried key and its value."""
        tensors = (tensor.to(device) for tensor in lookup(self.examples, seed=seed))
        return batches(*tensors, batch_size=self.batch_size, seed=seed)

    def held_out_batches(self, device: torch.device | str = "cpu") -> list[Batch]:
        """Sequences for choices: neither trained on nor tested on."""
        return [tuple(tensor.to(device) for tensor in lookup(2_000, seed=CHOICE_SEED))]

    def test_batches(self, device: torch.device | str = "cpu") -> list[Batch]:
        """The sequences that the model is judged on."""
        return [tuple(tensor.to(device) for tensor in lookup(10_000, seed=TEST_SEED))]


def apply_gain(model: nn.Module, gain: float) -> None:
    """Multiply the weights that make a model's queries and keys by ``gain``."""
    with torch.no_grad():
        for attention in (part for part in model.modules() if isinstance(part, MultiHeadAttention)):
            for projection in {attention.q_proj, attention.k_proj}:  # which may be one and the same
                projection.weight.mul_(gain)


def score_recipe(score: str | ScoreRecipe, options: Mapping[str, Any]) -> ScoreRecipe:
    """The recipe of a score by its name, or one's own as it is, with its options.

    Raises:
        InputError: if the name is unknown.
    """
    if isinstance(score, str):
        known = SCORES | WRAPPERS
        check_names((score, known))
        score = known[score]
    return partial(score, **options)


def check_names(*choices: tuple[str, Mapping[str, Any]]) -> None:
    """Refuse a name that is not among those known.

    Raises:
        InputError: naming it and those that there are.
    """
    for name, known in choices:
        if name not in known:
            raise InputError(f"{name!r} is unknown; there are {', '.join(known)}")
