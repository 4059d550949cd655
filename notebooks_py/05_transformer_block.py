# %% [markdown]
# # 05 The transformer block
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/05_transformer_block.ipynb)
#
# ← [04 Positions](04_positions.ipynb) · [the map of the course](00_welcome.ipynb) · [06 Image transformer](06_image_transformer.ipynb) →
#
# Needs: notebook 03 · runs in about 60 s on two CPU cores · about 2 hours of study

# %% [markdown]
# After this notebook you can
#
# - say why a stack of nothing but attention forgets which token is which, and measure it;
# - build residual connection, layer norm and feed-forward by hand, and put them together in both orders;
# - predict from the first gradient which deep stack will train, and check it.
#
# New against 03: everything that stands *around* attention.

# %%
# Set-up: where sciformer is missing (Colab) this fetches it, and leaves torch alone.
import importlib.util
import os
import subprocess
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: threads that wait leave their core to others
if importlib.util.find_spec("sciformer") is None:
    address = "sciformer @ git+https://github.com/sciformer/sciformer"
    subprocess.check_call([sys.executable, "-m", "pip", "install", "-q", address])

# %%
import math

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

from sciformer import FeedForward, ImageTransformer, MultiHeadAttention, TransformerBlock, check, course, plotting
from sciformer.data import batches, mnist
from sciformer.training import TrainConfig, fit

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
words = ["the", "cat", "sat", "on", "the", "mat"]

# %% [markdown]
# ## Predict first
#
# Six tokens pass through twelve attention layers with random weights, one after the other and nothing in between. How
# much of the difference between the tokens is left at the end: most of it, half, a tenth, or none? And which single `+`
# would change that?

# %% [markdown]
# ## Attention alone is an average
#
# Three tokens with one feature each, and attention weights that you can check by hand. Apply them again and again.

# %%
weights = torch.tensor([[0.50, 0.25, 0.25], [0.25, 0.50, 0.25], [0.25, 0.25, 0.50]])
tokens = torch.tensor([[0.0], [4.0], [8.0]])
for layer in range(4):
    print(f"after {layer}:", tokens.flatten().tolist())
    tokens = weights @ tokens


# %% [markdown]
# An average lies between the smallest and the largest of what goes in, so the tokens can only move together.
#
# To measure it, take away the mean token and compare what is left with the whole.
#
# $$r(X) = \frac{\lVert X - \mathbf 1 \bar x^\top \rVert}{\lVert X \rVert}$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $X$, tokens in rows | `x` | (L, E) |
# | $\bar x$, the mean token | `x.mean(dim=-2)` | (E,) |

# %%
def variation(x):  # (..., L, E)
    centred = x - x.mean(dim=-2, keepdim=True)
    return (centred.norm() / x.norm()).item()


[round(variation(torch.tensor(rows)), 3) for rows in ([[1.0, 0.0], [0.0, 1.0]], [[2.0, 3.0], [2.0, 3.0]])]

# %% [markdown]
# Now real attention: multi-head, random weights, twelve layers. Biases are left out, so that what we see is averaging
# alone; double precision, so that we see far.

# %%
names = sorted(set(words))
table = torch.randn(len(names), 32, dtype=torch.float64)
x = table[[names.index(word) for word in words]][None]  # (1, L, E)
stack = [TransformerBlock(32, 4, bias=False).double().requires_grad_(False) for _ in range(12)]
print(f"before the first layer: {variation(x):.2f}")


# %%
def through(step, x):
    states = [x]
    for block in stack:
        states.append(step(block, states[-1]))
    return states


attention_only = through(lambda block, x: block.attention(x)[0], x)
print("variation after 1 and 2 layers:", *(f"{variation(x):.0e}" for x in attention_only[1:3]))

# %%
similarity = torch.stack([F.cosine_similarity(x[0][:, None], x[0][None], dim=-1) for x in attention_only[:3]])
titles = ["before", "after 1 layer", "after 2 layers"]
plotting.heads(similarity, rows=words, columns=words, titles=titles, signed=True, xlabel="token", ylabel="token")
plt.show()

# %% [markdown]
# Cosine similarity of each pair of tokens. At first only the two *the* are the same. After two layers all six are,
# to two digits. What later layers cannot tell apart, they must treat alike. This is **rank collapse**.

# %% [markdown]
# What helps? Four stacks with the same attention layers: alone, with the feed-forward, with a residual, with both.

# %%
stacks = {
    "attention": lambda block, x: block.attention(x)[0],
    "attention, feed-forward": lambda block, x: block.feed_forward(block.attention(x)[0]),
    "attention + residual": lambda block, x: x + block.attention(x)[0],
    "the whole block": lambda block, x: block(x)[0],
}
left = {name: [variation(x) for x in through(step, x)] for name, step in stacks.items()}

# %%
series = {name: list(enumerate(values)) for name, values in left.items()}
plotting.curves(series, logy=True, xlabel="layers", ylabel="variation left", title="Tokens become alike")
plt.show()

# %%
for name, values in left.items():
    print(f"{name:24} after 12 layers: {'nothing left' if values[-1] < 1e-12 else f'{values[-1]:.2f}'}")
course.verdict("variation left by attention alone", left["attention"][-1], below=1e-12)
course.verdict("variation left by the whole block", left["the whole block"][-1], above=0.5)

# %% [markdown]
# Attention alone loses everything, faster with every layer: the theorem is *doubly exponential* (Dong et al. 2021,
# arXiv:2103.03404, section 2). They find that feed-forwards can slow it and residuals prevent it. Here the residual
# saves the tokens; the feed-forward by itself does not.

# %% [markdown]
# ## The residual connection
#
# $$y = x + f(x) \qquad \frac{\partial y}{\partial x} = 1 + f'(x)$$
#
# The layer only has to say what should *change*. And the 1 carries gradients. Twelve layers, each with slope
# $f'(x) = 0.1$:

# %%
x = torch.tensor(1.0, requires_grad=True)
without, with_residual = x, x
for _ in range(12):
    without = 0.1 * without
    with_residual = with_residual + 0.1 * with_residual
print(f"without: {torch.autograd.grad(without, x)[0].item():.0e}")
print(f"with   : {torch.autograd.grad(with_residual, x)[0].item():.2f}, which is 1.1 ** 12 = {1.1**12:.2f}")

# %% [markdown]
# ## Layer norm
#
# A sum grows with every layer. The norm brings each token back to mean 0 and variance 1, **by itself**.
#
# $$\text{norm}(x)_e = \frac{x_e - \mu}{\sqrt{\sigma^2 + \epsilon}}\, g_e + b_e$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $\mu$, $\sigma^2$ over the embedding | `mean`, `variance` | (B, L, 1) |
# | $g$, $b$, learned | `weight`, `bias` | (E,) |

# %%
token = torch.tensor([1.0, 2.0, 3.0, 4.0])
mean, variance = token.mean(), ((token - token.mean()) ** 2).mean()
normed = (token - mean) / variance.sqrt()
print(f"mean {mean:.2f}, variance {variance:.2f}, normed:", *(f"{number:.2f}" for number in normed))


# %%
class MyLayerNorm(nn.Module):
    def __init__(self, embed_dim, eps=1e-5):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(embed_dim)), nn.Parameter(torch.zeros(embed_dim))
        self.eps = eps

    def forward(self, x):  # (B, L, E)
        mean = x.mean(dim=-1, keepdim=True)  # (B, L, 1)
        variance = x.var(dim=-1, unbiased=False, keepdim=True)  # (B, L, 1): divided by E, not by E - 1
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


x = torch.randn(2, 6, 32)  # (B, L, E)
course.assert_same_module(MyLayerNorm(32), nn.LayerNorm(32), x)


# %% [markdown]
# ### Break it: the wrong axis
#
# With `dim=-2` the shapes fit as well, but the mean now runs over the tokens. Change the last token, and see which
# tokens notice.

# %%
def standardise(x, dim):
    return (x - x.mean(dim, keepdim=True)) / x.std(dim, keepdim=True)


touched = x.clone()
touched[:, -1] += torch.randn(32)
moved = [(standardise(touched, dim) - standardise(x, dim))[0, :, :16].abs() for dim in (-1, -2)]  # (L, 16) each

# %%
titles = ["dim=-1: over the embedding", "dim=-2: over the tokens"]
plotting.heads(torch.stack(moved), rows=words, titles=titles, xlabel="number", ylabel="token", panel_width=4.4)
plt.show()


# %% [markdown]
# How much the first 16 numbers change. On the right, *the* knows that *mat* is another word. In a language model that leaks the
# future past every causal mask. Over `dim=0`, the batch, a token would depend on sentences it has nothing to do with.

# %% [markdown]
# ## The feed-forward
#
# Attention moves information between tokens; the feed-forward works on each token by itself.
#
# $$y = \phi(x W_1 + b_1) W_2 + b_2$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $W_1$, widens | `up.weight.T` | (E, 4E) |
# | $\phi$ | `F.gelu` | |
# | $W_2$, narrows | `down.weight.T` | (4E, E) |

# %%
class MyFeedForward(nn.Module):
    def __init__(self, embed_dim, hidden_dim):
        super().__init__()
        self.up = nn.Linear(embed_dim, hidden_dim)
        self.down = nn.Linear(hidden_dim, embed_dim)

    def forward(self, x):  # (B, L, E)
        return self.down(F.gelu(self.up(x)))  # (B, L, 4E) in between


course.assert_same_module(MyFeedForward(32, 128), FeedForward(32, 128), x)

# %%
feed_forward, order = FeedForward(32, 128), torch.randperm(6)
torch.testing.assert_close(feed_forward(x[:, order]), feed_forward(x)[:, order])
torch.testing.assert_close(feed_forward(x[:, 2:3]), feed_forward(x)[:, 2:3])  # alone or in company: the same

# %% [markdown]
# It also holds two thirds of the block's weights: $8E^2$, against $4E^2$ in attention's four projections.

# %%
for name, part in TransformerBlock(32, 4).named_children():
    print(f"{name:18} {sum(p.numel() for p in part.parameters()):6,}")


# %% [markdown]
# ## Two orders
#
# | | formula, for $f$ = attention, then $f$ = feed-forward | residual path | source |
# |---|---|---|---|
# | post-norm | $\text{norm}(x + f(x))$ | normed in each layer | Vaswani et al. 2017, arXiv:1706.03762, section 3.1 |
# | pre-norm | $x + f(\text{norm}(x))$ | untouched, end to end | Xiong et al. 2020, arXiv:2002.04745, section 3 |

# %%
class MyTransformerBlock(nn.Module):
    def __init__(self, embed_dim, num_heads, norm_first=True):
        super().__init__()
        self.norm_first = norm_first
        self.attention_norm = MyLayerNorm(embed_dim)
        self.attention = MultiHeadAttention(embed_dim, num_heads)  # built in notebook 03
        self.feed_forward_norm = MyLayerNorm(embed_dim)
        self.feed_forward = MyFeedForward(embed_dim, 4 * embed_dim)

    def forward(self, x):  # (B, L, E)
        if self.norm_first:
            x = x + self.attention(self.attention_norm(x))[0]
            return x + self.feed_forward(self.feed_forward_norm(x))
        x = self.attention_norm(x + self.attention(x)[0])
        return self.feed_forward_norm(x + self.feed_forward(x))


# %% [markdown]
# The package's block is the same, in both orders.

# %%
for norm_first in (True, False):
    course.assert_same_module(MyTransformerBlock(32, 4, norm_first), TransformerBlock(32, 4, norm_first=norm_first), x)


# %% [markdown]
# And so is torch's own `nn.TransformerEncoderLayer`, once our weights are written under its names.

# %%
def torch_layer(block):
    layer = nn.TransformerEncoderLayer(32, 4, 128, 0.0, F.gelu, batch_first=True, norm_first=block.norm_first).double()
    q, k, v = block.attention.q_proj, block.attention.k_proj, block.attention.v_proj
    layer.self_attn.in_proj_weight.data = torch.cat([q.weight, k.weight, v.weight]).data
    layer.self_attn.in_proj_bias.data = torch.cat([q.bias, k.bias, v.bias]).data
    layer.self_attn.out_proj.load_state_dict(block.attention.out_proj.state_dict())
    layer.norm1.load_state_dict(block.attention_norm.state_dict())
    layer.linear1.load_state_dict(block.feed_forward.up.state_dict())
    layer.linear2.load_state_dict(block.feed_forward.down.state_dict())
    layer.norm2.load_state_dict(block.feed_forward_norm.state_dict())
    return layer


# %%
for norm_first in (True, False):
    block, double = TransformerBlock(32, 4, norm_first=norm_first).double(), x.double().requires_grad_()
    ours, theirs = block(double)[0], torch_layer(block)(double)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad((y * x).sum(), double)[0] for y in (ours, theirs)))


# %% [markdown]
# ## Break it: where the `x +` goes
#
# Two classic slips in a pre-norm block. Both run, and both have the right shapes.

# %%
class NoResidual(TransformerBlock):
    def forward(self, x, **kwargs):
        x, weights = self.attention(self.attention_norm(x), **kwargs)
        return self.feed_forward(self.feed_forward_norm(x)), weights


class NormInThePath(TransformerBlock):
    def forward(self, x, **kwargs):
        x = self.attention_norm(x)  # overwrites what the residual should carry
        looked, weights = self.attention(x, **kwargs)
        x = self.feed_forward_norm(x + looked)
        return x + self.feed_forward(x), weights


# %% [markdown]
# A test that finds both: silence the two branches. What is left must be $x$ itself.

# %%
def silence(block):
    for last in (block.attention.out_proj, block.feed_forward.down):
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    return block


kinds = {"right": TransformerBlock, "residual missing": NoResidual, "norm in the path": NormInThePath}
x = 1 + 2 * torch.randn(1, 6, 16)
gaps = [silence(kind(16, 2))(x)[0][0] - x[0] for kind in kinds.values()]
print({name: "passes" if gap.abs().max() < 1e-6 else "fails" for name, gap in zip(kinds, gaps, strict=True)})

# %%
titles = [f"{name}: y – x" for name in kinds]
plotting.heads(torch.stack(gaps), rows=words, titles=titles, signed=True, xlabel="number", ylabel="token", panel_width=3.1)
plt.show()


# %% [markdown]
# ## At initialisation: what gets through?
#
# Before training anything, send digits through deep stacks and a gradient back. Four kinds; `no norm` keeps the
# residuals and drops the norms inside the blocks.

# %%
def build(kind, depth, seed):
    torch.manual_seed(seed)
    model = ImageTransformer(28, 7, 1, 10, 32, 4, depth, expansion=2, norm_first=kind != "post-norm")
    if kind == "no residual":
        model.blocks = nn.ModuleList(NoResidual(32, 4, expansion=2) for _ in range(depth))
    if kind == "no norm":
        for block in model.blocks:
            block.attention_norm = block.feed_forward_norm = nn.Identity()
    return model.to(device)


digits, labels = (tensor.to(device) for tensor in mnist("train"))
digits = (digits - digits.mean()) / digits.std()


# %%
def follow(model):
    states = [model.positions(model.to_sequence(digits[:64]))]  # (B, L, E)
    for block in model.blocks:
        states.append(block(states[-1])[0])
    for state in states:
        state.retain_grad()
    F.cross_entropy(model.classifier(states[-1]), labels[:64]).backward()
    sizes = [state.detach().square().mean().sqrt() for state in states]
    gradients = [state.grad.norm() for state in states]
    return torch.stack(sizes), torch.stack(gradients)


# %%
kinds, depth, seeds = ["pre-norm", "post-norm", "no residual", "no norm"], 24, range(3)
followed = {kind: [follow(build(kind, depth, seed)) for seed in seeds] for kind in kinds}
sizes = {kind: torch.stack([size for size, _ in runs]) for kind, runs in followed.items()}
gradients = {kind: torch.stack([gradient for _, gradient in runs]) for kind, runs in followed.items()}

# %%
fig, (left_ax, right_ax) = plt.subplots(1, 2, figsize=(9.8, 3.6), layout="constrained")
about = {"x": range(depth + 1), "xlabel": "after block"}
plotting.bands(sizes, ylabel="size of a number (rms)", title="Signal, forwards", ax=left_ax, **about)
plotting.bands(gradients, ylabel="gradient norm", title="Gradient, backwards", logy=True, ax=right_ax, **about)
right_ax.get_legend().remove()
plt.show()

# %% [markdown]
# Read the right picture, in the same colours, from right to left. With residuals the gradient arrives at the first
# block as large as it left the last, or larger. Without, it fades on the way.

# %%
ratio = {kind: (runs[:, 0] / runs[:, -1]).mean().item() for kind, runs in gradients.items()}
course.verdict("gradient at the first / at the last block, no residual", ratio["no residual"], below=0.5)
for kind in ("pre-norm", "post-norm", "no norm"):
    course.verdict(f"the same, {kind}", ratio[kind], above=1.0)


# %% [markdown]
# Post-norm looks as healthy as pre-norm here. The difference shows in the gradient of the *last* block's weights: Xiong
# et al. (section 3.3) derive that it shrinks with depth for pre-norm, as $1/\sqrt{\text{depth}}$, and not for
# post-norm. Is it so?

# %%
def last_gradient(kind, depth, seed):
    model = build(kind, depth, seed)
    F.cross_entropy(model(digits[:64]), labels[:64]).backward()
    return model.blocks[-1].feed_forward.down.weight.grad.norm()


depths = [3, 12, 48]
last = {
    kind: torch.tensor([[last_gradient(kind, depth, seed) for depth in depths] for seed in range(4)])
    for kind in ("pre-norm", "post-norm")
}

# %%
plotting.bands(last, x=depths, xlabel="blocks", ylabel="gradient norm", title="Feed-forward of the last block")
plt.show()

# %%
gain = {kind: (runs[:, 2].mean() / runs[:, 0].mean()).item() for kind, runs in last.items()}
course.verdict("pre-norm, gradient at 48 blocks / at 3 (predicted: 0.25)", gain["pre-norm"], above=0.1, below=0.5)
course.verdict("post-norm, the same (predicted: about 1)", gain["post-norm"], above=0.7, below=2.5)


# %% [markdown]
# So it is. A large step size may then push post-norm's last blocks too far at once, which is what warm-up is for. Keep
# it in mind for the training below.

# %% [markdown]
# ### Quieter branches
#
# $2N$ branches of equal variance add up to $2N$ times the variance. GPT-2 scales the last layer of each branch by
# $1/\sqrt{2N}$ (Radford et al. 2019, section 2.3). Going all the way, to zero, makes the whole stack the identity at
# the start.

# %%
def scaled(model, factor):
    for block in model.blocks:
        for layer in (block.attention.out_proj, block.feed_forward.down):
            layer.weight.data *= factor
            layer.bias.data *= factor
    return model


factors = {"as torch draws it": 1.0, "times 1/√(2N)": 1 / math.sqrt(2 * 24), "zero": 0.0}
quiet = {
    name: torch.stack([follow(scaled(build("pre-norm", 24, s), f))[0] for s in seeds]) for name, f in factors.items()
}

# %%
plotting.bands(quiet, x=range(25), xlabel="after block", ylabel="size of a number (rms)", title="Pre-norm, 24 blocks")
plt.show()

# %%
growth = {name: (runs[:, -1] / runs[:, 0]).mean().item() for name, runs in quiet.items()}
course.verdict("growth through 24 blocks, plain", growth["as torch draws it"], above=2.0)
course.verdict("growth with 1/√(2N)", growth["times 1/√(2N)"], below=1.2)
print("growth with zero:", round(growth["zero"], 3))


# %% [markdown]
# ## Train it: depth, with and without
#
# Digits as 16 patches, width 32, 2, 4 and 12 blocks, three seeds, 80 steps. It is small enough to be the same in
# both profiles. A model that knows nothing has a loss of $\ln 10 \approx 2.30$.

# %%
def train(kind, depth, seed, lr=3e-3, warmup_steps=0):
    model = build(kind, depth, seed)
    stream = batches(digits, labels, batch_size=16, seed=seed)
    config = TrainConfig(steps=80, lr=lr, warmup_steps=warmup_steps)
    return fit(model, stream, F.cross_entropy, config, progress=False).loss


def final(losses):  # (..., steps): the mean of the last 20
    return losses[..., -20:].mean(dim=-1)


# %% tags=["nbval-ignore-output"]
depths = [2, 4, 12]
losses = {kind: [[train(kind, depth, seed) for depth in depths] for seed in seeds] for kind in kinds}
losses = {kind: torch.tensor(runs) for kind, runs in losses.items()}  # (seeds, depths, steps)
for kind, runs in losses.items():
    ends = final(runs)  # (seeds, depths)
    mean, error = ends.mean(dim=0), ends.std(dim=0) / math.sqrt(len(ends))
    print(f"{kind:12}", *(f"{d:4} blocks {m:.2f} ± {e:.2f}" for d, m, e in zip(depths, mean, error, strict=True)))

# %%
fig, (left_ax, right_ax) = plt.subplots(1, 2, figsize=(9.8, 3.6), layout="constrained")
plotting.bands({kind: runs[:, -1] for kind, runs in losses.items()}, smooth=10, title="12 blocks", ax=left_ax)
ends = {kind: final(runs) for kind, runs in losses.items()}
plotting.bands(ends, x=depths, xlabel="blocks", ylabel="loss, last 20 steps", title="Against depth", ax=right_ax)
for ax in (left_ax, right_ax):
    ax.axhline(math.log(10), color="grey", linestyle=":")
plt.show()

# %%
deep = {kind: runs[:, -1].mean().item() for kind, runs in ends.items()}
course.verdict("12 blocks without residuals: loss", deep["no residual"], above=2.25)
course.verdict("12 blocks pre-norm: loss", deep["pre-norm"], below=2.0)
course.verdict("12 blocks post-norm: loss", deep["post-norm"], below=2.1)
course.verdict("12 blocks: loss without norms minus pre-norm", deep["no norm"] - deep["pre-norm"], above=0.02)
four = {kind: runs[:, 1].mean().item() for kind, runs in ends.items()}
course.verdict("4 blocks: the same", four["no norm"] - four["pre-norm"], below=0.1)

# %% [markdown]
# Without residuals the deep stack learns nothing: it stays at the dotted line. Post-norm does fine at this step size.
# Four blocks need no norm at all; twelve do better with it. And deeper is not better here: these are 80 steps on an
# easy task.

# %% [markdown]
# ### A bolder step
#
# Where, then, does the order matter? Raise the learning rate to 0.01, 12 blocks, two seeds; and post-norm once
# more, with 25 steps of warm-up.

# %% tags=["nbval-ignore-output"]
bold = {
    name: torch.tensor([train(kind, 12, seed, lr=1e-2, warmup_steps=warmup) for seed in range(2)])
    for name, kind, warmup in (
        ("pre-norm", "pre-norm", 0),
        ("post-norm", "post-norm", 0),
        ("post-norm, warm-up", "post-norm", 25),
    )
}
print({name: f"{final(runs).mean():.2f}" for name, runs in bold.items()})

# %%
ax = plotting.bands(bold, smooth=10, title="12 blocks, learning rate 0.01")
ax.axhline(math.log(10), color="grey", linestyle=":")
plt.show()

# %%
gap = final(bold["post-norm"]).mean() - final(bold["pre-norm"]).mean()
course.verdict("loss of post-norm minus pre-norm, without warm-up", gap.item(), above=0.1)

# %% [markdown]
# Pre-norm learns; post-norm does not get below the dotted line. Warm-up helps it, but little in so short a run, and not
# with every seed: look at the width of its band.

# %% [markdown]
# ### And without norms?
#
# At this learning rate the stack without norms can produce numbers that are too large for float32. The loss is then
# NaN, "not a number", and `fit` stops with an error that names the step.

# %% tags=["nbval-ignore-output"]
for seed in range(3):
    try:
        print(f"seed {seed}: ends with a loss of {final(torch.tensor(train('no norm', 12, seed, lr=1e-2))):.2f}")
    except FloatingPointError as error:
        print(f"seed {seed}: {error}")


# %% [markdown]
# Whether a seed survives, and until which step, depends on rounding: the same seed can fail with one thread and survive
# with two, or fail on one processor and survive on another. So we measure what leads there, which is the same
# everywhere. How many times larger are the numbers after the last block than before the first, while the first seven
# steps are taken?

# %%
@torch.no_grad()
def enlargement(model):
    before = after = model.positions(model.to_sequence(digits[:64]))
    for block in model.blocks:
        after = block(after)[0]
    return (after.square().mean() / before.square().mean()).sqrt().item()


def enlargements(kind, seed):
    model, seen = build(kind, 12, seed), []
    stream = batches(digits, labels, batch_size=16, seed=seed)
    config = TrainConfig(steps=7, lr=1e-2, schedule="constant")
    fit(model, stream, F.cross_entropy, config, on_step=lambda *_: seen.append(enlargement(model)), progress=False)
    return seen


enlarged = {kind: torch.tensor([enlargements(kind, seed) for seed in range(6)]) for kind in ("pre-norm", "no norm")}

# %%
about = {"x": range(1, 8), "xlabel": "steps taken", "ylabel": "size after 12 blocks / before"}
plotting.bands(enlarged, title="12 blocks, learning rate 0.01, six seeds", logy=True, **about)
plt.show()

# %%
excess = (enlarged["no norm"][:, -1].log() - enlarged["pre-norm"][:, -1].log()).mean().exp().item()
course.verdict("enlargement without norms over that with, after seven steps", excess, above=30)


# %% [markdown]
# Without norms, each block multiplies what the block before it has enlarged. A step that enlarges the weights of every
# block a little is therefore felt twelve times over. A norm brings the input of each branch back to size 1, so that the
# sizes of the branches add up instead of multiplying.

# %% [markdown]
# ## Exercises
#
# Write the code in place of `raise NotImplementedError` and run the cell. The first wrong run shows what is wrong with
# the result, the second names the mistake; the numbers are fresh each time.
#
# ### Exercise 1 · easy · 4 minutes
#
# RMS norm is layer norm that leaves the mean in and has no $b$ (Zhang & Sennrich 2019, arXiv:1910.07467). Without
# `F.rms_norm`:
#
# $$\frac{x_e}{\sqrt{\frac 1 E \sum_e x_e^2 + \epsilon}}\, g_e$$

# %%
def root_mean_square_norm(x, weight, eps):  # (B, L, E), (E,), a number
    raise NotImplementedError  # (B, L, E)


check.root_mean_square_norm(root_mean_square_norm)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Start from `MyLayerNorm`. What has to go, and over which axis does the mean of the squares run?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `x.square().mean(dim=-1, keepdim=True)` has shape (B, L, 1), so that each token is divided by a number of its own. The ε
# stands under the root.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def root_mean_square_norm(x, weight, eps):
#     mean_square = x.square().mean(dim=-1, keepdim=True)  # (B, L, 1)
#     return x / (mean_square + eps).sqrt() * weight
# ```
#
# </details>
#
# ### Exercise 2 · middle · 6 minutes
#
# A pre-norm block, from memory. All parts are given as functions; `up` and `down` are the feed-forward's linear maps,
# and the exact GELU, `F.gelu` without an option, stands between them.

# %%
def pre_norm_block(x, attention, norm_1, up, down, norm_2):  # (L, E), then five functions
    raise NotImplementedError  # (L, E)


check.pre_norm_block(pre_norm_block)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Twice the same: x + f(norm(x)). What is f the second time, and what is x?
#
# </details>
# <details><summary>Hint 2</summary>
#
# The second x is what the first sum gave, both inside the norm and before the plus.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def pre_norm_block(x, attention, norm_1, up, down, norm_2):
#     x = x + attention(norm_1(x))
#     return x + down(F.gelu(up(norm_2(x))))
# ```
#
# </details>
#
# ### Exercise 3 · hard · 12 minutes
#
# A branch with volume knobs: $x + g \odot f(\text{norm}(x))$. It owns two things that are trained: its `nn.LayerNorm`,
# and `self.gain`, the $E$ numbers $g$. They start such that the output is exactly $x$, whatever $f$ gives.

# %%
class QuietBranch(nn.Module):
    def __init__(self, embed_dim, function):  # function: a module, from (L, E) to (L, E)
        raise NotImplementedError

    def forward(self, x):  # (L, E)
        raise NotImplementedError  # (L, E)


check.QuietBranch(QuietBranch)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# An optimiser sees what `module.parameters()` finds: an `nn.Parameter` or a module, stored as an attribute after
# `super().__init__()`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Which $g$ makes $x + g \odot f(\text{norm}(x))$ equal to $x$, whatever $f$ is? *Quieter branches* does it with weights;
# here it is one vector.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# class QuietBranch(nn.Module):
#     def __init__(self, embed_dim, function):
#         super().__init__()
#         self.norm = nn.LayerNorm(embed_dim)
#         self.function = function
#         self.gain = nn.Parameter(torch.zeros(embed_dim))
#
#     def forward(self, x):
#         return x + self.gain * self.function(self.norm(x))
# ```
#
# </details>

# %% [markdown]
# ## Your turn
#
# **1. (easy, 2 minutes)** A colleague's layer norm uses `x.std()` with torch's default, which divides by $E - 1$. By
# which factor do its outputs differ for $E = 4$, and for $E = 512$? Would training notice?
#
# <details><summary>Answer</summary>
#
# By $\sqrt{(E - 1) / E}$: 0.866 for 4 and 0.999 for 512. The learned weight can absorb it, so training would not notice.
# Loading somebody else's weights would: the outputs are then slightly wrong everywhere, and nothing complains.
#
# </details>
#
# **2. (middle, 5 minutes)** Does a third kind of block, `x + norm(f(x))`, pass the silence test? Which advantage of
# pre-norm does it keep?
#
# <details><summary>Answer</summary>
#
# It passes while the norm's bias is 0: norm(0) = 0. The path from end to end stays untouched, as in pre-norm, and each
# branch adds a bounded amount, whatever its weights. It is in use: Swin Transformer V2 calls it res-post-norm (Liu et
# al. 2021, arXiv:2111.09883).
#
# </details>
#
# **3. (middle, 10 minutes)** With zero-initialised branches, which parameters get a gradient in the very first step?
#
# <details><summary>Answer</summary>
#
# Inside the blocks only `out_proj` and `feed_forward.down`. Everything before them is multiplied by their zero weights
# in the backward pass. From the second step on, all get one but `k_proj.bias`, whose gradient always vanishes (notebook 03). Try it:
# `scaled(build("pre-norm", 2, 0), 0.0)`, one backward, and print `parameter.grad.norm()` for each.
#
# </details>
#
# **4. (hard, 15 minutes)** Can quieter branches replace the norm? Train `no norm` with 12 blocks after
# `scaled(model, 0.2)`.
#
# <details><summary>Answer</summary>
#
# Give `train` an argument that calls `scaled` on the fresh model, and compare three seeds with the plain `no norm`. For
# the idea carried to the end, see Fixup (Zhang et al. 2019, arXiv:1901.09321), which trains very deep residual networks
# without any norm by initialisation alone.
#
# </details>

# %% [markdown]
# ## Takeaways
#
# - Attention averages, and averages of averages are all the same: the residual keeps tokens apart and gradients alive.
# - The norm acts on one token at a time. It buys tolerance for depth and step size; a shallow stack can do without.
# - Pre-norm leaves the residual path untouched. Post-norm trains as well here, until the step gets bold.

# %% [markdown]
# ## Check yourself
#
# 1. Which part of the block lets tokens talk to each other?
# 2. Why does pre-norm need one more norm after the last block?
# 3. A 12-block model stays at a loss of ln(number of classes). What do you look at first?
#
# <details><summary>Answers</summary>
#
# 1. Only attention. Norm, feed-forward and residual treat each token by itself.
# 2. Its residual path is a sum that grows with depth and is never normed; the classifier wants a known scale.
# 3. The residuals: silence the branches, and see whether the block still returns its input. Then the learning rate.
#
# </details>

# %% [markdown]
# **To read**: Vaswani et al. 2017, arXiv:1706.03762, sections 3.1 and 3.3; Xiong et al. 2020, arXiv:2002.04745,
# section 3; Dong et al. 2021, arXiv:2103.03404, sections 1 and 2. **Next**: notebook 06 stacks these blocks on image
# patches.
