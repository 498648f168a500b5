"""Surveying: one pass over a catalogue for all that a fit wants to know before its first.

Rows are counted and checked, weights are added, a reserve of rows is kept that every sample comes from, whatever its
seed, and rows that are held out are kept. The reserve is the same whoever surveys: samples depend on the rows alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ..rows.batch import Batch
from ..system.streams import in_order
from .blocks import Block, Part, join
from .reading import Blocks, Reader
from .recipe import floats

SURVEY_ROWS = 1 << 17  # of the largest sample that comes from the reserve
LEAST, MOST = 2.4, 4.0  # times as many rows the reserve may have, at least and at most
RESERVE_BYTES = 1 << 27  # that it may take, where that is no less than the least
SHARE = 0.75  # of what the reserve may have that is aimed at, where rows are counted, so that it seldom has too many
SEED = 6_700_417  # of the reserve: nobody else's, so that rows held out by a hash are no other part of it
Streams = list[Callable[[], Iterator[Blocks]]]


@dataclass
class Survey:
    """What is known of the rows gone through so far."""

    reader: Reader
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
        return Survey(self.reader, 1.0, rows, weight, made.empty, chosen)

    def add(self, other: Survey) -> None:
        """The next rows in order. Where candidates become too many, half of them stay."""
        self.rows, self.weight, self.empty = (
            self.rows + other.rows, self.weight + other.weight, self.empty + other.empty,
        )  # fmt: skip
        self.candidates += map(self._thinned, other.candidates)  # by what is known now, whatever the thread knew
        while sum(block.n for block in self.candidates) > most_rows(self.reader):
            self.share /= 2
            self.candidates = [block for block in map(self._thinned, self.candidates) if block.n]

    def _thinned(self, block: Block) -> Block:
        if self.share >= 1:
            return block
        return block.take(np.flatnonzero(Part(SEED, 0.0, self.share).mask(block.piece, block.position)))

    def finish(self) -> None:
        """Put what was found into the tally."""
        tally, key = self.reader.tally, self.reader.key
        tally.rows[key], tally.weights[key] = self.rows, (self.weight, float(self.empty))
        kept = [block for block in self.candidates if block.n]
        tally.samples[key] = join(kept) if kept else None


def survey(reader: Reader, rows: int | None, batch_rows: int) -> None:
    """One pass over the rows; ``rows`` is how many there are, where that is known."""
    result = Survey(reader, _share(reader, rows))
    for part in in_order(reader.streams(batch_rows), result.look):
        result.add(part)
    result.finish()
    reader.refuse_gaps()


def survey_two(whole: Reader, train: Reader, held: Reader, rows: int | None, batch_rows: int) -> list[Batch]:
    """The same of rows to fit, with the rows held out beside them, in one pass: their batches."""
    result = Survey(train, _share(train, rows))

    def both(blocks: Blocks) -> tuple[Survey, Batch]:
        ours = [train.thinned(block) for block in blocks]
        return result.look(ours), held.batch([held.thinned(block) for block in blocks])

    batches = []
    for part, batch in in_order(whole.streams(batch_rows), both):
        result.add(part)
        batches += [batch] if batch.n else []
    result.finish()
    held.tally.rows[held.key] = sum(batch.n for batch in batches)
    train.refuse_gaps()
    return batches


def most_rows(reader: Reader) -> float:
    """Rows that a reserve may have: more of few columns."""
    fitting = RESERVE_BYTES / (8 * max(len(reader.columns), 1))
    return SURVEY_ROWS * float(np.clip(fitting / SURVEY_ROWS, LEAST, MOST))


def _share(reader: Reader, rows: int | None) -> float:
    return 1.0 if rows is None else min(1.0, SHARE * most_rows(reader) / max(rows, 1))
