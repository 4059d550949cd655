# %% [markdown]
# # 09 Additive attention
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/09_additive_attention.ipynb)
#
# ← [08 A character language model](08_character_model.ipynb) · [the map of the course](00_welcome.ipynb) · [10 Energy wells](10_energy_wells.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare **09** [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb) · taken apart [18](18_heads_that_copy.ipynb)
#
# Needs: notebooks 03 and 08 · runs in about 80 s on two CPU cores · about 2½ hours of study

# %% [markdown]
# Notebook 08 ended with a question: *is the dot product the only way to look?* It was not even the first. The translator
# of Bahdanau, Cho and Bengio (2015, [arXiv:1409.0473](https://arxiv.org/abs/1409.0473)) asked a small network about each
# pair of words. This is **[additive attention](../docs/glossary.md#a)**. It costs much, since the network runs for every
# pair. Move one plus sign in its formula, and it costs far less. **What is lost?**
#
# The public repository [additive-attention-experiment](https://github.com/blindTissue/additive-attention-experiment)
# ([blindtissue_additive](../docs/references.bib)) moved the plus, and trained four GPTs on Tiny Shakespeare: with the
# cheaper score or the [dot product](../docs/glossary.md#d), each with two kinds of positions. Its answers are four plots
# of losses, one run each. At first sight they say: **the cheaper score keeps up with the dot product, the kind of
# positions hardly matters, and only the dot product's loss rises again in the end.** Do you believe it? You will find out
# what the plus takes away, and judge the three claims. (The repository calls the cheaper score *additive*. Here this is
# the name of Bahdanau's score, and the cheaper one is called *separable*.)
#
# After this notebook you can
#
# - score a [query](../docs/glossary.md#q) against a [key](../docs/glossary.md#k) with a small network, and say what that
#   costs;
# - find out, and prove, what the query does in a cheaper variant;
# - turn that into faster [attention](../docs/glossary.md#a), and generate with less memory;
# - say what a model with this score can still learn, where it fails, and how sure that is.

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
import statistics
import time
from dataclasses import replace
from itertools import cycle

import ipywidgets
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from sciformer import AdditiveScore, DotProductScore, SeparableAdditiveScore, additive_scores, attend
from sciformer import causal_mask, check, course, experiments, metrics, plotting, records, separable_additive_scores
from sciformer.fast.cache import KeyValueCache, SeparableState
from sciformer.data import shakespeare, text_batches
from sciformer.teach import explore
from sciformer.fast import attention, running_mean
from sciformer.training import fit, next_token_loss, text_loss

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
hues = dict(zip(("dot", "additive", "separable"), plotting.COLORS, strict=False))  # each score keeps its colour in all pictures

# %% [markdown]
# ## Predict first
#
# The score $w \cdot \tanh(q_i + k_j)$, with a trained vector $w$, adds query and key before the tanh. The cheaper score
# adds after it: $w \cdot \tanh(q_i) + w \cdot \tanh(k_j)$.
#
# 1. Under the cheaper score, *sat* gets another query. To which words does it now give more attention?
# 2. To write [token](../docs/glossary.md#t) 1,001, how much of the 1,000 before must the cheaper score keep?
# 3. Beside the dot product, how good a [language model](../docs/glossary.md#l) does it make?

# %% [markdown]
# ## Bahdanau's score
#
# A network with one hidden layer looks at a query and a key **together** (appendix A.1.2 of the paper). In a loop, on
# the toy sentence:

# %%
words = ["the", "cat", "sat", "on", "the", "mat"]
q, k, v = torch.randn(3, 6, 4)  # queries, keys, values: (L, D) each
w = torch.tensor([2.0, -1.5, 1.0, 0.5])  # (D,)

scores_in_a_loop = torch.zeros(6, 6)
for i in range(6):
    for j in range(6):
        scores_in_a_loop[i, j] = w @ (q[i] + k[j]).tanh()
scores_in_a_loop.round(decimals=2)

# %% [markdown]
# ### The formula
#
# $$s_{ij} = w_h \cdot \tanh(q_i + k_j)$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $q, k$ | `query`, `key` | (B, H, L, D), (B, H, S, D) |
# | $\tanh(q_i + k_j)$ | `hidden` | (B, H, L, S, D) |
# | $w_h$, one for each head, trained | `weight` | (H, D) |
# | $s$ | `scores` | (B, H, L, S) |
#
# As always, the [softmax](../docs/glossary.md#s) runs over the keys, so that the attention weights of each query sum to
# 1. In the paper $q$ and $k$ are [projections](../docs/glossary.md#p) of two networks' states. Nothing is divided by
# $\sqrt D$: tanh stays within ±1, so a score stays within $\pm\sum|w|$. The sum grows with the number of features; the
# classes below therefore start with smaller $w$ where D is larger.
#
# Without the loops, every pair gets its own hidden layer:

# %%
hidden = (q[:, None, :] + k[None, :, :]).tanh()  # (L, S, D)
scores = hidden @ w  # (L, S)
torch.testing.assert_close(scores, scores_in_a_loop)
torch.testing.assert_close(additive_scores(q[None, None], k[None, None], w[None])[0, 0], scores)  # the package's


# %% [markdown]
# ### What the hidden layer costs
#
# For the [backward pass](../docs/glossary.md#b) torch keeps the hidden layer of every pair. **Predict**, for a
# [head dimension](../docs/glossary.md#h) of 64: how many times as many numbers does it keep for Bahdanau's score as for
# the dot product? Does this depend on the length?
#
# To count them, we let torch hand each tensor that it keeps to our `keep`. (The *readable path* of the package computes
# all weights, as in notebook 02.)

# %%
def numbers_kept(run, length, head_dim=64):
    kept = {}

    def keep(x):
        kept[x.data_ptr()] = x  # under its address in memory, so that what is kept twice counts once
        return x

    inputs = [torch.randn(1, 1, length, head_dim, requires_grad=True) for _ in range(3)]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        run(*inputs)
    return sum(x.numel() for x in kept.values())


def readable(score):
    return lambda *inputs: attention(score, *inputs, need_weights=True)[0]


# %%
additive, dot = AdditiveScore(1, 64), DotProductScore(1, 64)
for length in (64, 256, 512, 1024):
    ratio = numbers_kept(readable(additive), length) / numbers_kept(readable(dot), length)
    print(f"{length:5} tokens: {ratio:.0f} times as many")


# %% [markdown]
# For each pair of tokens the dot product keeps one weight, and Bahdanau's score D hidden
# [features](../docs/glossary.md#f) and one weight. What else they keep of queries, keys and values grows only with the
# length. So the longer the text, the closer the ratio comes to $D + 1 = 65$. The repository, too, says "~64x" of this
# score, and therefore trained the cheaper one.
#
# The memory can be saved in another way: *Optional: the same output in less memory* computes a few queries at a time.
# But the time for all these tanhs remains. To save time, the formula itself has to change.
#
# ## The sum moves out of the tanh
#
# Every pair needs a hidden layer of its own only because the sum stands inside the tanh. Move the sum out, and one
# hidden layer for each query and one for each key are enough:
#
# $$s_{ij} = w_h \cdot \tanh(q_i) + w_h \cdot \tanh(k_j)$$
#
# The hidden layers hold (L + S) · D numbers in place of L · S · D. This is the
# **[separable score](../docs/glossary.md#s)**.

# %%
class MySeparable(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        gain = nn.init.calculate_gain("tanh")  # 5/3, which torch recommends with a tanh
        self.weight = nn.Parameter(torch.randn(num_heads, head_dim) * gain / head_dim**0.5)  # (H, D)

    # The package gives every score the mask and the position of the first query; this one needs neither.
    def forward(self, query, key, *, attn_mask=None, query_offset=0):  # (B, H, L, D), (B, H, S, D)
        from_query = (query.tanh() * self.weight[:, None]).sum(dim=-1)  # (B, H, L)
        from_key = (key.tanh() * self.weight[:, None]).sum(dim=-1)  # (B, H, S)
        return from_query[..., :, None] + from_key[..., None, :]  # (B, H, L, S)


query, key, value = torch.randn(3, 2, 3, 7, 5)  # (B, H, L, D) each
course.assert_same_module(MySeparable(3, 5), SeparableAdditiveScore(3, 5), query, key)


# %% [markdown]
# ### Change the query
#
# Prediction 1. The outlines are the weights of *sat*, with the sum inside the tanh (left) and outside (right). The bars
# are its weights after a change; at first nothing is changed. The sliders add to every feature of the query of *sat*, add
# to the key of *mat*, and hide the last words. **Which sliders move the bars on the right?**

# %%
def change(query, key, hidden):
    figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True, layout="constrained")
    asked, keys = (q[2] + query).view(1, 1, 1, 4), k.clone()
    keys[5] += key
    for ax, (name, score) in zip(axes, forms.items(), strict=True):
        before = score(q[None, None, 2:3], k[None, None], w[None]).softmax(dim=-1).flatten()
        after = score(asked, keys[None, None], w[None]).flatten().masked_fill(torch.arange(6) >= 6 - hidden, -torch.inf)
        plotting.bars(after.softmax(dim=-1), words, title=titles[name], top=1, numbers=False, ax=ax)
        plt.setp(ax.patches, color=hues[name], alpha=0.5)
        ax.bar(range(6), before.tolist(), fill=False, edgecolor="black", linewidth=1.2, label="before")
    axes[0].legend(frameon=False)
    axes[1].set_ylabel("")
    figure.suptitle(f"weights of 'sat': query {query:+g}, key of 'mat' {key:+g}, {hidden} words hidden", fontsize=10)
    return figure


forms = {"additive": additive_scores, "separable": separable_additive_scores}
titles = {"additive": "inside: Bahdanau", "separable": "outside: separable"}
names = {"query": "add to the query", "key": "add to the key of mat"}
sliders = {n: ipywidgets.FloatSlider(value=0, min=-3, max=3, step=0.5, description=name) for n, name in names.items()}
sliders["hidden"] = ipywidgets.IntSlider(value=0, min=0, max=5, description="words hidden")
explore(change, alt="Bars: the weights of 'sat' under both scores; outlines: the weights before a change.", **sliders)

# %% [markdown]
# What did you find, and why is it so? (Where you read this without sliders, put a second query into the formula.)
#
# <details><summary>What moves</summary>
#
# Only the key and the hidden words move the bars on the right. The query moves nothing: no weight grows, whatever *sat*
# asks. So all six words have the same row of weights.
#
# </details>

# %% [markdown]
# ### The proof
#
# Write $a_i = w \cdot \tanh(q_i)$ and $b_j = w \cdot \tanh(k_j)$:
#
# $$\frac{e^{a_i + b_j}}{\sum_m e^{a_i + b_m}} = \frac{e^{a_i}\,e^{b_j}}{e^{a_i} \sum_m e^{b_m}} = \frac{e^{b_j}}{\sum_m e^{b_m}}$$
#
# The query's factor stands in the numerator and in the denominator. It **cancels**: nothing that depends on $i$ is
# left, and no gradient reaches $q$.

# %%
query, key, value = torch.randn(3, 1, 2, 7, 5, dtype=torch.float64, requires_grad=True)
separable = SeparableAdditiveScore(2, 5).double()
output, weights = attend(separable(query, key), value)
other, _ = attend(separable(100 * torch.randn(1, 2, 7, 5, dtype=torch.float64), key), value)
(gradient,) = torch.autograd.grad(output.square().sum(), query)
print("other queries, the same output:        ", torch.allclose(output, other, rtol=0, atol=1e-12))
print("unmasked, one output at all positions:", torch.allclose(output, output[:, :, :1].expand_as(output), rtol=0, atol=1e-12))
print("gradient of the query below 1e-12:     ", gradient.abs().max().item() < 1e-12)

# %% [markdown]
# So the query projection, $E^2$ parameters in each layer of a model of width $E$, never learns from the loss: its
# parameters are dead.
#
# ### Break it: without the tanh
#
# A classic slip: Bahdanau's score, but somebody forgets the tanh. Here are the weights of the six words with and without
# it. **What has become of the queries?**

# %%
no_tanh = (q[:, None] + k) @ w  # (L, S)
maps = torch.stack([scores, no_tanh]).softmax(dim=-1)  # (2, L, S)
figure = plotting.heads(maps, rows=words, columns=words, titles=["Bahdanau's score", "without its tanh"])
figure.set_size_inches(7.5, 3.4)
plotting.show("Two heat maps of the weights of six words, a row for each query: Bahdanau's score, and the same without its tanh.")

# %% [markdown]
# Without the tanh all rows are alike: $w \cdot (q_i + k_j)$ is a sum of a query part and a key part, too, and the query
# cancels again. It is the tanh **around** the sum that lets a query ask.
#
# ## A task that has to ask
#
# What does the lost query cost? Take the look-up of notebook 02: eight pairs of a key and a value, a digit from 0 to 9,
# and then one of the keys again. The answer is its value. One attention layer trains for 300 steps, with either score.
# **Predict**: how often is each right on new sequences? (One answer in ten is right by luck.)

# %% tags=["nbval-ignore-output"]
task = experiments.BAKE_OFF_LOOK_UP["quick"]["additive"]
task = replace(task, train=replace(task.train, lr=0.01))
*question, answer = task.held_out_batches(device)[0]  # keys (N, 8), values (N, 8), asked (N,); answer (N,)


def look_up(score):
    torch.manual_seed(0)
    setting = replace(task, score=score)
    model = setting.model().to(device)
    fit(model, setting.training_batches(0, device), F.cross_entropy, setting.train, progress=False)
    with torch.no_grad():
        return (model(*question).argmax(dim=-1) == answer).float().mean().item()


right = {score: look_up(score) for score in ("additive", "separable")}
print({score: f"{share:.1%}" for score, share in right.items()})

# %% [markdown]
# Bahdanau's score finds the value almost always. The separable one is right far more often than luck. **How, if it
# cannot ask?** Think of a strategy before you run the next cell. Its last three lines come from a
# [record](../docs/glossary.md#r), the stored results of longer work (here with ten [seeds](../docs/glossary.md#s) and
# rates chosen for each score, in the quick [profile](../docs/glossary.md#p), the one for a CPU). A line that begins with
# *ok* says that your run is of the usual kind.

# %%
times_seen = F.one_hot(question[1]).sum(dim=1)  # (N, 10): how often each digit stands among the eight values
commonest = times_seen.amax(dim=-1).float().mean().item() / 8
course.verdict("look-up: share that Bahdanau's score gets right", right["additive"], above=0.9)
course.verdict("look-up: separable minus naming the most frequent value", right["separable"] - commonest, above=-0.04, below=0.04)
for score in ("dot", "additive", "separable"):
    print(records.describe_record("bake-off-look-up", "test accuracy", "quick", arm=score))

# %% [markdown]
# The separable score is no better than someone who always names the value that occurs most often among the eight. (Eight
# random digits repeat: the most frequent one stands there 2.4 times on average, so this is right in 30 of 100.) It can
# weigh the pairs, but it cannot ask.
#
# ## With a causal mask
#
# Now for what is gained. So far all words get the same output, of no use to a
# [language model](../docs/glossary.md#l). But a language model has a [causal mask](../docs/glossary.md#c). Has the query
# a say again? **How are the rows below related to one another?**

# %%
scores = separable_additive_scores(q[None, None], k[None, None], w[None])
masked, weights = attend(scores, v[None, None], attn_mask=causal_mask(6))
seen = weights[0, 0].masked_fill(~causal_mask(6), torch.nan)
plotting.heatmap(seen, rows=words, columns=words, title="separable, causal", vmax=1)  # masked cells stay blank
plotting.show("A triangle of weights, a row for each of the six words; above the diagonal it is blank.")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Each row is the bottom row, cut off after the row's own word and rescaled to sum to 1. So the query still has no say.
# The outputs differ after all, because each [position](../docs/glossary.md#p) sees **a different number of keys**.
#
# </details>
#
# The output is a running mean:
#
# $$y_i = \frac{\sum_{j \le i} e^{b_j}\, v_j}{\sum_{j \le i} e^{b_j}}$$

# %%
b = k.tanh() @ w  # (S,): the score of each word, whichever query asks
in_a_loop = torch.stack([b[: i + 1].softmax(dim=0) @ v[: i + 1] for i in range(6)])  # (L, D)
torch.testing.assert_close(masked[0, 0], in_a_loop)


# %% [markdown]
# Sums like these two, over the first 1, 2, 3, … elements, are called **[prefix sums](../docs/glossary.md#p)**. Torch's
# `cumsum` computes those of all positions at once, in time and memory O(L):

# %%
def with_prefix_sums(scores, value):  # (S,), (S, D)
    weight = scores.exp()[:, None]  # (S, 1)
    return (weight * value).cumsum(dim=0) / weight.cumsum(dim=0)  # (S, D)


torch.testing.assert_close(with_prefix_sums(b, v), in_a_loop)
torch.testing.assert_close(running_mean(b, v)[0], in_a_loop)  # the package's


# %% [markdown]
# The exponential of a large score overflows. *Optional: large and small weights* shows how the package's `running_mean`
# avoids this.
#
# ### How fast
#
# Forward and backward, causal, two heads of 32: Bahdanau's score a few queries at a time, the dot product in torch's
# fused kernel (notebook 03), and the separable score twice, on the readable path with its (L, S) weights and as a running
# mean. **Predict**: from how many tokens on is the running mean faster than the others?

# %%
def milliseconds(score, length, need_weights=False):
    inputs, times = [torch.randn(1, 2, length, 32, requires_grad=True) for _ in range(3)], []
    for _ in range(max(5, 8192 // length)):
        began = time.perf_counter()
        attention(score, *inputs, is_causal=True, need_weights=need_weights)[0].sum().backward()
        times.append(1000 * (time.perf_counter() - began))
    return min(times)  # the run that other programs disturbed least


lengths, separable = (128, 256, 512, 1024, 2048), SeparableAdditiveScore(2, 32)
timed = {
    "Bahdanau, to 1,024": [milliseconds(AdditiveScore(2, 32), n) for n in lengths[:-1]],  # the last takes seconds
    "separable, readable": [milliseconds(separable, n, need_weights=True) for n in lengths],
    "dot product, fused": [milliseconds(DotProductScore(2, 32), n) for n in lengths],
    "separable, running mean": [milliseconds(separable, n) for n in lengths],
}

# %% tags=["nbval-ignore-output"]
lines = {name: list(zip(lengths, ms, strict=False)) for name, ms in timed.items()}
ax = plotting.curves(lines, xlabel="tokens", ylabel="milliseconds", title="forward and backward", logy=True)
for line, score in zip(ax.lines, ("additive", "separable", "dot", "separable"), strict=True):
    line.set(marker="o", color=hues[score], linestyle="--" if "readable" in line.get_label() else "-")
ax.set_xscale("log", base=2)
ax.set_xticks(lengths, labels=lengths)
ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
ax.figure.set_size_inches(8, 3.2)
for name, ms in timed.items():
    faster = [n for n, slow, fast in zip(lengths, ms, timed["separable, running mean"], strict=False) if fast < slow]
    print(f"{name:23} last doubling: {ms[-1] / ms[-2]:3.1f} times as long; running mean faster at {faster or 'none'}")
print(f"2048 tokens, dot product over running mean: {timed['dot product, fused'][-1] / timed['separable, running mean'][-1]:.1f}")
plotting.show("Milliseconds against tokens on logarithmic axes, a line for each of the four ways.")

# %%
course.verdict("time at 2048 tokens, readable over running mean", timed["separable, readable"][-1] / timed["separable, running mean"][-1], above=3)

# %% [markdown]
# All but the running mean compute something for each pair of tokens, so in long texts their time should grow fourfold
# when the length doubles. Up to these lengths it grows more than threefold, and that of the readable path far more. The
# running mean's work grows only with the length. Its fair rival is the fused dot product. In short texts most of the
# running mean's time is what each call costs, however little it computes, so in the models below, which read 64
# characters, do not expect it to save time. Where the lines cross depends on the machine.
#
# ### Writing token by token
#
# Prediction 2. A model that writes adds one token at a time. What must it keep of all those before, to compute the next
# output of the running mean?
#
# <details><summary>Answer</summary>
#
# The two sums, above and below the fraction bar: $D + 1$ numbers for the whole past. A new token adds one term to each.
#
# </details>

# %%
top, bottom, generated = torch.zeros(4), torch.zeros(()), []
for weight, new in zip(b.exp(), v, strict=True):
    top, bottom = top + weight * new, bottom + weight  # (D,), ()
    generated.append(top / bottom)
torch.testing.assert_close(torch.stack(generated), in_a_loop)

# %% [markdown]
# The package keeps as many numbers, in a form that cannot overflow. Here this state stands beside the
# [KV cache](../docs/glossary.md#k) of notebook 08, with two heads of 16. **Predict** how many numbers each of them holds
# after 300 tokens.

# %%
query, key, value = torch.randn(3, 1, 2, 300, 16)
separable, state, cache = SeparableAdditiveScore(2, 16), SeparableState(), KeyValueCache()
steps = [(query[:, :, n : n + 1], key[:, :, n : n + 1], value[:, :, n : n + 1]) for n in range(300)]
outputs = [torch.cat([memory.attend(separable, *step) for step in steps], dim=2) for memory in (state, cache)]
for output in outputs:
    torch.testing.assert_close(output, attention(separable, query, key, value, is_causal=True)[0])
print("after 300 tokens: state", sum(x.numel() for x in state.past), "numbers · cache", cache.key.numel() + cache.value.numel())

# %% [markdown]
# The cache grows with every token. The state stays at 2 · 17 = 34 numbers, however many tokens it sums up. That is what
# moving the plus gives. What does it take away from a model that writes?
#
# ## What is a query worth on text?
#
# On the look-up a query is worth everything. But two of the repository's four models learned Shakespeare although their
# queries had no effect. From what? Name three sources.
#
# <details><summary>Answer</summary>
#
# The **weight** of a token can depend on its content, in each head in another way. It can depend on its **position**.
# And whatever the weights, the [feed-forward](../docs/glossary.md#f) network sees the **token itself** beside the mean
# of the values.
#
# </details>
#
# ### How far without asking
#
# We train three models on Tiny Shakespeare. One has the dot product. One has the separable score, which can prefer some
# keys to others but cannot ask. The third has **equal weights**: every score is 0 and stays 0, so its heads make plain
# running means. As in notebook 08, the numbers to beat come from counting: how often did each character follow the one
# before it (pairs), or the two before it (threes)? The losses are in nats, the unit of natural logarithms. **Guess** in
# which order these five stand.
#
# <details><summary>How the models are made and trained</summary>
#
# In the quick [profile](../docs/glossary.md#p) they have four layers of width 128 with four heads and sinusoids, and
# train for a twelfth of notebook 08's 2,000 steps with [Muon](../docs/glossary.md#m), which in few steps gets further
# than [AdamW](../docs/glossary.md#a). The [embeddings](../docs/glossary.md#e) start with features as large as the
# sinusoids', about ±1, as in Vaswani et al. 2017 ([arXiv:1706.03762](https://arxiv.org/abs/1706.03762), section 3.4).
#
# </details>

# %%
muon = experiments.SHAKESPEARE[course.profile()]["muon"].train
cell = replace(experiments.SHAKESPEARE_CELL[course.profile()], positions="sinusoidal", train=muon.with_steps(muon.steps // 12))
(train_text, characters), (held_out, _) = (shakespeare(split) for split in ("train", "val"))
train_text, held_out = train_text.to(device), held_out[:20_000].to(device)
V = len(characters)


# %%
def loss_by_counting(n, text):  # as in notebook 08: how often did each character follow the n - 1 before it?
    power = V ** torch.arange(n).flip(0)
    runs, wanted = ((part.cpu().unfold(0, n, 1) * power).sum(dim=-1) for part in (train_text, text))
    seen = torch.bincount(runs, minlength=V**n).view(-1, V) + 0.1
    return (seen.sum(dim=-1, keepdim=True).log() - seen.log()).flatten()[wanted].mean().item()


pairs, threes = (loss_by_counting(n, held_out) for n in (2, 3))
print(f"counting pairs: {pairs:.2f}, counting threes: {threes:.2f}")


# %%
def train(score, flat=False):
    torch.manual_seed(0)
    model = replace(cell, score=score).model().to(device)
    if flat:  # all keys have the score 0, which is not trained
        for block in model.blocks:
            block.attention.score.weight.data.zero_().requires_grad_(False)
    stream = text_batches(train_text, cell.length, batch_size=cell.batch_size, seed=0)
    fit(model, stream, next_token_loss, cell.train)
    return model, text_loss(model, held_out, cell.length)


# %% tags=["nbval-ignore-output"]
trained = {"equal weights": train("separable", flat=True), "separable": train("separable"), "dot": train("dot")}
losses = {name: loss for name, (_, loss) in trained.items()}
print({name: f"{loss:.3f}" for name, loss in losses.items()})

# %%
stand = {"counting pairs": pairs, **losses, "counting threes": threes}
_, ax = plt.subplots(figsize=(8, 2.4), layout="constrained")
for row, (name, loss) in enumerate(stand.items()):
    color, fill = hues.get(name, "0.5"), "none" if "counting" in name else "full"
    ax.plot(loss, row, "o", color=color, fillstyle=fill, markersize=8)
    ax.annotate(f"{loss:.2f}", (loss, row), xytext=(8, -3), textcoords="offset points", color=color)
ax.set_yticks(range(len(stand)), labels=stand)
ax.set(xlabel="validation loss, nats", xlim=(1.9, 2.6), ylim=(len(stand) - 0.5, -0.5), title="counting, and models of one seed")
ax.spines[["top", "right"]].set_visible(False)
plotting.show("Five rows with a dot each on one axis of validation loss: counting pairs, equal weights, separable, dot, counting threes.")

# %%
course.verdict("equal weights: loss minus that of counting pairs", losses["equal weights"] - pairs, below=-0.1, measured="quick")
course.verdict("separable: loss minus that of equal weights", losses["separable"] - losses["equal weights"], below=0, measured="quick")
course.verdict("loss of separable minus loss of dot product", losses["separable"] - losses["dot"], above=-0.1, below=0.1, measured="quick")
course.verdict("lowest loss of the three, minus that of counting threes", min(losses.values()) - threes, above=0.1, measured="quick")

# %% [markdown]
# Equal weights do much better than counting pairs, by 0.19 nats: a model learns much without preferring any key, from
# the token itself and from plain means of the values, which hold positions too. A trained score lowers the loss further,
# by 0.07 nats if it is separable and by 0.10 if it is a dot product. So in these runs, most of what a score adds needs no
# query. (*Optional: which keys have large weights* looks at what the separable heads have learned.)
#
# But these are short trainings with one seed, and counting threes is still ahead. What is the query worth to better
# models?
#
# ### The query and its parameters
#
# For a record, smaller models, two layers of width 64, train for longer, 1,200 steps, with five seeds each. Bahdanau's
# own score joins in (*additive*). It differs from the separable one only in where the plus stands. **So the difference
# between these two is what a query is worth.** On paper both have equally many parameters, 107,072 with sinusoids. But in
# the separable model the query projections are dead: 2 layers of 64², 8,192 parameters. So we measure a query **and** its
# 8,192 parameters, 8 % more that work.
#
# There are three settings: sinusoidal positions, [learned positions](../docs/glossary.md#l), and *tuned*. In the first two,
# steps and learning rate were chosen for the dot product, which may favour it. *Tuned* is notebook 16's record with
# sinusoids: there every score and seed has a learning rate and an initial size of queries and keys of its own, chosen on
# held-out text, and trains for a third fewer steps. (In code, one score in one setting is called an **arm**.)
#
# **Predict**: which of the three scores has the lowest loss, which the highest? How many nats is a query worth?

# %%
for arm in experiments.ADDITIVE_2X2["quick"]:
    print(records.describe_record("additive-2x2", "validation loss", "quick", arm=arm))
steps, runs = records.recorded_curves(records.load_record("additive-2x2", "quick"), "validation loss")  # arm -> (seeds, looks)
whole = loss_by_counting(3, shakespeare("val")[0])  # records are measured on the whole validation text
print(f"counting threes: {whole:.3f}")

# %%
kinds = ("sinusoidal", "learned")
_, axes = plt.subplots(1, 2, figsize=(9.5, 3.4), sharey=True, layout="constrained")
for ax, kind in zip(axes, kinds, strict=True):
    styles = {score: {"color": hues[score], "markersize": 4} for score in hues}
    plotting.bands({score: runs[f"{kind}, {score}"] for score in hues}, x=steps, title=f"{kind} positions", styles=styles, ax=ax)
    ax.axhline(whole, color="0.5", linestyle=":", label="counting threes")
    ax.legend(frameon=False)
axes[0].set_ylabel("validation loss, nats")
axes[1].set_ylabel("")
plotting.show("The mean validation loss against the steps, one panel for each kind of positions, a line for each score; dotted: counting threes.")

# %%
ends = {arm: curves[:, -1] for arm, curves in runs.items()}  # one loss a seed
tuned = records.load_record("bake-off-text", "quick")
ends |= {f"tuned, {score}": torch.tensor(records.recorded_metric(tuned, "validation loss", score)) for score in hues}


def gains(one, other, settings=(*kinds, "tuned")):
    return {how: ends[f"{how}, {one}"] - ends[f"{how}, {other}"] for how in settings}


query_worth = {how: metrics.mean_and_half(gain) for how, gain in gains("separable", "additive").items()}
for how, (mean, half) in query_worth.items():
    print(f"{how:10} separable minus additive: {mean:.3f} nats (95 % from {mean - half:.3f} to {mean + half:.3f})")

# %% [markdown]
# With both kinds of positions the mean of the dot product ends lowest and that of the separable score highest (with
# learned positions the dot product and Bahdanau's are hardly told apart), and all six means end below counting threes.
# (Error bars are standard errors over the five seeds. With learned positions the dot product is still the highest after
# 240 steps: short trainings mislead.)
#
# A query with its parameters is worth **0.027 and 0.031 nats**: more than nothing, since neither interval contains 0.
# Tuned, it is worth 0.012, and perhaps nothing; the intervals overlap, so it may be no less. (The tuned runs differ in
# rates, initial sizes and steps.) So on this text, at this size and for this form of score, a query with its parameters
# is worth a few hundredths of a nat at most. What the query is worth to the dot product was not measured.

# %% [markdown]
# ## The three claims
#
# What did the repository see? These are the lowest validation losses, as far as one can read them off its plots, so the
# last digit is uncertain. The dot product's loss rises again in the end, to about 1.58; that of the separable score does
# not.
#
# | | dot product | separable | difference |
# |---|---|---|---|
# | sinusoidal | 1.481 | 1.504 | 0.023 |
# | learned | 1.486 | 1.532 | 0.046 |
# | difference | 0.005 | 0.028 | |
#
# We judge its claims by **one ruler**, that of notebook 08: the smallest difference that matters is **0.03 nats**, by
# convention.
#
# 1. *The separable score keeps up with the dot product*: its loss is higher by 0.03 at most.
# 2. *Both kinds of positions do equally well*: their losses differ by 0.03 at most, either way.
# 3. *Only the dot product overfits*: from its lowest to its last value, its loss rises by more than 0.03, and that of the
#    separable score does not.
#
# Differences are taken seed by seed, five seeds each. A claim is **shown** if the whole 95 % interval lies within what it
# allows, **refuted** if all of it lies outside, and otherwise **undecided**.
#
# For the third we need another record. The published runs read their text 82 times, with
# [dropout](../docs/glossary.md#d) (random features are set to 0 in training). Ours read a 25th of it, 40 times, without
# dropout. **Predict**: whose validation loss rises in the end? And which of the claims holds?

# %%
record = records.load_record("additive-2x2-little-text", "quick")
steps, often = records.recorded_curves(record, "validation loss")  # arm -> (seeds, looks)
lines = {"sinusoidal": "-", "learned": "--"}
styles = {arm: {"color": hues[arm.split(", ")[1]], "linestyle": lines[arm.split(", ")[0]]} for arm in often}
title = f"little text: mean ± standard error, {len(often['learned, dot'])} seeds"
plotting.bands(often, x=steps, ylabel="validation loss, nats", title=title, styles=styles)
plotting.show("Curves of validation loss against the number of steps, one for each score and kind of positions, with bands over the seeds.")


# %%
def judged(values, low=-torch.inf, high=0.03):  # from low to high is what the claim allows
    mean, half = metrics.mean_and_half(values)
    least, most = mean - half, mean + half
    inside, outside = low <= least and most <= high, most < low or least > high
    return f"{mean:6.3f} ({least:6.3f} to {most:.3f}): {'shown' if inside else 'refuted' if outside else 'undecided'}"


rises = {arm: curves[:, -1] - curves.amin(dim=1) for arm, curves in often.items()}  # one a seed
table = {f"1 separable keeps up, {how}": judged(gap) for how, gap in gains("separable", "dot").items()}
for score in ("dot", "separable"):
    gap = ends[f"learned, {score}"] - ends[f"sinusoidal, {score}"]
    table[f"2 positions do equally well, {score}"] = judged(gap, low=-0.03)
for arm, rise in rises.items():
    overfits = arm.endswith("dot")
    name = f"3 {'overfits' if overfits else 'does not overfit'}, {arm}"
    table[name] = judged(rise, low=0.03, high=torch.inf) if overfits else judged(rise)
print(f"{'claim and setting':42}   mean (95 % interval): verdict")
for name, line in table.items():
    print(f"{name:42} {line}")
_, on_its_text = records.recorded_curves(record, "loss")  # the training loss, whose last 5 points are 50 steps
print("training loss in the end:", {arm: f"{losses[:, -5:].mean():.2f}" for arm, losses in on_its_text.items()})

# %%
least = min(rises[f"{kind}, separable"].min().item() for kind in kinds)
course.verdict("the least that a separable model's loss rises", least, above=0.2)


# %% [markdown]
# **First: refuted** with sinusoids, tuned or not, and **undecided** with learned positions. (The repository's own plots
# say 0.023 and 0.046: by our ruler they would not show the claim, either.) The look-up, which it did not try, shows what
# no loss on text shows: 29 % right in place of 100 %. (For images cut into patches, notebook 16 finds the claim shown.)
#
# **Second: refuted** with the dot product, **undecided** with the separable score. With both, sinusoids have the lower
# loss. Learned positions were not tuned, so it is open whether a learning rate of their own would help them.
#
# **Third: refuted.** That the dot product overfits is shown, but the separable score overfits, too. A validation loss that
# rises while the training loss ends far below is [overfitting](../docs/glossary.md#o), and that is how every run of both
# scores ends. These runs have little text and no dropout: the separable score *can* overfit, which does not mean that it
# would have in the repository's setting. How far a loss rises is no ranking: a model whose training loss is still high may
# only be behind.
#
# All this holds at our size. The repository's models are larger and train for 5,000 steps: our full profile (the
# published size), which nobody has recorded yet. And of so many 95 % intervals, one may well miss the true value by
# chance.

# %% [markdown]
# ## Today
#
# Where long texts have to be cheap, models keep sums in place of all past tokens:
#
# - AFT-simple, an Attention Free Transformer (Zhai et al. 2021, [arXiv:2105.14103](https://arxiv.org/abs/2105.14103),
#   section 3; exercise 2), has a weight of its own for every feature, and the query multiplies the mean by a gate
#   between 0 and 1.
# - **RWKV** (Peng et al. 2023, [arXiv:2305.13048](https://arxiv.org/abs/2305.13048)), a language model of up to 14
#   billion parameters, takes such means with weights that fade with distance, and a gate outside.
# - [Linear attention](../docs/glossary.md#l) (Katharopoulos et al. 2020,
#   [arXiv:2006.16236](https://arxiv.org/abs/2006.16236)) sums the products $k_j v_j^\top$, a matrix. The query
#   multiplies this matrix, so it keeps its say.

# %% [markdown]
# ## What is lost?
#
# Your three predictions, and what came of them:
#
# 1. *Another query for* sat: no weight changes. The softmax cancels whatever depends on the query alone.
# 2. *What to keep of 1,000 tokens*: two sums, D + 1 numbers for each head.
# 3. *Beside the dot product*: at our size, 0.04 to 0.06 nats more loss. Of this the query with its parameters makes up
#    0.027 of 0.064 with sinusoids, 0.031 of 0.040 with learned positions, and 0.012 of 0.045 in the tuned runs, where it
#    may be nothing.
#
# ## Takeaways
#
# - If a score is a query part plus a key part, the softmax cancels the query part. For a query to count, it has to be
#   multiplied by the key, as in the dot product, or meet it inside a function such as tanh.
# - **Gained**: under a causal mask, a running mean in linear time, and a state that does not grow. Bahdanau's score
#   computes D hidden features for each pair of tokens.
# - **Lost on the look-up**, whose task is to ask for the right key: all that asking brings.
# - **Lost on our text**: 0.04 to 0.06 nats. Without any preference for keys a model already beats counting pairs.
# - **The claims**, for models of our size: *keeps up* is refuted in two of three settings, and *positions do equally
#   well* with one of two scores. *Only the dot product overfits* is refuted: on little text the separable score overfits,
#   too.

# %% [markdown]
# ## Check yourself
#
# 1. A head scores with $w \cdot (q_i + k_j)$, then a ReLU on the whole score. Does the query cancel?
# 2. Without a mask, what can one layer of separable attention add to a token? Do positions change that?
# 3. Could one subtract $\lambda|i - j|$ from the separable score, and keep the prefix sums?
#
# <details><summary>Answers</summary>
#
# 1. Not always. The ReLU cuts a score that is below 0, and the query decides which scores these are. In a row in which
#    none is cut, the query cancels. In a row in which all are cut, the weights are equal.
# 2. The same vector to all tokens: a weighted mean of the whole text. Positions may change it, but alike for all.
# 3. Yes. Under a causal mask $-\lambda i$ cancels and $\lambda j$ joins the key's score, as in notebook 07. Without a
#    mask each output takes two sums, one from either end, and each has a factor of its own that no longer cancels:
#
# $$y_i = \frac{e^{-\lambda i} \sum_{j \le i} e^{b_j + \lambda j} v_j + e^{\lambda i} \sum_{j > i} e^{b_j - \lambda j}
# v_j}{\text{the same with 1 in place of } v_j}$$
#
#    The spread of the scores grows with the length, so the sums have to be merged, as in *Optional: large and small
#    weights*.
#
# </details>

# %% [markdown]
# **To read**: Bahdanau et al. 2015 ([arXiv:1409.0473](https://arxiv.org/abs/1409.0473)), section 3 and appendix A: how
# the score came into the translator. Zhai et al. 2021 ([arXiv:2105.14103](https://arxiv.org/abs/2105.14103)), section
# 3, and Katharopoulos et al. 2020 ([arXiv:2006.16236](https://arxiv.org/abs/2006.16236)), section 3: what to sum in
# place of weights.
#
# **Next**: a score need be neither a dot product nor a sum. What if tokens attracted one another like masses? 10,
# [energy wells](../docs/glossary.md#e).

# %% [markdown]
# ## Exercises
#
# Write the answer in place of `raise NotImplementedError` and run the cell. The first wrong run shows what is wrong
# with the result, the second names the mistake; the numbers are fresh each time. Hints and a solution are folded away
# below each cell.
#
# ### Exercise 1 · easy · 5 minutes
#
# Bahdanau's attention for one head, from the scores to the output, without a loop.

# %%
def bahdanau(query, key, value, weight):  # (L, D), (S, D), (S, D), (D,)
    raise NotImplementedError  # (L, D)


check.bahdanau(bahdanau)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Every query meets every key: which two shapes broadcast to (L, S, D)?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `query[:, None]` is (L, 1, D). The sum goes into the tanh, `weight` sums over D, and the weights of each query sum to
# 1.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def bahdanau(query, key, value, weight):
#     hidden = (query[:, None] + key).tanh()  # (L, S, D)
#     return (hidden @ weight).softmax(dim=-1) @ value  # (L, D)
# ```
#
# </details>
#
# ### Exercise 2 · middle · 8 minutes
#
# AFT-simple, causal: every **feature** has its own weight $e^{k_{jd}}$, and the query is a gate outside the mean:
#
# $$y_{id} = \sigma(q_{id})\,\frac{\sum_{j \le i} e^{k_{jd}}\, v_{jd}}{\sum_{j \le i} e^{k_{jd}}}$$
#
# Here σ is the sigmoid. Use prefix sums; a loop over the words is allowed, too, but slow. The keys are so small that no
# exponential overflows.

# %%
def causal_aft(query, key, value):  # (L, D) each
    raise NotImplementedError  # (L, D)


check.causal_aft(causal_aft)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# As in `with_prefix_sums`, but the weight is (L, D) already. Along which axis do the tokens lie?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Sum `weights * value` and `weights` over the tokens so far, divide, and multiply by the sigmoid of the query.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def causal_aft(query, key, value):
#     weights = key.exp()  # (L, D)
#     mean = (weights * value).cumsum(dim=0) / weights.cumsum(dim=0)  # (L, D)
#     return query.sigmoid() * mean
# ```
#
# </details>
#
# ### Exercise 3 · hard · 15 minutes
#
# One step of generation that works for **any** score between −1000 and 1000, also for one whose exponential overflows
# or is 0 in floating-point numbers. It takes what you keep of the past (None at the first token) and the new token's
# score and value. It returns what to keep, and the output: the mean of all values so far, weighted by
# $e^{\text{score}}$. Keep no more than D + 2 numbers: two sums and one score more are enough.

# %%
def read_token(past, score, value):  # yours, (), (D,)
    raise NotImplementedError  # yours, (D,)


check.read_token(read_token)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Two sums of $e^{b_j - m}$, where $m$ is the largest score **so far**. When $m$ grows to $m'$, what happens to the old
# sums?
#
# </details>
# <details><summary>Hint 2</summary>
#
# They were measured against the old $m$: multiply both by $e^{m - m'}$, which is never above 1, before the new token
# joins.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def read_token(past, score, value):
#     if past is None:
#         return (score, value, torch.ones_like(score)), value
#     largest, top, bottom = past
#     new_largest = torch.maximum(largest, score)
#     fade, weight = (largest - new_largest).exp(), (score - new_largest).exp()
#     top, bottom = fade * top + weight * value, fade * bottom + weight
#     return (new_largest, top, bottom), top / bottom
# ```
#
# </details>

# %% [markdown]
# ## Optional: which keys have large weights
#
# Without a query, does the weight of a key depend on its position? We average the weights at the last character of 64
# chunks of text, for each head of the separable model. **Predict**: sketch a curve of weight against position. Do all
# heads have the same?

# %%
model, length = trained["separable"][0].eval(), cell.length  # without dropout, which the full profile trains with
with torch.no_grad():
    maps = model.attention_weights(held_out[: 64 * length].view(64, length))  # one (B, H, L, L) for each layer
_, axes = plt.subplots(1, len(maps), figsize=(10, 2.8), sharey=True, layout="constrained")
for layer, (ax, weights) in enumerate(zip(axes, maps, strict=True)):
    mean = weights[:, :, -1].mean(dim=0)  # (H, S)
    for head, (row, color) in enumerate(zip(mean.tolist(), cycle(plotting.COLORS[3:]), strict=False)):  # no score has these colours
        ax.plot(range(1, length + 1), row, color=color, label=f"head {head}")
    ax.axhline(1 / length, color="0.5", linestyle="--", label="equal weights")
    ax.set(xlabel="position", title=f"layer {layer}")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].legend(frameon=False, fontsize=8)
axes[0].set_ylabel("mean weight")
plotting.show("A panel for each layer: the mean weight at the last character against the position of the key, a line for each head; dashed: equal weights.")

# %% tags=["nbval-ignore-output"]
late = [weights[:, :, -1, -length // 4 :].sum(dim=-1).mean().item() for weights in maps]
print("share of the last quarter, by layer:", [f"{share:.2f}" for share in late])

# %%
course.verdict("share of the last quarter, mean of the layers", statistics.mean(late), above=0.4, measured="quick")

# %% [markdown]
# No query asks for what is near, and yet in nearly all heads of this model the weights rise steeply towards the end of
# the chunk, though several fall again at the very last keys. In the quick profile the last quarter has more than half
# of the weight in every layer; equal weights would give it a quarter. So the last character favours what is near,
# somewhat as under the causal [distance bias](../docs/glossary.md#d) of notebook 07. Some heads are highest earlier,
# one in layer 0 in the middle. A character in the middle of a chunk has the same weights as the last one, cut off after
# its own position and rescaled. Single sharp peaks, such as that of head 2 in layer 3, are left unexplained, and other
# seeds were not tried.

# %% [markdown]
# ## Optional: the other comparisons
#
# Where does Bahdanau's score stand against the dot product, and what do positions do to it? The same ruler:

# %%
for one, other in (("separable", "additive"), ("additive", "dot")):
    for how, gap in gains(one, other).items():
        print(f"{one} keeps up with {other}, {how}".ljust(50), judged(gap))
print("both kinds of positions do equally well, additive".ljust(50), judged(ends["learned, additive"] - ends["sinusoidal, additive"], low=-0.03))


# %% [markdown]
# Tuned, the separable score is **shown** to keep up with Bahdanau's, and with learned positions Bahdanau's with the dot
# product; the rest is undecided. What lies between Bahdanau's score and the dot product is a difference between two scores
# that both use their queries. In the seconds of the record the separable score is not reliably faster: beside the dot
# product it took longer with sinusoids, and less time with learned positions.

# %% [markdown]
# ## Optional: if you come from the published code
#
# <details><summary>Its flags, and the commands of this course that train the same</summary>
#
# These are the flags of [its `main.py`](https://github.com/blindTissue/additive-attention-experiment), and what they
# are called in this course; its *additive* is our *separable*. Each command trains one run of the published size (long
# on a CPU, so take a GPU) and writes its training and validation losses as `loss.png` into a folder below `runs/`.
# `python -m sciformer record additive-2x2 --profile full` trains all four, with five seeds each.
#
# | its `--use_sinusoidal_pos_emb` | its `--use_additive_attention` | arm of `additive-2x2` | one run |
# |---|---|---|---|
# | `true` | `false` | sinusoidal, dot | `python -m sciformer train shakespeare --profile full --positions sinusoidal --score dot` |
# | `true` | `true` | sinusoidal, separable | `python -m sciformer train shakespeare --profile full --positions sinusoidal --score separable` |
# | `false` | `false` | learned, dot | `python -m sciformer train shakespeare --profile full --positions learned --score dot` |
# | `false` | `true` | learned, separable | `python -m sciformer train shakespeare --profile full --positions learned --score separable` |
#
# Sizes, steps, batches, AdamW's learning rate and the dropout are the same. These are not: our feed-forward networks
# have GELU where its have ReLU, our layers have no biases, our tokens start as large as the sinusoids, we clip long
# gradients, and we measure the loss on the whole validation text in place of random pieces.
#
# </details>

# %% [markdown]
# ## Optional: the same output in less memory
#
# A row of weights needs no other row. So take a few queries at a time, keep only their output, and in the backward pass
# compute each block **once more**. This is [gradient checkpointing](../docs/glossary.md#g) (Chen et al. 2016,
# [arXiv:1604.06174](https://arxiv.org/abs/1604.06174)), torch's `checkpoint`:

# %%
def in_blocks(score, query, key, value, rows=64):
    def block(part, key, value):  # (B, H, rows, D): all keys, some queries
        return attend(score(part, key), value)[0]

    parts = [checkpoint(block, part, key, value, use_reentrant=False) for part in query.split(rows, dim=2)]
    return torch.cat(parts, dim=2)


# %%
def gradients(output, inputs):
    return torch.autograd.grad(output.square().sum(), inputs)


inputs = [torch.randn(1, 1, 150, 64, requires_grad=True) for _ in range(3)]
whole, parts = readable(additive)(*inputs), in_blocks(additive, *inputs)
torch.testing.assert_close(parts, whole)
torch.testing.assert_close(gradients(parts, inputs), gradients(whole, inputs), rtol=1e-4, atol=1e-5)
blocks = numbers_kept(lambda *inputs: in_blocks(additive, *inputs), 512)
course.verdict("numbers kept: whole over blocks", numbers_kept(readable(additive), 512) / blocks, above=50)


# %% [markdown]
# Outputs and gradients are the same, and at 512 tokens 174 times fewer numbers are kept. The peak falls by less: while a
# block of 64 queries is computed, its hidden layer is in memory, an eighth of the whole. The price is a second forward
# pass. The package's [fast path](../docs/glossary.md#f), which gives the same outputs without storing all weights, works
# in blocks too.
#
# Here is Bahdanau's score as a class; beside `MySeparable` only `forward` differs:

# %%
class MyAdditive(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        gain = nn.init.calculate_gain("tanh")  # 5/3: for q and k of variance 1, scores start with variance 1.4
        self.weight = nn.Parameter(torch.randn(num_heads, head_dim) * gain / head_dim**0.5)  # (H, D)

    def forward(self, query, key, *, attn_mask=None, query_offset=0):  # (B, H, L, D), (B, H, S, D)
        hidden = (query[:, :, :, None] + key[:, :, None]).tanh()  # (B, H, L, S, D)
        return (hidden * self.weight[:, None, None]).sum(dim=-1)  # (B, H, L, S)


query, key, value = torch.randn(3, 2, 3, 7, 5)  # (B, H, L, D) each
course.assert_same_module(MyAdditive(3, 5), AdditiveScore(3, 5), query, key)

# %% [markdown]
# ## Optional: large and small weights
#
# The largest number of float32 is about $e^{88}$, and everything below about $e^{-103}$ becomes 0. Let the scores
# spread by 120. Shift them all by the same number, and on paper the means stay. **Predict** which of the three versions
# below give NaN: from −60 to 60, from 0 to 120, from −120 to 0.

# %%
spread = torch.linspace(-60, 60, 64)  # (S,): each score is higher than the one before
values = torch.randn(64, 4)
exact = with_prefix_sums(spread.double(), values.double()).float()
for name, scores in {"from −60 to 60": spread, "from 0 to 120": spread + 60, "from −120 to 0": spread - 60}.items():
    y = with_prefix_sums(scores, values)
    print(f"{name:17} positions that are NaN: {'some' if y.isnan().any() else 'none'}")
print("running_mean of the package:", torch.allclose(running_mean(spread, values)[0], exact, atol=1e-5))


# %% [markdown]
# From 0 to 120 the sums overflow: $\infty/\infty$. To subtract the largest of **all** scores, which gives −120 to 0,
# is no cure: at the first positions every weight rounds to 0, and the result is $0/0$.
#
# The package merges keys instead. A group $G$ of keys acts like **one** key with the score and the value
#
# $$b_G = \log \sum_{j \in G} e^{b_j}, \qquad v_G = \frac{\sum_{j \in G} e^{b_j}\, v_j}{\sum_{j \in G} e^{b_j}}$$
#
# since this one key adds to the sums below and above the fraction bar just what the group adds: $e^{b_G}$ and
# $e^{b_G} v_G$. Here 64 keys become two, and the two one, with the scores from 0 to 120:

# %%
def merged(scores, values):  # (n,), (n, D) -> (), (D,)
    return scores.logsumexp(dim=0), scores.softmax(dim=0) @ values


first_b, first_v = merged(spread[:32] + 60, values[:32])
second_b, second_v = merged(spread[32:] + 60, values[32:])
_, mean = merged(torch.stack([first_b, second_b]), torch.stack([first_v, second_v]))
print("merged twice, the mean of all 64:", torch.allclose(mean, exact[-1], atol=1e-5))

# %% [markdown]
# `logsumexp` and `softmax` subtract the largest score of their group first. Then no exponential is of a number above 0,
# so nothing overflows, and the largest is $e^0 = 1$, so no sum is 0. A model that writes keeps the one key into which
# all keys so far are merged. For a whole text the package cuts the keys into runs of 16 and merges each. The running
# mean over these merged keys is the same problem, 16 times as short, and is solved in the same way. Each position then
# adds the keys of its own run up to itself, so the work stays in proportion to the length.
