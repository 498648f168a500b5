"""The command demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options, outputs
from .app import app


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path("demo"),
    seed: options.Seed = 0,
    seeds: Annotated[
        int, typer.Option(help="Fit from so many seeds, keep the best, and say whether they end in one place.", min=1)
    ] = 1,
    force: options.Force = False,
) -> None:
    """Fit, denoise and draw real stars in seconds: a look at everything."""
    for name in ("hipparcos.safetensors", "hipparcos.png"):
        if output.is_dir():
            outputs.checked(output / name, (), force)
    from .velocities import run

    run(output, seed, seeds=seeds)
