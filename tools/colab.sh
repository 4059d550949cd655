#!/usr/bin/env bash
# A rehearsal of Colab: among Colab's versions sciformer installs without changing one of them, and notebooks with
# sliders give there what they give here.
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONPATH # what is rehearsed is the installed package, not the checkout

"${PYTHON:-python3}" -m venv --clear .venv-colab
python=.venv-colab/bin/python
pip() { "$python" -m pip --quiet --disable-pip-version-check "$@"; }

# What Colab had in August 2026. Most of it is never imported here, so nothing is compiled ahead.
pip install --no-compile 'torch==2.11.*' 'torchvision==0.26.*' 'numpy==2.1.*' 'matplotlib==3.10.*' \
    'ipywidgets==7.7.*' 'ipython==7.34.*' 'ipykernel==6.17.*'
pip freeze > .venv-colab/before
pip install .
pip freeze > .venv-colab/after
if changed=$(grep -vxFf .venv-colab/after .venv-colab/before); then
    echo "Installing sciformer changes what Colab has:" $changed >&2
    exit 1
fi

pip install --constraint .venv-colab/before nbval pytest
"$python" -m pytest --nbval notebooks/0[12]_*.ipynb
