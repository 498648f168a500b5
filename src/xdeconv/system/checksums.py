"""Checksums: one number or text that changes with what it is of."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np


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


def file_checksum(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _bytes(part: np.ndarray | bytes | str) -> bytes:
    if isinstance(part, str):
        return part.encode()
    return part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes()
