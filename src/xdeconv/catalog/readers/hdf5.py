"""HDF5: one dataset a column (vaex, Flatiron, or anywhere in the file), or one compound dataset (astropy)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .table import BLOCK_ROWS, Piece, ReadError, need, record_batch

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Hdf5Table:
    """Slices of the datasets of one or more files."""

    name: str
    columns: tuple[str, ...]
    units: Mapping[str, str]
    pieces: tuple[Piece, ...]
    shuffled: bool = False
    skipped: tuple[str, ...] = ()

    @classmethod
    def open(cls, name: str, paths: Sequence[Path]) -> Hdf5Table:
        """Find the columns of the first file and the lengths of all."""
        pieces: list[Piece] = []
        columns: tuple[str, ...] = ()
        units: dict[str, str] = {}
        for path in paths:
            with _file(str(path)) as file:
                found = _columns(file, str(path))
                rows = len(next(iter(found.values())).dataset)
                starts = range(0, rows, BLOCK_ROWS)
                pieces += [Piece(str(path), "block", i, min(BLOCK_ROWS, rows - s), s) for i, s in enumerate(starts)]
                columns = columns or tuple(found)
                units = units or {name: c.unit for name, c in found.items() if c.unit}
        return cls(name, columns, units, tuple(pieces))

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """A slice of the rows."""
        rows = slice(piece.first, piece.first + (piece.rows or 0))
        try:
            with _file(piece.file) as file:
                found = _columns(file, piece.file)
                values = {name: found[name].read(rows) for name in columns}
        except (OSError, KeyError, ValueError) as problem:
            raise ReadError(f"{piece} is damaged or cannot be read: {problem}") from problem
        yield record_batch(values)


@dataclass(frozen=True)
class _Column:
    """A dataset, or a field of a compound one, with its mask."""

    dataset: Any
    field: str | None = None
    mask: Any = None
    unit: str = ""

    def read(self, rows: slice) -> np.ndarray:
        values = self.dataset[rows] if self.field is None else self.dataset.fields(self.field)[rows]
        return values if self.mask is None else np.ma.array(values, mask=self.mask[rows].astype(bool))


def _file(path: str) -> Any:
    h5py = need("h5py")
    try:
        return h5py.File(path, "r")
    except OSError as problem:
        raise ReadError(f"{path} is damaged or no HDF5 file: {problem}") from problem


def _columns(file: Any, path: str) -> dict[str, _Column]:
    """Columns by name: those of vaex if there are any, else all one-dimensional datasets of the commonest length."""
    vaex = file.get("table/columns")
    if vaex is not None:
        named = {name: group for name, group in vaex.items() if "data" in group}
        return {n: _Column(g["data"], mask=g.get("mask"), unit=_unit(g) or _unit(g["data"])) for n, g in named.items()}
    found: dict[str, Any] = {}
    file.visititems(lambda name, item: found.update({name: item}) if getattr(item, "ndim", 0) == 1 else None)
    compound = [item for item in found.values() if item.dtype.names]
    if compound:
        return {name: _Column(compound[0], name) for name in compound[0].dtype.names}
    if not found:
        raise ReadError(f"{path} has no columns: no one-dimensional dataset")
    lengths = [len(item) for item in found.values()]
    most = max(set(lengths), key=lengths.count)
    return {
        name.rsplit("/", 1)[-1]: _Column(item, unit=_unit(item)) for name, item in found.items() if len(item) == most
    }


def _unit(item: Any) -> str:
    value = item.attrs.get("unit", item.attrs.get("units", ""))
    return value.decode() if isinstance(value, bytes) else str(value)
