"""Makes a kernel rehearse: the full profile, two steps of training on two examples, on a GPU or one the CPU plays.

Imported before a notebook's first cell. Widths, shapes, arms and seeds stay those of the full profile. A verdict is
written down and not enforced, since what it judges was not trained; time and memory are not measured.
"""

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pretend_cuda
import torch
from test_structure import modules
from torch import Tensor, nn

from sciformer import course
from sciformer.data import batches, dates, mnist, reversals, text_batches
from sciformer.lab import measuring, trainers
from sciformer.lab.fake_cuda import can_fake_cuda
from sciformer.lab.metrics import probe_accuracy
from sciformer.models.decoding import generate
from sciformer.teach import capstone
from sciformer.training import Batch, History, OnStep, TrainConfig, evaluate, fit

FEW = 2


def few(batch: Batch) -> Batch:
    """The first examples of a batch."""
    return tuple(x[:FEW] for x in batch)


def short_fit(
    model: nn.Module,
    batches: Iterable[Batch],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    config: TrainConfig,
    on_step: OnStep | None = None,
    **options: Any,
) -> History:
    """Two steps; the history is as long as the configuration says and goes on with the last loss.

    Raises:
        AssertionError: if the notebook has left its model on the CPU although there is a GPU.
    """
    device = next(model.parameters()).device.type
    if device != os.environ["REHEARSAL_DEVICE"]:
        raise AssertionError(f"a model is trained on {device}, and there is {os.environ['REHEARSAL_DEVICE']}")
    two = [few(batch) for batch in itertools.islice(batches, 2)]
    history = fit(model, two, loss_fn, config.with_steps(2), **options)
    history.loss += history.loss[-1:] * (config.steps - len(history.loss))
    for step in range(1, config.steps + 1):
        history.record(step, on_step(step, model) if on_step else None)
    return history


def short_evaluate(model: nn.Module, batches: Iterable[Batch], metric: Callable[[Tensor, Tensor], Tensor]) -> float:
    """The metric of the first batch's first examples."""
    return evaluate(model, [few(batch) for batch in itertools.islice(batches, 1)], metric)


def embedded_mnist(split: str = "train", *, size: str = "small", root: object = None) -> tuple[Tensor, Tensor]:
    """The digits of the package, whatever size is asked for."""
    return mnist(split, size="small")


def short_exact_match(model: nn.Module, setting: Any, texts: list[str], answers: list[str]) -> float:
    """Of the first texts alone."""
    return exact_match(model, setting, texts[:FEW], answers[:FEW])


def short_generate(model: nn.Module, prompt: Tensor, count: int, **options: Any) -> Tensor:
    """A beginning of the text that is asked for."""
    return generate(model, prompt, min(count, 20), **options)


def short_text_loss(model: nn.Module, tokens: Tensor, length: int) -> float:
    """Of the first characters alone."""
    return text_loss(model, tokens[: FEW * length + 1], length)


def short_probe_accuracy(encode: Any, train: tuple[Tensor, ...], test: tuple[Tensor, ...], **options: Any) -> float:
    """Fitted on the first hundred images and judged by as many, with one penalty where none is given."""
    train, test = (tuple(x[:100] for x in pair) for pair in (train, test))
    return probe_accuracy(encode, train, test, **{"penalties": (0.01,)} | options)


def in_fours(stream: Callable) -> Callable:
    """A stream of batches of four examples at most: training loops that stand open in a notebook take it."""
    return lambda *data, batch_size, **options: stream(*data, batch_size=min(batch_size, 4), **options)


def fewer(make: Callable) -> Callable:
    """The maker of so many examples, which makes a few hundred at most."""
    return lambda count, **options: make(min(count, 300), **options)


def record_verdict(name: str, value: float, **options: Any) -> None:
    """Write a verdict down."""
    with open(os.environ["SCIFORMER_VERDICTS"], "a") as file:
        file.write(json.dumps({"name": name, "value": float(value), **options}) + "\n")


def replace(old: object, new: object) -> None:
    """Give every module of the package the new function for the old one."""
    for module in [module for name, module in sys.modules.items() if name.split(".")[0] == "sciformer"]:
        for name in [name for name, value in vars(module).items() if value is old]:
            setattr(module, name, new)


list(modules())  # `replace` finds what has been imported
exact_match, text_loss = trainers.exact_match, trainers.text_loss
replace(fit, short_fit)
replace(evaluate, short_evaluate)
replace(mnist, embedded_mnist)
replace(exact_match, short_exact_match)
replace(measuring.median_seconds_in_turns, lambda runs, repeats: [1.0 for _ in runs])
replace(capstone.kept_bytes, lambda forward, inputs=(): 1)
replace(measuring.peak_bytes, lambda run, device: 1)
replace(text_loss, short_text_loss)
replace(probe_accuracy, short_probe_accuracy)
replace(generate, short_generate)
replace(batches, in_fours(batches))
replace(text_batches, in_fours(text_batches))
replace(reversals, fewer(reversals))
replace(dates, fewer(dates))
replace(course.verdict, record_verdict)
if os.environ["REHEARSAL_DEVICE"] == "cuda" and not torch.cuda.is_available():
    replace(can_fake_cuda, lambda: False)  # two promises of the property suite: one GPU that is not there is enough
    pretend_cuda.play()
