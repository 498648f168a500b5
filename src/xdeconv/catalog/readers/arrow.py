"""Arrow: IPC files by memory map, and tables in memory (pyarrow, pandas, polars: whatever offers an Arrow stream)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .table import BLOCK_ROWS, Piece, ReadError, blocks_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ArrowFiles:
    """Record batches of memory-mapped IPC files; uncompressed ones are read without a copy."""

    name: str
    columns: tuple[str, ...]
    units: Mapping[str, str]
    pieces: tuple[Piece, ...]
    shuffled: bool = False
    skipped: tuple[str, ...] = ()

    @classmethod
    def open(cls, name: str, paths: Sequence[Path]) -> ArrowFiles:
        """Read the footers."""
        pieces: list[Piece] = []
        schema: pa.Schema | None = None
        for path in paths:
            reader = _reader(str(path))
            schema = schema or reader.schema
            first = 0
            for index in range(reader.num_record_batches):
                rows = reader.get_batch(index).num_rows
                pieces += [Piece(str(path), "record batch", index, rows, first)] if rows else []
                first += rows
        assert schema is not None
        return cls(name, tuple(schema.names), units_of(schema), tuple(pieces))

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """The blocks of a record batch."""
        import pyarrow as pa

        try:
            batch = _reader(piece.file).get_batch(piece.index).select(list(columns))
        except (OSError, KeyError, pa.ArrowException) as problem:
            raise ReadError(f"{piece} is damaged or cannot be read: {problem}") from problem
        for start in range(0, batch.num_rows, BLOCK_ROWS):
            yield batch.slice(start, BLOCK_ROWS)


@dataclass(frozen=True)
class MemoryTable:
    """An Arrow table in memory."""

    table: pa.Table
    units: Mapping[str, str]
    name: str = "table in memory"
    shuffled: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.table.column_names)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        starts = range(0, self.table.num_rows, BLOCK_ROWS)
        sizes = [min(BLOCK_ROWS, self.table.num_rows - start) for start in starts]
        return tuple(
            Piece(self.name, "", i, size, start) for i, (start, size) in enumerate(zip(starts, sizes, strict=True))
        )

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """The blocks of a slice."""
        yield from blocks_of(self.table.slice(piece.first, piece.rows).select(list(columns)))


def memory_table(data: Any, name: str) -> MemoryTable:
    """Anything with an Arrow stream as a table in memory."""
    import pyarrow as pa

    table = data if isinstance(data, pa.Table) else pa.table(data)
    return MemoryTable(table, units_of(table.schema), name)


def units_of(schema: pa.Schema) -> dict[str, str]:
    """Units in the metadata of a schema's fields."""
    metadata = {column.name: column.metadata or {} for column in schema}
    return {name: facts[b"unit"].decode() for name, facts in metadata.items() if facts.get(b"unit")}


def with_units(schema: pa.Schema, units: Mapping[str, str]) -> pa.Schema:
    """The schema with units in the metadata of its fields."""
    import pyarrow as pa

    fields = [f.with_metadata({"unit": units[f.name]}) if f.name in units else f for f in schema]
    return pa.schema(fields)


def _reader(path: str) -> Any:
    try:
        return _mapped(path, os.path.getmtime(path))
    except OSError as problem:
        raise ReadError(f"{path} cannot be read: {problem}") from problem


@lru_cache(maxsize=4)
def _mapped(path: str, changed: float) -> Any:
    """The file mapped into memory, as it was when last changed."""
    import pyarrow as pa

    try:
        return pa.ipc.open_file(pa.memory_map(path))
    except (OSError, pa.ArrowException) as problem:
        raise ReadError(f"{path} is damaged or no Arrow IPC file: {problem}") from problem
