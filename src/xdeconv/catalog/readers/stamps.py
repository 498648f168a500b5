"""Stamps of files: what changes when a file does. Size and time are looked at whenever a file is read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, BinaryIO

from ...system.checksums import digest
from .table import ReadError

SAMPLES, SAMPLE_BYTES = 16, 4096


@dataclass(frozen=True)
class Stamp:
    """The size of a file in bytes, and the time of its last change in nanoseconds."""

    size: int
    time: int

    @classmethod
    def of(cls, path: str) -> Stamp:
        """The stamp that a file has now."""
        try:
            status = os.stat(path)
        except OSError as problem:
            raise ReadError(f"{path} cannot be read: {problem.strerror}") from problem
        return cls(status.st_size, status.st_mtime_ns)

    def check(self, path: str) -> None:
        """Refuse a file that is not what it was."""
        if Stamp.of(path) != self:
            raise ReadError(f"{path} cannot be read: it has changed since it was opened")

    def facts(self, path: str) -> dict[str, Any]:
        """The stamp and a checksum of some of the contents, as JSON."""
        self.check(path)
        return {"file": os.path.basename(path), "size": self.size, "time": self.time, "sample": sample(path, self.size)}


def sample(path: str, size: int) -> str:
    """A checksum of pieces of a file: its beginning, its end, and some between, all of it when it is small."""
    last = max(0, size - SAMPLE_BYTES)
    with open(path, "rb") as file:
        return digest(_piece(file, last * i // (SAMPLES - 1)) for i in range(SAMPLES))


def _piece(file: BinaryIO, start: int) -> bytes:
    file.seek(start)
    return file.read(SAMPLE_BYTES)
