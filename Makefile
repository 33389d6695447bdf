# `make help` lists the targets; each names what is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# The version of `make test-spark`.
SPARK ?= 4.0
# Where `make wheel` puts the wheel.
DIST ?= dist
# How many processes run tests. On two cores more of them get in each other's way.
WORKERS ?= 2

# Without byte code every process of a test would compile txnscan anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-repeats test-unit test-spark coverage wording record disks lint types check pictures site prove simulate mutants bench wheel lock pins clean

help:
	@echo "make setup        a locked environment in .venv, and the jars of Kafka and Delta"
	@echo "make demo         real brokers, real hanging transactions, a sweep (ARGS=... passes options on)"
	@echo "make test         the tests, in about six minutes (ARGS=... passes options on)"
	@echo "make test-all     the slow tests alone: faults, old brokers, Spark clusters, notebooks; 35 minutes"
	@echo "make test-repeats the slow tests that repeat others: more versions, stores, worlds; ten minutes"
	@echo "make test-unit    most tests that need neither brokers nor Spark, in a minute"
	@echo "make test-spark   the tests of Spark and tables with another Spark (SPARK=4.1), in an environment of its own, .venv-spark-4.1"
	@echo "make coverage     the tests of make test, and which lines of txnscan they run"
	@echo "make wording      renew the sentences that tests compare messages with (tests/__snapshots__)"
	@echo "make record       record the answers of real brokers anew (tests/golden)"
	@echo "make disks        record the disks of real brokers anew (tests/golden/disks)"
	@echo "make check        test, lint and types"
	@echo "make pictures     renew the pictures in docs/, and what notebooks show on the site, from real brokers"
	@echo "make site         the docs as a site in build/site, with every link checked; needs no network"
	@echo "make prove        about two hours: half a million simulated histories, real brokers beside the simulator, sweeps under fault"
	@echo "make simulate     a history of a simulated cluster, step by step (ARGS=... passes options on, such as --list)"
	@echo "make mutants      change the rules and the coverage logic in every small way: a test must notice"
	@echo "make bench        more than half an hour, on an idle machine: how fast, and what else there is (ARGS=... passes options on)"
	@echo "make wheel        build the wheel into dist/, with pinned build tools"
	@echo "make lock         renew the lock files, conf/requirements*.txt"
	@echo "make pins         renew the SHA-256 of every jar that is downloaded (txnscan/engine/spark/jars.sha256)"

setup: $(VENV)/.ready

# The stamp is made last: an interrupted set-up starts over.
$(VENV)/.ready: conf/requirements-dev.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: there is no $(PYTHON); install Python 3.11 or newer, or set PYTHON" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: $(PYTHON) is older than 3.11; install Python 3.11 or newer, or set PYTHON" >&2; exit 1; }
	@echo "Setting up $(VENV) (about two minutes)"
	@$(PYTHON) -m venv --clear $(VENV) || { echo "make: $(PYTHON) -m venv failed; install Python's venv module" >&2; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement conf/requirements-dev.txt >$(VENV)/pip.log 2>&1 || { tail -n 1 $(VENV)/pip.log >&2; echo "make: packages could not be installed; check that the package index can be reached (all output: $(VENV)/pip.log)" >&2; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . >>$(VENV)/pip.log 2>&1 || { tail -n 1 $(VENV)/pip.log >&2; exit 1; }
	@$(BIN)/python -m txnscan.demo.setup
	@touch $@

demo: setup
	@$(BIN)/txnscan demo $(ARGS)

PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 15

test: setup
	@$(PYTEST) --slow no $(ARGS)

test-all: setup
	@$(PYTEST) --slow only $(ARGS)

test-repeats: setup
	@$(PYTEST) --slow repeats $(ARGS)

test-unit: setup
	@$(BIN)/python -m pytest -n $(WORKERS) -q --slow no -m "not lengthy" tests/unit $(ARGS)

# The locked environment with another PySpark. Delta's jars for it are found by its version.
test-spark: $(VENV)-spark-$(SPARK)/.ready
	@$(VENV)-spark-$(SPARK)/bin/python -m pytest -q tests/spark tests/tables $(ARGS)

$(VENV)-spark-$(SPARK)/.ready: conf/requirements-dev.txt pyproject.toml
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement conf/requirements-dev.txt
	@$(@D)/bin/pip install --quiet --disable-pip-version-check --no-deps 'pyspark==$(SPARK).*'
	@$(@D)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(@D)/bin/txnscan prepare
	@touch $@

coverage: setup
	@$(PYTEST) --slow no --cov --cov-report=term:skip-covered $(ARGS)

# Writes anew what tests compare sentences with; the diff shows what changed. The sentences of slow tests stay.
wording: setup
	@$(BIN)/python -m tests.wording
	@$(BIN)/python -m pytest -q -m wording --slow no --snapshot-update $(ARGS)

# Answers of real brokers of three versions, which tests replay; some minutes.
record: setup
	@$(BIN)/python -m tests.golden.record $(ARGS)

# Disks of real brokers, which tests make incomplete; a minute.
disks: setup
	@$(BIN)/python -m tests.golden.disks $(ARGS)

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo --no-cache >$(VENV)/lint-imports.log 2>&1 || { cat $(VENV)/lint-imports.log; exit 1; }

types: setup
	@$(BIN)/mypy

check: test lint types

# All of them run, whatever one of them finds; the figures stand last.
pictures: setup
	@$(BIN)/python -m tests.screens
	@$(BIN)/python -m tests.notebooks
	@$(BIN)/python -m tests.picture

# Search needs a server, as browsers start no worker from a file.
site: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --config-file conf/mkdocs.yml
	@echo "build/site/index.html; with search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site"

prove: setup
	@$(BIN)/python -m tests.prove $(ARGS)

simulate: setup
	@$(BIN)/python -m tests.sim $(ARGS)

mutants: setup
	@$(BIN)/python -m tests.prove.mutants $(ARGS)

bench: setup
	@$(BIN)/python -m tests.bench $(ARGS)

# In an environment of its own, so that it needs neither Java nor the packages of `make setup`.
wheel:
	@build=$$(mktemp -d) && trap 'rm -rf "$$build"' EXIT \
	&& $(PYTHON) -m venv "$$build" \
	&& "$$build"/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement conf/requirements-build.txt \
	&& "$$build"/bin/pip wheel --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --wheel-dir $(DIST) . \
	&& ls $(DIST)/*.whl

# Users, developers, the container image and the build of the wheel each have a lock, all with the same versions. A lock
# that is installed by its hashes names extras: otherwise pip looks for the newest version of a package with an extra.
# Constraints may not name extras.
COMPILE := CUSTOM_COMPILE_COMMAND="make lock" pip-compile --quiet --generate-hashes --allow-unsafe --no-emit-index-url --no-emit-trusted-host --no-emit-find-links
EXTRAS := --extra spark --extra delta --extra watch --extra report --extra offline --extra pkcs12 --extra msk --extra mcp --extra apprise
lock:
	@$(COMPILE) --strip-extras $(EXTRAS) --output-file conf/requirements.txt pyproject.toml
	@$(COMPILE) --no-strip-extras $(EXTRAS) --extra dev --constraint conf/requirements.txt --output-file conf/requirements-dev.txt pyproject.toml
	@$(COMPILE) --no-strip-extras --extra delta --extra watch --constraint conf/requirements.txt --output-file conf/requirements-image.txt pyproject.toml
	@sed 's/\[.*\]==/==/' conf/requirements-dev.txt >$(VENV)/constraints.txt
	@$(COMPILE) --no-strip-extras --only-build-deps --build-deps-for wheel --constraint $(VENV)/constraints.txt --output-file conf/requirements-build.txt pyproject.toml

# Downloads every jar anew. The diff shows which hashes changed: a published jar never does.
pins: setup
	@$(BIN)/python -m tests.pins

clean:
	rm -rf $(VENV) $(VENV)-spark-* .prove .coverage .pytest_cache .mypy_cache .ruff_cache spark-warehouse
