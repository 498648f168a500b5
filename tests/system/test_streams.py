"""Streams worked on side by side: order, problems, interrupts and bounds do not depend on the number of threads."""

import os
import threading
import time
from itertools import islice

import pytest
import torch

from xdeconv.system import streams
from xdeconv.system import threads as workers
from xdeconv.system.streams import in_order, total


@pytest.mark.parametrize("many", [1, 2, 5])
def test_a_total_is_added_in_order_by_any_number_of_threads(many, monkeypatch):
    monkeypatch.setattr(workers, "threads", lambda: many)
    values = torch.randn(100, 7, generator=torch.Generator().manual_seed(0)) * 10.0 ** torch.arange(100)[:, None].sin()
    expected = values[0].clone()
    for value in values[1:]:
        expected += value

    def slowly(i):
        time.sleep(0.001 * (i % 3))
        return values[i]

    assert torch.equal(total([lambda: iter(range(100))], slowly), expected)
    assert total([lambda: iter([])], slowly) is None


def test_work_of_a_total_has_one_thread():
    assert total([lambda: iter(range(4))], lambda _: torch.tensor(workers.threads())) == 4


def test_a_total_stops_at_the_first_problem():
    drawn = []

    def items():
        for i in range(1000):
            drawn.append(i)
            yield i

    def value(i):
        if i == 3:
            raise ZeroDivisionError
        return torch.zeros(())

    with pytest.raises(ZeroDivisionError):
        total([items], value)
    assert len(drawn) < 100
    before = workers.threads()
    assert before == min(torch.get_num_threads(), len(os.sched_getaffinity(0)))


def test_an_interrupt_stops_the_other_threads(monkeypatch):
    monkeypatch.setattr(workers, "threads", lambda: 3)
    drawn, closed = [], []

    def items():
        try:
            for i in range(10_000):
                drawn.append(i)
                yield i
        finally:
            closed.append(True)

    def value(i):
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        time.sleep(0.001)
        return torch.zeros(())

    with pytest.raises(KeyboardInterrupt):
        total([items], value)
    seen = len(drawn)
    time.sleep(0.05)
    assert len(drawn) == seen < 100
    assert closed == [True]


def test_a_thread_that_cannot_start_stops_the_others(monkeypatch):
    monkeypatch.setattr(workers, "threads", lambda: 4)
    start, started = workers.begin, []

    def limited(kind, work):
        started.append(kind)
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        return start(kind, work)

    monkeypatch.setattr(workers, "begin", limited)
    drawn = []
    with pytest.raises(RuntimeError, match="can't start"):
        total([lambda: iter(drawn.append(i) or i for i in range(100_000))], lambda _: torch.zeros(()))
    seen = len(drawn)
    time.sleep(0.05)
    assert len(drawn) == seen < 100_000


def counted(lengths, drawn):
    """Streams of (stream, item), which say what was drawn."""

    def stream(i, length):
        for j in range(length):
            drawn.append((i, j))
            yield i, j

    return [lambda i=i, length=length: stream(i, length) for i, length in enumerate(lengths)]


LENGTHS = [3, 0, 50, 1, 0, 7, 20, 2, 0]
EVERYTHING = [(i, j) for i, length in enumerate(LENGTHS) for j in range(length)]


@pytest.mark.parametrize("many", [1, 2, 3, 16])
def test_results_come_in_order_from_any_number_of_threads(many):
    def slowly(place):
        time.sleep(0.001 * (sum(place) % 3))
        return place

    drawn = []
    assert list(in_order(counted(LENGTHS, drawn), slowly, many)) == EVERYTHING
    assert sorted(drawn) == EVERYTHING
    assert list(in_order([], slowly, many)) == []


@pytest.mark.parametrize("many", [1, 2, 5])
def test_a_sum_over_streams_has_the_same_bits(many, monkeypatch):
    monkeypatch.setattr(workers, "threads", lambda: many)
    values = {place: torch.randn(3, generator=torch.Generator().manual_seed(i)) for i, place in enumerate(EVERYTHING)}
    expected = sum(list(values.values())[1:], values[EVERYTHING[0]])

    def slowly(place):
        time.sleep(0.002 * (sum(place) % 2))
        return values[place]

    assert torch.equal(total(counted(LENGTHS, []), slowly), expected)


@pytest.mark.parametrize("many", [1, 2, 5])
def test_the_first_problem_in_order_is_the_one_that_is_raised(many, monkeypatch):
    monkeypatch.setattr(workers, "threads", lambda: many)

    def fails(place):
        if place == (2, 40):
            time.sleep(0.02)  # found last
            raise ValueError("first")
        if place[0] > 4:
            raise ValueError(f"later {place}")
        return torch.zeros(())

    with pytest.raises(ValueError, match="first"):
        total(counted(LENGTHS, []), fails)
    seen = []
    with pytest.raises(ValueError, match="first"):
        seen.extend(in_order(counted(LENGTHS, []), lambda place: (fails(place), place)[1], many))
    assert seen == EVERYTHING[: EVERYTHING.index((2, 40))]


def test_a_problem_of_a_stream_is_raised_in_its_turn():
    def broken():
        yield 1
        raise OSError("damaged")

    found = []
    with pytest.raises(OSError, match="damaged"):
        found.extend(in_order([lambda: iter([0]), broken, lambda: iter([2])], int, 3))
    assert found == [0, 1]


def test_threads_do_not_run_far_ahead_of_a_slow_caller():
    drawn = []
    results = in_order(counted([1000, 1000, 1000], drawn), tuple, 3)
    next(results)
    time.sleep(0.1)
    assert len(drawn) < 30
    results.close()
    seen = len(drawn)
    time.sleep(0.05)
    assert len(drawn) == seen


def test_two_threads_read_two_streams_at_a_time():
    both = threading.Barrier(2, timeout=5)

    def stream():
        both.wait()
        yield 1

    assert list(in_order([stream, stream], int, 2)) == [1, 1]


@pytest.mark.parametrize("many", [1, 2, 4])
def test_an_interrupt_in_a_thread_is_raised_and_no_end(many, monkeypatch):
    monkeypatch.setattr(workers, "threads", lambda: many)

    def interrupted(place):
        if place == (2, 7):
            raise KeyboardInterrupt
        return torch.zeros(())

    with pytest.raises(KeyboardInterrupt):
        list(in_order(counted(LENGTHS, []), interrupted, many))
    with pytest.raises(KeyboardInterrupt):
        total(counted(LENGTHS, []), interrupted)


def long_streams(far):
    """Two streams, of which the first waits until the second was read as far as that."""
    reached = threading.Event()

    def first():
        yield 0
        yield reached.wait(5)

    def second():
        for i in range(2 * far):
            if i == far:
                reached.set()
            yield i

    return [first, second]


def test_threads_read_far_ahead_of_a_caller_that_waits():
    assert next(islice(in_order(long_streams(50), int, 2, size=lambda _: 8), 1, None))


def test_threads_read_no_further_ahead_than_results_have_room(monkeypatch):
    monkeypatch.setattr(streams, "STARVED_BYTES", 15 * 8)  # of a thread
    found = in_order(long_streams(20), int, 2, size=lambda _: 8)
    assert list(islice(found, 2)) == [0, 1]
    found.close()
    drawn = []
    results = in_order(counted([1000, 1000, 1000], drawn), tuple, 3, size=lambda _: 8)
    next(results)
    time.sleep(0.1)  # a slow caller does not wait
    assert len(drawn) < 60
    assert len(list(results)) == 2999
    monkeypatch.setattr(streams, "STARVED_BYTES", 5 * 8)
    waiting = in_order(long_streams(20), lambda i: i, 2, size=lambda _: 8)
    assert next(waiting) == 0
    assert next(waiting) is False  # the event was never set
