"""Reader: the rows of a table that are wanted, block by block, checked once, and assembled into batches.

A piece of the table (a row group, a file) is read by one thread at a time; different pieces by different threads. What
a block is, and in which batch its rows are, depends on the table alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..rows.batch import Batch
from ..rows.tables import Inexact
from ..rows.unobserved import among
from ..system.text import counted
from .assembling import Assembled, assemble, blank
from .bad_rows import bad_rows, undefined
from .blocks import Block, Part, gathered, join
from .evaluating import Columns
from .expressions import Condition
from .readers import Piece, ReadError, Table, numbers
from .recipe import Frame, Recipe, floats
from .tally import Tally

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray
Blocks = Sequence[Block]
UNEVEN = 1.25  # largest share of a rank over the mean, where ranks read pieces of their own


@dataclass(frozen=True)
class Place:
    """The coordinates, the device and the type that batches are wanted in."""

    frame: Frame
    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True)
class Reader:
    """A table, a recipe, and which rows are wanted."""

    table: Table
    recipe: Recipe
    where: Condition | None
    drop: bool
    skip_bad_files: bool
    keep_empty: bool
    part: Part | None
    pieces: tuple[int, ...] | None
    place: Place | None
    tally: Tally

    @property
    def key(self) -> tuple[Part | None, tuple[int, ...] | None]:
        """Which rows these are, of the table."""
        return self.part, self.pieces

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the pieces."""
        return tuple(range(len(self.table.pieces))) if self.pieces is None else self.pieces

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Every column that must be read."""
        return tuple(dict.fromkeys([*self.recipe.columns, *(self.where.names if self.where else ())]))

    # Streams of blocks

    def streams(self, rows: int, rank: int = 0, world: int = 1) -> list[Callable[[], Iterator[list[Block]]]]:
        """What threads read side by side: streams of lists of blocks of ``rows`` rows or a little more."""
        shares = shared_out([self.table.pieces[number].rows for number in self.numbers], world)
        if shares is None:
            return [partial(self._striped, group, rows, rank, world) for group in self._groups(self.numbers, rows)]
        mine = [self.numbers[i] for i in shares[rank]]
        return [partial(self._gathered, group, rows) for group in self._groups(mine, rows)]

    def _groups(self, mine: Sequence[int], rows: int) -> Iterator[list[int]]:
        """Pieces one by one; consecutive small ones together, so that batches are not smaller than they need be."""
        group: list[int] = []
        known = 0
        for number in mine:
            group.append(number)
            known += self.table.pieces[number].rows or rows
            if known >= rows:
                yield group
                group, known = [], 0
        if group:
            yield group

    def _gathered(self, group: Sequence[int], rows: int) -> Iterator[list[Block]]:
        return gathered((block for number in group for block in self.blocks(number)), rows)

    def _striped(self, group: Sequence[int], rows: int, rank: int, world: int) -> Iterator[list[Block]]:
        """Where there are too few pieces to share out: every world-th row."""
        for blocks in self._gathered(group, rows):
            good = [self.clean(block) for block in blocks]
            yield [block.take(np.arange(rank, block.n, world)) for block in good]

    def blocks(self, number: int) -> Iterator[Block]:
        """The rows of a piece that are wanted, block by block."""
        return (block for block, _ in self.with_kept(number, ()))

    def with_kept(self, number: int, keep: Sequence[str]) -> Iterator[tuple[Block, pa.RecordBatch]]:
        """The rows of a piece that are wanted, with columns to keep as the table has them."""
        for block, batch in self.raw(number, keep):
            wanted, kept = self.wanted(block), batch.select(list(keep))
            yield wanted, kept if wanted.n == batch.num_rows else rows_of(kept, wanted.position - block.start)

    def raw(self, number: int, keep: Sequence[str] = ()) -> Iterator[tuple[Block, pa.RecordBatch]]:
        """All rows of a piece; damaged ones are skipped where that was asked for."""
        piece, start, names = self.table.pieces[number], 0, self.columns
        try:
            for batch in self.table.read(piece, tuple(dict.fromkeys([*names, *keep])), self.recipe.columns):
                position = np.arange(start, start + batch.num_rows)
                yield Block({name: numbers(batch, name) for name in names}, number, position), batch
                start += batch.num_rows
            if piece.rows not in (None, start):
                raise ReadError(f"{piece} is damaged: it has {start} rows where {piece.rows} were expected")
        except Inexact as problem:
            raise self._placed(problem.later(start), number) from problem
        except ReadError as problem:
            if not self.skip_bad_files:
                raise
            self.tally.skipped.add(str(piece))
            self.tally.say(f"skipped: {problem}")

    def wanted(self, block: Block) -> Block:
        """The rows that the condition leaves, of this part."""
        if self.where is not None:
            keep = self.where.mask(block.columns)
            block = block if keep.all() else block.take(np.flatnonzero(keep))
        return self.thinned(block)

    def thinned(self, block: Block) -> Block:
        """The rows of this part, without those that are known to be bad."""
        if self.part is not None:
            keep = self.part.mask(block.piece, block.position)
            block = block if keep.all() else block.take(np.flatnonzero(keep))
        bad = self.tally.checked.get((block.piece, self.part, block.start, block.n))
        if bad is None:
            return block
        good = replace(block, checked=True)
        return good if not len(bad) else good.take(np.flatnonzero(~np.isin(block.position, bad)))

    # Checks

    def clean(self, block: Block) -> Block:
        """The block without bad rows."""
        return self.looked_at([block])[0][0]

    def looked_at(self, blocks: Blocks, place: Place | None = None) -> tuple[list[Block], Assembled]:
        """The blocks without bad rows, each looked at where nobody has yet, and assembled."""
        look = not all(block.checked for block in blocks)
        made = self._assembled(blocks, place, look)
        if not look:
            return list(blocks), made
        good = self._judged(blocks, made)
        fewer = any(left.n != block.n for left, block in zip(good, blocks, strict=True))
        return good, self._assembled(good, place, False) if fewer else made

    def _judged(self, blocks: Blocks, made: Assembled) -> list[Block]:
        """The blocks without bad rows, of which ``made`` has the rows and no others."""
        known = (*self.recipe.features, *self.recipe.columns)
        good: list[Block] = []
        start = 0
        for block in blocks:
            rows = slice(start, start + block.n)
            doubtful = made.doubtful[rows].any() or undefined(self.recipe, block.columns, made.x[:, rows])
            good.append(block if block.checked else self._checked(block, bool(doubtful)))
            start += block.n
        self.tally.watch(self.key, self.recipe.features, known, made.spans, self._shown(blocks, good, made))
        return good

    def _shown(self, blocks: Blocks, good: Blocks, made: Assembled) -> Array:
        """Which features have a value in some row that counts: rows that are bad or have no weight do not."""
        if self.recipe.weight is None and all(left.n == block.n for left, block in zip(good, blocks, strict=True)):
            return made.spans[:, 0] <= made.spans[:, 1]
        counts = [np.isin(b.position, left.position) for b, left in zip(blocks, good, strict=True)]
        if (name := self.recipe.weight) is not None:
            counts = [rows & (floats(b.columns[name], name) > 0) for b, rows in zip(blocks, counts, strict=True)]
        return np.asarray((~np.isnan(made.x) & np.concatenate(counts)).any(axis=1))

    def _checked(self, block: Block, doubtful: bool) -> Block:
        """A block without its bad rows, or an error that names the first of them."""
        bad = self._bad(block) if doubtful else np.empty(0, int)
        if block.n:
            self.tally.checked[block.piece, self.part, block.start, block.n] = block.position[bad]
        left = replace(block, checked=True)
        return left if not len(bad) else left.take(np.delete(np.arange(block.n), bad))

    def _bad(self, block: Block) -> Array:
        made = self._assemble([block])
        bad, problem = bad_rows(self.recipe, block.columns, made.x, made.noise)
        if problem is None or self.drop:
            return np.flatnonzero(bad)
        piece = self.table.pieces[block.piece]
        row = piece.first + int(block.position[problem.row])
        raise ValueError(
            f"{piece.file}, row {row}{within(piece)}: {problem.column} {problem.what} "
            f"({counted(problem.count, 'such row')} in this block); "
            "bad_rows='drop' or --bad-rows drop leaves such rows out"
        )

    def refuse_gaps(self) -> None:
        """After all rows were read: refuse a feature without a single value. Rows held out may lack one."""
        held_out = (self.part is not None and self.part.high < 1) or 0 not in self.numbers
        if self.keep_empty or held_out or self.key not in self.tally.observed:
            return
        views = self.recipe.projection.outputs if self.recipe.projection else ()
        empty = [name for name, seen in zip(self.recipe.features, self.tally.observed[self.key], strict=True)
                 if not seen and name not in views]  # fmt: skip
        if empty:
            rows = f"any row of {self.table.name}" + (f" where {self.where.text}" if self.where else "")
            which = among(rows, self.recipe.weight is not None, self.part is not None or self.pieces is not None)
            raise ValueError(f"{empty[0]} has no observed value in {which}: leave it out")

    # Batches

    def batch(self, blocks: Blocks) -> Batch:
        """The rows of some blocks, checked where nobody has looked at them yet, in the place they are wanted in."""
        if self.recipe.projection is not None:
            return self._projected([self.clean(block) for block in blocks])
        return self.made(*self.looked_at(blocks, self.place))

    def _assembled(self, blocks: Blocks, place: Place | None, look: bool) -> Assembled:
        room = self.room(sum(block.n for block in blocks), place)
        return self._assemble(blocks, place.frame if place else None, room, look=look)

    def _assemble(
        self, blocks: Blocks, frame: Frame | None = None, room: tuple[Array, Array] | None = None, start: int = 0,
        look: bool = True,
    ) -> Assembled:  # fmt: skip
        try:
            return assemble(self.recipe, [block.columns for block in blocks], frame, room, start, look)
        except Inexact as problem:
            places = [(block.piece, row) for block in blocks for row in block.position.tolist()]
            piece, row = places[problem.row or 0]
            raise self._placed(problem.later(row - (problem.row or 0)), piece) from problem

    def _placed(self, problem: Inexact, number: int) -> ValueError:
        """What is said of values that are not numbers, with the file that they are in."""
        piece = self.table.pieces[number]
        row = "" if problem.row is None else f", row {piece.first + problem.row}{within(piece)}"
        return ValueError(f"{piece.file}{row}: {problem.what} {problem.why}")

    def room(self, rows: int, place: Place | None) -> tuple[Array, Array]:
        """Memory for the values and the noise of some rows, pinned where a GPU wants them."""
        kind = torch.float64 if place is None else place.dtype
        if place is None or place.device.type != "cuda":
            number = np.float32 if kind == torch.float32 else np.float64
            return blank(self.recipe, rows, lambda shape: np.empty(shape, number))
        return blank(self.recipe, rows, lambda shape: torch.empty(shape, dtype=kind, pin_memory=True).numpy())

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.place is None else self.place.dtype

    def made(self, blocks: Blocks, made: Assembled) -> Batch:
        """A batch of blocks that were assembled in the place they are wanted in."""
        return Batch(
            x=torch.from_numpy(made.x),
            noise=None if made.noise is None else torch.from_numpy(made.noise),
            weight=self.weight(blocks, self.dtype),
            log_prior=self.log_prior(blocks, self.dtype),
            group=self.group(blocks),
            scale=torch.from_numpy(self.place.frame.scale) if self.place else None,
            missing=made.partial > 0,
        )

    def fill(self, block: Block, room: tuple[Array, Array], start: int) -> Batch:
        """The rows of a block, checked, in their place in a room for all rows, as a batch that is a view of it."""
        frame = self.place.frame if self.place else None
        made = self._assemble([block], frame, room, start, not block.checked)
        own = replace(made, x=made.x[:, start : start + block.n], noise=_rows(made, start, block.n))
        if not block.checked:
            self._judged([block], own)
        return self.made([block], own)

    def whole(self, room: tuple[Array, Array], parts: Sequence[Batch]) -> Batch:
        """All rows of a room that was filled by parts."""
        first = parts[0]
        return replace(
            first,
            x=torch.from_numpy(room[0]),
            noise=None if first.noise is None else torch.from_numpy(room[1]),
            weight=None if first.weight is None else torch.cat([p.weight for p in parts]),  # type: ignore[misc]
            log_prior=None if first.log_prior is None else torch.cat([p.log_prior for p in parts]),  # type: ignore[misc]
            group=None if first.group is None else torch.cat([p.group for p in parts]),  # type: ignore[misc]
            missing=any(part.missing for part in parts),
        )

    def weight(self, blocks: Blocks, kind: torch.dtype) -> torch.Tensor | None:
        """The column of weights."""
        if self.recipe.weight is None:
            return None
        return torch.tensor(floats(join(blocks).columns[self.recipe.weight], self.recipe.weight), dtype=kind)

    def group(self, blocks: Blocks) -> torch.Tensor | None:
        """The group of each row."""
        grouping = self.recipe.group
        return None if grouping is None else torch.from_numpy(grouping.index(join(blocks).columns[grouping.name]))

    def log_prior(self, blocks: Blocks, kind: torch.dtype) -> torch.Tensor | None:
        """The columns of log-priors."""
        if not self.recipe.log_prior:
            return None
        columns = join(blocks).columns
        return torch.tensor(np.stack([floats(columns[name], name) for name in self.recipe.log_prior], 1), dtype=kind)

    def _projected(self, blocks: Blocks) -> Batch:
        """Views of the features, with the directions that they are seen along."""
        columns: list[Columns] = [block.columns for block in blocks]
        made = self._assemble(blocks)
        directions = [self.recipe.directions(part) for part in columns]
        batch = Batch(
            x=torch.from_numpy(made.x),
            noise=None if made.noise is None else torch.from_numpy(made.noise),
            projection=torch.from_numpy(np.concatenate(directions, axis=-1)),  # type: ignore[arg-type]
            weight=self.weight(blocks, torch.float64),
            log_prior=self.log_prior(blocks, torch.float64),
            group=self.group(blocks),
            missing=made.partial > 0,
        )
        if self.place is None:
            return batch
        frame = self.place.frame
        moved = batch.standardized(torch.from_numpy(frame.shift), torch.from_numpy(frame.scale))
        return moved.to(dtype=self.place.dtype)


def _rows(made: Assembled, start: int, n: int) -> Array | None:
    """The noise of some rows, where each has its own."""
    if made.noise is None or made.noise.shape[1] == 1:
        return made.noise
    return made.noise[:, start : start + n]


def within(piece: Piece) -> str:
    """The part of a file that a row is in, for an error; a row's number is that in the file."""
    return f" in {piece.part} {piece.index}" if piece.part in ("row group", "record batch") else ""


def shared_out(rows: Sequence[int | None], world: int) -> list[list[int]] | None:
    """Which pieces each rank reads, in order, so that none reads much more than the others; None where that fails.

    >>> shared_out([5, 5, 5, 5], 2), shared_out([7], 2)
    ([[0, 2], [1, 3]], None)
    """
    if world == 1:
        return [list(range(len(rows)))]
    sizes = [1 if size is None else size for size in rows]
    shares: list[list[int]] = [[] for _ in range(world)]
    loads = [0] * world
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        least = loads.index(min(loads))
        shares[least].append(i)
        loads[least] += sizes[i]
    if max(loads) * world > UNEVEN * sum(sizes):
        return None
    return [sorted(share) for share in shares]


def rows_of(batch: pa.RecordBatch, rows: Array) -> pa.RecordBatch:
    """Some rows of a record batch, which may have no columns."""
    import pyarrow as pa

    return batch.take(pa.array(rows)) if batch.num_columns else batch
