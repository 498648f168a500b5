"""Densities of one and two coordinates, in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from ..mixture._mixture import Mixture
from ..mixture.coordinates import Coordinate
from ..rows import checks
from .axes import (  # fmt: skip
    COMPONENT,
    DATA,
    DENSITY,
    NOISY,
    Array,
    Given,
    at,
    axis_title,
    crowding,
    name_axes,
    new_axes,
    opacity,
    rows_of,
    scatter,
    some,
    thin,
    values_of,
)
from .convolving import noisy_density
from .viewing import Limits, blurred, views, within

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENCLOSED = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.68, 0.8, 0.9, 0.95, 0.99)  # of the probability, inside each contour
FLAT, PLATEAU = 1e-3, 0.02  # densities are alike within this; a plateau is so much probability at one density
NEAR = 0.01  # so much probability does a grid add or leave out
BARS = 60
EXPECTED = "expected with noise"


def density_2d(
    mixture: Mixture,
    coordinates: Sequence[Coordinate],
    ax: Axes | None = None,
    *,
    given: Given | None = None,
    limits: Any = None,
    enclosed: Sequence[float] = ENCLOSED,
    bins: int = 200,
    cmap: str = DENSITY,
    alpha: float = 1.0,
    data: Any = None,
    points: int = 5000,
) -> Axes:
    """The density of two coordinates, at ``given`` others: bands that enclose given fractions of what is shown.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    coordinates : sequence of str or int
        The two coordinates.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    given : dict, optional
        Values at which other coordinates are held: {label or number: value}.
    limits : tuple or dict, optional
        The intervals that are shown: (low, high) of both, or {coordinate: (low, high)} of some; by default what
        shows every component of some weight.
    enclosed : sequence of float, optional
        Fractions of the probability that the bands enclose.
    bins : int, default 200
        Points of the grid along an axis.
    cmap : str, optional
        A colour map of matplotlib.
    alpha : float, default 1.0
        Opacity of the bands.
    data : array-like (n, d), table or Batch, optional
        Noisy rows, drawn as dots over the bands; NaN is missing.
    points : int, default 5000
        At most so many rows are drawn, of those that are in view.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on.
    """
    mixture = at(mixture, given)
    pair = some(mixture, coordinates, 2)
    ax = new_axes() if ax is None else ax
    from matplotlib import colormaps

    rows = None if data is None else values_of(rows_of(mixture, data), mixture.indices(coordinates))
    wide, high = views(mixture, coordinates, limits, rows)
    if rows is not None:
        shown = rows[within(rows, wide, high)]
        scatter(ax, shown[thin(len(shown), points)], zorder=1.5)  # between bands and lines
    x, y, density = on_grid(pair, wide, high, bins)
    levels = enclosing_levels(density, enclosed)
    shades = colormaps[cmap](np.linspace(0.05, 0.9, len(levels)))
    ax.contourf(x, y, density, levels=[*levels, np.inf], colors=shades, alpha=alpha)
    ax.contour(x, y, density, levels=levels, colors="k", linewidths=0.4, alpha=0.5)
    shares = " to ".join(percents(density, levels, enclosed)[:: max(len(levels) - 1, 1)])
    ax.fill([], [], color=shades[len(shades) // 2], label=f"true density: {shares} % within contours")
    ax.set(xlim=wide, ylim=high)
    return name_axes(ax, mixture, coordinates)


def marginal_1d(
    mixture: Mixture,
    coordinate: Coordinate,
    ax: Axes | None = None,
    *,
    data: Any = None,
    noise: Any = None,
    error: Any = None,
    given: Given | None = None,
    limits: Limits | Mapping[Any, Limits] | None = None,
    components: bool = True,
    bins: int = 400,
) -> Axes:
    """The density of one coordinate, its components below it, over a histogram of the rows.

    With the rows' noise a dashed line shows what the model expects of the noisy values: that is what the histogram
    should follow, unless rows were selected. :func:`corner` knows whole rows, and what is expected of those kept.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    coordinate : str or int
        A coordinate, by its label or its number.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    data : array-like (n,), optional
        Noisy values of the coordinate.
    noise : array-like (n,) or float, optional
        Variances of the values.
    error : array-like (n,) or float, optional
        Standard deviations, instead of ``noise``.
    given : dict, optional
        Values at which other coordinates are held: {label or number: value}.
    limits : tuple or dict, optional
        The interval that is shown: (low, high) or {coordinate: (low, high)}; by default what shows every component
        of some weight, and the values.
    components : bool, default True
        Whether the components are drawn too.
    bins : int, default 400
        Points of the grid along an axis.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on.
    """
    mixture = at(mixture, given)
    line = some(mixture, [coordinate], 1)
    ax = new_axes() if ax is None else ax
    values, variances = _observed(data, noise, error)
    ((low, high),) = views(mixture, [coordinate], [limits] if isinstance(limits, tuple) else limits, values[:, None])
    x = np.linspace(low, high, bins)
    fine = _fine(line, x)
    if len(values):
        _histogram(ax, values, low, high)
    if components:
        _components(ax, line, fine)
    ax.plot(fine, np.exp(line.log_prob(fine[:, None])), color="k", lw=1.2, label="true density")
    if variances is not None and len(values):
        said = EXPECTED if mixture.selection is None else f"{EXPECTED}, of rows kept or not"
        ax.plot(x, noisy_density(line, x, variances), "--", color=NOISY, lw=1.0, label=said)
    ax.set_xlim(low, high)
    ax.set_ylim(bottom=0)
    ax.set_xlabel(axis_title(mixture, coordinate))
    ax.set_ylabel("density")
    return ax


def enclosing_levels(density: Array, enclosed: Sequence[float]) -> Array:
    """Increasing densities whose contours enclose the fractions ``enclosed`` of a density on an even grid.

    Parameters
    ----------
    density : numpy.ndarray
        A density on an even grid.
    enclosed : sequence of float
        Fractions of the probability.

    Returns
    -------
    numpy.ndarray
        One density per fraction, increasing.
    """
    ordered = np.sort(density, axis=None)[::-1]
    inside = np.cumsum(ordered) / ordered.sum()
    levels = ordered[np.minimum(np.searchsorted(inside, enclosed), ordered.size - 1)]
    return np.unique([_off_a_plateau(ordered, level) for level in levels])


def _off_a_plateau(ordered: Array, level: float) -> float:
    """The level, or the foot of the plateau that it lies on: within a uniform background a contour is rounding."""
    alike = ordered[np.abs(ordered - level) < FLAT * level]
    return alike[-1] * (1 - FLAT) if alike.sum() > PLATEAU * ordered.sum() else level


def percents(density: Array, levels: Array, enclosed: Sequence[float]) -> list[str]:
    """What contours should enclose, the least first; of the outermost what it does, if a plateau makes it more."""
    asked = sorted(enclosed)[: len(levels) - 1]
    most = density[density >= levels[0]].sum() / density.sum()
    outermost = max(enclosed) if abs(most - max(enclosed)) < NEAR else most
    return [f"{100 * share:.3g}" for share in (*asked, outermost)]


def on_grid(pair: Mixture, wide: Limits, high: Limits, bins: int) -> tuple[Array, Array, Array]:
    """x (bins,), y (bins,) and the density (bins, bins) of two coordinates, rows along y."""
    x, y = np.linspace(*wide, bins), np.linspace(*high, bins)
    grid = np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)
    pair = blurred(pair, np.array([x[1] - x[0], y[1] - y[0]]))
    return x, y, np.exp(pair.log_prob(grid)).reshape(bins, bins)


def _fine(line: Mixture, x: Array) -> Array:
    """Values of a coordinate, more of them about the components, none of which may fall between two."""
    sd = np.sqrt(line.covariances[:, 0])
    places = (line.means + sd * np.linspace(-4, 4, 17))[sd[:, 0] > 1e-9 * np.ptp(x)].ravel()
    return np.union1d(x, places[(places > x[0]) & (places < x[-1])])


def _components(ax: Axes, line: Mixture, x: Array) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    order = np.argsort(line.weights)
    parts = line.gaussians()  # several beside each other for a component of heavy tails
    each = norm.pdf(x, parts.means, np.sqrt(parts.covariances[:, 0])) * parts.shares[: parts.k, None]
    each = each.reshape(line.k, -1, len(x)).sum(axis=1)[order]
    colors = np.tile(to_rgba(COMPONENT), (line.k, 1))
    colors[:, 3] = opacity(line.weights)[order]
    curves = np.stack(np.broadcast_arrays(x, each), axis=-1)
    ax.add_collection(LineCollection(list(curves), colors=colors, lw=1.2 * max(crowding(line.weights), 0.4)))
    ax.plot([], [], color=COMPONENT, lw=1.2, label="components")


def _histogram(ax: Axes, values: Array, low: float, high: float) -> None:
    inside = values[(values >= low) & (values <= high)]
    share = np.full(len(inside), BARS / ((high - low) * len(values)))
    ax.hist(inside, bins=BARS, range=(low, high), weights=share, color=DATA, alpha=0.2, label="histogram of rows")


def _observed(data: Any, noise: Any, error: Any) -> tuple[Array, Array | None]:
    """The values that are there, and the variances of their noise if any is given."""
    if noise is not None and error is not None:
        raise ValueError("give noise (variances) or error (standard deviations), not both")
    values = np.empty(0) if data is None else checks.to_array(data, "data").ravel()
    spread = error if noise is None else noise
    if spread is None:
        return values[np.isfinite(values)], None
    known = checks.to_array(spread, "noise").ravel()
    if known.size not in (1, len(values)):
        raise ValueError(f"data has {len(values)} values and its noise or error {known.size}")
    variances = np.broadcast_to(known if noise is not None else known**2, values.shape)[np.isfinite(values)]
    bad = ~(np.isfinite(variances) & (variances >= 0))
    if bad.any():
        raise ValueError(f"noise of value {int(bad.argmax())} of those observed is negative or not finite")
    return values[np.isfinite(values)], variances
