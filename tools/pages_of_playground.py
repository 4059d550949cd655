"""The playground's pages, each one self-contained HTML file: python tools/pages_of_playground.py FOLDER

``tools/build_site.py`` calls :func:`write_playground`. The pages are put together from
``sciformer/teach/export`` (the forward pass, and what an exported model's page consists of), ``site/playground`` and
the trained models of ``sciformer/teach/trained``.
"""

import argparse
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from sciformer.data import mnist, shakespeare
from sciformer.teach.export import HERE, assemble
from sciformer.teach.trained import HERE as MODELS

ROOT = Path(__file__).parents[1]
SOURCE, RESULTS = ROOT / "site" / "playground", ROOT / "results"
#: Each page's title, as its own heading, and its name in the row of links above.
TITLES = {
    "draw": ("Draw a digit", "draw a digit"),
    "write": ("Write Shakespeare", "write Shakespeare"),
    "words": ("One sentence, every score", "one sentence, every score"),
    "break": ("Break it", "break it"),
    "slopes": ("Two slopes of time and memory", "two slopes"),
}
#: The links at the top of every page of the site, as site/_templates/site-links.html has them.
SITE_LINKS = {
    "Home": "index.html",
    "Notebooks": "index.html#the-map-of-the-course",
    "Playground": "playground.html",
    "Results": "results.html",
}
#: Digits and characters on which mistakes are measured.
DIGITS, CHARACTERS = 100, 513


def write_playground(folder: Path) -> list[Path]:
    """Write every page into a folder.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, make in (("draw", draw), ("write", write), ("words", words), ("break", break_it), ("slopes", slopes)):
        path = folder / f"{name}.html"
        path.write_text(make(), encoding="utf-8")
        written.append(path)
    return written


def draw() -> str:
    """The image transformer of notebook 06, and the distance model of the half-turn theorem."""
    reader, turner = model("reader"), model("turner")
    right = percent(reader["record"]["metrics"]["test accuracy"])
    intro = (
        f"The image transformer of notebook 06 reads while you draw: {right} of 2,000 test digits. It cuts the picture "
        "into 16 patches, and each looks at the others. Everything is computed in this page; nothing is sent anywhere."
    )
    body = part(HERE / "reading.html", intro=intro, more=part(SOURCE / "turn.html"))
    start = 'draw_facts(data("reader")); const page = new DigitPage(data("reader"));'
    start += ' const half_turn = new HalfTurn(page, data("turner"));'
    return page("draw", body, ["reading.js", "turn.js"], {"reader": reader, "turner": turner}, start)


def write() -> str:
    """The best character model that one core trains in ten minutes."""
    writer = model("writer")
    record = writer["record"]
    intro = (
        "A transformer that reads and writes single characters. It knows 65 of them, and was trained on Tiny "
        f"Shakespeare on one processor core for {record['seconds'] / 60:.0f} minutes; its validation loss is "
        f"{record['validation loss in the page']:.2f} nats a character, where counting pairs of characters has 2.48. "
        "Begin a text, and it goes on."
    )
    body = part(HERE / "writing.html", intro=intro, more="")
    start = 'draw_facts(data("writer")); const page = new TextPage(data("writer"));'
    return page("write", body, ["writing.js"], {"writer": writer}, start)


def words() -> str:
    """Words as points, and what every mechanism makes of them."""
    return page("words", part(SOURCE / "words.html"), ["words.js"], {}, "const page = new WordsPage();")


def break_it() -> str:
    """Classic mistakes on the live models."""
    images, labels = (tensor[:DIGITS] for tensor in mnist("test"))
    tokens, vocabulary = shakespeare("val")
    pixels = base64.b64encode((images * 255).round().to(torch.uint8).numpy().tobytes()).decode()
    content = {
        "reader": without_examples(model("reader")),
        "student": model("student"),
        "digits": {"pixels": pixels, "labels": labels.tolist()},
        "text": vocabulary.decode(tokens[:CHARACTERS]),
    }
    start = 'const page = new BreakPage(data("reader"), data("student"), data("digits"), data("text"));'
    return page("break", part(SOURCE / "break.html"), ["reading.js", "break.js"], content, start)


def slopes() -> str:
    """Time and memory against length: here, and as recorded with torch."""
    record = json.loads((RESULTS / "benchmarks.json").read_text(encoding="utf-8"))
    names = {
        ("dot", "readable"): "dot product, as written",
        ("dot", "fast"): "dot product, fast path",
        ("separable", "fast"): "separable, fast path",
    }

    def lines(what: str) -> dict[str, list[tuple[int, float]]]:
        rows = [row for row in record["layers"] if row["kind"] == "ours" and not row["beside"] and what in row]
        kept = {key: [(r["length"], r[what]) for r in rows if (r["contestant"], r["form"]) == key] for key in names}
        return {names[key]: line for key, line in kept.items()}

    machine = f"{record['machine']['cores']} cores of an {record['machine']['processor']}"
    recorded = {"machine": machine, "date": record["date"]}
    recorded |= {"time": lines("milliseconds"), "memory": lines("megabytes")}
    start = 'const page = new SlopesPage(data("recorded"));'
    return page("slopes", part(SOURCE / "slopes.html"), ["slopes.js"], {"recorded": recorded}, start)


def model(name: str) -> dict[str, Any]:
    """A packed model with its record."""
    content: dict[str, Any] = json.loads((MODELS / f"{name}.json").read_text(encoding="utf-8"))
    record = content["record"]
    shown = [*record["metrics"].items(), ("seconds", record["seconds"]), ("on", record["device"])]
    shown += [("torch", record["versions"]["torch"]), ("commit", record["commit"]), ("date", record["date"])]
    content["facts"] += [(key, round(v, 4) if isinstance(v, float) else v) for key, v in shown]
    return content


def without_examples(content: dict[str, Any]) -> dict[str, Any]:
    """A packed model alone, where its page brings digits of its own."""
    return {key: content[key] for key in ("model", "tensors", "bytes")}


def percent(share: float) -> str:
    """A share as the pages write it."""
    return f"{100 * share:.1f} %"


def part(path: Path, **filled: str) -> str:
    """A piece of HTML, its gaps filled."""
    text = path.read_text(encoding="utf-8")
    for name, value in filled.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def page(name: str, body: str, scripts: list[str], content: Mapping[str, Any], start: str) -> str:
    """One page of the playground, with the site's links, and links to the others."""
    paths = [HERE / script if (HERE / script).exists() else SOURCE / script for script in [*scripts, "header.js"]]
    return assemble(
        TITLES[name][0],
        f"{body}\n{pager(name)}",
        scripts=paths,
        data=content,
        start=start,
        style=(SOURCE / "playground.css").read_text(encoding="utf-8"),
        header=header(name),
    )


def header(name: str) -> str:
    """The links that every page of the site has, and the pages of the playground."""
    site = [
        f'<a href="../{page}"{" aria-current=true" if text == "Playground" else ""}>{text}</a>'
        for text, page in SITE_LINKS.items()
    ]
    links = [
        f'<a href="{other}.html"{" aria-current=page" if other == name else ""}>{shown}</a>'
        for other, (_, shown) in TITLES.items()
    ]
    return (
        f'<nav class="site-links" aria-label="Site">{" ".join(site)}</nav>\n'
        f'<nav class="pages" aria-label="Pages of the playground">{" · ".join(links)}</nav>'
    )


def pager(name: str) -> str:
    """Links to the page before and to the one behind; the first and the last lead back to the course."""
    titles = {other: (f"{other}.html", title) for other, (title, _) in TITLES.items()}
    row = [("../playground.html", "The playground"), *titles.values(), ("../results.html", "Results")]
    at = row.index(titles[name])
    links = [
        f'<a href="{address}"><span>{side}</span>{title}</a>'
        for side, (address, title) in (("previous", row[at - 1]), ("next", row[at + 1]))
    ]
    return f'<nav class="pager" aria-label="Previous and next">{"".join(links)}</nav>'


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for written in write_playground(parser.parse_args().folder):
        print(f"{written}: {written.stat().st_size / 1e6:.2f} MB")
