#!/usr/bin/env bash
# The package's tests and every notebook under other versions, in an environment of their own, .venv-versions:
#
#     tools/versions.sh PYTHON TORCH
#
# PYTHON is a command, such as python3.14. TORCH is a version, such as 2.11; or newest; or lowest, which takes not only
# torch but every package that pyproject.toml names in the lowest version that it allows.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH # what is tested is the installed package

case "$2" in
newest) chosen=(torch) ;;
lowest) chosen=(--resolution lowest-direct) ;;
*) chosen=("torch==$2.*") ;;
esac

"$1" -m venv --clear .venv-versions
python=.venv-versions/bin/python
"$python" -m pip install --quiet uv
"$python" -m uv pip install --quiet --python "$python" --editable '.[course]' "${chosen[@]}"
"$python" -m uv pip list --python "$python" | grep -E '^(torch|torchvision|numpy|matplotlib) '

"$python" -m pytest tests --numprocesses=auto --maxprocesses=4 --dist=loadfile
"$python" -m pytest --nbval notebooks
