"""The tables say what the records say, by rules that can be failed."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import write_record

from sciformer.functional import additive_scores
from sciformer.lab import claims, experiments, records
from sciformer.lab.claims import (
    CLAIMS,
    Finding,
    against,
    best_record,
    compare,
    computed,
    reach,
    similar,
    stays_at,
    verdict,
)
from sciformer.lab.experiments import EXPERIMENTS
from sciformer.lab.records import describe_record, load_record
from sciformer.lab.settings import SequenceSetting
from sciformer.scores import SCORES

README = Path(__file__).parents[1] / "README.md"
RESULTS = README.parent / "results" / "README.md"
NAME = "additive-2x2"


@pytest.mark.parametrize(("page", "tables"), [(README, ("claims", "bake-off", "predictions")), (RESULTS, ("records",))])
def test_no_page_is_stale(page, tables):
    """Every number of a table is made here from a record or a check; to renew them: claims --write."""
    text = page.read_text()
    for name in tables:
        shown = text.split(f"<!-- {name} -->\n")[1].split(f"\n<!-- end of {name} -->")[0]
        assert shown.strip().splitlines() == claims.TABLES[name]().splitlines()
    assert claims.with_tables(text) == text


def test_marks_with_nothing_between_them_are_filled():
    filled = claims.between_marks("<!-- a -->\n<!-- end of a -->\n", "a", "one")
    assert filled == "<!-- a -->\n\none\n\n<!-- end of a -->\n"
    for text in ("<!-- end of a -->\n<!-- a -->\n", "<!-- a -->\n"):
        with pytest.raises(ValueError, match="a"):
            claims.between_marks(text, "a", "one")


def test_arms_that_are_all_alike():
    assert against([1.0] * 3, [1.0] * 3, "test accuracy", "no worse")[0]
    assert not against([1.0] * 3, [1.0] * 3, "test accuracy", "better")[0]
    assert not against([0.5] * 3, [1.0] * 3, "test accuracy", "no worse")[0]


def test_without_records_nothing_is_measured(tmp_path, monkeypatch):
    """What is left is computed: no table holds a number of its own."""
    monkeypatch.setattr(records, "results_folder", lambda: tmp_path)
    for claim in CLAIMS:
        for finding in claim.findings():
            assert (finding.holds is None) == ("`" in finding.setting) == (finding.measured == "not recorded yet")
    assert "±" not in claims.bake_off_table() + claims.records_table()


def test_every_claim_is_whole():
    assert len({claim.claimed for claim in CLAIMS}) == len(CLAIMS) >= 25
    assert sum(claim.claimed.startswith("Theorem") for claim in CLAIMS) == 5
    for claim in CLAIMS:
        findings = list(claim.findings())
        assert findings
        conditions = [finding.condition for finding in findings]
        assert len(set(conditions)) == len(conditions)
        assert len(findings) == 1 or all(conditions)
        assert list((README.parent / "notebooks").glob(f"{claim.notebook:02}_*.ipynb"))
        for finding in findings:
            for name in re.findall(r"`([\w-]+)`", finding.setting):
                assert name in EXPERIMENTS
                assert finding.holds is None or any(load_record(name, p) for p in EXPERIMENTS[name].settings)


def test_every_experiment_has_its_place():
    assert set(claims.QUOTED) | {f"bake-off-{task}" for task in claims.BAKE_OFFS} == set(EXPERIMENTS)


def test_the_tables_quote_the_record():
    line = describe_record("mnist-pixels", "test accuracy", "quick", arm="distance")
    described = re.search(r"test accuracy (.+) over (\d+ seeds), ([\d,]+ parameters, \d+ s each)", line)
    (row,) = [row for row in claims.records_table().splitlines() if row.startswith("| `mnist-pixels`, distance,")]
    assert row.split(" | ")[1] == f"{described[1]} ({described[2]}, {described[3]})"
    assert claims.recorded_cell("shakespeare-lengths", "none", "validation loss at 2048", "quick") == "–"
    (row,) = [row for row in claims.records_table().splitlines() if "1,000 steps" in row]
    assert row.endswith(" s each) | – |")
    assert claims.recorded_cell("shakespeare", "muon", "validation loss", "long") == "–"


def found(*outcomes):
    return [Finding(holds, "", "", f"if {n}") for n, holds in enumerate(outcomes)]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([True], "**holds**"),
        ([False, False], "**does not hold**"),
        ([None], "not recorded yet"),
        ([True, False], "**holds only** if 0"),
        ([True, True, False], "**holds except** if 2"),
        ([False, True, None], "**holds only** if 1 (1 of 3 not recorded yet)"),
        ([True, None], "**holds** (1 of 2 not recorded yet)"),
    ],
)
def test_verdicts(outcomes, expected):
    assert verdict(found(*outcomes)) == expected


def test_two_standard_errors_of_the_paired_difference_decide():
    """Differences 1, 2, 3: mean 2, standard error 1/√3, so 3.5 errors. Differences -1, 2, 5: mean 2, 1.2 errors."""
    clear, noise = [0.11, 0.22, 0.33], [0.09, 0.22, 0.35]
    theirs = [0.10, 0.20, 0.30]
    assert against(clear, theirs, "accuracy") == (
        True, "22.00 ± 6.35 % against 20.00 ± 5.77 %: +2.00 ± 0.58 points"
    )  # fmt: skip
    assert not against(noise, theirs, "accuracy")[0]
    assert against(theirs, noise, "accuracy", "no worse")[0]
    assert not against(theirs, clear, "accuracy", "no worse")[0]
    assert against(clear, theirs, "loss", "no worse")[0] is False
    assert against(theirs, clear, "loss")[0]
    assert against(theirs, clear, "loss")[1].endswith(": −0.020 ± 0.006")
    assert not against([0.5], [0.1], "accuracy")[0], "one seed has no error"


@pytest.fixture
def hand_made(tmp_path, monkeypatch):
    """Write a record of two arms with these losses."""
    monkeypatch.setattr(records, "results_folder", lambda: tmp_path)

    def write(profile, **losses):
        write_record(tmp_path, NAME, profile, {arm: ("validation loss", values) for arm, values in losses.items()})

    return write


def test_findings_come_from_the_largest_record_that_has_errors(hand_made):
    assert best_record(NAME) is None
    assert compare(NAME, "validation loss", "a", "b").holds is None
    hand_made("quick", a=[1.0, 1.1], b=[2.0, 2.2])
    finding = compare(NAME, "validation loss", "a", "b")
    assert (finding.holds, finding.setting) == (True, f"`{NAME}`, quick, 2 seeds")
    hand_made("full", a=[3.0], b=[2.0])
    assert best_record(NAME)["profile"] == "quick"
    hand_made("full", a=[3.0, 3.1], b=[2.0, 2.0])
    finding = compare(NAME, "validation loss", "a", "b")
    assert (finding.holds, finding.setting) == (False, f"`{NAME}`, full, 2 seeds")
    with pytest.raises(ValueError, match=f"{NAME} has recorded no 'accuracy' of arm 'a'"):
        compare(NAME, "accuracy", "a", "b")


def test_published_values(hand_made):
    hand_made("quick", a=[1.0, 1.2], b=[1.5, 1.5])  # 1.1 ± 0.1
    assert reach(NAME, "validation loss", "a", 0.95).holds
    assert not reach(NAME, "validation loss", "a", 0.85).holds
    assert stays_at(NAME, "validation loss", "a", 0.95).holds
    assert not stays_at(NAME, "validation loss", "a", 0.85).holds
    assert similar(NAME, "validation loss", "a", "b", 0.25).holds  # 0.4 apart, ± 0.1
    assert not similar(NAME, "validation loss", "a", "b", 0.15).holds


def test_a_single_run_has_to_reach_a_published_figure_by_itself(hand_made):
    hand_made("quick", a=[1.0], b=[1.5])
    assert reach(NAME, "validation loss", "a", 1.0).holds is None
    finding = reach(NAME, "validation loss", "a", 1.0, fewest_seeds=1)
    assert (finding.holds, finding.measured, finding.setting) == (True, "1.000", f"`{NAME}`, quick, 1 seed")
    assert reach(NAME, "validation loss", "a", 0.999, fewest_seeds=1).holds is False


def broken_tokens(tokens):
    return lambda self, texts, answers: tokens(self, texts[:1] * len(texts), answers)


THEOREMS = {
    "half_turn": (experiments.MNIST_PIXELS["quick"], "published", experiments.MNIST_PIXELS["quick"]["distance"]),
    "cancelling_query": (computed, "separable_additive_scores", additive_scores),
    "moat": (computed, "energy_well_scores", lambda q, k, well, alpha: -alpha * (q - k.mT).abs()),
    "leaking_mask": (computed, "causal_mask", lambda length: None),
    "leaking_divisor": (computed, "causal_mask", lambda length: None),
    "ignored_source": (SequenceSetting, "tokens", broken_tokens(SequenceSetting.tokens)),
}


@pytest.mark.parametrize("name", THEOREMS)
def test_a_theorem_that_is_not_true_does_not_hold(monkeypatch, name):
    check = getattr(claims, name)
    (finding,) = check()
    assert finding.holds
    where, what, wrong = THEOREMS[name]
    if isinstance(where, dict):
        monkeypatch.setitem(where, what, wrong)
    else:
        monkeypatch.setattr(where, what, wrong)
    (finding,) = check()
    assert not finding.holds


def test_bake_off_table(tmp_path, monkeypatch):
    name = "bake-off-pixels"
    settings = {arm: replace(setting, pooling=7) for arm, setting in EXPERIMENTS[name].arms("quick").items()}
    monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], settings={"quick": settings}))
    monkeypatch.setattr(records, "results_folder", lambda: tmp_path)
    records.record(name, "quick", seeds=2, steps=1, out=tmp_path)
    header, _, *rows = claims.bake_off_table().splitlines()
    assert "pixels, test accuracy (quick, 2 seeds)" in header
    assert [row.split("`")[1] for row in rows] == list(SCORES)
    for row in rows:
        patches, pixels, text = row.split(" | ")[1:]
        assert patches == "not recorded yet" == text.removesuffix(" |")
        assert re.fullmatch(r"[\d.]+ ± [\d.]+ %<br>[\d.]+ ± [\d.]+ times<br>[\d.]+ ± [\d.]+ MB", pixels)
    memory = claims.blocks_of_queries()
    assert re.fullmatch(r"[\d.]+ ± [\d.]+ times the peak of dot product, for D = 8", memory.measured)
