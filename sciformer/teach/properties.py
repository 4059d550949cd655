"""What every score promises, as tests that can be asked of any score: one of the package's, or one of your own.

A property takes a recipe, builds the score and tries it in attention, on the readable and on the fast path. Where it
does not hold it raises, and beside what was seen it says what to look for. :func:`examine` asks them all.

Two kinds of scores are held to what they say of themselves. One that hides keys by its ``own_mask`` is -inf there, and
only there. One that standardises its rows has weights of both signs, whose rows sum to 0, and 0 in a row of one key.

More than 500 lines, so that the properties can be read as the one list that they are.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from textwrap import fill

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from sciformer.attention import MultiHeadAttention
from sciformer.fast import attention, readable_attention
from sciformer.fast.cache import memory_for
from sciformer.functional import causal_mask, masked_standardize
from sciformer.lab.fake_cuda import READS_A_NUMBER, can_fake_cuda, fake_cuda
from sciformer.scores import Score, ScoreRecipe, comparing_positions

#: Sizes of what the properties try: batch, heads, tokens, head_dim (even, as rotary positions want it).
B, H, L, D = 2, 3, 7, 6

#: The kinds of masks that a property over masks goes through.
MASKS = ("none", "causal", "mask", "mask and causal", "padding", "padding in front and causal")


class Broken(AssertionError):
    """A property does not hold; the message is what was seen."""


class NotAsked(Exception):
    """A property cannot be asked here."""


#: What asks one property of a score.
Test = Callable[[ScoreRecipe], None]


@dataclass(frozen=True)
class Property:
    """One promise.

    Args:
        holds: what is true of a score that keeps it.
        look_for: where the mistake probably is if one does not.
        test: ``test(recipe)`` raises :class:`Broken`, or whatever the score itself raises.
    """

    name: str
    holds: str
    look_for: str
    test: Test


#: Every property by name, in the order in which they are asked.
PROPERTIES: dict[str, Property] = {}


def _promise(name: str, holds: str, look_for: str) -> Callable[[Test], Test]:
    def register(test: Test) -> Test:
        PROPERTIES[name] = Property(name, holds, look_for, test)
        return test

    return register


def _demand(holds: object, seen: str) -> None:
    if not holds:
        raise Broken(seen)


def _alike(one: Tensor, other: Tensor, *, tolerance: float = 1e-7) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=tolerance, atol=tolerance)


def random_qkv(
    B: int = 2,
    H: int = 3,
    L: int = 5,
    S: int = 7,
    D: int = 11,
    *,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    requires_grad: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values; every dimension another prime, so that a swapped axis cannot pass."""
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(shape, generator=generator, dtype=dtype).requires_grad_(requires_grad)
        for shape in ((B, H, L, D), (B, H, S, D), (B, H, S, D))
    )
    return query, key, value


def random_mask(*shape: int, seed: int = 0, empty_row: bool = True) -> Bool[Tensor, "..."]:
    """A mask that hides about half, with one row that hides everything."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    mask[..., 0] |= ~mask.any(-1)
    if empty_row:
        mask[..., 1, :] = False
    return mask


def masks(kind: str) -> tuple[Tensor | None, bool]:
    """``attn_mask`` and ``is_causal`` of one kind among :data:`MASKS`."""
    attn_mask = {"mask": random_mask(B, H, L, L), "mask and causal": random_mask(L, L, seed=3)}.get(kind)
    if kind == "padding":
        attn_mask = (torch.arange(L) < torch.tensor([[L], [3]]))[:, None, None, :]
    if kind == "padding in front and causal":  # the first queries of the second example see nothing
        attn_mask = (torch.arange(L) >= torch.tensor([[0], [4]]))[:, None, None, :]
    return attn_mask, "causal" in kind


def allowed(kind: str) -> Bool[Tensor, "B H L L"]:
    """What may be attended to under a kind of mask."""
    attn_mask, is_causal = masks(kind)
    mask = torch.ones(B, H, L, L, dtype=torch.bool)
    if attn_mask is not None:
        mask = mask & attn_mask
    return mask & causal_mask(L) if is_causal else mask


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Random numbers from a seed; afterwards they go on as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def built(recipe: ScoreRecipe) -> nn.Module:
    """A score in float64 whose learnable numbers are away from where they start, so that none is idle by chance."""
    with _seeded(0), torch.no_grad():
        score = recipe(H, D).double()
        for p in score.parameters():
            p.add_(0.3 * torch.rand_like(p))
    return score


def shown(score: nn.Module) -> Bool[Tensor, "L L"]:
    """The keys that a score does not hide by itself."""
    own = score.own_mask(L, L) if isinstance(score, Score) else None
    return torch.ones(L, L, dtype=torch.bool) if own is None else own


def standardizes(score: nn.Module) -> bool:
    """Whether rows of weights are standardised, and sum to 0; else they are shares, and sum to 1."""
    return getattr(score, "normalize", None) is masked_standardize


def _is_there(gradient: Tensor | None) -> bool:
    """Whether there is more of a gradient than rounding."""
    return gradient is not None and bool(gradient.abs().max() > 1e-9)


def _learnable(score: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in score.named_parameters() if p.requires_grad}


def _probe(x: Tensor) -> Tensor:
    """A weighted sum: a plain one would hide what cancels, for instance in a row that sums to 1."""
    return (x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view_as(x)).sum()


@_promise(
    "shape",
    "Scores are (B, H, L, S), one number for each query and key of each head, however many queries and keys there are.",
    "an axis summed or swapped: `query @ key.transpose(-2, -1)`, or einsum's 'bhld,bhsd->bhls'; the keyword arguments "
    "attn_mask and query_offset missing in forward",
)
def _shape(recipe: ScoreRecipe) -> None:
    score = built(recipe)
    sizes = [(L, L, 0), (3, L, 4), (1, 1, 0)]
    if not comparing_positions(score):
        sizes.append((L, 4, 0))  # from a target to a source, anything goes
    for queries, keys, offset in sizes:
        query, key, _ = random_qkv(B, H, queries, keys, D)
        scores = score(query, key, attn_mask=None, query_offset=offset)
        _demand(isinstance(scores, Tensor), f"it returns {type(scores).__name__}, not a tensor")
        wanted = (B, H, queries, keys)
        _demand(scores.shape == wanted, f"{queries} queries, {keys} keys: {tuple(scores.shape)} instead of {wanted}")


@_promise(
    "dtype",
    "Scores are in the precision of the queries, float32 as well as float64.",
    "a number or a tensor made without `dtype=query.dtype`; a learnable tensor that is neither nn.Parameter nor "
    "buffer, and so does not move with the module",
)
def _dtype(recipe: ScoreRecipe) -> None:
    for dtype in (torch.float32, torch.float64):
        query, key, _ = random_qkv(B, H, L, L, D, dtype=dtype)
        scores = built(recipe).to(dtype)(query, key)
        _demand(scores.dtype == dtype, f"{dtype} became {scores.dtype}")


@_promise(
    "finite",
    "Scores and gradients are finite, even where a vector is zero, a query equals its key, or numbers are large.",
    "a division by a length or a distance that can be 0 (F.normalize has an eps); the root of a sum of squares, whose "
    "gradient at 0 is NaN (torch.linalg.vector_norm's is not); exp or log out of range",
)
def _finite(recipe: ScoreRecipe) -> None:
    query, key, value = random_qkv(B, H, L, L, D, dtype=torch.float32)
    equal, nothing = query.clone(), key.clone()
    equal[:, :, 1], nothing[:, :, 2] = key[:, :, 1], 0.0
    inputs = {
        "a query that equals its key": (equal, key),
        "a key of zeros": (query, nothing),
        "a query of zeros": (nothing, key),
        "numbers ten times as large": (10 * query, 10 * key),
    }
    score = built(recipe).float()
    for case, (q, k) in inputs.items():
        leaves = {"queries": q.clone().requires_grad_(), "keys": k.clone().requires_grad_(), **_learnable(score)}
        scores = score(leaves["queries"], leaves["keys"])
        _demand(scores[..., shown(score)].isfinite().all(), f"{case}: scores are not finite")
        output, _ = attention(score, leaves["queries"], leaves["keys"], value)
        gradients = torch.autograd.grad(_probe(output), list(leaves.values()), allow_unused=True)
        for name, gradient in zip(leaves, gradients, strict=True):
            _demand(gradient is None or gradient.isfinite().all(), f"{case}: the gradient of {name} is not finite")


@_promise(
    "gradients arrive",
    "Gradients reach the queries, the keys and every learnable number, and the softmax leaves something of each.",
    ".item(), .detach(), .data, torch.tensor(...) or torch.no_grad() on the way; a number that is the same for a whole "
    "row, which the softmax cancels",
)
def _gradients_arrive(recipe: ScoreRecipe) -> None:
    score = built(recipe)
    query, key, value = random_qkv(B, H, L, L, D, requires_grad=True)
    scores, learnable = score(query, key), _learnable(score)
    _demand(scores.requires_grad, "scores have no graph: no gradient flows back to anything")
    to_inputs = torch.autograd.grad(_probe(scores), [query, key], allow_unused=True)
    for name, gradient in zip(("queries", "keys"), to_inputs, strict=True):
        _demand(_is_there(gradient), f"no gradient reaches the {name}")
    output, _ = attention(score, query, key, value, need_weights=True)
    to_learnable = torch.autograd.grad(_probe(output), list(learnable.values()), allow_unused=True) if learnable else ()
    for name, gradient in zip(learnable, to_learnable, strict=True):
        _demand(_is_there(gradient), f"no gradient of the output reaches `{name}`")


@_promise(
    "gradients are right",
    "The gradients of attention are those of differences (torch.autograd.gradcheck), for inputs and learnable numbers.",
    "a part of the formula that is detached, while another still carries a gradient; rounding, clamping, sorting",
)
def _gradients_are_right(recipe: ScoreRecipe) -> None:
    score = built(recipe)
    inputs = random_qkv(1, H, 3, 3, D, requires_grad=True)

    def output(query: Tensor, key: Tensor, value: Tensor, *learnable: Tensor) -> Tensor:
        return attention(score, query, key, value, is_causal=True, need_weights=True)[0]

    right = torch.autograd.gradcheck(output, (*inputs, *_learnable(score).values()), raise_exception=False)
    _demand(right, "gradients differ from what small changes of the inputs do to the output")


@_promise(
    "same answer twice",
    "The same queries and keys have the same scores at every call.",
    "random numbers drawn in forward; something that one call leaves behind for the next",
)
def _same_answer_twice(recipe: ScoreRecipe) -> None:
    score = built(recipe)
    query, key, _ = random_qkv(B, H, L, L, D)
    first = score(query, key)
    _demand(torch.equal(first, score(query, key)), "two calls, two results")


@_promise(
    "inputs stay as they are",
    "The score changes neither queries nor keys.",
    "an operation in place: `query *= …`, `query += …`, a method whose name ends in an underscore",
)
def _inputs_stay(recipe: ScoreRecipe) -> None:
    query, key, _ = random_qkv(B, H, L, L, D)
    before = query.clone(), key.clone()
    built(recipe)(query, key)
    for name, now, then in zip(("queries", "keys"), (query, key), before, strict=True):
        _demand(torch.equal(now, then), f"the {name} have changed")


@_promise(
    "rows sum to 1",
    "Under every mask the weights of a row are positive and sum to 1, are 0 where hidden, and 0 in a row with no key.",
    "scores that are NaN or infinite",
)
def _rows_sum_to_one(recipe: ScoreRecipe) -> None:
    score = built(recipe)
    for kind in MASKS:
        attn_mask, is_causal = masks(kind)
        qkv, mask = random_qkv(B, H, L, L, D), allowed(kind) & shown(score)
        _, weights = attention(score, *qkv, attn_mask=attn_mask, is_causal=is_causal, need_weights=True)
        assert weights is not None
        _demand(weights.shape == mask.shape, f"{kind}: weights are {tuple(weights.shape)}, not {tuple(mask.shape)}")
        signed = standardizes(score)
        proper = ((weights >= 0) | signed).all() and (weights[~mask] == 0).all()
        _demand(proper, f"{kind}: a weight below 0, or at a hidden key")
        total = 0.0 * mask.any(-1).double() if signed else mask.any(-1).double()
        _demand(_alike(weights.sum(-1), total), f"{kind}: a row that does not sum to {0 if signed else 1}")


@_promise(
    "hides the future",
    "With a causal mask no output depends on a later key or value, and each on all the earlier ones.",
    "a mean, maximum, norm or softmax over all the keys inside the score: it has to run over those that attn_mask "
    "leaves, or not at all",
)
def _hides_the_future(recipe: ScoreRecipe) -> None:
    score = built(recipe)
    query, key, value = random_qkv(B, H, L, L, D, requires_grad=True)
    for need_weights in (False, True):
        attend_to = partial(attention, score, query, is_causal=True, need_weights=need_weights)
        output = attend_to(key, value)[0]
        for i in range(L):
            to_key, to_value = torch.autograd.grad(output[:, :, i].square().sum(), (key, value), retain_graph=True)
            _demand(not to_key[:, :, i + 1 :].any(), f"output {i} has a gradient at a later key")
            _demand(not to_value[:, :, i + 1 :].any(), f"output {i} has a gradient at a later value")
            if i or not standardizes(score):
                _demand(to_value[:, :, : i + 1].all(), f"output {i} has no gradient at an earlier value")
        changed = key + 3.0 * (torch.arange(L) > 3)[:, None]
        _demand(_alike(attend_to(changed, value)[0][:, :, :4], output[:, :, :4]), "an output changes with a later key")


@_promise(
    "hidden keys have no say",
    "What stands at a hidden key or value, padding for instance, changes nothing.",
    "the same as for the future: something inside the score that runs over all keys",
)
def _hidden_keys(recipe: ScoreRecipe) -> None:
    score = built(recipe)
    query, key, value = random_qkv(B, H, L, L, D)
    hidden = (torch.arange(L) >= 4)[:, None]
    for need_weights in (False, True):
        outputs = [
            attention(score, query, k, v, attn_mask=~hidden.mT, need_weights=need_weights)[0]
            for k, v in ((key, value), (key + 3.0 * hidden, value - 100.0 * hidden))
        ]
        _demand(_alike(*outputs), "outputs change with a hidden key")


@_promise(
    "empty rows give 0",
    "A query without visible keys has output 0 and finite gradients. If no query has any, all gradients are 0.",
    "a sum over the visible keys that is divided by, though there may be none",
)
def _empty_rows(recipe: ScoreRecipe) -> None:
    score = built(recipe)
    inputs = random_qkv(B, H, L, L, D, requires_grad=True)
    for need_weights in (False, True):
        attend_under = partial(attention, score, *inputs, need_weights=need_weights)
        mask = random_mask(B, H, L, L)
        empty = ~mask.any(-1)
        output, _ = attend_under(attn_mask=mask)
        _demand((output[empty] == 0).all(), "the output of a query without keys is not 0")
        to_query, *others = torch.autograd.grad(_probe(output), inputs)
        _demand((to_query[empty] == 0).all(), "a query without keys has a gradient")
        _demand(all(g.isfinite().all() for g in (to_query, *others)), "a gradient is not finite")
        output, _ = attend_under(attn_mask=torch.zeros(L, L, dtype=torch.bool))
        gradients = torch.autograd.grad(_probe(output), [*inputs, *score.parameters()], allow_unused=True)
        _demand((output == 0).all(), "with every key hidden, an output is not 0")
        _demand(all(g is None or (g == 0).all() for g in gradients), "with every key hidden, there is a gradient")


@_promise(
    "examples are strangers",
    "An example has the same output alone and in a batch.",
    "a mean, maximum or norm over the whole tensor or over dimension 0",
)
def _examples(recipe: ScoreRecipe) -> None:
    score = built(recipe)
    qkv = random_qkv(B, H, L, L, D)
    output, _ = attention(score, *qkv)
    for b in range(B):
        alone, _ = attention(score, *(x[b : b + 1] for x in qkv))
        _demand(_alike(alone, output[b : b + 1]), f"example {b} alone has another output than in the batch")


@_promise(
    "queries are strangers",
    "A query has the same output alone, at its position, as together with the others.",
    "a mean, maximum or norm over the queries, dimension -2 of the scores; query_offset ignored by a score that "
    "compares positions",
)
def _queries(recipe: ScoreRecipe) -> None:
    score = built(recipe)
    query, key, value = random_qkv(B, H, L, L, D)
    output, _ = attention(score, query, key, value, need_weights=True)
    for i in range(L):
        alone, _ = readable_attention(score, query[:, :, i : i + 1], key, value, query_offset=i)
        _demand(_alike(alone, output[:, :, i : i + 1]), f"query {i} alone has another output than with the others")


@_promise(
    "decoding is the whole pass",
    "Token by token, with a cache of keys and values, the outputs are those of one causal pass.",
    "something inside the score that runs over all keys or all queries; query_offset ignored by a score that compares "
    "positions",
)
def _decoding(recipe: ScoreRecipe) -> None:
    score = built(recipe)
    query, key, value = random_qkv(B, H, L, L, D)
    for need_weights in (False, True):
        whole, _ = attention(score, query, key, value, is_causal=True, need_weights=need_weights)
        tail, _ = attention(score, query[:, :, 4:], key, value, is_causal=True, need_weights=need_weights)
        _demand(_alike(tail, whole[:, :, 4:]), "the last 3 queries alone have other outputs")
    memory = memory_for(score)
    steps = [memory.attend(score, *(x[:, :, i : i + 1] for x in (query, key, value))) for i in range(L)]
    _demand(_alike(torch.cat(steps, dim=2), whole), "decoded token by token, the outputs differ")


@_promise(
    "says whether it knows positions",
    "Shuffled tokens give shuffled outputs; or the score has `compares_positions = True`, so that models never ask it "
    "to compare positions of two different sequences.",
    "a use of positions or of query_offset without `compares_positions = True` in the class; a sum that runs along the "
    "tokens (cumsum)",
)
def _positions(recipe: ScoreRecipe) -> None:
    score = built(recipe)
    _demand(comparing_positions(score) or not knows_positions(score), "outputs change with the order of the tokens")


@_promise(
    "state_dict holds everything",
    "Saved and loaded into another score of the same recipe, it gives the same scores.",
    "a number that matters and is neither nn.Parameter nor buffer",
)
def _state_dict(recipe: ScoreRecipe) -> None:
    score = built(recipe)
    with _seeded(1):
        other = recipe(H, D).double()
    other.load_state_dict(score.state_dict())
    query, key, _ = random_qkv(B, H, L, L, D)
    _demand(_alike(score(query, key), other(query, key)), "the loaded score gives other scores")


@_promise(
    "layers share nothing",
    "The recipe makes a new score at every call, so that no two layers share a number.",
    "a recipe that hands out one and the same module; a parameter made once, in the class or the file",
)
def _layers(recipe: ScoreRecipe) -> None:
    with _seeded(0):
        layers = [MultiHeadAttention(H * D, H, score=recipe) for _ in range(2)]
    first, second = ({id(part) for part in (x, *x.parameters())} for x in (layer.score for layer in layers))
    _demand(not first & second, "two layers have the same score or the same parameter")


@_promise(
    "fast path is exact",
    "What runs by default has the outputs and gradients of the readable path, under every mask, to 10 digits.",
    "an approximation, or a mask forgotten, in the fast path",
)
def _fast_path(recipe: ScoreRecipe) -> None:
    score = built(recipe)
    inputs = random_qkv(B, H, L, L, D, requires_grad=True)
    leaves = [*inputs, *_learnable(score).values()]
    for kind in MASKS:
        attn_mask, is_causal = masks(kind)
        pair = []
        for need_weights in (False, True):
            output, _ = attention(score, *inputs, attn_mask=attn_mask, is_causal=is_causal, need_weights=need_weights)
            gradients = torch.autograd.grad(_probe(output), leaves, allow_unused=True)
            filled = (torch.zeros_like(p) if g is None else g for g, p in zip(gradients, leaves, strict=True))
            pair.append([output, *filled])
        agree = all(_alike(one, other, tolerance=1e-10) for one, other in zip(*pair, strict=True))
        _demand(agree, f"{kind}: outputs or gradients differ")


#: What is seen where tensors on the CPU and on the GPU are mixed.
TWO_DEVICES = "a tensor on the CPU meets one on the GPU"


def _seen_on_a_gpu(recipe: ScoreRecipe, *, autocast: bool) -> str:
    """What goes wrong when attention under the score runs forward and backward on a GPU, which need not be there."""
    if not can_fake_cuda():
        raise NotAsked
    with _seeded(0):
        layer = MultiHeadAttention(H * D, H, score=recipe)
    try:
        with fake_cuda() as gpu:
            layer.to(gpu)
            x = torch.empty(B, L, H * D, device=gpu)
            for need_weights, is_causal in product((False, True), repeat=2):
                with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                    output, _ = layer(x, is_causal=is_causal, need_weights=need_weights)
                output.sum().backward()
    except READS_A_NUMBER as error:
        return f"it reads a number off the GPU ({error})"
    except RuntimeError as error:
        return TWO_DEVICES if "devices" in str(error) else f"torch refuses: {str(error).splitlines()[0]}"
    return ""


@_promise(
    "makes no tensor on the wrong device",
    "Moved to a GPU, the score makes there whatever it needs, and has left nothing on the CPU.",
    "torch.arange, torch.zeros or torch.tensor without `device=query.device`; a tensor that is neither nn.Parameter "
    "nor buffer, and so does not move with the module",
)
def _device(recipe: ScoreRecipe) -> None:
    seen = _seen_on_a_gpu(recipe, autocast=False)
    _demand(seen != TWO_DEVICES, seen)


@_promise(
    "works on a GPU under autocast",
    "On a GPU under autocast, where products are bfloat16 and norms float32, attention runs forward and backward, and "
    "no number is read on the way, for which the program would have to wait.",
    "torch.lerp, an assignment with a mask or another operation that wants one dtype; float64; .item(), .tolist(), "
    "`if` on a tensor, an index with a mask; a tensor on the wrong device",
)
def _autocast(recipe: ScoreRecipe) -> None:
    seen = _seen_on_a_gpu(recipe, autocast=True)
    _demand(not seen, seen)


def knows_positions(score: nn.Module) -> bool:
    """Whether attention depends on where tokens stand: shuffled tokens do not give outputs shuffled in the same way."""
    qkv = random_qkv(B, H, L, L, D)
    order = torch.randperm(L, generator=torch.Generator().manual_seed(0))
    output, _ = attention(score, *qkv)
    shuffled, _ = attention(score, *(x[:, :, order] for x in qkv))
    return not _alike(shuffled, output[:, :, order])


def asks_the_query(score: nn.Module) -> bool:
    """Whether attention depends on the query: rows of weights differ."""
    _, weights = attention(score, *random_qkv(B, H, L, L, D), need_weights=True)
    assert weights is not None
    return not _alike(weights, weights[:, :, :1].expand_as(weights))


def name_of(recipe: ScoreRecipe) -> str:
    """What a recipe is called: the name of its class or function."""
    inner = recipe.func if isinstance(recipe, partial) else recipe
    return getattr(inner, "__name__", type(inner).__name__)


@dataclass(frozen=True)
class Verdict:
    """What the property suite says of a score; ``print`` it.

    Args:
        attempted: False for a stub that raises NotImplementedError.
        seen: name of a property -> what was seen, empty where it holds. After a wrong shape no other is asked, and
            those about GPUs only where torch is built with CUDA.
        notes: what is neither right nor wrong.
    """

    name: str
    attempted: bool
    seen: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def broken(self) -> list[str]:
        """Names of the properties that do not hold."""
        return [name for name, seen in self.seen.items() if seen]

    @property
    def holds(self) -> bool:
        """Whether every property holds."""
        return self.attempted and not self.broken

    def __str__(self) -> str:
        if not self.attempted:
            return f"{self.name}: not attempted yet"
        asked, unasked = len(self.seen), len(PROPERTIES) - len(self.seen)
        held = f"all {asked}" if self.holds else f"{asked - len(self.broken)} of {asked}"
        lines = [f"{self.name}: {held} properties hold" + (f"; the other {unasked} were not asked" if unasked else "")]
        for name in self.broken:
            lines += [
                f"  BROKEN: {name}",
                _folded("promised", PROPERTIES[name].holds),
                _folded("seen", self.seen[name]),
                _folded("look for", PROPERTIES[name].look_for),
            ]
        lines += [_folded("noted, not judged", "; ".join(self.notes), indent=2)] if self.notes else []
        return "\n".join(lines)


def _folded(label: str, text: str, indent: int = 4) -> str:
    return fill(f"{label}: {text}", 100, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2))


def examine(recipe: ScoreRecipe) -> Verdict:
    """Ask every property of a score; never raises, whatever the score does.

    Args:
        recipe: the score's class, or what makes one: ``recipe(num_heads, head_dim)``.
    """
    name, seen = name_of(recipe), {}
    for prop in PROPERTIES.values():
        try:
            prop.test(recipe)
            seen[prop.name] = ""
        except NotAsked:
            continue
        except NotImplementedError as error:
            if not str(error):  # torch's own have a message
                return Verdict(name, False, {})
            seen[prop.name] = f"NotImplementedError: {error}"
        except Broken as broken:
            seen[prop.name] = str(broken)
        except Exception as error:
            seen[prop.name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        if seen["shape"]:
            return Verdict(name, True, seen)
    try:
        notes = _notes(recipe)
    except Exception:  # some property has reported it
        notes = ()
    return Verdict(name, True, seen, notes)


def _notes(recipe: ScoreRecipe) -> tuple[str, ...]:
    score = built(recipe)
    numbers = sum(p.numel() for p in score.parameters())
    return (
        "it knows positions" if knows_positions(score) else "it looks at contents only",
        "attention depends on the query" if asks_the_query(score) else "attention does not depend on the query",
        f"{numbers} numbers to learn for {H} heads of {D}",
    )
