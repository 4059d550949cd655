"""The character model: what it promises, with every score and every kind of positions."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sciformer import (
    POSITIONS,
    SCORES,
    CharTransformer,
    NoPositions,
    NormalizedScore,
    RotaryScore,
    SquaredReLU,
    TokenShift,
    rotate,
    sample,
)
from sciformer.data import shakespeare, text_batches
from sciformer.fast.cache import Cache
from sciformer.training import next_token_loss, text_loss

V, L, E, H = 13, 11, 12, 3
MODELS = {
    **{f"{score}, {positions}": {"score": SCORES[score], "positions": POSITIONS[positions]}
       for score in SCORES for positions in POSITIONS},
    **{f"{score}, rotary": {"score": partial(RotaryScore, score=SCORES[score]), "positions": NoPositions}
       for score in SCORES},
    "normalised, no tying": {"score": NormalizedScore, "tie_weights": False, "start": "identity"},
    "token shift": {"token_shift": 3, "norm": nn.RMSNorm, "activation": SquaredReLU},
}  # fmt: skip


def build(name="dot, learned", **changes):
    """A small model whose every number is away from where it starts."""
    torch.manual_seed(0)
    model = CharTransformer(V, L, E, H, 2, **(MODELS[name] | changes)).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return model


def text(batch=2, length=L, seed=0):
    return torch.randint(V, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("chunks", [[1] * L, [4, 1, 6], [L]], ids=["one by one", "in chunks", "at once"])
@pytest.mark.parametrize("name", MODELS)
def test_cache_gives_the_logits_of_the_whole_pass(name, chunks):
    model, tokens, cache = build(name), text(), Cache()
    parts = [model(chunk, cache=cache) for chunk in tokens.split(chunks, dim=1)]
    assert_close(torch.cat(parts, dim=1), model(tokens), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["dot, learned", "separable, learned", "token shift"])
def test_a_cache_goes_on_from_the_texts_that_are_kept(name):
    model, tokens, cache, rows = build(name), text(), Cache(), torch.tensor([1, 1, 0])
    model(tokens[:, :6], cache=cache)
    cache.keep(rows)
    assert_close(model(tokens[rows, 6:], cache=cache), model(tokens[rows])[:, 6:], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_no_logit_depends_on_what_comes_after(name):
    model, tokens = build(name), text()
    other = tokens.clone()
    other[:, 6:] = (tokens[:, 6:] + 1) % V
    before, after = model(tokens), model(other)
    assert_close(before[:, :6], after[:, :6], rtol=1e-12, atol=1e-12)
    assert (before[:, 6:] != after[:, 6:]).any(-1).all()


@pytest.mark.parametrize("name", MODELS)
def test_attention_weights_are_causal_rows(name):
    maps = build(name).attention_weights(text())
    assert [m.shape for m in maps] == [(2, H, L, L)] * 2
    assert all(not m.triu(1).any() for m in maps)
    assert_close(maps[0].sum(-1), torch.ones(2, H, L, dtype=torch.float64))


def test_parameters_at_nanogpts_two_sizes():
    sizes = [CharTransformer(65, 64, 128, 4, 4), CharTransformer(65, 256, 384, 6, 6)]
    assert [sum(p.numel() for p in model.parameters()) for model in sizes] == [804_096, 10_745_088]
    untied = CharTransformer(65, 64, 128, 4, 4, tie_weights=False)
    assert sum(p.numel() for p in untied.parameters()) == 804_096 + 65 * 128


def test_how_it_starts():
    torch.manual_seed(0)
    tokens = torch.randint(65, (4, 64))
    blank = CharTransformer(65, 64, 128, 4, 4, tie_weights=False, start="identity")
    assert_close(blank(tokens), torch.zeros(4, 64, 65))
    biases = [p for name, p in CharTransformer(65, 64, 128, 4, 4, bias=True).named_parameters() if "proj.bias" in name]
    assert len(biases) == 4 * 4
    assert not any(bias.any() for bias in biases)
    with_bias = CharTransformer(65, 64, 128, 4, 4, bias=True, start="identity")
    x = torch.randn(2, 8, 128)
    for block in with_bias.blocks:
        assert_close(block(x, is_causal=True)[0], x, rtol=0, atol=0)
    small = CharTransformer(65, 64, 128, 4, 4)
    assert next_token_loss(small(tokens), tokens.roll(1)).item() == pytest.approx(math.log(65), abs=0.1)
    assert small.blocks[2].attention.q_proj.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert small.blocks[2].feed_forward.down.weight.std().item() == pytest.approx(0.02 / 8**0.5, rel=0.05)
    with pytest.raises(ValueError, match="got 'large'"):
        CharTransformer(65, 64, 128, 4, 4, start="large")


def test_the_model_hands_its_options_to_the_blocks():
    options = {"activation": SquaredReLU, "norm": nn.RMSNorm, "dropout": 0.25, "token_shift": 3}
    model = CharTransformer(V, L, E, H, 2, expansion=2, **options)
    for block in model.blocks:
        assert isinstance(block.feed_forward.activation, SquaredReLU)
        assert isinstance(block.attention_norm, nn.RMSNorm)
        assert (block.attention.dropout, block.dropout.p) == (0.25, 0.25)
        assert block.attention_shift.weight.shape == (3, E)
        assert block.feed_forward.up.out_features == 2 * E
    assert isinstance(model.norm, nn.RMSNorm)


def test_embedded_tokens_are_dropped_in_training():
    model = build(dropout=0.5).train()
    model.blocks.eval()
    assert not torch.equal(model(text()), model(text()))


@pytest.mark.parametrize("lengths", [[3], [2, 1], [1, 1, 1]], ids=str)
def test_token_shift_by_hand(lengths):
    shift, before = TokenShift(2), TokenShift(2, reach=2)
    x = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])
    assert_close(shift(x), x)
    with torch.no_grad():
        shift.weight.copy_(torch.tensor([[0.5, -1.0]]))
        before.weight.copy_(torch.tensor([[0.5, -1.0], [10.0, 100.0]]))
    expected = torch.tensor([[[1.0, 2.0], [3.5, 2.0], [6.5, 2.0]]])
    for module, answer in ((shift, expected), (before, expected + torch.tensor([[0, 0], [0, 0], [10.0, 200.0]]))):
        cache = Cache()
        assert_close(module(x), answer)
        assert_close(torch.cat([module(chunk, cache=cache) for chunk in x.split(lengths, dim=1)], dim=1), answer)
    assert SquaredReLU()(torch.tensor([-2.0, 0.0, 3.0])).tolist() == [0.0, 0.0, 9.0]
    with pytest.raises(ValueError, match="reach must be at least 1, got 0"):
        TokenShift(2, 0)


def test_rotary_scores_depend_on_the_way_between_tokens_only():
    """Moved along together, queries and keys keep their scores; moved apart, they do not."""
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 2, 5, 8, dtype=torch.float64)
    ways = ((0, 0), (100, 100), (100, 103))
    here, there, apart = (rotate(query, offset=a) @ rotate(key, offset=b).mT for a, b in ways)
    assert_close(here, there)
    assert not torch.allclose(here, apart)
    quarter = rotate(torch.tensor([[1.0, 0.0]]), offset=1)  # one pair, one radian per position
    assert_close(quarter, torch.tensor([[math.cos(1.0), math.sin(1.0)]]))
    with pytest.raises(ValueError, match="odd head_dim 5"):
        rotate(torch.zeros(3, 5))


def test_rotation_turns_each_pair_at_its_own_pace():
    x = torch.randn(2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    turned = torch.empty_like(x)
    for t in range(5):
        for m in range(4):
            angle = (3 + t) * 10_000 ** (-2 * m / 8)
            first, second = x[:, t, m], x[:, t, m + 4]
            turned[:, t, m] = first * math.cos(angle) - second * math.sin(angle)
            turned[:, t, m + 4] = first * math.sin(angle) + second * math.cos(angle)
    assert_close(rotate(x, offset=3), turned)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rotation_in_half_precision_knows_its_place(dtype):
    """Position 4,097 is the same number as 4,096 in either."""
    x = torch.ones(1, 2)
    assert_close(rotate(x.to(dtype), offset=4097), rotate(x, offset=4097).to(dtype))


def test_greedy_generation_follows_the_whole_pass():
    model, tokens = build(), text(length=3)
    expected = tokens
    for _ in range(L - 3):
        expected = torch.cat((expected, model(expected)[:, -1:].argmax(-1)), dim=1)
    for options in ({"temperature": 0}, {"top_k": 1}, {"temperature": 1e-40}):
        assert torch.equal(model.generate(tokens, L - 3, **options), expected)


def test_generation_goes_on_past_the_window():
    """After the window is full, the newer half is read again; a prompt that is too long is seen from its end."""
    model, tokens = build(), text(length=L)
    longer = model.generate(tokens, 1, temperature=0)
    assert torch.equal(longer[:, -1], model(tokens)[:, -1].argmax(-1))
    again = model.generate(tokens, 2, temperature=0)[:, -1]
    assert torch.equal(again, model(longer[:, -(L // 2) :])[:, -1].argmax(-1))
    cut = model.generate(torch.cat((text(seed=1), tokens), dim=1), 1, temperature=0)
    assert cut.shape == (2, 2 * L + 1)
    assert torch.equal(cut[:, -1], longer[:, -1])
    assert model.generate(tokens, 5 * L).shape == (2, 6 * L)
    assert CharTransformer(V, 1, E, H, 1).generate(tokens[:, :1], 3).shape == (2, 4)  # half of 1 is none


def test_generation_is_repeatable_and_leaves_the_mode_alone():
    model = build(dropout=0.5).train()
    first, second = (model.generate(text(), 5, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)
    assert model.training


def test_sampling_draws_what_it_says():
    logits = torch.tensor([[0.0, math.log(2), math.log(5)]]).expand(40_000, 3)
    generator = torch.Generator().manual_seed(0)

    def shares(**options):
        return torch.bincount(sample(logits, generator=generator, **options), minlength=3) / len(logits)

    for options, expected in [
        ({}, [1 / 8, 2 / 8, 5 / 8]),
        ({"temperature": 0.5}, [1 / 30, 4 / 30, 25 / 30]),
        ({"top_k": 2}, [0, 2 / 7, 5 / 7]),
        ({"top_k": 99}, [1 / 8, 2 / 8, 5 / 8]),
        ({"temperature": 0}, [0, 0, 1]),
    ]:
        assert_close(shares(**options), torch.tensor(expected).float(), atol=0.01, rtol=0)
    assert sample(torch.tensor([[1.0, 3.0, 2.0]]), temperature=1e-40).tolist() == [1]  # 3e40 is past float32's range
    assert sample(torch.zeros(1000, 3), top_k=2).unique().numel() == 2  # no more, though the third is as likely


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.5}, "temperature .* got -0.5"),
        ({"temperature": math.nan}, "temperature .* got nan"),
        ({"temperature": math.inf}, "temperature .* got inf"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
    ],
)
def test_sampling_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        sample(torch.zeros(1, 3), **options)
    with pytest.raises(ValueError, match=message):
        build().generate(text(), 1, **options)


def test_the_model_refuses_what_it_cannot_read():
    model = build()
    with pytest.raises(ValueError, match="look at 11 tokens, got 12"):
        model(text(length=L + 1))
    cache = Cache()
    model(text(length=8), cache=cache)
    with pytest.raises(ValueError, match="look at 11 tokens, got 12"):
        model(text(length=4), cache=cache)
    for bad in (torch.zeros(2, 0, dtype=torch.int64), torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"must be .* integers"):
            model(bad)
        with pytest.raises(ValueError, match=r"prompt must be .* integers"):
            model.generate(bad, 1)
    for strange in (V, -1):
        with pytest.raises(ValueError, match=rf"prompt has token {strange}, .* 0\.\.12"):
            model.generate(torch.tensor([[1, strange]]), 1)
    with pytest.raises(ValueError, match="count must be at least 0, got -1"):
        model.generate(text(), -1)
    with pytest.raises(ValueError, match="num_layers must be at least 1, got 0"):
        CharTransformer(V, L, E, H, 0)


def test_attention_refuses_a_cache_beside_what_it_cannot_serve():
    layer = build().blocks[0].attention
    x = torch.zeros(1, 3, E, dtype=torch.float64)
    for options in ({"attn_mask": torch.ones(3, 3, dtype=torch.bool)}, {"value": x.clone()}, {"need_weights": True}):
        with pytest.raises(ValueError, match="with a cache self-attention is causal"):
            layer(x, cache=Cache(), **options)
    cache = Cache()
    layer(x, x.clone(), cache=cache)
    with pytest.raises(ValueError, match="the cache belongs to a source of 3 tokens, got 2"):
        layer(x, x[:, :2], cache=cache)


def test_text_batches_read_every_token_before_any_twice():
    tokens = torch.arange(1000)
    stream = text_batches(tokens, 7, batch_size=3, seed=0)
    inputs, targets = zip(*(next(stream) for _ in range(141 // 3)), strict=True)
    assert all(torch.equal(t, i + 1) for i, t in zip(inputs, targets, strict=True))
    seen = torch.cat(inputs).flatten()
    assert len(seen) == len(seen.unique()) == 141 * 7
    starts = torch.cat(inputs)[:, 0].double()  # of the chunks, which come in no order
    assert torch.corrcoef(torch.stack((starts, torch.arange(141.0).double())))[0, 1].abs() < 0.3
    first = next(text_batches(tokens, 7, batch_size=3, seed=0))[0]
    assert torch.equal(first, inputs[0])
    assert not torch.equal(first, next(text_batches(tokens, 7, batch_size=3, seed=1))[0])
    with pytest.raises(ValueError, match="3 chunks of 7 tokens need a text of 28 or more, got 27 tokens"):
        text_batches(tokens[:27], 7, batch_size=3, seed=0)
    shortest = [next(text_batches(tokens[:28], 7, batch_size=3, seed=seed))[0] for seed in range(50)]
    assert {chunks.shape for chunks in shortest} == {(3, 7)}
    assert {int(chunks[0, 0]) % 7 for chunks in shortest} == set(range(7))  # the first chunk may start at any of 7
    with pytest.raises(ValueError, match="got 0 tokens"):
        text_batches(tokens[:0], 7, batch_size=3, seed=0)


class Bigrams(nn.Module):
    """Logits that depend on the token alone."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(V, V, generator=torch.Generator().manual_seed(0)))

    def forward(self, tokens):
        return self.table[tokens]


@pytest.mark.parametrize("length", [1, 4, 7, 200])
def test_text_loss_counts_every_token_but_the_first_once(length):
    tokens = text(1, 60)[0]
    model = Bigrams()
    expected = -model.table.log_softmax(-1)[tokens[:-1], tokens[1:]].mean().item()
    assert text_loss(model, tokens, length, batch_size=3) == pytest.approx(expected, rel=1e-6)


def test_text_loss_refuses_a_text_without_a_second_token():
    for tokens, length in ((torch.tensor([1]), 4), (torch.tensor([1, 2]), 0)):
        with pytest.raises(ValueError, match="need 2 tokens or more"):
            text_loss(Bigrams(), tokens, length)


def test_an_empty_text_and_a_strange_character():
    _, vocabulary = shakespeare()
    assert vocabulary.encode("").shape == (0,)
    with pytest.raises(ValueError, match="character '€' at position 2"):
        vocabulary.encode("ab€")


@pytest.mark.parametrize("strange", [V, -1, 10**6])
def test_a_token_that_the_model_does_not_know_is_named(strange):
    model, tokens = build(), text(length=3)
    tokens[1, 2] = strange
    for read in (model, model.attention_weights, lambda tokens: model(tokens, cache=Cache())):
        with pytest.raises(ValueError, match=rf"text has token {strange}, and the model knows 0\.\.{V - 1}"):
            read(tokens)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int16, torch.complex64], ids=str)
def test_tokens_are_int64_or_int32(dtype):
    with pytest.raises(ValueError, match=f"int64 or int32, with a length of 1 or more, got {dtype}"):
        build()(text(length=3).to(dtype))
    assert_close(build()(text(length=3).int()), build()(text(length=3)))
