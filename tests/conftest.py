"""Options of the test suite, and the settings that all tests share."""

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)  # the problems are small and several tests run at a time
pytest_plugins = ["commands"]
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # must be set before a Triton kernel is defined


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="where kernels run")
    parser.addoption("--redraw", action="store_true", help="draw pictures of tests and thumbnails again: look at them")


LONG_EXAMPLES = {"compat", "simulate", "studies"}  # rooms whose docstrings fit and simulate


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of tests with many cases, `make quick` runs some and `make test` all: the others of the sampled are slow."""
    cases: dict[str, int] = {}
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.path.parent.name in LONG_EXAMPLES:
            item.add_marker("slow")
        mark = item.get_closest_marker("sampled")
        if mark is None:
            continue
        name = item.nodeid.split("[")[0]
        cases[name] = cases.get(name, -1) + 1
        if cases[name] % mark.args[0] if mark.args else cases[name]:
            item.add_marker("slow")


SUITES = {"browser": "tests in a browser", "interpreted": "tests of the Triton kernels"}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which whole kinds of tests did not run here, and why: a row of dots hides them."""
    skipped = terminalreporter.stats.get("skipped", [])
    for mark, what in SUITES.items():
        reasons = [report.longrepr[2].removeprefix("Skipped: ") for report in skipped if mark in report.keywords]
        for reason in dict.fromkeys(reasons):
            terminalreporter.write_line(f"NOT RUN: {reasons.count(reason)} {what}: {reason}", yellow=True)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("--device")
