"""The command sample."""

from __future__ import annotations

from typing import Annotated

import typer

from . import options, outputs
from .app import app, say
from .tables import names_of, target_table


@app.command()
def sample(
    model: options.Model,
    output: options.Output,
    rows: Annotated[int, typer.Option("--rows", "-n", help="How many draws.", min=1)] = 1000,
    seed: Annotated[int | None, typer.Option(help="Same seed, same draws.", min=0)] = None,
    force: options.Force = False,
) -> None:
    """Draw true values from a model."""
    target_table(output, [model], force)
    import pyarrow as pa

    from ..catalog.writers import write_blocks
    from ..mixture._mixture import load

    mixture = load(model)
    drawn = mixture.sample(rows, seed)
    columns = {name: pa.array(drawn[:, a]) for a, name in enumerate(names_of(mixture))}
    write_blocks(output, [pa.RecordBatch.from_pydict(columns, metadata=outputs.table_mark())])
    say(f"{rows:,} rows in {output}")
