"""How much of a thin Gaussian lies in a box of two or three dimensions: integrals in pieces, where edges are steep.

With covariance L L^T, and y = L^-1 x independent, the limits of one coordinate sweep across those of another as y
moves: over a width of L_11 / |L_10|, which may be 1e-6. Between such places the integrand is smooth, and so it is
within each when it is looked at closely.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .quadrature import gauss_legendre

STEEP, THIN = 0.6, 0.25  # of a standard deviation: narrower sweeps need more nodes, and pieces
FAR, WITHIN = 9.0, 7.0  # standard deviations: of a coordinate, and of a sweep
NODES = 16  # of each piece
KNOTS = (-3.0, 0.0, 3.0)  # between which a Gaussian itself is integrated
PIECED_NODES = {2: 160, 3: 448 * 160}  # in all: 3 points for each sweep, 2 or 8 of these


def narrowest(L: Tensor) -> Tensor:
    """The width (n,) of the narrowest sweep, by factors (n, m, m)."""
    nowhere = torch.zeros_like(L[..., 0])
    own = _sweeps(nowhere, nowhere, L)[1].amin(-1)
    return own if L.shape[-1] == 2 else torch.minimum(own, narrowest(L[:, 1:, 1:]))


def pieced(low: Tensor, high: Tensor, L: Tensor) -> Tensor:
    """Probabilities (n,) that a Gaussian of factor L (n, m, m) lies between low and high (n, m)."""
    bottom, top = (edge[:, 0] / L[:, 0, 0] for edge in (low, high))
    if low.shape[1] == 1:
        right = bottom > 0
        a, b = torch.where(right, -top, bottom), torch.where(right, -bottom, top)
        return (torch.special.ndtr(b) - torch.special.ndtr(a)).clamp(min=0.0)
    y, weight = _nodes(bottom.clamp(-FAR, FAR), top.clamp(-FAR, FAR), *_sweeps(low, high, L))
    shift = L[:, None, 1:, 0] * y[..., None]
    below, above = ((edge[:, None, 1:] - shift).flatten(0, 1) for edge in (low, high))
    inner = L[:, None, 1:, 1:].expand(-1, y.shape[1], -1, -1).flatten(0, 1)
    density = torch.exp(-0.5 * y * y) / (2 * np.pi) ** 0.5
    return (weight * density * pieced(below, above, inner).view_as(y)).sum(1)


def _sweeps(low: Tensor, high: Tensor, L: Tensor) -> tuple[Tensor, Tensor]:
    """Where (n, s) in the first y limits of other coordinates sweep across it, or across each other, and how widely."""
    at, width = [], []
    for a in range(1, L.shape[-1]):
        reach = L[:, a, 1 : a + 1].square().sum(-1).sqrt()
        at += [_over(edge[:, a], L[:, a, 0]) for edge in (low, high)]
        width += [_over(reach, L[:, a, 0].abs())] * 2
    if L.shape[-1] == 3:
        turn = L[:, 1, 0] * L[:, 2, 1] - L[:, 2, 0] * L[:, 1, 1]
        for one in (low, high):
            at += [_over(one[:, 1] * L[:, 2, 1] - other[:, 2] * L[:, 1, 1], turn) for other in (low, high)]
            width += [_over(L[:, 1, 1] * L[:, 2, 2], turn.abs())] * 2
    return torch.stack(at, 1), torch.stack(width, 1)


def _over(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b == 0, torch.inf, a / torch.where(b == 0, 1.0, b))


def _nodes(bottom: Tensor, top: Tensor, at: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and their weights (n, p NODES) between limits (n,), in pieces."""
    wide = width.clamp(max=FAR)
    points = [bottom[:, None], top[:, None], at - WITHIN * wide, at, at + WITHIN * wide]
    points.append(torch.tensor(KNOTS, dtype=at.dtype, device=at.device).expand(len(at), -1))
    top = torch.maximum(bottom, top)
    ends = torch.cat(points, 1).clamp(bottom[:, None], top[:, None]).sort(1).values
    nodes, weights = gauss_legendre(NODES, at)
    length, order = ends.diff(dim=1).sort(1, descending=True)
    there = max(1, int((length > 0).sum(1).max())) if len(length) else 1  # most pieces lie outside the limits
    half = length[:, :there, None] / 2
    y = ends.gather(1, order)[:, :there, None] + half * (1 + nodes)
    return y.flatten(1), (half * weights).flatten(1)
