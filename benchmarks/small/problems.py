"""Twelve small problems: each draws rows of a kind, as many as are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import xdeconv as xd
from xdeconv.rows.batch import Batch

Draw = Callable[[int, np.random.Generator], Batch]


@dataclass(frozen=True)
class Problem:
    """Rows to fit, components, and how rows are drawn."""

    n: int
    k: int
    draw: Draw


def _overlapping(n: int, rng: np.random.Generator) -> Batch:
    truth = xd.Mixture([0.5, 0.3, 0.2], [[0, 0], [1.5, 0.5], [0, 2]], [np.eye(2), 0.5 * np.eye(2), np.eye(2)])
    noise = rng.uniform(0.05, 0.5, size=(n, 2))
    return Batch.from_arrays(truth.sample(n, seed=int(rng.integers(1 << 30)), noise=noise), noise)


def _contaminated(n: int, rng: np.random.Generator) -> Batch:
    """Two clusters in 30 % of uniform background, without noise."""
    which = rng.random(n)
    X = rng.uniform(-10, 10, size=(n, 2))
    X[which < 0.4] = rng.normal([-3, 0], 0.5, size=(int((which < 0.4).sum()), 2))
    second = (which >= 0.4) & (which < 0.7)
    X[second] = rng.normal([3, 2], 0.8, size=(int(second.sum()), 2))
    return Batch.from_arrays(X)


def _ring(n: int, rng: np.random.Generator) -> Batch:
    angle, radius = rng.uniform(0, 2 * np.pi, n), rng.normal(3, 0.2, n)
    X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return Batch.from_arrays(X + rng.normal(0, 0.2, X.shape), np.full(X.shape, 0.04))


def _tails(n: int, rng: np.random.Generator) -> Batch:
    X = rng.standard_t(3, size=(n, 3))
    noise = rng.uniform(0.01, 0.25, size=X.shape)
    return Batch.from_arrays(X + np.sqrt(noise) * rng.normal(size=X.shape), noise)


def _scales(n: int, rng: np.random.Generator) -> Batch:
    """Four coordinates whose units differ by a factor of a thousand, six components."""
    truth = np.random.default_rng(11)
    unit = np.array([1e-2, 0.1, 1.0, 10.0])
    means, widths = truth.normal(0, 3, size=(6, 4)), truth.uniform(0.3, 1.2, size=(6, 4))
    z = rng.integers(6, size=n)
    X = means[z] + widths[z] * rng.normal(size=(n, 4))
    noise = rng.uniform(0.01, 0.3, size=X.shape)
    return Batch.from_arrays((X + np.sqrt(noise) * rng.normal(size=X.shape)) * unit, noise * unit**2)


def _line(n: int, rng: np.random.Generator) -> Batch:
    X = np.where(rng.random(n) < 0.6, rng.normal(0, 1, n), rng.normal(3, 0.4, n))[:, None]
    noise = rng.uniform(0.05, 0.6, size=X.shape)
    return Batch.from_arrays(X + np.sqrt(noise) * rng.normal(size=X.shape), noise)


def _ten(n: int, rng: np.random.Generator) -> Batch:
    truth = np.random.default_rng(12)
    means = truth.normal(0, 1.5, size=(5, 10))
    X = means[rng.integers(5, size=n)] + rng.normal(size=(n, 10))
    noise = rng.uniform(0.05, 0.5, size=X.shape)
    return Batch.from_arrays(X + np.sqrt(noise) * rng.normal(size=X.shape), noise)


def _rounded(n: int, rng: np.random.Generator) -> Batch:
    """Smooth and without noise, written with one decimal."""
    a = rng.gamma(3.0, 0.7, n)
    X = np.stack([a, np.sin(a) + rng.normal(0, 0.6, n)], 1)
    return Batch.from_arrays(X.round(1))


def _spiral(n: int, rng: np.random.Generator) -> Batch:
    t = rng.uniform(0, 1, n)
    angle, radius = 3 * np.pi * np.sqrt(t), 1 + 5 * np.sqrt(t)
    X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1) + rng.normal(0, 0.3, (n, 2))
    noise = rng.uniform(0.02, 0.2, size=X.shape)
    return Batch.from_arrays(X + np.sqrt(noise) * rng.normal(size=X.shape), noise)


def _gaps(n: int, rng: np.random.Generator) -> Batch:
    truth = np.random.default_rng(13)
    means = truth.normal(0, 2, size=(4, 7))
    X = means[rng.integers(4, size=n)] + rng.normal(size=(n, 7))
    noise = rng.uniform(0.05, 0.5, size=X.shape)
    X = X + np.sqrt(noise) * rng.normal(size=X.shape)
    X[rng.random(X.shape) < 0.3] = np.nan
    return Batch.from_arrays(X, noise)


def _skewed(n: int, rng: np.random.Generator) -> Batch:
    return Batch.from_arrays(np.exp(rng.normal(0, 0.8, size=(n, 2))))


def _projected(n: int, rng: np.random.Generator) -> Batch:
    truth = xd.Mixture([0.4, 0.4, 0.2], [[0, 0, 0], [3, 1, 0], [0, 3, 3]], [np.eye(3), 0.4 * np.eye(3), np.eye(3)])
    R = rng.normal(size=(n, 2, 3))
    noise = rng.uniform(0.05, 0.4, size=(n, 2))
    X = truth.sample(n, seed=int(rng.integers(1 << 30)), noise=noise, projection=R)
    return Batch.from_arrays(X, noise, R)


PROBLEMS: dict[str, Problem] = {
    "overlapping": Problem(1000, 3, _overlapping),
    "contaminated": Problem(3000, 3, _contaminated),
    "ring": Problem(2000, 8, _ring),
    "tails": Problem(2000, 4, _tails),
    "scales": Problem(3000, 6, _scales),
    "line": Problem(500, 3, _line),
    "ten": Problem(5000, 5, _ten),
    "rounded": Problem(3000, 8, _rounded),
    "spiral": Problem(2400, 8, _spiral),
    "gaps": Problem(1500, 4, _gaps),
    "skewed": Problem(800, 5, _skewed),
    "projected": Problem(2000, 3, _projected),
}
