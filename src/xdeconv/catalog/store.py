"""Preparing a store: one pass turns any readable catalogue into shuffled, uncompressed Arrow shards.

Reading goes in runs of bounded size. A run's rows are sorted by shard and written as one file with one record batch a
shard; afterwards each shard is gathered from all runs and sorted by a hash of its rows' keys. Every file appears under
its name only when it is whole, so that a killed preparation resumes where it stopped. Shards are on disk before they
have their names; runs need not be, where the system says how often it was started: those of before are made again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..rows.thinning import hashed
from ..system.checksums import Parted
from ..system.files import locked, replacing, write_atomically
from ..system.machine import boot
from ..system.memory import free
from ..system.streams import in_order
from ..system.threads import threads
from ._open import open_source, with_preset
from .conventions import known_units
from .expressions import Condition
from .ordering import Room, cast, common, ordered
from .planning import Plan, begin, plan_of, refuse_other
from .readers import Table, numbers, open_table
from .readers.arrow import with_units
from .readers.naming import WORK
from .readers.store import FORMAT, MANIFEST, VERSION, manifest_checksum, parts_of, read_manifest, refuse_damage
from .remembering import for_store

if TYPE_CHECKING:
    import pyarrow as pa

KEY = "__key"
BATCH_ROWS = 1 << 16
WRITTEN_BYTES = 1 << 20  # of a run, together
FREE_SHARE = 0.25  # of the free memory that threads may fill with rows
Report = Callable[[str], None]


def prepare(
    data: Any,
    output: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    reading: Mapping[str, Any] | None = None,
    where: str | None = None,
    seed: int = 0,
    shard_rows: int | None = None,
    run_bytes: int | None = None,
    skip_bad_files: bool = False,
    report: Report = lambda text: None,
) -> Path:
    """Write a store; rows are dealt to shards by a hash of random_index, or of their place.

    Called again after it was killed, it resumes; a finished store is left as it is. Two at a time are refused.

    Parameters
    ----------
    data : path, glob, directory, list of these or table
        What to read.
    output : path
        The folder to write.
    columns : sequence of str, optional
        The columns to store, beside those that ``reading`` needs; all of them when neither is given.
    reading : mapping, optional
        Arguments of xd.open (columns, error, correlation, unit, derive, ...) that the store remembers, so that
        ``xd.open(store)`` gives the same rows.
    where : str, optional
        A condition: other rows are left out.
    seed : int
        Same seed, same order of rows.
    shard_rows : int, optional
        Rows of a shard, about; by default 2^20, and fewer where that makes fewer than 64 shards, but not below 2^16.
    run_bytes : int, optional
        Memory of rows that wait to be written together; by default a 64th of all, between 2^24 and 2^27.
    skip_bad_files : bool
        Leave damaged files out.
    report : function
        Told how far it is.

    Returns
    -------
    Path
        The folder.
    """
    folder = Path(output)
    table = open_table(data, skip_bad_files=skip_bad_files)
    words = with_preset(dict(reading), dict(reading).pop("preset", None)) if reading else {}
    words.pop("preset", None)
    said = for_store(words)
    if said:
        needed = open_source(table, **words).recipe.columns
        columns = list(dict.fromkeys([*needed, *(columns or ())]))
    plan = plan_of(table, columns, where, seed, shard_rows, run_bytes, said)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file: name the folder that the store is to be")
    folder.absolute().parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.absolute(), "preparation"):
        folder.mkdir(exist_ok=True)
        if (folder / MANIFEST).exists():
            refuse_other(read_manifest(folder)["plan"], plan, f"{folder} is a finished store", "choose another folder")
            return folder
        _make(table, plan, folder, skip_bad_files, report)
    return folder


def _make(table: Table, plan: Plan, folder: Path, skip: bool, report: Report) -> None:
    import pyarrow as pa

    work = folder / WORK
    begin(work, plan)
    room = Room()
    runs = _write_runs(table, plan, work, room, skip, report)
    units = {**known_units(table.columns, table.units), **plan.reading.get("unit", {})}
    bytes_ = sum((work / run).stat().st_size for run in runs) // plan.shards
    alone = [partial(iter, [number]) for number in range(plan.shards)]
    schema = common([pa.ipc.open_file(pa.OSFile(str(work / run))).schema for run in runs], table.name)
    made = in_order(
        alone, lambda number: _shard(table, folder, runs, number, schema, units, room), side_by_side(bytes_)
    )
    shards = []
    for shard in made:
        shards.append(shard)
        report(f"shard {len(shards)}: {shard['rows']:,} rows")
    _write_manifest(folder, table.name, units, plan, [shard for shard in shards if shard["rows"]], schema)
    shutil.rmtree(work)


def side_by_side(bytes_: int) -> int:
    """How many threads may each hold so many bytes, their copy and its file at a time, on the memory that is free."""
    return max(1, min(threads(), int(FREE_SHARE * free() / (3 * max(bytes_, 1)))))


def check_store(folder: Path) -> None:
    """Compare every shard with its checksums."""
    manifest = read_manifest(folder)
    for shard in manifest["shards"]:
        parts = parts_of(shard, manifest["batch_rows"])
        for number in range(len(parts)):
            refuse_damage(str(folder / shard["file"]), parts, number)


# Runs


def _write_runs(table: Table, plan: Plan, work: Path, room: Room, skip: bool, report: Report) -> list[str]:
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
    shard = _keys_of(batches) % np.uint64(plan.shards)
    order = np.argsort(shard.astype(np.uint16 if plan.shards <= 1 << 16 else np.uint32), kind="stable")
    counts = np.bincount(shard.astype(np.int64), minlength=plan.shards)
    rows = ordered(batches, order, room)
    schema = schema.with_metadata({"next": json.dumps(place)})
    parts = (rows.slice(first, count) for first, count in zip(np.cumsum(counts) - counts, counts, strict=True))
    _write_unread(work / _run_name(number), schema, parts)
    return _run_name(number), rows.num_rows, place


def _keys_of(batches: Sequence[pa.RecordBatch]) -> np.ndarray:
    return np.concatenate([batch.column(KEY).to_numpy() for batch in batches])


def sorted_by(keys: np.ndarray) -> np.ndarray:
    """The places of keys in their order, equal ones as they come; a stable sort takes five times as long."""
    order = np.argsort(keys)
    inside = keys[order]
    return np.argsort(keys, kind="stable") if (inside[1:] == inside[:-1]).any() else order


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


# Shards


def _shard(
    table: Table, folder: Path, runs: list[str], number: int, schema: pa.Schema, units: Any, room: Room
) -> dict[str, Any]:
    """One shard from all runs, in the order of its keys; its facts, which are kept so that it is not made twice."""
    import pyarrow as pa

    work, name = folder / WORK, f"shard-{number:06d}.arrow"
    facts = work / f"shard-{number:06d}.json"
    if facts.exists():
        return json.loads(facts.read_text())
    stored = [pa.ipc.open_file(pa.memory_map(str(work / run))).get_batch(number) for run in runs]
    parts = [cast(part.replace_schema_metadata(), schema, table.name) for part in stored]
    rows = ordered(parts, sorted_by(_keys_of(parts)), room).drop_columns([KEY])
    del parts, stored
    schema = with_units(rows.schema.remove_metadata(), units)
    rows = rows.cast(schema)
    batches = (rows.slice(i, BATCH_ROWS) for i in range(0, rows.num_rows, BATCH_ROWS))
    parts = _write_shard(folder / name, schema, batches)
    entry = {"file": name, "rows": rows.num_rows, "bytes": parts[-1]["end"], "parts": parts}
    write_atomically(facts, json.dumps(entry).encode())
    return entry


def _write_shard(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Write beside, force to disk, rename; where each record batch and the footer end, with their checksums."""
    import pyarrow as pa

    with replacing(path) as beside, open(beside, "wb") as file:
        parted = Parted(file)
        with pa.ipc.new_file(pa.PythonFile(parted, mode="w"), schema) as writer:
            for batch in batches:
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))
                parted.end()
        parted.end()
    return [{"end": end, "sha256": found} for end, found in parted.parts]


def _write_manifest(
    folder: Path, source: str, units: Mapping[str, str], plan: Plan, shards: list[dict[str, Any]], schema: pa.Schema
) -> None:
    import datetime

    from .. import __version__

    types = {f.name: str(f.type) for f in schema}
    columns = [{"name": n, "type": types[n], "unit": units.get(n)} for n in plan.columns]
    made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    manifest = {
        "format": FORMAT, "version": VERSION, "rows": sum(shard["rows"] for shard in shards), "columns": columns,
        "batch_rows": BATCH_ROWS, "shards": shards, "plan": asdict(plan),
        "provenance": {"source": source, "made": made, "xdeconv": __version__}, "reading": plan.reading,
    }  # fmt: skip
    manifest["sha256"] = manifest_checksum(manifest)
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
