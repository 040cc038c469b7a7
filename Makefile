# Everything people and CI run. `make` alone lists it.

# pyenv's shims exist for versions that are not enabled: only running one tells.
USABLE := import ensurepip, sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c '$(USABLE)' 2>/dev/null && echo $$python && break; done)

# where it is set, each of the suite's many processes would compile all of our modules again
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPAT := build/compat
CLIENTS := $(COMPAT)/python/.installed $(COMPAT)/node/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test compat soak bench lint fmt check clean

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## build .venv with everything, in development mode (PYTHON=... chooses another)

demo: $(INSTALLED) ## one session from start to end in a temporary home, no key needed
	$(BIN)/python -m client.demo

test: $(INSTALLED) ## run the tests, without the soak tests (ARGS=... goes to pytest)
	$(BIN)/python -m pytest -m "not soak" -n auto --dist loadfile $(ARGS)

compat: $(INSTALLED) ## run the clients and MCP servers of others; needs npm, installs them in build/compat
	@$(MAKE) --no-print-directory -j2 $(CLIENTS)
	$(BIN)/python -m pytest tests/compat -n auto --dist worksteal $(ARGS)

soak: $(INSTALLED) ## run the long fault and load tests
	$(BIN)/python -m pytest -m soak $(ARGS)

bench: $(INSTALLED) ## run every benchmark
	@for benchmark in benchmarks/bench_*.py; do \
		echo "== $$benchmark"; $(BIN)/python $$benchmark || exit 1; done

lint: $(INSTALLED) ## look for mistakes with ruff
	$(BIN)/ruff check

fmt: $(INSTALLED) ## format the code and sort the imports
	$(BIN)/ruff check --select I --fix
	$(BIN)/ruff format

check: $(INSTALLED) ## formatting, ruff and strict types, changing nothing
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright --pythonpath $(BIN)/python

clean: ## remove what was made here
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml
	@$(or $(PYTHON),false) -c '$(USABLE)' || { \
		echo "No Python 3.11 or newer with ensurepip. Name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

# what cannot be installed is not an error: its tests are skipped, and quote the end of the log
$(COMPAT)/python/.installed: tests/compat/requirements.txt
	@mkdir -p $(COMPAT)
	-@exec >$(COMPAT)/python.log 2>&1 && $(BIN)/python -m venv --clear $(@D) && \
		$(@D)/bin/python -m pip install --quiet --no-deps --requirement $< && touch $@

# not `npm ci`: the lock file lacks what acpx offers to other platforms
$(COMPAT)/node/.installed: tests/compat/package.json tests/compat/package-lock.json
	@mkdir -p $(@D) && cp $^ $(@D)
	-@npm install --prefix $(@D) --cache $(@D)/.cache --ignore-scripts --no-audit --no-fund \
		--loglevel error >$(COMPAT)/node.log 2>&1 && touch $@
