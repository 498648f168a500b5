"""What a row shows of each component, with its own noise, gaps and projection, compiled."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(nogil=True, cache=True, error_model="numpy")
def shown(
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
def solve(L: np.ndarray, b: np.ndarray, out: np.ndarray) -> float:
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
def log_density(x: np.ndarray, peak: np.ndarray, centre: np.ndarray, L: np.ndarray) -> float:
    """log f(x); NaN where it overflows."""
    k, p = centre.shape
    each, away, out = np.empty(k), np.empty(p), np.empty(p)
    most = -np.inf
    for j in range(k):
        for a in range(p):
            away[a] = x[a] - centre[j, a]
        each[j] = peak[j] - 0.5 * solve(L[j], away, out)
        most = max(most, each[j])
    if most == -np.inf:
        return most
    total = 0.0
    for j in range(k):
        total += math.exp(each[j] - most)
    return most + math.log(total)
