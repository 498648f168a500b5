"""Stress: what takes minutes and must hold all the same. Each command writes its section of RESULTS.md.

python -m benchmarks.stress kills --times 50        kill -9 at random moments of a fit, resume, compare bits
python -m benchmarks.stress fuzz --inputs 20000     damaged models, checkpoints, manifests, shards and tables
python -m benchmarks.stress components              1,500 and 2,000 components, with moves
python -m benchmarks.stress soak --minutes 30       streamed minibatch EM: memory, descriptors and rate stay flat
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.machine import about
from benchmarks.common.results import describe, table, write_section

FIT = """
import sys, numpy as np, torch
import xdeconv as xd
torch.set_num_threads(1)
rng = np.random.default_rng(0)
X, S = rng.normal(size=(3000, 3)), rng.uniform(0.1, 1.0, size=(3000, 3))
kind, path = sys.argv[1:]
method = {"em": None, "minibatch": xd.EM(step=xd.Decaying(0.3)), "sgd": xd.SGD()}[kind]
print("ready", flush=True)
xd.fit(X, 6, noise=S, epochs=40, tol=0, method=method, batch_rows=None if kind == "em" else 100, validation=0.2,
       checkpoint=xd.Checkpoint(path, 0, resume=True), restarts=2).mixture.save(path + ".model")
"""


def fit_in_process(kind: str, path: Path, wait: float | None) -> float | None:
    """Run a fit, and kill it after some seconds; the seconds it took, or None when it was killed."""
    command = [sys.executable, "-c", FIT, kind, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        try:
            assert process.wait(timeout=wait) == 0
            return time.monotonic() - began
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return None


def kills(folder: Path, arguments: argparse.Namespace) -> list[list[str]]:
    """Kill a fit at a random moment and resume it to its end, again and again: the uninterrupted fit's bits."""
    rng = random.Random(arguments.seed)
    kinds = ("em", "minibatch", "sgd")
    resumed, fresh = Counter[str](), Counter[str]()
    lengths = {kind: fit_in_process(kind, folder / f"{kind}-whole", None) or 0.0 for kind in kinds}
    for kind in itertools.islice(itertools.cycle(kinds), arguments.times):
        path = folder / f"{kind}-killed"
        while fit_in_process(kind, path, rng.uniform(0.0, 0.9 * lengths[kind])) is not None:  # it was faster
            path.unlink()
        fresh[kind] += not path.exists()
        fit_in_process(kind, path, None)
        resumed[kind] += same(folder, kind)
        (folder / f"{kind}-killed.model").unlink()
        path.unlink()
    return [[kind, f"{resumed[kind]}, {fresh[kind]} of them before the first checkpoint", str(resumed[kind])]
            for kind in kinds]  # fmt: skip


def same(folder: Path, kind: str) -> int:
    """1 when the resumed model has the bits of the uninterrupted one; an error otherwise."""
    import xdeconv as xd

    one, other = (xd.load(folder / f"{kind}-{name}.model") for name in ("whole", "killed"))
    for name in ("weights", "means", "covariances"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    return 1


def fuzz(folder: Path, arguments: argparse.Namespace) -> list[list[str]]:
    """Damaged files of every kind, each loaded in this process: an error or a sound table, never anything else."""
    rng = random.Random(arguments.seed)
    originals = make_originals(folder)
    each = -(-arguments.inputs // len(originals))
    rows = []
    for name, (path, load, must_fail) in originals.items():
        content, seen = path.read_bytes(), Counter[str]()
        for _ in range(each):
            damaged = damage(content, rng)
            path.write_bytes(damaged)
            try:
                load()
            except (ValueError, OSError) as problem:
                seen[type(problem).__name__] += 1
            else:
                if must_fail and damaged != content:
                    raise AssertionError(f"{name}: damage was not seen")
                seen["read"] += 1
        path.write_bytes(content)
        rows.append([name, f"{each:,}", ", ".join(f"{kind} {count:,}" for kind, count in seen.most_common())])
    return rows


def damage(content: bytes, rng: random.Random) -> bytes:
    """Cut, flip, repeat, overwrite or splice some bytes."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data)) if data else 0
        what = rng.randrange(5)
        if what == 0:
            del data[at:]
        elif what == 1 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif what == 2:
            data[at:at] = data[at : at + rng.randint(1, 64)]
        elif what == 3:
            data[at : at + 8] = rng.choice([b"\xff" * 8, b"\0" * 8, rng.randbytes(8)])
        else:
            end = at + rng.randint(1, 64)
            data[at:end] = b""
    return bytes(data)


def make_originals(folder: Path) -> dict[str, tuple[Path, Any, bool]]:
    """A sound file of each kind, how to load it, and whether any change of it must be an error."""
    import pyarrow as pa

    import xdeconv as xd
    from xdeconv.catalog.readers import open_table
    from xdeconv.catalog.store import check_store, prepare
    from xdeconv.catalog.writers import write_blocks
    from xdeconv.fitting.state import load_state

    rng = np.random.default_rng(0)
    block = pa.RecordBatch.from_pydict({"id": np.arange(64), "x": rng.normal(size=64), "x_error": np.full(64, 0.1)})
    for suffix in ("parquet", "arrow", "csv"):
        write_blocks(folder / f"rows.{suffix}", [block])
    store = prepare(folder / "rows.csv", folder / "store")
    shard = next(p for p in store.iterdir() if p.name != "manifest.json")
    X = rng.normal(size=(40, 2))
    xd.fit(X, 2, error=[0.3, 0.3], epochs=2, checkpoint=folder / "checkpoint").mixture.save(folder / "model")

    def rows(path: Path) -> None:
        found = open_table(path)
        for piece in found.pieces:
            for part in found.read(piece, found.columns, found.columns):
                part.validate(full=True)

    def opened(path: Path) -> None:
        xd.open(path, ["x"]).load()

    def checked() -> None:
        check_store(store)
        rows(store)

    return {
        "model": (folder / "model", lambda: xd.load(folder / "model"), True),
        "checkpoint": (folder / "checkpoint", lambda: load_state(folder / "checkpoint"), True),
        "manifest": (store / "manifest.json", lambda: rows(store), False),
        "shard": (shard, lambda: rows(store), False),
        "shard, checked": (shard, checked, True),
        "Parquet": (folder / "rows.parquet", lambda: opened(folder / "rows.parquet"), False),
        "Arrow": (folder / "rows.arrow", lambda: opened(folder / "rows.arrow"), False),
        "CSV": (folder / "rows.csv", lambda: opened(folder / "rows.csv"), False),
    }


def components(folder: Path, arguments: argparse.Namespace) -> list[list[str]]:
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
    return rows


def soak(folder: Path, arguments: argparse.Namespace) -> list[list[str]]:
    """Streamed minibatch EM for minutes: memory, descriptors and rate, epoch by epoch."""
    import xdeconv as xd
    from xdeconv.catalog.store import prepare
    from xdeconv.catalog.writers import write_blocks
    from xdeconv.simulate._gaia import gaia_chunks

    columns = ["ra", "dec", "parallax", "pmra", "pmdec", "bp_rp", "phot_g_mean_mag"]
    write_blocks(
        folder / "rows.parquet", (b for p in gaia_chunks(arguments.rows, 1) for b in p.to_table().to_batches())
    )
    store = prepare(folder / "rows.parquet", folder / "store")
    began, seen = time.monotonic(), []

    class Enough(Exception):
        pass

    def look(record: Any) -> None:
        seen.append((time.monotonic() - began, anonymous(), len(os.listdir("/proc/self/fd")), time.process_time()))
        if seen[-1][0] > 60 * arguments.minutes:
            raise Enough

    source = xd.open(store, columns, memory=False)
    settings = {"batch_rows": 4096, "epochs": 10**6, "tol": 0, "device": "cpu", "start": "kmeans++"}
    with contextlib.suppress(Enough):
        method = xd.EM(step=xd.Decaying(0.1))
        xd.fit(source, 16, method=method, callback=look, checkpoint=folder / "soak.checkpoint", **settings)
    return soak_rows(seen, arguments.rows)


def anonymous() -> int:
    """Bytes of memory of this process that no file backs."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not tell RssAnon")


def soak_rows(seen: list[tuple[float, int, int, float]], rows: int) -> list[list[str]]:
    """The first and the last fifth of a soak, and whether they agree; the first epoch warms up."""
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
        ["rows a second of all cores", f"{busy[0]:,.0f}", f"{busy[1]:,.0f}", shown[3]],
    ]


KINDS = {
    "kills": (kills, "Stress: kill -9 and resume", ["fit", "killed and resumed", "ended with the same bits"]),
    "fuzz": (fuzz, "Stress: damaged files", ["file", "inputs", "what came of it"]),
    "components": (components, "Stress: many components", ["k", "d", "moves", "time"]),
    "soak": (soak, "Stress: soak", ["what", "first fifth", "last fifth", "flat"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--times", type=int, default=50, help="kills: how often")
    parser.add_argument("--inputs", type=int, default=20_000, help="fuzz: how many files")
    parser.add_argument("--minutes", type=float, default=30.0, help="soak: how long")
    parser.add_argument("--rows", type=int, default=500_000, help="soak: rows of an epoch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="print, and leave RESULTS.md as it is")
    arguments = parser.parse_args()
    run, title, header = KINDS[arguments.kind]
    folder = Path(tempfile.mkdtemp(prefix="xdeconv-stress-"))
    began = time.monotonic()
    try:
        found = table(header, run(folder, arguments))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    options = {"kills": f" --times {arguments.times}", "fuzz": f" --inputs {arguments.inputs}",
               "soak": f" --minutes {arguments.minutes:g} --rows {arguments.rows}"}.get(arguments.kind, "")  # fmt: skip
    said = f"`python -m benchmarks.stress {arguments.kind}{options}` on {describe(about())}"
    body = f"{said}\n\n{time.monotonic() - began:.0f} s.\n\n{found}"
    print(body)
    if not arguments.dry:
        write_section(title, body)
