"""Chances of rows of like noise: few draws of each row, shared by rows that are alike.

The logarithm of a mean over few draws is biased, so rows share theirs. They are split by medians of their noise into
groups with some thousands of draws each, in which P is taken as linear in the logarithms of the noise: a linear
smoother, P = H y with y (n,) the means over the draws of each row. The derivative of sum_i w_i log P_i by y is then
H^T (w / P).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...rows.batch import Batch
from .contract import FLOOR

GROUP_DRAWS = 1 << 11  # of a group, at least: quasi-random ones, so that P is then known to 0.5 % of itself
LEAST = 0.2  # of the mean of a group, that a row's chance may fall to
SMALLEST = 1e-300


class Groups(NamedTuple):
    """Rows of like gaps and noise: which (g, most), -1 where there are fewer, and what P is linear in (g, most, f)."""

    rows: Tensor
    features: Tensor


def smoothed(groups: Groups, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """P (n,) from means over the draws of each row (n,), and the derivative (n,) of w @ log P by them."""
    there, rows, F = groups.rows >= 0, groups.rows.clamp(min=0), groups.features
    inside = torch.where(there, y[rows], 0.0)
    A = F.mT @ F + 1e-9 * torch.eye(F.shape[-1], dtype=F.dtype, device=F.device) * F.shape[1]
    line = (F @ torch.linalg.solve(A, F.mT @ inside[..., None]))[..., 0]
    count = there.sum(1, keepdim=True)
    floor = LEAST * inside.sum(1, keepdim=True) / count
    low = line < floor
    chance = torch.where(low, floor, line) + FLOOR
    pull = torch.where(there, w[rows] / chance, 0.0)
    back = (F @ torch.linalg.solve(A, F.mT @ torch.where(low, 0.0, pull)[..., None]))[..., 0]
    back = back + LEAST / count * torch.where(low, pull, 0.0).sum(1, keepdim=True)
    P, slope = torch.empty_like(y), torch.empty_like(y)
    P[rows[there]], slope[rows[there]] = chance[there], back[there]
    return P, slope


def places(groups: Groups, m: int) -> Tensor:
    """Which of a sequence of draws is which (m n): those of a row follow each other, and those of a group.

    Each m of them, a power of two, fill space evenly; every count-th would lie in one corner of it.
    """
    counts = (groups.rows >= 0).sum(1)
    place = torch.empty(m, int(counts.sum()), dtype=torch.int64, device=groups.rows.device)
    first = 0
    for rows, count in zip(groups.rows, counts.tolist(), strict=True):
        place[:, rows[:count]] = first + torch.arange(m * count, device=rows.device).view(count, m).T
        first += m * count
    return place.flatten()


def grouped(batch: Batch, m: int) -> Groups:
    """Rows in groups with m draws each; P is linear in 1 and the noise's logarithms, centred."""
    features = _features(batch)
    most = max(1, GROUP_DRAWS // m)
    pattern = batch.x.isnan().double().T @ (2.0 ** torch.arange(batch.p, dtype=torch.float64, device=batch.device))
    groups: list[Tensor] = []
    for value in pattern.unique():
        groups += _halved((pattern == value).nonzero()[:, 0], features, max(most, 2 * (features.shape[1] + 1)))
    width = max(len(group) for group in groups)
    index = torch.full((len(groups), width), -1, dtype=torch.int64, device=batch.device)
    linear = torch.zeros(len(groups), width, 1 + features.shape[1], dtype=torch.float64, device=batch.device)
    for g, rows in enumerate(groups):
        index[g, : len(rows)] = rows
        inside = features[rows] - features[rows].mean(0)
        linear[g, : len(rows), 0] = 1.0
        linear[g, : len(rows), 1:] = inside / inside.square().mean(0).sqrt().clamp(min=1e-6)
    return Groups(index, linear)


def _features(batch: Batch) -> Tensor:
    """What tells the noise of rows apart (n, f): logarithms of variances, and correlations."""
    S = batch.covariance().double()
    S = S.expand(batch.n, -1, -1)
    variance = S.diagonal(dim1=1, dim2=2)
    told = [variance.clamp(min=1e-12).log()]
    if batch.full:
        a, b = np.tril_indices(batch.p, -1)
        told.append(S[:, a, b] / (variance[:, a] * variance[:, b]).clamp(min=1e-300).sqrt())
    both = torch.cat([torch.where(batch.x.T.isnan(), 0.0, told[0]), *told[1:]], 1).nan_to_num(0.0)
    spread = both.std(0, correction=0)
    return (both[:, spread > 1e-9] - both[:, spread > 1e-9].mean(0)) / spread[spread > 1e-9]


def _halved(rows: Tensor, features: Tensor, most: int) -> Sequence[Tensor]:
    """Rows split at the median of what spreads most, until groups are small."""
    if len(rows) < 2 * most or features.shape[1] == 0:
        return [rows]
    inside = features[rows]
    along = int(inside.std(0, correction=0).argmax())
    order = rows[inside[:, along].argsort(stable=True)]
    half = len(order) // 2
    return [*_halved(order[:half], features, most), *_halved(order[half:], features, most)]
