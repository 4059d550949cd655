"""Pictures that show what they were given."""

import math

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from sciformer import attend, dot_product_scores, plotting
from sciformer.lab.roofline import Machine


def test_heatmap_writes_numbers_into_small_matrices_only():
    plotting.heatmap(torch.zeros(2, 2))
    plotting.heatmap(torch.full((2, 2), -1.0))
    ax = plotting.heatmap(torch.tensor([[0.25, 0.75], [1.0, -math.inf]]), rows=["a", "b"], columns=["c", "d"])
    assert [t.get_text() for t in ax.texts] == ["0.25", "0.75", "1.00", "–∞"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    assert not plotting.heatmap(torch.rand(20, 20)).texts
    assert [t.get_text() for t in plotting.heatmap(torch.tensor([[0.5, math.nan]])).texts] == ["0.50", ""]


def test_a_mask_is_ticks_and_blanks():
    mask = torch.tensor([[True, False, False], [True, True, False]])
    ax = plotting.heatmap(mask)
    assert [(t.get_position(), t.get_text()) for t in ax.texts] == [((j, i), "✓") for i, j in ((0, 0), (1, 0), (1, 1))]
    assert len(ax.figure.axes) == 1  # no colour bar
    assert len(plotting.heads(torch.stack([mask, mask])).axes) == 2


def test_signed_heatmap_is_centred_on_zero():
    limits = plotting.heatmap(torch.tensor([[-3.0, 1.0]]), signed=True).images[0].get_clim()
    assert limits == (-3.0, 3.0)


def test_heads_share_a_scale():
    figure = plotting.heads(torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]]))
    limits = {ax.images[0].get_clim() for ax in figure.axes[:2]}
    assert limits == {(0.0, 1.0)}


def test_the_truth_is_a_dashed_line_where_the_other_lines_are():
    at, truth = torch.linspace(0, 1, 5), torch.arange(5.0)
    ax = plotting.dots_and_curves(torch.rand(3), torch.rand(3), {"fit": torch.rand(5)}, at=at, truth=truth)
    (line,) = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert line.get_label() == "truth"
    assert torch.equal(torch.as_tensor(line.get_xydata()).float(), torch.stack([at, truth], dim=-1))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["fit", "truth", "samples"]


def test_images_fill_a_grid_and_share_a_scale():
    figure = plotting.images(torch.rand(7, 1, 4, 4), [str(n) for n in range(7)], columns=3)
    assert len(figure.axes) == 9
    assert [ax.get_title() for ax in figure.axes[:7]] == [str(n) for n in range(7)]
    assert len({ax.images[0].get_clim() for ax in figure.axes[:7]}) == 1


def test_no_images_are_an_empty_figure():
    (ax,) = plotting.images(torch.rand(0, 1, 4, 4)).axes
    assert not ax.images
    assert not ax.axison


def test_what_is_nan_in_a_picture_is_left_out():
    grey, colour = torch.rand(1, 1, 4, 4), torch.rand(1, 3, 4, 4)
    grey[..., :2], colour[..., :2] = math.nan, math.nan
    blue = torch.tensor([0.702, 0.851, 0.949])
    for picture in (grey, colour):
        figure = plotting.images(picture)
        figure.canvas.draw()
        pixels = torch.from_numpy(np.array(figure.canvas.buffer_rgba()))[..., :3] / 255
        middle = pixels[pixels.shape[0] // 2]
        assert_close(middle[pixels.shape[1] // 4], blue, rtol=0, atol=0.02)
        assert not torch.allclose(middle[3 * pixels.shape[1] // 4], blue, atol=0.02)
    drawn = torch.from_numpy(np.array(plotting.images(colour).axes[0].images[0].get_array()))
    assert_close(drawn[:, 2:], colour[0].permute(1, 2, 0)[:, 2:])


def test_regions_lie_where_their_squares_are():
    labels = torch.tensor([[0, 1, 2], [2, 1, 0]])
    figure = plotting.regions(torch.rand(3, 20, 30), {"A": 0 * labels, "B": labels}, step=8, start=2, line=10)
    assert [ax.get_title() for ax in figure.axes] == ["", "A", "B"]
    overlay = figure.axes[2].images[1]
    assert overlay.get_array().tolist() == labels.tolist()
    assert overlay.get_extent() == [1.5, 25.5, 17.5, 1.5]
    assert [text.get_text() for text in figure.axes[2].get_legend().get_texts()] == [f"cluster {n}" for n in range(3)]


def test_four_regions_have_colours_that_one_can_tell_apart_over_a_photograph():
    figure = plotting.regions(torch.rand(3, 16, 16), {"": torch.tensor([[0, 1], [2, 3]])}, step=8)
    colors = figure.axes[1].images[1].cmap(range(4))[:, :3]
    apart = torch.cdist(*(2 * [torch.tensor(colors, dtype=torch.float64)])) + torch.eye(4)
    assert apart.min() > 0.6  # the two blues of the palette are 0.48 apart


def test_attention_on_image_frames_the_query():
    query, key = torch.randn(1, 2, 16, 3), torch.randn(1, 2, 16, 3)
    _, weights = attend(dot_product_scores(query, key), key)
    figure = plotting.attention_on_image(torch.rand(1, 28, 28), weights[0], query=6)
    frame = figure.axes[0].patches[0]
    assert (frame.get_x(), frame.get_y(), frame.get_width()) == (2 * 7 - 0.5, 1 * 7 - 0.5, 7)
    shown = figure.axes[1].images[0].get_array()
    assert_close(torch.tensor(shown)[::7, ::7].flatten(), weights[0, 0, 6])


def test_attention_on_an_oblong_image_frames_the_query():
    weights = torch.rand(2, 8, 8).softmax(dim=-1)
    figure = plotting.attention_on_image(torch.rand(1, 12, 8), weights, query=3, grid=(4, 2))
    frame = figure.axes[0].patches[0]
    assert (frame.get_x(), frame.get_y(), frame.get_width(), frame.get_height()) == (3.5, 2.5, 4, 3)
    shown = torch.tensor(figure.axes[1].images[0].get_array())
    assert shown.shape == (12, 8)
    assert_close(shown[::3, ::4].flatten(), weights[0, 3])
    with pytest.raises(ValueError, match="2 × 2 patches are not the 8 that the weights are of"):
        plotting.attention_on_image(torch.rand(1, 12, 8), weights, query=3)


def test_letters_on_picture_show_where_each_is_read():
    text, weights = "two six>", torch.rand(8, 2 * 3)
    figure = plotting.letters_on_picture(torch.rand(1, 28, 42), weights, text, patch_size=14)
    panels = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in panels] == [*"two␣six>"]
    for ax, row in zip(panels, weights, strict=True):
        shown = torch.tensor(ax.images[1].get_array())
        assert shown.shape == (28, 42)
        assert_close(shown[::14, ::14].flatten(), row)
    assert {ax.images[1].get_clim() for ax in panels} == {(0.0, float(weights.max()))}
    assert len({round(ax.get_position().y0, 3) for ax in panels}) == 2  # a row for each word
    with pytest.raises(ValueError, match=r"7 letters on 2 × 3 patches need weights of \(7, 6\), got \(8, 6\)"):
        plotting.letters_on_picture(torch.rand(1, 28, 42), weights, "two one", patch_size=14)


def test_curves_draw_lists_and_pairs():
    ax = plotting.curves({"a": [3.0, 2.0, 1.0], "b": [(10, 0.5), (20, 0.75)]}, ylabel="loss")
    (a, b) = ax.lines
    assert (list(a.get_xdata()), list(b.get_xdata())) == ([1, 2, 3], [10, 20])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b"]
    smooth = plotting.curves({"a": [1.0, 3.0, 5.0, 7.0]}, smooth=2).lines[1]
    assert list(smooth.get_ydata()) == [2.0, 4.0, 6.0]


#: What is left of linear RGB where one kind of cones is missing (Machado et al. 2009, doi:10.1109/TVCG.2009.113).
SIGHTS = {
    "all cones": torch.eye(3),
    "protanopia": torch.tensor(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": torch.tensor(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": torch.tensor(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def seen(colors, sight):
    """CIE L*a*b* (N, 3) of sRGB colours: distances in it are as large as they look; 2.3 is just noticeable."""
    rgb = torch.tensor(mpl.colors.to_rgba_array(colors)[:, :3], dtype=torch.float32)
    linear = torch.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = (linear @ SIGHTS[sight].T).clamp(0, 1)
    to_xyz = torch.tensor([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = linear @ to_xyz.T / to_xyz.sum(dim=1)  # in parts of white
    x, y, z = torch.where(xyz > (6 / 29) ** 3, xyz ** (1 / 3), xyz * (29 / 6) ** 2 / 3 + 4 / 29).unbind(dim=1)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], dim=1)


@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_stay_apart_for_colour_blind_readers(sight):
    okabe_and_ito = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"}
    assert set(plotting.COLORS) == okabe_and_ito - {"#F0E442"}
    for count, least in ((3, 50), (4, 20), (7, 15)):
        assert torch.pdist(seen(plotting.COLORS[:count], sight)).min() > least
    drawn = [line.get_color() for line in plotting.curves({str(n): [0.0, n] for n in range(7)}).lines]
    assert drawn == list(plotting.COLORS)


@pytest.mark.parametrize("sight", SIGHTS)
def test_colour_maps_grow_lighter_step_by_step_for_colour_blind_readers(sight):
    shades = torch.linspace(0, 1, 33).numpy()
    lightness = seen(plotting.heatmap(torch.rand(3, 5)).images[0].cmap(shades), sight)[:, 0]
    assert (lightness.diff() > 0).all()
    signed = seen(plotting.heatmap(torch.randn(3, 5), signed=True).images[0].cmap(shades), sight)
    assert (signed[:17, 0].diff() > 0).all()
    assert (signed[16:, 0].diff() < 0).all()
    assert torch.dist(signed[4], signed[-5]) > 50


def test_confusion_leaves_the_diagonal_blank():
    ax = plotting.confusion(torch.tensor([[90, 2], [5, 80]]))
    assert [(t.get_position(), t.get_text()) for t in ax.texts] == [((1, 0), "2"), ((0, 1), "5")]


def test_seeds_draw_every_value_and_the_mean():
    ax = plotting.seeds({"one": [1.0, 2.0, 3.0], "two": [4.0]}, lines={"floor": 0.5})
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["one", "two"]
    heights = [list(line.get_ydata()) for line in ax.lines]
    assert [1.0, 2.0, 3.0] in heights
    assert [2.0] in heights  # the mean of the first group
    assert heights.count([4.0]) == 1  # a single value has no error, so no mean is drawn beside it
    assert {"floor", "one seed"} <= {text.get_text() for text in ax.get_legend().get_texts()}


def test_bands_show_mean_and_standard_error():
    runs = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    ax = plotting.bands({"a": runs}, x=[2, 12])
    assert ax.containers[0].lines[0].get_xydata().tolist() == [[2.0, 2.0], [12.0, 4.0]]
    bars = ax.containers[0].lines[2][0].get_segments()
    assert [bar[:, 1].tolist() for bar in bars] == [pytest.approx([1.0, 3.0]), pytest.approx([2.0, 6.0])]
    ax = plotting.bands({"a": torch.rand(3, 30), "b": torch.rand(1, 30)}, smooth=5)
    assert [len(line.get_xdata()) for line in ax.lines] == [26, 26]


def test_bands_take_a_look_of_their_own_by_label():
    runs = torch.rand(3, 30)
    ax = plotting.bands({"a": runs, "b": runs}, styles={"b": {"color": "green", "linestyle": "--"}})
    looks = [(line.get_label(), line.get_color(), line.get_linestyle()) for line in ax.lines]
    assert looks == [("a", plotting.COLORS[0], "-"), ("b", "green", "--")]
    assert tuple(ax.collections[1].get_facecolor()[0, :3]) == mpl.colors.to_rgb("green")
    ax = plotting.bands({"b": torch.rand(3, 2)}, styles={"b": {"color": "green"}})
    assert ax.containers[0].lines[0].get_color() == "green"


def test_bars_write_their_numbers_only_if_asked():
    values = torch.tensor([0.25, 0.75])
    ax = plotting.bars(values, ["the", "the"], highlight=1, top=1.0)
    assert [bar.get_height() for bar in ax.patches] == values.tolist()
    assert [text.get_text() for text in ax.texts] == ["0.25", "0.75"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["the", "the"]
    assert ax.patches[0].get_facecolor() != ax.patches[1].get_facecolor()
    many = plotting.bars(torch.ones(32), numbers=False)
    assert len(many.patches) == 32
    assert not many.texts
    assert len(many.get_xticks()) < 32


def test_clocks_point_up_at_angle_zero_and_turn_clockwise():
    hands = {
        "start": torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 1.0]),
        "later": torch.tensor([1.0, 0.0, 0.6, 0.8, 0.0, 1.0]),
    }
    figure = plotting.clocks(hands, titles=["fast", "slow", "still"], columns=2)
    assert [ax.get_title() for ax in figure.axes] == ["fast", "slow", "still", ""]
    _, start, later = figure.axes[1].lines  # after the dial
    assert start.get_xydata().tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert later.get_xydata()[1].tolist() == pytest.approx([0.6, 0.8])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["start", "later"]


def test_clusters_have_a_colour_each_and_sizes_by_importance():
    labels, importance = torch.tensor([0, 0, 1]), torch.tensor([4.0, 4.0, 1.0])
    ax = plotting.clusters(torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0]]), labels, importance)
    one, two = ax.collections
    assert one.get_offsets().tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert one.get_sizes().tolist() == [80.0, 80.0]
    assert two.get_sizes().tolist() == [20.0]
    assert one.get_facecolor().tolist() != two.get_facecolor().tolist()
    assert [text.get_text() for text in ax.get_legend().texts] == ["cluster 0, importance 4", "cluster 1, importance 1"]
    plt.close(ax.figure)


def test_intervals_stand_in_rows_with_their_seeds_and_what_is_too_small_to_matter():
    rows = {"a": (-1.0, 3.0), "b": (0.5, 0.7)}
    ax = plotting.intervals(rows, delta=0.5, seeds={"a": [0.0, 2.0], "b": [0.6]}, colors={"b": "C3"})
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "smaller than δ",
        "one seed",
        "mean, 95 % interval",
    ]
    bars = [container for container in ax.containers if len(container.lines[0].get_xdata())]
    assert [bar.lines[0].get_xdata().item() for bar in bars] == pytest.approx([1.0, 0.6])
    assert [bar.lines[2][0].get_segments()[0][:, 0].tolist() for bar in bars] == [
        pytest.approx([-1.0, 3.0]),
        pytest.approx([0.5, 0.7]),
    ]
    assert bars[1].lines[0].get_color() == "C3"
    plain = plotting.intervals({"only": (1.0, 2.0)})
    assert plain.get_legend() is None
    plt.close("all")


def test_timeline_shades_every_other_part():
    years = torch.arange(6.0) + 1990
    figure = plotting.timeline(
        {"a": years**2, "b": -years}, years, parts={"before": 1992.0, "after": 1995.0}, title="two"
    )
    first, second = figure.axes
    assert [ax.get_ylabel() for ax in figure.axes] == ["a", "b"]
    assert second.lines[0].get_ydata().tolist() == (-years).tolist()
    assert [text.get_text() for text in first.texts] == ["before", "after"]
    starts = [
        [patch.get_patch_transform().transform(patch.get_path().vertices)[:, 0].min() for patch in ax.patches]
        for ax in figure.axes
    ]
    assert starts == [[1992.0], [1992.0]]
    assert second.get_xlabel() == "year"
    plt.close(figure)


def test_growth_draws_the_last_points_line_and_tells_its_slope():
    points = [(n, 5.0 if n < 4 else n**2) for n in (1, 2, 4, 8, 16)]
    ax = plotting.growth({"square": points}, last=3, guide=("n", [(1, 1), (16, 16)]), ylabel="bytes")
    dots, line, guide = ax.lines
    assert len(dots.get_xdata()) == 5
    assert list(line.get_xdata()) == [4, 16]
    assert list(line.get_ydata()) == pytest.approx([16, 256])
    assert guide.get_label() == "n"
    assert line.get_label() == "square: slope 2.00"
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_growth_tells_series_apart_by_color_and_shape():
    points = [(n, float(n)) for n in (1, 2, 4)]
    ax = plotting.growth({"a": points, "b": points}, colors=["red", "green"])
    looks = [(line.get_color(), line.get_marker()) for line in ax.lines]
    assert looks == [("red", "o"), ("red", "None"), ("green", "s"), ("green", "None")]


def test_roofline_draws_both_roofs_and_each_point_at_its_intensity_and_speed():
    machine = Machine(flops=100.0, copies=[(1, 50.0), (10, 5.0)])
    ax = plotting.roofline(machine, {"a": (80.0, 20.0, 2.0), "b": (8.0, 16.0, 4.0)}, styles={"b": {"color": "0.45"}})
    lines = {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in ax.lines}
    assert lines["a"] == [(4.0, 40.0)]
    assert lines["b"] == [(0.5, 2.0)]
    assert lines["roof, caches"] == [(0.25, 12.5), (2.0, 100.0), (40.0, 100.0)]
    assert lines["roof, memory"] == [(0.25, 1.25), (20.0, 100.0), (40.0, 100.0)]
    assert ax.lines[-1].get_color() == "0.45"
