"""Prepared stores: shuffled Arrow shards with a manifest, read by memory map."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .arrow import ArrowFiles
from .table import Piece, ReadError

FORMAT, VERSION = "xdeconv store", 1
MANIFEST = "manifest.json"


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a store; a clear error for anything else."""
    path = folder / MANIFEST
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as problem:
        raise ReadError(f"{path} is damaged: {problem}") from problem
    if not isinstance(found, dict) or found.get("format") != FORMAT or found.get("version") != VERSION:
        raise ReadError(f"{path} is no manifest of an xdeconv store, version {VERSION}")
    return found


def open_store(folder: Path) -> ArrowFiles:
    """A store as a table; a piece is a record batch of a shard."""
    manifest = read_manifest(folder)
    try:
        return _open_shards(folder, manifest)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise ReadError(f"{folder / MANIFEST} is damaged: {problem!r}") from problem


def _open_shards(folder: Path, manifest: dict[str, Any]) -> ArrowFiles:
    pieces: list[Piece] = []
    for shard in manifest["shards"]:
        path = folder / shard["file"]
        size = path.stat().st_size if path.is_file() else None
        if size != shard["bytes"]:
            raise ReadError(f"{path} has {size} bytes and the manifest says {shard['bytes']}: prepare the store again")
        step, rows = manifest["batch_rows"], shard["rows"]
        if Path(shard["file"]).name != shard["file"] or not step > 0 or not 0 <= rows <= size:
            raise ValueError(f"no shard can be {shard}")
        starts = range(0, rows, step)
        pieces += [Piece(str(path), "record batch", i, min(step, rows - s), s) for i, s in enumerate(starts)]
    names = tuple(column["name"] for column in manifest["columns"])
    units = {column["name"]: column["unit"] for column in manifest["columns"] if column.get("unit")}
    return ArrowFiles(str(folder), names, units, tuple(pieces), shuffled=True)
