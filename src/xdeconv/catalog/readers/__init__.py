"""Readers: any catalogue as a Table of Arrow blocks. One small class per format; optional packages on first use."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...rows.tables import kind_of
from .files import Files, damage_named, stamped
from .naming import MANIFEST, SUFFIXES, files_of, format_of, parted
from .table import BLOCK_ROWS, Piece, ReadError, Table, numbers, rows_of

__all__ = ["BLOCK_ROWS", "Piece", "ReadError", "Table", "numbers", "open_table", "rows_of"]
log = logging.getLogger("xdeconv")


def open_table(data: Any, *, names: Sequence[str] | None = None, skip_bad_files: bool = False) -> Table:
    """A table from a path, a glob, a directory, several of them, or a table or array in memory.

    ``names`` call the columns of an array that has none.
    """
    if isinstance(data, (str, os.PathLike)):
        return _open_names(str(data), [data], names, skip_bad_files)
    if isinstance(data, (list, tuple)) and data and all(isinstance(item, (str, os.PathLike)) for item in data):
        label = str(data[0]) if len(data) == 1 else f"{data[0]} and {len(data) - 1} more"
        return _open_names(label, data, names, skip_bad_files)
    return _open_object(data, names)


def _open_object(data: Any, names: Sequence[str] | None) -> Table:
    if isinstance(data, Table):
        return data
    kind = kind_of(data)
    if kind == "dask":
        from .dask import DaskTable

        return DaskTable.open(data)
    if kind == "lazy":
        data, kind = data.collect(), "arrow"
    if kind == "arrow":
        from .arrow import memory_table

        return memory_table(data, f"{type(data).__module__.split('.')[0]} table")
    if kind == "astropy":
        from .astro import astropy_table

        return astropy_table(data, "astropy table")
    if kind == "columns" and not isinstance(data, Mapping):
        data = {name: data[name] for name in data.columns}
    if kind is not None:
        from .numpy_files import array_table

        return array_table(data, "array in memory", names)
    raise ValueError(f"cannot read a table from {type(data).__name__}: give a path, a table or a dict of columns")


def _open_names(label: str, said: Sequence[Any], names: Sequence[str] | None, skip_bad_files: bool) -> Table:
    parts = [parted(str(name)) for name in said]
    if len({chosen for _, chosen in parts}) > 1:
        raise ValueError(f"{label}: the same table must be chosen of all files, or of none")
    return _open_paths(label, files_of([name for name, _ in parts]), names, skip_bad_files, parts[0][1])


def _open_paths(
    label: str, paths: list[Path], names: Sequence[str] | None, skip_bad_files: bool, chosen: str | None
) -> Table:
    if len(paths) == 1 and (paths[0] / MANIFEST).is_file():
        from .store import open_store

        store = open_store(paths[0])
        files = [paths[0] / MANIFEST, *dict.fromkeys(piece.file for piece in store.pieces)]
        return Files(store, stamped(files), shuffled=True)
    kind = _one_format(paths)
    stamps = stamped(paths)
    if not skip_bad_files or len(paths) == 1:
        return Files(_open_format(kind, label, paths, names, chosen), stamps)
    good = [path for path in paths if _opens(kind, path, chosen)]
    if not good:
        raise ReadError(f"{label}: none of {len(paths)} files can be read")
    fine = set(good)
    bad = tuple(str(path) for path in paths if path not in fine)
    kept = {str(path): stamps[str(path)] for path in good}
    return Files(_open_format(kind, label, good, names, chosen), kept, bad)


def _one_format(paths: Sequence[Path]) -> str:
    """The format of all files, by their names."""
    kinds: dict[str | None, Path] = {}
    for path in paths:
        kinds.setdefault(format_of(path), path)
    if None in kinds:
        known = ", ".join(ending for endings in SUFFIXES.values() for ending in endings)
        raise ValueError(f"{kinds[None]}: cannot tell the format from the name ({known})")
    if len(kinds) > 1:
        several = " and ".join(map(str, kinds.values()))
        raise ValueError(f"{several} are of different formats: convert them to one")
    return str(*kinds)


def _opens(kind: str, path: Path, chosen: str | None) -> bool:
    """Whether a file can be opened; one that cannot is logged."""
    try:
        _open_format(kind, str(path), [path], None, chosen)
    except OSError as problem:
        log.warning("skipped: %s", problem)
        return False
    return True


def _open_format(kind: str, label: str, paths: list[Path], names: Sequence[str] | None, chosen: str | None) -> Table:
    with damage_named(label):
        if kind == "fits":
            from .fits import FitsTable

            return FitsTable.open(label, paths, chosen)
        return _opened(kind, label, paths, names)


def _opened(kind: str, label: str, paths: list[Path], names: Sequence[str] | None) -> Table:
    if kind == "parquet":
        from .parquet import ParquetTable

        return ParquetTable.open(label, paths)
    if kind == "arrow":
        from .arrow import ArrowFiles

        return ArrowFiles.open(label, paths)
    if kind == "text":
        from .text import TextTable

        return TextTable.open(label, paths)
    if kind == "hdf5":
        from .hdf5 import Hdf5Table

        return Hdf5Table.open(label, paths)
    if len(paths) > 1:
        raise ValueError(f"only one {kind} file can be read at a time, got {len(paths)}")
    return _open_whole(kind, paths[0], names)


def _open_whole(kind: str, path: Path, names: Sequence[str] | None) -> Table:
    if kind == "votable":
        from .astro import read_votable

        return read_votable(path)
    from .numpy_files import read_numpy

    return read_numpy(path, names)
