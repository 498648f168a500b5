"""Distances between the components of two mixtures."""

from __future__ import annotations

import numpy as np

Array = np.ndarray
SINGULAR = 1e-12  # of a coordinate's variance: what a component without any width counts as


def bhattacharyya(means: Array, covariances: Array, to_means: Array, to_covariances: Array) -> Array:
    """Bhattacharyya distances (k, l) between Gaussians (k, ...) and (l, ...): 0 where they are the same.

    No unit matters.

    >>> V = np.ones((2, 1, 1))
    >>> bhattacharyya(np.array([[0.0], [4.0]]), V, np.array([[0.0], [4.0]]), V).round(6)
    array([[0., 2.],
           [2., 0.]])
    """
    scale = np.sqrt(np.einsum("kaa->a", covariances) + np.einsum("kaa->a", to_covariances) + 1e-300)
    V, W = (all_of / scale[:, None] / scale + SINGULAR * np.eye(len(scale)) for all_of in (covariances, to_covariances))
    log_det = np.linalg.slogdet(W)[1]

    def row(j: int) -> Array:
        middle, away = (V[j] + W) / 2, (means[j] - to_means) / scale
        mahalanobis = np.einsum("ld,ld->l", away, np.linalg.solve(middle, away[..., None])[..., 0])
        spread = np.linalg.slogdet(middle)[1] - (np.linalg.slogdet(V[j])[1] + log_det) / 2
        return mahalanobis / 8 + spread / 2

    return np.stack([row(j) for j in range(len(means))])
