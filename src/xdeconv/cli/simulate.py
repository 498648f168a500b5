"""The command simulate."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from . import options, outputs
from .app import app, say


@app.command()
def simulate(
    kind: Annotated[Literal["gaia"], typer.Argument(help="What to simulate.")],
    output: options.Output,
    rows: Annotated[int, typer.Option(help="How many rows.", min=1)] = 100_000,
    seed: Annotated[int, typer.Option(help="Same seed, same rows; fewer rows are a prefix of more.", min=0)] = 0,
    device: Annotated[
        Literal["cpu", "cuda"] | None, typer.Option(help="Where rows are made, which are other ones on a GPU.")
    ] = None,
    force: options.Force = False,
) -> None:
    """Write Gaia-like rows with the archive's column names, as many as one likes, in bounded memory."""
    from ..catalog.writers import SUFFIXES, write_blocks
    from ..simulate._gaia import gaia_tables

    outputs.checked(output, (), force, SUFFIXES)
    mark = outputs.table_mark()
    blocks = (block for table in gaia_tables(rows, seed, device=device or "cpu") for block in table.to_batches())
    write_blocks(output, (block.replace_schema_metadata({**(block.schema.metadata or {}), **mark}) for block in blocks))
    say(f"{rows:,} rows in {output}")
