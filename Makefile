# `make demo` records a job and reports on it, `make demo-compare` compares runs, `make test` is what one runs all day,
# `make test-slow` runs the tests that `make test` leaves out, `make test-all` both.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AXE := tests/browser/node_modules/axe-core/axe.min.js

.PHONY: demo demo-compare pictures test pytest-test test-slow test-all check format docs golden samples bench fuzz kills outages audit clean

# With JOB=sample_data/healthy-8gpu, the report of that job.
demo: $(VENV)/installed
ifdef JOB
	$(BIN)/make-report --job-dir $(JOB) --out reports/$(notdir $(JOB:/=)) --force
else
	rm -rf reports/my-job
	$(BIN)/record-job --out reports/my-job -- $(BIN)/python sample_data/train.py
	$(BIN)/make-report --job-dir reports/my-job --out reports/my-job-report --force
endif

# A job on 12 GPUs and the same work on 2, three runs of each, in turn.
PAIR := oversized:1 right-sized:1 oversized:2 right-sized:2 oversized:3 right-sized:3

demo-compare: $(VENV)/installed
	@for run in $(PAIR); do \
		scenario=$${run%:*}; seed=$${run#*:}; job=reports/jobs/$$scenario-$$seed; \
		hour=$$((seed * 2 + 8)); case $$scenario in right-sized) hour=$$((hour + 1));; esac; \
		test -d $$job || $(BIN)/python sample_data/generate.py --scenario $$scenario --seed $$seed --gzip --out $$job \
			--start 2025-03-09T$$(printf %02d $$hour):00:00Z; \
		$(BIN)/make-report --job-dir $$job --out reports/$$scenario-$$seed --force --quiet > /dev/null; \
	done
	@$(BIN)/compare-reports $(foreach run,$(PAIR),$(firstword $(subst :, ,$(run)))=reports/$(subst :,-,$(run))) \
		--prices sample_data/prices.toml --set oversized.instance_type=p3.8xlarge --set oversized.batch_size=256 \
		--set right-sized.instance_type=p3.2xlarge --set right-sized.batch_size=512 --out reports/comparison --force

# The pictures of README.md and docs/comparison.md.
pictures: $(VENV)/installed-dev demo-compare demo
	@$(MAKE) --no-print-directory demo JOB=sample_data/cpu-bottleneck-2gpu
	@$(MAKE) --no-print-directory demo JOB=sample_data/late-rank-4gpu
	$(BIN)/python docs/pictures.py

# The many processes of the tests would compile the code anew, each of them.
unexport PYTHONDONTWRITEBYTECODE

# The files in their order, browsers first: a long one that comes last has all cores but one wait.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

# While some tests wait, mypy works.
test: $(VENV)/installed-dev $(AXE)
	@$(MAKE) --no-print-directory --jobs 2 check pytest-test

pytest-test:
	$(PYTEST) -m "not slow" --hypothesis-profile few --durations 25

# Slow tests, and those of Hypothesis with all of their examples; then, one by one, those that need the cores for themselves.
test-slow: $(VENV)/installed-dev $(AXE)
	$(PYTEST) -m "(slow or hypothesis) and not alone"
	$(BIN)/python -m pytest -m alone --durations 10

test-all: test test-slow

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

bench: $(VENV)/installed-bench $(VENV)/monitors/bin/python $(VENV)/hta/bin/python
	$(BIN)/python -m benchmarks --store
	$(BIN)/python benchmarks/static_figures.py
	$(BIN)/python -m benchmarks.recording --python $(VENV)/monitors/bin/python --store
	$(BIN)/python -m benchmarks.false_alarms --store
	-PYTHONPATH=record $(VENV)/monitors/bin/python -m benchmarks.learning --store

# The short ones of these run in make test. FUZZ is how long each reader is fuzzed, in seconds; JOBS, KILLS how many;
# SECONDS how long a job is recorded while it is killed, restarted, and its disk is full.
FUZZ ?= 900
JOBS ?= 10000
KILLS ?= 200
SECONDS ?= 3600

# The generator of sample jobs is no package that is installed.
fuzz kills outages: export PYTHONPATH := $(CURDIR)/sample_data

fuzz: $(VENV)/installed-fuzz
	$(BIN)/python -m fuzz.jobs --jobs $(JOBS) --pages 100
	$(BIN)/python -m fuzz.targets --all --seconds $(FUZZ)
	$(PYTEST) -m hypothesis --hypothesis-profile new

kills: $(VENV)/installed
	$(BIN)/python -m fuzz.kills --kills $(KILLS)

outages: $(VENV)/installed
	$(BIN)/python -m fuzz.outages --seconds $(SECONDS) --out reports/outages

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

# Other monitors of a machine, to measure record-job against; where they cannot be had, the table says so.
$(VENV)/monitors/bin/python:
	@$(PYTHON) -m venv $(VENV)/monitors
	@$@ -m pip install --quiet --disable-pip-version-check mlflow wandb \
		|| echo "W&B and MLflow could not be installed: they will not be measured."
	@$@ -m pip install --quiet --disable-pip-version-check torch \
		|| echo "PyTorch could not be installed: what needs it will not be measured."

# What else reads PyTorch traces, with libraries of its own versions.
$(VENV)/hta/bin/python:
	@$(PYTHON) -m venv $(VENV)/hta
	@$@ -m pip install --quiet --disable-pip-version-check HolisticTraceAnalysis \
		|| echo "HolisticTraceAnalysis could not be installed: it will not be measured."

# axe-core and the HTML checker for the browser tests; where they cannot be had, what needs them is skipped and says so.
$(AXE): tests/browser/package.json
	@npm install --prefix tests/browser --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel error \
		|| echo "axe-core and the HTML checker could not be installed: their tests will be skipped."
