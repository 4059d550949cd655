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
# You read *bank* twice and had two pictures in your mind. In a table with one vector for each word, *bank* is *bank*. The other words of
# the sentence have to change it.
#
# The tool for this is old. In 1964 [Nadaraya](https://doi.org/10.1137/1109020) and, in the same year,
# [Watson](https://www.jstor.org/stable/25049340) estimated the unknown value at a point as an average of known values, in which
# those measured near that point weigh more. In 2014 [Bahdanau, Cho and Bengio](https://arxiv.org/abs/1409.0473) let a translator
# form such an average over the words of a sentence. The weights came from a small neural network whose **parameters**, the numbers
# inside it, had been learned from examples. They called this *attention*. This notebook goes from the plain mean to the simplest
# attention, which has no parameters and learns nothing, and asks what it does to the two *banks* above.
#
# After it you can
#
# - compare averages by where their weights come from;
# - write attention without parameters, in loops and in three lines;
# - say which of its weights sum to 1, and what follows for its outputs;
# - tell what this attention cannot tell apart, and what it costs as the text grows.

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
from torch.utils.flop_counter import FlopCounterMode

import sciformer
from sciformer import check, plotting
from sciformer.teach import explore
from sciformer.teach.diagrams.averages import weighted_average
from sciformer.teach.diagrams.course_map import course_map

_ = torch.manual_seed(0)

# %%
course_map(here=1, small=True)  # a colour for each part that is listed under the title; white: "taken apart"
plotting.show("The map of the course, small; notebook 01 is marked.")

# %% [markdown]
# ## Predict first
#
# Write down your answers; *What became of bank?* returns to them.
#
# 1. The new *bank* is to be an average of the words of its sentence, with weights that are positive and sum to 1. Can it come out with more
#    water in it than *river* has?
# 2. Both sentences stand in one text. Do the two *banks* get different vectors?
# 3. Every word looks at every word, and the text becomes twice as long. By what factor does the work grow?

# %% [markdown]
# ## Equal weights
#
# We make up vectors, so that you can check every sum by hand. The first number says how much a word has to do with water, the second how
# much with money. *Bank* has a little of both, and words that have to do with neither are (0, 0); we call them *empty*. Each word is a
# [**token**](../docs/glossary.md#t), the numbers of its vector are its [**features**](../docs/glossary.md#f), and a text of $L$ tokens
# with $E$ features each is a matrix of shape (L, E).

# %%
meaning = {"bank": [1.0, 1.0], "river": [3.0, 0.0], "money": [0.0, 3.0]}  # every other word: (0, 0)
sentences = ["he sat on the bank of the river", "she took the money to the bank"]


def vectors_of(words):
    return torch.tensor([meaning.get(word, [0.0, 0.0]) for word in words])  # (L, E), with E = 2


def report(name, row, vectors):  # (L,) the weights of one word, (L, E)
    water, money = (row @ vectors).tolist()  # (L,) @ (L, E) = (E,)
    ratio = max(water, money) / min(water, money)
    on_empty = row[(vectors == 0).all(dim=-1)].sum()
    print(f"  {name:14} water {water:.2f}, money {money:.2f}: {ratio:.1f} to 1;  weight on empty words {on_empty:.2f}")


# %% [markdown]
# Every word is to become a weighted sum of all words of its sentence. We write the weights as a matrix: row $i$ holds those that mix the
# words into output $i$. The simplest choice gives every word the same weight, $1/L$.
#
# How far *bank* **leans** to one meaning is, throughout, the ratio of its larger feature to its smaller one. Empty words do not change this
# ratio, but they make the vector shorter, so we print their share of the weight beside it.
#
# **Predict.** What do equal weights make of *bank* in each of the two sentences, and what of *the*?

# %%
for sentence in sentences:
    words = sentence.split()
    equal = torch.full((len(words), len(words)), 1 / len(words))  # (L, L)
    print(sentence)
    for word in ("bank", "the"):
        report(word, equal[words.index(word)], vectors_of(words))

# %% [markdown]
# The mean does change *bank*, and in the right direction: beside *river* it has four times as much water as money, and beside *money* the
# reverse. But *the* has become the same vector, and so have all other words. The weights have to differ from word to word. What could they
# depend on?

# %% [markdown]
# ## Weights from positions
#
# A first idea: neighbours count more. To see what such weights do, we take a longer row of tokens: a **signal**, 80 numbers measured one
# after the other. Each number, or **sample**, is a token with a single feature. The truth is −1 in the first half and 1 in the second, and
# every sample carries some **noise**, a random error. The samples on one side of the jump belong together, like the words of one sentence:
# good weights average the noise away and do not mix the two sides.

# %%
position = torch.arange(80)  # (L,)
truth = torch.where(position < 40, -1.0, 1.0)  # (L,)
signal = truth + 0.25 * torch.randn(80, generator=torch.Generator().manual_seed(0))  # (L,)

# %% [markdown]
# A [**kernel**](../docs/glossary.md#k) is a function that says how strongly two tokens are related. The *Gaussian* kernel of positions is
# $e^{-d^2 / (2 w^2)}$, where $d$ is the difference of the two positions. It is 1 for a token and itself and falls with the distance; the
# *width* $w$ says how slowly. What stands in the exponent is called the [**score**](../docs/glossary.md#s).
#
# The kernels of all pairs form a matrix. Dividing each row by its sum turns it into the weights of an average.

# %%
distance = position[:, None] - position  # a column minus a row: (L, 1) - (L,) = (L, L), with i - j at (i, j)
score = -(distance**2) / (2 * 3**2)  # (L, L), the width is 3
kernel = score.exp()  # (L, L)
by_position = kernel / kernel.sum(dim=-1, keepdim=True)  # each row now sums to 1

_, ax = plt.subplots(figsize=(4.8, 3.8), layout="constrained")
plotting.heatmap(by_position, title="weights from positions", xlabel="position j", ylabel="position i", ax=ax)
ax.images[0].colorbar.set_label("weight")
plotting.show("A square matrix of weights, dark but for a band along the diagonal that is brightest at its two ends.")

# %% [markdown]
# The weights are a band along the diagonal, whatever the signal. (At its ends fewer neighbours share the weight.) Taking $e$ to the power of
# each score and dividing by the row's sum is the [**softmax**](../docs/glossary.md#s) of notebook 00:

# %%
torch.testing.assert_close(score.softmax(dim=-1), by_position)  # raises an error unless they are equal


# %% [markdown]
# ## Nadaraya and Watson, 1964
#
# With a kernel $K$ we can also estimate the value at a point $q$ between the samples:
#
# $$\hat f(q) = \sum_j \frac{K(q - k_j)}{\sum_m K(q - k_m)}\, v_j$$
#
# Here $q$ is the **query**, the point at which we ask; the **keys** $k_j$ are the points at which something was measured, and the
# **values** $v_j$ are what was measured there. These are the words of attention, and the formula is called
# [**Nadaraya–Watson regression**](../docs/glossary.md#n). For our signal the keys are the 80 positions and the values are the samples; we
# ask at 400 points. **Predict**: what will the widths 0.3, 3 and 20 do to the noise, and what to the jump?

# %%
def nadaraya_watson(queries, keys, values, width):  # (Q,), (L,), (L,), a number
    score = -((queries[:, None] - keys) ** 2) / (2 * width**2)  # (Q, 1) - (L,) = (Q, L)
    return score.softmax(dim=-1) @ values  # (Q, L) @ (L,) = (Q,)


queries = torch.linspace(0, 79, 400)  # (Q,)
curves = {f"width {width}": nadaraya_watson(queries, position, signal, width) for width in (0.3, 3, 20)}
steps = torch.where(queries < 39.5, -1.0, 1.0)  # (Q,)
plotting.dots_and_curves(position, signal, curves, at=queries, truth=steps, title="one kernel, three widths")
plotting.show("Noisy samples around minus one, then around one; the truth as a dashed line; and three curves, one for each width.")


# %% [markdown]
# The narrow kernel takes each sample as it is: the jump stays, and so does the noise. The wide one averages the noise away, and turns the
# jump into a slope. The middle one smooths the noise, but near the jump it averages samples from both sides, and the edge is smeared.
# Positions know nothing of the jump.

# %% [markdown]
# ## Weights from content
#
# So let us compare the samples themselves, their **content**. **Predict**: the weights from positions were a band. Which pattern will this
# matrix have?

# %%
def content_weights(signal, width=0.4):
    return (-((signal[:, None] - signal) ** 2) / (2 * width**2)).softmax(dim=-1)  # (L, L)


# %%
by_content = content_weights(signal)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", width_ratios=(3, 2))
smoothed = {"positions": by_position @ signal, "content": by_content @ signal}  # (L, L) @ (L,) = (L,)
plotting.dots_and_curves(position, signal, smoothed, truth=truth, title="two kinds of weights", ax=axes[0])
title = "weights from content"
plotting.heatmap(by_content, title=title, xlabel="position j", ylabel="position i", vmax=0.05, ax=axes[1])
axes[1].images[0].colorbar.set_label("weight (0.05 or more: yellow)")
plotting.show("Left, the samples with the truth and the curves of both kinds of weights; right, the weights from content as a matrix.")

# %% [markdown]
# Two blocks have taken the place of the band: each sample averages those on its own side, which are like it. Nobody told the kernel where
# the jump is. But we chose its width, and the noise is small beside the jump; *Optional: more noise* shows how far this carries.
#
# *Bank*, too, should listen to the words that matter to it. So let us compare words.

# %% [markdown]
# ## One word asks
#
# We build the weights for words on a *toy sentence*, which goes with us through the course. Its features stand for nothing in particular
# and are whole numbers, so that you can do every sum in your head.

# %%
tokens = ["the", "cat", "sat", "on", "the", "mat"]
table = {"the": [1, 0], "cat": [0, 2], "sat": [-1, 1], "on": [1, -1], "mat": [1, 3]}
vectors = [table[token] for token in tokens]  # plain Python: 6 lists of 2 numbers
x = torch.tensor(vectors, dtype=torch.float64)  # (L, E) = (6, 2)

# %%
names = ["the (twice)" if token == "the" else token for token in tokens]
plotting.plane(x, names, from_origin=True, title="six words, five vectors")
plotting.show("Five arrows from the origin, since both 'the' coincide; each with its word.")

# %% [markdown]
# The kernel of content compared samples by their distance. Attention compares words by their [**dot product**](../docs/glossary.md#d), the
# sum of the products of their features. (Why, we ask when we have seen what it does.) One word is the query. Its dot products with the
# six words, the keys, are six scores, and the softmax turns them into six weights. The new word is the weighted sum of all words, so
# every word is a value, too.
#
# **Predict.** The first word, *the* = (1, 0), asks. Work out its six scores. Which words get the same weight?

# %%
scores_of_the = [sum(vectors[0][d] * vectors[j][d] for d in range(2)) for j in range(6)]
scores_of_the

# %% [markdown]
# The dot product with (1, 0) is the first feature, and four words have a 1 there. Exponentiate, so that every weight is positive; divide
# by the sum, so that they add up to 1. The new *the* is then the weighted sum of the old words, one feature at a time.

# %%
exponentials = [math.exp(s) for s in scores_of_the]
row = [e / sum(exponentials) for e in exponentials]
new = [sum(row[j] * vectors[j][d] for j in range(6)) for d in range(2)]
print("weights", [round(w, 3) for w in row])
print("output ", [round(value, 3) for value in new])

# %% [markdown]
# The same as a picture:

# %%
score_column, weight_column, new_vector = torch.tensor(scores_of_the), torch.tensor(row), torch.tensor(new)
weighted_average(tokens, x, asks=0, scores=score_column, weights=weight_column, output=new_vector)
plotting.show("Data flow from left to right: six vectors, six scores, six weights, and one new vector for the word 'the'.")


# %% [markdown]
# ## The whole of it, in loops
#
# To compute all new words, we write three loops: over the query ($i$), over the keys ($j$), and over features ($d$). A query *looks at*
# the keys to which it gives weight; what they *hand on* to the sum are their values.
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
ax = plotting.heatmap(weights, rows=tokens, columns=tokens, title="attention weights", vmax=1)
ax.images[0].colorbar.set_label("weight")
plotting.show("Six by six weights: a row for each word as the query, and a column for each word as the key.")

# %% [markdown]
# *Cat* gives most of its weight to *mat*, 0.86, and only 0.12 to itself. By hand, the score of *cat* with *mat* is 0 · 1 + 2 · 3 = 6, and
# that of *cat* with itself 0 · 0 + 2 · 2 = 4. In the plane above the two point in similar directions, and *mat* is longer. (Weights that
# read 0.00 are positive, too.)

# %% [markdown]
# ## Dot product or distance?
#
# So why the dot product, and not the distance, as for the samples? **Predict**: with the score of a Gaussian of width 1,
# $-\tfrac12 |x_i - x_j|^2$, to which word does *cat* give its largest weight?

# %%
cat = x[1]  # (E,)
by_distance = (-((x - cat) ** 2).sum(dim=-1) / 2).softmax(dim=0)  # (L,)
for name, row in {"by dot product": weights[1], "by distance": by_distance}.items():
    print(f"{name:14}", "  ".join(f"{token} {w:.3f}" for token, w in zip(tokens, row.tolist(), strict=True)))

# %% [markdown]
# The choice is reversed: by distance *cat* gives itself 0.524, and *mat* 0.193 in place of 0.863. Multiply the square out, and you see why:
#
# $$-\tfrac12 |x_i - x_j|^2 = x_i \cdot x_j - \tfrac12 |x_j|^2 - \tfrac12 |x_i|^2$$
#
# The last term is the same along a row, so it cancels in the softmax. What remains is the dot product minus $\tfrac12 |x_j|^2$, a penalty
# on long keys. By distance, no word gives another more weight than itself, since none is nearer to it. To *bank*, the empty
# words are nearer (squared distance 2) than *river* (5), so by distance it would listen to them first. A dot product is high if the key is
# long and points in the query's direction. The price is that length now counts, whatever it stands for.
#
# **Question** (easy, 3 minutes). Let *mat* grow and keep its direction. Does every other word then give it a larger weight?
#
# <details><summary>Answer</summary>
#
# No. *The*, *cat* and *sat* do, but the dot product of *on* with *mat* is negative, 1 · 1 − 1 · 3 = −2. The longer *mat* becomes, the more
# negative it is, and the smaller the weight. Length multiplies the score: a long key draws the words whose dot product with it is positive
# and loses those where it is negative.
#
# </details>

# %% [markdown]
# ## Where can a new word lie?
#
# Your first prediction: can *bank* come out with more water than *river*? The shaded region is the
# [**convex hull**](../docs/glossary.md#c) of the toy words: the smallest region without dents that contains them all. Does any new word
# leave it?

# %%
figure, (whole, corner) = plt.subplots(1, 2, figsize=(8.5, 5), layout="constrained", width_ratios=(2, 3))
plotting.plane(x, tokens, moved=output, hull=True, from_origin=True, title="old words, new words, and the hull", ax=whole)
plotting.plane(x, tokens, hull=True, title="the corner at 'mat', enlarged", ax=corner)
corner.scatter(*output.T, color=plotting.COLORS[1], marker="s", zorder=3)
corner.set(xlim=(0.8, 1.05), ylim=(2.77, 3.03), aspect="equal")
beside = [(whole, 2, (6, -13)), (whole, 3, (-44, 4)), (whole, 4, (-44, 4)), (corner, 1, (8, -10)), (corner, 5, (-50, -14))]
for ax, i, shift in beside:  # shift: from the square to its name, in points
    ax.annotate(f"new {tokens[i]}", output[i].tolist(), shift, textcoords="offset points", fontsize=9)
plotting.show("Left, arrows from the old words to the new ones, and the shaded hull of the old; right, the new 'cat' and 'mat' enlarged.")
print(f"second minus first feature: 2 along the upper edge, at most {(output[:, 1] - output[:, 0]).max():.4f} in the new words")

# %% [markdown]
# None left the shaded region. (For *new mat* only the printed number tells, so close is it to the edge.) And none can, since the weights are
# positive and sum to 1. So *bank* can move towards *river*, but never beyond it.
#
# <details><summary>Why can none?</summary>
#
# Take two words with the weights 1/4 and 3/4:
#
# $$\tfrac14 x_1 + \tfrac34 x_2 = x_1 + \tfrac34\, (x_2 - x_1)$$
#
# Start at $x_1$ and go three quarters of the way to $x_2$: you are on the segment between the two. A third word pulls this point some
# part of the way towards itself, again along a segment, and so does every further word. Each segment joins two points of the hull, and a
# region without dents contains it. A negative weight leads away from its word, and weights with another sum lead off the segment, so that
# the output may leave the hull.
#
# </details>

# %% [markdown]
# ## The formula
#
# $$w'_{ij} = x_i \cdot x_j, \qquad w_{ij} = \frac{e^{w'_{ij}}}{\sum_{m=1}^{L} e^{w'_{im}}}, \qquad
# y_i = \sum_{j=1}^{L} w_{ij}\, x_j$$
#
# The $w'_{ij}$ are the scores and the $w_{ij}$ the [**attention weights**](../docs/glossary.md#a).
#
# | symbol | variable | shape |
# |---|---|---|
# | $X$, with the rows $x_i$ | `x` | (L, E) = (6, 2) |
# | all $w'_{ij}$ | `scores` | (L, L) = (6, 6) |
# | all $w_{ij}$ | `weights` | (L, L) = (6, 6) |
# | $Y$, with the rows $y_i$ | `output` | (L, E) = (6, 2) |

# %% [markdown]
# ## One index at a time
#
# Loops in Python are slow, so we remove one after the other. First $d$: between two vectors `@` computes the dot product, and the first line
# below still has $i$ and $j$. Then $j$: all dot products with $x_i$ at once are a matrix times a vector, and the second line has only $i$.

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
#
# The last line of the cell gives back your function if it is right, and otherwise the solution, so that the notebook can go on.

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
# The function has to agree with the loops, and with `naive_attention` from the course's package `sciformer`, which is naive because it has
# nothing to learn:

# %%
for mine, loops, package in zip(plain_attention(x), attention_in_loops(vectors), sciformer.naive_attention(x), strict=True):
    torch.testing.assert_close(mine, loops)
    torch.testing.assert_close(mine, package)
print("three ways, one result")

# %% [markdown]
# ## Break it: the sum over the wrong index
#
# Would you notice if the weights were wrong? Two slips raise no error. In a formula, the sum in the denominator may end at $E$, the number
# of features, instead of $L$, the number of words. In code, `softmax(dim=0)` runs down the columns. **Predict**: which row sums does each
# slip break?

# %%
exponentials = scores.exp()  # (L, L)
candidates = {
    "right: sum over all j": scores.softmax(dim=-1),
    "slip: sum stops at E": exponentials / exponentials[:, :2].sum(dim=-1, keepdim=True),
    "slip: softmax(dim=0)": scores.softmax(dim=0),
}
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for n, (ax, (title, w)) in enumerate(zip(axes, candidates.items(), strict=True)):
    sums = [f"{token}  Σ={s:.2f}" for token, s in zip(tokens, w.sum(dim=-1), strict=True)]
    plotting.heatmap(w, rows=sums, columns=tokens, title=title, vmax=1, colorbar=False, ylabel="" if n else "query", ax=ax)
plotting.show("Three matrices of weights, each with the sums of its rows written beside it.")

# %% [markdown]
# Only in the first matrix do all rows sum to 1. In the second, the denominator counts only two words, and the row of *mat* sums to more than
# 50. (The colours end at 1.) In the third, the row of *sat* sums to less than half, and that of *on* to 1.01, which looks like rounding and
# is not. So print all row sums whenever you write a softmax.
#
# **Question** (easy, 2 minutes). Reflect the first matrix at its diagonal, and you have the third. Why?
#
# <details><summary>Answer</summary>
#
# The scores are symmetric: $x_i \cdot x_j = x_j \cdot x_i$. So column $j$ of the scores holds the same numbers as row $j$, and the
# softmax makes the same weights of them.
#
# </details>

# %% [markdown]
# ## Back to the bank
#
# Now each of the two sentences gets attention. **Predict.** Will *bank* lean further than with the mean, four to one, or less far? And
# *the*, which is (0, 0): what becomes of it?

# %%
for sentence in sentences:
    words = sentence.split()
    _, attention = plain_attention(vectors_of(words))  # (L, L)
    print(sentence)
    for word in ("bank", "the"):
        report(word, attention[words.index(word)], vectors_of(words))

# %% [markdown]
# *Bank* became mostly water in one sentence and mostly money in the other, nine parts to one, and empty words get less than a fifth of its
# weight. *The* cannot choose: (0, 0) scores 0 with every word, so it still gets the mean.
#
# But we made up the vectors, and *river* got the length 3. **Predict**: it keeps its direction and becomes shorter, (2, 0) and then (1, 0).
# How far does *bank* lean, with attention and with the mean?

# %%
words = sentences[0].split()
bank, river = words.index("bank"), words.index("river")
for length in (3.0, 2.0, 1.0):
    old_words = vectors_of(words)
    old_words[river, 0] = length
    _, attention = plain_attention(old_words)
    print(f"river ({length:.0f}, 0): bank gives itself {attention[bank, bank]:.2f}, river {attention[bank, river]:.2f}")
    report("attention", attention[bank], old_words)
    report("mean", torch.full((len(words),), 1 / len(words)), old_words)

# %% [markdown]
# *River* points the same way all the time. Yet at length 2 *bank* leans only as far as with the mean, three to one, and at length 1 less
# far, 1.4 to one in place of two. (There is more water in it than in the mean, but also more money, since less weight falls on empty words.)
# It is as with *cat* and *mat*: the length of a key multiplies its score. In a trained model the vectors, and so their lengths, are learned.

# %% [markdown]
# ## Does the order matter?
#
# You met the two sentences in one text. Now attention reads all 15 words at once: your second prediction.

# %%
text = " ".join(sentences).split()  # 15 words
old_words = vectors_of(text)
_, attention = plain_attention(old_words)
banks = [4, 14]
for i in banks:
    report(f"bank at {i}", attention[i], old_words)

# %% [markdown]
# They get the same vector, with as much water as money. Is this an accident of these two sentences? **Predict**: shuffle the toy sentence. Will each word get the same new vector as before?

# %%
order = torch.tensor([5, 2, 0, 3, 1, 4])
shuffled, _ = plain_attention(x[order])
for new, i in zip(shuffled, order, strict=True):
    print(f"{tokens[i]:4} shuffled {new.round(decimals=3).tolist()}, before {output[i].round(decimals=3).tolist()}")


# %% [markdown]
# It will. A score depends on two vectors and not on where they stand, and a sum over $j$ has a term for each occurrence of a word, in any
# order. So attention sees a *bag* of words: which there are and how often, but not in which order. Equal words come out equal.
#
# Weights from positions know what is near, and weights from content know what matters. **Before you read on**: how could you tell
# the two *banks* apart?

# %% [markdown]
# ## Near and alike
#
# One answer is to multiply the two kernels: the product is large only where both are. For pictures this is the *bilateral filter*
# ([Tomasi and Manduchi 1998](https://doi.org/10.1109/ICCV.1998.710815)). You build it for the signal.
#
# ### Exercise 2 · middle · 8 minutes
#
# The bilateral filter: a Gaussian kernel of positions times one of content. Both are $e^{-d^2 / (2w^2)}$, where $d$ is the difference of
# two positions or of two samples and $w$ the width of that kernel. Sample $i$ stands at position $i$. Every output is an average of the
# samples: each row of the final weights sums to 1, while those of the two kernels need not.

# %%
def bilateral_filter(signal, place_width, content_width):  # (L,), two numbers
    raise NotImplementedError  # (L,)


bilateral_filter = check.bilateral_filter.use(bilateral_filter)

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

# %%
smoothed["both"] = bilateral_filter(signal, 3, 0.8)  # (L,)
plotting.dots_and_curves(position, signal, smoothed, truth=truth, title="three kinds of weights")
plotting.show("The samples with the truth and three curves: weights from positions, from content, and from both.")

# %% [markdown]
# With both, the jump stays sharp, as with content, and away from it the curve is nearly as smooth as with positions, except at single
# samples that lie far off. (The width of the content is 0.8 here and was 0.4 above, so the orange and the black curve differ in both.) On
# this signal content alone would do: samples that
# are alike belong together wherever they stand. But our two *banks* are alike, and we want them to differ.

# %% [markdown]
# ## The two banks
#
# Now the words. Since $e^a e^b = e^{a+b}$, kernels are multiplied by adding their scores: to each dot product we add the score of a
# Gaussian of positions, of width 3 as for the signal.
#
# **Predict.** Which of the four kinds of weights tell the two *banks* of the one text apart, and with which do they lean furthest?

# %%
place = torch.arange(len(text))  # (L,)
content = old_words @ old_words.T  # (L, L)


def nearness(width):
    return -((place[:, None] - place) ** 2) / (2 * width**2)  # (L, L)


kinds = {"equal": torch.zeros(15, 15), "positions": nearness(3), "content": content, "both": content + nearness(3)}
for kind, text_scores in kinds.items():
    print(kind)
    for i in banks:
        report(f"bank at {i}", text_scores.softmax(dim=-1)[i], old_words)

# %% [markdown]
# Equal weights and content cannot part the two *banks*. Positions can, by 2.4 to one, since each stands nearer to its own clue, but most
# of the weight falls on empty words. With both, the first *bank* is mostly water and the second mostly money, 3.9 to one.
#
# That is less than the nine to one of attention within one sentence, and about what the plain mean gave there. The clue, three words away,
# has lost weight to *bank* itself, and the other clue, seven words away, still has some. **Predict**: does another width do better?

# %%
for width in (1, 2, 2.5, 3, 5, 100):
    report(f"width {width}", (content + nearness(width)).softmax(dim=-1)[4], old_words)

# %% [markdown]
# A little: 4.3 to one at 2.5, the best of these. A narrow kernel hides the clue, and a wide one lets the other clue in.
#
# So each *bank* has a vector of its own now. But what we added is distance, not order: read backwards, every word would get the same
# vector. Notebook 04 gives attention a sense of order, and in notebook 07 a model learns how much distance counts.

# %% [markdown]
# ## How sharp? The temperature
#
# How firmly *bank* chooses can be set: divide the scores by a [**temperature**](../docs/glossary.md#t) $T$ before the softmax. Move the
# slider: where does *bank* of the first sentence copy *river*, with a weight above 0.99, and where does it take nearly the mean of all?

# %%
river_words = sentences[0].split()
river_vectors = vectors_of(river_words)  # (L, E)
scores_of_bank = river_vectors @ river_vectors[4]  # (L,)


def row_of_bank(temperature):
    row = (scores_of_bank / temperature).softmax(dim=-1)  # (L,)
    water, money = (row @ river_vectors).tolist()
    title = f"bank looks at …   T = {temperature:.3g},   {water / money:,.1f} to 1"
    return plotting.bars(row, river_words, top=1.1, highlight=4, title=title)


slider = ipywidgets.FloatLogSlider(value=1, min=-1, max=2, step=0.1, description="temperature")
explore(row_of_bank, alt="Bars: the weights of bank at temperature 1, most of it on river; bank itself in orange.", temperature=slider)

# %% [markdown]
# Four places of the slider:

# %%
for temperature in (0.1, 0.2, 1, 100):
    row = (scores_of_bank / temperature).softmax(dim=-1)  # (L,)
    print(f"T = {temperature:5}: river {row[7]:.3f}, bank {row[4]:.3f}, each empty word {row[0]:.3f}")


# %% [markdown]
# At a low temperature *bank* copies its best match, with 0.993 of the weight at $T = 0.2$; at a high one it comes close to the mean.
# Without a temperature, $T$ is 1.
#
# **Question** (easy, 2 minutes). All vectors become twice as long, at $T = 1$. With which temperature do the *old* vectors have
# the same weights?
#
# <details><summary>Answer</summary>
#
# $T = 1/4$. Both factors of every dot product are doubled, so every score is four times as large.
#
# </details>
#
# More features make a vector longer, too. Notebook 02 corrects the scores for that, but for no other cause of length.
#
# ### Exercise 3 · easy · 5 minutes
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

# %% [markdown]
# ## What it costs
#
# Every word of a text looks at every word: your third prediction. We count the work without doing it: a *meta* tensor has a shape but no
# numbers, and torch's `FlopCounterMode` adds up the operations of the matrix products. It counts a multiplication and the addition that
# follows as two [**FLOPs**](../docs/glossary.md#f), floating-point operations; we count them as one **multiply-add**. (A MiB is $2^{20}$
# bytes, and a GiB $2^{30}$.)

# %%
def cost(tokens, features=64):
    x = torch.empty(tokens, features, device="meta")  # (L, E)
    with FlopCounterMode(display=False) as counter:
        _, weights = plain_attention(x)
    return counter.get_total_flops() // 2, weights.nbytes, x.nbytes


# %%
print("multiply-adds of the toy sentence:", cost(6, 2)[0])
costs = {L: cost(L) for L in (64, 1024, 2048, 131072)}
for L, (work, weight_bytes, input_bytes) in costs.items():
    print(f"{L:6} tokens: {work:.2e} multiply-adds, weights {weight_bytes / 2**20:8.2f} MiB, x {input_bytes / 2**20:5.2f} MiB")


# %% [markdown]
# Twice the tokens, four times the work, and four times the memory for the weights. Each of the two matrix products takes $L^2 E$ multiply-adds, together
# 2 · 6 · 6 · 2 = 144 for the toy sentence. There are $L^2$ weights: more numbers than in $x$ as soon as $L$ exceeds $E$, which was 64. At
# 131,072 tokens, a single matrix of weights would fill 64 GiB. (The softmax is not counted, and nothing was timed; notebook 15 measures
# time.)

# %% [markdown]
# ## Today
#
# - **GPT, Llama, BERT, ViT** of notebook 00: in each of them attention is a softmax of dot products and a weighted sum, as here. New are a
#   scaling of the scores, and learned matrices that make queries, keys and values; notebook 02 builds both.
# - **Non-local networks** for video ([Wang et al. 2018](https://arxiv.org/abs/1711.07971), section 3.2) compare several kinds of
#   weights. Those that they call *Gaussian* are the softmax of this notebook.
# - **Mamba** ([Gu and Dao 2023](https://arxiv.org/abs/2312.00752)) and other *recurrent* models read one word after the other and keep
#   what they have read in a *state* of fixed size, to escape from $L^2$.

# %% [markdown]
# ## What became of *bank*?
#
# A weighted sum lets neighbours change a word, and how far depends on the weights:
#
# | weights from | the sentences | *bank* leans |
# |---|---|---|
# | nothing: all equal | each alone | 4.0 to 1 |
# | content | each alone | 9.2 to 1 |
# | content | in one text | 1.0 to 1 |
# | positions | in one text | 2.4 to 1 |
# | both | in one text | 3.9 to 1 |
#
# These are two sentences with made-up vectors; nothing was learned. And your predictions?
#
# 1. No. An average stays in the convex hull of its words, so *bank* never has more water than *river*.
# 2. No. Equal vectors come out equal, until positions enter the scores.
# 3. By a factor of 4.

# %% [markdown]
# ## Takeaways
#
# - Mean, Nadaraya–Watson regression, bilateral filter, attention: all are weights @ values. They differ in what the weights depend on.
# - The softmax runs over the keys, the last axis of the scores, so that no output leaves the convex hull of the values.
# - Dot products let a word listen to others more than to itself. The length of a key multiplies its score, up or down.
# - This simplest attention has no parameters, sees no order, and costs $L^2$ in operations and memory.

# %% [markdown]
# ## Check yourself
#
# **1.** `weights` is (L, L). A column sums to nearly $L$. What does that say?
#
# <details><summary>Answer</summary>
#
# Every word gives nearly all of its weight to this one, so all outputs are nearly its vector. Row $i$ holds what token $i$ takes from each
# token $j$ and always sums to 1. A column may sum to anything between 0 and $L$: it tells how much a token is listened to.
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
#
# Here the main line ends.

# %% [markdown]
# ## Optional: more noise
#
# We compared the weights on one signal with little noise. Here are 20 signals that differ in their noise, and 20 with noise four times as
# large. The table has the mean distance from the truth over the 8 positions around the jump, and over the 60 farthest from it; in brackets
# the smallest and the largest of the 20. *Samples* is the noise before any averaging, and *both* is your filter with the widths 3 and 0.8.
# **Predict**: what does a wider kernel of content do with little noise, and what with much?

# %%
def errors(estimate, noise):  # estimate: a function of a signal
    around, away = [], []
    for seed in range(20):
        noisy = truth + noise * torch.randn(80, generator=torch.Generator().manual_seed(seed))  # (L,)
        error = (estimate(noisy) - truth).abs()  # (L,)
        around.append(error[36:44].mean())
        away.append(torch.cat([error[:30], error[50:]]).mean())
    return torch.stack(around), torch.stack(away)  # (20,), (20,)


# %%
methods = {
    "samples": lambda noisy: noisy,
    "positions": lambda noisy: by_position @ noisy,
    "content, 0.4": lambda noisy: content_weights(noisy, 0.4) @ noisy,
    "content, 1.6": lambda noisy: content_weights(noisy, 1.6) @ noisy,
    "both": lambda noisy: bilateral_filter(noisy, 3, 0.8),
}
for noise in (0.25, 1.0):
    print(f"noise {noise:4}    around the jump      away from it")
    for name, estimate in methods.items():
        around, away = errors(estimate, noise)
        print(f"{name:12}  {around.mean():.2f} ({around.min():.2f} to {around.max():.2f})", end="  ")
        print(f"{away.mean():.2f} ({away.min():.2f} to {away.max():.2f})")

# %% [markdown]
# With little noise, content of width 0.4 and both are better around the jump than positions, in every signal: the ranges do not
# touch. Width 1.6 is too wide, since it reaches across the jump of 2. With much noise this width errs less than 0.4 on average, but no
# weights are best everywhere: positions are best away from the jump, and around it the ranges overlap. Content of width 0.4 then hardly
# averages at all: a sample that errs by 1 is most like other samples that err the same way, so its error stays.

# %% [markdown]
# ## Optional: the softmax twice
#
# Sometimes one reads $w_{ij} = e^{w_{ij}} / \sum_m e^{w_{im}}$, with the prime lost. Code that computes the right side from a `w` that
# already holds the weights applies the softmax a second time. **Predict**: what becomes of the row of *cat*, and do its sums give the
# slip away?

# %%
again = scores
for times in range(1, 6):
    again = again.softmax(dim=-1)  # (L, L)
    print(f"softmax × {times}: " + " ".join(f"{w:.2f}" for w in again[1]) + f"   sum {again[1].sum():.2f}")

# %% [markdown]
# The sums stay 1. But weights lie between 0 and 1, so their exponentials differ by a factor of at most $e$: the second softmax leaves
# *mat* 0.32 in place of 0.86, and from the third on the row is nearly uniform. The mean from the beginning is back.
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
# products of three factors from $X$. The package leaves the softmax out with `normalize="none"`.

# %%
y, w = sciformer.naive_attention(x, normalize="none")
torch.testing.assert_close(y, (x @ x.T) @ x)
print("row sums", w.sum(dim=-1).tolist())
print("lengths before", x.norm(dim=-1).round(decimals=1).tolist())
print("lengths after ", y.norm(dim=-1).round(decimals=1).tolist())

# %% [markdown]
# In a *deep* model the output of one **layer** is the input of the next. **Predict**: how does the length of the longest token grow from
# layer to layer?

# %%
deep = x.float()
for layer in range(1, 5):
    deep, _ = sciformer.naive_attention(deep, normalize="none")
    print(f"layer {layer}: longest token {deep.norm(dim=-1).max():.0e}")

# %% [markdown]
# The three factors make each length roughly the cube of the one before; after the fourth layer it is too large for a 32-bit number. This
# is what the softmax prevents.
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
#
# ### Optional exercise: one word at a time
#
# With the brackets moved, a text can be read one word after the other, and none of its words has to be kept.
#
# ### Exercise 4 · hard · 12 minutes
#
# Attention without softmax, word by word. The words read so far are the rows of $X$. All that you keep of them is the matrix `state`
# $= X^\top X$: zeros before the first word. The new word becomes the last row of $X$. Return two tensors. The first is the output of the
# new word: the sum of all words, the earlier ones and the new one, each times its dot product with the new word. Nothing is divided. The
# second is the new state, which includes the new word, as a new tensor. Leave the state that you were given as it is.

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
# The rows sum to 0, so some weights must be negative: a token can *subtract* another. Two tests compare the three normalisers. The first
# counts how many of the six outputs are longer than every input, which no average can be. The second computes the weights from $x$, and
# only then adds 10 to every feature of the vectors that are averaged. (In notebook 02 these are no longer the vectors that are compared.)
# **Predict**: what arrives of the 10 in the output?

# %%
normalisers = ("softmax", "none", "standardize")
for name in normalisers:
    y, w = sciformer.naive_attention(x, normalize=name)  # (L, E), (L, L)
    longer = (y.norm(dim=-1) > x.norm(dim=-1).max()).sum()
    change = w @ (x + 10) - y  # (L, E)
    print(f"{name:12} {longer} of 6 longer than all inputs; the 10 arrives as {change[:, 0].round().int().tolist()}")

# %% [markdown]
# An output that is longer than all inputs lies outside their convex hull, and without the softmax all six do. What arrives is 10 times the
# sum of the row's weights. So the softmax passes on unchanged what is common to all words; standardised rows cancel it and leave only the
# differences between words.
#
# And in a whole model? Small transformers were trained with standardised rows and with the softmax, ten runs each; behind ± stands the
# **standard error**, by which a mean of ten runs is uncertain. On pictures of handwritten digits (notebook 06) standardised rows were no
# worse: 92.1 ± 0.1 % right against 91.6 ± 0.2 %. On the text of Shakespeare (notebook 08) they were worse: the loss was 2.418 ± 0.002
# against 2.357 ± 0.004, and less is better ([all claims, measured](../docs/measured.md)).

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
