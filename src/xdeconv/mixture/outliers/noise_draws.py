"""The loops behind ``like_noise``, compiled: draws of a mixture, and how densities move with noise.

Draw m is component j, a vector z and a weight; with noise S it lies at x = m_j + A_j z, A_j A_j^T = T_j = V_j + S. Then
log f(x) = log(w_j N_j(x)) + rho, of which the first term is known for every S by the determinant of T_j alone, and rho
= -log r_j(x), zero where components lie apart, moves slowly with S. With v_l = T_l^-1 (x - m_l), r_l the
responsibilities, u = sum_l r_l v_l and dA_j = A_j Phi(A_j^-1 dS A_j^-T), Phi taking the lower triangle and half the
diagonal, the change of rho with S is

    d rho = tr(D dS),  2 D = sum_l r_l (v_l v_l^T - T_l^-1) - (v_j v_j^T - T_j^-1) + 2 A_j^-T Q A_j^-1,

Q = Phi(A_j^T (v_j - u) z^T).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .rays import _log_density, _prepare, _solve

FAST = {"reassoc", "contract", "arcp", "nsz"}
BLOCK = 1024  # draws at a time: how they move stays in a core's own memory
NOTHING = -20.0  # log of a responsibility that moves nothing


@njit(nogil=True, cache=True, error_model="numpy")
def _placed(z: np.ndarray, L: np.ndarray, centre: np.ndarray, x: np.ndarray) -> None:
    """x = centre + A z; the diagonal of L holds the reciprocals of A's."""
    for a in range(len(z)):
        x[a] = centre[a] + z[a] / L[a, a]
        for b in range(a):
            x[a] += L[a, b] * z[b]


@njit(nogil=True, cache=True, error_model="numpy")
def _back(L: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
    """out = A^-T y."""
    p = len(y)
    for a in range(p - 1, -1, -1):
        total = y[a]
        for b in range(a + 1, p):
            total -= L[b, a] * out[b]
        out[a] = total * L[a, a]


@njit(nogil=True, cache=True, error_model="numpy")
def _inverses(L: np.ndarray, inverse: np.ndarray, precision: np.ndarray) -> None:
    """A_j^-1 and T_j^-1 (k, p, p) of all components."""
    k, p = L.shape[:2]
    unit = np.zeros(p)
    out = np.empty(p)
    for j in range(k):
        for b in range(p):
            unit[:] = 0.0
            unit[b] = 1.0
            _solve(L[j], unit, out)
            inverse[j, :, b] = out
        precision[j] = inverse[j].T @ inverse[j]


@njit(nogil=True, cache=True, error_model="numpy")
def sloped(
    log_w: np.ndarray, means: np.ndarray, V: np.ndarray, S: np.ndarray, z: np.ndarray, component: np.ndarray,
    rho: np.ndarray, D: np.ndarray,
) -> bool:  # fmt: skip
    """rho (m,) of all draws with noise S (p, p), and how it moves (T, m) with each entry of the lower triangle of S."""
    k, p = means.shape
    seen = np.arange(p)
    peak, centre, L = np.empty(k), np.empty((k, p)), np.zeros((k, p, p))
    if not _prepare(log_w, means, V, S, np.empty((0, 0)), seen, peak, centre, L):
        return False
    inverse, precision = np.empty((k, p, p)), np.empty((k, p, p))
    _inverses(L, inverse, precision)
    x, away, y, v = np.empty(p), np.empty(p), np.empty((k, p)), np.empty(p)
    each, own, u, lead = np.empty(k), np.empty(p), np.empty(p), np.empty(p)
    G, B = np.empty((p, p)), np.empty((p, p))
    for m in range(len(z)):
        j = component[m]
        _placed(z[m], L[j], centre[j], x)
        most, size = -np.inf, 0.0
        for a in range(p):
            size += z[m, a] * z[m, a]
        for l in range(k):
            for a in range(p):
                away[a] = x[a] - centre[l, a]
            each[l] = peak[l] - 0.5 * _solve(L[l], away, y[l])
            most = max(most, each[l])
        total = 0.0
        for l in range(k):
            each[l] = math.exp(each[l] - most) if each[l] > most + NOTHING else 0.0
            total += each[l]
        rho[m] = most + math.log(total) - (peak[j] - 0.5 * size)
        _back(L[j], z[m], own)
        G[:] = 0.0
        u[:] = 0.0
        for l in range(k):
            r = each[l] / total
            if r == 0.0:
                continue
            _back(L[l], y[l], v)
            for a in range(p):
                u[a] += r * v[a]
                for b in range(a + 1):
                    G[a, b] += r * (v[a] * v[b] - precision[l, a, b])
        for a in range(p):  # lead = A_j^T (v_j - u)
            lead[a] = (own[a] - u[a]) / L[j, a, a]
            for b in range(a + 1, p):
                lead[a] += L[j, b, a] * (own[b] - u[b])
        for a in range(p):  # B = Q A_j^-1
            for b in range(p):
                B[a, b] = 0.5 * lead[a] * z[m, a] * inverse[j, a, b]
                for e in range(a):
                    B[a, b] += lead[a] * z[m, e] * inverse[j, e, b]
        e = 0
        for a in range(p):
            for b in range(a + 1):
                one, other = 0.0, 0.0
                for c in range(p):
                    one += inverse[j, c, a] * B[c, b]
                    other += inverse[j, c, b] * B[c, a]
                g = 0.5 * (G[a, b] - own[a] * own[b] + precision[j, a, b])
                D[e, m] = g + one if a == b else 2.0 * g + one + other
                e += 1
    return True


@njit(nogil=True, cache=True, error_model="numpy")
def exact(
    log_w: np.ndarray, means: np.ndarray, V: np.ndarray, S: np.ndarray, z: np.ndarray, component: np.ndarray,
    log_f: np.ndarray,
) -> bool:  # fmt: skip
    """log f (m,) of all draws with noise S (p, p)."""
    k, p = means.shape
    peak, centre, L = np.empty(k), np.empty((k, p)), np.zeros((k, p, p))
    if not _prepare(log_w, means, V, S, np.empty((0, 0)), np.arange(p), peak, centre, L):
        return False
    x, away, y, each = np.empty(p), np.empty(p), np.empty(p), np.empty(k)
    for m in range(len(z)):
        _placed(z[m], L[component[m]], centre[component[m]], x)
        most = -np.inf
        for l in range(k):
            for a in range(p):
                away[a] = x[a] - centre[l, a]
            each[l] = peak[l] - 0.5 * _solve(L[l], away, y)
            most = max(most, each[l])
        total = 0.0
        for l in range(k):
            if each[l] > most + NOTHING:
                total += math.exp(each[l] - most)
        log_f[m] = most + math.log(total)
    return True


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def _moved(
    base: np.ndarray, D: np.ndarray, change: np.ndarray, peak: np.ndarray, component: np.ndarray, start: int,
    out: np.ndarray,
) -> None:  # fmt: skip
    """log f of the draws from ``start`` on, as many as there is room for, with a row's noise, to first order."""
    for m in range(len(out)):
        out[m] = base[start + m] + peak[component[start + m]]
    for e in range(len(change)):
        d = change[e]
        slopes = D[e, start : start + len(out)]
        for m in range(len(out)):
            out[m] += slopes[m] * d


@njit(nogil=True, cache=True, error_model="numpy", fastmath=FAST)
def _below(level: float, log_f: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """The weight of draws below a level, and the sum of its squares."""
    total, squares = 0.0, 0.0
    for m in range(len(log_f)):
        w = weight[m] if log_f[m] <= level else 0.0
        total += w
        squares += w * w
    return total, squares


@njit(nogil=True, cache=True, error_model="numpy")
def p_values(
    log_w: np.ndarray, means: np.ndarray, V: np.ndarray, X: np.ndarray, S: np.ndarray, change: np.ndarray,
    base: np.ndarray, D: np.ndarray, weight: np.ndarray, component: np.ndarray, precision: float, out: np.ndarray,
) -> None:  # fmt: skip
    """p-values (n,) of rows with noise S and ``change`` (n, T) to it; NaN where too few draws lie below."""
    k, p = means.shape
    n, seen, nothing = len(X), np.arange(p), np.empty((0, 0))
    centre, L = np.empty((k, p)), np.zeros((k, p, p))
    peak, level, total, squares = np.empty((n, k)), np.empty(n), np.zeros(n), np.zeros(n)
    for i in range(n):
        level[i] = np.nan
        if _prepare(log_w, means, V, S[i], nothing, seen, peak[i], centre, L):
            level[i] = _log_density(X[i], peak[i], centre, L)
    log_f = np.empty(BLOCK)
    for start in range(0, len(base), BLOCK):
        some = log_f[: min(BLOCK, len(base) - start)]
        for i in range(n):
            _moved(base, D, change[i], peak[i], component, start, some)
            inside, more = _below(level[i], some, weight[start : start + len(some)])
            total[i] += inside
            squares[i] += more
    for i in range(n):
        known = squares[i] <= (precision * total[i]) ** 2 and total[i] > 0.0 and level[i] == level[i]
        out[i] = min(1.0, total[i]) if known else np.nan


@njit(nogil=True, cache=True, error_model="numpy")
def moved(
    log_w: np.ndarray, means: np.ndarray, V: np.ndarray, S: np.ndarray, change: np.ndarray, base: np.ndarray,
    D: np.ndarray, component: np.ndarray, log_f: np.ndarray,
) -> bool:  # fmt: skip
    """log f (m,) of all draws with noise S and the ``change`` (T,) to it, to first order."""
    k, p = means.shape
    peak, centre, L = np.empty(k), np.empty((k, p)), np.zeros((k, p, p))
    if not _prepare(log_w, means, V, S, np.empty((0, 0)), np.arange(p), peak, centre, L):
        return False
    _moved(base, D, change, peak, component, 0, log_f)
    return True
