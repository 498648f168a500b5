"""Prepared stores: shuffled Arrow shards with a manifest that must agree with them."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...system.checksums import digest, range_checksum
from ...system.files import MALFORMED, LaterVersion, refuse_later_version
from .arrow import ArrowFiles, ipc_reader, units_of
from .naming import MANIFEST
from .several import equal_pieces
from .table import Piece, ReadError, Table

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT, VERSION = "xdeconv store", 2  # 1 had one checksum per shard
AGAIN = "prepare the store again"


class Part(NamedTuple):
    """Some bytes of a shard, from those of the part before up to ``end``, and their SHA-256.

    A part is a record batch with what stands before it; the last part is the footer.
    """

    end: int
    sha256: str


@dataclass(frozen=True)
class Checks:
    """Which parts of shards were found to be what the manifest says; each is looked at once."""

    sound: set[tuple[str, int]] = field(default_factory=set)
    lock: Any = field(default_factory=threading.Lock)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Checks, ()


@dataclass(frozen=True)
class StoreTable(Table):
    """The record batches of all shards; the checksum of each is compared when it is first read.

    Of ``dictionaries`` that columns are coded by, all record batches of a shard read those in its first part.
    """

    shards: ArrowFiles
    parts: Mapping[str, Sequence[Part]] = field(repr=False)
    dictionaries: bool = False
    reading: Mapping[str, Any] = field(default_factory=dict)
    checks: Checks = field(default_factory=Checks, repr=False, compare=False)

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.shards.name

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.shards.columns

    @property
    def units(self) -> Mapping[str, str]:  # type: ignore[override]
        return self.shards.units

    @property
    def pieces(self) -> tuple[Piece, ...]:  # type: ignore[override]
        return self.shards.pieces

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """The blocks of a record batch."""
        last = len(self.parts[piece.file]) - 1
        if last:
            for number in (last, *([0] if self.dictionaries else []), piece.index):
                self._check(piece.file, number)
        else:  # of version 1: whoever reads another piece of the shard waits
            with self.checks.lock:
                self._check(piece.file, 0)
        yield from self.shards.read(piece, columns, floats)

    def _check(self, file: str, number: int) -> None:
        if (file, number) not in self.checks.sound:
            refuse_damage(file, self.parts[file], number)
            self.checks.sound.add((file, number))


def refuse_damage(path: str, parts: Sequence[Part], number: int) -> None:
    """Refuse a shard of which a part has another checksum than the manifest says."""
    try:
        checksum = range_checksum(path, parts[number - 1].end if number else 0, parts[number].end)
    except OSError as problem:
        raise ReadError(f"{path} cannot be read: {problem.strerror}") from problem
    if checksum != parts[number].sha256:
        raise ReadError(f"{path} is damaged: its checksum is not the manifest's; {AGAIN}")


def manifest_checksum(manifest: Mapping[str, Any]) -> str:
    """The SHA-256 of all that a manifest says, but for this."""
    facts = {name: value for name, value in manifest.items() if name != "sha256"}
    return digest([json.dumps(facts, sort_keys=True).encode()])


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a store; a clear error for anything else."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as problem:
        raise ReadError(f"{path} is damaged: {problem}") from problem
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ReadError(f"{path} is not the manifest of an xdeconv store")
    try:
        refuse_later_version(manifest.get("version"), VERSION, path)
    except LaterVersion:
        raise
    except ValueError as problem:
        raise ReadError(str(problem)) from problem
    if "sha256" in manifest and manifest["sha256"] != manifest_checksum(manifest):
        raise ReadError(f"{path} is damaged: its checksum is not that of what it says; {AGAIN}")
    return manifest


def open_store(folder: Path) -> StoreTable:
    """A store as a table; a piece is a record batch of a shard."""
    manifest = read_manifest(folder)
    try:
        return _open_shards(folder, manifest)
    except MALFORMED as problem:
        raise ReadError(f"{folder / MANIFEST} is damaged: {problem!r}") from problem


def _open_shards(folder: Path, manifest: dict[str, Any]) -> StoreTable:
    names = tuple(column["name"] for column in manifest["columns"])
    units = {column["name"]: column["unit"] for column in manifest["columns"] if column.get("unit")}
    files = [shard["file"] for shard in manifest["shards"]]
    if len(set(files)) < len(files):
        raise ValueError("names of shards must be unique")
    pieces = [piece for shard in manifest["shards"] for piece in _shard(folder, shard, manifest["batch_rows"])]
    if manifest["rows"] != sum(shard["rows"] for shard in manifest["shards"]):
        raise ReadError(f"{folder / MANIFEST} does not agree with itself on the number of rows: {AGAIN}")
    for shard in manifest["shards"]:
        _refuse_other(folder / shard["file"], names, units, -(-shard["rows"] // manifest["batch_rows"]))
    parts = {str(folder / shard["file"]): parts_of(shard, manifest["batch_rows"]) for shard in manifest["shards"]}
    reading = manifest.get("reading", {})
    if not isinstance(reading, dict):
        raise ValueError("reading must be a table")
    coded = any("dictionary<" in str(column.get("type")) for column in manifest["columns"])
    return StoreTable(ArrowFiles(str(folder), names, units, tuple(pieces)), parts, coded, reading)


def parts_of(shard: Mapping[str, Any], step: int) -> list[Part]:
    """The checksums that the manifest says of a shard; of version 1, of the whole."""
    if "parts" not in shard:
        return [Part(int(shard["bytes"]), str(shard["sha256"]))]
    parts = [Part(int(part["end"]), str(part["sha256"])) for part in shard["parts"]]
    ends = [part.end for part in parts]
    if len(ends) != 1 - (-shard["rows"] // step) or ends != sorted(ends) or ends[-1] != shard["bytes"]:
        raise ValueError(f"no shard can be in parts that end at {ends}")
    return parts


def _shard(folder: Path, shard: Mapping[str, Any], step: int) -> list[Piece]:
    """The record batches that the manifest says of a shard."""
    path, rows = folder / shard["file"], shard["rows"]
    if path.name != shard["file"]:  # before it is looked at
        raise ValueError(f"{shard['file']!r} is not the name of a file in this folder")
    size = path.stat().st_size if path.is_file() else None
    if size != shard["bytes"]:
        raise ReadError(f"{path} has {size} bytes and the manifest says {shard['bytes']}: {AGAIN}")
    if not step > 0 or not 0 <= rows <= size:
        raise ValueError(f"no shard can be {shard}")
    return equal_pieces(str(path), rows, step, "record batch")


def _refuse_other(path: Path, names: tuple[str, ...], units: Mapping[str, str], batches: int) -> None:
    """Refuse a shard with other columns, units or batches than the manifest says."""
    reader = ipc_reader(str(path))
    if tuple(reader.schema.names) != names:
        raise ReadError(f"{path} has other columns than the manifest says: {AGAIN}")
    if units_of(reader.schema) != dict(units):
        raise ReadError(f"{path} has other units than the manifest says: {AGAIN}")
    if reader.num_record_batches != batches:
        raise ReadError(
            f"{path} has {reader.num_record_batches} record batches and the manifest says {batches}: {AGAIN}"
        )
