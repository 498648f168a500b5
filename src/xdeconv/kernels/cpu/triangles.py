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
    d = L.shape[-1]
    if d == 1:
        return 1 / L
    half, result = d // 2, np.zeros_like(L)
    first, last = inverse(L[:, :half, :half]), inverse(L[:, half:, half:])
    result[:, :half, :half], result[:, half:, half:] = first, last
    with np.errstate(invalid="ignore", over="ignore"):
        result[:, half:, :half] = -last @ (L[:, half:, :half] @ first)
    return result


def unwhitened(W: np.ndarray, g: np.ndarray, G: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """W^T g (k, d) and W^T G W (k, d, d)."""
    with np.errstate(invalid="ignore", over="ignore"):
        return (W.mT @ g[..., None])[..., 0], W.mT @ G @ W
