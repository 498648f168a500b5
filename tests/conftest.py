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
    parser.addoption("--redraw", action="store_true", help="draw tests/plot/pictures again: look at them")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    return request.config.getoption("--device")
