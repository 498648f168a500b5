"""Squared distances of normal numbers: how much lies beyond one, and beyond which one so much lies."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from scipy.special import chdtri

STEPS = 64  # of the table to each unit of sqrt(-2 log tail)
FARTHEST = 37  # where the tail is 1e-297


def radii(p: int) -> np.ndarray:
    """Distances beyond which p normal numbers lie with probability exp(-g^2 / 2), g from 0 in steps of 1 / STEPS."""
    g = np.arange(FARTHEST * STEPS + 1) / STEPS
    return np.sqrt(chdtri(p, np.exp(-0.5 * g * g)))


@njit(nogil=True, cache=True, error_model="numpy")
def radius(log_tail: float, table: np.ndarray) -> float:
    """The distance beyond which so much lies, to 1e-5, from what ``radii`` gives."""
    g = math.sqrt(-2.0 * log_tail) * STEPS
    at = min(int(g), len(table) - 2)
    return table[at] + (g - at) * (table[at + 1] - table[at])


@njit(nogil=True, cache=True, error_model="numpy")
def tail(x: float, p: int) -> float:
    """P(chi-square of p degrees of freedom > x), by its finite sum."""
    half = 0.5 * x
    if p % 2 == 0:
        term = math.exp(-half)
        total, steps, next_ = term, p // 2 - 1, 1.0
    else:
        total = math.erfc(math.sqrt(half))
        term = math.exp(-half) * math.sqrt(half / math.pi) * 2.0
        steps, next_ = (p - 1) // 2, 1.5
        if steps == 0:
            return total
        total += term
        steps -= 1
    for _ in range(steps):
        term *= half / next_
        next_ += 1.0
        total += term
    return total
