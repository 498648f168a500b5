"""Random numbers that are made of a row's own values: the same row has the same ones, wherever it stands."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, uint64


@njit(nogil=True, cache=True, error_model="numpy")
def _mixed(state: np.ndarray) -> int:
    """The next 64 random bits (splitmix64)."""
    state[0] += uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))


@njit(nogil=True, cache=True, error_model="numpy")
def of(x: np.ndarray) -> np.ndarray:
    """The state (1,) that the values of a row make."""
    state = np.zeros(1, dtype=np.uint64)
    for a in range(len(x)):
        state[0] = state[0] ^ x[a : a + 1].view(np.uint64)[0]
        state[0] = _mixed(state)
    return state


@njit(nogil=True, cache=True, error_model="numpy")
def uniform(state: np.ndarray) -> float:
    """A number in (0, 1)."""
    return (float(_mixed(state) >> uint64(11)) + 0.5) * 2.0**-53


@njit(nogil=True, cache=True, error_model="numpy")
def rotation(state: np.ndarray, Q: np.ndarray) -> None:
    """An orthogonal matrix (p, p), all alike probable."""
    p = len(Q)
    for i in range(p):
        for a in range(p):
            size = math.sqrt(-2.0 * math.log(uniform(state)))
            Q[i, a] = size * math.cos(2.0 * math.pi * uniform(state))
        for e in range(i):
            along = 0.0
            for a in range(p):
                along += Q[i, a] * Q[e, a]
            for a in range(p):
                Q[i, a] -= along * Q[e, a]
        size = 0.0
        for a in range(p):
            size += Q[i, a] * Q[i, a]
        for a in range(p):
            Q[i, a] /= math.sqrt(size)
