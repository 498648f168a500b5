"""Pruning: fewer components from many, by merging and removing those that cost least."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from .. import kernels
from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..rows.batch import Batch
from .aim import ANY, Aim
from .passes import em_passes, shared
from .pool import Pool
from .trials import Change, Effort, removals, try_merges

SHARE = 0.35  # of the components too many that may go in one round
PASSES = 2  # EM passes between rounds
STEPS = 2  # local EM steps of a merge, after one on some rows
SCREEN_ROWS = 750  # at most, for that one
PAIRS = 2  # merges tried for each component
FEWEST = 1 / 16  # of the components that stay: so many go in one round at least
JUDGES = 10_000  # rows that changes are judged on, or so many per component
ROWS_EACH = 150

Merges = dict[tuple[int, ...], Change]
"""Trials of merges, by the places of the components."""


def pruned(parameters: Parameters, k: int, batch: Batch, aim: Aim = ANY, options: Options = DEFAULT) -> Parameters:
    """A mixture of k components made of more: the cheapest go, some at a time, with EM passes between."""
    judges, share = _some(batch, max(JUDGES, ROWS_EACH * k))
    rows, aim_of_some = kernels.for_groups(judges, parameters.d, options), aim.scaled(share)
    effort, merges = Effort(3 * STEPS, SCREEN_ROWS, 0, aim_of_some), Merges()
    rng = np.random.default_rng(k)
    while parameters.k > k:
        pool = Pool.of(parameters, rows, aim_of_some, options)
        pairs = pool.near_pairs(PAIRS)
        untried = [pair for pair in pairs if pair not in merges]
        merges |= {change.old: change for change in try_merges(untried, parameters, pool, effort, rng)}
        freed = [merges[pair] for pair in pairs] + removals(parameters, pool)
        near = _overlapping(pool)
        chosen = cheapest(freed, pool, near, _so_many(parameters.k - k, k))
        parameters = em_passes(without(parameters, chosen), batch, PASSES, aim, options)
        merges = _still_true(merges, chosen, near)
    return parameters


def _so_many(extra: int, k: int) -> int:
    """How many of the extra components go in one round."""
    return min(extra, max(1, round(FEWEST * k), round(SHARE * extra)))


def _some(batch: Batch, most: int) -> tuple[Batch, float]:
    """At most so many rows, evenly spaced, and their share of all weight."""
    step = -(-batch.n // most)
    if step == 1:
        return batch, 1.0
    some = batch.rows(torch.arange(0, batch.n, step, device=batch.device))
    return some, float(some.total_weight()) / float(batch.total_weight())


def _overlapping(pool: Pool) -> np.ndarray:
    """Which components (k, k) share rows with each other."""
    return pool.shares.overlap > 0.05 * np.minimum(pool.mass.numpy()[:, None], pool.mass.numpy())


def _still_true(merges: Merges, chosen: list[Change], near: np.ndarray) -> Merges:
    """Trials of pairs that are far from what was changed, under the places that their components have now."""
    gone = [c for change in chosen for c in change.old]
    touched = {*gone, *np.flatnonzero(near[gone].any(axis=0)).tolist()}
    place = np.cumsum(~np.isin(np.arange(len(near)), gone)) - 1
    far = {pair: change for pair, change in merges.items() if touched.isdisjoint(pair)}
    moved = [replace(change, old=tuple(place[list(pair)].tolist())) for pair, change in far.items()]
    return {change.old: change for change in moved}


def cheapest(freed: list[Change], pool: Pool, near: np.ndarray, most: int) -> list[Change]:
    """The changes that cost least, none beside another: a component and its twin must not both go."""
    blocked: set[int] = set()
    chosen: list[Change] = []
    for change in sorted(freed, key=lambda change: -change.gain):
        if not blocked & set(change.old) and np.isfinite(change.gain):
            chosen.append(change)
            blocked |= {int(c) for old in change.old for c in np.flatnonzero(near[old])} | set(change.old)
        if len(chosen) == most:
            break
    if not chosen:  # nothing can be judged: the lightest goes
        lightest = int(pool.mass.nan_to_num(0.0).argmin())
        return [change for change in freed if change.old == (lightest,)]
    return chosen


def without(parameters: Parameters, chosen: list[Change]) -> Parameters:
    """The parameters with changes made that each free a component."""
    gone = [c for change in chosen for c in change.old]
    keep = [c for c in range(parameters.k) if c not in gone]
    return _as_one([parameters.pick(keep), *(change.new for change in chosen)], [parameters])


def joined(several: list[Parameters]) -> Parameters:
    """One mixture of the components of several, each with its share."""
    return _as_one(several, several)


def _as_one(parts: list[Parameters], made_of: list[Parameters]) -> Parameters:
    """One mixture of the components of some parts, with the weight that mixtures leave beside a background."""
    log_weights, means, covariances = (torch.cat(t) for t in zip(*parts, strict=True))
    return Parameters(shared(log_weights, made_of), means, covariances)
