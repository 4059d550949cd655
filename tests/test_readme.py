"""The README at first sight: the length of its beginning, its picture, and findings with their verdicts."""

import re
import statistics
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from sciformer import records, trained
from sciformer.check import EXERCISES
from sciformer.data import shakespeare
from sciformer.lab.claims import CLAIMS, decisions, overall, short_verdict
from tools.answers import as_a_cell

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FINDINGS = re.findall(r"^\| (\d+) \| (.+?) \| (\*\*.+?) \| \[(\d\d)\]", README, flags=re.M)
RESULTS = (ROOT / "results" / "README.md").read_text(encoding="utf-8")


def test_the_text_before_the_first_command_s_result_fits_on_two_screens():
    """Beside the picture, at 100 characters a line."""
    before = README.partition("make lab ")[0]
    shown = re.sub(r"!\[.*?\]\(.*?\)", "", before)
    shown = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", shown)
    paragraphs = re.split(r"\n(?=[\n#>|`-]|[a-z]+ = )", shown)
    assert sum(max(1, len(textwrap.wrap(paragraph, 100))) for paragraph in paragraphs) <= 60


def test_five_findings_have_the_verdicts_of_their_claims():
    assert len(FINDINGS) == 5
    for number, _, verdict, notebook in FINDINGS:
        claim = CLAIMS[int(number) - 1]
        assert verdict == short_verdict(list(claim.findings())), claim.claimed
        assert int(notebook) == claim.notebook


@pytest.mark.parametrize("finding", FINDINGS, ids=[finding[0] for finding in FINDINGS])
def test_the_figures_of_a_finding_are_those_of_the_records(finding):
    number, text, *_ = finding
    (row,) = re.findall(rf"^\| {number} \| .+", RESULTS.partition("<!-- claims -->")[2], flags=re.M)
    known = {f"{float(figure):.0f}" for figure in re.findall(r"\d+\.\d+", row)}
    assert set(re.findall(r"(\d+) %", text)) <= known
    losses = {f"{float(figure):.2f}" for figure in re.findall(r"\d+\.\d{3}", row)}
    said = re.sub(r"\]\([^)]*\)", "]", text)  # not the addresses
    assert set(re.findall(r"\b\d\.\d\d\b", said)) <= losses


def test_the_checker_says_what_the_readme_prints():
    example = re.search(r"<!-- a wrong answer -->(.+?)<!-- end of a wrong answer -->", README, flags=re.S)[1]
    code, message = re.findall(r"```\w*\n(.+?)\n```", example, flags=re.S)
    answer = as_a_cell(code, 0)["scaled_dot_product"]
    diagnosis = EXERCISES["scaled_dot_product"].diagnose(answer, seed=0)
    assert diagnosis.message == message
    (at_first,) = re.findall(r"look for the cause yourself: \*(.+?)\*", README, flags=re.S)
    assert " ".join(at_first.split()) in " ".join(diagnosis.symptom.split())


def test_the_moving_picture_moves_and_is_small():
    path = ROOT / "docs" / "draw.gif"
    assert path.stat().st_size <= 1.5e6
    with Image.open(path) as picture:
        assert picture.n_frames > 20
        assert picture.info["loop"] == 0
    (alternative,) = re.findall(r"!\[(.*?)\]\(\S+docs/draw\.gif\)", README)
    assert len(alternative) > 50


def test_the_counts_are_those_of_today():
    notebooks = list((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    assert f"{len(notebooks)} notebooks" in README
    told = Counter(overall(decisions(list(claim.findings()))) for claim in CLAIMS)
    counted = f"{told['shown']} are shown, {told['refuted']} refuted and {told['undecided']} undecided"
    assert f"Of the {len(CLAIMS)} claims {counted}" in README
    assert f"know {sum(len(exercise.faults) for exercise in EXERCISES.values()):,} mistakes" in README


def test_what_the_writer_writes_is_what_the_readme_prints():
    (shown,) = re.findall(r"<!-- written -->\n\n```\n(.+?)\n```", README, flags=re.S)
    vocabulary = shakespeare()[1]
    tokens = trained.load("writer").generate(vocabulary.encode("JULIET:\n")[None], 40, temperature=0)
    assert vocabulary.decode(tokens[0]).strip() == shown


def test_what_the_image_transformer_reaches_is_what_its_record_says():
    runs = records.load_record("mnist-image-transformer", "quick")["runs"]
    accuracies = [run["metrics"]["test accuracy"] for run in runs]
    lowest, mean, highest = (f"{100 * x:.1f}" for x in (min(accuracies), statistics.fmean(accuracies), max(accuracies)))
    assert len(accuracies) == 10
    said = f"reads {mean} % of MNIST's test digits (ten runs: {lowest} to {highest} %, on all 10,000)"
    assert said in " ".join(README.split())
    assert all(run["seconds"] < 180 for run in runs)


def test_what_two_cores_reach_is_what_the_speedrun_recorded():
    page = (ROOT / "docs" / "speedrun.md").read_text(encoding="utf-8")
    seconds, loss, numbers = re.search(
        r"^\| \[recipe\.py\][^|]+\|[^|]+\| (\d+) \|[^|]+\| ([\d.]+) [^|]+\|[^|]+\| ([\d,]+) \|", page, flags=re.M
    ).groups()
    assert f"after {seconds} seconds on two cores" in README
    assert f"a loss of {float(loss):.3f}" in README
    assert float(loss) < 1.4697
    assert f"{int(numbers.replace(',', '')) / 1e6:.1f} million parameters" in README
