"""Trials of moves: EM on the touched components alone, with all others held, over the rows that they matter for.

Many trials run side by side. Each has its own copy of the rows near it and its own few components; a table of
log-priors keeps the rows of one trial from the components of another, so that the ordinary kernels do the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..kernels.options import DEFAULT, Options
from ..methods import EM
from ..methods.em import EMState
from ..methods.prior import Prior
from ..rows.batch import Batch
from .halves import half_shifts

Parameters = tuple[Tensor, Tensor, Tensor]
PAIRS_AT_A_TIME = {"cpu": 2e6, "cuda": 1e8}  # more trials share each launch, and waste more on pairs not theirs
FEW_ROWS = 20_000  # a pool with fewer: launches are cheap, and pairs that are not theirs are most of the work
FEW_PAIRS = 1.5e5
NEAR = 3  # how many components a row matters for, typically
MATTERS = 1e-3  # responsibility


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
        return self.weight.double() @ self.responsibility.double()

    def overlap(self) -> Tensor:
        """sum_i r_ia r_ib (k, k)."""
        return (self.responsibility * self.weight[:, None]).T @ self.responsibility

    def near(self, touched: Sequence[tuple[int, ...]], least: float = MATTERS) -> Neighbourhoods:
        """For each set of components, the rows that it matters for, and the density that all others give them."""
        parts = []
        for components in touched:
            share = self.responsibility[:, list(components)].sum(1)
            rows = (share > least).nonzero()[:, 0]
            parts.append((rows, share[rows].double()))
        rows = torch.cat([rows for rows, _ in parts])
        rest = (1 - torch.cat([share for _, share in parts])).clamp(min=1e-30)
        sizes = torch.tensor([len(rows) for rows, _ in parts])
        group = torch.repeat_interleave(torch.arange(len(parts)), sizes).to(rows.device)
        log_prob = self.log_prob[rows]
        batch = replace(self.batch.rows(rows), weight=None)
        weight = self.weight[rows].double()
        return Neighbourhoods(batch, weight, log_prob, log_prob + rest.log(), group, tuple(sizes.tolist()), self.total)


@dataclass(frozen=True)
class Neighbourhoods:
    """Rows near each of some trials: weight, log-density now and without the trial's components, and whose they are."""

    batch: Batch
    weight: Tensor
    log_prob: Tensor
    background: Tensor
    group: Tensor
    sizes: tuple[int, ...]
    total: float

    def sample(self, most: int, rng: np.random.Generator) -> Neighbourhoods:
        """At most so many rows of each trial, each standing for several."""
        if max(self.sizes) <= most:
            return self
        starts = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        chosen = [start + np.sort(rng.permutation(n)[:most]) for start, n in zip(starts, self.sizes, strict=True)]
        factor = np.repeat([max(1.0, n / most) for n in self.sizes], [len(rows) for rows in chosen])
        picked = self._rows(torch.from_numpy(np.concatenate(chosen)).to(self.group.device))
        weight = picked.weight * torch.from_numpy(factor).to(self.group.device)
        return replace(picked, weight=weight, sizes=tuple(len(rows) for rows in chosen))

    def repeated(self, times: int) -> Neighbourhoods:
        """Every trial several times over: copies of one trial follow each other."""
        n = len(self.group)
        every = torch.arange(n, device=self.group.device).repeat(times)
        copy = torch.arange(times, device=self.group.device).repeat_interleave(n)
        many = self._rows(every)
        sizes = tuple(size for size in self.sizes for _ in range(times))
        order = torch.argsort(many.group * times + copy, stable=True)
        return replace(many._rows(order), group=(many.group * times + copy)[order], sizes=sizes)

    def _rows(self, rows: Tensor) -> Neighbourhoods:
        return replace(
            self, batch=self.batch.rows(rows), weight=self.weight[rows], log_prob=self.log_prob[rows],
            background=self.background[rows], group=self.group[rows],
        )  # fmt: skip

    def refit(self, start: Parameters, steps: int, effort: Effort) -> tuple[Parameters, Tensor]:
        """EM on the components (g, m, ...) of every trial, all others held; those, and each trial's gain (g,)."""
        g, m = start[0].shape
        method = EM(prior=effort.prior)
        parameters: Parameters = tuple(t.flatten(0, 1) for t in start)  # type: ignore[assignment]
        batch = replace(self.batch, log_prior=_only_own(g, m, self.batch), label=self.group)
        for step in range(steps + 1):
            inside = kernels.log_prob(*parameters, batch, effort.options).double()
            log_prob = torch.logaddexp(self.background, inside)
            if step == steps:
                break
            share = ((inside - log_prob).exp() * self.weight).nan_to_num(0.0)  # rows of a trial that has failed
            weighted = replace(batch, weight=share.to(batch.dtype))
            stats = kernels.accumulate(*parameters, weighted, effort.options)
            state = EMState(parameters[0].exp(), *parameters[1:], torch.zeros_like(stats.rows))
            state = method.update(state, stats, float(stats.rows))  # so that a prior weighs against these rows
            parameters = (state.weights * (stats.rows / self.total)).log(), state.means, state.covariances
        gain = self._sums(self.weight * (log_prob - self.log_prob))
        found: Parameters = tuple(t.unflatten(0, (g, m)) for t in parameters)
        gain = gain + penalty(found, effort.prior)
        bad = torch.linalg.cholesky_ex(parameters[2]).info.view(g, m).any(1) | gain.isnan()
        return found, torch.where(bad, -torch.inf, gain)

    def _sums(self, values: Tensor) -> Tensor:
        """The sum (g,) over each trial's rows, the same bits every time; trials without rows have none to add."""
        sizes = torch.tensor(self.sizes)
        some, found = sizes > 0, values.new_zeros(len(sizes))
        if len(values) == 0:
            return found
        lengths = sizes[some].to(values.device)
        found[some.to(values.device)] = torch.segment_reduce(values, "sum", lengths=lengths)
        return found


def _only_own(g: int, m: int, batch: Batch) -> Tensor:
    """Log-priors (g, g m): 0 for a trial's own components, -inf for all others."""
    own = torch.eye(g, device=batch.device).repeat_interleave(m, dim=1)
    return torch.where(own > 0, 0.0, -torch.inf).to(batch.dtype)


def penalty(parameters: Parameters, prior: Prior | None) -> Tensor | float:
    """Log-prior of the components of each trial (g,)."""
    if prior is None:
        return 0.0
    log_weights, _, V = parameters
    return torch.stack([prior.log_density(w.exp(), v) for w, v in zip(log_weights, V, strict=True)])


def _in_turn(
    things: Sequence[tuple[int, ...]], pool: Pool, rows: int, each: int
) -> Iterator[Sequence[tuple[int, ...]]]:
    """As many at a time as keep the pairs of rows and components, other trials' among them, below a limit."""
    k = pool.responsibility.shape[1]
    rows = max(1, min(rows, NEAR * pool.batch.n // k))
    few = pool.batch.device.type == "cpu" and pool.batch.n < FEW_ROWS
    pairs = FEW_PAIRS if few else PAIRS_AT_A_TIME[pool.batch.device.type]
    size = max(1, int((pairs / (2 * rows)) ** 0.5 / each))
    for start in range(0, len(things), size):
        yield things[start : start + size]


def _pick(parameters: Parameters, touched: Sequence[tuple[int, ...]]) -> Parameters:
    """Parameters (g, m, ...) of some sets of m components."""
    index = torch.tensor(touched, device=parameters[0].device)
    log_weights, means, V = (t[index] for t in parameters)
    return log_weights, means, V


def try_splits(
    components: Sequence[int], parameters: Parameters, pool: Pool, effort: Effort, rng: np.random.Generator
) -> list[Change]:
    """For each component, the best of several ways to make two of it."""
    changes = []
    for touched in _in_turn([(c,) for c in components], pool, effort.screen_rows, WAYS):
        near = pool.near(touched)
        sample = near.sample(effort.screen_rows, rng)
        ways = ways_to_split(_pick(parameters, touched), sample, rng)
        trial, gain = sample.repeated(WAYS).refit(tuple(t.flatten(0, 1) for t in ways), effort.screening, effort)  # type: ignore[arg-type]
        best = gain.view(-1, WAYS).argmax(1) + WAYS * torch.arange(len(touched), device=gain.device)
        found, gain = near.refit(tuple(t[best] for t in trial), effort.polishing, effort)  # type: ignore[arg-type]
        gain = gain - penalty(_pick(parameters, touched), effort.prior)
        fewest = 2 * (parameters[1].shape[1] + 1)  # or halves shrink onto single rows
        changes += _changes(touched, found, torch.where(_mass(pool, touched) < fewest, -torch.inf, gain))
    return changes


def try_merges(pairs: Sequence[tuple[int, ...]], parameters: Parameters, pool: Pool, effort: Effort) -> list[Change]:
    """For each pair, one component that takes its place."""
    changes = []
    for touched in _in_turn(pairs, pool, pool.batch.n, 1):
        near = pool.near(touched)
        parts = _pick(parameters, touched)
        found, gain = near.refit(moment_match(parts), effort.screening // 2, effort)
        changes += _changes(touched, found, gain - penalty(parts, effort.prior))
    return changes


def try_removals(parameters: Parameters, pool: Pool) -> list[Change]:
    """What each component's removal costs, the others being as they are."""
    left = (1 - pool.responsibility.double()).clamp(min=1e-300).log()
    loss = (pool.weight.double() @ left).tolist()
    log_weights, means, V = (t[:0] for t in parameters)
    return [Change((c,), (log_weights, means, V), loss[c]) for c in range(len(loss))]


def _mass(pool: Pool, touched: Sequence[tuple[int, ...]]) -> Tensor:
    """Rows (g,) of the first component of each trial."""
    return pool.mass[[components[0] for components in touched]]


def _changes(touched: Sequence[tuple[int, ...]], found: Parameters, gain: Tensor) -> list[Change]:
    gains = gain.tolist()
    return [Change(old, (found[0][i], found[1][i], found[2][i]), gains[i]) for i, old in enumerate(touched)]


def moment_match(parts: Parameters) -> Parameters:
    """One component (g, 1, ...) with the weight, mean and covariance of several (g, m, ...) together."""
    log_weights, means, V = parts
    share = torch.where((log_weights == -torch.inf).all(1, keepdim=True), 0.0, log_weights).softmax(1)
    mean = torch.einsum("gm,gmd->gd", share, means)
    away = means - mean[:, None]
    pooled = torch.einsum("gm,gmde->gde", share, V + away[..., :, None] * away[..., None, :])
    return log_weights.logsumexp(1, keepdim=True), mean[:, None], pooled[:, None]


WAYS = 5


def ways_to_split(parts: Parameters, near: Neighbourhoods, rng: np.random.Generator) -> Parameters:
    """Pairs (g, WAYS, 2, ...): halves along two axes, a core and a halo, a small one on each of two rows."""
    log_weights, means, V = (t[:, 0] for t in parts)
    shifts, ways = half_shifts(V), []
    for axis in (-1, -min(2, V.shape[-1])):
        away = shifts[:, axis]
        half = V - 0.98 * away[:, :, None] * away[:, None, :]
        ways.append(_two(log_weights, 0.5, (means + away, means - away), (half, half)))
    ways.append(_two(log_weights, 0.5, (means, means), (0.2 * V, 1.8 * V)))
    for _ in range(2):
        ways.append(_two(log_weights, 0.2, (_seen_from_a_row(means, V, near, rng), means), (0.1 * V, V)))
    stacked: Parameters = tuple(torch.stack(t, dim=1) for t in zip(*ways, strict=True))  # type: ignore[assignment]
    return stacked


def _two(log_weight: Tensor, share: float, means: tuple[Tensor, Tensor], V: tuple[Tensor, Tensor]) -> Parameters:
    shares = torch.stack([log_weight + np.log(share), log_weight + np.log(1 - share)], dim=1)
    return shares, torch.stack(means, dim=1), torch.stack(V, dim=1)


def _seen_from_a_row(means: Tensor, V: Tensor, near: Neighbourhoods, rng: np.random.Generator) -> Tensor:
    """The posterior mean (g, d) of a random row under each component; the component's own mean if it has no row."""
    starts = np.concatenate([[0], np.cumsum(near.sizes)[:-1]])
    some = np.array([start + (rng.integers(n) if n else 0) for start, n in zip(starts, near.sizes, strict=True)])
    rows = torch.from_numpy(np.minimum(some, max(0, near.batch.n - 1))).to(means.device)
    if near.batch.n == 0:
        return means
    g = len(means)
    one = replace(
        near.batch.rows(rows), log_prior=_only_own(g, 1, near.batch), label=torch.arange(g, device=rows.device)
    )
    stats = kernels.accumulate(torch.zeros_like(means[:, 0]), means, V, one)
    return means + torch.einsum("gde,ge->gd", V, stats.g)
