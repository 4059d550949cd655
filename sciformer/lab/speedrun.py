"""The speedrun: how soon a character model reaches nanoGPT's loss on two CPU cores, and how a submission is checked.

A submission is a Python file with a function ``train(text, vocab_size, seed)`` that returns a model. What it may do,
and who has done it how quickly, is in docs/speedrun.md.
"""

import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from sciformer.blocks import evaluating
from sciformer.data import shakespeare
from sciformer.data.files import written_whole
from sciformer.functional import InputError
from sciformer.lab.forms import Form, read_json
from sciformer.lab.metrics import mean_and_error
from sciformer.lab.records import environment
from sciformer.lab.roofline import measure_products
from sciformer.lab.workers import worker_pool
from sciformer.training import evaluate, next_token_loss, text_loss

#: nanoGPT's validation loss on this text, in nats (https://github.com/karpathy/nanoGPT, README, "quick start").
TARGET = 1.4697
#: Tokens that a model may look at, and numbers that it may hold: nanoGPT's.
LENGTH = 256
NUMBERS = 10_700_000
#: Windows at random positions in the validation text, beside the text cut into chunks from its beginning on.
WINDOWS = 2_000
#: How far two computations of the same logits may lie apart: different sizes of a batch take different kernels.
TOLERANCE = 1e-3
#: Submissions, and beside each the record of its attempts.
FOLDER = Path(__file__).parents[2] / "speedrun"

#: Called as ``train(tokens of the training text, how many kinds of tokens there are, seed)``.
Train = Callable[[Tensor, int, int], nn.Module]


@dataclass(frozen=True)
class Attempt:
    """One seed of a submission.

    Args:
        seconds: from the call of ``train`` to its return.
        products: what this machine could have computed in that time, in 10¹² operations of float32 matrix products,
            as measured just before and just after. It is what two machines can be compared by.
        loss: of the whole validation text, in nats, cut into chunks of ``LENGTH`` tokens.
        window_loss: of ``WINDOWS`` windows of as many tokens at random positions.
        numbers: in parameters and buffers.
    """

    seed: int
    seconds: float
    products: float
    loss: float
    window_loss: float
    numbers: int


ATTEMPT: Form = {
    "seed": int,
    "seconds": float,
    "products": float,
    "loss": float,
    "window_loss": float,
    "numbers": int,
}
RECORD: Form = {
    "submission": str,
    "gained": str,
    "attempts": [ATTEMPT],
    "device": str,
    "versions": {str: str},
    "commit?": str,
    "date": str,
}


def attempt(path: Path, seed: int) -> Attempt:
    """Train one seed in a fresh process, with torch's own number of threads, and judge what comes back.

    Raises:
        InputError: if the file has no ``train``, or its model breaks a rule; says which.
        ChildProcessError: if the training is killed.
    """
    with worker_pool(1, threads=torch.get_num_threads()) as pool:
        return pool.submit(_attempt, path, seed).result()


def _attempt(path: Path, seed: int) -> Attempt:
    train = load_submission(path)
    text, vocabulary = shakespeare("train")
    validation = shakespeare("val")[0]
    speed = measure_products()
    began = perf_counter()
    model = train(text, len(vocabulary), seed)
    seconds = perf_counter() - began
    speed = (speed + measure_products()) / 2
    numbers = check_model(model, validation, len(vocabulary))
    loss, window_loss = text_loss(model, validation, LENGTH), windows_loss(model, validation)
    return Attempt(seed, seconds, seconds * speed / 1e12, loss, window_loss, numbers)


def load_submission(path: Path) -> Train:
    """The function ``train`` of a Python file.

    Raises:
        InputError: if it has none.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"a submission is a Python file, NAME.py, got {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    train = getattr(module, "train", None)
    if not callable(train):
        raise InputError(f"{path} has no function train(text, vocab_size, seed)")
    return train


def windows_loss(model: nn.Module, tokens: Int[Tensor, "N"]) -> float:
    """Mean of −log p over windows at random positions, the same for every model."""
    starts = torch.randint(len(tokens) - LENGTH, (WINDOWS, 1), generator=torch.Generator().manual_seed(0))
    chosen = tokens[starts + torch.arange(LENGTH + 1)]
    return evaluate(model, [(chunk[:, :-1], chunk[:, 1:]) for chunk in chosen.split(64)], next_token_loss)


@torch.no_grad()
def check_model(model: nn.Module, tokens: Int[Tensor, "N"], vocab_size: int) -> int:
    """Hold a model to the rules.

    That no logit knows the future is seen by replacing all that comes after a token. A gradient would show only what
    flows through embeddings, and a model may look its input up in tables.

    Returns:
        How many numbers it holds.

    Raises:
        InputError: if it breaks a rule; says which.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"train must return a model, an nn.Module, got {type(model).__name__}")
    if not list(model.parameters()):
        raise InputError("the model has no parameter: there is nothing that was learned")
    numbers = sum(x.numel() for x in [*model.parameters(), *model.buffers()])
    if numbers > NUMBERS:
        raise InputError(f"the model holds {numbers:,} numbers in parameters and buffers; {NUMBERS:,} are allowed")
    read = tokens[: 4 * LENGTH].view(4, LENGTH)
    before = {name: x.clone() for name, x in model.state_dict().items()}
    with evaluating(model):
        logits = model(read)
        if logits.shape != (*read.shape, vocab_size):
            wanted = (*read.shape, vocab_size)
            raise InputError(f"the logits of {tuple(read.shape)} tokens must be {wanted}, got {tuple(logits.shape)}")
        draw = torch.Generator().manual_seed(0)
        for kept in (1, LENGTH // 3, LENGTH // 2, LENGTH - 1):
            other = torch.randint(vocab_size, (4, LENGTH - kept), generator=draw)
            again = model(torch.cat((read[:, :kept], other), dim=1))
            if not torch.allclose(again[:, :kept], logits[:, :kept], atol=TOLERANCE, rtol=0):
                raise InputError(f"logits of the first {kept} tokens change with the tokens after them")
        if not torch.allclose(model(read[:1]), logits[:1], atol=TOLERANCE, rtol=0):
            raise InputError("the logits of a text change with what else is in its batch, or from call to call")
    after = model.state_dict()
    if before.keys() != after.keys() or any(not torch.equal(x, after[name]) for name, x in before.items()):
        raise InputError("the model's weights change while it reads")
    return numbers


def is_reached(attempts: Sequence[Attempt]) -> bool:
    """Whether the mean over the seeds is at or below the target, for the whole text and for random windows."""
    return max(fmean(a.loss for a in attempts), fmean(a.window_loss for a in attempts)) <= TARGET


def four_digits(losses: Sequence[float]) -> str:
    """Mean and standard error with as many digits as the target has."""
    mean, error = mean_and_error(losses)
    return f"{mean:.4f}" if len(losses) == 1 else f"{mean:.4f} ± {error:.4f}"


def describe(attempts: Sequence[Attempt]) -> str:
    """What several seeds came to, in one line."""
    return (
        f"{fmean(a.seconds for a in attempts):.0f} s, {fmean(a.products for a in attempts):.1f} · 10¹² operations, "
        f"validation loss {four_digits([a.loss for a in attempts])}, of random windows "
        f"{four_digits([a.window_loss for a in attempts])}, {attempts[0].numbers:,} numbers: "
        f"{TARGET} is {'' if is_reached(attempts) else 'not '}reached"
    )


def write_record(submission: Path, gained: str, attempts: Sequence[Attempt]) -> Path:
    """Keep beside a submission what was measured, and where."""
    content = {"submission": submission.name, "gained": gained, "attempts": [asdict(a) for a in attempts]}
    path = submission.with_suffix(".json")
    with written_whole(path) as beside:
        beside.write_text(json.dumps(content | environment(), indent=1) + "\n", encoding="utf-8")
    return path


def load_records(folder: Path = FOLDER) -> list[tuple[dict[str, Any], list[Attempt]]]:
    """Every record in a folder and its attempts, the slowest first.

    Raises:
        InputError: if a file is no record.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            content = read_json(path, RECORD)
        except InputError as error:
            raise InputError(f"{path} is not a whole record: {error}") from error
        found.append((content, [Attempt(**a) for a in content["attempts"]]))
    return sorted(found, key=lambda pair: -fmean(a.seconds for a in pair[1]))
