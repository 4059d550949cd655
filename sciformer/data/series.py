"""Windows over a time series."""

from jaxtyping import Float
from torch import Tensor

from sciformer.functional import InputError


def windows(
    series: Float[Tensor, "T"], context: int, horizon: int
) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N F"]]:
    """Every window of a series: ``context`` values to forecast from, and the ``horizon`` values that follow them.

    Window n is past = series[n : n + C] and future = series[n + C : n + C + F]. There are N = T - C - F + 1 windows,
    and neighboring windows share all but one value. To hold out part of a series, split the series first and window
    each part: a window across the split would leak one part into the other.

    Args:
        context: C, the number of values that a forecast may use.
        horizon: F, the number of values to forecast.

    Returns:
        The past (N, C) and the future (N, F), both views of the series.

    Raises:
        ValueError: if ``series`` is not one-dimensional, ``context`` or ``horizon`` is below 1, or the series is too
            short for one window.
    """
    if series.dim() != 1 or min(context, horizon) < 1:
        raise InputError(
            f"windows needs a series of shape (T,), a context and a horizon of 1 or more, got shape "
            f"{tuple(series.shape)}, context {context}, horizon {horizon}"
        )
    if len(series) < context + horizon:
        raise InputError(
            f"context {context} and horizon {horizon} need {context + horizon} values, the series has {len(series)}"
        )
    whole = series.unfold(0, context + horizon, 1)  # (N, C + F)
    return whole[:, :context], whole[:, context:]
