# %% [markdown]
# # 03 Multi-head attention
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/03_multi_head.ipynb)
#
# ← [02 Scaled dot-product attention](02_scaled_dot_product.ipynb) · [the map of the course](00_welcome.ipynb) · [04 Positions](04_positions.ipynb) →
#
# Needs: notebook 02 · runs in about 30 s on two CPU cores · about 2½ hours of study

# %% [markdown]
# After this notebook you can
#
# - say what one head cannot do, and how large its error stays;
# - build multi-head attention, first as a loop, then as one batch, equal to torch's;
# - recognise three mistakes by the picture or the number they leave behind;
# - compute a bias from the activations, and tell which kind cancels.

# %% [markdown]
# New against notebook 02: several softmaxes side by side, and trained projections around them.

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

from sciformer import (
    DotProductScore,
    MultiHeadAttention,
    attend,
    causal_mask,
    check,
    course,
    dot_product_scores,
    plotting,
)
from sciformer.lab.metrics import mean_and_error
from sciformer.training import TrainConfig, fit

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# **Predict.** An attention layer is asked two things at once: *who* and *where*. It may have 1, 2, 4 or 8 heads, always with
# the same number of parameters. Which number does best? Is more always better? Write your guess down; the end of the
# notebook measures it.

# %% [markdown]
# ## One head is one weighted average
#
# *sat* wants to know **who** sat and **where**. Let *cat* carry the answer to the first question, *mat* to the second.

# %%
words = ["the", "cat", "sat", "on", "the", "mat"]
value = torch.zeros(6, 2)  # columns: who, where
value[1, 0] = 1.0  # cat answers "who"
value[5, 1] = 1.0  # mat answers "where"


# %% [markdown]
# What *sat* receives is one softmax over the six words, times these values.

# %%
def read(cat_score, mat_score):
    scores = torch.zeros(6)
    scores[1], scores[5] = cat_score, mat_score
    return scores.softmax(dim=-1) @ value  # (2,): who, where


for cat_score, mat_score in [(5.0, 0.0), (0.0, 5.0), (5.0, 5.0)]:
    who, where = read(cat_score, mat_score)
    print(f"scores {cat_score:.0f} and {mat_score:.0f}: who {who:.2f}, where {where:.2f}")

# %% [markdown]
# Could some other pair of scores give both? No: the weights of a row sum to 1, so *who* and *where* share one unit.

# %%
lead = torch.linspace(-5, 5, 41)
answers = torch.stack([read(5 + d / 2, 5 - d / 2) for d in lead])  # (41, 2)
series = {"who": answers[:, 0], "where": answers[:, 1], "both together": answers.sum(dim=-1)}
plotting.curves(
    {name: list(zip(lead.tolist(), y.tolist(), strict=True)) for name, y in series.items()},
    xlabel="score of cat minus score of mat",
    ylabel="received by sat",
    title="one softmax: what one gains, the other loses",
)
plt.show()

# %% [markdown]
# Two heads are two softmaxes. Each keeps its own answer, and the answers are laid side by side.

# %%
who = read(5.0, 0.0)[0]  # head 0
where = read(0.0, 5.0)[1]  # head 1
print(f"who {who:.2f}, where {where:.2f}, together {who + where:.2f}")

# %% [markdown]
# ## Heads as a loop
#
# Each head gets three small matrices of its own, from $E$ numbers a word down to $D = E/H$.

# %%
B, L, E, H = 1, len(words), 12, 3
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
# Nothing is trained yet, and still each head looks elsewhere: different projections, different dot products.

# %%
plotting.heads(torch.cat(maps), rows=words, columns=words)
plt.show()

# %% [markdown]
# ## The formula and its shapes
#
# $$\text{head}_h = \text{attention}(x W^Q_h,\; x W^K_h,\; x W^V_h), \qquad y = [\text{head}_1, \dots, \text{head}_H]\, W^O$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $x$ | `x` | (B, L, E) |
# | $W^Q_h$, $W^K_h$, $W^V_h$ | `w_q[h]`, `w_k[h]`, `w_v[h]` | (E, D) |
# | the same for all heads | `big_q`, … | (E, H·D) = (E, E) |
# | queries, keys, values, split | `q`, `k`, `v` | (B, H, L, D) |
# | scores, weights | `scores`, `weights` | (B, H, L, L) |
# | heads side by side | `merge(output)` | (B, L, E) |
# | $W^O$ | `w_o` | (E, E) |
#
# Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2.

# %% [markdown]
# ## All heads at once
#
# Set the small matrices side by side: one product with an $E \times E$ matrix does the work of $H$ small ones.

# %%
big_q, big_k, big_v = (torch.cat(list(w), dim=1) for w in (w_q, w_k, w_v))  # (E, E) each
torch.testing.assert_close((x @ big_q)[..., D : 2 * D], x @ w_q[1])
big_q.shape


# %% [markdown]
# The result holds the heads one behind the other in its last axis. `view` names them; `transpose` moves them to where
# a batch belongs. `merge` is its inverse.

# %%
def split(x, num_heads):
    B, L, E = x.shape
    x = x.view(B, L, num_heads, E // num_heads)  # (B, L, H, D)
    return x.transpose(1, 2)  # (B, H, L, D)


def merge(x):
    return x.transpose(1, 2).flatten(-2)  # (B, H, L, D) -> (B, L, H, D) -> (B, L, E)


# %%
q, k, v = (split(x @ big, H) for big in (big_q, big_k, big_v))  # (B, H, L, D)
output, weights = attend(dot_product_scores(q, k), v)  # (B, H, L, D), (B, H, L, L)
torch.testing.assert_close(merge(output), looped)
torch.testing.assert_close(weights[0], torch.cat(maps))
output.shape, weights.shape

# %% [markdown]
# Last, the output projection mixes the heads. It can be read in another way: each head has its own $D$ rows of $W^O$, and the
# heads' contributions are **added**.

# %%
w_o = torch.randn(E, E) / E**0.5
per_head = output @ w_o.view(H, D, E)  # (B, H, L, D) @ (H, D, E) -> (B, H, L, E)
torch.testing.assert_close(merge(output) @ w_o, per_head.sum(dim=1))
per_head.shape

# %% [markdown]
# ## Break it: a view without the transpose
#
# `x.view(B, H, L, D)` has the right shape too, so nothing complains. Number the tokens and look at who lands in which head.

# %%
numbered = torch.arange(L)[None, :, None].expand(B, L, E).contiguous()  # every number of token i is i
for name, heads in [("right", split(numbered, H)), ("wrong", numbered.view(B, H, L, D))]:
    print(name, [heads[0, h, :, 0].tolist() for h in range(H)])


# %% [markdown]
# Right: every head has all six tokens. Wrong: a head has two tokens only, each cut into three. The same slip on the way
# back is `reshape` without the transpose. To see the damage, ask which input can influence which output, under a causal
# mask.

# %%
def influence(split, merge):
    def layer(x):
        q, k, v = (split(x @ big) for big in (big_q, big_k, big_v))
        return merge(attend(dot_product_scores(q, k), v, attn_mask=causal_mask(L))[0])

    slope = torch.autograd.functional.jacobian(layer, x)  # (B, L, E, B, L, E)
    return (slope.abs().amax(dim=(0, 2, 3, 5)) > 1e-9).float()  # (L, L): output i, input j


good = influence(lambda x: split(x, H), merge)
bad_split = influence(lambda x: x.view(B, H, L, D), merge)
bad_merge = influence(lambda x: split(x, H), lambda x: x.reshape(B, L, E))

# %%
titles = ["right", "split without transpose", "merge without transpose"]
figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.4), layout="constrained")
for ax, reach, title in zip(axes, [good, bad_split, bad_merge], titles, strict=True):
    plotting.heatmap(
        reach, rows=words, columns=words, title=title, xlabel="input", ylabel="output", colorbar=False, ax=ax
    )
plt.show()

# %% [markdown]
# Everything above the diagonal is a look into the future, in spite of the mask. And below it, part of the past is out of
# reach. A training loss that was measured while looking ahead means nothing.

# %%
for reach, title in zip([good, bad_split, bad_merge], titles, strict=True):
    ahead, past = reach.triu(1).sum(), reach.tril().sum()
    print(f"{title}: {ahead:.0f} of 15 future tokens seen, {past:.0f} of 21 past and present ones")


# %% [markdown]
# ## The class
#
# As in the package. The **score** is a recipe, called with the number of heads and their size, so that every layer makes its own.

# %%
class MyMultiHeadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, *, score=DotProductScore):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        self.score = score(num_heads, embed_dim // num_heads)

    def forward(self, query, key=None, value=None, *, attn_mask=None, is_causal=False):
        key = query if key is None else key  # (B, S, E)
        value = key if value is None else value
        q = split(self.q_proj(query), self.num_heads)  # (B, H, L, D)
        k = split(self.k_proj(key), self.num_heads)  # (B, H, S, D)
        v = split(self.v_proj(value), self.num_heads)  # (B, H, S, D)
        if is_causal:
            causal = causal_mask(query.shape[1], key.shape[1])
            attn_mask = causal if attn_mask is None else attn_mask & causal
        output, weights = attend(self.score(q, k), v, attn_mask=attn_mask)
        return self.out_proj(merge(output)), weights  # (B, L, E), (B, H, L, S)


# %% [markdown]
# Is it the package's? Outputs and all gradients, in float64: plain, causal, and with a mask that hides *mat* from everyone.

# %%
mine, package = MyMultiHeadAttention(E, H), MultiHeadAttention(E, H)
no_mat = torch.tensor([word != "mat" for word in words]).expand(L, L)
course.assert_same_module(mine, package, x)
course.assert_same_module(mine, package, x, is_causal=True)
course.assert_same_module(mine, package, x, attn_mask=no_mat)
course.assert_same_module(mine, package, x, torch.randn(1, 7, E), torch.randn(1, 7, E))  # cross-attention

# %% [markdown]
# The heads share $E$ out between them, so $H$ must divide $E$. The package says so, with both numbers.

# %%
try:
    MultiHeadAttention(12, 5)
except ValueError as error:
    print(error)

# %% [markdown]
# ## Equal to torch's
#
# `nn.MultiheadAttention` packs the three projections into one matrix, and its masks are **the other way round**: True hides.

# %%
package, theirs = MultiHeadAttention(E, H).double(), nn.MultiheadAttention(E, H, batch_first=True).double()
projections = [package.q_proj, package.k_proj, package.v_proj]
with torch.no_grad():
    theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))  # (3·E, E)
    theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))  # (3·E,)
_ = theirs.out_proj.load_state_dict(package.out_proj.state_dict())

# %%
mask, x64 = causal_mask(L), x.double()
ours, our_weights = package(x64, attn_mask=mask, need_weights=True)
other, other_weights = theirs(x64, x64, x64, attn_mask=~mask, average_attn_weights=False)  # note the ~
torch.testing.assert_close(ours, other)
torch.testing.assert_close(our_weights, other_weights)

probe = torch.randn_like(ours)  # a plain sum would hide what cancels
(ours * probe).sum().backward()
(other * probe).sum().backward()
torch.testing.assert_close(torch.cat([p.weight.grad for p in projections]), theirs.in_proj_weight.grad)
torch.testing.assert_close(package.out_proj.weight.grad, theirs.out_proj.weight.grad)
print("outputs, weights and gradients agree")

# %% [markdown]
# ## What heads cost
#
# Nothing in parameters or multiplications: four projections, $4LE^2$ multiply-adds, and two products that involve the
# weights, $2L^2E$, whatever $H$ is (a multiply-add counts as two flops). What grows is the number of attention weights.

# %%
from torch.utils.flop_counter import FlopCounterMode

for num_heads in (1, 2, 4, 12):
    layer = MultiHeadAttention(12, num_heads)
    with FlopCounterMode(display=False) as counter:
        _, weights = layer(x, need_weights=True)
    parameters = sum(p.numel() for p in layer.parameters())
    print(f"{num_heads:2} heads: {parameters} parameters, {counter.get_total_flops()} flops, {weights.numel()} weights")
print(f"by hand: {2 * (4 * L * E**2 + 2 * L**2 * E)} flops")

# %% [markdown]
# ## Break it: no output projection
#
# Silence one head and see which slice of the output moves.

# %%
effects = {"without out_proj": torch.zeros(H, H), "with out_proj": torch.zeros(H, H)}
for h in range(H):
    only_h = torch.zeros_like(output)
    only_h[:, h] = output[:, h]  # what is lost when head h falls silent
    for name, lost in [("without out_proj", merge(only_h)), ("with out_proj", merge(only_h) @ w_o)]:
        # How far each slice of D numbers moves.
        effects[name][:, h] = torch.linalg.vector_norm(lost.unflatten(-1, (H, D)), dim=(0, 1, 3))

figure, axes = plt.subplots(1, 2, figsize=(7.0, 3.0), layout="constrained")
for ax, (name, effect) in zip(axes, effects.items(), strict=True):
    plotting.heatmap(effect, title=name, xlabel="silenced head", ylabel="slice of the output", ax=ax)
plt.show()

# %% [markdown]
# Without it, head $h$ can write into slice $h$ and nowhere else: three small layers that never meet.

# %% [markdown]
# ## Break it: the head-size trap
#
# The scale is $1/\sqrt{D}$ with the **head** size. Published code has used $1/\sqrt{E}$
# ([vit-pytorch, issue 65](https://github.com/lucidrains/vit-pytorch/issues/65), since mended). Then the scores' variance is
# $D/E = 1/H$ instead of 1.

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
# Entropy says how widely a row looks: $\ln 64$ for an even look at 64 keys. With the wrong scale, more heads means blurrier heads.

# %%
spread["an even look: ln 64"] = [(1, math.log(keys)), (16, math.log(keys))]
plotting.curves(spread, xlabel="number of heads", ylabel="entropy of a row (nats)", title="the wrong scale blurs")
plt.show()


# %% [markdown]
# The projections can learn to undo a constant factor, so this is a bad start rather than a wall. What it costs in
# training is measured below.

# %% [markdown]
# ## A bias from the activations
#
# A score may add a bias. A **constant** one, a number for each place, is trained and then fixed. An **in-context** one
# is computed from what the tokens say: $b_j = w_h \cdot k_j$, "how worth looking at is this key, whoever asks".

# %%
class KeyBiasScore(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(num_heads, 1, head_dim))  # (H, 1, D)

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        bias = (key * self.weight).sum(dim=-1)  # (B, H, S)
        return dot_product_scores(query, key) + bias[..., None, :]  # the same bias for every query


class PlaceBiasScore(nn.Module):
    def __init__(self, num_heads, head_dim, *, max_length):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(num_heads, 1, max_length))  # (H, 1, S)

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        return dot_product_scores(query, key) + self.bias[..., : key.shape[-2]]


# %% [markdown]
# Both drop into the package's layer as recipes, and their rows stay proper: a bias changes the weights, never their sum.

# %%
recipes = {"in-context": KeyBiasScore, "constant": functools.partial(PlaceBiasScore, max_length=L)}
layers = {name: MultiHeadAttention(E, H, score=recipe) for name, recipe in recipes.items()}
for name, layer in layers.items():
    _, weights = layer(x, need_weights=True)
    print(name, tuple(weights.shape), weights.sum(dim=-1).unique().round(decimals=3).unique().tolist())

# %% [markdown]
# Now shuffle the sentence. The in-context bias goes with its word; the constant one stays at its place.

# %%
order = torch.tensor([5, 3, 0, 4, 1, 2])
for name, layer in layers.items():
    _, before = layer(x, need_weights=True)
    _, after = layer(x[:, order], need_weights=True)
    follows = torch.allclose(after, before[:, :, order][..., order], atol=1e-5)
    print(f"{name}: the weights follow the words: {follows}")

# %% [markdown]
# A key bias needs no special kernel: append the bias to the keys and a constant to the queries, and it is plain SDPA
# with one extra feature.

# %%
q, k, v = torch.randn(3, 2, H, L, D).unbind()
score = KeyBiasScore(H, D)
bias = (k * score.weight).sum(dim=-1, keepdim=True)  # (B, H, S, 1)
wide_q = torch.cat([q, torch.full_like(bias, math.sqrt(D))], dim=-1)  # (B, H, L, D + 1)
wide_k = torch.cat([k, bias], dim=-1)  # (B, H, S, D + 1)
fused = F.scaled_dot_product_attention(wide_q, wide_k, v, scale=D**-0.5)
torch.testing.assert_close(fused, attend(score(q, k), v)[0])

# %% [markdown]
# There is a simpler way still. $q_i \cdot k_j/\sqrt{D} + w \cdot k_j = (q_i + \sqrt{D}\,w) \cdot k_j/\sqrt{D}$: a
# **linear** key bias is a shift of all queries, which the bias of `q_proj` already can learn. It is the vector $u$ of
# Transformer-XL (Dai et al. 2019, arXiv:1901.02860, section 3.3).

# %%
shifted = dot_product_scores(q + math.sqrt(D) * score.weight, k)
torch.testing.assert_close(shifted, score(q, k))

# %% [markdown]
# And a bias that depends on the **query** alone? It adds one number to a whole row, and the softmax divides it away. So the
# bias of `k_proj` does nothing, and its gradient is 0. Notebook 09 meets this again.

# %%
scores, query_bias = dot_product_scores(q, k), 3 * q.sum(dim=-1, keepdim=True)  # (B, H, L, 1)
torch.testing.assert_close((scores + query_bias).softmax(dim=-1), scores.softmax(dim=-1))
for name, projection in [("q_proj", package.q_proj), ("k_proj", package.k_proj)]:
    print(f"{name}.bias gets no gradient: {projection.bias.grad.abs().max().item() < 1e-12}")

# %% [markdown]
# Why recipes? Handing over one finished score would make layers share its parameters. A recipe is called afresh in each.

# %%
first, second = (MultiHeadAttention(E, H, score=KeyBiasScore) for _ in range(2))
print("shared:", first.score.weight is second.score.weight)


# %% [markdown]
# ## Train: two questions at once
#
# Eight items, each with a key and a value. The query names two of the keys, *who* and *where*; the target is their two
# values, side by side. One attention layer, nothing else.

# %%
def questions(count, width, seed, batch=64, items=8):
    rng, half = torch.Generator().manual_seed(seed), width // 2
    for _ in range(count):
        key, value = torch.randn(2, batch, items, half, generator=rng)
        key = F.normalize(key, dim=-1) * half**0.5
        # Items 0 and 1 are asked for. Without positions, attention cannot profit from their places.
        query = key[:, :2].flatten(1)[:, None]  # (B, 1, E)
        target = value[:, :2].flatten(1)[:, None]  # (B, 1, E)
        blank = torch.zeros_like(key)
        parts = query, torch.cat([key, blank], dim=-1), torch.cat([value, blank], dim=-1), target
        yield tuple(part.to(device) for part in parts)


[tuple(part.shape) for part in next(questions(1, 16, seed=0))]


# %%
class Finder(nn.Module):
    def __init__(self, width, num_heads, score=DotProductScore):
        super().__init__()
        self.attention = MultiHeadAttention(width, num_heads, score=score)

    def forward(self, query, key, value):
        return self.attention(query, key, value)[0]


def train(width, num_heads, seed, steps, score=DotProductScore):
    torch.manual_seed(seed)
    model = Finder(width, num_heads, score).to(device)
    config = TrainConfig(steps=steps, lr=1e-2, warmup_steps=20, weight_decay=0.0)
    history = fit(model, questions(steps, width, seed), F.mse_loss, config, progress=False)
    return model, history.loss


# %% [markdown]
# What must come out? Values have variance 1, so knowing nothing costs 1. One head delivers one average, and the two answers
# are independent: what a linear read-out gains on one it loses on the other. With one head the error cannot fall below **0.5**.

# %% tags=["nbval-ignore-output"]
*inputs, target = next(questions(1, 16, seed=999, batch=2048))  # never trained on
errors, models = {}, {}
for num_heads in (1, 2, 4, 8):
    models[num_heads] = [train(16, num_heads, seed, steps=300)[0] for seed in range(3)]
    with torch.no_grad():
        errors[num_heads] = [F.mse_loss(model(*inputs), target).item() for model in models[num_heads]]
    parameters = sum(p.numel() for p in models[num_heads][0].parameters())
    mean, error = mean_and_error(errors[num_heads])
    print(f"{num_heads} heads of {16 // num_heads:2}, {parameters} parameters: error {mean:.3f} ± {error:.3f}")

# %%
course.verdict("best error with one head", min(errors[1]), above=0.47, below=0.55)
course.verdict("worst error with two heads", max(errors[2]), below=0.05)
course.verdict("four heads: best error", min(errors[4]), above=0.1)
course.verdict("eight heads' mean error minus one head's", mean_and_error(errors[8])[0] - 0.5, above=0.03)
plotting.seeds(
    {str(num_heads): values for num_heads, values in errors.items()},
    lines={"one head's floor": 0.5, "knowing nothing": 1.0},
    title="two questions, equal parameters",
    xlabel="number of heads",
    ylabel="error on new items",
)
plt.show()

# %% [markdown]
# One head stops at its floor, two go almost to 0, and from there more heads do **worse**; eight lose to one. Each of the
# eight has 2 numbers to tell 8 keys apart: a matrix of scores of rank 2. Bhojanapalli et al. 2020 (arXiv:2002.07028) call it the low-rank bottleneck.

# %% [markdown]
# ## Look: who does what
#
# The mean weight that each head gives to the two items asked for, and to the six others together.

# %%
names, shares = [], []
for num_heads in (1, 2, 4):
    with torch.no_grad():
        weights = models[num_heads][0].attention(*inputs, need_weights=True)[1][:, :, 0].mean(dim=0)  # (H, S)
    shares.append(torch.cat([weights[:, :2], weights[:, 2:].sum(dim=-1, keepdim=True)], dim=-1))  # (H, 3)
    names += [f"of {num_heads}: head {h}" for h in range(num_heads)]
plotting.heatmap(
    torch.cat(shares), rows=names, columns=["who", "where", "others"], title="who does what", xlabel="item", ylabel=""
)
plt.show()


# %% [markdown]
# One head gave up one question altogether. Two shared the work, and nobody told them to. Four shared it as well, but
# look less sharply: the rest of their weight leaks to items that were not asked for.

# %% [markdown]
# ## What the head-size trap costs
#
# The same task, 64 wide, with 2 and with 8 heads, right and wrong scale, three seeds each. How many steps until the
# running loss is under 0.3, and where does it end?

# %%
def steps_to(loss, bound=0.3, window=10):
    running = torch.tensor(loss).unfold(0, window, 1).mean(dim=-1)
    below = (running < bound).nonzero()
    return below[0].item() + window if len(below) else math.inf


# %% tags=["nbval-ignore-output"]
wrong = functools.partial(DotProductScore, scale=64**-0.5)
runs, needed, ends = {}, {}, {}
for num_heads in (2, 8):
    for name, score in [("1/√head_dim", DotProductScore), ("1/√embed_dim", wrong)]:
        case = num_heads, name
        runs[case] = [train(64, num_heads, seed, steps=400, score=score) for seed in range(3)]
        needed[case] = [steps_to(loss) for _, loss in runs[case]]
        ends[case] = mean_and_error([sum(loss[-50:]) / 50 for _, loss in runs[case]])
        mean, error = mean_and_error(needed[case])
        print(f"{num_heads} heads, {name:12}: {mean:5.1f} ± {error:.1f} steps", end=", ")
        print(f"loss at the end {ends[case][0]:.4f} ± {ends[case][1]:.4f}")

# %%
for n in (2, 8):
    right_steps, wrong_steps = needed[n, "1/√head_dim"], needed[n, "1/√embed_dim"]
    slower = mean_and_error([w / r for w, r in zip(wrong_steps, right_steps, strict=True)])[0]
    bounds = {2: (0.9, 1.25), 8: (1.15, 2.0)}[n]
    course.verdict(f"{n} heads: steps with the wrong scale, as a multiple", slower, above=bounds[0], below=bounds[1])
    lost = ends[n, "1/√embed_dim"][0] - ends[n, "1/√head_dim"][0]
    course.verdict(f"{n} heads: loss given away at the end", lost, above=-0.02, below=0.02)

# %%
plotting.seeds(
    {f"{n} heads\n{name}": values for (n, name), values in needed.items()},
    title="the wrong scale costs steps",
    ylabel="steps to a loss of 0.3",
)
plt.show()

# %% [markdown]
# With 2 heads the difference is about the size of the spread over seeds; with 8 it is plain. By the end of the run little
# is left: with 8 heads a small gap, yet larger than its error bars.

# %%
plotting.curves(
    {
        name: torch.tensor([loss for _, loss in runs[8, name]]).mean(dim=0).tolist()
        for name in ("1/√head_dim", "1/√embed_dim")
    },
    smooth=10,
    title="8 heads, mean of three seeds",
)
plt.show()


# %% [markdown]
# How was it made good? By larger projections: compare the size of $W^Q_h (W^K_h)^T$ after training. A factor $\sqrt{8}$ would
# make good the whole of it.

# %% tags=["nbval-ignore-output"]
def size(model):
    q, k = (p.weight.view(8, -1, 64) for p in (model.attention.q_proj, model.attention.k_proj))  # (H, D, E)
    return (q.transpose(-2, -1) @ k).norm().item()


growth = [size(w) / size(r) for (w, _), (r, _) in zip(runs[8, "1/√embed_dim"], runs[8, "1/√head_dim"], strict=True)]
print(f"{mean_and_error(growth)[0]:.2f} times as large; √8 = {8**0.5:.2f}")

# %%
course.verdict("growth of the projections", mean_and_error(growth)[0], above=1.3, below=8**0.5)


# %% [markdown]
# So here the trap costs mostly time: training makes good most of the factor. How much depends on the setting: this is one
# task and one learning rate. Try `lr=3e-3` in `train`, where the wrong scale falls further behind; a deep model on a
# tight budget may not have the time to catch up.

# %% [markdown]
# ## Exercises
#
# The first wrong run shows what is wrong, the second names the mistake. Hints and a solution are folded away.
#
# ### Exercise 1 · easy · 5 minutes
#
# Like torch's layer, most GPTs make queries, keys and values with one matrix. The last axis of `packed` holds $E$ numbers for
# the queries, then $E$ for the keys, then $E$ for the values. Split all three into heads.

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
# ### Exercise 2 · middle · 8 minutes
#
# A recipe for a score. Each head learns how sharply it looks: $q_i \cdot k_j / \sqrt{D}$ is divided by the head's own
# temperature, $e^{t_h}$. The $t_h$ are trained, together in one parameter, `log_temperature`, and start where they
# change nothing. `attn_mask` and `query_offset` are handed to every score; this one has no use for them.

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
# ### Exercise 3 · hard · 15 minutes
#
# Many language models have fewer key heads, $G$, than query heads, $H$ (arXiv:2305.13245): the first $H/G$ query heads
# share the first key and value head, the next $H/G$ the second, … All heads have $D$ features. The inputs are projected
# already. Give the layer's output, after the output projection, which is `heads @ w_o`; no mask.

# %%
def grouped_attention(query, key, value, w_o, num_heads):  # (B, L, E = H·D), (B, S, G·D), (B, S, G·D), (E, E)
    raise NotImplementedError  # (B, L, E)


check.grouped_attention(grouped_attention)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Queries and keys meet in a dot product, so their heads have the same size. Which of the inputs tells it, and how does $G$
# follow?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Six query heads and two key heads: they need keys 0, 0, 0, 1, 1, 1. `repeat` and `repeat_interleave` differ; try both on
# `torch.arange(2)`.
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
# ### Exercise 4 · hard · 15 minutes
#
# Break our heads: write the *test* of exercise 3. `attention(query, key, value, w_o, num_heads)` is somebody's version
# of it: from (B, L, H·D), (B, S, G·D), (B, S, G·D) and (E, E), where E = H·D, it gives (B, L, E). The first H/G query
# heads share the first key and value head, the next H/G the second, and so on; the result is `heads @ w_o`; there is no
# mask. Raise an AssertionError (`assert …`, or `torch.testing.assert_close(got, expected)`) where the version is wrong.
# Your test has to accept every right version and reject each of 26 faulty ones; you are told which survive.

# %%
def test_heads(attention):  # a version to be tested
    raise NotImplementedError  # AssertionError, or nothing


check.test_heads(test_heads)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A loop over the heads is slow and hard to get wrong. Compare with it: it takes slices of the features, and no `view` or
# `transpose`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# With one head, with one key head or with heads of one feature, some mistakes cannot be seen. Let B, L, S, H, G and D all
# differ.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def test_heads(attention):
#     B, L, S, H, G, D = 2, 5, 7, 6, 2, 3
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
# ## Your turn
#
# **1. (easy, 3 minutes)** With $H = 1$, is the output projection still worth having?
#
# <details><summary>Answer</summary>
#
# It adds nothing that the values could not do: $w (x W^V) W^O = w\, x\, (W^V W^O)$, so one matrix $W^V W^O$ would serve. With
# several heads the products $W^V_h W^O_h$ are $H$ different matrices, each of rank $D$ at most, and cannot be folded together.
#
# </details>
#
# **2. (middle, 5 minutes)** Make the key bias nonlinear, $b_j = w_h \cdot \tanh(k_j)$. Which of the two identities above survives?
#
# <details><summary>Answer</summary>
#
# The extra feature: it takes any number per key. The shift of the queries needs a bias that is linear in the key. So a
# nonlinear key bias is something that `q_proj.bias` cannot learn.
#
# </details>
#
# **3. (hard, 10 minutes)** The task asks three questions (`width // 3` numbers each, width 24). What is one head's floor, and
# what is two heads'? Change `questions` and measure.
#
# <details><summary>Answer</summary>
#
# One average serves one of three independent answers, so the floor is 2/3; two heads give at most two averages, hence 1/3. In
# general $1 - H/n$ for $H \le n$ heads and $n$ questions. Reaching it also takes heads wide enough to carry a whole value.
#
# </details>

# %% [markdown]
# ## Takeaways
#
# - A head is one weighted average; independent questions need heads of their own. Here, more heads than questions only blurred.
# - Split is `view`, then `transpose`; merge is the inverse. A slip keeps the shape and loses the mask.
# - Scale by the head's size. A bias that depends on the query alone cancels.
#
# ## Check yourself
#
# 1. You double the number of heads. What happens to parameters, multiplications, and attention weights?
#
# <details><summary>Answer</summary>
#
# The first two stay; the number of weights doubles.
#
# </details>
#
# 2. You move a causal mask from this package to `nn.MultiheadAttention`. What must you do?
#
# <details><summary>Answer</summary>
#
# Invert it: there, True hides.
#
# </details>
#
# 3. Why does the gradient of `k_proj.bias` vanish?
#
# <details><summary>Answer</summary>
#
# It adds $q_i \cdot b$ to every score of row $i$, the same for all keys, and the softmax over the keys removes it.
#
# </details>
#
# **To read**: Vaswani et al. 2017 (arXiv:1706.03762), sections 3.2.2 and 3.2.3; Bhojanapalli et al. 2020
# (arXiv:2002.07028), on the size of a head; Dai et al. 2019 (arXiv:1901.02860), section 3.3.
#
# **Next**: 04, how attention learns that words have an order.
