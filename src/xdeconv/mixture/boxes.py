"""How much of a Gaussian lies in a box: in one dimension, for many boxes, and with correlations.

With covariance L L^T, the variables y = L^-1 x are independent, and the limits of each depend on those before it. Up to
three dimensions all but the last are integrated by Gauss and Legendre's rule, which is good to about 1e-8 and smooth in
every argument (in pieces where Gaussians are thin: :mod:`.thin_boxes`); above, by a lattice of fixed points (Genz
1992), with those coordinates first that are hardest to be inside of: to 5e-4 of itself for probabilities down to 1e-6,
in 4 to 10 dimensions.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..rows.batch import Batch
from .quadrature import gauss_legendre
from .thin_boxes import PIECED_NODES, STEEP, THIN, narrowest, pieced

FAR = 9.0  # standard deviations: beyond lies less than 1e-18
NODES, MORE = {1: 96, 2: 48}, {1: 96, 2: 112}  # of each integral, where one or two are made; more where it is steep
LATTICE, LARGER, MANY = 1 << 13, 1 << 15, 5  # points: of few dimensions, and from so many on, where 2^13 err by 4e-3
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
    low, high = low / size, high / size
    if m > 3:
        low, high, correlation = _ordered(low, high, correlation)
    L, failed = torch.linalg.cholesky_ex(correlation + TINY * torch.eye(m, dtype=low.dtype, device=low.device))
    L = torch.where((failed > 0)[..., None, None], torch.nan, L)
    inside = _by_rules(low, high, L) if m <= 3 else _lattice(low, high, L)
    return inside.clamp(min=0.0).log()


def _by_rules(low: Tensor, high: Tensor, L: Tensor) -> Tensor:
    """Probabilities in two or three dimensions, by more nodes where integrands are steep, in pieces of thin ones."""
    m = low.shape[-1]
    shape = torch.broadcast_shapes(low.shape[:-1], high.shape[:-1], L.shape[:-2])
    width = narrowest(L.reshape(-1, m, m)).view(L.shape[:-2])
    if bool((width >= STEEP).all()):
        return _nested(low, high, L, NODES[m - 1])
    bottom, top = (edge.expand(*shape, m).reshape(-1, m) for edge in (low, high))
    root, width = L.expand(*shape, m, m).reshape(-1, m, m), width.expand(shape).reshape(-1)
    inside = torch.zeros_like(bottom[:, 0])
    smooth, steep = width >= STEEP, (width >= THIN) & (width < STEEP)
    for kind, each in ((smooth, NODES[m - 1]), (steep, MORE[m - 1]), (~(width >= THIN), 0)):
        nodes = each ** (m - 1) if each else PIECED_NODES[m]
        for some in kind.nonzero()[:, 0].split(max(1, CHUNK_NUMBERS // nodes)):
            part = bottom[some], top[some], root[some]
            inside[some] = _nested(*part, each) if each else pieced(*part)
    return inside.view(shape)


def _nested(low: Tensor, high: Tensor, L: Tensor, nodes_each: int) -> Tensor:
    """Probabilities by Gauss and Legendre's rule in all dimensions but the last."""
    m = low.shape[-1]
    nodes, weights = gauss_legendre(nodes_each, low)
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
        bottom, top = ((edge[:, a, None] - shift) / L[:, a, a, None] for edge in (low, high))
        right = bottom > 0  # where probabilities are close to 1, those of the other side are exact
        start, end = (torch.special.ndtr(torch.where(right, -b, a)) for a, b in ((bottom, top), (top, bottom)))
        width = (end - start).clamp(min=0.0)
        total = total * width
        if a < points.shape[1]:
            share = torch.where(right, 1 - points[:, a], points[:, a])
            drawn = torch.special.ndtri((start + share * width).clamp(SMALLEST, 1 - 1e-16))
            y.append(torch.where(right, -drawn, drawn))
    return total.mean(-1)


def _ordered(low: Tensor, high: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Coordinates in an order that makes the integrand flat: next is always that which is hardest to be inside of.

    The limits of each are judged with those before it at their means within their own (Gibson, Glasbey & Elston 1994).
    """
    order = _order(low.detach(), high.detach(), covariance.detach())
    lines = covariance.gather(-2, order[..., None].expand_as(covariance))
    return low.gather(-1, order), high.gather(-1, order), lines.gather(-1, order[..., None, :].expand_as(covariance))


def _order(a: Tensor, b: Tensor, C: Tensor) -> Tensor:
    """Places (..., m) of the coordinates, one after the other."""
    order = torch.zeros(a.shape, dtype=torch.int64, device=a.device)
    left = torch.ones(a.shape, dtype=torch.bool, device=a.device)
    for step in range(a.shape[-1]):
        size = C.diagonal(dim1=-2, dim2=-1).clamp(min=TINY).sqrt()
        chance = torch.where(left, log_interval(a / size, b / size), torch.inf)
        chosen = chance.argmin(-1, keepdim=True)
        order[..., step : step + 1] = chosen
        left = left.scatter(-1, chosen, False)
        width = size.gather(-1, chosen)
        inside = _mean_inside(a.gather(-1, chosen) / width, b.gather(-1, chosen) / width)
        column = C.gather(-1, chosen[..., None].expand(*C.shape[:-1], 1))[..., 0] / width
        a, b = a - column * inside, b - column * inside
        C = C - column[..., :, None] * column[..., None, :]
    return order


def _mean_inside(low: Tensor, high: Tensor) -> Tensor:
    """The mean of a standard Gaussian between two limits."""
    log_width = log_interval(low, high)
    ends = ((-0.5 * edge * edge - log_width).clamp(max=700.0).exp() for edge in (low, high))
    mean = (next(ends) - next(ends)) / (2 * np.pi) ** 0.5
    return torch.where(log_width > -1e300, torch.minimum(torch.maximum(mean, low), high), (low + high) / 2)


def _points(dimensions: int) -> Tensor:
    """A lattice of the roots of primes, folded so that it is periodic."""
    primes = [n for n in range(2, 1000) if all(n % q for q in range(2, int(n**0.5) + 1))][:dimensions]
    count = LATTICE if dimensions < MANY else LARGER
    steps = torch.arange(1, count + 1, dtype=torch.float64)[:, None] * torch.tensor(primes).double().sqrt()
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
    size = max(1, CHUNK_NUMBERS // (NODES[2] ** 2 if batch.p == 3 else LARGER if batch.p > 3 else NODES[1]))
    for start in range(0, batch.n, size):
        rows = slice(start, start + size)
        noise = torch.where(both[rows], S if len(S) == 1 else S[rows], eye)
        logs.append(log_box(bottom[rows], top[rows], noise))
    return torch.cat(logs) if logs else batch.x.new_zeros(0, dtype=torch.float64)
