"""Make a deck of slides of each notebook, with reveal.js, offline: python tools/slides.py, or make slides.

A deck has the title, what one can do afterwards, every picture under the heading where it stands, the takeaways and the
questions. The text before a picture is in the speaker's notes (press S; F is full screen, Esc the overview). Nothing is
run, and no deck asks a network for anything: reveal.js and MathJax come from packages (`pip install -e '.[site]'`).
"""

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import site_notebooks

ROOT = Path(__file__).resolve().parents[1]
STAGE, BUILT = ROOT / "build" / "slides-source", ROOT / "build" / "slides"
#: The settings of Sphinx, by name.
SETTINGS = {
    "project": "sciformer",
    "html_title": "sciformer",
    "extensions": ["myst_parser", "sphinx_revealjs", "sphinx.ext.mathjax"],
    "myst_enable_extensions": ["dollarmath", "colon_fence"],
    "suppress_warnings": ["myst.header", "toc.not_included"],
    "mathjax_path": "mathjax/tex-chtml.js",
    "revealjs_style_theme": "white",
    "revealjs_static_path": ["_static"],
    "revealjs_css_files": ["slides.css"],
    "revealjs_script_plugins": [{"name": "RevealNotes", "src": "revealjs/plugin/notes/notes.js"}],
    "revealjs_script_conf": {"slideNumber": "c/t", "hash": True},
}
STYLE = """\
.reveal { font-size: 26px; }
.reveal h1 { font-size: 2.2em; text-transform: none; }
.reveal h2, .reveal h3 { font-size: 1.4em; text-transform: none; }
.reveal section img { max-height: 560px; max-width: 100%; background: white; }
.reveal ul, .reveal ol, .reveal p { text-align: left; }
.reveal h1 + p { text-align: center; }
"""
FOLDED = re.compile(r"<details>.*?</details>", re.S)
HEADING = re.compile(r"^#{2,3} (.+)$", re.M)


def deck(path: Path, pictures: Path) -> str:
    """The Markdown of a notebook's deck; its pictures are written into a folder beside the page.

    Args:
        path: the notebook.
        pictures: the folder.
    """
    first, *cells = site_notebooks.read(path)["cells"]
    slides = [f"# {source(first).splitlines()[0].removeprefix('# ')}\n\nsciformer, {site_notebooks.head(path).times}"]
    heading, notes = "", ""
    for cell in cells:
        text = source(cell)
        if cell["cell_type"] == "markdown":
            slides += [slide("After it you can", bullets) for bullets in objectives(text)]
            heading, notes = (HEADING.findall(text) or [heading])[-1], text
            for title, part in sections(text):
                if title in ("Takeaways", "Check yourself", "Three questions"):
                    slides.append(slide(title, FOLDED.sub("", part), "\n".join(FOLDED.findall(part))))
            continue
        for number, picture in enumerate(site_notebooks.pictures_of(cell)):
            target = pictures / f"{path.stem[:2]}-{len(slides)}-{number}{picture.suffix}"
            target.write_bytes(picture.data)
            alt = re.sub(r"[\[\]\n]+", " ", picture.alt or heading)
            slides.append(slide(heading, f"![{alt}](pictures/{target.name})", f"{notes}\n\n{alt}"))
    return "\n\n".join(slides) + "\n"


def source(cell: dict[str, Any]) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def objectives(text: str) -> list[str]:
    """The list of what one can do after a notebook, if this cell has it."""
    return re.findall(r"[Aa]fter(?:wards| this notebook| it) you can\n\n((?:- .+\n?(?:  .+\n?)*)+)", text)


def sections(text: str) -> list[tuple[str, str]]:
    """The headings of a cell, each with what stands below it."""
    return re.findall(r"^## (.+)\n+((?:(?!## ).*\n?)*)", text, flags=re.M)


def slide(title: str, body: str, notes: str = "") -> str:
    """One slide, with the speaker's notes."""
    spoken = f"\n\n:::{{revealjs-notes}}\n{plain(notes)}\n:::" if notes.strip() else ""
    return f"## {plain(title)}\n\n{plain(body)}{spoken}"


def plain(text: str) -> str:
    """A text without headings of its own and without links into the repository, which a deck does not carry."""
    text = re.sub(r"</?(?:details|summary)>", "\n", re.sub(r"^#{1,6} ", "", text, flags=re.M))
    return re.sub(r"(?<!!)\[([^\[\]]+)\]\((?!https?:)[^)]*\)", r"\1", text).strip()


def stage(notebooks: list[Path]) -> None:
    """Put the sources together."""
    shutil.rmtree(STAGE, ignore_errors=True)
    (STAGE / "pictures").mkdir(parents=True)
    (STAGE / "_static").mkdir()
    (STAGE / "_static" / "slides.css").write_text(STYLE, encoding="utf-8")
    settings = "\n".join(f"{name} = {value!r}" for name, value in SETTINGS.items())
    (STAGE / "conf.py").write_text(settings, encoding="utf-8")
    names = []
    for path in notebooks:
        (STAGE / f"{path.stem}.md").write_text(deck(path, STAGE / "pictures"), encoding="utf-8")
        names.append(f"- [{path.stem.replace('_', ' ')}]({path.stem}.md)")
    columns = [names[:10], names[10:]]
    listed = "\n\n".join(f"## Decks\n\n{chr(10).join(column)}" for column in columns if column)
    (STAGE / "index.md").write_text(f"# sciformer\n\nSlides for a lecture\n\n{listed}\n", encoding="utf-8")


def build(out: Path) -> None:
    """Run Sphinx, a warning being an error, and add MathJax."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "revealjs"]
    subprocess.run([*command, "-d", str(STAGE.with_name("slides-doctrees")), str(STAGE), str(out)], check=True)
    found = importlib.util.find_spec("sphinx-mathjax-offline")
    assert found is not None, "it is in the extra site"
    mathjax = Path(str(found.origin)).parent / "static" / "mathjax"
    fonts = Path("output") / "chtml" / "fonts" / "woff-v2"
    shutil.copytree(mathjax / fonts, out / "_static" / "mathjax" / fonts, dirs_exist_ok=True)
    shutil.copy(mathjax / "tex-chtml.js", out / "_static" / "mathjax")


def main() -> None:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--notebooks", nargs="+", metavar="NN", help="numbers; all if not given")
    parser.add_argument("--out", type=Path, default=BUILT)
    options = parser.parse_args()
    found = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    stage([path for path in found if not options.notebooks or path.stem[:2] in options.notebooks])
    build(options.out)
    print(f"built: {options.out / 'index.html'}")


if __name__ == "__main__":
    main()
