"""Standard errors of a fitted mixture without refits: the sandwich H^-1 J H^-1, which holds under misfit too."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from scipy.stats import norm
from torch import Tensor

from ..catalog._open import open as open_catalog
from ..fitting.beside.background import as_background
from ..kernels.parameters import Parameters
from ..methods import EM, Method
from ..methods.chart import Chart
from ..methods.fixed import Fixed
from ..mixture._mixture import Mixture, refuse_no_mixture
from ..mixture.asking import Asked
from ..mixture.coordinates import Coordinate
from ..plot.axes import axis_title, new_axes, view
from ..rows.batch import Batch
from ..rows.data import ArraySource, Source, as_source
from ..system.devices import chosen_device
from ..system.text import measured
from .bands import LEVELS, Band, checked_grid, checked_levels
from .beside import PLAIN, Beside
from .information import scores_of
from .sandwich import Sandwich, Solved
from .undetermined import log_widths, undetermined

log = logging.getLogger("xdeconv")
Array = np.ndarray
MATRIX = 3000  # parameters of which all covariances are computed at once
LEFT, LEFT_EACH = 0.5, 0.1  # nats in all, or per parameter: with more to gain, a mixture is not where errors are of
WIDE = (0.025, 0.975)
GRID = 300  # points of a curve
STEP = 1e-4  # of weights, means over widths, and widths, relative, for functions without autograd
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
    factors : Tensor
        Cholesky factors (k, d, d) of the covariances.
    fixed : Fixed
        Parameters that were held.
    beside : Beside, optional
        A background and tails.
    """

    mixture: Mixture
    notes: tuple[str, ...]
    sandwich: Sandwich | Solved
    factors: Tensor
    fixed: Fixed
    beside: Beside = PLAIN

    @property
    def chart(self) -> Chart:
        """The coordinates that errors are computed in."""
        return self.sandwich.chart

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
        if not self.beside.background:
            return 0.0
        return float(self.of(lambda mixture: mixture.background_weight).standard_error)

    @property
    def nu(self) -> float:
        """Standard error of the tails' degrees of freedom; 0 where they are not fitted."""
        if not len(self.beside.numbers):
            return 0.0
        return float(self.of(lambda mixture: mixture.tails.nu).standard_error)

    def of(self, function: Callable[..., Any], autograd: bool = False) -> Estimate:
        """The value and the standard error of any function of the mixture.

        Parameters
        ----------
        function : callable
            Of a Mixture, returning numbers; with ``autograd`` of three torch tensors: weights (k,), means (k, d) and
            covariances (k, d, d), returning a tensor. What depends on a background's weight or on nu needs differences.
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
        value, C = self._by_autograd(function) if autograd else self._by_differences(function)
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
        if self.beside.background:
            batch = cast(ArraySource, as_background(None, ArraySource(batch), self.mixture)[0]).batch
        value, C = self._rows(batch)
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
        of_given, C_given = self._rows(Batch.from_arrays(points))
        points[:, wanted] = x
        value, C = self._rows(Batch.from_arrays(points))
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
        return axes[: len(chosen)]

    def beside_lines(self) -> list[str]:
        """The background's weight and the tails' nu with their errors, where they are fitted.

        Returns
        -------
        list of str
        """
        lines, tails = [], self.mixture.tails
        if self.beside.background:
            lines.append(f"background weight {measured(self.mixture.background_weight, self.background_weight)}")
        if tails is not None and tails.nu is not None and tails.fitted:
            lines.append(f"nu {measured(tails.nu, self.nu)}")
        return lines

    def __repr__(self) -> str:
        """The mixture with its errors, a line per component."""
        mixture, names = self.mixture, self.mixture.labels or [f"x{a}" for a in range(self.mixture.d)]
        lines = [f"standard errors of {mixture!r}"]
        if self.chart.size <= MATRIX:
            weights, means, widths = self.weights, self.means, self.of(_widths)
            for j in range(mixture.k):
                parts = [f"weight {measured(mixture.weights[j], weights[j])}"]
                parts += [f"{n} {measured(m, e)}" for n, m, e in zip(names, mixture.means[j], means[j], strict=True)]
                sd = ", ".join(measured(v, e) for v, e in zip(widths.value[j], widths.standard_error[j], strict=True))
                lines.append(f"  {j}: {', '.join(parts)}; sd {sd}")
            lines += [f"  {line}" for line in self.beside_lines()]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def _all(self, shape: tuple[int, ...], *on: Array) -> Array:
        if self.chart.size > MATRIX:
            raise ValueError("standard errors of all parameters are not computed of "
                             + MANY_PARAMETERS.format(size=self.chart.size))  # fmt: skip
        return self._standard_errors(self._pulled(*(torch.from_numpy(a) for a in on))).reshape(shape)

    def _standard_errors(self, C: Tensor) -> Array:
        return self.sandwich.variances(C.to(self.chart.means.device)).clamp(min=0.0).sqrt().cpu().numpy()

    def _pulled(self, on_weights: Tensor, on_means: Tensor, on_covariances: Tensor) -> Tensor:
        """Gradients by weights (m, k), means (m, k, d) and covariances (m, k, d, d) as ones by the chart's (m, P)."""
        d, L = self.mixture.d, self.factors
        shares = torch.from_numpy(np.array(self.mixture.shares))
        free = self.sandwich.free[: len(shares)].cpu()
        if self.beside.background:  # weights among components, by weights among all rows
            of_all = on_weights @ torch.from_numpy(np.array(self.mixture.weights))
            on_weights = torch.cat([on_weights, of_all[:, None]], 1) / (1 - shares[-1]).clamp(min=1e-300)
        alpha = torch.where(free, shares, 0.0)
        share = alpha / alpha.sum().clamp(min=1e-300)
        on_logits = alpha * on_weights - share * (on_weights @ alpha)[:, None]
        A = L.mT @ on_covariances @ L
        a, b = torch.tril_indices(d, d)
        entries = (A + A.mT)[..., a, b]
        none = entries.new_zeros(len(entries), len(self.beside.numbers))
        parts = on_logits, torch.einsum("kab,mka->mkb", L, on_means), entries, none
        return torch.cat([part.flatten(1) for part in parts], 1) * self._unit()

    def _unit(self) -> Tensor:
        free = self.sandwich.free
        return (self.chart.unscaled(torch.ones_like(free, dtype=torch.float64)) * free).cpu()

    def _rows(self, batch: Batch) -> tuple[Array, Tensor]:
        """Log-densities (n,) of rows and their gradients (n, P)."""
        free = self.sandwich.free[: len(self.mixture.shares)].cpu()
        value, raw = scores_of(batch, Parameters(*self.mixture.tensors()), self.factors, free, self.beside)
        return value.numpy(), raw * self._unit()

    def _by_autograd(self, function: Callable[..., Any]) -> tuple[Array, Tensor]:
        arrays = (self.mixture.weights, self.mixture.means, self.mixture.covariances)
        inputs = [torch.tensor(array, requires_grad=True) for array in arrays]
        value = function(*inputs)
        if not isinstance(value, Tensor) or not value.requires_grad:
            raise ValueError("with autograd=True, the function must compute a torch tensor from those it is given")
        grads = [torch.autograd.grad(v, inputs, retain_graph=True, allow_unused=True) for v in value.reshape(-1)]
        columns = [torch.stack([torch.zeros_like(x) if g[i] is None else g[i] for g in grads])
                   for i, x in enumerate(inputs)]  # fmt: skip
        return value.detach().numpy(), self._pulled(*columns)

    def _by_differences(self, function: Callable[[Mixture], Any]) -> tuple[Array, Tensor]:
        value = np.asarray(function(self.mixture), dtype=np.float64)
        gradient = np.zeros((value.size, self.chart.size))
        unit = self._unit()
        for e in np.flatnonzero(self.sandwich.free.cpu().numpy()):
            x = torch.zeros_like(unit)
            x[e] = STEP / unit[e]
            ends = [np.asarray(function(self._at(way * x)), dtype=np.float64).reshape(-1) for way in (1, -1)]
            gradient[:, e] = (ends[0] - ends[1]) / (2 * float(x[e]))
        return value, torch.from_numpy(gradient)

    def _at(self, x: Tensor) -> Mixture:
        """The mixture at some place of the chart, in the user's units."""
        m, own, chart = self.mixture, torch.from_numpy(np.array(self.mixture.means)), self.chart
        there = Chart(chart.log_weights.cpu(), own, self.factors, chart.information.cpu(),
                      numbers=chart.numbers.cpu(), certainty=chart.certainty.cpu())  # fmt: skip
        state = there.state(x, self.fixed, 0.0)
        weights, b = state.weights[: m.k], float(1 - state.weights[: m.k].sum()) if self.beside.background else 0.0
        return replace(m, weights=(weights / weights.sum()).numpy(), means=state.means.numpy(),
                       covariances=state.covariances.numpy(), background_weight=min(max(b, 0.0), 1.0),
                       tails=self.beside.at(state.extra).tails)  # fmt: skip


def errors(
    data: Any,
    mixture: Mixture,
    *,
    columns: Sequence[str] | None = None,
    noise: Any = None,
    error: Any = None,
    projection: Any = None,
    weight: Any = None,
    log_prior: Any = None,
    label: Any = None,
    background: Any = None,
    method: Method | None = None,
    device: Any = None,
) -> Errors:
    """How sure a fitted mixture is, without refits: standard errors by one pass over its rows.

    Variances are those of the sandwich H^-1 J H^-1, with H the curvature of the log-likelihood (and prior) and J the
    scatter of the rows' scores: right also where the model is not, as long as the mixture is a maximum and what is
    asked for is nearly linear within its error. See :mod:`xdeconv.studies.information`.

    Parameters
    ----------
    data : array-like (n, p), table, path, Batch or Source
        The rows that the mixture was fitted to; NaN is missing. Tables and files are read as the fit read its own.
    mixture : Mixture
        The fit.
    columns : sequence of str, optional
        Names of the features: data is then whatever :func:`xdeconv.open` reads.
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
    background : array-like (n,), optional
        Log-densities of the rows' background, for a fit that was given them; any other is the mixture's own.
    method : Method, optional
        That of the fit, where it had a prior or held parameters.
    device : str, optional
        cpu or cuda; by default cuda where there is one.

    Returns
    -------
    Errors
        Standard errors of weights, means, covariances, densities and functions of the mixture.

    Examples
    --------
    >>> import xdeconv as xd
    >>> X = np.random.default_rng(0).normal(size=(400, 1))
    >>> errors(X, xd.fit(X, 1).mixture).means.round(4)
    array([[0.0498]])
    """
    refuse_no_mixture(mixture)
    if method is not None and not isinstance(method, Method):
        raise ValueError(f"method must be an xd.EM(...) or xd.SGD(...), got {method!r}")
    data = data if columns is None else open_catalog(data, columns)
    if mixture.selection is not None:
        raise ValueError("standard errors of rows that were selected are not known: xd.bootstrap gives them")
    if mixture.inflation is not None:
        raise ValueError("standard errors with inflated errors are not known: xd.bootstrap gives them")
    given = {"noise": noise, "error": error, "projection": projection, "weight": weight, "log_prior": log_prior,
             "label": label}  # fmt: skip
    asked = Asked(mixture.d, mixture.labels, mixture.units, mixture.meta or {})
    source = as_source(asked.rows(data, given))
    if source.rows == 0:
        raise ValueError("there are no rows to tell errors by")
    _refuse_structures(mixture, method)
    if background is not None and mixture.background is None:
        raise ValueError("background is given, and the mixture was fitted without one")
    source, _ = as_background(background, source, mixture)
    beside = Beside(mixture.background is not None, mixture.tails)
    return _errors(source, mixture, method or EM(), chosen_device(device), beside)


def _errors(source: Source, mixture: Mixture, method: Method, device: torch.device, beside: Beside) -> Errors:
    shift, variance = mixture.mean(), np.diag(mixture.covariance())
    scale = np.sqrt(np.where(variance > 0, variance, 1.0))
    rows = source.standardized(torch.from_numpy(shift), torch.from_numpy(scale), device, torch.float64)
    own, fixed = method.standardized(scale.tolist()), method.fixed or Fixed()
    parameters = _framed(mixture, shift, scale, device)
    factors = _factors(parameters.covariances, fixed)
    way: type[Sandwich] | type[Solved] = Sandwich if mixture.n_parameters < MATRIX else Solved
    sandwich = way.of(rows.arranged(None, 0), parameters, factors, own.prior, fixed, beside)
    found = Errors(mixture, (), sandwich, torch.from_numpy(scale)[:, None] * factors.cpu(), fixed, beside)
    notes = _notes(found)
    for note in notes:
        log.warning(note)
    return replace(found, notes=notes)


def _framed(mixture: Mixture, shift: Array, scale: Array, device: torch.device) -> Parameters:
    """Parameters in other coordinates, with weights among all rows."""
    alone = mixture.with_(background=None).transformed(-shift / scale, 1 / scale).tensors(device)
    shares = torch.from_numpy(np.array(mixture.shares[: mixture.k])).to(device)
    return Parameters(shares.log(), alone.means, alone.covariances)


def _refuse_structures(mixture: Mixture, method: Method | None) -> None:
    """Errors are of full covariances and of means that are held whole or not at all."""
    if mixture.structure != "full" or (method is not None and method.covariance.name != "full"):
        raise ValueError("xd.errors knows only full covariances: ask xd.bootstrap for those of a structure")
    fixed = method.fixed if method is not None else None
    if fixed is not None and bool((fixed.coordinates(mixture.k, mixture.d, "cpu").any(1)
                                   & ~fixed.mask("means", mixture.k, "cpu")).any()):  # fmt: skip
        raise ValueError("xd.errors knows only means that are held whole: ask xd.bootstrap where some coordinates are")


def _factors(covariances: Tensor, fixed: Fixed) -> Tensor:
    """Cholesky factors (k, d, d); of a singular covariance that is held, the widths alone."""
    L, failed = torch.linalg.cholesky_ex(covariances)
    singular = failed > 0
    lost = singular & ~fixed.mask("covariances", len(L), L.device)
    if bool(lost.any()):
        j = int(lost.nonzero()[0, 0])
        raise ValueError(f"component {j} has a singular covariance, which has no errors: fit with a prior, such as "
                         "xd.EM(prior=xd.Prior(w=...)), or hold it with xd.Fixed(covariances=[...])")  # fmt: skip
    widths = covariances.diagonal(dim1=1, dim2=2).clamp(min=1e-300).sqrt()
    return torch.where(singular[:, None, None], torch.diag_embed(widths), L)


def _notes(found: Errors) -> tuple[str, ...]:
    notes = []
    if found.sandwich.left > max(LEFT, LEFT_EACH * found.chart.size):
        notes.append(f"the mixture is about {found.sandwich.left:.2g} nats below a maximum of these rows' likelihood: "
                     "errors are of a maximum; fit on with xd.fit(..., mixture=mixture)")  # fmt: skip
    if found.chart.size > MATRIX:
        return tuple(notes)
    widths = found.of(log_widths).standard_error
    return (*notes, *undetermined(found.mixture, found.weights, found.means, widths))


def _widths(mixture: Mixture) -> Array:
    return np.sqrt(np.einsum("kaa->ka", mixture.covariances))
