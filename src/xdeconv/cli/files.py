"""Commands that make files: simulate, demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .app import app, say, stop


@app.command()
def simulate(
    kind: Annotated[str, typer.Argument(help="What to simulate: gaia.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Parquet file to write.")],
    rows: Annotated[int, typer.Option(help="How many rows.", min=1)] = 100_000,
    seed: Annotated[int, typer.Option(help="Same seed, same rows; fewer rows are a prefix of more.")] = 0,
) -> None:
    """Write Gaia-like rows with the archive's column names, as many as one likes, in bounded memory."""
    if kind != "gaia":
        stop(2, f"cannot simulate {kind!r}: the only kind is gaia")
    import pyarrow.parquet as pq

    from ..simulate import gaia_chunks

    writer = None
    for part in gaia_chunks(rows, seed):
        table = part.to_table()
        writer = writer or pq.ParquetWriter(output, table.schema, compression="zstd")
        writer.write_table(table)
    if writer is not None:
        writer.close()
    say(f"{rows:,} rows in {output}")


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path("demo"),
) -> None:
    """Fit, denoise and draw real stars in about a minute: a look at everything."""
    from ..demo import run

    run(output)
