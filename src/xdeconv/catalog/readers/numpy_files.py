"""NumPy files and arrays: .npy by memory map, .npz with one array a column."""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .table import BLOCK_ROWS, Piece, ReadError, record_batch

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ArrayTable:
    """Columns of arrays (n,) that may be memory maps."""

    arrays: Mapping[str, Any]
    name: str = "array in memory"
    units: Mapping[str, str] = field(default_factory=dict)
    shuffled: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.arrays)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        rows = len(next(iter(self.arrays.values())))
        starts = range(0, rows, BLOCK_ROWS)
        return tuple(Piece(self.name, "block", i, min(BLOCK_ROWS, rows - s), s) for i, s in enumerate(starts))

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """A slice of the rows."""
        rows = slice(piece.first, piece.first + (piece.rows or 0))
        yield record_batch({name: self.arrays[name][rows] for name in columns})


def array_table(array: Any, name: str, names: Sequence[str] | None = None) -> ArrayTable:
    """A structured array, an (n, p) array whose columns are called ``names`` (or x0, x1, ...), or a dict of columns."""
    if isinstance(array, Mapping):
        columns = {str(key): np.ma.asanyarray(value) for key, value in array.items()}
    elif array.dtype.names:
        columns = {key: array[key] for key in array.dtype.names}
    else:
        wide = array if array.ndim == 2 else array[:, None]
        chosen = list(names or [f"x{i}" for i in range(wide.shape[1])])
        if wide.ndim != 2 or len(chosen) != wide.shape[1]:
            raise ValueError(f"{name} has shape {array.shape}: name each of its columns, got {chosen}")
        columns = {key: wide[:, i] for i, key in enumerate(chosen)}
    lengths = {key: len(value) for key, value in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"{name} has columns of different lengths: {lengths}")
    return ArrayTable(columns, name)


def read_numpy(path: Path, names: Sequence[str] | None = None) -> ArrayTable:
    """A .npy file by memory map, or a .npz file."""
    try:
        found = _arrays(path) if path.suffix == ".npz" else np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as problem:
        raise ReadError(f"{path} is damaged or no NumPy file: {problem}") from problem
    return array_table(found, str(path), names)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    with open(path, "rb") as file:
        return dict(np.load(file, allow_pickle=False))
