"""Streams worked on side by side: several threads draw items, and what is made of them comes in the items' order.

A stream is read by one thread at a time. A thread begins a stream of its own while there are any that nobody has begun;
then it helps where items are waited for. So many small files are read in parallel, and one long file is read by one
thread at a time while the others work on what it gave. Results come in order, and a problem is raised where its item
would have come: nothing that a caller sees depends on the number of threads.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import torch

from . import threads as cores
from .memory import free

S = TypeVar("S")
T = TypeVar("T")
Make = Callable[[], Iterator[S]]
AHEAD = 2  # results of a thread that may wait to be taken
STARVED_SHARE, STARVED_BYTES = 0.125, 1 << 26  # of the free memory, and of a thread: results while the caller waits


def in_order(
    streams: Sequence[Make[S]],
    function: Callable[[S], T],
    workers: int | None = None,
    size: Callable[[T], int] | None = None,
) -> Iterator[T]:
    """function(item) of each item of each stream, in order, made by ``workers`` threads that run ahead of the caller.

    Of long streams, each of which one thread at a time reads, the others must be read far ahead for all threads to have
    work: ``size`` tells the bytes of a result, so that as many may wait as fit, while the caller waits for another.
    Closing the iterator ends their work. What they call knows the caller's progress, and shows none of its own.

    >>> list(in_order([lambda: iter("ab"), lambda: iter("c")], str.upper))
    ['A', 'B', 'C']
    """
    count = workers or cores.threads()
    shared = _Queue(streams, function, AHEAD * count, size)
    tasks = []
    try:
        for _ in range(count):
            tasks.append(cores.begin("stream", partial(copy_context().run, shared.work)))
        while (result := shared.take()) is not None:
            yield result.pop()
    finally:
        shared.stop()
        for task in tasks:
            task.settle()
        shared.close()


def total(streams: Sequence[Make[S]], value: Callable[[S], torch.Tensor]) -> torch.Tensor | None:
    """The sum of value(item) over all items of all streams, added in their order; None where there are none.

    >>> total([lambda: iter([1.0, 2.0]), lambda: iter([3.0])], lambda x: torch.tensor(x * x))
    tensor(14.)
    """
    shared = _Sum(streams, value)
    try:
        cores.together("total", lambda _: shared.work(), cores.threads(), shared.stop)
        shared.add()
    finally:
        shared.stop()
        shared.close()
    shared.refuse()
    return shared.sum


@dataclass
class _Stream(Generic[S]):
    """One stream: who reads it holds the lock."""

    make: Make[S]
    lock: threading.Lock = field(default_factory=threading.Lock)
    items: Iterator[S] | None = None
    drawn: int = 0
    readers: int = 0
    ended: bool = False

    def draw(self) -> tuple[int, S] | None:
        """The next item with its number, or None where there is no more."""
        with self.lock:
            if self.ended:
                return None
            self.items = self.make() if self.items is None else self.items
            try:
                item = next(self.items)
            except BaseException as problem:
                self.ended = True
                if isinstance(problem, StopIteration):
                    return None
                raise
            self.drawn += 1
            return self.drawn - 1, item


class _Shared(ABC, Generic[S, T]):
    """What threads share: the streams, results that wait for their turn, and the first problem."""

    def __init__(self, streams: Sequence[Make[S]], function: Callable[[S], T], limit: int) -> None:
        self.streams = [_Stream(make) for make in streams]
        self.function, self.limit = function, limit
        self.changed = threading.Condition()
        self.ready: dict[tuple[int, int], T] = {}
        self.place = (0, 0)  # of the result that is to come next
        self.active: list[int] = []  # streams that were begun and have not ended, as far as is known
        self.begun = 0
        self.problem: tuple[tuple[int, int], BaseException] | None = None
        self.stopped = False

    # What threads do

    def work(self) -> None:
        """Draw items and make results until there are no more."""
        with cores.sharing():
            number = self._choose(None)
            while number is not None:
                self._one(number)
                number = self._choose(number)

    def _one(self, number: int) -> None:
        stream, index = self.streams[number], self.streams[number].drawn
        try:
            drawn = stream.draw()
            if drawn is not None:
                index = drawn[0]
                made = self.function(drawn[1])
                del drawn
                self._put((number, index), made)
        except Exception as problem:
            self._fail((number, index), problem)
        except BaseException as problem:  # an interrupt, which comes before all else
            self._interrupt(problem)

    def _choose(self, mine: int | None) -> int | None:
        """The stream to draw from next: the same as before, a new one, or the one that is waited for."""
        with self.changed:
            if mine is not None:
                self.streams[mine].readers -= 1
                self.changed.notify_all()
            while not self.stopped:
                open_ = self._open()
                if not open_:
                    return None
                if self._may_draw():
                    return self._begin(mine if mine in open_ else min(open_, key=self._readers))
                if open_[0] == self.place[0] and self.streams[open_[0]].drawn <= self.place[1]:
                    return self._begin(open_[0])
                self.changed.wait()  # the result that is to come next is there, or being made
            return None

    def _open(self) -> list[int]:
        """Streams that may be drawn from, in order: those that were begun, and the next. Of many, few are looked at."""
        last = len(self.streams) - 1 if self.problem is None else self.problem[0][0]
        self.active = [i for i in self.active if not self.streams[i].ended]
        return [i for i in (*self.active, self.begun) if i <= last]

    def _begin(self, number: int) -> int:
        if number == self.begun:
            self.active.append(number)
            self.begun += 1
        self.streams[number].readers += 1
        return number

    def _readers(self, i: int) -> int:
        return self.streams[i].readers

    def _may_draw(self) -> bool:
        """Whether there is room for another result."""
        return len(self.ready) < self.limit

    @abstractmethod
    def _put(self, place: tuple[int, int], made: T) -> None:
        """Take a result."""

    def _fail(self, place: tuple[int, int], problem: BaseException) -> None:
        """Keep the first problem in the order of the items; what comes after it is not worked on any more."""
        with self.changed:
            self.streams[place[0]].ended = True
            if self.problem is None or place < self.problem[0]:
                self.problem = (place, problem)
            self.changed.notify_all()

    def _interrupt(self, problem: BaseException) -> None:
        with self.changed:
            self.problem, self.stopped = ((-1, -1), problem), True
            self.changed.notify_all()

    # What the caller does

    def _advance(self) -> None:
        """Go to the next stream where all of one were taken."""
        while self.place[0] < len(self.streams):
            stream = self.streams[self.place[0]]
            failed = self.problem is not None and self.problem[0][0] == self.place[0]
            if failed or not stream.ended or self.place[1] < stream.drawn:
                return
            self.place = (self.place[0] + 1, 0)

    def refuse(self) -> None:
        """Raise the first problem, if there is one."""
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem[1]

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    def close(self) -> None:
        """End the streams, and forget what was not taken; after all threads are done."""
        self.ready.clear()
        for stream in self.streams:
            if isinstance(stream.items, Generator):
                stream.items.close()
            stream.items = None


class _Queue(_Shared[S, T]):
    """Results that the caller takes one by one, in order."""

    def __init__(
        self, streams: Sequence[Make[S]], function: Callable[[S], T], limit: int, size: Callable[[T], int] | None
    ) -> None:
        super().__init__(streams, function, limit)
        self.size = size
        most = STARVED_BYTES * limit // AHEAD
        self.room = 0 if size is None else min(most, int(STARVED_SHARE * free()))
        self.starved = False  # whether the caller waits for a result

    def _put(self, place: tuple[int, int], made: T) -> None:
        taken = 0 if self.size is None else self.size(made)
        with self.changed:
            self.ready[place] = made
            self.room -= taken
            self.changed.notify_all()

    def _may_draw(self) -> bool:
        return super()._may_draw() or (self.starved and self.room > 0)

    def take(self) -> list[T] | None:
        """The next result, in a list of one; None at the end. A problem is raised in its turn."""
        with self.changed:
            while True:
                if self.problem is not None and self.stopped:
                    self.refuse()
                self._advance()
                if self.place in self.ready:
                    values = [self.ready.pop(self.place)]
                    self.room += 0 if self.size is None else self.size(values[0])
                    self.place = (self.place[0], self.place[1] + 1)
                    self.changed.notify_all()
                    return values
                if self.problem is not None and self.problem[0] <= self.place:
                    self.refuse()
                if self.place[0] >= len(self.streams) or self.stopped:
                    return None
                self._starve()

    def _starve(self) -> None:
        """Wait for a result, and let threads run ahead meanwhile."""
        self.starved = True
        if len(self.ready) >= self.limit and self.room > 0:
            self.changed.notify_all()
        self.changed.wait()
        self.starved = False


class _Sum(_Shared[Any, torch.Tensor]):
    """Results that are added as they come into their turn, by whichever thread made them."""

    def __init__(self, streams: Sequence[Make[S]], value: Callable[[S], torch.Tensor]) -> None:
        super().__init__(streams, value, 1 << 20)
        self.sum: torch.Tensor | None = None

    def _put(self, place: tuple[int, int], made: torch.Tensor) -> None:
        with self.changed:
            self.ready[place] = made
            self.add()

    def add(self) -> None:
        """Add what is next in order, as far as it is there."""
        self._advance()
        while self.place in self.ready:
            value = self.ready.pop(self.place)
            self.sum = value if self.sum is None else self.sum + value
            self.place = (self.place[0], self.place[1] + 1)
            self._advance()
