"""Blocks of raw columns on their way from a table to a batch: joined, interleaved, pooled, and thinned by a hash."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..rows.thinning import within
from .readers import BLOCK_ROWS

Array = np.ndarray


@dataclass(frozen=True)
class Part:
    """The rows whose hash lies in [low, high): a fair sample, the same in every pass."""

    seed: int
    low: float
    high: float

    def mask(self, piece: int, position: Array) -> Array:
        """Which rows of a piece, by their places in it, belong to the part."""
        places = (np.uint64(piece) << np.uint64(40)) + position.astype(np.uint64)
        return within(places, self.seed, self.low, self.high)

    def count(self, piece: int, rows: int) -> int:
        """How many rows of a piece of so many belong to the part."""
        return _counted(self, piece, rows)


@dataclass(frozen=True)
class Block:
    """Raw columns of some rows of a piece, and the rows' places in it; ``checked``: none of them is bad."""

    columns: Mapping[str, Array]
    piece: int
    position: Array
    checked: bool = False

    @property
    def n(self) -> int:
        return len(self.position)

    @property
    def start(self) -> int:
        return int(self.position[0]) if self.n else 0

    def take(self, rows: Array | slice) -> Block:
        """Some of the rows."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Block(columns, self.piece, self.position[rows], self.checked)


def shares(rows: int, most: int) -> Iterator[slice]:
    """Rows in as few parts of about one size as have no more than ``most``.

    >>> list(shares(5, 2)), list(shares(0, 2))
    ([slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)], [])
    """
    size = -(-rows // max(1, -(-rows // most)))
    return (slice(start, min(start + size, rows)) for start in range(0, rows, max(1, size)))


def join(blocks: Sequence[Block]) -> Block:
    """One block of all rows."""
    if len(blocks) == 1:
        return blocks[0]
    names = blocks[0].columns
    columns = {name: np.concatenate([block.columns[name] for block in blocks]) for name in names}
    checked = all(block.checked for block in blocks)
    return Block(columns, blocks[0].piece, np.concatenate([block.position for block in blocks]), checked)


def gathered(blocks: Iterator[Block], rows: int) -> Iterator[list[Block]]:
    """Blocks in lists of so many rows, or a block more."""
    waiting: list[Block] = []
    count = 0
    for block in blocks:
        waiting += [block] if block.n else []
        count += block.n
        if count >= rows:
            yield waiting
            waiting, count = [], 0
    if waiting:
        yield waiting


def side_by_side(streams: Sequence[Iterator[Block]], width: int) -> Iterator[Block]:
    """Blocks of several streams in turn; a stream that ends gives its place to the next."""
    waiting = deque(streams)
    current: list[Iterator[Block]] = []
    while waiting or current:
        while waiting and len(current) < width:
            current.append(waiting.popleft())
        for stream in list(current):
            block = next(stream, None)
            if block is None:
                current.remove(stream)
            else:
                yield block


def pooled(blocks: Iterator[Block], limit: int, size: int) -> Iterator[tuple[Block, bool]]:
    """Blocks gathered into pools whose rows divide by ``size``, except the last; the rest waits for the next pool."""
    waiting: list[Block] = []
    count = 0
    for block in blocks:
        waiting.append(block)
        count += block.n
        if count >= limit:
            pool = join(waiting)
            whole = pool.n - pool.n % size
            waiting, count = [pool.take(np.arange(whole, pool.n))], pool.n - whole
            yield pool.take(slice(0, whole)), False
            del pool
    if count:
        yield join(waiting), True


@lru_cache(maxsize=1 << 16)
def _counted(part: Part, piece: int, rows: int) -> int:
    """In bounded memory, and once: a piece may be a whole file."""
    starts = range(0, rows, BLOCK_ROWS)
    return sum(int(part.mask(piece, np.arange(start, min(start + BLOCK_ROWS, rows))).sum()) for start in starts)
