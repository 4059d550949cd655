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
# **parameters**, the numbers inside it, had been learned from examples. They called this *attention*. This notebook goes from the plain
# mean to the simplest attention, which has no parameters and learns nothing, one change at a time, until each *bank* above has a vector of
# its own.
#
# After it you can
#
# - see the mean, a filter that smooths a signal, an old method of statistics, and attention, all four as one thing: a weighted sum;
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
# ## All the same: the mean
#
# We make up vectors, so that you can check every sum by hand. The first number says how much a word has to do with water, the second how
# much with money. *Bank* has a little of both, and words that have to do with neither are (0, 0). Each word is a
# [**token**](../docs/glossary.md#t), the numbers of its vector are its [**features**](../docs/glossary.md#f), and a text of $L$ tokens
# with $E$ features each is a matrix of shape (L, E).

# %%
meaning = {"bank": [1.0, 1.0], "river": [3.0, 0.0], "money": [0.0, 3.0]}  # every other word: (0, 0)
sentences = ["he sat on the bank of the river", "she took the money to the bank"]


def vectors_of(words):
    return torch.tensor([meaning.get(word, [0.0, 0.0]) for word in words])  # (L, E), with E = 2


def told(vector):
    return f"water {vector[0]:.2f}, money {vector[1]:.2f}"


# %% [markdown]
# Every word is to become a weighted sum of all words of its sentence, and we have to choose the weights. We write them as a matrix: row
# $i$ holds those that mix the words into output $i$. The simplest choice gives every word the same weight, $1/L$.
#
# **Predict.** What does this make of *bank* in each of the two sentences, and what of *the*?

# %%
for sentence in sentences:
    words = sentence.split()
    uniform = torch.full((len(words), len(words)), 1 / len(words))  # (L, L)
    new_words = uniform @ vectors_of(words)  # (L, L) @ (L, E) = (L, E)
    print(sentence)
    for word in ("bank", "the"):
        print(f"    {word:4} becomes  {told(new_words[words.index(word)])}")

# %% [markdown]
# The mean does change *bank*, and in the right direction: beside *river* it has four times as much water as money, and beside *money* the
# reverse. But *the* has become the same vector, and so have all other words: nothing tells the words of a sentence apart any more. The
# weights have to differ from word to word. What could they depend on?

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
# out with the distance. In the code, `position[:, None]` stands the positions up as a column. A column minus a row is a matrix: row $i$,
# column $j$ of `distance` holds $i - j$.

# %%
def normalised(kernel):
    return kernel / kernel.sum(dim=-1, keepdim=True)  # each row now sums to 1


distance = position[:, None] - position  # (L, 1) - (L,) = (L, L)
box = normalised((distance.abs() <= 4).float())  # (L, L)
gauss = normalised((-(distance**2) / (2 * 3**2)).exp())  # (L, L), its width is 3

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained")
for ax, (name, kernel) in zip(axes, {"box": box, "Gaussian": gauss}.items(), strict=True):
    plotting.heatmap(kernel, title=name, xlabel="position j", ylabel="position i", vmax=0.24, ax=ax)
    ax.images[0].colorbar.set_label("weight")
plotting.show("Two square matrices of weights on one scale of colours; each is dark but for a band along the diagonal.")

# %% [markdown]
# Both are a band along the diagonal, whatever the signal. The corners are brighter, because at the ends fewer neighbours share the
# weight. **Predict**: what will these weights do to the noise, and what to the jump?

# %%
smoothed = {"Gaussian": gauss @ signal, "box": box @ signal}  # (L, L) @ (L,) = (L,)
plotting.dots_and_curves(position, signal, smoothed, truth=truth, title="two kernels of positions")
plotting.show("Noisy samples around minus one, then around one; the truth as a dashed line, and the curves of the two kernels.")

# %% [markdown]
# Away from the jump both curves are closer to the dashed line than most samples are. Around the jump each output averages samples from
# both sides, and the edge is smeared.
#
# **Predict.** For each row, `gauss` takes $e$ to the power of something, and divides by the row's sum. Which function of notebook 00 does
# both at once? The next cell raises an error unless it gives the same weights.

# %%
score = -(distance**2) / (2 * 3**2)  # (L, L)
torch.testing.assert_close(score.softmax(dim=-1), gauss)

# %% [markdown]
# The Gaussian is a [**softmax**](../docs/glossary.md#s) in disguise. In the exponent stands a [**score**](../docs/glossary.md#s): here
# minus the squared distance, divided by twice the square of the width.

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
# and keeps the two bends. It is farthest from the dashed line at the right end, where all samples lie to the left and are lower, and near
# 0.1, since nothing was measured between 0.05 and 0.19. (At the left end, too, the samples lie on one side; there it happens to come
# close.) Between 0.3 and 0.45 it runs a little below the line, as most of the samples there do.

# %% [markdown]
# ## Weights from content
#
# Back to the signal with the jump. Positions know nothing of the jump. So let us compare the samples themselves, their **content**,
# instead of their positions.
#
# **Predict.** The two kernels of positions were bands. Which pattern will the matrix of this kernel have?

# %%
def content_weights(signal, width=0.4):
    return normalised((-((signal[:, None] - signal) ** 2) / (2 * width**2)).exp())  # (L, L)


# %%
content = content_weights(signal)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", width_ratios=(3, 2))
smoothed = {"Gaussian of positions": gauss @ signal, "kernel of content": content @ signal}
plotting.dots_and_curves(position, signal, smoothed, truth=truth, title="positions and content", ax=axes[0])
plotting.heatmap(content, title="the kernel of content", xlabel="position j", ylabel="position i", ax=axes[1])
axes[1].images[0].colorbar.set_label("weight")
plotting.show("Left, the samples with the truth and the curves of both kernels; right, the weights of the kernel of content as a matrix.")


# %% [markdown]
# Two blocks have taken the place of the band: each sample averages those on its own side, which are like it. (Row 59, with the bright
# dots, is that of the highest sample: few others are like it, and these share its weight.) Nobody told the kernel where the jump is; we
# only chose its width.
#
# But this is one signal, and its noise is small beside the jump. So we repeat the comparison with 20 signals that differ in their noise,
# then with noise four times as large. The table has the mean distance from the truth over the 8 positions around the jump, and over the
# 60 farthest from it; in brackets the smallest and the largest of the 20 signals. *Samples* is the noise before any averaging.

# %%
def errors(weights_of, noise):
    around, away = [], []
    for seed in range(20):
        noisy = truth + noise * torch.randn(80, generator=torch.Generator().manual_seed(seed))  # (L,)
        error = (weights_of(noisy) @ noisy - truth).abs()  # (L,)
        around.append(error[36:44].mean())
        away.append(torch.cat([error[:30], error[50:]]).mean())
    return torch.stack([torch.stack(around), torch.stack(away)])  # (2, 20)


# %%
methods = {"samples": lambda noisy: torch.eye(80), "positions": lambda noisy: gauss, "content": content_weights}
for noise in (0.25, 1.0):
    print(f"noise {noise:4}   around the jump       away from it")
    for name, weights_of in methods.items():
        print(f"{name:11}", *(f" {e.mean():.2f} ({e.min():.2f} to {e.max():.2f}) " for e in errors(weights_of, noise)))

# %% [markdown]
# With little noise, both kernels remove most of it away from the jump. Around the jump the kernel of content still does, and that of
# positions does worse in each of the 20 signals: its smallest error, 0.48, is far above the other's largest, 0.10.
#
# With much noise, the kernel of content errs more than that of positions away from the jump, in each signal; around the jump the ranges
# overlap. It averages samples of similar value, from whichever side, so an output stays near its own sample, and its error with it. (One
# width was tried. What does the width 1.6 do with little noise, and with much? Change it above and run the cells again.)
#
# So each kind of weights has its use. For now we keep content alone, and go back to words.

# %% [markdown]
# ## Six words in the plane
#
# This *toy sentence* goes with us through the course. Its two features are made up again, stand for nothing in particular, and are whole
# numbers, so that you can do every sum in your head.

# %%
tokens = ["the", "cat", "sat", "on", "the", "mat"]
table = {"the": [1, 0], "cat": [0, 2], "sat": [-1, 1], "on": [1, -1], "mat": [1, 3]}
vectors = [table[token] for token in tokens]  # plain Python: 6 lists of 2 numbers
x = torch.tensor(vectors, dtype=torch.float64)  # (L, E) = (6, 2)

# %%
plotting.plane(x, tokens, title="six words, five points")
plotting.show("Five points in the plane, since both 'the' coincide; 'mat' is the farthest from the origin, 'cat' is next.")

# %% [markdown]
# ## One word asks
#
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
weighted_average(tokens, x, 0, *map(torch.tensor, (scores_of_the, row, new)))
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
plotting.heatmap(weights, rows=tokens, columns=tokens, title="attention weights", vmax=1)
plotting.show("Six by six weights: a row for each word as the query, and a column for each word as the key.")

# %% [markdown]
# *Cat* gives most of its weight to *mat*, 0.86, and only 0.12 to itself. By hand, the score of *cat* with *mat* is 0 · 1 + 2 · 3 = 6, and
# that of *cat* with itself 0 · 0 + 2 · 2 = 4. In the plane above the two point in similar directions, and *mat* is longer. (The weights
# that read 0.00 are positive, too, but round to 0.)

# %% [markdown]
# ## Dot product or distance?
#
# So why the dot product, and not the distance, as for the samples? For two vectors $a$ and $b$
#
# $$|a - b|^2 = |a|^2 + |b|^2 - 2\, a \cdot b .$$
#
# The score of a Gaussian of width 1 is therefore
#
# $$-\tfrac12 |x_i - x_j|^2 = x_i \cdot x_j - \tfrac12 |x_j|^2 - \tfrac12 |x_i|^2$$
#
# The last term is the same along a row, so it cancels in the softmax. What remains is the dot product and one term more,
# $-\tfrac12 |x_j|^2$, which lowers the score of a long key. **Predict**: to which word does *cat* give its largest weight now?

# %%
cat = x[1]  # (E,)
by_distance = (-((x - cat) ** 2).sum(dim=-1) / 2).softmax(dim=0)  # (L,)
half_squares = (x**2).sum(dim=-1) / 2  # (L,)
torch.testing.assert_close((x @ cat - half_squares).softmax(dim=0), by_distance)  # the term that remains
for name, row in {"by dot product": weights[1], "by distance": by_distance}.items():
    print(f"{name:14}", "  ".join(f"{token} {w:.3f}" for token, w in zip(tokens, row.tolist(), strict=True)))

# %% [markdown]
# The choice is reversed: by distance *cat* gives itself 0.524, and *mat* 0.193 in place of 0.863. This holds for every word: no key is
# nearer to it than itself, so by distance none gets more weight. For noisy samples that is reasonable. But *bank* should listen
# to *river* more than to itself, and the dot product allows it: the highest score goes to the key that reaches farthest in the query's
# direction. The price is that length now counts, whatever it stands for.
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
# Back to the plane. The shaded region is the [**convex hull**](../docs/glossary.md#c) of the old words: the smallest region without dents
# that contains them all. Does any of the new words leave it?

# %%
ax = plotting.plane(x, tokens, moved=output, hull=True, title="old words, new words, and the hull")
for i, place in {1: (-46, -6), 2: (6, -13), 3: (-42, 0), 4: (-42, 4), 5: (8, -13)}.items():  # beside its square, in points
    ax.annotate(f"new {tokens[i]}", output[i].tolist(), place, textcoords="offset points", fontsize=8)
plotting.show("Arrows lead from each word to its new place; the convex hull of the old words is shaded.")

# %% [markdown]
# None left the shaded region, and none can. (*Sat* moved almost onto *cat*; *mat* hardly moved.) Take two words with the weights
# 1/4 and 3/4:
#
# $$\tfrac14 x_1 + \tfrac34 x_2 = x_1 + \tfrac34\, (x_2 - x_1)$$
#
# Start at $x_1$ and go three quarters of the way to $x_2$: you are on the segment between the two. A third word pulls this point some
# part of the way towards itself, again along a segment, and so does every further word. Each segment joins two points of the hull, and a
# region without dents contains it. This needs weights that are positive and sum to 1: a negative one leads away from its word, and
# another sum leads off the segment, so that the output may leave the hull.

# %% [markdown]
# ## The formula
#
# $$w'_{ij} = x_i \cdot x_j, \qquad w_{ij} = \frac{e^{w'_{ij}}}{\sum_{m=1}^{L} e^{w'_{im}}}, \qquad
# y_i = \sum_{j=1}^{L} w_{ij}\, x_j$$
#
# The $w'_{ij}$ are the scores and the $w_{ij}$ the [**attention weights**](../docs/glossary.md#a). The table has their names in the code.

# %% [markdown]
# | symbol | variable | shape | here |
# |---|---|---|---|
# | $x_i$, a row of $X$ | `x[i]` | (E,) | (2,) |
# | $X$ | `x` | (L, E) | (6, 2) |
# | all $w'_{ij}$ | `scores` | (L, L) | (6, 6) |
# | all $w_{ij}$ | `weights` | (L, L) | (6, 6) |
# | $y_i$, a row of $Y$ | `output[i]` | (E,) | (2,) |
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
# The function has to agree with the loops, and with what the package calls `naive_attention`:

# %%
for mine, loops, package in zip(plain_attention(x), attention_in_loops(vectors), sciformer.naive_attention(x), strict=True):
    torch.testing.assert_close(mine, loops)
    torch.testing.assert_close(mine, package)
print("three ways, one result")

# %% [markdown]
# ## Back to the bank
#
# Now each of the two sentences from the beginning gets attention. The mean gave *bank* four parts of the one to one part of the other.
#
# **Predict.** Will attention lean to one side more strongly than the mean, or less? And *the*, which is (0, 0): what becomes of it?

# %%
for sentence in sentences:
    words = sentence.split()
    new_words, attention = plain_attention(vectors_of(words))  # (L, E), (L, L)
    print(sentence)
    for word in ("bank", "the"):
        i = words.index(word)
        print(f"    {word:4} becomes  {told(new_words[i])};  its largest weight is {attention[i].max():.2f}")

# %% [markdown]
# In one sentence *bank* became mostly water, and in the other mostly money: about nine parts to one. Its largest weight, 0.60, is that
# of *river*, to which the mean gives 1/8. And not all words come out alike now, since each chooses by its own vector. *The* cannot
# choose: (0, 0) scores 0 with every word, so it still gets the mean.
#
# But we have made up the vectors, and *river* got the length 3. **Predict**: it keeps its direction and becomes shorter, (2, 0) and then
# (1, 0). What becomes of *bank*, with attention and with the mean?

# %%
words = sentences[0].split()
bank, river = words.index("bank"), words.index("river")
for length in (3.0, 2.0, 1.0):
    old_words = vectors_of(words)
    old_words[river, 0] = length
    new_words, attention = plain_attention(old_words)
    gives = f"bank gives itself {attention[bank, bank]:.2f}, river {attention[bank, river]:.2f}"
    print(f"river ({length:.0f}, 0): {gives}, and becomes  {told(new_words[bank])};  the mean  {told(old_words.mean(dim=0))}")

# %% [markdown]
# *River* points the same way all the time. Yet at length 2 *bank* leans no further than with the mean, three parts to one, and at length
# 1 less far: it looks more at itself, and has 1.4 parts of water to one of money where the mean has two. It is as with *cat* and *mat*:
# to a dot product, length is importance. So the simplest attention turns *bank* further than the mean only if the word that matters has
# a vector long enough. In a trained model the vectors are learned, like the parameters in notebook 00, and have many more features.
#
# We shall come back to the banks. But first: how do you notice a mistake in attention, and how can one make it choose more sharply?

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
for n, (ax, (title, w)) in enumerate(zip(axes, candidates.items(), strict=True)):
    sums = [f"{token}  Σ={s:.2f}" for token, s in zip(tokens, w.sum(dim=-1), strict=True)]
    plotting.heatmap(w, rows=sums, columns=tokens, title=title, vmax=1, colorbar=False, ylabel="" if n else "query", ax=ax)
plotting.show("Three matrices of weights, each with the sums of its rows written beside it.")


# %% [markdown]
# Only in the first matrix do all rows sum to 1. In the second, the denominator counts only the first two words, and the row of *mat* sums
# to more than 50. In the third, the row of *sat* sums to less than half. That of *on* sums to 1.01, which looks like rounding and is
# not; so look at all rows. (The colours end at 1, so that 54.23 looks like 0.98: read the numbers.) Print row sums whenever you write a
# softmax.
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
# ## How sharp? The temperature
#
# Divide the scores by a [**temperature**](../docs/glossary.md#t) $T$ before the softmax, and look at the row of *cat*. Move the slider:
# where does *cat* copy a single word, with a weight above 0.99, and where does it take nearly the mean of all?

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
# At a low temperature attention copies the best match, or averages several that are equally good (as *the* has); at a high one it
# comes close to the mean. Without a temperature, $T$ is 1.
#
# **Question** (easy, 2 minutes). All six vectors become twice as long, at $T = 1$. With which temperature do the *old* vectors have
# the same weights?
#
# <details><summary>Answer</summary>
#
# $T = 1/4$. Both factors of every dot product are doubled, so every score is four times as large.
#
# </details>
#
# More features make a vector longer, too: each adds a square to its squared length. Notebook 02 corrects the scores for
# that, but for no other cause of length.
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

# %% [markdown]
# ## Does the order matter?
#
# You met the two sentences in one text, and so far attention has read them apart. Now it reads all 15 words at once.
#
# **Predict.** Which vectors do the two banks get?

# %%
text = " ".join(sentences).split()  # 15 words
old_words = vectors_of(text)
new_words, attention = plain_attention(old_words)
banks, river, money = [4, 14], text.index("river"), text.index("money")
for i in banks:
    gives = f"gives river {attention[i, river]:.2f}, money {attention[i, money]:.2f}"
    print(f"{text[i]} at position {i:2} {gives}, and becomes  {told(new_words[i])}")

# %% [markdown]
# They get the same vector, with as much water as money. Equal vectors have equal scores, equal weights and equal outputs, wherever they
# stand: our attention does not see which *bank* is near the *river*.
#
# Does it see anything of the order? **Predict**: shuffle the toy sentence. Will each word get the same new vector as before?

# %%
order = torch.tensor([5, 2, 0, 3, 1, 4])
shuffled, _ = plain_attention(x[order])
for new, i in zip(shuffled, order, strict=True):
    print(f"{tokens[i]:4} shuffled {new.round(decimals=3).tolist()}, before {output[i].round(decimals=3).tolist()}")


# %% [markdown]
# It will. Both *the* come out alike, like the banks. A sum over $j$ has a term for each occurrence of a word, in any order. So attention
# sees a *bag* of words: which words there are and how often each occurs, but not in which order.
#
# Our first kernels saw nothing but positions. For pictures, the *bilateral filter* multiplies the two kinds of kernels
# ([Tomasi and Manduchi 1998](https://doi.org/10.1109/ICCV.1998.710815)). It is your next exercise; then we do the same to the banks.
#
# ### Exercise 3 · middle · 8 minutes
#
# The bilateral filter: a Gaussian kernel of positions times one of content. Both are $e^{-d^2 / (2w^2)}$, where $d$ is the difference of
# two positions or of two samples and $w$ the width of that kernel. Sample $i$ stands at position $i$. Every output is an average of the
# samples: each row of the final weights sums to 1, while those of the two kernels need not.

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

# %% [markdown]
# ## The two banks
#
# The same for words. Since $e^a e^b = e^{a+b}$, kernels are multiplied by adding their scores: to each dot product we add the score of a
# Gaussian of positions, of width 3 as for the signal.
#
# **Predict.** What becomes of the two banks of the one text? And which part does it: would positions alone do as well?

# %%
place = torch.arange(len(text))  # (L,)
nearness = -((place[:, None] - place) ** 2) / (2 * 3**2)  # (L, L)
content = old_words @ old_words.T  # (L, L)
for name, text_scores in {"content": content, "positions": nearness, "both": content + nearness}.items():
    attention = text_scores.softmax(dim=-1)  # (L, L)
    for i in banks:
        gives = f"gives river {attention[i, river]:.2f}, money {attention[i, money]:.2f}"
        print(f"{name:9}  {text[i]} at position {i:2} {gives}, and becomes  {told(attention[i] @ old_words)}")


# %% [markdown]
# One text, and one word with two meanings: the first *bank* is mostly water and the second mostly money. Positions alone part them, too,
# by 2.4 to one, since they see what stands near; but they spend most of their weight on words that say nothing here, so that *bank*
# keeps little of anything. With both it is four to one. Content alone cannot part them at all.
#
# So this is how a word's meaning can depend on its neighbours. It rests on choices of ours: on the vectors, on the width, and on a text
# in which each *bank* stands three words from its clue and seven from the other one. And what we have added is distance, not order: read
# backwards, every word would get the same vector. Notebook 04 gives attention a sense of order, and in notebook 07 a model learns how
# much distance counts.

# %% [markdown]
# ## What it costs
#
# Every word looks at every word. **Predict**: when a text becomes twice as long, by what factor does the work grow, and by what factor
# the memory for the weights? And how many multiplications do the two matrix products of the toy sentence take?
#
# We can count the work without doing it: a *meta* tensor has a shape but no numbers, and torch's `FlopCounterMode` adds up the
# operations of the matrix products, without those of the softmax. It counts a multiplication and the addition that follows as two
# [**FLOPs**](../docs/glossary.md#f), floating-point operations; we count them as one **multiply-add**. (A MiB is $2^{20}$ bytes, and a
# GiB $2^{30}$.)

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
# Twice the tokens, four times the work and four times the memory. Each of the two matrix products takes $L^2 E$ multiply-adds,
# together $2 L^2 E$, for the toy sentence 2 · 6 · 6 · 2 = 144. There are $L^2$ weights: as many numbers as in $x$ where $L = E$, which
# was 64, and far more beyond. At 131,072 tokens, a single matrix of weights would fill 64 GiB.
#
# Operations are counted, time is measured, here as the processor's time on one core, the fastest of seven runs:

# %% tags=["nbval-ignore-output"]
threads = torch.get_num_threads()
torch.set_num_threads(1)
seconds = {}
for L in (512, 1024, 2048, 4096):
    many, runs = torch.randn(L, 64) / 8, []  # vectors of a length near 1
    for _ in range(7):
        start = time.process_time()
        plain_attention(many)
        runs.append(time.process_time() - start)
    seconds[L] = min(runs)
    print(f"{L:5} tokens: {1000 * seconds[L]:6.1f} ms")
torch.set_num_threads(threads)

# %% [markdown]
# As in notebook 00, a [**verdict**](../docs/glossary.md#v) prints a number beside its bound, and raises an error if it is on the wrong
# side. The bound says that eight times the tokens take more than eight times as long. Time in proportion to $L^2$ would give 64, and a
# larger factor means that each weight took longer, too; notebook 15 looks into what else takes time.

# %%
course.verdict("time for 4,096 tokens over time for 512", seconds[4096] / seconds[512], above=8)

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
# - Mean, smoothing filter, Nadaraya–Watson regression, attention: all are weights @ values. They differ in what the weights depend on:
#   nothing for the mean; positions or content for filters and regression; content for attention, until one adds positions.
# - The softmax runs over the keys, the last axis of the scores. Its weights are positive and each row sums to 1, so
#   that no output leaves the convex hull of the inputs.
# - A word's neighbours change its vector: *bank* came out mostly as water or mostly as money. Where the dot product is positive, a long
#   vector gets more weight: *cat* preferred the longer *mat* to itself, and beside a short *river* the mean turned *bank* further than
#   attention did.
# - This simplest attention has no parameters and sees no order: two banks in one text came out alike, until the scores took their
#   distances in. Its operations and its weights grow as $L^2$.

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
#
# Here the main line ends. In three optional sections the softmax is taken twice, left out (with an exercise), and replaced.

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
# layer to layer, in 32-bit numbers?

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
# ### Exercise 4 · hard · 12 minutes
#
# Attention without softmax, word by word. The words read so far are the rows of $X$. All that you keep of
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
# The rows sum to 0, so some weights must be negative: a token can *subtract* another. Two tests compare the three normalisers. First, no
# average is longer than the longest of its inputs: how many of the six outputs are? Second, compute the weights from $x$, and only then
# add 10 to every feature of the vectors that are averaged. (In notebook 02 these are no longer the vectors that are compared.)
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
# Third test: do the outputs grow? We take random tokens, and divide the mean length of the outputs by that of the inputs. The last number
# of each line is the mean weight that a token keeps for itself with the softmax.

# %%
for L, E, scale in ((64, 16, 0.1), (64, 16, 1), (64, 16, 10), (256, 16, 1), (64, 64, 1)):
    many = scale * torch.randn(16, L, E, generator=torch.Generator().manual_seed(0))  # 16 sentences of L words
    lengths_of = {name: sciformer.naive_attention(many, normalize=name)[0].norm(dim=-1).mean() for name in normalisers}
    ratios = [f"{name} × {length / many.norm(dim=-1).mean():.1f}" for name, length in lengths_of.items()]
    kept = sciformer.naive_attention(many)[1].diagonal(dim1=-2, dim2=-1).mean()  # the weight of a token on itself
    print(f"{L:3} tokens, {E} features, scale {scale:3}:  " + "   ".join(ratios) + f"   softmax keeps {kept:.2f}")

# %% [markdown]
# With raw scores the ratio grows with the tokens, with the features, and with the square of the scale. With standardised rows it grows
# with the tokens, falls with the features, and hardly depends on the scale (only through the 1e-5). In the last four lines the softmax is
# at 1, because there a token keeps most of its weight for itself. At a tenth of the scale its weights are nearly equal, and the output is
# close to the mean of the tokens, which is short.
#
# Which is best depends on what one wants: to pass on what is common to all words, or the differences alone. The transformer uses the
# softmax, whose outputs stay among the vectors that are averaged. Its weak spot is the scale, which makes its weights sharper, and which notebook 02 repairs in part.
#
# And in a whole model? Small transformers were trained with standardised rows and with the softmax, ten runs each; behind ± stands the
# **standard error**, by which a mean of ten runs is uncertain. On digits they were no worse: 92.1 ± 0.1 % right against 91.6 ± 0.2 %. On
# Shakespeare they were worse: the loss, which notebook 08 explains, was 2.418 ± 0.002 against 2.357 ± 0.004 (less is better;
# [all claims, measured](../docs/measured.md)).

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
