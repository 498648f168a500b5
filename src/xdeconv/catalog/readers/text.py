"""CSV and ECSV, compressed or not, Gaia's bulk files as they are: streamed, one piece per file."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...rows.tables import EXACT
from .several import Description, SeveralFiles
from .table import BLOCK_ROWS, Piece, ReadError, refuse_to_blame

if TYPE_CHECKING:
    import pyarrow as pa

NULLS = ["", "null", "NULL", "nan", "NaN", "NA", "N/A", "--", '""', *(" " * width for width in range(1, 33))]
WHOLE = r"^\s*[-+]?\d{16,300}\s*$"  # that may be too large to be a float
NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
ANOTHER = ("#Table", "#RESOURCE")  # begins a second table of VizieR
BLOCK_BYTES = 1 << 22
HEADER_CHARACTERS = 1 << 22  # of all that stands before the rows; what is longer is not a table
TYPES = {"float64": "float64", "float32": "float32", "float16": "float32", "bool": "bool_", "string": "string",
         "int64": "int64", "int32": "int32", "int16": "int16", "int8": "int8", "uint8": "uint8",
         "uint64": "uint64", "uint32": "uint32", "uint16": "uint16"}  # fmt: skip


@dataclass(frozen=True)
class Header:
    """What stands before the rows: lines to skip, column names, and units and types where it says them."""

    lines: int
    columns: tuple[str, ...]
    delimiter: str
    units: Mapping[str, str]
    types: Mapping[str, str]


@dataclass(frozen=True)
class TextTable(SeveralFiles):
    """Rows of text; the number of rows is known only after reading."""

    @staticmethod
    def described(path: Path) -> Description:
        """What the header says."""
        header = read_header(str(path))
        return Description(header.columns, header.units, [Piece(str(path))])

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """The blocks of a file."""
        import pyarrow as pa

        header, row, exact = read_header(piece.file), 0, set[str]()
        self.refuse_absent(piece.file, columns, header.columns)
        try:
            for batch in _batches(piece, header, columns, _types(header, columns, floats)):
                for name in _large(batch, set(floats) - exact):
                    _refuse_rounded(piece, header, name)
                    exact.add(name)
                row += batch.num_rows
                for start in range(0, batch.num_rows, BLOCK_ROWS):
                    yield batch.slice(start, BLOCK_ROWS)
        except (OSError, pa.ArrowException, KeyError) as problem:
            refuse_to_blame(piece, problem)
            raise ReadError(f"{piece} cannot be read after row {row}: {_named(str(problem), header)}") from problem


def _batches(
    piece: Piece, header: Header, columns: Sequence[str], types: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.csv

    options = {
        "read_options": pa.csv.ReadOptions(
            skip_rows=header.lines, column_names=header.columns, block_size=BLOCK_BYTES, use_threads=False
        ),
        "parse_options": pa.csv.ParseOptions(delimiter=header.delimiter, invalid_row_handler=_no_row),
        "convert_options": pa.csv.ConvertOptions(
            include_columns=list(columns), null_values=NULLS, strings_can_be_null=True, column_types=types,
            true_values=["true", "True", "T", "1"], false_values=["false", "False", "F", "0"],
        ),
    }  # fmt: skip
    with pa.input_stream(piece.file, compression=_compression(piece.file)) as stream:
        yield from pa.csv.open_csv(stream, **options)


def _no_row(row: Any) -> str:
    """What to do with a line of too few or too many cells: comments are no rows, such as VizieR's last, #END#."""
    return "skip" if row.text.startswith("#") and not row.text.startswith(ANOTHER) else "error"


def _compression(path: str) -> str | None:
    return {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}.get(os.path.splitext(path.lower())[1])


def _large(batch: pa.RecordBatch, names: Collection[str]) -> list[str]:
    """Which columns of floats hold values that may have been whole numbers, and rounded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    large = []
    for name in sorted(set(names) & set(batch.schema.names)):
        if pa.types.is_floating(batch.schema.field(name).type):
            ends = pc.min_max(batch.column(name)).as_py()
            if any(end is not None and abs(end) >= EXACT for end in ends.values()):
                large.append(name)
    return large


def _refuse_rounded(piece: Piece, header: Header, name: str) -> None:
    """Refuse a column of floats with a whole number that a float changes, by its text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    row = 0
    for batch in _batches(piece, header, [name], {name: pa.string()}):
        texts = batch.column(name)
        for place in pc.indices_nonzero(pc.match_substring_regex(texts, WHOLE)).to_pylist():
            whole = int(texts[place].as_py())
            if float(whole) != whole:
                what = f"{piece}, row {row + place}: column {name} has the whole number {whole}"
                raise ValueError(f"{what}, which a float would change: subtract a constant, or is it an identifier?")
        row += batch.num_rows


def _named(problem: str, header: Header) -> str:
    """What Arrow says of a column, with the column's name for its number."""
    match = re.search(r"column #(\d+)", problem)
    if match is None or int(match[1]) >= len(header.columns):
        return problem
    return problem.replace(match[0], f"column {header.columns[int(match[1])]}", 1)


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
    return _header_of(path, os.stat(path).st_mtime_ns if os.path.exists(path) else 0)


@lru_cache(maxsize=64)
def _header_of(path: str, changed: int) -> Header:
    comments: list[str] = []
    left = HEADER_CHARACTERS
    try:
        with _text(path) as file:
            while line := file.readline(left):
                left -= len(line)
                if left <= 0:
                    raise ReadError(f"{path} has no rows within its first {HEADER_CHARACTERS:,} characters")
                if line.strip() and not line.startswith("#"):
                    return _with_rules(_header(comments, line, path), file.readline(left), file.readline(left))
                comments.append(line[1:].rstrip("\r\n"))  # empty ones too: VizieR writes one of its own
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as problem:
        if isinstance(problem, ReadError):
            raise
        raise ReadError(f"{path} is damaged or not text in UTF-8: {problem}") from problem
    raise ReadError(f"{path} has no line of column names")


def _header(comments: list[str], line: str, path: str) -> Header:
    ecsv = bool(comments) and "ECSV" in comments[0]
    if not ecsv and (_numeric(line) or _beneath(comments, line)):
        return _header_in_comment(comments, line, path)
    delimiter = " " if ecsv else _guess(line)
    for comment in comments:
        match = re.match(r"^\s*delimiter:\s*(['\"]?)(.)\1", comment)
        delimiter = match[2] if match else delimiter
    units, types = described_columns(comments)
    return Header(len(comments) + 1, _names(line, delimiter), delimiter, units, types)


def _with_rules(header: Header, second: str, third: str) -> Header:
    """As VizieR writes its tables: below the names a line of units and a line of dashes."""
    ruled = _names(third, header.delimiter)
    if len(ruled) != len(header.columns) or not all(part and set(part) == {"-"} for part in ruled):
        return header
    units = zip(header.columns, _names(second, header.delimiter), strict=False)
    return replace(header, lines=header.lines + 2, units={name: unit for name, unit in units if unit})


def _header_in_comment(comments: list[str], line: str, path: str) -> Header:
    """The names that stand in the last comment, as NumPy and TOPCAT write them, where the first line is numbers."""
    delimiter = _guess(line)
    columns = _comment_names(comments)
    if comments and delimiter == " " and "  " in line.strip():
        raise ReadError(f"{path} has columns that are aligned by spaces: write it as CSV, ECSV, FITS or VOTable")
    if len(columns) != len(_names(line, delimiter)):
        raise ReadError(f"{path} has no line of column names: its first line, {line.strip()[:60]!r}, is numbers")
    return Header(len(comments), columns, delimiter, {}, {})


def _beneath(comments: list[str], line: str) -> bool:
    """Whether a line, which has text in it, is a row beneath the names that stand in the last comment."""
    names = _comment_names(comments)
    cells = _names(line, _guess(line))
    return len(names) == len(cells) > 1 and _any_number(cells) and not _any_number(names)


def _comment_names(comments: list[str]) -> tuple[str, ...]:
    last = next((text for text in map(str.strip, reversed(comments)) if text), "")
    return _names(last, _guess(last)) if last else ()


def _any_number(cells: Sequence[str]) -> bool:
    return any(re.fullmatch(NUMBER, cell) for cell in cells)


def _names(line: str, delimiter: str) -> tuple[str, ...]:
    """The parts of a line; a delimiter within quotes is none."""
    line = line.rstrip("\r\n")
    quoted = '"' in line and line.count('"') % 2 == 0
    parts = next(csv.reader([line], delimiter=delimiter, skipinitialspace=delimiter != " ")) if quoted else None
    return tuple(part.strip().strip('"') for part in (line.split(delimiter) if parts is None else parts))


def _numeric(line: str) -> bool:
    """Whether a line is a row of numbers, and not names; 0, 1, 2, ... are the names of unnamed columns."""
    parts = _names(line, _guess(line))
    if parts == tuple(map(str, range(len(parts)))):
        return False
    known = [part for part in parts if part not in NULLS]
    return bool(known) and all(re.fullmatch(NUMBER, part) for part in known)


def described_columns(lines: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Units and types of columns, from astropy's description of a table."""
    units: dict[str, str] = {}
    types: dict[str, str] = {}
    name = ""
    for line in lines:
        name = _fact(line, "name") or name
        units |= {name: _fact(line, "unit") or ""} if _fact(line, "unit") else {}
        types |= {name: _fact(line, "datatype") or ""} if name and _fact(line, "datatype") else {}
        if line.strip().startswith("meta:"):
            break
    return units, types


def _fact(line: str, key: str) -> str | None:
    """The value of a key in a line of the YAML header, which has one entry a line or one column a line."""
    if "{" in line:
        match = re.search(rf"[{{,]\s*{key}:\s*([^,}}]+)", re.sub(r"description: *('[^']*'|\"[^\"]*\")", "", line))
    else:
        match = re.match(rf"^[\s\-]*{key}:\s*(.+)$", line)
    return match[1].strip().strip("'\"") if match else None


def _guess(names: str) -> str:
    names = re.sub(r'"[^"]*"', "", names)
    return max(",\t;| ", key=names.count) if any(names.count(c) for c in ",\t;| ") else ","


def _text(path: str) -> Any:
    kind = "utf-8-sig"  # what Excel writes begins with a mark
    if path.lower().endswith(".zst"):
        import pyarrow as pa

        return io.TextIOWrapper(pa.input_stream(path, compression="zstd"), encoding=kind)
    packed: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(os.path.splitext(path.lower())[1], open)
    return packed(path, "rt", encoding=kind)
