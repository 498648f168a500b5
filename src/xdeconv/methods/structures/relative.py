"""Covariances B C C^T B^T and the gradient on C, compiled: C are log-Cholesky factors relative to an anchor's B.

Their entries (k, d (d + 1) / 2) are those of the lower triangle, row by row, logarithms on its diagonal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numba import types
from torch import Tensor

from ...system.keeping import compiled_sum, inner

TABLE, CUBE = types.float64[:, ::1], types.float64[:, :, ::1]


def covariances_at(B: Tensor, entries: Tensor, least: Tensor) -> Tensor:
    """B C C^T B^T (k, d, d) of bases (k, d, d); C has at least ``least`` (k, d) on its diagonal."""
    V = torch.empty(B.shape, dtype=torch.float64)
    _at()(*_read(B, entries, least), V.numpy())
    return V.to(B.device)


def gradient_at(B: Tensor, entries: Tensor, least: Tensor, G: Tensor) -> Tensor:
    """B^T G B C for the entries of C (k, d (d + 1) / 2), on the diagonal times C, and 0 where C is at its least."""
    out = torch.empty(entries.shape, dtype=torch.float64)
    _gradient()(*_read(B, entries, least, G), out.numpy())
    return out.to(B.device)


def _read(*tensors: Tensor) -> list[np.ndarray]:
    return [t.detach().cpu().contiguous().numpy() for t in tensors]


@cache
def _at() -> Callable[..., None]:
    return compiled_sum(_fill_covariances, types.void(CUBE, TABLE, TABLE, CUBE), "covariances")


@cache
def _gradient() -> Callable[..., None]:
    return compiled_sum(_fill_gradient, types.void(CUBE, TABLE, TABLE, CUBE, TABLE), "gradients")


@inner
def _based(B, entries, least, C, L):  # type: ignore[no-untyped-def]
    """C and L = B C of one component; what is above the diagonal of C is not read."""
    d, e = len(least), 0
    for a in range(d):
        for b in range(a):
            C[a, b] = entries[e]
            e += 1
        width = math.exp(entries[e])
        C[a, a] = least[a] if width < least[a] else width  # NaN stays NaN
        e += 1
    for a in range(d):
        for b in range(d):
            total = 0.0
            for c in range(b, d):
                total += B[a, c] * C[c, b]
            L[a, b] = total


def _fill_covariances(B, entries, least, V):  # type: ignore[no-untyped-def]
    k, d, _ = B.shape
    C, L = np.empty((d, d)), np.empty((d, d))
    for j in range(k):
        _based(B[j], entries[j], least[j], C, L)
        for a in range(d):
            for b in range(a + 1):
                total = 0.0
                for c in range(d):
                    total += L[a, c] * L[b, c]
                V[j, a, b] = V[j, b, a] = total


def _fill_gradient(B, entries, least, G, out):  # type: ignore[no-untyped-def]
    k, d, _ = B.shape
    C, L, pulled = np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    for j in range(k):
        _based(B[j], entries[j], least[j], C, L)
        for a in range(d):
            for b in range(d):
                total = 0.0
                for c in range(d):
                    total += G[j, a, c] * L[c, b]
                pulled[a, b] = total
        e = 0
        for a in range(d):
            for b in range(a + 1):
                total = 0.0
                for c in range(d):
                    total += B[j, c, a] * pulled[c, b]
                if a == b:
                    total *= 0.0 if C[a, a] == least[j, a] else C[a, a]
                out[j, e] = total
                e += 1
