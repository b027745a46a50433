# Every target makes its own environment in .venv: python3.11+ and make are all a fresh machine needs.
PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
PLAN := $(BIN)/privkde plan --users 30000 --dim 768 --kernel gaussian --repetitions 768 --bitsum rr \
	--epsilon 2 --delta 1e-6 --accountant pld

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test lint bench study docs format clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 12

demo: $(VENV)/.installed-report ## Plan a budget, explain it and compare the accountants (demo-output/)
	mkdir -p demo-output
	$(PLAN) --explain --output demo-output/plan.json --plot demo-output/profile.svg
	$(PLAN) --compare

test: $(VENV)/.installed-report $(VENV)/.installed-dev ## Run the tests, except the long studies
	$(BIN)/pytest -n 2 -q

lint: $(VENV)/.installed-dev ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-report ## Measure the accountants
	$(BIN)/python benchmarks/accountant.py

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
