"""The paper says of the course what its pages and records say, and cites what it lists."""

import re
from pathlib import Path

import yaml

from sciformer.check import EXERCISES
from sciformer.exercises.museum import PIECES
from sciformer.lab.claims import CLAIMS
from sciformer.teach.properties import PROPERTIES

ROOT = Path(__file__).parents[1]
_, HEAD, BODY = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8").split("---\n", 2)
TEXT = " ".join(BODY.split())
BIBLIOGRAPHY = (ROOT / "paper" / "paper.bib").read_text(encoding="utf-8")


def test_it_is_by_the_authors_of_the_citation_under_its_title():
    head = yaml.safe_load(HEAD)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert head["title"] == citation["title"]
    assert [author["name"] for author in head["authors"]] == [author["name"] for author in citation["authors"]]


def test_everything_cited_is_listed_and_everything_listed_is_cited():
    cited = re.findall(r"@(\w+)", BODY)
    listed = re.findall(r"^@\w+\{(\w+),$", BIBLIOGRAPHY, flags=re.M)
    assert len(listed) == len(set(listed)) > 5
    assert set(cited) == set(listed)


def test_it_counts_the_course_as_it_is():
    core = re.search(r"core of about ([\d,]+) lines", (ROOT / "README.md").read_text(encoding="utf-8"))[1]
    notebooks = len(list((ROOT / "notebooks").glob("[0-9]*.ipynb")))
    for said in (
        f"In {notebooks} Jupyter notebooks",
        f"core has about {core} lines",
        f"has {len(EXERCISES)} exercises",
        f"of what {len(CLAIMS)} claims",
        f"collects {len(PIECES)} mistakes that shipped",
        f"a suite of {len(PROPERTIES)} properties",
    ):
        assert said in TEXT, said


def test_it_quotes_the_comparison_and_the_museum():
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `\w+`, (\S+) \| (\d+) of (\d+) \(\d+%\) \| (?:(\d+) of|–)", page, flags=re.M)
    noticed, named = (
        {who: sum(int(row[column] or 0) for row in rows if row[0] == who) for who, *_ in rows} for column in (1, 3)
    )
    wrong = sum(int(row[2]) for row in rows if row[0] == "ours")
    assert f"On {wrong} wrong answers" in TEXT
    assert f"the checkers noticed {noticed['ours']} and named {named['ours']};" in TEXT
    assert f"one random input noticed {noticed['assert_close']}." in TEXT
    museum = " ".join((ROOT / "docs" / "museum.md").read_text(encoding="utf-8").split())
    (before,) = re.findall(rf"named (\d+) of the {len(PIECES)}\.", museum)
    assert f"the checkers named {before} before" in TEXT
