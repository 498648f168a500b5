"""A contest of starts on few rows: many are fitted side by side for some passes, and the best continue.

Where rows are few, EM from one start ends in one of many places that differ by a few nats, which no move of a component
is sure to tell from chance; but passes cost next to nothing. Each start is a group of all rows with components of its
own (:func:`xdeconv.kernels.accumulate_groups`), so that a pass of all starts is one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..kernels import Groups
from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters, apart, stacked
from ..rows.batch import Batch
from .aim import ANY, Aim
from .sums import group_sums
from .trials import em_step

PAIRS = 100_000  # of row and component that a pass of all starts may cost
MOST_STARTS = 24
SAME = 0.1  # nats: of starts that are no further apart, one is enough
ALIKE = 0.25  # of a component's width, and as much of the logarithms of widths and weights: nothing lies between
HEATS = ((20, 8), (40, 3))  # passes, and how many starts continue after them
LOOK = 5  # passes after which starts that are out of the running go
ARRIVED = 1.0  # nats that the last look gained: with less, a search need not be made again
CLOSE = 20.0  # nats behind the best that say nothing yet
CATCH_UP = 4.0  # times what it has just gained that a start may be behind


def contest(
    start: Callable[[int], Parameters],
    batch: Batch,
    k: int,
    fewest: int,
    aim: Aim = ANY,
    options: Options = DEFAULT,
) -> list[Parameters]:
    """The best starts, each after some EM passes over a batch, the best first; as many start as passes are cheap.

    Parameters
    ----------
    start : callable
        Makes a start of k components from a number.
    batch : Batch
        The rows, all of which every start sees.
    k : int
        Components of a start.
    fewest : int
        At least so many starts: where no more would be cheap.
    aim : Aim
        Of all rows of the batch: its prior and structure.
    options : Options
        How kernels compute.

    Returns
    -------
    list of Parameters
        At most three.
    """
    count = int(np.clip(PAIRS // max(1, batch.n * k), fewest, MOST_STARTS))
    parameters = stacked([start(number) for number in range(count)])
    rows = kernels.for_groups(batch, parameters.d, options)
    nothing = torch.full((count,), -torch.inf, dtype=torch.float64)
    field = _Field(parameters, nothing, -nothing)
    for passes, most in HEATS:
        for _ in range(passes // LOOK):
            if not field.decided(rows.batch):
                field = _look(field, rows, aim)
        field = field.pick(torch.arange(min(most, len(field.value))))
    return apart(field.parameters)


class _Field(NamedTuple):
    """Starts, their values (s,) and what these have just gained (s,), the best first."""

    parameters: Parameters
    value: Tensor
    gained: Tensor

    def decided(self, batch: Batch) -> bool:
        """Whether one is left that has come so far that a search can begin."""
        return len(self.value) == 1 and float(self.gained[0]) < ARRIVED * batch.mean_weight()

    def pick(self, some: Tensor) -> _Field:
        """Some of them."""
        return _Field(self.parameters.pick(some), self.value[some], self.gained[some])


def _look(field: _Field, rows: kernels.RowsForGroups, aim: Aim) -> _Field:
    """Starts after some passes that are still in the running, the best first."""
    parameters, total = field.parameters, float(rows.batch.total_weight())
    groups = _all_rows(rows.batch, parameters)
    for _ in range(LOOK):
        before_step = parameters
        sums = group_sums(parameters, rows, groups, aim)
        parameters = em_step(parameters, sums, total, aim)
        groups = groups if rows.batch.background is None else _all_rows(rows.batch, parameters)
    loglik = sums.loglik + aim.log_density(before_step)  # those of the last step are not known yet
    value = torch.where(loglik.isfinite(), loglik, -torch.inf)
    now = _Field(parameters, value, (value - field.value).nan_to_num(0.0)).pick(
        value.argsort(descending=True, stable=True)
    )
    return now.pick(_running(now, rows.batch.mean_weight()).nonzero()[:, 0])


def _running(field: _Field, nat: float) -> Tensor:
    """Which starts (s,) may still win, and are not on the way of one that is better."""
    behind = (field.value[0] - field.value).nan_to_num(0.0)
    near = behind < torch.maximum(CATCH_UP * field.gained, torch.tensor(CLOSE * nat))
    apart = field.value.diff(prepend=field.value.new_full((1,), torch.inf)).abs()
    unlike = torch.maximum(apart, field.gained) > SAME * nat  # two may meet on their ways
    return near & unlike & ~_alike(field.parameters)


def _alike(parameters: Parameters) -> Tensor:
    """Which starts (s,) have their components where the start before them has its own: they climb the same hill."""
    widths = parameters.covariances.diagonal(dim1=-2, dim2=-1).sqrt()
    numbers = torch.cat([widths.log(), parameters.log_weights[..., None]], 2)
    away = (parameters.means[1:, :, None] - parameters.means[:-1, None]) / widths[:-1, None]
    other = numbers[1:, :, None] - numbers[:-1, None]
    near = torch.cat([away, other], 3).abs().amax(3) < ALIKE
    alike = near.any(1).all(1) & near.any(2).all(1)
    return torch.cat([alike.new_zeros(1), alike])


def heat(parameters: Parameters, rows: kernels.RowsForGroups, passes: int, most: int, aim: Aim) -> Parameters:
    """The best of some starts after some passes, the best first."""
    total = float(rows.batch.total_weight())
    for _ in range(passes):
        sums = group_sums(parameters, rows, _all_rows(rows.batch, parameters), aim)
        parameters = em_step(parameters, sums, total, aim)
    last = group_sums(parameters, rows, _all_rows(rows.batch, parameters), aim)
    loglik = last.loglik + aim.log_density(parameters)
    value = torch.where(loglik.isfinite(), loglik, -torch.inf)
    value, best = value.sort(descending=True, stable=True)
    unlike = value.diff(prepend=value.new_full((1,), torch.inf)).abs() > SAME * rows.batch.mean_weight()
    return parameters.pick(best[unlike][:most])


def _all_rows(batch: Batch, parameters: Parameters) -> Groups:
    """Every row in each of some groups, with nothing behind it, or the background that its weights leave."""
    n, times = batch.n, len(parameters.means)
    weight = batch.weights("cpu")
    behind: Tensor = torch.full((times * n,), -torch.inf, dtype=torch.float64)
    if batch.background is not None:
        left = (1 - parameters.log_weights.double().exp().sum(1)).clamp(min=0.0).log().cpu()
        behind = (left[:, None] + batch.background.double().cpu()).flatten()
    return Groups(torch.arange(n).repeat(times), n * torch.arange(times + 1), behind, weight.repeat(times))
