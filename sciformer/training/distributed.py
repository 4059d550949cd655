"""Data-parallel training: several processes, started by ``torchrun``, train one model together.

Each process has a replica of the model and computes the gradient on its shard of every batch; the all-reduced mean of
the gradients is the gradient of the whole batch. Rank and world size are torch's: which process this is, counted from
0, and how many there are.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from sciformer.functional import InputError
from sciformer.training.config import Batch


@contextmanager
def process_group(device: torch.device | str) -> Iterator[torch.device]:
    """Join the process group of ``torchrun``, if it started this process; yields the device of this process.

    Processes on CUDA have a GPU each and communicate by NCCL, all others by gloo. A process that was started in any
    other way stays alone, with the device that was asked for.
    """
    device = torch.device(device)
    if not dist.is_torchelastic_launched():
        yield device
        return
    on_cuda = device.type == "cuda"
    if on_cuda:
        device = torch.device("cuda", dist.get_node_local_rank())
        torch.cuda.set_device(device)
    # When torchrun restarts the processes, the store may still hold the addresses of those that died.
    store, this_rank, size = next(rendezvous("env://"))
    store = dist.PrefixStore(f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    dist.init_process_group("nccl" if on_cuda else "gloo", store=store, rank=this_rank, world_size=size)
    try:
        yield device
    finally:
        dist.destroy_process_group()


def rank() -> int:
    """Which process this is, counted from 0; 0 when it is alone."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """How many processes train together; 1 when this one is alone."""
    return dist.get_world_size() if dist.is_initialized() else 1


def data_parallel(model: nn.Module) -> nn.Module:
    """The model, with gradients that are averaged over the processes in the backward pass."""
    return DistributedDataParallel(model) if world_size() > 1 else model


def shard(batch: Batch) -> Batch:
    """The examples of a batch that this process trains on: rank r takes the r-th of ``world_size()`` equal shards.

    Raises:
        ValueError: if the world size does not divide the batch: the mean over the shards' means would not be the mean
            over the batch.
    """
    if world_size() == 1:
        return batch
    if len(batch[0]) % world_size():
        raise InputError(f"{world_size()} processes cannot share a batch of {len(batch[0])} equally")
    size = len(batch[0]) // world_size()
    return tuple(tensor[rank() * size : (rank() + 1) * size] for tensor in batch)


def all_reduce_mean(value: Tensor) -> Tensor:
    """The mean of a value over all processes, the same in each of them; ``value`` itself is overwritten by the sum."""
    if world_size() == 1:
        return value
    dist.all_reduce(value)
    return value / world_size()
