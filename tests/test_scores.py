"""The property suite: every entry of SCORES, those of today and those to come, keeps the same promises."""

import ast
import inspect
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from scoring import RECIPES, WRAPPED
from torch import nn
from torch.testing import assert_close

from sciformer import (
    SCORES,
    AdditiveScore,
    AttentionOnly,
    CharTransformer,
    DecoderBlock,
    DistanceBiasedScore,
    DotProductScore,
    EnergyWellScore,
    KeyBiasScore,
    MultiHeadAttention,
    NormalizedScore,
    RotaryScore,
    Score,
    SeparableAdditiveScore,
    StandardizedScore,
    TrainableMaskScore,
    WindowedScore,
    WrappedScore,
    attend,
    causal_mask,
    dot_product_scores,
    gaussian_well,
    lorentzian_well,
    masked_softmax,
    naive_attention,
    pairwise_distances,
    softmax_exponential_well,
    window_mask,
)
from sciformer.fast import attention
from sciformer.functional import InputError, Well, safe_root
from sciformer.scores import WELLS, WRAPPERS, comparing_positions
from sciformer.teach.properties import (
    PROPERTIES,
    B,
    D,
    H,
    L,
    NotAsked,
    built,
    examine,
    knows_positions,
    random_mask,
    random_qkv,
)


def assert_keeps(name, recipe):
    """Ask one promise of a score, or skip where this torch cannot play the GPU that the promise is about."""
    try:
        PROPERTIES[name].test(recipe)
    except NotAsked:
        pytest.skip("this torch cannot play a GPU")


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("recipe", [*RECIPES.values(), *WRAPPED.values()], ids=[*RECIPES, *WRAPPED])
def test_every_score_keeps_every_promise(recipe, name):
    assert_keeps(name, recipe)


@pytest.mark.parametrize("name", SCORES)
def test_only_the_distance_knows_positions(name):
    """Beside what a score says of itself: each later score that does is named here."""
    assert knows_positions(built(SCORES[name])) == (name == "distance")


def test_the_random_mask_leaves_some_queries_nothing():
    assert (~random_mask(B, H, L, L).any(-1)).sum() == B * H
    assert random_mask(1000, 2, empty_row=False).any(-1).all()


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


@pytest.mark.parametrize("options", [{}, {"each_side": True}, {"width": 3}, {"each_side": True, "width": 3}])
def test_heads_that_share_their_slopes(options):
    """One row of slopes serves all heads, and gets the gradient of all."""
    shared, own = (DistanceBiasedScore(2, D, shared=s, start=0.3, **options) for s in (True, False))
    assert len(shared.strength) == 1
    assert shared.strength.numel() * 2 == own.strength.numel()
    query, key, value = random_qkv(B, 2, 9, 9, D)
    outputs = [attend(score(query, key), value)[0] for score in (shared, own)]
    assert_close(*outputs)
    for output in outputs:
        output.square().sum().backward()
    assert_close(shared.strength.grad[0], own.strength.grad.sum(dim=0))


@pytest.mark.parametrize("recipe", [DistanceBiasedScore, EnergyWellScore])
def test_heads_that_start_alike_part_in_training(recipe):
    """Each has a number of its own in memory, not a view of one for all."""
    (parameter,) = recipe(2, D).parameters()
    start = parameter.detach().clone()
    parameter.grad = torch.tensor([1.0, -1.0])
    torch.optim.SGD([parameter], lr=0.5).step()
    assert_close(parameter.detach(), start + torch.tensor([-0.5, 0.5]))


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
    assert_keeps(name, partial(EnergyWellScore, well=OwnWell(), form=form))


@pytest.mark.parametrize("recipe", [AdditiveScore, SeparableAdditiveScore])
def test_additive_scores_start_with_a_variance_of_about_one(recipe):
    torch.manual_seed(0)
    score = recipe(64, 32)
    weights_only = score.weight.var()
    assert weights_only.item() == pytest.approx((5 / 3) ** 2 / 32, rel=0.1)
    query, key, _ = random_qkv(1, 64, 2, 200, 32, dtype=torch.float32)
    in_a_row = score(query, key).var(dim=-1).mean().item()  # what the softmax sees
    assert 0.5 < in_a_row < 1.5


def from_notebook(script, *names):
    """Classes as a notebook builds them by hand."""
    text = (Path(__file__).parents[1] / "notebooks_py" / script).read_text(encoding="utf-8")
    found = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name in names]
    known = {"torch": torch, "nn": nn, "masked_softmax": masked_softmax, "dot_product_scores": dot_product_scores}
    exec(compile(ast.Module(found, []), script, "exec"), known)
    return [known[name] for name in names]


def test_notebook_03s_bias_is_the_packages():
    (by_hand,) = from_notebook("03_multi_head.py", "KeyBiasScore")
    theirs, ours = by_hand(H, D).double(), KeyBiasScore(H, D).double()
    ours.weight.data.copy_(theirs.weight[:, 0])
    query, key, _ = random_qkv(B, H, 4, L, D)
    assert_close(ours(query, key), theirs(query, key))


def test_a_bias_of_keys_is_a_shift_of_queries_under_a_dot_product():
    score = built(KeyBiasScore)
    query, key, _ = random_qkv(B, H, 4, L, D)
    assert_close(score(query, key), dot_product_scores(query + D**0.5 * score.weight[:, None], key))


@pytest.mark.parametrize("form", ["additive", "multiplicative"])
def test_notebook_02s_masks_are_the_packages_beside_a_causal_mask(form):
    (by_hand,) = from_notebook("02_scaled_dot_product.py", f"{form.capitalize()}Mask")
    theirs = by_hand(length=L).double()
    theirs.mask.data.add_(torch.randn(L, L))
    ours = TrainableMaskScore(1, D, max_length=L, form=form).double()
    ours.mask.data.copy_(theirs.mask)
    query, key, value = random_qkv(B, 1, L, L, D)
    weights = theirs(dot_product_scores(query, key)[:, 0], causal_mask(L))
    for is_causal in (False, True):  # it hides the future also where attention is not asked to
        assert_close(attention(ours, query, key, value, is_causal=is_causal, need_weights=True)[1][:, 0], weights)


def test_notebook_01s_standardised_rows_are_the_packages():
    x = random_qkv()[0]
    score = StandardizedScore(3, 11, score=partial(DotProductScore, scale=1.0))
    output, weights = attention(score, x, x, x, need_weights=True)
    for ours, theirs in zip((output, weights), naive_attention(x, normalize="standardize"), strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["key_bias", "additive_mask", "multiplicative_mask"])
def test_a_change_that_is_learned_starts_as_the_score_that_it_changes(name):
    options = {"max_length": L, "is_causal": False} if name.endswith("mask") else {}
    query, key, _ = random_qkv(B, H, L, L, D)
    score = WRAPPERS[name](H, D, score=AdditiveScore, **options).double()
    assert_close(score(query, key), score.score(query, key))


@pytest.mark.parametrize("form", ["additive", "multiplicative"])
def test_a_finite_mask_alone_leaks_and_one_with_minus_infinity_does_not(form):
    """The gradient of each output by what comes after it, where attention is not asked to be causal."""

    def future(is_causal):
        recipe = partial(TrainableMaskScore, max_length=L, form=form, is_causal=is_causal)
        query, key, value = random_qkv(1, H, L, L, D, requires_grad=True)
        output, _ = attention(built(recipe), query, key, value)
        seen = torch.zeros(L, L, dtype=torch.bool)
        for i in range(L):
            gradients = torch.autograd.grad(output[0, :, i].square().sum(), (key, value), retain_graph=True)
            seen[i] = sum(g.abs().sum(dim=(0, 1, 3)) for g in gradients) > 0
        return seen

    assert torch.equal(future(is_causal=True), causal_mask(L))
    assert future(is_causal=False).all()


MODELS = {
    "language model": lambda score: CharTransformer(5, L, H * D, H, 1, score=score),
    "attention only": lambda score: AttentionOnly(5, L, H * D, H, 1, score=score),
    "decoder": lambda score: DecoderBlock(H * D, H, score=score),
}


@pytest.mark.parametrize("around", [lambda recipe: recipe, lambda recipe: partial(RotaryScore, score=recipe)])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_mask_that_does_not_hide_the_future_is_refused_where_there_is_one(make, around):
    with pytest.raises(InputError, match="its numbers are finite, so that every later token would keep a weight"):
        make(around(partial(TrainableMaskScore, max_length=L, is_causal=False)))
    make(around(partial(TrainableMaskScore, max_length=L)))


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_language_model_sees_no_later_token_and_writes_the_same_with_a_cache(name):
    torch.manual_seed(0)
    options = {"max_length": 20} if name.endswith("mask") else {}
    model = CharTransformer(11, 20, 12, 3, 2, score=partial(WRAPPERS[name], **options)).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    tokens = torch.randint(11, (2, 20))
    embedded, embed = [], model.embedding.forward
    model.embedding.forward = lambda x: embedded.append(embed(x).detach().requires_grad_()) or embedded[-1]
    logits = model(tokens)
    for t in range(20):
        (gradient,) = torch.autograd.grad(logits[:, t].square().sum(), embedded[0], retain_graph=True)
        assert gradient[:, : t + 1].abs().sum(dim=-1).all()
        assert not gradient[:, t + 1 :].any()
    del model.embedding.forward
    written = model.generate(tokens[:, :1], 19, temperature=0)
    with torch.no_grad():
        for length in range(1, 20):
            assert torch.equal(model(written[:, :length])[:, -1].argmax(dim=-1), written[:, length])


def test_a_trainable_mask_refuses():
    with pytest.raises(InputError, match='form must be "additive" or "multiplicative", got \'add\''):
        TrainableMaskScore(H, D, max_length=L, form="add")
    with pytest.raises(InputError, match="max_length must be at least 1, got 0"):
        TrainableMaskScore(H, D, max_length=0)
    score = TrainableMaskScore(H, D, max_length=5).double()
    query, key, _ = random_qkv(B, H, L, L, D)
    with pytest.raises(InputError, match="for up to 5 tokens, got 7"):
        score(query, key)
    with pytest.raises(InputError, match="for up to 5 tokens, got 6"):
        score(query[:, :, :1], key[:, :, :5], query_offset=5)
    assert score(query[:, :, :2], key[:, :, :5], query_offset=3).shape == (B, H, 2, 5)


def test_a_wrapped_score_is_the_score_and_hides_what_it_hides():
    query, key, value = random_qkv(B, H, L, L, D)
    windowed = partial(WindowedScore, window=2)
    score = WrappedScore(H, D, score=windowed)
    assert_close(score(query, key), windowed(H, D)(query, key))
    assert torch.equal(score.own_mask(L, L), window_mask(L, window=2))
    assert WrappedScore(H, D, score=OwnModule).own_mask(L, L) is None
    both = WindowedScore(H, D, window=2, score=partial(TrainableMaskScore, max_length=L)).double()
    assert torch.equal(both.own_mask(L, L), window_mask(L, window=2) & causal_mask(L))
    weights = attention(both, query, key, value, need_weights=True)[1]
    assert torch.equal(weights[0, 0] > 0, window_mask(L, window=2) & causal_mask(L))


@pytest.mark.parametrize("recipe", [KeyBiasScore, StandardizedScore, partial(StandardizedScore, score=KeyBiasScore)])
def test_a_window_serves_what_is_inside_it_in_blocks(recipe):
    """Of a sequence that is longer than a block."""
    inputs = random_qkv(2, H, 131, 131, D)
    score = built(partial(WindowedScore, window=5, score=recipe))
    for is_causal in (False, True):
        blocks, whole = (attention(score, *inputs, is_causal=is_causal, need_weights=need)[0] for need in (False, True))
        assert_close(blocks, whole)
