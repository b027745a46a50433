# Every target makes its own environment in .venv: python3.11+ and make are all a fresh machine needs.
PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test lint bench study docs format clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 12

demo: $(VENV)/.installed-report ## Teach digits to an analyzer that sees none of them (demo-output/index.html)
	$(BIN)/privkde demo --output demo-output

test: $(VENV)/.installed-report $(VENV)/.installed-dev ## Run the tests, except the long studies
	$(BIN)/pytest -n 2 -q

lint: $(VENV)/.installed-dev ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-report ## Measure the accountants and the protocol
	$(BIN)/python benchmarks/accountant.py
	$(BIN)/python benchmarks/protocol.py

study: $(VENV)/.installed-report $(VENV)/.installed-dev ## Run the long studies (tests marked slow)
	$(BIN)/pytest -n 2 -m slow

docs: $(VENV)/.installed-docs ## Build the documentation into site/
	$(BIN)/mkdocs build --strict

format: $(VENV)/.installed-dev ## Rewrite the code in house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove everything the other targets make, except .venv
	rm -rf site demo-output build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each extra of pyproject.toml.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@
