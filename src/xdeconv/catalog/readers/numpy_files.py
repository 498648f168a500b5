"""NumPy files and arrays: .npy in slices, .npz with one array per column, unpacked as it is read."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...rows.tables import aligned_columns
from .several import equal_pieces
from .table import BLOCK_ROWS, Piece, ReadError, Table, record_batch

if TYPE_CHECKING:
    import pyarrow as pa

DAMAGE = (OSError, ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error)
MOST_UNPACKED = 1100  # deflate makes at most 1,032 bytes of one
MOST_COLUMNS = 10_000  # that names are made up for


@dataclass(frozen=True)
class ArrayTable(Table):
    """Columns of arrays (n,) in memory."""

    arrays: Mapping[str, Any]
    name: str = "array in memory"
    units: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(self.arrays)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:  # type: ignore[override]
        return tuple(equal_pieces(self.name, len(next(iter(self.arrays.values())))))

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """A slice of the rows."""
        rows = slice(piece.first, piece.first + (piece.rows or 0))
        yield record_batch({name: self.arrays[name][rows] for name in columns})


def array_table(array: Any, name: str, names: Sequence[str] | None = None) -> ArrayTable:
    """A structured array, an (n, p) array whose columns are called ``names`` (or x0, x1, ...), or a dict of columns."""
    if isinstance(array, Mapping):
        columns = {str(key): np.ma.asanyarray(value) for key, value in aligned_columns(array).items()}
    elif array.dtype.names:
        columns = {key: array[key] for key in array.dtype.names}
    else:
        wide = array if array.ndim == 2 else array[:, None]
        chosen = _chosen(wide.shape, name, names)
        columns = {key: wide[:, i] for i, key in enumerate(chosen)}
    lengths = {key: len(value) if value.ndim else 0 for key, value in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"{name} has columns of different lengths: {lengths}")
    return ArrayTable(columns, name)


def _chosen(shape: tuple[int, ...], name: str, names: Sequence[str] | None) -> list[str]:
    if not names and shape[-1] > MOST_COLUMNS:  # an array without rows may say any number
        raise ValueError(f"{name} has shape {shape}: more than {MOST_COLUMNS:,} columns without names")
    chosen = list(names or [f"x{i}" for i in range(shape[-1])])
    if len(shape) != 2 or len(chosen) != shape[1]:
        raise ValueError(f"{name} has shape {shape}: name each of its columns, got {chosen}")
    return chosen


def read_numpy(path: Path, names: Sequence[str] | None = None) -> Table:
    """A .npy or a .npz file; neither is read before its rows are wanted."""
    try:
        return _npz(path) if path.suffix == ".npz" else _npy(path, names)
    except DAMAGE as problem:
        raise ReadError(f"{path} is damaged or not a NumPy file: {problem}") from problem


@dataclass(frozen=True)
class _Array:
    """What the header of an array in a file says, and where its numbers begin."""

    shape: tuple[int, ...]
    by_columns: bool
    kind: np.dtype
    offset: int


def _array(file: Any) -> _Array:
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"version {version} of the format is not known")
    shape, by_columns, kind = read(file)
    if kind.hasobject:
        raise ValueError("it holds Python objects, which are not read")
    if min(shape, default=0) < 0 or (shape and shape[0] and not _bytes(shape, kind)):  # of which it may say any number
        raise ValueError(f"its shape cannot be {shape} of {kind.itemsize} bytes each")
    return _Array(shape, by_columns, kind, file.tell())


def _bytes(shape: tuple[int, ...], kind: np.dtype) -> int:
    return int(np.prod(shape, dtype=object)) * kind.itemsize


# .npy


@dataclass(frozen=True)
class NpyTable(Table):
    """A structured array, or one of numbers, read in slices; a file that shrinks under a map ends the process."""

    name: str
    columns: tuple[str, ...]
    pieces: tuple[Piece, ...]
    array: _Array
    units: Mapping[str, str] = field(default_factory=dict)

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """A slice of the rows."""
        try:
            with open(piece.file, "rb") as file:
                values = self._by_columns(file, piece, columns) if self._scattered else self._rows(file, piece, columns)
        except DAMAGE as problem:
            raise ReadError(f"{piece} is damaged or cannot be read: {problem}") from problem
        yield record_batch(values)

    @property
    def _scattered(self) -> bool:
        return self.array.by_columns and len(self.array.shape) == 2

    def _rows(self, file: Any, piece: Piece, columns: Sequence[str]) -> dict[str, np.ndarray]:
        width = self.array.shape[1] if len(self.array.shape) == 2 else 1
        block = self._numbers(file, piece.first * width, (piece.rows or 0) * width)
        if self.array.kind.names:
            return {name: block[name] for name in columns}
        wide = block.reshape(-1, width)
        return {name: wide[:, self.columns.index(name)] for name in columns}

    def _by_columns(self, file: Any, piece: Piece, columns: Sequence[str]) -> dict[str, np.ndarray]:
        starts = {name: self.columns.index(name) * self.array.shape[0] + piece.first for name in columns}
        return {name: self._numbers(file, start, piece.rows or 0) for name, start in starts.items()}

    def _numbers(self, file: Any, first: int, count: int) -> np.ndarray:
        file.seek(self.array.offset + first * self.array.kind.itemsize)
        content = file.read(count * self.array.kind.itemsize)
        if len(content) < count * self.array.kind.itemsize:
            raise ValueError("it ends before its rows do")
        return np.frombuffer(content, dtype=self.array.kind)


def _npy(path: Path, names: Sequence[str] | None) -> NpyTable:
    with open(path, "rb") as file:
        array = _array(file)
    if array.offset + _bytes(array.shape, array.kind) > path.stat().st_size:
        raise ValueError("it ends before its rows do")
    if array.kind.names and len(array.shape) == 1:
        columns = tuple(array.kind.names)
    else:
        columns = tuple(_chosen(array.shape if len(array.shape) != 1 else (*array.shape, 1), str(path), names))
    return NpyTable(str(path), columns, tuple(equal_pieces(str(path), array.shape[0])), array)


# .npz


@dataclass(frozen=True)
class NpzTable(Table):
    """Arrays (n,) of a zip file, unpacked block by block, side by side."""

    name: str
    columns: tuple[str, ...]
    pieces: tuple[Piece, ...]
    units: Mapping[str, str] = field(default_factory=dict)

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """All rows, in blocks; the end of each array tells whether it is whole."""
        try:
            with zipfile.ZipFile(piece.file) as archive:
                files = {name: archive.open(f"{name}.npy") for name in columns}
                kinds = {name: _array(file).kind for name, file in files.items()}
                for start in range(0, piece.rows or 0, BLOCK_ROWS):
                    rows = min(BLOCK_ROWS, (piece.rows or 0) - start)
                    yield record_batch({name: _unpacked(files[name], kinds[name], rows) for name in columns})
                for file in files.values():
                    if file.read(1):
                        raise ValueError("it has more numbers than its header says")
        except DAMAGE as problem:
            raise ReadError(f"{piece} is damaged or cannot be read: {problem}") from problem


def _unpacked(file: Any, kind: np.dtype, rows: int) -> np.ndarray:
    content = file.read(rows * kind.itemsize)
    if len(content) < rows * kind.itemsize:
        raise ValueError("it ends before its rows do")
    return np.frombuffer(content, dtype=kind)


def _whole(array: _Array, unpacked: int, path: Path) -> _Array:
    """The array, where its file has as many bytes as it says, and can have them unpacked."""
    if array.offset + _bytes(array.shape, array.kind) != unpacked:
        raise ValueError("an array in it has not as many numbers as its header says")
    if unpacked > MOST_UNPACKED * path.stat().st_size:
        raise ValueError("an array in it is larger than it can be unpacked to")
    return array


def _npz(path: Path) -> NpzTable:
    with zipfile.ZipFile(path) as archive:
        members = archive.namelist()
        others = [name for name in members if not name.endswith(".npy")]
        if others:  # names have no checksum: a column whose name was damaged must not just be gone
            raise ValueError(f"it holds {others[0]!r}, which is not an array")
        if len(set(members)) < len(members):
            raise ValueError("names of its arrays must be unique")
        arrays = {}
        for member in members:
            with archive.open(member) as file:
                arrays[member.removesuffix(".npy")] = _whole(_array(file), archive.getinfo(member).file_size, path)
    shapes = {name: array.shape for name, array in arrays.items()}
    if len({*shapes.values()}) != 1 or any(len(shape) != 1 for shape in shapes.values()):
        raise ValueError(f"its arrays must be columns of one length, got {shapes}")
    if any(array.kind.names for array in arrays.values()):
        raise ValueError("its arrays must be plain columns, not tables")
    rows = next(iter(shapes.values()))[0]
    return NpzTable(str(path), tuple(arrays), (Piece(str(path), "", 0, rows),) if rows else ())
