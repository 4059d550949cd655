# %% [markdown]
# # 00 Welcome
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/00_welcome.ipynb)
#
# the map of the course is below · [01 Weighted sums](01_weighted_sums.ipynb) →
#
# Needs: some Python, and what a matrix product is · runs in about 20 s on two CPU cores · about 1½ hours of study

# %% [markdown]
# ## What is inside ChatGPT, and can I build it?
#
# On 30 November 2022 a chat window opened to the public, and within days people who had never heard of neural networks
# asked it for poems, for code and for advice. GPT stands for *generative pre-trained transformer*: it is *generative* because it
# writes, *pre-trained* because it has read a lot before you met it, and *transformer* is the name of the machine inside.
#
# That machine is younger than you may think. In 2014 [Bahdanau, Cho and Bengio](https://arxiv.org/abs/1409.0473) let a
# translation program look back at the whole sentence and choose where to look; they called the choice
# [*attention*](../docs/glossary.md#a). In 2017 [Vaswani and seven colleagues](https://arxiv.org/abs/1706.03762) built one that
# relied on attention almost alone, and named it the [**transformer**](../docs/glossary.md#t).
#
# A model of the size of ChatGPT is trained in a data centre, but its parts are small: over the course you write each of them in a
# few lines, and run it on your own computer. Today you open a small transformer that writes, look at what a part of it does,
# build its central step, and train another transformer from scratch.
#
# After this notebook you can
#
# - let a trained transformer write, and say where it keeps its parameters;
# - test a guess about what a part of it looks for;
# - explain the three lines of attention, write two of them, and say what training changes in them;
# - train a first small transformer, in a loop that you can read.

# %% [markdown]
# Every notebook opens with a question and lets you **build** the answer in exercises, each with a checker, hints and a solution
# folded away. Where it says **Predict**, write your guess down before you read on. Then the notebook breaks what was built, trains
# it, and looks at what it learned, mistakes included. Some results come from longer runs, which are recorded with the package.
# The first code cell is always the same: it installs the package where it is missing, as on Colab.

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
from collections import Counter

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

from sciformer import ImageTransformer, causal_mask, check, cli, course, plotting, trained
from sciformer.data import batches, mnist, shakespeare
from sciformer.teach.diagrams.course_map import course_map

torch.manual_seed(0)  # the same seed gives the same random numbers
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## The first minute: a model writes
#
# A small transformer, the *writer*, comes with the package, already trained: it was shown one long text, Shakespeare's plays, and
# had to guess every next character. To let it write, we give it the beginning of a text, take the character that it considers
# most likely, append it, and ask again. Each time it sees all of the text so far, or the last 256 characters of a longer one. In
# the code, `vocabulary` turns characters into numbers and numbers into characters, and `temperature=0` means: always the most
# likely character, with nothing left to chance.
#
# **Predict.** If it always writes the likeliest next character, will the result look like Shakespeare? Make up your mind
# before you read on.

# %%
writer = trained.load("writer")
text, vocabulary = shakespeare("train")
beginning = vocabulary.encode("ROMEO:\n")[None]  # numbers in place of characters; one text
likeliest = writer.generate(beginning, 240, temperature=0)
print(vocabulary.decode(likeliest[0]))

# %% [markdown]
# The name and the first line break were ours. What the model added looks like verse: lines of about equal length, made of English
# words. But it says nothing, and no line is a correct sentence. Did the model copy the lines? Let us search for each complete one
# in the text that it learned from:

# %%
known = vocabulary.decode(text)
for line in vocabulary.decode(likeliest[0]).splitlines()[1:-1]:  # without the name, and without the unfinished last line
    print(f"{'found' if line in known else 'not found'}: {line}")

# %% [markdown]
# None of them occurs there as a whole, though shorter parts of them may. But the writer soon repeats itself: without chance, the
# text so far decides the next character, and here every line comes back to the princes.
#
# Usually one draws the next character at random instead, the likely ones more often. The **temperature** sets how much chance
# there is: near 0 the most likely character nearly always wins, and at higher values the others get their turn more often. Run
# the next cell several times, and compare the texts:

# %% tags=["nbval-ignore-output"]
drawn = writer.generate(beginning, 300, temperature=0.8)
print(vocabulary.decode(drawn[0]))

# %% [markdown]
# Speakers, line breaks, commas, words: nobody told the model that there are such things. It was only ever asked for the next
# character (notebook 08).

# %% [markdown]
# ## What is inside?
#
# A trained model consists of numbers, called **parameters**, and of a rule for computing with them. The units that a model reads
# are called [**tokens**](../docs/glossary.md#t), here characters. What it gets of each is its number in the
# [**vocabulary**](../docs/glossary.md#v), the list of all characters that occur:

# %%
print(f"{len(text):,} tokens, {len(vocabulary)} different ones; 'First' is {vocabulary.encode('First').tolist()}")
print(vocabulary.decode(text[:97]))

# %% [markdown]
# The writer's 1.6 million parameters sit in three parts that work one after the other. The *embedding* has a vector of 160 numbers
# for each of the 65 characters. Five *blocks*, which are built alike but have learned different numbers, change the vectors of
# the text. From the last vector that comes out, *read_out* computes a number for every possible next character.
#
# **Predict.** What share of the parameters do the embedding and the read-out hold together? The numbers above are enough to work
# it out.

# %%
for name, part in writer.named_children():
    if count := sum(p.numel() for p in part.parameters()):  # three other parts have no parameters
        print(f"{name:10} {count:9,} parameters")
print(f"{len(writer.blocks)} blocks with {writer.blocks[0].attention.num_heads} heads each")

# %% [markdown]
# The embedding has 65 × 160 parameters and the read-out as many: together 1.3 % of all. Nearly everything is in the blocks.
#
# A block has two halves. In its **attention**, a character takes something over from other characters. Several parts of the
# attention do so side by side, each by learned rules of its own; such a part is called a [**head**](../docs/glossary.md#h). A
# small network, called *feed-forward*, then works on what each character has now. (The writer's also gets a share of the few
# characters just before; an optional section says so.)
#
# GPT-3, a predecessor of the models behind ChatGPT, is a stack of blocks as well: 96 blocks with 96 heads each, and 175 billion
# parameters ([Brown et al. 2020](https://arxiv.org/abs/2005.14165), table 2.1), more than 100,000 times as many as the writer has.
# To learn what such a machine does, begin with a single head.

# %% [markdown]
# ## What is one head looking for?
#
# How much a character takes over from another one is a number, called a **weight**. Unlike a parameter, it is computed anew for
# each text. Below, one of the 25 heads reads the first 24 characters of `likeliest`, the text that the writer wrote without chance.
# A row belongs to the character that looks, a column to a character that is looked at, and the weights of a row sum to 1. The
# sign ⏎ stands for a line break and · for a space. A dot marks the largest weight of each row, and weights of exactly 0 are white.
#
# **Predict.** The *T* of *The* stands just behind `ROMEO:⏎`. At which of these eight characters, itself included, will it look
# most?

# %%
shown = likeliest[:, :24]
with torch.no_grad():  # we only use the model, so torch need not prepare for training
    weights = writer.attention_weights(shown)[3][0, 0]  # the fourth block, its first head: (24, 24)
names = [character.replace("\n", "⏎").replace(" ", "·") for character in vocabulary.decode(shown[0])]
colours = {"vmax": weights[1:].max().item(), "title": "weights of one head of the writer"}  # R, alone in row 1, has 1
ax = plotting.heatmap(
    weights.where(weights > 0, math.nan), rows=names, columns=names, xlabel="looked at", ylabel="looks", **colours
)
ax.plot(weights.argmax(dim=-1), range(24), "o", color="white", markeredgecolor="black", markersize=4)
plotting.show("A row and a column for each of 24 characters. Each row has a dot on its largest weight; some cells are white.")
print("most looked at from T on:", Counter(names[j] for j in weights[7:].argmax(dim=-1)).most_common())

# %% [markdown]
# The *T* looks most at the line break behind the speaker's name. So do seven of the 16 characters after it; the other nine look
# most at an *R* or an *O* of the name. Nobody told this head to look there. (Why is half of the picture white? Make a guess; the
# section *A mask* comes back to it.)
#
# **Predict.** Three columns are bright, and that of ⏎ has the most dots. What is this head looking for in a text? Write down an
# explanation that fits this column, and then a second one that fits it as well. What would you count, in other texts, to decide
# between the two?

# %% [markdown]
# We thought of three explanations. The head looks for
#
# 1. the end of a speaker's name, or
# 2. the latest line break, whatever stands before it, or
# 3. the seventh character, whatever it is.
#
# To decide, we take 56 passages of 128 characters from `val` (for *validation*), a part of the text that was held back from
# training, and note for each character which one the head looks at most. We count twice: for the characters whose latest line
# break stands behind a colon, as at the end of a name, and for all others. A line break itself does not count, because
# it is its own latest one. **Predict**, for each explanation, how the two counts would differ. If your own is not among
# them, add it to the loop.

# %%
held_back, _ = shakespeare("val")
passages = torch.stack([held_back[start : start + 128] for start in range(0, len(held_back) - 128, 2000)])  # (56, 128)


def looks(most):  # (56, 128): for each character, the position of the one that it looks at most
    tallies = {"behind a colon": Counter(), "elsewhere": Counter()}
    for passage, positions in zip(map(vocabulary.decode, passages), most.tolist(), strict=True):
        for i, character in enumerate(passage):
            latest = passage.rfind("\n", 0, i)  # the position of the latest line break before i
            if character == "\n" or latest < 1:  # none before i, or in the first place: we do not see behind what
                continue
            case, j = "behind a colon" if passage[latest - 1] == ":" else "elsewhere", positions[i]
            if j == latest:
                found = "latest line break"
            else:
                found = "earlier line break" if passage[j] == "\n" else "seventh" if j == 6 else "another"
            tallies[case][found] += 1
    return tallies


# %%
with torch.no_grad():
    maps = torch.cat(writer.attention_weights(passages), dim=1)  # (56, 25, 128, 128): the weights of all 25 heads
most = maps.argmax(dim=-1)  # (56, 25, 128): where the largest weight of each row is
for case, tally in looks(most[:, 15]).items():  # head 15 of 0 to 24: the first of the fourth block
    shares = {found: f"{number / tally.total():.0%}" for found, number in tally.most_common()}
    print(f"latest line break {case}: {tally.total():,} characters look at {shares}")


# %%
def share_of_latest(most):  # both cases together
    tally = sum(looks(most).values(), Counter())
    return tally["latest line break"] / tally.total()


shares = sorted([share_of_latest(most[:, head]) for head in range(25)], reverse=True)
print(f"this head: {share_of_latest(most[:, 15]):.0%}; the first four of 25: {[f'{share:.0%}' for share in shares[:4]]}")


# %% [markdown]
# Of the three the second explanation fits best: in both cases together, about three quarters of the counted characters look most
# at their latest line break. Under the first, the share would be larger behind a colon, and it is *smaller* there: 60 % instead of
# 84 %, with another 25 % at an earlier line break. (The picture had no earlier one, and there it was 8 of 17.) The third is wrong:
# hardly any character looks most at the seventh. What remains, 15 % and 9 %, goes to other characters. The count does not say why,
# nor why the *R* and the *O* of the name are looked at so often in the picture.
#
# This head was chosen for the count: of the 25, it looks most often at the latest line break, and the next one reaches 23 %. So it
# is not typical. Nor does the count say how large the weights are, or what the model does with what it finds; to learn that, one
# switches heads off (notebook 18).

# %% [markdown]
# ## The one idea
#
# How does a head arrive at its weights, and what does it do with them? In three steps. Say that one word (in the writer: one
# character) looks at S words. It has a vector that says what it looks for, the **query**. Each of the S words has two vectors: a
# **key**, which is compared with the query, and a **value**, which the word contributes to the result.
#
# 1. Each word gets a [**score**](../docs/glossary.md#s): a number that says how well its key fits the query. The mechanisms of
#    this course differ mainly in the formula of the score.
# 2. The **softmax** makes weights of scores: it takes $e$ to the power of each score, so that all become positive, and
#    divides by their sum, so that they add up to 1.
# 3. The result is the weighted average of the values.
#
# With the scores $s_j$ and the values $v_j$, steps 2 and 3 are
#
# $$w_j = \frac{e^{s_j}}{\sum_k e^{s_k}}, \qquad y = \sum_j w_j\, v_j.$$
#
# You can write these two now. Replace `raise NotImplementedError` by your code and run the cell. The checker calls your function
# on fresh random numbers and says what is wrong with the result. The notebook then goes on with your function if it is
# right, and with the solution if it is wrong or missing; `use` in the last line sees to that.
#
# ### Exercise 1 · easy · 3 minutes
#
# One word looks at S words, itself among them, and has a score for each. Each of the S words has a vector of D numbers. Give the
# new vector of the word that looks: the average of the S vectors, weighted by the softmax of the S scores. It has D numbers, too.

# %%
def new_vector(scores, value):  # (S,) the word's scores, (S, D) the vectors
    raise NotImplementedError  # (D,)


new_vector = check.new_vector.use(new_vector)


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

# %% [markdown]
# What does the checker say to a classic mistake? This function leaves out the softmax: it takes the scores themselves as weights.

# %%
def without_softmax(scores, value):  # (S,), (S, D)
    return scores @ value  # (D,)


check.new_vector(without_softmax, seed=0)  # with a seed the numbers are not fresh, but always these

# %% [markdown]
# The checker says what is wrong, shows the smallest input that it has found on which the result is wrong, and names the section
# to read again.
#
# Now put `new_vector` to work. Each different word of a sentence gets a random vector of 8 numbers, called
# [**features**](../docs/glossary.md#f). The score of two words is the **dot product** of their vectors: the sum of the products
# of their features, which is large when two vectors are long and point the same way. In this example there is only one vector for
# each word, and it serves as its query, its key and its value.

# %%
torch.manual_seed(0)
words = ["the", "cat", "sat", "on", "the", "mat"]
vectors = {word: torch.randn(8) for word in words}
x = torch.stack([vectors[word] for word in words])  # (6 words, 8 features)
scores = x @ x.T  # (6, 6): row i has the scores of word i with every word
output = torch.stack([new_vector(row, x) for row in scores])  # (6, 8): a new vector for each word

# %% [markdown]
# **Predict.** The vectors are random and nothing has been trained. To which word will the first *the* give its largest weights,
# besides itself?

# %%
weights = scores.softmax(dim=-1)  # of every row at once; new_vector computes them row by row
axes = {"rows": words, "columns": words, "xlabel": "looked at", "vmax": 1.0}
plotting.heatmap(weights, title="who looks at whom", ylabel="looks", **axes)
plotting.show("Six by six weights: a row for each word that looks, and a column for each word that it looks at.")
print("both 'the' have the same new vector:", torch.allclose(output[0], output[4]))
print("the first 'the':", [f"{words[j]} {weights[0, j]:.2f}" for j in weights[0].argsort(descending=True, stable=True)])

# %% [markdown]
# It gives as much to the other *the* as to itself. Both have the same vector, and so the same score: whatever vectors are drawn,
# two equal words get equal weights without any training, and end with equal new vectors. In this draw they also have the largest
# weights of the row, but another word with a longer vector could get a larger score.

# %% [markdown]
# ### A mask
#
# Here every word looks at all six. In the writer, no character looked at those that come after it; that was the white half. While
# a model learns to write, it has to guess each next token, so it must not see that token. A model whose
# tokens look only at themselves and at what comes before them is called **causal**. A [**mask**](../docs/glossary.md#m) says who
# may look where. Row $i$ is the word that looks, column $j$ the word that it looks at, and True means *may look*; the code says
# *may attend*.
#
# **Predict.** We give the six words a causal mask. Which row of the picture above will change most?

# %%
mask = causal_mask(6)
masked = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)  # e to the power of −∞ is 0
figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.7), layout="constrained")
plotting.heatmap(mask, title="the mask", ylabel="looks", ax=left, **axes)
plotting.heatmap(masked.where(mask, math.nan), title="the weights under it", ylabel="", ax=right, **axes)  # hidden: blank
plotting.show("Left, a tick wherever a word may look. Right, the weights under this mask; what it hides is white.")
print("largest hidden weight:", masked[~mask].max().item())
print("sums of the rows:", [round(total, 3) for total in masked.sum(dim=-1).tolist()])


# %% [markdown]
# The row of the first *the*: it no longer sees the other one, and now gives itself all its weight instead of 0.48. The other rows
# change less, since they had given less to the words that come later. The white cells are exactly 0, as the first printed line
# says; a 0.00 below the diagonal is a small weight, rounded. Every row still sums to 1.
#
# Here are two exercises about masks. They are only checked, without `use`, because nothing later depends on them.
#
# ### Exercise 2 · middle · 6 minutes
#
# A mask for a short memory: each word may look at itself and at the `back` words before it, and nowhere else. `back` is 0 or
# more; with `back` 0 every word sees only itself. Near the beginning there are fewer words before it than `back`. The result is
# a tensor of booleans.

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
# Somebody has computed the weights without a mask and has thrown the scores away. Compute, from these weights and `attn_mask`
# alone, the masked weights: what the softmax of the same scores would have given under the mask. They are exactly 0 where the
# mask is False, and each row sums to 1. Every given weight is above 0, but the visible ones of a row can be tiny, a millionth in
# all. Every word may see itself, so no row is left empty.

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
# ## What training changes
#
# In the example of six words, a word finds words whose vectors happen to point the same way as its own, or to be long. Yet the
# writer's *T* found a line break, which is a quite different character. In the writer, queries and keys are not the vectors
# themselves. Each head computes them, and the values, with three matrices of its own:
#
# ```
# query, key, value = x @ W_query, x @ W_key, x @ W_value    # three matrices that training changes
#
# scores  = score(query, key)        # how well does the key of each word fit the query?
# weights = softmax(scores)          # positive numbers that sum to 1
# output  = weights @ value          # the weighted average of what the words have to say
# ```
#
# These matrices begin at random, and training changes them. The rule stays the same, and no weight is stored: a new text gives new
# vectors, and these give new weights.
#
# If that is all, `new_vector` must be able to do this head's work. Let us try. We catch the vectors that enter the attention of the
# fourth block, and what its heads hand on. Then we compute queries, keys, values and scores with the writer's own matrices, and
# leave softmax and average to `new_vector`. It gets, for each character, only those up to itself: this takes the place of the
# mask. (The writer's `score` prepares queries and keys before it takes their dot product, so that it also depends on how far apart
# two characters are. A head can then tell the latest line break from an earlier one: notebooks 04 and 08.)

# %%
attention, caught = writer.blocks[3].attention, []
parts = [attention, attention.out_proj]  # out_proj gets what the five heads hand on, side by side
hooks = [part.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0][0])) for part in parts]  # notes inputs
with torch.no_grad():
    writer(shown)
for hook in hooks:
    hook.remove()
entered, handed_on = caught  # (24, 160) each: 24 characters, and 5 heads with 32 features

# %%
with torch.no_grad():
    projections = attention.q_proj, attention.k_proj, attention.v_proj  # W_query, W_key and W_value of all five heads
    query, key, value = [project(entered).view(24, 5, 32).transpose(0, 1) for project in projections]  # (5, 24, 32)
    scores = attention.score(query[None], key[None])[0, 0]  # (24, 24) of the first head
    mine = torch.stack([new_vector(scores[i, : i + 1], value[0, : i + 1]) for i in range(24)])  # (24, 32)
torch.testing.assert_close(mine, handed_on[:, :32])
print("new_vector gives the same 24 new vectors as the head inside the writer")

# %% [markdown]
# So exercise 1 is what this head does, once it has scores and values.
#
# And what did training do to the head? We build the writer once more, with parameters drawn as before a training, and count as
# above. **Predict.** How many of the characters will now look most at their latest line break, in the same head, and in the best
# of the 25?

# %%
for seed in range(3):
    torch.manual_seed(seed)
    untrained = trained.untrained("writer")
    with torch.no_grad():
        most = torch.cat(untrained.attention_weights(passages), dim=1).argmax(dim=-1)  # as above
    shares = [share_of_latest(most[:, head]) for head in range(25)]
    print(f"untrained, draw {seed}: the same head {shares[15]:.0%}, the best of 25 {max(shares):.0%}")

# %% [markdown]
# In these three draws, even the best of 25 untrained heads reaches 8 % at most. So choosing one head among 25 does not explain the
# 74 %. The rule is the same before and after; what training has changed are the parameters.
#
# Can a learned query find more than a line break? When the transformer was
# [first presented](https://research.google/blog/transformer-a-novel-neural-network-architecture-for-language-understanding/)
# to a wider public, soon after the paper, the example was this: *The animal didn't cross the street because it was too tired.*
# What does *it* stand for, and what if *tired* is replaced by *wide*? Notebook 02 takes the question up.

# %% [markdown]
# ## Can I build it? Train a first transformer
#
# The package keeps a record of each training. A *step* is one small change of all parameters:

# %%
run = trained.record("writer")
print(f"the writer: {run['config']['train']['steps']:,} steps of {run['config']['batch_size']} texts of 256 characters")
print(f"{run['seconds'] / 60:.0f} minutes on one thread of a {run['device'].split(',')[0]}")

# %% [markdown]
# You will train for seconds instead, on an easier task: reading handwritten digits. The machine stays the same: its tokens are now
# squares cut from a picture, and attention only sees their vectors. Nothing has to be downloaded. There are 10,000 pictures of
# 28 × 28 pixels to learn from, and 2,000 *test digits*, which the model never sees in training:

# %%
images, labels = mnist("train")
test_images, test_labels = mnist("test")
print("pictures", tuple(images.shape), " how many of each digit:", labels.bincount().tolist())
print(f"among those to be tested on, {(test_labels == 1).float().mean():.1%} are a 1")

# %% [markdown]
# Keep the last number in mind: it is the accuracy of a model that always answers 1, the commonest digit, without looking.
#
# What can be reached? The package has a trained transformer for this, too, the *reader*. Here are ten of the test digits. Read them
# yourself. **Predict**: on how many of all 2,000 does the reader agree with the label, which says which digit was meant?

# %%
plotting.images(test_images[:10], [f"no. {n}" for n in range(1, 11)])
plotting.show("Ten handwritten digits in a row, numbered from 1 to 10.")

# %%
reader, run = trained.load("reader"), trained.record("reader")
with torch.no_grad():
    read = reader(test_images).argmax(dim=-1)  # the digit with the largest of ten numbers
print(f"these ten, read as  {read[:10].tolist()}\n        labelled as {test_labels[:10].tolist()}")
print(f"the reader reads {(read == test_labels).float().mean():.1%} of {len(test_labels):,} digits as they are labelled")
steps, examples = run["config"]["train"]["steps"], run["config"]["batch_size"]
print(f"it has {sum(p.numel() for p in reader.parameters()):,} parameters; {steps:,} steps of {examples} digits")

# %% [markdown]
# One of the ten is not read as it is labelled. Find it, and look at it again: what did you say?
#
# Now your own model. It is the package's `ImageTransformer`, which notebook 06 builds from its parts; your `new_vector` is not
# called in it, but its heads compute the same average, with learned matrices. Each picture is cut into 16 squares of 7 × 7 pixels,
# called [**patches**](../docs/glossary.md#p), and the patches look at one another, without a mask. The first four numbers say that
# a picture has 28 pixels a side, a patch 7, that a pixel has one value (its grey), and that there are ten possible answers. Each
# patch gets 32 features (`embed_dim`), and there is one block (`num_layers`; blocks are also called layers) with four heads
# (`num_heads`).

# %%
torch.manual_seed(0)
model = ImageTransformer(28, 7, 1, 10, embed_dim=32, num_heads=4, num_layers=1).to(device)
print(f"{sum(p.numel() for p in model.parameters()):,} parameters, untrained")

# %% [markdown]
# Training means to change the parameters a little, again and again, so that the answers get better. Each step
#
# 1. takes 64 digits, a [**batch**](../docs/glossary.md#b), and lets the model answer;
# 2. measures how wrong the answers are, as one number, the **loss**;
# 3. asks torch for the **gradient**: how the loss would change with each parameter;
# 4. moves every parameter a little in the direction that lowers the loss.

# %% [markdown]
# The model answers with ten numbers for each picture. `F.cross_entropy` makes ten probabilities of them, by the softmax that you
# know, and computes the loss, the *cross-entropy*: the mean of $-\log p$ (natural logarithm) over the batch, where $p$ is the
# probability of the right digit. A model that gives each of the ten digits the probability 1/10 has the loss $\log 10 \approx
# 2.3$. Torch adds new gradients to those of the step before, unless `zero_grad` clears them first.
#
# Point 4 is the job of an [**optimiser**](../docs/glossary.md#o), here Adam ([Kingma and Ba
# 2015](https://arxiv.org/abs/1412.6980)). It averages the gradient of each parameter over the last steps, and divides it by the
# size that these gradients have had. As a result, a step moves most parameters by about the *learning rate* `lr` or less, here
# 0.005, whether their gradients are large or small. Much smaller steps would take longer, and with much larger ones the loss may
# stop falling.
#
# **Predict.** The model has about a seventh of the reader's parameters. How often does the model see each of the 10,000
# digits in 400 steps? And how many of 100 new digits will it then read correctly? Write a number down before you read the
# next cells.

# %%
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
stream = batches(images.to(device), labels.to(device), batch_size=64, seed=0)
losses = []
for _ in range(400):
    digits, answers = next(stream)
    loss = F.cross_entropy(model(digits), answers)
    optimizer.zero_grad()
    loss.backward()  # the gradients
    optimizer.step()
    losses.append(loss.item())

# %%
means = torch.tensor(losses).view(20, 20).mean(dim=1).tolist()  # of 20 batches each
ax = plotting.curves({"each batch": losses, "mean of 20 batches": list(zip(range(10, 401, 20), means, strict=True))})
ax.lines[0].set_alpha(0.3)
ax.axhline(math.log(10), color="0.4", ls=":", label="each digit equally likely")
ax.legend(frameon=False)
plotting.show("The loss against the step: each batch, pale, and means of 20 batches; a dotted line at log 10.")

# %% tags=["nbval-ignore-output"]
with torch.no_grad():
    predicted = model(test_images.to(device)).argmax(dim=-1).cpu()
accuracy = (predicted == test_labels).float().mean().item()
print(f"{accuracy:.1%} of {len(test_labels):,} new digits read as they are labelled")

# %% [markdown]
# Compare this with your guess, and with the 12.2 % of the commonest digit. The model saw 400 × 64 = 25,600 digits, so each of the
# 10,000 about 2.6 times on average. In the run shown here the loss starts just above the dotted line, $\log 10$, and the means
# end near 0.4. That is the loss of a model that gives each right digit a probability of $e^{-0.4} \approx 0.67$. Between the steps
# 230 and 270 the means rise. Each batch is another sample of digits; whether that alone explains the rise was not tested.
#
# Results of training can differ a little from machine to machine. So a claim about them states a bound, and the notebook stops with
# an error if the measured value lies outside. This is called a [**verdict**](../docs/glossary.md#v):

# %%
course.verdict("accuracy on new digits", accuracy, above=0.85)

# %% [markdown]
# These are the first ten digits that *your* model gets wrong, in the order of the 2,000. Do you know some of them already?

# %% tags=["nbval-ignore-output"]
wrong = (predicted != test_labels).nonzero().flatten()[:10].tolist()
titles = [f"no. {n + 1}: {test_labels[n]}\nread as {predicted[n]}" for n in wrong]
plotting.images(test_images[wrong], titles)
plotting.show("Digits that the model reads wrongly, each with its number, its label and what the model says.")

# %% [markdown]
# In the run shown here, numbers 2, 4 and 9 of the first picture are among them, which the reader read correctly. Number 5 is not,
# the 1 with a small hook that the reader took for a 7: this model read it as it is labelled. One digit says little; of all 2,000,
# the reader reads 99.1 % as they are labelled, and this model about nine in ten. The reader has seven times as many parameters, it
# saw 1,500 × 128 = 192,000 pictures instead of 25,600, and its training differed in more than that. What makes the difference,
# this comparison cannot tell.

# %% [markdown]
# ## The map of the course
#
# You have used two transformers and trained a third, and of all three you know the central step. The other notebooks build the
# rest. An arrow leads from a notebook to one that needs it: the reader's kind of model comes in 06, and the writer's in
# 08, for which 06 and 07 prepare. The boxes carry the names of the notebooks; each explains its own terms.

# %%
course_map(here=0)
plotting.show("A map of 19 boxes, one for each notebook, joined by arrows, in six colours for the six parts.")

# %% [markdown]
# There are several ways through the course. If you have no other plan, go in the order of the numbers: it puts every notebook after
# those that it needs.

# %% [markdown]
# ## Today
#
# These models compute attention by the same three lines, with other tokens:
#
# - **GPT-3** (Brown et al. 2020, [2005.14165](https://arxiv.org/abs/2005.14165)): parts of words; you build its small sister in 08.
#   In half of its layers a mask leaves out most pairs.
# - **Llama 2** (Touvron et al. 2023, [2307.09288](https://arxiv.org/abs/2307.09288)): the same, with parts of 04, 05 and 08 exchanged.
# - **BERT** (Devlin et al. 2018, [1810.04805](https://arxiv.org/abs/1810.04805)): no causal mask; it learns by filling gaps, as in 12.
# - **ViT** (Dosovitskiy et al. 2020, [2010.11929](https://arxiv.org/abs/2010.11929)): patches of a picture, as in 06.

# %% [markdown]
# ## Takeaways
#
# What is inside ChatGPT, and can I build it?
#
# - Inside are parameters, nearly all of them in a stack of blocks (counted in the writer), and a rule for computing with them. The
#   step of this rule in which tokens look at one another is attention: score, softmax, weighted average.
# - Training changes the matrices that make queries, keys and values. With those of the writer, one head looks most at the latest
#   line break in about three quarters of the cases counted; with untrained ones, hardly ever.
# - You have built the central step, and it did a trained head's work. You have trained a transformer by repeating four things:
#   let the model answer, measure the loss, compute the gradients, move the parameters. The other parts follow in the course.
# - What runs in ChatGPT is larger, and was also trained on example answers and on people's judgements of its own answers, which turns a model
#   that continues texts into one that follows instructions ([Ouyang et al. 2022](https://arxiv.org/abs/2203.02155)). The course
#   leaves that out, among other things.

# %% [markdown]
# ## Three questions
#
# **1.** At temperature 0 the writer began to repeat itself. Why does nothing new come in?
#
# <details><summary>Answer</summary>
#
# At temperature 0 there is no chance: the text that the model sees, here all of the text so far, decides the next character. As
# long as the model considers the repetition most likely, it goes on, and each *of the princes* makes the text before the next
# character more like the text before the last one. Drawing at random can lead out of it. (Whether it would go on for ever, 240
# characters do not show.)
#
# </details>
#
# **2.** Give the second *the* another random vector than the first. What becomes of the picture of weights?
#
# <details><summary>Answer</summary>
#
# The two no longer share their weight: each looks at the other as at any unrelated word. A row still sums to 1. So if the first
# *the* now gives the second less, the other five words, itself among them, share what is freed, in proportion to their weights.
# (If the new vector is long, it could also get more.) To this attention a word is nothing but its vector.
#
# </details>
#
# **3.** In another text, a head looks most at the first letter of the latest word in 60 % of all cases. What would you have to
# know before you say that training taught it to look for first letters?
#
# <details><summary>Answer</summary>
#
# At least three things. How often does an untrained head of the same model look there, and the best of all untrained ones? Was
# the head chosen from many for this very number? And does another explanation fit as well, say, the letter behind a space, or
# some fixed distance? Count the cases in which the explanations differ.
#
# </details>

# %% [markdown]
# ## Optional: the rest of a block
#
# These are the parts of one of the writer's blocks, as far as they have parameters:

# %%
for name, part in writer.blocks[0].named_children():
    if count := sum(p.numel() for p in part.parameters()):
        print(f"{name:18} {count:7,} parameters")

# %% [markdown]
# The attention has 4 × 160 × 160 = 102,400 parameters, the entries of four matrices: those of the five heads stand side by side in
# three of them, 32 columns for each head, and the fourth joins the results. The feed-forward network has twice as many: one matrix
# makes 640 numbers of the 160 of a character, and another one makes 160 of them again. The two small parts give each half a
# share of the three characters just before, whatever they are (*token shift*, notebook 08); the usual block does not do that.
# What each half computes is added to the vectors that came in, and the next block goes on with the sums. Notebooks 02 to 05 build
# such a block.
#
# Three parts of the writer have no parameters. *norm* brings every vector to the same length. *dropout*, which can set random
# numbers of a vector to 0 in training, is switched off here. *positions* is empty, because each head takes account of the order of
# the characters when it compares two of them (*rotary positions*, notebooks 04 and 08).

# %% [markdown]
# ## Optional: is your machine ready?
#
# The command `sciformer doctor` lists the versions of the libraries; whether torch can use a GPU of NVIDIA (*cuda*) or of an Apple
# computer (*mps*); on how many threads it computes, and whether idle threads sleep, so that other programs can use their cores;
# and the files of data. You don't need the *missing* ones: all of MNIST, from which our digits were taken, and the text of
# Shakespeare uncompressed. If something goes wrong later, paste the output into your question.

# %% tags=["nbval-ignore-output"]
_ = cli.main(["doctor"])

# %% [markdown]
# The [**profile**](../docs/glossary.md#p) decides how large the experiments are: *quick* is made for two CPU cores, *full* for
# a GPU. The code is the same and only the sizes differ; the environment variable `SCIFORMER_PROFILE` chooses. Results named in
# the text are those of the quick profile.

# %%
course.profile()

# %% [markdown]
# ## To read
#
# - Vaswani et al. 2017, *Attention is all you need*, [1706.03762](https://arxiv.org/abs/1706.03762): look at figure 1 now, and once
#   more after notebook 11, when you will know every box in it.
# - Karpathy 2015, [*The unreasonable effectiveness of recurrent neural networks*](https://karpathy.github.io/2015/05/21/rnn-effectiveness/):
#   where letting a network write Shakespeare one character at a time became popular. Its network is recurrent, as was usual before
#   the transformer: it reads one character after the other and carries along what it remembers.
# - [The glossary](../docs/glossary.md): every term of the field that the course uses.
#
# **Next.** The new vector of a word was a weighted average, and the weights came from the words themselves. What is the smallest
# thing that deserves the name *attention*? Notebook 01 starts from the plain mean, in which all weights are equal.
