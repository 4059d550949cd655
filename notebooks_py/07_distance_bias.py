# %% [markdown]
# # 07 Distance bias
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/07_distance_bias.ipynb)
#
# ← [06 Image transformer](06_image_transformer.ipynb) · [the map of the course](00_welcome.ipynb) · [08 A character language model](08_character_model.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work [06](06_image_transformer.ipynb) **07** [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb)
#
# Needs: notebooks 04 and 06 · runs in about 95 s on two CPU cores · about 2½ hours of study

# %% [markdown]
# "Everything is related to everything else, but near things are more related than distant things." The geographer Waldo
# [Tobler](https://doi.org/10.2307/143141) wrote this about cities in 1970. It is just as true of words in a sentence and of pixels in a picture. An
# attention head does not know it: for a dot product, the word next door and the word a thousand pages away are equally near.
#
# So why not tell it? In 2021 [Press, Smith and Lewis](https://arxiv.org/abs/2108.12409) subtracted from each score a small price for every step between
# query and key, left all positions out, and found that their language model could read texts longer than any it was trained on. They called it
# **[ALiBi](../docs/glossary.md#a)** and fixed the price of each head beforehand. A project called the
# [distance-biased transformer](https://github.com/GhostDSR/Custom-Made-Distance-Biased-Transformer) lets the model learn the price, reads digits pixel by
# pixel, and states that this "successfully replaces sinusoidal positional encodings".
#
# Do near things matter more, and can a model learn how much? In this notebook you
#
# - build attention that pays for distance, first along a line and then on a grid, and say how far such a head reaches;
# - prove why one price for both sides cannot tell a 6 from its half turn, and cure it;
# - put that claim to a fair test: same model, same steps, several seeds, and an interval for every difference;
# - compute the causal form with one more feature in queries and keys, and no matrix of distances.

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

from sciformer import DistanceBiasedScore, DotProductScore, ImageTransformer
from sciformer import LearnedPositions, NoPositions, SinusoidalPositions
from sciformer import attend, check, course, distance_biased_scores, experiments, metrics, plotting, records
from sciformer.data import batches, mnist
from sciformer.fast import attention
from sciformer.teach import explore
from sciformer.teach.diagrams import head_windows
from sciformer.training import Muon

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
size = "small" if course.profile() == "quick" else "full"

# %% [markdown]
# ## Predict first
#
# A digit is read pixel by pixel, row by row, and attention pays for distance: $\lambda = 0.1$ for each step.
#
# 1. A model without positions sees a 6, and the same 6 turned by 180°. How far do its logits differ?
# 2. Rows have 28 pixels. The pixel to the right has the weight 0.9, if that of the pixel itself is 1. What does the pixel right *below* have?
# 3. Same model, same training: one price along the line of pixels, learned; sinusoidal positions; four prices on the grid, learned. Which reads
#    most digits, and which fewest?
# 4. Under a causal mask, what does the price cost in memory?

# %% [markdown]
# ## A penalty for distance
#
# Notebook 04 added a vector to each token. Here the tokens stay as they are. Each score pays for the steps between query and key. In a loop, on
# the toy sentence, with a price of 0.5 a step:

# %%
words = ["the", "cat", "sat", "on", "the", "mat"]
q, k, v = torch.randn(3, 6, 4)  # queries, keys, values: (L, D) each
strength = 0.5  # λ

scores_in_a_loop = torch.zeros(6, 6)
penalty = torch.zeros(6, 6)
for i in range(6):
    for j in range(6):
        penalty[i, j] = strength * abs(i - j)
        scores_in_a_loop[i, j] = q[i] @ k[j] / math.sqrt(4) - penalty[i, j]
penalty


# %% [markdown]
# ### The formula
#
# $$s_{ij} = \frac{q_i \cdot k_j}{\sqrt D} - \lambda_h\,|i - j|$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $q, k$ | `query`, `key` | (B, H, L, D), (B, H, S, D) |
# | $\lvert i - j\rvert$, steps between | | (L, S) |
# | $\lambda_h$, the **slope** of head $h$, trained | `strength` | (H,) |
# | $s$ | the result | (B, H, L, S) |
#
# This is the **[distance bias](../docs/glossary.md#d)**. The penalty stands outside the dot product, so it is not divided by $\sqrt D$. Queries
# and keys need not be equally many: a model that writes has one query at a time, the newest token, and all keys before it. `query_offset` says at which
# position the first query stands.
#
# ### Exercise 1 · middle · 8 minutes
#
# Compute the scores without a loop over tokens. `query` is (B, H, L, D), `key` is (B, H, S, D), `strength` is (H,) and may hold negative slopes; query
# $i$ stands at position `query_offset + i`, key $j$ at position $j$. Return scores (B, H, L, S): divide the dot product by $\sqrt D$, subtract the
# penalty, no softmax. Everything below runs on your function.

# %%
def distance_scores(query, key, strength, query_offset=0):  # (B, H, L, D), (B, H, S, D), (H,), a number
    raise NotImplementedError  # (B, H, L, S)


distance_scores = check.distance_scores.use(distance_scores)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `i` is a column of L positions that starts at `query_offset`, (L, 1), and `j` a row of S positions, (S,). Then `(i - j).abs()` is (L, S).
#
# </details>
# <details><summary>Hint 2</summary>
#
# `strength` holds H numbers. Which shape puts them over (H, L, S)? The penalty is not divided by √D.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def distance_scores(query, key, strength, query_offset=0):
#     L, S, D = query.shape[-2], key.shape[-2], query.shape[-1]
#     i = query_offset + torch.arange(L, device=query.device)[:, None]  # (L, 1)
#     j = torch.arange(S, device=query.device)  # (S,)
#     penalty = strength[:, None, None] * (i - j).abs()  # (H, L, S)
#     return query @ key.transpose(-2, -1) / math.sqrt(D) - penalty
# ```
#
# </details>

# %%
scores = distance_scores(q[None, None], k[None, None], torch.tensor([strength]))  # (1, 1, L, L)
torch.testing.assert_close(scores[0, 0], scores_in_a_loop)
torch.testing.assert_close(scores, distance_biased_scores(q[None, None], k[None, None], torch.tensor([strength])))

# %% [markdown]
# In the weights the penalty is a **factor**: $e^{s - \lambda|i-j|} = e^{s}\,e^{-\lambda|i-j|}$. Each step costs the same share.

# %%
slopes = torch.tensor([0.0, 0.5, 2.0])  # three heads with the same queries and keys
weights = distance_scores(q.expand(1, 3, 6, 4), k.expand(1, 3, 6, 4), slopes).softmax(dim=-1)[0]
plotting.heads(weights, rows=words, columns=words, titles=["λ = 0: plain", "λ = 0.5", "λ = 2"], panel_width=3.4)
plotting.show("Three heatmaps of attention weights. Without a penalty they are scattered; the larger λ, the closer they gather at the diagonal.")

# %% [markdown]
# The larger λ, the more of the weight stays near the diagonal. Contents still count: at λ = 2, *mat* prefers its neighbour *the* to itself. And the two *the* come apart, though no position was added to either:

# %%
same = torch.tensor([0, 1, 2, 3, 0, 4])  # the second "the" is the first once more
for slope in (0.0, 0.5):
    y, _ = attend(distance_scores(*[x[same][None, None] for x in (q, k)], torch.tensor([slope])), v[same][None, None])
    print(f"λ = {slope}: the two 'the' get the same output:", torch.allclose(y[0, 0, 0], y[0, 0, 4]))


# %% [markdown]
# ## How far a head reaches
#
# Let the contents say nothing: all dot products equal. Then the weight at distance $r$ is proportional to $x^r$ with $x = e^{-\lambda}$, and in a long
# sequence the geometric series gives the share of weight within $r$ steps:
#
# $$1 - \frac{2\,x^{r+1}}{1 + x} \;\approx\; 1 - e^{-\lambda r}$$

# %%
def share_within(reach, strength, length=2001):
    steps = (torch.arange(length, dtype=torch.float64) - length // 2).abs()  # a query in the middle
    weights = (-strength * steps).softmax(dim=-1)
    return weights[steps <= reach].sum().item()


x = math.exp(-0.1)
assert abs(share_within(10, 0.1) - (1 - 2 * x**11 / (1 + x))) < 1e-12
for slope in (1.0, 0.1, 0.01):
    print(f"λ = {slope:4}: {share_within(1 / slope, slope):.2f} of the weight within 1/λ = {1 / slope:.0f} steps")

# %% [markdown]
# So a head reaches about $1/\lambda$ tokens. ALiBi fixes the slopes in a geometric series, one for each head, from near-sighted to far-sighted. The
# package's score begins there with `start="geometric"`:

# %%
alibi = DistanceBiasedScore(8, 4, start="geometric").strength.detach()  # (H,)
print([f"1/{1 / slope:.0f}" for slope in alibi])
factors = {f"head {h}, λ = 1/{1 / alibi[h]:.0f}": (-alibi[h] * torch.arange(65)).exp().tolist() for h in (0, 2, 4, 6)}
lines = {name: list(enumerate(values)) for name, values in factors.items()}
ax = plotting.curves(lines, xlabel="steps away", ylabel="factor on the weight", title="ALiBi's slopes, every other head")
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
plotting.show("Four falling curves over 64 steps. The first reaches zero after a few steps, the last has hardly begun to fall.")

# %% [markdown]
# ## Break it: three slips in the penalty
#
# A plus for the minus; the bars forgotten, $i - j$ for $|i - j|$; a square. Ten tokens whose contents say nothing. Before you look: what does each
# row do?

# %%
i, j = torch.arange(10)[:, None], torch.arange(10)
slips = {"right": -0.5 * (i - j).abs(), "plus": 0.5 * (i - j).abs(), "no bars": -0.5 * (i - j), "square": -0.5 * (i - j) ** 2}
weights = torch.stack([bias.softmax(dim=-1) for bias in slips.values()])  # (4, L, S)
plotting.heads(weights, titles=list(slips), panel_width=2.5)
plotting.show(
    "Four heatmaps of weights. Right: a bright diagonal that fades on both sides. Plus: bright corners far from the diagonal. No bars: every row "
    "alike, bright at the last key. Square: a narrower diagonal."
)

# %% [markdown]
# Plus seeks what is far. The square is a narrower window, Gaussian: nine steps cost nine times as much as
# with $|i - j|$.
#
# Without the bars **all rows are alike** and favour the last token: $-\lambda i$ is the same along a row, and the softmax cancels it. Remember that; it
# will be useful.

# %%
rows = weights[2]  # no bars
print("all rows alike:", torch.allclose(rows, rows[:1].expand_as(rows)))


# %% [markdown]
# ## The class
#
# λ is trained, so it is a parameter, one for each head. Your function does the rest.

# %%
class MyDistanceBiased(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.strength = nn.Parameter(torch.full((num_heads,), 0.1))

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        return distance_scores(query, key, self.strength, query_offset)


package = DistanceBiasedScore(3, 5, start="geometric")
query, key = torch.randn(2, 3, 7, 5), torch.randn(2, 3, 7, 5)
course.assert_same_module(MyDistanceBiased(3, 5), package, query, key)
course.assert_same_module(MyDistanceBiased(3, 5), package, query[:, :, 4:6], key, query_offset=4)

# %% [markdown]
# ### Can λ learn to look far?
#
# It starts at 0.1. A teacher averages with λ = 1 (near), 0.02 (far) and −0.1 (the farther, the better). The student sees only the teacher's outputs.
# The optimiser is AdamW, as in notebook 06, without weight decay, which would pull the slopes towards 0.

# %% tags=["nbval-ignore-output"]
teacher, student = MyDistanceBiased(3, 4), MyDistanceBiased(3, 4)
teacher.strength.data = torch.tensor([1.0, 0.02, -0.1])
optimizer = torch.optim.AdamW(student.parameters(), lr=0.02, weight_decay=0.0)
nothing = torch.zeros(1, 3, 32, 4)
for _ in range(400):
    value = torch.randn(1, 3, 32, 4)
    (target, _), (output, _) = (attend(score(nothing, nothing), value) for score in (teacher, student))
    optimizer.zero_grad()
    F.mse_loss(output, target.detach()).backward()
    optimizer.step()
print("learned:", [f"{slope:.3f}" for slope in student.strength.tolist()])

# %%
course.verdict("largest error of a learned λ", (student.strength - teacher.strength).abs().max().item(), below=0.02)

# %% [markdown]
# It can, and it does so from a start that is wrong by up to 0.9. Nothing holds λ above 0. So look at the slopes after every training.

# %% [markdown]
# ## A digit and its half turn
#
# Your first prediction. Turn a picture by 180° and read it row by row: the same pixels in **reverse order**. What was at position $i$ is now at
# $L - 1 - i$. The proof that a model with one slope cannot notice has three steps.
#
# *Distances stay.* Two tokens are as far apart as before: $|(L - 1 - i) - (L - 1 - j)| = |i - j|$. Contents are the same, so every score is the old score
# of the same two pixels.
#
# *Outputs are reversed.* Each output is a weighted average of the same values with the same weights. So the layer gives the old outputs in reverse order;
# norms and feed-forward treat each token by itself, and the next layer starts from a reversed sequence again.
#
# *The mean forgets.* At the end, the mean over all tokens is the same in either order, and so are the logits.
#
# Test it in float64, where rounding is near $10^{-16}$.

# %%
digits, labels = mnist("test")
six = F.avg_pool2d(digits[labels == 6][:1], 2).double()  # (1, 1, 14, 14)
turned = six.rot90(2, dims=(2, 3))
print("turned is reversed:", torch.equal(turned.flatten(), six.flatten().flip(0)))


# %%
def pixel_model(score=MyDistanceBiased, num_queries=0, positions=NoPositions):
    torch.manual_seed(0)
    sizes = {"embed_dim": 32, "num_heads": 2, "num_layers": 2}
    model = ImageTransformer(14, 1, 1, 10, **sizes, score=score, positions=positions, num_queries=num_queries)
    return model.double().requires_grad_(False)


# %%
logits = torch.cat([pixel_model()(six), pixel_model()(turned)])  # (2, 10)
course.verdict("largest difference of a logit", (logits[0] - logits[1]).abs().max().item(), below=1e-12)


# %%
def side_by_side(logits):
    _, axes = plt.subplots(2, 2, figsize=(8, 4), width_ratios=[1, 3.2], layout="constrained")
    for row, (picture, name) in enumerate(((six, "a six"), (turned, "turned by 180°"))):
        axes[row, 0].imshow(picture[0, 0], cmap="gray_r")
        axes[row, 0].set(xticks=[], yticks=[], title=name)
        plotting.bars(logits[row], xlabel="class", ylabel="logit", ax=axes[row, 1]).margins(y=0.2)


side_by_side(logits)
plotting.show("Above, a six and the ten logits of a model as bars. Below, the six turned by 180 degrees, with exactly the same bars.")


# %% [markdown]
# Not at all: only float64's rounding is left. No training can change this, since the proof never asked what the weights are. Whatever this model
# learns, it has to give a 6 and its turned self one answer.

# %% [markdown]
# ## The cure: left is not right
#
# Give each head a slope for the left and one for the right. Reversal exchanges the two sides, and now that makes a difference.
#
# ### Exercise 2 · middle · 10 minutes
#
# The cure as a score: a module with one parameter `strength` of shape (H, 2), all 0.1 at the start. `strength[:, 0]` is the price of each step to the
# left ($j < i$), `strength[:, 1]` of each step to the right ($j > i$). The first query stands at position `query_offset`; slopes may become negative;
# `attn_mask` is not needed, since the layer applies it afterwards. Your class is trained below.

# %%
class TwoSidedScore(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        raise NotImplementedError

    def forward(self, query, key, *, attn_mask=None, query_offset=0):  # (B, H, L, D), (B, H, S, D)
        raise NotImplementedError  # (B, H, L, S)


TwoSidedScore = check.TwoSidedScore.use(TwoSidedScore)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Your `distance_scores` and `MyDistanceBiased` together have nearly all of it. Only one distance becomes two, each of which is 0 on the other side.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `(i - j).clamp(min=0)` counts the steps to the left, (L, S). `self.strength[:, 0]` are H numbers; which shape puts them over
# (H, L, S)?
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# class TwoSidedScore(nn.Module):
#     def __init__(self, num_heads, head_dim):
#         super().__init__()
#         self.strength = nn.Parameter(torch.full((num_heads, 2), 0.1))
#
#     def forward(self, query, key, *, attn_mask=None, query_offset=0):
#         L, S = query.shape[-2], key.shape[-2]
#         i = query_offset + torch.arange(L, device=query.device)[:, None]  # (L, 1)
#         j = torch.arange(S, device=query.device)  # (S,)
#         left, right = (i - j).clamp(min=0), (j - i).clamp(min=0)  # (L, S) each
#         slopes = self.strength[..., None, None]  # (H, 2, 1, 1)
#         penalty = slopes[:, 0] * left + slopes[:, 1] * right  # (H, L, S)
#         return query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1]) - penalty
# ```
#
# </details>

# %%
sided = pixel_model(TwoSidedScore)
print("left and right start alike, largest difference below 1e-12:", torch.allclose(sided(six), sided(turned), rtol=0, atol=1e-12))
for block in sided.blocks:
    block.attention.score.strength.copy_(torch.tensor([[0.5, 0.05], [0.05, 0.5]]))
course.verdict("left and right apart, largest difference", (sided(six) - sided(turned)).abs().max().item(), above=1e-9)


# %% [markdown]
# Other cures are absolute positions, or a read-out that is no mean, such as the first token alone. A distance that counts rows and columns of the picture
# (the next section builds it) is no cure, and neither are learned queries that read all tokens at the end, as in the last section of notebook 06: both are symmetric, too.

# %%
class FirstToken(nn.Linear):
    def forward(self, tokens):  # (B, L, E)
        return super().forward(tokens[:, 0])


first_token = pixel_model()
first_token.classifier = FirstToken(32, 10).double()
candidates = {
    "rows plus columns": pixel_model(lambda H, D: DistanceBiasedScore(H, D, width=14)),
    "8 read-out queries": pixel_model(num_queries=8),
    "sinusoidal positions": pixel_model(positions=SinusoidalPositions),
    "first token": first_token,
}
for name, model in candidates.items():
    print(f"{name:21} blind to the half turn:", torch.allclose(model(six), model(turned), rtol=0, atol=1e-12))

# %% [markdown]
# ## Distance in an image
#
# A digit as a sequence of pixels, row by row: the pixel right below is 28 steps away. Your second prediction:

# %%
below, right = math.exp(-0.1 * 28), math.exp(-0.1 * 1)
print(f"λ = 0.1: the pixel to the right has the factor {right:.2f}, the one below {below:.2f}")
print(f"share of the weight within 14 steps, half a row to either side: {share_within(14, 0.1):.2f}")


# %% [markdown]
# With $\lambda = 0.1$, where the published model starts, a head hardly leaves its row. A distance that knows the rows is another one: **rows plus
# columns**, the number of steps along the grid.
#
# ### Exercise 3 · easy · 5 minutes
#
# The distance in rows plus that in columns between every two tokens of an image that is laid out row by row, `width` tokens in each of its `rows`. Return
# (L, L) with L = rows · width, built from `torch.arange`; whole numbers or floats are both fine.

# %%
def grid_distance(rows, width):
    raise NotImplementedError  # (L, L) with L = rows · width


grid_distance = check.grid_distance.use(grid_distance)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In which row does token 30 stand, if a row has 28? In which column?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `token // width` and `token % width` are rows and columns, (L,) each. (L, 1) minus (L,) gives (L, L).
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def grid_distance(rows, width):
#     token = torch.arange(rows * width)
#     row, column = token // width, token % width  # (L,) each
#     return (row[:, None] - row).abs() + (column[:, None] - column).abs()  # (L, L)
# ```
#
# </details>

# %% [markdown]
# The factor around one pixel, along the sequence and on the grid:

# %%
pixel, position = 14 * 28 + 14, torch.arange(784)
along, on_grid = (position - pixel).abs(), grid_distance(28, 28)[pixel]
maps = torch.stack([(-0.1 * along).exp(), (-0.02 * along).exp(), (-0.1 * on_grid).exp()]).view(3, 1, 28, 28)
titles = ["along the sequence\nλ = 0.1", "along the sequence\nλ = 0.02", "rows plus columns\nλ = 0.1"]
plotting.images(maps, titles, size=2.4)
plotting.show(
    "Three maps of a picture. Left: a dark stroke along one row that fades on both sides. Middle: a band of several whole rows. Right: a diamond around the pixel."
)


# %% [markdown]
# Along the sequence, a window that reaches the next row has to contain the whole row in between.
#
# ## Four sides on the grid
#
# Left and right, above and below: on a grid there are four sides, and each head can have a slope for each. A key that is two columns to the left and
# three rows below costs two steps to the left and three steps down.
#
# ### Exercise 4 · middle · 10 minutes
#
# `query` and `key` are (B, H, L, D), tokens row by row, `width` in each row. `strength` is (H, 4): what a head pays for each step to the left, to the right,
# above and below, in this order, seen from the query. Slopes may be negative. Return (B, H, L, L): the dot product over $\sqrt D$ minus the price of all
# steps. There is no `query_offset` here.

# %%
def grid_scores(query, key, strength, width):  # (B, H, L, D) twice, (H, 4), a number
    raise NotImplementedError  # (B, H, L, L)


grid_scores = check.grid_scores.use(grid_scores)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `right = column - column[:, None]` says how many columns a key lies to the right of a query, negative if it lies to the left. `right.clamp(min=0)` keeps
# the right side alone; what keeps the left one?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Stack the four sides, (4, L, L), in the order of the slopes. `torch.einsum("ha,aij->hij", strength, sides)` multiplies and adds; whole numbers need
# `.to(strength.dtype)` first.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def grid_scores(query, key, strength, width):
#     L, D = query.shape[-2:]
#     token = torch.arange(L, device=query.device)
#     row, column = token // width, token % width  # (L,) each
#     right, down = column - column[:, None], row - row[:, None]  # (L, L): from the query to the key
#     sides = torch.stack([(-right).clamp(min=0), right.clamp(min=0), (-down).clamp(min=0), down.clamp(min=0)])
#     penalty = torch.einsum("ha,aij->hij", strength, sides.to(strength.dtype))  # (H, L, L)
#     return query @ key.transpose(-2, -1) / math.sqrt(D) - penalty
# ```
#
# </details>

# %%
class FourSidedScore(nn.Module):
    def __init__(self, num_heads, head_dim, width=7):
        super().__init__()
        self.strength, self.width = nn.Parameter(torch.full((num_heads, 4), 0.1)), width

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        return grid_scores(query, key, self.strength, self.width)


package = DistanceBiasedScore(3, 5, each_side=True, width=7)
course.assert_same_module(FourSidedScore(3, 5), package, *torch.randn(2, 2, 3, 28, 5))


# %% [markdown]
# ## A fair comparison
#
# The claim is that a learned distance, along the line of pixels, replaces positions. To test it, everything but the sense of distance or position has
# to be the same: the digits, the model, the steps, the optimiser. The published model has one learned λ in each layer. Here it is, for a layer of
# four heads:

# %%
class OneSlope(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(0.1))

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        return distance_scores(query, key, self.strength.expand(query.shape[1]), query_offset)




# %% [markdown]
# A kind of model in such a comparison is called an **arm**; there are eight. Three have no slopes: no positions at all, sinusoidal ones, learned ones. In four arms every slope
# starts at 0.1, where the published one starts, so that no head and no side is preferred beforehand. The last arm has the start that the course's recorded runs use. There each head *faces* one side, with a low price in front of it and a high one behind it. Somebody chose these
# numbers.

# %%
FACING = torch.tensor([[0.3, 3.0, 1.0, 1.0], [3.0, 0.3, 1.0, 1.0], [1.0, 1.0, 0.3, 3.0], [1.0, 1.0, 3.0, 0.3]])


class HandSet(FourSidedScore):
    def __init__(self, num_heads, head_dim):
        super().__init__(num_heads, head_dim)
        self.strength.data = FACING.clone()


arms = {  # name: score, positions
    "none": (DotProductScore, NoPositions),
    "sinusoidal": (DotProductScore, SinusoidalPositions),
    "learned": (DotProductScore, LearnedPositions),
    "1-D, one slope": (OneSlope, NoPositions),
    "1-D, slope a head": (MyDistanceBiased, NoPositions),
    "1-D, two slopes": (TwoSidedScore, NoPositions),
    "2-D, four slopes": (FourSidedScore, NoPositions),
    "2-D, hand-set start": (HandSet, NoPositions),
}


# %% [markdown]
# To keep eight arms and four seeds affordable, the digits are small: averaged over squares of 4×4 pixels. That makes 7×7 = 49 tokens, each a single number
# between −1 and 1. Note that rows of 7 make life *easier* for a distance along the line than rows of 28: the pixel below is only seven steps away.

# %%
def shrink(images):
    return (2 * F.avg_pool2d(images, 4) - 1).to(device)


(train_images, train_labels), (test_images, test_labels) = mnist("train", size=size), mnist("test", size=size)
train_digits, train_labels = shrink(train_images), train_labels.to(device)
test_digits, test_labels = shrink(test_images), test_labels.to(device)
plotting.images((test_digits[:10] + 1) / 2, size=0.9)
plotting.show("Ten very coarse handwritten digits of 7 by 7 pixels. With some goodwill most can still be read.")


# %% [markdown]
# The optimiser of the weight matrices in the blocks is **[Muon](../docs/glossary.md#m)**, as in the recorded runs, because it learns more in few steps; notebook 08
# explains it. AdamW (notebook 06) takes all other parameters, the slopes among them. One learning rate, 0.04, serves all arms: among 0.02, 0.04 and 0.08 it was the
# best both for sinusoidal positions and for one slope along the line, on the last 2,000 training digits after training on the others. It was not tuned for the other arms.
# (AdamW's weight decay shrinks all that it trains, slopes included, by about 3 % over the whole training.)

# %%
def train(arm, seed, steps=150, rate=0.04):
    torch.manual_seed(seed)
    score, positions = arms[arm]
    model = ImageTransformer(7, 1, 1, 10, 32, 4, 2, expansion=2, score=score, positions=positions).to(device)
    matrices = [part.weight for part in model.blocks.modules() if isinstance(part, nn.Linear)]
    others = [p for p in model.parameters() if all(p is not matrix for matrix in matrices)]
    optimizers = [Muon(matrices, lr=rate, weight_decay=0.01), torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.99))]
    stream = batches(train_digits, train_labels, batch_size=32, seed=seed)
    for step in range(steps):
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / 20) * (1 - step / steps)
        images, labels = next(stream)
        loss = F.cross_entropy(model(images), labels)
        model.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    return model.eval()


# %%
def share_right(model, digits, labels):
    with torch.no_grad():
        predicted = torch.cat([model(part).argmax(dim=-1) for part in digits.split(500)])
    return (predicted == labels).float().mean().item()


# %% [markdown]
# Four seeds of each arm, measured on the test digits. A seed decides the initial weights and the order of the digits; the same seeds serve all arms.

# %% tags=["nbval-ignore-output"]
SEEDS = range(4)
models = {arm: [train(arm, seed) for seed in SEEDS] for arm in arms}
accuracy = {arm: [share_right(model, test_digits, test_labels) for model in models[arm]] for arm in arms}
for arm, values in accuracy.items():
    print(f"{arm:19} {100 * sum(values) / len(values):5.1f} %   seeds:", *(f"{100 * value:.1f}" for value in values))

# %%
plotting.seeds({arm.replace(", ", "\n"): values for arm, values in accuracy.items()}, ylabel="share of test digits read right")
plotting.show(
    "Eight groups of dots, one for each arm, each dot the accuracy of one seed. Sinusoidal and learned positions stand highest."
)


# %% [markdown]
# ### What the seeds carry
#
# Compare two arms seed by seed, so that what a seed does to both cancels. From $n$ differences with mean $\bar d$ and standard deviation $s$ one gets
# an interval that covers the true mean difference in 95 of 100 such experiments: $\bar d \pm t\, s/\sqrt n$, with Student's $t = 3.18$ for $n = 4$.
# (Notebook 16 says why it is more than 2.) If an interval does not contain 0, the two arms are told apart; otherwise they are not. With a dozen
# intervals, one that misses 0 by a hair may do so by chance.

# %%
def interval(arm, other):
    differences = 100 * (torch.tensor(accuracy[arm]) - torch.tensor(accuracy[other])).double()
    half = 3.18 * differences.std().item() / len(differences) ** 0.5
    return differences.mean().item(), half


# %% tags=["nbval-ignore-output"]
others = ("none", "sinusoidal", "learned")
pairs = [(arm, other) for arm in ("1-D, one slope", "2-D, four slopes", "2-D, hand-set start") for other in others]
pairs += [("1-D, slope a head", "1-D, one slope"), ("1-D, two slopes", "1-D, one slope")]
pairs += [("2-D, four slopes", "1-D, one slope"), ("2-D, hand-set start", "2-D, four slopes")]
for arm, other in pairs:
    mean, half = interval(arm, other)
    told = "a finding" if abs(mean) > half else "not told apart"
    print(f"{arm:19} minus {other:16} {mean:+6.1f} ± {half:4.1f} points: {told}")


# %%
def lower_end(arm, other):
    mean, half = interval(arm, other)
    return mean - half


for arm in ("1-D, one slope", "1-D, slope a head", "1-D, two slopes", "2-D, four slopes"):
    course.verdict(f"lead of sinusoidal over {arm}, lower end of the interval", lower_end("sinusoidal", arm), above=0, measured="quick")
course.verdict("points that the hand-set start is worth, lower end", lower_end("2-D, hand-set start", "2-D, four slopes"), above=0, measured="quick")

# %% [markdown]
# So your third prediction is settled, for the quick profile. **The claim fails in this comparison**: one learned slope along the line does not replace sinusoidal
# positions, and neither does a slope for each head, for each side, or for each of the four sides of the grid. The hand-set start is worth many points to the grid, and
# even with it the grid stays behind sinusoids here. Why the start matters so much is not settled: it makes the heads differ, and it also makes the slopes larger.
#
# Were you surprised by the grid? With a plain start, the arm that knows rows and columns reads no more digits than the one that knows only the line.
#
# What the comparison does not show: training was short, the digits are coarse, and the model is small. More steps may change the order, and the recorded runs below show that they
# do, for the hand-set start. Nor does it
# touch ALiBi's own claim, which is about lengths that were never trained.

# %% [markdown]
# ## Look: what training did to the slopes
#
# Every slope of the plain arms started at 0.1. So what was *learned* is the difference between the two rows below, and nothing else. Here are the windows that the slopes make around one pixel,
# for each head of the first layer of the four-sided model, seed 0. The numbers at the four sides are the slopes; blue is
# the factor on the weight, drawn over the grey digit.

# %%
digit = (test_digits[test_labels == 4][3].cpu() + 1) / 2
after = models["2-D, four slopes"][0].blocks[0].attention.score.strength.detach().cpu()  # (H, 4)
head_windows(digit, torch.full((4, 4), 0.1), after, query=(3, 3))
plotting.show(
    "Two rows of four coarse digits, one column for each head. Above, before training, all four windows are the same broad diamond around one pixel. "
    "Below, after training, the windows differ in width and direction, with their four slopes written at the sides."
)


# %% [markdown]
# Does training make the windows narrower or wider? Take the mean change of all slopes of a model, and its interval over the four seeds.

# %%
def slopes_of(model):
    return torch.stack([block.attention.score.strength.detach().cpu() for block in model.blocks])  # (layers, H, 4)


changes = torch.tensor([(slopes_of(model) - 0.1).mean().item() for model in models["2-D, four slopes"]])  # one for each seed
half = 3.18 * changes.std().item() / 4**0.5
print("narrower" if changes.mean() > half else "wider" if changes.mean() < -half else "not told")
course.verdict("mean change of a slope, lower end of the interval", changes.mean().item() - half, above=0, measured="quick")

# %% [markdown]
# In the quick profile the slopes grow on average: training makes the windows narrower than the plain start has them. In this arm near things came to
# matter more; it is also an arm that reads few digits, so this is what training did and not a recipe for success.
#
# Now read the last arm. The picture of its slopes after training looks as if every head had *learned* to face one side:

# %%
hand_set = slopes_of(models["2-D, hand-set start"][0])
columns, titles = ["left", "right", "above", "below"], ["before, both layers", "after, layer 0", "after, layer 1"]
plotting.heads(torch.cat([FACING[None], hand_set]), columns=columns, titles=titles, signed=True, xlabel="side", ylabel="head", panel_width=2.3)
plotting.show("Three tables of slopes, heads in rows and the four sides in columns: before training, and after it in both layers. All three look much alike.")

# %%
start = FACING.expand(2, 4, 4).flatten()
together = [torch.corrcoef(torch.stack([start, slopes_of(m).flatten()]))[0, 1].item() for m in models["2-D, hand-set start"]]
course.verdict("correlation of the slopes after training with those before, mean of the seeds", sum(together) / 4, above=0.7, measured="quick")


# %% [markdown]
# The large slopes stayed large, and the correlation says how much of the pattern after training was there before. Single slopes did move. But whoever shows only the last two tables and writes "what the heads have learned" describes what was put in.

# %% [markdown]
# How far does each head look in fact, contents included? The **[attention distance](../docs/glossary.md#a)** is the mean of rows plus columns between query and key, weighted by the attention.
# To tell what training did, it has to be measured before training, too, and beside weights that are all equal.

# %%
def attention_distance(model):
    with torch.no_grad():
        maps = model.attention_weights(test_digits[:100])  # one (B, H, L, L) for each layer
    return torch.stack([metrics.attention_distance(weights, width=7) for weights in maps]).mean().item()


# %% tags=["nbval-ignore-output"]
for arm in ("sinusoidal", "2-D, four slopes", "2-D, hand-set start"):
    before, later = ([attention_distance(model) for model in group] for group in ([train(arm, seed, steps=0) for seed in SEEDS], models[arm]))
    print(f"{arm:19} before training {sum(before) / 4:.2f}, after {sum(later) / 4:.2f} tokens")
print(f"weights all equal   {grid_distance(7, 7).float().mean().item():.2f} tokens")


# %% [markdown]
# A short distance after training is no achievement by itself: compare each arm with its own start. Which arm came to look *further*? And does the arm that reads most
# digits look near?

# %% [markdown]
# ## The theorem after training
#
# Turn all test digits by 180° and count how many keep the answer that they had upright. For one slope along the line the theorem says: all of them, apart
# from ties that float32's rounding breaks. For a model that is not blind there is no right number: a turned 0, 1 or 8 should keep its answer, a turned 6 should not.

# %% tags=["nbval-ignore-output"]
def keeps_its_answer(model):
    with torch.no_grad():
        upright, turned = (model(digits).argmax(dim=-1) for digits in (test_digits[:500], test_digits[:500].rot90(2, dims=(2, 3))))
    return (upright == turned).float().mean().item()


kept = {arm: keeps_its_answer(models[arm][0]) for arm in ("1-D, one slope", "1-D, two slopes", "2-D, hand-set start", "sinusoidal")}
print({arm: f"{share:.1%}" for arm, share in kept.items()})

# %%
course.verdict("answers kept, one slope", kept["1-D, one slope"], above=0.99)

# %% [markdown]
# ## The recorded runs
#
# Larger runs stand in the folder [results](../results/README.md). Read them for what they are. In `mnist-pixels`, the arm called *distance* is **not** the
# original's mechanism. It has four slopes a head on the grid, and a start that was set by hand: each head faces one side (slope 0.3 there, 3.0 behind it).
# The recipe (Muon, its rate) was tuned for that arm, and the arms with positions were given the same one. *published* is the original's own model: one
# learned slope a layer along the line, one head, post-norm, Adam.

# %%
for profile in experiments.MNIST_PIXELS:
    for arm in experiments.MNIST_PIXELS[profile]:
        print(records.describe_record("mnist-pixels", "test accuracy", profile, arm=arm))

# %% [markdown]
# The order of the first two is the reverse of ours: here the hand-set grid leads the sinusoids. The records have four times as many pixels, more than twice the steps, three
# layers, and a recipe that was tuned for the grid. So they show what a distance that knows the rows can do under these conditions. They do not show that a learned
# distance along the line replaces positions: *published* stays far behind sinusoidal positions in each recorded profile.
#
# The distance-biased transformer's page reports about 79 % with about 250,000 parameters, after ten epochs at 28×28. `mnist-784-published` trains the
# model of its code as that code does:

# %%
published = experiments.MNIST_784_PUBLISHED["long"].model()
print(f"{sum(p.numel() for p in published.parameters()):,} parameters")
print(records.describe_record("mnist-784-published", "test accuracy", "long"))
for run in records.load_record("mnist-784-published", "long")["runs"]:
    print(", ".join(f"{right:.1%} after {step:,} steps" for step, right in run["curves"]["test accuracy"]))

# %% [markdown]
# The model has fewer parameters than stated, and none of these measurements finds 79 %. The last two are only two steps apart: the learning rate never
# falls in this recipe, and the accuracy depends on the step at which a run ends. One figure of one such run says little, be it theirs or ours.

# %% [markdown]
# ## Causal: one more argument
#
# In a language model a token sees only what came before it. Then the distance bias costs next to nothing, and this is how ALiBi is computed in practice.
# Where only $j \le i$ counts, the bars fall away, and the slip from above becomes a tool:
#
# $$-\lambda\,|i - j| = -\lambda i + \lambda j.$$
#
# The softmax cancels $-\lambda i$. What is left, $\lambda j$, belongs to the key. Give every query one more feature, 1, and key $j$ the feature
# $\lambda j \sqrt D$: their product, divided by $\sqrt D$, is $\lambda j$.

# %%
H, L, D = 2, 64, 8
query, key, value = torch.randn(3, 1, H, L, D, dtype=torch.float64)
slopes = torch.tensor([0.1, 0.7], dtype=torch.float64)  # (H,)
mark = math.sqrt(D) * slopes[:, None] * torch.arange(L)  # (H, L)
longer_query = torch.cat([query, torch.ones(1, H, L, 1)], dim=-1)  # (B, H, L, D + 1)
longer_key = torch.cat([key, mark[None, ..., None]], dim=-1)  # (B, H, L, D + 1)
fused = F.scaled_dot_product_attention(longer_query, longer_key, value, is_causal=True, scale=1 / math.sqrt(D))

# %%
mask = torch.ones(L, L).tril().bool()
readable, _ = attend(distance_scores(query, key, slopes), value, attn_mask=mask)
torch.testing.assert_close(fused, readable)
course.verdict("largest difference", (fused - readable).abs().max().item(), below=1e-12)


# %% [markdown]
# So torch's **[fused kernels](../docs/glossary.md#f)**, which never write the matrix of weights to memory, can serve it. That is what the package does.
# Count the numbers that are kept for the backward pass, at 1,024 tokens:

# %%
def numbers_kept(need_weights):
    kept = []
    inputs = [torch.randn(1, 4, 1024, 16, requires_grad=True) for _ in range(3)]
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        attention(DistanceBiasedScore(4, 16), *inputs, is_causal=True, need_weights=need_weights)
    return sum(kept)


with_matrix, without = numbers_kept(need_weights=True), numbers_kept(need_weights=False)
print(f"with the matrix of weights: {with_matrix:,} numbers; with one more feature: {without:,}")
course.verdict("ratio of the two", with_matrix / without, above=10)


# %% [markdown]
# Your fourth prediction: what is kept grows with the number of tokens alone; the matrices of $1024 \cdot 1024$ entries a head are gone. On both sides of the query the bars do not
# fall away, and one feature is not enough; an optional section at the end shows what is.

# %% [markdown]
# ## Today
#
# - **ALiBi** came into large models: BLOOM ([2022](https://arxiv.org/abs/2211.05100), 176 billion parameters) and MPT-7B (2023) have fixed slopes and no positions.
# - Most others, such as Llama, turn queries and keys by their position ([rotary positions](../docs/glossary.md#r), Su et al. 2021), and bring near things
#   forward by **windows**: in Mistral 7B ([2023](https://arxiv.org/abs/2310.06825)) each layer sees the last 4,096 tokens; Gemma 2
#   ([2024](https://arxiv.org/abs/2408.00118)) alternates such layers with layers that see everything. A window is a penalty of 0, then ∞.
# - A pure window fails on long texts once the first tokens leave it. Keeping a few of them, each an **[attention sink](../docs/glossary.md#a)**, mends it
#   ([Xiao et al. 2023](https://arxiv.org/abs/2309.17453)): heads use them to look at nothing in particular.
# - For pictures, Swin ([Liu et al. 2021](https://arxiv.org/abs/2103.14030)) learns a table with one bias for each offset in rows and columns, which is your four
#   slopes without the straight line.
# - T5 ([Raffel et al. 2020](https://arxiv.org/abs/1910.10683)) learns one bias for each range of distances, in each head.

# %% [markdown]
# ## Takeaways
#
# - A penalty $\lambda|i - j|$ gives attention a sense of distance that reaches about $1/\lambda$ tokens; λ is learned; a student found a teacher's far-sighted and even negative slopes.
# - A symmetric distance and a mean cannot tell a sequence from its reverse; a slope for each side can.
# - In a short, even comparison on small digits, one learned slope along the line of pixels did not replace sinusoidal positions; what lifted four slopes on the grid
#   was the start that somebody had chosen.
# - What was learned is the change from the start, not the value at the end.
# - Causal, the penalty is one more feature in queries and keys, and costs no matrix.

# %% [markdown]
# ## Check yourself
#
# 1. A model that judges reviews, with a symmetric distance bias and a mean, reads *dog bites man*. Which other order of the three words gets the same answer,
#    and which does not?
# 2. What happens if λ is divided by $\sqrt D$ by mistake? Could training make up for it?
# 3. Somebody sets a head's slopes to 0.3 and 3 before training, finds 0.35 and 2.9 afterwards, and writes: "the head has learned to look left". What would you
#    ask?
#
# <details><summary>Answers</summary>
#
# 1. *man bites dog*, its reverse. *bites dog man* differs: other words are neighbours.
# 2. Every head starts √D times as far-sighted. λ is learned, so training can undo it; with fixed slopes, as in ALiBi, it cannot.
# 3. What changed from the start: 0.05 and −0.1. And what happens from an even start, with several seeds.
#
# </details>

# %% [markdown]
# ## To read
#
# - Press, Smith and Lewis 2022, [Train short, test long](https://arxiv.org/abs/2108.12409): section 3 is the method in one page; figure 1 shows lengths that were never
#   trained.
# - The [distance-biased transformer](https://github.com/GhostDSR/Custom-Made-Distance-Biased-Transformer): its README states the claim that this notebook tests.
# - Im and Cho 2017, [Distance-based self-attention network](https://arxiv.org/abs/1712.02047): a mask that grows with the distance, for sentences, years
#   earlier.
# - Shaw, Uszkoreit and Vaswani 2018, [Self-attention with relative position representations](https://arxiv.org/abs/1803.02155): a learned vector for each distance.
# - Dosovitskiy et al. 2020, [An image is worth 16×16 words](https://arxiv.org/abs/2010.11929), section 4.5 and figure 7: the mean attention distance of each head.
#
# **Next.** Pictures can be looked at all at once. Text is written one character after the other, and only what came before may be seen. Can a
# transformer learn to *write*? [Notebook 08](08_character_model.ipynb) lets it.
#
# One more exercise and three optional sections follow.

# %% [markdown]
# ## Exercises
#
# Write the answer in place of `raise NotImplementedError` and run the cell. The first wrong run shows what is wrong with the result, the second names the
# mistake; the numbers are fresh each time.
#
# ### Exercise 5 · hard · 12 minutes
#
# Events at uneven times $t_1 < t_2 < \dots$, seen causally: $q_i \cdot k_j/\sqrt D - \lambda_h (t_i - t_j)$. Give longer queries and keys, so that
# `F.scaled_dot_product_attention(query, key, value, is_causal=True)` computes it, **without** `scale=`: torch then divides by the root of the size it sees.
# Only the attention's output is compared, so whatever is the same for all scores of a row is free.

# %%
def with_time(query, key, times, strength):  # (B, H, L, D) twice, (L,), (H,)
    raise NotImplementedError  # a longer query, a longer key


check.with_time(with_time)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# As in *Causal: one more argument*: what belongs to the query alone cancels. Which part of $-\lambda(t_i - t_j)$ is left?
#
# </details>
# <details><summary>Hint 2</summary>
#
# torch divides everything by $\sqrt{D + 1}$. Undo that for the new number; the contents are to be divided by $\sqrt D$
# instead.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def with_time(query, key, times, strength):
#     D = query.shape[-1]
#     ones = torch.ones_like(query[..., :1])  # (B, H, L, 1)
#     mark = math.sqrt(D + 1) * strength[:, None, None] * times[:, None]  # (H, L, 1)
#     query = torch.cat([query * math.sqrt((D + 1) / D), ones], dim=-1)
#     return query, torch.cat([key, mark.expand_as(ones)], dim=-1)  # (B, H, L, D + 1) each
# ```
#
# </details>

# %% [markdown]
# ## Optional: try two slopes
#
# Move both; try 0 on one side and 3 on the other, or a negative one.

# %%
def two_slopes(left, right):
    strength = torch.tensor([[left, right]])  # (H, 2)
    weights = distance_biased_scores(q[None, None], k[None, None], strength).softmax(dim=-1)
    return plotting.heatmap(weights[0, 0], rows=words, columns=words, title=f"λ left {left}, right {right}", vmax=1)


explore(
    two_slopes,
    alt="Weights of the toy sentence. With equal slopes they gather around the diagonal, on both sides.",
    left=ipywidgets.FloatSlider(value=0.5, min=-1, max=3, step=0.25, description="λ left"),
    right=ipywidgets.FloatSlider(value=0.5, min=-1, max=3, step=0.25, description="λ right"),
)

# %% [markdown]
# ## Optional: one more feature for each border
#
# On both sides of the query, $|i - j|$ does not split into a part of the query and a part of the key. But a picture has few columns. Between them lie
# borders, $t = 0, 1, \dots$ A key in column $x'$ has crossed the borders $t < x'$. A query in column $x$ puts −λ on each border that lies ahead of it,
# $t \ge x$, and +λ on each that lies behind. Summed over the borders that the key has crossed, this is $\lambda x - \lambda |x - x'|$: the price, and again a term of the query alone.

# %%
x, borders, slope = torch.arange(14), torch.arange(13), 0.5  # 14 columns
behind = borders < x[:, None]  # (14, 13): does border t lie to the left of column x?
crossed, asked = behind.double(), torch.where(behind, slope, -slope).double()
torch.testing.assert_close(asked @ crossed.T, slope * x[:, None] - slope * (x[:, None] - x).abs().double())

_, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
query, key = "column of the query", "column of the key"
plotting.heatmap(asked, signed=True, title="query: λ behind, −λ ahead", xlabel="border", ylabel=query, ax=axes[0])
plotting.heatmap(behind, title="key: ✓ for what it crossed", xlabel="border", ylabel=key, ax=axes[1])
window = (asked @ crossed.T).softmax(dim=-1)
plotting.heatmap(window, title="softmax of the product", xlabel=key, ylabel=query, ax=axes[2])
plotting.show(
    "Three tables. Left: red below and blue above the diagonal. Middle: ticks below the diagonal. Right: weights that are bright along the diagonal "
    "and fade evenly on both sides."
)

# %% [markdown]
# After the softmax only the distance is left: what the query's own column added has cancelled. Rows have borders, too, so 27 and 27 more features serve all
# 784 · 784 pairs of pixels in a fused kernel. The package does that as soon as the scores are too many for one block.

# %%
grid = DistanceBiasedScore(2, 8, width=28, start=slope).double()
query, key, value = torch.randn(3, 4, 2, 784, 8, dtype=torch.float64)
readable, _ = attention(grid, query, key, value, need_weights=True)
torch.testing.assert_close(attention(grid, query, key, value)[0], readable)

# %% [markdown]
# ## Optional: twice as fine
#
# No parameter of a distance bias belongs to a place. So a model that was trained on digits of 14×14 pixels can read digits of 28×28. **Predict**: which of its
# parameters have to change, so that each head looks as far over the digit as before? Think before you read on.
#
# Two pixels that were one step apart are two steps apart now. So each step may cost half: all slopes are divided by 2, and nothing else. The recorded run `mnist-784`
# trains on small digits, is enlarged in this way, and then sees a few large ones. (Its slopes have the hand-set start.)

# %%
for figure in ("on small digits", "enlarged", ""):
    print(records.describe_record("mnist-784", f"test accuracy {figure}".strip(), "long"))

# %% [markdown]
# Enlarged, without having seen a single large digit, it misreads 1.29 % of them, against 0.79 % of the small ones. A table of 196 learned positions would first have
# to be stretched to 784.
