"""Drawn: chances to be kept as averages over draws that stay where they are, shared by rows of like noise.

With y_l = omega p / q of draw l, P is the mean of y over a row's own draws and those of rows like it; where all rows
have one noise, over all draws. Its derivatives are sums over the draws, y_l times the derivative of sum_i w_i log P_i
by it. Draws with omega = 0 add nothing and are counted, but not kept.

q is a population, wider ones of its kind, and one Gaussian that covers the rows: y is then bounded where rows are kept.
Without it a component may leave for where nothing is kept and only its tail is seen, which too few draws would show.
"""

from __future__ import annotations

import math
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
from .contract import FEWEST, FLOOR, Chances, Kept, Population
from .like_rows import SMALLEST, Groups, grouped, places, smoothed
from .nodes import integrals

WIDER, BROAD = 2.0, 0.3  # a part of the draws comes from covariances so many times as large
EVEN = 0.1  # of the proposal's weight is the same for all components
AMONG = 0.2  # of the draws are of where the rows are
LOOKED_AT = 1 << 12  # draws that tell what all are worth
REMEMBERED = 1 << 26  # numbers of draws that are kept between passes
LARGE = 32  # numbers of means with which two looks of the kernels cost less than products of matrices


class Function(Protocol):
    """What draws need of a selection function."""

    @property
    def noise(self) -> Any: ...

    def probability(self, batch: Batch) -> Tensor: ...

    def covariances(self, v: np.ndarray) -> np.ndarray: ...


class Draws(NamedTuple):
    """Draws of the rows of a batch, in rounds of one for each row, of which those with omega = 0 were left out.

    ``rows`` are as their density is asked for, with what the background has there, ``log_factor`` is log omega / q,
    ``which`` their places among all ``total`` draws; ``groups`` are rows of like noise, where they have not all the
    same. ``beside`` is omega u / q for a background u, ``log_kept`` (n,) log omega of the rows of the batch.
    """

    rows: Batch
    log_factor: Tensor
    which: Tensor
    total: int
    groups: Groups | None
    beside: Tensor
    log_kept: Tensor

    def first(self, size: int) -> Draws:
        """The first of them."""
        some = slice(0, size)
        return self._replace(rows=self.rows.rows(some), log_factor=self.log_factor[some], beside=self.beside[some])


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
    own : dict
        The effective number of these draws for what they are of.
    """

    function: Function
    proposal: Population
    size: int
    seed: int
    fewest: int = FEWEST
    remembered: dict[int, Draws] = field(default_factory=dict, compare=False)
    own: dict[int, float] = field(default_factory=dict, compare=False)

    def log_kept(self, batch: Batch) -> Tensor:
        """log omega (n,) of rows."""
        return self._draws(batch).log_kept

    def log_chance(self, population: Population, batch: Batch) -> Tensor:
        """log P (n,)."""
        draws, w = self._draws(batch), batch.weights()
        if draws.groups is None:
            return _alone(draws, population, w).log_chance
        return smoothed(draws.groups, _means(draws, _ratios(draws, population), len(w)), w)[0].log()

    def kept(self, population: Population, batch: Batch) -> Kept:
        """What the function keeps of rows like these, in the mean."""
        draws, w = self._draws(batch), batch.weights()
        return _alone(draws, population, w) if draws.groups is None else _shared(draws, population, w)

    def worth(self, population: Population, batch: Batch) -> float:
        """The effective number of the draws of some rows for a population, over that for the one they are of."""
        draws = self._draws(batch)
        some = draws.first(LOOKED_AT)
        key = _key(batch)
        if key not in self.own:
            self.own[key] = _effective(some, self.proposal)
        return _effective(some, population) / max(self.own[key], SMALLEST)

    def _draws(self, batch: Batch) -> Draws:
        key = _key(batch)
        draws = self.remembered.get(key)
        if draws is None:
            draws = self._made(batch, key)
            held = sum(one.rows.x.numel() for one in self.remembered.values())
            if held + draws.rows.x.numel() <= REMEMBERED:
                self.remembered[key] = draws
        return draws

    def _made(self, batch: Batch, key: int) -> Draws:
        batch = replace(batch.to(dtype=torch.float64), scale=None)
        log_kept = self.function.probability(batch).clamp(min=SMALLEST).log()
        modelled = self.function.noise is not None
        like = Batch(torch.zeros(batch.p, 1, dtype=torch.float64, device=batch.device)) if modelled else batch
        alone = modelled or batch.shared
        n = 1 if alone else batch.n
        m = 1 << max(0, math.ceil(math.log2(self._wanted(batch.n, alone) / n)))
        # a common seed for all batches where they share one chance, for each its own otherwise
        noise = like.covariance()[0] if alone and not modelled else None
        proposal = _proposal(self.proposal, batch)
        v, z = self._true(proposal, m * n, self.seed if modelled else self.seed + key, noise)
        groups = None if alone else grouped(batch, m)
        if groups is not None:
            order = places(groups, m)
            v, z = v[order], None if z is None else z[order]
        rows, seen = _observed(v, z, like if n > 1 else like.rows(slice(0, 1)), m, self.function if modelled else None)
        kept = self.function.probability(seen)
        which = kept.nonzero()[:, 0] if bool(kept.any()) else torch.zeros(1, dtype=torch.int64, device=kept.device)
        bare, kept = rows.rows(which), kept[which]
        there = _beside(bare, self.proposal.background)
        log_q = kernels.log_prob(*proposal.parameters, bare if proposal.background is None else there)
        log_factor = kept.log() - log_q
        outside = torch.zeros_like(kept) if there.background is None else (there.background + log_factor).exp()
        return Draws(there, log_factor, which, m * n, groups, outside, log_kept)

    def _wanted(self, rows: int, alone: bool) -> float:
        """How many draws: of one chance for all, whose draws fill space evenly, as the root of the rows."""
        times = max(1.0, self.size * rows / self.fewest)
        return self.fewest * (math.sqrt(times) if alone else times)

    def _true(self, proposal: Population, size: int, seed: int, noise: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """True values (size, d) of the proposal, standard normals for their noise (size, d).

        With one noise (d, d) for all they are drawn with it, in half as many dimensions, and no normals are left; but
        for those of a box, whose values and noise are not Gaussian together.
        """
        (log_weights, means, V), box = proposal
        d, device = means.shape[1], means.device
        joined = None if isinstance(box, Uniform) else noise
        width = 1 + (2 * d if joined is None else d)
        engine = torch.quasirandom.SobolEngine(width, scramble=True, seed=seed % (1 << 31))
        u = engine.draw(size, dtype=torch.float64).clamp(1e-12, 1 - 1e-12).to(device)
        component = torch.searchsorted(log_weights.exp().cumsum(0).contiguous(), u[:, 0].contiguous())
        inside = component.clamp(max=len(means) - 1)
        z = torch.special.ndtri(u[:, 1 : 1 + d])
        L = torch.linalg.cholesky_ex(V if joined is None else V + joined)[0]
        v = means[inside] + (L[inside] @ z[..., None])[..., 0]
        if isinstance(box, Uniform):
            low, high = (torch.tensor(edge, dtype=torch.float64, device=device) for edge in (box.low, box.high))
            v = torch.where((component == len(means))[:, None], low + (high - low) * u[:, 1 : 1 + d], v)
        return v, None if joined is not None else torch.special.ndtri(u[:, 1 + d :])


def _alone(draws: Draws, population: Population, w: Tensor) -> Kept:
    """Where there is one chance for all rows."""
    if population.parameters.means.numel() < LARGE:
        made = integrals(population.parameters, draws.rows, draws.log_factor)
        inside, sums = made.q.sum() + population.beside * draws.beside.sum(), (made.q, made.g, made.G)
    else:
        y = _ratios(draws, population)
        both = kernels.accumulate(*population.parameters, replace(draws.rows, weight=y))
        inside, sums = y.sum(), (both.q, both.g, both.G)
    inside = inside + FLOOR * draws.total
    each = w.sum() / inside
    return Kept((inside / draws.total).log().expand(len(w)), draws.log_kept, *(each * part for part in sums))


def _effective(draws: Draws, population: Population) -> float:
    """How many draws of the population itself they are worth."""
    if draws.groups is None and population.parameters.means.numel() < LARGE:
        parts = integrals(population.parameters, draws.rows, draws.log_factor).parts
        y = parts + population.beside * draws.beside
    else:
        y = _ratios(draws, population)
    return float(y.sum().square() / y.square().sum().clamp(min=SMALLEST))


def _shared(draws: Draws, population: Population, w: Tensor) -> Kept:
    """Where rows of like noise share their draws."""
    assert draws.groups is not None
    y, n = _ratios(draws, population), len(w)
    P, slope = smoothed(draws.groups, _means(draws, y, n), w)
    weight = y * slope[draws.which % n] * (n / draws.total)
    sums = kernels.accumulate(*population.parameters, replace(draws.rows, weight=weight))
    return Kept(P.log(), draws.log_kept, sums.q, sums.g, sums.G)


def _key(batch: Batch) -> int:
    return checksum(str(batch.n), batch.x[:, :4].double().cpu().numpy())


def _ratios(draws: Draws, population: Population) -> Tensor:
    """omega p / q of all draws."""
    return (kernels.log_prob(*population.parameters, draws.rows).double() + draws.log_factor).exp()


def _means(draws: Draws, y: Tensor, n: int) -> Tensor:
    """Those of the draws of each row (n,)."""
    every = torch.zeros(draws.total, dtype=torch.float64, device=y.device)
    every[draws.which] = y
    return every.view(-1, n).mean(0)


def _proposal(population: Population, batch: Batch) -> Population:
    """What is drawn from: even and wider parts of a population, and rows; a mixture in the background is one of them.

    A box keeps its share of what is not drawn among the rows.
    """
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
    share = (1 - AMONG) * inside * torch.cat([(1 - BROAD) * share, BROAD * share])
    place, width = _among(batch, means)
    every = Parameters(torch.cat([share, share.new_full((1,), AMONG)]).log(), torch.cat([means, means, place]),
                       torch.cat([V, WIDER * V, width]))  # fmt: skip
    return Population(every, beside)


def _among(batch: Batch, means: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (1, d) and covariance (1, d, d) of rows, as wide as these are with their noise."""
    x = batch.x.double()
    place = x.nanmean(1)
    place = torch.where(place.isnan(), means.mean(0), place)
    away = (x - place[:, None]).nan_to_num(0.0)
    spread = means.std(0, correction=0).square() + 1e-300
    seen = (~x.isnan()).double().sum(1)
    if batch.missing:
        own = torch.where(seen > 1, away.square().sum(1) / seen.clamp(min=1), spread)
        return place[None], torch.diag_embed(own.clamp(min=1e-300))[None]
    own = away @ away.mT / batch.n
    return place[None], (own + torch.diag_embed(1e-9 * own.diagonal() + 1e-300))[None]


def _observed(v: Tensor, z: Tensor | None, like: Batch, m: int, function: Function | None) -> tuple[Batch, Batch]:
    """Draws as their density is asked for, and as they are seen; with no normals they have their noise."""
    if z is not None and function is not None:
        return Batch(v.T.contiguous()), _by_model(v, z, function)
    rows = Batch(v.T.contiguous(), like.noise, missing=like.missing) if z is None else _like(v, z, like, m)
    return rows, rows


def _by_model(v: Tensor, z: Tensor, function: Function) -> Batch:
    """True values with the noise that a model has of them."""
    S = torch.from_numpy(function.covariances(v.cpu().numpy())).to(v)
    root = torch.linalg.cholesky_ex(S + 1e-300 * torch.eye(v.shape[1]).to(v))[0].nan_to_num(0.0)
    x = v + (root @ z[..., None])[..., 0]
    lower = torch.tril_indices(v.shape[1], v.shape[1])
    return Batch(x.T.contiguous(), S[:, lower[0], lower[1]].T.contiguous())


def _like(v: Tensor, z: Tensor, like: Batch, m: int) -> Batch:
    """True values with the noise and the gaps of rows, m rounds of one for each."""
    n, S = like.n, like.covariance()
    if like.full:
        root = torch.from_numpy(np.linalg.cholesky(S.cpu().numpy() + 1e-300 * np.eye(like.p)))
    else:
        root = S.clamp(min=0.0).sqrt()
    x = v.view(m, n, -1) + torch.einsum("npq,mnq->mnp", root.to(v).expand(n, -1, -1), z.view(m, n, -1))
    x = torch.where(like.x.T.isnan(), torch.nan, x).reshape(m * n, -1)
    noise = None if like.noise is None else like.noise if like.noise.shape[1] == 1 else like.noise.repeat(1, m)
    return Batch(x.T.contiguous(), noise, missing=like.missing)


def _beside(rows: Batch, background: Background | None) -> Batch:
    return rows if background is None else replace(rows, background=background.log_density(rows))
