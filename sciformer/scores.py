"""The scores as modules: each holds what its formula learns, and all keep the contract of :class:`Score`.

More than 500 lines, so that every score stands in one file, those that wrap another last.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sciformer.functional import (
    Form,
    InputError,
    Mask,
    Well,
    additive_scores,
    check_query_key,
    check_sizes,
    distance_biased_scores,
    dot_product_scores,
    energy_well_scores,
    gaussian_well,
    inverse_square_well,
    lorentzian_well,
    masked_softmax,
    masked_standardize,
    rotate,
    separable_additive_scores,
    softmax_exponential_well,
    unpack_partial,
    window_mask,
)


class Score(nn.Module):
    """The contract of a score: ``Score(num_heads, head_dim)`` maps queries and keys to scores.

    A score owns everything up to the softmax's input, the scale included. So a mechanism that scales in another way is
    another score, and nobody has to copy the attention around it. Those below derive from this class; any other module
    that keeps the contract serves as well. ``num_heads`` and ``head_dim`` say how large the parameters are; a score
    that learns nothing has no use for them.

    A score works in every model as soon as it is written. :data:`SCORES` lists the ones that the course compares, and a
    fast path, where somebody writes one (``sciformer.fast``), only computes the same output sooner. Its ``normalize``
    makes weights of its scores: the softmax, unless a score says otherwise.

    Raises:
        ValueError: if ``num_heads`` or ``head_dim`` is below 1.

    Attributes:
        compares_positions: whether the score compares the positions of query and key. Both must then be tokens of one
            sequence. Such a score cannot serve cross-attention, where the queries come from one sequence (the target)
            and the keys from another (the source).
    """

    compares_positions = False
    normalize = staticmethod(masked_softmax)

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        check_sizes(num_heads=num_heads, head_dim=head_dim)
        self.num_heads, self.head_dim = num_heads, head_dim

    def check_heads(self, query: Tensor) -> None:
        """Refuse queries of other heads than those that the score was made for.

        Raises:
            ValueError: naming the heads that it has, and the shape given.
        """
        if tuple(query.shape[-3::2]) != (self.num_heads, self.head_dim):
            raise InputError(
                f"the score has {self.num_heads} heads of head_dim {self.head_dim}, got a query of {tuple(query.shape)}"
            )

    def own_mask(
        self, length: int, key_length: int, *, query_offset: int = 0, device: torch.device | None = None
    ) -> Mask | None:
        """True where the score is not -inf, (L, S), if it hides keys by their positions; None if it hides none."""
        return None

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Mask | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        """The score of every query against every key, in their dtype. Masking comes later, with the softmax.

        Args:
            attn_mask: True where a query may attend; a causal mask is part of it. A score needs it only if its formula
                runs over all keys, as a sum does: the sum must leave out hidden keys. Every other score ignores it.
            query_offset: position of the first query among the keys, which are all tokens of the sequence up to now. In
                causal attention the queries are the last L of them, so that it is S - L: 0 for a whole text, and more
                when a model goes on with a text. A score that does not compare positions ignores it.
        """
        raise NotImplementedError


#: How a score is made: ``recipe(num_heads, head_dim)``. Models take the recipe, not an instance (a class such as
#: ``DotProductScore``, or ``functools.partial(...)`` of one), so that layers never share a parameter by accident.
ScoreRecipe = Callable[[int, int], nn.Module]


class DotProductScore(Score):
    """:func:`~sciformer.functional.dot_product_scores` as a module; it has nothing to learn.

    Args:
        scale: the factor in place of 1/√head_dim.
    """

    def __init__(self, num_heads: int, head_dim: int, *, scale: float | None = None):
        super().__init__(num_heads, head_dim)
        self.scale = head_dim**-0.5 if scale is None else scale

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Mask | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        self.check_heads(query)
        return dot_product_scores(query, key, scale=self.scale)


class DistanceBiasedScore(Score):
    r""":func:`~sciformer.functional.distance_biased_scores` with a trainable slope λ for each head.

    .. math:: s_{ij} = q_i \cdot k_j / \sqrt{D} - \lambda_h |i - j|

    Nothing holds λ above 0: training may turn a head to far tokens. Watch ``strength``.

    Among S tokens, causal attention in float32 or bfloat16 rounds a score by ``|λ|`` S · 2⁻²⁵ at most, beside what the
    dot product is rounded by: at 20,000 tokens and λ = 0.5 that moves a weight by 0.06 %. With ``need_weights`` in half
    precision the scores themselves are rounded to it, by 2⁻⁹ of ``|λ (i - j)|`` in bfloat16.

    Args:
        each_side: whether left and right, and on a grid above and below, have slopes of their own. With one slope for
            all and no causal mask, a reversed sequence gets the same weights in reverse: attention cannot tell them
            apart.
        shared: whether all heads have the same slopes, as in the first model with a learned distance bias.
        start: λ before training: one number, or numbers that broadcast to ``strength``, or ``"geometric"`` for ALiBi's
            slopes 2^(-8h/H) for h = 1, ..., H, with which every head reaches another distance (Press et al. 2022,
            section 3).
        width: length of a row, if the tokens are an image that is read row by row.

    Raises:
        ValueError: if ``start`` does not broadcast to ``strength``, or ``width`` is below 1.
    """

    compares_positions = True

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        each_side: bool = False,
        shared: bool = False,
        start: float | Sequence[Any] | Literal["geometric"] = 0.1,
        width: int | None = None,
    ):
        super().__init__(num_heads, head_dim)
        check_sizes(width=1 if width is None else width)
        self.width = width
        rows = 1 if shared else num_heads
        shape = (rows, 2 if width is None else 4) if each_side else (rows,)
        if start == "geometric":
            slopes = 2 ** (-8 * torch.arange(1, num_heads + 1) / num_heads)
            slopes = slopes[:, None] if each_side else slopes
        else:
            slopes = torch.as_tensor(start, dtype=torch.get_default_dtype())
        try:
            self.strength = nn.Parameter(slopes.expand(shape).clone())
        except RuntimeError as error:
            raise InputError(f"start of shape {tuple(slopes.shape)} does not broadcast to strength {shape}") from error

    @property
    def slopes(self) -> Float[Tensor, "H"] | Float[Tensor, "H A"]:
        """``strength``, with a row for each head also where they share one."""
        return self.strength.expand(self.num_heads, *self.strength.shape[1:])

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Mask | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        self.check_heads(query)
        return distance_biased_scores(query, key, self.slopes, query_offset=query_offset, width=self.width)


def additive_weight(num_heads: int, head_dim: int) -> nn.Parameter:
    """A trainable (H, D) weight, drawn so that scores differ between keys about as much as scaled dot products do.

    Its standard deviation is 1/√D times torch's gain for tanh, 5/3. For queries and keys of variance 1, tanh(q + k) has
    variance 0.52 and the additive score 1.4; tanh(k) has 0.39, and the key's term of the separable score 1.1.
    """
    return nn.Parameter(torch.randn(num_heads, head_dim) * nn.init.calculate_gain("tanh") * head_dim**-0.5)


class AdditiveScore(Score):
    r""":func:`~sciformer.functional.additive_scores` with a trainable weight w, (H, D).

    .. math:: s_{ij} = w_h \cdot \tanh(q_i + k_j)

    w starts as in :func:`additive_weight`.
    """

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__(num_heads, head_dim)
        self.weight = additive_weight(num_heads, head_dim)

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Mask | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        self.check_heads(query)
        return additive_scores(query, key, self.weight)


class SeparableAdditiveScore(Score):
    r""":func:`~sciformer.functional.separable_additive_scores` with a trainable weight w, (H, D).

    .. math:: s_{ij} = w_h \cdot \tanh(q_i) + w_h \cdot \tanh(k_j)

    w starts as in :func:`additive_weight`. The softmax cancels the query's term, so that attention does not depend on
    the query. From a target to a source, every position of the target then sees the same summary of the source.
    """

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__(num_heads, head_dim)
        self.weight = additive_weight(num_heads, head_dim)

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Mask | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        self.check_heads(query)
        return separable_additive_scores(query, key, self.weight)


#: Every well by name.
WELLS = {well.name: well for well in (gaussian_well, inverse_square_well, softmax_exponential_well, lorentzian_well)}


class EnergyWellScore(Score):
    r""":func:`~sciformer.functional.energy_well_scores` with what the well's formula has to learn.

    - ``alpha``, the sharpness α of each head, where there is one: all wells but the inverse square. It is learned as
      log α, so that α stays above 0 and a step of training changes it by a fraction of itself, which suits a number
      whose size depends on the unit of distance.
    - ``importance``, a vector u for each head, where a token has a weight: inverse square and Lorentzian. Key j weighs
      :math:`w_j = e^{u \cdot k_j}`, above 0, and u starts at 0, so that all weigh 1.

    Where α starts decides whether anything is learned. For queries and keys of independent entries with mean 0 and
    variance 1, d² is about 2D with a standard deviation of √(8D); for D = 32, d is about 8. There a Gaussian with α = 1
    has the energy e⁻⁶⁴: in the ``"gradient"`` form all scores are 0, and in the ``"field"`` form the two nearest of 256
    keys get nearly all the weight. So by default:

    - ``"gradient"``: the moat lies at the distance √(8D), twice the usual one. Most tokens are then inside it, where
      the nearer of two has the higher weight. (The inverse square has no α. Its moat lies at √ε, so that tokens are
      outside it, where the farther of two has the higher weight.)
    - ``"field"``: the scores of such keys have a standard deviation of about 1, as scaled dot products have. The
      Gaussian's score is -α d², and d² has the standard deviation √(8D). The softmax-exponential's score is -α d, and d
      has the standard deviation 1. The Lorentzian starts as the Gaussian does, but its score is -log(1 + α d²), whose
      standard deviation is only 0.2 for D = 32.

    Args:
        well: a name among :data:`WELLS`, a :class:`~sciformer.functional.Well`, a ``functools.partial`` of one, whose
            fixed parameters are not learned, or any other function of a distance, which has nothing to learn and is
            given no mask.
        form: ``"gradient"``, as energy wells were proposed, or ``"field"``, kernel attention.
        start: α before training, above 0: one number or one for each head. By default

            ==============  ===========  ===================  ===========
            form            Gaussian     softmax-exponential  Lorentzian
            ==============  ===========  ===================  ===========
            ``"gradient"``  1/(16D)      1/√(8D)              1/(8D)
            ``"field"``     1/√(8D)      1                    1/√(8D)
            ==============  ===========  ===================  ===========

    Raises:
        ValueError: if the well or the form is unknown, ``start`` is not above 0, is neither one number nor one for each
            head, or is given to a well without an α to learn.
    """

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        well: str | Callable[..., Tensor] = "gaussian",
        form: Form = "gradient",
        start: float | Sequence[float] | None = None,
    ):
        super().__init__(num_heads, head_dim)
        if not callable(well) and well not in WELLS:
            raise InputError(f"well must be a function of a distance or one of {', '.join(WELLS)}, got {well!r}")
        if form not in ("gradient", "field"):
            raise InputError(f'form must be "gradient" or "field", got {form!r}')
        self.well, self.form = WELLS[well] if isinstance(well, str) else well, form
        formula, fixed = unpack_partial(self.well)
        self.takes = set(formula.takes) - fixed.keys() if isinstance(formula, Well) else set()
        self.log_alpha = self.importance = None
        if "alpha" in self.takes:
            if start is None and isinstance(formula, Well):
                far = math.sqrt(8 * head_dim)  # twice the usual distance; also the standard deviation of d²
                start = formula.moat / far**formula.power if form == "gradient" else far ** (1 - formula.power)
            alpha = torch.as_tensor(start, dtype=torch.get_default_dtype())
            if alpha.shape not in ((), (num_heads,)) or not (alpha > 0).all():
                raise InputError(f"start must be above 0, one number or one for each of {num_heads} heads, got {start}")
            self.log_alpha = nn.Parameter(alpha.log().expand(num_heads).clone())
        elif start is not None:
            raise InputError(f"the {well} well has no alpha that could start at {start}")
        if "weight" in self.takes:
            self.importance = nn.Parameter(torch.zeros(num_heads, head_dim))

    @property
    def alpha(self) -> Float[Tensor, "H"] | None:
        """Sharpness of each head's well, or None where the formula has none."""
        return None if self.log_alpha is None else self.log_alpha.exp()

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Mask | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        self.check_heads(query)
        check_query_key(query, key)
        parameters: dict[str, Any] = {}
        alpha = self.alpha
        if alpha is not None:
            parameters["alpha"] = alpha[:, None, None]
        if self.importance is not None:
            parameters["weight"] = (key * self.importance[:, None]).sum(dim=-1)[..., None, :].exp()  # (B, H, 1, S)
        if "attn_mask" in self.takes:
            parameters["attn_mask"] = attn_mask
        return energy_well_scores(query, key, self.well, form=self.form, **parameters)


class WrappedScore(Score):
    """A score that is made of another: the keys that the other hides stay hidden, and weights are made as it says.

    Args:
        score: recipe for the other score.
    """

    def __init__(self, num_heads: int, head_dim: int, *, score: ScoreRecipe = DotProductScore):
        super().__init__(num_heads, head_dim)
        self.score = score(num_heads, head_dim)
        self.normalize = getattr(self.score, "normalize", masked_softmax)

    def own_mask(
        self, length: int, key_length: int, *, query_offset: int = 0, device: torch.device | None = None
    ) -> Mask | None:
        if not isinstance(self.score, Score):
            return None
        return self.score.own_mask(length, key_length, query_offset=query_offset, device=device)

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Mask | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        self.check_heads(query)
        return self.score(query, key, attn_mask=attn_mask, query_offset=query_offset)


class PreparedScore(WrappedScore):
    """Another score, of queries and keys that were changed first. What the change is, ``prepare`` says."""

    def prepare(
        self, query: Float[Tensor, "B H L D"], key: Float[Tensor, "B H S D"], query_offset: int = 0
    ) -> tuple[Float[Tensor, "B H L D"], Float[Tensor, "B H S D"]]:
        """The queries and keys that the other score sees."""
        raise NotImplementedError

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Mask | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        self.check_heads(query)
        query, key = self.prepare(query, key, query_offset)
        return self.score(query, key, attn_mask=attn_mask, query_offset=query_offset)


class RotaryScore(PreparedScore):
    r"""Any score of queries and keys that are turned by their positions.

    .. math:: s_{ij} = \text{score}(R_i q_i, R_j k_j)

    ``R`` is :func:`~sciformer.functional.rotate`. A dot product or a distance then knows the positions by i - j alone;
    in an additive score, with its tanh of the sum, i and j both count. Source: Su et al. 2021, arXiv:2104.09864.
    """

    compares_positions = True

    def prepare(
        self, query: Float[Tensor, "B H L D"], key: Float[Tensor, "B H S D"], query_offset: int = 0
    ) -> tuple[Float[Tensor, "B H L D"], Float[Tensor, "B H S D"]]:
        return rotate(query, offset=query_offset), rotate(key)  # keys count from 0


class NormalizedScore(PreparedScore):
    r"""Any score of queries and keys that are brought to length √D first ("QK-norm").

    .. math:: s_{ij} = \text{score}\left(\sqrt D \frac{q_i}{|q_i|}, \sqrt D \frac{k_j}{|k_j|}\right)

    A scaled dot product then stays within ±√D however large the weights grow, so that a higher learning rate is safe.
    Source: Henry et al. 2020, arXiv:2010.04245.
    """

    def prepare(
        self, query: Float[Tensor, "B H L D"], key: Float[Tensor, "B H S D"], query_offset: int = 0
    ) -> tuple[Float[Tensor, "B H L D"], Float[Tensor, "B H S D"]]:
        # Autocast on a GPU makes norms float32, but the dot product's fast path, one call of torch, needs queries, keys
        # and values of one dtype.
        return F.rms_norm(query, query.shape[-1:]).to(query.dtype), F.rms_norm(key, key.shape[-1:]).to(key.dtype)


class WindowedScore(WrappedScore):
    r"""Any score, cut off where a query and a key are more than ``window`` positions apart ("local attention").

    .. math:: s_{ij} = \begin{cases} \text{score}(q_i, k_j) & |i - j| \le w \\ -\infty & |i - j| > w \end{cases}

    The weights beyond the window are exactly 0, and attention does not compute them: time and memory grow with L · w,
    not with L². A layer looks w tokens far, n layers n · w. Source: Beltagy et al. 2020, arXiv:2004.05150, section 3.1.

    Args:
        window: how many positions a query may look to either side; in causal attention, back.
        score: recipe for the score inside the window.

    Raises:
        ValueError: if ``window`` is negative.
    """

    compares_positions = True

    def __init__(self, num_heads: int, head_dim: int, *, window: int, score: ScoreRecipe = DotProductScore):
        super().__init__(num_heads, head_dim, score=score)
        check_sizes(0, window=window)
        self.window = window

    def own_mask(
        self, length: int, key_length: int, *, query_offset: int = 0, device: torch.device | None = None
    ) -> Mask:
        near = window_mask(length, key_length, window=self.window, query_offset=query_offset, device=device)
        return both(near, super().own_mask(length, key_length, query_offset=query_offset, device=device))

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Mask | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        self.check_heads(query)
        near = self.own_mask(query.shape[-2], key.shape[-2], query_offset=query_offset, device=query.device)  # (L, S)
        visible = both(near, attn_mask)
        scores = self.score(query, key, attn_mask=visible, query_offset=query_offset)
        return scores.masked_fill(~near, -math.inf)


class StandardizedScore(WrappedScore):
    r"""Any score, whose rows are standardised where others pass through the softmax.

    .. math:: w_{ij} = \frac{s_{ij} - \mu_i}{\sqrt{\sigma_i^2 + 10^{-5}}}

    Mean μ and variance σ² are those of the keys that query i may attend to; see
    :func:`~sciformer.functional.masked_standardize`. Weights may be negative, a row sums to 0, and a query that sees
    only one key, as the first of a text does, has the output 0.
    """

    def __init__(self, num_heads: int, head_dim: int, *, score: ScoreRecipe = DotProductScore):
        super().__init__(num_heads, head_dim, score=score)
        self.normalize = masked_standardize


class KeyBiasScore(WrappedScore):
    r"""Any score and an in-context bias: how worth looking at a key is, whoever asks.

    .. math:: s_{ij} = \text{score}(q_i, k_j) + w_h \cdot k_j

    The bias is computed from the activations, where that of a :class:`TrainableMaskScore` is the same for every input.
    w, (H, D), starts at 0. To a dot product it adds nothing that queries with a bias of their own could not learn,
    since :math:`q_i \cdot k_j / \sqrt D + w \cdot k_j = (q_i + \sqrt D\, w) \cdot k_j / \sqrt D`: it is the vector u
    of Dai et al. 2019, arXiv:1901.02860, section 3.3.
    """

    def __init__(self, num_heads: int, head_dim: int, *, score: ScoreRecipe = DotProductScore):
        super().__init__(num_heads, head_dim, score=score)
        self.weight = nn.Parameter(torch.zeros(num_heads, head_dim))

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Mask | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        scores = super().forward(query, key, attn_mask=attn_mask, query_offset=query_offset)
        bias = (key * self.weight[:, None]).sum(dim=-1)  # (B, H, S)
        return (scores + bias[..., None, :]).to(scores.dtype)


class TrainableMaskScore(WrappedScore):
    r"""Any score, with a trainable number for each pair of positions.

    .. math:: \text{"additive": } s_{ij} = \text{score}(q_i, k_j) + M_{hij}, \qquad
              \text{"multiplicative": } s_{ij} = M_{hij}\, \text{score}(q_i, k_j)

    M, (H, max_length, max_length), starts at 0 where it is added and at 1 where it multiplies. No finite number hides a
    key: added or multiplied, it leaves a weight above 0. In place of a causal mask such a mask would leak the future,
    and the training loss of a language model would mean nothing. So, with ``is_causal``, the score itself is -∞ at
    every later key, also where attention is not asked to be causal. Without it the mask is for tokens that have no
    future, such as the patches of an image, and language models refuse it.

    Args:
        max_length: the longest sequence, in tokens.
        form: ``"additive"`` or ``"multiplicative"``.
        is_causal: whether the mask hides later keys.

    Raises:
        ValueError: if ``max_length`` is below 1 or ``form`` is neither; in a call, if the sequence is longer.
    """

    compares_positions = True

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        max_length: int,
        form: Literal["additive", "multiplicative"] = "additive",
        is_causal: bool = True,
        score: ScoreRecipe = DotProductScore,
    ):
        super().__init__(num_heads, head_dim, score=score)
        check_sizes(max_length=max_length)
        if form not in ("additive", "multiplicative"):
            raise InputError(f'form must be "additive" or "multiplicative", got {form!r}')
        self.form, self.is_causal = form, is_causal
        self.mask = nn.Parameter(torch.full((num_heads, max_length, max_length), float(form == "multiplicative")))

    def own_mask(
        self, length: int, key_length: int, *, query_offset: int = 0, device: torch.device | None = None
    ) -> Mask | None:
        inner = super().own_mask(length, key_length, query_offset=query_offset, device=device)
        if not self.is_causal:
            return inner
        past = torch.ones(length, key_length, dtype=torch.bool, device=device).tril(diagonal=query_offset)
        return both(past, inner)

    def forward(
        self,
        query: Float[Tensor, "B H L D"],
        key: Float[Tensor, "B H S D"],
        *,
        attn_mask: Mask | None = None,
        query_offset: int = 0,
    ) -> Float[Tensor, "B H L S"]:
        L, S, longest = query.shape[-2], key.shape[-2], self.mask.shape[-1]
        if max(query_offset + L, S) > longest:
            raise InputError(f"the trainable mask is for up to {longest} tokens, got {max(query_offset + L, S)}")
        visible = self.own_mask(L, S, query_offset=query_offset, device=query.device)
        allowed = attn_mask if visible is None else both(visible, attn_mask)
        scores = super().forward(query, key, attn_mask=allowed, query_offset=query_offset)
        if visible is not None:  # -∞ times a number may be NaN or ∞, so that it is put in afterwards
            scores = scores.masked_fill(~visible, 0.0)
        numbers = self.mask[:, query_offset : query_offset + L, :S]  # (H, L, S)
        changed = (scores + numbers if self.form == "additive" else scores * numbers).to(scores.dtype)
        return changed if visible is None else changed.masked_fill(~visible, -math.inf)


def both(mask: Mask, other: Mask | None) -> Mask:
    """True where both masks are; None hides nothing."""
    return mask if other is None else mask & other


def check_hides_future(model: nn.Module) -> None:
    """Refuse a trainable mask that does not hide the future, in a model that must not see it.

    Raises:
        ValueError: saying why, and how it is made.
    """
    for part in model.modules():
        if isinstance(part, TrainableMaskScore) and not part.is_causal:
            raise InputError(
                "a trainable mask with is_causal=False cannot serve a model that writes one token after the other: its "
                "numbers are finite, so that every later token would keep a weight above 0 and the training loss would "
                "be that of a model that sees the answer; with is_causal=True it puts -inf there"
            )


#: Every mechanism by name, without those that wrap another. Each is a recipe: ``SCORES[name](num_heads, head_dim)``.
SCORES: dict[str, Callable[..., nn.Module]] = {
    "dot": DotProductScore,
    "distance": DistanceBiasedScore,
    "additive": AdditiveScore,
    "separable": SeparableAdditiveScore,
    "gaussian_well": partial(EnergyWellScore, well="gaussian"),
    "inverse_square_well": partial(EnergyWellScore, well="inverse_square"),
    "softmax_exponential_well": partial(EnergyWellScore, well="softmax_exponential"),
    "lorentzian_well": partial(EnergyWellScore, well="lorentzian"),
}


#: What changes the numbers, the mask or the normaliser of any score, by name: each is a recipe that takes ``score``.
WRAPPERS: dict[str, Callable[..., nn.Module]] = {
    "standardized": StandardizedScore,
    "key_bias": KeyBiasScore,
    "additive_mask": partial(TrainableMaskScore, form="additive"),
    "multiplicative_mask": partial(TrainableMaskScore, form="multiplicative"),
}


def comparing_positions(module: nn.Module) -> list[str]:
    """Names of the parts of a module that compare positions; they need one sequence, with every token in its place."""
    return [type(part).__name__ for part in module.modules() if getattr(part, "compares_positions", False)]
