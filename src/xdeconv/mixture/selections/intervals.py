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

from ..boxes import log_box
from ..quadrature import gauss_legendre

NODES = ((0.3, 8), (0.75, 14), (0.9, 20))  # of the integral over the correlation of two coordinates, up to so large a
# one: good to 1e-13
STEEP = 20  # nodes of that from a larger one to 1
ROOT = 0.5**0.5
FAR = 9.0  # standard deviations: a corner beyond has a density below 1e-18


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
    low, high = low / sd, high / sd
    each = _interval(low, high)
    if m == 1:
        return each[..., 0]
    return (each.prod(-1) + _correlated(low, high, T[..., 0, 1] / sd.prod(-1))).clamp(0.0, 1.0)


def _interval(low: Tensor, high: Tensor) -> Tensor:
    """Phi(high) - Phi(low) of a standard Gaussian, from the tail that both are nearer to: exact far from 0 too."""
    right = low > 0
    a, b = torch.where(right, -high, low), torch.where(right, -low, high)
    return ((torch.special.erfc(b * -ROOT) - torch.special.erfc(a * -ROOT)) / 2).clamp(min=0.0)


def _correlated(low: Tensor, high: Tensor, r: Tensor) -> Tensor:
    """What a correlation r adds to the share of two coordinates: the integral of the density at corners up to r."""
    total = torch.zeros_like(r)
    for s, x in ((1.0, high), (-1.0, low)):
        for t, y in ((1.0, high), (-1.0, low)):
            h, k = x[..., 0].expand_as(r), y[..., 1].expand_as(r)
            near, least = (h.abs() < FAR) & (k.abs() < FAR), 0.0
            for most, nodes in NODES if bool(near.any()) else ():
                some = near & (r.abs() <= most) & (r.abs() > least)
                total[some] += s * t * _corner(h[some], k[some], r[some], nodes)
                least = most
            some = near & (r.abs() > least)
            if bool(some.any()):
                total[some] += s * t * _steep_corner(h[some], k[some], r[some])
    return total


def _corner(h: Tensor, k: Tensor, r: Tensor, count: int) -> Tensor:
    """The integral (n,) of the density of two standard Gaussians at (h, k) over their correlation, from 0 to r."""
    nodes, weights = gauss_legendre(count, r)
    top = torch.asin(r)
    sine = torch.sin(top[:, None] * ((nodes + 1) / 2))
    exponent = ((h * k)[:, None] * sine - ((h * h + k * k) / 2)[:, None]) / (1 - sine * sine).clamp(min=1e-15)
    return torch.exp(exponent) @ weights * top / (4 * np.pi)


def _steep_corner(h: Tensor, k: Tensor, r: Tensor) -> Tensor:
    """The same where |r| is near 1, where the density is a ridge: what it is at 1, less the integral from r to there.

    With 1 - r'^2 = x^2 that is of exp(-(h - k)^2 / (2 x^2)) times what is smooth in x. Of that the first terms of a
    series are integrated in closed form, the rest by nodes (Genz 2004).
    """
    sign = torch.where(r < 0, -1.0, 1.0)
    k = sign * k
    hk, b2, a2 = h * k, (h - k) ** 2, (1 - r) * (1 + r)
    a, b, c, d = a2.sqrt(), (h - k).abs(), (4 - hk) / 8, (12 - hk) / 16
    far = torch.where(b > 0, b / a.clamp(min=1e-300), 0.0)
    series = a * torch.exp(-0.5 * (far**2 + hk)) * (1 - c * (b2 - a2) * (1 - d * b2 / 5) / 3 + c * d * a2**2 / 5)
    series = series - (2 * np.pi) ** 0.5 * b * torch.exp(-0.5 * hk) * torch.special.ndtr(-far) * (
        1 - c * b2 * (1 - d * b2 / 5) / 3
    )
    nodes, weights = gauss_legendre(STEEP, r)
    x2 = (a[:, None] * ((nodes + 1) / 2)) ** 2
    root, hk = (1 - x2).sqrt(), hk[:, None]
    rest = torch.exp(-hk * x2 / (2 * (1 + root) ** 2)) / root - (1 + c[:, None] * x2 * (1 + d[:, None] * x2))
    ridge = torch.where(b2[:, None] > 0, b2[:, None] / x2.clamp(min=1e-300), 0.0)
    missing = series + (torch.exp(-0.5 * (ridge + hk)) * rest) @ weights * (a / 2)
    whole = torch.special.ndtr(torch.minimum(h, k)) * torch.special.ndtr(-torch.maximum(h, k))
    return sign * (whole - missing / (2 * np.pi))


def _pair(one: Tensor, two: Tensor, a: int, b: int) -> Tensor:
    """Edges whose coordinate a is of one side and b of another."""
    at = one.clone()
    at[..., b] = two[..., b]
    return at


def _at(edge: Tensor, which: list[int], low: Tensor, high: Tensor, T: Tensor) -> Tensor:
    """The density at some coordinates of ``edge``, falling, of what lies between those of the others; 0 at infinity."""
    if not which:
        return share(low, high, T)
    a, rest = which[0], [c for c in range(low.shape[-1]) if c != which[0]]
    nowhere = edge[..., a].isinf()
    if bool(nowhere.all()):
        return torch.zeros_like(edge[..., 0])
    t, own = _finite(edge[..., a]), T[..., a, a]
    density = torch.where(nowhere, 0.0, torch.exp(t * t / (-2 * own)) / (2 * np.pi * own).sqrt())
    if not rest:
        return density
    slope = T[..., a, rest] / own[..., None]
    given, shift = T[..., rest, :][..., rest] - slope[..., :, None] * T[..., None, a, rest], slope * t[..., None]
    return density * _at(edge[..., rest] - shift, which[1:], low[..., rest] - shift, high[..., rest] - shift, given)


def _finite(edge: Tensor) -> Tensor:
    return torch.where(edge.isinf(), 0.0, edge)
