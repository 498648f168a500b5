"""Mixture: the density of the true values, and every question that can be asked of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..kernels.parameters import Parameters
from ..rows import checks
from ..rows.batch import Batch
from ..rows.data import Source
from ..system.files import load_tensors, save_tensors
from ..system.progress import progress_of_call
from . import exchange, line, storing, tail
from .asking import Asked, restricted
from .background import Background, Rows
from .computing import answers, computing, rows_in
from .coordinates import Coordinate, checked_names, indices
from .matrices import checked_parameters, n_parameters, of_one_covariance, square_root
from .posterior import Posterior
from .tails import StudentT

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture

__all__ = ["Coordinate", "Mixture", "checked_names", "load", "n_parameters", "refuse_nan", "square_root"]
Array = np.ndarray
WHY = "its noise and a covariance are both singular, its values overflow, or every component is ruled out"


@dataclass(frozen=True, eq=False, repr=False)
class Mixture(Background):
    """A mixture of k Gaussians in d dimensions. Immutable.

    Every question about rows takes what :func:`xdeconv.fit` takes: an array (n, p) with NaN for missing values, a table
    (pandas, polars, astropy, Arrow, a dict), the name of a file, ``xd.open(...)``, or a Batch. In tables and files,
    errors and correlations are found as the fit found its own; a table's other columns do not matter.

    Parameters
    ----------
    weights : array_like
        (k,), not negative, of sum 1.
    means : array_like
        (k, d).
    covariances : array_like
        (k, d, d), positive semi-definite.
    labels : sequence of str, optional
        Names of the d coordinates.
    units : sequence of str, optional
        Their units.
    meta : mapping, optional
        Where the mixture comes from, as JSON can hold it.
    background : Uniform or Mixture, optional
        What else makes rows. The density of rows is then (1 - b) times that of the components, whose weights still sum
        to 1, and b times the background's.
    background_weight : float
        b.
    tails : StudentT, optional
        Tails of the components that are heavier than Gaussian ones; covariances are then the shapes of Student's t.
    structure : str
        What its covariances were fitted as: full, tied, diagonal, spherical or low-rank:R.

    Examples
    --------
    >>> mixture = Mixture([0.5, 0.5], [[0.0], [4.0]], [[[1.0]], [[1.0]]], labels=["x"])
    >>> mixture.log_prob([[2.0], [float("nan")]]).round(3)
    array([-2.919,  0.   ])
    """

    weights: Array
    means: Array
    covariances: Array
    labels: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None
    meta: Mapping[str, Any] | None = None
    background: Background | None = None
    background_weight: float = 0.0
    tails: StudentT | None = None
    structure: str = "full"

    def __post_init__(self) -> None:
        weights, means, V = checked_parameters(self.weights, self.means, self.covariances)
        for name, array in (("weights", weights), ("means", means), ("covariances", V)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "labels", checked_names(self.labels, self.d, "labels", unique=True))
        object.__setattr__(self, "units", checked_names(self.units, self.d, "units", unique=False))
        object.__setattr__(self, "meta", MappingProxyType(_checked_meta(self.meta)))
        object.__setattr__(self, "background_weight", _checked_background(self))
        of_one_covariance(self.structure, self.d)  # which refuses a word that it does not know

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are made by the constructor, so that they are as immutable."""
        return Mixture, tuple(dict(value) if name == "meta" else value for name, value in vars(self).items())

    @classmethod
    def from_tensors(cls, weights: Tensor, means: Tensor, covariances: Tensor) -> Mixture:
        """A mixture of what a method or a start computed, on whatever device.

        Parameters
        ----------
        weights : torch.Tensor (k,) or (k + 1,)
            Weights; one more is a background's.
        means : torch.Tensor (k, d)
            Means.
        covariances : torch.Tensor (k, d, d)
            Covariances.

        Returns
        -------
        Mixture
            In float64, without labels.
        """
        shares, m, V = (t.detach().double().cpu().numpy() for t in (weights, means, covariances))
        if len(shares) == len(m):
            return cls(shares, m, V)
        inside = shares[:-1].sum()
        own = shares[:-1] / inside if inside > 0 else np.full(len(m), 1 / len(m))
        return cls(own, m, V, background=Rows(), background_weight=float(shares[-1]))

    @property
    def k(self) -> int:
        """Number of components."""
        return len(self.weights)

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return self.means.shape[1]

    @property
    def n_parameters(self) -> int:
        """Number of free parameters."""
        beside = (self.background is not None) + (self.tails is not None and self.tails.fitted)
        return n_parameters(self.k, self.d, self.structure) + beside

    @property
    def shares(self) -> Array:
        """Weights among all rows: (k,) of the components; with a background (k + 1,), its own last."""
        if self.background is None:
            return self.weights
        return np.append((1 - self.background_weight) * self.weights, self.background_weight)

    def __repr__(self) -> str:
        names = f", labels={list(self.labels)}" if self.labels else ""
        beside = "" if self.background is None else f", background={self.background_weight:.3g}"
        beside += "" if self.tails is None or self.tails.nu is None else f", nu={self.tails.nu:.3g}"
        shape = "" if self.structure == "full" else f", covariance={self.structure}"
        return f"Mixture(k={self.k}, d={self.d}{names}{shape}{beside})"

    # The mixture as a whole

    def mean(self) -> Array:
        """The mean (d,) of all components together.

        >>> Mixture([0.25, 0.75], [[0.0], [4.0]], [[[1.0]], [[1.0]]]).mean()
        array([3.])
        """
        return self.weights @ self.means

    def covariance(self) -> Array:
        """The covariance (d, d) of all components together.

        >>> Mixture([0.5, 0.5], [[-2.0], [2.0]], [[[1.0]], [[1.0]]]).covariance()
        array([[5.]])
        """
        away = self.means - self.mean()
        c, p = (torch.ones(1), torch.ones(1)) if self.tails is None else self.tails.scales()
        wider = float(c @ p) * self.covariances
        return np.einsum("k,kde->de", self.weights, wider + away[:, :, None] * away[:, None, :])

    def cdf(self, x: Any) -> Array:
        """P(true value <= x) of a mixture's components in one dimension.

        Parameters
        ----------
        x : array_like
            Values of any shape.

        Returns
        -------
        numpy.ndarray
            Of the shape of x.

        Examples
        --------
        >>> float(Mixture([1.0], [[3.0]], [[[4.0]]]).cdf(3.0))
        0.5
        """
        lines, points = self._line("cdf"), checks.to_array(x, "x")
        return line.cdf(lines, torch.from_numpy(points.reshape(1, 1, -1).copy())).numpy().reshape(points.shape)

    def quantile(self, q: Any) -> Array:
        """The true value below which a fraction q of a mixture's components lies, in one dimension.

        Parameters
        ----------
        q : array_like
            Levels strictly between 0 and 1, of any shape.

        Returns
        -------
        numpy.ndarray
            Of the shape of q.

        Examples
        --------
        >>> float(Mixture([1.0], [[3.0]], [[[4.0]]]).quantile(0.5))
        3.0
        """
        lines, levels = self._line("quantile"), line.checked_levels(q)
        return line.quantiles(lines, torch.from_numpy(levels.reshape(-1).copy())).numpy().reshape(levels.shape)

    def _line(self, what: str) -> line.Lines:
        if self.d != 1:
            raise ValueError(f"{what} is of one dimension and the mixture has {self.d}: take marginal([...]) first")
        log_weights, means, covariances = self._components()
        return line.Lines(log_weights.exp()[None], means[None], covariances[None, :, 0].sqrt())

    # Questions about rows

    def log_prob(
        self,
        X: Any,
        noise: Any = None,
        projection: Any = None,
        *,
        error: Any = None,
        background: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> Array:
        """Log-density of each noisy row: natural logarithm, missing values marginalised exactly.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows; a long file is never held whole.
        noise : array_like, optional
            Variances (n, p), covariances (n, p, p), or one for all rows: (p,) or (1, p, p).
        projection : array_like, optional
            (n, p, d): rows are views ``projection @ v`` of true values v.
        error : array_like, optional
            Standard deviations (n, p) or (p,), instead of noise.
        background : array_like, optional
            (n,), log-densities of these rows, for a model that was fitted with such.
        device : {"cpu", "cuda"}, optional
            Where to compute: by default the GPU, where there is one and rows times components are 10^7 or more.
        dtype : {"float64", "float32"}, optional
            The number type: by default float64 on a CPU and float32 on a GPU.

        Returns
        -------
        numpy.ndarray
            (n,).
        """
        given = {"error": error, "background": background, "device": device, "dtype": dtype}
        return self._each(kernels_log_prob, X, noise, projection, **given)

    def log_density(self, batch: Batch) -> Tensor:
        """Log-density (n,) of a batch of noisy rows, with the background.

        Parameters
        ----------
        batch : Batch
            Of this mixture's coordinates.

        Returns
        -------
        torch.Tensor
        """
        return kernels.log_prob(*self.scaled(batch.device), self.seen(batch))

    def seen(self, batch: Batch) -> Batch:
        """A batch as kernels want it: with the log-densities of this mixture's background.

        Parameters
        ----------
        batch : Batch
            Of this mixture's coordinates.

        Returns
        -------
        Batch
        """
        density = None if self.background is None else self.background.log_density(batch)
        return self._scaled_rows(replace(batch, background=density))

    def _scaled_rows(self, batch: Batch) -> Batch:
        return batch if self.tails is None else self.tails.rows(batch)

    def score(
        self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None, weight: Any = None,
        background: Any = None, device: Any = None, dtype: Any = None,) -> float:  # fmt: skip
        """Mean log-density per unit of row weight.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows; a long file is never held whole.
        noise, projection, error : array_like, optional
            As in :meth:`log_prob`.
        weight : array_like, optional
            (n,), how much each row counts.
        background : array_like, optional
            (n,), log-densities of these rows, for a model that was fitted with such.
        device : {"cpu", "cuda"}, optional
            Where to compute: by default the GPU, where there is one and rows times components are 10^7 or more.
        dtype : {"float64", "float32"}, optional
            The number type: by default float64 on a CPU and float32 on a GPU.

        Returns
        -------
        float
        """
        total, weights, first = 0.0, 0.0, 0
        given = {"error": error, "background": background, "device": device, "dtype": dtype}
        for log_prob, batch in self._answers(kernels_log_prob, X, noise, projection, weight, **given):
            refuse_nan(log_prob, first)
            total += float(log_prob.sum() if batch.weight is None else batch.weight @ log_prob)
            weights += float(batch.total_weight())
            first += batch.n
        if not weights:
            raise ValueError("X has no rows to score" if not first else "the rows have no weight in all")
        return total / weights

    def responsibilities(
        self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None, log_prior: Any = None,
        background: Any = None, device: Any = None, dtype: Any = None,) -> Array:  # fmt: skip
        """Probability that each row comes from each component; with a background, what is left of 1 is its own.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        noise, projection, error : array_like, optional
            As in :meth:`log_prob`.
        log_prior : array_like, optional
            (n, k), added to the logarithms of the weights.
        background : array_like, optional
            (n,), log-densities of these rows, for a model that was fitted with such.
        device : {"cpu", "cuda"}, optional
            Where to compute: by default the GPU, where there is one and rows times components are 10^7 or more.
        dtype : {"float64", "float32"}, optional
            The number type: by default float64 on a CPU and float32 on a GPU.

        Returns
        -------
        numpy.ndarray
            (n, k).
        """

        def shares(parameters: Parameters, batch: Batch) -> Tensor:
            inside = kernels.log_joint(*parameters, batch)
            if self.tails is not None:
                inside = inside.unflatten(1, (self.k, -1)).logsumexp(2)
            if batch.background is None:
                return torch.softmax(inside, dim=1)
            return (inside - kernels.log_prob(*parameters, batch)[:, None]).exp()

        given = {"log_prior": log_prior, "error": error, "background": background, "device": device, "dtype": dtype}
        return self._each(shares, X, noise, projection, **given)

    def background_probability(
        self,
        X: Any,
        noise: Any = None,
        projection: Any = None,
        *,
        error: Any = None,
        background: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> Array:
        """Probability that each row is the background's, and not of any component.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        noise, projection, error : array_like, optional
            As in :meth:`log_prob`.
        background : array_like, optional
            (n,), log-densities of these rows, for a model that was fitted with such.
        device : {"cpu", "cuda"}, optional
            Where to compute: by default the GPU, where there is one and rows times components are 10^7 or more.
        dtype : {"float64", "float32"}, optional
            The number type: by default float64 on a CPU and float32 on a GPU.

        Returns
        -------
        numpy.ndarray
            (n,); 0 for a mixture without a background.

        Examples
        --------
        >>> from xdeconv import Uniform
        >>> cluster = Mixture([1.0], [[5.0]], [[[0.01]]], background=Uniform(0.0, 10.0), background_weight=0.5)
        >>> cluster.background_probability([[5.0], [6.0]]).round(3)
        array([0.024, 1.   ])
        """
        given = {"error": error, "background": background, "device": device, "dtype": dtype}
        return self._each(self._beside, X, noise, projection, **given)

    def _beside(self, parameters: Parameters, batch: Batch) -> Tensor:
        if batch.background is None:
            return torch.zeros(batch.n, dtype=torch.float64)
        log_weight = np.log(self.background_weight or 1e-300)
        return (batch.background + log_weight - kernels.log_prob(*parameters, batch)).exp().clamp(max=1.0)

    def outlier(self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None) -> Array:
        """The density's own p-value of each row: how often the mixture makes a row that is less likely.

        It is P(f(X') <= f(x)) with f the density of rows with this row's noise, gaps and projection, and X' drawn
        from f: uniform between 0 and 1 for rows of the mixture, whatever their noise, and 1 when nothing is observed.
        The background, if there is one, is left out: it is the p-value of a row among those of the components.
        See :mod:`xdeconv.mixture.tail` for how it is computed, to a few per cent of its value.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        noise, projection, error : array_like, optional
            As in :meth:`log_prob`.

        Returns
        -------
        numpy.ndarray
            (n,).

        Examples
        --------
        >>> Mixture([1.0], [[0.0]], [[[1.0]]]).outlier([[1.96]]).round(3)
        array([0.05])
        """
        parameters = self._components()

        def p_values(_: Parameters, batch: Batch) -> Tensor:
            return torch.from_numpy(tail.p_values(parameters, batch))

        return self._each(p_values, X, noise, projection, error=error, device="cpu")

    def component_tail(
        self,
        X: Any,
        noise: Any = None,
        projection: Any = None,
        *,
        error: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> Array:
        """Tail probability of each row, component by component; not uniform where components overlap.

        It is sum_j r_j P(chi2 with as many degrees of freedom as values are observed > Mahalanobis distance to j), with
        r the responsibilities; 1 when nothing is observed.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        noise, projection, error : array_like, optional
            As in :meth:`log_prob`.
        device : {"cpu", "cuda"}, optional
            Where to compute: by default the GPU, where there is one and rows times components are 10^7 or more.
        dtype : {"float64", "float32"}, optional
            The number type: by default float64 on a CPU and float32 on a GPU.

        Returns
        -------
        numpy.ndarray
            (n,).
        """
        parameters = self._components()

        def tails(_: Parameters, batch: Batch) -> Tensor:
            where = computing(parameters, lambda: batch.n, device, dtype)
            return torch.from_numpy(Posterior(parameters, batch, where=where).component_tail())

        return self._each(tails, X, noise, projection, error=error, device="cpu")

    def posterior(
        self,
        X: Any,
        noise: Any = None,
        projection: Any = None,
        *,
        error: Any = None,
        log_prior: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> Posterior:
        """What each row's true values are, given the row, its noise and this mixture, and that no background made it.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows, which are held in memory.
        noise, projection, error : array_like, optional
            As in :meth:`log_prob`.
        log_prior : array_like, optional
            (n, k), added to the logarithms of the weights.
        device : {"cpu", "cuda"}, optional
            Where to compute: by default the GPU, where there is one and rows times components are 10^7 or more.
        dtype : {"float64", "float32"}, optional
            The number type: by default float64 on a CPU and float32 on a GPU.

        Returns
        -------
        Posterior
        """
        batch = self.batch(X, noise, projection, log_prior=log_prior, error=error)
        parameters = self._components()
        where = computing(parameters, lambda: batch.n, device, dtype)
        return Posterior(parameters, self._scaled_rows(batch), self.labels, where=where)

    def batch(self, X: Any, *arrays: Any, **named: Any) -> Batch:
        """Checked rows of this mixture's coordinates, in memory, float64 on the CPU.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        *arrays : array_like
            noise, projection, weight and log_prior, in this order.
        **named : array_like
            The same by name, error and label.

        Returns
        -------
        Batch
        """
        return self._asked.batch(X, _given(*arrays, **named))

    @property
    def _asked(self) -> Asked:
        return Asked(self.d, self.labels, self.units, self.meta or {})

    def batches(self, X: Any, *arrays: Any, **named: Any) -> Iterator[Batch]:
        """The same rows as :meth:`batch`, a long file or source piece by piece, in order.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        *arrays : array_like
            noise, projection, weight and log_prior, in this order.
        **named : array_like
            The same by name, error and label.

        Returns
        -------
        iterator of Batch
        """
        return self._asked.batches(X, _given(*arrays, **named))

    def asked_rows(self, X: Any, *arrays: Any, **named: Any) -> Source | Batch:
        """The same rows as :meth:`batch`, a file or source as it is.

        Parameters
        ----------
        X : array_like, table, path, Source or Batch
            The rows.
        *arrays : array_like
            noise, projection, weight and log_prior, in this order.
        **named : array_like
            The same by name, error and label.

        Returns
        -------
        Source or Batch
        """
        return self._asked.rows(X, _given(*arrays, **named))

    def _components(self) -> Parameters:
        """The components alone, whose weights sum to 1."""
        return self.with_(background=None).scaled()

    def _each(
        self, question: Callable[[Parameters, Batch], Tensor], X: Any, *arrays: Any, device: Any = None,
        dtype: Any = None, **named: Any,
    ) -> Array:  # fmt: skip
        """The answers to a question about each row, asked batch by batch."""
        found: list[Array] = []
        first = 0
        for answer, batch in self._answers(question, X, *arrays, device=device, dtype=dtype, **named):
            found.append(refuse_nan(answer, first).numpy())
            first += batch.n
        if not found:
            found.append(question(self.scaled(), Batch(torch.zeros(self.d, 0, dtype=torch.float64))).numpy())
        return np.concatenate(found)

    def _answers(
        self, question: Callable[[Parameters, Batch], Tensor], X: Any, *arrays: Any, device: Any = None,
        dtype: Any = None, **named: Any,
    ) -> Iterator[tuple[Tensor, Batch]]:  # fmt: skip
        """Answers, float64 on the CPU, with the rows that they are about; progress is shown where it takes long."""
        asked = self.asked_rows(X, *arrays, **named)
        where = computing(self.scaled(), lambda: rows_in(asked), device, dtype)

        def answer(batch: Batch) -> tuple[Tensor, Batch]:
            plain = batch.to("cpu", torch.float64)
            return question(where.parameters, where.batch(self.seen(plain))).double().cpu(), plain

        with progress_of_call(None, None) as progress:
            for found, batch in answers(asked, answer, where):
                progress.update("rows", done=batch.n)
                yield found, batch

    # Other mixtures

    def marginal(self, coordinates: Sequence[Coordinate]) -> Mixture:
        """The mixture of some coordinates.

        Parameters
        ----------
        coordinates : sequence of str or int
            Labels or indices, in the order wanted.

        Returns
        -------
        Mixture
        """
        return self.restricted(self.indices(coordinates))

    def restricted(self, keep: Sequence[int]) -> Mixture:
        """The mixture of some coordinates, by index.

        Parameters
        ----------
        keep : sequence of int
            Which ones.

        Returns
        -------
        Mixture
        """
        beside = None if self.background is None else self.background.restricted(keep)
        V = self.covariances[:, keep][:, :, keep]
        return self._of(self.weights, self.means[:, keep], V, keep, beside, self.background_weight)

    def condition(self, values: Mapping[Any, float], noise: Any = None, *, error: Any = None) -> Mixture:
        """The mixture of the other *true* coordinates given observed values of some, which are dropped.

        Parameters
        ----------
        values : dict
            ``{label or index: value}``.
        noise : dict or array_like, optional
            ``{label or index: variance}``, or a covariance in the order of ``values``.
        error : dict, optional
            ``{label or index: standard deviation}``, instead of noise.

        Returns
        -------
        Mixture

        Examples
        --------
        >>> mixture = Mixture([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]]], labels=["x", "y"])
        >>> mixture.condition({"x": 1.0}, noise={"x": 1.0}).means
        array([[0.25]])
        """
        if not isinstance(values, Mapping):
            raise ValueError(f"condition takes a dict {{label or index: value}}, got {values!r}")
        given = self.indices(cast(Sequence[Coordinate], list(values)))
        rest = [a for a in range(self.d) if a not in given]
        if not rest:
            raise ValueError("all coordinates are given: nothing is left to describe")
        X, S = np.full((1, self.d), np.nan), np.zeros((1, self.d, self.d))
        X[0, given] = checks.to_array(list(values.values()), "values")
        if np.isnan(X[0, given]).any():
            raise ValueError("a value to condition on is NaN: leave that coordinate out instead")
        S[0][np.ix_(given, given)] = _given_noise(values, noise, error)
        return self.given(self.batch(X, S), rest)

    def given(self, row: Batch, rest: Sequence[int]) -> Mixture:
        """The mixture of some true coordinates, given one noisy row of the others.

        Parameters
        ----------
        row : Batch
            One row that observes none of the coordinates wanted.
        rest : sequence of int
            The coordinates wanted.

        Returns
        -------
        Mixture
        """
        beside = None if self.background is None else self.background.given(row, rest)
        share = float(self._beside(self.scaled(), self.seen(row))[0])
        posterior = Posterior(self._components(), row).marginal(rest)
        found = posterior.weights[0], posterior.means[0], posterior.covariances[0]
        return self._of(*found, rest, beside, share).with_(tails=None)

    def transformed(self, shift: Array, scale: Array) -> Mixture:
        """The mixture of shift + scale * v, coordinate by coordinate.

        Parameters
        ----------
        shift, scale : numpy.ndarray
            (d,) each.

        Returns
        -------
        Mixture
        """
        V = self.covariances * scale[:, None] * scale
        beside = None if self.background is None else self.background.transformed(shift, scale)
        structure = self.structure if self.structure != "spherical" or np.ptp(scale) == 0 else "diagonal"
        return replace(self, means=shift + scale * self.means, covariances=V, background=beside, structure=structure)

    def with_(self, **changes: Any) -> Mixture:
        """A copy with other labels, units, meta, structure or background.

        Parameters
        ----------
        **changes : dict
            labels, units, meta, structure, background or background_weight; ``background=None`` leaves the components
            alone.

        Returns
        -------
        Mixture
        """
        if "background" in changes and changes["background"] is None:
            changes["background_weight"] = 0.0
        return replace(self, **changes)

    def _of(
        self, weights: Array, means: Array, V: Array, keep: Sequence[int], background: Background | None, share: float
    ) -> Mixture:
        labels = tuple(self.labels[a] for a in keep) if self.labels else None
        units = tuple(self.units[a] for a in keep) if self.units else None
        return replace(
            self, weights=weights, means=means, covariances=V, labels=labels, units=units,
            meta=restricted(self.meta or {}, keep, self.d), background=background, background_weight=share,
            structure="full",
        )  # fmt: skip

    def indices(self, coordinates: Sequence[Coordinate] | Coordinate) -> list[int]:
        """Positions of coordinates given by label or index.

        Parameters
        ----------
        coordinates : str, int, or a sequence of them
            Which ones.

        Returns
        -------
        list of int
        """
        return indices(coordinates, self.labels, self.d)

    # Draws, files, tensors

    def sample(
        self, size: int, seed: int | None = None, noise: Any = None, projection: Any = None, *, error: Any = None
    ) -> Array:
        """Draws of true values, the background's among them; with noise or a projection, of noisy rows.

        Parameters
        ----------
        size : int
            How many.
        seed : int, optional
            Same seed, same draws.
        noise, projection, error : array_like, optional
            As in :meth:`log_prob`, of the rows to be drawn.

        Returns
        -------
        numpy.ndarray
            (size, d), or (size, p) with a projection.

        Examples
        --------
        >>> Mixture([1.0], [[5.0]], [[[0.0]]]).sample(2, seed=0)
        array([[5.],
               [5.]])
        """
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
            raise ValueError(f"size must be a whole number of at least 0, got {size!r}")
        rng = np.random.default_rng(seed)
        v = self.drawn(size, rng)
        if noise is None and error is None and projection is None:
            return v
        R = None if projection is None else checks.to_array(projection, "projection")
        if R is not None and (R.ndim != 3 or R.shape[2] != self.d or len(R) not in (1, size)):
            raise ValueError(f"projection must have shape (size, p, d) = ({size}, p, {self.d}), got {R.shape}")
        p = self.d if R is None else R.shape[1]
        view = Batch.from_arrays(np.zeros((size, p)), noise, R, error=error)
        x = v if view.projection is None else np.einsum("pdn,nd->np", view.projection.numpy(), v)
        return x + np.einsum("npq,nq->np", square_root(view.covariance().numpy()), rng.standard_normal((size, p)))

    def drawn(self, size: int, rng: np.random.Generator) -> Array:
        """Draws of true values by a generator of one's own.

        Parameters
        ----------
        size : int
            How many.
        rng : numpy.random.Generator
            Where randomness comes from.

        Returns
        -------
        numpy.ndarray
            (size, d).
        """
        component = rng.choice(self.k, size=size, p=self.weights / self.weights.sum())
        root = square_root(self.covariances)[component]
        v = self.means[component] + np.einsum("nde,ne->nd", root, rng.standard_normal((size, self.d)))
        if self.tails is not None:
            c, p = (t.numpy() for t in self.tails.scales())
            v = self.means[component] + np.sqrt(rng.choice(c, size=size, p=p))[:, None] * (v - self.means[component])
        if self.background is not None:
            beside = rng.random(size) < self.background_weight
            v[beside] = self.background.drawn(int(beside.sum()), rng)
        return v

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file, float64; the old file stays whole until the new one is.

        Parameters
        ----------
        path : str or path
            The file to write.
        """
        saved = storing.saved(self)
        save_tensors(path, "mixture", saved.arrays, saved.facts, saved.features)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write for other programs.

        Parameters
        ----------
        path : str or path
            The file to write: .npz, or .fits with a line for each component.
        """
        exchange.export(self._exchanged, path)

    def to_sklearn(self) -> GaussianMixture:
        """A fitted :class:`sklearn.mixture.GaussianMixture` of the same density, which knows no noise.

        >>> Mixture([1.0], [[0.0]], [[[4.0]]]).to_sklearn().score_samples([[0.0]]).round(3)
        array([-1.612])
        """
        return exchange.to_sklearn(self._exchanged)

    def to_torch(self) -> torch.distributions.MixtureSameFamily:
        """The density of the true values as a :class:`torch.distributions.MixtureSameFamily`, float64.

        >>> Mixture([1.0], [[3.0]], [[[4.0]]]).to_torch().mean
        tensor([3.], dtype=torch.float64)
        """
        return exchange.to_torch(self._exchanged)

    def to_numpyro(self) -> Any:
        """The density of the true values as a distribution of NumPyro, where that is installed."""
        return exchange.to_numpyro(self._exchanged)

    @classmethod
    def from_sklearn(cls, model: Any, labels: Any = None, units: Any = None) -> Mixture:
        """The density of a fitted model of scikit-learn's.

        Parameters
        ----------
        model : GaussianMixture, BayesianGaussianMixture or XDGMM
            Of any covariance type.
        labels, units : sequence of str, optional
            Names and units of the coordinates; labels by default those that the model was fitted with.

        Returns
        -------
        Mixture
        """
        return cls(**exchange.from_sklearn(model, labels)._replace(units=units)._asdict())

    @property
    def _exchanged(self) -> exchange.Exchanged:
        if self.background is not None:
            raise ValueError("other programs' mixtures have no background: for the components, with_(background=None)")
        if self.tails is not None:
            raise ValueError("other programs' mixtures have no tails: gaussians() is the same density without")
        return exchange.Exchanged(
            self.weights, self.means, self.covariances, self.labels, self.units, dict(self.meta or {}), self.structure
        )

    def gaussians(self) -> Mixture:
        """The same density with every component of heavy tails as six Gaussian ones.

        Returns
        -------
        Mixture
            Itself where there are no tails.
        """
        if self.tails is None:
            return self
        log_weights, means, V = self.tails.expanded(self.with_(background=None).tensors())
        return replace(
            self,
            weights=log_weights.exp().numpy(),
            means=means.numpy(),
            covariances=V.numpy(),
            tails=None,
            structure="full",
        )

    def scaled(self, device: torch.device | str = "cpu") -> Parameters:
        """Parameters as kernels want them for densities: with tails, six components for each.

        Parameters
        ----------
        device : torch.device or str
            Where they are wanted.

        Returns
        -------
        Parameters
        """
        own = self.tensors(device)
        return own if self.tails is None else self.tails.expanded(own)

    def tensors(self, device: torch.device | str = "cpu") -> Parameters:
        """Log-weights, means and covariances as float64 tensors, as kernels want them.

        Beside a background, the weights are those among all rows.

        Parameters
        ----------
        device : torch.device or str
            Where they are wanted.

        Returns
        -------
        Parameters
            Which unpacks into the three.
        """
        with np.errstate(divide="ignore"):
            arrays = np.log(self.shares[: self.k]), self.means, self.covariances
        return Parameters(*(torch.tensor(array, device=device) for array in arrays))


def refuse_no_mixture(mixture: Any) -> None:
    """Refuse what is not a mixture, such as the name of its file, or rows given in its place."""
    if not isinstance(mixture, Mixture):
        raise ValueError(f"mixture must be an xd.Mixture, such as xd.load(path), got {_short(mixture)}")


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{type(value).__name__} {text[:60]}..."


def load(path: str | os.PathLike[str]) -> Mixture:
    """The mixture that :meth:`Mixture.save` wrote.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    Mixture
    """
    arrays, facts = load_tensors(path, "mixture", storing.FEATURES)
    missing = {"weights", "means", "covariances"} - set(arrays)
    if missing or not isinstance(facts, dict):
        raise ValueError(f"{path} is damaged: it lacks {sorted(missing) or 'its facts'}")
    try:
        return storing.restored(Mixture, arrays, facts)
    except (ValueError, TypeError, KeyError) as problem:
        raise ValueError(f"{path} is damaged: {problem}") from problem


def kernels_log_prob(parameters: Parameters, batch: Batch) -> Tensor:
    """Log-densities (n,) of rows under a mixture's parameters."""
    return kernels.log_prob(*parameters, batch)


class NoDensity(ValueError):
    """A row whose density cannot be computed."""

    def __init__(self, row: int, count: int) -> None:
        self.row, self.count = row, count
        super().__init__(f"row {row} has no density ({count} such rows): {WHY}")


def refuse_nan(values: Tensor, first: int = 0) -> Tensor:
    """Answers about rows as they are, unless one cannot be computed; ``first`` is the number of the first row."""
    bad = values.isnan() if values.ndim == 1 else values.isnan().any(1)
    if bool(bad.any()):
        raise NoDensity(first + int(bad.nonzero()[0, 0]), int(bad.sum()))
    return values


def _given(
    noise: Any = None, projection: Any = None, weight: Any = None, log_prior: Any = None, *, error: Any = None,
    label: Any = None, background: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """What stands beside the rows, by name."""
    return {"noise": noise, "projection": projection, "weight": weight, "log_prior": log_prior, "error": error,
            "label": label, "background": background}  # fmt: skip


def _given_noise(values: Mapping[Any, float], noise: Any, error: Any) -> Array:
    """The covariance of values to condition on."""
    if noise is not None and error is not None:
        raise ValueError("give noise (variances) or error (standard deviations), not both")
    given = error if noise is None else noise
    if isinstance(given, Mapping):
        unknown = [key for key in given if key not in values]
        if unknown:
            raise ValueError(f"noise is given for {unknown}, which is not among the values {list(values)}")
        diagonal = checks.to_array([given.get(key, 0.0) for key in values], "noise")
        if (diagonal < 0).any():
            raise ValueError(f"noise is negative: {dict(given)}")
        return np.diag(diagonal if noise is not None else diagonal**2)
    if error is not None:
        raise ValueError("error must be a dict {label or index: standard deviation}")
    matrix = np.zeros((len(values),) * 2) if noise is None else checks.to_array(noise, "noise")
    if matrix.shape != (len(values),) * 2:
        raise ValueError(f"noise must be a dict or a covariance of shape {(len(values),) * 2}, got {matrix.shape}")
    checks.refuse_indefinite(matrix[None], "noise")
    return matrix


def _checked_background(mixture: Mixture) -> float:
    """The weight of a background, if it is one and has the mixture's dimensions."""
    beside, b = mixture.background, mixture.background_weight
    if beside is None:
        if b:
            raise ValueError(f"background_weight is {b!r} and there is no background")
        return 0.0
    if not isinstance(beside, Background):
        raise ValueError(f"background must be an xd.Uniform or an xd.Mixture, got {beside!r}")
    if beside.d not in (0, mixture.d):
        raise ValueError(f"the background has {beside.d} dimensions and the mixture {mixture.d}")
    if not 0 <= float(b) <= 1:
        raise ValueError(f"background_weight must lie between 0 and 1, got {b!r}")
    return float(b)


def _checked_meta(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """Facts that JSON can hold, as a copy."""
    try:
        return json.loads(json.dumps(dict(meta or {})))
    except (TypeError, ValueError) as problem:
        raise ValueError(f"meta must be what JSON can hold: {problem}") from problem
