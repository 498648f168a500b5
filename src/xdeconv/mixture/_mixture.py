"""Mixture: the density of the true values, and every question that can be asked of it."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from .. import kernels
from ..rows import checks
from ..rows import tables as tabular
from ..rows.batch import Batch
from ..system.files import load_tensors, save_tensors

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture

    from .posterior import Posterior

Array = np.ndarray
Coordinate = str | int
WEIGHT_ROUNDING = 1e-14  # of their sum: less is left alone, so that a mixture loaded has the bits that were saved
SMALLEST_EIGENVALUE = -1e-9  # relative to the largest: what rounding may do to a covariance


@dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """A mixture of k Gaussians in d dimensions: weights (k,), means (k, d), covariances (k, d, d).

    Immutable. ``labels`` and ``units`` name the coordinates, ``meta`` says where the mixture comes from (JSON).

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

    def __post_init__(self) -> None:
        weights, means, V = _checked_parameters(self.weights, self.means, self.covariances)
        for name, array in (("weights", weights), ("means", means), ("covariances", V)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "labels", checked_names(self.labels, self.d, "labels", unique=True))
        object.__setattr__(self, "units", checked_names(self.units, self.d, "units", unique=False))
        object.__setattr__(self, "meta", MappingProxyType(_checked_meta(self.meta)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are made by the constructor, so that they are as immutable."""
        return Mixture, (self.weights, self.means, self.covariances, self.labels, self.units, dict(self.meta or {}))

    @classmethod
    def from_tensors(cls, weights: Tensor, means: Tensor, covariances: Tensor) -> Mixture:
        """A mixture of what a method or a start computed, on whatever device."""
        return cls(*(t.detach().double().cpu().numpy() for t in (weights, means, covariances)))  # type: ignore[arg-type]

    @property
    def k(self) -> int:
        """Number of components."""
        return len(self.weights)

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return self.means.shape[1]

    def __repr__(self) -> str:
        names = f", labels={list(self.labels)}" if self.labels else ""
        return f"Mixture(k={self.k}, d={self.d}{names})"

    # Questions about rows

    def log_prob(self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None) -> Array:
        """Log-density of each noisy row (n,): natural logarithm, missing values marginalised exactly."""
        return refuse_nan(kernels.log_prob(*self.tensors(), self.batch(X, noise, projection, error=error))).numpy()

    def score(
        self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None, weight: Any = None
    ) -> float:
        """Mean log-density per unit of row weight."""
        batch = self.batch(X, noise, projection, error=error, weight=weight)
        if batch.n == 0:
            raise ValueError("X has no rows to score")
        log_prob = refuse_nan(kernels.log_prob(*self.tensors(), batch))
        return float(log_prob.mean() if batch.weight is None else batch.weight @ log_prob / batch.weight.sum())

    def responsibilities(
        self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None, log_prior: Any = None
    ) -> Array:
        """Probability (n, k) that each row comes from each component."""
        batch = self.batch(X, noise, projection, error=error, log_prior=log_prior)
        return refuse_nan(torch.softmax(kernels.log_joint(*self.tensors(), batch), dim=1)).numpy()

    def outlier(self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None) -> Array:
        """Tail probability (n,) of each row: small means that the mixture hardly makes such a row.

        It is sum_j r_j P(chi2 with as many degrees of freedom as values are observed > Mahalanobis distance to j), so
        that rows with different missing patterns can be compared; 1 when nothing is observed.
        """
        return self.posterior(X, noise, projection, error=error).outlier()

    def posterior(
        self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None, log_prior: Any = None
    ) -> Posterior:
        """What each row's true values are, given the row, its noise and this mixture."""
        from .posterior import Posterior

        return Posterior(self, self.batch(X, noise, projection, error=error, log_prior=log_prior))

    def batch(self, X: Any, *arrays: Any, **named: Any) -> Batch:
        """Checked rows of this mixture's coordinates; a table with our labels among its columns is put in order."""
        if isinstance(X, Batch):
            if any(a is not None for a in (*arrays, *named.values())):
                raise ValueError("a Batch carries its own noise, projection, weight and priors: give them there")
            batch = X.to(device="cpu", dtype=torch.float64)
        else:
            X, arrays, named = self._in_order(X, arrays, named)
            batch = Batch.from_arrays(X, *arrays, **named)
        if batch.d != self.d:
            what = "the Batch" if isinstance(X, Batch) else "X" if batch.projection is None else "projection"
            raise ValueError(f"{what} has {batch.d} columns and the mixture {self.d} dimensions")
        if batch.projection is None:
            tabular.refuse_other_units(X, self.labels, self.units)
        return batch

    def _in_order(self, X: Any, arrays: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict]:
        """Tables by our labels; noise that is no table cannot follow when the columns of X change places."""
        found = tabular.names(X)
        projected = named.get("projection") is not None or any(a is not None for a in arrays[1:2])
        if not self.labels or found is None or projected:
            return X, arrays, named
        if not set(self.labels) <= set(found):
            raise ValueError(f"the table has columns {found}, the mixture is of {list(self.labels)}")
        ordered = tabular.in_order(X, self.labels)
        noise = [a for a in (*arrays[:1], named.get("error")) if a is not None]
        if ordered is not X and any(tabular.names(a) is None for a in noise):
            order = f"the table's columns are {found}, the mixture's {list(self.labels)}"
            raise ValueError(f"{order}: put the table in that order, or give its errors as a table too")
        arrays = tuple(tabular.in_order(a, self.labels) for a in arrays)
        return ordered, arrays, {name: tabular.in_order(a, self.labels) for name, a in named.items()}

    # Other mixtures

    def marginal(self, coordinates: Sequence[Coordinate]) -> Mixture:
        """The mixture of some coordinates, by label or index, in the order given."""
        keep = self.indices(coordinates)
        return self._of(self.weights, self.means[:, keep], self.covariances[:, keep][:, :, keep], keep)

    def condition(self, values: Mapping[Any, float], noise: Any = None, *, error: Any = None) -> Mixture:
        """The mixture of the other *true* coordinates given observed values {label or index: value}.

        ``noise`` is a dict of variances or a covariance in the order of ``values``; ``error`` a dict of standard
        deviations. The conditioned coordinates are dropped.

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
        S[0][np.ix_(given, given)] = self._given_noise(values, noise, error)
        posterior = self.posterior(X, S).marginal(rest)
        return self._of(posterior.weights[0], posterior.means[0], posterior.covariances[0], rest)

    def _given_noise(self, values: Mapping[Any, float], noise: Any, error: Any) -> Array:
        if noise is not None and error is not None:
            raise ValueError("give noise (variances) or error (standard deviations), not both")
        given = error if noise is None else noise
        if isinstance(given, Mapping):
            unknown = [key for key in given if key not in values]
            if unknown:
                raise ValueError(f"noise is given for {unknown}, which is not among the values {list(values)}")
            line = checks.to_array([given.get(key, 0.0) for key in values], "noise")
            if (line < 0).any():
                raise ValueError(f"noise is negative: {dict(given)}")
            return np.diag(line if noise is not None else line**2)
        if error is not None:
            raise ValueError("error must be a dict {label or index: standard deviation}")
        matrix = np.zeros((len(values),) * 2) if noise is None else checks.to_array(noise, "noise")
        if matrix.shape != (len(values),) * 2:
            raise ValueError(f"noise must be a dict or a covariance of shape {(len(values),) * 2}, got {matrix.shape}")
        checks.refuse_indefinite(matrix[None], "noise")
        return matrix

    def transformed(self, shift: Array, scale: Array) -> Mixture:
        """The mixture of shift + scale * v, coordinate by coordinate."""
        V = self.covariances * scale[:, None] * scale
        return Mixture(self.weights, shift + scale * self.means, V, self.labels, self.units, self.meta)

    def with_(self, **changes: Any) -> Mixture:
        """A copy with other labels, units or meta."""
        fields = {"labels": self.labels, "units": self.units, "meta": self.meta} | changes
        return Mixture(self.weights, self.means, self.covariances, **fields)

    def _of(self, weights: Array, means: Array, V: Array, keep: Sequence[int]) -> Mixture:
        labels = tuple(self.labels[a] for a in keep) if self.labels else None
        units = tuple(self.units[a] for a in keep) if self.units else None
        return Mixture(weights, means, V, labels, units, self.meta)

    def indices(self, coordinates: Sequence[Coordinate] | Coordinate) -> list[int]:
        """Positions of coordinates given by label or index."""
        wanted = [coordinates] if isinstance(coordinates, (str, int, np.integer)) else list(coordinates)
        found = [self._index(c) for c in wanted]
        if len(set(found)) < len(found):
            raise ValueError(f"a coordinate is named twice in {wanted}")
        if not found:
            raise ValueError("no coordinate is named")
        return found

    def _index(self, coordinate: Coordinate) -> int:
        if isinstance(coordinate, str):
            if not self.labels or coordinate not in self.labels:
                known = f"its labels are {list(self.labels)}" if self.labels else "it has no labels"
                raise ValueError(f"the mixture has no coordinate {coordinate!r}: {known}")
            return self.labels.index(coordinate)
        whole = isinstance(coordinate, (int, np.integer)) and not isinstance(coordinate, bool)
        if not whole or not -self.d <= coordinate < self.d:
            raise ValueError(f"coordinate {coordinate!r} is neither a label nor an index below {self.d}")
        return int(coordinate) % self.d

    # Draws, files, tensors

    def sample(
        self, size: int, seed: int | None = None, noise: Any = None, projection: Any = None, *, error: Any = None
    ) -> Array:
        """Draws (size, d) of true values; with noise or a projection, of noisy rows (size, p).

        >>> Mixture([1.0], [[5.0]], [[[0.0]]]).sample(2, seed=0)
        array([[5.],
               [5.]])
        """
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
            raise ValueError(f"size must be a whole number of at least 0, got {size!r}")
        rng = np.random.default_rng(seed)
        component = rng.choice(self.k, size=size, p=self.weights / self.weights.sum())
        v = self.means[component] + np.einsum(
            "nde,ne->nd", square_root(self.covariances)[component], rng.standard_normal((size, self.d))
        )
        if noise is None and error is None and projection is None:
            return v
        R = None if projection is None else checks.to_array(projection, "projection")
        if R is not None and (R.ndim != 3 or R.shape[2] != self.d or len(R) not in (1, size)):
            raise ValueError(f"projection must have shape (size, p, d) = ({size}, p, {self.d}), got {R.shape}")
        p = self.d if R is None else R.shape[1]
        view = Batch.from_arrays(np.zeros((size, p)), noise, R, error=error)
        x = v if view.projection is None else np.einsum("pdn,nd->np", view.projection.numpy(), v)
        return x + np.einsum("npq,nq->np", square_root(view.covariance().numpy()), rng.standard_normal((size, p)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file, float64; the old file stays whole until the new one is."""
        arrays = {"weights": self.weights, "means": self.means, "covariances": self.covariances}
        save_tensors(
            path, "mixture", arrays, {"labels": self.labels, "units": self.units, "meta": dict(self.meta or {})}
        )

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write for other programs: .npz, or .fits with a line for each component."""
        from .exchange import export

        export(self, path)

    def to_sklearn(self) -> GaussianMixture:
        """A fitted :class:`sklearn.mixture.GaussianMixture` of the same density, which knows no noise."""
        from .exchange import to_sklearn

        return to_sklearn(self)

    @classmethod
    def from_sklearn(cls, model: Any, labels: Any = None, units: Any = None) -> Mixture:
        """The density of a fitted GaussianMixture, BayesianGaussianMixture or XDGMM, of any covariance type."""
        from .exchange import from_sklearn

        return from_sklearn(model, labels, units)

    def tensors(self, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
        """Log-weights, means and covariances as float64 tensors, as kernels want them."""
        with np.errstate(divide="ignore"):
            arrays = np.log(self.weights), self.means, self.covariances
        log_weights, means, covariances = (torch.tensor(array, device=device) for array in arrays)
        return log_weights, means, covariances


def load(path: str | os.PathLike[str]) -> Mixture:
    """The mixture that :meth:`Mixture.save` wrote."""
    arrays, facts = load_tensors(path, "mixture")
    missing = {"weights", "means", "covariances"} - set(arrays)
    if missing or not isinstance(facts, dict):
        raise ValueError(f"{path} is damaged: it lacks {sorted(missing) or 'its facts'}")
    try:
        return Mixture(
            arrays["weights"], arrays["means"], arrays["covariances"],
            facts.get("labels"), facts.get("units"), facts.get("meta"),
        )  # fmt: skip
    except (ValueError, TypeError) as problem:
        raise ValueError(f"{path} is damaged: {problem}") from problem


def refuse_nan(values: Tensor) -> Tensor:
    """Log-densities or responsibilities of rows as they are, unless one cannot be computed."""
    bad = values.isnan() if values.ndim == 1 else values.isnan().any(1)
    if bool(bad.any()):
        why = "its noise and a covariance are both singular, its values overflow, or every component is ruled out"
        raise ValueError(f"row {int(bad.nonzero()[0, 0])} has no density ({int(bad.sum())} such rows): {why}")
    return values


def square_root(V: Array) -> Array:
    """A with A A^T = V for positive semi-definite matrices (n, d, d)."""
    values, vectors = np.linalg.eigh(V)
    return vectors * np.sqrt(np.clip(values, 0.0, None))[:, None, :]


def _checked_parameters(weights: Any, means: Any, covariances: Any) -> tuple[Array, Array, Array]:
    a = checks.to_array(weights, "weights").copy()
    m = checks.to_array(means, "means").copy()
    V = checks.to_array(covariances, "covariances").copy()
    if m.ndim != 2 or a.shape != m.shape[:1] or V.shape != (*m.shape, m.shape[-1]) or m.size == 0:
        shapes = f"{a.shape}, {m.shape}, {V.shape}"
        raise ValueError(f"weights (k,), means (k, d) and covariances (k, d, d) do not fit: {shapes}")
    for name, array in (("weights", a), ("means", m), ("covariances", V)):
        if not np.isfinite(array).all():
            raise ValueError(f"{name} of component {np.argwhere(~np.isfinite(array))[0][0]} is not finite")
    if (a < 0).any() or abs(a.sum() - 1) > 1e-6:
        raise ValueError(f"weights must be non-negative and sum to 1, they sum to {a.sum():.9g}, least {a.min():.3g}")
    size = np.abs(V).max(axis=(1, 2))
    if (np.abs(V - V.transpose(0, 2, 1)).max(axis=(1, 2)) > 1e-6 * size).any():
        raise ValueError("a covariance is not symmetric")
    V = (V + V.transpose(0, 2, 1)) / 2
    if (np.einsum("kdd->kd", V) < 0).any():
        raise ValueError("a covariance has a negative variance: it is not positive semi-definite")
    values = np.linalg.eigvalsh(V)
    bad = values[:, 0] < SMALLEST_EIGENVALUE * np.maximum(values[:, -1], 0)
    if bad.any():
        j = int(bad.argmax())
        raise ValueError(f"the covariance of component {j} is not positive semi-definite: {values[j, 0]:.3g}")
    if abs(a.sum() - 1) > WEIGHT_ROUNDING:
        a = a / a.sum()
    return a, m, V


def _checked_meta(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """Facts that JSON can hold, as a copy."""
    try:
        return json.loads(json.dumps(dict(meta or {})))
    except (TypeError, ValueError) as problem:
        raise ValueError(f"meta must be what JSON can hold: {problem}") from problem


def checked_names(names: Any, d: int, what: str, unique: bool) -> tuple[str, ...] | None:
    """Names of d coordinates as a tuple, each there once if they must be unique."""
    if names is None:
        return None
    found = () if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)
    if len(found) != d:
        raise ValueError(f"{what} must name {d} coordinates, got {names!r}")
    if not all(isinstance(name, str) for name in found):
        raise ValueError(f"{what} must be words, got {list(found)}")
    found = tuple(str(name) for name in found)
    if unique and len(set(cast(tuple[Hashable, ...], found))) < d:
        raise ValueError(f"{what} are doubled: {list(found)}")
    return found
