# `make train` and `make test` work on a fresh clone; everything they need is installed into $(VENV).

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CONFIG ?= configs/cluttered_digits/resnet20_cbam.yaml

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12"'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(INSTALLED)

.PHONY: install
install: $(INSTALLED) ## make the virtual environment and install into it

.PHONY: train
train: install ## train the default config on built-in data (three to four minutes on two cores), then evaluate it
	$(BIN)/python train.py --config $(CONFIG)

.PHONY: test
test: install ## run the whole test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8

.PHONY: check
check: install ## lint, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/tables.py --check

.PHONY: wheel
wheel: install ## build the wheel into dist/
	$(BIN)/python -m build --wheel --outdir dist

.PHONY: benchmark
benchmark: install ## measure training speed beside the usual stack; appends to benchmarks/results/
	$(BIN)/python benchmarks/training.py

.PHONY: tables
tables: install ## write the documents' tables from weight cards, benchmark rows and studies
	$(BIN)/python docs/tables.py

.PHONY: clean
clean: ## remove build products and caches; runs, data and the environment stay
	rm -rf dist build .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
