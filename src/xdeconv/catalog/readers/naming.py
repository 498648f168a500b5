"""Naming files: what a path, a glob, a directory or several of them stand for, and the format that a name says."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.request import url2pathname

from .table import ReadError, natural

MANIFEST, WORK = "manifest.json", ".prepare"  # of a store, and of one that is being made
PACKED = ("", ".gz", ".bz2", ".zst")  # of text
SUFFIXES = {
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".feather", ".ipc"),
    "text": (*(kind + packed for kind in (".csv", ".ecsv", ".tsv") for packed in PACKED), ".txt", ".dat"),
    "fits": (".fits", ".fit", ".fits.gz"),
    "votable": (".vot", ".votable", ".xml", ".vot.gz", ".votable.gz"),
    "hdf5": (".hdf5", ".h5", ".hdf"),
    "numpy": (".npy", ".npz"),
}


def parted(name: str) -> tuple[str, str | None]:
    """A name without what stands in brackets behind that of a FITS file: the table that is meant.

    >>> parted("sky/*.fits[STARS]"), parted("part[1].fits")
    (('sky/*.fits', 'STARS'), ('part[1].fits', None))
    """
    match = re.fullmatch(r"(?i)(.+\.(?:fits|fit|fits\.gz))\[([^\[\]]+)\]", name)
    return (name, None) if match is None or os.path.exists(name) else (match[1], match[2])


def files_of(names: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files that some names stand for, each once."""
    paths = [path for name in names for path in _expanded(str(name))]
    known: dict[Any, Path] = {}
    for path in paths:
        place = _place(path)
        if place in known:
            other = known[place]
            how = "named twice" if os.path.abspath(other) == os.path.abspath(path) else f"{other} under another name"
            raise ValueError(f"{path} is {how}, and its rows would count twice: name each file once")
        known[place] = path
    return paths


def _place(path: Path) -> Any:
    """What a file has in common with its links; its name, where the system does not number files."""
    status = os.stat(path)
    return (status.st_dev, status.st_ino) if status.st_ino else os.path.realpath(path)


def local(name: str) -> str:
    """A name as the system of this machine has it: ~ is the user's folder, and file:// is taken off.

    >>> local("file:///data/gaia.parquet")
    '/data/gaia.parquet'
    """
    if name.startswith("file://"):
        return url2pathname(name.removeprefix("file://"))
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", name):
        raise ValueError(f"{name} is not on this machine: copy it here, or give its rows as a table of pyarrow, polars "
                         "or Dask, or as a catalogue of LSDB")  # fmt: skip
    return os.path.expanduser(name)


def format_of(path: Path) -> str | None:
    """The format that a file's name says, or None."""
    name = path.name.lower()
    return next((kind for kind, endings in SUFFIXES.items() if name.endswith(endings)), None)


def _expanded(name: str) -> list[Path]:
    """The files that a path, a glob or a directory stands for, in natural order."""
    if not name:
        raise FileNotFoundError("the name of a file to read is empty: is a variable of the shell not set?")
    text = local(name)
    path = Path(text)
    if (path / MANIFEST).is_file():
        return [path]
    if path.is_dir():
        files = _inside(path)
    else:
        files = [path] if path.is_file() else [Path(match) for match in glob.glob(text, recursive=True)]
    files = [match for match in files if match.is_file()]
    for folder in dict.fromkeys([path, *(match.parent for match in files)]):
        _refuse_unfinished(folder)
    if not files:
        raise FileNotFoundError(f"there is no readable file at {name}")
    return sorted(files, key=lambda p: natural(str(p)))


def _refuse_unfinished(folder: Path) -> None:
    """Refuse a store that was not finished, whose shards do not hold all rows."""
    if (folder / WORK).is_dir() and not (folder / MANIFEST).is_file():
        text = f"{folder} is a store that is not finished: wait, or give the `xdeconv prepare` that makes it once more"
        raise ReadError(text)


def _inside(folder: Path) -> list[Path]:
    from .parquet import parquet_files

    everything = [p for p in folder.iterdir() if p.is_file() and format_of(p)]
    return parquet_files(folder) or everything
