"""Trials of moves: EM on the touched components alone, with all others held, over the rows that they matter for.

Every trial is a group of rows with its own few components; the others' density is the group's background. All trials
of a kind go through the kernels together, and none pays for another's rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..kernels import GroupSums
from ..kernels.parameters import Parameters
from ..methods.step import step_of
from .aim import Aim
from .pool import Neighbourhoods, Pool
from .splits import WAYS, ways_to_split
from .sums import group_sums

CHEAP = 0.4  # of the merges tried: more than are ever made
EARLY, FEW = 2, 2  # local EM steps after which only the few best ways to split are followed further


@dataclass(frozen=True)
class Effort:
    """Local EM steps: of each way to split, on at most so many rows, and further ones of the best on all rows."""

    screening: int
    screen_rows: int
    polishing: int
    aim: Aim

    def __post_init__(self) -> None:
        object.__setattr__(self, "aim", self.aim.in_trial())


@dataclass(frozen=True)
class Change:
    """A trial of one move: components that go, what replaces them, and what the log-likelihood gains."""

    old: tuple[int, ...]
    new: Parameters
    gain: float


def refit(near: Neighbourhoods, start: Parameters, steps: int, aim: Aim) -> tuple[Parameters, Tensor, Tensor]:
    """EM on the components (g, m, ...) of every trial: what they become, its gain (g,) and their rows (g, m)."""
    parameters, groups = start, near.groups.to(near.rows.batch.device)
    for step in range(steps + 1):
        sums = group_sums(parameters, near.rows, groups, aim)
        if step < steps:
            parameters = em_step(parameters, sums, near.total, aim)
    bad = torch.linalg.cholesky_ex(parameters.covariances).info.any(1)
    judged = parameters.covariances.where(~bad[:, None, None, None], torch.eye(parameters.d).to(parameters.means))
    gain = sums.loglik - near.groups.summed(near.log_prob)
    gain = gain + aim.log_density(parameters._replace(covariances=judged))
    return parameters, torch.where(bad | gain.isnan(), -torch.inf, gain), sums.q


def em_step(parameters: Parameters, sums: GroupSums, total: float, aim: Aim) -> Parameters:
    """One EM step of every trial's components, whose weights count among all rows; a component without rows stays."""
    _, means, V = parameters
    share = torch.where(sums.q > 0, 1 / sums.q.clamp(min=1e-300), 0.0)
    g, d = len(means), parameters.d
    delta, moved = step_of(*(t.reshape(-1, *t.shape[2:]) for t in (V, share, sums.g, sums.G)))
    moved = aim.updated(moved.view(g, -1, d, d), sums.q, V)
    return Parameters((sums.q / total).log(), means + delta.view(g, -1, d), moved)


def try_splits(
    components: Sequence[int], parameters: Parameters, pool: Pool, effort: Effort, rng: np.random.Generator
) -> list[Change]:
    """For each component, the best of several ways to make two of it, each of which keeps enough rows."""
    if not len(components):
        return []
    touched = [(c,) for c in components]
    near, whole = pool.near(touched), parameters.pick(list(components))
    sample = near.sample(effort.screen_rows, rng)
    ways = Parameters(*(t.flatten(0, 1) for t in ways_to_split(whole, sample, rng)))
    ways = effort.aim.begun(ways, whole.covariances)
    early = min(EARLY, effort.screening)
    trial, gain, _ = refit(sample.repeated(WAYS), ways, early, effort.aim)
    trial = trial.pick(_best(gain, WAYS, FEW))
    trial, gain, _ = refit(sample.repeated(FEW), trial, effort.screening - early, effort.aim)
    refitted, gain, rows = refit(near, trial.pick(_best(gain, FEW, 1)), effort.polishing, effort.aim)
    gain = gain - effort.aim.log_density(Parameters(*(t[:, None] for t in whole)))
    fewest = 2 * (parameters.d + 1)  # or halves shrink onto single rows
    return _changes(touched, refitted, torch.where((rows < fewest).any(1), -torch.inf, gain))


def _best(gain: Tensor, ways: int, few: int) -> Tensor:
    """Places of the few best of so many ways, for each of several trials whose ways follow each other."""
    best = gain.view(-1, ways).topk(few, dim=1).indices.sort(1).values
    return (best + ways * torch.arange(len(best))[:, None]).flatten()


def try_merges(
    pairs: Sequence[tuple[int, ...]], parameters: Parameters, pool: Pool, effort: Effort, rng: np.random.Generator
) -> list[Change]:
    """For each pair, one component that takes its place; what costs most, on some rows, is followed no further."""
    if not len(pairs):
        return []
    parts, near = parameters.pick(torch.tensor(pairs)), pool.near(pairs)
    merged = effort.aim.begun(moment_match(parts), parts.covariances[:, 0])
    merged, gain, _ = refit(near.sample(effort.screen_rows, rng), merged, 1, effort.aim)
    best = gain.argsort(descending=True, stable=True)[: math.ceil(CHEAP * len(pairs))].sort().values
    refitted, gain[best], _ = refit(near.of(best.numpy()), merged.pick(best), effort.screening // 3, effort.aim)
    for target, values in zip(merged, refitted, strict=True):
        target[best] = values
    return _changes(pairs, merged, gain - effort.aim.log_density(parts))


def removals(parameters: Parameters, pool: Pool) -> list[Change]:
    """What each component's removal costs, the others being as they are."""
    nothing = parameters.pick([])
    return [Change((c,), nothing, loss) for c, loss in enumerate(pool.loss.tolist())]


def _changes(touched: Sequence[tuple[int, ...]], refitted: Parameters, gain: Tensor) -> list[Change]:
    gains = gain.tolist()
    return [Change(old, Parameters(*(t[i] for t in refitted)), gains[i]) for i, old in enumerate(touched)]


def moment_match(parts: Parameters) -> Parameters:
    """One component (g, 1, ...) with the weight, mean and covariance of several (g, m, ...) together."""
    log_weights, means, V = parts
    share = torch.where((log_weights == -torch.inf).all(1, keepdim=True), 0.0, log_weights).softmax(1)
    mean = torch.einsum("gm,gmd->gd", share, means)
    away = means - mean[:, None]
    pooled = torch.einsum("gm,gmde->gde", share, V + away[..., :, None] * away[..., None, :])
    return Parameters(log_weights.logsumexp(1, keepdim=True), mean[:, None], pooled[:, None])
