"""The sandwich H^-1 J H^-1: the variance of what is computed from a mixture, by matrices or by conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch
from torch import Tensor

from ..fitting.full_pass import summed
from ..kernels.parameters import Parameters
from ..methods.chart import Chart
from ..methods.em import all_weights
from ..methods.fixed import Fixed
from ..methods.prior import Prior
from ..rows.data import Source
from .beside import PLAIN, Beside
from .curvature import Curvature
from .information import free_coordinates, information

NOTHING = 1e-10  # of the information of complete data
FAR = 3.0  # a standard error of a logit or a log-width: with more, nothing is linear
MEANS = 1e-3  # as much as a shift of a mean by its width counts beside these: narrow components may be far off
ROUNDING = 1e-20


@dataclass(frozen=True)
class Sandwich:
    """All covariances (P, P) at once; ``lost`` (P, l) are ways of order one along which the rows tell nothing apart.

    What is lost is taken as held: a width that the likelihood drives to zero says nothing against the other errors.
    ``left`` is how many nats the mixture is below a maximum, by its gradient and curvature.
    """

    chart: Chart
    free: Tensor
    covariance: Tensor
    lost: Tensor
    left: float

    @classmethod
    def of(
        cls, source: Source, parameters: Parameters, factors: Tensor, prior: Prior | None, fixed: Fixed,
        beside: Beside = PLAIN,
    ) -> Self:  # fmt: skip
        """By one pass over rows, and two for each number that belongs to no component."""
        there = information(source, parameters, factors, prior, fixed, beside)
        values, vectors = _ways(there.H)
        reach = _reach(there.chart, vectors)
        sound = (values > NOTHING) & (reach < FAR * values.clamp(min=0.0).sqrt())
        inverse = (vectors[:, sound] / values[sound]) @ vectors[:, sound].T
        left = float(there.gradient @ inverse @ there.gradient) / 2
        return cls(there.chart, there.free, inverse @ there.J @ inverse, vectors[:, ~sound] / reach[~sound], left)

    def variances(self, C: Tensor) -> Tensor:
        """Variances (m,) of quantities with gradients C (m, P); inf where the rows do not determine them."""
        variances = ((C @ self.covariance) * C).sum(1)
        open_ = ((C @ self.lost) ** 2).sum(1)
        return torch.where(open_ > variances + ROUNDING * (C * C).sum(1), torch.inf, variances + open_)


def _ways(H: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of the information, which rows beyond all bounds leave without any."""
    try:
        values, vectors = (t.to(H.device) for t in torch.linalg.eigh((H + H.T).cpu() / 2))
    except torch.linalg.LinAlgError as problem:
        raise ValueError("errors cannot be told: some rows lie so far from the mixture that sums over them overflow. "
                         "mixture.outlier(rows) tells which; leave them out") from problem  # fmt: skip
    return values, vectors


def _reach(chart: Chart, vectors: Tensor) -> Tensor:
    """How far logits and log-widths go along unit vectors (P, m); a little where only means do."""
    unit = chart.unscaled(torch.ones(len(vectors), dtype=vectors.dtype, device=vectors.device)).clone()
    k, d = chart.means.shape
    logits = len(chart.log_weights)
    unit[logits : logits + k * d] *= MEANS
    return (unit[:, None] * vectors).abs().amax(0)


@dataclass(frozen=True)
class Solved:
    """One solution of H z = c for each quantity, when it is asked for."""

    curvature: Curvature
    left: float

    @classmethod
    def of(
        cls, source: Source, parameters: Parameters, factors: Tensor, prior: Prior | None, fixed: Fixed,
        beside: Beside = PLAIN,
    ) -> Self:  # fmt: skip
        """By the passes that tell how far from a maximum the mixture is."""
        k, d = parameters.means.shape
        work = partial(beside.sums, parameters=parameters)
        stats = beside.stats(summed(source, work, beside.size(k, d), factors.device), k, d)
        weights = all_weights(parameters.log_weights, beside.background)
        whole = Parameters(weights.log(), parameters.means, factors @ factors.mT)
        chart = Chart.around(whole, stats.masses(len(weights)), prior)
        numbers, certainty = beside.numbers.to(factors.device), stats.certainty.clamp(min=1e-300)
        chart = replace(chart, numbers=numbers, certainty=certainty)
        free = free_coordinates(k, d, fixed, factors.device, beside)
        curvature = Curvature(source, chart, prior, fixed, free, beside)
        here = torch.zeros(chart.size, dtype=torch.float64, device=factors.device)
        gradient = chart.gradient(here, weights, stats, prior, fixed)
        step, sound = curvature.solved(gradient[None])
        return cls(curvature, float(gradient @ step[0]) / 2 if bool(sound) else torch.nan)

    @property
    def chart(self) -> Chart:
        """The coordinates of gradients."""
        return self.curvature.chart

    @property
    def free(self) -> Tensor:
        """Which coordinates are free (P,)."""
        return self.curvature.free

    def variances(self, C: Tensor) -> Tensor:
        """Variances (m,) of quantities with gradients C (m, P); inf where the rows do not determine them."""
        Z, sound = self.curvature.solved(C)
        return torch.where(sound, self.curvature.squares(Z), torch.inf)
