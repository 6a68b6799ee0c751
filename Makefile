# make demo [DURATION=30] [SOURCE=postgres] | test [WORKERS=3] | soak | fuzz | check | bench [QUICK=1] | image | lock | clean
# Everything runs in .venv, made from requirements.lock; a second make finds it ready and starts at once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test soak fuzz check bench image lock clean java

# Tests start the service hundreds of times: it is compiled once.
unexport PYTHONDONTWRITEBYTECODE

DURATION ?= 30
WORKERS ?= 3
SOURCE ?= postgres
IMAGE ?= psql-streamer
BIN := .venv/bin
READY := .venv/.ready

help:
	@echo "make demo [DURATION=30]   PostgreSQL -> Spark -> Kafka, live, on this machine alone; SOURCE=mysql, sql, kafka: from there"
	@echo "make test [WORKERS=3]     every test, on real servers, in so many processes"
	@echo "make soak                 the tests that take long, or show on MySQL what others show on MariaDB"
	@echo "make fuzz                 the property tests with 1,000 examples each"
	@echo "make check                ruff, mypy, import directions"
	@echo "make bench [QUICK=1]      rates, CPU, memory, latency, and how they grow with tables; QUICK: in three minutes"
	@echo "make image                the container image"
	@echo "make lock                 requirements.lock anew, from pyproject.toml's ranges"
	@echo "make clean                remove what make made"

demo: $(READY) java
	@exec $(BIN)/psql-streamer demo --duration $(DURATION) --source $(SOURCE)

# Files are shared out to workers, each with servers of its own. Those that need no Spark come first.
test: $(READY) java
	@$(BIN)/python -m tests.spark_archive &
	$(BIN)/pytest -q --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=12

soak: $(READY) java
	$(BIN)/pytest -q -m soak

fuzz: $(READY)
	$(BIN)/pytest -q tests/unit --numprocesses $(WORKERS) --hypothesis-profile=fuzz

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/unit/test_import_direction.py

bench: $(READY) java
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

image:
	@engine=$$(command -v docker || command -v podman) || \
	  { echo "make image: no container engine: install docker or podman" >&2; exit 1; }; \
	"$$engine" info >/dev/null 2>&1 || \
	  { echo "make image: $$engine does not answer: start its service, or ask for the right to use it" >&2; exit 1; }; \
	"$$engine" build --tag $(IMAGE) .

# setuptools is locked too: it builds the package, without another download.
lock:
	@python=$$(./.ci/python) && scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
	pip="$$scratch/venv/bin/python -m pip --disable-pip-version-check" && \
	"$$python" -m venv "$$scratch/venv" && cp -r pyproject.toml README.md LICENSE psql_streamer sources sinks "$$scratch" && \
	$$pip install --quiet --upgrade pip "setuptools>=77" && \
	(cd "$$scratch" && $$pip install --quiet --no-build-isolation . --group dev) && \
	{ echo "# Exact versions of everything that make and CI install. Made by \`make lock\`."; \
	  $$pip freeze --all --exclude pip --exclude wheel --exclude psql-streamer; } > requirements.lock
	@echo "requirements.lock: $$(grep -c == requirements.lock) packages"

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
	find psql_streamer sources sinks tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

java: $(READY)
	@./.ci/java

# Entry points and dependencies come from pyproject.toml, so the package is installed again when it changes.
$(READY): requirements.lock pyproject.toml
	@python=$$(./.ci/python) && { [ -x $(BIN)/python ] && $(BIN)/python -m pip --version >/dev/null 2>&1 || \
	  { rm -rf .venv && "$$python" -m venv .venv; }; }
	@echo "installing into .venv ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check \
	  --requirement requirements.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps \
	  --no-build-isolation --editable .
	@touch $@
