"""Promises about the package as a whole: its rooms, its exports, its weight, and its one list of dependencies."""

import ast
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from torch import nn

import sciformer

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sciformer"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: What whoever lists the package sees: the architecture. `lint-imports` checks who may import whom.
ROOMS = {
    *("functional", "scores", "attention", "positions", "blocks"),  # the core, to be read from top to bottom
    *("models", "fast", "data", "training", "lab", "teach", "check", "exercises", "cli"),
}


def modules():
    """Every module of the package, imported."""
    for found in pkgutil.walk_packages(sciformer.__path__, "sciformer."):
        if found.name != "sciformer.__main__":  # which runs the command line
            yield importlib.import_module(found.name)


def test_the_package_shows_its_architecture():
    assert {found.name for found in pkgutil.iter_modules(sciformer.__path__)} == ROOMS | {"__main__"}


def test_long_files_say_why():
    for path in PACKAGE.rglob("*.py"):
        lines = path.read_text().splitlines()
        assert len(lines) <= 500 or "More than 500 lines, s" in "\n".join(lines[:15]), path


def test_functions_are_short():
    """At most 60 lines; a docstring does not count."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                assert not body or body[-1].end_lineno - body[0].lineno < 60, (path, node.name)


def public_objects():
    """Everything public that is defined in the package, with its name; not the answers, which are as students write."""
    for module in modules():
        if module.__name__.startswith("sciformer.exercises.ways.nb"):
            continue
        for name, thing in vars(module).items():
            ours = getattr(thing, "__module__", None) == module.__name__
            if not name.startswith("_") and ours and (inspect.isfunction(thing) or inspect.isclass(thing)):
                yield f"{module.__name__}.{name}", thing


def test_everything_public_is_documented():
    things = dict(public_objects())
    assert len(things) > 40
    undocumented = [name for name, thing in things.items() if not inspect.getdoc(thing)]
    for name, thing in things.items():
        if inspect.isclass(thing):
            methods = ((f"{name}.{m}", f) for m, f in vars(thing).items() if inspect.isfunction(f) and m[0] != "_")
            undocumented += [m for m, f in methods if not inspect.getdoc(f)]
    assert undocumented == []


def test_all_is_complete_and_true():
    exported = set(sciformer.__all__)
    assert all(hasattr(sciformer, name) for name in exported)
    for layer in (
        "scores",
        "attention",
        "blocks",
        "models.image",
        "models.language",
        "models.attention_only",
        "models.encoder_decoder",
        "models.masked_image",
        "positions",
    ):
        module = importlib.import_module(f"sciformer.{layer}")
        modules = {
            name
            for name, thing in vars(module).items()
            if inspect.isclass(thing) and issubclass(thing, nn.Module) and thing.__module__ == module.__name__
        }
        assert {name for name in modules if not name.startswith("_")} <= exported
    assert {getattr(s, "func", s).__name__ for s in sciformer.SCORES.values()} <= exported


def test_every_exported_module_is_built_by_some_test():
    """A completeness check over the tests themselves: what is exported is used in at least one of them."""
    tests = "\n".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py") if p != Path(__file__))
    unused = [name for name in sciformer.__all__ if not re.search(rf"\b{name}\b", tests)]
    assert unused == []


def test_raises_is_documented_where_an_error_is_raised():
    missing = []
    for name, thing in public_objects():
        if inspect.isfunction(thing) and "raise " in inspect.getsource(thing) and "Raises:" not in thing.__doc__:
            missing.append(name)
    assert missing == []


def test_import_is_light():
    """What only some notebooks need is imported when it is first used."""
    heavy = ["torchvision", "matplotlib", "ipywidgets", "IPython", "tqdm", "optuna", "safetensors"]
    code = f"import sys, torch; before = set(sys.modules); import sciformer; new = set(sys.modules) - before; \
print([m for m in {heavy} if m in new])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_command_line_imports_little_beside_torch():
    """What a single command needs is imported when that command runs."""
    code = "import sys, torch; before = set(sys.modules); import sciformer.cli; print(*set(sys.modules) - before)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    others = {
        name for name in result.stdout.split() if name.split(".")[0] not in {"sciformer", *sys.stdlib_module_names}
    }
    assert len(others) < 50, sorted(others)


def test_modules_that_assignments_import_from_the_package():
    names = "check course plotting explore data training metrics experiments records properties capstone"
    for name in names.split():
        assert inspect.ismodule(getattr(sciformer, name)), name


def test_submodules_come_when_they_are_asked_for():
    code = "import sciformer; print(sciformer.training.fit.__name__); sciformer.nothing"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "fit"
    assert "module 'sciformer' has no attribute 'nothing'" in result.stderr


def test_one_list_of_dependencies():
    """requirements.txt is the package with its course extra; environment.yml is Python, pip and requirements.txt."""
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] != "#"]
    assert lines == ["-e .[course]"]
    python = f"python {PROJECT['requires-python']}"
    assert yaml.safe_load((ROOT / "environment.yml").read_text()) == {
        "name": "sciformer",
        "channels": ["conda-forge"],
        "dependencies": [python, "pip", {"pip": ["-r requirements.txt"]}],
    }


@pytest.mark.parametrize(
    ("code", "policy"),
    [("import sciformer", "PASSIVE"), ("import torch, sciformer", None)],
    ids=["in time", "too late to be heeded"],
)
def test_waiting_threads_sleep_if_torch_was_not_there_before(code, policy):
    """OpenMP reads it when torch is loaded; what was not heeded must not look as if it had been."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    code = f"{code}, os; print(os.environ.get('OMP_WAIT_POLICY'))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == f"{policy}\n"


def test_the_package_alone_is_light():
    names = {re.match(r"[\w-]+", requirement)[0] for requirement in PROJECT["dependencies"]}
    assert names == {"torch", "torchvision", "matplotlib", "pillow", "ipywidgets", "tqdm", "jaxtyping", "safetensors"}


def test_version_is_the_same_everywhere():
    assert sciformer.__version__ == PROJECT["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    archive = json.loads((ROOT / ".zenodo.json").read_text())
    assert citation["version"] == archive["version"] == PROJECT["version"]
    assert str(citation["date-released"]) == archive["publication_date"]
    heading = f"## [{PROJECT['version']}] - {citation['date-released']}"
    assert heading in (ROOT / "CHANGELOG.md").read_text().splitlines()


def test_citation_archive_and_project_name_the_same_work_and_authors():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    archive = json.loads((ROOT / ".zenodo.json").read_text())
    assert citation["authors"] == archive["creators"] == PROJECT["authors"]
    assert citation["keywords"] == archive["keywords"] == PROJECT["keywords"]
    assert (citation["title"], citation["abstract"]) == (archive["title"], archive["description"])
    assert citation["license"] == archive["license"] == PROJECT["license"]
