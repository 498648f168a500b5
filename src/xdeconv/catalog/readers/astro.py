"""VOTables and astropy tables, in memory."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.parsers import expat

from ...rows.tables import astropy_column, is_flat, unit_of
from ...system.memory import free
from .arrow import MemoryTable
from .files import masked_columns
from .table import ReadError, need, record_batch

CHUNK = 1 << 20
APART = 1 << 24  # bytes between the beginnings of two elements
DESCRIBED = 100_000  # elements beside those of rows
ROWS = ("TR", "TD")


def read_votable(path: Path) -> MemoryTable:
    """A VOTable, whole: the format cannot be streamed."""
    table = need("astropy.io.votable")
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            _look_through(file, path)
            file.seek(0)
            contents = table.parse_single_table(file)
            while file.read(CHUNK):  # only the end of a compressed file tells whether it is whole
                pass
        rows = contents.to_table(use_names_over_ids=True)
        return _named_as(astropy_table(rows, str(path)), rows.colnames, [field.name for field in contents.fields])
    except ReadError:
        raise
    except (OSError, EOFError, zlib.error, ValueError, IndexError, table.exceptions.VOTableSpecError) as problem:
        raise ReadError(f"{path} is damaged or not a VOTable: {problem}") from problem


def _named_as(table: MemoryTable, unique: Sequence[str], names: Sequence[str]) -> MemoryTable:
    """The table with the names that its file has: astropy makes them unique, which hides that two are the same."""
    said = dict(zip(unique, names, strict=True))
    return replace(table, table=table.table.rename_columns([said[column] for column in table.columns]))


def _look_through(file: Any, path: Path) -> None:
    """Refuse a table before astropy takes it into memory: rows that lie elsewhere, which it would fetch from the
    network or from any file here, and what no table has but a small compressed file can hold any amount of."""
    seen, size = _Seen(path), 0
    with contextlib.suppress(expat.ExpatError):  # which astropy says better
        while chunk := file.read(CHUNK):
            size += len(chunk)
            seen.parser.Parse(chunk)
            seen.refuse_apart(size)
            if size > free():
                raise ReadError(f"{path} needs more memory than there is: it unpacks to more than {size >> 20} MiB")


class _Seen:
    """What a parser has met: where the last element began, and how many there were beside those of rows."""

    def __init__(self, path: Path) -> None:
        self.path, self.at, self.inside, self.described = path, 0, "", 0
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self.start

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        now = self.parser.CurrentByteIndex
        self.refuse_apart(now)
        self.inside, self.at = name.rpartition(":")[2].upper(), now
        if self.inside in ROWS:
            return
        self.described += 1
        if self.described > DESCRIBED:
            raise ReadError(f"{self.path} is damaged: it describes itself in more than {DESCRIBED:,} elements")
        if self.inside == "STREAM" and any(word.lower() == "href" for word in attributes):
            raise ReadError(
                f"{self.path}: its rows lie elsewhere (href of a STREAM), which is not read: fetch them first"
            )

    def refuse_apart(self, now: int) -> None:
        """Refuse a text or a tag that is longer than any; the rows of a STREAM are one."""
        if self.inside != "STREAM" and now - self.at > APART:
            raise ReadError(f"{self.path} is damaged: an element of it has more than {APART >> 20} MiB")


def astropy_table(table: Any, name: str) -> MemoryTable:
    """An astropy table, masked or not, Quantities too; without columns of several numbers per row or of coordinates."""
    import pyarrow as pa

    flat = [column for column in table.colnames if is_flat(table[column])]
    if not flat:
        raise ValueError(f"{name} has no columns of one number per row: a single row is given as table[5:6]")
    batch = record_batch({column: astropy_column(table[column]) for column in flat})
    units = {column: unit for column in flat if (unit := unit_of(table[column]))}
    return MemoryTable(masked_columns(pa.Table.from_batches([batch])), units, name)
