# %% [markdown]
# # 14 Random search
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/14_random_search.ipynb)
#
# ← [13 Time series](13_time_series.ipynb) · [the map of the course](00_welcome.ipynb) · [15 Fast attention](15_fast_attention.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast **14** [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb) · taken apart [18](18_heads_that_copy.ipynb)
#
# Needs: notebook 06 · runs in about 40 s on two CPU cores · about 2 hours of study

# %% [markdown]
# In 2017 Melis, Dyer and Blunsom ([arXiv:1707.05589](https://arxiv.org/abs/1707.05589)) gave an old language model and
# its newer rivals the same large search for good settings. The old one, an LSTM, came out ahead. So when a model leads a
# table, was it the idea, or did somebody search longer? **How do people find settings, and how do they fool themselves on
# the way?**
#
# After this notebook you can
#
# - search [hyper-parameters](../docs/glossary.md#h) at random, in ten lines, and compare that with a grid;
# - say how far to trust the best number of a search;
# - run a search that survives being killed, and gives up early on what does not learn;
# - say which hyper-parameters mattered, in which space and after how many steps, and how sure that is.
#
# New against 06: the settings are no longer given.

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
import random
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import ipywidgets
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

from sciformer import check, course, metrics, plotting, records
from sciformer.lab import search, trainers
from sciformer.teach import explore
from sciformer.training import TrainConfig, evaluate, fit

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## Predict first
#
# A **trial** is one choice of hyper-parameters and the model that is trained with it.
#
# 1. You can afford nine trials. There are two hyper-parameters, and only one of them matters. How many of its values
#    does a 3 × 3 grid try, and how many do nine random draws?
# 2. [Heads](../docs/glossary.md#h), [head dimension](../docs/glossary.md#h), [sequence length](../docs/glossary.md#s),
#    blocks, [learning rate](../docs/glossary.md#l): which of them matters most for the accuracy?
# 3. You keep the best of 200 models by its accuracy on **validation** digits, which are set aside for choosing. Is it as
#    good on digits that chose nothing?

# %% [markdown]
# ## Grid or random
#
# Nine points each. The arrows drop them onto the hyper-parameter that matters.

# %%
side = torch.tensor([1 / 6, 1 / 2, 5 / 6])
grid = torch.cartesian_prod(side, side)  # (9, 2)
drawn = torch.rand(9, 2, generator=torch.Generator().manual_seed(0))
_, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for ax, (name, points) in zip(axes, {"grid": grid, "random": drawn}.items(), strict=True):
    onto = points * torch.tensor([1.0, 0.0])
    plotting.plane(points, [""] * 9, moved=onto, legend=False, title=f"{name}: {len(onto.unique(dim=0))} different values", ax=ax)
    ax.set(xlabel="the one that matters", ylabel="the other one", xlim=(0, 1), ylim=(-0.1, 1.1))
plotting.show(
    "Two panels with nine points each, and arrows from each point down to the lower edge. Those of the grid "
    "end at three positions, the random ones at nine."
)

# %% [markdown]
# Prediction 1: three and nine. Six of the grid's nine models teach nothing new about what matters. If one knew
# beforehand which one matters, a grid over that one would do. So argued Bergstra and Bengio for
# [random search](../docs/glossary.md#r) in 2012 ([JMLR 13, 281–305](https://jmlr.org/papers/v13/bergstra12a.html)).
#
# But random points leave gaps. Suppose the accuracy has a narrow peak, 1 high and 0.1 wide, somewhere along the
# hyper-parameter that matters. Over 2,000 positions of the peak, how high up is the best of nine on average?

# %%
generator = torch.Generator().manual_seed(0)
peak = torch.rand(2000, 1, generator=generator)
ways = {"grid": grid[:, 0].expand(2000, 9), "random": torch.rand(2000, 9, generator=generator)}
for name, x in ways.items():
    best = torch.exp(-(((x - peak) / 0.1) ** 2)).amax(dim=1)  # 1 at the peak
    print(f"{name:7} mean of the best of nine: {best.mean():.1f}")

# %% [markdown]
# ## How many trials?
#
# One draw lies among the best 5 % of the space with a probability of 0.05, whatever the space looks like and however
# many hyper-parameters there are. All $n$ draws miss with probability $0.95^n$.

# %%
enough = next(n for n in range(1, 1000) if 1 - 0.95**n > 0.95)
print(f"{enough} draws hit the best 5 % with a probability of more than 95 %")
hits = {f"the best {share:.0%}": [1 - (1 - share) ** n for n in range(1, 121)] for share in (0.1, 0.05, 0.02)}
plotting.curves(hits, xlabel="draws", ylabel="probability of a hit", title="at least one draw among …")
plotting.show(
    "Three rising curves, one each for the best 10, 5 and 2 per cent: the larger the share, the sooner the "
    "curve is near 1."
)

# %% [markdown]
# ## The space
#
# | hyper-parameter | drawn from |
# |---|---|
# | `tokens`, the sequence length | 1, 4, 16, 49, 196: squares of 28, 14, 7, 4, 2 pixels |
# | `heads`, `head_dim` | 1, 2, 4, 8, and 4, 8, 16; tokens are `heads * head_dim` wide |
# | `blocks` | 1, 2, 3, 4 |
# | `expansion`: width inside the feed-forward, in widths of a token | 1, 2, 4 |
# | `dropout` | anything from 0 to 0.3 |
# | `bias`: whether the linear maps and norms add one | no, yes (printed as 0 or 1) |
# | `lr`, the learning rate | anything from 0.0001 to 0.03 |

# %%
values = {name: len(some) for name, some in search.SPACE.items() if isinstance(some, tuple)}
print(math.prod(values.values()), "combinations of", ", ".join(values))

# %% [markdown]
# So large is a full grid before its second value of `dropout` or `lr`. Only in these two is every draw a new value. Of the
# others random draws repeat a few values, as a grid does; there the gain is that few trials try them all.
#
# ## Break it: a learning rate drawn evenly
#
# A factor of ten is a **decade**; from 0.0001 to 0.03 there are two and a half. If the learning rate is drawn evenly
# between the two ends, how many of the draws lie in the first decade, below 0.001?

# %%
evenly = torch.linspace(1e-4, 3e-2, 10_000)  # as even as 10,000 draws can be
rates = torch.logspace(-4, math.log10(3e-2), 10_000)  # as even in their logarithm
print(f"evenly: {100 * (evenly < 1e-3).float().mean():.0f} %   in decades: {100 * (rates < 1e-3).float().mean():.0f} %")

# %% [markdown]
# Only three in a hundred. What matters about a learning rate is by which factor it differs, so its **logarithm** is
# drawn uniformly.
#
# ## Ten lines by hand
#
# Choosing is a kind of training, too. So the validation digits are the last of the training digits, never those of the
# [test set](../docs/glossary.md#t), and no trial trains on them. In the quick [profile](../docs/glossary.md#p) there are
# 500, a trial has 100 steps, and the slowest values (196 [tokens](../docs/glossary.md#t), 8 heads, 4 blocks) are left out.

# %%
full = course.profile() == "full"
small = replace(search.SEARCH["quick"].base, train=TrainConfig(steps=100, warmup_steps=10), batch_size=32, held_out=500)
shared = search.SEARCH["quick"].base if full else small


def accuracy_of(choice, seed=0):
    setting = search.setting_of(shared, choice)
    torch.manual_seed(seed)
    model = setting.model().to(device)
    fit(model, setting.training_batches(seed, device), F.cross_entropy, setting.train, progress=False)
    return evaluate(model, setting.held_out_batches(device), metrics.accuracy)


# %% tags=["nbval-ignore-output"]
random.seed(0)
best = 0.0, {}
for n in range(4):
    choice = {"tokens": random.choice([1, 4, 16, 49]), "heads": random.choice([1, 2, 4])}
    choice |= {"head_dim": random.choice([4, 8, 16]), "blocks": random.choice([1, 2, 3])}
    choice |= {"expansion": random.choice([1, 2, 4]), "dropout": random.uniform(0, 0.3)}
    choice |= {"bias": random.choice([False, True]), "lr": random.choice(rates.tolist())}
    accuracy = accuracy_of(choice)
    best = max(best, (accuracy, choice), key=lambda pair: pair[0])
    print(f"{n}: {100 * accuracy:.1f} %, {choice['tokens']} tokens, lr {choice['lr']:.4f}")

# %% [markdown]
# That is all of it. The package trains a choice in the same way:

# %%
run = trainers.train_to_choose(search.setting_of(shared, best[1]), 0, device=device, progress=False)
course.verdict("difference between the two", abs(run.metrics["validation accuracy"] - best[0]), below=1e-6 if device == "cpu" else 0.05)

# %% [markdown]
# ## Break it: 200 models that are all alike
#
# The ten lines keep the largest of four numbers. How far should one trust it? Take 200 models, each of them right on
# 95 % of all digits. Each is measured on 500 digits of its own, and the highest wins. (Line: mean of 50 such searches;
# band: one [standard error](../docs/glossary.md#s).) Which accuracy does the winner of 200 show?

# %%
generator = torch.Generator().manual_seed(0)
right = torch.rand(50, 200, 500, generator=generator) < 0.95  # 50 searches
measured = right.float().mean(dim=-1)  # (searches, models)
winner = measured.cummax(dim=1).values
again = torch.rand(50, 500, generator=generator) < 0.95  # the 50 winners on 500 new digits
ax = plotting.bands({"the winner, on validation": winner}, xlabel="models tried", ylabel="accuracy", title="200 models of 95 %")
ax.axhline(0.95, color="0.4", linestyle="--", label="every model, on all digits")
ax.legend(frameon=False)
plotting.show("The accuracy of the winner against the number of models tried, and a dashed line at 95 per cent.")
print(f"one model on 500 digits: 95 ± {100 * math.sqrt(0.95 * 0.05 / 500):.1f} %")
print(f"the winner of 200 on validation: {100 * winner[:, -1].mean():.0f} %, on new digits: {100 * again.float().mean():.0f} %")

# %% [markdown]
# Prediction 3: no, and nobody cheated. The largest of many noisy numbers is too large: the more numbers, the more so,
# and fewer digits mean more noise. This is the **winner's curse**. (In a real search all models see the same digits and
# tend to miss the same ones, which makes it smaller.) So the winner is measured once more, on digits that chose nothing:
# the test digits. They choose nothing afterwards, either.

# %% [markdown]
# ## A search that survives a crash
#
# In a search of hours the ten lines lack three things: if the process is killed, everything is lost; two processes would
# not know of each other; and what fails from the start is trained to its end. Optuna (Akiba et al. 2019,
# [arXiv:1907.10902](https://arxiv.org/abs/1907.10902)) has all three. It calls a function with a `trial`, and every
# hyper-parameter that the function asks the trial for is drawn and recorded:

# %%
if importlib.util.find_spec("optuna") is None:  # Colab
    subprocess.check_call([sys.executable, "-m", "pip", "install", "-q", "optuna"])
import optuna

optuna.logging.set_verbosity(optuna.logging.WARNING)


def height(trial):  # highest at lr = 0.01
    lr = trial.suggest_float("lr", 1e-4, 1.0, log=True)
    return -((math.log10(lr) + 2) ** 2) + 0.01 * trial.suggest_categorical("heads", [1, 2, 4])


study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
study.optimize(height, n_trials=100)
print(len(study.trials), "trials, each with", list(study.best_params))
course.verdict("decades from the best learning rate to 0.01", abs(math.log10(study.best_params["lr"]) + 2), below=0.4)

# %% [markdown]
# What draws is the **sampler**. Some samplers learn from earlier trials. Random draws are independent of each other: any
# number can run at once, and every trial counts equally when we ask what mattered.
#
# `search.search` draws from our space. Whatever happens to a trial (it begins, draws a value, is evaluated, ends) becomes
# a line in a file, the journal.

# %%
space = search.SPACE | {"tokens": (1, 4, 16, 49), "heads": (1, 2, 4), "blocks": (1, 2, 3)}
live = search.SEARCH["quick"] if full else search.SearchSetting(small, space, looks=4, free_trials=4)
storage = Path(tempfile.mkdtemp()) / "search.journal"
trials = search.search(live, 5, storage=storage, device=device)
print(len(trials), "finished")

# %% [markdown]
# Now the power goes off in the middle of trial number 5. It will never end, and the last line of the journal is half
# written. How many trials does the next start find?

# %%
search.open_study(live, storage).ask()  # begins trial number 5
with storage.open("a") as journal:
    journal.write('{"op_code":5,"worker_id":"7d')
study = search.open_study(live, storage)
print(len(study.trials), "begun,", len(search.finished(study)), "finished")

# %% [markdown]
# No finished trial is lost: opening the journal cuts off a half-written last line. The same call goes on:

# %%
count = 60 if full else 18
trials = search.search(live, count, storage=storage, device=device)
print(len(trials), "finished; was number 5 ever?", 5 in [trial.number for trial in trials])
again = search.search(live, 2, storage=storage.with_name("again.journal"), device=device)
print("another search draws the same:", [trial.choice for trial in again] == [trial.choice for trial in trials[:2]])

# %% [markdown]
# Trial number $n$ draws the same hyper-parameters whoever runs it. From a terminal, with two processes; on several
# machines, with the address of a database they all reach:
#
# ```sh
# python -m sciformer search --trials 60 --workers 2 --storage runs/search.journal
# ```
#
# ## Giving up early
#
# Every trial is evaluated a few times on its way; we call each evaluation a **look**. The **median rule** gives a trial up
# if its best accuracy so far is below the median, at the same look, of the trials that ran to their end. (The field says
# that the trial is **pruned**.) The first four run to their end, so that there is a median. What share of the later ones
# will the rule give up?

# %%
ax = plotting.trials([trial.looks for trial in trials], [trial.pruned for trial in trials], title="live search")
whole = [trial.looks for trial in trials if not trial.pruned]
medians = [(looks[0][0], statistics.median(accuracy for _, accuracy in looks)) for looks in zip(*whole, strict=True)]
ax.plot(*zip(*medians, strict=True), color="0.3", linestyle="--", label="median of the blue ones")
ax.legend(frameon=False, loc=(0.5, 0.2))
plotting.show(
    "Validation accuracy against steps: a line for each trial that ran to its end, a cross where a trial was given up, "
    "and a dashed line, the median of those that ran to their end."
)

# %% tags=["nbval-ignore-output"]
steps = live.base.train.steps
done = sum(trial.looks[-1][0] for trial in trials)
print(f"{sum(trial.pruned for trial in trials)} of {len(trials)} given up; {100 * done / (steps * len(trials)):.0f} % of the steps were run")
free, judged = trials[: live.free_trials], trials[live.free_trials]
bar = statistics.median(trial.first_look for trial in free)
print(f"the first to be judged: {judged.first_look:.3f} at its first look, median of those before it {bar:.3f}")

# %%
print("given up at its first look if and only if below:", (judged.pruned and len(judged.looks) == 1) == (judged.first_look < bar))

# %% [markdown]
# Far more than half. A later trial joins the others only if it keeps up with their median, so the bar tends to rise. (The
# dashed line is the median at the end of the search. A line far below it belongs to one of the first four.) The price:
# trials that start slowly are pruned before they can catch up. And those that ran to their end are a **selection**. What
# all trials have is their first look, after equal numbers of steps. We will use it to ask what mattered.

# %% [markdown]
# ## Look at the search
#
# A longer search than the live one, over the whole space and with three times as many steps for each trial, is
# recorded in `results/`. If it is missing, the live one is shown.

# %%
recorded = search.load_search("quick")
shown, kind = (trials, "live") if recorded is None else (recorded[0], "recorded")
about = f"{len(shown)} trials, {sum(trial.pruned for trial in shown)} given up, first look after {shown[0].looks[0][0]} steps"
print("recorded search:", "not recorded yet" if recorded is None else f"{about}, on {recorded[1]['device']}")

# %% [markdown]
# **Slices**: one panel for each hyper-parameter, everything else left to chance. Orange: means with standard errors, for
# each value or, where values hardly repeat, for each quarter of the trials. Where do the dots clearly rise or fall?

# %%
choices, first = [trial.choice for trial in shown], [trial.first_look for trial in shown]
plotting.slices(choices, first, log=["lr"], title=f"{kind}, first look", ylabel="accuracy")
plotting.show(
    "Eight panels, one for each hyper-parameter, with a dot for each trial at its accuracy, and orange means of groups "
    "with error bars."
)

# %%
for name in ("tokens", "blocks", "heads"):
    groups = {value: [y for one, y in zip(choices, first, strict=True) if one[name] == value] for value in search.SPACE[name]}
    means = {value: metrics.mean_and_error(own) for value, own in groups.items() if own}
    print(f"{name:6}", "   ".join(f"{value}: {100 * mean:.0f} ± {100 * error:.0f} %" for value, (mean, error) in means.items()))

# %% [markdown]
# In one panel clearly: from 4 tokens to 49 the accuracy falls by 41 points. The means of the blocks fall, too, but each
# has an error of about 6 points. Is that more than luck? It takes a number, which comes after the next section.

# %% [markdown]
# ## Best so far
#
# The second recorded trial was the best of all. In another order the same trials would give another staircase. The mean
# over 300 orders estimates how high the best of $n$ trials is on validation (Dodge et al. 2019,
# [arXiv:1909.03004](https://arxiv.org/abs/1909.03004), have a formula; see exercise 3). At the right end all orders hold
# the same trials, so the curves must meet there. After how many trials does one more hardly help?

# %%
accuracy = torch.tensor([trial.accuracy for trial in shown])  # at its last look
generator = torch.Generator().manual_seed(0)
orders = torch.stack([accuracy[torch.randperm(len(shown), generator=generator)] for _ in range(300)])
stairs = orders.cummax(dim=1).values  # (orders, trials)
lines = {"in the order of the search": torch.tensor(search.best_so_far(shown))}
lines |= {"mean of 300 orders": stairs.mean(dim=0), "one order in ten is below": stairs.quantile(0.1, dim=0)}
plotting.curves({name: line.tolist() for name, line in lines.items()}, xlabel="trials", ylabel="accuracy", title=f"best so far, {kind}")
plotting.show("Three rising curves that meet at the right end: one order, the mean of many, and a low one among them.")
print("   ".join(f"best of {n}: {100 * stairs[:, n - 1].mean():.1f} %" for n in (1, 5, 10, 20, 40, 60) if n <= len(shown)))


# %% [markdown]
# From 10 trials to 20 the best gains 2.4 points, from 20 to 60 less than one. But the left end is too low: 48 of the 60
# trials were given up, most after 75 steps, and count with the accuracy they had then. Another order would also have
# given up others. And the right end has the winner's curse.

# %% [markdown]
# ## What mattered?
#
# Sort the trials into groups by one hyper-parameter. How much of the variance of accuracy is variance **between** groups?
#
# $$\text{share} = 1 - \frac{\text{squares around the groups' means}}{\text{squares around the mean of all}}$$
#
# Six trials, by hand:

# %%
def plain_share(groups, values):
    own = {g: [v for h, v in zip(groups, values, strict=True) if h == g] for g in set(groups)}
    within = sum((v - statistics.fmean(group)) ** 2 for group in own.values() for v in group)
    return 1 - within / sum((v - statistics.fmean(values)) ** 2 for v in values)


heads, accuracies = [1, 1, 2, 2, 4, 4], [0.80, 0.84, 0.86, 0.88, 0.90, 0.86]
print(f"between the groups: {plain_share(heads, accuracies):.2f}")

# %% [markdown]
# ## Break it: a hyper-parameter that does nothing
#
# 16 trials in five groups, with accuracies that are pure noise: the hyper-parameter does nothing at all. Which share will
# it have, in the mean of 1,000 such searches?

# %%
generator = torch.Generator().manual_seed(0)
groups = [n % 5 for n in range(16)]
noise = torch.randn(1000, 16, generator=generator).tolist()
print(f"plain: {statistics.fmean(plain_share(groups, row) for row in noise):.2f}")

# %% [markdown]
# More than a quarter, although there is nothing to find: the mean of a group always fits its own group. If nothing
# matters, the ratio of squares is $(n - k) / (n - 1)$ on average, with $n$ trials and $k$ groups, in place of 1. So
# divide by that (Kelley 1935, *An unbiased correlation ratio measure*,
# [doi:10.1073/pnas.21.9.554](https://doi.org/10.1073/pnas.21.9.554)):
#
# $$\varepsilon^2 = 1 - \frac{n - 1}{n - k} \cdot \frac{\text{squares around the groups' means}}{\text{squares around the mean of all}}$$

# %%
print(f"noise, corrected: {statistics.fmean(search.explained(groups, row) for row in noise):+.3f}")
by_hand = 1 - (6 - 1) / (6 - 3) * (1 - plain_share(heads, accuracies))
print(f"six trials: by hand {by_hand:.2f}, package {search.explained(heads, accuracies):.2f}")

# %% [markdown]
# And how sure is a share? **Jackknife**: leave out one trial after the other, and see how much the share moves. With
# $\theta_i$ the share without trial $i$ and $\bar\theta$ the mean of all $n$ of them:
#
# $$\text{error} = \sqrt{\tfrac{n-1}{n} \textstyle\sum_i (\theta_i - \bar\theta)^2}$$
#
# Below are the shares at the first look, with quarters as groups where values hardly repeat. The last column is the
# smallest possible share, that of groups with equal means.

# %%
shares = {"live": search.importance([t.choice for t in trials], [t.first_look for t in trials])}
if recorded is not None:
    shares = {"recorded": search.importance(choices, first)} | shares
ax = plotting.with_errors(shares, xlabel="share of the variance at the first look", title="what mattered")
ax.legend(frameon=False, loc="lower right")
plotting.show("Shares of the variance, one row for each hyper-parameter, with error bars and a dashed line at 0.")
for name, (share, error) in shares[kind].items():
    n, k = len(shown), len(set(search.groups_of([one[name] for one in choices])))
    print(f"{kind} {name:9} {share:+.3f} ± {error:.3f}   smallest possible {1 - (n - 1) / (n - k):+.3f}")


# %% [markdown]
# The sequence length, by far: no other recorded share is sure to be above 0, not even that of the learning rate. The
# blocks have 0.00 ± 0.06, for all that their means fall. In the live search, with its few trials, no share was sure when
# this page was made.
#
# A true share is never below 0, and yet the whole bars of `bias`, `expansion` and `dropout` are. Their groups differ less
# than groups differ by chance, so the correction takes off more than is there. (Bars are one error long on either side.
# One that just clears 0 on the right proves little, too.)
#
# Would fewer trials do? Here are the shares after ten. Where will the dot of `tokens` be after 60? Move the slider.

# %%
def with_trials(n):
    return plotting.with_errors({"": search.importance(choices[:n], first[:n])}, xlabel="share of the variance", title=f"the first {n} trials")


alt = "Shares of the variance with their errors, for the first trials of the search"
explore(with_trials, alt=alt, n=ipywidgets.IntSlider(10, 10, len(shown), 2, description="trials"))

# %%
for n in [n for n in (10, 20, 40, 60) if n <= len(shown)]:
    print("{} trials: tokens {:.2f} ± {:.2f}".format(n, *search.importance(choices[:n], first[:n])["tokens"]))

# %% [markdown]
# With ten trials the share is 0.95 ± 0.03, and with all 60 it is 0.53 ± 0.10, far outside the first error. That error was
# estimated from the same ten trials, which happened to agree. An error bar from a few trials can fool you, too.

# %% [markdown]
# ## One change at a time
#
# The other way to ask: change **one** thing at a time around a base, here 4 heads of dimension 8, 49 tokens, 2 blocks and
# a learning rate of 0.003, for 400 steps and with three [seeds](../docs/glossary.md#s). Two series are also run at **equal
# size**: more heads that share one width, and more blocks that are narrower.

# %%
heads, dims, tokens, blocks = (1, 2, 4, 8), (2, 4, 8, 16), (1, 4, 16, 49, 196), (1, 2, 4, 8)
series = {"heads": (heads, 4, ""), "head dimension": (dims, 8, ""), "tokens": (tokens, 49, ""), "blocks": (blocks, 2, "")}
series |= {"heads, same size": ((*heads, 16), 4, ", same size"), "blocks, same size": (blocks, 2, ", same size")}
content = records.load_record("search-claims", "quick")
seen = {}  # setting -> validation accuracy, (seeds, looks)
for run in content["runs"] if content else []:
    curve = [accuracy for _, accuracy in run["curves"]["validation accuracy"]]
    seen.setdefault(run["arm"], []).append(curve)


def accuracies_of(name, look=-1):  # (values, seeds), in points
    values, base, end = series[name]
    names = ["base" if v == base else f"{name.split(',')[0]} {v}{end}" for v in values]
    return 100 * torch.tensor([seen[one] for one in names])[:, :, look]


# %%
if seen:
    _, axes = plt.subplots(2, 3, figsize=(10, 5.6), sharey=True, layout="constrained")
    for ax, (name, (values, base, _)) in zip(axes.flat, series.items(), strict=True):
        x = [math.log2(v) for v in values]
        plotting.bands({name: accuracies_of(name).T}, x=x, xlabel=name, ylabel="", ax=ax)
        ax.axvline(math.log2(base), color="0.6", linestyle=":")
        ax.set(xticks=x, xticklabels=values)
    for ax in axes[:, 0]:
        ax.set_ylabel("validation accuracy, %")
    plotting.show(
        "Six panels, one for each series: accuracy after 400 steps, means of three seeds with standard errors, on an axis "
        "of doublings. A dotted line marks the base."
    )


# %% [markdown]
# Each series as a number: the accuracy at its last value minus that at its first, in points (hundredths), after 100 steps
# and after 400. Which series moves the accuracy most?

# %%
def ends(name, look):  # one a seed
    y = accuracies_of(name, look)
    return (y[-1] - y[0]).tolist()


for name in series if seen else []:
    early, late = ("{:+5.1f} ± {:.1f}".format(*metrics.mean_and_error(ends(name, look))) for look in (0, -1))
    print(f"{name:18} {series[name][0][0]} → {series[name][0][-1]:3}   step 100: {early}   step 400: {late}")

# %% [markdown]
# ## How can both be true?
#
# From 1 head to 8 the accuracy rises by 39 points. In the search, over the same values, the share of the heads is
# 0.02 ± 0.07. Is one of the two wrong? Two suspects:
#
# - **Time.** The search was judged after 75 steps. But after 100 the heads bring 32 points already.
# - **Company.** In the search everything else changes, too, the sequence length above all. So subtract from each trial the
#   mean of all trials with as many tokens, and ask what the rest goes with:

# %%
by_tokens = {}
for choice, y in zip(choices, first, strict=True):
    by_tokens.setdefault(choice["tokens"], []).append(y)
rest = [y - statistics.fmean(by_tokens[choice["tokens"]]) for choice, y in zip(choices, first, strict=True)]
wide = [{name: one[name] for name in ("heads", "head_dim", "lr", "blocks")} | {"width": one["heads"] * one["head_dim"]} for one in choices]
for name, (share, error) in search.importance(wide, rest).items():
    print(f"{name:9} {share:+.2f} ± {error:.2f} of the variance at equal tokens")

# %% [markdown]
# Neither need be wrong. At equal tokens the share of the heads is 0.20 ± 0.09, and the learning rate and the width show as
# well. But it is a share of less: the tokens' part of the variance is gone, so that 0.20 of the rest is about 0.09 of the
# whole, and only one error above 0.02. Each share is about two errors above 0, with errors that take the subtracted means as
# known, and we chose this calculation after seeing the result. So a louder effect may have drowned the heads; this does not
# prove it. Nor does it help the head dimension, whose share stays at 0.02 although its series rises by 32 points (from 2 on,
# where the search begins at 4). Much of the heads' gain may be **width**: at equal width, 16 heads beat 1 by 9 points after
# 400 steps and by none after 100.

# %% [markdown]
# Prediction 2, then, has no single answer. In this space, after 75 steps, it is the sequence length. Around the base, too,
# the ends of its series are 58 points apart after 100 steps, and those of the heads 32. After 400 steps it is 28 against
# 39: long sequences start slowly and catch up, although three seeds leave that order open. **What matters most depends on
# the space, the base and the budget.** (Equal steps are not equal cost, either: a run with 196 tokens took 152 s, one with
# 4 tokens 4 s.) And what two hyper-parameters do together is in no share.

# %% [markdown]
# ## The winner
#
# Is a real winner cursed, too? Train the live search's best choice again from its own seed, so that the model is the same
# one, and measure it on test digits; then once more with four times the steps. What do you expect of the same model?

# %%
best = max(trials, key=lambda trial: trial.accuracy)
winner = search.setting_of(shared, best.choice)
once = trainers.train_image_transformer(winner, best.number, device=device, progress=False, looks=1)
longer = replace(winner, train=replace(winner.train, steps=4 * winner.train.steps))
run = trainers.train_image_transformer(longer, best.number, device=device, progress=False, looks=1)

# %% tags=["nbval-ignore-output"]
digits = sum(len(labels) for _, labels in winner.test_batches())
told = {"validation, in the search": (best.accuracy, shared.held_out), "test, the same model": (once.metrics["test accuracy"], digits)}
for name, (right, n) in (told | {"test, four times the steps": (run.metrics["test accuracy"], digits)}).items():
    print(f"{name:26} {100 * right:.1f} ± {100 * math.sqrt(right * (1 - right) / n):.1f} %, {n} digits")
print(", ".join(f"{name} {value:.3g}" for name, value in best.choice.items()))

# %%
again = evaluate(once.model.to(device), winner.held_out_batches(device), metrics.accuracy)
course.verdict("validation accuracy, now and in the search, differs", abs(again - best.accuracy), below=1e-6 if device == "cpu" else 0.05)
course.verdict("test accuracy of the winner", run.metrics["test accuracy"], above=0.8, measured="quick")


# %% [markdown]
# After the curse one expects a lower accuracy; when this page was made it was 2 points **higher**. One pair of numbers
# cannot show the curse: the 500 validation digits alone have an error of 1.5 points. The 50 simulated searches can: their
# models are all equally good, and each is measured on digits of its own. Both make the curse larger than in a real search.
#
# And what won? If `tokens` is 1, as it was then, the winner among transformers is one whose attention has nothing to
# choose: each image is one token. In 18 short trials a network that is given the whole image at once was as good as any;
# in the recorded series four tokens have a higher mean.

# %% [markdown]
# ## Today
#
# - **Sweeps.** Training a GPT-3 sixty times is out of reach. Yang et al. 2022
#   ([arXiv:2203.03466](https://arxiv.org/abs/2203.03466)) searched on a model of 40 million parameters, scaled such that
#   good settings stay good as it grows, and beat published numbers of GPT-3 with 6.7 billion. The search cost 7 % of the
#   training.
# - **Leaderboards.** Singh et al. 2025 ([arXiv:2504.20879](https://arxiv.org/abs/2504.20879)) counted 27 private variants
#   that Meta tested on Chatbot Arena before Llama 4. Whoever shows only the best of many shows the winner's curse.
# - **New test sets.** Recht et al. 2019 ([arXiv:1902.10811](https://arxiv.org/abs/1902.10811)) made another one for
#   ImageNet. Accuracies fell by 11 to 14 points, but better models stayed better; the authors blame harder images, not
#   choosing. Not every fall is the winner's curse.
#
# So, the idea or the search? A leader's number alone cannot tell. Ask how many were tried, which data measured the
# winner, and how hard the rivals were tuned.

# %% [markdown]
# ## Optional: two claims
#
# The course started from an image [transformer](../docs/glossary.md#t) by kaifishr,
# [SciFormer](https://github.com/kaifishr/SciFormer) ([kaifishr_sciformer](../docs/references.bib)). Its README claims
# that accuracy rises with heads, head dimension and sequence length, in that order, and that more blocks always help.
# The series above were run to test that, since in a random search everything changes at once.
# By how much does accuracy rise when a hyper-parameter **doubles**? One line through each series for each seed says little
# where a series flattens (heads) or turns (tokens), but it has a sign:

# %%
def rises(name):  # one slope a seed
    x = torch.tensor([math.log2(v) for v in series[name][0]])
    y = accuracies_of(name)  # (values, seeds)
    return ((x - x.mean()) @ (y - y.mean(dim=0)) / (x - x.mean()).square().sum()).tolist()


slopes = {f"twice the {name}": rises(name) for name in series if seen}
if seen:
    apart = [a - b for a, b in zip(rises("heads"), rises("head dimension"), strict=True)]
    slopes["heads minus head dimension"] = apart
for name, values in slopes.items():
    print("{:28} {:+.2f} ± {:.2f} points".format(name, *metrics.mean_and_error(values)))
for arm in ("tokens 1", "tokens 4", "base", "tokens 196"):
    print(records.describe_record("search-claims", "validation accuracy", "quick", arm=arm))

# %% [markdown]
# The course decides a claim with five seeds or more (notebook 16), so both stay open. Accuracy rises with heads and with
# head dimension, and less with heads at equal width. Heads rise more steeply than head dimension, but only by 2.2
# standard errors; with three seeds a difference that large or larger comes up by chance with probability 0.16. With
# sequence length accuracy falls on the whole, the opposite of the claim. Size does not explain why 196 tokens do worse
# than 4, since both models have 23,914 parameters. The model with one token is the largest of its series. Its
# [attention](../docs/glossary.md#a) has nothing to choose from, and yet it does better than 16 tokens or more: 400 steps
# are too few to show what attention is worth here.
#
# *Always*, for the blocks, means every doubling:

# %%
for name in ("blocks", "blocks, same size") if seen else ():
    gains = accuracies_of(name).diff(dim=0).tolist()  # (doublings, seeds)
    told = ["{} → {}: {:+.1f} ± {:.1f}".format(n, 2 * n, *metrics.mean_and_error(gain)) for n, gain in zip((1, 2, 4), gains, strict=True)]
    print(f"{name:18}", "   ".join(told))

# %% [markdown]
# Only one doubling has a mean gain above 0, and its standard error is far larger than the gain. That speaks against
# *always*, but with more steps the order may change. Every setting has the base's learning rate, too, and for a wider or
# deeper model another one may be best.

# %% [markdown]
# ## Optional: all hyper-parameters in one picture
#
# **Parallel coordinates**: one line for each trial through its eight values, the best one thick. (Lines through the same
# value are shifted a little, so that none hides another.) Where most bright lines meet, and few dark ones, good trials
# agree. With only two or three values lines meet in any case. On which axis do bright and dark lines part?

# %%
plotting.parallel_coordinates(choices, first, log=["lr"], title=f"{kind}, first look", label="accuracy")
plotting.show("Lines through eight axes, one line for each trial, bright where it was accurate.")


# %% [markdown]
# On that of `tokens`: bright lines end at 1 and 4, dark ones at 49 and 196. The rest is hard to see without a number.

# %% [markdown]
# ## Exercises
#
# Write the function, run the cell, read what it says. Hints and a solution are folded below each.
#
# ### Exercise 1 · easy · 4 minutes
#
# `u` is uniform between 0 and 1. Turn it into draws from `low` to `high` whose **logarithm** is uniform: `u` = 0 gives
# `low`, `u` = 1 gives `high`.

# %%
def log_uniform(u, low, high):  # (N,), two numbers above 0
    raise NotImplementedError  # (N,)


check.log_uniform(log_uniform)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# What should `u = 0`, `u = 1` and `u = 0.5` give, from 1 to 100?
#
# </details>
# <details><summary>Hint 2</summary>
#
# 1, 100 and 10: each step in `u` is a factor, and all of it is `high / low`.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def log_uniform(u, low, high):
#     return low * (high / low) ** u
# ```
#
# </details>
#
# ### Exercise 2 · middle · 12 minutes
#
# Row n of `curves` holds the accuracies that trial n would have at its looks; trials run one after another. The median
# rule gives a trial up after a look if its best accuracy so far is below the median of the earlier trials that ran to
# their end. These count with their accuracy at that very look, not with their best so far. The median of an even number
# of values is the mean of the middle two. The rule spares the last look, and the first `free` trials: these run to their
# end, and count among those that did. How many looks does each trial get?

# %%
def looks_given(curves, free):  # (N, T), a whole number ≥ 1
    raise NotImplementedError  # (N,) whole numbers


check.looks_given(looks_given)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Keep a list of the rows that ran to their end. Only those are in the median, each with its value at this look.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `statistics.median` takes the mean of the two in the middle; `torch.median` takes the lower one.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def looks_given(curves, free):
#     whole, looks = [], []  # curves of those that ran to their end; looks of all
#     for n, row in enumerate(curves.tolist()):
#         given = len(row)
#         for t in range(len(row) - 1):
#             if n >= free and max(row[: t + 1]) < statistics.median(other[t] for other in whole):
#                 given = t + 1
#                 break
#         if given == len(row):
#             whole.append(row)
#         looks.append(given)
#     return torch.tensor(looks)
# ```
#
# </details>
#
# ### Exercise 3 · hard · 15 minutes
#
# `values` are the accuracies of N trials. Draw n of them at random, **with** replacement: how high is the best of the
# n, on average? Give it for n = 1, …, N, without simulating.

# %%
def expected_best(values):  # (N,)
    raise NotImplementedError  # (N,)


check.expected_best(expected_best)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Sorted upwards, the best of n is at or below the i-th value if all n draws are: $(i/N)^n$.
#
# </details>
# <details><summary>Hint 2</summary>
#
# It **is** the i-th with probability $(i/N)^n - ((i-1)/N)^n$. Weigh the sorted values with that.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def expected_best(values):
#     N = len(values)
#     share = torch.arange(N + 1, device=values.device) / N  # of values up to the i-th smallest
#     n = torch.arange(1, N + 1, device=values.device)[:, None]
#     probability = (share**n).diff(dim=1)  # (budgets, ranks): that the best of n is the i-th
#     return probability.to(values.dtype) @ values.sort().values
# ```
#
# </details>

# %% [markdown]
# ## Your turn
#
# Narrow the space around the best trials (a smaller range for `lr`, say) and search again in another storage. What
# matters now?
#
# <details><summary>Answer</summary>
#
# What has a narrower range has less variance to explain, so as a rule its share shrinks and those of the others grow: importance
# is always importance within a space. The same storage is refused, because its trials were drawn from another space.
#
# </details>

# %% [markdown]
# ## Takeaways
#
# - With every trial, random draws try a new value of each hyper-parameter that has a range, where a grid repeats a
#   few; 59 draws hit the best 5 % with a probability of more than 95 %.
# - The best of many noisy numbers is too high: the winner needs digits that did not choose it.
# - Keep finished trials where a kill cannot reach them, give up early at equal steps, and judge what mattered at a
#   look that all trials have.
# - Shares need a correction for chance and an [error bar](../docs/glossary.md#e), which ten trials cannot give. What
#   matters most depends on the space, the base and the budget.

# %% [markdown]
# ## Check yourself
#
# 1. Why is the learning rate drawn on a logarithmic scale and [dropout](../docs/glossary.md#d) not?
# 2. Two searches share a storage, and one is killed. What happens to its running trial?
# 3. A hyper-parameter has a share of 0.1 ± 0.2. Does it matter?
#
# <details><summary>Answers</summary>
#
# 1. A learning rate acts by factors, over decades. Dropout from 0 to 0.3 does not, and 0 has no logarithm.
# 2. It stays 'begun' for ever and is not counted; the other search, or a new start, finishes another one in its place.
# 3. Nobody knows: 0 lies well within the error. More trials would shrink it.
#
# </details>

# %% [markdown]
# ## Read on
#
# - Bergstra and Bengio 2012, *Random Search for Hyper-Parameter Optimization*, JMLR 13: section 1 and figure 1.
# - Akiba et al. 2019, *Optuna*, [arXiv:1907.10902](https://arxiv.org/abs/1907.10902): sections 2 and 3.
# - Dodge et al. 2019, *Show Your Work*, [arXiv:1909.03004](https://arxiv.org/abs/1909.03004): section 3; and Tang et
#   al. 2020, [arXiv:2004.13705](https://arxiv.org/abs/2004.13705), who find its formula biased.
#
# Next: 196 tokens took 152 s, 4 tokens 4 s. Where does the time go, and can the same attention be had faster?
