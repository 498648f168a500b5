"""Threads that are kept: work is done, what it raises arrives, threads are used again, and none survives a fork."""

import multiprocessing
import threading
import time

import pytest
import torch

from xdeconv.rows.prefetch import prefetched
from xdeconv.system import threads as workers
from xdeconv.system.threads import begin, each, together


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


def test_work_has_the_callers_number_of_torch_threads():
    before = torch.get_num_threads()
    found = []
    try:
        for number in (1, 2, 1):
            torch.set_num_threads(number)
            begin("test torch", lambda: found.append(torch.get_num_threads())).wait()
    finally:
        torch.set_num_threads(before)
    assert found == [1, 2, 1]


def test_a_reader_does_not_wait_for_itself():
    """As when garbage collection closes a generator in the thread that reads for it."""
    task = []
    waited = threading.Event()

    def work():
        while not task:
            time.sleep(0.001)
        task[0].wait()
        waited.set()

    task.append(begin("test itself", work))
    assert waited.wait(timeout=30)


def _close_in_child(items):
    items.close()


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_closes_what_its_parent_reads():
    items = prefetched(iter(range(10)))
    assert next(items) == 0
    child = multiprocessing.get_context("fork").Process(target=_close_in_child, args=(items,))
    child.start()
    child.join(timeout=30)
    assert child.exitcode == 0
    assert list(items) == list(range(1, 10))


def _in_child(_):
    found = []
    begin("test fork", lambda: found.append(1)).wait()
    return found


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_starts_its_own():
    assert _in_child(0) == [1]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map_async(_in_child, [0]).get(timeout=60) == [[1]]


def test_what_is_done_side_by_side_ends_early_when_one_piece_is_interrupted():
    begun, ended = threading.Barrier(2), threading.Event()

    def work(i):
        begun.wait(timeout=30)
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        for _ in range(3000):  # as a search that calls kernels
            time.sleep(0.01)
            together("test inside", lambda _: None, 1)
        ended.set()

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            each([0, 1], work)
    finally:
        torch.set_num_threads(before)
    assert not ended.is_set()
    together("test inside", lambda _: None, 1)  # the next work is not halted
