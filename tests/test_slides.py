"""The decks of slides: every picture of a notebook with its text, and nothing that a network would have to bring."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import site_notebooks  # noqa: E402
import slides  # noqa: E402

NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
MISSING = [name for name in ("sphinx_revealjs", "myst_parser") if importlib.util.find_spec(name) is None]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem[:2])
def test_a_deck_has_objectives_every_picture_takeaways_and_questions(path, tmp_path):
    text = slides.deck(path, tmp_path)
    shown = re.findall(r"^!\[([^\]]*)\]\(pictures/([^)]+)\)$", text, flags=re.M)
    assert len(shown) == len(list(site_notebooks.pictures(path))) >= 5
    assert all((tmp_path / name).exists() for _, name in shown)
    assert all(len(alt) >= 5 for alt, _ in shown)
    titles = re.findall(r"^## (.+)$", text, flags=re.M)
    assert "" not in titles
    for wanted in ("After it you can", "Takeaways"):
        assert titles.count(wanted) == 1 or path.stem[:2] == "07", "07 asks a question in place of objectives"
    assert len({"Check yourself", "Three questions"} & set(titles)) == 1
    assert "](../" not in text
    assert text.startswith(f"# {path.stem[:2]} ")


def test_answers_are_in_the_notes_and_not_on_the_slide(tmp_path):
    text = slides.deck(NOTEBOOKS[2], tmp_path)
    questions = text.rpartition("## Check yourself")[2]
    on_the_slide, _, spoken = questions.partition(":::{revealjs-notes}")
    assert "Answer" not in on_the_slide
    assert "Answer" in spoken


def test_links_into_the_repository_become_words():
    assert slides.plain("a [moat](../docs/glossary.md#m) and [a paper](https://arxiv.org/abs/1)") == (
        "a moat and [a paper](https://arxiv.org/abs/1)"
    )


@pytest.mark.skipif(bool(MISSING), reason="needs pip install -e '.[site]'")
def test_a_built_deck_has_all_its_files_with_it(tmp_path):
    command = [sys.executable, ROOT / "tools" / "slides.py", "--notebooks", "01", "02", "--out", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    for page in ("index.html", "01_weighted_sums.html", "02_scaled_dot_product.html"):
        text = (tmp_path / page).read_text(encoding="utf-8")
        fetched = re.findall(r'\bsrc="([^"]+)"|<link[^>]*href="([^"]+)"', text)
        names = [unquote(re.sub(r"[?#].*", "", source or style)) for source, style in fetched]
        assert len(names) >= 4
        assert [name for name in names if not (tmp_path / name).is_file()] == []
    assert "Reveal.initialize" in text
    assert (tmp_path / "_static" / "mathjax" / "tex-chtml.js").is_file()
    assert len(list((tmp_path / "_static" / "mathjax").rglob("*.woff"))) > 10
