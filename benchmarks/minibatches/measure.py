"""How far plain calls by minibatch EM and by SGD end below the plain call by batch EM, on rows that no fit saw.

All are fits with moves and the same seed: ``xd.fit(X, k, noise=S, method=...)``, ``XDGMM(k, method=...)``, and
``xd.fit`` of the same rows in a Parquet file that is read again in every pass.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import xdeconv as xd
from benchmarks.common import results as report
from benchmarks.common.machine import about
from xdeconv.simulate import LABELS

METHODS = ("minibatch-em", "sgd")
CALLERS = ("xd.fit", "XDGMM", "Parquet")
WITHIN = 0.003  # nat per row
UNSEEN = 100_000


@dataclass(frozen=True)
class Problem:
    """Rows with noise, how many components, the same rows in a file, and rows that are only scored."""

    title: str
    k: int
    X: np.ndarray
    noise: np.ndarray
    path: Path
    columns: tuple[str, ...]
    unseen: Any


def sky(folder: Path, n: int = 80_000) -> Problem:
    """The simulated sky in seven dimensions, with correlated noise and gaps."""
    made = xd.simulate.gaia(n + UNSEEN)
    rows, path = made.batch.to(dtype=torch.float64), folder / "sky.parquet"
    pq.write_table(made.to_table().slice(0, n), path)
    train, unseen = rows.rows(slice(0, n)), rows.rows(slice(n, None))
    return Problem(f"simulated sky, {n:,} rows, k = 16", 16, *arrays(train), path, LABELS, unseen)


def small(folder: Path, n: int = 30_000) -> Problem:
    """Eight components in three dimensions that overlap, with noise of variance 0.5."""
    rng = np.random.default_rng(3)
    A = rng.normal(size=(8, 3, 3))
    V = 0.5 * A @ A.transpose(0, 2, 1) + 0.2 * np.eye(3)
    truth = xd.Mixture(rng.dirichlet(np.full(8, 4.0)), 3 * rng.normal(size=(8, 3)), V)
    noise = np.full((n + UNSEEN, 3), 0.5)
    X = truth.sample(n + UNSEEN, seed=1, noise=noise)
    path, names = folder / "small.parquet", ("x", "y", "z")
    columns = dict(zip(names, X[:n].T, strict=True))
    pq.write_table(pa.table(columns | {f"{name}_error": np.sqrt(noise[:n, 0]) for name in names}), path)
    unseen = xd.Batch.from_arrays(X[n:], noise[n:])
    return Problem(f"{n:,} rows, k = 8, d = 3, noise 0.5", 8, X[:n], noise[:n], path, names, unseen)


PROBLEMS: dict[str, Callable[[Path], Problem]] = {"sky": sky, "small": small}


def arrays(rows: xd.Batch) -> tuple[np.ndarray, np.ndarray]:
    """Values (n, d) and covariances of noise (n, d, d)."""
    d = rows.d
    lower = np.tril_indices(d)
    noise = np.zeros((rows.n, d, d))
    noise[:, lower[0], lower[1]] = noise[:, lower[1], lower[0]] = rows.noise.numpy().T
    return rows.x.numpy().T, noise


def mixture(problem: Problem, caller: str, method: str, seed: int) -> xd.Mixture:
    """What a plain call gives."""
    if caller == "XDGMM":
        return xd.XDGMM(problem.k, method=method, random_state=seed).fit(problem.X, noise=problem.noise).mixture_
    if caller == "Parquet":
        source = xd.open(problem.path, problem.columns, memory=False)
        return xd.fit(source, problem.k, method=method, seed=seed).mixture
    return xd.fit(problem.X, problem.k, noise=problem.noise, method=method, seed=seed).mixture


def timed(problem: Problem, caller: str, method: str, seed: int) -> tuple[float, float]:
    """The score of a plain call on rows that it has not seen, and its CPU seconds."""
    began = time.process_time()
    found = mixture(problem, caller, method, seed)
    return found.score(problem.unseen), time.process_time() - began


def lines_of(problem: Problem, callers: list[str], seeds: list[int]) -> list[list[str]]:
    """One line of the table for each caller and method."""
    lines = []
    for caller in callers:
        batch = [timed(problem, caller, "em", seed) for seed in seeds]
        for method in METHODS:
            found = [timed(problem, caller, method, seed) for seed in seeds]
            above = [ours[0] - theirs[0] for ours, theirs in zip(found, batch, strict=True)]
            seconds = [f"{np.median([one[1] for one in some]):.1f}" for some in (found, batch)]
            scores, within = " ".join(f"{value:+.4f}" for value in above), "yes" if min(above) > -WITHIN else "no"
            lines.append([problem.title, caller, method, scores, within, *seconds])
            print(*lines[-1], sep="  ", flush=True)
    return lines


def main() -> None:
    """Measure, print the table, and write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.minibatches", description=__doc__)
    parser.add_argument("--problems", nargs="*", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--callers", nargs="*", choices=CALLERS, default=list(CALLERS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--write", action="store_true", help="write the table to RESULTS.md")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        lines = [line for name in chosen.problems
                 for line in lines_of(PROBLEMS[name](Path(folder)), chosen.callers, chosen.seeds)]  # fmt: skip
    head = ["problem", "call", "method", "minus batch EM", f"within {WITHIN}", "CPU seconds", "of batch EM"]
    text = report.table(head, lines)
    print(text)
    if chosen.write:
        seeds = " ".join(map(str, chosen.seeds))
        told = f"`python -m benchmarks.minibatches`, seeds {seeds}. {report.describe(about())}"
        report.write_section(
            "Minibatch EM and SGD", f"{told} Nats per row of {UNSEEN:,} held out; medians of CPU seconds.\n\n{text}"
        )


if __name__ == "__main__":
    main()
