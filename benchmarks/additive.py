"""Forward and backward of additive attention, separable (causal) and Bahdanau's: the readable form beside the fast one.

    python benchmarks/additive.py [--mechanisms separable additive] [--lengths 256 512 ...] [--repeats 3] [--threads 2]

Memory is what torch had allocated at most during one forward and backward pass, beyond the inputs; see
benchmarks/distance.py. A readable form is left out if its rough need takes more than --limit gigabytes. The error is
the largest by which a float32 output of the fast form is off from the readable path in float64, taken for some queries
at a time: for all of them or, where that would be more than 2²⁸ scores, for the last ones.
"""

import argparse

import torch

from sciformer import SCORES
from sciformer.fast import attention, query_blocks
from sciformer.measure import median_seconds, peak_bytes

LENGTHS = {
    "separable": [256, 512, 1024, 2048, 4096, 8192, 16384, 65536, 1_000_000],
    "additive": [128, 256, 512, 1024],
}
HEADS = {"separable": 1, "additive": 4}
HEAD_DIM = 32
#: How many numbers the readable form holds at a time for each score, roughly.
READABLE_NUMBERS = {"separable": 6, "additive": 3 * HEAD_DIM}


def row(name: str, heads: int, length: int, options: argparse.Namespace) -> str:
    """Milliseconds and megabytes of both forms, their ratios, and the fast form's error."""
    torch.manual_seed(0)
    shape = (options.batch, heads, length, HEAD_DIM)
    inputs = [torch.randn(shape, device=options.device, requires_grad=True) for _ in range(3)]
    score = SCORES[name](heads, HEAD_DIM).to(options.device)
    is_causal = name == "separable"

    def measured(need_weights: bool) -> tuple[float, float]:
        def run() -> None:
            attention(score, *inputs, is_causal=is_causal, need_weights=need_weights)[0].sum().backward()
            if options.device == "cuda":
                torch.cuda.synchronize()

        return 1000 * median_seconds(run, options.repeats), peak_bytes(run, options.device) / 1e6

    with torch.no_grad():
        output, _ = attention(score, *inputs, is_causal=is_causal)
        last = slice(-max(1, 2**28 // (options.batch * heads * length)), None)
        query, key, value = (x.double() for x in inputs)
        exact = query_blocks(score.double(), query[:, :, last], key, value, is_causal=is_causal)
        error = (output[:, :, last] - exact).abs().max().item()
        score.float()
    ms, megabytes = measured(need_weights=False)
    fast = f"{ms:9.1f} ms{megabytes:6.0f} MB"
    if 4 * READABLE_NUMBERS[name] * options.batch * heads * length**2 > options.limit * 1e9:
        return f"{'too large':>20} | {fast} | {'':6}   {'':6}   | {error:.1e}"
    readable_ms, readable_megabytes = measured(need_weights=True)
    ratios = f"{readable_ms / ms:6.1f} × {readable_megabytes / megabytes:6.1f} ×"
    return f"{readable_ms:9.1f} ms{readable_megabytes:6.0f} MB | {fast} | {ratios} | {error:.1e}"


def main() -> None:
    """Print one row for each mechanism and length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mechanisms", nargs="+", choices=list(LENGTHS), default=list(LENGTHS))
    parser.add_argument("--lengths", type=int, nargs="+", help="in place of each mechanism's own")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, help="in place of each mechanism's own")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--limit", type=float, default=8.0, help="gigabytes")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.device}, {options.threads} threads, median of {options.repeats}")
    print(f"batch {options.batch}, heads of {HEAD_DIM}, float32; ratio > 1: fast is faster or smaller")
    print(f"mechanism heads  length | {'readable':>20} | {'fast':>20} | {'time':>8} {'memory':>8} | error")
    for name in options.mechanisms:
        heads = options.heads or HEADS[name]
        for length in options.lengths or LENGTHS[name]:
            print(f"{name:9} {heads:5} {length:7} | {row(name, heads, length, options)}", flush=True)


if __name__ == "__main__":
    main()
