"""The benchmarks run, stop in time and compare equals. How fast anything is, no test says."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import attention, busy, models, report
from benchmarks.attention import contestants, foreseen, too_much
from sciformer import SCORES
from sciformer.lab import roofline
from sciformer.lab.claims import between_marks

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without")
RESULTS = Path(__file__).parents[1] / "results"
PEERS = {
    *("nn.MultiheadAttention", "x-transformers", "x-transformers, ALiBi", "x-transformers, ALiBi, two-sided"),
    *("vit-pytorch, two-sided", "FlexAttention", "FlexAttention, grid", "torch, masked"),
}
IN_TORCH = {"nn.MultiheadAttention", "FlexAttention", "FlexAttention, grid", "torch, masked"}


def parameters(module):
    return sum(p.numel() for p in module.parameters())


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """Compiling takes longer than all these tests; uncompiled FlexAttention computes the same."""
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)


def built(contestant, length):
    """The layer of a contestant, with the same projections in each."""
    try:
        layer = contestant.build(length)
    except ImportError as error:
        pytest.skip(str(error))
    torch.manual_seed(0)
    projections = torch.randn(4, attention.EMBED_DIM, attention.EMBED_DIM) * attention.EMBED_DIM**-0.5
    q, k, v, out = projections
    parts = {"q_proj": q, "k_proj": k, "v_proj": v, "in_proj": torch.cat((q, k, v)), "out_proj": out}
    parts |= {"to_q.": q, "to_k.": k, "to_v.": v, "to_qkv": torch.cat((q, k, v)), "to_out": out}
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            for part, value in parts.items():
                if part in name:
                    parameter.copy_(value)
    return layer


LABELS = {contestant.label: contestant for contestant in contestants()}


def test_everyone_is_there():
    """Every score in both forms, and every peer beside one of ours."""
    assert len(LABELS) == len(contestants())
    assert {f"{score}, {form}" for score in SCORES for form in ("fast", "readable")} <= set(LABELS)
    for name in ("dot", "distance", "gaussian_well"):
        assert {f"{name}, window {attention.WINDOW}, {form}" for form in ("fast", "readable")} <= set(LABELS)
    for name in ("distance, two-sided", "distance, grid"):
        assert {f"{name}, {form}" for form in ("fast", "readable", "forward")} <= set(LABELS)
    assert {contestant.name for contestant in LABELS.values() if contestant.beside} == PEERS
    assert {contestant.beside for contestant in LABELS.values()} - {""} <= set(LABELS)


@pytest.mark.parametrize("label", [label for label, contestant in LABELS.items() if contestant.beside])
def test_a_peer_computes_what_ours_beside_it_does(label):
    """The same parameters but for what a score learns, and with the same projections the same output."""
    length = 9 if "masked" not in label else 3 * attention.WINDOW  # 9 tokens are also a grid of 3 by 3
    peer, ours = (built(LABELS[name], length) for name in (label, LABELS[label].beside))
    learned = attention.NUM_HEADS if "ALiBi" in label else 0
    assert parameters(peer) + learned == parameters(ours)
    if learned:  # the slopes of ALiBi, which ours starts from when asked to
        with torch.no_grad():
            ours.attention.score.strength.copy_(peer.bias.slopes.flatten())
    x = torch.randn(1, length, attention.EMBED_DIM)
    with torch.set_grad_enabled(LABELS[label].form != "forward"):
        torch.testing.assert_close(peer(x), ours(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("task", models.TASKS)
def test_models_have_the_same_number_of_parameters(task):
    setting_of, entries = models.TASKS[task]
    setting = setting_of("quick")
    ours = parameters(entries["sciformer"][0](setting))
    for name, (build, _) in entries.items():
        try:
            assert parameters(build(setting)) == ours, name
        except ImportError as error:
            pytest.skip(str(error))


def test_growth_is_foreseen_and_at_most_quadratic():
    assert foreseen([(64, 3.0)], 256) == 48.0
    assert foreseen([(64, 3.0), (256, 12.0)], 1024) == pytest.approx(48.0)
    assert foreseen([(64, 3.0), (256, 48.0)], 512) == pytest.approx(192.0)
    assert foreseen([(64, 1.0), (256, 64.0)], 512) == pytest.approx(256.0), "cubic growth counts as quadratic"
    assert foreseen([(64, 3.0), (256, 2.0)], 1024) == 2.0, "what became faster is not foreseen to go on so"


def test_stops_where_the_next_length_would_be_too_much():
    rows = [
        {"length": 256, "megabytes": 100.0, "milliseconds": 500.0},
        {"length": 1024, "megabytes": 1600.0, "milliseconds": 2000.0},
    ]
    assert too_much([], 64, limit=0.0, patience=0.0) is None, "the first length is always measured"
    assert too_much(rows, 4096, limit=26.0, patience=8.1) is None
    assert too_much(rows, 4096, limit=25.0, patience=8.1) == "would need 26 GB"
    assert too_much(rows, 4096, limit=26.0, patience=7.9) == "would take 8 s"
    assert too_much(rows, 16384, limit=500.0, patience=8.1) == "would take 32 s", "what lies between is foreseen too"


@pytest.fixture
def small(monkeypatch):
    """One step of a model and a small look at the machine, so that a whole run takes seconds."""
    monkeypatch.setattr(models, "TRAIN", models.TRAIN.with_steps(1))
    look = partial(roofline.measure_machine, sides=(128,), copies=(2**12, 2**20))
    monkeypatch.setattr(command, "measure_machine", look)
    monkeypatch.setattr(attention, "REPEATS_AT", 1)  # a pass of each layer: no figure is read


def run(folder, *options):
    """The command, and what it wrote."""
    threads = torch.get_num_threads()
    command.main(["--out", str(folder), "--threads", str(threads), "--repeats", "1", "--trainings", "0", *options])
    return json.loads((folder / report.RECORD).read_text())


def test_one_command_writes_a_record_a_picture_and_a_table(tmp_path, small, capsys):
    content = run(tmp_path, "--lengths", "16", "4", "4", "--limit", "1e-9")
    for key in ("device", "machine", "versions", "commit", "date"):
        assert content[key], f"{key} is missing"
    assert set(content["machine"]) == {"processor", "cores", "gigabytes"}
    assert [(report.label(m), m["length"]) for m in content["layers"]] == [(n, L) for L in (4, 16) for n in LABELS]
    for measured in content["layers"]:
        assert measured["kind"] == ("peer" if measured["contestant"] in PEERS else "ours")
        if measured["length"] == 16:  # nothing is as small as a byte
            assert measured["why not"] in ("would need 0 GB", "not installed")
        elif "why not" not in measured:
            assert measured["milliseconds"] > 0
            assert measured["megabytes"] > 0
            if LABELS[report.label(measured)].counted:
                least = measured["flops"] / content["roof"]["flops"]
                assert measured["share"] >= 1000 * least / measured["milliseconds"] > 0
                assert measured["bytes"] > 0
    for measured in content["models"]:
        if measured.get("why not") != "not installed":
            for key in ("steps per second", "flops", "bytes", "share"):
                assert measured[key] > 0, key
    printed = capsys.readouterr().out
    assert report.table(content) in printed
    for name in report.PICTURES:
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir()} == {report.RECORD, *report.PICTURES}


def test_a_peer_that_is_not_installed_is_left_out(tmp_path, small, monkeypatch, capsys):
    for name in ("x_transformers", "x_transformers.x_transformers", "vit_pytorch", "vit_pytorch.simple_vit"):
        monkeypatch.setitem(sys.modules, name, None)  # which makes an import of it fail
    monkeypatch.setattr(command, "versions", lambda names: dict.fromkeys(names))
    content = run(tmp_path, "--lengths", "4")
    missing = {m["contestant"] for m in content["layers"] if m.get("why not") == "not installed"}
    assert missing == PEERS - IN_TORCH
    assert {m["model"] for m in content["models"] if m.get("why not")} == {"vit-pytorch", "x-transformers"}
    assert "x-transformers is not installed and left out" in capsys.readouterr().err


def test_what_fails_leaves_the_record_as_it_was(tmp_path, small, monkeypatch):
    (tmp_path / report.RECORD).write_text("old")
    monkeypatch.setattr(models, "measure", lambda **_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        command.main(["--out", str(tmp_path), "--threads", "1", "--repeats", "1", "--lengths", "4"])
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_training_is_timed_beside_a_busy_process(monkeypatch):
    monkeypatch.setattr(busy, "TASKS", {"image, notebook 06": busy.TASKS["image, notebook 06"]})
    monkeypatch.setattr(busy, "WAYS", {"sleep": busy.WAYS["sleep"]})
    monkeypatch.setattr(busy, "BUSY", (1,))
    (row,) = busy.measure(repeats=1)
    assert row.pop("seconds") > 0
    assert row == {"task": "image, notebook 06", "threads": "sleep", "busy": 1}
    (row,) = busy.measure(repeats=1, limit=0.1)
    assert row["seconds"] == 0.1, "what is broken off counts as having taken so long"


CONTENT = {
    "device": "CPU, 2 threads",
    "machine": {"processor": "Abacus", "cores": 2, "gigabytes": 3},
    "versions": {"torch": "2.9", "vit-pytorch": None},
    "commit": "abc",
    "date": "2026-01-01",
    "roof": {"flops": 80e9, "copies": [[1000, 40e9], [1e9, 10e9]]},
    "layers": [
        dict(zip(("contestant", "form", "kind", "beside", "length", "milliseconds", "megabytes"), values, strict=True))
        for values in (
            ("theirs", "readable", "peer", "dot, fast", 64, 5.0, 150.0),
            ("compiled", "forward", "peer", "dot, fast", 64, 5.0, 150.0),
        )
    ]
    + [
        {"contestant": "dot", "form": "fast", "kind": "ours", "beside": "", "length": length}
        | {"milliseconds": ms, "megabytes": mb, "flops": flops, "bytes": flops / 8, "share": share}
        for length, ms, mb, flops, share in ((64, 2.0, 1.5, 2e6, 0.126), (1024, 20.0, 24.0, 4e8, 0.5))
    ]
    + [
        {"contestant": name, "form": form, "kind": "peer", "beside": "dot, fast", "length": 1024}
        | {"why not": "would need 9 GB"}
        for name, form in (("theirs", "readable"), ("compiled", "forward"))
    ],
    "busy": [
        {"task": "image", "threads": threads, "busy": busy, "seconds": seconds}
        for threads, times in (("spin", (8.0, 60.0, 90.0)), ("sleep", (9.0, 13.5, 18.0)))
        for busy, seconds in enumerate(times)
    ],
    "models": [
        {"task": "image", "model": "sciformer", "kind": "ours", "parameters": 1234, "steps per second": 30.0}
        | {"share": 0.254},
        {"task": "image", "model": "theirs", "kind": "peer", "parameters": 1234, "steps per second": 20.0},
        {"task": "image", "model": "gone", "kind": "peer", "why not": "not installed"},
    ],
}


def test_table():
    shown = report.table(CONTENT)
    assert "Measured on CPU, 2 threads (Abacus, 2 cores, 3 GB) with torch 2.9, on 2026-01-01 at commit abc." in shown
    assert "| one layer | 64 tokens | 1,024 tokens |" in shown
    assert "reached 80 · 10⁹ operations a second" in shown
    assert "40 · 10⁹ bytes a second within the caches and 10 · 10⁹ beyond them" in shown
    assert "| **dot, fast** | 2.00 ms (13%), 1.50 MB | 20.0 ms (50%), 24.0 MB |" in shown
    assert "| theirs, readable | 5.00 ms, 150 MB<br>2.50 × the time of dot, fast | would need 9 GB |" in shown
    assert "| **image: sciformer** | 1,234 | 30.0 (25%) | – |" in shown
    assert "| image: theirs | 1,234 | 20.0 | 1.50 × ours |" in shown
    assert "| image: gone | – | not installed | – |" in shown
    assert "| image | spin | 8.00 s | 60.0 s, 7.5 × | 90.0 s, 11.2 × |" in shown
    assert "| image | **sleep** | 9.00 s | 13.5 s, 1.5 × | 18.0 s, 2.0 × |" in shown
    without = {name: part for name, part in CONTENT.items() if name not in ("busy", "roof")}  # as an older record
    assert "What the machine allows at most: not measured yet." in report.table(without)
    assert report.table(without).endswith("Trainings beside busy processes: not measured yet.")
    assert report.ROOFLINE in report.section(CONTENT)
    assert report.ROOFLINE not in report.section(without)


def test_picture_shows_what_was_measured():
    figure = report.growth(CONTENT)
    fast, readable = ([line for line in ax.lines if len(line.get_xdata())] for ax in figure.axes[:2])
    assert [list(line.get_ydata()) for line in fast] == [[2.0, 20.0]]
    assert [list(line.get_ydata()) for line in readable] == [[5.0]]
    assert fast[0].get_linestyle() == "-"
    assert readable[0].get_linestyle() != "-"
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"dot", "theirs"}


def test_the_roof_is_drawn_over_the_fast_forms_of_the_longest_length():
    (ax,) = report.below_the_roof(CONTENT).axes
    lines = {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in ax.lines}
    assert set(lines) == {"roof, caches", "roof, memory", "dot"}
    assert lines["dot"] == [(8.0, 4e8 / 20e-3)]
    assert (2.0, 80e9) in lines["roof, caches"]
    assert (8.0, 80e9) in lines["roof, memory"]
    assert "1,024 tokens" in ax.get_title()


def test_the_page_of_results_is_not_stale():
    """To renew it: python -m benchmarks --write results/README.md."""
    text = (RESULTS / "README.md").read_text()
    assert between_marks(text, "benchmarks", report.section(report.load(RESULTS))) == text


def test_write_renews_the_table_and_measures_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "measure", lambda options: pytest.fail("measured"))
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- benchmarks -->\nold\n<!-- end of benchmarks -->\nafter\n")
    (tmp_path / report.RECORD).write_text(json.dumps(CONTENT))
    command.main(["--write", str(page), "--out", str(tmp_path)])
    assert (
        page.read_text()
        == f"before\n<!-- benchmarks -->\n\n{report.section(CONTENT)}\n\n<!-- end of benchmarks -->\nafter\n"
    )
    (tmp_path / report.RECORD).unlink()
    command.main(["--write", str(page), "--out", str(tmp_path)])
    assert "Not measured yet." in page.read_text()
