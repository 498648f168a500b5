"""p-values of outliers: how long they take, and how right they are.

Rows of mixtures of 64 components in five dimensions, each with a full covariance of its own as noise, whose size and
shape differ from row to row. Per mixture: processor time per row of `mixture.outlier(X, noise)`, whether p-values are
uniform (Kolmogorov and Smirnov; the largest distance that 0.1 % of uniform numbers exceed is given beside), and their
errors against the share of 400,000 draws with the same noise that are less likely, for rows spread over decades of p.
Rows that see one, two or three numbers of the same mixtures, each by a projection of its own, have their own table.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from scipy.stats import kstest, kstwo

import xdeconv as xd
from benchmarks.common.machine import about
from benchmarks.common.results import describe, table, write_section

K, D = 64, 5
DRAWS, PARTS = 100_000, 4
SPREADS = {"heavily overlapping": 0.5, "overlapping": 1.5, "touching": 4.0, "apart": 20.0}
DECADES = (1e-4, 1e-3, 1e-2, 1e-1)
EACH = 10  # rows of a decade that are compared


def covariances(rng: np.random.Generator, n: int, d: int = D) -> np.ndarray:
    """Random covariances (n, d, d) of mean 1."""
    A = rng.normal(size=(n, d, d + 2))
    return A @ A.transpose(0, 2, 1) / (d + 2)


def mixture(spread: float) -> xd.Mixture:
    """Components whose means scatter by so many widths."""
    rng = np.random.default_rng(0)
    return xd.Mixture(rng.dirichlet(np.full(K, 2.0)), spread * rng.normal(size=(K, D)), covariances(rng, K))


def reference(model: xd.Mixture, x: np.ndarray, S: np.ndarray) -> float:
    """The share of draws with noise S that are less likely than x."""
    noisy = xd.Mixture(model.weights, model.means, model.covariances + S)
    level = noisy.log_prob(x[None])[0]
    return float(np.mean([noisy.log_prob(noisy.sample(DRAWS, seed=s)) <= level for s in range(PARTS)]))


def errors(model: xd.Mixture, X: np.ndarray, noise: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Relative errors of p-values, of some rows of each decade; NaN where there are none."""
    found = np.full((len(DECADES), EACH), np.nan)
    for i, low in enumerate(DECADES):
        for e, row in enumerate(np.flatnonzero((p >= low) & (p < 10 * low))[:EACH]):
            found[i, e] = p[row] / reference(model, X[row], noise[row]) - 1
    return found


def measure(name: str, n: int) -> list[str]:
    """One line of the table."""
    model, rng = mixture(SPREADS[name]), np.random.default_rng(1)
    noise = 0.3 * rng.lognormal(0.0, 0.7, size=(n, 1, 1)) * covariances(rng, n)
    X = model.sample(n, seed=2, noise=noise)
    model.outlier(X[:3000], noise[:3000])  # compiles
    began = time.process_time()
    p = model.outlier(X, noise)
    spent = (time.process_time() - began) / n
    away = errors(model, X, noise, p)
    rms = [f"{100 * np.sqrt(np.nanmean(line**2)):.1f}" if np.isfinite(line).any() else "-" for line in away]
    distance = f"{kstest(p, 'uniform').statistic:.5f} ({kstwo.isf(1e-3, n):.5f})"
    return [name, f"{n:,}", f"{1e3 * spent:.3f}", distance, f"{1e4 * np.mean(p < 1e-4):.2f}", *rms]


def projected(name: str, p: int, n: int) -> list[str]:
    """One line of the table of projections."""
    model, rng = mixture(SPREADS[name]), np.random.default_rng(1)
    R, noise = rng.normal(size=(n, p, D)), 0.3 * rng.lognormal(0.0, 0.7, size=(n, 1, 1)) * covariances(rng, n, p)
    X = model.sample(n, seed=2, noise=noise, projection=R)
    model.outlier(X[:10], noise[:10], R[:10])  # compiles
    began = time.process_time()
    values = model.outlier(X, noise, R)
    spent = (time.process_time() - began) / n
    distance = f"{kstest(values, 'uniform').statistic:.4f} ({kstwo.isf(1e-3, n):.4f})"
    return [name, str(p), f"{n:,}", f"{1e3 * spent:.3f}", distance]


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outliers", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the first mixture; the others have a tenth")
    parser.add_argument("--projected", type=int, default=2000, help="rows of each line of projections")
    parser.add_argument("--write", action="store_true", help="write the table to RESULTS.md")
    told = parser.parse_args()
    head = ["components", "rows", "CPU ms per row", "KS distance (0.1 %)", "P(p < 1e-4) [1e-4]",
            *(f"error at {low:g} to {10 * low:g} [%]" for low in DECADES)]  # fmt: skip
    lines = []
    for name in SPREADS:
        lines.append(measure(name, told.rows if not lines else told.rows // 10))
        print(" | ".join(lines[-1]), flush=True)
    views = [projected(name, p, told.projected) for name in SPREADS for p in (1, 2, 3)]
    text = table(head, lines) + "\n\n" + table(["components", "numbers seen", "rows", *head[2:4]], views)
    print(text)
    if told.write:
        body = (f"`python -m benchmarks.outliers`, k = {K}, d = {D}, full noise of each row's own; errors are root "
                f"mean square over {EACH} rows, and include those of {DRAWS * PARTS:,} draws each (about 10 "
                f"% at 1e-4, 3 % at 1e-3). {describe(about())}\n\n{text}\n")  # fmt: skip
        write_section("Outliers", body)
