"""Ways to make two components of one."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..kernels import Groups
from ..kernels.parameters import Parameters, stacked
from .aim import ANY
from .halves import half_shifts
from .pool import Neighbourhoods
from .sums import group_sums

WAYS = 5


def ways_to_split(parts: Parameters, near: Neighbourhoods, rng: np.random.Generator) -> Parameters:
    """Pairs (g, WAYS, 2, ...): halves along two axes, a core and a halo, a small one on each of two rows."""
    log_weights, means, V = parts
    shifts, ways = half_shifts(V), []
    for axis in (-1, -min(2, V.shape[-1])):
        away = shifts[:, axis]
        half = V - 0.98 * away[:, :, None] * away[:, None, :]
        ways.append(_two(log_weights, 0.5, (means + away, means - away), (half, half)))
    ways.append(_two(log_weights, 0.5, (means, means), (0.2 * V, 1.8 * V)))
    for _ in range(2):
        ways.append(_two(log_weights, 0.2, (seen_from_a_row(means, V, near, rng), means), (0.1 * V, V)))
    return stacked(ways, dim=1)


def _two(log_weight: Tensor, share: float, means: tuple[Tensor, Tensor], V: tuple[Tensor, Tensor]) -> Parameters:
    shares = torch.stack([log_weight + np.log(share), log_weight + np.log(1 - share)], dim=1)
    return Parameters(shares, torch.stack(means, dim=1), torch.stack(V, dim=1))


def seen_from_a_row(means: Tensor, V: Tensor, near: Neighbourhoods, rng: np.random.Generator) -> Tensor:
    """The posterior mean (g, d) of a random row under each component; the component's own mean if it has no row."""
    starts, sizes = near.groups.starts[:-1].numpy(), near.groups.sizes.numpy()
    some = np.flatnonzero(sizes)
    if not len(some):
        return means
    chosen = near.groups.rows[torch.from_numpy(starts[some] + rng.integers(sizes[some]))]
    one = torch.ones(len(some), dtype=torch.float64)
    groups = Groups(chosen, torch.arange(len(some) + 1), torch.full_like(one, -torch.inf), one)
    index = torch.from_numpy(some)
    own = Parameters(torch.zeros_like(means[index, :1]), means[index, None], V[index, None])
    sums = group_sums(own, near.rows, groups, ANY)
    moved = means.clone()
    moved[index] += torch.einsum("gde,ge->gd", V[index], sums.g[:, 0].nan_to_num(0.0))
    return moved
