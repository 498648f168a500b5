"""What a model has beside Gaussian components, as errors see it: a background, tails, factors on errors, a selection.

A background is one more weight, whose score of row i is its responsibility. With tails, a component is several
Gaussians of one mean and scales c: in coordinates whitened by sqrt(c) L they are Gaussians as any others, whose shifts
are those of the component divided by sqrt(c), and whose scores and blocks of curvature add up. Numbers that belong to
no component (the logarithms of nu and of factors on errors) have their scores and rows of H by differences: two passes
for each. The score of a row that was selected is less by the mean score of the rows that are kept, which has no closed
form in general: there everything is by differences, see :mod:`xdeconv.studies.curvature`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .. import kernels
from ..fitting.beside.carried import Carried
from ..fitting.beside.selected import Selected
from ..fitting.full_pass import stats_of
from ..kernels.options import Options
from ..kernels.parameters import Parameters
from ..kernels.stats import Stats
from ..rows.batch import Batch

EXACT = Options(skip=False)  # a difference shows what skipping leaves out
STEP = 1e-3  # of a number


@dataclass(frozen=True)
class Beside:
    """Whether there is a background, tails and factors on errors, and the chances of rows to be kept."""

    background: bool = False
    carried: Carried = field(default_factory=Carried)
    selected: Selected | None = None

    @property
    def numbers(self) -> Tensor:
        """Fitted numbers (m,) that belong to no component."""
        return self.carried.numbers

    def at(self, numbers: Tensor) -> Beside:
        """The same with other numbers."""
        return replace(self, carried=self.carried.at(numbers))

    def scales(self, like: Tensor) -> Tensor:
        """Factors (s,) on covariances, of all Gaussians that a component is made of."""
        tails = self.carried.tails
        return like.new_ones(1) if tails is None else tails.scales().c.to(like)

    def gaussians(self, parameters: Parameters) -> Parameters:
        """All Gaussians (k s, ...), those of one component beside each other."""
        tails = self.carried.tails
        return parameters if tails is None else tails.expanded(parameters)

    def rows(self, batch: Batch, parameters: Parameters) -> Batch:
        """A batch as pairs with these Gaussians want it: the background with its weight."""
        batch = self._own(batch)
        if batch.background is None:
            return batch
        left = (1 - parameters.log_weights.double().exp().sum()).clamp(min=0.0).log()
        return replace(batch, background=batch.background.double() + left.to(batch.device))

    def _own(self, batch: Batch) -> Batch:
        tails, inflation = self.carried.tails, self.carried.inflation
        batch = batch if inflation is None else inflation.rows_of(batch)
        return batch if tails is None else tails.rows(batch)

    def log_prob(self, batch: Batch, parameters: Parameters) -> Tensor:
        """Log-densities (n,) of rows, given that they were kept where they were selected."""
        every, batch = self.gaussians(parameters), self._own(batch)
        log_prob = kernels.log_prob(*every, batch, EXACT).double()
        return log_prob if self.selected is None else log_prob + self.selected.gain(every, batch)

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
        return stats_of(batch, parameters, EXACT, None, self.carried.tails, self.carried.inflation, self.selected)

    def size(self, k: int, d: int) -> int:
        """How many numbers :meth:`sums` returns."""
        return Stats.size(k, d, len(self.numbers), self.carried.tails is not None, self.selected is not None)

    def stats(self, packed: Tensor, k: int, d: int) -> Stats:
        """Sums of all rows."""
        heavy, unseen = self.carried.tails is not None, self.selected is not None
        return Stats(packed, k, d, True, len(self.numbers), heavy, unseen)


PLAIN = Beside()
