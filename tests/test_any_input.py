"""Inputs that nobody thought of: attention agrees with the readable form in float64, or says what is wrong.

The examples are the same in every run. SCIFORMER_EXAMPLES=100000 tries as many, others each time.
"""

import math
import os
import re
from dataclasses import dataclass
from unittest import mock

import hypothesis.strategies as st
import jaxtyping
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from scoring import RECIPES

from sciformer import (
    POSITIONS,
    CharTransformer,
    FeedForward,
    ImageTransformer,
    MaskedImageModel,
    MultiHeadAttention,
    TokenShift,
    Transformer,
    TransformerBlock,
    attend,
    causal_mask,
    masked_softmax,
    naive_attention,
    padding_mask,
    random_visible,
    rotate,
    sample,
)
from sciformer.fast import BLOCK_NUMBERS, attention
from sciformer.functional import InputError
from sciformer.scores import SCORES, DistanceBiasedScore
from sciformer.training import TrainConfig

EXAMPLES = int(os.environ.get("SCIFORMER_EXAMPLES", 10_500))
COUNTED = {"served": 0, "refused": 0}


@pytest.fixture(autouse=True, scope="module")
def refused_by_the_package_itself():
    """The type checker would refuse before, and take half of the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def examples(share):
    """So many of all examples, reproducible unless somebody asks for another number."""
    return settings(
        max_examples=round(share * EXAMPLES),
        derandomize="SCIFORMER_EXAMPLES" not in os.environ,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


#: Memory layouts of one tensor; the last one repeats its first token.
LAYOUTS = {
    "contiguous": lambda x: x,
    "heads beside each other": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "feature by feature": lambda x: x.mT.contiguous().mT,
    "every other number": lambda x: torch.stack((x, x.flip(-1)), dim=-1)[..., 0],
    "a part of more": lambda x: torch.cat((x, x, x), dim=-2)[..., x.shape[-2] : 2 * x.shape[-2], :],
    "one token again and again": lambda x: x[..., :1, :].expand_as(x),
}
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@dataclass(frozen=True)
class Call:
    """A call of attention, in numbers."""

    recipe: str
    sizes: tuple[int, int, int, int, int]  # B, H, L, S, D
    dtype: torch.dtype
    is_causal: bool
    mask: tuple[int, ...] | None
    allowed: float
    layouts: tuple[str, str, str]
    size: float
    in_a_block: int
    seed: int

    def made(self):
        """The score, the inputs, and the options."""
        torch.manual_seed(self.seed)
        (B, H, L, S, D), score = self.sizes, RECIPES[self.recipe](self.sizes[1], self.sizes[-1])
        with torch.no_grad():
            for p in score.parameters():
                p.add_(0.3 * torch.rand_like(p))
        inputs = [(self.size * torch.randn(B, H, n, D)).to(self.dtype) for n in (L, S, S)]
        inputs = [LAYOUTS[layout](x) for layout, x in zip(self.layouts, inputs, strict=True)]
        mask = None if self.mask is None else torch.rand(self.mask) < self.allowed
        return score.to(self.dtype), inputs, {"attn_mask": mask, "is_causal": self.is_causal}


@st.composite
def calls(draw, least=0):
    """Any call that is to be served; ``least`` is the smallest size."""
    recipe, is_causal = draw(st.sampled_from(sorted(RECIPES))), draw(st.booleans())
    B, S = draw(st.integers(least, 3)), draw(st.integers(least, 9))
    L = draw(st.integers(least, S if is_causal or "distance" in recipe else 9))  # some want a key for each query
    H, D = draw(st.integers(1, 3)), draw(st.integers(1, 4)) * (2 if "rotary" in recipe else 1)
    mask = None
    if draw(st.booleans()):
        mask = tuple(n if draw(st.booleans()) else 1 for n in (B, H, L, S)[draw(st.integers(0, 3)) :])
    return Call(
        recipe,
        (B, H, L, S, D),
        draw(st.sampled_from(DTYPES)),
        is_causal,
        mask,
        draw(st.sampled_from([0.2, 0.5, 0.9])),
        tuple(draw(st.sampled_from(sorted(LAYOUTS))) for _ in range(3)),
        draw(st.sampled_from([0.1, 1.0, 3.0])),
        draw(st.sampled_from([1, 20, BLOCK_NUMBERS["cpu"]])),
        draw(st.integers(0, 2**20)),
    )


def results(score, inputs, options, *, dtype, need_weights=False):
    """Output and gradients of all that learns, in float64."""
    score, inputs = score.to(dtype), [x.to(dtype).detach().requires_grad_() for x in inputs]
    output, _ = attention(score, *inputs, **options, need_weights=need_weights)
    assert output.dtype == dtype
    probe = torch.linspace(-1, 1, output.numel(), dtype=dtype).view_as(output)
    gradients = torch.autograd.grad((output * probe).sum(), [*inputs, *score.parameters()], allow_unused=True)
    return [torch.zeros(()).double() if x is None else x.detach().double() for x in (output, *gradients)]


@examples(0.35)
@given(calls())
def test_attention_agrees_with_the_readable_form_in_float64(call):
    """In float64 to many digits; with fewer bits it is as exact as the readable form is with them, or nearly so."""
    (score, inputs, options), dtype = call.made(), call.dtype
    with mock.patch.dict(BLOCK_NUMBERS, cpu=call.in_a_block):
        fast = results(score, inputs, options, dtype=dtype)
    plain = results(score, inputs, options, dtype=dtype, need_weights=True)
    exact = results(score, inputs, options, dtype=torch.float64, need_weights=True)
    for ours, readable, wanted in zip(fast, plain, exact, strict=True):
        assert ours.shape == wanted.shape or not wanted.any()
        if wanted.numel():
            rounding = 64 * torch.finfo(dtype).eps * (1 + wanted.abs().max())
            assert (ours - wanted).abs().max() <= rounding + 4 * (readable - wanted).abs().max()
    COUNTED["served"] += 1


def changed(inputs, which, change):
    return [change(x) if n in which else x for n, x in enumerate(inputs)]


def wider(x, dim):
    return torch.cat((x, x.narrow(dim, 0, 1)), dim=dim)


#: What no attention can serve: from inputs, options and a small number, what replaces them.
MISTAKES = {
    "a mask of numbers": lambda x, o, n: (
        x,
        o | {"attn_mask": torch.ones(x[0].shape[2], x[1].shape[2], dtype=DTYPES[n]) if n else torch.ones(1).long()},
    ),
    "a mask of other keys": lambda x, o, n: (x, o | {"attn_mask": torch.ones(x[1].shape[2] + 2 + n) > 0}),
    "a mask of another batch": lambda x, o, n: (x, o | {"attn_mask": torch.ones(len(x[0]) + 2 + n, 1, 1, 1) > 0}),
    "a mask of five dimensions": lambda x, o, n: (x, o | {"attn_mask": torch.ones(1, 1, 1, 1, 1) > 0}),
    "a mask elsewhere": lambda x, o, n: (x, o | {"attn_mask": torch.ones(1, 1, device="meta") > 0}),
    "two dtypes": lambda x, o, n: (
        changed(x, [n % 3], lambda y: y.to(torch.float32 if y.dtype == torch.float64 else torch.float64)),
        o,
    ),
    "whole numbers": lambda x, o, n: (changed(x, [0, 1, 2], lambda y: y.long()), o),
    "two devices": lambda x, o, n: (changed(x, [n % 3], lambda y: y.to("meta")), o),
    "another batch": lambda x, o, n: (changed(x, [n % 3], lambda y: wider(y, 0)), o),
    "other heads": lambda x, o, n: (changed(x, [n % 3] if n else [0, 1, 2], lambda y: wider(y, 1)), o),
    "another head_dim": lambda x, o, n: (changed(x, [[0], [1], [0, 1], [0, 1, 2]][n], lambda y: wider(y, 3)), o),
    "more values than keys": lambda x, o, n: (changed(x, [1 + n % 2], lambda y: wider(y, 2)), o),
    "three dimensions": lambda x, o, n: (changed(x, [n] if n < 3 else [0, 1, 2], lambda y: y[0]), o),
    "no probability": lambda x, o, n: (x, o | {"dropout_p": [math.nan, -0.1, 1.1, math.inf][n]}),
    "causal, and more queries than keys": lambda x, o, n: (
        [torch.cat([x[0]] * (2 + x[1].shape[2]), dim=2), *x[1:]],
        {"is_causal": True},
    ),
}


@examples(0.25)
@given(calls(least=1), st.sampled_from(sorted(MISTAKES)), st.integers(0, 3), st.booleans())
def test_what_attention_cannot_serve_it_refuses_in_its_own_words(call, mistake, number, need_weights):
    score, inputs, options = call.made()
    inputs, options = MISTAKES[mistake](inputs, options, number)
    reason = r"got|is on|does not broadcast|must share|but key"
    with mock.patch.dict(BLOCK_NUMBERS, cpu=call.in_a_block), pytest.raises(InputError, match=reason):
        attention(score, *inputs, **options, need_weights=need_weights)
    COUNTED["refused"] += 1


SIZES = st.sampled_from([-2, -1, 0, 1, 2, 3, 4, 6])
PROBABILITIES = st.sampled_from([0.0, 0.5, 1.0, -0.1, 1.5, math.nan, math.inf])


def tokens(draw, vocab, batch=2):
    dtype = draw(st.sampled_from([torch.int64, torch.int32, torch.uint8, torch.float32, torch.bool]))
    least = draw(st.sampled_from([0, 0, 0, -1]))
    return torch.randint(least, max(1, vocab) + draw(st.sampled_from([0, 0, 0, 1])), (batch, abs(draw(SIZES)))).to(
        dtype
    )


def positions(draw):
    E, length = draw(SIZES), draw(SIZES)
    x = torch.randn(2, max(0, draw(SIZES)), max(0, E))
    return POSITIONS[draw(st.sampled_from(["learned", "sinusoidal"]))](E, length)(x, offset=draw(SIZES))


def multi_head(draw):
    E, H = draw(SIZES), draw(SIZES)
    layer = MultiHeadAttention(E, H, score=SCORES[draw(st.sampled_from(sorted(SCORES)))], dropout=draw(PROBABILITIES))
    query, key = (torch.randn(draw(st.integers(0, 2)), draw(st.integers(0, 4)), E) for _ in range(2))
    mask = torch.rand([[4], [4, 4], [2, 4, 4], [2, 1, 1, 4], [1, 1]][draw(st.integers(0, 4))]) < 0.5
    options = {"attn_mask": mask if draw(st.booleans()) else None, "is_causal": draw(st.booleans())}
    return layer(query, key if draw(st.booleans()) else None, **options, need_weights=draw(st.booleans()))[0]


def block(draw):
    E, H, shift = draw(SIZES), draw(SIZES), draw(SIZES)
    layer = TransformerBlock(E, H, expansion=draw(SIZES), dropout=draw(PROBABILITIES), token_shift=shift)
    return layer(torch.randn(draw(st.integers(0, 2)), draw(st.integers(0, 4)), E), is_causal=True)[0]


def characters(draw):
    vocab = draw(SIZES)
    return CharTransformer(vocab, draw(SIZES), draw(SIZES), draw(SIZES), draw(SIZES))(tokens(draw, vocab))


def images(draw):
    model = ImageTransformer(*(draw(SIZES) for _ in range(7)), num_queries=draw(SIZES))
    return model(torch.randn(draw(st.integers(0, 2)), *(draw(st.integers(0, 6)) for _ in range(3))))


def masked_images(draw):
    size, layers = draw(SIZES), draw(SIZES)
    model = MaskedImageModel(size, 2, 1, draw(SIZES), 1, layers, decoder_dim=draw(SIZES), decoder_layers=draw(SIZES))
    return model(torch.randn(2, 1, size, size), random_visible(draw(st.integers(-1, 3)), model.num_tokens))


def translation(draw):
    vocab = draw(SIZES)
    model = Transformer(vocab, draw(SIZES), draw(SIZES), draw(SIZES), draw(SIZES), draw(SIZES))
    return model(tokens(draw, vocab, draw(st.integers(1, 2))), tokens(draw, 3))


def scores_and_values(draw):
    shapes = [[draw(st.integers(0, 3)) for _ in range(draw(st.integers(1, 4)))] for _ in range(2)]
    return attend(*(torch.randn(shape) for shape in shapes), dropout_p=draw(PROBABILITIES))[0]


def masked(draw):
    shapes = [[draw(st.integers(0, 3)) for _ in range(draw(st.integers(1, 4)))] for _ in range(2)]
    dtype, device = draw(st.sampled_from([torch.bool, torch.float32])), draw(st.sampled_from(["cpu", "cpu", "meta"]))
    scores = torch.randn(shapes[0]).to(draw(st.sampled_from([torch.float32, torch.int64])))
    return masked_softmax(scores, torch.ones(shapes[1], dtype=dtype, device=device))


def turned(draw):
    x = torch.randn([draw(st.integers(0, 4)) for _ in range(draw(st.integers(1, 4)))])
    return rotate(x.to(draw(st.sampled_from([torch.float32, torch.int64, torch.bool]))), offset=draw(SIZES))


def configured(draw):
    numbers = st.sampled_from([-1, 0, 1, 3, 1.5, math.nan, math.inf])
    config = TrainConfig(
        steps=draw(numbers),
        lr=draw(numbers),
        warmup_steps=draw(numbers),
        grad_clip=draw(numbers),
        weight_decay=draw(numbers),
    )
    return torch.tensor([config.lr_at(step) for step in range(config.steps)])


#: Public calls of which every number may be out of range; each returns a tensor.
PUBLIC = {
    "naive_attention": lambda draw: naive_attention(
        torch.randn([draw(st.integers(0, 3)) for _ in range(draw(st.integers(1, 4)))])
    )[0],
    "causal_mask": lambda draw: causal_mask(draw(SIZES), draw(SIZES)),
    "padding_mask": lambda draw: padding_mask([draw(SIZES), draw(SIZES)], draw(SIZES)),
    "masked_softmax": masked,
    "attend": scores_and_values,
    "rotate": turned,
    "a distance's width": lambda draw: DistanceBiasedScore(draw(SIZES), draw(SIZES), width=draw(SIZES)).strength,
    "a score": lambda draw: SCORES[draw(st.sampled_from(sorted(SCORES)))](draw(SIZES), draw(SIZES))(
        *torch.randn(2, 1, draw(st.integers(1, 3)), 4, draw(st.integers(1, 4)))
    ),
    "positions": positions,
    "MultiHeadAttention": multi_head,
    "FeedForward": lambda draw: FeedForward(n := draw(SIZES), draw(SIZES), dropout=draw(PROBABILITIES))(
        torch.randn(2, 3, n)
    ),
    "TokenShift": lambda draw: TokenShift(draw(SIZES), draw(SIZES))(torch.randn(2, 3, draw(st.integers(0, 4)))),
    "TransformerBlock": block,
    "CharTransformer": characters,
    "ImageTransformer": images,
    "MaskedImageModel": masked_images,
    "Transformer": translation,
    "sample": lambda draw: sample(
        torch.randn(2, draw(st.integers(1, 4))),
        temperature=draw(st.sampled_from([0.0, 1e-30, 1.0, -1.0, math.nan, math.inf])),
        top_k=draw(SIZES),
    ),
    "TrainConfig": configured,
}


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@examples(0.4)
@given(st.sampled_from(sorted(PUBLIC)), st.data())
def test_every_public_call_gives_finite_numbers_or_says_what_is_wrong(name, data):
    try:
        made = PUBLIC[name](data.draw)
        assert made.isfinite().all()
        COUNTED["served"] += 1
    except InputError as refused:
        COUNTED["refused"] += 1
        if not re.search(r"\d|nan|inf|meta", str(refused)):
            raise


def test_how_many_examples(capsys):
    with capsys.disabled():
        print(f"\n{COUNTED['served']:,} inputs were served and {COUNTED['refused']:,} refused")
    assert sum(COUNTED.values()) == 0 or min(COUNTED.values()) > EXAMPLES / 5
