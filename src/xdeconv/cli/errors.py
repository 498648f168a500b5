"""The command errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import inputs, options, outputs, parsing
from .app import app, say, tell
from .tables import aligned, names_of, target_table, with_errors

if TYPE_CHECKING:
    from ..studies.standard_errors import Errors


@app.command()
def errors(
    model: options.Model,
    data: options.Data,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Table of all errors: .parquet, .arrow or .csv.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Picture of the densities with bands of 95 %: .png, .pdf or .svg.")
    ] = None,
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
    config: options.Config = None,
) -> None:  # fmt: skip
    """Print standard errors of a model's components, by one pass over its rows and no refit.

    DATA are the rows of the fit. What they leave undetermined is named.
    """
    if output is not None:
        target_table(output, [model, *data, config], force)
    if picture is not None:
        outputs.checked(picture, [model, *data, config], force, outputs.PICTURES, "--picture")
    from ..mixture._mixture import load
    from ..studies._errors import errors as errors_of

    mixture = load(model)
    arguments = inputs.opening(
        columns, error, unit, correlation=correlation, error_pattern=error_pattern,
        correlation_pattern=correlation_pattern, log_prior=log_prior, weight=weight,
    )  # fmt: skip
    source = inputs.open_as_fitted(mixture, data, arguments, where, bad_rows=bad_rows, skip_bad_files=skip_bad_files)
    say(source.describe())
    judged = errors_of(source, mixture, method=parsing.em(prior), device=device)
    for line in lines(judged):
        tell(line)
    if output is not None:
        write(judged, output)
    if picture is not None:
        outputs.save_picture(judged.plot()[0].figure, picture)
        say(f"the densities: {picture}")


def lines(errors: Errors) -> list[str]:
    """Weights, means and widths of components with their standard errors, the heaviest first."""
    from ..mixture.matrices import widths

    mixture, sd = errors.mixture, errors.of(lambda m: widths(m.covariances))
    means = with_errors("mean of", mixture, mixture.means, errors.means, errors.weights)
    sds = with_errors("sd of", mixture, sd.value, sd.standard_error, errors.weights)
    others = errors.beside_lines()
    return [*aligned(means), "", *aligned(sds), *([""] * bool(others)), *others]


def write(errors: Errors, output: Path) -> None:
    """One row per component: each parameter and its standard error."""
    from ..catalog.writers import write_blocks

    say(f"{write_blocks(output, block(errors)):,} rows in {output}")


def block(errors: Errors) -> Iterator[Any]:
    import numpy as np
    import pyarrow as pa

    mixture, names = errors.mixture, names_of(errors.mixture)
    pairs = {"weight": (mixture.weights, errors.weights)}
    of_means, of_covariances = errors.means, errors.covariances
    pairs |= {f"mean_{name}": (mixture.means[:, a], of_means[:, a]) for a, name in enumerate(names)}
    pairs |= {f"cov_{names[b]}_{name}": (mixture.covariances[:, a, b], of_covariances[:, a, b])
              for a, name in enumerate(names) for b in range(a + 1)}  # fmt: skip
    columns = {"component": np.arange(mixture.k)}
    for name, (value, error) in pairs.items():
        columns |= {name: value, f"{name}_error": error}
    arrays = {name: pa.array(values) for name, values in columns.items()}
    yield pa.RecordBatch.from_pydict(arrays, metadata=outputs.table_mark())
