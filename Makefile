# Two commands matter: `make demo` and `make test`. Each does all of its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-clients check bench clean

setup: $(STAMP)

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python >= 3.11 is needed; this is $$($(PYTHON) -V). Set PYTHON=..." >&2; exit 2; }
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements/dev.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup
	@$(BIN)/python demo/demo.py

test: setup
	@$(BIN)/python -m pytest -n 2 --dist loadfile --tb=short -r fE --no-header

# With the real agent CLIs, installed from npm into .venv/clients, against fake models on loopback.
test-clients: setup
	@$(BIN)/python -m pytest tests/clients -m clients --tb=short -r fEs --no-header

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

# Ratios in one run: the machine is noisy, absolute figures are not comparable. Needs a C compiler.
bench: setup
	@$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements/bench.txt
	@for script in bench/shim.py bench/policy.py bench/canonical.py bench/redact.py bench/ledger.py bench/agents.py; do \
		echo "== $$script"; $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache bench/build
