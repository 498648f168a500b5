"""Three components in two dimensions, truth known: what a converged plain call leaves, in how many passes.

dL is the training log-likelihood of the plain call minus the truth's. Behind is what it lacks of the best that SciPy's
L-BFGS-B, run to its end on the same sums in coordinates of its own, reaches from the same start and from the mixture
that was found. ``--errors`` fits more and more rows instead: errors of parameters must fall like n^-1/2, as the least
do that any estimate without bias can have (Cramér and Rao). Where those are wider than what is estimated, a bound such
as that of variances at 0 keeps errors smaller, and they fall less.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import xdeconv as xd
from benchmarks.common import results as report
from benchmarks.common.machine import about
from benchmarks.convergence.bound import least_errors
from benchmarks.convergence.yardstick import best_from
from xdeconv.rows.batch import Batch

KINDS = {"noise 1": 1.0, "noise 3": 3.0, "noise 5": 5.0, "a third missing": 1.0, "projected": 1.0}
TRUTH = xd.Mixture([0.5, 0.3, 0.2], [[0, 0], [4, 1], [-1, 5]],
                   [np.eye(2), [[1, 0.5], [0.5, 1]], [[0.5, -0.2], [-0.2, 1.5]]])  # fmt: skip
TO_THE_END: Any = {"tol": 1e-3, "epochs": 3000}
SIZES = [(kind, [10_000, 100_000, 1_000_000]) for kind in ("noise 1", "a third missing", "projected")]
SIZES += [("noise 3", [100_000, 300_000, 1_000_000]), ("noise 5", [100_000, 1_000_000, 10_000_000])]
KNOWN = 2_000_000  # rows that tell the least errors


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


def streamed(batch: Batch, seed: int) -> xd.FitResult:
    """The plain call on the same rows in a file that is read again in every pass."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert batch.noise is not None
    columns = {name: batch.x[a].numpy() for a, name in enumerate("xy")}
    columns |= {f"{name}_error": batch.noise[a].sqrt().numpy() for a, name in enumerate("xy")}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        pq.write_table(pa.table(columns), path)
        return xd.fit(xd.open(path, ["x", "y"], memory=False), 3, seed=seed)


def measure(kind: str, n: int, seed: int, stream: bool = False) -> list[str]:
    """One line of the table."""
    batch = rows(kind, n, seed)
    found = streamed(batch, seed) if stream else xd.fit(batch, 3, seed=seed)
    start = xd.fit(batch, 3, seed=seed, moves="none", epochs=1).mixture
    ours = n * found.mixture.score(batch)
    ends = [best_from(mixture, batch) for mixture in (start, found.mixture)]
    return [f"{kind}, streamed" if stream else kind, f"{n:,}", str(seed), f"{ours - n * TRUTH.score(batch):+.2f}",
            str(found.converged), str(len(found.history)), *(f"{end - ours:.3f}" for end in ends)]  # fmt: skip


def errors(kind: str, sizes: list[int], seeds: int) -> list[list[str]]:
    """How errors of parameters fall with more rows: of plain calls, of fits that begin at the truth, and at least."""
    plain, near = [], []
    for n in sizes:
        found = [_both(kind, n, seed) for seed in range(seeds)]
        plain.append(_rms(*(ours for ours, _ in found)))
        near.append(_rms(*(best for _, best in found)))
    least = _rms(least_errors(TRUTH, rows(kind, KNOWN, seeds)))
    return [_falling(kind, "plain call", sizes, plain), _falling("", "from the truth", sizes, near),
            _falling("", "least", sizes, [least / n**0.5 for n in sizes])]  # fmt: skip


def _both(kind: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors of the plain call, and of a fit that begins at the truth."""
    batch = rows(kind, n, seed)
    near = xd.fit(batch, mixture=TRUTH, moves="none", **TO_THE_END)
    return error_of(xd.fit(batch, 3, seed=seed).mixture), error_of(near.mixture)


def _rms(*errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def _falling(kind: str, of: str, sizes: list[int], rms: list[float]) -> list[str]:
    """Errors, and the power of n that they fall with."""
    power = np.polyfit(np.log(sizes), np.log(rms), 1)[0]
    return [kind, of, *(f"{value:.4f} ({n:,})" for n, value in zip(sizes, rms, strict=True)), f"{power:.2f}"]


def error_of(mixture: xd.Mixture) -> np.ndarray:
    """What is wrong with weights, means and covariances, each component beside the nearest of the truth."""
    from scipy.optimize import linear_sum_assignment

    away = np.linalg.norm(TRUTH.means[:, None] - mixture.means, axis=2)
    order = linear_sum_assignment(away)[1]
    pairs = ((TRUTH.weights, mixture.weights), (TRUTH.means, mixture.means), (TRUTH.covariances, mixture.covariances))
    return np.concatenate([(theirs[order] - true).ravel() for true, theirs in pairs])


def main() -> None:
    """Measure, print the table, and write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convergence", description=__doc__)
    parser.add_argument("--rows", nargs="*", type=int, default=[1000, 10_000, 100_000])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--errors", action="store_true", help="how errors of parameters fall from 1e4 to 1e6 rows")
    parser.add_argument("--write", action="store_true", help="write the table to RESULTS.md")
    chosen = parser.parse_args()
    if chosen.errors:
        title, head = "Errors of parameters", ["kind", "of", "rms error (rows)", "", "", "power of n"]
        lines = [line for kind, sizes in SIZES for line in errors(kind, sizes, max(chosen.seeds, 4))]
    else:
        title = "Convergence"
        head = ["kind", "rows", "seed", "dL", "converged", "passes", "behind, same start", "behind, from itself"]
        lines = [measure(kind, n, seed) for n in chosen.rows for kind in KINDS for seed in range(chosen.seeds)]
        lines += [measure("noise 1", n, 0, stream=True) for n in chosen.rows[-1:]]
    text = report.table(head, lines)
    print(text)
    if chosen.write:
        report.write_section(title, f"`python -m benchmarks.convergence`. {report.describe(about())}\n\n{text}")
