"""The plain EM loop over rows in memory, which starts, searches and other tools' calls share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .. import kernels
from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..methods import EM
from ..methods.em import EMState, all_weights
from ..rows.batch import Batch
from .aim import ANY, Aim

ROUNDING = 1e-9  # of weights: less was left by no background


def em_passes(
    parameters: Parameters, batch: Batch, count: int, aim: Aim = ANY, options: Options = DEFAULT
) -> Parameters:
    """Parameters after some EM passes over a batch; the prior weighs against these rows."""
    method, seen = EM(prior=aim.prior, covariance=aim.covariance), torch.zeros((), dtype=torch.float64)
    weights = all_weights(parameters.log_weights, batch.background is not None)
    blank = EMState(weights, *parameters[1:], seen.to(parameters.means.device))
    state = method.moved(blank, parameters)
    for _ in range(count):
        stats = kernels.accumulate(*state.parameters(), batch, options)
        state = method.update(state, stats, float(stats.rows))
    return Parameters(*state.parameters())


def total_log_prob(parameters: Parameters, batch: Batch, options: Options = DEFAULT) -> float:
    """Weighted log-likelihood of a batch."""
    log_prob = kernels.log_prob(*parameters, batch, options).double()
    return float(log_prob.sum() if batch.weight is None else batch.weight.double() @ log_prob)


def shared(log_weights: Tensor, before: Sequence[Parameters]) -> Tensor:
    """Log-weights that share what those of other mixtures had together on average: 1, or what a background left."""
    had = torch.stack([parameters.log_weights.exp().sum() for parameters in before]).mean()
    left = 1 - had
    return log_weights.log_softmax(0) + (torch.log1p(-left) if float(left) > ROUNDING else 0.0)
