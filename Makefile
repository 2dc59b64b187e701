# `make demo` trains a first agent and writes its report; `make test` runs the checks of every change (`make pytest` the
# tests alone), `make thorough` the long ones. Each makes the environment first.
#
#   PYTHON=python3.12       the Python to make it with (3.11 or newer)
#   EXTRA=track             extras to install besides, for instance EXTRA=smollm,track
#   CONSTRAINTS=            take the newest versions instead of those in constraints.txt: with a GPU, pip then takes the
#                           torch build for it, which the pinned version may not be
#   TORCH='torch==2.9.1'    with CONSTRAINTS= empty: a torch of your choice, with any options pip needs to find it
#   OUT=runs/demo           where the demo's run lives
#   MUTANTS='--sample 300'  options of `make mutants`: --seed, --only PATH, --workers, --fresh; without, every mutant
#   CHAOS='--size small'    options for `make chaos`
#   WORKERS=3               processes that run tests; each takes about a gigabyte
#   PYTEST='-m "not slow and not published and not thorough"'  options for pytest

PYTHON ?= python3
VENV ?= .venv
EXTRA ?=
CONSTRAINTS ?= constraints.txt
TORCH ?=
OUT ?= runs/demo
PYTEST ?=
WORKERS ?= 3
MUTANTS ?= --sample 300
CHAOS ?=

BIN := $(VENV)/bin
# Python compiles a module when it is first imported; all of them would take minutes.
PIP := $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))
COMMA := ,

# Where it is set, every process would compile all it imports again: six seconds with torch and transformers.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint pytest results checkpoints wheels thorough mutants chaos docs venv clean graphics browser

demo: $(VENV)/.installed
	$(BIN)/oneiro run spa/frozen-lake --out $(OUT)

# Side by side: mypy is one process of a minute, and the tests have seconds in which they wait.
test: $(VENV)/.installed-dev graphics browser
	@$(MAKE) --no-print-directory -j2 docs lint
	@$(MAKE) --no-print-directory pytest

pytest: $(VENV)/.installed-dev
	# One worker more than cores keeps them busy while a test waits, and keeps its share of a machine that does other work.
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(PYTEST)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/python -m tools.results --check

# The tables of README and docs, from results/*.json.
results: $(VENV)/.installed-dev
	$(BIN)/python -m tools.results

# The models behind the README's rows, each as a repository for the hub; ROWS='demo plan-lake' names some.
checkpoints: $(VENV)/.installed-dev
	$(BIN)/python -m tools.checkpoints $(ROWS)

# What `make test` leaves out: every variant, and long searches for rare faults. About an hour.
thorough: $(VENV)/.installed-dev graphics browser
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m thorough $(PYTEST)

# Errors put into the core on purpose, to see which the tests notice; the report is build/mutants.md.
mutants: $(VENV)/.installed-dev
	$(BIN)/python -m tests.mutants.run $(MUTANTS)

# Breaks runs by the hundred and counts how they end: kills, crashes, disk faults, damaged folders, a hostile server.
chaos: $(VENV)/.installed-dev
	$(BIN)/python -m tests.chaos $(CHAOS)

# The documentation and its API reference, into build/site. A broken link fails the build.
docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Wheels and source distributions of both packages into dist/; then a bare environment installs them and runs a recipe.
wheels: $(BIN)/python
	rm -rf dist build/bare build/bare-run
	$(PIP) build
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist web
	$(BIN)/python -m venv build/bare
	build/bare/bin/python -m pip install -qq --no-compile $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) dist/*.whl
	cd build && bare/bin/oneiro run spa/frozen-lake preset=smoke --out bare-run

venv: $(VENV)/.installed-dev

# The robot worlds draw their frames with OSMesa. Where it is missing and cannot be installed, their tests are skipped.
graphics:
	@if ldconfig -p 2>/dev/null | grep -q libOSMesa; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get install -qq -y libosmesa6 libgl1 libegl1 >/dev/null 2>&1 \
		|| (apt-get update -qq && apt-get install -qq -y libosmesa6 libgl1 libegl1) >/dev/null 2>&1 \
		|| echo "OSMesa could not be installed; tests of robot frames may be skipped"; \
	else echo "OSMesa is not installed (apt-get install libosmesa6 libgl1 libegl1); tests of robot frames may be skipped"; \
	fi

# Chromium, beside which the text browser is tested. Where it is missing and cannot be installed, those tests are skipped.
browser:
	@if command -v chromium >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1 \
		|| (apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium) >/dev/null 2>&1 \
		|| echo "Chromium could not be installed; tests of it are skipped"; \
	else echo "Chromium is not installed (apt-get install chromium); tests of it are skipped"; \
	fi

# A stamp is younger than what it was installed from, or the packages are installed again.
$(VENV)/.installed: pyproject.toml web/pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV); the first time takes a few minutes"
	$(if $(TORCH),$(PIP) $(TORCH))
	$(PIP) $(if $(filter web miniwob,$(subst $(COMMA), ,$(EXTRA))),--editable web) --editable '.[board$(if $(EXTRA),$(COMMA)$(EXTRA))]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml web/pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV); the first time takes a few minutes"
	$(if $(TORCH),$(PIP) $(TORCH))
	$(PIP) --editable web --editable '.[dev$(if $(EXTRA),$(COMMA)$(EXTRA))]'
	@touch $@ $(VENV)/.installed

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build dist *.egg-info web/*.egg-info web/build .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
