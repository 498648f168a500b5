"""Inverses and determinants of covariances: compiled on a CPU, on a GPU by operations that a CUDA graph can record."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import torch
from numba import types
from torch import Tensor

from ..system.keeping import compiled_sum


def inverse_of(V: Tensor) -> Tensor:
    """V^-1 of covariances (..., d, d); NaN where V is not positive definite."""
    return inverse_and_log_det(V)[0]


def inverse_and_log_det(V: Tensor) -> tuple[Tensor, Tensor]:
    """V^-1 (..., d, d) and log |V| (...) of covariances; NaN where V is not positive definite."""
    if V.device.type != "cpu" or V.dtype != torch.float64 or V.requires_grad:
        return _by_torch(V)
    inverse, log_det = torch.empty(V.shape, dtype=V.dtype), torch.empty(V.shape[:-2], dtype=V.dtype)
    cubes = (t.detach().contiguous().view(-1, *V.shape[-2:]).numpy() for t in (V, inverse))
    _compiled()(*cubes, log_det.view(-1).numpy())
    return inverse, log_det


def _by_torch(V: Tensor) -> tuple[Tensor, Tensor]:
    L, failed = torch.linalg.cholesky_ex(V)
    L = torch.where((failed > 0)[..., None, None], torch.nan, L)
    eye = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device).expand_as(L)
    A = torch.linalg.solve_triangular(L, eye, upper=False)
    return A.mT @ A, 2 * L.diagonal(0, -2, -1).log().sum(-1)


@cache
def _compiled() -> Callable[..., None]:
    cube = types.float64[:, :, ::1]
    return compiled_sum(_invert, types.void(cube, cube, types.float64[::1]), "inverses")


def _invert(V, inverse, log_det):  # type: ignore[no-untyped-def]
    """By a factor L, whose inverse is made below the diagonal of ``inverse`` first."""
    for j in range(len(V)):
        L, A = V[j].copy(), inverse[j]
        d, log_det[j] = len(L), 0.0
        for a in range(d):
            for b in range(a + 1):
                for c in range(b):
                    L[a, b] -= L[a, c] * L[b, c]
                if b < a:
                    L[a, b] /= L[b, b]
            log_det[j] += math.log(L[a, a]) if L[a, a] > 0.0 else math.nan
            L[a, a] = math.sqrt(L[a, a]) if L[a, a] > 0.0 else math.nan
        for b in range(d):
            for a in range(b, d):
                A[a, b] = 1.0 if a == b else 0.0
                for c in range(b, a):
                    A[a, b] -= L[a, c] * A[c, b]
                A[a, b] /= L[a, a]
        for a in range(d):
            for b in range(a + 1):
                total = 0.0
                for c in range(a, d):
                    total += A[c, a] * A[c, b]
                A[b, a] = total  # above the diagonal, and on it: no later entry needs what was there
        for a in range(d):
            for b in range(a):
                A[a, b] = A[b, a]
