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
# After this notebook you can
#
# - search [hyper-parameters](../docs/glossary.md#h) at random, in ten lines, and say why not on a grid;
# - run a search that survives being killed, and gives up early on what does not learn;
# - say which hyper-parameters mattered, and how sure that is;
# - tell a lucky model from a good one.
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
# 1. You can afford nine models. There are two hyper-parameters, and only one of them matters. How many of its values
#    does a 3 × 3 grid try, and how many do nine random draws?
# 2. [Heads](../docs/glossary.md#h), [head dimension](../docs/glossary.md#h), [sequence length](../docs/glossary.md#s),
#    blocks, [learning rate](../docs/glossary.md#l): which of them matters most for the accuracy?
# 3. You keep the best of 200 models on validation. Is it as good on new digits?

# %% [markdown]
# ## Grid or random
#
# Nine points each. The arrows drop them onto the hyper-parameter that matters.

# %%
side = torch.tensor([1 / 6, 1 / 2, 5 / 6])
grid = torch.cartesian_prod(side, side)  # (9, 2)
drawn = torch.rand(9, 2, generator=torch.Generator().manual_seed(161))
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
# beforehand which one matters, a grid over that one would do. (Bergstra and Bengio 2012, [JMLR 13,
# 281–305](https://jmlr.org/papers/v13/bergstra12a.html).)
#
# Now a peak of height 1 and width 0.1 lies somewhere on that axis, 2,000 times. How high up is the best of nine?

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
# | `blocks`, `expansion` | 1, 2, 3, 4, and 1, 2, 4 times the width |
# | `dropout` | anything from 0 to 0.3 |
# | `bias`, whether the linear maps and norms add one | no, yes |
# | `lr` | anything from 0.0001 to 0.03 |

# %% [markdown]
# ## Break it: a learning rate drawn evenly
#
# `uniform(1e-4, 3e-2)` looks fair. How many of its draws lie below 0.001, in the first of two and a half decades?

# %%
u = torch.rand(10_000, generator=torch.Generator().manual_seed(0))
evenly = 1e-4 + u * (3e-2 - 1e-4)
decades = 10 ** (-4 + u * (math.log10(3e-2) + 4))
print(f"evenly: {100 * (evenly < 1e-3).float().mean():.0f} %   in decades: {100 * (decades < 1e-3).float().mean():.0f} %")

# %% [markdown]
# Only three in a hundred. What matters about a learning rate is by which factor it differs, so its **logarithm** is
# drawn uniformly.
#
# ## Ten lines by hand
#
# Choosing hyper-parameters is a kind of training, too, so choices are made on digits of their own: the last of the training digits, never those of the [test set](../docs/glossary.md#t).

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
    choice |= {"bias": random.choice([False, True]), "lr": 10 ** random.uniform(-4, -1.5)}
    accuracy = accuracy_of(choice)
    best = max(best, (accuracy, choice), key=lambda pair: pair[0])
    print(f"{n}: {100 * accuracy:.1f} %, {choice['tokens']} tokens, lr {choice['lr']:.4f}")

# %% [markdown]
# That is all of it. The package trains a choice in the same way:

# %%
run = trainers.train_to_choose(search.setting_of(shared, best[1]), 0, device=device, progress=False)
course.verdict("difference between the two", abs(run.metrics["validation accuracy"] - best[0]), below=1e-6 if device == "cpu" else 0.05)

# %% [markdown]
# What ten lines lack, once a trial takes minutes:
#
# - **A storage.** If the process is killed, everything is lost.
# - **Several processes.** Two of them would not know of each other.
# - **Pruning**, which is giving up early. What fails from the start is trained to its end.

# %% [markdown]
# ## With Optuna
#
# Optuna (Akiba et al. 2019, [arXiv:1907.10902](https://arxiv.org/abs/1907.10902)) calls a function with a `trial`.
# Every hyper-parameter that the function asks the trial for is drawn and recorded:

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
# Some samplers learn from earlier trials. Random draws are independent of each other: any number can run at once, and
# every trial counts equally when we ask what mattered.

# %% [markdown]
# ## A storage that survives a crash
#
# `search.search` draws from such a space, in the quick [profile](../docs/glossary.md#p) without its slowest values
# (196 [tokens](../docs/glossary.md#t), 8 heads, 4 blocks). Whatever happens to a trial (it begins, draws a value, is
# evaluated, ends) becomes a line in a journal.

# %%
space = search.SPACE | {"tokens": (1, 4, 16, 49), "heads": (1, 2, 4), "blocks": (1, 2, 3)}
live = search.SEARCH["quick"] if full else search.SearchSetting(small, space, looks=4, free_trials=4)
storage = Path(tempfile.mkdtemp()) / "search.journal"
trials = search.search(live, 5, storage=storage, device=device)
print(len(trials), "finished")

# %% [markdown]
# Now the power goes off in the middle of trial number 5: it has begun, and it will never end. The last line of the
# journal is half written.

# %%
search.open_study(live, storage).ask()
with storage.open("a") as journal:
    journal.write('{"op_code":5,"worker_id":"7d')
study = search.open_study(live, storage)
print(len(study.trials), "begun,", len(search.finished(study)), "finished")

# %% [markdown]
# Nothing finished is lost. The same call goes on until there are as many as asked for:

# %%
count = 60 if full else 18
trials = search.search(live, count, storage=storage, device=device)
print(len(trials), "finished; was number 5 ever?", 5 in [trial.number for trial in trials])

# %% [markdown]
# From a terminal, with two processes; on several machines, with the address of a database they all reach:
#
# ```sh
# python -m sciformer search --trials 60 --workers 2 --storage runs/search.journal
# ```
#
# Trial number $n$ draws the same hyper-parameters whoever runs it, so the draws of a search can be repeated.

# %%
again = search.search(live, 2, storage=storage.with_name("again.journal"), device=device)
print("drawn as before:", [trial.choice for trial in again] == [trial.choice for trial in trials[:2]])

# %% [markdown]
# ## Giving up early
#
# Every trial is evaluated a few times on its way; we call each evaluation a look. The **median rule**: give up a trial
# if its best accuracy so far is below the median, at the same look, of the trials that ran to their end. The first few
# (`free_trials`, four in the quick profile) are never given up. What share of the later ones will the rule give up?

# %%
plotting.trials([trial.looks for trial in trials], [trial.pruned for trial in trials], title="live search")
plotting.show(
    "Validation accuracy against steps. A few lines run to the last step; crosses at the first look mark the "
    "trials that were given up."
)


# %% [markdown]
# The rule by hand, against what Optuna decided:

# %%
def hopeless(mine, whole):  # my accuracies so far; all accuracies of those that ran to their end
    return max(mine) < statistics.median(theirs[len(mine) - 1] for theirs in whole)


whole, same = [], []
for trial in trials:
    mine = [accuracy for _, accuracy in trial.looks]
    for look in range(1, min(len(mine), live.looks - 1) + 1):
        given_up = trial.pruned and look == len(mine)
        same.append(given_up == (len(whole) >= live.free_trials and hopeless(mine[:look], whole)))
    whole += [mine] if not trial.pruned else []
print("every decision the same:", all(same))

# %% tags=["nbval-ignore-output"]
steps = live.base.train.steps
done = sum(trial.looks[-1][0] for trial in trials)
print(f"{sum(trial.pruned for trial in trials)} of {len(trials)} given up; {100 * done / (steps * len(trials)):.0f} % of the steps were run")

# %% [markdown]
# Far more than half of the later ones. The median is that of the trials that ran to their end, and a later trial joins
# them only if it keeps up with it, so the bar tends to rise. The price: trials that start slowly are pruned before they
# can catch up. And those that ran to their end are a **selection**. What all trials have is their first look, after
# equal numbers of steps. We will use it to ask what mattered.

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
# **Slices**: one panel for each hyper-parameter, everything else left to chance. The orange marks are group means with
# their standard errors. In which panel do the dots clearly rise or fall?

# %%
choices, first = [trial.choice for trial in shown], [trial.first_look for trial in shown]
plotting.slices(choices, first, log=["lr"], title=f"{kind}, first look", ylabel="accuracy")
plotting.show(
    "Eight panels, one for each hyper-parameter, with a dot for each trial. From 4 tokens to 49 accuracy falls; in the "
    "other panels the dots spread over most of the height."
)

# %% [markdown]
# **Parallel coordinates**: one line for each trial. Where most bright lines meet, and few dark ones, good trials agree.
# Where both spread alike, that hyper-parameter by itself hardly matters. (Where there are only two or three values,
# lines meet in any case.)

# %%
plotting.parallel_coordinates(choices, first, log=["lr"], title=f"{kind}, first look", label="accuracy")
plotting.show(
    "Lines through eight axes, one line for each trial, bright where it was accurate. At the axis of tokens "
    "bright lines stand at the lower end."
)

# %% [markdown]
# ## Best so far

# %%
accuracy = torch.tensor([trial.accuracy for trial in shown])
numbers = torch.arange(1, len(shown) + 1)
best_of = {"best so far": torch.tensor(search.best_so_far(shown))}
ax = plotting.dots_and_curves(numbers, accuracy, best_of, dots="trials", xlabel="trial", ylabel="accuracy at its last look", title=kind)
ax.lines[0].set_drawstyle("steps-post")
ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plotting.show(
    "Dots for the trials, spread over most of the height, and a staircase above them that is near the top "
    "from the beginning."
)

# %% [markdown]
# In another order the same trials would give another staircase. The mean over 300 orders estimates how high the best of
# $n$ trials is on validation (Dodge et al. 2019, [arXiv:1909.03004](https://arxiv.org/abs/1909.03004), have a formula;
# see exercise 3). It ignores that the order also decides which trials are given up. At the right end all orders hold
# the same trials, so the curves must meet there. After how many trials does one more hardly help?

# %%
generator = torch.Generator().manual_seed(0)
orders = torch.stack([accuracy[torch.randperm(len(shown), generator=generator)] for _ in range(300)])
stairs = orders.cummax(dim=1).values  # (orders, trials)
lines = {"mean of 300 orders": stairs.mean(dim=0), "one order in ten is below": stairs.quantile(0.1, dim=0)}
ax = plotting.dots_and_curves(numbers, accuracy, lines, dots="trials", xlabel="trials", ylabel="accuracy", title=f"best so far, {kind}")
ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plotting.show(
    "Dots for the trials and two curves that rise steeply over the first ten trials and then hardly at all."
)

# %% [markdown]
# ## Break it: the winner's curse
#
# Prediction 3. Take 200 models that are **all alike**: each is right on 95 % of all digits. Each is measured on 500
# digits of its own, and the highest wins. (Line: mean of 50 such searches; band: one standard error.)

# %%
generator = torch.Generator().manual_seed(0)
right = torch.rand(50, 200, 500, generator=generator) < 0.95  # 50 searches
measured = right.float().mean(dim=-1)  # (searches, models)
winner = measured.cummax(dim=1).values
ax = plotting.bands({"the winner, on validation": winner}, xlabel="models tried", ylabel="accuracy", title="200 models of 95 %")
ax.axhline(0.95, color="0.4", linestyle="--")
plotting.show(
    "The accuracy of the winner rises with the number of models tried, steeply at first, away from a dashed "
    "line at 95 per cent."
)
print(f"the winner of 200 on validation: {100 * winner[:, -1].mean():.0f} %, on new digits: 95 %")

# %% [markdown]
# Nobody cheated. The largest of many noisy numbers is too large: the more numbers, the more so, and fewer digits mean
# more noise. This is the **winner's curse**. (In a real search all models see the same digits and tend to miss the same
# ones, which makes it smaller.) So the winner is measured once more, on digits that chose nothing: the test digits.
# They choose nothing afterwards, either.

# %% [markdown]
# ## What mattered?
#
# Sort the trials into groups by one hyper-parameter. How much of the variance of accuracy is variance **between** groups?
#
# $$\text{share} = 1 - \frac{\text{squares around the groups' means}}{\text{squares around the mean of all}}$$
#
# Six trials, by hand:

# %%
heads, accuracies = [1, 1, 2, 2, 4, 4], [0.80, 0.84, 0.86, 0.88, 0.90, 0.86]
means = {h: statistics.mean(a for a, own in zip(accuracies, heads, strict=True) if own == h) for h in (1, 2, 4)}
within = sum((a - means[h]) ** 2 for a, h in zip(accuracies, heads, strict=True))
whole = sum((a - statistics.mean(accuracies)) ** 2 for a in accuracies)
print(f"between the groups: {1 - within / whole:.2f}")

# %% [markdown]
# ## Break it: shares from nothing
#
# The same for a hyper-parameter that does nothing at all. 16 trials, five groups, accuracies that are pure noise; mean
# of 1,000 such searches:

# %%
generator = torch.Generator().manual_seed(0)
groups = [n % 5 for n in range(16)]
noise = torch.randn(1000, 16, generator=generator)
corrected = [search.explained(groups, row) for row in noise.tolist()]
plain = [1 - (1 - share) * (16 - 5) / (16 - 1) for share in corrected]
print(f"plain: {statistics.mean(plain):.2f}   corrected: {abs(statistics.mean(corrected)):.2f}")

# %% [markdown]
# More than a quarter, although there is nothing to find: the mean of a group always fits its own group. With $n$
# trials and $k$ groups,
#
# $$\varepsilon^2 = 1 - \frac{n - 1}{n - k} \cdot \frac{\text{squares around the groups' means}}{\text{squares around the mean of all}}$$
#
# subtracts what is expected by chance (Kelley 1935, *An unbiased correlation ratio measure*,
# [doi:10.1073/pnas.21.9.554](https://doi.org/10.1073/pnas.21.9.554)). Values that hardly repeat, like those of `lr`,
# are grouped in quarters.

# %%
by_hand = 1 - (6 - 1) / (6 - 3) * within / whole
print(f"by hand {by_hand:.2f}, package {search.explained(heads, accuracies):.2f}")

# %% [markdown]
# And how sure is that? **Jackknife**: leave out one trial after the other, and see how much the share moves. With
# $\theta_i$ the share without trial $i$ and $\bar\theta$ the mean of all $n$ of them:
#
# $$\text{error} = \sqrt{\tfrac{n-1}{n} \textstyle\sum_i (\theta_i - \bar\theta)^2}$$

# %%
shares = {"live": search.importance([t.choice for t in trials], [t.first_look for t in trials])}
if recorded is not None:
    shares = {"recorded": search.importance(choices, first)} | shares
plotting.with_errors(shares, xlabel="share of the variance at the first look", title="what mattered")
plotting.show(
    "Shares of the variance with error bars, from the recorded and from the live search. The recorded share "
    "of tokens is far to the right of 0; most other bars reach over 0."
)


# %% [markdown]
# The bars are one error long on either side. A true share is never below 0, and yet three of the recorded ones
# (`bias`, `expansion`, `dropout`) lie below 0 with their whole bar. The correction for chance can take off more than is
# there: if all groups have the same mean, it leaves $1 - \frac{n-1}{n-k}$, a little below 0, and these three are near
# that floor. One error is a short bar, too: a bar that just clears 0 on the right proves little. Of the recorded
# shares, only that of `tokens` is several errors above 0. How many trials did that take? Move the slider:

# %%
def with_trials(n):
    return plotting.with_errors({f"{n} trials": search.importance(choices[:n], first[:n])}, xlabel="share of the variance")


alt = "Shares of the variance with their errors, for the first trials of the search"
explore(with_trials, alt=alt, n=ipywidgets.IntSlider(len(shown), 10, len(shown), 2, description="trials"))

# %% [markdown]
# Prediction 2: in the recorded search it is the sequence length, by far. No other share is sure to be above 0, not
# even that of the learning rate; and in the live search, with its few trials, none was when this page was made. The
# shares count each hyper-parameter by itself; what two do together is in none of them. They belong to **this space**
# and to **this look**: drawn from a narrower range, a hyper-parameter has less to explain; after more steps, a small
# learning rate has had time.

# %% [markdown]
# ## The claims, at equal steps
#
# The course started from an image [transformer](../docs/glossary.md#t) by kaifishr,
# [SciFormer](https://github.com/kaifishr/SciFormer) ([kaifishr_sciformer](../docs/references.bib)). Its README claims
# that accuracy rises with heads, head dimension and sequence length, in that order, and that more blocks always help.
# A [random search](../docs/glossary.md#r) is badly suited to test single claims, because everything changes at once. So
# we change **one** thing at a time around one setting, with the same steps and three [seeds](../docs/glossary.md#s).

# %% [markdown]
# More heads of the same dimension make a larger model. Two series are therefore also run at **equal size**: more heads
# that share one width, and more blocks that are narrower.

# %%
content = records.load_record("search-claims", "quick")
for arm in ("base", "heads 8", "head dimension 16", "tokens 1", "tokens 4", "tokens 196", "blocks 8", "heads 8, same size", "blocks 8, same size"):
    print(records.describe_record("search-claims", "validation accuracy", "quick", arm=arm))
print("steps of every run:", content["config"]["base"]["train"]["steps"] if content else "not recorded yet")

# %%
measured = {}
for run in content["runs"] if content else []:
    measured.setdefault(run["arm"], []).append(run["metrics"]["validation accuracy"])

series = {"heads": [1, 2, 4, 8], "head dimension": [2, 4, 8, 16], "tokens": [1, 4, 16, 49, 196], "blocks": [1, 2, 4, 8]}
series |= {"heads, same size": [1, 2, 4, 8, 16], "blocks, same size": [1, 2, 4, 8]}
base = {"heads": 4, "head dimension": 8, "tokens": 49, "blocks": 2}


def arms_of(name):  # the arms of one series, in the order of its values
    kind, *same = name.split(", ")
    return ["base" if v == base[kind] else ", ".join([f"{kind} {v}", *same]) for v in series[name]]


# %%
if measured:
    _, axes = plt.subplots(2, 3, figsize=(10, 5.6), sharey=True, layout="constrained")
    for ax, (name, values) in zip(axes.flat, series.items(), strict=True):
        runs = torch.tensor([measured[arm] for arm in arms_of(name)]).T  # (seeds, values)
        plotting.bands({name: runs}, x=range(len(values)), xlabel=name, ylabel="", ax=ax)
        ax.set(xticks=range(len(values)), xticklabels=values)
    axes[0, 0].set_ylabel("validation accuracy")
    axes[1, 0].set_ylabel("validation accuracy")
    plotting.show(
        "Six panels with error bars. Accuracy rises with heads and with head dimension, is highest at few "
        "tokens and falls beyond, and falls with the blocks."
    )


# %% [markdown]
# Each series as one number: by how much accuracy rises when the hyper-parameter **doubles**, a line through its
# values, one for each seed.

# %%
def rises(name):  # one slope a seed
    x = torch.tensor([math.log2(v) for v in series[name]])
    y = torch.tensor([measured[arm] for arm in arms_of(name)])  # (values, seeds)
    return ((x - x.mean()) @ (y - y.mean(dim=0)) / (x - x.mean()).square().sum()).tolist()


# %%
slopes = {f"twice the {name}": rises(name) for name in series if measured}
if measured:
    apart = [a - b for a, b in zip(rises("heads"), rises("head dimension"), strict=True)]
    slopes["heads minus head dimension"] = apart
for name, values in slopes.items():
    print("{:28} {:+.2f} ± {:.2f} points".format(name, *(100 * x for x in metrics.mean_and_error(values))))

# %% [markdown]
# Three seeds decide nothing yet, by the rule of the course (notebook 16); here is what they show. In the quick profile
# accuracy rises with heads and with head dimension, both of which make the model wider, and with heads at equal width,
# too, although each head is smaller then. The slope is steeper for heads than for head dimension, but only by 2.2
# [standard errors](../docs/glossary.md#s), and with three seeds a difference that large or larger comes up by chance
# with probability 0.16 (notebook 16 has the formula).
#
# With sequence length accuracy falls on the whole, the opposite of what is claimed. **One token and four tokens have
# the highest means**, close to 93 and 94 %; the base with 49 tokens is at 81 %, and 196 tokens are far behind. Size does
# not explain why 196 tokens do worse than 4: both models have 23,914 parameters. But the model with one token is the
# largest of its series, with 42,634. Its [attention](../docs/glossary.md#a) has nothing to choose from: the only weight
# is 1. So after these few steps a model without any attention between tokens has a higher mean than every longer
# sequence but four tokens. What attention is worth on this task, this budget cannot show.
#
# *Always*, for the blocks, means every doubling, of the growing models and of those of equal size:

# %%
for kind in ("blocks", "blocks, same size"):
    for fewer, more in ((1, 2), (2, 4), (4, 8)):
        found = "not recorded yet"
        if measured:
            names = ["base" if n == 2 else kind.replace("blocks", f"blocks {n}") for n in (fewer, more)]
            gains = [b - a for a, b in zip(*(measured[name] for name in names), strict=True)]
            found = "{:+.2f} ± {:.2f} points".format(*(100 * x for x in metrics.mean_and_error(gains)))
        print(f"{kind:18} {fewer} → {more}: {found}")

# %% [markdown]
# Only one doubling has a mean gain above 0, the first of the growing models, and its standard error is far larger than
# the gain. With all others the mean accuracy falls. That speaks against *always*, but three seeds do not decide it, and
# with more steps the order may change.
#
# One caution: every arm has the base's learning rate, and for a wider or deeper model another one may be best.
#
# ## The winner
#
# Is a real winner cursed, too? The live search's best choice is trained again, once for as many steps as in the search
# and once for four times as many, and tested. Only the pair at equal steps bears on the curse:

# %%
best = max(trials, key=lambda trial: trial.accuracy)
winner = search.setting_of(shared, best.choice)
once = trainers.train_image_transformer(winner, 0, device=device, progress=False, looks=1)
winner = replace(winner, train=replace(winner.train, steps=4 * winner.train.steps))
run = trainers.train_image_transformer(winner, 0, device=device, progress=False, looks=1)

# %% tags=["nbval-ignore-output"]
print(f"validation in the search {100 * best.accuracy:.1f} %, test after as many steps {100 * once.metrics['test accuracy']:.1f} %")
print(f"test after four times the steps {100 * run.metrics['test accuracy']:.1f} %")
print(", ".join(f"{name} {value:.3g}" for name, value in best.choice.items()))

# %%
course.verdict("test accuracy of the winner", run.metrics["test accuracy"], above=0.8, measured="quick")
images, labels = (torch.cat(parts) for parts in zip(*winner.test_batches(), strict=True))
with torch.no_grad():
    predicted = run.model.cpu().eval()(images).argmax(dim=-1)
plotting.confusion(metrics.confusion_matrix(predicted, labels, 10))
plotting.show("A table of the mistakes by digit and by what it was taken for, with the diagonal left blank.")


# %% [markdown]
# Read the list of what won. If `tokens` is 1, as it was when this page was made, then the winner among transformers is
# one whose attention has nothing to choose: each image is one token. That is no failure of the search. In 18 short
# trials, few of them trained to the end, a network that is given the whole image at once was as good as any; in the
# recorded runs above, four tokens have a higher mean.
#
# One pair of numbers cannot show the winner's curse: the 500 validation digits alone have an error of about 1.5 points
# at this accuracy. The 50 simulated searches above do, for models that are all equally good, each on digits of its own;
# both make it larger.

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
# rule gives a trial up after a look if its best accuracy so far is below the median of what the trials before it that
# ran to their end had at this very look (there, and not at best until then). The median of an even number of values is
# the mean of the middle two. The rule spares the last look, and the first `free` trials: these run to their end, and
# count among those that did. How many looks does each trial get?

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
# - Keep finished trials where a kill cannot reach them, give up early at equal steps, and judge what mattered at a
#   look that all trials have.
# - Shares need a correction for chance and an [error bar](../docs/glossary.md#e). The winner needs digits that did not
#   choose it.

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
# Next: the same attention, faster.
