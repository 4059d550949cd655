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
# confused the answers. The [head](../docs/glossary.md#h) of notebook 02 has one query for each word, and its weights are
# one row that sums to
# 1. Can *chased* ask two questions with one row?
#
# In 2017 [Vaswani and colleagues](https://arxiv.org/abs/1706.03762) wanted a model to attend to several positions
# jointly; with a single head, they wrote, "averaging inhibits this". They ran eight small heads side by side instead
# of one large one, at about the same cost: [**multi-head attention**](../docs/glossary.md#m).
#
# After this notebook you can
#
# - say what one head cannot do, and check it with numbers;
# - build multi-head attention, first as a loop and then as one batch, equal to torch's;
# - recognise a wrong split by what it does to a mask, and a wrong scale by what it does to the weights;
# - separate the number of heads from their size, and say what a comparison leaves open.

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

from sciformer import MultiHeadAttention, attend, causal_mask, check, course, dot_product_scores, plotting
from sciformer.teach.diagrams.heads import split_and_merge

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## Predict first
#
# An attention layer is asked two questions at once. Its width is fixed and shared out among 1, 2, 4 or 8 heads, so
# all four layers have the same number of parameters.
#
# 1. Which number of heads does best?
# 2. What matters more, the number of the heads or the size of each?
#
# Write both answers down.

# %% [markdown]
# ## One head is one weighted average
#
# Suppose that the head of *chased* has already found both nouns and gives them equally high scores. Let *dog* write 1
# into the first [**channel**](../docs/glossary.md#f), another word for feature, and *cat* into the second. What does
# *chased* receive?

# %%
words = ["yesterday", "the", "dog", "chased", "the", "cat"]
labels = {"rows": words, "columns": ["yest.", *words[1:]]}  # for the pictures


def received(sentence, value, subject_score, object_score):
    scores = torch.zeros(6)
    scores[2], scores[5] = subject_score, object_score  # the subject stands at 2, the object at 5
    return scores.softmax(dim=-1) @ torch.tensor([value.get(word, (0.0, 0.0)) for word in sentence])


own_channel = {"dog": (1.0, 0.0), "cat": (0.0, 1.0)}  # what each word writes into the two channels
both = received(words, own_channel, 5, 5)
print("equal scores:", [round(y, 3) for y in both.tolist()], " doubled:", [round(y, 3) for y in (2 * both).tolist()])

# %% [markdown]
# Both nouns arrive at half their size, in separate channels, and a later matrix can double them. So **one head can
# hand over both nouns** with its single row of weights.
#
# But a value is computed from the word alone, and tomorrow the cat may chase the dog. What does *chased* receive
# then?

# %%
turned = ["yesterday", "the", "cat", "chased", "the", "dog"]
for scores in ((5, 5), (5, 4)):
    for sentence in (words, turned):
        received_now = [round(y, 3) for y in received(sentence, own_channel, *scores).tolist()]
        print(f"subject scored {scores[0]}, object {scores[1]}:", " ".join(sentence), received_now)


# %% [markdown]
# With equal scores the two sentences give the same output, which cannot say who chased whom. Unequal scores mend this:
# the subject's channel holds the larger number. (How a head can know the subject is left to notebook 04; here the scores
# are set by hand.) So two nouns with a channel each are no trouble for one head.
#
# Is a third noun? Give every noun its own channel, keep the shares 0.72 and 0.26, and go through all pairs of a subject
# and an object. For each answer, a **linear read-out** multiplies every channel by a factor, adds a constant, and should
# give 1 for the right noun and 0 for the others. **Least squares** finds the factors with the smallest mean squared
# error. We divide them by the errors of the best constant, so 1 means knowing nothing. How large are the errors with two
# nouns, with three, with 100?

# %%
def best_error(y, answer):  # of the best linear read-out of y
    return (y @ torch.linalg.lstsq(y, answer).solution - answer).square().mean().item()


for nouns in (2, 3, 100):
    pairs = torch.tensor([(a, b) for a in range(nouns) for b in range(nouns) if a != b])
    subject, other = torch.eye(nouns).double()[pairs].unbind(dim=1)  # (pairs, nouns) each: 1 in the noun's channel
    constant = torch.ones(len(pairs), 1).double()
    y = torch.cat([0.72 * subject + 0.26 * other, constant], dim=1)
    of_who, of_whom = (best_error(y, answer) / best_error(constant, answer) for answer in (subject, other))
    print(f"{nouns:3} nouns: error of who {of_who:.2f}, of whom {of_whom:.2f}")

# %% [markdown]
# With two nouns, the one that is not the subject is the object. A third noun can also be absent: its channel then holds
# 0. For *whom* the read-out has to turn 0.72, 0.26 and 0 into 0, 1 and 0, which no straight line does. So *whom* is
# nearly lost. And a language has far more nouns than a head has channels, so nouns share channels.
#
# Into a shared channel, each noun writes a number that stands for it. In a given sentence, call $s$ what its subject has
# written, the answer to *who*, and $o$ what its object has written, the answer to *whom*. Any two nouns may meet, so we
# draw both at random for 10,000 sentences: independent, with mean 0 and variance 1. With the share $t$ for the subject,
# all that arrives is the average $y = t s + (1 - t) o$. Which share makes the mean of the two errors smallest?

# %%
s, o = torch.randn(2, 10_000, 1, generator=torch.Generator().manual_seed(0)).double()  # subject and object
shares = torch.linspace(0, 1, 21).tolist()
who = [best_error(t * s + (1 - t) * o, s) for t in shares]
whom = [best_error(t * s + (1 - t) * o, o) for t in shares]
for n in (0, 5, 10, 15, 20):
    print(f"share of the subject {shares[n]:.2f}: error of who {who[n]:.2f}, of whom {whom[n]:.2f}")

# %%
series = {"who": who, "whom": whom, "mean of both": [(a + b) / 2 for a, b in zip(who, whom, strict=True)]}
points = {name: list(zip(shares, y, strict=True)) for name, y in series.items()}
ax = plotting.curves(points, xlabel="share of the subject", ylabel="error", title="one row of weights for two answers")
ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plotting.show(
    "Three curves against the share of the subject, from zero to one: the errors of who and of whom, and their mean."
)

# %% [markdown]
# The error of *who* falls as the subject's share grows, and that of *whom* rises. Apart from sampling error they add up
# to 1, whatever the share: this is a theorem. So if a shared channel is read out linearly, a head that answers one
# question well answers the other badly, and its mean error never falls below **0.5**. (For real nouns and nonlinear
# layers this is only a guide.)
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
# In a shared channel, *who* is answered best by a row of weights with a 1 at the subject, and *whom* by one with a 1 at
# the object. A head has one row, and a later factor can only multiply it. What are the errors of two heads,
# with one row each?

# %%
two_heads = torch.cat([s, o], dim=1)  # one row of weights with a 1 at the subject, one with a 1 at the object
print(f"two heads: error of who {best_error(two_heads, s):.2f}, of whom {best_error(two_heads, o):.2f}")

# %% [markdown]
# Both are 0. So *chased* can ask two questions, with **two heads** whose answers are laid side by side. Whether training
# finds them is tested below, once they are built.
#
# ## Heads as a loop
#
# The package's `dot_product_scores(q, k)` divides by $\sqrt D$ already, and `attend` takes the softmax and the average.
# Each head gets three small matrices of its own, from the $E$ features of a word down to $D = E/H$. $E$ is the
# [**embedding dimension**](../docs/glossary.md#e), $H$ the number of heads and $D$ the [head
# dimension](../docs/glossary.md#h).

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
# The heads are untrained, but each has its own matrices, and so its own dot products. **In every head, two of the six rows
# are the same. Which, and why?**

# %%
plotting.heads(torch.cat(maps), **labels, panel_width=3.4)
plotting.show("The weights of three untrained heads: a row for each of the six words, a column for each word that it looks at.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The two rows of *the*. Both have the same vector, so they ask the same question of the same keys: a head does not know
# where a word stands. Notebook 04 begins here.
#
# </details>
#
# ## The formula and its shapes
#
# $$\text{head}_h = \text{attention}(x W^Q_h,\; x W^K_h,\; x W^V_h), \qquad y = [\text{head}_1, \dots, \text{head}_H]\, W^O$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $x$ | `x` | (B, L, E) |
# | $W^Q_h$, $W^K_h$, $W^V_h$ | `w_q[h]`, `w_k[h]`, `w_v[h]` | (E, D) |
# | the matrices of all heads, side by side | `big_q`, … | (E, H·D) = (E, E) |
# | queries, keys, values, split | `q`, `k`, `v` | (B, H, L, D) |
# | scores, weights | `dot_product_scores(q, k)`, `weights` | (B, H, L, L) |
# | heads side by side | `merge_heads(output)` | (B, L, E) |
# | $W^O$ | `w_o` | (E, E) |
#
# The next section builds the rows from `big_q` on. Source: [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762),
# section 3.2.2.

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
# $W^O$, and the heads' contributions are **added**. Without $W^O$, head $h$ would write
# into its own slice of the output and no other.

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
    "merged table. The upper row is done right; below, the split is a view alone and the merge a reshape alone."
)


# %% [markdown]
# With a view alone, a head gets two tokens only, each cut into three. With a reshape alone, a row of the merged table
# mixes several tokens.
#
# To see the damage, ask which input can influence which output under a causal mask. Sketch it first, for each mistake and
# for a layer that makes both. Then `jacobian` gives the derivative of every output with respect to every input.

# %%
def influence(split, merge):
    def layer(x):
        q, k, v = (split(x @ big) for big in (big_q, big_k, big_v))
        return merge(attend(dot_product_scores(q, k), v, attn_mask=causal_mask(L))[0])

    slope = torch.autograd.functional.jacobian(layer, x)  # (B, L, E, B, L, E)
    return slope.abs().amax(dim=(0, 2, 3, 5)) > 1e-9  # (L, L): does input j reach output i?


reaches = {
    "right": influence(lambda x: split_heads(x, H), merge_heads),
    "split without transpose": influence(lambda x: x.view(B, H, L, D), merge_heads),
    "merge without transpose": influence(lambda x: split_heads(x, H), lambda x: x.reshape(B, L, E)),
    "neither has one": influence(lambda x: x.view(B, H, L, D), lambda x: x.reshape(B, L, E)),
}

# %%
numbered_words = [f"{n} {word}" for n, word in enumerate(labels["columns"])]
figure, axes = plt.subplots(1, 4, figsize=(12.4, 3.4), layout="constrained")
for ax, (title, reach) in zip(axes, reaches.items(), strict=True):
    plotting.heatmap(reach, title=title, xlabel="input", ylabel="output", ax=ax, rows=numbered_words, columns=numbered_words)
    ahead, past = reach.triu(1).sum(), reach.tril().sum()
    print(f"{title}: {ahead} of 15 pairs reach into the future, {past} of 21 into past and present")
plotting.show(
    "Four tables: right, with either mistake, with both. Rows are the six outputs, columns the six inputs, and a tick "
    "stands where the input reaches the output."
)


# %% [markdown]
# With either mistake alone, outputs see future inputs in spite of the mask. Two ticks are missing: one on the diagonal and
# one below it.
#
# With both mistakes, nothing leaks, and a test of causality passes: the wrong merge puts every feature back where the
# wrong split took it from. But every head has only two tokens, so most of the past is out of reach. Two wrongs can hide
# each other from a test that looks at one side only.

# %% [markdown]
# ## The class
#
# A translator's keys and values come from another sequence, the sentence that it reads: its **context**.
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
# ## Equal to torch's
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
# ## Train: two questions at once
#
# Here is the situation of *chased* as a task, with numbers for words. An example has eight **items**, each with a key and
# a value of 8 random numbers, side by side in one token. All keys are scaled to the same length, so that none scores high
# merely because it is long. Two of the items are asked for, as *who* and *whom*: the query consists of their two keys,
# the target of their two values, side by side.

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
# along the way, so that the last steps no longer jump about. In the pictures below, a dot is one training, and the bar is
# their mean with its **standard error** on either side: how far such a mean typically lies from the true one. The loss is
# the **mean squared error**. Values have variance 1, so knowing nothing costs 1.
#
# One head of 16 features has room for two answers of 8 numbers. Will it learn both?

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


def trained(num_heads, head_dim, seed):
    torch.manual_seed(seed)
    model = Finder(num_heads, head_dim).to(device)
    train(model, seed)
    return model


# %% tags=["nbval-ignore-output"]
*unseen, target = questions(2048, torch.Generator().manual_seed(999))  # examples never trained on


def error_of(model):
    with torch.no_grad():
        return F.mse_loss(model(*unseen), target).item()


cases = [(1, 16), (2, 8), (4, 4), (8, 2)]  # the number of heads, and the features of each
models = {case: [trained(*case, seed) for seed in range(5)] for case in cases}
errors = {case: [error_of(model) for model in runs] for case, runs in models.items()}
for (num_heads, size), found in errors.items():
    print(f"{num_heads} × {size:2} features: errors", "  ".join(f"{e:.3f}" for e in found))

# %%
ax = plotting.seeds(
    {f"{num_heads} × {size}": found for (num_heads, size), found in errors.items()},
    lines={"knowing nothing": 1.0},
    title="two questions, equal parameters",
    xlabel="heads × features of each",
    ylabel="error on new examples",
)
ax.hlines(0.5, -0.4, 0.4, color="grey", linestyle="--", linewidth=1, label="one head's floor")
ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
plotting.show("Errors of five seeds for layers of 1, 2, 4 and 8 heads, with lines at one head's floor and at knowing nothing.")


# %% [markdown]
# You predicted a number of heads: **two** did best. Each of their five runs is better than any run of the others. (One
# run of four heads fell far behind; we come back to it.)
#
# The single head stays at about 0.5, although it has room for both answers: the theorem holds here, too. The value matrix
# $V$ treats all items alike, whether asked for as *who* or as *whom*. With the share $t$ at *who*, $t V s + (1 - t) V o =
# V (t s + (1 - t) o)$ arrives: all 16 channels depend on the average alone.
#
# Are the differences more than chance? Runs with the same seed share the training data and, at equal width, the initial
# weights, so we subtract their errors pair by pair. The **95 % interval** (by Student's t, see notebook 16) is computed so
# that it contains the true mean difference in 95 of 100 such experiments.

# %%
def interval(differences):  # of five: 2.776 is the 97.5 % quantile of Student's t with 4 degrees of freedom
    d = torch.tensor(differences)
    half = 2.776 * d.std().item() / math.sqrt(len(d))
    return d.mean().item() - half, d.mean().item() + half


def difference(one, other):
    return interval([a - b for a, b in zip(errors[one], errors[other], strict=True)])


course.verdict("one head: lowest error of 5", min(errors[1, 16]), above=0.48)
course.verdict("2 heads minus 1 head, upper end of the interval", difference((2, 8), (1, 16))[1], below=0)
course.verdict("2 heads minus 4 heads, upper end of the interval", difference((2, 8), (4, 4))[1], below=0)
course.verdict("8 heads of 2 minus 2 heads of 8, lower end of the interval", difference((8, 2), (2, 8))[0], above=0)

# %% [markdown]
# So eight heads did worse than two, and even than one. But there are more of them, and each is smaller: this comparison
# cannot tell which of the two matters. Which layers would you compare to separate the number from the size?

# %% tags=["nbval-ignore-output"]
for num_heads in (4, 8):  # the control: more heads, and each keeps its 8 features
    errors[num_heads, 8] = [error_of(trained(num_heads, 8, seed)) for seed in range(5)]
    low, high = difference((num_heads, 8), (2, 8))
    print(f"{num_heads} heads of 8 features: errors", "  ".join(f"{e:.3f}" for e in errors[num_heads, 8]), end="; ")
    print(f"minus 2 heads: interval {low:.3f} to {high:.3f}")

# %%
groups = {"same width": [(1, 16), (2, 8), (4, 4), (8, 2)], "same head size": [(2, 8), (4, 8), (8, 8)]}
figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained", sharey=True, width_ratios=(4, 3))
for ax, (title, shapes) in zip(axes, groups.items(), strict=True):
    plotting.seeds({f"{H} × {D}": errors[H, D] for H, D in shapes}, title=title, ylabel="error on new examples", ax=ax)
    ax.set_xlabel("heads × features of each")
    ax.tick_params(labelleft=True)
axes[0].get_legend().remove()
plotting.show("Two panels on the same scale, with five seeds for each layer: at a fixed width, and at a fixed head size.")

# %%
course.verdict("8 heads: size 2 minus size 8, lower end of the interval", difference((8, 2), (8, 8))[0], above=0.05)
course.verdict("8 heads of 8 minus 2 heads of 8, upper end of the interval", difference((8, 8), (2, 8))[1], below=0.05)

# %% [markdown]
# Your second prediction was number or size. From two heads on, the **size** mattered: four and eight heads of 8 answer
# both questions about as well as two, and eight heads of 2 did not in 300 steps. Between one head and two, the number
# decides: by the theorem, a single head of any size is left with half.
#
# The control leaves something open. With the number of heads it also changes the width, the number of parameters and the
# range of the initial weights. And it can't show that more than two heads *help*, since two are near 0 already.
#
# <details><summary>How the bounds were chosen</summary>
#
# The theorem's 0.5 is a mean over all examples. Our 2,048 differ a little from it, so the first bound is 0.48. The bound
# 0.05 is a tenth of the difference between one head and two; the intervals printed for the control stay below 0.01. An
# interval covers the scatter of the seeds, not that of the one test set.
#
# </details>
#
# Why could size matter? Because of *comparing*: a head of 2 features has 2 numbers to tell 8 keys apart, and the scores
# of many queries with these keys form a matrix of rank 2 at most (two linearly independent rows), a [**low-rank
# bottleneck**](../docs/glossary.md#l) ([Bhojanapalli et al. 2020](https://arxiv.org/abs/2002.07028)). Or because of
# *carrying*: a head of 2 hands over only 2 numbers. But eight of them hand over 16, as many as the two answers need.
# Which of the two is it?

# %% [markdown]
# ## Look: who does what
#
# How much weight does each head give to the two items asked for, and to the six others together? We take the first of the
# five runs of each layer. **Predict**: will each of two heads take one question? How will four or eight share two? And if
# small heads compare badly, where will their weight go?

# %%
names, rows = [], []
for num_heads in (1, 2, 4, 8):
    with torch.no_grad():
        weights = models[num_heads, 16 // num_heads][0].look(*unseen)[1][:, :, 0].mean(dim=0).cpu()  # (H, S)
    rows.append(torch.cat([weights[:, :2], weights[:, 2:].sum(dim=-1, keepdim=True)], dim=-1))  # (H, 3)
    names += [f"of {num_heads}: head {h}" for h in range(num_heads)]
asked = ["who", "whom", "others"]
ax = plotting.heatmap(torch.cat(rows), rows=names, columns=asked, title="who does what", xlabel="item", ylabel="")
for last in (0, 2, 6):  # a gap between the layers
    ax.axhline(last + 0.5, color="white", linewidth=7)
plotting.show("Shares of weight on who, whom and the other items, for one, two, four and eight heads.")

# %% [markdown]
# The two heads share the work, one question each.  The single head gave itself to one question. Four smaller heads share
# the questions, too, but more than a quarter of their weight goes to items that nobody asked for; of eight heads' weight,
# more than half. (Equal weights would leave three quarters there.)
#
# These are means over 2,048 examples. Does a small head spread its weight in each example, or does it often choose a wrong
# item? Look at the largest weight. A head's *own* item is *who* or *whom*, whichever it weighs more on average.

# %% tags=["nbval-ignore-output"]
for (num_heads, size), runs in models.items():
    with torch.no_grad():
        weights = torch.cat([run.look(*unseen)[1][:, :, 0] for run in runs], dim=1).cpu()  # (N, 5·H, S)
    largest, item = weights.max(dim=-1)  # (N, 5·H) each
    own = weights.mean(dim=0)[:, :2].argmax(dim=-1)  # (5·H,): 0 is who, 1 is whom
    on_own, on_other, on_neither = (hit.float().mean() for hit in (item == own, item == 1 - own, item > 1))
    print(f"{num_heads} × {size:2}: largest weight {largest.mean():.2f}, on the own item in {on_own:.2f} of all cases,", end=" ")
    print(f"on the other one asked for in {on_other:.2f}, on neither in {on_neither:.2f};", end=" ")
    print("heads on who, run by run:", *(own == 0).view(5, -1).sum(dim=1).tolist())


# %% [markdown]
# With 8 features or more, the largest weight practically always stands on the head's own item. Below that, the smaller
# the heads, the more often it stands on an item that nobody asked for: in about a fifth of the cases with 4 features, in
# nearly half with 2. The largest weight is smaller, too. So small heads **compare badly** here, after 300 steps.
#
# Do they also carry too little? In the run of four heads that fell behind, the third, three heads took *who* and only one
# *whom*; in the first run of eight heads, five and three. A control: set all of a head's weight on its own item by hand,
# and train only values and output. What error do you expect for eight heads of 2, split four to four? Five to three? And
# for four heads of 4, three to one?

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
    runs = []
    for seed in range(3):
        torch.manual_seed(seed)
        runs.append(Carrier([0] * on_who + [1] * on_whom).to(device))
        train(runs[-1], seed)
    carried[on_who, on_whom] = [error_of(model) for model in runs]
    print(f"{on_who} heads on who, {on_whom} on whom: errors", "  ".join(f"{e:.3f}" for e in carried[on_who, on_whom]))
course.verdict("8 heads of 2, weights set by hand, 4 to 4: highest error of 3", max(carried[4, 4]), below=0.05)

# %% [markdown]
# Split evenly, eight heads of 2 carry both answers. Most of the trained runs did split four to four and still had an
# error of about 0.6: what they fail at is comparing. With perfect weights an uneven split costs 0.125 more; in the
# trained runs the one that split five to three is hardly above the others. Three heads of 2 hand over 6 of the 8 numbers
# of *whom*, and one head of 4 hands over 4: a quarter or a half of one of two answers is missing, which makes 0.125 or
# 0.25.

# %% [markdown]
# ## Break it: the head-size trap
#
# The scale is $1/\sqrt{D}$ with the size of a **head**. To divide by $\sqrt E$ instead is the [**head-size
# trap**](../docs/glossary.md#h); published code has fallen into it ([vit-pytorch, issue
# 65](https://github.com/lucidrains/vit-pytorch/issues/65), since mended). What does $1/\sqrt E$ make of the scores'
# variance? (The argument `scale` replaces the factor $1/\sqrt D$.)
#
# The **entropy** $-\sum_j w_j \ln w_j$ of a row of weights says how widely the row looks, in
# [**nats**](../docs/glossary.md#n). It is largest for equal weights, and then $\ln 64$ on 64 keys. (`torch.special.entr`
# gives $-w \ln w$.)

# %%
width, keys = 64, 64
spread = {"1/√head_dim": [], "1/√embed_dim": []}
for num_heads in (1, 2, 4, 8, 16):
    q, k = torch.randn(2, 50, num_heads, keys, width // num_heads)  # entries of variance 1
    for name, size in [("1/√head_dim", width // num_heads), ("1/√embed_dim", width)]:
        scores = dot_product_scores(q, k, scale=size**-0.5)
        weights = scores.softmax(dim=-1)
        entropy = torch.special.entr(weights).sum(dim=-1).mean()
        spread[name].append((num_heads, entropy.item()))
        print(f"{num_heads:2} heads, {name:12}: variance {scores.var():.3f}, entropy {entropy:.2f}")

# %% [markdown]
# With the wrong scale the variance is $D/E = 1/H$ instead of 1, and the entropy rises with the number of heads. (The
# entropy axis does not start at 0.)

# %%
spread["an even look: ln 64"] = [(1, math.log(keys)), (16, math.log(keys))]
ax = plotting.curves(spread, xlabel="number of heads", ylabel="entropy of a row (nats)", title="the wrong scale blurs")
for line in ax.lines[:2]:
    line.set_marker("o")
ax.set_xticks((1, 2, 4, 8, 16))
plotting.show("Entropy against the number of heads, from 1 to 16, for both scales, with a line for an even look.")


# %% [markdown]
# With the wrong scale, more heads mean blurrier heads: 16 heads look almost evenly at all 64 keys.
#
# ### What the trap costs in training
#
# The projections could learn to undo a constant factor. Is the wrong scale harmless, then? We give keys and values 32
# numbers instead of 8, and train layers of width 64 with 2 and with 8 heads. To get the wrong scale without touching
# your class, we multiply the queries by $\sqrt{D/E} = 1/\sqrt H$.
#
# How many steps does it take until the **running loss**, the mean of the last 10 steps, is under 0.5? One question
# answered perfectly and nothing known of the other would come to 0.5, too, so we time 0.25 as well, which takes both.

# %%
class Times(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x


def steps_needed(num_heads, factor, seed, window=10):
    torch.manual_seed(seed)
    model = Finder(num_heads, 64 // num_heads)
    model.attention.q_proj = nn.Sequential(model.attention.q_proj, Times(factor))
    losses = torch.tensor(train(model.to(device), seed, half=32))
    running = losses.unfold(0, window, 1).mean(dim=-1).tolist()  # unfold cuts out every window
    steps = [next((n + window for n, loss in enumerate(running) if loss < level), math.inf) for level in (0.5, 0.25)]
    return *steps, losses[-50:].mean().item()


# %% tags=["nbval-ignore-output"]
needed, later, ends = {}, {}, {}
for num_heads in (2, 8):
    for name, factor in (("1/√head_dim", 1.0), ("1/√embed_dim", num_heads**-0.5)):
        arm, runs = (num_heads, name), [steps_needed(num_heads, factor, seed) for seed in range(5)]
        needed[arm], later[arm], ends[arm] = zip(*runs, strict=True)
        print(f"{num_heads} heads, {name:12}: steps to 0.5", "  ".join(f"{s:3}" for s in needed[arm]), end="   ")
        print("to 0.25", "  ".join(f"{s:3}" for s in later[arm]), "  loss at the end", "  ".join(f"{e:.2f}" for e in ends[arm]))

# %% tags=["nbval-ignore-output"]
extra = {}
for level, steps in ((0.5, needed), (0.25, later)):
    for n in (2, 8):
        slow, fast = steps[n, "1/√embed_dim"], steps[n, "1/√head_dim"]
        extra[level, n] = low, high = interval([float(a - b) for a, b in zip(slow, fast, strict=True)])
        print(f"to {level}, {n} heads: extra steps with the wrong scale, 95 % interval {low:.0f} to {high:.0f}")

# %%
course.verdict("to 0.5, 8 heads: extra steps with the wrong scale, lower end of the interval", extra[0.5, 8][0], above=0)
plotting.seeds(
    {f"{n} heads\n{name}": values for (n, name), values in needed.items()},
    title="the wrong scale costs steps",
    ylabel="steps until the loss is < 0.5",
)
plotting.show("Steps until the loss is below one half, for five seeds each: two and eight heads, with both scales.")

# %% [markdown]
# So here the trap costs time, about a tenth more steps to 0.5 with two heads and about a third more with eight. At both
# levels both intervals lie above 0. But the learning rate falls along the same 300 steps, so a run that is late also
# learns more slowly: this may stretch the differences, those to 0.25 most.
#
# <details><summary>What this leaves open</summary>
#
# This is one task and one schedule. No scale larger than $1/\sqrt D$ was tried, so $1/\sqrt D$ need not be the best. The
# losses at the end overlap for 8 heads, so we say nothing about where the two scales would end up. With the right scale,
# too, eight heads needed more steps than two and ended at a higher loss. Heads of 8 features now compare keys of 32
# numbers; we have not measured whether that is the reason.
#
# </details>

# %% [markdown]
# ## What heads cost
#
# At a fixed width, what grows with the number of heads: the parameters, the multiplications in the matrix products, the
# attention weights? (A multiply-add counts as two [**FLOPs**](../docs/glossary.md#f); the counter leaves the softmax
# out. With `need_weights=True` the layer returns its weights, too.)

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
# each, whatever $H$ is. Only the number of weights grows, and with it the work of the softmax.

# %% [markdown]
# ## Today
#
# - The first transformer ([2017](https://arxiv.org/abs/1706.03762)) had 8 heads of 64 features, **BERT**
#   ([2018](https://arxiv.org/abs/1810.04805), the base version) 12 of 64, and **GPT-3**
#   ([2020](https://arxiv.org/abs/2005.14165)) 96 of 128. Between the first and the last of these three, the number grew
#   twelvefold and the size twofold.
# - **Llama 3** ([2024](https://arxiv.org/abs/2407.21783)), with 8 billion parameters, has 32 query heads, but only 8
#   heads of keys and values: four neighbours share one. This [**grouped-query attention**](../docs/glossary.md#g)
#   ([Ainslie et al. 2023](https://arxiv.org/abs/2305.13245); exercise 6) keeps a quarter of the keys and values that
#   a model stores while it writes a text (notebook 08).
# - Some heads can be named. In BERT, [Clark et al. 2019](https://arxiv.org/abs/1906.04341) found a head that connects
#   a direct object with its verb, *cat* with *chased*, and another one that connects a noun with its determiner.
# - Many can be removed. [Voita et al. 2019](https://arxiv.org/abs/1905.09418) cut 38 of the 48 heads in the encoder
#   of a translator, the part that reads the source sentence, and lost 0.15 BLEU, a measure of translation quality.

# %% [markdown]
# ## Takeaways
#
# - A head has one row of weights for all its channels. Two answers that use the same channels need two rows. One
#   head's mean error is at least 0.5, for independent values with mean 0 and variance 1 that are read out linearly.
# - Split is `view`, then `transpose`; merge undoes it. A slip in one of the two keeps the shape and breaks the mask; a
#   slip in both keeps the mask, too, and hides most of the past.
# - At a fixed width, more heads cost no parameters and no multiplications in the matrix products, but each is smaller.
#   In our task one head could not answer two questions. Eight small heads did not learn to in 300 steps: they could carry the
#   answers, but often looked at wrong items. Eight that kept their size, in a layer four times as wide, did about as well as
#   two. Whether more than two heads can help, a task of two questions does not show.
# - The scale belongs to the size of a head. When scores were scaled by the width instead, random queries and keys gave
#   blurrier weights, and in our task the loss took more steps to fall under 0.5.

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
# Transformer-XL ([Dai et al. 2019](https://arxiv.org/abs/1901.02860), section 3.3).

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
# The first time your answer is wrong, the check shows what is wrong with its result; the second time it names the
# mistake. Hints and a solution are folded away.
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
# Break our heads: write the *test* of exercise 6. `attention(query, key, value, w_o, num_heads)` is somebody's
# version of it: from (B, L, H·D), (B, S, G·D), (B, S, G·D) and (E, E), where E = H·D, it gives (B, L, E). The first
# H/G query heads share the first key and value head, the next H/G the second, and so on; the scores are scaled by
# $1/\sqrt D$; the result is `heads @ w_o`; there is no mask. Raise an AssertionError (`assert …`, or
# `torch.testing.assert_close(got, expected)`) where the version is wrong. Your test has to accept every right version
# and reject each of 27 faulty ones; you are told which survive. (If a faulty version stops with an error of its own, it
# counts as rejected.) Right versions round differently: take inputs from `torch.randn`, and compare with a tolerance.

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
# **Question** (middle, 5 minutes). Make the key bias nonlinear, $b_j = w_h \cdot \tanh(k_j)$. Which of the two identities
# of the optional section survives?
#
# <details><summary>Answer</summary>
#
# The extra feature: it takes any number for each key. The shift of the queries needs a bias that is linear in the
# key. So a nonlinear key bias is something that `q_proj.bias` cannot learn.
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
# carry a whole value. In `questions`, replace both `[:, :2]` by `[:, :3]`.
#
# </details>

# %% [markdown]
# ## To read, and what comes next
#
# - [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), section 3.2.2: the formula and the sentence on averaging;
#   table 3, rows (A): heads at a fixed width.
# - [Bhojanapalli et al. 2020](https://arxiv.org/abs/2002.07028): the low-rank bottleneck; look for the comparison at
#   a fixed head size.
# - [Clark et al. 2019](https://arxiv.org/abs/1906.04341), section 4: what single heads of BERT find, with pictures.
#
# *chased* can now ask two questions at the same time. But nothing in a head says where a word stands: exchange two words,
# and each takes its query, its key and its value along. How, then, should it know that *dog bites man* is not *man bites
# dog*? Notebook 04 gives the words an order.
