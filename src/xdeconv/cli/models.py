"""Commands about a model: sample, condition, export, info."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options
from .app import app, say, tell

if TYPE_CHECKING:
    from ..mixture._mixture import Mixture


@app.command()
def sample(
    model: options.Model,
    output: options.Output,
    rows: Annotated[int, typer.Option("--rows", "-n", help="How many draws.", min=1)] = 1000,
    seed: Annotated[int | None, typer.Option(help="Same seed, same draws.")] = None,
) -> None:
    """Draw true values from a model."""
    import pyarrow as pa

    from ..catalog.writers import write_blocks
    from ..mixture._mixture import load

    mixture = load(model)
    drawn = mixture.sample(rows, seed)
    columns = {name: pa.array(drawn[:, a]) for a, name in enumerate(names_of(mixture))}
    write_blocks(output, [pa.RecordBatch.from_pydict(columns)])
    say(f"{rows:,} rows in {output}")


@app.command()
def condition(
    model: options.Model,
    given: Annotated[list[str], typer.Argument(help="LABEL=VALUE, one or more.")],
    error: Annotated[list[str] | None, typer.Option(help="LABEL=SD of a given value. Repeatable.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Model of the others to write.")] = None,
) -> None:  # fmt: skip
    """Describe the other coordinates, given some: mean and standard deviation of each, and a model of them."""
    from ..mixture._mixture import load

    values = {name: float(text) for name, text in (options.pairs(given, "GIVEN") or {}).items()}
    errors = {name: float(text) for name, text in (options.pairs(error, "--error") or {}).items()}
    found = load(model).condition(values, error=errors or None)
    for line in summary(found):
        tell(line)
    if output is not None:
        found.save(output)
        say(f"written: {output}")


@app.command()
def export(
    model: options.Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .npz or .fits.")],
) -> None:
    """Write a model for other programs: weights, means and covariances as NumPy arrays or FITS tables."""
    from ..mixture._mixture import load

    load(model).export(output)
    say(f"written: {output}")


@app.command()
def info(
    path: Annotated[str, typer.Argument(help="A model, a prepared store, or any readable catalogue.")],
    check: Annotated[bool, typer.Option("--check", help="Compare a prepared store with its checksums.")] = False,
) -> None:
    """Say what a model, a prepared store or a catalogue holds."""
    if path.endswith(".safetensors"):
        from ..mixture._mixture import load

        for line in model_lines(load(path)):
            tell(line)
        return
    from ..catalog.readers import open_table

    table = open_table(path)
    if check:
        from ..catalog.store import check_store

        check_store(Path(path))
        tell("all checksums agree")
    for line in table_lines(table):
        tell(line)


def names_of(mixture: Mixture) -> tuple[str, ...]:
    """The labels, or x0, x1, ..."""
    return mixture.labels or tuple(f"x{a}" for a in range(mixture.d))


def summary(mixture: Mixture) -> list[str]:
    """Mean and standard deviation of each coordinate."""
    import numpy as np

    mean, sd = mixture.mean(), np.sqrt(np.diag(mixture.covariance()))
    units = mixture.units or ("",) * mixture.d
    rows = zip(names_of(mixture), mean, sd, units, strict=True)
    return [f"{name:<20} {m:>14.6g} +- {s:<12.6g} {unit}".rstrip() for name, m, s, unit in rows]


def model_lines(mixture: Mixture) -> list[str]:
    """What a model is, where it comes from, and how it was fitted."""
    meta: dict[str, Any] = dict(mixture.meta or {})
    lines = [f"mixture of {mixture.k} Gaussians in {mixture.d} dimensions", *summary(mixture)]
    for name in ("data", "where", "loglik", "validation", "epochs", "open", "options", "notes", "reading"):
        if meta.get(name) not in (None, [], {}):
            lines.append(f"{name}: {meta[name]}")
    return lines


def table_lines(table: Any) -> list[str]:
    """What a catalogue holds."""
    from ..catalog.readers import rows_of

    rows = rows_of(table)
    count = "an unknown number of rows" if rows is None else f"{rows:,} rows"
    lines = [f"{table.name}: {count} in {len(table.pieces)} pieces" + (", shuffled" if table.shuffled else "")]
    return lines + [f"  {name} [{table.units[name]}]" if name in table.units else f"  {name}" for name in table.columns]
