"""The command explore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options, outputs
from .app import app, say


@app.command()
def explore(
    model: options.Model,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Page to write (.html). Default: MODEL.html.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page. Default: the model's name.")] = None,
    force: options.Force = False,
) -> None:  # fmt: skip
    """Write one HTML file in which a model can be explored in a browser, without a server or a network."""
    target = outputs.checked(output or model.with_suffix(".html"), [model], force, outputs.PAGES)
    from ..mixture._mixture import load
    from ..plot.explorer._explore import explore as write_page

    write_page(load(model), target, title=title or model.stem)
    say(f"written: {target} ({target.stat().st_size / 1e3:,.0f} kB): open it in a browser")
