"""A training loop that can be read from top to bottom."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from sciformer.blocks import evaluating
from sciformer.data.files import written_whole
from sciformer.training import distributed
from sciformer.training.optimizers import Muon

#: A batch is what the model takes, followed by what it should have given.
Batch = tuple[Tensor, ...]
OnStep = Callable[[int, nn.Module], Mapping[str, float] | None]

#: Losses stay on the device and are looked at this often, so that a GPU is not made to wait in every step.
LOOK_EVERY = 50


@dataclass(frozen=True)
class TrainConfig:
    """How to train: everything but the model, the data and the loss.

    Args:
        steps: number of updates.
        lr: learning rate at its peak; it rises linearly for ``warmup_steps`` and then follows the ``schedule``.
        schedule: to 0 along a half ``"cosine"``, to 0 along a ``"line"``, or not at all (``"constant"``).
        optimizer: ``"adamw"``, or ``"muon"`` for the weight matrices of the stacked blocks and AdamW for the rest;
            ``"normuon"``, where that is Muon with even rows.
        weight_decay: on matrices only, not on biases and norms.
        grad_clip: largest norm of the whole gradient.
        autocast: on CUDA, compute in bfloat16 where torch holds that to be safe. Elsewhere it changes nothing.
        compile: pass the model through ``torch.compile`` first.

    Raises:
        ValueError: if a number is out of its range or the optimizer is unknown.
    """

    steps: int
    lr: float = 1e-3
    optimizer: Literal["adamw", "muon", "normuon"] = "adamw"
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.99)
    warmup_steps: int = 0
    grad_clip: float = 1.0
    autocast: bool = True
    compile: bool = False
    schedule: Literal["cosine", "line", "constant"] = "cosine"

    def __post_init__(self):
        if self.schedule not in ("cosine", "line", "constant"):
            raise ValueError(f'schedule must be "cosine", "line" or "constant", got {self.schedule!r}')
        if self.optimizer not in ("adamw", "muon", "normuon"):
            raise ValueError(f'optimizer must be "adamw", "muon" or "normuon", got {self.optimizer!r}')
        if self.steps < 1 or not 0 <= self.warmup_steps <= self.steps:
            raise ValueError(f"got {self.steps} steps, {self.warmup_steps} of them warm-up; need 0 <= warm-up <= steps")
        if not self.lr > 0 or not self.grad_clip > 0:
            raise ValueError(f"lr and grad_clip must be positive, got {self.lr} and {self.grad_clip}")

    def with_steps(self, steps: int) -> "TrainConfig":
        """The same training with another number of steps; the warm-up is cut where it would not fit."""
        return replace(self, steps=steps, warmup_steps=min(steps, self.warmup_steps))

    def lr_at(self, step: int) -> float:
        """Learning rate of update number ``step``, counted from 0."""
        if step < self.warmup_steps:
            return self.lr * (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)  # all may be warm-up
        left = {"cosine": (1 + math.cos(math.pi * done)) / 2, "line": 1 - done, "constant": 1.0}[self.schedule]
        return self.lr * left


@dataclass
class History:
    """What happened: the loss of every step, whatever ``on_step`` returned as (step, value), and the time it took."""

    loss: list[float] = field(default_factory=list)
    metrics: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    seconds: float = 0.0


def fit(
    model: nn.Module,
    batches: Iterable[Batch],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    config: TrainConfig,
    on_step: OnStep | None = None,
    *,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 500,
    checkpoint_of: str = "",
    progress: bool = True,
) -> History:
    """Train ``model`` in place, on the device where it is.

    Where several processes train together (:func:`sciformer.training.distributed.joined`), each is given the same
    batches and takes its share of the examples; gradients and losses are those of the whole batch, as with one process.
    What the model itself draws, as dropout does, is the same in each. The first writes the checkpoint, and all start
    from it.

    Args:
        batches: yields (*inputs, target); started anew when it runs out, as a DataLoader is after an epoch.
        loss_fn: ``loss_fn(model(*inputs), target)``, the mean over the batch.
        on_step: called as ``on_step(number of steps done, model)``; a mapping it returns goes into the history.
        checkpoint: file to save to every ``checkpoint_every`` steps. If it is there already, training goes on from it
            and ends with exactly the numbers of an uninterrupted run, provided that ``batches`` is the same sequence
            again (:func:`sciformer.data.batches` is).
        checkpoint_of: what is trained, in words, a seed for instance: a checkpoint of something else is refused.

    Returns:
        The history of the whole run, the part before an interruption included.

    Raises:
        FloatingPointError: if the loss is no longer finite; names the step and the learning rate.
        ValueError: if ``batches`` runs dry, or the checkpoint is damaged or belongs to another configuration; if the
            processes do not divide a batch.
    """
    device = next(model.parameters()).device
    optimizers = make_optimizers(model, config)
    rank, processes = distributed.place()
    forward: Callable[..., Tensor] = DistributedDataParallel(model) if processes > 1 else model
    forward = torch.compile(forward) if config.compile else forward
    losses = torch.zeros(config.steps, device=device)
    history, start, rng = History(), 0, None
    if checkpoint is not None and Path(checkpoint).exists():
        history, start, rng = _load_checkpoint(Path(checkpoint), model, optimizers, config, checkpoint_of)
        losses[:start] = torch.tensor(history.loss)
    stream = islice(_forever(batches), start, None)

    began = time.perf_counter() - history.seconds
    model.train()
    silent = not progress or rank > 0
    bar = tqdm(range(start, config.steps), initial=start, total=config.steps, desc="train", disable=silent)
    for step in bar:
        *inputs, target = (tensor.to(device) for tensor in distributed.share(next(stream)))
        if rng is not None:  # after the skipped batches, which may have drawn random numbers
            _set_rng(rng, device)
            rng = None
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = config.lr_at(step)

        with torch.autocast("cuda", torch.bfloat16, enabled=config.autocast and device.type == "cuda"):
            loss = loss_fn(forward(*inputs), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses[step] = distributed.mean(loss.detach())

        done = step + 1
        saving = checkpoint is not None and rank == 0 and (done % checkpoint_every == 0 or done == config.steps)
        if done % LOOK_EVERY == 0 or done == config.steps or saving:
            _check_finite(losses[:done], config)
            bar.set_postfix(loss=f"{losses[max(0, done - LOOK_EVERY) : done].mean():.4f}", refresh=False)
        if on_step is not None:
            for name, value in (on_step(done, model) or {}).items():
                history.metrics.setdefault(name, []).append((done, value))
            model.train()
        if saving:
            history.loss, history.seconds = losses[:done].tolist(), time.perf_counter() - began
            _save_checkpoint(Path(checkpoint), model, optimizers, config, history, checkpoint_of)  # type: ignore[arg-type]

    history.loss, history.seconds = losses.tolist(), time.perf_counter() - began
    return history


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Batch], metric: Callable[[Tensor, Tensor], Tensor]) -> float:
    """Mean of ``metric(model(*inputs), target)`` over all examples, without dropout and without gradients.

    The mode that the model was in, training or not, is put back.

    Raises:
        ValueError: if there is no example.
    """
    device = next(model.parameters()).device
    total, count = 0.0, 0
    with evaluating(model):
        for batch in batches:
            *inputs, target = (tensor.to(device) for tensor in batch)
            total += metric(model(*inputs), target).item() * len(target)
            count += len(target)
    if count == 0:
        raise ValueError("there is nothing to evaluate on: batches is empty")
    return total / count


def next_token_loss(
    logits: Float[Tensor, "B L V"], targets: Int[Tensor, "B L"], *, pad: int | None = None
) -> Float[Tensor, ""]:
    """Mean of −log p(target) over all places, in nats.

    Args:
        pad: the token of padding; places where it is the target are left out.
    """
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100 if pad is None else pad)


def text_loss(model: nn.Module, tokens: Int[Tensor, "N"], length: int, *, batch_size: int = 64) -> float:
    """Mean of −log p over a whole text, in nats: every token but the first is predicted once, nothing is sampled.

    The text is cut into pieces of ``length`` from its beginning on, the last one shorter. In its piece a token sees
    only those before it, so the same text has a lower loss when it is cut into longer pieces.

    Raises:
        ValueError: if there is no second token.
    """
    if len(tokens) < 2 or length < 1:
        raise ValueError(f"need 2 tokens or more and a length of 1 or more, got {len(tokens)} tokens, length {length}")
    whole = (len(tokens) - 1) // length * length
    inputs, targets = tokens[:-1], tokens[1:]
    pieces = [
        (inputs[:whole].view(-1, length), targets[:whole].view(-1, length)),
        (inputs[None, whole:], targets[None, whole:]),
    ]
    total = 0.0
    for piece in pieces:
        if piece[0].numel():
            batches = zip(*(part.split(batch_size) for part in piece), strict=True)
            total += evaluate(model, batches, next_token_loss) * piece[0].numel()
    return total / len(inputs)


def make_optimizers(model: nn.Module, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """AdamW for everything, or Muon for the hidden matrices beside it.

    Muon is for the linear maps inside the stacked blocks (the model's ``nn.ModuleList``); embeddings and the read-out,
    whose rows belong to single tokens or classes, stay with AdamW, as Muon's authors advise.

    Raises:
        ValueError: if Muon is asked for and the model has no stacked blocks.
    """
    by_muon: list[nn.Parameter] = []
    if config.optimizer != "adamw":
        stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
        linears = {layer for stack in stacks for layer in stack.modules() if isinstance(layer, nn.Linear)}
        by_muon = [layer.weight for layer in model.modules() if layer in linears]  # type: ignore[misc]
        if not by_muon:
            raise ValueError("Muon needs a model whose blocks stand in an nn.ModuleList, and this one has none")
    muon_ids = {id(p) for p in by_muon}
    rest = [p for p in model.parameters() if id(p) not in muon_ids]
    groups = [
        {"params": [p for p in rest if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in rest if p.dim() < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True)
    if not by_muon:
        return [adamw]
    even_rows = config.optimizer == "normuon"
    return [Muon(by_muon, lr=config.lr, weight_decay=config.weight_decay, even_rows=even_rows), adamw]


def _forever(batches: Iterable[Batch]) -> Iterator[Batch]:
    count = 0
    while True:
        before = count
        for batch in batches:
            yield batch
            count += 1
        if count == before:
            raise ValueError(f"batches ran dry after {count}; pass something that can be started again")


def _check_finite(losses: Tensor, config: TrainConfig) -> None:
    bad = (~losses.isfinite()).nonzero()
    if len(bad):
        step = int(bad[0])
        raise FloatingPointError(
            f"the loss became {losses[step].item()} at step {step + 1} of {config.steps}, with learning rate "
            f"{config.lr_at(step):.3g}; a smaller lr or a longer warm-up often helps"
        )


def _save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    config: TrainConfig,
    history: History,
    of: str,
) -> None:
    state = {
        "of": of,
        "config": asdict(config),
        "history": asdict(history),
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state() if torch.cuda.is_available() else torch.empty(0),
    }
    with written_whole(path) as beside:
        torch.save(state, beside)


def _load_checkpoint(
    path: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer], config: TrainConfig, of: str
) -> tuple[History, int, tuple[Tensor, Tensor]]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        saved, saved_of = state["config"], state["of"]
    except Exception as error:
        raise ValueError(
            f"{path} is not a whole checkpoint ({type(error).__name__}); delete it to start from the beginning"
        ) from error
    if saved != asdict(config):
        other = {k: (saved.get(k), v) for k, v in asdict(config).items() if saved.get(k) != v}
        raise ValueError(f"{path} was made with another configuration (saved, asked for): {other}")
    if saved_of != of:
        raise ValueError(f"{path} was made by another run (saved, asked for): {saved_of!r}, {of!r}")
    model.load_state_dict(state["model"])
    for optimizer, saved_optimizer in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved_optimizer)
    history = History(**state["history"])
    return history, len(history.loss), (state["rng"], state["cuda_rng"])


def _set_rng(rng: tuple[Tensor, Tensor], device: torch.device) -> None:
    on_cpu, on_cuda = rng
    torch.set_rng_state(on_cpu)
    if device.type == "cuda" and len(on_cuda):
        torch.cuda.set_rng_state(on_cuda, device)
