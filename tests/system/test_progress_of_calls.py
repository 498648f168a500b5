"""Progress: shown where somebody watches, and by default only of what takes long."""

import sys
import time
from typing import ClassVar

import pytest

import xdeconv as xd
from xdeconv.system import progress as module
from xdeconv.system.progress import Progress, progress_of_call, tell


class Recorded:
    """A view that remembers."""

    said: ClassVar[list[str]] = []

    def __init__(self, *_):
        pass

    def show(self, text, done, total, step):
        self.said.append(text)

    def close(self):
        self.said.append("closed")


@pytest.fixture
def terminal(monkeypatch):
    """What a person at a terminal would see."""
    Recorded.said = []
    monkeypatch.setattr(module, "_Bar", Recorded)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    return Recorded.said


def test_a_long_call_is_shown_by_default_and_a_short_one_is_not(terminal):
    with progress_of_call(None, None):
        tell("short")
    assert terminal == []
    with Progress(delay=0.05, lines=False):
        tell("waiting for one long step")
        time.sleep(0.3)
    assert terminal == ["waiting for one long step", "closed"]


def test_false_silences_it(terminal):
    with progress_of_call(False, None):
        tell("anything")
    assert terminal == []


def test_without_a_terminal_nothing_is_written_unless_asked(capfd):
    with Progress(delay=0.0, lines=False):
        tell("nobody sees this")
    assert capfd.readouterr().err == ""
    with progress_of_call(True, None):
        tell("asked for")
    assert "asked for" in capfd.readouterr().err


def test_work_inside_work_that_is_shown_speaks_there(terminal):
    with progress_of_call(True, None), progress_of_call(None, None) as inner:
        assert not inner.shown
        tell("deep inside")
    assert "deep inside" in terminal


def test_a_fit_tells_what_it_does(terminal):
    X = xd.Mixture([0.5, 0.5], [[0.0], [5.0]], [[[1.0]], [[1.0]]]).sample(300, seed=0)
    xd.fit(X, 2, noise=[[0.1]] * 300, verbose=True)
    text = "\n".join(terminal)
    for stage in ("reading rows", "looking for a start", "searching", "epoch 1 "):
        assert stage in text, stage


def test_a_fit_in_a_script_is_silent(capfd):
    xd.fit([[0.0], [1.0], [2.0]], 1, noise=[[0.1]] * 3)
    assert capfd.readouterr().err == ""


def test_what_was_compiled_before_is_not_said_again(caplog):
    from xdeconv.kernels.cpu import tiles

    caplog.set_level("INFO", logger="xdeconv")
    X = [[0.0, 0.0, 0.0], [1.0, 2.0, 1.0], [2.0, 0.0, 1.0], [0.5, 1.0, 3.0]]
    xd.fit(X, 1, noise=[[0.1] * 3] * 4, epochs=3)
    caplog.clear()
    tiles.compiled.cache_clear()  # as a new process would, with the code on disk
    xd.fit(X, 1, noise=[[0.1] * 3] * 4, epochs=3)
    assert not any("compiling" in record.getMessage() for record in caplog.records)
