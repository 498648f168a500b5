"""Posterior: what each row's true values are, given the row and a mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from . import checks, kernels
from .batch import Batch

if TYPE_CHECKING:
    from .mixture import Mixture

Array = np.ndarray
CHUNK_NUMBERS = 1 << 22  # numbers in the largest array of a chunk
BISECTIONS = 64


@dataclass(frozen=True)
class _Pairs:
    """The posterior of a chunk of rows: weights (n, k), means (n, k, d), covariances (n, k, d, d)."""

    weights: Tensor
    means: Tensor
    covariances: Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """A mixture of k Gaussians in d dimensions for each of n rows.

    The (n, k, ...) arrays are computed on access; the other methods work in chunks of rows and never hold them.

    >>> from xdeconv import Mixture
    >>> Mixture([1.0], [[0.0]], [[[1.0]]]).posterior([[2.0]], noise=[[1.0]]).mean()
    array([[1.]])
    """

    mixture: Mixture
    rows: Batch
    keep: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        return f"Posterior(rows={self.rows.n}, k={self.mixture.k}, d={len(self._kept)})"

    @property
    def weights(self) -> Array:
        """Responsibilities (n, k)."""
        return torch.softmax(kernels.log_joint(*self.mixture.tensors(), self.rows), dim=1).numpy()

    @property
    def means(self) -> Array:
        """Posterior mean under each component (n, k, d)."""
        return self._collect(lambda pairs: pairs.means)

    @property
    def covariances(self) -> Array:
        """Posterior covariance under each component (n, k, d, d)."""
        return self._collect(lambda pairs: pairs.covariances)

    def mean(self) -> Array:
        """Posterior mean of each row (n, d): the denoised row."""
        return self._collect(_mean)

    def covariance(self) -> Array:
        """Posterior covariance of each row (n, d, d)."""

        def moments(pairs: _Pairs) -> Tensor:
            away = pairs.means - _mean(pairs)[:, None]
            within = torch.einsum("nk,nkde->nde", pairs.weights, pairs.covariances)
            return within + torch.einsum("nk,nkd,nke->nde", pairs.weights, away, away)

        return self._collect(moments)

    def marginal(self, coordinates: Sequence[str | int]) -> Posterior:
        """The posterior of some coordinates, by label or index of the mixture."""
        keep = self.mixture.indices(coordinates)
        unknown = [a for a in keep if a not in self._kept]
        if unknown:
            raise ValueError(f"coordinates {unknown} were dropped by an earlier marginal")
        return replace(self, keep=tuple(keep))

    def quantile(self, q: float | Sequence[float]) -> Array:
        """Quantiles of each coordinate: (n, d) for one q, (len(q), n, d) for several."""
        levels = checks.to_array(q, "q")
        if ((levels <= 0) | (levels >= 1) | np.isnan(levels)).any():
            raise ValueError(f"quantiles must lie strictly between 0 and 1, got {q}")
        wanted = torch.from_numpy(np.atleast_1d(levels))
        found = self._collect(lambda pairs: _quantiles(pairs, wanted))
        return found[..., 0] if levels.ndim == 0 else np.moveaxis(found, -1, 0)

    def sample(self, size: int, seed: int | None = None) -> Array:
        """Draws (n, size, d) of each row's true values."""
        from .mixture import square_root

        rng = np.random.default_rng(seed)

        def draw(pairs: _Pairs) -> Tensor:
            n, k = pairs.weights.shape
            cumulative = pairs.weights.cumsum(1)
            u = torch.from_numpy(rng.random((n, size))) * cumulative[:, -1:]
            j = torch.searchsorted(cumulative, u).clamp(max=k - 1)
            row = torch.arange(n)[:, None]
            root = torch.from_numpy(square_root(pairs.covariances.flatten(0, 1).numpy())).view_as(pairs.covariances)
            z = torch.from_numpy(rng.standard_normal((n, size, len(self._kept))))
            return pairs.means[row, j] + torch.einsum("nsde,nse->nsd", root[row, j], z)

        return self._collect(draw)

    def outlier(self) -> Array:
        """Tail probability of each row (n,), see :meth:`Mixture.outlier`."""
        from scipy.stats import chi2

        tails = []
        for chunk, pairs, distance in self._pairs():
            observed = (~chunk.x.isnan()).sum(0).numpy()[:, None]
            tail = chi2.sf(distance.numpy(), np.maximum(observed, 1))
            tails.append((pairs.weights.numpy() * np.where(observed > 0, tail, 1.0)).sum(1))
        return np.concatenate(tails)

    @property
    def _kept(self) -> tuple[int, ...]:
        return tuple(range(self.mixture.d)) if self.keep is None else self.keep

    def _collect(self, f: Callable[[_Pairs], Tensor]) -> Array:
        return np.concatenate([f(pairs).numpy() for _, pairs, _ in self._pairs()])

    def _pairs(self) -> Iterator[tuple[Batch, _Pairs, Tensor]]:
        d, p = self.mixture.d, self.rows.p
        for chunk in self.rows.chunks(max(1, CHUNK_NUMBERS // (self.mixture.k * max(d, p) ** 2))):
            means, covariances, distance = _conditionals(self.mixture, chunk)
            weights = torch.softmax(kernels.log_joint(*self.mixture.tensors(), chunk), dim=1)
            keep = torch.tensor(self._kept)
            yield chunk, _Pairs(weights, means[..., keep], covariances[..., keep, :][..., keep]), distance


def _conditionals(mixture: Mixture, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """b (n, k, d), B (n, k, d, d) and the squared Mahalanobis distance (n, k) of every row and component.

    B is (I - K R) V (I - K R)^T + K S K^T with K = V R^T T^-1: a sum of squares, positive however small S is.
    """
    _, m, V = mixture.tensors()
    observed = ~batch.x.T.isnan()
    seen = observed.double()
    R = torch.eye(batch.p).double() if batch.projection is None else batch.projection.permute(2, 0, 1)
    R = seen[:, :, None] * R
    S = batch.covariance() * seen[:, :, None] * seen[:, None, :]
    RV = torch.einsum("npd,kde->nkpe", R, V)
    T = RV @ R.mT[:, None] + (S + torch.diag_embed(1 - seen))[:, None]
    L, failed = torch.linalg.cholesky_ex(T)
    if bool(failed.any()):
        i, j = (int(v) for v in failed.nonzero()[0])
        raise ValueError(f"row {i} has no posterior: its noise and the covariance of component {j} are both singular")
    residual = (torch.where(observed, batch.x.T, 0.0)[:, None] - torch.einsum("npd,kd->nkp", R, m)) * seen[:, None]
    gain = torch.cholesky_solve(RV, L).mT
    z = torch.linalg.solve_triangular(L, residual[..., None], upper=False)[..., 0]
    away = torch.eye(mixture.d).double() - gain @ R[:, None]
    B = away @ V @ away.mT + gain @ S[:, None] @ gain.mT
    return m + (gain @ residual[..., None])[..., 0], (B + B.mT) / 2, (z * z).sum(-1)


def _mean(pairs: _Pairs) -> Tensor:
    return torch.einsum("nk,nkd->nd", pairs.weights, pairs.means)


def _quantiles(pairs: _Pairs, levels: Tensor) -> Tensor:
    """Quantiles (n, d, len(levels)) by bisection between the least and the largest quantile of any component."""
    sd = pairs.covariances.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()[..., None]
    each = pairs.means[..., None] + torch.special.ndtri(levels) * sd
    low, high = each.amin(1), each.amax(1)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        away = middle[:, None] - pairs.means[..., None]
        below = torch.special.ndtr(torch.where(sd > 0, away / sd, torch.sign(away) * torch.inf).nan_to_num(0.0))
        too_low = torch.einsum("nk,nkdq->ndq", pairs.weights, below) < levels
        low, high = torch.where(too_low, middle, low), torch.where(too_low, high, middle)
    return (low + high) / 2
