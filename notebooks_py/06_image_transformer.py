# %% [markdown]
# # 06 Image transformer
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/06_image_transformer.ipynb)
#
# ← [05 The transformer block](05_transformer_block.ipynb) · [the map of the course](00_welcome.ipynb) · [07 Distance bias](07_distance_bias.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work **06** [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb)
#
# Needs: notebook 05 · runs in about 80 s on two CPU cores · about 2 hours of study

# %% [markdown]
# You photograph a page of handwriting, send it to a chatbot, and it reads the page to you. The model behind it was built for words. Where
# did it learn to see?
#
# Until 2020, machines saw with **convolutional networks**: small filters that slide over the picture, an idea that LeCun's group had used to
# [read handwritten postcodes](http://yann.lecun.com/exdb/publis/pdf/lecun-89e.pdf) in 1989. Then
# [Dosovitskiy and his colleagues](https://arxiv.org/abs/2010.11929) tried something that sounded far too simple. They cut a picture into squares of 16×16
# pixels, treated each square as if it were a word, and gave the sequence to the transformer of 2017 with hardly a change. Trained on the
# million pictures of the ImageNet collection, their model read a little fewer pictures than convolutional networks of its size; trained on three
# hundred million pictures it read more.
#
# In this notebook you cut, embed, stack and train such a **[vision transformer](../docs/glossary.md#v)** yourself. Afterwards you can
#
# - turn a picture into a sequence of tokens, and explain why a convolution with a large stride does it in one step;
# - build the whole model from the blocks of notebook 05, and check that it computes what the package's model computes, gradients included;
# - train it on handwritten digits with AdamW, beside a convolutional network, and say how sure the two results are;
# - read three pictures of its weights, and keep what they show apart from what one would like to see in them.

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
import torch
import torch.nn.functional as F
from torch import nn

from sciformer import Classifier, ImageToSequence, ImageTransformer, LearnedPositions, NoPositions, TransformerBlock
from sciformer import check, course, experiments, export_html, metrics, plotting, records
from sciformer.data import batches, mnist, random_affine
from sciformer.teach import Squares, explore
from sciformer.teach.diagrams import image_pipeline

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
size = "small" if course.profile() == "quick" else "full"

# %% tags=["nbval-ignore-output"]
print(f"{course.profile()} profile on {device}, {torch.get_num_threads()} threads")

# %% [markdown]
# ## Predict first
#
# Write three guesses down. You will meet each of them again, next to a measured number.
#
# 1. You cut a digit into 16 squares and shuffle them like a sliding puzzle. A vision transformer **without** positions sees the original and
#    the shuffled picture. Do its ten logits differ a lot, a little, or not at all?
# 2. Nobody will tell the model which square lies beside which, or which lies above which. Will the positions that it learns resemble each
#    other more for neighbours in a row, for neighbours in a column, or for neither?
# 3. A vision transformer and a small convolutional network are trained on the same digits, for the same number of steps. Which of the two
#    reads more of the digits that it has never seen?

# %% [markdown]
# ## What we are about to build
#
# Here is the whole machine, with the numbers of a model that has not been trained yet. Read it from the top: a digit, its squares, one token
# for each square, the blocks of notebook 05, one logit for each of the ten classes.

# %%
images, labels = mnist("test")
digit = images[labels == 4][3]  # (1, 28, 28)
untrained = ImageTransformer(28, 7, 1, 10, embed_dim=64, num_heads=4, num_layers=3, expansion=2).eval()
with torch.no_grad():
    tokens, logits = untrained.to_sequence(digit[None])[0], untrained(digit[None])[0]
image_pipeline(digit, tokens, untrained.positions.table, logits, num_blocks=3)
plotting.show(
    "A diagram. Above, a handwritten four, cut into 16 squares that stand in a row. Under each square three numbers of its token, and three "
    "numbers of its position, which are added. All go into one wide box of three transformer blocks, then a mean over the 16 tokens, a linear "
    "map, and ten logits."
)

# %% [markdown]
# Only the two ends are new: from picture to sequence, and from sequence to class. Let us build them in this order.

# %% [markdown]
# ## From image to sequence
#
# Attention wants a sequence of vectors. Each square of pixels is called a **[patch](../docs/glossary.md#p)**. Take a tiny picture of 4×4
# pixels, small enough to check by eye, and cut it into four patches of 2×2.

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
# Patches run row by row, and so do the pixels inside a patch. A plain reshape does *not* do
# this: each row of `tiny` already has four numbers, and they are a row of pixels and not a patch. Neighbours in memory are neighbours in a row only.
#
# torch has the two loops built in. `F.unfold` wants a batch of pictures with channels, and returns one *column* for each patch:

# %%
unfolded = F.unfold(tiny[None, None], kernel_size=2, stride=2)[0].T  # (patches, pixels)
torch.testing.assert_close(unfolded, patches)


# %% [markdown]
# ### Exercise 1 · easy · 5 minutes
#
# Cut one picture into patches. `image` has shape (C, H, W) and may have several channels, as a colour picture has; `patch_size` is P and
# divides both H and W, which may differ. The result has one row for each patch, in the order in which we read, and C·P·P pixels in each row:
# all pixels of channel 0, row by row, then those of channel 1, and so on. The notebook goes on with your function.

# %%
def cut_into_patches(image, patch_size):  # (C, H, W), P
    raise NotImplementedError  # (H/P · W/P, C · P · P)


cut_into_patches = check.cut_into_patches.use(cut_into_patches)

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

# %% [markdown]
# On a digit of 28×28 pixels, patches of 7×7 make 16 vectors with 49 features.

# %%
digit_patches = cut_into_patches(digit, 7)
digit_patches.shape

# %%
plotting.images(digit_patches.view(16, 1, 7, 7), [f"patch {n}" for n in range(16)], columns=4, size=0.8)
plotting.show(
    "The sixteen patches of a handwritten four, laid out four by four with small gaps, so that the digit can still be read."
)

# %% [markdown]
# ## From patch to token
#
# A patch becomes a token by one linear map, the same for every patch. Its $64 \cdot 49$ weights are learned with everything else.
#
# $$x_n = W p_n + b$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $p_n$, the pixels of patch $n$ | `digit_patches[n]` | (49,) |
# | $W$, the **patch embedding** | `conv.weight.flatten(1)` | (64, 49) |
# | $b$ | `conv.bias` | (64,) |
# | $x_n$, token $n$ | `tokens[n]` | (64,) |

# %% [markdown]
# ### A convolution cuts and maps at once
#
# A **[convolution](../docs/glossary.md#c)** lays a small window of weights over the picture, multiplies, adds up, and moves on; the **stride**
# says how far it moves. Convolutional networks use windows of 3×3 and a stride of 1, so that the windows overlap. If the stride is as large
# as the window, every patch is visited exactly once. Then the convolution is the linear map above, and cuts in passing.

# %%
conv = nn.Conv2d(1, 64, kernel_size=7, stride=7)
grid = conv(digit[None])  # (1, 64, 4, 4): 64 features at each place of a grid of 4×4
by_hand = digit_patches @ conv.weight.flatten(1).T + conv.bias  # (16, 64)
torch.testing.assert_close(grid[0, :, 1, 2], by_hand[6], rtol=1e-4, atol=1e-5)  # row 1, column 2: patch 6


# %% [markdown]
# ### Exercise 2 · middle · 8 minutes
#
# From a batch of pictures to a batch of token sequences, in one function. `images` are (B, C, H, W); `weight` is (E, C, P, P) and `bias` (E,), as
# `nn.Conv2d` holds them, so that P is the last size of `weight`. P divides H and W, which may differ. The result is (B, L, E): a token for
# each patch, row by row, and no activation. A matrix product with your `cut_into_patches` is as right as a convolution. Your function is what
# will be trained below.

# %%
def embed_patches(images, weight, bias):  # (B, C, H, W), (E, C, P, P), (E,)
    raise NotImplementedError  # (B, L, E) with L = H/P · W/P


embed_patches = check.embed_patches.use(embed_patches)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `F.conv2d(images, weight, bias, stride=…)` does both, and gives (B, E, rows, columns). Which stride lets no two patches overlap?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `.flatten(2)` makes one axis of rows and columns: (B, E, L). Which two axes have to be exchanged?
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def embed_patches(images, weight, bias):
#     grid = F.conv2d(images, weight, bias, stride=weight.shape[-1])  # (B, E, rows, columns)
#     return grid.flatten(2).transpose(1, 2)  # (B, L, E)
# ```
#
# </details>

# %%
tokens = embed_patches(digit[None], conv.weight, conv.bias)  # (1, 16, 64)
torch.testing.assert_close(tokens[0], by_hand, rtol=1e-4, atol=1e-5)
tokens.shape

# %% [markdown]
# ### Break it: channels as tokens
#
# The output of a convolution is called its **channels**, here 64 of them, as the input's are the colours. `grid.flatten(2)` is (B, 64, 16). A slip that is easily
# made: the last two axes are not exchanged, so that each of the 64 channels becomes a token with 16 features. The shapes look harmless. To see the damage, change one pixel and count the tokens that notice.

# %%
touched = digit.clone()
touched[0, 10, 10] += 1  # row 10, column 10: inside patch 5
moved = (conv(touched[None]) - conv(digit[None])).flatten(2)[0].detach().abs()  # (64 channels, 16 places)
print("patches as tokens :", (moved.amax(dim=0) > 1e-6).sum().item(), "of 16 tokens change")
print("channels as tokens:", (moved.amax(dim=1) > 1e-6).sum().item(), "of 64 tokens change")

# %%
plotting.heatmap(moved[:16], title="how much each feature changes", xlabel="patch", ylabel="channel", colorbar=False)
plotting.show("A heatmap of 16 channels by 16 patches. Only the column of patch 5 is bright; everything else is dark.")

# %% [markdown]
# One column has moved: patch 5. Read by columns, a single token knows about the pixel, and attention can look for it there. Read by rows,
# every token depends on all pixels of the picture, and there are no places left to look at.

# %% [markdown]
# ## Where a patch stands
#
# Now your first guess. One untrained model, first without positions and then with them, looks at a digit and at its shuffled patches.

# %%
shuffled_patches = digit_patches[torch.randperm(16)]
shuffled = F.fold(shuffled_patches.T[None], output_size=28, kernel_size=7, stride=7)[0]
plotting.images(torch.stack([digit, shuffled]), ["original", "shuffled"], size=1.6)
plotting.show("Left, the handwritten four. Right, its patches in another order: strokes that no longer meet.")

# %%
learned = untrained.positions
for name, positions in {"none": NoPositions(64, 16), "learned": learned}.items():
    untrained.positions = positions
    with torch.no_grad():
        gap = (untrained(digit[None]) - untrained(shuffled[None])).abs().max().item()
    print(f"positions {name:8}: largest difference of a logit {'below 1e-5' if gap < 1e-5 else f'{gap:.2f}'}")

# %% [markdown]
# Without positions they differ not at all, except for rounding. Attention, norms and feed-forward treat all tokens alike, and a mean over
# tokens forgets their order: the model sees a *bag* of patches. With positions the difference is there before any training.
#
# So each place in the grid gets a vector of its own, which is added to the token that comes from there. Dosovitskiy and his colleagues learn these
# vectors with everything else, and so do we: **[learned positions](../docs/glossary.md#l)**, a table of 16 rows and 64 columns. Nothing in
# the table says that place 5 lies under place 1. Whether training finds that out is your second guess.

# %% [markdown]
# ## From tokens to a class
#
# After the blocks there are 16 tokens, and one answer is wanted. Two ways are usual.
#
# The first is a **[class token](../docs/glossary.md#c)**, taken over from BERT by the paper of 2020. One more learned vector is put in front
# of the patches. It stands for no part of the picture. It goes through all blocks, collects by attention what it needs, and the logits are
# read from it alone.

# %%
class_token = nn.Parameter(torch.zeros(1, 1, 64))
with_class = torch.cat([class_token.expand(len(tokens), -1, -1), tokens], dim=1)
print("tokens", tuple(tokens.shape), "with a class token", tuple(with_class.shape))


# %% [markdown]
# The second is the **mean** over all tokens. We take it here because it adds no token and no parameter, and because nothing is known to be lost. In appendix D.3 of their paper the
# authors report that both work equally well once each has its own learning rate, and [the same group's plainer model of
# 2022](https://arxiv.org/abs/2205.01580) uses the mean.
#
# One detail: the blocks of notebook 05 are pre-norm, so they norm what goes into attention and feed-forward, but not the sum that comes out. So one more
# layer norm is applied behind the last block, before the mean.
#
# $$\text{logits} = A\,\Big(\frac1L \sum_{n} \text{norm}(x_n)\Big) + c$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $x_n$, a token behind the last block | `tokens[:, n]` | (B, E) |
# | norm | `classifier.norm` | (E,) weights and biases |
# | $A$, $c$ | `classifier.linear` | (10, E) and (10,) |

# %% [markdown]
# ## The whole model
#
# Everything is there: your embedding, the positions, the blocks of notebook 05, and the read-out.
#
# ### Exercise 3 · middle · 8 minutes
#
# The constructor below makes the parts, under the names that the package uses. What happens with them is yours: write `forward`. Call your own
# `embed_patches` with `weight` and `bias` of `self.to_sequence.projection`; add `self.positions.table`, (L, E), once; send the tokens through
# the blocks one after the other; apply `self.classifier.norm` to every token and take the mean over the tokens; `self.classifier.linear` makes
# the ten logits. Return logits, not probabilities. A block returns two things: the tokens, and its attention weights (or None).

# %%
class VisionTransformer(nn.Module):
    def __init__(self, image_size, patch_size, embed_dim, num_heads, num_layers):
        super().__init__()
        self.to_sequence = ImageToSequence(image_size, patch_size, 1, embed_dim)
        self.positions = LearnedPositions(embed_dim, self.to_sequence.num_tokens)
        self.blocks = nn.ModuleList(TransformerBlock(embed_dim, num_heads, expansion=2) for _ in range(num_layers))
        self.classifier = Classifier(embed_dim, 10)

    def forward(self, images):  # (B, 1, H, W)
        raise NotImplementedError  # (B, 10)


VisionTransformer = check.VisionTransformer.use(VisionTransformer)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Five steps: embed the patches, add the table of positions, go through the blocks one after the other, norm and average, map to ten logits.
#
# </details>
# <details><summary>Hint 2</summary>
#
# A block returns two things, the tokens and its attention weights or None: `tokens, _ = block(tokens)`. The mean runs over the patches,
# `dim=1`.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# class VisionTransformer(nn.Module):
#     def __init__(self, image_size, patch_size, embed_dim, num_heads, num_layers):
#         super().__init__()
#         self.to_sequence = ImageToSequence(image_size, patch_size, 1, embed_dim)
#         self.positions = LearnedPositions(embed_dim, self.to_sequence.num_tokens)
#         self.blocks = nn.ModuleList(TransformerBlock(embed_dim, num_heads, expansion=2) for _ in range(num_layers))
#         self.classifier = Classifier(embed_dim, 10)
#
#     def forward(self, images):  # (B, 1, H, W)
#         projection = self.to_sequence.projection
#         tokens = embed_patches(images, projection.weight, projection.bias)  # (B, L, E)
#         tokens = tokens + self.positions.table
#         for block in self.blocks:
#             tokens, _ = block(tokens)
#         summary = self.classifier.norm(tokens).mean(dim=1)  # (B, E)
#         return self.classifier.linear(summary)  # (B, 10)
# ```
#
# </details>

# %% [markdown]
# The package's model has the same parameters under the same names. Given the same weights, in float64, do the two compute the same outputs and
# the same gradients?

# %%
mine = VisionTransformer(28, 7, embed_dim=64, num_heads=4, num_layers=3)
packaged = ImageTransformer(28, 7, 1, 10, embed_dim=64, num_heads=4, num_layers=3, expansion=2)
course.assert_same_module(mine, packaged, images[:2])

# %%
for name, part in mine.named_children():
    print(f"{name:12} {sum(p.numel() for p in part.parameters()):7,} parameters")
print(f"{'in all':12} {sum(p.numel() for p in mine.parameters()):7,}")

# %% [markdown]
# Nearly all parameters are in the blocks, and a block does not know that it looks at a picture. That is the point of the paper's title: *an
# image is worth 16×16 words*.

# %% [markdown]
# ## Train it
#
# The quick profile trains on the 10,000 digits that are part of the package; the full profile takes all 60,000. A model can memorise so few
# digits. To make that harder, each digit is turned, shifted and zoomed a little every time it is seen. This is **[data augmentation](../docs/glossary.md#d)**:
# a four that is turned by eight degrees is still a four, and the model should know it.

# %%
train_images, train_labels = (tensor.to(device) for tensor in mnist("train", size=size))
test_images, test_labels = (tensor.to(device) for tensor in mnist("test", size=size))


def move_a_little(images, generator):
    return random_affine(images, generator, degrees=10.0, translate=2.0, scale=0.1)


first, _ = next(batches(*mnist("train"), batch_size=20, seed=1, augment=move_a_little))
plotting.images(first)
plotting.show("Twenty handwritten digits, each a little turned, shifted or zoomed, all still easy to read.")


# %% [markdown]
# The optimiser is **[AdamW](../docs/glossary.md#a)** ([Loshchilov and Hutter 2019](https://arxiv.org/abs/1711.05101)). Plain gradient descent
# moves every parameter by the same multiple of its gradient, although some gradients are a thousand times larger than others. Adam keeps
# two running averages for each parameter, of the gradient and of its square, and divides one by the root of the other: the step is then
# about as large as the learning rate, whatever the size of the gradient. The W stands for **weight decay**: in each step every weight also
# shrinks by a tiny share of itself, apart from the gradient, so that only weights that the data keep asking for stay large.
#
# The rate rises during 50 steps (the **[warm-up](../docs/glossary.md#w)** of notebook 05) and then falls in a line to 0.

# %%
def train(model, rate, steps=800):
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.1)
    stream = batches(train_images, train_labels, batch_size=100, seed=0, augment=move_a_little)
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 50) * (1 - step / steps)
        images, labels = next(stream)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


# %%
def read(model):  # which of the test digits are read right, as 0 and 1
    model.eval()
    with torch.no_grad():
        predicted = torch.cat([model(part).argmax(dim=-1) for part in test_images.split(1000)])
    return (predicted == test_labels).float().cpu()


# %% [markdown]
# Now train *your* model: 800 steps of 100 digits, each digit of the quick profile eight times.

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
model = VisionTransformer(28, 7, embed_dim=64, num_heads=4, num_layers=3).to(device)
losses = {"vision transformer": train(model, rate=3e-3)}
right = {"vision transformer": read(model)}
print(f"{right['vision transformer'].mean():.2%} of {len(test_labels):,} test digits read right")

# %%
course.verdict(
    "share of test digits read right by your model",
    right["vision transformer"].mean().item(),
    above=0.9,
    measured="quick",
)

# %% [markdown]
# One in ten would be a guess; your model reads nearly all of them. How good is that? A number needs a neighbour.
#
# ## A small convolutional network beside it
#
# Two layers of 3×3 filters, each followed by a **max pooling** that keeps the largest of every 2×2 values, then one linear map. It is trained with equal
# care: the same loop, the same digits, the same steps. The learning rate was chosen for each model by itself among 0.001, 0.003
# and 0.01: each candidate was trained on the first 8,000 digits, and the winner read most of the last 2,000 training digits. The test digits took no part in
# the choice. (For the network the largest of the three won, so a still larger one might be better yet.)

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
cnn = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),  # (B, 16, 14, 14)
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),  # (B, 32, 7, 7)
    nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
).to(device)  # fmt: skip
losses["convolutional network"] = train(cnn, rate=1e-2)
right["convolutional network"] = read(cnn)
for name, network in {"vision transformer": model, "convolutional network": cnn}.items():
    print(f"{name:22} {sum(p.numel() for p in network.parameters()):7,} parameters, {right[name].mean():.2%} right")

# %%
plotting.curves(losses, ylabel="training loss", smooth=50, logy=True)
plotting.show(
    "Two falling curves of the training loss on a logarithmic axis. The convolutional network's is the lower one for most of the training."
)

# %% [markdown]
# ### How sure is that?
#
# The quick profile's test set has 2,000 digits, drawn at random. Another 2,000 would have given another share. If a model reads a share $p$ of
# *all* digits right, then the share among $n$ random ones scatters around $p$ with the **[standard error](../docs/glossary.md#s)**
#
# $$\sqrt{p\,(1 - p) / n}.$$
#
# For a model that is right 98.9 % of the time, as those of the recorded runs below, and $n = 2000$ this is 0.23 percentage points. So a difference of 0.2 points
# between two models that read *different* 2,000 digits says nothing. If both read the *same* digits, one can do better: take the difference digit by digit.
# Most digits are read alike by both and contribute 0, and the mean difference gets a smaller error of its own.

# %% tags=["nbval-ignore-output"]
n = len(test_labels)
for name, correct in right.items():
    p = correct.mean().item()
    print(f"{name:22} {100 * p:.2f} ± {100 * (p * (1 - p) / n) ** 0.5:.2f} %")
difference = right["convolutional network"] - right["vision transformer"]  # 1, 0 or −1 for each digit
mean, error = metrics.mean_and_error(difference.tolist())
print(f"network minus transformer: {100 * mean:+.2f} ± {100 * error:.2f} points")

# %%
course.verdict("the network's lead over its error", mean / error, above=2, measured="quick")

# %% [markdown]
# In the quick profile, and with these two trained models, the third guess is settled: the convolutional network reads more digits, with a fifth of
# the parameters. The paper of 2020 found the same at the scale of ImageNet and explains it by **[inductive bias](../docs/glossary.md#i)**: the small windows of a
# convolutional network take for granted that neighbouring pixels belong together, and a transformer has to learn that from examples. There, three hundred
# million pictures made up for it.
#
# Mind what *our* numbers do not show. They measure a gap and not its cause. The transformer's loss is higher on the training digits, too, so it may lack
# steps as much as data; the recorded runs below, with more steps and another recipe, close most of the gap. And one pair of models from one seed says nothing about
# how other seeds would end.

# %% [markdown]
# ## Picture 1: what a patch is compared with
#
# Each of the 64 rows of $W$ is a pattern of a patch's size, called a **filter**: feature 17 of a token says how much of pattern 17 its patch
# contains. Red counts for, blue against. One would like to see strokes and edges; after so short a training most filters still look
# like noise, and figure 7 of the paper shows how smooth they get after far more. The names of all
# parameters agree, so the package's model can take over your weights, and the pictures below are those of your model.

# %%
packaged.load_state_dict(model.cpu().state_dict())
packaged.eval()
filters = packaged.to_sequence.projection.weight.detach()  # (64, 1, 7, 7)
plotting.images(filters, columns=16, signed=True, size=0.55)
plotting.show(
    "64 small squares of 7×7 in red and blue. A few show a spot or an edge, most look like noise."
)

# %% [markdown]
# ## Picture 2: what the model knows about places
#
# The second guess. Compare the learned vector of each place with those of all other places by their **[cosine similarity](../docs/glossary.md#c)**: the dot
# product divided by both lengths, 1 for the same direction, 0 for a right angle, −1 for opposite directions. One small map belongs to each place, laid out as the picture is.

# %%
similarity = F.cosine_similarity(
    packaged.positions.table[:, None], packaged.positions.table[None], dim=-1
).detach()  # (L, L)
plotting.images(similarity.view(16, 1, 4, 4), [f"to {n}" for n in range(16)], columns=4, signed=True, size=0.9)
plotting.show(
    "Sixteen maps of four by four squares. In each, the place itself is dark red; the others are paler, red or blue."
)


# %% [markdown]
# It is tempting to see neighbourhoods in such maps. Measure instead of squinting, and keep the two directions apart: the mean over all pairs of
# places that are so many rows and so many columns from each other.

# %%
def similarity_at(rows, columns):
    row, column = torch.arange(16) // 4, torch.arange(16) % 4
    apart = ((row[:, None] - row).abs() == rows) & ((column[:, None] - column).abs() == columns)
    return similarity[apart].mean().item()


by_distance = torch.tensor([[similarity_at(rows, columns) for columns in range(4)] for rows in range(4)])
plotting.heatmap(by_distance, signed=True, xlabel="columns apart", ylabel="rows apart", title="mean similarity")
plotting.show(
    "A table of four by four mean similarities by rows and columns apart, in red and blue with the numbers written in."
)

# %% [markdown]
# How large are such numbers by chance? The cosine of two random vectors of 64 features scatters around 0 with a standard deviation of $1/\sqrt{64} = 0.125$.
# There are 12 pairs of neighbours in a row, and 12 in a column, so their mean scatters by about $0.125/\sqrt{12} = 0.036$. Three times that,
# 0.11, is a bound that a random table, as ours was before training, hardly ever exceeds.

# %%
course.verdict("similarity of neighbours in a row", similarity_at(0, 1), above=0.11, measured="quick")
course.verdict(
    "similarity in a row minus that in a column",
    similarity_at(0, 1) - similarity_at(1, 0),
    above=0.15,
    measured="quick",
)

# %% [markdown]
# So, in the quick profile and for this one model, the second guess is settled: neighbours in a row resemble each other far more than chance would
# have it, and neighbours in a column do not. Look at the whole table before you call that a sense of neighbourhood: are places at the two ends of a row less
# similar than neighbours? And what is the sign one row further down? (For the difference of two such means three standard deviations are $3 \cdot \sqrt 2 \cdot 0.036 = 0.15$.)
# The table above is no map of the picture in which similarity falls evenly with the distance; such a map is figure 7 of the paper, which shows a far larger
# model after far more pictures. Training was asked to read digits, not to draw a map.

# %% [markdown]
# ## Picture 3: where a patch looks
#
# The **[attention map](../docs/glossary.md#a)** of one digit in each head of the first block: row $i$ is how patch $i$ divides its attention
# among all patches. Where a head has a bright column, many patches look at the same one: find that patch in the diagram above, and see how much ink it holds.

# %%
maps = [weights.detach() for weights in packaged.attention_weights(digit[None])]  # one (1, H, L, L) for each block
plotting.heads(maps[0][0])
plotting.show(
    "Four heatmaps of 16 by 16 weights, one for each head. Some have bright columns, where many patches look at the same few."
)


# %% [markdown]
# A row of such a map, laid back onto the picture, is easier to read. Choose the block, and click the patch that asks (or reach it with Tab and
# Space).

# %%
def draw(block, patch):
    return plotting.attention_on_image(digit, maps[block][0], patch)


explore(
    draw,
    alt="a digit, and where one of its patches looks in each head",
    block=ipywidgets.IntSlider(value=0, min=0, max=len(maps) - 1, description="block"),
    patch=Squares(F.avg_pool2d(digit, 7)[0], value=9),
)

# %% [markdown]
# Attention says where information *may* flow from. What is done with it is up to the values and the feed-forward. Read these maps as a hint, not as an
# explanation ([Jain and Wallace 2019](https://arxiv.org/abs/1902.10186)).

# %% [markdown]
# ## Look at the mistakes
#
# Which digits does your model take for which? The diagonal, all that went well, is left out.

# %%
model.to(device)
with torch.no_grad():
    logits = torch.cat([model(part) for part in test_images.split(1000)])
predicted = logits.argmax(dim=-1)
plotting.confusion(metrics.confusion_matrix(predicted, test_labels, 10))
plotting.show(
    "A table of ten by ten with the counts of mistakes, the true digit in rows and what it was taken for in columns."
)

# %% [markdown]
# And the ten mistakes of which it was most certain. Before you blame the model: which of them would you have read rightly?

# %%
confidence, _ = logits.softmax(dim=-1).max(dim=-1)
worst = (confidence * (predicted != test_labels)).topk(10).indices
plotting.images(test_images[worst], [f"{test_labels[n]} read as {predicted[n]}" for n in worst], columns=5, size=1.3)
plotting.show(
    "Ten handwritten digits that were misread, with the right class and the one that the model chose above each."
)

# %% [markdown]
# ## The recorded runs
#
# One run is an anecdote. A **[record](../docs/glossary.md#r)** in the folder [results](../results/README.md) holds five. They train this model for
# 1,500 steps of 128 digits, read it out with eight learned queries in place of the mean (the optional section at the end builds them), and use
# the optimiser Muon, which notebook 08 explains.

# %%
for name in experiments.MNIST_IMAGE_TRANSFORMER:
    print(records.describe_record("mnist-image-transformer", "test accuracy", name))

# %% [markdown]
# Two different errors must not be mixed up here. The ± of the quick record is the standard error of the mean over five seeds, all measured on *these
# same 2,000 digits*. How well the model would read other digits is uncertain by the sampling error as well, 0.23 points at this accuracy.
#
# Put the record beside your two models. With more steps, learned queries and Muon the transformer comes within a few tenths of a point of the small
# network: a recipe can be worth as much as an architecture.

# %% [markdown]
# ## Your model in a page
#
# One call writes your model as a page: weights and loss curve in one file, `my-digits.html` beside this notebook. It opens in any browser,
# without Python and without a network. Draw a digit in it, and watch what each patch attends to while you draw. The page computes the forward
# pass itself, in 350 lines of [JavaScript](../sciformer/teach/export/forward.js) that carry the package's names. The course's
# [playground](../site/playground.md) is made of such pages, and [docs/architecture.md](../docs/architecture.md) follows a digit through the
# package's model, shape by shape.

# %%
page = export_html(packaged, "my-digits.html", history=losses["vision transformer"])


# %% [markdown]
# ## Today
#
# - **CLIP** ([Radford et al. 2021](https://arxiv.org/abs/2103.00020)) trains a vision transformer and a text transformer together on 400 million pictures
#   with their captions. The two ends of an image search are made this way.
# - **SAM** ([Kirillov et al. 2023](https://arxiv.org/abs/2304.02643)), which cuts any object out of a photograph, looks at it with a vision transformer
#   that was pre-trained by hiding patches, the subject of notebook 12.
# - **LLaVA** ([Liu et al. 2023](https://arxiv.org/abs/2304.08485)) takes the patch tokens of CLIP's vision transformer, maps them linearly, and puts them
#   before the words of a language model. Open models that chat about your photographs have been built on this plan since.
# - **DINOv2** ([Oquab et al. 2023](https://arxiv.org/abs/2304.07193)) trains vision transformers on 142 million pictures without any labels.
# - **DiT** ([Peebles and Xie 2022](https://arxiv.org/abs/2212.09748)) generates pictures with a transformer over patches.
#
# The step that all of them share is the one that you wrote in `embed_patches`.

# %% [markdown]
# ## Takeaways
#
# - A patch is a token: a convolution whose stride is its size cuts and maps linearly, and one pixel changes one token.
# - Without positions the model sees a bag of patches; its logits for a shuffled digit are the same.
# - The learned positions of one small model resembled each other along rows and not along columns: look at both directions apart.
# - After 800 equal steps on 10,000 digits our convolutional network read more than our transformer; the sampling error says whether a lead is one.
# - Everything between the two ends is unchanged from notebook 05.

# %% [markdown]
# ## Check yourself
#
# 1. Which axis of the convolution's output is the token, and which one the embedding? What goes wrong if they are confused?
# 2. Why does a mean over tokens not lose *where* something was seen?
# 3. Two models read 98.1 % and 98.4 % of the same 2,000 digits. What would you compute before you call the second one better?
#
# <details><summary>Answers</summary>
#
# 1. The grid of rows and columns is flattened into tokens; the channels are the embedding. Confused, every token depends on all pixels.
# 2. Each token carries the vector of its place, and the blocks have mixed it with the content before the mean is taken.
# 3. The mean of the differences, digit by digit, and its standard error. The difference is 6 digits; if it is not at least twice its error, the
#    digits do not tell the models apart. And for a claim about the two *kinds* of model: the same for several seeds.
#
# </details>

# %% [markdown]
# ## To read
#
# - Dosovitskiy et al. 2020, [An image is worth 16×16 words](https://arxiv.org/abs/2010.11929): section 3.1 is your model; figure 7 has the first two
#   pictures of this notebook; figure 3 shows how much data it takes to pass convolutional networks; appendix D.3 compares class token and mean.
# - Beyer, Zhai and Kolesnikov 2022, [Better plain ViT baselines for ImageNet-1k](https://arxiv.org/abs/2205.01580): two pages on what a careful recipe changes.
# - Lee et al. 2019, [Set Transformer](https://arxiv.org/abs/1810.00825), section 3.2: learned queries that read a set, for the optional section below.
#
# **Next.** Your model had to find out from examples which places are neighbours. Could attention be *told* that near things matter more, and learn
# only how much? [Notebook 07](07_distance_bias.ipynb) builds that.
#
# Two more exercises and two optional sections follow.

# %% [markdown]
# ## Exercises
#
# Write the function in place of `raise NotImplementedError` and run the cell. The first wrong run shows what is wrong with the result, the second names
# the mistake; the numbers are fresh each time.
#
# ### Exercise 4 · middle · 6 minutes
#
# The whole model once more as one function, with the plainest read-out and no norm: embed the patches with the matrix `embedding`, add `positions`, apply
# the blocks one after the other, take the mean token, then the matrix `head`. There are L patches of N pixels, given already cut. Each block is a
# function from (B, L, E) to (B, L, E), and `blocks` is a list of at least one.

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
# ### Exercise 5 · hard · 12 minutes
#
# A detector. `model` is any function from pictures (B, C, H, W) to logits or probabilities (B, classes). Say whether its output depends on the order of the
# patches: True if the output of any picture changes when its patches are put into a random order. Patches have P×P pixels and stay whole; a single random order is enough.
# Rounding does not count: compare as `torch.allclose(…, atol=1e-5)` does.

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
# ## Optional: several learned queries read the tokens
#
# Between the class token and the mean there is a third way, which the recorded runs use. A few learned queries each take a weighted average of all
# tokens. It is attention once more, with queries that do not depend on the picture, and one mean for each query.

# %%
class QueryClassifier(nn.Module):
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


course.assert_same_module(QueryClassifier(64, 10, 8), Classifier(64, 10, num_queries=8), tokens)

# %% [markdown]
# The mean is a special case: a query of zeros gives every token the same weight.

# %%
one_query = QueryClassifier(64, 10, num_queries=1)
nn.init.zeros_(one_query.queries.weight)
by_mean = one_query.linear(one_query.norm(tokens).mean(dim=1))
torch.testing.assert_close(one_query(tokens), by_mean)

# %% [markdown]
# ## Optional: three experiments to try
#
# **Single pixels.** With `patch_size=1`, how many tokens does a digit have, and how many weights does each head's attention map hold?
#
# <details><summary>Answer</summary>
#
# 784 tokens, and 784 × 784 = 614,656 weights a head, against 16 × 16 = 256 with patches of 7×7. The cost of attention grows with the square of the
# number of tokens. Notebook 07 trains on single pixels.
#
# </details>
#
# **One puzzle for all.** Shuffle the patches of *all* digits, in training and in the test, by one fixed permutation. What do you expect for your model, and
# what for the convolutional network? Try it: two lines in `train` and in `read`.
#
# <details><summary>Answer</summary>
#
# For your model nothing changes but the random numbers: its positions are learned, so place 5 is a name and not a location. (Leave out the
# augmentation, or apply it before the shuffle.) The convolutional network's small windows would look across cuts between patches that do not
# belong together.
#
# </details>
#
# **Where do the queries look?** Train the package's model with `num_queries=2`, and draw the weights of both queries for several digits.
#
# <details><summary>Answer</summary>
#
# `tokens, _ = packaged._run_blocks(images, need_weights=False)`, then the first two lines of `QueryClassifier.forward`, and
# `plotting.images(weights[0].T.reshape(-1, 1, 4, 4))`. Tokens carry both content and position, so compare several digits before you decide whether
# a query looks for a place or for a stroke.
#
# </details>
