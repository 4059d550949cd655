"""What the notebooks train and what ``results/`` records: one definition for both.

An experiment is a setting for each profile and a function that trains it once for one seed. A record is the JSON file
of all its seeds, written only when every one of them has finished.
"""

import json
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sciformer.blocks import SquaredReLU
from sciformer.data import (
    ISO_DATES,
    LETTERS,
    WRITTEN_DATES,
    Vocabulary,
    batches,
    dates,
    mnist,
    random_affine,
    reversals,
    shakespeare,
    text_batches,
    token_rows,
)
from sciformer.files import written_whole
from sciformer.measure import median_seconds_in_turns, peak_bytes
from sciformer.metrics import accuracy, agreement, attention_distance, mean_and_error, probe_accuracy
from sciformer.models import CharTransformer, ImageTransformer, MaskedImageModel, Transformer, random_visible
from sciformer.positions import POSITIONS, NoPositions
from sciformer.scores import SCORES, WELLS, NormalizedScore, RotaryScore
from sciformer.training import Batch, History, OnStep, TrainConfig, evaluate, fit, next_token_loss, text_loss

#: Quick is for a notebook on two CPU cores; long is as much as one such core does in twenty minutes to an hour a run,
#: for those who have no GPU; full is for a GPU. Not every experiment has a long form.
Profile = Literal["quick", "long", "full"]
ScoreRecipe = Callable[[int, int], nn.Module]


@dataclass(frozen=True)
class ImageSetting:
    """One image transformer on MNIST: data, model and training.

    Args:
        size: which MNIST, see :func:`sciformer.data.mnist`.
        score: a name of ``SCORES``, or the recipe of a score of one's own.
        augmentation: arguments of :func:`sciformer.data.random_affine`.
        score_options: arguments of the score's recipe.
        bias: whether the maps and norms of the blocks add one.
        held_out: so many of the training digits, the last ones, are not trained on: choices are made on them.
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

    def model(self) -> ImageTransformer:
        """A fresh model, random as torch's global generator has it.

        Raises:
            ValueError: if the score or the positions have an unknown name.
        """
        return self._build()

    def _build(self, **changes: Any) -> ImageTransformer:
        check_names((self.positions, POSITIONS))
        arguments = {
            "image_size": 28,
            "patch_size": self.patch_size,
            "in_channels": 1,
            "num_classes": 10,
            "embed_dim": self.embed_dim,
            "num_heads": self.num_heads,
            "num_layers": self.num_layers,
            "score": score_recipe(self.score, self.score_options),
            "positions": POSITIONS[self.positions],
            "expansion": self.expansion,
            "dropout": self.dropout,
            "bias": self.bias,
            "num_queries": self.num_queries,
        }
        return ImageTransformer(**(arguments | changes))  # type: ignore[arg-type]

    def training_batches(self, seed: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
        """Endless shuffled batches of digits, each shifted, turned and stretched a little."""
        images, labels = (tensor[: len(tensor) - self.held_out].to(device) for tensor in mnist("train", size=self.size))
        augment = partial(random_affine, **self.augmentation) if self.augmentation else None  # type: ignore[arg-type]
        return batches(images, labels, batch_size=self.batch_size, seed=seed, augment=augment)

    def test_batches(self, device: torch.device | str = "cpu") -> list[Batch]:
        """The test digits, once, as they are."""
        images, labels = (tensor.to(device) for tensor in mnist("test", size=self.size))
        return list(zip(images.split(1000), labels.split(1000), strict=True))

    def held_out_batches(self, device: torch.device | str = "cpu") -> list[Batch]:
        """The training digits that are held out, once, as they are.

        Raises:
            ValueError: if none is.
        """
        if self.held_out < 1:
            raise ValueError(f"there is nothing to choose by: held_out is {self.held_out}")
        images, labels = (tensor[-self.held_out :].to(device) for tensor in mnist("train", size=self.size))
        return list(zip(images.split(1000), labels.split(1000), strict=True))


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
            ValueError: if the score or the positions have an unknown name.
        """
        style = {"norm_first": False, "activation": nn.ReLU} if self.as_published else {}
        network = self._build(image_size=self.width, **style)
        if self.as_published:
            for block in network.blocks:
                block.attention.out_proj = nn.Identity()  # type: ignore[union-attr]
            network.classifier.norm = nn.Identity()
        return network

    def training_batches(self, seed: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
        """The digits of :meth:`ImageSetting.training_batches`, pooled and scaled."""
        return ((self._pixels(images), labels) for images, labels in super().training_batches(seed, device))

    def test_batches(self, device: torch.device | str = "cpu") -> list[Batch]:
        """The test digits, once, pooled and scaled."""
        return [(self._pixels(images), labels) for images, labels in super().test_batches(device)]

    def held_out_batches(self, device: torch.device | str = "cpu") -> list[Batch]:
        """The training digits that are held out, once, pooled and scaled."""
        return [(self._pixels(images), labels) for images, labels in super().held_out_batches(device)]

    def _pixels(self, images: Tensor) -> Tensor:
        return 2 * F.avg_pool2d(images, self.pooling) - 1


@dataclass(frozen=True)
class LanguageSetting:
    """One character model on Tiny Shakespeare: model and training.

    Args:
        length: tokens in a piece of text, in training and in validation.
        score: a name of ``SCORES``, or the recipe of a score of one's own.
        positions: a name of ``POSITIONS``, or ``"rotary"``.
        normalized: bring queries and keys to one length before they are compared.
        modern: division by the root mean square, with nothing to learn, for layer norm, and the squared ReLU for GELU.
        max_length: the longest text that the model can look at; ``length`` if not given.
        score_options: arguments of the score's recipe.
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

    def model(self) -> CharTransformer:
        """A fresh model, random as torch's global generator has it.

        Raises:
            ValueError: if the score or the positions have an unknown name.
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
        return CharTransformer(
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

    def training_batches(self, seed: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
        """Endless batches of pieces of the training text, each with the same text one token later."""
        tokens = shakespeare("train")[0].to(device)
        return text_batches(tokens, self.length, batch_size=self.batch_size, seed=seed)


@dataclass(frozen=True)
class MaskedImageSetting:
    """One masked image model on MNIST: data, model and training.

    Args:
        size: which MNIST, see :func:`sciformer.data.mnist`.
        augmentation: arguments of :func:`sciformer.data.random_affine`.
        probe_copies: how many copies of each training digit, each moved a little, the probes are fitted on as well.
        probe_penalties: what they choose their penalty from.
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
    probe_penalties: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1)

    def model(self) -> MaskedImageModel:
        """A fresh model, random as torch's global generator has it.

        Raises:
            ValueError: if the score has an unknown name.
        """
        check_names((self.score, SCORES))
        return MaskedImageModel(
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
        return masked_batches(model, (images for (images,) in stream), seed, hidden_share=self.hidden_share)

    def probe_digits(self, seed: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
        """The training digits and their labels, each followed by its moved copies.

        A probe keeps the last fifth to choose its penalty by. So no copy of a digit that it is fitted on is there.
        He et al. 2021 move images for the probe, too (arXiv:2111.06377, appendix A.1).
        """
        images, labels = (tensor.to(device) for tensor in mnist("train", size=self.size))
        generator = torch.Generator().manual_seed(seed)
        copies = [random_affine(images, generator, **_SMALL_MOVES) for _ in range(self.probe_copies)]
        return torch.stack([images, *copies], dim=1).flatten(0, 1), labels.repeat_interleave(1 + self.probe_copies)


def masked_batches(
    model: MaskedImageModel, stream: Iterable[Tensor], seed: int, *, hidden_share: float = 0.75
) -> Iterator[Batch]:
    """For each batch of images (images, visible, pixels of the hidden patches): what :func:`fit` wants.

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
        task: ``"reversal"``, of strings of 1 to ``longest`` letters, or ``"dates"``, any form to ISO 8601.
        max_length: the longest source and target that the model can look at.
        positions: a name of ``POSITIONS``, or ``"rotary"``, then in all self-attentions.
        examples: how many different ones are drawn for training.
    """

    task: Literal["reversal", "dates"]
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
        return (LETTERS, LETTERS) if self.task == "reversal" else (WRITTEN_DATES, ISO_DATES)

    def model(self) -> Transformer:
        """A fresh model, random as torch's global generator has it.

        Raises:
            ValueError: if the positions have an unknown name.
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
            token_rows([f"{text}>" for text in texts], of_source),
            token_rows([f"<{answer}>" for answer in answers], of_target),
        )

    def training_batches(self, seed: int, device: torch.device | str = "cpu") -> Iterator[Batch]:
        """Endless shuffled batches: source, target but for its last token, target but for its first."""
        if self.task == "reversal":
            texts, answers = reversals(self.examples, seed=seed, longest=self.longest)
        else:
            texts, answers = dates(self.examples, seed=seed)
        source, target = (tokens.to(device) for tokens in self.tokens(texts, answers))
        return batches(source, target[:, :-1], target[:, 1:], batch_size=self.batch_size, seed=seed)


def score_recipe(score: str | ScoreRecipe, options: Mapping[str, Any]) -> ScoreRecipe:
    """The recipe of a score by its name, or one's own as it is, with its options.

    Raises:
        ValueError: if the name is unknown.
    """
    if isinstance(score, str):
        check_names((score, SCORES))
        score = SCORES[score]
    return partial(score, **options)


def check_names(*choices: tuple[str, Mapping[str, Any]]) -> None:
    """Refuse a name that is not among those known.

    Raises:
        ValueError: naming it and those that there are.
    """
    for name, known in choices:
        if name not in known:
            raise ValueError(f"{name!r} is unknown; there are {', '.join(known)}")


@dataclass
class Run:
    """One seed of an experiment.

    Args:
        figures: what the run is judged by, by name.
        details: more about the trained model, by name, as numbers in nested lists.
    """

    seed: int
    model: nn.Module
    history: History
    figures: dict[str, float]
    details: dict[str, list] = field(default_factory=dict)


def now_and_then(name: str, measure: Callable[[nn.Module], float], steps: int, looks: int) -> OnStep:
    """For :func:`fit`: measure a model about ``looks`` times in so many steps, the last time at the end."""
    every = max(1, steps // looks)

    def look(step: int, model: nn.Module) -> dict[str, float] | None:
        return {name: measure(model)} if step % every == 0 or step == steps else None

    return look


def _fit(
    setting: Any,
    seed: int,
    model: nn.Module,
    stream: Iterable[Batch],
    loss: Callable[[Tensor, Tensor], Tensor],
    look: OnStep,
    **options: Any,
) -> History:
    """:func:`fit` as a setting says, with a checkpoint that belongs to this setting and seed alone."""
    return fit(model, stream, loss, setting.train, look, checkpoint_of=f"seed {seed}, {setting}", **options)


def train_image_transformer(
    setting: ImageSetting,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool = True,
    looks: int = 10,
    model: nn.Module | None = None,
) -> Run:
    """Train once; measure the test accuracy, from 0 to 1, about ``looks`` times, the last time at the end.

    Args:
        model: where training starts, if not at the setting's own.
    """
    torch.manual_seed(seed)
    model = setting.model().to(device) if model is None else model
    test_batches = setting.test_batches(device)
    look = now_and_then(
        "test accuracy", lambda model: evaluate(model, test_batches, accuracy), setting.train.steps, looks
    )
    stream = setting.training_batches(seed, device)
    history = _fit(setting, seed, model, stream, F.cross_entropy, look, checkpoint=checkpoint, progress=progress)
    return Run(seed, model, history, {"test accuracy": history.metrics["test accuracy"][-1][1]})


def train_to_choose(
    setting: ImageSetting,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    progress: bool = True,
    looks: int = 4,
    on_look: Callable[[int, float], None] = lambda step, value: None,
) -> Run:
    """Train once on all but the digits held out; measure the accuracy on those. The test digits take no part in it.

    Args:
        on_look: called as ``on_look(step, validation accuracy)``, about ``looks`` times, the last time at the end. What
            it raises ends the training.
    """
    torch.manual_seed(seed)
    model = setting.model().to(device)
    held_out = setting.held_out_batches(device)

    def measure(model: nn.Module) -> float:
        return evaluate(model, held_out, accuracy)

    look = now_and_then("validation accuracy", measure, setting.train.steps, looks)

    def report(step: int, model: nn.Module) -> Mapping[str, float] | None:
        seen = look(step, model)
        if seen:
            on_look(step, seen["validation accuracy"])
        return seen

    history = fit(
        model, setting.training_batches(seed, device), F.cross_entropy, setting.train, report, progress=progress
    )
    return Run(seed, model, history, {"validation accuracy": history.metrics["validation accuracy"][-1][1]})


def train_pixel_transformer(
    setting: PixelSetting,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> Run:
    """Train once; measure also how far each head of each layer looks, on 20 test digits, and the slopes it learned."""
    # Without gradients a digit still costs a third of a training step's, so this looks less often.
    run = train_image_transformer(setting, seed, device=device, checkpoint=checkpoint, progress=progress, looks=4)
    model: Any = run.model.eval()
    with torch.no_grad():
        maps = model.attention_weights(setting.test_batches(device)[0][0][:20])
    distances = torch.stack([attention_distance(weights, width=setting.width) for weights in maps])  # (layers, H)
    run.figures["attention distance"] = distances.mean().item()
    run.details["attention distance"] = distances.tolist()
    if setting.score == "distance":
        run.details["strength"] = [block.attention.score.strength.tolist() for block in model.blocks]
    return run


def train_growing_pixels(
    setting: PixelSetting, seed: int, *, device: torch.device | str = "cpu", progress: bool = True
) -> Run:
    """Train on small digits, enlarge the model, train it on large ones; measure the test accuracy after each of these.

    Pictures that grow while a model trains cost less for the same accuracy (Tan and Le 2021, arXiv:2104.00298, section
    4). A price on distance has nothing to grow with them.
    """
    small = train_image_transformer(setting.coarse(), seed, device=device, progress=progress, looks=4)
    large = enlarged(small.model, setting).to(device)
    as_it_is = evaluate(large, setting.test_batches(device), accuracy)
    # 10,000 large digits take minutes of a CPU core, so this looks only at the end.
    run = train_image_transformer(setting, seed, device=device, progress=progress, looks=1, model=large)
    run.figures |= {"test accuracy on small digits": small.figures["test accuracy"], "test accuracy enlarged": as_it_is}
    run.details["loss on small digits"] = _thinned(small.history.loss)
    run.history.seconds += small.history.seconds
    return run


def enlarged(model: nn.Module, setting: PixelSetting) -> ImageTransformer:
    """A trained distance-biased model for pictures twice as wide and twice as high: ``setting`` is that of the large.

    What was n tokens away is 2n away now, so that half the slopes ask the same price for it.
    """
    large: Any = setting.model()
    large.load_state_dict(model.state_dict())
    with torch.no_grad():
        for block in large.blocks:
            block.attention.score.strength.div_(2)
    return large


def train_language(
    setting: LanguageSetting,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool = True,
    looks: int = 5,
) -> Run:
    """Train once; measure the loss over the whole validation text about ``looks`` times, the last time at the end."""
    torch.manual_seed(seed)
    model = setting.model().to(device)
    validation = shakespeare("val")[0].to(device)
    look = now_and_then(
        "validation loss", lambda model: text_loss(model, validation, setting.length), setting.train.steps, looks
    )
    stream = setting.training_batches(seed, device)
    history = _fit(setting, seed, model, stream, next_token_loss, look, checkpoint=checkpoint, progress=progress)
    losses = [loss for _, loss in history.metrics["validation loss"]]
    return Run(seed, model, history, {"validation loss": losses[-1], "lowest validation loss": min(losses)})


def train_masked_images(
    setting: MaskedImageSetting,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool = True,
    looks: int = 10,
) -> Run:
    """Train once, without labels; then see how well linear probes read the class of a digit, from 0 to 1.

    "probe accuracy" is that of the trained encoder's features. Beside it stand the same probe of the encoder before
    training and of the pixels themselves, fitted on the same digits. About ``looks`` times the loss on the test digits'
    hidden patches is measured, always with the same masks.
    """
    torch.manual_seed(seed)
    model = setting.model().to(device)
    digits = setting.probe_digits(seed, device)
    test_images, test_labels = (tensor.to(device) for tensor in mnist("test", size=setting.size))
    probe = partial(probe_accuracy, train=digits, test=(test_images, test_labels), penalties=setting.probe_penalties)
    figures = {"probe accuracy of pixels": probe(nn.Flatten()), "probe accuracy untrained": probe(model.features)}

    test_batches = list(masked_batches(model, test_images.split(1000), 0, hidden_share=setting.hidden_share))
    look = now_and_then(
        "test loss", lambda model: evaluate(model, test_batches, F.mse_loss), setting.train.steps, looks
    )
    stream = setting.training_batches(model, seed, device)
    history = _fit(setting, seed, model, stream, F.mse_loss, look, checkpoint=checkpoint, progress=progress)
    model.eval()
    figures = {"probe accuracy": probe(model.features), **figures, "test loss": history.metrics["test loss"][-1][1]}
    return Run(seed, model, history, figures)


#: The seed of what sequence models are tested on. Training takes the seeds of its runs, 0, 1, 2, ...
TEST_SEED = 1_000_000


@torch.no_grad()
def exact_match(model: nn.Module, setting: SequenceSetting, texts: list[str], answers: list[str]) -> float:
    """Share of the texts for which the model, greedily, writes the answer and nothing else, from 0 to 1."""
    network: Any = model
    device, right = next(model.parameters()).device, 0
    for few in range(0, len(texts), 1000):
        source, target = (x.to(device) for x in setting.tokens(texts[few : few + 1000], answers[few : few + 1000]))
        right += int(agreement(network.greedy(source, target.shape[1]), target).all(dim=1).sum())
    return right / len(texts)


def train_sequences(
    setting: SequenceSetting,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool = True,
    looks: int = 4,
) -> Run:
    """Train once; measure how many answers to what was kept for testing are right to the last character.

    Reversals are tested on 10,000 strings that were not trained on, and on 100 of ten times the trained length. Dates
    are tested on 10,000: of days that were not trained on in forms that were; the other way round; and of neither.
    """
    torch.manual_seed(seed)
    model = setting.model().to(device)
    tests: dict[str, tuple[list[str], list[str]]] = {}
    if setting.task == "reversal":
        known = set(reversals(setting.examples, seed=seed, longest=setting.longest)[0])
        texts = [text for text in reversals(20_000, seed=TEST_SEED, longest=setting.longest)[0] if text not in known]
        tests["test exact match"] = texts[:10_000], [text[::-1] for text in texts[:10_000]]
        far = 10 * setting.longest
        tests["test exact match at ten times the length"] = reversals(100, seed=TEST_SEED, shortest=far, longest=far)
    else:
        tests["test exact match"] = dates(10_000, seed=TEST_SEED, days="test")
        tests["test exact match on new forms"] = dates(10_000, seed=TEST_SEED, forms="test")
        tests["test exact match on new days and forms"] = dates(10_000, seed=TEST_SEED, days="test", forms="test")
    few, answers = (side[:1000] for side in tests["test exact match"])
    look = now_and_then(
        "exact match of 1,000", lambda model: exact_match(model, setting, few, answers), setting.train.steps, looks
    )
    loss = partial(next_token_loss, pad=0)
    stream = setting.training_batches(seed, device)
    history = _fit(setting, seed, model, stream, loss, look, checkpoint=checkpoint, progress=progress)
    return Run(seed, model, history, {name: exact_match(model, setting, *test) for name, test in tests.items()})


_SMALL_MOVES = {"degrees": 10.0, "translate": 2.0, "scale": 0.1}

# Chosen by the accuracy on 10,000 other digits of MNIST's training set; the test digits took no part in it.
_SMALL_IMAGES = ImageSetting(
    size="small",
    patch_size=7,
    embed_dim=64,
    num_heads=4,
    num_layers=3,
    expansion=2,
    num_queries=8,
    batch_size=128,
    train=TrainConfig(steps=1500, lr=1e-2, optimizer="muon", weight_decay=0.1, warmup_steps=100),
    augmentation=_SMALL_MOVES,
)
MNIST_IMAGE_TRANSFORMER: dict[Profile, ImageSetting] = {
    "quick": _SMALL_IMAGES,
    "long": replace(_SMALL_IMAGES, size="full", train=_SMALL_IMAGES.train.with_steps(7500)),
    "full": ImageSetting(
        size="full",
        patch_size=4,
        embed_dim=64,
        num_heads=4,
        num_layers=6,
        expansion=2,
        num_queries=4,
        batch_size=256,
        train=TrainConfig(steps=24_000, lr=1e-2, optimizer="muon", weight_decay=0.1, warmup_steps=500),
        augmentation=_SMALL_MOVES,
    ),
}


# Slopes to left, right, above and below before training. Each head faces one side: only there does it look far.
# Heads that start alike take long to part.
_FACING = ((0.3, 3.0, 1.0, 1.0), (3.0, 0.3, 1.0, 1.0), (1.0, 1.0, 0.3, 3.0), (1.0, 1.0, 3.0, 0.3))


def _pixel_arms(distance: PixelSetting, published: PixelSetting) -> dict[str, PixelSetting]:
    """The distance bias, the same model with each kind of positions in its place, and the published model."""
    arms = {kind: replace(distance, score="dot", score_options={}, positions=kind) for kind in POSITIONS}
    return {"distance": distance, **arms, "published": published}


_PUBLISHED_PIXELS = PixelSetting(
    size="full",
    patch_size=1,
    embed_dim=64,
    num_heads=1,
    num_layers=2,
    expansion=2,
    batch_size=128,
    train=TrainConfig(steps=4690, lr=1e-3, weight_decay=0.0, betas=(0.9, 0.999)),
    score="distance",
    positions="none",
    as_published=True,
)
_DISTANCE_PIXELS = PixelSetting(
    size="full",
    patch_size=1,
    embed_dim=40,
    num_heads=4,
    num_layers=4,
    expansion=2,
    batch_size=128,
    train=TrainConfig(steps=4690, lr=2e-2, optimizer="muon", weight_decay=0.01, warmup_steps=200),
    score="distance",
    positions="none",
    augmentation=_SMALL_MOVES,
    score_options={"each_side": True, "start": _FACING, "width": 28},
)

# Chosen by the accuracy on 2,000 other digits of MNIST's training set, at 14×14 pixels; the test digits took no part in
# it. Full is ten epochs; the published run kept its learning rate where ours falls to 0.
_SMALL_PIXELS = replace(
    _DISTANCE_PIXELS,
    pooling=2,
    embed_dim=32,
    num_layers=3,
    batch_size=24,
    score_options={"each_side": True, "start": _FACING, "width": 14},
)
_SMALL_PUBLISHED_PIXELS = replace(_PUBLISHED_PIXELS, pooling=2, batch_size=24)
MNIST_PIXELS: dict[Profile, dict[str, PixelSetting]] = {
    "quick": _pixel_arms(
        replace(
            _SMALL_PIXELS,
            size="small",
            train=replace(_SMALL_PIXELS.train, steps=400, warmup_steps=50),
            augmentation={},
        ),
        replace(_SMALL_PUBLISHED_PIXELS, size="small", train=_PUBLISHED_PIXELS.train.with_steps(400)),
    ),
    "long": _pixel_arms(
        replace(_SMALL_PIXELS, train=_SMALL_PIXELS.train.with_steps(3000)),
        replace(_SMALL_PUBLISHED_PIXELS, train=_PUBLISHED_PIXELS.train.with_steps(3000)),
    ),
    "full": _pixel_arms(_DISTANCE_PIXELS, _PUBLISHED_PIXELS),
}

# What one CPU core does on all 784 pixels in an hour: 3.6 epochs of small digits, then 2,400 large ones.
MNIST_784: dict[Profile, PixelSetting] = {
    "long": replace(
        _DISTANCE_PIXELS,
        batch_size=24,
        train=replace(_DISTANCE_PIXELS.train, steps=100, lr=2e-3, warmup_steps=10),
        coarse_steps=90,
        coarse_lr=_DISTANCE_PIXELS.train.lr,
    ),
}


# The two sizes at which nanoGPT trains on this text, and its own recipe: GPT-2's architecture with AdamW. Its losses on
# the validation split, at these sizes: 1.88 and 1.4697 (github.com/karpathy/nanoGPT, README).
_PLAIN_LANGUAGE: dict[Profile, LanguageSetting] = {
    "quick": LanguageSetting(
        length=64,
        embed_dim=128,
        num_heads=4,
        num_layers=4,
        batch_size=12,
        train=TrainConfig(steps=2000, lr=1e-3, weight_decay=0.1, warmup_steps=100),
    ),
    "full": LanguageSetting(
        length=256,
        embed_dim=384,
        num_heads=6,
        num_layers=6,
        batch_size=64,
        dropout=0.2,
        train=TrainConfig(steps=5000, lr=1e-3, weight_decay=0.1, warmup_steps=100),
    ),
}


def _language_arms(plain: LanguageSetting, lr: float, short: int) -> dict[str, LanguageSetting]:
    """From the plain recipe to ours, one ingredient after the other: each arm keeps those of the arm before.

    The last is ours again, with so few steps that it takes no more time than the plain recipe does on two CPU cores.
    """
    architecture = replace(plain, positions="rotary", normalized=True, modern=True, tie_weights=False, start="identity")
    muon = replace(
        architecture,
        train=replace(plain.train, lr=lr, optimizer="muon", weight_decay=0.0, warmup_steps=20, schedule="line"),
    )
    shift = replace(muon, token_shift=3)
    even = replace(shift, train=replace(shift.train, optimizer="normuon", weight_decay=0.1))
    distance = replace(even, score="distance", score_options={"start": "geometric"})
    return {
        "plain": plain,
        "architecture": architecture,
        "muon": muon,
        "token shift": shift,
        "even rows": even,
        "distance": distance,
        f"{short:,} steps": replace(distance, train=distance.train.with_steps(short)),
    }


# Chosen by the loss on the last ninth of the training text, which was then not trained on.
SHAKESPEARE: dict[Profile, dict[str, LanguageSetting]] = {
    "quick": _language_arms(_PLAIN_LANGUAGE["quick"], lr=8e-3, short=1000),
    "full": _language_arms(_PLAIN_LANGUAGE["full"], lr=8e-3, short=2500),
}
# For one CPU core: a seventh of the full model's parameters, pieces as long as its, and each character five times.
# Against learning by heart it has more weight decay, which costs nothing; dropout makes a step on a core much longer.
_ONE_CORE = replace(
    SHAKESPEARE["full"]["even rows"], embed_dim=160, num_heads=5, num_layers=5, batch_size=8, dropout=0.0
)
SHAKESPEARE["long"] = {
    f"{steps:,} steps": replace(_ONE_CORE, train=replace(_ONE_CORE.train, steps=steps, weight_decay=0.3))
    for steps in (2500, 1000)
}

# One cell of the two by two. Full trains as published: AdamW at a constant 3e-4, dropout 0.2. Tokens start as large as
# sinusoids are (Vaswani et al. 2017, section 3.4, multiply theirs by √E for that); GPT-2's 0.02 would drown in them.
_CELL_START: dict[str, Any] = {"start": "identity", "tie_weights": False}
SHAKESPEARE_CELL: dict[Profile, LanguageSetting] = {
    "quick": replace(_PLAIN_LANGUAGE["quick"], **_CELL_START, train=_PLAIN_LANGUAGE["quick"].train.with_steps(1000)),
    "full": replace(
        _PLAIN_LANGUAGE["full"],
        **_CELL_START,
        train=TrainConfig(steps=5000, lr=3e-4, betas=(0.9, 0.999), schedule="constant"),
    ),
}
ADDITIVE_2X2: dict[Profile, dict[str, LanguageSetting]] = {
    profile: {
        f"{positions}, {score}": replace(cell, positions=positions, score=score)
        for positions in ("sinusoidal", "learned")
        for score in ("dot", "separable")
    }
    for profile, cell in SHAKESPEARE_CELL.items()
}

#: Lengths at which a model that was trained on pieces of 64 (quick) or 256 tokens (full) is judged, in these multiples.
LENGTHS = (1, 2, 4, 8)


def _length_arms(cell: LanguageSetting) -> dict[str, LanguageSetting]:
    """The same model with each way to know places; all of them can be asked about texts eight times as long.

    In the last arm tokens start at GPT-2's 0.02, and sinusoids drown them.
    """
    cell = replace(cell, max_length=max(LENGTHS) * cell.length)
    arms = {kind: replace(cell, positions=kind) for kind in (*POSITIONS, "rotary")}
    distance = replace(cell, positions="none", score="distance", score_options={"start": "geometric"})
    drowned = replace(arms["sinusoidal"], start="small")
    return {"distance": distance, **arms, "sinusoidal, small start": drowned}


SHAKESPEARE_LENGTHS: dict[Profile, dict[str, LanguageSetting]] = {
    profile: _length_arms(cell) for profile, cell in SHAKESPEARE_CELL.items()
}


def train_lengths(setting: LanguageSetting, seed: int, *, device: torch.device | str = "cpu", **options: Any) -> Run:
    """Train once; measure the validation loss also at multiples of the length that was trained."""
    run = train_language(setting, seed, device=device, looks=2, **options)
    validation = shakespeare("val")[0].to(device)
    for length in (factor * setting.length for factor in LENGTHS):
        run.figures[f"validation loss at {length}"] = text_loss(run.model, validation, length, batch_size=16)
    return run


def _well_arms(plain: Any) -> dict[str, Any]:
    """The same model with each well in its two forms for a score; and with weights that are all equal, for a floor."""
    wells = {
        f"{well}, {form}": replace(plain, score=f"{well}_well", score_options={"form": form})
        for form in ("gradient", "field")
        for well in WELLS
    }
    return {"dot": plain, **wells, "uniform": replace(plain, score_options={"scale": 0.0})}


_WELL_IMAGES: dict[Profile, ImageSetting] = {
    "quick": ImageSetting(
        size="small",
        patch_size=4,
        embed_dim=64,
        num_heads=4,
        num_layers=2,
        expansion=2,
        batch_size=64,
        train=TrainConfig(steps=400, lr=1e-2, optimizer="muon", weight_decay=0.1, warmup_steps=50),
    ),
    "long": MNIST_IMAGE_TRANSFORMER["long"],
    "full": MNIST_IMAGE_TRANSFORMER["full"],
}
ENERGY_WELLS: dict[Profile, dict[str, ImageSetting]] = {
    profile: _well_arms(plain) for profile, plain in _WELL_IMAGES.items()
}
_WELL_TEXT_STEPS: dict[Profile, int] = {"quick": 500, "full": 2500}  # enough to tell them apart
ENERGY_WELLS_TEXT: dict[Profile, dict[str, LanguageSetting]] = {
    profile: _well_arms(replace(cell, train=cell.train.with_steps(_WELL_TEXT_STEPS[profile])))
    for profile, cell in SHAKESPEARE_CELL.items()
}


# What a score of one's own is trained on, beside some of SCORES, in notebook 17: small, so that several seeds of
# several scores take a minute. No score was tuned for; the rates are those found above.
_CAPSTONE_TRAIN = TrainConfig(steps=60, lr=1e-2, optimizer="muon", weight_decay=0.1, warmup_steps=10)
_CAPSTONE_TEXT = LanguageSetting(
    length=64,
    embed_dim=64,
    num_heads=4,
    num_layers=2,
    batch_size=8,
    train=replace(_CAPSTONE_TRAIN, weight_decay=0.0),
    positions="sinusoidal",
    **_CELL_START,
)
CAPSTONE: dict[Profile, dict[str, ImageSetting | LanguageSetting]] = {
    "quick": {
        "digits": replace(_WELL_IMAGES["quick"], batch_size=16, train=_CAPSTONE_TRAIN),
        "text": _CAPSTONE_TEXT,
    },
    "full": {
        "digits": replace(_WELL_IMAGES["quick"], size="full", train=_CAPSTONE_TRAIN.with_steps(3000)),
        "text": replace(
            _CAPSTONE_TEXT,
            length=128,
            embed_dim=128,
            num_layers=4,
            batch_size=64,
            train=_CAPSTONE_TEXT.train.with_steps(1000),
        ),
    },
}


# Quick was chosen by the probe's accuracy on the last 2,000 of its training digits, which were then not trained on; the
# test digits took no part in it. Long is twice as wide, with probes on moved copies: on 10,000 of the 60,000 training
# digits both helped, where more copies, another layer's tokens, a deeper decoder and fewer hidden patches did not. Full
# has more of everything.
_SMALL_MASKED = MaskedImageSetting(
    size="small",
    patch_size=4,
    embed_dim=64,
    num_heads=4,
    num_layers=3,
    decoder_dim=32,
    decoder_layers=1,
    expansion=2,
    batch_size=128,
    train=TrainConfig(steps=600, lr=1e-2, optimizer="muon", weight_decay=0.01, warmup_steps=50),
)
MASKED_IMAGES: dict[Profile, MaskedImageSetting] = {
    "quick": _SMALL_MASKED,
    "long": replace(
        _SMALL_MASKED,
        size="full",
        embed_dim=128,
        train=_SMALL_MASKED.train.with_steps(16_000),
        augmentation=_SMALL_MOVES,
        probe_copies=2,
        probe_penalties=(1e-4,),
    ),
    "full": MaskedImageSetting(
        size="full",
        patch_size=4,
        embed_dim=256,
        num_heads=8,
        num_layers=6,
        decoder_dim=128,
        decoder_layers=2,
        expansion=4,
        batch_size=512,
        train=TrainConfig(steps=20_000, lr=3e-3, optimizer="muon", weight_decay=0.05, warmup_steps=500),
        augmentation=_SMALL_MOVES,
        probe_copies=2,
    ),
}


_CLAIM_BASE: dict[Profile, ImageSetting] = {
    "quick": ImageSetting(
        size="small",
        patch_size=4,
        embed_dim=32,
        num_heads=4,
        num_layers=2,
        expansion=2,
        batch_size=64,
        train=TrainConfig(steps=400, lr=3e-3, warmup_steps=40),
        held_out=2000,
    ),
    "full": ImageSetting(
        size="full",
        patch_size=4,
        embed_dim=32,
        num_heads=4,
        num_layers=2,
        expansion=2,
        batch_size=256,
        train=TrainConfig(steps=5000, lr=3e-3, warmup_steps=200),
        held_out=10_000,
    ),
}


def _claim_arms(base: ImageSetting) -> dict[str, ImageSetting]:
    """One hyper-parameter at a time, with the same steps; then heads and blocks again, with the same size of model.

    More heads of the same dimension, or as many of a larger one, make a wider and larger model. Of the same size are
    more heads that share one width, and more blocks that are narrower.
    """
    H, D = base.num_heads, base.embed_dim // base.num_heads
    return {
        "base": base,
        **{f"heads {n}": replace(base, num_heads=n, embed_dim=n * D) for n in (1, 2, 8)},
        **{f"head dimension {n}": replace(base, embed_dim=H * n) for n in (2, 4, 16)},
        **{f"tokens {(28 // side) ** 2}": replace(base, patch_size=side) for side in (28, 14, 7, 2)},
        **{f"blocks {n}": replace(base, num_layers=n) for n in (1, 4, 8)},
        **{f"heads {n}, same size": replace(base, num_heads=n) for n in (1, 2, 8, 16)},
        **{
            f"blocks {n}, same size": replace(base, num_layers=n, embed_dim=width)
            for n, width in ((1, 44), (4, 24), (8, 16))
        },
    }


SEARCH_CLAIMS: dict[Profile, dict[str, ImageSetting]] = {
    profile: _claim_arms(base) for profile, base in _CLAIM_BASE.items()
}


_REVERSAL: dict[Profile, SequenceSetting] = {
    "quick": SequenceSetting(
        task="reversal",
        embed_dim=32,
        num_heads=2,
        num_layers=1,
        expansion=2,
        batch_size=128,
        examples=60_000,
        max_length=128,
        train=TrainConfig(steps=650, lr=3e-2, optimizer="muon", weight_decay=0.0, warmup_steps=30),
    ),
    "full": SequenceSetting(
        task="reversal",
        embed_dim=64,
        num_heads=4,
        num_layers=2,
        expansion=2,
        batch_size=128,
        examples=500_000,
        max_length=128,
        train=TrainConfig(steps=4000, lr=1e-2, optimizer="muon", weight_decay=0.0, warmup_steps=100),
    ),
}
# Sizes, rates and steps of both tasks were chosen on strings and dates of other seeds, drawn from the training splits.
REVERSAL: dict[Profile, dict[str, SequenceSetting]] = {
    profile: {kind: replace(setting, positions=kind) for kind in ("sinusoidal", "rotary", "none")}
    for profile, setting in _REVERSAL.items()
}
DATES: dict[Profile, SequenceSetting] = {
    "quick": SequenceSetting(
        task="dates",
        embed_dim=32,
        num_heads=4,
        num_layers=2,
        expansion=2,
        batch_size=192,
        examples=100_000,
        max_length=40,
        train=TrainConfig(steps=900, lr=3e-2, optimizer="muon", weight_decay=0.0, warmup_steps=30),
        norm_first=True,
    ),
    "full": SequenceSetting(
        task="dates",
        embed_dim=128,
        num_heads=4,
        num_layers=2,
        expansion=4,
        batch_size=256,
        examples=500_000,
        max_length=40,
        train=TrainConfig(steps=5000, lr=5e-3, optimizer="muon", weight_decay=0.0, warmup_steps=100),
        norm_first=True,
    ),
}


def step_cost(
    setting: ImageSetting | LanguageSetting, seed: int, *, device: torch.device | str = "cpu", repeats: int = 5
) -> dict[str, float]:
    """What one step of training, forward and backward, costs a fresh model.

    The time is told as a multiple of the time of dot-product attention in the same model. The two take turns, so that
    whatever else the machine does slows both.

    Returns:
        "step time against dot": the ratio of the medians. "peak MB": the most that torch had allocated at a time
        beyond the parameters, their gradients and the batch, in 10⁶ bytes.
    """
    on_cuda = torch.device(device).type == "cuda"
    *inputs, target = next(setting.training_batches(seed, device))

    def one_step(setting: ImageSetting | LanguageSetting) -> Callable[[], None]:
        model = setting.model().to(device)

        def step() -> None:
            with torch.autocast("cuda", torch.bfloat16, enabled=on_cuda):
                loss = F.cross_entropy(model(*inputs).flatten(0, -2), target.flatten())
            loss.backward()
            if on_cuda:
                torch.cuda.synchronize()

        return step

    this, dot = one_step(setting), one_step(replace(setting, score="dot", score_options={}))
    seconds, seconds_of_dot = median_seconds_in_turns([this, dot], repeats)
    return {"step time against dot": seconds / seconds_of_dot, "peak MB": peak_bytes(this, device) / 1e6}


def train_and_weigh(
    train: Callable[..., Run], setting: Any, seed: int, *, device: torch.device | str = "cpu", **options: Any
) -> Run:
    """Train once as ``train`` does; measure also what a step costs."""
    run = train(setting, seed, device=device, looks=2, **options)
    run.figures |= step_cost(setting, seed, device=device)
    return run


def _every_score(setting: Any) -> dict[str, Any]:
    """The same model with each score as it comes: nothing else changes, and nothing is tuned for one of them."""
    return {score: replace(setting, score=score, score_options={}) for score in SCORES}


# Positions are sinusoids everywhere: nothing to learn, so a score's own numbers are all in which parameters differ. The
# rates are those of the experiments above, found there for the dot product or the distance bias.
BAKE_OFF_PATCHES: dict[Profile, dict[str, ImageSetting]] = {
    "quick": _every_score(
        replace(
            _WELL_IMAGES["quick"],
            positions="sinusoidal",
            train=TrainConfig(steps=200, lr=1e-2, optimizer="muon", weight_decay=0.1, warmup_steps=30),
        )
    ),
    "full": _every_score(
        replace(
            MNIST_IMAGE_TRANSFORMER["full"],
            positions="sinusoidal",
            train=MNIST_IMAGE_TRANSFORMER["full"].train.with_steps(6000),
        )
    ),
}
_SINUSOIDAL_PIXELS = MNIST_PIXELS["quick"]["sinusoidal"]
BAKE_OFF_PIXELS: dict[Profile, dict[str, PixelSetting]] = {
    "quick": _every_score(
        replace(_SINUSOIDAL_PIXELS, num_layers=2, batch_size=16, train=_SINUSOIDAL_PIXELS.train.with_steps(250))
    ),
    "full": _every_score(MNIST_PIXELS["full"]["sinusoidal"]),
}
BAKE_OFF_TEXT: dict[Profile, dict[str, LanguageSetting]] = {
    profile: _every_score(
        replace(cell, positions="sinusoidal", train=cell.train.with_steps({"quick": 200, "full": 2500}[profile]))
    )
    for profile, cell in SHAKESPEARE_CELL.items()
}


@dataclass(frozen=True)
class Experiment:
    """A name that ``python -m sciformer record`` knows.

    Args:
        settings: the setting of each profile. An experiment that compares has several arms: a dict of them by name.
        run: trains one seed: ``run(setting, seed, device=…, progress=…)``.
        seeds: how many seeds a record has.
    """

    settings: dict[Profile, Any]
    run: Callable[..., Run]
    seeds: int

    def arms(self, profile: Profile) -> dict[str | None, Any]:
        """The setting of each arm; the only arm of an experiment that compares nothing is None.

        Raises:
            ValueError: if the experiment has no such profile; names those that it has.
        """
        if profile not in self.settings:
            raise ValueError(f"there is no profile {profile!r} of it; there are {', '.join(self.settings)}")
        setting = self.settings[profile]
        return setting if isinstance(setting, dict) else {None: setting}


EXPERIMENTS: dict[str, Experiment] = {
    "mnist-image-transformer": Experiment(MNIST_IMAGE_TRANSFORMER, train_image_transformer, seeds=5),
    "mnist-pixels": Experiment(MNIST_PIXELS, train_pixel_transformer, seeds=3),
    "mnist-784": Experiment(MNIST_784, train_growing_pixels, seeds=1),
    "shakespeare": Experiment(SHAKESPEARE, train_language, seeds=3),
    "additive-2x2": Experiment(ADDITIVE_2X2, train_language, seeds=3),
    "shakespeare-lengths": Experiment(SHAKESPEARE_LENGTHS, train_lengths, seeds=3),
    "energy-wells": Experiment(ENERGY_WELLS, train_image_transformer, seeds=3),
    "energy-wells-text": Experiment(ENERGY_WELLS_TEXT, train_language, seeds=3),
    "masked-images": Experiment(MASKED_IMAGES, train_masked_images, seeds=3),
    "search-claims": Experiment(SEARCH_CLAIMS, train_to_choose, seeds=3),
    "reversal": Experiment(REVERSAL, train_sequences, seeds=3),
    "dates": Experiment(DATES, train_sequences, seeds=3),
    "bake-off-patches": Experiment(BAKE_OFF_PATCHES, partial(train_and_weigh, train_image_transformer), seeds=3),
    "bake-off-pixels": Experiment(BAKE_OFF_PIXELS, partial(train_and_weigh, train_image_transformer), seeds=3),
    "bake-off-text": Experiment(BAKE_OFF_TEXT, partial(train_and_weigh, train_language), seeds=3),
}


def experiment(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        ValueError: if there is none; names those that there are.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


class UnfinishedRecord(Exception):
    """Some runs of a record failed; those that finished are kept."""


def record(
    name: str,
    profile: Profile,
    *,
    seeds: int | None = None,
    device: torch.device | str = "cpu",
    jobs: int = 1,
    out: Path | None = None,
    steps: int | None = None,
) -> Path:
    """Train every seed of every arm of an experiment and write its record.

    Every run is kept as soon as it has finished, in a folder beside the record. So when one fails, or the machine goes
    down, the next call trains only what is missing, provided that settings, commit, versions and device are the same.
    The folder goes when the record is whole. Its "seconds" are those of the call that made it whole.

    Args:
        seeds: how many for each arm, if not as many as the experiment says.
        jobs: how many runs train at the same time, each in a process of its own.
        out: folder of the record; :func:`results_folder` where it is not given.
        steps: train for that many steps instead, for a rehearsal.

    Returns:
        The file written.

    Raises:
        ValueError: if the experiment is unknown or there is no seed.
        UnfinishedRecord: if some runs failed; the others were trained all the same.
    """
    what = experiment(name)
    arms = what.arms(profile)
    if steps is not None:
        arms = {arm: replace(setting, train=setting.train.with_steps(steps)) for arm, setting in arms.items()}
    all_seeds = range(what.seeds if seeds is None else seeds)
    if not all_seeds:
        raise ValueError(f"a record needs at least 1 seed, got {seeds}")
    tasks = [(arm, setting, seed) for arm, setting in arms.items() for seed in all_seeds]
    path = (out or results_folder()) / record_file(name, profile)
    where, kept, began = environment(device), kept_runs(path), time.perf_counter()
    kept.mkdir(parents=True, exist_ok=True)  # what cannot be written is told before the training
    attempt = partial(_attempt, what.run, device, where, kept)
    if jobs == 1:
        runs = [attempt(*task) for task in tasks]
    else:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            runs = list(pool.map(attempt, *zip(*tasks, strict=True)))
    failed = [(arm, seed, run) for (arm, _, seed), run in zip(tasks, runs, strict=True) if isinstance(run, Exception)]
    if failed:
        arm, seed, error = failed[0]
        raise UnfinishedRecord(
            f"{len(failed)} of {len(tasks)} runs failed, the first is {'' if arm is None else f'{arm}, '}seed {seed}: "
            f"{error}. The others are kept in {kept}; record {name} again to train what is missing"
        ) from error
    configs = {arm: asdict(setting) for arm, setting in arms.items()}
    content = {
        "name": name,
        "profile": profile,
        **({"config": configs[None]} if None in arms else {"arms": list(arms), "config": configs}),
        "seeds": list(all_seeds),
        "runs": runs,
        "seconds": round(time.perf_counter() - began, 1),
        **where,
    }
    with written_whole(path) as beside:
        beside.write_text(json.dumps(content, indent=1) + "\n")
    shutil.rmtree(kept)
    return path


def kept_runs(path: Path) -> Path:
    """The folder beside a record in which its finished runs wait for the others."""
    return path.with_suffix(".runs")


def _attempt(
    run: Callable[..., Run],
    device: torch.device | str,
    where: dict[str, Any],
    kept: Path,
    arm: str | None,
    setting: Any,
    seed: int,
) -> dict[str, Any] | Exception:
    """One run: kept from before, or trained and kept now, or the error that ended it."""
    path = kept / f"{'run' if arm is None else arm}, seed {seed}.json"
    known = json.loads(json.dumps({"setting": asdict(setting), **where, "date": None}))
    if path.exists() and (content := json.loads(path.read_text()))["known"] == known:
        return content["run"]
    try:
        summary = _summary(run, device, arm, setting, seed)
    except Exception as error:  # whatever it is, it must not cost what the other runs have found
        return error
    with written_whole(path) as beside:
        beside.write_text(json.dumps({"known": known, "run": summary}) + "\n")
    return summary


def _summary(
    run: Callable[..., Run], device: torch.device | str, arm: str | None, setting: Any, seed: int
) -> dict[str, Any]:
    result = run(setting, seed, device=device)
    curves = {"loss": _thinned(result.history.loss)}
    return {
        **({} if arm is None else {"arm": arm}),
        "seed": seed,
        "parameters": sum(p.numel() for p in result.model.parameters()),
        "figures": result.figures,
        "details": result.details,
        "curves": curves | result.history.metrics,
        "seconds": round(result.history.seconds, 1),
    }


def _thinned(losses: Sequence[float]) -> list[tuple[int, float]]:
    """The curve of a training as (step, mean loss since the point before): 200 points are enough."""
    loss = torch.tensor(losses)
    pieces = torch.arange(1, len(loss) + 1).tensor_split(min(200, len(loss)))
    return [(int(piece[-1]), round(loss[piece - 1].mean().item(), 5)) for piece in pieces]


def environment(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Where a figure comes from: device, versions, threads, commit."""
    on_cuda = torch.device(device).type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_cuda else f"CPU, {torch.get_num_threads()} threads",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _commit() -> str | None:
    here = Path(__file__).parent
    if not (here.parent / ".git").exists():
        return None  # installed, perhaps inside a repository of somebody else's
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None  # without git


def results_folder() -> Path:
    """Where the records lie: inside an installed package, beside it in a checkout."""
    inside = Path(__file__).parent / "results"
    return inside if inside.is_dir() else Path(__file__).parents[1] / "results"


def record_file(name: str, profile: Profile) -> str:
    """File name of a record; that of the full profile, the real experiment, is just the name."""
    return f"{name}.json" if profile == "full" else f"{name}.{profile}.json"


def load_record(name: str, profile: Profile = "full", folder: Path | None = None) -> dict[str, Any] | None:
    """A record, or None if that run has not been made.

    Raises:
        ValueError: if the experiment is unknown, or the file is not a whole record.
    """
    experiment(name)
    path = (folder or results_folder()) / record_file(name, profile)
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
        wanted = [(arm, seed) for arm in content.get("arms", [None]) for seed in content["seeds"]]
        whole = [(run.get("arm"), run["seed"]) for run in content["runs"]] == wanted and len(wanted) > 0
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a whole record ({error!r}); record {name} again") from error
    if not whole:
        raise ValueError(f"{path} lacks some of its seeds; record {name} again")
    return content


def recorded_curves(content: dict[str, Any], metric: str) -> tuple[list[int], dict[str, Float[Tensor, "R T"]]]:
    """What was measured on the way: the steps, and for each arm one row a seed. A single arm is called "recorded".

    An arm that trains for longer or shorter is measured at the same shares of its training; the steps are the first's.

    Args:
        content: a record, as :func:`load_record` gives it.
        metric: a name among the curves of its runs, such as "validation loss".
    """
    rows: dict[str, list[list[float]]] = {}
    for run in content["runs"]:
        rows.setdefault(run.get("arm", "recorded"), []).append([value for _, value in run["curves"][metric]])
    steps = [step for step, _ in content["runs"][0]["curves"][metric]]
    return steps, {arm: torch.tensor(values) for arm, values in rows.items()}


def describe_record(name: str, figure: str, profile: Profile = "full", *, arm: str | None = None) -> str:
    """One line for a notebook: mean ± standard error of a figure over the seeds, on what, or 'not recorded yet'.

    Args:
        figure: told in the unit that :func:`figure_unit` gives it.
        arm: which one, in an experiment that has arms.

    Raises:
        ValueError: if the experiment has no such arm.
    """
    arms = experiment(name).arms(profile)
    if arm not in arms:
        raise ValueError(f"{name} has no arm {arm!r}; there are {', '.join(map(str, arms))}")
    title = f"{name}, {profile} profile" if arm is None else f"{name}, {arm}, {profile} profile"
    content = load_record(name, profile)
    if content is None:
        return f"{title}: not recorded yet"
    runs = [run for run in content["runs"] if run.get("arm") == arm]
    told = describe_figure(figure, [run["figures"][figure] for run in runs])
    return f"{title}: {figure} {told} over {describe_runs(runs)} on {content['device']}"


def describe_runs(runs: Sequence[Mapping[str, Any]]) -> str:
    """How many seeds of an arm a record holds, how large the model is, and how long one took."""
    seconds, _ = mean_and_error([run["seconds"] for run in runs])
    return f"{len(runs)} seed{'s' * (len(runs) > 1)}, {runs[0]['parameters']:,} parameters, {seconds:.0f} s each"


def describe_figure(figure: str, values: Sequence[float]) -> str:
    """Mean ± standard error of a figure; of a single value, which says nothing of its error, the value."""
    mean, error = mean_and_error(values)
    factor, digits, unit = figure_unit(figure)
    spread = f" ± {factor * error:.{digits}f}" if len(values) > 1 else ""
    return f"{factor * mean:.{digits}f}{spread}{unit}".replace("-", "−")


def figure_unit(figure: str) -> tuple[int, int, str]:
    """What a figure is multiplied by to be told, the digits, and the unit. What has no unit of its own is a share."""
    if "loss" in figure:
        return 1, 3, ""
    if "step time" in figure:
        return 1, 2, " times"
    if "distance" in figure:
        return 1, 2, " tokens"
    if "rise" in figure:
        return 100, 2, " points"
    return (1, 1, " MB") if "MB" in figure else (100, 2, " %")
