"""The command check."""

from __future__ import annotations

from typing import Annotated

import typer

from . import inputs, options
from .app import app, say, tell
from .tables import kept


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
    log_prior: options.LogPrior = None,
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
    arguments = inputs.opening(
        columns, error, unit, correlation=correlation, error_pattern=error_pattern,
        correlation_pattern=correlation_pattern, log_prior=log_prior,
    )  # fmt: skip
    source = inputs.open_for(mixture, data, arguments, where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files)
    say(source.describe())
    columns_by = None if by is None else kept(by, source)
    judgement = judged(source, mixture, by=columns_by, bins=bins, predicted=predicted, seed=seed)
    for line in str(judgement).splitlines():
        tell(line)
