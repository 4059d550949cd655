# %% [markdown]
# # 18 Heads that copy
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/18_heads_that_copy.ipynb)
#
# ← [17 A score of your own](17_your_own_score.ipynb) · [the map of the course](00_welcome.ipynb)
#
# You are here: from a weighted sum to a transformer [00](00_welcome.ipynb) [01](01_weighted_sums.ipynb) [02](02_scaled_dot_product.ipynb) [03](03_multi_head.ipynb) [04](04_positions.ipynb) [05](05_transformer_block.ipynb) · put to work [06](06_image_transformer.ipynb) [07](07_distance_bias.ipynb) [08](08_character_model.ipynb) · other ways to compare [09](09_additive_attention.ipynb) [10](10_energy_wells.ipynb) · other shapes of the task [11](11_encoder_decoder.ipynb) [12](12_masked_images.ipynb) [13](13_time_series.ipynb) · measured, searched, made fast [14](14_random_search.ipynb) [15](15_fast_attention.ipynb) [16](16_bake_off.ipynb) [17](17_your_own_score.ipynb) · taken apart **18**
#
# Needs: notebooks 04, 08 and 09; for the comparison of scores also 07, 10 and 16 · runs in about 80 s on two CPU cores · about 2 hours of study

# %% [markdown]
# Write to a chat program: *In my village a plonnet is a small boat. We went fishing in our pl…* It goes on with *plonnet*, a word that we have
# just made up. None of its weights changed while you typed. **How can a frozen model learn from its prompt?** The program reads an unknown word as
# a sequence of tokens that it knows; what is new to it is their order. We take apart the simplest case, a model that copies from its prompt: all
# of its 48 tokens occur in training, and only their order is new each time.
#
# In 2020 [Brown and colleagues](https://arxiv.org/abs/2005.14165) showed that GPT-3 picks up new tasks from a few examples in its prompt, and
# called this **[in-context learning](../docs/glossary.md#i)**. In 2021 [Elhage and
# colleagues](https://transformer-circuits.pub/2021/framework/index.html) found, in transformers with attention alone, two kinds of heads that copy
# by working together. In 2022 [Olsson and colleagues](https://arxiv.org/abs/2209.11895) asked when such pairs appear in the training of many
# models, and what the models can do from then on.
#
# After this notebook you can
#
# - train a model of attention alone, and follow its loss and its heads through the training;
# - recognise the two kinds of heads by their maps and by a number for each kind;
# - test what a trained model needs these heads for, by silencing them and by exchanging single tensors;
# - say what depends on the number of layers and on the attention score, and why.

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
from itertools import combinations, combinations_with_replacement

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
# We want a task on which nothing helps but the context. Each sequence is a block of 12 to 32 distinct random tokens, repeated until 65 tokens
# are there. The length of the block is its **period**. Inside the first block the next token is random, and only those already read are ruled
# out. After the last token of the block the first one returns, and nobody can foresee exactly when. As soon as a token is read for the second time, whoever
# remembers the first block knows every next token. No pair of tokens is more
# frequent than another, so there is nothing to memorise, and the period varies, so that it does not help to look a fixed number of steps back.
#
# How long we train depends on the [profile](../docs/glossary.md#p), the size of the experiments: the *quick* profile, made for two CPU cores,
# takes 600 steps, as many as the recorded trainings that we compare with below.

# %%
V, L, E, H = 48, 64, 64, 4
steps = {"quick": 600, "full": 2000}[course.profile()]
train_set, _ = repeated_blocks(2 * 32 * steps, seed=0)  # (N, L + 1): enough for twice as many steps
test_set, period = repeated_blocks(500, seed=1_000_000)
print("period", period[0].item(), "tokens", test_set[0, :40].tolist())

# %%
inputs, targets = test_set[:, :-1], test_set[:, 1:]  # (B, L) each
again = torch.arange(L) >= period[:, None]  # (B, L): the token that is read has stood there before
print(f"{again.float().mean():.0%} of the tokens can be copied; guessing is right one time in {V}")

# %% [markdown]
# ## The model
#
# How could attention solve this? Write five letters on paper, *A B C D A*. The model has just read the last *A*, and should predict *B*. Attention
# compares what two tokens carry, and at first a token carries its own name and its position. By what could the last *A* recognise the right
# token to look at? Look for a way before you go on.
#
# In the text and in the pictures we count layers from 1; the code counts them from 0, as Python does, so that layer 1 is `attentions[0]`. Heads are
# counted from 0 everywhere. In the picture an arrow shows where information flows; a head looks against its arrow.

# %%
two_heads(["A", "B", "C", "D", "A"])
plotting.show(
    "Five tokens in three rows. In layer 1 every token looks at the one before it; in layer 2 the last A looks at the B"
    " that carries a note saying that an A stood before it, and predicts B."
)

# %% [markdown]
# The last *A* has to find the token that came **after** the earlier *A*. But *B* carries its own name and its position, and not that an *A* stood
# before it; and its position does not help, since the last *A* does not know the period. So this way takes two steps, and two layers.
#
# In layer 1 a **[previous-token head](../docs/glossary.md#p)** (blue arrows) lets every token look one step back and write down what it saw: the box
# of *B* then says that *B* comes right after an *A*. In layer 2 an **[induction head](../docs/glossary.md#i)** (the orange arrow) asks: *which
# token has written down that it comes right after an A?* It finds *B*, and hands *B* on as the prediction. That one head works with what another
# has written is what Elhage et al. call **[composition](../docs/glossary.md#c)**.
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
#   first layer first.

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
# of every sequence, and after tokens 32 to 63, which are repetitions in every sequence. The tokens between them are trained on as well, but enter
# neither of the two losses, since they are repetitions in some sequences only. Every ten steps we keep a copy of the parameters, for later.

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
ax = plotting.curves(parts, smooth=5, ylabel="loss", title="two layers: a slow decline, then a drop")
for level in (math.log(V), floor):
    ax.axhline(level, color="0.6", ls=":")
plotting.show("The loss on the first tokens stays above two dotted lines, two ways of guessing. That on repeated tokens falls slowly, and then drops to nearly 0.")
course.verdict("two layers: share right on what can be copied", share_right(model), above=0.5)

# %% [markdown]
# Your first prediction: nearly at one moment. The loss on repeated tokens sinks slowly for about 200 steps, and then drops within some fifty. A
# drop of this kind is called a **phase change**; Olsson et al. saw one in every model with two or more layers that they trained.
#
# The two dotted lines are the two losses printed above the picture: the upper one is a guess among all tokens, the lower one a guess among those
# that have not been read. (The lower one neglects that a block of 12 ends with the twelfth token, and that the first token then returns.) The loss on
# the first tokens stays a little above the upper line: our model does not rule out what it has read, and around the drop it gets even worse. Perhaps
# the new heads vote for tokens that have occurred, which is wrong within the first block except after its last token; we did not test it.

# %% [markdown]
# ## Look at the maps
#
# One sequence of the test set, in which the block has 20 tokens, and the weights of the eight heads. A row is a query, a column a key. Where
# would a head that looks one token back be bright, and where one that looks behind the earlier copy? Say it before you look.

# %%
maps = model(inputs, need_weights=True)[1]  # (B, H, L, L) for each layer
one = int((period == 20).nonzero()[0])  # a sequence that repeats after 20 tokens
plotting.heads(maps[0][one], titles=[f"layer 1, head {h}" for h in range(H)])
plotting.show("Layer 1: in several heads a bright line runs just below the diagonal, where the previous token is.")

# %%
plotting.heads(maps[1][one], titles=[f"layer 2, head {h}" for h in range(H)])
plotting.show("Layer 2: until the block repeats, the first columns are bright; then lines parallel to the diagonal, to its left.")


# %% [markdown]
# In layer 1 all four heads have a band near the diagonal: they look at the tokens just before. In layer 2, lines parallel to the diagonal begin
# where the block begins to repeat; the second of them, one more period to the left, belongs to the copy before the last. As long as there is nothing
# to copy, all four look mainly at the first two or three tokens.
#
# Pictures persuade easily, and cannot tell 19 columns from 20. Let us turn both observations into numbers. The field calls each of them a
# *score* too; this has nothing to do with attention scores.
#
# ## A head that looks one token back
#
# ### Exercise 2 · easy · 4 minutes
#
# `previous_token_score(weights)` gets causal weights of shape (B, H, L, L), query before key, with L at least 2. It returns a tensor of shape
# (H,): for
# each head, the mean weight of a query on the token just before it, over all queries but the first and over all sequences.

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
plotting.heatmap(lookback, rows=["layer 1", "layer 2"], columns=[f"head {h}" for h in range(H)], title="layer 1 looks one token back", xlabel="", ylabel="")
plotting.show("A table of eight scores: those of layer 1 are bright, those of layer 2 dark.")
ratio = lookback[0].max() / previous_token_score(uniform)[0]
course.verdict("layer 1, highest previous-token score over that of uniform weights", ratio.item(), above=2)


# %% [markdown]
# Each head of layer 1 puts between 23 and 39 % of its weight on the token before, about four to seven times as much as with uniform weights (0.06).
# Bounds of verdicts, such as twice or ten times the value of uniform weights, are set by hand in this notebook, clearly beyond what uniform weights
# reach; where a theorem gives the bound, we say so.
#
# ## A head that looks after the last copy
#
# An induction head looks for a key whose **prefix**, the token just before it, is the token that the query has read. Olsson et al. call this
# **[prefix matching](../docs/glossary.md#p)**.
#
# ### Exercise 3 · hard · 12 minutes
#
# In a sequence of period p, the token at position $i \ge p$ stood at $i - p$ before, and $i - p + 1$ is the position of the token that followed it
# there.
# `prefix_matching_score(weights, period)` gets weights of shape (B, H, L, L) and the periods, whole numbers of shape (B,), each from 1 to L − 1.
# It returns a tensor of shape (H,): for each head the mean weight of query $i$ on key $i - p + 1$, over all queries $i = p, \dots, L - 1$ of all
# sequences. Every query counts alike: a sequence with more repeated tokens counts more. Plain loops are fine here.

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
plotting.heatmap(matching, rows=["layer 1", "layer 2"], columns=[f"head {h}" for h in range(H)], title="layer 2 looks behind the copy", xlabel="", ylabel="")
plotting.show("A table of eight scores: those of layer 1 are nearly 0, those of layer 2 bright.")
ratio = matching[1].max() / prefix_matching_score(uniform, period)[0]
course.verdict("layer 2, highest prefix-matching score over that of uniform weights", ratio.item(), above=10)
on_copy = prefix_matching_score(maps[1], period + 1)  # key i - p, one column to the left
course.verdict("layer 2, lowest prefix-matching score over the weight on the copy itself", (matching[1] / on_copy).min().item(), above=2)


# %% [markdown]
# The heads of layer 2 look at the token *after* the earlier copy, much less at the copy itself. The score understates them: where a token has stood
# there more than once before, a head may share its weight among several copies, and we count the last one only.
#
# ### Does it copy?
#
# Looking at *B* is half of the work. The other half is to raise the logit of *B*. What a head adds to the logits when it looks at a token is a
# product of matrices: embedding, values, output projection, read-out. We compute it for all 48 tokens (leaving out what the norms divide by, and
# what layer 1 adds), and count the tokens whose own logit is raised most of all 48.

# %% tags=["nbval-ignore-output"]
def copying(head):
    attention, features = model.attentions[1], slice(head * E // H, (head + 1) * E // H)
    x = model.norms[1](model.embedding.weight)  # (V, E)
    written = x @ attention.v_proj.weight[features].T @ attention.out_proj.weight[:, features].T  # (V, E)
    raised = (written * model.norm.weight) @ model.read_out.weight.T  # (V, V)
    return (raised.argmax(dim=-1) == torch.arange(V)).float().mean().item()


shares = torch.tensor([copying(head) for head in range(H)])
print("layer 2, share of tokens that raise their own logit most:", [round(share, 2) for share in shares.tolist()])
course.verdict("the lowest of these shares", shares.min().item(), above=10 / V)


# %% [markdown]
# By chance the share would be 1 in 48. All four heads of layer 2 match prefixes, and copy most tokens, one of them nearly all: they are induction
# heads.
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


def half_way(points):  # the first step behind the middle between the first value and the last
    return next(step for step, value in points if abs(value - points[0][1]) > abs(value - points[-1][1]))


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
plotting.curves({name: points for name, points in history.items() if "loss" not in name}, ylabel="highest of four heads", ax=below)
plotting.show("Above, the loss on repeated tokens, which drops; below, both scores rise in the same steps, layer 1's a little before.")
halves = [half_way(points) for points in history.values()]
course.verdict("steps between the first and the last of three half-way points", max(halves) - min(halves), below=50, measured="quick")


# %% [markdown]
# In this one training the prefix-matching score stays low during the slow decline, while the previous-token score begins earlier: it rises from
# about 0.06, the value of uniform weights, to about 0.1 before the drop. Both rise most in the steps in which the loss drops, and go on rising
# slowly when the loss is already near 0. Whether the heads *cause* the drop, the curves do not say.
#
# ## Does the trained model copy by these heads?
#
# We ask the trained model, not the training: does it need these heads in order to copy? (To learn whether they cause the drop, one has to
# change the training, as Olsson et al. did, who moved the drop to another time.) A head that looks the right way might still not matter. The test is
# to take it away. A **[hook](../docs/glossary.md#h)** is a function that torch
# calls on what goes into a module (a *pre*-hook, which gets a tuple) or comes out of it; what it returns, if anything, takes that place. In our
# attention the
# outputs of all heads stand side by side in front of `out_proj`. Our hook replaces those of the chosen heads by their mean over all sequences and
# positions, so that they say nothing any more about the sequence that is read. This is **[ablation](../docs/glossary.md#a)**.
#
# ### Exercise 4 · middle · 8 minutes
#
# `ablate(x, heads, num_heads)` gets the outputs of all heads, of shape (B, L, E): the first E / num_heads features belong to head 0, the next to head
# 1, and so on. `heads` is a list of one or more different whole numbers. Return a new tensor (B, L, E), in which each feature of these heads has at all
# positions of all sequences the same value: its mean over them. The features of the other heads stay as they are, and so does `x` itself.

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
# We silence every single head, and then all 28 pairs of heads. Of each layer, one pair is special: the two heads that have the highest scores, the
# previous-token score in layer 1 and the prefix-matching score in layer 2. **Predict**: will these two pairs cost more than the other 26?

# %%
def silence(layer, heads):
    def hook(module, arguments):
        return (ablate(arguments[0], heads, H),)

    return model.attentions[layer].out_proj.register_forward_pre_hook(hook)


def share_with(*hooks, model=model):
    share = share_right(model)
    for hook in hooks:
        hook.remove()
    return share


# %% tags=["nbval-ignore-output"]
best_two = [scores.argsort(descending=True)[:2].tolist() for scores in (lookback[0], matching[1])]  # by their own score
units = [(layer, head) for layer in (0, 1) for head in range(H)]
pairs = torch.empty(2 * H, 2 * H)
for one, two in combinations_with_replacement(range(2 * H), 2):
    pairs[one, two] = pairs[two, one] = share_with(*(silence(layer, [head]) for layer, head in {units[one], units[two]}))
intact, without = share_right(model), [share_with(silence(layer, range(H))) for layer in (0, 1)]
print(f"share right with all heads {intact:.3f}, without those of layer 1 {without[0]:.3f}, of layer 2 {without[1]:.3f}")
print("highest scores: layer 1, heads", best_two[0], "and layer 2, heads", best_two[1])
for layer in (0, 1):
    of_pairs = sorted((pairs[layer * H + one, layer * H + two].item(), (one, two)) for one, two in combinations(range(H), 2))
    print(f"two heads of layer {layer + 1} silent, from the costliest:", *(f"{pair} {share:.2f} " for share, pair in of_pairs))

# %%
names = [f"layer {layer + 1}, head {head}" for layer, head in units]
_, ax = plt.subplots(figsize=(7.2, 5.6), layout="constrained")
plotting.heatmap(pairs, rows=names, columns=names, title="share right without two heads (diagonal: without one)", xlabel="", ylabel="", vmax=1, ax=ax)
plotting.show("A symmetric table of shares for all pairs of eight heads: low for some pairs within layer 1, high nearly everywhere else.")
for layer in (1, 2):
    course.verdict(f"share right without the heads of layer {layer}", without[layer - 1], below=0.25)


# %% [markdown]
# Without the heads of either layer hardly anything is right. Without any single head most still is, and without most pairs, too: the heads of a
# layer share the work, and one makes up for another. In the run shown here one head stands out: head 0 of layer 1, which has by far the highest previous-token score. The
# seven pairs that contain it cost more than all 21 others.
#
# But the scores do not tell which pair costs most. In layer 1, heads 0 and 2 have the highest scores, but head 0 costs more together with head 1 or 3. (The scores of
# heads 1, 2 and 3 lie within 0.01 of each other.) In layer 2, where all four scores lie close together, the two heads with the highest cost least of all
# six pairs. So the model needs the heads of each layer, and head 0 of layer 1 above all. That it needs them *for looking one token back*, this
# experiment does not show.
#
# ### Only what it sees of the previous token
#
# Silence takes all that a head says, also what it has found elsewhere than on the previous token. So we now take from the heads of layer 1 one thing
# only. A mask hides from every query the key that stands one position before it. The softmax then divides by what is left: the other weights grow, and
# the row still sums to 1. As controls, we hide the key two positions back, and the one three back. **Predict**: which of them will cost most?

# %%
def hide(back, heads, model=model):
    mask = torch.ones(1, H, L, L, dtype=torch.bool)
    mask[:, heads] = ~torch.ones(L - back).diag(-back).bool()  # (L, L): False at (i, i - back)

    def hook(module, arguments, options):
        return arguments, options | {"attn_mask": mask}

    return model.attentions[0].register_forward_pre_hook(hook, with_kwargs=True)


# %% tags=["nbval-ignore-output"]
other_two = [head for head in range(H) if head not in best_two[0]]
groups = {**{f"head {head}": [head] for head in range(H)}, "best two": best_two[0], "other two": other_two, "all": list(range(H))}
hidden = {"silent": {name: share_with(silence(0, heads)) for name, heads in groups.items()}}
for back in (1, 2, 3):
    hidden[f"{back} back hidden"] = {name: share_with(hide(back, heads)) for name, heads in groups.items()}
of_pairs = sorted((share_with(hide(1, list(pair))), pair) for pair in combinations(range(H), 2))
print("previous token hidden from two heads, from the costliest:", *(f"{pair} {share:.2f} " for share, pair in of_pairs))

# %%
_, ax = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
plotting.heatmap(torch.tensor([list(shares.values()) for shares in hidden.values()]), rows=list(hidden), columns=list(groups), title="share right, when these heads of layer 1 …", xlabel="", ylabel="", vmax=1, ax=ax)
plotting.show("Four rows: silent heads cost much; without the previous token the best two and all cost nearly everything; two or three back cost almost nothing.")
course.verdict("share right, the previous token hidden from all heads of layer 1", hidden["1 back hidden"]["all"], below=0.25)
course.verdict("share right, the token two back hidden from all of them", hidden["2 back hidden"]["all"], above=0.75)

# %% [markdown]
# Hide the previous token from all heads of layer 1, and hardly one answer in a hundred is right, although each head keeps everything else that it
# sees. Hide the token two or three back instead, and more than nine in ten stay right. So it is not the change as such that does the damage: the
# model needs layer 1 for looking **one token back**.
#
# Of single heads, head 0 does most of this work, as its score says. Of pairs, the three that contain it cost nearly everything, and the three that do not
# cost little; which of the three comes first, the nearly equal scores of the other heads do not tell. For head 0, hiding the previous token costs even
# more than silence. A likely reason is that the head goes on writing notes, now about some other token, and a wrong note does more harm than none; we
# did not test it.
#
# All of this is one trained model. Here is a second one, which starts from other random parameters. Are its costs the same, and is it the same head?

# %% tags=["nbval-ignore-output"]
torch.manual_seed(1)
second, _, _ = train(2, steps)
scores = previous_token_score(second(inputs, need_weights=True)[1][0])  # (H,)
best, others = scores.argsort(descending=True).split(2)
print(f"share right with all heads {share_right(second):.3f}; previous-token scores of layer 1", [round(score, 2) for score in scores.tolist()])
of_second = {}
for back in (1, 2, 3):
    groups = {"best two": best, "other two": others, "all": range(H)}
    of_second[back] = {name: share_with(hide(back, heads, second), model=second) for name, heads in groups.items()}
    print(f"{back} back hidden:", {name: round(share, 3) for name, share in of_second[back].items()})

# %%
course.verdict("second model, previous token hidden from all heads of layer 1", of_second[1]["all"], below=0.25)
course.verdict("second model, token two back hidden from all of them", of_second[2]["all"], above=0.75)


# %% [markdown]
# The costs are the same, and clearer: without the previous token hardly anything is right, without an older one nearly everything. The heads are not the
# same. Here two heads share the work, 0 and 2; hidden from the other two, which look back less, the previous token is not missed. So both models need
# layer 1 for the same thing, and which of its heads do it differs.
#
# ### Along which path?
#
# Layer 2 makes its queries, its keys and its values from what layer 1 has written. Through which of the three does the note reach the induction heads?
# **[Path patching](../docs/glossary.md#p)** tests one path alone: a *patch* is a tensor that one run of a model has computed, put into another run.
#
# 1. Run the model with the best two heads of layer 1 silenced, and keep the damaged tensor that goes into one projection of layer 2: the one that
#    makes the queries (`q_proj`), the keys (`k_proj`) or the values (`v_proj`).
# 2. Run the intact model, but give the damaged tensor to that one projection.
#
# Guess before you run it, with the picture of the five letters in mind: which projection costs most?

# %%
def patch(name, heads):
    projection, kept = getattr(model.attentions[1], name), []
    share_with(silence(0, heads), projection.register_forward_pre_hook(lambda module, x: kept.append(x[0])))
    return share_with(projection.register_forward_pre_hook(lambda module, x: (kept[0],)))


# %% tags=["nbval-ignore-output"]
paths = {name: intact - patch(name, best_two[0]) for name in ("q_proj", "k_proj", "v_proj")}
print(f"share right that is lost in all {intact - hidden['silent']['best two']:.3f}, through", {name: round(lost, 3) for name, lost in paths.items()})

# %%
course.verdict("lost through the keys minus lost through queries or values", paths["k_proj"] - max(paths["q_proj"], paths["v_proj"]), above=0)

# %% [markdown]
# Most of it is lost through the **keys**. This fits the mechanism: each key must say which token stood before it, and it is layer 1 that has written
# this down. [TransformerLens](https://transformerlensorg.github.io/TransformerLens/) gives such
# places the same names in many published models, so that the same hooks work in all of them.
#
# ## With one layer
#
# The same training with one layer. Perhaps one layer is only slower, or too small? So we train it for twice as many steps, and look at it half-way and
# at the end; and we train one of twice the width, with 128 features and 8 heads. Below the curves we print what a
# **[record](../docs/glossary.md#r)** says, a file with
# the results of trainings that were run before, with several seeds. Each kind of model in a record is called an *arm*, like the groups of a clinical
# trial: the arm *dot* is our model of two layers with the dot product, and *one layer* is the same model with one.

# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
longer, losses_of_longer, snapshots_of_longer = train(1, 2 * steps)
wider, losses_of_wider, _ = train(1, steps, embed_dim=2 * E, num_heads=2 * H)
single = AttentionOnly(V, L, E, H, num_layers=1).requires_grad_(False)
single.load_state_dict(dict(snapshots_of_longer)[steps])
ours = {"two layers": model, "one layer": single, f"one layer, {2 * steps:,} steps": longer, f"one layer, {2 * E} features": wider}
shares = {name: share_right(one) for name, one in ours.items()}
for name, one in ours.items():
    print(f"{name:23} {sum(p.numel() for p in one.parameters()):6,} parameters, share right {shares[name]:.3f}")

# %%
parts = {"two layers": losses, "one layer, twice as long": losses_of_longer, "one layer, twice as wide": losses_of_wider}
plotting.curves({name: part[:, 1].tolist() for name, part in parts.items()}, smooth=5, ylabel="loss on repeated tokens", title="one layer only sinks slowly, longer or wider")
plotting.show("The curve of two layers drops to nearly 0; those of one layer, trained for longer or twice as wide, only sink slowly.")
course.verdict("the best share right of the three with one layer", max(list(shares.values())[1:]), below=0.25)
record = records.load_record("induction", "quick")
for arm in ("dot", "one layer"):
    print(records.describe_record("induction", "accuracy on repeats", "quick", arm=arm))


# %% [markdown]
# One training is one training. The record holds five seeds of each, with 600 steps (± is the standard error). We compare seed by seed, as in
# notebook 16: the mean of the differences, and its 95 % confidence interval by Student's t (2.776 for five seeds).

# %%
def interval(differences):
    x = torch.tensor(differences, dtype=torch.float64)
    half = 2.776 * x.std() / math.sqrt(len(x))
    return (x.mean() - half).item(), (x.mean() + half).item()


right = {arm: records.recorded_metric(record, "accuracy on repeats", arm) for arm in record["arms"]}
low, high = interval([two - one for two, one in zip(right["dot"], right["one layer"], strict=True)])
print(f"share right, two layers minus one: 95 % interval {low:.3f} to {high:.3f}")
course.verdict("two layers minus one, lower end of the interval", low, above=0)
course.verdict("share right with one layer, the best of five seeds", max(right["one layer"]), below=0.25)


# %% [markdown]
# Your second prediction: one time in ten. The head of a single layer has keys that are made of tokens and positions alone, and none of them says
# which token stood before. So no head of it can find *B* by the *A* before it. Twice the steps or twice the width, with which it has more parameters
# than our model of two layers, did not help: all three are right on 11 % in our trainings. That no single layer, however wide, could do the task in another
# way, this does not prove; nor did we measure what it has learned, to be right more often than by guessing.
#
# ## Which attention scores can do it?
#
# An induction head has to let its weights depend on the query: after *A* it looks elsewhere than after *C*. The weights of separable additive
# attention do not depend on the query (notebook 09), and this limits its prefix-matching score, however it is trained. Let the weights be
# $w_{ij} = a_j / \sum_{k \le i} a_k$, and take the $p$ queries in a row that repeat one block, from position $T$ on. An induction head would look
# at $p$ different keys, one for each query, all of them at positions up to $T$. So
#
# $$\sum_{i=T}^{T+p-1} w_{i,\,i-p+1} \;\le\; \frac{\sum_{\text{these keys}} a_j}{\sum_{k \le T} a_k} \;\le\; 1.$$
#
# The first step holds since query $i \ge T$ divides by the sum over all keys up to $i$, which include all those up to $T$, and no $a$ is negative. The
# second holds since these keys are all different, so that the numerator is a part of the denominator.
#
# The $L - p$ queries of a sequence fill at most $\lceil (L-p)/p \rceil$ such blocks, and each adds at most 1. The number of blocks in all sequences,
# divided by the number of queries, is therefore the highest prefix-matching score of any head whose weights do not depend on the query.

# %%
def ceiling(period, length):
    return (((length - period) / period).ceil().sum() / (length - period).sum()).item()


most = ceiling(period, L)
separable = SeparableAdditiveScore(H, E // H).double()
scores = separable(*torch.randn(2, 1, H, L, E // H, dtype=torch.float64).mul(3)).masked_fill(torch.ones(L, L).triu(1).bool(), -torch.inf)
drawn = prefix_matching_score(scores.softmax(dim=-1).expand(len(period), -1, -1, -1), period)
print(f"at most {most:.3f}, whatever the query-free weights")
course.verdict("random separable heads: highest prefix-matching score", drawn.max().item(), below=most)

# %% [markdown]
# The record has models of two layers with several attention scores, all trained alike. Which of them form induction heads? The dashed line is the
# ceiling that we have just computed.

# %%
heads_of = {arm: records.recorded_metric(record, "prefix-matching score", arm) for arm in record["arms"]}
plotting.seeds({arm.replace("_", "\n").replace(" ", "\n"): values for arm, values in heads_of.items()}, lines={"ceiling without the query": most}, title="without the query in its weights, no head gets above the line", ylabel="prefix-matching score")
plotting.show("Prefix-matching scores of five seeds each: dot product and distance far above the ceiling, separable below it.")
for arm in right:
    print(f"{arm:14} share right {sum(right[arm]) / 5:.3f}, prefix matching {min(heads_of[arm]):.3f} to {max(heads_of[arm]):.3f}")

# %%
for arm in ("distance", "separable"):
    low, high = interval([ours - dot for ours, dot in zip(right[arm], right["dot"], strict=True)])
    print(f"share right, {arm} minus dot: 95 % interval {low:+.3f} to {high:+.3f}")
course.verdict("separable minus dot: upper end of the interval", high, below=0)
course.verdict("distance: lowest prefix-matching score", min(heads_of["distance"]), above=most)
course.verdict("separable: highest prefix-matching score", max(heads_of["separable"]), below=most)

# %% [markdown]
# Your third prediction: not in these trainings. Models with the separable score are right on 22 % after 600 steps, more than with one layer. But
# their heads stay below the ceiling, as they must, and no higher than our random ones: they are no induction heads. That no such model can solve
# the task in another way is not proved. The dot product and the distance-biased score (*distance*, notebook 07) form induction heads in every seed.
# With the dot product the best head of the record has 0.61 to 0.65, and ours has 0.55 after the same number of steps. Our loop is simpler than the
# recorded one, which also clips large gradients, for instance; which difference accounts for it, we did not test.
#
# Two results are less tidy. The Gaussian energy well (`gaussian_well`, notebook 10) forms them in four of five seeds; the fifth has none after 600
# steps. And models with Bahdanau's additive score (*additive*) are right on a third of the tokens only, and their best heads lie near the ceiling. But
# their weights *do* depend on the query, so the ceiling does not hold for them: the theorem does not forbid them better heads. This says no
# more than that 600 steps, at a learning rate chosen for the dot product, were not enough.
#
# ## In a model that was not trained for this
#
# The *writer* is the trained character model of notebook 08, with five layers of five heads. Did it form such heads by itself? We take passages of the
# validation text, of 20 to 60 characters, and repeat them until 129 are there. A repetition usually jumps back in the middle of a word, which is hard to
# predict. So we leave out the jump itself and the first ten characters after it, and in the first reading the first ten characters of the passage.
# The number ten is our choice, so that the word that was cut is mostly over; how much depends on it, we did not test.

# %%
writer, text = trained.load("writer").requires_grad_(False), shakespeare("val")[0]
draw = torch.Generator().manual_seed(0)
spans = torch.randint(20, 61, (60,), generator=draw)
starts = torch.randint(len(text) - 60, (60,), generator=draw)
passages = torch.stack([text[s + torch.arange(129) % p] for s, p in zip(starts, spans, strict=True)])  # (60, 129)
maps_of_writer = writer.attention_weights(passages[:, :-1])
found = torch.stack([prefix_matching_score(weights, spans) for weights in maps_of_writer])  # (5, 5)
course.verdict("writer: highest prefix-matching score", found.max().item(), below=ceiling(spans, 128))

# %%
loss = F.cross_entropy(writer(passages[:, :-1]).mT, passages[:, 1:], reduction="none")  # (60, 128)
position = torch.arange(128)
inside = (position % spans[:, None] >= 10) & (position % spans[:, None] < spans[:, None] - 1)  # (60, 128): away from the jumps
first = position < spans[:, None]
once = torch.stack([row[chosen].mean() for row, chosen in zip(loss, inside & first, strict=True)])
twice = torch.stack([row[chosen].mean() for row, chosen in zip(loss, inside & ~first, strict=True)])
gain = (once - twice).double()
high = gain.mean() + 2.0 * gain.std() / math.sqrt(60)  # Student's t for 60 passages
print(f"loss when read for the first time {once.mean():.2f}, when read again {twice.mean():.2f}")
course.verdict("gain by having read the passage before, upper end of the interval", high.item(), below=0)

# %% [markdown]
# No head of the writer is above the ceiling. Having read a passage before did not lower its loss, even away from the jumps: the loss is a little
# *higher* at the second reading, 1.50 against 1.46, and the 95 % interval of the difference excludes 0. Why it is higher, we did not test. So we
# found no sign of induction heads. Our score looks at the place one period back, and in a play the same letter often stands in between; but a model that copied
# in another way would have gained from the repetition.

# %% [markdown]
# ## Today
#
# - **GPT-2** has induction heads: [Wang et al. 2022](https://arxiv.org/abs/2211.00593) found them at work when it finds out who gave what to whom.
# - **Models from two layers to 13 billion parameters** show the drop and the heads, early in training
#   ([Olsson et al. 2022](https://arxiv.org/abs/2209.11895)).
# - **Mamba** ([Gu and Dao 2023](https://arxiv.org/abs/2312.00752)) has no attention: it reads with a memory of fixed size. Its authors use an
#   induction task to show what such a memory can learn when its input decides what it keeps.
# - **H3** ([Fu et al. 2022](https://arxiv.org/abs/2212.14052)) added a shift to a model of this family, to do the work of a previous-token head.
# - **Token shift**, rung 5 of notebook 08, hands every layer the token before, which is the work of the first of the two heads.
#
# ## Takeaways
#
# - A frozen model can copy from its prompt, if one head notes what stood before and another looks it up. In-context learning is more than that.
# - In our training the scores of both kinds rose most in the steps in which the loss dropped.
# - A map is an observation, a score is a measurement, ablation and path patching are experiments. An experiment needs a control: hiding the previous
#   token destroyed the copying, and hiding another one did not.
# - One layer did not do it in any of five recorded trainings, nor when it was trained twice as long or was twice as wide. Heads whose weights do not depend on the query cannot be induction heads.
#
# ## Check yourself
#
# 1. Why can a head of the first layer not be an induction head?
# 2. You silence one head, and nothing changes. What have you shown?
# 3. All periods are 20. Which simple head solves the task in a model with one layer?
#
# <details><summary>Answers</summary>
#
# 1. Its keys are made of tokens and positions. The key of *B* does not say that an *A* stood before it.
# 2. That the model can do without this head. Others may have taken over its work: silence them together.
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
