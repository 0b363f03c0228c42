# `make demo` shows a report, `make test` is what one runs all day, `make test-all` is everything.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AXE := tests/browser/node_modules/axe-core/axe.min.js
JOB ?= sample_data/healthy-8gpu

.PHONY: demo test test-all check format docs golden samples bench fuzz kills audit clean

demo: $(VENV)/installed
	@$(BIN)/make-report --job-dir $(JOB) --out reports/$(notdir $(JOB)) --force

# The many processes of the tests would compile the code anew, each of them.
unexport PYTHONDONTWRITEBYTECODE

# The files in their order, browsers first: a long one that comes last has all cores but one wait.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

test: check $(AXE)
	$(PYTEST) -m "not slow" --hypothesis-profile few

test-all: check $(AXE)
	$(PYTEST)

check: $(VENV)/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell
	$(BIN)/mypy

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/installed-dev
	$(BIN)/python docs/generate.py

golden: $(VENV)/installed-dev
	$(BIN)/python -m pytest tests/golden --accept-golden

samples: $(VENV)/installed-dev
	$(BIN)/python sample_data/generate.py --samples

bench: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks --store
	$(BIN)/python benchmarks/static_figures.py
	$(BIN)/python benchmarks/recording.py

# The short ones of these run in make test. FUZZ is how long each reader is fuzzed, in seconds; JOBS, KILLS how many.
FUZZ ?= 900
JOBS ?= 10000
KILLS ?= 200

fuzz: $(VENV)/installed-fuzz
	$(BIN)/python -m fuzz.jobs --jobs $(JOBS) --pages 100
	$(BIN)/python -m fuzz.targets --all --seconds $(FUZZ)

kills: $(VENV)/installed
	$(BIN)/python -m fuzz.kills --kills $(KILLS)

# Known holes in what is installed, where the index of them can be asked.
audit: $(VENV)/audit/bin/pip-audit
	$(VENV)/audit/bin/python .ci/audit.py constraints.txt

clean:
	rm -rf $(VENV) reports dist

$(VENV)/installed: pyproject.toml record/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable . --editable record
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(VENV)/installed-bench: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	@touch $@

$(VENV)/installed-fuzz: $(VENV)/installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[fuzz]'
	@touch $@

$(VENV)/audit/bin/pip-audit:
	@$(PYTHON) -m venv $(VENV)/audit
	@$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit

# axe-core and the HTML checker for the browser tests; where they cannot be had, what needs them is skipped and says so.
$(AXE): tests/browser/package.json
	@npm install --prefix tests/browser --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel error \
		|| echo "axe-core and the HTML checker could not be installed: their tests will be skipped."
