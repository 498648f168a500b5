"""EM's step of each component, compiled: torch takes thirty calls for what is microseconds of arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numba import njit, types
from torch import Tensor

from ..system.keeping import compiled_loop

ROUNDING = 2.0**-51


def takes(V: Tensor) -> bool:
    """Whether covariances are where and what the compiled step reads."""
    return V.device.type == "cpu" and V.dtype == torch.float64


def step_of(V: Tensor, share: Tensor, g: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """Shifts (k, d) of means and covariances (k, d, d) after a step, as ``methods.em.moved_in_frame`` defines them."""
    delta, moved = torch.empty_like(g), torch.empty_like(V, memory_format=torch.contiguous_format)
    _compiled()(*(t.contiguous().numpy() for t in (V, share, g, G)), delta.numpy(), moved.numpy())
    return delta, moved


@cache
def _compiled() -> Callable[..., None]:
    real = types.float64
    signature = types.void(real[:, :, ::1], real[::1], real[:, ::1], real[:, :, ::1], real[:, ::1], real[:, :, ::1])
    return compiled_loop(_step, signature, "steps of EM")


def _step(V, share, g, G, delta, moved):  # type: ignore[no-untyped-def]
    """V' = L (I + s L^T G L - u u^T) L^T with V = L L^T and u = s L^T g; delta = L u."""
    k, d = g.shape
    L, middle, half, spare = np.empty((d, d)), np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    u = np.empty(d)
    for j in range(k):
        s = share[j]
        if not s > 0:
            delta[j] = 0.0 * s
            moved[j] = V[j]
            continue
        sound = _factored(V[j], L)
        if not sound:  # no factor: V + s V G V - delta delta^T
            L[:] = V[j]
        size = 0.0
        for a in range(d):
            for b in range(d):
                value = 0.0
                for c in range(b if sound else 0, d):
                    value += G[j, a, c] * L[c, b]
                half[a, b] = value
        for a in range(d):
            value = 0.0
            for c in range(a if sound else 0, d):
                value += L[c, a] * g[j, c]
            u[a] = s * value
        for a in range(d):
            for b in range(d):
                value = 0.0
                for c in range(a if sound else 0, d):
                    value += L[c, a] * half[c, b]
                core = V[j, a, b] if not sound else 1.0 if a == b else 0.0
                middle[a, b] = core + s * value - u[a] * u[b]
        if not sound:
            delta[j] = u
            moved[j] = middle
            continue
        if not _factored(middle, spare):  # which rounding has made indefinite: a bound of that rounding is added
            for a in range(d):
                size += u[a] * u[a]
                for c in range(a, d):
                    for b in range(a, d):
                        size += s * abs(L[c, a]) * abs(G[j, c, b]) * abs(L[b, a])
            for a in range(d):
                middle[a, a] += ROUNDING * (1 + size)
        for a in range(d):
            value = 0.0
            for c in range(a + 1):
                value += L[a, c] * u[c]
            delta[j, a] = value
            for b in range(d):
                value = 0.0
                for c in range(a + 1):
                    value += L[a, c] * middle[c, b]
                half[a, b] = value
        for a in range(d):
            for b in range(d):
                value = 0.0
                for c in range(b + 1):
                    value += half[a, c] * L[b, c]
                moved[j, a, b] = value


@njit(nogil=True, error_model="numpy")
def _factored(A, L):  # type: ignore[no-untyped-def]
    """Write the Cholesky factor of A (d, d) into L; whether there is one."""
    d = len(A)
    L[:] = 0.0
    for a in range(d):
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
