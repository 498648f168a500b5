"""Broad trials: moves judged by EM of all components together, for rows that each say little.

A projected row is compatible with many components, which therefore overlap: when one is split and another goes, all
others give way, over many passes. Trials with the others held are wrong there. On Hipparcos' velocities (two of three
coordinates, k = 10) they promise 234 nats where 75 are lost, and a loss of 31 where 57 are gained. So a split is tried
together with what frees its component, as a whole mixture: many on few rows for a few passes, the best of them on all
rows, and the last ones, one after the other, by accelerated EM until one gains.

Where that ends depends on the start: on Hipparcos' velocities 20 seeds ended at seven places up to 14 nats apart. So
several parents are searched, each on a sample of its own, and the best is crossed with the others (:mod:`.crossing`)
wherever it comes to: eight of ten seeds then end at one place, and the others within 2.5 nats of it.

So with rows whose noise is wider than what they are of: of 32 plain calls with noise of three and five widths, 3 ended
2 to 11 nats below the best without broad trials, and none with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from .. import kernels
from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..rows.batch import Batch
from ..system.progress import tell
from ..system.threads import each
from .aim import ANY, Aim
from .contest import heat
from .crossing import crossings
from .moves import Found, Moves, applied
from .passes import Climb
from .pool import Pool
from .splits import WAYS, ways_to_split
from .sums import total_log_prob
from .trials import Change, Effort, removals, try_merges

S = TypeVar("S")
T = TypeVar("T")
MOST_COMPONENTS = 16  # with more, trials of whole mixtures cost more than they find
PARENTS = 4
PARENT_ROWS = 10_000  # with 6,000, parents are too poor for what their crossings should have
ROWS = 1 << 15  # at most, that mixtures are judged on
HEATS = ((1, 5, 4), (6, 12, 1))  # times the rows of a sweep, EM passes, times the trials that race afterwards
RACE, LAST = 20, 40  # passes of accelerated EM, of those that race and of the best of them: EM would need hundreds
FINISH = 8  # trials that are followed to the end, two at a time
GAIN = 0.5  # nats that a move must add


@dataclass(frozen=True)
class Care:
    """How much a sweep looks at: ways to free a component, rows of its first heat, and trials that race."""

    freed: int
    rows: int
    racing: int


SWEEPS = (Care(5, 3_000, 4), Care(10, 4_000, 8))  # the second where the first finds nothing
CROSSED = Care(0, 4_000, 6)  # of crossings


def fits(pool: Batch, k: int) -> bool:
    """Whether rows and components are such that broad trials find what narrow ones do not."""
    return k <= MOST_COMPONENTS and (pool.projection is not None or _drowned(pool))


def _drowned(pool: Batch) -> bool:
    """Whether noise has a larger variance than true values in most coordinates."""
    if pool.noise is None:
        return False
    seen = ~pool.x.isnan()
    noise = torch.where(seen, pool.variances(), 0.0).sum(1)
    away = torch.where(seen, pool.x - pool.x.nanmean(1, keepdim=True), 0.0)
    return float((2 * noise > away.square().sum(1)).double().mean()) > 0.5


def explore_broadly(
    starts: Callable[[Batch], Callable[[int], Parameters]],
    pool: Batch,
    k: int,
    moves: Moves,
    rng: np.random.Generator,
    aim: Aim = ANY,
    options: Options = DEFAULT,
) -> Found:
    """The best mixture that moves of one component at a time, and crossings of what they lead to, end at.

    Parameters
    ----------
    starts : callable
        Makes mixtures for some rows; a number tells one start from another.
    pool : Batch
        Rows, of which at most ROWS are looked at.
    k : int
        How many components.
    moves : Moves
        At most how many starts and sweeps.
    rng : numpy.random.Generator
        Chooses rows and ways to split.
    aim : Aim
        Of all rows of the pool: prior and structure.
    options : Options
        How kernels compute.

    Returns
    -------
    Found
    """
    rows, part = _some(pool, ROWS, rng, aim)
    start = starts(rows)
    begun = [start(number) for number in range(max(1, min(moves.starts, PARENTS)))]
    search = _Broad(rows, moves, rng, part, options)
    parents = search.parents(begun)
    best = search.onward(parents[0], SWEEPS, [parent.climb.parameters for parent in parents[1:]])
    if best.climb.value == -np.inf:
        return Found(begun[0], 0, 0.0, sound=bool(np.isfinite(total_log_prob(begun[0], rows, part, options))))
    return Found(best.climb.parameters, best.moved, (best.climb.value - best.began) / float(rows.total_weight()))


class Way(NamedTuple):
    """How far a search has come: where it is, after how many moves, and the value that it began with."""

    climb: Climb
    moved: int
    began: float


@dataclass(frozen=True)
class _Broad:
    """A search by trials of whole mixtures on some rows."""

    batch: Batch
    moves: Moves
    rng: np.random.Generator
    aim: Aim
    options: Options

    def parents(self, starts: list[Parameters]) -> list[Way]:
        """Where searches of little care end, each from a start of its own and on a sample of its own, best first."""
        searches = [replace(self, rng=own) for own in self.rng.spawn(len(starts))]
        ways = self._each(list(zip(searches, starts, strict=True)), lambda pair: pair[0].parent(pair[1]))
        return sorted((way for way in ways if way.climb.value > -np.inf), key=lambda way: -way.climb.value) or ways[:1]

    def parent(self, start: Parameters) -> Way:
        """Where a search of little care on some of the rows ends, on all of them."""
        batch, aim = _some(self.batch, PARENT_ROWS, self.rng, self.aim)
        fewer = replace(self, batch=batch, aim=aim)
        begun = self._climb(start).further(RACE + LAST)
        way = fewer.onward(Way(fewer._climb(begun.parameters).further(1), 0, begun.value), SWEEPS[:1])
        return way._replace(climb=self._climb(way.climb.parameters).further(RACE + LAST))

    def onward(self, way: Way, cares: Sequence[Care], others: Sequence[Parameters] = ()) -> Way:
        """Further by crossings with others and by moves, until none gains however much care is taken."""
        failed, untried = 0, bool(others)
        for sweep in range(self.moves.sweeps if way.climb.value > -np.inf else 0):
            tell(f"searching: sweep {sweep + 1} of at most {self.moves.sweeps}, moves so far: {way.moved}")
            better = self._crossed(way.climb, others) if untried else None
            better = better or self._moved(way.climb, cares[failed])
            untried = bool(others) and better is not None
            way, failed = (way, failed + 1) if better is None else (Way(better, way.moved + 1, way.began), failed)
            if failed == len(cares):
                break
        return way

    def _crossed(self, best: Climb, others: Sequence[Parameters]) -> Climb | None:
        """The best of the crossings with others, if it gains."""
        made = [trial for other in others for trial in crossings(best.parameters, other)]
        return self.best_of(_stacked(made), best, CROSSED) if made else None

    def _moved(self, best: Climb, care: Care) -> Climb | None:
        """The best of the moves, if it gains."""
        return self.best_of(self._trials(best.parameters, care), best, care)

    def best_of(self, trials: Parameters, best: Climb, care: Care) -> Climb | None:
        """The first of the most promising trials (g, k, ...) that gains; None where none does."""
        for times, passes, kept in HEATS:
            rows, part = _some(self.batch, times * care.rows, self.rng, self.aim)
            trials = heat(trials, self._grouped(rows), passes, kept * care.racing, part)
        race = self._side_by_side([self._climb(Parameters(*trial)) for trial in zip(*trials, strict=True)], RACE)
        least = best.value + GAIN * float(self.batch.total_weight()) / self.batch.n
        for first in range(0, min(FINISH, len(race)), 2):
            last = self._side_by_side(race[first : first + 2], LAST)[0]
            if last.value > least and self._enough_rows(last.parameters):
                return last
        return None

    def _climb(self, parameters: Parameters) -> Climb:
        return Climb.of(parameters, self.batch, self.aim, self.options)

    def _side_by_side(self, climbs: list[Climb], most: int) -> list[Climb]:
        """Climbs after at most so many passes more, a thread each, the highest first."""
        return sorted(self._each(climbs, lambda climb: climb.further(most)), key=lambda climb: -climb.value)

    def _each(self, items: list[S], function: Callable[[S], T]) -> list[T]:
        return each(items, function) if self.batch.device.type == "cpu" else [function(item) for item in items]

    def _trials(self, parameters: Parameters, care: Care) -> Parameters:
        """Whole mixtures (g, k, ...), each with one component split and another freed."""
        moves, k = self.moves, parameters.k
        pool = Pool.of(parameters, self._grouped(self.batch), self.aim, self.options)
        effort = Effort(moves.screening, moves.screen_rows, 0, self.aim.in_trial())
        merges = try_merges(pool.near_pairs(moves.pairs), parameters, pool, effort, self.rng)
        freed = sorted(merges + removals(parameters, pool), key=lambda change: -change.gain)[: care.freed]
        ways = ways_to_split(parameters, pool.near([(c,) for c in range(k)]), self.rng)
        ways = Parameters(*(part.flatten(0, 1) for part in ways))
        ways = self.aim.in_trial().begun(ways, parameters.covariances)
        splits = [Change((at // WAYS,), Parameters(*(part[at] for part in ways)), 0.0) for at in range(k * WAYS)]
        made = [applied(parameters, [(s, f)]) for s in splits for f in freed if s.old[0] not in f.old]
        return _stacked(made)

    def _grouped(self, batch: Batch) -> kernels.RowsForGroups:
        return kernels.for_groups(batch, batch.d, self.options)

    def _enough_rows(self, parameters: Parameters) -> bool:
        """Whether each component has enough rows, or it shrinks onto single ones."""
        return self.batch.n * float(parameters.log_weights.exp().min()) >= 2 * (parameters.d + 1)


def _stacked(trials: Sequence[Parameters]) -> Parameters:
    return Parameters(*(torch.stack(part) for part in zip(*trials, strict=True)))


def _some(batch: Batch, most: int, rng: np.random.Generator, aim: Aim) -> tuple[Batch, Aim]:
    """At most so many rows of a batch, by lot, and their share of the prior."""
    if batch.n <= most:
        return batch, aim
    chosen = torch.from_numpy(np.sort(rng.permutation(batch.n)[:most])).to(batch.device)
    rows = batch.rows(chosen)
    return rows, aim.scaled(float(rows.total_weight()) / float(batch.total_weight()))
