"""Streaming: time of an epoch by where the rows are, and memory of a fit by how many there are.

    python -m benchmarks.streaming epochs --rows 2000000     in memory, a prepared store, ZSTD Parquet, interleaved
    python -m benchmarks.streaming memory --rows 5000000     peak anonymous memory of a streamed batch-EM fit

Files are simulated once into --folder. Results are added to --output as JSON lines, and RESULTS.md shows them all.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import threading
import time
from pathlib import Path

COLUMNS = ["ra", "dec", "parallax", "pmra", "pmdec", "bp_rp", "phot_g_mean_mag"]


def rows_file(folder: Path, rows: int) -> Path:
    """Simulated rows as ZSTD Parquet: the first ones of a larger file where there is one."""
    import pyarrow.parquet as pq

    from xdeconv.catalog.writers import write_blocks
    from xdeconv.simulate._gaia import gaia_chunks

    path = folder / f"gaia-{rows}.parquet"
    if path.exists():
        return path
    larger = [p for p in folder.glob("gaia-*.parquet") if int(p.stem.split("-")[1]) > rows]
    if larger:
        write_blocks(path, first_rows(pq.ParquetFile(larger[0]), rows))
    else:
        write_blocks(path, (b for part in gaia_chunks(rows, 1) for b in part.to_table().to_batches()))
    return path


def first_rows(file, rows: int):
    for batch in file.iter_batches(1 << 16):
        yield batch.slice(0, min(rows, batch.num_rows))
        rows -= batch.num_rows
        if rows <= 0:
            return


def store_of(path: Path) -> Path:
    from xdeconv.catalog.store import prepare

    return prepare(path, path.with_suffix(".store"))


def made_apart(folder: Path, rows: int, bare: bool) -> Path:
    """The file or store, made by another process: what that takes must not count here."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        path = pool.apply(rows_file, (folder, rows))
        return path if bare else pool.apply(store_of, (path,))


def one_pass(source, parameters) -> tuple[float, float]:
    """Seconds, and seconds of all cores, of one epoch of batch EM: every row read, standardised and accumulated."""
    from functools import partial

    import torch

    from xdeconv.fitting.full_pass import stats_of, summed
    from xdeconv.kernels.options import DEFAULT
    from xdeconv.kernels.stats import Stats

    began, used = time.perf_counter(), time.process_time()
    work = partial(stats_of, parameters=parameters, options=DEFAULT)
    summed(source, work, Stats.size(*parameters[1].shape), torch.device("cpu"))
    return time.perf_counter() - began, time.process_time() - used


def epochs(folder: Path, rows: int, components: int, rounds: int, bare: bool) -> dict:
    """Median seconds of an epoch from each place, in turn."""
    import torch

    from xdeconv.catalog._open import open as open_catalog
    from xdeconv.fitting.initial import Start, latent_rows, moments, start_mixture

    path = rows_file(folder, rows)
    places = {"memory": path, "store": store_of(path), "parquet": path}
    sources = {name: open_catalog(p, COLUMNS, memory=False) for name, p in places.items()}
    shift, scale = moments(*latent_rows(sources["store"].sample(1 << 17, 0), None))
    where = (shift, scale, torch.device("cpu"), torch.float64)
    held = sources["parquet"].load()
    prepared = {name: s.standardized(*where) for name, s in sources.items()} | {"memory": held.standardized(*where)}
    del held
    mixture = start_mixture(prepared["memory"], components, Start("kmeans++"), 0, scale)
    parameters = mixture.tensors()
    for source in prepared.values():  # compile, check rows, warm the page cache
        one_pass(source, parameters)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in prepared}
    for _ in range(rounds):
        for name, source in prepared.items():
            found[name].append(one_pass(source, parameters))
    wall, cores = ({name: ratios(found, name, which) for name in found} for which in (0, 1))
    seconds = {name: statistics.median(t[0] for t in times) for name, times in found.items()}
    return {
        "kind": "epochs", "rows": rows, "components": components, "seconds": seconds, "ratio": wall,
        "ratio_of_core_seconds": cores, "all": found,
    }  # fmt: skip


def ratios(found: dict[str, list[tuple[float, float]]], name: str, which: int) -> float:
    """The median over rounds of the time from one place over the time from memory."""
    pairs = zip(found[name], found["memory"], strict=True)
    return round(statistics.median(a[which] / b[which] for a, b in pairs), 3)


class Peak(threading.Thread):
    """The most anonymous memory of this process, looked at every few milliseconds."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.bytes = 0

    def run(self) -> None:
        while True:
            self.bytes = max(self.bytes, anonymous())
            time.sleep(0.005)


def anonymous() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not tell RssAnon")


def memory(folder: Path, rows: int, components: int, rounds: int, bare: bool) -> dict:
    """Peak RssAnon of a streamed batch-EM fit, from opening the file to the saved result."""
    path = made_apart(folder, rows, bare)
    import xdeconv as xd
    from xdeconv.catalog._open import open as open_catalog

    peak = Peak()
    peak.start()
    began = time.perf_counter()
    source = open_catalog(path, COLUMNS, memory=False)
    held_out = min(0.1, 1e5 / rows)
    result = xd.fit(
        source,
        components,
        method=xd.EM(accelerate=False),
        moves="none",
        epochs=rounds,
        start="kmeans++",
        tol=0,
        validation=held_out,
        device="cpu",
    )
    return {
        "kind": "memory", "rows": rows, "components": components, "epochs": rounds, "from": path.suffix,
        "peak_MiB": round(peak.bytes / 2**20, 1), "seconds": round(time.perf_counter() - began, 1),
        "loglik": result.loglik, "validation": result.validation,
    }  # fmt: skip


def write(lines: list[dict]) -> None:
    """The section of RESULTS.md."""
    from benchmarks.common import machine, results

    body = [f"`python -m benchmarks.streaming` on {results.describe(machine.about())}"]
    timed = [line for line in lines if line["kind"] == "epochs"]
    if timed:
        rows = [[f"{t['rows']:,}", str(t["components"]), f"{t['seconds']['memory']:.2f} s",
                 *(f"{t['ratio'][name]:.3f}" for name in ("store", "parquet"))] for t in timed]  # fmt: skip
        body.append("An epoch of batch EM, float64; times over the one from memory (targets: 1.10 and 1.30):")
        body.append(results.table(["rows", "k", "in memory", "from a store", "from ZSTD Parquet"], rows))
    fits = [line for line in lines if line["kind"] == "memory"]
    if fits:
        rows = [[f"{f['rows']:,}", str(f["components"]), f["from"].lstrip("."), f"{f['peak_MiB']:.0f} MiB",
                 f"{f['seconds']:.0f} s"] for f in fits]  # fmt: skip
        body.append("Peak anonymous memory (RssAnon) of a streamed fit by batch EM (target: 2048 MiB):")
        body.append(results.table(["rows", "k", "from", "peak", "whole run"], rows))
    results.write_section("Streaming", "\n\n".join(body))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["epochs", "memory"])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--components", "-k", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3, help="epochs to time, or to fit")
    parser.add_argument("--parquet", action="store_true", help="memory: read the Parquet file, not a store of it")
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")) / "xdeconv-streaming")
    parser.add_argument("--output", type=Path, default=Path("streaming.jsonl"))
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    run = {"epochs": epochs, "memory": memory}[chosen.kind]
    found = run(chosen.folder, chosen.rows, chosen.components, chosen.rounds, chosen.parquet)
    with open(chosen.output, "a") as file:
        file.write(json.dumps(found) + "\n")
    write([json.loads(line) for line in chosen.output.read_text().splitlines()])
    for name, value in found.items():
        print(f"| {name} | {value} |")
