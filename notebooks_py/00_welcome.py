# %% [markdown]
# # 00 Welcome
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/00_welcome.ipynb)
#
# the map of the course is below · [01 Weighted sums](01_weighted_sums.ipynb) →
#
# Needs: some Python, and what a matrix product is · runs in about 15 s on two CPU cores · about one hour of study

# %% [markdown]
# This course builds attention from a weighted sum up, mechanism by mechanism, and measures what each one is worth.
#
# After this notebook you can
#
# - tell that your machine is ready, and where the data come from;
# - name the three lines that all of attention shares;
# - train a first small transformer, in seconds.

# %% [markdown]
# ## Is everything here?
#
# Each notebook begins with this cell. Where sciformer is installed it does nothing.

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
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

from sciformer import SCORES, ImageTransformer, attend, causal_mask, dot_product_scores
from sciformer import check, cli, course, metrics, plotting
from sciformer.data import batches, mnist, shakespeare
from sciformer.training import TrainConfig, evaluate, fit

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# The doctor lists versions, device, threads and data. If something goes wrong later, paste its output into your question.

# %% tags=["nbval-ignore-output"]
_ = cli.main(["doctor"])

# %% [markdown]
# The **profile** decides how large the experiments are: *quick* for two CPU cores, *full* for a GPU. It is the same code
# with other sizes. Set the environment variable `SCIFORMER_PROFILE` to choose yourself. Where a text reads a figure off a
# trained model, it is the quick profile's. In the full one yours will differ, and a verdict that only the quick one has been
# measured for then *states* its value instead of judging it.

# %% [markdown]
# ## The data: digits
#
# 10,000 handwritten digits to learn from and 2,000 to be tested on come with the package, so nothing is downloaded.

# %%
images, labels = mnist("train")
images.shape, labels.shape

# %%
plotting.images(images[:20], [str(n.item()) for n in labels[:20]])
plt.show()

# %% [markdown]
# How many of each? A model that always guessed the commonest digit would be right about one time in nine.

# %%
labels.bincount()

# %%
commonest = labels.bincount().max().item() / len(labels)
print(f"always guessing {labels.bincount().argmax()}: {100 * commonest:.1f} % right")

# %% [markdown]
# ## The data: Shakespeare
#
# One long text, character by character. A token is a character's number in the vocabulary.

# %%
tokens, vocabulary = shakespeare("train")
print(f"{len(tokens):,} tokens, {len(vocabulary)} different ones")
print(vocabulary.decode(tokens[:97]))

# %%
vocabulary.encode("First")

# %% [markdown]
# ## The one idea
#
# Every mechanism in this course is the same three lines. Only the **score** changes.
#
# ```
# scores  = score(query, key)                  # how well does each key answer each query?
# weights = masked_softmax(scores, attn_mask)  # rows that sum to 1
# output  = weights @ value                    # a weighted average of the values
# ```
#
# The **softmax** takes $e$ to the power of each score and divides by the row's sum.

# %% [markdown]
# Try it on a sentence. Each word gets a random vector; words that are the same get the same one.

# %%
words = ["the", "cat", "sat", "on", "the", "mat"]
vectors = {word: torch.randn(8) for word in words}
x = torch.stack([vectors[word] for word in words])[None, None]  # (1 sentence, 1 head, 6 words, 8 numbers)
x.shape

# %%
scores = dot_product_scores(x, x)  # (1, 1, 6, 6)
output, weights = attend(scores, x)
output.shape, weights.shape

# %% [markdown]
# **Predict** before you run the next cell: which word does the first *the* attend to, besides itself?

# %%
plotting.heatmap(weights[0, 0], rows=words, columns=words, title="who looks at whom")
plt.show()

# %% [markdown]
# The other *the*: equal vectors have a large dot product. Nothing was learned yet; similarity alone did that.

# %%
torch.testing.assert_close(weights[0, 0, 0, 0], weights[0, 0, 0, 4])
weights.sum(dim=-1).round(decimals=3)

# %% [markdown]
# ### A mask
#
# A **mask** says who may look where; True means *may attend*. Row $i$ is the word that looks, column $j$ the word that it
# looks at. A text model must not look at the words to come.

# %%
causal_mask(4)

# %%
_, causal_weights = attend(scores, x, attn_mask=causal_mask(6))
plotting.heatmap(causal_weights[0, 0], rows=words, columns=words, title="no looking ahead")
plt.show()

# %% [markdown]
# The scores that are built in, by name. Any of them drops into any model.

# %%
list(SCORES)

# %% [markdown]
# ## A first model
#
# One block of attention over 16 patches of a digit. Notebook 06 builds it from its parts; here it is a black box. `.to(device)`
# moves it to the GPU, where there is one; its batches have to follow it.

# %%
model = ImageTransformer(28, 7, 1, 10, embed_dim=32, num_heads=4, num_layers=1).to(device)
sum(p.numel() for p in model.parameters())

# %% [markdown]
# Before training, it guesses.

# %% tags=["nbval-ignore-output"]
test = [mnist("test")]
print(f"untrained: {100 * evaluate(model, test, metrics.accuracy):.1f} % right")

# %%
course.verdict("accuracy before training", evaluate(model, test, metrics.accuracy), below=0.3)

# %% [markdown]
# 400 steps with 64 digits each. `fit` is a plain loop, in `sciformer/training/`, short enough to read.

# %% tags=["nbval-ignore-output"]
config = TrainConfig(steps=400, lr=1e-2, optimizer="muon", warmup_steps=20)
stream = batches(images.to(device), labels.to(device), batch_size=64, seed=0)
history = fit(model, stream, F.cross_entropy, config)
accuracy = evaluate(model, test, metrics.accuracy)
print(f"trained for {history.seconds:.0f} s: {100 * accuracy:.1f} % right")

# %% [markdown]
# Numbers like these differ a little from machine to machine, so a notebook never asserts them to the digit. It gives a
# **verdict** with a bound instead, and stops if the bound does not hold.

# %%
course.verdict("accuracy after training", accuracy, above=0.85)

# %%
plotting.curves({"model": history.loss}, ylabel="training loss", smooth=20)
plt.show()

# %% [markdown]
# What it says about ten digits that it has never seen:

# %%
test_images, test_labels = test[0]
predicted = model.eval()(test_images[:10].to(device)).argmax(dim=-1)
plotting.images(test_images[:10], [f"read as {n}" for n in predicted])
plt.show()


# %% [markdown]
# ## How each notebook goes
#
# **Predict** an outcome. **Build** the mechanism with loops, then with matrices, and prove both equal. **Break** it with
# a classic mistake and look at the damage. **Prove** your class equal to the package's. **Train** it, and read the
# **verdict**. Then **look** at what it learned, mistakes included.

# %% [markdown]
# ## Exercises
#
# Every notebook has some, and each exercise has a checker. It calls your function on fresh random numbers. If the result
# is wrong, it computes what the usual mistakes would have given, and names the one that gave yours.
#
# Here is such a mistake, made on purpose: the scores taken as weights.

# %%
def without_softmax(scores, value):  # (S,), (S, D)
    return scores @ value  # (D,)


check.new_vector(without_softmax, seed=0)  # with a seed the numbers are not fresh, but always these


# %% [markdown]
# First what is wrong, then the smallest input that shows it, then the section to read again.
#
# Now write the function in place of `raise NotImplementedError` and run the cell; try a wrong answer, too. Hints and a
# solution are folded away.
#
# ### Exercise 1 · easy · 3 minutes
#
# One word looks at S words. Give its new vector: the average of theirs, weighted by the softmax of its scores.

# %%
def new_vector(scores, value):  # (S,) the word's scores, (S, D) the vectors
    raise NotImplementedError  # (D,)


check.new_vector(new_vector)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# S weights that sum to 1, then the sum of weight times vector.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `scores.softmax(dim=0)` gives the weights. Between (S,) and (S, D), `@` multiplies and adds up over S.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def new_vector(scores, value):
#     weights = scores.softmax(dim=0)  # (S,)
#     return weights @ value  # (S,) @ (S, D) = (D,)
# ```
#
# </details>
#
# ### Exercise 2 · middle · 6 minutes
#
# A mask for a short memory: each word may look at itself and at the `back` words before it, and nowhere else. With
# `back` 0 it sees only itself; near the beginning there are fewer words before it.

# %%
def recent_words(length, back):  # two whole numbers
    raise NotImplementedError  # (length, length), True = may attend


check.recent_words(recent_words)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `torch.zeros(length, length, dtype=torch.bool)` lets nobody look anywhere. Two loops can then set single entries.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Word $j$ lies $i - j$ steps behind word $i$. How large may that be, and how small? With `position = torch.arange(length)`,
# `position[:, None] - position` is all of them at once.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def recent_words(length, back):
#     position = torch.arange(length)  # (L,)
#     steps = position[:, None] - position  # (L, L): how far word j lies behind word i
#     return (steps >= 0) & (steps <= back)
# ```
#
# </details>
#
# ### Exercise 3 · hard · 10 minutes
#
# The scores are lost. What is left are the weights of a softmax that had no mask. Give the weights that the same
# softmax would have made with `attn_mask`: 0 where the mask is False, and rows that sum to 1. Every word may see
# itself, so no row is empty.

# %%
def mask_afterwards(weights, attn_mask):  # (L, L) rows that sum to 1, (L, L) True = may attend
    raise NotImplementedError  # (L, L)


check.mask_afterwards(mask_afterwards)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A weight is $e$ to the power of a score, divided by the row's sum. If a word is hidden, its own term is missing from
# that sum. What stays the same among the others?
#
# </details>
# <details><summary>Hint 2</summary>
#
# The proportions. `weights * attn_mask` sets hidden ones to 0; then every row has to sum to 1 again. `keepdim=True` keeps
# the sums of the rows in a column.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def mask_afterwards(weights, attn_mask):
#     kept = weights * attn_mask  # (L, L)
#     return kept / kept.sum(dim=-1, keepdim=True)
# ```
#
# </details>

# %% [markdown]
# ## Your turn
#
# **1. (easy, 1 minute)** Change the bound of the last verdict to 0.999 and run the cell. What happens, and why is that
# better than a printed number?
#
# <details><summary>Answer</summary>
#
# It raises an `AssertionError` that names the accuracy and the bound. A printed number can be wrong unnoticed; a verdict
# cannot.
#
# </details>
#
# **2. (middle, 3 minutes)** Give the second *the* another vector than the first. How does the first picture change?
#
# <details><summary>Answer</summary>
#
# The weight between the two falls to that of any two unrelated words: to attention a word is nothing but its vector.
#
# </details>

# %% [markdown]
# ## Takeaways
#
# - Data and package are here; nothing is downloaded.
# - Attention is: score, softmax, weighted average. Mechanisms differ in the score.
# - Claims end in verdicts.
#
# **Next**: 01, where the weighted sum comes from.
