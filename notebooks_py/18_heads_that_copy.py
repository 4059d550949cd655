# %% [markdown]
# # 18 Heads that copy
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/18_heads_that_copy.ipynb)
#
# ← [17 A score of your own](17_your_own_score.ipynb) · [the map of the course](00_welcome.ipynb)
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb) · taken apart **18**
#
# Needs: notebooks 04, 08 and 09; for the comparison of scores also 07, 10 and 16 · runs in about 85 s on two CPU cores · about 2½ hours of study

# %% [markdown]
# Write to a chat program: *In my village a plonnet is a small boat. We went fishing in our pl…* It goes on with *plonnet*, a word that we have
# just made up. None of its weights changed while you typed. **How can a frozen model learn from its prompt?** The program reads an unknown word as
# a sequence of tokens that it knows; what is new to it is their order. We take apart the simplest case, a model that copies from its prompt: all
# of its 48 tokens occur in training, and only their order is new each time.
#
# In 2020 [Brown and colleagues](https://arxiv.org/abs/2005.14165) showed that GPT-3 picks up new tasks from a few examples in its prompt, and
# called this **[in-context learning](../docs/glossary.md#i)**. In 2021 [Elhage and
# colleagues](https://transformer-circuits.pub/2021/framework/index.html) took small transformers with attention alone apart, and found heads that
# copy. In 2022 [Olsson and colleagues](https://arxiv.org/abs/2209.11895) asked when such heads appear in the training of many models, and what
# the models can do from then on.
#
# After this notebook you can
#
# - train a model of attention alone, and follow its loss and its heads through the training;
# - recognise heads that copy by their maps, and by numbers that say where they look;
# - test what a trained model needs these heads for, by silencing them and by exchanging single tensors;
# - say whether one layer can do it, too, and whether every attention score can, and why.

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
from functools import partial
from itertools import combinations_with_replacement

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

from sciformer import AttentionOnly as PackageAttentionOnly
from sciformer import DotProductScore, LearnedPositions, MultiHeadAttention, SeparableAdditiveScore
from sciformer import check, course, metrics, plotting, records, trained
from sciformer.data import repeated_blocks, shakespeare
from sciformer.teach.diagrams.circuits import two_heads

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# **Predict**, and write your answers down. Each is settled below, beside a measured number.
#
# 1. A model reads random tokens, then the same tokens again. It has two layers of attention and nothing else. Does its loss fall steadily in
#    training, or at one moment?
# 2. A model with one layer gets the same training. How often is it right on tokens that it could copy: always, half the time, or one time in ten?
# 3. In notebook 09 the separable score was cheap, because its weights do not depend on the query. Can it do this task?
#
# ## Sequences that can only be copied
#
# We want a task on which nothing helps but the context. Each sequence is a block of 12 to 32 distinct random tokens, repeated until 65 tokens are
# there. The length of the block is its **period**. Inside the first block the next token is random, and only those already read are ruled out.
# After the last token of the block the first one returns, and nobody can foresee exactly when. As soon as a token is read for the second time,
# like the second *pl* of our story, whoever remembers the first block knows every next token. No pair of tokens is more frequent than another, so
# there is nothing to memorise, and the period varies, so that it helps little to look a fixed number of steps back.
#
# How long we train depends on the [profile](../docs/glossary.md#p), the size of the experiments: the *quick* profile, made for two CPU cores,
# takes 600 steps, as many as the earlier trainings, kept in a file, that we compare with below.

# %%
V, L, E, H = 48, 64, 64, 4
steps = {"quick": 600, "full": 2000}[course.profile()]
train_set, _ = repeated_blocks(2 * 32 * steps, seed=0)  # (N, L + 1): enough for twice as many steps
test_set, period = repeated_blocks(500, seed=1_000_000)
print("period", period[0].item(), "tokens", test_set[0, :40].tolist())

# %%
inputs, targets = test_set[:, :-1], test_set[:, 1:]  # (B, L) each
again = torch.arange(L) >= period[:, None]  # (B, L): the token that is read has stood in the sequence before
print(f"{again.float().mean():.0%} of the tokens can be copied; guessing is right one time in {V}")

# %% [markdown]
# ## The model
#
# How could attention solve this? Write five letters on paper, *A B C D A*. The model has just read the last *A*, and should predict *B*. Attention
# compares what two tokens carry, and at first a token carries its own name and its position. How could the last *A* find the *B*? Look for a way
# before you unfold the answer; there is more than one.
#
# <details><summary>Two ways</summary>
#
# *B* does not carry that an *A* stood before it. Its position does not help, since the last *A* does not know the period. So one look is not
# enough. Two looks are, in two layers, if the first leaves a note for the second:
#
# - **A note in the key.** First every token looks one step back and notes what it saw, so *B* notes that it comes right after an *A*. Then the
#   last *A* asks: *which token has noted that it comes right after an A?*
# - **A note in the query.** First the last *A* looks for the earlier *A*, by its name, and notes that one's position. Then it looks at the
#   position after it.
#
# </details>
#
# On paper both work: the first way leaves a note in the key of *B*, the second one in the query of the last *A*. (Open the answer if you found only
# one.) Which of them does a trained model take? An experiment will decide. The picture shows the first. Its solid arrows
# show where information flows, so a head looks against its arrow. The dashed arrow carries nothing: it leads from a query to the key that it matches.
# We count layers from 1, but the code counts from 0, as Python does: layer 1 is `attentions[0]`. Heads are counted from 0 everywhere.

# %%
two_heads(["A", "B", "C", "D", "A"])
plotting.show(
    "Five tokens in three rows, the first way: in layer 1 every token looks at the one before it; in layer 2 the query of the last A matches"
    " the B that carries a note saying that an A stood before it, and B is predicted."
)

# %% [markdown]
# In layer 1 a **[previous-token head](../docs/glossary.md#p)** (blue arrows) lets every token look one step back and write down what it saw: the box
# of *B* then says that *B* comes right after an *A*. In layer 2 an **[induction head](../docs/glossary.md#i)** (the orange arrow) finds the key that
# carries this note, and hands *B* on as the prediction. The second *plonnet* can be written in the same way: after *pl* the model looks for what
# stood after *pl* before. That one head works with what another has written is what Elhage et al. call
# **[composition](../docs/glossary.md#c)**.
#
# To see this and nothing else, we leave the feed-forward networks out, as Elhage et al. did. So a layer is small:

# %%
print(f"{sum(p.numel() for p in MultiHeadAttention(E, H).parameters()):,} parameters in the attention of a layer")
print(f"{sum(p.numel() for p in LearnedPositions(E, L).parameters()):,} parameters in the positions")


# %% [markdown]
# ### Exercise 1 · middle · 10 minutes
#
# Build the model from parts that you have built before. Its attributes, in this order:
#
# - `embedding`: an `nn.Embedding`;
# - `positions`: `LearnedPositions(embed_dim, max_length)`;
# - `norms`: an `nn.ModuleList` with one `nn.LayerNorm(embed_dim)` for each layer;
# - `attentions`: an `nn.ModuleList` with one `MultiHeadAttention(embed_dim, num_heads, score=score)` for each layer;
# - `norm`: one more layer norm;
# - `read_out`: an `nn.Linear` with bias to the vocabulary.
#
# What `forward` does:
#
# - It embeds the tokens and adds the positions (`positions(x)` returns the sum).
# - Every layer then adds $\text{attention}(\text{norm}(x))$ to $x$. Call attention with this one tensor, `is_causal=True` and
#   `need_weights=need_weights`; it returns its output and its weights (`None` where they are not asked for).
# - It returns two things: the logits `read_out(norm(x))`, (B, L, V), and a list with what each layer gave as weights,
#   first layer first. Where no weights are asked for, the list may hold a `None` for each layer, or nothing.

# %%
class AttentionOnly(nn.Module):
    def __init__(self, vocab_size, max_length, embed_dim, num_heads, num_layers, score=DotProductScore):
        super().__init__()
        raise NotImplementedError  # six attributes

    def forward(self, tokens, need_weights=False):  # (B, L), whole numbers
        raise NotImplementedError  # (B, L, V), a list of (B, H, L, L)


AttentionOnly = check.AttentionOnly.use(AttentionOnly)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `__init__` makes six attributes, in the order of the list. Two of them are an `nn.ModuleList` with one entry for each layer.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `forward` has one loop: `for norm, attention in zip(self.norms, self.attentions)`. Attention returns a pair: add the first to x, and append
# the second to a list.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# class AttentionOnly(nn.Module):
#     def __init__(self, vocab_size, max_length, embed_dim, num_heads, num_layers, score=DotProductScore):
#         super().__init__()
#         self.embedding = nn.Embedding(vocab_size, embed_dim)
#         self.positions = LearnedPositions(embed_dim, max_length)
#         self.norms = nn.ModuleList(nn.LayerNorm(embed_dim) for _ in range(num_layers))
#         self.attentions = nn.ModuleList(
#             MultiHeadAttention(embed_dim, num_heads, score=score) for _ in range(num_layers)
#         )
#         self.norm = nn.LayerNorm(embed_dim)
#         self.read_out = nn.Linear(embed_dim, vocab_size)
#
#     def forward(self, tokens, need_weights=False):  # (B, L), whole numbers
#         x, maps = self.positions(self.embedding(tokens)), []  # (B, L, E)
#         for norm, attention in zip(self.norms, self.attentions, strict=True):
#             y, weights = attention(norm(x), is_causal=True, need_weights=need_weights)
#             x = x + y
#             maps.append(weights)
#         return self.read_out(self.norm(x)), maps  # (B, L, V), a list of (B, H, L, L)
# ```
#
# </details>

# %% [markdown]
# Is it the package's? Both get the same weights, in double precision.

# %%
package = PackageAttentionOnly(V, L, E, H, num_layers=2).double()
mine = AttentionOnly(V, L, E, H, num_layers=2).double()
print(mine.load_state_dict(package.state_dict()))
logits, maps = mine(inputs[:8], need_weights=True)
torch.testing.assert_close(logits, package(inputs[:8]))
torch.testing.assert_close(maps, package.attention_weights(inputs[:8]))
print("same: logits, and the weights of both layers")


# %% [markdown]
# ## Train it, and watch
#
# The embeddings start with a standard deviation of 0.02, as learned positions do; notebook 04 showed that otherwise one drowns the other. The
# optimiser is AdamW (notebook 08) with a warm-up. In every step we keep two losses apart: after the first 12 tokens, which stand in the first block
# of every sequence, and after tokens 32 to 63, which are repetitions in every sequence. The tokens between them are trained on, too, but enter
# neither loss: they are repetitions in some sequences only. Every ten steps we keep a copy of the parameters, for later.
#
# Lines that begin with *ok* are verdicts: each compares a measured number with a bound, which is set by hand unless a theorem gives it.
# (`measured="quick"` marks bounds that are judged in the quick profile only.)

# %%
def train(num_layers, steps, embed_dim=E, num_heads=H):
    model = AttentionOnly(V, L, embed_dim, num_heads, num_layers).to(device)
    nn.init.normal_(model.embedding.weight, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.99))
    losses, snapshots = [], []
    for step in range(steps):
        batch = train_set[32 * step : 32 * step + 32].to(device)  # (B, L + 1)
        optimizer.param_groups[0]["lr"] = 3e-3 * min(1, (step + 1) / 50)
        if step % 10 == 0:
            snapshots.append((step, copy.deepcopy(model.state_dict())))
        loss = F.cross_entropy(model(batch[:, :-1])[0].mT, batch[:, 1:], reduction="none")  # (B, L)
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
        losses.append([loss[:, :12].mean().item(), loss[:, 32:].mean().item()])  # periods are 12 to 32
    return model.cpu().requires_grad_(False), torch.tensor(losses), snapshots


def share_right(model):
    return (model(inputs)[0].argmax(dim=-1) == targets)[again].float().mean().item()


# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
model, losses, snapshots = train(2, steps)
print(f"share of right answers on what can be copied: {share_right(model):.3f}")
floor = sum(math.log(V - read) for read in range(1, 13)) / 12  # the tokens of a block are distinct
print(f"loss on the first 12 tokens: mean of the last 100 steps {losses[-100:, 0].mean():.3f}")
print(f"guess among all {V} tokens: {math.log(V):.3f}; among those that have not been read: {floor:.3f}")

# %%
parts = {"the first 12 tokens: nothing to copy": losses[:, 0].tolist(), "tokens 32 to 63: all can be copied": losses[:, 1].tolist()}
ax = plotting.curves(parts, smooth=5, ylabel="loss", title="loss of two layers")
for level in (math.log(V), floor):
    ax.axhline(level, color="0.6", ls=":")
plotting.show("The loss on the first tokens stays above two dotted lines, two ways of guessing. That on repeated tokens falls slowly, and then drops to nearly 0.")
course.verdict("two layers: share right on what can be copied", share_right(model), above=0.5)

# %% [markdown]
# Your first prediction: nearly at one moment. The loss on repeated tokens sinks slowly for about 200 steps, and then drops to nearly 0 within a
# hundred, most of it within fifty. A drop of this kind is called a **phase change**; Olsson et al. saw one in every model with two or more layers
# that they trained.
#
# The dotted lines are the two guesses printed above the picture: the upper one among all tokens, the lower one among those that have not been read.
# (The lower one neglects that after a block of 12 the first token returns.) The loss on the first tokens stays a little above the upper line: on the
# whole our model gains nothing by ruling out what it has read, and around the drop it gets even worse.

# %% [markdown]
# ## Look at the maps
#
# One sequence of the test set, in which the block has 20 tokens, and the weights of the eight heads. A row is a query, a column a key. Where
# would a head be bright that looks one token back, and where one that looks at the token **after the earlier copy** of its own? Say it before you
# look. The second picture enlarges the upper left corner of the first.

# %%
maps = model(inputs, need_weights=True)[1]  # (B, H, L, L) for each layer
one = int((period == 20).nonzero()[0])  # a sequence that repeats after 20 tokens
plotting.heads(maps[0][one], titles=[f"layer 1, head {h}" for h in range(H)])
plotting.show("Layer 1: four maps, each bright near its diagonal and dark elsewhere; head 0 is the brightest.")

# %%
plotting.heads(maps[0][one][:, :12, :12], titles=[f"layer 1, head {h}" for h in range(H)])
plotting.show("The same four maps, the first 12 queries and keys alone, large enough to tell the diagonal from the squares beside it.")

# %%
plotting.heads(maps[1][one], titles=[f"layer 2, head {h}" for h in range(H)])
plotting.show("Layer 2: until the block repeats, the first columns are bright; then lines parallel to the diagonal, to its left.")


# %% [markdown]
# In layer 1, head 0 is brightest at the previous token, just left of the diagonal. This line is sharp down to query 30 or so, and fades below, where
# a faint cloud over the first keys appears. The bands of the other heads are wider, and include the token itself.
#
# In layer 2, as long as there is nothing to copy, all four heads look mainly at the first two or three tokens. At query 20 the block begins to repeat,
# and a line begins: each token looks at what followed its earlier copy. From query 40 on there are two copies. A second line begins, further to the
# left, and the first one fades: the heads turn to what followed the *older* copy. At query 60 a third begins. (Perhaps the older copy has the better
# note, since head 0 of layer 1 is sharp only near the beginning. We have not tested this.)
#
# Pictures persuade easily, and cannot tell 19 columns from 20. We turn both observations into numbers. The field calls them *scores* too; they have
# nothing to do with attention scores. To see whether a score is high, we compare it with that of **uniform weights**, of a head that looks alike at
# all tokens up to its own.
#
# ## A head that looks one token back
#
# ### Exercise 2 · easy · 4 minutes
#
# `previous_token_score(weights)` gets causal weights of shape (B, H, L, L), query before key, with L at least 2. It returns a tensor of shape
# (H,): for each head, the mean weight of a query on the token just before it, over all queries but the first and over all sequences.

# %%
def previous_token_score(weights):  # (B, H, L, L)
    raise NotImplementedError  # (H,)


previous_token_score = check.previous_token_score.use(previous_token_score)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Row i of a map belongs to query i. In which column of that row does the token before it stand?
#
# </details>
# <details><summary>Hint 2</summary>
#
# `weights.diagonal(-1, dim1=-2, dim2=-1)` has shape (B, H, L − 1). Over which two axes is the mean?
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def previous_token_score(weights):  # (B, H, L, L)
#     return weights.diagonal(-1, dim1=-2, dim2=-1).mean(dim=(0, 2))  # (H,)
# ```
#
# </details>

# %%
torch.testing.assert_close(previous_token_score(maps[0]), metrics.previous_token_score(maps[0]))
uniform = torch.ones(L, L).tril() / torch.arange(1, L + 1)[:, None]  # a head that looks at all tokens alike
uniform = uniform.expand(len(period), 1, L, L)  # (B, 1, L, L)
lookback = torch.stack([previous_token_score(weights) for weights in maps])  # (layers, H)
plotting.heatmap(lookback, rows=["layer 1", "layer 2"], columns=[f"head {h}" for h in range(H)], title="previous-token score", xlabel="", ylabel="")
plotting.show("A table of eight scores: those of layer 1 are bright, those of layer 2 dark.")
ratio = lookback[0].max() / previous_token_score(uniform)[0]
course.verdict("layer 1, highest previous-token score over that of uniform weights", ratio.item(), above=2)


# %% [markdown]
# Head 0 of layer 1 puts nearly two fifths of its weight on the token before, the others about a quarter: four to seven times as much as with uniform
# weights (0.06). (Heads 1 to 3 give the token itself still more.)
#
# ## A head that looks at the token after the earlier copy
#
# An induction head looks for a key whose **prefix**, the token just before it, is the token that the query has read. Olsson et al. call this
# **[prefix matching](../docs/glossary.md#p)**.
#
# ### Exercise 3 · hard · 12 minutes
#
# In a sequence of period p, the token at position $i \ge p$ stood at $i - p$ before.
# `prefix_matching_score(weights, period)` gets weights of shape (B, H, L, L) and the periods, whole numbers of shape (B,), each from 1 to L − 1.
# It returns a tensor of shape (H,): for each head the mean weight of query $i$ on the key that followed this copy, over all queries
# $i = p, \dots, L - 1$ of all sequences. Every query counts alike: a sequence with more repeated tokens counts more. Plain loops are fine here.

# %%
def prefix_matching_score(weights, period):  # (B, H, L, L), (B,)
    raise NotImplementedError  # (H,)


prefix_matching_score = check.prefix_matching_score.use(prefix_matching_score)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Take one sequence and one query i. Its token stood at i − p before. Which token followed it there?
#
# </details>
# <details><summary>Hint 2</summary>
#
# Two loops, over the sequences and over i from p to L − 1, collect `weights[b, :, i, i - p + 1]`, a number for each head. `torch.stack` them
# all, and take one mean.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def prefix_matching_score(weights, period):  # (B, H, L, L), (B,)
#     found = []
#     for of_one, p in zip(weights, period.tolist(), strict=True):
#         for i in range(p, weights.shape[-1]):
#             found.append(of_one[:, i, i - p + 1])  # (H,)
#     return torch.stack(found).mean(dim=0)  # (H,)
# ```
#
# </details>

# %%
matching = torch.stack([prefix_matching_score(weights, period) for weights in maps])  # (layers, H)
torch.testing.assert_close(matching[1], metrics.prefix_matching_score(maps[1], period))
plotting.heatmap(matching, rows=["layer 1", "layer 2"], columns=[f"head {h}" for h in range(H)], title="prefix-matching score", xlabel="", ylabel="")
plotting.show("A table of eight scores: those of layer 1 are nearly 0, those of layer 2 bright.")
ratio = matching[1].max() / prefix_matching_score(uniform, period)[0]
course.verdict("layer 2, highest prefix-matching score over that of uniform weights", ratio.item(), above=10)
on_copy = prefix_matching_score(maps[1], period + 1)  # key i - p, one column to the left
course.verdict("layer 2, lowest prefix-matching score over the weight on the copy itself", (matching[1] / on_copy).min().item(), above=2)

# %% tags=["nbval-ignore-output"]
before = inputs.roll(1, dims=1)  # (B, L): the token before each key
follows = (inputs[:, :, None] == before[:, None]).tril()  # (B, query, key): the token before the key is the query's own
follows[:, :, 0] = False  # nothing stands before the first key
on_all = [(maps[1][:, head] * follows).sum(dim=-1)[again].mean().item() for head in range(H)]
print("weight on what followed any of the earlier copies:", [round(weight, 2) for weight in on_all])


# %% [markdown]
# The heads of layer 2 look at the token *after* the earlier copy, much less at the copy itself. The score counts only the last copy. Where there are
# several, an older one may get more: taken together, what followed them gets about nine tenths of the weight.
#
# ### Does it copy?
#
# Looking at *B* is half of the work. The other half is to raise the logit of *B*. What a head adds to the logits when it looks at a token is a
# product of matrices: embedding, values, output projection, read-out. We compute it for all 48 tokens, and count those whose own logit is raised most
# of all 48. This is an approximation: it takes the embedding alone, without the position and without what layer 1 adds, and of the last norm
# it keeps only the factors that it has learned; biases are left out.

# %% tags=["nbval-ignore-output"]
def copying(head):
    attention, features = model.attentions[1], slice(head * E // H, (head + 1) * E // H)
    x = model.norms[1](model.embedding.weight)  # (V, E)
    written = x @ attention.v_proj.weight[features].T @ attention.out_proj.weight[:, features].T  # (V, E)
    raised = (written * model.norm.weight) @ model.read_out.weight.T  # (V, V)
    return (raised.argmax(dim=-1) == torch.arange(V)).float().mean().item()


shares = torch.tensor([copying(head) for head in range(H)])
print("layer 2, share of tokens that raise their own logit most:", [round(share, 2) for share in shares.tolist()])
course.verdict("the lowest of these shares", shares.min().item(), above=10 / V, measured="quick")


# %% [markdown]
# By chance the share would be 1 in 48. All four heads of layer 2 match prefixes, and copy between half of the tokens and nearly all of them: they are
# induction heads.
#
# ### When do they form?
#
# From the parameters that we kept we compute both scores for the whole training, and draw them under the loss.

# %%
def best_scores(state):
    then = AttentionOnly(V, L, E, H, num_layers=2).requires_grad_(False)
    then.load_state_dict(state)
    maps = then(inputs[:50], need_weights=True)[1]
    return previous_token_score(maps[0]).max().item(), prefix_matching_score(maps[1], period[:50]).max().item()


def half_way(points):  # the first step whose value is further from the first value than from the last
    first, last = points[0][1], points[-1][1]
    return next(step for step, value in points if abs(value - first) > abs(value - last))


# %% tags=["nbval-ignore-output"]
best = [(step, *best_scores(state)) for step, state in snapshots]
history = {
    "loss on repeated tokens": [(step, losses[step, 1].item()) for step, _, _ in best],
    "layer 1: previous-token score": [(step, back) for step, back, _ in best],
    "layer 2: prefix-matching score": [(step, match) for step, _, match in best],
}
print("half way at step", {name: half_way(points) for name, points in history.items()})

# %%
_, (above, below) = plt.subplots(2, 1, figsize=(6.0, 5.0), layout="constrained", sharex=True)
plotting.curves({name: points for name, points in history.items() if "loss" in name}, xlabel="", ylabel="loss on repeated tokens", ax=above)
above.lines[0].set_color("0.3")  # blue is the previous-token score
plotting.curves({name: points for name, points in history.items() if "loss" not in name}, ylabel="highest of four heads", ax=below)
halves = [half_way(points) for points in history.values()]
for ax, step, color in zip((above, below, below), halves, ("0.3", *plotting.COLORS[:2]), strict=True):
    ax.axvline(step, color=color, ls=":")
plotting.show("Above, the loss on repeated tokens, which drops; below, both scores, which rise. Dotted lines: half of the way from the first value to the last.")
course.verdict("steps between the first and the last of three half-way points", max(halves) - min(halves), below=75, measured="quick")


# %% [markdown]
# In this one training both scores begin at the values of uniform weights, 0.06 and 0.03, and rise a little during the slow decline: first prefix
# matching, to 0.05 between steps 60 and 120, then the previous-token score, to about 0.12 between steps 110 and 200. Both rise fastest in the steps
# in which the loss drops. Which of the two steep rises comes first, this training does not tell: their half-way points lie ten steps apart or less,
# and we look every ten steps. (The previous-token score also keeps rising slowly afterwards, which moves its half-way point to the right. Another
# training may spread the points more, so the verdict asks only for an eighth of the training, 75 steps.)
#
# ## Does the trained model copy by these heads?
#
# Whether the heads *cause* the drop, only a changed training can tell: Olsson et al. moved the drop to another time. We ask whether the trained model
# needs these heads in order to copy. A head that looks the right way might still not matter. The test is to take it away. A
# **[hook](../docs/glossary.md#h)** is a function that torch calls on what goes into a module (a *pre*-hook, which gets a tuple) or comes out of it;
# what it returns, if anything, takes that place. In our attention the outputs of all heads stand side by side in front of `out_proj`. Our hook
# replaces those of the chosen heads by their mean over all sequences and positions, so that they say nothing any more about the sequence that is
# read. (The mean, and not zero: later parts are used to the mean, so that zero would be a second change.) This is
# **[ablation](../docs/glossary.md#a)**.
#
# ### Exercise 4 · middle · 8 minutes
#
# `ablate(x, heads, num_heads)` gets the outputs of all heads, of shape (B, L, E): the first E / num_heads features belong to head 0, the next to head
# 1, and so on. `heads` is a list or a range of one or more different whole numbers. Return a new tensor (B, L, E), in which each feature of these
# heads has at all positions of all sequences the same value: its mean over them. The features of the other heads stay as they are, and so does `x`
# itself.

# %%
def ablate(x, heads, num_heads):  # (B, L, E), a list, a number
    raise NotImplementedError  # (B, L, E)


ablate = check.ablate.use(ablate)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Give every head an axis of its own: `x.unflatten(-1, (num_heads, -1))` has shape (B, L, H, D). Work on a copy of it.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `parts[:, :, heads]` takes the chosen heads. Which two axes does the mean run over? `flatten(-2)` puts the heads side by side again.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def ablate(x, heads, num_heads):  # (B, L, E), a list, a number
#     parts = x.unflatten(-1, (num_heads, -1)).clone()  # (B, L, H, D)
#     parts[:, :, heads] = parts[:, :, heads].mean(dim=(0, 1))
#     return parts.flatten(-2)  # (B, L, E)
# ```
#
# </details>

# %% [markdown]
# To **silence** a head is to ablate it in this way. We silence every single head, and then all 28 pairs of heads. **Predict**: will one head stand
# out, and which? Does the model still copy without it?

# %%
def silence(layer, heads, model=model):
    def hook(module, arguments):
        return (ablate(arguments[0], heads, H),)

    return model.attentions[layer].out_proj.register_forward_pre_hook(hook)


def share_with(*hooks, model=model):
    share = share_right(model)
    for hook in hooks:
        hook.remove()
    return share


# %% tags=["nbval-ignore-output"]
units = [(layer, head) for layer in (0, 1) for head in range(H)]
pairs = torch.empty(2 * H, 2 * H)
for one_of, other in combinations_with_replacement(range(2 * H), 2):  # the same one twice: this head alone
    hooks = [silence(layer, [head]) for layer, head in {units[one_of], units[other]}]
    pairs[one_of, other] = pairs[other, one_of] = share_with(*hooks)
intact, without = share_right(model), [share_with(silence(layer, range(H))) for layer in (0, 1)]
print(f"share right with all heads {intact:.3f}, without those of layer 1 {without[0]:.3f}, of layer 2 {without[1]:.3f}")

# %%
names = [f"layer {layer + 1}, head {head}" for layer, head in units]
_, ax = plt.subplots(figsize=(7.2, 5.6), layout="constrained")
plotting.heatmap(pairs, rows=names, columns=names, title="share right without two heads (diagonal: without one)", xlabel="", ylabel="", vmax=1, ax=ax)
plotting.show("A symmetric table of shares for all pairs of eight heads: lower where head 0 of layer 1 is silent, lowest with a second head of layer 1.")
for layer in (1, 2):
    course.verdict(f"share right without the heads of layer {layer}, over that with all heads", without[layer - 1] / intact, below=0.25)

# %% [markdown]
# Without the heads of either layer hardly anything is right. Without any single head most still is, and without most pairs, too: the heads of a
# layer make up for one another. In the run shown here head 0 of layer 1 stands out, the head with by far the highest previous-token score. Without it
# seven answers in ten are right, and the seven pairs that contain it cost more than all 21 others. A small difference of scores tells nothing: head 2
# has the second highest previous-token score, but of the partners of head 0 it is head 3 whose silence costs most. And what the model needs these
# heads *for*, the experiment cannot show.
#
# ### Only what it sees of the previous token
#
# Silence takes all that a head says. So we now take one thing only from the heads of layer 1: a mask hides from every query the key that stands one
# position before it. The softmax then divides by what is left: the other weights grow, and the row still sums to 1.
#
# Any change of this size might do damage. So an experiment needs a **control**, a change that is at least as large but spares what we ask about: a
# second mask hides **all older tokens**, from two positions back on, and we print how much weight each mask takes away. A third hides the token
# itself (but never the first of a sequence, which has nothing else to look at). **Predict**: which of them will cost most?

# %%
apart = torch.arange(L)[:, None] - torch.arange(L)  # (L, L): how far the key stands before the query
masks = {"previous token": apart == 1, "all older": apart >= 2, "token itself": (apart == 0) & (torch.arange(L) > 0)}


def hide(name, heads, model=model):
    mask = torch.ones(1, H, L, L, dtype=torch.bool)
    mask[:, heads] = ~masks[name]

    def hook(module, arguments, options):  # options: what the module is called with by name
        return arguments, options | {"attn_mask": mask}  # True: may look

    return model.attentions[0].register_forward_pre_hook(hook, with_kwargs=True)


def taken(name, weights):  # (B, H, L, L) -> (H,): the weight on what is hidden, before it is
    return (weights * masks[name]).sum(dim=-1)[:, :, 1:].mean(dim=(0, 2))


# %% tags=["nbval-ignore-output"]
top = lookback[0].argmax().item()  # the head of layer 1 with the highest previous-token score
groups = {f"head {head}": [head] for head in range(H)}
groups |= {f"all but {top}": [head for head in range(H) if head != top], "all": list(range(H))}
hidden = {"silent": {name: share_with(silence(0, heads)) for name, heads in groups.items()}}
for mask in masks:
    hidden[mask + " hidden"] = {name: share_with(hide(mask, heads)) for name, heads in groups.items()}
    print(f"weight of heads 0 to 3 on what is hidden, {mask + ':':15}", *(f"{weight:.2f} " for weight in taken(mask, maps[0]).tolist()))

# %%
_, ax = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
plotting.heatmap(torch.tensor([list(shares.values()) for shares in hidden.values()]), rows=list(hidden), columns=list(groups), title=f"share right after damage to layer 1 (without: {intact:.2f})", xlabel="", ylabel="", vmax=1, ax=ax)
plotting.show("A table of shares: four rows for what is done, six columns for the heads it is done to, from single heads to all four.")
course.verdict("share right, the previous token hidden from all heads of layer 1, over that with all", hidden["previous token hidden"]["all"] / intact, below=0.25)
course.verdict("share right, all older tokens hidden from all of them", hidden["all older hidden"]["all"], above=0.75)

# %% [markdown]
# Hide the previous token from all heads of layer 1, and hardly one answer in a hundred is right, fewer than by guessing (one in 48), although each
# head keeps everything else that it sees. Hide all older tokens instead, and nine in ten stay right, although this takes **more** weight from every
# head. So the amount of weight alone does not do the damage.
#
# This mask says something about the two ways, too. The earlier *A* stands a whole period back, among the older tokens. With these hidden, layer 1
# cannot see it, so the last *A* cannot note its position: for nine answers in ten the second way is ruled out.
#
# Two numbers are odd. Hide the previous token from head 0 alone, and three answers in ten are right: less than half of what is right if this head
# says nothing at all. And to hide the token itself from all heads leaves little more than one answer in ten, although layer 2 gets the token
# itself anyway: each layer only adds to what it has received.
#
# Does a head that cannot look where it wants write a *wrong* note? **Predict**: with the previous token hidden, what would the model answer
# after *A B C D A* in place of *B*? (The first column is the control: four silent heads write no notes, right or wrong.)

# %% tags=["nbval-ignore-output"]
answers = {}
for done, damage in (("all silent", silence(0, range(H))), ("previous token hidden", hide("previous token", range(H)))):
    answers[done] = model(inputs)[0].argmax(dim=-1)  # (B, L)
    damage.remove()
counted = again & (torch.arange(L) < L - 2)  # three more tokens are there to compare with
print("answered:".ljust(20), *(f"{done:>22}" for done in answers))
for further, name in ((-1, "the token just read"), (0, "the right token"), (1, "the one after it"), (2, "two after it")):
    near = test_set.roll(-1 - further, dims=1)[:, :L]  # (B, L)
    print(f"{name:20}", *(f"{(answer == near)[counted].float().mean():22.3f}" for answer in answers.values()))


# %% [markdown]
# A token that cannot see the previous one looks two or three back. If *C* and *D* note that they come after *A*, the model should answer *C* or *D*,
# one or two after the right token. So it does in about six of ten cases; with silent heads, in less than one of ten. (A fifth repeat the token just
# read; perhaps a token that sees more of itself notes itself.) So a mask does not only take away, it **replaces**: the heads have to look somewhere,
# and a wrong note can do more harm than none.
#
# This weakens our control: to hide all older tokens frees weight for the two that are left, and puts nothing wrong in their place. We need a third
# experiment.
#
# ### Along which path?
#
# Layer 2 makes its queries, its keys and its values from what layer 1 has written. Here the two ways from the beginning differ: the note is in the
# key or in the query. **[Path patching](../docs/glossary.md#p)** tests one path alone: a *patch* is a tensor that one run of a model has computed,
# put into another run.
#
# 1. Run the model with a damage to all heads of layer 1, and keep the damaged tensor that goes into one projection of layer 2: the one that
#    makes the queries (`q_proj`), the keys (`k_proj`) or the values (`v_proj`).
# 2. Run the intact model, but give the damaged tensor to that one projection.
#
# The damage is each of the three: silence, the previous token hidden, the token itself hidden. **Predict**: through which projection does silence cost
# most? And the two masks?

# %%
def patch(model, name, damage):  # damage: a function that sets the hook
    projection, kept = getattr(model.attentions[1], name), []
    hooks = damage(), projection.register_forward_pre_hook(lambda module, x: kept.append(x[0]))
    model(inputs)  # the damaged run
    for hook in hooks:
        hook.remove()
    return share_with(projection.register_forward_pre_hook(lambda module, x: (kept[0],)), model=model)


def damages(model):
    hidden = {f"{name} hidden": partial(hide, name, range(H), model) for name in ("previous token", "token itself")}
    return {"all silent": partial(silence, 0, range(H), model)} | hidden


def losses_by_path(model):
    right, lost = share_right(model), {}
    print("share right that is lost".ljust(24), *(f"{path:>9}" for path in ("in all", "queries", "keys", "values")))
    for name, damage in damages(model).items():
        in_all = share_with(damage(), model=model)
        lost[name] = [right - patch(model, projection, damage) for projection in ("q_proj", "k_proj", "v_proj")]
        print(name.ljust(24), *(f"{loss:9.3f}" for loss in (right - in_all, *lost[name])))
    return lost


# %% tags=["nbval-ignore-output"]
lost = losses_by_path(model)

# %% [markdown]
# This model puts the note in the **key**: silence costs nearly everything through the keys, and less than a tenth through the queries, which would
# carry the note in the second way. What is the note about? No experiment says it alone. Silence writes nothing wrong, and shows that the keys need
# something that layer 1 says. To hide the **previous token** costs nearly everything through the keys again. To hide the token itself costs nothing
# there, and to hide all older tokens costs little on the whole. Together they say that the keys need what layer 1 finds **one token back**. They do
# not say that it is all that layer 1 does: without its heads 1 to 3 the model is right on 0.59, with the previous token hidden from them on 0.86.
#
# To hide the **token itself** costs much through queries and values.
#
# **Question** (hard, 5 minutes). So do the query, which looks for a note with its own name, and the value, which is to be copied, need a second note
# from layer 1, *who I am*? Compare with the row of silence before you read on.
#
# <details><summary>Answer</summary>
#
# In this model they hardly need one. Silent heads write no such note, and queries and values lose less than a tenth. (Whether the heads write the name all the
# same, this does not show.) To *hide* it costs five to six times as much: the heads look at other tokens instead and, so it seems, add the names of
# those, so that a query asks for the wrong token and a value hands on the wrong one.
#
# </details>
#
# (The three losses need not add up to the whole: damage to two projections at once is not the sum of both, and the read-out, too, reads what layer 1
# has written.) [TransformerLens](https://transformerlensorg.github.io/TransformerLens/) gives the points for hooks the same names in many
# published models.
#
# ### The same in a second training?
#
# All of this is one trained model. A second one starts from other random parameters. **Predict**: does it take the same way, and with the same head?

# %% tags=["nbval-ignore-output"]
torch.manual_seed(1)
second, _, _ = train(2, steps)
look = second(inputs, need_weights=True)[1][0]  # (B, H, L, L)
scores = previous_token_score(look)  # (H,)
best, others = scores.argsort(descending=True).split(2)
halves_of_second = {f"heads {best.tolist()}": best.tolist(), f"heads {others.tolist()}": others.tolist(), "all": range(H)}
print(f"share right {share_right(second):.3f}; previous-token scores of layer 1", [round(score, 2) for score in scores.tolist()])
print("silent:", {name: round(share_with(silence(0, heads, second), model=second), 3) for name, heads in halves_of_second.items()})
of_second = {}
for mask in masks:
    of_second[mask] = {name: share_with(hide(mask, heads, second), model=second) for name, heads in halves_of_second.items()}
    print(f"{mask} hidden:", {name: round(share, 3) for name, share in of_second[mask].items()}, end="; it takes ")
    print(*(f"{weight:.2f}" for weight in taken(mask, look).tolist()), "of the weight of heads 0 to 3")
lost_of_second = losses_by_path(second)

# %%
course.verdict("second model, the previous token hidden from all heads of layer 1, over that with all", of_second["previous token"]["all"] / share_right(second), below=0.25)
course.verdict("second model, all older tokens hidden from all of them", of_second["all older"]["all"], above=0.75)
by_keys = [keys - max(queries, values) for queries, keys, values in (of["previous token hidden"] for of in (lost, lost_of_second))]
course.verdict("previous token hidden: lost through keys, minus through queries or values, the lower of two models", min(by_keys), above=0.25)

# %% [markdown]
# It takes the same way: without the previous token hardly anything is right, without all older ones nearly everything, and the loss goes through the
# keys. The heads are not the same. Here two look back, 0 and 2. From the other two the previous token can be hidden and nothing is lost; but hide
# the token itself from them, and one answer in ten is right, fewer than if they are silent (a third).
#
# Silence now costs about 0.3 through the queries and through the values, too: there, both need something that the heads say. Silence takes away all
# that they say, so it does not tell what. What the two models share may hold for others; where they differ, there is no rule.
#
# ## Take away the first step: one layer
#
# The mechanism that we have found needs a note, which an earlier layer writes, and a query that chooses by it. We train without each in turn. First the
# note: the same training with one layer. Perhaps one layer is only slower, or too small? So we train it for twice as many steps, and look at it
# half-way and at the end; and we train one of twice the width, with 128 features and 8 heads.
#
# Below the curves we print what a **[record](../docs/glossary.md#r)** says, a file with the results of earlier trainings, with several seeds. Each
# kind of model in a record is called an *arm*: the arm *dot* is our model of two layers with the dot product, and *one layer* is the same model
# with one. To compare with, we print what a rule without training gets: always answer with the token a fixed number of positions back, the number
# that is best on these sequences. Which should it be?

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
longer, losses_of_longer, snapshots_of_longer = train(1, 2 * steps)
wider, losses_of_wider, _ = train(1, steps, embed_dim=2 * E, num_heads=2 * H)
single = AttentionOnly(V, L, E, H, num_layers=1).requires_grad_(False)
single.load_state_dict(dict(snapshots_of_longer)[steps])
trained_here = {"two layers": model, "one layer": single, f"one layer, {2 * steps:,} steps": longer, f"one layer, {2 * E} features": wider}
shares = {name: share_right(network) for name, network in trained_here.items()}
for name, network in trained_here.items():
    print(f"{name:23} {sum(p.numel() for p in network.parameters()):6,} parameters, share right {shares[name]:.3f}")

# %%
places = (torch.arange(L) - torch.arange(32)[:, None]).clamp(min=0)  # (32, L): where the token 0, 1, … 31 back stands
rule = ((inputs[:, places] == targets[:, None]) & again[:, None]).sum(dim=(0, 2)) / again.sum()  # (32,)
print(f"always the token {rule.argmax()} back: share right {rule.max():.3f}")

# %%
parts = {"two layers": losses, "one layer, twice as long": losses_of_longer, "one layer, twice as wide": losses_of_wider}
plotting.curves({name: part[:, 1].tolist() for name, part in parts.items()}, smooth=5, ylabel="loss on repeated tokens", title="two layers beside one that is trained longer, or wider")
plotting.show("Three curves of the loss on repeated tokens, over 600 or 1,200 steps: two layers, one layer trained for twice as long, one layer twice as wide.")
course.verdict("the best share right of the three with one layer, over that of two layers", max(list(shares.values())[1:]) / shares["two layers"], below=0.25)
record = records.load_record("induction", "quick")
for arm in ("dot", "one layer"):
    print(records.describe_record("induction", "accuracy on repeats", "quick", arm=arm))


# %% [markdown]
# One layer stays at the loss of guessing, 3.87, for eighty steps or more. The wide model falls to 3 by about step 200, for a while even ahead of two
# layers, the other by about step 400; no drop follows. A loss of about 3 needs no induction head: the right token always stands 11 to 31 positions
# back, and a guess shared among these 21 positions has a loss of at most ln 21 = 3.04. (So the slow decline of two layers at the start, down to about
# 3, needs none either. One layer ends near 2.7, so it knows a little more than that.)
#
# A single training proves little. The record holds five seeds of each, with 600 steps (± is the standard error). We compare seed by seed, as in
# notebook 16: the mean of the differences, and its 95 % confidence interval by Student's t (2.776 for five seeds).

# %%
def interval(differences):
    mean, half = metrics.mean_and_half(differences)
    return mean - half, mean + half


right = {arm: records.recorded_metric(record, "accuracy on repeats", arm) for arm in record["arms"]}
low, high = interval([two - one for two, one in zip(right["dot"], right["one layer"], strict=True)])
print(f"share right, two layers minus one: 95 % interval {low:.3f} to {high:.3f}")
course.verdict("two layers minus one, lower end of the interval", low, above=0)
course.verdict("share right with one layer, the best of five seeds", max(right["one layer"]), below=0.25)


# %% [markdown]
# Your second prediction: one time in ten. The keys and queries of a single layer are made of tokens and positions alone: no key says which token stood
# before, and no query where the earlier copy stood. So neither of our two ways is open. Twice the steps did not help, nor did twice the width,
# although the wide model has more parameters than ours of two layers: all three are right in 11 % of the cases, about as often as the rule that
# always answers with the token 23 back.
# (That is right for period 24, and for period 12 from the third block on. In the record one layer gets 10 %. Its loop clips large gradients, so we
# compare its arms only with each other.) This does not prove that no single layer, however wide, could do the task in another way.
#
# ## Take away the choice: weights without the query
#
# An induction head has to let its weights depend on the query: after *A* it looks elsewhere than after *C*. The weights of separable additive attention
# do not. Its score is a sum, one number of the query plus one of the key: if three keys have 1, 2 and 4, a query with 5 gives 6, 7 and 9, and a query
# with 0 gives 1, 2 and 4. The softmax makes the same weights of both (notebook 09). What is left is one number $a_j > 0$ for each key, and
# $w_{ij} = a_j / \sum_{k \le i} a_k$.
#
# **Question** (5 minutes). Take the block *A B C*, with period 3. In the second block, at positions 3, 4 and 5, the three queries should look at
# positions 1, 2 and 3, at *B*, *C* and the second *A*. You may choose all numbers $a_j$. How large can $w_{31} + w_{42} + w_{53}$ become?
#
# <details><summary>Answer</summary>
#
# Each of the three queries divides by at least $a_0 + a_1 + a_2 + a_3$, so that
#
# $$w_{31} + w_{42} + w_{53} \;\le\; \frac{a_1 + a_2 + a_3}{a_0 + a_1 + a_2 + a_3} \;\le\; 1.$$
#
# Three queries share a weight of 1 at most, since they look at three different keys and cannot choose between them; with a choice they could have 3.
#
# </details>

# %% [markdown]
# With any period $p$ it is the same. Let a repeated block begin at position $T$. Its $p$ queries, at $T$ to $T + p - 1$, look at the $p$ keys at
# $T - p + 1$ to $T$, and each query divides by at least $\sum_{k \le T} a_k$. So each block of queries adds at most 1 to the prefix matching. The
# $L - p$ queries of a sequence fill at most $\lceil (L-p)/p \rceil$ blocks. The number of blocks in all sequences, divided by the number of
# queries, is therefore a ceiling, however the head is trained: no head whose weights do not depend on the query can have a higher prefix-matching
# score.

# %%
def ceiling(period, length):
    return (((length - period) / period).ceil().sum() / (length - period).sum()).item()


most = ceiling(period, L)
separable = SeparableAdditiveScore(H, E // H).double()
scores = separable(*torch.randn(2, 1, H, L, E // H, dtype=torch.float64).mul(3)).masked_fill(torch.ones(L, L).triu(1).bool(), -torch.inf)
drawn = prefix_matching_score(scores.softmax(dim=-1).expand(len(period), -1, -1, -1), period)
print(f"weights without the query: at most {most:.3f}; random separable heads: at most {drawn.max():.3f}")

# %% [markdown]
# The record has models of two layers with several attention scores, all trained alike, and tested on the same 500 sequences as ours. We set two
# numbers of each trained model side by side: the prefix-matching score of its best head, in whichever layer it is, and its share of right answers.
# **Predict** where separable lies. Will there be models that copy well without such a head?

# %%
matching_of = {arm: records.recorded_metric(record, "prefix-matching score", arm) for arm in record["arms"]}
_, ax = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
for arm, marker, color in zip(matching_of, "so^vDP", plotting.COLORS, strict=False):
    ax.plot(matching_of[arm], right[arm], marker, color=color, alpha=0.6, label=arm)
ax.axvline(most, color="0.3", ls="--", lw=1, label="ceiling without the query")
ax.set_xscale("log")
ax.set_xticks([0.02, 0.05, 0.1, 0.2, 0.5], labels=["0.02", "0.05", "0.1", "0.2", "0.5"])
ax.minorticks_off()
ax.set(xlabel="prefix-matching score of the best head", ylabel="share right", ylim=(0, 1.05), title="recorded trainings, five seeds of each arm")
ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
plotting.show("A point for each of thirty trainings, by its best head's prefix-matching score and its share right; a dashed vertical line at the ceiling.")
for arm in right:
    print(f"{arm:14} share right {min(right[arm]):.3f} to {max(right[arm]):.3f}, prefix matching {min(matching_of[arm]):.3f} to {max(matching_of[arm]):.3f}")

# %%
for arm in ("distance", "separable"):
    low, high = interval([other - dot for other, dot in zip(right[arm], right["dot"], strict=True)])
    print(f"share right, {arm} minus dot: 95 % interval {low:+.3f} to {high:+.3f}")
course.verdict("separable minus dot: upper end of the interval", high, below=0)
course.verdict("distance: lowest prefix-matching score", min(matching_of["distance"]), above=most)
course.verdict("separable: highest prefix-matching score", max(matching_of["separable"]), below=most)
models = [model for arm in right for model in zip(matching_of[arm], right[arm], strict=True)]
gap = min(share for score, share in models if score > 0.4) - max(share for score, share in models if score <= 0.4)
course.verdict("share right, lowest with a head above 0.4 minus highest without one", gap, above=0.25)

# %% [markdown]
# Your third prediction: not in these trainings. Models with the separable score are right on 22 % after 600 steps, and their heads stay left of the
# ceiling. (They must: this verdict tests our proof, not the models.) They are no higher than our random ones. Others lie there without being bound.
# One layer, most models with the additive score of [Bahdanau et al. 2014](https://arxiv.org/abs/1409.0473) (*additive*) and one with the Gaussian
# energy well (`gaussian_well`, notebook 10) are there although their weights *do* depend on the query. In 600 steps, at one learning rate for all,
# they formed no induction heads.
#
# The models fall into two groups. All with a head above 0.4 are right on more than 95 %; among them is every seed of the dot product and of the
# distance-biased score (*distance*, notebook 07). All others are right on 42 % at most. The clearest comparison is within `gaussian_well`, where
# nothing differs but the seed: four formed such a head and are right on more than 95 %, the fifth formed none and is right on 36 %.
#
# The 22 % of separable and the 22 to 42 % of additive are more than one layer gets, 10 %: some of the task can be done in other ways. We have not
# looked into them.

# %% [markdown]
# ## Today
#
# - **GPT-2** has induction heads: [Wang et al. 2022](https://arxiv.org/abs/2211.00593) found them at work when it finds out who gave what to whom.
# - **Models from two layers to 13 billion parameters** show the drop and the heads, early in training
#   ([Olsson et al. 2022](https://arxiv.org/abs/2209.11895)).
# - **Mamba** ([Gu and Dao 2023](https://arxiv.org/abs/2312.00752)) has no attention: it reads with a memory of fixed size. Its authors use an
#   induction task to show what such a memory can learn when its input decides what it keeps.
# - **H3** ([Fu et al. 2022](https://arxiv.org/abs/2212.14052)) added a shift to a model with such a memory, to do the work of a previous-token head.
# - **Token shift**, rung 5 of notebook 08, hands every layer the token before, which is the work of the first of the two heads.
#
# ## Takeaways
#
# - How can a frozen model write *plonnet* again? Heads of one layer note what stood before each token, and heads of the next look this note up and
#   copy the token that carries it. Copying from the prompt needs no change of a weight. (This was shown for a toy: two layers, trained for this alone. In-context learning
#   is more than copying.)
# - Of two ways that work on paper, both of our trained models took the one with the note in the key.
# - In our training the scores of both kinds of heads rose fastest in the steps in which the loss dropped.
# - A map is an observation, a score is a measurement, ablation and path patching are experiments. To hide a token takes something away *and* puts
#   something wrong in its place; silence, a mask with its control, and patching together showed that the keys need what layer 1 finds one token
#   back. What else layer 1 does is open.
# - One layer did not do it in any of five recorded trainings, nor when it was trained twice as long or made twice as wide. Heads whose weights do
#   not depend on the query cannot be induction heads.
#
# ## Check yourself
#
# 1. Why can a head of the first layer not be an induction head?
# 2. You silence one head, and nothing changes. What have you shown? You hide one token from it, and more is lost than by silencing it. How can that be?
# 3. All periods are 20. Which simple head solves the task in a model with one layer?
#
# <details><summary>Answers</summary>
#
# 1. Its keys and queries are made of tokens and positions. The key of *B* does not say that an *A* stood before it, and the query of the last *A*
#    not where the earlier one stood.
# 2. That this model, on this task, can do without the head. Others may have taken over its work: silence them together. A silent head says nothing; one
#    that looks at the wrong token says something wrong, and later layers believe it.
# 3. One that looks 19 tokens back and copies, whatever stands there: the earlier copy is 20 back, and what followed it 19. It needs positions alone.
#
# </details>
#
# **To read**
#
# - [Elhage et al. 2021](https://transformer-circuits.pub/2021/framework/index.html), "Two-Layer Attention-Only Transformers": composition through
#   queries, keys and values, and the induction heads of a model that was trained on text.
# - [Olsson et al. 2022](https://arxiv.org/abs/2209.11895), arguments 1 to 3: the drop, and what happens when it is moved to another time.
# - [Brown et al. 2020](https://arxiv.org/abs/2005.14165), figure 1.2: how much examples in a prompt help models of different sizes.
#
# **Next**: a **circuit** of your own, as the field calls parts that do one thing together. Take one of the models that you have trained in this
# course, choose a thing that it does well, and find the heads
# that do it: first by looking, then by a score, and in the end by taking them away.

# %% [markdown]
# ## Optional: in a model that was not trained for this
#
# Would a model that was not trained for this write *plonnet* again? The *writer* is the trained character model of notebook 08, with five layers of
# five heads. We take passages of the validation text, of 20 to 60 characters, and repeat them until 129 are there. A repetition usually jumps back in
# the middle of a word, which is hard to predict, so we leave out the jump itself and the first ten characters after it. The control has the same
# characters at the same positions, after the same kind of jump, except in its first block, which is another passage. Where the loss in the second
# block is lower than in the control's, it can only be from having read it before.

# %%
writer, text = trained.load("writer").requires_grad_(False), shakespeare("val")[0]
draw = torch.Generator().manual_seed(0)
spans = torch.randint(20, 61, (60,), generator=draw)
starts, others = torch.randint(len(text) - 60, (2, 60), generator=draw)
position = torch.arange(129)
passages = text[starts[:, None] + position % spans[:, None]]  # (60, 129)
control = torch.where(position < spans[:, None], text[others[:, None] + position % spans[:, None]], passages)
found = torch.stack([prefix_matching_score(weights, spans) for weights in writer.attention_weights(passages[:, :-1])])  # (5, 5)
alike = prefix_matching_score((torch.ones(128, 128).tril() / torch.arange(1, 129)[:, None]).expand(60, 1, -1, -1), spans)
print(f"highest prefix-matching score {found.max():.3f}, uniform weights {alike[0]:.3f}, ceiling without the query {ceiling(spans, 128):.3f}")


# %%
def loss_inside(passages):
    loss = F.cross_entropy(writer(passages[:, :-1]).mT, passages[:, 1:], reduction="none")  # (60, 128)
    done = position[:-1] - spans[:, None]  # characters of the second block that have been read, less one
    inside = (done >= 10) & (done < spans[:, None] - 1)  # away from the jumps
    return torch.stack([row[chosen].mean() for row, chosen in zip(loss, inside, strict=True)]).double()


again_read, new = loss_inside(passages), loss_inside(control)
saved = new - again_read
mean, half = metrics.mean_and_half(saved)
print(f"loss in the second block: {again_read.mean():.2f} if it was read before, {new.mean():.2f} if not")
print(f"saved by having read it: 95 % interval {mean - half:+.2f} to {mean + half:+.2f}")
course.verdict("what having read the passage before saves, upper end of the interval", mean + half, below=0.1)

# %% [markdown]
# The highest of the 25 scores, 0.023, is above uniform weights, but not above the ceiling of heads that cannot choose. This alone does not show that
# there is no induction head: the score looks one period back, and in a play the same letter often stands in between. But having read the passage
# before saves nothing that we could measure, and at most about 0.06 of a loss of 1.43; a model that copied would save most of it. So this writer does
# not copy such passages: it would not do for our story.
