"""Algebra of small matrices (d, d) inside compiled loops: one specialization each, so that little is compiled."""

from __future__ import annotations

import numpy as np

from ..system.keeping import inner


@inner
def copy(A, B):  # type: ignore[no-untyped-def]
    """Write A into B: an assignment of slices takes seconds to compile, for its message about shapes."""
    for a in range(len(A)):
        for b in range(len(A)):
            B[a, b] = A[a, b]


@inner
def transpose(A, B):  # type: ignore[no-untyped-def]
    """Write A^T into B."""
    for a in range(len(A)):
        for b in range(len(A)):
            B[b, a] = A[a, b]


@inner
def times(A, B, C):  # type: ignore[no-untyped-def]
    """Write A B into C."""
    d = len(A)
    for a in range(d):
        for b in range(d):
            C[a, b] = 0.0
        for c in range(d):
            value = A[a, c]
            for b in range(d):
                C[a, b] += value * B[c, b]


@inner
def factored(A, L):  # type: ignore[no-untyped-def]
    """Write the Cholesky factor of A into L; whether there is one."""
    d = len(A)
    for a in range(d):
        for b in range(a + 1, d):
            L[a, b] = 0.0
        for b in range(a + 1):
            value = A[a, b]
            for c in range(b):
                value -= L[a, c] * L[b, c]
            if a > b:
                L[a, b] = value / L[b, b]
            elif value > 0:
                L[a, a] = np.sqrt(value)
            else:  # which NaN is, too
                return False
    return True
