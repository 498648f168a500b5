"""Tables of one or more files, each of which says its columns, units and pieces before a row is read."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from .table import BLOCK_ROWS, Piece, ReadError, Table


class Description(NamedTuple):
    """What a file says of itself: names of columns, units of some, and its pieces."""

    columns: Iterable[str]
    units: Mapping[str, str]
    pieces: Iterable[Piece]


@dataclass(frozen=True)
class SeveralFiles(Table):
    """Files one after the other, with the columns of the first."""

    name: str
    columns: tuple[str, ...]
    units: Mapping[str, str]
    pieces: tuple[Piece, ...]
    units_by_file: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    @staticmethod
    @abstractmethod
    def described(path: Path) -> Description:
        """What a file says of itself; a damaged one is an error that names it."""

    @classmethod
    def open(cls, name: str, paths: Sequence[Path]) -> Self:
        """The table of some files, by what each says of itself."""
        return cls.of(name, ((str(path), cls.described(path)) for path in paths))

    @classmethod
    def of(cls, name: str, described: Iterable[tuple[str, Description]]) -> Self:
        """The table of some files, of which each said what it is."""
        pieces: list[Piece] = []
        columns: tuple[str, ...] = ()
        units: dict[str, Mapping[str, str]] = {}
        for file, (names, said, own) in described:
            units[file] = said
            columns = columns or tuple(names)
            pieces += own
        return cls(name, columns, _merged(units.values()), tuple(pieces), units)

    def refuse_absent(self, file: str, columns: Iterable[str], there: Collection[str]) -> None:
        """Refuse a file that does not have some columns of the first."""
        absent = next((name for name in columns if name not in there), None)
        if absent is not None:
            raise ReadError(f"{file} has no column {absent!r}, which other files of {self.name} have")

    def file_units(self, file: str) -> Mapping[str, str]:
        """Units that a file says."""
        return self.units_by_file.get(file, self.units)


def equal_pieces(path: str, rows: int, size: int = BLOCK_ROWS, part: str = "block") -> list[Piece]:
    """Pieces of a file whose rows can be read from any place on."""
    return [Piece(path, part, i, min(size, rows - start), start) for i, start in enumerate(range(0, rows, size))]


def _merged(units: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Of each column, the first unit that a file says."""
    together: dict[str, str] = {}
    for ours in units:
        together = {**ours, **together}
    return together
