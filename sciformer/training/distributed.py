"""Several processes, started by ``torchrun``, that train one model together."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous


@contextmanager
def joined(device: torch.device | str) -> Iterator[torch.device]:
    """Join the processes of ``torchrun``, if this is one of them, and give the device of this one.

    Processes on CUDA have a GPU each and talk by NCCL, all others by gloo. Started in any other way, a process stays
    alone and has the device that was asked for.
    """
    device = torch.device(device)
    if not dist.is_torchelastic_launched():
        yield device
        return
    on_cuda = device.type == "cuda"
    if on_cuda:
        device = torch.device("cuda", dist.get_node_local_rank())
        torch.cuda.set_device(device)
    # Where torchrun starts processes anew, the store may still hold the addresses of those that died.
    store, rank, count = next(rendezvous("env://"))
    store = dist.PrefixStore(f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    dist.init_process_group("nccl" if on_cuda else "gloo", store=store, rank=rank, world_size=count)
    try:
        yield device
    finally:
        dist.destroy_process_group()


def place() -> tuple[int, int]:
    """Which process this is, counted from 0, and how many there are: (0, 1) when it is alone."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def share(batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The examples of a batch that this process trains on: the n-th of N its n-th part.

    Raises:
        ValueError: if the processes do not divide the batch, since the mean of their means would not be its mean.
    """
    rank, count = place()
    if count == 1:
        return batch
    if len(batch[0]) % count:
        raise ValueError(f"{count} processes cannot share a batch of {len(batch[0])} equally")
    size = len(batch[0]) // count
    return tuple(tensor[rank * size : (rank + 1) * size] for tensor in batch)


def mean(value: Tensor) -> Tensor:
    """The mean of what each process has."""
    _, count = place()
    if count == 1:
        return value
    dist.all_reduce(value)
    return value / count
