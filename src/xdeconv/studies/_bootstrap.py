"""Error bands by the bootstrap: refits to rows drawn again, and how far they scatter."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from scipy.stats import norm

from ..fitting._fit import fit
from ..fitting.beside.background import as_background
from ..fitting.one_of_many import Show, one_of_many
from ..kernels.sight import NOISES, sight_of
from ..methods import EM
from ..mixture._mixture import Mixture, refuse_no_mixture
from ..mixture.coordinates import Coordinate
from ..rows.checks import whole_number
from ..rows.data import ArraySource
from .bands import LEVELS, Band, checked_grid, checked_levels
from .fitted_rows import fitted_fixed, fitted_rows
from .matching import matched
from .trials import show_trials
from .undetermined import log_widths, undetermined

log = logging.getLogger("xdeconv")
Array = np.ndarray
OWN = ("components", "checkpoint", "validation")  # of fit's arguments, not for a bootstrap


@dataclass(frozen=True)
class StandardErrors:
    """Standard errors of weights (k,), means (k, d) and covariances (k, d, d)."""

    weights: Array
    means: Array
    covariances: Array


@dataclass(frozen=True)
class Bootstrap:
    """Refits of a mixture to rows drawn again; component j of each is the counterpart of its component j.

    Parameters
    ----------
    mixture : Mixture
        The fit to all rows.
    mixtures : tuple of Mixture
        One per draw; after an interrupt, those that were finished.
    interrupted : bool, default False
        Whether the draws were interrupted.
    short : int, default 0
        How many draws stopped before they had converged.
    """

    mixture: Mixture
    mixtures: tuple[Mixture, ...]
    interrupted: bool = False
    short: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What the rows leave undetermined, by the scatter of the draws, and whether draws have not converged."""
        said = [f"{self.short} of {len(self.mixtures)} draws have not converged: give epochs= or tol="] * bool(
            self.short
        )
        if len(self.mixtures) < 2:
            return tuple(said)
        errors = self.standard_errors()
        widths = np.std([log_widths(m) for m in self.mixtures], axis=0, ddof=1)
        return (*said, *undetermined(self.mixture, errors.weights, errors.means, widths))

    @property
    def weights(self) -> Array:
        """Weights of all draws (draws, k)."""
        return np.stack([mixture.weights for mixture in self.mixtures])

    @property
    def means(self) -> Array:
        """Means of all draws (draws, k, d)."""
        return np.stack([mixture.means for mixture in self.mixtures])

    @property
    def covariances(self) -> Array:
        """Covariances of all draws (draws, k, d, d)."""
        return np.stack([mixture.covariances for mixture in self.mixtures])

    def standard_errors(self) -> StandardErrors:
        """Standard deviations of the parameters over the draws.

        Returns
        -------
        StandardErrors
            Of weights (k,), means (k, d) and covariances (k, d, d).
        """
        if len(self.mixtures) < 2:
            raise ValueError(f"standard errors need at least 2 draws, there is {len(self.mixtures)}")
        return StandardErrors(*(a.std(0, ddof=1) for a in (self.weights, self.means, self.covariances)))

    def marginal(self, coordinate: Coordinate, grid: Any, levels: Sequence[float] = LEVELS) -> Band:
        """The density of one true coordinate on a grid, and a band around it.

        Parameters
        ----------
        coordinate : str or int
            A coordinate, by its label or its number.
        grid : array-like (m,)
            Values of the coordinate.
        levels : sequence of float, optional
            Probabilities that bound the band, normal in the logarithm of the density.

        Returns
        -------
        Band
            The density (m,) and its band.
        """
        return self._band([m.marginal([coordinate]) for m in (self.mixture, *self.mixtures)], grid, levels)

    def conditional(
        self, values: Mapping[Any, float], coordinate: Coordinate, grid: Any, levels: Sequence[float] = LEVELS, *,
        noise: Any = None, error: Any = None,
    ) -> Band:  # fmt: skip
        """The density of one true coordinate given observed values of others, and a band around it.

        Parameters
        ----------
        values : dict
            {label or number: observed value}.
        coordinate : str or int
            A coordinate, by its label or its number.
        grid : array-like (m,)
            Values of the coordinate.
        levels : sequence of float, optional
            Probabilities that bound the band, normal in the logarithm of the density.
        noise : dict, optional
            Variances of the values: {label or number: variance}.
        error : dict, optional
            Standard deviations, instead of ``noise``.

        Returns
        -------
        Band
            The density (m,) and its band.
        """
        return self._band([_given(m, values, coordinate, noise, error) for m in (self.mixture, *self.mixtures)],
                          grid, levels)  # fmt: skip

    def score(
        self, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None, weight: Any = None
    ) -> Array:
        """Mean log-density of rows per unit of weight under each draw.

        Parameters
        ----------
        X : array-like (n, p), table or Batch
            Noisy rows; NaN is missing.
        noise : array-like, optional
            Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
        projection : array-like (n, p, d), optional
            Matrices through which each row sees the true values.
        error : array-like, optional
            Standard deviations (n, p) or (p,), instead of ``noise``.
        weight : array-like (n,), optional
            How much each row counts; 1 by default.

        Returns
        -------
        numpy.ndarray (draws,)
            Natural logarithms.
        """
        batch = self.mixture.batch(X, noise, projection, error=error, weight=weight)
        return np.array([mixture.score(batch) for mixture in self.mixtures])

    def _band(self, lines: Sequence[Mixture], grid: Any, levels: Sequence[float]) -> Band:
        x, bounds = checked_grid(grid), checked_levels(levels)
        first, *others = (np.log(np.maximum(_density(line, x), 1e-300)) for line in lines)
        error = np.sqrt(np.mean((np.array(others) - first) ** 2, axis=0))  # quantiles of few draws would be too narrow
        return Band(x, np.exp(first), bounds, np.exp(first + norm.ppf(bounds)[:, None] * error))


def bootstrap(
    data: Any,
    mixture: Mixture,
    draws: int = 50,
    seed: int = 0,
    *,
    noise: Any = None,
    error: Any = None,
    projection: Any = None,
    weight: Any = None,
    log_prior: Any = None,
    label: Any = None,
    verbose: bool | None = None,
    **options: Any,
) -> Bootstrap:
    """How far a fitted mixture may be trusted: refit it to rows drawn again.

    Each draw weighs every row by a Poisson number of mean 1 that depends on ``seed`` and the draw alone, starts from
    ``mixture``, and has its components matched to those of ``mixture``. The method is batch EM, with what the
    fit held fixed, unless the options say otherwise.

    Parameters
    ----------
    data : array-like (n, p), table, path, Batch or Source
        The rows that the mixture was fitted to; NaN is missing. A table or a file is read as the fit read its own, and
        all rows are held in memory.
    mixture : Mixture
        The fit.
    draws : int, default 50
        How many refits.
    seed : int, default 0
        The same seed gives the same result.
    noise : array-like, optional
        Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
    error : array-like, optional
        Standard deviations (n, p) or (p,), instead of ``noise``.
    projection : array-like (n, p, d), optional
        Matrices through which each row sees the true values.
    weight : array-like (n,), optional
        How much each row counts; 1 by default.
    log_prior : array-like (n, k), optional
        Added to the log-weights, row by row; -inf rules a component out.
    label : array-like (n,), optional
        The class of each row, where ``log_prior`` is a table of classes.
    verbose : bool, optional
        Whether to show progress: by default on a terminal or in a notebook, after two seconds; with True always, with
        False never.
    **options : dict
        Anything else that :func:`xdeconv.fit` takes.

    Returns
    -------
    Bootstrap
        The refits.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(400, 1))
    >>> found = bootstrap(X, fit(X, 1).mixture, draws=20)
    >>> found.standard_errors().means.round(2)
    array([[0.05]])
    """
    refuse_no_mixture(mixture)
    refused = [name for name in OWN if name in options]
    if refused:
        raise ValueError(f"a bootstrap makes many fits that start from mixture: {', '.join(refused)} cannot be given")
    draws = whole_number(draws, "draws", 1)
    given = {"noise": noise, "error": error, "projection": projection, "weight": weight, "log_prior": log_prior}
    source = fitted_rows(data, mixture, {**given, "label": label}).load()
    background = options.pop("background", None)
    if background is not None:
        source = cast(ArraySource, as_background(background, source, None)[0])
    mixtures: list[Mixture] = []
    short = 0
    with show_trials(verbose, draws) as show:
        try:
            for draw in range(draws):
                drawn, converged = _draw(
                    source, mixture, seed, draw, show, {"method": EM(fixed=fitted_fixed(mixture)), **options}
                )
                mixtures.append(drawn)
                short += not converged
        except KeyboardInterrupt:
            log.warning("interrupted with %d of %d draws done", len(mixtures), draws)
            if not mixtures:
                raise
    refits = Bootstrap(mixture, tuple(mixtures), len(mixtures) < draws, short)
    for note in refits.notes:
        log.warning(note)
    return refits


def _draw(
    source: ArraySource, mixture: Mixture, seed: int, draw: int, show: Show, options: Mapping[str, Any]
) -> tuple[Mixture, bool]:
    """One refit, matched, and whether it has converged."""
    name, rows = f"draw {draw + 1}", resampled(source, seed, draw)
    result = one_of_many(fit, name, show, rows, **{"mixture": mixture, "seed": seed, **options})
    show(f"{name}: log-likelihood {result.loglik:.4f}", 1)
    some = torch.linspace(0, source.rows - 1, min(NOISES, source.rows)).long().to(source.batch.device)
    sight = sight_of(source.batch.rows(some).to(dtype=torch.float64))
    return matched(result.mixture, mixture, sight), result.converged


def resampled(source: ArraySource, seed: int, draw: int) -> ArraySource:
    """The rows that are drawn, each weighing as often as it is."""
    times = torch.from_numpy(np.random.default_rng([seed, draw]).poisson(1.0, source.rows)).to(source.batch.device)
    some = times.nonzero()[:, 0]
    if not len(some):
        raise ValueError(f"draw {draw} of {source.rows} rows has none: a bootstrap needs more rows")
    batch = source.batch.rows(some)
    weight = times[some].to(batch.dtype)
    return replace(source, batch=replace(batch, weight=weight if batch.weight is None else weight * batch.weight))


def _given(mixture: Mixture, values: Mapping[Any, float], coordinate: Coordinate, noise: Any, error: Any) -> Mixture:
    """One coordinate, given others; an index counts among all coordinates of the mixture."""
    (wanted,), given = mixture.indices([coordinate]), mixture.indices(list(values))
    if wanted in given:
        raise ValueError(f"coordinate {coordinate!r} is among the values {list(values)}")
    left = [a for a in range(mixture.d) if a not in given]
    return mixture.condition(values, noise, error=error).marginal([left.index(wanted)])


def _density(line: Mixture, grid: Array) -> Array:
    """Density (m,) of a mixture of one dimension."""
    return norm.pdf(grid[:, None], line.means[:, 0], np.sqrt(line.covariances[:, 0, 0])) @ line.weights
