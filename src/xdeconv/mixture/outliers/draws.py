"""The loops behind ``p_value``, compiled: one row at a time, draws of the mixture that are made for it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba import njit, types

from . import chance, chi_square, one_value
from .heights import FAST, MATRIX, NOTHING, SIGNATURE, STACK, VECTOR
from .shown import log_density, shown, solve

PAIRS = 64  # draws and their opposites that are made at a time
PILOT = 6  # log2 of the pairs of a pilot, which only says how to draw
FEWEST, FEWEST_ALONE = 7, 9  # log2 of pairs: where the bound says something, and where draws alone do
ALONE = 0.9  # bound
ACCEPTED = 0.2  # of the draws in the part of the tails that is drawn evenly, at least
NARROWER = 0.1  # that part in the next pilot, where fewer are
NARROWEST = 1e-12
RELATIVE, ABSOLUTE = 0.05, 0.01  # standard error of a probability: the smaller of the two
EVEN = 0.7  # variance that is left where draws lie evenly: at most, where there are as many as it takes
Heights = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray], None]


@njit(nogil=True, cache=True, error_model="numpy")
def _whitened(
    x: np.ndarray, c: float, peak: np.ndarray, centre: np.ndarray, L: np.ndarray,
    narrow: np.ndarray, middle: np.ndarray, top: np.ndarray,
) -> int:  # fmt: skip
    """What ``heights`` asks for, around x, of components that may reach c; how many they are."""
    p, n = len(x), 0
    unit, out = np.empty(p), np.empty(p)
    for l in range(len(peak)):
        if peak[l] - c < NOTHING:
            continue
        for b in range(p):
            unit[:] = 0.0
            unit[b] = math.sqrt(0.5)
            solve(L[l], unit, out)
            narrow[n, :, b] = out
        for a in range(p):
            middle[n, a] = 0.0
            for b in range(a + 1):
                middle[n, a] += narrow[n, a, b] * (centre[l, b] - x[b])
        top[n] = peak[l] - c
        n += 1
    return n


@njit(nogil=True, cache=True, error_model="numpy")
def _log_tail(v: float, part: float) -> tuple[float, float]:
    """The logarithm of a share of the tails and a weight, for v in (0, 1).

    Half of the shares lie evenly below ``part``, the others' logarithms lie evenly above it.
    """
    if part == 1.0:
        return math.log(v), 1.0
    if v < 0.5:
        return math.log(2.0 * v * part), 2.0 * part
    log_share = 2.0 * (1.0 - v) * math.log(part)
    return log_share, -2.0 * math.log(part) * math.exp(log_share)


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def _turned(Q: np.ndarray, u: np.ndarray, radius: np.ndarray, z: np.ndarray) -> None:
    """z = radius Q u (p, n)."""
    z[:] = 0.0
    for a in range(len(Q)):
        for b in range(len(Q)):
            for i in range(z.shape[1]):
                z[a, i] += Q[a, b] * u[b, i]
        for i in range(z.shape[1]):
            z[a, i] *= radius[i]


@njit(nogil=True, cache=True, error_model="numpy")
def _placed(
    z: np.ndarray, component: np.ndarray, centre: np.ndarray, L: np.ndarray, x: np.ndarray, out: np.ndarray
) -> None:
    """Draws m_j + A_j z - x and their opposites m_j - A_j z - x, into the two halves of ``out`` (p, 2 n)."""
    n = z.shape[1]
    for i in range(n):
        j = component[i]
        for a in range(len(x)):
            along = z[a, i] / L[j, a, a]
            for b in range(a):
                along += L[j, a, b] * z[b, i]
            out[a, i] = centre[j, a] - x[a] + along
            out[a, n + i] = centre[j, a] - x[a] - along


@njit(nogil=True, cache=True, error_model="numpy")
def _share(
    heights: Heights, log_pairs: int, part: float, state: np.ndarray, x: np.ndarray,
    bound: np.ndarray, log_start: np.ndarray, centre: np.ndarray, L: np.ndarray,
    narrow: np.ndarray, middle: np.ndarray, top: np.ndarray, v: np.ndarray, u: np.ndarray, table: np.ndarray,
) -> tuple[float, float, float]:  # fmt: skip
    """The share of the tails where f <= c, the mean of squared weights there, and the share of draws below ``part``."""
    p, pairs = len(x), 1 << log_pairs
    Q, z, draws = np.empty((p, p)), np.empty((p, PAIRS)), np.empty((p, 2 * PAIRS))
    radius, weight, height = np.empty(PAIRS), np.empty(PAIRS), np.empty(2 * PAIRS)
    component = np.empty(PAIRS, dtype=np.int64)
    chance.rotation(state, Q)
    place, shift = chance.uniform(state), chance.uniform(state)
    total, squares, accepted, j = 0.0, 0.0, 0.0, 0
    for first in range(0, pairs, PAIRS):
        for i in range(PAIRS):
            while j < len(bound) - 1 and bound[j] < (first + i + place) / pairs * bound[-1]:
                j += 1
            even = v[pairs + first + i] + shift
            log_tail, weight[i] = _log_tail(even - math.floor(even) + 1e-16, part)
            radius[i] = chi_square.radius(log_tail + log_start[j], table)
            component[i] = j
        _turned(Q, u[:, pairs + first : pairs + first + PAIRS], radius, z)
        _placed(z, component, centre, L, x, draws)
        heights(draws, narrow, middle, top, height)
        for i in range(PAIRS):
            below = (1.0 if height[i] <= 1.0 else 0.0) + (1.0 if height[PAIRS + i] <= 1.0 else 0.0)
            total += weight[i] * below
            squares += weight[i] * weight[i] * below
            accepted += below if weight[i] == 2.0 * part or part == 1.0 else 0.0
    return 0.5 * total / pairs, 0.5 * squares / pairs, (0.5 if part == 1.0 else 1.0) * accepted / pairs


@njit(nogil=True, cache=True, error_model="numpy")
def _log_pairs(bound: float, mean: float, squares: float, most: int) -> int:
    """How many pairs, as a power of 2, bring the standard error of p = bound * mean down to what is asked."""
    error = min(RELATIVE, ABSOLUTE / (bound * mean))
    wanted = 0.5 * EVEN * (squares / (mean * mean) - 1.0) / (error * error)
    power = FEWEST if bound < ALONE else FEWEST_ALONE
    while power < most and 1 << power < wanted:
        power += 1
    return power


@njit(nogil=True, cache=True, error_model="numpy")
def _p_value(
    heights: Heights, x: np.ndarray, peak: np.ndarray, centre: np.ndarray, L: np.ndarray, weight: np.ndarray,
    v: np.ndarray, u: np.ndarray, table: np.ndarray,
) -> float:  # fmt: skip
    """P(f(X) <= f(x)) for X drawn from f, for a row of p seen values."""
    k, p = centre.shape
    c = log_density(x, peak, centre, L)
    bound, log_start = np.empty(k), np.empty(k)
    total = 0.0
    for j in range(k):
        start = chi_square.tail(max(0.0, 2.0 * (peak[j] - c)), p)
        log_start[j] = math.log(start) if start > 0.0 else -np.inf
        total += weight[j] * start
        bound[j] = total
    if not total > 0.0:
        return 0.0
    narrow, middle, top = np.empty((k, p, p)), np.empty((k, p)), np.empty(k)
    n = _whitened(x, c, peak, centre, L, narrow, middle, top)
    state, most = chance.of(x), 0
    while 2 << most < len(v):
        most += 1
    power, part = PILOT, 1.0
    while True:
        share, squares, accepted = _share(heights, power, part, state, x, bound, log_start, centre, L,
                                          narrow[:n], middle[:n], top[:n], v, u, table)  # fmt: skip
        if power > PILOT:
            draws = 2.0 * (1 << power)
            if part == 1.0 and (1.0 - total) * draws < 1.0:  # the row's rank among draws
                share = (share * draws + chance.uniform(state)) / (draws + 1.0)
            return min(1.0, total * share)
        if accepted < ACCEPTED and part > NARROWEST:
            part *= NARROWER
        elif share > 0.0:
            power = _log_pairs(total, share, squares, most)
        else:
            return 0.0


@njit(
    types.void(
        types.FunctionType(SIGNATURE), MATRIX, MATRIX, STACK, MATRIX, STACK, STACK, VECTOR, MATRIX, VECTOR, VECTOR
    ),
    nogil=True, cache=True, error_model="numpy",
)  # fmt: skip
def p_values(
    heights: Heights, log_w: np.ndarray, means: np.ndarray, V: np.ndarray,
    X: np.ndarray, S: np.ndarray, R: np.ndarray, v: np.ndarray, u: np.ndarray, table: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """p-values of rows X (n, p) that show as many values each, into ``out``; NaN where a row has no density.

    S, R and log_w are (n or 1, ...).
    """
    k, d = means.shape
    nothing = np.empty((0, d))
    for i in range(len(X)):
        seen = np.flatnonzero(~np.isnan(X[i]))
        m = len(seen)
        line = log_w[min(i, len(log_w) - 1)]
        peak, centre, L = np.empty(k), np.empty((k, m)), np.zeros((k, m, m))
        view = R[min(i, len(R) - 1)] if len(R) else nothing
        if not shown(line, means, V, S[min(i, len(S) - 1)], view, seen, peak, centre, L):
            out[i] = np.nan
        elif m == 1:
            out[i] = one_value.p_value(X[i][seen[0]], peak, centre[:, 0], L[:, 0, 0], np.exp(line))
        else:
            out[i] = _p_value(heights, X[i][seen], peak, centre, L, np.exp(line), v, u, table)
