"""What rows say of the components of a search: the kernels' sums and densities, of Gaussians or with their tails.

Parameters and sums are on the CPU, wherever rows are: a step of few components is microseconds there, and on a GPU as
many launches as operations.
"""

from __future__ import annotations

from torch import Tensor

from .. import kernels
from ..kernels import Groups, GroupSums
from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..kernels.stats import Stats
from ..mixture.tails import SCALES
from ..rows.batch import Batch
from .aim import ANY, Aim


def sums(parameters: Parameters, batch: Batch, aim: Aim = ANY, options: Options = DEFAULT) -> Stats:
    """The sums that methods learn from."""
    every = kernels.accumulate(*_expanded(parameters, aim, batch), batch, options).to("cpu")
    return every if aim.tails is None else aim.tails.pulled_back(every, parameters.covariances)


def group_sums(parameters: Parameters, rows: kernels.RowsForGroups, groups: Groups, aim: Aim) -> GroupSums:
    """Those of groups, for components (g, m, ...) of their own, as the update of Gaussian ones wants them."""
    every = kernels.accumulate_groups(*_expanded(parameters, aim, rows.batch), rows, groups).to("cpu")
    if aim.tails is None:
        return every
    own = aim.tails.pulled_back(every.stats, parameters.covariances.flatten(0, 1)).for_em()
    return GroupSums(own, every.loglik, parameters.means.shape[1])


def log_prob(parameters: Parameters, batch: Batch, aim: Aim = ANY, options: Options = DEFAULT) -> Tensor:
    """Log-densities (n,)."""
    return kernels.log_prob(*_expanded(parameters, aim, batch), batch, options)


def log_joint(parameters: Parameters, batch: Batch, aim: Aim = ANY, options: Options = DEFAULT) -> Tensor:
    """Log-densities (n, k) of rows and components."""
    every = kernels.log_joint(*_expanded(parameters, aim, batch), batch, options)
    return every if aim.tails is None else every.unflatten(1, (-1, SCALES)).logsumexp(2)


def _expanded(parameters: Parameters, aim: Aim, batch: Batch) -> Parameters:
    """All Gaussians of a mixture, where its rows are."""
    return (parameters if aim.tails is None else aim.tails.expanded(parameters)).to(batch.device)


def total_log_prob(parameters: Parameters, batch: Batch, aim: Aim = ANY, options: Options = DEFAULT) -> float:
    """Weighted log-likelihood of a batch."""
    each = log_prob(parameters, batch, aim, options).double()
    return float(each.sum() if batch.weight is None else batch.weight.double() @ each)
