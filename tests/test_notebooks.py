"""What every notebook keeps to, and what the README says of them. `pytest --nbval notebooks` runs them."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest

from sciformer.lab.claims import CLAIMS

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
ADDRESS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
#: With its links relative again: they have a whole address, for a package index shows the page as well.
README = re.sub(rf"{ADDRESS}/(?:blob|raw)/main/", "", (ROOT / "README.md").read_text())

SETUP = f"""\
# Set-up: where sciformer is missing (Colab) this fetches it, and leaves torch alone.
import importlib.util
import os
import subprocess
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: threads that wait leave their core to others
if importlib.util.find_spec("sciformer") is None:
    address = "sciformer @ git+{ADDRESS}"
    subprocess.check_call([sys.executable, "-m", "pip", "install", "-q", address])"""


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    content = nbformat.read(request.param, as_version=4)
    content.path = request.param
    return content


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(notebook):
    return [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]


def outputs(notebook):
    return [output for cell in code(notebook) for output in cell.outputs]


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 6


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("notebooks_tool", ROOT / "tools" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pairs_are_in_step(tool):
    assert tool.drifted() == []


CHILD = "import time; held = bytes(10**6) * 300; time.sleep(1)"
GIVEN_BACK = "held = bytes(10**6) * 500; del held"
TOGETHER = f"import subprocess, sys; held = bytes(10**6) * 200; subprocess.run([sys.executable, '-c', {CHILD!r}])"


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process from /proc")
@pytest.mark.parametrize("cell", [GIVEN_BACK, TOGETHER], ids=["given back at once", "by two processes together"])
def test_the_memory_of_a_notebook_is_the_most_that_it_has_held(cell, tool, tmp_path, monkeypatch, capsys):
    script = tmp_path / "99_memory.py"
    script.write_text(f"# %%\n{cell}; done = True\n")
    monkeypatch.setattr(tool, "MEMORY", 500e6)
    assert not tool.fits(script, timeout=60)
    monkeypatch.setattr(tool, "MEMORY", 800e6)
    assert tool.fits(script, timeout=60)
    assert re.fullmatch(r"(99_memory: 0\.[5-7]\d GB\n){2}", capsys.readouterr().out)


def test_head(notebook):
    stem = notebook.path.stem
    head = texts(notebook)[0].splitlines()
    assert head[0].startswith(f"# {stem[:2]} ")
    colab = ADDRESS.replace("https://github.com/", "https://colab.research.google.com/github/")
    badge = "https://colab.research.google.com/assets/colab-badge.svg"
    assert head[2] == f"[![Open in Colab]({badge})]({colab}/blob/main/notebooks/{stem}.ipynb)"
    assert re.fullmatch(
        r"Needs: .+ · runs in about .+ on two CPU cores · about .+ of study", head[6 if stem[:2] == "00" else 8]
    )


def test_heads_link_to_their_neighbours_and_state_the_hours():
    checked = subprocess.run([sys.executable, ROOT / "tools" / "heads.py", "check"], capture_output=True, text=True)
    assert (checked.stdout, checked.returncode) == ("all heads are up to date\n", 0)


def test_set_up_is_the_same_everywhere(notebook):
    assert code(notebook)[0].source == SETUP


def test_cells_are_small(notebook):
    cells = code(notebook)
    to_read = [cell for cell in cells if "raise NotImplementedError" not in cell.source]
    assert len(cells) >= 15
    assert len(to_read) <= 60  # and some to write in
    assert max(len(cell.source.splitlines()) for cell in cells) <= 25
    for text in texts(notebook):
        prose = re.sub(r"<details>.*?</details>", "", text, flags=re.S)
        prose = re.sub(r"^\|.*$|^```.*?^```|\$\$.*?\$\$|\(https?:.*?\)|^#+ .*$", "", prose, flags=re.M | re.S)
        assert len(prose.split()) <= 250, text


def test_a_prediction_is_answered_by_a_result_and_not_by_the_verdict_on_it(notebook):
    """A verdict states what is true: its cell stands behind the one whose output a reader was asked to predict."""
    asked = False
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            asked = bool(re.search(r"\*\*([Pp]redict|[Gg]uess)|\bGuess\b", cell.source))
        elif asked:
            assert "course.verdict(" not in cell.source, cell.source
            asked = not cell.outputs


def test_every_cell_was_run_and_none_failed(notebook):
    assert all(cell.execution_count for cell in code(notebook))
    assert not [output for output in outputs(notebook) if output.output_type == "error"]


def test_most_is_compared(notebook):
    ignored = [c for c in code(notebook) if {"nbval-ignore-output", "nbval-skip"} & set(c.metadata.get("tags", []))]
    assert len(ignored) < 0.3 * len(code(notebook))


def test_outputs_open_anywhere(notebook):
    """A picture at least; no widget state, which GitHub cannot show, and no SVG, which differs by version."""
    kinds = [kind for output in outputs(notebook) for kind in output.get("data", {})]
    assert "image/png" in kinds
    assert not {"image/svg+xml", "application/vnd.jupyter.widget-view+json"} & set(kinds)
    assert "widgets" not in notebook.metadata


def test_a_claim_that_is_printed_with_its_verdicts_is_worded_as_the_tables_word_it(notebook):
    claimed = {claim.claimed for claim in CLAIMS}
    printed = "\n".join(output.text for output in outputs(notebook) if output.output_type == "stream")
    told = re.findall(r"^(\S.*)\n    (?:.*: )?(?:shown|refuted|undecided)\b", printed, flags=re.M)
    assert set(told) <= claimed
    assert len(told) >= 4 or not notebook.path.stem.startswith("07_")


def test_details_are_closed(notebook):
    for text in texts(notebook):
        assert text.count("<details>") == text.count("</details>") == text.count("<summary>")
        assert len(re.findall(r"</summary>\n\n", text)) == text.count("<details>"), "Markdown needs a blank line there"


def test_readme_lists_exactly_the_notebooks():
    listed = re.findall(r"^\| \d\d \| \[[^\]]+\]\(notebooks/(.+?)\.ipynb\)", README, flags=re.M)
    assert listed == [path.stem for path in NOTEBOOKS]


def test_readme_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", README)
    assert len(targets) > 20
    for target in targets:
        assert (ROOT / target).exists(), target


def test_example_of_a_score_runs():
    scope: dict = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "homework.md").read_text(), flags=re.S):
        if "import" in block:
            exec(block, scope)
    assert scope["logits"].shape == (2, 10)
    assert scope["logits"].isfinite().all()


def test_the_makefile_runs_what_is_typed_without_make():
    makefile, page = (ROOT / "Makefile").read_text(), (ROOT / "docs" / "platforms.md").read_text()
    for command in ("-m pytest tests", "-m pytest --nbval notebooks", "-r requirements.txt"):
        assert command in makefile
        assert command in page
    assert "docs/platforms.md" in README
    for target in ("lab", "test", "site"):
        assert f"make {target}" in README
        assert f"\n{target}:" in makefile
