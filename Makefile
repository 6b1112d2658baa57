# Two commands do everything on a fresh machine with Python 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP_DEMO := $(VENV)/.stamp-demo
STAMP := $(VENV)/.stamp-dev
STAMP_ALL := $(VENV)/.stamp-dev-all
STAMP_DOCS := $(VENV)/.stamp-docs
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-compile
# pip compiles with one processor. Some of the 15,000 modules are templates, which do not compile. Half of their text is
# never imported: the tests of packages, Chroma's client of Kubernetes and its usual embedder with what that takes, and
# programs that are compiled already or not run.
UNUSED := kubernetes|onnxruntime|sympy|mpmath|huggingface_hub|mypy|mypyc|pip|setuptools|tests
COMPILE := $(BIN)/python -m compileall -qq -j 0 -x '/($(UNUSED))/' $(VENV)/lib || true

# Containers often forbid bytecode. Then each worker and each child process compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo quick test test-extras test-all test-oldest tests lint data bench docs picture release format clean

help: ## show what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

# The package alone: the demo needs no extra. It compiles the modules that it imports, one in four.
$(STAMP_DEMO): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[dev]'
	$(COMPILE)
	touch $(STAMP_DEMO) $@

$(STAMP_ALL): $(STAMP)
	$(PIP) --editable '.[dev-all]'
	$(COMPILE)
	touch $@

$(STAMP_DOCS): $(STAMP)
	$(PIP) --editable '.[docs]'
	touch $@

demo: $(STAMP_DEMO) ## an office agent with and without the memory: model calls saved, changes nobody asked for, time
	$(BIN)/toolmem demo $(ARGS)

quick: $(STAMP) ## lint, types and the tests of units, contracts and methods, but for slow ones: for every commit
	$(MAKE) --jobs 2 --output-sync=target lint tests \
		ARGS='-m "not slow and not long" tests/unit tests/contract tests/core tests/methods $(ARGS)'

test: $(STAMP) ## lint, types and the tests, but for long ones
	$(MAKE) --jobs 2 --output-sync=target lint tests ARGS='-m "not long" $(ARGS)'

test-extras: $(STAMP_ALL) ## the tests that need torch, a browser, Studio's server or the site's generator
	$(BIN)/python -m pytest -n auto --dist loadgroup -m "not long" tests/hgt tests/page tests/studio tests/unit/test_readme.py

test-all: $(STAMP_ALL) ## everything, with long ones
	$(MAKE) --jobs 2 --output-sync=target lint tests

tests: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadgroup $(ARGS)

test-oldest: ## the unit tests with the oldest release of each range, in a venv of its own
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-oldest.txt \
		'.[agents,openai]' pytest pytest-asyncio pytest-timeout pytest-xdist hypothesis scipy \
		langgraph-checkpoint-sqlite opentelemetry-sdk opentelemetry-exporter-otlp-proto-common
	PYTHONPATH=. .venv-oldest/bin/python -m pytest tests/unit -m "not slow" -W default $(ARGS)

lint: $(STAMP) ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

data: $(STAMP) ## fetch the public recorded runs at named commits and convert them into ../shared/data, for `make bench`
	$(PIP) pandas mpmath
	$(BIN)/python -m benchmarks.data $(ARGS)

bench: $(STAMP) ## all figures of the README (needs the recorded runs: `make data`; see benchmarks/README.md)
	$(BIN)/python -m benchmarks.replay
	$(BIN)/python -m benchmarks.closed_loop
	$(BIN)/python -m benchmarks.model_input
	$(BIN)/python -m benchmarks.prefetch
	$(BIN)/python -m benchmarks.scale
	$(BIN)/python -m benchmarks.turn_cost
	$(BIN)/python -m benchmarks.burst
	$(BIN)/python -m benchmarks.large_values
	$(BIN)/python -m benchmarks.sit
	$(BIN)/python -m benchmarks.recall
	$(BIN)/python -m benchmarks.tool_search
	$(BIN)/python -m benchmarks.many_tools
	$(BIN)/python -m benchmarks.sga
	$(BIN)/python -m benchmarks.prefix

docs: $(STAMP_DOCS) ## the pages of docs/, the README, API and command line reference as a site with search, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

picture: $(STAMP) ## the README's moving picture, from the real output of `toolmem demo`
	$(BIN)/python -m benchmarks.picture

release: $(STAMP) ## build, check and install wheel and sdist in bare environments, write the notes, tag the version
	-$(PIP) build twine
	$(BIN)/python .ci/release.py $(ARGS)

format: $(STAMP) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what was built
	rm -rf $(VENV) .venv-oldest dist build site .mypy_cache .ruff_cache .hypothesis
