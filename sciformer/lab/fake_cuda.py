"""A GPU that need not be there: what a module does on CUDA, in shapes, dtypes and devices, with no number computed.

This shows on any machine what only a GPU would tell: a tensor that was left on the CPU, two dtypes that meet under
autocast, and a number that is read in the middle of the work, for which a GPU makes the host wait. Torch's
``FakeTensorMode`` does most of it. As nothing is stored, a model of any size takes no memory.
"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

#: What is raised where a number of a fake tensor is asked for: ``.item()``, ``if`` on a tensor, ``x[mask]``.
READS_A_NUMBER = (DataDependentOutputException, DynamicOutputShapeException)


def can_fake_cuda() -> bool:
    """Whether this torch can: it has to be built with CUDA and, before version 2.10, to find a GPU.

    Older ones stop, or end the whole process, where the graph of a backward pass is recorded.
    """
    return torch.backends.cuda.is_built() and (torch.__version__ >= "2.10" or torch.cuda.is_available())


@contextmanager
def fake_cuda() -> Iterator[torch.device]:
    """Inside, all tensors are fake, ``cuda:0`` is a device, and autocast and ``loss.backward()`` work there.

    A module is moved as always, ``module.to(device)``; afterwards its parameters are fake for good.
    """
    with ExitStack() as stack:
        if not torch.cuda.is_available():  # where torch.autocast would turn itself off
            stack.enter_context(mock.patch("torch.cuda.amp.common.amp_definitely_not_available", return_value=False))
            stack.enter_context(mock.patch("torch.cuda.is_bf16_supported", return_value=True))
        stack.enter_context(mock.patch("torch.Tensor.backward", _backward))
        # torch.utils.checkpoint computes a block once for each backward pass, and asks which one this is.
        stack.enter_context(mock.patch("torch._C._current_graph_task_id", return_value=0))
        # What does not fit is raised; torch would also write it into its log.
        stack.enter_context(mock.patch.object(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        yield torch.device("cuda:0")


@torch.no_grad()
def _backward(loss: Tensor) -> None:
    """``loss.backward()``, node by node: torch's own engine looks for the streams of a real GPU."""
    arrived: dict[Any, dict[int, Tensor]] = {loss.grad_fn: {0: torch.ones_like(loss)}}
    for node in _in_order(loss.grad_fn):
        given = arrived.pop(node, None)
        if given is None:
            continue
        if hasattr(node, "variable"):  # a leaf
            leaf = node.variable
            leaf.grad = given[0] if leaf.grad is None else leaf.grad + given[0]
            continue
        run = node if callable(node) else node.apply  # torch's own, or a torch.autograd.Function
        results = run(*(given.get(i) for i in range(len(node._input_metadata))))
        results = results if isinstance(results, tuple) else (results,)
        # A torch.autograd.Function also returns a None for each of its last arguments, which are no tensors.
        for (after, place), gradient in zip(node.next_functions, results, strict=False):
            if after is not None and gradient is not None:
                gradient = _as_promised(gradient, after._input_metadata[place], node)
                slots = arrived.setdefault(after, {})
                slots[place] = slots[place] + gradient if place in slots else gradient


def _in_order(root: Any) -> list[Any]:
    """The nodes of a graph, each before those that it hands its gradients to."""
    finished: list[Any] = []
    seen, stack = set(), [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            finished.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(after, False) for after, _ in node.next_functions if after is not None]
    return finished[::-1]


def _as_promised(gradient: Tensor, wanted: Any, node: Any) -> Tensor:
    """A gradient with the shape and dtype of the tensor that it belongs to, as torch's engine makes it."""
    if gradient.device != wanted.device and gradient.dim():
        raise RuntimeError(f"a gradient of {node.name()} mixes devices: {gradient.device} for {wanted.device}")
    if gradient.shape != wanted.shape:
        gradient = gradient.sum_to_size(wanted.shape)
    return gradient.to(wanted.device, wanted.dtype)
