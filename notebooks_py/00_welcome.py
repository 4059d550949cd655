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
# relied on attention almost alone, and named it the [**transformer**](../docs/glossary.md#t). The large models since then repeat
# the same few parts, with more of them and more text to learn from.
#
# And yes, you can build the machine inside. A model of the size of ChatGPT is trained in a data centre, but its parts are
# small: over the course you write each of them in a few lines, and run it on your own computer. Today you write its central
# step, and train a small model that comes with the package. The course leaves out, among other things, ChatGPT's further
# training on example answers and on people's judgements of its own answers ([Ouyang et al.
# 2022](https://arxiv.org/abs/2203.02155)), which turns a model that continues texts into one that follows instructions.
#
# After this notebook you can
#
# - let two trained transformers read and write, and say where one of them keeps its parameters;
# - explain the three lines of attention, write two of them, and say what training adds to them;
# - train a first small transformer, in a loop that you can read;
# - use the course: its data, its exercises, and the map of what builds on what.

# %% [markdown]
# The first code cell is the same in every notebook. It installs the package where it is missing, as on Colab.

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

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

from sciformer import ImageTransformer, attend, causal_mask, check, cli, course, dot_product_scores, plotting, trained
from sciformer.data import batches, mnist, shakespeare
from sciformer.teach.diagrams.course_map import course_map

torch.manual_seed(0)  # the same seed gives the same random numbers
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## The first minute: one model reads, another writes
#
# Two small transformers come with the package, already trained. The first, the *reader*, has learned from 10,000 handwritten
# digits. Here are ten others, which it has never seen.

# %%
reader = trained.load("reader")
test_images, test_labels = mnist("test")
with torch.no_grad():  # we only use the model, so torch need not prepare for training
    read = reader(test_images).argmax(dim=-1)  # the digit with the largest of ten numbers

# %%
plotting.images(test_images[:10], [f"read as {digit}" for digit in read[:10]])
plotting.show("Ten handwritten digits in a row, each with what the model takes it for.")

# %% [markdown]
# Compare with your own reading, and then with the labels, which say what the writers meant. How often does the model agree with
# the label over all 2,000 *test digits*, which are new to the model?

# %%
print("labels of these ten:", test_labels[:10].tolist())
print(f"{(read == test_labels).float().mean():.1%} of {len(test_labels):,} digits read as they are labelled")

# %% [markdown]
# The fifth digit has a small hook at its top. It is labelled 1, and the model read it as 7; you may forgive it.
#
# The second model, the *writer*, was shown one long text, Shakespeare's plays, and had to guess every next character. To let it
# write, we give it the beginning of a text, take the character that it considers most likely, append it, and ask again. Each
# time it sees all of the text so far, or the last 256 characters of a longer one. In the code, `vocabulary` turns characters into
# numbers and numbers into characters, and `temperature=0` means: always the most likely character, with nothing left to chance.
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
# By its form it is Shakespeare: a name, then lines of verse, and all words are English. But it says nothing, and no line is a
# correct sentence. Did the model copy the lines? Let us search for each complete one in the text that it learned from:

# %%
known = vocabulary.decode(text)
for line in dict.fromkeys(
    vocabulary.decode(likeliest[0]).splitlines()[1:-1]
):  # each different line once, without the last
    print(f"{'found' if line in known else 'not found'}: {line}")

# %% [markdown]
# None of them occurs there as a whole, though shorter parts of them may. But the writer soon repeats itself. Without chance, the
# text so far decides the next character, and in this run the model writes of nothing but princes.
#
# Usually one draws the next character at random instead, the likely ones more often. The **temperature** sets how much chance
# there is: near 0 the most likely character nearly always wins, and at higher values the others get their turn more often. Run
# the next cell several times, and compare the texts:

# %% tags=["nbval-ignore-output"]
drawn = writer.generate(beginning, 300, temperature=0.8)
print(vocabulary.decode(drawn[0]))

# %% [markdown]
# Speakers, line breaks, commas, words: nobody told the model that there are such things. It was only ever asked for the next
# character. How you train such a model is the subject of notebook 08.

# %% [markdown]
# ## What is inside?
#
# A trained model consists of numbers, called **parameters**, and of a rule for computing with them. The writer has 1.6 million
# parameters, in six parts that work one after the other: *embedding*, *positions*, *dropout*, *blocks*, *norm* and *read_out*.
# The text below the output explains them, and the *heads* in its last line.
#
# **Predict.** It has to read 65 different characters and to write them again. In which part are most of its parameters?

# %%
for name, part in writer.named_children():
    print(f"{name:10} {sum(p.numel() for p in part.parameters()):9,} parameters")
print(f"{len(writer.blocks)} blocks with {writer.blocks[0].attention.num_heads} heads each")

# %% [markdown]
# The *embedding* has a vector of 160 numbers for each of the 65 characters, and *read_out* turns such a vector into a number for
# every possible next character. Nearly all parameters are in the *blocks* between them, which are built alike but have learned
# different numbers. A block has two halves. In its **attention**, a character takes something over from other characters.
# Several parts of the attention do so side by side, each by learned rules of its own; such a part is called a
# [**head**](../docs/glossary.md#h). A small network, called *feed-forward*, then works on one character at a time. (In this
# model each half also gets a share of the three characters before it, whatever they are: *token shift*, of notebook 08.) Parts
# with 0 parameters have learned nothing. *norm* only brings every vector to the same length. *dropout*, which can set random
# numbers of a vector to 0 in training, is switched off here. *positions* is empty: a head takes account of the order of the
# characters when it compares two of them, by *rotary positions* (notebooks 04 and 08).
#
# GPT-3, a predecessor of the models behind ChatGPT, is a stack of blocks as well: 96 blocks with 96 heads each, and 175 billion
# parameters ([Brown et al. 2020](https://arxiv.org/abs/2005.14165), table 2.1), more than 100,000 times as many as the writer has.
#
# How long did the training take? The package keeps a record of each training. A *step* is one small change of all parameters:

# %%
for name, trained_model in {"reader": reader, "writer": writer}.items():
    run = trained.record(name)
    size = sum(p.numel() for p in trained_model.parameters())
    steps, examples = run["config"]["train"]["steps"], run["config"]["batch_size"]
    print(
        f"{name}: {size:9,} parameters, {steps:,} steps of {examples} examples, {run['seconds'] / 60:.0f} minutes "
        f"({run['seconds'] / steps:.3f} s a step) on {run['device'].replace('1 threads', '1 thread')}"
    )

# %% [markdown]
# A step of the reader takes in 128 pictures, each cut into 16 squares; a step of the writer takes in 8 texts of 256 characters.
# The units that a model reads, here squares or characters, are called [**tokens**](../docs/glossary.md#t): both steps read 2,048
# of them. The writer has about 14 times as many parameters, and its steps took about 17 times as long (on a computer that had
# other work, too). Two models cannot show that the one causes the other: in the writer up to 256 tokens look at one another, in
# the reader 16.
#
# Now look at the attention itself: a character looks at the characters of the text, and takes more from some than from
# others. How much it takes is a number, called a weight, and numbers can be drawn. Below, one of the 25 heads reads
# the first 24 characters of `likeliest`, the text that the writer wrote without chance. Read the picture row by row: a row belongs
# to the character that looks, a column to a character that is looked at, and the weights of a row sum to 1.
#
# **Predict.** At which character will most rows look most? Decide before you run the next cell.

# %%
shown = likeliest[:, :24]
with torch.no_grad():
    weights = writer.attention_weights(shown)[3][0, 0]  # the fourth block, its first head: (24, 24)
names = [character.replace("\n", "⏎").replace(" ", "␣") for character in vocabulary.decode(shown[0])]
plotting.heatmap(weights, rows=names, columns=names, title="one head of the writer", xlabel="looked at", ylabel="looks")
plotting.show(
    "Weights, one row and one column for each of 24 characters; on and below the diagonal some are brighter than others."
)

# %%
most = weights[7:].argmax(dim=-1)  # of each character after "ROMEO:⏎": which one it looks at most
print([f"{names[7 + i]} → {names[j]}" for i, j in enumerate(most)])
print("largest weight above the diagonal:", weights.triu(1).max().item())

# %% [markdown]
# No character looks at those that come after it: the weights above the diagonal are exactly 0, for a reason given in the section
# *A mask*. So the first *R* sees only itself, and gives itself the weight 1.
#
# The first seven of these 17 characters, and one later, look most at the line break behind the speaker's name; the others look
# most at a letter of the name. Nobody told this head to look there. What is it looking for: the end of a name, the latest line
# break, or simply the seventh character?
#
# One picture cannot tell, but we can count. The next cell takes 56 passages of 128 characters from the part of the text that was
# held back from training, `val`, short for *validation*. Which character does the head look at most: the latest line break, an
# earlier one, or the seventh character? The cell counts twice: over the characters whose latest line break stands behind a colon,
# as at the end of a speaker's name, and over all others. Line breaks themselves are not counted: each of them is its own latest
# one. You need not follow all of the code.

# %%
held_back, _ = shakespeare("val")
passages = torch.stack([held_back[start : start + 128] for start in range(0, len(held_back) - 128, 2000)])  # (56, 128)
place = torch.arange(128)
newline, colon = vocabulary.encode("\n:")
breaks = passages == newline
latest = torch.where(breaks, place, -1).cummax(dim=-1).values  # where the latest break so far is; -1: none
counted = ~breaks & (latest > 0)  # of a break in the first place, we do not see what it stands behind
after_name = passages.gather(1, (latest - 1).clamp(min=0)) == colon
with torch.no_grad():
    most = torch.cat([block.argmax(dim=-1) for block in writer.attention_weights(passages)], dim=1)  # (56, 25, 128)
head = most[:, 15]  # the fourth block's first, counted from 0
for name, rows in {"behind a colon": counted & after_name, "elsewhere": counted & ~after_name}.items():
    hit, earlier = head == latest, breaks.gather(1, head) & (head < latest)
    shares = [f"{found[rows].float().mean():.0%}" for found in (hit, earlier, head == 6)]
    print(
        f"latest line break {name}: {rows.sum():,} characters; they look at it {shares[0]}, earlier {shares[1]}, seventh {shares[2]}"
    )
print(f"by chance, if each looked at one of those up to itself: {(1 / (place + 1)).expand(56, -1)[counted].mean():.0%}")
of_each = (most == latest[:, None]).transpose(1, 2)[counted].float().mean(dim=0)  # (25,)
print(
    f"both cases together: this head {of_each[15]:.0%}; all 25 heads, largest first:",
    [f"{share:.0%}" for share in of_each.sort(descending=True).values[:4]],
)


# %% [markdown]
# So it is mainly the latest line break: of all these characters, about three quarters look at it most. It is not only the end of
# a name: where the break stands behind a colon, as in the picture, the head looks at it *less* often, 60 % instead of 84 %, and
# in another 25 % at an earlier break. (In the picture there was no earlier one.) It is not the seventh character either: hardly
# any other looks at it most. The count says where the largest weight lies, and not how large it is. Nor is this head typical: the
# next of the 25 heads reaches 23 %.

# %% [markdown]
# ## The one idea
#
# How does a head arrive at its weights, and what does it do with them? The answer is three lines. They say what happens when one
# word (in the writer: one character) looks at all words, itself included. The **query** is the vector of the word that looks. Each
# word that it looks at has two vectors: a **key**, which is compared with the query, and a **value**, which the word contributes
# to the result.
#
# ```
# scores  = score(query, key)        # how well does the key of each word fit the query?
# weights = softmax(scores)          # positive numbers that sum to 1
# output  = weights @ value          # the weighted average of what the words have to say
# ```
#
# The [**score**](../docs/glossary.md#s) is a number for each pair of words. The mechanisms of this course differ mainly in its
# formula. The **softmax** makes weights of scores: it takes $e$ to the power of each score, so that all become positive, and
# divides by their sum, so that they add up to 1.
#
# You can write the last two lines now. Replace `raise NotImplementedError` by your code and run the cell. A wrong answer is
# welcome, too: the checker calls your function on fresh random numbers and says what is wrong with the result. The notebook then
# goes on with your function if it is right, and with the solution if it is wrong or missing; `use` in the last line sees to that.
#
# ### Exercise 1 · easy · 3 minutes
#
# One word looks at S words and has a score for each of them. (It is one of them itself, so S is at least 1.) Each of the S words
# has a vector of D numbers. Give the new vector of the word that looks: the average of the S vectors, weighted by the softmax
# of the S scores. It has D numbers, too.

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
# Now put it to work. Each different word of a sentence gets a random vector of 8 numbers, called
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
plotting.heatmap(weights, rows=words, columns=words, title="who looks at whom", xlabel="looked at", ylabel="looks")
plotting.show("Six by six weights: a row for each word that looks, and a column for each word that it looks at.")
print("the first 'the':", [f"{words[j]} {weights[0, j]:.2f}" for j in weights[0].argsort(descending=True, stable=True)])

# %% [markdown]
# It gives as much to the other *the* as to itself. Both have the same vector, and so the same score: whatever vectors are drawn,
# two equal words get equal weights without any training. In this draw they are also the largest weights of the row, but another
# word with a longer vector could get a larger score.
#
# The package does the same in one line: `dot_product_scores` computes the scores, and `attend` makes weights of them and
# averages the values. The tensors have four axes, (texts, heads, words, features), so that many texts can be treated at once;
# `[None, None]` adds the first two, each of size 1. The dot products are multiplied by `scale`, so 1.0 leaves them as they are;
# notebook 02 explains why one usually makes them smaller. `attend` returns the weights as a second result.

# %%
package_output, _ = attend(dot_product_scores(x[None, None], x[None, None], scale=1.0), x[None, None])
torch.testing.assert_close(output, package_output[0, 0])
print("new_vector and attend agree")

# %% [markdown]
# ### A mask
#
# While a model learns to write, it has to guess each next word, so it must not see that word. A model whose words look only at
# themselves and at what comes before them is called **causal**. A [**mask**](../docs/glossary.md#m) says who may look where.
# Row $i$ is the word that looks, column $j$ the word that it looks at, and True means *may look*; the code says *may attend*.
#
# **Predict.** We give the six words a causal mask. Which row of the picture above will change most?

# %%
mask = causal_mask(6)
masked = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)  # e to the power of −∞ is 0
figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.7), layout="constrained")
plotting.heatmap(mask, rows=words, columns=words, title="the mask", xlabel="looked at", ylabel="looks", ax=axes[0])
plotting.heatmap(
    masked, rows=words, columns=words, title="the weights under it", xlabel="looked at", ylabel="", ax=axes[1]
)
plotting.show("Left, ticks on and below the diagonal. Right, the weights under this mask, row by row.")
print("largest weight above the diagonal:", masked[~mask].max().item())
print("sums of the rows:", [round(total, 3) for total in masked.sum(dim=-1).tolist()])

# %% [markdown]
# The row of the first *the*: it no longer sees the other one, and now gives itself all its weight instead of 0.48. The other rows
# change less, since they had given less to the words that come later. Above the diagonal every weight is exactly 0, as the first
# printed line says; a 0.00 below the diagonal is a small weight, rounded. Every row still sums to 1. The same mask is why the
# weights above the diagonal are 0 in the writer.

# %% [markdown]
# ### What training adds
#
# Nothing in this example was learned, and so a word finds words whose vectors happen to point the same way as its own, or to be
# long. Yet the writer's *T* found a line break, which is a quite different character. In the writer, queries and keys are not the
# vectors themselves, so the query of one character can fit the key of a different one. Each head computes them, and the values,
# from the vectors of the characters, with three matrices of its own:
#
# ```
# query, key, value = x @ W_query, x @ W_key, x @ W_value    # three matrices that training changes
# output = softmax(score(query, key)) @ value                # the same three lines as above
# ```
#
# Training changes the matrices so that the query of one character fits the key of another, wherever that helps to guess the next
# one. The rule stays the same, and no weight is stored: a new text gives new vectors, and these give new weights. A fourth matrix
# joins the results of all heads. (To tell the latest line break from an earlier one, a head must also know the order of the
# characters: notebook 04.) Here are the parts of one of the writer's blocks:

# %%
for name, part in writer.blocks[0].named_children():
    if count := sum(p.numel() for p in part.parameters()):
        print(f"{name:18} {count:7,} parameters")

# %% [markdown]
# The attention has 4 × 160 × 160 = 102,400 parameters, the entries of four matrices: those of the five heads stand side by side in
# three of them, 32 columns for each head, and the fourth joins the results. The feed-forward network has twice as many: one matrix
# makes 640 numbers of the 160 of a character, and another one makes 160 of them again. The two small parts mix in the three
# characters just before, which the usual block does not do. What each half computes is added to the vectors that came in, and the
# next block goes on with the sums. Notebooks 02 to 05 build a block in this order: scores, heads, positions, block.
#
# Can a learned query find more than a line break? Here is a harder task: *The animal didn't cross the street because it was too
# tired.* What does *it* stand for? Now replace *tired* by *wide*, and answer again. When the transformer was
# [first presented](https://research.google/blog/transformer-a-novel-neural-network-architecture-for-language-understanding/)
# to a wider public, soon after the paper, this was the example. Notebook 02 comes back to it.

# %% [markdown]
# ## The data
#
# Nothing has to be downloaded. The digits are pictures of 28 × 28 pixels, 10,000 to learn from and the 2,000 test digits:

# %%
images, labels = mnist("train")
print("pictures", tuple(images.shape), " how many of each digit:", labels.bincount().tolist())
print(f"among those to be tested on, {(test_labels == 1).float().mean():.1%} are a 1")

# %% [markdown]
# Keep the last number in mind. A model that always answers 1, the commonest digit, reaches that accuracy without looking at the
# picture. Only a higher accuracy can show that a model has learned something from the pictures.
#
# The tokens of our sentence were words, and below they are squares cut from a picture; attention treats all tokens alike,
# because it only sees their vectors. For the writer a token is one character, and what it gets is the number of the character
# in the [**vocabulary**](../docs/glossary.md#v), the list of all characters that occur.

# %%
print(f"{len(text):,} tokens, {len(vocabulary)} different ones; 'First' is {vocabulary.encode('First').tolist()}")
print(vocabulary.decode(text[:97]))

# %% [markdown]
# ## Train a first transformer
#
# Now the pictures. The model is the package's `ImageTransformer`, which notebook 06 builds from its parts; your `new_vector` is
# not called in it, but its heads compute the same average, with learned matrices. Each picture is cut into 16 squares of 7 × 7
# pixels, called [**patches**](../docs/glossary.md#p), and the patches look at one another, without a mask. The first four numbers
# say that a picture has 28 pixels a side, a patch 7, that a pixel has one value (its grey), and that there are ten possible
# answers. Each patch gets 32 features (`embed_dim`), and there is one block (`num_layers`) with four heads (`num_heads`).

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
# size that these gradients have had. So in one step most parameters move by up to about `lr`, the learning rate, here 0.005,
# whether their gradients are always large or always small. Much smaller steps would take longer, and with much larger ones the
# loss may stop falling.
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
ax = plotting.curves({"model": losses}, ylabel="loss of the batch", smooth=20, title="the loss during training")
ax.axhline(math.log(10), color="0.6", ls=":")
plotting.show("The loss of each batch, pale, and the mean over the last 20 batches, dark; a dotted line at 2.3.")

# %% tags=["nbval-ignore-output"]
with torch.no_grad():
    predicted = model(test_images.to(device)).argmax(dim=-1).cpu()
accuracy = (predicted == test_labels).float().mean().item()
print(f"{accuracy:.1%} of {len(test_labels):,} new digits read as they are labelled")

# %% [markdown]
# Compare this with your guess, and with the 12.2 % of the commonest digit. The model saw 400 × 64 = 25,600 digits, so each of the
# 10,000 about 2.6 times on average. In the picture, the dark line, a mean over 20 steps, starts near the dotted line, $\log 10$,
# and ends near 0.4: the right digit then has a probability of about $e^{-0.4} \approx 0.67$ (a geometric mean). The line does not
# fall all the time: in the run shown here it rises from about step 240 to 280. Each batch is another sample of digits, so its loss
# varies; whether that alone explains the rise was not tested.
#
# Results of training can differ a little from machine to machine. So where a notebook makes a claim about them, it states a bound
# for the value, prints the value beside it, and stops with an error if the value lies outside. This is called a
# [**verdict**](../docs/glossary.md#v):

# %%
course.verdict("accuracy on new digits", accuracy, above=0.85)

# %% [markdown]
# These are the first ten digits that *your* model gets wrong, in the order of the 2,000. Do you know some of them already?

# %% tags=["nbval-ignore-output"]
wrong = (predicted != test_labels).nonzero().flatten()[:10]
titles = [f"{true}, read as {said}" for true, said in zip(test_labels[wrong], predicted[wrong], strict=True)]
plotting.images(test_images[wrong], titles)
plotting.show("Digits that the model reads wrongly, each with its label and with what the model says.")

# %% [markdown]
# In the run shown here, the second, the fourth and the ninth digit of the first picture are among them, which the reader
# read correctly. The doubtful fifth is not: this model read it as 1, as it is labelled. One digit says little; of all 2,000, the
# reader reads 99.1 % as they are labelled, and this model about nine in ten. The reader has seven times as many parameters, it
# saw 1,500 × 128 = 192,000 pictures instead of 25,600, and its training differed in more than that. What makes the difference,
# this comparison cannot tell.

# %% [markdown]
# ## The map of the course
#
# You have now used two transformers and trained a third, and of all three you know only the central step. The other notebooks
# build the rest. An arrow leads from a notebook to one that needs it: the reader's kind of model comes in 06, and the writer's in
# 08, for which 06 and 07 prepare. The boxes carry the names of the notebooks; each explains its own terms.

# %%
course_map(here=0)
plotting.show("A map of 19 boxes, one for each notebook, joined by arrows, in six colours for the six parts.")

# %% [markdown]
# The arrows branch, so there are several ways through the course. If you have no other plan, go in the order of the numbers: it
# puts every notebook after those that it needs.

# %% [markdown]
# ## Is your machine ready?
#
# The command `sciformer doctor` lists the versions of the libraries; whether torch can use a GPU of NVIDIA (*cuda*) or of an Apple
# computer (*mps*); on how many threads it computes, and whether idle threads sleep, so that other programs can use their cores;
# and the files of data. An *embedded* file comes with the package. You don't need those that are *missing* (with 0.0 MB): all
# of MNIST, from which our digits were taken, and the text of Shakespeare uncompressed. If something goes wrong later, paste the
# output into your question.

# %% tags=["nbval-ignore-output"]
_ = cli.main(["doctor"])

# %% [markdown]
# The [**profile**](../docs/glossary.md#p) decides how large the experiments are: *quick* is made for two CPU cores, *full* for
# a GPU. The code is the same and only the sizes differ; the environment variable `SCIFORMER_PROFILE` chooses. Results named in
# the text are those of the quick profile.

# %%
course.profile()


# %% [markdown]
# ## How each notebook goes
#
# A notebook opens with a question, asks you to **predict** what will come out, and lets you **build** the mechanism, first with
# loops and then with matrices. A test compares the numbers that your version computes with those of the package. The notebook
# **breaks** the mechanism with a classic mistake, **trains** it, and **looks** at what it has learned, mistakes included. Some
# results come from longer runs, which are recorded with the package.
#
# Exercises look like the first one above, and each has a checker. Here is its answer to a mistake made on purpose: this function
# takes the scores themselves as weights.

# %%
def without_softmax(scores, value):  # (S,), (S, D)
    return scores @ value  # (D,)


check.new_vector(without_softmax, seed=0)  # with a seed the numbers are not fresh, but always these


# %% [markdown]
# The checker first says what is wrong, then shows the smallest input that it has found on which the result is wrong, and then
# names the section to read again. Hints and a solution are folded away under each exercise. Here are two more, about the mask.
# Nothing later depends on them, so they are only checked, without `use`. As before, each row belongs to a word that looks.
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
# mask is False, and each row sums to 1. All given weights are above 0, though those that stay may add up to a millionth only, and
# every word may see itself, so that no row is left empty.

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
# - Two trained transformers came with the package: one read digits, one wrote lines in the manner of Shakespeare, character by
#   character.
# - A model consists of parameters and of a rule for computing with them; nearly all parameters of the writer sit in its blocks.
# - Attention is score, softmax, weighted average. In our example equal words had equal vectors, and so got equal weights, even
#   without training; training adds matrices that make queries, keys and values of the vectors.
# - Training repeats four things: let the model answer, measure the loss, compute the gradients, move the parameters.

# %% [markdown]
# ## Three questions
#
# **1.** At temperature 0 the writer began to repeat itself. Why does nothing new come in?
#
# <details><summary>Answer</summary>
#
# At temperature 0 there is no chance: the text that the model sees, here all of the text so far, decides the next character. As
# long as the model considers the repetition most likely, it goes on, and each repetition of *That shall be so stand the seat of
# the sea* makes this text more like the text one line before. Drawing at random can lead out of it. (Whether it would go on for
# ever, 240 characters do not show.)
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
# **3.** Change the bound of the verdict to 0.999 and run the cell. What happens, and why is that better than a printed number?
#
# <details><summary>Answer</summary>
#
# The cell stops with an error, Python's `AssertionError`, that names the accuracy and the bound. A printed number outside the
# bound may go unnoticed; a broken verdict does not. (It says nothing about a wrong number inside the bound.)
#
# </details>

# %% [markdown]
# ## To read
#
# - Vaswani et al. 2017, *Attention is all you need*, [1706.03762](https://arxiv.org/abs/1706.03762): look at figure 1 now, and once
#   more after notebook 11, when you will know every box in it.
# - Karpathy 2015, [*The unreasonable effectiveness of recurrent neural networks*](https://karpathy.github.io/2015/05/21/rnn-effectiveness/):
#   where letting a network write Shakespeare one character at a time became popular. Its network is recurrent: it reads one
#   character after the other and carries along what it remembers. Such networks were the usual choice before the transformer.
# - [The glossary](../docs/glossary.md): every term of the field that the course uses.
#
# **Next.** The new vector of a word was a weighted average of the vectors of all words, and the weights came from the words
# themselves. What is the smallest thing that deserves the name *attention*? Notebook 01 starts from the plain mean, in which all
# weights are equal.
