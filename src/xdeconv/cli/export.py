"""The command export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options, outputs
from .app import app, say


@app.command()
def export(
    model: options.Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .npz or .fits.")],
    force: options.Force = False,
) -> None:
    """Write a model for other programs: weights, means and covariances as NumPy arrays or FITS tables."""
    outputs.checked(output, [model], force, outputs.EXCHANGES)
    from ..mixture._mixture import load

    load(model).export(output)
    say(f"written: {output}")
