"""Runs of a preparation: rows sorted by shard, in files of bounded size, of which those that are there are kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..rows.thinning import hashed
from ..system.files import replacing
from ..system.machine import boot
from ..system.memory import free
from ..system.streams import in_order
from ..system.threads import threads
from .expressions import Condition
from .ordering import Room, cast, common, ordered
from .planning import Plan
from .readers import Table, numbers

if TYPE_CHECKING:
    import pyarrow as pa

KEY = "__key"
WRITTEN_BYTES = 1 << 20  # of a run, together
FREE_SHARE = 0.25  # of the free memory that threads may fill with rows
Report = Callable[[str], None]


def side_by_side(bytes_: int) -> int:
    """How many threads may each hold so many bytes, their copy and its file at a time, on the memory that is free."""
    return max(1, min(threads(), int(FREE_SHARE * free() / (3 * max(bytes_, 1)))))


def write_runs(table: Table, plan: Plan, work: Path, room: Room, skip: bool, report: Report) -> list[str]:
    """Files of sorted rows; those that are there are kept, as far as none before them is missing."""
    import pyarrow as pa

    done = _whole_runs(work)
    start = (0, 0)
    if done:
        metadata = pa.ipc.open_file(pa.OSFile(str(work / done[-1]))).schema.metadata
        start = tuple(json.loads(metadata[b"next"]))
        report(f"resuming after {len(done)} runs")
    runs = partial(_runs, table, plan, start, skip, len(done), threads())
    write = partial(_write_run, table.name, work, plan, room)
    for name, rows, place in in_order([runs], lambda run: write(*run), side_by_side(plan.run_bytes)):
        done.append(name)
        report(f"read {rows:,} rows up to {table.pieces[min(place[0], len(table.pieces) - 1)].file}")
    if not done:
        shutil.rmtree(work)
        raise ValueError(f"{table.name} has no rows" + (f" where {plan.where}" if plan.where else ""))
    return done


def _whole_runs(work: Path) -> list[str]:
    """The runs that were written, up to the first that is missing; later ones, which threads had begun, are removed."""
    there = {path.name for path in work.glob("run-*.arrow")}
    kept: list[str] = []
    while _run_name(len(kept)) in there:
        kept.append(_run_name(len(kept)))
    for name in there - set(kept):
        (work / name).unlink()
    return kept


def _run_name(number: int) -> str:
    return f"run-{number:06d}.arrow"


def _runs(
    table: Table, plan: Plan, start: tuple[int, int], skip: bool, number: int, readers: int
) -> Iterator[tuple[int, list[pa.RecordBatch], tuple[int, int]]]:
    """Rows that are to be sorted together, numbered, and the place after them; pieces are read side by side."""
    pieces = [partial(_keyed, table, plan, piece, start, skip) for piece in range(start[0], len(table.pieces))]
    waiting: list[pa.RecordBatch] = []
    bytes_ = 0
    for batch, place in in_order(pieces, tuple, readers, lambda keyed: keyed[0].nbytes):
        if not batch.num_rows:
            continue
        waiting.append(batch)
        bytes_ += batch.nbytes
        if bytes_ >= plan.run_bytes:
            yield number, waiting, place
            number, waiting, bytes_ = number + 1, [], 0
    if waiting:
        yield number, waiting, (len(table.pieces), 0)


def _keyed(
    table: Table, plan: Plan, number: int, start: tuple[int, int], skip: bool
) -> Iterator[tuple[pa.RecordBatch, tuple[int, int]]]:
    """The rows of a piece, from a place on, with their keys, and the place after each block."""
    import pyarrow as pa

    condition = None if plan.where is None else Condition(plan.where)
    extra = [*(condition.names if condition else ()), *([plan.key] if plan.key else [])]
    names = list(dict.fromkeys([*plan.columns, *extra]))
    row = 0
    for batch in _read(table, number, names, skip):
        first, row = row, row + batch.num_rows
        if number == start[0] and row <= start[1]:
            continue
        keys = _keys(batch, plan, number, first)
        keyed = batch.select(plan.columns).append_column(KEY, pa.array(keys))
        if condition is not None:
            keyed = keyed.filter(pa.array(condition.mask(_numbers(batch, condition))))
        yield keyed, (number, row)


def _read(table: Table, number: int, names: list[str], skip: bool) -> Iterator[pa.RecordBatch]:
    try:
        yield from table.read(table.pieces[number], names)
    except OSError:
        if not skip:
            raise


def _numbers(batch: pa.RecordBatch, condition: Condition) -> dict[str, np.ndarray]:
    return {name: numbers(batch, name) for name in condition.names}


def _keys(batch: pa.RecordBatch, plan: Plan, piece: int, first: int) -> np.ndarray:
    """Hashes of random_index where there is one, and it is a whole number, else of the rows' places."""
    place = (np.uint64(piece) << np.uint64(40)) + np.arange(first, first + batch.num_rows, dtype=np.uint64)
    if plan.key is None:
        return hashed(place, plan.seed)
    keys = numbers(batch, plan.key)
    if keys.dtype.kind not in "iuf":
        return hashed(place, plan.seed)
    if keys.dtype.kind == "f":  # some are missing
        known = (keys >= 0) & (keys < 2.0**64)
        keys = np.where(known, np.where(known, keys, 0).astype(np.uint64), place)
    return hashed(keys.astype(np.uint64), plan.seed)


def _write_run(
    name: str, work: Path, plan: Plan, room: Room, number: int, batches: list[pa.RecordBatch], place: tuple[int, int]
) -> tuple[str, int, tuple[int, int]]:
    """One file with the rows of each shard as one record batch; its name, its rows and the place after them."""
    schema = common([batch.schema for batch in batches], name)
    batches = [cast(batch, schema, name) for batch in batches]
    shard = keys_of(batches) % np.uint64(plan.shards)
    order = np.argsort(shard.astype(np.uint16 if plan.shards <= 1 << 16 else np.uint32), kind="stable")
    counts = np.bincount(shard.astype(np.int64), minlength=plan.shards)
    rows = ordered(batches, order, room)
    schema = schema.with_metadata({"next": json.dumps(place)})
    parts = (rows.slice(first, count) for first, count in zip(np.cumsum(counts) - counts, counts, strict=True))
    _write_unread(work / _run_name(number), schema, parts)
    return _run_name(number), rows.num_rows, place


def keys_of(batches: Sequence[pa.RecordBatch]) -> np.ndarray:
    return np.concatenate([batch.column(KEY).to_numpy() for batch in batches])


def _write_unread(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """Write a run beside its place, and rename: forced to disk only where nobody could tell that it may be lost."""
    import pyarrow as pa

    with (
        replacing(path, durable=boot() is None) as beside,
        pa.BufferedOutputStream(pa.OSFile(str(beside), "wb"), WRITTEN_BYTES) as file,  # of small parts many are written
        pa.ipc.new_file(file, schema) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
