"""What takes long: very many components, and streamed fits for many minutes."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

EPOCH = 500_000
COMPONENTS = ["k", "d", "moves", "time"]
STREAM = ["what", "first fifth", "last fifth", "flat"]


def components(folder: Path, arguments: argparse.Namespace) -> tuple[list[list[str]], list[str]]:
    """Many components, with moves and without."""
    import xdeconv as xd

    rows = []
    for k, d, moves in ((1500, 1, xd.Moves(sweeps=1)), (2000, 2, None)):
        X = np.random.default_rng(0).normal(size=(2 * k, d))
        began = time.monotonic()
        result = xd.fit(X, k, error=[0.5] * d, epochs=3, tol=0, moves=moves, method=xd.EM(), start="random")
        finite = all(np.isfinite(getattr(result.mixture, name)).all() for name in ("means", "covariances"))
        assert finite
        assert result.history[-1].loglik > result.history[0].loglik
        rows.append([f"{k:,}", str(d), "yes" if moves else "no", f"{time.monotonic() - began:.0f} s"])
    return rows, []


def stream(folder: Path, arguments: argparse.Namespace) -> tuple[list[list[str]], list[str]]:
    """Streamed minibatch EM for minutes: memory, descriptors and rate, epoch by epoch."""
    import xdeconv as xd
    from xdeconv.catalog.store import prepare
    from xdeconv.catalog.writers import write_blocks
    from xdeconv.simulate._gaia import gaia_chunks

    rows = arguments.rows or EPOCH
    columns = ["ra", "dec", "parallax", "pmra", "pmdec", "bp_rp", "phot_g_mean_mag"]
    write_blocks(folder / "rows.parquet", (b for p in gaia_chunks(rows, 1) for b in p.to_table().to_batches()))
    store = prepare(folder / "rows.parquet", folder / "store")
    began, seen = time.monotonic(), []

    class Enough(Exception):
        pass

    def look(record: Any) -> None:
        seen.append((time.monotonic() - began, anonymous(), len(os.listdir("/proc/self/fd")), time.process_time()))
        if seen[-1][0] > 60 * arguments.minutes:
            raise Enough

    source = xd.open(store, columns, memory=False)
    settings = {"batch_rows": 4096, "epochs": 10**6, "tol": 0, "device": arguments.device, "start": "kmeans++"}
    with contextlib.suppress(Enough):
        method = xd.EM(step=xd.Decaying(0.1))
        xd.fit(source, 16, method=method, callback=look, checkpoint=folder / "stream.checkpoint", **settings)
    return flat_rows(seen, rows), []


def anonymous() -> int:
    """Bytes of memory of this process that no file backs."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not tell RssAnon")


def flat_rows(seen: list[tuple[float, int, int, float]], rows: int) -> list[list[str]]:
    """The first and the last fifth of a stream, and whether they agree; the first epoch warms up."""
    seen = seen[1:]
    fifth = max(1, len(seen) // 5)
    rates, busy = ([rows / statistics.median(part) for part in (times[:fifth], times[-fifth:])]
                   for times in ([b[i] - a[i] for a, b in itertools.pairwise(seen)] for i in (0, 3)))  # fmt: skip
    memory = [statistics.median(s[1] for s in part) / 2**20 for part in (seen[:fifth], seen[-fifth:])]
    files = [max(s[2] for s in part) for part in (seen[:fifth], seen[-fifth:])]
    flat = [abs(last / first - 1) <= 0.1 for first, last in (rates, busy)]
    verdicts = [abs(memory[1] - memory[0]) <= 50, files[1] <= files[0], *flat]
    shown = ["yes" if verdict else "**no**" for verdict in verdicts]
    return [
        ["minutes", f"{seen[-1][0] / 60:.1f}", f"{len(seen)} epochs of {rows:,} rows", ""],
        ["memory (MiB)", f"{memory[0]:.0f}", f"{memory[1]:.0f}", shown[0]],
        ["open descriptors", str(files[0]), str(files[1]), shown[1]],
        ["rows per second", f"{rates[0]:,.0f}", f"{rates[1]:,.0f}", shown[2]],
        ["rows per second of all cores", f"{busy[0]:,.0f}", f"{busy[1]:,.0f}", shown[3]],
    ]
