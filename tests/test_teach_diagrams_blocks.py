"""The diagram of notebook 05 shows the numbers it was given."""

from sciformer.teach.diagrams.blocks import residual_streams


def test_both_orders_show_their_sizes_and_have_two_norms():
    figure = residual_streams([1.0, 1.25, 2.5], [3.0, 4.0, 5.0], shape=(7, 11), hidden_dim=44)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert [text for text in texts if text.startswith("size ")] == [
        f"size {size}" for size in ("1.00", "1.25", "2.50", "3.00", "4.00", "5.00")
    ]
    assert texts.count("norm") == texts.count("+") == 4
    assert texts.count("attention\n11 → 11") == texts.count("feed-forward\n11 → 44 → 11") == 2


def test_the_norm_stands_on_the_stream_in_post_norm_only():
    figure = residual_streams([1.0] * 3, [1.0] * 3, shape=(2, 3), hidden_dim=12)
    texts = figure.axes[0].texts
    norms = [text.get_position()[0] for text in texts if text.get_text() == "norm"]
    streams = [line.get_xdata()[0] for line in figure.axes[0].lines]
    assert [any(abs(norm - stream) < 1e-6 for stream in streams) for norm in norms] == [False, False, True, True]
