"""How often intervals of 68 and 95 % hold the truth, pooled over all parameters of three components in two dimensions.

Each data set is fitted by the plain call, its components matched to the truth's. `errors` takes +-z standard errors of
xd.errors, `bootstrap` +-z standard deviations of its draws. Runs add to a file of records (`--keep`), so that parts can
be run apart; the table is made of all records there.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

import xdeconv as xd
from benchmarks.common import results as report
from benchmarks.common.machine import about
from xdeconv.studies._bootstrap import matched

LEVELS = (0.68, 0.95)
ROWS = 5000
NOISE = {"noise 0.5": 0.5, "noise 1": 1.0, "noise 2": 2.0, "noise 3": 3.0, "a third missing": 1.0, "projected": 1.0,
         "selected": 1.0, "errors too small": 1.0}  # fmt: skip
KEPT = xd.Cut(0, above=-5.0)  # half of the first component
FACTORS = np.array([1.3, 1.0])  # on the errors that are too small
TRUTH = xd.Mixture([0.5, 0.3, 0.2], [[-5, 0], [5, 0], [0, 8]],
                   [np.eye(2), [[1, 0.5], [0.5, 1]], [[0.5, -0.2], [-0.2, 1.5]]])  # fmt: skip
LOWER = np.tril_indices(TRUTH.d)
Errors = Callable[[xd.Batch, xd.Mixture], tuple[np.ndarray, int]]


def rows(kind: str, n: int, seed: int) -> xd.Batch:
    """Rows of the truth with noise over width as the kind says, each with its own errors."""
    rng = np.random.default_rng([seed, n, list(NOISE).index(kind)])
    noise = NOISE[kind] ** 2 * rng.uniform(0.7, 1.3, size=(n, 2))
    if kind == "selected":
        return xd.Batch.from_arrays(TRUTH.with_(selection=KEPT).sample(n, seed=seed, noise=noise, selected=True), noise)
    if kind == "errors too small":
        noise = noise * rng.uniform(0.1, 2.0, size=(n, 1))
        return xd.Batch.from_arrays(TRUTH.sample(n, seed=seed, noise=noise * FACTORS**2), noise)
    if kind == "projected":
        R = rng.normal(size=(n, 1, 2))
        R /= np.linalg.norm(R, axis=2, keepdims=True)
        return xd.Batch.from_arrays(TRUTH.sample(n, seed=seed, noise=noise[:, :1], projection=R), noise[:, :1], R)
    X = TRUTH.sample(n, seed=seed, noise=noise)
    if kind == "a third missing":
        X[rng.random(X.shape) < 1 / 3] = np.nan
    return xd.Batch.from_arrays(X, noise)


def words(kind: str) -> dict[str, Any]:
    """What the fit is told beside the rows."""
    given = {"selected": {"selection": KEPT}, "errors too small": {"inflation": xd.Inflation()}}
    return given.get(kind, {})


def flat(weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Weights, means, lower triangles and factors in one vector."""
    return np.concatenate([weights, means.ravel(), covariances[:, LOWER[0], LOWER[1]].ravel(), factors.ravel()])


def numbers(mixture: xd.Mixture) -> np.ndarray:
    """All that is fitted, in one vector."""
    factors = np.empty(0) if mixture.inflation is None else mixture.inflation.factors
    return flat(mixture.weights, mixture.means, mixture.covariances, factors)


def truth(kind: str) -> np.ndarray:
    """What the numbers should be."""
    factors = FACTORS if kind == "errors too small" else np.empty(0)
    return flat(TRUTH.weights, TRUTH.means, TRUTH.covariances, factors)


def by_errors(batch: xd.Batch, mixture: xd.Mixture) -> tuple[np.ndarray, int]:
    """Standard errors without refits, and how many notes came with them."""
    found = xd.errors(batch, mixture)
    factors = np.empty(0) if mixture.inflation is None else found.inflation
    return flat(found.weights, found.means, found.covariances, factors), len(found.notes)


def by_bootstrap(draws: int) -> Errors:
    """Standard deviations of draws."""

    def found(batch: xd.Batch, mixture: xd.Mixture) -> tuple[np.ndarray, int]:
        drawn = xd.bootstrap(batch, mixture, draws=draws)
        return np.std([numbers(one) for one in drawn.mixtures], axis=0, ddof=1), len(drawn.notes)

    return found


def measure(kind: str, seed: int, errors: Errors, n: int = ROWS) -> dict[str, Any]:
    """One data set: of how many parameters the intervals hold the truth."""
    batch = rows(kind, n, seed)
    mixture = matched(xd.fit(batch, TRUTH.k, seed=seed, **words(kind)).mixture, TRUTH)
    error, notes = errors(batch, mixture)
    away = np.abs(numbers(mixture) - truth(kind))
    known = np.isfinite(error)
    inside = [int((away[known] <= norm.ppf((1 + level) / 2) * error[known]).sum()) for level in LEVELS]
    return {"kind": kind, "seed": seed, "inside": inside, "known": int(known.sum()), "of": len(error), "notes": notes}


def line(way: str, kind: str, records: list[dict[str, Any]]) -> list[str]:
    """One line of the table: binomial errors count data sets, since parameters of one are not independent."""
    known = sum(record["known"] for record in records)
    shares = [sum(record["inside"][i] for record in records) / max(known, 1) for i in range(len(LEVELS))]
    each = [[r["inside"][i] / max(r["known"], 1) for r in records] for i in range(len(LEVELS))]
    scatter = [np.std(e, ddof=1) / np.sqrt(len(e)) if len(e) > 1 else np.nan for e in each]
    covered = [f"{100 * s:.1f} +- {100 * e:.1f}" for s, e in zip(shares, scatter, strict=True)]
    open_ = 100 * (1 - known / max(sum(record["of"] for record in records), 1))
    noted = 100 * np.mean([record["notes"] > 0 for record in records])
    return [way, kind, str(len(records)), *covered, f"{open_:.1f}", f"{noted:.0f}"]


def table(records: list[dict[str, Any]]) -> str:
    """The table of all records."""
    head = ["way", "rows", "data sets", "68 % [%]", "95 % [%]", "undetermined [%]", "sets with notes [%]"]
    cells = {(r["way"], r["kind"]) for r in records}
    order = [(way, kind) for way in ("errors", "bootstrap") for kind in NOISE if (way, kind) in cells]
    return report.table(head, [line(*cell, [r for r in records if (r["way"], r["kind"]) == cell]) for cell in order])


def main() -> None:
    """Measure what is not measured yet, print the table, and write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--ways", nargs="*", default=["errors", "bootstrap"], choices=["errors", "bootstrap"])
    parser.add_argument("--kinds", nargs="*", default=list(NOISE), choices=list(NOISE))
    parser.add_argument("--sets", type=int, help="data sets; 200 for errors and 50 for bootstrap by default")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--keep", type=Path, default=Path("coverage.jsonl"), help="file that records are added to")
    parser.add_argument("--write", action="store_true", help="write the table to RESULTS.md")
    chosen = parser.parse_args()
    logging.getLogger("xdeconv").setLevel(logging.ERROR)
    records = [json.loads(text) for text in chosen.keep.read_text().splitlines()] if chosen.keep.exists() else []
    done = {(r["way"], r["kind"], r["seed"]) for r in records}
    for way in chosen.ways:
        errors = by_errors if way == "errors" else by_bootstrap(chosen.draws)
        sets = chosen.sets if chosen.sets is not None else 200 if way == "errors" else 50
        todo = [(kind, seed) for seed in range(sets) for kind in chosen.kinds if (way, kind, seed) not in done]
        for kind, seed in todo:
            records.append({"way": way, **measure(kind, seed, errors)})
            with chosen.keep.open("a") as file:
                file.write(json.dumps(records[-1]) + "\n")
    print(table(records))
    if chosen.write:
        body = (f"`python -m benchmarks.coverage`, n = {ROWS:,}, {chosen.draws} draws of each bootstrap. How often "
                f"intervals hold the truth, pooled over those of {len(truth(chosen.kinds[0]))} parameters (two more "
                f"with factors on errors) that are determined. {report.describe(about())}\n\n"
                f"{table(records)}")  # fmt: skip
        report.write_section("Coverage of error bars", body)
