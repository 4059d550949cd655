# %% [markdown]
# # 13 Time series
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/13_time_series.ipynb)
#
# ← [12 Masked images](12_masked_images.ipynb) · [the map of the course](00_welcome.ipynb) · [14 Random search](14_random_search.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) **13** · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb) · taken apart [18](18_heads_that_copy.ipynb)
#
# Needs: notebooks 03 and 04 · runs in about 55 s on two CPU cores · about 3 hours of study

# %% [markdown]
# After this notebook you can
#
# - cut a series into windows without [leaks](../docs/glossary.md#l), and say how long a gap at the cut has to be;
# - forecast one signal by looking into another: [queries](../docs/glossary.md#q) are the months ahead,
#   [keys](../docs/glossary.md#k) and values the other signal's past;
# - see at which lag [attention](../docs/glossary.md#a) looks, and whether the second signal is used;
# - hold a model against [baselines](../docs/glossary.md#b) that may win, and find out why they do.
#
# New against 03: keys and values are not the query's own [tokens](../docs/glossary.md#t), as between decoder and encoder
# in 11.

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
from scipy.optimize import linprog, lsq_linear
from statsmodels.datasets import co2, elnino
from torch import nn

from sciformer import MultiHeadAttention, SinusoidalPositions, attend, check, course, metrics, plotting
from sciformer.data import batches, windows
from sciformer.teach import explore
from sciformer.training import TrainConfig, fit

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## Predict first
#
# In an El Niño the ocean off Peru is warm, and much tropical land is hot and dry, so that plants take up less carbon. Some
# months later, CO₂ on Hawaii rises faster. A model reads two years of both and forecasts CO₂ for the next twelve months.
# Write down what you expect:
#
# 1. Which has the lowest error: last year's season again, a line fitted by least squares, or attention?
# 2. If the windows are split at random, not in time, does the measured error rise or fall?
# 3. How do you find out whether a model uses the second signal?
# 4. A second task is made up. Of 24 noisy values, give the one that a second signal marks with a peak. Can a line do it? Can attention?

# %% [markdown]
# ## Two signals
#
# Both come with statsmodels: CO₂ at Mauna Loa (Keeling and Whorf 2004), weekly, here as monthly means in parts per
# million; and the sea's surface temperature in the region Niño 1+2, off Peru and Ecuador (NOAA, ERSST.v3b), monthly.

# %%
monthly = co2.load_pandas().data["co2"].resample("MS").mean()  # from March 1958 to December 2001
print("months without a measurement:", [f"{month:%Y-%m}" for month in monthly.index[monthly.isna()]])
level = torch.tensor(monthly.interpolate().to_numpy())  # (T,) in ppm
sea = torch.tensor(elnino.load_pandas().data.set_index("YEAR").loc[1958:2001].to_numpy()).flatten()[2:]  # (T,) in °C
calendar = (torch.arange(len(level)) + 2) % 12  # 0 = January
years = 1958 + (torch.arange(len(level)) + 2) / 12
plotting.timeline({"CO₂, ppm": level, "sea, °C": sea}, years, title="as measured")
plotting.show(
    "Two curves from 1958 to 2001. CO₂ rises steadily with a small wave in every year; the temperature of the "
    "sea swings each year around the same level, with a few peaks that stand out."
)

# %% [markdown]
# Five months are filled in by a straight line, which knows the month after the gap: a small leak, all in the training
# years.
#
# ## Cut first
#
# Training comes first in time, then validation (for choices), then the test, on which nothing is chosen. **Nothing** that
# is computed from data, not even a mean, may use what comes after the cut. Validation begins in January 1985, and the test
# in January 1991.
#
# Where does the part before a cut end? One month earlier, it seems. But a first step takes the seasons out of CO₂:
# instead of its level $c_t$, the models read and forecast the change in a year, $y_t = c_t - c_{t-12}$. (For the twelve
# months ahead, last year's level is known. So a forecast of $y$ plus that level is a forecast of the level, with the same
# error in ppm.)
#
# A model looks at 24 months of $y$ and forecasts the next twelve. If training ends one month before the cut, which months
# of CO₂ stand on both sides? Count months from the cut, so that 0 is January 1985, and compare with the table:

# %%
C, AHEAD = 24, 12  # months to look at, months to forecast
print("                                   growth of months   made of CO₂ of months")
for name, first, last in (("training, its last answers", -AHEAD, -1), ("validation, first window: looks at", -C, -1), ("validation, first window: answers", 0, AHEAD - 1)):
    print(f"{name:34} {f'{first} to {last}':>16}   {f'{first - 12} to {last}':>21}")

# %% [markdown]
# The first window of validation reaches back to month −36, and every month from there to −1 was in training, too (its last
# windows look at the months before its last answers). Nothing
# of this comes from after the cut: a forecaster in January 1985 knows all of it. But validation then tests a model right
# beside the months to which it was fitted, and it may be used further away. If neighbouring years resemble each other,
# such a validation **flatters**.
#
# The remedy is a gap, an **[embargo](../docs/glossary.md#e)**: each part ends so early that no month is used on both
# sides of a cut. The first window after a cut reaches back over it: 24 months to look at, and 12 more for the difference.
# So the gap has $24 + 12 = 36$ months. The test has a gap before it, too, since what is chosen on validation is fitted to
# it.
#
# Burman, Chow and Nolan left out the neighbours in time in 1994
# ([doi:10.1093/biomet/81.2.351](https://doi.org/10.1093/biomet/81.2.351)); in scikit-learn, `TimeSeriesSplit` has an
# argument `gap`. The price: three years less for training, and three less for validation. Is it worth that? An optional
# part at the end measures what the gap changes.

# %%
gap = C + 12
val_start, test_start = (round((year - years[12].item()) * 12) for year in (1985, 1991))  # months from March 1959 on
train_end, val_end = val_start - gap, test_start - gap
parts = {"train": (0, train_end), "validation": (val_start, val_end), "test": (test_start, len(level) - 12)}
print({name: f"{end - start} months" for name, (start, end) in parts.items()})

# %% [markdown]
# The second step takes the seasons out of the sea: minus its usual temperature in that month, the mean over the
# **training** years.

# %%
growth = level[12:] - level[:-12]  # (T - 12,), from March 1959
sea, calendar, years = sea[12:], calendar[12:], years[12:]


def usual(end, first=0):
    return torch.stack([sea[first:end][calendar[first:end] == month].mean() for month in range(12)])  # (12,)


warmth = sea - usual(train_end)[calendar]
ends = {"train": train_end, "gap": val_start, "validation": val_end, "gap ": test_start, "test": len(growth)}
ends = {name: years[end - 1].item() for name, end in ends.items()}
plotting.timeline({"CO₂'s yearly\ngrowth, ppm": growth, "the sea against\nits usual, °C": warmth}, years, parts=ends)
plotting.show(
    "The yearly growth of CO₂ and the warmth of the sea, each with its own axis; two grey bands mark the gaps, three "
    "years each, before validation and before the test."
)


# %% [markdown]
# The price can be seen: the first gap holds the warmest sea before the test, that of 1983, and training does without it.
#
# By eye, the warm seas of 1972, 1983, 1987 and 1997 are followed by peaks of CO₂'s growth; that of 1992 is not, the year
# after the volcano Pinatubo had erupted. Bacastow described the connection in 1976 (Nature 261, 116;
# [doi:10.1038/261116a0](https://doi.org/10.1038/261116a0)). How many months later does growth peak? The
# **cross-correlation** over the training months correlates today's growth with the sea's warmth $r$ months ago.

# %%
def correlation(lag, end=train_end):
    pair = torch.stack([growth[lag:end], warmth[: end - lag]])  # (2, months)
    return torch.corrcoef(pair)[0, 1].item()


crossed = [correlation(lag) for lag in range(36)]
print(f"highest: {max(crossed):.2f}, {crossed.index(max(crossed))} months back")
ax = plotting.curves({"": list(enumerate(crossed))}, xlabel="lag in months", ylabel="correlation", title="growth against warmth before it")
ax.axhline(0, color="0.6")
plotting.show(
    "The correlation of growth with the warmth before it, at lags from 0 to 35 months."
)

# %% [markdown]
# The top is broad: from eight to twelve months the correlation differs by less than 0.02. From about eighteen months on
# it is negative.
#
# ## Windows
#
# A window is 24 months to look at, and the 12 that follow. By hand, on a short series with 3 and 2:

# %%
short, by_hand = torch.arange(8.0), []
for start in range(len(short) - 3 - 2 + 1):
    by_hand.append((short[start : start + 3].tolist(), short[start + 3 : start + 5].tolist()))
    print("look at", by_hand[-1][0], "to forecast", by_hand[-1][1])
past, future = windows(short, context=3, horizon=2)  # (N, C), (N, F)
assert by_hand == list(zip(past.tolist(), future.tolist(), strict=True))

# %% [markdown]
# Neighbouring windows share nearly all of their months.
#
# A part gets the windows whose **futures** lie wholly in it. Their pasts, known by then, reach back into the gap.

# %%
own_mean, own_std = growth[:train_end].mean(), growth[:train_end].std()
other_mean, other_std = warmth[:train_end].mean(), warmth[:train_end].std()
own, other = (growth - own_mean) / own_std, (warmth - other_mean) / other_std


def part_windows(start, end):
    start = max(start - C, 0)
    return *windows(own[start:end], C, AHEAD), windows(other[start:end], C, AHEAD)[0]  # (N, C), (N, F), (N, C)


data = {name: part_windows(*months) for name, months in parts.items()}
no_gap = part_windows(0, val_start)  # training up to the cut, to be compared
print({name: f"{len(past)} windows" for name, (past, *_) in data.items()}, "and without a gap", len(no_gap[0]))


# %% [markdown]
# The 239 windows of training overlap: they stand on 274 months, less than 23 years.
#
# ## Break it: three leaks
#
# Prediction 2. Every second window from 1985 to 1990 is a question (the test has no part in this, so the second gap is
# not needed here). Its forecast is the mean future of the two training windows with the most similar past of CO₂. In the
# first run, training ends before all questions. In the second, it has the windows in between, too: nearly every question
# then has a neighbour in training that begins a month before it, and one that begins a month after it. When windows are
# drawn at random, most questions have such neighbours, too.

# %%
def error(forecast, future):
    return ((forecast - future).abs().mean() * own_std).item()  # back in ppm


def nearest(train, test):
    closest = torch.cdist(test[0], train[0]).topk(2, largest=False).indices  # (N, 2)
    return error(train[1][closest].mean(dim=1), test[1])


asked, between = ([tensor[first::2] for tensor in part_windows(val_start, test_start)] for first in (0, 1))
leaky = [torch.cat(pair) for pair in zip(data["train"], between, strict=True)]
print(f"cut in time:               {nearest(data['train'], asked):.2f} ppm")
print(f"with the windows between:  {nearest(leaky, asked):.2f} ppm")

# %% [markdown]
# On the same questions the measured error falls by a fifth. A window one month away shares eleven of the twelve months of
# the answer. (Not all of the fall need be a leak: some of the 30 added windows end before a question's forecast begins,
# and a real forecaster would know those.)
#
# The second leak: windows are made first, and all that begin before the test are used for training. How many of them
# reach into the test? Count, then run:

# %%
past, future = windows(torch.arange(len(own)), C, AHEAD)  # months by number
crossing = (past[:, 0] < test_start) & (future[:, -1] >= test_start)
print("windows that cross one cut:", crossing.sum().item(), "of", len(past))

# %% [markdown]
# The third: means over everything. How far do the usual temperatures move if the later years are counted, too?

# %%
shift = (usual(len(sea)) - usual(train_end)).abs()
print(f"the usual temperatures, with the years after training and without: up to {shift.max():.2f} °C apart")


# %% [markdown]
# That is little beside the swings of an El Niño, of two degrees and more; its effect on a forecast was not measured.
#
# ## Baselines
#
# Every forecast has to beat these. **Seasonal naive**: the level of last year, so no growth. **Constant growth**: always
# the mean growth of the training years. **Persistence**: growth stays as it is now. **A line**: least squares on the last
# $p$ months of CO₂ and the last $q$ of the sea, one line for each of the twelve months ahead. How many months does it
# need? Try all pairs, on validation:

# %%
def columns(part, p, q):
    past, _, other = part
    return torch.cat([torch.ones(len(past), 1), past[:, C - p :], other[:, C - q :]], dim=-1)  # (N, 1 + p + q)


def least_squares(x, y):  # (N, 1 + p + q), (N, F)
    return torch.linalg.lstsq(x, y).solution  # (1 + p + q, F)


def line(p, q, part, fit=least_squares, train=data["train"]):
    return columns(part, p, q) @ fit(columns(train, p, q), train[1])


choices = [0, 1, 3, 6, 12, 24]
names = [str(choice) for choice in choices]
grid = torch.tensor([[error(line(p, q, data["validation"]), data["validation"][1]) for q in choices] for p in choices])
plotting.heatmap(grid, rows=names, columns=names, xlabel="q: months of the sea", ylabel="p: months of CO₂", title="error on validation, ppm")
plotting.show(
    "A grid of errors: a row for each number of months of CO₂, a column for each number of months of the sea."
)

# %% [markdown]
# Beside 24 months of CO₂, every choice of the sea's months has a lower error than none. With 3 to 12 months of CO₂, a few
# months of the sea do not help, and a year or two do. Validation chooses, and all baselines are compared with the choice:

# %%
best = divmod(grid.argmin().item(), len(choices))
alone = grid[:, 0].argmin().item()
line_months = {"CO₂ alone": (choices[alone], 0), "both": tuple(choices[n] for n in best)}  # p, q
print("both signals: p, q =", line_months["both"], f"error {grid[best]:.2f} ppm")
print("CO₂ alone:    p, q =", line_months["CO₂ alone"], f"error {grid[alone, 0]:.2f} ppm")


# %%
def baselines(part):
    past, future, _ = data[part]
    none = (-own_mean / own_std).expand_as(future)  # a growth of 0, in standard units
    naive = {"seasonal naive": none, "constant growth": torch.zeros_like(future), "persistence": past[:, -1:].expand_as(future)}
    return naive | {f"line, {signals}": line(p, q, data[part]) for signals, (p, q) in line_months.items()}


for name, forecast in baselines("validation").items():
    print(f"{name:16} {error(forecast, data['validation'][1]):.3f} ppm")

# %% [markdown]
# The line with both signals is the one to beat.
#
# ## Cross-attention
#
# Now attention. Each future month is a query; the past months of the **other** signal are keys and values. In a loop, for
# two months ahead and four months back:

# %%
q, k, v = torch.randn(2, 3), torch.randn(4, 3), torch.randn(4, 3)  # of two months ahead; keys and values of four months back
mixed = torch.zeros(2, 3)
for i in range(2):
    scores = torch.tensor([q[i] @ k[j] / math.sqrt(3) for j in range(4)])
    weights = scores.exp() / scores.exp().sum()  # one share for each past month
    print(f"month {i + 1} ahead looks back with", [f"{weight:.2f}" for weight in weights])
    for j in range(4):
        mixed[i] += weights[j] * v[j]

# %% [markdown]
# | symbol | variable | shape |
# |---|---|---|
# | $q_i$, one for each month ahead | `query` | (B, L, E) |
# | $k_j, v_j$, one for each month back | `key`, `value` | (B, S, E) |
# | $w_{ij} = \text{softmax}_j(q_i \cdot k_j / \sqrt D)$ | `weights` | (B, H, L, S) |
# | $\sum_j w_{ij}\,v_j$ | `output` | (B, L, E) |
#
# The matrix need not be square: here L = 12 months ahead (`AHEAD`) by S = 24 months back (`C`). B windows, H heads, width
# E, and D of it in a head.

# %%
scores = q @ k.T / math.sqrt(3)  # (L, S)
torch.testing.assert_close(scores.softmax(dim=-1) @ v, mixed)
output, weights = attend(scores, v)
torch.testing.assert_close(output, mixed)
print("weights:", tuple(weights.shape), " output:", tuple(output.shape))


# %% [markdown]
# With its [projections](../docs/glossary.md#p) and one [head](../docs/glossary.md#h), it is the layer of notebook 03,
# given three different inputs:

# %%
class MyCrossAttention(nn.Module):
    def __init__(self, embed_dim):
        super().__init__()
        self.q_proj, self.k_proj = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)
        self.v_proj, self.out_proj = nn.Linear(embed_dim, embed_dim), nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value):  # (B, L, E), (B, S, E), (B, S, E)
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-1)  # (B, L, S)
        return self.out_proj(weights @ v)  # (B, L, E)


inputs = torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8)
course.assert_same_module(MyCrossAttention(8), MultiHeadAttention(8, 1), *inputs)


# %% [markdown]
# ## The forecaster
#
# What are the queries, and what the keys? Of a future month its **time** is known, so let the queries be times, vectors
# of position as in notebook 04. (They could also hold what is known of CO₂ now. Here that is left to another part of the
# model.) A key is the time of a month of the past. A key may also say what the sea was like in its month $j$: to its time
# $t_j$ a **mark** is added, the sea's value $s_j$ times a learned vector $m$. So $k_j = W_K(t_j + s_j\,m)$, or $W_K t_j$
# without marks. The values carry the signal in any case.
#
# Beside the attention, a linear map reads CO₂'s own past, and the two are added.

# %%
class CrossForecast(nn.Module):
    def __init__(self, context, horizon, dim=16, heads=1):
        super().__init__()
        times = SinusoidalPositions(dim, context + horizon).table  # (C + F, E)
        self.register_buffer("past", times[:context])
        self.register_buffer("future", times[context:])
        self.mark, self.value = nn.Linear(1, dim, bias=False), nn.Linear(1, dim)
        self.attention = MultiHeadAttention(dim, heads)
        self.read, self.own = nn.Linear(dim, 1), nn.Linear(context, horizon)
        nn.init.zeros_(self.read.weight)  # at first there is only the line

    def look(self, marks, values):  # (B, S), (B, S)
        query = self.future.expand(len(values), -1, -1)  # (B, L, E)
        key = self.past + self.mark(marks[..., None])  # (B, S, E)
        return self.attention(query, key, self.value(values[..., None]), need_weights=True)

    def forward(self, own, marks, values):  # (B, S) each
        looked, _ = self.look(marks, values)  # (B, L, E)
        return self.own(own) + self.read(looked).squeeze(-1)  # (B, L)


print(f"{sum(p.numel() for p in CrossForecast(C, AHEAD).parameters()):,} parameters")

# %% [markdown]
# Three **arms** are compared, models that differ only in what they are given:
#
# | arm | marks on the keys | values |
# |---|---|---|
# | own | – | CO₂: values from the signal that is forecast |
# | dates | – | the sea |
# | dates and sea | the sea | the sea |

# %%
arms = {
    "own": lambda own, other: (own, torch.zeros_like(own), own),
    "dates": lambda own, other: (own, torch.zeros_like(own), other),
    "dates and sea": lambda own, other: (own, other, other),
}
given = {part: [tensor.float().to(device) for tensor in data[part]] for part in data}  # past, future, other
recipe = TrainConfig(steps=400, lr=3e-3, weight_decay=0.1)


def trained(arm, seed, train=given["train"], heads=1):
    torch.manual_seed(seed)
    model, (past, future, other) = CrossForecast(C, AHEAD, heads=heads).to(device), train
    stream = batches(*arms[arm](past, other), future, batch_size=64, seed=seed)
    fit(model, stream, F.l1_loss, recipe, progress=False)
    return model.requires_grad_(False)


# %% [markdown]
# ## Train
#
# Five [seeds](../docs/glossary.md#s) of each arm, a second or two a run. Validation first (± one standard error over
# the seeds):

# %%
models = {arm: [trained(arm, seed) for seed in range(5)] for arm in arms}


def errors(arm, part, runs=None):  # of the arm's models, or of others like them
    past, future, other = given[part]
    return [error(model(*arms[arm](past, other)), future) for model in runs or models[arm]]


on_validation = {arm: errors(arm, "validation") for arm in arms}
chosen = min(on_validation, key=lambda arm: sum(on_validation[arm]))

# %% tags=["nbval-ignore-output"]
for arm in arms:
    print("{:14} {:.3f} ± {:.3f} ppm on validation".format(arm, *metrics.mean_and_error(on_validation[arm])))
print("validation chooses:", chosen)


# %% [markdown]
# With the sea, attention errs less than *own*, by about three quarters of what the sea brought the line. The two arms with
# the sea are hardly further apart than their standard errors, so validation cannot really tell them apart. *Dates and
# sea* had the lower mean when this page was made, so the test will judge this arm; *dates* is shown beside it.
#
# ## Where does it look?
#
# In the arm *dates*, neither queries nor keys hold data, so all windows have the same weights. (Those of *dates and sea*
# vary with the window and are not shown.) Each row is one month ahead. What would you see if each looked ten months back?

# %%
def mean_weights(arm, part="validation"):
    past, _, other = given[part]
    inputs = arms[arm](past, other)
    return torch.stack([model.look(*inputs[1:])[1].mean(dim=0) for model in models[arm]]).cpu()  # (seeds, 1, L, S)


seen = mean_weights("dates")
back = [str(n) if n % 3 == 0 else "" for n in range(1 - C, 1)]
ax = plotting.heatmap(seen.mean(dim=0)[0], rows=[str(n) for n in range(1, AHEAD + 1)], columns=back, ylabel="month ahead", xlabel="month of the sea, 0 is now", title="attention, mean of five seeds")
plotting.show(
    "Weights of attention: a row for each month ahead, a column for each of 24 months of the sea."
)

# %% [markdown]
# A lag that is always the same would show as a slanted band. From the eleventh month ahead on, ten months back is not
# known yet, and the newest month is the nearest to it. Here there are two stripes instead: the first months ahead have
# their largest weights about half a year back, the later ones on the newest months.
#
# The mean weight of all pairs of months at each lag, beside the cross-correlation:

# %%
lags = torch.arange(1, C + AHEAD)
profile = metrics.attention_by_lag(seen)[0]  # (C + F - 1,)
shown = {"attention": profile / profile.max(), "cross-correlation": torch.tensor(crossed)[1:] / max(crossed)}
lines = {name: torch.stack([lags, values], dim=-1) for name, values in shown.items()}
ax = plotting.curves(lines, xlabel="lag in months", ylabel="share of the highest", title="which lag?")
ax.axhline(0, color="0.6")
plotting.show(
    "Attention and cross-correlation against lag, each divided by its highest value."
)

# %%
course.verdict("lag at which attention is highest, in months", lags[profile.argmax()].item(), above=6, below=12)


# %% [markdown]
# Attention peaks within the broad top of the correlation. But this mean hides two stripes, so it does not show that the
# model knows a lag. Nor do the two curves measure the same. The correlation looks at each lag alone; the weights of
# attention have to sum to 1, and the line beside it already knows CO₂'s past.
#
# One more thing about the lag: growth is a change over twelve months. It stands for the middle of that year, half a year
# ago, so its lag is half a year longer than that of the speed at which CO₂ rises.
#
# ## Is the second signal used?
#
# Prediction 3: **take it away from a trained model.** The seas are shuffled among the windows, once. If the error
# grows, the model reads the sea. If the error stays, the model does not read it, or what it reads does not help.

# %%
def without_the_sea(arm, part="validation"):
    past, future, other = given[part]
    change = torch.randperm(len(other), generator=torch.Generator().manual_seed(0))
    return [error(model(*arms[arm](past, other[change])), future) for model in models[arm]]


# %% tags=["nbval-ignore-output"]
for arm in arms:
    before, after = (sum(values) / len(values) for values in (errors(arm, "validation"), without_the_sea(arm)))
    print(f"{arm:14} its own sea {before:.3f} ppm, another window's {after:.3f}")

# %%
growing = [after - before for before, after in zip(errors("dates", "validation"), without_the_sea("dates"), strict=True)]
course.verdict("dates: the least rise of the error, ppm", min(growing), above=0.02)
same = [after - before for before, after in zip(errors("own", "validation"), without_the_sea("own"), strict=True)]
course.verdict("own: the largest change, which has no sea", max(map(abs, same)), below=1e-6)

# %% [markdown]
# Both arms with the sea read it; with a wrong one they even do worse than *own*, which has none. So this rise, about 0.07
# ppm, is not what the sea is worth. For that, compare with *own*, which was trained without the sea: on validation it
# errs 0.04 to 0.05 ppm more.
#
# ## The test
#
# All choices are made. 1991 to 2001:

# %% tags=["nbval-ignore-output"]
on_test = {arm: errors(arm, "test") for arm in arms}
fixed = {name: error(forecast, data["test"][1]) for name, forecast in baselines("test").items()}
for name, value in fixed.items():
    print(f"{name:18} {value:.3f} ppm")
for arm, values in on_test.items():
    print("{:18} {:.3f} ± {:.3f} ppm".format(arm, *metrics.mean_and_error(values)))

# %%
shown = {name: value for name, value in fixed.items() if name not in ("seasonal naive", "constant growth")}
plotting.seeds(on_test, lines=shown, ylabel="mean absolute error, ppm", title="test, 1991 to 2001").set_ylim(0.4, 0.62)
plotting.show(
    "The errors of three arms as dots, with three baselines as dashed lines: persistence, the line on CO₂ alone, and the line with both signals."
)

# %%
mean = {arm: sum(values) / len(values) for arm, values in on_test.items()}
course.verdict("error of seasonal naive over that of the chosen arm", fixed["seasonal naive"] / mean[chosen], above=2.5)


# %% [markdown]
# Prediction 1: on these years **the line has the lowest error**, the one that reads both signals. Validation promised
# more of the arms with the sea: there they were ahead of *own* and of the line on CO₂ alone, and here they are ahead of
# neither. So, prediction 3: they read the sea, and on these years they gain nothing by it. (Some of that is to be
# expected: validation chose the best of 36 lines and of three arms, and the best of many is in part lucky.)
#
# [Error bars](../docs/glossary.md#e) over seeds say how well the mean over runs is known, not how much the years of the
# test vary. The difference year by year, its mean and its [standard error](../docs/glossary.md#s) over the years:

# %% tags=["nbval-ignore-output"]
def by_year(forecast):
    off = (forecast - data["test"][1]).abs().mean(dim=-1) * own_std  # (N,)
    return torch.stack([piece.mean() for piece in off.split(12)[:-1]])  # one for each twelve windows


past, _, other = given["test"]
by_arm = {arm: torch.stack([model(*arms[arm](past, other)) for model in models[arm]]).mean(dim=0).cpu() for arm in arms}
for name, forecast in baselines("test").items():
    less, off = metrics.mean_and_error((by_year(by_arm["dates and sea"]) - by_year(forecast)).tolist())
    print(f"dates and sea minus {name:16} {less:+.3f} ± {off:.3f} ppm over {len(by_year(forecast))} years")

# %% [markdown]
# (The forecast of an arm is the mean of its five models' here.) Only the seasonal naive forecast, the easiest opponent,
# is beaten clearly. All other differences are about two standard errors or less, and for ten years a p-value of 0.05
# needs 2.3 of them. These standard errors are probably too small, too: the windows of a year reach a year ahead, so that
# neighbouring years share months. So ten years do not decide the order of these methods. A decade holds few El Niños, and
# no number of seeds makes more of them.
#
# ## Why does the line lead?
#
# On these years it does, and one can look for the reason. From here on the test has been seen: what follows explains a
# result and chooses nothing. We take the arm *dates*, whose weights are the same for all windows, beside the line. In
# which years are their errors large, and how do they grow with the months ahead?

# %%
answers = {"dates": by_arm["dates"].double(), "line, both": baselines("test")["line, both"]}
started = years[test_start : test_start + len(by_arm["dates"])].double()


def draw_errors(off, on_the_left):  # name -> (N, F); which of them are drawn on the left, too
    _, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    over_time = {name: torch.stack([started, off[name].mean(dim=-1)], dim=-1) for name in on_the_left}
    plotting.curves(over_time, xlabel="first month of the forecast", ylabel="mean absolute error, ppm", ax=axes[0])
    plotting.curves({name: values.mean(dim=0) for name, values in off.items()}, xlabel="months ahead", ylabel="mean absolute error, ppm", ax=axes[1])
    for ax in axes:
        ax.set_ylim(bottom=0)


draw_errors({name: (answer - data["test"][1]).abs() * own_std for name, answer in answers.items()}, answers)
plotting.show(
    "Errors of dates and of the line with both signals: left by the first month of the forecast, right by months ahead."
)


# %% [markdown]
# Both have large errors between 1991 and 1995. In June 1991 Pinatubo had erupted, which may have changed more than the
# sea. The line leads in several stretches, and most of all after the El Niño of 1997: for about a year, from the middle
# of 1998 on, *dates* errs about twice as much as the line. In the right picture it leads most in the first month ahead.
# We come back to both.
#
# What happened in 1998? Move the month of the forecast through the test years. The slider begins in the autumn of 1998;
# the dashed line is *now*, and the dotted curve is all of the sea that the models are given:

# %%
def forecast_from(window):
    past, future, _ = (tensor[window] * own_std + own_mean for tensor in data["test"])
    times = years[test_start - 1 + window] + torch.arange(1 - C, AHEAD + 1) / 12  # the last month known, and around it
    drawn = {n: a[window] * own_std + own_mean for n, a in answers.items()} | {"measured": torch.cat([past, future])}
    lines = {name: torch.stack([times[-len(y) :].double(), y], dim=-1) for name, y in drawn.items()}
    ax = plotting.curves(lines, xlabel="year", ylabel="yearly growth, ppm; the sea, °C")
    ax.plot(times[:C], data["test"][2][window] * other_std + other_mean, color="0.5", linestyle=":", label="the sea, °C")
    ax.axvline(times[C - 1].item(), color="0.6", linestyle="--")
    ax.set(ylim=(-2, 5))
    ax.legend()
    return ax


explore(
    forecast_from,
    alt="Growth of CO₂ before and after the end of 1998: as the arm dates and the line forecast it, and measured; and the "
    "warmth of the sea before.",
    window=ipywidgets.IntSlider(value=94, min=0, max=len(data["test"][0]) - 1, description="month"),
)


# %% [markdown]
# A year ago the sea was more than 4 °C too warm; now it is 1 °C too warm, and the growth of CO₂ is about to fall.
# Both forecasts fall, but *dates* stays higher than the line, and the line is too high already. What may *dates* be
# missing? Think of what the arm can compute from the dotted curve, before you read on.
#
# Its weights do not depend on the data. What kind of function of the temperatures is then left? A test:

# %%
def from_the_sea(other):
    past, zeros = given["test"][0][:1], torch.zeros_like(other)
    return models["dates"][0](past, zeros, other) - models["dates"][0](past, zeros, zeros)


one, two = given["test"][2][:1], given["test"][2][60:61]
print("two forecasts = forecast of the sum:", torch.allclose(from_the_sea(one) + from_the_sea(two), from_the_sea(one + two), atol=1e-5))


# %% [markdown]
# Apart from a constant it is a weighted mean of temperatures times a factor: **linear**. Whatever this arm can express, a
# line on 24 + 24 months can express, too. But not the other way round. A line may subtract one month from another, and
# "warm a year ago, but no longer" is a difference. The weights of a head are positive, and one factor turns them into
# ppm: all its months count in the same direction.
#
# Is that what this arm lacks? First, take subtraction from the line: no coefficient of the sea may be negative.
# **Predict**: does its error come near the line's or near attention's, 0.496 ppm?

# %%
def no_negative_sea(x, y):  # (N, 1 + p + q), (N, F)
    lowest = [-math.inf] * (x.shape[1] - C) + [0.0] * C
    found = [lsq_linear(x.numpy(), month.numpy(), (lowest, math.inf)).x for month in y.T]
    return torch.stack([torch.from_numpy(one) for one in found], dim=1)  # (1 + p + q, F)


long_lines = {"any sign": least_squares, "sea not negative": no_negative_sea}
for name, fit_to in long_lines.items():
    off = (error(line(C, C, data[part], fit_to), data[part][1]) for part in ("validation", "test"))
    print("line on 24 + 24 months, {:16} {:.3f} ppm on validation, {:.3f} on test".format(name, *off))
free, banned = (by_year(line(C, C, data["test"], fit_to)) for fit_to in long_lines.values())
print("the ban costs {:+.3f} ± {:.3f} ppm over ten years".format(*metrics.mean_and_error((banned - free).tolist())))

# %% [markdown]
# Near attention's: on the test, the ban costs the line 0.05 ppm, and then it errs about as much as *dates*. (And about as
# much as the arm and the line that read no sea: without subtraction the sea is worth nothing on these years. The 0.05 ppm
# are only about one standard error over ten years. On validation, where *dates* is level with the line on 24 + 24 months,
# the ban costs next to nothing.)
#
# Then give subtraction to attention. What is the smallest change to the layer that allows it?
#
# <details><summary>Answer</summary>
#
# **A second head.** Two heads have two factors. If their signs are opposite, the months of one head are subtracted from
# those of the other. The number of parameters stays the same.
#
# </details>
#
# The same arm, recipe and seeds, with two heads and with four. **Predict**: how near to the line's 0.435 ppm does the
# error come, and does every run find out that it can subtract? The arm is linear, so each month's coefficient can be read
# exactly: give it a sea that is warm in this one month only.

# %%
by_heads = {1: models["dates"]} | {heads: [trained("dates", seed, heads=heads) for seed in range(5)] for heads in (2, 4)}


def from_each_month(model):  # what one unit of warmth in each month of the sea adds to the forecast
    one, none = torch.eye(C, device=device), torch.zeros(C, C, device=device)
    return (model(none, none, one) - model(none, none, none)).T.cpu()  # (F, C)


# %% tags=["nbval-ignore-output"]
print("heads   run   coefficients below 0   validation     test")
for heads, runs in by_heads.items():
    below = [(from_each_month(model) < 0).float().mean().item() for model in runs]
    rows = list(zip(below, errors("dates", "validation", runs), errors("dates", "test", runs), strict=True))
    for n, row in enumerate(rows):
        print("{:5} {:5} {:22.0%} {:12.3f} {:8.3f}".format(heads, n, *row))
    print("       mean {:21.0%} {:12.3f} {:8.3f}".format(*torch.tensor(rows).mean(dim=0).tolist()))

# %%
fewest = min((from_each_month(model) < 0).float().mean().item() for model in by_heads[4])
course.verdict("four heads: share of coefficients below 0, the smallest of five runs", fewest, above=0)

# %% [markdown]
# All months of one head have one sign. Of the runs with two heads, four subtract, and their errors on the test fall by
# about 0.04 ppm; **the one that does not errs as much as one head**. With four heads every run subtracts, and the mean
# error, about 0.45 ppm, comes near the line's. Where is it won? The two pictures once more:

# %%
by_four = torch.stack([model(*arms["dates"](given["test"][0], given["test"][2])) for model in by_heads[4]]).mean(dim=0).cpu()
answers_of = {"1 head": answers["dates"], "line on 24 + 24": line(C, C, data["test"]), "4 heads": by_four.double()}
answers_of["the line, sea not negative"] = line(C, C, data["test"], no_negative_sea)
off = {name: (answer - data["test"][1]).abs() * own_std for name, answer in answers_of.items()}
draw_errors(off, ("1 head", "line on 24 + 24", "4 heads"))
plotting.show(
    "Errors of dates with one head and with four, and of the line on 24 + 24 months: left by the first month of the "
    "forecast, right by months ahead, and there of the line without negative coefficients, too."
)

# %% tags=["nbval-ignore-output"]
after_1997 = (started > 1998.4) & (started < 1999.4)  # forecasts that begin between June 1998 and May 1999
for name in ("1 head", "4 heads"):
    print(f"{name:8} forecasts from the middle of 1998 to the spring of 1999: {off[name][after_1997].mean():.2f} ppm, all others {off[name][~after_1997].mean():.2f}")
less = by_year(answers_of["4 heads"]) - by_year(answers_of["1 head"])
print("4 heads minus 1 head: {:+.3f} ± {:.3f} ppm over ten years".format(*metrics.mean_and_error(less.tolist())))

# %% [markdown]
# After the El Niño of 1997 the error falls to a third, and in 1992 and early in 1993 it falls, too. Then, until 1994, it is
# higher than with one head, and over all months outside June 1998 to May 1999 the two are level. So over ten years the difference is not clear, as with the
# line: it is one great El Niño that four heads forecast better.
#
# By months ahead, four heads gain in the first half year; from the eighth month on they are hardly better than one. And in the
# first month one head errs much more than the line that may not subtract, so a missing minus sign is not all. A guess: the
# weights of a head sum to 1 for each month ahead, so one head cannot leave the sea aside where CO₂'s own past tells nearly
# all. In several heads, parts of opposite sign can cancel.
#
# What does the model with four heads subtract? The coefficients of the line on 24 + 24 months, and the means over five
# runs of one and of four heads. **Predict**, in which months of the past a warm sea lowers the forecast, before you look:

# %%
beta = least_squares(columns(data["train"], C, C), data["train"][1])[1 + C :].T  # (F, C)
panels = {"the line": beta} | {f"{heads} head{'s' * (heads > 1)}": torch.stack([from_each_month(model) for model in by_heads[heads]]).mean(dim=0) for heads in (1, 4)}
_, axes = plt.subplots(1, 3, figsize=(13, 3.2), layout="constrained")
for ax, (name, coefficients) in zip(axes, panels.items(), strict=True):
    names = {"rows": [str(n) if n % 3 == 0 else "" for n in range(1, AHEAD + 1)], "columns": back, "xlabel": "month of the sea, 0 is now", "ylabel": "month ahead"}
    plotting.heatmap(coefficients, **names, title=name, signed=True, vmax=0.25, colorbar=ax is axes[-1], ax=ax)
plotting.show(
    "Three maps of coefficients, twelve months ahead by 24 months of the sea: of the line, of one head, and of four heads. "
    "Red is positive, blue negative; the strongest colours stand for 0.25 and more."
)

# %% tags=["nbval-ignore-output"]
year_back = slice(C - 1 - 16, C - 10)  # months -16 to -10: month 0 stands at C - 1
adds = own_std * panels["4 heads"][:, year_back].double() @ data["test"][2][94, year_back].double()  # (F,)
print(f"four heads, October 1998: the sea of 10 to 16 months before adds {adds.mean():+.2f} ppm to the forecasts, on average")


# %% [markdown]
# The line has a free number in each cell. Some make slanted bands, a lag that is always the same; many look like noise.
# One head is red alone: the newest months, and those about half a year back. Four heads add a wide blue stripe about a
# year back (and, for the first months ahead, a faint blue at the newest months): **a sea that was warm a year ago lowers
# the forecast**. In the autumn of 1998, where one head was too high, this lowers the forecasts by the figure printed
# here. The model learned it from the El Niños before 1982.
#
# Had the number of heads been on the list of choices, validation would have given a hint: 0.289 ppm with four, 0.298 with
# one. It was not, and the test cannot be used for choosing any more. (An optional part gives *dates and sea* four heads,
# too.) Zeng et al. 2022 ([arXiv:2205.13504](https://arxiv.org/abs/2205.13504)) found lines ahead of
# [transformers](../docs/glossary.md#t) on nine common benchmarks. So why use attention at all?

# %% [markdown]
# ## What the mechanism is for
#
# Prediction 4: the task that is made up. Signal one is noise. Signal two marks one of 24 moments with a peak. The answer
# is the value of signal one **at that moment**. There are as many training windows as before:

# %%
def marked(count, seed):
    generator = torch.Generator().manual_seed(seed)
    signal, marks = torch.randn(2, count, C, generator=generator)
    moment = torch.randint(C, (count, 1), generator=generator)
    marks = (0.3 * marks).scatter_add(1, moment, torch.full((count, 1), 3.0))
    return signal, marks, signal.gather(1, moment)  # (N, S), (N, S), (N, 1)


signal, marks, answer = marked(2, seed=5)
months = torch.arange(1 - C, 1)
plotting.timeline({"signal": signal[0], "mark": marks[0]}, months, xlabel="month", title=f"the answer is {answer[0].item():.2f}")
plotting.show("Two curves over 24 months: a noisy signal, and a mark that is near 0 but for one high peak.")

# %% [markdown]
# The same class: marks go into the keys, signal one into the values. With one head and with four; beside them the line,
# and a small network, which read both signals. Who can do it?

# %%
train = [x.to(device) for x in marked(len(data["train"][0]), seed=0)]
test = [x.to(device) for x in marked(1000, seed=1)]
both = [torch.cat([torch.ones_like(signal[:, :1]), signal, marks], dim=-1) for signal, marks, _ in (train, test)]
makers = {
    "network": lambda: nn.Sequential(nn.Linear(1 + 2 * C, 64), nn.GELU(), nn.Linear(64, 1)),
    "cross-attention,\n1 head": lambda: CrossForecast(C, 1),
    "cross-attention,\n4 heads": lambda: CrossForecast(C, 1, heads=4),
}


def copier(name, seed):
    torch.manual_seed(seed)
    model, inputs = makers[name]().to(device), both if name == "network" else [(s, m, s) for s, m, _ in (train, test)]
    reads = [x if isinstance(x, tuple) else (x,) for x in inputs]  # what the model is given, in training and test
    settings = TrainConfig(steps=300, lr=1e-2, weight_decay=0.1)
    fit(model, batches(*reads[0], train[2], batch_size=64, seed=seed), F.l1_loss, settings, progress=False)
    model.requires_grad_(False)
    return model, F.l1_loss(model(*reads[1]), test[2]).item()


# %%
copiers = {name: [copier(name, seed) for seed in range(5)] for name in makers}
x, y, asked, wanted = (tensor.cpu() for tensor in (both[0], train[2], both[1], test[2]))  # where the solver works
found = {"line": [F.l1_loss(asked @ least_squares(x, y), wanted).item()]}
found |= {name: [off for _, off in runs] for name, runs in copiers.items()}
always_zero = test[2].abs().mean().item()
plotting.seeds(found, lines={"always 0": always_zero}, ylabel="mean absolute error", title="copy the marked moment")
plotting.show(
    "Errors on the copying task as dots: of the line, the network, and cross-attention with one head and with four. A "
    "dashed line: the error of an answer that is always 0."
)

# %%
ratio = {name: sum(values) / len(values) / always_zero for name, values in found.items()}
course.verdict("line: error over that of always 0", ratio["line"], above=0.6)
course.verdict("network: error over that of always 0", ratio["network"], above=0.6)
course.verdict("four heads: error over that of always 0", ratio["cross-attention,\n4 heads"], below=0.2)

# %% [markdown]
# No line can do it: were the mark 1 at its moment and 0 elsewhere, the answer would be a sum over the moments of a
# **product**, mark times signal. This network would have to learn one such product for each moment, from about ten
# examples each. Attention, which is told that marks belong to keys, learns *look where the mark is* once, for all
# moments.

# %% [markdown]
# With one head, some runs fail, and with four none did, in five runs each. An untested guess: a head that at first
# looks away from the mark brings back nothing useful, so that its gradient hardly points there, and four heads have
# four starts. The weights of a run with four heads for the window above (month 0 is moment 23):

# %%
model, _ = copiers["cross-attention,\n4 heads"][0]
_, weights = model.look(marks.to(device), signal.to(device))  # (2, H, 1, S)
heads = [f"head {n}" for n in range(4)]
plotting.heatmap(weights[0, :, 0], rows=heads, ylabel="", xlabel="moment", vmax=1, colorbar=False, title=f"weights, dark 0, bright 1; the mark is at moment {marks[0].argmax().item()}")
plotting.show("Four rows, one for each head, and a column for each moment; all rows are bright in the same one column.")

# %% [markdown]
# Here all four heads look at the mark. So where the data decide *which* part of the past matters, attention can do what a
# line cannot. Where the lag may always be the same, try a line first.

# %% [markdown]
# ## Optional: four heads for the other arm
#
# Validation had chosen *dates and sea*, whose weights depend on the data. Does it gain from four heads as *dates* does?

# %% tags=["nbval-ignore-output"]
for heads in (1, 4):
    runs = models["dates and sea"] if heads == 1 else [trained("dates and sea", seed, heads=4) for seed in range(5)]
    print(f"dates and sea, {heads} head{'s' if heads > 1 else ''}")
    for part in given:
        print("   {:.3f} ± {:.3f} ppm".format(*metrics.mean_and_error(errors("dates and sea", part, runs))), "in training" if part == "train" else f"on {part}")


# %% [markdown]
# With four heads it fits the training years better and errs much more on validation: it **overfits**, one would say. But
# on the test it errs slightly less than before. Three years and ten years give two answers, and with so few El Niños
# neither is the last word.
#
# ## Optional: what does the gap change?
#
# Does an error without a gap look too small? Five cuts, three years apart, the last in 1988. Each time a line answers for
# the three years after the cut, so that no answer occurs twice, and the test is not touched. It is trained three times:
# up to the cut; with the gap; and up to the cut but without the *oldest* 36 months, which has as many windows as with the
# gap. If neighbouring years flatter, which of the three has the highest error?

# %%
def after_cut(first, end, cut, p, q):  # trained on months first to end - 1, error in the three years after the cut
    warm = sea - usual(end, first)[calendar]
    spans = (first, end), (cut - C, cut + 36)
    train, asked = ((*windows(growth[a:b], C, AHEAD), windows(warm[a:b], C, AHEAD)[0]) for a, b in spans)
    return (line(p, q, asked, train=train) - asked[1]).abs().mean().item()


cuts = [val_start + 12 * later for later in (-9, -6, -3, 0, 3)]
for signals, (p, q) in line_months.items():
    near = [after_cut(0, cut, cut, p, q) for cut in cuts]
    apart = [after_cut(0, cut - gap, cut, p, q) for cut in cuts]
    fewer = [after_cut(gap, cut, cut, p, q) for cut in cuts]
    print(f"line, {signals}: up to the cut {sum(near) / len(cuts):.3f} ppm")
    for name, then in (("with the gap", apart), ("without the oldest months", fewer)):
        change = metrics.mean_and_error([a - b for a, b in zip(then, near, strict=True)])
        print("   {:26} {:+.3f} ± {:.3f} ppm".format(name, *change))

# %% [markdown]
# Trained up to the cut, the line on CO₂ alone has an error that is lower by 0.02 ppm, more than three [standard
# errors](../docs/glossary.md#s); with five cuts, a p-value of 0.05 needs 2.8 of them. For the line with both signals the
# difference is nearly as large, but less certain. Leaving out as many of the *oldest* months changes next to nothing. So
# it is how near the training years are that seems to count, and not how many there are: without a gap, the error looks
# smaller by about a twentieth. (Two lines were tried, and for one of them p is below 0.05: a hint rather than a proof.
# And the experiment cannot separate the shared months from a mere resemblance of neighbouring years.)
#
# Who trains again every month has those near years, and for her the error without a gap is the right one. For years to
# come it is too favourable.
#
# And attention? All arms and the two lines once more, trained up to the cut of 1985; questions, means and deviations stay
# the same. Two seeds of each arm, compared with the same seeds with the gap. Where will the error change more, on
# validation, which begins at the cut, or on the test, six years later?

# %% tags=["nbval-ignore-output"]
near = {arm: [trained(arm, seed, [x.float().to(device) for x in no_gap]) for seed in range(2)] for arm in arms}
for part in ("validation", "test"):
    print(f"{part}: error up to the cut minus error with the gap, ppm")
    for arm in arms:
        pairs = zip(errors(arm, part, near[arm]), errors(arm, part), strict=False)
        print(f"   {arm:20}", *(f"{without - gapped:+.3f}" for without, gapped in pairs))
    for signals, (p, q) in line_months.items():
        without, gapped = (error(line(p, q, data[part], train=months), data[part][1]) for months in (no_gap, data["train"]))
        print(f"   {'line, ' + signals:20} {without - gapped:+.3f}")


# %% [markdown]
# On validation the errors move by little more than 0.01 ppm, in both directions; the arms with the sea err *more* when
# trained up to the cut. So on this one cut hardly anything is seen that flatters. The large changes are on the test,
# where training ends years before in any case, so that shared months cannot be the reason. There *dates* gains about 0.04
# ppm with both seeds, and would be ahead of the lines on CO₂ alone, but not of the line with both signals. For *dates and
# sea*, the arm that validation chose, the two seeds disagree. (Seeds say nothing of how test years scatter.) A guess,
# not tested: the months of the gap hold the strongest El Niño before the test, from which more can be learned about the
# sea than from quiet years.
#
# So on this cut the gap may cost more in training than it corrects. We keep it all the same: a split has to be chosen
# for what it keeps apart, and not for the errors that it gives.

# %% [markdown]
# ## Optional: the same loss for the line
#
# All methods are judged by the mean **absolute** error, and attention is trained on it. Least squares is fitted to another
# [loss](../docs/glossary.md#l). Does that put the line at a disadvantage? Fit it to the absolute error (the **L1** loss),
# on the same months. There is no formula for the coefficients $\beta$, but a **linear program**: split each error into $u
# \ge 0$, by which the answer lies above the line, and $v \ge 0$, by which it lies below. Then
#
# $$\min_{\beta, u, v} \sum_n (u_n + v_n) \quad\text{with}\quad y_n = x_n \cdot \beta + u_n - v_n.$$
#
# A solver finds its exact minimum; there are no steps or learning rates that could be too few or too small. In training,
# each fit has to be the better one by its own loss. Which has the lower absolute error on validation?

# %%
def least_absolute(x, y):  # (N, 1 + p + q), (N, F)
    (n, size), eye = x.shape, torch.eye(len(x))
    cost, bounds = [0] * size + [1] * (2 * n), [(None, None)] * size + [(0, None)] * (2 * n)  # of β, u and v
    found = [linprog(cost, A_eq=torch.cat([x, eye, -eye], dim=1), b_eq=month, bounds=bounds) for month in y.T]
    assert all(one.success for one in found)  # proved to be a minimum
    return torch.stack([torch.tensor(one.x[:size], dtype=x.dtype) for one in found], dim=1)  # (1 + p + q, F)


# %%
fits = {"line": least_squares, "L1 line": least_absolute}
for signals, (p, q) in line_months.items():
    for name, fit_to in fits.items():
        off = [error(line(p, q, data[part], fit_to), data[part][1]) for part in data]
        print("{:18} {:.3f} in training, {:.3f} on validation, {:.3f} on test".format(f"{name}, {signals}", *off))
copied = F.l1_loss(asked @ least_absolute(x, y), wanted).item() / always_zero
course.verdict("L1 line: error over that of always 0", copied, above=0.6)


# %% [markdown]
# On validation and on the test the L1 line errs **more**, measured by the very error that it was fitted to. So least
# squares did not put the line at a disadvantage here. Of its lead over *dates* on the test, a quarter goes with the loss;
# three quarters stay. (The months $p$ and $q$ were chosen with least squares, and for the L1 line they were not chosen
# again.) How much does training in steps lose? The arm *own* can tell, for CO₂ alone: its weights are the same for all
# windows, so it is a line on 24 months of CO₂, too, and its error on the test is that of the exact L1 line on the same
# months, within 0.01 ppm.

# %% [markdown]
# ## Exercises
#
# Write the answer in place of `raise NotImplementedError` and run the cell. The first wrong run shows what is wrong
# with the result, the second names the mistake; the numbers are fresh each time. Hints and a solution are folded away
# below each cell.
#
# ### Exercise 1 · easy · 6 minutes
#
# The seasonal naive forecast: the last `season` months of each window come again, in order, as often as needed and cut
# off at `horizon` months. (The values come again as they were; no growth is added.) N windows of C months are given,
# each at least a season long; F is `horizon`.

# %%
def seasonal_naive(past, season, horizon):  # (N, C), months in a season, months to forecast
    raise NotImplementedError  # (N, F)


check.seasonal_naive(seasonal_naive)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `past[:, -season:]` is what comes again. Which of its months is the first ahead, and which the one after the season
# is through?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Month $i$ ahead, from 0, is month $i$ modulo `season` of the last season. A list of such indices indexes the columns.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def seasonal_naive(past, season, horizon):
#     last = past[:, -season:]  # (N, season)
#     return last[:, torch.arange(horizon) % season]  # (N, F)
# ```
#
# </details>
#
# ### Exercise 2 · middle · 10 minutes
#
# Windows without a leak: every stretch of `context + horizon` months in a row, one beginning at each month. Training
# windows end before month `cut`. Test windows forecast month `cut` or later ones, each wholly; their context may reach
# back before it; to keep it short, no gap is left. All are standardised by `mean` and `std` of the months before `cut`.
# Months are counted from 0.

# %%
def honest_windows(series, context, horizon, cut):  # (T,), three numbers
    raise NotImplementedError  # training windows (N, C + F), test windows (M, C + F)


check.honest_windows(honest_windows)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which months are known when the first forecast of the test is made? They may enter its past, and the mean.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Cut first, into `series[:cut]` and a part that begins `context` months before the cut. `x.unfold(0, length, 1)` gives
# all windows.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def honest_windows(series, context, horizon, cut):
#     train = series[:cut]
#     series = (series - train.mean()) / train.std()
#     length = context + horizon
#     return series[:cut].unfold(0, length, 1), series[cut - context :].unfold(0, length, 1)
# ```
#
# </details>
#
# ### Exercise 3 · hard · 15 minutes
#
# One head of [cross-attention](../docs/glossary.md#c) from months ahead to months back, scaled by $1/\sqrt D$, and how
# far it looks: the mean weight at each lag, over all windows and all pairs of months that many steps apart. (From query
# $i$ to key $j$, both counted from 0, the lag is $i + S - j$.) Both run from the oldest month to the newest: the last key
# is one step before the first query.

# %%
def cross_lags(future, past, w_query, w_key):  # (B, L, E), (B, S, E), (E, D), (E, D)
    raise NotImplementedError  # mean weight at the lags 1, ..., L + S - 1


check.cross_lags(cross_lags)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Weights first, (B, L, S): scaled, softmax over the months back, then their mean over the windows. How many steps are
# there from the newest month to the first one ahead?
#
# </details>
# <details><summary>Hint 2</summary>
#
# The lag of the pair $(i, j)$, both from 0, is $i + S - j$. With a matrix of lags, `weights[lag == r]` picks the pairs
# at lag $r$.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def cross_lags(future, past, w_query, w_key):
#     query, key = future @ w_query, past @ w_key  # (B, L, D), (B, S, D)
#     weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1).mean(dim=0)  # (L, S)
#     L, S = weights.shape
#     lag = torch.arange(L)[:, None] + S - torch.arange(S)  # (L, S)
#     return torch.stack([weights[lag == r].mean() for r in range(1, L + S)])
# ```
#
# </details>

# %% [markdown]
# ## Takeaways
#
# - Cross-attention: queries from one place, here the times of the months to forecast; keys and values from another, the months of
#   the sea. The weights need not be square.
# - Cut in time first. Later months reach the training by a random split, by a training window that reaches over the cut, and by a mean over
#   everything. How much that flatters has to be measured: here every second window moved to the training lowered the error by a fifth.
# - Windows and differences reach back over a cut. A gap of $C + 12$ months, those that a window looks at and those of the difference, keeps the two sides apart.
# - On this signal a line with both signals had the lowest error, but ten years do not decide. One head with fixed weights cannot subtract one month from another; a line that may not subtract errs as much on these years, and with four heads the arm *dates* subtracts and comes near the line, most of all after one El Niño.
# - Attention has its strength where the data decide which moment of the past matters, as in the copying task.

# %% [markdown]
# ## Check yourself
#
# 1. The second signal of each window is exchanged with another's, and the error stays. Name two reasons.
# 2. Queries and keys are times and nothing else. Why can attention over 24 months do no more than a line?
# 3. The mean over five seeds is known to a few thousandths of a ppm. Why is the verdict on ten years still open?
#
# <details><summary>Answers</summary>
#
# 1. The model does not use it; or what it takes from it does not help; or all windows have nearly the same second signal, so that
#    the exchange changes little. (The reverse does not hold either: a model may use a signal that only repeats its own. Whether
#    it is needed shows only when one trains without it.)
# 2. The weights are the same for every window, and the values are linear in the signal. So the output is a fixed weighted sum of
#    the 24 months, and a constant. With one head it is less than a line: all months have one sign.
# 3. Seeds vary the first weights and the order of the batches, not the weather: neighbouring test windows overlap, and
#    few El Niños are in them.
#
# </details>

# %% [markdown]
# **To read**: Bacastow 1976 (Nature 261, 116–118); Hyndman and Koehler 2006 (International Journal of Forecasting 22,
# 679–688), how to scale an error by a naive forecast's; Zeng et al. 2022
# ([arXiv:2205.13504](https://arxiv.org/abs/2205.13504)), section 5; Vaswani et al. 2017
# ([arXiv:1706.03762](https://arxiv.org/abs/1706.03762)), section 3.2.3, where cross-attention is called
# [encoder](../docs/glossary.md#e)–[decoder](../docs/glossary.md#d) attention.
#
# **Next**: 14, searching for settings at random.
