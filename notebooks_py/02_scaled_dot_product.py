# %% [markdown]
# # 02 Scaled dot-product attention
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/02_scaled_dot_product.ipynb)
#
# ← [01 Weighted sums](01_weighted_sums.ipynb) · [the map of the course](00_welcome.ipynb) · [03 Multi-head attention](03_multi_head.ipynb) →
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) **02** [03](03_multi_head.ipynb) [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb) · taken apart [18](18_heads_that_copy.ipynb)
#
# Needs: notebook 01 · runs in about 40 s on two CPU cores · about 3½ hours of study

# %% [markdown]
# Read this sentence:
#
# > *The animal didn't cross the street because **it** was too **tired**.*
#
# You knew at once that *it* is the animal. Now replace *tired* by *wide*. Suddenly *it* is the street, although nothing
# about the word *it* has changed. **How can a model find out what *it* is?**
#
# In French the animal is *il* and the street *elle*, so a translator must know. In June 2017
# [Vaswani and colleagues](https://arxiv.org/abs/1706.03762) published a translator in which a word learns about other
# words in one way only: it looks at them, and takes a part of what each has to offer. They called this [**scaled
# dot-product attention**](../docs/glossary.md#s); the part of a model that looks once is a
# [**head**](../docs/glossary.md#h). In August [Google's
# report](https://research.google/blog/transformer-a-novel-neural-network-architecture-for-language-understanding/)
# showed with exactly this sentence where one of its heads looked. The same formula runs in chatbots.
#
# After this notebook you can
#
# - build one attention head by hand, as a function and as a class, and check that it computes what torch's does;
# - say what one look can find, and what it cannot;
# - train a head, read off what it looks at, and measure what the divisor $\sqrt d$ does to its learning;
# - hide from a word what it must not see, and test whether it is hidden.

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
from functools import partial

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

from sciformer import MultiHeadAttention, attend, causal_mask, dot_product_scores, masked_softmax, padding_mask
from sciformer import check, course, plotting, records
from sciformer.data import batches, lookup
from sciformer.teach import Switches, explore
from sciformer.teach.diagrams.heads import attention_head
from sciformer.teach.diagrams.language import shifted_by_one

torch.manual_seed(0)  # the same random numbers in every run
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## Predict first
#
# Write down your answers. Each of them will meet a measured number.
#
# 1. One head looks at the sentence above, once, and we replace *tired* by *wide*. Compare the weight that *it* gives to
#    *animal* with the weight that it gives to *street*. Does their ratio change?
# 2. Two vectors of $d$ random numbers, each with mean 0 and variance 1, are multiplied by a dot product. We go from
#    $d = 4$ to $d = 1024$. How many times larger is the typical dot product?
# 3. A softmax turns 32 such products into 32 weights. Nothing is divided by anything. As $d$ goes from 4 to 1024, does
#    the largest of the 32 weights stay as it is, shrink, or grow towards 1?

# %% [markdown]
# ## One vector, three parts
#
# We keep six words of the sentence as our tokens (L = 6), and describe each by five features (E = 5). **These numbers
# are set by hand**, so that you can check everything that follows; a real model learns them. The features say how
# much a word has to do with living things, how much with roads, whether it is a pronoun, whether it is an adjective,
# and, for a noun, whether French calls it *il* (1) or *elle* (−1).

# %%
table = {  # living, road, pronoun, adjective, il or elle
    "animal": [2, 0, 0, 0, 1],
    "didn't": [0, 0, 0, 0, 0],
    "cross": [1, 1, 0, 0, 0],  # it takes somebody living, and a road
    "street": [0, 2, 0, 0, -1],
    "it": [0, 0, 2, 0, 0],
    "tired": [2, 0, 0, 2, 0],  # only living things tire
    "wide": [0, 2, 0, 2, 0],  # roads are wide
}
tokens = ["animal", "didn't", "cross", "street", "it", "tired"]
x = torch.tensor([table[token] for token in tokens], dtype=torch.float64)  # (L, E) = (6, 5); float64 keeps 16 digits

# %% [markdown]
# In notebook 01 each word played every part with this one vector. **What is the score of *it* for *tired* then? And can
# the score of *animal* for *tired* differ from the score of *tired* for *animal*?**

# %%
naive_scores = x @ x.T  # (L, L)
print("it · tired =", naive_scores[4, 5].item(), "  symmetric:", torch.equal(naive_scores, naive_scores.T))

# %% [markdown]
# So *it* cannot find *tired*, and no score differs from its mirror image. The cure: each word gets three vectors, each
# made by a matrix of its own:
#
# - the [**query**](../docs/glossary.md#q) says what the word looks for;
# - the [**key**](../docs/glossary.md#k) says what the word can be found by;
# - the [**value**](../docs/glossary.md#v) is what the word hands over when it is found.
#
# In a library, your question is the query, the labels on the shelves are the keys, and what stands in the books are the
# values.
#
# A query has three features here (D = 3): it asks for adjectives, for living things and for roads. The matrix has a row
# for each feature of the word and a column for each feature of the query. We decide that a pronoun asks for an
# adjective, a living thing for living things, and a road for roads.

# %%
W_q = torch.zeros(5, 3).double()  # (E, D): rows living, road, pronoun, adjective, il or elle; columns "adjective?", "living?", "road?"
W_q[0, 1] = W_q[1, 2] = W_q[2, 0] = 1
query = x @ W_q  # (L, E) @ (E, D) = (L, D)
print("it asks with", query[4].tolist())

# %% [markdown]
# Now the keys. Whoever asks "living?" must find living things, and whoever asks "road?" roads: that makes two numbers
# in $W_k$. Whom does *it* find with these two alone?

# %%
W_k = torch.zeros(5, 3).double()  # (E, D): rows and columns as in W_q
W_k[0, 1] = W_k[1, 2] = 1
print("it · every key:", (query[4] @ (x @ W_k).T).tolist())

# %% [markdown]
# Nobody. A third number in $W_k$ is to let *it* find the adjective *tired*. **In which row and column must it stand?**
#
# <details><summary>Answer</summary>
#
# In the row of adjectives and the column "adjective?": an adjective is found by whoever asks for adjectives.
#
# </details>
#
# We set it to 2. A word hands over whether it is living, a road, or an adjective.

# %%
W_k[3, 0] = 2
W_v = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]]).double()  # (E, D): hands over living, road, adjective
key, value = x @ W_k, x @ W_v  # (L, D)
for i in (3, 4, 5):
    print(f"{tokens[i]:7} query {query[i].tolist()}  key {key[i].tolist()}  value {value[i].tolist()}")

# %% [markdown]
# ## One word looks
#
# Let *it* look. Its query meets every key in a dot product, which is divided by $\sqrt 3$ (the section "Why
# $1/\sqrt d$" says why). The softmax turns the six **scores** into six **weights**, and the weights average the values.

# %%
i = 4  # it
scores_of_it = torch.stack([query[i] @ key[j] / math.sqrt(3) for j in range(6)])  # (S,): S counts keys
weights_of_it = scores_of_it.exp() / scores_of_it.exp().sum()  # (S,), sums to 1
output_of_it = sum(weights_of_it[j] * value[j] for j in range(6))  # (D,)
print("scores ", [round(s, 2) for s in scores_of_it.tolist()])
print("weights", [round(w, 2) for w in weights_of_it.tolist()])
print("output ", [round(y, 2) for y in output_of_it.tolist()])

# %% [markdown]
# Check these numbers: the only product that is not 0 is $2 \cdot 4 = 8$ with *tired*, and $8 / \sqrt 3 = 4.62$. Then
# $e^{4.62} = 101$ stands against five times $e^0 = 1$, so *tired* gets $101/106 = 0.95$ of the attention. (That is
# why $W_k$ has a 2: with a 1 the score is 2.31, and *tired* gets $10/15 = 0.67$.) The output is nearly the value of
# *tired*: it says "living, and an adjective".
#
# All words do this at the same time. Here is the whole head, with every number that passes through it. One of the six
# words gets the plain average of all values. **Which one, and why?**

# %%
scores = query @ key.T / math.sqrt(3)  # (L, D) @ (D, S) = (L, S)
weights = scores.softmax(dim=-1)  # over the keys: rows sum to 1
output = weights @ value  # (L, S) @ (S, D) = (L, D)
features = {
    "x": ["living", "road", "pronoun", "adjective", "il or elle"],
    "query": ["adjective?", "living?", "road?"],
    "value": ["living", "road", "adjective"],
}
attention_head(tokens, x, query, key, value, scores, weights, output, features=features, follow=4)
plotting.show(
    "A diagram of one head. From x, six words with five features, arrows lead to queries, keys and values. Queries and "
    "keys give a table of scores, the softmax turns it into weights, and weights and values give the output. The row of the word \"it\" is framed."
)


# %% [markdown]
# Follow the framed rows of *it*. Its query meets the keys, which stand as columns above the scores. The one large score
# becomes the one large weight, and the row of the output is nearly *tired*'s value. And *tired* does not look back at
# *it*: asking and answering have come apart.
#
# <details><summary>Answer</summary>
#
# The plain average goes to *didn't*: its query is 0, so all its scores are equal.
#
# </details>

# %% [markdown]
# ## The formula
#
# $$s_{ij} = \frac{q_i \cdot k_j}{\sqrt D}, \qquad w_{ij} = \frac{e^{s_{ij}}}{\sum_m e^{s_{im}}}, \qquad
# y_i = \sum_j w_{ij} v_j$$
#
# | symbol | variable | shape | here |
# |---|---|---|---|
# | $q_i$ | `query[i]` | (D,) | (3,) |
# | $k_j$, $v_j$ | `key[j]`, `value[j]` | (D,) | (3,) |
# | $s_{ij}$ | `scores[i, j]` | one entry of (L, S) | of (6, 6) |
# | $w_{ij}$ | `weights[i, j]` | one entry of (L, S) | of (6, 6) |
# | $y_i$ | `output[i]` | (D,) | (3,) |
#
# D, also written $d$, is the [**head dimension**](../docs/glossary.md#h): the number of features of a query and a key,
# and here also of a value. In front there will be B, the number of examples in a [**batch**](../docs/glossary.md#b). We
# call $1/\sqrt D$ **the scale**. Every attention in this course has these three steps: scores, weights, output. What
# changes from one mechanism to the next is how it computes a score.

# %% [markdown]
# ## What is *it*?
#
# But *it* should look at the animal, or, with *wide*, at the street. Can one look do that? Your first prediction is
# settled here: we let *it* look once in both sentences, with our matrices and with random ones.

# %%
def words(last):  # the sentence with another last word
    return torch.tensor([table[token] for token in [*tokens[:5], last]], dtype=torch.float64)  # (L, E)


def scores_by(x, W_q, W_k):  # the first line of the formula
    return (x @ W_q) @ (x @ W_k).T / math.sqrt(W_q.shape[1])  # (L, S)


random_q, random_k = torch.randn(2, 5, 3).double()
for name, matrices in {"set by hand": (W_q, W_k), "random": (random_q, random_k)}.items():
    for last in ("tired", "wide"):
        row = scores_by(words(last), *matrices).softmax(dim=-1)[4]  # the row of it
        print(f"{name:11} {last:5}  animal : street = {row[0] / row[3]:.3f}   {last} gets {row[5]:.2f}")

# %% [markdown]
# The ratio does not change, whatever the matrices are. The score of *it* and *animal* is computed from these two words
# only. So *tired* cannot alter this score; it can only take attention away from *animal* and *street* alike. **One look
# cannot turn the attention of *it* from the animal to the street.**
#
# What could? Think for a minute before you open the answer.
#
# <details><summary>Answer</summary>
#
# A second look, by a second head with matrices of its own. What the first look brought has told *it* that something
# living is meant, or a road. So now it can look for a noun that shares this.
#
# </details>
#
# Each word **adds** what it was handed, here living and road, to its vector. So it keeps what it was and carries the
# news as well. Here is what *it* can ask for after that.

# %%
W_back = torch.tensor([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0]]).double()  # (D, E): living and road join the word
W_q2 = torch.tensor([[1, 0], [0, 1], [0, 0], [0, 0], [0, 0]]).double()  # (E, 2): the second head asks "living?" and "road?"


def after_one_look(last):
    x = words(last)  # (L, E)
    return x + scores_by(x, W_q, W_k).softmax(dim=-1) @ (x @ W_v) @ W_back  # (L, E)


for last in ("tired", "wide"):
    print(f"… too {last:5}  it asks with", [round(q, 2) for q in (after_one_look(last) @ W_q2)[4].tolist()])

# %% [markdown]
# **Your turn** (middle, 8 minutes). Write numbers into `W_k2`, so that *it* looks at *animal* in one sentence and at
# *street* in the other. Start with the two numbers that seem obvious. Then see who else answers, and keep those words
# from answering.

# %%
W_k2 = torch.tensor([[0, 0], [0, 0], [0, 0], [0, 0], [0, 0]]).double()  # yours: rows living, road, pronoun, adjective, il or elle
for last in ("tired", "wide"):
    looks = scores_by(after_one_look(last), W_q2, W_k2).softmax(dim=-1)[4]  # (S,): the row of it
    print("  ".join(f"{token} {share:.2f}" for token, share in zip([*tokens[:5], last], looks.tolist(), strict=True)))

# %% [markdown]
# <details><summary>Hint</summary>
#
# Let living things answer "living?" and roads "road?", with a 1 each. Then *tired* gets as much as *animal*, since it
# is living, too. What has *tired* that no noun has? And an entry of a key may be negative.
#
# </details>
# <details><summary>Solution</summary>
#
# `W_k2 = torch.tensor([[1, 0], [0, 1], [-1, -1], [-1, -1], [0, 0]]).double()`
#
# The −1 of the adjectives keeps *tired* from answering "living?" and *wide* from answering "road?", so it has to stand
# in both columns. That of the pronouns keeps *it* from answering itself. (Nothing keeps the verb *cross* from
# answering. There are other solutions, with the last feature: only nouns have one that is not 0.)
#
# </details>
#
# The notebook goes on with these numbers. But to look is not enough: the noun must also hand something over. The
# translator needs to know *il* or *elle*, so this is the value of the second head. *It* has 0 there so far.

# %%
W_k2 = torch.tensor([[1, 0], [0, 1], [-1, -1], [-1, -1], [0, 0]]).double()
W_v2 = torch.tensor([[0], [0], [0], [0], [1]]).double()  # (E, 1): hands over il or elle
rows = []
for last in ("tired", "wide"):
    seen = after_one_look(last)
    rows.append(scores_by(seen, W_q2, W_k2).softmax(dim=-1)[4])  # (S,): the row of it
    print(f"… too {last:5}  after two looks it holds {(rows[-1] @ seen @ W_v2).item():+.2f}   (il: +1, elle: −1)")
_, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
labels = {"rows": ["… tired", "… wide"], "columns": [*tokens[:5], "tired/wide"], "colorbar": False}
plotting.heatmap(torch.stack(rows), title="where “it” looks the second time", vmax=1, xlabel="", ylabel="", ax=ax, **labels)
plotting.show('Two rows of weights of the word "it" at its second look, one for each sentence. Each row has one bright cell.')

# %% [markdown]
# With *tired*, *it* looks at the animal and becomes *il*; with *wide*, it looks at the street and becomes *elle*. **Two
# looks can find out what *it* is**: the first finds the adjective, the second the noun that the adjective fits.
#
# A trained translator stacks several rounds of looks, called **layers** (notebook 05). In one head between its fifth
# and its sixth layer, says Google's report, *it* looks at *animal* or at *street*. Our matrices are set by hand, so they
# prove that two looks **can** do it, not that training finds them. (Notebook 18 has heads that learn to work together.)

# %% [markdown]
# ## Masks: True = may attend
#
# A translator has the whole sentence before it. A chatbot writes from left to right: when it has written *it*, there is
# no *tired* yet. **Can it know at *it* what *it* is?**
#
# A chatbot learns by predicting the next word at every position of a text, all positions at once. So it reads a
# sentence and is asked for the same sentence.

# %%
shifted_by_one(tokens, answers=False)
plotting.show(
    'Two rows of words. Below stand the inputs from "animal" to "it", and above each one the target, from "didn\'t" to "tired".'
)

# %% [markdown]
# **Question** (easy, 2 minutes). What would a lazy head do here?
#
# <details><summary>Answer</summary>
#
# All targets but the last stand in the input as well, one position to the right. The head would look there, copy them,
# and learn nothing else.
#
# </details>
#
# A [**mask**](../docs/glossary.md#m) says which query may attend to which key. A [**causal mask**](../docs/glossary.md#c)
# forbids to look ahead: query $i$ may attend to keys $j \le i$ only. In this course **True means "may attend"**.

# %%
causal = causal_mask(6)  # (L, S)
plotting.heatmap(causal, rows=tokens, columns=tokens, title="True: may attend")
plotting.show("A square of queries and keys with ticks on the diagonal and below it.")


# %% [markdown]
# How can a mask give a key the weight 0 and leave rows that still sum to 1?
#
# ### Exercise 1 · easy · 4 minutes
#
# Write the softmax with a mask. `scores` are numbers of shape (L, S), one row for each query; L and S may differ.
# `attn_mask` is Boolean, (L, S), True where the query may attend. Return the weights, (L, S): forbidden keys get
# exactly 0, and each row sums to 1. The scores are scaled already, and they may be of any size, in the thousands and
# far below 0, too. Every query may attend to at least one key. The notebook goes on with your function.

# %%
def masked_weights(scores, attn_mask):  # (L, S) numbers, (L, S) True = may attend
    raise NotImplementedError  # (L, S)


masked_weights = check.masked_weights.use(masked_weights)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A hidden key has to have weight 0, however low the other scores are. Which number in its place does that?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `scores.masked_fill(where, number)` writes where its mask is True. Ours is True at what may be *seen*.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def masked_weights(scores, attn_mask):
#     hidden = scores.masked_fill(~attn_mask, -math.inf)
#     return hidden.softmax(dim=-1)
# ```
#
# </details>

# %%
weights = masked_weights(scores, causal)
torch.testing.assert_close(weights, masked_softmax(scores, causal))  # the package's
shown = weights.masked_fill(~causal, math.nan)  # what is forbidden stays empty
plotting.heatmap(shown, rows=tokens, columns=tokens, title="causal: nobody looks ahead", vmax=1)
plotting.show("A table of weights under the causal mask. Above the diagonal it is empty.")

# %% [markdown]
# ### What *it* can know from left to right
#
# The word *tired* comes later, so *it* is left with an even average of the five words up to itself. We repeat both
# looks under this mask, with your function. **Predict**: what does *it* hold now, with *tired* and with *wide*? And
# does another word get to know which noun is meant?

# %%
for last in ("tired", "wide"):
    seen = words(last)  # (L, E)
    seen = seen + masked_weights(scores_by(seen, W_q, W_k), causal) @ (seen @ W_v) @ W_back  # the first look
    looks = masked_weights(scores_by(seen, W_q2, W_k2), causal)  # the second, (L, S)
    holds = looks @ (seen @ W_v2)  # (L, 1)
    for i, word in ((4, "it"), (5, last)):
        print(f"… too {last:6} {word:5} gives animal {looks[i, 0]:.2f}, street {looks[i, 3]:.2f}   and is handed {holds[i, 0]:+.2f}")


# %% [markdown]
# **From left to right *it* cannot know what it is.** It is handed the same in both sentences, about 0, since nothing of
# a later word can reach it, however often it looks. But *tired* is handed *il*, and *wide* is handed *elle*. Not by way
# of *it*, though: *tired* means something living by itself, and would look at the animal without any *it*. At the last
# word it is known which noun can be tired, and from there a model that reads from left to right has to go on.

# %% [markdown]
# ### Exercise 2 · middle · 8 minutes
#
# Now build the whole of scaled dot-product attention for one head. `query` is (L, D), `key` (S, D) and `value` (S,
# D), without a batch; L and S may differ. Scale the scores by $1/\sqrt D$, where D is `query.shape[-1]`. `attn_mask`
# is None or Boolean, (L, S), True where the query may attend; then every query may attend to at least one key. The
# scores may be of any size, in the thousands and far below 0, too. Return the output, (L, D).

# %%
def scaled_dot_product(query, key, value, attn_mask=None):  # (L, D), (S, D), (S, D), (L, S) or None
    raise NotImplementedError  # (L, D)


scaled_dot_product = check.scaled_dot_product.use(scaled_dot_product)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Three lines: scores, weights, output. The head dimension is `query.shape[-1]`.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Scale before the softmax, and hide before the softmax. Afterwards it is too late for both.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def scaled_dot_product(query, key, value, attn_mask=None):
#     scores = query @ key.T / math.sqrt(query.shape[-1])  # (L, S)
#     if attn_mask is not None:
#         scores = scores.masked_fill(~attn_mask, -math.inf)
#     return scores.softmax(dim=-1) @ value  # (L, D)
# ```
#
# </details>

# %% [markdown]
# torch has all of this in one function, called [**SDPA**](../docs/glossary.md#s) for short. The package splits the work
# in two: a function for the scores, and `attend`, which returns output and weights. These two want two more axes in
# front, (B, H, L, D): a batch and H heads, here one of each. Do all agree with you?

# %%
mine = scaled_dot_product(query, key, value, causal)  # (L, D)
torch.testing.assert_close(mine, F.scaled_dot_product_attention(query, key, value, attn_mask=causal))
q4, k4, v4 = query[None, None], key[None, None], value[None, None]  # (1, 1, 6, 3)
package, package_weights = attend(dot_product_scores(q4, k4), v4, attn_mask=causal)
torch.testing.assert_close(mine, package[0, 0])
print("yours, torch's and the package's agree")


# %% [markdown]
# This is a good place to stop for an evening. All matrices so far were set by hand. Now a head is to find its own.

# %% [markdown]
# ## Why $1/\sqrt d$
#
# A head that is going to learn starts with random matrices. How large are the scores of random queries and keys? A dot
# product is a sum of $d$ terms $q_m k_m$. If all entries of $q$ and $k$ are independent, with mean 0 and variance 1,
# then each term has mean 0 and variance 1, since by independence the mean of $q_m^2 k_m^2$ is $1 \cdot 1$. **What is
# the variance of the sum, and by what must one divide the sum to bring it back to 1?**
#
# <details><summary>Answer</summary>
#
# The variances of independent terms add up, so the variance is $d$. Dividing by $\sqrt d$ divides it by $d$. (A footnote
# in section 3.2.1 of the [paper](https://arxiv.org/abs/1706.03762) says so.)
#
# </details>
#
# We measure it, with 1000 queries and 32 keys for each.

# %%
def random_scores(d):
    generator = torch.Generator().manual_seed(d)
    q = torch.randn(1000, 1, d, generator=generator)  # (N, 1, d): N = 1000 queries
    k = torch.randn(1000, 32, d, generator=generator)  # (N, S, d): S = 32 keys for each
    return (q @ k.transpose(-2, -1)).squeeze(1)  # (N, S)


sizes = [4, 16, 64, 256, 1024]
raw = {d: random_scores(d) for d in sizes}
scaled = {d: raw[d] / math.sqrt(d) for d in sizes}
for d in sizes:
    print(f"d = {d:4}   variance of q·k {raw[d].var():7.1f}   of q·k/√d {scaled[d].var():.2f}")
print(f"typical q·k (standard deviation) at d = 1024, over that at d = 4: {raw[1024].std() / raw[4].std():.1f}")


# %% [markdown]
# Your second prediction: the typical size is the root of the variance, so it grows by $\sqrt{1024/4} = 16$.
#
# What does the softmax make of such scores? Two numbers say how sharply a row looks. One is its largest weight. The
# other is its [**entropy**](../docs/glossary.md#e) $-\sum_j w_j \log w_j$, here divided by $\log 32$, so that a
# uniform row has 1 and a row that looks at a single key has 0.

# %%
def sharpness(scores):
    w = scores.softmax(dim=-1)  # (N, S)
    entropy = torch.special.entr(w).sum(dim=-1)  # (N,): -Σ w log w
    return w.amax(dim=-1).mean().item(), entropy.mean().item() / math.log(32)


for d in sizes:
    (largest, entropy), (largest_s, entropy_s) = sharpness(raw[d]), sharpness(scaled[d])
    print(f"d = {d:4}   largest {largest:.2f}, scaled {largest_s:.2f}   entropy {entropy:.2f}, scaled {entropy_s:.2f}")

# %% [markdown]
# Your third prediction: without the scale the largest weight grows towards 1. With it, the numbers are nearly the same
# at every $d$.
#
# Which key gets it all? Here are one query and its 32 keys, of which each row of the picture takes the first $d$
# features. **Predict**: do the rows agree?

# %%
one_query, its_keys = torch.randn(33, 1024, generator=torch.Generator().manual_seed(0)).split([1, 32])
products = torch.cat([one_query[:, :d] @ its_keys[:, :d].T for d in sizes])  # (5, S): from the first d features
_, ax = plt.subplots(figsize=(9, 2.2), layout="constrained")
labels = [f"d = {d}: most on key {j}" for d, j in zip(sizes, products.argmax(dim=-1), strict=True)]
plotting.heatmap(products.softmax(dim=-1), rows=labels, title="without the scale", vmax=1, xlabel="key", ylabel="", ax=ax)
plotting.show("A table of weights over 32 keys, with a row for each of five head dimensions. From 64 on each row has one bright cell.")


# %% [markdown]
# They do not. Each further feature adds a random number to every score, so another key takes the lead, by chance. And
# since the scores spread more and more, the head is nearly certain of the key that chance has chosen.
#
# Does that hurt? The paper suspects that such a softmax has "extremely small gradients": these are the derivatives by
# which a model learns. You will train heads without the scale. (An optional section looks at their gradients.)

# %% [markdown]
# ## One head as a class
#
# A model has to *learn* its matrices. For that they must be **parameters**: numbers that training may change. In
# torch, `nn.Linear(E, D)` holds such a matrix (and a **bias**, a vector that is added to the product). A class that
# inherits from `nn.Module` remembers the parameters of everything that you store in it, as in
# `self.q_proj = nn.Linear(…)`, so that training finds them.
#
# ### Exercise 3 · middle · 10 minutes
#
# Write one head as a class. You will train it below. `AttentionHead(embed_dim, head_dim)` holds three linear maps
# named `q_proj`, `k_proj` and `v_proj` (for *projection*, the field's word for such a map), each an
# `nn.Linear(embed_dim, head_dim)` with its bias. Its `forward` takes `x`, (B, L, E), and returns two things: the
# output, (B, L, D), and the weights, (B, L, S).
#
# - Queries come from `x`. Keys and values come from `context`, (B, S, E); where it is None they come from `x`, too.
# - The scores are scaled by $1/\sqrt D$, where D is `head_dim`.
# - `attn_mask` is None or Boolean, (L, S), the same for the whole batch, True where a query may attend. No row of it
#   is empty.
#
# You may use `masked_softmax(scores, attn_mask)` of the package. It does what your `masked_weights` does, for a batch
# as well, accepts None, and gives 0 in a row where nothing is allowed.

# %%
class AttentionHead(nn.Module):
    def __init__(self, embed_dim, head_dim):
        super().__init__()
        raise NotImplementedError

    def forward(self, x, context=None, *, attn_mask=None):  # (B, L, E), (B, S, E) or None, (L, S) or None
        raise NotImplementedError  # (B, L, D), (B, L, S)


AttentionHead = check.AttentionHead.use(AttentionHead)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `__init__` makes three layers, nn.Linear(embed_dim, head_dim) each. `forward` has the lines of exercise 2 with a batch
# in front.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `.T` turns all axes round; with a batch it has to be `k.transpose(-2, -1)`. masked_softmax(scores, attn_mask) takes a
# mask or None.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# class AttentionHead(nn.Module):
#     def __init__(self, embed_dim, head_dim):
#         super().__init__()
#         self.q_proj = nn.Linear(embed_dim, head_dim)
#         self.k_proj = nn.Linear(embed_dim, head_dim)
#         self.v_proj = nn.Linear(embed_dim, head_dim)
#
#     def forward(self, x, context=None, *, attn_mask=None):
#         context = x if context is None else context  # what is looked at
#         q = self.q_proj(x)  # (B, L, D)
#         k, v = self.k_proj(context), self.v_proj(context)  # (B, S, D)
#         scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, L, S)
#         weights = masked_softmax(scores, attn_mask)  # (B, L, S)
#         return weights @ v, weights
# ```
#
# </details>

# %% [markdown]
# The package's `MultiHeadAttention` with a single head does the same, and then applies one more linear map, which
# notebook 03 explains. We take that map out. `assert_same_module` copies the parameters of one into the other and
# compares outputs and derivatives, which training will need.

# %%
package = MultiHeadAttention(6, num_heads=1)
package.out_proj = nn.Identity()
course.assert_same_module(AttentionHead(6, 6), package, torch.randn(2, 5, 6), attn_mask=causal_mask(5))
course.assert_same_module(AttentionHead(6, 6), package, torch.randn(2, 5, 6), torch.randn(2, 7, 6))

# %% [markdown]
# ## Train: a look-up
#
# Can a head find its matrices by itself? One sentence is too little to learn from. A small task asks for the same
# thing, to look at the right other token, as often as we like, and one look is enough: eight pairs of a key and a value,
# and then one of the keys again. The answer is the value that stood beside it. Keys are numbers from 0 to 31, all
# different within a sequence; values are digits from 0 to 9, and may repeat. (A **seed** makes random numbers repeatable.)

# %%
training_set = [t.to(device) for t in lookup(20_000, seed=0)]  # keys (N, 8), values (N, 8), asked (N,), answer (N,)
test_set = [t.to(device) for t in lookup(2000, seed=1)]
keys, values, asked, answer = (t[0].tolist() for t in training_set)
print("pairs ", list(zip(keys, values, strict=True)))
print("asked ", asked, "  answer", answer)


# %% [markdown]
# An **embedding** table gives each of these numbers a vector that is learned as well. A pair becomes one token, the sum
# of both vectors. (From this sum the head makes vectors that are called key and value, too.) A last linear map, the
# read-out, turns what was found into one number for each possible answer.

# %%
class LookUp(nn.Module):
    def __init__(self, head_dim=32, embed_dim=32):
        super().__init__()
        self.key_embed = nn.Embedding(32, embed_dim)
        self.value_embed = nn.Embedding(10, embed_dim)
        self.head = AttentionHead(embed_dim, head_dim)  # yours
        self.read_out = nn.Linear(head_dim, 10)

    def look(self, keys, values, asked):  # (B, S), (B, S), (B,)
        pairs = self.key_embed(keys) + self.value_embed(values)  # (B, S, E): a pair is one token
        return self.head(self.key_embed(asked)[:, None], pairs)  # (B, 1, D), (B, 1, S)

    def forward(self, keys, values, asked):
        found, _ = self.look(keys, values, asked)
        return self.read_out(found[:, 0])  # (B, 10)


# %% [markdown]
# Training repeats three steps:
#
# - The model answers, and the [**loss**](../docs/glossary.md#c) measures how wrong it is. (Ours is the cross-entropy: a
#   softmax turns the read-out into probabilities, and the loss is $-\log$ of the right answer's.)
# - In the [**backward pass**](../docs/glossary.md#b), `backward()` computes the **gradient**: the derivative of the loss
#   with respect to every parameter.
# - The [**optimiser**](../docs/glossary.md#o) changes the parameters a little, so that the loss falls.
#
# Our optimiser is **Adam** ([Kingma and Ba 2015](https://arxiv.org/abs/1412.6980)). It divides a running average of the
# gradient by the root of a running average of its square. So a parameter whose gradient keeps its sign moves by about
# `lr`, the **learning rate**, in each step, whether its gradient is large or small.

# %%
def train(model, *data, seed=0, steps=100, lr=0.01):  # the last of the data is what the model should answer
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    stream = batches(*data, batch_size=64, seed=seed)
    losses = []
    for _ in range(steps):
        *inputs, target = next(stream)
        loss = F.cross_entropy(model(*inputs), target)
        optimizer.zero_grad()  # else torch adds this step's gradient to the last one's
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def accuracy(model):
    with torch.no_grad():
        return (model(*test_set[:3]).argmax(dim=-1) == test_set[3]).float().mean().item()


# %% [markdown]
# As a comparison we train a model that cannot look: its queries are multiplied by 0, so all its scores are 0 and its
# head gives the plain mean of the values, whichever key is asked for. **Predict**: how often will it be right? One guess
# in ten would be right by chance.

# %%
def look_up(seed=0, factor=1.0, **options):
    torch.manual_seed(seed)
    model = LookUp(**options)
    # A hook: torch calls it with what q_proj returns, and goes on with its result.
    model.head.q_proj.register_forward_hook(lambda layer, inputs, query: factor * query)
    return model.to(device)


# %% tags=["nbval-ignore-output"]
learned, blind = look_up(), look_up(factor=0.0)
print(f"before training: {accuracy(learned):.3f}")
curves = {"attention": train(learned, *training_set), "plain mean": train(blind, *training_set)}
print(f"after training: attention {accuracy(learned):.3f}, plain mean {accuracy(blind):.3f}")

# %% [markdown]
# The blind model does better than chance. **What may it be doing?**
#
# <details><summary>Answer</summary>
#
# It sees all eight values, and can name the most frequent of them. The next cell counts how often that would be right.
#
# </details>
#
# (A share of about 0.3, counted on 2000 sequences, scatters by 0.01; the second verdict allows four times as much.)

# %%
commonest = F.one_hot(test_set[1]).sum(dim=1).amax(dim=-1).double().mean().item() / 8
course.verdict("attention: accuracy on new sequences", accuracy(learned), above=0.99)
course.verdict("plain mean: accuracy minus that of naming the commonest value", accuracy(blind) - commonest, above=-0.04, below=0.04)
ax = plotting.curves(curves, title="a look-up (thick: mean of five steps)", smooth=5)
ax.axhline(math.log(10), color="0.6", linestyle="--", label="guessing: log 10")
ax.legend(frameon=False)
plotting.show(
    "Two training losses, which start near log 10, the loss of a guess. With attention the loss falls to almost 0, with "
    "the plain mean it stays high."
)

# %% [markdown]
# The blind model does about as well as naming the most frequent value; the rest is what attention is worth here, in 100
# steps. Where does the trained head look? We take one new sequence and ask for each of its keys, in ascending order.

# %%
one_keys, one_values = test_set[0][0], test_set[1][0]  # (8,)
order = one_keys.sort().values  # (8,)
with torch.no_grad():
    _, looks = learned.look(one_keys.expand(8, 8), one_values.expand(8, 8), order)  # (8, 1, 8)
columns = [f"{k}: {v}" for k, v in zip(one_keys.tolist(), one_values.tolist(), strict=True)]
rows = [str(k) for k in order.tolist()]
plotting.heatmap(looks[:, 0], rows=rows, columns=columns, xlabel="pair, key: value", ylabel="asked key", title="a learned look-up", vmax=1)
plotting.show("Weights of the trained head, with a row for each key that is asked for and a column for each pair: one cell of each row is bright.")

# %% [markdown]
# In every row nearly all of the weight lies on the right pair. The head learned from the loss alone where to look.

# %% [markdown]
# ### With and without $1/\sqrt d$
#
# What does the scale do to learning? If we multiply the queries by $\sqrt d$, the scale cancels. For each of five seeds
# we train two models from the same start, one with the scale and one without. **Predict**: how will their losses compare
# at $d = 32$, and how at $d = 256$?

# %% tags=["nbval-ignore-output"]
starts = {
    "scaled": lambda seed, d: look_up(seed, head_dim=d),
    "unscaled": lambda seed, d: look_up(seed, math.sqrt(d), head_dim=d),
}


def five_runs(start, d, lr=0.01):
    models = [start(seed, d) for seed in range(5)]
    losses = [train(model, *training_set, seed=seed, lr=lr) for seed, model in enumerate(models)]
    return torch.tensor(losses), torch.tensor([accuracy(model) for model in models])  # (5, steps), (5,)


runs = {(d, name): five_runs(start, d) for d in (32, 256) for name, start in starts.items()}
for (d, name), (losses, right) in runs.items():
    means, shares = ("  ".join(f"{n:.2f}" for n in numbers) for numbers in (losses.mean(dim=1), right))
    print(f"d = {d:3}, {name:8}  mean loss of 100 steps {means}   accuracy after them {shares}")


# %%
def behind(slow, fast):  # (5, steps) each: how far the loss of `slow` lies above that of `fast`, less what it does at the first step
    gap = slow - fast
    return gap.mean(dim=1) - gap[:, 0]  # (5,)


more = {d: behind(runs[d, "unscaled"][0], runs[d, "scaled"][0]) for d in (32, 256)}
course.verdict("smallest of the five differences at d = 32", more[32].min().item(), above=0)
course.verdict("smallest at d = 256, minus the largest at d = 32", (more[256].min() - more[32].max()).item(), above=0)
gap = runs[256, "scaled"][1].min() - runs[256, "unscaled"][1].max()
course.verdict("d = 256: lowest accuracy with the scale, minus the highest without", gap.item(), above=0)
_, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for (d, name), (losses, _) in runs.items():
    smooth = losses.unfold(1, 5, 1).mean(dim=-1)  # (5, 96): the mean of each five steps in a row
    lines = axes[int(d == 256)].plot(range(5, 5 + smooth.shape[1]), smooth.T, color=plotting.COLORS[int(name == "unscaled")], linewidth=1)
    lines[0].set_label(f"{name}, five seeds")
for ax, d in zip(axes, (32, 256), strict=True):
    ax.set(title=f"d = {d}", xlabel="step")
    ax.axhline(math.log(10), color="0.6", linestyle="--", label="guessing: log 10")
axes[0].set_ylabel("loss (mean of five steps)")
axes[0].legend(frameon=False)
plotting.show(
    "Losses of five seeds with the scale and five without it. At d = 32 most of those without fall a little later. At d = 256 "
    "those without start above the loss of a guess and are still high when those with the scale are near 0."
)


# %% [markdown]
# With every seed the mean loss is higher without the scale, and by far more in the large head. (How far it would get,
# 100 steps do not tell. The verdicts take off the difference at the first step: nothing has been learned there.)
#
# Why? At $d = 256$ two things are $\sqrt{256} = 16$ times as large without the scale: the **scores** with which the head
# starts, and the **steps** of its scores: Adam moves each parameter by about `lr`, and the factor multiplies the effect.
# We take away the one, the other, and both. For a **blunt start** the query parameters are divided by 16, once, so the
# first scores are those of the scaled head. For shorter steps we lower `lr` from 0.01 to 0.003. **Predict**: which
# closes the gap?

# %% tags=["nbval-ignore-output"]
def blunt(seed, d):
    model = look_up(seed, math.sqrt(d), head_dim=d)
    with torch.no_grad():
        for parameter in model.head.q_proj.parameters():
            parameter /= math.sqrt(d)
    return model


starts["blunt start"] = blunt
losses_at = {(0.01, name): runs[256, name][0] for name in ("scaled", "unscaled")}  # (5, 100): five seeds, 100 steps
for lr, name in [(0.01, "blunt start"), (0.003, "scaled"), (0.003, "unscaled"), (0.003, "blunt start")]:
    losses_at[lr, name] = five_runs(starts[name], 256, lr)[0]
print("mean loss of 100 steps at d = 256      seed 0     1     2     3     4     mean")
for (lr, name), losses in losses_at.items():
    five = losses.mean(dim=1)
    print(f"lr = {lr:5}  {name:11}                " + "".join(f"{loss:6.2f}" for loss in five.tolist()) + f"   {five.mean():6.2f}")

# %%
for name in ("scaled", "blunt start"):
    smallest = behind(losses_at[0.003, "unscaled"], losses_at[0.003, name]).min().item()
    course.verdict(f"lr = 0.003: smallest difference, unscaled minus {name}", smallest, above=0)

# %% [markdown]
# **Only both together** close the gap. Shorter steps alone bring the mean from 1.59 to 1.12. A blunt start alone brings it
# to 1.03 and hardly helps seeds 2 and 3. Together they bring it to 0.34, as low as the scaled head at this learning rate
# (0.36). So the large scores and the large steps both slow the head down, and $1/\sqrt d$ takes away both at once. Whoever
# says that a head "does not train without the scale" must add the start and the learning rate. (Neither remedy is pure: a
# blunt start also shortens the first step, to about half, as an optional section measures; and the smaller `lr` slows
# embeddings and read-out too, and is 3.3 times smaller, not 16.)

# %% [markdown]
# ## Break it: three classic mistakes
#
# A head learns to look wherever looking lowers its loss, at the future too if the mask lets it. Three mistakes are
# easily made: the mask **after** the softmax, **0** in place of $-\infty$, and the softmax over the **queries**. All
# three run without an error. A **recipe** is a function that makes weights from scores and a mask. Here are the weights
# of each recipe under the causal mask. An empty cell is a weight of exactly 0.

# %%
mistakes = {
    "mask after softmax": lambda s, mask: s.softmax(dim=-1) * mask,
    "0 in place of −∞": lambda s, mask: (s * mask).softmax(dim=-1),
    "softmax over queries": lambda s, mask: s.masked_fill(~mask, -math.inf).softmax(dim=-2),
}
recipes = {"right": masked_weights} | mistakes
figure, axes = plt.subplots(2, 2, figsize=(8, 7.2), layout="constrained")
for ax, (name, recipe) in zip(axes.flat, recipes.items(), strict=True):
    w = recipe(scores, causal)  # (L, S)
    sums = [f"{token}  Σ={s:.2f}" for token, s in zip(tokens, w.sum(dim=-1), strict=True)]
    plotting.heatmap(w.masked_fill(w == 0, math.nan), rows=sums, columns=tokens, title=name, vmax=1, colorbar=False, ax=ax)
plotting.show(
    "Four tables of weights, with the sum of each row. The right one, the mask after the softmax and the softmax over "
    "queries are empty above the diagonal; with 0 in place of minus infinity there is weight above it. The rows of the mask "
    "after the softmax and of the softmax over queries do not all sum to 1."
)


# %% [markdown]
# Where a word learns something about a later word, the future [**leaks**](../docs/glossary.md#l). **Which of the three
# leak, if any?** Write down your answer for each. **And how could you test it, for any function from words to outputs?**
#
# ### A test for leaks
#
# Does output $i$ depend on word $j$? If a derivative is not 0, it does, and torch can compute the derivatives of a whole
# function; their table is called its **Jacobian**. In a causal model $\partial y_i / \partial x_j$ must be exactly 0
# for each $j > i$. (At a single input a derivative may be 0 by chance, so random numbers are a better test than words
# set by hand.)
#
# ### Exercise 4 · hard · 12 minutes
#
# Write a leak detector. `attention` is any differentiable function from words (L, E) to outputs (L, D). Return True
# if, **at this** `x`, some output depends on a later word, which means that some derivative of an output feature with
# respect to a feature of a later word is not 0; otherwise return False. What another `x` would show does not matter.
# Treat a derivative as 0 if its absolute value is below $10^{-6}$: it may be a trace of rounding. The notebook goes on
# with your function.

# %%
def future_leaks(attention, x):  # a function, and words (L, E) to try it on
    raise NotImplementedError  # True or False


future_leaks = check.future_leaks.use(future_leaks)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `torch.autograd.functional.jacobian(attention, x)` has shape (L, D, L, E). Entry (i, j) of what you need has i from
# the first L and j from the second.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Derivatives have signs. Sum them as they are, and +1 and −1 make a leak invisible.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def future_leaks(attention, x):
#     jacobian = torch.autograd.functional.jacobian(attention, x)  # (L, D, L, E)
#     influence = jacobian.abs().amax(dim=(1, 3))  # (L, L): the largest derivative of output i by word j
#     return bool((influence.triu(diagonal=1) > 1e-6).any())
# ```
#
# </details>

# %%
def one_head(x, recipe):
    return recipe(scores_by(x, W_q, W_k), causal_mask(len(x))) @ (x @ W_v)  # (L, D)


random_x = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)  # (L, E)
for name, recipe in recipes.items():
    print(f"{name:21} the future leaks: {future_leaks(partial(one_head, recipe=recipe), random_x)}")

# %% [markdown]
# All three leak. For our sentence, a picture shows which outputs depend on which words. Look at the row of *it* and the
# column of *tired*.

# %%
depends = []
for recipe in recipes.values():
    jacobian = torch.autograd.functional.jacobian(partial(one_head, recipe=recipe), x)  # (L, D, L, E)
    depends.append((jacobian.abs() > 1e-6).any(dim=-1).any(dim=1))  # (L, L): does output i depend on word j?
plotting.heads(torch.stack(depends), rows=tokens, columns=tokens, titles=list(recipes), xlabel="word j", ylabel="output i").set_size_inches(10, 2.9)
plotting.show(
    "Four tables with a tick where an output depends on a word. Only the right recipe has no tick above the diagonal; the "
    "three mistakes have many."
)


# %% [markdown]
# With each mistake *it* knows something of *tired*. With *0 in place of −∞* the reason is plain: $e^0 = 1$ is a weight
# like any other. But the other two give the future no weight at all, and yet it is in the output.
#
# **Question** (hard, 4 minutes). Where does it hide?
#
# <details><summary>Answer</summary>
#
# In the divisor of the softmax. If the mask comes after the softmax, row $i$ has been divided by a sum over all words,
# later ones included. If the softmax runs over the queries, column $j$ is divided by a sum that includes the queries of
# later words. (Some squares have no tick although the recipe is wrong: the query of *didn't* is 0, so its scores are 0
# whatever the later words are.)
#
# </details>

# %% [markdown]
# ### What a leak is worth
#
# Is a number in a divisor enough to cheat with? We train a small model that reads **random** tokens from 8 and has to
# say the next one. The past says nothing about it. An honest model does best to give each token the probability 1/8,
# and then its loss is $-\log(1/8) = \log 8 = 2.08$. A lower loss on many fresh sequences must come from a leak.

# %%
class NextToken(nn.Module):
    def __init__(self, recipe, vocab_size=8, length=6, embed_dim=32):
        super().__init__()
        self.recipe = recipe  # makes weights of scores and a mask
        self.embed = nn.Embedding(vocab_size, embed_dim)
        self.position = nn.Embedding(length, embed_dim)  # tells the positions apart (notebook 04)
        self.head = AttentionHead(embed_dim, embed_dim)  # yours; only its three linear maps are used
        self.read_out = nn.Linear(embed_dim, vocab_size)

    def forward(self, tokens):  # (B, L)
        x = self.embed(tokens) + self.position.weight  # (B, L, E)
        q, k, v = self.head.q_proj(x), self.head.k_proj(x), self.head.v_proj(x)  # (B, L, E)
        scores = q @ k.mT / math.sqrt(q.shape[-1])  # (B, L, L)
        self.weights = self.recipe(scores, causal_mask(tokens.shape[1], device=tokens.device))  # kept, to look at
        return self.read_out(self.weights @ v).mT  # (B, 8, L): cross_entropy wants the 8 possible tokens in front


# %% [markdown]
# We train it with each recipe, and without a mask. Then we let each model write. The words to come do not exist yet when
# a chatbot writes, so nothing can leak; we imitate this with the right mask, `masked_softmax`, in all five. **Predict**:
# which losses are below 2.08 with the model's own recipe? And what becomes of them where nothing can leak?

# %% tags=["nbval-ignore-output"]
def loss_at_each_position(model, sequences):
    with torch.no_grad():
        return F.cross_entropy(model(sequences[:, :-1]), sequences[:, 1:], reduction="none").mean(dim=0).cpu()  # (L,)


random_tokens = torch.randint(8, (300 * 64, 7), device=device)  # 6 tokens to read, and each one's next; none is used twice
fresh = torch.randint(8, (4000, 7), device=device)
found, in_use = {}, {}
for name, recipe in ({"right": masked_softmax, "no mask": lambda s, mask: s.softmax(dim=-1)} | mistakes).items():
    torch.manual_seed(0)
    model = NextToken(recipe).to(device)
    train(model, random_tokens[:, :-1], random_tokens[:, 1:], steps=300)
    found[name] = loss_at_each_position(model, fresh)  # (L,)
    model.recipe = masked_softmax
    in_use[name] = loss_at_each_position(model, fresh).mean().item()
    print(f"{name:21} with its own recipe {found[name].mean():.2f}, with nothing to leak {in_use[name]:.2f}")
print(f"guessing: log 8 = {math.log(8):.2f}")

# %%
over_log_8 = {name: loss.mean().item() / math.log(8) for name, loss in found.items()}
course.verdict("right: loss over log 8", over_log_8.pop("right"), above=0.99, below=1.01)
course.verdict("without a mask: loss over log 8", over_log_8.pop("no mask"), below=0.5)
course.verdict("largest loss of the three mistakes, over log 8", max(over_log_8.values()), below=0.97)
smallest = min(loss for name, loss in in_use.items() if name != "right") / math.log(8)
course.verdict("with nothing to leak: smallest loss of the four that had a leak, over log 8", smallest, above=1.05)


# %% [markdown]
# A number in a divisor is enough: the two mistakes that leak through it alone, *mask after softmax* and *softmax over
# queries*, bring the loss below that of the right recipe, the second by little. So does *0 in place of −∞*, which leaves
# weight on the future itself. (One run each; an optional section looks at the single positions.) And every model that had
# a leak is worse than guessing under the right recipe. (For the softmax over queries that changes more than the leak.)
# There was no error, no warning, and with the leak the losses looked better.

# %% [markdown]
# ## Today
#
# - **GPT-2**
#   ([2019](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)), an
#   ancestor of ChatGPT, **BERT** ([2018](https://arxiv.org/abs/1810.04805)), which read search queries for Google, and
#   **ViT-Base** ([2021](https://arxiv.org/abs/2010.11929)), which sees, use the formula that you have built, with $D =
#   64$; **Llama 3** ([2024](https://arxiv.org/abs/2407.21783)) uses it with $D = 128$.
# - GPT-2 and Llama 3 write from left to right, under the causal mask. BERT has none, so its *it* may look ahead at
#   *tired*; [Clark et al. 2019](https://arxiv.org/abs/1906.04341) found a head in it in which a word often looks at an
#   earlier mention of the same thing.
# - **FlashAttention** ([Dao et al. 2022](https://arxiv.org/abs/2205.14135)) computes the same outputs without ever
#   storing the matrix of weights (notebook 15).

# %% [markdown]
# ## So what is *it*?
#
# A model can find out in two looks: *it* looks for an adjective, and then for the noun that the adjective fits. A
# translator has the whole sentence and can do that. From left to right *it* stays open: only *tired* or *wide*, the last
# word, can tell which noun is meant. (That training finds the two looks by itself, we have not shown: our trained head
# looked once.) And your predictions?
#
# 1. The ratio of animal to street is the same with *tired* and with *wide*, for any matrices. So one look is not enough.
# 2. The typical dot product becomes 16 times as large: it grows like $\sqrt d$.
# 3. The largest weight grows from 0.34 to 0.96. After a division by $\sqrt d$ it is 0.16 or 0.17 at every $d$.

# %% [markdown]
# ## Takeaways
#
# - A head asks with $q$, answers with $k$ and hands over $v$. A score depends on the vectors of two words only, so what a
#   third word says about them must have been handed over in an earlier look.
# - For independent entries of mean 0 and variance 1, $1/\sqrt d$ keeps the scores at variance 1. In 100 steps of our
#   look-up with Adam at a learning rate of 0.01 the mean loss was lower with it, in the large head by far.
# - A head found from the loss alone where to look.
# - A mask acts **before** the softmax, as $-\infty$, and True means "may attend".
# - The future can leak although its weights are 0. Derivatives show it, and so does a loss that is too good to be true.

# %% [markdown]
# ## Check yourself
#
# **1.** Most models have several heads side by side (notebook 03). A model shares 256 features out equally among 4
# heads. What is $d$ in $1/\sqrt d$?
#
# <details><summary>Answer</summary>
#
# 64, the head dimension: the dot product of a query and a key sums over that many terms.
#
# </details>
#
# **2.** On fresh random tokens, 8 kinds of them, a model has a loss of 1.4, and all its weights on the future are exactly
# 0. Is it a good model?
#
# <details><summary>Answer</summary>
#
# No: nothing can be known of random tokens, so an honest model has at least log 8 = 2.08. The future leaks, perhaps
# through the divisor of the softmax, as with *mask after the softmax*. Derivatives would show it.
#
# </details>
#
# **3.** Under a causal mask the first row of weights is always 1, 0, 0, …, whatever the scores are. Why?
#
# <details><summary>Answer</summary>
#
# The first word may attend to itself only. A softmax over a single number is 1.
#
# </details>

# %% [markdown]
# ## One more exercise, and a question
#
# ### Exercise 5 · hard · 12 minutes
#
# Break our attention: this time you write the *test*. `attention(query, key, value, attn_mask)` is somebody's version
# of exercise 2. It takes a query (L, D), a key (S, D), a value (S, D) and a mask (L, S), True = may attend, or None,
# and returns (L, D). Call it on inputs of your choice, and raise an AssertionError if what it returns is wrong
# (`assert …`, or `torch.testing.assert_close(got, expected)`).
#
# Your test accepts a version by raising nothing. It has to accept every right version, and to reject each of 26 faulty
# ones; you are told which faulty ones got through. (If a faulty version stops with an error of its own, it counts as
# rejected.) The right ones compute in float32, torch's usual numbers, and do not change their inputs. On inputs from
# `torch.randn` they agree with torch's within the default tolerance of `assert_close`; on larger numbers allow more.
# Gradients need no test. Use masks that leave each query at least one key.

# %%
def test_attention(attention):  # a version to be tested
    raise NotImplementedError  # AssertionError, or nothing


check.test_attention(test_attention)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A result to compare with can come from torch: `F.scaled_dot_product_attention(query, key, value, attn_mask=mask)` has
# our masks.
#
# </details>
# <details><summary>Hint 2</summary>
#
# For each step of the formula, ask on which inputs nobody would notice that it is missing. Take others: L, S and D all
# different, a mask that hides something.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def test_attention(attention):
#     for L, S, D in ((5, 7, 3), (4, 4, 2)):
#         query, key, value = torch.randn(L, D), torch.randn(S, D), torch.randn(S, D)
#         for attn_mask in (None, causal_mask(L, S)):
#             expected = F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)
#             torch.testing.assert_close(attention(query, key, value, attn_mask), expected)
# ```
#
# </details>

# %% [markdown]
# **Question** (middle, 5 minutes). In the look-up, which part of a pair's embedding should $W_k$ keep, and which $W_v$?
# And could one head tell *how many* of the eight pairs carry the value of the asked pair?
#
# <details><summary>Answer</summary>
#
# $W_k$ keeps the key, so that it meets the query; $W_v$ keeps the value, so that it can be handed over.
#
# Yes, if the asked pair leaves a little weight to each of the others, say 0.93 to itself and 0.01 to each of seven.
# Where each value has a coordinate of its own, that of the asked value is 0.93, and 0.01 more for every other pair that
# shares it. (What reads the output must find this largest coordinate, which is not a linear map.)
#
# </details>

# %% [markdown]
# ## Optional: are the gradients small?
#
# The required part ends here. Four optional sections follow, to be read in any order.
#
# What about the paper's "extremely small gradients"? We take the three heads of 256 at their start, and print how large
# their scores are, the mean size of the gradients of $W_q$ and $W_k$, and how far the first step of Adam moves a score.
# **Predict**: which head has the largest gradients?

# %% tags=["nbval-ignore-output"]
def start_scores(model, keys, values, asked):
    q = model.head.q_proj(model.key_embed(asked))[:, None]  # (B, 1, D)
    k = model.head.k_proj(model.key_embed(keys) + model.value_embed(values))  # (B, S, D)
    return (q @ k.mT / math.sqrt(k.shape[-1])).detach()  # (B, 1, S); .mT swaps the last two axes


print(f"{'':11} {'scores':>8} {'gradient of W_q':>16} {'of W_k':>8} {'first step moves a score by':>29}")
for name, start in starts.items():
    model = start(0, 256)
    before = start_scores(model, *test_set[:3])
    train(model, *training_set, steps=1)
    moved = (start_scores(model, *test_set[:3]) - before).abs().mean()
    of_q, of_k = (layer.weight.grad.abs().mean() for layer in (model.head.q_proj, model.head.k_proj))
    print(f"{name:11} {before.std():8.2f} {of_q:16.4f} {of_k:8.4f} {moved:29.2f}")


# %% [markdown]
# Without the scale the gradients are about ten times *larger*, not smaller. (One seed, and the first step only.) The
# blunt start tells why. Its softmax is that of the scaled head, but in the backward pass the factor 16 multiplies the
# gradient of $W_q$. The sharp softmax of the unscaled head takes away only a third of that, from 0.0147 to 0.0097.
#
# The scores and the first step are about 16 times as large without the scale, as the main part says. With the blunt start
# the first step still moves a score about 9 times as far as in the scaled head. (The scaled scores do not have variance
# 1, since queries and keys of a fresh `nn.Linear` have not.)
#
# So is the paper's suspicion wrong? The Jacobian of the softmax says how much weight $i$ moves if score $j$ moves:
# $\partial w_i / \partial s_j = w_i(\delta_{ij} - w_j)$, where $\delta_{ij}$ is 1 if $i = j$ and 0 otherwise.
#
# **Question** (easy, 2 minutes). What are its entries if one weight is 1 and the rest are 0?
#
# <details><summary>Answer</summary>
#
# All are 0, so nothing passes back to the scores.
#
# </details>

# %%
def softmax_jacobian(w):
    return torch.diag_embed(w) - w[..., :, None] * w[..., None, :]  # (..., S, S)


def gradient_sizes(scores):  # one for each of 1000 queries
    return torch.linalg.matrix_norm(softmax_jacobian(scores.softmax(dim=-1)))


row = raw[4][0]
by_torch = torch.autograd.functional.jacobian(lambda s: s.softmax(dim=-1), row)
torch.testing.assert_close(softmax_jacobian(row.softmax(dim=-1)), by_torch)

# %% [markdown]
# We compare what reaches the dot product $q \cdot k$. Without the scale, the product is the score. With it, the score
# is the product divided by $\sqrt d$, so by the chain rule the gradient at the product is the gradient at the score,
# divided by $\sqrt d$. How much passes back for one query, we measure by the norm of its Jacobian (the root of the sum
# of all squared entries), and for 1000 queries by the **median**, the typical query, and by the **mean**. **Predict**:
# is more passed back with the scale or without, by either measure?

# %%
passed = {d: (gradient_sizes(raw[d]), gradient_sizes(scaled[d]) / math.sqrt(d)) for d in sizes}  # at the product q·k
_, axes = plt.subplots(1, 2, figsize=(9.4, 3.4), layout="constrained", sharey=True)
ratio = {}
for ax, middle in zip(axes, (torch.median, torch.mean), strict=True):
    unscaled, with_scale = ([(d, middle(passed[d][n]).item()) for d in sizes] for n in (0, 1))
    title = f"{middle.__name__} of 1000 queries"
    plotting.curves({"unscaled": unscaled, "scaled": with_scale}, xlabel="d", ylabel="norm of the Jacobian at q·k", title=title, logy=True, ax=ax)
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, labels=sizes)
    plt.setp(ax.lines[0], marker="o")
    plt.setp(ax.lines[1], marker="s", markerfacecolor="none")
    ratio[middle.__name__] = {d: back / plain for (d, back), (_, plain) in zip(with_scale, unscaled, strict=True)}
plotting.show("Two lines, without the scale and with it, against the head dimension: on the left medians of 1000 queries, on the right means.")

# %%
course.verdict("d = 64, median: scaled over unscaled", ratio["median"][64], below=1)
course.verdict("d = 1024, median: scaled over unscaled", ratio["median"][1024], above=1)
course.verdict("d = 1024, mean: scaled over unscaled", ratio["mean"][1024], below=1)
for n, name in enumerate(("unscaled", "scaled")):
    largest = passed[1024][n].sort(descending=True).values[:100].sum() / passed[1024][n].sum()
    print(f"d = 1024, {name}: the 100 queries that pass back most have {largest:.0%} of the sum")

# %% [markdown]
# At $d = 1024$ the two disagree. For the typical query next to nothing passes without the scale: these are the small
# gradients of the paper. But in the mean *more* passes without the scale, at every $d$: at 1024 a tenth of the queries
# pass back more than two thirds of it. Training adds up the gradients of many queries, so the typical one is a poor
# guide.
#
# Our look-up started without the scale at scores of size 7.6, like random ones at $d = 64$, where $\sqrt{64} = 8$.
# There more passes back without the scale by the median, too, so its large gradients are no contradiction. (These are
# random scores of 32 keys; the look-up has 8. Whether its gradients become small after the first step, we have not
# measured.)

# %% [markdown]
# ## Optional: what a leak tells, position by position
#
# The five models that read random tokens have a loss at each position. (A bright cell is a high loss here.)

# %%
at_the_end = min(loss[5].item() for name, loss in found.items() if name not in ("right", "mask after softmax"))
course.verdict("last position: smallest loss of the other three, over log 8", at_the_end / math.log(8), above=1.02)
rows = torch.stack(list(found.values()))  # (5, L)
_, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
plotting.heatmap(rows, rows=list(found), xlabel="position", ylabel="", title=f"loss at each position; a guess has {math.log(8):.2f}", ax=ax)
plotting.show(
    "A table of losses with a row for each recipe and a column for each position. Without a mask the loss is almost 0 at "
    "all positions but the last; with 0 in place of minus infinity it falls to almost 0 at the last but one."
)

# %% [markdown]
# Without a mask five of the six answers can be copied, so the mean loss could be as low as $(\log 8)/6 = 0.35$; the
# last position lifts it above that. How the mask after the softmax tells so much through no more than the sum of a row,
# we have not found out. At the last position there is nothing to copy. There three models are clearly *worse* than
# guessing, and the mask after the softmax is by little, if at all.
#
# **Question** (middle, 3 minutes). Why worse?
#
# <details><summary>Answer</summary>
#
# The read-out is the same at all positions, and it has learned to trust what a leak says. The vector of the last
# position could tell it that nothing is to be had there; perhaps 300 steps are too few to learn that. (We have not
# tested this.)
#
# </details>
#
# **Question** (middle, 3 minutes). With *0 in place of −∞*, why does the loss fall from left to right, to almost 0 at
# position 4?
#
# <details><summary>Answer</summary>
#
# All later words have the score 0, so they share their weight equally. From position 0 the model sees the average of
# five later words, and knows which words are coming, but not which of them is next. The fewer words are left, the
# better it can guess. At position 4 only one is left, and the average of one word is that word.
#
# </details>
#
# The answer can be tested: how low could the loss be for someone who knows which words are coming, but not their order?

# %% tags=["nbval-ignore-output"]
for position in range(5):
    coming = F.one_hot(fresh[:, position + 1 : 6], 8).double().mean(dim=1)  # (N, 8): the share of each token among those to come
    bound = torch.special.entr(coming).sum(dim=-1).mean().item()  # guess in these shares
    print(f"position {position}: loss of the model {found['0 in place of −∞'][position]:.2f}, of one who knows the words to come {bound:.2f}")


# %% [markdown]
# Both fall together, with the model somewhat above the bound, as the explanation predicts.
#
# In the main part all models got the right mask at the end. For the softmax over queries this changes more than the
# leak, so its loss there says less. And how much a leak helps does not tell what its loss will cost: the mask after the
# softmax had gained less than two others and then did worst (one run of each).

# %% [markdown]
# ## Optional: masks of your own, padding, and rows with nothing left
#
# A click on a square, or Tab and Space, switches it. At first each word may look at itself and at the two words before.
# Switch off one square: what happens to the other weights of its row? And what, when you empty a row?

# %%
def under_a_mask(on, scores=scores):
    mask = torch.tensor(on)  # (L, S)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    names = {"rows": tokens, "columns": tokens}
    plotting.heatmap(scores.masked_fill(~mask, math.nan), title="scores that are left", signed=True, ax=axes[0], **names)
    plotting.heatmap(masked_softmax(scores, mask).masked_fill(~mask, math.nan), title="weights", vmax=1, ax=axes[1], **names)
    return figure


explore(under_a_mask, alt="Scores and weights: both are left in a band of three, on and just below the diagonal.", on=Switches(causal.triu(-2)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# The other weights of the row all grow by the same factor, so their ratios stay: the numerators $e^{s_{ij}}$ are the
# same, and only the common divisor has lost a term. An empty row has no weights; the package makes them 0, where a
# plain softmax gives NaN (not a number), since its formula divides 0 by 0.
#
# </details>
#
# `F.scaled_dot_product_attention` agrees with us that True means "may attend". `nn.MultiheadAttention` means the
# opposite: True = **may not**. If you hand it our mask as it is, it looks at the future only. (The check leaves out
# the last query, which then has nothing left to look at.)

# %%
theirs = nn.MultiheadAttention(5, num_heads=1, dtype=torch.float64)
_, turned = theirs(x, x, x, attn_mask=~causal)  # (L, S)
_, as_it_is = theirs(x, x, x, attn_mask=causal)
print("turned round: looks where it may:", torch.equal(turned > 0, causal))
print("as it is: looks where it may not:", torch.equal(as_it_is[:5] > 0, ~causal[:5]))

# %% [markdown]
# A second kind of mask hides [**padding**](../docs/glossary.md#p). Sentences of a batch have different lengths, and the
# short ones are filled up. Two masks are combined with `&`.

# %%
padding = padding_mask([6, 4], 6)  # (B, 1, 1, S): of a sentence of 6 words and one of 4
short = padding[1, 0].expand(6, 6)  # (L, S): the second sentence; its one row holds for every query
masks = torch.stack([causal, short, causal & short])  # (3, L, S)
plotting.heads(masks, titles=["causal", "4 words, 2 filled up", "both"])
plotting.show(
    "Three masks with ticks where a query may attend: a triangle for causal, the first four columns for padding, and "
    "what both allow."
)

# %% [markdown]
# The last two rows of the short sentence are padding themselves. What they compute is thrown away.
#
# Where several texts are continued at once, padding often stands on the **left**, so that the new words begin in one
# column. Together with the causal mask, the first queries then may not attend to anything. A plain softmax divides 0
# by 0 there. In the package such a row is 0, and so it is in the SDPA of the torch that runs here.

# %%
real = torch.tensor([False, False, True, True, True, True])  # (S,): two positions of padding in front
nothing_left = causal & real  # (L, S), True = may attend; its first two rows have nothing left
by_hand = scores.masked_fill(~nothing_left, -math.inf).softmax(dim=-1)
print("plain softmax  ", by_hand[0].tolist())
print("masked_softmax ", masked_softmax(scores, nothing_left)[0].tolist())
print("SDPA, output   ", F.scaled_dot_product_attention(query, key, value, attn_mask=nothing_left)[0].tolist())

# %% [markdown]
# The gradient matters even more. Suppose that the loss uses only the last row, which is sound, and throws the others
# away. In the backward pass the empty row still takes part: the gradient that reaches it is 0, but 0 × NaN is NaN. A
# step of training subtracts a multiple of the gradient, and what is left is NaN, too.

# %%
heads = {
    "plain softmax": lambda q, k, v: (q @ k.mT / math.sqrt(3)).masked_fill(~nothing_left, -math.inf).softmax(-1) @ v,
    "masked_softmax": lambda q, k, v: masked_softmax(q @ k.mT / math.sqrt(3), nothing_left) @ v,
    "SDPA": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=nothing_left),
}
for name, head in heads.items():
    leaf = x.clone().requires_grad_()  # (L, E)
    head(leaf @ W_q, leaf @ W_k, leaf @ W_v)[-1].sum().backward()  # the loss: row 5 alone
    print(f"{name:14} words with a NaN gradient: {leaf.grad.isnan().any(dim=-1).sum()} of 6")


# %% [markdown]
# **Question** (middle, 5 minutes). Many programs write $-10^9$ in place of $-\infty$. What does a wholly masked row
# become then? And what if the scores are float16, numbers of half the usual size?
#
# <details><summary>Answer</summary>
#
# Filled in by `masked_fill`, all scores of the row are $-10^9$ and thus equal: the weights are uniform, so the row
# quietly attends to everything that it must not see. There is no NaN and no warning. In float16 the largest number is
# 65504, so $-10^9$ does not fit: torch raises an error, or it becomes $-\infty$ and the NaN is back.
#
# </details>

# %% [markdown]
# ## Optional: trainable masks
#
# A mask need not be yes or no. One number for each pair of positions can be **added** to its score (it starts at 0),
# or can **multiply** it (it starts at 1), and training changes these numbers. (Section 3 of [Press et al.
# 2022](https://arxiv.org/abs/2108.12409) adds fixed numbers.)

# %%
class AdditiveMask(nn.Module):
    def __init__(self, length=6):
        super().__init__()
        self.mask = nn.Parameter(torch.zeros(length, length))  # (L, S)

    def forward(self, scores, attn_mask):  # (B, L, S), (L, S) or None
        return masked_softmax(scores + self.mask, attn_mask)


class MultiplicativeMask(nn.Module):
    def __init__(self, length=6):
        super().__init__()
        self.mask = nn.Parameter(torch.ones(length, length))  # (L, S)

    def forward(self, scores, attn_mask):  # (B, L, S), (L, S) or None
        return masked_softmax(scores * self.mask, attn_mask)


# %% [markdown]
# Could such a mask stand **in place of** the causal one, or should it stand **beside** it? Ask your leak detector,
# before any training.

# %%
for Mask in (AdditiveMask, MultiplicativeMask):
    beside = Mask().double()
    for name, recipe in {"in place of": lambda s, _, mask=beside: mask(s, None), "beside": beside}.items():
        print(f"{Mask.__name__:18} {name:11} the causal mask leaks: {future_leaks(partial(one_head, recipe=recipe), random_x)}")

# %% [markdown]
# In place of it, either kind leaks at its start, and by the formula no finite number makes a weight exactly 0. Beside
# it, a trainable mask can learn *where* to look. Take sequences that repeat every three tokens, so that the next token
# stands two positions back. The model gets no position vectors: only its mask knows about positions.

# %% tags=["nbval-ignore-output"]
repeating = torch.randint(8, (300 * 64, 3), device=device).repeat(1, 3)[:, :7]  # (N, 7): a b c a b c a


def with_mask_alone(Mask):
    torch.manual_seed(0)
    model = NextToken(Mask()).to(device)
    model.position.weight.requires_grad_(False).zero_()
    train(model, repeating[:, :-1], repeating[:, 1:], steps=300, lr=0.03)
    return model


by_mask = {"additive": with_mask_alone(AdditiveMask), "multiplicative": with_mask_alone(MultiplicativeMask)}
for name, model in by_mask.items():
    print(f"{name:14} loss at each position", [round(loss, 2) for loss in loss_at_each_position(model, repeating[:2000]).tolist()])

# %%
maps = torch.stack([model.weights.mean(dim=0).cpu() for model in by_mask.values()])  # (2, L, L), of these 2000 sequences
names = {"rows": list("abcabc"), "columns": list("abcabc")}
plotting.heads(maps.masked_fill(~causal, math.nan), titles=list(by_mask), **names)
plotting.show("Mean weights of two models: from the third row on, nearly all weight lies two or five positions back.")
hits = sum(int(row.argmax()) in (i - 2, i - 5) for rows in maps for i, row in enumerate(rows) if i >= 2)
course.verdict("rows (of 8) that look most at 2 or 5 positions back", hits, above=7)

# %% [markdown]
# From position 2 on the loss is small, and the head looks where the answer stands. Before, nothing can be predicted.
#
# **Question** (hard, 5 minutes). Why is the loss at position 0 even above $\log 8 = 2.08$, and why is it 0.27 or 0.28,
# and not 0, at the end?
#
# <details><summary>Answer</summary>
#
# At position 0 the head can look only at that position, so it hands over one token, and in 1 of 8 cases this is the
# answer. From position 2 on it hands over one token, too, and this is always the answer. Without position vectors the
# read-out cannot tell the two cases apart. So it compromises: it gives the token that it is handed a probability of about
# $e^{-0.27} = 0.76$, too high for position 0 and too low for the others. (Position 1, where it may hand over a mean of
# two tokens, pulls at the compromise as well.)
#
# </details>
#
# We read the *weights*, not the masks. A large entry of an additive mask does mean "look here". A large entry of a
# multiplicative mask means "look here" only where the score is positive: a negative score becomes more negative.
#
# **Question** (easy, 2 minutes). Does an entry of 0 hide a key?
#
# <details><summary>Answer</summary>
#
# In neither kind of mask. Added, 0 changes nothing. Multiplied, it makes the score 0, and $e^0 = 1$ is a weight like any
# </details>
#
# Is such a mask worth it in a model that has position vectors anyway? In recorded runs small transformers were trained
# with either, ten times each, and compared with the same model without it (*dot*).

# %%
for name, metric in (("recipes-text", "validation loss"), ("recipes-images", "test accuracy")):
    for arm in ("dot", "additive_mask", "multiplicative_mask"):
        print(records.describe_record(name, metric, "quick", arm=arm))

# %% [markdown]
# On Shakespeare the loss falls by about 0.25, with either. (A mask of its own for each head adds parameters, which alone
# may help; the records do not separate the two.) On digits the accuracy is higher by less than the one point that this
# course calls a difference that matters ([all claims, measured](../docs/measured.md); notebook 16).

# %% [markdown]
# ## To read, and what comes next
#
# - [Vaswani et al. 2017](https://arxiv.org/abs/1706.03762), *Attention is all you need*: section 3.2.1 for the
#   formula and the footnote on the variance, 3.2.3 for masking, and the pictures of heads at the end.
# - [Uszkoreit
#   2017](https://research.google/blog/transformer-a-novel-neural-network-architecture-for-language-understanding/):
#   the report with *tired* and *wide*; look at the picture of *it*.
# - [Clark et al. 2019](https://arxiv.org/abs/1906.04341), *What does BERT look at?*: section 4, on single heads and
#   what each of them finds.
# - `sciformer/teach/export/forward.js`: the same head in another language, by which the course's web page computes.
#
# A head has one query for each word, and one row of weights: whatever the word asks for, it gets one mixture. But a verb
# has a subject, an object and a tense to look for, and wants to keep them apart. Could one head answer all three?
# Notebook 03 begins there.
