# Every target sets up what it needs in .venv from the lock with hashes, says what it does, and is quick again.
# The first of some Pythons that runs, is new enough and can make an environment.
first_python = $(shell for python in $(1); do \
  $$python -c 'import sys, ensurepip, sqlite3, ssl; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && echo $$python && break; done)
# The newest that the lock has wheels for; `make PYTHON=/path/to/python …` takes another one.
PYTHON ?= $(call first_python,python3.14 python3.13 python3.12 python3.11 python3)
# What the tests run beside Tailrace is older than the newest Python, and stays on the oldest that there is.
OTHERS_PYTHON ?= $(call first_python,python3.11 python3.12 python3.13 python3.14 python3)
# Home Assistant runs on this one
HOMEASSISTANT_PYTHON ?= python3.13
VENV := .venv
BIN := $(VENV)/bin
# pytest-xdist workers: the tests are written to run in any order and in parallel
JOBS ?= 3
# The pip that comes with a Python may be years old; this one takes half the time for the same.
new_environment = $(1) -m venv $(2) && $(2)/bin/python -m pip install -qq --disable-pip-version-check --no-compile --require-hashes -r requirements/pip.txt
# Tests start the command some hundred times. Without its bytecode on disk each start compiles the package anew, which
# takes longer than all else it does; so does each worker with each test module.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: chat serve dist test test-all test-slow check format bench speed fuzz simulate soak lock reference synapse homeassistant clients clean help
.DEFAULT_GOAL := help

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | awk -F'|' '{printf "  make %-13s %s\n", $$1, $$2}'

chat: $(VENV)/.chat ## chat with the embedded model; with input on a pipe it answers that and ends
	@$(BIN)/tailrace chat --stream || [ $$? -eq 130 ] # leaving with Ctrl-C is no failure of make's

serve: $(VENV)/.chat ## the API, the web page and every enabled platform
	@$(BIN)/tailrace serve

dist: $(VENV)/.chat ## a wheel in dist/, for pip install and pipx run
	@$(BIN)/python -m pip wheel -qq --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

ifneq ($(ROOM),)
ifeq ($(wildcard tests/$(ROOM)),)
$(error there is no room $(ROOM); there are: $(patsubst tests/%/,%,$(filter-out %__pycache__/,$(sort $(wildcard tests/*/)))))
endif
endif

test: $(VENV)/.dev ## the quick tests of every room, in minutes; make test ROOM=wire runs one room's, in seconds
	@TAILRACE_PROPERTIES=$(or $(PROPERTIES),quick) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow" $(PYTEST_ARGS) $(if $(ROOM),tests/$(ROOM),$(TESTS))

test-all: $(VENV)/.dev ## every test: processes, clusters, browsers, foreign clients and long searches too
	@$(MAKE) --no-print-directory test PROPERTIES=full
	@$(MAKE) --no-print-directory test-slow

test-slow: $(VENV)/.dev ## what test-all runs beside test
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m slow $(PYTEST_ARGS) $(TESTS)

check: $(VENV)/.dev ## format, lint, strict types, the direction of imports, sizes
	@echo "· format" && $(BIN)/ruff format --check --quiet . || { echo "  run: make format"; exit 1; }
	@echo "· lint" && $(BIN)/ruff check --quiet .
	@echo "· types" && $(BIN)/mypy
	@echo "· imports" && $(BIN)/lint-imports --no-cache > .venv/imports.log 2>&1 || { cat .venv/imports.log; exit 1; }
	@echo "· sizes" && $(BIN)/python scripts/room_size.py

format: $(VENV)/.dev ## put the code into its format
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --quiet --fix .

bench: $(VENV)/.dev ## Tailrace beside other gateways, as ratios within one run; BENCH_ARGS="gateway --quick" takes two minutes
	@$(BIN)/python -m bench $(or $(BENCH_ARGS),gateway --docs)

speed: $(BIN)/python ## build and install tailrace-relay, which relays streams in C; needs Linux and a C compiler
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-index --no-build-isolation ./relay

fuzz: $(VENV)/.dev ## a long run of the wire fuzzer: make fuzz FUZZ_MUTATIONS=200000
	@FUZZ_MUTATIONS=$(or $(FUZZ_MUTATIONS),100000) $(BIN)/python -m pytest -q tests/wire/test_fuzz.py --timeout 3600

simulate: $(VENV)/.dev ## worlds in which everything goes wrong: make simulate SEEDS=2000 FROM=0 REPORT=page.md CHECKPOINT=file
	@$(BIN)/python -m proof.simulation --seeds $(or $(SEEDS),2000) --from $(or $(FROM),0) \
	  $(if $(REPORT),--report $(REPORT)) $(if $(CHECKPOINT),--checkpoint $(CHECKPOINT)) $(SIMULATE_ARGS)

soak: $(VENV)/.dev ## mixed load with faults against a server, with a plot: make soak MINUTES=30
	@$(BIN)/python -m proof.soak --minutes $(or $(MINUTES),30) --report docs/soak.svg

reference: $(VENV)/.dev ## write docs/reference from the code
	@PYTHONPATH=. $(BIN)/python scripts/reference.py

lock: $(VENV)/.dev ## pin anew, with hashes and no index named
	@$(BIN)/python scripts/lock.py

synapse: $(VENV)-synapse/.installed ## a Matrix homeserver, for the tests that talk to a real one

homeassistant: $(VENV)-homeassistant/.installed ## a Home Assistant, for the tests of the integration; needs Python 3.13

clients: .clients/.installed ## the agents and SDKs that the tests of /v1 run: Claude Code, Codex, AI SDK, LangChain …

clean: ## remove the environment and caches
	rm -rf $(VENV) $(VENV)-newest $(VENV)-synapse $(VENV)-homeassistant .clients .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo "error: no Python from 3.11 on is on the PATH; install one, or: make PYTHON=/path/to/python …"; exit 1; }
	@command -v $(PYTHON) > /dev/null || { echo "error: there is no $(PYTHON)"; exit 1; }
	@echo "· creating $(VENV)" >&2
	@$(call new_environment,$(PYTHON),$(VENV))

$(VENV)/.chat: requirements/chat.txt pyproject.toml | $(BIN)/python
	@echo "· installing tailrace and the embedded model's engine (once)" >&2
	@$(BIN)/python -m pip install -qq --disable-pip-version-check $(PIP_ARGS) --require-hashes -r requirements/chat.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.chat
	@echo "· installing the test and check tools (once; a minute or more)" >&2
	@$(BIN)/python -m pip install -qq --disable-pip-version-check $(PIP_ARGS) --require-hashes -r requirements/dev.txt
	@touch $@

# Most modules of what follows are never imported: they are compiled when they are.
$(VENV)-synapse/.installed: requirements/synapse.txt
	@echo "· installing Synapse into $(VENV)-synapse (once)" >&2
	@$(call new_environment,$(OTHERS_PYTHON),$(VENV)-synapse)
	@$(VENV)-synapse/bin/python -m pip install -qq --disable-pip-version-check --no-compile --require-hashes -r requirements/synapse.txt
	@touch $@

$(VENV)-homeassistant/.installed: requirements/homeassistant.txt
	@$(HOMEASSISTANT_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 13))' || { echo "error: no Python 3.13; make homeassistant HOMEASSISTANT_PYTHON=/path/to/python3.13"; exit 1; }
	@echo "· installing Home Assistant into $(VENV)-homeassistant (once)" >&2
	@$(call new_environment,$(HOMEASSISTANT_PYTHON),$(VENV)-homeassistant)
	@$(VENV)-homeassistant/bin/python -m pip install -qq --disable-pip-version-check --no-compile --require-hashes -r requirements/homeassistant.txt
	@touch $@

.clients/.installed: requirements/clients.txt tests/clients/package.json tests/clients/package-lock.json
	@echo "· installing the clients that tests run into .clients (once)" >&2
	@command -v npm >/dev/null || { echo "error: npm is not on the PATH; Node.js 20 or newer has it"; exit 1; }
	@mkdir -p .clients && cp tests/clients/package.json tests/clients/package-lock.json .clients/
	@cd .clients && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@cd .clients && node node_modules/@anthropic-ai/claude-code/install.cjs
	@$(call new_environment,$(OTHERS_PYTHON),.clients/venv)
	@.clients/venv/bin/python -m pip install -qq --disable-pip-version-check --no-compile --require-hashes -r requirements/clients.txt
	@touch $@
