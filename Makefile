# make demo: set up and run the main job on real images, nothing is downloaded but Python packages.
# make test: set up and run linters, types and the whole test suite, which builds the docs, too.
# make docs: build the site of docs/ into site/.
# make flower: set up an environment with Flower, which holds other libraries back, and run the tests of its example.
PYTHON ?= python3
VENV ?= .venv
FLOWER ?= .venv-flower
EXTRAS ?= dev
BIN = $(VENV)/bin

.PHONY: demo test lint docs flower
demo: $(VENV)/installed
	$(BIN)/fedrela-bench tune --dataset digits_lt --out studies/digits_lt

docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test: lint
	$(BIN)/pytest

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

flower:
	$(MAKE) VENV=$(FLOWER) EXTRAS=dev,flower $(FLOWER)/installed
	$(FLOWER)/bin/pytest tests/examples

$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than Python 3.11; run make with PYTHON=python3.11" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	touch $@
