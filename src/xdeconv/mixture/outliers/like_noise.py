"""p-values of many rows that each have their own noise: the same draws of the mixture serve all rows of like noise.

Rows of the same gaps are parted along the axes in which their noise differs most, into groups of some thousand. For the
middle noise of a group some thousand draws of the mixture are made, and how their densities move with the noise
(``noise_draws``). For a row, the draws are moved to its own noise, to first order in the matrix
logarithm of noise plus a typical covariance (in the noise itself, errors of p are three to five times as large), and
those that are no likelier than the row are counted: some 30 us per row at 64 components in five dimensions, where rays
need up to 6 ms. Where components lie apart, nothing is left to first order: p is exact whatever the noise.

Half of the draws are the mixture's own; the other half has the logarithm of its tail probability uniform, so that each
decade of p holds as many, and is spent on the components that make up the tail. All of them lie evenly (Sobol). Each
group has draws of its own, so that errors of p differ from group to group: about 0.5 points at p = 0.5 and 5 % at
p = 1e-3, of which 0.1 points are common to all rows (64 components in five dimensions).

*What is left out and what is checked.* For TRIED rows of a group the densities of draws are computed exactly as well.
The relative error of p that this shows grows with the squared distance of a row's noise from the middle, alike in all
directions but for a rest: it is taken out, level by level. Where the rest is more than WRONG, rows that are farther
from the middle form a group of their own, or the group is parted again as long as that brings its rows together; rows
below the least probability that is known so well, or below which too few draws lie, are left to rays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import chdtrc, chdtri, ndtri
from scipy.stats import qmc

from ...kernels.parameters import Parameters
from ...rows.batch import Batch
from ...system.threads import each

Array = np.ndarray
MANY = 2000  # rows of the same gaps: with fewer, rays cost less
LARGEST, SMALLEST = 8192, 250  # rows of a group
NEARER = 0.8  # of the mean squared distance of noise: where halves are no nearer than that, noise has many dimensions
DRAWS = 1 << 14
TRIED = 8  # rows of a group
FLOOR = 1e-8  # the smallest tail probability of a draw within its component
MOST = 0.3  # of a probability, that is taken out
PRECISION = 0.06  # standard error, relative, of draws that are not even
ENOUGH = 4  # of the probabilities below, from the largest on, that a group should be known at
PROBED = np.array([1e-3, 0.01, 0.1, 0.5, 0.8, 0.95])  # probabilities at which a group is tried
WRONG = np.minimum(0.05, 0.01 / PROBED)  # relative error that first order may cost there, root mean square
ROWS = 1 << 16  # whose logarithms are computed at a time


@dataclass(frozen=True)
class View:
    """What rows with the same gaps show of a mixture: log-weights (k,), means (k, p) and covariances (k, p, p)."""

    log_w: Array
    means: Array
    V: Array


@dataclass(frozen=True)
class Draws:
    """Vectors z (m, p), components and weights (m,)."""

    z: Array
    component: Array
    weight: Array


def p_values(parameters: Parameters, rows: Batch) -> Array:
    """P(f(X) <= f(x)) (n,) of rows with noise of their own; NaN of those that are left to others."""
    p = np.full(rows.n, np.nan)
    for part, seen in _same_gaps(rows):
        view = _view(parameters, seen)
        noise = _Noise(rows, torch.from_numpy(part), torch.from_numpy(seen))
        typical = _typical(view)
        if typical is None:
            continue
        features = noise.features(typical)
        groups = list(_parted(features, np.arange(len(part)), LARGEST))
        for group, own in zip(groups, each(groups, _Groups(view, typical, noise, features)), strict=True):
            p[part[group]] = own
    return p


def _same_gaps(rows: Batch) -> Iterator[tuple[Array, Array]]:
    """Sets of many rows with the same gaps, and which of their values are seen."""
    seen = ~rows.x.isnan().numpy()
    patterns, which, count = np.unique(seen, axis=1, return_inverse=True, return_counts=True)
    for number in np.flatnonzero((count >= MANY) & patterns.any(0)):
        yield np.flatnonzero(which.ravel() == number), np.flatnonzero(patterns[:, number])


def _view(parameters: Parameters, seen: Array) -> View:
    log_w = torch.log_softmax(parameters.log_weights, 0).numpy()
    alive = np.isfinite(log_w)
    V = parameters.covariances.numpy()[:, seen][:, :, seen]
    means = parameters.means.numpy()[:, seen]
    return View(log_w[alive], np.ascontiguousarray(means[alive]), np.ascontiguousarray(V[alive]))


@dataclass(frozen=True)
class _Noise:
    """The noise and values of some rows in the coordinates that they show."""

    rows: Batch
    part: torch.Tensor
    seen: torch.Tensor

    def covariances(self, some: Array) -> Array:
        """(m, p, p) of some of the rows."""
        S = self.rows.rows(self.part[torch.from_numpy(some)]).covariance()
        return np.ascontiguousarray(S[:, self.seen][:, :, self.seen].numpy())

    def values(self, some: Array) -> Array:
        """(m, p) of some of the rows."""
        return np.ascontiguousarray(self.rows.x[self.seen][:, self.part[torch.from_numpy(some)]].T.numpy())

    def features(self, typical: Array) -> Array:
        """The logarithm of noise plus a typical covariance, in units of the latter, as vectors (n, T)."""
        inverse = np.linalg.inv(np.linalg.cholesky(typical))
        size = len(typical) * (len(typical) + 1) // 2
        logarithms = np.empty((len(self.part), size), dtype=np.float32)
        for start in range(0, len(self.part), ROWS):
            some = np.arange(start, min(start + ROWS, len(self.part)))
            logarithms[some] = _flat(_logarithm(inverse @ (self.covariances(some) + typical) @ inverse.T))
        return logarithms


def _typical(view: View) -> Array | None:
    """Half way between the mean covariance of components and their harmonic mean; None where one is singular."""
    w = np.exp(view.log_w)
    try:
        harmonic = np.linalg.inv(np.einsum("k,kab->ab", w, np.linalg.inv(view.V)))
        typical = (np.einsum("k,kab->ab", w, view.V) + (harmonic + harmonic.T) / 2) / 2
        np.linalg.cholesky(typical)
    except np.linalg.LinAlgError:
        return None
    return typical


def _logarithm(matrices: Array) -> Array:
    """Logarithms (n, p, p) of positive definite matrices."""
    values, vectors = np.linalg.eigh(matrices)
    return (vectors * np.log(np.maximum(values, 1e-300))[:, None]) @ vectors.transpose(0, 2, 1)


def _flat(matrices: Array) -> Array:
    """Symmetric matrices (n, p, p) as vectors (n, T) of the same length."""
    a, b = np.tril_indices(matrices.shape[1])
    return matrices[:, a, b] * np.where(a == b, 1.0, np.sqrt(2.0))


def _drawn(view: View, S: Array, seed: int) -> Draws:
    """Draws of the mixture, half of them in its tail, and their weights."""
    p = view.means.shape[1]
    even = qmc.Sobol(p + 2, rng=np.random.default_rng(seed)).random(DRAWS)
    w, tail = np.exp(view.log_w), _tail_shares(view, S)
    own = even[:, 0] < 0.5
    place = np.where(own, 2 * even[:, 0], 2 * even[:, 0] - 1)
    component = np.where(own, _chosen(w, place), _chosen(tail, place))
    beyond = np.where(own, even[:, 1], FLOOR ** even[:, 1])
    beyond = np.clip(beyond, 1e-300, 1.0)
    density = 0.5 + 0.5 * (tail / w)[component] / (beyond * -np.log(FLOOR)) * (beyond >= FLOOR)
    u = ndtri(np.clip(even[:, 2:], 1e-15, 1 - 1e-15))
    u /= np.linalg.norm(u, axis=1)[:, None]
    order = np.argsort(component, kind="stable")
    z = (u * np.sqrt(chdtri(p, beyond))[:, None])[order]
    weight = (1 / density)[order]
    return Draws(z, component[order], weight / weight.sum())


def _chosen(share: Array, place: Array) -> Array:
    return np.minimum(np.searchsorted(np.cumsum(share), place * share.sum()), len(share) - 1)


def _tail_shares(view: View, S: Array) -> Array:
    """What each component (k,) contributes to the tails, averaged over levels, and a tenth of its weight."""
    p = view.means.shape[1]
    peak = view.log_w - 0.5 * np.linalg.slogdet(2 * np.pi * (view.V + S))[1]
    levels = peak.max() - np.linspace(0.0, 30.0, 61)
    bound = np.exp(view.log_w) * chdtrc(p, np.maximum(2 * (peak - levels[:, None]), 0.0))
    total = bound.sum(1, keepdims=True)
    tails = total[:, 0] < 0.3
    share = (bound / np.maximum(total, 1e-300))[tails].mean(0)
    share = share + 0.1 * np.exp(view.log_w)
    return share / share.sum()


def _parted(features: Array, some: Array, largest: int) -> Iterator[Array]:
    """Rows in groups of at most so many, halved along the axis in which their noise differs most."""
    if len(some) <= largest:
        yield some
        return
    of = features[some]
    away = of[:: max(1, len(of) // 4096)]
    axis = np.linalg.eigh(np.cov(away.T.astype(np.float64)).reshape(of.shape[1], -1))[1][:, -1]
    place = of @ axis.astype(np.float32)
    order = np.argpartition(place, len(place) // 2)
    yield from _parted(features, some[order[: len(order) // 2]], largest)
    yield from _parted(features, some[order[len(order) // 2 :]], largest)


@dataclass(frozen=True)
class _Near:
    """Noise near a middle (p, p): changes (n, T) to first order by lower triangles, and squared distances (n,)."""

    S: Array
    middle: Array
    change: Array
    distance: Array

    @classmethod
    def of(cls, S: Array, typical: Array) -> _Near:
        """Some noise (n, p, p), around the mean of its logarithms."""
        root = np.linalg.cholesky(S.mean(0) + typical)
        mean = _logarithm(_inside(root, S + typical)).mean(0)
        values, vectors = np.linalg.eigh(mean)
        middle = root @ (vectors * np.exp(values)) @ vectors.T @ root.T
        root = np.linalg.cholesky(middle)
        logs = _logarithm(_inside(root, S + typical))
        a, b = np.tril_indices(len(root))
        change = (root @ logs @ root.T)[:, a, b]
        return cls(S, middle - typical, change, (logs**2).sum((1, 2)))


def _inside(root: Array, matrices: Array) -> Array:
    inverse = np.linalg.inv(root)
    return inverse @ matrices @ inverse.T


@dataclass(frozen=True)
class _Trust:
    """Draws at the middle of a group, their slopes, and for which rows they hold.

    ``slope`` is the relative error of p at PROBED per squared distance; it is known well from ``least`` on, and for
    rows within the squared distance ``reach``.
    """

    base: Array
    D: Array
    slope: Array
    least: float
    reach: float


@dataclass(frozen=True)
class _Groups:
    """p-values of groups of rows, each by draws of its own."""

    view: View
    typical: Array
    noise: _Noise
    features: Array

    def __call__(self, group: Array) -> Array:
        draws = _drawn(self.view, self.noise.covariances(group).mean(0), seed=int(group[0]))
        return _Solver(self.view, self.typical, self.noise, self.features, draws).solved(group)


@dataclass(frozen=True)
class _Solver:
    """p-values of a group of rows."""

    view: View
    typical: Array
    noise: _Noise
    features: Array
    draws: Draws

    def solved(self, group: Array) -> Array:
        order, waiting, probabilities = [group[:0]], [(group, np.inf)], [np.empty(0)]
        while waiting:
            some, before = waiting.pop()
            near = _Near.of(self.noise.covariances(some), self.typical)
            wide = float(near.distance.mean())
            trust = self._trusted(near)
            if trust is None and len(some) >= 2 * SMALLEST and wide < NEARER * before:
                waiting += [(half, wide) for half in _parted(self.features, some, (len(some) + 1) // 2)]
                continue
            p = np.full(len(some), np.nan) if trust is None else self._solved(some, near, trust)
            far = np.zeros(len(some), dtype=bool) if trust is None else near.distance > trust.reach
            if far.sum() >= SMALLEST:
                waiting.append((some[far], wide))
                some, p = some[~far], p[~far]
            order.append(some)
            probabilities.append(p)
        p = np.concatenate(probabilities)
        return p[np.argsort(np.concatenate(order))][np.argsort(np.argsort(group))]

    def _trusted(self, near: _Near) -> _Trust | None:
        """How far from the middle first order holds, if it does for half of the rows at least."""
        sloped = _sloped(self.view, self.draws, near.middle)
        if sloped is None:
            return None
        rows = np.argsort(near.distance)[np.linspace(0, len(near.distance) - 1, TRIED + 1).astype(int)[1:]]
        errors, distance = self._errors(near, rows, *sloped), near.distance[rows, None]
        for r in range(TRIED, TRIED // 2 - 1, -1):
            e, d = errors[:r], distance[:r]
            slope = max(_slopes(e, d), key=lambda slope: _known(e, d, slope))
            known = _known(e, d, slope)
            if known >= ENOUGH:
                return _Trust(*sloped, slope, PROBED[-known], float(d[-1, 0]))
        return None

    def _errors(self, near: _Near, rows: Array, base: Array, D: Array) -> Array:
        """Relative errors of p at PROBED for some rows."""
        from . import noise_draws

        draws = self.draws
        right, close = np.empty((2, len(base)))
        errors = []
        for row in rows:
            noise_draws.exact(*_of(self.view), near.S[row], draws.z, draws.component, right)
            noise_draws.moved(*_of(self.view), near.S[row], near.change[row], base, D, draws.component, close)
            errors.append(_compared(right, close, draws.weight))
        return np.array(errors)

    def _solved(self, some: Array, near: _Near, trust: _Trust) -> Array:
        """p-values of rows, without what first order got wrong; NaN below the least that is known."""
        from . import noise_draws

        p = np.full(len(some), np.nan)
        noise_draws.p_values(*_of(self.view), self.noise.values(some), near.S, near.change, trust.base, trust.D,
                             self.draws.weight, self.draws.component, PRECISION, p)  # fmt: skip
        wrong = np.interp(np.log(np.maximum(p, 1e-300)), np.log(PROBED), trust.slope) * near.distance
        wrong *= np.minimum(1.0, (1 - p) / (1 - PROBED[-1]))  # nothing is wrong at p = 1
        known = (p >= trust.least) | (trust.least == PROBED[0])
        known &= (np.abs(wrong) < MOST) & (near.distance <= trust.reach)
        return np.where(known, np.minimum(p / (1 + wrong), 1.0), np.nan)


def _slopes(errors: Array, distance: Array) -> tuple[Array, Array]:
    """Errors per squared distance: of all tried rows alike, and by least squares, which the farthest decide.

    Errors grow less than the squared distance far out, so that the second leaves a seventh of what is common to all
    rows; the first leaves less. Rows near the middle show no errors, and count less.
    """
    alike = (errors / np.maximum(distance, max(distance.mean() / TRIED, 1e-12))).mean(0)
    return alike, (errors * distance).sum(0) / np.maximum((distance**2).sum(0), 1e-300)


def _known(errors: Array, distance: Array, slope: Array) -> int:
    """At how many of PROBED, from the largest on, little is left of errors."""
    rest = np.sqrt(((errors - slope * distance) ** 2).mean(0))
    return int(np.cumprod((rest < WRONG)[::-1]).sum())


def _sloped(view: View, draws: Draws, S: Array) -> tuple[Array, Array] | None:
    """log f less its own component's peak (m,) of draws with noise S, and how it moves with S (T, m)."""
    from . import noise_draws

    p = view.means.shape[1]
    rho, D = np.empty(len(draws.z)), np.empty((p * (p + 1) // 2, len(draws.z)))
    if not noise_draws.sloped(*_of(view), S, draws.z, draws.component, rho, D):
        return None
    return rho - 0.5 * (draws.z**2).sum(1), D


def _of(view: View) -> tuple[Array, Array, Array]:
    return view.log_w, view.means, view.V


def _compared(right: Array, close: Array, weight: Array) -> Array:
    """Relative errors of probabilities below the levels where they are PROBED, for two densities of the same draws."""
    order = np.argsort(right)
    below = np.cumsum(weight[order])
    place = np.minimum(np.searchsorted(below, PROBED), len(below) - 1)
    weights = np.array([weight[close <= level].sum() for level in right[order][place]])
    return weights / below[place] - 1
