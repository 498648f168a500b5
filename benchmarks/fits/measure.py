"""The plain call ``xd.fit(X, k, noise=S)``, timed as a whole, beside its own EM passes and scikit-learn in one run.

A plain EM pass is timed on the same rows and the final mixture; scikit-learn's GaussianMixture, which ignores noise,
gets the same rows with missing values replaced by column means.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import xdeconv as xd
from benchmarks.common import results as report
from benchmarks.common.machine import about
from benchmarks.common.problems import gaia_fields, simulated
from benchmarks.fits.first import first_calls
from xdeconv import kernels
from xdeconv.rows.batch import Batch


@dataclass(frozen=True)
class Case:
    """Rows to fit, rows that are only scored, and how many components."""

    title: str
    train: Batch
    held_out: Batch
    k: int


def small(n: int = 5000) -> Case:
    """Five components in two dimensions with diagonal noise."""
    rng = np.random.default_rng(0)
    truth = xd.Mixture([0.3, 0.3, 0.2, 0.1, 0.1], [[0, 0], [4, 1], [-3, 4], [3, -4], [-4, -4]],
                       [s * np.eye(2) for s in (1, 0.5, 1, 0.3, 2)])  # fmt: skip
    parts = []
    for seed in (1, 2):
        error = rng.uniform(0.1, 1.0, size=(n, 2))
        parts.append(Batch.from_arrays(truth.sample(n, seed=seed, error=error), error=error))
    return Case(f"{n:,} rows, d = 2, k = 5", *parts, 5)


def sky(rows: int, k: int) -> Case:
    """Rows of the simulated sky in seven dimensions."""
    split = simulated(rows * 5 // 4)
    return Case(f"{rows:,} simulated rows, d = 7, k = {k}", split.train, split.held_out, k)


def fields(path: Path, k: int) -> Case:
    """The Gaia fields with position errors in mas taken as degrees."""
    split = gaia_fields(path)
    return Case(f"gaia_edr3_fields, {split.train.n:,} rows, k = {k}", split.train, split.held_out, k)


def cases(path: Path | None) -> dict[str, Callable[[], Case]]:
    """The cases by name; those of the fields where there is a file."""
    found: dict[str, Callable[[], Case]] = {
        "small": small,
        "sky-16": lambda: sky(20_000, 16),
        "million": lambda: sky(1_000_000, 16),
    }
    if path is not None:
        found |= {f"fields-{k}": lambda k=k: fields(path, k) for k in (64, 256, 512)}  # type: ignore[misc]
    return found


def sklearn_seconds(case: Case, seed: int) -> float:
    """Seconds of GaussianMixture.fit on the same rows, noise ignored."""
    from sklearn.mixture import GaussianMixture

    X = case.train.x.T.numpy()
    X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        GaussianMixture(case.k, random_state=seed).fit(X)
    return time.perf_counter() - began


def pass_seconds(case: Case, mixture: xd.Mixture) -> float:
    """Seconds of one plain EM pass over the rows: the sums of all of them."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        kernels.accumulate(*mixture.tensors(), case.train)
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def measure(case: Case, seeds: int, sklearn: bool) -> list[str]:
    """One line of the table: medians over seeds, ours and scikit-learn's interleaved."""
    xd.fit(case.train.rows(slice(0, 20 * case.k)), case.k, epochs=2)  # imports and compilation are not timed
    ours, theirs, passes, each, scores = [], [], [], [], []
    for seed in range(seeds):
        began = time.perf_counter()
        found = xd.fit(case.train, case.k, seed=seed)
        ours.append(time.perf_counter() - began)
        theirs.append(sklearn_seconds(case, seed) if sklearn else np.nan)
        passes.append(len(found.history))
        each.append(pass_seconds(case, found.mixture))
        scores.append(found.mixture.score(case.held_out))
        print(
            f"{case.title}, seed {seed}: {ours[-1]:.2f} s, {passes[-1]} passes, held out {scores[-1]:.4f}", flush=True
        )
    own = np.median(np.array(each) * passes)
    beside = np.median(theirs)
    return [case.title, str(seeds), f"{np.median(ours):.2f}", f"{np.median(passes):.0f}",
            f"{np.median(ours) / own:.1f}", f"{beside:.3f}" if sklearn else "-",
            f"{np.median(ours) / beside:.2f}" if sklearn else "-",
            f"{np.mean(scores):.4f}", f"{np.min(scores):.4f}"]  # fmt: skip


HEADER = ["plain call", "seeds", "seconds", "passes", "over its own passes", "scikit-learn, s", "ratio",
          "held out, mean", "worst"]  # fmt: skip
SLOW = {"million", "fields-256", "fields-512"}  # one seed, and scikit-learn only where it is asked for


def main() -> None:
    """Measure, print the tables, and write them where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fits", description=__doc__)
    parser.add_argument("--fields", type=Path, help="gaia_edr3_fields.parquet")
    parser.add_argument("--cases", nargs="*", help="names of cases; by default all, and first calls, but fields-512")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--slow-sklearn", action="store_true", help="scikit-learn beside the slow cases too")
    parser.add_argument("--write", action="store_true", help="write the tables to RESULTS.md")
    chosen = parser.parse_args()
    known = cases(chosen.fields)
    names = chosen.cases or ["first", *(name for name in known if name != "fields-512")]
    text = []
    if "first" in names:
        text.append(report.table(["a new process", "seconds more than import torch, numba"], first_calls()))
        print(text[-1], flush=True)
    lines = [
        measure(known[name](), 1 if name in SLOW else chosen.seeds, name not in SLOW or chosen.slow_sklearn)
        for name in names
        if name != "first"
    ]
    text += [report.table(HEADER, lines)] if lines else []
    print("\n\n".join(text))
    if chosen.write:
        head = f"`python -m benchmarks.fits`, medians over seeds. {report.describe(about())}"
        threads = f"{torch.get_num_threads()} threads."
        report.write_section("Plain calls", "\n\n".join([f"{head} {threads}", *text]))
