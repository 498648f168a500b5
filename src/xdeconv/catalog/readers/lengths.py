"""How many rows the record batches of an Arrow file have, from its metadata: pyarrow unpacks one before it tells.

Metadata are flatbuffers: a table begins with the distance back to a list of places, one for each of its fields.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

from .table import ReadError

END = struct.Struct("<i6s")  # of the file: the length of the footer, and ARROW1
BLOCK = struct.Struct("<qi4xq")  # where a record batch lies, and how long its metadata and its body are
MOST = 2**31 - 1  # rows of a record batch, in Arrow's own words
BATCHES, HEADER, LENGTH = 3, 2, 0  # fields: of a footer, of a message, of a record batch


def batch_lengths(path: str, count: int) -> Iterator[int]:
    """The rows of each of so many record batches."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            for offset, length, _ in _blocks(file, size, count):
                yield _rows(_read(file, offset, length, size))
    except (struct.error, ValueError) as problem:
        raise ReadError(f"{path} is damaged: its record batches are not where it says ({problem})") from problem


def _blocks(file: BinaryIO, size: int, count: int) -> list[tuple[int, int, int]]:
    """Where the record batches lie, as the footer says."""
    length, _ = END.unpack(_read(file, size - END.size, END.size, size))
    footer = _read(file, size - END.size - length, length, size)
    if not count:
        return []
    at = _followed(footer, _field(footer, _followed(footer, 0), BATCHES))
    if struct.unpack_from("<I", footer, at)[0] != count:
        raise ValueError("another number of them")
    return [BLOCK.unpack_from(footer, at + 4 + BLOCK.size * i) for i in range(count)]


def _rows(metadata: bytes) -> int:
    """The length of a record batch."""
    message = metadata[8 if metadata[:4] == b"\xff\xff\xff\xff" else 4 :]
    header = _followed(message, _field(message, _followed(message, 0), HEADER))
    place = _field(message, header, LENGTH)
    rows = struct.unpack_from("<q", message, place)[0] if place else 0
    if not 0 <= rows <= MOST:
        raise ValueError(f"{rows} rows")
    return rows


def _read(file: BinaryIO, offset: int, length: int, size: int) -> bytes:
    if offset < 0 or length < 0 or offset + length > size:
        raise ValueError("beyond its end")
    file.seek(offset)
    return file.read(length)


def _followed(buffer: bytes, at: int) -> int:
    """Where the offset at a place leads."""
    return at + struct.unpack_from("<I", buffer, at)[0]


def _field(buffer: bytes, table: int, number: int) -> int:
    """Where a field of a table is; 0 for one that is left out, because it is 0."""
    places = table - struct.unpack_from("<i", buffer, table)[0]
    if places < 0 or 4 + 2 * number >= struct.unpack_from("<H", buffer, places)[0]:
        return 0
    place = struct.unpack_from("<H", buffer, places + 4 + 2 * number)[0]
    return table + place if place else 0
