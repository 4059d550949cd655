"""What `pip install` gives: a wheel and an sdist that hold what the package needs, and nothing else."""

import email
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = f"sciformer-{PROJECT['version']}"
MISSING = [name for name in ("build", "hatchling") if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}: pip install -e '.[dev]'"),
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs git's list of what belongs here"),
]


def tracked(*patterns):
    """The files that git does not ignore, as paths from the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {path for path in listed.stdout.splitlines() if (ROOT / path).exists()}


def run(*command, cwd, **environment):
    result = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A wheel and an sdist, made without fetching anything; the wheel from the sdist, as an installer does it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A folder with the wheel, and nothing else, installed."""
    target = tmp_path_factory.mktemp("site")
    run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, built[0]),
        cwd=target,
    )
    return target


@pytest.fixture(scope="module")
def fresh(built, tmp_path_factory):
    """A new environment with the wheel in it, which finds the packages that the wheel needs in this one."""
    folder = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    paths = sysconfig.get_paths("venv", vars={"base": str(folder), "platbase": str(folder)})
    python = next(Path(paths["scripts"]).glob("python*"))
    run(
        *(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", built[0]),
        cwd=folder,
    )
    (Path(paths["purelib"]) / "needs.pth").write_text(sysconfig.get_path("purelib"))
    return paths


def test_the_wheel_holds_the_package_and_the_records_and_nothing_else(built):
    names = {name for name in zipfile.ZipFile(built[0]).namelist() if ".dist-info/" not in name}
    package, records = tracked("sciformer"), {f"sciformer/{path}" for path in tracked("results/*.json")}
    assert names == package | records | {"sciformer/results/references.bib"}
    assert {"sciformer/py.typed", "sciformer/results/mnist-image-transformer.quick.json"} <= names
    assert [name for name in names if name.startswith("sciformer/data/assets/") and name.endswith(".bz2")]


def test_the_sdist_holds_what_git_knows(built):
    """With it one can do all that one can with a clone: run the notebooks, the tests, the benchmarks."""
    with tarfile.open(built[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert names - {"PKG-INFO"} <= tracked()
    assert {"pyproject.toml", "LICENSE", "Makefile", *tracked("sciformer", "results", "tests", "notebooks")} <= names


def test_the_wheel_alone_has_data_records_and_exercises(installed, tmp_path):
    code = (
        "import sciformer\n"
        "images, labels = sciformer.data.mnist('test')\n"
        "print(sciformer.__file__, tuple(images.shape), len(sciformer.check.EXERCISES))\n"
        "print(sciformer.records.load_record('mnist-image-transformer', 'quick')['profile'])"
    )
    printed = run(
        sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(installed), SCIFORMER_DATA=str(tmp_path / "no data")
    ).split()
    assert Path(printed[0]).is_relative_to(installed)
    assert printed[1:5] == ["(2000,", "1,", "28,", "28)"]
    assert int(printed[5]) > 50
    assert printed[6] == "quick"


def test_the_command_line_is_installed(installed, tmp_path):
    printed = run(sys.executable, "-m", "sciformer", "record", "--list", cwd=tmp_path, PYTHONPATH=str(installed))
    assert any("mnist-image-transformer" in line and "recorded yet" not in line for line in printed.splitlines())


def test_a_fresh_environment_trains_and_shows_its_records_in_any_folder(fresh, tmp_path):
    command = Path(fresh["scripts"]) / "sciformer"
    environment = {"PYTHONPATH": "", "SCIFORMER_DATA": str(tmp_path / "no data")}
    where = "import sciformer; print(sciformer.__file__)"
    python = next(Path(fresh["scripts"]).glob("python*"))
    assert Path(run(python, "-c", where, cwd=tmp_path, **environment).strip()).is_relative_to(fresh["purelib"])
    listed = run(command, "record", "--list", cwd=tmp_path, **environment)
    assert any("mnist-image-transformer" in line and "recorded yet" not in line for line in listed.splitlines())
    run(command, "train", "mnist", "--profile", "quick", "--steps", "2", "--out", "model", cwd=tmp_path, **environment)
    assert (tmp_path / "model" / "model.safetensors").exists()


def test_the_metadata_say_what_an_index_shows(built):
    metadata = email.message_from_string(zipfile.ZipFile(built[0]).read(f"{NAME}.dist-info/METADATA").decode())
    assert metadata["Name"] == "sciformer"
    assert metadata["Version"] == PROJECT["version"]
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    assert set(PROJECT["classifiers"]) == set(metadata.get_all("Classifier"))
