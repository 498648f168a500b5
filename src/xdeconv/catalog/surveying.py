"""Surveying: one pass over a catalogue for all that a fit wants to know before its first.

Rows are counted and checked, weights are added, a fair sample is taken, and rows that are held out are kept. Of several
ranks that are ``together`` each goes through its part of the rows, and all know what all have found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..rows.batch import Batch
from ..rows.thinning import hashed
from ..system.ranks import from_all, rank, world
from ..system.streams import in_order
from .blocks import Block
from .reading import Blocks, Reader
from .recipe import floats
from .tally import Tally

SURVEY_ROWS = 1 << 17  # of a sample; smaller samples are the first rows of it
SPARE, MOST = 1.2, 4  # times more rows than are wanted, where rows are counted, and at most
Streams = Sequence[Callable[[], Iterator[Blocks]]]
Place = tuple[int, int]  # of a block: its piece, and its first row there


@dataclass
class Survey:
    """What is known of the rows gone through so far."""

    reader: Reader
    seed: int
    share: float = 1.0  # of the rows, by their hashes, that are candidates for the sample
    rows: int = 0
    weight: float = 0.0
    empty: int = 0
    candidates: list[Block] = field(default_factory=list)

    def look(self, blocks: Blocks) -> Survey:
        """Some rows, by whichever thread: what is to be added."""
        good, made = self.reader.looked_at(blocks)
        chosen = [block for block in map(self._thinned, good) if block.n]
        rows = sum(block.n for block in good)
        column = self.reader.recipe.weight
        weight = rows if column is None else sum(float(floats(b.columns[column], column).sum()) for b in good)
        return Survey(self.reader, self.seed, 1.0, rows, weight, made.empty, chosen)

    def add(self, other: Survey) -> None:
        """The next rows in order. Where candidates become too many, half of them stay."""
        self.rows, self.weight, self.empty = (
            self.rows + other.rows, self.weight + other.weight, self.empty + other.empty,
        )  # fmt: skip
        self.candidates += map(self._thinned, other.candidates)  # by what is known now, whatever the thread knew
        while sum(block.n for block in self.candidates) > MOST * SURVEY_ROWS:
            self.share /= 2
            self.candidates = [block for block in map(self._thinned, self.candidates) if block.n]

    def _thinned(self, block: Block) -> Block:
        if self.share >= 1:
            return block
        keep = hashed(block.position, self.seed + block.piece) < np.uint64(self.share * 2.0**64)
        return block.take(np.flatnonzero(keep))

    def findings(self) -> Findings:
        """What a rank tells the others."""
        tally = replace(self.reader.tally, samples={})
        return Findings(self.rows, self.weight, self.empty, self.share, tuple(self.candidates), tally)

    def finish(self) -> None:
        """Put what was found into the tally."""
        tally, key = self.reader.tally, self.reader.key
        tally.rows[key], tally.weights[key] = self.rows, (self.weight, float(self.empty))
        tally.samples[key] = (self.seed, sorted((block for block in self.candidates if block.n), key=_place))


@dataclass(frozen=True)
class Findings:
    """What a rank has found in its part of the rows."""

    rows: int
    weight: float
    empty: int
    share: float
    candidates: tuple[Block, ...]
    tally: Tally


def survey(reader: Reader, rows: int | None, seed: int, batch_rows: int, together: bool = False) -> None:
    """One pass over the rows; ``rows`` is how many there are, where that is known."""

    def mine() -> Survey:
        result = Survey(reader, seed, _share(rows))
        for part in in_order(_streams(reader, batch_rows, together), result.look):
            result.add(part)
        return result

    _concluded(reader, [mine().findings()] if not together else from_all(lambda: mine().findings()), seed)


def survey_two(
    whole: Reader, train: Reader, held: Reader, rows: int | None, seed: int, batch_rows: int, together: bool = False
) -> list[Batch]:
    """The same of rows to fit, with the rows held out beside them, in one pass: their batches."""
    result = Survey(train, seed, _share(rows))

    def both(blocks: Blocks) -> tuple[Survey, Place, Batch]:
        ours = [train.thinned(block) for block in blocks]
        return result.look(ours), _place(blocks[0]), held.batch([held.thinned(block) for block in blocks])

    def mine() -> tuple[Findings, list[tuple[Place, Batch]]]:
        batches = []
        for part, place, batch in in_order(_streams(whole, batch_rows, together), both):
            result.add(part)
            batches += [(place, batch)] if batch.n else []
        return result.findings(), batches

    parts = from_all(mine) if together else [mine()]
    _concluded(train, [findings for findings, _ in parts], seed)
    batches = [batch for _, batch in sorted((b for _, own in parts for b in own), key=lambda item: item[0])]
    held.tally.rows[held.key] = sum(batch.n for batch in batches)
    return batches


def _streams(reader: Reader, batch_rows: int, together: bool) -> Streams:
    return reader.streams(batch_rows, rank(), world()) if together else reader.streams(batch_rows)


def _place(block: Block) -> Place:
    return block.piece, block.start


def _concluded(reader: Reader, parts: Sequence[Findings], seed: int) -> None:
    """Put what one or all ranks have found into the tally: the same on each, and the same as of one alone."""
    result = Survey(reader, seed, min(part.share for part in parts))
    for part in parts:
        result.add(Survey(reader, seed, part.share, part.rows, part.weight, part.empty, list(part.candidates)))
        if len(parts) > 1:
            reader.tally.add(reader.key, part.tally)
    result.finish()
    reader.refuse_gaps()


def _share(rows: int | None) -> float:
    return 1.0 if rows is None else min(1.0, SPARE * SURVEY_ROWS / max(rows, 1))
