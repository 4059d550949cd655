"""Training a setting once, for one seed, and measuring what comes out.

More than 500 lines, so that the trainings of all settings stand in one file, to be compared.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sciformer.data import mnist, shakespeare
from sciformer.lab.measuring import fastest_seconds_in_turns, peak_bytes
from sciformer.lab.metrics import (
    accuracy,
    agreement,
    attention_distance,
    prefix_matching_score,
    previous_token_score,
    probe_accuracy,
)
from sciformer.lab.settings import (
    TEST_SEED,
    ConvolutionSetting,
    ImageSetting,
    InductionSetting,
    LanguageSetting,
    LookUpSetting,
    MaskedImageSetting,
    NamesSetting,
    PixelSetting,
    SequenceSetting,
)
from sciformer.models import ImageTransformer
from sciformer.training import Batch, History, OnStep, evaluate, fit, next_token_loss, text_loss
from sciformer.training.precision import mixed_precision


@dataclass
class Run:
    """One seed of an experiment.

    Args:
        metrics: what the run is judged by: the value of each metric, by name.
        details: more about the trained model, by name, as nested lists.
    """

    seed: int
    model: nn.Module
    history: History
    metrics: dict[str, float]
    details: dict[str, list] = field(default_factory=dict)


def now_and_then(name: str, measure: Callable[[nn.Module], float], steps: int, looks: int) -> OnStep:
    """A callback for ``fit`` that measures the model about ``looks`` times, the last time at the end."""
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
    """``fit`` as a setting says, with a checkpoint that belongs to this setting and seed alone."""
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
    setting: ImageSetting | LookUpSetting,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool = True,
    looks: int = 4,
    on_look: Callable[[int, float], None] = lambda step, value: None,
) -> Run:
    """Train once on all but what is held out; measure the accuracy on that. What the test asks takes no part in it.

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

    stream = setting.training_batches(seed, device)
    history = _fit(setting, seed, model, stream, F.cross_entropy, report, checkpoint=checkpoint, progress=progress)
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
    _measure_distances(run, run.model, setting, device)
    return run


def _measure_distances(run: Run, network: nn.Module, setting: PixelSetting, device: Any, when: str = "") -> None:
    """Add to the run how far each head of each layer looks, on 20 test digits, and its slopes if it has any."""
    model: Any = network.eval()
    with torch.no_grad():
        maps = model.attention_weights(setting.test_batches(device)[0][0][:20])
    distances = torch.stack([attention_distance(weights, width=setting.width) for weights in maps])  # (layers, H)
    run.metrics[f"attention distance{when}"] = distances.mean().item()
    run.details[f"attention distance{when}"] = distances.tolist()
    if setting.score == "distance":
        run.details[f"strength{when}"] = [block.attention.score.strength.tolist() for block in model.blocks]


def train_growing_pixels(
    setting: PixelSetting,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> Run:
    """Train on small digits, enlarge the model, train it on large ones; measure the test accuracy after each of these.

    Training on images that grow costs less for the same accuracy (Tan and Le 2021, arXiv:2104.00298, section 4). A
    distance bias has no table of positions that would have to grow with them.
    """
    of_small = None if checkpoint is None else Path(f"{checkpoint}.small")
    small = train_image_transformer(
        setting.coarse(), seed, device=device, checkpoint=of_small, progress=progress, looks=4
    )
    large = enlarged(small.model, setting).to(device)
    as_it_is = evaluate(large, setting.test_batches(device), accuracy)
    # 10,000 large digits take minutes of a CPU core, so this looks only at the end.
    run = train_image_transformer(
        setting, seed, device=device, checkpoint=checkpoint, progress=progress, looks=1, model=large
    )
    run.metrics |= {"test accuracy on small digits": small.metrics["test accuracy"], "test accuracy enlarged": as_it_is}
    run.details["loss on small digits"] = thinned(small.history.loss)
    run.history.seconds += small.history.seconds
    return run


def enlarged(model: nn.Module, setting: PixelSetting) -> ImageTransformer:
    """A trained distance-biased model, carried over to images twice as wide and twice as high.

    A token that was n steps away is now 2n steps away, so the slopes are halved to keep its penalty.

    Args:
        setting: that of the large model.
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
    validation = shakespeare("val")[0].to(device)
    run = _train_on_text(
        setting, seed, "validation loss", validation, looks, device=device, checkpoint=checkpoint, progress=progress
    )
    run.metrics["lowest validation loss"] = min(loss for _, loss in run.history.metrics["validation loss"])
    return run


def train_language_to_choose(
    setting: LanguageSetting,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> Run:
    """Train once on the setting's share of the training text; measure the loss on the rest of it, at the end."""
    rest = setting.held_out_text(device)
    return _train_on_text(
        setting, seed, "held-out loss", rest, 1, device=device, checkpoint=checkpoint, progress=progress
    )


def _train_on_text(
    setting: LanguageSetting, seed: int, metric: str, judged_on: Tensor, looks: int, *, device: Any, **options: Any
) -> Run:
    """Train once; measure the loss on another text about ``looks`` times, the last time at the end."""
    torch.manual_seed(seed)
    model = setting.model().to(device)
    look = now_and_then(metric, lambda model: text_loss(model, judged_on, setting.length), setting.train.steps, looks)
    stream = setting.training_batches(seed, device)
    history = _fit(setting, seed, model, stream, next_token_loss, look, **options)
    return Run(seed, model, history, {metric: history.metrics[metric][-1][1]})


def train_at_best_rate(
    setting: Any,
    seed: int,
    *,
    rates: Sequence[float],
    gains: Sequence[float] = (1.0,),
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> Run:
    """Train once at each learning rate and gain; test the model that does best on training data held out.

    So every arm of an experiment gets the same care, and neither test digits nor validation text have a say in it.

    Args:
        setting: of images, with digits held out; of text, a share of which is read; or of a look-up.
        rates: what the learning rate is chosen from.
        gains: what the gain of queries and keys at the start is chosen from, together with the rate.
    """
    on_text = isinstance(setting, LanguageSetting)
    train: Callable[..., Run] = train_language_to_choose if on_text else partial(train_to_choose, looks=1)
    judged_by, sign = ("held-out loss", -1) if on_text else ("validation accuracy", 1)
    runs = {}
    for gain, rate in product(gains, rates):
        own = None if checkpoint is None else Path(f"{checkpoint}.{rate:g}.{gain:g}")
        tried = replace(setting, train=replace(setting.train, lr=rate), gain=gain)
        runs[gain, rate] = train(tried, seed, device=device, checkpoint=own, progress=progress)
    values = {choice: run.metrics[judged_by] for choice, run in runs.items()}
    best = max(runs, key=lambda choice: sign * values[choice] if math.isfinite(values[choice]) else -math.inf)
    run = runs[best]
    if on_text:
        run.metrics["validation loss"] = text_loss(run.model, shakespeare("val")[0].to(device), setting.length)
    else:
        run.metrics["test accuracy"] = evaluate(run.model, setting.test_batches(device), accuracy)
    gain, rate = best
    tried_rates = [[rate, values[gain, rate]] for rate in rates]
    run.details |= {"learning rate": [rate], "gain": [gain], f"{judged_by} at each rate": tried_rates}
    run.history.seconds = sum(each.history.seconds for each in runs.values())
    return run


def train_pixels_at_best_rate(
    setting: PixelSetting, seed: int, *, device: torch.device | str = "cpu", **options: Any
) -> Run:
    """:func:`train_at_best_rate`; measure also how far the model's heads look, before training and after it."""
    run = train_at_best_rate(setting, seed, device=device, **options)
    if not isinstance(setting, ConvolutionSetting):
        torch.manual_seed(seed)  # with which the training began
        _measure_distances(run, setting.model().to(device), setting, device, " before training")
        _measure_distances(run, run.model, setting, device)
    return run


#: Lengths at which a model that was trained on chunks of 64 (quick) or 256 tokens (full) is judged, in these multiples.
LENGTHS = (1, 2, 4, 8)


def train_lengths(setting: LanguageSetting, seed: int, *, device: torch.device | str = "cpu", **options: Any) -> Run:
    """Train once; measure the validation loss also at multiples of the length that was trained."""
    run = train_language(setting, seed, device=device, looks=2, **options)
    validation = shakespeare("val")[0].to(device)
    for length in (factor * setting.length for factor in LENGTHS):
        run.metrics[f"validation loss at {length}"] = text_loss(run.model, validation, length, batch_size=16)
    return run


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
    test_images, test_labels = (tensor.to(device) for tensor in mnist("test", size=setting.test_size or setting.size))
    probe = partial(probe_accuracy, train=digits, test=(test_images, test_labels), penalties=setting.probe_penalties)
    metrics = {"probe accuracy of pixels": probe(nn.Flatten()), "probe accuracy untrained": probe(model.features)}

    test_batches = list(setting.hide(model, test_images.split(1000), 0))
    look = now_and_then(
        "test loss", lambda model: evaluate(model, test_batches, F.mse_loss), setting.train.steps, looks
    )
    stream = setting.training_batches(model, seed, device)
    history = _fit(setting, seed, model, stream, F.mse_loss, look, checkpoint=checkpoint, progress=progress)
    model.eval()
    metrics = {"probe accuracy": probe(model.features), **metrics, "test loss": history.metrics["test loss"][-1][1]}
    return Run(seed, model, history, metrics)


@torch.no_grad()
def exact_match(model: nn.Module, setting: SequenceSetting | NamesSetting, texts: Any, answers: list[str]) -> float:
    """Share of the texts for which the model, greedily, writes the answer and nothing else, from 0 to 1.

    Args:
        texts: what the setting makes sources of: a list of texts, or pictures (N, C, height, width).
    """
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
    Stories are tested on 10,000 that were not trained on, and on as many of twice the longest trained length.
    """
    tests: dict[str, tuple[Any, list[str]]] = {}
    if setting.task == "dates":
        tests["test exact match"] = setting.draw(10_000, TEST_SEED, days="test")
        tests["test exact match on new forms"] = setting.draw(10_000, TEST_SEED, forms="test")
        tests["test exact match on new days and forms"] = setting.draw(10_000, TEST_SEED, days="test", forms="test")
    else:
        known = set(setting.draw(setting.examples, seed)[0])
        texts, answers = setting.draw(20_000, TEST_SEED)
        new = [n for n, text in enumerate(texts) if text not in known][:10_000]
        tests["test exact match"] = [texts[n] for n in new], [answers[n] for n in new]
        times, said, count = {"reversal": (10, "ten times", 100), "stories": (2, "twice", 10_000)}[setting.task]
        far = times * setting.longest
        tests[f"test exact match at {said} the length"] = setting.draw(count, TEST_SEED, shortest=far, longest=far)
    return _train_to_write(setting, seed, tests, looks, device=device, checkpoint=checkpoint, progress=progress)


def _train_to_write(
    setting: SequenceSetting | NamesSetting,
    seed: int,
    tests: Mapping[str, tuple[Any, list[str]]],
    looks: int,
    *,
    device: Any,
    **options: Any,
) -> Run:
    """Train once; measure how many answers are right, those to 1,000 of the first test also on the way.

    Args:
        tests: sources and their answers, by the name of the metric.
    """
    torch.manual_seed(seed)
    model = setting.model().to(device)
    few, answers = (side[:1000] for side in tests["test exact match"])
    look = now_and_then(
        "exact match of 1,000", lambda model: exact_match(model, setting, few, answers), setting.train.steps, looks
    )
    loss = partial(next_token_loss, pad=0)
    stream = setting.training_batches(seed, device)
    history = _fit(setting, seed, model, stream, loss, look, **options)
    return Run(seed, model, history, {name: exact_match(model, setting, *test) for name, test in tests.items()})


def train_digit_names(
    setting: NamesSetting,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool = True,
    looks: int = 4,
) -> Run:
    """Train once; measure for how many of 10,000 rows of test digits all names are right to the last letter."""
    tests = {"test exact match": setting.test_rows(10_000, TEST_SEED)}
    return _train_to_write(setting, seed, tests, looks, device=device, checkpoint=checkpoint, progress=progress)


@torch.no_grad()
def induction(model: nn.Module, tokens: Tensor, period: Tensor) -> tuple[float, Tensor, Tensor]:
    """How well a model goes on with blocks that it has seen once, and where its heads look.

    Args:
        tokens: sequences that repeat a block, (B, L + 1); the last token is an answer alone.
        period: of each sequence, (B,).

    Returns:
        The share of right answers where the read token has stood in the sequence before, from 0 to 1; the
        previous-token scores and the prefix-matching scores of all heads, (layers, H) each.
    """
    network: Any = model
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    repeats = torch.arange(inputs.shape[1], device=tokens.device) >= period[:, None]  # (B, L)
    maps = network.attention_weights(inputs)
    right = (network(inputs).argmax(dim=-1) == targets)[repeats].float().mean().item()
    matching = torch.stack([prefix_matching_score(weights, period) for weights in maps])
    return right, torch.stack([previous_token_score(weights) for weights in maps]), matching


def train_induction(
    setting: InductionSetting,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    checkpoint: str | Path | None = None,
    progress: bool = True,
    looks: int = 20,
) -> Run:
    """Train once; then see, on 500 other sequences, whether it copies, and which heads look where.

    "prefix-matching score" is that of the head that has the highest one.
    """
    torch.manual_seed(seed)
    model = setting.model().to(device)
    tokens, period = (x.to(device) for x in setting.sequences(500, TEST_SEED))
    look = now_and_then(
        "accuracy on repeats", lambda model: induction(model, tokens, period)[0], setting.train.steps, looks
    )
    stream = setting.training_batches(seed, device)
    history = _fit(setting, seed, model, stream, next_token_loss, look, checkpoint=checkpoint, progress=progress)
    right, previous, matching = induction(model.eval(), tokens, period)
    metrics = {"accuracy on repeats": right, "prefix-matching score": matching.max().item()}
    details = {"previous-token score": previous.tolist(), "prefix-matching score": matching.tolist()}
    return Run(seed, model, history, metrics, details)


def step_cost(
    setting: ImageSetting | LanguageSetting | LookUpSetting,
    seed: int,
    *,
    device: torch.device | str = "cpu",
    repeats: int = 15,
) -> dict[str, float]:
    """What one step of training, forward and backward, costs a fresh model.

    The time is a multiple of that of dot-product attention in the same model. The two take turns, so that
    whatever else the machine does slows both.

    Returns:
        "step time against dot": the ratio of the shortest times. "peak MB": the most that torch had allocated at a time
        beyond the parameters, their gradients and the batch, in 10⁶ bytes.
    """
    on_cuda = torch.device(device).type == "cuda"
    *inputs, target = next(setting.training_batches(seed, device))

    def one_step(setting: ImageSetting | LanguageSetting | LookUpSetting) -> Callable[[], None]:
        model = setting.model().to(device)

        def step() -> None:
            with mixed_precision(torch.device(device)):
                loss = F.cross_entropy(model(*inputs).flatten(0, -2), target.flatten())
            loss.backward()
            if on_cuda:
                torch.cuda.synchronize()

        return step

    this, dot = one_step(setting), one_step(replace(setting, score="dot", score_options={}))
    seconds, seconds_of_dot = fastest_seconds_in_turns([this, dot], repeats)
    return {"step time against dot": seconds / seconds_of_dot, "peak MB": peak_bytes(this, device) / 1e6}


def train_and_weigh(
    train: Callable[..., Run], setting: Any, seed: int, *, device: torch.device | str = "cpu", **options: Any
) -> Run:
    """Train once as ``train`` does, and also measure what a step costs."""
    run = train(setting, seed, device=device, **options)
    run.metrics |= step_cost(setting, seed, device=device)
    return run


def thinned(losses: Sequence[float]) -> list[tuple[int, float]]:
    """The curve of a training as (step, mean loss since the point before): 200 points are enough."""
    loss = torch.tensor(losses)
    chunks = torch.arange(1, len(loss) + 1).tensor_split(min(200, len(loss)))
    return [(int(chunk[-1]), round(loss[chunk - 1].mean().item(), 5)) for chunk in chunks]
