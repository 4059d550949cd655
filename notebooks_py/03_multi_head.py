# %% [markdown]
# # 03 Multi-head attention
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/03_multi_head.ipynb)
#
# ← [02 Scaled dot-product attention](02_scaled_dot_product.ipynb) · [the map of the course](00_welcome.ipynb) · [04 Positions](04_positions.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) **03** [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb) · taken apart [18](18_heads_that_copy.ipynb)
#
# Needs: notebook 02 · runs in about 60 s on two CPU cores · about 3 hours of study

# %% [markdown]
# *Yesterday the dog chased the cat.*
#
# To understand *chased*, you need to know **who** chased and **whom**. You looked for both at once, and you never
# confused the answers. The [head](../docs/glossary.md#h) of notebook 02 has one query for each word, and one row of
# weights. Can *chased* ask two questions with one row?
#
# In 2017 [Vaswani and colleagues](https://arxiv.org/abs/1706.03762) wanted a word to attend to several others at once.
# Their answer is still part of GPT-3 and Llama 3. You find out how far one row gets, build what they built, and train
# it on both questions.
#
# After this notebook you can
#
# - say what one row of weights can hand over and what it cannot, and check it with numbers;
# - build multi-head attention, first as a loop and then as one batch, equal to torch's;
# - find mistakes in such a layer that raise no error;
# - plan a comparison of layers, and say what it leaves open.

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
import functools
import math

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from sciformer import MultiHeadAttention, attend, causal_mask, check, course, dot_product_scores, metrics, plotting
from sciformer.teach.diagrams.heads import split_and_merge

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## Predict first
#
# Later you train layers on two questions at once. There are eight items, each with a key and a value of 8 numbers. Two
# of them are asked for, and their values are the answers. A layer has 16 features and divides them equally among
# 1, 2, 4 or 8 heads, each with its own row of weights. All four layers have the same number of parameters.
#
# 1. Which of the four answers best?
# 2. What matters more, the number of the heads or the size of each?
#
# Write both predictions down.

# %% [markdown]
# ## One head is one weighted average
#
# Suppose that the head of *chased* has already found both nouns. Let *dog* write 1 into the first
# [**channel**](../docs/glossary.md#f), another word for feature, and *cat* into the second. What does *chased* receive,
# if both nouns have equal scores, and if the subject's is higher? And if the cat chases the dog?

# %%
words = ["yesterday", "the", "dog", "chased", "the", "cat"]


def received(sentence, value, subject_score, object_score):
    scores = torch.zeros(6)
    scores[2], scores[5] = subject_score, object_score  # the subject stands at 2, the object at 5
    values = torch.tensor([value.get(word, (0.0, 0.0)) for word in sentence])  # (6, 2)
    return (scores.softmax(dim=-1) @ values).numpy().round(3)


own_channel = {"dog": (1.0, 0.0), "cat": (0.0, 1.0)}  # what each word writes into the two channels
turned = ["yesterday", "the", "cat", "chased", "the", "dog"]
for scores in ((5, 5), (5, 4)):
    for sentence in (words, turned):
        print(f"subject scored {scores[0]}, object {scores[1]}:", *sentence, received(sentence, own_channel, *scores))

# %% [markdown]
# Both nouns arrive, each in its own channel, and a later matrix could restore their size. So **one head can hand over
# both nouns** with its single row of weights. Equal scores do not tell who chased whom; with unequal scores, the subject's
# channel holds the larger number. (How a head can know the subject is left to notebook 04; here the scores are set by
# hand.)
#
# Is a third noun as easy? Let there be a cow, too, with a channel of its own:
#
# | the cow is | its channel receives | is it *who*? | is it *whom*? |
# |---|---|---|---|
# | the subject | 0.72 | 1 | 0 |
# | the object | 0.26 | 0 | 1 |
# | absent | 0 | 0 | 0 |
#
# A **linear read-out** multiplies the number received by a factor and adds a constant. For *whom* it would have to turn
# 0, 0.26 and 0.72 into 0, 1 and 0, and no straight line goes up and down again. The channels of the other nouns do not
# mend this.

# %% [markdown]
# And a language has far more nouns than a head has channels, so nouns share channels. Into a shared channel, each noun
# writes a number that stands for it: the subject $s$, the answer to *who*, and the object $o$, the answer to *whom*. If
# the subject has the share $t$ of the weight and the object the rest, the channel receives $y = t s + (1 - t) o$. More
# shared channels do not help: all receive the same mixture.
#
# Any two nouns may meet, so we draw $s$ and $o$ at random for 100,000 sentences: independent, with mean 0 and
# variance 1. The **error** of an answer is the mean squared error of the best linear read-out of $y$; always answering 0,
# knowing nothing, costs 1. Which share makes the mean of the two errors smallest?

# %%
s, o = torch.randn(2, 100_000, generator=torch.Generator().manual_seed(0)).double()  # subject and object


def best_error(y, answer):
    factor = (y @ answer) / (y @ y)  # the best one, by least squares; the best constant is 0, as all means are
    return (factor * y - answer).square().mean().item()


shares = torch.linspace(0, 1, 21).tolist()
who = [best_error(t * s + (1 - t) * o, s) for t in shares]
whom = [best_error(t * s + (1 - t) * o, o) for t in shares]
both = [(a + b) / 2 for a, b in zip(who, whom, strict=True)]

# %%
series = {"who": who, "whom": whom, "mean of both": both}
points = {name: list(zip(shares, y, strict=True)) for name, y in series.items()}
ax = plotting.curves(points, xlabel="share of the subject", ylabel="error", title="one row of weights for two answers")
ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plotting.show(
    "Three curves against the share of the subject, from zero to one: the errors of who and of whom, and their mean."
)

# %% [markdown]
# All are equally good, or bad. Whatever the share, the two errors add up to 1: this is a theorem. So where channels are
# shared and read out linearly, a head that answers one question well answers the other badly, and its mean error never
# falls below **0.5**.
# (For real nouns and nonlinear layers this is only a guide.)
#
# <details><summary>The proof</summary>
#
# Read with a factor $a$, *who* is off by $a y - s = (at - 1)\,s + a(1 - t)\,o$. Since $s$ and $o$ are independent, with
# variance 1, the mean square of this is $(at - 1)^2 + a^2 (1-t)^2$, which is smallest at $a = t / (t^2 + (1-t)^2)$. For
# *whom*, exchange $t$ and $1 - t$. The smallest errors are
#
# $$\frac{(1-t)^2}{t^2 + (1-t)^2} \quad\text{and}\quad \frac{t^2}{t^2 + (1-t)^2},$$
#
# and they add up to 1.
#
# </details>
#
# Both errors would be 0 if two averages arrived: one with all the weight on the subject, and one with all of it on the
# object. So *chased* needs two rows of weights, hence **two heads** side by side. Does training find them?

# %% [markdown]
# ## The formula and its shapes
#
# A word should attend to several others at once, but with a single head, Vaswani and colleagues wrote, "averaging
# inhibits this". They let $H$ heads work side by side, [**multi-head attention**](../docs/glossary.md#m) ([section
# 3.2.2](https://arxiv.org/abs/1706.03762)):
#
# $$\text{head}_h = \text{attention}(x W^Q_h,\; x W^K_h,\; x W^V_h), \qquad y = [\text{head}_0, \dots, \text{head}_{H-1}]\, W^O$$
#
# | symbol | what it is | shape |
# |---|---|---|
# | $x$ | the $E$ features of each word, or **token**; $E$ is the [**embedding dimension**](../docs/glossary.md#e) | (B, L, E) |
# | $W^Q_h$, $W^K_h$, $W^V_h$ | `w_q[h]`, `w_k[h]`, `w_v[h]`; $D = E/H$ is the [**head dimension**](../docs/glossary.md#h) | (E, D) |
# | $\text{head}_h$ | the output of head $h$ | (B, L, D) |
# | $W^O$ | the output projection, `w_o` (next section) | (E, E) |
#
# First, a loop over the heads. The package's `dot_product_scores(q, k)` divides by $\sqrt D$ already, and `attend` takes
# the softmax and the average.

# %%
B, L, E, H = 1, len(words), 6, 3
D = E // H
vectors = {word: torch.randn(E) for word in words}
x = torch.stack([vectors[word] for word in words])[None]  # (B, L, E)
w_q, w_k, w_v = (torch.randn(3, H, E, D) / E**0.5).unbind()  # each (H, E, D)

# %%
outputs, maps = [], []
for h in range(H):
    q, k, v = x @ w_q[h], x @ w_k[h], x @ w_v[h]  # (B, L, D) each
    output, weights = attend(dot_product_scores(q, k), v)  # (B, L, D), (B, L, L)
    outputs.append(output)
    maps.append(weights)
looped = torch.cat(outputs, dim=-1)  # (B, L, H·D) = (B, L, E)
looped.shape

# %% [markdown]
# The heads are untrained, but each has its own matrices, and so its own rows of weights. **In every head, two of the six
# rows are the same. Which, and why?**

# %%
numbered_words = [f"{n} {word}" for n, word in enumerate(["yest.", *words[1:]])]
figure = plotting.heads(torch.cat(maps), rows=numbered_words, columns=numbered_words, panel_width=3.4)
figure.axes[-1].set_ylabel("weight")  # the colour bar
plotting.show("The weights of three untrained heads: a row for each of the six words, a column for each word that it looks at.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The two rows of *the*. Both have the same vector, so they ask the same question of the same keys: a head does not know
# where a word stands. Notebook 04 begins here.
#
# </details>

# %% [markdown]
# ## All heads at once
#
# Set the small matrices side by side: one product with an $E \times E$ matrix does the work of $H$ small ones.

# %%
big_q, big_k, big_v = (torch.cat(list(w), dim=1) for w in (w_q, w_k, w_v))  # (E, E) each
torch.testing.assert_close((x @ big_q)[..., D : 2 * D], x @ w_q[1])  # head 1 is the second slice of the features
big_q.shape


# %% [markdown]
# The last axis of the result holds the heads one behind the other: the first $D$ features belong to head 0, and so
# on. Attention wants each head as if it were a sentence of its own, (B, H, L, D).
#
# ### Exercise 1 · easy · 5 minutes
#
# Split into heads. `x` is (B, L, E), and `num_heads`, H, divides E. Return (B, H, L, D) with D = E/H: head $h$ of
# token $i$ holds the features from $h \cdot D$ to $(h + 1) \cdot D$ of that token. H may be 1. The notebook goes on
# with your function.

# %%
def split_heads(x, num_heads):  # (B, L, E)
    raise NotImplementedError  # (B, H, L, D)


split_heads = check.split_heads.use(split_heads)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `x.view(B, L, H, D)`, or `x.unflatten(-1, (H, D))`, cuts the last axis and moves no number.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `transpose(1, 2)` exchanges the second and the third axis. It is needed after the cut, and only there.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def split_heads(x, num_heads):
#     B, L, E = x.shape
#     x = x.view(B, L, num_heads, E // num_heads)  # (B, L, H, D)
#     return x.transpose(1, 2)  # (B, H, L, D)
# ```
#
# </details>
#
# ### Exercise 2 · easy · 3 minutes
#
# Merge the heads again. `x` is (B, H, L, D). Return (B, L, H·D), so that `merge_heads(split_heads(x, H))` is `x`: the
# heads of a token lie side by side, head 0 first.

# %%
def merge_heads(x):  # (B, H, L, D)
    raise NotImplementedError  # (B, L, E)


merge_heads = check.merge_heads.use(merge_heads)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Undo the steps of `split_heads` in the opposite order: the last one comes first.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `flatten(-2)` joins the last two axes. Before that, the heads of a token have to stand beside each other.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def merge_heads(x):
#     x = x.transpose(1, 2)  # (B, L, H, D)
#     return x.flatten(-2)  # (B, L, H·D) = (B, L, E)
# ```
#
# </details>

# %% [markdown]
# Now all heads attend in one go, and the result is the loop's.

# %%
q, k, v = (split_heads(x @ big, H) for big in (big_q, big_k, big_v))  # (B, H, L, D)
output, weights = attend(dot_product_scores(q, k), v)  # (B, H, L, D), (B, H, L, L)
torch.testing.assert_close(merge_heads(output), looped)
torch.testing.assert_close(weights[0], torch.cat(maps))
output.shape, weights.shape

# %% [markdown]
# Last, the [**output projection**](../docs/glossary.md#o) $W^O$ mixes the heads: each head has its own $D$ rows of
# $W^O$, and the heads' contributions are **added**. Without $W^O$, a head would write into its own slice of the output only.

# %%
w_o = torch.randn(E, E) / E**0.5
per_head = output @ w_o.view(H, D, E)  # (B, H, L, D) @ (H, D, E) -> (B, H, L, E)
torch.testing.assert_close(merge_heads(output) @ w_o, per_head.sum(dim=1))
per_head.shape

# %% [markdown]
# ## Break it: a view without the transpose
#
# `x.view(B, H, L, D)` has the right shape, too, so nothing complains. Where does each feature of our sentence land? A
# brick is one feature, labelled with the number of its token.

# %%
numbered = torch.arange(L * E).view(B, L, E)  # feature e of token i is number i·E + e
right, wrong = split_heads(numbered, H), numbered.view(B, H, L, D)
wrong_merge = right.reshape(B, L, E)
split_and_merge(words, numbered[0], right[0], merge_heads(right)[0], wrong[0], wrong_merge[0])
plotting.show(
    "Coloured bricks, a row for each token and a colour for each head: the six tokens, then the three heads, then the "
    "merged table. The upper row is done right; below, the split is a view alone, and the merge of the right heads a "
    "reshape alone."
)


# %% [markdown]
# With a view alone, a head gets two tokens only, each cut into three. With a reshape alone, a row of the merged table
# mixes several tokens.
#
# Which input can influence which output under a causal mask? Sketch it first, for each mistake and for a layer that makes
# both. (`jacobian` gives the derivatives of all outputs with respect to all inputs.)

# %%
def influence(split, merge):
    def layer(x):
        q, k, v = (split(x @ big) for big in (big_q, big_k, big_v))
        return merge(attend(dot_product_scores(q, k), v, attn_mask=causal_mask(L))[0])

    slope = torch.autograd.functional.jacobian(layer, x)  # (B, L, E, B, L, E)
    return slope.abs().amax(dim=(0, 2, 3, 5)) > 1e-9  # (L, L): is any derivative of output i by input j not 0?


def no_transpose(x):
    return x.view(B, H, L, D)


def no_transpose_back(x):
    return x.reshape(B, L, E)


reaches = {
    "right": influence(lambda x: split_heads(x, H), merge_heads),
    "wrong split": influence(no_transpose, merge_heads),
    "wrong merge": influence(lambda x: split_heads(x, H), no_transpose_back),
    "both wrong": influence(no_transpose, no_transpose_back),
}

# %%
figure, axes = plt.subplots(1, 4, figsize=(12.4, 3.4), layout="constrained")
for ax, (title, reach) in zip(axes, reaches.items(), strict=True):
    plotting.heatmap(reach, title=title, xlabel="input", ylabel="", ax=ax, rows=numbered_words, columns=numbered_words)
    ahead, past = reach.triu(1).sum(), reach.tril().sum()
    print(f"{title}: {ahead} of 15 pairs reach into the future, {past} of 21 into past and present")
axes[0].set_ylabel("output")
plotting.show(
    "Four tables: right, with either mistake, with both. Rows are the six outputs, columns the six inputs, and a tick "
    "stands where the input reaches the output."
)


# %% [markdown]
# With either mistake alone, outputs see future inputs in spite of the mask, and two ticks that belong there are missing.
# With both, nothing leaks, and a test of causality passes: the wrong merge puts every feature back where the wrong split
# took it from. But every head has only two tokens, so most of the past is out of reach. Two wrongs can hide each other
# from a test that looks at one side only.

# %% [markdown]
# ## The class
#
# In the training below, the one who asks is not among the items, so keys and values come from another sequence, the
# **context**. (A translator has one, too: the sentence that it reads.)
#
# ### Exercise 3 · middle · 12 minutes
#
# Build multi-head attention as a class; it is what will be trained below. `MultiHead(embed_dim, num_heads)` holds
# four layers named `q_proj`, `k_proj`, `v_proj` and `out_proj`, each an `nn.Linear(embed_dim, embed_dim)` with its
# bias. Its `forward` takes `x`, (B, L, E), and returns two things: the output after `out_proj`, (B, L, E), and the
# weights of each head, (B, H, L, S).
#
# - Queries come from `x`. Keys and values come from `context`, (B, S, E), which has S tokens; where it is None they
#   come from `x`, too.
# - Each head scales its scores by $1/\sqrt D$, once, where D is the head dimension, E/H. (`dot_product_scores` does so.)
# - `attn_mask` is None or Boolean, (L, S), the same for all heads and examples, True where a query may attend. No row
#   of it is empty.
#
# You may use your `split_heads` and `merge_heads`, and the package's `attend` and `dot_product_scores`, as the cells
# above do.

# %%
class MultiHead(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        raise NotImplementedError

    def forward(self, x, context=None, *, attn_mask=None):  # (B, L, E), (B, S, E) or None, (L, S) or None
        raise NotImplementedError  # (B, L, E), (B, H, L, S)


MultiHead = check.MultiHead.use(MultiHead)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Four layers, nn.Linear(embed_dim, embed_dim). Project, split, attend, merge, project: five steps in `forward`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The package's `attend(dot_product_scores(q, k), v, attn_mask=attn_mask)` takes (B, H, L, D) and returns output and
# weights.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# class MultiHead(nn.Module):
#     def __init__(self, embed_dim, num_heads):
#         super().__init__()
#         self.num_heads = num_heads
#         self.q_proj = nn.Linear(embed_dim, embed_dim)
#         self.k_proj = nn.Linear(embed_dim, embed_dim)
#         self.v_proj = nn.Linear(embed_dim, embed_dim)
#         self.out_proj = nn.Linear(embed_dim, embed_dim)
#
#     def forward(self, x, context=None, *, attn_mask=None):
#         context = x if context is None else context
#         q = split_heads(self.q_proj(x), self.num_heads)  # (B, H, L, D)
#         k = split_heads(self.k_proj(context), self.num_heads)  # (B, H, S, D)
#         v = split_heads(self.v_proj(context), self.num_heads)  # (B, H, S, D)
#         output, weights = attend(dot_product_scores(q, k), v, attn_mask=attn_mask)  # (B, H, L, D), (B, H, L, S)
#         return self.out_proj(merge_heads(output)), weights  # (B, L, E)
# ```
#
# </details>

# %% [markdown]
# Is it the package's? `assert_same_module` gives both layers the same parameters and compares outputs and all
# gradients in float64: plain, causal, with a mask that hides *cat* from everyone, and with a context of its own.

# %%
package = MultiHeadAttention(E, H)
no_cat = torch.tensor([word != "cat" for word in words]).expand(L, L)
course.assert_same_module(MultiHead(E, H), package, x)
course.assert_same_module(MultiHead(E, H), package, x, attn_mask=causal_mask(L))
course.assert_same_module(MultiHead(E, H), package, x, attn_mask=no_cat)
course.assert_same_module(MultiHead(E, H), package, x, torch.randn(1, 7, E))

# %% [markdown]
# ## What heads cost
#
# A second head gives *chased* a second row of weights. At what price? At a fixed width, what grows with the number of
# heads: the parameters, the multiplications in the matrix products, the attention weights? (A multiply-add counts as two
# floating-point operations, [**FLOPs**](../docs/glossary.md#f); the counter leaves the softmax out.)

# %%
sentence = torch.randn(1, 6, 12)  # (B, L, E)
for num_heads in (1, 2, 4, 12):
    layer = MultiHeadAttention(12, num_heads)
    with FlopCounterMode(display=False) as counter:
        _, weights = layer(sentence, need_weights=True)
    parameters = sum(p.numel() for p in layer.parameters())
    print(f"{num_heads:2} heads: {parameters} parameters, {counter.get_total_flops()} FLOPs, {weights.numel()} weights")
print(f"by hand: {2 * (4 * 6 * 12**2 + 2 * 6**2 * 12)} FLOPs")


# %% [markdown]
# Each of the four projections takes $LE^2$ multiply-adds; queries times keys, and weights times values, take $L^2E$
# each, whatever $H$ is. Only the number of weights grows, and with it the work of the softmax. But each head gets
# smaller. Whether this matters, training has to show.

# %% [markdown]
# ## Train: two questions at once
#
# Here is the situation of *chased* with numbers for words. The key and the value of each of eight **items** are random
# and lie side by side in one token. (All keys are scaled to the same length, so that none scores high merely because it is
# long.) The query consists of the keys of two items, *who* and *whom*, the target of their two values.

# %%
def questions(batch, generator, half=8):
    key, value = torch.randn(2, batch, 8, half, generator=generator)  # (B, S, half) each
    key = F.normalize(key, dim=-1) * half**0.5
    # Items 0 and 1 are asked for. The layer sums over the items, so their order changes nothing.
    query, target = key[:, :2].flatten(1)[:, None], value[:, :2].flatten(1)[:, None]  # (B, 1, E)
    return tuple(part.to(device) for part in (query, torch.cat([key, value], dim=-1), target))


[tuple(part.shape) for part in questions(64, torch.Generator().manual_seed(0))]


# %% [markdown]
# The model is one attention layer, **yours**, and nothing else. Its width is the number of heads times their size.
# Where that is more than the 16 features of a token, the rest is filled with zeros.

# %%
class Finder(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.width = num_heads * head_dim
        self.attention = MultiHead(self.width, num_heads)

    def look(self, query, tokens):  # (B, 1, E), (B, S, E)
        query, tokens = (F.pad(part, (0, self.width - part.shape[-1])) for part in (query, tokens))
        return self.attention(query, tokens)  # (B, 1, width), (B, H, 1, S)

    def forward(self, query, tokens):
        return self.look(query, tokens)[0][..., : query.shape[-1]]  # (B, 1, E)


# %% [markdown]
# The loop and its optimiser, Adam, are those of notebook 02. A schedule is new: `LinearLR` lowers the learning rate to 0
# along the way, so that the last steps no longer jump about. The loss is the mean squared error; as before, knowing
# nothing costs 1.

# %%
def train(model, seed, steps=300, half=8):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=steps)
    generator, losses = torch.Generator().manual_seed(seed), []
    for _ in range(steps):
        *inputs, target = questions(64, generator, half)
        loss = F.mse_loss(model(*inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def trained(num_heads, head_dim, seed, steps=300):
    torch.manual_seed(seed)
    model = Finder(num_heads, head_dim).to(device)
    train(model, seed, steps)
    return model


# %% [markdown]
# Four layers with 16 features answer your first question. They cannot answer the second: where there are more heads, each
# is smaller, too. **Which layers would you train in addition?**
#
# <details><summary>Answer</summary>
#
# More heads that keep their 8 features: 4 × 8 and 8 × 8. A comparison can fix the width or the size of a head, not both:
# these layers are wider, with more parameters.
#
# </details>
#
# Each layer is trained from five **seeds**, starting points of the random numbers. We print the mean error and its **95 %
# interval**, as mean ± half: in 95 of 100 such experiments it contains the true mean (by Student's t, notebook 16).
# Differences are taken between runs of the same seed, which share the training data.

# %%
*unseen, target = questions(2048, torch.Generator().manual_seed(999))  # examples never trained on


def two_errors(model):
    with torch.no_grad():
        squared = (model(*unseen) - target).square().mean(dim=(0, 1))  # (16,)
    return [half.mean().item() for half in squared.split(8)]  # of who, of whom


def minus(one, other):  # seed by seed
    return [a - b for a, b in zip(errors[one], errors[other], strict=True)]


# %% tags=["nbval-ignore-output"]
shapes = [(1, 16), (2, 8), (4, 4), (8, 2), (4, 8), (8, 8)]  # the number of heads, and the features of each
models = {shape: [trained(*shape, seed) for seed in range(5)] for shape in shapes}
answers = {shape: [two_errors(model) for model in runs] for shape, runs in models.items()}
errors = {shape: [sum(two) / 2 for two in runs] for shape, runs in answers.items()}
print("layer   parameters     who   whom   mean of both       minus that of 2 × 8")
for shape in shapes:
    parameters = sum(p.numel() for p in models[shape][0].parameters())
    of_who, of_whom = torch.tensor(answers[shape]).mean(dim=0)
    mean, half = metrics.mean_and_half(errors[shape])
    extra, extra_half = metrics.mean_and_half(minus(shape, (2, 8)))
    print(f"{shape[0]} × {shape[1]:2} {parameters:11,} {of_who:7.2f} {of_whom:6.2f}   {mean:.3f} ± {half:.3f}", end="")
    print(f"  {extra:7.3f} ± {extra_half:.3f}")

# %%
names = [f"{num_heads} × {size}\nwidth {num_heads * size}" for num_heads, size in shapes]
ax = plotting.seeds(
    dict(zip(names, errors.values(), strict=True)),
    lines={"knowing nothing": 1.0},
    title="two questions",
    xlabel="heads × features of each",
    ylabel="error on new examples",
)
ax.hlines(0.5, -0.4, 0.4, color="grey", linestyle="--", linewidth=1, label="one head's floor")
ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
plotting.show(
    "Errors of five seeds for six layers, four of width 16 and two wider ones, with lines at one head's floor and at "
    "knowing nothing."
)


# %% [markdown]
# (A dot is one training; the bar is the mean with its **standard error** on either side, how far such a mean typically lies
# from the true one.)
#
# At width 16, **two heads** did best. The single head has room for two answers, but learned one: the theorem holds here,
# too. Eight heads of 2 did even worse. But eight heads of 8 answer about as well as two, so it is not the number that
# harms: **two rows are needed, and more do no harm as long as each head keeps its 8 features**.
#
# <details><summary>Why the theorem holds here</summary>
#
# The value matrix $V$ treats all items alike, whether asked for as *who* or as *whom*. With the share $t$ at *who* and the
# rest at *whom*, $t V s + (1 - t) V o = V (t s + (1 - t) o)$ arrives: all 16 channels depend on the average alone. (This
# is for one fixed $t$; a trained head's share varies from example to example.)
#
# </details>

# %%
def upper(differences):
    mean, half = metrics.mean_and_half(differences)
    return mean + half


course.verdict("one head: lowest error of 5", min(errors[1, 16]), above=0.48, below=0.55)
course.verdict("2 heads minus 1 head, upper end of the interval", upper(minus((2, 8), (1, 16))), below=0)
course.verdict("2 heads minus 4 heads of 4, upper end of the interval", upper(minus((2, 8), (4, 4))), below=0)
course.verdict("1 head minus 8 heads of 2, upper end of the interval", upper(minus((1, 16), (8, 2))), below=0)
course.verdict("8 heads of 8 minus 8 of 2, upper end of the interval", upper(minus((8, 8), (8, 2))), below=-0.05)
course.verdict("8 heads of 8 minus 2 of 8, upper end of the interval", upper(minus((8, 8), (2, 8))), below=0.05)

# %% [markdown]
# <details><summary>How the bounds were chosen</summary>
#
# The theorem's 0.5 is a mean over all examples. Our 2,048 differ a little from it, so the first bound is 0.48. The bound
# 0.05 is a tenth of the difference between one head and two. An interval covers the scatter of the seeds, not that of
# the one test set.
#
# </details>
#
# The wider layers also have more parameters, so the table alone does not prove that the *size* of the heads did it. What
# could a small head lack? It might **compare** badly, with 2 numbers to tell 8 keys apart. Or it might **carry** too
# little, although eight heads of 2 hand over 16 numbers together, as many as the answers have.

# %% [markdown]
# ## Look: who does what
#
# How much weight does each head give to the two items asked for, and to the six others together? We take the first run of
# each layer of width 16. **Predict**: will each of two heads take one question? Where will the weight of small heads go?

# %%
names, rows = [], []
for num_heads in (1, 2, 4, 8):
    with torch.no_grad():
        weights = models[num_heads, 16 // num_heads][0].look(*unseen)[1][:, :, 0].mean(dim=0).cpu()  # (H, S)
    rows.append(torch.cat([weights[:, :2], weights[:, 2:].sum(dim=-1, keepdim=True)], dim=-1))  # (H, 3)
    names += [f"of {num_heads}: head {h}" for h in range(num_heads)]
rows.append(torch.tensor([[1 / 8, 1 / 8, 6 / 8]]))  # for comparison
asked = ["who", "whom", "others"]
ax = plotting.heatmap(
    torch.cat(rows), rows=[*names, "equal weights"], columns=asked, title="who does what", xlabel="item", ylabel=""
)
for last in (0, 2, 6, 14):  # a gap between the layers
    ax.axhline(last + 0.5, color="white", linewidth=7)
plotting.show("Shares of weight on who, whom and the six other items, for one, two, four and eight heads, and for equal weights.")


# %% [markdown]
# The two heads take one question each. The single head took *who*, in all five runs, but by the luck of the start: try
# `two_errors(trained(1, 16, seed=6))`. Four heads share the questions, too, but more than a quarter of their weight goes to
# items that nobody asked for; of eight heads' weight, more than half.
#
# Do they spread their weight, or choose wrong items? We count where the largest weight stands in all five runs, and once
# after four times as many steps. A head's *own* item is *who* or *whom*, whichever it weighs more on average.

# %% tags=["nbval-ignore-output"]
def looks(model):
    with torch.no_grad():
        weights = model.look(*unseen)[1][:, :, 0].cpu()  # (N, H, S)
    own = weights.mean(dim=0)[:, :2].argmax(dim=-1)  # (H,): 0 is who, 1 is whom
    return weights.max(dim=-1).values, weights.argmax(dim=-1) == own, own  # (N, H), (N, H), (H,)


def show(name, runs):
    largest, hits, _ = zip(*map(looks, runs), strict=True)
    mean, share = torch.cat(largest).mean(), torch.cat(hits).float().mean()
    print(f"{name}: largest weight {mean:.2f} on average, on the own item in {share:.0%} of all cases")


for num_heads, size in shapes[:4]:
    show(f"{num_heads} × {size:2}", models[num_heads, size])
for num_heads, size in ((4, 4), (8, 2)):
    longer = trained(num_heads, size, 0, steps=1200)
    show(f"{num_heads} × {size:2}, 1,200 steps, error {sum(two_errors(longer)) / 2:.2f}", [longer])

# %% [markdown]
# Small heads **compare badly**, and in one longer run each, they hardly got better. Why?
#
# A head of 2 features sees the eight keys as points in a plane. Its query is a direction, and the highest score goes to the
# point that lies furthest in this direction. **Predict**: how many of eight random points win for some direction? We try
# 2,000 directions. (We keep the first numbers of each key. Random keys look alike from all sides, so any other fixed
# projection, a trained one as well, has the same chance.)

# %%
generator = torch.Generator().manual_seed(0)
for size in (1, 2, 4, 8):
    keys = F.normalize(torch.randn(200, 8, 8, generator=generator), dim=-1)[..., :size]  # 200 times eight keys
    directions = torch.randn(size, 2000, generator=generator)
    highest = (keys @ directions).argmax(dim=1)  # (200, 2000): which of the eight keys wins
    reached = F.one_hot(highest, 8).any(dim=1).float().mean()
    print(f"{size} features: {reached:.0%} of the keys have the highest score for some query")


# %% [markdown]
# On a line only the two ends can win. In a plane, a point inside the polygon of the others is never furthest. So however
# long it is trained, a head of 2 features finds the right one of eight keys in about two thirds of the cases at most: a
# [**low-rank bottleneck**](../docs/glossary.md#l) ([Bhojanapalli et al. 2020](https://arxiv.org/abs/2002.07028)). The
# trained heads stay below their limits: heads of 2 reach 46 % where 65 % is possible, heads of 4 79 % of 98 %. What keeps
# them there, we have not measured.
#
# Do small heads also carry too little? A control: set all of a head's weight on its own item by hand, and train only
# values and output. What error do you expect for eight heads of 2, four on each question? And what if the heads divide
# unevenly, five to three, or four heads of 4 three to one?

# %% tags=["nbval-ignore-output"]
class Carrier(Finder):
    def __init__(self, own):  # the item of each head: 0 is who, 1 is whom
        super().__init__(len(own), 16 // len(own))
        self.own = own

    def forward(self, query, tokens):
        v = self.attention.v_proj(tokens).unflatten(-1, (len(self.own), -1))  # (B, S, H, D)
        carried = v[:, self.own, range(len(self.own))]  # (B, H, D): each head's value of its own item
        return self.attention.out_proj(carried.flatten(1))[:, None]  # (B, 1, E)


carried = {}
for on_who, on_whom in ((4, 4), (5, 3), (3, 1)):
    torch.manual_seed(0)
    carrier = Carrier([0] * on_who + [1] * on_whom).to(device)
    train(carrier, seed=0)
    carried[on_who, on_whom] = sum(two_errors(carrier)) / 2
    print(f"{on_who} heads on who, {on_whom} on whom: error {carried[on_who, on_whom]:.3f}")

# %%
course.verdict("8 heads of 2, weights set by hand, 4 to 4: error", carried[4, 4], below=0.05)

# %% [markdown]
# Eight heads of 2 **can carry** both answers if four turn to each. Split five to three, the three hand over 6 of the 8
# numbers of *whom*: a quarter of one answer is missing, an eighth of both. Split three to one, four heads of 4 lose half of
# one answer. How did the trained heads **divide** the work? And does it explain the dot of 4 × 4 that lies far above the
# other four?

# %% tags=["nbval-ignore-output"]
for shape in ((4, 4), (8, 2)):
    for model in models[shape]:
        of_who, of_whom = two_errors(model)
        on_who = (looks(model)[2] == 0).sum()
        print(f"{on_who} of {shape[0]} heads on who: error of who {of_who:.2f}, of whom {of_whom:.2f}")

# %% [markdown]
# It is: three heads went to *who*, and the error of *whom* is the large one. Of the layers with eight heads, four divide them
# evenly, and they err about as much as the fifth. So eight heads of 2 fail at **comparing**.
#
# ## Today
#
# - The first transformer ([2017](https://arxiv.org/abs/1706.03762)) had 8 heads of 64 features, **BERT**
#   ([2018](https://arxiv.org/abs/1810.04805), the base version) 12 of 64, and **GPT-3**
#   ([2020](https://arxiv.org/abs/2005.14165)) 96 of 128: from the first to the last, the number grew twelvefold, the size
#   twofold.
# - **Llama 3** ([2024](https://arxiv.org/abs/2407.21783)), with 8 billion parameters, has 32 query heads, but only 8
#   heads of keys and values: four neighbours share one. This [**grouped-query attention**](../docs/glossary.md#g)
#   ([Ainslie et al. 2023](https://arxiv.org/abs/2305.13245); exercise 6) keeps a quarter of the keys and values that
#   a model stores while it writes (notebook 08).
# - Some heads can be named. In BERT, [Clark et al. 2019](https://arxiv.org/abs/1906.04341) found one that connects
#   a direct object with its verb, *cat* with *chased*.
# - Many can be removed. [Voita et al. 2019](https://arxiv.org/abs/1905.09418) cut 38 of the 48 heads that read the source
#   sentence in a translator, and lost 0.15 BLEU, a measure of translation quality.

# %% [markdown]
# ## Can *chased* ask two questions?
#
# Not with one row of weights, unless there are two nouns with a channel each: trained single heads had a mean error of
# 0.51. With two rows, *chased* can: two heads had 0.01.
#
# 1. At width 16, **two** heads of 8 did best.
# 2. Number or size? Between one head and two, the **number** decides: a single head of any size has one row. Beyond two,
#    the number did no harm, and a small **size** did (in layers that differ in width and parameters, too): heads of 2 cannot
#    find each of eight keys, and found fewer than they could.
#
# Whether more than two heads can *help*, a task of two questions cannot show.

# %% [markdown]
# ## Takeaways
#
# - Two answers in shared channels need two rows of weights. One head's mean error is at least 0.5, for independent values
#   with mean 0 and variance 1 that are read out linearly.
# - Split is `view`, then `transpose`; merge undoes it. A slip in one of the two breaks the mask; a slip in both keeps the
#   mask and hides most of the past.
# - At a fixed width, more heads cost no parameters and no multiplications in the matrix products, but each is smaller.
# - A head needs enough features to tell its keys apart: eight heads of 2 could carry both answers, but often looked at
#   wrong items.
# - The scale belongs to the size of a head. Scaled by the width, random queries and keys give blurrier weights.

# %% [markdown]
# ## Check yourself
#
# **1.** You double the number of heads at the same width. What happens to parameters, multiplications, and attention
# weights?
#
# <details><summary>Answer</summary>
#
# Parameters and the multiplications in the matrix products stay the same; the number of weights doubles.
#
# </details>
#
# **2.** A colleague shows that one head can deliver both *who* and *whom*: each noun writes into a channel of its
# own. What do you ask her to try?
#
# <details><summary>Answer</summary>
#
# A third noun. With two, the noun that is not the subject is the object. With three, it may also be absent, and a linear
# read-out of *whom* would have to give 1 for the smaller share and 0 for both the larger share and none. With more nouns
# than channels some must share one, and there a linear read-out can't part them either. (Exchanging her two nouns is not
# enough: if her scores for subject and object differ, the two sentences still give different outputs.)
#
# </details>
#
# **3.** A paper reports that 16 heads do worse than 4 at the same width. Does that show that many heads are bad?
#
# <details><summary>Answer</summary>
#
# No. The 16 heads are also four times smaller. A control would keep the size of a head and change the number and,
# with it, the width.
#
# </details>

# %% [markdown]
# ## Optional: equal to torch's, and a bias that never learns
#
# `nn.MultiheadAttention` packs the three [projections](../docs/glossary.md#p) into one matrix. Its masks are **the other
# way round**, True hides, and it averages the weights over the heads unless it is told not to.

# %%
mine, theirs = MultiHead(E, H).double(), nn.MultiheadAttention(E, H, batch_first=True).double()
projections = [mine.q_proj, mine.k_proj, mine.v_proj]
with torch.no_grad():
    theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))  # (3·E, E)
    theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))  # (3·E,)
_ = theirs.out_proj.load_state_dict(mine.out_proj.state_dict())

# %%
mask, x64 = causal_mask(L), x.double()
ours, our_weights = mine(x64, attn_mask=mask)
other, other_weights = theirs(x64, x64, x64, attn_mask=~mask, average_attn_weights=False)  # note the ~
torch.testing.assert_close(ours, other)
torch.testing.assert_close(our_weights, other_weights)

probe = torch.randn_like(ours)  # in a plain sum, errors of opposite sign could cancel
(ours * probe).sum().backward()
(other * probe).sum().backward()
torch.testing.assert_close(torch.cat([p.weight.grad for p in projections]), theirs.in_proj_weight.grad)
torch.testing.assert_close(mine.out_proj.weight.grad, theirs.out_proj.weight.grad)
print("outputs, weights and gradients agree")

# %% [markdown]
# The gradients are at hand, those of the biases, too. **One of these four biases never learns. Which?**

# %%
for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
    print(f"{name}.bias: largest gradient {getattr(mine, name).bias.grad.abs().max():.2f}")


# %% [markdown]
# The bias of `k_proj`, a vector $c$, adds $q_i \cdot c/\sqrt D$ to **every** score of row $i$, and the softmax divides
# out what is added to a whole row. So the bias does nothing, and its gradient is 0, apart from rounding. Notebook 09
# meets this again.

# %% [markdown]
# ## Optional: the head-size trap
#
# Each head compares $D$ features, so its scale is $1/\sqrt D$. To divide by $\sqrt E$ instead is the [**head-size
# trap**](../docs/glossary.md#h); published code has fallen into it ([vit-pytorch, issue
# 65](https://github.com/lucidrains/vit-pytorch/issues/65), since mended). What does it do to the rows of weights?
#
# The [**entropy**](../docs/glossary.md#e) $-\sum_j w_j \ln w_j$ of a row says how widely it looks, in
# [**nats**](../docs/glossary.md#n), the unit of the natural logarithm. Equal weights on 64 keys have the largest,
# $\ln 64 = 4.16$.

# %%
def spread(q, k, scale):  # the variance of the scores, and the mean entropy of a row of weights
    scores = dot_product_scores(q, k, scale=scale)
    entropy = torch.special.entr(scores.softmax(dim=-1)).sum(dim=-1)  # entr(w) is -w ln w
    return f"variance {scores.var():.2f}, entropy {entropy.mean():.2f}"


width, keys = 64, 64
for num_heads in (1, 2, 4, 8, 16):
    size = width // num_heads
    q, k = torch.randn(2, 50, num_heads, keys, size)  # entries of variance 1
    print(f"{num_heads:2} heads: right scale: {spread(q, k, size**-0.5)}; by the width: {spread(q, k, width**-0.5)}")


# %% [markdown]
# With the wrong scale, the variance of the scores is $D/E = 1/H$ instead of 1, so more heads mean blurrier heads: 16 of
# them look almost evenly at all 64 keys.

# %% [markdown]
# ### What it costs in training
#
# The projections could learn to undo the wrong scale. Is it harmless, then? We give keys and values 32 numbers instead
# of 8, and train layers of width 64 with 2 and with 8 heads. To get the wrong scale without touching your class, we
# multiply the queries by $\sqrt{D/E} = 1/\sqrt H$. How many steps does it take until the **running loss**, the mean of
# the last 10 steps, is under 0.5?

# %%
class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


def steps_needed(num_heads, factor, seed):
    torch.manual_seed(seed)
    model = Finder(num_heads, 64 // num_heads)
    model.attention.q_proj = nn.Sequential(model.attention.q_proj, Times(factor))
    losses = torch.tensor(train(model.to(device), seed, half=32))
    running = losses.unfold(0, 10, 1).mean(dim=-1)  # of the steps 1 to 10, 2 to 11, …
    reached = (running < 0.5).nonzero()
    return reached[0].item() + 10 if len(reached) else math.inf, losses[-50:].mean().item()


# %% tags=["nbval-ignore-output"]
extra = {}
for num_heads in (2, 8):
    needed = {}
    for name, factor in (("1/√head_dim", 1.0), ("1/√embed_dim", num_heads**-0.5)):
        needed[name], ends = zip(*[steps_needed(num_heads, factor, seed) for seed in range(5)], strict=True)
        print(f"{num_heads} heads, {name:12}: steps", *(f"{s:3}" for s in needed[name]), end=" ")
        print("  mean loss of the last 50 steps", *(f"{e:.2f}" for e in ends))
    extra[num_heads] = [float(a - b) for a, b in zip(needed["1/√embed_dim"], needed["1/√head_dim"], strict=True)]
    mean, half = metrics.mean_and_half(extra[num_heads])
    print(f"{num_heads} heads: extra steps with the wrong scale {mean:.0f} ± {half:.0f}")

# %%
mean, half = metrics.mean_and_half(extra[8])
course.verdict("8 heads: extra steps with the wrong scale, lower end of the interval", mean - half, above=0)


# %% [markdown]
# So here the trap costs time, about a tenth more steps with two heads and about a third more with eight. (The learning
# rate falls along the same 300 steps, which may stretch the differences.) The losses at the end overlap for eight heads,
# so we say nothing about where the two scales would end up. No scale larger than $1/\sqrt D$ was tried, so $1/\sqrt D$
# need not be the best.
#
# The eight heads of 8 see a quarter of the keys' 32 numbers, as heads of 2 do with keys of 8. Yet they end at a loss of
# 0.1 to 0.2, where eight heads of 2 had an error of 0.6 on new examples. This agrees with the count of points above: with
# 8 features, each of eight keys can win.

# %% [markdown]
# ## Optional: a bias from the activations
#
# A score may add a bias. A **constant** one, a number for each position, is trained and then the same for every
# sentence. An **in-context** one is computed from the **activations**, the numbers that the layer computes for this
# sentence: $b_j = w_h \cdot k_j$, "how worth looking at is this key, whoever asks".
#
# The package's layer takes its score as a [**recipe**](../docs/glossary.md#r), a function (or class) that it calls with
# the number of heads and their size. (`query_offset`, the position of the first query, is not used here.)

# %%
class KeyBiasScore(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_heads, 1, head_dim))  # (H, 1, D)

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        bias = (key * self.weight).sum(dim=-1)  # (B, H, S)
        return dot_product_scores(query, key) + bias[..., None, :]  # the same bias for every query


class PositionBiasScore(nn.Module):
    def __init__(self, num_heads, head_dim, *, max_length):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(num_heads, 1, max_length))  # (H, 1, S)

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        return dot_product_scores(query, key) + self.bias[..., : key.shape[-2]]


# %% [markdown]
# Both drop into the package's layer: a bias changes the weights, but never the sum of a row. (`functools.partial` sets
# `max_length` beforehand, so that two arguments are left.)

# %%
recipes = {"in-context": KeyBiasScore, "constant": functools.partial(PositionBiasScore, max_length=L)}
layers = {name: MultiHeadAttention(E, H, score=recipe) for name, recipe in recipes.items()}
for name, layer in layers.items():
    _, weights = layer(x, need_weights=True)
    print(name, tuple(weights.shape), weights.sum(dim=-1).unique().round(decimals=3).unique().tolist())

# %% [markdown]
# Now shuffle the sentence. Which of the two biases goes with its word?

# %%
order = torch.tensor([5, 3, 0, 4, 1, 2])
for name, layer in layers.items():
    _, before = layer(x, need_weights=True)
    _, after = layer(x[:, order], need_weights=True)
    follows = torch.allclose(after, before[:, :, order][..., order], atol=1e-5)
    print(f"{name}: the weights follow the words: {follows}")

# %% [markdown]
# The in-context bias goes with its word; the constant one stays at its position.
#
# Torch's **fused** attention, `F.scaled_dot_product_attention`, computes scores, softmax and average in one call. A
# key bias fits in: append it to the keys, as one extra feature, and $\sqrt D$ to the queries.

# %%
q, k, v = torch.randn(3, 2, H, L, D).unbind()
score = KeyBiasScore(H, D)
bias = (k * score.weight).sum(dim=-1, keepdim=True)  # (B, H, S, 1)
wide_q = torch.cat([q, torch.full_like(bias, math.sqrt(D))], dim=-1)  # (B, H, L, D + 1)
wide_k = torch.cat([k, bias], dim=-1)  # (B, H, S, D + 1)
fused = F.scaled_dot_product_attention(wide_q, wide_k, v, scale=D**-0.5)
torch.testing.assert_close(fused, attend(score(q, k), v)[0])

# %% [markdown]
# More simply, $q_i \cdot k_j/\sqrt{D} + w \cdot k_j = (q_i + \sqrt{D}\,w) \cdot k_j/\sqrt{D}$: a
# **linear** key bias is a shift of all queries, which the bias of `q_proj` already can learn. It is the vector $u$ of
# Transformer-XL ([Dai et al. 2019](https://arxiv.org/abs/1901.02860), section 3.3). A nonlinear bias, such as
# $w_h \cdot \tanh(k_j)$, still fits in as an extra feature, but it is no such shift.

# %%
shifted = dot_product_scores(q + math.sqrt(D) * score.weight, k)
torch.testing.assert_close(shifted, score(q, k))


# %% [markdown]
# Does the key bias help? In recorded runs, small transformers were trained with it and without, ten runs each. On
# Shakespeare, where their projections have no biases, the loss falls from 2.36 to 2.31 (95 % interval of the gain:
# 0.04 to 0.06). On digits the gain is below the one percentage point of accuracy that this course calls a difference that
# matters ([all claims, measured](../docs/measured.md)). There `q_proj` has a bias; whether that is why, was not tested.
#
# Why a recipe, and not a finished score? Two layers that are handed one score would train the same parameters. A recipe is
# called once in each layer, and makes new ones.

# %% [markdown]
# ## More exercises
#
# ### Exercise 4 · easy · 5 minutes
#
# Like torch's layer, most GPTs make queries, keys and values with one matrix. `packed` is (B, L, 3·E), and its last
# axis holds $E$ features for the queries, then $E$ for the keys, then $E$ for the values. Split all three into
# `num_heads` heads (this number, $H$, divides $E$), and return them in this order, (B, H, L, D) each with D = E/H.

# %%
def split_packed(packed, num_heads):  # (B, L, 3·E)
    raise NotImplementedError  # three of (B, H, L, D): queries, keys, values


check.split_packed(split_packed)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A view (or `unflatten`) may cut an axis; only `transpose` and `permute` may move one. Cut first.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Cut the last axis into (3, H, D): whose, which head, which number. Then name the five axes and put them in order.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def split_packed(packed, num_heads):
#     q, k, v = packed.unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)  # (3, B, H, L, D)
#     return q, k, v
# ```
#
# </details>
#
# ### Exercise 5 · middle · 8 minutes
#
# Write a recipe for a score: a layer calls it with `num_heads` and `head_dim`, and gets a module that turns queries and
# keys into scores. Each head learns how sharply it looks: $q_i \cdot k_j / \sqrt{D}$ is divided by the head's own
# temperature, $e^{t_h}$. The $t_h$ are trained, together in one parameter named `log_temperature`, one for each head, in
# whatever shape serves you, and start where they change nothing. Return the scores, (B, H, L, S), without a softmax.
# `attn_mask`, and `query_offset`, the position of the first query, are handed to every score; this one ignores both.

# %%
class TemperedScore(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        raise NotImplementedError

    def forward(self, query, key, *, attn_mask=None, query_offset=0):  # (B, H, L, D), (B, H, S, D)
        raise NotImplementedError  # (B, H, L, S)


check.TemperedScore(TemperedScore)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `KeyBiasScore` above has all the parts: a number that an optimiser finds, of a shape that meets the heads.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Broadcasting lines shapes up from the right. Which shape puts $H$ numbers over the second axis of (B, H, L, S)?
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# class TemperedScore(nn.Module):
#     def __init__(self, num_heads, head_dim):
#         super().__init__()
#         self.log_temperature = nn.Parameter(torch.zeros(num_heads, 1, 1))  # (H, 1, 1)
#
#     def forward(self, query, key, *, attn_mask=None, query_offset=0):
#         scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # (B, H, L, S)
#         return scores / self.log_temperature.exp()
# ```
#
# </details>
#
# ### Exercise 6 · hard · 15 minutes
#
# Build grouped-query attention, as in Llama: there are fewer key heads, $G$, than query heads, $H$, and the first
# $H/G$ query heads share the first key and value head, the next $H/G$ the second, and so on. `query` is (B, L, H·D),
# `key` and `value` are (B, S, G·D), all three projected already; `num_heads` is H, a head has D features, and G
# follows from the shapes. The scores are scaled by $1/\sqrt D$; there is no mask. Return the layer's output, (B, L,
# E) with E = H·D: the merged heads, multiplied as `heads @ w_o` by `w_o`, (E, E), which is not transposed as the
# weight of an `nn.Linear` would be.

# %%
def grouped_attention(query, key, value, w_o, num_heads):  # (B, L, E = H·D), (B, S, G·D), (B, S, G·D), (E, E)
    raise NotImplementedError  # (B, L, E)


check.grouped_attention(grouped_attention)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Queries and keys meet in a dot product, so their heads have the same size. Which of the inputs tells it, and how
# does $G$ follow?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Six query heads and two key heads: they need keys 0, 0, 0, 1, 1, 1. `repeat` and `repeat_interleave` differ; try
# both on `torch.arange(2)`.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def grouped_attention(query, key, value, w_o, num_heads):
#     D = query.shape[-1] // num_heads
#     q, k, v = (x.unflatten(-1, (-1, D)).transpose(1, 2) for x in (query, key, value))  # (B, H, L, D), (B, G, S, D)
#     k, v = (x.repeat_interleave(num_heads // x.shape[1], dim=1) for x in (k, v))  # (B, H, S, D)
#     weights = (q @ k.transpose(-2, -1) / math.sqrt(D)).softmax(dim=-1)  # (B, H, L, S)
#     return (weights @ v).transpose(1, 2).flatten(-2) @ w_o  # (B, L, E)
# ```
#
# </details>
#
# ### Exercise 7 · hard · 15 minutes
#
# Break our heads: write the *test* of exercise 6. `attention(query, key, value, w_o, num_heads)` is somebody's version of
# it, with the same shapes, the same order of the shared heads and the same scale, and without a mask. Raise an
# AssertionError (`assert …`, or `torch.testing.assert_close(got, expected)`) where the version is wrong. Your test has to
# accept every right version and reject each of 27 faulty ones; you are told which survive. (If a faulty version stops with
# an error of its own, it counts as rejected.) Right versions round differently: take inputs from `torch.randn`, and
# compare with a tolerance.

# %%
def test_heads(attention):  # a version to be tested
    raise NotImplementedError  # AssertionError, or nothing


check.test_heads(test_heads)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A loop over the heads is slow and hard to get wrong. Compare with it: it takes slices of the features, and no `view`
# or `transpose`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# With one head, with one key head or with heads of one feature, some mistakes cannot be seen. Let B, L, S, H, G and D
# all differ, and D from H/G, too.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def test_heads(attention):
#     B, L, S, H, G, D = 8, 5, 7, 6, 2, 4
#     query, key, value = torch.randn(B, L, H * D), torch.randn(B, S, G * D), torch.randn(B, S, G * D)
#     w_o = torch.randn(H * D, H * D)
#     heads = []
#     for h in range(H):
#         mine, shared = slice(h * D, (h + 1) * D), slice(h // (H // G) * D, (h // (H // G) + 1) * D)
#         scores = query[..., mine] @ key[..., shared].transpose(-2, -1) / math.sqrt(D)  # (B, L, S)
#         heads.append(scores.softmax(dim=-1) @ value[..., shared])  # (B, L, D)
#     torch.testing.assert_close(attention(query, key, value, w_o, H), torch.cat(heads, dim=-1) @ w_o)
# ```
#
# </details>

# %% [markdown]
# ### Questions to think about
#
# **Question** (easy, 3 minutes). With $H = 1$, is the output projection still worth having?
#
# <details><summary>Answer</summary>
#
# It adds nothing that the values could not do: with a row of weights $w$, $w (x W^V) W^O = w\, x\, (W^V W^O)$, so one
# matrix $W^V W^O$ would serve. With several heads, each $W^V_h W^O_h$ meets a row of weights of its own, so they
# cannot be folded into one matrix.
#
# </details>
#
# **Question** (hard, 10 minutes). The task asks three questions instead of two. What is one head's floor, and what is two
# heads'? Change `questions`, draw `unseen, target` anew and measure. (Query and target then have 24 features, so the
# heads need $24/H$ features each; `Finder` fills the tokens up.)
#
# <details><summary>Answer</summary>
#
# One average serves one of three independent answers, so the floor is 2/3; two heads give at most two averages, hence
# 1/3. In general it is $1 - H/n$ for $H \le n$ heads and $n$ questions. Reaching it also takes heads wide enough to
# carry a whole value. In `questions`, replace both `[:, :2]` by `[:, :3]`, and measure the mean over all features.
#
# </details>

# %% [markdown]
# ## To read, and what comes next
#
# - [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), section 3.2.2: the formula and the sentence on averaging;
#   table 3, rows (A): heads at a fixed width.
# - [Bhojanapalli et al. 2020](https://arxiv.org/abs/2002.07028): look for the comparison at a fixed head size.
# - [Clark et al. 2019](https://arxiv.org/abs/1906.04341), section 4: what single heads of BERT find, with pictures.
#
# *chased* can now ask two questions at the same time. But nothing in a head says where a word stands. How, then, should it
# know that *dog bites man* is not *man bites dog*? Notebook 04 gives the words an order.
