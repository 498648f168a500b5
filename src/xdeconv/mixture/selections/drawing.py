"""Drawn: chances to be kept as averages over draws that stay where they are, shared by rows of like noise.

With y_l = omega p / q of draw l, P is the mean of y over a row's own draws and those of rows like it; where all rows
have one noise, over all draws. Its derivatives are sums over the draws, y_l times the derivative of sum_i w_i log P_i
by it. Draws with omega = 0 add nothing and are counted, but not kept.
"""

from __future__ import annotations

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
from .contract import FEWEST, Chances, Kept, Population
from .like_rows import SMALLEST, Groups, grouped, places, smoothed

WIDER, BROAD = 2.0, 0.3  # a part of the draws comes from covariances so many times as large
EVEN = 0.1  # of the proposal's weight is the same for all components
REMEMBERED = 1 << 26  # numbers of draws that are kept between passes


class Function(Protocol):
    """What draws need of a selection function."""

    @property
    def noise(self) -> Any: ...

    def probability(self, batch: Batch) -> Tensor: ...

    def covariances(self, v: np.ndarray) -> np.ndarray: ...


class Draws(NamedTuple):
    """Draws of the rows of a batch, in rounds of one for each row, of which those with omega = 0 were left out.

    ``rows`` are as their density is asked for, with what the background has there, ``log_q`` is the proposal's density,
    ``kept`` omega, ``which`` their places among all ``total`` draws; ``groups`` are rows of like noise, where they have
    not all the same. ``log_kept`` (n,) is log omega of the rows of the batch.
    """

    rows: Batch
    log_q: Tensor
    kept: Tensor
    which: Tensor
    total: int
    groups: Groups | None
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
    fewest : int, default 32768
        At least so many draws of a batch.
    remembered : dict
        Draws by the batch that they are of.
    """

    function: Function
    proposal: Population
    size: int
    seed: int
    fewest: int = FEWEST
    remembered: dict[int, Draws] = field(default_factory=dict, compare=False)

    def log_kept(self, batch: Batch) -> Tensor:
        """log omega (n,) of rows."""
        return self._draws(batch).log_kept

    def log_chance(self, population: Population, batch: Batch) -> Tensor:
        """log P (n,)."""
        draws = self._draws(batch)
        return _shared(draws, self._ratios(draws, population), _weights(batch))[0].log()

    def kept(self, population: Population, batch: Batch) -> Kept:
        """What the function keeps of rows like these, in the mean."""
        draws = self._draws(batch)
        y = self._ratios(draws, population)
        P, slope = _shared(draws, y, _weights(batch))
        sums = kernels.accumulate(*population.parameters, replace(draws.rows, weight=y * slope))
        return Kept(P.log(), draws.log_kept, sums.q, sums.g, sums.G)

    def _ratios(self, draws: Draws, population: Population) -> Tensor:
        """omega p / q of all draws."""
        log_p = kernels.log_prob(*population.parameters, draws.rows).double()
        return draws.kept * (log_p - draws.log_q).exp()

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
        wanted = max(self.fewest, self.size * batch.n)
        m = 1 << max(0, int(np.ceil(np.log2(wanted / n))))
        # a common seed for all batches where they share one chance, for each its own otherwise
        noise = like.covariance()[0] if alone and not modelled else None
        v, z = self._true(m * n, batch.d, batch.device, self.seed if modelled else self.seed + key, noise)
        groups = None if alone else grouped(batch, m)
        if groups is not None:
            order = places(groups, m)
            v, z = v[order], None if z is None else z[order]
        rows, seen = _observed(v, z, like if n > 1 else like.rows(slice(0, 1)), m, self.function if modelled else None)
        kept = self.function.probability(seen)
        which = kept.nonzero()[:, 0] if bool(kept.any()) else torch.zeros(1, dtype=torch.int64, device=kept.device)
        bare = rows.rows(which)
        there = _beside(bare, self.proposal.background)
        proposal, box = _proposal(self.proposal)
        log_q = kernels.log_prob(*proposal, bare if box is None else there)
        return Draws(there, log_q, kept[which], which, m * n, groups, log_kept)

    def _true(
        self, size: int, d: int, device: torch.device, seed: int, noise: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """True values (size, d) of the proposal, standard normals for their noise (size, d).

        With one noise (d, d) for all they are drawn with it, in half as many dimensions, and no normals are left; but
        for those of a box, whose values and noise are not Gaussian together.
        """
        (log_weights, means, V), box = _proposal(self.proposal)
        joined = None if isinstance(box, Uniform) else noise
        V = V if joined is None else V + joined
        width = 1 + (2 * d if joined is None else d)
        engine = torch.quasirandom.SobolEngine(width, scramble=True, seed=seed % (1 << 31))
        u = engine.draw(size, dtype=torch.float64).clamp(1e-12, 1 - 1e-12).to(device)
        component = torch.searchsorted(log_weights.exp().cumsum(0).contiguous(), u[:, 0].contiguous())
        inside = component.clamp(max=len(means) - 1)
        z = torch.special.ndtri(u[:, 1 : 1 + d])
        L = torch.linalg.cholesky_ex(V)[0]
        v = means[inside] + torch.einsum("nde,ne->nd", L[inside], z)
        if isinstance(box, Uniform):
            low, high = (torch.tensor(edge, dtype=torch.float64, device=device) for edge in (box.low, box.high))
            v = torch.where((component == len(means))[:, None], low + (high - low) * u[:, 1 : 1 + d], v)
        return v, None if joined is not None else torch.special.ndtri(u[:, 1 + d :])


def _shared(draws: Draws, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """P (n,) of rows from the ratios of their draws, and the derivative of w @ log P by each of those."""
    if draws.groups is None:  # one chance for all
        P = (y.sum() / draws.total).clamp(min=SMALLEST)
        return P.expand(len(w)), (w.sum() / (P * draws.total)).expand(len(y))
    n, m = len(w), draws.total // len(w)
    every = torch.zeros(draws.total, dtype=torch.float64, device=y.device)
    every[draws.which] = y
    P, slope = smoothed(draws.groups, every.view(m, n).mean(0), w)
    return P, slope[draws.which % n] / m


def _weights(batch: Batch) -> Tensor:
    ones = torch.ones(batch.n, dtype=torch.float64, device=batch.device)
    return ones if batch.weight is None else batch.weight.double()


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


def _observed(v: Tensor, z: Tensor | None, like: Batch, m: int, function: Function | None) -> tuple[Batch, Batch]:
    """Draws as their density is asked for, and as they are seen; with no normals they have their noise."""
    n = like.n
    if z is None:
        rows = Batch(v.T.contiguous(), like.noise, missing=like.missing)
        return rows, rows
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


def _beside(rows: Batch, background: Background | None) -> Batch:
    return rows if background is None else replace(rows, background=background.log_density(rows))
