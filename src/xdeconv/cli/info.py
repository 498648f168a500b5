"""The command info."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..system.text import counted
from .app import app, tell
from .tables import aligned, names_of, summary

if TYPE_CHECKING:
    from ..mixture._mixture import Mixture

REMEMBERED = ("data", "where", "loglik", "validation", "epochs", "open", "options", "notes", "reading")


@app.command()
def info(
    path: Annotated[str, typer.Argument(help="A model, a prepared store, or any readable catalogue.")],
    check: Annotated[bool, typer.Option("--check", help="Compare a prepared store with its checksums.")] = False,
    most: Annotated[int, typer.Option(help="Components to list, the heaviest first.", min=0)] = 20,
) -> None:
    """Say what a model, a prepared store or a catalogue holds."""
    if path.endswith(".safetensors"):
        from ..mixture._mixture import load

        for line in model_lines(load(path), most):
            tell(line)
        return
    from ..catalog.readers import open_table

    table = open_table(path)
    if check:
        from ..catalog.readers.store import MANIFEST
        from ..catalog.store import check_store

        if not (Path(path) / MANIFEST).is_file():
            raise typer.BadParameter(f"{path} is not a prepared store: only these have checksums", param_hint="--check")
        check_store(Path(path))
        tell("all checksums agree")
    for line in table_lines(table):
        tell(line)


def model_lines(mixture: Mixture, most: int = 20) -> list[str]:
    """What a model is, its components, where it comes from, and how it was fitted."""
    meta: dict[str, Any] = dict(mixture.meta or {})
    lines = [f"mixture of {counted(mixture.k, 'Gaussian')} in {counted(mixture.d, 'dimension')}", *summary(mixture)]
    if mixture.tails is not None:
        lines.append(f"tails: Student's t, nu = {mixture.tails.nu:.4g}{' (fitted)' * mixture.tails.fitted}")
    if mixture.inflation is not None:
        lines += [f"errors inflated, {line}" for line in mixture.inflation.describe(mixture.labels)]
    if mixture.background is not None:
        lines.append(f"background: {mixture.background_weight:.4f} of all rows, {mixture.background!r}")
    if mixture.selection is not None:
        lines.append(f"selection: {mixture.selection.told(mixture.labels)}; the mixture is of all rows, kept or not")
    lines += [] if mixture.structure == "full" else [f"covariances: {mixture.structure}"]
    lines += component_lines(mixture, most)
    return lines + [f"{name}: {meta[name]}" for name in REMEMBERED if meta.get(name) not in (None, [], {})]


def component_lines(mixture: Mixture, most: int) -> list[str]:
    """A table of components by weight: number, weight, and mean +- standard deviation of each coordinate."""
    import numpy as np

    from ..mixture.matrices import widths

    sd = widths(mixture.covariances)
    order = np.argsort(-mixture.weights, kind="stable")[:most]
    cells = [["component", "weight", *names_of(mixture)]]
    for j in order:
        both = zip(mixture.means[j], sd[j], strict=True)
        cells.append([str(j), f"{mixture.weights[j]:.4f}", *(f"{m:.5g} +- {s:.3g}" for m, s in both)])
    lines = aligned(cells)
    left = mixture.k - len(order)
    return (lines if len(order) else []) + ([f"and {left} more: --most {mixture.k} lists all"] if left else [])


def table_lines(table: Any) -> list[str]:
    """What a catalogue holds."""
    from ..catalog.readers import rows_of

    rows = rows_of(table)
    count = "an unknown number of rows" if rows is None else f"{rows:,} rows"
    where = counted(len(table.pieces), "piece") + (", shuffled" if table.shuffled else "")
    lines = [f"{table.name}: {count} in {where}"]
    return lines + [f"  {name} [{table.units[name]}]" if name in table.units else f"  {name}" for name in table.columns]
