# Everything this project can do, from a fresh clone on: the first call sets up .venv by itself.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# A demo and the tests start dozens of processes: what one has compiled, the next need not. `make clean` takes it away.
export PYTHONDONTWRITEBYTECODE :=

# The first of these that is 3.11 or newer and can make virtual environments; or say PYTHON=…
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
UV ?= uv
RUN := .venv/bin/python
BASE := requirements/base.txt
DEV := requirements/dev.txt
BENCH := requirements/bench.txt
# pytest-xdist: neighbours stay together, and share a browser, until one process has nothing left to do. One process more
# than there are processors, since many tests wait for a worker's lease or a sink.
TEST_OPTIONS ?= -n $$($(RUN) -c 'import os; print(min((os.cpu_count() or 1) + 1, 6))') --dist worksteal

.PHONY: help demo example test evidence bench check format docs lock reset clean always

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s%s\n", $$1, $$2 }' Makefile

demo: .venv/base ## run the whole product on this machine, with people and cases to try it on; Ctrl-C ends it
	@$(RUN) manage.py demo

example: .venv/base ## play one case from proposal to receipt, with a crash in between, and show what is left
	@$(RUN) manage.py example

test: .venv/dev ## run all tests against a PostgreSQL, workers and a browser of their own
	@sh tests/install_chromium.sh
	$(RUN) -m pytest $(TEST_OPTIONS) $(ARGS)

evidence: .venv/dev ## kill, pause and repeat real workers at every sink, count the effects, and judge (five minutes)
	@$(RUN) -m tests.evidence $(ARGS)

bench: .venv/dev .venv-bench/whole ## measure beside the limit, DBOS and plain Celery tasks; results to var/ (half an hour)
	@$(RUN) -m benchmarks $(ARGS)

# Nothing below connects anywhere: the names are those of a production that does not exist.
check: export SECRET_KEY = for-checks-only-0123456789-abcdefghijklmnopqrstuvwxyz-0123456789
check: export DATABASE_URL = postgres://countersign@database.invalid/countersign
check: export BROKER_URL = redis://broker.invalid/0
check: export BASE_URL = https://countersign.invalid
check: export ALLOWED_HOSTS = countersign.invalid
check: export DEBUG = false
check: .venv/dev ## check style, types, imports, SQL, migrations, settings, templates and generated docs
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	.venv/bin/lint-imports --no-logo
	$(RUN) -m pytest -q tests/architecture
	find templates -name '*.html' -exec .venv/bin/djade --check --target-version 5.2 {} +
	$(RUN) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	$(RUN) manage.py check --deploy --fail-level WARNING
	$(RUN) manage.py draw_states --check

format: .venv/dev ## put code and templates into the house's form
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .
	find templates -name '*.html' -exec .venv/bin/djade --target-version 5.2 {} +

docs: export SECRET_KEY = for-drawing-only
docs: export DATABASE_URL = postgres://countersign@database.invalid/countersign
docs: .venv/base ## draw the generated parts of docs/ again
	$(RUN) manage.py draw_states --write

lock: ## pin requirements/*.in to exact versions and hashes (needs uv)
	@command -v $(UV) >/dev/null || { echo "make lock needs uv; say UV=/path/to/uv if it is not on PATH." >&2; exit 1; }
	@for name in base dev bench; do \
		$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
			--no-emit-index-url --no-emit-find-links requirements/$$name.in -o requirements/$$name.txt || exit 1; done

reset: .venv/base ## throw away the demo's database, queue and logs
	@$(RUN) manage.py reset

clean: ## throw away what was installed and cached; the demo's data stays
	rm -rf .venv .venv-bench .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/base: $(BASE)
	@$(call install,-r $(BASE))

.venv/dev: .venv/base $(DEV)
	@$(call install,-r $(BASE) -r $(DEV))

# What others would use instead has packages of its own, and must not move ours.
.venv-bench/whole: $(BENCH) | .venv/base
	@rm -rf .venv-bench && $(RUN) -m venv .venv-bench
	@.venv-bench/bin/python -m pip install -qq --disable-pip-version-check --no-input --require-hashes -r $(BENCH)
	@touch $@

# `.venv/whole` is missing while packages are being installed. After an installation that was cut short,
# or when its Python has gone, the next one starts from nothing.
SOUND = [ -e .venv/whole ] && $(RUN) -c '' 2>/dev/null

ifneq ($(shell $(SOUND) && echo sound),sound)
.venv/base: always
endif

define install
	set -e; \
	if ! { $(SOUND); }; then \
		[ -n "$(PYTHON)" ] || { echo "This needs Python 3.11 or newer with its venv module (Debian: apt-get install python3-venv)," \
			"or its name: make PYTHON=/path/to/python3 …" >&2; exit 1; }; \
		echo "Setting up .venv with $(PYTHON). This happens once and takes about a minute."; \
		rm -rf .venv; "$(PYTHON)" -m venv .venv; \
	fi; \
	rm -f .venv/whole; \
	$(RUN) -m pip install -qq --disable-pip-version-check --no-input --require-hashes $(1); \
	touch .venv/whole $@
endef
