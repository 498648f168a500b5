"""Parquet: a file, many files, or a directory, HATS catalogues among them. A piece is a row group."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arrow import units_of
from .table import BLOCK_ROWS, Piece, ReadError

if TYPE_CHECKING:
    import pyarrow as pa

PART = "row group"


@dataclass(frozen=True)
class ParquetTable:
    """Row groups of one or more files with the same columns."""

    name: str
    columns: tuple[str, ...]
    units: Mapping[str, str]
    pieces: tuple[Piece, ...]
    shuffled: bool = False
    skipped: tuple[str, ...] = ()
    stamps: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, name: str, paths: Sequence[Path]) -> ParquetTable:
        """Read the footers; a damaged one is an error that names its file."""
        pieces: list[Piece] = []
        schema: pa.Schema | None = None
        stamps = {str(path): _stamp(path) for path in paths}
        for path in paths:
            metadata = _metadata(path)
            schema = schema or metadata.schema.to_arrow_schema()
            pieces += _row_groups(str(path), metadata)
        assert schema is not None
        return cls(name, tuple(schema.names), units_of(schema), tuple(pieces), stamps=stamps)

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """The blocks of a row group."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            if _stamp(Path(piece.file)) != self.stamps[piece.file]:
                raise OSError("it has changed since it was opened")
            with pq.ParquetFile(piece.file) as file:  # no memory map: a file that shrinks under one ends the process
                yield from file.iter_batches(BLOCK_ROWS, [piece.index], list(columns), use_threads=False)
        except (OSError, pa.ArrowException) as problem:
            raise ReadError(f"{piece} is damaged or cannot be read: {problem}") from problem


def _stamp(path: Path) -> tuple[int, int]:
    """What changes when a file does: its size and its time."""
    try:
        found = path.stat()
    except OSError as problem:
        raise ReadError(f"{path} cannot be read: {problem.strerror}") from problem
    return found.st_size, found.st_mtime_ns


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


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a directory; of a HATS catalogue, its partitions alone."""
    root = folder / "dataset" if (folder / "dataset").is_dir() else folder
    found = [p for p in root.rglob("*") if p.suffix in (".parquet", ".pq") and p.is_file()]
    found = [p for p in found if not any(part[0] in "_." for part in p.relative_to(root).parts)]
    partitions = [p for p in found if any(part.startswith("Norder=") for part in p.relative_to(root).parts)]
    return partitions or found
