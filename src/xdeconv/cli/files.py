"""Commands that make files: simulate, demo, prepare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .app import app, say, stop


@app.command()
def simulate(
    kind: Annotated[str, typer.Argument(help="What to simulate: gaia.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .parquet, .arrow or .csv.")],
    rows: Annotated[int, typer.Option(help="How many rows.", min=1)] = 100_000,
    seed: Annotated[int, typer.Option(help="Same seed, same rows; fewer rows are a prefix of more.")] = 0,
) -> None:
    """Write Gaia-like rows with the archive's column names, as many as one likes, in bounded memory."""
    if kind != "gaia":
        stop(2, f"cannot simulate {kind!r}: the only kind is gaia")
    from ..catalog.writers import write_blocks
    from ..simulate._gaia import gaia_chunks

    blocks = (block for part in gaia_chunks(rows, seed) for block in part.to_table().to_batches())
    write_blocks(output, blocks)
    say(f"{rows:,} rows in {output}")


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path("demo"),
) -> None:
    """Fit, denoise and draw real stars in about a minute: a look at everything."""
    from .demo import run

    run(output)


@app.command()
def prepare(
    paths: Annotated[list[str], typer.Argument(help="Catalogues to read, and last the folder to write.")],
    columns: options.Columns = None,
    keep: Annotated[str | None, typer.Option(help="Other columns to store, separated by commas.")] = None,
    where: options.Where = None,
    error: options.Errors = None,
    unit: options.Units = None,
    derive: options.Derive = None,
    preset: options.Preset = None,
    seed: Annotated[int, typer.Option(help="Same seed, same order of rows.")] = 0,
    shard_rows: Annotated[int, typer.Option(help="Rows of a shard, about.", min=1)] = 1 << 20,
    run_bytes: Annotated[int, typer.Option(help="Memory for rows that wait to be written.", min=1)] = 1 << 27,
    skip_bad_files: options.SkipBadFiles = False,
    config: options.Config = None,
) -> None:
    """Shuffle any catalogue into a store that fits read at memory speed; killed, the same command goes on.

    With --columns, what a fit of these features needs is stored; without, everything. Twice the size of the store is
    needed on disk while it is made.
    """
    if len(paths) < 2:
        stop(2, "prepare needs what to read and, last, the folder to write")
    from ..catalog import store as making

    *sources, output = paths
    chosen, arguments = None, None
    if columns or preset:
        arguments = options.opening(columns, error, unit, derive, None, None, preset, None)
        source = options.open_data(sources, arguments, skip_bad_files=skip_bad_files)
        extra = [name.strip() for name in (keep or "").split(",") if name.strip()]
        chosen = [*source.recipe.columns, *extra]
    folder = making.prepare(
        sources, output, columns=chosen, where=where, seed=seed, shard_rows=shard_rows, run_bytes=run_bytes,
        reading=arguments, skip_bad_files=skip_bad_files, report=say,
    )  # fmt: skip
    from ..catalog.readers import open_table, rows_of

    say(f"{rows_of(open_table(folder)):,} rows in {folder}")
