# %% [markdown]
# # 06 Image transformer
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/06_image_transformer.ipynb)
#
# ← [05 The transformer block](05_transformer_block.ipynb) · [the map of the course](00_welcome.ipynb) · [07 Distance bias](07_distance_bias.ipynb) →
#
# Needs: notebook 05 · runs in about 60 s on two CPU cores · about 1½ hours of study

# %% [markdown]
# After this notebook you can
#
# - turn an image into a sequence of tokens, and say why a strided convolution does it;
# - build the image transformer from parts that you already have;
# - train it on handwritten digits, and read its three weight pictures: filters, positions, attention.
#
# New against 05: only the two ends, image to sequence and sequence to class.

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
import ipywidgets
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

from sciformer import ImageToSequence, ImageTransformer, NoPositions, TransformerBlock
from sciformer import check, course, experiments, export_html, metrics, plotting, records
from sciformer.data import mnist
from sciformer.teach import Squares, explore
from sciformer.training import evaluate, fit

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% tags=["nbval-ignore-output"]
print(f"{course.profile()} profile on {device}, {torch.get_num_threads()} threads")

# %% [markdown]
# ## Predict first
#
# Cut a digit into 16 patches and shuffle them like a sliding puzzle. An image transformer **without** positional
# embeddings sees the original and the shuffled one. Do its logits differ a lot, a little, or not at all?
#
# Note your answer; the section *Where a patch stands* settles it.

# %% [markdown]
# ## From image to sequence
#
# Attention wants a sequence of vectors. A tiny 4×4 image, small enough to check by eye, is cut into four 2×2 patches.

# %%
tiny = torch.arange(16.0).view(4, 4)
tiny

# %%
patches = []
for row in range(0, 4, 2):
    for column in range(0, 4, 2):
        patches.append(tiny[row : row + 2, column : column + 2].flatten())
patches = torch.stack(patches)  # (4 patches, 4 pixels each)
patches

# %% [markdown]
# Patches run row by row, and so do the pixels inside a patch. torch has this loop built in: `F.unfold`.

# %%
unfolded = F.unfold(tiny[None, None], kernel_size=2, stride=2)[0].T  # (patches, pixels)
torch.testing.assert_close(unfolded, patches)

# %% [markdown]
# On a digit of 28×28 pixels, patches of 7×7 make 16 tokens with 49 features.

# %%
images, labels = mnist("test")
digit = images[labels == 4][3]  # (1, 28, 28)
digit_patches = F.unfold(digit[None], kernel_size=7, stride=7)[0].T  # (16, 49)
digit_patches.shape

# %%
plotting.images(digit_patches.view(16, 1, 7, 7), [f"patch {n}" for n in range(16)], columns=4, size=0.8)
plt.show()

# %% [markdown]
# ## From patch to token
#
# A patch becomes a token by one linear map, the same for every patch.
#
# $$x_n = W p_n + b$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $p_n$, pixels of patch $n$ | `digit_patches[n]` | (49,) |
# | $W$, the patch embedding | `conv.weight` | (64, 1, 7, 7) |
# | $b$ | `conv.bias` | (64,) |
# | $x_n$, token $n$ | `tokens[0, n]` | (64,) |

# %% [markdown]
# A convolution whose stride equals its kernel size visits each patch once. So it cuts and maps in one go.

# %%
conv = nn.Conv2d(1, 64, kernel_size=7, stride=7)
cut_and_map = conv(digit[None])  # (1, 64, 4, 4): a grid of tokens
tokens = cut_and_map.flatten(2).transpose(1, 2)  # (1, 16, 64): a sequence of tokens
tokens.shape

# %%
by_hand = digit_patches @ conv.weight.flatten(1).T + conv.bias  # (16, 64)
torch.testing.assert_close(tokens[0], by_hand, rtol=1e-4, atol=1e-5)

# %% [markdown]
# ### Break it: channels as tokens
#
# A published version flattens the other way round: each of the 64 **channels** becomes a token with 16 features. The
# shapes look harmless. Change one pixel, and count the tokens that notice.

# %%
touched = digit.clone()
touched[0, 10, 10] += 1  # row 10, column 10: inside patch 5
moved = (conv(touched[None]) - conv(digit[None])).flatten(2)[0].abs()  # (64 channels, 16 places)
print("patches as tokens :", (moved.amax(dim=0) > 1e-6).sum().item(), "of 16 tokens change")
print("channels as tokens:", (moved.amax(dim=1) > 1e-6).sum().item(), "of 64 tokens change")

# %%
ax = plotting.heatmap(moved[:16], title="change of each number", xlabel="patch", ylabel="channel", colorbar=False)
plt.show()

# %% [markdown]
# One column has moved: patch 5. Read by columns, one token knows about the pixel. Read by rows, every token is a
# blurred copy of the whole image, and attention has no places left to look at.

# %% [markdown]
# ## Where a patch stands
#
# Now the prediction. One untrained model, without positions and then with them, looks at a digit and at its shuffled
# patches.

# %%
shuffled_patches = digit_patches[torch.randperm(16)]
shuffled = F.fold(shuffled_patches.T[None], output_size=28, kernel_size=7, stride=7)[0]
plotting.images(torch.stack([digit, shuffled]), ["original", "shuffled"], size=1.6)
plt.show()

# %%
torch.manual_seed(0)
model = ImageTransformer(28, 7, 1, 10, embed_dim=64, num_heads=4, num_layers=2).eval()
for name, positions in {"none": NoPositions(64, 16), "learned": model.positions}.items():
    model.positions = positions
    with torch.no_grad():
        gap = (model(digit[None]) - model(shuffled[None])).abs().max().item()
    print(f"positions {name:8}: the logits differ", "not at all" if gap < 1e-5 else "visibly")


# %% [markdown]
# Not at all. Attention, norms and feed-forward treat all tokens alike, and a mean over tokens forgets their order. So
# each place gets a vector of its own, which is added to the token there and is learned with everything else.

# %% [markdown]
# ## From tokens to a class
#
# After the blocks there are 16 tokens, and one answer is wanted. Their mean would do. Better: a few learned queries, each
# of which takes its own weighted average. It is attention once more, with queries that do not depend on the image.

# %%
class MyClassifier(nn.Module):
    def __init__(self, embed_dim, num_classes, num_queries):
        super().__init__()
        self.norm = nn.LayerNorm(embed_dim)
        self.queries = nn.Linear(embed_dim, num_queries, bias=False)  # row m is query m
        self.linear = nn.Linear(embed_dim * num_queries, num_classes)

    def forward(self, tokens):  # (B, L, E)
        tokens = self.norm(tokens)
        weights = self.queries(tokens).softmax(dim=1)  # (B, L, M): each query's weights sum to 1 over the tokens
        summaries = weights.transpose(1, 2) @ tokens  # (B, M, E)
        return self.linear(summaries.flatten(1))  # (B, classes)


# %% [markdown]
# The mean is a special case: a query of zeros gives every token the same weight.

# %%
mean_classifier = MyClassifier(64, 10, num_queries=1)
nn.init.zeros_(mean_classifier.queries.weight)
by_mean = mean_classifier.linear(mean_classifier.norm(tokens).mean(dim=1))
torch.testing.assert_close(mean_classifier(tokens), by_mean)


# %% [markdown]
# ## The whole model
#
# Patches, positions, blocks, classifier. Three of the four are already there.

# %%
class MyPositions(nn.Module):
    def __init__(self, embed_dim, length):
        super().__init__()
        self.table = nn.Parameter(0.02 * torch.randn(length, embed_dim))  # starts small, as in notebook 04

    def forward(self, tokens):  # (B, L, E)
        return tokens + self.table


# %%
class MyImageTransformer(nn.Module):
    def __init__(self, image_size, patch_size, embed_dim, num_heads, num_layers, expansion, num_queries):
        super().__init__()
        self.to_sequence = ImageToSequence(image_size, patch_size, 1, embed_dim)
        self.positions = MyPositions(embed_dim, self.to_sequence.num_tokens)
        self.blocks = nn.ModuleList(
            TransformerBlock(embed_dim, num_heads, expansion=expansion) for _ in range(num_layers)
        )
        self.classifier = MyClassifier(embed_dim, 10, num_queries)

    def forward(self, images):  # (B, 1, H, W)
        tokens = self.positions(self.to_sequence(images))  # (B, L, E)
        for block in self.blocks:
            tokens, _ = block(tokens)
        return self.classifier(tokens)  # (B, 10)


# %% [markdown]
# The package's model is the same thing: same parameters, same outputs, same gradients.

# %%
sizes = {"embed_dim": 64, "num_heads": 4, "num_layers": 3, "expansion": 2, "num_queries": 8}
mine = MyImageTransformer(28, 7, **sizes)
packaged = ImageTransformer(28, 7, 1, 10, **sizes)
course.assert_same_module(mine, packaged, images[:2])

# %%
for name, part in packaged.named_children():
    print(f"{name:12} {sum(p.numel() for p in part.parameters()):7,} parameters")
print(f"{'in all':12} {sum(p.numel() for p in packaged.parameters()):7,}")

# %% [markdown]
# ## Train it
#
# The same setting that `python -m sciformer record mnist-image-transformer` runs. In the quick profile: the 10,000
# embedded digits, each turned, shifted and zoomed a little every time it is seen.

# %%
setting = experiments.MNIST_IMAGE_TRANSFORMER[course.profile()]
torch.manual_seed(0)
model = setting.model().to(device)
train_batches = setting.training_batches(seed=0, device=device)
test_batches = setting.test_batches(device)

# %%
moved_digits, _ = next(setting.training_batches(seed=1))
plotting.images(moved_digits[:20])
plt.show()


# %%
def look(step, model):
    if step % (setting.train.steps // 10) == 0:
        return {"test accuracy": evaluate(model, test_batches, metrics.accuracy)}


# %% tags=["nbval-ignore-output"]
history = fit(model, train_batches, F.cross_entropy, setting.train, on_step=look)
accuracy = evaluate(model, test_batches, metrics.accuracy)
print(f"test accuracy {100 * accuracy:.2f} % after {setting.train.steps} steps in {history.seconds:.0f} s")

# %%
course.verdict("accuracy on digits never seen in training", accuracy, above=0.98, measured="quick")

# %%
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
plotting.curves({"model": history.loss}, ylabel="training loss", smooth=50, logy=True, ax=left)
plotting.curves(history.metrics, ylabel="test accuracy", ax=right)
plt.show()

# %% [markdown]
# ## The recorded runs
#
# One run is an anecdote. These are the recorded runs of each profile: mean ± standard error over the seeds.

# %%
for name in experiments.MNIST_IMAGE_TRANSFORMER:
    print(records.describe_record("mnist-image-transformer", "test accuracy", name))

# %%
series = {"this run": [(step / setting.train.steps, value) for step, value in history.metrics["test accuracy"]]}
for name in experiments.MNIST_IMAGE_TRANSFORMER:
    record = records.load_record("mnist-image-transformer", name)
    for run in record["runs"] if record else []:
        curve = [(step / record["config"]["train"]["steps"], value) for step, value in run["curves"]["test accuracy"]]
        series[f"recorded, {name}, seed {run['seed']}"] = curve
plotting.curves(series, xlabel="share of the training", ylabel="test accuracy", title="this run among the recorded")
plt.show()

# %% [markdown]
# ## Picture 1: what a patch is compared with
#
# Each of the 64 filters is a pattern of a patch's size; a token's number 17 says how much of pattern 17 its patch contains.
# Red counts for, blue against.

# %%
filters = model.to_sequence.projection.weight.detach()  # (64, 1, 7, 7) with patches of 7×7
plotting.images(filters, columns=16, signed=True, size=0.55)
plt.show()

# %% [markdown]
# ## Picture 2: what the model knows about places
#
# Nobody told the model which patch lies under which. Compare each place's learned vector with all others: one small map
# for each place, laid out as the image is.

# %%
similarity = F.cosine_similarity(model.positions.table[:, None], model.positions.table[None], dim=-1)  # (L, L)
grid = model.to_sequence.grid_size
titles = [f"to {n}" for n in range(grid * grid)]
plotting.images(similarity.view(-1, 1, grid, grid), titles, columns=grid, signed=True, size=0.9)
plt.show()

# %%
plotting.heatmap(model.positions.table, title="positional embedding", xlabel="number", ylabel="patch", signed=True)
plt.show()


# %% [markdown]
# Do neighbours resemble each other more than distant places do? Measure it instead of squinting.

# %%
def similarity_at(reach):
    place = torch.arange(grid, device=device)
    rows, columns = place.repeat_interleave(grid), place.repeat(grid)
    distance = (rows[:, None] - rows).abs() + (columns[:, None] - columns).abs()
    return similarity[distance == reach].mean().item()


# %% tags=["nbval-ignore-output"]
print([f"at distance {reach}: {similarity_at(reach):+.2f}" for reach in (1, 2, 3)])

# %%
course.verdict("similarity of neighbours minus that at distance 3", similarity_at(1) - similarity_at(3), above=0.0, measured="quick")

# %% [markdown]
# ## Picture 3: where a patch looks
#
# The weights of one digit: row $i$ of each map is how patch $i$ divides its attention among all patches.

# %%
maps = model.attention_weights(digit[None].to(device))  # one (1, H, L, L) for each block
plotting.heads(maps[0][0])
plt.show()


# %% [markdown]
# A row of such a map, laid back onto the image, is easier to read. Choose the block, and click the patch that asks (or reach
# it with Tab and Space).

# %%
def draw(block, patch):
    return plotting.attention_on_image(digit, maps[block][0], patch)


explore(
    draw,
    alt="a digit, and where one of its patches looks in each head",
    block=ipywidgets.IntSlider(value=0, min=0, max=len(maps) - 1, description="block"),
    patch=Squares(F.avg_pool2d(digit.cpu(), setting.patch_size)[0], value=grid * grid // 2 + 1),
)

# %% [markdown]
# Attention shows where information *may* flow from; what is done with it is up to values and feed-forward. Read these
# maps as a hint, not as an explanation (Jain & Wallace 2019, arXiv:1902.10186).

# %% [markdown]
# ## Look at the mistakes
#
# Which digits are taken for which? The diagonal, all that went well, is left out.

# %%
model.eval()
images, labels = (torch.cat(part) for part in zip(*test_batches, strict=True))
with torch.no_grad():
    logits = torch.cat([model(part) for part in images.split(1000)])
predicted = logits.argmax(dim=-1)

# %%
plotting.confusion(metrics.confusion_matrix(predicted, labels, 10))
plt.show()

# %% [markdown]
# The ten mistakes of which the model was most certain. Before you blame it: which would you have read rightly?

# %%
confidence, _ = logits.softmax(dim=-1).max(dim=-1)
worst = (confidence * (predicted != labels)).topk(10).indices
plotting.images(images[worst], [f"{labels[n]} read as {predicted[n]}" for n in worst], columns=5, size=1.3)
plt.show()

# %% [markdown]
# ## Your model in a page
#
# One call writes the model as a page: weights, loss curve and settings in one file, `my-digits.html` beside this notebook.
# It opens in any browser, without Python and without a network. Draw a digit in it, and watch what each patch attends to
# while you draw. The page computes the forward pass itself, in 350 lines of JavaScript that carry the package's names
# (`sciformer/teach/export/forward.js`).

# %%
page = export_html(model, "my-digits.html", history=history, setting=setting)


# %% [markdown]
# ## Exercises
#
# Write the function in place of `raise NotImplementedError` and run the cell. The first wrong run shows what is wrong with
# the result, the second names the mistake; the numbers are fresh each time.
#
# ### Exercise 1 · easy · 5 minutes
#
# Patches of a colour image, row by row. Each is one row of the result: all pixels of channel 0, row by row, then those of
# channel 1, and so on.

# %%
def cut_into_patches(image, patch_size):  # (C, H, W), P; it divides both H and W
    raise NotImplementedError  # (H/P · W/P, C · P · P)


check.cut_into_patches(cut_into_patches)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The loop above does it for one channel; `image[:, …, …]` takes all of them along.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Without a loop: `F.unfold` wants a batch, and gives (1, numbers, patches).
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def cut_into_patches(image, patch_size):
#     patches = F.unfold(image[None], patch_size, stride=patch_size)  # (1, numbers, patches)
#     return patches[0].T
# ```
#
# </details>
#
# ### Exercise 2 · middle · 6 minutes
#
# The whole model, from cut patches to logits, with the plainest read-out: embed, add the positions, apply the blocks
# one after the other, take the mean token, then `head`. Each block is a function from (B, L, E) to (B, L, E); a patch
# has N pixels.

# %%
def logits_from_patches(patches, embedding, positions, blocks, head):
    # (B, L, N), (N, E), (L, E), a list of functions, (E, classes)
    raise NotImplementedError  # (B, classes)


check.logits_from_patches(logits_from_patches)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Four steps: embed, add positions, go through the blocks, read out. `embedding` and `head` are matrices: `@`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Which axis of (B, L, E) has to go before the head? The batch stays, and the head wants the embedding.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def logits_from_patches(patches, embedding, positions, blocks, head):
#     tokens = patches @ embedding + positions  # (B, L, E)
#     for block in blocks:
#         tokens = block(tokens)
#     return tokens.mean(dim=1) @ head  # (B, classes)
# ```
#
# </details>
#
# ### Exercise 3 · hard · 12 minutes
#
# A detector. `model` is any function from images to logits (or probabilities). Say whether its output depends on the
# order of the patches. Differences below 1e-5 are rounding and do not count.

# %%
def order_matters(model, images, patch_size):  # a function, (B, C, H, W), P
    raise NotImplementedError  # True or False


check.order_matters(order_matters)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Whole patches are exchanged: `F.unfold`, a random order, `F.fold`, as in the section *Where a patch stands*.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `F.unfold` of a batch gives (B, numbers, patches); only the last axis may be shuffled. Look at every image and every
# logit, and at sizes of differences, which have signs.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def order_matters(model, images, patch_size):
#     patches = F.unfold(images, patch_size, stride=patch_size)  # (B, numbers, patches)
#     shuffled = patches[:, :, torch.randperm(patches.shape[2])]
#     moved = F.fold(shuffled, images.shape[2:], patch_size, stride=patch_size)
#     return not torch.allclose(model(images), model(moved), atol=1e-5)
# ```
#
# </details>

# %% [markdown]
# ## Your turn
#
# **1. (easy, 2 minutes)** With `patch_size=1`, how many tokens does a digit have, and how many numbers does each head's
# attention map then hold?
#
# <details><summary>Answer</summary>
#
# 784 tokens, and 784 × 784 = 614,656 weights a head, against 16 × 16 = 256 with 7×7 patches. Cost grows with the square
# of the number of tokens; notebook 01 measured it.
#
# </details>
#
# **2. (middle, 5 minutes)** Shuffle the patches of *all* digits, in training and test, by one fixed permutation. What
# happens to the accuracy of this model, and of a convolutional network?
#
# <details><summary>Answer</summary>
#
# Nothing for this model: its positions are learned, so place 5 is a name and not a location. A convolutional network
# would suffer, since it counts on neighbours being neighbours. That freedom is also why transformers need more data.
#
# </details>
#
# **3. (hard, 15 minutes)** The classifier's weights say where each query looks. Draw those of one digit for two queries
# as maps, laid out as the patches are. Do they look at fixed places, or does it depend on the digit?
#
# <details><summary>Answer</summary>
#
# Run the blocks by hand as in `MyImageTransformer.forward`, then
# `weights = model.classifier.queries(model.classifier.norm(tokens)).softmax(dim=1)` and
# `plotting.images(weights[0].T.reshape(-1, 1, grid, grid))`. Tokens carry both content and position, so it is some of
# both; compare several digits before you decide.
#
# </details>

# %% [markdown]
# ## Takeaways
#
# - A patch is a token; a convolution with stride = kernel cuts and maps linearly, and nothing more.
# - Without positions the model sees a bag of patches; with learned ones it finds out by itself which are neighbours.
# - Everything between the two ends is unchanged from notebook 05.

# %% [markdown]
# ## Check yourself
#
# 1. Which axis of the convolution's output is the token, which the embedding?
# 2. Why does a weighted average of tokens not lose *where* something was seen?
# 3. What would a high test accuracy of a model without positions tell you?
#
# <details><summary>Answers</summary>
#
# 1. The grid of places is flattened into tokens; the channels are the embedding.
# 2. Each token carries its position's vector, and the blocks have mixed it with the content before the average is taken.
# 3. That the task can be solved from a bag of patches, that is, without knowing their arrangement.
#
# </details>

# %% [markdown]
# **To read**: Dosovitskiy et al. 2020, *An image is worth 16×16 words*, arXiv:2010.11929, sections 3.1 and 4.5 (its
# figure 7 has the first two pictures, figure 6 attention over images).
