"""The encoder–decoder: against torch's own, with every score in each of its three attentions, and how it writes."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from sciformer import (
    POSITIONS,
    SCORES,
    DecoderBlock,
    DistanceBiasedScore,
    MultiHeadAttention,
    NoPositions,
    NormalizedScore,
    RotaryScore,
    SeparableAdditiveScore,
    SinusoidalPositions,
    Transformer,
    TransformerBlock,
    causal_mask,
    padding_mask,
)
from sciformer.fast.cache import Cache

B, S, L, E, H = 3, 7, 5, 12, 3
SOURCE_VOCAB, TARGET_VOCAB, MAX_LENGTH = 13, 11, 8
EXACTLY = {"rtol": 1e-12, "atol": 1e-12}
NORMS = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
MODELS = {
    **{f"{positions}, {order}": {"positions": POSITIONS[positions], "norm_first": order == "pre-norm"}
       for positions in POSITIONS for order in ("post-norm", "pre-norm")},
    **{f"{score} in {argument}": {argument: SCORES[score]}
       for score in SCORES for argument in ("encoder_score", "decoder_score", "cross_score")
       if (score, argument) != ("distance", "cross_score")},
    "rotary": {"encoder_score": RotaryScore, "decoder_score": RotaryScore, "positions": NoPositions},
}  # fmt: skip


def shaken(module):
    """In float64 and not training, with every number away from where it starts."""
    module = module.double().eval()
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return module


def build(**options):
    torch.manual_seed(0)
    return shaken(Transformer(SOURCE_VOCAB, TARGET_VOCAB, MAX_LENGTH, E, H, 2, **options))


def pair(seed=0, real=(S, 4, 1), length=L):
    """Sources of 7, 4 and 1 tokens, and targets."""
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(3, SOURCE_VOCAB, (len(real), S), generator=generator)
    source = source * (torch.arange(S) < torch.tensor(real)[:, None])
    target = torch.randint(3, TARGET_VOCAB, (len(real), length), generator=generator)
    target[:, 0] = 1
    return source, target


# ---------------------------------------------------------------------------------------------------------------------
# Against torch's own layers
# ---------------------------------------------------------------------------------------------------------------------


def copy_attention(torchs, ours):
    projections = ours.q_proj, ours.k_proj, ours.v_proj
    torchs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
    torchs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
    torchs.out_proj.load_state_dict(ours.out_proj.state_dict())


@torch.no_grad()
def copy_block(torchs, ours):
    """Our weights into torch's encoder or decoder layer."""
    parts = [(torchs.linear1, ours.feed_forward.up), (torchs.linear2, ours.feed_forward.down)]
    norms = [ours.attention_norm, ours.feed_forward_norm]
    copy_attention(torchs.self_attn, ours.attention)
    if isinstance(ours, DecoderBlock):
        copy_attention(torchs.multihead_attn, ours.cross_attention)
        norms.insert(1, ours.cross_attention_norm)
    parts += [(getattr(torchs, f"norm{n}"), norm) for n, norm in enumerate(norms, start=1)]
    for target, source in parts:
        target.load_state_dict(source.state_dict())


def assert_same_with_gradients(output, expected, *inputs):
    assert_close(output, expected, **EXACTLY)
    probe = torch.randn_like(output)
    for x in inputs:
        gradients = [torch.autograd.grad((y * probe).sum(), x, retain_graph=True)[0] for y in (output, expected)]
        assert_close(*gradients, **EXACTLY)


def layers(ours_class, torchs_class, norm_first, activation=nn.ReLU):
    torch.manual_seed(0)
    ours = shaken(ours_class(E, H, expansion=2.5, norm_first=norm_first, activation=activation))
    options = {"activation": activation.__name__.lower(), "batch_first": True, "norm_first": norm_first}
    torchs = torchs_class(E, H, 30, 0.0, **options).double()
    copy_block(torchs, ours)
    return ours, torchs


@NORMS
@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU])
def test_decoder_block_parity_with_torch(norm_first, activation):
    """With padding in the source; torch's masks are the other way round: True hides."""
    ours, torchs = layers(DecoderBlock, nn.TransformerDecoderLayer, norm_first, activation)
    x, source = (torch.randn(B, n, E, dtype=torch.float64, requires_grad=True) for n in (L, S))
    mask = padding_mask([S, 4, 1], S)
    output, weights, cross_weights = ours(x, source, source_mask=mask)
    assert weights is None
    assert cross_weights is None
    expected = torchs(x, source, ~causal_mask(L), memory_key_padding_mask=~mask[:, 0, 0])
    assert_same_with_gradients(output, expected, x, source)
    seen, weights, cross_weights = ours(x, source, source_mask=mask, need_weights=True)
    assert_close(seen, output, **EXACTLY)
    assert weights.shape == (B, H, L, L)
    assert not weights.triu(1).any()
    assert cross_weights.shape == (B, H, L, S)
    assert not cross_weights.masked_select(~mask).any()


@NORMS
def test_encoder_block_parity_with_torch_under_padding(norm_first):
    ours, torchs = layers(TransformerBlock, nn.TransformerEncoderLayer, norm_first)
    x, mask = torch.randn(B, S, E, dtype=torch.float64, requires_grad=True), padding_mask([S, 4, 1], S)
    assert_same_with_gradients(ours(x, attn_mask=mask)[0], torchs(x, src_key_padding_mask=~mask[:, 0, 0]), x)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@NORMS
def test_transformer_parity_with_torch(norm_first):
    """Padding in source and target. torch puts a last norm on both ends in post-norm too, where 2017 has none."""
    ours = build(norm_first=norm_first, expansion=2.5)
    torchs = nn.Transformer(
        E, H, 2, 2, 30, 0.0, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )  # fmt: skip
    for end in ("encoder", "decoder"):
        stack = getattr(torchs, end)
        for theirs, block in zip(stack.layers, getattr(ours, end), strict=True):
            copy_block(theirs, block)
        last = getattr(ours, f"{end}_norm")
        if norm_first:
            stack.norm.load_state_dict(last.state_dict())
        else:
            stack.norm = None
    source, target = pair()
    target[1, 3:] = 0
    positions = SinusoidalPositions(E, MAX_LENGTH).double()
    embedded = (
        positions(E**0.5 * table.weight[tokens])
        for table, tokens in ((ours.source_embedding, source), (ours.target_embedding, target))
    )
    torchs.eval()
    hidden = torchs(
        *embedded,
        tgt_mask=~causal_mask(L),
        src_key_padding_mask=source == 0,
        tgt_key_padding_mask=target == 0,
        memory_key_padding_mask=source == 0,
    )
    expected = hidden @ ours.target_embedding.weight.T
    real = target != 0
    assert_close(ours(source, target)[real], expected[real], **EXACTLY)


def test_parameter_count_is_pinned():
    """Two embeddings, no read-out of its own; a decoder block has a second attention and a third norm."""
    attention, feed_forward, norm = 4 * (64 * 64 + 64), (64 * 128 + 128) + (128 * 64 + 64), 2 * 64
    blocks = 2 * (attention + feed_forward + 2 * norm) + 2 * (2 * attention + feed_forward + 3 * norm)
    count = {
        first: sum(p.numel() for p in Transformer(30, 20, 50, 64, 4, 2, expansion=2, norm_first=first).parameters())
        for first in (False, True)
    }
    assert count == {False: 50 * 64 + blocks, True: 50 * 64 + blocks + 2 * norm}


def test_how_it_starts():
    torch.manual_seed(0)
    model = Transformer(500, 500, 8, 64, 4, 1, dropout=0.5)
    assert model.read_out.weight is model.target_embedding.weight
    for embedding in (model.source_embedding, model.target_embedding):
        assert embedding.weight.norm(dim=1).mean().item() == pytest.approx(1, rel=0.02)
    source = torch.arange(3, 11)[None]
    assert not torch.equal(model(source, source[:, :1] * 0 + 1), model(source, source[:, :1] * 0 + 1))
    model.eval()
    assert_close(model(source, source[:, :1] * 0 + 1), model(source, source[:, :1] * 0 + 1))


def test_embedded_tokens_are_dropped_in_training_and_blocks_drop_as_much():
    model, (source, target) = build(dropout=0.5).train(), pair()
    assert [block.dropout.p for block in (*model.encoder, *model.decoder)] == [0.5] * 4
    model.encoder.eval()
    model.decoder.eval()
    encoded, mask = model.encode(source)
    assert not torch.equal(encoded, model.encode(source)[0])
    assert not torch.equal(model.decode(target, encoded, mask), model.decode(target, encoded, mask))


# ---------------------------------------------------------------------------------------------------------------------
# Any score in each of the three attentions
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_padding_does_not_matter(name):
    """Neither how much of it there is, nor in whose company a source is read."""
    model, (source, target) = build(**MODELS[name]), pair()
    logits = model(source, target)
    for row, length in enumerate((S, 4, 1)):
        alone = model(source[row : row + 1, :length], target[row : row + 1])
        assert_close(logits[row : row + 1], alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_the_source_matters_and_the_future_does_not(name):
    model, (source, target) = build(**MODELS[name]), pair()
    before = model(source, target)
    other = source.clone()
    other[:, 0] = 3 + (source[:, 0] - 2) % (SOURCE_VOCAB - 3)
    assert (model(other, target) - before).abs().amax(-1).min() > 1e-6  # at every position of every target
    later = target.clone()
    later[:, 3:] = 3 + (target[:, 3:] - 2) % (TARGET_VOCAB - 3)
    after = model(source, later)
    assert_close(before[:, :3], after[:, :3], rtol=1e-10, atol=1e-10)
    assert (before[:, 3:] != after[:, 3:]).any(-1).all()


@pytest.mark.parametrize("chunks", [[1] * L, [2, 1, 2], [L]], ids=["one by one", "in chunks", "at once"])
@pytest.mark.parametrize("name", MODELS)
def test_cache_gives_the_logits_of_the_whole_pass(name, chunks):
    model, (source, target) = build(**MODELS[name]), pair()
    encoded, cache = model.encode(source), Cache()
    parts = [model.decode(chunk, *encoded, cache=cache) for chunk in target.split(chunks, dim=1)]
    assert_close(torch.cat(parts, dim=1), model(source, target), **EXACTLY)


def test_cache_projects_the_source_once():
    model, (source, target) = build(), pair()
    calls = []
    for block in model.decoder:
        block.cross_attention.k_proj.register_forward_hook(lambda *_: calls.append(1))
    encoded, cache = model.encode(source), Cache()
    for chunk in target.split(1, dim=1):
        model.decode(chunk, *encoded, cache=cache)
    assert len(calls) == len(model.decoder)


@pytest.mark.parametrize("name", ["sinusoidal, post-norm", "separable in cross_score", "separable in decoder_score"])
def test_attention_weights(name):
    model, (source, target) = build(**MODELS[name]), pair()
    maps = model.attention_weights(source, target)
    shapes = {"encoder": (B, H, S, S), "decoder": (B, H, L, L), "cross": (B, H, L, S)}
    assert {end: [m.shape for m in some] for end, some in maps.items()} == {k: [v] * 2 for k, v in shapes.items()}
    for end, shape in shapes.items():
        for weights in maps[end]:
            assert_close(weights.sum(-1), torch.ones(shape[:-1], dtype=torch.float64))
    padding = (source == 0)[:, None, None, :]
    for weights in maps["encoder"] + maps["cross"]:
        assert not weights.masked_select(padding).any()
    assert not any(weights.triu(1).any() for weights in maps["decoder"])


def test_separable_cross_attention_ignores_the_query():
    maps = build(cross_score=SeparableAdditiveScore).attention_weights(*pair())["cross"]
    for weights in maps:
        assert_close(weights, weights[:, :, :1].expand_as(weights))


@pytest.mark.parametrize(
    ("score", "named"),
    [
        (DistanceBiasedScore, "DistanceBiasedScore"),
        (RotaryScore, "RotaryScore"),
        (partial(RotaryScore, score=SCORES["lorentzian_well"]), "RotaryScore"),
        (partial(NormalizedScore, score=DistanceBiasedScore), "DistanceBiasedScore"),
    ],
)
def test_a_score_that_compares_positions_cannot_serve_cross_attention(score, named):
    for make in (partial(DecoderBlock, E, H), partial(Transformer, 5, 5, 5, E, H, 1)):
        with pytest.raises(ValueError, match=f"{named} compares positions within one sequence"):
            make(cross_score=score)


# ---------------------------------------------------------------------------------------------------------------------
# Writing
# ---------------------------------------------------------------------------------------------------------------------


def by_whole_passes(model, source):
    """What greedy writes, without a cache."""
    tokens = torch.ones(len(source), 1, dtype=torch.int64)
    for _ in range(MAX_LENGTH):
        ended = (tokens == 2).any(dim=1, keepdim=True)
        if ended.all():
            break
        new = model(source, tokens)[:, -1:].argmax(-1)
        tokens = torch.cat((tokens, new.masked_fill(ended, 0)), dim=1)
    return tokens


@pytest.mark.parametrize("name", MODELS)
def test_greedy_follows_the_whole_pass(name):
    model, (source, _) = build(**MODELS[name]), pair()
    tokens = by_whole_passes(model, source)
    assert torch.equal(model.greedy(source), tokens)
    assert torch.equal(model.greedy(source, 2), tokens[:, :3])


def log_probability(model, source, target):
    """Of one finished or unfinished target, token by token, without a cache."""
    log_p = model(source, target[None, :-1]).log_softmax(-1)[0]
    return sum(log_p[t, token].item() for t, token in enumerate(target[1:]))


def writer(seed=0, vocab=4, **options):
    """A model of few words that ends now and then."""
    torch.manual_seed(seed)
    model = shaken(Transformer(SOURCE_VOCAB, vocab, MAX_LENGTH, E, H, 1, **options))
    with torch.no_grad():
        model.target_embedding.weight.mul_(2)
    return model


def all_targets(vocab, count):
    """Every target that ends within so many tokens or has so many without an end."""
    for length in range(1, count + 1):
        for tokens in itertools.product(range(vocab), repeat=length):
            if 2 not in tokens[:-1] and (tokens[-1] == 2 or length == count):
                yield torch.tensor((1, *tokens))


def lively(seed, **options):
    """A writer that reads out by numbers of their own, so that it does not repeat what it has read and often ends."""
    model = writer(seed, 5, **options)
    model.read_out.weight = nn.Parameter(torch.randn(5, E, dtype=torch.float64))
    return model


@pytest.mark.parametrize("seed", [6, 7])
def test_a_target_ends_before_others_and_the_writing_with_the_last(seed):
    model, (source, _) = lively(seed), pair()
    tokens = by_whole_passes(model, source)
    assert torch.equal(model.greedy(source), tokens)
    for both in (model.greedy(source[:2]), model.beam(source[:2], 1)[0][:, 0]):
        assert both.shape[1] < tokens.shape[1] == MAX_LENGTH + 1
        assert torch.equal(both, tokens[:2, : both.shape[1]])
        assert (both[:, -1] == 2).any()


@pytest.mark.parametrize("seed", [6, 7])
def test_any_three_tokens_may_pad_start_and_end(seed):
    """Numbered otherwise, the same tokens have the same logits, and a model writes the same."""
    model, other, (source, _) = lively(seed), lively(seed, pad=4, start=0, end=1), pair()
    with torch.no_grad():
        for layer in (other.source_embedding, other.target_embedding, other.read_out):
            layer.weight.copy_(layer.weight.roll(4, dims=0))
    renumbered, written = (source + 4) % SOURCE_VOCAB, model.greedy(source)
    assert_close(other(renumbered, (written[:, :3] + 4) % 5), model(source, written[:, :3]).roll(4, dims=-1))
    assert torch.equal(other.greedy(renumbered), (written + 4) % 5)
    (tokens, scores), (other_tokens, other_scores) = model.beam(source, 3), other.beam(renumbered, 3)
    assert torch.equal(other_tokens, (tokens + 4) % 5)
    assert_close(other_scores, scores)


@pytest.mark.parametrize("length_penalty", [0.0, 0.8])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_of_everything_is_exact(seed, length_penalty):
    vocab, count = 4, 3
    model, source = writer(seed, vocab), pair()[0][:1]
    scores = {
        tuple(target.tolist()): log_probability(model, source, target)
        / ((5 + len(target) - 1) / 6) ** length_penalty
        for target in all_targets(vocab, count)
    }  # fmt: skip
    tokens, found = model.beam(source, vocab**count, count, length_penalty=length_penalty)
    assert found[0].isfinite().sum() == len(scores)
    assert (found[0].diff()[: len(scores) - 1] <= 0).all()
    ranked = sorted(scores.items(), key=lambda item: -item[1])
    for (target, score), row, value in zip(ranked, tokens[0], found[0], strict=False):
        assert row.tolist() == [*target, *[0] * (count + 1 - len(target))]
        assert value.item() == pytest.approx(score, abs=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_a_beam_of_one_is_greedy(name):
    model, (source, _) = build(**MODELS[name]), pair()
    tokens, _ = model.beam(source, 1)
    assert torch.equal(tokens[:, 0], model.greedy(source))


@pytest.mark.parametrize("name", ["sinusoidal, post-norm", "separable in decoder_score", "rotary"])
def test_beam_scores_are_those_of_what_it_wrote(name):
    """The cache follows the targets when they are reordered; sources do not disturb each other."""
    model, (source, _) = build(**MODELS[name]), pair()
    tokens, scores = model.beam(source, 4, 5)
    for row, (targets, values) in enumerate(zip(tokens, scores, strict=True)):
        assert (values.diff() <= 0).all()
        alone = model.beam(source[row : row + 1], 4, 5)
        width = min(alone[0].shape[-1], tokens.shape[-1])
        assert torch.equal(alone[0][0, :, :width], targets[:, :width])
        assert len({tuple(target.tolist()) for target in targets}) == 4
        for target, value in zip(targets, values, strict=True):
            ends = (target == 2).nonzero()
            kept = target[: int(ends[0]) + 1] if len(ends) else target
            assert value.item() == pytest.approx(log_probability(model, source[row : row + 1], kept), abs=1e-10)


def test_greedy_can_miss_what_a_beam_finds():
    """And a longer target wins more often when length is paid for."""
    found = [writer(seed).beam(pair()[0][:1], 8, 5)[1][0, 0] for seed in range(20)]
    greedy = [writer(seed).beam(pair()[0][:1], 1, 5)[1][0, 0] for seed in range(20)]
    assert any(wide > narrow + 1e-6 for wide, narrow in zip(found, greedy, strict=True))
    lengths = {
        penalty: sum(
            (writer(s).beam(pair()[0][:1], 8, 5, length_penalty=penalty)[0][0, 0] > 2).sum() for s in range(20)
        )
        for penalty in (0.0, 2.0)
    }
    assert lengths[2.0] > lengths[0.0]


def test_writing_leaves_the_mode_alone():
    model, (source, _) = build(dropout=0.5).train(), pair()
    assert torch.equal(model.greedy(source), model.greedy(source))
    model.beam(source, 2)
    for write in (model.greedy, partial(model.beam, width=2)):
        with pytest.raises(ValueError, match="nothing but padding"):
            write(0 * source)
    assert model.training


# ---------------------------------------------------------------------------------------------------------------------
# What it refuses
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": torch.ones(1, 9, dtype=torch.int64)}, "look at 8 tokens, got 9 of a source"),
        ({"target": torch.ones(1, 9, dtype=torch.int64)}, "look at 8 tokens, got 9 of a target"),
        ({"source": torch.tensor([[0, 3], [0, 0]])}, r"source 1 is nothing but padding \(token 0\)"),
        ({"source": torch.zeros(1, 0, dtype=torch.int64)}, r"source must be \(B, length\) .* got .* \(1, 0\)"),
        ({"target": torch.zeros(1, 0, dtype=torch.int64)}, r"target must be \(B, length\) .* got .* \(1, 0\)"),
        ({"source": torch.tensor([3, 4])}, r"source must be \(B, length\) .* got torch.int64 of \(2,\)"),
        ({"source": torch.tensor([[3.0, 4.0]])}, r"source must be .* integers, .* got torch.float32 of \(1, 2\)"),
        ({"target": torch.tensor([[1, 5], [5, 1]])}, "target 1 must begin with the start token 1, got 5"),
        ({"source": torch.tensor([[3, 13]])}, r"source has token 13, and the model knows 0\.\.12"),
        ({"target": torch.tensor([[1, -2]])}, r"target has token -2, and the model knows 0\.\.10"),
    ],
)
def test_refuses_tokens(change, message):
    inputs = {"source": torch.tensor([[3, 4]]), "target": torch.tensor([[1, 5]])} | change
    with pytest.raises(ValueError, match=message):
        build()(**inputs)
    if "source" in change:
        for write in (build().greedy, partial(build().beam, width=2)):
            with pytest.raises(ValueError, match=message):
                write(inputs["source"])


def test_refuses_a_target_that_outgrows_the_model():
    model, (source, target) = build(), pair()
    encoded, cache = model.encode(source), Cache()
    model.decode(target, *encoded, cache=cache)
    with pytest.raises(ValueError, match="look at 8 tokens, got 10 of a target"):
        model.decode(target, *encoded, cache=cache)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width must be at least 1 .* got 0 and 0"),
        ({"width": 2, "length_penalty": -1.0}, "got 2 and -1"),
        ({"width": 2, "length_penalty": math.nan}, "got 2 and nan"),
        ({"width": 2, "length_penalty": math.inf}, "got 2 and inf"),
        ({"width": 2, "count": 9}, "count must be from 1 to max_length 8, got 9"),
        ({"width": 2, "count": 0}, "count must be from 1 to max_length 8, got 0"),
    ],
)
def test_beam_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        build().beam(pair()[0], **options)


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((0, 5, 5, E, H, 1), {}, "source_vocab must be at least 1, got 0"),
        ((5, 5, 0, E, H, 1), {}, "max_length must be at least 1, got 0"),
        ((5, 5, 5, E, H, 0), {}, "num_layers must be at least 1, got 0"),
        ((5, 2, 5, E, H, 1), {}, "three tokens among the target's 2, got 0, 1, 2"),
        ((5, 5, 5, E, H, 1), {"end": 1}, "three tokens among the target's 5, got 0, 1, 1"),
        ((5, 5, 5, E, H, 1), {"pad": -1}, "three tokens among the target's 5, got -1, 1, 2"),
        ((3, 5, 5, E, H, 1), {"pad": 3}, "pad must be among the source's 3 tokens, got 3"),
        ((5, 5, 5, E, 5, 1), {}, "embed_dim 12 is not divisible by num_heads 5"),
    ],
)
def test_refuses_sizes(sizes, options, message):
    with pytest.raises(ValueError, match=message):
        Transformer(*sizes, **options)


def test_attention_takes_a_source_with_a_cache():
    """Weights and a mask are allowed there: nothing about a source changes from call to call."""
    torch.manual_seed(0)
    layer, mask = MultiHeadAttention(E, H).double(), padding_mask([S, 4, 1], S)
    x, source = (torch.randn(B, n, E, dtype=torch.float64) for n in (L, S))
    whole, weights = layer(x, source, attn_mask=mask, need_weights=True)
    cache = Cache()
    parts = [layer(q, source, attn_mask=mask, need_weights=True, cache=cache) for q in x.split(1, dim=1)]
    assert_close(torch.cat([output for output, _ in parts], dim=1), whole, **EXACTLY)
    assert_close(torch.cat([w for _, w in parts], dim=2), weights, **EXACTLY)
