"""The property suite tells what is broken: each slip breaks the properties that it should, and no other."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sciformer import DotProductScore, PreparedScore, SeparableAdditiveScore, fast
from sciformer.functional import masked_softmax
from sciformer.lab.fake_cuda import can_fake_cuda
from sciformer.teach import properties
from sciformer.teach.properties import PROPERTIES, examine, name_of

ON_A_GPU = {"makes no tensor on the wrong device", "works on a GPU under autocast"}
#: Which a torch that is built without CUDA cannot try.
needs_cuda_build = pytest.mark.skipif(not can_fake_cuda(), reason="this torch cannot play a GPU")


class Own(nn.Module):
    """The dot product with a number to learn; each slip below changes something."""

    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.scale = nn.Parameter(torch.full((num_heads, 1, 1), head_dim**-0.5))

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        return self.scale * (query @ key.mT)


class Leaks(Own):
    def forward(self, query, key, **options):
        scores = super().forward(query, key)
        return scores / (1 + scores.var(dim=-1, keepdim=True, correction=0)).sqrt()


class LeaksWithoutGradient(Own):
    def forward(self, query, key, **options):
        return super().forward(query, key / key.detach().abs().amax(dim=(-2, -1), keepdim=True))


class Divides(Own):
    def forward(self, query, key, **options):
        return super().forward(query, key) / (query.norm(dim=-1)[..., None] * key.norm(dim=-1)[..., None, :])


class DividesByQueries(Own):
    def forward(self, query, key, **options):
        return super().forward(query, key) / query.norm(dim=-1)[..., None]


class DividesByKeys(Own):
    def forward(self, query, key, **options):
        return super().forward(query, key) / key.norm(dim=-1)[..., None, :]


class DividesByDistances(Own):
    def forward(self, query, key, **options):
        return super().forward(query, key) / (query[..., :, None, :] - key[..., None, :, :]).norm(dim=-1)


class Explodes(Own):
    def forward(self, query, key, **options):
        return super().forward(query, key).exp()


class HidesZeros(Own):
    """The softmax takes -inf, and every gradient is finite."""

    def forward(self, query, key, **options):
        return super().forward(query, key).masked_fill((key == 0).all(-1)[..., None, :], -torch.inf)


class DividesByTheVisible(Own):
    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        scores = super().forward(query, key)
        visible = torch.ones_like(scores) if attn_mask is None else attn_mask
        return scores / (visible * scores.exp()).sum(dim=-1, keepdim=True)


class Infinite(Own):
    def forward(self, query, key, **options):
        return super().forward(query, key) / 0


class Deaf(Own):
    def forward(self, query, key, **options):
        return self.scale.data * (query @ key.mT)


class Detached(Own):
    def forward(self, query, key, **options):
        return self.scale * (query @ key.detach().mT)


class Cancelled(Own):
    def forward(self, query, key, **options):
        return query @ key.mT + self.scale


class Transposed(Own):
    def forward(self, query, key, **options):
        return super().forward(key, query)


class Square(Own):
    def forward(self, query, key, **options):
        return super().forward(query, key)[..., : query.shape[-2]]


class Single(Own):
    def forward(self, query, key, **options):
        return super().forward(query, key).float()


class Noisy(Own):
    def forward(self, query, key, **options):
        return super().forward(query, F.dropout(key, 0.5))


class InPlace(Own):
    def forward(self, query, key, **options):
        return self.scale * (query.data.mul_(2) @ key.mT)


class InPlaceOnKeys(Own):
    def forward(self, query, key, **options):
        return self.scale * (query @ key.data.mul_(2).mT)


class AcrossExamples(Own):
    def forward(self, query, key, **options):
        scores = super().forward(query, key)
        return scores * query.square().mean(dim=(0, 3))[..., None]


class AcrossQueries(Own):
    def forward(self, query, key, **options):
        return super().forward(query - query.mean(dim=-2, keepdim=True), key)


class Positions(Own):
    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        i = torch.arange(query_offset, query_offset + query.shape[-2], device=query.device)[:, None]
        return super().forward(query, key) - self.scale * (i - torch.arange(key.shape[-2], device=key.device)).abs()


class ForgetsTheOffset(Positions):
    compares_positions = True

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        return super().forward(query, key)


class LosesNumbers(Own):
    def __init__(self, num_heads, head_dim):
        super().__init__(num_heads, head_dim)
        self.shift = torch.randn(head_dim, dtype=torch.float64)

    def forward(self, query, key, **options):
        return super().forward(query, key + self.shift.to(key) * key.norm(dim=-1, keepdim=True))


class Shared(Own):
    shared = nn.Parameter(torch.ones(1))

    def __init__(self, num_heads, head_dim):
        super().__init__(num_heads, head_dim)
        self.factor = self.shared

    def forward(self, query, key, **options):
        return self.factor.to(query) * super().forward(query, key)


class OnTheCPU(Own):
    compares_positions = True

    def forward(self, query, key, *, attn_mask=None, query_offset=0):
        i = torch.arange(query_offset, query_offset + query.shape[-2], device=query.device)[:, None]
        return super().forward(query, key) - self.scale * (i - torch.arange(key.shape[-2])).abs()


class LeftOnTheCPU(Own):
    def __init__(self, num_heads, head_dim):
        super().__init__(num_heads, head_dim)
        self.unit = torch.full((head_dim,), head_dim**-0.5, dtype=torch.float64)

    def forward(self, query, key, **options):
        return super().forward(query, key + self.unit.to(key.dtype))


class WantsOneDtype(Own):
    """Half the dot product, half a distance: a product is bfloat16 under autocast, and a distance float32."""

    def forward(self, query, key, **options):
        return self.scale * torch.lerp(query @ key.mT, torch.cdist(query + 0.1, key), 0.5)


class Reads(Own):
    def forward(self, query, key, **options):
        scores = super().forward(query, key)
        return scores / 2 if scores.isnan().any() else scores


class TakesNoMask(Own):
    def forward(self, query, key):
        return self.scale * (query @ key.mT)


ACROSS_KEYS = {"hides the future", "hidden keys have no say", "decoding is the whole pass"}
SLIPS = {
    Leaks: ACROSS_KEYS,
    LeaksWithoutGradient: {*ACROSS_KEYS, "gradients are right"},
    Divides: {"finite"},
    HidesZeros: {"finite"},
    DividesByTheVisible: {"empty rows give 0"},
    Infinite: {"finite", "rows sum to 1"},
    Deaf: {"gradients arrive", "gradients are right"},
    Detached: {"gradients arrive", "gradients are right"},
    Cancelled: {"gradients arrive"},
    Transposed: {"shape"},
    Square: {"shape"},
    Noisy: {"same answer twice"},
    InPlace: {"inputs stay as they are"},
    InPlaceOnKeys: {"inputs stay as they are"},
    AcrossExamples: {"examples are strangers"},
    AcrossQueries: {"queries are strangers"},
    Positions: {"says whether it knows positions"},
    ForgetsTheOffset: {"queries are strangers", "decoding is the whole pass"},
    Single: {"dtype"},
    LosesNumbers: {"state_dict holds everything"},
    Shared: {"layers share nothing"},
    TakesNoMask: {"shape"},
}
SLIPS_ON_A_GPU = {
    OnTheCPU: ON_A_GPU,
    LeftOnTheCPU: ON_A_GPU,
    WantsOneDtype: {"works on a GPU under autocast"},
    Reads: {"works on a GPU under autocast"},
}


@needs_cuda_build
def test_a_sound_score_keeps_every_promise():
    verdict = examine(Own)
    assert verdict.holds
    assert verdict.seen.keys() == PROPERTIES.keys()
    text = " ".join(str(verdict).split())
    assert text.startswith("Own: all 20 properties hold")
    assert "it looks at contents only; attention depends on the query; 3 numbers to learn" in text


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("recipe", SLIPS, ids=lambda recipe: recipe.__name__)
def test_every_slip_is_seen_for_what_it_is(recipe):
    verdict = examine(recipe)
    assert SLIPS[recipe] <= set(verdict.broken)
    for name in SLIPS[recipe]:
        assert PROPERTIES[name].look_for.split()[0] in str(verdict)


@pytest.mark.parametrize("recipe", [Leaks, Divides, Cancelled, AcrossExamples, Positions, LosesNumbers, Shared])
def test_a_slip_breaks_nothing_else(recipe):
    assert set(examine(recipe).broken) == SLIPS[recipe]


@pytest.mark.parametrize(
    ("recipe", "seen"),
    [
        (DividesByDistances, "a query that equals its key: scores are"),
        (DividesByKeys, "a key of zeros: scores are"),
        (DividesByQueries, "a query of zeros: scores are"),
        (Explodes, "numbers ten times as large: scores are"),
        (HidesZeros, "a key of zeros: scores are"),
    ],
)
def test_what_is_not_finite_is_told_with_its_case(recipe, seen):
    assert examine(recipe).seen["finite"] == f"{seen} not finite"


@needs_cuda_build
@pytest.mark.parametrize(
    ("recipe", "seen"),
    [
        (OnTheCPU, "a tensor on the CPU meets one on the GPU"),
        (LeftOnTheCPU, "a tensor on the CPU meets one on the GPU"),
        (WantsOneDtype, "torch refuses: "),
        (Reads, "it reads a number off the GPU (aten._local_scalar_dense"),
    ],
)
def test_what_a_gpu_would_not_take_is_told_without_one(recipe, seen):
    verdict = examine(recipe)
    assert set(verdict.broken) == SLIPS_ON_A_GPU[recipe]
    assert verdict.seen["works on a GPU under autocast"].startswith(seen)


def test_a_torch_without_cuda_does_not_ask_about_gpus(monkeypatch):
    monkeypatch.setattr(properties, "can_fake_cuda", lambda: False)
    verdict = examine(OnTheCPU)
    assert verdict.seen.keys() == PROPERTIES.keys() - ON_A_GPU
    assert "OnTheCPU: all 18 properties hold; the other 2 were not asked" in str(verdict)


def test_every_promise_is_broken_by_some_slip():
    caught = {name for names in (SLIPS | SLIPS_ON_A_GPU).values() for name in names}
    assert caught | {"fast path is exact"} == PROPERTIES.keys()  # of which the test is below


def test_after_a_wrong_shape_nothing_else_is_asked():
    verdict = examine(TakesNoMask)
    assert verdict.broken == ["shape"]
    assert "the other 19 were not asked" in str(verdict)
    assert "TypeError" in verdict.seen["shape"]


def test_a_fast_path_that_is_wrong_is_seen(monkeypatch):
    monkeypatch.setitem(
        fast.FAST, DotProductScore, lambda score, query, key, value, **options: 0 * query + value[:, :, :1]
    )
    assert "fast path is exact" in examine(DotProductScore).broken


def only_a_gradient(x):
    """0, with the gradient of x."""
    return x - x.detach()


PATHS = {
    "a causal query sees one key too many": (
        lambda exact, query, key, value, mask: exact + F.pad(key[:, :, 1:].mean(-1, keepdim=True), (0, 0, 0, 1)),
        {"hides the future": "output 0 has a gradient at a later key"},
    ),
    "no gradient reaches a value": (
        lambda exact, query, key, value, mask: exact.detach() + value - value + 0 * key,
        {"hides the future": "output 0 has no gradient at an earlier value"},
    ),
    "an empty row is not 0": (
        lambda exact, query, key, value, mask: exact + 1,
        {"empty rows give 0": "the output of a query without keys is not 0"},
    ),
    "an empty row has a gradient": (
        lambda exact, query, key, value, mask: exact + only_a_gradient(query),
        {
            "empty rows give 0": "a query without keys has a gradient",
            "fast path is exact": "none: outputs or gradients differ",
        },
    ),
    "empty everywhere is not 0": (
        lambda exact, query, key, value, mask: exact + float(mask is not None and not mask.any()),
        {"empty rows give 0": "with every key hidden, an output is not 0"},
    ),
    "empty everywhere has a gradient": (
        lambda exact, query, key, value, mask: exact if mask is None or mask.any() else exact + only_a_gradient(value),
        {"empty rows give 0": "with every key hidden, there is a gradient"},
    ),
    "empty everywhere has gradients that sum to 0": (
        lambda exact, query, key, value, mask: (
            exact if mask is None or mask.any() else exact + only_a_gradient(value - value.roll(1, 2))
        ),
        {"empty rows give 0": "with every key hidden, there is a gradient"},
    ),
    "fewer queries than keys": (
        lambda exact, query, key, value, mask: exact + float(query.shape != key.shape),
        {"decoding is the whole pass": "the last 3 queries alone have other outputs"},
    ),
}


@pytest.mark.parametrize("slip", PATHS)
def test_a_fast_path_is_told_how_it_errs(monkeypatch, slip):
    change, broken = PATHS[slip]

    def path(score, query, key, value, *, attn_mask=None, **options):
        exact = fast.readable_attention(score, query, key, value, attn_mask=attn_mask, **options)[0]
        return change(exact, query, key, value, attn_mask)

    monkeypatch.setitem(fast.FAST, Own, path)
    seen = examine(Own).seen
    assert {name: seen[name] for name in broken} == broken


@pytest.mark.parametrize(
    ("softmax", "seen"),
    [
        (lambda scores, mask: 2 * masked_softmax(scores, mask), "none: a row that does not sum to 1"),
        (lambda scores, mask: masked_softmax(scores), "mask: a weight below 0, or at a hidden key"),
    ],
    ids=["twice", "no mask"],
)
def test_weights_that_are_no_shares_are_seen(softmax, seen):
    class NormalizesInAnotherWay(Own):
        normalize = staticmethod(softmax)

    assert examine(NormalizesInAnotherWay).seen["rows sum to 1"] == seen


def test_a_number_may_start_where_it_does_nothing():
    class StartsAtZero(Own):
        def __init__(self, num_heads, head_dim):
            super().__init__(num_heads, head_dim)
            nn.init.zeros_(self.scale)

    assert examine(StartsAtZero).holds


def test_it_tells_of_a_score_that_does_not_ask_the_query():
    assert "attention does not depend on the query" in examine(SeparableAdditiveScore).notes


def test_a_stub_is_not_attempted():
    class Stub(Own):
        def forward(self, query, key, **options):
            raise NotImplementedError

    class Torchs(Own):
        def forward(self, query, key, **options):
            raise NotImplementedError("'cdist' is not there for this device")

    verdict = examine(Stub)
    assert str(verdict) == "Stub: not attempted yet"
    assert not verdict.holds
    assert "'cdist' is not there" in examine(Torchs).seen["shape"]


def test_whatever_a_recipe_does_it_is_reported():
    assert "TypeError" in examine(int).seen["shape"]
    assert "NoneType" in examine(lambda num_heads, head_dim: None).seen["shape"]
    assert name_of(PreparedScore) == "PreparedScore"


def test_the_suite_leaves_the_random_numbers_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    examine(Own)
    torch.testing.assert_close(torch.rand(3), expected)
