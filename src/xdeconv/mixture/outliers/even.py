"""Points that lie evenly: tails and directions of draws, the same for all rows, which turn and shift them."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import ndtri

MOST = 13  # log2 of the most points


@cache
def points(p: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers in (0, 1) and unit vectors (p, ...): from 2^m on, the 2^m first of a Sobol sequence, m up to MOST.

    They stand in the order of their first coordinate, which is that of their places, and is left out.
    """
    numbers = sobol(p + 2, MOST)
    v, u = numbers[:, 1], _directions(numbers[:, 2:])
    order = np.concatenate([[0], *(np.argsort(numbers[: 1 << m, 0], kind="stable") for m in range(MOST + 1))])
    return np.ascontiguousarray(v[order]), np.ascontiguousarray(u[order].T)


def sobol(dim: int, log_points: int) -> np.ndarray:
    """2^m points (2^m, dim) of a scrambled Sobol sequence, always the same ones."""
    from scipy.stats import qmc  # takes half a second to import, which a fit does not need

    return qmc.Sobol(dim, rng=np.random.default_rng(0)).random(1 << log_points)


def _directions(numbers: np.ndarray) -> np.ndarray:
    """Unit vectors (n, p) of even numbers (n, p) in (0, 1)."""
    if numbers.shape[1] == 2:
        angle = 2 * np.pi * numbers[:, 0]
        return np.stack([np.cos(angle), np.sin(angle)], 1)
    if numbers.shape[1] == 3:
        angle, height = 2 * np.pi * numbers[:, 0], 2 * numbers[:, 1] - 1
        across = np.sqrt(1 - height**2)
        return np.stack([across * np.cos(angle), across * np.sin(angle), height], 1)
    z = ndtri(np.clip(numbers, 1e-15, 1 - 1e-15))
    return z / np.linalg.norm(z, axis=1, keepdims=True)
