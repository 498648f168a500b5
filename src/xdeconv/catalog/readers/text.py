"""CSV and ECSV, compressed or not, Gaia's bulk files as they are: streamed, one piece a file."""

from __future__ import annotations

import gzip
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .table import BLOCK_ROWS, Piece, ReadError

if TYPE_CHECKING:
    import pyarrow as pa

NULLS = ["", "null", "NULL", "nan", "NaN", "NA", "N/A", "--", '""']
BLOCK_BYTES = 1 << 22
TYPES = {"float64": "float64", "float32": "float32", "float16": "float32", "bool": "bool", "string": "string",
         "int64": "int64", "int32": "int32", "int16": "int16", "int8": "int8", "uint8": "uint8",
         "uint64": "uint64", "uint32": "uint32", "uint16": "uint16"}  # fmt: skip


@dataclass(frozen=True)
class Header:
    """What stands before the rows: lines to skip, column names, and units and types where the file says them."""

    lines: int
    columns: tuple[str, ...]
    delimiter: str
    units: Mapping[str, str]
    types: Mapping[str, str]


@dataclass(frozen=True)
class TextTable:
    """Rows of text; the number of rows is known only after reading."""

    name: str
    columns: tuple[str, ...]
    units: Mapping[str, str]
    pieces: tuple[Piece, ...]
    shuffled: bool = False
    skipped: tuple[str, ...] = ()

    @classmethod
    def open(cls, name: str, paths: Sequence[Path]) -> TextTable:
        """Read the header of the first file."""
        header = read_header(str(paths[0]))
        return cls(name, header.columns, header.units, tuple(Piece(str(path)) for path in paths))

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """The blocks of a file."""
        import pyarrow as pa
        import pyarrow.csv

        header, row = read_header(piece.file), 0
        options = {
            "read_options": pa.csv.ReadOptions(
                skip_rows=header.lines + 1, column_names=header.columns, block_size=BLOCK_BYTES, use_threads=False
            ),
            "parse_options": pa.csv.ParseOptions(delimiter=header.delimiter),
            "convert_options": pa.csv.ConvertOptions(
                include_columns=list(columns), null_values=NULLS, strings_can_be_null=True,
                column_types=_types(header, columns, floats),
                true_values=["true", "True", "T", "1"], false_values=["false", "False", "F", "0"],
            ),
        }  # fmt: skip
        try:
            with pa.input_stream(piece.file, compression="detect") as stream:
                for batch in pa.csv.open_csv(stream, **options):
                    row += batch.num_rows
                    for start in range(0, batch.num_rows, BLOCK_ROWS):
                        yield batch.slice(start, BLOCK_ROWS)
        except (OSError, pa.ArrowException, KeyError) as problem:
            raise ReadError(f"{piece} cannot be read after row {row}: {problem}") from problem


def _types(header: Header, columns: Sequence[str], floats: Collection[str]) -> dict[str, Any]:
    """Types that the header or the use of a column demands; the rest is inferred from the first rows."""
    import pyarrow as pa

    types = {
        name: getattr(pa, TYPES[kind])() for name, kind in header.types.items() if kind in TYPES and name in columns
    }
    for name in floats:
        if name in columns and not pa.types.is_floating(types.get(name, pa.int64())):
            types[name] = pa.float64()
    return types


def read_header(path: str) -> Header:
    """The header of a CSV or ECSV file."""
    comments: list[str] = []
    try:
        with _text(path) as file:
            for line in file:
                if not line.startswith("#"):
                    return _header(comments, line)
                comments.append(line[1:].rstrip("\r\n"))
    except (OSError, EOFError, UnicodeDecodeError) as problem:
        raise ReadError(f"{path} is damaged or no text: {problem}") from problem
    raise ReadError(f"{path} has no line of column names")


def _header(comments: list[str], names: str) -> Header:
    units: dict[str, str] = {}
    types: dict[str, str] = {}
    ecsv = bool(comments) and "ECSV" in comments[0]
    delimiter = " " if ecsv else _guess(names)
    name = ""
    for line in comments:
        found = re.match(r"^\s*delimiter:\s*(['\"]?)(.)\1", line)
        delimiter = found[2] if found else delimiter
        name = _fact(line, "name") or name
        units |= {name: _fact(line, "unit") or ""} if _fact(line, "unit") else {}
        types |= {name: _fact(line, "datatype") or ""} if name and _fact(line, "datatype") else {}
        if line.strip().startswith("meta:"):
            break
    columns = tuple(part.strip().strip('"') for part in names.rstrip("\r\n").split(delimiter))
    return Header(len(comments), columns, delimiter, units, types)


def _fact(line: str, key: str) -> str | None:
    """The value of a key in a line of the YAML header, which has one entry a line or one column a line."""
    if "{" in line:
        found = re.search(rf"[{{,]\s*{key}:\s*([^,}}]+)", re.sub(r"description: *('[^']*'|\"[^\"]*\")", "", line))
    else:
        found = re.match(rf"^[\s\-]*{key}:\s*(.+)$", line)
    return found[1].strip().strip("'\"") if found else None


def _guess(names: str) -> str:
    return max(",\t;| ", key=names.count) if any(names.count(c) for c in ",\t;| ") else ","


def _text(path: str) -> Any:
    return gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8")
