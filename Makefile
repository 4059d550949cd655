# make lab    the course in JupyterLab, which saves sliders with a notebook, so that it opens again with its pictures
# make test   the package's tests and every notebook
# make lint   format, rules, the import contract, and every notebook in step with its script; nothing is changed
# make types  the types of the package and of the benchmarks
# make site   the course as a site, build/site/index.html, offline and without running a notebook
# make slides a deck of slides of each notebook, build/slides/index.html, offline as well
# make check  everything that CI runs, the three above included: .ci/run
#             make check PYTHON=python3.14 TORCH=newest: the tests and the notebooks alone, with other versions, in an
#             environment of their own; TORCH is newest, lowest or a version: tools/versions.sh
# make lock   requirements.lock anew: what .venv holds, with hashes
# Each makes the virtual environment .venv first if it is not there. In a container, as root: make lab FLAGS=--allow-root

PYTHON ?= python3
BIN := .venv/bin

.PHONY: lab test lint types site slides check lock clean

lab: .venv/installed
	$(BIN)/jupyter lab --LabApp.app_settings_dir=tools/lab $(FLAGS) notebooks/00_welcome.ipynb

test: .venv/installed
	$(BIN)/python -m pytest tests --numprocesses=auto --maxprocesses=4 --dist=loadfile
	$(BIN)/python -m pytest --nbval notebooks

lint: .venv/dev-installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python tools/notebooks.py check
	$(BIN)/python tools/heads.py check

types: .venv/dev-installed
	$(BIN)/mypy

site: .venv/site-installed
	$(BIN)/python tools/build_site.py

slides: .venv/site-installed
	$(BIN)/python tools/slides.py

check:
	$(if $(TORCH),tools/versions.sh $(PYTHON) $(TORCH),bash .ci/run)

# The constraints keep the versions that are installed; uv adds the hashes of every wheel of them.
lock: .venv/dev-installed
	$(BIN)/python -m pip install --quiet -e '.[bench,site]'
	$(BIN)/python -m pip freeze --exclude-editable > .venv/tested.txt
	$(BIN)/uv pip compile --quiet --python $(BIN)/python --all-extras --constraint .venv/tested.txt --generate-hashes \
	    --no-annotate --custom-compile-command 'make lock' --no-emit-index-url --no-emit-find-links --output-file requirements.lock pyproject.toml

.venv/installed: pyproject.toml requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"sciformer needs Python 3.11 or newer, $(PYTHON) is {sys.version.split()[0]}; try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -r requirements.txt
	@touch $@

.venv/dev-installed: .venv/installed
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@

.venv/site-installed: .venv/installed
	$(BIN)/python -m pip install --quiet -e '.[site]'
	@touch $@

clean:
	rm -rf .venv .venv-colab .venv-versions build
