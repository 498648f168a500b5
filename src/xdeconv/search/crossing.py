"""Crossings: mixtures that have some components of one parent and the others of another.

Two searches of the same rows mostly find the same components, and differ in a few that hang together. Components are
paired by how much they overlap; of the pairs that differ, each choice of one component per pair is a crossing. On
Hipparcos' velocities (k = 10) two ends that are both 2 nats below the best known one, or both 9, often have it among
their crossings, while no move of one component leads there. What differs by less than ``ALIKE`` follows the others in a
few passes: choices of it would only be many that end where they began.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from ..kernels.parameters import Parameters
from ..mixture.distances import bhattacharyya
from .passes import shared

ALIKE = 0.1  # Bhattacharyya distance below which it does not matter which of two components is taken
MOST_PAIRS = 5  # that are told apart: 30 crossings


def crossings(one: Parameters, other: Parameters) -> list[Parameters]:
    """Mixtures between two of as many components; none where fewer than two pairs of components differ."""
    first, second, apart = _pairs(one, other)
    differ = [at for at in np.argsort(-apart, kind="stable")[:MOST_PAIRS] if apart[at] > ALIKE]
    choices = [set(np.array(differ)[list(chosen)]) for chosen in product([False, True], repeat=len(differ))]
    return [_crossed(one, other, first, second, taken) for taken in choices if 0 < len(taken) < len(differ)]


def alike(one: Parameters, other: Parameters) -> bool:
    """Whether no pair of components differs."""
    return not (_pairs(one, other)[2] > ALIKE).any()


def _pairs(one: Parameters, other: Parameters) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which components of one are which of another, and how far they are apart."""
    from scipy.optimize import linear_sum_assignment  # a quarter of a second to import, for fits of projected rows

    gaussians = (part.double().numpy() for part in (*one[1:], *other[1:]))
    distance = bhattacharyya(*gaussians)
    first, second = linear_sum_assignment(np.nan_to_num(distance, nan=1e300, posinf=1e300))
    return first, second, distance[first, second]


def _crossed(one: Parameters, other: Parameters, first: np.ndarray, second: np.ndarray, taken: set[int]) -> Parameters:
    """The components ``first`` of one, but for some places, which have those of the other."""
    places = [(other, second[at]) if at in taken else (one, first[at]) for at in range(one.k)]
    parts = (torch.stack([parent[part][at] for parent, at in places]) for part in range(3))
    log_weights, means, covariances = parts
    return Parameters(shared(log_weights, [one, other]), means, covariances)
