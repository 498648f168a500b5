"""The command score."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .app import app, say, tell
from .tables import target_table, write_appended

if TYPE_CHECKING:
    import numpy as np
    import torch

    from ..catalog.stream import CatalogSource
    from ..mixture._mixture import Mixture
    from ..rows.batch import Batch

WHY = "its noise and a covariance are both singular, its values overflow, or every component is ruled out"


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
    force: options.Force = False,
    config: options.Config = None,
) -> None:
    """Print the mean log-likelihood of rows, on the last line of standard output."""
    if per_row is not None:
        target_table(per_row, [model, *data, config], force, "--per-row")
    from ..mixture._mixture import load

    mixture = load(model)
    arguments = options.opening(
        columns, error, unit, correlation=correlation, error_pattern=error_pattern,
        correlation_pattern=correlation_pattern, log_prior=log_prior,
    )  # fmt: skip
    source = options.open_for(mixture, data, arguments, where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files)
    total = Total(mixture, source)
    if per_row is None:
        for batch in source.batches(0):
            total.add(batch)
        for note in source.notes:
            say(f"note: {note}")
    else:
        write_appended(per_row, source, keep, total.column)
    tell(f"{total.mean():.6f}")


class Total:
    """The log-likelihood of rows, added up."""

    def __init__(self, mixture: Mixture, source: CatalogSource) -> None:
        self.mixture, self.source = mixture, source
        self.sum = self.weight = 0.0

    def add(self, batch: Batch) -> torch.Tensor:
        """The log-likelihoods (n,) of a batch, added to the sum; refused where one cannot be computed."""
        found = self.mixture.log_density(batch).double()
        if bool(found.isnan().any()):
            raise ValueError(f"row {self._first_without()} of {self.source.table.name} has no density: {WHY}")
        self.sum += float(found.sum() if batch.weight is None else batch.weight @ found)
        self.weight += float(batch.total_weight())
        return found

    def column(self, batch: Batch, _: Any) -> dict[str, np.ndarray]:
        """The log-likelihoods as a column."""
        return {"log_likelihood": self.add(batch).numpy()}

    def mean(self) -> float:
        """The mean per unit of weight."""
        if not self.weight:
            raise ValueError("there are no rows to score")
        return self.sum / self.weight

    def _first_without(self) -> int:
        """The number, among the rows that are used, of the first one without a density."""
        before = 0
        for batch, _ in self.source.passes(()):
            bad = self.mixture.log_density(batch).isnan()
            if bool(bad.any()):
                return before + int(bad.nonzero()[0, 0])
            before += batch.n
        return before
