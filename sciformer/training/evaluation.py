"""How good a model is: the mean of a metric over batches, and the loss of a language model."""

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sciformer.blocks import evaluating
from sciformer.functional import InputError
from sciformer.training.config import Batch
from sciformer.training.precision import mixed_precision


@torch.no_grad()
def broken_weight(model: nn.Module) -> str | None:
    """The name of the first parameter with a NaN or an infinite weight, if there is one.

    Each weight is looked at once and, of a model that is well, one number is read off its device.
    """
    if nn.utils.get_total_norm(model.parameters()).isfinite():
        return None
    return next((name for name, weight in model.named_parameters() if not weight.isfinite().all()), None)


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterable[Batch],
    metric: Callable[[Tensor, Tensor], Tensor],
    *,
    autocast: bool = True,
) -> float:
    """Mean of ``metric(model(*inputs), target)`` over all examples, without dropout and without gradients.

    Afterwards the model is in the mode that it was in before, training or evaluation.

    A model whose weights are not finite is refused, since it may look healthy: a fast path of attention can give a
    query with a NaN the output 0.

    Args:
        autocast: compute in mixed precision where the GPU has bfloat16, as training does. The rounding moves the mean
            over many examples far less than another seed does.

    Raises:
        FloatingPointError: if a weight is NaN or infinite; names the parameter.
        ValueError: if there is no example.
    """
    device = next(model.parameters()).device
    total, count = 0.0, 0
    with evaluating(model):
        for batch in batches:
            *inputs, target = (tensor.to(device) for tensor in batch)
            with mixed_precision(device, enabled=autocast):
                total += metric(model(*inputs), target).item() * len(target)
            count += len(target)
    if count == 0:
        raise InputError("there is nothing to evaluate on: batches is empty")
    if broken := broken_weight(model):
        raise FloatingPointError(f"the model has diverged: {broken} has weights that are not finite")
    return total / count


def next_token_loss(
    logits: Float[Tensor, "B L V"], targets: Int[Tensor, "B L"], *, pad: int | None = None
) -> Float[Tensor, ""]:
    """Mean of −log p(target) over all positions, in nats.

    Args:
        pad: the token of padding; positions where it is the target are left out.
    """
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100 if pad is None else pad)


def text_loss(model: nn.Module, tokens: Int[Tensor, "N"], length: int, *, batch_size: int = 64) -> float:
    """Mean of −log p over a whole text, in nats: every token but the first is predicted once, nothing is sampled.

    The text is cut into chunks of ``length`` from its beginning on, the last one shorter. A token sees only those
    before it in its own chunk, so the same text has a lower loss when it is cut into longer chunks.

    Raises:
        ValueError: if there is no second token, or the length is below 1.
    """
    if len(tokens) < 2 or length < 1:
        raise InputError(f"need 2 tokens or more and a length of 1 or more, got {len(tokens)} tokens, length {length}")
    whole = (len(tokens) - 1) // length * length
    inputs, targets = tokens[:-1], tokens[1:]
    chunks = [
        (inputs[:whole].view(-1, length), targets[:whole].view(-1, length)),
        (inputs[None, whole:], targets[None, whole:]),
    ]
    total = 0.0
    for chunk_inputs, chunk_targets in chunks:
        if chunk_inputs.numel():
            batches = zip(chunk_inputs.split(batch_size), chunk_targets.split(batch_size), strict=True)
            total += evaluate(model, batches, next_token_loss) * chunk_inputs.numel()
    return total / len(inputs)
