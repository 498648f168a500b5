"""Whether probabilities of classes are calibrated: rare classes, and classes whose errors differ.

Each data set has a training table, to whose classes mixtures are fitted by plain calls, and rows that are asked about.
*rare*: one row of a hundred is a member; training rows have smaller errors than those asked about. *errors differ*: the
errors of the rare class are twice as large besides, in both tables, so that its error says something of a row already.
"by error" are priors for each row, by counts of training rows, or fitted to the rows asked about, in bins of the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import xdeconv as xd
from benchmarks.common.results import table as markdown

RARE, TRAINED, ROWS = 0.01, 200_000, 400_000
TRUTH = {"rare": xd.Mixture([1.0], [[3.0, 2.0]], [0.3 * np.eye(2)]),
         "common": xd.Mixture([0.7, 0.3], [[0.0, 0.0], [0.0, 1.0]], [np.eye(2), np.diag([3.0, 1.0])])}  # fmt: skip
EDGES = np.geomspace(0.1, 1.6, 21)[1:-1]  # of bins of the error
LARGER = {"rare": 1.0, "errors differ": 2.0}  # errors of the rare class, over those of the other
Table = tuple[np.ndarray, np.ndarray, np.ndarray]


def rows(rng: np.random.Generator, n: int, typical: float, larger: float) -> Table:
    """Values (n, 2) and errors (n,) of rows of both classes, and which are of the rare one."""
    rare = rng.random(n) < RARE
    error = typical * rng.lognormal(0.0, 0.5, n) * np.where(rare, larger, 1.0)
    values = np.where(rare[:, None], TRUTH["rare"].sample(n, seed=rng), TRUTH["common"].sample(n, seed=rng))
    return values + error[:, None] * rng.normal(size=(n, 2)), error, rare


def both(error: np.ndarray) -> np.ndarray:
    """Errors (n, 2) of rows whose two values have the same."""
    return np.repeat(error[:, None], 2, axis=1)


def trained(rng: np.random.Generator, larger: float) -> tuple[dict[str, xd.Mixture], dict[str, np.ndarray]]:
    """Mixtures of both classes, and how many training rows of each lie in bins of the error."""
    X, error, rare = rows(rng, TRAINED, 0.2, larger)
    mixtures, counts = {}, {}
    for name, own in (("rare", rare), ("common", ~rare)):
        mixtures[name] = xd.fit(X[own], TRUTH[name].k, error=both(error[own])).mixture
        counts[name] = np.bincount(np.searchsorted(EDGES, error[own]), minlength=len(EDGES) + 1) + 0.5
    return mixtures, counts


def probabilities(problem: str, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Which rows are rare ("truth"), and their probabilities by each way of priors."""
    rng, larger = np.random.default_rng([seed, len(problem)]), LARGER[problem]
    mixtures, counts = trained(rng, larger)
    X, error, rare = rows(rng, ROWS, 0.2 if larger > 1 else 0.4, larger)
    place = np.searchsorted(EDGES, error)
    ways: dict[str, Any] = {"training": "training", "given": {"rare": RARE, "common": 1 - RARE}, "fitted": "fitted"}
    if larger > 1:
        ways["training, by error"] = {name: counts[name][place] for name in mixtures}
        ways["fitted, by error"] = fitted_by_error(xd.Classifier(mixtures), X, error, place)
    yield "truth", rare
    for way, priors in (ways | {"equal": "equal"}).items():
        yield way, xd.Classifier(mixtures, priors).predict_proba(X, error=both(error))[:, 0]


def fitted_by_error(asked: xd.Classifier, X: np.ndarray, error: np.ndarray, place: np.ndarray) -> dict[str, np.ndarray]:
    """Priors (n,) of each class, fitted to the rows of each bin of the error by themselves."""
    priors = {name: np.empty(len(X)) for name in asked.classes}
    for b in np.unique(place):
        own = place == b
        for name, prior in asked.fitted_priors(X[own], error=both(error[own])).items():
            priors[name][own] = prior
    return priors


def calibration(p: np.ndarray, rare: np.ndarray) -> tuple[float, float, int]:
    """The largest distance of probability and fraction over ten bins, a binomial error of that bin, and the bin."""
    place, away = np.minimum((10 * p).astype(int), 9), []
    for b in range(10):
        own = place == b
        if not own.any():
            continue
        mean = p[own].mean()
        away.append((abs(mean - rare[own].mean()), np.sqrt(mean * (1 - mean) / own.sum()), b))
    return max(away)


def asked(problem: str, sets: int) -> dict[str, list[np.ndarray]]:
    """Which rows are rare, and their probabilities by each way of priors, of all data sets."""
    every: dict[str, list[np.ndarray]] = {}
    for seed in range(sets):
        for way, values in probabilities(problem, seed):
            every.setdefault(way, []).append(values)
    return every


def lines(problem: str, sets: int) -> list[list[str]]:
    """A line per way of priors."""
    every = asked(problem, sets)
    truth, found = every.pop("truth"), []
    for way, values in every.items():
        p, rare = np.concatenate(values), np.concatenate(truth)
        away, error, b = calibration(p, rare)
        single = np.median([calibration(*each)[0] for each in zip(values, truth, strict=True)])
        found.append([problem, way, f"{100 * away:.1f} ({100 * error:.1f})", f"{b / 10:.1f} to {(b + 1) / 10:.1f}",
                      f"{100 * single:.1f}", f"{p.sum() / rare.sum():.3f}"])  # fmt: skip
    return found


def table(sets: int) -> str:
    """Both problems."""
    head = ["classes", "priors", "largest calibration error [points]", "where p is", "of one data set, median",
            "sum of p / members"]  # fmt: skip
    return markdown(head, [line for problem in LARGER for line in lines(problem, sets)])
