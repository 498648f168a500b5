"""Minibatch k-means on rows in memory whose values may be missing: where the components of a start are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..rows.cutting import permutation

DISTANCE_ROWS = 1 << 14  # rows of one (n, k) matrix of distances
FEWEST, CACHED = 256, 1 << 16  # rows and distances of one on a CPU: larger ones leave its cache, four times as slow


@dataclass(frozen=True)
class Points:
    """Rows in units of a metric, around a middle, in float64: made once for all passes and starts.

    x      (d, n)  values, 0 where they are missing
    seen   (d, n)  1 where a value is observed, 0 where it is missing; None where all are observed
    terms  (n, c)  what clusters add up: weighted values, their weights where some are missing, and the row's weight
    """

    middle: Tensor
    metric: Tensor
    x: Tensor
    seen: Tensor | None
    terms: Tensor

    @classmethod
    def of(cls, rows: Tensor, weight: Tensor, middle: Tensor, metric: Tensor) -> Points:
        """From rows (n, d), NaN where missing, and their weights (n,)."""
        x = ((rows - middle) / metric).T.contiguous()
        seen = (~x.isnan()).double()
        if bool(seen.all()):
            return cls(middle, metric, x, None, torch.cat([weight * x, weight[None]]).T.contiguous())
        x = x.nan_to_num_(0.0)
        return cls(middle, metric, x, seen, torch.cat([weight * x, weight * seen, weight[None]]).T.contiguous())

    @property
    def n(self) -> int:
        """How many rows there are."""
        return self.x.shape[1]

    def into(self, centers: Tensor) -> Tensor:
        """Centres (k, d) of the rows' coordinates in these."""
        return (centers - self.middle) / self.metric

    def out_of(self, centers: Tensor) -> Tensor:
        """Centres (k, d) of these coordinates in the rows'."""
        return self.middle + self.metric * centers

    def nearest(self, centers: Tensor) -> Tensor:
        """Index (n,) of the nearest of some centres (k, d) of each row, over what is observed of it."""
        size = DISTANCE_ROWS if self.x.is_cuda else max(FEWEST, CACHED // len(centers))
        parts = [self._nearest(centers, slice(start, start + size)) for start in range(0, self.n, size)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _nearest(self, centers: Tensor, some: slice) -> Tensor:
        """The same of some rows; distances (k, n) lie as they are read fastest."""
        squares = centers.square()
        own = squares.sum(1)[:, None] if self.seen is None else squares @ self.seen[:, some]
        return torch.addmm(own, centers, self.x[:, some], alpha=-2.0).min(0).indices

    def distances(self, row: int) -> Tensor:
        """Squared distances (n,) from a row, over what is observed."""
        away = self.x - self.x[:, row, None]
        return (away if self.seen is None else away * self.seen).square().sum(0)

    def batches(self, size: int, seed: int, epoch: int) -> Iterator[Points]:
        """All rows, in a random order where they are more than a batch may have."""
        if self.n <= size:
            yield self
            return
        for part in permutation(self.n, seed, epoch).to(self.x.device).split(size):
            seen = None if self.seen is None else self.seen[:, part]
            yield Points(self.middle, self.metric, self.x[:, part], seen, self.terms[part])

    def clustered(self, nearest: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Weighted sums (k, d) of the values of each cluster, their weights (k, d or 1) and the rows' (k,)."""
        sums, d = grouped_sum(self.terms, nearest, k), len(self.x)
        return sums[:, :d], sums[:, -1:] if self.seen is None else sums[:, d:-1], sums[:, -1]


@dataclass(frozen=True)
class Clusters:
    """Centres (k, d) and the weight (k,) of the rows that came to each."""

    centers: Tensor
    weights: Tensor


def kmeans(
    points: Points, first: Tensor, epochs: int, batch_rows: int, seed: int, rng: np.random.Generator
) -> Clusters:
    """Clusters around first centres (k, d): each is the running mean of the rows that came to it.

    Parameters
    ----------
    points : Points
        The rows.
    first : torch.Tensor (k, d)
        In the rows' coordinates, as the result.
    epochs : int
        Passes over the rows.
    batch_rows : int
        Rows per update.
    seed : int
        Of the order of batches.
    rng : numpy.random.Generator
        Chooses other rows for centres that none came to.

    Returns
    -------
    Clusters
    """
    k, centers = len(first), points.into(first)
    counts, weights = torch.zeros_like(centers), torch.zeros_like(centers[:, 0])
    for epoch in range(epochs):
        for batch in points.batches(batch_rows, seed, epoch):
            values, seen, came = batch.clustered(batch.nearest(centers), k)
            counts += seen
            weights += came
            centers = centers + (values - seen * centers) / counts.clamp(min=1e-300)
        if epoch < epochs - 1:
            centers = _elsewhere(centers, weights == 0, points, rng)
    return Clusters(points.out_of(centers), weights)


def _elsewhere(centers: Tensor, empty: Tensor, points: Points, rng: np.random.Generator) -> Tensor:
    """Centres, those without rows on other rows, where these are observed."""
    count = int(empty.sum())
    if not count:
        return centers
    at = torch.from_numpy(rng.integers(points.n, size=count))
    fresh, moved = points.x[:, at].T, centers.clone()
    moved[empty] = fresh if points.seen is None else torch.where(points.seen[:, at].T > 0, fresh, centers[empty])
    return moved


def grouped_sum(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """Sums (groups, c) of the rows (n, c) of each group, the same bits every time on any device."""
    total = values.new_zeros(groups, values.shape[1])
    if not values.is_cuda:
        return total.index_add_(0, group, values)
    for part, whose in zip(values.split(DISTANCE_ROWS), group.split(DISTANCE_ROWS), strict=True):
        total += torch.nn.functional.one_hot(whose, groups).to(values.dtype).T @ part
    return total
