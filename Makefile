# One door to everything. A machine needs only Python (>= 3.11) and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest

# Test files that name a marker: to collect all others takes ten CPU seconds in each process.
# tests/conftest.py refuses a test that is marked from elsewhere.
naming = $(shell grep -rlE --include='test_*.py' 'mark\.$(1)\b' tests)

# Once, beside `check`, and not by each of four test processes: tests and what they import are
# compiled, and Hypothesis's table of characters is made.
READY := $(VENV)/.dev $(VENV)/.compiled-tests $(VENV)/.ui

# Tests start hundreds of Python processes: each would compile all of ours anew.
unexport PYTHONDONTWRITEBYTECODE

# Half of the time each of them waits, so more run at once than there are cores. A file goes to one
# process, whose tests share servers; those that take longest go first, or the end waits for them.
SERVERS := $(PYTEST) -n 4 --dist loadfile --no-loadscope-reorder -q
LONGEST_INTEGRATION := $(addprefix tests/,pipeline/cluster/test_killed_executors.py \
	broker_plugin/test_plugin_build.py pipeline/jobs/test_jobs_on_minio.py \
	durability/test_node_power_cuts.py strandline/test_bad_stores.py pipeline/jobs/test_rebuild.py \
	strandline/test_disaster_recovery.py deploy/test_recovery.py durability/test_killed_nodes.py \
	strandline/cli/test_repair_command.py)
LONGEST_E2E := $(addprefix tests/e2e/test_,recipes.py trouble_is_told.py three_nodes.py three_brokers.py \
	sidecar_beside_kafka.py) tests/kafka_suites/test_subset.py \
	$(addprefix tests/e2e/test_,leaders_and_followers.py pipeline.py broker_that_tiers.py \
	broker_that_tiers_in_trouble.py read_replicas.py read_replica.py page.py image.py broker_on_another_disk.py)

.PHONY: demo test check unit spark tools servers integration e2e soak kafka-suites mutants golden lock executors plugin clean

demo: $(VENV)/.demo $(VENV)/.ui        ## three nodes copy real segments, their leader is killed (KEEP=1 leaves them running)
	$(BIN)/strandline demo $(if $(KEEP),--keep)

test:                      ## everything: lint, types, architecture, unit, Spark, integration, end to end
	$(MAKE) --no-print-directory -j 2 check tools $(READY)   # one core each
	$(MAKE) --no-print-directory unit
	$(MAKE) --no-print-directory --old-file=tools spark   # they are fetched already
	$(MAKE) --no-print-directory --old-file=tools servers

check: $(VENV)/.dev-packages   ## format, lint, types, who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Each process begins with a quarter of the tests in their order, so most files have their fixtures
# in one process only. One that is done takes from the rest of another.
unit: $(READY)              ## four processes for two cores: half of the time each waits
	$(PYTEST) -m "not spark and not integration and not e2e and not soak" -n 4 --dist worksteal -q

spark: tools $(READY)        ## a file goes to one process: each has one Spark session
	$(PYTEST) -m "spark and not integration and not e2e and not soak" -n 2 --dist loadfile -q $(call naming,spark)

tools: $(VENV)/.dev $(VENV)/.ui   ## servers and clients that tests run against, once a machine
	$(BIN)/python -m tests.real.fetch

servers: tools $(READY)      ## integration and end to end
	$(SERVERS) -m "(integration or e2e) and not soak" \
		$(LONGEST_E2E) $(LONGEST_INTEGRATION) $(call naming,(integration|e2e))

integration: tools $(READY)
	$(SERVERS) -m "integration and not soak" $(LONGEST_INTEGRATION) $(call naming,integration)

e2e: tools $(READY)
	$(SERVERS) -m "e2e and not soak" $(LONGEST_E2E) $(call naming,e2e)

soak: tools $(READY)        ## long runs
	$(PYTEST) -m soak -q $(call naming,soak)

kafka-suites: $(VENV)/.dev   ## Kafka's own tests of tiered storage, with both managers ours (KAFKA=4.0.2 MANAGERS=kafka STORE=folder CLASSES=...)
	$(BIN)/python -m tests.kafka_suites.run $(if $(KAFKA),--kafka $(KAFKA)) $(if $(MANAGERS),--managers $(MANAGERS)) $(if $(STORE),--store $(STORE)) $(CLASSES)

$(VENV)/.mutants: requirements/mutants.txt $(VENV)/.dev
	$(PIP) install --require-hashes -r requirements/mutants.txt
	touch $@

mutants: $(VENV)/.mutants $(READY)   ## are mistakes noticed? goes on where it was (SAMPLE=200 SEED=1; SAMPLE=0: all)
	$(BIN)/python -m tests.mutants.run $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))

golden: $(VENV)/.dev       ## rewrite golden files; read the diff before you commit it
	STRANDLINE_GOLDEN=rewrite $(PYTEST) -m "not spark and not integration and not e2e and not soak" -q -k golden

lock:                      ## resolve the lock files anew (needs uv)
	uv pip compile --universal --python-version 3.11 --no-emit-index-url --no-header --generate-hashes -q --extra dev pyproject.toml -o requirements/dev.txt
	uv pip compile --universal --python-version 3.11 --no-emit-index-url --no-header --generate-hashes -q --extra demo -c requirements/dev.txt pyproject.toml requirements/build.in -o requirements/demo.txt
	uv pip compile --universal --python-version 3.11 --no-emit-index-url --no-header --generate-hashes -q -c requirements/dev.txt pyproject.toml -o requirements/runtime.txt
	uv pip compile --universal --python-version 3.11 --no-emit-index-url --no-header --generate-hashes -q -c requirements/dev.txt requirements/wheel.in -o requirements/wheel.txt
	uv pip compile --universal --python-version 3.11 --no-emit-index-url --no-header --generate-hashes -q -c requirements/dev.txt requirements/mutants.in -o requirements/mutants.txt
	uv pip compile --universal --python-version 3.11 --no-emit-index-url --no-header --generate-hashes -q --extra pipeline -c requirements/dev.txt pyproject.toml -o requirements/pipeline.txt

executors: $(VENV)/.dev    ## what Spark executors need as one small wheel, and as .zip for --py-files
	rm -f dist/strandline_executors*
	cd executors && ../$(BIN)/python -m hatchling build -t wheel -d ../dist
	cp dist/strandline_executors-*.whl dist/strandline_executors.zip

plugin:                    ## the broker's plug-in: build and test it (needs Java 17 and Maven)
	@if command -v mvn > /dev/null; then \
		cd broker_plugin && mvn -q -B verify && ls -l target/strandline-broker-plugin.jar; \
	elif [ "$$STRANDLINE_REQUIRE_TOOLS" = 1 ]; then \
		echo "the plug-in needs mvn, which this machine does not have" >&2; exit 1; \
	else \
		echo "skipped: the plug-in needs mvn, which this machine does not have"; \
	fi

clean:
	rm -rf api/ui/dist api/ui/node_modules broker_plugin/target tests/kafka_suites/target $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Strandline needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: requirements/demo.txt pyproject.toml | $(BIN)/python
	@echo "installing the packages of requirements/demo.txt (once, about half a minute)"
	$(PIP) install --no-deps -r requirements/demo.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/.dev: $(VENV)/.dev-packages hatch_build.py $(wildcard pipeline/*/*.pyx)
	COMPILED_MODULES_CACHE="$${STRANDLINE_TOOLS_DIR:-$$HOME/.cache/strandline-tools}/compiled-modules" $(BIN)/python hatch_build.py
	touch $@

$(VENV)/.dev-packages: requirements/dev.txt pyproject.toml | $(BIN)/python
	@echo "installing the packages of requirements/dev.txt (once, about a minute)"
	$(PIP) install --no-compile --no-deps -r requirements/dev.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $@

# The page of /ui, where Node.js is there: nothing is done while its sources are those it was built from.
$(VENV)/.ui: $(shell find api/ui -path api/ui/node_modules -prune -o -path api/ui/dist -prune -o -type f -print) | $(BIN)/python
	$(BIN)/python api/ui/build.py
	touch $@

$(VENV)/.compiled-tests: $(VENV)/.dev   # pytest writes its asserts into them
	-$(PYTEST) --collect-only -qq > /dev/null
	$(BIN)/python -c "from hypothesis.internal import charmap as c; c.intervals_from_codec('utf-8')"
	touch $@
