"""The command bootstrap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import inputs, options, outputs, parsing
from .app import app, say, stop, tell
from .tables import aligned, names_of, target_table, with_errors

if TYPE_CHECKING:
    from ..studies._bootstrap import Bootstrap


@app.command()
def bootstrap(
    model: options.Model,
    data: options.Data,
    draws: Annotated[int, typer.Option(help="How many refits to rows drawn again.", min=2)] = 50,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Table of all draws: .parquet, .arrow or .csv.")
    ] = None,
    seed: options.Seed = 0,
    epochs: options.Epochs = None,
    tol: options.Tolerance = 0.1,
    prior: options.PriorWidth = 0.0,
    where: Annotated[
        str | None, typer.Option(help="Use only rows where this holds. Default: what the fit of MODEL said.")
    ] = None,
    columns: options.Columns = None,
    error: options.Errors = None,
    unit: options.Units = None,
    correlation: options.Correlation = None,
    error_pattern: options.ErrorPattern = None,
    correlation_pattern: options.CorrelationPattern = None,
    log_prior: options.LogPrior = None,
    weight: options.Weight = None,
    bad_rows: options.BadRows = "refuse",
    skip_bad_files: options.SkipBadFiles = False,
    force: options.Force = False,
    device: options.Device = None,
    dtype: options.Number = None,
    config: options.Config = None,
) -> None:  # fmt: skip
    """Print standard errors of a model's components, from refits to rows drawn again.

    DATA are the rows of the fit. Each refit starts from MODEL, and its components are matched with those of MODEL.
    """
    if output is not None:
        target_table(output, [model, *data, config], force)
    from ..mixture._mixture import load
    from ..studies._bootstrap import bootstrap as refit
    from ..studies.fitted_rows import fitted_fixed

    mixture = load(model)
    arguments = inputs.opening(
        columns, error, unit, correlation=correlation, error_pattern=error_pattern,
        correlation_pattern=correlation_pattern, log_prior=log_prior, weight=weight,
    )  # fmt: skip
    source = inputs.open_as_fitted(mixture, data, arguments, where, bad_rows=bad_rows, skip_bad_files=skip_bad_files)
    say(source.describe())
    settings = {
        "epochs": epochs,
        "tol": tol,
        "device": device,
        "dtype": dtype,
        "method": parsing.em(prior, fitted_fixed(mixture)),
    }
    refits = refit(source, mixture, draws, seed, verbose=True, **settings)
    for line in lines(refits):
        tell(line)
    if output is not None:
        write(refits, output)
    if refits.interrupted:
        stop(130, f"interrupted with {len(refits.mixtures)} of {draws} draws done")


def lines(refits: Bootstrap) -> list[str]:
    """Weights, means and widths of components with their standard errors, the heaviest first."""
    import numpy as np

    from ..mixture.matrices import widths

    mixture, every = refits.mixture, refits.mixtures
    sd, *drawn = (widths(each.covariances) for each in (mixture, *every))
    errors = refits.standard_errors()
    of_widths = np.std(drawn, axis=0, ddof=1)
    means = with_errors("mean of", mixture, mixture.means, errors.means, errors.weights)
    sds = with_errors("sd of", mixture, sd, of_widths, errors.weights)
    return [f"{len(every)} draws", *beside(refits), *aligned(means), "", *aligned(sds)]


def beside(refits: Bootstrap) -> list[str]:
    """The weight of a background with its standard error, where there is one."""
    import numpy as np

    from ..system.text import measured

    if refits.mixture.background is None:
        return []
    error = float(np.std([mixture.background_weight for mixture in refits.mixtures], ddof=1))
    return [f"background: {measured(refits.mixture.background_weight, error)} of all rows"]


def write(refits: Bootstrap, output: Path) -> None:
    """One row per draw and component: weight, means and covariances."""
    from ..catalog.writers import write_blocks

    say(f"{write_blocks(output, blocks(refits)):,} rows in {output}")


def blocks(refits: Bootstrap) -> Iterator[Any]:
    import numpy as np
    import pyarrow as pa

    names, mark = names_of(refits.mixture), outputs.table_mark()
    for draw, mixture in enumerate(refits.mixtures):
        columns = {"draw": np.full(mixture.k, draw), "component": np.arange(mixture.k), "weight": mixture.weights}
        if mixture.background is not None:
            columns["background"] = np.full(mixture.k, mixture.background_weight)
        columns |= {f"mean_{name}": mixture.means[:, a] for a, name in enumerate(names)}
        columns |= {f"cov_{names[b]}_{name}": mixture.covariances[:, a, b]
                    for a, name in enumerate(names) for b in range(a + 1)}  # fmt: skip
        yield pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()}, metadata=mark)
