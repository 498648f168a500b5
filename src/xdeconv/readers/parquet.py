"""Parquet: a file, many files, or a directory, HATS catalogues among them. A piece is a row group."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .table import BLOCK_ROWS, Piece, ReadError

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("xdeconv")
PART = "row group"


@dataclass(frozen=True)
class ParquetTable:
    """Row groups of one or more files with the same columns."""

    name: str
    columns: tuple[str, ...]
    units: Mapping[str, str]
    pieces: tuple[Piece, ...]
    shuffled: bool = False
    skipped: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def open(cls, name: str, paths: Sequence[Path], skip_bad_files: bool = False) -> ParquetTable:
        """Read the footers; a damaged one is an error that names its file, or is skipped and counted."""
        pieces: list[Piece] = []
        skipped: list[str] = []
        schema = None
        for path in paths:
            try:
                metadata = _metadata(path)
            except OSError as problem:
                if not skip_bad_files:
                    raise
                log.warning("skipped: %s", problem)
                skipped.append(str(path))
                continue
            schema = schema or metadata.schema.to_arrow_schema()
            pieces += _row_groups(str(path), metadata)
        if schema is None:
            raise ReadError(f"{name}: none of {len(paths)} Parquet files can be read")
        return cls(name, tuple(schema.names), _units(schema), tuple(pieces), skipped=tuple(skipped))

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """The blocks of a row group."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(piece.file, memory_map=True) as file:
                yield from file.iter_batches(BLOCK_ROWS, [piece.index], list(columns), use_threads=False)
        except (OSError, pa.ArrowException) as problem:
            raise ReadError(f"{piece} is damaged or cannot be read: {problem}") from problem


def _metadata(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(path)
    except (OSError, pa.ArrowException) as problem:
        raise ReadError(f"{path} is damaged or no Parquet file: {problem}") from problem


def _row_groups(file: str, metadata: Any) -> Iterator[Piece]:
    first = 0
    for index in range(metadata.num_row_groups):
        rows = metadata.row_group(index).num_rows
        if rows:
            yield Piece(file, PART, index, rows, first)
        first += rows


def _units(schema: pa.Schema) -> dict[str, str]:
    """Units from the metadata of fields, where a writer left them."""
    found = {}
    for column in schema:
        unit = (column.metadata or {}).get(b"unit")
        if unit:
            found[column.name] = unit.decode()
    return found


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a directory; of a HATS catalogue, its partitions alone."""
    root = folder / "dataset" if (folder / "dataset").is_dir() else folder
    found = [p for p in root.rglob("*") if p.suffix in (".parquet", ".pq") and p.is_file()]
    found = [p for p in found if not any(part[0] in "_." for part in p.relative_to(root).parts)]
    partitions = [p for p in found if any(part.startswith("Norder=") for part in p.relative_to(root).parts)]
    return partitions or found
