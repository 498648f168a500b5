"""kill -9 at random moments of everything that takes long; the same call again must end with the same bits."""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

HEADER = ["what", "killed", "of them before anything was saved", "ended with the bits of an uninterrupted run"]
PREPARE = """
import sys
import numpy as np, torch
import xdeconv as xd
torch.set_num_threads(1)
kind, folder = sys.argv[1:]
rng = np.random.default_rng(0)
X, S = rng.normal(size=(3000, 3)), rng.uniform(0.1, 1.0, size=(3000, 3))
from pathlib import Path
folder = Path(folder)
columns = {name: X[:, i] for i, name in enumerate("abc")}
columns |= {f"{name}_error": S[:, i] ** 0.5 for i, name in enumerate("abc")}
print("ready", flush=True)
"""
PROGRAMS = {
    "fit": """
ways = {"em": None, "minibatch": xd.EM(step=xd.Decaying(0.3)), "sgd": xd.SGD()}
checkpoint = xd.Checkpoint(folder / "saved", every=0.0, resume=True)
xd.fit(X, 6, noise=S, epochs=40, tol=0, method=ways[kind.split()[1]], batch_rows=None if kind == "fit em" else 100,
       validation=0.2, checkpoint=checkpoint, restarts=2).mixture.save(folder / "result")
""",
    "select": """
found = xd.select(X[:600], [1, 2, 3, 4], noise=S[:600], criterion="held-out", results=folder / "saved", epochs=15)
found.result.mixture.save(folder / "result")
""",
    "bootstrap": """
from xdeconv.catalog.writers import write_blocks
mixture = xd.Mixture([0.5, 0.5], [[0.0] * 3, [1.0] * 3], [np.eye(3)] * 2)
found = xd.bootstrap(X[:600], mixture, 12, noise=S[:600], epochs=10)
found.mixtures[-1].save(folder / "result")
""",
    "prepare": """
import pyarrow as pa, pyarrow.parquet as pq
from xdeconv.catalog.store import prepare
source = folder.parent / "rows.parquet"
store = prepare(source, folder / "saved", shard_rows=500, run_bytes=30_000)
xd.fit(xd.open(store, ["a", "b", "c"]), 2, epochs=1, moves="none").mixture.save(folder / "result")
""",
}
KINDS = ("fit em", "fit minibatch", "fit sgd", "select", "bootstrap", "prepare")


def run(kind: str, folder: Path, wait: float | None) -> float | None:
    """Run a program, and kill it after some seconds; the seconds that it took, or None when it was killed."""
    command = [sys.executable, "-c", PREPARE + PROGRAMS[kind.split()[0]], kind, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        try:
            assert process.wait(timeout=wait) == 0, kind
            return time.monotonic() - began
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return None


def part(folder: Path, arguments: argparse.Namespace) -> tuple[list[list[str]], list[str]]:
    """Kill, run again, compare; as often as asked, the kinds in turn."""
    rng = random.Random(arguments.seed)
    write_rows(folder / "rows.parquet")
    lengths, kinds = {}, [kind for kind in KINDS if not arguments.kinds or kind.split()[0] in arguments.kinds]
    for kind in kinds:
        place = folder / f"{kind} whole"
        place.mkdir()
        lengths[kind] = run(kind, place, None) or 0.0
    killed, fresh, same = Counter[str](), Counter[str](), Counter[str]()
    for kind in itertools.islice(itertools.cycle(kinds), arguments.times):
        place = folder / "killed"
        place.mkdir()
        while run(kind, place, rng.uniform(0.0, 0.9 * lengths[kind])) is not None:  # it was faster this time
            shutil.rmtree(place)
            place.mkdir()
        killed[kind] += 1
        fresh[kind] += not (place / "saved").exists()
        run(kind, place, None)
        same[kind] += equal(folder / f"{kind} whole" / "result", place / "result")
        shutil.rmtree(place)
    return [[kind, str(killed[kind]), str(fresh[kind]), str(same[kind])] for kind in kinds], []


def write_rows(path: Path) -> None:
    """The catalogue that is prepared."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    names = [name for one in "abc" for name in (one, f"{one}_error")]
    pq.write_table(pa.table({name: rng.uniform(0.1, 1.0, size=20_000) for name in names}), path, row_group_size=1000)


def equal(one: Path, other: Path) -> bool:
    """Whether two models have the same bits."""
    import numpy as np

    import xdeconv as xd

    models = xd.load(one), xd.load(other)
    names = ("weights", "means", "covariances")
    return all(np.array_equal(getattr(models[0], name), getattr(models[1], name)) for name in names)
