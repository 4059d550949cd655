# make lab   the course in JupyterLab, which saves sliders with a notebook, so that it opens again with its pictures
# make test  the package's tests and every notebook
# Both make the virtual environment .venv first if it is not there. In a container, as root: make lab FLAGS=--allow-root

PYTHON ?= python3
BIN := .venv/bin

.PHONY: lab test clean

lab: .venv/installed
	$(BIN)/jupyter lab --LabApp.app_settings_dir=tools/lab $(FLAGS) notebooks/00_welcome.ipynb

test: .venv/installed
	$(BIN)/python -m pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile tests
	$(BIN)/python -m pytest --nbval notebooks

.venv/installed: pyproject.toml requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"sciformer needs Python 3.11 or newer, $(PYTHON) is {sys.version.split()[0]}; try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements.txt
	@touch $@

clean:
	rm -rf .venv .venv-colab
