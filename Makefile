# Everything there is to do with this tree; `make` alone lists it. All of it works from a bare clone.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-browser check faults bench bench-quick clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "make %-12s %s\n", $$1, $$2}'

# Made again from nothing whenever what is installed would differ.
$(STAMP): pyproject.toml requirements.lock
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
	@touch $@

setup: $(STAMP)  ## own venv with pinned packages, Java found, jars fetched, Spark's class archive recorded
	$(BIN)/python -m kappa.setup

demo: setup  ## the whole story on real data, in six to eight minutes on two cores
	$(BIN)/python -m demo

test: setup  ## the tests, with a real broker, Spark and Delta; long sweeps have their own target
	@command -v chromium >/dev/null || echo "the page's tests in a browser: not run: no chromium (apt-get install chromium, then make test-browser)"
	@# A JVM that starts leaves a core idle: files of tests that need one run two at a time, and tests that need none behind them, who say it all at once (some wait for processes of theirs: with all of `nice` they would starve).
	@(nice -n 5 $(BIN)/python -m pytest -q -m "not (jvm or sweep or browser)" >$(VENV)/quick.log 2>&1; said=$$?; cat $(VENV)/quick.log; exit $$said) & quick=$$!; \
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "jvm and not sweep and not browser"; jvm=$$?; \
	wait $$quick; quick=$$?; \
	test $$quick = 0 || echo "tests without a JVM failed ($$quick): see above, or $(VENV)/quick.log"; \
	test $$jvm = 0 -a $$quick = 0

test-browser: setup  ## the page in a real browser: a deploy is watched, promoted and undone by clicking; needs chromium
	@command -v chromium >/dev/null || { echo "not run: no chromium: apt-get install chromium"; exit 1; }
	$(BIN)/python -m pytest -m browser

check: $(STAMP)  ## lint, format, types, and the quick tests, on all cores: under a minute on two
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -n auto --hypothesis-profile=check -m "not jvm and not slow and not fault and not bench and not sweep and not browser"

faults: setup  ## the tests that kill processes, and the long sweeps
	$(BIN)/python -m pytest -s -m "fault or sweep"

CELL ?= standard
bench: setup  ## who is how fast at the same task: CELL=standard, keys, warm, large, huge, projection, windows, latest, ordered, archive, queries, tables, startup, freshness or day; ROUNDS= EVENTS= RIVALS=a,b AGAIN=1 INTO=docs/performance.md
	$(BIN)/python tests/bench --cell $(CELL) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(EVENTS),--events $(EVENTS)) $(if $(RIVALS),--rivals $(RIVALS)) $(if $(AGAIN),--again) $(if $(INTO),--into $(INTO)) $(if $(BENCH_HOME),--home $(BENCH_HOME))

bench-quick: setup  ## ratios only, in three minutes, as a line to hold beside that of another day
	$(BIN)/python tests/bench --cell quick --again --line $(if $(BENCH_HOME),--home $(BENCH_HOME))

clean:  ## removes the venv and what runs have left in this tree; the jar cache of the user stays
	rm -rf $(VENV) .kappa .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
