"""Known problems that all tests share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from xdeconv.rows.batch import Batch


@dataclass(frozen=True)
class Problem:
    """A random mixture and random rows, as NumPy float64 arrays, with helpers that make kernel arguments."""

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    X: np.ndarray
    noise: np.ndarray | None = None
    projection: np.ndarray | None = None
    weight: np.ndarray | None = None
    log_prior: np.ndarray | None = None
    label: np.ndarray | None = None

    def batch(self, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Batch:
        return Batch.from_arrays(
            self.X, self.noise, self.projection, self.weight, self.log_prior,
            label=self.label, dtype=dtype, device=device,
        )  # fmt: skip

    def parameters(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        log_weights = torch.from_numpy(np.log(self.weights))
        return log_weights, torch.from_numpy(self.means), torch.from_numpy(self.covariances)


def random_covariances(rng: np.random.Generator, n: int, d: int, size: float = 1.0) -> np.ndarray:
    A = rng.normal(size=(n, d, d + 1))
    return size * (A @ A.transpose(0, 2, 1) / (d + 1) + 0.05 * np.eye(d))


def problem(
    n: int = 37,
    k: int = 5,
    d: int = 3,
    p: int | None = None,
    noise: str = "full",
    projection: str = "none",
    missing: float = 0.0,
    weight: bool = False,
    prior: str = "none",
    seed: int = 0,
) -> Problem:
    """Rows drawn from a random mixture.

    noise: none | full | diagonal | shared | shared-diagonal; projection: none | dense | deficient;
    missing: fraction of values that are NaN (the first row then has nothing observed); prior: none | rows | labels.
    """
    rng = np.random.default_rng(seed)
    p = d if p is None else p
    means = 2.0 * rng.normal(size=(k, d))
    V = random_covariances(rng, k, d)
    weights = rng.dirichlet(np.full(k, 2.0))
    z = rng.choice(k, size=n, p=weights)
    v = means[z] + np.einsum("nde,ne->nd", np.linalg.cholesky(V)[z], rng.normal(size=(n, d)))
    S = {
        "none": lambda: None,
        "full": lambda: random_covariances(rng, n, p, 0.5) * rng.lognormal(size=(n, 1, 1)),
        "diagonal": lambda: 0.5 * rng.lognormal(size=(n, p)),
        "shared": lambda: random_covariances(rng, 1, p, 0.5),
        "shared-diagonal": lambda: 0.5 * rng.lognormal(size=p),
    }[noise]()
    R = None
    if projection != "none":
        R = rng.normal(size=(n, p, d))
        if projection == "deficient" and p > 1:
            R[:, -1] = 2.0 * R[:, 0]
    x = v if R is None else np.einsum("npd,nd->np", R, v)
    x = x + 0.5 * rng.normal(size=(n, p))
    if missing:
        x[rng.uniform(size=x.shape) < missing] = np.nan
        x[0] = np.nan
    table = np.log(rng.uniform(0.05, 1.0, size=(n if prior == "rows" else 3, k)))
    table[1, 0] = -np.inf if k > 1 else 0.0
    return Problem(
        weights, means, V, x, S, R,
        weight=rng.uniform(0.0, 2.0, size=n) if weight else None,
        log_prior=None if prior == "none" else table,
        label=rng.integers(3, size=n) if prior == "labels" else None,
    )  # fmt: skip


CASES: dict[str, Problem] = {
    "full": problem(),
    "diagonal": problem(noise="diagonal", seed=1),
    "no noise": problem(noise="none", seed=2),
    "shared": problem(noise="shared", seed=3),
    "shared diagonal": problem(noise="shared-diagonal", seed=4),
    "missing full": problem(n=50, d=4, missing=0.4, seed=5),
    "missing diagonal": problem(n=50, d=4, noise="diagonal", missing=0.4, seed=6),
    "missing no noise": problem(n=50, d=4, noise="none", missing=0.4, seed=7),
    "missing shared": problem(n=50, noise="shared", missing=0.4, seed=8),
    "projection p < d": problem(d=3, p=2, projection="dense", seed=9),
    "projection p = d": problem(d=3, p=3, noise="diagonal", projection="dense", seed=10),
    "projection p > d": problem(d=2, p=3, projection="dense", seed=11),
    "projection rank-deficient": problem(d=3, p=2, projection="deficient", seed=12),
    "projection missing": problem(n=50, d=3, p=2, projection="dense", missing=0.3, seed=13),
    "projection shared": problem(d=3, p=2, noise="shared-diagonal", projection="dense", seed=14),
    "one component": problem(k=1, seed=15),
    "one dimension": problem(d=1, seed=16),
    "one dimension missing": problem(d=1, missing=0.2, noise="diagonal", seed=17),
    "one row": problem(n=1, seed=18),
    "weights": problem(weight=True, seed=19),
    "row priors": problem(prior="rows", missing=0.2, seed=20),
    "label priors": problem(prior="labels", weight=True, seed=21),
    "seven dimensions": problem(n=129, k=33, d=7, missing=0.1, seed=22),
    "odd sizes": problem(n=257, k=67, d=2, noise="diagonal", seed=23),
}
"""Every combination that a kernel must take, at sizes that no block size divides."""
