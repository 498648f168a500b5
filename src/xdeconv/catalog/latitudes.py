"""Cosines of latitudes: errors of longitudes are divided by them, and NumPy's cosine takes 8 ns per row."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numba import njit, types

from ..system.keeping import kept

Array = np.ndarray
QUARTER, REST = math.pi / 2, 6.123233995736766e-17  # the right angle in two floats
SINE = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(11))  # of its series; the next term is 1e-18


def cosines(degrees: Array) -> Array:
    """The cosine of angles (n,) in degrees, float64, to 2 units in the last place.

    >>> cosines(np.array([0.0, -60.0, np.nan])).round(9)
    array([1. , 0.5, nan])
    """
    out = np.empty(len(degrees))
    return out if _compiled()(np.ascontiguousarray(degrees), out) else np.cos(degrees * (np.pi / 180))


def _cosines(degrees, out):  # type: ignore[no-untyped-def]
    """The sine of what is left to a right angle, by its series; whether none is beyond half a turn."""
    far = 0
    for i in range(len(out)):
        angle = np.abs(degrees[i] * (np.pi / 180))
        far += 1 if angle > np.pi else 0
        left = (QUARTER - angle) + REST
        square = left * left
        series = SINE[10]
        for k in range(9, 0, -1):
            series = series * square + SINE[k]
        out[i] = left + left * (series * square)
    return far == 0


@cache
def _compiled() -> Any:
    degrees = types.Array(types.float64, 1, "C", readonly=True)
    signature = types.boolean(degrees, types.float64[::1])
    return kept(lambda keep: njit(signature, nogil=True, cache=keep, error_model="numpy")(_cosines))
