"""Training steps of the image and the language model beside peers of the same architecture.

Each peer has exactly as many parameters as ours. A step is everything: batch, forward, backward, clipping, update. All
train with AdamW in two groups. A peer that comes without a loop of its own trains in ours, ``sciformer.training.fit``,
and so differs in the model alone; nanoGPT's step is rebuilt whole from its description. Nothing is compiled.

On a GPU the models have the sizes of the full profile, elsewhere those of the quick one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sciformer.data import shakespeare
from sciformer.lab.experiments import MNIST_IMAGE_TRANSFORMER, SHAKESPEARE
from sciformer.lab.measuring import median_seconds_in_turns
from sciformer.lab.roofline import Machine, cost
from sciformer.lab.settings import ImageSetting, LanguageSetting, Profile
from sciformer.training import TrainConfig, fit, next_token_loss

#: One turn.
TRAIN = TrainConfig(steps=20, weight_decay=0.1, schedule="constant")
CHARACTERS = 65


def image_setting(profile: Profile) -> ImageSetting:
    """That of "mnist-image-transformer", read out by the mean over tokens, as peers do; the digits stay as they are."""
    setting = MNIST_IMAGE_TRANSFORMER[profile]
    return replace(setting, size="small", num_queries=0, augmentation={}, train=TRAIN)


def language_setting(profile: Profile) -> LanguageSetting:
    """That of "shakespeare", plain: nanoGPT's size for a CPU or for a GPU, without dropout."""
    return replace(SHAKESPEARE[profile]["plain"], dropout=0.0, train=TRAIN)


def vit_pytorch(setting: ImageSetting) -> nn.Module:
    """vit-pytorch's ViT, which sums up by the mean over tokens if asked to.

    It has two norms around the map of patches that ours has not, and no bias in queries, keys and values. Without the
    norms and with the biases it is ours.
    """
    from vit_pytorch import ViT

    model = ViT(
        image_size=28,
        patch_size=setting.patch_size,
        channels=1,
        num_classes=10,
        dim=setting.embed_dim,
        depth=setting.num_layers,
        heads=setting.num_heads,
        dim_head=setting.embed_dim // setting.num_heads,
        mlp_dim=round(setting.expansion * setting.embed_dim),
        pool="mean",
    )
    for n, part in enumerate(model.to_patch_embedding):
        if isinstance(part, nn.LayerNorm):
            model.to_patch_embedding[n] = nn.Identity()
    for attention, _ in model.transformer.layers:
        attention.to_qkv = nn.Linear(setting.embed_dim, 3 * setting.embed_dim)
    return model


def x_transformers(setting: LanguageSetting) -> nn.Module:
    """x-transformers' decoder through torch's fused kernels, its read-out tied to the embedding."""
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(
        dim=setting.embed_dim,
        depth=setting.num_layers,
        heads=setting.num_heads,
        attn_dim_head=setting.embed_dim // setting.num_heads,
        attn_flash=True,
        ff_no_bias=True,
    )
    return TransformerWrapper(num_tokens=CHARACTERS, max_seq_len=setting.length, attn_layers=layers, tie_embedding=True)


class NanoGPTBlock(nn.Module):
    """A pre-norm block with one projection for queries, keys and values."""

    def __init__(self, embed_dim: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.norms = nn.ModuleList(nn.LayerNorm(embed_dim, bias=False) for _ in range(2))
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False)
        self.out = nn.Linear(embed_dim, embed_dim, bias=False)
        up, down = nn.Linear(embed_dim, 4 * embed_dim, bias=False), nn.Linear(4 * embed_dim, embed_dim, bias=False)
        self.mlp = nn.Sequential(up, nn.GELU(), down)

    def forward(self, x: Tensor) -> Tensor:
        """Attention, then the feed-forward."""
        parts = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.mlp(self.norms[1](x))


class NanoGPT(nn.Module):
    """GPT-2's architecture, its read-out tied to the embedding."""

    def __init__(self, setting: LanguageSetting):
        super().__init__()
        E = setting.embed_dim
        self.tokens, self.positions = nn.Embedding(CHARACTERS, E), nn.Embedding(setting.length, E)
        self.blocks = nn.Sequential(*(NanoGPTBlock(E, setting.num_heads) for _ in range(setting.num_layers)))
        self.norm = nn.LayerNorm(E, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def our_loop(model: nn.Module, setting: ImageSetting | LanguageSetting, device: str) -> Callable[[], object]:
    """Some steps as the package trains."""
    loss = next_token_loss if isinstance(setting, LanguageSetting) else F.cross_entropy
    return partial(fit, model, setting.training_batches(0, device), loss, setting.train, progress=False)


def nano_gpt_loop(model: nn.Module, setting: LanguageSetting, device: str) -> Callable[[], object]:
    """Some steps as nanoGPT trains: the next batch is stacked from slices of the text."""
    text, length = shakespeare("train")[0], setting.length
    groups = [
        {"params": [p for p in model.parameters() if (p.dim() >= 2) == decays], "weight_decay": 0.1 * decays}
        for decays in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=device == "cuda")

    def run() -> None:
        for _ in range(setting.train.steps):
            starts = torch.randint(len(text) - length, (setting.batch_size,)).tolist()
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


#: For each task its setting and, by name, what makes each model and what trains it; ours first.
TASKS: dict[str, tuple[Callable[[Profile], Any], dict[str, tuple[Callable[..., nn.Module], Callable[..., Any]]]]] = {
    "image": (image_setting, {"sciformer": (ImageSetting.model, our_loop), "vit-pytorch": (vit_pytorch, our_loop)}),
    "language": (
        language_setting,
        {
            "sciformer": (LanguageSetting.model, our_loop),
            "nanoGPT, rebuilt": (NanoGPT, nano_gpt_loop),
            "x-transformers": (x_transformers, our_loop),
        },
    ),
}


def measure(*, repeats: int, machine: Machine, device: str = "cpu") -> Iterator[dict[str, Any]]:
    """Training steps per second of every model: medians over turns of as many steps as :data:`TRAIN` says.

    Yields:
        A row for each model, with "parameters", "steps per second", the "flops" and "bytes" of a step, and "share", how
        much of its time the machine needs at least; or with "why not".
    """
    for task, (setting_of, models) in TASKS.items():
        setting = setting_of("full" if device == "cuda" else "quick")
        rows, runs, costs = [], [], []
        for name, (build, loop) in models.items():
            row: dict[str, Any] = {"task": task, "model": name, "kind": "ours" if name == "sciformer" else "peer"}
            rows.append(row)
            torch.manual_seed(0)
            try:
                model = build(setting).to(device)
            except ImportError:
                row["why not"] = "not installed"
                continue
            row["parameters"] = sum(p.numel() for p in model.parameters())
            runs.append(loop(model, setting, device))
            costs.append(cost(runs[-1], machine))
        measured = iter(zip(costs, median_seconds_in_turns(runs, repeats), strict=True))
        for row in rows:
            if "why not" not in row:
                counted, seconds = next(measured)
                steps = setting.train.steps
                row |= {"flops": counted.flops / steps, "bytes": counted.bytes / steps}
                row |= {"steps per second": steps / seconds, "share": counted.least_seconds / seconds}
        yield from rows
