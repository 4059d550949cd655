"""How the site is put together and published, and that the project's address stands in one place."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import address  # noqa: E402
import build_site  # noqa: E402
import pages_of_playground  # noqa: E402
import pictures  # noqa: E402

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
