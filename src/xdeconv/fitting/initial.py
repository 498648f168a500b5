"""Starting mixtures: minibatch k-means, k-means++ or random rows, on data that may be missing or projected."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..methods import EM
from ..mixture._mixture import Mixture
from ..rows.batch import Batch
from ..rows.checks import whole_number
from ..rows.data import Source
from .kmeans import DISTANCE_ROWS, Clusters, Points, grouped_sum, kmeans

__all__ = ["Start", "start_mixture"]
SAMPLE_ROWS = 1 << 17  # rows that first centres are chosen from
NARROW = 0.1  # of a coordinate's spread
NEAR_ROWS = 3000  # rows among which nearest ones are looked for
NEAR_ASKED = 600  # of them, whose nearest one is looked for
NEAREST = 0.01  # of the largest: what a coordinate's distance between near rows counts at least
LEAST_NOISE = 0.01  # of a coordinate's typical noise variance: EM widens what is narrower by less than that a pass
MOST_NOISE = 0.9  # of a cluster's variance in any direction that may be taken for noise
GAUSSIAN_PASSES = 50


@dataclass(frozen=True)
class Start:
    """How to choose the first mixture. Its weights are the clusters' counts, or equal where no k-means is run.

    Parameters
    ----------
    centers : str, default "kmeans"
        kmeans (minibatch k-means, from random rows), kmeans++ (its seeding alone) or random (rows).
    coordinates : str, default "scaled"
        Distances between rows scaled to unit variance, or raw: in the user's units.
    covariances : str, default "narrow"
        narrow: a tenth of each coordinate's spread, less where near rows are nearer than in other coordinates;
        clusters: those of the clusters, without their rows' mean noise; identity (in the user's units); or scaled:
        the variance of the data over k^(2/d).
    epochs : int, default 10
        Passes of k-means over at most 2^17 rows.
    batch_rows : int, default 50_000
        Rows per update of k-means.

    Examples
    --------
    >>> Start(covariances="identity").centers
    'kmeans'
    """

    centers: Literal["kmeans", "kmeans++", "random"] = "kmeans"
    coordinates: Literal["scaled", "raw"] = "scaled"
    covariances: Literal["narrow", "clusters", "identity", "scaled"] = "narrow"
    epochs: int = 10
    batch_rows: int = 50_000

    def __post_init__(self) -> None:
        options = {"centers": ("kmeans", "kmeans++", "random"), "coordinates": ("scaled", "raw"),
                   "covariances": ("narrow", "clusters", "identity", "scaled")}  # fmt: skip
        for name, known in options.items():
            if getattr(self, name) not in known:
                raise ValueError(f"Start({name}={getattr(self, name)!r}) is not one of {known}")
        for name in ("epochs", "batch_rows"):
            whole_number(getattr(self, name), f"{name} of Start", 1)


def start_mixture(source: Source, k: int, start: Start, seed: int, scale: Tensor) -> Mixture:
    """The first mixture for a source in a frame.

    Parameters
    ----------
    source : Source
        Rows in the frame.
    k : int
        How many components.
    start : Start
        How.
    seed : int
        The same seed gives the same mixture.
    scale : torch.Tensor (d,)
        What coordinates were divided by.

    Returns
    -------
    Mixture
        In the frame.
    """
    return Ground.of(source.sample(SAMPLE_ROWS, seed), start, scale).mixture(k, seed)


@dataclass(frozen=True)
class Ground:
    """Rows that starts are made for, in a frame, and what all starts for them share.

    rows (n, d) and weight (n,) are latent, ``points`` the same in the metric of k-means, ``spread`` (d,) theirs.
    """

    sample: Batch
    start: Start
    scale: Tensor
    rows: Tensor
    weight: Tensor
    spread: Tensor
    points: Points

    @classmethod
    def of(cls, sample: Batch, start: Start, scale: Tensor) -> Ground:
        """From rows in a frame whose coordinates were divided by ``scale``."""
        sample = sample.plain()
        gaussian = fit_gaussian(sample) if sample.projection is not None else None
        rows, weight = latent_rows(sample, gaussian)
        center, spread = moments(rows, weight)
        metric = (spread if start.coordinates == "scaled" else 1 / scale.to(spread)).clamp(min=1e-300)
        return cls(sample, start, scale, rows, weight, spread, Points.of(rows, weight, center, metric))

    def mixture(self, k: int, seed: int) -> Mixture:
        """A start of k components, in the frame."""
        if k > len(self.rows):
            raise ValueError(f"{k} components need at least as many rows, there are {len(self.rows)}")
        start, rng = self.start, np.random.default_rng([seed, 0x5EED])
        chosen = _choose(self.points, self.weight, k, rng, plus=start.centers == "kmeans++")
        clusters = Clusters(self.points.out_of(self.points.x[:, chosen].T), torch.ones_like(self.weight[:k]))
        if start.centers == "kmeans":
            clusters = kmeans(self.points, clusters.centers, start.epochs, start.batch_rows, seed, rng)
        counts = clusters.weights + 1e-3 * clusters.weights.sum() / k  # an empty cluster keeps a small chance
        return Mixture.from_tensors(counts / counts.sum(), clusters.centers, self._covariances(clusters.centers))

    def _covariances(self, centers: Tensor) -> Tensor:
        """Covariances (k, d, d) of components at some centres."""
        k, d = centers.shape
        if self.start.covariances == "clusters":
            return self._without_noise(_scatter(self.rows, self.weight, centers, self.spread, self.points))
        if self.start.covariances == "identity":
            variances = 1 / self.scale.to(self.spread) ** 2
        else:
            variances = self._narrow if self.start.covariances == "narrow" else self.spread**2 / k ** (2 / d)
        return torch.diag_embed(variances).expand(k, d, d)

    @cached_property
    def _narrow(self) -> Tensor:
        """Variances (d,), a tenth of the spread or less where rows come in clumps, but as wide as noise lets grow."""
        narrow = (NARROW * self.spread * _nearness(self.rows, self.spread)).square()
        if self.sample.noise is None or self.sample.projection is not None:
            return narrow
        return torch.maximum(narrow, LEAST_NOISE * _typical_noise(self.sample))

    def _without_noise(self, V: Tensor) -> Tensor:
        if self.sample.noise is None or self.sample.projection is not None:
            return V
        return torch.from_numpy(_without_noise(V.cpu().numpy(), mean_noise(self.sample))).to(V)


def mean_noise(batch: Batch) -> np.ndarray:
    """The mean covariance (p, p) of the noise of rows, each entry over the rows that observe both values."""
    seen = (~batch.x.isnan()).double().cpu().numpy()
    S = batch.covariance().double().cpu().numpy()
    both = np.einsum("an,bn->ab", seen, seen)
    total = np.einsum("nab,an,bn->ab", np.broadcast_to(S, (batch.n, *S.shape[1:])), seen, seen, optimize=True)
    return total / np.maximum(both, 1.0)


def _typical_noise(batch: Batch) -> Tensor:
    """The median variance (p,) of the noise of rows."""
    return batch.variances().double().median(1).values


def _without_noise(V: np.ndarray, N: np.ndarray) -> np.ndarray:
    """Covariances (k, d, d) less a noise (d, d), of which no more is taken in any direction than MOST_NOISE of V."""
    L = np.linalg.cholesky(V)
    inverse = np.linalg.inv(L)
    values, vectors = np.linalg.eigh(inverse @ N @ inverse.transpose(0, 2, 1))
    kept = 1 - np.clip(values, 0.0, MOST_NOISE)
    A = L @ vectors
    return (A * kept[:, None, :]) @ A.transpose(0, 2, 1)


def latent_rows(batch: Batch, gaussian: Mixture | None) -> tuple[Tensor, Tensor]:
    """Rows (n, d) in latent coordinates, NaN where missing, float64, and weights (n,).

    Projected rows are replaced by a draw-free guess: their posterior mean under one Gaussian.
    """
    x = batch.x.T.double()
    if batch.projection is not None:
        assert gaussian is not None
        x = torch.from_numpy(gaussian.posterior(batch).mean()).to(batch.device)
    return x, batch.weights()


def moments(rows: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean (d,) and standard deviation (d,) of what is observed; 0 and 1 where nothing or nothing varies."""
    seen = (~rows.isnan()).double() * weight[:, None]
    count = seen.sum(0)
    safe = count.clamp(min=1e-300)
    middle = rows.nan_to_num(0.0).median(0).values  # close to the mean, so that nothing large cancels
    away = (rows - middle).nan_to_num(0.0)
    shift = (seen * away).sum(0) / safe
    variance = (seen * (away - shift) ** 2).sum(0) / safe
    mean = torch.where(count > 0, middle + shift, 0.0)
    rounding = (1e-13 * mean.abs()).square()
    return mean, torch.where(variance > rounding, variance, 1.0).sqrt()


def fit_gaussian(batch: Batch) -> Mixture:
    """One Gaussian fitted to projected rows by EM from a wide start."""
    batch = batch.plain().to(device="cpu", dtype=torch.float64)
    assert batch.projection is not None
    seen = (~batch.x.isnan()).double()
    R, x = batch.projection * seen[:, None], batch.x.nan_to_num(0.0)
    seen_of = torch.linalg.pinv(torch.einsum("pdn,pen->de", R, R), hermitian=True)  # lstsq: other bits at times
    center = seen_of @ torch.einsum("pdn,pn->d", R, x)[:, None]
    off = seen * (x - torch.einsum("pdn,d->pn", R, center[:, 0]))
    size = float(off.square().sum()) / max(float(R.square().sum()), 1e-300)
    method, d = EM(), batch.d
    state = method.init(Mixture(np.ones(1), center.T.numpy(), (size or 1.0) * np.eye(d)[None]))
    for _ in range(GAUSSIAN_PASSES):
        stats = kernels.accumulate(*state.parameters(), batch)
        state = method.update(state, stats, float(stats.rows))
    return method.mixture(state)


def _choose(points: Points, weight: Tensor, k: int, rng: np.random.Generator, plus: bool) -> list[int]:
    """k rows: at random, or one after the other with probability proportional to the squared distance (k-means++)."""
    chance = weight.cpu().numpy()
    if points.seen is not None:
        chance = chance * points.seen.any(0).cpu().numpy()
    enough = int((chance > 0).sum())
    if enough < k:
        raise ValueError(f"{k} components need as many rows with something observed and weight above 0: {enough}")
    if not plus:
        return rng.choice(len(chance), size=k, replace=False, p=chance / chance.sum()).tolist()
    chosen = [int(rng.choice(len(chance), p=chance / chance.sum()))]
    nearest = np.full(len(chance), np.inf)
    for _ in range(k - 1):
        nearest = np.minimum(nearest, points.distances(chosen[-1]).cpu().numpy())
        odds = chance * nearest
        odds = odds if odds.sum() > 0 else chance
        chosen.append(int(rng.choice(len(chance), p=odds / odds.sum())))
    return chosen


def _nearness(rows: Tensor, spread: Tensor) -> Tensor:
    """How near rows and their nearest ones are in each coordinate (d,), in units of its spread; 1 where least near.

    Coordinates in which rows come in clumps have small ones. Rows with missing values are not asked.
    """
    complete = rows[~rows.isnan().any(1)]
    some = complete[:: max(4, -(-len(complete) // NEAR_ROWS))] / spread
    if len(some) < 2:
        return torch.ones_like(spread)
    asked = torch.arange(0, len(some), -(-len(some) // NEAR_ASKED), device=some.device)
    away = some[_nearest_other(some, asked)] - some[asked]
    typical = away.abs().median(0).values
    return (typical / typical.max()).nan_to_num(1.0).clamp(min=NEAREST)


def _nearest_other(rows: Tensor, asked: Tensor) -> Tensor:
    """Index of the row nearest to each of those asked for, itself apart."""
    rows = rows - rows.mean(0)
    distance = torch.addmm(rows.square().sum(1), rows[asked], rows.T, alpha=-2.0)
    distance[torch.arange(len(asked), device=rows.device), asked] = torch.inf
    return distance.argmin(1)


def _scatter(rows: Tensor, weight: Tensor, centers: Tensor, spread: Tensor, points: Points) -> Tensor:
    """Covariance of each cluster (k, d, d), shrunk by d + 1 rows' worth of the data's variance over k^(2/d)."""
    k, d = centers.shape
    nearest = points.nearest(points.into(centers))
    seen = (~rows.isnan()).double()
    away = (rows - centers[nearest]).nan_to_num(0.0)
    sums = rows.new_zeros(k, d * d)
    for part in torch.arange(len(rows), device=rows.device).split(DISTANCE_ROWS):
        squares = weight[part, None, None] * away[part, :, None] * away[part, None, :]
        sums += grouped_sum(squares.flatten(1), nearest[part], k)
    counts = grouped_sum(weight[:, None] * seen, nearest, k).amax(1)[:, None, None]
    prior = torch.diag_embed(spread**2 / k ** (2 / d))
    return (sums.view(k, d, d) + (d + 1) * prior) / (counts + d + 1)
