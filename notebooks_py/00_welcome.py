# %% [markdown]
# # 00 Welcome
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/00_welcome.ipynb)
#
# the map of the course is below · [01 Weighted sums](01_weighted_sums.ipynb) →
#
# Needs: some Python, and what a matrix product is · runs in about 30 s on two CPU cores · about 2 hours of study

# %% [markdown]
# ## What is inside ChatGPT, and can I build it?
#
# On 30 November 2022 a chat window opened to the public, and within days people who had never heard of neural networks
# asked it for poems, for code and for advice. GPT stands for *generative pre-trained transformer*: it is *generative* because it
# writes, *pre-trained* because it has read a lot before you met it, and *transformer* is the name of the machine inside.
#
# In 2014 [Bahdanau, Cho and Bengio](https://arxiv.org/abs/1409.0473) let a translation program look back at the whole sentence and
# choose where to look; they called the choice [*attention*](../docs/glossary.md#a). In 2017 [Vaswani and seven
# colleagues](https://arxiv.org/abs/1706.03762) relied on attention almost alone, and named the result the
# [**transformer**](../docs/glossary.md#t): a model that turns a text into vectors, and lets these vectors take something over from
# one another, several times in a row.
#
# Today you open a small one. You ask where a part of it looks, and why you should believe the answer. Then you build the step that
# does the looking, and train a transformer of your own.
#
# **Predict.** Write down in a sentence what you think is inside. At the end you will read it again.
#
# After this notebook you can
#
# - let a trained transformer write, and say where it keeps its parameters;
# - test a guess about what a part of it looks for;
# - name the three steps of attention, write two of them, and say where training comes in;
# - train a first small transformer, in a loop that you can read.

# %% [markdown]
# In every notebook you **build** the answer in exercises, each with a checker, hints and a solution folded away. Where it says
# **Predict**, write your guess down before you read on. The first code cell installs the package where it is missing, as on Colab.

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
# most likely, append it, and ask again. Each time it sees all of the text so far (of a longer one, the last 256 characters).
# `vocabulary` turns characters into numbers and back, and `temperature=0` means: always the most likely character.
#
# **Predict.** If it always writes the likeliest next character, will the result look like Shakespeare?

# %%
writer = trained.load("writer")
text, vocabulary = shakespeare("train")
beginning = vocabulary.encode("ROMEO:\n")[None]  # numbers in place of characters; one text
likeliest = writer.generate(beginning, 240, temperature=0)
print(vocabulary.decode(likeliest[0]))

# %% [markdown]
# The name and the first line break were ours. What the model added looks like verse: lines of about equal length, made of English
# words. But no line is a correct sentence, and the text keeps coming back to the princes: without chance, what has been written so
# far decides the next character.
#
# Usually one draws the next character at random instead, the likely ones more often. The **temperature** sets how much chance
# there is: near 0 the most likely character nearly always wins, at higher values the others get their turn more often. Run the next
# cell several times:

# %% tags=["nbval-ignore-output"]
drawn = writer.generate(beginning, 300, temperature=0.8)
print(vocabulary.decode(drawn[0]))

# %% [markdown]
# Speakers, line breaks, commas, words: nobody told the model that there are such things. It was only ever asked for the next
# character. Or did it copy the lines? Let us search for each complete one in the text that it learned from:

# %% tags=["nbval-ignore-output"]
known = vocabulary.decode(text)
for written in (likeliest, drawn):
    for line in vocabulary.decode(written[0]).splitlines()[1:-1]:  # without our name, and without the unfinished last line
        if line:
            print(f"{'found' if line in known else 'not found'}: {line}")

# %% [markdown]
# In the run shown here only names of speakers are found. No other line occurs there as a whole, though parts of the lines may.

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
# the text. From the last vector that comes out, *read_out* computes a number for every possible next character; a larger number
# makes the character more likely.
#
# **Predict.** What share of the parameters do the embedding and the read-out hold together? The numbers above are enough to work
# it out.

# %%
for name, part in writer.named_children():
    if count := sum(p.numel() for p in part.parameters()):  # three other parts have no parameters
        print(f"{name:10} {count:9,} parameters")

# %% [markdown]
# The embedding has 65 × 160 parameters and the read-out as many: together 1.3 % of all. Nearly everything is in the blocks.
#
# A block has two halves. In its **attention**, a character takes something over from other characters. Several parts of the
# attention do so side by side, each by learned rules of its own; such a part is called a [**head**](../docs/glossary.md#h), and the
# writer has five in each block. A small network, called *feed-forward*, then works on what each character has now.
#
# GPT-3, a predecessor of the models behind ChatGPT, is a stack of 96 such blocks with 96 heads each, and has 175 billion parameters
# ([Brown et al. 2020](https://arxiv.org/abs/2005.14165), table 2.1), more than 100,000 times as many as the writer. To learn
# what such a machine does, begin with a single head.

# %% [markdown]
# ## What is one head looking for?
#
# How much a character takes over from another one is a number, called a **weight**. Unlike a parameter, it is computed anew for
# each text. Below, one of the 25 heads reads the first 24 characters of `likeliest`. A row belongs to the character that looks, with
# its position in front, counted from 0; a column belongs to a character that is looked at. The weights of a row sum to 1; a dot marks
# the largest, and weights of exactly 0 are white. (The first weight is 1, above the colour scale.) The sign ⏎ stands for a line
# break and · for a space.
#
# **Predict.** The *T* of *The* stands right after `ROMEO:⏎`. At which of these eight characters, itself included, will it look
# most?

# %%
shown = likeliest[:, :24]
with torch.no_grad():  # we only use the model, so torch need not prepare for training
    weights = writer.attention_weights(shown)[3][0, 0]  # the fourth block, its first head: (24, 24)
names = [character.replace("\n", "⏎").replace(" ", "·") for character in vocabulary.decode(shown[0])]
rows = [f"{position} {name}" for position, name in enumerate(names)]
scale = {"vmax": weights[1:].max().item(), "title": "weights of one head of the writer"}
visible = weights.where(weights > 0, math.nan)
ax = plotting.heatmap(visible, rows=rows, columns=names, xlabel="looked at", ylabel="looks", **scale)
most = weights.argmax(dim=-1)  # (24,): argmax gives the position of the largest weight of each row
ax.plot(most, range(24), "o", color="white", markeredgecolor="black", markersize=4)
plotting.show("A row and a column for each of 24 characters. Each row has a dot on its largest weight; some cells are white.")
print("most looked at from 7 T on:", Counter(rows[j] for j in most[7:]).most_common())

# %% [markdown]
# The *T* looks most at the line break right after the speaker's name. So do seven of the 16 characters after it; the other nine
# look most at the *R* or an *O* of the name. Nobody told this head to look there. (Why is half of the picture white? Guess.)
#
# **Predict.** What is this head looking for in a text? Write down an explanation that fits the line break, and then a second one
# that fits it as well. What would you count, in other texts, to decide between the two? Open our answer when you have yours.
#
# <details><summary>Our explanations, and what we count</summary>
#
# The head looks for
#
# 1. the end of a speaker's name, or
# 2. the latest line break, whatever stands before it, or
# 3. the seventh character (position 6), whatever it is.
#
# We note for each character which one it looks at most, and count twice: for the characters whose latest line break stands right
# after a colon, as at the end of a name, and for all others.
#
# </details>
#
# For the count we take 56 passages of 128 characters from `val` (for *validation*), a part of the text that was held back from
# training. `kind` says what a character looks at; if your explanation needs another answer, add it there.

# %%
held_back, _ = shakespeare("val")
passages = torch.stack([held_back[start : start + 128] for start in range(0, len(held_back) - 128, 2000)])  # (56, 128)


def kind(passage, latest, j):  # what stands at position j of a passage whose latest line break stands at `latest`
    if j == latest:
        return "the latest line break"
    if passage[j] == "\n":
        return "an earlier one after a colon" if passage[:j].endswith(":") else "an earlier one elsewhere"
    if j < 2:
        return "one of the first two characters"
    return "the seventh character" if j == 6 else "another character"


# %% [markdown]
# `looks` counts the answers, separately for characters whose latest line break stands right after a colon, as at the end of a name,
# and for all others. Line breaks themselves are left out, since it is not clear which one is *their* latest. **Predict**, for each
# explanation, how the two counts would differ if it were right.
#
# <details><summary>Our predictions</summary>
#
# 1. *The end of a name*: after a colon, most look at the latest line break; elsewhere, at an earlier one that stands after a colon.
# 2. *The latest line break*: its share is the same in both cases.
# 3. *The seventh character*: it has the largest share in both.
#
# </details>

# %%
def looks(most):  # (56, 128): for each character, the position that it looks at most
    counts = {"after a colon": Counter(), "elsewhere": Counter()}
    for passage, positions in zip(map(vocabulary.decode, passages), most.tolist(), strict=True):
        for i, j in enumerate(positions):
            latest = passage.rfind("\n", 0, i)  # the position of the latest line break before i, or -1
            if passage[i] == "\n" or latest < 1:  # there is none, or we do not see what stands before it
                continue
            case = "after a colon" if passage[latest - 1] == ":" else "elsewhere"
            counts[case][kind(passage, latest, j)] += 1
    return counts


# %% tags=["nbval-ignore-output"]
with torch.no_grad():
    maps = torch.cat(writer.attention_weights(passages), dim=1)  # (56, 25, 128, 128): the weights of all 25 heads
most = maps.argmax(dim=-1)  # (56, 25, 128)
for case, count in looks(most[:, 15]).items():  # head 15 of 0 to 24: the first of the fourth block
    print(f"latest line break {case}: of {count.total():,} characters,")
    for found, number in count.most_common():
        print(f"  {number / count.total():4.0%} look most at {found}")


# %% [markdown]
# Compare the counts with your predictions before you read on.
#
# Of our three explanations (folded above), the second fits best: most characters look at the latest line break in both cases. If the
# head looked for the end of a name, then elsewhere an earlier line break after a colon, where there is one, would be looked at most; its share is 1 %.
# (And the share of the latest would be larger after a colon; in fact it is *smaller*, 60 % instead of 84 %.) Hardly any character
# looks at the seventh. But the second does not explain everything: under it, the two shares would be equal. After a colon, a quarter
# look at an earlier line break, and not at one after a colon. The first two characters, so bright in the picture, have 4 % at most.

# %% [markdown]
# ## Why should you believe it?
#
# We must admit something: this head was not the first that we looked at. Here are both cases together, for this head and for all 25.

# %% tags=["nbval-ignore-output"]
def share_of_latest(most):
    count = sum(looks(most).values(), Counter())  # both cases together
    return count["the latest line break"] / count.total()


of_this_head = share_of_latest(most[:, 15])
shares = sorted([share_of_latest(most[:, head]) for head in range(25)], reverse=True)
print(f"this head: {of_this_head:.0%}; the first four of 25: {[f'{share:.0%}' for share in shares[:4]]}")

# %% [markdown]
# **Predict.** *Training has taught this head to look for line breaks*, says a friend who sees the 74 %. What could be wrong with
# that, and what would you compute before you believe it? Open our doubts when you have yours.
#
# <details><summary>Our doubts</summary>
#
# - **Chance.** How often would a head hit the latest line break that looks anywhere, at random?
# - **Choice.** We chose this head because it reaches the highest share of 25. The best of many can reach a high share by luck.
# - **Training.** Perhaps the model looked there before it was trained: because of how it is built, and not of what it learned.
#
# </details>
#
# The writer can be built once more, with parameters drawn at random as before a training. **Predict**: what share will the same head
# reach there, and what share the best of the 25?

# %% tags=["nbval-ignore-output"]
anywhere = (torch.rand(56, 128) * torch.arange(1, 129)).long()  # for each character, itself or one before it, at random
print(f"looking anywhere: {share_of_latest(anywhere):.0%}")
of_untrained = []
for seed in range(3):
    torch.manual_seed(seed)
    untrained = trained.untrained("writer")
    with torch.no_grad():
        most = torch.cat(untrained.attention_weights(passages), dim=1).argmax(dim=-1)  # as above
    shares = [share_of_latest(most[:, head]) for head in range(25)]
    of_untrained += shares
    print(f"untrained, draw {seed}: the same head {shares[15]:.0%}, the best of 25 {max(shares):.0%}")

# %%
course.verdict("this head's share minus that of the best of 75 untrained heads", of_this_head - max(of_untrained), above=0.5)


# %% [markdown]
# In these three draws, the best of 25 untrained heads reaches 8 % at most. So neither chance nor our choice among 25 heads explains
# the 74 %. Your friend is right as far as this count goes: the way of computing is the same before and after, and what training has
# changed are the parameters.
#
# Three limits remain. This head is not typical: the next one reaches 23 %. By the fourth block, the vector at the position of a
# line break has taken something over from other characters, so the head may find more there than the line break. And the count
# does not say what the model does with what it finds; to learn that, one switches heads off (notebook 18).

# %% [markdown]
# ## The one idea
#
# How does a head arrive at its weights, and what does it do with them? Say that one word (in the writer: one character) looks at S
# words. It has a vector that says what it looks for, the **query**. Each of the S words has two vectors: a **key**, which is compared
# with the query, and a **value**, which the word contributes to the result. There are three steps:
#
# 1. Each word gets a [**score**](../docs/glossary.md#s): a number that says how well its key fits the query.
# 2. The **softmax** makes weights of scores: it takes $e$ to the power of each score, so that all become positive, and
#    divides by their sum, so that they add up to 1.
# 3. The result is the weighted average of the values.
#
# With the scores $s_j$ and the values $v_j$, steps 2 and 3 are
#
# $$w_j = \frac{e^{s_j}}{\sum_k e^{s_k}}, \qquad y = \sum_j w_j\, v_j.$$
#
# (The same softmax makes probabilities of the 65 numbers of the writer's read-out, after dividing them by the temperature.)

# %% [markdown]
# You can write steps 2 and 3 now. Replace `raise NotImplementedError` by your code and run the cell. The checker tries your
# function on random numbers. The notebook then goes on with your function if it is right, and with the solution if it is wrong or
# missing; `use` in the last line sees to that. Torch calls arrays of numbers **tensors**; the comments give their shapes.
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
# What does the checker say to a classic mistake, which takes the scores themselves as weights?

# %%
def without_softmax(scores, value):  # (S,), (S, D)
    return scores @ value  # (D,)


check.new_vector(without_softmax, seed=0)  # with a seed the numbers are not fresh, but always these

# %% [markdown]
# It shows the smallest input for which it has found a wrong result, and names the section to read again.
#
# Now put `new_vector` to work. Each different word of a sentence gets a random vector of 8 numbers, called
# [**features**](../docs/glossary.md#f), which serves as its query, its key and its value. The score of two words is the **dot
# product** of their vectors: the sum of the products of their features, which is large when two vectors are long and point the
# same way.

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
numbered = [f"{position} {word}" for position, word in enumerate(words)]
axes = {"rows": numbered, "columns": numbered, "xlabel": "looked at", "ylabel": "looks", "vmax": 1.0, "colorbar": False}
plotting.heatmap(weights, title="who looks at whom", **axes)
plotting.show("Six by six weights: a row for each word that looks, and a column for each word that it looks at.")
print("both 'the' have the same new vector:", torch.allclose(output[0], output[4]))
print("the first 'the':", [f"{words[j]} {weights[0, j]:.2f}" for j in weights[0].argsort(descending=True, stable=True)])

# %% [markdown]
# It gives as much to the other *the* as to itself: equal vectors have equal scores, so two equal words get equal weights
# without any training, and end with equal new vectors. (In another draw, a word with a longer vector could get more. The numbers are
# rounded, so that a row can seem to miss a hundredth.)

# %% [markdown]
# ### A mask
#
# Here every word looks at all six. In the writer, no character looked at those that come after it; that was the white half. While
# a model learns to write, it has to guess each next token, so it must not see that token. A model whose tokens look only at
# themselves and back is called **causal**. A [**mask**](../docs/glossary.md#m) says who may look where: True in row $i$ and
# column $j$ means that word $i$ *may look* at word $j$ (in code, *may attend*).
#
# **Predict.** We give the six words a causal mask. Which row of the picture above will change most?

# %%
mask = causal_mask(6)
masked = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)  # e to the power of −∞ is 0
figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.7), layout="constrained")
plotting.heatmap(mask, title="the mask", ax=left, **axes)
plotting.heatmap(masked.where(mask, math.nan), title="the weights under it", ax=right, **axes)  # hidden: blank
plotting.show("Left, a tick wherever a word may look. Right, the weights under this mask; what it hides is white.")
print("largest hidden weight:", masked[~mask].max().item())
print("sums of the rows:", [round(total, 3) for total in masked.sum(dim=-1).tolist()])

# %% [markdown]
# The row of the first *the*: it no longer sees the other one, and now gives itself all its weight instead of 0.48. The other rows
# change less, since they had given less to the words that come later. The white cells are exactly 0, and every row still sums to 1.

# %% [markdown]
# ## What training changes
#
# Each of the six words finds words whose vectors happen to be like its own. Yet the writer's *T* found a line break, quite a
# different character. In the writer, each head has three matrices of its own, which make a query, a key and a value of every vector,
# before the three steps:
#
# ```
# query, key, value = x @ W_query, x @ W_key, x @ W_value    # learned: training changes the three matrices
#
# scores  = score(query, key)        # step 1: how well does the key of each word fit the query?
# weights = softmax(scores)          # step 2: positive numbers that sum to 1
# output  = weights @ value          # step 3: the weighted average of the values
# ```
#
# The matrices begin at random, and training changes them. No weight is stored: a new text gives new vectors, and these give new
# weights.
#
# If that is all, `new_vector` must be able to do the work of the fourth block's five heads. We compute the vectors that enter its
# attention, and make queries, keys, values and scores of them with the writer's own matrices; `new_vector` does the rest. It
# gets, for each character, only those up to itself, in place of a mask. (The writer's `score` brings queries and keys to one length
# and turns each by an angle that grows with its position, before it takes their dot product. So a head can tell the latest line break
# from an earlier one: notebooks 04 and 08.)

# %%
block = writer.blocks[3]
attention = block.attention
with torch.no_grad():
    x = writer.embedding(shown)  # (1, 24, 160)
    for earlier in writer.blocks[:3]:
        x, _ = earlier(x, is_causal=True)
    x = block.attention_shift(block.attention_norm(x))  # two small parts before the attention: an optional section
    whole, _ = attention(x, is_causal=True)  # (1, 24, 160): what the attention of the fourth block makes of x

# %%
with torch.no_grad():
    matrices = attention.q_proj, attention.k_proj, attention.v_proj  # W_query, W_key and W_value of all five heads
    query, key, value = [matrix(x[0]).view(24, 5, 32).transpose(0, 1) for matrix in matrices]  # (5, 24, 32)
    scores = attention.score(query[None], key[None])[0]  # (5, 24, 24)
    heads = []
    for head in range(5):
        new = [new_vector(scores[head, i, : i + 1], value[head, : i + 1]) for i in range(24)]
        heads.append(torch.stack(new))  # (24, 32)
    mine = attention.out_proj(torch.cat(heads, dim=-1))  # a fourth matrix joins the five results: (24, 160)
torch.testing.assert_close(mine, whole[0])
print("with new_vector, the 24 new vectors are those of the attention inside the writer")

# %% [markdown]
# So exercise 1 is what a head does, once it has scores and values. Where it looks must then be decided by its queries and keys.
#
# **Predict.** In the fourth block of the trained writer, and nowhere else, we replace the matrices of the queries and keys by
# untrained ones. In how many cases will our head now look most at the latest line break, instead of in 74 %?

# %% tags=["nbval-ignore-output"]
left = []
for seed in range(3):
    torch.manual_seed(seed)
    untrained, changed = trained.untrained("writer").blocks[3].attention, trained.load("writer")
    changed.blocks[3].attention.q_proj = untrained.q_proj
    changed.blocks[3].attention.k_proj = untrained.k_proj
    with torch.no_grad():
        most = changed.attention_weights(passages)[3][:, 0].argmax(dim=-1)
    left.append(share_of_latest(most))
    print(f"untrained queries and keys, draw {seed}: {left[-1]:.0%}")

# %%
course.verdict("largest share with untrained queries and keys, over that of the trained head", max(left) / of_this_head, below=0.5)

# %% [markdown]
# In these draws at most 13 % are left, though all other parameters are as they were trained: this head needs its learned matrices.
# (Whether they would be enough without the other trained parameters, this does not say.)

# %% [markdown]
# ## Can I build it? Train a first transformer
#
# You have built the step that looks. But nobody wrote the matrices that tell a head where to look, so to build such a machine you
# have to train one. This is how the writer was trained; a *step* is one small change of all parameters:

# %%
run = trained.record("writer")
print(f"the writer: {run['config']['train']['steps']:,} steps of {run['config']['batch_size']} texts of 256 characters")
print(f"{run['seconds'] / 60:.0f} minutes on one thread of a {run['device'].split(',')[0]}")

# %% [markdown]
# You will train for seconds instead, on an easier task: reading handwritten digits. There are 10,000 pictures of 28 × 28 pixels to
# learn from, each with a *label* that says which digit was meant, and 2,000 *test digits*, which the model never sees in training.

# %%
images, labels = mnist("train")
test_images, test_labels = mnist("test")
print("pictures", tuple(images.shape), " how many of each digit:", labels.bincount().tolist())
print(f"among those to be tested on, {(test_labels == 1).float().mean():.1%} are a 1")
plotting.images(test_images[:10], [f"label {label}" for label in test_labels[:10]])
plotting.show("Ten handwritten digits in a row, each with its label.")

# %% [markdown]
# The **accuracy** of a model is the share of digits that it reads as they are labelled. A model that always answers 1, the
# commonest digit, reaches 12.2 % without looking.
#
# The model is the package's `ImageTransformer`, which notebook 06 builds from its parts; its heads compute the average of your
# `new_vector`. Its tokens are 16 squares of 7 × 7 pixels, cut from each picture and called [**patches**](../docs/glossary.md#p). A
# learned matrix makes a vector of 32 features of the 49 pixels of a patch. This vector does not say where the patch lies, so a learned
# vector for each of the 16 positions is added to it. Then the patches look at one another, without a mask, in one block with four heads.
# In the end the 16 vectors are averaged, and another matrix makes ten numbers of the average, one for each possible answer.

# %%
torch.manual_seed(0)
model = ImageTransformer(
    image_size=28, patch_size=7, in_channels=1, num_classes=10, embed_dim=32, num_heads=4, num_layers=1
).to(device)


def read(model):
    with torch.no_grad():
        return model(test_images.to(device)).argmax(dim=-1).cpu()  # the digit with the largest of the ten numbers


print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
print(f"untrained, its accuracy is {(read(model) == test_labels).float().mean():.0%}")

# %% [markdown]
# Training changes the parameters a little, again and again, so that the answers get better. Each step
#
# 1. takes 64 digits, a [**batch**](../docs/glossary.md#b), and lets the model answer;
# 2. measures how wrong the answers are, as one number, the **loss**;
# 3. asks torch for the **gradient**: how the loss would change with each parameter;
# 4. moves every parameter a little in the direction that lowers the loss.
#
# For point 2, `F.cross_entropy` makes ten probabilities of the ten numbers, by the softmax that you know, and computes the
# *cross-entropy*: the mean of $-\log p$ (natural logarithm) over the batch, where $p$ is the probability of the right digit. Ten
# equal probabilities give the loss $\log 10 \approx 2.3$.
#
# Here is one step in which point 4 is left to you. After `backward`, each parameter `p` has its gradient in `p.grad`, which is
# positive where a larger value would raise the loss. Write the line that moves `p` by 0.1 times its gradient. In which
# direction? If it is right, the second loss is smaller.

# %% tags=["nbval-ignore-output"]
digits, answers = images[:64].to(device), labels[:64].to(device)
trial = copy.deepcopy(model)  # what you try here leaves the model as it is
loss = F.cross_entropy(trial(digits), answers)  # points 1 and 2
loss.backward()  # point 3
with torch.no_grad():
    for p in trial.parameters():
        p += torch.zeros_like(p)  # point 4: your line, in place of this one, which moves nothing
print(f"the loss on these digits: {loss.item():.3f} before, {F.cross_entropy(trial(digits), answers).item():.3f} after")

# %% [markdown]
# <details><summary>Solution</summary>
#
# `p -= 0.1 * p.grad`: against the gradient, so that the loss falls. (`p = p - …` would only give the name `p` to a new tensor.)
#
# </details>
#
# In the loop, an [**optimiser**](../docs/glossary.md#o) takes the place of your line, here Adam ([Kingma and Ba
# 2015](https://arxiv.org/abs/1412.6980)). It adapts the size of the move to each parameter; the *learning rate* `lr` says about how
# far a parameter moves in a step.
#
# <details><summary>How Adam does it</summary>
#
# Adam averages the gradient of each parameter over the last steps, and divides it by the size that these gradients have had. As a
# result, a step moves most parameters by about `lr` or less, whether their gradients are large or small. With much smaller steps
# the training would take longer, and with much larger ones the loss may stop falling.
#
# </details>
#
# **Predict.** How often does the model see each of the 10,000 digits in 400 steps? And how many of 100 new digits will it then
# read correctly?

# %%
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
stream = batches(images.to(device), labels.to(device), batch_size=64, seed=0)
losses = []
for _ in range(400):
    digits, answers = next(stream)
    loss = F.cross_entropy(model(digits), answers)
    optimizer.zero_grad()  # otherwise torch adds new gradients to the old ones
    loss.backward()
    optimizer.step()  # point 4
    losses.append(loss.item())

# %%
means = torch.tensor(losses).view(20, 20).mean(dim=1).tolist()  # of 20 batches each
ax = plotting.curves({"each batch": losses, "mean of 20 batches": list(zip(range(10, 401, 20), means, strict=True))})
ax.lines[0].set_alpha(0.3)
ax.axhline(math.log(10), color="0.4", ls=":", label="each digit equally likely")
ax.legend(frameon=False)
plotting.show("The loss against the step: each batch, pale, and means of 20 batches; a dotted line at log 10.")

# %% tags=["nbval-ignore-output"]
predicted = read(model)
accuracy = (predicted == test_labels).float().mean().item()
print(f"{accuracy:.1%} of {len(test_labels):,} new digits read as they are labelled")

# %% [markdown]
# Compare this with your guess, and with the 12.2 % of always answering 1. The model saw 400 × 64 = 25,600 digits, so each of the
# 10,000 about 2.6 times on average. In the run shown here the means of the loss end near 0.4.
#
# Results of training can differ a little from machine to machine, so a claim about them states a bound. The notebook stops with an error
# if the measured value lies outside. This is called a [**verdict**](../docs/glossary.md#v):

# %%
course.verdict("accuracy on new digits", accuracy, above=0.85)

# %% [markdown]
# Is that much? The package has a larger transformer for the same digits, the *reader*. And here are ten of the digits that *your*
# model gets wrong, spread over all its errors. How would you have read them?

# %% tags=["nbval-ignore-output"]
reader, run = trained.load("reader").to(device), trained.record("reader")
steps, examples = run["config"]["train"]["steps"], run["config"]["batch_size"]
print(f"the reader: {sum(p.numel() for p in reader.parameters()):,} parameters, {steps:,} steps of {examples} digits")
print(f"it reads {(read(reader) == test_labels).float().mean():.1%} as they are labelled")
wrong = (predicted != test_labels).nonzero().flatten()
ten = wrong[torch.linspace(0, len(wrong) - 1, 10).long()]
plotting.images(test_images[ten], [f"{test_labels[n]} read as {predicted[n]}" for n in ten])
plotting.show("Ten digits that the model reads wrongly, each with its label and what the model reads.")

# %% [markdown]
# The reader has seven times as many parameters and saw 192,000 pictures instead of 25,600, and that is not all that differs. Which
# of it matters, this comparison cannot tell.

# %% [markdown]
# ## Today
#
# These models compute attention by the same three steps, with other tokens:
#
# - **GPT-3** (Brown et al. 2020, [2005.14165](https://arxiv.org/abs/2005.14165)): parts of words; you build its small sister in 08.
# - **Llama 2** (Touvron et al. 2023, [2307.09288](https://arxiv.org/abs/2307.09288)): parts of words, with parts of 04, 05 and 08 exchanged.
# - **BERT** (Devlin et al. 2018, [1810.04805](https://arxiv.org/abs/1810.04805)): no causal mask; it learns by filling gaps, as in 12.
# - **ViT** (Dosovitskiy et al. 2020, [2010.11929](https://arxiv.org/abs/2010.11929)): patches of a picture, as in 06.

# %% [markdown]
# ## Takeaways
#
# What is inside ChatGPT, and can I build it? Read once more what you wrote at the beginning, and compare:
#
# - Inside are parameters, nearly all of them in a stack of blocks (counted in the writer), and a rule for computing with them. In one
#   step of the rule, attention, tokens look at one another: score, softmax, weighted average.
# - Where this head looks is learned. It looks most at the latest line break in about three quarters of the cases counted, the best of
#   75 untrained heads in 8 %, and this head without its learned queries and keys in 13 % at most.
# - To believe an explanation of a picture of weights, count where rival explanations differ, and compare with chance and with an
#   untrained model.
# - You have built the central step, and it did the work of trained heads. You have trained a transformer by repeating four things:
#   let the model answer, measure the loss, compute the gradients, move the parameters.
# - What runs in ChatGPT is larger, and was also trained on people's example answers and judgements, so that it follows instructions
#   ([Ouyang et al. 2022](https://arxiv.org/abs/2203.02155)). The course leaves that out.

# %% [markdown]
# ## Check yourself
#
# **1.** At temperature 0 the writer began to repeat itself. Why does it keep coming back to the princes?
#
# <details><summary>Answer</summary>
#
# At temperature 0 there is no chance: the text that the model sees, here all of the text so far, decides the next character. As
# long as the model considers the repetition most likely, it goes on, and each *of the princes* makes the text before the next
# character more like the text before the last one. Drawing at random can lead out of it. (Whether it would go on for ever, 240
# characters do not show; *season* and *courtesy* came in on the way.)
#
# </details>
#
# **2.** In the six words without a mask, give the second *the* another random vector than the first. What becomes of the picture of
# weights?
#
# <details><summary>Answer</summary>
#
# The two no longer share their weight: each looks at the other as at any unrelated word. The row of the second *the* is a new one.
# In every other row, its weight changes, and the other five words share what is freed, or give what is taken, in
# proportion to their weights, because their scores are as before. So every row still sums to 1. To this attention a word is nothing but
# its vector.
#
# </details>
#
# **3.** In another text, a head looks most at the first letter of the latest word in 60 % of all cases. What would you have to
# know before you say that training taught it to look for first letters?
#
# <details><summary>Answer</summary>
#
# At least three things. How often does an untrained head of the same model look there, the best of all untrained ones, and a head
# that looks anywhere? Was the head chosen from many for this very number? And does another explanation fit as well, say, the
# letter after a space, or some fixed distance? Count the cases in which the explanations differ.
#
# </details>

# %% [markdown]
# ## The map of the course
#
# You know the central step; the other notebooks build the rest: in 06 the model that you trained, in 08 the writer. An arrow leads
# from a notebook to one that needs it. If you have no other plan, go in the order of the numbers.

# %%
course_map(here=0)
plotting.show("A map of 19 boxes, one for each notebook, joined by arrows, in six colours for the six parts.")


# %% [markdown]
# ## Optional: two exercises about masks
#
# They are only checked, without `use`, because nothing else depends on them.
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
# mask is False, and each row sums to 1. Every given weight is above 0. Your result has to be right even where the visible weights of
# a row are tiny, a millionth in all. Every word may see itself, so no row is left empty.

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
# The command `sciformer doctor` lists versions and threads, whether torch can use a GPU (of NVIDIA, *cuda*, or of an Apple computer,
# *mps*), and the files of data, of which you don't need the *missing* ones. If something goes wrong later, paste the output into
# your question.

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
#   where letting a network write Shakespeare one character at a time became popular, before the transformer.
# - [The glossary](../docs/glossary.md) explains every term of the field that the course uses.
#
# **Next.** The new vector of a word was a weighted average. What is the smallest thing that deserves the name *attention*? Notebook 01
# starts from the plain mean, in which all weights are equal.
