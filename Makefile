# Every target sets up what it needs: the first call builds .venv, later ones start at once.
PYTHON ?= python3
VENV ?= .venv
# torch first and pinned: left to the resolver it would bring gigabytes of CUDA packages.
TORCH ?= torch==2.13.0
# More requirements of the same installation, for example PINS='-c oldest.lock' or PINS='transformers==5.17.0'.
PINS ?=
READY := $(VENV)/.ready
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
# About a minute's worth: no subprocesses, no training, no compilation.
QUICK := tests/tasks tests/test_helpers.py tests/models/families/test_native.py tests/decoding/test_rules.py \
	tests/diffusion/test_fused.py tests/diffusion/test_schedules.py \
	tests/training/data/test_tune_dataset.py tests/training/data/test_tune_pairs.py

.PHONY: setup diagnose quick test slow lint house docs check bench audit oracle

setup: $(READY)

diagnose: $(READY)
	$(BIN)/maskwise diagnose tiny-llada tiny-llada+distracted --quick

quick: $(READY)
	$(PYTEST) -n 2 --dist loadfile $(QUICK)

test: $(READY)
	$(PYTEST) -n 2 --dist loadfile

slow: $(VENV)/.docs
	$(PYTEST) -n 2 --dist loadfile -m slow

lint: $(READY)
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

# Size and structure of the source, with their limits.
house: $(READY)
	$(BIN)/python tests/helpers/house.py

# The site, in site/; strict: a link or a page that is missing ends it (not with --quiet, which hides warnings from it).
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: lint test slow

bench: $(READY)
	$(BIN)/python -m benchmarks $(if $(ROWS),--rows $(ROWS))

# Writes the stored values of tests/oracle that are missing. ORACLE='--change asked/tiny-llada' writes these anew.
oracle: $(READY)
	PYTHONPATH=tests $(BIN)/python -m oracle $(ORACLE)

audit: $(READY)
	$(PIP) bandit pip-audit
	$(BIN)/bandit -q -r src -c pyproject.toml
	$(BIN)/pip-audit --local --skip-editable

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(PIP) -e '.[dev,lm-eval]' $(PINS)
	touch $(READY)

# What builds the site, and the studio: not part of setup, which the README's two commands wait for.
$(VENV)/.docs: $(READY)
	$(PIP) -e '.[docs,studio]' $(PINS)
	touch $@
