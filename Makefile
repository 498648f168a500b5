# Two commands do everything on a fresh machine: `make demo` and `make test`. `make quick` is for every few minutes.
PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
PAGES  := $(VENV)/.installed-docs
BUILD  := $(RUN) -m sphinx -W --keep-going -q -b html docs docs/_build/html
QUICK  := not slow and not docs and not processes and not browser and not interpreted

.PHONY: demo test check quick docs notebooks clean ranges audit

demo: $(STAMP)
	$(RUN) -m xdeconv demo

test: check

check: $(STAMP) $(PAGES)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(RUN) -m pytest -n 2
	$(BUILD)

# The fast part, meant to stay under a minute on two quiet cores: no documentation, processes, browser, interpreter.
quick: $(STAMP)
	$(RUN) -m pytest -n 2 --dist loadfile -m "$(QUICK)"

docs: $(PAGES)
	$(BUILD)

# The pages of the gallery as Jupyter notebooks, in examples/.
notebooks:
	$(PYTHON) docs/notebooks.py examples

$(STAMP): pyproject.toml requirements/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet --constraint requirements/dev.txt --editable ".[dev]"
	touch $@

$(PAGES): $(STAMP) requirements/docs.txt
	$(RUN) -m pip install --quiet --constraint requirements/dev.txt --constraint requirements/docs.txt --editable ".[docs]"
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
	rm -rf $(VENV) build dist demo docs/_build
