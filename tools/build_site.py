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
from address import HOST, present_address

from sciformer.lab.claims import CLAIMS
from sciformer.lab.claims.tables import bake_off_table, claims_table

ROOT = Path(__file__).parents[1]
SITE, STAGE, BUILT = ROOT / "site", ROOT / "build" / "site-source", ROOT / "build" / "site"
REPOSITORY = HOST + present_address(ROOT)
COLAB_BADGE = "https://colab.research.google.com/assets/colab-badge.svg"
#: The course in parts, each with the number of its first notebook.
PARTS = {
    "From a weighted sum to a transformer": 0,
    "Put to work": 6,
    "Other ways to compare": 9,
    "Other shapes of the task": 11,
    "Measured, searched, made fast": 14,
}
#: Pages of the repository that are pages of the site too, by the name that they have here.
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "results/README.md": "records.md"}
#: What a visitor of a page can do there.
INVITATIONS = {
    "draw": "The image transformer of notebook 06 reads while you draw, and shows where each patch looks.",
    "write": "A character model goes on from your beginning. Look at the weights, switch the cache off.",
    "words": "Drag eleven words on a plane, and see what every mechanism makes of them.",
    "break": "Five classic mistakes, switched on in trained models: what becomes of accuracy and text.",
    "slopes": "Length against cost, measured in your own browser.",
}


def stage() -> None:
    """Put the sources together."""
    shutil.rmtree(STAGE, ignore_errors=True)
    shutil.copytree(SITE, STAGE, ignore=shutil.ignore_patterns("playground", "models"))
    (STAGE / "notebooks").mkdir()
    (STAGE / "pictures").mkdir()
    shutil.copytree(ROOT / "docs" / "playground", STAGE / "_static" / "playground")
    for path in notebooks():
        copied = path.read_text(encoding="utf-8").replace(COLAB_BADGE, "../_static/colab-badge.svg")
        (STAGE / "notebooks" / path.name).write_text(copied, encoding="utf-8")
    for source, name in repository_pages().items():
        text = (ROOT / source).read_text(encoding="utf-8")
        (STAGE / name).write_text(with_links(text, Path(source).parent), encoding="utf-8")
    for name, heading, title in (("start", "Start", "Start"), ("instructors", "In an assignment", "For instructors")):
        text = f"# {title}\n\n{section(readme(), heading)}"
        (STAGE / f"{name}.md").write_text(with_links(text, Path()), encoding="utf-8")
    pictures.bake_off(STAGE / "pictures" / "bake_off.svg")
    pictures.claims(STAGE / "pictures" / "claims.svg")
    pages.write_playground(STAGE / "extra" / "playground")
    for path in STAGE.glob("*.md"):
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


def notebooks() -> list[Path]:
    """The notebooks, in their order."""
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


def repository_pages() -> dict[str, str]:
    """Each page of the repository that the site shows, and its name here."""
    return PAGES | {f"docs/{path.name}": path.name for path in sorted((ROOT / "docs").glob("*.md"))}


def section(text: str, heading: str) -> str:
    """What stands under a heading of a page, its subheadings one level up."""
    under = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, flags=re.M | re.S)
    if under is None:
        raise ValueError(f"the README has no heading {heading!r}")
    return re.sub(r"^##(#+ )", r"#\1", under[1], flags=re.M)


def with_links(text: str, folder: Path) -> str:
    """A page of the repository whose links lead to pages of the site, or else to the repository.

    Args:
        folder: where the page stands in the repository.
    """
    shown = repository_pages() | {f"notebooks/{path.name}": f"notebooks/{path.name}" for path in notebooks()}

    def link(found: re.Match[str]) -> str:
        target = (ROOT / folder / found[1]).resolve()
        if not target.exists():
            return found[0]
        path = target.relative_to(ROOT.resolve()).as_posix()
        if target.suffix == ".png":  # a picture is carried along
            shutil.copy(target, STAGE / "pictures")
            return f"](pictures/{target.name})"
        return f"]({shown.get(path, f'{REPOSITORY}/blob/main/{path}')}{found[2] or ''})"

    return re.sub(r"\]\(([^)#:\s]+)(#[^)\s]*)?\)", link, text)


def filled(text: str) -> str:
    """A page with its gaps filled."""
    parts: dict[str, Callable[[], str]] = {
        "count": lambda: str(len(notebooks())),
        "claims": lambda: claims_table() if "\n# Results\n" in text else str(len(CLAIMS)),
        "bake_off": bake_off_table,
        "map": course_map,
        "playground": playground_cards,
        "models": lambda: "\n".join(model_rows()),
        "notebooks": lambda: "\n".join(f"notebooks/{path.stem}" for path in notebooks()),
        "reference": lambda: "\n".join(
            ["instructors", *sorted(Path(n).stem for n in repository_pages().values() if n != "records.md")]
        ),
        "blob": lambda: f"{REPOSITORY}/blob/main",
    }
    return re.sub(rf"\{{\{{({'|'.join(parts)})\}}\}}", lambda gap: parts[gap[1]](), text)


def course_map() -> str:
    """Every notebook as a card: what it builds and what it trains, as the README's table says."""
    rows = re.findall(r"^\| (\d\d) \| \[([^\]]+)\]\(([^)]+)\) \| (.+?) \| (.+?) \| (.+?) \|$", readme(), flags=re.M)
    out = []
    starts = {first: title for title, first in PARTS.items()}
    for number, name, path, builds, trains, minutes in rows:
        if int(number) in starts:
            out += ["</ul>"] if out else []
            out += [f'<h3 class="part">{starts[int(number)]}</h3>', '<ul class="cards">']
        trained = f" <em>Trains:</em> {inline(trains)}." if trains != "–" else ""
        link = path.replace(".ipynb", ".html")
        about = f"{inline(builds)}.{trained} About {inline(minutes)}."
        out.append(f'<li><a href="{link}">{number} {inline(name)}</a><p>{about}</p></li>')
    return "\n".join([*out, "</ul>"])


def readme() -> str:
    """The README."""
    return (ROOT / "README.md").read_text(encoding="utf-8")


def inline(text: str) -> str:
    """Markdown's code as HTML's, all else escaped."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))


def playground_cards() -> str:
    """A card with a picture for each page of the playground."""
    cards = []
    for name, (title, _) in pages.TITLES.items():
        picture = f'<img src="_static/playground/{name}.png" alt="" loading="lazy">'
        cards.append(
            f'<li><a href="playground/{name}.html">{picture}<span>{title}</span></a><p>{INVITATIONS[name]}</p></li>'
        )
    return "\n".join(['<ul class="cards">', *cards, "</ul>"])


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
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(STAGE), str(out)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=BUILT)
    options = parser.parse_args()
    stage()
    if options.out == BUILT:  # pages of an earlier build must not stay
        shutil.rmtree(BUILT, ignore_errors=True)
    build(options.out)
    print(f"built: {options.out / 'index.html'}")
