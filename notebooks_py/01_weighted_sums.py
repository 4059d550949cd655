# %% [markdown]
# # 01 Weighted sums
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/01_weighted_sums.ipynb)
#
# ← [00 Welcome](00_welcome.ipynb) · [the map of the course](00_welcome.ipynb) · [02 Scaled dot-product attention](02_scaled_dot_product.ipynb) →
#
# Needs: notebook 00 · runs in about 15 s on two CPU cores · about 2 hours of study

# %% [markdown]
# After this notebook you can
#
# - see mean, smoothing filter and attention as one weighted sum;
# - build attention without parameters, in loops and in matrices;
# - say over which axis the softmax runs, and what goes wrong otherwise;
# - tell what attention costs as the text grows.
#
# New: we open the box of notebook 00. Nothing is trained.

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

from sciformer import check, course, naive_attention, plotting
from sciformer.teach import explore

_ = torch.manual_seed(0)

# %% [markdown]
# ## Six words in the plane
#
# This sentence goes with us through the course. Each word gets two numbers, made up so that every sum below can be
# checked by hand.

# %%
tokens = ["the", "cat", "sat", "on", "the", "mat"]
table = {"the": [1, 0], "cat": [0, 2], "sat": [-1, 1], "on": [1, -1], "mat": [1, 3]}
vectors = [table[token] for token in tokens]  # plain Python: 6 lists of 2 numbers
x = torch.tensor(vectors, dtype=torch.float64)  # (L, E) = (6, 2): 6 tokens, 2 features
x.shape

# %%
plotting.plane(x, tokens, title="the tokens")
plt.show()

# %% [markdown]
# **Predict** before you go on. Every word will be replaced by a weighted sum of all six, and the weight grows with the
# dot product of two words. To which word will *cat* give its largest weight: to itself, or to another? The section
# *The whole of it, in loops* answers.

# %% [markdown]
# ## All the same: the mean
#
# The simplest weighted sum gives everybody the same weight, $1/L$. As a matrix: row $i$ holds the weights with which
# output $i$ is mixed.

# %%
uniform = torch.full((6, 6), 1 / 6, dtype=torch.float64)  # (L, L)
torch.testing.assert_close(uniform @ x, x.mean(dim=0).expand(6, 2))  # (L, L) @ (L, E) = (L, E)
(uniform @ x).round(decimals=3)

# %% [markdown]
# Every word became the same vector, the mean. Nothing is left of who was who.

# %% [markdown]
# ## Weights from positions
#
# Next: weigh neighbours more. Take a signal with a jump and some noise; each sample is now a token with one feature.

# %%
L = 80
place = torch.arange(L)  # (L,)
truth = torch.where(place < L // 2, -1.0, 1.0)  # (L,)
signal = truth + 0.25 * torch.randn(L, generator=torch.Generator().manual_seed(0))  # (L,)


# %% [markdown]
# A **kernel** says how much two places have to do with each other. Dividing each row by its sum makes it an average.
# The *box* takes all neighbours up to 4 places away; the *Gaussian* fades out.

# %%
def normalised(kernel):
    return kernel / kernel.sum(dim=-1, keepdim=True)  # each row now sums to 1


distance = place[:, None] - place  # (L, L)
box = normalised((distance.abs() <= 4).float())  # (L, L)
gauss = normalised((-(distance**2) / (2 * 3**2)).exp())  # (L, L)

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained")
plotting.heatmap(box, title="box", xlabel="place j", ylabel="place i", ax=axes[0])
plotting.heatmap(gauss, title="Gaussian", xlabel="place j", ylabel="place i", ax=axes[1])
plt.show()

# %% [markdown]
# The weights are a band along the diagonal: the same for any signal. **Predict**: what do they do to noise, and what to
# the jump?

# %%
smoothed = {"box": box @ signal, "Gaussian": gauss @ signal}  # (L, L) @ (L,) = (L,)
title = "fixed kernels: less noise, but the jump is smeared"
plotting.dots_and_curves(place, signal, smoothed, xlabel="place", title=title)
plt.show()

# %% [markdown]
# A Gaussian kernel is a softmax in disguise: exponentiate a **score**, then divide by the row's sum. The score here is
# minus the squared distance. Keep that shape in mind.

# %%
score = -(distance**2) / (2 * 3**2)  # (L, L)
torch.testing.assert_close(score.softmax(dim=-1), gauss)

# %% [markdown]
# ## Nadaraya and Watson, 1964
#
# Nothing forces us to ask at the places where we have samples. Ask at any place $q$:
#
# $$\hat f(q) = \sum_j \frac{K(q - k_j)}{\sum_m K(q - k_m)}\, v_j$$
#
# Query $q$, keys $k_j$, values $v_j$: the words of attention, in kernel regression (Nadaraya 1964,
# doi:10.1137/1109020; Watson 1964, *Sankhyā* A 26).

# %%
keys = torch.rand(40, generator=torch.Generator().manual_seed(1))  # (S,) where we measured
values = (2 * math.pi * keys).sin() + 0.2 * torch.randn(40, generator=torch.Generator().manual_seed(2))  # (S,)
queries = torch.linspace(0, 1, 200)  # (L,) where we ask


def nadaraya_watson(queries, keys, values, width):
    score = -((queries[:, None] - keys) ** 2) / (2 * width**2)  # (L, S)
    return score.softmax(dim=-1) @ values  # (L, S) @ (S,) = (L,)


# %%
widths = {f"width {w}": nadaraya_watson(queries, keys, values, w) for w in (0.005, 0.05, 0.3)}
title = "too narrow, about right, too wide"
plotting.dots_and_curves(keys, values, widths, at=queries, xlabel="query", title=title)
plt.show()

# %% [markdown]
# ## Weights from content
#
# Places know nothing of the jump. The samples do: those on the same side are alike. So compare *values* instead of
# places.

# %%
content = normalised((-((signal[:, None] - signal) ** 2) / (2 * 0.4**2)).exp())  # (L, L)
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", width_ratios=(2, 3))
plotting.heatmap(content, title="kernel of content", xlabel="place j", ylabel="place i", ax=axes[0])
smoothed = {"Gaussian of places": gauss @ signal, "kernel of content": content @ signal}
plotting.dots_and_curves(place, signal, smoothed, xlabel="place", title="content keeps the jump", ax=axes[1])
plt.show()

# %% [markdown]
# Two blocks instead of a band: the weights found the two sides by themselves, however far apart the samples are.
#
# The mean error near the jump (8 places) and far from it (the first 30). Content wins where it matters, and on flat
# ground it is no better than places.

# %%
for name, weights in (("box", box), ("Gaussian", gauss), ("content", content)):
    error = (weights @ signal - truth).abs()  # (L,)
    print(f"{name:9} near the jump {error[36:44].mean():.2f}   far from it {error[:30].mean():.2f}")

# %% [markdown]
# Image filters use both at once: the bilateral filter multiplies a kernel of places by one of content (Tomasi and
# Manduchi, ICCV 1998). Notebook 07 does the same to attention.
#
# From here on we keep content alone, and go back to words.

# %% [markdown]
# ## Naive attention, by hand
#
# Take the dot product as the score. The first word, *the* = (1, 0), against all six:

# %%
scores = [sum(vectors[0][d] * vectors[j][d] for d in range(2)) for j in range(6)]
scores

# %% [markdown]
# Exponentiate, so that every weight is positive; divide by the sum, so that they add up to 1. The new *the* is then the
# weighted sum of the old words, one feature at a time.

# %%
exponentials = [math.exp(s) for s in scores]
row = [e / sum(exponentials) for e in exponentials]
new = [sum(row[j] * vectors[j][d] for j in range(6)) for d in range(2)]
print("weights", [round(w, 3) for w in row])
print("output ", [round(value, 3) for value in new])


# %% [markdown]
# ## The whole of it, in loops
#
# Nothing but three loops: over the tokens that ask ($i$), over those that answer ($j$), over features ($d$).

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
plotting.heatmap(weights, rows=tokens, columns=tokens, title="who looks at whom", vmax=1)
print(f"cat to cat {weights[1, 1]:.3f}, cat to mat {weights[1, 5]:.3f}")
plt.show()

# %% [markdown]
# Your prediction: *cat* looks at *mat*, not at itself. The two point almost the same way, and *mat* is longer: its dot
# product with *cat* is 6, that of *cat* with itself only 4.
#
# In the plane, each word moved towards the words it looks at, and none left the shaded shape around the inputs: an
# average never does.

# %%
plotting.plane(x, tokens, moved=output, hull=True, title="before and after")
plt.show()

# %% [markdown]
# ## The formula
#
# $$w'_{ij} = x_i \cdot x_j, \qquad w_{ij} = \frac{e^{w'_{ij}}}{\sum_{m=1}^{L} e^{w'_{im}}}, \qquad
# y_i = \sum_{j=1}^{L} w_{ij}\, x_j$$

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
# Remove the loops one after the other. First $d$: a sum of products is a dot product, `@` between two vectors.

# %%
scores = torch.stack([torch.stack([x[i] @ x[j] for j in range(6)]) for i in range(6)])  # (L, L)

# %% [markdown]
# Then $j$: all dot products with $x_i$ at once are a matrix times a vector. Then $i$: all rows at once are a matrix
# times its transpose.

# %%
torch.testing.assert_close(torch.stack([x @ x[i] for i in range(6)]), scores)  # (L, E) @ (E,) = (L,), six times
torch.testing.assert_close(x @ x.T, scores)  # (L, E) @ (E, L) = (L, L)


# %% [markdown]
# What is left is three lines, and they equal the loops and the package.

# %%
def attention_in_matrices(x):
    scores = x @ x.T  # (L, E) @ (E, L) = (L, L)
    weights = scores.softmax(dim=-1)  # over j, the keys: each row sums to 1
    return weights @ x, weights  # (L, L) @ (L, E) = (L, E)


for a, b, c in zip(attention_in_matrices(x), attention_in_loops(vectors), naive_attention(x), strict=True):
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(a, c)

# %% [markdown]
# ## Break it: the sum over the wrong index
#
# Two slips that are easily written. In a formula: letting the denominator run over the $E$ features instead of the $L$
# tokens. In code: `softmax(dim=0)`, which runs down the columns. Neither raises an error.

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
plt.show()

# %% [markdown]
# Only on the left do the rows sum to 1. In the middle the row of *mat* sums to more than 50; on the right the weights
# of *sat* sum to less than half. Print row sums whenever you write a softmax.

# %% [markdown]
# ## Another slip: $w$ on both sides
#
# Sometimes one reads $w_{ij} = e^{w_{ij}} / \sum_m e^{w_{im}}$, with the prime lost. Taken as code, that applies the
# softmax twice. The row of *cat*, once, twice, and so on:

# %%
again = scores
for times in range(1, 6):
    again = again.softmax(dim=-1)  # rows sum to 1 each time
    print(f"softmax × {times}: " + " ".join(f"{w:.2f}" for w in again[1]))


# %% [markdown]
# Here the row sums do not give it away. Weights lie between 0 and 1, so their exponentials differ by a factor of at
# most *e*: nearly uniform. Repeat it, and the mean from the beginning is back.

# %% [markdown]
# ## Your turn
#
# **1. (middle, 5 minutes)** Show that the equation $w_j = e^{w_j} / \sum_m e^{w_m}$, read as it stands, has only one
# solution.
#
# <details><summary>Answer</summary>
#
# It says that $w_j e^{-w_j}$ is the same number for every $j$. All $w_j$ lie between 0 and 1, and there $t e^{-t}$ grows
# strictly, so it takes each value once: all $w_j$ are equal, and since they sum to 1, each is $1/L$.
#
# </details>
#
# **2. (easy, 3 minutes)** Multiply every number by 20, `[[20 * a for a in v] for v in vectors]`, and run the loops on it. What
# happens? Why does torch survive `20 * x`?
#
# <details><summary>Answer</summary>
#
# `math.exp` raises an `OverflowError`: *cat* with itself scores 1600, and $e^{710}$ is too large for a float. A softmax does not
# change when the same number is taken from every score of a row, since it cancels in the fraction. torch takes away the
# row's largest; the largest exponential is then 1.
#
# </details>

# %% [markdown]
# ## How sharp? The temperature
#
# Divide the scores by a temperature $T$ before the softmax, and look at the row of *cat*. Move the slider: where is the
# hard look-up, where the mean?

# %%
def row_of_cat(temperature):
    row = (scores[1] / temperature).softmax(dim=-1)  # (L,)
    title = f"cat looks at …   (orange: itself)   T = {temperature:.3g}"
    return plotting.bars(row, tokens, top=1.1, highlight=1, title=title)


slider = ipywidgets.FloatLogSlider(value=1, min=-1, max=2, step=0.1, description="temperature")
explore(row_of_cat, alt="Bars: the weights of cat over the six words; colder is sharper.", temperature=slider)

# %% [markdown]
# Cold (0.1), it copies the best match; hot (1000), it is the uniform mean. Longer vectors mean larger scores, so their
# length sets a temperature by accident. Notebook 02 sets it on purpose.

# %%
cold, hot = (scores[1] / 0.1).softmax(dim=-1), (scores[1] / 1000).softmax(dim=-1)
print(cold.round(decimals=2).tolist())
print(hot.round(decimals=2).tolist())

# %% [markdown]
# ## Dot product or distance?
#
# Multiply out the Gaussian kernel of content:
#
# $$-\tfrac12 |x_i - x_j|^2 = x_i \cdot x_j - \tfrac12 |x_j|^2 - \tfrac12 |x_i|^2$$
#
# The last term is the same along a row and cancels in the softmax. So the two differ by one term, a handicap for long
# keys.

# %%
half_squares = (x**2).sum(dim=-1) / 2  # (L,)
gaussian = (-(torch.cdist(x, x) ** 2) / 2).softmax(dim=-1)  # (L, L)
torch.testing.assert_close((x @ x.T - half_squares).softmax(dim=-1), gaussian)
print(f"cat to cat {gaussian[1, 1]:.3f}, cat to mat {gaussian[1, 5]:.3f}")

# %% [markdown]
# With the handicap, *cat* looks at itself first. Without it, length counts: let *mat* grow, and see who looks at it.

# %%
factors = torch.linspace(0, 2, 41, dtype=torch.float64)
looks = []  # one row of L weights a factor
for factor in factors:
    grown = x.clone()
    grown[5] *= factor
    looks.append(naive_attention(grown)[1][:, 5])
lines = {tokens[i]: torch.stack([factors, torch.stack(looks)[:, i]], dim=-1) for i in (0, 1, 2, 3)}
title = "a long token draws in all that point its way"
plotting.curves(lines, xlabel="length of mat (1 = as it is)", ylabel="weight on mat", title=title)
plt.show()

# %% [markdown]
# *on* points away from *mat* and turns from it all the more. For the others, length is loudness: a token cannot be
# long without also being heard.

# %% [markdown]
# ## Without the softmax
#
# Use the raw scores as weights and two matrix products remain: $Y = (X X^\top) X$. No row needs to sum to 1, and each
# output multiplies three tokens.

# %%
y, w = naive_attention(x, normalize="none")
torch.testing.assert_close(y, (x @ x.T) @ x)
print("row sums", w.sum(dim=-1).tolist())
print("lengths before", x.norm(dim=-1).round(decimals=1).tolist())
print("lengths after ", y.norm(dim=-1).round(decimals=1).tolist())

# %% [markdown]
# Feed the output in again, as a stack of layers would. In 32-bit numbers:

# %%
deep = x.float()
for layer in range(1, 5):
    deep, _ = naive_attention(deep, normalize="none")
    print(f"layer {layer}: longest token {deep.norm(dim=-1).max():.0e}")


# %% [markdown]
# ## A third normaliser: standardised rows
#
# What if each row is brought to mean 0 and standard deviation 1 instead?
#
# $$w_{ij} = \frac{w'_{ij} - \text{mean}_j\, w'_{ij}}{\text{std}_j\, w'_{ij}}$$

# %%
def standardised(scores):
    centred = scores - scores.mean(dim=-1, keepdim=True)  # (L, L)
    return centred / centred.pow(2).mean(dim=-1, keepdim=True).add(1e-5).sqrt()  # 1e-5: no division by 0


torch.testing.assert_close(naive_attention(x, normalize="standardize")[1], standardised(scores))
standardised(scores).sum(dim=-1).abs().round(decimals=3)

# %% [markdown]
# The rows sum to 0, so some weights must be negative: a token can *subtract* another.

# %%
normalisers = ("softmax", "none", "standardize")
all_weights = torch.stack([naive_attention(x, normalize=name)[1] for name in normalisers])  # (3, L, L)
plotting.heatmap(all_weights[2], rows=tokens, columns=tokens, signed=True, title="standardised rows")
plt.show()

# %% [markdown]
# ## Three normalisers, one test
#
# First: does the output stay among the inputs? An average reaches no further than all of them, in any direction. So an
# output that does in its own, $y \cdot y > \max_j x_j \cdot y$, is outside the convex hull.

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3.6), layout="constrained")
for ax, name in zip(axes, normalisers, strict=True):
    y, _ = naive_attention(x, normalize=name)
    outside = (y * y).sum(dim=-1) > (y @ x.T).amax(dim=-1) + 1e-9  # (L,)
    crowded, title = name != "softmax", f"{name}: {outside.sum()} of 6 outside"
    plotting.plane(x, tokens, moved=y, hull=True, label_moved=crowded, legend=not crowded, title=title, ax=ax)
plt.show()

# %% [markdown]
# Mind the axes: the shaded shape is the same three times. Second: what if all that is handed on carries the same offset
# $b$, while the weights stay as they are? Each row hands on its sum times $b$.

# %%
b = torch.tensor([10.0, 10.0], dtype=torch.float64)
for name, w in zip(normalisers, all_weights, strict=True):
    change = w @ (x + b) - w @ x  # (L, E): what the offset of the values does to the output
    print(f"{name:12} the offset of 10 arrives as {[round(c) + 0 for c in change[:, 0].tolist()]}")


# %% [markdown]
# Softmax passes on what is common to all; standardised rows cancel it and keep contrasts alone. Third: growth, on random
# tokens. Output length over input length, for more tokens and for more features.

# %%
def growth(inputs, sizes):
    """For each normaliser: [(size, mean length of the outputs / mean length of the inputs), …]."""
    series = {}
    for name in normalisers:
        outputs = [naive_attention(x, normalize=name)[0] for x in inputs]
        ratios = [(y.norm(dim=-1).mean() / x.norm(dim=-1).mean()).item() for x, y in zip(inputs, outputs, strict=True)]
        series[name] = list(zip(sizes, ratios, strict=True))
    return series


def slope(points):
    """Exponent p of y ~ size^p between the first point and the last."""
    (a, y_a), (b, y_b) = points[0], points[-1]
    return math.log(y_b / y_a) / math.log(b / a)


# %%
sizes = [2, 4, 8, 16, 32, 64, 128, 256, 512]
scales = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
by_tokens = growth([torch.randn(16, L, 16) for L in sizes], sizes)  # 16 draws each, (16, L, E)
by_features = growth([torch.randn(16, 64, E) for E in sizes], sizes)
by_scale = growth([s * torch.randn(16, 64, 16) for s in scales], scales)
figure, axes = plt.subplots(1, 3, figsize=(10, 3.3), layout="constrained")
names = ("number of tokens L", "number of features E", "scale of the inputs")
for ax, series, name in zip(axes, (by_tokens, by_features, by_scale), names, strict=True):
    plotting.curves(series, xlabel=name, ylabel="output length / input length", logy=True, ax=ax).set_xscale("log")
plt.show()

# %% [markdown]
# Softmax stays near 1 or below: with tiny inputs it is the mean, where random vectors cancel. Raw scores grow with
# tokens, features and the square of the scale. Standardised rows do not feel the scale; they grow with the tokens and
# shrink with the features.

# %%
course.verdict("slope in tokens, softmax", slope(by_tokens["softmax"]), above=-0.1, below=0.1)
course.verdict("slope in tokens, none", slope(by_tokens["none"][6:]), above=0.8, below=1.1)
course.verdict("slope in tokens, standardize", slope(by_tokens["standardize"][6:]), above=0.8, below=1.1)
course.verdict("slope in features, standardize", slope(by_features["standardize"]), above=-0.5, below=-0.1)
course.verdict("slope in scale, none", slope(by_scale["none"]), above=1.9, below=2.1)
course.verdict("slope in scale, standardize", slope(by_scale["standardize"]), above=-0.1, below=0.1)

# %% [markdown]
# In fairness: that slope near 1 goes away when standardised rows, or raw scores, are divided by $L$. And softmax pays for its
# calm: with many features its ratio is 1 because each token merely copies itself. The mean weight that a token keeps for
# itself:

# %%
kept = {E: naive_attention(torch.randn(64, E))[1].diagonal().mean().item() for E in (2, 8, 32, 128)}
course.verdict("weight kept for itself, 2 features", kept[2], below=0.2)
course.verdict("weight kept for itself, 128 features", kept[128], above=0.99)

# %% [markdown]
# | | softmax | none | standardize |
# |---|---|---|---|
# | a row sums to | 1 | anything | 0 |
# | negative weights | no | yes | yes |
# | stays in the convex hull | always | no | no |
# | a common offset of what is handed on | passes | is scaled | cancels |
# | scale of the inputs | sets the sharpness | squared | no effect |

# %% [markdown]
# No column wins every row. The field took softmax; notebook 02 repairs its weak spot, the scale.

# %% [markdown]
# ## Order is invisible
#
# Shuffle the words. The outputs are shuffled along, and are otherwise the same: attention is *permutation equivariant*.

# %%
order = torch.tensor([5, 2, 0, 3, 1, 4])
torch.testing.assert_close(naive_attention(x[order])[0], naive_attention(x)[0][order])
for i in order:
    print(f"{tokens[i]:4}", naive_attention(x)[0][i].round(decimals=3).tolist())


# %% [markdown]
# So both *the* come out alike, though one belongs to *cat* and one to *mat*. Notebook 04 gives attention a sense of
# place.

# %% [markdown]
# ## What it costs
#
# Count, without computing: a *meta* tensor has a shape but no numbers, and torch's counter adds up the multiplications.
# It counts a multiplication and an addition as two.

# %%
def cost(tokens, features=64):
    x = torch.empty(tokens, features, device="meta")  # (L, E)
    with FlopCounterMode(display=False) as counter:
        _, weights = naive_attention(x)
    return counter.get_total_flops() // 2, weights.nbytes, x.nbytes


print("multiply-adds of the toy sentence:", cost(6, 2)[0], "=", 2 * 6 * 6 * 2)

# %%
lengths = [2**k for k in range(6, 18)]
costs = {L: cost(L) for L in lengths}
for L in (1024, 2048, 131072):
    work, weight_bytes, input_bytes = costs[L]
    print(
        f"{L:6} tokens: {work:.1e} multiply-adds, weights {weight_bytes / 2**20:8.0f} MiB, x {input_bytes / 2**20:.2f} MiB"
    )

# %% [markdown]
# Twice the tokens, four times the work and the memory: $2 L^2 E$ multiply-adds, $L^2$ weights.

# %%
work = {"multiply-adds": [(L, costs[L][0]) for L in lengths]}
memory = {"weights": [(L, costs[L][1]) for L in lengths], "x": [(L, costs[L][2]) for L in lengths]}
figure, axes = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
plotting.curves(work, xlabel="tokens", ylabel="multiply-adds", title="work", logy=True, ax=axes[0])
plotting.curves(memory, xlabel="tokens", ylabel="bytes", title="memory", logy=True, ax=axes[1])
for ax in axes:
    ax.set_xscale("log", base=2)
print(
    f"slopes: work {slope(work['multiply-adds']):.2f}, weights {slope(memory['weights']):.2f}, x {slope(memory['x']):.2f}"
)
plt.show()

# %% [markdown]
# And the clock? We take the processor's time on one core, which other programs hardly disturb, and the fastest of seven
# runs. A slope above 2 is no mistake: a matrix of 4096 × 4096 weights takes 64 MiB, which is more than the processor's
# caches hold, so that the time is spent on memory as well as on arithmetic.

# %% tags=["nbval-ignore-output"]
threads = torch.get_num_threads()
torch.set_num_threads(1)
seconds = []
for L in (256, 512, 1024, 2048, 4096):
    many, runs = torch.randn(L, 64) / 8, []
    for _ in range(7):
        start = time.process_time()
        naive_attention(many)
        runs.append(time.process_time() - start)
    seconds.append((L, min(runs)))
torch.set_num_threads(threads)
lines = {"measured": seconds, "slope 2": [(L, seconds[-1][1] * (L / 4096) ** 2) for L, _ in seconds]}
plotting.curves(lines, xlabel="tokens", ylabel="seconds", title="time", logy=True).set_xscale("log", base=2)
print(f"slope from 512 to 4096 tokens: {slope(seconds[1:]):.2f}")
plt.show()

# %%
course.verdict("slope of the time", slope(seconds[1:]), above=1.5)

# %% [markdown]
# Without softmax the brackets may move: $(X X^\top) X = X (X^\top X)$. The right side never builds an $L \times L$
# matrix: $2 L E^2$ multiply-adds, linear in tokens. Softmax stands between the two products and forbids it.

# %%
torch.testing.assert_close((x @ x.T) @ x, x @ (x.T @ x))
long = torch.empty(131072, 64, device="meta")
with FlopCounterMode(display=False) as counter:
    long @ (long.T @ long)
print(f"{costs[131072][0] / (counter.get_total_flops() // 2):.0f} times fewer multiply-adds")


# %% [markdown]
# ## Exercises
#
# Replace `raise NotImplementedError` and run the cell. The first wrong run shows what is wrong, the second names the mistake.
#
# ### Exercise 1 · easy · 5 minutes
#
# Naive attention at a temperature: the dot products, without $1/\sqrt E$, are divided by it before the softmax. Treat
# all words at once, and give their new vectors.

# %%
def tempered_attention(x, temperature):  # (L, E), a number
    raise NotImplementedError  # (L, E)


check.tempered_attention(tempered_attention)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The three lines of *One index at a time*, and one division more.
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
# ### Exercise 2 · middle · 8 minutes
#
# The bilateral filter: a Gaussian kernel of positions times one of content, $e^{-d^2 / 2w^2}$ each, where $w$ is its
# width, as in `gauss` and `content` above. Every output is an average of the samples: the weights of a row sum to 1.

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
# ### Exercise 3 · hard · 12 minutes
#
# Attention without softmax, word by word. Of the words before, $X$, you keep only `state` $= X^\top X$. Give the new
# word's output, in which it sees those words and itself, and the state that includes it. Nothing is divided: the output
# is the plain sum of words, each times its dot product with the new one. Make a new state and leave the old one as it
# is.

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
# ## Your turn
#
# **3. (easy, 2 minutes)** For which lengths is $X (X^\top X)$ the *worse* choice?
#
# <details><summary>Answer</summary>
#
# $2 L E^2$ against $2 L^2 E$: for $L < E$, fewer tokens than features. (Linear attention, arXiv:2006.16236, builds on
# these moving brackets.)
#
# </details>
#
# **4. (middle, 4 minutes)** Replace the vector of *cat* by (0, −2). Which rows of the heatmap change, and does *the* look
# elsewhere?
#
# <details><summary>Answer</summary>
#
# All but the two rows of *the*: its dot product with *cat* is 0 either way. Its *output* changes all the same, since the
# cat that it mixes in is another. *cat* itself now looks at itself, then at *on*.
#
# </details>

# %% [markdown]
# ## Takeaways
#
# - Mean, smoothing filter, attention: all are weights @ values. They differ in where the weights come from: nowhere,
#   places, content.
# - The softmax runs over the keys, the last axis of the scores; check that rows sum to 1.
# - Naive attention has no parameters, sees no order, listens to length, and costs $L^2$.

# %% [markdown]
# ## Three questions
#
# **1.** `weights` is (L, L). Which of its sums are 1: rows or columns?
#
# <details><summary>Answer</summary>
#
# Rows. Row $i$ holds what token $i$ takes from each token $j$. A column may sum to anything: how much a token is
# listened to.
#
# </details>
#
# **2.** Why can an output of softmax attention never be longer than the longest input?
#
# <details><summary>Answer</summary>
#
# It is an average with non-negative weights that sum to 1, and the length of an average is at most the average of the
# lengths.
#
# </details>
#
# **3.** Which one change would make *cat* look at *mat* while *mat* ignores *cat*?
#
# <details><summary>Answer</summary>
#
# Two different vectors for asking and for answering. With one vector the score is symmetric: $x_i \cdot x_j = x_j \cdot
# x_i$. (Normalising each row breaks the symmetry of the weights, but not freely.)
#
# </details>

# %% [markdown]
# ## To read, and what is missing
#
# - Wang et al. 2018, arXiv:1711.07971, section 3.2: *Gaussian* is our softmax; *dot product* divides by $L$ instead.
# - Vaswani et al. 2017, arXiv:1706.03762, section 3.2.

# %% [markdown]
# One vector plays three parts here: it asks, it answers, it is handed on. **Next**, 02: three learned matrices give each
# part a vector of its own, $q$, $k$ and $v$.
