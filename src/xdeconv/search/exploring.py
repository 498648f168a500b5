"""Exploring: a good place to begin, from several starts that are searched apart and then recombined.

Where a search ends depends on its start. Two searches, each on its own sample of the rows, find different parts of
what there is; their components are put together, and those that cost least are merged or removed until as many are
left as were asked for. On 80,000 rows of Gaia fields (k = 64) this ends 0.03 to 0.05 nat per row above either parent.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..methods.prior import Prior
from ..rows.batch import Batch
from .moves import Found, Moves, Search
from .passes import em_passes, total_log_prob
from .pruning import joined, pruned

FIRST_PASSES = 10  # EM passes from a start to its search
JOIN_PASSES = 3
PARENT_ROWS = 20_000  # rows that each start is searched on, at least
ROWS_EACH = 300  # rows per component, at least

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
    """The best mixture found from ``moves.starts`` starts on a pool of rows."""
    size = max(PARENT_ROWS, ROWS_EACH * k)
    order = rng.permutation(pool.n)
    parents, moved = [], 0
    for number in range(max(1, moves.starts)):
        rows = _part(pool, order, number * size, size)
        share = None if prior is None else prior.scaled(float(rows.total_weight()) / float(pool.total_weight()))
        begun = em_passes(start(rows, number), rows, FIRST_PASSES, share, options)
        found = Search(rows, moves, rng, share, options).run(begun)
        parents.append(found.parameters)
        moved += found.moved
    best = _recombined(parents, k, pool, _part(pool, order, 0, 2 * size), prior, options)
    found = Search(pool, moves, rng, prior, options).run(best)
    return Found(found.parameters, moved + found.moved, found.gain, found.sound)


def _recombined(
    parents: list[Parameters], k: int, pool: Batch, rows: Batch, prior: Prior | None, options: Options
) -> Parameters:
    """One mixture of k components from several, or the best of them where that is better."""
    candidates = parents
    if len(parents) > 1:
        share = None if prior is None else prior.scaled(float(rows.total_weight()) / float(pool.total_weight()))
        child = pruned(em_passes(joined(parents), rows, JOIN_PASSES, share, options), k, rows, share, options)
        candidates = [*parents, child]
    candidates = [em_passes(c, pool, JOIN_PASSES, prior, options) for c in candidates]
    if len(candidates) == 1:
        return candidates[0]
    scores = np.array([total_log_prob(c, pool, options) for c in candidates])
    return candidates[int(np.where(np.isfinite(scores), scores, -np.inf).argmax())]


def _part(pool: Batch, order: np.ndarray, start: int, size: int) -> Batch:
    """Some rows of a pool in random order, going round where it ends; all of them where it has no more."""
    if size >= pool.n:
        return pool
    chosen = np.sort(np.take(order, np.arange(start, start + size), mode="wrap"))
    return pool.rows(torch.from_numpy(chosen).to(pool.device))
