"""One training step of the character model beside nanoGPT's, at nanoGPT's two sizes: medians, in turns.

    python benchmarks/language.py [--size cpu|gpu] [--steps 100] [--rounds 5] [--threads 2] [--device cpu]

The peer is nanoGPT's step rebuilt from its description: GPT-2's architecture with one projection for queries, keys and
values, AdamW in two groups, the gradient clipped at 1, the next batch stacked from slices of the text. Both have the
same number of parameters and neither is compiled. A step is everything: batch, forward, backward, update. The third row
is a step of our own recipe for that size, the arm "token shift" of the experiment "shakespeare": a lower loss for more
time.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sciformer.data import shakespeare, text_batches
from sciformer.experiments import SHAKESPEARE
from sciformer.training import fit, next_token_loss

#: Layers, heads, width, length, batch, dropout.
SIZES = {"cpu": (4, 4, 128, 64, 12, 0.0), "gpu": (6, 6, 384, 256, 64, 0.2)}


class PeerBlock(nn.Module):
    """A pre-norm block with one projection for queries, keys and values."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.p = heads, dropout
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width, bias=False), nn.GELU(), nn.Linear(4 * width, width, bias=False)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then the feed-forward."""
        parts = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.p if self.training else 0.0)
        x = x + self.dropout(self.out(y.transpose(1, 2).flatten(-2)))
        return x + self.dropout(self.mlp(self.norms[1](x)))


class Peer(nn.Module):
    """GPT-2's architecture, its read-out tied to the embedding."""

    def __init__(self, layers: int, heads: int, width: int, length: int, dropout: float):
        super().__init__()
        self.tokens, self.places = nn.Embedding(65, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(PeerBlock(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return F.linear(self.norm(self.blocks(self.dropout(x))), self.tokens.weight)


def arm(name: str, text: Tensor, size: str, device: str) -> Callable[[int], None]:
    """Trains an arm of the experiment for some steps, as a user would."""
    setting = SHAKESPEARE["quick" if size == "cpu" else "full"][name]
    model = setting.model().to(device)
    stream = text_batches(text.to(device), setting.length, batch_size=setting.batch_size, seed=0)

    def run(steps: int) -> None:
        fit(model, stream, next_token_loss, setting.train.with_steps(steps), progress=False)

    return run


def peer(text: Tensor, size: str, device: str) -> Callable[[int], None]:
    """Trains the peer for some steps, as nanoGPT's loop does."""
    layers, heads, width, length, batch, dropout = SIZES[size]
    model = Peer(layers, heads, width, length, dropout).to(device)
    groups = [
        {"params": [p for p in model.parameters() if (p.dim() >= 2) == decays], "weight_decay": 0.1 * decays}
        for decays in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=device == "cuda")

    def run(steps: int) -> None:
        for _ in range(steps):
            starts = torch.randint(len(text) - length, (batch,)).tolist()
            x = torch.stack([text[i : i + length] for i in starts]).to(device)
            y = torch.stack([text[i + 1 : i + 1 + length] for i in starts]).to(device)
            with torch.autocast("cuda", torch.bfloat16, enabled=device == "cuda"):
                loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss.item()

    return run


def main() -> None:
    """Print the milliseconds of a step, and the ratio to the peer's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="cpu")
    parser.add_argument("--steps", type=int, default=50, help="of one round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    text, _ = shakespeare("train")
    runs = {
        "nanoGPT's step": peer(text, options.size, options.device),
        "sciformer's step": arm("plain", text, options.size, options.device),
        "our recipe's step": arm("token shift", text, options.size, options.device),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for one in runs.values():
        one(5)
    for _ in range(options.rounds):
        for name, one in runs.items():
            began = time.perf_counter()
            one(options.steps)
            times[name].append(1000 * (time.perf_counter() - began) / options.steps)
    print(f"torch {torch.__version__}, {options.device}, {options.threads} threads, {options.size} size; ms a step")
    base = statistics.median(times["nanoGPT's step"])
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:17} median {median:7.2f}, fastest {min(values):7.2f}, ratio {median / base:.3f}")


if __name__ == "__main__":
    main()
