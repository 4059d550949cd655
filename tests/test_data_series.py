"""Time series: past and future side by side."""

import pytest
import torch

from sciformer.data import windows


def test_windows_are_all_stretches_of_a_series():
    past, future = windows(torch.arange(11.0), 3, 5)
    assert past.tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]]
    assert future.tolist() == [[3, 4, 5, 6, 7], [4, 5, 6, 7, 8], [5, 6, 7, 8, 9], [6, 7, 8, 9, 10]]
    past, future = windows(torch.arange(8.0), 3, 5)
    assert (len(past), len(future)) == (1, 1)


def test_windows_refuse_what_does_not_fit():
    with pytest.raises(ValueError, match="context 3 and horizon 5 need 8 values, the series has 7"):
        windows(torch.arange(7.0), 3, 5)
    for series, context, horizon in ((torch.zeros(9, 2), 3, 5), (torch.zeros(9), 0, 5), (torch.zeros(9), 3, 0)):
        with pytest.raises(
            ValueError, match=r"windows needs a series of shape \(T,\), a context and a horizon of 1 or more"
        ):
            windows(series, context, horizon)
