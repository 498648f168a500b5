"""The command prepare."""

from __future__ import annotations

from typing import Annotated

import typer

from . import inputs, options, parsing
from .app import app, say


@app.command()
def prepare(
    paths: Annotated[
        list[str], typer.Argument(help="Catalogues to read, and last the folder to write, unless -o names it.")
    ],
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="The folder to write, in place of the last of PATHS.")
    ] = None,
    columns: options.Columns = None,
    keep: Annotated[str | None, typer.Option(help="Other columns to store, separated by commas.")] = None,
    where: options.Where = None,
    error: options.Errors = None,
    unit: options.Units = None,
    correlation: options.Correlation = None,
    error_pattern: options.ErrorPattern = None,
    correlation_pattern: options.CorrelationPattern = None,
    log_prior: options.LogPrior = None,
    derive: options.Derive = None,
    offset: options.Offset = None,
    inflate: options.Inflate = None,
    missing: options.Missing = None,
    cos_dec: options.CosDec = None,
    weight: options.Weight = None,
    preset: options.Preset = None,
    seed: Annotated[int, typer.Option(help="Same seed, same order of rows.", min=0)] = 0,
    shard_rows: Annotated[int | None, typer.Option(help="About so many rows per shard.", min=1)] = None,
    run_bytes: Annotated[int | None, typer.Option(help="Memory for rows that wait to be written.", min=1)] = None,
    skip_bad_files: options.SkipBadFiles = False,
    config: options.Config = None,
) -> None:
    """Shuffle any catalogue into a store that fits read at memory speed; killed, the same command resumes.

    With --columns, what a fit of these features needs is stored; without, everything. Twice the size of the store is
    needed on disk while it is made.
    """
    sources = paths if output is not None else paths[:-1]
    folder = paths[-1] if output is None else output
    if not sources:
        raise typer.BadParameter("name what to read and, last, the folder to write", param_hint="PATHS")
    from ..catalog import store as making
    from ..catalog.readers import open_table, rows_of

    chosen = None
    arguments = inputs.opening(
        columns, error, unit, derive=derive, offset=offset, inflate=inflate, missing=missing, weight=weight,
        cos_dec=cos_dec, preset=preset, correlation=correlation, error_pattern=error_pattern,
        correlation_pattern=correlation_pattern, log_prior=log_prior,
    )  # fmt: skip
    if arguments:
        source = inputs.open_data(sources, arguments, skip_bad_files=skip_bad_files)
        chosen = [*source.recipe.columns, *parsing.listed(keep)]
    store = making.prepare(
        sources, folder, columns=chosen, where=where, seed=seed, shard_rows=shard_rows, run_bytes=run_bytes,
        reading=arguments, skip_bad_files=skip_bad_files, report=say,
    )  # fmt: skip
    say(f"{rows_of(open_table(store)):,} rows in {store}")
