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
    _at()(*_read(B, entries, least), np.empty((3, *B.shape[1:])), V.numpy())
    return V.to(B.device)


def gradient_at(B: Tensor, entries: Tensor, least: Tensor, G: Tensor) -> Tensor:
    """B^T G B C for the entries of C (k, d (d + 1) / 2), on the diagonal times C, and 0 where C is at its least."""
    out = torch.empty(entries.shape, dtype=torch.float64)
    _gradient()(*_read(B, entries, least, G), np.empty((3, *B.shape[1:])), out.numpy())
    return out.to(B.device)


def _read(*tensors: Tensor) -> list[np.ndarray]:
    return [t.detach().cpu().contiguous().numpy() for t in tensors]


@cache
def _at() -> Callable[..., None]:
    return compiled_sum(_fill_covariances, types.void(CUBE, TABLE, TABLE, CUBE, CUBE), "covariances")


@cache
def _gradient() -> Callable[..., None]:
    return compiled_sum(_fill_gradient, types.void(CUBE, TABLE, TABLE, CUBE, CUBE, TABLE), "gradients")


@inner
def _based(B, entries, least, room, j):  # type: ignore[no-untyped-def]
    """C and L = B C of component j into the first two matrices of room; what is above C's diagonal is not read."""
    d, e = B.shape[1], 0
    for a in range(d):
        for b in range(a):
            room[0, a, b] = entries[j, e]
            e += 1
        width = math.exp(entries[j, e])
        room[0, a, a] = least[j, a] if width < least[j, a] else width  # NaN stays NaN
        e += 1
    for a in range(d):
        for b in range(d):
            total = 0.0
            for c in range(b, d):
                total += B[j, a, c] * room[0, c, b]
            room[1, a, b] = total


def _fill_covariances(B, entries, least, room, V):  # type: ignore[no-untyped-def]
    d = B.shape[1]
    for j in range(len(B)):
        _based(B, entries, least, room, j)
        for a in range(d):
            for b in range(a + 1):
                total = 0.0
                for c in range(d):
                    total += room[1, a, c] * room[1, b, c]
                V[j, a, b] = total
                V[j, b, a] = total


def _fill_gradient(B, entries, least, G, room, out):  # type: ignore[no-untyped-def]
    d = B.shape[1]
    for j in range(len(B)):
        _based(B, entries, least, room, j)
        for a in range(d):
            for b in range(d):
                total = 0.0
                for c in range(d):
                    total += G[j, a, c] * room[1, c, b]
                room[2, a, b] = total
        e = 0
        for a in range(d):
            for b in range(a + 1):
                total = 0.0
                for c in range(d):
                    total += B[j, c, a] * room[2, c, b]
                if a == b:
                    total *= 0.0 if room[0, a, a] == least[j, a] else room[0, a, a]
                out[j, e] = total
                e += 1
