# %% [markdown]
# # 06 Image transformer
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/06_image_transformer.ipynb)
#
# ← [05 The transformer block](05_transformer_block.ipynb) · [the map of the course](00_welcome.ipynb) · [07 Distance bias](07_distance_bias.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work **06** [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb) · taken apart [18](18_heads_that_copy.ipynb)
#
# Needs: notebook 05 · runs in about 200 s on two CPU cores · about 3½ hours of study

# %% [markdown]
# You photograph a page of handwriting, send it to a chatbot, and it reads the page to you. The model behind it was built for words. Where
# did it learn to see?
#
# For decades the usual answer was a **convolutional network**, which slides small windows of weights over the
# picture. LeCun's group [read handwritten postcodes](http://yann.lecun.com/exdb/publis/pdf/lecun-89e.pdf) with one in
# 1989. In 2020 [Dosovitskiy and his colleagues](https://arxiv.org/abs/2010.11929) tried something that sounded far
# too simple. They cut a picture into squares of 16×16 pixels, treated each square as a word, and gave the sequence to
# the transformer of 2017, hardly changed. The windows of a convolutional network know which pixels are neighbours. A
# transformer knows nothing of the kind. **Does a model that sees have to be told what lies beside what?** You will let
# both read the same digits and find out.
#
# You build and train such a **[vision transformer](../docs/glossary.md#v)** yourself. Afterwards you can
#
# - turn a picture into a sequence of tokens, and explain why one [convolution](../docs/glossary.md#c) is enough for it;
# - build the whole model from the blocks of notebook 05, and check that it computes what the package's model computes, gradients included;
# - train it on handwritten digits beside a convolutional network, and test by experiments what the difference between them comes from;
# - measure what a trained model has found out about neighbours, and compare it with chance.

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
import itertools
import math

import ipywidgets
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

from sciformer import Classifier, ImageToSequence, ImageTransformer, LearnedPositions, NoPositions, TransformerBlock
from sciformer import check, course, export_html, metrics, plotting, records
from sciformer.data import batches, mnist, random_affine
from sciformer.teach import Squares, explore
from sciformer.teach.diagrams import image_pipeline

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
size = "small" if course.profile() == "quick" else "full"

# %% tags=["nbval-ignore-output"]
# the quick profile, the default, trains on 10,000 digits, the full one on 60,000
print(f"{course.profile()} profile on {device}, {torch.get_num_threads()} threads")

# %% [markdown]
# ## Predict first
#
# Write three guesses down.
#
# 1. A vision transformer and a small convolutional network are trained on the same digits, for the same number of steps. Which recognises more of
#    the digits that it has never seen? And what becomes of the difference if both are trained for longer?
# 2. Cut every digit into 16 squares and shuffle them like a sliding puzzle, all digits in the *same* order. You could not read such digits. If both
#    models are trained and tested on such puzzles, how many will each of the two recognise, compared with whole digits?
# 3. The transformer gets the pixels of each square as a list of numbers. Nobody tells it which of them lie side by side. Will it find out?

# %% [markdown]
# ## What we are about to build
#
# Here is the whole machine, with the numbers of an untrained model, whose logits mean nothing yet. Read it from the top: a digit, its squares,
# called **[patches](../docs/glossary.md#p)**, one token for each patch, the blocks of notebook 05, one logit for each of the ten classes. Find all
# patches that have the same token.

# %%
images, labels = mnist("test")
digit = images[labels == 4][3]  # (1, 28, 28): 0 is paper, 1 is ink
# pictures of 28×28 pixels, patches of 7×7, 1 number a pixel (grey), 10 classes
untrained = ImageTransformer(28, 7, 1, 10, embed_dim=64, num_heads=4, num_layers=3, expansion=2).eval()
with torch.no_grad():
    tokens, logits = untrained.to_sequence(digit[None])[0], untrained(digit[None])[0]
image_pipeline(digit, tokens, untrained.positions.table, logits, num_blocks=3)
plotting.show(
    "A diagram. Above, a handwritten four, cut into 16 squares that stand in a row. Under each square three numbers of its token, and three "
    "numbers of its position, which are added. All go into one wide box of three transformer blocks, then a norm and a mean over the 16 tokens, a linear "
    "map, and ten logits."
)

# %% [markdown]
# <details><summary>Which patches have the same token, and what tells them apart?</summary>
#
# The fully empty ones: 0, 1, 4, 7, 11, 12, 13 and 15 (patches 3 and 8 hold a faint pixel or two). Their pixels are
# zeros, so only the bias of the linear map is left. Only the positions, which are added below, tell one empty patch
# from another.
#
# </details>
#
# Only the two ends are new: from picture to sequence, and from sequence to class.

# %% [markdown]
# ## From image to sequence
#
# Attention wants a sequence of vectors. Take a tiny picture of 4×4 pixels and cut it into four patches of 2×2.

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
# Patches run row by row, and so do the pixels inside a patch. (`tiny.reshape(4, 4)` would not do: a reshape keeps the order of the numbers, so its
# first row is 0, 1, 2, 3, a row of pixels. A patch needs pixels from two rows.)
#
# torch has the two loops built in. `F.unfold` takes pictures of shape (B, C, H, W), a batch of pictures with C **channels** (one for grey pictures,
# three for red, green and blue). Its window of `kernel_size` pixels moves on by `stride` pixels, and it returns one *column* for each patch:

# %%
unfolded = F.unfold(tiny[None, None], kernel_size=2, stride=2)[0].T  # (patches, pixels)
torch.testing.assert_close(unfolded, patches)


# %% [markdown]
# In each exercise, write the function in place of `raise NotImplementedError` and run the cell. If your function is
# wrong, the first run shows where, and the second says which mistake it looks like. Every run draws new inputs.
#
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
digit_patches = cut_into_patches(digit, 7)  # (16, 49)
plotting.images(digit_patches.view(16, 1, 7, 7), [f"patch {n}" for n in range(16)], columns=4, size=0.8)
plotting.show(
    "The sixteen patches of a handwritten four, laid out four by four with small gaps, so that the digit can still be read."
)

# %% [markdown]
# ## From patch to token
#
# A patch becomes a token by one linear map, the same for every patch: the **patch embedding**. Its $64 \cdot 49$ weights are learned with everything
# else.
#
# $$x_n = W p_n + b$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $p_n$, the pixels of patch $n$ | `digit_patches[n]` | (49,) |
# | $W$, its weights | `conv.weight.flatten(1)` | (64, 49) |
# | $b$ | `conv.bias` | (64,) |
# | $x_n$, token $n$ | `by_hand[n]` | (64,) |
#
# Each row of $W$ is a small picture of a patch's size, a **filter**, and a feature of the token says how much of that picture the patch contains.

# %% [markdown]
# ### A convolution cuts and maps at once
#
# A **convolution** lays a small window of weights over the picture, multiplies, adds up, and
# moves on; the **stride** says how far it moves. Convolutional networks often use windows of 3×3 and a stride of 1,
# so that the windows overlap. Which stride makes a window of 7×7 visit every patch exactly once?
#
# <details><summary>Answer</summary>
#
# A stride of 7: each window begins where the one before it ended.
#
# </details>
#
# With this stride the convolution computes the linear map above, and no separate cutting is needed. Its output has 64
# channels, one for each filter, just as a colour picture has three. Each channel is a grid of 4×4 numbers, one for
# each patch.

# %%
conv = nn.Conv2d(1, 64, kernel_size=7, stride=7)
grid = conv(digit[None])  # (1, 64, 4, 4): 64 features at each place of a grid of 4×4
by_hand = digit_patches @ conv.weight.flatten(1).T + conv.bias  # (16, 64)
torch.testing.assert_close(grid[0, :, 1, 2], by_hand[6], rtol=1e-4, atol=1e-5)  # row 1, column 2: patch 6


# %% [markdown]
# ### Exercise 2 · middle · 8 minutes
#
# From a batch of pictures to a batch of token sequences, in one function. `images` are (B, C, H, W); `weight` is (E, C, P, P) and `bias` (E,), as
# `nn.Conv2d` holds them, where E is the embedding's number of features (64 above) and P is the last size of `weight`. P divides H and W, which may
# differ. The result is (B, L, E): one token for each of the L patches, row by row, without an activation function. You may use a convolution, or your
# `cut_into_patches` and a matrix product. Your function is what will be trained below.

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
# A slip that is easily made: `grid.flatten(2)`, (B, 64, 16), is used without exchanging the last two axes. Each of
# the 64 channels becomes a token with 16 features. (Here the table of positions, (16, 64), would not fit, and torch would
# complain. With as many channels as patches nothing would complain at all.) Change the one pixel in row 10 and
# column 10. Which patch does it lie in? How many tokens change if the patches are the tokens, and how many if the
# channels are?

# %%
touched = digit.clone()
touched[0, 10, 10] += 1
moved = (conv(touched[None]) - conv(digit[None])).flatten(2)[0].detach().abs()  # (64 channels, 16 patches)
print("patches as tokens :", (moved.amax(dim=0) > 1e-6).sum().item(), "of 16 tokens change")
print("channels as tokens:", (moved.amax(dim=1) > 1e-6).sum().item(), "of 64 tokens change")

# %% [markdown]
# Only patch 5 has changed, in all of its 64 features (some of them very little). With patches as tokens, one token knows about the pixel, and
# attention can look there. With channels as tokens, each token has one feature from every patch, and all 64 change.

# %% [markdown]
# ## Where a patch stands
#
# One untrained model, first without positions and then with them, looks at a digit and at its shuffled patches. In
# which case will its logits change? (`F.fold` undoes `F.unfold`: it puts the columns back into a picture.)

# %%
new_order = torch.randperm(16)
shuffled = F.fold(digit_patches[new_order].T[None], output_size=28, kernel_size=7, stride=7)[0]
pieces = cut_into_patches(shuffled, 7).view(16, 1, 7, 7)
plotting.images(pieces, [f"patch {n}" for n in new_order.tolist()], columns=4, size=0.8)
plotting.show(
    "The sixteen patches of the four in another order, four by four, each with its old number: strokes that no longer meet."
)

# %%
learned = untrained.positions
for name, positions in {"none": NoPositions(64, 16), "learned": learned}.items():
    untrained.positions = positions
    with torch.no_grad():
        gap = (untrained(digit[None]) - untrained(shuffled[None])).abs().max().item()
    print(f"positions {name:8}: largest difference of a logit {'below 1e-5' if gap < 1e-5 else f'{gap:.2f}'}")


# %% [markdown]
# Without positions they do not differ, except for rounding. Attention, norms and feed-forward treat all tokens alike, and a mean over
# tokens forgets their order: the model sees a *bag* of patches. With positions a small difference is there before any training.
#
# So each position in the grid gets a vector of its own, which is added to the token from there. Like Dosovitskiy and his
# colleagues, we learn these vectors with everything else: **[learned positions](../docs/glossary.md#l)**, a table of
# 16 rows and 64 columns. Nothing in the table says that position 5 lies under position 1.

# %% [markdown]
# ## From tokens to a class
#
# After the blocks there are 16 tokens, and one answer is wanted. The paper of 2020 uses a **[class token](../docs/glossary.md#c)**, an idea from the
# language model [BERT](https://arxiv.org/abs/1810.04805): one more learned vector is put in front of the patches. It collects by attention what it
# needs, and the logits are computed from it alone.
#
# We take the **mean** over all tokens instead, which adds no token and no parameter. In appendix D.3 the authors report that it works as well, once
# each way has its own learning rate, and [the same group's plainer model of 2022](https://arxiv.org/abs/2205.01580) uses it.
#
# The pre-norm blocks of notebook 05 never norm the sum that comes out. So in our **[classifier](../docs/glossary.md#c)** one more layer norm comes
# before the mean.
#
# $$\text{logits} = A\,\Big(\frac1L \sum_{n} \text{norm}(x_n)\Big) + c$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $x_n$, a token after the last block | `tokens[:, n]` | (B, E) |
# | norm | `classifier.norm` | (E,) weights and biases |
# | $A$, $c$ | `classifier.linear` | (10, E) and (10,) |

# %% [markdown]
# ## The whole model
#
# ### Exercise 3 · middle · 8 minutes
#
# The constructor below makes the parts, under the names that the package uses. Write `forward`, from the diagram at the top and the formula above,
# with your own `embed_patches`. What you need to know about the parts: `self.to_sequence.projection` is a convolution and holds `weight` and `bias`;
# `self.positions.table` is (L, E); a block, called with tokens, returns two things, the tokens and its attention weights (or None). Write the formula
# out with the two parts `norm` and `linear` of `self.classifier`, and do not call `self.classifier` as a whole, which would do it for you. Return
# logits, (B, 10), not probabilities.

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
# Follow the shapes: (B, 1, H, W), (B, L, E), again (B, L, E) after the positions and after each block, (B, E), (B, 10).
#
# </details>
# <details><summary>Hint 2</summary>
#
# `tokens, _ = block(tokens)` unpacks what a block returns. The formula norms every token, and only then takes the mean.
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
# The package's model has the same parameters under the same names. Given the same weights, in float64, do the two
# compute the same outputs, and the same gradients for the picture (the input gradient) and every parameter?

# %%
mine = VisionTransformer(28, 7, embed_dim=64, num_heads=4, num_layers=3)
packaged = ImageTransformer(28, 7, 1, 10, embed_dim=64, num_heads=4, num_layers=3, expansion=2)
course.assert_same_module(mine, packaged, images[:2])

# %% [markdown]
# Guess first: which share of the parameters belongs to parts that only a model of *pictures* needs?

# %%
for name, part in mine.named_children():
    print(f"{name:12} {sum(p.numel() for p in part.parameters()):7,} parameters")
print(f"{'in all':12} {sum(p.numel() for p in mine.parameters()):7,}")

# %% [markdown]
# About 3 %: the 3,200 of the patch embedding. A model of words has positions and a classifier, too, and the blocks, which hold nearly all parameters,
# are those of notebook 05.

# %% [markdown]
# ## Train it
#
# The quick profile trains on the 10,000 digits that are part of the package. A model that sees the same digits again and again may memorise them.
# So each digit is turned, shifted and zoomed a little every time it is seen. This is **[data augmentation](../docs/glossary.md#d)**: a four turned
# by eight degrees is still a four. Below, ten digits as they were written, and under them the same ten as a model might see them.

# %%
train_images, train_labels = (tensor.to(device) for tensor in mnist("train", size=size))
test_images, test_labels = (tensor.to(device) for tensor in mnist("test", size=size))


def move_a_little(images, generator):
    return random_affine(images, generator, degrees=10.0, translate=2.0, scale=0.1)


def show_rows(rows, borders=False, signed=False):  # ten pictures in each row; where asked, with the borders of the patches
    figure = plotting.images(torch.cat(list(rows.values())), signed=signed)
    for ax, name in zip(figure.axes[::10], rows, strict=True):
        ax.set_ylabel(name)
    for ax in figure.axes if borders else ():
        ax.set(xticks=[6.5, 13.5, 20.5], yticks=[6.5, 13.5, 20.5], xticklabels=[], yticklabels=[])
        ax.tick_params(length=0)
        ax.grid(color="#D55E00", linewidth=0.5)
    return figure


originals = mnist("train")[0][:10]
show_rows({"written": originals, "seen": move_a_little(originals, torch.Generator().manual_seed(0))})
plotting.show(
    "Above ten handwritten digits, below the same ten, each a little turned, shifted or zoomed, all still easy to read."
)


# %% [markdown]
# The optimiser is **[AdamW](../docs/glossary.md#a)** ([Loshchilov and Hutter 2019](https://arxiv.org/abs/1711.05101)). Plain gradient descent moves a
# parameter far where its gradient is large, and hardly at all where it is small. AdamW scales the steps, so that their length hardly depends on the
# size of the gradient.
#
# <details><summary>How AdamW does that</summary>
#
# Adam keeps two running averages for each parameter, of the gradient and of its square, divides the first by the root of the second, and multiplies
# by the learning rate. For a gradient $g$ that stays the same, the quotient is $g / \sqrt{g^2} = \pm 1$: the step is as long as the learning rate,
# whatever the size of $g$. The W stands for **weight decay**: in each step every parameter also shrinks by a tiny share of itself, so that only those
# which the data keep demanding stay large.
#
# </details>
#
# The learning rate rises from nearly 0 during the first 50 steps (the **[warm-up](../docs/glossary.md#w)** of notebook 05); then it falls
# linearly to nearly 0. torch keeps the rate in `optimizer.param_groups`, one entry for each group of parameters (here one). `stream` hands
# out batches of 64 digits in random order, as long as `next` asks for them.

# %%
def train(model, rate, steps=800, seed=0):  # seed: of the batches
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.1)
    stream = batches(train_images, train_labels, batch_size=64, seed=seed, augment=move_a_little)
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


def read(model):  # which of the test digits are recognised, as 0 and 1
    model.eval()
    with torch.no_grad():
        predicted = torch.cat([model(part).argmax(dim=-1) for part in test_images.split(1000)])
    return (predicted == test_labels).float().cpu()


# %% [markdown]
# Now train *your* model: 800 steps of 64 digits, so that each digit of the quick profile is seen about five times.
# (`measured="quick"` marks bounds that are judged in the quick profile only.)

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
model = VisionTransformer(28, 7, embed_dim=64, num_heads=4, num_layers=3).to(device)
losses = {"vision transformer": train(model, rate=3e-3)}
correct = {"vision transformer": read(model)}
print(f"{correct['vision transformer'].mean():.2%} of {len(test_labels):,} test digits recognised")

# %%
course.verdict("share of test digits that your model recognises", correct["vision transformer"].mean().item(), above=0.9, measured="quick")


# %% [markdown]
# A guess would recognise one in ten. Is that good for so small a model? One number alone does not say.
#
# ## A small convolutional network beside it
#
# Two layers of 3×3 filters, each followed by a **max pooling** that keeps the largest of every 2×2 values, then one linear map. (`padding=1` puts a
# border of zeros around a picture, so that it keeps its size.) From here on, *the network* is this one, and *your model* the transformer. The
# network gets the same loop, digits and number of steps as the transformer. The learning rate of each is the best of three or four values, found by
# training on the first 8,000 digits and testing on the last 2,000 training digits (not shown).

# %% tags=["nbval-ignore-output"]
def small_network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),  # (B, 16, 14, 14)
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),  # (B, 32, 7, 7)
        nn.Flatten(), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip


torch.manual_seed(0)
network = small_network().to(device)
losses["convolutional network"] = train(network, rate=1e-2)
correct["convolutional network"] = read(network)
for name, one in {"vision transformer": model, "convolutional network": network}.items():
    print(f"{name:22} {sum(p.numel() for p in one.parameters()):7,} parameters, {correct[name].mean():.2%} recognised")

# %%
plotting.curves(losses, ylabel="training loss", smooth=50, logy=True)
plotting.show(
    "Two falling curves of the training loss on a logarithmic axis, one for the transformer, one for the convolutional network; behind each, pale, the losses of single batches."
)


# %% [markdown]
# (Pale: the loss of each batch; bold: the mean of the last 50.) The network's loss on *training* digits falls earlier and further. So the
# transformer's trouble is not that it has memorised its digits: it fits them less well, too.
#
# ### Is the difference luck?
#
# The quick profile tests on 2,000 digits, a random sample of MNIST's 10,000 (see `help(mnist)`). Another sample would give somewhat other numbers.
#
# The **standard deviation** says how far single values typically lie from their mean. Divided by $\sqrt N$ it is the **[standard
# error](../docs/glossary.md#s)**: how far the mean of $N$ values typically lies from the true mean. Twice the standard error on either side makes,
# roughly, a **95 % interval**: the true mean lies outside about one time in twenty. So we build nothing on differences smaller than twice their
# error.
#
# Our two models read the *same* digits. So take their difference digit by digit, 0 where both are right or both wrong, else 1 or −1. The standard
# error of its mean stands after the ± below. It covers the luck of the test digits, but not that of the **seed**, the number from which the start of
# the weights is drawn. For that, several models of each kind would have to be trained; here and below it is *one* of each.

# %% tags=["nbval-ignore-output"]
def compare(first, second):
    difference = correct[second] - correct[first]  # 1, 0 or −1 for each digit
    mean, error = metrics.mean_and_error(difference.tolist())
    print(f"only the {second}: {(difference == 1).sum()} digits; only the {first}: {(difference == -1).sum()}")
    print(f"difference {100 * mean:+.2f} percentage points ± {100 * error:.2f}")
    return mean / error


lead = compare("vision transformer", "convolutional network")

# %%
course.verdict("the network's lead over its error", lead, above=2, measured="quick")

# %% [markdown]
# That answers the first half of guess 1 for these two models, in the quick profile: the network recognises more digits, with a fifth of the
# parameters, beyond the luck of the test digits.
#
# ## Why is the network ahead?
#
# ### Is it only a matter of time?
#
# Perhaps the transformer is only slower. So train both once more, from the same starts, for twice as many steps, and compare the *leads*.
# **Predict**: how much of the 3.25 points will be left?

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
longer = VisionTransformer(28, 7, embed_dim=64, num_heads=4, num_layers=3).to(device)
train(longer, rate=3e-3, steps=1600)
torch.manual_seed(0)
network_longer = small_network().to(device)
train(network_longer, rate=1e-2, steps=1600)
correct |= {"longer transformer": read(longer), "longer network": read(network_longer)}
for name in ("longer transformer", "longer network"):
    print(f"{name:18} {correct[name].mean():.2%}")
compare("vision transformer", "longer transformer")
compare("longer transformer", "longer network")
leads = [correct["convolutional network"] - correct["vision transformer"], correct["longer network"] - correct["longer transformer"]]
mean, error = metrics.mean_and_error((leads[0] - leads[1]).tolist())
print(f"of the lead, twice the steps take {100 * mean:.2f} points ± {100 * error:.2f}")

# %%
course.verdict("what twice the steps take of the lead, over its error", mean / error, above=2, measured="quick")

# %% [markdown]
# Twice the steps lift the transformer by 2.10 points and the network by hardly anything. Of the lead of 3.25 points they take 2.05, with a 95 %
# interval from about 1.2 to 2.9: between a good third and nine tenths of it was a matter of time. The 1.20 that are left are still more than twice
# their error. Counted in mistakes, the transformer made four times as many as the network, and now makes twice as many. (The learning rates were
# chosen for 800 steps. Whether still more steps would take the rest, these runs do not say.)
#
# ### What the network is told
#
# What did the transformer need the time for? The paper of 2020 met the same with data in place of time: transformers trailed convolutional networks
# on the million photographs of ImageNet, and passed them with three hundred million. Either way the transformer has to learn something that the
# network has from the start. What could that be? Look at what `nn.Conv2d` does, and write two things down before you open our answer.

# %% [markdown]
# <details><summary>Answer</summary>
#
# - **Neighbours belong together.** A filter of its first layer sees 3×3 adjoining pixels and nothing else. An edge of a stroke is exactly
#   what such a filter can find.
# - **A stroke means the same wherever it stands.** Each filter visits every place. One that has learned the bar of a seven finds the
#   bar of a five without learning it again.
#
# (The pooling adds a third, that a shift by a pixel matters little.)
#
# </details>
#
# What a model takes for granted before it has seen a single digit is its **[inductive bias](../docs/glossary.md#i)**.
#
# The transformer is told little of the first, only which 49 pixels make a patch. That patch 5 lies beside patch 6, or one pixel of a patch beside
# another, it can only learn from examples. Of the second it is told a part: all patches share one map, so a stroke makes the same token in patch 5 as
# in patch 6. But shift it by three pixels *within* its patch, and it meets other weights.
#
# What a model is told it need not learn. That would explain the lead. How would you test this explanation? One way
# is to take away from the network what it was told.

# %% [markdown]
# ## One puzzle for all
#
# Your second guess is the test. Shuffle the patches of all digits in the same order. Nothing is lost: one could lay the patches back. But most
# neighbours are torn apart (in a random order one old pair in five stands side by side). A 3×3 window on the border of two patches now sees halves of
# two strokes that have nothing to do with each other. Inside a patch both ideas of the network still hold.

# %%
order = torch.randperm(16, generator=torch.Generator().manual_seed(0))


class Puzzle(nn.Module):  # a layer without parameters, to be put in front of a model
    def __init__(self, pixels=None):
        super().__init__()
        self.pixels = torch.arange(49) if pixels is None else pixels  # inside each patch: as they are, or in another order

    def forward(self, images):  # (B, 1, 28, 28)
        patches = F.unfold(images, kernel_size=7, stride=7)  # (B, 49, 16)
        return F.fold(patches[:, self.pixels][:, :, order], output_size=28, kernel_size=7, stride=7)


show_rows({"digits": originals, "puzzles": Puzzle()(originals)}, borders=True)
plotting.show("Above ten handwritten digits, below the same ten as puzzles, with the borders of the patches: strokes scattered over the square.")

# %% [markdown]
# ### The transformer
#
# First show your trained model puzzles, although it has never seen one. Then reorder the rows of one of its tables of
# parameters, without any training, so that it reads puzzles as it read digits. Which table? (Decide first.)
#
# <details><summary>Answer</summary>
#
# The rows of its table of positions: put them into the same order as the patches.
#
# </details>

# %% tags=["nbval-ignore-output"]
renamed = VisionTransformer(28, 7, embed_dim=64, num_heads=4, num_layers=3).to(device)
renamed.load_state_dict(model.state_dict() | {"positions.table": model.positions.table.detach()[order]})
in_new_order = read(nn.Sequential(Puzzle(), renamed))
print(f"digits, your model:               {correct['vision transformer'].mean():.2%}")
print(f"puzzles, your model:              {read(nn.Sequential(Puzzle(), model)).mean():.2%}")
print(f"puzzles, rows in the new order:   {in_new_order.mean():.2%}")

# %%
changed = (in_new_order - correct["vision transformer"]).abs().mean().item()
course.verdict("share of digits on which puzzle and new order of the rows together make a difference", changed, below=0.002)

# %% [markdown]
# As it was, your model reads few puzzles, though more than a guess would. With its rows in the new order it computes
# for each puzzle what it computed for the digit: with learned positions, *position 5* is a name and not a location. Is
# it worth training a transformer on puzzles?
#
# <details><summary>Answer</summary>
#
# No. Before training, the rows of its table are random numbers, and random rows in another order are random rows. So puzzles are as easy for it as
# digits, and a single run can differ only by luck.
#
# </details>
#
# ### The convolutional network
#
# Train the same network, with the same seed, on puzzles. (The augmentation moves the digit before `Puzzle` cuts it.)

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
on_puzzles = nn.Sequential(Puzzle(), small_network()).to(device)
train(on_puzzles, rate=1e-2)
correct["network on puzzles"] = read(on_puzzles)
for name in ("convolutional network", "network on puzzles"):
    print(f"{name:22} {correct[name].mean():.2%}")
cost = compare("network on puzzles", "convolutional network")
_ = compare("vision transformer", "network on puzzles")

# %%
course.verdict("what puzzles cost the network, over its error", cost, above=2, measured="quick")
mistakes = (1 - correct["network on puzzles"].mean()) / (1 - correct["vision transformer"].mean())
course.verdict("the network's mistakes on puzzles over the transformer's on digits", mistakes.item(), below=0.75, measured="quick")

# %% [markdown]
# The puzzle costs the network a little, here more than twice the error of the difference, and the transformer has nothing to lose. But the network
# still recognises more puzzles than your transformer recognises digits, with less than half of its mistakes. So neighbouring *patches* do not explain
# its whole lead.
#
# ### Down to the pixels
#
# Inside a patch all pixels are neighbours as before. So go on: put the 49 pixels of each patch into another order, too, the same in all patches of
# all digits. Now both ideas fail nearly everywhere: a window sees pixels that were strangers, and a stroke that moves by one pixel becomes a quite
# different pattern. **Predict**: can your transformer be made to read these pictures without training, too? And is the network still ahead?

# %%
pixels = torch.randperm(49, generator=torch.Generator().manual_seed(1))
show_rows({"puzzles": Puzzle()(originals), "pixels, too": Puzzle(pixels)(originals)}, borders=True)
plotting.show("Above ten puzzles of handwritten digits, below the same ten with their pixels scattered inside each patch; the borders of the patches are drawn.")

# %% tags=["nbval-ignore-output"]
name = "to_sequence.projection.weight"  # (64, 1, 7, 7): 49 weights for each of the 64 features
renamed.load_state_dict(renamed.state_dict() | {name: renamed.get_parameter(name).detach().flatten(1)[:, pixels].view(64, 1, 7, 7)})
renamed_again = read(nn.Sequential(Puzzle(pixels), renamed))
torch.manual_seed(0)
on_dust = nn.Sequential(Puzzle(pixels), small_network()).to(device)
train(on_dust, rate=1e-2)
correct["network on pixels in another order"] = read(on_dust)
print(f"your model, rows and pixels in the new order: {renamed_again.mean():.2%}")
print(f"network on pixels in another order:           {correct['network on pixels in another order'].mean():.2%}")
cost_of_pixels = compare("network on pixels in another order", "network on puzzles")
_ = compare("vision transformer", "network on pixels in another order")

# %%
changed = (renamed_again - correct["vision transformer"]).abs().mean().item()
course.verdict("share of digits on which pixels and weights in a new order make a difference", changed, below=0.002)
course.verdict("what the order of pixels costs the network beyond the puzzle, over its error", cost_of_pixels, above=2, measured="quick")
leads = [correct[name].mean() - correct["vision transformer"].mean() for name in ("network on pixels in another order", "convolutional network")]
course.verdict("share of the network's lead that is left", (leads[0] / leads[1]).item(), below=0.5, measured="quick")

# %% [markdown]
# Your transformer can. Once the 49 weights of each feature stand in the new order, it computes for these pictures what it computed for the digits.
#
# The network does worse. Of its lead of 3.25 points the puzzle took 0.95, and the pixels take another 1.45. What is left, 0.85 points, is less than
# twice its error: its 95 % interval, from −0.15 to 1.85, leaves room for nothing and for more than half. So at 800 steps much of the lead goes with
# what the network was told, as the explanation said. (Which of its two ideas counts for more, the puzzles cannot say, since they spoil both at once.
# It was one order of patches and one of pixels, and the learning rate was chosen for whole digits.)

# %% [markdown]
# ## Has the transformer found the neighbours by itself?
#
# To the transformer any order of the pixels is as good as another. It was never told which of the 49 lie side by side, and still it reads most
# digits. So has it found out, or does it do without? That was your third guess.
#
# Its filters can tell. Each feature of a token is a weighted sum of the 49 pixels, so its weights make a picture of 7 by 7. Below are ten of the 64
# features, before training and after it (red: positive weights; blue: negative). Can you see what training has changed?

# %%
torch.manual_seed(0)  # the start of your model once more
start = VisionTransformer(28, 7, embed_dim=64, num_heads=4, num_layers=3).to_sequence.projection.weight.detach()
learned = model.to_sequence.projection.weight.detach().cpu()  # (64, 1, 7, 7), like the start
figure = show_rows({"before": start[:10], "after": learned[:10]}, signed=True)
figure.colorbar(figure.axes[0].images[0], ax=figure.axes, label="weight")
plotting.show("Two rows of ten pictures, 7 by 7 weights each, red and blue: before training and after it.")


# %% [markdown]
# Hardly: most of what one sees is still the random start. How would you make visible what training has done?
#
# <details><summary>Answer</summary>
#
# Subtract: look at the *difference*, what training has added to each weight.
#
# </details>
#
# To measure whether neighbours go together, pair each pixel with the next one in its row, and with the next one in its column, in all 64 pictures.
# That makes two lists of 5,376 weights. The **[cosine similarity](../docs/glossary.md#c)** of the lists is their dot product divided by both lengths:
# 1 for the same direction, 0 for a right angle, −1 for opposite directions. For random weights it scatters around 0 by about $1/\sqrt{5376} = 0.014$.
# Do the same for pixels two to five apart. **Predict**: which five numbers would a model show that has found the neighbours, and which would one that
# has not?

# %%
def of_pairs(pictures, apart):  # (N, 1, 7, 7), and how many pixels they are apart
    one = torch.cat([pictures[..., apart:, :].flatten(), pictures[..., apart:].flatten()])
    other = torch.cat([pictures[..., :-apart, :].flatten(), pictures[..., :-apart].flatten()])
    return F.cosine_similarity(one, other, dim=0).item()


added = learned - start
figure = show_rows({"added": added[:10]}, signed=True)
figure.colorbar(figure.axes[0].images[0], ax=figure.axes, label="weight")
plotting.show("One row of ten pictures, 7 by 7 weights each, red and blue on a scale of their own: what training has added.")
print(" " * 22 + "similarity of pixels 1, 2, 3, 4, 5 apart")
for name, pictures in {"before training": start, "after training": learned, "what training added": added}.items():
    print(f"{name:22}             ", "  ".join(f"{of_pairs(pictures, apart):5.2f}" for apart in range(1, 6)))

# %%
course.verdict("similarity of neighbours in what training added", of_pairs(added, 1), above=0.1)
course.verdict("the same, minus that of pixels four apart", of_pairs(added, 1) - of_pairs(added, 4), above=0.1)

# %% [markdown]
# What training has added is smooth: its similarity is 0.58 for neighbours, and far less for pixels that lie further apart. So the transformer *has*
# found out which pixels lie side by side. (Had training only added the same amount to all 49 weights of a filter, all five numbers would be equally
# large. In the trained weights the random start hides most of it, 0.13 for neighbours.) How can a linear map find out what nobody told it?
#
# <details><summary>Answer</summary>
#
# The digits. The gradient of the weights $w_f$ of feature $f$ is a sum over the patches $p_n$ that it has seen,
#
# $$\frac{\partial \text{loss}}{\partial w_f} = \sum_n \frac{\partial \text{loss}}{\partial x_{n,f}}\, p_n,$$
#
# each times a number. Strokes are several pixels wide, so neighbouring pixels are mostly bright or dark together, and a sum of such patches has
# neighbours that are alike. (AdamW rescales each weight's step but roughly keeps the signs; and weight decay adds a little of the start, negated,
# in which neighbours are not alike.) With the pixels in another order the model would learn as well, and what training adds would look smooth once
# you put the pixels back. (At five apart the similarity is a little higher again, where chance gives only 0.024; we have not looked into it.)
#
# </details>
#
# And has it found out which *patches* lie side by side? Two optional sections look for an answer in its positions and in its attention.

# %% [markdown]
# ## Today
#
# - **CLIP** ([Radford et al. 2021](https://arxiv.org/abs/2103.00020)) trains a vision transformer and a text transformer together on 400 million
#   pictures with their captions. An image search that understands words compares the vectors of two such models.
# - **LLaVA** ([Liu et al. 2023](https://arxiv.org/abs/2304.08485)) takes the patch tokens of CLIP's vision transformer, maps them linearly, and
#   puts them before the words of a language model.
# - **SAM** ([Kirillov et al. 2023](https://arxiv.org/abs/2304.02643)), which cuts any object out of a photograph, looks at it with a vision
#   transformer that was pre-trained by hiding patches, the subject of notebook 12.
# - **DiT** ([Peebles and Xie 2022](https://arxiv.org/abs/2212.09748)) generates pictures with a transformer over patches of a compressed picture.

# %% [markdown]
# ## Does a model that sees have to be told?
#
# Back to your three guesses. The answers hold for these digits, for one model of each kind, and for the recipe that both had: another one may well
# narrow the gap, as the recorded runs at the end of this notebook hint.
#
# 1. After 800 equal steps the convolutional network was 3.25 points ahead. Twice the steps took 2.05 of them (95 % interval 1.2 to 2.9).
# 2. Puzzles cost the network 0.95 points, and the pixels in another order 1.45 more; its lead was then within twice its error. The transformer lost
#    nothing once its tables stood in the new order.
# 3. The transformer found out by itself which pixels lie side by side. (Of patches it seems to have learned less, as two optional sections show.)
#
# So a model that sees does not *have* to be told what lies beside what. The pictures tell it. Being told spares it much of the learning: with more
# steps the transformer, which was not told, made up much of the distance; and the network, once puzzles had made useless what it was told, was no
# longer clearly ahead.
#
# And the chatbot that read your handwriting? On LLaVA's plan your page enters as in your `embed_patches`: cut into patches, each mapped to a token.
# The seeing was learned in CLIP's vision transformer, and nobody told it about neighbours either. It had very many pictures with captions to learn
# from. Then the linear map and the language model learned to use its tokens.

# %% [markdown]
# ## Takeaways
#
# - A patch is a token. A convolution whose stride is its size cuts and maps linearly at once; the blocks behind it are those of a model of words.
# - Without positions the model sees a bag of patches. With learned positions a position is a name, and any order of the patches, the same for all
#   pictures, is as good as another.
# - A convolutional network is told that neighbours belong together and that a stroke means the same wherever it stands. A transformer, told only
#   which pixels make a patch and that one map serves all patches, has more to learn.
# - Compare two models on the same examples, give the difference with its error, and build nothing on less than twice that error.
# - An explanation is worth testing by an experiment: take away what you think is the cause, and see what is left.

# %% [markdown]
# ## Check yourself
#
# 1. Which axis of the convolution's output is the token, and which one the embedding? What goes wrong if they are confused?
# 2. Why does a mean over tokens not lose *where* something was seen?
# 3. Two models recognise 98.1 % and 98.4 % of the same 2,000 digits. What would you compute before you call the second one better?
#
# <details><summary>Answers</summary>
#
# 1. The grid of rows and columns is flattened into tokens; the channels are the embedding. Confused, every token has a feature from every patch, and
#    attention compares features instead of places.
# 2. Each token carries the vector of its position, and the blocks have mixed it with the content, nonlinearly, before the mean is taken. (A mean of
#    plain sums, patch plus position, would lose the position.)
# 3. The mean of the differences, digit by digit, and its standard error. The difference is 6 digits; if it is not at least twice its error, the
#    digits do not tell the models apart. And for a claim about the two *kinds* of model: the same for several seeds.
#
# </details>

# %% [markdown]
# ## To read
#
# - Dosovitskiy et al. 2020, [An image is worth 16×16 words](https://arxiv.org/abs/2010.11929): section 3.1 is your model, with a class token in place
#   of the mean; in figure 7 the positions of a far larger model do get less alike with the distance; figure 3 shows how much data it takes to pass
#   convolutional networks.
# - Beyer, Zhai and Kolesnikov 2022, [Better plain ViT baselines for ImageNet-1k](https://arxiv.org/abs/2205.01580): two pages on what a careful
#   recipe changes.
# - Lee et al. 2019, [Set Transformer](https://arxiv.org/abs/1810.00825), section 3.2: learned queries that read a set, for the last section below.
#
# **Next.** Your model had to find out from examples what lies beside what. Could attention be *told* that near things matter more, and learn only how
# much? [Notebook 07](07_distance_bias.ipynb) builds that.
#
# Optional sections follow, two of them with an exercise.

# %% [markdown]
# ## Optional: do the positions know which patches are neighbours?
#
# Each position has its learned vector. Will the vectors be more alike for neighbours in a row, for neighbours in a column, for both equally, or for
# neither? Guess first.
#
# The cosine similarity of random vectors of 64 features scatters around 0 with the standard deviation $1/\sqrt{64} = 0.125$. We look at means over
# all pairs of positions that lie so many rows and so many columns apart, 15 means in all. How far from 0 can such a mean lie by chance? We draw 5,000
# tables that have learned nothing, as yours was before training, and take for each distance the **limit** that only one table in 300 exceeds. (With
# 15 such limits about one table in twenty exceeds some limit by chance.)

# %%
row, column = torch.arange(16) // 4, torch.arange(16) % 4
rows_apart, columns_apart = (row[:, None] - row).abs(), (column[:, None] - column).abs()  # (16, 16) each


def by_distance(tables):  # (..., 16, E) -> (..., 4, 4): the mean similarity by rows and columns apart
    directions = F.normalize(tables, dim=-1)
    alike = directions @ directions.mT  # (..., 16, 16)
    cells = [alike[..., (rows_apart == r) & (columns_apart == c)].mean(dim=-1) for r in range(4) for c in range(4)]
    return torch.stack(cells, dim=-1).unflatten(-1, (4, 4))


found = by_distance(model.positions.table.detach().cpu())  # (4, 4)
of_chance = by_distance(torch.randn(5000, 16, 64, generator=torch.Generator().manual_seed(1)))  # (5000, 4, 4)
limits = of_chance.abs().quantile(299 / 300, dim=0)  # (4, 4)

# %% [markdown]
# Here are the means of your trained table. Those beyond their limit of chance are framed. (Top left each vector would meet itself.) If the table knew
# which patches are near each other, what would it look like? And what do you see?

# %%
shown = found.mul(100).round().div(100) + 0.0  # no minus in front of a zero
shown[0, 0] = math.nan
_, ax = plt.subplots(figsize=(5.4, 4.2), layout="constrained")
plotting.heatmap(shown, signed=True, vmax=0.6, xlabel="columns apart", ylabel="rows apart", title="mean similarity of two positions", ax=ax)
for r, c in list(itertools.product(range(4), range(4)))[1:]:
    if abs(found[r, c]) > limits[r, c]:
        ax.add_patch(plt.Rectangle((c - 0.46, r - 0.46), 0.92, 0.92, fill=False, linewidth=2))
plotting.show("A table of four by four mean similarities by rows and columns apart, in red and blue; those beyond their limit of chance are framed.")

# %% [markdown]
# <details><summary>Is it a sense of nearness?</summary>
#
# Hardly. Nearness would make the numbers fall from the top left in all directions. Neighbours in a row are alike, beyond the limit of chance. But
# along a row the similarity does not fall steadily: three columns apart it is higher than two columns apart. (Those are
# four pairs only, all from border to border, where paper is mostly empty.) And positions one row apart are, on the whole, *unlike*, whether in the
# same column or in another. So in the mean the table says more about the row than about nearness.
#
# </details>
#
# This is one table. Five more models, each with a start and batches of its own, show how much of it is luck. They take 200 steps only. How do
# neighbours in a row compare with neighbours in a column? (With five values the error itself is uncertain, so a 95 % interval takes 2.78 errors on
# either side in place of 2, by Student's t.)

# %% tags=["nbval-ignore-output"]
tables, recognised = [], []
for seed in range(1, 6):
    torch.manual_seed(seed)
    another = VisionTransformer(28, 7, embed_dim=64, num_heads=4, num_layers=3).to(device)
    train(another, rate=3e-3, steps=200, seed=seed)
    recognised.append(read(another).mean().item())
    tables.append(another.cpu().positions.table.detach())
five = by_distance(torch.stack(tables))  # (5, 4, 4)
in_row, in_column = five[:, 0, 1], five[:, 1, 0]
for name, values in {"in a row": in_row, "in a column": in_column, "row minus column": in_row - in_column}.items():
    mean, error = metrics.mean_and_error(values.tolist())
    interval = f"95 % interval {mean - 2.78 * error:5.2f} to {mean + 2.78 * error:.2f}"
    print(f"{name:17}", *(f"{value:6.2f}" for value in values), f"   mean {mean:5.2f}, {interval}")
print("digits recognised", *(f"{share:6.0%}" for share in recognised))

# %%
# by chance: the same difference in five tables that learned nothing, a thousand times
by_luck = (of_chance[:, 0, 1] - of_chance[:, 1, 0]).view(1000, 5).mean(dim=1)
limit = by_luck.abs().quantile(299 / 300).item()
course.verdict("row minus column, mean of five: over the limit of five untrained tables", mean / limit, above=1, measured="quick")

# %% [markdown]
# For these five, which had a quarter of the steps, neighbours in a row are alike, the interval for neighbours in a column lies on both sides of 0,
# and the difference exceeds the limit of five tables that learned nothing. Start and batches were drawn anew for each, so these intervals cover
# both kinds of luck. (In your table neighbours in a row are ahead as well, but those in a column are *less* alike than chance allows.)

# %% [markdown]
# ## Optional: why rows?
#
# Does the model prefer rows, or do the digits make it so? About the model you can decide by thought alone; the puzzle has
# shown you how.
#
# <details><summary>Can it be the model?</summary>
#
# No, for it does not know rows: position 5 is only a name. Mirror all digits so that rows become columns. For the transformer
# this is another order of the patches (and of the pixels inside each), a puzzle for all, and the augmentation treats
# both directions alike. So trained on turned digits it would make neighbours in a *column* alike just as often as it makes neighbours
# in a row alike here. A preference for rows, if there is one, comes from the digits. (To try it, set
# `train_images = train_images.mT`, train a new model, and draw its table.)
#
# </details>
#
# What could digits have to do with rows? Make a guess, and think of a test without a transformer.
#
# <details><summary>Our guess, and the test in the next cell</summary>
#
# Perhaps a stroke's *height* says more about the digit than its distance from the left. Keep of each digit only
# the ink in each of its 28 rows, and guess the class whose average is nearest; then the same with columns.
#
# </details>

# %%
ink, test_ink = mnist("train")[0][:, 0], images[:, 0]  # (N, 28, 28)
shares = {}
for name, axis in {"rows": 2, "columns": 1}.items():
    seen, asked = ink.mean(dim=axis), test_ink.mean(dim=axis)  # (N, 28)
    averages = torch.stack([seen[mnist("train")[1] == k].mean(dim=0) for k in range(10)])
    shares[name] = (torch.cdist(asked, averages).argmin(dim=1) == labels).float().mean().item()
    print(f"from the ink in 28 {name:7}: {shares[name]:.1%} of the digits recognised")
course.verdict("share recognised from rows minus from columns", shares["rows"] - shares["columns"], above=0.1)

# %% [markdown]
# The rows of ink alone tell far more digits apart than the columns do. (Perhaps strokes have a usual height, as a seven's bar has; and digits are
# taller than wide.) That fits a table that says *which row*. It is a guess at the cause; to test it, one would need pictures whose rows say no more
# than their columns.

# %% [markdown]
# ## Optional: where a patch looks
#
# The **[attention map](../docs/glossary.md#a)** of one digit in each head of the first block: row $i$ is how patch $i$ divides its attention among
# all patches. The neighbours of patch 5 are 4 and 6, 1 and 9, and four at its corners. If every patch looked at its neighbours, where in the map
# would the bright cells lie? And where do they lie? (Patches without ink stand in brackets.)

# %%
packaged.load_state_dict(model.state_dict())  # your weights, in the package's model: it also gives attention maps
packaged.eval()
maps = [weights.detach() for weights in packaged.attention_weights(digit[None])]  # one (1, H, L, L) for each block
blank = F.max_pool2d(digit, 7).flatten() == 0  # (16,): no ink at all
names = [f"({n})" if blank[n] else str(n) for n in range(16)]
for ax in plotting.heads(maps[0][0], rows=names, columns=names).axes:
    ax.tick_params(labelsize=7)
    ax.tick_params(axis="x", rotation=90)
plotting.show(
    "Four heatmaps of 16 by 16 weights, one for each head, with the empty patches in brackets. Some cells are bright, most are dark."
)


# %% [markdown]
# <details><summary>Answer</summary>
#
# Near the diagonal, in three bands. What stands out instead are pieces of *columns*: a patch at which many others look, wherever they lie. In the
# quick profile, for example, many patches with little ink or none look at 7 in head 1, and at 1 in head 3.
#
# </details>
#
# A row of such a map, laid back onto the picture, is easier to read. Choose the block, and click the patch that asks (or reach it with Tab and
# Space). Without a running notebook you see patch 9 in block 0. (The white line is the outline of the digit.)

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
# In the quick profile, patch 9 looks most at the patch above it in head 0, at itself in head 1, and at a patch at its corner in head 2. Is that a
# liking for neighbours? One patch of one digit proves little. So count, over all test digits, which share of the attention falls on neighbours. With
# equal weights it would be 33 %, since a patch has 5.25 neighbours on average, of 16. But what else than a liking for neighbours could lift that
# share?
#
# <details><summary>Answer</summary>
#
# If all patches, wherever they lie, look at the same few, and those few have many neighbours.
#
# </details>
#
# So a **control** stands beside each share, in which only the suspected cause is missing: every patch of a digit gets the same weights, the mean of
# those of its 16 patches. Such a patch cannot prefer *its* neighbours.

# %% tags=["nbval-ignore-output"]
near = torch.maximum(rows_apart, columns_apart) == 1  # (16, 16): beside, above, below or at a corner
with torch.no_grad():
    of_all = packaged.attention_weights(images)  # for each block (N, H, 16, 16)
print(f"on neighbours, with equal weights: {near.float().mean():.0%}")
on_near, control = [], []
for number, weights in enumerate(of_all):
    everyone = weights.mean(dim=2, keepdim=True)  # (N, H, 1, 16): for all patches of a digit the mean of their weights
    share, alike = ((w * near).sum(dim=-1).mean(dim=2) for w in (weights, everyone))  # (N, H) each
    on_near.append(share.mean().item())
    control.append(alike.mean().item())
    print(f"block {number}: {on_near[-1]:.1%} on neighbours, in the control {control[-1]:.1%}")
    for head in range(share.shape[1]):
        mean, error = metrics.mean_and_error((share - alike)[:, head].tolist())
        both = f"{share[:, head].mean():.1%}, in the control {alike[:, head].mean():.1%}"
        print(f"   head {head}: {both}, difference {100 * mean:+.1f} ± {100 * error:.2f} points")

# %%
course.verdict("attention on neighbours, highest of the blocks, over that of equal weights", max(on_near) / near.float().mean().item(), above=1.15, measured="quick")
course.verdict("the same minus its control, largest", max(a - b for a, b in zip(on_near, control, strict=True)), below=0.03, measured="quick")

# %% [markdown]
# In block 1, 43 % of the attention falls on neighbours, nearly a third more than with equal weights. But in the control it is 42 %: nearly all of
# the surplus is there without any liking for neighbours. Nor does the mean hide heads that like neighbours much and others that avoid them: in the
# quick profile no head differs from its control by more than about 4 points, to either side. (Those differences are more than noise. And the
# control also spreads what a patch gives to *itself*.)
#
# Then at what do all patches look? Here is the attention that each of the 16 receives, over all test digits and heads, as a multiple of an equal
# share.

# %%
received = torch.stack([16 * weights.mean(dim=(0, 1, 2)).view(4, 4) for weights in of_all])  # (blocks, 4, 4)
plotting.heads(received, titles=[f"block {n}" for n in range(3)], xlabel="column", ylabel="row")
plotting.show("Three tables of four by four numbers, one for each block: the attention that each patch receives, as a multiple of an equal share.")


# %% [markdown]
# In the quick profile, in block 1, everyone looks at the middle: patches 5, 6 and 9 (rows 1 and 2) get about three times an equal share, patch 10
# less than one, and each of the four corners about a quarter. A patch in the middle is a neighbour of eight others, a corner of three. So whoever
# looks at the middle looks at many neighbours, without having looked for them.
#
# Values and feed-forward decide what is done with what attention brings. So read such maps as a hint, not as an explanation
# ([Jain and Wallace 2019](https://arxiv.org/abs/1902.10186)), and let an experiment decide, as the next section does.

# %% [markdown]
# ## Optional: can the model do without empty paper?
#
# Some patches at which others look have no ink (their largest pixel is 0). Is that attention wasted? *Hide* the empty patches: with a mask as in
# notebook 02 no patch may look at them. (Their own tokens go on, and are part of the mean at the end.) Let the trained model recognise the digits
# again. As a control, hide the same number of patches of each digit, chosen at random. **Predict**: what does each of them cost?

# %% tags=["nbval-ignore-output"]
def share_recognised(visible):  # (N, 16), True where a patch may be looked at
    with torch.no_grad():
        tokens = packaged.positions(packaged.to_sequence(images))
        for block in packaged.blocks:
            tokens, _ = block(tokens, attn_mask=visible[:, None, None, :])
        return (packaged.classifier(tokens).argmax(dim=-1) == labels).float().mean().item()


empty = F.max_pool2d(images, 7).flatten(1) == 0  # (N, 16)
on_empty = [(weights.mean(dim=(1, 2)) * empty).sum(dim=1).mean().item() for weights in of_all]
print(f"{empty.float().mean():.0%} of the patches are empty")
print("of the attention, on them:", ", ".join(f"block {number} {share:.0%}" for number, share in enumerate(on_empty)))
generator = torch.Generator().manual_seed(0)
at_random = torch.stack([one[torch.randperm(16, generator=generator)] for one in empty])  # as many of each digit
usual, without_paper = share_recognised(torch.ones_like(empty)), share_recognised(~empty)
print(f"all patches visible {usual:.1%}, empty ones hidden {without_paper:.1%}, as many at random {share_recognised(~at_random):.1%}")

# %%
spared = empty.float().mean().item() - sum(on_empty) / len(on_empty)
course.verdict("share of empty patches minus the attention on them, mean over the blocks", spared, above=0.05, measured="quick")
course.verdict("share lost by hiding the empty patches", usual - without_paper, above=0.05, measured="quick")


# %% [markdown]
# Empty patches get *less* attention than with equal weights, which would give them 41 %. Yet hiding **blank paper** costs the model a quarter of the
# digits, 25 points; hiding as many patches at random, ink included, costs 32. Why should paper matter at all? Think of two explanations before you
# open ours.
#
# <details><summary>Two explanations</summary>
#
# 1. The model needs the paper: an empty patch has a position, so its token can say *here is no ink*, as in the middle of a
#    nought.
# 2. The model is surprised. It was never trained with hidden patches, and the weight that went to paper now goes to ink.
#
# </details>
#
# What would you train to see whether the *task* needs the paper?
#
# <details><summary>Answer</summary>
#
# Let your model practise with the paper hidden. If the task needs paper, practice will not help. Practice helps by itself, so a twin has
# to practise as long with everything visible.
#
# </details>

# %% tags=["nbval-ignore-output"]
class WithoutPaper(VisionTransformer):
    def forward(self, images):  # (B, 1, 28, 28)
        visible = F.max_pool2d(images, 7).flatten(1) > 0  # (B, 16): patches with ink
        tokens = self.positions(self.to_sequence(images))
        for block in self.blocks:
            tokens, _ = block(tokens, attn_mask=visible[:, None, None, :])
        return self.classifier(tokens)


for kind, which in {"paper hidden": WithoutPaper, "all visible": VisionTransformer}.items():
    practised = which(28, 7, embed_dim=64, num_heads=4, num_layers=3).to(device)
    practised.load_state_dict(model.state_dict())  # a copy of your model
    train(practised, rate=1e-3, steps=200, seed=1)
    correct[f"{kind}, practised"] = read(practised)
    print(f"{kind}, after 200 steps of practice: {correct[f'{kind}, practised'].mean():.2%} recognised")
_ = compare("paper hidden, practised", "all visible, practised")

# %%
still_lost = (correct["all visible, practised"] - correct["paper hidden, practised"]).mean().item()
course.verdict("digits lost after practice, over those lost at once", still_lost / (usual - without_paper), below=0.5, measured="quick")


# %% [markdown]
# Two hundred steps of practice, a quarter of its training, bring nearly all of it back: 94.3 % in place of 70.4 %. The twin, which practised as
# long with everything visible, reads 95.9 %. So the *task* does not need the paper to be looked at: that is worth 1.6 points (95 % interval from
# about 0.8 to 2.4), 5.7 % mistakes in place of 4.1, and perhaps fewer after more practice. Nor does hiding it hide what it says: the positions that
# are left tell which patches are empty. (One model; the tokens of paper still count in the mean.) Whether *your model* was surprised or had come to
# rely on paper, this cannot tell, since practice changes its weights. To hide something from a trained model shows what this one model does without
# it, and not what the task requires.

# %% [markdown]
# ## Optional: which patch made the model misread a digit?
#
# ### Exercise 4 · middle · 6 minutes
#
# Which patch made the model misread a digit? The model takes the mean over all tokens before its linear map, so there seems to be no answer. Turn it
# round: apply the linear map to every token first, call the result the token's *votes* for the classes, and average the votes. Before you write: does
# that change the logits? And would it, if each class got its largest vote in place of the mean vote?
#
# L patches of N pixels are given already cut. Embed them with the matrix `embedding`, add `positions`, apply the blocks one after the other, let
# every token vote with the matrix `head` (the classifier's, not an attention head's), and return the mean vote, not the largest. Each block is a
# function from (B, L, E) to (B, L, E), and `blocks` is a list of at least one. There is no norm.

# %%
def logits_from_patches(patches, embedding, positions, blocks, head):
    # (B, L, N), (N, E), (L, E), a list of functions, (E, classes)
    raise NotImplementedError  # (B, classes)


check.logits_from_patches(logits_from_patches)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The votes have the shape (B, L, classes): one row of logits for each patch. `head` is a matrix, so `@` makes them.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Which axis of the votes has to go? The batch stays, and so do the classes.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def logits_from_patches(patches, embedding, positions, blocks, head):
#     tokens = patches @ embedding + positions  # (B, L, E)
#     for block in blocks:
#         tokens = block(tokens)
#     votes = tokens @ head  # (B, L, classes)
#     return votes.mean(dim=1)  # (B, classes)
# ```
#
# </details>
# <details><summary>Does that change the logits?</summary>
#
# The mean vote does not: a mean and a linear map may be exchanged, so the mean vote is the vote of the mean token, and those are the logits. The
# largest vote does: each class takes its number from whichever token is keenest on it, in general more than the mean.
#
# </details>
#
# Your trained model can be asked the same way, since its norm acts on each token by itself. Here are the ten mistakes of which it was most certain.
# Write down what you read; the cell below says what they are.

# %%
with torch.no_grad():
    logits = torch.cat([model(part) for part in test_images.split(1000)])
predicted = logits.argmax(dim=-1)
confidence, _ = logits.softmax(dim=-1).max(dim=-1)
worst = (confidence * (predicted != test_labels)).topk(10).indices
plotting.images(test_images[worst], columns=10)
plotting.show("Ten handwritten digits that the model misread.")

# %% tags=["nbval-ignore-output"]
for n in worst:
    print(f"{test_labels[n]} as {predicted[n]}, {confidence[n]:.1%}", end=";  ")

# %% [markdown]
# Take the first of them, the surest. How much more did each patch vote for the wrong class than for the right one? Before you look: will the empty
# patches abstain? And which patches are to blame? For that the second table **occludes** one patch after the other: it is wiped clean, and the table
# says by how much the wrong class's margin over the right one falls.

# %%
wrong = test_images[worst[0]].cpu()
right_class, wrong_class = test_labels[worst[0]].item(), predicted[worst[0]].item()
with torch.no_grad():
    tokens = packaged.positions(packaged.to_sequence(wrong[None]))
    for block in packaged.blocks:
        tokens, _ = block(tokens)
    votes = packaged.classifier.linear(packaged.classifier.norm(tokens))[0]  # (16, 10)
    torch.testing.assert_close(votes.mean(dim=0), packaged(wrong[None])[0], rtol=1e-4, atol=1e-4)

# %%
with torch.no_grad():
    without = wrong.repeat(16, 1, 1, 1)  # sixteen copies, each with one patch wiped clean
    for n in range(16):
        without[n, :, n // 4 * 7 : n // 4 * 7 + 7, n % 4 * 7 : n % 4 * 7 + 7] = 0
    logits = packaged(torch.cat([wrong[None], without]))  # (17, 10)
    margin = logits[:, wrong_class] - logits[:, right_class]
tables = {
    f"votes for {wrong_class} minus {right_class}": votes[:, wrong_class] - votes[:, right_class],
    f"what its ink adds to the margin of {wrong_class}": margin[0] - margin[1:],
}
_, (left, *others) = plt.subplots(1, 3, figsize=(9.6, 2.8), layout="constrained")
left.imshow(wrong[0], cmap="gray_r")
left.set_xticks([6.5, 13.5, 20.5], labels=[])
left.set_yticks([6.5, 13.5, 20.5], labels=[])
left.grid(color="#D55E00", linewidth=0.8)
left.set(title=f"{right_class}, read as {wrong_class}, margin {margin[0]:.1f}")
for ax, (title, values) in zip(others, tables.items(), strict=True):
    plotting.heatmap(values.view(4, 4), signed=True, xlabel="column", ylabel="row", title=title, colorbar=False, ax=ax)
plotting.show(
    "Left, a misread digit with the borders of its patches. Beside it two tables of its four by four patches: their votes, and what wiping each of them clean takes away."
)


# %% [markdown]
# In the quick profile all sixteen patches vote for 6 rather than 4, and those with little ink or none among the most strongly. After three blocks a
# token carries what it has collected from all others, so a vote does not say on which ink the answer depends. The second table does: more than the
# whole margin hangs on one patch, in row 2 and column 1, and with it wiped clean 4 is ahead of 6. (A wiped digit is another digit, of course, so such
# an experiment surprises the model, too.) What a token *says* and what the answer *depends on* are two things; only an intervention shows the second.

# %% [markdown]
# ## Optional: a detector of order
#
# ### Exercise 5 · hard · 12 minutes
#
# A detector. `model` is any function from pictures (B, C, H, W) to logits or probabilities (B, classes). Say whether its output depends on the order
# of the patches: True if at least one output of at least one picture changes when the patches are put into another order, the same for all pictures.
# Patches have P×P pixels and stay whole. Try ten random orders, since a random order of a few patches may happen to be the old one; count it as one
# of the ten all the same. Rounding does not count: compare with `torch.allclose(…, …, atol=1e-5)`.

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
# `F.unfold` of a batch gives (B, numbers, patches); only the last axis may be shuffled. Answer True at the first order that changes something, and
# False only after the last one.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def order_matters(model, images, patch_size):
#     patches = F.unfold(images, patch_size, stride=patch_size)  # (B, numbers, patches)
#     for _ in range(10):
#         shuffled = patches[:, :, torch.randperm(patches.shape[2])]
#         moved = F.fold(shuffled, images.shape[2:], patch_size, stride=patch_size)
#         if not torch.allclose(model(images), model(moved), atol=1e-5):
#             return True
#     return False
# ```
#
# </details>

# %% [markdown]
# ## Optional: your model in a page
#
# One call writes your model as a page, `my-digits.html`, that opens in any browser, without Python or internet. Draw a digit in it. The page
# computes the forward pass itself, in [JavaScript](../sciformer/teach/export/forward.js) that uses the package's names. The course's
# [playground](../site/playground.md) is made of such pages.

# %%
page = export_html(packaged, "my-digits.html", history=losses["vision transformer"])


# %% [markdown]
# ## Optional: single pixels
#
# With `patch_size=1`, how many tokens does a digit have, and how many weights does each head's attention map hold?
#
# <details><summary>Answer</summary>
#
# 784 tokens, and 784 × 784 = 614,656 weights a head, against 16 × 16 = 256 with patches of 7×7. The cost of attention grows with the square of the
# number of tokens. Notebook 07 trains on single pixels.
#
# </details>

# %% [markdown]
# ## Optional: several learned queries read the tokens
#
# Between the class token and the mean there is a third way, which the course's recorded runs of this model use. A few learned queries each take a
# weighted average of all tokens: attention once more, with queries that do not depend on the picture.

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
# For which query is the weighted average the plain mean?
#
# <details><summary>Answer</summary>
#
# For a query of zeros: all scores are 0, so all weights are equal. The next cell checks it. (With a fresh layer norm
# any query of equal numbers does it, too: normed features add up to 0.)
#
# </details>

# %%
one_query = QueryClassifier(64, 10, num_queries=1)
nn.init.zeros_(one_query.queries.weight)
by_mean = one_query.linear(one_query.norm(tokens).mean(dim=1))
torch.testing.assert_close(one_query(tokens), by_mean)

# %% [markdown]
# **[Records](../docs/glossary.md#r)** stand in the folder [results](../results/README.md). Here are two of this model with eight learned queries,
# trained by the optimiser Muon (notebook 08).

# %%
for name in ("quick", "long"):
    print(records.describe_record("mnist-image-transformer", "test accuracy", name))

# %% [markdown]
# The quick one was trained for 1,500 steps on the same 10,000 digits, the long one for 7,500 on all 60,000, and both were judged on 10,000 test
# digits. The ± is the standard error over ten seeds. They are no victory over the network, which did not get that recipe, and do not say what made
# them better. But the quick one does say that 10,000 digits can teach a transformer more than yours has learned.
