"""Checksums: one number or text that changes with what it is of."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np

READ_BYTES = 1 << 20


def checksum(*parts: np.ndarray | bytes | str) -> int:
    """One number that changes with any value of some arrays, bytes or texts; against damage, not against intent.

    >>> checksum("a", b"b") == checksum("ab")
    True
    """
    total = 0
    for part in parts:
        total = zlib.crc32(_bytes(part), total)
    return total


def digest(parts: Iterable[Any]) -> str:
    """SHA-256 of pieces of memory, one after the other, in hexadecimal.

    >>> digest([b"a", b"b"]) == digest([b"ab"])
    True
    """
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()


def range_checksum(path: str | os.PathLike[str], start: int, end: int) -> str:
    """SHA-256 of the bytes of a file from one place to another, in hexadecimal; of fewer where it ends before."""
    total, room = hashlib.sha256(), memoryview(bytearray(max(0, min(READ_BYTES, end - start))))
    with open(path, "rb", buffering=0) as file:
        file.seek(start)
        while start < end and (size := file.readinto(room[: end - start])):
            total.update(room[:size])
            start += size
    return total.hexdigest()


class Parted:
    """A file that is being written, and where each of its parts ends with what SHA-256.

    file   what is written to
    parts  of each part, where it ends and its checksum
    """

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.parts: list[tuple[int, str]] = []
        self._sum, self._place = hashlib.sha256(), 0

    def write(self, content: Any) -> int:
        """Write what comes next of a part."""
        self._sum.update(content)
        self._place += len(content)
        return self.file.write(content)

    def flush(self) -> None:
        """Nothing: the file is flushed by whoever closes it."""

    def end(self) -> None:
        """What was written since the last part is one."""
        self.parts.append((self._place, self._sum.hexdigest()))
        self._sum = hashlib.sha256()


def _bytes(part: np.ndarray | bytes | str) -> bytes:
    if isinstance(part, str):
        return part.encode()
    return part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes()
