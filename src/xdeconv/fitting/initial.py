"""Starting mixtures: minibatch k-means, k-means++ or random rows, on data that may be missing or projected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..methods import EM
from ..mixture._mixture import Mixture
from ..rows.batch import Batch
from ..rows.data import ArraySource, Source

__all__ = ["Start", "start_mixture"]
SAMPLE_ROWS = 1 << 17  # rows that first centres are chosen from
NARROW = 0.1  # of a coordinate's spread
NEAR_ROWS = 3000  # rows among which nearest ones are looked for
NEAR_ASKED = 600  # of them, whose nearest one is looked for
NEAREST = 0.01  # of the largest: what a coordinate's distance between near rows counts at least
LEAST_NOISE = 0.01  # of a coordinate's typical noise variance: EM widens what is narrower by less than that a pass
MOST_NOISE = 0.9  # of a cluster's variance in any direction that may be taken for noise
DISTANCE_ROWS = 1 << 14  # rows of one (n, k) matrix of distances
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
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} of Start must be a whole number of at least 1, got {value!r}")


@dataclass
class _Clusters:
    """Running centres (k, d) and how often each coordinate of each was seen (k, d)."""

    centers: Tensor
    counts: Tensor
    totals: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.totals = torch.zeros_like(self.counts[:, 0])


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
    if k > source.rows:
        raise ValueError(f"{k} components need at least as many rows, there are {source.rows}")
    sample = source.sample(SAMPLE_ROWS, seed).plain()
    gaussian = fit_gaussian(sample) if sample.projection is not None else None
    rows, weight = latent_rows(sample, gaussian)
    source = ArraySource(Batch(x=rows.T.contiguous(), weight=weight, missing=sample.missing and gaussian is None))
    center, spread = moments(rows, weight)
    metric = (spread if start.coordinates == "scaled" else 1 / scale.to(spread)).clamp(min=1e-300)
    rng = np.random.default_rng([seed, 0x5EED])
    first = _choose(rows, weight, k, metric, rng, plus=start.centers == "kmeans++")
    clusters = _Clusters(torch.where(first.isnan(), center, first), torch.zeros_like(first))
    if start.centers == "kmeans":
        _kmeans(source, clusters, start, seed, metric, rng, rows)
    mixture = _describe(clusters, start, rows, weight, spread, scale, metric)
    if sample.noise is None or gaussian is not None:
        return mixture
    if start.covariances == "narrow":
        seen = np.maximum(mixture.covariances, np.diag(LEAST_NOISE * _typical_noise(sample)))
        return Mixture(mixture.weights, mixture.means, seen)
    if start.covariances != "clusters":
        return mixture
    return Mixture(mixture.weights, mixture.means, _without_noise(mixture.covariances, mean_noise(sample)))


def mean_noise(batch: Batch) -> np.ndarray:
    """The mean covariance (p, p) of the noise of rows, each entry over the rows that observe both values."""
    seen = (~batch.x.isnan()).double().cpu().numpy()
    S = batch.covariance().double().cpu().numpy()
    both = np.einsum("an,bn->ab", seen, seen)
    total = np.einsum("nab,an,bn->ab", np.broadcast_to(S, (batch.n, *S.shape[1:])), seen, seen, optimize=True)
    return total / np.maximum(both, 1.0)


def _typical_noise(batch: Batch) -> np.ndarray:
    """The median variance (p,) of the noise of rows."""
    return batch.variances().double().median(1).values.cpu().numpy()


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
    weight = torch.ones(batch.n, device=batch.device) if batch.weight is None else batch.weight
    return x, weight.double()


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
    center = torch.linalg.lstsq(torch.einsum("pdn,pen->de", R, R), torch.einsum("pdn,pn->d", R, x)[:, None]).solution
    off = seen * (x - torch.einsum("pdn,d->pn", R, center[:, 0]))
    size = float(off.square().sum()) / max(float(R.square().sum()), 1e-300)
    method, d = EM(), batch.d
    state = method.init(Mixture(np.ones(1), center.T.numpy(), (size or 1.0) * np.eye(d)[None]))
    for _ in range(GAUSSIAN_PASSES):
        stats = kernels.accumulate(*state.parameters(), batch)
        state = method.update(state, stats, float(stats.rows))
    return method.mixture(state)


def _choose(rows: Tensor, weight: Tensor, k: int, metric: Tensor, rng: np.random.Generator, plus: bool) -> Tensor:
    """k rows: at random, or one after the other with probability proportional to the squared distance (k-means++)."""
    chance = weight.cpu().numpy() * (~rows.isnan()).any(1).cpu().numpy()
    enough = int((chance > 0).sum())
    if enough < k:
        raise ValueError(f"{k} components need as many rows with something observed and weight above 0: {enough}")
    if not plus:
        return rows[torch.from_numpy(rng.choice(len(rows), size=k, replace=False, p=chance / chance.sum()))]
    chosen = [int(rng.choice(len(rows), p=chance / chance.sum()))]
    nearest = torch.full((len(rows),), torch.inf, dtype=torch.float64, device=rows.device)
    for _ in range(k - 1):
        center = rows[chosen[-1]].nan_to_num(0.0)[None]
        nearest = torch.minimum(nearest, _distances(rows, center, metric)[:, 0])
        odds = chance * nearest.clamp(min=0).cpu().numpy()
        odds = odds if odds.sum() > 0 else chance
        chosen.append(int(rng.choice(len(rows), p=odds / odds.sum())))
    return rows[chosen]


def _distances(rows: Tensor, centers: Tensor, metric: Tensor) -> Tensor:
    """Squared distances (n, k) over what is observed, a coordinate's unit being ``metric``."""
    seen = (~rows.isnan()).double()
    x, c = rows.nan_to_num(0.0) / metric, centers / metric
    return (x * x).sum(1, keepdim=True) - 2 * x @ c.T + seen @ (c * c).T


def nearest_center(rows: Tensor, centers: Tensor, metric: Tensor) -> Tensor:
    """Index (n,) of the nearest centre of each row."""
    middle = centers.mean(0)
    parts = [_distances(part - middle, centers - middle, metric).argmin(1) for part in rows.split(DISTANCE_ROWS)]
    return torch.cat(parts)


def _kmeans(
    source: Source, clusters: _Clusters, start: Start, seed: int, metric: Tensor,
    rng: np.random.Generator, sample: Tensor,
) -> None:  # fmt: skip
    """Minibatch k-means: each centre is the running mean of the rows that came to it; empty ones try new rows."""
    arranged = source.arranged(min(start.batch_rows, source.rows), seed)
    for epoch in range(start.epochs):
        for batch in arranged.batches(epoch):
            rows, weight = latent_rows(batch, None)
            _absorb(clusters, rows, weight, nearest_center(rows, clusters.centers, metric))
        empty = (clusters.totals == 0).nonzero()[:, 0]
        if len(empty) and epoch < start.epochs - 1:
            fresh = sample[torch.from_numpy(rng.integers(len(sample), size=len(empty)))]
            clusters.centers[empty] = torch.where(fresh.isnan(), clusters.centers[empty], fresh)


def _absorb(clusters: _Clusters, rows: Tensor, weight: Tensor, nearest: Tensor) -> None:
    seen = (~rows.isnan()).double() * weight[:, None]
    away = (rows - clusters.centers[nearest]).nan_to_num(0.0) * seen
    k = len(clusters.centers)
    clusters.counts += grouped_sum(seen, nearest, k)
    clusters.totals += grouped_sum(weight[:, None], nearest, k)[:, 0]
    clusters.centers += grouped_sum(away, nearest, k) / clusters.counts.clamp(min=1e-300)


def grouped_sum(values: Tensor, group: Tensor, groups: int) -> Tensor:
    """Sums (groups, c) of the rows (n, c) of each group, the same bits every time on any device."""
    total = values.new_zeros(groups, values.shape[1])
    if not values.is_cuda:
        return total.index_add_(0, group, values)
    for part, whose in zip(values.split(DISTANCE_ROWS), group.split(DISTANCE_ROWS), strict=True):
        total += torch.nn.functional.one_hot(whose, groups).to(values.dtype).T @ part
    return total


def _describe(
    clusters: _Clusters, start: Start, rows: Tensor, weight: Tensor, spread: Tensor, scale: Tensor, metric: Tensor
) -> Mixture:  # fmt: skip
    k, d = clusters.centers.shape
    if start.covariances == "identity":
        V = torch.diag_embed(1 / scale.to(spread) ** 2).expand(k, d, d)
    elif start.covariances == "narrow":
        V = torch.diag_embed((NARROW * spread * _nearness(rows, spread)).square()).expand(k, d, d)
    elif start.covariances == "scaled":
        V = torch.diag_embed(spread**2 / k ** (2 / d)).expand(k, d, d)
    else:
        V = _scatter(rows, weight, clusters.centers, spread, metric)
    counts = clusters.totals if start.centers == "kmeans" else torch.ones_like(clusters.totals)
    counts = counts + 1e-3 * counts.sum() / k  # an empty cluster keeps a small chance
    return Mixture.from_tensors(counts / counts.sum(), clusters.centers, V)


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


def _scatter(rows: Tensor, weight: Tensor, centers: Tensor, spread: Tensor, metric: Tensor) -> Tensor:
    """Covariance of each cluster (k, d, d), shrunk by d + 1 rows' worth of the data's variance over k^(2/d)."""
    k, d = centers.shape
    nearest = nearest_center(rows, centers, metric)
    seen = (~rows.isnan()).double()
    away = (rows - centers[nearest]).nan_to_num(0.0)
    sums = rows.new_zeros(k, d * d)
    for part in torch.arange(len(rows), device=rows.device).split(DISTANCE_ROWS):
        squares = weight[part, None, None] * away[part, :, None] * away[part, None, :]
        sums += grouped_sum(squares.flatten(1), nearest[part], k)
    counts = grouped_sum(weight[:, None] * seen, nearest, k).amax(1)[:, None, None]
    prior = torch.diag_embed(spread**2 / k ** (2 / d))
    return (sums.view(k, d, d) + (d + 1) * prior) / (counts + d + 1)
