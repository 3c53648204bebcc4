# `make demo` and `make test` need Python 3.11 or newer and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DELETE_ON_ERROR:
.PHONY: help demo test test-all test-lowest chaos lint format reference docs tutorials pictures dist try-dist bench clean

help:
	@echo "make demo    set everything up and run the main job, offline"
	@echo "make test    set everything up and run the tests"
	@echo "make test-all  those too that take long"
	@echo "make test-lowest  the tests with the oldest versions of what judgeq needs"
	@echo "make chaos   kill processes and databases, 300 times: half an hour"
	@echo "make lint    ruff and mypy"
	@echo "make format  let ruff rewrite the layout of the code"
	@echo "make bench   print the numbers of benchmarks/"
	@echo "make docs    build the documentation as a site: build/docs/site/index.html"
	@echo "make reference  write docs/cli.md and docs/settings.md from the commands and settings"
	@echo "make tutorials  run the notebooks of docs/tutorials and keep what they print"
	@echo "make pictures  draw the pictures of the README anew"
	@echo "make dist    build the sdist and, from it, the wheel: dist/"
	@echo "make try-dist  build both, and run each in an empty environment"
	@echo "make clean   remove what these made, but no run"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "judgeq needs Python 3.11 or newer, and $(PYTHON) is older: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.user: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.developer: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.user

demo: $(VENV)/.user
	$(BIN)/judgeq run --dataset babe --strategy listwise10
	$(BIN)/judgeq run --dataset demo --strategy listwise10

# Meant to take four minutes on two quiet cores: `make test-all` with --durations=30 lists the slowest tests.
# A test that starts a process takes a second of a core for it, one within the process (`judgeq` in
# tests/cli.py) a tenth. Where ratings or figures aren't looked at, fixtures of tests/conftest.py leave them out.
# What guards a promise of tests/promises.md is never marked long as a whole.
test: $(VENV)/.developer
	$(BIN)/python -m pytest -n auto -m "not long"

test-all: $(VENV)/.developer
	$(BIN)/python -m pytest -n auto

# The oldest versions that pyproject.toml allows, in an environment of their own.
test-lowest:
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(VENV)-lowest/bin/uv pip install --quiet --python $(VENV)-lowest/bin/python --resolution lowest-direct --editable '.[dev]'
	$(VENV)-lowest/bin/python -m pytest -n auto

chaos: $(VENV)/.developer
	$(BIN)/python -m tests.chaos --events 300

reference: $(VENV)/.developer
	$(BIN)/python -m benchmarks.reference

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[docs]'
	@touch $@

# Strictly: a link that leads nowhere fails. The pages are copied, since a site may not lie among its pages.
docs: $(VENV)/.docs
	rm -rf build/docs && mkdir -p build/docs && cp -r docs build/docs/pages
	mv build/docs/pages/zensical.toml build/docs
	$(BIN)/python -m benchmarks.tutorials build/docs/pages
	cd build/docs && $(CURDIR)/$(BIN)/zensical build --strict

tutorials: $(VENV)/.developer
	$(BIN)/python -m benchmarks.tutorials

pictures: $(VENV)/.developer
	$(BIN)/python -m benchmarks.pictures

dist: | $(BIN)/python
	rm -rf dist
	$(PIP) build
	$(BIN)/python -m build

# From another folder, so that nothing of the checkout is found.
try-dist: dist
	for file in $(CURDIR)/dist/*; do \
		rm -rf build/try && mkdir -p build/try && $(PYTHON) -m venv build/try/venv && cd build/try && \
		venv/bin/python -m pip install --quiet --disable-pip-version-check $$file && \
		JUDGEQ_OFFLINE=1 venv/bin/judgeq run demo --quiet && venv/bin/judgeq report && \
		cd $(CURDIR) || exit 1; done

lint: $(VENV)/.developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.developer
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.developer
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) $(VENV)-lowest .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
