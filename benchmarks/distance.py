"""Forward and backward of distance-biased attention: the readable form beside the fast ones, time and peak memory.

    python benchmarks/distance.py [--lengths 256 512 ...] [--repeats 3] [--threads 2] [--device cpu]

Memory is what torch had allocated at most during one forward and backward pass, beyond the inputs: counted by its
profiler on a CPU, by its allocator on CUDA. The process may hold more, as much as the C library's allocator loses to
fragments. A readable form is left out if six (B, H, L, L) tensors, its rough need, take more than --limit gigabytes.
"""

import argparse

import torch

from sciformer import DistanceBiasedScore
from sciformer.fast import attention
from sciformer.measure import median_seconds, peak_bytes

#: Name of each form and its arguments of ``attention``.
FORMS = {
    "causal, readable": {"is_causal": True, "need_weights": True},
    "causal, fast": {"is_causal": True},
    "two-sided, readable": {"need_weights": True},
    "two-sided, fast": {},
}
HEAD_DIM = 32


def cell(form: str, length: int, options: argparse.Namespace) -> str:
    """Median milliseconds and peak megabytes of one form at one length."""
    if "readable" in form and 6 * 4 * options.batch * options.heads * length**2 > options.limit * 1e9:
        return "too large"
    torch.manual_seed(0)
    shape = (options.batch, options.heads, length, HEAD_DIM)
    inputs = [torch.randn(shape, device=options.device, requires_grad=True) for _ in range(3)]
    score = DistanceBiasedScore(options.heads, HEAD_DIM).to(options.device)

    def run() -> None:
        attention(score, *inputs, **FORMS[form])[0].sum().backward()
        if options.device == "cuda":
            torch.cuda.synchronize()

    seconds = median_seconds(run, options.repeats)
    return f"{1000 * seconds:8.1f} ms{peak_bytes(run, options.device) / 1e6:6.0f} MB"


def main() -> None:
    """Print one row for each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096, 8192])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--limit", type=float, default=8.0, help="gigabytes")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.device}, {options.threads} threads, median of {options.repeats}")
    print(f"batch {options.batch}, {options.heads} heads of {HEAD_DIM}, float32; ms and MB")
    print("length | " + " | ".join(f"{form:>20}" for form in FORMS))
    for length in options.lengths:
        print(f"{length:6} | " + " | ".join(f"{cell(form, length, options):>20}" for form in FORMS), flush=True)


if __name__ == "__main__":
    main()
