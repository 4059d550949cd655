# %% [markdown]
# # 15 Fast attention
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/15_fast_attention.ipynb)
#
# ← [14 Random search](14_random_search.ipynb) · [the map of the course](00_welcome.ipynb) · [16 Bake-off](16_bake_off.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) **15** [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb) · taken apart [18](18_heads_that_copy.ipynb)
#
# Needs: notebooks 07 and 09 · runs in about 60 s on two CPU cores · about 2½ hours of study

# %% [markdown]
# Every new token of a prompt is compared with all others, so twice the tokens are four times the scores. This notebook
# gets the same [attention](../docs/glossary.md#a) without holding all of them. What it wins for sure is **memory**. How
# much time it wins depends on the machine and on the score; you will measure that on yours.
#
# After this notebook you can
#
# - compute exact attention without holding its matrix, and say which of five ways serves which score;
# - measure time and memory against length, and read the slopes;
# - read a [roofline](../docs/glossary.md#r), the limits of your machine;
# - say beforehand whether a text fits into memory;
# - train one model in several processes, and get the loss curve of one (optional).
#
# New against 09: the same numbers, in less memory.

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
import json
import math
import os
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import ipywidgets
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

from sciformer import DistanceBiasedScore, DotProductScore, SeparableAdditiveScore, attend, check, course, experiments, metrics, plotting, records
from sciformer.data import batches
from sciformer.lab import measuring, roofline, trainers
from sciformer.teach import explore
from sciformer.fast import attention, query_blocks
from sciformer.training import TrainConfig, fit

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
os.environ["KINETO_LOG_LEVEL"] = "99"  # the profiler, which counts bytes here, need not say so each time

# %% [markdown]
# ## Predict first
#
# 1. A text of 16,384 [tokens](../docs/glossary.md#t), one [head](../docs/glossary.md#h), float32. How many bytes does
#    its matrix of weights take?
# 2. Exact attention without that matrix: how does its memory grow with the length? And its time?
# 3. On your CPU, at 2,048 tokens: is the form that never writes its matrix faster than the one that does?

# %% [markdown]
# ## What the matrix costs
#
# The readable form, as in notebook 02: every [query](../docs/glossary.md#q) meets every [key](../docs/glossary.md#k),
# and all their [scores](../docs/glossary.md#s) are there at once.

# %%
words = ["the", "cat", "sat", "on", "the", "mat"]


def readable(query, key, value):  # (..., L, D), (..., S, D), (..., S, D)
    scores = query @ key.mT / math.sqrt(query.shape[-1])  # (..., L, S)
    return scores.softmax(dim=-1) @ value  # (..., L, D)


q, k, v = torch.randn(3, 6, 4)  # the toy sentence: (L, D) each
print(tuple(readable(q, k, v).shape), "from", len(words) ** 2, "weights")

# %% [markdown]
# A float32 has 4 bytes, so T tokens need $4\,T^2$ of them for **one** matrix, for each head and each text of the
# [batch](../docs/glossary.md#b). (MB are 10⁶ bytes in this notebook, and GB 10⁹.)

# %%
for T in (1_024, 4_096, 16_384, 65_536):
    print(f"{T:6,} tokens: {4 * T * T / 1e6:8,.0f} MB")


# %% [markdown]
# Prediction 1: a little more than a gigabyte. And training holds more than one matrix. `peak_bytes` is the most that
# torch holds at a time during a forward and a [backward pass](../docs/glossary.md#b), beyond what was there before; so
# the inputs are not counted. **Predict**: how many T × T matrices does it hold at its peak, and which?

# %%
def training_pass(form, length, heads=1):
    inputs = [torch.randn(1, heads, length, 32, device=device, requires_grad=True) for _ in range(3)]

    def run():
        form(*inputs).sum().backward()
        for x in inputs:
            x.grad = None  # so that the next pass makes its own
        if device == "cuda":  # which works on while Python goes ahead
            torch.cuda.synchronize()

    run()  # what torch sets up once is not counted
    return run


matrices = measuring.peak_bytes(training_pass(readable, 1024), device) / (4 * 1024**2)
print(f"{matrices:.1f} matrices at a time")

# %% [markdown]
# Three: the weights, kept for the backward pass, their gradient, and the gradient of the scores.
#
# ## Ways around it
#
# A kernel is a program for the processor. A **[fused kernel](../docs/glossary.md#f)** does several operations in one,
# so that what lies between them is never written to memory. Torch's own for attention is called SDPA (scaled
# dot-product attention); we build its idea by hand, as **key blocks**. The other ways are **query blocks**, **prefix
# sums** (running sums, as in notebook 09) and [FlexAttention](../docs/glossary.md#f), a kernel written for the score at
# hand. Black, of 12 × 12 scores, is what a form holds at one moment; a **tile** is the scores of some queries with some
# keys:

# %%
held = torch.zeros(4, 1, 12, 12)
held[0] = 1
held[1, :, 4:8, 8:] = 1
held[2, :, 4:8] = 1
held[3, :, :1] = 1
titles = ["readable: all", "fused kernel: a tile", "query blocks: some rows", "prefix sums: one row"]
plotting.images(held, titles, columns=4, size=2.2)
plotting.show(
    "Four squares for the 12 × 12 scores. All of the first is black, a block at the right of the second, a "
    "band of rows in the third, and one row in the fourth."
)

# %% [markdown]
# A row needs no other row, so query blocks are easy. A tile is harder: a [softmax](../docs/glossary.md#s) divides by the
# sum of its whole row.
#
# ## A softmax in one pass
#
# Could one read the keys one by one, and add $e^s$ and $e^s v$ to two sums? **Predict** what float32 makes of these
# three scores:

# %%
high = torch.tensor([90.0, 89.0, 80.0])
print("plain sums:", (high.exp() / high.exp().sum()).tolist(), " softmax:", [f"{w:.3f}" for w in high.softmax(dim=0)])


# %% [markdown]
# $e^{90}$ is more than float32 can hold: infinity over infinity is not a number. `softmax` subtracts the row's largest
# score first. Reading key by key, we do not know it yet, so we keep the largest **so far**, $m$, and two sums in which
# a key with score $s$ has the weight $e^{s - m}$: $z$, the sum of the weights, and $o$, that of the weighted values.

# %% [markdown]
# A score $s$ with its value $v$ arrives:
#
# $$m' = \max(m, s), \qquad z' = e^{m - m'} z + e^{s - m'}, \qquad o' = e^{m - m'} o + e^{s - m'} v$$
#
# If $m$ grows, the old sums **fade** by $e^{m - m'} \le 1$. At the end $o / z$ is the output. This is the *[online
# softmax](../docs/glossary.md#o)* (Milakov and Gimelshein 2018, [arXiv:1805.02867](https://arxiv.org/abs/1805.02867)).

# %%
def one_pass(scores, value, fading=True):  # (S,), (S, D)
    largest, total, output, answers = torch.tensor(-math.inf), torch.tensor(0.0), torch.zeros(value.shape[-1]), []
    for s, v in zip(scores, value, strict=True):
        new = torch.maximum(largest, s)
        fade = (largest - new).exp() if fading else 1.0
        total, output = fade * total + (s - new).exp(), fade * output + (s - new).exp() * v
        largest = new
        answers.append(output / total)
    return torch.stack(answers)  # (S, D): the answer after each key


scores = 2 * torch.randn(48)
values = torch.randn(48, 1).cumsum(dim=0)
exact = scores.softmax(dim=0) @ values  # (1,)
torch.testing.assert_close(one_pass(scores, values)[-1], exact)

# %% [markdown]
# ### Break it: forget the fading
#
# The weights before a new maximum then have another scale than those after it. **Predict**: at which keys does the
# answer go wrong, and does it come right again? Below is how far it is from the softmax over the keys read so far.

# %%
so_far = torch.stack([scores[:n].softmax(dim=0) @ values[:n] for n in range(1, 49)])  # (48, 1), exact
off = {name: (one_pass(scores, values, fading) - so_far)[:, 0].tolist() for name, fading in (("with fading", True), ("without", False))}
ax = plotting.curves(off, xlabel="keys read", ylabel="answer minus exact answer", title="one query, 48 keys")
for n in range(1, 48):
    if scores[n] > scores[:n].max():
        ax.axvline(n + 1, color="0.8", zorder=0, label="_" if len(ax.lines) > 2 else "new maximum")  # key n + 1
ax.legend(frameon=False)
plotting.show("How far the answer after each key is from the exact one, with fading and without; thin lines where the maximum grows.")
print(f"after all keys: exact {exact.item():.2f}, without fading {one_pass(scores, values, False)[-1].item():.2f}")
print(f"the values lie between {values.min():.1f} and {values.max():.1f}")


# %% [markdown]
# It goes wrong with the first new maximum: from there on, everything added before is too large by one factor, and each
# new maximum adds another. Between the lines the curve moves, too, since every key has its share in an answer of false
# weights; where it crosses 0, that is chance. Fading corrects the sums on the spot. Now for all queries at once, a
# block of keys at a time:

# %%
def key_blocks(query, key, value, size=64):  # (..., L, D), (..., S, D), (..., S, D)
    largest = torch.full_like(query[..., :1], -math.inf)  # (..., L, 1)
    total, output = torch.zeros_like(largest), torch.zeros_like(query)
    for k, v in zip(key.split(size, dim=-2), value.split(size, dim=-2), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])  # (..., L, size)
        new = torch.maximum(largest, scores.amax(dim=-1, keepdim=True))
        fade, weights = (largest - new).exp(), (scores - new).exp()
        total = fade * total + weights.sum(dim=-1, keepdim=True)
        output = fade * output + weights @ v
        largest = new
    return output / total


# %%
def same(one, other, length=150, heads=2):
    """Outputs and gradients of two forms agree in float64."""
    inputs = [torch.randn(1, heads, length, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    outputs = one(*inputs), other(*inputs)
    probe = torch.randn_like(outputs[0])
    gradients = [torch.autograd.grad(output, inputs, probe) for output in outputs]
    for a, b in zip((outputs[0], *gradients[0]), (outputs[1], *gradients[1]), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    print("same: output and three gradients, to 1e-12")


same(key_blocks, readable)


# %% [markdown]
# ## SDPA
#
# Cut the queries, too, and a tile fits into the small, fast memory beside the processor (on a CPU, its **caches**):
# scores are never written out. That is [FlashAttention](../docs/glossary.md#f) (Dao et al. 2022,
# [arXiv:2205.14135](https://arxiv.org/abs/2205.14135)), and torch has it behind one call:

# %%
def fused(query, key, value):
    return F.scaled_dot_product_attention(query, key, value)


def package(query, key, value):
    score = DotProductScore(query.shape[1], query.shape[-1])
    return attention(score, query, key, value)[0]


same(fused, readable)
same(package, readable)


# %%
def forward_bytes(form, length=4096):
    inputs = [torch.randn(1, 1, length, 32, device=device) for _ in range(3)]
    return measuring.peak_bytes(lambda: form(*inputs), device)


matrix = forward_bytes(readable)
for form in (key_blocks, fused):
    course.verdict(f"4096 tokens, forward: memory of readable over {form.__name__}", matrix / forward_bytes(form), above=2)

# %% [markdown]
# The package takes this call for the [dot product](../docs/glossary.md#d), unless you ask for `need_weights=True`:
# that brings the matrix back.
#
# ## The backward pass
#
# That was the forward pass. **Predict**: how much of the gain is left if one *trains* with `key_blocks`?

# %%
kept = measuring.peak_bytes(training_pass(key_blocks, 1024), device) / measuring.peak_bytes(training_pass(readable, 1024), device)
print(f"memory of the training pass: {kept:.2f} of the readable form's")

# %%
course.verdict("training at 1024 tokens, memory of key blocks over readable", kept, above=0.5)


# %% [markdown]
# Next to nothing: 0.9 of three matrices are 2.7. For the gradients torch keeps the scores and the weights of every
# block, which together are two whole matrices. It keeps the output before each block, too: 16 blocks of T × 32 numbers
# are half a matrix more. (What the rest holds was not looked for.)
#
# The cure: keep one number a row, $t_i = m_i + \log z_i$, and compute each tile's weights **once more**:
# $w_{ij} = e^{s_{ij} - t_i}$. With $g_i$ the gradient of the loss at the output $y_i$,
#
# $$\frac{\partial\,\text{loss}}{\partial s_{ij}} = w_{ij}\,(g_i \cdot v_j - g_i \cdot y_i)$$
#
# Where does this come from? The output is $y_i = \sum_j w_{ij} v_j$, so the loss changes with a weight by $g_i \cdot
# v_j$. A score raises its own weight and lowers all others of its row: $\partial w_{ik} / \partial s_{ij}$ is $w_{ij}
# (1 - w_{ij})$ for $k = j$ and $-w_{ik} w_{ij}$ else. Summed over $k$, that is $w_{ij}$ times $g_i \cdot v_j - \sum_k
# w_{ik}\, g_i \cdot v_k$, and the last sum is $g_i \cdot y_i$: one number for a whole row. So a tile needs nothing of
# the other tiles but $t_i$ and $g_i \cdot y_i$.
#
# More arithmetic, and less to write and read. Exercise 3 builds the formula, without its blocks; the [fused
# kernels](../docs/glossary.md#f) have it.

# %% [markdown]
# ## Query blocks
#
# A fused kernel is written for one score. Blocks of queries serve **any** score, in plain torch. As in notebook 09,
# torch's `checkpoint` throws away what a block computed, and computes it again in the backward pass. (A score that knows
# positions must be told at which query a block begins; the dot product knows none.)

# %%
def in_query_blocks(query, key, value, rows=128):
    parts = []
    for part in query.split(rows, dim=-2):  # (..., rows, D); nothing is drawn at random, so no state to bring back
        parts.append(checkpoint(readable, part, key, value, use_reentrant=False, preserve_rng_state=False))
    return torch.cat(parts, dim=-2)


same(in_query_blocks, readable)

# %% [markdown]
# The package's, with a score for which there is no kernel, the [distance bias](../docs/glossary.md#d) to both sides:

# %%
distance = DistanceBiasedScore(1, 8).double()
same(
    lambda *inputs: query_blocks(distance, *inputs),
    lambda query, key, value: attend(distance(query, key), value)[0],
    length=2100,  # two blocks: 2²² scores are 1,997 rows of 2,100
    heads=1,
)

# %% [markdown]
# How many rows should a block have? **Predict** the memory of a training pass at 1,024 tokens: a training holds three
# matrices at a time, so how many bytes does one more row cost? And what is left at 0 rows, which no block can avoid?

# %%
rows = [16, 32, 64, 128, 256, 512, 1024]
blocked = [measuring.peak_bytes(training_pass(lambda *x, n=n: in_query_blocks(*x, rows=n), 1024), device) / 1e6 for n in rows]
predicted = [(3 * 4 * 1024 * n + 3 * 4 * 1024 * 32) / 1e6 for n in rows]  # three rows of weights; three gradients, T × D each
lines = {"measured": blocked, "3 · 4 T bytes a row, and three gradients": predicted}
ax = plotting.curves({name: list(zip(rows, values, strict=True)) for name, values in lines.items()}, xlabel="rows of a block", ylabel="MB")
ax.lines[0].set(marker="o", linestyle="none")
ax.axhline(3 * 4 * 1024 * 32 / 1e6, color="0.4", linestyle="--", label="three gradients alone")
ax.set_xscale("log", base=2)
ax.set(yscale="log", title="memory of a training pass, 1,024 tokens")
ax.legend(frameon=False)
plotting.show("Measured memory against the rows of a block, on logarithmic axes, the predicted curve, and the gradients alone.")

# %% [markdown]
# For memory, then, few rows are best. For time? The arithmetic is that of all rows, however they are cut; let it take
# $a$. Let each block cost $b$ on top, for its calls and for what it adds to the gradients of all keys. **Predict**: if $a
# + b \cdot \text{blocks}$ is fitted to 1 block and to 64, how well does it meet the five between?

# %% tags=["nbval-ignore-output"]
took = measuring.fastest_seconds_in_turns([training_pass(lambda *x, n=n: in_query_blocks(*x, rows=n), 1024) for n in rows], 5)
b = (took[0] - took[-1]) / (64 - 1)
a = took[-1] - b
print(f"a = {1000 * a:.1f} ms, b = {1000 * b:.1f} ms a block")
for n, one in zip(rows, took, strict=True):
    print(f"{1024 // n:2} blocks of {n:4} rows: {1000 * one:6.1f} ms, predicted {1000 * (a + b * 1024 / n):6.1f}")


# %% [markdown]
# In the stored run the five meet the fit within a twentieth: what small blocks cost is $b$ for each. (In memory, counted
# and measured agree but for a little at 16 rows; at 0 rows the three gradients are left.) So few rows save memory, and
# many blocks cost time. The package takes as many rows as make four million scores on a CPU, 17 MB in float32.

# %% [markdown]
# ## Prefix sums
#
# In time, cheapest of all is a score that needs no matrix. In notebook 09 the query cancelled from the [separable
# score](../docs/glossary.md#s), and causal attention became a running weighted mean:
#
# $$y_i = \frac{\sum_{j \le i} e^{b_j}\, v_j}{\sum_{j \le i} e^{b_j}}, \qquad b_j = w \cdot \tanh(k_j)$$

# %%
def prefix_sums(query, key, value):
    weight = key.tanh().sum(dim=-1, keepdim=True).exp()  # (..., S, 1), with w = 1
    return (weight * value).cumsum(dim=-2) / weight.cumsum(dim=-2) + 0 * query


def separable(query, key, value, need_weights=False):
    score = SeparableAdditiveScore(query.shape[1], query.shape[-1]).to(query)
    torch.nn.init.ones_(score.weight)
    return attention(score, query, key, value, is_causal=True, need_weights=need_weights)[0]


same(prefix_sums, lambda *inputs: separable(*inputs, need_weights=True))
same(separable, prefix_sums)

# %% [markdown]
# It is the only form whose number of operations, and so in the long run its **time**, is linear in the length. But it
# is another score, one in which the query has no effect. (`0 * query` gives the query the gradient 0 that it has. These
# plain sums overflow for large scores; the package's do not, see 09.)

# %% [markdown]
# ## FlexAttention
#
# A kernel written for you, for any score that is a function of the dot product and of the two places: `flex_attention`
# (Dong et al. 2024, [arXiv:2412.05496](https://arxiv.org/abs/2412.05496)) takes a `score_mod`, a function that is given
# one score and the indices of its batch, head, query and key, and returns the new score. The distance bias is one line:

# %%
warnings.filterwarnings("ignore", "flex_attention called without")  # we know, see below
strength = torch.tensor([0.5, 0.05], dtype=torch.float64)  # λ of each head


def pay_for_distance(score, batch, head, i, j):
    return score - strength[head] * (i - j).abs()


query, key, value = torch.randn(3, 1, 2, 48, 8, dtype=torch.float64)  # (B, H, L, D)
bias = DistanceBiasedScore(2, 8).double()
bias.load_state_dict({"strength": strength})
output = flex_attention(query, key, value, score_mod=pay_for_distance)
torch.testing.assert_close(output, attend(bias(query, key), value)[0].detach(), rtol=0, atol=1e-12)

# %% [markdown]
# Called like this it is the readable form, matrix and all, and on a CPU it has no backward pass: good for finding out
# whether a `score_mod` is right.

# %%
plain = [torch.randn(1, 1, 512, 32) for _ in range(3)]
pay_nothing = measuring.peak_bytes(lambda: flex_attention(*plain), "cpu") / (4 * 512**2)
course.verdict("matrices held by flex_attention, uncompiled", pay_nothing, above=1)

# %% [markdown]
# `torch.compile(flex_attention)` writes the kernel, with tiles as above. It needs a CUDA GPU to train; there it joins the
# measurement below, and on a CPU none of its numbers is measured here.
#
# When is each way possible? ($T$ and $T^2$ say how the count grows.)
#
# | form | for which scores | training | memory | operations |
# |---|---|---|---|---|
# | key blocks, by hand | the dot product | yes, but holds the matrices again | $T$ forward, $T^2$ in training | $T^2$ |
# | SDPA | the dot product, and a bias that is held as a matrix | yes | $T$ (with such a bias $T^2$) | $T^2$ |
# | query blocks | any | yes, by computing the scores once more | $T$ | $T^2$ |
# | prefix sums | the separable score alone | yes | $T$ | $T$ |
# | FlexAttention | a function of the dot product and the two places | compiled, on a GPU | $T$ compiled, $T^2$ if not | $T^2$ |
#
# ## Measure
#
# A forward and a backward pass each, one head of 32. The forms take turns, so that a machine that is busy with something
# else is busy for all of them. The quick [profile](../docs/glossary.md#p) goes to 8,192 tokens, the full one to 32,768. A
# time is the shortest of five turns, but at 4,096 and 8,192 tokens a form has a single turn. (The prefix sums are causal;
# the other forms are not, and would compute half of the pairs if they were.)

# %%
forms = {"readable": readable, "SDPA": fused, "query blocks": in_query_blocks, "prefix sums": prefix_sums}
if device == "cuda":
    forms["FlexAttention"] = torch.compile(flex_attention)
longest = 32_768 if course.profile() == "full" else 8_192  # tokens, for all forms but the prefix sums
lengths = [2**n for n in range(8, 20) if 2**n <= 16 * longest]
seconds, memory = {name: [] for name in forms}, {name: [] for name in forms}
for T in lengths:
    able = forms if longest >= T else ["prefix sums"]
    passes = [training_pass(forms[name], T) for name in able]
    took = measuring.fastest_seconds_in_turns(passes, 1 if 2048 < T <= longest else 5)
    for name, run, one in zip(able, passes, took, strict=True):
        seconds[name].append((T, one))
        memory[name].append((T, measuring.peak_bytes(run, device)))


# %% [markdown]
# Growth like $c\,T^p$ is a line of slope $p$ if both axes are logarithmic. Its least-squares slope, by hand, through
# the four longest (in short texts the overhead of each call hides the rest):

# %%
def slope(points):
    x, y = torch.tensor(points[-4:], dtype=torch.float64).log().T
    x, y = x - x.mean(), y - y.mean()
    return ((x @ y) / (x @ x)).item()


for name in forms:
    assert abs(slope(memory[name]) - metrics.power_law(memory[name][-4:])[0]) < 1e-9

# %%
_, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
colors = [plotting.COLORS[n] for n in (0, 1, 2, 6, 4)]
plotting.growth(seconds, ylabel="seconds", title="time of a training pass (hollow: timed once)", ax=axes[0], colors=colors)
once = [(T, took) for name in forms for T, took in seconds[name] if 2048 < T <= longest]
axes[0].plot([T for T, _ in once], [took for _, took in once], "o", color="white", markersize=2.5)
one_matrix = "T × T × 4 bytes", [(T, 4 * T * T) for T in (lengths[0], 4 * longest)]
plotting.growth(memory, guide=one_matrix, ylabel="bytes", title=f"memory of a training pass, {device}", ax=axes[1], colors=colors)
plotting.show("Time and memory of a training pass against tokens, on logarithmic axes, with lines through the four longest of each form.")

# %%
course.verdict("slope of memory, readable", slope(memory["readable"]), above=1.8, below=2.2, measured="quick")
for name in ("SDPA", "query blocks", "prefix sums"):
    course.verdict(f"slope of memory, {name}", slope(memory[name]), below=1.3, measured="quick")

# %% [markdown]
# Prediction 2: the memory of the readable form grows with the square of the length, that of the others at most with the
# length. ([SDPA](../docs/glossary.md#s)'s slope is below 1 on a CPU: a good part of its memory is **work space**, room
# for the tiles of each thread, up to about 1 MB, which does not grow for ever.)
#
# And time? Prefix sums have as many operations as tokens; the other forms compute every pair, so their operations have
# the slope 2. But the fit above gives query blocks a second part: $b$ for each block of 128 rows, and blocks grow with
# $T$, not with $T^2$. **Predict**: is their slope above 2 or below?

# %% tags=["nbval-ignore-output"]
for name in forms:
    print(f"{name:14} {longest:6,} tokens: {1000 * dict(seconds[name])[longest]:8.1f} ms, slope of time {slope(seconds[name]):.2f}")
fitted = [(T, a * (T / 1024) ** 2 + b * T / 128) for T in lengths if longest >= T]
print(f"query blocks, predicted from 1,024 tokens: {1000 * fitted[-1][1]:.1f} ms, slope {slope(fitted):.2f}")

# %% [markdown]
# The fit, made at 1,024 tokens, says below 2, and in the stored run it is right: 1.85 predicted and 1.91 measured, and at
# 8,192 tokens the predicted time is short by about a twentieth. (Perhaps because $b$ grows a little with $T$: a block adds
# to the gradients of all keys and values. This was not measured.) The readable form has the same operations and a slope
# well above 2, most of it from one jump, between 2,048 and 4,096 tokens. Its matrices outgrow the caches on the way;
# whether that is the reason has not been measured. (Other programs that use the memory raise all slopes. Compare your own
# run.)
#
# Two of the four lengths were timed once, so one dot may stand far from the others. The line of the prefix sums goes
# through longer texts, up to 131,072 tokens. Memory is counted and not timed, so it is the same from run to run on one
# machine, with as many threads.

# %% [markdown]
# ## How near to the limit
#
# Prediction 3: in the stored run SDPA is the faster one at 2,048 tokens, but by little, as the table below says in
# numbers; at 8,192 tokens it takes less than half of the readable form's time. On your machine it may be otherwise. SDPA
# moves about an eightieth of the bytes: why is it not eighty times faster?
#
# A machine has two limits: how many operations it computes in a second, and how many bytes it moves. An operation of
# torch takes at least as long as its arithmetic needs, and at least as long as its bytes need. So its **least time** is
# the longer of the two. Two operations of the readable form, at 2,048 tokens, on the machine that runs this:

# %% tags=["nbval-ignore-output"]
machine = roofline.measure_machine(device)  # its fastest matrix product, and its fastest copies
T, D = 2048, 32
for name, flops, moved in (("query @ key.mT", 2 * T * T * D, 4 * (2 * T * D + T * T)), ("softmax", 0, 4 * 2 * T * T)):
    computes, moves = 1000 * flops / machine.flops, 1000 * moved / machine.bandwidth(moved)
    print(f"{name}: {flops / 1e6:.0f} million operations, {computes:.2f} ms; {moved / 1e6:.0f} MB, {moves:.2f} ms; least {max(computes, moves):.2f} ms")

# %% [markdown]
# (Operations, `flops` in the code, are those of matrix products, a multiplication and its addition counted as two; the
# softmax's exponentials are not counted.) Torch runs one operation after the other, so it needs at least the **sum** of
# the least times for a whole pass. **Predict**: which form comes nearest to that limit?

# %% tags=["nbval-ignore-output"]
print("2,048 tokens  took ms  least ms  least / took  operations a byte")
points = {}
for name in ("readable", "SDPA", "query blocks"):
    cost, took = roofline.cost(training_pass(forms[name], 2048), machine), dict(seconds[name])[2048]
    points[name] = cost.flops, cost.bytes, took
    print(f"{name:12} {1000 * took:8.1f} {1000 * cost.least_seconds:9.1f} {cost.least_seconds / took:13.0%} {cost.flops / cost.bytes:18.1f}")
corners = [machine.flops / speed for speed in (max(speed for _, speed in machine.copies), machine.copies[-1][1])]
print("corners, operations a byte: data in the caches {:.1f}, in memory {:.1f}".format(*corners))
print(f"query blocks: {1000 * b * 2048 / 128:.0f} of the ms are b for each of {2048 // 128} blocks")

# %% [markdown]
# A **roofline** (Williams, Waterman and Patterson 2009,
# [doi:10.1145/1498765.1498785](https://doi.org/10.1145/1498765.1498785)) draws both limits as one roof. Left of its
# corner bytes are the limit, right of it the processor. Bytes come faster from the caches than from memory, so there are
# two roofs. They and the times are measured. A point's place from left to right is only **counted**, from the shapes of
# what each operation reads and writes; what SDPA, a single operation, moves within the caches is not counted:

# %%
ax = plotting.roofline(machine, points, title="a training pass, 2,048 tokens")
ax.plot(corners, [machine.flops] * 2, "x", color="0.3")
ax.annotate("corners", (corners[1], machine.flops), xytext=(4, 5), textcoords="offset points", fontsize=8)
ax.set_ylim(top=1.5 * machine.flops)
plotting.show("Two roofs of two straight parts each, for data in the caches and in the memory, with their corners, and a point for each of three forms.")

# %%
intensity = {name: flops / moved for name, (flops, moved, _) in points.items()}
course.verdict("operations for each byte moved, SDPA over readable", intensity["SDPA"] / intensity["readable"], above=5)


# %% [markdown]
# Not eighty times: the arithmetic stays. SDPA's limit is even that of seven products, where the readable form has six,
# since its backward pass computes the scores once more. (With 94 times the operations for each byte, that makes an
# eightieth of the bytes.) So SDPA's least time is less than a fifth shorter, although it moves hardly any bytes. In the
# stored run it comes nearest to its limit, 58 %; the readable form's 54 % is hardly less, in a single run.
#
# The readable form computes about 6 operations a byte. In the stored run that is right of both corners, the caches' and
# the memory's: at this length arithmetic is about three quarters of its least time, and saving bytes can win little.
# (Other programs that use the memory move its corner to the right.)

# %% [markdown]
# What does the roof **not** explain? At 2,048 tokens all three forms took about twice their least time; and why the
# readable form falls so far behind SDPA at 8,192, this count cannot tell either. Bytes and recomputed scores are in the
# least times already, so they are not the reason. For query blocks, $b$ is a fifth of the time. What keeps the forms so
# far from their limits otherwise was not measured: the exponentials of the softmax, and getting memory for new matrices,
# are not counted at all. (The height of a point under the roof is not its percentage: it would reach the roof only if
# moving and computing went on side by side all the time.)

# %% [markdown]
# ## Before you run out
#
# Count instead of trying. Queries, keys and values are in memory before a pass. At its peak, gradients included, a pass
# holds these numbers more, of 4 bytes each (H heads of D features, blocks of 128 rows):
#
# | form | numbers |
# |---|---|
# | readable | 3 H T² |
# | query blocks | 3 · 128 H T + 3 H T D |
# | SDPA | 5 H T D, and on a CPU about 1 MB of work space for each thread |
# | prefix sums | 7 H T D |

# %%
def expected_bytes(T, H=1, D=32):
    numbers = {"readable": 3 * T * T, "SDPA": 5 * T * D, "query blocks": 3 * 128 * T + 3 * T * D, "prefix sums": 7 * T * D}
    return {name: 4 * H * n for name, n in numbers.items()}


workspace = {"SDPA": 2**20 * torch.get_num_threads()} if device == "cpu" else {}
for name, counted in expected_bytes(longest).items():
    ratio = dict(memory[name])[longest] / (counted + workspace.get(name, 0))
    course.verdict(f"measured over counted, {name}", ratio, above=0.5, below=2, measured="quick")


# %% [markdown]
# On a CPU, at the quick profile's longest length, the counts agree with the measured bytes to about 1 %. (In short texts
# the work space is smaller, and SDPA's count too high.) Add the queries, keys and values themselves, $3HTD$ numbers.
# Move length and heads; the dashed line is a small laptop's 2 GB:

# %%
def all_bytes(T, H=1, D=32):
    return {name: held + 4 * 3 * H * T * D for name, held in expected_bytes(T, H, D).items()}


def what_fits(length, heads):
    need = all_bytes(length, heads)
    _, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
    ax.plot([held / 1e9 for held in need.values()], [f"{name}: {held / 1e9:.2g} GB" for name, held in need.items()], "o", markersize=8)
    ax.set(xscale="log", xlim=(1e-4, 1e4), ylim=(3.5, -0.5), xlabel="GB in training", title=f"{length:,} tokens, {heads} heads")
    ax.axvline(2, color="0.4", linestyle="--")
    ax.grid(alpha=0.25)
    return ax


lengths_to_try = ipywidgets.SelectionSlider(options=[2**n for n in range(8, 18)], value=16_384, description="tokens")
alt = "Memory of a training pass in four forms at 16,384 tokens and 8 heads, on a logarithmic axis with a line at 2 GB."
explore(what_fits, alt=alt, length=lengths_to_try, heads=ipywidgets.IntSlider(value=8, min=1, max=16, description="heads"))

# %%
fits = {name: max(T for T in range(1024, 2**22, 1024) if all_bytes(T)[name] < 2e9) for name in all_bytes(1)}
for name, most in fits.items():
    print(f"{name:14} one head, 2 GB: {most:9,} tokens")

# %% [markdown]
# One head and one text: with SDPA or prefix sums more than a million tokens *fit* into one pass of attention, with query
# blocks almost. (A model holds more.) **Predict**: how long does such a pass take, if the time goes on growing with the
# square of the length (SDPA), or with the length (prefix sums), from the longest text that your machine was timed on?

# %% tags=["nbval-ignore-output"]
for name, power in (("SDPA", 2), ("prefix sums", 1)):
    timed, took = seconds[name][-1]
    expected = took * (fits[name] / timed) ** power
    said = f"{expected:.1f} seconds" if expected < 3600 else f"{expected / 3600:.0f} hours"
    print(f"{name:12} {fits[name]:,} tokens, {fits[name] / timed:.0f} times the {timed:,} timed: {said}")
products = 7 * 2 * 32 * fits["SDPA"] ** 2  # two products forward, five backward, of T × T × 32 multiplications and additions
print(f"SDPA, if this machine computed its products at its peak all the time: {products / machine.flops / 3600:.1f} hours")

# %% [markdown]
# So for one head and one text memory does not forbid a million tokens on a CPU. With SDPA one million
# would take a quarter of the hours of nearly two million: more than two at the growth timed here, and more than one at the
# machine's peak. Prefix sums need seconds, but for another score. (With the slope 1.18 that was measured for them in place
# of 1, the last figure would be about half as much again.)
#
# ## What a GPU changes
#
# Where is the corner of a GPU's roof? An A100 can do 312 · 10¹² operations and read 1.5 · 10¹² bytes a second, in
# bfloat16, a format of 2 bytes a number (Dao 2023, [arXiv:2307.08691](https://arxiv.org/abs/2307.08691), section 3.1;
# Dao et al. 2022, section 2.1). In its forward pass the readable form writes and reads each pair's score, and writes
# and reads its weight: four times a number's bytes.

# %%
for D, bytes_each in ((32, 4), (64, 2)):  # the heads above in float32; usual heads in bfloat16
    operations = 2 * 2 * D  # for each pair: two products of D multiplications and additions
    print(f"readable, forward, heads of {D}, {bytes_each} bytes a number: at most {operations / (4 * bytes_each):.0f} operations a byte")
print(f"corner of an A100: {312 / 1.5:.0f} operations a byte")
print(f"SDPA's products for {fits['SDPA']:,} tokens at an A100's peak: {products / 312e12:.0f} seconds")

# %% [markdown]
# (8 operations a byte are the CPU's case, forward; with the backward pass the table above counts a little less.) The
# A100's corner is at 208 operations a byte, and the readable form far to the left of it: most of the time its
# arithmetic would wait for the matrix. Tiles stay beside the processors, so this traffic is gone, and the pass takes
# less time as well (Dao et al. 2022, section 4.3, measure it). The same holds for a [mask](../docs/glossary.md#m) or a
# bias: computed within the kernel, it is never read from memory. Seconds against hours compare peak with peak, but
# bfloat16 with float32.
#
# Whole trainings, which take the [fast paths](../docs/glossary.md#f), two on a CPU and one on a GPU. The seconds are of
# models of very different sizes:

# %% tags=["nbval-ignore-output"]
recorded = ("mnist-image-transformer", "test accuracy", "quick"), ("shakespeare", "validation loss", "quick"), ("nanogpt", "validation loss", "full")
for name, figure, profile in recorded:
    arm = next(iter(experiments.experiment(name).arms(profile)))
    print(records.describe_record(name, figure, profile, arm=arm))

# %% [markdown]
# The main line ends here: you know what each form costs, and what your machine allows. An optional part follows, before
# the exercises.

# %% [markdown]
# ## Optional: several processes, one training
#
# So far we have cut the matrix of one example, as one processor works on it. A batch can be cut, too, and so one
# training is spread over several processors, machines or GPUs. Two processes hold the same model; each takes **half of
# every batch**; before the update they average their gradients. By hand, in one process:

# %%
x, target = torch.randn(8, 3, dtype=torch.float64), torch.randn(8, 1, dtype=torch.float64)
layer = torch.nn.Linear(3, 1).double()


def gradient(part):
    return torch.autograd.grad(F.mse_loss(layer(x[part]), target[part]), layer.weight)[0]


whole, halves = gradient(slice(0, 8)), [gradient(slice(0, 4)), gradient(slice(4, 8))]
print("mean of the halves' gradients is the whole's:", torch.allclose(sum(halves) / 2, whole, rtol=0, atol=1e-12))

# %% [markdown]
# ### Break it: unequal shares
#
# A mean of means is the mean only if all are of equal size:

# %%
uneven = [gradient(slice(0, 2)), gradient(slice(2, 8))]
def off_by(averaged, exact):
    return f"off by up to {(averaged - exact).abs().max() / exact.abs().max():.0%} of its largest entry"


print("with shares of 2 and 6 the gradient is", off_by(sum(uneven) / 2, whole))


# %% [markdown]
# By which two weights, in place of ½ and ½, would you repair it? And a second danger: in a real model dropout draws
# random numbers, and each process starts with the same ones. **Predict**: are two halves with dropout still the whole?
# (Any other mask would change the whole's gradient, too.)

# %%
def with_dropout(part):
    torch.manual_seed(0)  # as each process does
    return torch.autograd.grad(F.mse_loss(layer(F.dropout(x[part], 0.5)), target[part]), layer.weight)[0]


print("shares of 2 and 6, weights 2/8 and 6/8:", off_by(2 / 8 * uneven[0] + 6 / 8 * uneven[1], whole))
halves = with_dropout(slice(0, 4)), with_dropout(slice(4, 8))
print("two halves with dropout:", off_by(sum(halves) / 2, with_dropout(slice(0, 8))))

# %% [markdown]
# With their shares as weights the gradients are those of the whole. (The package refuses a batch that the processes do
# not divide.) Dropout is another matter: four examples draw other zeros than eight do, so the gradients differ.
#
# In torch, `DistributedDataParallel` averages the gradients. A library sends them from process to process: gloo between
# CPUs, NCCL between NVIDIA's GPUs. The program stays the same; `torchrun` starts it as often as you say:
#
# ```sh
# torchrun --nproc-per-node=2 -m sciformer train mnist
# ```
#
# A small training without dropout, first in this process:

# %%
base = experiments.MNIST_IMAGE_TRANSFORMER["quick"]
base = replace(base, embed_dim=16, num_heads=2, num_layers=1, batch_size=32, train=base.train.with_steps(60))
alone = trainers.train_image_transformer(base, seed=0, progress=False)

# %% [markdown]
# Now by two. What both take together in a step, the **global batch**, is 32 examples, as before. **Predict**: how does
# the loss curve change? And the time of the 60 steps: half, as before, or more?

# %% tags=["nbval-ignore-output"]
folder = Path(tempfile.mkdtemp())
torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
command = [*torchrun, "-m", "sciformer", "train", "mnist", "--profile=quick", "--device=cpu", f"--out={folder}"]
sizes = ["--steps=60", "--batch-size=32", "--embed-dim=16", "--num-heads=2", "--num-layers=1"]
done = subprocess.run([*command, *sizes], check=False, capture_output=True, text=True)
assert done.returncode == 0, done.stderr[-2000:]
history = json.loads((folder / "history.json").read_text())
together = history["loss"]
print(f"60 steps: one process {alone.history.seconds:.1f} s, two {history['seconds']:.1f} s")

# %%
ax = plotting.curves({"one process": alone.history.loss, "two processes": together}, title="the same global batch")
ax.lines[0].set(linewidth=5, alpha=0.4)
ax.legend(frameon=False)
plotting.show("Two loss curves of sixty steps: one process as a broad line, two processes as a thin one.")
apart = max(abs(a - b) for a, b in zip(alone.history.loss, together, strict=True))
course.verdict("largest distance of the two curves", apart, below=0.01)
course.verdict("what they learned: first loss minus the mean of the last ten", together[0] - sum(together[-10:]) / 10, above=0.2)


# %% [markdown]
# The loss curve stays the same, up to rounding, since sums are taken in another order. The time did not
# fall in the stored run: so small a model has little to share, and each step waits until gradients are sent. (How much
# of either was not measured.)
#
# ### When one of them dies
#
# With many machines, one of them will fail at some point. The first process saves a
# **[checkpoint](../docs/glossary.md#c)** now and then: weights, the state of the [optimiser](../docs/glossary.md#o),
# the losses, the state of the random numbers. (Of the data it keeps the number of steps; the batches before it are drawn
# again and skipped.) Here a single process saves every 10 steps, and its power goes off at step 25:

# %%
def train_small(path, on_step=None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
    x = torch.linspace(-1, 1, 96).view(32, 3)
    stream = batches(x, x.sum(dim=1, keepdim=True), batch_size=8, seed=0)
    options = {"checkpoint": path, "checkpoint_every": 10, "progress": False}
    return fit(model, stream, F.mse_loss, TrainConfig(40), on_step, **options).loss


def power_cut(step, model):
    if step == 25:
        raise RuntimeError(f"no power at step {step}")


try:
    train_small(folder / "cut.pt", power_cut)
except RuntimeError as error:
    print(error)

# %% [markdown]
# Start it again. With which step will it go on, and will its losses be those of a run without a power cut?

# %%
steps_again = []
resumed = train_small(folder / "cut.pt", lambda step, model: steps_again.append(step))
print("first step of its second life:", steps_again[0])
print("the same losses as without the cut, to the last bit:", resumed == train_small(folder / "whole.pt"))


# %% [markdown]
# `torchrun` does the starting again. If a process is killed, it ends the others, too, and starts all of them anew, up to
# `--max-restarts` times:
#
# ```sh
# torchrun --nproc-per-node=2 --max-restarts=3 -m sciformer train shakespeare --checkpoint run.pt
# ```
#
# (A test of the package, `tests/test_training_distributed.py`, kills one of two processes in the middle and asks for the
# same losses. It is not run here.)

# %% [markdown]
# ## Exercises
#
# Write the answer in place of `raise NotImplementedError` and run the cell. The first wrong run shows what is wrong
# with the result, the second names the mistake; the numbers are fresh each time. Hints and a solution are folded away
# below each cell.
#
# ### Exercise 1 · easy · 5 minutes
#
# A `score_mod` in which each head has a slope for each side: keys before the query pay `left`, keys after it `right`,
# for each step. Slopes are positive, and what a key pays is subtracted from its score. Use no `if`: the indices are
# tensors, `b` of the sequence, `h` of the head, `i` of the query and `j` of the key.

# %%
def two_slopes_mod(left, right):  # (H,), (H,)
    def score_mod(score, b, h, i, j):  # query i, key j
        raise NotImplementedError

    return score_mod


check.two_slopes_mod(two_slopes_mod)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A key before the query lies `i - j` steps to its left. For a key after it, `i - j` is negative; how many steps to the
# left should be counted then?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `(i - j).clamp(min=0)` counts the steps to the left and is 0 on the right. Each side times its own head's slope.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def two_slopes_mod(left, right):
#     def score_mod(score, b, h, i, j):
#         return score - left[h] * (i - j).clamp(min=0) - right[h] * (j - i).clamp(min=0)
#
#     return score_mod
# ```
#
# </details>
#
# ### Exercise 2 · middle · 8 minutes
#
# The keys lie on two machines. Each gives the output over its own half, and the logarithm of its summed weights,
# $t = \log \sum_j e^{s_j}$. Merge them into the output and the $t$ over all keys. Scores may be large, of either sign,
# and in one half far above those in the other; which half that is may differ from row to row. Neither half is empty, so
# each $t$ is finite.

# %%
def merge_halves(first, first_log, second, second_log):  # (L, D), (L,), (L, D), (L,)
    raise NotImplementedError  # output (L, D), logarithm (L,)


check.merge_halves(merge_halves)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# All keys of a half act like a single key: its value is the half's output. What is its score?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `torch.logaddexp` adds weights whose logarithms are given. A half's share is $e^{t_1 - t}$, which never overflows.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def merge_halves(first, first_log, second, second_log):
#     total = torch.logaddexp(first_log, second_log)  # (L,)
#     a, b = (first_log - total).exp(), (second_log - total).exp()  # shares that sum to 1
#     return a[:, None] * first + b[:, None] * second, total
# ```
#
# </details>
#
# ### Exercise 3 · hard · 15 minutes
#
# The backward pass without kept weights: the gradients of query, key and value, from the six arguments. The scores are
# $s_{ij} = q_i \cdot k_j/\sqrt D$, `log_total` is $t_i = \log \sum_j e^{s_{ij}}$, and `gradient` is that of the output.

# %%
def gradients_by_hand(query, key, value, output, log_total, gradient):  # (L, D), (S, D), (S, D), (L, D), (L,), (L, D)
    raise NotImplementedError  # (L, D), (S, D), (S, D)


check.gradients_by_hand(gradients_by_hand)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Weights first: $w_{ij} = e^{s_{ij} - t_i}$. Then the gradient of the scores, by the formula of 'The backward pass'.
# Then each of the three is one product of matrices.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Values were averaged with the weights: `weights.T @ gradient`. Scores were $q k^\top / \sqrt D$: the scale stands in
# both gradients. Row term: `(gradient * output).sum(dim=-1)`.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def gradients_by_hand(query, key, value, output, log_total, gradient):
#     scale = query.shape[-1] ** -0.5
#     weights = (scale * query @ key.T - log_total[:, None]).exp()  # (L, S), as in the forward pass
#     row = (gradient * output).sum(dim=-1, keepdim=True)  # (L, 1)
#     to_scores = weights * (gradient @ value.T - row)  # (L, S)
#     return scale * to_scores @ key, scale * to_scores.T @ query, weights.T @ gradient
# ```
#
# </details>

# %% [markdown]
# ## Takeaways
#
# - The output does not need the matrix of weights. A running maximum lets a softmax be taken in one pass; blocks of
#   queries serve any score; some scores need no pairs at all.
# - SDPA and query blocks change memory in training from T² to T. Their operations stay T², those of the separable score
#   are T.
# - How much time the saved bytes win depends on the machine's corner: left of it a form waits for its bytes. On a GPU, in
#   bfloat16, the readable form is far left of it.
# - Counting tells beforehand how memory grows and what fits. Times have to be measured, and their slopes over a few
#   lengths need care.
# - Optional: several processes that share each batch equally learn the same as one, up to rounding, as long as no layer
#   looks at the whole batch or draws random numbers.

# %% [markdown]
# ## Check yourself
#
# 1. A kernel reads the keys in the order of falling scores. How often does its maximum change, and is the result the
#    same?
# 2. Someone adds a T × T bias to the scores of SDPA, by its argument `attn_mask`. What became of the memory?
# 3. (Optional part.) Four processes, a global batch of 64. What does each see, and must the [learning
#    rate](../docs/glossary.md#l) change?
#
# <details><summary>Answers</summary>
#
# 1. Never after the first key; the result is the same in any order, up to rounding.
# 2. It is back: the bias itself is a T × T matrix. A `score_mod`, or one more feature in query and key (notebook 07),
#    needs none, where the bias follows a formula; a learned table of T × T numbers stays one.
# 3. 16 examples of each batch. No: the averaged gradient is that of the same 64.
#
# </details>

# %% [markdown]
# **To read**: Milakov and Gimelshein 2018 ([arXiv:1805.02867](https://arxiv.org/abs/1805.02867)), section 3; Dao et
# al. 2022 ([arXiv:2205.14135](https://arxiv.org/abs/2205.14135)), sections 2 and 3; Rabe and Staats 2021
# ([arXiv:2112.05682](https://arxiv.org/abs/2112.05682)); Dong et al. 2024
# ([arXiv:2412.05496](https://arxiv.org/abs/2412.05496)).
#
# **Next**: 16, the bake-off.
