"""How high the density of many draws is above a row's, compiled for each number of values that rows show.

A number that is known when loops are compiled makes them five times as fast.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import njit, types

UNROLLED = 10  # values: with more, the compiler would not unroll
NOTHING = -20.0  # log of what is nothing beside 1
FAST = {"reassoc", "contract", "arcp", "nsz"}
VECTOR, MATRIX, STACK = (types.Array(types.float64, dims, "C") for dims in (1, 2, 3))
SIGNATURE = types.void(MATRIX, STACK, MATRIX, VECTOR, VECTOR)


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def _add_exp(log_f: np.ndarray, out: np.ndarray) -> None:
    """out += exp(log_f), to 1e-7 for what matters beside 1, by five squarings."""
    for i in range(out.shape[0]):
        z = min(max(log_f[i], NOTHING), 1.0) * (1.0 / 32.0)
        e = 1.0 + z * (1.0 + z * (0.5 + z * (1.0 / 6.0 + z * (1.0 / 24.0))))
        e *= e
        e *= e
        e *= e
        e *= e
        e *= e
        out[i] += e


@cache
def heights(p: int) -> Callable[..., None]:
    """f(x) / c of draws x (p, n), right near 1: the sum over l of exp(top_l - |narrow_l x - middle_l|^2).

    ``narrow`` are lower triangles (k, p, p), ``middle`` is (k, p), ``top`` (k,).
    """
    return _unrolled(p) if p <= UNROLLED else _in_passes


def _unrolled(p: int) -> Callable[..., None]:
    @njit(SIGNATURE, nogil=True, cache=True, error_model="numpy", fastmath=FAST)
    def unrolled(x: np.ndarray, narrow: np.ndarray, middle: np.ndarray, top: np.ndarray, out: np.ndarray) -> None:
        log_f = np.empty(out.shape[0])
        out[:] = 0.0
        for l in range(len(top)):
            for i in range(out.shape[0]):
                away = top[l]
                for a in range(p):
                    along = -middle[l, a]
                    for b in range(a + 1):
                        along += narrow[l, a, b] * x[b, i]
                    away -= along * along
                log_f[i] = away
            _add_exp(log_f, out)

    return unrolled


@njit(SIGNATURE, nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def _in_passes(x: np.ndarray, narrow: np.ndarray, middle: np.ndarray, top: np.ndarray, out: np.ndarray) -> None:
    log_f, along = np.empty(out.shape[0]), np.empty(out.shape[0])
    out[:] = 0.0
    for l in range(len(top)):
        log_f[:] = top[l]
        for a in range(len(x)):
            along[:] = -middle[l, a]
            for b in range(a + 1):
                for i in range(out.shape[0]):
                    along[i] += narrow[l, a, b] * x[b, i]
            for i in range(out.shape[0]):
                log_f[i] -= along[i] * along[i]
        _add_exp(log_f, out)
