"""The plain EM loop over rows in memory, which starts, searches and other tools' calls share."""

from __future__ import annotations

import torch

from .. import kernels
from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..methods import EM
from ..methods.em import EMState
from ..methods.prior import Prior
from ..rows.batch import Batch
from .aim import structure_of


def em_passes(
    parameters: Parameters, batch: Batch, count: int, prior: Prior | None = None, options: Options = DEFAULT
) -> Parameters:
    """Parameters after some EM passes over a batch; a prior weighs against these rows."""
    method, seen = EM(prior=prior, covariance=structure_of(prior)), torch.zeros((), dtype=torch.float64)
    state = method.moved(EMState(*parameters, seen.to(parameters.means.device)), parameters)
    for _ in range(count):
        stats = kernels.accumulate(*state.parameters(), batch, options)
        state = method.update(state, stats, float(stats.rows))
    return Parameters(*state.parameters())


def total_log_prob(parameters: Parameters, batch: Batch, options: Options = DEFAULT) -> float:
    """Weighted log-likelihood of a batch."""
    log_prob = kernels.log_prob(*parameters, batch, options).double()
    return float(log_prob.sum() if batch.weight is None else batch.weight.double() @ log_prob)
