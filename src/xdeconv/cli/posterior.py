"""The command posterior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import inputs, options
from .app import app, say
from .tables import target_table, write_appended

if TYPE_CHECKING:
    import numpy as np

    from ..rows.batch import Batch


@app.command()
def posterior(
    model: options.Model,
    data: options.Data,
    output: options.Output,
    keep: options.Keep = None,
    covariances: Annotated[bool, typer.Option(help="Write correlations of the true values too.")] = True,
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
    """Append denoised values to the rows: NAME_true, NAME_true_error and A_B_true_corr.

    Of a model with a background, values are those of a row that is not the background's, and p_background is appended.
    """
    target_table(output, [model, *data, config], force)
    from ..mixture._mixture import load

    mixture = load(model)
    arguments = inputs.opening(
        columns, error, unit, correlation=correlation, error_pattern=error_pattern,
        correlation_pattern=correlation_pattern, log_prior=log_prior,
    )  # fmt: skip
    source = inputs.open_for(mixture, data, arguments, where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files)

    place = {"device": inputs.device_for(device, source, mixture.k), "dtype": dtype}

    def denoised(batch: Batch, _: Any) -> dict[str, np.ndarray]:
        return posterior_columns(mixture, source.labels, batch, covariances, place)

    say(f"{write_appended(output, source, keep, denoised, numbers=3 * mixture.d**2):,} rows in {output}")


def posterior_columns(
    mixture: Any, labels: Sequence[str], batch: Batch, covariances: bool, place: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Posterior means, standard deviations and correlations as columns."""
    import numpy as np

    mean, V = mixture.posterior(batch, **place).moments()
    sd = np.sqrt(np.clip(np.einsum("naa->na", V), 0.0, None))
    columns = {f"{name}_true": mean[:, a] for a, name in enumerate(labels)}
    columns |= {f"{name}_true_error": sd[:, a] for a, name in enumerate(labels)}
    if covariances:
        with np.errstate(invalid="ignore", divide="ignore"):
            columns |= {
                f"{labels[b]}_{labels[a]}_true_corr": V[:, a, b] / (sd[:, a] * sd[:, b])
                for a in range(len(labels))
                for b in range(a)
            }
    if mixture.background is not None:
        columns["p_background"] = mixture.background_probability(batch, **place)
    return columns
