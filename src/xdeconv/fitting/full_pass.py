"""Sums over all rows of a source, on all ranks, or where the rows live: what a full pass is made of."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .. import kernels
from ..kernels.options import Options
from ..kernels.parameters import Factors, Parameters
from ..kernels.stats import Stats
from ..mixture.inflated import Inflated
from ..mixture.tails import StudentT
from ..rows.batch import Batch
from ..rows.data import Source
from ..system.ranks import rank, sum_over_ranks, world
from .beside.inflating import inflated_sums
from .beside.selected import Selected


def summed(source: Source, function: Callable[[Batch], Tensor], size: int, device: torch.device) -> Tensor:
    """The sum (size,) of function(batch) over all rows, in their order; float64, the same bits on every rank."""
    nothing = torch.zeros(size, dtype=torch.float64, device=device)
    total = source.arranged(None, 0).sum(function, rank=rank(), world=world())
    return sum_over_ranks(nothing + total.to(device))


def sums_of(
    batch: Batch, parameters: Parameters, options: Options, factors: Factors | None = None,
    tails: StudentT | None = None, inflation: Inflated | None = None, selected: Selected | None = None,
) -> Stats:  # fmt: skip
    """The sums that methods learn from; of components with tails, those of all their scales pulled back.

    Of rows that were selected, with the rows that were rejected.
    """
    every, rows = (parameters, batch) if tails is None else (tails.expanded(parameters), tails.rows(batch))
    if inflation is None:
        sums = kernels.accumulate(*every, rows, options, factors if tails is None else None)
        sums = sums if selected is None else selected.corrected(sums, every, batch)
        return sums if tails is None else tails.pulled_back(sums, parameters.covariances)
    sums, slopes, certainty = inflated_sums(rows, every, options, inflation)
    sums = sums if tails is None else tails.pulled_back(sums, parameters.covariances)
    return sums.with_numbers(slopes, certainty)


def stats_of(
    batch: Batch, parameters: Parameters, options: Options, factors: Factors | None = None,
    tails: StudentT | None = None, inflation: Inflated | None = None, selected: Selected | None = None,
) -> Tensor:  # fmt: skip
    """The same, as :class:`xdeconv.kernels.stats.Stats` packs them."""
    return sums_of(batch, parameters, options, factors, tails, inflation, selected).packed


def score_of(
    batch: Batch, parameters: Parameters, options: Options, tails: StudentT | None = None,
    inflation: Inflated | None = None, selected: Selected | None = None,
) -> Tensor:  # fmt: skip
    """Weighted log-likelihood and weight (2,); parameters are those of all scales."""
    batch = batch if tails is None else tails.rows(batch)
    batch = batch if inflation is None else inflation.rows_of(batch)
    log_prob = kernels.log_prob(*parameters, batch, options).double()
    log_prob = log_prob if selected is None else log_prob + selected.gain(parameters, batch)
    total = log_prob.sum() if batch.weight is None else batch.weight.double() @ log_prob
    return torch.stack([total, batch.total_weight()])


def weight_of(batch: Batch) -> Tensor:
    """Weight, and how many rows have nothing observed (2,)."""
    empty = batch.x.isnan().all(0).sum().double() if batch.missing else torch.zeros_like(batch.total_weight())
    return torch.stack([batch.total_weight(), empty])
