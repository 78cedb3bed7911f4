# KVCompass. `make demo` and `make test` do all the set-up they need; `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
PACKAGES := kvcompass services simulator lab cli
LOCK_FLAGS := --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate
SOURCES := $(PACKAGES) tests bench
ENGINES ?= sglang-0.5.10 sglang-0.5.23

.PHONY: help setup setup-dev setup-simulator demo lab test test-unit test-e2e test-engines check format lint types contracts proto lock lock-engines bench convergence faults compose-test netem-test dashboard dashboard-schema clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "KVCompass needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python's venv module is missing: on Debian or Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.setup: .venv/bin/python requirements/lab.lock pyproject.toml
	@echo "Installing pinned dependencies into .venv (about a minute) ..."
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements/lab.lock
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps -e .
	@touch $@

.venv/.setup-dev: .venv/.setup requirements/dev.lock
	@echo "Installing pinned development tools into .venv ..."
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@touch $@

setup: .venv/.setup ## Create .venv, install the product and compile its bytecode and kernels
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@$(BIN)/kvcompass warm

.venv/.layouts: .venv/.setup-dev $(wildcard kvcompass/kernels/*.py)
	@$(BIN)/kvcompass warm --all-layouts
	@touch $@

setup-dev: .venv/.setup-dev setup .venv/.layouts

.venv/.setup-simulator: .venv/.setup requirements/simulator.lock
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements/simulator.lock
	@touch $@

setup-simulator: .venv/.setup-simulator setup ## What `kvcompass simulate --png` draws with

demo: setup ## Three regions on this machine, the same traffic under three policies, one table
	$(BIN)/kvcompass lab demo --json out/demo.json

lab: setup ## A three-region fleet that stays up until Ctrl-C
	@$(BIN)/kvcompass lab up || [ $$? -eq 130 ]

test: setup-dev test-unit test-e2e ## Every test: laws, services, then real processes

test-unit: setup-dev
	$(BIN)/python -m pytest -n 2 tests --ignore=tests/e2e --ignore=tests/engines

test-e2e: setup-dev
	$(BIN)/python -m pytest tests/e2e
	$(BIN)/python -m pytest tests/engines

test-engines: setup-dev ## Real SGLang servers and caches on CPUs: 15 minutes, 6 GB in .venv-engines (docs/deploy-engines.md)
	$(BIN)/python -m tests.engines.real.install $(ENGINES)
	KVCOMPASS_ENGINES="$(ENGINES)" $(BIN)/python -m pytest tests/engines
	KVCOMPASS_ENGINES="$(ENGINES)" $(BIN)/python -m pytest tests/conformance --timeout 600

check: setup-dev format lint types contracts ## Format, lint, types, import contracts and fast tests
	$(BIN)/python -m pytest -q -n 2 -m "not slow" tests/unit tests/architecture

format: setup-dev
	$(BIN)/ruff format --check $(SOURCES)

lint: setup-dev
	$(BIN)/ruff check $(SOURCES)

types: setup-dev
	$(BIN)/mypy

contracts: setup-dev
	$(BIN)/lint-imports

proto: setup-dev ## Regenerate services/wire/pb from proto/
	PYTHON=$(BIN)/python proto/generate.sh

lock: setup-dev ## Pin the dependencies of pyproject.toml anew
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile $(LOCK_FLAGS) --extra lab pyproject.toml -o requirements/lab.lock
	$(BIN)/uv pip compile $(LOCK_FLAGS) --extra lab --extra simulator -c requirements/lab.lock pyproject.toml -o requirements/simulator.lock
	$(BIN)/uv pip compile $(LOCK_FLAGS) --extra lab --extra simulator --extra dev -c requirements/simulator.lock pyproject.toml -o requirements/dev.lock

lock-engines: setup-dev ## Pin the dependencies of the real engines of `make test-engines` anew
	$(BIN)/python -m pip install --quiet uv
	cd requirements/engines && for name in $(ENGINES); do \
	  ../../$(BIN)/uv pip compile $(LOCK_FLAGS) --override no-torch.txt $$name.in -o $$name.lock; \
	  [[ $$name != sglang-* ]] || echo "$${name/-/==}" | ../../$(BIN)/uv pip compile $(LOCK_FLAGS) --no-deps - >> $$name.lock; \
	done

bench: setup-dev ## Micro-benchmarks; each prints a table and writes out/bench/*.json
	$(BIN)/python -m bench.index --json out/bench/index.json
	$(BIN)/python -m bench.keys
	$(BIN)/python -m bench.ladder --json out/bench/ladder.json
	$(BIN)/python -m bench.engine_model --json out/bench/engine_model.json
	$(BIN)/python -m bench.unit_snapshot --json out/bench/unit_snapshot.json
	$(BIN)/python -m bench.agent --json out/bench/agent.json

convergence: setup ## Tries the replication under 1,000 random schedules of faults, and writes out/convergence.json
	$(BIN)/python -m simulator.convergence --json out/convergence.json

faults: setup ## Breaks a lab of processes in every way under load, and writes out/faults.json
	$(BIN)/kvcompass lab faults --json out/faults.json

compose-test: setup ## Builds the container lab, breaks it in every way, and writes out/compose.json
	$(BIN)/python -m lab.compose_test --json out/compose.json

netem-test: setup ## Tries the routers: with tc netem under User-Mode Linux, and with late verdicts on this kernel (root)
	$(BIN)/python -m lab.netem.trial.uml --json out/netem.json
	$(BIN)/python -m lab.netem.trial --shaper nfqueue --json out/netem-nfqueue.json || [ $$? -eq 3 ]

dashboard: setup ## Regenerate the dashboard and the alert rules from the metric names
	$(BIN)/python -m lab.dashboards

dashboard-schema: ## Type-check the dashboard against Grafana's own types; needs npm
	cd deploy/compose/grafana/schema && npm ci --silent && npm run check

clean: ## Remove everything that make created
	rm -rf .venv .venv-engines out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
