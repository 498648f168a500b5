"""CPU kernels of two checkouts, in turns: python -m benchmarks.kernels.versions BEFORE/src AFTER/src [--rounds 9].

Each checkout runs in a process of its own, on one thread. The two take turns, and ratios are medians over rounds of CPU
seconds, so that other work on the machine slows both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

CASES = {
    "k = 16, d = 2, full noise, float64": (30_000, 16, 2, "full", "float64"),
    "k = 64, d = 7, full noise, float32": (8_000, 64, 7, "full", "float32"),
    "k = 64, d = 7, full noise, float64": (8_000, 64, 7, "full", "float64"),
    "k = 256, d = 7, full noise, float32": (3_000, 256, 7, "full", "float32"),
    "k = 64, d = 5, diagonal noise, gaps, float32": (8_000, 64, 5, "gaps", "float32"),
    "k = 64, d = 7, shared noise, float32": (20_000, 64, 7, "shared", "float32"),
}

WORKER = """
import json, sys, time
import numpy as np, torch
torch.set_num_threads(1)
try:
    from xdeconv.rows.batch import Batch
except ImportError:  # 0.1
    from xdeconv.batch import Batch
from xdeconv import kernels

def problem(n, k, d, kind, dtype):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(k, d, d + 1)) / np.sqrt(d + 1)
    V, means = A @ A.transpose(0, 2, 1) + 0.05 * np.eye(d), 2.0 * rng.normal(size=(k, d))
    S = 0.3 * rng.lognormal(size=(n, d))
    z = rng.integers(k, size=n)
    X = means[z] + np.einsum("nde,ne->nd", np.linalg.cholesky(V)[z], rng.normal(size=(n, d)))
    X = X + np.sqrt(S) * rng.normal(size=(n, d))
    if kind == "gaps":
        X[rng.random((n, d)) < 0.2] = np.nan
    noise = {"full": np.einsum("na,ab->nab", S, np.eye(d)) + 0.02, "gaps": S, "shared": S[0]}[kind]
    theta = torch.full((k,), -np.log(k), dtype=torch.float64), torch.from_numpy(means), torch.from_numpy(V)
    return theta, Batch.from_arrays(X, noise, dtype=getattr(torch, dtype))

calls = {}
for name, case in json.loads(sys.stdin.readline()).items():
    theta, batch = problem(*case)
    calls[name] = lambda theta=theta, batch=batch: kernels.accumulate(*theta, batch).packed
    calls[name + ", densities"] = lambda theta=theta, batch=batch: kernels.log_prob(*theta, batch)
print(json.dumps({name: float(call().double().sum()) for name, call in calls.items()}), flush=True)
for line in sys.stdin:
    call, began = calls[json.loads(line)], time.process_time()
    call()
    print(time.process_time() - began, flush=True)
"""


class Worker:
    """The kernels of one checkout."""

    def __init__(self, source: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(source), "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.values = self.ask(CASES)

    def ask(self, what: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(what), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    before, after = Worker(chosen.before), Worker(chosen.after)
    print(
        "| case | before, CPU ms | after, CPU ms | after / before | sums differ by |\n| --- | --- | --- | --- | --- |"
    )
    for name, value in before.values.items():
        seconds = [(before.ask(name), after.ask(name)) for _ in range(chosen.rounds)]
        old, new = (1e3 * statistics.median(times) for times in zip(*seconds, strict=True))
        ratio = statistics.median(b / a for a, b in seconds)
        off = abs(after.values[name] - value) / abs(value)
        print(f"| {name} | {old:.2f} | {new:.2f} | {ratio:.2f} | {off:.0e} |", flush=True)
    for worker in (before, after):
        worker.process.kill()


if __name__ == "__main__":
    main()
