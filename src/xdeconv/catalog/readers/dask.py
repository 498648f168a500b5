"""Dask and LSDB: catalogues in partitions that live elsewhere. Work is sent to them, or they are fetched one by one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from ...rows.tables import dask_frame
from .table import Piece, Table, blocks_of

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PartitionTable(Table):
    """One partition, as a pandas table in memory, under its number in the whole: the pieces are told of that alone."""

    name: str
    columns: tuple[str, ...]
    pieces: Mapping[int, Piece] | tuple[Piece, ...]  # type: ignore[assignment]
    partition: Any = field(repr=False, compare=False)
    units: Mapping[str, str] = field(default_factory=dict)

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """Its blocks, whichever piece is asked for."""
        import pyarrow as pa

        yield from blocks_of(pa.Table.from_pandas(self.partition[list(columns)], preserve_index=False))


@dataclass(frozen=True)
class DaskTable(Table):
    """All partitions; each is a piece."""

    name: str
    columns: tuple[str, ...]
    pieces: tuple[Piece, ...]
    frame: Any = field(repr=False, compare=False)
    units: Mapping[str, str] = field(default_factory=dict)
    planned: dict[tuple[str, ...], list[Any]] = field(default_factory=dict, repr=False, compare=False)
    remote = True

    @classmethod
    def open(cls, data: Any) -> DaskTable:
        """A Dask DataFrame or an LSDB catalogue; partitions are counted where they live."""
        name = f"{type(data).__module__.split('.')[0]} catalogue"
        frame = dask_frame(data)
        columns = tuple(map(str, frame.columns))
        rows = [int(n) for n in _compute([_delayed(len)(part) for part in frame[[frame.columns[0]]].to_delayed()])]
        pieces = tuple(Piece(name, "partition", i, n) for i, n in enumerate(rows))
        return cls(name, columns, pieces, frame)

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """The blocks of a partition, fetched."""
        (partition,) = _compute([self._partitions(tuple(columns))[piece.index]])
        yield from PartitionTable(self.name, self.columns, self.pieces, partition).read(piece, columns)

    def _partitions(self, columns: tuple[str, ...]) -> list[Any]:
        """Some columns of each partition, not yet fetched; to say so of one partition, Dask goes through all."""
        if columns not in self.planned:
            self.planned[columns] = self.frame[list(columns)].to_delayed()
        return self.planned[columns]

    def stamp(self) -> dict[str, Any]:
        """Names and the rows of each partition: values would have to be computed to be looked at."""
        return {"table": self.name, "columns": list(self.columns), "rows": [piece.rows for piece in self.pieces]}

    def sum(self, work: Callable[[PartitionTable, int], Any], pieces: Sequence[int], columns: Sequence[str]) -> Any:
        """The sum of work(partition, number) over some partitions, each done where the partition is."""
        parts = self._partitions(tuple(columns))
        told = [_delayed(_there)(work, parts[i], i, self.name, self.columns, self.pieces[i]) for i in pieces]
        return reduce(add, _compute(told))


def _there(
    work: Callable[[PartitionTable, int], Any], partition: Any, number: int, name: str, columns: tuple[str, ...],
    piece: Piece,
) -> Any:  # fmt: skip
    return work(PartitionTable(name, columns, {number: piece}, partition), number)


def _delayed(function: Callable[..., Any]) -> Callable[..., Any]:
    import dask

    return dask.delayed(function, pure=False)


def _compute(tasks: list[Any]) -> tuple[Any, ...]:
    import dask

    return dask.compute(*tasks)
