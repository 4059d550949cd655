"""What the project's own habits promise: one list of checks for everybody, and a lock file that fits the ranges."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]


def recipe(target):
    """The commands of a target of the Makefile, without the path of the environment."""
    found = re.search(rf"^{target}:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text(), flags=re.M)
    return [line.strip().replace("$(BIN)/", "") for line in found[1].splitlines()]


def test_the_workflow_runs_what_ci_runs_and_may_write_nothing():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    commands = {"check": "bash .ci/run", "versions": "make check PYTHON=python TORCH=${{ matrix.torch }}"}
    assert not any("permissions" in job for job in WORKFLOW["jobs"].values())
    for name, command in commands.items():
        job = WORKFLOW["jobs"][name]
        assert job["timeout-minutes"] == 90
        assert [step["run"] for step in job["steps"] if "run" in step] == [command]


@pytest.mark.parametrize(
    ("variables", "command"),
    [
        ([], "bash .ci/run"),
        (["PYTHON=python3.12"], "bash .ci/run"),
        (["PYTHON=python3.14", "TORCH=newest"], "tools/versions.sh python3.14 newest"),
        (["TORCH=lowest"], "tools/versions.sh python3 lowest"),
    ],
)
def test_make_check_is_ci_unless_a_torch_is_named(variables, command):
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "PYTHON", "TORCH")}
    planned = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "check", *variables],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert planned.stdout.splitlines() == [command]


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_workflows_pin_their_actions_and_keep_no_credentials(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    used = [step for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert len(used) >= 2
    for step in used:
        action, _, commit = step["uses"].partition("@")
        assert re.fullmatch(r"[0-9a-f]{40}", commit), action
        if action == "actions/checkout":
            assert step["with"]["persist-credentials"] is False


def test_the_workflow_covers_every_push_and_pull_request_and_every_python():
    assert set(WORKFLOW[True]) == {"push", "pull_request"}  # YAML reads the key `on` as a truth value
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert WORKFLOW["jobs"]["check"]["strategy"]["matrix"]["python"] == [oldest, "3.13"]
    combinations = WORKFLOW["jobs"]["versions"]["strategy"]["matrix"]["include"]
    assert {"python": oldest, "torch": "lowest"} in combinations
    named = {line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", line)}
    assert {combination["python"] for combination in combinations} == named


def test_colab_is_rehearsed_with_one_torch():
    rehearsed = re.search(r"torch==([\d.]+)\.\*", (ROOT / "tools" / "colab.sh").read_text())[1]
    combinations = WORKFLOW["jobs"]["versions"]["strategy"]["matrix"]["include"]
    assert {"python": "3.13", "torch": rehearsed} in combinations


RELEASE = (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_a_release_keeps_no_password_and_each_job_gets_one_right_at_most():
    jobs = yaml.safe_load(RELEASE)["jobs"]
    rights = {name: job.get("permissions") for name, job in jobs.items()}
    assert rights == {"build": None, "publish": {"id-token": "write"}, "announce": {"contents": "write"}}
    assert jobs["publish"]["environment"]["name"] == "pypi"
    assert jobs["publish"]["needs"] == "build"
    assert "secrets." not in RELEASE
    assert "password" not in jobs["publish"]["steps"][-1]["with"]


def test_a_tag_of_another_version_is_no_release():
    refused = subprocess.run(
        ["bash", ROOT / "tools" / "release.sh", "v0.0.0"], capture_output=True, text=True, check=False
    )
    version = PROJECT["project"]["version"]
    assert refused.returncode == 1
    assert refused.stderr == f"pyproject.toml has version {version}, so the tag must be v{version}; got v0.0.0\n"


def test_ci_runs_lint_types_and_tests_once():
    script = (ROOT / ".ci" / "run").read_text()
    assert re.findall(r"^make (.+?)(?: #.*)?$", script, flags=re.M) == ["lint types", "test"]
    for command in recipe("lint") + recipe("types"):
        assert command not in script, "the Makefile says it already"


def test_hooks_are_the_commands_of_lint_and_types_in_the_projects_own_environment():
    (local,) = HOOKS
    assert local["repo"] == "local"
    entries = [hook["entry"] for hook in local["hooks"]]
    assert all(entry.startswith(".venv/bin/") for entry in entries)
    hooks = {entry.removeprefix(".venv/bin/").removesuffix(" --force-exclude") for entry in entries}
    assert hooks == {re.sub(r" --check| \.$", "", command) for command in (*recipe("lint"), *recipe("types"))}


def test_editors_break_lines_where_ruff_does():
    stated = re.search(r"^max_line_length = (\d+)$", (ROOT / ".editorconfig").read_text(), flags=re.M)
    assert int(stated[1]) == PROJECT["tool"]["ruff"]["line-length"]


def locked():
    """Name -> version and hashes of each package of the lock file."""
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", "")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {first.split("==")[0]: (first.split("==")[1], hashes) for first, *hashes in lines}


def test_the_lock_file_has_a_hash_for_everything_and_no_address():
    assert "://" not in (ROOT / "requirements.lock").read_text()
    assert len(locked()) > 100
    for name, (_, hashes) in locked().items():
        assert hashes, name
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", word) for word in hashes), name


EXTRAS = PROJECT["project"]["optional-dependencies"]


@pytest.mark.parametrize(
    "line", [*PROJECT["project"]["dependencies"], *(x for extra in EXTRAS.values() for x in extra)]
)
def test_the_lock_file_fits_the_ranges(line):
    wanted = Requirement(line)
    version, _ = locked()[canonicalize_name(wanted.name)]
    assert wanted.specifier.contains(version)


#: Private words that came back before, as patterns, each with the field's word.
PRIVATE_WORDS = {
    r"\bway back\b": "backward pass, inverse",
    r"\bby heart\b": "memorized",
    r"\bloudness\b": "weight, noise level",
    r"\bchances\b": "probabilities, p-values",
    r"\bsurer\b": "the standard error shrinks",
    r"(measur|know)\w*_places?\b": "compares_positions, knows_positions",
    r"\b(measures?|compares?|knows?) places\b": "compares positions, knows positions",
    r"(?<!in )\bplaces? (of|in) (the |a )?(\w+ )?(tokens?|quer(y|ies)|keys?|sequence|text|row|batch)\b": "position",
    r"\b(at|from|of) place (\d|\$|query_offset)": "position",
    r"\b(such|gives) places\b": "positions, indices",
    r"\b(change|changed|changing) places\b": "are exchanged, in another order",
    r"\bpieces? of (the |a |validation )?text\b": "chunk, context window",
    r"\b(every|each|any) piece\b|\bin pieces\b": "chunk, patch",
    r"\bnumbers (a|per) token\b|\btokens? of \S+ numbers\b": "features",
    r"\bless (theirs|ours|the dot product)\b": "minus",
}


def test_no_private_word_comes_back():
    """In docstrings, messages, comments, names and notebooks; a word that the field lacks may stay, introduced once."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r}; the field says {word}"
        for room in ("sciformer", "tools", "benchmarks", "notebooks_py")
        for path in sorted((ROOT / room).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        for pattern, word in PRIVATE_WORDS.items()
        for match in re.finditer(pattern, line, flags=re.I)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "kept for the way back",
        "measures_places = True",
        "the place of the first query among the keys",
        "the places of tokens in the sequence",
        "the logits of place 0",
        "it gives places from 0 on",
        "The two norms have changed places",
        "a piece of text",
        "2 tokens of 5 numbers",
        "a gain is ours less theirs",
    ],
)
def test_private_words_are_recognized(line):
    assert any(re.search(pattern, line, flags=re.I) for pattern in PRIVATE_WORDS)


@pytest.mark.parametrize(
    "line",
    [
        "zeros in place of the token",
        "an operation in place",
        "which would take its place",
        "the number of tokens",
        "less time",
    ],
)
def test_plain_english_passes(line):
    assert not any(re.search(pattern, line, flags=re.I) for pattern in PRIVATE_WORDS)
