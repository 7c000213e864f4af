# Two commands matter: `make demo` and `make test`. Each sets up what it needs on its own.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CORE := $(VENV)/.core-installed
DEV := $(VENV)/.dev-installed
DOCS := $(VENV)/.docs-installed
export CHROMIUM ?= chromium

.PHONY: demo test test-slow test-browser fuzz kills lint docs audit-pins clean

demo: $(CORE)
	$(BIN)/noisegate demo

test: $(DEV)
	$(BIN)/python -m pytest -n auto

# Drives Debian's chromium (CHROMIUM names another); where there is none it is installed if this account may.
test-browser: $(DEV)
	@command -v $(CHROMIUM) >/dev/null || ! command -v apt-get >/dev/null || \
	 $$(test $$(id -u) = 0 || echo sudo -n) apt-get install --yes --quiet chromium || true
	$(BIN)/python -m pytest -m browser

test-slow: $(DEV)
	$(BIN)/python -m pytest -n auto -m slow

# 100 SIGKILLs over studies, fits and audits, at random moments: takes about 20 minutes.
kills: $(DEV)
	KILLS=25 $(BIN)/python -m pytest -n 2 -m slow tests/kills

fuzz: $(DEV)
	FUZZ_CASES=$${FUZZ_CASES:-10000} $(BIN)/python -m pytest -n 2 tests/fuzz
	-$(PIP) install --quiet atheris
	$(BIN)/python tests/fuzz/guided.py $${FUZZ_CASES:-10000}

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Warnings are errors; needs no network once the packages are installed. The pages: docs/_build/html/index.html
docs: $(DOCS)
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --builder html --jobs auto --fail-on-warning --keep-going --quiet \
	 --doctree-dir docs/_build/doctrees docs docs/_build/html

# The pins against the published advisories; pip-audit gets an environment of its own. Ends with an error if a pin
# has a known vulnerability, and if it could not be compared.
audit-pins:
	@test -x .venv-audit/bin/pip-audit || ($(PYTHON) -m venv .venv-audit && .venv-audit/bin/pip install --quiet pip-audit)
	@$(PYTHON) tools/audit_pins.py .venv-audit/bin/pip-audit constraints.txt

$(CORE): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "noisegate needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --constraint constraints.txt torch
	$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

$(DEV): $(CORE)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(DOCS): $(CORE)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) build dist docs/_build docs/api docs/gallery docs/methods/_facts docs/_numbers.md .pytest_cache .mypy_cache .ruff_cache
