# %% [markdown]
# # 02 Scaled dot-product attention
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/02_scaled_dot_product.ipynb)
#
# ← [01 Weighted sums](01_weighted_sums.ipynb) · [the map of the course](00_welcome.ipynb) · [03 Multi-head attention](03_multi_head.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) **02** [03](03_multi_head.ipynb) [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb)
#
# Needs: notebook 01 · runs in about 40 s on two CPU cores · about 3 hours of study

# %% [markdown]
# Read this sentence:
#
# > *The animal didn't cross the street because **it** was too **tired**.*
#
# You knew at once that *it* is the animal. Now replace *tired* by *wide*. Suddenly *it* is the street, although
# nothing about the word *it* has changed. To understand *it*, you have to look at the right other word.
#
# Whoever translates this sentence into French must choose between *il* and *elle*, and therefore must know what *it*
# is. In June 2017 [Vaswani and colleagues](https://arxiv.org/abs/1706.03762) published a translator in which such
# looks were the only way for words to tell each other anything. They called the look **scaled dot-product
# attention**. What looks, with matrices of its own, is called a [**head**](../docs/glossary.md#h). In August
# [Google's own
# report](https://research.google/blog/transformer-a-novel-neural-network-architecture-for-language-understanding/)
# showed with exactly this sentence where one of the translator's heads looked. The same formula runs in the chatbots
# that you have used.
#
# After this notebook you can
#
# - build one attention head by hand, as a function and as a class, and prove that it equals torch's;
# - say where the divisor $\sqrt d$ comes from, and what happens without it;
# - hide the future and the padding with a mask, and catch a leak with a gradient;
# - train a head, and read off what it has learned to look at.

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
from sciformer import check, course, plotting
from sciformer.data import batches, lookup
from sciformer.teach import Switches, explore
from sciformer.teach.diagrams.heads import attention_head
from sciformer.teach.diagrams.language import shifted_by_one

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## Predict first
#
# Write down your answers. You will meet each of them again beside a measured number.
#
# 1. One head looks at the sentence above, once, and we replace *tired* by *wide*. Compare the weight that *it* gives to
#    *animal* with the weight that it gives to *street*. Does their ratio change?
# 2. Two vectors of $d$ random numbers, each with mean 0 and variance 1, are multiplied by a dot product. We go from
#    $d = 4$ to $d = 1024$. How many times larger is the typical dot product?
# 3. A softmax over 32 such products: does its largest weight stay, shrink, or grow towards 1?

# %% [markdown]
# ## One vector, three parts
#
# We keep six words of the sentence, and describe each by four features (E = 4). **These numbers are set by hand**, so
# that you can check everything that follows; a real model learns them. The features say how much a word has to do
# with living things, how much with roads, whether it is a pronoun, and whether it is an adjective.

# %%
table = {
    "animal": [2, 0, 0, 0],  # living, road, pronoun, adjective
    "didn't": [0, 0, 0, 0],
    "cross": [1, 1, 0, 0],
    "street": [0, 2, 0, 0],
    "it": [0, 0, 2, 0],
    "tired": [2, 0, 0, 2],  # only living things tire
    "wide": [0, 2, 0, 2],  # roads are wide
}
tokens = ["animal", "didn't", "cross", "street", "it", "tired"]
x = torch.tensor([table[token] for token in tokens], dtype=torch.float64)  # (L, E) = (6, 4)

# %% [markdown]
# In notebook 01 each word played every part with this one vector. Then *it* and *tired* have nothing to say to each
# other: their dot product is 0. And the scores are symmetric: the score of *animal* for *tired* has to equal the
# score of *tired* for *animal*.

# %%
naive_scores = x @ x.T  # (L, L)
print("it · tired =", naive_scores[4, 5].item(), "  symmetric:", torch.equal(naive_scores, naive_scores.T))

# %% [markdown]
# The cure is to give each word three vectors, each made by a matrix of its own:
#
# - the [**query**](../docs/glossary.md#q) says what the word looks for;
# - the [**key**](../docs/glossary.md#k) says what the word can be found by;
# - the [**value**](../docs/glossary.md#v) is what the word hands over when it is found.
#
# Think of a library: your question is the query, the labels on the shelves are the keys, and what stands in the books
# are the values. The three have different jobs, so they need not be the same numbers.
#
# Our matrices let a pronoun look for an adjective (the first feature of query and key), a living thing for living
# things (the second), and a road for roads (the third).

# %%
W_q = torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 0, 0]]).double()  # (E, D) = (4, 3)
W_k = torch.tensor([[0, 1, 0], [0, 0, 1], [0, 0, 0], [2, 0, 0]]).double()  # (E, D)
W_v = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]]).double()  # (E, D)
query, key, value = x @ W_q, x @ W_k, x @ W_v  # three times (L, E) @ (E, D) = (L, D)
for i in (3, 4, 5):
    print(f"{tokens[i]:7} query {query[i].tolist()}  key {key[i].tolist()}  value {value[i].tolist()}")

# %% [markdown]
# ## One word looks
#
# Let *it* look. Its query meets every key in a dot product, which is divided by $\sqrt 3$ (the section after next
# says why). The softmax turns the six **scores** into six **weights**, and the weights average the values.

# %%
i = 4  # it
scores_of_it = torch.stack([query[i] @ key[j] / math.sqrt(3) for j in range(6)])  # (S,)
weights_of_it = scores_of_it.exp() / scores_of_it.exp().sum()  # (S,), sums to 1
output_of_it = sum(weights_of_it[j] * value[j] for j in range(6))  # (D,)
print("scores ", [round(s, 2) for s in scores_of_it.tolist()])
print("weights", [round(w, 2) for w in weights_of_it.tolist()])
print("output ", [round(y, 2) for y in output_of_it.tolist()])

# %% [markdown]
# Check it: the only product that is not 0 is $2 \cdot 4 = 8$ with *tired*, and $8 / \sqrt 3 = 4.62$. Then $e^{4.62} =
# 101$ stands against five times $e^0 = 1$, so *tired* gets $101/106 = 0.95$ of the attention. The output is nearly
# the value of *tired*: from now on *it* carries the news that it is about something living.
#
# All words do this at the same time. Here is the whole head, with every number in it.

# %%
scores = query @ key.T / math.sqrt(3)  # (L, D) @ (D, S) = (L, S)
weights = scores.softmax(dim=-1)  # over the keys: rows sum to 1
output = weights @ value  # (L, S) @ (S, D) = (L, D)
attention_head(tokens, x, query, key, value, scores, weights, output)
plotting.show(
    "A diagram of one head. From x, six words with four features, arrows lead to queries, keys and values. Queries and "
    "keys give a table of scores, the softmax turns it into weights, and weights and values give the output."
)

# %% [markdown]
# Read the diagram along the row of *it*. Its query, on the left, meets the keys, which stand as columns above the
# scores. The one large score becomes the one large weight, and the row of the output is nearly *tired*'s value.
#
# The row of *didn't* shows the other extreme: its query is 0, so all its scores are equal and it gets the plain
# average.

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
# L counts queries and S counts keys; here both are 6. E is the number of features of a word, and in front there will
# be B, the number of examples in a [**batch**](../docs/glossary.md#b). D is the [**head
# dimension**](../docs/glossary.md#h), the number of features of a query and a key. In matrices these are three lines,
# the ones above the diagram: scores, weights, output. Every attention in this course has the same three lines. Other
# mechanisms change the first one, and a mask, which comes soon, stands between the first and the second.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
names = {"rows": tokens, "columns": tokens, "vmax": 1, "colorbar": False}
plotting.heatmap(naive_scores.softmax(dim=-1), title="notebook 01: one vector a word", ax=axes[0], **names)
plotting.heatmap(weights, title="query, key and value", ax=axes[1], **names)
plotting.show(
    "Two tables of weights. With one vector a word, the word it looks at itself. With query, key and value, it looks at tired, "
    "and tired does not look back: it looks at living things."
)


# %% [markdown]
# On the left the scores are symmetric, although the weights are not, since each row is divided by its own sum; and
# nothing is divided by $\sqrt 3$. There *it* looks mostly at itself, the only word with its feature. On the right
# *it* looks at *tired*, while *tired* looks at *animal* and at itself: asking and answering have come apart.

# %% [markdown]
# ## Why $1/\sqrt d$
#
# Why did we divide by $\sqrt 3$? A dot product is a sum of $d$ terms. If the entries of $q$ and $k$ are independent,
# with mean 0 and variance 1, each term has variance 1, and the variances add up to $d$. A footnote in section 3.2.1
# of [*Attention is all you need*](https://arxiv.org/abs/1706.03762) says so. We measure it, with 1000 queries and 32
# keys for each.

# %%
def random_scores(d):
    generator = torch.Generator().manual_seed(d)
    q = torch.randn(1000, 1, d, generator=generator)  # (N, 1, d)
    k = torch.randn(1000, 32, d, generator=generator)  # (N, S, d)
    return (q @ k.transpose(-2, -1)).squeeze(1)  # (N, S)


sizes = [4, 16, 64, 256, 1024]
raw = {d: random_scores(d) for d in sizes}
scaled = {d: raw[d] / math.sqrt(d) for d in sizes}
for d in sizes:
    print(f"d = {d:4}   variance of q·k {raw[d].var():7.1f}   of q·k/√d {scaled[d].var():.2f}")

# %% [markdown]
# The variance is $d$, and dividing by $\sqrt d$ brings it back to 1. Your second prediction asked for the typical
# size, which is the root of the variance. It should grow by $\sqrt{1024/4} = 16$. (With 1000 random queries the
# measured ratio scatters by about 1 %. The bounds of the verdict leave room for four times that.)

# %%
growth = (raw[1024].std() / raw[4].std()).item()
course.verdict("typical q·k at d = 1024, as a multiple of that at d = 4", growth, above=15.3, below=16.7)


# %% [markdown]
# ### What the softmax makes of it
#
# There are two ways to see how sharply a row looks: its largest weight, and its [**entropy**](../docs/glossary.md#e).
# The entropy, as a share of $\log 32$, is 1 for a uniform row and 0 for a row that looks at a single key.

# %%
def hardness(scores):
    w = scores.softmax(dim=-1)  # (N, S)
    entropy = torch.special.entr(w).sum(dim=-1)  # (N,): -Σ w log w
    return w.amax(dim=-1).mean().item(), entropy.mean().item() / math.log(32)


for d in sizes:
    (largest, entropy), (largest_s, entropy_s) = hardness(raw[d]), hardness(scaled[d])
    print(f"d = {d:4}   largest {largest:.2f}, scaled {largest_s:.2f}   entropy {entropy:.2f}, scaled {entropy_s:.2f}")


# %% [markdown]
# Your third prediction: without the scale the largest weight grows towards 1. A large head whose queries and keys are
# still random already stares at one key, and chance has chosen which. With the scale, the numbers are the same at
# every $d$.
#
# Move the slider to see one query and its 32 keys.

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
# A model learns by its **gradient**: how much would the result move if a score moved? For the softmax the answer is
# the **Jacobian**, the table of all derivatives, $\partial w_i / \partial s_j = w_i(\delta_{ij} - w_j)$, where
# $\delta_{ij}$ is 1 if $i = j$ and 0 otherwise. If one weight is 1 and the rest are 0, every entry is 0, and the
# scores of such a row cannot learn.

# %%
def softmax_jacobian(w):
    return torch.diag_embed(w) - w[..., :, None] * w[..., None, :]  # (..., S, S)


def gradient_size(scores):
    return torch.linalg.matrix_norm(softmax_jacobian(scores.softmax(dim=-1))).median().item()  # of 1000 queries


row = raw[4][0]
by_torch = torch.autograd.functional.jacobian(lambda s: s.softmax(dim=-1), row)
torch.testing.assert_close(softmax_jacobian(row.softmax(dim=-1)), by_torch)

# %%
unscaled_sizes = [(d, gradient_size(raw[d])) for d in sizes]
scaled_sizes = [(d, gradient_size(scaled[d])) for d in sizes]
to_product = [(d, size / math.sqrt(d)) for d, size in scaled_sizes]  # the backward pass meets the 1/√d once more
lines = {"unscaled": unscaled_sizes, "scaled": scaled_sizes, "scaled, back to q·k": to_product}
title, ylabel = "what passes back through the softmax", "median size of gradient"
ax = plotting.curves(lines, xlabel="d", ylabel=ylabel, title=title, logy=True)
ax.set_xscale("log", base=2)
plotting.show(
    "Three lines against the head size. Without the scale the gradient falls by orders of magnitude; with it, it stays "
    "level; multiplied by the scale once more, it falls slowly and crosses the first line."
)

# %% [markdown]
# At $d = 1024$ next to nothing passes without the scale. These are the "extremely small gradients" that the paper
# suspects.
#
# But be fair. On its way back to $q \cdot k$ the scaled gradient meets the factor $1/\sqrt d$ once more (the third,
# black line). Compare the black line with the blue one, without the scale: in small heads the blue one lies higher,
# and in large heads it lies lower. In the picture they cross near $d = 2^8 = 256$.

# %%
ratio = {d: back / plain for (d, back), (_, plain) in zip(to_product, unscaled_sizes, strict=True)}
course.verdict("d = 64: gradient at q·k, scaled over unscaled", ratio[64], below=1)
course.verdict("d = 1024: gradient at q·k, scaled over unscaled", ratio[1024], above=1)

# %% [markdown]
# So at $d = 64$, the head size of GPT-2 and BERT, the gradient of a random head alone does not settle the matter.
# What the scale does to *learning*, the end of this notebook measures.

# %% [markdown]
# ## Masks: True = may attend
#
# A chatbot learns by predicting the next word at every position of a text, all positions at once. So what it reads
# and what it should say are the same words, one position apart.

# %%
shifted_by_one(tokens)
plotting.show(
    "Two rows of words. Below stand the inputs from animal to it, above each one the target, which is the next word. "
    "Dashed arrows show that each target is also the input one position to the right."
)

# %% [markdown]
# Here is the danger: the answer to each position stands in the input, one position to the right. A head that may look
# there copies it and learns nothing. A [**causal mask**](../docs/glossary.md#c) forbids it: query $i$ may attend to
# keys $j \le i$ only.
#
# A second kind of mask hides [**padding**](../docs/glossary.md#p). Sentences of a batch have different lengths, and
# the short ones are filled up. In this course **True means "may attend"**, and two masks are combined with `&`.

# %%
causal = causal_mask(6)  # (L, S)
padding = padding_mask([6, 4], 6)  # (B, 1, 1, S): a sentence of 6 words and one of 4
both = causal & padding  # (B, 1, L, S)
second = torch.stack([causal, padding[1, 0].expand(6, 6), both[1, 0]])  # of the sentence with 4 words
plotting.heads(second, titles=["causal", "padding: 4 words of 6", "both"])
plotting.show(
    "Three masks with ticks where a query may attend: a triangle for causal, the first four columns for padding, and "
    "what both allow."
)


# %% [markdown]
# Rows 4 and 5 of the short sentence are padding themselves. What they compute is thrown away.
#
# How can a mask give a key the weight 0 and leave rows that still sum to 1? The softmax makes the rows sum to 1, so the
# mask has to act before it, on the scores. Which score does the softmax turn into a weight of 0?
#
# ### Exercise 1 · easy · 4 minutes
#
# Write the softmax with a mask. `scores` are numbers of shape (L, S), one row for each query; L and S may differ.
# `attn_mask` is Boolean, (L, S), True where the query may attend. Return the weights, (L, S): forbidden keys get
# exactly 0, and each row sums to 1. The scores are scaled already. Every query may attend to at least one key. The
# notebook goes on with your function.

# %%
def masked_weights(scores, attn_mask):  # (L, S) numbers, (L, S) True = may attend
    raise NotImplementedError  # (L, S)


masked_weights = check.masked_weights.use(masked_weights)

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

# %%
weights = masked_weights(scores, causal)
torch.testing.assert_close(weights, masked_softmax(scores, causal))  # the package's
plotting.heatmap(weights, rows=tokens, columns=tokens, title="causal: nobody looks ahead", vmax=1)
plotting.show("Weights under the causal mask: all above the diagonal is 0, and it spreads evenly over the words before.")


# %% [markdown]
# Look at the row of *it*. The word that it was looking for, *tired*, comes later, so *it* is left with an even
# average. If a model reads from left to right, its vector for *it* cannot know which noun is meant. Only the vector
# for *tired*, which sees all words before, can find out.
#
# ### Exercise 2 · middle · 8 minutes
#
# Now build the whole of scaled dot-product attention for one head. `query` is (L, D), `key` (S, D) and `value` (S,
# D), without a batch; L and S may differ. Scale the scores by $1/\sqrt D$, where D is `query.shape[-1]`. `attn_mask`
# is None or Boolean, (L, S), True where the query may attend; then every query may attend to at least one key. Return
# the output, (L, D).

# %%
def scaled_dot_product(query, key, value, attn_mask=None):  # (L, D), (S, D), (S, D), (L, S) or None
    raise NotImplementedError  # (L, D)


scaled_dot_product = check.scaled_dot_product.use(scaled_dot_product)

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

# %% [markdown]
# Is it what everybody else computes? The package splits the work into a score and `attend`; torch has it in one
# function, called [**SDPA**](../docs/glossary.md#s) for short. Both want a batch and a head in front: (B, H, L, D).

# %%
q4, k4, v4 = query[None, None], key[None, None], value[None, None]  # (1, 1, 6, 3)
mine = scaled_dot_product(query, key, value, causal)  # (L, D)
package, _ = attend(dot_product_scores(q4, k4), v4, attn_mask=causal)
torch.testing.assert_close(mine, package[0, 0])
torch.testing.assert_close(mine, F.scaled_dot_product_attention(q4, k4, v4, attn_mask=causal)[0, 0])
print("yours, the package's and torch's agree")


# %% [markdown]
# ## What is *it*?
#
# Your function can now settle the first prediction. Let *it* look once in both sentences, and compare what *animal*
# and *street* get. To read off the weights, hand over unit vectors as values. With two words, 0.9 times (1, 0) plus
# 0.1 times (0, 1) is (0.9, 0.1): the average of unit vectors *is* the row of weights.

# %%
def one_look(last, W_q, W_k):
    x = torch.tensor([table[token] for token in [*tokens[:5], last]], dtype=torch.float64)
    return scaled_dot_product(x @ W_q, x @ W_k, torch.eye(6).double())[4]  # the row of it


random_q, random_k = torch.randn(2, 4, 3).double()
for name, matrices in {"set by hand": (W_q, W_k), "random": (random_q, random_k)}.items():
    for last in ("tired", "wide"):
        row = one_look(last, *matrices)
        print(f"{name:11} {last:5}  animal : street = {row[0] / row[3]:.3f}   {last} gets {row[5]:.2f}")

# %% [markdown]
# The ratio does not change, whatever the matrices are. The score of *it* and *animal* is computed from these two
# words and from nothing else, so *tired* cannot alter it; it can only take away attention from both alike. **One look
# is not enough.**
#
# But after the first look *it* is no longer the same vector. It has received that it is something living, or a road.
# So let it look **again**, with new matrices: now it asks for a noun that shares what it has gathered.

# %%
W_back = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]).double()  # (D, E): what was received joins the word
W_q2 = torch.tensor([[1, 0], [0, 1], [0, 0], [0, 0]]).double()  # asks for living things, or for roads
W_k2 = torch.tensor([[1, 0], [0, 1], [-1, -1], [-1, -1]]).double()  # pronouns and adjectives do not answer


def two_looks(last):
    x = torch.tensor([table[token] for token in [*tokens[:5], last]], dtype=torch.float64)  # (6, 4)
    x = x + scaled_dot_product(x @ W_q, x @ W_k, x @ W_v) @ W_back  # the first look
    return scaled_dot_product(x @ W_q2, x @ W_k2, torch.eye(6).double())[4]  # the second: the row of it


# %%
rows = torch.stack([two_looks("tired"), two_looks("wide")])
columns = [*tokens[:5], "tired/wide"]
_, ax = plt.subplots(figsize=(6.4, 2.6), layout="constrained")
labels = {"rows": ["… it tired", "… it wide"], "columns": columns, "xlabel": "", "ylabel": ""}
plotting.heatmap(rows, title="it looks a second time", vmax=1, ax=ax, **labels)
plotting.show("Two rows of weights of it at its second look: most goes to animal with tired, and to street with wide.")


# %% [markdown]
# With *tired*, *it* is the animal. With *wide*, *it* is the street. We set the matrices by hand, so this proves only
# that two looks **can** do it, and that one cannot. Google's report shows how it ends in a trained translator: in one
# of the eight heads between its fifth and its sixth layer, *it* looks at *animal* or at *street*. Looking again and
# again, with new matrices each time, is why transformers have layers (notebook 05).

# %% [markdown]
# ## Try masks of your own
#
# A click on a square, or Tab and Space, switches it. What happens to the other weights of its row? And when you empty
# a row?

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
# `F.scaled_dot_product_attention` agrees with us that True means "may attend". `nn.MultiheadAttention` means the
# opposite: True = **may not**. If you hand it our mask as it is, it looks at the future only. (The check leaves out
# the last query, which then has nothing left to look at; the next section is about such rows.)

# %%
theirs = nn.MultiheadAttention(4, num_heads=1, dtype=torch.float64)
_, turned = theirs(x, x, x, attn_mask=~causal)  # (L, S)
_, as_it_is = theirs(x, x, x, attn_mask=causal)
print("turned round: looks where it may:", torch.equal(turned > 0, causal))
print("as it is: looks where it may not:", torch.equal(as_it_is[:5] > 0, ~causal[:5]))

# %% [markdown]
# ### A row with nothing left
#
# Put the padding on the left instead, and add the causal mask. Then the first two queries may not attend to anything.
# A plain softmax divides 0 by 0 there. In the package and in torch's SDPA such a row is 0.

# %%
real = torch.tensor([False, False, True, True, True, True])  # (S,): two positions of padding in front
nothing_left = causal & real  # (L, S)
by_hand = scores.masked_fill(~nothing_left, -math.inf).softmax(dim=-1)
print("plain softmax  ", by_hand[0].tolist())
print("masked_softmax ", masked_softmax(scores, nothing_left)[0].tolist())
print("SDPA, output   ", F.scaled_dot_product_attention(q4, k4, v4, attn_mask=nothing_left)[0, 0, 0].tolist())

# %% [markdown]
# The gradient matters even more. Let the [**loss**](../docs/glossary.md#c), the number that training makes small, use
# the last row only, a sound one, and throw the others away. In the [**backward pass**](../docs/glossary.md#b), which
# computes the gradient, the empty row still takes part: the gradient that reaches it is 0, but 0 × NaN is NaN. One
# step of training with such gradients makes parameters NaN, too.

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
# **A question (middle, 5 minutes).** Many programs write $-10^9$ in place of $-\infty$. What does a wholly masked row
# become then? And what if the scores are float16?
#
# <details><summary>Answer</summary>
#
# Filled in by `masked_fill`, all scores of the row are $-10^9$ and thus equal: the weights are uniform, so the row
# quietly attends to everything that it must not see. There is no NaN and no warning. In float16 the largest number is
# 65504, so $-10^9$ does not fit: torch raises an error, or it becomes $-\infty$ and the NaN is back.
#
# </details>

# %% [markdown]
# ## Break it: three classic mistakes
#
# Three mistakes are made again and again: the mask **after** the softmax, **0** in place of $-\infty$, and the
# softmax over the **queries**. All three run without an error. The pictures show the weights, and the sum $\Sigma$ of
# each row.

# %%
recipes = {
    "right: −∞, softmax over keys": masked_weights,
    "mask after the softmax": lambda s, mask: s.softmax(dim=-1) * mask,
    "0 in place of −∞": lambda s, mask: (s * mask).softmax(dim=-1),
    "softmax over queries (dim=-2)": lambda s, mask: s.masked_fill(~mask, -math.inf).softmax(dim=-2),
}
figure, axes = plt.subplots(2, 2, figsize=(9, 7.4), layout="constrained")
for ax, (title, recipe) in zip(axes.flat, recipes.items(), strict=True):
    w = recipe(scores, causal)  # (L, S)
    sums = [f"{token}  Σ={s:.2f}" for token, s in zip(tokens, w.sum(dim=-1), strict=True)]
    plotting.heatmap(w, rows=sums, columns=tokens, title=title, vmax=1, colorbar=False, ylabel="", ax=ax)
plotting.show(
    "Four tables of weights. Only with 0 in place of minus infinity is there weight above the diagonal; the rows of the "
    "other two mistakes do not all sum to 1."
)


# %% [markdown]
# *0 in place of −∞* is the sly one: its rows sum to 1. But $e^0 = 1$ is a weight like any other, so the future gets
# its share.
#
# ### A test that finds them: the gradient
#
# Does output $i$ depend on word $j$? Autograd can tell. Let entry $(i, j)$ be the size of $\partial y_i / \partial
# x_j$. In a causal model everything above the diagonal must be exactly 0. Before you run the cell: which of the three
# mistakes would you have found by looking at the weights above the diagonal?

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
    plotting.heatmap(J, rows=tokens, columns=tokens, title=title, xlabel="word j", ylabel="output i", colorbar=False, ax=ax)
plotting.show("Four tables of influence: only the right recipe is 0 everywhere above the diagonal.")


# %% [markdown]
# All three mistakes [**leak**](../docs/glossary.md#l). Two of them are a surprise: their weights on the future are 0,
# yet the future sits in the divisor of the softmax. Looking at the weights would not have told you; the gradient
# does.

# %% [markdown]
# ## One head as a class
#
# So far the matrices were set by hand. A model has to *learn* them, and for that they must be **parameters**: numbers
# that training may change. In torch, `nn.Linear(E, D)` holds such a matrix (and a bias, which is added), and a class
# that inherits from `nn.Module` collects the parameters of all layers that are its attributes.
#
# ### Exercise 3 · middle · 10 minutes
#
# Write one head as a class; it is what will be trained below. `AttentionHead(embed_dim, head_dim)` holds three layers
# named `q_proj`, `k_proj` and `v_proj`, each an `nn.Linear(embed_dim, head_dim)` with its bias. Its `forward` takes
# `x`, (B, L, E), and returns two things: the output, (B, L, D), and the weights, (B, L, S).
#
# - Queries come from `x`. Keys and values come from `context`, (B, S, E); where it is None they come from `x`, too.
# - The scores are scaled by $1/\sqrt D$, where D is `head_dim`.
# - `attn_mask` is None or Boolean, (L, S), the same for the whole batch, True where a query may attend.
#
# You may use `masked_softmax(scores, attn_mask)` of the package. It does what your `masked_weights` does, for a batch
# as well, accepts None, and makes an empty row 0.

# %%
class AttentionHead(nn.Module):
    def __init__(self, embed_dim, head_dim):
        super().__init__()
        raise NotImplementedError

    def forward(self, x, context=None, *, attn_mask=None):  # (B, L, E), (B, S, E) or None, (L, S) or None
        raise NotImplementedError  # (B, L, D), (B, L, S)


AttentionHead = check.AttentionHead.use(AttentionHead)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `__init__` makes three layers, nn.Linear(embed_dim, head_dim) each. `forward` has the lines of exercise 2 with a batch
# in front.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `.T` turns all axes round; with a batch it has to be `k.transpose(-2, -1)`. masked_softmax(scores, attn_mask) takes a
# mask or None.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# class AttentionHead(nn.Module):
#     def __init__(self, embed_dim, head_dim):
#         super().__init__()
#         self.q_proj = nn.Linear(embed_dim, head_dim)
#         self.k_proj = nn.Linear(embed_dim, head_dim)
#         self.v_proj = nn.Linear(embed_dim, head_dim)
#
#     def forward(self, x, context=None, *, attn_mask=None):
#         context = x if context is None else context  # what is looked at
#         q = self.q_proj(x)  # (B, L, D)
#         k, v = self.k_proj(context), self.v_proj(context)  # (B, S, D)
#         scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, L, S)
#         weights = masked_softmax(scores, attn_mask)  # (B, L, S)
#         return weights @ v, weights
# ```
#
# </details>

# %% [markdown]
# The package's `MultiHeadAttention` with a single head is the same, but for a last linear map, which notebook 03
# explains. Take that out, give both the same parameters, and compare outputs and all gradients.

# %%
package = MultiHeadAttention(6, num_heads=1)
package.out_proj = nn.Identity()
course.assert_same_module(AttentionHead(6, 6), package, torch.randn(2, 5, 6), attn_mask=causal_mask(5))
course.assert_same_module(AttentionHead(6, 6), package, torch.randn(2, 5, 6), torch.randn(2, 7, 6))

# %% [markdown]
# ## Train: a look-up
#
# Can a head find its matrices by itself? We give it the smallest task that needs a look: eight pairs of a key and a
# value, and then one of the keys again. The answer is the value that stood beside it.

# %%
keys, values, asked, answer = (x.to(device) for x in lookup(20_000, seed=0))  # (N, 8), (N, 8), (N,), (N,)
test_set = [x.to(device) for x in lookup(2000, seed=1)]
print("pairs ", [tuple(pair) for pair in torch.stack([keys[0], values[0]], dim=-1).tolist()])
print("asked ", asked[0].item(), "  answer", answer[0].item())


# %% [markdown]
# The keys and values of this task are whole numbers, as in a dictionary; do not mix them up with the keys and values
# of the head. An **embedding** table gives each number a vector that is learned as well. A pair becomes one token,
# the sum of both vectors. The model must find out by itself that the head's key should carry the first number of a
# pair, and the head's value the second. A last linear layer, the read-out, turns what was found into one score for
# each possible answer.

# %%
class LookUp(nn.Module):
    def __init__(self, head_dim=32, embed_dim=32):
        super().__init__()
        self.key_embed = nn.Embedding(32, embed_dim)
        self.value_embed = nn.Embedding(10, embed_dim)
        self.head = AttentionHead(embed_dim, head_dim)  # yours
        self.read_out = nn.Linear(head_dim, 10)

    def look(self, keys, values, asked):  # (B, S), (B, S), (B,)
        pairs = self.key_embed(keys) + self.value_embed(values)  # (B, S, E): a pair is one token
        return self.head(self.key_embed(asked)[:, None], pairs)  # (B, 1, D), (B, 1, S)

    def forward(self, keys, values, asked):
        found, _ = self.look(keys, values, asked)
        return self.read_out(found[:, 0])  # (B, 10)


# %% [markdown]
# Training repeats four lines. The model answers, and the **loss** measures how wrong it is (the cross-entropy: small
# when the right answer got a high probability). `backward()` computes the gradient of the loss for every parameter.
# Then the [**optimiser**](../docs/glossary.md#o) changes the parameters a little, so that the loss falls.
#
# Ours is **Adam** ([Kingma and Ba 2014](https://arxiv.org/abs/1412.6980)). Plain gradient descent subtracts a
# multiple of the gradient. Adam divides a running average of the gradient by the root of a running average of its
# square. So every parameter moves by about `lr`, the **learning rate**, in each step, however large its gradient is.
# `zero_grad()` clears the gradients of the step before, which torch would otherwise add up.

# %%
def train(model, seed=0, steps=100, lr=0.01):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    stream = batches(keys, values, asked, answer, batch_size=64, seed=seed)
    losses = []
    for _ in range(steps):
        *inputs, target = next(stream)
        loss = F.cross_entropy(model(*inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def accuracy(model):
    with torch.no_grad():
        return (model(*test_set[:3]).argmax(dim=-1) == test_set[3]).float().mean().item()


# %% [markdown]
# Beside it stands a model that cannot look: its queries are multiplied by 0, so all its scores are 0 and it gets the
# plain mean. The mean knows which values are there, but not which key they belong to. It can at best name the
# commonest value of the eight.

# %%
class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


def look_up(seed=0, factor=1.0, **options):
    torch.manual_seed(seed)
    model = LookUp(**options)
    model.head.q_proj = nn.Sequential(model.head.q_proj, Times(factor))  # queries are multiplied by the factor
    return model.to(device)


# %% tags=["nbval-ignore-output"]
learned, blind = look_up(), look_up(factor=0.0)
print(f"before training: {accuracy(learned):.3f}")
curves = {"attention": train(learned), "plain mean": train(blind)}
commonest = F.one_hot(test_set[1]).sum(dim=1).amax(dim=-1).double().mean().item() / 8
print(f"attention {accuracy(learned):.3f}, plain mean {accuracy(blind):.3f}, naming the commonest value {commonest:.3f}")

# %%
error = math.sqrt(commonest * (1 - commonest) / 2000)  # standard error of an accuracy on 2000 sequences
course.verdict("attention: accuracy on new sequences", accuracy(learned), above=0.99)
course.verdict("plain mean: accuracy above the commonest value, in standard errors", (accuracy(blind) - commonest) / error, below=4)
plotting.curves(curves, title="a look-up", smooth=5)
plotting.show("Two training losses: with attention the loss falls to almost 0, with the plain mean it stays high.")

# %% [markdown]
# And where does the trained head look? We take one new sequence and ask for each of its keys, in ascending order.

# %%
one_keys, one_values = test_set[0][0], test_set[1][0]  # (8,)
order = one_keys.sort().values  # (8,)
with torch.no_grad():
    _, looks = learned.look(one_keys.expand(8, 8), one_values.expand(8, 8), order)  # (8, 1, 8)
columns = [f"{k}: {v}" for k, v in zip(one_keys.tolist(), one_values.tolist(), strict=True)]
rows = [f"{k}: ?" for k in order.tolist()]
plotting.heatmap(looks[:, 0], rows=rows, columns=columns, xlabel="pair", ylabel="asked", title="a learned look-up", vmax=1)
plotting.show("Weights of the trained head: each row has one bright cell, at the pair with the key that was asked for.")


# %% [markdown]
# Nobody told the head where the answer stands. The loss alone has taught it to look at the right pair.

# %% [markdown]
# ### With and without $1/\sqrt d$
#
# Now the question that we left open: what does the scale do to learning? If we multiply the queries by $\sqrt d$, the
# scale is taken out again. We compare head sizes 32 and 256 over five **seeds**, the numbers from which the random
# start is made. Both models of a pair have the same seed, so we look at the *difference* in each pair: the mean loss
# of 100 steps without the scale, minus that with it. The interval contains the true mean difference with 95 %
# confidence (Student's t for five pairs; notebook 16 explains it).

# %%
def interval(differences):  # 2.776: the 97.5 % quantile of Student's t with 4 degrees of freedom
    d = torch.tensor(differences)
    half = 2.776 * d.std().item() / math.sqrt(5)
    return d.mean().item() - half, d.mean().item() + half


# %% tags=["nbval-ignore-output"]
losses, accuracies, gaps = {}, {}, {}
for d in (32, 256):
    for name, factor in (("scaled", 1.0), ("unscaled", math.sqrt(d))):
        models = [look_up(seed, factor, head_dim=d) for seed in range(5)]
        losses[d, name] = [sum(train(model, seed)) / 100 for seed, model in enumerate(models)]
        accuracies[d, name] = [accuracy(model) for model in models]
        print(f"d = {d:3}, {name:8} accuracy after 100 steps", "  ".join(f"{a:.3f}" for a in accuracies[d, name]))
    gaps[d] = interval([u - s for u, s in zip(losses[d, "unscaled"], losses[d, "scaled"], strict=True)])
    print(f"d = {d:3}: mean loss unscaled minus scaled, 95 % interval {gaps[d][0]:.2f} to {gaps[d][1]:.2f}")

# %%
course.verdict("d = 256: lower end of the interval", gaps[256][0], above=0)
course.verdict("the same minus the upper end at d = 32", gaps[256][0] - gaps[32][1], above=0)
plotting.seeds({f"d = {d}\n{name}": values for (d, name), values in losses.items()}, ylabel="mean loss of 100 steps")
plotting.show("Mean losses of five seeds: with head size 256 those without the scale are far above those with it.")

# %% [markdown]
# Is the unscaled head of 256 lost, or only slow? Give it three times the steps. (The factor 16 is $\sqrt{256}$.)

# %% tags=["nbval-ignore-output"]
patient = [look_up(seed, 16.0, head_dim=256) for seed in range(5)]
histories = [train(model, seed, steps=300) for seed, model in enumerate(patient)]
early, late = ([sum(losses[start : start + 50]) / 50 for losses in histories] for start in (50, 250))
print("mean loss of steps  51 to 100: ", "  ".join(f"{loss:.3f}" for loss in early))
print("mean loss of steps 251 to 300: ", "  ".join(f"{loss:.3f}" for loss in late))
print("accuracy after 300 steps:      ", "  ".join(f"{accuracy(model):.3f}" for model in patient))


# %% [markdown]
# What came out, no more and no less: in this task, with this optimiser and learning rate, the scale lowers the loss
# of the first 100 steps, and by far more in the large head than in the small one. Is the large head without it lost
# or only slow? The last three lines are printed without a verdict, since five runs that swing so much do not carry
# one. Judge for yourself whether the loss went on falling, and compare the accuracies with those of the scaled head
# after a third of the steps.
#
# In a deep model many such heads have to learn at once, and then speed can decide whether it learns at all. This
# notebook has not measured that.

# %% [markdown]
# ## Today
#
# - **GPT-2**
#   ([2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)),
#   **BERT** ([2018](https://arxiv.org/abs/1810.04805)) and **ViT** ([2021](https://arxiv.org/abs/2010.11929)) use the
#   formula that you have built, with $D = 64$; **Llama 3** ([2024](https://arxiv.org/abs/2407.21783)) uses it with $D
#   = 128$.
# - GPT and Llama have the causal mask. BERT has none, so its *it* may look ahead at *tired*.
# - In a chatbot every token of your prompt costs a row of weights in each head of each layer, with one weight for
#   every token before it.
# - **FlashAttention** ([Dao et al. 2022](https://arxiv.org/abs/2205.14135)) computes the same outputs without ever
#   storing the matrix of weights (notebook 15).
# - In BERT, [Clark et al. 2019](https://arxiv.org/abs/1906.04341) found a head in which a word often looks at an
#   earlier mention of the same thing, as our *it* does.

# %% [markdown]
# ## Takeaways
#
# - A head asks with $q$, answers with $k$ and hands over $v$. The score of two words depends on these two words only,
#   so *tired* could not redirect *it* in one look; two looks could.
# - $1/\sqrt d$ keeps the scores at variance 1, whatever the head size. In our look-up it lowered the loss of the
#   first 100 steps, most in the large head.
# - A mask acts **before** the softmax, as $-\infty$, and True means "may attend". The gradient test found leaks that
#   the weights hid.
# - A head with trained matrices found by itself where to look.

# %% [markdown]
# ## Check yourself
#
# **1.** A layer shares its 256 features out equally among 4 heads. What is $d$ in $1/\sqrt d$?
#
# <details><summary>Answer</summary>
#
# 64, the head size: the dot product of a query and a key sums over that many terms.
#
# </details>
#
# **2.** All weights on the future are exactly 0. Can the future still leak?
#
# <details><summary>Answer</summary>
#
# Yes, through the divisor of the softmax. *Mask after the softmax* does just that.
#
# </details>
#
# **3.** In every causal map the first row is 1, 0, 0, …, whatever the scores are. Why?
#
# <details><summary>Answer</summary>
#
# The first word may attend to itself only. A softmax over a single number is 1.
#
# </details>

# %% [markdown]
# ## More exercises
#
# ### Exercise 4 · hard · 12 minutes
#
# Write a leak detector. `attention` is any differentiable function from words (L, E) to outputs (L, D). Return True
# if, **at this** `x`, some output depends on a later word, which means that some derivative of an output feature with
# respect to a feature of a later word is not 0; otherwise return False. What another `x` would show does not matter.

# %%
def future_leaks(attention, x):  # a function, and words (L, E) to try it on
    raise NotImplementedError  # True or False


check.future_leaks(future_leaks)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `torch.autograd.functional.jacobian(attention, x)` has shape (L, D, L, E). Entry (i, j) of what you need has i from
# the first L and j from the second.
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
# ### Exercise 5 · hard · 12 minutes
#
# Break our attention: this time you write the *test*. `attention(query, key, value, attn_mask)` is somebody's version
# of exercise 2, scaled dot-product attention of one head: it takes (L, D), (S, D), (S, D) and a mask (L, S), True =
# may attend, or `None`, and gives (L, D). Each query may attend to at least one key. Raise an AssertionError (`assert
# …`, or `torch.testing.assert_close(got, expected)`) where the version is wrong. Your test has to accept every right
# version, all of which agree with torch's in float32 for inputs of the size of `torch.randn` and within the usual
# tolerance of `assert_close`, and reject each of 24 faulty ones; you are told which survive.

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
# ### Questions to think about
#
# **1. (easy, 5 minutes)** Train two of the models of the last comparison with `lr=0.003`, for instance
# `train(look_up(0, 16.0, head_dim=256), lr=0.003)`. How much of the gap is left?
#
# <details><summary>Answer</summary>
#
# Compare the mean of its losses with that of `train(look_up(0, head_dim=256), lr=0.003)`, for several seeds. Adam moves
# each parameter by about `lr` in a step, and with it the scores of the unscaled head by more, so the two settings act
# together. A claim such as "it does not train without the scale" needs its learning rate beside it.
#
# </details>
#
# **2. (harder, 10 minutes)** In the look-up, which part of a pair's embedding should $W_k$ keep, and which $W_v$? Can
# one head, instead of the value, tell *how many* of the eight values equal the one asked for?
#
# <details><summary>Answer</summary>
#
# $W_k$ keeps the key, so that it meets the query; $W_v$ keeps the value, so that it can be handed over. To count, the
# query would have to know the value, which it learns only from this very look-up. As with *it*, a second look can:
# the first finds the value, the second compares it with all of them. The more of them match, the more weight they get
# together, so a read-out can tell their number.
#
# </details>

# %% [markdown]
# ## Optional: trainable masks
#
# A mask need not be yes or no. One number for each pair of positions can be **added** to its score (it starts at 0),
# or can **multiply** it (it starts at 1), and training changes these numbers. At the start neither has any effect.

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


# %%
class MaskedHead(nn.Module):
    def __init__(self, embed_dim, learned_mask):
        super().__init__()
        self.head, self.learned_mask = AttentionHead(embed_dim, embed_dim), learned_mask

    def forward(self, x, attn_mask=None):
        q, k, v = (layer(x) for layer in (self.head.q_proj, self.head.k_proj, self.head.v_proj))
        scores = self.learned_mask(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]))  # (B, L, S)
        weights = masked_softmax(scores, attn_mask)
        return weights @ v, weights


# %% [markdown]
# It is tempting to let the model learn whom not to look at, **in place of** the causal mask. Ask the gradient test.

# %%
words = torch.randn(1, 6, 4)  # (B, L, E)
for Mask in (AdditiveMask, MultiplicativeMask):
    head = MaskedHead(4, Mask(6))
    for name, attn_mask in {"in place of the causal mask": None, "beside it": causal}.items():
        J = influence(lambda x, head=head, m=attn_mask: head(x[None], m)[0][0], words[0])
        print(f"{Mask.__name__:18} {name:27} the future leaks: {bool(J.triu(diagonal=1).any())}")


# %% [markdown]
# ### What a leak is worth
#
# A small next-token model reads **random** tokens from 8. Nothing can be learned here: nobody can guess better than 1
# in 8, so an honest loss cannot stay below $\log 8 = 2.08$. We train with and without the causal mask. **Predict**
# the losses.

# %%
class NextToken(nn.Module):
    def __init__(self, learned_mask, vocab_size=8, embed_dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, embed_dim)
        self.head = MaskedHead(embed_dim, learned_mask)
        self.read_out = nn.Linear(embed_dim, vocab_size)

    def forward(self, tokens, attn_mask):  # (B, L)
        y, weights = self.head(self.embed(tokens), attn_mask)  # (B, L, E), (B, L, L)
        return self.read_out(y).transpose(1, 2), weights  # (B, vocab, L), as cross_entropy wants it


def train_next_token(Mask, attn_mask, sequences):  # (N, 7): 6 tokens to read, and each one's next
    torch.manual_seed(0)
    model, losses = NextToken(Mask(6)).to(device), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for batch in sequences.to(device).split(64)[:300]:
        logits, _ = model(batch[:, :-1], attn_mask)
        loss = F.cross_entropy(logits, batch[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


# %% tags=["nbval-ignore-output"]
random_tokens = torch.randint(8, (300 * 64, 7))  # no sequence comes twice
may_attend = causal.to(device)
leaky, leaky_losses = train_next_token(AdditiveMask, None, random_tokens)
leaky_times, times_losses = train_next_token(MultiplicativeMask, None, random_tokens)
honest, honest_losses = train_next_token(AdditiveMask, may_attend, random_tokens)
histories = {
    "additive in place of causal": leaky_losses,
    "multiplicative in place of causal": times_losses,
    "additive beside causal": honest_losses,
}
last = {name: sum(loss[-100:]) / 100 for name, loss in histories.items()}
print({name: round(value, 3) for name, value in last.items()}, f"log 8 = {math.log(8):.3f}")

# %%
ax = plotting.curves(histories, title="next token of random tokens", smooth=10)
ax.axhline(math.log(8), color="black", linestyle="--", label="log 8")
ax.axhline(math.log(8) / 6, color="black", linestyle=":", label="(log 8) / 6")
ax.legend(frameon=False, fontsize=8, loc="center right")
plotting.show("Three losses: the honest one stays at log 8, the two leaky ones fall far below it and stop above a sixth of it.")
leaks = [value / math.log(8) for name, value in last.items() if "in place" in name]
course.verdict("larger of the two leaky losses, over log 8", max(leaks), below=0.995)
course.verdict("smaller of the two leaky losses, over log 8", min(leaks), above=1 / 6)
course.verdict("honest loss, over log 8", last["additive beside causal"] / math.log(8), above=0.995)

# %% [markdown]
# Without the causal mask the loss falls far below what is possible: the answer to position $i$ is the input at
# position $i + 1$. Only the last of six positions has nothing to copy. A model that copied perfectly would stop at
# the dotted line, a sixth of $\log 8$. Ours stop above it after 300 steps. A possible reason, which we have not
# tested: one read-out serves all positions, so a model that is sure of itself wherever it can copy is too sure at the
# last position as well. (The first bound of the verdicts is the theorem's: no honest model can stay below 1.)
#
# It is a splendid loss that means nothing. Use the model as one does, with the future not yet written:

# %%
fresh = torch.randint(8, (2000, 7), generator=torch.Generator().manual_seed(5)).to(device)
with torch.no_grad():
    in_use = F.cross_entropy(leaky(fresh[:, :-1], may_attend)[0], fresh[:, 1:]).item()
course.verdict("leaky model used honestly: loss over log 8", in_use / math.log(8), above=1)


# %% [markdown]
# It is worse than guessing. And where do the models look? These are their mean weights over the fresh sequences.

# %%
def mean_weights(model, tokens, attn_mask):
    with torch.no_grad():
        return model(tokens, attn_mask)[1].mean(dim=0).cpu()  # (L, L)


maps = [mean_weights(m, fresh[:, :-1], mask) for m, mask in ((leaky, None), (leaky_times, None), (honest, may_attend))]
plotting.heads(torch.stack(maps), titles=[name.replace(" in", "\nin").replace(" be", "\nbe") for name in histories])
plotting.show("Mean weights of three models: both leaky ones look one position ahead, the honest one spreads its weight.")

# %% [markdown]
# ### An honest use
#
# Beside the causal mask, a trainable mask can learn *where* to look. Take sequences that repeat every three tokens,
# so that the next token stands two positions back.

# %% tags=["nbval-ignore-output"]
repeating = torch.randint(8, (300 * 64, 3)).repeat(1, 3)[:, :7]  # (N, 7): a b c a b c a
plus, plus_losses = train_next_token(AdditiveMask, may_attend, repeating)
times, times_losses = train_next_token(MultiplicativeMask, may_attend, repeating)
for name, loss in {"additive": plus_losses, "multiplicative": times_losses}.items():
    print(f"{name}: loss {sum(loss[-100:]) / 100:.3f}, log 8 = {math.log(8):.3f}")

# %%
maps = torch.stack([mean_weights(model, repeating[:2000, :-1].to(device), may_attend) for model in (plus, times)])
plotting.heads(maps, titles=["additive", "multiplicative"])
plotting.show("Mean weights of two models: from the third row on, all weight lies two or five positions back.")
hits = sum(int(row.argmax()) in (i - 2, i - 5) for rows in maps for i, row in enumerate(rows) if i >= 2)
course.verdict("rows (of 8) that look most at 2 or 5 positions back", hits, above=7)

# %% [markdown]
# The loss stays far above 0 although the weights look perfect: the first two of six positions cannot be predicted,
# which alone costs $\frac26 \log 8 = 0.69$.
#
# We read the *weights*, not the masks. A large entry of an additive mask does mean "look here". A large entry of a
# multiplicative mask means it only where the score is positive: a negative score becomes more negative. And an entry
# of 0 hides nothing: the score becomes 0, and $e^0 = 1$ is a weight like any other.

# %% [markdown]
# ## To read, and what comes next
#
# - [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), *Attention is all you need*: section 3.2.1 for the
#   formula and the footnote on the variance, 3.2.3 for masking, and the pictures of heads at the end.
# - [Uszkoreit
#   2017](https://research.google/blog/transformer-a-novel-neural-network-architecture-for-language-understanding/):
#   the report with *tired* and *wide*; look at the picture of *it*.
# - [Clark et al. 2019](https://arxiv.org/abs/1906.04341), *What does BERT look at?*: section 4, on single heads and
#   what each of them finds.
# - [Press et al. 2022](https://arxiv.org/abs/2108.12409), section 3: a bias added to the scores, fixed instead of
#   trained.
# - `sciformer/teach/export/forward.js` is the same head in another language, without any library; the playground's
#   pages compute by it.
#
# A head has one query, so a word can ask one question. But a verb has a subject, an object and a tense to look for at
# once. Could one head answer all three? Notebook 03 begins there.
