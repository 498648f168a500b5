# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
STAMP  := $(VENV)/.installed

.PHONY: demo test check docs clean ranges audit

demo: $(STAMP)
	$(RUN) -m xdeconv demo

test: check

check: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(RUN) -m pytest -n 2

docs: $(STAMP)
	$(RUN) -m pip install --quiet --constraint requirements/dev.txt --constraint requirements/docs.txt --editable ".[docs]"
	$(RUN) -m sphinx -W --keep-going -b html docs docs/_build/html

$(STAMP): pyproject.toml requirements/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet --constraint requirements/dev.txt --editable ".[dev]"
	touch $@

# The ranges of pyproject.toml at their lowest and newest versions, each in an environment of its own.
ranges: $(STAMP)
	$(RUN) requirements/ranges.py

# Known vulnerabilities of the pinned versions.
audit: $(STAMP)
	$(PYTHON) -m venv .ranges/audit
	.ranges/audit/bin/pip install --quiet pip-audit
	.ranges/audit/bin/pip-audit --requirement requirements/dev.txt --no-deps --disable-pip

clean:
	rm -rf $(VENV) build dist demo
