"""Commands that go through rows: score, posterior, classify, members. Order is kept, columns are passed through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .app import app, say, tell

if TYPE_CHECKING:
    import numpy as np

    from ..catalog.stream import CatalogSource
    from ..rows.batch import Batch

IDENTIFIERS = ("source_id", "designation", "id", "ID", "name", "hip", "HIP", "tyc", "TYC")
PerBatch = Callable[["Batch", Any], "Mapping[str, np.ndarray]"]


def kept(keep: str | None, source: CatalogSource) -> tuple[str, ...]:
    """The columns to pass through."""
    from ..catalog.finding import nearest

    known = source.table.columns
    if keep == "*":
        return tuple(known)
    if keep is None:
        return tuple(name for name in IDENTIFIERS if name in known)
    chosen = tuple(name.strip() for name in keep.split(",") if name.strip())
    for name in chosen:
        if name not in known:
            raise nearest(name, known, source.table.name)
    return chosen


def appended(source: CatalogSource, keep: Sequence[str], new: PerBatch, read: Sequence[str] = ()) -> Iterator[Any]:
    """Record batches of the kept columns and new ones, as in the table; new ones may need to ``read`` others."""
    import pyarrow as pa

    for batch, passed in source.passes(tuple(dict.fromkeys([*keep, *read]))):
        columns = {name: passed.column(name) for name in keep}
        columns |= {name: pa.array(values) for name, values in new(batch, passed).items()}
        yield pa.RecordBatch.from_pydict(columns)


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
    bad_rows: options.BadRows = "refuse",
    skip_bad_files: options.SkipBadFiles = False,
    config: options.Config = None,
) -> None:
    """Print the mean log-likelihood of rows, on the last line of standard output."""
    from .. import kernels
    from ..catalog.writers import refuse_suffix, write_blocks
    from ..mixture._mixture import load

    if per_row is not None:
        refuse_suffix(per_row)
    mixture = load(model)
    arguments = options.opening(columns, error, unit, None, None, None, None, None)
    source = options.open_for(mixture, data, arguments, where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files)
    totals = [0.0, 0.0]

    def log_prob(batch: Batch, _: Any = None) -> dict[str, np.ndarray]:
        found = kernels.log_prob(*mixture.tensors(), batch).double()
        totals[0] += float(found.sum() if batch.weight is None else batch.weight @ found)
        totals[1] += float(batch.total_weight())
        return {"log_likelihood": found.numpy()}

    if per_row is None:
        for batch in source.batches(0):
            log_prob(batch)
    else:
        write_blocks(per_row, appended(source, kept(keep, source), log_prob))
    if not totals[1]:
        raise ValueError("there are no rows to score")
    for note in source.notes:
        say(f"note: {note}")
    tell(f"{totals[0] / totals[1]:.6f}")


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
    bad_rows: options.BadRows = "refuse",
    skip_bad_files: options.SkipBadFiles = False,
    config: options.Config = None,
) -> None:
    """Append denoised values to the rows: NAME_true, NAME_true_error and A_B_true_corr."""
    from ..catalog.writers import refuse_suffix, write_blocks
    from ..mixture._mixture import load

    refuse_suffix(output)
    mixture = load(model)
    arguments = options.opening(columns, error, unit, None, None, None, None, None)
    source = options.open_for(mixture, data, arguments, where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files)

    def denoised(batch: Batch, _: Any) -> dict[str, np.ndarray]:
        return posterior_columns(mixture, source.labels, batch, covariances)

    rows = write_blocks(output, appended(source, kept(keep, source), denoised))
    for note in source.notes:
        say(f"note: {note}")
    say(f"{rows:,} rows in {output}")


def posterior_columns(mixture: Any, labels: Sequence[str], batch: Batch, covariances: bool) -> dict[str, np.ndarray]:
    """Posterior means, standard deviations and correlations as columns."""
    import numpy as np

    found = mixture.posterior(batch)
    mean, V = found.moments()
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
    return columns


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
    bad_rows: options.BadRows = "refuse",
    skip_bad_files: options.SkipBadFiles = False,
    config: options.Config = None,
) -> None:  # fmt: skip
    """Append to the rows the probability of each class: columns p_CLASS."""
    from ..mixture._mixture import load
    from ..mixture.classifier import Classifier

    models = {name: load(path) for name, path in (options.pairs(model, "--model") or {}).items()}
    given = {name: options.value(text) for name, text in (options.pairs(prior, "--prior") or {}).items()}
    by_row = any(isinstance(value, str) for value in given.values())
    classifier = Classifier(models, None if by_row else given or "equal")
    names = [f"p_{name}" for name in models]
    _write_classes(classifier, names, data, output, keep, where, bad_rows, skip_bad_files, given if by_row else None)


@app.command()
def members(
    cluster: Annotated[Path, typer.Argument(help="A model of the members.")],
    field: Annotated[Path, typer.Argument(help="A model of everything else.")],
    data: options.Data,
    output: options.Output,
    fraction: Annotated[float, typer.Option(help="Fraction of the rows that are members.", min=0, max=1)],
    keep: options.Keep = None,
    where: options.Where = None,
    bad_rows: options.BadRows = "refuse",
    skip_bad_files: options.SkipBadFiles = False,
    config: options.Config = None,
) -> None:  # fmt: skip
    """Append to the rows the probability that each is a member: column p_member."""
    from ..mixture._mixture import load
    from ..mixture.classifier import Classifier

    priors = {"member": fraction, "field": 1 - fraction}
    classifier = Classifier({"member": load(cluster), "field": load(field)}, priors)
    _write_classes(classifier, ["p_member"], data, output, keep, where, bad_rows, skip_bad_files)


def _write_classes(
    classifier: Any, names: Sequence[str], data: Sequence[str], output: Path, keep: str | None, where: str | None,
    bad_rows: str, skip_bad_files: bool, priors: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    from ..catalog.expressions import Expression
    from ..catalog.finding import nearest
    from ..catalog.writers import refuse_suffix, write_blocks

    refuse_suffix(output)
    first = next(iter(classifier.mixtures.values()))
    source = options.open_for(first, data, {}, where=where, bad_rows=bad_rows, skip_bad_files=skip_bad_files)
    by_row = {name: Expression(str(value)) for name, value in (priors or {}).items()}
    needed = tuple(dict.fromkeys(column for expression in by_row.values() for column in expression.names))
    for column in needed:
        if column not in source.table.columns:
            raise nearest(column, source.table.columns, source.table.name)

    def probabilities(batch: Batch, passed: Any) -> dict[str, np.ndarray]:
        columns = {name: passed.column(name).to_numpy(zero_copy_only=False) for name in needed}
        each = {name: expression.value(columns) for name, expression in by_row.items()} if by_row else None
        found = classifier.predict_proba(batch, priors=each)
        return {name: found[:, c] for c, name in enumerate(names)}

    rows = write_blocks(output, appended(source, kept(keep, source), probabilities, needed))
    for note in source.notes:
        say(f"note: {note}")
    say(f"{rows:,} rows in {output}")
