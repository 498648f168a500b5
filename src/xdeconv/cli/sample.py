"""The command sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from . import options, outputs
from .app import app, say
from .tables import names_of, target_table

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_ROWS = 1 << 16  # that are drawn at a time


@app.command()
def sample(
    model: options.Model,
    output: options.Output,
    rows: Annotated[int, typer.Option("--rows", "-n", help="How many draws.", min=1)] = 1000,
    seed: Annotated[int | None, typer.Option(help="Same seed, same draws.", min=0)] = None,
    device: Annotated[Literal["cpu", "cuda"] | None, typer.Option(help="Where it draws. Default: cpu.")] = None,
    dtype: options.Number = None,
    force: options.Force = False,
) -> None:
    """Draw true values from a model."""
    target_table(output, [model], force)
    import numpy as np
    import pyarrow as pa

    from ..catalog.writers import write_blocks
    from ..mixture._mixture import load
    from ..system.progress import progress_of_call

    mixture, rng = load(model), np.random.default_rng(seed)

    def block(size: int) -> pa.RecordBatch:
        drawn = mixture.drawn(size, rng, device, dtype)
        columns = {name: pa.array(drawn[:, a]) for a, name in enumerate(names_of(mixture))}
        return pa.RecordBatch.from_pydict(columns, metadata=outputs.table_mark())

    with progress_of_call(None, rows) as progress:

        def blocks() -> Iterator[pa.RecordBatch]:
            for first in range(0, rows, BLOCK_ROWS):
                size = min(BLOCK_ROWS, rows - first)
                yield block(size)
                progress.update(f"rows to {output}", done=size)

        write_blocks(output, blocks())
    say(f"{rows:,} rows in {output}")
