# Two commands matter: `make demo` and `make test`. Each sets up what it needs on its own.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CORE := $(VENV)/.core-installed
DEV := $(VENV)/.dev-installed

.PHONY: demo test test-slow fuzz lint clean

demo: $(CORE)
	$(BIN)/noisegate demo

test: $(DEV)
	$(BIN)/python -m pytest -n auto

test-slow: $(DEV)
	$(BIN)/python -m pytest -n auto -m slow

fuzz: $(DEV)
	FUZZ_CASES=$${FUZZ_CASES:-10000} $(BIN)/python -m pytest -n 2 tests/fuzz

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(CORE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "noisegate needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt torch
	$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

$(DEV): $(CORE)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
