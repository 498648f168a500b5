"""Writers: rows to Parquet, Arrow IPC or CSV, block by block; the file appears under its name only when whole."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..system.files import replacing

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".parquet", ".pq", ".arrow", ".feather", ".csv", ".csv.gz")


def write_blocks(path: str | os.PathLike[str], blocks: Iterable[pa.RecordBatch]) -> int:
    """Write record batches to a file whose name says the format; the number of rows."""
    target = Path(path)
    refuse_suffix(target)
    rows, writer = 0, None
    with replacing(target) as partial:
        for block in blocks:
            writer = writer or _writer(target, partial, block.schema)
            writer.write_batch(block)
            rows += block.num_rows
        if writer is None:
            raise ValueError(f"there are no rows to write to {target}")
        writer.close()
    return rows


def refuse_suffix(target: Path) -> None:
    """Refuse a file name that says no format."""
    if not target.name.lower().endswith(SUFFIXES):
        raise ValueError(f"cannot tell the format of {target}: its name must end in one of {', '.join(SUFFIXES)}")


def _writer(target: Path, partial: Path, schema: pa.Schema) -> Any:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    name = target.name.lower()
    if name.endswith((".parquet", ".pq")):
        return _RowGroups(pq.ParquetWriter(partial, schema, **_encodings(schema)))
    if name.endswith((".arrow", ".feather")):
        return pa.ipc.new_file(str(partial), schema)
    return _Csv(partial, schema, compressed=name.endswith(".gz"))


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """As HATS catalogues have it: bytes of floats sorted by their place, then ZSTD; smaller, and faster to read."""
    import pyarrow as pa

    floats = [column.name for column in schema if pa.types.is_floating(column.type)]
    others = [column.name for column in schema if column.name not in floats]
    return {
        "compression": "zstd",
        "use_dictionary": others,
        "column_encoding": dict.fromkeys(floats, "BYTE_STREAM_SPLIT"),
    }


class _RowGroups:
    """Parquet with row groups of a useful size, however small the blocks."""

    ROWS = 1 << 18

    def __init__(self, writer: Any) -> None:
        self.writer = writer
        self.waiting: list[Any] = []

    def write_batch(self, block: pa.RecordBatch) -> None:
        self.waiting.append(block)
        if sum(b.num_rows for b in self.waiting) >= self.ROWS:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting), row_group_size=self.ROWS)
            self.waiting = []

    def close(self) -> None:
        self._flush()
        self.writer.close()


class _Csv:
    """CSV, gzipped where the name says so."""

    def __init__(self, path: Path, schema: pa.Schema, compressed: bool) -> None:
        import pyarrow as pa
        import pyarrow.csv

        self.stream = pa.output_stream(str(path), compression="gzip" if compressed else None)
        self.writer = pa.csv.CSVWriter(self.stream, schema)

    def write_batch(self, block: pa.RecordBatch) -> None:
        self.writer.write_batch(block)

    def close(self) -> None:
        self.writer.close()
        self.stream.close()
