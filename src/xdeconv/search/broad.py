"""Broad trials: moves judged by EM of all components together, for rows that each say little.

A projected row is compatible with many components, which therefore overlap: when one is split and another goes, all
others give way, over many passes. Trials with the others held are wrong there. On Hipparcos' velocities (two of three
coordinates, k = 10) they promise 234 nats where 75 are lost, and a loss of 31 where 57 are gained. So a split is tried
together with what frees its component, as a whole mixture: many on few rows for a few passes, the best of them on all
rows, and the last ones, one after the other, by accelerated EM until one gains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from .. import kernels
from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..rows.batch import Batch
from ..system.progress import tell
from ..system.threads import each
from .aim import ANY, Aim
from .contest import contest, heat
from .moves import Found, Moves, applied
from .passes import Climb
from .pool import Pool
from .splits import WAYS, ways_to_split
from .sums import total_log_prob
from .trials import Change, Effort, removals, try_merges

MOST_COMPONENTS = 16  # with more, trials of whole mixtures cost more than they find
STARTS = 3
ROWS = 1 << 15  # at most, that mixtures are judged on
HEATS = ((1, 5, 4), (6, 12, 1))  # times the rows of a sweep, EM passes, times the trials that race afterwards
RACE, LAST = 20, 40  # passes of accelerated EM, of those that race and of the best of them: EM would need hundreds
FINISH = 8  # trials that are followed to the end, two at a time
GAIN = 1.0  # nats that a move must add


@dataclass(frozen=True)
class Care:
    """How much a sweep looks at: ways to free a component, rows of its first heat, and trials that race."""

    freed: int
    rows: int
    racing: int


SWEEPS = (Care(5, 3_000, 4), Care(10, 4_000, 8))  # the second where the first finds nothing


def fits(pool: Batch, k: int) -> bool:
    """Whether rows and components are such that broad trials find what narrow ones do not."""
    return pool.projection is not None and k <= MOST_COMPONENTS


def explore_broadly(
    starts: Callable[[Batch], Callable[[int], Parameters]],
    pool: Batch,
    k: int,
    moves: Moves,
    rng: np.random.Generator,
    aim: Aim = ANY,
    options: Options = DEFAULT,
) -> Found:
    """The best mixture that moves of one component at a time lead to, from the best of a few starts.

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
    begun = contest(starts(rows), rows, k, min(moves.starts, STARTS), part, options)[0]
    best = first = Climb.of(begun, rows, part, options).further(RACE + LAST)
    if best.value == -np.inf:
        return Found(begun, 0, 0.0, sound=bool(np.isfinite(total_log_prob(begun, rows, part, options))))
    search, moved, failed = _Broad(rows, moves, rng, part, options), 0, 0
    for sweep in range(moves.sweeps):
        tell(f"searching: sweep {sweep + 1} of at most {moves.sweeps}, {moved} moves so far")
        better = search.sweep(best, SWEEPS[failed])
        best, moved, failed = (better, moved + 1, failed) if better else (best, moved, failed + 1)
        if failed == len(SWEEPS):
            break
    return Found(best.parameters, moved, (best.value - first.value) / float(rows.total_weight()))


@dataclass(frozen=True)
class _Broad:
    """A search by trials of whole mixtures on some rows."""

    batch: Batch
    moves: Moves
    rng: np.random.Generator
    aim: Aim
    options: Options

    def sweep(self, best: Climb, care: Care) -> Climb | None:
        """The first of the most promising moves that gains; None where none does."""
        trials = self._trials(best.parameters, care)
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
        on_cpu = self.batch.device.type == "cpu"
        far = each(climbs, lambda c: c.further(most)) if on_cpu else [climb.further(most) for climb in climbs]
        return sorted(far, key=lambda climb: -climb.value)

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
        return Parameters(*(torch.stack(part) for part in zip(*made, strict=True)))

    def _grouped(self, batch: Batch) -> kernels.RowsForGroups:
        return kernels.for_groups(batch, batch.d, self.options)

    def _enough_rows(self, parameters: Parameters) -> bool:
        """Whether each component has enough rows, or it shrinks onto single ones."""
        return self.batch.n * float(parameters.log_weights.exp().min()) >= 2 * (parameters.d + 1)


def _some(batch: Batch, most: int, rng: np.random.Generator, aim: Aim) -> tuple[Batch, Aim]:
    """At most so many rows of a batch, by lot, and their share of the prior."""
    if batch.n <= most:
        return batch, aim
    chosen = torch.from_numpy(np.sort(rng.permutation(batch.n)[:most])).to(batch.device)
    rows = batch.rows(chosen)
    return rows, aim.scaled(float(rows.total_weight()) / float(batch.total_weight()))
