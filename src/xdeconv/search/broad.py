"""Broad trials: moves judged by EM of all components together, for rows that each say little.

A projected row is compatible with many components, which therefore overlap: when one is split and another goes, all
others give way, over many passes. Trials with the others held are wrong there. On Hipparcos' velocities (two of three
coordinates, k = 10) they promise 234 nats where 75 are lost, and a loss of 31 where 57 are gained. So a split is tried
together with what frees its component, as a whole mixture: many on few rows for a few passes, the best of them on all
rows, and the last ones, one after the other, by accelerated EM until one gains.

Where that ends depends on the start: on Hipparcos' velocities 20 seeds ended at seven places up to 14 nats apart. So
several parents are searched, each on a sample of its own. The best is crossed with the others (:mod:`.crossing`), and
shaken: climbs that go away on a quarter of the rows and come back on all of them find places a few nats higher that
differ in a component of 50 stars, which no trial on few rows can tell from chance. So do climbs that begin with one
component smaller and two of its widths away: one in five to one in two of those that begin with the right component
leads out of the second best place, 2.7 nats below, which no other way left. The second best search does the same, until
it has come as high; where it ends elsewhere, both are crossed. Of ten seeds that chose no setting all then ended at one
place.

So with rows whose noise is wider than what they are of: of 32 plain calls with noise of three and five widths, 3 ended
2 to 11 nats below the best without broad trials, and none with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from .. import kernels
from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters, apart, stacked
from ..rows.batch import Batch
from ..system.progress import tell
from ..system.threads import each
from .aim import ANY, Aim
from .contest import heat
from .crossing import alike, crossings
from .moves import Moves, Outcome, applied
from .passes import Climb
from .pool import Pool
from .single import agree
from .splits import WAYS, ways_to_split
from .sums import total_log_prob
from .trials import Change, Effort, removals, try_merges

S = TypeVar("S")
T = TypeVar("T")
MOST_COMPONENTS = 16  # with more, trials of whole mixtures cost more than they find
PARENTS = 4
PARENT_ROWS = 10_000  # with 6,000, parents are too poor for what their crossings should have
ROWS = 1 << 15  # at most, that mixtures are judged on
HEATS = ((1, 4, 4), (6, 10, 1))  # of moves: times FEWER_ROWS, EM passes, times RACING that are left
FIRST = 60  # passes of accelerated EM from a start, and of what a parent becomes on all rows
LOOK = 10  # passes between two looks at trials that race
QUICK, PATIENT = (6, 3.0), (12, 30.0)  # how many looks, and how many times what it just gained a trial may be behind
GAIN = 0.5  # nats that a move must add
SAME = 0.5  # nats: searches whose ends are no further apart have ended at one place
FREED, FEWER_ROWS, RACING = 5, 3_000, 4  # ways to free a component, rows of the first heat, and trials that race
CROSSED = 5, 12  # EM passes of each crossing on all rows, and how many race
SHAKEN, PART = 8, 0.25  # climbs, and of the rows, that they go away on
JUMPS, FAR, SMALL = 3, 2.0, 0.5  # of each component, by how many of its widths, and its width then
AWAY, BACK = 30, 20  # passes on those, and on all before climbs are looked at


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
) -> Outcome:
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
    Outcome
    """
    rows, part = _some(pool, ROWS, rng, aim)
    start = starts(rows)
    begun = [start(number) for number in range(max(1, min(moves.starts, PARENTS)))]
    best = _Broad(rows.to(dtype=torch.float32), moves, rng, part, options).best(begun)
    if best is None or not agree(best.climb.parameters, rows, part, options):
        best = _Broad(rows, moves, rng, part, options).best(begun)
    if best is None:
        return Outcome(begun[0], 0, 0.0, sound=bool(np.isfinite(total_log_prob(begun[0], rows, part, options))))
    return Outcome(best.climb.parameters, best.moved, (best.climb.value - best.began) / float(rows.total_weight()))


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

    def best(self, starts: list[Parameters]) -> Way | None:
        """Where two searches end that share their parents, or what is crossed with both where that is not one place."""
        parents = self.parents(starts)
        others = [parent.climb.parameters for parent in parents[1:]]
        best = self.line(parents[0], others)
        for parent in parents[1:2]:
            again = self.line(parent, others[1:], best.climb.value)
            lower, best = sorted([again, best], key=lambda way: way.climb.value)
            if not self._same(lower.climb, best.climb.value):
                best = self.line(best, [lower.climb.parameters])
        return best if best.climb.value > -np.inf else None

    def line(self, way: Way, others: Sequence[Parameters], known: float = np.inf) -> Way:
        """Further by crossings, shaking, moves and jumps, until none gains, or a known value is reached."""
        looks = (partial(self.crossed, others=others), self.shaken, self.moved, self.jumped)
        return self.onward(way, looks, known)

    def _same(self, climb: Climb, value: float) -> bool:
        """Whether a climb has come as high, but for what is left to gain."""
        return climb.value > value - SAME * self.batch.mean_weight()

    def parents(self, starts: list[Parameters]) -> list[Way]:
        """Where searches of little care end, each from a start of its own and on a sample of its own, best first."""
        searches = [replace(self, rng=own) for own in self.rng.spawn(len(starts))]
        ways = self._each(list(zip(searches, starts, strict=True)), lambda pair: pair[0].parent(pair[1]))
        return sorted((way for way in ways if way.climb.value > -np.inf), key=lambda way: -way.climb.value) or ways[:1]

    def parent(self, start: Parameters) -> Way:
        """Where a search of little care on some of the rows ends, on all of them."""
        batch, aim = _some(self.batch, PARENT_ROWS, self.rng, self.aim)
        fewer = replace(self, batch=batch, aim=aim)
        begun = self._climb(start).further(FIRST)
        way = fewer.onward(Way(fewer._climb(begun.parameters).further(1), 0, begun.value), (fewer.moved,))
        return way._replace(climb=self._climb(way.climb.parameters).further(FIRST))

    def onward(self, way: Way, looks: Sequence[Callable[[Climb], Climb | None]], known: float = np.inf) -> Way:
        """Further by what the first of some looks finds that gains, until none does or a known value is reached."""
        for sweep in range(self.moves.sweeps if way.climb.value > -np.inf else 0):
            tell(f"searching: sweep {sweep + 1} of at most {self.moves.sweeps}, moves so far: {way.moved}")
            if self._same(way.climb, known):
                break
            better = next((better for look in looks if (better := look(way.climb)) is not None), None)
            if better is None:
                break
            way = Way(better, way.moved + 1, way.began)
        return way

    def crossed(self, best: Climb, others: Sequence[Parameters]) -> Climb | None:
        """The best of the crossings with others, if it gains."""
        made = [trial for other in others for trial in crossings(best.parameters, other)]
        if not made:
            return None
        passes, racing = CROSSED
        return self._gaining(heat(stacked(made), self._grouped(self.batch), passes, racing, self.aim), best)

    def jumped(self, best: Climb) -> Climb | None:
        """Where climbs end that begin with one component smaller and elsewhere, if it gains."""
        begun = [jump(best.parameters, at, self.rng) for at in range(best.parameters.k) for _ in range(JUMPS)]
        return self._raced([self._climb(parameters) for parameters in begun], best, PATIENT)

    def shaken(self, best: Climb) -> Climb | None:
        """Where climbs end that begin where a part of the rows leads, or what is crossed with them, if it gains."""
        searches = [replace(self, rng=own) for own in self.rng.spawn(SHAKEN)]
        climbs = [climb for climb in self._each(searches, lambda search: search.shake(best)) if _sound(climb)]
        return self._raced(climbs, best) or self.crossed(best, [climb.parameters for climb in climbs])

    def shake(self, best: Climb) -> Climb:
        """The climb from where a part of the rows leads."""
        rows, aim = _some(self.batch, int(PART * self.batch.n), self.rng, self.aim)
        away = Climb.of(best.parameters, rows, aim, self.options).further(AWAY)
        return self._climb(away.parameters).further(BACK)

    def moved(self, best: Climb) -> Climb | None:
        """The best of the moves, if it gains."""
        trials = self._trials(best.parameters)
        for times, passes, kept in HEATS:
            rows, part = _some(self.batch, times * FEWER_ROWS, self.rng, self.aim)
            trials = heat(trials, self._grouped(rows), passes, kept * RACING, part)
        return self._gaining(trials, best)

    def _gaining(self, trials: Parameters, best: Climb) -> Climb | None:
        """The best of the trials (g, k, ...), if it gains."""
        return self._raced([self._climb(trial) for trial in apart(trials)], best)

    def _raced(self, climbs: list[Climb], best: Climb, pace: tuple[int, float] = QUICK) -> Climb | None:
        """The best of the climbs that are the first to arrive higher, each as long as it may still do so."""
        least, (looks, catch_up) = best.value + GAIN * self.batch.mean_weight(), pace
        arrived: list[Climb] = []
        for _ in range(looks):
            climbs = [c for c in climbs if _sound(c) and not alike(c.parameters, best.parameters)]
            if arrived or not climbs:
                break
            before, climbs = climbs, self._each(climbs, lambda climb: climb.further(LOOK))
            arrived = [climb for climb in climbs if climb.arrived and self._counts(climb, least)]
            climbs = [now for now, then in zip(climbs, before, strict=True) if _hopeful(now, then, least, catch_up)]
        arrived = arrived or [climb for climb in climbs if self._counts(climb, least)]
        return max(arrived, key=lambda climb: climb.value, default=None)

    def _counts(self, climb: Climb, least: float) -> bool:
        """Whether a climb is high enough, and each component has enough rows, or it shrinks onto single ones."""
        fewest = self.batch.n * float(climb.parameters.log_weights.exp().min())
        return climb.value > least and fewest >= 2 * (climb.parameters.d + 1)

    def _climb(self, parameters: Parameters) -> Climb:
        return Climb.of(parameters, self.batch, self.aim, self.options)

    def _each(self, items: list[S], function: Callable[[S], T]) -> list[T]:
        return each(items, function) if self.batch.device.type == "cpu" else [function(item) for item in items]

    def _trials(self, parameters: Parameters) -> Parameters:
        """Whole mixtures (g, k, ...), each with one component split and another freed."""
        moves, k = self.moves, parameters.k
        pool = Pool.of(parameters, self._grouped(self.batch), self.aim, self.options)
        effort = Effort(moves.screening, moves.screen_rows, 0, self.aim)
        merges = try_merges(pool.near_pairs(moves.pairs), parameters, pool, effort, self.rng)
        freed = sorted(merges + removals(parameters, pool), key=lambda change: -change.gain)[:FREED]
        ways = ways_to_split(parameters, pool.near([(c,) for c in range(k)]), self.rng)
        ways = Parameters(*(part.flatten(0, 1) for part in ways))
        ways = effort.aim.begun(ways, parameters.covariances)
        splits = [Change((at // WAYS,), Parameters(*(part[at] for part in ways)), 0.0) for at in range(k * WAYS)]
        made = [applied(parameters, [(s, f)]) for s in splits for f in freed if s.old[0] not in f.old]
        return stacked(made)

    def _grouped(self, batch: Batch) -> kernels.RowsForGroups:
        return kernels.for_groups(batch, batch.d, self.options)


def jump(parameters: Parameters, at: int, rng: np.random.Generator) -> Parameters:
    """A mixture with one component elsewhere in its own surroundings, and smaller, so that it can grow where it is."""
    log_weights, means, V = parameters
    away = torch.linalg.cholesky_ex(V[at])[0] @ torch.from_numpy(rng.normal(size=parameters.d))
    here = torch.arange(parameters.k) == at
    means = torch.where(here[:, None], means + FAR * away, means)
    return Parameters(log_weights, means, torch.where(here[:, None, None], SMALL**2 * V, V))


def _sound(climb: Climb) -> bool:
    """Whether a climb is where there are numbers."""
    return all(bool(part.isfinite().all()) for part in climb.parameters[1:])


def _hopeful(now: Climb, before: Climb, least: float, catch_up: float) -> bool:
    """Whether a climb may still come so high."""
    gained = max(now.value - before.value, 0.0)
    return not now.arrived and now.value + catch_up * gained > least


def _some(batch: Batch, most: int, rng: np.random.Generator, aim: Aim) -> tuple[Batch, Aim]:
    """At most so many rows of a batch, by lot, and their share of the prior."""
    if batch.n <= most:
        return batch, aim
    chosen = torch.from_numpy(np.sort(rng.permutation(batch.n)[:most])).to(batch.device)
    rows = batch.rows(chosen)
    return rows, aim.scaled(float(rows.total_weight()) / float(batch.total_weight()))
