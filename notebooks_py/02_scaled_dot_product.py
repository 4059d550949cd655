# %% [markdown]
# # 02 Scaled dot-product attention
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/02_scaled_dot_product.ipynb)
#
# ← [01 Weighted sums](01_weighted_sums.ipynb) · [the map of the course](00_welcome.ipynb) · [03 Multi-head attention](03_multi_head.ipynb) →
#
# Needs: notebook 01 · runs in about 25 s on two CPU cores · about 2½ hours of study

# %% [markdown]
# After this notebook you can
#
# - build one attention head and prove it equal to torch's;
# - say where $1/\sqrt d$ comes from, and what happens without it;
# - mask the future and the padding, and find a leak with a gradient test;
# - tell when a trainable mask makes a loss worthless.
#
# New against notebook 01: things to learn, and things not to be seen.

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

import ipywidgets
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

from sciformer import MultiHeadAttention, attend, causal_mask, dot_product_scores, masked_softmax, padding_mask
from sciformer import check, course, metrics, plotting
from sciformer.data import batches, lookup
from sciformer.teach import Switches, explore
from sciformer.training import TrainConfig, evaluate, fit

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## Predict first
#
# Two vectors of $d$ random numbers, each with mean 0 and variance 1. Go from $d = 4$ to $d = 1024$.
#
# 1. How many times larger is their typical dot product?
# 2. A softmax over 32 such products: does its largest weight stay, shrink, or grow towards 1?
#
# Note your answers; the section *Why $1/\sqrt d$* settles them.

# %% [markdown]
# ## One vector, three parts
#
# In notebook 01 a word played every part with the same vector. So *cat* scored *sat* exactly as *sat*
# scored *cat*: the scores are symmetric.

# %%
tokens = ["the", "cat", "sat", "on", "the", "mat"]
table = {"the": [1, 0], "cat": [0, 2], "sat": [-1, 1], "on": [1, -1], "mat": [1, 3]}
x = torch.tensor([table[token] for token in tokens], dtype=torch.float64)  # (L, E) = (6, 2)
naive_scores = x @ x.T  # (L, L)
torch.equal(naive_scores, naive_scores.T)

# %% [markdown]
# Give each word three vectors instead, each by a matrix of its own:
#
# - the **query**, what it looks for;
# - the **key**, what it can be found by;
# - the **value**, what it hands over when it is found.
#
# A model learns the matrices. These ones are made up, with $D = 3$.

# %%
W_q = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]).double()  # (E, D) = (2, 3)
W_k = torch.tensor([[-2.0, -1.0, -1.0], [0.0, -1.0, 1.0]]).double()  # (E, D)
W_v = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, -1.0]]).double()  # (E, D)
query, key, value = x @ W_q, x @ W_k, x @ W_v  # three times (L, E) @ (E, D) = (L, D)
key

# %% [markdown]
# ## In a loop
#
# Word by word: score every key, softmax the row, mix the values.

# %%
output_loop = torch.zeros(6, 3).double()  # (L, D)
for i in range(6):
    row = torch.stack([query[i] @ key[j] / math.sqrt(3) for j in range(6)])  # (S,) scores of query i
    row = row.exp() / row.exp().sum()  # (S,) sums to 1
    for j in range(6):
        output_loop[i] += row[j] * value[j]  # (D,)
output_loop.round(decimals=3)

# %% [markdown]
# ## The formula
#
# $$s_{ij} = \frac{q_i \cdot k_j}{\sqrt D}, \qquad w_{ij} = \frac{e^{s_{ij}}}{\sum_m e^{s_{im}}}, \qquad
# y_i = \sum_j w_{ij} v_j$$
#
# | symbol | variable | shape | here |
# |---|---|---|---|
# | $q_i$ | `query[i]` | (D,) | (3,) |
# | $k_j$, $v_j$ | `key[j]`, `value[j]` | (D,) | (3,) |
# | $s_{ij}$ | `scores[i, j]` | (L, S) | (6, 6) |
# | $w_{ij}$ | `weights[i, j]` | (L, S) | (6, 6) |
# | $y_i$ | `output[i]` | (D,) | (3,) |
#
# L counts queries and S counts keys; here both are 6.

# %% [markdown]
# Without loops it is three lines. Every attention in this course has them, and only the first one ever changes.

# %%
scores = query @ key.T / math.sqrt(3)  # (L, D) @ (D, S) = (L, S)
weights = masked_softmax(scores)  # over the keys: rows sum to 1
output = weights @ value  # (L, S) @ (S, D) = (L, D)
torch.testing.assert_close(output, output_loop)

# %% [markdown]
# The package and torch say the same. Both want a batch and a head in front: (B, H, L, D).

# %%
q4, k4, v4 = query[None, None], key[None, None], value[None, None]  # (1, 1, 6, 3)
output_package, _ = attend(dot_product_scores(q4, k4), v4)
torch.testing.assert_close(output_package[0, 0], output)
torch.testing.assert_close(F.scaled_dot_product_attention(q4, k4, v4)[0, 0], output)

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
names = {"rows": tokens, "columns": tokens, "vmax": 1, "colorbar": False}
plotting.heatmap(masked_softmax(naive_scores), title="naive: one vector a word", ax=axes[0], **names)
plotting.heatmap(weights, title="query, key and value", ax=axes[1], **names)
plt.show()


# %% [markdown]
# On the right *cat* looks at *sat*, while *sat* looks at *mat*: asking and answering have come apart. Only *on* still
# looks at itself first.

# %% [markdown]
# ## Why $1/\sqrt d$
#
# A dot product is a sum of $d$ terms. If $q$ and $k$ are independent with variance 1, each term has variance 1, and
# the variances add up to $d$. So says section 3.2.1 of *Attention is all you need* (arXiv:1706.03762), in a footnote. We
# measure: 1000 queries, 32 keys each.

# %%
def random_scores(d):
    generator = torch.Generator().manual_seed(d)
    q = torch.randn(1000, 1, d, generator=generator)  # (N, 1, d)
    k = torch.randn(1000, 32, d, generator=generator)  # (N, S, d)
    return (q @ k.transpose(-2, -1)).squeeze(1)  # (N, S)


sizes = [4, 16, 64, 256, 1024]
raw = {d: random_scores(d) for d in sizes}
for d in sizes:
    print(f"d = {d:4}   variance of q·k {raw[d].var():7.1f}   of q·k/√d {(raw[d] / math.sqrt(d)).var():.2f}")

# %%
lines = {"q·k": [(d, raw[d].var()) for d in sizes], "q·k / √d": [(d, (raw[d] / d**0.5).var()) for d in sizes]}
ax = plotting.curves(lines, xlabel="d", ylabel="variance", title="the variance of a dot product is d", logy=True)
ax.set_xscale("log", base=2)
plt.show()


# %% [markdown]
# Prediction 1: the typical size, the square root of the variance, grows by $\sqrt{1024/4} = 16$.
#
# ### What the softmax makes of it
#
# Two ways to see how hard a row is: its largest weight, and its entropy as a share of $\log 32$, which is 1 for a uniform
# row and 0 for a look at a single key.

# %%
def hardness(scores):
    w = scores.softmax(dim=-1)  # (N, S)
    entropy = torch.special.entr(w).sum(dim=-1)  # (N,): -Σ w log w
    return w.amax(dim=-1).mean().item(), entropy.mean().item() / math.log(32)


for d in sizes:
    (largest, entropy), (largest_s, entropy_s) = hardness(raw[d]), hardness(raw[d] / math.sqrt(d))
    print(f"d = {d:4}   largest {largest:.2f}, scaled {largest_s:.2f}   entropy {entropy:.2f}, scaled {entropy_s:.2f}")

# %%
scaled = {d: raw[d] / math.sqrt(d) for d in sizes}
figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for n, (ax, what) in enumerate(zip(axes, ("largest weight", "entropy / log 32"), strict=True)):
    lines = {name: [(d, hardness(s[d])[n]) for d in sizes] for name, s in (("unscaled", raw), ("scaled", scaled))}
    plotting.curves(lines, xlabel="d", ylabel=what, title=f"mean {what}", ax=ax)
    ax.set_xscale("log", base=2)
    ax.set_ylim(0, 1.05)
plt.show()


# %% [markdown]
# Prediction 2: towards 1. Unscaled, a large head that has learned nothing yet already stares at one key, chosen by
# chance. Scaled, the picture is the same at every $d$.
#
# Move the slider: one query, 32 keys.

# %%
def one_row(d):
    row = random_scores(int(d))[0]  # (S,)
    figure, axes = plt.subplots(2, 1, figsize=(8, 4.2), layout="constrained", sharex=True)
    for ax, (name, s) in zip(axes, {"unscaled": row, "scaled": row / math.sqrt(d)}.items(), strict=True):
        plotting.bars(s.softmax(dim=-1), title=f"{name}, d = {d:.0f}", top=1.15, xlabel="", numbers=False, ax=ax)
    axes[1].set_xlabel("key")
    return figure


slider = ipywidgets.SelectionSlider(options=[2**n for n in range(11)], value=256, description="head size d")
explore(
    one_row, alt="Bars: weights over 32 keys, with and without the scale; unscaled, one bar takes nearly all.", d=slider
)


# %% [markdown]
# ### Why that hurts: the gradient
#
# How much do the weights move when the scores move? By the Jacobian $\partial w_i / \partial s_j = w_i(\delta_{ij} -
# w_j)$. If one weight is 1 and the rest are 0, every entry is 0.

# %%
def softmax_jacobian(w):
    return torch.diag_embed(w) - w[..., :, None] * w[..., None, :]  # (..., S, S)


row = raw[4][0]
by_torch = torch.autograd.functional.jacobian(lambda s: s.softmax(dim=-1), row)
torch.testing.assert_close(softmax_jacobian(row.softmax(dim=-1)), by_torch)


# %%
def gradient_size(scores):
    return torch.linalg.matrix_norm(softmax_jacobian(scores.softmax(dim=-1))).median().item()  # of 1000 queries


unscaled_sizes = [(d, gradient_size(raw[d])) for d in sizes]
scaled_sizes = [(d, gradient_size(scaled[d])) for d in sizes]
to_product = [(d, size / math.sqrt(d)) for d, size in scaled_sizes]  # going backward it meets the 1/√d once more
lines = {"unscaled": unscaled_sizes, "scaled": scaled_sizes, "scaled, back to q·k": to_product}
title, ylabel = "what passes back through the softmax", "median size of gradient"
ax = plotting.curves(lines, xlabel="d", ylabel=ylabel, title=title, logy=True)
ax.set_xscale("log", base=2)
plt.show()
course.verdict("d = 1024: scaled over unscaled", scaled_sizes[4][1] / unscaled_sizes[4][1], above=1000)
course.verdict("d = 64: scaled, back to q·k, over unscaled", to_product[2][1] / unscaled_sizes[2][1], below=0.5)

# %% [markdown]
# At $d = 1024$ next to nothing passes: the "extremely small gradients" that the paper suspects. But be fair, and count
# the factor $1/\sqrt d$ of the backward pass to $q \cdot k$ (the third line): up to $d = 64$ the unscaled gradient is clearly
# the *larger* one, and at 256 the two are about equal. What that does to learning, the last section measures.

# %% [markdown]
# ## Masks: True = may attend
#
# A model that predicts the next word must not see it. The **causal** mask lets query $i$ see keys $j \le i$. The
# **padding** mask hides the filling behind short sentences. Both hold together with `&`.

# %%
causal = causal_mask(6)  # (L, S)
torch.testing.assert_close(causal, torch.tensor([[j <= i for j in range(6)] for i in range(6)]))
padding = padding_mask([6, 4], 6)  # (B, 1, 1, S): a sentence of 6 words and one of 4
both = causal & padding  # (B, 1, L, S)
causal.shape, padding.shape, both.shape

# %%
second = torch.stack([causal, padding[1, 0].expand(6, 6), both[1, 0]])  # of the sentence with 4 words
plotting.heads(second.float(), titles=["causal", "padding: 4 words of 6", "both"])
plt.show()

# %% [markdown]
# Rows 4 and 5 of the short sentence are padding themselves. What they compute is thrown away.
#
# `masked_softmax` puts $-\infty$ where the mask is False. Since $e^{-\infty} = 0$, those keys get weight 0 and the rest
# still sums to 1.

# %%
weights = masked_softmax(scores, causal)
torch.testing.assert_close(weights, scores.masked_fill(~causal, -math.inf).softmax(dim=-1))
plotting.heatmap(weights, rows=tokens, columns=tokens, title="causal: nobody looks ahead", vmax=1)
plt.show()


# %% [markdown]
# Draw a mask of your own: a click on a square, or Tab and Space, switches it. What happens to the other weights of its
# row? And when you empty a row?

# %%
def under_a_mask(on, scores=scores):
    mask = torch.tensor(on)  # (L, S)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    names = {"rows": tokens, "columns": tokens}
    plotting.heatmap(scores.masked_fill(~mask, math.nan), title="scores that are left", signed=True, ax=axes[0], **names)
    plotting.heatmap(masked_softmax(scores, mask), title="weights", vmax=1, ax=axes[1], **names)
    return figure


explore(under_a_mask, alt="Scores and weights under a causal mask: both are left on and below the diagonal.", on=Switches(causal))

# %% [markdown]
# ### The other way round
#
# `F.scaled_dot_product_attention` agrees: True = may attend. `nn.MultiheadAttention` means the opposite: True = **may
# not**. Handed our mask as it is, it looks at the future only.

# %%
theirs = nn.MultiheadAttention(2, num_heads=1, dtype=torch.float64)
_, turned = theirs(x, x, x, attn_mask=~causal)  # (L, S)
_, as_it_is = theirs(x, x, x, attn_mask=causal)
print("turned round: looks where it may:", torch.equal(turned > 0, causal))
print("as it is: looks where it may not:", torch.equal(as_it_is[:5] > 0, ~causal[:5]))

# %% [markdown]
# ### A row with nothing left
#
# Pad on the left instead, and add the causal mask: the first two queries see nothing at all. A plain softmax divides 0
# by 0 there. In the package and in torch's SDPA such a row is 0.

# %%
real = torch.tensor([False, False, True, True, True, True])  # (S,): two places of padding in front
nothing_left = causal & real  # (L, S)
by_hand = scores.masked_fill(~nothing_left, -math.inf).softmax(dim=-1)
print("plain softmax  ", by_hand[0].tolist())
print("masked_softmax ", masked_softmax(scores, nothing_left)[0].tolist())
print("SDPA, output   ", F.scaled_dot_product_attention(q4, k4, v4, attn_mask=nothing_left)[0, 0, 0].tolist())

# %% [markdown]
# The gradient matters even more. Let the loss use the last row only, a sound one, and throw the others away. Backwards,
# the empty row still takes part: its upstream gradient is 0, but 0 × NaN is NaN. One optimiser step, and the
# parameters are NaN.

# %%
heads = {
    "plain softmax": lambda q, k, v: (q @ k.mT / math.sqrt(3)).masked_fill(~nothing_left, -math.inf).softmax(-1) @ v,
    "masked_softmax": lambda q, k, v: masked_softmax(q @ k.mT / math.sqrt(3), nothing_left) @ v,
    "SDPA": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=nothing_left),
}
for name, head in heads.items():
    leaf = x[None, None].clone().requires_grad_()  # (1, 1, L, E)
    head(leaf @ W_q, leaf @ W_k, leaf @ W_v)[..., -1, :].sum().backward()  # the loss: row 5 alone
    print(f"{name:14} words with a NaN gradient: {leaf.grad.isnan().any(dim=-1).sum()} of 6")

# %% [markdown]
# **Your turn (middle, 5 minutes).** Many programs write $-10^9$ in place of $-\infty$. What does a wholly masked row
# become then? And what if the scores are float16?
#
# <details><summary>Answer</summary>
#
# In float32, $-10^9$ swallows any score added to it, and filled in by `masked_fill` all scores of the row are equal:
# the weights are uniform, so the row quietly attends to everything that it must not see. No NaN, no warning. In
# float16 the largest number is 65504, so $-10^9$ does not fit: torch raises an error, or it becomes $-\infty$ and the
# NaN is back.
#
# </details>

# %% [markdown]
# ## Break it: three classic mistakes
#
# The mask **after** the softmax; **0** in place of $-\infty$; the softmax over the **queries**. All three run without an
# error. The sums $\Sigma$ of the rows:

# %%
recipes = {
    "right: −∞, softmax over keys": masked_softmax,
    "mask after the softmax": lambda s, mask: s.softmax(dim=-1) * mask,
    "0 in place of −∞": lambda s, mask: (s * mask).softmax(dim=-1),
    "softmax over queries (dim=-2)": lambda s, mask: s.masked_fill(~mask, -math.inf).softmax(dim=-2),
}
figure, axes = plt.subplots(2, 2, figsize=(9, 7.4), layout="constrained")
for ax, (title, recipe) in zip(axes.flat, recipes.items(), strict=True):
    w = recipe(scores, causal)  # (L, S)
    sums = [f"{token}  Σ={s:.2f}" for token, s in zip(tokens, w.sum(dim=-1), strict=True)]
    plotting.heatmap(w, rows=sums, columns=tokens, title=title, vmax=1, colorbar=False, ylabel="", ax=ax)
plt.show()


# %% [markdown]
# *0 in place of −∞* is the sly one: its rows sum to 1. But $e^0 = 1$ is a weight like any other, so the future gets its
# share.

# %% [markdown]
# ### A test that finds them: the gradient
#
# Does output $i$ depend on word $j$? Ask autograd. Entry $(i, j)$ is the size of $\partial y_i / \partial x_j$; with a
# causal model everything above the diagonal must be exactly 0.

# %%
def influence(attention, x):
    jacobian = torch.autograd.functional.jacobian(attention, x)  # (L, D, L, E)
    return jacobian.square().sum(dim=(1, 3)).sqrt()  # (L, L)


def one_head(x, recipe):
    scores = (x @ W_q) @ (x @ W_k).T / math.sqrt(3)  # (L, S)
    return recipe(scores, causal_mask(len(x))) @ (x @ W_v)  # (L, D)


figure, axes = plt.subplots(2, 2, figsize=(9, 7.4), layout="constrained")
for ax, (title, recipe) in zip(axes.flat, recipes.items(), strict=True):
    J = influence(lambda x, recipe=recipe: one_head(x, recipe), x)
    print(f"{title:30} the future leaks: {bool(J.triu(diagonal=1).any())}")
    plotting.heatmap(
        J, rows=tokens, columns=tokens, title=title, xlabel="word j", ylabel="output i", colorbar=False, ax=ax
    )
plt.show()


# %% [markdown]
# All three mistakes leak. Two of them are a surprise: their weights on the future are 0, yet the future sits in the
# divisor. Looking at the weights would not have told you.

# %% [markdown]
# ## The class
#
# One head as a module. `nn.Linear` keeps its matrix transposed and adds a bias; else it is the code above. The learned
# mask is a slot for the next section.

# %%
class OneHead(nn.Module):
    def __init__(self, embed_dim, head_dim, *, scale=None, learned_mask=None):
        super().__init__()
        self.q_proj = nn.Linear(embed_dim, head_dim)
        self.k_proj = nn.Linear(embed_dim, head_dim)
        self.v_proj = nn.Linear(embed_dim, head_dim)
        self.scale = 1 / math.sqrt(head_dim) if scale is None else scale
        self.learned_mask = nn.Identity() if learned_mask is None else learned_mask

    def forward(self, x, context=None, *, attn_mask=None):
        context = x if context is None else context  # where keys and values come from
        q = self.q_proj(x)  # (B, L, D)
        k, v = self.k_proj(context), self.v_proj(context)  # (B, S, D)
        scores = q @ k.transpose(-2, -1) * self.scale  # (B, L, S)
        weights = masked_softmax(self.learned_mask(scores), attn_mask)  # (B, L, S)
        return weights @ v, weights  # (B, L, D), (B, L, S)


# %% [markdown]
# The package's `MultiHeadAttention` with a single head is the same, but for a last linear map, which notebook 03
# explains. Take it out, and compare.

# %%
package = MultiHeadAttention(6, num_heads=1)
package.out_proj = nn.Identity()
course.assert_same_module(OneHead(6, 6), package, torch.randn(2, 5, 6), attn_mask=causal_mask(5))


# %% [markdown]
# ## Trainable masks
#
# A mask need not be yes or no. Let one number for each pair of places be **added** to its score (it starts at 0) or
# **multiply** it (it starts at 1). At the start neither changes anything.

# %%
class AdditiveMask(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.mask = nn.Parameter(torch.zeros(length, length))  # (L, S)

    def forward(self, scores):  # (B, L, S)
        return scores + self.mask


class MultiplicativeMask(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.mask = nn.Parameter(torch.ones(length, length))  # (L, S)

    def forward(self, scores):  # (B, L, S)
        return scores * self.mask


# %% [markdown]
# It is tempting to let the model learn whom not to look at, **in place of** the causal mask. Ask the gradient test.

# %%
words = torch.randn(6, 4)  # (L, E)
for Mask in (AdditiveMask, MultiplicativeMask):
    head = OneHead(4, 4, learned_mask=Mask(6))
    for name, attn_mask in {"in place of the causal mask": None, "beside it": causal}.items():
        J = influence(lambda x, head=head, m=attn_mask: head(x, attn_mask=m)[0], words)
        print(f"{Mask.__name__:18} {name:27} the future leaks: {bool(J.triu(diagonal=1).any())}")


# %% [markdown]
# ### What a leak is worth
#
# A small next-token model on **random** tokens from 8. Nothing can be learned: nobody can guess better than 1 in 8, so
# an honest loss cannot stay below $\log 8$. We train with and without the causal mask. **Predict** the losses.

# %%
class NextToken(nn.Module):
    def __init__(self, learned_mask, causal, vocab_size=8, embed_dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, embed_dim)
        self.head = OneHead(embed_dim, embed_dim, learned_mask=learned_mask)
        self.read_out = nn.Linear(embed_dim, vocab_size)
        self.causal = causal

    def forward(self, tokens):  # (B, L)
        attn_mask = causal_mask(tokens.shape[1], device=tokens.device) if self.causal else None
        y, _ = self.head(self.embed(tokens), attn_mask=attn_mask)  # (B, L, E)
        return self.read_out(y).transpose(1, 2)  # (B, vocab, L), as cross_entropy wants it


def train_next_token(Mask, causal, sequences):  # (N, 7): 6 tokens to read, and each one's next
    torch.manual_seed(0)
    model, sequences = NextToken(Mask(6), causal).to(device), sequences.to(device)
    stream = batches(sequences[:, :-1], sequences[:, 1:], batch_size=64, seed=0)
    return model, fit(model, stream, F.cross_entropy, TrainConfig(steps=300, lr=0.03), progress=False)


# %% tags=["nbval-ignore-output"]
random_tokens = torch.randint(8, (30_000, 7))  # more than 300 batches of 64: no sequence comes twice
leaky, leaky_history = train_next_token(AdditiveMask, False, random_tokens)
leaky_times, leaky_times_history = train_next_token(MultiplicativeMask, False, random_tokens)
honest, honest_history = train_next_token(AdditiveMask, True, random_tokens)
histories = {
    "additive in place of causal": leaky_history.loss,
    "multiplicative in place of causal": leaky_times_history.loss,
    "additive beside causal": honest_history.loss,
}
last = {name: sum(loss[-100:]) / 100 for name, loss in histories.items()}
print({name: round(value, 3) for name, value in last.items()}, f"log 8 = {math.log(8):.3f}")

# %%
ax = plotting.curves(histories, title="next token of random tokens", smooth=10)
ax.axhline(math.log(8), color="black", linestyle="--", label="log 8")
ax.axhline(math.log(8) / 6, color="black", linestyle=":", label="(log 8) / 6")
ax.legend(frameon=False, fontsize=8, loc="center right")
plt.show()
leaks = [value / math.log(8) for name, value in last.items() if "in place" in name]
course.verdict("larger of the two leaky losses, over log 8", max(leaks), below=0.4)
course.verdict("honest loss, over log 8", last["additive beside causal"] / math.log(8), above=0.995, below=1.03)

# %% [markdown]
# Without the causal mask the loss falls far below the possible: the answer to place $i$ is the input at place $i + 1$.
# Only the last place, one of six, has nothing to copy: hence the dotted line.
#
# A splendid loss that means nothing. Use the model as one does, with the future not yet written:

# %%
leaky.causal = True
fresh = torch.randint(8, (2000, 7), generator=torch.Generator().manual_seed(5)).to(device)
with torch.no_grad():
    in_use = F.cross_entropy(leaky(fresh[:, :-1]), fresh[:, 1:]).item()
course.verdict("leaky model used honestly: loss over log 8", in_use / math.log(8), above=1.2)

# %% [markdown]
# Worse than guessing. And here is what the masks have learned:

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3.5), layout="constrained")
for ax, model, title in zip(axes, (leaky, leaky_times, honest), histories, strict=True):
    mask = model.head.learned_mask.mask.detach().cpu()
    mask = mask.masked_fill(~causal, -math.inf) if model is honest else mask
    plotting.heatmap(
        mask, title=title.replace(" in", "\nin").replace(" be", "\nbe"), signed=True, vmax=2, colorbar=False, ax=ax
    )
plt.show()

# %% [markdown]
# The leaky ones point one step ahead. The honest one wanders near 0: there was nothing to find.
#
# ### An honest use
#
# Beside the causal mask, a trainable mask is a way to learn *where* to look. Take sequences that repeat every three
# tokens: the next token stands two places back.

# %% tags=["nbval-ignore-output"]
repeating = torch.randint(8, (30_000, 3)).repeat(1, 3)[:, :7]  # (N, 7): a b c a b c a
plus, plus_history = train_next_token(AdditiveMask, True, repeating)
times, times_history = train_next_token(MultiplicativeMask, True, repeating)
for name, history in {"additive": plus_history, "multiplicative": times_history}.items():
    print(f"{name}: loss {sum(history.loss[-100:]) / 100:.3f}, log 8 = {math.log(8):.3f}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 3.7), layout="constrained")
for ax, model, title in zip(axes, (plus, times), ("additive", "multiplicative"), strict=True):
    mask = model.head.learned_mask.mask.detach().cpu().masked_fill(~causal, -math.inf)  # (L, S)
    plotting.heatmap(mask, title=f"{title}, beside the causal mask", signed=True, colorbar=False, ax=ax)
plt.show()
found = torch.stack([m.head.learned_mask.mask.cpu().masked_fill(~causal, -math.inf) for m in (plus, times)])[
    :, 2:
]  # rows 2..5
two_back = [(i - 2, i - 5) for i in range(2, 6)]
hits = sum(int(row.argmax()) in places for rows in found for row, places in zip(rows, two_back, strict=True))
course.verdict("rows (of 8) whose largest entry is 2 or 5 places back", hits, above=7)

# %% [markdown]
# ## Train: a look-up
#
# Eight pairs of a key and a value, then one of the keys again. The answer is the value that stood beside it.

# %%
keys, values, asked, answer = (x.to(device) for x in lookup(20_000, seed=0))  # (N, 8), (N, 8), (N,), (N,)
test_set = [x.to(device) for x in lookup(2000, seed=1)]
print("pairs ", [tuple(pair) for pair in torch.stack([keys[0], values[0]], dim=-1).tolist()])
print("asked ", asked[0].item(), "  answer", answer[0].item())


# %%
class LookUp(nn.Module):
    def __init__(self, head_dim=32, *, scale=None, embed_dim=32):
        super().__init__()
        self.key_embed = nn.Embedding(32, embed_dim)
        self.value_embed = nn.Embedding(10, embed_dim)
        self.head = OneHead(embed_dim, head_dim, scale=scale)
        self.read_out = nn.Linear(head_dim, 10)

    def look(self, keys, values, asked):  # (B, S), (B, S), (B,)
        pairs = self.key_embed(keys) + self.value_embed(values)  # (B, S, E): a pair is one token
        return self.head(self.key_embed(asked)[:, None], pairs)  # (B, 1, D), (B, 1, S)

    def forward(self, keys, values, asked):
        found, _ = self.look(keys, values, asked)
        return self.read_out(found[:, 0])  # (B, 10)


def train_look_up(seed=0, steps=100, lr=0.01, **options):
    torch.manual_seed(seed)
    model = LookUp(**options).to(device)
    stream = batches(keys, values, asked, answer, batch_size=64, seed=seed)
    history = fit(model, stream, F.cross_entropy, TrainConfig(steps=steps, lr=lr), progress=False)
    return model, history, evaluate(model, [test_set], metrics.accuracy)


# %% [markdown]
# The model has to find out by itself that the query should carry the key, and the value the value. Beside it stands one
# that cannot look: with scale 0 all scores are 0, and attention is the plain mean.

# %% tags=["nbval-ignore-output"]
learned, _, learned_accuracy = train_look_up()
_, _, uniform_accuracy = train_look_up(scale=0.0)
commonest = F.one_hot(test_set[1]).sum(dim=1).amax(dim=-1).double().mean().item() / 8
print(
    f"attention {learned_accuracy:.3f}, plain mean {uniform_accuracy:.3f}, guessing the commonest value {commonest:.3f}"
)

# %%
course.verdict("attention: accuracy on new sequences", learned_accuracy, above=0.99)
course.verdict("plain mean: accuracy on new sequences", uniform_accuracy, below=0.4)

# %% [markdown]
# The mean knows which values are there, not which key they belong to. It can at best name the commonest one.
#
# What the head has learned: one new sequence, asked for each of its keys in ascending order.

# %%
one_keys, one_values = test_set[0][0], test_set[1][0]  # (8,)
order = one_keys.sort().values  # (8,)
with torch.no_grad():
    _, looks = learned.look(one_keys.expand(8, 8), one_values.expand(8, 8), order)  # (8, 1, 8)
columns = [f"{k}: {v}" for k, v in zip(one_keys.tolist(), one_values.tolist(), strict=True)]
rows = [f"{k}: ?" for k in order.tolist()]
plotting.heatmap(
    looks[:, 0], rows=rows, columns=columns, xlabel="pair", ylabel="asked", title="a learned look-up", vmax=1
)
plt.show()

# %% [markdown]
# ### With and without $1/\sqrt d$
#
# Now the question left open. Head sizes 32 and 256, scaled and not, 3 seeds each, 100 steps; then 256 unscaled once more
# with 300 steps.

# %% tags=["nbval-ignore-output"]
runs = {
    "d =  32, scaled": {"head_dim": 32},
    "d =  32, unscaled": {"head_dim": 32, "scale": 1.0},
    "d = 256, scaled": {"head_dim": 256},
    "d = 256, unscaled": {"head_dim": 256, "scale": 1.0},
    "d = 256, unscaled, long": {"head_dim": 256, "scale": 1.0, "steps": 300},
}
losses, accuracies = {}, {}
for name, options in runs.items():
    _, results, accuracies[name] = zip(*(train_look_up(seed, **options) for seed in range(3)), strict=True)
    losses[name] = torch.tensor([history.loss for history in results]).mean(dim=0)  # (steps,), mean over seeds
    print(f"{name:24} accuracy", "  ".join(f"{a:.3f}" for a in accuracies[name]))

# %%
short = {name: loss for name, loss in losses.items() if len(loss) == 100}
ax = plotting.curves(short, title="look-up, mean of 3 seeds", smooth=5)
ax.axhline(math.log(10), color="black", linestyle="--", label="log 10: guessing")
ax.legend(frameon=False, fontsize=8, loc="center right", bbox_to_anchor=(1, 0.26))
plt.show()

# %%
start = losses["d = 256, unscaled"][:20].mean().item() / math.log(10)
ratio = (losses["d = 256, unscaled"].mean() / losses["d = 256, scaled"].mean()).item()
mean = {name: sum(a) / 3 for name, a in accuracies.items()}
course.verdict("d = 256, scaled: worst of 3 accuracies", min(accuracies["d = 256, scaled"]), above=0.99)
course.verdict("d = 256: mean loss unscaled over scaled", ratio, above=2)
course.verdict("d = 256, unscaled: loss of the first 20 steps over guessing", start, above=1)
course.verdict("d = 256, unscaled, 100 steps: mean accuracy", mean["d = 256, unscaled"], below=0.95)
course.verdict("d = 256, unscaled, 300 steps: mean accuracy", mean["d = 256, unscaled, long"], above=0.9)


# %% [markdown]
# What came out, no more and no less:
#
# - at $d = 32$ the scale saves some steps, and both solve the task;
# - at $d = 256$ the unscaled head first gets worse than guessing, and is far behind after 100 steps;
# - with three times the steps it nearly catches up. On this task $1/\sqrt d$ buys speed.

# %% [markdown]
# ## Exercises
#
# Write the function in place of `raise NotImplementedError` and run the cell. The first wrong run shows what is wrong with
# the result, the second names the mistake; the numbers are fresh each time. Hints and a solution are folded away below each cell.
#
# ### Exercise 1 · easy · 4 minutes
#
# The weights of one head: softmax over the keys that the mask allows. Every query sees at least one key.

# %%
def masked_weights(scores, attn_mask):  # (L, S) numbers, (L, S) True = may attend
    raise NotImplementedError  # (L, S)


check.masked_weights(masked_weights)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A hidden key has to have weight 0, and the softmax gives 0 to one score only.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `scores.masked_fill(where, number)` writes where its mask is True. Ours is True at what may be *seen*.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def masked_weights(scores, attn_mask):
#     hidden = scores.masked_fill(~attn_mask, -math.inf)
#     return hidden.softmax(dim=-1)
# ```
#
# </details>
#
# ### Exercise 2 · middle · 8 minutes
#
# Scaled dot-product attention whole, from memory: queries, keys and values of one head, and a mask that may be missing.
# If there is one, every query sees at least one key.

# %%
def scaled_dot_product(query, key, value, attn_mask=None):  # (L, D), (S, D), (S, D), (L, S) or None
    raise NotImplementedError  # (L, D)


check.scaled_dot_product(scaled_dot_product)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Three lines: scores, weights, output. The head size is `query.shape[-1]`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Scale before the softmax, and hide before the softmax. Afterwards it is too late for both.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def scaled_dot_product(query, key, value, attn_mask=None):
#     scores = query @ key.T / math.sqrt(query.shape[-1])  # (L, S)
#     if attn_mask is not None:
#         scores = scores.masked_fill(~attn_mask, -math.inf)
#     return scores.softmax(dim=-1) @ value  # (L, D)
# ```
#
# </details>
#
# ### Exercise 3 · hard · 12 minutes
#
# A leak detector. `attention` is any differentiable function from words (L, E) to outputs (L, D). Say whether, at this
# `x`, some output depends on a later word: whether a small change of that word would change it.

# %%
def future_leaks(attention, x):  # a function, and words (L, E) to try it on
    raise NotImplementedError  # True or False


check.future_leaks(future_leaks)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `torch.autograd.functional.jacobian(attention, x)` has shape (L, D, L, E). Entry (i, j) of what you need has i from the
# first L and j from the second.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Derivatives have signs. Sum them as they are, and +1 and −1 make a leak invisible.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def future_leaks(attention, x):
#     jacobian = torch.autograd.functional.jacobian(attention, x)  # (L, D, L, E)
#     influence = jacobian.abs().sum(dim=(1, 3))  # (L, L)
#     return bool(influence.triu(diagonal=1).any())
# ```
#
# </details>
#
# ### Exercise 4 · hard · 12 minutes
#
# Break our attention: this time you write the *test*. `attention(query, key, value, attn_mask)` is somebody's version
# of exercise 2, scaled dot-product attention of one head: it takes (L, D), (S, D), (S, D) and a mask (L, S), True = may
# attend, or `None`, and gives (L, D). Each query sees at least one key. Raise an AssertionError (`assert …`, or
# `torch.testing.assert_close(got, expected)`) where the version is wrong. Your test has to accept every right version
# and reject each of 24 faulty ones; you are told which survive.

# %%
def test_attention(attention):  # a version to be tested
    raise NotImplementedError  # AssertionError, or nothing


check.test_attention(test_attention)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A result to compare with can come from torch: `F.scaled_dot_product_attention(query, key, value, attn_mask=mask)` has
# our masks.
#
# </details>
# <details><summary>Hint 2</summary>
#
# For each step of the formula, ask on which inputs nobody would notice that it is missing. Take others: L, S and D all
# different, a mask that hides something.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def test_attention(attention):
#     for L, S, D in ((5, 7, 3), (4, 4, 2)):
#         query, key, value = torch.randn(L, D), torch.randn(S, D), torch.randn(S, D)
#         for attn_mask in (None, causal_mask(L, S)):
#             expected = F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)
#             torch.testing.assert_close(attention(query, key, value, attn_mask), expected)
# ```
#
# </details>

# %% [markdown]
# ## Your turn
#
# **1. (easy, 3 minutes)** In every causal map the first row is 1, 0, 0, …, whatever the scores. Why?
#
# <details><summary>Answer</summary>
#
# The first word may look at itself only. A softmax over a single number is 1.
#
# </details>
#
# **2. (middle, 5 minutes)** Set an entry of a multiplicative mask to 0. Is that key hidden from that query?
#
# <details><summary>Answer</summary>
#
# No. Its score becomes 0, and $e^0 = 1$ is a weight like any other; if the other scores are negative, it is even the
# largest. It is the mistake *0 in place of −∞* once more. Only $-\infty$ before the softmax hides a key.
#
# </details>
#
# **3. (easy, 5 minutes)** Repeat the comparison with `train_look_up(seed, lr=0.003, …)`. How much of the gap is left?
#
# <details><summary>Answer</summary>
#
# At 256 unscaled is still behind after 100 steps, though less so; at 32 the two are hard to tell apart. A smaller
# learning rate makes up for part of what the scale does. So a claim such as "it does not train without the scale" needs
# its learning rate beside it.
#
# </details>
#
# **4. (harder, 10 minutes)** In the look-up, which part of a pair's embedding should $W_k$ keep, and which $W_v$? Can
# one head, instead of the value, tell *how many* of the eight values equal the one asked for?
#
# <details><summary>Answer</summary>
#
# $W_k$ keeps the key, so that it meets the query; $W_v$ keeps the value, so that it can be handed over. To count, the
# query would have to know the value, which it learns only from this very look-up. A second layer can: the first finds
# the value, the second compares it with all of them, and the share of matches is the count divided by 8.
#
# </details>

# %% [markdown]
# ## Takeaways
#
# - A head asks with $q$, answers with $k$ and hands over $v$; $1/\sqrt d$ keeps the scores at variance 1, whatever the
#   head size.
# - A mask acts **before** the softmax, as $-\infty$; True = may attend. Trust the gradient test, not the look of the
#   weights.
# - A trainable mask stands beside the causal mask, never in its place: a leak makes the loss splendid and worthless.

# %% [markdown]
# ## Check yourself
#
# **1.** In multi-head attention with `embed_dim` 256 and 4 heads, what is $d$ in $1/\sqrt d$?
#
# <details><summary>Answer</summary>
#
# 64, the head size: the dot product sums over that many terms.
#
# </details>
#
# **2.** All weights on the future are exactly 0. Can the future still leak?
#
# <details><summary>Answer</summary>
#
# Yes, through the divisor of the softmax: *mask after the softmax* does just that.
#
# </details>
#
# **3.** Your model's loss on random tokens is below $\log V$ on fresh data. Good news?
#
# <details><summary>Answer</summary>
#
# No: it is impossible without seeing the answers. Something leaks.
#
# </details>

# %% [markdown]
# ## To read, and what comes next
#
# - Vaswani et al. 2017, *Attention is all you need*, arXiv:1706.03762: sections 3.2.1 (the formula, and footnote 4 on the
#   variance) and 3.2.3 (masking).
# - Press et al. 2022, arXiv:2108.12409, section 3: a bias added to the scores, fixed instead of trained.
# - The same head in another language, without any library: `sciformer/teach/export/forward.js`, by which the pages of the
#   playground compute.
#
# Next, notebook 03: one head can look for one thing. Several heads look for several, side by side.
