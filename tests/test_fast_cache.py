"""What generation keeps of the past: token by token and in parts, the outputs are those of the whole causal pass."""

import pytest
import torch
from torch.testing import assert_close

from sciformer import (
    CharTransformer,
    DotProductScore,
    LearnedPositions,
    MultiHeadAttention,
    SeparableAdditiveScore,
    Transformer,
)
from sciformer.fast import attention
from sciformer.fast.cache import Cache, KeyValueCache, SeparableState, memory_for
from sciformer.teach.properties import random_qkv

B, H, L, D = 2, 3, 41, 5


def in_parts(score, inputs, lengths):
    """Outputs of a sequence that comes in parts of these lengths, and the state at the end."""
    state = SeparableState()
    parts = zip(*(x.split(lengths, dim=2) for x in inputs), strict=True)
    return torch.cat([state.attend(score, *part) for part in parts], dim=2), state


@pytest.mark.parametrize("lengths", [[1] * L, [L], [23, 1, 17], [1, 40]], ids=str)
def test_separable_state_equals_the_whole_pass(lengths):
    torch.manual_seed(0)
    score = SeparableAdditiveScore(H, D).double()
    inputs = random_qkv(B, H, L, L, D)
    whole, _ = attention(score, *inputs, is_causal=True, need_weights=True)
    output, _ = in_parts(score, inputs, lengths)
    assert_close(output, whole, rtol=1e-12, atol=1e-12)


def test_separable_state_does_not_grow():
    score, inputs = SeparableAdditiveScore(H, D).double(), random_qkv(B, H, L, L, D)
    for lengths in ([1] * L, [L]):
        _, state = in_parts(score, inputs, lengths)
        assert sum(x.numel() for x in state.past) == B * H * (D + 1)


def test_the_separable_score_and_no_subclass_of_it_is_remembered_as_a_state():
    class Own(SeparableAdditiveScore):
        """Whose formula may be another."""

    assert isinstance(memory_for(SeparableAdditiveScore(H, D)), SeparableState)
    for score in (Own(H, D), DotProductScore(H, D)):
        assert isinstance(memory_for(score), KeyValueCache)


@pytest.mark.parametrize("lengths", [[1] * L, [23, 18]], ids=str)
def test_separable_state_is_stable_where_scores_spread(lengths):
    """Scores from -100 to 100, which float32 could not hold as exponentials."""
    score = SeparableAdditiveScore(H, D)
    torch.nn.init.constant_(score.weight, 100 / D)
    query, key, value = (x.float() for x in random_qkv(B, H, L, L, D))
    key = 10 * key.sign() * torch.linspace(1, 2, L)[:, None]
    key[:, :, 3], key[:, :, 20] = -20, 20
    whole, _ = attention(score.double(), *(x.double() for x in (query, key, value)), is_causal=True, need_weights=True)
    output, _ = in_parts(score.float(), (query, key, value), lengths)
    assert_close(output, whole.float(), rtol=0, atol=1e-5)


def test_separable_state_keeps_the_dtype_and_sums_in_float32():
    score = SeparableAdditiveScore(H, D).bfloat16()
    output, state = in_parts(score, [x.bfloat16() for x in random_qkv(B, H, L, L, D)], [L - 1, 1])
    assert output.dtype == torch.bfloat16
    assert {x.dtype for x in state.past} == {torch.float32}


def test_separable_state_refuses_what_does_not_fit():
    query, key, value = random_qkv(B, H, 1, 1, D)
    with pytest.raises(ValueError, match=r"head_dim 5.*head_dim 4"):
        SeparableState().attend(SeparableAdditiveScore(H, D).double(), query, key[..., :4], value)


# ---------------------------------------------------------------------------------------------------------------------
# A cache as a whole, in attention and in models
# ---------------------------------------------------------------------------------------------------------------------

E = H * D


def layer(**options):
    torch.manual_seed(0)
    return MultiHeadAttention(E, H, **options).double()


def tokens(length=7, batch=B, seed=1):
    return torch.randn(batch, length, E, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def writer(**options):
    torch.manual_seed(0)
    return CharTransformer(5, 9, E, H, 2, **options).double()


@pytest.mark.parametrize("score", [DotProductScore, SeparableAdditiveScore])
def test_decoding_is_causal_because_it_is_said_and_not_because_key_is_query(score):
    attend, x = layer(score=score), tokens()
    whole = attend(x, is_causal=True)[0]
    for arguments in (lambda new: (new,), lambda new: (new, new), lambda new: (new, new.clone(), new.clone())):
        cache = Cache()
        outputs = [attend(*arguments(new), is_causal=True, cache=cache)[0] for new in x.split([3, 1, 3], dim=1)]
        assert_close(torch.cat(outputs, dim=1), whole)


def test_a_source_may_be_the_target_itself_or_equal_to_it():
    """Without is_causal a key is a source that stays, whichever tensor it is."""
    attend, x = layer(), tokens()
    for source in (x, x.clone()):
        cache = Cache()
        assert_close(attend(x, source, cache=cache)[0], attend(x)[0])
        assert_close(attend(x[:, :2], source, cache=cache)[0], attend(x)[0][:, :2])
        with pytest.raises(ValueError, match="the cache belongs to another source, also of 7 tokens"):
            attend(tokens(seed=2), tokens(seed=2), cache=cache)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((tokens(),), {}, "self-attention is causal; pass is_causal=True, or the source as key"),
        ((tokens(),), {"is_causal": True, "need_weights": True}, "no attn_mask and no need_weights"),
        ((tokens(),), {"is_causal": True, "attn_mask": torch.ones(7, 7).bool()}, "no attn_mask and no need_weights"),
        ((tokens(2), tokens()), {"is_causal": True}, "got 2 queries and 7 keys"),
    ],
)
def test_attention_says_what_it_cannot_do_with_a_cache(arguments, options, message):
    cache = Cache()
    with pytest.raises(ValueError, match=message):
        layer()(*arguments, cache=cache, **options)
    assert not cache.memories


def test_another_source_of_the_same_length_is_refused():
    attend, x, source, other = layer(), tokens(3), tokens(), tokens(seed=2)
    cache = Cache()
    attend(x, source, cache=cache)
    for again in ((source,), (source.clone(),), (source, source.clone())):  # the same numbers are the same source
        assert_close(attend(x, *again, cache=cache), attend(x, source))
    for key, value in ((other, other), (source, other), (other, source), (source.where(source < 2, 0), source)):
        with pytest.raises(ValueError, match="the cache belongs to another source, also of 7 tokens"):
            attend(x, key, value, cache=cache)
    cache.keep(torch.tensor([1, 1]))
    with pytest.raises(ValueError, match="another source"):
        attend(x, source, cache=cache)
    assert_close(attend(x, source[[1, 1]], cache=cache), attend(x, source[[1, 1]]))


def test_a_decoder_refuses_the_source_of_another_call():
    torch.manual_seed(0)
    model = Transformer(9, 9, 8, E, H, 1, positions=LearnedPositions).double()
    source, start = torch.randint(3, 9, (2, B, 6)), torch.ones(B, 1, dtype=torch.int64)
    (encoded, mask), (other, _) = (model.encode(each) for each in source)
    cache = Cache()
    for _ in range(3):
        model.decode(start, encoded, mask, cache=cache)
    with pytest.raises(ValueError, match="another source, also of 6 tokens"):
        model.decode(start, other, mask, cache=cache)


@pytest.mark.parametrize("options", [{}, {"score": SeparableAdditiveScore}, {"token_shift": 2}], ids=str)
@pytest.mark.parametrize("batch", [1, 3])
def test_another_number_of_texts_is_refused(options, batch):
    """Also one, which would be as many as there are by broadcasting."""
    model, cache = writer(**options), Cache()
    model(torch.ones(B, 2, dtype=torch.int64), cache=cache)
    with pytest.raises(ValueError, match=f"the cache holds a batch of 2 texts, got {batch}"):
        model(torch.ones(batch, 1, dtype=torch.int64), cache=cache)
    cache.keep(torch.arange(batch) % B)
    model(torch.ones(batch, 1, dtype=torch.int64), cache=cache)
    attend, cache = layer(), Cache()
    attend(tokens(), tokens(), cache=cache)
    with pytest.raises(ValueError, match=f"the cache holds a batch of 2 texts, got {batch}"):
        attend(tokens(batch=batch), tokens(batch=batch), cache=cache)


def test_training_with_dropout_is_refused():
    x, text = tokens(), torch.ones(B, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"cannot serve training with dropout 0\.3"):
        layer(dropout=0.3)(x, is_causal=True, cache=Cache())
    with pytest.raises(ValueError, match=r"dropout 0\.3.*model\.eval\(\)"):
        layer(dropout=0.3)(x, x, cache=Cache())
    with pytest.raises(ValueError, match=r"dropout 0\.3"):
        writer(dropout=0.3)(text, cache=Cache())
    for model in (writer(dropout=0.3).eval(), writer()):
        assert_close(model(text, cache=Cache()), model(text))


def test_a_cache_serves_one_model_and_forgets_when_reset():
    model, other, text = writer(), writer(score=SeparableAdditiveScore), torch.arange(4).expand(B, 4)
    cache = Cache()
    model(text, cache=cache)
    assert cache.length == 4
    with pytest.raises(ValueError, match="another model has read 4 tokens with this cache"):
        other(text, cache=cache)
    cache.reset()
    assert (cache.length, cache.memories) == (0, {})
    assert_close(other(text[:1], cache=cache), other(text[:1]))  # of another batch, too
