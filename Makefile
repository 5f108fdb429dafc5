# Every target does all of its own set-up, and only what is missing or out of date.
# It needs make, bash and a Python >= 3.11; PYTHON=... names another interpreter.

SHELL := bash
.DEFAULT_GOAL := help
export PYTHON

RUN := .venv-run
GUIDED := .venv-docs
DEV := .venv
GUIDE := src/keystead/guide
SETUP := scripts/venv.sh pyproject.toml
STORE ?=
REPOSITORY ?=
PORT ?=
ARGS ?=
# Tests wait for servers, pages and time limits for more than half of their time: five workers keep two cores busy.
WORKERS ?= 5

define pytest
	@scripts/servers.sh redis-server chromium-headless-shell:chromium
	@scripts/node.sh $(DEV)/bin/python
	@$(DEV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m '$(1)' $(ARGS)
endef

.PHONY: help serve test test-matrix check format bench docs dist lock clean

help: ## Show this list
	@echo "Keystead. Targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

serve: $(RUN)/.ready ## Run Keystead on http://127.0.0.1:8700 (STORE=url PORT=number)
	@$(if $(STORE),export KEYSTEAD_STORE='$(STORE)';) $(if $(PORT),export KEYSTEAD_PORT='$(PORT)';) exec $(RUN)/bin/keystead serve

test: $(DEV)/.ready ## Run the suite on real servers and a real browser (ARGS=pytest options WORKERS=number)
	$(call pytest,not matrix)

test-matrix: $(DEV)/.ready ## Run what "make test" leaves out: every further store, more random runs, benchmarks
	@scripts/servers.sh mariadbd memcached nginx caddy systemd-analyze Xvfb
	$(call pytest,matrix)

check: $(DEV)/.ready ## Formatting, lint and strict types
	@$(DEV)/bin/ruff format --check .
	@$(DEV)/bin/ruff check .
	@$(DEV)/bin/mypy

format: $(DEV)/.ready ## Format the code and apply the safe lint fixes
	@$(DEV)/bin/ruff check --fix-only --quiet .
	@$(DEV)/bin/ruff format .

bench: $(DEV)/.ready ## Side-by-side runs against what you would use instead (ARGS=bench options)
	@scripts/servers.sh redis-server mariadbd
	@$(DEV)/bin/python -m bench $(ARGS)

docs: $(GUIDED)/.ready ## Build the guide, which `make serve` then shows at /guide
	@$(GUIDED)/bin/sphinx-build --quiet --fail-on-warning --builder html --doctree-dir .sphinx docs $(GUIDE)
	@echo "The guide is in $(GUIDE): open $(GUIDE)/index.html, or run 'make serve' and open /guide."

dist: docs $(DEV)/.ready ## Build the wheel and the source distribution in dist/ (REPOSITORY=url adds the project's URLs)
	@rm -rf dist
	@KEYSTEAD_REPOSITORY='$(REPOSITORY)' $(DEV)/bin/python -m hatchling build -d dist

lock: ## Pin the newest allowed versions again (ARGS='--upgrade' or '--upgrade-package NAME')
	@test -x .venv-lock/bin/uv || { $${PYTHON:-python3} -m venv .venv-lock && .venv-lock/bin/python -m pip install --quiet uv; }
	@PATH="$$PWD/.venv-lock/bin:$$PATH" scripts/lock.sh $(ARGS)

clean: ## Remove the virtual environments and caches (never a database)
	rm -rf .venv .venv-run .venv-docs .venv-lock .venv-node .sphinx $(GUIDE) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN)/.ready: requirements/run.txt $(SETUP)
	@scripts/venv.sh $(RUN) requirements/run.txt
	@touch $@

$(GUIDED)/.ready: requirements/docs.txt $(SETUP)
	@scripts/venv.sh $(GUIDED) requirements/docs.txt
	@touch $@

$(DEV)/.ready: requirements/dev.txt $(SETUP)
	@scripts/venv.sh $(DEV) requirements/dev.txt
	@touch $@
