"""Products of many small matrices whose bits do not depend on the number of threads."""

from __future__ import annotations

import numpy as np
import torch

SMALL = 32  # BLAS divides larger products among its threads, and then sums in another order


def product(A: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """A @ B @ ..., by torch where matrices are large: inside a fit it keeps to one thread."""
    for B in others:
        A = A @ B if max(A.shape[-2:] + B.shape[-2:]) <= SMALL else _by_torch(A, B)
    return A


def _by_torch(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return (torch.from_numpy(np.ascontiguousarray(A)) @ torch.from_numpy(np.ascontiguousarray(B))).numpy()
