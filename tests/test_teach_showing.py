"""Pictures with words, and pictures that move."""

import base64
import io
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from PIL import Image

from sciformer import plotting


@pytest.fixture
def shown(monkeypatch):
    outputs = []
    monkeypatch.setattr(
        "sciformer.teach.plotting.showing.display", lambda data, raw, metadata: outputs.append((data, metadata))
    )
    return outputs


def test_a_picture_is_shown_with_its_words(shown):
    plotting.heatmap(torch.eye(3))
    plotting.show("Only the diagonal is bright.")
    ((data, metadata),) = shown
    assert data["text/plain"] == metadata["image/png"]["alt"] == "Only the diagonal is bright."
    assert Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).size[0] > 100
    assert not plt.get_fignums()


def test_a_picture_needs_words_and_something_drawn():
    with pytest.raises(ValueError, match="there is no figure to show"):
        plotting.show("A line.")
    plt.subplots()
    with pytest.raises(ValueError, match="got an empty text"):
        plotting.show(" ")


def test_an_animation_shows_its_frames_in_turn_and_stops_at_the_last(shown):
    plotting.animate(
        lambda n: plotting.heatmap(torch.eye(n)[:, :1].expand(3, 3) if n == 3 else torch.eye(3)), [1, 3], alt='"a" & b'
    )
    ((data, _),) = shown
    assert 'alt="&quot;a&quot; &amp; b"' in data["text/html"]
    gif = Image.open(io.BytesIO(base64.b64decode(data["text/html"].split("base64,")[1].split('"')[0])))
    assert (gif.n_frames, gif.info["loop"], gif.info["duration"]) == (2, 2, 800)
    still = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
    gif.seek(1)
    assert gif.info["duration"] == 2400
    pixels = [np.asarray(picture.convert("RGB"), dtype=float) for picture in (gif, still)]
    assert np.abs(pixels[0] - pixels[1]).mean() < 5


def test_notebooks_are_validated_without_the_bytes_of_an_animation(shown):
    rules = (Path(__file__).parents[1] / "notebooks" / "nbval_sanitize.cfg").read_text()
    rule = re.search("regex: (data:image/gif.*)", rules)[1]
    for part in (torch.eye(3), torch.zeros(3, 3)):
        plotting.animate(lambda _, part=part: plotting.heatmap(part), [1, 2], alt="Two.")
    one, other = (data["text/html"] for data, _ in shown)
    assert one != other
    assert (
        re.sub(rule, "GIF", one) == re.sub(rule, "GIF", other) == '<img src="GIF" alt="Two." style="max-width: 100%">'
    )
