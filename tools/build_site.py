"""Build the site, offline and without running a notebook: python tools/build_site.py, or make site.

The sources are put together in ``build/site-source``: the pages of ``site/``, the notebooks as they were committed, the
repository's own pages, the playground, and pictures drawn from the records. Sphinx makes ``build/site`` of them.
"""

import argparse
import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pages_of_playground as pages
import pictures
import site_notebooks
import site_words
from address import HOST, present_address

from sciformer.check import EXERCISES
from sciformer.lab.claims import CLAIMS
from sciformer.lab.claims.tables import bake_off_table, claims_table, margins_table, references_list
from sciformer.teach.diagrams.course_map import PARTS

ROOT = Path(__file__).parents[1]
SITE, STAGE, BUILT = ROOT / "site", ROOT / "build" / "site-source", ROOT / "build" / "site"
REPOSITORY = HOST + present_address(ROOT)
COLAB_BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
#: Pages of the repository that are pages of the site too, by the name that they have here.
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "results/README.md": "records.md"}
#: Those of them for learners and instructors, in the order of the site.
TEACHING = {
    "docs/paths.md": "paths.md",
    "docs/instructors.md": "instructors.md",
    **{f"docs/assignments/{number}.md": f"assignment-{number}.md" for number in (1, 2, 3)},
    "docs/exam.md": "exam.md",
}
#: What a visitor of a page can do there.
INVITATIONS = {
    "draw": "The image transformer of notebook 06 reads while you draw, and shows where each patch looks.",
    "write": "A character model goes on from your beginning. Look at the weights, switch the cache off.",
    "words": "Which noun does “it” mean? Move eleven words, and see where every mechanism looks.",
    "break": "Five classic mistakes, switched on in trained models: what becomes of accuracy and text.",
    "slopes": "Length against cost, measured in your own browser.",
}


def stage() -> None:
    """Put the sources together."""
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree(SITE, STAGE, ignore=shutil.ignore_patterns("playground"))
    (STAGE / "pictures").mkdir()
    shutil.copytree(ROOT / "docs" / "playground", STAGE / "_static" / "playground")
    stage_notebooks()
    for source, name in repository_pages().items():
        text = (ROOT / source).read_text(encoding="utf-8")
        text = site_words.with_anchors(text) if name == "glossary.md" else text
        (STAGE / name).write_text(with_links(text, Path(source).parent), encoding="utf-8")
    start = f"# Start\n\n{section(readme(), 'Start')}"
    (STAGE / "start.md").write_text(with_links(start, Path()), encoding="utf-8")
    pictures.bake_off(STAGE / "pictures" / "bake_off.svg")
    pictures.claims(STAGE / "pictures" / "claims.svg")
    pages.write_playground(STAGE / "extra" / "playground")
    for path in STAGE.glob("*.md"):
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


def stage_notebooks() -> None:
    """The notebooks as they were committed, what their pictures show, and a small picture of each."""
    (STAGE / "notebooks").mkdir()
    (STAGE / "_static" / "notebooks").mkdir()
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    for path in notebooks():
        copied = path.read_text(encoding="utf-8").replace(COLAB_BADGE, "../_static/colab-badge.svg")
        content = json.loads(copied)
        content["cells"][0]["source"] = site_notebooks.with_running_time_named("".join(content["cells"][0]["source"]))
        for cell in content["cells"]:
            if cell["cell_type"] == "markdown":
                linked = with_links("".join(cell["source"]), Path("notebooks"), here="../")
                cell["source"] = site_words.with_places(linked, glossary)
        (STAGE / "notebooks" / path.name).write_text(json.dumps(content), encoding="utf-8")
        small = site_notebooks.small_picture(path)
        site_notebooks.write_small_picture(small, STAGE / "_static" / "notebooks" / f"{path.stem}.png")
    (STAGE / "alternatives.json").write_text(json.dumps(site_notebooks.alternatives(notebooks())), encoding="utf-8")


def notebooks() -> list[Path]:
    """The notebooks, in their order."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


def repository_pages() -> dict[str, str]:
    """Each page of the repository that the site shows, and its name here."""
    return PAGES | TEACHING | {f"docs/{path.name}": path.name for path in sorted((ROOT / "docs").glob("*.md"))}


def reference_pages() -> set[str]:
    """The pages of the repository that stand under no other heading of the site."""
    return set(repository_pages().values()) - {*TEACHING.values(), "records.md"}


def section(text: str, heading: str) -> str:
    """What stands under a heading of a page, its subheadings one level up."""
    under = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, flags=re.M | re.S)
    if under is None:
        raise ValueError(f"the README has no heading {heading!r}")
    return re.sub(r"^##(#+ )", r"#\1", under[1], flags=re.M)


def with_links(text: str, folder: Path, here: str = "") -> str:
    """A page of the repository whose links lead to pages of the site, or else to the repository.

    Args:
        folder: where the page stands in the repository.
        here: the way from the page's place on the site up to its root.
    """
    shown = repository_pages() | {f"notebooks/{path.name}": f"notebooks/{path.name}" for path in notebooks()}

    def link(found: re.Match[str]) -> str:
        target = (ROOT / folder / found[1]).resolve()
        if not target.exists():
            return found[0]
        path = target.relative_to(ROOT.resolve()).as_posix()
        if target.suffix == ".png":  # a picture is carried along
            shutil.copy(target, STAGE / "pictures")
            return f"]({here}pictures/{target.name})"
        shown_at = f"{here}{shown[path]}" if path in shown else f"{REPOSITORY}/blob/main/{path}"
        return f"]({shown_at}{found[2] or ''})"

    return re.sub(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)", link, text)


def filled(text: str) -> str:
    """A page with its gaps filled."""
    parts: dict[str, Callable[[], str]] = {
        "count": lambda: str(len(notebooks())),
        "exercises": lambda: str(len(EXERCISES)),
        "claims": lambda: str(len(CLAIMS)),
        "claims_table": claims_table,
        "margins": margins_table,
        "references": references_list,
        "bake_off": bake_off_table,
        "map": course_map,
        "playground": playground_cards,
        "models": lambda: "\n".join(model_rows()),
        "notebooks": lambda: "\n".join(f"notebooks/{path.stem}" for path in notebooks()),
        "teaching": lambda: "\n".join(Path(name).stem for name in TEACHING.values()),
        "reference": lambda: "\n".join(sorted(Path(name).stem for name in reference_pages())),
        "blob": lambda: f"{REPOSITORY}/blob/main",
        "repository": lambda: REPOSITORY,
        "colab": lambda: f"https://colab.research.google.com/github/{present_address(ROOT)}/blob/main",
    }
    return re.sub(rf"\{{\{{({'|'.join(parts)})\}}\}}", lambda gap: parts[gap[1]](), text)


def rows_of_notebooks() -> list[tuple[str, str, str, str, str]]:
    """The rows of the README's table of notebooks: number, name, path, what it builds, what it trains."""
    return re.findall(r"^\| (\d\d) \| \[([^\]]+)\]\(([^)]+)\) \| (.+?) \| (.+?) \|", readme(), flags=re.M)


def course_map() -> str:
    """Every notebook as a card: a picture from it, what it builds and trains as the README says, and its times."""
    out, terms = [], site_words.Terms((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
    starts = {first: part.capitalize() for part, (_, first) in PARTS.items()}
    for number, name, path, builds, trains in rows_of_notebooks():
        if int(number) in starts:
            out += ["</ul>"] if out else []
            out += [f'<h3 class="part">{starts[int(number)]}</h3>', '<ul class="cards">']
        trained = f" <em>Trains:</em> {inline(trains)}." if trains != "–" else ""
        head, alt = site_notebooks.head(ROOT / path), site_notebooks.small_picture(ROOT / path).alt or ""
        picture = f'<img src="_static/notebooks/{Path(path).stem}.png" alt="{html.escape(alt)}" loading="lazy">'
        about = f"<p>{terms.linked(inline(builds))}.{trained}</p>"
        times = f'<p class="times">Needs {inline(head.needs)}; {head.times}.</p>'
        link = f'<a href="{path.replace(".ipynb", ".html")}">{number} {inline(name)}</a>'
        out.append(f"<li>{picture}{link}{about}{times}</li>")
    return "\n".join([*out, "</ul>"])


def readme() -> str:
    """The README, its links relative again: they have a whole address, for a package index shows the page as well."""
    return re.sub(rf"{REPOSITORY}/(?:blob|raw)/main/", "", (ROOT / "README.md").read_text(encoding="utf-8"))


def inline(text: str) -> str:
    """Markdown's code as HTML's, all else escaped."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))


def playground_cards() -> str:
    """A card with a picture for each page of the playground."""
    cards = []
    for name, (title, _) in pages.TITLES.items():
        picture = f'<img src="_static/playground/{name}.png" alt="" loading="lazy">'  # the link's words say it
        cards.append(
            f'<li><a href="playground/{name}.html">{picture}<span>{title}</span></a><p>{INVITATIONS[name]}</p></li>'
        )
    return "\n".join(['<ul class="cards five">', *cards, "</ul>"])


def model_rows() -> Iterator[str]:
    """The playground's models, each as a row of a table."""
    used = {"reader": "draw, break", "turner": "draw", "writer": "write", "student": "break"}
    for name, where in used.items():
        model = json.loads((pages.MODELS / f"{name}.json").read_text(encoding="utf-8"))
        record, facts = model["record"], dict(map(tuple, model["facts"]))
        metric, value = next(iter(record["metrics"].items()))
        data = "MNIST" if model["model"]["kind"] == "ImageTransformer" else "Tiny Shakespeare"
        shown = f"{100 * value:.1f} %" if metric == "test accuracy" else f"{value:.3f}"
        steps = f"{data}, {record['config']['train']['steps']:,} steps"
        what = f"{name}, {facts['parameters']} parameters"
        yield f"| {what} | {where} | {steps} | {metric} {shown} | {facts['weights in this page']} |"


def build(out: Path) -> None:
    """Run Sphinx; a warning is an error."""
    cache = STAGE.with_name("site-doctrees")  # is not to be published
    options = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(cache)]
    subprocess.run([sys.executable, "-m", "sphinx", *options, str(STAGE), str(out)], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=BUILT)
    options = parser.parse_args()
    stage()
    if options.out == BUILT:  # pages of an earlier build must not stay
        shutil.rmtree(BUILT, ignore_errors=True)
    build(options.out)
    print(f"built: {options.out / 'index.html'}")
