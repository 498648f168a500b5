"""Trials of single moves: EM on the touched components alone, with all others held, over the rows they matter for."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from . import kernels
from .batch import Batch
from .kernels.options import DEFAULT, Options
from .methods import EM
from .methods.em import EMState
from .prior import Prior

Parameters = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Effort:
    """Local EM steps: of each way to split, on at most so many rows, and further ones of the best on all rows."""

    screening: int
    screen_rows: int
    polishing: int
    prior: Prior | None
    options: Options


@dataclass(frozen=True)
class Change:
    """A trial of one move: components that go, what replaces them (log-weights, means, covariances), and its gain."""

    old: tuple[int, ...]
    new: Parameters
    gain: float


@dataclass(frozen=True)
class Pool:
    """Rows that moves are tried on, and what the present mixture makes of them."""

    batch: Batch
    weight: Tensor
    log_prob: Tensor
    responsibility: Tensor

    @classmethod
    def of(cls, parameters: Parameters, batch: Batch, options: Options = DEFAULT) -> Pool:
        """Log-densities (n,) and responsibilities (n, k) of a batch."""
        log_joint = kernels.log_joint(*parameters, batch, options)
        log_prob = log_joint.logsumexp(1)
        weight = torch.ones_like(log_prob) if batch.weight is None else batch.weight
        return cls(batch, weight, log_prob.double(), (log_joint - log_prob[:, None]).exp())

    @property
    def total(self) -> float:
        """Weight of all rows."""
        return float(self.weight.sum(dtype=torch.float64))

    @property
    def mass(self) -> Tensor:
        """Rows of each component (k,)."""
        return self.weight @ self.responsibility

    def overlap(self) -> Tensor:
        """sum_i r_ia r_ib (k, k)."""
        return (self.responsibility * self.weight[:, None]).T @ self.responsibility

    def neighbourhood(self, touched: tuple[int, ...], least: float = 1e-3) -> Neighbourhood:
        """The rows that some components matter for, with the density that all others give them."""
        share = self.responsibility[:, list(touched)].sum(1)
        rows = (share > least).nonzero()[:, 0]
        rest = (1 - share[rows].double()).clamp(min=1e-30)
        log_prob = self.log_prob[rows]
        batch = replace(self.batch.rows(rows), weight=None)
        weight = self.weight[rows].double()
        return Neighbourhood(batch, weight, log_prob, log_prob + rest.log(), self.total)


@dataclass(frozen=True)
class Neighbourhood:
    """Rows near some components: their weight, log-density now, and log-density without those components."""

    batch: Batch
    weight: Tensor
    log_prob: Tensor
    background: Tensor
    total: float

    def sample(self, most: int, rng: np.random.Generator) -> Neighbourhood:
        """At most so many of the rows, each standing for several."""
        n = self.batch.n
        if n <= most:
            return self
        rows = torch.from_numpy(np.sort(rng.choice(n, size=most, replace=False))).to(self.weight.device)
        weight = self.weight[rows] * (n / most)
        return Neighbourhood(self.batch.rows(rows), weight, self.log_prob[rows], self.background[rows], self.total)

    def refit(self, start: Parameters, steps: int, effort: Effort) -> tuple[Parameters, float]:
        """EM on some components with all others held; the parameters and the change of the log-likelihood."""
        method, parameters, options = EM(prior=effort.prior), start, effort.options
        for step in range(steps + 1):
            inside = kernels.log_prob(*parameters, self.batch, options).double()
            log_prob = torch.logaddexp(self.background, inside)
            if step == steps:
                break
            share = (inside - log_prob).exp() * self.weight
            batch = replace(self.batch, weight=share.to(self.batch.dtype))
            stats = kernels.accumulate(*parameters, batch, options)
            log_weights, means, V = parameters
            state = EMState(log_weights.softmax(0), means, V, torch.zeros_like(stats.rows))
            state = method.update(state, stats, self.total)
            parameters = (state.weights * (stats.rows / self.total)).log(), state.means, state.covariances
        gain = float(self.weight @ (log_prob - self.log_prob))
        if effort.prior is not None:
            gain += float(effort.prior.log_density(parameters[0].exp(), parameters[2]))
        return parameters, gain if np.isfinite(gain) and sound(parameters[2]) else -np.inf


def try_split(c: int, parameters: Parameters, pool: Pool, effort: Effort, rng: np.random.Generator) -> Change:
    """The best of several ways to make two components of one."""
    near = pool.neighbourhood((c,))
    if near.batch.n < 4:
        return Change((c,), _pick(parameters, (c,)), -np.inf)
    sample = near.sample(effort.screen_rows, rng)
    ways = _ways_to_split(c, parameters, sample, rng)
    best = max((sample.refit(way, effort.screening, effort) for way in ways), key=lambda trial: trial[1])[0]
    found, gain = near.refit(best, effort.polishing, effort)
    return Change((c,), found, gain - _penalty(parameters, (c,), effort.prior))


def _ways_to_split(c: int, parameters: Parameters, near: Neighbourhood, rng: np.random.Generator) -> list[Parameters]:
    """Two halves along the longest axes; a core and a halo; a small component on some row."""
    log_weights, means, V = (t[c] for t in parameters)
    spread = V.diagonal().sqrt()
    values, vectors = torch.linalg.eigh(V / spread[:, None] / spread)
    ways = []
    for axis in (-1, -2)[: len(values)]:
        e = spread * vectors[:, axis] * values[axis].sqrt()
        away = (2 / np.pi) ** 0.5 * e
        half = V - (2 / np.pi) * 0.98 * torch.outer(e, e)
        ways.append(_two(log_weights, (0.5, 0.5), (means + away, means - away), (half, half)))
    ways.append(_two(log_weights, (0.5, 0.5), (means, means), (0.2 * V, 1.8 * V)))
    for _ in range(2):
        row = near.batch.rows(slice(i := int(rng.integers(near.batch.n)), i + 1))
        stats = kernels.accumulate(log_weights[None] * 0, means[None], V[None], row)
        ways.append(_two(log_weights, (0.2, 0.8), (means + V @ stats.g[0], means), (0.1 * V, V)))
    return ways


def _two(
    log_weight: Tensor, shares: tuple[float, float], means: tuple[Tensor, Tensor], V: tuple[Tensor, Tensor]
) -> Parameters:
    return log_weight + log_weight.new_tensor(shares).log(), torch.stack(means), torch.stack(V)


def try_merge(pair: tuple[int, ...], parameters: Parameters, pool: Pool, effort: Effort) -> Change:
    """One component of two, refitted for a few steps."""
    near = pool.neighbourhood(pair)
    start = moment_match(_pick(parameters, pair))
    if near.batch.n == 0:
        return Change(pair, start, 0.0)
    found, gain = near.refit(start, effort.screening // 2, effort)
    return Change(pair, found, gain - _penalty(parameters, pair, effort.prior))


def moment_match(parts: Parameters) -> Parameters:
    """One component with the weight, mean and covariance of several together."""
    log_weights, means, V = parts
    share = log_weights.softmax(0)
    mean = share @ means
    away = means - mean
    pooled = torch.einsum("k,kde->de", share, V + away[:, :, None] * away[:, None, :])
    return log_weights.logsumexp(0)[None], mean[None], pooled[None]


def try_removals(parameters: Parameters, pool: Pool) -> list[Change]:
    """What each component's removal costs, the others being as they are."""
    left = (1 - pool.responsibility.double()).clamp(min=1e-300).log()
    loss = (pool.weight.double() @ left).tolist()
    nothing = tuple(t[:0] for t in parameters)
    return [Change((c,), nothing, loss[c]) for c in range(len(loss))]  # type: ignore[arg-type]


def _pick(parameters: Parameters, which: tuple[int, ...]) -> Parameters:
    log_weights, means, V = (t[list(which)] for t in parameters)
    return log_weights, means, V


def _penalty(parameters: Parameters, which: tuple[int, ...], prior: Prior | None) -> float:
    if prior is None:
        return 0.0
    log_weights, _, V = _pick(parameters, which)
    return float(prior.log_density(log_weights.exp(), V))


def sound(V: Tensor) -> bool:
    return bool(V.isfinite().all()) and not bool(torch.linalg.cholesky_ex(V).info.any())
