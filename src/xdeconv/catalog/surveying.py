"""Surveying: one pass over a catalogue for all that a fit wants to know before its first.

Rows are counted and checked, weights are added, a reserve of rows is kept that every sample comes from, whatever its
seed, and rows that are held out are kept. The reserve is the same whoever surveys: samples depend on the rows alone.
Of several ranks that are ``together`` each goes through its part of the rows, and all know what all have found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..rows.batch import Batch
from ..rows.surveyed import SEED, reserve_rows, reserve_share
from ..system.ranks import from_all, rank, world
from ..system.streams import in_order
from .blocks import Block, Part, join
from .reading import Blocks, Reader
from .recipe import floats
from .tally import Tally

Streams = Sequence[Callable[[], Iterator[Blocks]]]
Place = tuple[int, int]  # of a block: its piece, and its first row there


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
        while sum(block.n for block in self.candidates) > reserve_rows(len(self.reader.columns)):
            self.share /= 2
            self.candidates = [block for block in map(self._thinned, self.candidates) if block.n]

    def bytes_(self) -> int:
        """Memory of the candidates, about."""
        return sum(8 * block.n * (1 + len(block.columns)) for block in self.candidates)

    def _thinned(self, block: Block) -> Block:
        if self.share >= 1:
            return block
        return block.take(np.flatnonzero(Part(SEED, 0.0, self.share).mask(block.piece, block.position)))

    def findings(self) -> Findings:
        """What a rank tells the others."""
        tally = replace(self.reader.tally, samples={})
        return Findings(self.rows, self.weight, self.empty, self.share, tuple(self.candidates), tally)

    def finish(self) -> None:
        """Put what was found into the tally."""
        tally, key = self.reader.tally, self.reader.key
        tally.rows[key], tally.weights[key] = self.rows, (self.weight, float(self.empty))
        kept = sorted((block for block in self.candidates if block.n), key=_place)
        tally.samples[key] = join(kept) if kept else None


@dataclass(frozen=True)
class Findings:
    """What a rank has found in its part of the rows."""

    rows: int
    weight: float
    empty: int
    share: float
    candidates: tuple[Block, ...]
    tally: Tally


def survey(reader: Reader, rows: int | None, batch_rows: int, together: bool = False) -> None:
    """One pass over the rows; ``rows`` is how many there are, where that is known."""

    def mine() -> Findings:
        result = Survey(reader, reserve_share(len(reader.columns), rows))
        for part in in_order(_streams(reader, batch_rows, together), result.look, size=Survey.bytes_):
            result.add(part)
        return result.findings()

    _conclude(reader, from_all(mine) if together else [mine()])


def survey_two(
    whole: Reader, train: Reader, held: Reader, rows: int | None, batch_rows: int, together: bool = False
) -> list[Batch]:
    """The same of rows to fit, with the rows held out beside them, in one pass: their batches."""
    result = Survey(train, reserve_share(len(train.columns), rows))

    def both(blocks: Blocks) -> tuple[Survey, Place, Batch]:
        ours = [train.thinned(block) for block in blocks]
        return result.look(ours), _place(blocks[0]), held.batch([held.thinned(block) for block in blocks])

    def mine() -> tuple[Findings, list[tuple[Place, Batch]]]:
        batches = []
        for part, place, batch in in_order(
            _streams(whole, batch_rows, together), both, size=lambda part: part[0].bytes_() + _bytes(part[2])
        ):
            result.add(part)
            batches += [(place, batch)] if batch.n else []
        return result.findings(), batches

    parts = from_all(mine) if together else [mine()]
    _conclude(train, [findings for findings, _ in parts])
    batches = [batch for _, batch in sorted((b for _, own in parts for b in own), key=lambda item: item[0])]
    held.tally.rows[held.key] = sum(batch.n for batch in batches)
    return batches


def _streams(reader: Reader, batch_rows: int, together: bool) -> Streams:
    return reader.streams(batch_rows, rank(), world()) if together else reader.streams(batch_rows)


def _bytes(batch: Batch) -> int:
    return sum(part.nbytes for part in (batch.x, batch.noise) if part is not None)


def _place(block: Block) -> Place:
    return block.piece, block.start


def _conclude(reader: Reader, parts: Sequence[Findings]) -> None:
    """Put what one or all ranks have found into the tally: the same on each, and the same as of one alone."""
    result = Survey(reader, min(part.share for part in parts))
    for part in parts:
        result.add(Survey(reader, part.share, part.rows, part.weight, part.empty, list(part.candidates)))
        if len(parts) > 1:
            reader.tally.add(reader.key, part.tally)
    result.finish()
    reader.refuse_gaps()
