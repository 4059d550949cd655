"""Move the project to another address on GitHub: python tools/address.py OWNER/REPO

The address stands in pyproject.toml; from there it is changed wherever else it stands: badges, links, the notebooks'
set-up cells, Colab's and Binder's entry points.
"""

import argparse
import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOST = "https://github.com/"


def present_address(root: Path) -> str:
    """OWNER/REPO, as pyproject.toml has it."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["urls"]["Repository"].removeprefix(HOST)


def move(root: Path, address: str) -> list[Path]:
    """Write another address wherever the present one stands.

    Returns:
        The files that were changed.

    Raises:
        ValueError: if it is no OWNER/REPO.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", address):
        raise ValueError(f"the address must be OWNER/REPO, got {address!r}")
    old = present_address(root)
    # Behind github.com/, Colab's /github/, Binder's /gh/ and Codespaces' host; elsewhere the two words may be a folder.
    places = re.compile(rf"((?:github\.com|/github|/gh|codespaces\.new)/){re.escape(old)}(?![\w-])")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)
    changed = []
    for path in (root / name for name in listed.stdout.split("\0") if name):
        try:
            text = path.read_bytes().decode()
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # a picture, or a file that has been removed
        moved = places.sub(rf"\g<1>{address}", text)
        if moved != text:
            path.write_bytes(moved.encode())
            changed.append(path)
    return changed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", metavar="OWNER/REPO")
    for path in move(ROOT, parser.parse_args().address):
        print(path.relative_to(ROOT))
