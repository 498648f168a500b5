"""Arrow: IPC files, and tables in memory (pyarrow, pandas, polars: whatever offers an Arrow stream).

Files are read, not mapped: one that shrinks under a map ends the process, and reading takes no longer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...rows.tables import is_pandas
from .files import masked_columns
from .lengths import batch_lengths
from .several import Description, SeveralFiles, equal_pieces
from .table import BLOCK_ROWS, Piece, ReadError, Table, blocks_of, record_batch, refuse_to_blame, without_views
from .text import described_columns

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ArrowFiles(SeveralFiles):
    """Record batches of IPC files."""

    @staticmethod
    def described(path: Path) -> Description:
        """What the footer says."""
        reader = ipc_reader(str(path))
        return Description(reader.schema.names, units_of(reader.schema), _batches(str(path), reader.num_record_batches))

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """The blocks of a record batch."""
        import pyarrow as pa

        try:
            batch = ipc_reader(piece.file, tuple(columns)).get_batch(piece.index).select(list(columns))
        except (OSError, KeyError, IndexError, pa.ArrowException) as problem:
            refuse_to_blame(piece, problem)
            raise ReadError(f"{piece} is damaged or cannot be read: {problem}") from problem
        if batch.num_rows != piece.rows:
            raise ReadError(f"{piece} has {batch.num_rows} rows where {piece.rows} were expected")
        for start in range(0, batch.num_rows, BLOCK_ROWS):
            yield without_views(batch.slice(start, BLOCK_ROWS))


def _batches(path: str, count: int) -> Iterator[Piece]:
    """The record batches of a file that have rows."""
    first = 0
    for index, rows in enumerate(batch_lengths(path, count)):
        if rows:
            yield Piece(path, "record batch", index, rows, first)
        first += rows


@dataclass(frozen=True)
class MemoryTable(Table):
    """An Arrow table in memory."""

    table: pa.Table
    units: Mapping[str, str]
    name: str = "table in memory"

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(self.table.column_names)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:  # type: ignore[override]
        return tuple(equal_pieces(self.name, self.table.num_rows, part=""))

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """The blocks of a slice."""
        yield from blocks_of(self.table.slice(piece.first, piece.rows).select(list(columns)))


def memory_table(data: Any, name: str) -> MemoryTable:
    """Anything with an Arrow stream as a table in memory."""
    import pyarrow as pa

    try:
        table = data if isinstance(data, pa.Table) else pa.table(data)
    except (pa.ArrowException, ValueError, TypeError) as problem:
        if not is_pandas(data):
            raise ValueError(f"{name} cannot be read: {problem}") from problem
        table = _by_columns(data)
    return MemoryTable(masked_columns(table), units_of(table.schema), name)


def _by_columns(data: Any) -> pa.Table:
    """A table of pandas that Arrow cannot take whole: other byte orders, sparse columns, names that come twice."""
    import pyarrow as pa

    return pa.Table.from_arrays([_column(values) for _, values in data.items()], [str(name) for name in data.columns])


def _column(values: Any) -> Any:
    import pyarrow as pa

    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, ValueError, TypeError):
        return record_batch({str(values.name): values.to_numpy()}).column(0)


def units_of(schema: pa.Schema) -> dict[str, str]:
    """Units in the metadata of a schema's fields, or in that of astropy."""
    described = (schema.metadata or {}).get(b"table_meta_yaml", b"").decode(errors="replace")
    units, _ = described_columns(described.splitlines())
    metadata = {column.name: column.metadata or {} for column in schema}
    return units | {name: facts[b"unit"].decode() for name, facts in metadata.items() if facts.get(b"unit")}


def with_units(schema: pa.Schema, units: Mapping[str, str]) -> pa.Schema:
    """The schema with units in the metadata of its fields."""
    import pyarrow as pa

    fields = [f.with_metadata({"unit": units[f.name]}) if f.name in units else f for f in schema]
    return pa.schema(fields)


def ipc_reader(path: str, columns: tuple[str, ...] | None = None) -> Any:
    """What reads the record batches of a file, or some of their columns.

    It costs 0.1 ms, and is not kept: a file that stays open holds its place on the disk when its name is removed.
    """
    import pyarrow as pa

    try:
        whole = pa.ipc.open_file(pa.OSFile(path))
        if columns is None:
            return whole
        wanted = [i for i, name in enumerate(whole.schema.names) if name in columns]
        return pa.ipc.open_file(pa.OSFile(path), options=pa.ipc.IpcReadOptions(included_fields=wanted))
    except (OSError, pa.ArrowException) as problem:
        refuse_to_blame(path, problem)
        raise ReadError(f"{path} is damaged or not an Arrow IPC file: {problem}") from problem
