"""Posterior: what each row's true values are, given the row and a mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..rows import checks
from ..rows.batch import Batch

if TYPE_CHECKING:
    from ._mixture import Mixture

Array = np.ndarray
CHUNK_NUMBERS = 1 << 22  # numbers in the largest array of a chunk
BISECTIONS = 64
NEGLIGIBLE = 2.0**-60  # responsibility: all of them together are below rounding


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
        return self.moments()[0]

    def covariance(self) -> Array:
        """Posterior covariance of each row (n, d, d)."""
        return self.moments()[1]

    def moments(self) -> tuple[Array, Array]:
        """Posterior mean (n, d) and covariance (n, d, d) of each row, in one go."""
        d, p = self.mixture.d, self.rows.p
        size = max(1, CHUNK_NUMBERS // (self.mixture.k * max(d, p) ** 2))
        parts = (self._moments(chunk, size * number) for number, chunk in enumerate(self.rows.chunks(size)))
        means, covariances = zip(*parts, strict=True)
        return np.concatenate(means), np.concatenate(covariances)

    def _moments(self, chunk: Batch, first: int) -> tuple[Array, Array]:
        """Those of some rows from a first one on, over the components whose responsibility is not below rounding."""
        weights = torch.softmax(kernels.log_joint(*self.mixture.tensors(), chunk), dim=1)
        i, j = torch.nonzero(~(weights < NEGLIGIBLE), as_tuple=True)
        r, keep, n = weights[i, j], torch.tensor(self._kept), chunk.n
        b, B, _ = _conditionals(self.mixture, chunk, i, j, first)
        b, B = b[:, keep], B[:, keep][:, :, keep]
        mean = b.new_zeros(n, len(keep)).index_add_(0, i, r[:, None] * b)
        away = b - mean[i]
        spread = r[:, None, None] * (B + away[:, :, None] * away[:, None, :])
        return mean.numpy(), b.new_zeros(n, len(keep), len(keep)).index_add_(0, i, spread).numpy()

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
        from ._mixture import square_root

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
        size = max(1, CHUNK_NUMBERS // (self.mixture.k * max(d, p) ** 2))
        for number, chunk in enumerate(self.rows.chunks(size)):
            n, k, keep = chunk.n, self.mixture.k, torch.tensor(self._kept)
            i, j = torch.arange(n).repeat_interleave(k), torch.arange(k).repeat(n)
            b, B, distance = (t.unflatten(0, (n, k)) for t in _conditionals(self.mixture, chunk, i, j, size * number))
            weights = torch.softmax(kernels.log_joint(*self.mixture.tensors(), chunk), dim=1)
            yield chunk, _Pairs(weights, b[..., keep], B[..., keep, :][..., keep]), distance


def _conditionals(mixture: Mixture, batch: Batch, i: Tensor, j: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor]:
    """b (m, d), B (m, d, d) and the squared Mahalanobis distance (m,) of some pairs of rows i and components j.

    The batch begins at row ``first`` of what the user gave.

    B is (I - K R) V (I - K R)^T + K S K^T with K = V R^T T^-1: a sum of squares, positive however small S is.
    """
    _, m, V = mixture.tensors()
    observed = ~batch.x.T.isnan()
    seen = observed.double()
    R = torch.eye(batch.p).double() if batch.projection is None else batch.projection.permute(2, 0, 1)
    R = seen[:, :, None] * R
    S = batch.covariance() * seen[:, :, None] * seen[:, None, :]
    x = torch.where(observed, batch.x.T, 0.0)
    gaps, R, S, m, V = torch.diag_embed(1 - seen)[i], R[i], S[i], m[j], V[j]
    RV = R @ V
    L, failed = torch.linalg.cholesky_ex(RV @ R.mT + S + gaps)
    if bool(failed.any()):
        row, component = (int(index[failed.nonzero()[0, 0]]) for index in (i, j))
        raise ValueError(f"row {first + row} has no posterior: its noise and component {component} are both singular")
    residual = (x[i, :, None] - R @ m[:, :, None]) * seen[i, :, None]
    gain = torch.cholesky_solve(RV, L).mT
    z = torch.linalg.solve_triangular(L, residual, upper=False)[..., 0]
    away = torch.eye(mixture.d).double() - gain @ R
    B = away @ V @ away.mT + gain @ S @ gain.mT
    return m + (gain @ residual)[..., 0], (B + B.mT) / 2, (z * z).sum(-1)


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
