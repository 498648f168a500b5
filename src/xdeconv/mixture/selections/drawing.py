"""Drawn: chances to be kept as averages over draws that stay where they are, shared by rows of like noise.

With few draws per row the logarithm of a mean is biased, so rows share theirs. Where all rows have one noise, all draws
are of all rows. Otherwise rows are split by medians of their noise into groups with some thousands of draws each, in
which P is taken as linear in the logarithms of the noise: a linear smoother, P = H y with y the mean of omega p / q
over a row's own draws. Its derivatives are then sums over the draws with weights y_l (H^T (w / P))_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ... import kernels
from ...kernels.parameters import Parameters
from ...rows.batch import Batch
from ...system.checksums import checksum
from ..background import Background, Uniform
from .contract import Chances, Kept, Population

GROUP_DRAWS = 1 << 11  # of a group, at least: quasi-random ones, so that P is then known to 0.5 % of itself
FEWEST = 1 << 15  # draws of a batch
WIDER, BROAD = 2.0, 0.3  # a part of the draws comes from covariances so many times as large
EVEN = 0.1  # of the proposal's weight is the same for all components
LEAST = 0.2  # of the mean of a group, that a row's chance may fall to
SMALLEST = 1e-300
REMEMBERED = 1 << 26  # numbers of draws that are kept between passes


class Function(Protocol):
    """What draws need of a selection function."""

    @property
    def noise(self) -> Any: ...

    def probability(self, batch: Batch) -> Tensor: ...

    def covariances(self, v: np.ndarray) -> np.ndarray: ...


class Draws(NamedTuple):
    """Draws of the rows of a batch: m for each row, those of one round beside each other (m n).

    ``rows`` are as their density is asked for, with what the background has there, ``log_q`` is the proposal's density,
    ``kept`` omega. ``groups`` are (g, most) indices of rows, -1 where a group has fewer; ``features`` (g, most, f) what
    P is linear in. ``log_kept`` (n,) is log omega of the rows themselves.
    """

    rows: Batch
    log_q: Tensor
    kept: Tensor
    groups: Tensor
    features: Tensor
    log_kept: Tensor


@dataclass(frozen=True)
class Drawn(Chances):
    """Chances that rows have by a function, by draws from a population: ``size`` per row, and more of few rows.

    Parameters
    ----------
    function : Completeness
        Of rows to probabilities.
    proposal : Population
        What is drawn from.
    size : int
        Draws per row.
    seed : int
        Of the draws.
    remembered : dict
        Draws by the batch that they are of.
    """

    function: Function
    proposal: Population
    size: int
    seed: int
    remembered: dict[int, Draws] = field(default_factory=dict, compare=False)

    def log_kept(self, batch: Batch) -> Tensor:
        """log omega (n,) of rows."""
        return self._draws(batch).log_kept

    def log_chance(self, population: Population, batch: Batch) -> Tensor:
        """log P (n,)."""
        draws = self._draws(batch)
        return self._smoothed(draws, self._ratios(draws, population), batch.n)[0].log()

    def kept(self, population: Population, batch: Batch) -> Kept:
        """What the function keeps of rows like these, in the mean."""
        draws = self._draws(batch)
        y = self._ratios(draws, population)
        P, weights = self._smoothed(draws, y, batch.n, batch.weight)
        rows = replace(draws.rows, weight=y * weights.repeat(len(y) // len(weights)))
        sums = kernels.accumulate(*population.parameters, rows)
        return Kept(P.log(), draws.log_kept, sums.q, sums.g, sums.G)

    def _ratios(self, draws: Draws, population: Population) -> Tensor:
        """omega p / q of all draws."""
        log_p = kernels.log_prob(*population.parameters, draws.rows).double()
        return draws.kept * (log_p - draws.log_q).exp()

    def _smoothed(self, draws: Draws, y: Tensor, n: int, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """P (n,) of rows, and the weights with which their draws are summed, for a sum over rows with weights."""
        w = torch.ones(n, dtype=torch.float64, device=y.device) if weight is None else weight.double()
        if len(draws.groups) == 0:  # one noise for all
            P = y.mean().clamp(min=SMALLEST)
            return P.expand(n), (w.sum() / (P * len(y))).expand(1)
        m = len(y) // n
        each = y.view(m, n).mean(0)
        there, rows = draws.groups >= 0, draws.groups.clamp(min=0)
        inside = torch.where(there, each[rows], 0.0)
        F = draws.features
        A = F.mT @ F + 1e-9 * torch.eye(F.shape[-1], dtype=F.dtype, device=F.device) * F.shape[1]
        line = (F @ torch.linalg.solve(A, F.mT @ inside[..., None]))[..., 0]
        count = there.sum(1, keepdim=True)
        floor = LEAST * inside.sum(1, keepdim=True) / count
        low = line < floor
        chance = torch.where(low, floor, line).clamp(min=SMALLEST)
        pull = torch.where(there, w[rows] / chance, 0.0)
        back = (F @ torch.linalg.solve(A, F.mT @ torch.where(low, 0.0, pull)[..., None]))[..., 0]
        back = back + LEAST / count * torch.where(low, pull, 0.0).sum(1, keepdim=True)
        P, weights = (torch.empty(n, dtype=torch.float64, device=y.device) for _ in range(2))
        P[rows[there]], weights[rows[there]] = chance[there], back[there]
        return P, weights / m

    def _draws(self, batch: Batch) -> Draws:
        key = checksum(str(batch.n), batch.x[:, :4].double().cpu().numpy())
        found = self.remembered.get(key)
        if found is None:
            found = self._made(batch, key)
            held = sum(one.rows.x.numel() for one in self.remembered.values())
            if held + found.rows.x.numel() <= REMEMBERED:
                self.remembered[key] = found
        return found

    def _made(self, batch: Batch, key: int) -> Draws:
        batch = replace(batch.to(dtype=torch.float64), scale=None)
        log_kept = self.function.probability(batch).clamp(min=SMALLEST).log()
        modelled = self.function.noise is not None
        like = Batch(torch.zeros(batch.p, 1, dtype=torch.float64, device=batch.device)) if modelled else batch
        alone = modelled or batch.shared
        n = 1 if alone else batch.n
        wanted = max(FEWEST, self.size * batch.n)
        m = 1 << max(0, int(np.ceil(np.log2(wanted / n))))
        # a common seed for all batches where they share one chance, for each its own otherwise
        groups, features = (_none(batch), _none(batch)) if alone else _grouped(batch, m)
        v, z = self._true(m * n, batch.d, batch.device, self.seed if modelled else self.seed + key)
        if not alone:
            v, z = v[_places(groups, m)], z[_places(groups, m)]
        rows, seen = _observed(v, z, like if n > 1 else like.rows(slice(0, 1)), m, self.function if modelled else None)
        kept = self.function.probability(seen)
        proposal, box = _proposal(self.proposal)
        log_q = kernels.log_prob(*proposal, _beside(rows, box))
        rows = _beside(rows, self.proposal.background)
        return Draws(rows, log_q, kept, groups, features, log_kept)

    def _true(self, size: int, d: int, device: torch.device, seed: int) -> tuple[Tensor, Tensor]:
        """True values (size, d) of the proposal, standard normals for their noise (size, d)."""
        engine = torch.quasirandom.SobolEngine(1 + 2 * d, scramble=True, seed=seed % (1 << 31))
        u = engine.draw(size, dtype=torch.float64).clamp(1e-12, 1 - 1e-12).to(device)
        (log_weights, means, V), box = _proposal(self.proposal)
        component = torch.searchsorted(log_weights.exp().cumsum(0).contiguous(), u[:, 0].contiguous())
        inside = component.clamp(max=len(means) - 1)
        z = torch.special.ndtri(u[:, 1 : 1 + d])
        L = torch.linalg.cholesky_ex(V)[0]
        v = means[inside] + torch.einsum("nde,ne->nd", L[inside], z)
        if isinstance(box, Uniform):
            low, high = (torch.tensor(edge, dtype=torch.float64, device=device) for edge in (box.low, box.high))
            v = torch.where((component == len(means))[:, None], low + (high - low) * u[:, 1 : 1 + d], v)
        return v, torch.special.ndtri(u[:, 1 + d :])


def _proposal(population: Population) -> tuple[Parameters, Background | None]:
    """What is drawn from: a population with even and wider parts; a mixture in the background is a part of it."""
    log_weights, means, V = population.parameters
    beside, b = population.background, population.beside
    if beside is not None and not isinstance(beside, Uniform):
        other = beside.scaled(means.device)  # type: ignore[attr-defined]
        log_weights = torch.cat([log_weights, other.log_weights + b.clamp(min=SMALLEST).log()])
        means, V, beside = torch.cat([means, other.means]), torch.cat([V, other.covariances]), None
    inside = 1 - b if beside is not None else torch.ones_like(b)
    share = log_weights.exp()
    if beside is not None:
        inside = inside.clamp(0.05, 0.95)
    share = (1 - EVEN) * share / share.sum() + EVEN / len(share)
    share = inside * torch.cat([(1 - BROAD) * share, BROAD * share])
    return Parameters(share.log(), torch.cat([means, means]), torch.cat([V, WIDER * V])), beside


def _observed(v: Tensor, z: Tensor, like: Batch, m: int, function: Function | None) -> tuple[Batch, Batch]:
    """Draws as their density is asked for, and as they are seen."""
    n = like.n
    if function is not None:
        S = torch.from_numpy(function.covariances(v.cpu().numpy())).to(v)
        x = (
            v
            + (torch.linalg.cholesky_ex(S + 1e-300 * torch.eye(v.shape[1]).to(v))[0].nan_to_num(0.0) @ z[..., None])[
                ..., 0
            ]
        )
        lower = torch.tril_indices(v.shape[1], v.shape[1])
        packed = S[:, lower[0], lower[1]].T.contiguous()
        return Batch(v.T.contiguous()), Batch(x.T.contiguous(), packed)
    S = like.covariance()
    root = (
        torch.from_numpy(np.linalg.cholesky(S.cpu().numpy() + 1e-300 * np.eye(like.p)))
        if like.full
        else S.clamp(min=0.0).sqrt()
    )
    x = v.view(m, n, -1) + torch.einsum("npq,mnq->mnp", root.to(v).expand(n, -1, -1), z.view(m, n, -1))
    x = torch.where(like.x.T.isnan(), torch.nan, x).reshape(m * n, -1)
    noise = None if like.noise is None else like.noise if like.noise.shape[1] == 1 else like.noise.repeat(1, m)
    rows = Batch(x.T.contiguous(), noise, missing=like.missing)
    return rows, rows


def _places(groups: Tensor, m: int) -> Tensor:
    """Which of a sequence of draws is which (m n): those of a group follow each other, and fill space evenly."""
    counts = (groups >= 0).sum(1)
    place = torch.empty(m, int(counts.sum()), dtype=torch.int64, device=groups.device)
    first = 0
    for rows, count in zip(groups, counts.tolist(), strict=True):
        place[:, rows[:count]] = first + torch.arange(m * count, device=groups.device).view(m, count)
        first += m * count
    return place.flatten()


def _beside(rows: Batch, background: Background | None) -> Batch:
    return rows if background is None else replace(rows, background=background.log_density(rows))


def _none(batch: Batch) -> Tensor:
    return torch.zeros(0, dtype=torch.int64, device=batch.device)


def _grouped(batch: Batch, m: int) -> tuple[Tensor, Tensor]:
    """Rows in groups of like gaps and noise, and what P is linear in there: 1 and the noise's logarithms, centred."""
    features = _features(batch)
    most = max(1, GROUP_DRAWS // m)
    pattern = batch.x.isnan().double().T @ (2.0 ** torch.arange(batch.p, dtype=torch.float64, device=batch.device))
    groups: list[Tensor] = []
    for value in pattern.unique():
        groups += _halved((pattern == value).nonzero()[:, 0], features, max(most, 2 * (features.shape[1] + 1)))
    width = max(len(group) for group in groups)
    index = torch.full((len(groups), width), -1, dtype=torch.int64, device=batch.device)
    linear = torch.zeros(len(groups), width, 1 + features.shape[1], dtype=torch.float64, device=batch.device)
    for g, rows in enumerate(groups):
        index[g, : len(rows)] = rows
        inside = features[rows] - features[rows].mean(0)
        linear[g, : len(rows)] = torch.cat(
            [torch.ones_like(inside[:, :1]), inside / inside.std(0, correction=0).clamp(min=1e-6)], 1
        )
    return index, linear


def _features(batch: Batch) -> Tensor:
    """What tells the noise of rows apart (n, f): logarithms of variances, and correlations."""
    S = batch.covariance().double()
    S = S.expand(batch.n, -1, -1)
    variance = S.diagonal(dim1=1, dim2=2)
    told = [variance.clamp(min=1e-12).log()]
    if batch.full:
        a, b = np.tril_indices(batch.p, -1)
        told.append(S[:, a, b] / (variance[:, a] * variance[:, b]).clamp(min=1e-300).sqrt())
    both = torch.cat([torch.where(batch.x.T.isnan(), 0.0, told[0]), *told[1:]], 1).nan_to_num(0.0)
    spread = both.std(0, correction=0)
    return (both[:, spread > 1e-9] - both[:, spread > 1e-9].mean(0)) / spread[spread > 1e-9]


def _halved(rows: Tensor, features: Tensor, most: int) -> Sequence[Tensor]:
    """Rows split at the median of what spreads most, until groups are small."""
    if len(rows) < 2 * most or features.shape[1] == 0:
        return [rows]
    inside = features[rows]
    along = int(inside.std(0, correction=0).argmax())
    order = rows[inside[:, along].argsort(stable=True)]
    half = len(order) // 2
    return [*_halved(order[:half], features, most), *_halved(order[half:], features, most)]
