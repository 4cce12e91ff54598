# Every target sets up what it needs: the first call builds .venv, later ones start at once.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin

.PHONY: diagnose test lint bench

diagnose: $(READY)
	$(BIN)/maskwise diagnose --quick

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(READY)
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks $(if $(ROWS),--rows $(ROWS))

# torch first and pinned: left to the resolver it would bring gigabytes of CUDA packages.
$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,lm-eval]'
	touch $(READY)
