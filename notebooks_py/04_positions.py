# %% [markdown]
# # 04 Positions
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/04_positions.ipynb)
#
# ← [03 Multi-head attention](03_multi_head.ipynb) · [the map of the course](00_welcome.ipynb) · [05 The transformer block](05_transformer_block.ipynb) →
#
# Needs: notebook 03 · runs in about 50 s on two CPU cores · about 2 hours of study

# %% [markdown]
# After this notebook you can
#
# - prove that attention alone knows no order, and say what a causal mask changes about it;
# - build sinusoidal and learned positions, and explain the sinusoidal ones as clocks that turn;
# - measure what positions are worth, and what they are worth at lengths never trained.
#
# New against notebook 03: where a token stands.

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

from sciformer import POSITIONS, FeedForward, LearnedPositions, MultiHeadAttention, SinusoidalPositions
from sciformer import check, course, plotting
from sciformer.data import batches
from sciformer.teach import explore
from sciformer.training import TrainConfig, fit

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## Predict first
#
# 1. *dog bites man* and *man bites dog* go through the same attention layer. For which words do the outputs differ?
# 2. Sequences of 16 different tokens; each place must name the token three places back. How often is a model right that
#    does not know the order: never, 1 in 15, or half the time?
# 3. Trained on length 16 and used on length 64: do sines still work?

# %% [markdown]
# ## Shuffle the words
#
# One vector for each word, one attention layer with random weights. What happens to the outputs when the words are
# shuffled?

# %%
words = ["the", "cat", "sat", "on", "the", "mat"]
vocabulary = ["the", "cat", "sat", "on", "mat", "dog", "bites", "man"]
table = torch.randn(len(vocabulary), 8, dtype=torch.float64)  # (V, E)
attention = MultiHeadAttention(8, num_heads=1).double().requires_grad_(False)


def embed(words):
    return table[[vocabulary.index(word) for word in words]][None]  # (1, L, E)


# %%
order = [5, 2, 4, 0, 3, 1]
x = embed(words)
y, weights = attention(x, need_weights=True)  # (1, L, E), (1, 1, L, L)
y_shuffled, weights_shuffled = attention(x[:, order], need_weights=True)
torch.testing.assert_close(y_shuffled, y[:, order])
print("shuffled words:", [words[n] for n in order])
print("the outputs are the old ones, shuffled the same way:", torch.allclose(y_shuffled, y[:, order]))

# %%
figure, axes = plt.subplots(1, 2, figsize=(9.4, 4), layout="constrained")
shuffled = [words[n] for n in order]
plotting.heatmap(weights[0, 0], rows=words, columns=words, title="weights", colorbar=False, ax=axes[0])
plotting.heatmap(
    weights_shuffled[0, 0], rows=shuffled, columns=shuffled, title="weights, shuffled", colorbar=False, ax=axes[1]
)
plt.show()

# %% [markdown]
# The same numbers, rows and columns moved. Write the shuffle as a matrix $P$ with one 1 in each row. Scores become $P S
# P^\top$; the softmax works row by row and does not mind; and
#
# $$f(PX) = (P W P^\top)(P V) = P\,W V = P f(X), \qquad \text{since } P^\top P = I.$$
#
# This is called **permutation equivariance**.

# %%
P = torch.eye(6, dtype=torch.float64)[order]  # (L, L)
torch.testing.assert_close(P @ x[0], x[0, order])
torch.testing.assert_close(P.T @ P, torch.eye(6, dtype=torch.float64))
torch.testing.assert_close(P @ weights[0, 0] @ P.T, weights_shuffled[0, 0])

# %% [markdown]
# Two consequences. The two *the* cannot be told apart, though one belongs to *cat* and one to *mat*. And prediction 1:

# %%
print("the two 'the' get the same output:", torch.allclose(y[0, 0], y[0, 4]))
one, two = ["dog", "bites", "man"], ["man", "bites", "dog"]
y_one, y_two = attention(embed(one))[0][0], attention(embed(two))[0][0]  # (L, E) each
for word in one:
    same = torch.allclose(y_one[one.index(word)], y_two[two.index(word)])
    print(f"{word:6} the same output in both sentences: {same}")


# %% [markdown]
# For none of them. Attention sees a **bag** of words. No number of heads or layers changes that: a chain of equivariant
# steps is equivariant.

# %% [markdown]
# ## A vector for each position: sinusoidal
#
# So tell each token where it stands: add a vector that belongs to its place $t$. Vaswani et al. 2017 (arXiv:1706.03762,
# section 3.5) take waves:
#
# $$p_{t,2i} = \sin(\omega_i t), \qquad p_{t,2i+1} = \cos(\omega_i t), \qquad \omega_i = 10000^{-2i/E}$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $t$, the place, from 0 | `place` | (L, 1) |
# | $\omega_i$, one for each pair | `frequency` | (E/2,) |
# | $p_t$ | `waves[t]` | (E,) |

# %%
def waves_in_a_loop(length, embed_dim):
    waves = torch.zeros(length, embed_dim)
    for t in range(length):
        for i in range(embed_dim // 2):
            angle = t / 10000 ** (2 * i / embed_dim)
            waves[t, 2 * i] = math.sin(angle)
            waves[t, 2 * i + 1] = math.cos(angle)
    return waves


waves_in_a_loop(6, 4).round(decimals=2)

# %% [markdown]
# Check row 1 by hand: $\omega_0 = 1$ and $\omega_1 = 10000^{-1/2} = 0.01$. Columns 0 and 1 change quickly, columns 2 and 3
# hardly at all.
#
# Without loops:

# %%
E, length = 32, 64
place = torch.arange(length)[:, None]  # (L, 1)
frequency = 10000.0 ** (-torch.arange(0, E, 2) / E)  # (E/2,)
angle = place * frequency  # (L, E/2)
waves = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)  # (L, E/2, 2) -> (L, E): sin and cos in turn
torch.testing.assert_close(waves, waves_in_a_loop(length, E))

# %%
plotting.heatmap(waves, title="sinusoidal positions", xlabel="number", ylabel="place", signed=True)
plt.show()

# %%
pairs = {f"pair {i}, wavelength {2 * math.pi / frequency[i]:.0f}": waves[:, 2 * i].tolist() for i in (0, 3, 6)}
lines = {name: list(enumerate(values)) for name, values in pairs.items()}
ax = plotting.curves(lines, xlabel="place", ylabel="sine", title="three of the sixteen sines")
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
plt.show()


# %% [markdown]
# ### A row of clocks
#
# Each pair (sin, cos) is the tip of a clock hand that turns by $\omega_i$ at every step. Fast hands tell near places
# apart, slow ones far places, like seconds and hours. Move the place: the gap between the two hands of a clock stays.

# %%
def two_times(t):
    hands = {f"place {t}": waves[t], f"place {t + 3}, three later": waves[t + 3]}
    titles = [f"pair {i}\n{frequency[i] * 180 / math.pi:.1f}° a step" for i in range(8)]
    return plotting.clocks({name: hand[:16] for name, hand in hands.items()}, titles=titles)


slider = ipywidgets.IntSlider(value=4, min=0, max=60, description="place")
explore(two_times, alt="Eight clocks, each with two hands: place 4 and place 7. The first turns fast, the last hardly.", t=slider)

# %% [markdown]
# ### How alike are two places?
#
# $\sin a \sin b + \cos a \cos b = \cos(a - b)$, so the dot product of two places depends on their distance $k$ alone:
#
# $$p_t \cdot p_{t+k} = \sum_i \cos(\omega_i k)$$

# %%
similarity = waves @ waves.T  # (L, L)
by_distance = torch.cos(frequency * torch.arange(length)[:, None]).sum(dim=-1)  # (L,): Σ cos(ω k)
for k in range(length):
    torch.testing.assert_close(similarity.diagonal(k), by_distance[k].expand(length - k))


# %%
def one_place_and_all(t, similarity=similarity):
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.7), layout="constrained")
    plotting.heatmap(similarity, title="dot products of places", xlabel="place", ylabel="place", ax=axes[0])
    axes[0].axhline(t, color="white")
    row = {f"place {t}": list(enumerate(similarity[t].tolist()))}
    plotting.curves(row, xlabel="place", ylabel="dot product", title="one row", ax=axes[1])
    return figure


slider = ipywidgets.IntSlider(value=10, min=0, max=length - 1, description="place")
explore(one_place_and_all, alt="Dot products of all places, a band along the diagonal; row 10 is a peak at 10 with waves.", t=slider)

# %% [markdown]
# Highest at itself ($E/2$), and the same on both sides: alone, this similarity does not know left from right.
#
# ### A shift is a rotation
#
# All hands of a clock turn by the same angle when every place moves by $k$: one fixed rotation by $\omega_i k$, whatever
# the place. The paper hoped that this makes it easy to learn to look $k$ places back.

# %%
i, k = 3, 5
b = frequency[i] * k  # the angle
rotation = torch.tensor([[b.cos(), -b.sin()], [b.sin(), b.cos()]])  # (2, 2)
pair = waves[:, 2 * i : 2 * i + 2]  # (L, 2): sin and cos of one clock
torch.testing.assert_close(pair[:-k] @ rotation, pair[k:])  # all 59 places at once
rotation.round(decimals=2)


# %% [markdown]
# ### The class
#
# The table is fixed, so it is a buffer and no parameter. The package's class also refuses what does not fit.

# %%
class MySinusoidal(nn.Module):
    def __init__(self, embed_dim, max_length):
        super().__init__()
        place = torch.arange(max_length)[:, None]
        frequency = torch.exp(-math.log(10000.0) * torch.arange(0, embed_dim, 2) / embed_dim)  # (E/2,)
        angle = place * frequency  # (max_length, E/2)
        table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)  # (max_length, E)
        self.register_buffer("table", table, persistent=False)

    def forward(self, x):  # (B, L, E)
        return x + self.table[: x.shape[1]]


course.assert_same_module(MySinusoidal(32, 64), SinusoidalPositions(32, 64), torch.randn(2, 6, 32))
torch.testing.assert_close(SinusoidalPositions(32, 64).table, waves)


# %% [markdown]
# ## A vector for each position: learned
#
# Or let training find the vectors. They start small (standard deviation 0.02 here) and random: at first, places hardly
# count. Gehring et al. 2017 (arXiv:1705.03122, section 3.1) did so for convolutions.

# %%
class MyLearned(nn.Module):
    def __init__(self, embed_dim, max_length):
        super().__init__()
        self.table = nn.Parameter(0.02 * torch.randn(max_length, embed_dim))

    def forward(self, x):  # (B, L, E)
        return x + self.table[: x.shape[1]]


learned = LearnedPositions(32, 64)
course.assert_same_module(MyLearned(32, 64), learned, torch.randn(2, 6, 32))
embedding = nn.Embedding.from_pretrained(learned.table)  # the same under another name: places are looked up like words
torch.testing.assert_close(embedding(torch.arange(6)), learned.table[:6])

# %% [markdown]
# ## Added, once, in front
#
# Now *bites* knows who is the dog, and the two *the* come apart.

# %%
places = SinusoidalPositions(8, 64).double()
y_one, y_two = attention(places(embed(one)))[0][0], attention(places(embed(two)))[0][0]
y = attention(places(x))[0][0]
print("'bites' the same in both sentences:", torch.allclose(y_one[1], y_two[1]))
print("the two 'the' get the same output: ", torch.allclose(y[0], y[4]))

# %% [markdown]
# **Why add, and not put the two side by side?** The next thing that happens is a linear map, and $[x, p]\,W = x\,W_x +
# p\,W_p$: side by side is adding, with a matrix of its own for the places. Adding costs no width.

# %%
p = places.table[:6]  # (L, E)
W = torch.randn(16, 8, dtype=torch.float64)  # (2E, E)
torch.testing.assert_close(torch.cat([x[0], p], dim=-1) @ W, x[0] @ W[:8] + p @ W[8:])

# %% [markdown]
# ### Break it: added afterwards
#
# It runs, and the outputs of the two *the* differ. But when they looked around, nobody knew the places. Compare rows
# *the* and *the*.

# %%
_, before = attention(places(x), need_weights=True)
_, afterwards = attention(x, need_weights=True)  # then places(y): too late
titles = ["added before: rows differ", "added afterwards: rows 0 and 4 alike"]
plotting.heads(torch.cat([before[0], afterwards[0]]), rows=words, columns=words, titles=titles, panel_width=4.4)
plt.show()
print("rows of the two 'the' alike, before:    ", torch.allclose(before[0, 0, 0], before[0, 0, 4]))
print("rows of the two 'the' alike, afterwards:", torch.allclose(afterwards[0, 0, 0], afterwards[0, 0, 4]))

# %% [markdown]
# ## A causal mask knows a little
#
# Under a causal mask word $i$ sees $i + 1$ words, so shuffling does change what is seen. How much can be made of it? Let
# the first token carry a mark, and attention be uniform: the share of the mark at place $i$ is $1/(i+1)$. It can count.

# %%
y_causal, y_causal_shuffled = attention(x, is_causal=True)[0], attention(x[:, order], is_causal=True)[0]
print("causal, shuffled the same way:", torch.allclose(y_causal_shuffled, y_causal[:, order]))
uniform = torch.ones(6, 6).tril() / torch.arange(1, 7)[:, None]  # (L, L): all scores equal, causal
mark = torch.tensor([1.0, 0, 0, 0, 0, 0])
print("one over the share of the mark:", (1 / (uniform @ mark)).round(decimals=2).tolist())


# %% [markdown]
# Does training find that? No positions; a start token, then random ones; each place has to say its number, 0 to 15.
#
# Without the mask only the start token can be recognised. The other 15 have to guess: 2 right of 16.

# %%
class Counter(nn.Module):
    def __init__(self, causal, embed_dim=32):
        super().__init__()
        self.embed = nn.Embedding(32, embed_dim)
        self.attention = MultiHeadAttention(embed_dim, num_heads=2)
        self.feed_forward = FeedForward(embed_dim, 128)  # two linear maps; notebook 05 builds it
        self.read_out = nn.Linear(embed_dim, 16)
        self.causal = causal

    def forward(self, tokens):  # (B, L)
        y, _ = self.attention(self.embed(tokens), is_causal=self.causal)  # (B, L, E)
        return self.read_out(self.feed_forward(y)).mT  # (B, 16, L): logits before places, as cross_entropy wants it


# %% tags=["nbval-ignore-output"]
numbers = torch.randint(1, 32, (10_000, 16)).to(device)
numbers[:, 0] = 0  # the start token
own_place = torch.arange(16, device=device).expand(10_000, 16)
counted = {}
for causal in (True, False):
    counted[causal] = []
    for seed in range(3):
        torch.manual_seed(seed)
        counter = Counter(causal).to(device)
        stream = batches(numbers[:9000], own_place[:9000], batch_size=32, seed=seed)
        fit(counter, stream, F.cross_entropy, TrainConfig(steps=300, lr=0.01), progress=False)
        with torch.no_grad():
            right = counter(numbers[9000:]).argmax(dim=1) == own_place[9000:]
        counted[causal].append(right.float().mean().item())
    print("causal    " if causal else "not causal", [f"{share:.3f}" for share in counted[causal]])

# %%
course.verdict("causal, no positions: worst share of positions known", min(counted[True]), above=0.97)
course.verdict("no mask, no positions: best share", max(counted[False]), above=0.11, below=0.14)


# %% [markdown]
# A causal model without any positions knows them all the same (Haviv et al. 2022, arXiv:2203.16634, found it in language
# models). But it takes a layer to count before the next one can use it.

# %% [markdown]
# ## Train: three places back
#
# Sixteen different tokens out of 32. At place $i$, say which token stood at place $i - 3$. The first three places have
# nothing to say.

# %%
def sequences(count, length, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 32, generator=generator).argsort(dim=-1)[:, :length]  # (N, L), no token twice


def three_back_loss(logits, tokens):  # (B, 32, L), (B, L)
    return F.cross_entropy(logits[:, :, 3:], tokens[:, :-3])


train_set, test_set = sequences(10_000, 16, seed=0).to(device), sequences(1000, 16, seed=1).to(device)
print("tokens", test_set[0].tolist())
print("answer", ["-"] * 3 + test_set[0, :-3].tolist())


# %%
class ThreeBack(nn.Module):
    def __init__(self, positions, *, causal=False, after=False, embed_dim=64, max_length=64):
        super().__init__()
        self.embed = nn.Embedding(32, embed_dim)
        self.positions = POSITIONS[positions](embed_dim, max_length)  # "sinusoidal", "learned" or "none"
        self.attention = MultiHeadAttention(embed_dim, num_heads=1)
        self.read_out = nn.Linear(embed_dim, 32)
        self.causal, self.after = causal, after

    def forward(self, tokens):  # (B, L)
        x = self.embed(tokens)  # (B, L, E)
        y, _ = self.attention(x if self.after else self.positions(x), is_causal=self.causal)
        return self.read_out(self.positions(y) if self.after else y).mT  # (B, 32, L)


# %%
def by_place(model, tokens):  # share of right answers at places 3, 4, ...
    with torch.no_grad():
        return (model.eval()(tokens).argmax(dim=1)[:, 3:] == tokens[:, :-3]).float().mean(dim=0)


def train(model, seed, steps=250):
    stream = batches(train_set, train_set, batch_size=32, seed=seed)
    return fit(model, stream, three_back_loss, TrainConfig(steps=steps, lr=0.01), progress=False).loss


# %% [markdown]
# How well can one do without order? The bag holds 15 other tokens, all equally likely: **1 in 15**. Under a causal mask
# word $i$ sees the bag of the $i$ before it: 1 in $i$, on average over the places

# %%
floors = {"a bag": 1 / 15, "a bag of what came before": sum(1 / i for i in range(3, 16)) / 13}
print({name: round(floor, 3) for name, floor in floors.items()})

# %% tags=["nbval-ignore-output"]
arms = {
    "sinusoidal": {"positions": "sinusoidal"},
    "learned": {"positions": "learned"},
    "none": {"positions": "none"},
    "sinusoidal,\nafterwards": {"positions": "sinusoidal", "after": True},
    "none,\ncausal": {"positions": "none", "causal": True},
}
models, losses, shares = {}, {}, {}
for name, arm in arms.items():
    models[name], losses[name] = [], []
    for seed in range(4):
        torch.manual_seed(seed)
        models[name].append(ThreeBack(**arm).to(device))
        losses[name].append(train(models[name][-1], seed))
    shares[name] = [by_place(model, test_set).mean().item() for model in models[name]]
    print(f"{name.replace(chr(10), ' '):24}", [f"{share:.3f}" for share in shares[name]])

# %%
plotting.seeds(shares, lines=floors, title="the token three places back", ylabel="share of right answers")
plt.show()
course.verdict("sinusoidal: worst of four seeds", min(shares["sinusoidal"]), above=0.98)
course.verdict("learned: worst of four seeds", min(shares["learned"]), above=0.98)
for name, floor in (("none", "a bag"), ("sinusoidal,\nafterwards", "a bag"), ("none,\ncausal", "a bag of what came before")):
    excess = [share - floors[floor] for share in shares[name]]
    course.verdict(f"{name.replace(chr(10), ' ')}: largest gain over {floor}", max(excess), below=0.02)

# %% [markdown]
# Prediction 2: 1 in 15. Positions decide everything here; which kind they are decides nothing, **at the trained length**.
# Positions that arrive after the attention are worth nothing, and one causal layer gets what its bag allows and no more.
#
# Do both learn equally fast?

# %%
runs = {name: torch.tensor(losses[name]) for name in ("sinusoidal", "learned", "none")}
plotting.bands(runs, title="loss, mean and standard error of four seeds", smooth=10)
plt.show()
halfway = {name: [sum(value > 0.5 * math.log(32) for value in loss) for loss in losses[name]] for name in runs}
slower = [b / a for a, b in zip(halfway["sinusoidal"], halfway["learned"], strict=True)]
course.verdict("steps until the loss is halved, learned over sinusoidal, smallest", min(slower), above=1.2)


# %% [markdown]
# The learned ones have to be found first; the waves are there from the start. In the end they come out even here, as in the
# paper: "nearly identical results" (table 3, row E).
#
# ## Look: what was learned
#
# The score of place $i$ for place $j$ by position alone: $p_i W^Q (p_j W^K)^\top / \sqrt{E}$. And how alike the learned
# vectors are.

# %%
def place_scores(model, length):
    p = model.positions.table[:length]  # (L, E)
    q, k = model.attention.q_proj(p), model.attention.k_proj(p)
    return (q @ k.T / math.sqrt(p.shape[-1])).detach()


figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
for name, ax in zip(("sinusoidal", "learned"), axes, strict=False):
    plotting.heatmap(
        place_scores(models[name][0], 16), title=f"{name}: scores by place", signed=True, colorbar=False, ax=ax
    )
learned = models["learned"][0].positions.table.detach()[:16]
alike = F.cosine_similarity(learned[:, None], learned[None], dim=-1)
plotting.heatmap(alike, title="learned: cosine", xlabel="place", ylabel="place", signed=True, ax=axes[2])
plt.show()

# %%
for name in ("sinusoidal", "learned"):
    scores = torch.stack([place_scores(model, 16)[3:] for model in models[name]])  # (seeds, 13, 16)
    hits = (scores.argmax(dim=-1) == torch.arange(13, device=device)).float().mean().item()
    course.verdict(f"{name}: rows whose highest score is three back", hits, above=0.95)
size = learned.std().item()
course.verdict("learned vectors: standard deviation, over 0.02 at the start", size / 0.02, above=3)

# %% [markdown]
# Both have drawn the same stripe, three places back. Neighbouring waves are alike, so that stripe is broad. Learned
# neighbours are not: this task only asks to tell places apart.

# %%
course.verdict("learned: mean cosine of neighbours", alike.diagonal(1).mean().item(), below=0.4)
course.verdict("sinusoidal: cosine of neighbours", F.cosine_similarity(waves[0], waves[1], dim=0).item(), above=0.9)

# %% [markdown]
# ## Lengths never trained
#
# With a table of 16 rows there is no vector for place 16. The package says so:

# %%
try:
    LearnedPositions(64, max_length=16)(torch.zeros(1, 17, 64))
except ValueError as error:
    print(error)

# %% [markdown]
# Our models have 64 rows. For learned positions, rows 16 to 63 are as random as on the first day. Sinusoidal rows are
# what they are. The authors hoped that sines "may allow the model to extrapolate to sequence lengths longer than the
# ones encountered during training" (section 3.5). Did ours?

# %% tags=["nbval-ignore-output"]
long_set = torch.randint(32, (500, 64), generator=torch.Generator().manual_seed(2)).to(device)  # now tokens repeat
far = {name: torch.stack([by_place(model, long_set) for model in models[name]]) for name in ("sinusoidal", "learned")}
for name, share in far.items():
    print(f"{name:10} places 3 to 15: {share[:, :13].mean():.3f}, places 16 to 63: {share[:, 13:].mean():.3f}")

# %%
ax = plotting.bands(far, x=range(3, 64), xlabel="place", ylabel="share of right answers", title="length 64, trained on 16")
ax.axvline(15.5, color="black", linestyle=":")
plt.show()
for name, share in far.items():
    course.verdict(f"{name}: places 16 to 63", share[:, 13:].mean().item(), below=0.4)

# %% [markdown]
# Prediction 3: no. The formula reaches any length, the trained weights do not. Where does a sinusoidal model look?

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for name, ax in zip(far, axes, strict=True):
    shown = place_scores(models[name][0], 64).softmax(dim=-1)
    plotting.heatmap(shown, title=f"{name}: weights by place", vmax=1, colorbar=False, ax=ax)
plt.show()

# %% [markdown]
# The stripe ends at 15. Even the first queries find, among the new keys, places that look right to them.
#
# Is it the waves' fault? Set the query to $p_{i-3}$, which is $p_i$ rotated: something that `q_proj`
# **could** do.

# %%
long_waves = SinusoidalPositions(64, 64).table  # (L, E)
by_hand = 5 * long_waves[:-3] @ long_waves.T  # (61, 64): queries for places 3 to 63, three places turned back
course.verdict("by hand: smallest weight on the token three back", by_hand.softmax(dim=-1).diagonal().min().item(), above=0.95)


# %% [markdown]
# So a solution for length 64 exists; length 16 just does not ask for it. By place 15 most hands have not been once around,
# and many other weights fit as well.
#
# **A cure.** Still train on 16 tokens, but let them start anywhere in the table, so that every place is seen.

# %%
class RandomStart(nn.Module):
    def __init__(self, positions):
        super().__init__()
        self.positions = positions

    def forward(self, x):  # (B, L, E)
        table, L = self.positions.table, x.shape[1]
        start = int(torch.randint(len(table) - L + 1, ())) if self.training else 0
        return x + table[start : start + L]


# %% tags=["nbval-ignore-output"]
cured = {}
for name, steps in (("sinusoidal", 250), ("learned", 250), ("learned", 1000)):
    runs = []
    for seed in range(4 if steps == 250 else 3):
        torch.manual_seed(seed)
        model = ThreeBack(name)
        model.positions = RandomStart(model.positions)
        train(model.to(device), seed, steps)
        runs.append(by_place(model, long_set))
    cured[f"{name}, random starts, {steps} steps"] = torch.stack(runs)
    print(f"{name:10} {steps:4} steps, places 3 to 63: {torch.stack(runs).mean():.3f}")

# %%
shown = {"sinusoidal, as before": far["sinusoidal"], **cured}
_, ax = plt.subplots(figsize=(9.6, 3.4), layout="constrained")
plotting.bands(shown, x=range(3, 64), xlabel="place", ylabel="share of right answers", title="length 64, trained on 16", ax=ax)
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
plt.show()
plain, waves_250, learned_250, learned_1000 = (share.mean().item() for share in shown.values())
course.verdict("sinusoidal: gain by random starts", waves_250 - plain, above=0.25)
course.verdict("with random starts, 250 steps: sinusoidal minus learned", waves_250 - learned_250, above=0.1)
course.verdict("learned: gain by 1000 steps in place of 250", learned_1000 - learned_250, above=0.15)


# %% [markdown]
# The waves profit at once: what they learn at one place helps at the others. 64 learned vectors have to be found one by
# one, which takes more steps. None is perfect; distances beyond 15 are still new to all. Kiyono et al. 2021
# (arXiv:2109.05644) make a method of such starts. Ruoss et al. 2023 (arXiv:2305.16843) leave random gaps between the places
# as well, so that distances grow, too.

# %% [markdown]
# ## Exercises
#
# Write the function in place of `raise NotImplementedError` and run the cell. The first wrong run shows what is wrong with
# the result, the second names the mistake; the numbers are fresh each time. Hints and a solution are folded away below each cell.
#
# ### Exercise 1 · easy · 4 minutes
#
# Tell a batch of sentences the order of their words, then let them attend: add row $t$ of the table to word $t$.
# `attention` is a function from (B, L, E) to (B, L, E); the table may have more rows than there are words.

# %%
def attend_in_order(x, table, attention):  # (B, L, E), (max_length, E), a function
    raise NotImplementedError  # (B, L, E)


check.attend_in_order(attend_in_order)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Attention can only use what its input already knows.
#
# </details>
# <details><summary>Hint 2</summary>
#
# The words are axis 1 of `x`. A tensor of shape (L, E) broadcasts over the batch.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def attend_in_order(x, table, attention):
#     return attention(x + table[: x.shape[1]])
# ```
#
# </details>
#
# ### Exercise 2 · middle · 8 minutes
#
# The table of sinusoidal positions, from memory: row $t$ has $\sin(t\,\omega_i)$ in column $2i$ and $\cos(t\,\omega_i)$
# in column $2i + 1$, with $\omega_i = 10000^{-2i/E}$. The first row is position 0, and `embed_dim`, $E$, is even.

# %%
def sinusoidal_table(length, embed_dim):
    raise NotImplementedError  # (length, embed_dim)


check.sinusoidal_table(sinusoidal_table)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# There are `embed_dim // 2` clocks. The first turns by 1 a step, each next one slower by the factor $10000^{-2/E}$.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Angles first: (L, 1) times (E/2,) gives (L, E/2). Then `torch.stack` on a new last axis and `flatten`, or write into
# `table[:, 0::2]` and `table[:, 1::2]`.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def sinusoidal_table(length, embed_dim):
#     position = torch.arange(length)[:, None]  # (L, 1)
#     frequency = 10000.0 ** (-torch.arange(0, embed_dim, 2) / embed_dim)  # (E/2,)
#     angle = position * frequency  # (L, E/2)
#     return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)  # (L, E)
# ```
#
# </details>
#
# ### Exercise 3 · hard · 12 minutes
#
# One matrix that moves **every** position by `shift`: `waves[t] @ shift_matrix(E, shift)` has to be `waves[t + shift]`,
# whatever `t`, for the waves of width $E$ above (base 10000, sine and cosine side by side).

# %%
def shift_matrix(embed_dim, shift):
    raise NotImplementedError  # (embed_dim, embed_dim)


check.shift_matrix(shift_matrix)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Each clock turns by itself: the numbers of pair $i$ depend on pair $i$ alone, so nearly all entries are 0.
#
# </details>
# <details><summary>Hint 2</summary>
#
# For one pair, *A shift is a rotation* has the 2 × 2 matrix. `torch.block_diag(*blocks)` sets them along the diagonal.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def shift_matrix(embed_dim, shift):
#     angle = shift * 10000.0 ** (-torch.arange(0, embed_dim, 2) / embed_dim)  # (E/2,)
#     blocks = [torch.tensor([[b.cos(), -b.sin()], [b.sin(), b.cos()]]) for b in angle]
#     return torch.block_diag(*blocks)  # (E, E)
# ```
#
# </details>

# %% [markdown]
# ## Your turn
#
# **Middle, 5 minutes.** With $E = 2$ there is a single clock. Which of the places 1 to 63 does it take for place 0, nearly?
# And what happens when `SinusoidalPositions` is doubled before it is added to the words?
#
# <details><summary>Answer</summary>
#
# Place 44: seven turns are $14\pi \approx 43.98$ steps. The second clock, with another speed, tells the two apart; that is
# what the many frequencies are for.
#
# Doubled places weigh more against the words: scores by place alone grow fourfold. The paper does the reverse, and multiplies
# the *words* by $\sqrt E$ (section 3.4).
#
# </details>

# %% [markdown]
# ## Takeaways
#
# - Attention sees a bag of words: shuffled inputs give outputs shuffled alike. A causal mask breaks that, and is enough to count.
# - Position vectors are added once, in front. At trained lengths sinusoidal and learned ones did equally well here.
# - Sines turn a shift into a rotation, but a model that was never shown long sequences need not have learned it.

# %% [markdown]
# ## Check yourself
#
# 1. A model without positions and without a mask classifies reviews. Which mistake can it not avoid?
# 2. Why does each frequency need a sine and a cosine?
# 3. You trained on 512 tokens with learned positions and want 600. What now?
#
# <details><summary>Answers</summary>
#
# 1. It gives *good, not bad* and *bad, not good* the same answer: they are the same bag.
# 2. With both, a shift is a rotation of the pair, and the dot product depends on the distance alone. With the sine alone
#    neither holds.
# 3. The package refuses. More rows alone do not help, they are untrained: train on longer sequences, or start at random places.
#
# </details>

# %% [markdown]
# **To read**: Vaswani et al. 2017 (arXiv:1706.03762), section 3.5; Gehring et al. 2017 (arXiv:1705.03122), section 3.1;
# Haviv et al. 2022 (arXiv:2203.16634), on counting without positions; Kazemnejad et al. 2023 (arXiv:2305.19466), on lengths never
# trained.
#
# **Next**: 05, what stands around attention: residuals, norms and the feed-forward network.
