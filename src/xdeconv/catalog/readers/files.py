"""Files: one or more of them as one table. They must not change, masks are applied, units are those of the first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...rows import units
from .stamps import Stamp
from .table import Piece, ReadError, Table, refuse_to_blame, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

MASK = ".mask"  # astropy keeps the mask of a column in one of this ending


@dataclass(frozen=True)
class Files(Table):
    """A table of files as its reader gives it, looked at twice."""

    inner: Table
    stamps: Mapping[str, Stamp] = field(repr=False)
    skipped: tuple[str, ...] = ()
    shuffled: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.inner.name

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        masks = set(self._masks(self.inner.columns).values())
        return tuple(name for name in self.inner.columns if name not in masks)

    @property
    def units(self) -> Mapping[str, str]:  # type: ignore[override]
        return self.inner.units

    @property
    def pieces(self) -> tuple[Piece, ...]:  # type: ignore[override]
        return self.inner.pieces

    @property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.inner.notes

    @property
    def reading(self) -> Mapping[str, Any]:  # type: ignore[override]
        return self.inner.reading

    def _masks(self, names: Sequence[str]) -> dict[str, str]:
        return {name: name + MASK for name in names if name + MASK in self.inner.columns}

    def read(self, piece: Piece, columns: Sequence[str], floats: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
        """The blocks of a piece; the file must be what it was, before and after."""
        stamp, masks = self.stamps[piece.file], self._masks(columns)
        stamp.check(piece.file)
        factors = self._factors(piece.file, columns)
        with damage_named(piece.file):
            for batch in self.inner.read(piece, (*columns, *masks.values()), floats):
                masked = _masked(batch, masks) if masks else batch
                stamp.check(piece.file)
                yield _scaled(masked, factors).select(list(columns)) if masks or factors else masked
        stamp.check(piece.file)

    def _factors(self, file: str, columns: Sequence[str]) -> dict[str, float]:
        """What turns the units of a file into those of the table."""
        ours, theirs = self.units, self.inner.file_units(file)
        factors = {}
        for name in columns:
            if name in ours and name in theirs and units.tidy(ours[name]) != units.tidy(theirs[name]):
                try:
                    factors[name] = units.factor(theirs[name], ours[name], name)
                except ValueError as problem:
                    raise ReadError(f"{file}: {name} is in {theirs[name]!r} here and in {ours[name]!r} in other files "
                                    f"of {self.name}") from problem  # fmt: skip
        return factors

    def unsaid_units(self, columns: Collection[str]) -> Mapping[str, Sequence[str]]:
        """Files that do not say the units of some columns, with these, where other files of the table do."""
        said = {file: self.inner.file_units(file) for file in dict.fromkeys(piece.file for piece in self.pieces)}
        unsaid = {file: [name for name in columns if name in self.units and name not in said[file]] for file in said}
        return {file: names for file, names in unsaid.items() if names}

    def stamp(self) -> dict[str, Any]:
        """Size, time and a checksum of a sample of every file."""
        facts = [stamp.facts(path) for path, stamp in self.stamps.items()]
        return {"files": facts, "rows": rows_of(self), "columns": list(self.columns)}


@contextmanager
def damage_named(path: str) -> Iterator[None]:
    """What a library raises over a damaged file, whatever its kind, as an error that names the file."""
    try:
        yield
    except UnicodeEncodeError as problem:
        raise ReadError(f"{path} cannot be read: its name is not UTF-8 text: rename it ({problem})") from problem
    except (OSError, ValueError, ImportError, MemoryError):  # which say what they mean
        raise
    except Exception as problem:
        refuse_to_blame(path, problem)
        raise ReadError(f"{path} is damaged or cannot be read: {type(problem).__name__}: {problem}") from problem


def stamped(paths: Sequence[Any]) -> dict[str, Stamp]:
    """The stamps of some files; taken before they are opened."""
    return {str(path): Stamp.of(str(path)) for path in paths}


def masked_columns(table: pa.Table) -> pa.Table:
    """A table in memory without its columns of masks, which are applied."""
    masks = {name: name + MASK for name in table.column_names if name + MASK in table.column_names}
    return _masked(table, masks).drop_columns(list(masks.values())) if masks else table


def _masked(batch: Any, masks: Mapping[str, str]) -> Any:
    """Null where a mask says so."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, mask in masks.items():
        hidden = pc.fill_null(batch.column(mask).cast(pa.bool_()), True)
        values = batch.column(name)
        shown = pc.if_else(hidden, pa.scalar(None, values.type), values)
        batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), shown)
    return batch


def _scaled(batch: pa.RecordBatch, factors: Mapping[str, float]) -> pa.RecordBatch:
    """Columns times their factors, as floats."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, factor in factors.items():
        values = pc.multiply(batch.column(name).cast(pa.float64()), factor)
        batch = batch.set_column(batch.schema.get_field_index(name), name, values)
    return batch
