"""Threads that are kept for the next piece of work.

To start a thread takes as long as a small batch, and the memory that a thread gave back is not what the next new one
takes. Work of one kind therefore goes to threads that did such work before.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable
from queue import SimpleQueue

KEPT = 2 * (os.cpu_count() or 1)  # idle threads of a kind
_idle: defaultdict[str, list[SimpleQueue[Task]]] = defaultdict(list)  # where each waits for work
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # threads stay with the parent


class Task:
    """A piece of work that a thread does."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work: Callable[[], object] | None = work
        self.problem: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        """Do it; what it raises is kept."""
        assert self.work is not None
        try:
            self.work()
        except BaseException as problem:
            self.problem = problem
        self.work = None

    def wait(self) -> None:
        """Until it is done; what it raised is raised here."""
        self.done.wait()
        if self.problem is not None:
            raise self.problem


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


def together(kind: str, work: Callable[[int], object], threads: int) -> None:
    """work(0), work(1), ... side by side: the first here, the others in threads."""
    others = [begin(kind, lambda i=i: work(i)) for i in range(1, threads)]  # type: ignore[misc]
    try:
        work(0)
    finally:
        for task in others:
            task.done.wait()
    for task in others:
        task.wait()


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
