"""Pictures that answer to a slider, a click or a switch."""

import ipywidgets
import matplotlib.pyplot as plt
import pytest
import torch

from sciformer.teach.explorers import Squares, Switches, explore


def test_explore_redraws_when_a_slider_moves(monkeypatch):
    shown, drawn = [], []
    monkeypatch.setattr("sciformer.teach.explorers.display", lambda bundle, raw, metadata: shown.append(bundle))

    def draw(height):
        drawn.append(height)
        _, ax = plt.subplots()
        ax.bar([0], [height])
        return ax

    slider = ipywidgets.IntSlider(value=3, min=1, max=5, description="height")
    explore(draw, alt="a bar", height=slider)
    bundle = shown[0]
    assert bundle["text/plain"] == "a bar"
    assert bundle["image/png"].startswith("iVBOR")
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"]
    slider.value = 5
    assert drawn == [3, 5]
    assert plt.get_fignums() == []


def test_a_slider_without_a_description_is_refused():
    with pytest.raises(ValueError, match="the slider for 'height' has no description"):
        explore(lambda height: plt.subplots()[1], alt="a bar", height=ipywidgets.IntSlider())


def test_a_square_that_is_clicked_is_chosen_and_marked(monkeypatch):
    monkeypatch.setattr("sciformer.teach.explorers.display", lambda bundle, raw, metadata: None)
    squares, drawn = Squares(torch.tensor([[0.0, 0.5, 1.0], [0.2, 0.4, 0.6]]), value=4), []
    explore(lambda patch: drawn.append(patch) or plt.subplots()[1], alt="a patch", patch=squares)
    squares.children[2].click()
    assert squares.value == 2
    assert drawn == [4, 2]
    borders = [getattr(button.layout, "border_top", None) or button.layout.border for button in squares.children]
    assert borders.index("3px solid #d55e00") == 2
    assert borders.count("3px solid #d55e00") == 1
    assert squares.children[2].style.button_color == "rgb(255, 255, 255)"
    assert squares.children[5].tooltip == "row 1, column 2"


def test_switches_are_a_mask_that_one_can_change(monkeypatch):
    monkeypatch.setattr("sciformer.teach.explorers.display", lambda bundle, raw, metadata: None)
    mask, drawn = torch.ones(2, 3, dtype=torch.bool).tril(), []
    switches = Switches(mask)
    assert torch.equal(torch.tensor(switches.value), mask)
    explore(lambda on: drawn.append(on) or plt.subplots()[1], alt="a mask", on=switches)
    switches.children[1].click()
    mask[0, 1] = True
    assert torch.equal(torch.tensor(drawn[-1]), mask)
    assert [button.description for button in switches.children] == ["✓", "✓", "", "✓", "✓", ""]
    switches.children[1].click()
    assert not switches.value[0][1]
    assert len(drawn) == 3
