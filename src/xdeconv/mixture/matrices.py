"""Parameters that users hand over, checked; and what is done to many small matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..rows import checks

Array = np.ndarray
WEIGHT_ROUNDING = 1e-14  # of their sum: less is left alone, so that a mixture loaded has the bits that were saved
SMALLEST_EIGENVALUE = -1e-9  # relative to the largest: what rounding may do to a covariance


def checked_parameters(weights: Any, means: Any, covariances: Any) -> tuple[Array, Array, Array]:
    """Weights (k,) that sum to 1, means (k, d) and symmetric covariances (k, d, d), as copies."""
    a = checks.to_array(weights, "weights").copy()
    m = checks.to_array(means, "means").copy()
    V = checks.to_array(covariances, "covariances").copy()
    if m.ndim != 2 or a.shape != m.shape[:1] or V.shape != (*m.shape, m.shape[-1]) or m.size == 0:
        shapes = f"{a.shape}, {m.shape}, {V.shape}"
        raise ValueError(f"weights (k,), means (k, d) and covariances (k, d, d) do not fit: {shapes}")
    for name, array in (("weights", a), ("means", m), ("covariances", V)):
        if not np.isfinite(array).all():
            raise ValueError(f"{name} of component {np.argwhere(~np.isfinite(array))[0][0]} is not finite")
    if (a < 0).any() or abs(a.sum() - 1) > 1e-6:
        raise ValueError(f"weights must be non-negative and sum to 1, they sum to {a.sum():.9g}, least {a.min():.3g}")
    if abs(a.sum() - 1) > WEIGHT_ROUNDING:
        a = a / a.sum()
    return a, m, _checked_covariances(V)


def _checked_covariances(V: Array) -> Array:
    size = np.abs(V).max(axis=(1, 2))
    if (np.abs(V - V.transpose(0, 2, 1)).max(axis=(1, 2)) > 1e-6 * size).any():
        raise ValueError("a covariance is not symmetric")
    V = (V + V.transpose(0, 2, 1)) / 2
    if (np.einsum("kdd->kd", V) < 0).any():
        raise ValueError("a covariance has a negative variance: it is not positive semi-definite")
    values = np.linalg.eigvalsh(V)
    bad = values[:, 0] < SMALLEST_EIGENVALUE * np.maximum(values[:, -1], 0)
    if bad.any():
        j = int(bad.argmax())
        raise ValueError(f"the covariance of component {j} is not positive semi-definite: {values[j, 0]:.3g}")
    return V


def square_root(V: Array) -> Array:
    """A with A A^T = V for positive semi-definite matrices (n, d, d)."""
    values, vectors = np.linalg.eigh(V)
    return vectors * np.sqrt(np.clip(values, 0.0, None))[:, None, :]


def widths(V: Array) -> Array:
    """Standard deviations (k, d) of covariances (k, d, d)."""
    return np.sqrt(np.einsum("kaa->ka", V))


def of_one_covariance(structure: str, d: int) -> int:
    """Free numbers of one covariance in d dimensions: of any word that stands for a structure.

    >>> of_one_covariance("low-rank:2", 20)
    59
    """
    word, _, rank = structure.partition(":")
    full = d * (d + 1) // 2
    if word == "low-rank" and rank.isdecimal():  # loadings, less the rotations that change nothing, and own variances
        r = int(rank)
        return min(d * r - r * (r - 1) // 2 + d, full)
    known = {"full": full, "tied": full, "diagonal": d, "spherical": 1}
    if structure not in known:
        raise ValueError(f"structure must be one of {list(known)} or low-rank:R, got {structure!r}")
    return known[structure]


def n_parameters(k: int, d: int, structure: str = "full") -> int:
    """Free parameters of k Gaussians in d dimensions: weights that sum to 1, means, and covariances of a structure.

    >>> n_parameters(2, 2), n_parameters(2, 2, "tied")
    (11, 8)
    """
    each = of_one_covariance(structure, d)
    return k * (1 + d) - 1 + (each if structure == "tied" else k * each)
