"""HDF5: one dataset a column (vaex, Flatiron, or anywhere in the file), or one compound dataset (astropy)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .several import Description, SeveralFiles, equal_pieces
from .stamps import Stamp
from .table import BLOCK_ROWS, Piece, ReadError, need, record_batch
from .text import described_columns

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_ROWS = 4 * BLOCK_ROWS  # to open a column takes as long as to read one and a half blocks of it
MOST_PIECES = 1 << 14  # which 4e9 rows fill: a small file may say that it has any number of rows
DEEPEST = 100  # groups within groups: HDF5 itself takes 12 s to walk through 3,000


@dataclass(frozen=True)
class Hdf5Table(SeveralFiles):
    """Slices of the datasets of one or more files."""

    @staticmethod
    def described(path: Path) -> Description:
        """The columns and how long they are."""
        rows, columns = _layout(str(path))
        units = {name: column.unit for name, column in columns.items() if column.unit}
        size = max(PIECE_ROWS, -(-rows // MOST_PIECES))
        return Description(columns, units, equal_pieces(str(path), rows, size, "part"))

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """Slices of the rows."""
        try:
            _, layout = _layout(piece.file)
            self.refuse_absent(piece.file, columns, layout)
            places = {name: layout[name] for name in columns}
            with _file(piece.file) as file:
                datasets = {name: file[name] for place in places.values() for name in place.datasets}
                for rows in _slices(piece):
                    values = _read(datasets, places, rows)
                    short = [name for name, part in values.items() if len(part) != rows.stop - rows.start]
                    if short:
                        raise ReadError(f"{piece} is damaged: column {short[0]} ends too early")
                    yield record_batch(values)
        except ReadError:
            raise
        except (OSError, KeyError, ValueError, RuntimeError, TypeError) as problem:
            raise ReadError(f"{piece} is damaged or cannot be read: {problem}") from problem


def _slices(piece: Piece) -> Iterator[slice]:
    """The rows of a piece, a block at a time."""
    end = piece.first + (piece.rows or 0)
    return (slice(start, min(start + BLOCK_ROWS, end)) for start in range(piece.first, end, BLOCK_ROWS))


@dataclass(frozen=True)
class _Column:
    """A dataset, or a field of a compound one, with its mask."""

    dataset: Any
    field: str | None = None
    mask: Any = None
    unit: str = ""


@dataclass(frozen=True)
class _Place:
    """Where a column is in its file: the names of its dataset, of its field there, and of its mask."""

    dataset: str
    field: str | None
    mask: str | None
    unit: str

    @property
    def datasets(self) -> tuple[str, ...]:
        """What must be opened to read it."""
        return (self.dataset,) if self.mask is None else (self.dataset, self.mask)


def _read(datasets: Mapping[str, Any], places: Mapping[str, _Place], rows: slice) -> dict[str, np.ndarray]:
    """Some rows of some columns; all fields of a compound dataset at once, since it is read as a whole."""
    fields: dict[str, list[str]] = {}
    for place in places.values():
        if place.field is not None:
            fields.setdefault(place.dataset, []).append(place.field)
    tables = {name: datasets[name].fields(wanted)[rows] for name, wanted in fields.items()}
    return {name: _values(datasets, tables, place, rows) for name, place in places.items()}


def _values(datasets: Mapping[str, Any], tables: Mapping[str, np.ndarray], place: _Place, rows: slice) -> np.ndarray:
    values = datasets[place.dataset][rows] if place.field is None else tables[place.dataset][place.field]
    return values if place.mask is None else np.ma.array(values, mask=datasets[place.mask][rows].astype(bool))


def _layout(path: str) -> tuple[int, dict[str, _Place]]:
    """How many rows a file has, and where its columns are."""
    return _layout_of(path, Stamp.of(path))


@lru_cache(maxsize=64)
def _layout_of(path: str, stamp: Stamp) -> tuple[int, dict[str, _Place]]:
    """The same of a file as it is now: it is asked for once for every block of rows."""
    with _file(path) as file:
        columns = _columns(file, path)
        places = {name: _Place(c.dataset.name, c.field, None if c.mask is None else c.mask.name, c.unit)
                  for name, c in columns.items()}  # fmt: skip
        return len(next(iter(columns.values())).dataset), places


def _file(path: str) -> Any:
    h5py = need("h5py")
    try:
        return h5py.File(path, "r")
    except OSError as problem:
        raise ReadError(f"{path} is damaged or not an HDF5 file: {problem}") from problem


def _columns(file: Any, path: str) -> dict[str, _Column]:
    """Columns by name: those of vaex if there are any, else of a compound dataset, else one-dimensional datasets."""
    try:
        columns = _vaex(file) or _found(file, path)
        for name, column in columns.items():
            _refuse_elsewhere(file, path, name, column)
        return columns
    except (RuntimeError, KeyError, TypeError, AttributeError) as problem:
        raise ReadError(f"{path} is damaged: {problem}") from problem


def _refuse_elsewhere(file: Any, path: str, name: str, column: _Column) -> None:
    """Refuse a column whose numbers lie in another file: a catalogue must not choose what else is read."""
    for item in (column.dataset, column.mask):
        if item is None:
            continue
        virtual = item.is_virtual and any(source.file_name != "." for source in item.virtual_sources())
        if item.external or virtual or item.file.filename != file.filename:
            raise ReadError(
                f"{path}: the numbers of {name} lie in another file, which is not read: open that file itself"
            )


def _vaex(file: Any) -> dict[str, _Column]:
    named = {name: group for name, group in (file.get("table/columns") or {}).items() if "data" in group}
    return {n: _Column(g["data"], mask=g.get("mask"), unit=_unit(g) or _unit(g["data"])) for n, g in named.items()}


def _found(file: Any, path: str) -> dict[str, _Column]:
    """Columns of a file that follows no convention."""
    datasets = _datasets(file, path)
    return _compound(file, path, datasets) or _flat(path, datasets)


def _datasets(file: Any, path: str) -> dict[str, Any]:
    """One-dimensional datasets by their paths."""
    h5py = need("h5py")
    datasets: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        if name.count("/") > DEEPEST:
            raise ReadError(f"{path} has groups within groups, more than {DEEPEST} deep: it is not a table")
        if isinstance(item, h5py.Dataset) and item.ndim == 1:
            datasets[name] = item

    file.visititems(visit)
    return datasets


def _compound(file: Any, path: str, datasets: Mapping[str, Any]) -> dict[str, _Column]:
    """The fields of the one compound dataset, with the units that astropy keeps beside it."""
    tables = {name: item for name, item in datasets.items() if item.dtype.names}
    if len(tables) > 1:
        raise ReadError(f"{path} holds {len(tables)} tables ({', '.join(tables)}): copy one into a file of its own")
    for name, item in tables.items():
        beside = file.get(f"{name}.__table_column_meta__")
        lines = [] if beside is None else [bytes(line).decode(errors="replace") for line in beside[:]]
        units, _ = described_columns(lines)
        return {field: _Column(item, field, unit=units.get(field, "")) for field in item.dtype.names}
    return {}


def _flat(path: str, datasets: Mapping[str, Any]) -> dict[str, _Column]:
    """Datasets of the commonest length, by their last name, or by their whole path where two end alike."""
    if not datasets:
        raise ReadError(f"{path} has no columns: no one-dimensional dataset")
    lengths = {name: len(item) for name, item in datasets.items()}
    [(most, _)] = Counter(lengths.values()).most_common(1)
    ends = {name: name.rsplit("/", 1)[-1] for name, length in lengths.items() if length == most}
    alike = Counter(ends.values())
    return {name if alike[end] > 1 else end: _Column(datasets[name], unit=_unit(datasets[name]))
            for name, end in ends.items()}  # fmt: skip


def _unit(item: Any) -> str:
    value = item.attrs.get("unit", item.attrs.get("units", ""))
    return value.decode() if isinstance(value, bytes) else str(value)
