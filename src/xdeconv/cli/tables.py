"""Tables that commands read and write: names of columns, rows passed through, and new columns beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import outputs
from .app import say

if TYPE_CHECKING:
    import numpy as np

    from ..catalog.stream import CatalogSource
    from ..mixture._mixture import Mixture
    from ..rows.batch import Batch

IDENTIFIERS = ("source_id", "designation", "id", "ID", "name", "hip", "HIP", "tyc", "TYC", "Source", "Gaia",
               "GaiaDR3", "objID", "objid", "TARGETID", "2MASS", "HD")  # fmt: skip
PerBatch = Callable[["Batch", Any], "Mapping[str, np.ndarray]"]


def names_of(mixture: Mixture) -> list[str]:
    """The labels, or x0, x1, ..."""
    from ..mixture.coordinates import names_or_numbers

    return names_or_numbers(mixture.labels, mixture.d)


def aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table, its columns to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.rjust(wide) for cell, wide in zip(row, widths, strict=True)) for row in cells]


def with_errors(
    what: str, mixture: Mixture, values: np.ndarray, errors: np.ndarray, of_weights: np.ndarray
) -> list[Sequence[str]]:
    """A header and one line per component."""
    from ..system.text import measured

    table: list[Sequence[str]] = [("component", "weight", *(f"{what} {name}" for name in names_of(mixture)))]
    for j in (-mixture.weights).argsort(kind="stable"):
        both = zip(values[j], errors[j], strict=True)
        table.append((str(j), measured(mixture.weights[j], of_weights[j]), *(measured(*pair) for pair in both)))
    return table


def summary(mixture: Mixture) -> list[str]:
    """Mean and standard deviation of each coordinate."""
    import numpy as np

    mean, sd = mixture.mean(), np.sqrt(np.diag(mixture.covariance()))
    units = mixture.units or ("",) * mixture.d
    rows = zip(names_of(mixture), mean, sd, units, strict=True)
    return [f"{name:<20} {m:>14.6g} +- {s:<12.6g} {unit}".rstrip() for name, m, s, unit in rows]


def target_table(output: Path, inputs: Sequence[str | Path | None], force: bool, option: str = "--output") -> Path:
    """A table to write, refused before any work where it must be."""
    from ..catalog.writers import SUFFIXES

    return outputs.checked(output, inputs, force, SUFFIXES, option)


SHUFFLED = ("the rows of {} are shuffled, and nothing tells which is which: prepare --keep COLUMN stores a name, "
            "and --keep COLUMN here passes it on")  # fmt: skip
NOTHING_OBSERVED = "{:,} of {:,} rows have nothing observed: they get what the model says of any row"


def kept(keep: str | None, source: CatalogSource) -> tuple[str, ...]:
    """The columns to pass through."""
    from ..catalog.finding import nearest

    known = source.table.columns
    if keep == "*":
        return tuple(known)
    if keep is None:
        return tuple(name for name in IDENTIFIERS if name in known)
    chosen = tuple(dict.fromkeys(name.strip() for name in keep.split(",") if name.strip()))
    for name in chosen:
        if name not in known:
            raise nearest(name, known, source.table.name)
    return chosen


def write_appended(
    output: Path, source: CatalogSource, keep: str | None, new: PerBatch, read: Sequence[str] = (),
    seen: Callable[[Batch, Mapping[str, np.ndarray]], None] = lambda batch, made: None, numbers: int = 1,
) -> int:  # fmt: skip
    """Write the kept columns and new ones, row by row as in the table; new ones may need to ``read`` others.

    New columns are made by all threads, of so few rows at a time that the ``numbers`` that a row takes for them fit
    into memory, and ``seen`` is told of them in the order of the rows.
    """
    from ..catalog.writers import write_blocks
    from ..system.progress import progress_of_call

    empty = 0
    with progress_of_call(None, source.known_rows) as progress:

        def told(batch: Batch, made: Mapping[str, np.ndarray]) -> None:
            nonlocal empty
            empty += int(batch.x.isnan().all(0).sum()) if batch.missing else 0
            progress.update(f"rows to {output}", done=batch.n)
            seen(batch, made)

        rows = write_blocks(output, _appended(source, kept(keep, source), new, read, told, numbers))
    shuffled = [SHUFFLED.format(source.table.name)] if source.table.shuffled and not kept(keep, source) else []
    nothing = [NOTHING_OBSERVED.format(empty, rows)] if empty else []
    for note in (*source.notes, *shuffled, *nothing):
        say(f"note: {note}")
    return rows


def _appended(
    source: CatalogSource, keep: Sequence[str], new: PerBatch, read: Sequence[str],
    seen: Callable[[Batch, Mapping[str, np.ndarray]], None], numbers: int,
) -> Iterator[Any]:  # fmt: skip
    import pyarrow as pa

    from ..mixture.undefined import NoDensity

    mark = outputs.table_mark()

    def appended(batch: Batch, passed: Any) -> tuple[Batch, Mapping[str, np.ndarray], Any]:
        made = new(batch, passed)
        taken = [name for name in made if name in keep]
        if taken:
            raise ValueError(f"the table has columns {', '.join(taken)} of its own: leave them out of --keep")
        columns = {name: passed.column(name) for name in keep}
        columns |= {name: pa.array(values) for name, values in made.items()}
        return batch, made, pa.RecordBatch.from_pydict(columns, metadata=mark)

    before = 0
    try:
        for batch, made, block in source.asked(tuple(dict.fromkeys([*keep, *read])), appended, numbers):
            seen(batch, made)
            before += batch.n
            yield block
    except NoDensity as problem:
        raise problem.within(source.table.name, before) from problem
