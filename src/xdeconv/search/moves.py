"""Split, merge and revive: moves that lead out of EM's local optima, each tried where it acts.

A mixture of k components is kept at k: what a merge or a removal frees, a split uses. Both are tried locally, on a
pool of rows and with all other components held: with S the touched components and B_i the density that the others
give row i, the likelihood sum_i log(B_i + sum_{c in S} alpha_c N_c(x_i)) is raised by EM on S alone, over the rows
that S matters for. Its change is the gain of a split or the loss of a merge. A whole round of trials costs about as
much as a few EM passes over the pool, since every trial sees few rows and at most two components.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch

from .. import kernels
from ..kernels.options import DEFAULT, Options
from ..kernels.parameters import Parameters
from ..rows.batch import Batch
from ..system.progress import tell
from .aim import ANY, Aim
from .passes import em_passes, shared
from .pool import Pool
from .splits import WAYS
from .trials import Change, Effort, removals, try_merges, try_splits

FEWEST_SWEEPS = 8
FEW_ROWS = 20_000


@dataclass(frozen=True)
class Moves:
    """Settings of the search for better optima.

    Parameters
    ----------
    starts : int, default 4
        Starts that are searched apart, each on its own sample of the pool, and recombined before the first pass.
    rounds : int, default 1
        At most so many further searches: one whenever the fit has converged again, or after a minibatch epoch.
    sweeps : int, default 20
        At most so many sweeps of one search (fewer with fewer than 20,000 rows); each tries what has changed, makes the
        moves that gain, and runs EM.
    passes : int, default 6
        EM passes over the pool after each sweep.
    share : float, default 0.25
        Of the components, that may move in one sweep.
    screening : int, default 6
        Local EM steps of each way to split.
    screen_rows : int, default 750
        At most so many rows for them.
    polishing : int, default 6
        Further local EM steps of the best way, on all rows of the neighbourhood.
    pairs : int, default 3
        Merges tried per component.
    gain : float, default 1e-4
        What a move must add to the mean log-likelihood of the pool; and in all at least what the best of all trials
        gains by chance, given the free numbers of a component.
    pool_rows : int, default 131_072
        At most so many rows that moves are tried on: a fresh sample for each search of a larger data set.
    criterion : str, default "gain"
        What to try: gain (all components, near pairs), or bovy (the published order of candidates, the best few).

    Examples
    --------
    >>> Moves(criterion="bovy").starts
    4
    """

    starts: int = 4
    rounds: int = 1
    sweeps: int = 20
    passes: int = 6
    share: float = 0.25
    screening: int = 6
    screen_rows: int = 750
    polishing: int = 6
    pairs: int = 3
    gain: float = 1e-4
    pool_rows: int = 1 << 17
    criterion: Literal["gain", "bovy"] = "gain"

    def __post_init__(self) -> None:
        if self.criterion not in ("gain", "bovy"):
            raise ValueError(f"criterion must be gain or bovy, got {self.criterion!r}")
        for name, value in vars(self).items():
            if name != "criterion" and (isinstance(value, (bool, str)) or not value >= 0):
                raise ValueError(f"{name} of Moves must be a number of at least 0, got {value!r}")


@dataclass(frozen=True)
class Outcome:
    """What a search found: the parameters after it, how many moves it made, and the gain in mean log-likelihood.

    It is sound unless the pool's likelihood is not finite: then no move can be judged.
    """

    parameters: Parameters
    moved: int
    gain: float
    sound: bool = True

    def on(self, device: torch.device | str) -> Outcome:
        """The same on another device."""
        return replace(self, parameters=self.parameters.to(device))


@dataclass
class Search:
    """One search for better optima on a pool of rows: trials are kept until something near them has moved."""

    batch: Batch
    moves: Moves
    rng: np.random.Generator
    aim: Aim = ANY
    options: Options = DEFAULT
    splits: dict[int, Change] = field(default_factory=dict)
    merges: dict[tuple[int, ...], Change] = field(default_factory=dict)
    barren: set[int] = field(default_factory=set)
    rows: kernels.RowsForGroups = field(init=False)

    def run(self, parameters: Parameters) -> Outcome:
        """Sweep until no move gains, a fresh look at every component included."""
        self.rows = kernels.for_groups(self.batch, parameters.d, self.options)
        pool = self._pool(parameters)
        if not np.isfinite(pool.loglik):
            return Outcome(parameters, 0, 0.0, sound=False)
        first = value = self._value(parameters, pool)
        moved = 0
        for sweep in range(self._sweeps()):
            tell(f"searching: sweep {sweep + 1} of at most {self._sweeps()}, moves so far: {moved}")
            fresh = not self.splits
            chosen = self._sweep(parameters, pool)
            if not chosen and fresh:
                break
            if not chosen:
                self._forget_all()
                continue
            touched = {c for split, merge in chosen for c in (*split.old, *merge.old)}
            after = em_passes(applied(parameters, chosen), self.batch, self.moves.passes, self.aim, self.options)
            then = self._pool(after)
            better = self._value(after, then)
            if better - value > self._least(parameters) / 10:
                parameters, pool, value, moved = after, then, better, moved + len(chosen)
                self._forget(touched, parameters)
            else:
                self.barren |= {split.old[0] for split, _ in chosen}
                if len(self.barren) >= len(parameters[0]):
                    break
        return Outcome(parameters, moved, (value - first) / self._weight())

    def _pool(self, parameters: Parameters) -> Pool:
        return Pool.of(parameters, self.rows, self.aim, self.options)

    def _sweep(self, parameters: Parameters, pool: Pool) -> list[tuple[Change, Change]]:
        """Bring trials up to date, and choose the moves that gain most together."""
        moves = self.moves
        effort = Effort(moves.screening, moves.screen_rows, moves.polishing, self.aim)
        pairs, order = _candidates(parameters, pool, self.moves)
        stale = [c for c in order if c not in self.splits]
        self.splits |= {change.old[0]: change for change in try_splits(stale, parameters, pool, effort, self.rng)}
        untried = [pair for pair in pairs if pair not in self.merges]
        self.merges |= {change.old: change for change in try_merges(untried, parameters, pool, effort, self.rng)}
        usable = [change for c, change in self.splits.items() if c not in self.barren]
        freed = [self.merges[pair] for pair in pairs] + removals(parameters, pool)
        return pair_up(usable, freed, max(1, round(self.moves.share * parameters.k)), self._least(parameters))

    def _value(self, parameters: Parameters, pool: Pool) -> float:
        """Penalised log-likelihood of the pool; NaN counts as the worst."""
        value = pool.loglik + float(self.aim.log_density(parameters))
        sound = not bool(torch.linalg.cholesky_ex(parameters.covariances).info.any())
        return value if np.isfinite(value) and sound else -np.inf

    def _least(self, parameters: Parameters) -> float:
        """What a move must add to the pool's log-likelihood: no less than the best of all trials gains by chance."""
        d = parameters.d
        chance = gain_by_chance(1 + d + self.aim.covariance.of_one(d), WAYS * parameters.k)
        return max(self.moves.gain * self._weight(), self.batch.mean_weight() * chance)

    def _weight(self) -> float:
        return float(self.batch.total_weight())

    def _sweeps(self) -> int:
        """At most so many sweeps: with few rows the first ones find what there is to find."""
        return min(self.moves.sweeps, max(FEWEST_SWEEPS, round(self.moves.sweeps * self.batch.n / FEW_ROWS)))

    def _forget(self, touched: set[int], parameters: Parameters) -> None:
        """Drop the trials of components that moved and of their neighbours."""
        near = touched | set(_neighbours(parameters, sorted(touched), 4))
        self.splits = {c: change for c, change in self.splits.items() if c not in near}
        self.merges = {pair: change for pair, change in self.merges.items() if not near & set(pair)}
        self.barren -= near

    def _forget_all(self) -> None:
        self.splits, self.merges = {}, {}


def gain_by_chance(numbers: float, trials: int) -> float:
    """Nats that the best of some trials gains where there is nothing to find, each with so many free numbers.

    Such a gain is half a chi-square, which exceeds P / 2 + sqrt(P t) + t with a probability below exp(-t) (Laurent and
    Massart 2000): t = log(trials).

    >>> round(gain_by_chance(6, 40), 1)
    11.4
    """
    t = np.log(trials)
    return float(numbers / 2 + np.sqrt(numbers * t) + t)


def _neighbours(parameters: Parameters, components: list[int], each: int) -> list[int]:
    """The nearest components of some, by Mahalanobis distance in the pooled covariance of each pair."""
    _, means, V = (t.numpy() for t in parameters)
    near = []
    for c in components:
        away = means - means[c]
        distance = np.einsum("kd,kd->k", away, np.linalg.solve(V + V[c], away[..., None])[..., 0])
        near += np.argsort(distance)[1 : each + 1].tolist()
    return near


def _candidates(parameters: Parameters, pool: Pool, moves: Moves) -> tuple[list[tuple[int, ...]], list[int]]:
    """Pairs to merge and components to split, in the order of the criterion."""
    k = parameters.k
    if moves.criterion == "bovy":
        return bovy_pairs(pool)[: max(1, k // 2)], bovy_splits(parameters, pool)[: max(1, k // 4)]
    return pool.near_pairs(moves.pairs), list(range(k))


def bovy_pairs(pool: Pool) -> list[tuple[int, ...]]:
    """All pairs, those first whose responsibilities have the largest inner product (Bovy et al. 2011, eq. 30)."""
    overlap = pool.shares.overlap
    a, b = np.triu_indices(len(overlap), 1)
    order = np.argsort(-overlap[a, b], kind="stable")
    return list(zip(a[order].tolist(), b[order].tolist(), strict=True))


def bovy_splits(parameters: Parameters, pool: Pool) -> list[int]:
    """All components, those first whose local data density departs most from their Gaussian (eq. 31)."""
    i, j, values = pool.shares.rows, pool.shares.components, pool.shares.values
    share = values * pool.weight.numpy()[i] / pool.mass.numpy()[j]
    log_normal = np.log(values) + pool.log_prob.numpy()[i] - parameters.log_weights.numpy()[j]
    terms = share * (np.log(np.maximum(share, 1e-300)) - log_normal)
    divergence = np.bincount(j, weights=terms, minlength=parameters.k)
    return np.argsort(-divergence, kind="stable").tolist()


def pair_up(splits: list[Change], freed: list[Change], most: int, least: float) -> list[tuple[Change, Change]]:
    """Splits with ways to free a component, the pairs that gain most first, no component in two of them."""
    if not splits or not freed:
        return []
    gain = np.array([s.gain for s in splits])[:, None] + np.array([f.gain for f in freed])
    used: set[int] = set()
    chosen: list[tuple[Change, Change]] = []
    for at in np.argsort(-gain, axis=None, kind="stable"):
        split, free = splits[at // len(freed)], freed[at % len(freed)]
        if len(chosen) == most or not split.gain + free.gain > least:
            break
        touched = {*split.old, *free.old}
        if len(touched) == len(split.old) + len(free.old) and not touched & used:
            used |= touched
            chosen.append((split, free))
    return chosen


def applied(parameters: Parameters, chosen: list[tuple[Change, Change]]) -> Parameters:
    """The parameters with moves made: the places of all old components take the new ones."""
    log_weights, means, V = (t.clone() for t in parameters)
    for split, free in chosen:
        places = [*split.old, *free.old]
        for target, *parts in zip((log_weights, means, V), split.new, free.new, strict=True):
            target[places] = torch.cat(parts)
    return Parameters(shared(log_weights, [parameters]), means, V)
