# Everything a newcomer needs: `make demo`, `make test`, `make up`. Each does its own set-up; only Python >= 3.11 is required.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
# Many processes import the same: what they have compiled is kept.
unexport PYTHONDONTWRITEBYTECODE
# Tests create hundreds of databases: in memory, where there are 6 GB for it, that takes a quarter of the time.
IN_MEMORY := $(shell test -w /dev/shm && df -k --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 6000000 { print "TMPDIR=/dev/shm" }')

.PHONY: help demo test acceptance coverage up static check quick random chaos chaos-channels peers chaos-model chaos-turns chaos-plans chaos-tools runners kit words bombs bench clis pgbouncer plans statements wire lock clean setup local-model local-model-report
.DEFAULT_GOAL := help

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(STAMP) ## create .venv with the locked dependencies

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up: the locked dependencies go into .venv" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps uv -e .
	@$(BIN)/python -m compileall -q $(BIN)/../lib/*/site-packages src >/dev/null 2>&1 || true
	@touch $(STAMP)

demo: $(STAMP) ## real input through real interfaces, a killed worker, balanced books; under a minute
	@$(BIN)/switchboard demo

TESTS := $(IN_MEMORY) $(BIN)/python -m pytest -n 4 --dist worksteal -rs -p tests.once_more -p tests.costs

test: $(STAMP) ## the tests of all parts, with real databases and servers, which they start themselves; ten minutes
	@$(TESTS) tests/unit tests/integration

acceptance: $(STAMP) ## the tests of whole installations: commands, demo, manual, benchmarks, kills; five minutes
	@$(TESTS) tests/acceptance tests/chaos

coverage: $(STAMP) ## all tests, and which lines they run; takes half as long again
	@$(BIN)/coverage erase
	@$(IN_MEMORY) COVERAGE_PROCESS_START=pyproject.toml $(BIN)/python -m pytest -n 3 -p tests.measuring
	@$(BIN)/coverage combine -q && $(BIN)/coverage report

# The spine: taking a message, deciding, lanes, turns, replies.
SPINE := $(addprefix tests/integration/test_,accept.py dispatcher.py http.py lanes.py outbox.py turns.py worker.py)

quick: $(STAMP) ## the tests of units and of the spine, with fewer random examples; two minutes
	@$(IN_MEMORY) HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -n 3 --dist worksteal -p tests.costs -m "not slow and not chaos" tests/unit $(SPINE)

# Files in which a test has random examples.
RANDOM = $(shell grep -rlE '@given|stateful|tests.width' tests/unit tests/integration --include=test_*.py)

random: $(STAMP) ## the tests with random examples, with as many as each asks for: up to 2,000 instead of 100
	@$(IN_MEMORY) HYPOTHESIS_PROFILE=asked $(BIN)/python -m pytest -n 4 --dist worksteal $(RANDOM)

plans: $(STAMP) ## the laws of plans on 21,000 random ones, instead of 100
	@HYPOTHESIS_PROFILE=wide $(BIN)/python -m pytest tests/unit/planning/test_machine_laws.py

up: $(STAMP) ## start it for real: server, worker and database
	@$(BIN)/switchboard up

static: $(STAMP) ## format, lint, types, boundaries
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

check: static test acceptance ## all that must be good before a change goes in

chaos: $(STAMP) ## 3000 messages, 12 kill -9, a database crash, a zombie: nothing lost, doubled or out of order
	@$(BIN)/python -m tests.chaos.run

chaos-channels: $(STAMP) ## `up` with Telegram and mail, kill -9 of everything twice in the middle of 20 turns, 25 answers in time; then with connectors = "inside"
	@$(BIN)/python -m tests.chaos.channels_run
	@$(BIN)/python -m tests.chaos.channels_run --inside

peers: $(STAMP) ## our side of docs/comparison.md, four minutes a run: fails if a row is worse than the recorded; REPORT="--runs 3 --record" records
	@$(BIN)/python -m tests.chaos.peers_run $(REPORT)

chaos-model: $(STAMP) ## 1000 messages, models that fail in every way, a kill -9 every second: each delivered once, or a dead letter
	@$(BIN)/python -m tests.chaos.model_run

chaos-turns: $(STAMP) ## 300 turns with tools, 30 % of all answers go wrong, a kill -9 every 5 s: each answered once, or a dead letter
	@$(BIN)/python -m tests.chaos.turns_run

chaos-plans: $(STAMP) ## 200 plans of 5 to 30 steps, a kill -9 every 2 s: no step done again, no effect repeated, no budget exceeded
	@$(BIN)/python -m tests.chaos.plans_run

chaos-tools: $(STAMP) ## 1000 turns with MCP servers, commands, shells and programs that do what they can to their workers, a kill -9 every 3 s: nothing of them is left; then 50 turns with one shell
	@nice -n 5 $(BIN)/python -m tests.chaos.tools_run
	@nice -n 5 $(BIN)/python -m tests.chaos.tools_run --shells --turns 50 --seconds 25 --every 4

runners: $(STAMP) ## claude-code and codex do turns, by key and by login, killed at every point, stopped, waiting: nothing twice, nothing left
	@$(IN_MEMORY) RUNNERS=all $(BIN)/python -m pytest -rs tests/acceptance/test_real_runners.py

kit: $(STAMP) ## the laws of connectors: every planted defect against every law, kills at every point of every channel, 10,000 guessed codes
	@$(IN_MEMORY) $(BIN)/python -m tests.kit

words: $(STAMP) ## whose words the parts of 3,300 mails are said to be, by client and by language, in percent
	@$(BIN)/python -m tests.words

bombs: $(STAMP) ## programs that try to exhaust the machine, in sandboxes, 20 times beside 4 busy loops: never more processes than allowed
	@nice -n 10 $(BIN)/python -m tests.bombs

bench: $(STAMP) ## the benchmarks, as ratios to a baseline of the same run
	@for what in start ingest route turn fair propagation backtest classify model-turn plan files channels footprint; do $(BIN)/switchboard bench $$what || exit 1; done

clis: ## install the real command lines of models that tests drive, below tests/clis (npm; 1.2 GB)
	@cd tests/clis && npm install --no-save --ignore-scripts --no-audit --no-fund --loglevel=error \
		--fetch-retries=2 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=5000
	@cd tests/clis/node_modules && node @anthropic-ai/claude-code/install.cjs && node opencode-ai/postinstall.mjs

PGBOUNCER := 1.24.1
PGBOUNCER_SHA256 := da72a3aba13072876d055a3e58dd4aba4a5de4ed6148e73033185245598fd3e0

pgbouncer: ## build the PgBouncer that tests put before PostgreSQL, below tests/pgbouncer (needs gcc, pkg-config, libevent-dev)
	@rm -rf tests/pgbouncer && mkdir -p tests/pgbouncer/bin tests/pgbouncer/src
	@curl -sSf --retry 2 --max-time 120 -o tests/pgbouncer/src.tar.gz \
		http://deb.debian.org/debian/pool/main/p/pgbouncer/pgbouncer_$(PGBOUNCER).orig.tar.gz
	@echo "$(PGBOUNCER_SHA256)  tests/pgbouncer/src.tar.gz" | sha256sum --check --quiet
	@tar xzf tests/pgbouncer/src.tar.gz -C tests/pgbouncer/src --strip-components=1
	@cd tests/pgbouncer/src && { ./configure --without-openssl --without-cares --without-systemd && make pgbouncer; } >../build.log 2>&1
	@mv tests/pgbouncer/src/pgbouncer tests/pgbouncer/bin/ && rm -rf tests/pgbouncer/src tests/pgbouncer/src.tar.gz
	@tests/pgbouncer/bin/pgbouncer --version | head -n 1

local-model: $(STAMP) ## build llama.cpp's server and assemble a model with 1.5 billion parameters, below .local-model (1.1 GB; ten minutes; a C++ compiler)
	@nice -n 10 $(BIN)/python -m tests.local_model.build

local-model-report: $(STAMP) ## what the local model gets done, task by task; continues where it was stopped; 45 minutes
	@$(BIN)/python -m tests.local_model.report $(REPORT)

statements: $(STAMP) ## at a release: record its SQL statements, which the next release must still understand
	@$(BIN)/python -m tests.statements

wire: $(STAMP) ## record what the SDKs of model providers send and understand, see tests/fixtures/wire
	@$(BIN)/python -m tests.wire

lock: $(STAMP) ## refresh requirements.lock from pyproject.toml
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --extra dev pyproject.toml -o requirements.lock

clean: ## remove what set-up and tests made
	rm -rf .venv tests/clis/node_modules tests/pgbouncer .local-model .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage* .switchboard
