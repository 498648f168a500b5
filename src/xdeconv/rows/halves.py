"""What a GPU has too little memory for is done in halves, and in halves of these."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from .batch import Batch

log = logging.getLogger("xdeconv")
T = TypeVar("T")


def in_halves(work: Callable[[Batch], T], batch: Batch) -> Iterator[T]:
    """work(batch), or work of its parts, one after the other, where a GPU has no room for the whole."""
    try:
        results = [work(batch)]
    except torch.cuda.OutOfMemoryError:
        if batch.n < 2:
            raise
    else:
        yield results.pop()  # nothing here holds on to it
        return
    torch.cuda.empty_cache()
    half = -(-batch.n // 2)
    say_halved(half)
    for part in batch.chunks(half):
        yield from in_halves(work, part)


@cache
def say_halved(rows: int) -> None:
    """Say so once for each size."""
    log.warning("the GPU has too little memory for a batch: it is computed in parts of %d rows", rows)
