"""What rows see of components through noise, gaps and projections, against sums written out."""

import numpy as np
import pytest
import torch

from xdeconv.kernels.sight import sight_of
from xdeconv.rows.batch import Batch

V = np.array([[[1.0, 0.5], [0.5, 3.0]], [[1e-6, 0.0], [0.0, 2.0]]])


def seen_by_hand(X: np.ndarray, S: np.ndarray, R: np.ndarray | None) -> np.ndarray:
    """The mean of R^T (R V R^T + S)^-1 R over rows, with the values that each row has."""
    total = np.zeros_like(V)
    for i, x in enumerate(X):
        there = ~np.isnan(x)
        view = (np.eye(2) if R is None else R[i])[there]
        noise = (np.diag(S[i]) if S[i].ndim == 1 else S[i])[np.ix_(there, there)]
        total += [view.T @ np.linalg.inv(view @ v @ view.T + noise) @ view for v in V]
    return total / len(X)


@pytest.mark.parametrize("kind", ["diagonal", "full", "gaps", "projected"])
def test_mean_information_is_the_mean_of_M(kind):
    rng = np.random.default_rng(0)
    X, S, R = rng.normal(size=(37, 2)), rng.uniform(0.5, 2.0, size=(37, 2)), None
    if kind == "full":
        S = np.einsum("ni,nj->nij", S, S) * [[1, 0.3], [0.3, 1]]
    if kind == "gaps":
        X[::3, 1] = np.nan
    if kind == "projected":
        X, S, R = X[:, :1], S[:, :1], rng.normal(size=(37, 1, 2))
    batch = Batch.from_arrays(X, S, R)
    sight = sight_of(batch)
    assert sight is not None
    np.testing.assert_allclose(sight(torch.tensor(V)), seen_by_hand(X, S, R), rtol=1e-9, atol=1e-12)


def test_rows_without_noise_hide_nothing():
    assert sight_of(Batch.from_arrays(np.zeros((3, 2)))) is None
