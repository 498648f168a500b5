"""What a row has beside its pairs: a constant of its units, log-priors, and the density of a background."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..rows.batch import Batch


def constant(batch: Batch) -> Tensor:
    """(n,): half of log 2 pi and the logarithm of the unit, of every value that is observed."""
    unit = torch.zeros(batch.p, dtype=torch.float64, device=batch.device) if batch.scale is None else batch.scale.log()
    return ((unit + 0.5 * math.log(2 * math.pi)) @ (~batch.x.isnan()).double()).to(batch.dtype)


def with_prior(log_joint: Tensor, batch: Batch, part: slice = slice(None)) -> Tensor:
    """Log-priors added to (n, k); a pair that a prior of -inf rules out is -inf, whatever its component is."""
    if batch.log_prior is None:
        return log_joint
    prior = (batch.log_prior if batch.label is None else batch.log_prior[batch.label])[:, part]
    return torch.where(prior == -torch.inf, -torch.inf, log_joint + prior)


def density(log_joint: Tensor, batch: Batch) -> Tensor:
    """Log-density of each row (n,) from (n, k), with the background where there is one."""
    inside = torch.logsumexp(log_joint, dim=1)
    return inside if batch.background is None else torch.logaddexp(inside, batch.background.to(inside.dtype))
