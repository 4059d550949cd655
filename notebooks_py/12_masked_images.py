# %% [markdown]
# # 12 Masked images
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/12_masked_images.ipynb)
#
# ← [11 Encoder and decoder](11_encoder_decoder.ipynb) · [the map of the course](00_welcome.ipynb) · [13 Time series](13_time_series.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) **12** [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb) · taken apart [18](18_heads_that_copy.ipynb)
#
# Needs: notebook 06, and scikit-image, which the course installs · runs in about 100 s on two CPU cores · about 3 hours of study

# %% [markdown]
# After this notebook you can
#
# - hide three quarters of an image and show an [encoder](../docs/glossary.md#e) nothing but the rest ([masked image modelling](../docs/glossary.md#m));
# - restore what is hidden with a small [decoder](../docs/glossary.md#d);
# - judge by a [linear probe](../docs/glossary.md#l) what was learned without labels (the probe itself has labels);
# - do the same on a slide of tissue, against plain interpolation.
#
# New against 06: no labels; encoder and decoder see different [tokens](../docs/glossary.md#t).

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
import copy
import inspect
import statistics
import time

import ipywidgets
import skimage
import torch
import torch.nn.functional as F
from scipy.cluster.vq import kmeans2
from torch import nn

from sciformer import ImageToSequence, LearnedPositions, MaskedImageModel, TransformerBlock, corrupted, random_visible
from sciformer import check, course, experiments, metrics, plotting, records
from sciformer.data import mnist
from sciformer.lab import settings
from sciformer.teach import explore
from sciformer.training import TrainConfig, evaluate, fit

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## Predict first
#
# A model is shown a quarter of each digit's [patches](../docs/glossary.md#p) and learns to restore the rest. It never
# sees a label.
#
# 1. A linear [classifier](../docs/glossary.md#c) that is given the pixels recognises nine digits in ten. If it is
#    given all of this model's tokens instead, side by side, is it worse, the same, or better? And given only their mean?
# 2. And if it is given all tokens of the same model before training?
# 3. The encoder leaves hidden patches out. At a quarter of the tokens, how many times faster is it?

# %% [markdown]
# ## Hide three quarters
#
# Every image gets random numbers of its own, one for each patch. The patches with the largest numbers stay visible.
# (Since the numbers are random, one may as well hide those with the largest; exercise 2 does.) By hand, for an image of
# four patches:

# %%
tiny = torch.arange(16.0).view(1, 1, 4, 4)
patches = F.unfold(tiny, 2, stride=2).mT[0]  # (4 patches, 4 pixels)
noise = torch.tensor([0.3, 0.1, 0.8, 0.4])
largest = max(range(4), key=lambda n: noise[n])
visible = torch.tensor([n == largest for n in range(4)])  # True = may be seen
print(visible.tolist())
print("the encoder will see:", patches[visible].tolist())

# %% [markdown]
# For a [batch](../docs/glossary.md#b) at once. On digits, patches of 4×4 pixels make 49 tokens; 12 stay visible.

# %%
images, labels = mnist("test")  # (2000, 1, 28, 28)
generator = torch.Generator().manual_seed(0)
noise = torch.rand(8, 49, generator=generator)  # (B, L)
kept = noise.topk(49 - round(0.75 * 49)).indices  # (B, V)
visible = torch.zeros(8, 49, dtype=torch.bool).scatter(1, kept, True)  # (B, L)
package = random_visible(8, 49, hidden_share=0.75, generator=torch.Generator().manual_seed(0))
print("same as the package's:", torch.equal(visible, package), "· visible in each:", visible.sum(dim=1).tolist())


# %%
def masked(pictures, visible, patch_size):
    """The pictures with NaN where they are hidden, which is drawn in blue."""
    grid = pictures.shape[-1] // patch_size
    seen = visible.view(-1, 1, grid, grid).repeat_interleave(patch_size, 2).repeat_interleave(patch_size, 3)
    return torch.where(seen, pictures, torch.nan)


plotting.images(torch.cat([images[:8], masked(images[:8], visible, 4)]), columns=8, size=1.1)
plotting.show(
    "Two rows of eight images. Above the digits, below the same with most patches replaced by pale blue; a "
    "dozen patches of each are left."
)

# %% [markdown]
# ### Break it: a coin for each patch
#
# Why not toss a coin for every patch, hidden with probability 3/4? Look at what it does to the eight images above. What can
# no longer be done with them?

# %%
by_coin = noise > 0.75
print("visible by coin:", by_coin.sum(dim=1).tolist())

# %% [markdown]
# ## The encoder sees what is left
#
# Patches become tokens as in notebook 06, each gets the vector of its [position](../docs/glossary.md#p), and **then**
# the hidden ones are left out. No token takes their place. Indexing with a mask runs row by row, so the order within
# an image stays.

# %%
torch.manual_seed(0)
to_sequence, positions = ImageToSequence(28, 4, 1, 64), LearnedPositions(64, 49)
tokens = positions(to_sequence(images[:8]))  # (B, L, E)
selected = tokens[visible].view(8, -1, 64)  # (B, V, E)
in_a_loop = torch.stack([torch.stack([tokens[b, n] for n in range(49) if visible[b, n]]) for b in range(8)])
torch.testing.assert_close(selected, in_a_loop)
selected.shape

# %% [markdown]
# ### Break it: positions after the selection
#
# What if one selects first and then adds positions 0, 1, 2, …? Here are two images with one stroke each, in the middle and
# at the lower edge. In both, the first patch and the stroke's are visible. Which of the two orders can tell the images
# apart?

# %%
stroke, low_stroke = torch.zeros(2, 1, 1, 28, 28)
stroke[..., 12:16, 12:16], low_stroke[..., 24:28, 12:16] = 1, 1
here, there = torch.zeros(2, 1, 49, dtype=torch.bool)
here[0, [0, 24]], there[0, [0, 45]] = True, True  # the first patch, and the one with the stroke


def both(place_first):
    for picture, mask in ((stroke, here), (low_stroke, there)):
        tokens = to_sequence(picture)
        yield positions(tokens)[mask] if place_first else positions(tokens[mask][None])[0]


for name, place_first in (("after the selection:", False), ("before the selection:", True)):
    print(f"positions {name:22} same tokens for both strokes:", torch.equal(*both(place_first)))

# %% [markdown]
# ## The decoder sees every position
#
# The encoded tokens go back to their positions in the image. At every hidden position stands the **[mask
# token](../docs/glossary.md#m)**: one learned vector, the same everywhere. Then the positional
# [embeddings](../docs/glossary.md#e) are added once more, and the decoder's blocks fill in what is missing.

# %%
encoded, mask_token = torch.randn(8, 12, 32), torch.zeros(32)
everywhere = mask_token.expand(8, 49, -1).masked_scatter(visible[..., None], encoded)  # (B, L, D)
in_a_loop = torch.zeros(8, 49, 32)
for b in range(8):
    waiting = iter(encoded[b])
    for n in range(49):
        in_a_loop[b, n] = next(waiting) if visible[b, n] else mask_token
torch.testing.assert_close(everywhere, in_a_loop)

# %% [markdown]
# ### Break it: a decoder without positions
#
# All mask tokens are equal when they enter the decoder. What does [attention](../docs/glossary.md#a) make of equal tokens?

# %%
block = TransformerBlock(32, 4)
decoder_positions = LearnedPositions(32, 49)
for name, placed in (("without", everywhere), ("with", decoder_positions(everywhere))):
    decoded = block(placed)[0][0, ~visible[0]]  # (M, D): what stands at the first image's hidden positions
    print(f"{name:8} positions, all hidden ones alike:", torch.allclose(decoded, decoded[:1], atol=1e-5))


# %% [markdown]
# ## The loss: only what was hidden
#
# $$\mathcal L = \frac{1}{|M|\,P} \sum_{n \in M} \|\hat p_n - p_n\|^2$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $p_n$, pixels of a patch | `patches` | (B, L, P) |
# | $V$, $M$: visible, hidden positions | `visible`, `~visible` | (B, L) |
# | $\hat p_n$, restored, $n \in M$ | `model(images, visible)` | (B, M, P) |

# %% [markdown]
# The mean runs over the images of the batch as well. Visible patches are known; copying them is no task. He et al. (2021,
# [arXiv:2111.06377](https://arxiv.org/abs/2111.06377), sections 3 and 4.1; [he2022masked](../docs/references.bib)) found
# that counting them too costs a little accuracy, and that targets normalised patch by patch gain a little; here they are
# plain pixels.
#
# ## The class

# %%
class MyMaskedImageModel(nn.Module):
    def __init__(self, image_size, patch_size, embed_dim, num_heads, num_layers, decoder_dim, expansion):
        super().__init__()
        self.to_sequence = ImageToSequence(image_size, patch_size, 1, embed_dim)
        num_tokens = self.to_sequence.num_tokens
        self.positions = LearnedPositions(embed_dim, num_tokens)
        self.blocks = nn.ModuleList(
            TransformerBlock(embed_dim, num_heads, expansion=expansion) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.to_decoder = nn.Linear(embed_dim, decoder_dim)
        self.mask_token = nn.Parameter(torch.zeros(decoder_dim))
        self.decoder_positions = LearnedPositions(decoder_dim, num_tokens)
        self.decoder_blocks = nn.ModuleList([TransformerBlock(decoder_dim, num_heads, expansion=expansion)])
        self.decoder_norm = nn.LayerNorm(decoder_dim)
        self.to_pixels = nn.Linear(decoder_dim, patch_size**2)

    def encode(self, images, visible):
        tokens = self.positions(self.to_sequence(images))  # (B, L, E)
        tokens = tokens[visible].unflatten(0, (len(images), -1))  # (B, V, E)
        for block in self.blocks:
            tokens, _ = block(tokens)
        return self.norm(tokens)


# %%
class MyWholeModel(MyMaskedImageModel):
    def forward(self, images, visible):
        encoded = self.to_decoder(self.encode(images, visible))  # (B, V, D)
        tokens = self.mask_token.expand(*visible.shape, -1).masked_scatter(visible[..., None], encoded)  # (B, L, D)
        tokens = self.decoder_positions(tokens)
        for block in self.decoder_blocks:
            tokens, _ = block(tokens)
        hidden = tokens[~visible].unflatten(0, (len(images), -1))  # (B, M, D)
        return self.to_pixels(self.decoder_norm(hidden))  # (B, M, P)


sizes = {"embed_dim": 64, "num_heads": 4, "num_layers": 3, "decoder_dim": 32, "expansion": 2}
packaged = MaskedImageModel(28, 4, in_channels=1, **sizes)
course.assert_same_module(MyWholeModel(28, 4, **sizes), packaged, images[:8], visible=visible)

# %% [markdown]
# And the test that every such model should pass: change the hidden pixels, and the output must stay the same.

# %%
painted = torch.where(masked(images[:8], visible, 4).isnan(), torch.rand(8, 1, 28, 28), images[:8])
print("restored alike:", torch.equal(packaged(painted, visible), packaged(images[:8], visible)))

# %% [markdown]
# ## What the encoder saves
#
# Prediction 3. Three encoder blocks, forward and back, on 256 tokens of width 64, and on the quarter that is visible. The
# work of the [feed-forward](../docs/glossary.md#f) and of the projections falls to a quarter, that of attention's pairs to a
# sixteenth. At 256 tokens the two parts are equal. For one token, a block multiplies 8 · 64² = 32,768 times in the first
# (four projections of 64 · 64, and the feed-forward, twice as wide, as much again), and 2 · 256 · 64 = 32,768 times in the
# second. By which factor does the work fall in all?

# %%
large = MaskedImageModel(64, 4, in_channels=1, **sizes)
pictures, quarter = torch.rand(8, 1, 64, 64), random_visible(8, large.num_tokens)


def cost(visible):
    """The processor's seconds for a step, and how many numbers it keeps for the backward pass."""
    kept, began = [], time.process_time()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        large.encode(pictures, visible).sum().backward()
    return time.process_time() - began, sum(kept)


# %% tags=["nbval-ignore-output"]
threads = torch.get_num_threads()
torch.set_num_threads(1)  # one core, taking turns, the fastest of seven: other programs hardly disturb that
turns = [(cost(None), cost(quarter)) for _ in range(7)]
torch.set_num_threads(threads)
(all_seconds, all_numbers), (seconds, numbers) = (min(steps) for steps in zip(*turns, strict=True))
print(f"all tokens take {all_seconds / seconds:.1f} times the time of a quarter, and keep {all_numbers / numbers:.1f} times as many numbers")

# %%
course.verdict("time of all tokens over a quarter", all_seconds / seconds, above=1.8)
course.verdict("numbers kept, all tokens over a quarter", all_numbers / numbers, above=3)

# %% [markdown]
# The multiplications fall to ½ · ¼ + ½ · 1/16 = 5/32, by a factor of 6.4; the time on one core falls by less, by 4 to 5. On
# several cores it may fall by less still: every call into torch costs a few microseconds, however small the tensor, and
# handing work to several cores costs more. The numbers kept for the backward pass fall by a little less than 4: attention
# weights are not among them, for they are computed once more (notebook 15), all tokens are embedded before most are left
# out, and parameters are kept, too. The decoder works on every position, and is kept small for this reason.

# %% [markdown]
# ## Train it
#
# The setting that `python -m sciformer record masked-images` runs. Every time an image is seen, a new mask is drawn for it.

# %%
setting = experiments.MASKED_IMAGES[course.profile()]
torch.manual_seed(0)
model = setting.model().to(device)
untrained = copy.deepcopy(model).eval()
stream = setting.training_batches(model, seed=0, device=device)
for name in ("blocks", "decoder_blocks"):
    print(f"{name:15}{sum(p.numel() for p in getattr(model, name).parameters()):8,} parameters")

# %% tags=["nbval-ignore-output"]
history = fit(model, stream, F.mse_loss, setting.train)
model.eval()
test_batches = list(settings.masked_batches(model, images.to(device).split(500), seed=0))
loss = evaluate(model, test_batches, F.mse_loss)
print(f"squared error of hidden pixels {loss:.4f} after {setting.train.steps} steps in {history.seconds:.0f} s")

# %% [markdown]
# Is that a good value? The plainest guess for a hidden pixel is the mean of this pixel over all training digits. In the
# plot below, its error on the test digits is a level line. **Look** where the model's curve stays for a while. What may the
# model have learned by then, and what not yet?

# %%
train_images, train_labels = mnist("train")
mean_digit = train_images.mean(dim=0, keepdim=True).to(device)  # (1, 1, 28, 28)
by_mean = statistics.fmean(
    F.mse_loss(model.hidden_pixels(mean_digit.expand_as(x), seen), hidden).item() for x, seen, hidden in test_batches
)
print(f"mean digit: {by_mean:.3f}")
course.verdict("the model's squared error over the mean digit's", loss / by_mean, below=0.9, measured="quick")

# %%
lines = {"model": history.loss, "mean digit": [(1, by_mean), (len(history.loss), by_mean)]}
plotting.curves(lines, smooth=20, ylabel="loss on hidden pixels", logy=True)
plotting.show(
    "The loss on hidden pixels on a logarithmic axis. It falls quickly, crosses a level line, that of the "
    "mean digit, and goes on falling slowly below it."
)


# %% [markdown]
# For some dozens of steps the curve stays near the line. A model that has learned how bright each place is on average, and
# nothing of the single image, would be just there. Then it leaves the line: it must be using the patches that it sees.
#
# Digits from the [test set](../docs/glossary.md#t): original, what the encoder sees, restored. The visible patches are
# drawn as they were. Which digits of the last row would you recognise? Move the slider: at 0.5, how much could you fill in
# from the neighbouring patches alone? The model was trained with a share of 0.75 hidden, and no other.

# %%
def draw(hidden_share):
    digits = images[:10]
    seen = random_visible(10, model.num_tokens, hidden_share=hidden_share, generator=torch.Generator().manual_seed(1))
    restored = model.restore(digits.to(device), seen.to(device)).cpu().clamp(0, 1)
    return plotting.images(torch.cat([digits, masked(digits, seen, setting.patch_size), restored]), size=0.95)


explore(
    draw,
    alt="ten digits, what is visible of them, and how the model restores them",
    hidden_share=ipywidgets.FloatSlider(value=0.75, min=0.5, max=0.95, step=0.05, description="hidden share"),
)


# %% [markdown]
# ## What did it learn? A linear probe
#
# To finish a stroke it helps to know what the stroke is part of. So a model that restores pixels may also learn a useful
# representation. To see what is in it, freeze the encoder, show it whole digits, and fit **one linear layer** on its tokens
# with labels. On new digits this layer can only tell apart what the [features](../docs/glossary.md#f) have made easy to
# tell apart.

# %% [markdown]
# Two [baselines](../docs/glossary.md#b) take part: the same probe on the pixels, and on a copy of the encoder from
# **before** training. What the probe can read from this copy was not learned. Features are standardised by the training
# digits, the penalty on large weights is chosen on some of those, and no choice is made on test digits. (The package's
# `encode` takes whole digits, too: without a mask it encodes all patches.) As a sketch, with a penalty that is not chosen,
# on the mean of each digit's tokens:

# %%
def probe_by_hand(features, labels, test_features, test_labels, penalty=0.01):
    mean, deviation = features.mean(dim=0), features.std(dim=0).clamp(min=1e-6)
    features, test_features = (features - mean) / deviation, (test_features - mean) / deviation
    probe = nn.Linear(features.shape[1], 10)
    optimizer = torch.optim.LBFGS(probe.parameters(), max_iter=50, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = F.cross_entropy(probe(features), labels) + penalty / 2 * probe.weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return metrics.accuracy(probe(test_features), test_labels).item()


few = [tensor[:2000] for tensor in (train_images, train_labels)]
with torch.no_grad():
    means = [torch.cat([model.encode(part.to(device)).mean(dim=1) for part in x.split(500)]).cpu() for x in (few[0], images)]
by_hand = probe_by_hand(means[0], few[1], means[1], labels)


# %% [markdown]
# The mean over tokens, the **mean token**, has 64 features, and mixes up what stood where. The package's `features` are
# all tokens side by side: 49 · 64 = 3,136. Its probe, `metrics.probe_accuracy`, is the sketch with a chosen penalty and
# up to twice the iterations. The last row below is the sketch, on the same mean token as the row before. All probes are
# fitted to 2,000 training digits; in the quick profile of the [recorded](../docs/glossary.md#r) runs it is 10,000.

# %% tags=["nbval-ignore-output"]
def mean_token(network):
    return lambda pictures: network.encode(pictures).mean(dim=1)


train, test = ([tensor.to(device) for tensor in pair] for pair in (few, (images, labels)))
encoders = {"pixels": nn.Flatten(), "untrained encoder": untrained.features, "trained encoder": model.features}
encoders |= {"untrained, mean token": mean_token(untrained), "trained, mean token": mean_token(model)}
probes = {name: metrics.probe_accuracy(encode, train, test) for name, encode in encoders.items()}
for name, accuracy in probes.items():
    print(f"{name:22} {accuracy:.3f}")
print(f"the same by the sketch {by_hand:.3f}")


# %% [markdown]
# Predictions 1 and 2, in this one run: the probe is a little better on all tokens of a random network than on the pixels,
# and better still after training. (With 2,000 test digits an accuracy has a standard error of about 0.006. The recorded
# runs below decide whether the first step is luck. A random network that beats pixels is no miracle: it offers the probe
# 3,136 numbers in place of 784.) On the mean token it is **worse** than on pixels. But there training changed most: by it,
# a probe gains 0.18 on the mean token.
#
# From the same mean tokens the sketch reads 0.03 less than the package's probe, about as much as separates trained encoder
# and pixels. So compare features under the same probe only.
#
# ### Learned, or only changed?
#
# Was all of this gain learned? Training also makes the weights larger, and a random network with larger weights may
# happen to be easier to read. So the untrained encoder is a weak opponent. A stronger one was **changed as much, and has
# learned nothing**: take what training added to each tensor of weights, shuffle its numbers, and add them to the
# untrained encoder. **Predict**: of the 0.18 on the mean token, how much does such a copy gain?

# %%
def changed_at_random(seed):
    """The untrained encoder plus the change of every tensor in training, its numbers shuffled."""
    other, generator = copy.deepcopy(untrained), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights, trained in zip(other.parameters(), model.parameters(), strict=True):
            change = (trained - weights).flatten()
            weights += change[torch.randperm(len(change), generator=generator).to(device)].view_as(weights)
    return other


# %% tags=["nbval-ignore-output"]
copies = [changed_at_random(seed) for seed in range(5)]
of_copies = [metrics.probe_accuracy(mean_token(other), train, test) for other in copies]
print("mean token of five copies:", *(f"{accuracy:.3f}" for accuracy in of_copies))
print(f"all tokens of the first  : {metrics.probe_accuracy(copies[0].features, train, test):.3f}")

# %% [markdown]
# Is the trained encoder more than a sixth such copy? Let $s$ be the standard deviation of the five. The distance of a sixth
# copy from their mean has the standard deviation $s\sqrt{1 + 1/5}$. In 95 % of cases the distance is at most 2.776 times
# this number (Student's t for five values). So take the trained encoder's distance from the mean and subtract this. If
# anything is left, a change of this kind does not explain it.

# %%
distance = probes["trained, mean token"] - statistics.fmean(of_copies)
half = 2.776 * statistics.stdev(of_copies) * (1 + 1 / 5) ** 0.5
course.verdict("mean token, trained minus changed at random, lower end", distance - half, above=0, measured="quick")

# %% [markdown]
# In this run about two thirds of the 0.18 come with a **shuffled** change of the same size, too: the copies read 0.77 where
# the untrained encoder reads 0.65. The rest, about 0.06, is far more than such copies differ among themselves. It comes
# from where in each tensor the change was made, not from its size: so far as this test can tell, it was learned.
#
# On all tokens the first copy reads 0.92, and the trained encoder only 0.01 more. Is that more than chance? With 2,000
# test digits, this run cannot tell. It would take such copies for several seeds, and all 10,000 test digits.
#
# ### The recorded runs
#
# Mean ± [standard error](../docs/glossary.md#s) over the [seeds](../docs/glossary.md#s), which change the model, and not the
# digits: so pixels have no error. These probes are judged on all 10,000 test digits. The long profile and the full one train
# on all of MNIST's training digits; their probes see shifted copies of those, too (He et al. 2021, appendix A.1). The two
# lines below them compare seed by seed, with a 95 % interval (notebook 06).

# %%
recorded = ("probe accuracy of pixels", "probe accuracy untrained", "probe accuracy")
for profile in experiments.MASKED_IMAGES:
    for metric in recorded:
        print(records.describe_record("masked-images", metric, profile))


# %%
def difference(ones, others):
    """The mean difference, seed by seed, and half of its 95 % interval."""
    mean, error = metrics.mean_and_error([one - other for one, other in zip(ones, others, strict=True)])
    return mean, 2.776 * error  # Student's t for five seeds


runs = [run["metrics"] for run in records.load_record("masked-images", "quick")["runs"]]
for other in recorded[:2]:
    mean, half = difference(*([100 * run[metric] for run in runs] for metric in ("probe accuracy", other)))
    print(f"quick, trained minus {other}: {mean:+.2f} points [{mean - half:+.2f}, {mean + half:+.2f}]")

# %%
for profile in experiments.MASKED_IMAGES:
    record = records.load_record("masked-images", profile)
    if record:
        groups = {metric.split()[-1].replace("accuracy", "trained"): [run["metrics"][metric] for run in record["runs"]] for metric in recorded}
        ax = plotting.seeds(groups, ylabel="probe accuracy", title=f"masked-images, {profile} profile")
        ax.set(ylim=(min(map(min, groups.values())) - 0.01, 1))
        plotting.show(f"Probe accuracy, {profile} profile: pixels are lowest, the untrained encoder is in the middle, the trained encoder highest.")


# %% [markdown]
# The long profile has more digits, yet its probe of pixels, which the larger model cannot affect, is less accurate than the
# quick one's. It is also fitted to shifted copies, perhaps of little use to a linear map of pixels; whether that is the
# reason was not measured.
#
# What do the records decide? The rule of the course asks for five seeds and for a 95 % interval of the gain, seed by seed,
# that lies above 0 (notebook 16). The quick profile has both. After training, the probe reads 2.35 points more than before:
# for this model on MNIST a **gain** is shown. Before training, it already reads 1.68 points more than from pixels, so that
# step was no luck either. (The intervals leave out the choice of the 10,000 test digits, which alone gives each accuracy a
# standard error of 0.2 to 0.3 points.)
#
# How much of the gain was *learned* is open. In the run above, a copy that was changed at random gained about half as much
# on all tokens as training did; the records have no such copies. Nor do they have a model that was trained to restore what
# it *sees*. The long profile has one run, which decides nothing.

# %% [markdown]
# ## How much to hide
#
# Why three quarters? With few patches hidden, a model can continue strokes from their neighbours and need not know what
# they belong to. With nearly all hidden, it can only guess. On photographs, He et al. (section 4.1) found 75 % best for
# the linear probe. Digits are not photographs: they are small, and most of their patches are blank.
#
# **Predict.** Hide 25, 50, 75 or 90 %, and leave everything else as it was, the number of steps as well. Where does the
# probe read most? And does the choice matter as much as training at all, which gained 2.35 points?
#
# First the price. Forward and back on 128 digits, on one core, again in turns:

# %% tags=["nbval-ignore-output"]
def step_seconds(share):
    seen, began = random_visible(128, on_cpu.num_tokens, hidden_share=share), time.process_time()
    F.mse_loss(on_cpu(images[:128], seen), on_cpu.hidden_pixels(images[:128], seen)).backward()
    return time.process_time() - began


shares, on_cpu = (0.25, 0.5, 0.75, 0.9), copy.deepcopy(untrained).cpu()
torch.set_num_threads(1)
turns = [[step_seconds(share) for share in shares] for _ in range(5)]
torch.set_num_threads(threads)
for share, seconds in zip(shares, map(min, zip(*turns, strict=True)), strict=True):
    print(f"{share:.0%} hidden: {1000 * seconds:.0f} ms")

# %% [markdown]
# Now the recorded runs: five seeds for each share, judged on all 10,000 test digits.

# %%
arms = {f"{share:.0%}": runs for share in shares}  # those of 75 % are the runs above
for arm in ("25%", "50%", "90%"):
    arms[arm] = [run["metrics"] for run in records.load_record("hidden-shares", "quick")["runs"] if run["arm"] == arm]
of_seeds = {"trained": {}, "untrained": {}}
for arm, found in arms.items():
    for name, metric in (("trained", "probe accuracy"), ("untrained", "probe accuracy untrained")):
        mean, error = metrics.mean_and_error([100 * run[metric] for run in found])
        of_seeds[name][f"{arm} hidden"] = mean, 2.776 * error  # a 95 % interval: Student's t for five
    off = statistics.fmean(run["test loss"] for run in found)
    mean, half = of_seeds["trained"][f"{arm} hidden"]
    print(f"{arm} hidden: probe {mean:.2f} ± {half:.2f} %, squared error of hidden pixels {off:.3f}")

# %%
plotting.with_errors(of_seeds, xlabel="probe accuracy in %, five seeds, 95 % intervals", zero=False)
plotting.show(
    "Four rows, 25 to 90 % hidden: the probe accuracy of the trained and of the untrained encoder, each with its interval. "
    "Trained encoders are ahead in every row."
)

# %%
for arm in ("25%", "50%", "90%"):
    mean, half = difference(*([100 * run["probe accuracy"] for run in arms[name]] for name in (arm, "75%")))
    print(f"{arm} minus 75% hidden: {mean:+.2f} points [{mean - half:+.2f}, {mean + half:+.2f}]")

# %% [markdown]
# Between 25 and 75 % the share hardly matters here: the probe reads the same to within about half a point. At 90 % it reads
# 0.8 points less, and most of the gain of training is still there. So on digits 75 % is not the best share, which it is on
# photographs. It is the cheapest of three that are level. (The learning rate was chosen for 75 %, and all had as many
# steps, not as much time.) The error of the pixels, by contrast, falls with every patch that is shown; from 25 to 75 % it
# says nothing of the features.

# %% [markdown]
# ## Look at the mistakes
#
# Of the first 500 test digits, here are the ten that are restored worst, and how. Cover the upper row, and the labels: which
# would you guess from the middle one?

# %% tags=["nbval-ignore-output"]
seen = random_visible(500, model.num_tokens, generator=torch.Generator().manual_seed(2))
digits = images[:500]
restored = model.restore(digits.to(device), seen.to(device)).cpu().clamp(0, 1)
worst = (restored - digits).square().mean(dim=(1, 2, 3)).topk(10).indices
kinds = labels[worst].tolist()
print("the ten are", kinds)

# %%
plotting.images(torch.cat([digits[worst], masked(digits[worst], seen[worst], setting.patch_size), restored[worst]]), size=0.95)
plotting.show(
    "Three rows of ten images: digits, the few visible patches of each, and restored digits, which are grey "
    "and blurred."
)

# %% [markdown]
# What is restored is mostly a grey blur, as a mean over several digits would be, and sometimes looks like a wrong guess. Of
# some digits hardly any ink is visible. But a large error does not show by itself that the patches fit another digit, too:
# squared error also grows with the ink that there is to miss, and most of these ten are bold.

# %% [markdown]
# ## Missing, or wrong?
#
# What if a patch is not missing but **wrong**, as in a damaged file or under a sticker? Where patches are missing, the
# encoder knows which: it does not get their tokens. Where they are wrong, it gets all tokens, and nobody tells it which of
# them lie. Denoising autoencoders learn to undo damage (Vincent et al. 2008; there, mostly pixels set to 0). Two ways to be
# wrong: each pixel is noise, or the patches stand in another order.

# %%
ways = {"missing": masked(images[:8], visible, 4)}
for how in ("noise", "swapped"):
    ways[how] = corrupted(images[:8], visible, 4, how=how, generator=torch.Generator().manual_seed(0))
names = [name if n == 0 else "" for name in ("original", *ways) for n in range(8)]
plotting.images(torch.cat([images[:8], *ways.values()]), names, columns=8, size=1.1)
plotting.show(
    "Four rows of eight images: digits; the same with three quarters of the patches pale blue; with these patches full "
    "of grey noise; and with these patches in one another's places, so that pieces of strokes lie scattered."
)

# %% [markdown]
# **Predict.** The model is to restore the right pixels of these patches. In which of the three is its error smallest? And
# from which does a probe read most afterwards?
#
# Three models of the same size learn for as many steps. With wrong patches nothing is missing: the encoder sees all 49
# tokens in place of 12, and there are no mask tokens. The outputs at the wrong patches are compared with the right pixels.
# Which patches are wrong, the decoder is not told either. The record has five [seeds](../docs/glossary.md#s) of each.
# Below, ± is the standard error; a difference is taken seed by seed and has its 95 % interval in brackets.

# %%
runs = records.load_record("corrupted-images", "quick")["runs"]
of = {arm: [run["metrics"] for run in runs if run["arm"] == arm] for arm in ways}
print(f"{'':8} {'error':>13} {'probe, untrained':>18} {'probe, trained':>16}")
for arm in ways:
    cells = {m: metrics.mean_and_error([run[m] for run in of[arm]]) for m in ("test loss", *recorded[1:])}
    print(f"{arm:8} {' '.join(f'{mean:9.3f} ± {error:.3f}' for mean, error in cells.values())}")

# %%
for metric, unit in (("test loss", 1), ("probe accuracy", 100)):
    for arm in ("noise", "swapped"):
        mean, half = difference(*([unit * run[metric] for run in of[name]] for name in (arm, "missing")))
        print(f"{metric}, {arm} minus missing: {mean:+.4f} [{mean - half:+.4f}, {mean + half:+.4f}]{' points' * (unit == 100)}")

# %% [markdown]
# Whether a patch is left out or full of noise makes no difference that five seeds could show, neither to the error nor to
# the probe. (The interval of the probe reaches from −0.2 to 0.6 points.) Whether the model can tell which patches are noise
# was not tested.
#
# Swapped patches are restored **best**, perhaps because their pixels are not lost, only misplaced: they still say how much
# ink there is, and which pieces of strokes. Or is it that many blank patches are exchanged for blank ones, and are right as
# they stand? Count these, and see what it costs to leave everything as it is:

# %% tags=["nbval-ignore-output"]
dice = torch.Generator().manual_seed(3)
left = random_visible(len(images), model.num_tokens, generator=dice)  # in their places
swapped = corrupted(images, left, 4, how="swapped", generator=dice)
found, right = (model.hidden_pixels(pictures, left) for pictures in (swapped, images))  # (B, M, P)
blank = (found == right).all(dim=-1)
print(f"right as they stand: {blank.float().mean():.0%} of the wrong patches")
restored = statistics.fmean(run["test loss"] for run in of["swapped"])
print(f"squared error, left as they are: {F.mse_loss(found, right):.3f}; restored, by the record: {restored:.3f}")

# %% [markdown]
# Four in ten are right as they stand, and that may well be why the error is smaller. It is not all: whoever leaves
# everything as it is makes more than four times the model's error, so the model must move pieces back, or guess.
#
# For the probe, swapped patches are the worst task: training on them gains about 0.6 points over the untrained encoder, the
# other two tasks more than 2. So across *tasks* a smaller error on the pixels does not mean that more was learned that
# helps to recognise a digit. When two tasks without labels compete, compare them on what you want them for. (Under the
# probe every encoder sees all 49 tokens. For the encoder of missing patches this is new; it has seen 12 at a time.)

# %% [markdown]
# ## A slide of tissue
#
# Labels are expensive in medicine: a pathologist has to draw them. Slides without labels are plentiful. scikit-image
# comes with one:

# %%
print(inspect.getdoc(skimage.data.immunohistochemistry).split("Returns")[0].strip())

# %% [markdown]
# DAB is brown, the counterstain blue. Training tiles are cut from the upper three quarters, anywhere, and turned and
# mirrored: tissue has no upper side. The lowest quarter is held out. (It borders on the rest, so a gland may lie on both
# sides.)

# %%
slide = torch.from_numpy(skimage.data.immunohistochemistry()).permute(2, 0, 1) / 255  # (3, 512, 512)
middle, spread = (f(slide[:, :384], dim=(1, 2)).view(3, 1, 1) for f in (torch.mean, torch.std))
upper, lower = ((part - middle) / spread for part in slide.split(384, dim=1))  # (3, 384, 512), (3, 128, 512)


def crops(seed, count=32, size=32):
    """Endless batches of squares from anywhere in the upper part."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        corners = torch.rand(count, 2, generator=generator) * torch.tensor([384 - size + 1, 512 - size + 1])
        batch = torch.stack([upper[:, y : y + size, x : x + size] for y, x in corners.long().tolist()])
        turns, mirror = torch.randint(4, (2,), generator=generator).tolist()
        batch = batch.rot90(turns, (2, 3))
        yield (batch.flip(3) if mirror % 2 else batch).to(device)


def cut(picture, size=32):
    """Tiles (N, 3, size, size), row by row."""
    return picture.unfold(1, size, size).unfold(2, size, size).permute(1, 2, 0, 3, 4).flatten(0, 1).contiguous()


held_out = cut(lower)  # (64, 3, 32, 32)

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
of_tissue = MaskedImageModel(32, 4, in_channels=3, **sizes).to(device)
fresh = copy.deepcopy(of_tissue).eval()
tissue_config = TrainConfig(steps=1000, lr=1e-2, optimizer="muon", warmup_steps=30)
tissue_history = fit(of_tissue, settings.masked_batches(of_tissue, crops(0), seed=0), F.mse_loss, tissue_config)
of_tissue.eval()
print(f"loss {statistics.fmean(tissue_history.loss[-50:]):.3f} in {tissue_history.seconds:.0f} s")


# %% [markdown]
# ### A missing region
#
# A hole of 16×16 pixels in each held-out tile. A fair opponent needs no training: the **[soap
# film](../docs/glossary.md#s)**, in which every hidden pixel is the mean of its four neighbours. A weak opponent is the
# mean colour of what is visible. **Predict** the order of the three: soap film, mean colour, and the model, which was
# trained on the rest of the slide.

# %%
def soap_film(pictures, seen, rounds=400):
    filled = torch.where(seen, pictures, 0.0)
    for _ in range(rounds):
        padded = F.pad(filled, (1, 1, 1, 1), mode="replicate")
        up, down, left, right = padded[..., :-2, 1:-1], padded[..., 2:, 1:-1], padded[..., 1:-1, :-2], padded[..., 1:-1, 2:]
        filled = torch.where(seen, pictures, (up + down + left + right) / 4)
    return filled


def restorations(pictures, visible):
    seen = ~masked(pictures, visible, 4).isnan()
    colour = (pictures * seen).sum(dim=(2, 3), keepdim=True) / seen.sum(dim=(2, 3), keepdim=True)
    by_model = of_tissue.restore(pictures.to(device), visible.to(device)).cpu()
    return {"mean colour": torch.where(seen, pictures, colour), "soap film": soap_film(pictures, seen), "model": by_model}


hole = torch.ones(8, 8, dtype=torch.bool)
hole[2:6, 2:6] = False  # 4×4 of the 8×8 patches
hole = hole.flatten().expand(len(held_out), -1)
scattered = random_visible(len(held_out), of_tissue.num_tokens, generator=torch.Generator().manual_seed(0))

# %% [markdown]
# Squared errors of hidden pixels, in units of the variance of the upper part's colours.

# %% tags=["nbval-ignore-output"]
errors = {}
for case, mask in (("three quarters hidden", scattered), ("a hole", hole)):
    gone = masked(held_out, mask, 4).isnan()
    for name, restored in restorations(held_out, mask).items():
        errors[case, name] = F.mse_loss(restored[gone], held_out[gone]).item()
        print(f"{case:22} {name:12} {errors[case, name]:.3f}")

# %%
for case in ("three quarters hidden", "a hole"):
    course.verdict(f"{case}: model over mean colour", errors[case, "model"] / errors[case, "mean colour"], below=1)
course.verdict("a hole: soap film over model", errors["a hole", "soap film"] / errors["a hole", "model"], below=1)

# %%
shown = torch.tensor([1, 6, 19, 24, 37, 42, 52, 59])
columns = {"original": held_out, "visible": masked(held_out, hole, 4), **restorations(held_out, hole)}
rows = torch.cat([pictures[shown] * spread + middle for pictures in columns.values()])
titles = [name if n == 0 else "" for name in columns for n in range(len(shown))]
plotting.images(rows, titles, columns=8, size=1.1)
plotting.show(
    "Five rows of eight tiles of tissue: the original; the same with a pale blue square in the middle; and "
    "that square filled by the mean colour, by the soap film, and by the model. All three fillings are "
    "smoother than the original."
)

# %% [markdown]
# In this run the model has a smaller error than the mean colour, and the soap film a smaller one than the model, with a
# hole as with scattered patches. A soap film continues what it sees at the border; the model's patches do not even
# continue each other: look at the seams in the last row. The model was never trained on holes, with three quarters visible;
# but it was trained on scattered patches, and is behind there as well. It had a single slide and less than a minute;
# whether more of either would do was not measured. All fillings are smooth. The model's may be so because squared error
# rewards the mean of all textures that are possible.

# %% [markdown]
# The same opponent on the digits, three quarters hidden, beside their model and the mean digit:

# %% tags=["nbval-ignore-output"]
some = images[:500]
mask = random_visible(500, model.num_tokens, generator=torch.Generator().manual_seed(2))
gone = masked(some, mask, setting.patch_size).isnan()
fillings = {"mean digit": mean_digit.cpu().expand_as(some), "soap film": soap_film(some, ~gone)}
fillings["model"] = model.restore(some.to(device), mask.to(device)).cpu()
on_digits = {name: F.mse_loss(filled[gone], some[gone]).item() for name, filled in fillings.items()}
for name, off in on_digits.items():
    print(f"{name:12} {off:.3f}")

# %%
course.verdict("digits: soap film over mean digit", on_digits["soap film"] / on_digits["mean digit"], above=1)
course.verdict("digits: model over the better of the two", on_digits["model"] / min(on_digits["soap film"], on_digits["mean digit"]), below=0.9, measured="quick")

# %% [markdown]
# On digits, the order is another one. In this run the soap film is a little worse than the mean digit, which knows
# nothing of the single image, and the model is better than both. A likely reason: with three quarters hidden, missing
# strokes can hardly be read off the border of what is visible, and it helps to have seen many digits.

# %% [markdown]
# ### What the slide is made of
#
# Does the representation tell anything about the tissue? Move a window over the slide, and take each window's mean token.
# Four clusters by k-means, fitted on the upper part alone, the best of ten starts; the lower windows join the nearest.
# Beside them, clusters of the same model before its training, and of the windows' mean colours. **Predict** whose clusters
# say most about the brown stain. (It is computed from the colours, as a mixture of two dyes.)

# %%
windows = F.unfold(((slide - middle) / spread)[None], 32, stride=8)[0].T.view(-1, 3, 32, 32)  # (61 · 61, 3, 32, 32)
is_upper = torch.arange(61 * 61) // 61 * 8 + 32 <= 384  # no pixel of the lower part
haematoxylin_eosin_dab = torch.from_numpy(skimage.color.rgb2hed(slide.permute(1, 2, 0).numpy())).float()
brown = F.avg_pool2d(haematoxylin_eosin_dab[None, None, ..., 2], 32, stride=8).flatten()  # of each window


def clusters_of(features, count=4):
    features = (features - features[is_upper].mean(dim=0)) / features[is_upper].std(dim=0)
    points = features[is_upper].double()
    starts = [torch.from_numpy(kmeans2(points.numpy(), count, minit="++", seed=seed)[0]) for seed in range(10)]
    centres = min(starts, key=lambda centres: torch.cdist(points, centres).amin(dim=1).square().sum())
    labels = torch.cdist(features.double(), centres).argmin(dim=1)
    by_brown = torch.stack([brown[labels == n].mean() for n in range(count)]).argsort()
    return by_brown.argsort()[labels]  # cluster 0 has the least brown


# %% tags=["nbval-ignore-output"]
def mean_tokens(model):
    with torch.no_grad():
        return torch.cat([model.encode(part.to(device)).mean(dim=1).cpu() for part in windows.split(500)])


features = {"model": mean_tokens(of_tissue), "untrained model": mean_tokens(fresh), "mean colour": windows.mean(dim=(2, 3))}
labels_of = {name: clusters_of(values) for name, values in features.items()}
for n in range(4):
    own = labels_of["model"] == n
    print(f"cluster {n}: {own.float().mean():.0%} of the slide, DAB {brown[own].mean():.3f} ± {brown[own].std():.3f}")

# %%
plotting.regions(slide, labels_of["model"].view(61, 61), step=8, start=12, line=384)
plotting.show(
    "A slide with brown glands and pale blue tissue between them, and beside it the same slide under the "
    "colours of four clusters. On both a dashed line, three quarters of the way down, marks where the held-out part begins."
)

# %% [markdown]
# Most of what lies between the glands is one cluster; the glands are divided among the others. (In the table, ± is the
# standard deviation over a cluster's windows.) How much of the brown stain do the clusters explain in the held-out part?
# The share of its variance that lies between them:

# %% tags=["nbval-ignore-output"]
is_lower = torch.arange(61 * 61) // 61 * 8 >= 384


def explained(labels):
    y, labels = brown[is_lower], labels[is_lower]
    within = sum(((y[labels == n] - y[labels == n].mean()) ** 2).sum() for n in labels.unique())
    return 1 - (within / ((y - y.mean()) ** 2).sum()).item()


shares = {name: explained(found) for name, found in labels_of.items()}
for name, share in shares.items():
    print(f"{name:15} {share:.2f}")

# %%
for name in ("untrained model", "mean colour"):
    course.verdict(f"stain explained, clusters of {name} minus the model's", shares[name] - shares["model"], above=-0.05)

# %% [markdown]
# Nobody told the model what a stain is. But a stain is a colour. In this one run, clusters of nothing but mean colours
# explain as much or a little more, and so do the clusters of the same model **before** its training. So these clusters are
# no evidence that training taught the model anything about tissue. On the whole slide, by the table above, nine tenths of
# the variance between the trained model's clusters is the difference between cluster 0 and the rest. Always compare with
# the plainest feature, and with the model as it was made.

# %% [markdown]
# ## What is refused

# %%
bad = {
    "patches that do not fit": lambda: MaskedImageModel(28, 5, 1, **sizes),
    "nothing hidden": lambda: random_visible(1, 49, hidden_share=0.001),
    "nothing visible": lambda: random_visible(1, 49, hidden_share=0.999),
    "per cent": lambda: random_visible(1, 49, hidden_share=75),
    "masks that differ in number": lambda: packaged(images[:8], by_coin),
    "masks of other images": lambda: packaged(images[:7], visible),
    "a colour image": lambda: packaged(torch.zeros(8, 3, 28, 28), visible),
}
for name, call in bad.items():
    try:
        call()
    except ValueError as error:
        print(f"{name}: {error}")


# %% [markdown]
# ## Exercises
#
# Write the function in place of `raise NotImplementedError` and run the cell. The first wrong run shows what is wrong
# with the result, the second names the mistake; the numbers are fresh each time. Hints and a solution are folded away
# below each cell.
#
# ### Exercise 1 · easy · 4 minutes
#
# The mean squared error over the pixels of the hidden patches, all images together: one mean over every hidden pixel
# of the batch, and not a mean of the images' means. At least one patch is hidden.

# %%
def hidden_loss(predicted, patches, visible):  # (B, L, P), (B, L, P), (B, L) with True = visible
    raise NotImplementedError  # one number


check.hidden_loss(hidden_loss)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which patches count? `~` turns a mask round.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `patches[mask]` is (number of True, P). How many numbers does the mean run over?
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def hidden_loss(predicted, patches, visible):
#     return F.mse_loss(predicted[~visible], patches[~visible])
# ```
#
# </details>
#
# ### Exercise 2 · middle · 8 minutes
#
# A mask from given noise. In each row, `round(hidden_share * L)` patches are hidden (Python's `round`; it may be 0):
# those with the **largest** noise, as in the paper, and not those with the smallest, as in the text above. The paper
# does it by sorting, and so may you (`sort`, `argsort`); try it without `topk`.

# %%
def choose_visible(noise, hidden_share):  # (B, L), no two numbers of a row alike
    raise NotImplementedError  # (B, L), True = visible


check.choose_visible(choose_visible)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Patch n is visible if its rank in its row is small enough. What does `argsort` give: ranks, or the order?
#
# </details>
# <details><summary>Hint 2</summary>
#
# The order says which patch comes first. Its own argsort is the inverse: at which rank each patch comes.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def choose_visible(noise, hidden_share):
#     L = noise.shape[1]
#     rank = noise.argsort(dim=1).argsort(dim=1)  # (B, L): 0 for the smallest of its row
#     return rank < L - round(hidden_share * L)
# ```
#
# </details>
#
# ### Exercise 3 · middle · 6 minutes
#
# Features for a probe from a **frozen** encoder: no gradient may reach it. Each of the F features is standardised by
# its own mean and deviation (`.std`) over the training images, and the test features by the same numbers. No feature is
# the same for all training images.

# %%
def frozen_features(encoder, train, test):  # a function from images to (N, F), images, images
    raise NotImplementedError  # training features (N, F), test features (M, F)


check.frozen_features(frozen_features)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# One mean and one deviation for each feature, from one of the two sets, used for both.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Frozen: nothing that is computed later may send a gradient into the encoder. `torch.no_grad()`.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def frozen_features(encoder, train, test):
#     with torch.no_grad():
#         train, test = encoder(train), encoder(test)  # (N, F), (M, F)
#     mean, deviation = train.mean(dim=0), train.std(dim=0)  # (F,)
#     return (train - mean) / deviation, (test - mean) / deviation
# ```
#
# </details>
#
# ### Exercise 4 · hard · 15 minutes
#
# From patches to what the decoder gives at every position. `kept[b]` are the visible positions of image b, in the
# random order in which they were drawn. Encoder and decoder are functions from (B, any number, E) to the same.

# %%
def decoded_from_visible(patches, kept, embedding, positions, encoder, mask_token, decoder_positions, decoder):
    # (B, L, P), (B, V), (P, E), (L, E), a function, (E,), (L, E), a function
    raise NotImplementedError  # (B, L, E), in the order of the image


check.decoded_from_visible(decoded_from_visible)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In turn: embed, add positions, select, encode, put back among mask tokens, add positions again, decode.
#
# </details>
# <details><summary>Hint 2</summary>
#
# With `rows = torch.arange(B)[:, None]`, `tokens[rows, kept]` is (B, V, E), and can also stand left of an `=`.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def decoded_from_visible(patches, kept, embedding, positions, encoder, mask_token, decoder_positions, decoder):
#     tokens = patches @ embedding + positions  # (B, L, E)
#     rows = torch.arange(len(kept), device=kept.device)[:, None]  # (B, 1)
#     seen = encoder(tokens[rows, kept])  # (B, V, E)
#     everywhere = mask_token.expand_as(tokens).clone()
#     everywhere[rows, kept] = seen
#     return decoder(everywhere + decoder_positions)
# ```
#
# </details>

# %% [markdown]
# ## Takeaways
#
# - The encoder sees visible tokens only, each with the embedding of its position; mask tokens join in the decoder. So
#   hiding more makes the encoder cheaper.
# - Restoring pixels needs no labels. In every one of our runs on digits with hidden patches, a linear layer read more from
#   all tokens of the trained encoder than from pixels or from the untrained encoder. But between tasks a smaller error on
#   the pixels need not mean better features.
# - Compare a trained encoder with copies that were changed as much, at random: in our run they had two thirds of the gain on the
#   mean token. Only the rest is shown to be learned.
# - Compare with the plainest thing: an untrained encoder, a soap film, a mean colour. Sometimes it wins.

# %% [markdown]
# ## Check yourself
#
# 1. Text models hide 15 % of the words (BERT), this one 75 % of the patches. Why so many?
# 2. A colleague's loss falls to 0.0001 within minutes. What do you test first?
# 3. After training, which half do you keep?
#
# <details><summary>Answers</summary>
#
# 1. Neighbouring pixels are nearly alike: with few hidden, the neighbours would give much of the answer away. Single
#    words carry much more of the meaning (He et al. 2021, section 1). They compared shares on photographs (section 4.1), where 75 % was best for the probe. On digits, 25 and 50 % were as
#    good, but dearer: the more is hidden, the fewer tokens the encoder works on.
# 2. Whether hidden pixels reach the encoder: change them, and the output must stay the same. Then whether the loss
#    counts visible patches, which a model can copy.
# 3. The encoder. It has never seen a mask token, so whole images differ from what it was trained on only in their
#    number of tokens.
#
# </details>

# %% [markdown]
# **To read**: He et al. 2021 ([arXiv:2111.06377](https://arxiv.org/abs/2111.06377)), sections 3 and 4.1; Vincent et
# al. 2008, denoising autoencoders; Alain and Bengio 2016 ([arXiv:1610.01644](https://arxiv.org/abs/1610.01644)),
# section 3, probes; Devlin et al. 2018 ([arXiv:1810.04805](https://arxiv.org/abs/1810.04805)), section 3.1, masked
# words.
#
# **Next**: 13, two signals.
