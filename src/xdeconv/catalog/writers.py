"""Writers: rows to Parquet, Arrow IPC or CSV, block by block; the file appears under its name only when whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..rows.prefetch import in_turn
from ..system.files import replacing
from ..system.threads import threads
from .footers import ROW_GROUPS, ROWS, Struct, ending, footer, moved

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".parquet", ".pq", ".arrow", ".feather", ".csv", ".csv.gz")
GROUP_ROWS, GROUP_BYTES = 1 << 18, 1 << 27  # of a row group, however small the blocks are
ENCODERS = 8  # threads that compress row groups, each of which is in memory with its bytes


def write_blocks(path: str | os.PathLike[str], blocks: Iterable[pa.RecordBatch]) -> int:
    """Write record batches to a file whose name says the format; the number of rows."""
    target = Path(path)
    refuse_suffix(target)
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for block in blocks:
            rows += block.num_rows
            yield block

    with replacing(target) as beside:
        coming = counted()
        first = next(coming, None)
        if first is None:
            raise ValueError(f"there are no rows to write to {target}")
        _write(target.name.lower(), beside, first.schema, chain([first], coming))
    return rows


def refuse_suffix(target: Path) -> None:
    """Refuse a file name that says no format."""
    if not target.name.lower().endswith(SUFFIXES):
        raise ValueError(f"cannot tell the format of {target}: its name must end in one of {', '.join(SUFFIXES)}")


def _write(name: str, path: Path, schema: pa.Schema, blocks: Iterator[pa.RecordBatch]) -> None:
    import pyarrow as pa
    import pyarrow.csv

    if name.endswith((".parquet", ".pq")):
        _write_parquet(path, schema, blocks)
        return
    if name.endswith((".arrow", ".feather")):
        plain = _without_dictionaries(schema)
        with pa.ipc.new_file(str(path), plain) as writer:
            _write_all(writer, (block.cast(plain) for block in blocks))
        return
    gzipped = {"compression": "gzip"} if name.endswith(".gz") else {"compression": None}
    with pa.output_stream(str(path), **gzipped) as stream, pa.csv.CSVWriter(stream, schema) as writer:
        _write_all(writer, blocks)


def _without_dictionaries(schema: pa.Schema) -> pa.Schema:
    """A file of Arrow has one dictionary per column, and each row group of a Parquet file its own."""
    import pyarrow as pa

    coded = pa.types.is_dictionary
    fields = [field.with_type(field.type.value_type) if coded(field.type) else field for field in schema]
    return pa.schema(fields, schema.metadata)


def _write_all(writer: Any, blocks: Iterator[pa.RecordBatch]) -> None:
    for block in blocks:
        writer.write_batch(block)


# Parquet


def _write_parquet(path: Path, schema: pa.Schema, blocks: Iterator[pa.RecordBatch]) -> None:
    """Row groups are encoded side by side, each as a file of its own, and put one behind the other.

    One thread compresses 2 million rows a second. What is written does not depend on the number of threads.
    """
    encode = partial(_encoded, schema, _encodings(schema))
    first: Struct = {}
    rows, groups = 0, []
    with open(path, "wb") as file:
        file.write(b"PAR1")
        for part in in_turn(_tables(schema, blocks), encode, min(threads(), ENCODERS)):
            said, end = footer(part)
            first = first or said
            rows += said[ROWS][1]
            groups += [moved(group, file.tell() - 4) for group in said[ROW_GROUPS][1][1]]
            file.write(part[4:end])
        file.write(ending(first, rows, groups))


def _tables(schema: pa.Schema, blocks: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of each row group or a few; one table without rows where there are none."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows, bytes_, some = 0, 0, False
    for block in blocks:
        waiting.append(block)
        rows, bytes_ = rows + block.num_rows, bytes_ + block.nbytes
        if rows >= GROUP_ROWS or bytes_ >= GROUP_BYTES:
            yield pa.Table.from_batches(waiting, schema)
            waiting, rows, bytes_, some = [], 0, 0, True
    if waiting or not some:
        yield pa.Table.from_batches(waiting, schema)


def _encoded(schema: pa.Schema, words: dict[str, Any], table: pa.Table) -> memoryview:
    """A Parquet file of some rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, **words) as writer:
        if table.num_rows:
            writer.write_table(table, row_group_size=GROUP_ROWS)
    return memoryview(sink.getvalue()).cast("B")


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """As HATS catalogues have it: bytes of floats sorted by their place, then ZSTD; smaller, and faster to read."""
    import pyarrow as pa

    split = (pa.float32(), pa.float64())  # not half floats: DuckDB cannot read those so
    floats = [column.name for column in schema if column.type in split]
    others = [column.name for column in schema if column.name not in floats]
    return {
        "compression": "zstd",
        "use_dictionary": others,
        "column_encoding": dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
    }
