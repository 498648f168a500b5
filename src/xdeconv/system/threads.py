"""Threads that are kept for the next piece of work.

To start a thread takes as long as a small batch, and the memory that a thread gave back is not what the next new one
takes. Work of one kind therefore goes to threads that did such work before.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

import torch

from .machine import after_fork_in_child, cores

S = TypeVar("S")
T = TypeVar("T")
KEPT = 2 * (os.cpu_count() or 1)  # idle threads of a kind
_idle: defaultdict[str, list[SimpleQueue[Task]]] = defaultdict(list)  # where each waits for work


def _alone_after_fork() -> None:
    """A forked child has none of its parent's threads, ours or torch's: it would wait for ever for their answer."""
    _idle.clear()
    _here.kept = 0
    torch.set_num_threads(1)


after_fork_in_child(_alone_after_fork)


class _Here(threading.local):
    """What a thread may use: whether it shares the cores with others, and how many threads kernels keep.

    ``halt`` is set when what it works for has failed or was interrupted.
    """

    shared = False
    kept = 0
    halt: threading.Event | None = None


_here = _Here()


def threads() -> int:
    """How many threads may compute: as many as torch may use, on cores there are; one within :func:`sharing`."""
    return 1 if _here.shared else _here.kept or min(cores(), torch.get_num_threads())


@contextmanager
def small_algebra() -> Iterator[None]:
    """torch's own operations in one thread, kernels in as many as before.

    The algebra of a fit is small, and threads that torch wakes for it wait in a loop, on cores that kernels want: on
    two busy cores a search took six times as long with them.
    """
    before, kept = torch.get_num_threads(), _here.kept
    _here.kept = threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _here.kept = kept
        torch.set_num_threads(before)


class Halted(Exception):
    """Nobody waits for this work any more."""


@contextmanager
def sharing(halt: threading.Event | None = None) -> Iterator[None]:
    """One of several threads that share the cores: what it calls, torch among it, computes in this thread alone.

    Once ``halt`` is set, the next call of :func:`together` within it raises.
    """
    before, torch_threads = (_here.shared, _here.halt), torch.get_num_threads()
    _here.shared, _here.halt = True, halt or _here.halt
    torch.set_num_threads(1)  # each thread remembers its own
    try:
        yield
    finally:
        _here.shared, _here.halt = before
        torch.set_num_threads(torch_threads)


class Task:
    """A piece of work that a thread does."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work: Callable[[], object] | None = work
        self.problem: BaseException | None = None
        self.done = threading.Event()
        self.process, self.thread = os.getpid(), 0
        self.torch_threads = torch.get_num_threads()

    def run(self) -> None:
        """Do it, with as many threads of torch's as where it was begun; what it raises is kept."""
        assert self.work is not None
        self.thread = threading.get_ident()
        if torch.get_num_threads() != self.torch_threads:
            torch.set_num_threads(self.torch_threads)  # each thread remembers its own
        try:
            self.work()
        except BaseException as problem:
            self.problem = problem
        self.work = None

    def settle(self) -> None:
        """Wait until it is done; not for a thread that stayed behind in a fork's parent, nor for this one itself."""
        if self.process == os.getpid() and self.thread != threading.get_ident():
            self.done.wait()

    def wait(self) -> None:
        """Until it is done; what it raised is raised here."""
        self.settle()
        problem, self.problem = self.problem, None
        try:
            if problem is not None:
                raise problem
        finally:
            del problem


def begin(kind: str, work: Callable[[], object]) -> Task:
    """Have a thread do the work: one that waits for this kind of it, or a new one.

    >>> found = []
    >>> begin("example", lambda: found.append(1)).wait()
    >>> found
    [1]
    """
    task = Task(work)
    try:
        inbox = _idle[kind].pop()
    except IndexError:
        inbox = SimpleQueue()
        threading.Thread(target=_serve, args=(kind, inbox), daemon=True, name=f"xdeconv {kind}").start()
    inbox.put(task)
    return task


def together(kind: str, work: Callable[[int], object], count: int, stop: Callable[[], object] = lambda: None) -> None:
    """work(0), work(1), ... side by side: the first here, the others in threads, told to ``stop`` at a problem here."""
    if _here.halt is not None and _here.halt.is_set():
        raise Halted
    others: list[Task] = []
    try:
        for i in range(1, count):
            others.append(begin(kind, partial(work, i)))
        work(0)
    except BaseException:
        stop()
        raise
    finally:
        for task in others:
            task.settle()
    for task in others:
        task.wait()


def each(items: Sequence[S], function: Callable[[S], T]) -> list[T]:
    """function(item) of all items, in their order: each thread takes the next item and works on it alone.

    Where one fails or is interrupted here, the others end at their next call of a kernel.

    >>> each([1, 2, 3], lambda x: x * x)
    [1, 4, 9]
    """
    results: dict[int, T] = {}
    turn, halt = itertools.count(), threading.Event()

    def work(_: int) -> None:
        with sharing(halt):
            while (i := next(turn)) < len(items) and not halt.is_set():
                results[i] = function(items[i])

    together("each", work, min(threads(), len(items)), halt.set)
    return [results[i] for i in range(len(items))]


def _serve(kind: str, inbox: SimpleQueue[Task]) -> None:
    while True:
        task = inbox.get()
        task.run()
        keep = len(_idle[kind]) < KEPT
        if keep:
            _idle[kind].append(inbox)  # before anybody learns that the work is done, so that it is found
        task.done.set()
        del task
        if not keep:
            return
