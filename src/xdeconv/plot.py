"""Pictures of a mixture: functions that take a Mixture, draw on matplotlib axes and return them.

Labels and units come from the model. Densities are the closed form, on a grid, never a histogram of draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import norm

from .history import Epoch
from .mixture import Coordinate, Mixture, square_root

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray
Limits = tuple[float, float]

INSTALL = "pictures need matplotlib: pip install 'xdeconv[plot]'"
ENCLOSED = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.68, 0.8, 0.9, 0.95, 0.99)  # of the probability, inside each contour
TAIL = 0.003  # of the probability, beyond each end of an axis
FAINTEST = 0.08  # opacity of the lightest component
DENSITY, COMPONENT, DATA = "Blues", "tab:orange", "0.25"


def new_axes(rows: int = 1, columns: int = 1, size: float = 4.0) -> Any:
    """Axes (rows, columns) of a new figure, or the axes when there is only one; the figure is ``axes.figure``."""
    try:
        from matplotlib.figure import Figure
    except ImportError as problem:
        raise ImportError(INSTALL) from problem
    figure = Figure(figsize=(columns * size + 0.5, rows * size), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return axes if axes.size > 1 else axes[0, 0]


def density_2d(
    mixture: Mixture,
    coordinates: Sequence[Coordinate],
    ax: Axes | None = None,
    *,
    limits: tuple[Limits, Limits] | None = None,
    enclosed: Sequence[float] = ENCLOSED,
    bins: int = 200,
    cmap: str = DENSITY,
) -> Axes:
    """The density of two coordinates: bands that enclose given fractions of what is shown."""
    pair = _some(mixture, coordinates, 2)
    ax = new_axes() if ax is None else ax
    from matplotlib import colormaps

    wide, high = limits or (span(pair, 0), span(pair, 1))
    x, y = np.linspace(*wide, bins), np.linspace(*high, bins)
    grid = np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)
    density = np.exp(pair.log_prob(grid)).reshape(bins, bins)
    levels = enclosing_levels(density, enclosed)
    shades = colormaps[cmap](np.linspace(0.05, 0.9, len(levels)))
    ax.contourf(x, y, density, levels=[*levels, np.inf], colors=shades)
    ax.contour(x, y, density, levels=levels, colors="k", linewidths=0.4, alpha=0.5)
    ax.set(xlim=wide, ylim=high)
    return _name(ax, mixture, coordinates)


def ellipses(
    mixture: Mixture,
    coordinates: Sequence[Coordinate],
    ax: Axes | None = None,
    *,
    sigma: float = 1.0,
    color: Any = COMPONENT,
    linewidth: float = 1.2,
) -> Axes:
    """An ellipse of ``sigma`` standard deviations for each component; the heavier, the more opaque."""
    pair = _some(mixture, coordinates, 2)
    ax = new_axes() if ax is None else ax
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    around = np.linspace(0, 2 * np.pi, 65)
    circle = sigma * np.stack([np.cos(around), np.sin(around)])
    curves = pair.means[:, :, None] + square_root(pair.covariances) @ circle
    colors = np.tile(to_rgba(color), (pair.k, 1))
    colors[:, 3] *= opacity(pair.weights)
    order = np.argsort(pair.weights)
    ax.add_collection(LineCollection(list(curves[order].transpose(0, 2, 1)), colors=colors[order], lw=linewidth))
    ax.autoscale_view()
    return _name(ax, mixture, coordinates)


def marginal_1d(
    mixture: Mixture,
    coordinate: Coordinate,
    ax: Axes | None = None,
    *,
    data: Any = None,
    limits: Limits | None = None,
    components: bool = True,
    bins: int = 400,
) -> Axes:
    """The density of one coordinate, its components below it, and a histogram of ``data`` (n,) when given."""
    line = _some(mixture, [coordinate], 1)
    ax = new_axes() if ax is None else ax
    low, high = limits or span(line, 0)
    x = np.linspace(low, high, bins)
    if data is not None:
        values = _observed(data)
        inside = values[(values >= low) & (values <= high)]
        share = np.full(len(inside), 60 / ((high - low) * max(len(values), 1)))
        ax.hist(inside, bins=60, range=(low, high), weights=share, color=DATA, alpha=0.2)
    if components:
        for j in np.argsort(line.weights):
            each = line.weights[j] * norm.pdf(x, line.means[j], np.sqrt(line.covariances[j, 0]))
            ax.plot(x, each, color=COMPONENT, lw=0.8, alpha=float(opacity(line.weights)[j]))
    ax.plot(x, np.exp(line.log_prob(x[:, None])), color="k", lw=1.2)
    ax.set_xlim(low, high)
    ax.set_ylim(bottom=0)
    ax.set_xlabel(axis_title(mixture, coordinate))
    ax.set_ylabel("density")
    return ax


def corner(
    mixture: Mixture,
    data: Any = None,
    coordinates: Sequence[Coordinate] | None = None,
    *,
    components: bool = False,
    size: float = 2.2,
    points: int = 5000,
) -> Array:
    """A triangle of axes (d, d): marginals on the diagonal, pairs below it, over at most ``points`` of data (n, d)."""
    chosen = mixture.indices(range(mixture.d) if coordinates is None else coordinates)
    axes = np.atleast_2d(new_axes(len(chosen), len(chosen), size))
    limits = [span(mixture, a) for a in chosen]
    rows = None if data is None else np.asarray(data, dtype=float)[:, chosen]
    for i, a in enumerate(chosen):
        values = None if rows is None else rows[:, i]
        marginal_1d(mixture, a, axes[i, i], data=values, limits=limits[i], components=components)
        axes[i, i].set(ylabel="", yticks=[])
        for j, b in enumerate(chosen[:i]):
            _pair(mixture, (b, a), axes[i, j], (limits[j], limits[i]), components)
            if rows is not None:
                few = rows[:: max(1, len(rows) // points)]
                axes[i, j].plot(few[:, j], few[:, i], ",", color=DATA, alpha=0.3)
    for ax in axes[np.triu_indices(len(chosen), 1)]:
        ax.set_axis_off()
    for ax in axes.flat:
        ax.label_outer()
    return axes


def history(records: Iterable[Epoch], ax: Axes | None = None, *, against: str = "epoch") -> Axes:
    """Log-likelihood per row against ``epoch`` or ``seconds``, one line a restart; held-out rows are dashed."""
    if against not in ("epoch", "seconds"):
        raise ValueError(f"against must be 'epoch' or 'seconds', got {against!r}")
    ax = new_axes() if ax is None else ax
    all_records = list(records)
    for restart in sorted({record.restart for record in all_records}):
        mine = [record for record in all_records if record.restart == restart]
        x = [getattr(record, against) for record in mine]
        (line,) = ax.plot(x, [record.loglik for record in mine], label=f"start {restart + 1}")
        held_out = [(at, r.validation) for at, r in zip(x, mine, strict=True) if r.validation is not None]
        if held_out:
            ax.plot(*np.transpose(held_out), "--", color=line.get_color(), label=f"start {restart + 1}, held out")
    ax.set_xlabel(against)
    ax.set_ylabel("log-likelihood per row")
    if ax.lines:
        ax.legend()
    return ax


# What is drawn


def span(mixture: Mixture, coordinate: Coordinate, tail: float = TAIL) -> Limits:
    """The interval of a coordinate that leaves about ``tail`` of the probability beyond each end."""
    line = mixture.marginal([coordinate])
    z = ndtri((np.arange(400) + 0.5) / 400)
    points = (line.means + np.sqrt(line.covariances[:, 0]) * z).ravel()
    order = np.argsort(points)
    below = np.cumsum(np.repeat(line.weights / len(z), len(z))[order])
    low, high = np.interp([tail, 1 - tail], below, points[order])
    return (float(low), float(high)) if high > low else (float(low) - 0.5, float(high) + 0.5)


def enclosing_levels(density: Array, enclosed: Sequence[float]) -> Array:
    """Increasing densities whose contours enclose the fractions ``enclosed`` of a density on an even grid."""
    ordered = np.sort(density, axis=None)[::-1]
    inside = np.cumsum(ordered) / ordered.sum()
    return np.unique(ordered[np.minimum(np.searchsorted(inside, enclosed), ordered.size - 1)])


def opacity(weights: Array) -> Array:
    """Opacities (k,): 1 for the heaviest component, less in proportion to the weight, never quite nothing."""
    return np.minimum(FAINTEST + (1 - FAINTEST) * weights / weights.max(), 1.0)  # rounding may pass 1


def axis_title(mixture: Mixture, coordinate: Coordinate) -> str:
    """The label of a coordinate with its unit, or its number when the model names nothing."""
    a = mixture.indices(coordinate)[0]
    name = mixture.labels[a] if mixture.labels else f"coordinate {a}"
    return f"{name} [{mixture.units[a]}]" if mixture.units and mixture.units[a] else name


def _pair(mixture: Mixture, pair: Sequence[int], ax: Axes, limits: tuple[Limits, Limits], components: bool) -> None:
    density_2d(mixture, pair, ax, limits=limits, bins=100)
    if components:
        ellipses(mixture, pair, ax)


def _some(mixture: Mixture, coordinates: Sequence[Coordinate], count: int) -> Mixture:
    if isinstance(coordinates, str) or len(coordinates) != count:
        raise ValueError(f"give {count} coordinates, by label or index, got {coordinates!r}")
    return mixture.marginal(coordinates)


def _observed(data: Any) -> Array:
    values = np.asarray(data, dtype=float).ravel()
    return values[np.isfinite(values)]


def _name(ax: Axes, mixture: Mixture, coordinates: Sequence[Coordinate]) -> Axes:
    ax.set_xlabel(axis_title(mixture, coordinates[0]))
    ax.set_ylabel(axis_title(mixture, coordinates[1]))
    return ax
