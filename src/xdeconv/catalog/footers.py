"""Footers of Parquet files, which row groups that were encoded apart share: Thrift's compact form, as far as needed.

A struct is {number of a field: (kind, value)}, a list is (kind of its items, items). All offsets count from the
beginning of the file, so that those of a part that is put behind others grow by the bytes before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
WHOLE = (4, 5, 6)  # of 16, 32 and 64 bits
ROWS, ROW_GROUPS = 3, 4  # fields of a file
COLUMNS, GROUP_AT = 1, 5  # fields of a row group
COLUMN_AT, FACTS, INDICES = 2, 3, (4, 6)  # fields of a column: its place, what is known of it, its indices
PAGES = (9, 10, 11, 14)  # fields of these facts: where data, index, dictionary and Bloom filter lie
Struct = dict[int, tuple[int, Any]]


def footer(file: memoryview) -> tuple[Struct, int]:
    """What stands at the end of a Parquet file, and where that begins."""
    start = len(file) - 8 - int.from_bytes(file[-8:-4], "little")
    return _Decoder(file[start:-8]).struct(), start


def moved(group: Struct, by: int) -> bytes:
    """A row group as it is in a file that has so many bytes more before it."""
    _add(group, (GROUP_AT,), by)
    for column in group[COLUMNS][1][1]:
        _add(column, (COLUMN_AT, *INDICES), by)
        _add(column[FACTS][1], PAGES, by)
    return encoded(group)


def ending(first: Struct, rows: int, groups: list[bytes]) -> bytes:
    """The end of a file with these row groups; all else is as in the first part's footer."""
    whole = encoded({**first, ROWS: (6, rows), ROW_GROUPS: (LIST, (STRUCT, groups))})
    return whole + len(whole).to_bytes(4, "little") + b"PAR1"


def _add(struct: Struct, fields: tuple[int, ...], by: int) -> None:
    for field in fields:
        kind, value = struct.get(field, (0, 0))
        if value > 0:  # 0 is for what is nowhere
            struct[field] = (kind, value + by)


class _Decoder:
    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def struct(self) -> Struct:
        fields: Struct = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else _signed(self._varint())
            fields[field] = (head & 15, self._value(head & 15))
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (TRUE, FALSE):
            return kind == TRUE
        return self._item(kind)

    def _item(self, kind: int) -> Any:
        if kind in (TRUE, FALSE, BYTE):  # in a list a truth is a byte
            return self._byte()
        if kind in WHOLE:
            return _signed(self._varint())
        if kind == STRUCT:
            return self.struct()
        if kind in (LIST, SET):
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            return head & 15, [self._item(head & 15) for _ in range(count)]
        if kind not in (BINARY, DOUBLE):
            raise ValueError(f"footers have no values of kind {kind}")
        return self._bytes(8 if kind == DOUBLE else self._varint())

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _bytes(self, count: int) -> bytes:
        self.at += count
        return bytes(self.data[self.at - count : self.at])

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 128:
            value, shift = value | (byte & 127) << shift, shift + 7
        return value | byte << shift


def encoded(struct: Struct) -> bytes:
    """A struct in Thrift's compact form.

    >>> encoded({1: (6, 3), 3: (8, b"ab")}).hex()
    '16062802616200'
    """
    return b"".join(_fields(struct))


def _fields(struct: Struct) -> Iterator[bytes]:
    last = 0
    for field, (kind, value) in sorted(struct.items()):
        step, last = field - last, field
        yield bytes([step << 4 | kind]) if step < 16 else bytes([kind]) + _varint(_folded(field))
        if kind not in (TRUE, FALSE):
            yield _item(kind, value)
    yield b"\0"


def _item(kind: int, value: Any) -> bytes:
    if kind in (TRUE, FALSE, BYTE):
        return bytes([value])
    if kind in WHOLE:
        return _varint(_folded(value))
    if kind == STRUCT:
        return value if isinstance(value, bytes) else encoded(value)
    if kind in (LIST, SET):
        inner, items = value
        head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([15 << 4 | inner]) + _varint(len(items))
        return head + b"".join(_item(inner, item) for item in items)
    return value if kind == DOUBLE else _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _folded(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _signed(value: int) -> int:
    return value >> 1 ^ -(value & 1)
