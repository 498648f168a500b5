"""Parquet: a file, many files, or a directory, HATS catalogues among them. A piece is a row group."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arrow import units_of
from .several import Description, SeveralFiles
from .table import BLOCK_ROWS, Piece, ReadError, refuse_to_blame, without_views

if TYPE_CHECKING:
    import pyarrow as pa

PART = "row group"


@dataclass(frozen=True)
class ParquetTable(SeveralFiles):
    """Row groups of one or more files with the same columns."""

    @staticmethod
    def described(path: Path) -> Description:
        """What the footer says."""
        metadata = _metadata(path)
        schema = metadata.schema.to_arrow_schema()
        return Description(schema.names, units_of(schema), _row_groups(str(path), metadata))

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """The blocks of a row group."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            # No memory map: a file that shrinks under one ends the process.
            with pq.ParquetFile(plain(piece.file), metadata=_footer(piece.file)) as file:
                there = {*file.schema_arrow.names}
                absent = [name for name in columns if name not in there]
                if absent:
                    raise ReadError(f"{piece.file} has no column {absent[0]!r}, which other files of {self.name} have")
                for batch in file.iter_batches(BLOCK_ROWS, [piece.index], list(columns), use_threads=False):
                    yield without_views(batch.select(list(columns)))
        except ReadError:
            raise
        except (OSError, pa.ArrowException) as problem:
            refuse_to_blame(piece, problem)
            raise ReadError(f"{piece} is damaged or cannot be read: {problem}") from problem


def _metadata(path: Path) -> Any:
    import pyarrow as pa

    try:
        return _footer(str(path))
    except (OSError, pa.ArrowException) as problem:
        refuse_to_blame(path, problem)
        raise ReadError(f"{path} is damaged or not a Parquet file: {problem}") from problem


def _footer(path: str) -> Any:
    """What stands at the end of a file, which is asked for once for every row group."""
    now = os.stat(path)
    return _footer_of(path, now.st_mtime_ns, now.st_size)


@lru_cache(maxsize=64)
def _footer_of(path: str, changed: int, size: int) -> Any:
    """The same of a file as it was when last changed."""
    import pyarrow.parquet as pq

    return pq.read_metadata(plain(path))


def plain(path: str | os.PathLike[str]) -> str:
    """A path that pyarrow takes for no URI, whatever colons are in the file's name."""
    return os.path.abspath(path)


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
    files = [p for p in root.rglob("*") if p.suffix in (".parquet", ".pq") and p.is_file()]
    files = [p for p in files if not any(part[0] in "_." for part in p.relative_to(root).parts)]
    partitions = [p for p in files if any(part.startswith("Norder=") for part in p.relative_to(root).parts)]
    return partitions or files
