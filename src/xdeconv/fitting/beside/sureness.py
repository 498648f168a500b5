"""Standard errors of factors on errors, from the curvature of the log-likelihood in all parameters together.

H z = e is solved by conjugate gradients, H u being a difference of two gradients made of the sums of one pass each. In
the coordinates of a chart, where complete data would have H = 1, that takes a few dozen passes, over a sample of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...kernels.grouped import grouped_sum
from ...kernels.options import Options
from ...methods import EM, Prior
from ...methods.chart import Chart
from ...methods.fixed import Fixed
from ...mixture._mixture import Mixture
from ...mixture.inflated import Inflated
from ...rows.batch import Batch
from ...system.ranks import made_by_first
from ..full_pass import sums_of
from ..workspace import Workspace
from .carried import Carried

STEP = 1e-3  # of weights, means over widths, widths and factors, relative
EXACT = Options(skip=False)  # a difference shows what skipping leaves out
PRECISION = 1e-2  # of a solution, relative
MOST = 60  # steps of conjugate gradients
PAIRS = 2e8  # of a row and a component, in all, as a rule
FEWEST, LARGEST = 1 << 12, 1 << 14  # rows of the sample
USUAL = 20  # steps that a number needs


def with_standard_errors(workspace: Workspace, mixture: Mixture) -> Inflated:
    """The factors of a mixture in the frame, with standard errors and the weight of each group's rows."""
    inflation = mixture.inflation
    assert inflation is not None
    weights = _weights(workspace, inflation)
    spread = made_by_first(lambda: _spread(workspace, mixture, inflation), workspace.plan.device)
    values = np.full((len(inflation.values), inflation.p), np.nan)
    values[:, list(inflation.of)] = (
        np.array(inflation.values)[:, list(inflation.of)] * spread.view(len(inflation.values), -1).numpy()
    )
    values[np.array(weights) == 0] = np.nan
    return replace(inflation, spread=tuple(map(tuple, values.tolist())), rows=tuple(weights))


def _weights(workspace: Workspace, inflation: Inflated) -> list[float]:
    """Weight of each group's rows."""

    def count(batch: Batch) -> Tensor:
        if len(inflation.values) == 1:
            return batch.total_weight()[None]
        return grouped_sum(batch.weights(), inflation.group_of(batch), len(inflation.values))

    return workspace.summed(workspace.train, count, len(inflation.values)).tolist()


def _spread(workspace: Workspace, mixture: Mixture, inflation: Inflated) -> Tensor:
    """Standard errors (m,) of the logarithms; NaN where the curvature is not positive."""
    plan, frame, m = workspace.plan, workspace.frame, len(inflation.numbers)
    size = int(min(max(PAIRS / (mixture.k * m * USUAL), FEWEST), LARGEST))
    rows = workspace.raw.sample(size, plan.seed).standardized(frame.shift, frame.scale).to(plan.device, torch.float64)
    share = float(rows.total_weight()) / workspace.total
    prior = None if workspace.method.prior is None else workspace.method.prior.scaled(share)
    surface = _Surface.around(rows, mixture, prior, workspace)
    return surface.variances(m).mul(share).sqrt().cpu()


@dataclass(frozen=True)
class _Surface:
    """Gradients of the log-likelihood of some rows, in the coordinates of a chart around a mixture."""

    rows: Batch
    chart: Chart
    carried: Carried
    prior: Prior | None
    fixed: Fixed

    @classmethod
    def around(cls, rows: Batch, mixture: Mixture, prior: Prior | None, workspace: Workspace) -> _Surface:
        """The surface around a mixture in the frame."""
        carried, structure = Carried(mixture.tails, mixture.inflation), workspace.method.covariance
        plain = EM(covariance=structure)
        state = plain.with_numbers(plain.init(mixture, rows.device), carried.numbers.to(rows.device))
        sums = sums_of(rows, state.parameters(), EXACT, None, carried.tails, carried.inflation)
        chart = Chart.around_state(state, sums, prior, structure)
        return cls(rows, chart, carried, prior, workspace.method.fixed or Fixed())

    def gradient(self, x: Tensor) -> Tensor:
        """That at coordinates x."""
        state = self.chart.state(x, self.fixed, 0.0)
        now = self.carried.at(state.extra)
        sums = sums_of(self.rows, state.parameters(), EXACT, None, now.tails, now.inflation)
        return self.chart.gradient(x, state.weights, sums, self.prior, self.fixed)

    def times(self, u: Tensor) -> Tensor:
        """H u."""
        h = STEP / self.chart.unscaled(u).abs().amax().clamp(min=1e-300)
        return (self.gradient(-h * u) - self.gradient(h * u)) / (2 * h)

    def variances(self, m: int) -> Tensor:
        """Variances (m,) of the last m numbers."""
        variances = torch.full((m,), torch.nan, dtype=torch.float64, device=self.rows.device)
        for a in range(m):
            known = self.chart.certainty[len(self.chart.certainty) - m + a]
            unit = torch.zeros(self.chart.size, dtype=torch.float64, device=self.rows.device)
            unit[self.chart.size - m + a] = 1.0
            if known > 1e-200:
                variances[a] = self._solved(unit) / known
        return variances

    def _solved(self, e: Tensor) -> Tensor:
        """e . H^-1 e; NaN where it is not found."""
        z, residual, direction = torch.zeros_like(e), e, e
        size = residual @ residual
        for _ in range(MOST):
            image = self.times(direction)
            curved = direction @ image
            if not curved > 0:
                return curved.new_tensor(torch.nan)
            z = z + size / curved * direction
            residual = residual - size / curved * image
            fresh = residual @ residual
            if fresh < PRECISION**2:
                return e @ z
            direction, size = residual + fresh / size * direction, fresh
        return size.new_tensor(torch.nan)
