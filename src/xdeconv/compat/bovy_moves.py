"""Split-and-merge moves of Bovy, Hogg & Roweis (2011) where some components are held as they are."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from .. import kernels
from ..kernels.parameters import Parameters
from ..rows.batch import Batch
from ..search.halves import half_shifts
from ..search.moves import bovy_pairs, bovy_splits
from ..search.pool import Pool

FEWEST_TO_MOVE = 3  # components: a move splits one and merges two others


def candidates(parameters: Parameters, batch: Batch, free: list[int]) -> Iterator[Parameters]:
    """Mixtures with two components merged and a third one split, the likeliest to gain first; held ones stay.

    Parameters
    ----------
    parameters : Parameters
        The mixture now.
    batch : Batch
        The rows.
    free : list of int
        Components of which nothing is held.

    Yields
    ------
    Parameters
    """
    if len(free) < FEWEST_TO_MOVE:
        return
    pool = Pool.of(parameters, kernels.for_groups(batch, parameters.d))
    pairs = [pair for pair in bovy_pairs(pool) if set(pair) <= set(free)]
    splits = [c for c in bovy_splits(parameters, pool) if c in free]
    for a, b in pairs:
        for c in splits:
            if c not in (a, b):
                yield moved(parameters, a, b, c)


def moved(parameters: Parameters, a: int, b: int, c: int) -> Parameters:
    """Components a and b as one with the same moments at a, and c as two halves at b and c."""
    log_weights, means, covariances = (t.clone() for t in parameters)
    both = torch.tensor([a, b])
    share = log_weights[both].softmax(0)
    mean = share @ means[both]
    away = means[both] - mean
    pooled = torch.einsum("m,mde->de", share, covariances[both] + away[:, :, None] * away[:, None, :])
    shift: Tensor = half_shifts(covariances[c])[-1]
    half = covariances[c] - 0.98 * shift[:, None] * shift  # not all of it: a half must not be singular
    each = log_weights[c] - math.log(2)
    log_weights[[a, b, c]] = torch.stack([log_weights[both].logsumexp(0), each, each])
    means[[a, b, c]] = torch.stack([mean, means[c] + shift, means[c] - shift])
    covariances[[a, b, c]] = torch.stack([pooled, half, half])
    return Parameters(log_weights, means, covariances)
