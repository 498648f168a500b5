"""CatalogSource: a table and a recipe as batches of values and covariances, streamed, in bounded memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..rows.batch import Batch, concatenate
from ..rows.data import ArraySource, Source, permutation
from ..rows.prefetch import in_turn, prefetched, prefetched_to
from ..rows.thinning import hashed
from ..system import threads as workers
from . import bad_rows as rowchecks
from . import finding
from .blocks import Block, Part, gathered, join, pooled, side_by_side
from .expressions import Columns, Condition
from .readers import BLOCK_ROWS, Piece, ReadError, Table, numbers, rows_of
from .recipe import Frame, Recipe, floats
from .remembering import as_json

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("xdeconv")
Array = np.ndarray
POOL_ROWS = 1 << 20  # rows that are shuffled together where the file is not shuffled
# Rows of a batch when no size is asked for. What takes more than 32 MiB comes as fresh pages each time, cleared.
PASS_ROWS = {"cpu": 1 << 16, "cuda": 1 << 18}
POOL_WIDTH = 8  # pieces that are read side by side to fill the pool
SAMPLE_PIECES = 32
ASSEMBLERS = 2  # threads that assemble rows for a GPU; more only wait for each other
HELD_BYTES = 1 << 28  # a source smaller than this is held in memory
RA_EDGE, POLE = 10.0, 85.0  # degrees


@dataclass
class Tally:
    """What reading a source has met so far; shared by all its parts."""

    rows: dict[Any, int] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    checked: set[tuple[int, Part | None]] = field(default_factory=set)
    said: set[str] = field(default_factory=set)
    edges: list[float] = field(default_factory=lambda: [np.inf, -np.inf])
    observed: dict[tuple[Part | None, tuple[int, ...]], Array] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """Log a warning once."""
        if text not in self.said:
            self.said.add(text)
            log.warning(text)


@dataclass(frozen=True)
class Place:
    """The coordinates, the device and the type that batches are wanted in."""

    frame: Frame
    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True)
class CatalogSource(Source):
    """Rows of a table as batches; the order is a pure function of (seed, epoch)."""

    table: Table
    recipe: Recipe
    where: Condition | None = None
    drop: bool = False
    skip_bad_files: bool = False
    memory: bool | None = None
    keep_empty: bool = False
    part: Part | None = None
    pieces: tuple[int, ...] | None = None
    batch_rows: int | None = None
    seed: int = 0
    place: Place | None = None
    reading: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    tally: Tally = field(default_factory=Tally, compare=False, repr=False)

    # What a source offers

    @property
    def rows(self) -> int:
        """How many rows there are; where only reading can tell, they are counted once."""
        key = (self.part, self.pieces)
        if key not in self.tally.rows:
            self.tally.rows[key] = self._count()
        return self.tally.rows[key]

    @property
    def dim(self) -> int:
        return len(self.recipe.features)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.recipe.features

    @property
    def has_log_prior(self) -> bool:
        return bool(self.recipe.log_prior)

    @property
    def read_again(self) -> bool:
        return self.memory is False

    @property
    def remote(self) -> bool:
        return self.table.remote

    @property
    def units(self) -> tuple[str, ...] | None:
        return self.recipe.units if any(self.recipe.units) else None

    def arranged(self, batch_rows: int | None, seed: int) -> CatalogSource:
        """The same rows, in shuffled batches of a size, or as they come."""
        return replace(self, batch_rows=batch_rows, seed=seed)

    def batches(self, epoch: int, *, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """One pass; a thread reads ahead."""
        if self.batch_rows is not None and not self.table.shuffled:
            self.tally.say(f"{self.table.name} is not known to be shuffled: batches come from a pool of "
                           f"{POOL_ROWS:,} rows; `xdeconv prepare` makes a shuffled copy")  # fmt: skip
        device = self.place.device if self.place else torch.device("cpu")
        if self.batch_rows is None:
            rows = PASS_ROWS[device.type]
            blocks, size = self._in_order(rank, world, rows), 2 * rows
        else:
            blocks, size = self._shuffled(epoch, rank, world, self.batch_rows), self.batch_rows
        # Kernels on the CPU want its cores; a GPU wants rows faster than one core can assemble them.
        assemblers = 1 if device.type == "cpu" else min(ASSEMBLERS, max(1, (os.cpu_count() or 2) - 1))
        made = (part for batch in in_turn(blocks, self._batch, assemblers) for part in batch.chunks(size))
        return prefetched_to(made, lambda batch: batch.to(device), device)

    def standardized(
        self, shift: torch.Tensor, scale: torch.Tensor, device: torch.device, dtype: torch.dtype
    ) -> CatalogSource:
        """The source in latent coordinates (v - shift) / scale: rows are assembled in them at once."""
        return replace(self, place=Place(Frame(shift.numpy(), scale.numpy()), device, dtype))

    def sum(self, function: Callable[[Batch], torch.Tensor], *, rank: int = 0, world: int = 1) -> torch.Tensor:
        """The sum of function(batch) over a rank's rows.

        On one CPU a table of partitions has the function sent to where they live, and of others each thread makes
        batches of its own.
        """
        if world > 1 or (self.place is not None and self.place.device.type != "cpu"):
            return super().sum(function, rank=rank, world=world)
        if self.table.remote:
            alone = replace(self, table=None, tally=Tally())  # type: ignore[arg-type]  # what travels to the partitions
            return self.table.sum(partial(_sum_partition, alone, function), self._pieces, self._columns())
        found = workers.total(self._in_order(0, 1, PASS_ROWS["cpu"]), lambda blocks: function(self._batch(blocks)))
        return torch.zeros((), dtype=torch.float64) if found is None else found

    def passes(self, keep: Sequence[str]) -> Iterator[tuple[Batch, pa.RecordBatch]]:
        """One pass in order: batches, and the columns to keep of the same rows."""
        found = ((b, k) for number in self._pieces for b, k in self._with(number, keep) if b.n)
        return prefetched((self._batch([block]), kept) for block, kept in found)

    def split(self, fraction: float, seed: int) -> tuple[CatalogSource, CatalogSource | ArraySource]:
        """All but a fraction of the rows, and that fraction: the last pieces of a shuffled table, else by a hash."""
        last = round(fraction * len(self._pieces))
        if self.table.shuffled and last >= 1 and self.part is None:
            train, held = (replace(self, pieces=p) for p in (self._pieces[:-last], self._pieces[-last:]))
        else:
            train = replace(self, part=Part(seed, fraction, 1.0))
            held = replace(self, part=Part(seed, 0.0, fraction))
        if not (train.rows and held.rows):
            raise ValueError(f"{self.rows} rows are too few to hold out {fraction:.3g} of them")
        return train, held.held()

    def sample(self, size: int, seed: int) -> Batch:
        """Up to ``size`` rows from all over the table, shuffled."""
        few = len(self._pieces) <= SAMPLE_PIECES
        order = self._order(seed, 0)[:SAMPLE_PIECES]
        share = min(1.0, 1.2 * size / max(self.rows, 1)) if few else size / (len(order) * BLOCK_ROWS)
        found = []
        for number in order:
            for i, block in enumerate(self._read(number)):
                keep = np.flatnonzero(
                    hashed(np.arange(block.start, block.start + block.n), seed + number) < share * 2.0**64
                )
                found.append(block.take(keep if share < 1 else np.arange(block.n)))
                if i == 0 and not few:
                    break
        whole = join(found)
        batch = self._batch([whole.take(permutation(whole.n, seed, -2).numpy()[:size])])
        return batch.to(self.place.device) if self.place else batch

    def held(self) -> CatalogSource | ArraySource:
        """The source in memory if it is small or ``memory`` says so, else as it is."""
        small = self.bytes <= HELD_BYTES if self.memory is None else self.memory
        return self.load() if small else self

    def load(self) -> ArraySource:
        """All rows in memory, in their own order."""
        found = list(replace(self, batch_rows=None).batches(0))
        if not found:
            raise ValueError(f"{self.table.name} has no rows" + (f" where {self.where.text}" if self.where else ""))
        return ArraySource(concatenate(found), self.labels, self.units)

    @property
    def bytes(self) -> int:
        """Size of all batches in memory."""
        lines = {"none": 0, "shared": 0, "diagonal": self.dim, "full": self.dim * (self.dim + 1) // 2}
        views = self.dim**2 if self.recipe.projection else 0
        return 8 * self.rows * (self.dim + lines[self.recipe.kind] + views + len(self.recipe.log_prior))

    def pool_bytes(self, batch_rows: int | None) -> int:
        """Memory of the rows that are shuffled together when batches of a size are wanted: in turn, mixed, and next."""
        rows = 0 if batch_rows is None else min(self.rows, self._pool_rows(batch_rows))
        return 3 * 8 * rows * len(self._columns())

    def _pool_rows(self, batch_rows: int) -> int:
        return max(batch_rows, BLOCK_ROWS if self.table.shuffled else POOL_ROWS)

    def describe(self) -> str:
        """What was found: rows, and for each feature its unit, its noise and its correlations."""
        known = rows_of(self.table)
        count = "rows" if known is None else f"{known:,} rows"
        known_as = f" ({', '.join(self.recipe.catalogues)} names)" if self.recipe.catalogues else ""
        condition = f" where {self.where.text}" if self.where else ""
        return "\n".join([f"{count} of {self.table.name}{known_as}{condition}", *finding.describe(self.recipe)])

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know: values that are taken as exact, rows dropped, files skipped."""
        exact = finding.unexplained(self.recipe, self.table.name)
        dropped = sum(self.tally.dropped.values())
        skipped = len(self.tally.skipped) + len(self.table.skipped)
        return tuple(
            ([f"NO NOISE: {exact}"] if exact else [])
            + ([f"{dropped:,} rows with impossible errors were dropped"] if dropped else [])
            + ([f"{skipped} damaged files or parts were skipped"] if skipped else [])
        )

    @property
    def unexplained(self) -> tuple[str, ...]:
        """Features without noise for which no error column was found, and which nobody declared to have none."""
        return self.recipe.unexplained

    def opening(self) -> dict[str, Any]:
        """Arguments of xd.open, as JSON, that read other rows in the same way: what was said, here or to a store.

        Functions have no JSON: they are named in it, and a model that was fitted by them says so when it is asked.
        """
        return as_json(self.reading)

    def stamp(self) -> dict[str, Any]:
        """What changes when the rows or their recipe do, as JSON: of each file size, time and a sample's checksum."""
        said: dict[str, Any] = {"recipe": finding.describe(self.recipe), "reading": self.opening(), "drop": self.drop}
        said["where"] = self.where.text if self.where else None
        if self.part is not None:
            said["part"] = [self.part.seed, self.part.low, self.part.high]
        if self.pieces is not None:
            said["pieces"] = [len(self.pieces), *self.pieces[:1], *self.pieces[-1:]]
        return {**self.table.stamp(), **said, "weight": self.recipe.weight, "log_prior": list(self.recipe.log_prior)}

    # Reading

    @property
    def _pieces(self) -> tuple[int, ...]:
        return tuple(range(len(self.table.pieces))) if self.pieces is None else self.pieces

    def _order(self, seed: int, epoch: int) -> list[int]:
        shuffled = permutation(len(self._pieces), seed, epoch).tolist()
        return [self._pieces[i] for i in shuffled]

    def _columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.recipe.columns, *(self.where.names if self.where else ())]))

    def _read(self, number: int) -> Iterator[Block]:
        """The rows of a piece that are wanted, block by block."""
        return (block for block, _ in self._with(number, ()))

    def _with(self, number: int, keep: Sequence[str]) -> Iterator[tuple[Block, pa.RecordBatch]]:
        """The rows of a piece that are wanted, with columns to keep as the table has them."""
        piece, start = self.table.pieces[number], 0
        names = self._columns()
        try:
            for found in self.table.read(piece, tuple(dict.fromkeys([*names, *keep])), self.recipe.columns):
                position = np.arange(start, start + found.num_rows)
                block = self._wanted(Block({name: numbers(found, name) for name in names}, number, position), piece)
                kept = found.select(list(keep))
                yield block, kept if block.n == found.num_rows else _rows_of(kept, block.position - start)
                start += found.num_rows
        except ReadError as problem:
            if not self.skip_bad_files:
                raise
            self.tally.skipped.add(str(piece))
            self.tally.say(f"skipped: {problem}")

    def _wanted(self, block: Block, piece: Piece) -> Block:
        keep = np.ones(block.n, dtype=bool)
        if self.part is not None:
            keep &= self.part.mask(block.piece, block.start, block.n)
        if self.where is not None:
            keep &= self.where.mask(block.columns)
        block = block if keep.all() else block.take(np.flatnonzero(keep))
        if not self.drop and (block.piece, self.part) in self.tally.checked:
            return block
        return self._checked(block, piece)

    def _checked(self, block: Block, piece: Piece) -> Block:
        x, noise = self.recipe.assemble([block.columns])
        self._watch_edges(x)
        self._watch_gaps(x)
        bad, problem = rowchecks.bad_rows(self.recipe, block.columns, x, noise)
        if problem is None:
            return block
        if not self.drop:
            row = piece.first + int(block.position[problem.row])
            raise ValueError(
                f"{piece.file}, row {row}: {problem.column} {problem.what} ({problem.count} such rows in this block); "
                "bad_rows='drop' or --bad-rows drop leaves such rows out"
            )
        self.tally.dropped[hash((block.piece, block.start, self.part))] = int(bad.sum())
        return block.take(np.flatnonzero(~bad))

    def _watch_gaps(self, x: Array) -> None:
        if x.shape[1]:
            key = (self.part, self._pieces)
            self.tally.observed[key] = self.tally.observed.get(key, False) | ~np.isnan(x).all(axis=1)

    def _refuse_gaps(self) -> None:
        """After all rows were read: refuse a feature without a single value. Rows held out may lack one."""
        held_out = (self.part is not None and self.part.high < 1) or 0 not in self._pieces
        key = (self.part, self._pieces)
        if self.keep_empty or held_out or key not in self.tally.observed:
            return
        views = self.recipe.projection.outputs if self.recipe.projection else ()
        empty = [name for name, seen in zip(self.labels, self.tally.observed[key], strict=True)
                 if not seen and name not in views]  # fmt: skip
        if empty and all((number, self.part) in self.tally.checked for number in self._pieces):
            raise ValueError(f"{empty[0]} has no observed value in any row of {self.table.name}"
                             + (f" where {self.where.text}" if self.where else "") + ": leave it out")  # fmt: skip

    def _watch_edges(self, x: Array) -> None:
        """Warn of plain ra that wraps, and of rows near a pole."""
        for name, values in zip(self.labels, x, strict=True):
            known = (*self.labels, *self.recipe.columns)
            longitude, position = finding.is_longitude(name, known), finding.is_position(name, known)
            if longitude and values.size and not np.isnan(values).all():
                self.tally.edges[0] = min(self.tally.edges[0], float(np.nanmin(values)))
                self.tally.edges[1] = max(self.tally.edges[1], float(np.nanmax(values)))
                if self.tally.edges[0] < RA_EDGE and self.tally.edges[1] > 360 - RA_EDGE:
                    self.tally.say(f"{name} straddles 0/360 degrees, where a density of plain {name} is cut in two: "
                                   "see derive= and xd.sky for other coordinates")  # fmt: skip
            if position and not longitude and values.size and np.nanmax(np.abs(values), initial=0.0) > POLE:
                self.tally.say(f"rows lie near a pole (|{name}| > {POLE:g} degrees), where plain longitude is singular")

    def _in_order(self, rank: int, world: int, rows: int) -> Iterator[list[Block]]:
        mine = self._pieces[rank::world] if len(self._pieces) >= 4 * world else self._pieces
        striped = len(self._pieces) < 4 * world and world > 1
        for blocks in gathered(self._passed(mine), rows):
            yield [block.take(np.arange(rank, block.n, world)) for block in blocks] if striped else blocks

    def _passed(self, numbers_: Sequence[int]) -> Iterator[Block]:
        for number in numbers_:
            yield from self._read(number)
            self.tally.checked.add((number, self.part))
        self._refuse_gaps()

    def _shuffled(self, epoch: int, rank: int, world: int, size: int) -> Iterator[list[Block]]:
        """Blocks from a pool that several pieces, in random order, fill side by side."""
        order = self._order(self.seed, epoch)
        striped = len(order) < 4 * world and world > 1
        mine = order if striped else order[rank::world]
        limit = self._pool_rows(size)
        turn = 0
        for pool, last in pooled(side_by_side([self._passed([n]) for n in mine], POOL_WIDTH), limit, size):
            mixed = pool.take(permutation(pool.n, self.seed + 7919 * (turn + 1), epoch).numpy())
            mixed = mixed.take(np.arange(rank, mixed.n, world)) if striped else mixed
            del pool
            yield from [[mixed]] if mixed.n else ()
            del mixed
            turn += 1 + last

    def _batch(self, blocks: Sequence[Block]) -> Batch:
        place = self.place
        kind = torch.float64 if place is None else place.dtype
        pinned = place is not None and place.device.type == "cuda"

        def new(shape: tuple[int, int]) -> Array:
            return torch.empty(shape, dtype=kind, pin_memory=pinned).numpy()

        columns = [block.columns for block in blocks]
        if self.recipe.projection is not None:
            return self._projected(columns, blocks)
        x, noise = self.recipe.assemble(columns, place.frame if place else None, new)
        return Batch(
            x=torch.from_numpy(x),
            noise=None if noise is None else torch.from_numpy(noise),
            weight=self._weight(blocks, kind),
            log_prior=self._log_prior(blocks, kind),
            scale=torch.from_numpy(place.frame.scale) if place else None,
            missing=bool(np.isnan(x).any()),
        )

    def _weight(self, blocks: Sequence[Block], kind: torch.dtype) -> torch.Tensor | None:
        if self.recipe.weight is None:
            return None
        return torch.tensor(floats(join(blocks).columns[self.recipe.weight], self.recipe.weight), dtype=kind)

    def _log_prior(self, blocks: Sequence[Block], kind: torch.dtype) -> torch.Tensor | None:
        if not self.recipe.log_prior:
            return None
        columns = join(blocks).columns
        return torch.tensor(np.stack([floats(columns[name], name) for name in self.recipe.log_prior], 1), dtype=kind)

    def _projected(self, columns: Sequence[Columns], blocks: Sequence[Block]) -> Batch:
        """Views of the features, with the directions that they are seen along."""
        x, noise = self.recipe.assemble(columns)
        directions = [self.recipe.directions(part) for part in columns]
        batch = Batch(
            x=torch.from_numpy(x),
            noise=None if noise is None else torch.from_numpy(noise),
            projection=torch.from_numpy(np.concatenate(directions, axis=-1)),  # type: ignore[arg-type]
            weight=self._weight(blocks, torch.float64),
            log_prior=self._log_prior(blocks, torch.float64),
            missing=bool(np.isnan(x).any()),
        )
        if self.place is None:
            return batch
        frame = self.place.frame
        moved = batch.standardized(torch.from_numpy(frame.shift), torch.from_numpy(frame.scale))
        return moved.to(dtype=self.place.dtype)

    def _count(self) -> int:
        """Rows of this source: from the file's own numbers where these tell, else by reading what decides."""
        pieces = [self.table.pieces[number] for number in self._pieces]
        known = not (self.where or self.drop) and all(piece.rows is not None for piece in pieces)
        if known and self.part is None:
            return sum(piece.rows or 0 for piece in pieces)
        if known and self.part is not None:
            return sum(int(self.part.mask(n, 0, self.table.pieces[n].rows or 0).sum()) for n in self._pieces)
        if self.table.remote:
            return int(replace(self, place=None).sum(_count_rows))
        return sum(block.n for block in self._passed(self._pieces))


def _sum_partition(
    source: CatalogSource, function: Callable[[Batch], torch.Tensor], table: Table, number: int
) -> torch.Tensor:
    """What one partition adds to a sum."""
    here = replace(source, table=table, pieces=(number,), batch_rows=None)
    return sum((function(batch) for batch in here.batches(0)), torch.zeros((), dtype=torch.float64))


def _count_rows(batch: Batch) -> torch.Tensor:
    return torch.tensor(float(batch.n), dtype=torch.float64)


def _rows_of(batch: pa.RecordBatch, rows: Array) -> pa.RecordBatch:
    import pyarrow as pa

    return batch.take(pa.array(rows)) if batch.num_columns else batch
