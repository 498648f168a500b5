"""Table: what every readable catalogue offers, whatever its format. Rows come as Arrow record batches."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_ROWS = 1 << 16
Array = np.ndarray


class ReadError(OSError):
    """A file or a part of it cannot be read; the message names both."""


@dataclass(frozen=True)
class Piece:
    """A part of a table that can be read by itself: a file, or a part of one. ``rows`` is None until it is read."""

    file: str
    part: str = ""
    index: int = 0
    rows: int | None = None
    first: int = 0

    def __str__(self) -> str:
        return f"{self.file}, {self.part} {self.index}" if self.part else self.file


class Table(Protocol):
    """Named columns in pieces that can be read in any order, each in blocks of bounded size."""

    @property
    def name(self) -> str:
        """What to call it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns."""

    @property
    def units(self) -> Mapping[str, str]:
        """Units of those columns whose unit the file says."""

    @property
    def pieces(self) -> Sequence[Piece]:
        """The parts, in the order of the rows."""

    @property
    def shuffled(self) -> bool:
        """Whether any run of rows is a fair sample of all."""

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """Blocks of at most BLOCK_ROWS rows, in order; where a format has no types, those in ``floats`` are numbers."""


def rows_of(table: Table) -> int | None:
    """How many rows a table has, or None where only reading can tell."""
    counts = [piece.rows for piece in table.pieces]
    return None if any(rows is None for rows in counts) else sum(rows for rows in counts if rows is not None)


def numbers(batch: pa.RecordBatch, name: str) -> Array:
    """A column as NumPy numbers: floats with NaN for null, whole numbers as they are when none is null."""
    import pyarrow as pa

    column = batch.column(name)
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or pa.types.is_float16(kind) or pa.types.is_null(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=str)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ValueError(f"column {name} is of type {kind}, which is no number")
    return column.to_numpy(zero_copy_only=False)


def blocks_of(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """A table as record batches of at most BLOCK_ROWS rows, each of one chunk."""
    for batch in table.to_batches(max_chunksize=BLOCK_ROWS):
        if batch.num_rows:
            yield batch


def record_batch(columns: Mapping[str, Any]) -> pa.RecordBatch:
    """NumPy columns (masked ones too) as a record batch, in the machine's own byte order, copied only if need be."""
    import pyarrow as pa

    return pa.record_batch([_arrow(values) for values in columns.values()], names=list(columns))


def _arrow(values: Any) -> pa.Array:
    import pyarrow as pa

    mask = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    array = np.ma.getdata(values) if mask is not None else np.asarray(values)
    if array.dtype.byteorder == ">" or (array.dtype.kind in "iufc" and not array.dtype.isnative):
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind == "U":
        array = array.astype(object)
    return pa.array(np.ascontiguousarray(array), mask=mask if mask is not None and mask.any() else None)


def natural(path: str) -> list[Any]:
    """A sorting key under which part10 comes after part2."""
    return [int(text) if text.isdigit() else text for text in re.split(r"(\d+)", str(path))]


def need(package: str) -> Any:
    """An optional package, or a message that says how to install it."""
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as problem:
        raise ImportError(f"this format needs {package.split('.')[0]}: pip install 'xdeconv[tables]'") from problem
