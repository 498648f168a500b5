"""Errors: standard errors of a mixture, and of whatever is computed from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from ..fitting.beside.background import as_background
from ..mixture._mixture import Mixture
from ..mixture.coordinates import Coordinate, names_or_numbers
from ..mixture.matrices import widths
from ..plot.axes import axis_title, explain, new_axes
from ..plot.viewing import view
from ..rows.batch import Batch
from ..rows.data import ArraySource
from ..system.text import measured
from .bands import LEVELS, Band, checked_grid, checked_levels
from .gradients import Gradients
from .sandwich import Sandwich, Solved

Array = np.ndarray
WIDE = (0.025, 0.975)
GRID = 300  # points of a curve
MANY_PARAMETERS = "a mixture of {size:,} parameters: ask of(...), log_prob(...) or marginal(...) for what is needed"


class Estimate(NamedTuple):
    """A value and its standard error, of one shape; inf where the rows do not determine it."""

    value: Array
    standard_error: Array


@dataclass(frozen=True, repr=False)
class Errors:
    """Standard errors of a mixture and of whatever is computed from it.

    Parameters
    ----------
    mixture : Mixture
        The fit.
    notes : tuple of str
        What the rows leave undetermined, and whether the mixture is a maximum of their likelihood.
    sandwich : Sandwich or Solved
        What variances are computed by.
    gradients : Gradients
        What gradients are computed by.
    """

    mixture: Mixture
    notes: tuple[str, ...]
    sandwich: Sandwich | Solved
    gradients: Gradients

    @property
    def whole(self) -> bool:
        """Whether errors of all parameters are known, and not only those that are asked for one by one."""
        return isinstance(self.sandwich, Sandwich)

    @property
    def weights(self) -> Array:
        """Standard errors of the weights (k,)."""
        k, d = self.mixture.means.shape
        return self._all((k,), np.eye(k), np.zeros((k, k, d)), np.zeros((k, k, d, d)))

    @property
    def means(self) -> Array:
        """Standard errors of the means (k, d)."""
        k, d = self.mixture.means.shape
        on = np.eye(k * d).reshape(-1, k, d)
        return self._all((k, d), np.zeros((k * d, k)), on, np.zeros((k * d, k, d, d)))

    @property
    def covariances(self) -> Array:
        """Standard errors of the covariances (k, d, d)."""
        k, d = self.mixture.means.shape
        m = k * d * d
        return self._all((k, d, d), np.zeros((m, k)), np.zeros((m, k, d)), np.eye(m).reshape(m, k, d, d))

    @property
    def background_weight(self) -> float:
        """Standard error of the background's weight; 0 for a mixture without one."""
        if self.mixture.background is None:
            return 0.0
        return float(self.of(lambda mixture: mixture.background_weight).standard_error)

    @property
    def nu(self) -> float:
        """Standard error of the tails' degrees of freedom; 0 where they are not fitted."""
        tails = self.mixture.tails
        if tails is None or not tails.fitted:
            return 0.0
        return float(self.of(lambda mixture: mixture.tails.nu).standard_error)

    @property
    def inflation(self) -> Array:
        """Standard errors of factors and jitters (groups, p); 0 where none was fitted, inf where rows do not say."""
        inflation = self.mixture.inflation
        if inflation is None:
            return np.zeros((1, self.mixture.d))
        return self.of(lambda mixture: mixture.inflation.values).standard_error

    def of(self, function: Callable[..., Any], autograd: bool = False) -> Estimate:
        """The value and the standard error of any function of the mixture.

        Parameters
        ----------
        function : callable
            Of a Mixture, returning numbers; with ``autograd`` of three torch tensors: weights (k,), means (k, d) and
            covariances (k, d, d), returning a tensor. What depends on a background's weight, on nu or on factors
            on errors needs differences.
        autograd : bool, default False
            Whether derivatives come from autograd, or from differences.

        Returns
        -------
        Estimate
            Arrays of the shape that the function returns.

        Examples
        --------
        >>> import xdeconv as xd
        >>> X = np.random.default_rng(0).normal(size=(400, 1))
        >>> found = xd.errors(X, xd.fit(X, 1).mixture)
        >>> round(float(found.of(lambda mixture: mixture.covariance()[0, 0] ** 0.5).standard_error), 3)
        0.038
        """
        value, C = self.gradients.by_autograd(function) if autograd else self.gradients.by_differences(function)
        return Estimate(value, self._standard_errors(C).reshape(value.shape))

    def log_prob(self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None) -> Estimate:
        """Log-density of rows, as :meth:`xdeconv.Mixture.log_prob` gives it, and its standard error.

        Parameters
        ----------
        X : array-like (n, p), table or Batch
            Points, or noisy rows; NaN is missing.
        noise : array-like, optional
            Variances (n, p) or covariances (n, p, p); (p,) or (1, p, p) when all rows share them. None: points.
        projection : array-like (n, p, d), optional
            Matrices through which each row sees the true values.
        error : array-like, optional
            Standard deviations (n, p) or (p,), instead of ``noise``.

        Returns
        -------
        Estimate
            (n,) each.
        """
        batch = X if isinstance(X, Batch) else Batch.from_arrays(X, noise, projection, error=error)
        if self.mixture.background is not None:
            batch = cast(ArraySource, as_background(None, ArraySource(batch), self.mixture)[0]).batch
        value, C = self.gradients.of_rows(batch)
        return Estimate(value, self._standard_errors(C))

    def marginal(self, coordinate: Coordinate, grid: Any, levels: Sequence[float] = LEVELS) -> Band:
        """The density of one true coordinate on a grid, and a band around it.

        Parameters
        ----------
        coordinate : str or int
            A coordinate, by its label or its number.
        grid : array-like (m,)
            Values of the coordinate.
        levels : sequence of float, optional
            Probabilities that bound the band.

        Returns
        -------
        Band
            The density (m,) and its band, normal in the logarithm of the density.
        """
        return self.conditional({}, coordinate, grid, levels)

    def conditional(
        self, values: Mapping[Any, float], coordinate: Coordinate, grid: Any, levels: Sequence[float] = LEVELS
    ) -> Band:
        """The density of one true coordinate given true values of others, and a band around it.

        Parameters
        ----------
        values : dict
            {label or number: value}.
        coordinate : str or int
            A coordinate, by its label or its number.
        grid : array-like (m,)
            Values of the coordinate.
        levels : sequence of float, optional
            Probabilities that bound the band.

        Returns
        -------
        Band
            The density (m,) and its band, normal in the logarithm of the density.
        """
        x, bounds = checked_grid(grid), checked_levels(levels)
        (wanted,) = self.mixture.indices([coordinate])
        given = self.mixture.indices(list(values)) if values else []
        if wanted in given:
            raise ValueError(f"coordinate {coordinate!r} is among the values {list(values)}")
        points = np.full((len(x), self.mixture.d), np.nan)
        points[:, given] = list(values.values())
        of_given, C_given = self.gradients.of_rows(Batch.from_arrays(points))
        points[:, wanted] = x
        value, C = self.gradients.of_rows(Batch.from_arrays(points))
        value, C = value - of_given, C - C_given
        wide = norm.ppf(bounds)[:, None] * self._standard_errors(C)
        with np.errstate(over="ignore"):
            return Band(x, np.exp(value), bounds, np.exp(value + wide))

    def plot(self, coordinates: Sequence[Coordinate] | None = None, levels: Sequence[float] = WIDE) -> Array:
        """The density of each true coordinate with a band around it.

        Parameters
        ----------
        coordinates : sequence of str or int, optional
            Which coordinates; all by default.
        levels : sequence of float, optional
            Probabilities that bound the band; of 95 % by default.

        Returns
        -------
        numpy.ndarray
            One axes per coordinate.
        """
        chosen = self.mixture.indices(range(self.mixture.d) if coordinates is None else coordinates)
        wide = min(len(chosen), 4)
        axes = np.atleast_1d(new_axes(-(-len(chosen) // wide), wide, (3.2, 2.6))).ravel()
        for ax in axes[len(chosen) :]:
            ax.set_axis_off()
        for ax, a in zip(axes, chosen, strict=False):
            self.marginal(a, np.linspace(*view(self.mixture, a), GRID), levels).plot(ax)
            ax.set(xlabel=axis_title(self.mixture, a), ylim=(0, None), yticks=[])
        axes[0].lines[0].set_label("true density")
        axes[0].collections[0].set_label(f"{max(levels) - min(levels):.0%}, by standard errors".replace("%", " %"))
        explain(axes[0])
        return axes[: len(chosen)]

    def beside_lines(self) -> list[str]:
        """The background's weight, the tails' nu and factors on errors with their errors, where they are fitted.

        Returns
        -------
        list of str
        """
        lines, tails = [], self.mixture.tails
        if self.mixture.background is not None:
            lines.append(f"background weight {measured(self.mixture.background_weight, self.background_weight)}")
        if tails is not None and tails.nu is not None and tails.fitted:
            lines.append(f"nu {measured(tails.nu, self.nu)}")
        if self.mixture.inflation is not None:
            told = replace(self.mixture.inflation, spread=tuple(map(tuple, self.inflation.tolist())))
            lines += [f"errors of {line}" for line in told.describe(self.mixture.labels)]
        return lines

    def __repr__(self) -> str:
        """The mixture with its errors, a line per component."""
        mixture, names = self.mixture, names_or_numbers(self.mixture.labels, self.mixture.d)
        lines = [f"standard errors of {mixture!r}"]
        if self.whole:
            weights, means, sds = self.weights, self.means, self.of(lambda m: widths(m.covariances))
            for j in range(mixture.k):
                parts = [f"weight {measured(mixture.weights[j], weights[j])}"]
                parts += [f"{n} {measured(m, e)}" for n, m, e in zip(names, mixture.means[j], means[j], strict=True)]
                sd = ", ".join(measured(v, e) for v, e in zip(sds.value[j], sds.standard_error[j], strict=True))
                lines.append(f"  {j}: {', '.join(parts)}; sd {sd}")
            lines += [f"  {line}" for line in self.beside_lines()]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def _all(self, shape: tuple[int, ...], *on: Array) -> Array:
        if not self.whole:
            raise ValueError("standard errors of all parameters are not computed of "
                             + MANY_PARAMETERS.format(size=self.sandwich.chart.size))  # fmt: skip
        return self._standard_errors(self.gradients.pulled(*(torch.from_numpy(a) for a in on))).reshape(shape)

    def _standard_errors(self, C: Tensor) -> Array:
        return self.sandwich.variances(C.to(self.sandwich.chart.means.device)).clamp(min=0.0).sqrt().cpu().numpy()
