# %% [markdown]
# # 17 A score of your own
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/17_your_own_score.ipynb)
#
# ← [16 Bake-off](16_bake_off.ipynb) · [the map of the course](00_welcome.ipynb) · [18 Heads that copy](18_heads_that_copy.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) **17** · taken apart [18](18_heads_that_copy.ipynb)
#
# Needs: notebooks 03, 06 and 08 · runs in about 80 s on two CPU cores · about 1½ hours of study

# %% [markdown]
# After this notebook you can
#
# - write a [score](../docs/glossary.md#s) of your own: one formula, one small module;
# - hold it to the promises that every score of the course keeps, and know what to look for where one is broken;
# - set it beside the built-in scores, fairly: cost, learning, [attention maps](../docs/glossary.md#a).
#
# What is new here: the mechanism is yours.

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
from dataclasses import replace
from functools import partial

import ipywidgets
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models.swin_transformer import shifted_window_attention

from sciformer import DotProductScore, MultiHeadAttention, NormalizedScore, attend, capstone, check, course, plotting, properties
from sciformer.data import mnist, shakespeare, text_batches
from sciformer.lab import records
from sciformer.lab.experiments import CAPSTONE
from sciformer.teach import explore
from sciformer.training import fit, next_token_loss

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## Predict first
#
# The [dot product](../docs/glossary.md#d) grows with the lengths of its vectors. The
# **[cosine](../docs/glossary.md#c)** does not: it is at most 1.
#
# 1. Attention by cosine over 49 [keys](../docs/glossary.md#k): one is equal to the [query](../docs/glossary.md#q), the others are random. How large is
#    the weight of that key?
# 2. Three scores are broken. One sees the future, one divides 0 by 0, one cannot learn its only parameter. Whose
#    training loss falls?

# %% [markdown]
# ## By hand
#
# Six words as vectors; *cat* points where *mat* does and is five times as long. Guess first: with which word does *sat* have the largest dot product, and
# with which the largest cosine? Here is the cosine of every pair of words, in a loop:

# %%
words = ["the", "cat", "sat", "on", "the", "mat"]
vectors = torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 2.0], [-1.0, 0.0], [1.0, 0.0], [0.6, 0.8]])


def length(x):
    return math.sqrt(sum(number**2 for number in x))


cosines = torch.zeros(6, 6)
for i, query in enumerate(vectors.tolist()):
    for j, key in enumerate(vectors.tolist()):
        product = sum(a * b for a, b in zip(query, key, strict=True))
        cosines[i, j] = product / (length(query) * length(key))
print("cat and mat:", round(cosines[1, 5].item(), 3), " cat and on:", round(cosines[1, 3].item(), 3))

# %%
products = vectors @ vectors.T
plotting.heads(torch.stack([products / 25, cosines]), rows=words, columns=words, titles=["dot product / 25", "cosine"], signed=True)
plotting.show(
    "Two heat maps over six words. In that of the dot product only the square of cat with itself is strong; "
    "in that of the cosine many squares are strongly red or blue."
)

# %% [markdown]
# *Cat* wins by its length: its dot product with *sat* is twice that of *sat* with itself. Under the cosine only directions count.
#
# In one line: divide each vector by its length, then multiply.

# %%
unit = F.normalize(vectors, dim=-1)  # (L, D), each row of length 1
torch.testing.assert_close(unit @ unit.T, cosines)

# %% [markdown]
# ## Why a temperature
#
# Prediction 1: 49 keys of size 32, the first of them equal to the query.

# %%
keys = torch.randn(49, 32, generator=torch.Generator().manual_seed(1))
cosine = F.normalize(keys[:1], dim=-1) @ F.normalize(keys, dim=-1).T  # (1, 49)
for temperature in (1.0, 0.3, 0.1, 0.03):
    weights = (cosine / temperature).softmax(dim=-1)
    print(f"τ = {temperature:4}: the equal key's weight is {weights[0, 0]:.2f}")


# %% [markdown]
# With τ = 1 the equal key gets 0.05; equal shares would be 0.02. With scores between -1 and 1 no weight of the
# [softmax](../docs/glossary.md#s) can be more than $e^2 = 7.4$ times another, whatever is learned. Dividing by a **[temperature](../docs/glossary.md#t)** τ
# below 1 spreads them out, and each [head](../docs/glossary.md#h) can learn its own. Can you make *cat* look at itself alone?

# %%
def weights_of_cat(temperature):
    weights = (cosines[1] / temperature).softmax(dim=0)
    return plotting.bars(weights, words, title=f"where cat looks, τ = {temperature:.2f}", top=0.6)


explore(
    weights_of_cat,
    alt="Six bars: the weights of the words for the query cat, by cosine over a temperature.",
    temperature=ipywidgets.FloatLogSlider(value=1.0, min=-2, max=1, description="temperature"),
)

# %% [markdown]
# No: *mat* has the same cosine, and so the same weight.
#
# ## The formula
#
# $$s_{ij} = \frac{1}{\tau_h} \frac{q_i \cdot k_j}{|q_i|\,|k_j|}$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $q_i / \lvert q_i\rvert$ | `F.normalize(query, dim=-1)` | (B, H, L, D) |
# | $k_j / \lvert k_j\rvert$ | `F.normalize(key, dim=-1)` | (B, H, S, D) |
# | $1/\tau_h$, at most 100 | `log_scale.exp().clamp(max=100.0)` | (H,) |
# | $s_{ij}$ | `scores` | (B, H, L, S) |
#
# Scaled cosine attention: Liu et al. 2021 (Swin Transformer V2, [arXiv:2111.09883](https://arxiv.org/abs/2111.09883)),
# section 3.2: τ is learned in each head and layer and kept above 0.01.

# %% [markdown]
# ## Break it: a vector of zeros
#
# [Padding](../docs/glossary.md#p) is often zeros, and zeros have no direction. Divided by hand:

# %%
zeros = torch.zeros(2)
print("by hand:    ", zeros / zeros.norm())
print("F.normalize:", F.normalize(zeros, dim=-1))


# %% [markdown]
# `F.normalize` divides by 10⁻¹² at least. A NaN that is used spreads to all that is computed from it. (Finite is not yet harmless: the *gradient* at a
# vector of zeros is multiplied by 10¹². Keys that a learned map with a bias makes are hardly ever exactly 0. Where they may be, give a larger `eps`.)
#
# ## The module
#
# A score is any module with this signature; the layer applies mask and softmax. `attn_mask` (True where a query may attend) is for formulas that run
# over all keys, `query_offset` (the first query's position) for those that compare positions. The layer takes a *recipe*, here the class, and calls it
# with the number of heads and their size. The logarithm of 1/τ is learned, so that τ stays above 0 and a step changes it by a percentage. (Where
# `clamp` holds 1/τ at 100, no gradient arrives.)

# %%
class CosineScore(nn.Module):
    def __init__(self, num_heads, head_dim, start=0.1):
        super().__init__()
        self.log_scale = nn.Parameter(torch.full((num_heads,), -math.log(start)))  # log 1/τ

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        cosine = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT  # (B, H, L, S)
        return self.log_scale.exp().clamp(max=100.0)[:, None, None] * cosine


layer = MultiHeadAttention(32, 4, score=CosineScore)
output, weights = layer(torch.randn(2, 16, 32), need_weights=True)
print("output:", tuple(output.shape), " weights:", tuple(weights.shape))

# %% [markdown]
# Is it right? torchvision has Swin V2's attention. A window as large as the whole image, no shift, no bias of
# [position](../docs/glossary.md#p): then it must be ours. The four matrices are those of our layer. (All heads have τ = 0.1 here: that each may have its
# own is not checked, nor is the limit of 100, nor a layer with biases.)

# %%
image = torch.randn(2, 4, 4, 32)  # (B, rows, columns, E)
layer = MultiHeadAttention(32, 4, score=CosineScore, bias=False)
qkv = torch.cat([layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight])  # (3E, E)
theirs = shifted_window_attention(
    image, qkv, layer.out_proj.weight, torch.zeros(1, 4, 16, 16), [4, 4], 4, [0, 0],
    logit_scale=layer.score.log_scale[:, None, None],
)
torch.testing.assert_close(layer(image.flatten(1, 2))[0], theirs.flatten(1, 2))

# %% [markdown]
# It has a relative in the package: `NormalizedScore` brings queries and keys to length $\sqrt D$ before the scaled dot product, so it is the cosine with
# $\tau = 1/\sqrt D$, fixed.

# %%
query, key = torch.randn(2, 3, 5, 16), torch.randn(2, 3, 7, 16)
ours = CosineScore(3, 16)
nn.init.constant_(ours.log_scale, math.log(math.sqrt(16)))
torch.testing.assert_close(ours(query, key), NormalizedScore(3, 16)(query, key))

# %% [markdown]
# ## The property suite
#
# What should be true of *every* score? Notebook 02 asked one such question: does the future
# [leak](../docs/glossary.md#l)? By hand, once more:

# %%
query, key, value = (torch.randn(1, 3, 6, 8, requires_grad=name == "key") for name in ("query", "key", "value"))
mask = torch.ones(6, 6).tril().bool()
output, _ = attend(CosineScore(3, 8)(query, key, attn_mask=mask), value, attn_mask=mask)
leaks = []
for i in range(6):
    (gradient,) = torch.autograd.grad(output[:, :, i].square().sum(), key, retain_graph=True)
    leaks.append(gradient[:, :, i + 1 :].any().item())
print("a later key matters:", leaks)

# %% [markdown]
# The package asks every score of the course this and more, in float64, on the readable and on the [fast
# path](../docs/glossary.md#f), under six kinds of [masks](../docs/glossary.md#m). The last two promises are about
# GPUs, and yet they are asked without one: torch can compute shapes, dtypes and devices without any numbers, if it was built with CUDA. (If it was not,
# or if torch is older than 2.10 and there is no GPU, these two are not asked.)

# %%
for name, prop in properties.PROPERTIES.items():
    print(f"{name}\n    {prop.holds}")

# %% [markdown]
# Ours:

# %% tags=["nbval-ignore-output"]
print(report := properties.examine(CosineScore))
assert report.holds


# %% [markdown]
# ## Three broken scores
#
# A test that never fails says nothing. Here are three slips that are easy to make. Which promises does each of them break? The first divides each row by
# the root of 1 + its variance, and multiplies it by 10, so that all rows except nearly flat ones are spread about equally:

# %%
class LeakingScore(CosineScore):
    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        scores = super().forward(query, key)
        return 10 * scores / (1 + scores.var(dim=-1, keepdim=True, correction=0)).sqrt()


class DividingScore(CosineScore):
    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        lengths = query.norm(dim=-1)[..., :, None] * key.norm(dim=-1)[..., None, :]  # (B, H, L, S)
        return self.log_scale.exp()[:, None, None] * (query @ key.mT) / lengths


class DeafScore(CosineScore):
    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        cosine = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT
        return self.log_scale.data.exp()[:, None, None] * cosine


class NoScore(CosineScore):  # no slip, but a control: all keys alike
    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        return 0 * super().forward(query, key)


# %% [markdown]
# Prediction 2. Each in a small character model, twenty steps of Shakespeare, and beside them the control:

# %% tags=["nbval-ignore-output"]
setting, falls, tokens = CAPSTONE["quick"]["text"], {}, shakespeare("train")[0].to(device)
for recipe in (CosineScore, LeakingScore, DividingScore, DeafScore, NoScore):
    torch.manual_seed(0)
    this = replace(setting, score=recipe)
    stream = text_batches(tokens, this.length, batch_size=this.batch_size, seed=0)
    losses = fit(this.model().to(device), stream, next_token_loss, this.train.with_steps(20), progress=False).loss
    falls[recipe.__name__] = sum(losses[-5:]) / 5 - losses[0]
    print(f"{recipe.__name__:14} from {losses[0]:.3f} to {sum(losses[-5:]) / 5:.3f}")

# %%
for name, fall in falls.items():
    course.verdict(f"{name}: change of the training loss", fall, below=-0.5)

# %% [markdown]
# All losses fall from 4.17 to 2.88, except that of the control, whose scores are all 0: it falls to 2.90. In twenty steps the model hardly needs its scores,
# so no bug in them shows. A falling loss does not prove that the code is right. (And no training could tell the dividing score from the right one as long as
# no vector is zero and 1/τ is below 100.) Now the [property](../docs/glossary.md#p) suite:

# %% tags=["nbval-ignore-output"]
print(report := properties.examine(LeakingScore))
assert report.broken == ["hides the future", "hidden keys have no say", "decoding is the whole pass"]

# %% [markdown]
# The variance of a row is taken over all its keys, including future ones, and changes the scores of visible keys. (In notebook 10 the divisor of a well
# leaked in the same way.) The cure would be to take it over the keys that `attn_mask` allows, and to decide what a row without any should give.

# %% tags=["nbval-ignore-output"]
print(report := properties.examine(DividingScore))
assert report.broken == ["finite"]

# %% tags=["nbval-ignore-output"]
print(report := properties.examine(DeafScore))
assert report.broken == ["gradients arrive", "gradients are right"]

# %% [markdown]
# `.data` leaves the graph of the gradients: the model was trained with a temperature that stayed at its start.
#
# ## One call
#
# Everything at once: the suite; the cost beside every built-in score; digits and text, three [seeds](../docs/glossary.md#s) each, with the same model,
# [batches](../docs/glossary.md#b) and steps as the dot product, *distance* (notebook 07) and *gaussian_well* (10); and the attention maps.

# %% tags=["nbval-ignore-output"]
outcome = capstone.report(CosineScore, device=device)

# %% [markdown]
# How to read it:
#
# - **Cost**: compare readable paths. You would have to write a fast path for your score yourself (as in `sciformer/fast/`). Times vary from
#   run to run, here by a tenth or two. Memory is what a forward pass keeps for the [backward pass](../docs/glossary.md#b). A fast path
#   may keep little and compute the rest again; what it needs meanwhile is not counted.
# - **Pictures**: the bands are one standard error, the maps those of the first seed's last block, averaged over heads. On the digit *distance* looks along the
#   row. Why not up and down? (To it the patches are one long line: the patch below is 7 steps away.)
# - **±**: in this report, the [standard error](../docs/glossary.md#s) over seeds. *Ahead* and *behind* mean that the difference, seed by seed, is more than two of its
#   standard errors from 0, however small. With three seeds that happens by chance far more often than once in twenty (Student's t would ask for 4.3 of
#   them), so it is a hint and no verdict: fewer than five seeds decide nothing (notebook 16). `seeds=` and `steps=` ask for more.

# %%
_, memory = outcome.cost.readable["CosineScore"]
course.verdict("memory kept over the dot product's", memory, above=1, below=3)
measured = {task: [run.metrics[capstone.JUDGED_BY[task].name] for run in runs["CosineScore"]] for task, runs in outcome.runs.items()}
course.verdict("digits: lowest test accuracy", min(measured["digits"]), above=0.2, measured="quick")
course.verdict("text: highest validation loss", max(measured["text"]), below=3.0, measured="quick")


# %% [markdown]
# On digits one score may be far ahead of the others, as the cosine is here. Before you believe it: is it the cosine, or is it the temperature?
# An attention is **sharp** where the largest weight of a row is several times the average. Which of these four are sharp before any training (last block,
# 20 digits)?

# %%
class SharpDot(DotProductScore):
    def __init__(self, num_heads, head_dim):
        super().__init__(num_heads, head_dim, scale=7 * head_dim**-0.5)


four = {
    "dot": (DotProductScore, {"below": 2}),
    "cosine, τ = 1": (partial(CosineScore, start=1.0), {"below": 2}),
    "dot times 7": (SharpDot, {"above": 4}),
    "cosine, τ = 0.1": (CosineScore, {"above": 4}),
}
images = mnist("test")[0][:20]
for name, (score, bounds) in four.items():
    torch.manual_seed(0)
    untrained = replace(CAPSTONE["quick"]["digits"], score=score).model().requires_grad_(False)
    weights = untrained.attention_weights(images)[-1]  # (B, H, L, L)
    sharpness = weights.amax(dim=-1).mean().item() * weights.shape[-1]
    course.verdict(f"{name}: largest weight over the average", sharpness, **bounds)

# %% [markdown]
# The dot product starts nearly uniform and has to learn to prefer some keys. The cosine with τ = 0.1 prefers some from the start, as does the dot product
# times 7. So the comparison above changed two things at once, and two controls take them apart: a flat cosine and a sharp dot product. Guess first:
# which of the two has the lead?

# %% tags=["nbval-ignore-output"]
learned = {"dot": "dot", "cosine, τ = 1": None, "dot times 7": None, "cosine, τ = 0.1": "CosineScore"}
for name, known in learned.items():
    runs = None if known else capstone.learn(four[name][0], against=(), device=device)
    for task, metric in capstone.JUDGED_BY.items():
        own = outcome.runs[task][known] if known else next(iter(runs[task].values()))
        print(f"{name:16} {task:7} {metric.describe([run.metrics[metric.name] for run in own])}")

# %% [markdown]
# On digits both sharp scores are 20 to 23 points ahead of both flat ones; within each pair the cosine and the dot product differ by less than
# three points. So what looked like a gain of the cosine goes with the **sharpness** that we gave it and not its rivals. (Three seeds are a hint, even with so
# large a gap. And multiplying scores multiplies the gradients of queries and keys, too: "sharp at the start" and "quick to learn" are still one thing here.)
#
# On text all four agree to about 0.001: this task does not tell them apart. (Does the content help at all after 60 steps? A score of zeros would tell.)
#
# Does the lead on digits last, or is it a head start? The two dot products were trained once more for 400 steps, over which the learning rate falls, with
# ten seeds each and the same batches (`python -m sciformer record sharp-start`; ± is half a 95 % interval now). After 60 of 400 steps the learning rate has hardly
# fallen, where above it had fallen to 0, so the first line below is another comparison than the one above. Guess first: how much of the lead is left at the end?

# %%
steps, longer = records.recorded_curves(records.load_record("sharp-start", "quick"), "test accuracy")  # arm -> (seeds, looks)
lead = 100 * (longer["dot times 7"] - longer["dot"])
half = 2.262 * lead.std(dim=0) / len(lead) ** 0.5  # half a 95 % interval: 2.262 is Student's t for ten seeds
for step in (60, 120, 400):
    at = steps.index(step)
    flat, sharp = (100 * longer[arm][:, at].mean() for arm in ("dot", "dot times 7"))
    print(f"after {step} steps: flat {flat:.1f} %, sharp {sharp:.1f} % right, a lead of {lead[:, at].mean():+.1f} ± {half[at]:.1f} points")
plotting.bands(longer, x=steps, ylabel="test accuracy", title="a flat start and a sharp one")
plotting.show("The mean test accuracy of both dot products, two lines against the number of steps.")

# %% [markdown]
# None: it was a head start. After 60 steps the sharp dot product is 14 points ahead, after 120 one point, give or take three, and after 400 steps it is
# 2.2 ± 1.5 points **behind**. Perhaps a model that starts sharp commits early to some keys, while one that starts flat has to find them, and finds slightly better
# ones. (This was not tested. And the 7 stays throughout the training, so it is not only a start.) For the cosine this means: its lead went with its
# sharpness, and the dot product's lead from sharpness did not last. Whether the cosine's would last was not measured. A ranking after 60 steps may only say who starts first.
#
# A temperature is a choice, and so a fair rival gets one, too: in notebook 16's bake-off each score chooses a flatter or a sharper start, on all tasks but
# the pixels.

# %% [markdown]
# Each part can be called by itself: `properties.examine`, `capstone.cost`, `capstone.learn`, `capstone.looks_at_a_digit`,
# `capstone.looks_at_text`. Another [patch](../docs/glossary.md#p) of another digit, with the models that are already trained:

# %% tags=["nbval-ignore-output"]
capstone.looks_at_a_digit(outcome.runs, number=3, patch=17)
plotting.show(
    "A test digit, and beside it the weights of one of its patches under each of four scores, on one scale."
)

# %% [markdown]
# How far did training move the temperatures of the heads? They started at 0.1. Guess first.

# %% tags=["nbval-ignore-output"]
for task, runs in outcome.runs.items():
    model = runs["CosineScore"][0].model
    temperatures = [(-block.attention.score.log_scale).exp() for block in model.blocks]
    for n, tau in enumerate(temperatures):
        print(f"{task}, block {n}: τ =", [f"{number:.3f}" for number in tau.tolist()])


# %% [markdown]
# After 60 steps each τ (of one seed) is still within about a seventh of 0.1, so nearly the one that *we* chose.
#
# ## Scores to try
#
# | idea | score |
# |---|---|
# | low rank: compare in fewer directions | $(A_h^T q_i) \cdot (C_h^T k_j) / \sqrt R$ |
# | polynomial: strong agreement counts more than linearly, and disagreement beyond $-\sqrt D$ counts **for** a key, too | $(1 + q_i \cdot k_j / \sqrt D)^2$ |
# | a width for each direction | $-\sum_d a_{hd}\,(q_{id} - k_{jd})^2$ with $a = e^\beta$, β learned |
# | taxi distance | $-\alpha_h \sum_d \lvert q_{id} - k_{jd} \rvert$ |
# | important keys | $q_i \cdot k_j / \sqrt D + u_h \cdot k_j$ |
# | cosine, and near is better | $\cos(q_i, k_j)/\tau_h - \lambda_h \lvert i - j \rvert$: say `compares_positions = True` |
#
# Start each so that its attention in the untrained model is about as sharp as a rival's (the cell of `SharpDot` measures it), and say so.

# %% [markdown]
# ## Your own
#
# Fill in and run both cells; a minute later you know whether the suite finds a broken promise, and have a first hint of what it is worth.

# %%
class MyScore(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()

    def forward(self, query, key, *, attn_mask=None, query_offset=0):  # (B, H, L, D), (B, H, S, D)
        raise NotImplementedError  # (B, H, L, S)


# %%
mine = capstone.report(MyScore, device=device)


# %% [markdown]
# If a property is broken, *look for* says where to search. If all hold and your score is behind the dot product, look
# first how large its scores are at the start. Then ask for five seeds or more (`seeds=5`): if it is still behind, that
# is a result, too.

# %% [markdown]
# ## Exercises
#
# Write the answer in place of `raise NotImplementedError` and run the cell. The first wrong run shows what is wrong
# with the result, the second names the mistake; the numbers are fresh each time. Hints and a solution are folded away
# below each cell.
#
# ### Exercise 1 · easy · 5 minutes
#
# Scores are $\cos/\tau$, and the weights are their softmax over `keys` keys, whose vectors you may choose freely: any
# direction, and several may be alike. How large can one weight be at most? The temperature $\tau > 0$ may be tiny, as
# 0.001.

# %%
def largest_share(temperature, keys):  # a tensor with one number; a whole number
    raise NotImplementedError  # a number between 0 and 1


check.largest_share(largest_share)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which cosine should the best key have, and which should all the others have?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Write out the softmax: one exponential over itself plus `keys - 1` others. Divide above and below by the largest.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def largest_share(temperature, keys):
#     return 1 / (1 + (keys - 1) * torch.exp(-2 / temperature))
# ```
#
# </details>
#
# ### Exercise 2 · middle · 8 minutes
#
# The low-rank score of the table, its division by $\sqrt R$ included. Each head has two matrices, `left` for queries (the
# table's $A_h$) and `right` for keys ($C_h$), that take D [features](../docs/glossary.md#f) to R.

# %%
def low_rank_scores(query, key, left, right):  # (B, H, L, D), (B, H, S, D), (H, D, R), (H, D, R)
    raise NotImplementedError  # (B, H, L, S)


check.low_rank_scores(low_rank_scores)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `query @ left` multiplies the last two dimensions, head by head. What is its shape?
#
# </details>
# <details><summary>Hint 2</summary>
#
# The vectors that are compared have R features now, so the scale is √R.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def low_rank_scores(query, key, left, right):
#     query, key = query @ left, key @ right  # (B, H, L, R), (B, H, S, R)
#     return query @ key.mT / left.shape[-1] ** 0.5  # (B, H, L, S)
# ```
#
# </details>
#
# ### Exercise 3 · hard · 15 minutes
#
# A property that the suite lacks. A score is *pairwise* if each number depends on its own query and key alone: on no
# other query or key, not on where they stand (a distance bias is not pairwise), and not on how many there are. Then it
# can leak nothing. Write the test: given a score, a function of queries and keys, is it pairwise on these? You may call
# it as often as you like, with any numbers of queries and keys from 1 on; it gives finite numbers. Differences below
# 1e-4 are rounding.

# %%
def is_pairwise(score, query, key):  # a function of (L, D) and (S, D) that gives (L, S); (L, D); (S, D)
    raise NotImplementedError  # True or False


check.is_pairwise(is_pairwise)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Ask the score about one query and one key, with nothing else there.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `score(query[i : i + 1], key[j : j + 1])` is (1, 1). For which pairs has it to agree with the whole matrix? Numbers
# are rounded: `torch.allclose` with `atol=1e-4`.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def is_pairwise(score, query, key):
#     whole = score(query, key)  # (L, S)
#     for i in range(len(query)):
#         for j in range(len(key)):
#             alone = score(query[i : i + 1], key[j : j + 1])  # (1, 1)
#             if not torch.allclose(alone[0, 0], whole[i, j], atol=1e-4):
#                 return False
#     return True
# ```
#
# </details>

# %% [markdown]
# ## Takeaways
#
# - A mechanism is a score: one formula before the softmax, one small module around it.
# - A falling loss does not prove that the code is right. Properties ask more, of every score. They do not know your formula, so compare with an
#   independent implementation as well.
# - Change one thing at a time. The cosine's lead on digits went with the sharpness of its start, which a dot product can have as well; and the sharp
#   dot product's lead was gone after 400 steps. Ask of a lead whether it lasts.
# - A comparison is the same model, data and steps, several seeds, and an [error bar](../docs/glossary.md#e). A verdict
#   takes five seeds at least.

# %% [markdown]
# ## Check yourself
#
# 1. A score divides each row by its largest entry, and its loss is low. Which promises does it break?
# 2. A score multiplies each row by a learned parameter of its head. What does that do? And if it *adds* one?
# 3. The cosine score is behind the dot product by one standard error, over three seeds. What do you write?
#
# <details><summary>Answers</summary>
#
# 1. That the future is hidden, that hidden keys have no say, and so that decoding is the whole pass: the largest entry
#    may stand at a hidden key. (Where the largest entry may be 0, it is not finite either.)
# 2. Multiplied, it is 1/τ (unless it is negative). Added, the softmax cancels it, and no gradient arrives: the suite says so.
# 3. What you measured, with the numbers, the seeds and the setting; that it is undecided, since it is less than two standard
#    errors, and fewer than five seeds decide nothing anyway; and which settings you did not try.
#
# </details>

# %% [markdown]
# ## What you have built
#
# | you built | and found |
# |---|---|
# | weighted sums, then queries, keys and values (00–03) | one matrix of weights, rows that sum to 1; the scale is √D of the head |
# | positions, blocks, an image transformer (04–06) | without positions attention cannot see the order; residuals make depth trainable |
# | distance, additive, wells (07, 09, 10) | other scores, each with a theorem of its own: a half-turn, a cancelled query, a moat |
# | a character model, encoder and decoder, masked images, series (08, 11–13) | one mechanism, four ways to wire it |
# | searches, fast paths, comparisons (14–16) | what is claimed, and what is left of it when it is measured |
#
# Every mechanism of the course is the same three lines, a score, a softmax and a weighted sum, and only the first line
# differs. So far you have built mechanisms and trained them. The last notebook takes a trained model apart.

# %% [markdown]
# **To read**: Liu et al. 2021 ([arXiv:2111.09883](https://arxiv.org/abs/2111.09883)), section 3.2, for the cosine;
# Tsai et al. 2019 ([arXiv:1908.11775](https://arxiv.org/abs/1908.11775)), attention as a
# [kernel](../docs/glossary.md#k), for more scores; Dao et al. 2022
# ([arXiv:2205.14135](https://arxiv.org/abs/2205.14135)), why fast paths are about memory.
#
# A project of your own would fit here: write the score of a paper that you like, hold it to the suite, and give it five seeds against the dot product.
#
# **Next**: 18, heads that copy: how can a model whose weights are frozen learn from its prompt?
