"""Exploring: a good place to begin, from several starts that are searched apart and then recombined.

Where a search ends depends on its start. Searches, each on its own sample of the rows, find different parts of what
there is. The components of two are put together, and those that cost least are merged or removed until as many are
left as were asked for; so with what comes of two such pairs. On 80,000 rows of Gaia fields (k = 64) each generation
gains 0.03 to 0.05 nat per row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import torch

from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..rows.batch import Batch
from ..system.progress import tell
from ..system.threads import each
from .aim import ANY, Aim
from .broad import explore_broadly, fits
from .contest import contest
from .moves import Moves, Outcome, Search
from .passes import em_passes
from .pruning import joined, pruned
from .single import agree, worth_single
from .sums import total_log_prob

FIRST_PASSES = 10  # EM passes from a start to its search
JOIN_PASSES = 3
PARENT_ROWS = 10_000  # at least so many rows each start is searched on
ROWS_EACH = 150  # at least so many rows per component
THREAD_PAIRS = 1 << 17  # of row and component in a pass: with fewer, threads wait for Python
CHILD = 3  # times as many rows for what two of them become
CHILD_SWEEPS = 4
FEW_STARTS = 2
SAME = 1.0  # nats: searches whose results are no further apart have ended at the same place

T = TypeVar("T")
Starts = Callable[[Batch], Callable[[int], Parameters]]
"""Makes mixtures for some rows; a number tells one start from another."""
Task = Callable[[np.random.Generator], Outcome]


def explore(
    pool: Batch,
    k: int,
    starts: Starts,
    moves: Moves,
    rng: np.random.Generator,
    aim: Aim = ANY,
    options: Options = DEFAULT,
) -> Outcome:
    """The best mixture found from ``moves.starts`` starts; fewer where all would see the same rows."""
    if fits(pool, k):
        return explore_broadly(starts, pool, k, moves, rng, aim, options)
    there = _Rows(pool, rng.permutation(pool.n), max(PARENT_ROWS, ROWS_EACH * k), aim, options)
    begun = _starts(there, starts, k, moves)
    if worth_single(pool, k):
        best = _recombined(there.single(), begun, k, moves, rng)
        if best.sound and agree(best.parameters, pool, aim, options):
            return best
    return _recombined(there, begun, k, moves, rng)


def _recombined(there: _Rows, generation: list[Parameters], k: int, moves: Moves, rng: np.random.Generator) -> Outcome:
    """What comes of some starts: each is searched from, then pairs become one until one is left."""
    tasks = [partial(_parent, there, begun, number, moves) for number, begun in enumerate(generation)]
    results = _sound(there.side_by_side(tasks, k, rng))
    if len(results) > 1:
        there = there.more()
    while len(results) > 1:
        pairs = [results[i : i + 2] for i in range(0, len(results), 2)]
        tasks = [partial(_child, there, pair, k, number, moves) for number, pair in enumerate(pairs)]
        results = _sound(there.side_by_side(tasks, k, rng))
    best = results[0]
    if there.all:  # all rows have been searched
        return best
    last = em_passes(best.parameters, there.pool, JOIN_PASSES, there.aim, there.options)
    return _and_before(Search(there.pool, moves, rng, there.aim, there.options).run(last), [best])


def _sound(results: list[Outcome]) -> list[Outcome]:
    """Those that can be judged, or one."""
    return [one for one in results if one.sound] or results[:1]


@dataclass(frozen=True)
class _Rows:
    """A pool in random order, of which each search gets ``size`` rows, with the aim of the whole pool."""

    pool: Batch
    order: np.ndarray
    size: int
    aim: Aim
    options: Options

    @property
    def all(self) -> bool:
        """Whether each search gets all rows."""
        return self.size >= self.pool.n

    def part(self, number: int) -> tuple[Batch, Aim]:
        """The rows of one search, going round where the pool ends, and their share of the aim."""
        if self.all:
            return self.pool, self.aim
        chosen = np.take(self.order, np.arange(number * self.size, (number + 1) * self.size), mode="wrap")
        rows = self.pool.rows(torch.from_numpy(np.sort(chosen)).to(self.pool.device))
        share = float(rows.total_weight()) / float(self.pool.total_weight())
        return rows, self.aim.scaled(share)

    def more(self) -> _Rows:
        """The same with more rows for each search."""
        return replace(self, size=CHILD * self.size)

    def single(self) -> _Rows:
        """The same in float32."""
        return replace(self, pool=self.pool.to(dtype=torch.float32))

    def side_by_side(self, tasks: Sequence[Task], k: int, rng: np.random.Generator) -> list[Outcome]:
        """What all tasks find, each with random numbers of its own."""
        return self.each([partial(task, own) for task, own in zip(tasks, rng.spawn(len(tasks)), strict=True)], k)

    def each(self, jobs: Sequence[Callable[[], T]], k: int) -> list[T]:
        """What all jobs make; in threads of their own where passes are long."""
        if self.pool.device.type != "cpu" or self.size * k < THREAD_PAIRS:
            return [job() for job in jobs]
        return each(jobs, lambda job: job())


def _starts(there: _Rows, starts: Starts, k: int, moves: Moves) -> list[Parameters]:
    """Where searches begin: one start on rows of its own each, or the best of many where all see the same rows."""
    if there.all and moves.starts > 1:
        return contest(starts(there.pool), there.pool, k, FEW_STARTS, there.aim, there.options)
    return there.each([partial(_start, there, starts, number) for number in range(max(1, moves.starts))], k)


def _start(there: _Rows, starts: Starts, number: int) -> Parameters:
    """A start on rows of its own."""
    rows, aim = there.part(number)
    return em_passes(starts(rows)(number), rows, FIRST_PASSES, aim, there.options)


def _parent(there: _Rows, begun: Parameters, number: int, moves: Moves, rng: np.random.Generator) -> Outcome:
    """What a search from one start finds on rows of its own."""
    tell(f"searching from start {number + 1}")
    rows, aim = there.part(number)
    return Search(rows, moves, rng, aim, there.options).run(begun)


def _child(
    there: _Rows, parents: list[Outcome], k: int, number: int, moves: Moves, rng: np.random.Generator
) -> Outcome:
    """One mixture of k components from two, or the better of them where that is better or both are the same."""
    if len(parents) == 1:
        return parents[0]
    rows, aim = there.part(number)
    both = [em_passes(one.parameters, rows, JOIN_PASSES, aim, there.options) for one in parents]
    values = [_finite(total_log_prob(one, rows, aim, there.options)) for one in both]
    if abs(values[0] - values[1]) < SAME * rows.mean_weight():
        return _and_before(replace(parents[0], parameters=both[int(np.argmax(values))]), parents[1:])
    begun = em_passes(joined([one.parameters for one in parents]), rows, JOIN_PASSES, aim, there.options)
    begun = em_passes(pruned(begun, k, rows, aim, there.options), rows, JOIN_PASSES, aim, there.options)
    values.append(_finite(total_log_prob(begun, rows, aim, there.options)))
    best = [*both, begun][int(np.argmax(values))]
    few = replace(moves, sweeps=min(moves.sweeps, CHILD_SWEEPS))
    return _and_before(Search(rows, few, rng, aim, there.options).run(best), parents)


def _and_before(best: Outcome, earlier: list[Outcome]) -> Outcome:
    """What was found, with the moves that led to what it was found from."""
    return replace(best, moved=best.moved + sum(one.moved for one in earlier))


def _finite(value: float) -> float:
    return value if np.isfinite(value) else -np.inf
