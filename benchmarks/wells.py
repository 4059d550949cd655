"""Forward and backward of attention in energy wells: the readable path beside the fast one, time and peak memory.

    python benchmarks/wells.py [--form gradient] [--lengths 256 512 ...] [--repeats 3] [--threads 2] [--device cpu]

Memory is what torch had allocated at most during one forward and backward pass, beyond the inputs: counted by its
profiler on a CPU, by its allocator on CUDA. The process may hold more, as much as the C library's allocator loses to
fragments. A readable path is left out if eleven (B, H, L, L) tensors, its rough need, take more than --limit gigabytes.
"""

import argparse

import torch

from sciformer import EnergyWellScore
from sciformer.fast import attention
from sciformer.measure import median_seconds, peak_bytes
from sciformer.scores import WELLS

HEAD_DIM = 32


def cell(well: str, path: str, length: int, options: argparse.Namespace) -> str:
    """Median milliseconds and peak megabytes of one well at one length."""
    if path == "readable" and 11 * 4 * options.batch * options.heads * length**2 > options.limit * 1e9:
        return "too large"
    torch.manual_seed(0)
    shape = (options.batch, options.heads, length, HEAD_DIM)
    inputs = [torch.randn(shape, device=options.device, requires_grad=True) for _ in range(3)]
    score = EnergyWellScore(options.heads, HEAD_DIM, well=well, form=options.form).to(options.device)

    def run() -> None:
        attention(score, *inputs, need_weights=path == "readable")[0].sum().backward()
        if options.device == "cuda":
            torch.cuda.synchronize()

    seconds = median_seconds(run, options.repeats)
    return f"{1000 * seconds:8.1f} ms{peak_bytes(run, options.device) / 1e6:6.0f} MB"


def main() -> None:
    """Print one row for each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--form", choices=["gradient", "field"], default="gradient")
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--limit", type=float, default=8.0, help="gigabytes")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.device}, {options.threads} threads, median of {options.repeats}")
    print(f"form {options.form}, batch {options.batch}, {options.heads} heads of {HEAD_DIM}, float32; ms and MB")
    print("length path     | " + " | ".join(f"{well:>20}" for well in WELLS))
    for length in options.lengths:
        for path in ("readable", "fast"):
            cells = [f"{cell(well, path, length, options):>20}" for well in WELLS]
            print(f"{length:6} {path:8} | " + " | ".join(cells), flush=True)


if __name__ == "__main__":
    main()
