"""Mixture: the density of the true values, and every question that can be asked of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from torch import Tensor

from ..rows import checks
from ..rows.batch import Batch
from ..system.files import MALFORMED, DamagedFile, load_tensors
from . import storing
from .asking import restricted
from .background import Background, Rows
from .coordinates import Coordinate, numbers
from .draws import draws
from .matrices import square_root
from .posterior import Posterior
from .questions import Questions
from .writing import Writing

__all__ = ["Mixture", "load", "refuse_no_mixture"]
Array = np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class Mixture(Questions, Writing):
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
    tails : StudentT or float, optional
        Tails of the components that are heavier than Gaussian ones; covariances are then the shapes of Student's t.
    structure : str
        What its covariances were fitted as: full, tied, diagonal, spherical or low-rank:R.
    inflation : Inflated, optional
        Fitted factors on errors: the errors of all rows that the mixture is asked about are inflated by them. A
        background sees errors as they are quoted.
    selection : Cut, sequence of Cut, Completeness or callable, optional
        How rows were selected. The mixture is that of all rows, kept or not, and so are all answers but ``score``,
        which is given that rows were kept, and ``sample(selected=True)``. Marginals and conditions have none.

    Examples
    --------
    >>> mixture = Mixture([0.5, 0.5], [[0.0], [4.0]], [[[1.0]], [[1.0]]], labels=["x"])
    >>> mixture.log_prob([[2.0], [float("nan")]]).round(3)
    array([-2.919,  0.   ])
    """

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
        X[0, given] = numbers(values.values(), given, self.labels, self.units, "value")
        if np.isnan(X[0, given]).any():
            raise ValueError("a value to condition on is NaN: leave that coordinate out instead")
        if isinstance(error, Mapping) and error:
            each = numbers(error.values(), self.indices(list(error)), self.labels, self.units, "error")
            error = dict(zip(error, each, strict=True))
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
        posterior = Posterior(self._components(), self._scaled_rows(row)).marginal(rest)
        parts = posterior.weights[0], posterior.means[0], posterior.covariances[0]
        wider = None if self.inflation is None else self.inflation.given(row).restricted(rest)
        return self._of(*parts, rest, beside, share).with_(tails=None, inflation=wider)

    def _of(
        self, weights: Array, means: Array, V: Array, keep: Sequence[int], background: Background | None, share: float
    ) -> Mixture:
        labels = tuple(self.labels[a] for a in keep) if self.labels else None
        units = tuple(self.units[a] for a in keep) if self.units else None
        return replace(
            self, weights=weights, means=means, covariances=V, labels=labels, units=units,
            meta=restricted(self.meta or {}, keep, self.d), background=background, background_weight=share,
            structure="full", inflation=None if self.inflation is None else self.inflation.restricted(keep),
            selection=None,
        )  # fmt: skip

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
        wider = None if self.inflation is None else self.inflation.transformed(np.asarray(scale))
        kept = None if self.selection is None else self.selection.transformed(shift, scale)
        return replace(
            self, means=shift + scale * self.means, covariances=V, background=beside, structure=structure,
            inflation=wider, selection=kept,
        )  # fmt: skip

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

    # Draws

    def sample(
        self, size: int, seed: int | None = None, noise: Any = None, projection: Any = None, *, error: Any = None,
        selected: bool = False, device: Any = None, dtype: Any = None,
    ) -> Array:  # fmt: skip
        """Draws of true values, the background's among them; with noise or a projection, of noisy rows.

        Parameters
        ----------
        size : int
            How many.
        seed : int, optional
            Same seed, same draws.
        noise, projection, error : array_like, optional
            As in :meth:`log_prob`, of the rows to be drawn.
        selected : bool, default False
            Whether only rows that the mixture's selection keeps are drawn: what the survey would see.
        device : str or torch.device, optional
            Where true values are drawn; default: the CPU. Draws of one seed are the same on one device.
        dtype : torch.dtype or str, optional
            In which number type; default: float64 on a CPU, float32 on a GPU. What is returned is float64.

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
        size = checks.whole_number(size, "size", 0)
        rng = np.random.default_rng(seed)
        if selected:
            draw = partial(self.drawn, device=device, dtype=dtype)
            return self._drawn_selected(size, rng, projection, {"noise": noise, "error": error}, draw)
        v = self.drawn(size, rng, device, dtype)
        if noise is None and error is None and projection is None:
            return v
        R = None if projection is None else checks.to_array(projection, "projection")
        if R is not None and (R.ndim != 3 or R.shape[2] != self.d or len(R) not in (1, size)):
            raise ValueError(f"projection must have shape (size, p, d) = ({size}, p, {self.d}), got {R.shape}")
        p = self.d if R is None else R.shape[1]
        view = self.widened(Batch.from_arrays(v if R is None else np.zeros((size, p)), noise, R, error=error))
        x = v if view.projection is None else np.einsum("pdn,nd->np", view.projection.numpy(), v)
        return x + np.einsum("npq,nq->np", square_root(view.covariance().numpy()), rng.standard_normal((size, p)))

    def _drawn_selected(
        self, size: int, rng: np.random.Generator, projection: Any, noise: dict[str, Any], draw: Callable[..., Array]
    ) -> Array:
        """Rows that the selection keeps: each is drawn again until it is."""
        if self.selection is None:
            raise ValueError("the mixture has no selection: with_(selection=...) says what was kept")
        if projection is not None:
            raise ValueError("selection= is of observed coordinates: rows that are projections cannot be selected")
        if all(value is None for value in noise.values()) and self.selection.needs_noise(self._asked.noisy):
            raise ValueError("what a survey keeps depends on its errors: give error= or noise= (zero where values are "
                             "exact)")  # fmt: skip
        return self.selection.drawn_rows(draw, Batch.from_arrays(np.zeros((size, self.d)), **noise), rng)

    def drawn(self, size: int, rng: np.random.Generator, device: Any = None, dtype: Any = None) -> Array:
        """Draws of true values by a generator of one's own.

        Parameters
        ----------
        size : int
            How many.
        rng : numpy.random.Generator
            Where randomness comes from.
        device, dtype : optional
            As :meth:`sample` takes them.

        Returns
        -------
        numpy.ndarray
            (size, d).
        """
        component, away = draws(self.weights / self.weights.sum(), square_root(self.covariances), size, rng, device,
                                dtype)  # fmt: skip
        if self.tails is not None:
            c, p = (t.numpy() for t in self.tails.scales())
            away = np.sqrt(rng.choice(c, size=size, p=p))[:, None] * away
        v = self.means[component] + away
        if self.background is not None:
            beside = rng.random(size) < self.background_weight
            v[beside] = self.background.drawn(int(beside.sum()), rng)
        return v


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
        raise DamagedFile(f"{path} is damaged: it lacks {sorted(missing) or 'its facts'}")
    try:
        return storing.restored(Mixture, arrays, facts)
    except MALFORMED as problem:
        raise DamagedFile(f"{path} is damaged: {problem}") from problem


def refuse_no_mixture(mixture: Any) -> None:
    """Refuse what is not a mixture, such as the name of its file, or rows given in its place."""
    if not isinstance(mixture, Mixture):
        raise ValueError(f"mixture must be an xd.Mixture, such as xd.load(path), got {_short(mixture)}")


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{type(value).__name__} {text[:60]}..."


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
    checks.refuse_indefinite(matrix[None])
    return matrix
