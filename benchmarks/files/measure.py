"""Files: what reading, preparing, asking and simulating cost, over a plain reader of the same columns in the same run.

    python -m benchmarks.files                    everything, 2,000,000 rows of the simulated sky
    python -m benchmarks.files --rows 20000000    as many as one likes; GPU rows only where there is a GPU
    python -m benchmarks.files --only formats     one table

Times are medians of rounds in which all candidates take turns. Core-seconds are those of all threads of the process:
they can be compared on a machine that does other work; seconds cannot. Files lie in --folder and are made once.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

COLUMNS = ["ra", "dec", "parallax", "pmra", "pmdec", "bp_rp", "phot_g_mean_mag"]
SMALL_FILES = 32
Times = dict[str, list[tuple[float, float]]]


def in_turn(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, tuple[float, float]]:
    """Median seconds and core-seconds of each, after one round that does not count."""
    found: Times = {name: [] for name in candidates}
    for turn in range(rounds + 1):
        for name, work in candidates.items():
            began, used = time.perf_counter(), time.process_time()
            work()
            if turn:
                found[name].append((time.perf_counter() - began, time.process_time() - used))
    return {
        name: (statistics.median(t[0] for t in ts), statistics.median(t[1] for t in ts)) for name, ts in found.items()
    }


# Files


def parquet(folder: Path, rows: int) -> Path:
    from xdeconv.catalog.writers import write_blocks
    from xdeconv.simulate._gaia import gaia_tables

    path = folder / f"sky-{rows}.parquet"
    if not path.exists():
        write_blocks(path, (b for table in gaia_tables(rows, 1) for b in table.to_batches()))
    return path


def needed(path: Path) -> list[str]:
    from xdeconv.catalog._open import open_source

    return list(open_source(str(path), COLUMNS).recipe.columns)


def directory(path: Path) -> Path:
    """Many small Parquet files."""
    import pyarrow.parquet as pq

    folder = path.with_suffix(".many")
    if not folder.exists():
        folder.mkdir()
        table = pq.read_table(path, columns=needed(path))
        step = -(-table.num_rows // SMALL_FILES)
        for i in range(SMALL_FILES):
            pq.write_table(table.slice(i * step, step), folder / f"part-{i:03d}.parquet", compression="zstd")
    return folder


def hats(path: Path) -> Path:
    """The same files in the layout of a HATS catalogue."""
    folder = path.with_suffix(".hats")
    if not folder.exists():
        target = folder / "dataset" / "Norder=2" / "Dir=0"
        target.mkdir(parents=True)
        for i, file in enumerate(sorted(directory(path).iterdir())):
            shutil.copy(file, target / f"Npix={i}.parquet")
        (folder / "properties").write_text("catalog_name = sky\n")
    return folder


def other(path: Path, suffix: str) -> Path:
    """The needed columns as FITS, CSV, Arrow, HDF5 or .npy."""
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet as pq

    target = path.with_suffix(suffix)
    if target.exists():
        return target
    table = pq.read_table(path, columns=needed(path))
    if suffix == ".csv":
        pyarrow.csv.write_csv(table, target)
    elif suffix == ".arrow":
        pyarrow.feather.write_feather(table, target, compression="uncompressed")
    else:
        write_arrays({name: table.column(name).to_numpy() for name in table.column_names}, target)
    return target


def write_arrays(arrays: dict, target: Path) -> None:
    """Columns of arrays as FITS, HDF5 (one dataset each) or .npy (a structured array)."""
    import h5py
    import numpy as np
    from astropy.table import Table

    if target.suffix == ".npy":
        np.save(target, Table(arrays).as_array())
    elif target.suffix == ".hdf5":
        with h5py.File(target, "w") as file:
            for name, values in arrays.items():
                file[name] = values
    else:
        Table(arrays).write(target)


# Plain readers


def plain_parquet(path: Path, columns: list[str]) -> None:
    import pyarrow.parquet as pq

    for file in sorted(path.rglob("*.parquet")) if path.is_dir() else [path]:
        pq.ParquetFile(file).read(columns=columns)


def plain_arrow(path: Path, columns: list[str]) -> None:
    import pyarrow.feather

    pyarrow.feather.read_table(path, columns=columns, memory_map=False)


def plain_csv(path: Path, columns: list[str]) -> None:
    import pyarrow.csv

    pyarrow.csv.read_csv(path, convert_options=pyarrow.csv.ConvertOptions(include_columns=columns))


def plain_fits(path: Path, columns: list[str]) -> None:
    """Every column as an array of the machine's own byte order."""
    from astropy.io import fits

    with fits.open(path, memmap=True) as file:
        for name in columns:
            values = file[1].data[name]
            values.astype(values.dtype.newbyteorder("="))


def plain_hdf5(path: Path, columns: list[str]) -> None:
    import h5py

    with h5py.File(path, "r") as file:
        for name in columns:
            file[name][:]


def plain_npy(path: Path, columns: list[str]) -> None:
    """Every column as an array of its own."""
    import numpy as np

    table = np.load(path)
    for name in columns:
        np.ascontiguousarray(table[name])


def assembled(path: Path) -> Callable[[], object]:
    """Every row read, checked, and made what kernels take; none kept."""
    import torch

    from xdeconv.catalog._open import open_source

    def work() -> None:
        open_source(str(path), COLUMNS, memory=False).sum(lambda batch: torch.zeros(()))

    return work


def formats(folder: Path, rows: int, rounds: int) -> str:
    """A table of rows a second by format."""
    from benchmarks.common import results

    path = parquet(folder, rows)
    columns = needed(path)
    cases = {
        "Parquet, ZSTD, one file": (path, plain_parquet),
        f"Parquet, {SMALL_FILES} files": (directory(path), plain_parquet),
        "HATS": (hats(path), plain_parquet),
        "Arrow IPC": (other(path, ".arrow"), plain_arrow),
        "FITS": (other(path, ".fits"), plain_fits),
        "CSV": (other(path, ".csv"), plain_csv),
        "HDF5": (other(path, ".hdf5"), plain_hdf5),
        ".npy": (other(path, ".npy"), plain_npy),
    }
    lines = []
    for name, (file, plain) in cases.items():
        found = in_turn({"ours": assembled(file), "plain": lambda f=file, p=plain: p(f, columns)}, rounds)
        (wall, used), (other_wall, other_used) = found["ours"], found["plain"]
        lines.append([name, f"{rows / used / 1e6:.2f}", f"{used / other_used:.2f}", f"{rows / wall / 1e6:.2f}",
                      f"{wall / other_wall:.2f}"])  # fmt: skip
        print(lines[-1], flush=True)
    head = ["format", "M rows per core-second", "over plain, core-seconds", "M rows per second", "over plain, seconds"]
    return results.table(head, lines)


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


TABLES = {"formats": formats, "commands": commands, "readings": readings}


def main() -> None:
    from benchmarks.common import machine, results

    logging.getLogger("xdeconv").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=list(TABLES))
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")) / "xdeconv-files")
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    body = [f"`python -m benchmarks.files --rows {chosen.rows}` on {results.describe(machine.about())}"]
    for name, made in TABLES.items():
        if chosen.only in (None, name):
            body.append(made(chosen.folder, chosen.rows, chosen.rounds))
            print(body[-1], flush=True)
    if chosen.only is None:
        results.write_section("Files", "\n\n".join(body))
