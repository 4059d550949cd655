"""How the site is put together and published, and that the project's address stands in one place."""

import base64
import hashlib
import importlib.util
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import address  # noqa: E402
import build_site  # noqa: E402
import pages_of_playground  # noqa: E402
import pictures  # noqa: E402
import site_notebooks  # noqa: E402
import site_words  # noqa: E402

from sciformer.lab.claims import CLAIMS, best_record, claims_table  # noqa: E402

WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "pages.yml").read_text())


def test_the_workflow_publishes_what_make_builds_and_may_do_nothing_else():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    build, deploy = WORKFLOW["jobs"]["build"], WORKFLOW["jobs"]["deploy"]
    assert "permissions" not in build
    assert deploy["permissions"] == {"pages": "write", "id-token": "write"}
    assert [step["run"] for step in build["steps"] if "run" in step] == ["make site"]
    assert build["steps"][-1]["with"]["path"] == build_site.BUILT.relative_to(ROOT).as_posix()
    assert all("timeout-minutes" in job for job in WORKFLOW["jobs"].values())


def test_the_workflow_pins_its_actions_and_keeps_no_credentials():
    used = [step["uses"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action) for action in used)
    assert WORKFLOW["jobs"]["build"]["steps"][0]["with"]["persist-credentials"] is False


def test_every_notebook_is_on_the_map_of_the_course():
    course = build_site.course_map()
    for path in build_site.notebooks():
        assert f'href="notebooks/{path.stem}.html"' in course
    assert course.count("<ul") == course.count("</ul>") == len(build_site.PARTS)
    assert len(re.findall(r'<img src="[^"]+" alt="[^"]{20,}"', course)) == len(build_site.notebooks())


@pytest.mark.parametrize("path", build_site.notebooks(), ids=lambda path: path.stem[:2])
def test_every_notebook_has_a_small_picture_and_two_times_that_are_told_apart(path, tmp_path):
    site_notebooks.write_small_picture(site_notebooks.small_picture(path), tmp_path / "small.png")
    assert (tmp_path / "small.png").stat().st_size < 60_000
    head = site_notebooks.head(path)
    assert head.times.startswith("runs in about ")
    assert head.study is None or head.times.endswith(" of study")


@pytest.mark.parametrize(
    ("line", "times"),
    [
        ("Needs: notebook 01 · about 25 s on two CPU cores", "runs in about 25 s"),
        ("Needs: notebook 01 · runs in about 25 s on two CPU cores", "runs in about 25 s"),
        (
            "Needs: notebook 01 · runs in about 25 s on two CPU cores · about 2½ hours of study",
            "runs in about 25 s, about 2½ hours of study",
        ),
    ],
)
def test_the_head_line_of_a_notebook_is_read_with_and_without_the_hours(line, times, tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(f"# 01 A\n\nbadge\n\n{line}\n\nText.")])
    nbformat.write(notebook, tmp_path / "01_a.ipynb")
    head = site_notebooks.head(tmp_path / "01_a.ipynb")
    assert (head.needs, head.times) == ("notebook 01", times)
    assert "· runs in about 25 s on two" in site_notebooks.with_running_time_named(notebook.cells[0].source)


def a_picture(color, kind="PNG"):
    file = io.BytesIO()
    Image.new("RGB", (3, 2), color).save(file, format=kind)
    return file.getvalue()


def shown(data, text, **metadata):
    encoded = {kind: base64.b64encode(content).decode() for kind, content in data.items()}
    return nbformat.v4.new_output("display_data", data=encoded | {"text/plain": text}, metadata=metadata)


def test_pictures_carry_their_texts_and_animations_move(tmp_path):
    """In a page that Sphinx makes of a notebook with the site's own settings."""
    if any(importlib.util.find_spec(name) is None for name in ("sphinx", "myst_nb", "sphinx_book_theme")):
        pytest.skip("needs pip install -e '.[site]'")
    still, moving, mute = a_picture("red"), a_picture("blue", "GIF"), a_picture("green")
    outputs = [
        shown({"image/png": still}, "a red field", **{"image/png": {"alt": "a red field"}}),
        shown({"image/gif": moving, "image/png": a_picture("blue")}, "a wave", **{"image/png": {"alt": "a wave"}}),
        shown({"image/png": mute}, "<Figure size 640x480 with 1 Axes>"),
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A"), nbformat.v4.new_code_cell("1")])
    notebook.cells[1].outputs = outputs
    source = tmp_path / "source"
    shutil.copytree(ROOT / "site", source, ignore=shutil.ignore_patterns("api", "playground", "models", "*.md"))
    nbformat.write(notebook, source / "index.ipynb")
    described = site_notebooks.alternatives([source / "index.ipynb"])
    assert set(described.values()) == {"a red field", "a wave"}
    (source / "alternatives.json").write_text(json.dumps(described))
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", source, tmp_path / "built"]
    subprocess.run(command, check=True, capture_output=True)
    page = (tmp_path / "built" / "index.html").read_text(encoding="utf-8")
    texts = dict(re.findall(r'<img alt="([^"]*)" src="_images/([^"]+)"', page))
    assert texts["a red field"] == f"{hashlib.sha256(still).hexdigest()}.png"
    assert texts["a wave"] == f"{hashlib.sha256(moving).hexdigest()}.gif"
    assert f"{hashlib.sha256(mute).hexdigest()}.png" in texts.values()


def test_the_playground_has_the_links_of_every_other_page():
    template = (ROOT / "site" / "_templates" / "site-links.html").read_text()
    links = re.findall(r"""pathto\('(\w+)'\)(?:\|replace\('#', ''\))? \}\}(#[\w-]+)?">(\w+)<""", template)
    assert {text: f"{page}.html{anchor}" for page, anchor, text in links} == pages_of_playground.SITE_LINKS
    names = list(pages_of_playground.TITLES)
    assert f'href="{names[1]}.html"><span>next' in pages_of_playground.pager(names[0])
    assert f'href="{names[-2]}.html"><span>previous' in pages_of_playground.pager(names[-1])


def test_terms_of_the_glossary_are_linked_once_and_have_a_place():
    glossary = "- **moat**: The moat is. [N](n).\n- **KV cache** (cache): It is. [N](n).\n"
    assert site_words.with_anchors(glossary).startswith("- [**moat**]{#term-moat}: The moat is.")
    linked = site_words.Terms(glossary).linked("the moat, a <code>KV cache</code>, moats, the KV cache")
    moat = '<a class="term" href="glossary.html#term-moat">moat</a>'
    cache = '<a class="term" href="glossary.html#term-kv-cache">KV cache</a>'
    assert linked == f"the {moat}, a <code>KV cache</code>, moats, the {cache}"


def test_the_forest_plot_has_the_rows_of_the_table():
    table = [line for line in claims_table().splitlines()[2:] if line.startswith("|")]
    rows = list(pictures.rows_of_claims())
    claims = [row for row in rows if row.verdict]
    assert len(claims) == len(table) == len(CLAIMS)
    for row, line in zip(claims, table, strict=True):
        number, claimed = row.label.replace("\n", " ").split(". ", 1)
        assert line.startswith(f"| {number} | {claimed} | ")
        assert f"**{row.verdict}**" in line or row.verdict in line.split(" | ")[-2]
    conditions = [row.label for row in rows if not row.verdict]
    assert conditions
    assert {row.outcome for row in rows} <= set(pictures.COLORS)
    assert all(f"{label}: " in "\n".join(table) for label in conditions)
    with Image.open(ROOT / "docs" / "claims.png") as drawn:  # renewed by tools/claims_picture.py
        assert drawn.text["Description"] == pictures.described_rows(rows)


def test_the_losses_are_those_of_the_record(tmp_path):
    content = best_record("additive-2x2")
    drawn = pictures.losses(tmp_path, content)
    assert len(drawn) == len(content["arms"]) == 6
    for path in drawn:
        with Image.open(ROOT / "results" / path.name) as kept:  # renewed by tools/loss_pictures.py
            assert kept.text["Description"] == pictures.described_record(content)


def test_no_gap_of_a_page_stays_open():
    for path in (ROOT / "site").glob("*.md"):
        assert "{{" not in build_site.filled(path.read_text(encoding="utf-8")), path


def test_every_page_of_the_playground_has_an_invitation_and_a_small_picture():
    assert set(build_site.INVITATIONS) == set(pages_of_playground.TITLES)
    for name in build_site.INVITATIONS:
        assert (ROOT / "docs" / "playground" / f"{name}.png").stat().st_size < 100_000


def test_links_of_the_repositorys_pages_lead_to_the_site_or_to_the_repository():
    text = "[a](notebooks/00_welcome.ipynb) [b](docs/architecture.md#x) [c](pyproject.toml) [d](https://example.org)"
    blob = f"{build_site.REPOSITORY}/blob/main"
    wanted = (
        f"[a](notebooks/00_welcome.ipynb) [b](architecture.md#x) [c]({blob}/pyproject.toml) [d](https://example.org)"
    )
    assert build_site.with_links(text, Path()) == wanted


def test_pictures_are_drawn_from_the_records(tmp_path):
    pictures.bake_off(tmp_path / "a.svg")
    pictures.claims(tmp_path / "b.svg")
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("a.svg", "b.svg"))


needs_git = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs git's list of what belongs here")


@pytest.fixture
def copied(tmp_path):
    """A copy of all that git knows and that can name the address."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    for name in listed:
        if name and (ROOT / name).suffix not in (".bz2", ".png") and not name.startswith("results/"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
    return tmp_path


@needs_git
def test_the_address_is_changed_everywhere(copied):
    old = address.present_address(ROOT)
    changed = address.move(copied, "someone/else.where")
    assert address.present_address(copied) == "someone/else.where"
    named = re.compile(rf"(github\.com|/github|/gh|codespaces\.new)/{re.escape(old)}(?![\w-])")
    left = [path for path in copied.rglob("*") if path.is_file() and ".git" not in path.parts and _names(path, named)]
    assert left == []
    assert len([path for path in changed if path.suffix == ".ipynb"]) == len(build_site.notebooks())
    assert address.move(copied, old)
    for path in changed:
        assert path.read_bytes() == (ROOT / path.relative_to(copied)).read_bytes()


def _names(path, pattern):
    return bool(pattern.search(path.read_bytes().decode(errors="ignore")))


def test_an_address_is_owner_and_repository(tmp_path):
    with pytest.raises(ValueError, match=r"must be OWNER/REPO, got 'https://github\.com/a/b'"):
        address.move(ROOT, "https://github.com/a/b")


def test_entry_points_are_at_the_projects_address():
    """Colab, Binder and a container beside it, each with what make lab installs."""
    present, readme = address.present_address(ROOT), (ROOT / "README.md").read_text()
    assert f"https://mybinder.org/v2/gh/{present}/HEAD?urlpath=lab/tree/notebooks/00_welcome.ipynb" in readme
    assert f"https://codespaces.new/{present}" in readme
    assert f"https://colab.research.google.com/github/{present}/blob/main/notebooks/00_welcome.ipynb" in readme
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert "-r requirements.txt" in container["postCreateCommand"]
