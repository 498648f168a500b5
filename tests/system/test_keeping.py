"""Compiled kernels are kept on disk where there is a folder for them, and compiled all the same where there is none."""

import subprocess
import sys
import textwrap

import pytest
from numba import types

from xdeconv.kernels.cpu import low_rank
from xdeconv.system import keeping
from xdeconv.system.keeping import compiled_loop, kept
from xdeconv.system.progress import Progress, tell

NOWHERE = textwrap.dedent("""
    import logging, sys
    logging.basicConfig(format="%(message)s")
    from numba.core import caching, event
    for kind in caching.FunctionCache._impl_class.__mro__[:-1]:
        if "_locator_classes" in vars(kind):
            kind._locator_classes = []
    with event.install_recorder("numba:compile") as compiled:
        import numpy as np, xdeconv as xd
        xd.fit(np.random.default_rng(1).normal(size=(500, 2)), 2, error=[0.3, 0.3])
    print({e.data["dispatcher"].py_func.__module__ for _, e in compiled.buffer} & {"numba.cpython.unicode"})
    print({"scipy.stats", "scipy.optimize", "sklearn", "pandas"} & set(sys.modules))
    X = np.random.default_rng(0).normal(size=(500, 2))
    print(xd.fit(X, 2, error=[0.3, 0.3], epochs=2).loglik)
""")


@pytest.mark.processes
def test_a_fit_without_a_folder_for_compiled_code():
    """As in a read-only install with a home that cannot be written."""
    done = subprocess.run([sys.executable, "-c", NOWHERE], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("set NUMBA_CACHE_DIR to a folder that can be written") == 1
    compiled, imported, loglik = done.stdout.splitlines()
    assert compiled == "set()", "an assignment of slices compiles a message about shapes, which takes seconds"
    assert imported == "set()"
    assert float(loglik) < 0


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


@pytest.fixture
def said(caplog):
    """What is said to be compiled, as in a new process."""
    keeping.say_compiling.cache_clear()
    caplog.set_level("INFO", logger="xdeconv")
    return lambda: [r.getMessage().partition(" (")[0] for r in caplog.records if "compiling" in r.getMessage()]


def test_a_loop_is_said_before_it_is_compiled_and_not_when_it_is_read(said, tmp_path, monkeypatch):
    (tmp_path / "some_loop.py").write_text("def work(x):\n    for i in range(len(x)):\n        x[i] += 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    work, signature = __import__("some_loop").work, types.void(types.float64[::1])
    with Progress(shown=False) as progress:
        tell("searching")
        compiled_loop(work, signature, "some loop")
        assert progress.text == "searching"  # again: it is no longer compiling
    assert said() == ["compiling CPU kernels for some loop"]
    keeping.say_compiling.cache_clear()
    compiled_loop(work, signature, "some loop")
    assert len(said()) == 1


def test_what_is_said_is_shown_while_it_is_compiled(said):
    def compiled(_):
        keeping.say_compiling("some step")
        return progress.text

    with Progress(shown=False) as progress:
        assert kept(compiled) == "compiling CPU kernels for some step"


def test_covariances_of_low_rank_that_are_on_disk_are_not_said_to_be_compiled(said):
    low_rank.loop(False)
    low_rank.loop.cache_clear()
    keeping.say_compiling.cache_clear()
    before = len(said())
    low_rank.loop(False)
    assert len(said()) == before
