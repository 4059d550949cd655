"""The tables say what the records say, by rules that can be failed."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import write_record

from sciformer.functional import InputError, additive_scores
from sciformer.lab import claims, experiments, records
from sciformer.lab.claims import (
    CLAIMS,
    SMALLEST,
    Effect,
    Finding,
    best_record,
    compare,
    compare_values,
    computed,
    decisions,
    overall,
    reach,
    short_verdict,
    verdict,
)
from sciformer.lab.claims.references import references
from sciformer.lab.experiments import EXPERIMENTS
from sciformer.lab.metrics import METRICS
from sciformer.lab.records import describe_record, load_record
from sciformer.lab.settings import SequenceSetting
from sciformer.scores import SCORES

ROOT = Path(__file__).parents[1]
MEASURED, RESULTS = ROOT / "docs" / "measured.md", ROOT / "results" / "README.md"
NAME = "additive-2x2"
ON = {
    MEASURED: ("claims in short", "bake-off", "predictions"),
    RESULTS: ("claims", "margins", "references", "records"),
}


@pytest.mark.parametrize("page", ON)
def test_no_page_is_stale(page):
    """Every number of a table is made here from a record or a check; to renew them: claims --write."""
    text = page.read_text()
    for name in ON[page]:
        shown = text.split(f"<!-- {name} -->\n")[1].split(f"\n<!-- end of {name} -->")[0]
        assert shown.strip().splitlines() == claims.TABLES[name]().splitlines()
    assert claims.with_tables(text) == text


def test_marks_with_nothing_between_them_are_filled():
    filled = claims.between_marks("<!-- a -->\n<!-- end of a -->\n", "a", "one")
    assert filled == "<!-- a -->\n\none\n\n<!-- end of a -->\n"
    for text in ("<!-- end of a -->\n<!-- a -->\n", "<!-- a -->\n"):
        with pytest.raises(ValueError, match="a"):
            claims.between_marks(text, "a", "one")


@pytest.mark.parametrize("number", range(1, len(CLAIMS) + 1))
def test_a_claim_in_full_says_what_its_line_in_the_table_says(number):
    claimed, _, heads, _, *rows = claims.claim_in_full(number).splitlines()
    found = list(CLAIMS[number - 1].findings())
    line = claims.claims_table().splitlines()[number + 1]
    assert claimed.startswith(f"**{number}. {CLAIMS[number - 1].claimed}**")
    assert claimed.endswith(short_verdict(found))
    for text, finding, decision in zip(rows, found, decisions(found), strict=True):
        condition, setting, measured, decided = text[2:-2].split(" | ")
        assert (condition, setting, decided) == (finding.condition, finding.setting, str(decision))
        assert measured in line
        assert setting in line
    assert heads.count("|") == 5


def test_a_claim_that_there_is_not():
    for number in (0, len(CLAIMS) + 1):
        with pytest.raises(InputError, match=f"no claim {number}; they are numbered from 1 to {len(CLAIMS)}"):
            claims.claim_in_full(number)


def test_without_records_nothing_is_measured(tmp_path, monkeypatch):
    """What is left is computed: no table holds a number of its own."""
    monkeypatch.setattr(records, "results_folder", lambda: tmp_path)
    for claim in CLAIMS:
        found = list(claim.findings())
        for finding, decision in zip(found, decisions(found), strict=True):
            unrecorded = finding.measured == "not recorded yet"
            assert unrecorded == ("`" in finding.setting) == (decision.outcome == "not recorded yet")
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
        assert list((ROOT / "notebooks").glob(f"{claim.notebook:02}_*.ipynb"))
        for finding, decision in zip(findings, decisions(findings), strict=True):
            for name in re.findall(r"`([\w-]+)`", finding.setting):
                recorded = any(load_record(name, profile) for profile in EXPERIMENTS[name].settings)
                assert recorded == (decision.outcome != "not recorded yet")


def test_every_work_that_is_cited_exists_and_every_entry_is_cited():
    cited = [claim.source for claim in CLAIMS if claim.source]
    assert set(cited) == set(references())
    for reference in references().values():
        assert re.fullmatch(r"https://\S+", reference.url)
        assert re.fullmatch(r"\d{4}|n\.d\.", reference.year)
        for page in (MEASURED, RESULTS):
            assert f"[{reference.key}]({reference.url})" in page.read_text()
    with pytest.raises(ValueError, match="no reference 'nobody2020'; there are sarker2024"):
        claims.cited("nobody2020")


def test_whoever_is_refuted_is_named():
    """A hypothesis of this course may be refuted; a claim that somebody made may not be refuted namelessly."""
    refuted = [claim for claim in CLAIMS if overall(decisions(list(claim.findings()))) == "refuted"]
    assert refuted
    assert all(claim.source or claim.claimed.startswith("Hypothesis") for claim in refuted)


def test_every_experiment_has_its_place():
    assert set(claims.QUOTED) | {f"bake-off-{task}" for task in claims.BAKE_OFFS} == set(EXPERIMENTS)


def test_the_number_of_seeds_follows_from_how_long_a_run_takes():
    """A run that takes up to a minute has ten. On a busy machine it takes longer, and keeps the seeds it was given."""
    for name, what in EXPERIMENTS.items():
        content = load_record(name, "quick") if "quick" in what.settings else load_record(name, "long")
        if content is not None:
            seconds = sum(run["seconds"] for run in content["runs"]) / len(content["runs"])
            assert what.seeds in ((10,) if seconds <= 60 else (5, 10)), name


def test_the_tables_quote_the_record():
    line = describe_record("mnist-pixels", "test accuracy", "quick", arm="distance")
    described = re.search(r"test accuracy (.+) over (\d+ seeds), ([\d,]+ parameters, \d+ s each)", line)
    (row,) = [row for row in claims.records_table().splitlines() if row.startswith("| `mnist-pixels`, distance,")]
    assert row.split(" | ")[1] == f"{described[1]} ({described[2]}, {described[3]})"
    assert claims.recorded_cell("shakespeare-lengths", "none", "validation loss at 2048", "quick") == "–"
    (row,) = [row for row in claims.records_table().splitlines() if "1,000 steps" in row]
    assert row.endswith(" s each) | – |")
    assert claims.recorded_cell("shakespeare", "muon", "validation loss", "long") == "–"


def effect(gain, *, seeds=5, error=0.001, delta=0.01, goal="better"):
    return Effect(gain, error, seeds - 1, seeds, delta, goal)


def finding(what, condition=""):
    """None: not recorded; a truth value: computed; else the gain of five seeds, or an effect."""
    if what is None:
        return Finding("not recorded yet", "", condition)
    if isinstance(what, bool):
        return Finding("", "", condition, computed=what)
    return Finding("", "", condition, effect=what if isinstance(what, Effect) else effect(what))


@pytest.mark.parametrize(
    ("given", "long", "short"),
    [
        ([0.02], "**shown**", "**shown**"),
        ([0.005], "**shown** but smaller than δ", "**shown** but smaller than δ"),
        ([-0.02, -0.03], "**refuted**", "**refuted**"),
        ([effect(0.5, seeds=3)], "**undecided** (3 seeds)", "**undecided** (3 seeds)"),
        ([effect(0.5, seeds=1, error=float("nan"))], "**undecided** (1 seed)", "**undecided** (1 seed)"),
        ([effect(0.005, error=0.1)], "**undecided**", "**undecided**"),
        ([True], "**shown** by computation", "**shown** by computation"),
        ([None], "**not recorded yet**", "**not recorded yet**"),
        ([0.02, 0.03, -0.02], "**refuted**: if 2 · shown: if 0; if 1", "**refuted** under 1 of 3 conditions"),
        (
            [0.02, effect(0.5, seeds=3)],
            "**undecided** (3 seeds): if 1 · shown: if 0",
            "**undecided** (3 seeds); shown under 1 of 2 conditions",
        ),
        (
            [0.02, 0.005],
            "**shown**: if 0 · **shown** but smaller than δ: if 1",
            "**shown** but smaller than δ under 1 of 2 conditions",
        ),
        (
            [True, None],
            "**undecided** · shown by computation: if 0 · not recorded yet: if 1",
            "**undecided**; shown under 1, not recorded yet under 1 of 2 conditions",
        ),
    ],
)
def test_verdicts(given, long, short):
    found = [finding(what, f"if {n}" if len(given) > 1 else "") for n, what in enumerate(given)]
    assert (verdict(found), short_verdict(found)) == (long, short)


def test_five_seeds_are_needed_whatever_they_say():
    for seeds in range(1, 5):
        for gain in (9.0, -9.0):
            for goal in ("better", "no worse", "equal"):
                (decision,) = decisions([finding(effect(gain, seeds=seeds, goal=goal))])
                assert decision == ("undecided", f"{seeds} seed{'s' * (seeds > 1)}")


def test_holm_looks_at_all_findings_of_a_claim():
    """t = 3 with 4 degrees of freedom: one-sided p = 0.02. Alone it is shown, beside a second one 2 · 0.02 is not."""
    close = finding(effect(0.03, error=0.01, delta=0.001), "a")
    assert decisions([close])[0].outcome == "shown"
    assert decisions([close, finding(effect(0.0, error=0.01), "b")])[0].outcome == "undecided"
    few = finding(effect(0.0, error=0.01, seeds=3), "c")  # what can decide nothing takes no part
    assert decisions([close, few])[0].outcome == "shown"


@pytest.fixture
def hand_made(tmp_path, monkeypatch):
    """Write a record of two arms with these losses."""
    monkeypatch.setattr(records, "results_folder", lambda: tmp_path)

    def write(profile, **losses):
        write_record(tmp_path, NAME, profile, {arm: ("validation loss", values) for arm, values in losses.items()})

    return write


def test_findings_come_from_the_largest_record_with_seeds_enough(hand_made):
    assert best_record(NAME) is None
    assert decisions([compare(NAME, "validation loss", "a", "b")])[0].outcome == "not recorded yet"
    hand_made("full", a=[3.0], b=[2.0])
    hand_made("quick", a=[1.0, 1.1], b=[2.0, 2.2])
    assert best_record(NAME)["profile"] == "quick"  # none has five, so the most
    hand_made("quick", a=[1.0, 1.1, 1.0, 1.1, 1.0], b=[2.0, 2.2, 2.0, 2.1, 2.0])
    found = compare(NAME, "validation loss", "a", "b")
    assert (decisions([found])[0].outcome, found.setting) == ("shown", f"`{NAME}`, quick, 5 seeds")
    hand_made("full", a=[3.0, 3.1, 3.0, 3.1, 3.0], b=[2.0] * 5)
    found = compare(NAME, "validation loss", "a", "b")
    assert (decisions([found])[0].outcome, found.setting) == ("refuted", f"`{NAME}`, full, 5 seeds")
    with pytest.raises(ValueError, match=f"{NAME} has recorded no 'accuracy' of arm 'a'"):
        compare(NAME, "accuracy", "a", "b")


def test_an_arm_that_a_record_lacks_is_named(hand_made):
    hand_made("quick", a=[1.0] * 5)
    found = compare(NAME, "validation loss", "a", "the other")
    assert verdict([found]) == "**undecided** (the arm “the other” is missing)"


def test_what_is_measured_is_said_with_interval_and_power(hand_made):
    """Differences 0.1, 0.2, 0.3 on the claimed side: mean 0.2, error 0.1/√3, and t of 2 degrees of freedom is 4.303."""
    hand_made("quick", a=[1.0, 1.0, 1.0], b=[1.1, 1.2, 1.3])
    assert compare(NAME, "validation loss", "a", "b").measured == (
        "1.000 ± 0.000 against 1.200 ± 0.058; gain +0.200, 95 % from −0.048 to +0.448; "
        "power 0.05 against 0.03 nats, 3 seeds"
    )
    hand_made("quick", a=[1.0], b=[1.5])
    assert compare(NAME, "validation loss", "a", "b").measured == "1.000 against 1.500"


def test_published_values(hand_made):
    """1.1 ± 0.02 with five seeds: t of 4 degrees of freedom is 2.776, so from 1.045 to 1.155."""
    hand_made("quick", a=[1.05, 1.15, 1.1, 1.05, 1.15])

    def outcome(number, relation):
        return decisions([reach(NAME, "validation loss", "a", number, relation=relation)])[0].outcome

    assert outcome(1.2, "no worse") == "shown"
    assert outcome(1.1, "no worse") == "undecided"
    assert outcome(0.9, "no worse") == "refuted"
    assert outcome(1.2, "no higher") == "shown"
    assert outcome(0.9, "no higher") == "refuted"
    assert outcome(1.1, "equal") == "undecided"
    assert outcome(1.3, "equal") == "refuted"
    hand_made("quick", a=[1.1, 1.1001, 1.1, 1.1001, 1.1])
    assert outcome(1.11, "equal") == "shown"


def test_the_sampling_error_of_test_examples_stands_beside_that_over_seeds():
    """98.9 % of 2,000: √(0.989 · 0.011 / 2000) = 0.0023."""
    content = {"config": {"a": {"size": "small", "held_out": 400}}}
    said = claims.sampling_error("test accuracy", content, "a", 0.989)
    assert said == "±0.23 points by the choice of 2,000 test examples"
    assert "±1.50 points by the choice of 400 " in claims.sampling_error("validation accuracy", content, "a", 0.9)
    assert "±0.01 points by the choice of 10,000 " in claims.sampling_error("test exact match", content, "a", 1.0)
    assert claims.sampling_error("validation loss", content, "a", 1.0) == ""
    assert "by the choice of 2,000 test examples" in RESULTS.read_text()


def test_every_kind_of_measurement_of_the_table_has_its_smallest_effect():
    assert all(margin.value > 0 and margin.reason for margin in SMALLEST.values())
    assert {metric.unit for metric in METRICS.values()} - set(SMALLEST) == {"MB"}
    with pytest.raises(ValueError, match="no smallest effect that matters was stated for peak MB, in MB"):
        compare_values({0: 1.0}, 2.0, "peak MB")


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
    assert verdict(check()) == "**shown** by computation"
    where, what, wrong = THEOREMS[name]
    if isinstance(where, dict):
        monkeypatch.setitem(where, what, wrong)
    else:
        monkeypatch.setattr(where, what, wrong)
    assert verdict(check()) == "**refuted** by computation"


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
        look_up, patches, pixels, text = row.split(" | ")[1:]
        assert look_up == patches == "not recorded yet" == text.removesuffix(" |")
        assert re.fullmatch(r"[\d.]+ ± [\d.]+ %<br>[\d.]+ ± [\d.]+ times<br>[\d.]+ ± [\d.]+ MB", pixels)
    memory = claims.blocks_of_queries()
    assert re.match(
        r"[\d.]+ ± [\d.]+ times against 1.00 times; difference [+−][\d.]+ times, 95 % from", memory.measured
    )
