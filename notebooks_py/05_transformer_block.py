# %% [markdown]
# # 05 The transformer block
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/05_transformer_block.ipynb)
#
# ← [04 Positions](04_positions.ipynb) · [the map of the course](00_welcome.ipynb) · [06 Image transformer](06_image_transformer.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) **05** · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb) · taken apart [18](18_heads_that_copy.ipynb)
#
# Needs: notebook 03 (after 02), and of 04 how positions are added · runs in about 60 s on two CPU cores · about 3½ hours of study

# %% [markdown]
# In 2014 the best networks for images had about twenty layers. More layers should have done better. They did worse: a
# **plain** network, in which one layer simply follows the other, made more mistakes with 56 layers than with 20, *even on
# the pictures it was trained on* ([He et al. 2015](https://arxiv.org/abs/1512.03385), figure 1). So the deep network had
# not memorised too much. It was harder to train. In the same paper, one small change, a shortcut around every few layers,
# made a network of 152 layers trainable. An ensemble of several networks that included it won the ImageNet competition of
# 2015.
#
# Large language models are deep, too: GPT-3 has 96 blocks ([Brown et al. 2020](https://arxiv.org/abs/2005.14165), table
# 2.1). Attention makes up only a part of each block. This notebook builds the rest: the [residual
# connection](../docs/glossary.md#r) of He et al., the [layer norm](../docs/glossary.md#l) of [Ba et al.
# 2016](https://arxiv.org/abs/1607.06450), and the order of the two, which [Xiong et al.
# 2020](https://arxiv.org/abs/2002.04745) found to matter.
#
# After this notebook you can
#
# - measure what a stack of nothing but attention does to the differences between tokens, and explain why;
# - build layer norm, the feed-forward network and the block;
# - read a transformer as a stream of tokens to which every block adds something;
# - train stacks of your own blocks, and say what the residual, the norm and their order are worth in them.

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

from sciformer import FeedForward, MultiHeadAttention, TransformerBlock, check, course, plotting
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
#    both with residual connections and without. (A **block** is what a [transformer](../docs/glossary.md#t) repeats: attention, and a small network
#    behind it. A **residual connection** is a shortcut of He et al.: it adds what goes into a layer to what comes out.) A model that gives all classes the same probability has a loss
#    (cross-entropy, notebook 02) of $\ln 10 \approx 2.30$. Put the four in order, the best one first, and guess which
#    of them stay at 2.30.
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
# $r$ is 0 if all tokens are the same, and never above 1. It has a weak point: one vector added to all tokens can make $r$
# smaller, although it leaves their differences as they are.

# %%
def variation(x):  # (..., L, E): one number for each sequence
    centred = x - x.mean(dim=-2, keepdim=True)
    return centred.flatten(-2).norm(dim=-1) / x.flatten(-2).norm(dim=-1)


[round(variation(torch.tensor(rows)).item(), 3) for rows in ([[2.0, 3.0], [2.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]])]


# %% [markdown]
# Now twelve layers of real attention with four heads each and random weights. Biases are left out, so that no vector is
# added to all tokens. The value and output matrices are there; they might stretch the differences between tokens. They
# also make the tokens smaller, and small tokens get nearly equal weights, so `rescaled` brings the size back after each
# layer. The tokens are random numbers of double precision, about 16 digits. (`course.verdict` prints a measurement and
# its bound, and stops outside it.)

# %%
def size(x):  # root mean square
    return x.square().mean().sqrt().item()


def rescaled(x):
    return x / size(x)


def through(step, x):
    states = [x]
    for layer in layers:
        states.append(step(layer, states[-1]))
    return states


x = torch.randn(1, 6, 32, dtype=torch.float64)  # (1, L, E): six words
layers = [MultiHeadAttention(32, 4, bias=False).double().requires_grad_(False) for _ in range(12)]
attention_only = through(lambda layer, x: rescaled(layer(x)[0]), x)
for depth in range(4):
    print(f"after {depth} layers: variation {variation(attention_only[depth]).item():.0e}")
course.verdict("variation left after 12 layers", variation(attention_only[-1]).item(), below=1e-12)

# %% [markdown]
# Prediction 1: nothing is left but rounding. What later layers cannot tell apart they have to treat alike. This is
# called [**rank collapse**](../docs/glossary.md#r): a matrix in which all rows are equal has rank 1, which means that
# one row says everything.
#
# **Question** (hard, 5 minutes). By hand, each layer divided the differences by the same number. What does a layer do to
# them here?
#
# <details><summary>Answer</summary>
#
# Once they are small, about what cubing does, and a little more: 0.2 cubed is 0.008, and 0.002 cubed is 8e-9. [Dong et
# al. 2021](https://arxiv.org/abs/2103.03404) proved such a cubic bound, up to a factor, and call the decay *doubly
# exponential*. Why three factors? Two tokens get different averages only if their rows of weights differ. These rows
# differ only as far as the *queries* differ (one factor) and the *keys* (a second). And different weights change an
# average only as far as the *values* differ (a third).
#
# </details>
#
# ## The residual connection
#
# He et al. changed one thing: a few layers together no longer replace their input. They compute what should be *added*
# to it, and such an $f$ is called a **branch**:
#
# $$y = x + f(x)$$
#
# This is the **residual connection**. Watch the same twelve layers without it, rescaled after each layer as above, and
# with it, not rescaled. Each dot is a word, its vector divided by its length. The plane of the picture is the one in
# which the words differ most at the start, two dimensions of 32. The labels stand where the words begin; the lines show
# the way.

# %%
with_residual = through(lambda layer, x: x + layer(x)[0], x)
directions = F.normalize(x[0], dim=-1)  # (L, E)
plane = torch.linalg.svd(directions - directions.mean(dim=0)).Vh[:2]  # (2, E): where the directions differ most
panels = {"f(x)": (attention_only, plotting.COLORS[1]), "x + f(x)": (with_residual, plotting.COLORS[6])}


def words_after(depth):
    figure, axes = plt.subplots(1, 2, figsize=(9.2, 4.4), layout="constrained")
    for ax, (title, (states, color)) in zip(axes, panels.items(), strict=True):
        paths = F.normalize(torch.cat(states[: depth + 1]), dim=-1) @ plane.T  # (depth + 1, L, 2)
        for path, word in zip(paths.unbind(dim=1), words, strict=True):  # (depth + 1, 2)
            ax.plot(*path.T, "o-", color=color, alpha=0.6, markevery=[-1])
            ax.annotate(word, path[0], xytext=F.normalize(path[0], dim=0) * 14, textcoords="offset points", ha="center", va="center")
        ax.set(title=f"{title}, after {depth} layers", xlabel="first direction", ylabel="second direction")
        ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    return figure


plotting.animate(
    words_after,
    (0, 1, 2, 3, 4, 6, 8, 10, 12),
    alt="Six words as dots in two panels, layer by layer, with lines from where they began. Without the residual"
    " connection all lines run into one point within two layers; with it the dots wander and stay apart.",
)
course.verdict("variation after 12 layers with the residual", variation(with_residual[-1]).item(), above=0.5)

# %% [markdown]
# On the left all words are one point from the second layer on (the numbers above exclude that they differ in the other 30
# dimensions). This point jumps, since each layer multiplies it by other random matrices; that it ends near *the* is
# chance. On the right, what the layers add is small, because they are **fresh**, that is, untrained. The next section
# makes it larger.
#
# The sum does something for training, too. By the sum rule the gradient of $y$ with respect to $x$ is $1 + f'(x)$, and
# by the chain rule a stack of twelve layers multiplies twelve such factors. Without the residual connection the factors
# are $f'(x)$. Suppose that each slope is 0.1:

# %%
start = torch.tensor(1.0, requires_grad=True)
without, with_sum = start, start
for _ in range(12):
    without = 0.1 * without
    with_sum = with_sum + 0.1 * with_sum
print(f"without: {torch.autograd.grad(without, start)[0].item():.0e}")
print(f"with   : {torch.autograd.grad(with_sum, start)[0].item():.2f}, which is 1.1 ** 12 = {1.1**12:.2f}")

# %% [markdown]
# Whether a real stack behaves like this toy is measured below.
#
# ## Layer norm
#
# Nothing holds the size of a sum. Here is the size of the features, their root mean square, after the twelve layers:
# with fresh weights, and with branches that are four times as strong, as training may make them. Does the variation last
# where the branches are strong?

# %%
stronger = through(lambda layer, x: x + 4 * layer(x)[0], x)
for name, states in (("fresh weights", with_residual), ("four times as strong", stronger)):
    sizes = [f"{size(states[n]):.2f}" for n in (0, 4, 8, 12)]
    print(f"{name:20} size after 0, 4, 8 and 12 layers:", *sizes, f"  variation at the end {variation(states[-1]).item():.2f}")

# %% [markdown]
# **Question** (middle, 3 minutes). With strong branches $r$ has fallen to 0.02. Are the differences between the tokens
# lost?
#
# <details><summary>Answer</summary>
#
# No. $r$ is the size of the differences over the size of the whole, so their size is size times $r$, and that is about 1,
# as at the start. They have not shrunk, they are drowned out: the whole has grown sixty times as large, and what all
# tokens have in common is nearly all of it.
#
# </details>
#
# So strong branches let the sum grow, and what a token has for itself becomes a small part of it. Ba et al. bring each
# token back to mean 0 and variance 1, each one alone, and let training choose a scale $g$ and a shift $b$ for each
# feature. This is **layer norm**:
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
calmed = through(lambda layer, x: x + 4 * layer(norm(x))[0], with_residual[0])
print(f"size after 12 layers {size(calmed[-1]):.2f}, variation {variation(calmed[-1]).item():.2f}")
for name, states in (("without norm", stronger), ("with norm", calmed)):
    print(f"{name:12} size of what layers 1, 6 and 12 add:", *(f"{size(states[n] - states[n - 1]):.2f}" for n in (1, 6, 12)))

# %%
course.verdict("variation after 12 strong layers, with the norm over without", (variation(calmed[-1]) / variation(stronger[-1])).item(), above=2)


# %% [markdown]
# The sum grows far less, and the differences, again about 1 in size, stay a quarter of it. Without the norm a branch adds
# more and more, since its input grows: almost eighty times as much in the last layer as in the first. With the norm it
# adds less than twice as much. That it grows at all is no matter of size: the more alike the tokens are, the less cancels
# in their average.
#
# ### Break it: the wrong axis
#
# With `dim=-2` the shapes still fit, but mean and variance now run over the tokens. Change the last token only. Which
# tokens notice? A tick marks each of the first 16 features that has changed. (`plotting.heads` draws any tables.)

# %%
def standardise(x, dim):
    return (x - x.mean(dim, keepdim=True)) / x.std(dim, keepdim=True)


touched = x.clone()
touched[:, -1] += torch.randn(32)
moved = [(standardise(touched, dim) != standardise(x, dim))[0, :, :16] for dim in (-1, -2)]  # (L, 16) each
titles = ["dim=-1: over the features", "dim=-2: over the tokens"]
plotting.heads(torch.stack(moved), titles=titles, xlabel="feature", ylabel="token", panel_width=4.4)
plotting.show("Ticks where a feature of a token has changed. On the left only the last row has them, on the right all.")


# %% [markdown]
# On the right every token knows that the last one has changed. In a language model that would leak the future past
# every causal mask. (He et al. used **batch norm**, of [Ioffe and Szegedy 2015](https://arxiv.org/abs/1502.03167): its
# mean and variance run over the batch. A token would then depend on the other sentences of its batch.)
#
# ## The feed-forward
#
# Attention moves information between tokens. What can it do with a single token? The only weight is then 1, so an
# attention layer is a linear map (biases aside), and linear maps in a row are one linear map: no number of them can ask a
# question such as "is this feature above zero?". Something has to *compute* with what has been gathered. That is the job
# of the [**feed-forward**](../docs/glossary.md#f) **network**, which works on each token alone: widen it to the features
# of a **hidden layer**, bend it, narrow it.
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
# The next cell also counts the parameters of the package's whole block.

# %%
course.assert_same_module(FeedForwardNetwork(32, 128), FeedForward(32, 128), x)
feed_forward = FeedForwardNetwork(32, 128)
torch.testing.assert_close(feed_forward(x[:, 2:3]), feed_forward(x)[:, 2:3])  # alone or in company: the same
for name, part in TransformerBlock(32, 4).named_children():
    if count := sum(p.numel() for p in part.parameters()):
        print(f"{name:18} {count:6,} parameters")


# %% [markdown]
# **Question** (easy, 3 minutes). The hidden layer is $4E$ wide, the usual choice. Attention has four square matrices, one
# each for queries, keys, values and output. Which share of a block's weights does the feed-forward network have, for any
# $E$?
#
# <details><summary>Answer</summary>
#
# Two thirds, biases and norms aside: $2 \cdot E \cdot 4E = 8E^2$, against $4 \cdot E \cdot E = 4E^2$ in attention.
#
# </details>
#
# ## Two orders
#
# A [**transformer block**](../docs/glossary.md#t) is attention with a residual connection and a norm, and then the
# feed-forward network with a residual connection and a norm. Only one question is open: does the norm stand before the
# part, or after the sum?
#
# | | formula, for $f$ = attention, then $f$ = feed-forward | who uses it |
# |---|---|---|
# | [**post-norm**](../docs/glossary.md#p) | $\text{norm}(x + f(x))$ | the first transformer, Vaswani et al. 2017, section 3.1 |
# | [**pre-norm**](../docs/glossary.md#p) | $x + f(\text{norm}(x))$ | most language models since [GPT-2 (2019)](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf) |
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
# In post-norm every norm rescales all that came before. The sizes are measured in your two blocks, with fresh weights.

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
# In post-norm the stream has size 1 after each norm as long as $g$ is 1 and $b$ is 0. (The sums before them
# have no label.) In pre-norm nothing holds the size, though it hardly grows in this one block (*Quieter branches* below
# measures 24). So a pre-norm model usually has **one more norm after its last block**, before the **read-out**, the linear
# map that turns tokens into an answer. Your stack below has it for all kinds of block.
#
# ## Break it: where the `x +` goes
#
# Here are two classic slips in a pre-norm block. Both run and give the right shapes.

# %%
class NoResidual(Block):
    def forward(self, x):
        x = self.attention(self.attention_norm(x))[0]
        return self.feed_forward(self.feed_forward_norm(x))


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
# The **silence test**: set the last layers of both branches to zero. A branch that adds nothing must leave nothing
# behind, so a pre-norm block then has to return exactly $x$.
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

# %%
titles = [f"{name}: y – x" for name in kinds]
plotting.heads(torch.stack(gaps), titles=titles, signed=True, xlabel="feature", ylabel="token", panel_width=3.1)
plotting.show(
    "Three maps of y minus x, six tokens by 16 features: the first is blank, the others are coloured almost everywhere."
)


# %% [markdown]
# **Question** (easy, 2 minutes). One of the maps is exactly $-x$. Which one, and why?
#
# <details><summary>Answer</summary>
#
# That of the missing residual connection. With silent branches this block returns 0, and $0 - x = -x$.
#
# </details>
#
# ### Exercise 4 · middle · 6 minutes
#
# Does a block that passes the silence test have to be right? Hunt the bugs in this one. `x` has shape (L, E), and the five
# parts are functions: `attention` from (L, E) to (L, E), `norm_1` before it, `norm_2` before the feed-forward network, and
# `up` and `down`, its two linear maps.
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
# Two probes, one for each slip. With `down` silent, is attention *added* to the stream? With `attention` silent, does
# `norm_2` read the stream? (`norm` has a **gain**, its $g$, that is not 1 everywhere: a second fresh norm would hardly
# change what the first has normed.)

# %%
def suspect(x, attention, norm_1, up, down, norm_2):
    y = norm_1(x)
    y = y + attention(y)
    return x + down(F.gelu(up(norm_2(y))))


def norm(x):
    return torch.linspace(0.5, 2, x.shape[-1]) * F.layer_norm(x, x.shape[-1:])


def average(x):  # attention with equal weights
    return x.mean(dim=0, keepdim=True).expand_as(x)


def two_probes(block, x):
    read = []
    block(x, torch.zeros_like, norm, torch.sin, torch.sin, lambda y: read.append(y) or norm(y))
    added = block(x, average, norm, torch.sin, torch.zeros_like, norm) - x
    return torch.allclose(added, average(norm(x)), atol=1e-5), torch.equal(read[0], x)


for block in (suspect, pre_norm_block):
    print("{:14} attention is added: {!s:5}  norm_2 reads the stream: {}".format(block.__name__, *two_probes(block, probe[0])))

# %% [markdown]
# ## A stack of blocks
#
# Now the question of the beginning, with your blocks. A digit of 28 × 28 pixels is cut into 16 squares, and each square
# of 7 × 7 pixels becomes a token by `F.unfold` (notebook 06 is about that). A learned vector for its position is added
# (notebook 04). The tokens pass through a stack of blocks, an `nn.ModuleList`, and one last norm; their mean goes to
# the read-out.

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
        self.blocks = nn.ModuleList(block(embed_dim, 4) for _ in range(depth))
        self.norm, self.read_out = LayerNorm(embed_dim), nn.Linear(embed_dim, 10)

    def forward(self, x):  # (B, 16, 49)
        x = self.embed(x) + self.positions  # (B, 16, E)
        for block in self.blocks:
            x = block(x)
        return self.read_out(self.norm(x).mean(dim=1))  # (B, 10)


# %% [markdown]
# Four kinds of block: pre-norm, post-norm, the slip `NoResidual`, and one that keeps the residual connections and drops
# the norms. First look at twelve blocks before any training, with four [**seeds**](../docs/glossary.md#s), the numbers
# from which the random weights are drawn: how large is $r$, the variation between the 16 tokens of a digit, after each
# block? (Lines are means, and bands are one [**standard error**](../docs/glossary.md#s) wide on either side, the usual
# distance of such a mean from the true one.)
#
# **Predict**: attention alone collapsed. `NoResidual` has norms and feed-forward networks between its attention layers.
# Will they save it?

# %%
class NoNorm(Block):
    def forward(self, x):
        x = x + self.attention(x)[0]
        return x + self.feed_forward(x)


blocks = {"pre-norm": Block, "post-norm": PostNormBlock, "no residual": NoResidual, "no norm": NoNorm}
styles = {kind: {"color": plotting.COLORS[n]} for kind, n in zip(blocks, (0, 4, 1, 6), strict=True)}


def build(kind, depth, seed):
    torch.manual_seed(seed)
    return Stack(blocks[kind], depth).to(device)


@torch.no_grad()
def after_each_block(measure, model):  # of the tokens of 64 digits
    x = model.embed(squares[:64]) + model.positions
    return [measure(x)] + [measure(x := block(x)) for block in model.blocks]


# %%
def between_tokens(x):  # (B, L, E)
    return variation(x).mean().item()


left = {kind: torch.tensor([after_each_block(between_tokens, build(kind, 12, n)) for n in range(4)]) for kind in blocks}
plotting.bands(left, x=range(13), logy=True, xlabel="after block", ylabel="variation left", title="16 tokens", styles=styles)
plotting.show(
    "The variation left after each of twelve blocks, on a logarithmic axis: four lines, one for each kind of block, with"
    " bands over four seeds."
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
# They do not save it. Attention makes the tokens alike, as above, and after four blocks all 16 are one vector, up to
# rounding. Nothing parts them again: norm and feed-forward network work on each token alone, and so equal tokens stay
# equal. With the residual connections more than half of $r$ is left after twelve blocks. It still falls there, and not by
# averaging alone: biases add one vector to all tokens, which makes $r$ smaller, too.
#
# And the gradient? The toy above had no norms, so the blocks of a fifth stack have neither norms nor residual
# connections (its last norm stays). We look at the length of the gradient of `down`, the last of the six matrices of each
# block. (The picture calls it the gradient's *norm*, which is not a layer norm.) **Predict** which of the five stacks have
# lost their gradient, by many powers of ten, when it reaches the first block.

# %%
class Neither(Block):
    def forward(self, x):
        return self.feed_forward(self.attention(x)[0])


blocks["neither"], styles["neither"] = Neither, {"color": plotting.COLORS[2]}
matrices = [f"attention.{name}_proj" for name in ("q", "k", "v", "out")] + ["feed_forward.up", "feed_forward.down"]


def gradients(kind, depth, seed):  # (depth, 6): their sizes, of each matrix in each block; nan where it is not in use
    model = build(kind, depth, seed)
    F.cross_entropy(model(squares[:64]), labels[:64]).backward()
    found = [[block.get_submodule(matrix).weight.grad for matrix in matrices] for block in model.blocks]
    return torch.tensor([[math.nan if grad is None else grad.norm().item() for grad in row] for row in found])


arriving = {kind: torch.stack([gradients(kind, 12, seed) for seed in range(4)]) for kind in blocks}  # (4, 12, 6)
down = {kind: values[..., -1] for kind, values in arriving.items()}
title, dashed = "gradient of down, before training", styles | {"no norm": styles["no norm"] | {"linestyle": "--"}}
plotting.bands(down, xlabel="block", ylabel="norm of the gradient", title=title, logy=True, styles=dashed)
plotting.show("The norm of the gradient at each of twelve blocks, on a logarithmic axis: five lines, one for each stack.")

# %%
course.verdict("neither: largest gradient at block 1", down["neither"][:, 0].max().item(), below=1e-10)
first = {kind: values[:, 0].log().mean().exp().item() for kind, values in down.items()}  # means on the axis of the picture
course.verdict("block 1: mean of no residual over mean of post-norm", first["no residual"] / first["post-norm"], above=0.1)

# %% [markdown]
# Only `neither` has lost its gradient at block 1. The toy fits this stack: from block to block, backwards, the gradient
# falls by about the same factor, a straight line on this axis. (The dashed line of `no norm` lies on post-norm's.) But
# with norms alone the gradient of `down` is not small at all. A norm divides small tokens by their size, and in the
# backward pass it divides the gradient by that size, too: what the layer before has shrunk is enlarged again. So in these
# fresh stacks of twelve blocks the residual connection alone, or the norm alone, keeps this gradient from vanishing. He
# et al. (section 4.1) found the same in their plain networks: thanks to batch norm the gradients were healthy, and yet
# the deeper network had the larger training error.
#
# But `down` is one of six matrices. In `no residual` the tokens of a digit are all but equal behind the third block.
# **Predict** which of the six have lost their gradient in the fourth: those of queries, keys, values and output, `up`,
# `down`?

# %%
print(f"{'mean gradient of':20}", *(f"{name.split('.')[1]:>8}" for name in matrices))
for kind in ("pre-norm", "no residual"):
    for n, norms in enumerate(arriving[kind].mean(dim=0).tolist(), start=1):
        if n in (1, 2, 4, 12):
            print(f"{kind:11} block {n:2}", *(f"{norm:8.1g}" if norm > 1e-6 else "  < 1e-6" for norm in norms))

# %%
course.verdict("no residual: largest gradient of q_proj in blocks 4 to 12", arriving["no residual"][:, 3:, 0].max().item(), below=1e-5)


# %% [markdown]
# **Question** (hard, 4 minutes). Why are the gradients of queries and keys zero there, up to rounding?
#
# <details><summary>Answer</summary>
#
# If all values are the same vector, their weighted mean is this vector, whatever the weights. So nothing that the queries
# or keys do changes the loss. From the fourth block on, this stack cannot learn *where to look*. The other four matrices
# it can learn: there the gradient is even larger than in pre-norm.
#
# </details>
#
# ## Train it: depth, with and without
#
# Some of these stacks will not learn. Four suspects could be the reason, and each gets its experiment below:
#
# 1. *equal tokens*: what is equal cannot be told apart again;
# 2. *a vanished gradient*: in `no residual`, that of queries and keys;
# 3. *similar digits*: if all digits come out nearly the same, the read-out has little to tell them by;
# 4. *the step*: the gradient tells the right way, but not as far as we step.
#
# The [**optimiser**](../docs/glossary.md#o) is Adam: it divides each parameter's gradient by the usual size of
# the last ones, so that at first a parameter moves by about the [**learning rate**](../docs/glossary.md#l) in each
# step, however large its gradient is. Only a gradient far below 10⁻⁸ is too small for that: Adam adds 10⁻⁸ to the divisor,
# and the parameter hardly moves.

# %%
def train(model, seed, steps=80, lr=3e-3):
    generator, losses = torch.Generator().manual_seed(seed), []
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)  # fused: one call for all parameters
    for _ in range(steps):
        batch = torch.randint(len(squares), (16,), generator=generator).to(device)
        loss = F.cross_entropy(model(squares[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def final(losses):  # (..., steps): the mean of the last 20
    return torch.as_tensor(losses)[..., -20:].mean(dim=-1)


# %% tags=["nbval-ignore-output"]
runs, ends = {}, {}


def compare(*stacks, seeds=range(4)):
    for kind, depth in stacks:
        name = kind if depth == 12 else f"{kind}, {depth} blocks"
        styles[name] = styles[kind] | ({} if depth == 12 else {"linestyle": "--"})
        trained = torch.tensor([train(build(kind, depth, seed), seed) for seed in seeds])
        runs[name] = torch.cat([runs.get(name, trained)[: seeds[0]], trained])
        ends[name] = final(runs[name])
        print(f"{name:24}", [f"{loss:.2f}" for loss in ends[name]])


compare(("pre-norm", 12), ("pre-norm", 2), ("no residual", 12), ("no residual", 2))


# %%
def curves(*names):
    shown = {name: runs[name].nan_to_num(math.log(10)) for name in names}  # not a number: as good as a blind guess
    ax = plotting.bands(shown, smooth=10, title="training loss", styles=styles)
    ax.set_ylim(1.4, 2.6)
    ax.axhline(math.log(10), color="grey", linestyle=":")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    ax.figure.set_size_inches(8.4, 3.6)


curves(*runs)
plotting.show(
    "Twelve blocks without residual connections stay just above the dotted line of ln 10, and the three other stacks"
    " fall clearly below it. Two blocks of pre-norm fall furthest."
)


# %% [markdown]
# Each point is the mean of ten steps; the printed losses, one for each seed, are means of the last 20. With the same
# seed all stacks see the same batches, so the verdicts compare them seed by seed. Each states the lower end of an interval
# for the mean difference: above 0 it speaks against chance.
#
# <details><summary>How the interval is computed</summary>
#
# A loss above $\ln 10$ counts as $\ln 10$, that of a blind guess: two stacks that learned nothing are equally bad.
# `low_end` is the lower end of a 95 % interval, one computed such that 95 of 100 like it hold the true mean, if the
# differences are normally distributed (notebook 16 explains it). With four seeds and several verdicts it is evidence, not
# proof.
#
# </details>

# %%
def low_end(values):  # of a 95 % interval for the mean, by Student's t for so many values
    values, t = torch.as_tensor(values), {4: 3.18, 6: 2.57, 10: 2.26}[len(values)]
    return (values.mean() - t * values.std() / math.sqrt(len(values))).item()


def behind(name, than):  # seed by seed; nothing counts for more than ln 10, the loss of a blind guess
    both = min(len(ends[name]), len(ends[than]))
    loss = {kind: ends[kind][:both].nan_to_num(math.inf).clamp(max=math.log(10)) for kind in (name, than)}
    return loss[name] - loss[than]


def worse(name, than):
    course.verdict(f"loss of {name} minus {than}, lower end", low_end(behind(name, than)), above=0)


worse("no residual", than="pre-norm")
worse("no residual", than="no residual, 2 blocks")
worse("pre-norm", than="pre-norm, 2 blocks")


# %% [markdown]
# Prediction 2: two blocks of pre-norm come first. Twelve blocks of pre-norm and two without residual connections
# follow, not far from each other. Twelve blocks without residual connections come last, and they alone stay near the
# dotted line: they do not *learn*, as we shall say.
#
# Even with residual connections the twelve blocks are behind the two, in *training* loss: so far they do what the plain
# networks of He et al. did. Whether depth *pays* after more steps, 80 do not tell.
#
# ### Is rank collapse the reason?
#
# Suspect 1, equal tokens. The networks of He et al. had no attention, and failed all the same. So take the attention out:
# twelve layers of norm and feed-forward network. Nothing mixes the tokens now, but a layer may still make different tokens
# nearly equal. So we measure $r$ between the tokens of a digit, and for suspect 3 between digits. The end of the stack is
# enough: what has become equal on the way stays equal.

# %%
class OnlyFeedForward(Block):
    def forward(self, x):
        return self.feed_forward(self.feed_forward_norm(x))


class FeedForwardResidual(Block):  # the control
    def forward(self, x):
        return x + self.feed_forward(self.feed_forward_norm(x))


blocks |= {"only feed-forward": OnlyFeedForward, "feed-forward + residual": FeedForwardResidual}
styles |= {"only feed-forward": {"color": plotting.COLORS[5]}, "feed-forward + residual": {"color": plotting.COLORS[3]}}
fresh = [build("only feed-forward", 12, seed) for seed in range(4)]
tokens = min(after_each_block(between_tokens, model)[-1] for model in fresh)


def between_digits(x):  # of the mean token of each
    return variation(x.mean(dim=1)).item()


apart = {kind: [after_each_block(between_digits, build(kind, 12, seed))[-1] for seed in range(4)] for kind in blocks}
for kind, four in apart.items():
    print(f"{kind:24} variation between digits after 12 layers", "  ".join(f"{r:.2f}" for r in four))
course.verdict("only feed-forward: smallest variation between tokens after 12 layers", tokens, above=0.1)
course.verdict("only feed-forward: smallest variation between digits after 12 layers", min(apart["only feed-forward"]), above=0.02)

# %% [markdown]
# Some difference is left, between tokens and between digits. **Predict** whether this stack learns, and whether its
# **control** does, the stack to compare with: the same twelve layers *with* the residual connection.

# %% tags=["nbval-ignore-output"]
compare(("only feed-forward", 12), ("feed-forward + residual", 12))

# %%
curves("pre-norm", "feed-forward + residual", "only feed-forward", "no residual")
plotting.show(
    "Twelve layers of feed-forward networks with the residual connection fall below the dotted line of ln 10, not as"
    " far as pre-norm; without it they hardly leave the line."
)
worse("only feed-forward", than="pre-norm")
worse("only feed-forward", than="feed-forward + residual")


# %% [markdown]
# With every seed the control ends clearly below $\ln 10$. Without the residual connection three of four end around $\ln
# 10$, and one below it (2.18). So **rank collapse is not the whole reason**: in this stack the tokens of a digit are
# apart at the start, and it hardly learns all the same. Nor does collapse alone forbid learning: after *two* blocks `no
# residual` has kept less than 1 % of its variation, and two such blocks learn. The residual connection helps where no
# attention is, too.
#
# Suspect 3, similar digits. Before training they differ less in `no residual` and `only feed-forward` (0.1 to 0.2, with
# one exception) than in the stacks with residual connections (about 0.3 to 0.5). Look at single starts, though. One
# speaks for the suspect: of the four of `only feed-forward`, the second has the largest variation, 0.16, and the lowest
# loss, 2.18. One speaks against it: the first start of `no residual`, the exception, has 0.37 and ends at 2.35. This
# suspect stays on the list.
#
# ### How far can the gradient be trusted?
#
# Suspect 4, the step. In `no residual`, four of six matrices have a large gradient. But a gradient only tells which way
# the loss falls from *here*. Does it still tell the way after a small step? Take a fresh model, make one step of Adam
# with a tenth of our learning rate, and compute the gradient again on the same digits. The [**cosine
# similarity**](../docs/glossary.md#c) of both tells whether the direction was kept: 1 is the same direction, 0 a right
# angle, and −1 the opposite direction.

# %%
def kept(kind, depth, seed, lr=3e-4):
    model, seen = build(kind, depth, seed), []
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(model(squares[:64]), labels[:64]).backward()
        seen.append(torch.cat([p.grad.flatten() for p in model.blocks.parameters() if p.grad is not None]))
        optimizer.step()
    return F.cosine_similarity(*seen, dim=0).item()


def dots(groups, colors, **labels):
    _, ax = plt.subplots(figsize=(8.6, 3.2), layout="constrained")
    for n, (values, color) in enumerate(zip(groups.values(), colors, strict=True)):
        ax.plot([n] * len(values), values, "o", color=color, alpha=0.6)
    ax.set_xticks(range(len(groups)), labels=[name.replace(" + ", "\n+ ").replace(", ", ",\n") for name in groups])
    ax.set(**labels)
    ax.grid(axis="y", alpha=0.25)


# %%
names = ["pre-norm, 2 blocks", "no residual, 2 blocks", "pre-norm", "feed-forward + residual"]
names += ["only feed-forward", "no residual"]
same = {name: [kept(name.split(",")[0], 2 if "2" in name else 12, seed) for seed in range(10)] for name in names}
colors = [styles[name]["color"] for name in names]
dots(same, colors, title="after a step with learning rate 0.0003, ten seeds", ylabel="cosine of both gradients")
plt.gca().axhline(0, color="grey", linestyle=":")  # a right angle
for name, ten in same.items():
    print(f"{name:24} mean cosine {sum(ten) / 10:.2f}")
plotting.show(
    "Dots for six stacks, ten seeds each. With two blocks, and for feed-forward with residual, they lie high; pre-norm of"
    " twelve blocks scatters between zero and one, and the two deep stacks without residual around the line at zero."
)
for deep, other in (("no residual", "pre-norm"), ("only feed-forward", "feed-forward + residual")):
    lower = low_end([a - b for a, b in zip(same[other], same[deep], strict=True)])
    course.verdict(f"cosine of {other} minus {deep}, lower end", lower, above=0.05)

# %% [markdown]
# In the two deep stacks without residual connections the mean cosine after one small step is near 0, a right angle:
# single starts scatter on either side of it, from about −0.3 to 0.8. The other four stacks have mean cosines above one
# half. But a larger cosine does not mean a lower loss: pre-norm keeps less of its direction than `feed-forward +
# residual`, and ends lower.
#
# How short must a step be for the gradient of `no residual` to keep its direction? And **predict**: with steps as short as
# that, and more of them, does the stack learn? Choose a rate of your own, too.

# %% tags=["nbval-ignore-output"]
my_rate = 1e-4  # yours, from 0.00003 to 0.003


def patient(kind, lr, seeds):
    cosines = same[kind] if lr == 3e-4 else [kept(kind, 12, seed, lr) for seed in range(10)]
    losses = final([train(build(kind, 12, seed), seed, steps=200, lr=lr) for seed in range(seeds)])
    cosine = sum(cosines) / len(cosines)
    print(f"{kind:17} rate {lr:.5f}: mean cosine {cosine:5.2f}, 200 steps", *(f"{loss:.2f}" for loss in losses))
    return losses


short = {("no residual", my_rate): patient("no residual", my_rate, seeds=1)}
short |= {("no residual", lr): patient("no residual", lr, seeds) for lr, seeds in ((3e-5, 2), (3e-4, 2), (3e-3, 1))}
for kind, lr in (("only feed-forward", my_rate), ("only feed-forward", 3e-4), ("pre-norm", my_rate)):
    short[kind, lr] = patient(kind, lr, seeds=1)

# %%
course.verdict("no residual, 200 short steps: the higher of two final losses", short["no residual", 3e-5].max().item(), below=2.2)

# %% [markdown]
# **It learns** at 0.00003 and at 0.0001. At 0.0003 it has hardly begun to, and at 0.003, the rate of our runs, 200 steps
# change nothing. So steps thirty times shorter than ours are enough, and steps ten times shorter hardly were, in 200
# steps (one or two seeds each). Strike out suspects 1 and 2, and with them 3, which is a matter of the start as well:
# neither its tokens, equal up to rounding at the start, nor the lost gradient of its queries and keys forbade it to
# learn. (Here only the mean token is read. Equal tokens cost this task less than one that wants an answer for each
# token.)
#
# Suspect 4 is the best one, but not convicted. For it: `no residual` learns at the rates at which its gradient keeps part
# of its direction. Against it: at 0.0003 the mean cosine of `only feed-forward` is as close to 0, and that stack learns
# in 200 steps. All this is one step from a fresh start.
#
# Short steps do not replace the residual connection: at 0.0001 pre-norm gets much further in as many steps.
#
# <details><summary>What others found</summary>
#
# Balduzzi et al. ([2017](https://arxiv.org/abs/1702.08591)) describe **shattered gradients**: in deep networks without
# residual connections, even inputs close together have almost unrelated gradients. Li et al.
# ([2018](https://arxiv.org/abs/1712.09913)) draw the loss as a landscape over two directions in the space of the weights:
# smooth around trained networks with such connections, rugged around those without. The 56 layers of He et al. may be
# another case: three times as many steps did not help them, says a footnote of their section 4.1.
#
# </details>
#
# ## What the order is worth
#
# So far the norm stood before its branch. **Predict**: does post-norm learn faster than pre-norm, as fast, or more slowly?
# (Both have six seeds here.)

# %% tags=["nbval-ignore-output"]
compare(("pre-norm", 12), seeds=range(4, 6))
compare(("post-norm", 12), seeds=range(6))

# %%
curves("pre-norm", "post-norm")
plotting.show(
    "Both curves fall below the dotted line of ln 10 together. Then pre-norm falls further, and post-norm lags behind."
)
worse("post-norm", than="pre-norm")

# %% [markdown]
# In these 80 steps and at this learning rate pre-norm is ahead. Post-norm falls at first just as fast and then lags
# behind. The first transformers were post-norm and were trained with a [**warm-up**](../docs/glossary.md#w), a learning
# rate that rises from near 0 in the first steps: Xiong et al. (section 3) show that their post-norm model needs it and
# that pre-norm does not.
#
# ### And without any norm?
#
# The blocks of `NoNorm` keep only the residual connections, and those of `Neither` nothing. (The norm before the read-out
# stays.) With them we have all four combinations of a residual connection and a norm in front of each branch. **Predict**
# which of the four learn.

# %% tags=["nbval-ignore-output"]
compare(("no norm", 12))
compare(("neither", 12), seeds=range(2))

# %%
curves("pre-norm", "no norm", "no residual", "neither")
plotting.show("Training loss of four stacks of twelve blocks over 80 steps, with the dotted line of ln 10.")

# %%
gap = behind("no norm", "pre-norm").min().item()
course.verdict("no norm minus pre-norm, smallest of four seeds", gap, above=0)

# %% [markdown]
# What learned well in our twelve blocks is the pair: a residual connection *and* a norm before each branch. With the norm
# alone, or with neither, no seed gets below $\ln 10$ at this rate. With the residual connection alone the seed decides
# how far below it gets, and a seed may end at `nan`, "not a number", which counts, and is drawn, as a blind guess. (An
# optional part below looks into it.) Every seed ends above pre-norm. The losses of `no norm` and post-norm overlap.
#
# ### All stacks in one table
#
# All have twelve blocks with a feed-forward network in each. `r`, behind the last block, and the gradient of `down` in the
# first are means before training. Then come the mean loss after 80 steps, where nothing counts above $\ln 10$, and that
# after 200 short steps, where it was measured.

# %% tags=["nbval-ignore-output"]
parts = {"pre-norm": "yes before yes", "post-norm": "yes after yes", "no norm": "yes no yes", "no residual": "yes before no"}
parts |= {"neither": "yes no no", "feed-forward + residual": "no before yes", "only feed-forward": "no before no"}
print(f"{'':23} attention   norm residual        r gradient  loss  at {my_rate:.5f}")
for kind, has in parts.items():
    r = left[kind][:, -1] if kind in left else torch.tensor([after_each_block(between_tokens, build(kind, 12, n))[-1] for n in range(4)])
    gradient = down[kind][:, 0] if kind in down else torch.stack([gradients(kind, 12, n)[0, -1] for n in range(4)])
    loss = ends[kind].nan_to_num(math.inf).clamp(max=math.log(10)).mean()
    slow = f"{short[kind, my_rate].mean():.2f}" if (kind, my_rate) in short else "–"
    print(f"{kind:23} {'{:>9} {:>6} {:>8}'.format(*has.split())} {r.mean():8.1g} {gradient.mean():8.1g} {loss:5.2f} {slow:>11}")


# %% [markdown]
# **Question** (middle, 3 minutes). Which column tells best which stacks learn at the rate of our runs?
#
# <details><summary>Answer</summary>
#
# *Residual*: the four stacks with it get below $\ln 10$, the three without it hardly. Here `r` at the start separates the
# same stacks (0.6 and more against 0.4 and less), so this table cannot decide between the two; the short steps do, since
# there tokens that are equal up to rounding learn. The gradient separates nothing: the largest belong to `no residual`
# and `only feed-forward`.
#
# </details>
#
# ## Today
#
# - **The residual stream** is how large models are read now: every block adds to it, and parts of it can be followed
#   from block to block ([Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html)).
# - **Pre-norm with a last norm** came with the language model [GPT-2](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf) in 2019 and is what GPT-3 has in its 96 blocks.
#   BERT ([Devlin et al. 2018](https://arxiv.org/abs/1810.04805)), which fills in missing words, still had post-norm,
#   like the first transformer.
# - [**RMS norm**](../docs/glossary.md#r) ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467)) does not subtract
#   the mean and has no shift. The language model Llama ([Touvron et al. 2023](https://arxiv.org/abs/2302.13971)) uses it.
# - [**SwiGLU**](../docs/glossary.md#s) ([Shazeer 2020](https://arxiv.org/abs/2002.05202)) is the feed-forward network
#   of Llama: two maps widen the token, and one of them, passed through a function much like GELU, multiplies the other.
#
# ## Takeaways
#
# - Attention averages, and averages of averages become equal. In fresh stacks, residual connections slow that down a
#   lot; norms and feed-forward networks alone do not.
# - Layer norm acts on each token by itself, over its features, and so does the feed-forward network. Only attention
#   moves information between tokens.
# - In pre-norm every block only adds to the stream, and one norm usually follows the last block; in post-norm the norms stand on the stream itself.
# - Here, at the learning rate at which others learned, twelve blocks without residual connections hardly did, with attention or without it.
# - With norms it was not for want of a gradient: before training, only that of queries and keys had vanished. But the
#   gradient kept its direction over short steps only.
# - With steps about thirty times shorter such stacks learned (one or two seeds), more slowly than pre-norm with the same steps.
# - Here, at this rate and without a warm-up, twelve blocks of pre-norm learned, and faster than post-norm and than blocks without any norm. Two blocks learned faster still: depth did not pay
#   in 80 steps.
#
# ## Check yourself
#
# 1. Which part of the block lets tokens exchange information?
# 2. Which of the four kinds of block (pre-norm, post-norm, no residual, no norm) return exactly their input when both
#    branches are silenced? What do the others return, with fresh norms?
# 3. A pre-norm model of 12 blocks stays at a loss of ln(number of classes). What do you look at first?
#
# <details><summary>Answers</summary>
#
# 1. Only attention. Norm, feed-forward network and residual connection treat each token by itself.
# 2. Pre-norm and no norm: nothing stands on their stream, and both add 0. Post-norm returns the normed input, so it
#    fails the test although it is correct. No residual returns 0.
# 3. The labels and the loss; then the residual connections: silence the branches, and see whether each block returns its input. Then a tenth and a
#    hundredth of the learning rate, with more steps. Before the first step the size of `down`'s gradient would not have shown it; that of `q_proj`, from block 4 on, would have shown equal tokens.
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
# ## Optional: why a stack without norms may end at nan
#
# Nothing holds the size of a stream without norms, as *Layer norm* showed with stronger branches. So look at the stream of
# `no norm` while it trains. To see much in few steps, take large ones: four with learning rate 0.01.

# %%
def sizes_after_training(kind, seed):
    model = build(kind, 12, seed)
    train(model, seed, steps=4, lr=1e-2)
    return after_each_block(size, model)


grown = {kind: torch.tensor([sizes_after_training(kind, n) for n in range(4)]) for kind in ("pre-norm", "no norm")}
title = "after four steps with learning rate 0.01"
plotting.bands(grown, x=range(13), logy=True, xlabel="after block", ylabel="size", title=title, styles=styles)
plotting.show(
    "Size of the stream after each block on a logarithmic axis. Without norms it rises almost in a straight line, from"
    " about one to a thousand; with pre-norm the curve flattens and stays below ten."
)
grows = (grown["no norm"] / grown["pre-norm"])[:, -1]
course.verdict("no norm over pre-norm after 12 blocks, lower end", math.exp(low_end(grows.log())), above=1)

# %% [markdown]
# **Question** (middle, 3 minutes). The axis is logarithmic. Which stack multiplies the size in each block, and why does
# the other not?
#
# <details><summary>Answer</summary>
#
# The line of `no norm` is nearly straight. Equal steps on this axis are equal factors, so each block *multiplies* what the
# block before it has enlarged. In pre-norm every branch reads an input of size 1, however large the stream is. So a block
# *adds* to it, and the curve flattens. (Whether this is why a seed of `no norm` ended at nan was not measured.)
#
# </details>
#
# ## Optional: initialisation
#
# ### The gradient of the last block
#
# Xiong et al. (section 3.3) derive upper bounds for the gradient of the last feed-forward network of a fresh stack: in
# pre-norm the bound shrinks with the depth $N$ as $1/\sqrt N$, and in post-norm it does not depend on $N$. A bound is
# only a ceiling. Suppose that the gradients stay near it. Then from 3 to 48 blocks that of pre-norm falls to 1/4, and
# that of post-norm does not fall. The verdicts test the first to a factor of two, and the second from below: it must not
# fall by half. The dotted line is $1/\sqrt N$, from the first point of pre-norm on:

# %%
depths = (3, 12, 48)
last = {
    kind: torch.tensor([[gradients(kind, depth, seed)[-1, -1] for depth in depths] for seed in range(4)])
    for kind in ("pre-norm", "post-norm")
}
title = "feed-forward of the last block"
ax = plotting.bands(last, x=depths, logy=True, xlabel="blocks", ylabel="gradient norm", title=title, styles=styles)
ax.plot(depths, [last["pre-norm"][:, 0].mean() * (3 / depth) ** 0.5 for depth in depths], ":", color="grey")
ax.set_xscale("log")
ax.set_xticks(depths, labels=depths, minor=False)
ax.set_xticks([], minor=True)
ax.set_yticks((0.1, 0.2, 0.4), labels=("0.1", "0.2", "0.4"))
ax.set_yticks([], minor=True)
plotting.show(
    "Gradient of the last block against the number of blocks, both axes logarithmic. Pre-norm falls, a little more slowly"
    " than the dotted line of one over the root of the depth; post-norm rises."
)
ratio = {kind: (norms[:, -1].mean() / norms[:, 0].mean()).item() for kind, norms in last.items()}
course.verdict("pre-norm, 48 blocks over 3 (predicted: 0.25)", ratio["pre-norm"], above=0.125, below=0.5)
course.verdict("post-norm, 48 blocks over 3 (predicted: no decrease)", ratio["post-norm"], above=0.5)


# %% [markdown]
# Pre-norm falls a little more slowly than the dotted line. Post-norm does not fall; at 48 blocks it is even larger, so
# at 3 blocks it was below its ceiling. At 12 blocks, the depth that we trained, the two are about equal, so they do not
# explain the difference that we saw.
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
quiet = {name: [growth(factor, seed) for seed in range(4)] for name, factor in factors.items()}
colors = [styles["pre-norm"]["color"]] * 3
dots(quiet, colors, title="size of the stream after 24 blocks, over before", ylabel="ratio", ylim=(0, None))
plotting.show(
    "As torch draws the weights the stream grows several times; scaled it hardly grows, and at zero not at all."
)
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
