# Everything a user or contributor runs. `make help` lists it.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
UV := $(BIN)/uv
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test check dev bench lock

help: ## List the commands.
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(READY): pyproject.toml requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(UV) || $(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
	@VIRTUAL_ENV=$(abspath $(VENV)) $(UV) pip sync --quiet --compile-bytecode --require-hashes requirements.lock
	@VIRTUAL_ENV=$(abspath $(VENV)) $(UV) pip install --quiet --no-deps --editable .
	@touch $@

demo: $(READY) ## Set up, evaluate search over Python's own help, and say how to open the UI.
	@$(BIN)/python demo/build_corpus.py --out .kbeval/demo/python_help
	@$(BIN)/kbeval evaluate python_questions
	@echo
	@echo "Every run, table and check is in the Dagster UI: make dev, then open http://127.0.0.1:3000"

test: check ## Set up, lint, check types and run the tests.
	@$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(READY) ## Lint, check formatting and types.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

dev: $(READY) ## Start the Dagster UI and the daemon.
	@$(BIN)/kbeval dev

bench: $(READY) ## Run the benchmarks against peers.
	@VIRTUAL_ENV=$(abspath $(VENV)) $(UV) pip install --quiet --constraint requirements.lock --editable '.[peers]'
	@$(BIN)/python benchmarks/ranking_metrics.py
	@$(BIN)/python benchmarks/llm_path.py

lock: ## Write requirements.lock anew from pyproject.toml.
	@$(UV) pip compile --quiet --universal --generate-hashes --extra dev \
		--custom-compile-command 'make lock' --output-file requirements.lock pyproject.toml
