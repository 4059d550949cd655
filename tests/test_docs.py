"""What the pages for contributors say is there: names, paths, links, commands, counts and shapes."""

import importlib
import json
import re
import tomllib
from pathlib import Path

import pytest
import torch

from sciformer import MultiHeadAttention, cli
from sciformer.check import EXERCISES
from sciformer.lab.experiments import EXPERIMENTS, MNIST_IMAGE_TRANSFORMER

ROOT = Path(__file__).parents[1]
NAMES = (
    *("CONTRIBUTING.md", "docs/architecture.md", "docs/glossary.md", "CHANGELOG.md"),
    *("docs/paths.md", "docs/instructors.md", "docs/exam.md"),
    *("docs/command_line.md", "docs/homework.md", "docs/measured.md", "docs/mechanisms.md"),
)
PAGES = {path: (ROOT / path).read_text() for path in NAMES}
#: Where a page stands for whatever the reader puts there.
PLACEHOLDER = re.compile(r"NN|NAME|TOPIC|…|\bmy_file\b|MyScore")


def quoted(text):
    """What stands between backquotes or in blocks of code, word by word."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, flags=re.S)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    return [word for part in (*blocks, *inline) for word in part.split()]


def exists(name):
    """Whether a dotted name leads to a module or to something in one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part, None)
        return thing is not None
    return False


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_name_of_the_package_exists(page):
    names = set(re.findall(r"\bsciformer(?:\.\w+)+(?![\w/])", PAGES[page]))
    assert names
    assert [name for name in sorted(names) if not exists(name)] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_path_exists(page):
    folders = r"(?:sciformer|tests|tools|docs|notebooks|notebooks_py|benchmarks|results|\.ci)"
    paths = {word.rstrip(",.:;") for word in quoted(PAGES[page]) if re.match(rf"{folders}/[\w]", word)}
    paths = {path for path in paths if not PLACEHOLDER.search(path) and not set("{*") & set(path)}
    assert paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGES[page]):
        assert ((ROOT / page).parent / target).exists(), target


def test_every_make_target_and_command_exists():
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"(?:`|^)make (\w+)", PAGES["CONTRIBUTING.md"], flags=re.M)):
        assert re.search(rf"^{target}:", makefile, flags=re.M), target
    for command in set(re.findall(r"-m sciformer ([a-z]+)", "".join(PAGES.values()))):
        with pytest.raises(SystemExit) as left:
            cli.main([command, "--help"])
        assert left.value.code == 0, command


def test_the_bake_offs_that_a_new_score_needs_are_these():
    named = re.search(r"for task in ([\w -]+); do", PAGES["CONTRIBUTING.md"])[1].split()
    assert {f"bake-off-{task}" for task in named} == {name for name in EXPERIMENTS if name.startswith("bake-off")}


def test_the_picture_of_the_house_is_the_contract():
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [layer.replace("sciformer.", "") for layer in contract["layers"]]
    picture = re.search(r"```text\n(.*?)\n\n", PAGES["docs/architecture.md"], flags=re.S)[1].splitlines()
    drawn = [re.match(r"[* ] (\w+(?: \| \w+)?)  ", line) for line in picture]
    assert [found[1] for found in drawn if found] == layers
    assert [line for line, found in zip(picture, drawn, strict=True) if not found] == ["   ↓"] * (len(layers) - 1)


def lines(*patterns):
    """Lines of the package's Python files, in hundreds."""
    files = {path for pattern in patterns for path in (ROOT / "sciformer").glob(pattern)}
    return sum(len(path.read_text().splitlines()) for path in files) / 100


CORE = ("functional.py", "scores.py", "attention.py", "positions.py", "blocks.py")
SIZES = {
    r"core has about ([\d,]+) lines": CORE,
    r"with the models it is about ([\d,]+)": (*CORE, "models/**/*.py"),
    r"lab that measures \(([\d,]+) lines": ("lab/**/*.py",),
    r"make in them \(([\d,]+) lines": ("exercises/**/*.py",),
    r"checks and\s+grades them \(([\d,]+)\)": ("check/**/*.py",),
    r"draws and judges \(([\d,]+)\)": ("teach/**/*.py",),
    r"data \(([\d,]+)\)": ("data/**/*.py",),
    r"training \(([\d,]+)\)": ("training/**/*.py",),
    r"fast paths \(([\d,]+)\)": ("fast/**/*.py",),
    r"command line \(([\d,]+)\)": ("cli/**/*.py",),
    r"whole package has about ([\d,]+) lines": ("**/*.py",),
}


@pytest.mark.parametrize(("stated", "files"), SIZES.items(), ids=[files[-1] for files in SIZES.values()])
def test_sizes_are_honest(stated, files):
    """To the hundred, or within a tenth: nobody should have to touch a page for three lines."""
    said = int(re.search(stated, PAGES["docs/architecture.md"])[1].replace(",", "")) / 100
    assert abs(said - lines(*files)) <= max(1.0, 0.1 * lines(*files)), f"now {100 * lines(*files):,.0f}"


def test_the_readme_says_the_same():
    readme = (ROOT / "README.md").read_text()
    for page in (readme, PAGES["docs/architecture.md"]):
        assert f"{len(EXERCISES)} exercises" in page
    core = re.search(r"core of about ([\d,]+) lines", readme)[1]
    assert f"core has about {core} lines" in PAGES["docs/architecture.md"]


def test_the_query_takes_the_shapes_that_its_walk_shows():
    output, weights = MultiHeadAttention(64, 4)(torch.randn(2, 17, 64), need_weights=True)
    assert (output.shape, weights.shape) == ((2, 17, 64), (2, 4, 17, 17))
    for shape in ("(2, 17, 64)", "(2, 4, 17, 16)", "(2, 4, 17, 17)"):
        assert shape in PAGES["docs/architecture.md"]


def test_the_digits_take_the_shapes_that_their_walk_shows():
    setting = MNIST_IMAGE_TRANSFORMER["quick"]
    images, labels = next(iter(setting.training_batches(seed=0)))
    model = setting.model()
    patches, tokens = model.to_sequence.patches(images), model.to_sequence(images)
    shapes = [tuple(x.shape) for x in (images, patches, tokens, model.positions(tokens), model(images))]
    assert shapes == [(128, 1, 28, 28), (128, 16, 49), (128, 16, 64), (128, 16, 64), (128, 10)]
    assert model.classifier.queries.out_features == 8
    assert len(model.blocks) == 3
    assert len(labels) == 128
    for shape in shapes:
        assert str(shape) in PAGES["docs/architecture.md"]


def test_every_new_path_of_the_changelog_can_be_imported():
    section = re.search(r"## \[0\.2\.0\](.*?)\n## ", PAGES["CHANGELOG.md"], flags=re.S)[1]
    rows = re.findall(r"^ *\| (`sciformer[^|]+) \| (`sciformer[^|]+) \|$", section, flags=re.M)
    assert len(rows) >= 20
    for _, new in rows:
        for name in re.findall(r"`([\w.]+)`", new):
            assert exists(name), name


#: Each entry of the glossary: its term, other names of it in parentheses, the definition, the path of a notebook.
ENTRY = r"^- \*\*(.+?)\*\*(?: \((.+?)\))?: (.+?) \[Notebook (\d\d)\]\(\.\./(.+?)\)\.$"
GLOSSARY = PAGES["docs/glossary.md"]
TERMS = {entry[0]: entry for entry in re.findall(ENTRY, GLOSSARY, flags=re.M | re.S)}
#: A link of a notebook to the glossary: its words, and the letter under which they stand there.
LINK = r"\[([^\[\]]+)\]\(\.\./docs/glossary\.md#([a-z])\)"


def stems(name):
    """The words of a name without their endings, so that "leaks" counts for "leak" and "overfits" for "overfitting"."""
    return [word.rstrip("s")[:5] for word in re.findall(r"[^\W_]+", name.lower())]


def test_the_glossary_is_in_alphabetical_order_and_has_no_term_twice():
    terms = [re.sub(r"\W+", " ", term.lower()) for term in TERMS]
    assert len(terms) == len(re.findall(r"^- ", GLOSSARY, flags=re.M)) > 70
    assert terms == sorted(set(terms))
    assert re.findall(r"^## (.+)$", GLOSSARY, flags=re.M) == sorted({term[0].upper() for term in terms})


@pytest.mark.parametrize("term", TERMS)
def test_a_term_of_the_glossary_is_linked_in_its_notebook(term):
    _, others, _, number, path = TERMS[term]
    assert re.fullmatch(rf"notebooks/{number}_\w+\.ipynb", path)
    texts = ("".join(cell["source"]) for cell in json.loads((ROOT / path).read_text())["cells"])
    linked = [(stems(words), letter) for text in texts for words, letter in re.findall(LINK, text)]
    names = [term, *(name for name in others.split(", ") if len(name) > 1)]
    assert any((stems(name), term[0].lower()) in linked for name in names)
