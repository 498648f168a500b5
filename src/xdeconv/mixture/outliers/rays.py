"""The loops behind ``p_value``, compiled: one row at a time, rays from the means of components."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, uint64

from . import one_value

PAIRS = 8  # rays and their opposites in a batch
FEWEST, MOST = 6, 1024  # batches per row
PRECISION = 0.04  # standard error, relative to the probability, at which no further batch is made
NODES = 16  # places on a ray where the density is compared with the row's
BEYOND = 28.0  # twice -log of the share of a ray's probability that lies beyond its last node
LOST = -14.0  # log of what is nothing beside 1
REFINEMENTS = 5
CLOSE = 3e-3  # in log f: where a crossing is found
FAST = {"reassoc", "contract", "arcp", "nsz", "nnan"}


@njit(nogil=True, cache=True, error_model="numpy")
def chi2_sf(x: float, p: int) -> float:
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


@njit(nogil=True, cache=True, error_model="numpy")
def _mixed(state: np.ndarray) -> int:
    """The next 64 random bits (splitmix64)."""
    state[0] += uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> uint64(27))) * uint64(0x94D049BB133111EB)
    return z ^ (z >> uint64(31))


@njit(nogil=True, cache=True, error_model="numpy")
def _uniform(state: np.ndarray) -> float:
    """A number in (0, 1)."""
    return (float(_mixed(state) >> uint64(11)) + 0.5) * 2.0**-53


@njit(nogil=True, cache=True, error_model="numpy")
def _directions(state: np.ndarray, u: np.ndarray) -> None:
    """Unit vectors (m, p), all directions alike, p after p of them at right angles to each other."""
    p = u.shape[1]
    for i in range(len(u)):
        for a in range(p):
            radius = math.sqrt(-2.0 * math.log(_uniform(state)))
            u[i, a] = radius * math.cos(2.0 * math.pi * _uniform(state))
        for e in range(i - i % p, i):
            along = 0.0
            for a in range(p):
                along += u[i, a] * u[e, a]
            for a in range(p):
                u[i, a] -= along * u[e, a]
        size = 0.0
        for a in range(p):
            size += u[i, a] * u[i, a]
        for a in range(p):
            u[i, a] /= math.sqrt(size)


@njit(nogil=True, cache=True, error_model="numpy")
def _solve(L: np.ndarray, b: np.ndarray, out: np.ndarray) -> float:
    """out = L^-1 b, and its squared length; the diagonal of L holds reciprocals."""
    size = 0.0
    for a in range(len(b)):
        total = b[a]
        for c in range(a):
            total -= L[a, c] * out[c]
        out[a] = total * L[a, a]
        size += out[a] * out[a]
    return size


@njit(nogil=True, cache=True, error_model="numpy")
def _prepare(
    log_w: np.ndarray, means: np.ndarray, V: np.ndarray, S: np.ndarray, R: np.ndarray, seen: np.ndarray,
    peak: np.ndarray, centre: np.ndarray, L: np.ndarray,
) -> bool:  # fmt: skip
    """Peaks log(w_j N_j(m_j)), means and factors of what is seen of each component; False where there is none.

    The diagonals of the factors hold reciprocals, which is what solving wants.
    """
    k, d = means.shape
    p = len(seen)
    dense = R.shape[0] > 0
    half = np.empty((p, d))
    for j in range(k):
        peak[j] = log_w[j] - 0.5 * p * math.log(2.0 * math.pi)
        for a in range(p):
            if dense:
                centre[j, a] = 0.0
                for e in range(d):
                    centre[j, a] += R[seen[a], e] * means[j, e]
                    half[a, e] = 0.0
                    for f in range(d):
                        half[a, e] += R[seen[a], f] * V[j, f, e]
            else:
                centre[j, a] = means[j, seen[a]]
        for a in range(p):
            for b in range(a + 1):
                total = S[seen[a], seen[b]]
                if dense:
                    for e in range(d):
                        total += half[a, e] * R[seen[b], e]
                else:
                    total += V[j, seen[a], seen[b]]
                for c in range(b):
                    total -= L[j, a, c] * L[j, b, c]
                if a == b:
                    if not total > 0.0:
                        return False
                    L[j, a, a] = 1.0 / math.sqrt(total)
                    peak[j] += math.log(L[j, a, a])
                else:
                    L[j, a, b] = total * L[j, b, b]
    return True


@njit(nogil=True, cache=True, error_model="numpy")
def _log_density(x: np.ndarray, peak: np.ndarray, centre: np.ndarray, L: np.ndarray) -> float:
    k, p = centre.shape
    each, away, out = np.empty(k), np.empty(p), np.empty(p)
    most = -np.inf
    for j in range(k):
        for a in range(p):
            away[a] = x[a] - centre[j, a]
        each[j] = peak[j] - 0.5 * _solve(L[j], away, out)
        most = max(most, each[j])
    if most == -np.inf:
        return most
    total = 0.0
    for j in range(k):
        total += math.exp(each[j] - most)
    return most + math.log(total)


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def _highest(r: float, A: np.ndarray, B: np.ndarray, C: np.ndarray) -> float:
    most = -1e308
    for j in range(len(A)):
        value = A[j] + r * (B[j] + r * C[j])
        most = value if value > most else most
    return most


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def _falls(r: float, B: np.ndarray, C: np.ndarray) -> bool:
    """Whether every component falls from here on."""
    most = -1e308
    for j in range(len(B)):
        slope = B[j] + 2.0 * r * C[j]
        most = slope if slope > most else most
    return most < 0.0


@njit(nogil=True, cache=True, error_model="numpy")
def _height(r: float, A: np.ndarray, B: np.ndarray, C: np.ndarray, most: float) -> float:
    """log f(r) - c on a ray."""
    total = 0.0
    for j in range(len(A)):
        value = A[j] + r * (B[j] + r * C[j]) - most
        if value > LOST:
            total += math.exp(value)
    return most + math.log(total)


@njit(nogil=True, cache=True, error_model="numpy")
def _crossing(low: float, high: float, A: np.ndarray, B: np.ndarray, C: np.ndarray) -> float:
    """The squared radius between two where f = c, by false position in the squared radius."""
    a, b = low * low, high * high
    fa, fb = _height(low, A, B, C, _highest(low, A, B, C)), _height(high, A, B, C, _highest(high, A, B, C))
    t = 0.5 * (a + b)
    for _ in range(REFINEMENTS):
        if fa == fb:
            break
        t = min(max(a - fa * (b - a) / (fb - fa), a), b)
        r = math.sqrt(t)
        f = _height(r, A, B, C, _highest(r, A, B, C))
        if abs(f) < CLOSE:
            break
        if (f > 0) == (fa > 0):
            a, fa, fb = t, f, 0.5 * fb  # Illinois: the end that stays counts half
        else:
            b, fb, fa = t, f, 0.5 * fa
    return t


@njit(nogil=True, cache=True, error_model="numpy")
def _ray(
    t0: float, start: float, p: int, jitter: float, log_k: float, A: np.ndarray, B: np.ndarray, C: np.ndarray
) -> float:
    """P(f <= c and r^2 > t0) along a ray on which log(w_j N_j) - c is A + B r + C r^2; ``start`` is P(r^2 > t0)."""
    r = math.sqrt(t0)
    over = max(r - math.sqrt(p), 0.0)
    reach = math.sqrt(over * over + BEYOND) - over + max(math.sqrt(p) - r, 0.0)
    step = reach / NODES
    below = t0 == 0.0 and _height(0.0, A, B, C, _highest(0.0, A, B, C)) <= 0.0
    total, since = 0.0, start
    previous = r
    for node in range(NODES + 1):
        here = r + step * (node + jitter)
        most = _highest(here, A, B, C)
        if most > 0.0:
            now = False
        elif most + log_k <= 0.0:
            now = True
        else:
            now = _height(here, A, B, C, most) <= 0.0
        if now != below:
            left = chi2_sf(_crossing(previous, here, A, B, C), p)
            if below:
                total += since - left
            since, below = left, now
        if below and _falls(here, B, C):
            break
        previous = here
    return total + since if below else total


@njit(nogil=True, cache=True, error_model="numpy")
def _p_value(x: np.ndarray, peak: np.ndarray, centre: np.ndarray, L: np.ndarray, weight: np.ndarray) -> float:
    """P(f(X) <= f(x)) for X drawn from f, for a row of p seen values."""
    k, p = centre.shape
    c = _log_density(x, peak, centre, L)
    bound, start, edge = np.empty(k), np.empty(k), np.empty(k)
    total = 0.0
    for j in range(k):
        edge[j] = max(0.0, 2.0 * (peak[j] - c))
        start[j] = chi2_sf(edge[j], p)
        total += weight[j] * start[j]
        bound[j] = total
    if not total > 0.0:
        return 0.0
    state = np.zeros(1, dtype=np.uint64)
    for a in range(p):
        state[0] = state[0] ^ x[a : a + 1].view(np.uint64)[0]
        state[0] = _mixed(state)
    u, v, out = np.empty((PAIRS, p)), np.empty(p), np.empty(p)
    g, gg = np.empty((k, p)), np.empty(k)
    A, B, C = np.empty(k), np.empty(k), np.empty(k)
    log_k, origin = math.log(k), -1
    mean, spread, count = 0.0, 0.0, 0
    while count < MOST:
        outside, first, j = 0.0, _uniform(state), 0
        _directions(state, u)
        for pair in range(PAIRS):
            while j < k - 1 and bound[j] < total * (pair + first) / PAIRS:
                j += 1
            if j != origin:
                origin = j
                for l in range(k):
                    for a in range(p):
                        v[a] = centre[j, a] - centre[l, a]
                    gg[l] = _solve(L[l], v, g[l])
            for a in range(p):
                v[a] = u[pair, a] / L[j, a, a]
                for b in range(a):
                    v[a] += L[j, a, b] * u[pair, b]
            for l in range(k):
                C[l] = -0.5 * _solve(L[l], v, out)
                A[l] = peak[l] - c - 0.5 * gg[l]
                B[l] = 0.0
                for a in range(p):
                    B[l] -= g[l, a] * out[a]
            jitter = _uniform(state)
            share = _ray(edge[j], start[j], p, jitter, log_k, A, B, C)
            for l in range(k):
                B[l] = -B[l]
            share += _ray(edge[j], start[j], p, jitter, log_k, A, B, C)
            outside += share / (2.0 * start[j])
        count += 1
        away = outside / PAIRS - mean
        mean += away / count
        spread += away * (outside / PAIRS - mean)
        if count >= FEWEST and spread <= (PRECISION * mean) ** 2 * count * (count - 1):
            break
    return min(1.0, total * mean)


@njit(nogil=True, cache=True, error_model="numpy")
def p_values(
    log_w: np.ndarray, means: np.ndarray, V: np.ndarray, X: np.ndarray, S: np.ndarray, R: np.ndarray, out: np.ndarray
) -> None:
    """p-values of rows X (n, p) into ``out``; NaN where a row has no density. S, R and log_w are (n or 1, ...)."""
    k, d = means.shape
    nothing = np.empty((0, d))
    for i in range(len(X)):
        seen = np.flatnonzero(~np.isnan(X[i]))
        m = len(seen)
        if m == 0:
            out[i] = 1.0
            continue
        line = log_w[min(i, len(log_w) - 1)]
        peak, centre, L = np.empty(k), np.empty((k, m)), np.zeros((k, m, m))
        view = R[min(i, len(R) - 1)] if len(R) else nothing
        if not _prepare(line, means, V, S[min(i, len(S) - 1)], view, seen, peak, centre, L):
            out[i] = np.nan
            continue
        if m == 1:
            out[i] = one_value.p_value(X[i][seen[0]], peak, centre[:, 0], L[:, 0, 0], np.exp(line))
        else:
            out[i] = _p_value(X[i][seen], peak, centre, L, np.exp(line))
