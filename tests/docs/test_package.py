"""The package as a whole: lazy imports, public names, layers."""

import subprocess
import sys

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
