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
# In 2017 Melis, Dyer and Blunsom ([arXiv:1707.05589](https://arxiv.org/abs/1707.05589)) took an old language model, the
# LSTM (a recurrent network), and the newer models that had overtaken it, and gave all of them the same large search for
# good settings. The LSTM came out ahead. So when a model leads a table, was it the idea, or did somebody search longer?
# **How large a lead can searching alone make, and how do people fool themselves on the way?**
#
# Here two teams will search with one and the same idea, one of them longer. After this notebook you can
#
# - search [hyper-parameters](../docs/glossary.md#h) at random, in ten lines, and compare that with a grid;
# - run a search that survives being killed, and gives up early on what does not learn;
# - say how large a lead comes from searching alone, and how far to trust the best number of a search;
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
from sciformer.lab import claims, search, trainers
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
# 2. You keep the best of 200 models by its accuracy on **validation** digits, which are set aside for choosing. Is it as
#    good on digits that chose nothing?
# 3. Two teams search the same space for the same kind of model and report their best. Team A has 5 trials, team B 20. By
#    how many points (hundredths of accuracy) is B ahead on average, and how often is A ahead?
# 4. [Heads](../docs/glossary.md#h), [head dimension](../docs/glossary.md#h), [sequence length](../docs/glossary.md#s),
#    blocks: which of them matters most for the accuracy?

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
# But random points leave gaps. Suppose the accuracy has a narrow peak, 1 high and at half its height 0.17 wide, somewhere
# along the hyper-parameter that matters. Over 2,000 positions of the peak, how high up is the best of nine on average?

# %%
generator = torch.Generator().manual_seed(0)
peak = torch.rand(2000, 1, generator=generator)
ways = {"grid": grid[:, 0].expand(2000, 9), "random": torch.rand(2000, 9, generator=generator)}
for name, x in ways.items():
    reached = torch.exp(-(((x - peak) / 0.1) ** 2)).amax(dim=1)  # 1 at the peak
    print(f"{name:7} mean of the best of nine: {reached.mean():.1f}")

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
# | `expansion`: width inside the feed-forward layer, in widths of a token | 1, 2, 4 |
# | [`dropout`](../docs/glossary.md#d) | anything from 0 to 0.3 |
# | `bias`: whether the linear maps and norms add one | False, True |
# | `lr`, the [learning rate](../docs/glossary.md#l) | anything from 0.0001 to 0.03 |

# %%
values = {name: len(some) for name, some in search.SPACE.items() if isinstance(some, tuple)}
print(math.prod(values.values()), "combinations of", ", ".join(values))

# %% [markdown]
# A full grid needs that many trials for a single value of `dropout` and of `lr`; in these two every random draw is a new
# value. The other six have few values, so random draws repeat them, as a grid does; but any 20 draws hold nearly all.
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
# Only three in a hundred. Nobody knows beforehand which decade is best, so each should get an equal share of the draws:
# the **logarithm** of the learning rate is drawn uniformly.
#
# ## Ten lines by hand
#
# Choosing is a kind of training, too, so it needs digits of its own: the last of MNIST's training digits are set aside,
# and no trial trains on them. They are not the [test set](../docs/glossary.md#t). In the quick
# [profile](../docs/glossary.md#p) there are 500, a trial has 100 steps, and the slowest values (196
# [tokens](../docs/glossary.md#t), 8 heads, 4 blocks) are left out.

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
    print(f"{n}: {100 * accuracy:.1f} %, {choice['heads']} heads, lr {choice['lr']:.4f}")

# %% [markdown]
# That is all of it. The package trains a choice in the same way:

# %%
run = trainers.train_to_choose(search.setting_of(shared, best[1]), 0, device=device, progress=False)
course.verdict("difference between the two", abs(run.metrics["validation accuracy"] - best[0]), below=1e-6 if device == "cpu" else 0.05)

# %% [markdown]
# ## A search that survives a crash
#
# In a search of hours the ten lines lack three things: if the process is killed, everything is lost; two processes would
# not know of each other; and what fails from the start is trained to its end. Optuna (Akiba et al. 2019,
# [arXiv:1907.10902](https://arxiv.org/abs/1907.10902)) has all three. Our `search.search` asks it for each value, for
# example with `trial.suggest_float("lr", 1e-4, 3e-2, log=True)`. Whatever happens to a trial (it begins, draws a value, is
# evaluated, ends) becomes a line in a file, the **journal**.
#
# What draws is the **sampler**. Some samplers learn from earlier trials. Random draws are independent of each other: any
# number can run at once, and every trial counts equally when we ask what mattered.

# %%
if importlib.util.find_spec("optuna") is None:  # Colab
    subprocess.check_call([sys.executable, "-m", "pip", "install", "-q", "optuna"])
space = search.SPACE | {"tokens": (1, 4, 16, 49), "heads": (1, 2, 4), "blocks": (1, 2, 3)}
live = search.SEARCH["quick"] if full else search.SearchSetting(small, space, looks=4, free_trials=4)
journal = Path(tempfile.mkdtemp()) / "search.journal"
trials = search.search(live, 5, storage=journal, device=device)
print(len(trials), "finished")

# %% [markdown]
# Trials are counted from 0, so the next one is number 5. In the middle of it the power goes off: the trial will never end,
# and the last line of the journal is half written. How many trials does the next start find?

# %%
search.open_study(live, journal).ask()  # begins trial number 5
with journal.open("a") as file:
    file.write('{"op_code":5,"worker_id":"7d')  # the beginning of a line
study = search.open_study(live, journal)
print(len(study.trials), "begun,", len(search.finished(study)), "finished")

# %% [markdown]
# No finished trial is lost: opening the journal cuts off a half-written last line. The same call goes on:

# %%
count = 60 if full else 18
trials = search.search(live, count, storage=journal, device=device)
print(len(trials), "finished; was number 5 ever?", 5 in [trial.number for trial in trials])
other = search.search(live, 2, storage=journal.with_name("other.journal"), device=device)
print("another search draws the same:", [trial.choice for trial in other] == [trial.choice for trial in trials[:2]])

# %% [markdown]
# The number of a trial is the seed of its draws, so trial number $n$ draws the same hyper-parameters in any process. From a
# terminal, with two processes; on several machines, with the address of a database they all reach:
#
# ```sh
# python -m sciformer search --trials 60 --workers 2 --storage runs/search.journal
# ```
#
# ## Giving up early
#
# Every trial is evaluated a few times on its way; we call each evaluation a **look**. The **median rule** gives a trial up
# if its best accuracy so far is below the median, at the same look, of the trials that ran to their end. (The field says
# that the trial is **pruned**.) The first four run to their end, so that there is a median. Of the 14 trials after them,
# how many will the rule give up? Half?

# %%
at_first, later = trials[: live.free_trials], trials[live.free_trials :]
shifted = [[(step + n / 3, accuracy) for step, accuracy in trial.looks] for n, trial in enumerate(trials)]
ax = plotting.trials(shifted, [trial.pruned for trial in trials], title="live search")
looks = zip(*[trial.looks for trial in at_first], strict=True)
medians = [(look[0][0], statistics.median(accuracy for _, accuracy in look)) for look in looks]
ax.plot(*zip(*medians, strict=True), color="0.3", linestyle="--", label="median of the first ones")
ax.legend(frameon=False, loc=(0.5, 0.2))
plotting.show(
    "Validation accuracy against steps: a line for each trial that ran to its end, a cross where a trial was given up, each "
    "trial a little to the right of the one before it, and a dashed line, the median of the first trials, which may not be given up."
)

# %% tags=["nbval-ignore-output"]
done = sum(trial.looks[-1][0] for trial in trials) / (live.base.train.steps * len(trials))
print(f"{sum(trial.pruned for trial in later)} of {len(later)} given up; {100 * done:.0f} % of all steps were run")
print("first look of the first ones:", ", ".join(f"{trial.first_look:.2f}" for trial in at_first), f"  median {medians[0][1]:.3f}")
print(f"best first look of those given up: {max((trial.first_look for trial in later if trial.pruned), default=math.nan):.3f}")

# %% [markdown]
# When this page was made, 13 of the 14 were given up, far more than half. The four that set the median were lucky: three of
# them were above 0.5 at their first look, and no trial that was given up reached their median, 0.571. (A later trial that
# runs to its end joins the median. With several processes it depends on which trials have ended, so who is pruned may differ.)
#
# The price: trials that start slowly are pruned before they can catch up. And those that ran to their end are a
# **selection**. What all trials have is their first look, after equal numbers of steps. That is what we will compare.

# %% [markdown]
# ## Break it: 200 models that are all alike
#
# A search keeps the largest of its numbers. How far should one trust it? Take 200 models, each of them right on 95 % of
# all digits. Each is measured on 500 digits of its own, and the highest wins. Which accuracy does the winner of 200 show?

# %%
generator = torch.Generator().manual_seed(0)
right = torch.rand(50, 200, 500, generator=generator) < 0.95  # 50 searches
measured = right.float().mean(dim=-1)  # (searches, models)
highest = measured.cummax(dim=1).values
anew = torch.rand(50, 500, generator=generator) < 0.95  # the 50 winners on 500 new digits
lines = {"the winner, mean of 50 searches": highest.mean(dim=0), "one search in ten is above": highest.quantile(0.9, dim=0)}
ax = plotting.curves({name: line.tolist() for name, line in lines.items()}, xlabel="models tried", ylabel="accuracy", title="200 models of 95 %")
ax.axhline(0.95, color="0.4", linestyle="--", label="every model, on all digits")
ax.legend(frameon=False, loc=(0.4, 0.2))
plotting.show("The validation accuracy of the winner against the number of models tried, mean and a high one, and a dashed line at 95 per cent.")
print(f"one model on 500 digits: 95 ± {100 * math.sqrt(0.95 * 0.05 / 500):.1f} %")
print(f"the winner of 200 on validation: {100 * highest[:, -1].mean():.1f} %, on new digits: {100 * anew.float().mean():.1f} %")

# %% [markdown]
# Prediction 2: no, and nobody cheated. The largest of many noisy numbers is too large: the more numbers, the more so,
# and fewer digits mean more noise. This is the **winner's curse**. (In a real search all models see the same digits and
# tend to miss the same ones, which makes it smaller.) So the winner is measured once more, on the test digits, which chose
# nothing. They choose nothing afterwards, either.
#
# ## A real winner
#
# Is the winner of the live search cursed, too? Train its choice again from its own [seed](../docs/glossary.md#s), so that
# the model is the same one, and measure it on test digits; then once more with four times the steps. What do you expect
# of the same model?

# %%
top = max(trials, key=lambda trial: trial.accuracy)
winner = search.setting_of(shared, top.choice)
once = trainers.train_image_transformer(winner, top.number, device=device, progress=False, looks=1)
longer = replace(winner, train=replace(winner.train, steps=4 * winner.train.steps))
run = trainers.train_image_transformer(longer, top.number, device=device, progress=False, looks=1)

# %% tags=["nbval-ignore-output"]
digits = sum(len(labels) for _, labels in winner.test_batches())
told = {"validation, in the search": (top.accuracy, shared.held_out), "test, the same model": (once.metrics["test accuracy"], digits)}
for name, (share, n) in (told | {"test, four times the steps": (run.metrics["test accuracy"], digits)}).items():
    print(f"{name:26} {100 * share:.1f} ± {100 * math.sqrt(share * (1 - share) / n):.1f} %, {n} digits")

# %%
once_more = evaluate(once.model.to(device), winner.held_out_batches(device), metrics.accuracy)
course.verdict("validation accuracy, now and in the search, differs", abs(once_more - top.accuracy), below=1e-6 if device == "cpu" else 0.05)
course.verdict("test accuracy of the winner", run.metrics["test accuracy"], above=0.8, measured="quick")

# %% [markdown]
# After the curse one expects a lower accuracy; when this page was made it was 2 points **higher**. One pair of numbers
# cannot show the curse: the 500 validation digits alone have an error of 1.5 points. The 50 simulated searches can, and
# there the curse is larger than in a real one: all models are equally good, and each is measured on digits of its own.
#
# ## Two teams, one idea
#
# Now the question of the beginning. Teams A and B search the whole space with the same kind of model; A has 5 trials, B
# has 20. A search of 60 trials, recorded in `results/`, stands in for both: draw 5 of the 60 for A and 20 others for B, and
# repeat that 2,000 times. Each trial counts with its accuracy at its first look, after 75 steps, on 2,000 validation
# digits. Neither side has the better idea, so a lead comes from luck or from searching longer. To tell these apart, B also
# searches with only 5 trials. **Predict** how often B is then more than five points ahead.

# %%
recorded = search.load_search("quick")
many = recorded[0] if recorded else []
first = 100 * torch.tensor([trial.first_look for trial in many])  # accuracies in %
generator = torch.Generator().manual_seed(0)
orders = torch.rand(2000, len(many), generator=generator).argsort(dim=1)  # in each row the trials in another order


def tell(name, a, b):  # the best of each team, (draws,)
    lead = b - a
    print(f"{name}: A {a.mean():.1f} %, B {b.mean():.1f} %, mean lead of B {lead.mean():.1f} points, median {lead.median():.1f}")
    print(f"    B more than 5 points ahead: {100 * (lead > 5).float().mean():.0f} % of the draws   A ahead: {100 * (lead < 0).float().mean():.0f} %")


if many:
    tell("5 against 5", first[orders[:, :5]].amax(dim=1), first[orders[:, 5:10]].amax(dim=1))
    tell("5 against 20", first[orders[:, :5]].amax(dim=1), first[orders[:, 5:25]].amax(dim=1))

# %% [markdown]
# Prediction 3: fifteen more trials are worth 8.2 points on average, and in 21 % of the draws the team with a quarter of the
# trials is ahead all the same. B is more than five points ahead in 48 % of the draws. But with 5 trials each it is so in
# 32 %, by luck alone. One pair of searches says little, whoever wins it. (All this after 75 steps, in a space so wide that
# the mean trial reads half of the digits. In a narrower one the leads would be smaller.)
#
# How does the best of $n$ trials grow with $n$? (Dodge et al. 2019, [arXiv:1909.03004](https://arxiv.org/abs/1909.03004),
# have a formula for the mean, with replacement: exercise 3.) After how many trials does one more hardly help?

# %%
if many:
    stairs = first[orders].cummax(dim=1).values  # (orders, trials), the best so far
    lines = {"one order in ten is above": stairs.quantile(0.9, dim=0), "mean of 2,000 orders": stairs.mean(dim=0)}
    lines |= {"one order in ten is below": stairs.quantile(0.1, dim=0)}
    ax = plotting.curves({name: line.tolist() for name, line in lines.items()}, xlabel="trials", ylabel="best accuracy, %", title="first look")
    for n, team in ((5, "A"), (20, "B")):
        ax.axvline(n, color="0.6", linestyle=":")
        ax.text(n + 0.5, 25, team)
    plotting.show("The best accuracy so far against the number of trials: a mean, a high and a low order; dotted lines for teams A and B.")
    print("   ".join(f"best of {n}: {stairs[:, n - 1].mean():.1f} %" for n in (1, 5, 10, 20, 40, 60)))
    last = 100 * torch.tensor([trial.accuracy for trial in many])
    print(f"{sum(trial.pruned for trial in many)} of {len(many)} were given up")
    tell("last look", last[orders[:, :5]].amax(dim=1), last[orders[:, 5:25]].amax(dim=1))

# %% [markdown]
# From 10 trials to 20 the best gains 2.4 points, from 20 to 60 another 1.2. What a longer search brings is above all
# safety: the low curve rises most.
#
# Pruning blurs the picture. At the last look the mean lead is about the same, the median less than half: good trials had up
# to 300 steps and draw level, while the 48 that were given up, most after 75 steps, count with the accuracy they had then.
#
# Not measured: other searches than this one of 60, more steps without pruning, and test digits, so each best still has its
# winner's curse.
#
# ## What did team A miss?
#
# Which hyper-parameter makes a trial good? **Slices**: one panel for each hyper-parameter, everything else left to
# chance. Orange: means with [standard errors](../docs/glossary.md#s), for each value or, where values hardly repeat, for
# each quarter of the trials. Where do the dots clearly rise or fall?

# %%
shown, kind = (many, "recorded") if many else (trials, "live")  # without a record, the live search
choices, accuracies = [trial.choice for trial in shown], [trial.first_look for trial in shown]
plotting.slices(choices, accuracies, log=["lr"], title=f"{kind} search, first look", ylabel="accuracy")
plotting.show(
    "Eight panels, one for each hyper-parameter, with a dot for each trial at its accuracy, and orange means of groups "
    "with error bars."
)

# %%
for name in ("tokens", "blocks", "heads"):
    own = {value: [y for one, y in zip(choices, accuracies, strict=True) if one[name] == value] for value in search.SPACE[name]}
    means = {value: metrics.mean_and_error(ys) for value, ys in own.items() if ys}
    print(f"{name:6}", "   ".join(f"{value}: {100 * mean:.0f} ± {100 * error:.0f} %" for value, (mean, error) in means.items()))


# %% [markdown]
# In one panel clearly: from 4 tokens to 49 the accuracy falls by 41 points. The means of the heads and of the blocks differ
# too, by up to 18 and 15 points, with errors of 5 to 7 each. Is that more than luck? It takes a number.
#
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


six_heads, six = [1, 1, 2, 2, 4, 4], [0.80, 0.84, 0.86, 0.88, 0.90, 0.86]
print(f"between the groups: {plain_share(six_heads, six):.2f}")

# %% [markdown]
# ## Break it: a hyper-parameter that does nothing
#
# 16 trials in five groups, with accuracies that are pure noise: the hyper-parameter does nothing at all. Which share will
# it have, in the mean of 1,000 such searches?

# %%
generator = torch.Generator().manual_seed(0)
nothing = [n % 5 for n in range(16)]
noise = torch.randn(1000, 16, generator=generator).tolist()
print(f"plain: {statistics.fmean(plain_share(nothing, row) for row in noise):.2f}")

# %% [markdown]
# More than a quarter, although there is nothing to find: the mean of a group always fits its own group. Of $n$ deviations
# from the mean of all, $n - 1$ are free, since they add up to 0; around the means of $k$ groups only $n - k$ are. Noise
# gives each free one the same square on average, so the ratio of squares is $(n - k) / (n - 1)$ in place of 1. Divide by
# that, and call the result $\varepsilon^2$ (Kelley 1935, *An unbiased correlation ratio measure*,
# [doi:10.1073/pnas.21.9.554](https://doi.org/10.1073/pnas.21.9.554)):
#
# $$\varepsilon^2 = 1 - \frac{n - 1}{n - k} \cdot \frac{\text{squares around the groups' means}}{\text{squares around the mean of all}}$$
#
# And how sure is a share? **Jackknife**: leave out one trial after the other, and see how much the share moves. With
# $\theta_i$ the share without trial $i$ and $\bar\theta$ the mean of all $n$ of them:
#
# $$\text{error} = \sqrt{\tfrac{n-1}{n} \textstyle\sum_i (\theta_i - \bar\theta)^2}$$
#
# Leaving out one trial changes far less than a new search would. Hence the factor $(n-1)/n$ in place of a small $1/n$: with
# it the jackknife gives exactly the standard error of a mean.

# %%
print(f"noise, corrected: {statistics.fmean(search.explained(nothing, row) for row in noise):+.3f}")
by_hand = 1 - (6 - 1) / (6 - 3) * (1 - plain_share(six_heads, six))
print(f"six trials: by hand {by_hand:.2f}, package {search.explained(six_heads, six):.2f}")
without = [statistics.fmean(six[:i] + six[i + 1 :]) for i in range(6)]
jackknife = math.sqrt(5 / 6 * sum((theta - statistics.fmean(without)) ** 2 for theta in without))
print(f"error of their mean: jackknife {jackknife:.4f}, standard error {statistics.stdev(six) / math.sqrt(6):.4f}")


# %% [markdown]
# Here are the shares of the recorded search after its first ten trials. Where will the dot of `tokens` be after 60? Decide,
# then move the slider.

# %%
def shares_of(chosen, values):  # rows always in the order of the space
    found = search.importance(chosen, values)
    return {name: found[name] for name in search.SPACE}


def with_trials(n):
    rows = shares_of(choices[:n], accuracies[:n])
    return plotting.with_errors({"": rows}, xlabel="share of the variance, first look", title=f"the first {n} trials")


alt = "Shares of the variance with their errors, one row for each hyper-parameter, for the first trials of the search"
explore(with_trials, alt=alt, n=ipywidgets.IntSlider(10, 10, len(shown), 2, description="trials"))

# %%
half = len(shown) // 2
for start, end in ((0, 10), (0, 20), (0, 40), (0, 60), (0, half), (half, 2 * half)):
    if end <= len(shown):
        share, error = search.importance(choices[start:end], accuracies[start:end])["tokens"]
        print(f"trials {start + 1:2} to {end:2}: tokens {share:.2f} ± {error:.2f}")

# %% [markdown]
# With ten trials the share is 0.95 ± 0.03, and with all 60 it is 0.53 ± 0.10, far outside the first error. Forty fooled us,
# too: 0.76 ± 0.08. The error is estimated from the same trials, and these happened to agree. So don't take the error of 60
# trials too literally, either. But the two halves of the search are independent, and in both the share is about two errors
# above 0 or more.
#
# Does another hyper-parameter come near? The last column is the smallest possible share, that of groups with equal means.

# %%
shares = shares_of(choices, accuracies)
plotting.with_errors({kind: shares}, xlabel="share of the variance, first look", title=f"what mattered, {len(shown)} trials")
plotting.show("Shares of the variance, one row for each hyper-parameter, with error bars and a dashed line at 0.")
for name, (share, error) in shares.items():
    n, k = len(shown), len(set(search.groups_of([one[name] for one in choices])))
    print(f"{kind} {name:9} {share:+.3f} ± {error:.3f}   smallest possible {1 - (n - 1) / (n - k):+.3f}")

# %% [markdown]
# The sequence length, by far. No other share is two errors above 0, not even that of the learning rate. The blocks have
# 0.00 ± 0.06, for all that their means fall.
#
# A true share is never negative, but the estimates for `bias`, `expansion` and `dropout` are, with their whole bars: by luck
# their groups differ less than groups differ by chance on average, so the correction takes off too much. (A bar is one
# error long on either side; the jackknife does not know the smallest possible share and can reach below it.)
#
# Now we can say what team A missed. **What is it worth to know it beforehand?** Let A draw its five trials from the 29 with
# 1 or 4 tokens, and B its 20 from all the others.

# %%
if many:
    few = torch.tensor([trial.choice["tokens"] <= 4 for trial in many])
    keys = torch.rand(2, 2000, len(many), generator=torch.Generator().manual_seed(0))
    of_a = (keys[0] + 2 * ~few).argsort(dim=1)[:, :5]  # only those with few tokens
    of_b = keys[1].scatter(1, of_a, 2.0).argsort(dim=1)[:, :20]  # any but those of A
    tell(f"{few.sum()} for A", first[of_a].amax(dim=1), first[of_b].amax(dim=1))

# %% [markdown]
# The lead of B falls from 8.2 points to 1.6: to know which values are good is worth most of what fifteen trials are, and a
# table of results does not show who knew. (We flatter A: we learnt these values from the same 60 trials.)

# %% [markdown]
# ## One change at a time
#
# The other way to ask: change **one** thing at a time around a base, here 4 heads of dimension 8, 49 tokens, 2 blocks and
# a learning rate of 0.003. Two series are also run at **equal size**: more heads that share one width, and more blocks
# that are narrower.
#
# | | models | accuracies after … steps | validation digits |
# |---|---|---|---|
# | recorded search | 60, whole space | **75**, 150, 225, 300 | 2,000 |
# | series | 21 settings, several seeds each | **100**, 200, 300, **400** | 2,000 |

# %%
sizes, dims, lengths, blocks = (1, 2, 4, 8), (2, 4, 8, 16), (1, 4, 16, 49, 196), (1, 2, 4, 8)
series = {"heads": (sizes, 4, ""), "head dimension": (dims, 8, ""), "tokens": (lengths, 49, ""), "blocks": (blocks, 2, "")}
series |= {"heads, same size": ((*sizes, 16), 4, ", same size"), "blocks, same size": (blocks, 2, ", same size")}
content = records.load_record("search-claims", "quick")
seen = {}  # setting -> validation accuracy, (seeds, looks)
for run in content["runs"] if content else []:
    curve = [accuracy for _, accuracy in run["curves"]["validation accuracy"]]
    seen.setdefault(run["arm"], []).append(curve)


def accuracies_of(name, look=-1):  # (values, seeds), in points; the record calls the base "base" in every series
    values, base, end = series[name]
    arms = ["base" if v == base else f"{name.split(',')[0]} {v}{end}" for v in values]
    return 100 * torch.tensor([seen[arm] for arm in arms])[:, :, look]


# %%
if seen:
    print("seeds for each setting:", len(content["seeds"]))
    _, axes = plt.subplots(2, 3, figsize=(10, 5.6), sharey=True, layout="constrained")
    for ax, (name, (values, base, _)) in zip(axes.flat, series.items(), strict=True):
        x, both = [math.log2(v) for v in values], {f"step {step}": accuracies_of(name, look).T for step, look in ((400, -1), (100, 0))}
        plotting.bands(both, x=x, xlabel=name, ylabel="", ax=ax)
        ax.axvline(math.log2(base), color="0.6", linestyle=":")
        ax.set(xticks=x, xticklabels=values)
        if ax is not axes[1, 0]:
            ax.get_legend().remove()
    for ax in axes[:, 0]:
        ax.set_ylabel("validation accuracy, %")
    plotting.show(
        "Six panels, one for each series: accuracy after 100 steps and after 400, means over seeds with standard errors, on "
        "an axis of doublings. A dotted line marks the base."
    )


# %% [markdown]
# Each series as a number: the accuracy at its last value minus that at its first, in points, after 100 steps and after
# 400. Which series moves the accuracy most?

# %%
def ends(name, look):  # one a seed
    y = accuracies_of(name, look)
    return (y[-1] - y[0]).tolist()


for name in series if seen else []:
    early, late = ("{:+5.1f} ± {:.1f}".format(*metrics.mean_and_error(ends(name, look))) for look in (0, -1))
    print(f"{name:18} {series[name][0][0]} → {series[name][0][-1]:3}   step 100: {early}   step 400: {late}")
if seen:
    apart = [h + t for h, t in zip(ends("heads", -1), ends("tokens", -1), strict=True)]  # the tokens' ends are negative
    print("at step 400 the ends of the heads are further apart than those of the tokens by {:.1f} ± {:.1f}".format(*metrics.mean_and_error(apart)))

# %% [markdown]
# ## How can both be true?
#
# From 1 head to 8 the accuracy rises by more than 35 points. In the search, over the same values, the share of the heads is
# 0.02 ± 0.07. Is one of the two wrong? Collect suspects: in what do the search and the series differ? Here are all trials of
# the search with 49 tokens, the number of the base, and below them the series.

# %%
for one, y in sorted(zip(choices, accuracies, strict=True), key=lambda pair: pair[0]["lr"]):
    if one["tokens"] == 49:
        print(f"search, first look: lr {one['lr']:.4f}, {one['heads']} heads, {one['heads'] * one['head_dim']:2} wide: {100 * y:.0f} %")
if seen:
    means = zip(sizes, accuracies_of("heads", 0).mean(dim=1).tolist(), strict=True)
    print("series, step 100: lr 0.0030,", ", ".join(f"{n} heads: {mean:.0f} %" for n, mean in means))

# %% [markdown]
# - **Time.** The search was judged after 75 steps, the series after 100 at the earliest. Perhaps heads need more than 75 steps
#   to show.
# - **Learning rate.** Five of the seven have a rate of about 0.001 or less, and none of them is above 25 %. The two with a
#   higher rate, one with 1 head and one with 4, reach 36 and 37 %. Perhaps the others had hardly begun to learn.
# - **Company.** In the search everything changes at once, the sequence length above all, and a loud effect can drown a
#   quieter one.
#
# The first two can be neither confirmed nor excluded here: seven trials are few, and the series was not measured at step 75. The third can be
# tested: subtract from each trial the mean of all trials with as many tokens, and ask what the rest goes with.

# %%
by_tokens = {}
for choice, y in zip(choices, accuracies, strict=True):
    by_tokens.setdefault(choice["tokens"], []).append(y)
rest = [y - statistics.fmean(by_tokens[choice["tokens"]]) for choice, y in zip(choices, accuracies, strict=True)]
wide = [{name: one[name] for name in ("heads", "head_dim", "lr", "blocks")} | {"width": one["heads"] * one["head_dim"]} for one in choices]
for name, (share, error) in search.importance(wide, rest).items():
    print(f"{name:9} {share:+.2f} ± {error:.2f} of the variance at equal tokens")

# %% [markdown]
# At equal tokens the heads have a share of 0.20 ± 0.09; the width and the learning rate show as well. Each is about two
# errors above 0, with errors that take the subtracted means as known. But it is a share of less: 0.20 of the rest is about
# 0.09 of the whole. And we chose this calculation after seeing the result. So company may have drowned the heads; this
# does not prove it.
#
# It does not explain everything, either. The head dimension keeps a share of 0.02, although its series rises by about 15
# points from 4 to 16, the values of the search, after 400 steps. And much of the heads' gain may be **width**: at equal width 16
# heads beat 1 by no more than 10 points after 400 steps, and by 2 ± 3 after 100.

# %% [markdown]
# Prediction 4, then, has no single answer. In this space, after 75 steps, it is the sequence length. So it is around the
# base after 100 steps, but after 400 the ends of the heads' series are further apart, by 9 ± 3 points: long
# sequences start slowly and catch up. **What matters most depends on the space, the base and the number of steps.** (The
# learning rate has no series here, and what two hyper-parameters do together is in no share.)
#
# And what had won the live search?

# %% tags=["nbval-ignore-output"]
print(", ".join(f"{name} {value:.3g}" for name, value in top.choice.items()))

# %% [markdown]
# If `tokens` is 1, as it was when this page was made, the winner among transformers is one whose
# [attention](../docs/glossary.md#a) has nothing to choose: each image is one token.

# %% [markdown]
# ## Today
#
# - **Searching on a small model.** Training GPT-3 sixty times is out of reach. Yang et al. 2022
#   ([arXiv:2203.03466](https://arxiv.org/abs/2203.03466)) searched on a model of 40 million parameters, scaled such that
#   good settings stay good as it grows, and beat published numbers of GPT-3 with 6.7 billion. The search cost 7 % of the
#   training.
# - **Leaderboards.** Singh et al. 2025 ([arXiv:2504.20879](https://arxiv.org/abs/2504.20879)) counted 27 private variants
#   that Meta tested on Chatbot Arena, where people vote for the better of two answers, before Llama 4. Whoever shows only
#   the best of many shows the winner's curse, too.
# - **New test sets.** Recht et al. 2019 ([arXiv:1902.10811](https://arxiv.org/abs/1902.10811)) made another one for
#   ImageNet, a collection of labelled photos. Accuracies fell by 11 to 14 points, but better models stayed better; the
#   authors blame harder images. Not every fall is the winner's curse.
#
# **So, the idea or the search?** Our two teams had the same idea, and yet the longer search led by 8.2 points on average; even
# teams that searched alike were often more than 5 points apart. When the shorter one knew what matters, 1.6 points were left. A leader's number alone
# cannot tell an idea from a search. Ask how many trials each side had, what it knew before, how many steps the models had,
# and which data measured the winner.

# %% [markdown]
# ## Optional: two claims
#
# The course started from an image [transformer](../docs/glossary.md#t) by kaifishr,
# [SciFormer](https://github.com/kaifishr/SciFormer) ([kaifishr_sciformer](../docs/references.bib)). Its README claims
# that accuracy rises with heads, head dimension and sequence length, in that order, and that more blocks always help.
# The series above were run to test that, since in a random search everything changes at once.
#
# For the first claim the gain is the slope of a line through the series, for each seed: the rise when the hyper-parameter
# doubles. Such a line says little where a series flattens (heads) or turns (tokens), but it has a sign. In the second,
# *always* means every doubling. A claim is shown if it is under all its conditions, refuted if it is under any, else
# undecided; with fewer than five seeds nothing is decided (notebook 16).

# %%
for claim in claims.CLAIMS if seen else []:
    if claim.notebook == 14:
        findings = list(claim.findings())
        print(claim.claimed)
        print(f"    {claims.short_verdict(findings).replace('*', '')}")
        for finding, decision in zip(findings, claims.decisions(findings), strict=True):
            gain, low, high = (100 * x for x in (finding.effect.gain, *finding.effect.interval))
            print(f"    {finding.condition:30} {gain:+6.1f} points, 95 % from {low:+6.1f} to {high:+6.1f}   {decision.outcome}")
for arm in ("tokens 1", "tokens 4", "tokens 16", "base", "tokens 196"):
    print(records.describe_record("search-claims", "validation accuracy", "quick", arm=arm))

# %% [markdown]
# Both claims are refuted in this setting. Of the first, all holds but one part: accuracy rises with heads and with head
# dimension, in that order, but with sequence length it falls on the whole. Of the blocks no doubling has a gain, and five
# of six are losses beyond chance; whether the step from 1 to 2 is one is open.
#
# Size does not explain why 196 tokens do worse than 4, since both models have 23,914 parameters. The model with one token
# is the largest of these. Its attention has nothing to choose from, and yet it does better than 16 tokens or more. That
# holds after 400 steps; what attention is worth after many more was not measured. Nor was another learning rate than the
# base's, though a wider or deeper model may want one. And equal steps are not equal cost, as the seconds show.

# %% [markdown]
# ## Optional: all hyper-parameters in one picture
#
# **Parallel coordinates**: one line for each trial through its eight values, the one with the best first look thick. On
# which axis do bright and dark lines part?

# %%
plotting.parallel_coordinates(choices, accuracies, log=["lr"], title=f"{kind} search, first look", label="accuracy")
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
# their end. These count with their accuracy at that very look, not with their best so far (Optuna's rule is the same). The
# median of an even number
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
# Narrow the space around the best trials (a smaller range for `lr`, say) and search again with another journal. What
# matters now?
#
# <details><summary>Answer</summary>
#
# What has a narrower range has less variance to explain, so as a rule its share shrinks and those of the others grow: importance
# is always importance within a space. The same journal is refused, because its trials were drawn from another space.
#
# </details>

# %% [markdown]
# ## Takeaways
#
# - With every trial, random draws try a new value of each hyper-parameter that has a range, where a grid repeats a
#   few; 59 draws hit the best 5 % with a probability of more than 95 %.
# - The best of many noisy numbers is too high: the winner needs digits that did not choose it.
# - With one and the same idea, 20 trials led 5 by 8.2 points on average, and yet 5 led 20 in every fifth draw, and 5 trials led 5 others by
#   more than 5 points in every third. A lead speaks for an idea only if both sides searched alike, and more than once.
# - Keep finished trials where a kill cannot reach them, give up early at equal steps, and judge what mattered at a
#   look that all trials have.
# - Shares need a correction for chance and an [error bar](../docs/glossary.md#e), which a few dozen trials give only roughly.
#   What matters most depends on the space, the base and the number of steps.

# %% [markdown]
# ## Check yourself
#
# 1. Why is the learning rate drawn on a logarithmic scale and dropout not?
# 2. Two searches share a journal, and one is killed. What happens to its running trial?
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
# Next: in the series a run with 196 tokens took more than two minutes, one with 4 tokens 4 seconds. Where does the time
# go, and can the same attention be had faster?
