"""The property suite: every entry of SCORES, those of today and those to come, keeps the same promises."""

import copy
import inspect
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from sciformer import (
    SCORES,
    AdditiveScore,
    DistanceBiasedScore,
    DotProductScore,
    EnergyWellScore,
    MultiHeadAttention,
    NormalizedScore,
    PreparedScore,
    RotaryScore,
    Score,
    SeparableAdditiveScore,
    attend,
    causal_mask,
    fast,
    gaussian_well,
    lorentzian_well,
    pairwise_distances,
    softmax_exponential_well,
)
from sciformer.fast import FAST, attention
from sciformer.fast.cache import memory_for
from sciformer.functional import Well, safe_root
from sciformer.scores import WELLS, comparing_positions
from sciformer.teach.properties import PROPERTIES, B, D, H, L, built, examine, knows_positions, random_mask, random_qkv

#: The properties that take the fast path.
IN_BLOCKS = ("hides the future", "empty rows give 0", "decoding is the whole pass", "fast path is exact")
RECIPES = {
    **SCORES,
    "distance to each side": partial(DistanceBiasedScore, each_side=True),
    "distance on a grid": partial(DistanceBiasedScore, width=3),
    "distance to each side on a grid": partial(DistanceBiasedScore, each_side=True, width=3),
    **{f"normalised {name}": partial(NormalizedScore, score=recipe) for name, recipe in SCORES.items()},
    **{f"rotary {name}": partial(RotaryScore, score=recipe) for name, recipe in SCORES.items()},
    "gaussian field": partial(EnergyWellScore, well="gaussian", form="field"),
    "inverse square field": partial(EnergyWellScore, well="inverse_square", form="field"),
    "softmax-exponential field": partial(EnergyWellScore, well="softmax_exponential", form="field"),
    "lorentzian field": partial(EnergyWellScore, well="lorentzian", form="field"),
}


@pytest.fixture(params=RECIPES)
def recipe(request):
    return RECIPES[request.param]


@pytest.fixture
def score(recipe):
    return built(recipe)


@pytest.fixture(params=[L, 3, 1], ids=lambda queries: f"{queries} queries at once")
def blocks(request, monkeypatch, score):
    """How much a block holds where the fast path is made of blocks: one example, or a part of one.

    Where it is made of runs of keys, these are as long, but at least 2: of 7 keys, runs of 3 make two levels.
    """
    per_score = D if isinstance(score, AdditiveScore) else 1
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", request.param * H * L * per_score)
    monkeypatch.setattr(fast.separable, "RUN", max(2, request.param))


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_score_keeps_every_promise(recipe, name):
    PROPERTIES[name].test(recipe)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("name", IN_BLOCKS)
def test_every_score_keeps_its_promises_in_blocks(recipe, name):
    PROPERTIES[name].test(recipe)


@pytest.mark.parametrize("name", SCORES)
def test_only_the_distance_knows_positions(name):
    """Beside what a score says of itself: each later score that does is named here."""
    assert knows_positions(built(SCORES[name])) == (name == "distance")


def test_the_random_mask_leaves_some_queries_nothing():
    assert (~random_mask(B, H, L, L).any(-1)).sum() == B * H
    assert random_mask(1000, 2, empty_row=False).any(-1).all()


def test_readable_path_is_the_four_lines(score):
    query, key, value = random_qkv(B, H, L, L, D)
    mask = random_mask(B, H, L, L)
    output, weights = attention(score, query, key, value, attn_mask=mask, need_weights=True)
    expected = attend(score(query, key, attn_mask=mask), value, attn_mask=mask)
    assert_close((output, weights), expected)


@pytest.mark.parametrize("in_a_block", [None, 1], ids=["whole", "query by query"])
@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
@pytest.mark.parametrize("extreme", [math.inf, math.nan], ids=str)
def test_a_query_that_is_not_finite_touches_no_other_row(score, extreme, is_causal, in_a_block, monkeypatch):
    if in_a_block:
        monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", in_a_block)
    query, key, value = random_qkv(B, H, L, L, D)
    finite, _ = attention(score, query, key, value, is_causal=is_causal)
    for row in (0, 3):
        broken, others = query.clone(), torch.arange(L) != row
        broken[:, :, row, 1] = extreme
        for need_weights in (False, True):
            output, _ = attention(score, broken, key, value, is_causal=is_causal, need_weights=need_weights)
            assert_close(output[:, :, others], finite[:, :, others])
        if is_causal:  # and decoded token by token
            memory = memory_for(score)
            output = [memory.attend(score, *(x[:, :, i : i + 1] for x in (broken, key, value))) for i in range(L)]
            assert_close(torch.cat(output, dim=2)[:, :, others], finite[:, :, others])


@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
def test_separable_attention_does_not_look_at_a_query(is_causal):
    """The tanh of ∞ is 1, so an infinite query has a row like any other; so has one with a NaN, on the fast path."""
    score, (query, key, value) = built(SeparableAdditiveScore), random_qkv(B, H, L, L, D)
    finite, _ = attention(score, query, key, value, is_causal=is_causal)
    for extreme in (math.inf, math.nan):
        broken = query.index_fill(2, torch.tensor(0), extreme).requires_grad_()
        output, _ = attention(score, broken, key, value, is_causal=is_causal)
        assert_close(output, finite)
        assert not torch.autograd.grad(output.square().sum(), broken)[0].any()
        readable, _ = attention(score, broken, key, value, is_causal=is_causal, need_weights=True)
        assert readable[:, :, 0].isfinite().all() == (extreme == math.inf)


def test_a_subclass_is_never_served_by_its_parents_shortcut():
    class Doubled(DotProductScore):
        def forward(self, query, key, **options):
            return 2 * super().forward(query, key, **options)

    inputs = random_qkv(B, H, L, L, D)
    doubled, _ = attention(Doubled(H, D), *inputs)
    assert_close(doubled, attention(DotProductScore(H, D, scale=2 * D**-0.5), *inputs)[0])


@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_a_scale_that_is_not_positive_hides_the_future_too(scale):
    inputs = random_qkv(B, H, L, L, D)
    score = DotProductScore(H, D, scale=scale)
    assert_close(score(*inputs[:2]), scale * inputs[0] @ inputs[1].mT)
    fast, readable = (attention(score, *inputs, is_causal=True, need_weights=weights)[0] for weights in (False, True))
    assert_close(fast, readable)


def test_every_fast_path_belongs_to_a_score():
    scores = {getattr(recipe, "func", recipe) for recipe in SCORES.values()}
    assert set(FAST) <= {*scores, *PreparedScore.__subclasses__()}


class OwnModule(nn.Module):
    """The contract kept without :class:`Score`."""

    def __init__(self, num_heads, head_dim):
        super().__init__()


@pytest.mark.parametrize("base", [Score, OwnModule])
def test_a_score_of_ones_own_drops_in(base):
    class Constant(base):
        def forward(self, query, key, *, attn_mask=None, query_offset=0):
            return torch.zeros(*query.shape[:-1], key.shape[-2], dtype=query.dtype)

    layer = MultiHeadAttention(6, 2, score=Constant)
    _, weights = layer(torch.randn(2, 4, 6), need_weights=True)
    assert_close(weights, torch.full((2, 2, 4, 4), 0.25))
    assert comparing_positions(layer) == []


def test_every_score_keeps_the_one_contract(score):
    """Its arguments are those of :class:`Score`, which alone documents them."""
    assert isinstance(score, Score)
    names = [list(inspect.signature(s.forward).parameters) for s in (score, Score(H, D))]
    assert names[0] == names[1]
    assert inspect.getdoc(type(score).forward) == inspect.getdoc(Score.forward)


def test_a_score_without_a_formula_is_not_attempted():
    assert not examine(Score).attempted


@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
@pytest.mark.parametrize("need_weights", [False, True], ids=["fast", "readable"])
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.zeros(L, L), "boolean .*float32"),
        (torch.ones(L, L + 1, dtype=torch.bool), r"\(7, 8\) .* \(2, 3, 7, 7\)"),
        (torch.ones(5, 1, L, L, dtype=torch.bool), r"\(5, 1, 7, 7\)"),
    ],
)
def test_both_paths_refuse_a_wrong_mask(score, mask, message, need_weights, is_causal, monkeypatch):
    options = {"attn_mask": mask, "need_weights": need_weights, "is_causal": is_causal}
    for in_a_block in (fast.BLOCK_NUMBERS["cpu"], 1):
        monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", in_a_block)
        with pytest.raises(ValueError, match=message):
            attention(score, *random_qkv(B, H, L, L, D), **options)


@pytest.mark.parametrize("need_weights", [False, True], ids=["fast", "readable"])
def test_both_paths_refuse_values_and_batches_that_do_not_fit(score, need_weights):
    query, key, value = random_qkv(B, H, L, L, D)
    for unfit in ((query, key, value[:, :, 1:]), (query, key[:, :, 1:], value), (query, key[:1], value[:1])):
        with pytest.raises(ValueError, match=r"must share batch and heads, and key and value a length"):
            attention(score, *unfit, need_weights=need_weights)


@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
@pytest.mark.parametrize("name", ["dot", "distance", "distance on a grid", "additive", "separable", "gaussian field"])
def test_both_paths_refuse_queries_and_keys_that_do_not_fit(name, is_causal, monkeypatch):
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", 1)
    score, (query, key, value) = built(RECIPES[name]), random_qkv(B, H, L, L, D)
    for need_weights in (False, True):
        options = {"is_causal": is_causal, "need_weights": need_weights}
        with pytest.raises(ValueError, match="query has head_dim 6, but key has head_dim 4"):
            attention(score, query, key[..., :4], value, **options)
        with pytest.raises(ValueError, match=r"float64 and torch\.float32"):
            attention(score, query, key.float(), value, **options)


@pytest.mark.parametrize(("heads", "width"), [(1, None), (8, 3)], ids=["sequence", "grid"])
def test_both_paths_refuse_slopes_of_other_heads(heads, width, monkeypatch):
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", 1)
    score = DistanceBiasedScore(heads, D, width=width).double()
    for need_weights in (False, True):
        with pytest.raises(ValueError, match=rf"for 2 heads and . sides, got \({heads},\)"):
            attention(score, *random_qkv(1, 2, L, L, D), is_causal=True, need_weights=need_weights)


def test_normalized_queries_and_keys_keep_their_direction_and_have_length_root_d():
    query, key, _ = random_qkv(B, H, L, L, D)
    for x, prepared in zip((query, key), NormalizedScore(H, D).prepare(query, key), strict=True):
        assert_close(prepared, D**0.5 * x / x.norm(dim=-1, keepdim=True))


@pytest.mark.parametrize("recipe", [NormalizedScore, RotaryScore])
def test_what_comes_after_is_the_dot_product_unless_told_otherwise(recipe):
    query, key, _ = random_qkv(B, H, L, L, D)
    score = recipe(H, D)
    assert_close(score(query, key), DotProductScore(H, D)(*score.prepare(query, key)))


def test_normalized_queries_and_keys_keep_their_dtype(monkeypatch):
    """Autocast on CUDA makes every norm float32; here the norm does so by itself."""
    norm = F.rms_norm
    monkeypatch.setattr(F, "rms_norm", lambda x, shape: norm(x.float(), shape))
    query, key, _ = (x.bfloat16() for x in random_qkv(B, H, L, L, D))
    for recipe in SCORES.values():
        prepared = NormalizedScore(H, D, score=recipe).prepare(query, key)
        assert [x.dtype for x in prepared] == [torch.bfloat16] * 2


def test_where_distance_starts():
    assert DistanceBiasedScore(2, D).strength.tolist() == pytest.approx([0.1, 0.1])
    alibi = DistanceBiasedScore(8, D, start="geometric").strength
    assert_close(alibi, torch.tensor([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]))
    assert_close(DistanceBiasedScore(8, D, start="geometric", each_side=True).strength, alibi[:, None].repeat(1, 2))
    assert DistanceBiasedScore(2, D, start=[0.25, 2.0]).strength.tolist() == [0.25, 2.0]
    facing = [[0.5, 4.0], [4.0, 0.5]]
    assert DistanceBiasedScore(2, D, each_side=True, start=facing).strength.tolist() == facing
    with pytest.raises(ValueError, match=r"start of shape \(2, 2\) does not broadcast to strength \(3, 2\)"):
        DistanceBiasedScore(3, D, each_side=True, start=facing)
    shapes = [(False, None), (True, None), (False, 3), (True, 3)]
    sizes = [DistanceBiasedScore(2, D, each_side=s, width=w).strength.shape for s, w in shapes]
    assert sizes == [(2,), (2, 2), (2,), (2, 4)]


@pytest.mark.parametrize("recipe", [DistanceBiasedScore, EnergyWellScore])
def test_heads_that_start_alike_part_in_training(recipe):
    """Each has a number of its own in memory, not a view of one for all."""
    (parameter,) = recipe(2, D).parameters()
    start = parameter.detach().clone()
    parameter.grad = torch.tensor([1.0, -1.0])
    torch.optim.SGD([parameter], lr=0.5).step()
    assert_close(parameter.detach(), start + torch.tensor([-0.5, 0.5]))


@pytest.mark.parametrize("name", ["distance", "distance to each side"])
def test_causal_distance_takes_the_flash_kernel(name):
    inputs = random_qkv(B, H, L, L, D, dtype=torch.float32, requires_grad=True)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # refuses any other kernel
        output, _ = attention(RECIPES[name](H, D), *inputs, is_causal=True)
        output.sum().backward()


@pytest.mark.parametrize("name", ["distance on a grid", "distance to each side on a grid"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_large_grids_take_the_flash_kernel_and_hold_no_scores(name, is_causal, monkeypatch):
    tokens = 192  # 64 rows of 3
    inputs = random_qkv(B, H, tokens, tokens, D, dtype=torch.float32, requires_grad=True)
    score = RECIPES[name](H, D)
    in_one_block = largest_made(score, inputs, is_causal=is_causal)
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", B * H * tokens**2 - 1)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # refuses any other kernel
        assert largest_made(score, inputs, is_causal=is_causal) <= B * H * tokens * (D + 2 + 63 + 8)
    assert in_one_block == B * H * tokens**2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_large_grid_is_exact(dtype, monkeypatch):
    """Down to the rounding of what goes in: half precision is widened, with autocast or without."""
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", 1)
    score = DistanceBiasedScore(2, 16, width=28, each_side=True, start=[[3.0, 0.3, 1.0, 1.0], [0.1, 0.0, -0.01, 0.2]])
    inputs = random_qkv(1, 2, 784, 784, 16, dtype=dtype)
    exact, _ = attention(score, *(x.double() for x in inputs), need_weights=True)
    for mixed in (False, True):
        with torch.autocast("cpu", enabled=mixed):
            output, _ = attention(score, *inputs)
        assert output.dtype == dtype
        assert_close(output.double(), exact, rtol=torch.finfo(dtype).eps, atol=2e-5)


def test_where_a_grid_takes_the_blocks(monkeypatch):
    """Where weights are dropped, and where it is so long and thin that it has more borders than are worth it."""
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", 1)
    inputs = random_qkv(1, 1, 300, 300, 2)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):  # which no CPU has
        for width, dropout in ((20, 0.5), (1, 0.0)):
            assert attention(DistanceBiasedScore(1, 2, width=width), *inputs, dropout_p=dropout)[0].isfinite().all()


def long_inputs(length, dtype):
    query, key, value = random_qkv(1, 2, length, length, 16, dtype=dtype)
    return query[:, :, -64:], key, value


@pytest.mark.parametrize("strength", [0.5, 0.004, -0.01])
def test_causal_distance_is_exact_at_length_8192(strength):
    """A score is off by up to a rounding of the largest λj, 4096 |λ| · 2⁻²⁴, and a weight by twice that share."""
    score = DistanceBiasedScore(2, 16, start=strength)
    inputs = long_inputs(8192, torch.float32)
    fast, _ = attention(score, *inputs, is_causal=True)
    exact, _ = attention(score, *(x.double() for x in inputs), is_causal=True, need_weights=True)
    largest = inputs[2].abs().max().item()
    assert (fast - exact).abs().max() < 2 * abs(strength) * 4096 * 2**-24 * largest


def test_causal_distance_in_bfloat16_knows_its_place():
    """Position 2,000 is the same number as 2,001 in bfloat16; split into parts, λj keeps them apart."""
    score = DistanceBiasedScore(2, 16, start=0.5)
    inputs = long_inputs(2048, torch.bfloat16)
    fast, _ = attention(score, *inputs, is_causal=True)
    exact, _ = attention(score, *(x.double() for x in inputs), is_causal=True, need_weights=True)
    assert fast.dtype == torch.bfloat16
    assert_close(fast.double(), exact, rtol=0, atol=0.02)  # bfloat16 rounds an output of 3 by up to 0.008


def test_a_bias_in_bfloat16_is_held_as_float32_holds_it():
    """In two parts 30,000.3 would be off by up to a quarter."""
    nothing, value = torch.zeros(1, 1, 2, 8, dtype=torch.bfloat16), torch.eye(2, 8, dtype=torch.bfloat16)[None, None]
    bias = torch.tensor([[30_000.3, 30_000.0]])
    output = fast.key_biased_attention(nothing[:, :, :1], nothing, value, bias, scale=1.0)
    assert_close(output[0, 0, :, :2].float(), bias.double().softmax(-1).float(), rtol=0, atol=0.004)


def test_float16_takes_the_blocks():
    """λj√D would be past float16's largest number, 65,504."""
    score = DistanceBiasedScore(2, 16, start=40.0)
    inputs = [x.half() for x in random_qkv(1, 2, 1024, 1024, 16)]
    assert attention(score, *inputs, is_causal=True)[0].isfinite().all()


@pytest.mark.parametrize("recipe", [DistanceBiasedScore, EnergyWellScore])
def test_blocks_keep_no_scores_for_the_way_back(recipe, monkeypatch):
    kept = []
    inputs = random_qkv(B, H, 32, 32, D, requires_grad=True)
    score = recipe(H, D).double()

    def largest_kept():
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            attention(score, *inputs)
        return max(kept)

    assert largest_kept() == B * H * 32 * 32
    for queries in (32, 4):
        monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", queries * H * 32)
        assert largest_kept() <= B * H * 32 * D


@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
def test_every_score_drops_weights_on_the_fast_path(score, is_causal):
    """With values of one, an output is the sum of the weights that were kept, each twice as large."""
    query, key, value = random_qkv(B, H, L, L, D)
    torch.manual_seed(0)
    output, _ = attention(score, query, key, torch.ones_like(value), is_causal=is_causal, dropout_p=0.5)
    assert not torch.allclose(output, torch.ones_like(output))
    assert output.mean().item() == pytest.approx(1, abs=0.4)


def test_blocks_draw_the_same_dropout_on_the_way_back(monkeypatch):
    """With values of one, an output is the sum of the weights that were kept, and so is the gradient of its values."""
    monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", 3 * H * L)
    query, key, value = random_qkv(B, H, L, L, 1, requires_grad=True)
    ones = torch.ones_like(value).requires_grad_()
    torch.manual_seed(0)
    output, _ = attention(DistanceBiasedScore(H, 1).double(), query, key, ones, dropout_p=0.5)
    (gradient,) = torch.autograd.grad(output.sum(), ones)
    assert_close(gradient.sum(), output.sum())
    assert not torch.allclose(output, torch.ones_like(output))


def test_over_all_keys_the_divisor_would_tell_the_future():
    """What the property suite guards against: the same scores, but with a sum over every key."""
    score = SCORES["softmax_exponential_well"](H, D).double()
    query, key, value = random_qkv(B, H, L, L, D, requires_grad=True)
    mask = causal_mask(L)
    for attn_mask, leaks in ((None, True), (mask, False)):
        output, _ = attend(score(query, key, attn_mask=attn_mask), value, attn_mask=mask)
        (to_key,) = torch.autograd.grad(output[:, :, 2].square().sum(), key)
        assert bool(to_key[:, :, 3:].any()) == leaks


def test_what_a_well_learns():
    learnable = {
        name: {p: tuple(tensor.shape) for p, tensor in SCORES[name](3, 5).named_parameters()}
        for name in SCORES
        if name.endswith("_well")
    }
    assert learnable == {
        "gaussian_well": {"log_alpha": (3,)},
        "inverse_square_well": {"importance": (3, 5)},
        "softmax_exponential_well": {"log_alpha": (3,)},
        "lorentzian_well": {"log_alpha": (3,), "importance": (3, 5)},
    }


def test_where_a_well_starts():
    starts = {
        (well, form): EnergyWellScore(1, 8, well=well, form=form).alpha.item()
        for well in ("gaussian", "softmax_exponential", "lorentzian")
        for form in ("gradient", "field")
    }
    assert starts == pytest.approx(
        {
            ("gaussian", "gradient"): 1 / 128,
            ("gaussian", "field"): 1 / 8,
            ("softmax_exponential", "gradient"): 1 / 8,
            ("softmax_exponential", "field"): 1.0,
            ("lorentzian", "gradient"): 1 / 64,
            ("lorentzian", "field"): 1 / 8,
        }
    )
    assert_close(EnergyWellScore(2, 8, start=[0.5, 3.0]).alpha, torch.tensor([0.5, 3.0]))
    assert EnergyWellScore(2, 8, well="inverse_square").alpha is None
    score = EnergyWellScore(2, 8)
    with torch.no_grad():
        score.log_alpha.fill_(-50.0)
    assert (score.alpha > 0).all()


def spread(score, query, key):
    """Standard deviation of a query's scores, on average over the queries."""
    return score(query, key).std(-1).mean().item()


@pytest.mark.parametrize("head_dim", [8, 32, 128])
def test_the_default_wells_are_alive_at_the_distance_of_random_vectors(head_dim):
    """And sharpness 1 is not: all scores alike in the stated form, a few keys for all in the field."""
    query, key, _ = random_qkv(1, 1, 256, 256, head_dim)
    well = partial(EnergyWellScore, 1, head_dim)
    assert 0.4 < spread(well(), query, key) < 0.7
    assert 0.3 < spread(well(well="lorentzian"), query, key) < 0.6
    assert spread(well(start=1.0), query, key) < 0.02
    for name in ("gaussian", "softmax_exponential"):
        assert 0.7 < spread(well(well=name, form="field"), query, key) < 1
    assert spread(well(form="field", start=1.0), query, key) > 6
    moats = {
        "gaussian": 1 / (2 * well().alpha).sqrt(),
        "softmax_exponential": 1 / well(well="softmax_exponential").alpha,
        "lorentzian": 1 / well(well="lorentzian").alpha.sqrt(),
    }
    typical = (query[..., :, None, :] - key[..., None, :, :]).norm(dim=-1).mean().item()
    assert [moat.item() for moat in moats.values()] == pytest.approx([2 * typical] * 3, rel=0.05)


@pytest.mark.parametrize("well", ["inverse_square", "lorentzian"])
def test_a_heavy_token_draws_attention(well):
    score = EnergyWellScore(1, 2, well=well, form="field").double()
    query, key = torch.zeros(1, 1, 1, 2).double(), torch.tensor([[3.0, 0.0], [0.0, 3.0]]).double()[None, None]
    assert_close(score(query, key).softmax(-1), torch.full((1, 1, 1, 2), 0.5, dtype=torch.float64))
    with torch.no_grad():
        score.importance.copy_(torch.tensor([[0.0, 0.5]]))
    assert_close(score(query, key).diff().item(), 1.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"well": "gauss"}, "gaussian, inverse_square, softmax_exponential, lorentzian, got 'gauss'"),
        ({"well": None}, "a function of a distance or one of gaussian, .*, got None"),
        ({"form": "kernel"}, "got 'kernel'"),
        ({"start": 0.0}, r"above 0, .* 3 heads, got 0\.0"),
        ({"start": [0.1, -0.2, 0.3]}, r"above 0, .* got \[0\.1, -0\.2, 0\.3\]"),
        ({"start": [0.1, 0.2]}, r"one for each of 3 heads, got \[0\.1, 0\.2\]"),
        ({"well": "inverse_square", "start": 0.0}, r"inverse_square well has no alpha that could start at 0\.0"),
    ],
)
def test_energy_well_score_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        EnergyWellScore(3, 5, **options)


@pytest.mark.parametrize("form", ["gradient", "field"])
@pytest.mark.parametrize("name", WELLS)
def test_a_well_itself_serves_as_its_name_does(name, form):
    query, key, _ = random_qkv(B, H, L, L, D)
    by_name, itself = (built(partial(EnergyWellScore, well=well, form=form)) for well in (name, WELLS[name]))
    assert_close(itself(query, key), by_name(query, key), rtol=0, atol=0)


@pytest.mark.parametrize("form", ["gradient", "field"])
def test_a_function_of_a_distance_serves_as_a_well_and_learns_nothing(form):
    query, key, _ = random_qkv(B, H, L, L, D)
    score = EnergyWellScore(H, D, well=torch.reciprocal, form=form)
    assert list(score.parameters()) == []
    distance = pairwise_distances(query, key)
    assert_close(score(query, key), -torch.ones_like(distance) if form == "gradient" else -distance.log())


def test_what_a_partial_fixes_is_not_learned():
    """Whatever else the well takes it still gets: the mask, for one, without which it would tell the future."""
    heavy = EnergyWellScore(H, D, well=partial(lorentzian_well, alpha=0.7))
    assert [name for name, _ in heavy.named_parameters()] == ["importance"]
    query, key, _ = random_qkv(B, H, L, L, D)
    fixed = EnergyWellScore(H, D, well=partial(softmax_exponential_well, alpha=0.7))
    learned = EnergyWellScore(H, D, well="softmax_exponential", start=0.7)
    scores = [score(query, key, attn_mask=causal_mask(L)) for score in (fixed, learned)]
    assert_close(*scores, rtol=1e-6, atol=1e-6)
    assert list(fixed.parameters()) == []
    with pytest.raises(ValueError, match=r"has no alpha that could start at 0\.3"):
        EnergyWellScore(H, D, well=partial(gaussian_well, alpha=0.7), start=0.3)
    for form in ("gradient", "field"):
        PROPERTIES["fast path is exact"].test(
            partial(EnergyWellScore, well=partial(gaussian_well, alpha=0.7), form=form)
        )


class OwnWell(Well):
    """A well of one's own, whose α is learned."""

    name, takes, power, moat = "own", ("alpha",), 1, 1.0

    def __call__(self, distance, alpha):
        return 1 / (1 + alpha * distance) ** 2

    def log_energy(self, squared_distance, alpha):
        return -2 * (alpha * safe_root(squared_distance)).log1p()


@pytest.mark.parametrize("form", ["gradient", "field"])
@pytest.mark.parametrize("name", PROPERTIES)
def test_a_well_of_ones_own_keeps_every_promise(name, form):
    assert EnergyWellScore(1, 8, well=OwnWell(), form=form).alpha.item() == pytest.approx(
        1 if form == "field" else 1 / 8
    )
    PROPERTIES[name].test(partial(EnergyWellScore, well=OwnWell(), form=form))


def test_a_copied_gaussian_field_takes_the_flash_kernel():
    inputs = random_qkv(B, H, L, L, D, dtype=torch.float32)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # refuses any other kernel
        attention(copy.deepcopy(RECIPES["gaussian field"](H, D)), *inputs)


@pytest.mark.parametrize("is_causal", [True, False])
def test_gaussian_field_takes_the_flash_kernel(is_causal):
    inputs = random_qkv(B, H, L, L, D, dtype=torch.float32, requires_grad=True)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # refuses any other kernel
        output, _ = attention(RECIPES["gaussian field"](H, D), *inputs, is_causal=is_causal)
        output.sum().backward()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
@pytest.mark.parametrize("start", [1 / 32, 0.5])
def test_gaussian_field_is_exact_at_length_4096(start, dtype, tolerance):
    score = EnergyWellScore(2, 16, form="field", start=start)
    inputs = long_inputs(4096, dtype)
    fast, _ = attention(score, *inputs, is_causal=True)
    exact, _ = attention(score, *(x.double() for x in inputs), is_causal=True, need_weights=True)
    assert fast.dtype == dtype
    assert_close(fast.double(), exact, rtol=0, atol=tolerance)


def test_gaussian_field_in_float16_takes_the_blocks():
    """α ‖k‖² is past float16's largest number, 65,504, where α d² is not."""
    score = EnergyWellScore(2, 16, form="field", start=10.0)
    inputs = [x.half() + 30 for x in random_qkv(1, 2, 64, 64, 16)]
    assert attention(score, *inputs)[0].isfinite().all()


@pytest.mark.parametrize("is_causal", [True, False])
def test_both_paths_refuse_what_has_no_distance(score, is_causal, monkeypatch):
    """More queries than keys: causal, no score can serve them."""
    query, key, value = random_qkv(B, H, L, L, D)
    for need_weights, in_a_block in ((False, fast.BLOCK_NUMBERS["cpu"]), (False, 1), (True, 1)):
        monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", in_a_block)
        if is_causal:
            with pytest.raises(ValueError, match="7 queries and 5 keys"):
                attention(score, query, key[:, :, :5], value[:, :, :5], is_causal=True, need_weights=need_weights)
        elif isinstance(score, DistanceBiasedScore):
            with pytest.raises(ValueError, match=r"queries from position \d reach past 5 keys"):
                attention(score, query, key[:, :, :5], value[:, :, :5], need_weights=need_weights)


@pytest.mark.parametrize("recipe", [AdditiveScore, SeparableAdditiveScore])
def test_additive_scores_start_with_a_variance_of_about_one(recipe):
    torch.manual_seed(0)
    score = recipe(64, 32)
    weights_only = score.weight.var()
    assert weights_only.item() == pytest.approx((5 / 3) ** 2 / 32, rel=0.1)
    query, key, _ = random_qkv(1, 64, 2, 200, 32, dtype=torch.float32)
    in_a_row = score(query, key).var(dim=-1).mean().item()  # what the softmax sees
    assert 0.5 < in_a_row < 1.5


class LargestTensor(TorchDispatchMode):
    """Counts the numbers of the largest tensor that any operation makes, going forth and back."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        made = [x for x in (output if isinstance(output, (tuple, list)) else [output]) if isinstance(x, torch.Tensor)]
        # What is only expanded takes the memory of what it repeats.
        self.numbers = max([self.numbers, *(x.untyped_storage().nbytes() // x.element_size() for x in made)])
        return output


def largest_made(score, inputs, **options):
    with LargestTensor() as largest:
        output, _ = attention(score, *inputs, **options)
        torch.autograd.grad((output**2).sum(), [*inputs, *score.parameters()], allow_unused=True)
    return largest.numbers


def test_the_causal_dot_product_holds_neither_scores_nor_mask():
    inputs = random_qkv(B, H, 64, 64, D, requires_grad=True)
    assert largest_made(DotProductScore(H, D), inputs, is_causal=True) == B * H * 64 * D


@pytest.mark.parametrize("is_causal", [False, True])
def test_additive_blocks_never_hold_the_hidden_layer_whole(is_causal, monkeypatch):
    inputs = random_qkv(B, H, 32, 32, D, requires_grad=True)
    score = AdditiveScore(H, D).double()
    assert largest_made(score, inputs, is_causal=is_causal) == B * H * 32 * 32 * D
    for queries in (32, 8, 4):
        monkeypatch.setitem(fast.BLOCK_NUMBERS, "cpu", queries * H * 32 * D)
        assert largest_made(score, inputs, is_causal=is_causal) == max(queries * H * 32 * D, B * H * 32 * D)


@pytest.mark.parametrize("is_causal", [False, True])
def test_separable_attention_is_linear_in_memory(is_causal):
    score = SeparableAdditiveScore(H, D).double()
    mask = torch.arange(512) < 500
    for attn_mask in (None, mask):
        inputs = random_qkv(B, H, 512, 512, D, requires_grad=True)
        assert largest_made(score, inputs, is_causal=is_causal, attn_mask=attn_mask) <= B * H * 512 * fast.RUN


def test_separable_attention_has_one_output_for_all_queries():
    query, key, value = random_qkv(B, H, L, L, D, requires_grad=True)
    output, _ = attention(SeparableAdditiveScore(H, D).double(), query, key, value)
    assert output.shape == (B, H, L, D)
    assert output.stride(2) == 0
    (gradient,) = torch.autograd.grad(output.square().sum(), query)
    assert not gradient.any()


@pytest.mark.parametrize("mask", [torch.arange(9) > 3, (torch.arange(9) > 3)[None], torch.tensor([True])], ids=str)
def test_separable_attention_takes_any_mask_that_is_the_same_for_all_queries(mask):
    """More keys than queries, and masks of few dimensions; queries 0 and 1 of the last 7 see nothing."""
    score = SeparableAdditiveScore(H, D).double()
    inputs = random_qkv(B, H, 7, 9, D)
    for is_causal in (False, True):
        options = {"attn_mask": mask, "is_causal": is_causal}
        assert_close(
            attention(score, *inputs, **options)[0], attention(score, *inputs, **options, need_weights=True)[0]
        )
        half = SeparableAdditiveScore(H, D).bfloat16(), *(x.bfloat16() for x in inputs)
        assert attention(*half, **options)[0].dtype == torch.bfloat16


@pytest.mark.parametrize("is_causal", [False, True], ids=["two-sided", "causal"])
@pytest.mark.parametrize(
    ("mask", "message"), [(torch.zeros(7), "boolean .*float32"), (torch.ones(8, dtype=torch.bool), r"\(8,\)")]
)
def test_separable_attention_refuses_a_wrong_mask_that_is_the_same_for_all_queries(mask, message, is_causal):
    with pytest.raises(ValueError, match=message):
        attention(
            SeparableAdditiveScore(H, D).double(), *random_qkv(B, H, L, L, D), attn_mask=mask, is_causal=is_causal
        )


@pytest.mark.parametrize("spread", [20.0, 200.0])
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_causal_separable_is_exact_in_float32(spread, padded):
    """Where scores spread by 200, the exponentials are past float32's range. A score itself is off by its rounding."""
    inputs = random_qkv(1, 2, 2048, 2048, 16, dtype=torch.float32)
    inputs[1].mul_(3).add_(4 * torch.linspace(-1, 1, 2048)[:, None].sin())  # away from 0, to both ends
    mask = torch.arange(2048) % 3 > 0 if padded else None
    results = []
    for dtype, need_weights in ((torch.float32, False), (torch.float64, True)):
        score = SeparableAdditiveScore(2, 16).to(dtype)
        nn.init.constant_(score.weight, spread / 32)
        query, key, value = (x.detach().to(dtype).requires_grad_() for x in inputs)
        output, _ = attention(score, query, key, value, attn_mask=mask, is_causal=True, need_weights=need_weights)
        gradients = torch.autograd.grad(output.square().mean(), [key, value, score.weight])
        results.append([output, *(g / g.abs().max() for g in gradients)])
    for fast_result, exact in zip(*results, strict=True):
        assert_close(fast_result.double(), exact, rtol=0, atol=spread * 2**-21)


@pytest.mark.parametrize("autocast", [False, True])
def test_causal_separable_sums_in_float32_where_inputs_have_fewer_bits(autocast):
    """Values of 1 + x, whose mean goes to 1: with the 8 bits of bfloat16 a sum of 4,096 would stand still at 256."""
    score = SeparableAdditiveScore(2, 16)
    inputs = [x.bfloat16() for x in random_qkv(1, 2, 4096, 4096, 16, dtype=torch.float32)]
    inputs[2] += 1
    with torch.autocast("cpu", enabled=autocast):
        fast_output, _ = attention(score if autocast else score.bfloat16(), *inputs, is_causal=True)
    tail = inputs[0][:, :, -64:], *inputs[1:]
    exact, _ = attention(score.double(), *(x.double() for x in tail), is_causal=True, need_weights=True)
    assert fast_output.dtype == torch.bfloat16
    assert_close(fast_output[:, :, -64:].double(), exact, rtol=0, atol=0.008)  # bfloat16 rounds 1 by up to 0.004
