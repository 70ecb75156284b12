# make demo   a file crosses a four-plane P4 fabric while links are cut under it
# make test   every test, real packets included
# Both do all their own set-up; run them as root or as a user who may sudo. `make demo ROOT=no` needs neither.

SHELL    := /bin/bash
VENV     := .venv
MRC      := $(VENV)/bin/mrc
PYTEST   := $(VENV)/bin/python -m pytest

# Who is not root uses sudo; without sudo (or with ROOT=no) a fabric comes up in a user namespace.
ROOT     := $(if $(filter 0,$(shell id -u)),yes,$(if $(shell command -v sudo),sudo,no))
AS_ROOT  := $(if $(filter-out sudo,$(ROOT)),,sudo --preserve-env=MRC_RUN_DIR,MRC_CACHE_DIR,CI)
ROOTLESS := $(if $(filter no,$(ROOT)),--rootless)

.DEFAULT_GOAL := help
.PHONY: help setup demo up test unit coverage resilience dist lint types format bench clean distclean

help: ## what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## system packages and Python environments (the others do it themselves)
	@scripts/setup

# Extras of pyproject.toml that only tests need, with a module of each: nobody waits for them on the way to `make demo`.
TEST_EXTRAS := docs:proselint notebook:nbclient data:pyarrow data-tests:duckdb infragraph-tests:infragraph \
	slurm:submitit $(if $(MRC_RAY),ray:ray)

.PHONY: ready ready-to-test
ready:
	@scripts/setup --quiet

ready-to-test:
	@scripts/setup --quiet --tests $(TEST_EXTRAS)

demo: ready ## the demonstration; ARGS="--planes 2 --json" adds options
	@$(AS_ROOT) $(MRC) demo $(ROOTLESS) $(ARGS)

up: ready ## bring the fabric up and open the Mininet CLI
	@$(AS_ROOT) $(MRC) up $(ROOTLESS) $(ARGS)

# What Python compiles is kept in our cache, also where the environment forbids it: two workers and some hundred child
# processes would compile the same modules and tests again. A worker that is done takes tests from the others: by whole
# files, the one with the longest file would be alone at the end. There is a worker more than cores: tests wait for
# processes, ports and timers, and the cores would idle meanwhile.
WORKERS  := $(shell echo $$(( $$(nproc) + 1 )))
BYTECODE := $(or $(MRC_CACHE_DIR),$(HOME)/.cache/mrc-testbed)/pyc
CACHED   := env PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(BYTECODE)
# What `lint`, `docs` and `thorough` run is theirs alone.
ON_ALL_CORES := $(CACHED) $(PYTEST) -n $(WORKERS) --dist worksteal \
	-m "not root and not build and not thorough and not house and not documents"
unit: ready-to-test ## the tests that need no root (seven minutes)
	@$(ON_ALL_CORES) $(ARGS)

# First those that need no root; then those with a fabric and those that compile, a file at a time by workers with
# interfaces of their own; then one by one those that need the machine for themselves. Each is run whatever the
# one before gave. 5 is pytest's word for a selection without a test: right in any but all of them.
BESIDE := $(CACHED) ISOLATED_PYTHON=$(CURDIR)/$(VENV)/bin/python \
	$(PYTEST) --tx "$(WORKERS)*popen//python=$(CURDIR)/scripts/isolated-python"
test: ready-to-test ## the tests, real packets included (fifteen minutes); ARGS="-k name" selects
	@$(AS_ROOT) $(ON_ALL_CORES) $(ARGS); first=$$?; \
		$(AS_ROOT) $(BESIDE) --dist loadfile -m "(root or build) and not alone and not thorough" $(ARGS); second=$$?; \
		$(AS_ROOT) $(CACHED) $(PYTEST) -m "alone and not thorough" tests/resilience $(ARGS); third=$$?; \
		[ $$first = 0 ] || [ $$first = 5 ] || echo "make test: tests without a fabric failed (see above)" >&2; \
		[ $$second = 0 ] || [ $$second = 5 ] || echo "make test: tests with a fabric failed (see above)" >&2; \
		case $$first,$$second,$$third in 5,5,5) exit 1 ;; [05],[05],[05]) ;; *) exit 1 ;; esac

.PHONY: thorough
thorough: ready-to-test ## every moment, mutant and build of a kind of which `test` has some; sanitizers, wheels (twenty-five minutes)
	@$(AS_ROOT) $(CACHED) $(PYTEST) -m "thorough and not root" -n $(WORKERS) --dist worksteal $(ARGS); first=$$?; \
		$(AS_ROOT) $(BESIDE) --dist worksteal -m "thorough and root and not alone" $(ARGS); second=$$?; \
		$(AS_ROOT) $(CACHED) $(PYTEST) -m "thorough and alone" tests/resilience $(ARGS); third=$$?; \
		case $$first,$$second,$$third in 5,5,5) exit 1 ;; [05],[05],[05]) ;; *) exit 1 ;; esac

.PHONY: matrix
matrix: ready-to-test ## the tests of `unit` with each of Python 3.10 to 3.14 at hand; PYTHONS="3.10 3.14", ARGS="-k name"
	@scripts/matrix $(ARGS)

.PHONY: compile
compile: ready ## the engine as machine code, once (two minutes): virtual runs take a fifth of the time
	@$(MRC) compile $(ARGS)

SEED ?= 1
resilience: ready-to-test ## all resilience tests and scenarios in Mininet (half an hour); SEED=2, ARGS="-k t1"
	@$(AS_ROOT) env MRC_SCENARIOS=all MRC_SEED=$(SEED) MRC_RESULTS=results/resilience-$(SEED) \
		$(PYTEST) tests/resilience $(ARGS)

PROSE = $(filter-out docs/spec/%,$(wildcard *.md docs/*.md docs/design/*.md p4src/*.md mrc_testbed/switch/*.md))
.PHONY: docs
docs: ready-to-test ## the documents as a site with search, into build/site; every link is checked, every command run
	@$(VENV)/bin/proselint check --config tools/manual/proselint.json $(PROSE)
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --quiet
	@$(CACHED) $(PYTEST) -q -m "documents and not root" -n auto --dist worksteal tests/test_*.py tests/tools/manual
	@echo "docs: open build/site/index.html"

.PHONY: vm
vm: ready ## a Debian box, and the life of the Vagrantfile's VM in it (root, libvirt; hours when emulated); RELEASE=debian-13, ARGS="--keep"
	@$(if $(filter sudo,$(ROOT)),sudo )$(VENV)/bin/python -m tools.vm $(RELEASE) $(ARGS)

dist: ready ## a wheel and an sdist, in build/dist
	@mkdir -p build; $(VENV)/bin/python -m build --outdir build/dist . >build/dist.log 2>&1 || { tail -30 build/dist.log >&2; exit 1; }
	@ls build/dist

lint: ready ## style, static types, plain words (tools/plain_words.py), and the rules of the house (tests/test_house.py)
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check --diff . >/dev/null || { echo "lint: run 'make format'"; exit 1; }
	@$(VENV)/bin/python -m mypy
	@$(VENV)/bin/python -m tools.plain_words --check
	@$(CACHED) $(PYTEST) -q -m house -n auto tests/test_*.py tests/files/test_whole_files.py tests/ipc/test_rundir.py

types: ready ## static types alone (mypy, strict)
	@$(VENV)/bin/python -m mypy

format: ready ## bring all Python files into the form that `make lint` asks for
	@$(VENV)/bin/ruff check --fix-only --quiet .
	@$(VENV)/bin/ruff format .

# The engine has no clock and no socket, so no line of it is out of a test's reach: below 100 % `coverage` fails.
MIN := $(if $(filter mrc_testbed.hosts.engine,$(PACKAGE)),100,0)
coverage: ready-to-test ## branch coverage of the tests that need no root; PACKAGE=mrc_testbed.hosts.engine is one that must have 100 %
	@$(PYTEST) -m "not root and not build" -n auto --dist worksteal -q $(ARGS) --cov-branch --cov-report=term-missing:skip-covered \
		--cov-fail-under=$(MIN) \
		$(foreach one,$(or $(PACKAGE),mrc_testbed),--cov=$(one))

bench: ready ## switch and transfer benchmarks; ratios from one run
	@$(AS_ROOT) $(MRC) bench switch
	@$(AS_ROOT) $(MRC) bench mrc

clean: ## remove what a killed run left behind, caches and build files
	@if [ -x $(MRC) ]; then $(AS_ROOT) $(MRC) clean; fi
	@rm -rf build .pytest_cache .hypothesis .mypy_cache .ruff_cache *.egg-info
	@find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

distclean: clean ## clean, and the virtual environments
	@rm -rf .venv .venv-p4runtime-shell
