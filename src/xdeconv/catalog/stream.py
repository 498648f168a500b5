"""CatalogSource: a table and a recipe as batches of values and covariances, streamed, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from ..rows.batch import Batch, concatenate
from ..rows.cutting import permutation
from ..rows.data import ArraySource, Source
from ..rows.grouping import Grouping
from ..rows.prefetch import prefetched_to
from ..rows.surveyed import SURVEY_ROWS
from ..system import streams
from ..system.ranks import from_all, world
from . import describing, finding
from .blocks import Block, Part, join, pooled, shares, side_by_side
from .expressions import Condition
from .readers import BLOCK_ROWS, Table, rows_of
from .reading import Blocks, Place, Reader, shared_out
from .reading import rows_of as rows_of_batch
from .recipe import Frame, Recipe
from .remembering import as_json
from .surveying import survey, survey_two
from .tally import Tally

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray
T = TypeVar("T")
POOL_ROWS = 1 << 20  # rows that are shuffled together where the file is not shuffled
# Rows of a batch when no size is asked for. What takes more than 32 MiB comes as fresh pages each time, cleared.
PASS_ROWS = {"cpu": 1 << 16, "cuda": 1 << 18}
ANSWER_BYTES = 1 << 26  # of rows, and of what is made of them, that a thread has in memory to answer a question
POOL_WIDTH = 8  # pieces that are read side by side to fill the pool
SAMPLE_PIECES = 32
MOST_SAMPLED = 1024  # pieces that a sample reads, where they are small
SAMPLE_SEED = 15_485_863  # beside that of a sample: rows held out by a hash of the same seed are no other part of it
SPARE = 1.2  # times more rows than a sample wants, so that a hash seldom finds too few
HELD_BYTES = 1 << 28  # a source smaller than this is held in memory


@dataclass(frozen=True, repr=False)
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
    def known_rows(self) -> int | None:
        return self.tally.rows.get((self.part, self.pieces), self._known)

    @property
    def dim(self) -> int:
        return len(self.recipe.features)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.recipe.features

    @property
    def views(self) -> tuple[str, ...]:
        made = self.recipe.projection
        named = {} if made is None else dict(zip(made.outputs, made.views, strict=True))
        return tuple(named.get(name, name) for name in self.recipe.features)

    @property
    def has_log_prior(self) -> bool:
        return bool(self.recipe.log_prior)

    def with_noise_at(self, value: float) -> CatalogSource | None:
        """The same rows with the noise of values that are all this one, where they are made in a way that tells it."""
        made = [transform.with_noise_at(value) for transform in self.recipe.transforms]
        if not any(made):
            return None
        transforms = tuple(new or old for new, old in zip(made, self.recipe.transforms, strict=True))
        return replace(self, recipe=replace(self.recipe, transforms=transforms))

    def grouped(self, grouping: Grouping) -> CatalogSource:
        """The same rows with the groups that a column makes."""
        finding.require((grouping.name,), self.table.columns, self.table.name)
        reading = {**self.reading, "group": grouping.as_json()}
        return replace(self, recipe=replace(self.recipe, group=grouping), reading=reading)

    def values_of(self, column: str) -> set[Any]:
        """What a column holds, read once."""
        finding.require((column,), self.table.columns, self.table.name)
        values: set[Any] = set()
        for _, kept in self.passes([column]):
            values.update(kept.column(0).unique().to_pylist())
        return values

    @property
    def read_again(self) -> bool:
        return self.memory is False or self.recipe.group is not None  # compact forms have no place for groups

    @property
    def cheap_samples(self) -> bool:
        return True

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
        """One pass; threads read and assemble ahead."""
        reader, device = self._reader, self._device
        if self.batch_rows is None:
            size = 2 * PASS_ROWS[device.type]
            made = self._passed(reader.streams(PASS_ROWS[device.type], rank, world), world)
        else:
            size = self.batch_rows
            self._warn_unshuffled()
            made = map(reader.batch, self._shuffled(epoch, rank, world, size))
        cut = (part for batch in made for part in batch.chunks(size))
        return prefetched_to(cut, lambda batch: batch.to(device), device)

    def _passed(self, streams_: Sequence[Callable[[], Iterator[Blocks]]], world: int) -> Iterator[Batch]:
        yield from streams.in_order(streams_, self._reader.batch, size=lambda batch: self._bytes_of(batch.n))
        if world == 1:
            self._reader.refuse_gaps()

    def _warn_unshuffled(self) -> None:
        if not self.table.shuffled:
            self.tally.say(f"{self.table.name} is not known to be shuffled: batches come from a pool of "
                           f"{POOL_ROWS:,} rows; `xdeconv prepare` makes a shuffled copy")  # fmt: skip

    @property
    def _device(self) -> torch.device:
        return self.place.device if self.place else torch.device("cpu")

    @property
    def _reader(self) -> Reader:
        return Reader(
            self.table, self.recipe, self.where, self.drop, self.skip_bad_files, self.keep_empty, self.part,
            self.pieces, self.place, self.tally,
        )  # fmt: skip

    def standardized(
        self, shift: torch.Tensor, scale: torch.Tensor, device: torch.device, dtype: torch.dtype
    ) -> CatalogSource:
        """The source in latent coordinates (v - shift) / scale: rows are assembled in them at once."""
        return replace(self, place=Place(Frame(shift.numpy(), scale.numpy()), device, dtype))

    def sum(self, function: Callable[[Batch], torch.Tensor], *, rank: int = 0, world: int = 1) -> torch.Tensor:
        """The sum of function(batch) over a rank's rows.

        On CPUs a table of partitions has the function sent to where they live, and of others each thread makes
        batches of its own.
        """
        if self._device.type != "cpu":
            return super().sum(function, rank=rank, world=world)
        if self.table.remote and world == 1:
            alone = replace(self, table=None, tally=Tally())  # type: ignore[arg-type]  # what travels to the partitions
            return self.table.sum(partial(_sum_partition, alone, function), self._pieces, self._reader.columns)
        reader = self._reader
        mine = reader.streams(PASS_ROWS["cpu"], rank, world)
        total = streams.total(mine, lambda blocks: function(reader.batch(blocks)))
        if world == 1:
            reader.refuse_gaps()
        return torch.zeros((), dtype=torch.float64) if total is None else total

    def each(self, function: Callable[[Batch], T]) -> Iterator[T]:
        """function(batch) of each batch of a pass, in order, by all threads."""
        if self._device.type != "cpu" or self.batch_rows is not None:
            return super().each(function)
        reader = self._reader
        bytes_ = self._bytes_of(PASS_ROWS["cpu"])
        return streams.in_order(
            reader.streams(PASS_ROWS["cpu"]), lambda blocks: function(reader.batch(blocks)), size=lambda _: bytes_
        )

    def passes(self, keep: Sequence[str]) -> Iterator[tuple[Batch, pa.RecordBatch]]:
        """One pass in order: batches, and the columns to keep of the same rows."""
        return self.asked(keep, lambda batch, kept: (batch, kept))

    def asked(
        self, keep: Sequence[str], answer: Callable[[Batch, pa.RecordBatch], Any], numbers: int = 0
    ) -> Iterator[Any]:
        """answer(batch, kept columns) of all rows in order, by all threads.

        A block is answered at a time, or part of one where an answer makes many ``numbers`` of a row.
        """
        reader = self._reader
        most = max(1, ANSWER_BYTES // (8 * (self._row_numbers + numbers)))

        def made(pair: tuple[Block, pa.RecordBatch]) -> Any:
            block, kept = pair
            good, assembled = reader.looked_at([block], reader.place)
            if good[0].n != block.n:
                kept = rows_of_batch(kept, np.flatnonzero(np.isin(block.position, good[0].position)))
            projected = self.recipe.projection is not None
            return answer(reader.batch(good) if projected else reader.made(good, assembled), kept)

        def wanted(number: int) -> Iterator[tuple[Block, pa.RecordBatch]]:
            for block, kept in reader.with_kept(number, keep):
                for rows in shares(block.n, most):
                    yield block.take(rows), kept.slice(rows.start, rows.stop - rows.start)

        bytes_ = 8 * min(most, BLOCK_ROWS) * (self._row_numbers + numbers)
        return streams.in_order([partial(wanted, number) for number in self._pieces], made, size=lambda _: bytes_)

    def split(self, fraction: float, seed: int) -> tuple[CatalogSource, CatalogSource | ArraySource]:
        """All but a fraction of the rows, and that fraction: the last pieces of a shuffled table, else by a hash."""
        last = round(fraction * len(self._pieces))
        if self.table.shuffled and last >= 1 and self.part is None:
            train, held = (replace(self, pieces=p) for p in (self._pieces[:-last], self._pieces[-last:]))
            return train._both(held, held)
        train = replace(self, part=Part(seed, fraction, 1.0))
        held = replace(self, part=Part(seed, 0.0, fraction))
        if self.part is not None or self.memory is False or self.table.remote or fraction * self.bytes > HELD_BYTES:
            return train._both(held, held)
        return train._both(self._survey_beside(train, held), held)

    def _survey_beside(self, train: CatalogSource, held: CatalogSource) -> ArraySource:
        """The rows held out, in memory, from the pass that surveys those to fit."""
        whole, ours, theirs = (replace(source, place=None)._reader for source in (self, train, held))
        held_out = survey_two(whole, ours, theirs, train._known, PASS_ROWS["cpu"], world() > 1)
        return ArraySource(concatenate(held_out), self.labels, self.units) if held_out else ArraySource(self._empty())

    def _both(self, held: CatalogSource | ArraySource, named: CatalogSource) -> tuple[CatalogSource, Any]:
        """Rows to fit and rows held out, of which there must be some."""
        if not (self.rows and named.rows):
            total = self.rows + named.rows
            raise ValueError(f"{total} rows are too few to hold out {named.rows / max(total, 1):.3g} of them")
        return self, held.held()

    def sample(self, size: int, seed: int) -> Batch:
        """Up to ``size`` rows from all over the table, shuffled."""
        whole = self._sampled(size, seed)
        chosen = whole.take(permutation(whole.n, seed, -2).numpy()[:size])
        batch = self._reader.batch([replace(chosen, checked=True)])
        return batch.to(self.place.device) if self.place else batch

    def _sampled(self, size: int, seed: int) -> Block:
        """More rows than are wanted, or all: from the survey, which there is one of, or from some pieces of many."""
        if len(self._pieces) > SAMPLE_PIECES or size > SURVEY_ROWS or self.table.remote:
            return join(self._first_blocks(size, seed) or [self._no_rows()])
        if self._reader.key not in self.tally.samples:
            self._survey()
        return self.tally.samples[self._reader.key] or self._no_rows()

    def _first_blocks(self, size: int, seed: int) -> list[Block]:
        """Rows of the first block of some pieces, in random order."""
        wanted = SPARE * size / (1.0 if self.part is None else self.part.high - self.part.low)
        order, held = self._enough_pieces(wanted, seed)
        part = Part(seed + SAMPLE_SEED, 0.0, min(1.0, wanted / max(held, 1)))
        reader = self._reader
        first = [lambda number=number: islice(reader.blocks(number), 1) for number in order]
        blocks = streams.in_order(first, reader.clean)
        if len(order) == len(self._pieces):
            all_ = [partial(reader.blocks, number) for number in order]
            blocks = streams.in_order(all_, reader.clean, size=lambda block: 8 * block.n * len(block.columns))
            part = Part(seed + SAMPLE_SEED, 0.0, min(1.0, SPARE * size / max(self.rows, 1)))
        return [block.take(np.flatnonzero(part.mask(block.piece, block.position))) for block in blocks]

    def _enough_pieces(self, rows: float, seed: int) -> tuple[list[int], int]:
        """Pieces in random order whose first blocks have so many rows, and how many they have; more of small ones."""
        order = self._order(seed, 0)[:MOST_SAMPLED]
        blocks = (self.table.pieces[number].rows for number in order)
        held = np.cumsum([BLOCK_ROWS if n is None else min(n, BLOCK_ROWS) for n in blocks])
        count = min(len(order), max(SAMPLE_PIECES, int(np.searchsorted(held, rows)) + 1))
        return order[:count], int(held[count - 1])

    def _survey(self, together: bool = False) -> None:
        survey(replace(self, place=None)._reader, self._known, PASS_ROWS["cpu"], together)

    def look_around(self, *, split: bool = False) -> None:
        """The survey that a fit of several ranks needs, each of its part; all know what all have found.

        One process surveys when it is first asked. Of many pieces whose rows are counted, samples come from a few.
        """
        if world() == 1 or self.table.remote:
            return
        counted = self._known is not None
        small = counted and self.memory is None and self.bytes <= HELD_BYTES
        known = self.memory or self._reader.key in self.tally.samples
        wanted = not known and not (counted and (split or small or len(self._pieces) > SAMPLE_PIECES))
        if any(from_all(lambda: wanted)):  # one of them may have looked by itself before
            self._survey(together=True)

    @property
    def weighed(self) -> tuple[float, float] | None:
        """The weight of all rows and how many have nothing observed, where a survey has found out."""
        return self.tally.weights.get(self._reader.key)

    def held(self) -> CatalogSource | ArraySource:
        """The source in memory if it is small or ``memory`` says so, else as it is."""
        small = self.bytes <= HELD_BYTES if self.memory is None else self.memory
        return self.load() if small else self

    def load(self) -> ArraySource:
        """All rows in memory, in their own order."""
        if self._known is not None and self._known and self._device.type == "cpu" and not self.recipe.projection:
            return ArraySource(self._into_place(self._known), self.labels, self.units, notes=self.notes)
        batches = list(replace(self, batch_rows=None).batches(0))
        if not batches:
            raise ValueError(f"{self.table.name} has no rows" + (f" where {self.where.text}" if self.where else ""))
        return ArraySource(concatenate(batches), self.labels, self.units, notes=self.notes)

    def _into_place(self, rows: int) -> Batch:
        """All rows, each assembled where it is to stay: their number and places are known before they are read."""
        reader = self._reader
        room = reader.room(rows, self.place)
        starts = np.cumsum([0, *(self._known_of(number) or 0 for number in self._pieces)])

        def placed(i: int) -> Iterator[tuple[int, Block]]:
            start = int(starts[i])
            for block in reader.blocks(self._pieces[i]):
                yield start, block
                start += block.n

        parts = list(streams.in_order([partial(placed, i) for i in range(len(self._pieces))],
                                      lambda item: reader.fill(item[1], room, item[0]),
                                      size=lambda part: 0))  # fmt: skip
        reader.refuse_gaps()
        if sum(part.n for part in parts) != rows:  # damaged parts were skipped
            return concatenate([part for part in parts if part.n])
        return reader.whole(room, parts)

    @property
    def bytes(self) -> int:
        """Size of all batches in memory."""
        return self._bytes_of(self.rows)

    def _bytes_of(self, rows: int) -> int:
        return 8 * rows * self._row_numbers

    @property
    def _row_numbers(self) -> int:
        lines = {"none": 0, "shared": 0, "diagonal": self.dim, "full": self.dim * (self.dim + 1) // 2}
        views = self.dim**2 if self.recipe.projection else 0
        return self.dim + lines[self.recipe.kind] + views + len(self.recipe.log_prior)

    def pool_bytes(self, batch_rows: int | None) -> int:
        """Memory of the rows that are shuffled together when batches of a size are wanted: in turn, mixed, and next."""
        rows = 0 if batch_rows is None else min(self.rows, self._pool_rows(batch_rows))
        return 3 * 8 * rows * len(self._reader.columns)

    def _pool_rows(self, batch_rows: int) -> int:
        return max(batch_rows, BLOCK_ROWS if self.table.shuffled else POOL_ROWS)

    def describe(self) -> str:
        """What was found: rows, and for each feature its unit, its noise and its correlations."""
        known = rows_of(self.table)
        count = "rows" if known is None else f"{known:,} rows"
        known_as = f" ({', '.join(self.recipe.catalogues)} names)" if self.recipe.catalogues else ""
        condition = f" where {self.where.text}" if self.where else ""
        return "\n".join([f"{count} of {self.table.name}{known_as}{condition}", *describing.describe(self.recipe)])

    def __repr__(self) -> str:
        return self.describe()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know: values that are taken as exact, rows dropped, files skipped."""
        exact = describing.unexplained(self.recipe, self.table)
        unsaid = self.unsaid_units
        dropped = self.tally.dropped
        skipped = len(self.tally.skipped) + len(self.table.skipped)
        return tuple(
            ([f"NO NOISE: {exact}"] if exact else [])
            + list(self.table.notes)
            + ([unsaid] if unsaid else [])
            + ([f"{dropped:,} rows with impossible errors were dropped"] if dropped else [])
            + ([f"{skipped} damaged files or parts were skipped"] if skipped else [])
        )

    @property
    def unsaid_units(self) -> str | None:
        """What to say of files that do not tell the units that other files do; None where all agree."""
        return describing.unsaid_units(self.table, self.recipe, self.reading.get("unit") or {})

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
        said: dict[str, Any] = {
            "recipe": describing.describe(self.recipe),
            "reading": self.opening(),
            "functions": describing.functions(self.recipe),
            "drop": self.drop,
        }
        said["where"] = self.where.text if self.where else None
        if self.part is not None:
            said["part"] = [self.part.seed, self.part.low, self.part.high]
        if self.pieces is not None:
            said["pieces"] = [len(self.pieces), *self.pieces[:1], *self.pieces[-1:]]
        return {**self.table.stamp(), **said, "weight": self.recipe.weight, "log_prior": list(self.recipe.log_prior)}

    # Reading

    @cached_property
    def _pieces(self) -> tuple[int, ...]:
        return tuple(range(len(self.table.pieces))) if self.pieces is None else self.pieces

    def _order(self, seed: int, epoch: int) -> list[int]:
        shuffled = permutation(len(self._pieces), seed, epoch).tolist()
        return [self._pieces[i] for i in shuffled]

    def _shuffled(self, epoch: int, rank: int, world: int, size: int) -> Iterator[list[Block]]:
        """Blocks from a pool that several pieces, in random order, fill side by side."""
        reader = self._reader
        shares = shared_out([self.table.pieces[number].rows for number in self._pieces], world)
        own = None if shares is None else {self._pieces[i] for i in shares[rank]}
        mine = [number for number in self._order(self.seed, epoch) if own is None or number in own]
        pieces = [map(reader.clean, reader.blocks(number)) for number in mine]
        turn = 0
        for pool, last in pooled(side_by_side(pieces, POOL_WIDTH), self._pool_rows(size), size):
            mixed = pool.take(permutation(pool.n, self.seed + 7919 * (turn + 1), epoch).numpy())
            mixed = mixed if own is not None else mixed.take(np.arange(rank, mixed.n, world))
            del pool
            yield from [[mixed]] if mixed.n else ()
            del mixed
            turn += 1 + last
        if world == 1:
            reader.refuse_gaps()

    def _count(self) -> int:
        """Rows of this source: from the file's own numbers where these tell, else by reading what decides."""
        if self._known is not None:
            return self._known
        if self.table.remote:
            return int(replace(self, place=None).sum(_count_rows) or 0)
        self._survey()
        return self.tally.rows[self._reader.key]

    @property
    def _known(self) -> int | None:
        """How many rows there are, where the file's own numbers tell."""
        counts = [self._known_of(number) for number in self._pieces]
        return None if any(count is None for count in counts) else sum(count or 0 for count in counts)

    def _known_of(self, number: int) -> int | None:
        """How many rows of a piece are wanted, where the file's own numbers tell."""
        rows = self.table.pieces[number].rows
        if self.where or self.drop or rows is None or self.part is None:
            return None if self.where or self.drop else rows
        return self.part.count(number, rows)

    def _no_rows(self) -> Block:
        return Block({name: np.empty(0) for name in self._reader.columns}, 0, np.empty(0, int))

    def _empty(self) -> Batch:
        return self._reader.batch([self._no_rows()])


def _sum_partition(
    source: CatalogSource, function: Callable[[Batch], torch.Tensor], table: Table, number: int
) -> torch.Tensor:
    """What one partition adds to a sum."""
    here = replace(source, table=table, pieces=(number,), batch_rows=None)
    return sum((function(batch) for batch in here.batches(0)), torch.zeros((), dtype=torch.float64))


def _count_rows(batch: Batch) -> torch.Tensor:
    return torch.tensor(float(batch.n), dtype=torch.float64)
