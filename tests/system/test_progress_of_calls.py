"""Progress: shown where somebody watches, and by default only of what takes long."""

import sys
import time
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import xdeconv as xd
from xdeconv.system import progress as module
from xdeconv.system.progress import Progress, progress_of_call, tell
from xdeconv.system.streams import in_order


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


def test_threads_that_work_for_a_call_that_is_shown_show_nothing_of_their_own(terminal):
    def question(_):
        with progress_of_call(None, None) as inner:
            return inner.shown

    with progress_of_call(True, None):
        assert list(in_order([lambda: iter(range(3))], question)) == [False] * 3


@pytest.fixture
def rows(tmp_path):
    """A file of 4,000 rows, and a mixture of them."""
    X = np.random.default_rng(0).normal(size=(4000, 2))
    columns = {"x": X[:, 0], "y": X[:, 1], "x_error": np.full(4000, 0.1), "y_error": np.full(4000, 0.1)}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=1000)
    return tmp_path / "rows.parquet", xd.Mixture([0.5, 0.5], [[0, 0], [1, 1]], [np.eye(2)] * 2, labels=["x", "y"])


@pytest.mark.parametrize("question", ["log_prob", "score", "posterior", "classifier"])
def test_questions_count_to_the_number_of_rows(monkeypatch, rows, question):
    path, mixture = rows
    counts = []
    monkeypatch.setattr(Progress, "_show", lambda self, step=False: counts.append((self.done, self.total)))
    monkeypatch.setattr(module.time, "monotonic", iter(range(0, 1000, 10)).__next__)
    if question == "classifier":
        xd.Classifier({"a": mixture, "b": mixture}, "equal").predict_proba(path)
    elif question == "posterior":
        mixture.posterior(path).moments()
    else:
        getattr(mixture, question)(path)
    assert counts[-1] == (4000, 4000)


def test_what_only_reading_tells_is_not_counted_for_progress(rows):
    path, _ = rows
    assert xd.open(path, ["x", "y"], memory=False).known_rows == 4000
    some = xd.open(path, ["x", "y"], memory=False, where="x > 0")
    assert some.known_rows is None
    counted = some.rows
    assert some.known_rows == counted


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
