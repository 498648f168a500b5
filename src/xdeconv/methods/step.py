"""EM's step of each component, compiled: torch takes thirty calls for what is microseconds of arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from numba import types
from torch import Tensor

from ..system.keeping import compiled_loop
from .small import copy, factored, times, transpose

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
    L, T, middle, half = np.empty((d, d)), np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    u = np.empty(d)
    for j in range(k):
        s = share[j]
        if not s > 0:
            for a in range(d):
                delta[j, a] = 0.0 * s
            copy(V[j], moved[j])
            continue
        sound = factored(V[j], L)
        if not sound:  # no factor: V + s V G V - delta delta^T
            copy(V[j], L)
        transpose(L, T)
        times(G[j], L, half)
        times(T, half, middle)
        for a in range(d):
            value = 0.0
            for c in range(d):
                value += T[a, c] * g[j, c]
            u[a] = s * value
        for a in range(d):
            for b in range(d):
                core = V[j, a, b] if not sound else 1.0 if a == b else 0.0
                middle[a, b] = core + s * middle[a, b] - u[a] * u[b]
        if not sound:
            for a in range(d):
                delta[j, a] = u[a]
            copy(middle, moved[j])
            continue
        if not factored(middle, half):  # which rounding has made indefinite: a bound of that rounding is added
            size = 0.0
            for a in range(d):
                size += u[a] * u[a]
                for c in range(d):
                    for b in range(d):
                        size += s * abs(T[a, c]) * abs(G[j, c, b]) * abs(T[a, b])
            for a in range(d):
                middle[a, a] += ROUNDING * (1 + size)
        for a in range(d):
            value = 0.0
            for c in range(d):
                value += L[a, c] * u[c]
            delta[j, a] = value
        times(L, middle, half)
        times(half, T, moved[j])
