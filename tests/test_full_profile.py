"""Every notebook's full profile, rehearsed: every cell runs, with two steps of training, on a GPU or one the CPU plays.

A kernel is told by `rehearsal.py` to shorten what takes hours and to leave the rest as it is: widths, depths, arms and
the branches that only the full profile or a GPU takes. All of it runs; what it computes is not judged.
"""

import json
from pathlib import Path

import nbformat
import pytest
import torch
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
#: torch.compile asks for a driver where it sees a GPU
ON_THE_CPU = set() if torch.cuda.is_available() else {"15_fast_attention"}
#: What stands open in a notebook takes no setting to shorten; where it is long, its text is.
SHORTER = {
    "02_scaled_dot_product": {"steps=100": "steps=10", "steps=300": "steps=20"},
    "03_multi_head": {"steps=300": "steps=20"},
    "04_positions": {"steps=250": "steps=10", "steps=120": "steps=10"},
    "05_transformer_block": {"steps=80": "steps=10", "steps=120": "steps=10", "(0, 1, 20, 79)": "(0, 1, 2, 9)"},
    "06_image_transformer": {"steps=800": "steps=40", "steps=1600": "steps=80", "steps=200": "steps=10"},
    "07_distance_bias": {"steps=150": "steps=2"},
    "08_character_model": {"steps = setting.train.steps": "steps = 30"},
    "12_masked_images": {
        "tensor[:2000]": "tensor[:200]",
        "(part) for part in x.split": "(part) for part in x[:200].split",
        "manual_seed(seed)) for seed in range(5)": "manual_seed(seed)) for seed in range(2)",
    },
    "15_fast_attention": {"longest = 32_768": "longest = 2_048"},
    "18_heads_that_copy": {'"full": 2000': '"full": 200'},
}


@pytest.mark.rehearsal
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_full_profile_runs_to_its_end(path, tmp_path, monkeypatch):
    verdicts = tmp_path / "verdicts"
    verdicts.touch()
    startup = tmp_path / "startup.py"
    startup.write_text("import rehearsal\n")
    environment = {
        "SCIFORMER_PROFILE": "full",
        "SCIFORMER_VERDICTS": verdicts,
        "REHEARSAL_DEVICE": "cpu" if path.stem in ON_THE_CPU else "cuda",
        "PYTHONSTARTUP": startup,
        "PYTHONPATH": ROOT / "tests",
        "OMP_NUM_THREADS": 1,  # two notebooks at a time
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))
    notebook = nbformat.read(path, as_version=4)
    for long, short in SHORTER.get(path.stem, {}).items():
        loops = [cell for cell in notebook.cells if cell.cell_type == "code" and long in cell.source]
        assert loops, f"no cell of {path.stem} has {long!r} any more"
        for loop in loops:
            loop.source = loop.source.replace(long, short)
    stated = sum("course.verdict(" in cell.source for cell in notebook.cells if cell.cell_type == "code")
    folder = {"metadata": {"path": path.parent}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=folder).execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert len(verdicts.read_text().splitlines()) >= stated
    for line in verdicts.read_text().splitlines():
        assert json.loads(line)["name"]
