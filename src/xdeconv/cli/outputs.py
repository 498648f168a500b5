"""Files that a command writes: never one that it reads, and never one that xdeconv did not write unless forced."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODELS = (".safetensors",)
PICTURES = (".png", ".pdf", ".svg", ".jpg")
PAGES = (".html", ".htm")
EXCHANGES = (".npz", ".fits")
MADE_BY = "made by xdeconv"
EDGE = 1 << 14  # bytes at either end of a file in which its mark is looked for


def checked(
    target: Path, inputs: Iterable[str | Path | None], force: bool, endings: Sequence[str] = (),
    option: str = "--output",
) -> Path:  # fmt: skip
    """The file to write, refused before any work: by its ending, as an input, as a folder, as somebody else's."""
    if endings and not target.name.lower().endswith(tuple(endings)):
        raise typer.BadParameter(f"{target} does not end in {' or '.join(endings)}", param_hint=option)
    refuse_input(target, inputs, option)
    if target.is_dir():
        raise IsADirectoryError(f"{option} {target} is a folder: name a file")
    if target.exists() and not target.is_file():
        raise OSError(f"{option} {target} is a pipe or a device: name a file")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{option} {target}: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"{option} {target}: nothing can be written into the folder {target.parent}")
    if not force and os.path.lexists(target) and not ours(target):
        text = f"{option} {target} is there and xdeconv did not write it: choose another name, or say --force"
        raise FileExistsError(text)
    return target


def refuse_input(target: Path, inputs: Iterable[str | Path | None], option: str = "--output") -> None:
    """Refuse to write a file that the command reads, under whichever name."""
    for path in files_of(inputs):
        if _same(path, target):
            text = f"{target} is {path}, which the command reads: choose another name"
            raise typer.BadParameter(text, param_hint=option)


def refuse_twice(targets: Mapping[str, Path | None]) -> None:
    """Refuse to write two things, by option, to one file, which may not be there yet."""
    seen: dict[str, str] = {}
    for option, path in targets.items():
        if path is None:
            continue
        place = os.path.normcase(os.path.realpath(path))
        if place in seen:
            raise typer.BadParameter(f"{path} is what {seen[place]} writes: choose another name", param_hint=option)
        seen[place] = option


def files_of(inputs: Iterable[str | Path | None]) -> Iterable[Path]:
    """The files that paths, globs and folders stand for."""
    from ..catalog.readers.naming import local

    for item in inputs:
        if item is None or not str(item):  # an empty name, which is refused when it is read, is no folder
            continue
        name = local(str(item))
        files = [Path(name)] if Path(name).exists() else [Path(match) for match in glob.glob(name, recursive=True)]
        for path in files:
            yield from (p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]


def _same(path: Path, target: Path) -> bool:
    try:
        return os.path.samefile(path, target)
    except OSError:
        return False


def ours(path: Path) -> bool:
    """Whether xdeconv wrote a file, from what is in it; text files cannot tell."""
    name = path.name.lower()
    if name.endswith(MODELS):
        from ..system.files import kind_of

        return kind_of(path) is not None
    if name.endswith((".parquet", ".pq", ".arrow", ".feather")):
        return _marked_table(path)
    if name.endswith(".npz"):
        return _exported(path)
    if name.endswith(".fits"):
        return b"EXTNAME = 'COMPONENTS'" in _edges(path)
    return name.endswith((*PICTURES, *PAGES)) and MADE_BY.encode() in _edges(path)


def _marked_table(path: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ..catalog.readers.parquet import plain

    try:
        if path.name.lower().endswith((".parquet", ".pq")):
            metadata = pq.read_schema(plain(path)).metadata
        else:
            with pa.memory_map(str(path)) as file:
                metadata = pa.ipc.open_file(file).schema.metadata
    except (pa.ArrowException, OSError):
        return False
    return b"xdeconv" in (metadata or {})


def _exported(path: Path) -> bool:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            return {"weights.npy", "means.npy", "covariances.npy", "meta.npy"} <= set(archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def _edges(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            start = file.read(EDGE)
            file.seek(max(0, os.path.getsize(path) - EDGE))
            return start + file.read()
    except OSError:
        return b""


def table_mark() -> dict[str, str]:
    """The mark of our tables, for the metadata of their schema."""
    from .. import __version__

    return {"xdeconv": __version__}


def save_picture(figure: Figure, target: Path, **options: Any) -> None:
    """Write a picture with our mark; what was there stays whole until the new file is."""
    from ..system.files import replacing

    kind = target.suffix.lower().lstrip(".")
    if kind == "jpg":
        options["pil_kwargs"] = {"comment": MADE_BY}
    else:
        options["metadata"] = {"Software" if kind == "png" else "Creator": MADE_BY}
    with replacing(target) as partial:
        figure.savefig(partial, format=kind, **options)
