"""The number formats that a GPU trains in: bfloat16 and TensorFloat-32 where it has them, float32 everywhere else."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def mixed_precision(device: torch.device, *, enabled: bool = True) -> torch.autocast:
    """Inside, products are computed in bfloat16 and what needs more digits in float32, if the device has bfloat16.

    CUDA GPUs have it from compute capability 8.0 on (Ampere, 2020). Older ones, the T4 among them, only emulate it,
    and then everything stays in float32, as on a CPU and on Apple's GPUs. Float16, which older GPUs do have, is not
    used in its place: it ends at 65,504, which a score may exceed, and gradients below 6·10⁻⁸ become 0 unless the loss
    is scaled (Micikevicius et al. 2018, arXiv:1710.03740, section 3.2). A score of one's own would train on one GPU
    and overflow on another.
    """
    has_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.autocast("cuda", torch.bfloat16, enabled=enabled and has_bfloat16)


@contextmanager
def tensor_float_32(device: torch.device) -> Iterator[None]:
    """Inside, a CUDA GPU from Ampere on multiplies float32 matrices with factors of 10 binary digits in place of 23.

    This is several times faster and torch's default for convolutions, not for products of matrices
    (https://pytorch.org/docs/stable/notes/cuda.html, section TensorFloat-32). Other devices do as before.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
