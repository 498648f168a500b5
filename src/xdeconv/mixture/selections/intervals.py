"""Gaussians between edges: how much of each lies there, and the first two derivatives of that by its mean.

With f_a(t) the density at x_a = t of what lies between the other edges, the slope by m_a is f_a(low) - f_a(high); the
curvature by m_a and m_b is the sum over corners, with signs, of the density there of what lies between the rest; and
along one coordinate it follows from those. All is exact but the share itself with two coordinates or more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..boxes import log_box, log_interval

NODES = 32  # of the integral over the correlation of two coordinates: good to 1e-12 up to 0.95, to 1e-7 at 0.995


class Box(NamedTuple):
    """What lies inside (...), its slope (..., m) and its curvature (..., m, m) by the mean."""

    value: Tensor
    slope: Tensor
    curvature: Tensor


def box(low: Tensor, high: Tensor, T: Tensor) -> Box:
    """Of Gaussians of mean 0 and covariance T (..., m, m), between low and high (..., m).

    >>> value, slope, curvature = box(torch.tensor([0.0]), torch.tensor([torch.inf]), torch.tensor([[1.0]]))
    >>> float(value), round(float(slope), 4)
    (0.5, 0.3989)
    """
    shape = torch.broadcast_shapes(low.shape, high.shape, T.shape[:-1])
    low, high, T = low.expand(shape), high.expand(shape), T.expand(*shape, shape[-1])
    value = share(low, high, T)
    m = shape[-1]
    slope, curvature = torch.zeros_like(low), torch.zeros_like(T)
    pull = torch.zeros_like(low)  # f(low) low - f(high) high
    for a in range(m):
        for edge, sign in ((low, 1.0), (high, -1.0)):
            f = sign * _at(edge, [a], low, high, T)
            slope[..., a] = slope[..., a] + f
            pull[..., a] = pull[..., a] + f * _finite(edge[..., a])
        for b in range(a):
            corners = [
                (s * t, one, two) for s, one in ((1.0, high), (-1.0, low)) for t, two in ((1.0, high), (-1.0, low))
            ]
            H = sum(sign * _at(_pair(one, two, a, b), [a, b], low, high, T) for sign, one, two in corners)
            curvature[..., a, b] = curvature[..., b, a] = H
    own = T.diagonal(dim1=-2, dim2=-1)
    across = (T * curvature).sum(-1)
    return Box(value, slope, curvature + torch.diag_embed((pull - across) / own))


def share(low: Tensor, high: Tensor, T: Tensor) -> Tensor:
    """How much (...) lies between the edges."""
    m = low.shape[-1]
    if m == 0:
        return torch.ones(low.shape[:-1], dtype=low.dtype, device=low.device)
    if m > 2:
        return log_box(low, high, T).exp()
    sd = T.diagonal(dim1=-2, dim2=-1).sqrt()
    each = log_interval(low / sd, high / sd).exp()
    if m == 1:
        return each[..., 0]
    return (each.prod(-1) + _correlated(low / sd, high / sd, T[..., 0, 1] / sd.prod(-1))).clamp(0.0, 1.0)


def _correlated(low: Tensor, high: Tensor, r: Tensor) -> Tensor:
    """What a correlation r adds to the share of two coordinates: the integral of the density at corners up to r."""
    nodes, weights = (
        torch.tensor(t, dtype=low.dtype, device=low.device) for t in np.polynomial.legendre.leggauss(NODES)
    )
    top = torch.asin(r.clamp(-1.0, 1.0))[..., None]
    angle = top * (nodes + 1) / 2
    sine, square = torch.sin(angle), torch.cos(angle) ** 2
    total = torch.zeros_like(r)
    for s, x in ((1.0, high), (-1.0, low)):
        for t, y in ((1.0, high), (-1.0, low)):
            h, k = x[..., 0, None], y[..., 1, None]
            if bool((h.isinf() | k.isinf()).all()):
                continue
            h, k = h.clamp(-40.0, 40.0), k.clamp(-40.0, 40.0)
            density = torch.exp(-(h * h + k * k - 2 * h * k * sine) / (2 * square.clamp(min=1e-15)))
            total = total + s * t * (density * weights).sum(-1)
    return total * top[..., 0] / (4 * np.pi)


def _pair(one: Tensor, two: Tensor, a: int, b: int) -> Tensor:
    """Edges whose coordinate a is of one side and b of another."""
    at = one.clone()
    at[..., b] = two[..., b]
    return at


def _at(edge: Tensor, which: list[int], low: Tensor, high: Tensor, T: Tensor) -> Tensor:
    """The density at some coordinates of ``edge`` of what lies between the edges of the others; 0 at infinity."""
    rest = [c for c in range(low.shape[-1]) if c not in which]
    nowhere = edge[..., which].isinf().any(-1)
    if bool(nowhere.all()):
        return torch.zeros_like(edge[..., 0])
    t, S = _finite(edge[..., which]), T[..., which, :][..., which]
    L = S.sqrt() if len(which) == 1 else torch.linalg.cholesky_ex(S)[0]
    z = _solved(L, t[..., None])
    log_density = (
        -0.5 * (z * z).sum((-2, -1)) - L.diagonal(dim1=-2, dim2=-1).log().sum(-1) - len(which) * np.log(2 * np.pi) / 2
    )
    inside = torch.ones_like(log_density)
    if rest:
        half = _solved(L, T[..., which, :][..., rest])
        shift = (half.mT @ z)[..., 0]
        inside = share(low[..., rest] - shift, high[..., rest] - shift, T[..., rest, :][..., rest] - half.mT @ half)
    return torch.where(nowhere, 0.0, log_density.exp() * inside)


def _solved(L: Tensor, B: Tensor) -> Tensor:
    """L^-1 B, without a solver where L is a single number."""
    return B / L if L.shape[-1] == 1 else torch.linalg.solve_triangular(L, B, upper=False)


def _finite(edge: Tensor) -> Tensor:
    return torch.where(edge.isinf(), 0.0, edge)
