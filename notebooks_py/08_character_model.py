# %% [markdown]
# # 08 A character language model
#
# [![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/sciformer/sciformer/blob/main/notebooks/08_character_model.ipynb)
#
# ← [07 Distance bias](07_distance_bias.ipynb) · [the map of the course](00_welcome.ipynb) · [09 Additive attention](09_additive_attention.ipynb) →
#
# Needs: notebooks 05 and 07 · runs in about 90 s on two CPU cores · about 2½ hours of study

# %% [markdown]
# After this notebook you can
#
# - build a GPT, say what its loss means, and which numbers it has to beat;
# - sample from it with a temperature, among the likeliest, and with a cache that never reads a token twice;
# - name the ingredients of a good recipe, and what each step towards it is worth, measured.
#
# New against 05: the blocks are causal, and each token predicts the next.

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
import time
from dataclasses import asdict
from functools import partial
from itertools import pairwise

import ipywidgets
import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn

from sciformer import POSITIONS, SCORES, CharTransformer, LearnedPositions, NoPositions, RotaryScore, TransformerBlock
from sciformer import check, course, experiments, export_html, metrics, plotting, records
from sciformer import rotate, sample
from sciformer.data import shakespeare, text_batches
from sciformer.fast.cache import Cache
from sciformer.lab import trainers
from sciformer.teach import explore
from sciformer.training import TrainConfig, fit, next_token_loss, text_loss

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# %% [markdown]
# ## Predict first
#
# A text with 65 different characters; a model says how probable each is as the next one. Its loss is the mean of
# $-\log p$ of what came.
#
# 1. What is the loss of a model that knows nothing?
# 2. And of one that only counts which character follows which?
# 3. 256 characters are generated one by one. A cache remembers what was computed for the old ones. How many times fewer
#    multiplications: 2, 16, or more than 100?

# %% [markdown]
# ## The text, and the text one later
#
# A megabyte of Shakespeare's plays; the last tenth is for validation. A token is a character.

# %%
tokens, vocabulary = shakespeare("train")
validation, _ = shakespeare("val")
V = len(vocabulary)
print(vocabulary.decode(tokens[:95]), "\n")
print(f"{len(tokens):,} characters to train on, {len(validation):,} to validate, {V} different ones:")
print(repr(vocabulary.characters))

# %% [markdown]
# One chunk of text is a whole set of exercises: after each character, which comes next? The targets are the text itself,
# **one later**.

# %%
chunk = vocabulary.encode("the cat sat on the mat")
inputs, targets = chunk[:-1], chunk[1:]
for t in range(6):
    print(f"after {vocabulary.decode(inputs[: t + 1])!r:9} comes {vocabulary.decode(targets[t : t + 1])!r}")

# %% [markdown]
# `text_batches` cuts the training text into chunks, in a new way in every pass, and gives each with its targets.

# %%
some, later = next(text_batches(tokens, 8, batch_size=4, seed=0))  # (B, L) each
print("shifted by one:", torch.equal(some[:, 1:], later[:, :-1]))
for a, b in zip(some, later, strict=True):
    print(repr(vocabulary.decode(a)), "→", repr(vocabulary.decode(b)))

# %% [markdown]
# ## The loss
#
# $$\text{loss} = -\frac1N \sum_t \log p(x_{t+1} \mid x_1, \dots, x_t), \qquad \text{perplexity} = e^{\text{loss}}$$
#
# | symbol | variable | shape |
# |---|---|---|
# | $x_t$, what is read | `inputs` | (B, L) |
# | $x_{t+1}$, what comes | `targets` | (B, L) |
# | $p = \text{softmax}(z)$ over the vocabulary | `logits`, $z$ | (B, L, V) |
#
# A perplexity of 65 is as good as a blind guess among 65.

# %%
logits = torch.randn(1, len(inputs), V)  # (B, L, V)
total = 0.0
for t in range(len(inputs)):
    p = logits[0, t].exp() / logits[0, t].exp().sum()
    total -= p[targets[t]].log()
torch.testing.assert_close(next_token_loss(logits, targets[None]), total / len(inputs))


# %% [markdown]
# ### Break it: targets that are not shifted
#
# The classic slip: compare the logits with what was just read. A parrot, which says what it hears, is then perfect.

# %%
def parrot(inputs):
    return 15.0 * F.one_hot(inputs, V)  # (B, L, V)


right, slip = (next_token_loss(parrot(some), t).item() for t in (later, some))
print(f"targets one later: {right:.2f}")
print(f"targets not shifted: {slip:.4f}")


# %% [markdown]
# A loss near 0 after a minute is not genius; it is this slip, or a mask that leaks. The other slip: the data are shifted
# already, and the loss shifts again. Then the model learns to predict **two** later, and the loss stalls. How much
# harder that is, counting will tell.

# %% [markdown]
# ## Numbers to beat: counting
#
# Prediction 1: $-\log(1/65) = \log 65$. Now count in the training text what follows each run of characters, add 0.1 to every
# count so that nothing is impossible, and predict the validation text.

# %%
def runs(text, n):  # each n characters in a row as one number in base V
    return (text.unfold(0, n, 1) * V ** torch.arange(n).flip(0)).sum(dim=-1)  # (N - n + 1,)


def loss_by_counting(n):
    seen = torch.bincount(runs(tokens, n), minlength=V**n).view(-1, V) + 0.1  # (runs of n - 1, V)
    log_p = seen.log() - seen.sum(dim=-1, keepdim=True).log()
    return -log_p.flatten()[runs(validation, n)].mean().item(), log_p


to_beat = {"nothing known": math.log(V)}
for n, name in enumerate(("single characters", "pairs", "threes", "fours"), start=1):
    to_beat[name], _ = loss_by_counting(n)
_, pairs = loss_by_counting(2)  # log p, (V, V)
for name, loss in to_beat.items():
    print(f"{name:18} loss {loss:.2f}, perplexity {math.exp(loss):4.1f}")

# %% [markdown]
# Prediction 2: counting pairs gets far below log 65. Fours do better still, but with fives the table would have a billion
# entries, nearly all empty. A model has to beat the counts, **fours** included. The pairs as a picture:

# %%
letters = " abcdefghijklmnopqrstuvwxyz"
chosen = vocabulary.encode(letters)
names = list(letters.replace(" ", "␣"))
plotting.heatmap(pairs[chosen][:, chosen].exp(), rows=names, columns=names, xlabel="next", ylabel="read", title="p(next)")
plt.show()

# %%
seen = torch.bincount(tokens[:-2] * V + tokens[2:], minlength=V * V).view(V, V) + 0.1
two_later = -(seen / seen.sum(dim=-1, keepdim=True)).log()[validation[:-2], validation[2:]].mean().item()
print(f"counting pairs: one later {to_beat['pairs']:.2f}, two later {two_later:.2f}")


# %% [markdown]
# Half of what a pair knows beyond a single character is lost. So much for shifting twice.

# %% [markdown]
# ## The model
#
# Nothing in it is new: an embedding, positions, causal blocks, a norm, and a linear read-out. This is GPT-2's
# architecture (Radford et al. 2019, section 2.3).

# %%
class MyCharTransformer(nn.Module):
    def __init__(self, vocab_size, max_length, embed_dim, num_heads, num_layers):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.positions = LearnedPositions(embed_dim, max_length)
        self.blocks = nn.ModuleList(TransformerBlock(embed_dim, num_heads, bias=False) for _ in range(num_layers))
        self.norm = nn.LayerNorm(embed_dim, bias=False)
        self.read_out = nn.Linear(embed_dim, vocab_size, bias=False)
        self.read_out.weight = self.embedding.weight  # tied: one table to read and to write

    def forward(self, tokens):  # (B, L), integers
        x = self.positions(self.embedding(tokens))  # (B, L, E)
        for block in self.blocks:
            x, _ = block(x, is_causal=True)
        return self.read_out(self.norm(x))  # (B, L, V)


# %%
small = CharTransformer(V, 32, embed_dim=24, num_heads=3, num_layers=2).double()
mine = MyCharTransformer(V, 32, embed_dim=24, num_heads=3, num_layers=2).double()
mine.load_state_dict(small.state_dict())
torch.testing.assert_close(mine(some), small(some))
ours, theirs = (
    torch.autograd.grad(next_token_loss(model(some), later), list(model.parameters())) for model in (mine, small)
)
torch.testing.assert_close(ours, theirs)
print(f"same: logits, and the gradients of all {len(ours)} parameters")

# %% [markdown]
# ### One pass, all predictions
#
# A place sees itself and what came before, never what comes. So the logits at place $t$ are those of a model that was
# given the first $t + 1$ characters only: one pass is L predictions, and L gradients.

# %%
whole = small(inputs[None])  # (1, L, V)
for t in range(len(inputs)):
    alone = small(inputs[None, : t + 1])[:, -1]  # (1, V)
    torch.testing.assert_close(whole[:, t], alone)
print(f"one pass gives the logits of {len(inputs)} passes")

# %% [markdown]
# ### One table to read and to write
#
# Row $v$ of the embedding is what character $v$ looks like when it is read; row $v$ of the read-out is what predicts it. Tied,
# they are one row (Press & Wolf 2017, arXiv:1608.05859). It saves $V \cdot E$ numbers: much with a vocabulary of words, little
# here. The last recipe below does not tie.

# %%
for name, size in (("here, 65 characters", (V, 64, 128, 4, 4)), ("GPT-2's vocabulary", (50_257, 64, 128, 4, 4))):
    tied, untied = (
        sum(p.numel() for p in CharTransformer(*size, tie_weights=tie).parameters()) for tie in (True, False)
    )
    print(f"{name}: tied {tied:,} parameters, untied {untied:,}, that is {untied / tied:.2f} times as many")

# %% [markdown]
# ## Where training starts
#
# At the start the model knows nothing, so its loss should be about $\log 65$. With torch's defaults it is not: embeddings
# start at standard deviation 1, and tied they make huge logits. Three starts:
#
# - torch's defaults;
# - `start="small"`: standard deviation 0.02, and less where a branch joins the stream (GPT-2);
# - `start="identity"`: what joins the stream, and an untied read-out, is 0.

# %%
sizes = {"embed_dim": 64, "num_heads": 4, "num_layers": 4}
torch.manual_seed(0)
starts = {
    "torch's defaults": MyCharTransformer(V, 32, **sizes),
    "small": CharTransformer(V, 32, **sizes, start="small"),
    "identity, untied": CharTransformer(V, 32, **sizes, start="identity", tie_weights=False),
}
some, later = next(text_batches(tokens, 32, batch_size=16, seed=0))
first = {name: next_token_loss(model(some), later).item() for name, model in starts.items()}
print(f"log 65 = {math.log(V):.3f}, identity: {first['identity, untied']:.3f}")
course.verdict("loss at the small start minus log 65", first["small"] - math.log(V), above=-0.1, below=0.1)
course.verdict("loss at torch's defaults", first["torch's defaults"], above=20)


# %% [markdown]
# Worse than knowing nothing: it is sure, and wrong. Does it matter, when training goes on?

# %% tags=["nbval-ignore-output"]
def train_briefly(model):
    stream = text_batches(tokens, 32, batch_size=8, seed=1)
    return fit(model.to(device), stream, next_token_loss, TrainConfig(steps=60, lr=1e-3), progress=False).loss


begun = {name: train_briefly(model) for name, model in starts.items()}
ax = plotting.curves(begun, smooth=5, ylabel="training loss", title="three starts")
ax.axhline(math.log(V), color="0.5", linestyle="--", linewidth=1)
ax.set_ylim(2.5, 12)
plt.show()

# %%
last = {name: sum(losses[-10:]) / 10 for name, losses in begun.items()}
course.verdict("after 60 steps: loss from torch's defaults minus small", last["torch's defaults"] - last["small"], above=0.3)

# %% [markdown]
# The dashed line is $\log 65$. The bad start spends its first steps on coming down to where the others begin. A
# first loss far from $\log V$ is a bug that you can see before you train.
#
# ## Sampling
#
# Logits are not text. To write, draw a character, append it, ask again. Any table of log p can do it; the pairs that we
# counted, for instance:

# %% tags=["nbval-ignore-output"]
generator = torch.Generator().manual_seed(0)
text = vocabulary.encode("T")
for _ in range(150):
    following = torch.multinomial(pairs[text[-1]].exp(), 1, generator=generator)
    text = torch.cat([text, following])
print(vocabulary.decode(text))

# %% [markdown]
# ### Temperature
#
# $$p_v = \text{softmax}(z_v / T)$$
#
# Divide the **logits**, before the softmax. $T = 1$ draws as the model believes; towards 0 the likeliest takes all;
# a large $T$ flattens. What follows an *h*, by pairs:

# %%
after_h = pairs[vocabulary.encode("h")[0]]  # (V,)
likely = after_h.topk(9).indices
signs = [repr(c)[1:-1].replace(" ", "␣").replace("\\n", "↵") for c in vocabulary.characters]
temperatures = (0.25, 0.5, 1.0, 2.0)
rows = torch.stack([(after_h / T).softmax(dim=-1)[likely] for T in temperatures])  # (4, 9)
plotting.heatmap(
    rows, rows=[f"T = {T}" for T in temperatures], columns=[signs[v] for v in likely],
    xlabel="next", ylabel="", title="p(next | h)", vmax=1,
)  # fmt: skip
plt.show()


# %%
def after_a_temperature(read, T):
    p = (pairs[vocabulary.encode(read)[0]] / T).softmax(dim=-1)
    shown = p.topk(12).indices
    title = f"after {read!r}, T = {T}: perplexity {torch.special.entr(p).sum().exp():.1f}"
    return plotting.bars(p[shown], [signs[v] for v in shown], title=title, xlabel="next", ylabel="probability", top=1.1)


explore(
    after_a_temperature,
    alt="Probabilities of the twelve likeliest characters after h at temperature 1: e leads, then a, i, o and space.",
    read=ipywidgets.Dropdown(value="h", options=list("aehnqt,"), description="after"),
    T=ipywidgets.FloatSlider(value=1.0, min=0.1, max=4, step=0.1, description="temperature"),
)

# %% [markdown]
# ### Only the likeliest
#
# A long tail of unlikely characters adds up, and one of them can derail a text. **Top-k** hides all but the $k$ likeliest
# before the softmax, so that what is left sums to 1.

# %%
many = (after_h / 0.8).expand(1000, V)  # (B, V): a thousand times the same logits, at temperature 0.8
least = many.topk(5).values[:, -1:]  # (B, 1), the fifth likeliest
p = many.masked_fill(many < least, -math.inf).softmax(dim=-1)  # (B, V)
drawn = torch.multinomial(p, 1, generator=torch.Generator().manual_seed(1))[:, 0]  # (B,)
print("left:", (p[0] > 0).sum().item(), "with sum", round(p[0].sum().item(), 4))
same = sample(after_h.expand(1000, V), temperature=0.8, top_k=5, generator=torch.Generator().manual_seed(1))
print("the package draws the same:", torch.equal(drawn, same))


# %% [markdown]
# ## A cache: never read twice
#
# One more character needs one new query. It meets the keys and values of all before, and those do not change: an old
# token never sees the new one. So keep them. One layer of attention, by hand:

# %%
def attend_to_memory(x, memory, W_q, W_k, W_v):  # (B, 1, E), a dict, (E, E) each
    q, k, v = x @ W_q, x @ W_k, x @ W_v  # (B, 1, E): of the new token alone
    memory["k"] = torch.cat([memory["k"], k], dim=1) if "k" in memory else k  # (B, S, E), behind the old ones
    memory["v"] = torch.cat([memory["v"], v], dim=1) if "v" in memory else v
    return (q @ memory["k"].mT / math.sqrt(q.shape[-1])).softmax(dim=-1) @ memory["v"]  # (B, 1, E)


x, (W_q, W_k, W_v) = torch.randn(2, 7, 8), torch.randn(3, 8, 8)
memory = {}
one_by_one = torch.cat([attend_to_memory(x[:, t : t + 1], memory, W_q, W_k, W_v) for t in range(7)], dim=1)
at_once = F.scaled_dot_product_attention(x @ W_q, x @ W_k, x @ W_v, is_causal=True)
torch.testing.assert_close(one_by_one, at_once)

# %% [markdown]
# No mask: the future is not there yet. Two things are easily forgotten. The new token's **place** is the number of tokens
# read before, not 0. And each **layer** has a memory of its own. In the package, one `Cache` holds them all:

# %%
cache = Cache()
parts = [small(part, cache=cache) for part in inputs[None].split([4, 1, 1, 10, 5], dim=1)]  # in chunks, of any length
torch.testing.assert_close(torch.cat(parts, dim=1), whole)
print("with the cache, in chunks: the logits of the whole pass")


# %% [markdown]
# Prediction 3: count. A token costs $12E^2$ multiplications in the matrices of a block, and $2E$ for each token
# that it is compared with. Without a cache, every new character sends the whole text through again.

# %%
def multiplications(length, E=128):
    t = torch.arange(1, length + 1, dtype=torch.float64)  # tokens in the text at each step
    again = (12 * E**2 * t + 2 * E * t**2).sum()
    cached = (12 * E**2 + 2 * E * t).sum()
    return (again / cached).item()


for length in (16, 64, 256, 1024):
    print(f"{length:4} characters: {multiplications(length):.0f} times fewer with the cache")


# %% [markdown]
# A pass over many tokens also uses a processor better than one over a single token, so the clock shows less. How
# long does each character take?

# %% tags=["nbval-ignore-output"]
def seconds_per_character(model, length, cached):
    cache, text, seconds = Cache(), torch.zeros(1, 1, dtype=torch.int64), []
    for _ in range(length):
        began = time.perf_counter()
        with torch.no_grad():
            model(text[:, -1:], cache=cache) if cached else model(text)
        seconds.append(time.perf_counter() - began)
        text = F.pad(text, (0, 1))
    return torch.tensor(seconds)


writer, threads = CharTransformer(V, 256, 128, 4, 2).eval(), torch.get_num_threads()
torch.set_num_threads(1)  # tiny pieces of work; sharing them out would take longer than doing them
times = {name: 1000 * seconds_per_character(writer, 256, name == "cache") for name in ("cache", "no cache")}
torch.set_num_threads(threads)
best = {name: t.unfold(0, 16, 16).amin(dim=-1).tolist() for name, t in times.items()}  # what else runs only adds
lines = {name: [(16 * n + 8, value) for n, value in enumerate(values)] for name, values in best.items()}
plotting.curves(lines, xlabel="characters so far", ylabel="milliseconds for one more", title="the price of a character")
plt.show()

# %%
course.verdict("time of the last characters, no cache over cache", best["no cache"][-1] / best["cache"][-1], above=2)


# %% [markdown]
# ## Rotary positions
#
# Learned positions are added to tokens. Rotary ones turn queries and keys: each pair of features is a clock hand (notebook
# 04), turned by its place times the clock's speed (Su et al. 2021, arXiv:2104.09864, section 3.2).

# %%
def turn(x, place):  # (D,); feature m is paired with m + D/2
    D = len(x)
    angle = place * 10_000.0 ** (-torch.arange(0, D, 2, dtype=x.dtype) / D)  # (D/2,)
    first, second = x.chunk(2)
    return torch.cat([first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()])


q, k = torch.randn(2, 8, dtype=torch.float64)
turned = torch.stack([turn(q, t) for t in range(24)])  # (L, D)
torch.testing.assert_close(turned, rotate(q.expand(24, 8)))

# %% [markdown]
# The same query and key, at every pair of places. The score depends on the way between them alone: along each diagonal it
# stays.

# %%
scores = rotate(q.expand(24, 8)) @ rotate(k.expand(24, 8)).T  # (L, S)
for way in range(-23, 24):
    diagonal = scores.diagonal(way)
    torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
plotting.heatmap(scores, title="one query, one key, turned by their places", signed=True)
plt.show()

# %% [markdown]
# Nothing is learned and nothing is added to the tokens; places exist inside the score only. So in the package it is a score
# that wraps another: `partial(RotaryScore, score=...)`, with `positions=NoPositions`.
#
# ### Any score, any positions
#
# A score and the positions are arguments of the model. Whatever they are, two promises hold: no logit sees what
# comes later, and the cache changes nothing.

# %%
other_end = torch.cat([inputs[:10], inputs[10:].flip(0)])  # another text from place 10 on
for score in SCORES.values():
    for positions in (*POSITIONS.values(), "rotary"):
        kinds = {"score": score, "positions": positions}
        if positions == "rotary":
            kinds = {"score": partial(RotaryScore, score=score), "positions": NoPositions}
        any_model, cache = CharTransformer(V, 32, 24, 3, 2, **kinds).double(), Cache()
        whole = any_model(inputs[None])
        torch.testing.assert_close(whole[:, :10], any_model(other_end[None])[:, :10])
        torch.testing.assert_close(torch.cat([any_model(p, cache=cache) for p in inputs[None].split(8, 1)], 1), whole)
print("every score with every kind of positions: causal, and the cache gives the same logits")

# %% [markdown]
# ## Train
#
# Several recipes are recorded as `shakespeare`, each built on the one before. Of those that take as many steps as the first,
# the last one trains here; in the quick profile for fewer steps than on record.

# %%
arms = experiments.SHAKESPEARE[course.profile()]
all_steps = next(iter(arms.values())).train.steps
recipe = [name for name, arm in arms.items() if arm.train.steps == all_steps][-1]
setting = arms[recipe]
steps = 500 if course.profile() == "quick" else setting.train.steps
validation = validation.to(device)


def write(model, temperature, count=200):
    prompt = vocabulary.encode("ROMEO:\n")[None].to(device)
    generator = torch.Generator(device).manual_seed(0)
    return vocabulary.decode(model.generate(prompt, count, temperature=temperature, generator=generator)[0])


# %% tags=["nbval-ignore-output"]
torch.manual_seed(0)
model = setting.model().to(device)
print("Before training:\n", repr(write(model, 1.0, 60)))
stream = text_batches(tokens.to(device), setting.length, batch_size=setting.batch_size, seed=0)
history = fit(model, stream, next_token_loss, setting.train.with_steps(steps))
model.eval()
loss = text_loss(model, validation, setting.length)  # the whole validation text, nothing drawn at random
print(f"{recipe}: validation loss {loss:.3f} after {steps} steps in {history.seconds:.0f} s")

# %%
course.verdict("validation loss", loss, below=1.78, measured="quick")
course.verdict("validation loss minus that of counting pairs", loss - to_beat["pairs"], below=-0.6, measured="quick")
course.verdict("validation loss minus that of counting fours", loss - to_beat["fours"], below=0, measured="quick")

# %%
lines = {f"{name} counted": [(1, to_beat[name]), (steps, to_beat[name])] for name in ("pairs", "fours")}
plotting.curves({"model": history.loss, **lines}, smooth=20, ylabel="training loss", title=f"recipe: {recipe}")
plt.show()

# %% [markdown]
# Already in the quick profile it beats every table. Now let it write, with the same prompt and the same luck:

# %% tags=["nbval-ignore-output"]
for temperature in (0.0, 0.5, 1.0, 2.0):
    print(f"--- T = {temperature}\n{write(model, temperature)}\n")


# %% [markdown]
# At 0 it tends to go round in circles; at 2 it falls apart. In between are names in capitals, lines, and words that could be
# English: it has never seen a word list.

# %% [markdown]
# ## What each ingredient is worth
#
# No secrets: each arm of the record keeps what the one before has, and changes this. Where several things change, only all of
# them together were measured:

# %%
def flat(setting):
    parts = asdict(setting)
    return parts | parts.pop("train")


before = flat(next(iter(experiments.SHAKESPEARE["quick"].values())))
for name, arm in experiments.SHAKESPEARE["quick"].items():
    changed = [f"{key} {value}" for key, value in flat(arm).items() if value != before[key]]
    print(f"{name}: {', '.join(changed) or 'GPT-2 with AdamW'}")
    before = flat(arm)

# %%
for profile in ("quick", "full"):
    for arm in experiments.SHAKESPEARE[profile]:
        print(records.describe_record("shakespeare", "validation loss", profile, arm=arm))

# %%
for profile in ("quick", "full"):
    record = records.load_record("shakespeare", profile)
    if record:
        at, lines = records.recorded_curves(record, "validation loss")  # arm -> (seeds, looks)
        for (before, worse), (arm, better) in pairwise(lines.items()):
            mean, error = metrics.mean_and_error((better - worse)[:, -1].tolist())
            print(f"{profile} profile, {before} → {arm}: {mean:+.3f} ± {error:.3f}")
        share, title = [step / at[-1] for step in at], f"recorded, {profile} profile"
        ax = plotting.bands(lines, x=share, xlabel="share of the training", ylabel="validation loss", title=title)
        if profile == course.profile():
            ax.plot(1, loss, "k*", label=f"above, {steps} steps")
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        plt.show()

# %% [markdown]
# *Normalized* queries and keys keep scores within bounds (Henry et al. 2020, arXiv:2010.04245). *Modern*: norms that learn
# nothing, and a squared ReLU. *Muon* makes an update change all directions of a matrix alike. *Token shift* mixes into each token
# those just before it (Peng et al. 2023, arXiv:2305.13048).

# %% [markdown]
# *Even rows* let no unit of a layer change faster than the others (Li et al. 2025, arXiv:2510.05491). *Distance* is the price of
# notebook 07 on top of rotary positions: it was kept because it helped on training text that was held back. In the quick profile
# it does not help on the validation text, so what one text recommends need not hold for the next.

# %% [markdown]
# ## What one CPU core can do
#
# nanoGPT's README reports 1.88 in the quick setting, and 1.4697 in the full one: 10.7M parameters, on a GPU. The *long* profile
# has one CPU core: the recipe up to *even rows*, 1.6M parameters, chunks of 256 characters, the whole text five times.
# **Predict**: which loss ends lower, that on the text it learns from or that on the validation text, and by how much?

# %%
record = records.load_record("shakespeare", "long")
for arm, setting_of_arm in experiments.SHAKESPEARE["long"].items():
    times = setting_of_arm.train.steps * setting_of_arm.batch_size * setting_of_arm.length / len(tokens)
    print(f"{times:.1f} times:", records.describe_record("shakespeare", "validation loss", "long", arm=arm))
arm, at = record["runs"][0]["arm"], record["runs"][0]["curves"]
lines = {"training": at["loss"], "validation": at["validation loss"]}
lines["nanoGPT, on a GPU"] = [(step, 1.4697) for step, _ in at["loss"]]
ax = plotting.curves(lines, title=f"recorded, long profile, {arm}, one seed")
ax.set_ylim(1, 2.2)
plt.show()
ends = [run["metrics"]["validation loss"] for run in record["runs"]]
course.verdict("highest validation loss of all its runs", max(ends), below=1.4697)
course.verdict("validation loss minus training loss at the end", ends[0] - at["loss"][-1][1], above=0.2)

# %% [markdown]
# Your answer: the text it learns from, by far. The gap is what it has memorized, and it widens with every reading. So this model
# stops after five; nanoGPT reads each character about 80 times and needs dropout against the gap. Here weight decay does that,
# three times the quick profile's, at no cost in time. 1,000 steps, two readings, already suffice for nanoGPT's figure.

# %% [markdown]
# ## Longer than it was trained
#
# Train on chunks of one length, then ask about longer ones. More text to look at should only help. Learned positions have
# rows that no training ever touched; sines and turns come in new combinations; a price on distance (notebook 07) just
# goes on. A line that falls makes use of the longer text; one that rises is lost in it.
#
# Tokens start as large as sines are. In *sinusoidal, small start* they start at GPT-2's 0.02, and the sines drown them.

# %%
for profile, some_arms in experiments.SHAKESPEARE_LENGTHS.items():
    trained_on = next(iter(some_arms.values())).length
    at = [factor * trained_on for factor in trainers.LENGTHS]
    for arm in some_arms:
        print(records.describe_record("shakespeare-lengths", f"validation loss at {at[-1]}", profile, arm=arm))
    record, lines = records.load_record("shakespeare-lengths", profile), {}
    for run in record["runs"] if record else []:
        lines.setdefault(run["arm"], []).append([value for name, value in run["metrics"].items() if " at " in name])
    if lines:
        title = f"{profile} profile, trained on chunks of {trained_on}"
        lines = {arm: torch.tensor(rows) for arm, rows in lines.items()}  # (seeds, lengths)
        for arm, rows in lines.items():
            mean, error = metrics.mean_and_error((rows[:, -1] - rows[:, 0]).tolist())
            print(f"{profile} profile, {arm}: {mean:+.3f} ± {error:.3f} at {at[-1]} against {at[0]}")
        ax = plotting.bands(lines, x=at, xlabel="length of a chunk", ylabel="validation loss", title=title)
        ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        plt.show()

# %% [markdown]
# In the quick profile only the price on distance makes use of the longer text. Rotary positions are the best at the length they
# were trained on; at eight times it they are behind a model that knows no positions at all.

# %% [markdown]
# ## Look: where a letter looks
#
# The model that you trained reads a line. Which head looks how far? A head at distance 1 reads the letter before.

# %%
line = "To be, or not to be: that"
read = vocabulary.encode(line)[None].to(device)
with torch.no_grad():
    maps = model.attention_weights(read)  # one (1, H, L, L) for each layer
far = torch.stack([metrics.attention_distance(weights) for weights in maps])  # (layers, H)
plotting.heatmap(far, xlabel="head", ylabel="layer", title="mean distance, in characters")
plt.show()


# %%
def look(layer, head):
    signs_of_line = list(line.replace(" ", "␣"))
    title = f"layer {layer}, head {head}"
    return plotting.heatmap(maps[layer][0, head], rows=signs_of_line, columns=signs_of_line, title=title)


nearest = divmod(far.argmin().item(), far.shape[1])
explore(
    look,
    alt="Attention weights of one head on a line of verse; nothing above the diagonal.",
    layer=ipywidgets.IntSlider(value=nearest[0], min=0, max=len(maps) - 1, description="layer"),
    head=ipywidgets.IntSlider(value=nearest[1], min=0, max=far.shape[1] - 1, description="head"),
)

# %% [markdown]
# ## The mistakes: which characters are hard?
#
# The loss of each of the first 64,000 characters of the validation text, in chunks as in training.

# %%
L = setting.length
count = 64_000 // L * L
places_read, places_next = validation[:count].view(-1, L), validation[1 : count + 1].view(-1, L)
with torch.no_grad():
    logits = torch.cat([model(part) for part in places_read.split(64)])  # (N, L, V)
losses = F.cross_entropy(logits.mT, places_next, reduction="none").cpu()  # (N, L)
read, coming = places_read.cpu(), places_next.cpu()

# %%
shown = slice(100, 148)
labels = [signs[v] for v in coming.flatten()[shown]]
_, ax = plt.subplots(figsize=(10, 2.6), layout="constrained")
plotting.bars(losses.flatten()[shown], labels, xlabel="", ylabel="loss", title="a line, and how hard each character was", numbers=False, ax=ax)
plt.show()

letter = torch.tensor([c.isalpha() for c in vocabulary.characters])
place_in_word, so_far = torch.zeros_like(read), torch.zeros(len(read), dtype=torch.int64)
for t in range(L):
    so_far = torch.where(letter[read[:, t]], so_far + 1, 0)  # letters of this word that were read
    place_in_word[:, t] = so_far
of_words = letter[coming] & (torch.arange(L) > 15)  # with some text before
by_letter = torch.stack([losses[of_words & (place_in_word == n)].mean() for n in range(8)])

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.1), layout="constrained")
plotting.bars(by_letter, [str(n + 1) for n in range(8)], xlabel="letter of the word", ylabel="loss", ax=left)
plotting.curves({"loss": losses.mean(dim=0).tolist()}, xlabel="position in the chunk", ylabel="loss", ax=right)
plt.show()

# %%
course.verdict("loss of first letters minus that of third letters", (by_letter[0] - by_letter[2]).item(), above=0.4, measured="quick")
first, rest = losses[:, 0].mean().item(), losses[:, L // 2 :].mean().item()
course.verdict("loss at the first position minus that of the second half", first - rest, above=0.5, measured="quick")
course.verdict("loss at the first position minus that of counting pairs", first - to_beat["pairs"], above=-0.35, below=0.35, measured="quick")

# %% [markdown]
# Hard is what is new: the first letter of a word. The others are easier. And at the first position of a chunk there is no
# more to go by than a single character, so the loss there is that of pairs. The longer the chunks, the fewer such positions:
# two losses can only be compared at one length.

# %% [markdown]
# ## Your model in a page
#
# One call writes the model as a page, `my-writer.html` beside this notebook. It opens in any browser, without Python and
# without a network, and writes on from whatever you type: try temperatures, and see which characters each one looks at. The
# weights are rounded to eight bits, so that the file stays small; the page says what that changes. It computes by
# `sciformer/teach/export/forward.js`, which has the package's names.

# %%
page = export_html(model, "my-writer.html", history=history, setting=setting, dtype="int8")

# %% [markdown]
# ## What is refused
#
# Bad input ends in a sentence, not in a wrong number later.

# %%
bad = {
    "an unknown character": lambda: vocabulary.encode("naïve"),
    "an empty text": lambda: text_batches(tokens[:0], 64, batch_size=1, seed=0),
    "a text that is too short": lambda: text_batches(tokens[:64], 64, batch_size=1, seed=0),
    "too long to look at": lambda: small(tokens[None, :33]),
    "a negative temperature": lambda: small.generate(inputs[None], 1, temperature=-1.0),
}
for name, call in bad.items():
    try:
        call()
    except ValueError as error:
        print(f"{name}: {error}")


# %% [markdown]
# Two things that sound bad are fine: temperature 0 takes the likeliest, and of a prompt that is too long, `generate` reads
# the end.

# %% [markdown]
# ## Exercises
#
# Write the function in place of `raise NotImplementedError` and run the cell. The first wrong run shows what is wrong with
# the result, the second names the mistake; the numbers are fresh each time. Hints and a solution are folded away below each cell.
#
# ### Exercise 1 · easy · 5 minutes
#
# The perplexity of whole texts: one number, over all tokens of all texts that are predicted. `logits[:, t]` is what a
# model says after reading `tokens[:, : t + 1]`; nobody has shifted anything yet.

# %%
def text_perplexity(logits, tokens):  # (B, L, V), (B, L)
    raise NotImplementedError  # one number


check.text_perplexity(text_perplexity)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# About which character do the logits of position 0 speak? And does anyone know what comes after the last?
#
# </details>
# <details><summary>Hint 2</summary>
#
# L − 1 positions are left in each text. One mean over all of them, of −log p, and the exponential at the very end.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def text_perplexity(logits, tokens):
#     log_p = logits[:, :-1].log_softmax(dim=-1)  # (B, L - 1, V)
#     losses = -log_p.gather(-1, tokens[:, 1:, None])  # (B, L - 1, 1)
#     return losses.mean().exp()
# ```
#
# </details>
#
# ### Exercise 2 · middle · 10 minutes
#
# *Nucleus* sampling (Holtzman et al. 2020, arXiv:1904.09751): at this temperature, keep the likeliest characters, as few
# as together reach `top_p`. Return the probabilities to draw from; the others have 0.

# %%
def nucleus(logits, temperature, top_p):  # (B, V), T > 0, 0 < top_p < 1
    raise NotImplementedError  # (B, V), each row with sum 1


check.nucleus(nucleus)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Sort, add up with `cumsum`. The one that takes the sum to `top_p` is still in: look at the sum *before* each.
#
# </details>
# <details><summary>Hint 2</summary>
#
# `ordered, order = p.sort(dim=-1, descending=True)`; the inverse is `torch.zeros_like(p).scatter(-1, order, …)`.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def nucleus(logits, temperature, top_p):
#     p = (logits / temperature).softmax(dim=-1)  # (B, V)
#     ordered, order = p.sort(dim=-1, descending=True)
#     before = ordered.cumsum(dim=-1) - ordered  # what the likelier ones have, without this one
#     kept = ordered * (before < top_p)
#     kept = kept / kept.sum(dim=-1, keepdim=True)
#     return torch.zeros_like(p).scatter(-1, order, kept)
# ```
#
# </details>
#
# ### Exercise 3 · hard · 15 minutes
#
# A cached model with one head reads a text in chunks. Add the rows of `table` that belong to the tokens' positions;
# then, in each layer, causal attention over all tokens so far, scaled by $1/\sqrt E$, is added to `x`. `layer(x)` gives
# `query, key, value`; call it for new tokens only. `cache` starts as `{}` and is yours to fill.

# %%
def read_piece(x, table, layers, cache):  # (B, L, E), (max_length, E), a list of functions, a dict
    raise NotImplementedError  # (B, L, E)


check.read_piece(read_piece)


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Three things to remember: how many tokens were read, and for each layer its keys and its values.
#
# </details>
# <details><summary>Hint 2</summary>
#
# With `read` old tokens, new token i may see keys 0 to `read + i`: `torch.ones(L, S).tril(diagonal=read).bool()`.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def read_piece(x, table, layers, cache):
#     read, L = cache.get("read", 0), x.shape[1]
#     cache["read"] = read + L
#     x = x + table[read : read + L]
#     seen = torch.ones(L, read + L, device=x.device).tril(diagonal=read).bool()  # (L, S)
#     for n, layer in enumerate(layers):
#         query, key, value = layer(x)  # (B, L, E)
#         if n in cache:
#             key, value = torch.cat([cache[n][0], key], dim=1), torch.cat([cache[n][1], value], dim=1)  # (B, S, E)
#         cache[n] = key, value
#         scores = query @ key.mT / math.sqrt(x.shape[-1])  # (B, L, S)
#         x = x + scores.masked_fill(~seen, -math.inf).softmax(dim=-1) @ value
#     return x
# ```
#
# </details>
#
# ### Exercise 4 · hard · 12 minutes
#
# Break our sampler: write the *test* of exercise 2. `nucleus(logits, temperature, top_p)` is somebody's version of it.
# From logits (B, V), a temperature T > 0 and 0 < top_p < 1 it gives the probabilities to draw from, (B, V): those of the
# likeliest characters at this temperature, as few as together reach `top_p`, over their sum in each row; the others
# have 0. Raise an AssertionError (`assert …`, or `torch.testing.assert_close(got, expected)`) where the version is wrong.
# Your test has to accept every right version and reject each of 27 faulty ones; you are told which survive. No two of
# your logits should be equal.

# %%
def test_nucleus(nucleus):  # a version to be tested
    raise NotImplementedError  # AssertionError, or nothing


check.test_nucleus(test_nucleus)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The definition is short for a single character: it is kept if all likelier ones have less than `top_p` together.
#
# </details>
# <details><summary>Hint 2</summary>
#
# Two texts at least, one of them with a character that alone reaches `top_p`; logits in no order; a temperature below 1
# and one above.
#
# </details>
# <details><summary>Solution</summary>
#
# ```python
# def test_nucleus(nucleus):
#     logits = torch.tensor([[0.3, 1.2, -0.9, 0.6, 0.0], [-1.0, 0.2, 4.0, -0.3, 0.5]])  # the second has a clear favourite
#     for temperature, top_p in ((0.5, 0.7), (2.0, 0.5), (1.0, 0.9)):
#         p = (logits / temperature).softmax(dim=-1)  # (B, V)
#         likelier = p[:, None, :] > p[:, :, None]  # (B, V, V): is the last one likelier than the one before it?
#         kept = p * ((likelier * p[:, None, :]).sum(dim=-1) < top_p)
#         torch.testing.assert_close(nucleus(logits, temperature, top_p), kept / kept.sum(dim=-1, keepdim=True))
# ```
#
# </details>

# %% [markdown]
# ## Takeaways
#
# - A language model is a causal transformer whose target is its own text, shifted once. Its loss starts at $\log V$, and
#   counting gives the numbers to beat.
# - Sampling is a choice of its own: divide logits by the temperature, cut the tail, renormalise, draw.
# - With a cache each token is computed once; places go on counting, and every layer remembers for itself.

# %% [markdown]
# ## Check yourself
#
# 1. After 50 steps your loss is 0.02. What do you look at first?
# 2. Two models have validation losses 1.60 at context 64 and 1.55 at context 256. Which is better?
# 3. Why may a model that is not causal not use this cache?
#
# <details><summary>Answers</summary>
#
# 1. Whether targets are shifted, then whether the mask is causal. No honest model gets there: it would know nearly every
#    character of Shakespeare beforehand.
# 2. Nobody knows. At 256 fewer characters stand near the beginning of a chunk, which alone lowers the loss. Cut the text
#    alike for both.
# 3. Its old tokens would see the new one, so their states, keys and values change with every character.
#
# </details>

# %% [markdown]
# **To read**: Radford et al. 2019, *Language models are unsupervised multitask learners*, section 2; Su et al. 2021
# (arXiv:2104.09864), section 3; Holtzman et al. 2020 (arXiv:1904.09751), sections 3 and 4, why the likeliest text is a dull
# one; Press et al. 2022 (arXiv:2108.12409), on longer texts.
#
# **Next**: 09, additive attention.
