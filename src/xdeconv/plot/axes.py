"""What every picture shares: new axes, their titles, colours, and rows in the model's coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from ..mixture._mixture import Mixture
from ..mixture.coordinates import Coordinate
from ..rows.batch import Batch
from .names import drawable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray
Given = Mapping[Any, float]
"""Values of other coordinates, {label or index: value}, at which a density is taken."""

INSTALL = "pictures need matplotlib: pip install 'xdeconv[plot]'"
FAINTEST, FAINT_OF_FEW, FEW = 0.08, 0.45, 12  # opacity of the lightest component, and where there are few
KEY, LETTER = 0.65, 0.067  # inches of a legend's entry, before its text and per letter of it
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
    return drawable(mixture.labels[a]) if mixture.labels else f"coordinate {a}"


def unit_of(mixture: Mixture, coordinate: Coordinate) -> str:
    """The unit of a coordinate, or nothing."""
    a = mixture.indices(coordinate)[0]
    return drawable(mixture.units[a]) if mixture.units else ""


def name_axes(ax: Axes, mixture: Mixture, coordinates: Sequence[Coordinate]) -> Axes:
    """Titles of both axes from the model."""
    ax.set_xlabel(axis_title(mixture, coordinates[0]))
    ax.set_ylabel(axis_title(mixture, coordinates[1]))
    return ax


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
        raise ValueError(
            "rows with a projection have no values of the model's coordinates to draw: xd.check (xdeconv check) judges "
            "them, and plot.denoised (--denoised) draws what the model makes of them"
        )
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
        columns = _columns(list(named), figure.get_figwidth())
        figure.legend(
            named.values(), named.keys(), loc="outside lower center", ncols=columns, fontsize="small", frameon=False
        )


def entitle(figure: Any, text: str) -> None:
    """A title above all axes of a figure, on as many lines as it needs, which end at commas."""
    letters = max(int((figure.get_figwidth() - KEY) / LETTER), 10)
    whole = ", ".join(part.replace(" ", "\xa0") for part in text.split(", "))
    lines = wrap(whole, letters, break_long_words=False, break_on_hyphens=False)
    figure.suptitle("\n".join(lines).replace("\xa0", " "), fontsize="small")


def _columns(labels: Sequence[str], wide: float) -> int:
    """As many columns of a legend as fit so many inches."""
    inches = np.array([KEY + LETTER * len(label) for label in labels])
    fit = [n for n in range(1, len(labels) + 1) if sum(part.max() for part in np.array_split(inches, n)) < wide]
    return max(fit, default=1)


def scatter(ax: Axes, values: Array, color: Any = DATA, zorder: float = 1.0) -> None:
    """Rows (n, 2) as dots: small and faint when there are many, so that crowds show as shades."""
    seen = values[np.isfinite(values).all(axis=1)]
    crowd = np.sqrt(max(len(seen), 1) / 200)
    size, alpha = float(np.clip(5 / crowd, 2.0, 5)), float(np.clip(0.8 / crowd**0.5, 0.35, 0.8))
    ax.plot(seen[:, 0], seen[:, 1], ".", color=color, alpha=alpha, ms=size, mew=0, rasterized=True, zorder=zorder)
    ax.plot([], [], ".", color=color, ms=8, mec="0.25", mew=0.5, label="rows")  # white dots have an edge
