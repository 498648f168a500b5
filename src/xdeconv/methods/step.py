"""EM's step of each component, compiled: a call of torch costs more than what it computes here."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numba import types
from torch import Tensor

from ..system.keeping import compiled_loop, inner

ROUNDING = 2.0**-51


def takes(V: Tensor) -> bool:
    """Whether covariances are where and what compiled code reads."""
    return V.device.type == "cpu" and V.dtype == torch.float64


def step_of(V: Tensor, share: Tensor, g: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """Shifts (k, d) of means and covariances (k, d, d) after a step, as ``methods.em.moved_in_frame`` defines them."""
    delta, moved = torch.empty(g.shape, dtype=V.dtype), torch.empty(V.shape, dtype=V.dtype)
    room = np.empty((3, *V.shape[1:]))
    _compiled()(*(t.detach().contiguous().numpy() for t in (V, share, g, G)), room, delta.numpy(), moved.numpy())
    return delta, moved


@cache
def _compiled() -> Callable[..., None]:
    line, table, cube = types.float64[::1], types.float64[:, ::1], types.float64[:, :, ::1]
    return compiled_loop(_steps, types.void(cube, line, table, cube, cube, table, cube), "steps of EM")


def _steps(V, share, g, G, room, delta, moved):  # type: ignore[no-untyped-def]
    d, L, middle, work = V.shape[1], room[0], room[1], room[2]
    for j in range(len(V)):
        s = share[j]
        sound = _factor(V[j], L)
        if not sound:
            for a in range(d):
                for b in range(d):
                    L[a, b] = V[j, a, b]
        for a in range(d):
            delta[j, a] = 0.0
            for b in range(d):
                delta[j, a] += s * L[b, a] * g[j, b]  # u, as yet
        _around(L, G[j], s, work, middle)
        for a in range(d):
            for b in range(d):
                middle[a, b] -= delta[j, a] * delta[j, b]
                if not sound:
                    middle[a, b] += V[j, a, b]
            if sound:
                middle[a, a] += 1.0
        if sound and not _factor(middle, work):
            more = _rounding(L, G[j], s, delta[j])
            for a in range(d):
                middle[a, a] += more
        if sound:
            for a in range(d - 1, -1, -1):  # L u, where u was
                total = 0.0
                for b in range(a + 1):
                    total += L[a, b] * delta[j, b]
                delta[j, a] = total
            for a in range(d):
                for b in range(a):
                    L[b, a] = L[a, b]
                    L[a, b] = 0.0  # L^T
            _around(L, middle, 1.0, work, moved[j])
        for a in range(d):
            for b in range(d):
                if not s > 0.0:
                    moved[j, a, b] = V[j, a, b]
                elif not sound:
                    moved[j, a, b] = middle[a, b]


@inner
def _factor(A, L):  # type: ignore[no-untyped-def]
    """The Cholesky factor of A into L; whether there is one."""
    for a in range(len(A)):
        for b in range(len(A)):
            L[a, b] = A[a, b] if b <= a else 0.0
            for c in range(min(a, b)):
                L[a, b] -= L[a, c] * L[b, c] if b <= a else 0.0
            if b < a:
                L[a, b] /= L[b, b]
        if not L[a, a] > 0.0:
            return False
        L[a, a] = math.sqrt(L[a, a])
    return True


@inner
def _around(L, A, s, work, out):  # type: ignore[no-untyped-def]
    """s L^T A L into out."""
    for a in range(len(A)):
        for b in range(len(A)):
            work[a, b] = 0.0
        for c in range(len(A)):
            for b in range(len(A)):
                work[a, b] += A[a, c] * L[c, b]
    for a in range(len(A)):
        for b in range(len(A)):
            out[a, b] = 0.0
        for c in range(len(A)):
            for b in range(len(A)):
                out[a, b] += s * L[c, a] * work[c, b]


@inner
def _rounding(L, G, s, u):  # type: ignore[no-untyped-def]
    """How far rounding may have moved the middle: its trace, were all terms positive."""
    total = 1.0
    for a in range(len(L)):
        total += u[a] * u[a]
        for b in range(len(L)):
            for c in range(len(L)):
                total += s * abs(L[b, a] * G[b, c] * L[c, a])
    return ROUNDING * total
