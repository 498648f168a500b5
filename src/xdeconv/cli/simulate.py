"""The command simulate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from . import options, outputs
from .app import app, say

if TYPE_CHECKING:
    import pyarrow as pa


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
    from ..system.progress import progress_of_call

    outputs.checked(output, (), force, SUFFIXES)
    mark = outputs.table_mark()
    with progress_of_call(None, rows) as progress:

        def blocks() -> Iterator[pa.RecordBatch]:
            for table in gaia_tables(rows, seed, device=device or "cpu"):
                for block in table.to_batches():
                    yield block.replace_schema_metadata({**(block.schema.metadata or {}), **mark})
                    progress.update(f"rows to {output}", done=block.num_rows)

        write_blocks(output, blocks())
    say(f"{rows:,} rows in {output}")
