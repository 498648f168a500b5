"""Exploring: a good place to begin, from several starts that are searched apart and then recombined.

Where a search ends depends on its start. Searches, each on its own sample of the rows, find different parts of what
there is. The components of two are put together, and those that cost least are merged or removed until as many are
left as were asked for; so with what comes of two such pairs. On 80,000 rows of Gaia fields (k = 64) each generation
gains 0.03 to 0.05 nat per row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..methods.prior import Prior
from ..rows.batch import Batch
from ..system.progress import tell
from .contest import contest
from .moves import Found, Moves, Search
from .passes import em_passes, total_log_prob
from .pruning import joined, pruned

FIRST_PASSES = 10  # EM passes from a start to its search
JOIN_PASSES = 3
PARENT_ROWS = 10_000  # rows that each start is searched on, at least
ROWS_EACH = 150  # rows per component, at least
CHILD = 3  # times as many rows for what two of them become
CHILD_SWEEPS = 4
FEW_STARTS = 2

Start = Callable[[Batch, int], Parameters]
"""Makes a mixture for some rows; the number tells one start from another."""


def explore(
    pool: Batch,
    k: int,
    start: Start,
    moves: Moves,
    rng: np.random.Generator,
    prior: Prior | None = None,
    options: Options = DEFAULT,
) -> Found:
    """The best mixture found from ``moves.starts`` starts; fewer where all would see the same rows."""
    there = _Rows(pool, rng.permutation(pool.n), max(PARENT_ROWS, ROWS_EACH * k), prior, options)
    begun = _starts(there, start, k, moves)
    parents = [_parent(there, parameters, number, moves, rng) for number, parameters in enumerate(begun)]
    moved = sum(found.moved for found in parents)
    generation = [found.parameters for found in parents]
    while len(generation) > 1:
        pairs = [generation[i : i + 2] for i in range(0, len(generation), 2)]
        generation = [_child(there, pair, k, number, moves, rng) for number, pair in enumerate(pairs)]
    best = em_passes(generation[0], pool, JOIN_PASSES, prior, options)
    found = Search(pool, moves, rng, prior, options).run(best)
    return Found(found.parameters, moved + found.moved, found.gain, found.sound)


@dataclass(frozen=True)
class _Rows:
    """A pool in random order, of which parents get ``size`` rows each, with the prior of the whole pool."""

    pool: Batch
    order: np.ndarray
    size: int
    prior: Prior | None
    options: Options

    def part(self, number: int, times: int) -> tuple[Batch, Prior | None]:
        """Some rows, going round where the pool ends, and their share of the prior; all if there are no more."""
        size = times * self.size
        if size >= self.pool.n:
            return self.pool, self.prior
        chosen = np.sort(np.take(self.order, np.arange(number * size, (number + 1) * size), mode="wrap"))
        rows = self.pool.rows(torch.from_numpy(chosen).to(self.pool.device))
        share = float(rows.total_weight()) / float(self.pool.total_weight())
        return rows, None if self.prior is None else self.prior.scaled(share)


def _starts(there: _Rows, start: Start, k: int, moves: Moves) -> list[Parameters]:
    """Where searches begin: one start on rows of its own each, or the best of many where all see the same rows."""
    if there.size >= there.pool.n and moves.starts > 1:
        return contest(partial(start, there.pool), there.pool, k, FEW_STARTS, there.prior, there.options)
    parts = [there.part(number, 1) for number in range(max(1, moves.starts))]
    return [
        em_passes(start(rows, number), rows, FIRST_PASSES, prior, there.options)
        for number, (rows, prior) in enumerate(parts)
    ]


def _parent(there: _Rows, begun: Parameters, number: int, moves: Moves, rng: np.random.Generator) -> Found:
    """What a search from one start finds on rows of its own."""
    tell(f"searching from start {number + 1}")
    rows, prior = there.part(number, 1)
    return Search(rows, moves, rng, prior, there.options).run(begun)


def _child(
    there: _Rows, parents: list[Parameters], k: int, number: int, moves: Moves, rng: np.random.Generator
) -> Parameters:
    """One mixture of k components from two, or the better of them where that is better."""
    if len(parents) == 1:
        return parents[0]
    rows, prior = there.part(number, CHILD)
    both = em_passes(joined(parents), rows, JOIN_PASSES, prior, there.options)
    candidates = [*parents, pruned(both, k, rows, prior, there.options)]
    candidates = [em_passes(c, rows, JOIN_PASSES, prior, there.options) for c in candidates]
    scores = np.array([total_log_prob(c, rows, there.options) for c in candidates])
    best = candidates[int(np.where(np.isfinite(scores), scores, -np.inf).argmax())]
    return (
        Search(rows, replace(moves, sweeps=min(moves.sweeps, CHILD_SWEEPS)), rng, prior, there.options)
        .run(best)
        .parameters
    )
