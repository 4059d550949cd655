# %% [markdown]
# # 01 Weighted sums
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/01_weighted_sums.ipynb)
#
# ← [00 Welcome](00_welcome.ipynb) · [the map of the course](00_welcome.ipynb) · [02 Scaled dot-product attention](02_scaled_dot_product.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) **01** [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb) · taken apart [18](18_heads_that_copy.ipynb)
#
# Needs: notebook 00 · runs in about 20 s on two CPU cores · about 2½ hours of study

# %% [markdown]
# ## How can a word's meaning depend on its neighbours?
#
# > *He sat on the bank of the river. She took the money to the bank.*
#
# You read *bank* twice and had two pictures in your mind. In a table with one vector for each word, *bank* is *bank*. Somehow the other
# words of the sentence have to change it.
#
# The tool for this is old. In 1964 [Nadaraya](https://doi.org/10.1137/1109020) and, in the same year,
# [Watson](https://www.jstor.org/stable/25049340) estimated the unknown value at a point as an average of known values, in which
# those measured near that point weigh more. In 2014 [Bahdanau, Cho and Bengio](https://arxiv.org/abs/1409.0473) let a translator
# form such an average over the words of a sentence. The weights came from a small neural network that read the words and whose
# **parameters**, the numbers inside it, had been learned from examples. They called this *attention*. This notebook shows how small
# the step is from an average over near points to the simplest attention, which has no parameters and learns nothing.
#
# After it you can
#
# - see the mean, a filter that smooths a signal, an old method of statistics, and attention, all four as one thing: a weighted sum;
# - write attention without parameters, in loops and in three lines;
# - say which of its weights sum to 1, and why its outputs cannot leave a certain region;
# - tell what attention costs as the text grows.

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
import time

import ipywidgets
import matplotlib.pyplot as plt
import torch
from torch.utils.flop_counter import FlopCounterMode

import sciformer
from sciformer import check, course, plotting
from sciformer.teach import explore
from sciformer.teach.diagrams.averages import weighted_average
from sciformer.teach.diagrams.course_map import course_map

_ = torch.manual_seed(0)

# %%
course_map(here=1, small=True)  # a colour for each part that is listed under the title; white: "taken apart"
plotting.show("The map of the course, small; notebook 01 is marked.")

# %% [markdown]
# ## Six words in the plane
#
# This *toy sentence* goes with us through the course. Each word is a [**token**](../docs/glossary.md#t) with two numbers, its
# [**features**](../docs/glossary.md#f). They are made up, so that you can check every sum below by hand.

# %%
tokens = ["the", "cat", "sat", "on", "the", "mat"]
table = {"the": [1, 0], "cat": [0, 2], "sat": [-1, 1], "on": [1, -1], "mat": [1, 3]}
vectors = [table[token] for token in tokens]  # plain Python: 6 lists of 2 numbers
x = torch.tensor(vectors, dtype=torch.float64)  # (L, E) = (6, 2): 6 tokens, 2 features

# %%
plotting.plane(x, tokens, title="six words, five points")
plotting.show("Five points in the plane, since both 'the' coincide; 'mat' is the farthest from the origin, 'cat' is next.")

# %% [markdown]
# We are going to replace every word by a weighted sum of all six, and have to choose the weights.

# %% [markdown]
# ## All the same: the mean
#
# The simplest weighted sum of $L$ words gives every word the same weight, $1/L$. We write the weights as a matrix: row $i$ holds those
# that mix the words into output $i$.

# %%
uniform = torch.full((6, 6), 1 / 6, dtype=torch.float64)  # (L, L)
torch.testing.assert_close(uniform @ x, x.mean(dim=0).expand(6, 2))  # (L, L) @ (L, E) = (L, E)
(uniform @ x).round(decimals=3)

# %% [markdown]
# Every word became the same vector, the mean, and nothing tells the words apart any more. The weights have to differ from word to word. What
# could they depend on?

# %% [markdown]
# ## Weights from positions
#
# A first idea: neighbours count more. To see what that does, take a signal that jumps once and carries some noise. Each of its 80 samples
# is a token with a single feature.

# %%
position = torch.arange(80)  # (L,)
truth = torch.where(position < 40, -1.0, 1.0)  # (L,)
signal = truth + 0.25 * torch.randn(80, generator=torch.Generator().manual_seed(0))  # (L,)


# %% [markdown]
# A [**kernel**](../docs/glossary.md#k) is a function that says how strongly two tokens are related; here it looks only at how far apart
# their positions are. Its values for all pairs form a matrix, and dividing each row by its sum turns it into the weights of an average.
# The *box* gives the same weight to every neighbour up to 4 positions away, and none to the others; the weights of the *Gaussian* fade
# out with the distance.

# %%
def normalised(kernel):
    return kernel / kernel.sum(dim=-1, keepdim=True)  # each row now sums to 1


distance = position[:, None] - position  # (L, L)
box = normalised((distance.abs() <= 4).float())  # (L, L)
gauss = normalised((-(distance**2) / (2 * 3**2)).exp())  # (L, L), its width is 3

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained")
plotting.heatmap(box, title="box: at most 9 equal weights in a row", xlabel="position j", ylabel="position i", ax=axes[0])
plotting.heatmap(gauss, title="Gaussian: the weights fade out", xlabel="position j", ylabel="position i", ax=axes[1])
plotting.show("Two bands along the diagonal: the box with sharp edges, the Gaussian fading out on both sides.")

# %% [markdown]
# Both are a band along the diagonal, whatever the signal. The corners are brighter, because at the ends fewer neighbours share the
# weight. **Predict**: what will these weights do to the noise, and what to the jump?

# %%
smoothed = {"box": box @ signal, "Gaussian": gauss @ signal}  # (L, L) @ (L,) = (L,)
plotting.dots_and_curves(position, signal, smoothed, truth=truth, title="two kernels of positions")
plotting.show("Noisy samples around minus one, then around one; the curves of the two kernels climb slowly where the truth jumps.")

# %% [markdown]
# Away from the jump both curves are closer to the dashed line than most samples are. Around the jump each output averages samples from
# both sides, and the edge is smeared.
#
# The Gaussian is a [**softmax**](../docs/glossary.md#s) in disguise: take $e$ to the power of a [**score**](../docs/glossary.md#s), then divide by the row's sum.
# The score here is minus the squared distance, divided by twice the square of the width.

# %%
score = -(distance**2) / (2 * 3**2)  # (L, L)
torch.testing.assert_close(score.softmax(dim=-1), gauss)

# %% [markdown]
# ## Nadaraya and Watson, 1964
#
# So far there was one output for each sample. With a kernel $K$ we can estimate the value at any point $q$, also between the samples:
#
# $$\hat f(q) = \sum_j \frac{K(q - k_j)}{\sum_m K(q - k_m)}\, v_j$$
#
# Here $q$ is the **query**, the point at which we ask; the **keys** $k_j$ are the points at which something was measured, and the
# **values** $v_j$ are what was measured there. These are the words of attention, and the formula is called
# [**Nadaraya–Watson regression**](../docs/glossary.md#n). To try it out, we measure a sine at 40 random points, with some noise, and
# take the Gaussian as the kernel. In the next cells $L$ is the number of queries, 200, and $S$ that of keys, 40. In the rest of the
# notebook every token is both a query and a key, and we write $L$ for both numbers.
#
# **Predict.** We try three widths: 0.005, 0.05 and 0.3, where all keys lie between 0 and 1. What will each of the three curves do?

# %%
keys = torch.rand(40, generator=torch.Generator().manual_seed(1))  # (S,) where we measured
values = (2 * math.pi * keys).sin() + 0.2 * torch.randn(40, generator=torch.Generator().manual_seed(2))  # (S,)
queries = torch.linspace(0, 1, 200)  # (L,) where we ask


def nadaraya_watson(queries, keys, values, width):
    score = -((queries[:, None] - keys) ** 2) / (2 * width**2)  # (L, S)
    return score.softmax(dim=-1) @ values  # (L, S) @ (S,) = (L,)


# %%
widths = {f"width {width}": nadaraya_watson(queries, keys, values, width) for width in (0.005, 0.05, 0.3)}
truth_at_queries = (2 * math.pi * queries).sin()
title = "one kernel, three widths"
plotting.dots_and_curves(keys, values, widths, at=queries, truth=truth_at_queries, xlabel="query", title=title)
plotting.show("Forty noisy samples of a sine, the sine itself as a dashed line, and three curves, one for each width.")

# %% [markdown]
# The narrow kernel leaps from sample to sample and follows their noise. The wide one flattens the sine. The middle one smooths the noise
# and keeps the two bends. It is farthest from the dashed line at the right end, where the samples lie on one side only, and near 0.1, since
# nothing was measured between 0.05 and 0.19. Between 0.3 and 0.45 it runs a little below the line, as most of the samples there do.

# %% [markdown]
# ## Weights from content
#
# Back to the signal with the jump. Positions know nothing of the jump, but samples on the same side are alike. So let us compare the
# samples themselves, their **content**, instead of their positions.
#
# **Predict.** The two kernels of positions were bands. Which pattern will the matrix of this kernel have?

# %%
content = normalised((-((signal[:, None] - signal) ** 2) / (2 * 0.4**2)).exp())  # (L, L)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", width_ratios=(2, 3))
plotting.heatmap(content, title="the kernel of content", xlabel="position j", ylabel="position i", ax=axes[0])
smoothed = {"Gaussian of positions": gauss @ signal, "kernel of content": content @ signal}
plotting.dots_and_curves(position, signal, smoothed, truth=truth, title="positions and content", ax=axes[1])
plotting.show("Left, the kernel of content: two blocks on the diagonal. Right, the samples with the truth and the curves of both kernels.")


# %% [markdown]
# Two blocks have taken the place of the band. (The bright dots belong to outliers, whose weight goes to the few samples like them.)
# Nobody told the kernel where the jump is; we only chose its width. But this is one signal, and its noise is small beside the jump. So we
# repeat the comparison with 20 signals that differ in their noise, then with noise four times as large, and add a kernel of content four
# times as wide.
#
# The table shows the mean absolute error over the 8 positions around the jump, and over the 60 farthest from it; then the share of the
# weight that comes from the wrong side of the jump, averaged over all 80 outputs, most of them far from it. In brackets stand the smallest
# and the largest of the 20 signals. The row *samples* is the noise before any averaging.

# %%
def compare(kernel, noise):
    rows = []
    for seed in range(20):
        noisy = truth + noise * torch.randn(len(truth), generator=torch.Generator().manual_seed(seed))  # (L,)
        weights = kernel(noisy)  # (L, L)
        error = (weights @ noisy - truth).abs()  # (L,)
        away = torch.cat([error[:30], error[50:]])
        wrong_side = (weights * (truth[:, None] != truth)).sum(dim=-1)  # (L,)
        rows.append(torch.stack([error[36:44].mean(), away.mean(), wrong_side.mean()]))
    return torch.stack(rows).T  # (3, 20)


def content_kernel(width):
    return lambda signal: normalised((-((signal[:, None] - signal) ** 2) / (2 * width**2)).exp())  # (L, L)


# %%
kernels = {"samples": lambda signal: torch.eye(80), "positions": lambda signal: gauss}
kernels |= {f"content {width}": content_kernel(width) for width in (0.4, 1.6)}
for noise in (0.25, 1.0):
    print(f"noise {noise:4}   around the jump       away from it          from the wrong side")
    for name, kernel in kernels.items():
        print(f"{name:11}", *(f" {row.mean():.2f} ({row.min():.2f} to {row.max():.2f}) " for row in compare(kernel, noise)))

# %% [markdown]
# With little noise, the kernels of positions and of content with width 0.4 remove most of it away from the jump. Around the jump the kernel
# of content still does, and that of positions does worse in each of the 20 signals: its smallest error, 0.48, is far above the other's
# largest, 0.10. The wide kernel of content mixes the two sides.
#
# With much noise, both kernels of content err more than positions away from the jump, in each signal; around the jump the ranges
# overlap. The narrow one averages samples of similar value, from whichever side. So an output stays near its own sample, and the errors
# are close to those of the samples. The wide one takes 0.37 of its weight from the wrong side, on average. Other widths were not tried.
#
# The bilateral filter of images multiplies the two kernels ([Tomasi and Manduchi 1998](https://doi.org/10.1109/ICCV.1998.710815)), and
# notebook 07 does the same to attention. From here on we keep content alone, and go back to words.

# %% [markdown]
# ## What we are about to build
#
# The kernel of content compared samples by their squared distance. Words are vectors, and for two vectors $x$ and $z$
#
# $$|x - z|^2 = |x|^2 + |z|^2 - 2\, x \cdot z ,$$
#
# where the [**dot product**](../docs/glossary.md#d) $x \cdot z$ is the sum of the products of their features. Among vectors $z$ of equal
# length, the one nearest to $x$ is therefore the one with the largest dot product. Attention takes the dot product alone, also where the
# lengths differ.
#
# One word asks. Its dot products with the six words are six scores, the softmax turns them into six weights, and the new word is the
# weighted sum of all words. For the first word, *the*:

# %%
scores_of_the = x @ x[0]  # (L, E) @ (E,) = (L,)
weights_of_the = scores_of_the.softmax(dim=0)  # (L,)
weighted_average(tokens, x, 0, scores_of_the, weights_of_the, weights_of_the @ x)
plotting.show("Data flow from left to right: six vectors, six scores, six weights, and one new vector for the word 'the'.")

# %% [markdown]
# ## Attention without parameters, by hand
#
# Check the diagram. The scores of *the* = (1, 0):

# %%
scores = [sum(vectors[0][d] * vectors[j][d] for d in range(2)) for j in range(6)]
scores

# %% [markdown]
# Exponentiate, so that every weight is positive; divide by the sum, so that they add up to 1. The new *the* is then the weighted sum of
# the old words, one feature at a time.

# %%
exponentials = [math.exp(s) for s in scores]
row = [e / sum(exponentials) for e in exponentials]
new = [sum(row[j] * vectors[j][d] for j in range(6)) for d in range(2)]
print("weights", [round(w, 3) for w in row])
print("output ", [round(value, 3) for value in new])


# %% [markdown]
# ## The whole of it, in loops
#
# To compute all new words, we write three loops: over the word that asks ($i$), the query; over those that answer ($j$), the keys; and
# over features ($d$). Every word is also a value, which is *handed on*: it enters the average. A query *looks at* the keys to which it
# gives weight.
#
# **Predict.** To which word will *cat* give its largest weight: to itself, or to another?

# %%
def attention_in_loops(x):
    L, E = len(x), len(x[0])
    output, weights = [], []
    for i in range(L):
        scores = [sum(x[i][d] * x[j][d] for d in range(E)) for j in range(L)]
        exponentials = [math.exp(s) for s in scores]
        row = [e / sum(exponentials) for e in exponentials]  # sums to 1 over j
        output.append([sum(row[j] * x[j][d] for j in range(L)) for d in range(E)])
        weights.append(row)
    return torch.tensor(output, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)


# %%
output, weights = attention_in_loops(vectors)
plotting.heatmap(weights, rows=tokens, columns=tokens, title="attention weights", vmax=1)
plotting.show("Six by six weights: a row for each word as the query, and a column for each word as the key.")
print(f"cat to cat {weights[1, 1]:.3f}, cat to mat {weights[1, 5]:.3f}")

# %% [markdown]
# *Cat* looks most at *mat*, not at itself. In the plane above the two point in similar directions, and *mat* is longer. By hand, *cat*
# with *mat* gives 0 · 1 + 2 · 3 = 6, and *cat* with itself 0 · 0 + 2 · 2 = 4.
#
# Back to the plane. The shaded region is the [**convex hull**](../docs/glossary.md#c) of the old words: the smallest region without dents
# that contains them all. Does any of the new words leave it?

# %%
plotting.plane(x, tokens, moved=output, hull=True, title="old words, new words, and the hull")
plotting.show("Arrows lead from each word to its new place; all new places lie inside the shaded convex hull of the old ones.")

# %% [markdown]
# None left the shaded region, and none can. (*Sat* moved almost onto *cat*; *mat* hardly moved.) Take two words with the weights
# 1/4 and 3/4:
#
# $$\tfrac14 x_1 + \tfrac34 x_2 = x_1 + \tfrac34\, (x_2 - x_1)$$
#
# Start at $x_1$ and go three quarters of the way to $x_2$: you are on the segment between the two. If a third word takes a fraction of
# the weight, go that fraction of the way from there to $x_3$, and so on. Every step stays on a segment between two points of the hull,
# and a region without dents contains every such segment. The argument needs both properties of the weights, positive and with the sum 1:
# a negative one leads away from its word, and another sum leads off the segment, so that the output may leave the hull.

# %% [markdown]
# ## The formula
#
# $$w'_{ij} = x_i \cdot x_j, \qquad w_{ij} = \frac{e^{w'_{ij}}}{\sum_{m=1}^{L} e^{w'_{im}}}, \qquad
# y_i = \sum_{j=1}^{L} w_{ij}\, x_j$$
#
# The $w'_{ij}$ are the scores and the $w_{ij}$ the [**attention weights**](../docs/glossary.md#a). The table has their names in the code.
# `scores` holds only the row of *the* so far; the next section makes it the full matrix.

# %% [markdown]
# | symbol | variable | shape | here |
# |---|---|---|---|
# | $x_i$ | `x[i]` | (E,) | (2,) |
# | $X$ | `x` | (L, E) | (6, 2) |
# | $w'_{ij}$ | `scores[i, j]` | (L, L) | (6, 6) |
# | $w_{ij}$ | `weights[i, j]` | (L, L) | (6, 6) |
# | $y_i$ | `output[i]` | (E,) | (2,) |
# | $Y$ | `output` | (L, E) | (6, 2) |

# %% [markdown]
# ## One index at a time
#
# Loops in Python are slow, so we remove one after the other. First $d$: a sum of products is a dot
# product, and between two vectors `@` computes it. The first line below still has $i$ and $j$. Then $j$: all dot products with $x_i$ at
# once are a matrix times a vector, and the second line has only $i$.

# %%
scores = torch.stack([torch.stack([x[i] @ x[j] for j in range(6)]) for i in range(6)])  # (L, L)
without_j = torch.stack([x @ x[i] for i in range(6)])  # (L, E) @ (E,) = (L,), six times
torch.testing.assert_close(without_j, scores)


# %% [markdown]
# The last loop, over $i$, is yours. What remains is three lines.
#
# ### Exercise 1 · middle · 8 minutes
#
# Write attention without parameters and without a loop. `x` has a row for each of the L words, where L may be 1, and a column for each of
# the E features. The scores are the dot products, not divided by anything. Row $i$ of the weights belongs to the word that looks, column
# $j$ to the word that it looks at, and every row sums to 1. Return two tensors in this order: the new words (L, E) and the weights (L, L).

# %%
def plain_attention(x):  # (L, E)
    raise NotImplementedError  # (L, E) the new words, (L, L) the weights


plain_attention = check.plain_attention.use(plain_attention)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Entry $(i, j)$ of a product of two matrices is a row of the first times a column of the second. Which matrix has the words as its
# columns?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `x @ x.T` has all scores. `.softmax(dim=…)` makes the entries along that axis sum to 1. The weights then multiply the words
# from the left.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def plain_attention(x):
#     scores = x @ x.T  # (L, E) @ (E, L) = (L, L)
#     weights = scores.softmax(dim=-1)  # over j: each row sums to 1
#     return weights @ x, weights  # (L, L) @ (L, E) = (L, E)
# ```
#
# </details>

# %% [markdown]
# From here on the notebook runs on this function, yours or the solution. It has to agree with the loops, and with what the package
# calls `naive_attention`:

# %%
for mine, loops, package in zip(plain_attention(x), attention_in_loops(vectors), sciformer.naive_attention(x), strict=True):
    torch.testing.assert_close(mine, loops)
    torch.testing.assert_close(mine, package)
print("three ways, one result")

# %% [markdown]
# ## Two banks
#
# Now the two sentences from the beginning. The vectors are made up again: the first feature says how much a word has to do with water,
# the second how much with money. *Bank* has a little of both. Words that have to do with neither are (0, 0) here, even *the*, *sat* and
# *on*, which had other vectors above.
#
# **Predict.** Which number of *bank* will be the larger one in each sentence? And would the plain mean of all words do as well?

# %%
meaning = {"bank": [1.0, 1.0], "river": [3.0, 0.0], "money": [0.0, 3.0]}  # every other word: (0, 0)
for sentence in ("he sat on the bank of the river", "she took the money to the bank"):
    words = sentence.split()
    old_words = torch.tensor([meaning.get(word, [0.0, 0.0]) for word in words])  # (L, 2)
    new_words, weights_of_all = plain_attention(old_words)
    bank = words.index("bank")
    clue = weights_of_all[bank].argmax().item()
    print(f"{sentence}: bank looks most at {words[clue]}, weight {weights_of_all[bank, clue]:.2f}")
    for name, vector in (("mean of all", old_words.mean(dim=0)), ("bank becomes", new_words[bank])):
        print(f"    {name:12}  water {vector[0]:.2f}, money {vector[1]:.2f}")

# %% [markdown]
# The same vector, and yet *bank* became mostly water beside *river*, and mostly money beside *money*: its neighbours changed its vector,
# through the average. The plain mean leans the same way, but more weakly, and is the same for every word. Attention lets *bank* choose:
# it gives *river* a weight of 0.60, and the mean gives it 1/8. In a trained model the vectors are learned, like the parameters in
# notebook 00, and have many more features.
#
# So the simplest attention can answer the question of this notebook, at least with made-up vectors and one clue in a sentence. Four more
# questions: how do you notice a mistake in it, how sharply does it choose, does it see the order of the words, and what does it cost?

# %% [markdown]
# ## Break it: the sum over the wrong index
#
# Two slips are easy to make, and neither raises an error. In a formula, the sum in the denominator may end at $E$, the number of
# features, instead of $L$, the number of words. In code, `softmax(dim=0)` runs down the columns. **Predict**: which row sums does each
# slip break?

# %%
exponentials = scores.exp()  # (L, L)
candidates = {
    "right: sum over all j": scores.softmax(dim=-1),
    "slip: sum stops at E": exponentials / exponentials[:, :2].sum(dim=-1, keepdim=True),
    "slip: softmax(dim=0)": scores.softmax(dim=0),
}
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for ax, (title, w) in zip(axes, candidates.items(), strict=True):
    sums = [f"{token}  Σ={s:.2f}" for token, s in zip(tokens, w.sum(dim=-1), strict=True)]
    plotting.heatmap(w, rows=sums, columns=tokens, title=title, vmax=1, colorbar=False, ylabel="", ax=ax)
plotting.show("Three matrices of weights with the sums of their rows: only the left one has 1.00 in every row.")


# %% [markdown]
# Only on the left do all rows sum to 1. In the middle, the denominator counts only the first two words, and the row of *mat* sums to more
# than 50; on the right, that of *sat* sums to less than half. (The colours end at 1, so that 54.23 looks like 0.98: read the numbers.)
# Print row sums whenever you write a softmax.
#
# **Question** (easy, 2 minutes). Reflect the left matrix at its diagonal, and you have the right one. Why?
#
# <details><summary>Answer</summary>
#
# The scores are symmetric: $x_i \cdot x_j = x_j \cdot x_i$. So column $j$ of the scores holds the same numbers as row $j$, and the
# softmax makes the same weights of them.
#
# </details>

# %% [markdown]
# ## How sharp? The temperature
#
# Divide the scores by a [**temperature**](../docs/glossary.md#t) $T$ before the softmax, and look at the row of *cat*. Move the slider:
# where does *cat* copy a single word, and where does it take the mean of all?

# %%
def row_of_cat(temperature):
    row = (scores[1] / temperature).softmax(dim=-1)  # (L,)
    title = f"cat looks at …   (orange: itself)   T = {temperature:.3g}"
    return plotting.bars(row, tokens, top=1.1, highlight=1, title=title)


slider = ipywidgets.FloatLogSlider(value=1, min=-1, max=2, step=0.1, description="temperature")
explore(row_of_cat, alt="Bars: the weights of cat at temperature 1, most of it on mat.", temperature=slider)

# %% [markdown]
# The two ends of the slider:

# %%
for temperature in (0.1, 100):
    row = (scores[1] / temperature).softmax(dim=-1)
    print(f"T = {temperature:5}: {[round(w, 2) for w in row.tolist()]}")

# %% [markdown]
# At a low temperature attention copies the best match; at a high one it comes close to the mean. Without a temperature, $T$ is 1. The length of the vectors
# has the same effect: make all of them twice as long, and every score is four times as large, as if you had set $T = 1/4$.
# Vectors with more features tend to be longer, too. Notebook 02 corrects the scores for that, but for no other cause of length.

# %% [markdown]
# ## Does the order matter?
#
# **Predict.** Shuffle the six words, and compute attention on the shuffled sentence. Will each word get the same new vector as
# before? If one does not, the second line of the next cell raises an error.

# %%
order = torch.tensor([5, 2, 0, 3, 1, 4])
torch.testing.assert_close(plain_attention(x[order])[0], plain_attention(x)[0][order])
for i in order:
    print(f"{tokens[i]:4}", plain_attention(x)[0][i].round(decimals=3).tolist())


# %% [markdown]
# There was no error: shuffled words give the old outputs, shuffled in the same way. Both *the* come out alike, though one belongs to
# *cat* and one to *mat*. A sum over $j$ has a term for each occurrence of a word, in any order. So attention sees a *bag* of words: which
# words there are and how often each occurs, but not in which order. Notebook 04 gives it a sense of order.

# %% [markdown]
# ## What it costs
#
# **Predict.** Every word looks at every word. When a text becomes twice as long, by what factor does the work grow, and by what factor
# the memory for the weights?
#
# We can count the work without doing it: a *meta* tensor has a shape but no numbers, and torch's `FlopCounterMode` adds up the
# operations of the matrix products, without those of the softmax. It counts a multiplication and the addition that follows as two
# [**FLOPs**](../docs/glossary.md#f), floating-point operations; we count the pair once, as a **multiply-add**. (A MiB of memory is
# $2^{20}$ bytes, and a GiB $2^{30}$.)

# %%
def cost(tokens, features=64):
    x = torch.empty(tokens, features, device="meta")  # (L, E)
    with FlopCounterMode(display=False) as counter:
        _, weights = plain_attention(x)
    return counter.get_total_flops() // 2, weights.nbytes, x.nbytes


print("multiply-adds of the toy sentence:", cost(6, 2)[0], "=", 2 * 6 * 6 * 2)

# %%
lengths = [2**k for k in range(6, 18)]
costs = {L: cost(L) for L in lengths}
for L in (1024, 2048, 131072):
    work, weight_bytes, input_bytes = costs[L]
    print(f"{L:6} tokens: {work:.1e} multiply-adds, weights {weight_bytes / 2**20:5.0f} MiB, x {input_bytes / 2**20:.2f} MiB")

# %% [markdown]
# Twice the tokens, four times the work and four times the memory. Each of the two matrix products takes $L^2 E$ multiply-adds,
# together $2 L^2 E$, and there are $L^2$ weights. At 131,072 tokens, a single matrix of weights would fill 64 GiB.

# %%
work = {"multiply-adds": [(L, costs[L][0]) for L in lengths]}
memory = {"weights": [(L, costs[L][1]) for L in lengths], "x": [(L, costs[L][2]) for L in lengths]}
figure, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
plotting.curves(work, xlabel="tokens", ylabel="multiply-adds", title="work grows as L²", logy=True, ax=axes[0])
plotting.curves(memory, xlabel="tokens", ylabel="bytes", title="the weights grow as L², x as L", logy=True, ax=axes[1])
for ax in axes:
    ax.set_xscale("log", base=2)
plotting.show("Straight lines on logarithmic axes: left the work, right the memory for weights and input.")

# %% [markdown]
# On these axes every power of $L$ is a straight line, and a higher power is steeper. The lines of memory meet at 64 tokens, where
# $L = E$ and $L^2$ weights are as many numbers as $L E$ features.
#
# And the clock? We take the processor's time on one core, the fastest of seven runs, and divide it by the number of weights.

# %% tags=["nbval-ignore-output"]
threads = torch.get_num_threads()
torch.set_num_threads(1)
seconds = {}
for L in (512, 1024, 2048, 4096):
    many, runs = torch.randn(L, 64) / 8, []
    for _ in range(7):
        start = time.process_time()
        plain_attention(many)
        runs.append(time.process_time() - start)
    seconds[L] = min(runs)
    print(f"{L:5} tokens: {L * L * 4 / 2**20:3.0f} MiB of weights, {1000 * seconds[L]:6.1f} ms, {1e9 * seconds[L] / L**2:.1f} ns a weight")
torch.set_num_threads(threads)

# %% [markdown]
# If only the operations counted, the last column would be constant. It is not: one doubling of the length costs far more than another.
# (Run the cell again to see what changes.) Notebook 15 looks into what else takes time. So we only ask whether time grows faster than the
# length: whether eight times the tokens cost more than 8 times as much. As in notebook 00, a [**verdict**](../docs/glossary.md#v) prints
# the number beside its bound, and raises an error if it is on the wrong side.

# %%
course.verdict("time for 4,096 tokens over time for 512", seconds[4096] / seconds[512], above=8)

# %% [markdown]
# From 512 to 4,096 tokens, time grew faster than the number of tokens. (The factor comes from the times before rounding.) Time in
# proportion to $L^2$ would give 64; a larger factor means that each weight took longer too. With which power time grows, four points do
# not show: the $L^2$ is a count of operations.
#
# Here the main line ends. In four optional sections the score becomes a distance, and the softmax is taken twice, left out, and replaced.
# The exercises follow them.

# %% [markdown]
# ## Optional: dot product or distance?
#
# The kernel of content compared by distance, attention by dot product. How much does that change? With the identity from *What we are
# about to build*, the score of a Gaussian of width 1 is
#
# $$-\tfrac12 |x_i - x_j|^2 = x_i \cdot x_j - \tfrac12 |x_j|^2 - \tfrac12 |x_i|^2$$
#
# The last term is the same along a row, so it cancels in the softmax. What remains is the dot product and one term more,
# $-\tfrac12 |x_j|^2$, which lowers the score of a long key. **Predict**: to which word does *cat* give its largest weight now?

# %%
half_squares = (x**2).sum(dim=-1) / 2  # (L,)
gaussian = (-(torch.cdist(x, x) ** 2) / 2).softmax(dim=-1)  # (L, L)
torch.testing.assert_close((x @ x.T - half_squares).softmax(dim=-1), gaussian)
print(f"cat to cat {gaussian[1, 1]:.3f}, cat to mat {gaussian[1, 5]:.3f}")

# %% [markdown]
# With this term, *cat* looks at itself first. **Predict**: without the term, we let *mat* grow and keep its direction. Will every other
# word then give it a larger weight?

# %%
factors = torch.linspace(0, 2, 41, dtype=torch.float64)
looks = []  # one row of L weights a factor
for factor in factors:
    grown = x.clone()
    grown[5] *= factor
    looks.append(plain_attention(grown)[1][:, 5])
lines = {tokens[i]: torch.stack([factors, torch.stack(looks)[:, i]], dim=-1) for i in (0, 1, 2, 3)}
title = "mat grows and keeps its direction"
plotting.curves(lines, xlabel="length of mat (1 = as it is)", ylabel="weight on mat", title=title)
plotting.show("The weight on 'mat' against its length: the lines of 'cat', 'sat' and 'the' rise, and that of 'on' falls.")

# %% [markdown]
# The dot product of *on* with *mat* is negative, 1 · 1 − 1 · 3 = −2. The longer *mat* becomes, the more negative it is, so the weight
# falls. Length multiplies the score: a long key draws the words whose dot product with it is positive and loses those where it is
# negative. (The row of *mat* itself is not drawn, since with *mat* the query would grow too.)

# %% [markdown]
# ## Optional: the softmax twice
#
# Sometimes one reads $w_{ij} = e^{w_{ij}} / \sum_m e^{w_{im}}$, with the prime lost. Code that computes the right side from a `w` that
# already holds the weights applies the softmax a second time. The row of *cat* after one softmax, two, and so on:

# %%
again = scores
for times in range(1, 6):
    again = again.softmax(dim=-1)  # rows sum to 1 each time
    print(f"softmax × {times}: " + " ".join(f"{w:.2f}" for w in again[1]))

# %% [markdown]
# The row sums do not give this slip away. Weights lie between 0 and 1, so their exponentials differ by a factor of at most $e$: the
# second softmax leaves *mat* 0.32 in place of 0.86, and from the third on the row is nearly uniform. The mean from the beginning is back.
#
# **Question** (middle, 5 minutes). Show that the equation $w_j = e^{w_j} / \sum_m e^{w_m}$, read as it stands, has only one solution.
#
# <details><summary>Answer</summary>
#
# It says that $w_j e^{-w_j}$ is the same number for every $j$. All $w_j$ lie between 0 and 1, and there $t e^{-t}$ grows strictly, so it
# takes each value once: all $w_j$ are equal, and since they sum to 1, each is $1/L$.
#
# </details>
#
# **Question** (easy, 3 minutes). Multiply every number by 20, `[[20 * a for a in v] for v in vectors]`, and run the loops on it. What
# happens? Why does torch survive `20 * x`?
#
# <details><summary>Answer</summary>
#
# `math.exp` raises an `OverflowError`: *cat* with itself scores 1600, and $e^{710}$ is too large for a float. A softmax does not change
# when the same number is subtracted from every score of a row, since it cancels in the fraction. torch subtracts the row's largest, so
# that the largest exponential is 1.
#
# </details>

# %% [markdown]
# ## Optional: without the softmax
#
# Use the raw scores as weights, and two matrix products remain: $Y = (X X^\top) X$. No row needs to sum to 1, and each output is a sum of
# products of three factors from $X$.

# %%
y, w = sciformer.naive_attention(x, normalize="none")
torch.testing.assert_close(y, (x @ x.T) @ x)
print("row sums", w.sum(dim=-1).tolist())
print("lengths before", x.norm(dim=-1).round(decimals=1).tolist())
print("lengths after ", y.norm(dim=-1).round(decimals=1).tolist())

# %% [markdown]
# Feed the output in again, as in a deep model, where the output of one **layer** is the input of the next. In 32-bit numbers:

# %%
deep = x.float()
for layer in range(1, 5):
    deep, _ = sciformer.naive_attention(deep, normalize="none")
    print(f"layer {layer}: longest token {deep.norm(dim=-1).max():.0e}")

# %% [markdown]
# The three factors make each length roughly the cube of the one before; after the fourth layer it is too large for a 32-bit number. This is what the
# softmax prevents.
#
# Without the softmax, long texts can take fewer operations. The brackets may move: $(X X^\top) X = X (X^\top X)$. The right side never
# builds an $L \times L$ matrix. Each of its two products takes $L E^2$ multiply-adds, $2 L E^2$ together, which is linear in the tokens and
# $L / E$ times fewer than $2 L^2 E$. With a softmax between the two products, the brackets cannot move.

# %%
torch.testing.assert_close((x @ x.T) @ x, x @ (x.T @ x))
long = torch.empty(131072, 64, device="meta")
with FlopCounterMode(display=False) as counter:
    long @ (long.T @ long)
print(f"{costs[131072][0] / (counter.get_total_flops() // 2):.0f} times fewer multiply-adds")


# %% [markdown]
# **Question** (easy, 2 minutes). For which lengths is $X (X^\top X)$ the *worse* choice?
#
# <details><summary>Answer</summary>
#
# $2 L E^2$ against $2 L^2 E$: for $L < E$, fewer tokens than features. *Linear attention*
# ([Katharopoulos et al. 2020](https://arxiv.org/abs/2006.16236)) builds on these moving brackets.
#
# </details>

# %% [markdown]
# ## Optional: standardised rows
#
# Softmax and no softmax are two **normalisers**, ways to make weights of scores. A third brings each row to mean 0 and standard
# deviation 1.
#
# $$w_{ij} = \frac{w'_{ij} - \text{mean}_j\, w'_{ij}}{\text{std}_j\, w'_{ij}}$$

# %%
def standardised(scores):
    centred = scores - scores.mean(dim=-1, keepdim=True)  # (L, L)
    return centred / centred.pow(2).mean(dim=-1, keepdim=True).add(1e-5).sqrt()  # 1e-5: no division by 0


torch.testing.assert_close(sciformer.naive_attention(x, normalize="standardize")[1], standardised(scores))
standardised(scores).sum(dim=-1).abs().round(decimals=3)

# %% [markdown]
# The rows sum to 0, so some weights must be negative: a token can *subtract* another. Three tests compare the normalisers.
#
# **First test: do the outputs stay among the inputs?** Let $y$ be an output. The dot product with $y$ measures how far a vector reaches
# in the direction of $y$: it is the projection on that direction, times the length of $y$. If $y \cdot y$ is larger than
# $x_j \cdot y$ for every input $x_j$, then $y$ reaches farther in its own direction than any input, which no average of the inputs can
# do. So $y$ is outside their convex hull.

# %%
normalisers = ("softmax", "none", "standardize")
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for ax, name in zip(axes, normalisers, strict=True):
    y, _ = sciformer.naive_attention(x, normalize=name)
    outside = (y * y).sum(dim=-1) > (y @ x.T).amax(dim=-1) + 1e-9  # (L,)
    crowded, title = name != "softmax", f"{name}: {outside.sum()} of 6 outside"
    plotting.plane(x, tokens, moved=y, hull=True, label_moved=crowded, legend=not crowded, title=title, ax=ax)
plotting.show("Before and after for three normalisers, on three scales: only with softmax all outputs stay in the hull.")

# %% [markdown]
# The shaded region is the same in all pictures, on different scales. The names stand at the inputs on the left and at the outputs in the
# other two; both *the* coincide. The test can only show that an output is outside. That the outputs of the softmax are inside follows from
# its weights, which are positive and sum to 1.
#
# **Second test: what becomes of an offset?** Compute the weights from $x$, and only then add the same offset $b$ to every vector that
# is averaged. (In notebook 02 the vectors that are averaged are no longer those that are compared.) The output then changes by $b$
# times the sum of the row's weights.

# %%
b = torch.tensor([10.0, 10.0], dtype=torch.float64)
for name in normalisers:
    w = sciformer.naive_attention(x, normalize=name)[1]
    change = w @ (x + b) - w @ x  # (L, E): what the offset of the values does to the output
    print(f"{name:12} the offset of 10 arrives as {[round(c) + 0 for c in change[:, 0].tolist()]}")

# %% [markdown]
# Softmax passes on unchanged what is common to all words. Standardised rows cancel it and leave only the differences between words.
#
# **Third test: do the outputs grow?** Take random tokens, and divide the mean length of the outputs by that of the inputs. The last number
# of each line is the mean weight that a token keeps for itself with the softmax.

# %%
for L, E, scale in ((64, 16, 0.1), (64, 16, 1), (64, 16, 10), (256, 16, 1), (64, 64, 1)):
    many = scale * torch.randn(16, L, E, generator=torch.Generator().manual_seed(0))  # 16 sentences of L words
    lengths_of = {name: sciformer.naive_attention(many, normalize=name)[0].norm(dim=-1).mean() for name in normalisers}
    ratios = [f"{name} × {length / many.norm(dim=-1).mean():.1f}" for name, length in lengths_of.items()]
    kept = sciformer.naive_attention(many)[1].diagonal(dim1=-2, dim2=-1).mean()  # the weight of a token on itself
    print(f"{L:3} tokens, {E} features, scale {scale:3}:  " + "   ".join(ratios) + f"   softmax keeps {kept:.2f}")


# %% [markdown]
# With raw scores the ratio grows with the tokens, with the features, and with the square of the scale. With standardised rows it hardly
# depends on the scale (only through the 1e-5). Both grow with the tokens because they add up more terms: four times the tokens give 3.2
# and 3.6 times the length. With more features the raw ratio grows, from 85.6 to 142.7. But the standard deviation of a row, by which
# standardised rows are divided, grows faster, so their ratio falls.
#
# The softmax is at 1 in the last four lines, because there a token keeps most of its weight for itself, and a copy has the length of its
# original. At a tenth of the scale the weights are nearly equal, and the output is close to the mean of the tokens, which is short. In
# general, we only know that no output is longer than the longest input.
#
# The three tests in a table:
#
# | | softmax | none | standardize |
# |---|---|---|---|
# | a row sums to | 1 | anything | 0 |
# | negative weights | no | yes | yes |
# | stays in the convex hull | always | no | no |
# | a common offset of what is handed on | passes | is scaled | cancels |
# | the inputs 10 times as large: the weights | get sharper | are 100 times as large | stay the same, but for the 1e-5 |
#
# No column is the best in every row, and in some rows no entry is better than the others. The transformer uses the softmax, whose outputs stay among the
# vectors that are averaged. Its weak spot is the last row, the scale, which notebook 02 repairs in part.

# %% [markdown]
# Do standardised rows do as well in a whole model? Small transformers were trained with them and with the softmax, ten runs each (mean ±
# standard error). On digits they were no worse: 92.1 ± 0.1 % right against 91.6 ± 0.2 %. On Shakespeare they were worse: the loss, which
# notebook 08 explains, was 2.418 ± 0.002 against 2.357 ± 0.004 (less is better; [all claims, measured](../docs/measured.md)).

# %% [markdown]
# ## Exercises
#
# Three more, each with its checker.
#
# ### Exercise 2 · easy · 5 minutes
#
# Attention without parameters, at a temperature: before the softmax, the dot products are divided by it alone. The temperature is above
# 0. Treat all words at once, and give their new vectors only.

# %%
def tempered_attention(x, temperature):  # (L, E), a number
    raise NotImplementedError  # (L, E)


check.tempered_attention(tempered_attention)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The three lines of exercise 1, and one division more.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The temperature divides the scores, before the softmax. Which axis of the scores belongs to the words that answer?
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def tempered_attention(x, temperature):
#     scores = x @ x.T / temperature  # (L, L)
#     return scores.softmax(dim=-1) @ x  # (L, L) @ (L, E) = (L, E)
# ```
#
# </details>
#
# ### Exercise 3 · middle · 8 minutes
#
# The bilateral filter: a Gaussian kernel of positions times one of content. Both are $e^{-d^2 / (2w^2)}$, where $d$ is the difference of two
# positions or of two samples and $w$ the width of that kernel, as above (there each kernel's rows were made to sum to 1 at once); sample $i$ stands at
# position $i$. Every output is an average of the samples: the weights of a row sum to 1.

# %%
def bilateral_filter(signal, place_width, content_width):  # (L,), two numbers
    raise NotImplementedError  # (L,)


check.bilateral_filter(bilateral_filter)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Two matrices (L, L) of squared differences: `position[:, None] - position`, and the same with the signal.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Multiply the kernels first and divide by the row sums last. Or add two scores and take one softmax: $e^a e^b =
# e^{a+b}$.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def bilateral_filter(signal, place_width, content_width):
#     position = torch.arange(len(signal)).to(signal)  # (L,)
#     positions = -((position[:, None] - position) ** 2) / (2 * place_width**2)  # (L, L)
#     content = -((signal[:, None] - signal) ** 2) / (2 * content_width**2)  # (L, L)
#     return (positions + content).softmax(dim=-1) @ signal  # added scores are multiplied kernels
# ```
#
# </details>
#
# ### Exercise 4 · hard · 12 minutes
#
# Attention without softmax, word by word (see the optional section on attention without the softmax, above). The words read so far are the rows of $X$. All that you keep of
# them is the matrix `state` $= X^\top X$: zeros before the first word. The new word becomes the last row of $X$. Return two things: first
# its output, the plain sum of the earlier words and of itself, each times its dot product with the new word, not divided by anything;
# second the new state, which includes the new word, as a new tensor. Leave the state that you were given as it is.

# %%
def one_more_word(state, word):  # (E, E), (E,)
    raise NotImplementedError  # (E,) the output, (E, E) the next state


check.one_more_word(one_more_word)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The output of a word $x$ is $\sum_j (x \cdot x_j)\, x_j$, a row of $(X X^\top) X$. Move the brackets.
#
# </details>
# <details><summary>Hint 2</summary>
#
# $X^\top X = \sum_j x_j x_j^\top$, one matrix (E, E) a word: `torch.outer`. Which words must be in it when the new one
# reads?
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def one_more_word(state, word):
#     state = state + torch.outer(word, word)  # (E, E)
#     return state @ word, state  # (E, E) @ (E,) = (E,)
# ```
#
# </details>
#
# However long the text grows, the state keeps its $E^2$ numbers, and the next word costs the same.

# %% [markdown]
# ## Today
#
# - **GPT, Llama, BERT, ViT**, which you met at the end of notebook 00: in each of them attention is a softmax of dot products and a
#   weighted sum, as here. New are a scaling of the scores, and learned matrices that make queries, keys and values; both are built in 02.
# - **Non-local networks** for video ([Wang et al. 2018](https://arxiv.org/abs/1711.07971), section 3.2) compare several kinds of
#   weights. Those that they call *Gaussian* are the softmax of this notebook; their *dot product* divides by $L$ in place of a softmax.
# - **Mamba** ([Gu and Dao 2023](https://arxiv.org/abs/2312.00752)) and other *recurrent* models, which read one word after the
#   other, keep a state of fixed size, as the last exercise does, to escape from $L^2$.

# %% [markdown]
# ## Takeaways
#
# - Mean, smoothing filter, Nadaraya–Watson regression, attention: all are weights @ values. They differ in where the weights come from.
#   Those of the mean depend on nothing, those of the filter and of the regression on positions, and those of attention on content.
# - The softmax runs over the keys, the last axis of the scores. Its weights are positive and each row sums to 1, so
#   that no output leaves the convex hull of the inputs.
# - A word's neighbours change its vector: *bank* came out mostly as water or mostly as money.
# - This simplest attention has no parameters and sees no order. Where the dot product is positive, it favours long vectors: *cat*
#   preferred the longer *mat* to itself. Its operations and its weights grow as $L^2$.

# %% [markdown]
# ## Three questions
#
# **1.** `weights` is (L, L). Which of its sums are 1: rows or columns?
#
# <details><summary>Answer</summary>
#
# Rows. Row $i$ holds what token $i$ takes from each token $j$. A column may sum to anything between 0 and $L$: it tells how much a token
# is listened to.
#
# </details>
#
# **2.** Why can an output of softmax attention never be longer than the longest input?
#
# <details><summary>Answer</summary>
#
# It is an average with positive weights that sum to 1, and the length of an average is at most the average of the lengths.
#
# </details>
#
# **3.** Replace the vector of *cat* by (0, −2). Which rows of the heatmap change, and does *the* look elsewhere?
#
# <details><summary>Answer</summary>
#
# All but the two rows of *the*: its dot product with *cat* is 0 either way. Its *output* changes all the same, since the cat that it mixes
# in is another. *Cat* itself now looks at itself, then at *on*.
#
# </details>

# %% [markdown]
# ## To read
#
# - [Bahdanau, Cho and Bengio 2014](https://arxiv.org/abs/1409.0473): look at figure 3, the weights of a translator, and find the row in
#   which the order of the words changes.
# - Wasserman 2006, *All of Nonparametric Statistics*, [chapter 5](https://doi.org/10.1007/0-387-30623-4): how a statistician finds the
#   width that is neither too narrow nor too wide.
# - [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), section 3.2.1: find the three lines of exercise 1, and the two things that
#   are new.
#
# **Next.** One vector plays three parts here: it asks, it answers, and it is handed on. So the score of *cat* with *mat* is the same as
# that of *mat* with *cat*, even where the weights differ. Who decides what a word looks for? In notebook 02 three learned matrices give
# each part a vector of its own.
