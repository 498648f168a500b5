"""What one data set can say of what is asked: scatter over many, errors as said, coverage, distance from the maximum.

A figure that one data set misses by less than its standard error says nothing of the fit. So each is measured over many
data sets: the mean of what is found and its own error, the scatter (which is the error of one data set), the error that
``xd.errors`` says, how often it holds the truth, and how far the fit is from the maximum of the likelihood that scipy
climbs to by formulas of its own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.stats import norm

import xdeconv as xd
from benchmarks.common.results import table

Rows = tuple[np.ndarray, np.ndarray]


def cuts(stars: Callable[[int], Rows], data_sets: int) -> str:
    """Of parallaxes that were cut: mean and spread of the population, and nats below what scipy finds."""
    rows = []
    kinds = {
        "x > 1.5": (lambda X, e: X[:, 0] > 1.5, xd.Cut(0, above=1.5), lambda e: np.full_like(e, 1.5)),
        "x / error > 5": (lambda X, e: X[:, 0] > 5 * e[:, 0], xd.Cut(0, above=5, over_error=True), lambda e: 5 * e),
    }
    for name, (kept, cut, edge) in kinds.items():
        found = np.array([_of_one(*stars(seed), kept, cut, edge) for seed in range(data_sets)])
        for what, truth, column in (("mean", 2.6, 0), ("spread", float(np.sqrt(1.42)), 1)):
            rows.append([name, what, *_told(found[:, column], found[:, 2 + column], truth),
                         f"{np.abs(found[:, 5 + column]).max():.4f}", f"{found[:, 4].max():.3f}"])  # fmt: skip
    header = [*HEADER[:1], "of the population", *HEADER[1:], "furthest from scipy's", "most nats below scipy's"]
    header[0] = "cut"
    return f"{data_sets} data sets of 10,000 stars before the cut:\n\n{table(header, rows)}"


def _of_one(X: np.ndarray, error: np.ndarray, kept: Callable, cut: xd.Cut, edge: Callable) -> list[float]:
    """Mean, spread and their standard errors; nats below scipy's maximum, and mean and spread less those there."""
    which = kept(X, error)
    X, error = X[which], error[which]
    mixture = xd.fit(X, 2, error=error, selection=cut).mixture
    estimate = xd.errors(X, mixture, error=error).of(_mean_and_spread)
    x, e = X[:, 0], error[:, 0]

    def loss(at: np.ndarray) -> float:
        T = np.exp(at[3:])[:, None] + e**2
        a = np.array([[1 - at[0]], [at[0]]])
        density = (a * norm.pdf(x, at[1:3, None], np.sqrt(T))).sum(0)
        chance = (a * norm.sf(edge(e), at[1:3, None], np.sqrt(T))).sum(0)
        return -float(np.log(np.maximum(density, 1e-300) / np.maximum(chance, 1e-300)).sum())

    ours = np.array([mixture.weights[1], *mixture.means[:, 0], *np.log(mixture.covariances[:, 0, 0])])
    starts = [ours, np.array([0.3, 2.0, 4.0, np.log(0.4), np.log(1.0)])]
    bounds = [(1e-3, 1 - 1e-3), (-5, 12), (-5, 12), (-12, 5), (-12, 5)]
    best = min((minimize(loss, start, bounds=bounds) for start in starts), key=lambda found: found.fun)
    b, m, V = best.x[0], best.x[1:3, None], np.exp(best.x[3:])[:, None, None]
    there = _mean_and_spread(xd.Mixture([1 - b, b], m, V))
    return [*estimate.value, *estimate.standard_error, loss(ours) - best.fun, *(estimate.value - there)]


def _mean_and_spread(mixture: xd.Mixture) -> np.ndarray:
    return np.array([mixture.mean()[0], np.sqrt(mixture.covariance()[0, 0])])


HEADER = ["", "mean of data sets, its error (truth)", "error of one", "as xd.errors says", "within 1 and 2 of them"]


def _told(found: np.ndarray, said: np.ndarray, truth: float) -> list[str]:
    """The columns of HEADER."""
    scatter, z = found.std(ddof=1), np.abs(found - truth) / said
    mean = f"{found.mean():.4f} +- {scatter / np.sqrt(len(found)):.4f} ({truth:.4g})"
    return [mean, f"{scatter:.4f}", f"{np.median(said):.4f}", f"{(z < 1).mean():.0%}, {(z < 2).mean():.0%}"]


def clusters(draw: Callable[[int], Rows], truth: xd.Mixture, data_sets: int) -> str:
    """Of clusters in a background: its weight, and the variances over the true ones."""
    found, said = [], []
    for seed in range(data_sets):
        X, noise = draw(seed)
        mixture = xd.fit(X, truth.k, noise=noise, background=truth.background).mixture
        order = np.argsort(mixture.means[:, 0])
        estimate = xd.errors(X, mixture, noise=noise).of(lambda one, order=order: _numbers(one, order, truth))
        found.append(estimate.value)
        said.append(estimate.standard_error)
    values, errors = np.array(found), np.array(said)
    names = ["weight", *(f"variance {a} of cluster {j}, over the true one" for j in (0, 1) for a in "xy")]
    rows = [[name, *_told(values[:, i], errors[:, i], 1.0 if i else truth.background_weight)]
            for i, name in enumerate(names)]  # fmt: skip
    return f"{data_sets} data sets of two clusters in a uniform background:\n\n{table(HEADER, rows)}"


def _numbers(mixture: xd.Mixture, order: np.ndarray, truth: xd.Mixture) -> np.ndarray:
    ratios = (mixture.covariances[order] / truth.covariances)[:, [0, 1], [0, 1]]
    return np.array([mixture.background_weight, *ratios.ravel()])
