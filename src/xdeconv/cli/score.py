"""The command score."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import inputs, options
from .app import app, say, tell
from .tables import PerBatch, target_table, write_appended

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from ..mixture._mixture import Mixture
    from ..rows.batch import Batch

COLUMN = "log_likelihood"


@app.command()
def score(
    model: options.Model,
    data: options.Data,
    per_row: Annotated[Path | None, typer.Option(help="File for the log-likelihood of every row.")] = None,
    keep: options.Keep = None,
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
    device: options.Device = None,
    dtype: options.Number = None,
    force: options.Force = False,
    config: options.Config = None,
) -> None:
    """Print the mean log-likelihood of rows, on the last line of standard output."""
    if per_row is not None:
        target_table(per_row, [model, *data, config], force, "--per-row")
    from ..mixture._mixture import load
    from ..mixture.undefined import NoDensity

    mixture = load(model)
    arguments = inputs.opening(
        columns, error, unit, correlation=correlation, error_pattern=error_pattern,
        correlation_pattern=correlation_pattern, log_prior=log_prior,
    )  # fmt: skip
    source = inputs.open_for(mixture, data, arguments, where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files)
    place = {"device": inputs.device_for(device, source, mixture.k), "dtype": dtype}
    try:
        if per_row is None:
            score = mixture.score(source, **place)
            for note in source.notes:
                say(f"note: {note}")
        else:
            total = Total()
            write_appended(per_row, source, keep, log_likelihoods(mixture, place), seen=total.add)
            score = total.mean()
    except NoDensity as problem:
        raise problem.within(source.table.name) from problem
    tell(f"{score:.6f}")


def log_likelihoods(mixture: Mixture, place: dict[str, Any]) -> PerBatch:
    """The column of log-likelihoods."""

    def column(batch: Batch, _: Any) -> dict[str, np.ndarray]:
        import numpy as np

        log_prob = mixture.log_prob(batch, **place)
        return {COLUMN: log_prob if mixture.selection is None else log_prob - np.log(mixture.kept_probability(batch))}

    return column


class Total:
    """The log-likelihood of rows, added up in their order."""

    def __init__(self) -> None:
        self.sum = self.weight = 0.0

    def add(self, batch: Batch, made: Mapping[str, np.ndarray]) -> None:
        """Some more rows."""
        values = made[COLUMN]
        self.sum += float(values.sum() if batch.weight is None else batch.weight.numpy() @ values)
        self.weight += float(batch.total_weight())

    def mean(self) -> float:
        """The mean per unit of weight."""
        if not self.weight:
            raise ValueError("there are no rows to score")
        return self.sum / self.weight
