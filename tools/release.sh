#!/usr/bin/env bash
# All of a release but its publication: tools/release.sh vVERSION, where pyproject.toml has this version.
#
#     build/release/dist       the wheel and the sdist, checked, and the wheel installed and used from another folder
#     build/release/sbom.json  every package that the installed wheel brings along, with its version and licence
#     build/release/notes.md   the version's part of CHANGELOG.md
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH # what is used is the installed package
release=$PWD/build/release
version=$(python3 -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])')
if [ "$1" != "v$version" ]; then
    echo "pyproject.toml has version $version, so the tag must be v$version; got $1" >&2
    exit 1
fi
rm -rf "$release"
mkdir -p "$release"

awk -v heading="## [$version]" 'index($0, heading) == 1 { inside = 1; next } /^## |^\[/ { inside = 0 } inside' \
    CHANGELOG.md > "$release/notes.md"
grep -q . "$release/notes.md" || { echo "CHANGELOG.md has no part about $version" >&2; exit 1; }

workshop=$(mktemp -d)
trap 'rm -rf "$workshop"' EXIT
python3 -m venv "$workshop/tools"
"$workshop/tools/bin/python" -m pip install --quiet \
    build==1.6.1 twine==7.0.0 check-wheel-contents==0.6.3 cyclonedx-bom==7.5.0
PATH=$workshop/tools/bin:$PATH
python -m build --outdir "$release/dist"
twine check --strict "$release"/dist/*
check-wheel-contents "$release"/dist/*.whl

python3 -m venv "$workshop/fresh"
"$workshop/fresh/bin/python" -m pip install --quiet "$release"/dist/*.whl
(cd "$workshop" && fresh/bin/sciformer doctor && fresh/bin/sciformer train mnist --profile quick --steps 2 --out model)
cyclonedx-py environment "$workshop/fresh/bin/python" --output-file "$release/sbom.json"
