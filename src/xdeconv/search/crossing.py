"""Crossings: mixtures that have some components of one parent and the others of another.

Two searches of the same rows mostly find the same components, and differ in a few that hang together. Components are
paired by how much they overlap; of the pairs that differ, each choice of one component per pair is a crossing. On
Hipparcos' velocities (k = 10) two ends that are both 2 nats below the best known one, or both 9, often have it among
their crossings, while no move of one component leads there.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from ..kernels.parameters import Parameters
from ..mixture.distances import bhattacharyya
from .passes import shared

ALIKE = 0.02  # Bhattacharyya distance below which it does not matter which of two components is taken
MOST_PAIRS = 6  # that are told apart: 62 crossings


def crossings(one: Parameters, other: Parameters) -> list[Parameters]:
    """Mixtures between two of as many components; none where fewer than two pairs of components differ."""
    gaussians = (part.double().cpu().numpy() for part in (*one[1:], *other[1:]))
    distance = bhattacharyya(*gaussians)
    first, second = linear_sum_assignment(distance)
    apart = distance[first, second]
    differ = [at for at in np.argsort(-apart, kind="stable")[:MOST_PAIRS] if apart[at] > ALIKE]
    choices = [set(np.array(differ)[list(chosen)]) for chosen in product([False, True], repeat=len(differ))]
    return [_crossed(one, other, first, second, taken) for taken in choices if 0 < len(taken) < len(differ)]


def _crossed(one: Parameters, other: Parameters, first: np.ndarray, second: np.ndarray, taken: set[int]) -> Parameters:
    """The components ``first`` of one, but for some places, which have those of the other."""
    places = [(other, second[at]) if at in taken else (one, first[at]) for at in range(one.k)]
    parts = (torch.stack([parent[part][at] for parent, at in places]) for part in range(3))
    log_weights, means, covariances = parts
    return Parameters(shared(log_weights, [one, other]), means, covariances)
