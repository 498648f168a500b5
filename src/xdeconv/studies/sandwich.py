"""The sandwich H^-1 J H^-1: the variance of what is computed from a mixture, by matrices or by conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ..kernels.parameters import Parameters
from ..methods.chart import Chart
from ..methods.fixed import Fixed
from ..methods.prior import Prior
from ..methods.structures import FULL, Structure
from ..rows.data import Source
from .beside import PLAIN, Beside
from .curvature import Curvature
from .information import information

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
        beside: Beside = PLAIN, structure: Structure = FULL,
    ) -> Self:  # fmt: skip
        """By one pass over rows and two for each number of no component; else by four passes for each parameter."""
        if by_one_pass(beside, structure):
            there = information(source, parameters, factors, prior, fixed, beside)
        else:
            there = Curvature.around(source, parameters, factors, prior, fixed, beside, structure).information()
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


def by_one_pass(beside: Beside, structure: Structure) -> bool:
    """Whether curvature and scatter are sums over rows: of full covariances, and of rows that were not selected."""
    return beside.selected is None and structure == FULL


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
    changes = torch.stack([chart.changes(vector) for vector in vectors.T])
    return (changes * changes.new_tensor([1.0, MEANS, 1.0, 1.0])).amax(1)


@dataclass(frozen=True)
class Solved:
    """One solution of H z = c for each quantity, when it is asked for."""

    curvature: Curvature
    left: float

    @classmethod
    def of(
        cls, source: Source, parameters: Parameters, factors: Tensor, prior: Prior | None, fixed: Fixed,
        beside: Beside = PLAIN, structure: Structure = FULL,
    ) -> Self:  # fmt: skip
        """By the passes that tell how far from a maximum the mixture is."""
        curvature = Curvature.around(source, parameters, factors, prior, fixed, beside, structure)
        step, sound = curvature.solved(curvature.gradient[None])
        return cls(curvature, float(curvature.gradient @ step[0]) / 2 if bool(sound) else torch.nan)

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
