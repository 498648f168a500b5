"""The command classify."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import inputs, options, parsing
from .app import app, say
from .tables import target_table, write_appended

if TYPE_CHECKING:
    import numpy as np

    from ..rows.batch import Batch


@app.command()
def classify(
    data: options.Data,
    output: options.Output,
    model: Annotated[list[str], typer.Option(help="CLASS=MODEL. Repeat for each class.")],
    prior: Annotated[
        list[str] | None,
        typer.Option(help="CLASS=NUMBER, or =COLUMN or EXPRESSION: how common it is at each row. Default: equal."),
    ] = None,
    keep: options.Keep = None,
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
) -> None:  # fmt: skip
    """Append to the rows the probability of each class: columns p_CLASS."""
    paths = parsing.pairs(model, "--model") or {}
    target_table(output, [*paths.values(), *data, config], force)
    from ..catalog.expressions import Expression
    from ..catalog.finding import nearest
    from ..mixture._mixture import load
    from ..mixture.classifier import Classifier

    given = {name: parsing.value(text) for name, text in (parsing.pairs(prior, "--prior") or {}).items()}
    by_row = any(isinstance(value, str) for value in given.values())
    classifier = Classifier({name: load(path) for name, path in paths.items()}, None if by_row else given or "equal")
    first = next(iter(classifier.mixtures.values()))
    arguments = inputs.opening(
        None, error, unit, correlation=correlation, error_pattern=error_pattern,
        correlation_pattern=correlation_pattern, log_prior=log_prior,
    )  # fmt: skip
    source = inputs.open_for(first, data, arguments, where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files)
    formulas = {name: Expression(str(value)) for name, value in given.items()} if by_row else {}
    needed = tuple(dict.fromkeys(column for formula in formulas.values() for column in formula.names))
    for column in needed:
        if column not in source.table.columns:
            raise nearest(column, source.table.columns, source.table.name)

    most = max(mixture.k for mixture in classifier.mixtures.values())
    place = {"device": inputs.device_for(device, source, most), "dtype": dtype}

    def probabilities(batch: Batch, passed: Any) -> dict[str, np.ndarray]:
        columns = {name: passed.column(name).to_numpy(zero_copy_only=False) for name in needed}
        each = {name: formula.value(columns) for name, formula in formulas.items()} or None
        shares = classifier.predict_proba(batch, priors=each, **place)
        return {f"p_{name}": shares[:, c] for c, name in enumerate(classifier.classes)}

    say(f"{write_appended(output, source, keep, probabilities, needed):,} rows in {output}")
