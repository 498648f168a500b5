"""What a model has beside Gaussian components, as errors see it: a background, tails, and numbers of no component.

A background is one more weight, whose score of row i is its responsibility. With tails, a component is several
Gaussians of one mean and scales c: in coordinates whitened by sqrt(c) L they are Gaussians as any others, whose shifts
are those of the component divided by sqrt(c), and whose scores and blocks of curvature add up. Numbers that belong to
no component (the logarithm of nu) have their scores and rows of H by differences: two passes for each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .. import kernels
from ..fitting.full_pass import stats_of
from ..kernels.options import Options
from ..kernels.parameters import Parameters
from ..kernels.stats import Stats
from ..mixture.tails import StudentT
from ..rows.batch import Batch

EXACT = Options(skip=False)  # a difference shows what skipping leaves out
STEP = 1e-3  # of a number


@dataclass(frozen=True)
class Beside:
    """Whether there is a background, and the tails of components."""

    background: bool = False
    tails: StudentT | None = None

    @property
    def numbers(self) -> Tensor:
        """Fitted numbers (m,) that belong to no component."""
        return torch.zeros(0, dtype=torch.float64) if self.tails is None else self.tails.numbers

    def at(self, numbers: Tensor) -> Beside:
        """The same with other numbers."""
        return self if self.tails is None else replace(self, tails=self.tails.at(numbers))

    def scales(self, like: Tensor) -> Tensor:
        """Factors (s,) on covariances, of all Gaussians that a component is made of."""
        return like.new_ones(1) if self.tails is None else self.tails.scales().c.to(like)

    def gaussians(self, parameters: Parameters) -> Parameters:
        """All Gaussians (k s, ...), those of one component beside each other."""
        return parameters if self.tails is None else self.tails.expanded(parameters)

    def rows(self, batch: Batch, parameters: Parameters) -> Batch:
        """A batch as pairs with these Gaussians want it: the background with its weight."""
        batch = batch if self.tails is None else self.tails.rows(batch)
        if batch.background is None:
            return batch
        left = (1 - parameters.log_weights.double().exp().sum()).clamp(min=0.0).log()
        return replace(batch, background=batch.background.double() + left.to(batch.device))

    def log_prob(self, batch: Batch, parameters: Parameters) -> Tensor:
        """Log-densities (n,) of rows."""
        batch = batch if self.tails is None else self.tails.rows(batch)
        return kernels.log_prob(*self.gaussians(parameters), batch, EXACT).double()

    def slopes(self, batch: Batch, parameters: Parameters) -> Tensor:
        """Derivatives (n, m) of log-densities by the numbers."""
        columns = []
        for e in range(len(self.numbers)):
            step = STEP * torch.eye(len(self.numbers), dtype=torch.float64)[e]
            up, down = (self.at(self.numbers + way * step).log_prob(batch, parameters) for way in (1, -1))
            columns.append((up - down) / (2 * STEP))
        return torch.stack(columns, 1) if columns else batch.x.new_zeros(batch.n, 0, dtype=torch.float64)

    def sums(self, batch: Batch, parameters: Parameters) -> Tensor:
        """What :meth:`stats` makes sums of."""
        return stats_of(batch, parameters, EXACT, None, self.tails)

    def size(self, k: int, d: int) -> int:
        """How many numbers :meth:`sums` returns."""
        return Stats.size(k, d, len(self.numbers), self.tails is not None)

    def stats(self, packed: Tensor, k: int, d: int) -> Stats:
        """Sums of all rows."""
        return Stats(packed, k, d, True, len(self.numbers), self.tails is not None)


PLAIN = Beside()
