"""What rows say of the components of a search: the kernels' sums and densities, of Gaussians or with their tails."""

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
    if aim.tails is None:
        return kernels.accumulate(*parameters, batch, options)
    every = kernels.accumulate(*aim.tails.expanded(parameters), batch, options)
    return aim.tails.pulled_back(every, parameters.covariances)


def group_sums(parameters: Parameters, rows: kernels.RowsForGroups, groups: Groups, aim: Aim) -> GroupSums:
    """Those of groups, for components (g, m, ...) of their own, as the update of Gaussian ones wants them."""
    if aim.tails is None:
        return kernels.accumulate_groups(*parameters, rows, groups)
    every = kernels.accumulate_groups(*aim.tails.expanded(parameters), rows, groups)
    own = aim.tails.pulled_back(every.stats, parameters.covariances.flatten(0, 1)).for_em()
    return GroupSums(own, every.loglik, parameters.means.shape[1])


def log_prob(parameters: Parameters, batch: Batch, aim: Aim = ANY, options: Options = DEFAULT) -> Tensor:
    """Log-densities (n,)."""
    return kernels.log_prob(*(parameters if aim.tails is None else aim.tails.expanded(parameters)), batch, options)


def log_joint(parameters: Parameters, batch: Batch, aim: Aim = ANY, options: Options = DEFAULT) -> Tensor:
    """Log-densities (n, k) of rows and components."""
    if aim.tails is None:
        return kernels.log_joint(*parameters, batch, options)
    every = kernels.log_joint(*aim.tails.expanded(parameters), batch, options)
    return every.unflatten(1, (-1, SCALES)).logsumexp(2)


def total_log_prob(parameters: Parameters, batch: Batch, aim: Aim = ANY, options: Options = DEFAULT) -> float:
    """Weighted log-likelihood of a batch."""
    each = log_prob(parameters, batch, aim, options).double()
    return float(each.sum() if batch.weight is None else batch.weight.double() @ each)
