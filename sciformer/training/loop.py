"""A training loop that can be read from top to bottom."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from sciformer.functional import InputError, check_sizes
from sciformer.training import distributed
from sciformer.training.checkpoints import Checkpoint
from sciformer.training.config import Batch, History, OnStep, TrainConfig
from sciformer.training.evaluation import broken_weight
from sciformer.training.optimizers import make_optimizers, set_learning_rate
from sciformer.training.precision import mixed_precision

#: Losses and weights stay on the device and are looked at this often, so that a GPU need not wait in every step.
LOOK_EVERY = 50


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

    Where several processes train together (:func:`sciformer.training.distributed.process_group`), each is given the
    same batches and takes its shard of the examples; gradients and losses are those of the whole batch, as with one
    process. What the model itself draws at random, as dropout does, is the same in each. Rank 0 writes the checkpoint,
    and all start from it.

    Args:
        batches: yields ``(*inputs, target)``; started again when it runs out, as a DataLoader is after an epoch.
        loss_fn: ``loss_fn(model(*inputs), target)``, the mean over the batch.
        on_step: called as ``on_step(number of steps done, model)``; a mapping it returns goes into the history.
        checkpoint: file to save to every ``checkpoint_every`` steps. If it is there already, training goes on from it
            and ends with exactly the numbers of an uninterrupted run, provided that ``batches`` is the same sequence
            again (:func:`sciformer.data.batches` is).
        checkpoint_of: what is trained, in words, a seed for instance: a checkpoint of something else is refused.

    Returns:
        The history of the whole run, the part before an interruption included.

    Raises:
        FloatingPointError: if the loss or a weight is no longer finite; names the step and the learning rate.
        ValueError: if ``checkpoint_every`` is below 1, ``batches`` runs dry, the checkpoint is damaged or belongs to
            another configuration, or the world size does not divide a batch.
        OSError: before the first step, if the checkpoint cannot be written.
    """
    check_sizes(checkpoint_every=checkpoint_every)
    device = next(model.parameters()).device
    optimizers = make_optimizers(model, config)
    path = None if checkpoint is None else Path(checkpoint)
    saved = Checkpoint(path, checkpoint_every, checkpoint_of, model, optimizers, config)
    history, stream = saved.resume(_forever(batches))
    start = len(history.loss)
    losses = torch.zeros(config.steps, device=device)
    losses[:start] = torch.tensor(history.loss)

    forward: Callable[..., Tensor] = distributed.data_parallel(model)
    forward = torch.compile(forward) if config.compile else forward
    began = time.perf_counter() - history.seconds
    model.train()
    bar = _progress_bar(start, config.steps, shown=progress)
    for step in bar:
        *inputs, target = (tensor.to(device) for tensor in distributed.shard(next(stream)))
        set_learning_rate(optimizers, config.lr_at(step))
        with mixed_precision(device, enabled=config.autocast):
            loss = loss_fn(forward(*inputs), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

        losses[step] = distributed.all_reduce_mean(loss.detach())
        done = step + 1
        saving = saved.is_due(done)
        if saving or done % LOOK_EVERY == 0 or done == config.steps:
            _check_finite(losses[:done], model, config)
            bar.set_postfix(loss=f"{losses[max(0, done - LOOK_EVERY) : done].mean():.4f}", refresh=False)
        if on_step is not None:
            history.record(done, on_step(done, model))
            model.train()
        if saving:
            history.loss, history.seconds = losses[:done].tolist(), time.perf_counter() - began
            saved.save(history)

    history.loss, history.seconds = losses.tolist(), time.perf_counter() - began
    return history


def _progress_bar(start: int, steps: int, *, shown: bool) -> tqdm:
    """Iterates over the steps; of several processes only that of rank 0 shows the bar."""
    hidden = not shown or distributed.rank() > 0
    return tqdm(range(start, steps), initial=start, total=steps, desc="train", disable=hidden)


def _forever(batches: Iterable[Batch]) -> Iterator[Batch]:
    count = 0
    while True:
        before = count
        for batch in batches:
            yield batch
            count += 1
        if count == before:
            raise InputError(f"batches ran dry after {count}; pass something that can be started again")


def _check_finite(losses: Tensor, model: nn.Module, config: TrainConfig) -> None:
    bad, step = (~losses.isfinite()).nonzero(), len(losses) - 1
    if len(bad):
        step = int(bad[0])
        seen = f"the loss became {losses[step].item()} at"
    elif broken := broken_weight(model):  # which a loss need not show: a fast path may give a query of NaN the output 0
        seen = f"{broken} has weights that are not finite after"
    else:
        return
    raise FloatingPointError(
        f"{seen} step {step + 1} of {config.steps}, with learning rate {config.lr_at(step):.3g}; "
        "a smaller lr or a longer warm-up often helps"
    )
