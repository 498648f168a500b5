"""The package as a whole: lazy imports, public names, layers."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import xdeconv as xd


@pytest.mark.processes
def test_importing_xdeconv_imports_no_torch():
    code = "import sys, xdeconv; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_there_and_documented():
    for name in xd.__all__:
        assert getattr(xd, name).__doc__, name
    assert set(xd.__all__) <= set(dir(xd))


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        xd.nothing  # noqa: B018


def test_the_citation_has_the_version_and_the_date_of_the_changelog():
    citation, changes = (Path(__file__).parents[2] / name for name in ("CITATION.cff", "CHANGELOG.md"))
    found = re.search(r"^version: (.*)\ndate-released: (.*)$", citation.read_text(encoding="utf-8"), re.MULTILINE)
    assert found[1] == xd.__version__
    newest = next(line for line in changes.read_text(encoding="utf-8").splitlines() if line.startswith("## "))
    assert newest == f"## {found[1]} ({found[2]})"
