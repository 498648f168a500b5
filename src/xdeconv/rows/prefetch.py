"""Prefetch: a thread makes the next items while the caller works on the last."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..system.threads import begin
from .halves import in_halves

if TYPE_CHECKING:
    import torch

    from .batch import Batch

S = TypeVar("S")
T = TypeVar("T")
_END = object()
IN_FLIGHT = 3  # batches on a GPU that its kernels have not finished


def prefetched(items: Iterable[T], ahead: int = 1) -> Iterator[T]:
    """The same items, made by a thread at most ``ahead`` of the caller; its exceptions are raised here.

    Closing the iterator ends its work.

    >>> list(prefetched(range(3)))
    [0, 1, 2]
    """
    ready: queue.Queue[Any] = queue.Queue(maxsize=max(1, ahead))
    stopped = threading.Event()
    reading = None
    try:
        reading = begin("reader", partial(_fill, items, ready, stopped))
        del items
        while True:
            item, problem = ready.get()
            if problem is not None:
                raise problem
            if item is _END:
                return
            yield item
            del item
    finally:
        stopped.set()
        if reading is not None:
            reading.wait()


def _fill(items: Iterable[Any], ready: queue.Queue[Any], stopped: threading.Event) -> None:
    iterator = iter(items)
    try:
        for item in iterator:
            if not _put(ready, (item, None), stopped):
                return
            del item
        _put(ready, (_END, None), stopped)
    except BaseException as problem:
        _put(ready, (None, problem), stopped)
    finally:
        if isinstance(iterator, Generator):
            iterator.close()


def _put(ready: queue.Queue[Any], item: Any, stopped: threading.Event) -> bool:
    """Whether the item was taken before the reader was stopped."""
    while not stopped.is_set():
        try:
            ready.put(item, timeout=0.05)
            return True
        except queue.Full:
            continue
    return False


def in_turn(items: Iterable[S], function: Callable[[S], T], workers: int) -> Iterator[T]:
    """function(item) of each item, in order, by so many threads; no more than that many items wait.

    >>> list(in_turn([1, 2, 3], str, workers=2))
    ['1', '2', '3']
    """
    if workers <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def prefetched_to(batches: Iterable[Batch], convert: Callable[[Batch], Batch], device: torch.device) -> Iterator[Batch]:
    """Batches converted by a reader thread; on a GPU from pinned memory, on a stream that overlaps with kernels."""
    if device.type != "cuda":
        return prefetched(map(convert, batches))
    return _overlapped(batches, lambda batch: in_halves(lambda b: convert(b.to(device)), _pinned(batch)), device)


def overlapped(items: Iterable[S], ready: Callable[[S], Batch], device: torch.device) -> Iterator[Batch]:
    """ready(item) of each item, on a GPU by a thread with a stream of its own: copies overlap with kernels."""
    if device.type != "cuda":
        return prefetched(map(ready, items))
    return _overlapped(items, lambda item: [ready(item)], device)


def _overlapped(items: Iterable[S], ready: Callable[[S], Iterable[Batch]], device: torch.device) -> Iterator[Batch]:
    """The batches that each item becomes, made on a stream of their own.

    Launches return long before a GPU has worked through them. So that batches do not pile up on it, one is handed out
    only when the one three before it is done with.
    """
    import torch

    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))

    def moved() -> Iterator[tuple[Batch, Any]]:
        with torch.cuda.stream(stream):  # what makes the items may work on the GPU too
            for item in items:
                for batch in ready(item):
                    yield batch, stream.record_event()

    used: deque[Any] = deque()
    for batch, done in prefetched(moved()):
        current = torch.cuda.current_stream(device)
        current.wait_event(done)
        for tensor in _tensors(batch).values():
            tensor.record_stream(current)
        yield batch
        del batch
        used.append(torch.cuda.current_stream(device).record_event())
        if len(used) >= IN_FLIGHT:
            used.popleft().synchronize()


def _tensors(batch: Batch) -> dict[str, torch.Tensor]:
    import torch

    return {name: value for name, value in vars(batch).items() if isinstance(value, torch.Tensor)}


def _pinned(batch: Batch) -> Batch:
    plain = {name: t for name, t in _tensors(batch).items() if not (t.is_cuda or t.is_pinned())}
    pinned: dict[str, Any] = {name: tensor.pin_memory() for name, tensor in plain.items()}
    return replace(batch, **pinned)
