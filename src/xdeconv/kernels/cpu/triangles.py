"""Algebra of a triangle per component, in NumPy: torch's threads would wait for busy cores once per component."""

from __future__ import annotations

from functools import cache

import numpy as np


@cache
def lower(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of a lower triangle's numbers, made once: for few components that takes as long as the rest."""
    return np.tril_indices(d)


def inverse(L: np.ndarray) -> np.ndarray:
    """Inverses of lower triangular matrices (k, d, d), exactly triangular; NaN stays NaN.

    >>> inverse(np.array([[[2.0, 0.0], [1.0, 4.0]]]))
    array([[[ 0.5  ,  0.   ],
            [-0.125,  0.25 ]]])
    """
    d, result, pivots = L.shape[-1], np.zeros_like(L), 1 / np.diagonal(L, axis1=-2, axis2=-1)
    result[:, range(d), range(d)] = pivots
    with np.errstate(invalid="ignore", over="ignore"):
        for a in range(1, d):  # line by line: half the time of halves
            result[:, a, :a] = -pivots[:, a, None] * (L[:, a, None, :a] @ result[:, :a, :a])[:, 0]
    return result


def unwhitened(W: np.ndarray, g: np.ndarray, G: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """W^T g (k, d) and W^T G W (k, d, d)."""
    with np.errstate(invalid="ignore", over="ignore"):
        return (W.mT @ g[..., None])[..., 0], W.mT @ G @ W
