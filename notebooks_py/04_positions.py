# %% [markdown]
# # 04 Positions
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/04_positions.ipynb)
#
# ← [03 Multi-head attention](03_multi_head.ipynb) · [the map of the course](00_welcome.ipynb) · [05 The transformer block](05_transformer_block.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) **04** [05](05_transformer_block.ipynb) · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb)
#
# Needs: notebook 03 · runs in about 60 s on two CPU cores · about 2 hours of study

# %% [markdown]
# *Dog bites man* is not news. *Man bites dog* is. The two headlines consist of the same three words; only their order
# differs, and you understood both without thinking about order at all.
#
# The attention that you have built so far cannot tell them apart. A recurrent network reads one word after the other,
# so that it gets the order for free. Attention looks at all words at once, and gave that order up.
#
# In 2017 two papers replaced recurrence in translation and had to put the order back in. [Gehring et
# al.](https://arxiv.org/abs/1705.03122) gave every position a vector that is learned, and [Vaswani et
# al.](https://arxiv.org/abs/1706.03762) gave it a vector made of waves. Two later ideas are what large language models
# mostly use today: [Su et al. 2021](https://arxiv.org/abs/2104.09864) turn queries and keys by an angle, and [Press et
# al. 2022](https://arxiv.org/abs/2108.12409) lower each score by the distance.
#
# After this notebook you can
#
# - prove that attention without positions treats a sentence as a bag of words;
# - build the waves, and read them as clocks whose hands turn;
# - measure what positions are worth, at the length of training and beyond it;
# - explain why a rotary score depends on nothing but the distance between two tokens.

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

from sciformer import DotProductScore, LearnedPositions, MultiHeadAttention, NoPositions, RotaryScore
from sciformer import SinusoidalPositions, check, course, plotting
from sciformer.functional import rotate
from sciformer.teach import explore
from sciformer.teach.diagrams.positions import where_positions_enter

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# **Predict**, and write your answers down. Each of them is settled below, beside a measured number.
#
# 1. *dog bites man* and *man bites dog* go through the same attention layer. For which of the three words does the
#    output differ between the two sentences?
# 2. A model reads 16 different tokens, and at each token it has to name the token that stands three positions earlier.
#    It does not know the order. How often is it right: never, one time in 15, or half the time?
# 3. Another model knows the order through the waves and was trained on sequences of length 16. How often is it right at
#    the positions 16 to 63 of a longer sequence?
#
# ## Shuffle the words
#
# Each word gets a random vector, and one attention layer with random weights reads the three of them.

# %%
vocabulary = ["the", "cat", "sat", "on", "mat", "dog", "bites", "man"]
table = torch.randn(len(vocabulary), 4, dtype=torch.float64)  # (V, E)
attention = MultiHeadAttention(4, num_heads=1).double().requires_grad_(False)


def embed(words):
    return table[[vocabulary.index(word) for word in words]][None]  # (1, L, E)


# %%
dog_first, man_first = ["dog", "bites", "man"], ["man", "bites", "dog"]
y_dog_first, weights = attention(embed(dog_first), need_weights=True)  # (1, L, E), (1, 1, L, L)
y_man_first, weights_shuffled = attention(embed(man_first), need_weights=True)
for i, word in enumerate(dog_first):
    one, two = (y[0, j].round(decimals=3).tolist() for y, j in ((y_dog_first, i), (y_man_first, 2 - i)))
    print(f"{word:5}  {one}  {two}  {'same' if one == two else 'different'}")

# %% [markdown]
# That settles prediction 1: for none of them. *dog* gets the same output whether it bites or is bitten. The weights
# show why:

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
plotting.heatmap(weights[0, 0], rows=dog_first, columns=dog_first, title="dog bites man", colorbar=False, ax=axes[0])
plotting.heatmap(
    weights_shuffled[0, 0], rows=man_first, columns=man_first, title="man bites dog", colorbar=False, ax=axes[1]
)
plotting.show(
    "Two heatmaps of weights with the same nine numbers; in the second, rows and columns are in reverse order."
)

# %% [markdown]
# The same nine numbers stand in both pictures; rows and columns have moved, and nothing else. Write the shuffle as a
# matrix $P$ with a single 1 in each row. If $W$ are the weights and $V$ the values, the scores become $P S P^\top$, the
# softmax works row by row and does not mind, and
#
# $$f(PX) = (P W P^\top)(P V) = P\,W V = P f(X), \qquad \text{since } P^\top P = I.$$
#
# This is called [**permutation equivariance**](../docs/glossary.md#p): shuffled inputs give the same outputs, shuffled
# alike. Attention sees a *bag* of words. More heads or more layers do not help, because a chain of equivariant steps is
# equivariant itself.

# %%
P = torch.tensor([[0, 0, 1], [0, 1, 0], [1, 0, 0]]).double()  # (L, L)
torch.testing.assert_close(P @ embed(dog_first)[0], embed(man_first)[0])
torch.testing.assert_close(P @ weights[0, 0] @ P.T, weights_shuffled[0, 0])
torch.testing.assert_close(P @ y_dog_first[0], y_man_first[0])
print("f(PX) = P f(X) holds to the last digit that we can expect")

# %% [markdown]
# ## Where the order can enter
#
# Something has to break the symmetry. The diagram shows one head and the three places where a position can come in. The
# first is the oldest, and we build it now: every position gets a vector, which is added to the token that stands there.
# The second is rotary, which we build at the end. The third lowers scores by the distance, and notebook 07 is about it.

# %%
where_positions_enter(embed(dog_first)[0], SinusoidalPositions(4, 3).table, words=dog_first)
plotting.show(
    "One attention head as data flow. Positions can be added to the tokens, can turn the queries and the keys, or can lower"
    " the scores."
)

# %% [markdown]
# ## A vector for each position: sinusoidal
#
# Which vector? The first idea is to hand each token the number of its [**position**](../docs/glossary.md#p) $t$: 0, 1,
# 2, and so on. That number has no upper bound, so at position 500 it would drown the word. The second idea is to write
# $t$ in binary digits: 000, 001, 010, 011. Digits are bounded, and they share the work: the last digit changes at every
# step, the one before it at every second step, the next at every fourth.
#
# Vaswani et al. (section 3.5) use smooth digits. Each pair of features is a sine and a cosine of the same frequency,
# and each pair is slower than the one before:
#
# $$p_{t,2i} = \sin(\omega_i t), \qquad p_{t,2i+1} = \cos(\omega_i t), \qquad \omega_i = 10000^{-2i/E}$$
#
# | symbol | meaning | shape |
# |---|---|---|
# | $t$ | the position, counted from 0 | (L, 1) |
# | $\omega_i$ | the frequency of pair $i$, in radians per step | (E/2,) |
# | $p_t$ | the vector of position $t$, a row of the table | (E,) |
#
# These are the [**sinusoidal positions**](../docs/glossary.md#s). For $E = 4$ there are two pairs, with $\omega_0 = 1$
# and $\omega_1 = 10000^{-1/2} = 0.01$:

# %%
for t in range(4):
    print(f"position {t}: {math.sin(t):5.2f} {math.cos(t):5.2f} {math.sin(0.01 * t):5.2f} {math.cos(0.01 * t):5.2f}")


# %% [markdown]
# ### Exercise 1 · middle · 8 minutes
#
# Build the table for any size. `sinusoidal_table(length, embed_dim)` returns a tensor of floating-point numbers with
# `length` rows, one for each position from 0 on, and `embed_dim` columns; `embed_dim`, which is $E$, is even. Column
# $2i$ holds $\sin(\omega_i t)$ and column $2i + 1$ holds $\cos(\omega_i t)$, with $\omega_i = 10000^{-2i/E}$ for $i =
# 0, 1, \dots, E/2 - 1$. A loop is allowed. Everything below uses your table.

# %%
def sinusoidal_table(length, embed_dim):
    raise NotImplementedError  # (length, embed_dim)


sinusoidal_table = check.sinusoidal_table.use(sinusoidal_table)

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

# %%
length, E = 64, 32
waves = sinusoidal_table(length, E).float()  # (L, E)
torch.testing.assert_close(waves, SinusoidalPositions(E, length).table)
plotting.heatmap(waves, title="sinusoidal positions", xlabel="feature", ylabel="position", signed=True)
plotting.show("Stripes: the columns on the left change colour at every few rows, those on the right keep one colour.")

# %% [markdown]
# Read the picture column by column. On the left the colour changes every few rows, like the last binary digit; on the
# right 64 positions are too few to see any change.
#
# ### A row of clocks
#
# Each pair (sine, cosine) is the tip of a clock hand, and from one position to the next the hand turns by $\omega_i$.
# Fast hands tell neighbours apart, slow hands tell the beginning from the end, just as seconds and hours do. Watch
# position $t$ and position $t + 3$ move on together, and look at the angle between the two hands of one clock.

# %%
frequency = 10000.0 ** (-torch.arange(0, E, 2) / E)  # (E/2,)
turns = [f"pair {i}\n{frequency[i] * 180 / math.pi:.1f}° a step" for i in range(8)]


def clocks_at(t):
    return plotting.clocks({"position t": waves[t, :16], "position t + 3": waves[t + 3, :16]}, titles=turns)


plotting.animate(
    clocks_at,
    range(14),
    seconds=0.5,
    alt="Eight clocks with two hands each, one for position t and one for t + 3. As t grows both hands turn, fast in the"
    " first clock and slowly in the last, and the angle between the two hands of a clock never changes.",
)

# %% [markdown]
# In every clock, the angle between the two hands stays the same while $t$ grows. So three steps look alike wherever
# they begin, and this has two consequences that we can compute.
#
# ### How alike are two positions?
#
# Because $\sin a \sin b + \cos a \cos b = \cos(a - b)$, the dot product of two positions depends on their distance $k$
# alone:
#
# $$p_t \cdot p_{t+k} = \sum_i \cos(\omega_i k)$$

# %%
similarity = waves @ waves.T  # (L, L)
by_distance = torch.cos(frequency * torch.arange(length)[:, None]).sum(dim=-1)  # (L,): Σ cos(ω k)
for k in range(length):
    torch.testing.assert_close(similarity.diagonal(k), by_distance[k].expand(length - k))
print("dot product at distance 0, 1, 2, 3:", *(f"{product:.2f}" for product in by_distance[:4]))


# %%
def one_position_and_all(t):
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.7), layout="constrained")
    plotting.heatmap(similarity, title="dot products of positions", xlabel="position", ylabel="position", ax=axes[0])
    axes[0].axhline(t, color="white")
    row = {f"position {t}": list(enumerate(similarity[t].tolist()))}
    plotting.curves(row, xlabel="position", ylabel="dot product", title="one row", ax=axes[1])
    return figure


slider = ipywidgets.IntSlider(value=10, min=0, max=length - 1, description="position")
explore(
    one_position_and_all,
    alt="Dot products of all positions, a bright band along the diagonal; row 10 peaks at 10.",
    t=slider,
)

# %% [markdown]
# A position is most like itself, and equally like its neighbours on the left and on the right.
#
# ### A shift is a rotation
#
# When every position moves on by $k$, the hands of clock $i$ turn by $\omega_i k$, whatever the position. One fixed
# rotation moves them all:

# %%
i, k = 3, 5
b = frequency[i] * k  # the angle
rotation = torch.tensor([[b.cos(), -b.sin()], [b.sin(), b.cos()]])  # (2, 2)
pair = waves[:, 2 * i : 2 * i + 2]  # (L, 2): sine and cosine of one clock
torch.testing.assert_close(pair[:-k] @ rotation, pair[k:])  # all 59 positions at once
rotation.round(decimals=2)


# %% [markdown]
# Looking $k$ positions back is therefore one linear map, which the projection to the queries can learn. The authors
# chose the waves because they hoped that this would make it easy (section 3.5). Below you measure whether it does.
#
# ## A vector for each position: learned
#
# The other choice is not to choose: the table is a parameter, and training finds it. These are [**learned
# positions**](../docs/glossary.md#l) (Gehring et al. 2017, section 3.1). Here are both as modules. The waves are a
# buffer: they move to the GPU with the model, and no optimiser changes them.

# %%
class MySinusoidal(nn.Module):
    def __init__(self, embed_dim, max_length):
        super().__init__()
        self.register_buffer("table", sinusoidal_table(max_length, embed_dim).float(), persistent=False)

    def forward(self, x):  # (B, L, E)
        return x + self.table[: x.shape[1]]


class MyLearned(nn.Module):
    def __init__(self, embed_dim, max_length, size=0.02):
        super().__init__()
        self.table = nn.Parameter(size * torch.randn(max_length, embed_dim))

    def forward(self, x):  # (B, L, E)
        return x + self.table[: x.shape[1]]


# %%
x = torch.randn(2, 6, 32)  # (B, L, E)
torch.testing.assert_close(MySinusoidal(32, 64)(x), SinusoidalPositions(32, 64)(x))
course.assert_same_module(MyLearned(32, 64), LearnedPositions(32, 64), x)


# %% [markdown]
# ## Added, once, in front
#
# ### Exercise 2 · easy · 4 minutes
#
# Tell a batch of sentences the order of their words, then let them attend. `attend_in_order` gets `x` of shape (B, L,
# E), a `table` of shape (max_length, E) with at least L rows, and `attention`, a function from (B, L, E) to (B, L, E).
# Add row $t$ of the table to word $t$ of every sentence, for $t = 0, 1, \dots, L - 1$, and return what `attention`
# makes of the sum.

# %%
def attend_in_order(x, table, attention):  # (B, L, E), (max_length, E), a function
    raise NotImplementedError  # (B, L, E)


attend_in_order = check.attend_in_order.use(attend_in_order)

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

# %%
p = sinusoidal_table(16, 4).double()
y_dog_first, y_man_first = (attend_in_order(embed(s), p, lambda x: attention(x)[0])[0] for s in (dog_first, man_first))
for i, word in enumerate(dog_first):
    print(f"{word:5}  {y_dog_first[i].round(decimals=3).tolist()}  {y_man_first[2 - i].round(decimals=3).tolist()}")

# %% [markdown]
# Now all three words have two different outputs. Even *bites*, which stands in the middle of both sentences, has learnt
# who is the dog.
#
# ### Break it: added afterwards
#
# Does it matter that the positions come *before* the attention? Added afterwards they change the outputs, too, so that
# the mistake is easy to overlook. Compare the two rows of *the*.

# %%
words = ["the", "cat", "sat", "on", "the", "mat"]
_, before = attention(embed(words) + p[:6], need_weights=True)
_, afterwards = attention(embed(words), need_weights=True)  # and then + p[:6], too late
titles = ["positions added before", "positions added afterwards"]
plotting.heads(torch.cat([before[0], afterwards[0]]), rows=words, columns=words, titles=titles, panel_width=4.4)
plotting.show(
    "Two heatmaps of weights for six words. On the left all rows differ; on the right both rows of 'the' are equal."
)


# %% [markdown]
# On the right both *the* look at the same words with the same weights, because nobody knew the positions when the
# scores were computed.
#
# ## Train: three back
#
# Time to put your positions to work. A sequence has 16 different tokens out of 32, and at position $i$ the model has to
# name the token at position $i - 3$. The first three positions have no answer.

# %%
def sequences(count, length, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 32, generator=generator).argsort(dim=-1)[:, :length].to(device)  # no token twice


train_set, test_set = sequences(10_000, 16, seed=0), sequences(1000, 16, seed=1)  # (N, L)
print("tokens", test_set[0].tolist())
print("answer", ["-"] * 3 + test_set[0, :-3].tolist())


# %%
class ThreeBack(nn.Module):
    def __init__(self, positions, *, score=DotProductScore, after=False, embed_dim=64):
        super().__init__()
        self.embed = nn.Embedding(32, embed_dim)
        self.positions = positions(embed_dim, 64)  # up to 64 tokens
        self.attention = MultiHeadAttention(embed_dim, num_heads=1, score=score)
        self.read_out = nn.Linear(embed_dim, 32)
        self.after = after

    def forward(self, tokens):  # (B, L)
        x = self.embed(tokens)  # (B, L, E)
        y, _ = self.attention(x if self.after else self.positions(x))
        return self.read_out(self.positions(y) if self.after else y).mT  # (B, 32, L)


# %% [markdown]
# The training loop stands open. The [**optimiser**](../docs/glossary.md#o) is **Adam** ([Kingma and Ba
# 2015](https://arxiv.org/abs/1412.6980)): it divides each parameter's gradient by a running average of its size, so
# that every parameter moves by about the learning rate in each step, whether its gradients are large or small.

# %%
def train(model, seed, steps=250):
    generator, losses = torch.Generator().manual_seed(seed), []
    optimizer = torch.optim.Adam(model.train().parameters(), lr=0.01)
    for _ in range(steps):
        tokens = train_set[torch.randint(len(train_set), (32,), generator=generator).to(device)]  # (B, L)
        loss = F.cross_entropy(model(tokens)[:, :, 3:], tokens[:, :-3])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def by_position(model, tokens):  # share of right answers at positions 3, 4, ...
    with torch.no_grad():
        return (model.eval()(tokens).argmax(dim=1)[:, 3:] == tokens[:, :-3]).float().mean(dim=0).cpu()


# %% [markdown]
# How well can a model do that does not know the order? For each token it knows the 15 others, and each of them is
# equally likely to stand three positions earlier. It is right one time in 15, whatever it computes. Four kinds of
# model, four [**seeds**](../docs/glossary.md#s) each; a seed decides the initial weights and the order of the data.

# %% tags=["nbval-ignore-output"]
arms = {
    "sinusoidal": {"positions": MySinusoidal},
    "learned": {"positions": MyLearned},
    "none": {"positions": NoPositions},
    "sinusoidal,\nadded afterwards": {"positions": MySinusoidal, "after": True},
}
models, losses, shares = {}, {}, {}
for name, arm in arms.items():
    models[name], losses[name] = [], []
    for seed in range(4):
        torch.manual_seed(seed)
        models[name].append(ThreeBack(**arm).to(device))
        losses[name].append(train(models[name][-1], seed))
    shares[name] = [by_position(model, test_set).mean().item() for model in models[name]]
    print(f"{name.replace(chr(10), ' '):28}", [f"{share:.3f}" for share in shares[name]])

# %%
plotting.seeds(shares, lines={"1 in 15": 1 / 15}, title="the token three back", ylabel="share of right answers")
plotting.show(
    "Models with positions in front are right nearly always; those without, or with positions too late, 1 in 15."
)
course.verdict("sinusoidal: worst of four seeds", min(shares["sinusoidal"]), above=0.95)
course.verdict("learned: worst of four seeds", min(shares["learned"]), above=0.95)
error = math.sqrt(1 / 15 * 14 / 15 / 13_000)  # of a share of 1 in 15 among 13,000 answers
blind = shares["none"] + shares["sinusoidal,\nadded afterwards"]
course.verdict(
    "no order: the largest distance from 1 in 15, in standard errors",
    max(abs(s - 1 / 15) for s in blind) / error,
    below=4,
)

# %% [markdown]
# That settles prediction 2: one time in 15, within the error of 13,000 test answers. Positions that arrive after the
# attention are worth nothing for this task. With positions in front, both kinds solve it.
#
# ### Which of the two is learnt faster?
#
# It is often said that the waves have a head start, because they are there from the first step, while learned vectors
# have to be found first. Before you believe it, compare the sizes. The numbers in the waves have a root mean square of
# $\sqrt{1/2} \approx 0.71$, and the usual learned table starts at 0.02, which hardly counts beside the words. So we
# train a third kind: learned positions that start at 0.71.

# %% tags=["nbval-ignore-output"]
loud = "learned, starting at 0.71"
losses[loud] = []
for seed in range(4):
    torch.manual_seed(seed)
    model = ThreeBack(lambda embed_dim, max_length: MyLearned(embed_dim, max_length, size=0.71)).to(device)
    losses[loud].append(train(model, seed, steps=120))
kinds = ("sinusoidal", "learned", loud)
halfway = {name: [sum(value > 0.5 * math.log(32) for value in loss) for loss in losses[name]] for name in kinds}
print("steps until the loss is halved, seed by seed:", halfway)

# %%
labels = ("sinusoidal", "learned, starting at 0.02", loud)
runs = {label: torch.tensor(losses[name])[:, :120] for label, name in zip(labels, kinds, strict=True)}
plotting.bands(runs, title="loss: mean and standard error of four seeds", smooth=5)
plotting.show(
    "Three falling curves. Learned positions that start at 0.71 fall first, then the waves, and last learned positions that"
    " start at 0.02."
)


# %% [markdown]
# Four seeds are few, so we take an interval. The mean of four numbers lies within 3.18 standard errors of the truth in
# 95 % of all such experiments (Student's t; notebook 16 explains it). The verdicts ask whether the *lower end* of that
# interval is above 1, where 1 would mean "equally fast".

# %%
def low_end(values, t=3.18):  # of a 95 % interval for the mean; t is for four values
    values = torch.as_tensor(values)
    return (values.mean() - t * values.std() / math.sqrt(len(values))).item()


steps = {name: torch.tensor(counts).log() for name, counts in halfway.items()}
slower, faster = (steps["learned"] - steps["sinusoidal"], steps["sinusoidal"] - steps[loud])
course.verdict("steps, learned from 0.02 over sinusoidal, lower end", math.exp(low_end(slower)), above=1)
course.verdict("steps, sinusoidal over learned from 0.71, lower end", math.exp(low_end(faster)), above=1)


# %% [markdown]
# So it was the size. From 0.02 the learned vectors are slower than the waves; from the size of the waves they are
# faster. On this task random vectors of that size are the better start: no two of them are alike, while each wave
# resembles its neighbours.
#
# ## Look: what was learnt
#
# What does a trained model look for? The score of position $i$ for position $j$, as far as the positions alone decide
# it, is $p_i W^Q (p_j W^K)^\top / \sqrt{E}$.

# %%
def position_scores(model, length):
    p = model.positions.table[:length]  # (L, E)
    q, k = model.attention.q_proj(p), model.attention.k_proj(p)
    return (q @ k.T / math.sqrt(p.shape[-1])).detach().cpu()


figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
for name, ax in zip(("sinusoidal", "learned"), axes, strict=True):
    shown = position_scores(models[name][0], 16)
    plotting.heatmap(shown, title=f"{name}: scores by position", signed=True, colorbar=False, ax=ax)
plotting.show("Two heatmaps of 16 by 16 scores, both with a red stripe three columns to the left of the diagonal.")
for name in ("sinusoidal", "learned"):
    scores = torch.stack([position_scores(model, 16)[3:] for model in models[name]])  # (seeds, 13, 16)
    hits = (scores.argmax(dim=-1) == torch.arange(13)).float().mean().item()
    course.verdict(f"{name}: rows whose highest score is three back", hits, above=0.95)

# %% [markdown]
# Both kinds have drawn the same stripe, three positions to the left of the diagonal. With the waves the stripe is
# broad, because neighbouring waves are alike.
#
# ## Lengths never trained
#
# A prompt is seldom as long as a training text. Will the stripe go on? The use of a model on longer sequences than it
# was trained on is called [**extrapolation**](../docs/glossary.md#e). The authors of the waves hoped that they "may
# allow the model to extrapolate to sequence lengths longer than the ones encountered during training" (section 3.5).
#
# Our tables have 64 rows, of which training has used the first 16. In sequences of length 64 tokens must repeat, so
# even a model that does not know the order can do better than 1 in 32: it can name the token that occurs most often.

# %% tags=["nbval-ignore-output"]
long_set = torch.randint(32, (500, 64), generator=torch.Generator().manual_seed(2)).to(device)
most_frequent = F.one_hot(long_set, 32).sum(dim=1).amax(dim=-1).float().mean().item() / 64
far = {
    name: torch.stack([by_position(model, long_set) for model in models[name]]) for name in ("sinusoidal", "learned")
}
for name, share in far.items():
    print(f"{name:10} positions 3 to 15: {share[:, :13].mean():.3f}, positions 16 to 63: {share[:, 13:].mean():.3f}")
print(f"always naming the most frequent token of the sequence: {most_frequent:.3f}")

# %%
ax = plotting.bands(
    far, x=range(3, 64), xlabel="position", ylabel="share of right answers", title="length 64, trained on 16"
)
ax.axvline(15.5, color="black", linestyle=":")
ax.axhline(most_frequent, color="grey", linestyle="--")
plotting.show(
    "Both curves fall at position 16, where training ended, to near the dashed line of naming the most frequent token."
)
for name, share in far.items():
    fall = share[:, :13].mean(dim=1) - share[:, 13:].mean(dim=1)  # (seeds,)
    course.verdict(f"{name}: positions 3 to 15 minus positions 16 to 63, lower end", low_end(fall), above=0.5)

# %% [markdown]
# That settles prediction 3. The formula of the waves reaches any length; the trained weights do not. Learned vectors 16
# to 63 are as random as on the first day, and the model does worse than somebody who always names the most frequent
# token. With the waves even some positions before 16 suffer, because new keys compete with the right one, and a few
# positions far beyond 16 are right by luck. Where do the models look?

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for name, ax in zip(far, axes, strict=True):
    shown = position_scores(models[name][0], 64).softmax(dim=-1)
    plotting.heatmap(shown, title=f"{name}: weights by position", vmax=1, colorbar=False, ax=ax)
    ax.axvline(15.5, color="white", linestyle=":")
    ax.axhline(15.5, color="white", linestyle=":")
plotting.show(
    "Two heatmaps of 64 by 64 weights. A clean stripe fills the corner that was trained; beyond it the weights scatter."
)

# %% [markdown]
# The stripe ends at the dotted lines, and what comes back of it beyond them is faint and in short stretches: these are
# the islands in the curve above. Is that the fault of the waves? By *A shift is a rotation*, the query $p_{i-3}$ is
# $p_i$ turned by a fixed rotation, so a projection exists that would do the job at every length. Put that query in by
# hand:

# %%
long_waves = sinusoidal_table(64, 64).float()  # (L, E)
by_hand = 5 * long_waves[:-3] @ long_waves.T  # (61, 64): queries for positions 3 to 63, turned three positions back
course.verdict(
    "by hand: smallest weight on the token three back", by_hand.softmax(dim=-1).diagonal().min().item(), above=0.95
)


# %% [markdown]
# So a solution for length 64 exists, and training on length 16 does not ask for it. In 16 steps most hands have not
# been once around, and many other weights fit as well.
#
# ### A cure: start anywhere
#
# Still train on 16 tokens, but let them begin at a random row of the table, so that all 64 rows are seen ([Kiyono et
# al. 2021](https://arxiv.org/abs/2109.05644) made a method of this).

# %%
class RandomStart(nn.Module):
    def __init__(self, positions):
        super().__init__()
        self.positions = positions

    @property
    def table(self):
        return self.positions.table

    def forward(self, x):  # (B, L, E)
        L = x.shape[1]
        start = int(torch.randint(len(self.table) - L + 1, ())) if self.training else 0
        return x + self.table[start : start + L]


# %% tags=["nbval-ignore-output"]
cured, best_keys = {}, []
for name, positions in (("sinusoidal", MySinusoidal), ("learned", MyLearned)):
    runs = []
    for seed in range(4):
        torch.manual_seed(seed)
        model = ThreeBack(positions)
        model.positions = RandomStart(model.positions)
        train(model.to(device), seed)
        runs.append(by_position(model, long_set))
        best_keys.append(position_scores(model, 64)[3:].argmax(dim=-1))  # for positions 3 to 63
    cured[name] = torch.stack(runs)
    print(f"{name:10} with random starts, positions 3 to 63: {cured[name].mean():.3f}")

# %%
figure, axes = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
shown = {"sinusoidal, as before": far["sinusoidal"], **{f"{name}, random starts": runs for name, runs in cured.items()}}
plotting.bands(shown, x=range(3, 64), xlabel="", ylabel="share of right answers", title="length 64", ax=axes[0])
axes[0].legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
starts = [(t, sum(s <= t - 3 and t < s + 16 for s in range(49))) for t in range(3, 64)]
plotting.curves(
    {"": starts}, xlabel="position", ylabel="of 49 starts", title="starts that show it and three back", ax=axes[1]
)
plotting.show(
    "Above, the share of right answers is high in the middle and low at both ends; below, so is the number of starts."
)
gaps = torch.cat([runs[:, 12:49].mean(dim=1) - runs[:, [0, -1]].mean(dim=1) for runs in cured.values()])  # (8,)
course.verdict("share right in the middle minus at positions 3 and 63, lower end", low_end(gaps, t=2.36), above=0)
for name, runs in cured.items():
    gain = runs[:, 13:].mean(dim=1) - far[name][:, 13:].mean(dim=1)
    course.verdict(f"{name}: gain by random starts at positions 16 to 63, lower end", low_end(gain), above=0.25)

# %% [markdown]
# Random starts help both kinds a great deal. The ends are weak, and the lower picture says why: 13 of the 49 starts
# show a position in the middle together with the one three back, and only a single start shows position 3 together with
# position 0. But why do the curves dip in between? Here are the positions at which a model prefers a wrong key, and how
# far away that key is, for all eight models.

# %% tags=["nbval-ignore-output"]
wrong = [(i, abs(i - int(j))) for best in best_keys for i, j in enumerate(best, start=3) if i - j != 3]
print("(position, distance of the wrong key):", sorted(wrong))
new = sum(distance > 15 for _, distance in wrong) / len(wrong)

# %%
course.verdict("share of the wrong keys that are farther away than 15", new, above=0.9)


# %% [markdown]
# Nearly all wrong keys stand at a distance that no training sequence of 16 tokens had. Nothing in training said that
# such a key must not be chosen.
#
# ## Rotary: turn the queries and the keys
#
# All of this trouble has one root. We add an absolute position, and hope that the model finds out for itself that only
# the distance counts. The clocks suggest something more direct. Leave the tokens alone, and turn the hands of the
# *queries* and the *keys*: each pair of their features is a hand, and position $t$ turns pair $m$ by $\omega_m t$.
# Write $R_t$ for all these rotations together. Rotations by $i$ and by $j$ undo each other but for the difference:
#
# $$s_{ij} = (R_i q) \cdot (R_j k) = q^\top R_i^\top R_j\, k = q^\top R_{j-i}\, k$$
#
# These are [**rotary positions**](../docs/glossary.md#r) (Su et al. 2021, section 3.2). In code they take four lines.
# Feature $m$ is paired with feature $m + D/2$ here, as in most models of today; which features form a pair does not
# matter.

# %%
def turn(x):  # (..., L, D)
    L, D = x.shape[-2:]
    angle = torch.arange(L, device=x.device)[:, None] * 10000.0 ** (
        -torch.arange(0, D, 2, device=x.device) / D
    )  # (L, D/2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], dim=-1)


heads = torch.randn(2, 4, 16, 8)  # (B, H, L, D)
torch.testing.assert_close(turn(heads), rotate(heads))
print("the same as the package's rotate")

# %% [markdown]
# Does the score depend on the distance alone? Take *one* query and *one* key, and put them at every pair of positions:

# %%
q, k = torch.randn(8), torch.randn(8)
scores = turn(q.expand(12, 8)) @ turn(k.expand(12, 8)).T  # (12, 12): query at position i, key at position j
plotting.heatmap(
    scores,
    title="one query and one key at all positions",
    signed=True,
    xlabel="position of the key",
    ylabel="position of the query",
)
plotting.show("A heatmap of 12 by 12 scores that is constant along each diagonal.")
spread = max((scores.diagonal(n).max() - scores.diagonal(n).min()).item() for n in range(-11, 12))
course.verdict("largest difference along a diagonal", spread, below=1e-4)

# %% [markdown]
# Each diagonal has one colour. So a rotary model that has learnt to look three back at the start of a sequence looks
# three back everywhere. Does that cure the lengths?

# %% tags=["nbval-ignore-output"]
rotary = []
for seed in range(4):
    torch.manual_seed(seed)
    model = ThreeBack(NoPositions, score=RotaryScore).to(device)
    train(model, seed)
    rotary.append(by_position(model, long_set))
    print(f"seed {seed}: length 16 {by_position(model, test_set).mean():.3f}, length 64 {rotary[-1].mean():.3f}")
far["rotary"] = torch.stack(rotary)

# %%
ax = plotting.bands(
    far, x=range(3, 64), xlabel="position", ylabel="share of right answers", title="length 64, trained on 16"
)
ax.axvline(15.5, color="black", linestyle=":")
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
plotting.show("The curve of rotary goes on past position 16 far above the two others.")
gain = (far["rotary"] - far["sinusoidal"])[:, 13:].mean(dim=1)
course.verdict("rotary minus sinusoidal at positions 16 to 63, lower end", low_end(gain), above=0.25)

# %% [markdown]
# It nearly does, and without any trick in training: past position 16 the curve goes on as before. It is not perfect,
# because distances above 15 are as new to this model as to the others, and now and then a token far away turns to an
# angle that looks right. Models that have to read very long texts get a further cure, as you will see below.

# %% [markdown]
# ## Today
#
# - **GPT-2** ([Radford et al. 2019](https://openai.com/research/better-language-models)), **BERT** ([Devlin et al.
#   2018](https://arxiv.org/abs/1810.04805)) and the **vision transformer** ([Dosovitskiy et al.
#   2021](https://arxiv.org/abs/2010.11929)) add learned positions, as `MyLearned` does.
# - **Whisper** ([Radford et al. 2022](https://arxiv.org/abs/2212.04356)) adds the waves in its encoder and learned
#   positions in its decoder.
# - **Llama** ([Touvron et al. 2023](https://arxiv.org/abs/2302.13971)) turns queries and keys, and so do most open
#   language models since.
# - **BLOOM** ([2022](https://arxiv.org/abs/2211.05100)) subtracts distances from the scores:
#   [**ALiBi**](../docs/glossary.md#a), notebook 07.
# - Models trained on short texts are stretched afterwards: [Chen et al. 2023](https://arxiv.org/abs/2306.15595) slow
#   the hands of Llama down, so that 32,768 positions fit into the angles of 2,048, and train on for at most 1,000
#   steps.
#
# ## Takeaways
#
# - Attention without positions sees a bag of words: shuffled inputs give the same outputs, shuffled alike.
# - Position vectors are added in front. Waves and learned vectors both solved the task at the trained length.
# - The waves turn a shift into a rotation, but a model trained on length 16 did not learn to use that beyond 16.
# - A rotary score depends on content and distance, and on no absolute position.
#
# ## Check yourself
#
# 1. A model without positions and without a mask classifies reviews. Which mistake can it not avoid?
# 2. Why does each frequency need a sine and a cosine?
# 3. You trained on 512 tokens with learned positions and want to read 600. What are your options?
#
# <details><summary>Answers</summary>
#
# 1. It gives *good, not bad* and *bad, not good* the same answer: they are the same bag of words.
# 2. With both, a shift is a rotation of the pair, and the dot product depends on the distance alone. With the sine
#    alone, neither holds.
# 3. Rows 512 to 599 of the table do not exist, and adding them does not help, because they are untrained. Train on
#    longer sequences, start at random rows of a longer table, or train a model whose scores depend on the distance.
#
# </details>
#
# **To read**
#
# - [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), section 3.5 and row (E) of table 3: why waves, and that
#   learned vectors did as well.
# - [Gehring et al. 2017](https://arxiv.org/abs/1705.03122), section 3.1: positions in a translator made of
#   convolutions.
# - [Su et al. 2021](https://arxiv.org/abs/2104.09864), section 3.2: the rotation, derived from what the score should
#   depend on.
# - [Press et al. 2022](https://arxiv.org/abs/2108.12409), figure 1: what happens to each kind of position beyond the
#   trained length.
# - [Kazemnejad et al. 2023](https://arxiv.org/abs/2305.19466): a careful comparison on lengths never trained, with
#   models that have no positions.
# - [Ruoss et al. 2023](https://arxiv.org/abs/2305.16843): random starts with random gaps, so that large distances are
#   seen, too.
#
# **Next**: one layer of attention now knows who bites whom. Real models stack a hundred layers, and until 2015 nobody
# could train that many. [Notebook 05](05_transformer_block.ipynb) shows what was in the way.

# %% [markdown]
# ## Optional: why add?
#
# Why are positions *added* to the words, where they might disturb them, and not put beside them? The next thing that
# happens is a linear map, and $[x, p]\,W = x\,W_x + p\,W_p$: side by side is adding, with a matrix of its own for the
# positions. Adding costs no width.

# %%
x, W = embed(words)[0], torch.randn(8, 4, dtype=torch.float64)  # (L, E), (2E, E)
torch.testing.assert_close(torch.cat([x, p[:6]], dim=-1) @ W, x @ W[:4] + p[:6] @ W[4:])


# %% [markdown]
# ## Optional: a causal mask knows a little
#
# Under a causal mask word $i$ sees $i + 1$ words, so that shuffling does change what is seen. Let the first token carry
# a mark, and let attention be uniform: the share of the mark at position $i$ is $1/(i+1)$. So a causal model can
# *count* without any positions ([Haviv et al. 2022](https://arxiv.org/abs/2203.16634) found this in language models).
# Here one layer has to name its own position:

# %%
class Counter(nn.Module):
    def __init__(self, causal, embed_dim=32):
        super().__init__()
        self.embed = nn.Embedding(32, embed_dim)
        self.attention = MultiHeadAttention(embed_dim, num_heads=2)
        self.hidden, self.read_out = nn.Linear(embed_dim, 128), nn.Linear(128, 16)
        self.causal = causal

    def forward(self, tokens):  # (B, L)
        y, _ = self.attention(self.embed(tokens), is_causal=self.causal)  # (B, L, E)
        return self.read_out(F.gelu(self.hidden(y))).mT  # (B, 16, L)


# %% tags=["nbval-ignore-output"]
numbers = torch.randint(1, 32, (10_000, 16)).to(device)
numbers[:, 0] = 0  # the start token
own = torch.arange(16, device=device).expand(10_000, 16)
counted = {}
for causal in (True, False):
    torch.manual_seed(0)
    counter = Counter(causal).to(device)
    optimizer = torch.optim.Adam(counter.parameters(), lr=0.01)
    for step in range(300):
        batch = torch.arange(32 * step, 32 * step + 32) % 9000
        optimizer.zero_grad()
        F.cross_entropy(counter(numbers[batch]), own[batch]).backward()
        optimizer.step()
    counted[causal] = (counter(numbers[9000:]).argmax(dim=1) == own[9000:]).float().mean().item()
print({("causal" if causal else "not causal"): f"{share:.3f}" for causal, share in counted.items()})

# %%
course.verdict("causal, no positions: share of positions known", counted[True], above=0.97)
course.verdict(
    "no mask, no positions: share of positions known", counted[False], above=2 / 16 - 0.01, below=2 / 16 + 0.01
)


# %% [markdown]
# Without a mask, the model can tell only the start token from the others: it is right there and at one more position, 2
# of 16.
#
# ## Optional: one matrix for all clocks
#
# ### Exercise 3 · hard · 12 minutes
#
# `shift_matrix(embed_dim, shift)` returns one matrix of shape (embed_dim, embed_dim) that moves **every** position on
# by `shift`: `sinusoidal_table(length, E)[t] @ shift_matrix(E, shift)` has to be row `t + shift` of the table, whatever
# `t`. `embed_dim` is even, `shift` is a whole number of at least 1, and the table is that of exercise 1 (base 10000,
# sine and cosine side by side).

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
# ## Optional: a single clock
#
# With $E = 2$ there is a single clock. Which of the positions 1 to 63 does it take for position 0, nearly? And what
# happens when `MySinusoidal` is multiplied by 2 before it is added to the words?
#
# <details><summary>Answer</summary>
#
# Position 44: seven turns are $14\pi \approx 43.98$ steps. A second clock with another speed tells the two apart, and
# that is what the many frequencies are for.
#
# Doubled positions weigh more against the words: scores by position alone grow fourfold. The paper does the reverse,
# and multiplies the *words* by $\sqrt E$ (section 3.4).
#
# </details>
