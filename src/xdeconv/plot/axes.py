"""What every picture shares: new axes, their titles and limits, colours, and rows in the model's coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from ..mixture._mixture import Mixture
from ..mixture.background import Uniform
from ..mixture.coordinates import Coordinate
from ..rows.batch import Batch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray
Limits = tuple[float, float]
Given = Mapping[Any, float]
"""Values of other coordinates, {label or index: value}, at which a density is taken."""

INSTALL = "pictures need matplotlib: pip install 'xdeconv[plot]'"
TAIL = 0.003  # of the probability, beyond each end of an axis
HEAVY = 0.01  # weight of a component that an axis must not cut off
REACH = 3.3  # standard deviations of such a component that are shown
FAINTEST, FAINT_OF_FEW, FEW = 0.08, 0.45, 12  # opacity of the lightest component, and where there are few
CROWD = 80  # as many components of equal weight may all be opaque
DENSITY, COMPONENT, DATA, NOISY = "Blues", "#e8590c", "0.25", "tab:red"
ON_DARK = "#40c4ff"  # components over a dark map


def new_axes(rows: int = 1, columns: int = 1, size: float | tuple[float, float] = 4.0, **options: Any) -> Any:
    """Axes of a new figure, or the axes when there is only one; the figure is ``axes.figure``.

    Parameters
    ----------
    rows : int, default 1
        Rows of axes.
    columns : int, default 1
        Columns of axes.
    size : float or (float, float), default 4.0
        Inches of each axes, or (width, height).
    **options : dict
        Other options are those of ``Figure.subplots``.

    Returns
    -------
    matplotlib.axes.Axes or numpy.ndarray (rows, columns)
        One axes, or all of them.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as problem:
        raise ImportError(INSTALL) from problem
    wide, high = (size, size) if isinstance(size, (int, float)) else size
    figure = Figure(figsize=(columns * wide + 0.5, rows * high), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return axes if axes.size > 1 else axes[0, 0]


def axis_title(mixture: Mixture, coordinate: Coordinate) -> str:
    """The label of a coordinate with its unit, or its number when the model names nothing.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    coordinate : str or int
        A coordinate, by its label or its number.

    Returns
    -------
    str
        The title, such as ``parallax [mas]``.
    """
    a = mixture.indices(coordinate)[0]
    unit = unit_of(mixture, a)
    return f"{name_of(mixture, a)} [{unit}]" if unit else name_of(mixture, a)


def name_of(mixture: Mixture, coordinate: Coordinate) -> str:
    """The label of a coordinate, or its number."""
    a = mixture.indices(coordinate)[0]
    return mixture.labels[a] if mixture.labels else f"coordinate {a}"


def unit_of(mixture: Mixture, coordinate: Coordinate) -> str:
    """The unit of a coordinate, or nothing."""
    a = mixture.indices(coordinate)[0]
    return mixture.units[a] if mixture.units else ""


def name_axes(ax: Axes, mixture: Mixture, coordinates: Sequence[Coordinate]) -> Axes:
    """Titles of both axes from the model."""
    ax.set_xlabel(axis_title(mixture, coordinates[0]))
    ax.set_ylabel(axis_title(mixture, coordinates[1]))
    return ax


def view(mixture: Mixture, coordinate: Coordinate, tail: float = TAIL) -> Limits:
    """The interval of a coordinate to draw: what :func:`span` says, and all of every component that has some weight.

    A component that is far wider than the rest widens it at most to twice its length on either side.
    """
    low, high = span(mixture, coordinate, tail)
    line = mixture.marginal([coordinate])
    heavy = line.weights >= HEAVY
    mean, reach = line.means[heavy, 0], REACH * np.sqrt(line.covariances[heavy, 0, 0])
    room = high - low
    if isinstance(line.background, Uniform) and line.background_weight >= HEAVY:
        return min(low, *line.background.low), max(high, *line.background.high)
    low = max(min([low, *(mean - reach)]), low - room)
    high = min(max([high, *(mean + reach)]), high + room)
    return float(low), float(high)


def views(
    mixture: Mixture, coordinates: Sequence[Coordinate], limits: Any = None, rows: Array | None = None,
    tail: float = TAIL,
) -> list[Limits]:  # fmt: skip
    """Limits of each coordinate: those given, as a sequence or as {coordinate: (low, high)}, else what shows all."""
    if limits is not None and not isinstance(limits, Mapping):
        return list(limits)
    told = {mixture.indices(name)[0]: ends for name, ends in (limits or {}).items()}
    shown = []
    for i, a in enumerate(mixture.indices(coordinates)):
        whole = view(mixture, a, tail)
        shown.append(told.get(a) or (whole if rows is None else with_rows(whole, rows[:, i])))
    return shown


def span(mixture: Mixture, coordinate: Coordinate, tail: float = TAIL) -> Limits:
    """The interval of a coordinate that leaves about ``tail`` of the probability beyond each end.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    coordinate : str or int
        A coordinate, by its label or its number.
    tail : float, optional
        The probability beyond each end.

    Returns
    -------
    tuple of float
        The ends of the interval.
    """
    line = mixture.marginal([coordinate])
    z = ndtri((np.arange(400) + 0.5) / 400)
    points = (line.means + np.sqrt(line.covariances[:, 0]) * z).ravel()
    order = np.argsort(points)
    below = np.cumsum(np.repeat(line.weights / len(z), len(z))[order])
    low, high = np.interp([tail, 1 - tail], below, points[order])
    return (float(low), float(high)) if high > low else (float(low) - 0.5, float(high) + 0.5)


def with_rows(limits: Limits, values: Array, tail: float = 0.01) -> Limits:
    """Limits widened to hold all but ``tail`` of the observed values at each end."""
    seen = values[np.isfinite(values)]
    if not len(seen):
        return limits
    low, high = np.quantile(seen, [tail, 1 - tail])
    return min(limits[0], float(low)), max(limits[1], float(high))


def opacity(weights: Array) -> Array:
    """Opacities in proportion to the weight, never quite nothing; 1 for the heaviest unless there is a crowd.

    Parameters
    ----------
    weights : numpy.ndarray (k,)
        Weights of the components.

    Returns
    -------
    numpy.ndarray (k,)
        Opacities between 0 and 1.
    """
    faintest = FAINTEST + (FAINT_OF_FEW - FAINTEST) * min(1.0, FEW / len(weights)) ** 2
    return crowding(weights) * np.minimum(faintest + (1 - faintest) * weights / weights.max(), 1.0)  # rounding


def crowding(weights: Array) -> float:
    """1 when few components carry the weight, less in a crowd, so that many lines together stay readable."""
    return float(min(1.0, np.sqrt(CROWD * np.sum(weights**2))))


def at(mixture: Mixture, given: Given | None) -> Mixture:
    """The mixture, or what is left of it when other coordinates are known."""
    return mixture.condition(given) if given else mixture


def some(mixture: Mixture, coordinates: Sequence[Coordinate], count: int) -> Mixture:
    """The marginal of exactly ``count`` coordinates, to be asked at true values: it expects no errors of them."""
    if isinstance(coordinates, str) or len(coordinates) != count:
        raise ValueError(f"give {count} coordinates, by label or index, got {coordinates!r}")
    return mixture.marginal(coordinates).with_(meta={})


def rows_of(mixture: Mixture, data: Any, noise: Any = None, error: Any = None) -> Batch:
    """Checked rows of all the model's coordinates; a picture has no place for projected ones."""
    batch = mixture.batch(data, noise, error=error)
    if batch.projection is not None:
        raise ValueError("rows with a projection have no values of the model's coordinates to draw")
    return batch


def values_of(batch: Batch, columns: Sequence[int]) -> Array:
    """Values (n, len(columns)) of a batch, NaN where missing."""
    return batch.x[list(columns)].T.double().numpy()


def covariances_of(batch: Batch, columns: Sequence[int]) -> Array:
    """Noise (n, c, c) of some columns of a batch."""
    S = batch.covariance().double().numpy()[:, columns][:, :, columns]
    return np.broadcast_to(S, (batch.n, *S.shape[1:]))


def thin(rows: int, most: int, seed: int = 0) -> Array:
    """Indices of at most ``most`` rows, in order, drawn without favour for any part of a sorted catalogue."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


def within(values: Array, wide: Limits, high: Limits) -> Array:
    """Which rows (n, 2) are in view."""
    low, top = np.transpose([wide, high])
    return np.asarray(((values >= low) & (values <= top)).all(axis=1))


def explain(ax: Axes) -> None:
    """A legend below the figure of all that its axes name.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Any axes of the figure.
    """
    named: dict[str, Any] = {}
    figure: Any = ax.figure
    for part in figure.axes:
        handles, labels = part.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
        own = part.get_legend()
        if own is not None:
            own.remove()
    if any(label.startswith("components,") for label in named):
        named.pop("components", None)  # the same colour twice
    if named:
        columns = max(1, min(len(named), int(figure.get_figwidth() / 2.2)))
        figure.legend(
            named.values(), named.keys(), loc="outside lower center", ncols=columns, fontsize="small", frameon=False
        )


def scatter(ax: Axes, values: Array, color: Any = DATA, zorder: float = 1.0) -> None:
    """Rows (n, 2) as dots: small and faint when there are many, so that crowds show as shades."""
    seen = values[np.isfinite(values).all(axis=1)]
    crowd = np.sqrt(max(len(seen), 1) / 200)
    size, alpha = float(np.clip(5 / crowd, 1.5, 5)), float(np.clip(0.8 / crowd, 0.25, 0.8))
    ax.plot(seen[:, 0], seen[:, 1], ".", color=color, alpha=alpha, ms=size, mew=0, rasterized=True, zorder=zorder)
    ax.plot([], [], ".", color=color, ms=8, mec="0.25", mew=0.5, label="rows")  # white dots have an edge
