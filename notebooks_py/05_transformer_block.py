# %% [markdown]
# # 05 The transformer block
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/05_transformer_block.ipynb)
#
# ← [04 Positions](04_positions.ipynb) · [the map of the course](00_welcome.ipynb) · [06 Image transformer](06_image_transformer.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) **05** · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb)
#
# Needs: notebook 03 · runs in about 60 s on two CPU cores · about 2½ hours of study

# %% [markdown]
# In 2014 the best networks for images had about twenty layers. Everybody expected more layers to do better, and they
# did worse: a plain network of 56 layers made more mistakes than one of 20, *even on the pictures it was trained on*
# ([He et al. 2015](https://arxiv.org/abs/1512.03385), figure 1). So the deep network had not memorised too much. It
# could not be trained. In the same paper, one small change to every layer made a network of 152 layers trainable, and
# with it the authors won the ImageNet competition of 2015, in which photographs are sorted into a thousand classes.
#
# Today's language models are about that deep; GPT-3 has 96 blocks ([Brown et al.
# 2020](https://arxiv.org/abs/2005.14165), table 2.1). Attention makes up only a part of each block. This notebook
# builds the rest, which is what makes a hundred blocks possible: the residual connection of He et al., the layer norm
# of [Ba et al. 2016](https://arxiv.org/abs/1607.06450), and the order of the two, which [Xiong et al.
# 2020](https://arxiv.org/abs/2002.04745) found to matter.
#
# After this notebook you can
#
# - show how a stack of nothing but attention makes all tokens alike, and what stops it;
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
words = ["the", "cat", "sat", "on", "the", "mat"]

# %% [markdown]
# **Predict**, and write your answers down.
#
# 1. Six different tokens pass through twelve attention layers with random weights, one after the other and nothing in
#    between. How much of the difference between the tokens is left at the end: most of it, half, a tenth, or nothing?
# 2. Twelve blocks learn to read digits, ten classes. A model that knows nothing has a loss of $\ln 10 \approx 2.30$. To
#    which loss do they get in 80 steps with residual connections, and to which without?
#
# ## Attention alone is an average
#
# Three tokens with one feature each, and attention weights that you can check by hand. Apply them again and again:

# %%
weights = torch.tensor([[0.50, 0.25, 0.25], [0.25, 0.50, 0.25], [0.25, 0.25, 0.50]])
tokens = torch.tensor([[0.0], [4.0], [8.0]])
for layer in range(4):
    print(f"after {layer} layers:", tokens.flatten().tolist())
    tokens = weights @ tokens


# %% [markdown]
# A weighted average lies between the smallest and the largest of its inputs. So every such layer moves the tokens
# closer together, and none moves them apart.
#
# To measure this for real tokens, subtract the mean token, and compare the size of what is left with the size of the
# whole:
#
# $$r(X) = \frac{\lVert X - \mathbf 1 \bar x^\top \rVert}{\lVert X \rVert}$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $X$, tokens in rows | `x` | (…, L, E) |
# | $\bar x$, the mean token | `x.mean(dim=-2)` | (…, E) |
#
# $r$ is 0 if all tokens are the same, and larger the more they differ; it is never above 1.

# %%
def variation(x):  # (..., L, E): one number for each sequence
    centred = x - x.mean(dim=-2, keepdim=True)
    return centred.flatten(-2).norm(dim=-1) / x.flatten(-2).norm(dim=-1)


[round(variation(torch.tensor(rows)).item(), 3) for rows in ([[2.0, 3.0], [2.0, 3.0]], [[1.0, 0.0], [0.0, 1.0]])]

# %% [markdown]
# Now twelve layers of real attention with four heads each and random weights. Biases are left out, so that nothing is
# added to the averages; the value and output matrices are there, and treat all tokens alike. Double precision lets us
# see very small differences.

# %%
names = sorted(set(words))
table = torch.randn(len(names), 32, dtype=torch.float64)
x = table[[names.index(word) for word in words]][None]  # (1, L, E)
layers = [MultiHeadAttention(32, 4, bias=False).double().requires_grad_(False) for _ in range(12)]


def through(step, x):
    states = [x]
    for layer in layers:
        states.append(step(layer, states[-1]))
    return states


attention_only = through(lambda layer, x: layer(x)[0], x)
for depth in (0, 1, 2):
    print(f"after {depth} layers: variation {variation(attention_only[depth]).item():.0e}")
course.verdict("variation left after 12 layers", variation(attention_only[-1]).item(), below=1e-12)

# %% [markdown]
# That settles prediction 1: nothing is left. After two layers the six words differ by less than one part in a thousand,
# and at the end only rounding is left. What later layers cannot tell apart they have to treat alike. This is called
# [**rank collapse**](../docs/glossary.md#r), because a matrix of equal rows has rank 1; [Dong et al.
# 2021](https://arxiv.org/abs/2103.03404) proved that the differences shrink *doubly exponentially*: the exponent itself
# grows from layer to layer, as you see above. It is faster than in the example by hand, because real weights become
# more even as the tokens become alike.
#
# ## The residual connection
#
# He et al. changed one thing. A layer no longer replaces its input. It computes what should be *added* to it, and such
# an $f$ is called a **branch**:
#
# $$y = x + f(x)$$
#
# This is the [**residual connection**](../docs/glossary.md#r). Watch the same twelve layers with it and without it.
# Each dot is a word, drawn by its direction only, in the plane in which the six words differ most at the start (their
# two first principal directions). Dots on top of one another show as rings.

# %%
with_residual = through(lambda layer, x: x + layer(x)[0], x)
directions = F.normalize(x[0], dim=-1)  # (L, E)
axes_of_plane = torch.linalg.svd(directions - directions.mean(dim=0)).Vh[:2]  # (2, E)


def words_after(depth):
    figure, axes = plt.subplots(1, 2, figsize=(9.2, 3.8), layout="constrained")
    for ax, title, states in zip(axes, ("f(x)", "x + f(x)"), (attention_only, with_residual), strict=True):
        dots = F.normalize(states[depth][0], dim=-1) @ axes_of_plane.T  # (L, 2)
        for i, (word, color) in enumerate(zip(words, plotting.COLORS, strict=False)):
            ax.plot(*dots[i], "o", color=color, markersize=19 - 3 * i, label=word)  # smaller ones on top of larger ones
        ax.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", title=f"{title}, after {depth} layers")
        ax.grid(alpha=0.25)
    axes[1].legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


plotting.animate(
    words_after,
    range(9),
    alt="Six words as dots in two panels, layer by layer. Without the residual connection they fall into one point within"
    " two layers; with it they stay apart, although they drift a little closer with every layer.",
)


# %% [markdown]
# The mean [**cosine similarity**](../docs/glossary.md#c) of all pairs says the same in one number. It is 1 if all words
# point in the same direction.

# %%
def mean_cosine(state):  # (1, L, E)
    unit = F.normalize(state[0], dim=-1)
    return (unit @ unit.T).mean().item()


for name, states in (("f(x)", attention_only), ("x + f(x)", with_residual)):
    print(f"{name:8} mean cosine after 0, 2 and 12 layers:", *(f"{mean_cosine(states[n]):.2f}" for n in (0, 2, 12)))
course.verdict("variation left with the residual connection", variation(with_residual[-1]).item(), above=0.5)

# %% [markdown]
# The sum does something for training, too. By the sum rule the gradient of $y$ with respect to $x$ is $1 + f'(x)$.
# While the slopes of the branches are small, the 1 carries the gradient past every layer. Take twelve layers with the
# slope $f'(x) = 0.1$:

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
# A sum grows. The size of the features, their root mean square, after each of the twelve layers:

# %%
sizes = [state.square().mean().sqrt().item() for state in with_residual]
print("size after 0, 4, 8 and 12 layers:", *(f"{sizes[n]:.2f}" for n in (0, 4, 8, 12)))

# %% [markdown]
# Later layers therefore get inputs of another size than earlier ones, and once training enlarges the weights, sizes can
# run away. Ba et al. bring each token back to mean 0 and variance 1, *by itself*, and let training choose a scale $g$
# and a shift $b$ for each feature. This is [**layer norm**](../docs/glossary.md#l):
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

# %%
x = torch.randn(2, 6, 32)  # (B, L, E)
course.assert_same_module(LayerNorm(32), nn.LayerNorm(32), x)


# %% [markdown]
# ### Break it: the wrong axis
#
# With `dim=-2` the shapes fit as well, but mean and variance now run over the tokens. Change the last token only, and
# see which tokens notice.

# %%
def standardise(x, dim):
    return (x - x.mean(dim, keepdim=True)) / x.std(dim, keepdim=True)


touched = x.clone()
touched[:, -1] += torch.randn(32)
moved = [(standardise(touched, dim) - standardise(x, dim))[0, :, :16].abs() for dim in (-1, -2)]  # (L, 16) each
titles = ["dim=-1: over the features", "dim=-2: over the tokens"]
plotting.heads(torch.stack(moved), rows=words, titles=titles, xlabel="feature", ylabel="token", panel_width=4.4)
plotting.show(
    "How much 16 features of six tokens change. On the left only the last row is coloured, on the right all rows are."
)


# %% [markdown]
# On the right every word knows that the last one has changed. In a language model that would leak the future past every
# causal mask. Over `dim=0`, the batch, a token would depend on sentences that it has nothing to do with.
#
# ## The feed-forward
#
# Attention moves information between tokens. It is linear in the values, though, so something has to *compute* with
# what has been gathered. That is the job of the [**feed-forward network**](../docs/glossary.md#f), which works on each
# token by itself: widen it, bend it, narrow it.
#
# $$y = \phi(x W_1 + b_1) W_2 + b_2$$
#
# | symbol | in the module | shape |
# |---|---|---|
# | $W_1$, $b_1$ | `up`, an `nn.Linear` | (E, hidden), (hidden,) |
# | $\phi$ | `F.gelu`, a smooth relative of max(x, 0) ([**GELU**](../docs/glossary.md#g)) | |
# | $W_2$, $b_2$ | `down`, an `nn.Linear` | (hidden, E), (E,) |
#
# ### Exercise 2 · easy · 5 minutes
#
# Build `FeedForwardNetwork(embed_dim, hidden_dim)` with two `nn.Linear` layers called `up` and `down`, both with a
# bias. `forward` takes tokens of shape (B, L, E) and returns the same shape. The activation is the exact GELU: `F.gelu`
# without an option.

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

# %%
course.assert_same_module(FeedForwardNetwork(32, 128), FeedForward(32, 128), x)
feed_forward = FeedForwardNetwork(32, 128)
torch.testing.assert_close(feed_forward(x[:, 2:3]), feed_forward(x)[:, 2:3])  # alone or in company: the same
for name, part in TransformerBlock(32, 4).named_children():
    if count := sum(p.numel() for p in part.parameters()):
        print(f"{name:18} {count:6,} parameters")


# %% [markdown]
# With a hidden layer of $4E$, the usual choice, two thirds of a block's weights are here: $8E^2$, against $4E^2$ in the
# four projections of attention.
#
# ## Two orders
#
# All parts are there. A [**transformer block**](../docs/glossary.md#t) is attention with a residual connection and a
# norm, and then the feed-forward network with a residual connection and a norm. Only one question is open: does the
# norm stand before the part, or after the sum?
#
# | | formula, for $f$ = attention, then $f$ = feed-forward | first used |
# |---|---|---|
# | [**post-norm**](../docs/glossary.md#p) | $\text{norm}(x + f(x))$ | Vaswani et al. 2017, section 3.1 |
# | [**pre-norm**](../docs/glossary.md#p) | $x + f(\text{norm}(x))$ | usual since GPT-2 (2019) |
#
# ### Exercise 3 · middle · 10 minutes
#
# Build a pre-norm block from your own parts. `Block(embed_dim, num_heads)` has four of them, with these names:
# `attention_norm` and `feed_forward_norm` are two separate `LayerNorm(embed_dim)`, `attention` is
# `MultiHeadAttention(embed_dim, num_heads)` from notebook 03, and `feed_forward` is `FeedForwardNetwork(embed_dim, 4 *
# embed_dim)`. `forward` takes tokens of shape (B, L, E) and returns tokens of the same shape, and nothing else. First
# attention, then the feed-forward network, each as $x + f(\text{norm}(x))$. Note that `attention(y)` returns a pair:
# the outputs, and the weights or `None`.

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
# Are your block and the package's the same, in the names of the weights, the outputs and the gradients? Post-norm is
# the same four parts with another pair of lines.

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
# Here are both as pictures. The thick line is what runs from block to block, and it has a name: the [**residual
# stream**](../docs/glossary.md#r). Attention and the feed-forward network read from it and add to it. In pre-norm
# nothing ever stands *on* the stream, so that the first token vectors reach the end as one summand of a long sum. In
# post-norm every norm rescales all that came before. The sizes are measured in your two blocks, with fresh weights.

# %%
def size(x):  # root mean square
    return x.square().mean().sqrt().item()


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
# Read the sizes along the line. Post-norm brings them back to 1 after every sum. In pre-norm nothing holds them: they
# grow a little in this one block, and over 24 blocks about threefold (*Quieter branches* below measures it). So a
# pre-norm model needs **one more norm after its last block**, before anything reads the stream. Your stack below has it
# for all kinds of block; post-norm would not need it.
#
# ## Break it: where the `x +` goes
#
# Here are two classic slips in a pre-norm block. Both run, and both give the right shapes.

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
# One test finds both. Silence the two branches by setting their last layers to zero: what is left must be $x$ itself.

# %%
def silence(block):
    for last in (block.attention.out_proj, block.feed_forward.down):
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    return block.requires_grad_(False)


kinds = {"right": Block, "residual missing": NoResidual, "norm in the path": NormInThePath}
probe = 1 + 2 * torch.randn(1, 6, 16)
gaps = [silence(kind(16, 2))(probe)[0] - probe[0] for kind in kinds.values()]
for name, gap in zip(kinds, gaps, strict=True):
    print(f"{name:18} {'passes' if gap.abs().max() < 1e-6 else 'fails'}, largest difference {gap.abs().max():.1f}")

# %%
titles = [f"{name}: y – x" for name in kinds]
plotting.heads(
    torch.stack(gaps), rows=words, titles=titles, signed=True, xlabel="feature", ylabel="token", panel_width=3.1
)
plotting.show(
    "Three maps of y minus x, six tokens by 16 features: the first is blank, the two others are coloured all over."
)

# %% [markdown]
# ## A stack of blocks
#
# Now the question of the beginning, with your blocks. A digit of 28 × 28 pixels is cut into 16 squares, and each square
# of 7 × 7 pixels becomes a token (notebook 06 is about that). The tokens pass through a stack of blocks and one last
# norm; their mean decides about the digit.

# %%
images, labels = mnist("train")
images = (images - images.mean()) / images.std()
squares = F.unfold(images, 7, stride=7).mT.contiguous().to(device)  # (N, 16, 49)
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
# the norms. First look at the stacks before any training, with twelve blocks and four
# [**seeds**](../docs/glossary.md#s): how much of the variation between the 16 tokens of a digit is left after each
# block, and how large is the gradient of the first block's feed-forward network?

# %%
class NoNorm(Block):
    def forward(self, x):
        x = x + self.attention(x)[0]
        return x + self.feed_forward(x)


blocks = {"pre-norm": Block, "post-norm": PostNormBlock, "no residual": NoResidual, "no norm": NoNorm}


def build(kind, depth, seed):
    torch.manual_seed(seed)
    return Stack(blocks[kind], depth).to(device)


@torch.no_grad()
def variations(model):
    x = model.embed(squares[:64]) + model.positions
    seen = [variation(x).mean().item()]
    for block in model.blocks:
        seen.append(variation(x := block(x)).mean().item())
    return seen


# %%
left = {kind: torch.tensor([variations(build(kind, 12, seed)) for seed in range(4)]) for kind in blocks}
plotting.bands(
    left, x=range(13), xlabel="after block", ylabel="variation left", title="16 tokens of a digit", logy=True
)
plotting.show(
    "Without the residual the variation falls by many orders of magnitude within four blocks; the others keep more than half."
)
course.verdict("no residual: largest variation after 12 blocks", left["no residual"][:, -1].max().item(), below=1e-5)
for kind in ("pre-norm", "post-norm", "no norm"):
    course.verdict(f"{kind}: smallest variation after 12 blocks", left[kind][:, -1].min().item(), above=0.3)


# %% [markdown]
# The stack without residual connections has made one vector of all 16 tokens after three blocks. The norms inside do
# not prevent that, and neither do the feed-forward networks: whatever works on each token by itself does the same to
# equal tokens. And the gradient?

# %%
def first_gradient(kind, depth, seed):
    model = build(kind, depth, seed)
    F.cross_entropy(model(squares[:64]), labels[:64]).backward()
    return model.blocks[0].feed_forward.down.weight.grad.norm().item()


arriving = {kind: [first_gradient(kind, 12, seed) for seed in range(4)] for kind in blocks}
plotting.seeds(arriving, title="gradient at the first of 12 blocks, before training", ylabel="norm")
plotting.show("Dots for four kinds of stack; those of the stack without residual connections are not the lowest.")
course.verdict(
    "smallest of no residual over largest of post-norm",
    min(arriving["no residual"]) / max(arriving["post-norm"]),
    above=1,
)


# %% [markdown]
# A surprise: without residual connections the gradient that arrives is *not* small. With every seed it is larger than
# in the post-norm stack. So the size of this gradient does not tell which stack will learn. Let us see which one does.
#
# ## Train it: depth, with and without
#
# The loop stands open. The [**optimiser**](../docs/glossary.md#o) is Adam: it divides each parameter's gradient by a
# running average of its size, so that every parameter moves by about the [**learning rate**](../docs/glossary.md#l) in
# each step.

# %%
def train(model, seed, steps=80, lr=3e-3, watch=lambda model: None):
    generator, losses = torch.Generator().manual_seed(seed), []
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(steps):
        batch = torch.randint(len(squares), (16,), generator=generator).to(device)
        loss = F.cross_entropy(model(squares[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        watch(model)  # after each step
    return losses


def final(losses):  # (..., steps): the mean of the last 20
    return torch.as_tensor(losses)[..., -20:].mean(dim=-1)


# %% tags=["nbval-ignore-output"]
runs = {kind: [train(build(kind, 12, seed), seed) for seed in range(4)] for kind in ("pre-norm", "no residual")}
runs["no residual, 2 blocks"] = [train(build("no residual", 2, seed), seed) for seed in range(4)]
for kind, losses in runs.items():
    print(f"{kind:22}", [f"{loss:.2f}" for loss in final(losses)])

# %%
ax = plotting.bands(
    {kind: torch.tensor(losses) for kind, losses in runs.items()}, smooth=10, title="12 blocks, four seeds"
)
ax.axhline(math.log(10), color="grey", linestyle=":")
plotting.show(
    "Pre-norm falls clearly below the dotted line of ln 10. The stack of twelve without residual connections stays on it,"
    " and that of two falls."
)


# %% [markdown]
# Four seeds are few, so the verdicts judge an interval: the mean of four differences lies within 3.18 standard errors
# of the truth in 95 % of all such experiments (Student's t; notebook 16 explains it). `low_end` is the lower end of
# that interval, and a difference of 0 would mean that the residual connection is worth nothing.

# %%
def low_end(values, t=3.18):  # of a 95 % interval for the mean; t is for four values
    values = torch.as_tensor(values)
    return (values.mean() - t * values.std() / math.sqrt(len(values))).item()


ends = {kind: final(losses) for kind, losses in runs.items()}
course.verdict(
    "12 blocks: loss without residual minus pre-norm, lower end",
    low_end(ends["no residual"] - ends["pre-norm"]),
    above=0.1,
)
course.verdict(
    "no residual: 12 blocks minus 2, lower end", low_end(ends["no residual"] - ends["no residual, 2 blocks"]), above=0.1
)


# %% [markdown]
# That settles prediction 2: with residual connections the training loss of the twelve blocks falls, and without them it
# stays near the dotted line of a model that knows nothing. Two blocks learn without them.
#
# ### Is rank collapse the reason?
#
# It is tempting to conclude that the deep stack fails because its tokens become equal. The networks of He et al. had no
# attention, though, and failed all the same. So take the attention out: twelve layers of norm and feed-forward network,
# without residual connections. Nothing mixes the tokens, so they cannot fall together.

# %%
class OnlyFeedForward(Block):
    def forward(self, x):
        return self.feed_forward(self.feed_forward_norm(x))


blocks["only feed-forward"] = OnlyFeedForward
mixed = [variations(build("only feed-forward", 12, seed))[-1] for seed in range(4)]
course.verdict("only feed-forward: smallest variation after 12 layers", min(mixed), above=0.1)
arriving["only feed-forward"] = [first_gradient("only feed-forward", 12, seed) for seed in range(4)]
smallest = min(arriving["only feed-forward"]) / max(arriving["post-norm"])
course.verdict("only feed-forward: smallest first gradient over the largest of post-norm", smallest, above=1)

# %% tags=["nbval-ignore-output"]
runs["only feed-forward"] = [train(build("only feed-forward", 12, seed), seed) for seed in range(4)]
print([f"{loss:.2f}" for loss in final(runs["only feed-forward"])])

# %%
ends["only feed-forward"] = final(runs["only feed-forward"])
course.verdict(
    "loss of only feed-forward minus pre-norm, lower end",
    low_end(ends["only feed-forward"] - ends["pre-norm"]),
    above=0.1,
)

# %% [markdown]
# This stack keeps its tokens apart and has no small first gradient, and it ends far above pre-norm as well: three of
# its four seeds stay near the dotted line, and one comes down a little. So equal tokens are not the only thing that
# keeps a deep stack without residual connections from learning. One control is missing, and it is two lines of code:
# the same stack of feed-forward networks *with* the residual connection. Predict what it does, then train it. Why plain
# deep networks are so hard to train is not settled by anything measured here.
#
# ## What the order is worth
#
# So far the stacks with residual connections were pre-norm. Now the same with post-norm:

# %% tags=["nbval-ignore-output"]
runs["post-norm"] = [train(build("post-norm", 12, seed), seed) for seed in range(4)]
ends["post-norm"] = final(runs["post-norm"])
print("pre-norm ", [f"{loss:.2f}" for loss in ends["pre-norm"]])
print("post-norm", [f"{loss:.2f}" for loss in ends["post-norm"]])

# %%
shown = {kind: torch.tensor(runs[kind]) for kind in ("pre-norm", "post-norm")}
ax = plotting.bands(shown, smooth=10, title="12 blocks, four seeds")
ax.axhline(math.log(10), color="grey", linestyle=":")
plotting.show("Both curves fall below the dotted line of ln 10, pre-norm earlier and further than post-norm.")
course.verdict("loss of post-norm minus pre-norm, lower end", low_end(ends["post-norm"] - ends["pre-norm"]), above=0)


# %% [markdown]
# In these 80 steps and at this learning rate pre-norm is ahead. Post-norm falls at first just as fast, then comes back
# up, and learns unsteadily. The first transformers were post-norm and were trained with a
# [**warm-up**](../docs/glossary.md#w), a learning rate that rises from near 0 in the first few thousand steps: Xiong et
# al. (section 3) show that their post-norm model needs it and that pre-norm does not. Our runs are much too short to
# measure a warm-up.
#
# ### And without any norm?
#
# A third stack, `NoNorm`, keeps the residual connections and drops the norms. In such a stack the numbers can grow too
# large for float32 and turn into NaN, "not a number". Whether a run gets that far depends on its seed and even on
# rounding, so we measure what leads there: how many times larger is the stream after the last block than before the
# first, during the first four steps with a learning rate of 0.01?

# %%
@torch.no_grad()
def enlargement(model):
    x = start = model.embed(squares[:64]) + model.positions
    for block in model.blocks:
        x = block(x)
    return size(x) / size(start)


def enlargements(kind, seed):
    seen = []
    train(build(kind, 12, seed), seed, steps=4, lr=1e-2, watch=lambda model: seen.append(enlargement(model)))
    return seen


grown = {kind: torch.tensor([enlargements(kind, seed) for seed in range(4)]) for kind in ("pre-norm", "no norm")}
plotting.bands(grown, x=range(1, 5), logy=True, xlabel="steps taken", ylabel="size after 12 blocks / before")
plotting.show(
    "Without norms the stream grows by orders of magnitude within four steps; with pre-norm it grows by a small factor."
)
course.verdict(
    "without norms over with, after four steps, lower end",
    math.exp(low_end((grown["no norm"] / grown["pre-norm"])[:, -1].log())),
    above=10,
)


# %% [markdown]
# Without norms each block multiplies what the block before it has enlarged. A step that enlarges the weights of every
# block a little is therefore felt in every one of them. A norm brings the input of each branch back to size 1, so that
# the sizes of the branches add up instead of multiplying.

# %% [markdown]
# ## Today
#
# - **The residual stream** is how large models are read now: every block adds to it, and parts of it can be followed
#   from block to block ([Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html)).
# - **Pre-norm with a last norm** came with GPT-2 in 2019 and is what GPT-3 has in its 96 blocks. BERT ([Devlin et al.
#   2018](https://arxiv.org/abs/1810.04805)) still had post-norm, as the first transformer had, and was trained with
#   warm-up.
# - [**RMS norm**](../docs/glossary.md#r) ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467)) leaves out the
#   mean and the shift. Llama ([Touvron et al. 2023](https://arxiv.org/abs/2302.13971)) uses it; you can build it in
#   exercise 4.
# - [**SwiGLU**](../docs/glossary.md#s) ([Shazeer 2020](https://arxiv.org/abs/2002.05202)) is the feed-forward network
#   of Llama: two maps widen the token, and one of them, passed through a function much like GELU, multiplies the other.
#
# ## Takeaways
#
# - Attention averages, and averages of averages become equal. The residual connection keeps the tokens apart.
# - Layer norm acts on each token by itself, over its features, and so does the feed-forward network. Only attention
#   moves information between tokens.
# - Pre-norm leaves the stream untouched from end to end and needs one norm after the last block; post-norm has the
#   norms on the stream.
# - Here, twelve blocks without residual connections ended far above pre-norm, with attention or without it, although
#   their first gradient was not small.
# - Here, pre-norm learned faster than post-norm, and at a learning rate of 0.01 the stream without norms ran away
#   within four steps.
#
# ## Check yourself
#
# 1. Which part of the block lets tokens exchange information?
# 2. Why does a pre-norm stack need one more norm after its last block, and a post-norm stack none?
# 3. A 12-block model stays at a loss of ln(number of classes). What do you look at first?
#
# <details><summary>Answers</summary>
#
# 1. Only attention. Norm, feed-forward network and residual connection treat each token by itself.
# 2. The pre-norm stream is a sum that grows with every block and is never normed, so the read-out would get inputs of a
#    size that depends on the depth. A post-norm block ends with a norm.
# 3. The residual connections: silence the branches, and see whether each block returns its input. Then the learning
#    rate.
#
# </details>
#
# **To read**
#
# - [He et al. 2015](https://arxiv.org/abs/1512.03385), section 1 and figure 1: the deep network that could not even fit
#   its training data.
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
# ## Optional: RMS norm
#
# ### Exercise 4 · easy · 4 minutes
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
# ## Optional: the block as a function
#
# ### Exercise 5 · middle · 6 minutes
#
# A published model added attention to the *normed* tokens, and its author noticed only after the checkpoints were out
# ([museum of bugs](../docs/museum.md)). Write the pre-norm block once more, from memory, as a function. `x` has shape
# (L, E) and the five parts are functions: `attention` from (L, E) to (L, E), `norm_1` before it, and `norm_2` before
# the feed-forward network, whose linear maps are `up` and `down` with the exact GELU, `F.gelu` without an option,
# between them.

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
# ## Optional: initialisation
#
# ### The gradient of the last block
#
# Xiong et al. (section 3.3) derive that at initialisation the gradient of the last feed-forward network shrinks with
# the depth $N$ in pre-norm, as $1/\sqrt N$, and does not in post-norm. From 3 to 48 blocks that predicts a factor of
# 1/4 for pre-norm. The verdicts allow a factor of two. Note that at 12 blocks, the depth that we trained, the two
# gradients are about equal, so they do not explain the difference that we saw:

# %%
def last_gradient(kind, depth, seed):
    model = build(kind, depth, seed)
    F.cross_entropy(model(squares[:64]), labels[:64]).backward()
    return model.blocks[-1].feed_forward.down.weight.grad.norm().item()


last = {
    kind: torch.tensor([[last_gradient(kind, depth, seed) for depth in (3, 12, 48)] for seed in range(4)])
    for kind in ("pre-norm", "post-norm")
}
plotting.bands(last, x=(3, 12, 48), xlabel="blocks", ylabel="gradient norm", title="feed-forward of the last block")
plotting.show("The gradient of the last block falls with the number of blocks in pre-norm and does not in post-norm.")
ratio = {kind: (norms[:, -1].mean() / norms[:, 0].mean()).item() for kind, norms in last.items()}
course.verdict("pre-norm, 48 blocks over 3 (predicted: 0.25)", ratio["pre-norm"], above=0.125, below=0.5)
course.verdict("post-norm, 48 blocks over 3 (predicted: no decrease)", ratio["post-norm"], above=0.5)


# %% [markdown]
# ### Quieter branches
#
# A stack of $N$ blocks adds $2N$ branches to the stream. If they are independent and each has the same variance, the
# variances add up. In truth the branches of a fresh stack are not quite independent, because they all read the same
# stream; so measure. GPT-2 scales the last layer of each branch by $1/\sqrt{2N}$ (Radford et al. 2019, section 2.3),
# and starting them at zero makes the whole stack the identity.

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
grown = {name: [growth(factor, seed) for seed in range(4)] for name, factor in factors.items()}
plotting.seeds(grown, title="size of the stream after 24 blocks, over before", ylabel="ratio")
plotting.show(
    "As torch draws the weights the stream grows several times; scaled it hardly grows, and at zero not at all."
)

# %%
smallest, largest = min(grown["as torch draws it"]), max(grown["times 1/√(2N)"])
course.verdict("smallest plain growth over largest with 1/√(2N)", smallest / largest, above=1.5)
course.verdict("growth with zero, distance from 1", max(abs(ratio - 1) for ratio in grown["zero"]), below=1e-6)


# %% [markdown]
# ### Exercise 6 · hard · 12 minutes
#
# A branch with one gain for each feature: $x + g \odot f(\text{norm}(x))$. `QuietBranch(embed_dim, function)` gets a
# module `function` from (L, E) to (L, E), whose parameters are trained as well. It owns an `nn.LayerNorm(embed_dim)` as
# torch has it and `self.gain`, a trained parameter of shape (embed_dim,), which is $g$. The gain starts such that the
# output is exactly $x$, whatever $f$ gives.

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
# ## Optional: more to think about
#
# **1.** A colleague's layer norm uses `x.std()` with torch's default, which divides by $E - 1$. By which factor do its
# outputs differ for $E = 4$, and for $E = 512$? Would training notice?
#
# <details><summary>Answer</summary>
#
# By $\sqrt{(E - 1) / E}$: 0.866 for 4 and 0.999 for 512. The learned weight can absorb it, so training would not
# notice. Loading somebody else's weights would: the outputs are then slightly wrong everywhere, and nothing complains.
#
# </details>
#
# **2.** Does a third kind of block, `x + norm(f(x))`, pass the silence test? Which advantage of pre-norm does it keep?
#
# <details><summary>Answer</summary>
#
# It passes while the norm's bias is 0, because norm(0) = 0. The path from end to end stays untouched, as in pre-norm,
# and each branch adds a bounded amount, whatever its weights. Swin Transformer V2 uses it under the name res-post-norm
# ([Liu et al. 2021](https://arxiv.org/abs/2111.09883)).
#
# </details>
#
# **3.** With branches that start at zero, which parameters get a gradient in the very first step?
#
# <details><summary>Answer</summary>
#
# Inside the blocks only `out_proj` and `feed_forward.down`. Everything before them is multiplied by their zero weights
# in the backward pass. From the second step on, all get one but `k_proj.bias`, whose gradient always vanishes (notebook
# 03).
#
# </details>
#
# **4.** Can quieter branches replace the norm? Scale the branches of a `no norm` stack by 0.2, train it, and compare.
# [Fixup](https://arxiv.org/abs/1901.09321) (Zhang et al. 2019) carries the idea to its end.
