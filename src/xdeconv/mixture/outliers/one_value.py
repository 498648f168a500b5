"""The p-value of a row that shows one value, exactly: where f <= c on a line, and how much of the mixture lies there.

The line is gone along in steps of a part of the narrowest component that matters there, past places where no component
can bring f to c; turns of f between steps are looked at. Between the crossings of f = c that are found, the probability
is a difference of error functions, taken on the side where nothing cancels.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

STEP = 0.35  # of a width
CLOSE = 1e-4  # of a step: where a crossing is found
NOTHING = -40.0  # log of what is nothing beside 1
MORE = 0.25  # so that a component that is only just above c is several steps wide
SECTIONS = 16
GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
NEVER = 1e300
SQRT2 = math.sqrt(2.0)


@njit(nogil=True, cache=True, error_model="numpy")
def p_value(x: float, peak: np.ndarray, centre: np.ndarray, narrow: np.ndarray, weight: np.ndarray) -> float:
    """P(f(X) <= f(x)); ``peak`` is log(w_j N_j(m_j)), ``narrow`` 1 / sd of each component."""
    c, reach = _log_f(x, peak, centre, narrow), np.empty(len(peak))
    for j in range(len(peak)):  # half of where a component has more than its share of c, and a little more
        above = 2.0 * (peak[j] - c + math.log(len(peak)) + MORE)
        reach[j] = math.sqrt(above) / narrow[j] if above > 0.0 else -1.0
    total, low, below = 0.0, -NEVER, True
    t, v = np.empty(3), np.empty(3)  # the last places, and log f - c there
    t[2], nodes = _entry(-NEVER, centre, reach), 1
    while t[2] < NEVER:
        v[2] = _log_f(t[2], peak, centre, narrow) - c
        if (v[2] <= 0.0) != below:
            at = _crossing(t[1], t[2], c, peak, centre, narrow) if nodes > 1 else t[2]
            if below:
                total += _mass(low, at, centre, narrow, weight)
            low, below = at, not below
        elif nodes > 2 and (v[0] <= 0.0) == (v[1] <= 0.0) == below and abs(v[1]) < min(abs(v[0]), abs(v[2])):
            turn = _turn(t[0], t[2], below, peak, centre, narrow)
            if (_log_f(turn, peak, centre, narrow) <= c) != below:
                first = _crossing(t[0], turn, c, peak, centre, narrow)
                last = _crossing(turn, t[2], c, peak, centre, narrow)
                if below:
                    total += _mass(low, first, centre, narrow, weight)
                    low = last
                else:
                    total += _mass(first, last, centre, narrow, weight)
        t[0], t[1], v[0], v[1] = t[1], t[2], v[1], v[2]
        stride = _stride(t[2], centre, narrow, reach)
        nodes = nodes + 1 if stride > 0.0 else 1
        t[2] = t[2] + stride if stride > 0.0 else _entry(t[2], centre, reach)
    return min(1.0, total + _mass(low, NEVER, centre, narrow, weight) if below else total)


@njit(nogil=True, cache=True, error_model="numpy")
def _log_f(t: float, peak: np.ndarray, centre: np.ndarray, narrow: np.ndarray) -> float:
    most, total = -np.inf, 0.0
    for j in range(len(peak)):
        z = (t - centre[j]) * narrow[j]
        most = max(most, peak[j] - 0.5 * z * z)
    for j in range(len(peak)):
        z = (t - centre[j]) * narrow[j]
        each = peak[j] - 0.5 * z * z - most
        if each > NOTHING:
            total += math.exp(each)
    return most + math.log(total)


@njit(nogil=True, cache=True, error_model="numpy")
def _entry(t: float, centre: np.ndarray, reach: np.ndarray) -> float:
    """The next place where a component begins to matter."""
    nearest = NEVER
    for j in range(len(centre)):
        if reach[j] >= 0.0 and centre[j] - reach[j] > t:
            nearest = min(nearest, centre[j] - reach[j])
    return nearest


@njit(nogil=True, cache=True, error_model="numpy")
def _stride(t: float, centre: np.ndarray, narrow: np.ndarray, reach: np.ndarray) -> float:
    """How far to go: part of the narrowest width that matters; to the end of all that do, and no farther; 0 there."""
    width, end = NEVER, -NEVER
    for j in range(len(centre)):
        entry = centre[j] - reach[j]
        if reach[j] >= 0.0 and entry <= t < centre[j] + reach[j]:
            width = min(width, 1.0 / narrow[j])
            end = max(end, centre[j] + reach[j])
        elif reach[j] >= 0.0 and entry > t:
            width = min(width, max(1.0 / narrow[j], (entry - t) / STEP))
    stride = min(STEP * width, end - t)
    return stride if stride > 1e-12 * (abs(t) + width) else 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def _turn(a: float, b: float, high: bool, peak: np.ndarray, centre: np.ndarray, narrow: np.ndarray) -> float:
    """Where f is highest, or lowest, between two places: by golden sections."""
    for _ in range(SECTIONS):
        one, two = b - GOLDEN * (b - a), a + GOLDEN * (b - a)
        if (_log_f(one, peak, centre, narrow) > _log_f(two, peak, centre, narrow)) == high:
            b = two
        else:
            a = one
    return 0.5 * (a + b)


@njit(nogil=True, cache=True, error_model="numpy")
def _crossing(a: float, b: float, c: float, peak: np.ndarray, centre: np.ndarray, narrow: np.ndarray) -> float:
    """Where f = c between two places, on one side of which it is above."""
    left = _log_f(a, peak, centre, narrow) <= c
    wide = abs(b - a)
    while abs(b - a) > CLOSE * wide and abs(b - a) > 1e-15 * (abs(a) + abs(b)):
        middle = 0.5 * (a + b)
        if (_log_f(middle, peak, centre, narrow) <= c) == left:
            a = middle
        else:
            b = middle
    return 0.5 * (a + b)


@njit(nogil=True, cache=True, error_model="numpy")
def _mass(a: float, b: float, centre: np.ndarray, narrow: np.ndarray, weight: np.ndarray) -> float:
    """How much of the mixture lies between two places."""
    total = 0.0
    for j in range(len(centre)):
        low, high = (a - centre[j]) * narrow[j] / SQRT2, (b - centre[j]) * narrow[j] / SQRT2
        if low > 0.0:
            total += 0.5 * weight[j] * (math.erfc(low) - math.erfc(high))
        else:
            total += 0.5 * weight[j] * (math.erfc(-high) - math.erfc(-low))
    return total
