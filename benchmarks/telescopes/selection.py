"""Rows that were selected: cuts put right, coverage of errors, and pygmmis on its own example.

The example is that of pygmmis' repository (tests/test.py and the picture of its README): 400 rows of three components
before the selection, errors of 0.5, a box with a hole, one run, no background (``bg_amp = 0``; it is run with 0.3 here,
too). pygmmis runs with the settings that it has there, by an interpreter that has it; its fits are the two of the
example that take errors and selection into account.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import xdeconv as xd
from benchmarks.common.results import table

PARALLAX = xd.Mixture([0.7, 0.3], [[2.0], [4.0]], [[[0.4]], [[1.0]]], labels=["parallax"])
WEIGHTS = np.array([0.36060026, 0.27986906, 0.206774])
MEANS = 10 * np.array([[0.08016886, 0.21300697], [0.70306351, 0.6709532], [0.01087670, 0.852077]])
COVARIANCES = 100 * np.array(
    [
        [[0.08530014, -0.00314178], [-0.00314178, 0.00541106]],
        [[0.03053402, 0.0125736], [0.0125736, 0.01075791]],
        [[0.00258605, 0.00409287], [0.00409287, 0.01065186]],
    ]
)
THREE = xd.Mixture(WEIGHTS / WEIGHTS.sum(), MEANS, COVARIANCES)
FIELD, ERROR = xd.Uniform([-10.0, -10.0], [20.0, 20.0]), 0.5


def stars(seed: int, n: int = 10_000) -> tuple[np.ndarray, np.ndarray]:
    """Parallaxes and errors of all stars."""
    error = np.exp(np.random.default_rng(seed).uniform(np.log(0.1), np.log(1.0), size=(n, 1)))
    return PARALLAX.sample(n, seed + 1, error=error), error


def cuts(seeds: int) -> str:
    """Mean and spread by a fit as if nothing were cut, by the cut, and by the same as a function."""
    rows = []
    kinds = {
        "x > 1.5": (lambda X, e: X[:, 0] > 1.5, xd.Cut(0, above=1.5)),
        "x / error > 5": (lambda X, e: X[:, 0] > 5 * e[:, 0], xd.Cut(0, above=5, over_error=True)),
    }
    for name, (kept, cut) in kinds.items():
        for how, selection in (("nothing", None), ("xd.Cut", cut), ("a function", kept)):
            found, passes = [], []
            for seed in range(seeds):
                X, error = stars(seed)
                which = kept(X, error)
                result = xd.fit(X[which], 2, error=error[which], selection=selection)
                found.append((result.mixture.mean()[0], np.sqrt(result.mixture.covariance()[0, 0])))
                passes.append(len(result.history))
            means, spreads = np.array(found).T
            rows.append([name, how, f"{means[0]:.3f}, {spreads[0]:.3f}", f"{means.mean():.3f}, {spreads.mean():.3f}",
                         f"{np.abs(means - 2.6).max():.3f}", f"{np.mean(passes):.0f}"])  # fmt: skip
    header = [
        "cut",
        "selection=",
        "seed 0: mean, spread (2.600, 1.192)",
        "mean of seeds",
        "worst mean off by",
        "passes",
    ]
    return table(header, rows)


def three_dimensions(seeds: int) -> str:
    """Two cuts with correlated noise: distance of the mean from the truth, and what the truth is behind in nats."""
    cuts, off = [xd.Cut(0, above=0.8), xd.Cut(2, below=0.0)], []
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 3])
        A, B = rng.normal(size=(3, 3)), 0.5 * rng.normal(size=(12_000, 3, 3))
        truth = xd.Mixture([1.0], [[1.0, 0.5, -0.5]], [A @ A.T + np.eye(3)])
        noise = B @ B.transpose(0, 2, 1) + 0.1 * np.eye(3)
        X = truth.sample(12_000, seed, noise=noise)
        which = (X[:, 0] > 0.8) & (X[:, 2] < 0.0)
        given = {"noise": noise[which]}
        fits = [xd.fit(X[which], 1, selection=selection, **given).mixture for selection in (None, cuts)]
        gain = fits[1].score(X[which], **given) - truth.with_(selection=cuts).score(X[which], **given)
        off.append([*(float(np.linalg.norm(m.means - truth.means)) for m in fits), gain * int(which.sum())])
    header = ["seed", "mean off, nothing said", "mean off, two cuts", "nats above the truth (4.5 expected)"]
    return table(header, [[str(i), *(f"{v:.2f}" for v in row)] for i, row in enumerate(off)])


def coverage(data_sets: int) -> str:
    """How often standard errors hold the truth, one component cut at x > 1.5: by the curvature of ``score`` itself."""
    truth, cut, inside = np.array([2.0, 1.0]), xd.Cut(0, above=1.5), []
    for seed in range(data_sets):
        error = np.random.default_rng([seed, 9]).uniform(0.2, 0.8, size=(2000, 1))
        X = xd.Mixture([1.0], [[2.0]], [[[1.0]]]).sample(2000, seed, error=error)
        which = X[:, 0] > 1.5
        batch = xd.Batch.from_arrays(X[which], error=error[which])
        mixture = xd.fit(batch, 1, selection=cut).mixture
        at = np.array([mixture.means[0, 0], mixture.covariances[0, 0, 0]])
        inside.append(np.abs(at - truth) / np.sqrt(np.diag(np.linalg.inv(_information(batch, at, cut)))))
    z = np.array(inside)
    parts = [f"{name} {(column < 1).mean():.0%} and {(column < 2).mean():.0%}"
             for name, column in zip(("mean", "variance"), z.T, strict=True)]  # fmt: skip
    known = f"Coverage over {data_sets} data sets, one component cut at x > 1.5, errors from the curvature of `score`"
    return f"{known}: {', '.join(parts)} within one and two standard errors (68 %, 95 %)."


def _information(batch: xd.Batch, at: np.ndarray, cut: xd.Cut) -> np.ndarray:
    """Minus the second derivatives (2, 2) of the log-likelihood by mean and variance."""
    steps = 1e-3 * np.eye(2)

    def loglik(m: np.ndarray) -> float:
        return batch.n * xd.Mixture([1.0], [[m[0]]], [[[m[1]]]], selection=cut).score(batch)

    signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    return np.array([[-sum(s * t * loglik(at + s * a + t * b) for s, t in signs) / 4e-6 for b in steps] for a in steps])


def box_with_hole(X: np.ndarray) -> np.ndarray:
    """Whether a row is in the box and not in the hole."""
    return ((X > 0) & (X < 10)).all(axis=1) & (((X - [6.5, 6.0]) ** 2).sum(axis=1) > 4.0)


def example(seed: int, n: int, b: float) -> np.ndarray:
    """Noisy rows of the example, before selection."""
    rng = np.random.default_rng([seed, 77])
    true = THREE.sample(n, seed)
    if b:
        true = np.concatenate([true, FIELD.drawn(int(b / (1 - b) * n), rng)])
    return true + rng.normal(0, ERROR, true.shape)


SETTINGS = {
    "its example's": (1e-3, 10, 1),
    "tol 1e-4": (1e-4, 10, 1),
    "oversampling 100": (1e-3, 100, 1),
    "best of 10 runs": (1e-3, 10, 10),
}

FEW, MANY = 5_000, 100_000  # rows, up to which data sets are repeated and all settings tried; beyond, one


def settings(n: int) -> dict[str, tuple[float, int, int]]:
    """Those that are tried with so many rows."""
    some = len(SETTINGS) if n < FEW else 2 if n < MANY else 1
    return dict(list(SETTINGS.items())[:some])


def against_pygmmis(python: str, sizes: list[int], seeds: int) -> str:
    """Medians over data sets, one after the other: what pygmmis is behind, and its CPU seconds over ours.

    Neither has its imports counted, nor we the loading of compiled kernels, which a first fit does.
    """
    first, rows = example(0, sizes[0], 0.3), []
    xd.fit(first[box_with_hole(first)], 3, error=[ERROR] * 2, background=FIELD, selection=box_with_hole)
    for n in sizes:
        for b in (0.0, 0.3):
            told = [_compared(python, n, b, seed) for seed in range(seeds if n < FEW else 1)]
            ours = np.median([one["xdeconv"] for one in told], axis=0)
            rows.append(
                [f"{n:,}", f"{b:g}", "xdeconv", f"{ours[0]:.4f}", f"{ours[1]:.2f}", "", "", f"{ours[2]:.2f}", ""]
            )
            for name in settings(n):
                both = [(one[name], one["xdeconv"]) for one in told if one[name] is not None]
                failed = len(told) - len(both)
                if not both:
                    rows.append([f"{n:,}", f"{b:g}", f"pygmmis, {name}", "failed", *[""] * 5])
                    continue
                theirs, own = np.array([a for a, _ in both]), np.array([c for _, c in both])
                score, weight, cpu, _ = np.median(theirs, axis=0)
                less = np.median(own[:, 3] - theirs[:, 3])
                better = int((theirs[:, 0] > own[:, 0]).sum())
                times = np.median(theirs[:, 2] / own[:, 2])
                note = f", {failed} of {len(told)} failed" if failed else ""
                rows.append([f"{n:,}", f"{b:g}", f"pygmmis, {name}{note}", f"{score:.4f}", f"{weight:.2f}",
                             f"{less:.1f}", f"{better} of {len(both)}", f"{cpu:.2f}", f"{times:.1f} x"])  # fmt: skip
    header = ["rows before selection", "background", "by", "score of unseen rows", "weight of the background",
              "nats behind on its own rows", "data sets where it scores higher", "CPU s", "times ours"]  # fmt: skip
    return table(header, rows)


def _compared(python: str, n: int, b: float, seed: int) -> dict[str, list[float] | None]:
    """Score of unseen rows, weight of the background, CPU seconds and nats on the rows of the fit, of each."""
    field, X = FIELD if b else None, example(seed, n, b)
    X, unseen = X[box_with_hole(X)], example(1000 + seed, 40_000, b)
    unseen = unseen[box_with_hole(unseen)]

    def judged(mixture: xd.Mixture, cpu: float) -> list[float]:
        scores = [mixture.score(rows, error=[ERROR] * 2, selection=box_with_hole) for rows in (unseen, X)]
        return [scores[0], mixture.background_weight, cpu, scores[1] * len(X)]

    told: dict[str, list[float] | None] = {}
    for name, found in zip(settings(n), _pygmmis(python, X, b, seed, list(settings(n).values())), strict=True):
        model = found["model"]
        if model is None:
            told[name] = None
            continue
        amp = np.array(model["amp"])
        told[name] = judged(xd.Mixture(amp / amp.sum(), model["mean"], model["covar"], background=field,
                                       background_weight=model["b"]), found["cpu"])  # fmt: skip
    began = time.process_time()
    ours = xd.fit(X, 3, error=[ERROR] * 2, background=field, selection=box_with_hole).mixture
    told["xdeconv"] = judged(ours, time.process_time() - began)
    return told


def _pygmmis(python: str, X: np.ndarray, b: float, seed: int, tried: list[Any]) -> list[dict[str, Any]]:
    """What pygmmis finds by each setting, and its CPU seconds with those of its own processes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, X=X)
        words = [str(Path(__file__).with_name("peer.py")), str(path), str(b), str(seed)]
        done = subprocess.run([python, *words, json.dumps(tried)], capture_output=True, text=True,
                              check=True)  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])
