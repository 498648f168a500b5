"""Three components in two dimensions, truth known: what a fit that says converged leaves, and in how many passes.

dL is the training log-likelihood of the plain call minus the truth's; left is what the same mixture gains when it is
fitted on with tol = 1e-7, that is, to the end.
"""

from __future__ import annotations

import argparse

import numpy as np

import xdeconv as xd
from benchmarks.common import results as report
from benchmarks.common.machine import about
from xdeconv.rows.batch import Batch

KINDS = {"noise 1": 1.0, "noise 3": 3.0, "noise 5": 5.0, "a third missing": 1.0, "projected": 1.0}
TRUTH = xd.Mixture([0.5, 0.3, 0.2], [[0, 0], [4, 1], [-1, 5]],
                   [np.eye(2), [[1, 0.5], [0.5, 1]], [[0.5, -0.2], [-0.2, 1.5]]])  # fmt: skip


def rows(kind: str, n: int, seed: int) -> Batch:
    """Rows of the truth, with noise over width as the kind says."""
    rng = np.random.default_rng([seed, n])
    noise = KINDS[kind] ** 2 * rng.uniform(0.7, 1.3, size=(n, 2))
    if kind == "projected":
        R = rng.normal(size=(n, 1, 2))
        R /= np.linalg.norm(R, axis=2, keepdims=True)
        return Batch.from_arrays(TRUTH.sample(n, seed=seed, noise=noise[:, :1], projection=R), noise[:, :1], R)
    X = TRUTH.sample(n, seed=seed, noise=noise)
    if kind == "a third missing":
        X[rng.random(X.shape) < 1 / 3] = np.nan
    return Batch.from_arrays(X, noise)


def measure(kind: str, n: int, seed: int) -> list[str]:
    """One line of the table."""
    batch = rows(kind, n, seed)
    found = xd.fit(batch, 3, seed=seed)
    end = xd.fit(batch, mixture=found.mixture, tol=1e-7, epochs=5000)
    return [kind, f"{n:,}", str(seed), f"{n * (found.loglik - TRUTH.score(batch)):+.2f}", str(found.converged),
            str(len(found.history)), f"{n * (end.loglik - found.loglik):.3f}"]  # fmt: skip


def main() -> None:
    """Measure, print the table, and write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convergence", description=__doc__)
    parser.add_argument("--rows", nargs="*", type=int, default=[1000, 10_000, 100_000])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="write the table to RESULTS.md")
    chosen = parser.parse_args()
    lines = [measure(kind, n, seed) for n in chosen.rows for kind in KINDS for seed in range(chosen.seeds)]
    text = report.table(["kind", "rows", "seed", "dL", "converged", "passes", "left"], lines)
    print(text)
    if chosen.write:
        report.write_section("Convergence", f"`python -m benchmarks.convergence`. {report.describe(about())}\n\n{text}")
