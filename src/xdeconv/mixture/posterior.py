"""Posterior: what each row's true values are, given the row and a mixture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.special import chdtrc
from torch import Tensor

from .. import kernels
from ..kernels.conditionals import conditionals
from ..kernels.parameters import Parameters
from ..kernels.posteriors import unpacked
from ..rows import checks
from ..rows.batch import Batch
from ..system.progress import progress_of_call
from . import line
from .computing import CHUNK_ROWS, Computing, computing
from .coordinates import Coordinate, coefficients, indices
from .matrices import square_root
from .outliers.p_value import p_values
from .undefined import NoDensity, refuse_singular, refuse_undefined

Array = np.ndarray
CHUNK_NUMBERS = 1 << 22  # numbers in the largest array of a chunk
MOMENT_NUMBERS = 1 << 24  # numbers in the covariances of a chunk


@dataclass(frozen=True)
class _Pairs:
    """The posterior of a chunk of rows: weights (n, k), means (n, k, d), covariances (n, k, d, d)."""

    weights: Tensor
    means: Tensor
    covariances: Tensor

    def lines(self) -> line.Lines:
        """Each coordinate by itself."""
        return line.Lines(self.weights, self.means, self.covariances.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt())


@dataclass(frozen=True, eq=False, repr=False)
class Posterior:
    """A mixture of k Gaussians in d dimensions for each of n rows.

    The (n, k, ...) arrays are computed on access; the other methods work in chunks of rows and never hold them.

    Parameters
    ----------
    parameters : Parameters
        Of the mixture, float64 on the CPU.
    rows : Batch
        The rows, float64 on the CPU.
    labels : tuple of str, optional
        Names of the coordinates.
    keep : tuple of int, optional
        The coordinates that are of interest; all by default.
    where : Computing, optional
        Device and number type; float64 on the CPU by default. Results are float64 arrays in any case.

    Examples
    --------
    >>> from xdeconv import Mixture
    >>> Mixture([1.0], [[0.0]], [[[1.0]]]).posterior([[2.0]], noise=[[1.0]]).mean()
    array([[1.]])
    """

    parameters: Parameters
    rows: Batch
    labels: tuple[str, ...] | None = None
    keep: tuple[int, ...] | None = None
    where: Computing | None = None

    @property
    def _where(self) -> Computing:
        return self.where or computing(self.parameters, lambda: 0, "cpu", None)

    def __repr__(self) -> str:
        return f"Posterior(rows={self.rows.n}, k={self.parameters.k}, d={len(self._kept)})"

    @property
    def weights(self) -> Array:
        """Responsibilities (n, k)."""
        where = self._where
        shares = torch.softmax(kernels.log_joint(*where.parameters, where.batch(self.rows)), dim=1)
        return refuse_undefined(shares).double().cpu().numpy()

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
        d, first = len(self._kept), 0
        mean, covariance = np.empty((self.rows.n, d)), np.empty((self.rows.n, d, d))
        size = min(CHUNK_ROWS, max(1, MOMENT_NUMBERS // self.parameters.d**2))
        with progress_of_call(None, self.rows.n) as progress:
            for rows in self.rows.chunks(size):
                part = slice(first, first + rows.n)
                mean[part], covariance[part] = self._moments(rows, first)
                first = part.stop
                progress.update("rows", done=rows.n)
        return mean, covariance

    def _moments(self, rows: Batch, first: int) -> tuple[Array, Array]:
        """Those of some rows from a first one on."""
        where, kept = self._where, torch.tensor(self._kept)
        mean, triangles = kernels.posterior_moments(*where.parameters, where.batch(rows))
        undefined = mean.isnan().any(1)
        if bool(undefined.any()):
            self._refuse(rows, int(undefined.nonzero()[0, 0]), first)
        covariance = where.covariances_out(unpacked(triangles.cpu(), kept), kept)
        return where.distances_out(mean, rows, kept).numpy(), covariance.numpy()

    def _refuse(self, rows: Batch, row: int, first: int) -> None:
        """Say why a row has no posterior."""
        where = self._where
        one = where.batch(rows.rows(slice(row, row + 1)))
        joint = kernels.log_joint(*where.parameters, one)
        pairs = torch.arange(self.parameters.k, device=one.device)
        given = conditionals(where.parameters.to(dtype=one.dtype), one, torch.zeros_like(pairs), pairs)
        refuse_singular(given[0], pairs, first + row)
        refuse_undefined(torch.softmax(joint, dim=1), first + row)
        raise NoDensity(first + row, 1)

    def marginal(self, coordinates: Sequence[Coordinate]) -> Posterior:
        """The posterior of some coordinates.

        Parameters
        ----------
        coordinates : sequence of str or int
            Labels or indices of the mixture's coordinates, in the order wanted.

        Returns
        -------
        Posterior
        """
        keep = indices(coordinates, self.labels, self.parameters.d)
        unknown = [a for a in keep if a not in self._kept]
        if unknown:
            raise ValueError(f"coordinates {unknown} were dropped by an earlier marginal")
        return replace(self, keep=tuple(keep))

    def along(self, direction: Mapping[Coordinate, float] | Sequence[float] | Array) -> Along:
        """The posterior of one linear combination of the true values, the same in every row or each row's own.

        Parameters
        ----------
        direction : dict or array
            ``{label or index: coefficient}``, one coefficient per coordinate of this posterior, or such coefficients
            row by row (n, d): each star's line of sight.

        Returns
        -------
        Along
            With ``mean()``, ``sd()``, ``pdf(x)``, ``cdf(x)`` and ``quantile(q)`` of each row.

        Examples
        --------
        >>> from xdeconv import Mixture
        >>> mixture = Mixture([1.0], [[0.0, 0.0]], [[[1.0, 0.0], [0.0, 3.0]]], labels=["x", "y"])
        >>> both = mixture.posterior([[1.0, float("nan")]]).along({"x": 2.0, "y": 1.0})
        >>> both.mean(), both.sd().round(3)
        (array([2.]), array([1.732]))
        """
        kept = self._kept
        labels = tuple(self.labels[a] for a in kept) if self.labels else None
        return Along(self, coefficients(direction, labels, len(kept), self.rows.n))

    def quantile(self, q: float | Sequence[float]) -> Array:
        """Quantiles of each coordinate.

        Parameters
        ----------
        q : float or sequence of float
            Levels strictly between 0 and 1.

        Returns
        -------
        numpy.ndarray
            (n, d) for one level, (len(q), n, d) for several.
        """
        levels = line.checked_levels(q)
        wanted = torch.from_numpy(np.atleast_1d(levels))
        values = self._collect(lambda pairs: line.quantiles(pairs.lines(), wanted))
        return values[..., 0] if levels.ndim == 0 else np.moveaxis(values, -1, 0)

    def sample(self, size: int, seed: int | None = None) -> Array:
        """Draws (n, size, d) of each row's true values.

        Parameters
        ----------
        size : int
            Draws per row.
        seed : int, optional
            Same seed, same draws.

        Returns
        -------
        numpy.ndarray
        """
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
        """The density's own p-value of each row (n,), see :meth:`xdeconv.Mixture.outlier`."""
        return p_values(self.parameters, self.rows)

    def component_tail(self) -> Array:
        """Tail probability of each row (n,) component by component, see :meth:`xdeconv.Mixture.component_tail`."""
        tails = []
        for chunk, pairs, distance in self._pairs():
            observed = (~chunk.x.isnan()).sum(0).numpy()[:, None]
            tail_ = chdtrc(np.maximum(observed, 1), distance.numpy())
            tails.append((pairs.weights.numpy() * np.where(observed > 0, tail_, 1.0)).sum(1))
        return np.concatenate(tails)

    @property
    def _kept(self) -> tuple[int, ...]:
        return tuple(range(self.parameters.d)) if self.keep is None else self.keep

    @property
    def _chunk_rows(self) -> int:
        return max(1, CHUNK_NUMBERS // (self.parameters.k * max(self.parameters.d, self.rows.p) ** 2))

    def _collect(self, f: Callable[[_Pairs], Tensor]) -> Array:
        found = []
        with progress_of_call(None, self.rows.n) as progress:
            for chunk, pairs, _ in self._pairs():
                found.append(f(pairs).numpy())
                progress.update("rows", done=chunk.n)
        return np.concatenate(found)

    def _pairs(self) -> Iterator[tuple[Batch, _Pairs, Tensor]]:
        size, k, keep, where = self._chunk_rows, self.parameters.k, torch.tensor(self._kept), self._where
        for number, rows in enumerate(self.rows.chunks(size)):
            chunk, n = where.batch(rows), rows.n
            i, j = (t.to(chunk.device) for t in (torch.arange(n).repeat_interleave(k), torch.arange(k).repeat(n)))
            given = conditionals(where.parameters.to(dtype=chunk.dtype), chunk, i, j)
            refuse_singular(given[0], j, size * number)
            b, B, distance = (t.unflatten(0, (n, k)) for t in given)
            weights = torch.softmax(kernels.log_joint(*where.parameters, chunk), dim=1)
            weights = refuse_undefined(weights, size * number).double().cpu()
            kept = keep.to(b.device)
            means = where.means_out(b[..., kept], keep)
            covariances = where.covariances_out(B[..., kept, :][..., kept], keep)
            yield rows, _Pairs(weights, means, covariances), distance.double().cpu()


@dataclass(frozen=True, eq=False)
class Along:
    """The posterior of one linear combination of true values, a mixture on a line for each of n rows.

    Made by :meth:`Posterior.along`; ``direction`` is (1, d), or (n, d) where each row has its own.
    """

    posterior: Posterior
    direction: Array

    def mean(self) -> Array:
        """Posterior mean of each row (n,)."""
        return (self.posterior.mean() * self.direction).sum(1)

    def sd(self) -> Array:
        """Posterior standard deviation of each row (n,)."""
        a, V = self.direction, self.posterior.covariance()
        return np.sqrt(np.clip((a * (V @ a[..., None])[..., 0]).sum(1), 0.0, None))

    def pdf(self, x: Any) -> Array:
        """The posterior density.

        Parameters
        ----------
        x : float or array
            One value, one per row (n,), or several (1, m) or (n, m).

        Returns
        -------
        numpy.ndarray
            (n,), or (n, m) for several values.
        """
        return self._at(x, line.pdf)

    def cdf(self, x: Any) -> Array:
        """The posterior probability of a value of at most x.

        Parameters
        ----------
        x : float or array
            One value, one per row (n,), or several (1, m) or (n, m).

        Returns
        -------
        numpy.ndarray
            (n,), or (n, m) for several values.
        """
        return self._at(x, line.cdf)

    def quantile(self, q: float | Sequence[float]) -> Array:
        """Posterior quantiles.

        Parameters
        ----------
        q : float or sequence of float
            Levels strictly between 0 and 1.

        Returns
        -------
        numpy.ndarray
            (n,) for one level, (len(q), n) for several.
        """
        levels = line.checked_levels(q)
        wanted = torch.from_numpy(np.atleast_1d(levels))
        values = np.concatenate([line.quantiles(lines, wanted)[:, 0].numpy() for lines, _ in self._lines()])
        return values[:, 0] if levels.ndim == 0 else values.T

    def _at(self, x: Any, f: Callable[[line.Lines, Tensor], Tensor]) -> Array:
        values, n = checks.to_array(x, "x"), self.posterior.rows.n
        if values.ndim > 2 or (values.ndim > 0 and len(values) not in (1, n)) or values.shape == (1,) != (n,):
            raise ValueError(f"x must be one value, {n} values, or of shape (1, m) or ({n}, m), got {values.shape}")
        columns = values.reshape(-1, 1) if values.ndim < 2 else values
        points = torch.from_numpy(np.array(np.broadcast_to(columns, (n, columns.shape[1]))))
        parts = [f(lines, points[rows, None])[:, 0].numpy() for lines, rows in self._lines()]
        return np.concatenate(parts)[:, 0] if values.ndim < 2 else np.concatenate(parts)

    def _lines(self) -> Iterator[tuple[line.Lines, slice]]:
        """The mixtures of a chunk of rows, with one coordinate, and which rows they are."""
        every, first = torch.from_numpy(self.direction).expand(self.posterior.rows.n, -1), 0
        for chunk, pairs, _ in self.posterior._pairs():
            rows = slice(first, first + chunk.n)
            a = every[rows]
            variance = torch.einsum("na,nkab,nb->nk", a, pairs.covariances, a).clamp(min=0)
            mean = torch.einsum("nka,na->nk", pairs.means, a)
            yield line.Lines(pairs.weights, mean[..., None], variance.sqrt()[..., None]), rows
            first += chunk.n
