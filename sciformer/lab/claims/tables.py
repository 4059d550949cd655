"""The tables of the pages of records, made from findings and records."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from sciformer.functional import InputError
from sciformer.lab import speedrun
from sciformer.lab.claims.catalog import CLAIMS
from sciformer.lab.claims.inference import FEWEST_SEEDS
from sciformer.lab.claims.measured import (
    ACCURACY,
    BAKE_OFFS,
    LENGTHS,
    LITTLE_TEXT,
    LOSS,
    MATCH,
    PEAK,
    PLACED,
    SEARCHED,
    STEP_TIME,
    TWO,
    VALIDATION,
)
from sciformer.lab.claims.references import cited, references
from sciformer.lab.claims.rules import (
    NOT_RECORDED,
    SMALLEST,
    Finding,
    best_record,
    can_decide,
    decisions,
    short_verdict,
    verdict,
)
from sciformer.lab.experiments import EXPERIMENTS
from sciformer.lab.metrics import known_metric
from sciformer.lab.predictions import COUNTED, GPUS, counted, duration, kept_predictions, minutes_to_record, trainings
from sciformer.lab.records import describe_runs, load_record, recorded_metric
from sciformer.lab.search import load_search
from sciformer.lab.settings import Profile
from sciformer.lab.steps import described_steps
from sciformer.scores import SCORES


def row(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def header(cells: Sequence[str]) -> list[str]:
    """The lines that a Markdown table begins with: the names of its columns, and the rule below them."""
    return [row(cells), "|" + "---|" * len(cells)]


def claims_table() -> str:
    """One row a claim: what was claimed and by whom, our setting, what was measured, the verdict, the notebook."""
    heads = ["", "claim", "about", "claimed by", "our setting", "measured", "verdict", "notebook"]
    lines = header(heads)
    everything = [list(claim.findings()) for claim in CLAIMS]
    for number, (claim, found) in enumerate(zip(CLAIMS, everything, strict=True), start=1):
        settings = "<br>".join(dict.fromkeys(finding.setting for finding in found))
        measured = "<br>".join(f"{f.condition}: {f.measured}" if f.condition else f.measured for f in found)
        if all(finding.measured == NOT_RECORDED for finding in found):
            measured = NOT_RECORDED
        about = [claim.claimed, claim.system, cited(claim.source), settings, measured, verdict(found)]
        lines.append(row([f"{number}", *about, f"{claim.notebook:02}"]))
    return "\n".join([*lines, "", many_comparisons(everything)])


def short_claims_table() -> str:
    """One row a claim: what was claimed and by whom, the verdict, and the notebook that shows why."""
    heads = ["", "claim", "claimed by", "verdict", "notebook"]
    lines = header(heads)
    everything = [list(claim.findings()) for claim in CLAIMS]
    for number, (claim, found) in enumerate(zip(CLAIMS, everything, strict=True), start=1):
        path = notebook_path(claim.notebook)
        link = f"[{claim.notebook:02}](../{path})" if path else f"{claim.notebook:02}"
        lines.append(row([f"{number}", claim.claimed, cited(claim.source), short_verdict(found), link]))
    return "\n".join([*lines, "", many_comparisons(everything)])


def claim_in_full(number: int) -> str:
    """One claim, numbered as in the table: a row for each of its findings, and what was decided of it.

    Raises:
        InputError: if there is no claim of that number; says which there are.
    """
    if not 1 <= number <= len(CLAIMS):
        raise InputError(f"there is no claim {number}; they are numbered from 1 to {len(CLAIMS)}")
    claim = CLAIMS[number - 1]
    found = list(claim.findings())
    heads = ["condition", "our setting", "measured", "decided"]
    lines = [f"**{number}. {claim.claimed}** ({cited(claim.source)}): {short_verdict(found)}", ""]
    lines += header(heads)
    lines += [
        row([finding.condition, finding.setting, finding.measured, str(decision)])
        for finding, decision in zip(found, decisions(found), strict=True)
    ]
    return "\n".join(lines)


def notebook_path(number: int) -> str | None:
    """A notebook of the course as a path from the root of the checkout; None where only the package is installed."""
    root = Path(__file__).parents[3]
    return next((path.relative_to(root).as_posix() for path in root.glob(f"notebooks/{number:02}_*.ipynb")), None)


def many_comparisons(everything: Sequence[Sequence[Finding]]) -> str:
    """How many of the findings are decided, and how many would be if the whole table were one family for Holm."""
    statistical = [finding for found in everything for finding in found if finding.effect is not None]
    judged = [finding for finding in statistical if can_decide(finding)]
    decided = [
        str(decision.outcome)
        for found in everything
        for decision, finding in zip(decisions(found), found, strict=True)
        if can_decide(finding)
    ]
    whole = [str(decision.outcome) for decision in decisions(judged)]
    count = sum(outcome != "undecided" for outcome in decided)
    survivors = sum(own == together != "undecided" for own, together in zip(decided, whole, strict=True))
    return (
        f"Of {len(statistical)} statistical findings, {len(judged)} rest on the {FEWEST_SEEDS} seeds (or sets of "
        f"tokens) or more that a decision takes. Corrected by Holm's method within their claims, {count} are decided; "
        f"corrected over the whole table, {survivors} would be."
    )


def margins_table() -> str:
    """The smallest effects that matter, and why they were chosen."""
    units = {"%": "accuracy, and other shares", "": "loss", "times": "time and memory", "tokens": "attention distance"}
    units["per token"] = "slope"
    lines = header(["what is measured", "δ", "because"])
    lines += [row([what, SMALLEST[unit].said, SMALLEST[unit].reason]) for unit, what in units.items()]
    return "\n".join(lines)


def references_list() -> str:
    """The works whose claims are measured, in the order in which the table cites them."""
    keys = dict.fromkeys(claim.source for claim in CLAIMS if claim.source)
    return "\n".join(f"- {references()[key]}" for key in keys)


def bake_off_table(profile: Profile | None = None) -> str:
    """Every score on every task: how good, how long a step takes, and how much memory.

    Args:
        profile: of the records; the largest one that is recorded if not given.
    """
    profiles = get_args(Profile)[::-1] if profile is None else (profile,)
    contents = {task: best_record(f"bake-off-{task}", profiles) for task in BAKE_OFFS}
    heads = [
        f"{task}, {metric}" + (f" ({content['profile']}, {len(content['seeds'])} seeds)" if content else "")
        for (task, metric), content in zip(BAKE_OFFS.items(), contents.values(), strict=True)
    ]
    lines = header(["score", *heads])
    for score in SCORES:
        cells = [f"`{score}`"]
        for task, content in contents.items():
            if content is None:
                cells.append(NOT_RECORDED)
                continue
            shown = (BAKE_OFFS[task], STEP_TIME, PEAK)
            cells.append(
                "<br>".join(known_metric(metric).describe(recorded_metric(content, metric, score)) for metric in shown)
            )
        lines.append(row(cells))
    return "\n".join(lines)


#: What the table of records quotes of each experiment; the bake-off has a table of its own.
QUOTED: dict[str, tuple[str, ...]] = {
    "mnist-image-transformer": (ACCURACY,),
    "mnist-pixels": (ACCURACY,),
    PLACED: (ACCURACY,),
    "mnist-784": (ACCURACY, f"{ACCURACY} enlarged", f"{ACCURACY} on small digits"),
    "mnist-784-published": (ACCURACY,),
    "shakespeare": (LOSS,),
    "nanogpt": (LOSS, f"lowest {LOSS}"),
    "shakespeare-ladder": (LOSS,),
    "shakespeare-decay": (LOSS,),
    "shakespeare-decay-little-text": (LOSS, f"lowest {LOSS}"),
    TWO: (LOSS,),
    LITTLE_TEXT: (LOSS, f"lowest {LOSS}"),
    LENGTHS: ("validation loss at 64", "validation loss at 512", "validation loss at 2048"),
    "energy-wells": (ACCURACY,),
    "energy-wells-text": (LOSS,),
    "one-token": (ACCURACY,),
    SEARCHED: (VALIDATION,),
    "masked-images": ("probe accuracy", "probe accuracy untrained", "probe accuracy of pixels"),
    "corrupted-images": ("test loss", "probe accuracy", "probe accuracy untrained"),
    "hidden-shares": ("test loss", "probe accuracy", "probe accuracy untrained"),
    "reversal": (MATCH, f"{MATCH} at ten times the length"),
    "induction": ("accuracy on repeats", "prefix-matching score"),
    "digit-names": (MATCH,),
    "stories": (MATCH, f"{MATCH} at twice the length"),
    "dates": (MATCH, f"{MATCH} on new forms", f"{MATCH} on new days and forms"),
    "sharp-start": (ACCURACY,),
    "pixels-chosen": (ACCURACY,),
    "equally-sharp": (ACCURACY,),
    "recipes-images": (ACCURACY,),
    "recipes-text": (LOSS,),
}


def records_table() -> str:
    """What every record says, in each profile."""
    heads: dict[Profile, str] = {
        "quick": "quick profile, two CPU cores",
        "long": "long profile, CPU",
        "full": "full profile, GPU",
    }
    lines = header(["recorded", *heads.values()])
    for name, quoted in QUOTED.items():
        arms = dict.fromkeys(arm for profile in EXPERIMENTS[name].settings for arm in EXPERIMENTS[name].arms(profile))
        for arm in arms:
            for metric in quoted:
                title = f"`{name}`, {metric}" if arm is None else f"`{name}`, {arm}, {metric}"
                lines.append(row([title, *(recorded_cell(name, arm, metric, profile) for profile in heads)]))
    return "\n".join(lines)


def recorded_cell(name: str, arm: str | None, metric: str, profile: Profile) -> str:
    """A metric with its seeds, parameters and seconds; "–" where the experiment has no such profile, arm or metric."""
    what = EXPERIMENTS[name]
    if profile not in what.settings or arm not in what.arms(profile):
        return "–"
    content = load_record(name, profile)
    if content is None:
        return NOT_RECORDED
    runs = [run for run in content["runs"] if run.get("arm") == arm and metric in run["metrics"]]
    if not runs:  # the longest text of the quick profile is not the full one's
        return "–"
    return f"{known_metric(metric).describe([run['metrics'][metric] for run in runs])} ({describe_runs(runs)})"


def _recorded(content: dict[str, Any]) -> str:
    """How much of a full profile a record holds, how long it took and on what."""
    runs = f"{len(content['runs'])} trainings in " if "runs" in content else ""
    return f"{runs}{duration(content['seconds'] / 60)}, {content['device']}"


def predictions_table() -> str:
    """What every full profile will cost on a GPU: counted from shapes, and the time that is predicted from it."""
    gpus = [f"{gpu.name}, at {100 * gpu.share:.0f} % of {gpu.tflops:g} TFLOPS" for gpu in GPUS]
    heads = ["full profile", "trainings", *COUNTED, *gpus, "H100, by steps measured on one", "recorded"]
    lines = header(heads)
    for name, arms in kept_predictions().items():
        content = load_record(name, "full") if name in EXPERIMENTS else (load_search("full") or (None, None))[1]
        seeds = trainings(name)
        cells = [
            f"`{name}`",
            f"{len(arms)} × {seeds}" if len(arms) > 1 else f"{seeds}",
            *counted(name),
            *(duration(minutes_to_record(name, gpu)) for gpu in GPUS),
            described_steps(name),
            NOT_RECORDED if content is None else _recorded(content),
        ]
        lines.append(row(cells))
    return "\n".join(lines)


def speedrun_table() -> str:
    """The speedrun's records, the slowest first, so that each row shows what it gained."""
    heads = ["submission", "what it adds", "seconds", "10¹² operations", LOSS]
    heads += ["random windows", "numbers", "seeds"]
    lines = header(heads)
    for content, attempts in speedrun.load_records():
        name = content["submission"]
        cells = [
            f"[{name}](../speedrun/{name})",
            content["gained"],
            f"{fmean(a.seconds for a in attempts):.0f}",
            f"{fmean(a.products for a in attempts):.1f}",
            speedrun.four_digits([a.loss for a in attempts]),
            speedrun.four_digits([a.window_loss for a in attempts]),
            f"{attempts[0].numbers:,}",
            f"{len(attempts)}",
        ]
        lines.append(row(cells))
    return "\n".join(lines)


def ladder_table() -> str:
    """What each ingredient of the recipe gains at equal steps: each arm keeps those of the arm before."""
    content = load_record("shakespeare", "quick")
    if content is None:
        return NOT_RECORDED
    lines = header(["arm", LOSS, "change"])
    steps = content["config"][content["arms"][0]]["train"]["steps"]
    before: list[float] = []
    for arm in content["arms"]:
        if content["config"][arm]["train"]["steps"] == steps:
            losses = recorded_metric(content, LOSS, arm)
            change = speedrun.four_digits([b - a for a, b in zip(before, losses, strict=True)]) if before else ""
            lines.append(row([arm, speedrun.four_digits(losses), change.replace("-", "−")]))
            before = losses
    return "\n".join(lines)


#: The tables of these pages by the name between whose marks each stands.
TABLES: dict[str, Callable[[], str]] = {
    "claims": claims_table,
    "claims in short": short_claims_table,
    "margins": margins_table,
    "references": references_list,
    "bake-off": bake_off_table,
    "records": records_table,
    "predictions": predictions_table,
    "speedrun": speedrun_table,
    "speedrun's ladder": ladder_table,
}


def with_tables(text: str) -> str:
    """A text with its tables made anew, each between its marks.

    Raises:
        InputError: if there are marks of no table, or only one of the two.
    """
    here = [name for name in TABLES if f"<!-- {name} -->" in text or f"<!-- end of {name} -->" in text]
    if not here:
        raise InputError(f"no table belongs here: there are no marks of {', '.join(TABLES)}")
    for name in here:
        text = between_marks(text, name, TABLES[name]())
    return text


def between_marks(text: str, name: str, made: str) -> str:
    """A text with what stands between ``<!-- NAME -->`` and ``<!-- end of NAME -->`` replaced.

    Raises:
        InputError: if the marks are missing.
    """
    start, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    before, opened, rest = text.partition(start)
    _, closed, rest = f"\n{rest}".partition(end)
    if not opened or not closed:
        raise InputError(f"the table of {name} is missing its marks: it stands between {start!r} and {end!r}")
    return f"{before}{start}\n{made}\n{end}{rest}"
