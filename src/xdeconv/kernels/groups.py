"""Groups: rows that each see only a few components of their own, beside a known density of everything else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from .stats import Stats

WIDEST = 64  # at most so many rows are read side by side by a kernel


@dataclass(frozen=True)
class Groups:
    """g groups of places in a batch; a row may stand in several of them, or in none.

    rows        (e,) int64   places in the batch, one group after the other
    starts      (g + 1,)     where each group begins in ``rows``, and where the last one ends
    background  (e,) float64 log-density that each row has besides the group's own components; -inf for none
    weight      (e,) float64 of each row in its group
    """

    rows: Tensor
    starts: Tensor
    background: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> Tensor:
        """Rows of each group (g,)."""
        return self.starts.diff()

    @cached_property
    def index(self) -> np.ndarray:
        """Places in the batch as CPU kernels read them, in whole vectors: (e + WIDEST,) int32."""
        index = np.zeros(len(self.rows) + WIDEST, np.int32)
        index[: len(self.rows)] = self.rows.numpy()
        return index

    @cached_property
    def total(self) -> float:
        """Weight of all rows of all groups."""
        return float(self.weight.sum())

    def to(self, device: torch.device) -> Groups:
        """The same groups on a device."""
        if self.rows.device == device:
            return self
        return Groups(*(t.to(device) for t in (self.rows, self.starts, self.background, self.weight)))

    def summed(self, values: Tensor) -> Tensor:
        """Weighted sums (g,) of values (e,) over each group's rows, the same bits every time."""
        totals = torch.cat([values.new_zeros(1), (self.weight * values).cumsum(0)])
        return totals[self.starts[1:]] - totals[self.starts[:-1]]


@dataclass(frozen=True)
class GroupSums:
    """What each group's rows say of its m components: log-likelihood (g,), q (g, m), g (g, m, d), G (g, m, d, d)."""

    stats: Stats
    loglik: Tensor
    m: int

    def to(self, device: torch.device | str) -> GroupSums:
        """The same sums on a device."""
        return replace(self, stats=self.stats.to(device), loglik=self.loglik.to(device))

    @property
    def q(self) -> Tensor:
        return self.stats.q.unflatten(0, (-1, self.m))

    @property
    def g(self) -> Tensor:
        return self.stats.g.unflatten(0, (-1, self.m))

    @property
    def G(self) -> Tensor:
        return self.stats.G.unflatten(0, (-1, self.m))
