"""Files: what reading, preparing, asking and simulating cost, over a plain reader of the same columns in the same run.

    python -m benchmarks.files                    everything, 2,000,000 rows of the simulated sky
    python -m benchmarks.files --rows 20000000    as many as one likes; GPU rows only where there is a GPU
    python -m benchmarks.files --only formats     one table
    python -m benchmarks.files --device cuda --rows 20000000 --seconds 150 --out DIR
                                                  what a user of a large file waits for, the first steps first

Times are medians of rounds in which all candidates take turns, each with the memory of the one before given back:
else a plain reader took half as long, or twice, by what had been freed before it. Core-seconds are those of all
threads of the process: they can be compared on a machine that does other work; seconds cannot. Files lie in --folder
and are made once.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import logging
import os
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.files import plain, steps
from benchmarks.files.making import COLUMNS, SMALL_FILES, directory, hats, needed, other, parquet
from benchmarks.files.ranks import shared

Times = dict[str, list[tuple[float, float]]]


def in_turn(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, float]]:
    """Median seconds and core-seconds of each, after one round that does not count."""
    found: Times = {name: [] for name in candidates}
    for turn in range(rounds + 1):
        for name, work in candidates.items():
            give_back()
            began, used = time.perf_counter(), time.process_time()
            work()
            if turn:
                found[name].append((time.perf_counter() - began, time.process_time() - used))
    return {
        name: (statistics.median(t[0] for t in ts), statistics.median(t[1] for t in ts)) for name, ts in found.items()
    }


def give_back() -> None:
    """Give freed memory back, so that each candidate begins as a new process does, whoever had its turn before."""
    import pyarrow as pa

    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


# Formats


def assembled(path: Path) -> None:
    """Every row read, checked, and made what kernels take; none kept."""
    import torch

    from xdeconv.catalog._open import open_source

    open_source(str(path), COLUMNS, memory=False).sum(lambda batch: torch.zeros(()))


def loaded(path: Path) -> None:
    """The same, all of them kept."""
    from xdeconv.catalog._open import open_source

    open_source(str(path), COLUMNS, memory=True).load()


def formats(folder: Path, rows: int, rounds: int) -> str:
    """A table of rows per second by format."""
    from benchmarks.common import results

    path = parquet(folder, rows)
    columns = needed(path)
    cases = {
        "Parquet, ZSTD, one file": (path, plain.read_parquet),
        f"Parquet, {SMALL_FILES} files": (directory(path), plain.read_parquet),
        "HATS": (hats(path), plain.read_parquet),
        "Arrow IPC": (other(path, ".arrow"), plain.read_arrow),
        "FITS": (other(path, ".fits"), plain.read_fits),
        "CSV": (other(path, ".csv"), plain.read_csv),
        "HDF5": (other(path, ".hdf5"), plain.read_hdf5),
        ".npy": (other(path, ".npy"), plain.read_npy),
    }
    lines = []
    for name, (file, read) in cases.items():
        lines.append([name, *compared(file, lambda f=file, r=read: r(f, columns), rows, rounds)])
        print(lines[-1], flush=True)
    head = ["format", "M rows per core-second", "over the plain reader", "over it with NumPy columns",
            "over it with every value summed", "kept in memory, over the plain reader", "M rows per second",
            "over the plain reader, seconds"]  # fmt: skip
    said = ("Ratios are of core-seconds but for the last. The plain reader holds the columns in memory as its library "
            "gives them: Arrow tables of Parquet, Arrow IPC and CSV, arrays of the others. With NumPy columns, nulls "
            "of tables become NaN too. Of Arrow IPC, HDF5 and .npy the plain reader copies bytes and looks at none: "
            "what adds up every column, and so looks at each value, is what they are to be compared with.")  # fmt: skip
    return said + "\n\n" + results.table(head, lines)


def compared(file: Path, read: Callable[[], object], rows: int, rounds: int) -> list[str]:
    """Ours and the plain reader's, in turn: a line of the table."""
    found = in_turn({"ours": lambda: assembled(file), "kept": lambda: loaded(file), "plain": read,
                     "arrays": lambda: plain.as_arrays(read()),
                     "summed": lambda: plain.summed(read())}, rounds)  # fmt: skip
    wall, used = found["ours"]
    return [f"{rows / used / 1e6:.2f}", f"{used / found['plain'][1]:.2f}", f"{used / found['arrays'][1]:.2f}",
            f"{used / found['summed'][1]:.2f}", f"{found['kept'][1] / found['plain'][1]:.2f}",
            f"{rows / wall / 1e6:.2f}", f"{wall / found['plain'][0]:.2f}"]  # fmt: skip


# What users call


def commands(folder: Path, rows: int, rounds: int) -> str:
    """A table of what prepare, questions and simulate cost, with and without a GPU."""
    import torch

    from benchmarks.common import results
    from xdeconv.catalog._open import open_source
    from xdeconv.catalog.store import prepare
    from xdeconv.mixture._mixture import Mixture
    from xdeconv.simulate._gaia import gaia_tables

    path, store = parquet(folder, rows), folder / "prepared"
    source = open_source(str(path), COLUMNS, memory=False)
    mixture = some_mixture(source, 64)

    def prepared() -> None:
        shutil.rmtree(store, ignore_errors=True)
        prepare(str(path), store, reading={"columns": COLUMNS})

    def simulated(device: str) -> None:
        from xdeconv.catalog.writers import write_blocks

        write_blocks(folder / "made.parquet", (b for t in gaia_tables(rows, 2, device=device) for b in t.to_batches()))

    def denoised(device: str) -> None:
        model: Mixture = mixture
        few = source.sample(min(rows, 1 << 16), 0)
        model.posterior(few, device=device).moments()

    work: dict[str, tuple[int, Callable[[], object]]] = {"prepare": (rows, prepared)}
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        work[f"score, k = 64, {device}"] = (rows, lambda d=device: mixture.score(source, device=d))
        work[f"posterior means and covariances, k = 64, {device}"] = (min(rows, 1 << 16), lambda d=device: denoised(d))
        work[f"simulate to Parquet, {device}"] = (rows, lambda d=device: simulated(d))
    found = in_turn({name: each for name, (_, each) in work.items()}, rounds)
    lines = [
        [name, f"{n / found[name][1] / 1e6:.3f}", f"{n / found[name][0] / 1e6:.3f}"] for name, (n, _) in work.items()
    ]
    return results.table(["what", "M rows per core-second", "M rows per second"], lines)


def some_mixture(source: object, k: int) -> object:
    """A mixture that covers the rows."""
    import numpy as np

    from xdeconv.mixture._mixture import Mixture

    batch = source.sample(1 << 14, 0)
    x = batch.x.T[~batch.x.isnan().any(0)].numpy()
    centers = x[np.random.default_rng(0).integers(len(x), size=k)]
    covariance = np.cov(x.T) / 4
    return Mixture(np.full(k, 1 / k), centers, np.tile(covariance, (k, 1, 1)), labels=COLUMNS, units=source.units)


def readings(folder: Path, rows: int, rounds: int) -> str:
    """How often row groups are read until the first pass of a fit is done."""
    from benchmarks.common import results

    path, lines = parquet(folder, rows), []
    cases = {"plain": ({}, None), "5 % held out": ({}, 0.05), "bad rows dropped": ({"bad_rows": "drop"}, None)}
    for name, (words, validation) in cases.items():
        reads, seconds = until_first_pass(path, words, validation)
        lines.append([name, str(reads), f"{seconds:.1f} s"])
    return results.table(["fit", "times that a row group is read, first pass included", "core-seconds"], lines)


def until_first_pass(path: Path, words: dict, validation: float | None) -> tuple[int, float]:
    """The most often that a row group was read, and core-seconds."""
    import xdeconv as xd
    from xdeconv.catalog.readers.parquet import ParquetTable

    groups: Counter[int] = Counter()
    after: list[tuple[int, float]] = []
    read, used = ParquetTable.read, time.process_time()

    def noted(self, piece, columns, floats=()):
        groups[piece.index] += 1
        return read(self, piece, columns, floats)

    ParquetTable.read = noted
    try:
        xd.fit(xd.open(str(path), COLUMNS, **words), 16, moves="none", epochs=1, tol=0, validation=validation,
               method=xd.EM(accelerate=False), device="cpu",
               callback=lambda _: after.append((max(groups.values()), time.process_time() - used)))  # fmt: skip
    finally:
        ParquetTable.read = read
    return after[0]


def ranks(folder: Path, rows: int, rounds: int) -> str:
    """What two ranks read until the first pass of a fit is done, and after it."""
    return shared(parquet(folder, rows))


TABLES = {"formats": formats, "commands": commands, "readings": readings, "ranks": ranks}


def main() -> None:
    from benchmarks.common import machine, results

    logging.getLogger("xdeconv").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=list(TABLES))
    parser.add_argument("--device", choices=["cpu", "cuda"], help="the steps of a large file, there, and nothing else")
    parser.add_argument("--components", "-k", type=int, default=256, help="of the mixture of a large file")
    parser.add_argument("--seconds", type=float, default=150.0, help="of all steps of a large file together")
    parser.add_argument("--out", type=Path, default=Path("."), help="where their table is written")
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")) / "xdeconv-files")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    if chosen.device is not None:
        steps.run(chosen.device, chosen.rows, chosen.components, chosen.seconds, chosen.folder, chosen.out)
        return
    body = [f"`python -m benchmarks.files --rows {chosen.rows}` on {results.describe(machine.about())}"]
    for name, made in TABLES.items():
        if chosen.only in (None, name):
            body.append(made(chosen.folder, chosen.rows, chosen.rounds))
            print(body[-1], flush=True)
    if chosen.only is None:
        results.write_section("Files", "\n\n".join(body))
