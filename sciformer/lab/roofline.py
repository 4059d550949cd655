"""How near a computation comes to what the machine allows: the roofline (Williams, Waterman and Patterson 2009).

A machine has two limits: how much it can compute in a second and how much it can move. An operation takes at least as
long as the slower of the two needs for it. Arithmetic is that of matrix products alone; exponentials and sums are part
of the traffic.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

#: Sides of the square matrices by whose product a machine shows how much it can compute.
SIDES = (512, 1024, 2048)
#: Bytes moved by the copies that show how much it can move: the small ones stay in its caches.
COPIES = tuple(2**n for n in range(18, 29))


@dataclass(frozen=True)
class Machine:
    """What a machine can do at most.

    Args:
        flops: operations a second in its fastest float32 matrix product.
        copies: bytes read and written by a copy, the smallest first, and as many of them a second in its fastest turn.
    """

    flops: float
    copies: Sequence[Sequence[int | float]]

    def bandwidth(self, moved: float) -> float:
        """Bytes a second in the copy that moves as many bytes, or the next larger one."""
        return next((speed for size, speed in self.copies if size >= moved), self.copies[-1][1])

    def seconds(self, flops: float, moved: float) -> float:
        """The least time of an operation: for its arithmetic, or for the bytes that it moves, whichever is more."""
        return max(flops / self.flops, moved / self.bandwidth(moved))


@dataclass(frozen=True)
class Cost:
    """What a computation asks of a machine.

    Args:
        flops: operations of its matrix products; a multiplication and its addition are two.
        bytes: inputs read and outputs written by each of its operations.
        least_seconds: what the machine needs at least, added up over the operations.
    """

    flops: int
    bytes: int
    least_seconds: float


def fastest(run: Callable[[], object], device: torch.device | str, *, repeats: int = 7) -> float:
    """Seconds of the quickest of several turns: what else the machine does can only slow a computation down."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        run()
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return min(times[1:])


def measure_machine(
    device: torch.device | str = "cpu", *, sides: Sequence[int] = SIDES, copies: Sequence[int] = COPIES
) -> Machine:
    """The fastest of several matrix products, and copies of several sizes."""
    speeds = []
    for moved in copies:
        source, target = torch.randn(2, moved // 8, device=device)  # 4 bytes of each number are read, and 4 written
        speeds.append((moved, moved / fastest(partial(target.copy_, source), device)))
    return Machine(measure_products(device, sides=sides), speeds)


def measure_products(device: torch.device | str = "cpu", *, sides: Sequence[int] = SIDES) -> float:
    """Operations a second in the fastest of several float32 matrix products."""
    rates = []
    for side in sides:
        a, b, product = torch.randn(3, side, side, device=device)
        rates.append(2 * side**3 / fastest(partial(torch.mm, a, b, out=product), device))
    return max(rates)


def cost(run: Callable[[], object], machine: Machine) -> Cost:
    """What ``run`` asks of the machine, counted operation by operation while it runs once."""
    with _Counter(machine) as counter:
        run()
    return Cost(counter.flops, counter.bytes, counter.seconds)


class _Counter(TorchDispatchMode):
    """Adds up what passes through torch's dispatcher, but for what only gives its input another shape."""

    def __init__(self, machine: Machine):
        super().__init__()
        self.machine, self.flops, self.bytes, self.seconds = machine, 0, 0, 0.0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        read = tree_leaves((args, {name: value for name, value in kwargs.items() if name != "out"}))
        inputs, outputs = ([x for x in leaves if isinstance(x, Tensor)] for leaves in (read, tree_leaves(result)))
        known = {x.untyped_storage()._cdata for x in inputs}
        is_view = not function._schema.is_mutable and all(x.untyped_storage()._cdata in known for x in outputs)
        if not is_view and "empty" not in function._schema.name:
            flops = operations(function, args, kwargs, result)
            moved = sum(size(x) for x in (*inputs, *outputs))
            self.flops, self.bytes = self.flops + flops, self.bytes + moved
            self.seconds += self.machine.seconds(flops, moved)
        return result


def size(x: Tensor) -> int:
    """Bytes of the numbers that a tensor shows; those that it repeats by broadcasting count once."""
    return x.itemsize * math.prod(n for n, stride in zip(x.shape, x.stride(), strict=True) if stride)


def operations(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> int:
    """Operations of arithmetic in the matrix products of one call of torch's."""
    formula = FUSED.get(function.overloadpacket)
    if formula is not None:
        return formula(*args, **kwargs)
    formula = flop_registry.get(function.overloadpacket)
    return 0 if formula is None else formula(*args, **kwargs, out_val=result)


def causal_share(query: Tensor, key: Tensor, is_causal: bool) -> float:
    """Which share of all pairs a fused kernel computes: a causal one leaves out the keys that are hidden."""
    return (key.shape[-2] + 1) / (2 * key.shape[-2]) if is_causal else 1.0


def fused_flops(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, **options: Any
) -> int:
    """Two products: the scores and the weighted values."""
    return round(causal_share(query, key, is_causal) * sdpa_flop_count(query.shape, key.shape, value.shape))


def fused_backward_flops(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    **options: Any,
) -> int:
    """Five products: the scores once more, and two gradients for each of the two products."""
    whole = sdpa_backward_flop_count(gradient.shape, query.shape, key.shape, value.shape)
    return round(causal_share(query, key, is_causal) * whole)


#: The fused kernels of the CPU, which torch's own counter leaves out.
FUSED: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: fused_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: fused_backward_flops,
}
