"""What rows can see of components through their noise, gaps and projections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from ..rows.batch import Batch
from . import accumulate_groups, for_groups
from .groups import Groups
from .options import DEFAULT, Options

NOISES = 256  # rows whose noise tells what all rows see


def sight_of(batch: Batch, options: Options = DEFAULT) -> Callable[[Tensor], Tensor] | None:
    """What rows like these see of covariances, as :func:`mean_information`; None where they see true values."""
    if batch.noise is None and batch.projection is None and not batch.missing:
        return None
    return partial(mean_information, batch=batch, options=options)


def mean_information(covariances: Tensor, batch: Batch, options: Options = DEFAULT) -> Tensor:
    """The mean of M_ij over rows, for each covariance V_j (k, d, d) as if all rows were that component's.

    It is the information that a row holds of a component's mean: V_j^-1 without noise, and less with it. A row that
    stands at the mean has w = 0, so that G is minus the sum of M: with means and rows at 0, all components at once.
    """
    k, d, _ = covariances.shape
    n, home = batch.n, covariances.device
    covariances = covariances.to(batch.device)
    there = replace(batch, x=batch.x * 0.0, weight=None, log_prior=None, label=None, background=None, group=None)
    ones = torch.ones(k * n, dtype=torch.float64)
    groups = Groups(torch.arange(n).repeat(k), n * torch.arange(k + 1), torch.full_like(ones, -torch.inf), ones)
    zeros = covariances.new_zeros
    rows = for_groups(there, d, options)
    sums = accumulate_groups(zeros(k, 1), zeros(k, 1, d), covariances[:, None], rows, groups.to(batch.device))
    return -sums.G[:, 0].to(home) / n
