# Everything there is to do with this tree; `make` alone lists it. All of it works from a bare clone.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
LOCKS := requirements
# The tests start hundreds of Python processes of the same code: each would compile all of it again.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help setup classes demo cluster test test-share test-one test-browser check faults bench bench-quick docs shots site lock clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "make %-12s %s\n", $$1, $$2}'

# Every package comes by version and hash. The venv is made anew whenever what runs would differ;
# the demo's packages and those of developers are added to it.
# Byte code is made when a module is first imported: of most modules that is never.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes
$(VENV)/.run: pyproject.toml $(LOCKS)/build.lock $(LOCKS)/run.lock
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r $(LOCKS)/build.lock
	@# Spark comes as source: to compress its jars for a wheel takes 12 s and makes them no smaller.
	$(PIP) --no-build-isolation --config-settings=--build-option=--compression=stored -r $(LOCKS)/run.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
	@touch $@
$(VENV)/.%: $(LOCKS)/%.lock $(VENV)/.run
	$(PIP) -r $<
	$(BIN)/python -m pip check
	@touch $@

# uv resolves and hashes; the versions of pyproject.toml decide, all else is kept unless it must move.
UV := $(VENV)-lock/bin/uv pip compile --quiet --generate-hashes --no-annotate --python-version 3.11 --custom-compile-command 'make lock'
EXTRA = sed -n 's/^\([A-Za-z0-9._-]*\)==.*/--no-emit-package \1/p'
shots: $(VENV)/.demo $(VENV)/.dev  ## takes the pictures of the page that the docs show; needs chromium
	$(BIN)/python docs/shots.py

docs: $(VENV)/.run  ## writes the reference pages that the code owns: commands and declarations
	$(BIN)/python docs/generate.py

lock:  ## writes requirements/*.lock anew from pyproject.toml, with the hash of each file
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	echo 'setuptools==80.9.0' | $(UV) -o $(LOCKS)/build.lock -
	$(UV) -o $(LOCKS)/run.lock pyproject.toml
	$(UV) --extra demo -c $(LOCKS)/run.lock $$($(EXTRA) $(LOCKS)/run.lock) -o $(LOCKS)/demo.lock pyproject.toml
	$(UV) --extra dev -c $(LOCKS)/run.lock $$($(EXTRA) $(LOCKS)/run.lock) -o $(LOCKS)/dev.lock pyproject.toml
	$(UV) --extra site -c $(LOCKS)/run.lock -c $(LOCKS)/dev.lock $$($(EXTRA) $(LOCKS)/run.lock $(LOCKS)/dev.lock) -o $(LOCKS)/site.lock pyproject.toml
	rm -rf $(VENV)-lock

site: $(VENV)/.run $(VENV)/.dev $(VENV)/.site  ## builds docs/ into site/, which a browser opens without a server: searchable, light and dark
	$(BIN)/python docs/site.py

classes: setup  ## lists anew which classes Spark and Kafka load, after a change of jars: for a quick start of their JVMs
	$(BIN)/python -m kappa.engine.spark.class_list_run

setup: $(VENV)/.run  ## own venv with pinned packages, Java found, jars fetched, class archives of Spark and Kafka made
	$(BIN)/python -m kappa.setup

demo: setup $(VENV)/.demo  ## the whole story on real data, in two to four minutes on two cores
	$(BIN)/python -m demo

ROOT ?= bucket
cluster: setup $(VENV)/.demo  ## the demo's story on a cluster that it starts here: three brokers, Spark's master with two workers, and an S3 server for the root, in some ten minutes on two cores; ROOT=folder: without the last
	$(BIN)/python -m demo --cluster --root $(ROOT)

# Not $(MAKE) in the recipe: `make -n` would run that line.
SELF := $(MAKE) --no-print-directory
# A worker has whole files, in the order in which they were collected (tests/conftest.py). After a
# worker's crash, this way to share them would wait for ever for the worker that takes its place.
SPREAD := --dist loadfile --no-loadscope-reorder --max-worker-restart=0
# Such a test waits half of its time, for a broker, a job or a commit: three run at a time on two cores.
WITH_JVM := $(shell grep -rl --include='test_*.py' mark.jvm tests)
NO_BROWSER := $(shell command -v chromium >/dev/null || echo " and not browser")
test: $(VENV)/.run  ## the tests, with a real broker, Spark, Delta and browser; what takes long has targets of its own
	@command -v chromium >/dev/null || echo "the page's tests in a browser: not run: no chromium (apt-get install chromium)"
	@# Packages for tests come while jars are fetched and class archives made, and tests that need no JVM begin then.
	@$(BIN)/python -m kappa.setup & ready=$$!; $(BIN)/python -m demo.cluster.object_store & \
	$(SELF) $(VENV)/.demo $(VENV)/.dev $(VENV)/.site || { kill $$ready; exit 1; }; \
	$(BIN)/python -m pytest -q -n 4 $(SPREAD) -m "not (jvm or long or sweep)$(NO_BROWSER)"; quick=$$?; \
	wait $$ready || exit 1; \
	$(BIN)/python -m pytest -q -n 3 $(SPREAD) $(WITH_JVM) -m "jvm and not (long or sweep)$(NO_BROWSER)"; jvm=$$?; \
	test $$quick = 0 || echo "tests without a JVM failed ($$quick): see above"; \
	test $$jvm = 0 || echo "tests with a JVM failed ($$jvm): see above"; \
	test $$jvm = 0 -a $$quick = 0

# A long test of a whole platform has more processes than two cores have room for: one runs after the other.
# pytest ends with 5 where a share has no such test.
WHOLE := tests/e2e/% tests/browser/%
N ?= $(shell echo $$((0x$$(git rev-parse --short=8 HEAD) % 8)))
test-share: setup $(VENV)/.demo $(VENV)/.dev  ## one of eight shares of the long tests: N=0 to 7, or that of the newest commit
	@echo "share $(N) of 8 of the long tests"
	@$(BIN)/python -m pytest -q -n 4 $(SPREAD) --share=$(N) -m "long and not (jvm or sweep)$(NO_BROWSER)"; quick=$$?; \
	test $$quick != 5 || quick=0; \
	$(BIN)/python -m pytest -q -n 2 $(SPREAD) --share=$(N) $(filter-out $(WHOLE),$(WITH_JVM)) -m "jvm and long and not sweep"; jvm=$$?; \
	$(BIN)/python -m pytest --share=$(N) $(filter $(WHOLE),$(WITH_JVM)) -m "jvm and long and not sweep$(NO_BROWSER)"; whole=$$?; \
	test $$jvm != 5 || jvm=0; test $$whole != 5 || whole=0; \
	test $$jvm = 0 || echo "tests with a JVM failed ($$jvm): see above"; \
	test $$whole = 0 || echo "tests of whole platforms failed ($$whole): see above"; \
	test $$quick = 0 || echo "tests without a JVM failed ($$quick): see above"; \
	test $$whole = 0 -a $$jvm = 0 -a $$quick = 0

test-one: setup $(VENV)/.demo $(VENV)/.dev  ## the tests that T names: make test-one T=tests/replay/rollout, or T="tests/state/test_lock.py -k held"
	$(BIN)/python -m pytest $(T)

test-browser: setup $(VENV)/.demo $(VENV)/.dev  ## only the page in a real browser: a deploy is watched, promoted and undone by clicking; needs chromium
	@command -v chromium >/dev/null || { echo "not run: no chromium: apt-get install chromium"; exit 1; }
	$(BIN)/python -m pytest -m browser

check: $(VENV)/.run $(VENV)/.demo $(VENV)/.dev  ## lint, format, types, and the quick tests, on all cores: under a minute on two
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n auto --hypothesis-profile=check --ignore=tests/e2e --ignore=tests/browser -m "not (jvm or slow or fault or long or sweep or browser)"

faults: setup $(VENV)/.demo $(VENV)/.dev  ## all shares of the long tests, those that kill processes, the sweeps, and the laws with ten times the examples
	$(BIN)/python -m pytest -s --hypothesis-profile=faults -m "fault or long or sweep or law"

CELL ?= standard
bench: setup $(VENV)/.demo $(VENV)/.dev  ## who is how fast at the same task: CELL=standard, keys, warm, large, huge, projection, windows, latest, ordered, archive, queries, serve, tables, formats, views, nexmark, cluster, bucket, change, changes, collect, startup, short, loop, freshness, rate or day; ROUNDS= EVENTS= RIVALS=a,b AGAIN=1 INTO=docs/performance.md
	PYTHONPATH=$(CURDIR) $(BIN)/python bench --cell $(CELL) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(EVENTS),--events $(EVENTS)) $(if $(RIVALS),--rivals $(RIVALS)) $(if $(AGAIN),--again) $(if $(INTO),--into $(INTO)) $(if $(BENCH_HOME),--home $(BENCH_HOME))

bench-quick: setup $(VENV)/.demo $(VENV)/.dev  ## ratios only, in three minutes, as a line to hold beside that of another day
	PYTHONPATH=$(CURDIR) $(BIN)/python bench --cell quick --again --line $(if $(BENCH_HOME),--home $(BENCH_HOME))

clean:  ## removes the venv and what runs have left in this tree; the jar cache of the user stays
	rm -rf $(VENV) site .kappa .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
