"""Rows with those that were rejected drawn beside them, by the present mixture: what moves are judged by.

Together they are as if nothing had been selected, so that a search needs to know of no selection. What it gains on them
is a lower bound, in the mean over the draws, of what the rows gain given that they were kept: the inequality of EM.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...mixture._mixture import Mixture
from ...rows.batch import Batch, concatenate

EACH, DRAWN = 4, 1 << 16  # rows that are drawn for each one, to be kept or rejected: fewer where these are many
CHANCES, FEWEST = 1, 1 << 13  # draws per row, and of few rows, that tell its chance to 1 %: those that follow have lots
MOST = 10.0  # rows that one which was kept may stand for, in the mean: with more, draws would judge


def completed(rows: Batch, mixture: Mixture, rng: np.random.Generator) -> Batch | None:
    """Rows and rejected ones, whose weights are how many were rejected for one that was kept; all in one frame.

    None where almost all were rejected.
    """
    seen = rows.to("cpu", torch.float64)
    seen = replace(seen, weight=seen.weights())
    rejected = _rejected(seen, mixture, rng)
    if float(rejected.total_weight()) > MOST * float(seen.total_weight()):
        return None
    if rejected.full != seen.full or rejected.noise is None or seen.noise is None:
        seen, rejected = _dense(seen), _dense(rejected)
    return concatenate([seen, rejected]).to(rows.device, rows.dtype)


def _rejected(seen: Batch, mixture: Mixture, rng: np.random.Generator) -> Batch:
    selection, population = mixture.selection, mixture.population()
    assert selection is not None
    assert seen.weight is not None
    chances = selection.around(population, CHANCES, int(rng.integers(1 << 31)), FEWEST)
    stands_for = seen.weight / chances.log_chance(population, seen).exp()
    times = max(1, min(EACH, DRAWN // seen.n))
    like = seen.rows(torch.arange(seen.n).repeat(times))
    drawn = selection.noisy_rows(mixture.drawn(like.n, rng), like, rng)
    drawn = replace(drawn, x=torch.where(like.x.isnan(), torch.nan, drawn.x), missing=like.missing)
    weight = (1 - selection.probability(drawn)) * stands_for.repeat(times) / times
    drawn = replace(drawn, weight=weight, scale=seen.scale, background=_density(mixture, drawn, seen.scale))
    return drawn.rows(weight.nonzero()[:, 0])


def _density(mixture: Mixture, drawn: Batch, scale: Tensor | None) -> Tensor | None:
    """What the background has there, in the user's units."""
    if mixture.background is None:
        return None
    inside = mixture.background.log_density(replace(drawn, scale=None))
    return inside if scale is None else inside - scale.double().cpu().log() @ (~drawn.x.isnan()).double()


def _dense(batch: Batch) -> Batch:
    """The same with a covariance matrix for each row."""
    lower = torch.tril_indices(batch.p, batch.p)
    packed = batch.covariance()[:, lower[0], lower[1]].T.expand(-1, batch.n)
    return replace(batch, noise=packed.contiguous())
