"""FITS tables. Rows are read, not mapped, in slices; those of a compressed file one after the other, to its end.

Of several tables in a file the first counts, or the one in brackets behind the file's name: a.fits[2], a.fits[STARS].
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...rows.tables import Inexact, exact_floats
from .several import Description, SeveralFiles, equal_pieces
from .stamps import Stamp
from .table import BLOCK_ROWS, Piece, ReadError, need, record_batch

if TYPE_CHECKING:
    import pyarrow as pa

INTEGERS, FLOATS = "BIJK", "ED"
HEADER_BYTES = 1 << 25
CHUNK = 1 << 20
DAMAGE = (OSError, EOFError, ValueError, KeyError, TypeError, IndexError, zlib.error)


@dataclass(frozen=True)
class Layout:
    """Where the rows of a table lie in a file, and what they are made of."""

    offset: int
    rows: int
    kind: np.dtype
    columns: Mapping[str, Any]  # astropy's description of each
    text: bool = False  # an ASCII table, which astropy reads as a whole
    called: str = ""  # what the table is called, or its number
    beside: str = ""  # what the next table of the file is called


@dataclass(frozen=True)
class FitsTable(SeveralFiles):
    """Tables of one or more FITS files: of each the first, or the one that was chosen by its name or number."""

    chosen: str | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def open(cls, name: str, paths: Sequence[Path], chosen: str | None = None) -> FitsTable:
        """The table of some files, by what the header of each says."""
        table = cls.of(name, ((str(path), cls.described(path, chosen)) for path in paths))
        several = [path for path in map(str, paths) if chosen is None and _layout(path).beside]
        return replace(table, chosen=chosen, notes=_first_of_several(several))

    @staticmethod
    def described(path: Path, chosen: str | None = None) -> Description:
        """What the header says."""
        layout = _layout(str(path), chosen)
        units = {name: column.unit for name, column in layout.columns.items() if column.unit}
        return Description(layout.columns, units, _pieces(str(path), layout))

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """A slice of the rows, or all of them, one slice after the other."""
        try:
            layout = _layout(piece.file, self.chosen)
            self.refuse_absent(piece.file, columns, layout.columns)
            for rows in _slices(piece, layout):
                yield record_batch({name: _values(rows, layout, name) for name in columns})
        except (ReadError, Inexact):
            raise
        except DAMAGE as problem:
            raise ReadError(f"{piece} is damaged or cannot be read: {problem}") from problem


def _first_of_several(paths: Sequence[str]) -> tuple[str, ...]:
    """What to say of files that hold more tables than the one that is read."""
    if not paths:
        return ()
    layout = _layout(paths[0])
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return (f"{paths[0]}{more} has several tables, and the first, {layout.called}, is read: "
            f"{Path(paths[0]).name}[{layout.beside}] is the next",)  # fmt: skip


def _pieces(path: str, layout: Layout) -> list[Piece]:
    if _compressed(path):
        return [Piece(path, "", 0, layout.rows)] if layout.rows else []
    return equal_pieces(path, layout.rows)


def _compressed(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


class _Headers(gzip.GzipFile):
    """A compressed file of which only headers are read: a small file may hold an endless one."""

    left = HEADER_BYTES

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.left -= len(data)
        if self.left < 0:
            raise ReadError(f"{self.name} has no table within the first {HEADER_BYTES:,} bytes of its headers")
        return data


def _layout(path: str, chosen: str | None = None) -> Layout:
    """What the header of a table of a file says."""
    return _layout_of(path, Stamp.of(path), chosen)


@lru_cache(maxsize=64)
def _layout_of(path: str, stamp: Stamp, chosen: str | None) -> Layout:
    """The same of a file as it is now: it is asked for once for every block of rows."""
    fits = need("astropy.io.fits")
    try:
        with ExitStack() as held:
            start = held.enter_context(_Headers(path, "rb")) if _compressed(path) else path
            file = held.enter_context(fits.open(start, memmap=False, lazy_load_hdus=True))
            tables = ((_called(i, part), str(i), part) for i, part in enumerate(file)
                      if isinstance(part, (fits.BinTableHDU, fits.TableHDU)))  # fmt: skip
            seen = []
            for called, number, part in tables:
                seen.append(called)
                if chosen is None or chosen == number or chosen.upper() == called.upper():
                    layout = _described(part, path, isinstance(part, fits.TableHDU))
                    beside = "" if _compressed(path) or chosen else next(tables, ("",))[0]
                    return replace(layout, called=called, beside=beside)
            if seen:
                raise ReadError(f"{path} has no table {chosen}: its tables are {', '.join(seen)}")
    except ReadError:
        raise
    except DAMAGE as problem:
        raise ReadError(f"{path} is damaged or not a FITS file: {problem}") from problem
    raise ReadError(f"{path} has no table")


def _called(number: int, table: Any) -> str:
    return str(table.name) or str(number)


def _described(table: Any, path: str, text: bool) -> Layout:
    header, kind = table.header, table.columns.dtype.newbyteorder(">")
    offset, rows = table.fileinfo()["datLoc"], header["NAXIS2"]
    if rows < 0 or (rows and not kind.itemsize):
        raise ReadError(f"{path} is damaged: it says that it has {rows:,} rows of {kind.itemsize} bytes")
    if not text and kind.itemsize != header["NAXIS1"]:
        raise ReadError(f"{path} is damaged: its rows have {header['NAXIS1']} bytes and its columns {kind.itemsize}")
    if not _compressed(path) and offset + header["NAXIS1"] * rows > Path(path).stat().st_size:
        raise ReadError(f"{path} is damaged: it ends before its table does")
    return Layout(offset, rows, kind, {c.name: c for c in table.columns}, text)


def _slices(piece: Piece, layout: Layout) -> Iterator[Any]:
    if layout.text:
        yield _ascii(piece.file, layout.offset)[piece.first : piece.first + (piece.rows or 0)]
    elif _compressed(piece.file):
        yield from _inflated(piece.file, layout)
    else:
        with open(piece.file, "rb") as file:
            file.seek(layout.offset + piece.first * layout.kind.itemsize)
            yield _rows(file, layout, piece.rows or 0)


def _inflated(path: str, layout: Layout) -> Iterator[np.ndarray]:
    """All rows of a compressed file, and then the rest of it: only its end tells whether it is whole."""
    with gzip.open(path, "rb") as file:
        _skip(file, layout.offset)
        for start in range(0, layout.rows, BLOCK_ROWS):
            yield _rows(file, layout, min(BLOCK_ROWS, layout.rows - start))
        while file.read(CHUNK):
            pass


def _skip(file: Any, size: int) -> None:
    while size > 0:
        size -= len(file.read(min(CHUNK, size))) or size


def _rows(file: Any, layout: Layout, count: int) -> np.ndarray:
    content = file.read(count * layout.kind.itemsize)
    if len(content) < count * layout.kind.itemsize:
        raise ValueError("it ends before its table does")
    return np.frombuffer(content, dtype=layout.kind)


def _ascii(path: str, offset: int) -> Any:
    fits = need("astropy.io.fits")
    with fits.open(path, memmap=False) as file:
        return next(part for part in file if part.fileinfo()["datLoc"] == offset).data


def _values(rows: Any, layout: Layout, name: str) -> np.ndarray:
    """A column as it is meant: scaled, and masked where it is null."""
    column = layout.columns[name]
    if layout.text:
        return _of_text(rows, name, column)
    values = np.asarray(rows[name])
    code = str(column.format).lstrip("0123456789")[:1]
    if values.ndim != 1 or code not in "LA" + INTEGERS + FLOATS:
        why = f"has the format {column.format}, which is not one number or text in each row"
        raise Inexact(f"column {name}", why)
    if code == "A":
        return values
    if code == "L":
        return np.ma.array(values.view("u1") == ord("T"), mask=values.view("u1") == 0)
    null = values == int(column.null) if code in INTEGERS and column.null not in (None, "") else None
    known = values if null is None else np.where(null, 0, values)
    scaled = _scaled(known, column.bscale or 1, column.bzero or 0, code, name)
    return scaled if null is None else np.ma.array(scaled, mask=null)


def _of_text(rows: Any, name: str, column: Any) -> np.ndarray:
    """A column of an ASCII table, masked where it is null or blank: of whole numbers, astropy makes both 0."""
    values = np.asarray(rows[name])
    if values.dtype.kind in "SU":
        return values
    written = np.char.strip(rows.view(np.ndarray)[name])
    return np.ma.array(values, mask=(written == b"") | (written == str(column.null or "").strip().encode()))


def _scaled(values: np.ndarray, scale: float, zero: float, code: str, name: str) -> np.ndarray:
    """TSCAL and TZERO; whole numbers stay so where only their sign is moved, and else must fit into a float."""
    if scale == 1 and zero == 0:
        return values
    if scale == 1 and code == "K" and zero == 2**63:
        return values.astype("i8").view("u8") ^ np.uint64(1 << 63)
    if scale == 1 and code in "BIJ" and float(zero).is_integer() and abs(zero) <= 2**32:
        return values.astype("i8") + int(zero)
    return exact_floats(values, f"column {name}") * scale + zero
