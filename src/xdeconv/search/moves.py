"""Split, merge and revive: moves that lead out of EM's local optima, each tried where it acts.

A mixture of k components is kept at k: what a merge or a removal frees, a split uses. Both are tried locally, on a
pool of rows and with all other components held: with S the touched components and B_i the density that the others
give row i, the likelihood sum_i log(B_i + sum_{c in S} alpha_c N_c(x_i)) is raised by EM on S alone, over the rows
that S matters for. Its change is the gain of a split or the loss of a merge. A whole round of trials costs about as
much as a few EM passes over the pool, since every trial sees few rows and at most two components.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch

from .. import kernels
from ..kernels.options import DEFAULT, Options
from ..methods import EM
from ..methods.em import EMState
from ..methods.prior import Prior
from ..rows.batch import Batch
from .trials import FEW_ROWS, Change, Effort, Parameters, Pool, try_merges, try_removals, try_splits

log = logging.getLogger("xdeconv")
FEWEST_SWEEPS = 8


@dataclass(frozen=True)
class Moves:
    """Settings of the search.

    after      epochs before the first search
    rounds     searches in one fit, at most: the first one, and one whenever the fit has converged again
    sweeps     sweeps of one search, at most (fewer of fewer than 20,000 rows); each tries what has changed, makes the
               moves that gain, and runs EM
    passes     EM passes over the pool after each sweep
    share      of the components that may move in one sweep
    screening  local EM steps of each way to split, on at most ``screen_rows`` rows
    polishing  further local EM steps of the best way, on all rows of the neighbourhood
    pairs      merges tried for each component
    gain       what a move must add to the mean log-likelihood of the pool; and in all at least 1 + d + d (d + 1) / 2,
               since a component has so many free numbers that fit some noise
    pool_rows  rows that moves are tried on, at most: a fresh sample for each search of a larger data set
    criterion  what to try: gain (all components, near pairs), or bovy (the published order of candidates, the best few)
    """

    after: int = 10
    rounds: int = 2
    sweeps: int = 20
    passes: int = 6
    share: float = 0.25
    screening: int = 6
    screen_rows: int = 1500
    polishing: int = 10
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
class Found:
    """What a search found: the parameters after it, how many moves it made, and the gain in mean log-likelihood.

    It is sound unless the pool's likelihood is not finite: then no move can be judged.
    """

    parameters: Parameters
    moved: int
    gain: float
    sound: bool = True

    def on(self, device: torch.device | str) -> Found:
        """The same on another device."""
        log_weights, means, V = (t.to(device) for t in self.parameters)
        return replace(self, parameters=(log_weights, means, V))


@dataclass
class Search:
    """One search for better optima on a pool of rows: trials are kept until something near them has moved."""

    batch: Batch
    moves: Moves
    rng: np.random.Generator
    prior: Prior | None = None
    options: Options = DEFAULT
    splits: dict[int, Change] = field(default_factory=dict)
    merges: dict[tuple[int, ...], Change] = field(default_factory=dict)
    barren: set[int] = field(default_factory=set)

    def run(self, parameters: Parameters) -> Found:
        """Sweep until no move gains, a fresh look at every component included."""
        if not np.isfinite(self._loglik(parameters)):
            return Found(parameters, 0, 0.0, sound=False)
        first = value = self._value(parameters)
        moved = 0
        for _ in range(self._sweeps()):
            fresh = not self.splits
            chosen = self._sweep(parameters)
            if not chosen and fresh:
                break
            if not chosen:
                self._forget_all()
                continue
            touched = {c for split, merge in chosen for c in (*split.old, *merge.old)}
            after = self._polished(_applied(parameters, chosen))
            better = self._value(after)
            if better - value > self._least(parameters) / 10:
                parameters, value, moved = after, better, moved + len(chosen)
                self._forget(touched, parameters)
                log.info("searching: %d moves, log-likelihood %+.4f", moved, (value - first) / self._weight())
            else:
                self.barren |= {split.old[0] for split, _ in chosen}
                if len(self.barren) >= len(parameters[0]):
                    break
        return Found(parameters, moved, (value - first) / self._weight())

    def _sweep(self, parameters: Parameters) -> list[tuple[Change, Change]]:
        """Bring trials up to date, and choose the moves that gain most together."""
        k = len(parameters[0])
        pool = Pool.of(parameters, self.batch, self.options)
        moves = self.moves
        effort = Effort(moves.screening, moves.screen_rows, moves.polishing, self.prior, self.options)
        pairs, order = _candidates(parameters, pool, self.moves)
        stale = [c for c in order if c not in self.splits]
        self.splits |= {change.old[0]: change for change in try_splits(stale, parameters, pool, effort, self.rng)}
        untried = [pair for pair in pairs if pair not in self.merges]
        self.merges |= {change.old: change for change in try_merges(untried, parameters, pool, effort)}
        usable = [change for c, change in self.splits.items() if c not in self.barren]
        freed = [self.merges[pair] for pair in pairs] + try_removals(parameters, pool)
        return _pair_up(usable, freed, max(1, round(self.moves.share * k)), self._least(parameters))

    def _polished(self, parameters: Parameters) -> Parameters:
        """A few EM passes over the pool."""
        method, (log_weights, means, V) = EM(prior=self.prior), parameters
        state = EMState(log_weights.exp(), means, V, torch.zeros((), dtype=torch.float64, device=means.device))
        for _ in range(self.moves.passes):
            stats = kernels.accumulate(*state.parameters(), self.batch, self.options)
            state = method.update(state, stats, self._weight())
        return state.parameters()

    def _value(self, parameters: Parameters) -> float:
        """Penalised log-likelihood of the pool; NaN counts as the worst."""
        value = self._loglik(parameters)
        if self.prior is not None:
            value += float(self.prior.log_density(parameters[0].exp(), parameters[2]))
        sound = not bool(torch.linalg.cholesky_ex(parameters[2]).info.any())
        return value if np.isfinite(value) and sound else -np.inf

    def _loglik(self, parameters: Parameters) -> float:
        log_prob = kernels.log_prob(*parameters, self.batch, self.options).double()
        weight = self.batch.weight
        return float(log_prob.sum() if weight is None else weight.double() @ log_prob)

    def _least(self, parameters: Parameters) -> float:
        """What a move must add to the pool's log-likelihood: no less than so many free numbers gain by chance."""
        d = parameters[1].shape[1]
        return max(self.moves.gain * self._weight(), 1 + d + d * (d + 1) / 2)

    def _weight(self) -> float:
        return float(self.batch.total_weight())

    def _sweeps(self) -> int:
        """Sweeps, at most: with few rows the first ones find what there is to find."""
        return min(self.moves.sweeps, max(FEWEST_SWEEPS, round(self.moves.sweeps * self.batch.n / FEW_ROWS)))

    def _forget(self, touched: set[int], parameters: Parameters) -> None:
        """Drop the trials of components that moved and of their neighbours."""
        near = touched | set(_neighbours(parameters, sorted(touched), 4))
        self.splits = {c: change for c, change in self.splits.items() if c not in near}
        self.merges = {pair: change for pair, change in self.merges.items() if not near & set(pair)}
        self.barren -= near

    def _forget_all(self) -> None:
        self.splits, self.merges = {}, {}


def _neighbours(parameters: Parameters, components: list[int], each: int) -> list[int]:
    """The nearest components of some, by Mahalanobis distance in the pooled covariance of each pair."""
    _, means, V = (t.cpu().numpy() for t in parameters)
    found = []
    for c in components:
        away = means - means[c]
        distance = np.einsum("kd,kd->k", away, np.linalg.solve(V + V[c], away[..., None])[..., 0])
        found += np.argsort(distance)[1 : each + 1].tolist()
    return found


def _candidates(parameters: Parameters, pool: Pool, moves: Moves) -> tuple[list[tuple[int, ...]], list[int]]:
    """Pairs to merge and components to split, in the order of the criterion."""
    k = len(parameters[0])
    if moves.criterion == "bovy":
        return bovy_pairs(pool)[: max(1, k // 2)], bovy_splits(parameters, pool)[: max(1, k // 4)]
    closeness = pool.overlap().double() / torch.minimum(pool.mass[:, None], pool.mass).clamp(min=1e-300)
    closeness.fill_diagonal_(-1.0)
    near = closeness.topk(min(moves.pairs, k - 1), dim=1).indices.tolist() if k > 1 else []
    return sorted({(min(a, b), max(a, b)) for a, row in enumerate(near) for b in row}), list(range(k))


def bovy_pairs(pool: Pool) -> list[tuple[int, ...]]:
    """All pairs, those first whose responsibilities have the largest inner product (Bovy et al. 2011, eq. 30)."""
    overlap = pool.overlap()
    a, b = torch.triu_indices(len(overlap), len(overlap), offset=1)
    order = overlap[a, b].argsort(descending=True).cpu()
    return [(int(a[i]), int(b[i])) for i in order]


def bovy_splits(parameters: Parameters, pool: Pool) -> list[int]:
    """All components, those first whose local data density departs most from their Gaussian (eq. 31)."""
    share = pool.responsibility.double() * pool.weight[:, None] / pool.mass
    log_normal = (pool.responsibility.double().log() + pool.log_prob[:, None]) - parameters[0]
    divergence = torch.where(share > 0, share * (share.log() - log_normal), 0.0).sum(0)
    return divergence.argsort(descending=True).tolist()


def _pair_up(splits: list[Change], freed: list[Change], most: int, least: float) -> list[tuple[Change, Change]]:
    """Best splits with the cheapest ways to free a component, none in two moves, as long as both together gain."""
    freed = sorted(freed, key=lambda change: -change.gain)
    used: set[int] = set()
    chosen: list[tuple[Change, Change]] = []
    for split in sorted(splits, key=lambda change: -change.gain):
        if used & set(split.old):
            continue
        free = next((f for f in freed if not (used | set(split.old)) & set(f.old)), None)
        if free is None or len(chosen) == most or not split.gain + free.gain > least:
            break
        used |= {*split.old, *free.old}
        chosen.append((split, free))
    return chosen


def _applied(parameters: Parameters, chosen: list[tuple[Change, Change]]) -> Parameters:
    """The parameters with moves made: the places of all old components take the new ones."""
    log_weights, means, V = (t.clone() for t in parameters)
    for split, free in chosen:
        places = [*split.old, *free.old]
        for target, *parts in zip((log_weights, means, V), split.new, free.new, strict=True):
            target[places] = torch.cat(parts)
    return log_weights.log_softmax(0), means, V
