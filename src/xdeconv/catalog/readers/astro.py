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
from .arrow import MemoryTable
from .files import masked_columns
from .table import ReadError, need, record_batch

CHUNK = 1 << 20


def read_votable(path: Path) -> MemoryTable:
    """A VOTable, whole: the format cannot be streamed."""
    table = need("astropy.io.votable")
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            _refuse_streams(file, path)
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


def _refuse_streams(file: Any, path: Path) -> None:
    """Refuse a table whose rows lie elsewhere: astropy would fetch them from the network, or from any file here."""
    parser = expat.ParserCreate()

    def look(name: str, attributes: dict[str, str]) -> None:
        if name.rpartition(":")[2].upper() == "STREAM" and any(word.lower() == "href" for word in attributes):
            raise ReadError(f"{path}: its rows lie elsewhere (href of a STREAM), which is not read: fetch them first")

    parser.StartElementHandler = look
    with contextlib.suppress(expat.ExpatError):  # which astropy says better
        parser.ParseFile(file)


def astropy_table(table: Any, name: str) -> MemoryTable:
    """An astropy table, masked or not, Quantities too; without columns of several numbers per row or of coordinates."""
    import pyarrow as pa

    flat = [column for column in table.colnames if is_flat(table[column])]
    batch = record_batch({column: astropy_column(table[column]) for column in flat})
    units = {column: unit for column in flat if (unit := unit_of(table[column]))}
    return MemoryTable(masked_columns(pa.Table.from_batches([batch])), units, name)
