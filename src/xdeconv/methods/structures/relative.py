"""Covariances B C C^T B^T and the gradient on C, compiled: C are log-Cholesky factors relative to an anchor's B.

Their entries (k, d (d + 1) / 2) are those of the lower triangle, row by row, logarithms on its diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numba import types
from torch import Tensor

from ...system.keeping import compiled_loop, inner
from ..small import times, transpose


def covariances_at(B: Tensor, entries: Tensor, least: Tensor) -> Tensor:
    """B C C^T B^T (k, d, d) of bases (k, d, d); C has at least ``least`` (k, d) on its diagonal."""
    V = torch.empty(B.shape, dtype=torch.float64)
    _compiled()[0](*_read(B, entries, least), V.numpy())
    return V.to(B.device)


def gradient_at(B: Tensor, entries: Tensor, least: Tensor, G: Tensor) -> Tensor:
    """B^T G B C for the entries of C (k, d (d + 1) / 2), on the diagonal times C, and 0 where C is at its least."""
    out = torch.empty(entries.shape, dtype=torch.float64)
    _compiled()[1](*_read(B, entries, least, G), out.numpy())
    return out.to(B.device)


def _read(*tensors: Tensor) -> list[np.ndarray]:
    return [t.detach().cpu().contiguous().numpy() for t in tensors]


@cache
def _compiled() -> tuple[Callable[..., None], Callable[..., None]]:
    matrices, lines = types.float64[:, :, ::1], types.float64[:, ::1]
    at = types.void(matrices, lines, lines, matrices)
    gradient = types.void(matrices, lines, lines, matrices, lines)
    what = "covariances"
    return compiled_loop(_covariances, at, what), compiled_loop(_gradient, gradient, what)


def _covariances(B, entries, least, V):  # type: ignore[no-untyped-def]
    k, d, _ = B.shape
    C, L, T = np.zeros((d, d)), np.empty((d, d)), np.empty((d, d))
    for j in range(k):
        _factor(entries[j], least[j], C)
        times(B[j], C, L)
        transpose(L, T)
        times(L, T, V[j])


def _gradient(B, entries, least, G, out):  # type: ignore[no-untyped-def]
    k, d, _ = B.shape
    C, L, T = np.zeros((d, d)), np.empty((d, d)), np.empty((d, d))
    for j in range(k):
        _factor(entries[j], least[j], C)
        times(B[j], C, L)
        times(G[j], L, T)
        transpose(B[j], L)
        _on_entries(L, T, C, least[j], out[j])


@inner
def _factor(entries, least, C):  # type: ignore[no-untyped-def]
    """Write C (d, d), whose upper triangle is zero."""
    at = 0
    for a in range(len(C)):
        for b in range(a):
            C[a, b] = entries[at]
            at += 1
        width = np.exp(entries[at])
        C[a, a] = least[a] if width < least[a] else width  # NaN stays NaN
        at += 1


@inner
def _on_entries(A, H, C, least, out):  # type: ignore[no-untyped-def]
    """Write the lower triangle of A H, line by line, on the diagonal times C, and 0 where C is at its least."""
    at = 0
    for a in range(len(C)):
        for b in range(a + 1):
            value = 0.0
            for c in range(len(C)):
                value += A[a, c] * H[c, b]
            if a == b:
                value *= C[a, a] if C[a, a] > least[a] else 0.0
            out[at] = value
            at += 1
