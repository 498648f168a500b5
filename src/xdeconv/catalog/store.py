"""Preparing a store: one pass turns any readable catalogue into shuffled, uncompressed Arrow shards.

Reading goes in runs of bounded size (:mod:`.runs`), each one file with one record batch per
shard; afterwards each shard is gathered from all runs and sorted by a hash of its rows' keys. Every file appears under
its name only when it is whole, so that a killed preparation resumes where it stopped. Shards are on disk before they
have their names; runs need not be, where the system says how often it was started: those of before are made again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..system.checksums import Parted
from ..system.files import locked, replacing, write_atomically
from ..system.streams import in_order
from ._open import open_source, with_preset
from .conventions import known_units
from .ordering import Room, cast, common, ordered
from .planning import Plan, begin, plan_of, refuse_other
from .readers import Table, open_table
from .readers.arrow import with_units
from .readers.naming import WORK
from .readers.store import FORMAT, MANIFEST, VERSION, manifest_checksum, parts_of, read_manifest, refuse_damage
from .remembering import for_store
from .runs import KEY, Report, keys_of, side_by_side, write_runs

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 1 << 16


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
    words = dict(reading or {})
    preset = words.pop("preset", None)
    words = with_preset(words, preset)
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
    runs = write_runs(table, plan, work, room, skip, report)
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


def check_store(folder: Path) -> None:
    """Compare every shard with its checksums."""
    manifest = read_manifest(folder)
    for shard in manifest["shards"]:
        parts = parts_of(shard, manifest["batch_rows"])
        for number in range(len(parts)):
            refuse_damage(str(folder / shard["file"]), parts, number)


# Shards


def sorted_by(keys: np.ndarray) -> np.ndarray:
    """The places of keys in their order, equal ones as they come; a stable sort takes five times as long."""
    order = np.argsort(keys)
    inside = keys[order]
    return np.argsort(keys, kind="stable") if (inside[1:] == inside[:-1]).any() else order


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
    rows = ordered(parts, sorted_by(keys_of(parts)), room).drop_columns([KEY])
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
