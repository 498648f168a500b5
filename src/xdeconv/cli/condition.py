"""The command condition."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options, outputs, parsing
from .app import app, say, tell
from .tables import summary


@app.command()
def condition(
    model: options.Model,
    given: Annotated[list[str], typer.Argument(help="LABEL=VALUE, one or more.")],
    error: Annotated[list[str] | None, typer.Option(help="LABEL=SD of a given value. Repeatable.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Model of the others to write.")] = None,
    force: options.Force = False,
) -> None:  # fmt: skip
    """Describe the other coordinates, given some: mean and standard deviation of each, and a model of them.

    Beside a background they are those of rows that it did not make, and its share is told.
    """
    values, errors = parsing.numbers(given, "GIVEN"), parsing.numbers(error, "--error")
    if output is not None:
        outputs.checked(output, [model], force, outputs.MODELS)
    from ..mixture._mixture import load

    conditional = load(model).condition(values, error=errors or None)
    for line in summary(conditional):
        tell(line)
    if conditional.background is not None:
        tell(f"background: {conditional.background_weight:.4f} of the rows with these values")
    if output is not None:
        conditional.save(output)
        say(f"written: {output}")
