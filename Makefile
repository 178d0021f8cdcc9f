# Every target that needs the environment makes it first; `make setup` is quick when nothing changed.

SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp
CLASSES := $(VENV)/spark.jsa

# Spark starts its Python workers by name; without this they would be the system's python3,
# which has none of the packages.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python

# Every process that a test starts would compile the product, and every run the tests, again.
unexport PYTHONDONTWRITEBYTECODE

# How many workers share the tests; `make test WORKERS=0` runs them one after the other. One more
# than two cores: a third of the seconds are spent in waiting for processes and servers.
WORKERS ?= 3

# The quick ones wait for next to nothing, and each worker has to load all of them first.
QUICK_WORKERS ?= 2

.PHONY: help setup python java proof browser screenshots diagrams postgres balancer test quick check hooks format requirements conformance mutants coverage soak fuzz bench bench-setup demo docs clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: java proof browser postgres balancer $(STAMP) $(CLASSES) ## make .venv with every extra; install Java, xmlsec1, Chromium, PostgreSQL and HAProxy where that is allowed

$(STAMP): pyproject.toml constraints.txt scripts/setup-python.sh
	@PYTHON="$(PYTHON)" bash scripts/setup-python.sh "$(VENV)"
	@touch $@

# What tests need to start Spark in half the time.
$(CLASSES): $(STAMP) | java
	@$(BIN)/python -m tests.java_archive

java:
	@bash scripts/setup-java.sh

proof:
	@bash scripts/setup-program.sh "to test evidence too" "openssl xmlsec1 xmllint" \
		openssl xmlsec1 libxml2-utils

browser:
	@bash scripts/setup-program.sh "to test the console too" chromium chromium fonts-dejavu-core

postgres:
	@bash scripts/setup-program.sh "to test its store too" initdb postgresql

balancer:
	@bash scripts/setup-program.sh "to test handlers behind it" haproxy haproxy

test: setup ## run every test but the long ones
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

quick: setup ## run the tests of a minute: without Spark, without processes, none that is long
	TEST_EXAMPLES=25 $(BIN)/python -m pytest -n $(QUICK_WORKERS) --durations=5 \
		-m "not (soak or spark or process or long)" $(ARGS)

check: setup ## format, lint and strict types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict src

hooks: ## have git run `make check` before every commit, here only
	@bash scripts/install-hooks.sh

format: setup ## rewrite the files as `check` wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

requirements: setup ## which rows of docs/requirements.csv have tests
	$(BIN)/python scripts/requirements.py $(ARGS)

docs: setup ## build the site into build/site: links checked, search included
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site

conformance: setup ## run the test of every rule of ebMS 2.0 and write docs/reference/conformance.md
	$(BIN)/python scripts/conformance.py $(ARGS)

mutants: setup ## every deliberate bug, and what caught it
	$(BIN)/python -m tests.mutants

coverage: setup ## every branch of the protocol and of the journal's folds is tested
	$(BIN)/coverage run --branch -m pytest -q tests/protocol tests/message tests/journal
	$(BIN)/coverage report --show-missing --fail-under=100 \
		--include='src/oncewire/protocol/*,src/oncewire/journal/*'

soak: setup ## the long runs
	$(BIN)/python -m pytest -m soak --timeout=0 $(ARGS)

fuzz: setup ## mutated messages against the reader
	$(BIN)/python -m tests.fuzz $(ARGS)

bench: setup ## measured speed, each figure beside its limit; ARGS="exchange --every"
	$(BIN)/python -m bench $(ARGS)

bench-setup: setup ## install what the handler is measured beside: RabbitMQ, NATS, pyas2lib
	@bash scripts/setup-bench.sh "$(VENV)"

screenshots: setup ## make the pictures of docs/img anew, from a demo
	$(BIN)/python scripts/screenshots.py

diagrams: setup ## draw docs/img/*.svg anew: states, windows, the house, a ladder
	@CI=true bash scripts/setup-program.sh "to draw the diagrams" dot graphviz
	$(BIN)/python scripts/draw_states.py
	$(BIN)/python scripts/diagrams.py

demo: setup ## two parties and a hub over a bad network, and the verdict
	$(BIN)/oncewire demo $(ARGS)

clean: ## remove the environment and every cache
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*
