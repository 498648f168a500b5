"""A contest of starts on few rows: many are fitted side by side for some passes, and the best continue.

Where rows are few, EM from one start ends in one of many places that differ by a few nats, which no move of a component
is sure to tell from chance; but passes cost next to nothing. Each start is a group of all rows with components of its
own (:func:`xdeconv.kernels.accumulate_groups`), so that a pass of all starts is one call.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..kernels import Groups
from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..rows.batch import Batch
from .aim import ANY, Aim
from .sums import group_sums
from .trials import em_step

PAIRS = 100_000  # of row and component that a pass of all starts may cost
MOST_STARTS = 24
SAME = 0.1  # nats: of starts that are no further apart, one is enough
HEATS = ((20, 8), (40, 3))  # passes, and how many starts continue after them
LOOK = 5  # passes after which starts that are out of the running go
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
    parts = zip(*(start(number) for number in range(count)), strict=True)
    parameters = Parameters(*(torch.stack(tensors) for tensors in parts))
    rows = kernels.for_groups(batch, parameters.d, options)
    before = parameters.log_weights.new_full((count,), -torch.inf, device="cpu")
    for number, (passes, most) in enumerate(HEATS):
        for _ in range(passes // LOOK):
            if len(parameters.means) == 1 and number:
                break
            parameters, before = _look(parameters, before, rows, aim)
        parameters, before = (parameters.pick(list(range(len(before)))[:most]), before[:most])
    return [Parameters(*tensors) for tensors in zip(*parameters, strict=True)]


def _look(parameters: Parameters, before: Tensor, rows: kernels.RowsForGroups, aim: Aim) -> tuple[Parameters, Tensor]:
    """Starts after some passes that are still in the running, the best first, and their values; all had one before."""
    total, n = float(rows.batch.total_weight()), rows.batch.n
    groups = _all_rows(rows.batch, parameters)
    for _ in range(LOOK):
        before_step = parameters
        sums = group_sums(parameters, rows, groups, aim)
        parameters = em_step(parameters, sums, total, aim)
        groups = groups if rows.batch.background is None else _all_rows(rows.batch, parameters)
    loglik = sums.loglik.cpu() + aim.log_density(before_step)  # those of the last step are not known yet
    value, best = torch.where(loglik.isfinite(), loglik, -torch.inf).sort(descending=True, stable=True)
    nat = total / n  # weights may have any unit
    behind, gained = ((value[0] - value).nan_to_num(0.0), (value - before[best]).nan_to_num(0.0))
    running = behind < torch.maximum(CATCH_UP * gained, torch.tensor(CLOSE * nat))
    apart = value.diff(prepend=value.new_full((1,), torch.inf)).abs()
    unlike = torch.maximum(apart, gained) > SAME * nat  # two may meet on their ways
    chosen = best[running & unlike]
    return parameters.pick(chosen.to(parameters.means.device)), value[running & unlike]


def heat(parameters: Parameters, rows: kernels.RowsForGroups, passes: int, most: int, aim: Aim) -> Parameters:
    """The best of some starts after some passes, the best first."""
    total = float(rows.batch.total_weight())
    for _ in range(passes):
        sums = group_sums(parameters, rows, _all_rows(rows.batch, parameters), aim)
        parameters = em_step(parameters, sums, total, aim)
    last = group_sums(parameters, rows, _all_rows(rows.batch, parameters), aim)
    loglik = last.loglik.cpu() + aim.log_density(parameters)
    value = torch.where(loglik.isfinite(), loglik, -torch.inf)
    value, best = value.sort(descending=True, stable=True)
    unlike = value.diff(prepend=value.new_full((1,), torch.inf)).abs() > SAME * total / rows.batch.n
    return parameters.pick(best[unlike][:most].to(parameters.means.device))


def _all_rows(batch: Batch, parameters: Parameters) -> Groups:
    """Every row in each of some groups, with nothing behind it, or the background that its weights leave."""
    n, times = batch.n, len(parameters.means)
    weight = torch.ones(n, dtype=torch.float64) if batch.weight is None else batch.weight.double().cpu()
    behind: Tensor = torch.full((times * n,), -torch.inf, dtype=torch.float64)
    if batch.background is not None:
        left = (1 - parameters.log_weights.double().exp().sum(1)).clamp(min=0.0).log().cpu()
        behind = (left[:, None] + batch.background.double().cpu()).flatten()
    return Groups(torch.arange(n).repeat(times), n * torch.arange(times + 1), behind, weight.repeat(times))
