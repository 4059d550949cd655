"""The pure functions against hand-computed numbers, plain loops and torch's own attention."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from reference import loop_attention
from torch.testing import assert_close

from sciformer import (
    additive_scores,
    attend,
    causal_mask,
    distance_biased_scores,
    dot_product_scores,
    energy_well_scores,
    gaussian_well,
    inverse_square_well,
    lorentzian_well,
    masked_softmax,
    masked_standardize,
    naive_attention,
    padding_mask,
    pairwise_distances,
    rotate,
    separable_additive_scores,
    softmax_exponential_well,
)
from sciformer.functional import InputError, check_sizes, safe_root, squared_distances, steps_between
from sciformer.teach.properties import random_mask, random_qkv


def test_naive_attention_by_hand():
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    output, weights = naive_attention(x, normalize="none")
    assert_close(weights, torch.tensor([[1.0, 0.0], [0.0, 4.0]]))
    assert_close(output, torch.tensor([[1.0, 0.0], [0.0, 8.0]]))
    output, weights = naive_attention(x)
    a, b = math.e / (math.e + 1), math.exp(4) / (math.exp(4) + 1)
    assert_close(weights, torch.tensor([[a, 1 - a], [1 - b, b]]))
    assert_close(output, torch.tensor([[a, 2 * (1 - a)], [1 - b, 2 * b]]))


def test_naive_attention_without_softmax_is_three_matrices():
    x = random_qkv()[0]
    assert_close(naive_attention(x, normalize="none")[0], (x @ x.mT) @ x)


def test_naive_attention_standardized_rows():
    x = random_qkv()[0]
    weights = naive_attention(x, normalize="standardize")[1]
    raw = x @ x.mT
    expected = (raw - raw.mean(-1, keepdim=True)) / (raw.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    assert_close(weights, expected)
    assert_close(weights.sum(-1), torch.zeros(2, 3, 5, dtype=torch.float64))
    assert (weights < 0).any()


def test_naive_attention_of_equal_tokens_is_finite():
    x = torch.ones(3, 5, requires_grad=True)
    output, weights = naive_attention(x, normalize="standardize")
    output.sum().backward()
    assert_close(weights, torch.zeros(3, 3))
    assert x.grad.isfinite().all()


def test_standardized_rows_without_a_mask_are_those_of_naive_attention():
    x = random_qkv()[0]
    assert_close(masked_standardize(x @ x.mT), naive_attention(x, normalize="standardize")[1])


def test_standardized_rows_by_hand():
    """Mean and standard deviation of the visible scores; a hidden key has the weight 0, whatever its score."""
    scores, mask = random_qkv(1, 1, 6, 7)[0] @ random_qkv(1, 1, 6, 7)[1].mT, random_mask(6, 7)
    weights = masked_standardize(scores, mask)[0, 0]
    for i in range(6):
        seen = scores[0, 0, i, mask[i]]
        wanted = (seen - seen.mean()) / (seen.var(correction=0) + 1e-5).sqrt() if len(seen) else seen
        assert_close(weights[i, mask[i]], wanted)
        assert (weights[i, ~mask[i]] == 0).all()
    assert_close(masked_standardize(scores.masked_fill(~mask, -math.inf))[0, 0], weights, rtol=0, atol=0)
    assert_close(masked_standardize(scores.masked_fill(~mask, 1e9), mask)[0, 0], weights, rtol=0, atol=0)


@pytest.mark.parametrize("hidden_by", ["mask", "minus infinity"])
@pytest.mark.parametrize(
    ("scores", "mask"),
    [
        ([2.0, 3.0, 4.0], [False, True, False]),
        ([2.0, 2.0, 2.0], [True, True, True]),
        ([7.0, 2.0, 2.0], [False, True, True]),
        ([2.0, 3.0, 4.0], [False, False, False]),
    ],
    ids=["one key", "equal scores", "equal visible scores", "no key"],
)
def test_a_row_without_a_deviation_is_0_with_finite_gradients(scores, mask, hidden_by):
    scores, mask = torch.tensor(scores, requires_grad=True), torch.tensor(mask)
    if hidden_by == "mask":
        weights = masked_standardize(scores, mask)
    else:
        weights = masked_standardize(scores.masked_fill(~mask, -math.inf))
    assert (weights == 0).all()
    (weights @ torch.tensor([1.0, -2.0, 5.0])).backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[~mask] == 0).all()


def test_standardized_rows_hold_in_half_precision_and_pass_a_nan_on():
    """The squares of such scores are beyond float16's 65504."""
    scores = torch.tensor([[1000.0, -1000.0, 3000.0, -3000.0]]).half()
    assert masked_standardize(scores).dtype == torch.float16
    assert_close(masked_standardize(scores).float(), masked_standardize(scores.float()), rtol=1e-3, atol=1e-3)
    assert masked_standardize(torch.tensor([1.0, math.nan])).isnan().all()


@pytest.mark.parametrize(
    ("scores", "mask", "message"),
    [
        (torch.zeros(3, dtype=torch.int64), None, "int64"),
        (torch.zeros(3), torch.zeros(3), "boolean"),
        (torch.zeros(3), torch.ones(4, dtype=torch.bool), r"\(4,\) does not broadcast"),
    ],
)
def test_masked_standardize_refuses(scores, mask, message):
    with pytest.raises(InputError, match=message):
        masked_standardize(scores, mask)


@pytest.mark.parametrize(
    ("x", "normalize", "message"),
    [
        (torch.zeros(3), "softmax", r"float32 of shape \(3,\)"),
        (torch.zeros(3, 5, dtype=torch.int64), "softmax", "int64"),
        (torch.zeros(3, 5), "sofmax", "'sofmax'"),
    ],
)
def test_naive_attention_refuses(x, normalize, message):
    with pytest.raises(ValueError, match=message):
        naive_attention(x, normalize=normalize)


def test_causal_mask_by_hand():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert causal_mask(2, 3).tolist() == [[True, True, False], [True, True, True]]
    assert causal_mask(1, 3).tolist() == [[True, True, True]]
    with pytest.raises(ValueError, match="4 queries and 3 keys"):
        causal_mask(4, 3)


def test_padding_mask_by_hand():
    mask = padding_mask([2, 0, 3], 3)
    assert mask.shape == (3, 1, 1, 3)
    assert mask.squeeze().tolist() == [[True, True, False], [False] * 3, [True] * 3]
    assert_close(padding_mask(torch.tensor([2, 0, 3]), 3), mask)
    assert padding_mask(torch.tensor([], dtype=torch.int64), 3).shape == (0, 1, 1, 3)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [([4], r"0\.\.3, got 4\.\.4"), ([-1, 2], r"got -1\.\.2"), ([1.0], "float32"), ([[1, 2]], r"\(1, 2\)")],
)
def test_padding_mask_refuses(lengths, message):
    with pytest.raises(ValueError, match=message):
        padding_mask(lengths, 3)


def test_masked_softmax_by_hand():
    scores = torch.tensor([[0.0, math.log(3.0), 5.0]])
    weights = masked_softmax(scores, torch.tensor([[True, True, False]]))
    assert_close(weights, torch.tensor([[0.25, 0.75, 0.0]]))
    far_below = masked_softmax(torch.tensor([[-1e30, 0.0]]), torch.tensor([[True, False]]))
    assert_close(far_below, torch.tensor([[1.0, 0.0]]))


def test_masked_softmax_without_mask_is_softmax():
    scores = random_qkv()[0]
    assert_close(masked_softmax(scores), F.softmax(scores, dim=-1))
    assert_close(masked_softmax(scores, torch.ones(11, dtype=torch.bool)), F.softmax(scores, dim=-1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_masked_softmax_of_an_empty_row_is_zero_with_zero_gradient(dtype):
    scores = torch.tensor([[1.0, 2.0], [3.0, -60000.0]], dtype=dtype, requires_grad=True)
    mask = torch.tensor([[False, False], [True, True]])
    weights = masked_softmax(scores, mask)
    (weights * torch.tensor([1.0, 2.0], dtype=dtype)).sum().backward()
    assert_close(weights[0], torch.zeros(2, dtype=dtype))
    assert_close(weights[1], torch.tensor([1.0, 0.0], dtype=dtype))
    assert_close(scores.grad[0], torch.zeros(2, dtype=dtype))
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.zeros(5, 7), "boolean .*float32"),
        (torch.ones(5, 7, dtype=torch.uint8), "boolean .*uint8"),
        (torch.ones(7, 5, dtype=torch.bool), r"\(7, 5\) .* \(2, 3, 5, 7\)"),
        (torch.ones(2, 2, 3, 5, 7, dtype=torch.bool), r"\(2, 2, 3, 5, 7\)"),
    ],
)
def test_masked_softmax_refuses(mask, message):
    with pytest.raises(ValueError, match=message):
        masked_softmax(torch.zeros(2, 3, 5, 7), mask)


def test_attention_equals_plain_loops():
    query, key, value = random_qkv()
    mask = random_mask(2, 3, 5, 7)
    output, weights = attend(dot_product_scores(query, key), value, attn_mask=mask)
    assert_close(output, loop_attention(query, key, value, mask))
    assert_close(weights @ value, output)
    assert_close(attend(dot_product_scores(query, key), value)[0], loop_attention(query, key, value))


@pytest.mark.parametrize("masked", [False, True])
def test_attention_equals_torch(masked):
    mask = random_mask(2, 3, 5, 7) if masked else None
    ours, torchs = random_qkv(requires_grad=True), random_qkv(requires_grad=True)
    output, _ = attend(dot_product_scores(*ours[:2]), ours[2], attn_mask=mask)
    expected = F.scaled_dot_product_attention(*torchs, attn_mask=mask)
    assert_close(output, expected)
    probe = torch.randn_like(output)
    assert_close(
        torch.autograd.grad((output * probe).sum(), ours), torch.autograd.grad((expected * probe).sum(), torchs)
    )


def test_attention_gradcheck():
    inputs = random_qkv(1, 2, 3, 5, 2, requires_grad=True)
    mask = random_mask(1, 2, 3, 5)

    def attention(query, key, value):
        return attend(dot_product_scores(query, key), value, attn_mask=mask)

    assert torch.autograd.gradcheck(attention, inputs)


def test_scaled_scores_have_variance_one():
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, 1, 1000, 64, generator=generator) for _ in range(2))
    assert dot_product_scores(query, key, scale=1.0).var().item() == pytest.approx(64, rel=0.05)
    assert dot_product_scores(query, key).var().item() == pytest.approx(1, rel=0.05)


def test_attend_drops_weights_but_returns_them_whole():
    query, key, value = random_qkv(S=101)
    torch.manual_seed(0)
    scores = dot_product_scores(query, key)
    output, weights = attend(scores, value, dropout_p=0.5)
    assert_close(weights, scores.softmax(-1))
    assert not torch.allclose(output, weights @ value)


@pytest.mark.parametrize(
    ("query", "key", "message"),
    [
        (torch.zeros(1, 1, 2, 3), torch.zeros(1, 1, 2, 5), "head_dim 3.*head_dim 5"),
        (torch.zeros(2, 1, 2, 3), torch.zeros(5, 1, 2, 3), r"\(2, 1\).*\(5, 1\)"),
        (torch.zeros(1, 2, 2, 3), torch.zeros(1, 5, 2, 3), r"\(1, 2\).*\(1, 5\)"),
        (torch.zeros(1, 1, 2, 3), torch.zeros(1, 2, 3), r"\(1, 1, 2, 3\).*\(1, 2, 3\)"),
        (torch.zeros(3), torch.zeros(3), r"\(3,\) and \(3,\)"),
        (torch.zeros(2, 3), torch.zeros(2, 3).double(), "float32 and torch.float64"),
        (torch.zeros(2, 3).long(), torch.zeros(2, 3).long(), "int64"),
    ],
)
def test_dot_product_scores_refuses(query, key, message):
    with pytest.raises(ValueError, match=message):
        dot_product_scores(query, key)


def test_attend_refuses():
    with pytest.raises(ValueError, match=r"value of \(\.\.\., S, D\), got \(2, 3, 5, 7\) and \(2, 3, 5, 11\)"):
        attend(torch.zeros(2, 3, 5, 7), torch.zeros(2, 3, 5, 11))
    with pytest.raises(ValueError, match=r"scores and value must share .* torch\.float32 and torch\.float64"):
        attend(torch.zeros(2, 3, 5, 7), torch.zeros(2, 3, 7, 11).double())


def test_attend_refuses_two_dtypes_on_a_device_without_autocast_too():
    with pytest.raises(ValueError, match=r"scores and value must share .* torch\.float32 and torch\.float64"):
        attend(torch.zeros(2, 3, 5, 7, device="meta"), torch.zeros(2, 3, 7, 11, device="meta").double())


@pytest.mark.parametrize(
    ("of_scores", "of_value"), [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)], ids=str
)
def test_under_autocast_scores_and_values_may_differ_in_dtype(of_scores, of_value):
    """A norm or a distance is float32 there, and a projection half precision; the softmax sees all the scores' bits."""
    query, key, value = random_qkv(dtype=torch.float32)
    scores, value = -(query - key[:, :, :1]).norm(dim=-1)[..., None] * key.norm(dim=-1)[..., None, :], value.bfloat16()
    exact, _ = attend(scores.to(of_scores).double(), value.double())
    inputs = scores.to(of_scores), value.to(of_value)
    with pytest.raises(ValueError, match=f"scores and value must share .* got {of_scores} and {of_value}"):
        attend(*inputs)
    with torch.autocast("cpu", torch.bfloat16):
        output, weights = attend(*inputs)
    assert output.dtype == torch.bfloat16
    assert weights.dtype == of_scores
    assert_close(output.double(), exact, rtol=0, atol=0.02)  # bfloat16 rounds weights of 1 and outputs of 2 by 0.004


def test_autocast_does_not_excuse_float64():
    query, key, value = random_qkv(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(ValueError, match="scores and value must share"):
            attend(torch.zeros(2, 3, 5, 7, dtype=torch.float64), value)
        with pytest.raises(ValueError, match="query and key must share"):
            dot_product_scores(query, key.double())
        mixed = dot_product_scores(query, key.bfloat16())
    assert_close(mixed.float(), dot_product_scores(query, key), rtol=0, atol=0.05)
    with pytest.raises(ValueError, match="query and key must share"):
        dot_product_scores(query, key.bfloat16())


def test_steps_by_hand():
    left, right = steps_between(2, 4, query_offset=1)
    assert left.tolist() == [[1, 0, 0, 0], [2, 1, 0, 0]]
    assert right.tolist() == [[0, 0, 1, 2], [0, 0, 0, 1]]
    left, right, above, below = steps_between(1, 6, query_offset=4, width=3)  # the middle of the lower of two rows
    assert left.view(2, 3).tolist() == [[1, 0, 0], [1, 0, 0]]
    assert right.view(2, 3).tolist() == [[0, 0, 1], [0, 0, 1]]
    assert above.view(2, 3).tolist() == [[1, 1, 1], [0, 0, 0]]
    assert below.view(2, 3).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert steps_between(2, 6, width=3)[3].tolist() == [[0, 0, 0, 1, 1, 1]] * 2
    assert left.dtype == torch.float32


def test_distance_biased_scores_by_hand():
    query, key = torch.ones(1, 2, 2, 4), torch.ones(1, 2, 3, 4)
    scores = distance_biased_scores(query, key, torch.tensor([0.5, -1.0]))
    assert_close(scores[0, 0], torch.tensor([[2.0, 1.5, 1.0], [1.5, 2.0, 1.5]]))
    assert_close(scores[0, 1], torch.tensor([[2.0, 3.0, 4.0], [3.0, 2.0, 3.0]]))
    each_side = torch.tensor([[0.5, 0.1], [0.0, 2.0]])
    scores = distance_biased_scores(query, key, each_side, query_offset=1)
    assert_close(scores[0, 0], torch.tensor([[1.5, 2.0, 1.9], [1.0, 1.5, 2.0]]))
    assert_close(scores[0, 1], torch.tensor([[2.0, 2.0, 0.0], [2.0, 2.0, 2.0]]))


def test_distance_biased_scores_equal_loops():
    query, key, _ = random_qkv(L=5, S=7)
    slopes = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) - 0.3
    plain = dot_product_scores(query, key)
    one, two, four = torch.zeros_like(plain), torch.zeros_like(plain), torch.zeros_like(plain)
    for h in range(3):
        for i in range(5):
            for j in range(7):
                at = i + 2
                one[:, h, i, j] = slopes[h, 0] * abs(at - j)
                two[:, h, i, j] = slopes[h, 0] * (at - j) if j < at else slopes[h, 1] * (j - at)
                row, column = j // 3 - at // 3, j % 3 - at % 3
                four[:, h, i, j] += slopes[h, 0] * -column if column < 0 else slopes[h, 1] * column
                four[:, h, i, j] += slopes[h, 2] * -row if row < 0 else slopes[h, 3] * row
    for penalty, strength, options in (
        (one, slopes[:, 0], {}),
        (two, slopes[:, :2], {}),
        (four, slopes, {"width": 3}),
    ):
        scores = distance_biased_scores(query, key, strength, query_offset=2, **options)
        assert_close(scores, plain - penalty)
    grid = distance_biased_scores(query, key, slopes[:, 0], width=3)
    assert_close(grid, distance_biased_scores(query, key, slopes[:, :1].repeat(1, 4), width=3))


def test_without_strength_it_is_the_dot_product():
    query, key, _ = random_qkv(L=5, S=7)
    assert_close(distance_biased_scores(query, key, torch.zeros(3)), dot_product_scores(query, key))


def test_distance_biased_scores_keep_the_dtype():
    query, key = (x.bfloat16() for x in random_qkv()[:2])
    assert distance_biased_scores(query, key, torch.zeros(3)).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("strength", "options", "message"),
    [
        (torch.zeros(3), {"query_offset": 3}, "5 queries from position 3 reach past 7 keys"),
        (torch.zeros(3), {"query_offset": -1}, "5 queries from position -1"),
        (torch.zeros(2), {}, r"\(3,\) or \(3, 2\) for 3 heads and 2 sides, got \(2,\)"),
        (torch.zeros(3, 4), {}, r"got \(3, 4\)"),
        (torch.zeros(3, 2), {"width": 3}, r"\(3, 4\) for 3 heads and 4 sides, got \(3, 2\)"),
        (torch.zeros(3), {"width": 0}, "at least 1, got 0"),
    ],
)
def test_distance_biased_scores_refuse(strength, options, message):
    query, key, _ = random_qkv(L=5, S=7)
    with pytest.raises(ValueError, match=message):
        distance_biased_scores(query, key, strength, **options)


def test_additive_scores_by_hand():
    query, key = torch.tensor([[[[0.0, 1.0]]]]), torch.tensor([[[[0.0, -1.0], [2.0, 0.0], [50.0, -50.0]]]])
    weight = torch.tensor([[3.0, 0.5]])
    tanh = math.tanh
    assert_close(additive_scores(query, key, weight), torch.tensor([[[[0.0, 3 * tanh(2) + 0.5 * tanh(1), 2.5]]]]))
    expected = [0.0, 3 * tanh(2) + 0.5 * tanh(1), 3 + 0.5 * tanh(1) - 0.5]
    assert_close(separable_additive_scores(query, key, weight), torch.tensor([[[expected]]]))


def random_weight():
    return torch.randn(3, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_both_additive_scores_equal_loops():
    query, key, _ = random_qkv()
    weight = random_weight()
    together, apart = additive_scores(query, key, weight), separable_additive_scores(query, key, weight)
    for b in range(2):
        for h in range(3):
            for i in range(5):
                for j in range(7):
                    q, k, w = query[b, h, i].tolist(), key[b, h, j].tolist(), weight[h].tolist()
                    hidden = [math.tanh(q[d] + k[d]) for d in range(11)]
                    assert together[b, h, i, j].item() == pytest.approx(sum(w[d] * hidden[d] for d in range(11)))
                    hidden = [math.tanh(q[d]) + math.tanh(k[d]) for d in range(11)]
                    assert apart[b, h, i, j].item() == pytest.approx(sum(w[d] * hidden[d] for d in range(11)))


def test_separable_attention_does_not_depend_on_the_query():
    query, key, _ = random_qkv()
    weights = [masked_softmax(separable_additive_scores(q, key, random_weight())) for q in (query, 7 * query.flip(2))]
    assert_close(*weights)
    assert_close(weights[0], weights[0][:, :, :1].expand_as(weights[0]))
    weights = [masked_softmax(additive_scores(q, key, random_weight())) for q in (query, 7 * query.flip(2))]
    assert not torch.allclose(*weights, atol=0.1)


@pytest.mark.parametrize("scores", [additive_scores, separable_additive_scores])
def test_additive_scores_refuse(scores):
    query, key, _ = random_qkv()
    with pytest.raises(ValueError, match=r"\(11, 3\) .* \(2, 3, 5, 11\)"):
        scores(query, key, random_weight().T)
    with pytest.raises(ValueError, match=r"\(11,\) .* \(2, 3, 5, 11\)"):
        scores(query, key, random_weight()[0])
    with pytest.raises(ValueError, match=r"head_dim 11.*head_dim 5"):
        scores(query, key[..., :5], random_weight())


# --- distances -------------------------------------------------------------------------------------------------------


def by_differences(query, key):
    """Distances from the differences themselves, in float64: D times the memory."""
    return torch.linalg.vector_norm(query.double()[..., :, None, :] - key.double()[..., None, :, :], dim=-1)


def test_distances_by_hand():
    query, key = torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([[3.0, 4.0], [0.0, 0.0], [-5.0, 12.0]])
    assert_close(pairwise_distances(query, key), torch.tensor([[5.0, 0.0, 13.0], [0.0, 5.0, 128**0.5]]))
    assert_close(squared_distances(query, key), torch.tensor([[25.0, 0.0, 169.0], [0.0, 25.0, 128.0]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("D", [1, 2, 5, 32, 64, 257])
@pytest.mark.parametrize("centre", [0.0, 3.0, 100.0])
def test_the_error_of_distances_is_bounded(D, centre, dtype):
    query, key, other = random_qkv(2, 3, 61, 61, D, dtype=dtype)
    query, near, far = query + centre, query + centre + 0.01 * other, key + centre
    for k in (query, near, far):
        exact = by_differences(query, k)
        lengths = query.double().square().sum(-1)[..., :, None] + k.double().square().sum(-1)[..., None, :]
        bound = 4 * math.sqrt(D) * torch.finfo(dtype).eps * lengths
        assert ((squared_distances(query, k) - exact.square()).abs() <= bound).all()
        assert ((pairwise_distances(query, k) - exact).abs() <= bound.sqrt()).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("centre", [0.0, 30.0])
def test_equal_vectors_are_at_distance_zero_with_gradient_zero(dtype, centre):
    x = (random_qkv(2, 3, 61, 61, 64, dtype=dtype)[0] + centre).requires_grad_()
    distance = pairwise_distances(x, x)
    itself = distance.diagonal(dim1=-2, dim2=-1)
    assert (itself == 0).all()
    assert (distance > 0).sum() == 2 * 3 * 61 * 60
    (gradient,) = torch.autograd.grad(itself.sum(), x, retain_graph=True)
    assert (gradient == 0).all()
    distance.sum().backward()
    assert x.grad.isfinite().all()


def test_the_root_of_zero_has_the_gradient_zero():
    squared = torch.tensor([0.0, 4.0], requires_grad=True)
    safe_root(squared).sum().backward()
    assert_close(squared.grad, torch.tensor([0.0, 0.25]))


def test_gradients_of_distances_are_those_of_the_differences():
    query, key, _ = random_qkv(requires_grad=True)
    with torch.no_grad():
        key[:, :, 2] = query[:, :, 1]
    ours = torch.autograd.grad(pairwise_distances(query, key).sin().sum(), (query, key))
    assert_close(ours, torch.autograd.grad(by_differences(query, key).sin().sum(), (query, key)))


def test_distances_are_not_computed_in_half_precision():
    query, key = (x.bfloat16() for x in random_qkv()[:2])
    expected = pairwise_distances(query.float(), key.float())
    assert_close(pairwise_distances(query, key), expected, rtol=0, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(pairwise_distances(query, key), expected, rtol=0, atol=0)


# --- energy wells ----------------------------------------------------------------------------------------------------

#: Each well with α = 1, or ε = 1, and where d · E is largest: the middle of the moat.
WELLS = {
    "gaussian": (gaussian_well, {"alpha": 1.0}, math.sqrt(1 / 2)),
    "inverse square": (inverse_square_well, {"eps": 1.0}, 1.0),
    "softmax-exponential": (softmax_exponential_well, {"alpha": 1.0}, 1.0),
    "lorentzian": (lorentzian_well, {"alpha": 1.0}, 1.0),
}
each_well = pytest.mark.parametrize(("well", "parameters", "moat"), WELLS.values(), ids=WELLS)


def test_wells_by_hand():
    distance = torch.tensor([0.0, 1.0, 2.0, 3.0])
    assert_close(gaussian_well(distance, 0.5), torch.tensor([1.0, math.exp(-0.5), math.exp(-2), math.exp(-4.5)]))
    assert_close(inverse_square_well(distance, 3.0, 0.5), torch.tensor([6.0, 2.0, 3 / 4.5, 3 / 9.5]))
    assert_close(inverse_square_well(distance)[:2], torch.tensor([1e6, 1.0]))
    assert_close(lorentzian_well(distance, 3.0, 0.5), torch.tensor([3.0, 2.0, 1.0, 3 / 5.5]))
    shares = torch.tensor([1.0, 2.0, 4.0, 8.0]).flip(0) / 15
    assert_close(softmax_exponential_well(distance, math.log(2)), shares)
    importance = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert_close(lorentzian_well(distance, importance), importance / torch.tensor([1.0, 2.0, 5.0, 10.0]))


def test_the_divisor_of_the_softmax_exponential_well_runs_over_what_may_be_attended_to():
    distance = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
    energy = softmax_exponential_well(distance, math.log(2), attn_mask=causal_mask(3))
    assert_close(energy, torch.tensor([[1.0, 0.0, 0.0], [1 / 3, 2 / 3, 0.0], [1 / 7, 2 / 7, 4 / 7]]))
    assert (softmax_exponential_well(distance, 1.0, attn_mask=torch.zeros(3, 3, dtype=torch.bool)) == 0).all()
    with pytest.raises(ValueError, match=r"\(2, 3\) does not broadcast to scores of shape \(3, 3\)"):
        softmax_exponential_well(distance, 1.0, attn_mask=causal_mask(2, 3))


@each_well
def test_a_well_is_the_exponential_of_its_logarithm(well, parameters, moat):
    distance = torch.linspace(0, 5, 50, dtype=torch.float64)
    log = well.log_energy(distance.square(), **parameters)
    if well is softmax_exponential_well:  # whose divisor is left out
        log = log - log.logsumexp(-1)
    assert_close(log.exp(), well(distance, **parameters))


@pytest.mark.parametrize("well", [inverse_square_well, lorentzian_well])
def test_a_well_and_its_logarithm_start_from_the_same_numbers(well):
    distance = torch.linspace(0, 5, 50, dtype=torch.float64)
    assert_close(well.log_energy(distance.square()).exp(), well(distance))
    assert_close(well.log_energy(distance.square(), 3.0).exp(), well(distance, 3.0))


@each_well
def test_energy_well_scores_equal_loops(well, parameters, moat):
    query, key, _ = random_qkv()
    gradient, field = torch.zeros(2, 3, 5, 7).double(), torch.zeros(2, 3, 5, 7).double()
    for b in range(2):
        for h in range(3):
            for i in range(5):
                row = [math.dist(query[b, h, i].tolist(), key[b, h, j].tolist()) for j in range(7)]
                energy = {
                    gaussian_well: lambda d: math.exp(-(d**2)),
                    inverse_square_well: lambda d: 1 / (d**2 + 1),
                    softmax_exponential_well: lambda d, row=row: math.exp(-d) / sum(math.exp(-other) for other in row),
                    lorentzian_well: lambda d: 1 / (1 + d**2),
                }[well]
                gradient[b, h, i] = torch.tensor([-d * energy(d) for d in row], dtype=torch.float64)
                field[b, h, i] = torch.tensor([math.log(energy(d)) for d in row], dtype=torch.float64)
    assert_close(energy_well_scores(query, key, well, **parameters), gradient)
    scores = energy_well_scores(query, key, well, form="field", **parameters)
    assert_close(scores.softmax(-1), field.softmax(-1))
    if well is not softmax_exponential_well:
        assert_close(scores, field)


@pytest.mark.parametrize("form", ["gradient", "field"])
def test_alpha_for_each_head_and_weight_for_each_key(form):
    query, key, _ = random_qkv()
    alpha, weight = torch.tensor([0.1, 1.0, 3.0]).double(), torch.linspace(0.5, 2, 2 * 3 * 7).double().view(2, 3, 1, 7)
    scores = energy_well_scores(query, key, lorentzian_well, alpha=alpha[:, None, None], weight=weight, form=form)
    for b in range(2):
        for h in range(3):
            for j in range(7):
                well = partial(lorentzian_well, weight=weight[b, h, 0, j], alpha=alpha[h])
                distance = pairwise_distances(query[b, h], key[b, h, j : j + 1])
                expected = -distance * well(distance) if form == "gradient" else well(distance).log()
                assert_close(scores[b, h, :, j : j + 1], expected)


@each_well
def test_the_field_of_a_far_token_still_has_a_gradient(well, parameters, moat):
    """In float32 exp(-α d²) is 0 from d = 11 on, and its logarithm's gradient NaN."""
    query, key = torch.zeros(1, 1, 1, 3), torch.full((1, 1, 1, 3), 20.0, requires_grad=True)
    scores = energy_well_scores(query, key, well, form="field", **parameters)
    scores.sum().backward()
    exact = {gaussian_well: -1200.0, softmax_exponential_well: -(1200**0.5)}.get(well, -math.log(1201))
    assert scores.item() == pytest.approx(exact)
    assert (key.grad < 0).all()


@each_well
@pytest.mark.parametrize("form", ["gradient", "field"])
def test_scores_at_distance_zero_have_finite_gradients(well, parameters, moat, form):
    query = random_qkv(dtype=torch.float32)[0].requires_grad_()
    key = query.detach().clone().requires_grad_()
    energy_well_scores(query, key, well, form=form, **parameters).sum().backward()
    assert query.grad.isfinite().all()
    assert key.grad.isfinite().all()


@each_well
def test_the_stated_form_has_a_moat(well, parameters, moat):
    """Weights relative to distance 0: they fall to one minimum, at the moat's middle, and come back to 1."""
    distance = torch.linspace(0, 8, 8001, dtype=torch.float64)
    scores = -distance * well(distance, **parameters)
    middle = scores.argmin()
    assert distance[middle].item() == pytest.approx(moat, abs=1e-3)
    assert (scores[: middle + 1].diff() < 0).all()
    assert (scores[middle:].diff() > 0).all()
    query, key = torch.zeros(1, 1, 1, 1), torch.tensor([0.0, moat, 1e4]).view(1, 1, 3, 1)
    near, inside, far = energy_well_scores(query, key, well, **parameters).softmax(-1).flatten().tolist()
    assert far == pytest.approx(near, rel=1e-3)
    assert inside < 0.9 * near


@pytest.mark.parametrize("alpha", [0.01, 0.5, 4.0])
def test_the_moat_of_the_gaussian_moves_with_alpha(alpha):
    distance = torch.linspace(0, 40, 40001, dtype=torch.float64)
    weights = torch.exp(-distance * gaussian_well(distance, alpha))
    assert distance[weights.argmin()].item() == pytest.approx(1 / math.sqrt(2 * alpha), abs=1e-3)


def test_the_weights_that_the_stated_form_gives():
    distance = torch.tensor([0.0, 1.0, 2.0, 3.0])
    weights = torch.exp(-distance * gaussian_well(distance, 1.0))
    assert_close(weights, torch.tensor([1.0, 0.69, 0.96, 1.0]), rtol=0, atol=0.005)
    for well in (inverse_square_well, lorentzian_well):
        assert torch.exp(-8 * well(torch.tensor(8.0))).item() == pytest.approx(0.88, abs=0.005)


@each_well
def test_the_field_is_local(well, parameters, moat):
    query, key = torch.zeros(1, 1, 1, 1), torch.linspace(0, 8, 100).view(1, 1, 100, 1)
    assert (energy_well_scores(query, key, well, form="field", **parameters).diff() < 0).all()


@each_well
def test_a_softmax_of_energies_is_nearly_uniform(well, parameters, moat):
    """Energies from 0 to 1, so no weight is more than e times another, however far apart the tokens are."""
    weights = well(torch.tensor([0.0, 1.0, 10.0, 1e4]), **parameters).softmax(-1)
    assert weights.max() <= math.e * weights.min() * (1 + 1e-6)
    assert weights.max() > weights.min()


def test_the_lorentzian_is_an_inverse_square():
    distance = torch.linspace(0, 8, 100, dtype=torch.float64)
    assert_close(lorentzian_well(distance, 3.0, 0.25), inverse_square_well(distance, 3.0 / 0.25, 1 / 0.25))


def test_the_stated_form_takes_any_well():
    query, key, _ = random_qkv()
    assert_close(energy_well_scores(query, key, torch.ones_like), -pairwise_distances(query, key))


def test_the_field_takes_any_well():
    """The logarithm of what a function of a distance returns, which is -∞ where that rounds to 0."""
    query, key, _ = random_qkv()
    distance = pairwise_distances(query, key)
    assert_close(energy_well_scores(query, key, lambda d: 1 / (1 + d), form="field"), -distance.log1p())
    scores = energy_well_scores(query, key, lambda d, alpha: torch.exp(-alpha * d), form="field", alpha=2.0)
    assert_close(scores, -2 * distance)
    assert (energy_well_scores(query, 1e3 * key, lambda d: torch.exp(-d), form="field") == -math.inf).all()


@pytest.mark.parametrize("form", ["gradient", "field"])
def test_a_well_with_a_number_fixed_is_still_that_well(form):
    """In the field form its logarithm is exact too: at distance 20 the energy is 0 in float32."""
    query, key = torch.zeros(1, 1, 1, 3), torch.full((1, 1, 1, 3), 20.0)
    sharp = partial(gaussian_well, alpha=0.7)
    assert_close(energy_well_scores(query, key, sharp, form=form).item(), -840.0 if form == "field" else 0.0)
    far = partial(lorentzian_well, alpha=0.7)
    expected = energy_well_scores(query, key, lorentzian_well, form=form, alpha=0.7, weight=3.0)
    assert_close(energy_well_scores(query, key, far, form=form, weight=3.0), expected)
    assert_close(energy_well_scores(query, key, far, form=form, weight=3.0, alpha=0.7), expected)


@pytest.mark.parametrize("form", ["gradient", "field"])
def test_energy_well_scores_keep_the_dtype(form):
    query, key = (x.bfloat16() for x in random_qkv()[:2])
    assert energy_well_scores(query, key, lorentzian_well, form=form).dtype == torch.bfloat16


def test_energy_well_scores_refuse():
    query, key, _ = random_qkv()
    with pytest.raises(ValueError, match="'softmax'"):
        energy_well_scores(query, key, lorentzian_well, form="softmax")
    with pytest.raises(ValueError, match="head_dim 11, but key has head_dim 5"):
        energy_well_scores(query, key[..., :5], lorentzian_well)


# --- what a formula cannot serve ----------------------------------------------------------------------------------


META = torch.zeros(2, 3, 5, 7, device="meta")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rotate(torch.ones(3, 4, dtype=torch.int64)), r"floating-point .* got torch\.int64"),
        (lambda: rotate(torch.ones(4)), r"got torch\.float32 of shape \(4,\)"),
        (lambda: causal_mask(-1), "got -1 queries and -1 keys"),
        (lambda: padding_mask(torch.tensor([True, False]), 3), r"integers, got torch\.bool"),
        (lambda: masked_softmax(torch.ones(5, 7, dtype=torch.int64)), r"floating-point dtype, got torch\.int64"),
        (lambda: masked_softmax(torch.zeros(5, 7), META[0, 0].bool()), "attn_mask is on meta, .* on cpu"),
        (lambda: attend(torch.zeros(2, 3, 5, 7), torch.zeros(1, 3, 7, 11)), r"\(2, 3, 5, 7\) and \(1, 3, 7, 11\)"),
        (lambda: attend(torch.zeros(2, 3, 5, 7), torch.zeros(7)), r"\(2, 3, 5, 7\) and \(7,\)"),
        (lambda: attend(torch.zeros(5, 7), torch.zeros(7, 3), dropout_p=math.nan), r"dropout .* \[0, 1\], got nan"),
        (lambda: attend(torch.zeros(5, 7), torch.zeros(7, 3), dropout_p=1.5), r"dropout .* \[0, 1\], got 1\.5"),
        (lambda: dot_product_scores(torch.zeros(2, 3, 5, 7), META), "on one device, got cpu and meta"),
        (lambda: dot_product_scores(torch.zeros(5, 0), torch.zeros(5, 0)), r"D of 1 or more, got \(5, 0\)"),
        (
            lambda: distance_biased_scores(torch.zeros(5, 7), torch.zeros(5, 7), torch.zeros(1)),
            r"without heads, \(5, 7\)",
        ),
        (lambda: additive_scores(torch.zeros(5, 7), torch.zeros(5, 7), torch.zeros(1, 7)), r"query of \(5, 7\)"),
        (
            lambda: additive_scores(*torch.zeros(2, 1, 3, 5, 7), torch.zeros(3, 7).double()),
            r"query and weight must share .* torch\.float32 and torch\.float64",
        ),
        (
            lambda: separable_additive_scores(*torch.zeros(2, 1, 3, 5, 7), META[0, 0, :3]),
            "query and weight must be on one device, got cpu and meta",
        ),
    ],
)
def test_formulas_say_what_they_cannot_serve(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("size", "message"), [(0, "must be at least 1, got 0"), (1.5, "a whole number, got 1.5"), (math.nan, "got nan")]
)
def test_a_size_is_a_whole_number_from_one(size, message):
    with pytest.raises(InputError, match=f"embed_dim .*{message}"):
        check_sizes(num_heads=3, embed_dim=size)
