"""What rows tell of a mixture by differences alone: of selected rows, of structures, and of too many parameters.

H u is the difference of two gradients, each made of the sums of one pass; a row's score along z the difference of two
log-densities. In a chart, where complete data would have H = 1, conjugate gradients need a few dozen passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch
from torch import Tensor

from ..fitting.full_pass import summed
from ..kernels.parameters import Parameters
from ..kernels.stats import Stats
from ..methods.chart import Chart
from ..methods.em import all_weights
from ..methods.fixed import Fixed
from ..methods.prior import Prior
from ..methods.structures import FULL, Structure
from ..rows.batch import Batch
from ..rows.data import Source
from .beside import PLAIN, Beside
from .information import Information, nothing_said

STEP = 1e-3  # of weights, means over widths, and widths, relative: third derivatives are a millionth of the second
PRECISION = 1e-4  # of a solution, relative
MOST = 300  # passes of conjugate gradients, in pairs


@dataclass(frozen=True)
class Curvature:
    """Rows in the coordinates of a chart, of which products with H are asked; ``gradient`` (P,) is at its origin."""

    source: Source
    chart: Chart
    prior: Prior | None
    fixed: Fixed
    free: Tensor
    gradient: Tensor
    beside: Beside = PLAIN

    @classmethod
    def around(
        cls, source: Source, parameters: Parameters, factors: Tensor, prior: Prior | None, fixed: Fixed,
        beside: Beside, structure: Structure = FULL,
    ) -> Self:  # fmt: skip
        """By one pass over rows; ``factors`` (k, d, d) are Cholesky factors of the covariances."""
        k, d = parameters.means.shape
        V, loadings = structure.factored(factors @ factors.mT, parameters.log_weights.exp())
        parameters = parameters._replace(covariances=V)
        work = partial(beside.sums, parameters=parameters)
        stats = beside.stats(summed(source, work, beside.size(k, d), factors.device), k, d)
        weights = all_weights(parameters.log_weights, beside.background)
        whole = Parameters(weights.log(), parameters.means, V)
        chart = Chart.around(whole, stats.masses(len(weights)), prior, structure, loadings)
        numbers, certainty = beside.numbers.to(factors.device), stats.certainty.clamp(min=1e-300)
        chart = replace(chart, numbers=numbers, certainty=certainty)
        free = chart.free(fixed)
        here = torch.zeros(chart.size, dtype=torch.float64, device=factors.device)
        gradient = chart.gradient(here, weights, stats, prior, fixed)
        return cls(source, chart, prior, fixed, free, gradient, beside)

    def information(self) -> Information:
        """H and J as matrices, by four passes per coordinate."""
        unit = torch.eye(self.chart.size, dtype=torch.float64, device=self.free.device)
        H = torch.cat([self.times(u[None]) if bool(free) else 0 * u[None] for u, free in zip(unit, self.free,
                       strict=True)])  # fmt: skip
        work = partial(_scatter, ways=[self._at(x) for x in self._ways(unit)])
        J = summed(self.source, work, len(unit) ** 2, unit.device).view(len(unit), -1)
        double = 2 * self._lengths(unit)
        J = J / double[:, None] / double
        return Information(self.chart, self.gradient, H + nothing_said(self.chart, self.free), J, self.free)

    def times(self, U: Tensor) -> Tensor:
        """H U^T for directions U (m, P), by two passes for each."""
        both = self._ways(U)
        k, d = self.chart.means.shape
        work = partial(_sums_of_all, ways=[self._at(x) for x in both])
        packed = summed(self.source, work, len(both) * self.beside.size(k, d), U.device).view(len(both), -1)
        sums = [self.beside.stats(p, k, d) for p in packed]
        ends = torch.stack([self._gradient(x, stats) for x, stats in zip(both, sums, strict=True)])
        return (ends[1::2] - ends[::2]) / (2 * self._lengths(U)[:, None])

    def squares(self, Z: Tensor) -> Tensor:
        """sum_i (weight_i s_i . z)^2 (m,) for directions Z (m, P), by two passes of densities for each."""
        both = self._ways(Z)
        work = partial(_squares_of, ways=[self._at(x) for x in both])
        return summed(self.source, work, len(Z), Z.device) / (2 * self._lengths(Z)) ** 2

    def solved(self, C: Tensor) -> tuple[Tensor, Tensor]:
        """Z (m, P) with H Z^T = C^T, and whether each was found (m,): not where the curvature is not positive."""
        Z, residual = torch.zeros_like(C), C.clone()
        direction, size = residual.clone(), (C * C).sum(1)
        first, sound = size.clone(), torch.ones(len(C), dtype=torch.bool, device=C.device)
        for _ in range(MOST):
            on = sound & (size > PRECISION**2 * first)
            if not bool(on.any()):
                return Z, sound
            image = torch.zeros_like(C)
            image[on] = self.times(direction[on])
            curved = (direction * image).sum(1)
            sound &= ~on | (curved > 0)
            step = torch.where(on & sound, size / torch.where(curved > 0, curved, 1.0), 0.0)[:, None]
            Z, residual = Z + step * direction, residual - step * image
            fresh = (residual * residual).sum(1)
            ratio = torch.where(on, fresh / size.clamp(min=1e-300), 0.0)[:, None]
            direction, size = torch.where(on[:, None], residual + ratio * direction, direction), fresh
        return Z, sound & (size <= PRECISION**2 * first)

    def _ways(self, U: Tensor) -> Tensor:
        """Coordinates a short way along and against each direction (2 m, P)."""
        steps = self._lengths(U)[:, None] * U * self.free
        return torch.stack([steps, -steps], 1).flatten(0, 1)

    def _lengths(self, U: Tensor) -> Tensor:
        return torch.stack([STEP / self.chart.changes(u).amax().clamp(min=1e-300) for u in U])

    def _at(self, x: Tensor) -> tuple[Beside, Parameters]:
        state = self.chart.state(x, self.fixed, 0.0)
        return self.beside.at(state.extra), state.parameters()

    def _gradient(self, x: Tensor, stats: Stats) -> Tensor:
        weights = self.chart.state(x, self.fixed, 0.0).weights
        return self.chart.gradient(x, weights, stats, self.prior, self.fixed)


def _sums_of_all(batch: Batch, ways: list[tuple[Beside, Parameters]]) -> Tensor:
    return torch.cat([beside.sums(batch, parameters) for beside, parameters in ways])


def _squares_of(batch: Batch, ways: list[tuple[Beside, Parameters]]) -> Tensor:
    return torch.stack([(line**2).sum() for line in _differences(batch, ways)])


def _scatter(batch: Batch, ways: list[tuple[Beside, Parameters]]) -> Tensor:
    lines = torch.stack(list(_differences(batch, ways)))
    return (lines @ lines.T).reshape(-1)


def _differences(batch: Batch, ways: list[tuple[Beside, Parameters]]) -> Iterator[Tensor]:
    """What log-densities (n,) of rows differ by between the two ends of each way, times their weights."""
    weight = 1.0 if batch.weight is None else batch.weight.double()
    for up, down in zip(ways[::2], ways[1::2], strict=True):
        ends = [beside.log_prob(batch, parameters) for beside, parameters in (up, down)]
        yield (ends[0] - ends[1]) * weight
