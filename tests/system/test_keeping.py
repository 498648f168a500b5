"""Compiled kernels are kept on disk where there is a folder for them, and compiled all the same where there is none."""

import subprocess
import sys
import textwrap

import pytest

from xdeconv.system.keeping import kept

NOWHERE = textwrap.dedent("""
    import logging
    logging.basicConfig(format="%(message)s")
    from numba.core import caching
    for kind in caching.FunctionCache._impl_class.__mro__[:-1]:
        if "_locator_classes" in vars(kind):
            kind._locator_classes = []
    import numpy as np, xdeconv as xd
    X = np.random.default_rng(0).normal(size=(500, 2))
    print(xd.fit(X, 2, error=[0.3, 0.3], epochs=2).loglik)
""")


@pytest.mark.processes
def test_a_fit_without_a_folder_for_compiled_code():
    """As in a read-only install with a home that cannot be written."""
    done = subprocess.run([sys.executable, "-c", NOWHERE], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("set NUMBA_CACHE_DIR to a folder that can be written") == 1
    assert float(done.stdout) < 0


def test_a_full_disk_compiles_without_keeping():
    def compiled(keep):
        if keep:
            raise OSError(28, "No space left on device")
        return "made"

    assert kept(compiled) == "made"


def test_other_problems_are_not_hidden():
    def compiled(keep):
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        kept(compiled)
