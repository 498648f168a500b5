"""The command check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .app import app, say, tell
from .tables import kept

if TYPE_CHECKING:
    import numpy as np

    from ..catalog.stream import CatalogSource
    from ..rows.batch import Batch


@app.command()
def check(
    model: options.Model,
    data: options.Data,
    by: Annotated[str | None, typer.Option(help="Columns that rows are also grouped by, separated by commas.")] = None,
    bins: Annotated[int, typer.Option(help="Groups of each column, of as many rows each.", min=1)] = 5,
    predicted: Annotated[
        bool, typer.Option("--predicted", help="Judge each value by what the row's other values predict of it.")
    ] = False,
    columns: options.Columns = None,
    where: options.Where = None,
    error: options.Errors = None,
    unit: options.Units = None,
    correlation: options.Correlation = None,
    error_pattern: options.ErrorPattern = None,
    correlation_pattern: options.CorrelationPattern = None,
    bad_rows: options.BadRows = "refuse",
    skip_bad_files: options.SkipBadFiles = False,
    seed: options.Seed = 0,
    config: options.Config = None,
) -> None:
    """Print one verdict per coordinate: whether errors and model are as wide as rows say, and where they are not.

    DATA are best rows that the fit has not seen; at most 50,000 of them are used.
    """
    from ..mixture._mixture import load
    from ..studies._check import check as judged

    mixture = load(model)
    arguments = options.opening(
        columns, error, unit, correlation=correlation, error_pattern=error_pattern,
        correlation_pattern=correlation_pattern,
    )  # fmt: skip
    source = options.open_for(mixture, data, arguments, where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files)
    say(source.describe())
    if by is None:
        judgement = judged(source, mixture, bins=bins, predicted=predicted, seed=seed)
    else:
        batch, values = read(source, kept(by, source), seed)
        judgement = judged(batch, mixture, by=values, bins=bins, predicted=predicted, seed=seed)
    for line in str(judgement).splitlines():
        tell(line)


def read(source: CatalogSource, names: Sequence[str], seed: int) -> tuple[Batch, dict[str, np.ndarray]]:
    """Some rows, and columns of the same rows as numbers."""
    import numpy as np
    import torch

    from ..rows.batch import concatenate
    from ..studies._check import ROWS

    rng, share = np.random.default_rng(seed), min(1.0, 1.2 * ROWS / max(source.rows, 1))
    batches: list[Batch] = []
    values: dict[str, list[Any]] = {name: [] for name in names}
    for batch, passed in source.passes(tuple(names)):
        some = np.flatnonzero(rng.random(batch.n) <= share)
        batches.append(batch.rows(torch.from_numpy(some)))
        for name in names:
            values[name].append(_numbers(passed.column(name), name)[some])
    if not batches:
        raise ValueError("there are no rows to check by")
    return concatenate(batches), {name: np.concatenate(parts) for name, parts in values.items()}


def _numbers(column: Any, name: str) -> np.ndarray:
    import numpy as np

    try:
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
    except (ValueError, TypeError):
        raise ValueError(f"--by {name} is not a column of numbers") from None
