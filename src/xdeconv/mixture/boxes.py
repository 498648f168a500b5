"""How much of a Gaussian lies in a box: in one dimension, for many boxes, and with correlations.

With covariance L L^T, the variables y = L^-1 x are independent, and the limits of each depend on those before it. Up to
three dimensions all but the last are integrated by Gauss and Legendre's rule, which is good to about 1e-8 and smooth in
every argument; above, by a lattice of fixed points, to about 1e-4 (Genz 1992).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..rows.batch import Batch

FAR = 9.0  # standard deviations: beyond lies less than 1e-18
NODES = {1: 96, 2: 48}  # of each integral, where one or two are made
LATTICE = 1 << 13
CHUNK_NUMBERS = 1 << 22
SMALLEST = 1e-300
HUGE = 1e30
TINY = 1e-12  # of a standard deviation


def log_interval(low: Tensor, high: Tensor) -> Tensor:
    """log(Phi(high) - Phi(low)) of a standard Gaussian, exact far from 0 too; -inf where high <= low."""
    right = low > 0
    a, b = torch.where(right, -high, low), torch.where(right, -low, high)
    log_a, log_b = torch.special.log_ndtr(a), torch.special.log_ndtr(b)
    empty = ~(b > a)
    ratio = torch.where(empty, -1.0, log_a - log_b).clamp(max=-1e-15)
    return torch.where(empty, -torch.inf, log_b + torch.log1p(-ratio.exp()))


def log_box(low: Tensor, high: Tensor, covariance: Tensor) -> Tensor:
    """Log-probability (...) that a Gaussian of mean 0 and covariance (..., m, m) lies between low and high (..., m)."""
    m = low.shape[-1]
    low, high = low.clamp(min=-HUGE), high.clamp(max=HUGE)  # a derivative times infinity would be NaN
    size = covariance.diagonal(dim1=-2, dim2=-1).clamp(min=SMALLEST).sqrt()
    correlation = covariance / (size[..., :, None] * size[..., None, :])
    if m == 1:
        return log_interval(low[..., 0] / size[..., 0], high[..., 0] / size[..., 0])
    L, failed = torch.linalg.cholesky_ex(correlation + TINY * torch.eye(m, dtype=low.dtype, device=low.device))
    L = torch.where((failed > 0)[..., None, None], torch.nan, L)
    low, high = low / size, high / size
    inside = _nested(low, high, L) if m <= 3 else _lattice(low, high, L)
    return inside.clamp(min=0.0).log()


def _nested(low: Tensor, high: Tensor, L: Tensor) -> Tensor:
    """Probabilities by Gauss and Legendre's rule in all dimensions but the last."""
    m = low.shape[-1]
    rule = np.polynomial.legendre.leggauss(NODES[m - 1])
    nodes, weights = (torch.tensor(a, dtype=low.dtype, device=low.device) for a in rule)
    before: list[Tensor] = []
    total = torch.ones((), dtype=low.dtype, device=low.device)
    for a in range(m):
        shape = (..., *(None,) * a)
        shift = sum((L[..., a, c][shape] * y for c, y in enumerate(before)), torch.zeros_like(total))
        bottom, top = ((edge[..., a][shape] - shift) / L[..., a, a][shape] for edge in (low, high))
        if a == m - 1:
            total = total * (torch.special.ndtr(top) - torch.special.ndtr(bottom)).clamp(min=0.0)
            break
        bottom, top = bottom.clamp(-FAR, FAR)[..., None], top.clamp(-FAR, FAR)[..., None]
        half = (top - bottom).clamp(min=0.0) / 2
        y = bottom + half * (1 + nodes)
        before = [*(earlier[..., None] for earlier in before), y]
        total = total[..., None] * half * weights * (-0.5 * y * y).exp() / (2 * np.pi) ** 0.5
    return total.flatten(-(m - 1)).sum(-1) if m > 1 else total


def _lattice(low: Tensor, high: Tensor, L: Tensor) -> Tensor:
    """Probabilities by Genz's transformation to the unit cube and a fixed lattice there."""
    m = low.shape[-1]
    points = _points(m - 1).to(low)
    size = max(1, CHUNK_NUMBERS // len(points))
    bottom, top, root = (t.reshape(-1, *t.shape[low.ndim - 1 :]) for t in (low, high, L))
    starts = range(0, len(bottom), size)
    parts = [_cube(bottom[i : i + size], top[i : i + size], root[i : i + size], points) for i in starts]
    return torch.cat(parts).view(low.shape[:-1]) if parts else low.new_zeros(low.shape[:-1])


def _cube(low: Tensor, high: Tensor, L: Tensor, points: Tensor) -> Tensor:
    y: list[Tensor] = []
    total = torch.ones((), dtype=low.dtype, device=low.device)
    for a in range(low.shape[-1]):
        shift = sum((L[:, a, c, None] * earlier for c, earlier in enumerate(y)), torch.zeros_like(total))
        edges = ((edge[:, a, None] - shift) / L[:, a, a, None] for edge in (low, high))
        bottom, top = (torch.special.ndtr(edge) for edge in edges)
        width = (top - bottom).clamp(min=0.0)
        total = total * width
        if a < points.shape[1]:
            y.append(torch.special.ndtri((bottom + points[:, a] * width).clamp(1e-16, 1 - 1e-16)))
    return total.mean(-1)


def _points(dimensions: int) -> Tensor:
    """A lattice of the roots of primes, folded so that it is periodic."""
    primes = [n for n in range(2, 1000) if all(n % q for q in range(2, int(n**0.5) + 1))][:dimensions]
    steps = torch.arange(1, LATTICE + 1, dtype=torch.float64)[:, None] * torch.tensor(primes).double().sqrt()
    return 1 - (2 * (steps % 1.0) - 1).abs()


def log_convolved_box(low: Tensor, high: Tensor, batch: Batch) -> Tensor:
    """Log-probability (n,) that each row's true values lie in a box (d,), by its own noise alone; gaps do not count."""
    x = batch.x.double()
    seen = ~x.isnan()
    bottom, top = low[:, None] - x, high[:, None] - x
    if batch.full:
        return _correlated(bottom, top, seen, batch)
    variances = torch.zeros_like(x[:, :1]) if batch.noise is None else batch.noise.double()
    size = variances.sqrt().expand_as(x)
    exact = torch.where((bottom <= 0) & (top >= 0), 0.0, -torch.inf)
    safe = torch.where(size > 0, size, 1.0)
    inside = torch.where(size > 0, log_interval(bottom / safe, top / safe), exact)
    return torch.where(seen, inside, 0.0).sum(0)


def _correlated(bottom: Tensor, top: Tensor, seen: Tensor, batch: Batch) -> Tensor:
    both = (seen[:, None] & seen).permute(2, 0, 1)
    eye = torch.eye(batch.p, dtype=torch.float64, device=batch.device)
    S = batch.covariance().double()
    bottom, top = torch.where(seen, bottom, -torch.inf).T, torch.where(seen, top, torch.inf).T
    logs = []
    size = max(1, CHUNK_NUMBERS // (NODES[2] ** 2 if batch.p == 3 else LATTICE if batch.p > 3 else NODES[1]))
    for start in range(0, batch.n, size):
        rows = slice(start, start + size)
        noise = torch.where(both[rows], S if len(S) == 1 else S[rows], eye)
        logs.append(log_box(bottom[rows], top[rows], noise))
    return torch.cat(logs) if logs else batch.x.new_zeros(0, dtype=torch.float64)
