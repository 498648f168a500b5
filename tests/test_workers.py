"""Threads that are kept: work is done, what it raises arrives, threads are used again, and none survives a fork."""

import multiprocessing
import threading

import pytest

from xdeconv import workers
from xdeconv.workers import begin, together


def test_a_thread_is_used_again():
    names = []
    for _ in range(20):
        begin("test again", lambda: names.append(threading.get_ident())).wait()
    assert len(set(names)) == 1


def test_side_by_side():
    meeting = threading.Barrier(3)
    found = []

    def work(i):
        meeting.wait(timeout=30)
        found.append(i)

    together("test side", work, 3)
    assert sorted(found) == [0, 1, 2]


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_what_work_raises_is_raised_when_all_is_done(bad):
    found = []

    def work(i):
        if i == bad:
            raise ZeroDivisionError(i)
        found.append(i)

    with pytest.raises(ZeroDivisionError):
        together("test raises", work, 3)
    assert sorted(found) == sorted({0, 1, 2} - {bad})
    together("test raises", found.append, 3)
    assert len(found) == 5


def test_idle_threads_are_few():
    started = threading.Barrier(workers.KEPT + 6)
    tasks = [begin("test few", lambda: started.wait(timeout=30)) for _ in range(workers.KEPT + 5)]
    started.wait(timeout=30)
    for task in tasks:
        task.wait()
    assert len(workers._idle["test few"]) <= workers.KEPT


def _in_child(_):
    found = []
    begin("test fork", lambda: found.append(1)).wait()
    return found


@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_starts_its_own():
    assert _in_child(0) == [1]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map_async(_in_child, [0]).get(timeout=60) == [[1]]
