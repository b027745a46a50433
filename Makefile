# Every target makes its own environment in .venv: python3.11+ and make are all a fresh machine needs.
PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
export NO_MKDOCS_2_WARNING = 1
.PHONY: help demo system test test-extras lint bench bench-peers bench-beam reproduce study docs preview publish-docs format clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 16

demo: $(VENV)/.installed-report ## Teach digits to an analyzer that sees none of them (demo-output/index.html)
	$(BIN)/python -m benchmarks.demo --output demo-output

system: ## Install the Debian packages that the tests of extras need: a database server and a browser
	@missing=; \
	ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || missing="postgresql"; \
	command -v chromium >/dev/null || missing="$$missing chromium"; \
	root=; [ "$$(id -u)" = 0 ] || root="sudo -n"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null || ! $$root true 2>/dev/null; then \
		echo "not installed, and not installable from here: $$missing; tests that need them will fail"; exit 0; fi; \
	conf=/etc/postgresql-common/createcluster.conf; \
	case "$$missing" in *postgresql*) [ -e $$conf ] || { $$root mkdir -p $${conf%/*} \
		&& echo "create_main_cluster = false" | $$root tee $$conf >/dev/null; };; esac; \
	$$root apt-get update -qq && $$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
		--no-install-recommends -o Dpkg::Options::=--force-confold $$missing >/dev/null \
	|| echo "could not install $$missing; tests that need them will fail"

test: $(VENV)/.installed-test ## Run the tests of the library, except those of heavy extras and the long studies
	$(BIN)/pytest -n 2 --dist worksteal -q

test-extras: system docs $(VENV)/.installed-test-extras ## Run the tests of benchmarks/, text, Beam, PostgreSQL, pages in a browser and the installed wheel
	$(BIN)/pytest -n 2 --dist worksteal -q -m "(extras or programs) and not slow" tests

lint: $(VENV)/.installed-all ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-test ## Measure starts, a year of releases, the accountants, the protocol, the service and how costs grow
	$(BIN)/python -m benchmarks.imports
	$(BIN)/python -m benchmarks.weeks
	$(BIN)/python -m benchmarks.accountant
	$(BIN)/python -m benchmarks.certificates --speed
	$(BIN)/python -m benchmarks.protocol
	$(BIN)/python -m benchmarks.service
	$(BIN)/python -m benchmarks.load
	$(BIN)/python -m benchmarks.growth --output docs/results/growth.json

bench-peers: $(PEERS)/.installed ## Measure other accountants, bounds and estimators beside privkde (docs/results/peers.json)
	$(PEERS)/bin/python -m benchmarks.peers --output docs/results/peers.json

reproduce: $(VENV)/.installed-report ## Run the paper's experiments on DATA="A.npz …" [VOCABULARY=V.npz] (docs/results/reproduction.json)
	@test -n "$(DATA)" || { echo 'say which data: make reproduce DATA="A.npz B.npz" VOCABULARY=V.npz'; exit 2; }
	$(BIN)/python -m benchmarks.paper --data $(DATA) $(if $(VOCABULARY),--vocabulary $(VOCABULARY)) -o reproduction
	cp reproduction/results.json docs/results/reproduction.json
	$(BIN)/python -m benchmarks.classifier --data $(DATA) --output docs/results/classifier.json
	$(BIN)/python -m benchmarks.classifier --data $(DATA) --weak --epsilons 0.5 1 1.7 2 --seeds 3 --output docs/results/classifier.json

bench-beam: $(VENV)/.installed-all ## Measure Apache Beam on one and two workers (docs/results/beam.json)
	$(BIN)/python -m benchmarks.beam --output docs/results/beam.json

study: $(VENV)/.installed-all ## Run the long studies (tests marked slow), a million hostile documents, proofs of 300 plans
	$(BIN)/pytest -n 2 --dist worksteal -m slow
	$(BIN)/python -m benchmarks.fuzz --inputs 1000000
	$(BIN)/python -m benchmarks.certificates --output docs/results/certificates.json

docs: $(VENV)/.installed-docs ## Build the guide into site/: its code runs, its links are followed
	$(BIN)/mkdocs build --strict

preview: $(VENV)/.installed-docs ## Build the guide into site-preview/ and run only PAGES="tutorials/plan.md …"
	GUIDE_PAGES="$(or $(PAGES),none)" $(BIN)/mkdocs build --quiet --no-strict --site-dir site-preview

publish-docs: $(VENV)/.installed-docs ## Add this version of the guide to the local branch gh-pages; all versions in site/
	GUIDE_VERSIONS=mike PATH="$(CURDIR)/$(BIN):$$PATH" mike deploy --update-aliases --alias-type redirect \
		"$$($(BIN)/python -c 'import privkde; print(privkde.__version__)')" latest
	$(BIN)/mike set-default latest
	rm -rf site && mkdir site && git archive gh-pages | tar -x -C site
	@echo "site/ holds every version. To publish: git push origin gh-pages"

format: $(VENV)/.installed-dev ## Rewrite the code in house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove everything the other targets make, except .venv and .venv-peers
	rm -rf .cache site site-preview demo-output reproduction build dist *.egg-info .mypy_cache .pytest_cache .hypothesis
	find . \( -name __pycache__ -o -name .ruff_cache \) -not -path './$(VENV)*/*' -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each extra of pyproject.toml.
$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@

# Peers and what they depend on stay out of .venv.
$(PEERS)/.installed: pyproject.toml benchmarks/peers/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --editable . \
		--requirement benchmarks/peers/requirements.txt
	touch $@
