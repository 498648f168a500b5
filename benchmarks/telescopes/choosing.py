"""How many components "auto" chooses of rows with a background, of rows that were cut, and of heavy tails."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import numpy as np
from scipy.stats import multivariate_t

import xdeconv as xd
from benchmarks.common.results import table

BOX = xd.Uniform([-8.0, -8.0], [8.0, 8.0])
TRUE = 3


def population(rng: np.random.Generator) -> xd.Mixture:
    """Three components, no two closer than three of their widths."""
    while True:
        means = rng.uniform(-5, 5, size=(TRUE, 2))
        if min(np.linalg.norm(means[i] - means[j]) for i in range(TRUE) for j in range(i)) > 3:
            break
    A = rng.uniform(-0.4, 0.4, size=(TRUE, 2, 2)) + 0.8 * np.eye(2)
    return xd.Mixture(rng.dirichlet(np.full(TRUE, 8.0)), means, A @ A.transpose(0, 2, 1))


def problem(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Rows, their errors, and what ``xd.fit`` is told."""
    rng = np.random.default_rng([seed, 41])
    truth = population(rng)
    error = rng.uniform(0.1, 0.4, size=(3000, 2))
    if name == "tails":
        which = rng.choice(TRUE, size=3000, p=truth.weights)
        shapes = [multivariate_t(np.zeros(2), V / 2, df=4, seed=rng) for V in truth.covariances]
        X = truth.means[which] + np.array([shapes[j].rvs() for j in which]) + error * rng.normal(size=error.shape)
        return X, error, {"tails": xd.StudentT()}
    if name == "background":
        truth = truth.with_(background=BOX, background_weight=0.3)
    X = truth.sample(3000, seed, error=error)
    if name in ("none", "background"):
        return X, error, {} if name == "none" else {"background": BOX}
    cuts = [xd.Cut(0, above=float(np.quantile(X[:, 0], 0.2))), xd.Cut(1, below=float(np.quantile(X[:, 1], 0.8)))]
    cuts = cuts[: 1 if name == "one cut" else 2]
    kept = (X[:, 0] > cuts[0].above) & ((X[:, 1] < cuts[1].below) if len(cuts) > 1 else True)
    return X[kept], error[kept], {"selection": cuts}


def chosen(seeds: int) -> str:
    """A table of how often which number was chosen, and what it costs over the fit with the true one."""
    rows = []
    for name in ("none", "background", "one cut", "two cuts", "tails"):
        counts: Counter[int] = Counter()
        costs, times = [], []
        for seed in range(100, 100 + seeds):
            X, error, told = problem(name, seed)
            k, cost = _timed(X, "auto", error, told)
            _, once = _timed(X, TRUE, error, told)
            counts[k] += 1
            costs.append(cost)
            times.append(cost / once)
        rows.append([name, ", ".join(f"{k}: {count}" for k, count in sorted(counts.items())),
                     f"{np.median(costs):.1f}", f"{np.median(times):.0f} x"])  # fmt: skip
    header = ["beside", f"components chosen: data sets (true: {TRUE})", "CPU s", "over a fit with the true number"]
    return f"`xd.fit(X, 'auto', ...)`, 3,000 rows (before cuts), fresh mixtures:\n\n{table(header, rows)}"


def _timed(X: np.ndarray, components: int | str, error: np.ndarray, told: dict[str, Any]) -> tuple[int, float]:
    """How many components a fit has, and its CPU seconds."""
    began = time.process_time()
    return xd.fit(X, components, error=error, **told).mixture.k, time.process_time() - began
