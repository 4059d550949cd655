"""Forward and backward of multi-head attention beside torch's own, in one run.

    python benchmarks/attention.py [--repeats 20] [--threads 2]

Peers, on the same sizes, weights, inputs and masks:

- nn.MultiheadAttention at its fastest setting: need_weights=False and, where causal, its is_causal flag;
- nn.MultiheadAttention at its default setting: it averages and returns the weights.

The contestants take turns, so that a noisy machine is noisy for all; the table gives medians and ratios to ours.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from sciformer import MultiHeadAttention

SIZES = [(64, 16, 64, 4), (32, 64, 128, 4), (8, 256, 256, 8), (2, 1024, 256, 8), (1, 1024, 512, 8)]


def contestants(embed_dim: int, num_heads: int, length: int, causal: bool) -> dict[str, Callable[[Tensor], Tensor]]:
    """One function from x to the output for each way of computing the same thing."""
    ours = MultiHeadAttention(embed_dim, num_heads)
    torchs = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)
    hidden = nn.Transformer.generate_square_subsequent_mask(length) if causal else None
    return {
        "ours": lambda x: ours(x, is_causal=causal)[0],
        "torch fastest": lambda x: torchs(x, x, x, attn_mask=hidden, is_causal=causal, need_weights=False)[0],
        "torch default": lambda x: torchs(x, x, x, attn_mask=hidden)[0],
    }


def seconds(run: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """Time of one forward and backward pass."""
    began = time.perf_counter()
    run(x).sum().backward()
    return time.perf_counter() - began


def main() -> None:
    """Print one row for each size and mask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        f"torch {torch.__version__}, {options.threads} threads, median of {options.repeats}; ratio > 1: ours is faster"
    )
    print("batch length embed heads causal |  ours ms | torch fastest: ms, ratio | torch default: ms, ratio")
    for batch, length, embed_dim, num_heads in SIZES:
        for causal in (False, True):
            torch.manual_seed(0)
            x = torch.randn(batch, length, embed_dim, requires_grad=True)
            runs = contestants(embed_dim, num_heads, length, causal)
            times: dict[str, list[float]] = {name: [] for name in runs}
            for repeat in range(options.repeats + 3):
                for name, run in runs.items():
                    elapsed = seconds(run, x)
                    if repeat >= 3:  # the first three warm up
                        times[name].append(elapsed)
            ms = {name: 1000 * statistics.median(t) for name, t in times.items()}
            peers = " | ".join(f"{ms[n]:13.2f} {ms[n] / ms['ours']:9.2f}" for n in ("torch fastest", "torch default"))
            print(f"{batch:5} {length:6} {embed_dim:5} {num_heads:5} {causal!s:6} | {ms['ours']:8.2f} | {peers}")


if __name__ == "__main__":
    main()
