"""Posterior means and covariances of rows, by dense torch algebra: what fast kernels are pinned to.

Under component j the true value of row i is N(b_ij, B_ij) (:mod:`xdeconv.kernels.conditionals`). Over all components
its mean is sum_j r_ij b_ij, and its covariance sum_j r_ij (B_ij + (b_ij - mean)(b_ij - mean)^T).

Where a value is observed as it is, without a projection, the mean is given as its distance from that value: what noise
of a milliarcsecond tells of a position of many degrees is not lost in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..rows.batch import Batch
from .conditionals import conditionals
from .grouped import grouped_sum
from .parameters import Parameters

PAIR_NUMBERS = 1 << 22  # numbers in one (n, k, p, p) array of a chunk of rows and components
NEGLIGIBLE = {torch.float64: 2.0**-60, torch.float32: 2.0**-32}  # responsibility: below rounding


def moments(parameters: Parameters, batch: Batch, log_joint: Tensor) -> tuple[Tensor, Tensor]:
    """Distances of means (n, d) and packed covariances (n, d (d + 1) / 2) of rows, from log_joint (n, k)."""
    weights = torch.softmax(log_joint, dim=1)
    i, j = torch.nonzero(~(weights < NEGLIGIBLE[batch.dtype]), as_tuple=True)
    parameters = parameters.to(dtype=batch.dtype)
    b, B, _ = conditionals(parameters, batch, i, j)
    if batch.projection is None:
        x = batch.x.T[i]
        b = torch.where(x.isnan(), b, b - x)
    r = weights[i, j]
    mean = grouped_sum(r[:, None] * b, i, batch.n)
    away = b - mean[i]
    spread = r[:, None, None] * (B + away[:, :, None] * away[:, None, :])
    return mean, packed(grouped_sum(spread, i, batch.n))


def chunk_rows(k: int, d: int) -> int:
    """Rows whose pairs are in memory at a time."""
    return max(1, PAIR_NUMBERS // (k * d**2))


def packed(B: Tensor) -> Tensor:
    """Lower triangles (n, d (d + 1) / 2) of symmetric matrices (n, d, d)."""
    a, b = torch.tril_indices(B.shape[-1], B.shape[-1], device=B.device)
    return B[:, a, b]


def unpacked(triangles: Tensor, keep: Tensor) -> Tensor:
    """Some lines and columns (n, ...) of symmetric matrices, from their lower triangles."""
    high, low = torch.maximum(keep[:, None], keep), torch.minimum(keep[:, None], keep)
    places = (high * (high + 1) // 2 + low).flatten().to(triangles.device)
    return triangles[:, places].unflatten(1, (len(keep), len(keep)))
