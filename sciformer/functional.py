"""Attention as pure functions: three lines, of which only the score ever changes.

    scores  = score(query, key)                    # the only part that differs between mechanisms
    weights = masked_softmax(scores, attn_mask)    # rows sum to 1; an all-masked row is 0
    output  = weights @ value

Each token is turned into three vectors. With its **query** it asks, with its **key** it answers the queries of others,
and its **value** is what it passes on. The score says how well a query and a key match, and a token's output is the
average of the values, weighted by the softmax of its scores. A head is one such attention among several, each with
queries, keys and values of its own. More than 500 lines, so that every formula of the course stands in one file.

Shape letters: B batch, H heads, L queries, S keys, D head_dim, E embed_dim. ``Float[Tensor, "*batch L D"]`` is a
jaxtyping annotation: ``*batch`` stands for any number of axes, such as B and H, and ``#S`` for S, or for 1 where the
axis broadcasts. The tests check annotations; outside the tests they cost nothing.
A mask is boolean and True means 'may attend', as in ``torch.nn.functional.scaled_dot_product_attention``.
A ``ValueError`` that the package raises is an :class:`InputError`.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

#: The two ways in which :func:`energy_well_scores` makes a score of an energy.
Form = Literal["gradient", "field"]

#: A mask of any shape that broadcasts to the scores, (B, H, L, S).
Mask = Bool[Tensor, "#S"] | Bool[Tensor, "#L #S"] | Bool[Tensor, "#H #L #S"] | Bool[Tensor, "#B #H #L #S"]


class InputError(ValueError):
    """What was given cannot be used; the message says what was given and what was wanted.

    The package raises it wherever it refuses an input on purpose. The command line, ``python -m sciformer``, prints it
    as one line; any other error is a bug and keeps its traceback.
    """


def check_sizes(least: int = 1, **sizes: int) -> None:
    """Refuse sizes that are no whole numbers or too small.

    Raises:
        ValueError: naming the size and its number.
    """
    for name, size in sizes.items():
        if not isinstance(size, Integral) or size < least:
            wanted = f"at least {least}" if size < least else "a whole number"
            raise InputError(f"{name} must be {wanted}, got {size}")


def check_dropout(dropout: float) -> None:
    """Refuse a dropout that is no probability.

    Raises:
        ValueError: naming the number.
    """
    if not 0.0 <= dropout <= 1.0:
        raise InputError(f"dropout must lie in [0, 1], got {dropout}")


def naive_attention(
    x: Float[Tensor, "*batch L E"], *, normalize: Literal["softmax", "none", "standardize"] = "softmax"
) -> tuple[Float[Tensor, "*batch L E"], Float[Tensor, "*batch L L"]]:
    r"""Attention without a single parameter: every token becomes a weighted sum of all tokens.

    .. math:: w'_{ij} = x_i \cdot x_j, \qquad y_i = \sum_j w_{ij} x_j

    ``normalize`` says how w follows from w':

    - ``"softmax"``: over j, so that each row is positive and sums to 1.
    - ``"none"``: w = w', so that y = (x xᵀ) x.
    - ``"standardize"``: each row is brought to mean 0 and standard deviation 1 by a layer norm without parameters. A
      row then sums to 0, and some of its weights are negative. (The norm adds 1e-5 to the variance, so the weights of a
      row that hardly varies stay small.)

    Returns:
        The output y and the weights w.

    Raises:
        ValueError: if x is not a floating-point (..., L, E) tensor, or ``normalize`` is none of the three.
    """
    if x.dim() < 2 or not x.is_floating_point():
        raise InputError(f"x must be a floating-point (..., L, E) tensor, got {x.dtype} of shape {tuple(x.shape)}")
    weights = x @ x.transpose(-2, -1)  # (..., L, L)
    if normalize == "softmax":
        weights = weights.softmax(dim=-1)
    elif normalize == "standardize":
        weights = F.layer_norm(weights, weights.shape[-1:])
    elif normalize != "none":
        raise InputError(f'normalize must be "softmax", "none" or "standardize", got {normalize!r}')
    return weights @ x, weights


def causal_mask(
    length: int, key_length: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "L S"]:
    """True where a query may attend: at itself and at what came before it.

    The queries are the last L of the S tokens: query i sits at position S - L + i, and the last query sees every key.
    With L = S this is the lower triangle; with L = 1, when a model writes one more token of a text, a row of True.

    Raises:
        ValueError: if there are more queries than keys, since the first queries would then see nothing, or a length is
            negative.
    """
    key_length = length if key_length is None else key_length
    if not 0 <= length <= key_length:
        raise InputError(f"a causal mask needs a key for each query, got {length} queries and {key_length} keys")
    ones = torch.ones(length, key_length, dtype=torch.bool, device=device)
    return ones.tril(diagonal=key_length - length)


def window_mask(
    length: int,
    key_length: int | None = None,
    *,
    window: int,
    query_offset: int = 0,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "L S"]:
    r"""True where a query and a key are no more than ``window`` positions apart: a band along the diagonal.

    .. math:: m_{ij} = [\, |i - j| \le w \,]

    A window of 0 leaves each token itself.

    Args:
        query_offset: position of the first query among the keys; S - L when a model goes on with a text.

    Raises:
        ValueError: if the queries reach past the keys, or a number is negative.
    """
    check_sizes(0, length=length, window=window, query_offset=query_offset)
    key_length = length if key_length is None else key_length
    if query_offset + length > key_length:
        raise InputError(f"{length} queries from position {query_offset} reach past {key_length} keys")
    i = torch.arange(query_offset, query_offset + length, device=device)
    return (i[:, None] - torch.arange(key_length, device=device)).abs() <= window


def padding_mask(lengths: Int[Tensor, "B"] | Sequence[int], max_length: int) -> Bool[Tensor, "B 1 1 S"]:
    """True at the real keys of each sequence, False at the padding behind them.

    Raises:
        ValueError: if ``lengths`` is not one whole number from 0 to ``max_length`` for each sequence.
    """
    lengths = torch.as_tensor(lengths)
    if lengths.dim() != 1 or lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise InputError(f"lengths must be (B,) integers, got {lengths.dtype} of shape {tuple(lengths.shape)}")
    if len(lengths) and not 0 <= lengths.min() <= lengths.max() <= max_length:
        raise InputError(f"lengths must lie in 0..{max_length}, got {lengths.min().item()}..{lengths.max().item()}")
    positions = torch.arange(max_length, device=lengths.device)
    return (positions < lengths[:, None])[:, None, None, :]


def check_alike(**tensors: Tensor) -> None:
    """Refuse tensors that are not on one device, or not of one floating-point dtype.

    Under autocast, torch's mixed precision, a linear map returns half precision, but a norm or a distance float32. When
    the two meet, the caller has made no mistake, and the next product brings them to one dtype. Autocast never makes
    float64, which beside another dtype is a mistake.

    Raises:
        ValueError: naming both devices or both dtypes.
    """
    (first, x), *others = tensors.items()
    for name, y in others:
        if x.device != y.device:
            raise InputError(f"{first} and {name} must be on one device, got {x.device} and {y.device}")
        same = x.dtype == y.dtype and x.is_floating_point()
        if not same and torch.amp.is_autocast_available(x.device.type) and torch.is_autocast_enabled(x.device.type):
            same = {x.dtype, y.dtype} <= {torch.float16, torch.bfloat16, torch.float32}
        if not same:
            raise InputError(f"{first} and {name} must share a floating-point dtype, got {x.dtype} and {y.dtype}")


def check_mask(attn_mask: Tensor, scores_shape: Sequence[int], device: torch.device) -> None:
    """Refuse a mask that is not boolean, not on the device of the scores, or does not broadcast to them.

    Raises:
        ValueError: naming the mask's dtype, both devices or both shapes.
    """
    if attn_mask.dtype != torch.bool:
        raise InputError(
            f"attn_mask must be boolean with True where a query may attend, got {attn_mask.dtype}; "
            "to add a bias to the scores, write a score that adds it"
        )
    if attn_mask.device != device:
        raise InputError(f"attn_mask is on {attn_mask.device}, but queries and keys are on {device}")
    wanted = tuple(scores_shape)
    given = tuple(attn_mask.shape)
    pairs = zip(reversed(given), reversed(wanted), strict=False)  # broadcasting compares from the last axis on
    if len(given) > len(wanted) or not all(g in (1, w) for g, w in pairs):
        raise InputError(f"attn_mask of shape {given} does not broadcast to scores of shape {wanted}")


def masked_softmax(
    scores: Float[Tensor, "*queries S"], attn_mask: Bool[Tensor, "*#queries #S"] | None = None
) -> Float[Tensor, "*queries S"]:
    r"""Softmax over the keys that a query may attend to.

    .. math:: w_{ij} = \frac{m_{ij} e^{s_{ij}}}{\sum_k m_{ik} e^{s_{ik}}}

    Rows sum to 1, but for a row with no key left, which is 0, as is its gradient (a plain softmax gives NaN for both).

    Raises:
        ValueError: if the scores are whole numbers, or the mask is not boolean, on another device or does not broadcast
            to the scores.
    """
    if not scores.is_floating_point():
        raise InputError(f"scores must have a floating-point dtype, got {scores.dtype}")
    if attn_mask is None:
        return scores.softmax(dim=-1)
    check_mask(attn_mask, scores.shape, scores.device)
    some_left = attn_mask.any(dim=-1, keepdim=True)  # (..., L, 1)
    # A hidden score becomes -inf; where a whole row is hidden, 0, since the softmax of -inf alone is NaN.
    fill = scores.new_zeros(some_left.shape).masked_fill(some_left, -math.inf)  # (..., L, 1)
    return torch.where(attn_mask, scores, fill).softmax(dim=-1) * some_left


#: What makes weights of scores: ``normalize(scores, attn_mask)``.
Normalizer = Callable[[Tensor, Tensor | None], Tensor]


def masked_standardize(
    scores: Float[Tensor, "*queries S"], attn_mask: Bool[Tensor, "*#queries #S"] | None = None
) -> Float[Tensor, "*queries S"]:
    r"""Each row brought to mean 0 and standard deviation 1, over the n keys that a query may attend to.

    .. math:: w_{ij} = m_{ij} \frac{s_{ij} - \mu_i}{\sqrt{\sigma_i^2 + 10^{-5}}}, \qquad
              \mu_i = \frac1n \sum_j m_{ij} s_{ij}, \qquad \sigma_i^2 = \frac1n \sum_j m_{ij} (s_{ij} - \mu_i)^2

    It stands where the softmax stands. Rows sum to 0, so that some of their weights are negative. A key is hidden by
    the mask or by a score of -∞: its weight is 0, and it counts in neither mean nor deviation. A row of equal scores, a
    row with one key and a row with none are 0, with finite gradients, since the variance is never divided by alone.

    Raises:
        ValueError: if the scores are whole numbers, or the mask is not boolean, on another device or does not broadcast
            to the scores.
    """
    if not scores.is_floating_point():
        raise InputError(f"scores must have a floating-point dtype, got {scores.dtype}")
    visible = scores != -math.inf
    if attn_mask is not None:
        check_mask(attn_mask, scores.shape, scores.device)
        visible = visible & attn_mask
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))  # squares of half precision would overflow
    count = visible.sum(dim=-1, keepdim=True).clamp(min=1)  # (..., L, 1)
    mean = wide.masked_fill(~visible, 0.0).sum(dim=-1, keepdim=True) / count
    centred = (wide - mean).masked_fill(~visible, 0.0)  # (..., L, S)
    variance = centred.square().sum(dim=-1, keepdim=True) / count
    return (centred / (variance + 1e-5).sqrt()).to(scores.dtype)


def attend(
    scores: Float[Tensor, "*batch L S"],
    value: Float[Tensor, "*batch S D"],
    *,
    attn_mask: Mask | None = None,
    dropout_p: float = 0.0,
    normalize: Normalizer = masked_softmax,
) -> tuple[Float[Tensor, "*batch L D"], Float[Tensor, "*batch L S"]]:
    """The lines that all mechanisms share: softmax the scores, then average the values.

    Under autocast scores and value may differ in dtype. On a GPU the softmax is then computed in float32, and the
    average of the values in half precision.

    Args:
        dropout_p: probability with which a weight is dropped; outside training the caller passes 0. The weights that
            are returned are those before dropout.
        normalize: what makes weights of scores.

    Returns:
        The output and the weights.

    Raises:
        ValueError: if scores and value differ in batch, number of keys, dtype or device, the mask does not fit, or
            ``dropout_p`` is no probability.
    """
    if value.dim() < 2 or scores.shape[:-2] != value.shape[:-2] or scores.shape[-1] != value.shape[-2]:
        raise InputError(
            f"scores must be (..., L, S) for a value of (..., S, D), got {tuple(scores.shape)} and {tuple(value.shape)}"
        )
    check_alike(scores=scores, value=value)
    check_dropout(dropout_p)
    weights = normalize(scores, attn_mask)  # (B, H, L, S)
    return F.dropout(weights, dropout_p) @ value, weights


def check_query_key(query: Tensor, key: Tensor) -> None:
    """Refuse queries and keys that cannot be compared.

    Raises:
        ValueError: naming both shapes, both dtypes or both devices.
    """
    check_alike(query=query, key=key)
    if query.dim() < 2 or query.dim() != key.dim() or query.shape[-1] == 0:
        raise InputError(
            "query and key must be (B, H, L, D) and (B, H, S, D) with D of 1 or more, "
            f"got {tuple(query.shape)} and {tuple(key.shape)}"
        )
    if query.shape[-1] != key.shape[-1]:
        raise InputError(f"query has head_dim {query.shape[-1]}, but key has head_dim {key.shape[-1]}")
    if query.shape[:-2] != key.shape[:-2]:
        raise InputError(f"query has batch and heads {tuple(query.shape[:-2])}, but key has {tuple(key.shape[:-2])}")


def dot_product_scores(
    query: Float[Tensor, "*batch L D"], key: Float[Tensor, "*batch S D"], *, scale: float | None = None
) -> Float[Tensor, "*batch L S"]:
    r"""Scaled dot product.

    .. math:: s_{ij} = q_i \cdot k_j / \sqrt{D}

    For independent queries and keys whose entries have mean 0 and variance 1, the product has variance D; the scale
    brings it back to 1. Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.1.

    Args:
        scale: the factor in place of 1/√D.

    Raises:
        ValueError: if query and key differ in batch, heads, head_dim or dtype.
    """
    check_query_key(query, key)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return (query * scale) @ key.transpose(-2, -1)  # L × D numbers are scaled rather than L × S


def rotate(x: Float[Tensor, "*batch L D"], *, offset: int = 0, base: float = 10_000.0) -> Float[Tensor, "*batch L D"]:
    r"""Rotary positions: turn each pair of features by an angle that grows with the token's position.

    .. math:: \begin{pmatrix} y_m \\ y_{m+D/2} \end{pmatrix} =
              \begin{pmatrix} \cos tω_m & -\sin tω_m \\ \sin tω_m & \cos tω_m \end{pmatrix}
              \begin{pmatrix} x_m \\ x_{m+D/2} \end{pmatrix}, \qquad ω_m = \text{base}^{-2m/D}

    Here t is the position. The dot product of two turned vectors depends on their contents and on the difference of
    their positions, not on the positions themselves. Source: Su et al. 2021, arXiv:2104.09864, section 3.2; there
    feature 2m is paired with 2m + 1, here m with m + D/2.

    Args:
        offset: position of the first token.

    Raises:
        ValueError: if D is odd, since features turn in pairs, or x is not a floating-point (..., L, D) tensor.
    """
    if x.dim() < 2 or not x.is_floating_point():
        raise InputError(f"x must be a floating-point (..., L, D) tensor, got {x.dtype} of shape {tuple(x.shape)}")
    L, D = x.shape[-2:]
    if D % 2:
        raise InputError(f"rotary positions turn pairs of features, got an odd head_dim {D}")
    dtype = torch.promote_types(x.dtype, torch.float32)  # a position needs more than the 8 bits of bfloat16
    position = torch.arange(offset, offset + L, dtype=dtype, device=x.device)
    frequency = base ** (-torch.arange(0, D, 2, dtype=dtype, device=x.device) / D)
    angle = position[:, None] * frequency  # (L, D / 2)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


def steps_between(
    length: int,
    key_length: int,
    *,
    query_offset: int = 0,
    width: int | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "A L S"]:
    """How many steps a key lies to the left and to the right of a query; on a grid also above and below it.

    Each direction, left, right, above or below, is a side, and there are A of them. A key that lies to the left is 0
    steps to the right. So the sum over all sides is the distance: ``|i - j|`` in a sequence; on a grid the number of
    rows plus the number of columns, the Manhattan distance.

    Args:
        query_offset: position of the first query among the keys.
        width: length of a row, if the tokens are a grid that is read row by row. The sides are then left, right, above
            and below, otherwise left and right.

    Returns:
        Whole numbers in float32, which holds them exactly up to 2²⁴.

    Raises:
        ValueError: if the queries reach past the keys, or a row has no token.
    """
    if not 0 <= query_offset <= key_length - length:
        raise InputError(f"{length} queries from position {query_offset} reach past {key_length} keys")
    if width is not None and width < 1:
        raise InputError(f"width must be at least 1, got {width}")
    i = torch.arange(query_offset, query_offset + length, device=device)[:, None]  # (L, 1)
    j = torch.arange(key_length, device=device)  # (S,)
    # How far the key lies ahead, (L, S): in the sequence, or first along the row and then in rows.
    ahead = [j - i] if width is None else [j % width - i % width, j // width - i // width]
    return torch.stack([side.clamp(min=0) for step in ahead for side in (-step, step)]).float()


def check_strength(strength: Tensor, query: Tensor, num_sides: int) -> None:
    """Refuse slopes that are neither (H,) nor (H, A).

    Raises:
        ValueError: naming the shape given and those that fit.
    """
    if query.dim() < 3:
        raise InputError(f"slopes are one for each head, got a query without heads, {tuple(query.shape)}")
    H = query.shape[-3]
    if tuple(strength.shape) not in ((H,), (H, num_sides)):
        raise InputError(
            f"strength must be ({H},) or ({H}, {num_sides}) for {H} heads and {num_sides} sides, "
            f"got {tuple(strength.shape)}"
        )


def distance_biased_scores(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    strength: Float[Tensor, "H"] | Float[Tensor, "H A"],
    *,
    query_offset: int = 0,
    width: int | None = None,
) -> Float[Tensor, "B H L S"]:
    r"""Scaled dot product minus a penalty that grows with the distance between tokens.

    .. math:: s_{ij} = q_i \cdot k_j / \sqrt{D} - \lambda_h |i - j|

    λ = 0 is plain dot-product attention, and a negative λ seeks far tokens. A head may have one slope λ for both sides,
    or one for keys to the left (j < i) and another for keys to the right (j > i); causal attention sees only the left.
    With one slope it is a symmetric, learnable cousin of ALiBi (Press et al. 2022, arXiv:2108.12409).

    Args:
        strength: λ, (H,), or (H, 2) for left and right. On a grid (H,), or (H, 4) for left, right, above and below.
        query_offset: position of the first query among the keys.
        width: length of a row, if the tokens are an image that is read row by row. The distance is then rows plus
            columns.

    Raises:
        ValueError: if query and key do not fit each other, the queries reach past the keys, since ``|i - j|`` then
            has no meaning, or ``strength`` does not fit the heads and sides.
    """
    scores = dot_product_scores(query, key)  # (B, H, L, S)
    L, S = scores.shape[-2:]
    steps = steps_between(L, S, query_offset=query_offset, width=width, device=query.device)  # (A, L, S)
    check_strength(strength, query, len(steps))
    if strength.dim() == 1:  # one slope for the distance, whichever side it is to
        strength, steps = strength[:, None], steps.sum(dim=0, keepdim=True)
    sides = zip((-strength).unbind(dim=1), steps, strict=True)  # the sign is turned here, where there are few numbers
    bias = sum(slope[:, None, None] * side for slope, side in sides)  # (H, L, S), the same for the whole batch
    return (scores + bias).to(scores.dtype)  # in half precision the bias, float32, would widen the sum


def check_additive_weight(weight: Tensor, query: Tensor) -> None:
    """Refuse a weight that is not one number for each head and each of its dimensions.

    Raises:
        ValueError: naming both shapes, both dtypes or both devices.
    """
    check_alike(query=query, weight=weight)
    if query.dim() < 3 or tuple(weight.shape) != (query.shape[-3], query.shape[-1]):
        raise InputError(f"weight of shape {tuple(weight.shape)} is not (H, D) for a query of {tuple(query.shape)}")


def additive_scores(
    query: Float[Tensor, "B H L D"], key: Float[Tensor, "B H S D"], weight: Float[Tensor, "H D"]
) -> Float[Tensor, "B H L S"]:
    r"""Bahdanau's score: a network with one hidden layer looks at the query and the key together.

    .. math:: s_{ij} = w_h \cdot \tanh(q_i + k_j)

    The hidden layer of every pair is held at once, (B, H, L, S, D): D times the memory of the scores. tanh keeps a
    score within ``±sum(|w|)``. There is no √D to divide by, since w is learned and can start small enough. Source:
    Bahdanau, Cho and Bengio 2015, arXiv:1409.0473, appendix A.1.2, whose W_a s and U_a h are the query and the key
    here.

    Args:
        weight: w, one row for each head.

    Raises:
        ValueError: if query and key differ in batch, heads, head_dim or dtype, or ``weight`` does not fit them.
    """
    check_query_key(query, key)
    check_additive_weight(weight, query)
    hidden = (query[..., :, None, :] + key[..., None, :, :]).tanh()  # (B, H, L, S, D)
    return (hidden @ weight[:, None, :, None]).squeeze(-1)  # w is (H, 1, D, 1) here


def separable_additive_scores(
    query: Float[Tensor, "B H L D"], key: Float[Tensor, "B H S D"], weight: Float[Tensor, "H D"]
) -> Float[Tensor, "B H L S"]:
    r"""Additive attention with the tanh taken apart, so that no hidden layer is needed for each pair.

    .. math:: s_{ij} = w_h \cdot \tanh(q_i) + w_h \cdot \tanh(k_j)

    What follows: the query's term is the same for every key, and the softmax over the keys cancels it. **The attention
    does not depend on the query**, and no gradient reaches it. Without a mask all queries get the same output; causal,
    output i is a running mean of the values with the weights exp(w·tanh(k_j)). AFT-simple (Zhai et al. 2021,
    arXiv:2105.14103) is such a mean, too: there each feature of the key is a score of its own, and the query scales the
    result.

    Args:
        weight: w, one row for each head.

    Raises:
        ValueError: if query and key differ in batch, heads, head_dim or dtype, or ``weight`` does not fit them.
    """
    check_query_key(query, key)
    check_additive_weight(weight, query)
    from_query, from_key = (x.tanh() @ weight[:, :, None] for x in (query, key))  # (B, H, L, 1), (B, H, S, 1)
    return from_query + from_key.transpose(-2, -1)


def squared_distances(
    query: Float[Tensor, "*batch L D"], key: Float[Tensor, "*batch S D"]
) -> Float[Tensor, "*batch L S"]:
    r"""Squared Euclidean distances, all with one matrix product.

    .. math:: d_{ij}^2 = \|q_i\|^2 + \|k_j\|^2 - 2\, q_i \cdot k_j
              = [-2 q_i,\ \|q_i\|^2,\ 1] \cdot [k_j,\ 1,\ \|k_j\|^2]

    Computing the differences :math:`q_i - k_j` themselves would take D times the memory, and adding the three terms one
    after the other would take a pass over all pairs for each of them.

    The price is rounding. The error of d² grows with the lengths of q and k, not with d: it is about
    √D · ε · :math:`(\|q_i\|^2 + \|k_j\|^2)`, where ε is the machine epsilon of the dtype (the errors of D terms partly
    cancel, so that their sum grows like √D: Higham and Mary 2019, SIAM J. Sci. Comput. 41(5)). A d² within twice that
    error is set to 0, and so is its gradient. So a token is at distance 0 from itself, and no d² is negative.

    Returns:
        d², in float32 if the inputs are in half precision, which a difference of large numbers would not survive.

    Raises:
        ValueError: if query and key differ in batch, heads, head_dim or dtype.
    """
    check_query_key(query, key)
    dtype = torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):  # it would compute the product in half precision
        query, key = query.to(dtype), key.to(dtype)
        q_squared, k_squared = (x.square().sum(dim=-1, keepdim=True) for x in (query, key))  # (B, H, L or S, 1)
        q_features = torch.cat((-2 * query, q_squared, torch.ones_like(q_squared)), dim=-1)  # (B, H, L, D + 2)
        k_features = torch.cat((key, torch.ones_like(k_squared), k_squared), dim=-1)  # (B, H, S, D + 2)
        squared = q_features @ k_features.transpose(-2, -1)  # (B, H, L, S)
    # Where d² is this small, ‖k‖ is close to ‖q‖, and the error is about 2 √D ε ‖q‖². Twice that leaves a margin.
    rounding = 4 * math.sqrt(query.shape[-1]) * torch.finfo(dtype).eps * q_squared
    return squared.masked_fill(squared <= rounding, 0.0)


def safe_root(squared: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Square root whose gradient at 0 is 0. That of the plain root is infinite there, and 0 times infinity is NaN."""
    zero = squared == 0
    return squared.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0)


def pairwise_distances(
    query: Float[Tensor, "*batch L D"], key: Float[Tensor, "*batch S D"]
) -> Float[Tensor, "*batch L S"]:
    r"""Euclidean distance of every query to every key, exactly 0 between equal vectors.

    .. math:: d_{ij} = \|q_i - k_j\|

    The root of :func:`squared_distances`, whose rounding it inherits: d is off by at most the root of the error of d².
    At d = 0, where a root has no derivative, the gradient is 0.

    Raises:
        ValueError: if query and key differ in batch, heads, head_dim or dtype.
    """
    return safe_root(squared_distances(query, key))


#: A parameter of a well: one number, or a tensor that broadcasts to the distances.
WellParameter = float | Float[Tensor, "*#pairs"]


class Well:
    """A formula for the energy E(d) that a query feels at distance d from a key.

    Each key is the middle of a well, and E says how strongly a query feels it. It is not a physicist's potential: it is
    positive and largest in the middle, at d = 0. :func:`energy_well_scores` makes a score of it in one of two forms. In
    the ``"field"`` form a query attends to a key in proportion to E(d). In the ``"gradient"`` form it attends less to a
    key where d · E(d) is larger; the ring of distances around the largest d · E(d) is called the moat.

    Each well is a subclass with one instance, which is called like a function: ``gaussian_well(distance, alpha)``. A
    parameter is one number, or a tensor that broadcasts to the distances. The attributes tell
    :class:`~sciformer.scores.EnergyWellScore` what it has to learn for this formula and where to start.

    Attributes:
        name: the well's name in ``EnergyWellScore(well=...)``.
        takes: what the formula takes beside the distance: ``"alpha"``, ``"weight"``, ``"attn_mask"``.
        power: in a formula with an α, the p of its α dᵖ.
        moat: in a formula with an α, the value of α dᵖ in the middle of the moat, where d · E(d) is largest.
    """

    name: str
    takes: tuple[str, ...]
    power: int
    moat: float

    def __call__(self, distance: Float[Tensor, "*pairs"], *args: Any, **parameters: Any) -> Float[Tensor, "*pairs"]:
        raise NotImplementedError

    def log_energy(
        self, squared_distance: Float[Tensor, "*pairs"], *args: Any, **parameters: Any
    ) -> Float[Tensor, "*pairs"]:
        """The logarithm of E as a function of d², finite also where E rounds to 0.

        A term that is the same for all keys of a query may be left out, since the softmax cancels it.
        """
        raise NotImplementedError


class GaussianWell(Well):
    r"""Energy that falls faster than any power.

    .. math:: E(d) = e^{-\alpha d^2}

    As a kernel, a function that weights examples by their distance, it is the oldest attention there is: Nadaraya 1964,
    Watson 1964.

    Args:
        alpha: sharpness, above 0, in 1/distance². At d = 1/√α the energy has fallen to 1/e.
    """

    name, takes, power, moat = "gaussian", ("alpha",), 2, 0.5

    def __call__(self, distance: Float[Tensor, "*pairs"], alpha: WellParameter) -> Float[Tensor, "*pairs"]:
        return torch.exp(-alpha * distance.square())

    def log_energy(self, squared_distance: Float[Tensor, "*pairs"], alpha: WellParameter) -> Float[Tensor, "*pairs"]:
        return -alpha * squared_distance


class InverseSquareWell(Well):
    r"""Energy that falls with the square of the distance, as the force of gravity does.

    .. math:: E(d) = \frac{w}{d^2 + \varepsilon}

    Args:
        weight: importance w of the token in the well's middle, above 0.
        eps: keeps the energy finite in the middle: E(0) = w/ε.
    """

    name, takes = "inverse_square", ("weight",)

    def __call__(
        self, distance: Float[Tensor, "*pairs"], weight: WellParameter = 1.0, eps: float = 1e-6
    ) -> Float[Tensor, "*pairs"]:
        return weight / (distance.square() + eps)

    def log_energy(
        self, squared_distance: Float[Tensor, "*pairs"], weight: WellParameter = 1.0, eps: float = 1e-6
    ) -> Float[Tensor, "*pairs"]:
        return (weight / (squared_distance + eps)).log()


class SoftmaxExponentialWell(Well):
    r"""Each token's share of all the energy at the query.

    .. math:: E(d_{ij}) = \frac{e^{-\alpha d_{ij}}}{\sum_k m_{ik} e^{-\alpha d_{ik}}}

    The sum runs over the keys, the last axis, and only over those that the query may attend to. A sum over all keys
    would let a causal query see what comes after it. ``log_energy``, :math:`-\alpha d`, needs neither the sum nor the
    mask: the sum is the same for a whole row, and a softmax cancels it. ``moat`` is that of the numerator alone.

    Args:
        alpha: sharpness, above 0, in 1/distance.
        attn_mask: m, True where a query may attend.

    Raises:
        ValueError: if the mask is not boolean or does not broadcast to the distances.
    """

    name, takes, power, moat = "softmax_exponential", ("alpha", "attn_mask"), 1, 1.0

    def __call__(
        self,
        distance: Float[Tensor, "*pairs"],
        alpha: WellParameter,
        *,
        attn_mask: Bool[Tensor, "*#pairs"] | None = None,
    ) -> Float[Tensor, "*pairs"]:
        return masked_softmax(-alpha * distance, attn_mask)

    def log_energy(
        self,
        squared_distance: Float[Tensor, "*pairs"],
        alpha: WellParameter,
        *,
        attn_mask: Bool[Tensor, "*#pairs"] | None = None,
    ) -> Float[Tensor, "*pairs"]:
        return -alpha * safe_root(squared_distance)


class LorentzianWell(Well):
    r"""Energy with a heavy tail.

    .. math:: E(d) = \frac{w}{1 + \alpha d^2}

    As a kernel with α = 1 it is Student's t with one degree of freedom, by which t-SNE keeps far points apart (van der
    Maaten and Hinton 2008, section 3.3). It is the inverse square with ε = 1/α and w/α in place of w.

    Args:
        weight: importance w of the token in the well's middle, above 0.
        alpha: sharpness, above 0, in 1/distance². At d = 1/√α the energy has fallen to a half.
    """

    name, takes, power, moat = "lorentzian", ("weight", "alpha"), 2, 1.0

    def __call__(
        self, distance: Float[Tensor, "*pairs"], weight: WellParameter = 1.0, alpha: WellParameter = 1.0
    ) -> Float[Tensor, "*pairs"]:
        return weight / (1 + alpha * distance.square())

    def log_energy(
        self, squared_distance: Float[Tensor, "*pairs"], weight: WellParameter = 1.0, alpha: WellParameter = 1.0
    ) -> Float[Tensor, "*pairs"]:
        return (weight / (1 + alpha * squared_distance)).log()


gaussian_well, inverse_square_well = GaussianWell(), InverseSquareWell()
softmax_exponential_well, lorentzian_well = SoftmaxExponentialWell(), LorentzianWell()


def unpack_partial(well: Callable[..., Tensor]) -> tuple[Callable[..., Tensor], dict[str, Any]]:
    """The formula and the parameters that a ``functools.partial`` fixes by keyword; else the well itself and none."""
    return (well.func, well.keywords) if isinstance(well, partial) and not well.args else (well, {})


def energy_well_scores(
    query: Float[Tensor, "*batch L D"],
    key: Float[Tensor, "*batch S D"],
    well: Callable[..., Tensor],
    *,
    form: Form = "gradient",
    **parameters: Any,
) -> Float[Tensor, "*batch L S"]:
    r"""Every key is the middle of an energy well, and the score depends on how much of it a query feels.

    .. math:: \text{"gradient": } s_{ij} = -d_{ij}\, E(d_{ij}), \qquad
              \text{"field": } s_{ij} = \log E(d_{ij}), \qquad d_{ij} = \|q_i - k_j\|

    - ``"gradient"`` is the form in which energy wells were proposed: weights in proportion to
      :math:`e^{-\|g\| E}`. The proposal calls :math:`g = q_i - k_j` a gradient; it is that of :math:`d^2 / 2`, not of
      E. The form is not local: d · E is 0 at d = 0, rises to one maximum and falls again, so that a token far away gets
      the same weight as one at distance 0. Around each query lies a moat, whose tokens get the least weight; the middle
      of the Gaussian's lies at d = 1/√(2α).
    - ``"field"`` is kernel attention: weights in proportion to E. It is local. The Gaussian is the kernel of Nadaraya
      and Watson (both 1964), the Lorentzian the Student kernel of t-SNE, the softmax-exponential the Laplace kernel.

    Args:
        well: a function of a distance. For a :class:`Well`, or a ``functools.partial`` of one, log E is exact. For any
            other function it is the logarithm of what the function returns, which is -∞ where that underflows to 0.
        parameters: what the well takes beside the distance. They broadcast to (B, H, L, S): an ``alpha`` for each head
            is (H, 1, 1), a ``weight`` for each key (B, H, 1, S).

    Raises:
        ValueError: if query and key do not fit each other, or ``form`` is neither of the two.
    """
    well, fixed = unpack_partial(well)
    parameters = fixed | parameters
    if form == "gradient":
        distance = pairwise_distances(query, key)  # (B, H, L, S)
        scores = -distance * well(distance, **parameters)
    elif form == "field" and isinstance(well, Well):
        scores = well.log_energy(squared_distances(query, key), **parameters)
    elif form == "field":
        scores = well(pairwise_distances(query, key), **parameters).log()
    else:
        raise InputError(f'form must be "gradient" or "field", got {form!r}')
    return scores.to(query.dtype)
