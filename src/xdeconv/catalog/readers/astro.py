"""FITS tables by memory map, and VOTables and astropy tables in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrow import MemoryTable
from .table import BLOCK_ROWS, Piece, ReadError, need, record_batch

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class FitsTable:
    """Binary tables of one or more FITS files; rows are read in slices and byte-swapped."""

    name: str
    columns: tuple[str, ...]
    units: Mapping[str, str]
    pieces: tuple[Piece, ...]
    shuffled: bool = False
    skipped: tuple[str, ...] = ()

    @classmethod
    def open(cls, name: str, paths: Sequence[Path]) -> FitsTable:
        """Read the headers; the first table of each file counts."""
        pieces: list[Piece] = []
        columns: tuple[str, ...] = ()
        units: dict[str, str] = {}
        for path in paths:
            with _fits(str(path)) as file:
                table = _table(file, str(path))
                rows = table.header["NAXIS2"]
                _refuse_short(table, path)
                starts = range(0, rows, BLOCK_ROWS)
                pieces += [Piece(str(path), "block", i, min(BLOCK_ROWS, rows - s), s) for i, s in enumerate(starts)]
                columns = columns or tuple(table.columns.names)
                units = units or {c.name: c.unit for c in table.columns if c.unit}
        return cls(name, columns, units, tuple(pieces))

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """A slice of the rows."""
        try:
            with _fits(piece.file) as file:
                table = _table(file, piece.file)
                rows = table.data[piece.first : piece.first + (piece.rows or 0)]
                nulls = {c.name: c.null for c in table.columns}
                values = {name: _masked(np.array(rows[name]), nulls[name]) for name in columns}
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise ReadError(f"{piece} is damaged or cannot be read: {problem}") from problem
        yield record_batch(values)


def _fits(path: str) -> Any:
    fits = need("astropy.io.fits")
    try:
        return fits.open(path, memmap=not path.endswith(".gz"))
    except OSError as problem:
        raise ReadError(f"{path} is damaged or no FITS file: {problem}") from problem


def _refuse_short(table: Any, path: Path) -> None:
    """Refuse a file that ends before its table does."""
    end = (table.fileinfo() or {}).get("datLoc", 0) + table.header["NAXIS1"] * table.header["NAXIS2"]
    if path.suffix != ".gz" and end > path.stat().st_size:
        raise ReadError(f"{path} is damaged: it ends before its table does")


def _table(file: Any, path: str) -> Any:
    for part in file:
        if getattr(part, "columns", None) is not None:
            return part
    raise ReadError(f"{path} has no table")


def _masked(values: np.ndarray, null: Any) -> np.ndarray:
    return values if null is None or values.dtype.kind not in "iu" else np.ma.masked_equal(values, null)


def read_votable(path: Path) -> MemoryTable:
    """A VOTable, whole: the format cannot be streamed."""
    table = need("astropy.io.votable")
    try:
        return astropy_table(table.parse_single_table(str(path)).to_table(use_names_over_ids=True), str(path))
    except (OSError, ValueError, IndexError, table.exceptions.VOTableSpecError) as problem:
        raise ReadError(f"{path} is damaged or no VOTable: {problem}") from problem


def astropy_table(table: Any, name: str) -> MemoryTable:
    """An astropy table, masked or not, Quantities too."""
    import pyarrow as pa

    flat = [column for column in table.colnames if getattr(table[column], "ndim", 1) == 1]
    batch = record_batch({column: _plain(table[column]) for column in flat})
    units = {column: str(table[column].unit) for column in flat if getattr(table[column], "unit", None)}
    return MemoryTable(pa.Table.from_batches([batch]), units, name)


def _plain(column: Any) -> Any:
    if hasattr(column, "unmasked"):  # a masked Quantity
        return np.ma.array(column.unmasked.value, mask=column.mask)
    if hasattr(column, "mask"):
        return np.ma.array(np.ma.getdata(column), mask=np.ma.getmaskarray(column))
    return getattr(column, "value", column)
