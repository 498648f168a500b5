"""Table: what every readable catalogue offers, whatever its format. Rows come as Arrow record batches."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...rows.tables import Inexact, exact_floats
from ...system.checksums import digest
from ...system.memory import short
from .nulls import with_nans

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_ROWS = 1 << 16
Array = np.ndarray


class ReadError(OSError):
    """A file or a part of it cannot be read; the message names both."""


def refuse_to_blame(what: object, problem: BaseException) -> None:
    """Say so where something could not be read for want of memory: it need not be damaged.

    A damaged header may ask for any amount: then both are possible.
    """
    if isinstance(problem, MemoryError):
        raise ReadError(f"{what} needs more memory than there is, or is damaged: {problem}") from problem
    if short(problem):
        raise MemoryError(f"there is not enough memory to read {what} ({problem})") from problem


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


class Table(ABC):
    """Named columns in pieces that can be read in any order, each in blocks of bounded size.

    name      what to call it
    columns   names of all columns
    units     of those columns whose unit the file says
    pieces    the parts, in the order of the rows
    shuffled  whether any run of rows is a fair sample of all
    skipped   files that could not be opened and were left out
    reading   how its rows were said to be read, as arguments of xd.open, where it remembers that
    notes     what a user should know of it
    remote    whether its rows live elsewhere, where :meth:`sum` can be worked out
    """

    name: str
    columns: tuple[str, ...]
    units: Mapping[str, str]
    pieces: tuple[Piece, ...]
    shuffled: bool = False
    skipped: tuple[str, ...] = ()
    reading: Mapping[str, Any] = MappingProxyType({})
    notes: tuple[str, ...] = ()
    remote = False

    @abstractmethod
    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """Blocks of at most BLOCK_ROWS rows, in order; where a format has no types, those in ``floats`` are numbers."""

    def file_units(self, file: str) -> Mapping[str, str]:
        """Units that one of its files says."""
        return self.units

    def unsaid_units(self, columns: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Files that do not say the units of some columns, with these, where other files of the table do."""
        return {}

    def sum(self, work: Callable[[Any, int], Any], pieces: Sequence[int], columns: Sequence[str]) -> Any:
        """The sum of work(partition, number) over some pieces, where these live elsewhere."""
        raise NotImplementedError(f"{self.name} lives here")

    def stamp(self) -> dict[str, Any]:
        """What changes when the rows do, as JSON."""
        return {"table": self.name, "rows": rows_of(self), "columns": list(self.columns), "sample": _sampled(self)}


def _sampled(table: Table) -> str:
    """A checksum of the first and the last piece."""
    pieces = {table.pieces[i].index: table.pieces[i] for i in (0, -1)}.values() if table.pieces else ()
    batches = (batch for piece in pieces for batch in table.read(piece, table.columns))
    return digest(part for batch in batches for column in batch.columns for part in _parts(column))


def _parts(column: Any) -> Iterator[Any]:
    """The type of a column and its memory; of a part of a larger one, its values."""
    yield str(column.type).encode()
    if column.offset:
        yield repr(column.to_pylist()).encode()
    else:
        yield from (b"-" if buffer is None else buffer for buffer in column.slice(0).buffers())


def rows_of(table: Table) -> int | None:
    """How many rows a table has, or None where only reading can tell."""
    counts = [piece.rows for piece in table.pieces]
    return None if any(rows is None for rows in counts) else sum(rows for rows in counts if rows is not None)


def numbers(batch: pa.RecordBatch, name: str) -> Array:
    """A column as NumPy numbers: floats with NaN for null, whole numbers as they are when none is null; text as it is.

    Text has None for null. Whole numbers of which some are null must fit into a float.
    """
    import pyarrow as pa

    column = batch.column(name)
    kind = column.type
    if kind.equals(pa.float32()) or kind.equals(pa.float64()):  # nearly all, and asked for once per block and column
        return with_nans(column, kind.bit_width == 32) if column.null_count else _as_it_is(column)
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_decimal(kind) and kind.scale <= 0:
        column = _whole(column, name)
        kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind) or pa.types.is_float16(kind) or pa.types.is_null(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return np.array(column.to_pylist(), dtype=object)
    elif pa.types.is_integer(kind) and column.null_count:
        missing = column.is_null().to_numpy(zero_copy_only=False)
        return np.where(missing, np.nan, exact_floats(column.fill_null(0).to_numpy(), f"column {name}"))
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise Inexact(f"column {name}", f"is of type {kind}, which is not a number")
    return column.to_numpy(zero_copy_only=False)


def _as_it_is(column: pa.Array) -> Array:
    """A column of floats without nulls, in Arrow's memory: to_numpy imports pandas first, if it is there, for 0.4 s."""
    kind = np.float32 if column.type.bit_width == 32 else np.float64
    end = column.offset + len(column)
    return np.frombuffer(column.buffers()[1], kind, end)[column.offset :] if end else np.empty(0, kind)


def _whole(column: pa.Array, name: str) -> pa.Array:
    """Decimals without a fraction as whole numbers, so that those that a float would change are refused."""
    import pyarrow as pa

    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid as problem:
        raise Inexact(f"column {name}", f"has a whole number of more than 64 bits: {problem}") from problem


def blocks_of(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """A table as record batches of at most BLOCK_ROWS rows, each of one chunk."""
    for batch in table.to_batches(max_chunksize=BLOCK_ROWS):
        if batch.num_rows:
            yield without_views(batch)


def without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with text as Arrow can take rows of: polars writes views, of which it cannot."""
    import pyarrow as pa

    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}

    def viewless(column: pa.Array) -> pa.Array:
        if pa.types.is_dictionary(column.type):  # polars' categories, of which none can be cast
            return pa.DictionaryArray.from_arrays(column.indices, viewless(column.dictionary))
        return column.cast(plain.get(column.type, column.type))

    if not any(getattr(kind, "value_type", kind) in plain for kind in batch.schema.types):
        return batch
    columns = [viewless(column) for column in batch.columns]
    fields = [field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)]
    return pa.record_batch(columns, schema=pa.schema(fields, batch.schema.metadata))


def record_batch(columns: Mapping[str, Any]) -> pa.RecordBatch:
    """NumPy columns (masked ones too) as a record batch, in the machine's own byte order, copied only if need be."""
    import pyarrow as pa

    return pa.record_batch([_arrow(values, name) for name, values in columns.items()], names=list(columns))


def _arrow(values: Any, name: str) -> pa.Array:
    """A column as Arrow has it; what is neither numbers nor text, such as objects of several kinds, as text."""
    import pyarrow as pa

    if np.ndim(values) != 1:
        raise ValueError(f"column {name} must be one number per row, got shape {np.shape(values)}")
    mask = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    array = np.ma.getdata(values) if mask is not None else np.asarray(values)
    if array.dtype.byteorder == ">" or (array.dtype.kind in "iufc" and not array.dtype.isnative):
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8")
    if array.dtype.kind == "U":
        array = array.astype(object)
    hidden = mask if mask is not None and mask.any() else None
    try:
        return pa.array(np.ascontiguousarray(array), mask=hidden)
    except (pa.ArrowException, TypeError, ValueError):
        missing = [value is None or value != value for value in array]
        hidden = np.array(missing) if hidden is None else hidden | missing
        return pa.array([str(value) for value in array], pa.string(), mask=hidden)


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
