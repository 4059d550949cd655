"""Time series: past and future side by side."""

from jaxtyping import Float
from torch import Tensor


def windows(
    series: Float[Tensor, "T"], context: int, horizon: int
) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N F"]]:
    """Every stretch of a series: ``context`` values to forecast from, and the ``horizon`` values that follow them.

    Window n is past = series[n : n + C] and future = series[n + C : n + C + F], so there are N = T - C - F + 1 of them,
    and neighbours share all but one value. To keep a part of the series out, cut the series before it is windowed: a
    window that crosses the cut carries one side into the other.

    Args:
        context: C, how many values a forecast may look at.
        horizon: F, how many values it has to give.

    Returns:
        The past (N, C) and the future (N, F), both views of the series.

    Raises:
        ValueError: if ``series`` is not one-dimensional, ``context`` or ``horizon`` is below 1, or the series is too
            short for one window.
    """
    if series.dim() != 1 or min(context, horizon) < 1:
        raise ValueError(
            f"windows needs a series of shape (T,), a context and a horizon of 1 or more, got shape "
            f"{tuple(series.shape)}, context {context}, horizon {horizon}"
        )
    if len(series) < context + horizon:
        raise ValueError(
            f"context {context} and horizon {horizon} need {context + horizon} values, the series has {len(series)}"
        )
    stretches = series.unfold(0, context + horizon, 1)  # (N, C + F)
    return stretches[:, :context], stretches[:, context:]
