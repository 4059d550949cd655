# %% [markdown]
# # 05 The transformer block
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/05_transformer_block.ipynb)
#
# ← [04 Positions](04_positions.ipynb) · [the map of the course](00_welcome.ipynb) · [06 Image transformer](06_image_transformer.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) **05** · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb) · taken apart [18](18_heads_that_copy.ipynb)
#
# Needs: notebook 03 (after 02), and of 04 how positions are added · runs in about 3 minutes on two CPU cores · about 3½ hours of study

# %% [markdown]
# In 2014 the best networks for images had about twenty layers. More layers should have done better. They did worse: a
# **plain** network, in which one layer simply follows the other, made more mistakes with 56 layers than with 20, *even
# on the pictures it was trained on* ([He et al. 2015](https://arxiv.org/abs/1512.03385), figure 1). So the deep network
# had not memorised too much. It was harder to train. In the same paper, one small change, a shortcut around every few
# layers, made a network of 152 layers trainable.
#
# Large language models are deep, too: GPT-3 has 96 blocks ([Brown et al. 2020](https://arxiv.org/abs/2005.14165), table
# 2.1), and attention is only a part of each. This notebook builds the rest: the [residual
# connection](../docs/glossary.md#r) of He et al., the [layer norm](../docs/glossary.md#l) of [Ba et al.
# 2016](https://arxiv.org/abs/1607.06450), the feed-forward network, and their order. Then it asks the question that He
# et al. left open: **what keeps a deep stack from learning, and what does the shortcut change?**
#
# (Whether a deep stack then beats a shallow one is another question. This notebook does not show that it does.)
#
# After this notebook you can
#
# - measure what a stack of nothing but attention does to the differences between tokens, and explain why;
# - build layer norm, the feed-forward network and the block;
# - read a transformer as a stream of tokens to which every block adds something;
# - train stacks of your own blocks, and find out by experiments why one of them does not learn.

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

from sciformer import FeedForward, MultiHeadAttention, TransformerBlock, check, course, metrics, plotting
from sciformer.data import mnist
from sciformer.teach.diagrams.blocks import residual_streams

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
words = ["the", "cat", "sat", "on", "a", "mat"]

# %% [markdown]
# **Predict**, and write your answers down.
#
# 1. Six different tokens pass through twelve attention layers with random weights, one after the other and nothing in
#    between. How much of the difference between the tokens is left at the end: most of it, half, a tenth, or nothing?
# 2. Four stacks are trained to read digits, ten classes, in 80 steps of 16 digits each: twelve blocks and two blocks,
#    both with residual connections and without. (A **block** is what a [transformer](../docs/glossary.md#t) repeats:
#    attention, and a small network behind it. A **residual connection** is a shortcut of He et al.: it adds what goes
#    into a layer to what comes out.) A model that gives all classes the same probability has a loss (cross-entropy,
#    notebook 02) of $\ln 10 \approx 2.30$. Put the four in order, the best one first, and guess which of them stay at
#    2.30.
#
# ## Attention alone is an average
#
# Three tokens with one feature each, and attention weights that you can check by hand. Apply them again and again:

# %%
weights = torch.tensor([[0.50, 0.25, 0.25], [0.25, 0.50, 0.25], [0.25, 0.25, 0.50]])
tokens = torch.tensor([[0.0], [4.0], [8.0]])
for layer in range(3):
    print(f"after {layer} layers:", tokens.flatten().tolist())
    tokens = weights @ tokens


# %% [markdown]
# **Question** (easy, 3 minutes). What is the next row? And could another layer move the tokens apart again?
#
# <details><summary>Answer</summary>
#
# 3.9375, 4 and 4.0625: a layer with these weights divides the distances by four. A weighted average lies between the
# smallest and the largest of its inputs, whatever its weights are, so the range of the tokens never grows. Softmax
# weights are all positive, so every token gets a part of each end: the range, from the smallest token to the largest,
# shrinks in every layer, here towards 0.
#
# </details>
#
# To measure this for tokens of many features, subtract the mean token, and compare the size of the rest with that of the
# whole:
#
# $$r(X) = \frac{\lVert X - \bar X \rVert}{\lVert X \rVert}$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $X$, tokens in rows | `x` | (…, L, E) |
# | $\bar X$, the mean token in every row | `x.mean(dim=-2, keepdim=True)` | (…, 1, E), repeated L times |
# | $\lVert\,\cdot\,\rVert$, the length: the root of the sum of all squared entries | `.norm(…)`, torch's word for it | |
#
# $r$ is 0 if all tokens are the same, and never above 1.

# %%
def variation(x):  # (..., L, E): one number for each sequence
    centred = x - x.mean(dim=-2, keepdim=True)
    return centred.flatten(-2).norm(dim=-1) / x.flatten(-2).norm(dim=-1)


[round(variation(torch.tensor(rows)).item(), 3) for rows in ([[2.0, 3.0], [2.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]])]


# %% [markdown]
# Now twelve layers of real attention with four heads each and random weights. (Biases are left out: they would add the
# same vector to all tokens.) The value and output matrices might stretch the differences between tokens. They also make
# the tokens smaller, and small tokens get nearly equal weights, so `rescaled` brings the size back after each layer.
# The tokens are random numbers of double precision, about 16 digits.

# %%
def size(x):  # root mean square
    return x.square().mean().sqrt().item()


def rescaled(x):
    return x / size(x)


def through(layers, step, x):
    states = [x]
    for layer in layers:
        states.append(step(layer, states[-1]))
    return states


sentence = torch.randn(1, 6, 32, dtype=torch.float64)  # (1, L, E): six words
layers = [MultiHeadAttention(32, 4, bias=False).double().requires_grad_(False) for _ in range(12)]
attention_only = through(layers, lambda layer, x: rescaled(layer(x)[0]), sentence)
for depth in (0, 1, 2, 3, 12):
    print(f"after {depth:2} layers: variation {variation(attention_only[depth]).item():.0e}")

# %% [markdown]
# Prediction 1: nothing is left but rounding. What later layers cannot tell apart they have to treat alike. This is
# called [**rank collapse**](../docs/glossary.md#r): a matrix in which all rows are equal has rank 1, which means that
# one row says everything. (`course.verdict` prints a measurement and its bound, and stops outside it.)
#
# **Question** (hard, 5 minutes). By hand, each layer divided the differences by the same number. What does a layer do
# to them here? Compare the first four rows above.
#
# <details><summary>Answer</summary>
#
# Once they are small, a layer cubes them, roughly and up to a factor: 0.2 cubed is 0.008, and 0.002 is left; 0.002
# cubed is 8e-9, and 1e-9 is left. [Dong et al. 2021](https://arxiv.org/abs/2103.03404) proved such a cubic bound, up to
# a factor, and call the decay *doubly exponential*. Why three factors? Two tokens get different averages only if their
# rows of weights differ. These rows differ only as far as the *queries* differ (one factor) and the *keys* (a second).
# And different weights change an average only as far as the *values* differ (a third).
#
# </details>
#
# ## The residual connection
#
# He et al. changed one thing: a few layers together, $f$, no longer replace their input. They compute what should be
# *added* to it:
#
# $$y = x + f(x)$$
#
# This is the **residual connection**, and $f$ is called a **branch**. Watch the same twelve layers without it, rescaled
# after each layer as above, and with it, not rescaled. Each dot is a word, its vector divided by its length. (The
# vectors are random, so it means nothing that two words are close.) The plane of the picture is the one in which the
# words differ most at the start, two dimensions of 32. The labels stand where the words begin; the lines show the way.

# %%
with_residual = through(layers, lambda layer, x: x + layer(x)[0], sentence)
directions = F.normalize(sentence[0], dim=-1)  # (L, E)
plane = torch.linalg.svd(directions - directions.mean(dim=0)).Vh[:2]  # (2, E): where the directions differ most
panels = {"f(x)": (attention_only, plotting.COLORS[1]), "x + f(x)": (with_residual, plotting.COLORS[6])}


def words_after(depth):
    figure, axes = plt.subplots(1, 2, figsize=(9.2, 4.4), layout="constrained")
    for ax, (title, (states, color)) in zip(axes, panels.items(), strict=True):
        paths = F.normalize(torch.cat(states[: depth + 1]), dim=-1) @ plane.T  # (depth + 1, L, 2)
        for path, word in zip(paths.unbind(dim=1), words, strict=True):  # (depth + 1, 2)
            ax.plot(*path.T, "o-", color=color, alpha=0.6, markevery=[-1])
            ax.annotate(word, path[0], xytext=F.normalize(path[0], dim=0) * 20, textcoords="offset points", ha="center", va="center")
        ax.set(title=f"{title}, after {depth} layers", xlabel="first direction", ylabel="second direction")
        ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    return figure


plotting.animate(
    words_after,
    (0, 1, 2, 3, 4, 6, 8, 10, 12),
    alt="Six words as dots in two panels, layer by layer, with lines from where they began. Without the residual"
    " connection all lines run into one point within two layers; with it the dots wander and stay apart.",
)

# %%
course.verdict("variation after 12 layers of attention alone", variation(attention_only[-1]).item(), below=1e-12)
course.verdict("variation after 12 layers with the residual", variation(with_residual[-1]).item(), above=0.5)

# %% [markdown]
# On the left all words are one point from the second layer on (the numbers above exclude that they differ in the other
# 30 dimensions). This point jumps, since each layer multiplies it by other random matrices. On the right, what the
# layers add is small, because they are **fresh**, that is, untrained. The next section makes it larger.
#
# The sum does something for training, too. The gradient of $y$ with respect to $x$ is $1 + f'(x)$, and by the chain
# rule a stack of twelve layers multiplies twelve such factors. Without the residual connection the factors are $f'(x)$.
# Suppose that each slope is 0.1:

# %%
start = torch.tensor(1.0, requires_grad=True)
without, with_sum = start, start
for _ in range(12):
    without = 0.1 * without
    with_sum = with_sum + 0.1 * with_sum
print(f"without: {torch.autograd.grad(without, start)[0].item():.0e}")
print(f"with   : {torch.autograd.grad(with_sum, start)[0].item():.2f}, which is 1.1 ** 12 = {1.1**12:.2f}")

# %% [markdown]
# ## Layer norm
#
# Nothing holds the size of a sum. Here is the size of the features, their root mean square, after the twelve layers:
# with fresh weights, and with branches that are four times as strong, as training may make them.

# %%
stronger = through(layers, lambda layer, x: x + 4 * layer(x)[0], sentence)
for name, states in (("fresh weights", with_residual), ("four times as strong", stronger)):
    sizes = [f"{size(states[n]):.2f}" for n in (0, 4, 8, 12)]
    print(f"{name:20} size after 0, 4, 8 and 12 layers:", *sizes, f"  variation at the end {variation(states[-1]).item():.2f}")

# %% [markdown]
# **Question** (middle, 3 minutes). With strong branches $r$ has fallen to 0.02. Are the differences between the tokens
# lost?
#
# <details><summary>Answer</summary>
#
# No. $r$ is the size of the differences over the size of the whole, so their size is size times $r$, and that is about
# 1, as at the start. They have not shrunk, they are drowned out: the whole has grown sixty times as large, and what all
# tokens have in common is nearly all of it. (This is the weak point of $r$: one vector added to all tokens makes it
# smaller, although the differences stay as they are.)
#
# </details>
#
# So strong branches let the sum grow, and what a token has for itself becomes a small part of it. Ba et al. bring each
# token back to mean 0 and variance 1, each one alone, and let training choose a scale $g$ and a shift $b$ for each
# feature. This is **layer norm**, for tokens $x$ of shape (B, L, E): B sequences of L tokens with E features:
#
# $$\text{norm}(x)_e = \frac{x_e - \mu}{\sqrt{\sigma^2 + \epsilon}}\, g_e + b_e, \qquad \mu = \frac 1 E \sum_e x_e, \qquad \sigma^2 = \frac 1 E \sum_e (x_e - \mu)^2$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $\mu$, $\sigma^2$: of each token, over its features | `mean`, `variance` | (B, L, 1) |
# | $g$, $b$: learned | `weight`, `bias` | (E,) |
# | $\epsilon$: keeps 0/0 away | `eps` | |
#
# By hand, for the token (1, 2, 3, 4): the mean is 2.5, the variance (2.25 + 0.25 + 0.25 + 2.25) / 4 = 1.25, and the
# root of it 1.118.

# %%
token = torch.tensor([1.0, 2.0, 3.0, 4.0])
print((token - 2.5) / math.sqrt(1.25))


# %% [markdown]
# ### Exercise 1 · middle · 8 minutes
#
# Build it as a module. `LayerNorm(embed_dim, eps=1e-5)` has two parameters of shape (embed_dim,): `self.weight`, the
# $g$, which starts at 1, and `self.bias`, the $b$, which starts at 0. Its `forward` takes tokens of shape (B, L, E) and
# returns the same shape; mean and variance run over the last axis, the variance divides by $E$, and `eps` stands under
# the root. Do without `nn.LayerNorm` and `F.layer_norm`.

# %%
class LayerNorm(nn.Module):
    def __init__(self, embed_dim, eps=1e-5):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):  # (B, L, E)
        raise NotImplementedError  # (B, L, E)


LayerNorm = check.LayerNorm.use(LayerNorm)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Three steps: the mean of each token, the variance of each token, and the formula. The two parameters stand in
# `__init__`: `self.weight = nn.Parameter(torch.ones(embed_dim))`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `x.mean(dim=-1, keepdim=True)` has shape (B, L, 1), so that each token gets a mean of its own. The variance is the
# mean of `(x - mean) ** 2` over the same axis.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# class LayerNorm(nn.Module):
#     def __init__(self, embed_dim, eps=1e-5):
#         super().__init__()
#         self.weight = nn.Parameter(torch.ones(embed_dim))
#         self.bias = nn.Parameter(torch.zeros(embed_dim))
#         self.eps = eps
#
#     def forward(self, x):
#         mean = x.mean(dim=-1, keepdim=True)  # (B, L, 1)
#         variance = (x - mean).square().mean(dim=-1, keepdim=True)  # (B, L, 1)
#         return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias
# ```
#
# </details>
#
# `course.assert_same_module` gives two modules the same weights and compares their outputs and gradients.

# %%
x = torch.randn(2, 6, 32)  # (B, L, E): two sequences of six tokens
course.assert_same_module(LayerNorm(32), nn.LayerNorm(32), x)

# %% [markdown]
# **Predict**: what does the norm do for the twelve strong layers from above, if each reads a normed input?

# %%
norm = LayerNorm(32).double().requires_grad_(False)
calmed = through(layers, lambda layer, x: x + 4 * layer(norm(x))[0], sentence)
print(f"size after 12 layers {size(calmed[-1]):.2f}, variation {variation(calmed[-1]).item():.2f}")
for name, states in (("without norm", stronger), ("with norm", calmed)):
    print(f"{name:12} size of what layers 1, 6 and 12 add:", *(f"{size(states[n] - states[n - 1]):.2f}" for n in (1, 6, 12)))

# %%
course.verdict("variation after 12 strong layers, with the norm over without", (variation(calmed[-1]) / variation(stronger[-1])).item(), above=2)


# %% [markdown]
# The sum grows far less, and the differences, again about 1 in size, stay a quarter of it. Without the norm a branch
# adds more and more, since its input grows: almost eighty times as much in the last layer as in the first. With the
# norm it adds less than twice as much.
#
# ### Break it: the wrong axis
#
# With `dim=-2` the shapes still fit, but mean and variance now run over the tokens. Change the last token only. Which
# tokens notice? A tick marks each of the first 16 features that has changed.

# %%
def standardise(x, dim):
    return (x - x.mean(dim, keepdim=True)) / x.std(dim, keepdim=True)


touched = x.clone()
touched[:, -1] += torch.randn(32)
moved = [(standardise(touched, dim) != standardise(x, dim))[0, :, :16] for dim in (-1, -2)]  # (L, 16) each
titles = ["dim=-1: over the features", "dim=-2: over the tokens"]
plotting.heads(torch.stack(moved), titles=titles, xlabel="feature", ylabel="token", panel_width=4.4)
plotting.show("Two tables of six tokens by 16 features, one for each axis, with a tick where a feature has changed.")


# %% [markdown]
# On the right every token knows that the last one has changed. A language model would see the future in this way,
# whatever its attention hides. (He et al. used **batch norm**, of [Ioffe and Szegedy
# 2015](https://arxiv.org/abs/1502.03167): its mean and variance run over the batch, so a token would depend on the
# other sentences of its batch.)
#
# ## The feed-forward
#
# Attention moves information between tokens. What can it do with a single token? The only weight is then 1, so an
# attention layer is a linear map (biases aside), and linear maps in a row are one linear map: no number of them can ask
# a question such as "is this feature above zero?". Something has to *compute* with what has been gathered. That is the
# job of the [**feed-forward**](../docs/glossary.md#f) **network**, which works on each token alone: it widens the token
# to the features of a **hidden layer**, bends it, and narrows it.
#
# $$y = \phi(x W_1 + b_1) W_2 + b_2$$
#
# | symbol | in the module | shape in the formula |
# |---|---|---|
# | $W_1$, $b_1$ | `up`, an `nn.Linear`, which stores $W_1$ transposed | (E, hidden), (hidden,) |
# | $\phi$ | `F.gelu`, a smooth relative of max(x, 0) ([**GELU**](../docs/glossary.md#g)) | |
# | $W_2$, $b_2$ | `down`, an `nn.Linear`, which stores $W_2$ transposed | (hidden, E), (E,) |
#
# ### Exercise 2 · easy · 5 minutes
#
# Build `FeedForwardNetwork(embed_dim, hidden_dim)` with two `nn.Linear` layers called `up` and `down`, both with a
# bias. `forward` takes tokens of shape (B, L, E) and returns the same shape. The activation is `F.gelu` without an
# option, which is the exact GELU (with an option, torch computes an approximation).

# %%
class FeedForwardNetwork(nn.Module):
    def __init__(self, embed_dim, hidden_dim):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):  # (B, L, E)
        raise NotImplementedError  # (B, L, E)


FeedForwardNetwork = check.FeedForwardNetwork.use(FeedForwardNetwork)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Two layers, `nn.Linear(embed_dim, hidden_dim)` and `nn.Linear(hidden_dim, embed_dim)`, are set as attributes in
# `__init__` after `super().__init__()`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Read the formula from the inside: first `self.up`, then `F.gelu`, then `self.down`.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# class FeedForwardNetwork(nn.Module):
#     def __init__(self, embed_dim, hidden_dim):
#         super().__init__()
#         self.up = nn.Linear(embed_dim, hidden_dim)
#         self.down = nn.Linear(hidden_dim, embed_dim)
#
#     def forward(self, x):
#         return self.down(F.gelu(self.up(x)))
# ```
#
# </details>
#
# **Question** (easy, 3 minutes). The hidden layer is $4E$ wide, the usual choice. Attention has four square matrices,
# one each for queries, keys, values and output. Which share of the weights of both does the feed-forward network have,
# for any $E$? The next cell counts the parameters of the package's whole block.
#
# <details><summary>Answer</summary>
#
# Two thirds, biases and norms aside: $2 \cdot E \cdot 4E = 8E^2$, against $4 \cdot E \cdot E = 4E^2$ in attention.
#
# </details>

# %%
course.assert_same_module(FeedForwardNetwork(32, 128), FeedForward(32, 128), x)
feed_forward = FeedForwardNetwork(32, 128)
torch.testing.assert_close(feed_forward(x[:, 2:3]), feed_forward(x)[:, 2:3])  # alone or in company: the same
for name, part in TransformerBlock(32, 4).named_children():
    if count := sum(p.numel() for p in part.parameters()):
        print(f"{name:18} {count:6,} parameters")


# %% [markdown]
# ## Two orders
#
# A [**transformer block**](../docs/glossary.md#t) is attention with a residual connection and a norm, and then the
# feed-forward network with a residual connection and a norm. Only one question is open: does the norm stand before the
# part, or after the sum?
#
# | | formula, for $f$ = attention, then $f$ = feed-forward | who uses it |
# |---|---|---|
# | [**post-norm**](../docs/glossary.md#p) | $\text{norm}(x + f(x))$ | the first transformer, Vaswani et al. 2017, section 3.1 |
# | [**pre-norm**](../docs/glossary.md#p) | $x + f(\text{norm}(x))$ | [GPT-2 (2019)](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf) |
#
# ### Exercise 3 · middle · 10 minutes
#
# Build a pre-norm block from your own parts. `Block(embed_dim, num_heads)` has four of them, with these names:
# `attention_norm` and `feed_forward_norm` are two separate `LayerNorm(embed_dim)`, `attention` is
# `MultiHeadAttention(embed_dim, num_heads)`, the package's form of what you built in notebook 03, and `feed_forward` is
# `FeedForwardNetwork(embed_dim, 4 * embed_dim)`. `forward` takes tokens of shape (B, L, E) and returns tokens of the same
# shape, without weights. First attention, then the feed-forward network, each as $x + f(\text{norm}(x))$. Note that
# `attention(y)` returns a pair: the outputs, and the weights or `None`.

# %%
class Block(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):  # (B, L, E)
        raise NotImplementedError  # (B, L, E)


Block = check.Block.use(Block)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `__init__` makes four parts and nothing else. `forward` has two lines, one for each branch, and both have the form x +
# f(norm(x)).
#
# </details>
# <details><summary>Hint 2</summary>
#
# `self.attention(y)` returns a pair, the outputs and the weights: take `[0]`. The second line starts from the x that
# the first line has made.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# class Block(nn.Module):
#     def __init__(self, embed_dim, num_heads):
#         super().__init__()
#         self.attention_norm = LayerNorm(embed_dim)
#         self.attention = MultiHeadAttention(embed_dim, num_heads)
#         self.feed_forward_norm = LayerNorm(embed_dim)
#         self.feed_forward = FeedForwardNetwork(embed_dim, 4 * embed_dim)
#
#     def forward(self, x):
#         x = x + self.attention(self.attention_norm(x))[0]
#         return x + self.feed_forward(self.feed_forward_norm(x))
# ```
#
# </details>

# %% [markdown]
# Post-norm is the same four parts with another pair of lines. **Write the two lines down** before you look at the next
# cell. It also compares your block with the package's.

# %%
class PostNormBlock(Block):
    def forward(self, x):  # (B, L, E)
        x = self.attention_norm(x + self.attention(x)[0])
        return self.feed_forward_norm(x + self.feed_forward(x))


course.assert_same_module(Block(32, 4), TransformerBlock(32, 4), x)
course.assert_same_module(PostNormBlock(32, 4), TransformerBlock(32, 4, norm_first=False), x)

# %% [markdown]
# ### The residual stream
#
# The thick line in the picture below, from block to block, is the [**residual stream**](../docs/glossary.md#r):
# attention and the feed-forward network read from it and add to it. In pre-norm nothing ever stands *on* the stream, so
# what leaves block $N$ is a plain sum that begins with the first tokens $x_0$:
#
# $$x_N = x_0 + \text{attention}_1 + \text{feed-forward}_1 + \dots + \text{attention}_N + \text{feed-forward}_N$$
#
# In post-norm every norm rescales all that came before. The sizes in the picture are those of your fresh blocks.

# %%
pre, post = Block(32, 4).requires_grad_(False), PostNormBlock(32, 4).requires_grad_(False)
pre_middle = x + pre.attention(pre.attention_norm(x))[0]
post_middle = post.attention_norm(x + post.attention(x)[0])
in_pre, in_post = (size(x), size(pre_middle), size(pre(x))), (size(x), size(post_middle), size(post(x)))
residual_streams(in_pre, in_post, shape=x.shape[1:], hidden_dim=len(pre.feed_forward.up.bias))
plotting.show(
    "Two blocks side by side, each with a thick line from bottom to top. In pre-norm both norms stand on the branches; in"
    " post-norm they stand on the line itself."
)

# %% [markdown]
# In post-norm the stream has size 1 after each norm as long as $g$ is 1 and $b$ is 0. In pre-norm nothing holds the
# size, though it hardly grows in this one block. So a pre-norm model usually has **one more norm after its last
# block**, before the **read-out**, the linear map that turns tokens into an answer. Your stack below has it for all
# kinds of block.

# %% [markdown]
# ## A stack of blocks
#
# Now the question of the beginning, with your blocks. A digit of 28 × 28 pixels is cut into 16 squares, and each square
# of 7 × 7 pixels becomes a token by `F.unfold` (notebook 06 is about that). A learned vector for its position is added
# (notebook 04). The tokens pass through a stack of blocks and one last norm; their mean goes to the read-out.

# %%
images, labels = mnist("train")
images = (images - images.mean()) / images.std()
squares = F.unfold(images, 7, stride=7).mT.contiguous().to(device)  # (N, 16, 49): 16 squares of 49 pixels
labels = labels.to(device)


class Stack(nn.Module):
    def __init__(self, block, depth, embed_dim=32):
        super().__init__()
        self.embed = nn.Linear(49, embed_dim)
        self.positions = nn.Parameter(0.02 * torch.randn(16, embed_dim))
        self.blocks = nn.ModuleList(block(embed_dim, 4) for _ in range(depth))  # a list in which torch finds parameters
        self.norm, self.read_out = LayerNorm(embed_dim), nn.Linear(embed_dim, 10)

    def forward(self, x):  # (B, 16, 49)
        x = self.embed(x) + self.positions  # (B, 16, E)
        for block in self.blocks:
            x = block(x)
        return self.read_out(self.norm(x).mean(dim=1))  # (B, 10)


# %% [markdown]
# Four kinds of block: pre-norm, post-norm, one that drops the residual connections, and one that drops the norms. First
# look at twelve blocks before any training, with five [**seeds**](../docs/glossary.md#s), the numbers from which the
# random weights are drawn: how large is $r$, the variation between the 16 tokens of a digit, after each block? (Lines
# are means, and bands are one [**standard error**](../docs/glossary.md#s) wide on either side, the usual distance of
# such a mean from the true one.)
#
# **Predict**: attention alone collapsed. `NoResidual` has norms and feed-forward networks between its attention layers.
# Will they save it?

# %%
class NoResidual(Block):
    def forward(self, x):
        x = self.attention(self.attention_norm(x))[0]
        return self.feed_forward(self.feed_forward_norm(x))


class NoNorm(Block):
    def forward(self, x):
        x = x + self.attention(x)[0]
        return x + self.feed_forward(x)


# %%
blocks = {"pre-norm": Block, "post-norm": PostNormBlock, "no residual": NoResidual, "no norm": NoNorm}
styles = {kind: {"color": plotting.COLORS[n]} for kind, n in zip(blocks, (0, 4, 1, 6), strict=True)}
styles["post-norm"]["linestyle"], styles["no norm"]["linestyle"] = ":", "-."  # where lines lie on each other
seeds = range(5)


def build(kind, depth, seed):
    torch.manual_seed(seed)
    return Stack(blocks[kind], depth).to(device)


@torch.no_grad()
def after_each_block(measure, model):  # of the tokens of 64 digits
    x = model.embed(squares[:64]) + model.positions
    measured = [measure(x)]
    for block in model.blocks:
        x = block(x)
        measured.append(measure(x))
    return measured


# %%
def between_tokens(x):  # (B, L, E)
    return variation(x).mean().item()


left = {kind: torch.tensor([after_each_block(between_tokens, build(kind, 12, seed)) for seed in seeds]) for kind in blocks}
plotting.bands(left, x=range(13), logy=True, xlabel="after block", ylabel="variation left", title="16 tokens", styles=styles)
plotting.show(
    "The variation left after each of twelve blocks, on a logarithmic axis: four lines, one for each kind of block, with"
    " bands over five seeds."
)
print(f"{'after block':11}", *(f"{n:>8}" for n in (0, 1, 2, 3, 4, 12)))
for kind, runs in left.items():
    means = [runs[:, n].mean().item() for n in (0, 1, 2, 3, 4, 12)]
    print(f"{kind:11}", *(f"{mean:8.2g}" if mean > 1e-5 else "  < 1e-5" for mean in means))

# %%
course.verdict("no residual: largest variation after 12 blocks", left["no residual"][:, -1].max().item(), below=1e-5)
for kind in ("pre-norm", "post-norm", "no norm"):
    course.verdict(f"{kind}: smallest variation after 12 blocks", left[kind][:, -1].min().item(), above=0.3)


# %% [markdown]
# They do not save it. After four blocks all 16 tokens are one vector, up to rounding (single precision keeps about seven
# digits). Nothing parts them again: norm and feed-forward network work on each token alone, and so equal tokens stay
# equal. With residual connections more than half of $r$ is left after twelve blocks; their three lines nearly coincide.
#
# And the gradient, which vanished in the toy? The blocks of a fifth stack, `neither`, have neither norms nor residual
# connections. We send the loss of 64 digits back and look at the length of the gradient of `down`, the last of the six
# matrices of each block. **Predict** which of the five stacks have lost their gradient, by many powers of ten, when it
# reaches the first block.

# %%
class Neither(Block):
    def forward(self, x):
        return self.feed_forward(self.attention(x)[0])


blocks["neither"], styles["neither"] = Neither, {"color": plotting.COLORS[2]}
left["neither"] = torch.tensor([after_each_block(between_tokens, build("neither", 12, seed)) for seed in seeds])
matrices = [f"attention.{name}_proj" for name in ("q", "k", "v", "out")] + ["feed_forward.up", "feed_forward.down"]


def gradients(kind, seed, names=matrices):  # (12, names): the length of the gradient of each matrix in each block
    model = build(kind, 12, seed)
    F.cross_entropy(model(squares[:64]), labels[:64]).backward()
    return torch.tensor([[block.get_submodule(name).weight.grad.norm() for name in names] for block in model.blocks])


arriving = {kind: torch.stack([gradients(kind, seed) for seed in seeds]) for kind in blocks}  # (5, 12, 6)
down = {kind: lengths[..., -1] for kind, lengths in arriving.items()}
title = "gradient of down, before training"
plotting.bands(down, xlabel="block", ylabel="length of the gradient", title=title, logy=True, styles=styles)
plotting.show("The length of the gradient at each of twelve blocks, on a logarithmic axis: five lines, one for each stack.")

# %%
course.verdict("neither: largest gradient at block 1", down["neither"][:, 0].max().item(), below=1e-10)
course.verdict("no residual: smallest gradient at block 1", down["no residual"][:, 0].min().item(), above=0.01)

# %% [markdown]
# Only `neither` has lost its gradient at block 1. The toy fits this stack: from block to block, backwards, the gradient
# falls by about the same factor, a straight line on this axis. But with norms alone the gradient of `down` is not small
# at all. He et al. (section 4.1) found the same in their plain networks: thanks to batch norm the gradients were
# healthy, and yet the deeper network had the larger training error.
#
# <details><summary>How can a norm keep a gradient from vanishing?</summary>
#
# A norm divides small tokens by their size, and in the backward pass it divides the gradient by that size, too: what
# the layer before has shrunk is enlarged again. So in these fresh stacks the residual connection alone, or the norm
# alone, is enough.
#
# </details>
#
# But `down` is one of six matrices. In `no residual` the tokens of a digit are all but equal behind the third block.
# **Predict** which of the six have lost their gradient in the fourth: those of queries, keys, values and output, `up`,
# `down`?

# %%
print(f"{'mean gradient of':20}", *(f"{name.split('.')[1]:>8}" for name in matrices))
for kind in ("pre-norm", "no residual"):
    means = arriving[kind].mean(dim=0)  # (12, 6)
    for block in (1, 2, 4, 12):
        print(f"{kind:11} block {block:2}", *(f"{mean:8.1g}" if mean > 1e-6 else "  < 1e-6" for mean in means[block - 1].tolist()))

# %%
course.verdict("no residual: largest gradient of q_proj in blocks 4 to 12", arriving["no residual"][:, 3:, 0].max().item(), below=1e-5)


# %% [markdown]
# **Question** (hard, 4 minutes). Why are the gradients of queries and keys zero there, up to rounding?
#
# <details><summary>Answer</summary>
#
# If all values are the same vector, their weighted mean is this vector, whatever the weights. So nothing that the
# queries or keys do changes the loss. From the fourth block on, this fresh stack cannot learn *where to look*. The
# other four matrices it can learn: there the gradient is even larger than in pre-norm.
#
# </details>
#
# ## Train it: depth, with and without
#
# All this was before the first step. Now the stacks are trained. The [**optimiser**](../docs/glossary.md#o) is Adam: it
# divides each parameter's gradient by the usual size of the last ones. So at first a parameter moves by about the
# [**learning rate**](../docs/glossary.md#l) in each step, whether its gradient is large or small. (Below about
# $10^{-8}$ the steps become shorter, since Adam adds this to the divisor.)

# %%
def train(model, seed, steps=80, lr=3e-3):
    generator, losses, answers = torch.Generator().manual_seed(seed), [], []
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)  # fused: one call for all parameters
    for _ in range(steps):
        batch = torch.randint(len(squares), (16,), generator=generator).to(device)
        logits = model(squares[batch])  # (16, 10): the answers to 16 digits
        loss = F.cross_entropy(logits, labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        answers.append(variation(logits.detach()).item())  # r between these answers
    return losses, answers


# %% tags=["nbval-ignore-output"]
losses, answers = {}, {}  # of each stack: (5, steps)


def run(name, kind, depth=12, steps=80, lr=3e-3):
    both = torch.tensor([train(build(kind, depth, seed), seed, steps, lr) for seed in seeds])  # (5, 2, steps)
    losses[name], answers[name] = both.unbind(dim=1)
    styles[name] = styles[kind] | ({} if name == kind else {"linestyle": "--"})
    print(f"{name:24}", *(f"{loss:.2f}" for loss in losses[name][:, -20:].mean(dim=1)))


run("pre-norm", "pre-norm")
run("pre-norm, 2 blocks", "pre-norm", depth=2)
run("no residual", "no residual")
run("no residual, 2 blocks", "no residual", depth=2)

# %%
blind = math.log(10)  # the loss of a blind guess


def curves(*names):
    shown = {name: losses[name].nan_to_num(blind) for name in names}  # nan, not a number: as good as a blind guess
    ax = plotting.bands(shown, smooth=10, title="training loss, each point the mean of ten steps", styles=styles)
    ax.set_ylim(1.4, 2.6)
    ax.axhline(blind, color="grey", linestyle=":", label="ln 10")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    ax.figure.set_size_inches(8.4, 3.6)


curves(*losses)
plotting.show("Training loss of four stacks over 80 steps, each with a band over five seeds, and the dotted line of ln 10.")


# %% [markdown]
# The printed losses, one for each seed, are means of the last 20 steps. With the same seed all stacks see the same
# batches, so the verdicts compare them seed by seed. Each states the lower end of a 95 % interval for the mean
# difference; above 0 it speaks against chance. (Notebook 16 explains such intervals; they suppose that the differences
# are normally distributed.)

# %%
def final(name):  # (5,): what is worse than a blind guess has learned nothing, either
    return losses[name][:, -20:].mean(dim=1).nan_to_num(blind).clamp(max=blind)


def worse(name, than):
    mean, half = metrics.mean_and_half(final(name) - final(than))
    course.verdict(f"loss of {name} minus {than}, lower end", mean - half, above=0)


worse("no residual", than="pre-norm")
worse("no residual", than="no residual, 2 blocks")
worse("pre-norm", than="pre-norm, 2 blocks")


# %% [markdown]
# Prediction 2: two blocks of pre-norm come first. Twelve blocks of pre-norm and two without residual connections
# follow, not far from each other. Twelve blocks without residual connections come last, and they alone stay near the
# dotted line: they do not *learn*, as we shall say.
#
# ## What keeps it from learning?
#
# Pre-norm learns with twelve blocks, and `no residual` does not. Why? Write down every reason that you can think of, and
# for each an experiment that would test it.
#
# <details><summary>Our four suspects</summary>
#
# 1. *equal tokens*: what is equal cannot be told apart again;
# 2. *a vanished gradient*: queries and keys get none;
# 3. *equal digits*: if all digits come out the same, the read-out has nothing to tell them by;
# 4. *long steps*: the gradient tells the right way, but not as far as we step.
#
# </details>
#
# ### Suspects 1 and 2: take the attention out
#
# Twelve layers of norm and feed-forward network have no queries and keys, and nothing in them mixes the tokens. The
# **control**, the stack to compare with, has the same twelve layers *with* the residual connection.

# %%
class OnlyFeedForward(Block):
    def forward(self, x):
        return self.feed_forward(self.feed_forward_norm(x))


class FeedForwardResidual(Block):  # the control
    def forward(self, x):
        return x + self.feed_forward(self.feed_forward_norm(x))


blocks |= {"only feed-forward": OnlyFeedForward, "feed-forward + residual": FeedForwardResidual}
styles |= {"only feed-forward": {"color": plotting.COLORS[5]}, "feed-forward + residual": {"color": plotting.COLORS[3]}}
for kind in ("only feed-forward", "feed-forward + residual"):
    left[kind] = torch.tensor([after_each_block(between_tokens, build(kind, 12, seed)) for seed in seeds])
    down[kind] = torch.stack([gradients(kind, seed, names=["feed_forward.down"])[:, 0] for seed in seeds])
course.verdict("only feed-forward: smallest variation after 12 layers", left["only feed-forward"][:, -1].min().item(), above=0.1)
course.verdict("only feed-forward: smallest gradient at block 1", down["only feed-forward"][:, 0].min().item(), above=0.01)

# %% [markdown]
# In the fresh stack the tokens are still apart after twelve layers, and the gradient reaches the first one. **Predict**
# whether this stack learns, and whether its control does.

# %% tags=["nbval-ignore-output"]
run("only feed-forward", "only feed-forward")
run("feed-forward + residual", "feed-forward + residual")

# %%
curves("pre-norm", "feed-forward + residual", "only feed-forward", "no residual")
plotting.show("Training loss of four stacks of twelve blocks over 80 steps, with the dotted line of ln 10.")
worse("only feed-forward", than="feed-forward + residual")
worse("only feed-forward", than="pre-norm")

# %% [markdown]
# With every seed the control ends clearly below $\ln 10$. Without the residual connection four of five seeds end around
# $\ln 10$, and one below it (2.18). So equal tokens and missing gradients are **not the whole reason**: this stack has
# neither at the start, and it hardly learns all the same. The residual connection helps where no attention is, too, as
# it did in the networks of He et al.
#
# ### Suspect 4: take shorter steps
#
# Now the same starts and the same digits, with a learning rate a hundred times smaller: 0.00003. The tokens of `no
# residual` are as equal as before, and the gradient of its queries and keys is as small. **Predict**: does it learn
# now? And how far behind pre-norm is it?

# %% tags=["nbval-ignore-output"]
for kind in ("no residual", "only feed-forward", "pre-norm"):
    run(f"{kind}, short steps", kind, steps=120, lr=3e-5)

# %%
curves("no residual", *(name for name in losses if "short" in name))
plotting.show(
    "Training loss with short steps over 120 steps, for three stacks of twelve blocks, beside that of the stack without"
    " residual connections with long steps over 80, and the dotted line of ln 10."
)
for kind in ("no residual", "only feed-forward"):
    mean, half = metrics.mean_and_half(final(f"{kind}, short steps"))
    course.verdict(f"{kind}, short steps: loss below ln 10 by, lower end", blind - (mean + half), above=0)

# %% [markdown]
# **It learns**, and so does `only feed-forward`. After 120 steps the five losses of `no residual` lie between 2.09 and
# 2.22; with long steps they lay above 2.30. (The forty extra steps are not the reason: after 80 the curve is already
# below the line.) So the long steps, suspect 4, kept it from learning, and suspects 1 and 2 did not: its tokens were
# equal, and the gradient of its queries and keys was lost, at the start of these runs, too.
#
# The surprise is pre-norm: with short steps it is hardly ahead of `no residual`. It gets ahead where the steps are long.
# So the question becomes: **what do long steps destroy that the residual connection protects?** (Not the direction of
# the gradient, as an optional section shows.)
#
# ### Do long steps destroy the digits?
#
# One suspect is left: equal digits. In each step `train` has noted how different the answers to the 16 digits of the
# batch are: it has measured $r$ between the rows of the logits. **Predict** how this $r$ moves during training, with
# the residual connection and without.

# %%
stacks = ("pre-norm", "feed-forward + residual", "only feed-forward", "no residual", "no residual, short steps")
until = {name: answers[name][:, :80] for name in stacks}  # (5, 80) each: some were trained for longer
_, ax = plt.subplots(figsize=(8.4, 3.6), layout="constrained")
for name in stacks:
    powers = until[name].clamp(min=1e-8).log10()  # nothing below rounding
    lines = ax.plot(range(1, powers.shape[1] + 1), powers.T, linewidth=1, **styles[name])  # one for each seed
    lines[0].set_label(name)
ax.set(xlabel="step", ylabel="log10 of the variation", title="how different are the answers to 16 digits?")
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
plotting.show("The variation between the answers to the digits of a batch, as powers of ten, over 80 steps: five stacks, five seeds each.")

# %% tags=["nbval-ignore-output"]
print(f"{'median after so many steps':26}", *(f"{n:>6}" for n in (0, 1, 20, 79)), "   each seed after 79")
for name in stacks:
    medians = [until[name][:, n].median() for n in (0, 1, 20, 79)]
    print(f"{name:26}", *(f"{r:6.0e}" for r in medians), "  ", *(f"{r:.0e}" for r in until[name][:, -1]))

# %%
end = {name: until[name][:, -20:].mean(dim=1) for name in stacks}  # (5,) each: the last of the 80 steps
course.verdict("no residual: largest variation between answers, steps 61 to 80", end["no residual"].max().item(), below=1e-3)
for name in ("pre-norm", "feed-forward + residual", "no residual, short steps"):
    course.verdict(f"{name}: smallest variation between answers, steps 61 to 80", end[name].min().item(), above=0.1)

# %% [markdown]
# Here it is. In `no residual` a single long step brings the answers much closer together, and in the end they differ by
# rounding only: every digit gets the same answer, and the best such answer has a loss near $\ln 10$. With short steps,
# from the same starts, the answers stay apart. With the residual connection the first long step brings them closer,
# too, but they move apart again. This fits $x + f(x)$: the sum passes the digits on, even where a long step has ruined
# $f$. (That is our reading. No experiment here tests it.)
#
# `only feed-forward` is a warning. Two of its five runs end near rounding, one learns (the one at 2.18), and two keep
# their answers apart and learn nothing all the same. So equal digits are one way to fail, and not the only one.
#
# ### The verdict
#
# | suspect | experiment | result | verdict |
# |---|---|---|---|
# | 1 equal tokens | no attention; short steps | tokens apart at the start, hardly learns; equal at the start, learns | at the start neither needed nor enough |
# | 2 vanished gradient of queries and keys | the same two | none to vanish, hardly learns; vanished at the start, learns | at the start neither needed nor enough |
# | 3 equal digits | $r$ of the answers in training | equal after long steps, in five of five runs | how `no residual` fails |
# | 4 long steps | learning rate 0.00003 | twelve blocks learn, in ten of ten runs, with attention and without | with this depth, why both fail |
#
# So our twelve blocks could be trained without the shortcut, with steps a hundred times shorter. With it they survive
# long steps. (All this is one data set, one width, two learning rates, and a task that reads only the mean token; tokens
# and gradients were looked at before training only. Equal tokens would cost more where each token has to give an answer.)
#
# <details><summary>What others found</summary>
#
# Balduzzi et al. ([2017](https://arxiv.org/abs/1702.08591)) describe **shattered gradients**: in deep networks without
# residual connections, even inputs close together have almost unrelated gradients. Li et al.
# ([2018](https://arxiv.org/abs/1712.09913)) draw the loss as a landscape over two directions in the space of the
# weights: smooth around trained networks with such connections, rugged around those without. Whether the 56 layers of
# He et al. failed as ours did, we do not know: three times as many steps did not help them, says a footnote of their
# section 4.1.
#
# </details>
#
# ## What the norm and its order are worth
#
# Three stacks are left: post-norm, `no norm` with residual connections only, and `neither`. **Predict**: does post-norm
# learn faster than pre-norm, as fast, or more slowly? And which of the other two learn?

# %% tags=["nbval-ignore-output"]
for kind in ("post-norm", "no norm", "neither"):
    run(kind, kind)

# %%
curves("pre-norm", "post-norm", "no norm", "neither")
plotting.show("Training loss of four stacks of twelve blocks over 80 steps, with the dotted line of ln 10.")
worse("post-norm", than="pre-norm")
worse("no norm", than="pre-norm")

# %% [markdown]
# In these 80 steps and at this learning rate pre-norm is ahead of both. Post-norm falls just as fast for some 20 steps,
# then rises a little for about as many, and ends behind. The first transformers were post-norm and were trained with a
# [**warm-up**](../docs/glossary.md#w), a learning rate that rises from near 0 in the first steps: Xiong et al. (section
# 3) show that their post-norm model needs it and that pre-norm does not.
#
# Without norms the seed decides how far below $\ln 10$ the loss gets, and one run ended at `nan`, "not a number", which
# counts, and is drawn, as a blind guess. `neither` learns nothing.
#
# The table holds all the evidence. `r`, between the tokens behind the last block, and the gradient of `down` in the first
# are means before training; `answers` is the median $r$ between the answers at the last step; the last column is the
# mean loss, where nothing counts above $\ln 10$.

# %% tags=["nbval-ignore-output"]
parts = {  # attention, where the norm stands, residual connection
    "pre-norm": ("yes", "before", "yes"),
    "post-norm": ("yes", "after", "yes"),
    "no norm": ("yes", "no", "yes"),
    "feed-forward + residual": ("no", "before", "yes"),
    "only feed-forward": ("no", "before", "no"),
    "no residual": ("yes", "before", "no"),
    "neither": ("yes", "no", "no"),
}
print(f"{len(seeds)} seeds, 12 blocks     attention    norm  residual        r  gradient  answers   loss")
for kind, (attention, where, residual) in parts.items():
    r, gradient = left[kind][:, -1].mean(), down[kind][:, 0].mean()
    last = answers[kind][:, -1].nanmedian()
    print(f"{kind:23} {attention:>9} {where:>7} {residual:>9} {r:8.1g} {gradient:9.1g} {last:8.1g} {final(kind).mean():6.2f}")


# %% [markdown]
# Of the twenty runs with residual connections all but the `nan` got below $\ln 10$, and of the fifteen without them one
# clearly did (2.18). The gradient at the start singles out `neither` alone.
#
# ## Today
#
# - **The residual stream** is how large models are read now: every block adds to it, and parts of it can be followed
#   from block to block ([Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html)).
# - **Pre-norm with a last norm** came with GPT-2 in 2019; GPT-3 has it in its 96 blocks, and so have most language
#   models since. BERT ([Devlin et al. 2018](https://arxiv.org/abs/1810.04805)), which fills in missing words, still had
#   post-norm, like the first transformer.
# - [**RMS norm**](../docs/glossary.md#r) ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467)) does not subtract
#   the mean and has no shift. The language model Llama ([Touvron et al. 2023](https://arxiv.org/abs/2302.13971)) uses it.
# - [**SwiGLU**](../docs/glossary.md#s) ([Shazeer 2020](https://arxiv.org/abs/2002.05202)) is the feed-forward network
#   of Llama: two maps widen the token, and one of them, passed through a function much like GELU, multiplies the other.
#
# ## Takeaways
#
# - Attention averages, and averages of averages become equal. In fresh stacks, residual connections slow that down a
#   lot; norms and feed-forward networks alone do not.
# - Layer norm and the feed-forward network act on each token by itself; only attention moves information between
#   tokens. In pre-norm every block only adds to the stream; in post-norm the norms stand on the stream itself.
# - Twelve blocks without residual connections did not learn in 80 steps at our learning rate: after some 25
#   steps or fewer they gave all digits nearly the same answer. (Without attention, only some of the failed runs did.)
# - With steps a hundred times shorter the same starts learned, those with attention nearly as fast as pre-norm with such
#   steps. What the residual connection bought here is **long steps**.
# - At the long steps, pre-norm learned faster than post-norm (without a warm-up) and than blocks without norms. Two
#   blocks learned faster still: that depth pays was not shown.
#
# ## Check yourself
#
# 1. Which part of the block lets tokens exchange information?
# 2. Suppose that attention and the feed-forward network return 0. Which of the four kinds of block (pre-norm,
#    post-norm, no residual, no norm) then return exactly their input? What do the others return, with fresh norms?
# 3. A pre-norm model of 12 blocks stays at a loss of ln(number of classes). What do you look at first?
#
# <details><summary>Answers</summary>
#
# 1. Only attention. Norm, feed-forward network and residual connection treat each token by itself.
# 2. Pre-norm and no norm: nothing stands on their stream, and both add 0. Post-norm returns the normed input. No
#    residual returns 0.
# 3. The labels and the loss; then whether the answers to different digits differ at all. Then the residual connections:
#    set the last layers of both branches to 0, and see whether each block returns its input. Then a tenth and a
#    hundredth of the learning rate, with more steps. The size of `down`'s gradient before the first step would not have
#    shown the failure above.
#
# </details>
#
# **To read**
#
# - [He et al. 2015](https://arxiv.org/abs/1512.03385), figure 1 and section 4.1: the deep network that could not even
#   fit its training data, and why its authors do not blame small gradients.
# - [Ba et al. 2016](https://arxiv.org/abs/1607.06450), section 3: layer norm, and why it does not look at the batch.
# - [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), sections 3.1 and 3.3: the block as it was first published.
# - [Xiong et al. 2020](https://arxiv.org/abs/2002.04745), figure 1 and section 3: pre- and post-norm side by side, and
#   the gradients of their last blocks.
# - [Dong et al. 2021](https://arxiv.org/abs/2103.03404), sections 1 and 2: attention without residual connections loses
#   rank.
#
# **Next**: nothing in the block knows that its tokens are words; above they were squares of a digit. Can the same
# machine see? [Notebook 06](06_image_transformer.ipynb) takes that seriously.

# %% [markdown]
# ## Optional: do long steps lose the direction?
#
# A gradient only tells which way the loss falls from *here*. Take a fresh model, make one step of Adam, and compute the
# gradient again on the same digits. The [**cosine similarity**](../docs/glossary.md#c) of both tells whether the
# direction was kept: 1 is the same direction, 0 a right angle. **Predict** which
# stacks keep it at 0.003, the rate of our long steps.

# %%
def kept(kind, lr, seed):
    model, directions = build(kind, 12, seed), []
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(model(squares[:64]), labels[:64]).backward()
        gradient = [p.grad.flatten() for p in model.blocks.parameters() if p.grad is not None]
        directions.append(torch.cat(gradient))
        optimizer.step()
    return F.cosine_similarity(*directions, dim=0).item()


rates = (3e-3, 3e-4, 1e-4, 3e-5)
kinds = ("pre-norm", "feed-forward + residual", "only feed-forward", "no residual")
same = {kind: torch.tensor([[kept(kind, lr, seed) for lr in rates] for seed in seeds]) for kind in kinds}  # (5, 4) each

# %% tags=["nbval-ignore-output"]
print(f"{'cosine, at a rate of':24}", *(f"{lr:>14.5f}" for lr in rates))
for kind, cosines in same.items():
    print(f"{kind:24}", *("{:6.2f} ± {:.2f} ".format(*metrics.mean_and_half(column)) for column in cosines.T))

# %%
with_shortcut = (same["pre-norm"] + same["feed-forward + residual"]) / 2  # (5, 4): seeds, rates
without = (same["no residual"] + same["only feed-forward"]) / 2
mean, half = metrics.mean_and_half((with_shortcut - without)[:, 1])
course.verdict("rate 0.0003: mean cosine with residual connections minus without, lower end", mean - half, above=0)
largest = max(cosines[:, 0].mean().item() for cosines in same.values())
course.verdict("rate 0.003: largest mean cosine of the four stacks", largest, below=0.2)


# %% [markdown]
# With residual connections the direction lasts over longer steps: at 0.0003 more than half of it is kept on average
# (0.57 and 0.83), and without them nothing (about 0). But at 0.003 **no stack** keeps it, and two of the four learn at
# that rate. So the lost direction after one step does not tell which stacks learn.

# %% [markdown]
# ## Optional: the silence test
#
# ### Break it: where the `x +` goes
#
# There are two classic slips in a pre-norm block. `NoResidual`, from above, is one, and here is the other. Both run and
# give the right shapes.

# %%
class NormInThePath(Block):
    def forward(self, x):
        x = self.attention_norm(x)  # overwrites what the residual should carry
        x = self.feed_forward_norm(x + self.attention(x)[0])
        return x + self.feed_forward(x)


# %% [markdown]
# **Question** (hard, 5 minutes). Which single test would tell both from a correct block, without a second implementation?
#
# <details><summary>Answer</summary>
#
# The **silence test**: set the last layers of both branches to zero. Then neither branch adds anything, and a pre-norm
# block has to return exactly $x$. (Without the residual connection it returns 0.)
#
# </details>
#
# Now carry the test out. The input, `probe`, does not have mean 0 and variance 1, on purpose: a fresh norm hardly
# changes tokens that have both, which could hide a misplaced norm.

# %%
def silence(block):
    for last in (block.attention.out_proj, block.feed_forward.down):
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    return block.requires_grad_(False)


kinds = {"correct": Block, "residual missing": NoResidual, "norm in the path": NormInThePath}
probe = 1 + 2 * torch.randn(1, 6, 16)
gaps = [silence(kind(16, 2))(probe)[0] - probe[0] for kind in kinds.values()]
for name, gap in zip(kinds, gaps, strict=True):
    print(f"{name:18} {'passes' if gap.abs().max() < 1e-6 else 'fails'}, largest difference {gap.abs().max():.1f}")


# %% [markdown]
# ## Optional: a bug hunt
#
# ### Exercise 4 · middle · 6 minutes
#
# Does a block that passes the silence test have to be right? Hunt the bugs in this one. `x` has shape (L, E), and the
# five parts are functions: `attention` from (L, E) to (L, E), `norm_1` before it, `norm_2` before the feed-forward
# network, and `up` and `down`, its two linear maps.
#
# ```python
# def suspect(x, attention, norm_1, up, down, norm_2):
#     y = norm_1(x)
#     y = y + attention(y)
#     return x + down(F.gelu(up(norm_2(y))))
# ```
#
# It runs, its shapes fit, and if `attention` and `down` return 0, it returns `x`. Still it is wrong in two ways. (A
# published model had one of them, and its author noticed after the weights were out:
# [issue 3 of faster-trajectory-transformer](https://github.com/Howuhh/faster-trajectory-transformer/issues/3), in the
# [museum of bugs](../docs/museum.md).) Think of a probe that shows each slip. Then write `pre_norm_block` as it should
# be, with the same parts and the same `F.gelu`.

# %%
def pre_norm_block(x, attention, norm_1, up, down, norm_2):  # (L, E), then five functions
    raise NotImplementedError  # (L, E)


pre_norm_block = check.pre_norm_block.use(pre_norm_block)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Make the silence test finer: silence `down` alone. A pre-norm block then has to return x + attention(norm_1(x)). What
# does this one return?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Twice the same, x + f(norm(x)). The first x is the block's input; the second is what the first sum gave, both inside
# the norm and before the plus.
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
# Here are two probes, one for each slip. With `down` silent, is attention *added* to the stream? With `attention`
# silent, does `norm_2` read the stream?

# %%
def suspect(x, attention, norm_1, up, down, norm_2):
    y = norm_1(x)
    y = y + attention(y)
    return x + down(F.gelu(up(norm_2(y))))


def plain_norm(x):
    return F.layer_norm(x, x.shape[-1:])


def average(x):  # attention with equal weights
    return x.mean(dim=0, keepdim=True).expand_as(x)


def read_by_norm_2(block, x):
    seen = []

    def norm_2(y):
        seen.append(y)
        return plain_norm(y)

    block(x, torch.zeros_like, plain_norm, torch.sin, torch.sin, norm_2)  # any functions will do for up and down
    return seen[0]


# %%
for block in (suspect, pre_norm_block):
    added = block(probe[0], average, plain_norm, torch.sin, torch.zeros_like, plain_norm) - probe[0]
    is_added = torch.allclose(added, average(plain_norm(probe[0])), atol=1e-5)
    reads_stream = torch.equal(read_by_norm_2(block, probe[0]), probe[0])
    print(f"{block.__name__:14} attention is added: {is_added!s:5}  norm_2 reads the stream: {reads_stream}")


# %% [markdown]
# ## Optional: RMS norm
#
# ### Exercise 5 · easy · 4 minutes
#
# RMS norm is layer norm that leaves the mean in and has no $b$ (Zhang and Sennrich 2019, section 3). Write it as a
# function, without `F.rms_norm`: `x` has shape (B, L, E), `weight` is $g$ of shape (E,), and `eps` is a number and
# stands under the root. The result has the shape of `x`.
#
# $$\frac{x_e}{\sqrt{\frac 1 E \sum_e x_e^2 + \epsilon}}\, g_e$$

# %%
def root_mean_square_norm(x, weight, eps):  # (B, L, E), (E,), a number
    raise NotImplementedError  # (B, L, E)


check.root_mean_square_norm(root_mean_square_norm)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Start from `LayerNorm`. What has to go, and over which axis does the mean of the squares run?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `x.square().mean(dim=-1, keepdim=True)` has shape (B, L, 1), so that each token is divided by a number of its own. The
# ε stands under the root.
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
# ## Optional: how a stack without norms grows
#
# Nothing holds the size of a stream without norms, as *Layer norm* showed with stronger branches. So look at the stream
# of `no norm` while it trains. To see much in few steps, take large ones: four with learning rate 0.01.

# %%
def sizes_after_training(kind, seed):
    model = build(kind, 12, seed)
    train(model, seed, steps=4, lr=1e-2)
    return after_each_block(size, model)


grown = {kind: torch.tensor([sizes_after_training(kind, n) for n in seeds]) for kind in ("pre-norm", "no norm")}
title = "after four steps with learning rate 0.01"
plotting.bands(grown, x=range(13), logy=True, xlabel="after block", ylabel="size", title=title, styles=styles)
plotting.show(
    "Size of the stream after each block on a logarithmic axis. Without norms it rises almost in a straight line, from"
    " about one to a thousand; with pre-norm the curve flattens and stays below ten."
)
mean, half = metrics.mean_and_half((grown["no norm"] / grown["pre-norm"])[:, -1].log())
course.verdict("no norm over pre-norm after 12 blocks, lower end", math.exp(mean - half), above=1)


# %% [markdown]
# **Question** (middle, 3 minutes). The axis is logarithmic. Which stack multiplies the size in each block, and why does
# the other not?
#
# <details><summary>Answer</summary>
#
# The line of `no norm` is nearly straight. Equal steps on this axis are equal factors, so each block *multiplies* what
# the block before it has enlarged. In pre-norm every branch reads an input of size 1, however large the stream is. So a
# block *adds* to it, and the curve flattens. (Whether this is why a seed of `no norm` ended at nan was not measured.)
#
# </details>
#
# ## Optional: initialisation
#
# ### Quieter branches
#
# A stack of $N$ blocks adds $2N$ branches to the stream. If they are independent and each has the variance $v$, the
# variances add up. Measured in units of the variance at the start, the stream begins with 1 and ends with $1 + 2Nv$.
# Multiply each branch by $1/\sqrt{2N}$: the variance of each falls to $v/2N$, and the stream ends with $1 + v$, however
# deep the stack is. In truth the branches are not quite independent, since all read the same stream; so measure. GPT-2
# scales the last layer of each branch by $1/\sqrt{2N}$ ([Radford et al.
# 2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf), section
# 2.3). If these layers start at zero, the whole stack starts by returning its input. Fixup ([Zhang et al.
# 2019](https://arxiv.org/abs/1901.09321)) goes on from there and does without norms.

# %%
def growth(factor, seed, depth=24):
    model = build("pre-norm", depth, seed)
    x = start = (model.embed(squares[:64]) + model.positions).detach()
    for block in model.blocks.requires_grad_(False):
        for layer in (block.attention.out_proj, block.feed_forward.down):
            layer.weight *= factor
            layer.bias *= factor
        x = block(x)
    return size(x) / size(start)


factors = {"as torch draws it": 1.0, "times 1/√(2N)": 1 / math.sqrt(2 * 24), "zero": 0.0}
quiet = {name: [growth(factor, seed) for seed in seeds] for name, factor in factors.items()}
print("size of the stream after 24 blocks, over before:")
for name, ratios in quiet.items():
    print(f"{name:18}", "  ".join(f"{ratio:.2f}" for ratio in ratios))
smallest, largest = min(quiet["as torch draws it"]), max(quiet["times 1/√(2N)"])
course.verdict("smallest plain growth over largest with 1/√(2N)", smallest / largest, above=1.5)
course.verdict("growth with zero, distance from 1", max(abs(ratio - 1) for ratio in quiet["zero"]), below=1e-6)


# %% [markdown]
# **Question** (middle, 5 minutes). Sizes are roots of variances. Take the mean growth with torch's weights, and compute
# $v$. How much should the scaled stack grow, and does it?
#
# <details><summary>Answer</summary>
#
# It is about 3.2. From $\sqrt{1 + 48 v} = 3.2$ follows $v \approx 0.19$, and $\sqrt{1 + v} \approx 1.09$, which
# is about what the scaled stacks do. (This does not prove that the branches are independent. If they were not, $v$ would
# contain their covariances as well, and the scaling shrinks these by the same factor.)
#
# </details>
#
# ## Optional: a branch that begins silent
#
# ### Exercise 6 · hard · 12 minutes
#
# A branch with one gain, a learned factor, for each feature: $x + g \odot f(\text{norm}(x))$, where $\odot$ multiplies
# feature by feature. `QuietBranch(embed_dim, function)` gets a module `function` from (L, E) to (L, E), whose parameters
# are trained as well. It owns an `nn.LayerNorm(embed_dim)` as torch has it and `self.gain`, a trained parameter of shape
# (embed_dim,), which is $g$. The gain starts such that the output is exactly $x$, whatever $f$ gives. Norm, function and
# gain are attributes of the module (the names of the first two are yours), so that an optimiser finds their parameters.

# %%
class QuietBranch(nn.Module):
    def __init__(self, embed_dim, function):  # function: a module, from (L, E) to (L, E)
        super().__init__()
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
# Which $g$ makes $x + g \odot f(\text{norm}(x))$ equal to $x$, whatever $f$ is? *Quieter branches* does it with
# weights; here it is one vector.
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
# ## Optional: torch's own block
#
# `nn.TransformerEncoderLayer` computes the same as your block, once the weights are written under its names.

# %%
def torch_layer(block, norm_first):
    layer = nn.TransformerEncoderLayer(32, 4, 128, 0.0, F.gelu, batch_first=True, norm_first=norm_first).double()
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
for kind in (Block, PostNormBlock):
    block, double = kind(32, 4).double(), x.double().requires_grad_()
    ours, theirs = block(double), torch_layer(block, norm_first=kind is Block)(double)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad((y * x).sum(), double)[0] for y in (ours, theirs)))
print("outputs and gradients agree in both orders")

# %% [markdown]
# ## Optional: more to think about
#
# **Question** (middle, 4 minutes). A colleague's layer norm uses `x.std()` with torch's default, which divides by $E -
# 1$. By which factor do its outputs differ for $E = 4$, and for $E = 512$? Would training notice?
#
# <details><summary>Answer</summary>
#
# By $\sqrt{(E - 1) / E}$: 0.866 for 4 and 0.999 for 512. The learned weight can absorb it, so training can reach the
# same function, though by other steps. With somebody else's weights the outputs are slightly wrong everywhere, and
# nothing complains.
#
# </details>
#
# **Question** (hard, 5 minutes). Does a third kind of block, `x + norm(f(x))`, pass the silence test, fresh and after
# training? Which advantage of pre-norm does it keep?
#
# <details><summary>Answer</summary>
#
# It passes while the norm's bias is 0, as it is when fresh, because then norm(0) = 0. The path from end to end stays
# untouched, as in pre-norm, and the norm's $g$ and $b$ set the size of what a branch adds, whatever the weights of $f$.
# Swin Transformer V2 uses it under the name res-post-norm ([Liu et al. 2021](https://arxiv.org/abs/2111.09883)).
#
# </details>
#
# **Question** (hard, 5 minutes). With branches whose last layers start at zero, as in *Quieter branches*, which
# parameters get a gradient in the very first step?
#
# <details><summary>Answer</summary>
#
# What stands outside the blocks (the embedding, the positions, the last norm and the read-out), and inside the blocks
# only `out_proj` and `feed_forward.down`. Everything before them is multiplied by their zero weights in the backward
# pass. From the second step on, all get one but `k_proj.bias`, whose gradient always vanishes (notebook 03).
#
# </details>
