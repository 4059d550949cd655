"""The playground: pages within their sizes that ask for nothing, models with their records, and what they teach."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from pages import LOGITS_OF_IMAGES, NODE, in_node, script_of

from sciformer import data

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import pages_of_playground as playground  # noqa: E402
from playground import PLAYGROUND  # noqa: E402

MEGABYTE = 1_000_000
needs_node = pytest.mark.skipif(not NODE, reason="needs node on the path")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The text of each page by name."""
    folder = tmp_path_factory.mktemp("playground")
    return {path.stem: path.read_text(encoding="utf-8") for path in playground.write_playground(folder)}


def test_pages_keep_to_their_sizes(pages):
    sizes = {name: len(page.encode()) for name, page in pages.items()}
    assert set(sizes) == set(playground.TITLES)
    assert sizes.pop("write") <= 3 * MEGABYTE
    assert all(size <= MEGABYTE for size in sizes.values()), sizes


def test_pages_ask_for_nothing(pages):
    for page in pages.values():
        outside_of_data = re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.S)
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", outside_of_data)
        assert not re.findall(
            r"\b(?:fetch\(|XMLHttpRequest|import\(|@import|url\(|<link rel=\"stylesheet)", outside_of_data
        )
        assert "{{" not in outside_of_data


@pytest.mark.parametrize("name", PLAYGROUND)
def test_models_come_with_the_record_that_made_them(name):
    record = json.loads((playground.MODELS / f"{name}.json").read_text())["record"]
    assert record["config"]["train"]["steps"] == PLAYGROUND[name][0].train.steps
    assert {"seed", "metrics", "seconds", "device", "versions", "commit", "date"} <= record.keys()
    assert "dirty" not in record["commit"]


def test_the_writer_is_as_good_as_its_record():
    """The same setting is recorded in results/, where no weights are kept."""
    content = json.loads((ROOT / "results" / "shakespeare.long.json").read_text())
    (recorded,) = (run for run in content["runs"] if run["arm"] == "2,500 steps" and run["seed"] == 0)
    record = json.loads((playground.MODELS / "writer.json").read_text())["record"]
    assert record["metrics"]["validation loss"] == pytest.approx(recorded["metrics"]["validation loss"], abs=0.02)
    assert record["validation loss in the page"] == pytest.approx(record["metrics"]["validation loss"], abs=0.005)


def packed_page(name):
    """A page that holds nothing but the script and one model, for node."""
    script = script_of(playground.words())
    packed = (playground.MODELS / f"{name}.json").read_text().strip()
    return f'<script>\n{script}// What the pages are drawn with\n</script><script id="data-packed">{packed}</script>'


@needs_node
def test_the_reader_reads_what_it_is_recorded_to_read():
    images, labels = (tensor[:100] for tensor in data.mnist("test"))
    logits = in_node(packed_page("reader"), LOGITS_OF_IMAGES, images.flatten(1).tolist())
    assert (torch.tensor(logits).argmax(dim=1) == labels).float().mean() >= 0.96


@needs_node
def test_the_distance_model_cannot_tell_a_digit_from_its_half_turn():
    images = 2 * torch.nn.functional.avg_pool2d(data.mnist("test")[0][:3], 2) - 1
    upright, turned = (
        torch.tensor(in_node(packed_page("turner"), LOGITS_OF_IMAGES, some.flatten(1).tolist()))
        for some in (images, images.flip(2, 3))
    )
    torch.testing.assert_close(turned, upright, atol=1e-4, rtol=0)
    mirrored = torch.tensor(in_node(packed_page("turner"), LOGITS_OF_IMAGES, images.flip(3).flatten(1).tolist()))
    assert (mirrored - upright).abs().max() > 0.1  # it is no matter of every symmetry
