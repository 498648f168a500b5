"""p-values of outliers: how long they take, and how right they are.

Rows of mixtures of 64 components in five dimensions, each with a full covariance of its own as noise, whose size and
shape differ from row to row. They show all five numbers, four in five of them, or one, two or three that are made of
them by a projection of each row's own; one kind of rows shares one noise. Per line: processor time per row of
`mixture.outlier(X, noise)`, whether p-values are uniform (Kolmogorov and Smirnov; the distance that 5 % of uniform
numbers exceed is given beside), and their errors against the share of up to 400,000 draws with the same noise that are
less likely, for rows spread over decades of p.
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
DRAWS = 100_000  # at a time: four times where p is below 0.01
SPREADS = {"heavily overlapping": 0.5, "overlapping": 1.5, "touching": 4.0, "apart": 20.0}
DECADES = (1e-4, 1e-3, 1e-2, 1e-1)
EACH = 6  # rows of a decade that are compared


def covariances(rng: np.random.Generator, n: int, d: int = D) -> np.ndarray:
    """Random covariances (n, d, d) of mean 1."""
    A = rng.normal(size=(n, d, d + 2))
    return A @ A.transpose(0, 2, 1) / (d + 2)


def mixture(spread: float) -> xd.Mixture:
    """Components whose means scatter by so many widths."""
    rng = np.random.default_rng(0)
    return xd.Mixture(rng.dirichlet(np.full(K, 2.0)), spread * rng.normal(size=(K, D)), covariances(rng, K))


SHOWN = ("all five", "four in five", "all, one noise", "1", "2", "3")


def rows(model: xd.Mixture, shown: str, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Rows of a mixture, their noise and projections."""
    rng = np.random.default_rng(1)
    p = int(shown) if shown.isdigit() else D
    R = rng.normal(size=(n, p, D)) if p < D else None
    many = 1 if shown == "all, one noise" else n
    noise = 0.3 * rng.lognormal(0.0, 0.7, size=(many, 1, 1)) * covariances(rng, many, p)
    X = model.sample(n, seed=2, noise=noise, projection=R)
    if shown == "four in five":
        X[rng.random(X.shape) < 0.2] = np.nan
    return X, noise, R


def seen(model: xd.Mixture, x: np.ndarray, S: np.ndarray, R: np.ndarray | None) -> tuple[xd.Mixture, np.ndarray]:
    """The mixture of what a row shows, noise included, and what it shows."""
    there = ~np.isnan(x)
    view = np.eye(D)[there] if R is None else R[there]
    V = view @ model.covariances @ view.T + S[there][:, there]
    return xd.Mixture(model.weights, model.means @ view.T, V), x[there]


def reference(model: xd.Mixture, x: np.ndarray, p: float) -> float:
    """The share of draws that are less likely than x, which is about p."""
    level, parts = model.log_prob(x[None])[0], 4 if p < 0.01 else 1
    return float(np.mean([model.log_prob(model.sample(DRAWS, seed=s)) <= level for s in range(parts)]))


def errors(
    model: xd.Mixture, X: np.ndarray, noise: np.ndarray, R: np.ndarray | None, p: np.ndarray, each: int = EACH
) -> np.ndarray:
    """Relative errors of p-values, of some rows of each decade; NaN where there are none."""
    away = np.full((len(DECADES), each), np.nan)
    for i, low in enumerate(DECADES):
        for e, row in enumerate(np.flatnonzero((p >= low) & (p < 10 * low))[:each]):
            S = noise[row % len(noise)]
            away[i, e] = p[row] / reference(*seen(model, X[row], S, None if R is None else R[row]), p[row]) - 1
    return away


def measure(name: str, shown: str, n: int, each: int = EACH) -> list[str]:
    """One line of the table."""
    model = mixture(SPREADS[name])
    X, noise, R = rows(model, shown, n)
    model.outlier(X[:50], noise[:50], R if R is None else R[:50])  # compiles
    began = time.process_time()
    p = model.outlier(X, noise, R)
    spent = (time.process_time() - began) / n
    away = errors(model, X, noise, R, p, each)
    rms = [f"{100 * np.sqrt(np.nanmean(line**2)):.1f}" if np.isfinite(line).any() else "-" for line in away]
    distance = f"{kstest(p, 'uniform').statistic:.5f} ({kstwo.isf(0.05, n):.5f})"
    return [name, shown, f"{n:,}", f"{1e3 * spent:.4f}", distance, f"{1e4 * np.mean(p < 1e-4):.2f}", *rms]


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outliers", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the first mixture; the others have a tenth")
    parser.add_argument("--shown", nargs="*", default=SHOWN, choices=SHOWN, help="what rows show")
    parser.add_argument("--write", action="store_true", help="write the table to RESULTS.md")
    told = parser.parse_args()
    head = ["components", "numbers shown", "rows", "CPU ms per row", "KS distance (5 %)", "P(p < 1e-4) [1e-4]",
            *(f"error at {low:g} to {10 * low:g} [%]" for low in DECADES)]  # fmt: skip
    lines = []
    for name in SPREADS:
        for shown in told.shown:
            lines.append(measure(name, shown, told.rows if name == next(iter(SPREADS)) else told.rows // 10))
            print(" | ".join(lines[-1]), flush=True)
    if told.write:
        body = (f"`python -m benchmarks.outliers`, k = {K}, d = {D}, full noise of each row's own; errors are root "
                f"mean square over {EACH} rows, and include those of {4 * DRAWS:,} draws each ({DRAWS:,} from 0.01 on; "
                f"about 10 % at 1e-4, 3 % at 1e-3). {describe(about())}\n\n{table(head, lines)}\n")  # fmt: skip
        write_section("Outliers", body)
