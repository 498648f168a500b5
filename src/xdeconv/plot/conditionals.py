"""One coordinate where others are known: curves at some values, and a map over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..mixture._mixture import Mixture
from ..mixture.coordinates import Coordinate
from .axes import Array, Given, at, axis_title, name_axes, name_of, new_axes, some, unit_of
from .densities import on_grid
from .flattening import flattened
from .viewing import Limits, known, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES = {0.16: ":", 0.5: "-", 0.84: ":"}


def conditional_1d(
    mixture: Mixture,
    coordinate: Coordinate,
    given: Given | Sequence[Given],
    ax: Axes | None = None,
    *,
    limits: Limits | None = None,
    bins: int = 400,
) -> Axes:
    """The density of a coordinate at one or several ``given`` {label: value}, and the marginal dashed.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    coordinate : str or int
        A coordinate, by its label or its number.
    given : dict or sequence of dict
        One or several sets of values: {label or number: value}.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    limits : tuple, optional
        The interval that is shown, (low, high), or one for each axis; by default what holds nearly all of the
        density.
    bins : int, default 400
        Points of the grid along an axis.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on.

    Examples
    --------
    >>> from xdeconv import Mixture
    >>> mixture = Mixture([1.0], [[0.0, 0.0]], [[[1.0, 0.5], [0.5, 1.0]]], labels=["x", "y"])
    >>> ax = conditional_1d(mixture, "y", [{"x": -1.0}, {"x": 1.0}])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['any', 'x = -1', 'x = 1']
    """
    slices = [given] if isinstance(given, Mapping) else list(given)
    ax = new_axes() if ax is None else ax
    lines = [some(mixture.condition(values), [_place(mixture, coordinate, values)], 1) for values in slices]
    everywhere = some(mixture, [coordinate], 1)
    low, high = limits or _widest([everywhere, *lines])
    x = np.linspace(low, high, bins)
    ax.plot(x, np.exp(everywhere.log_prob(x[:, None])), "--", color="0.5", lw=1.0, label="any")
    for values, line in zip(slices, lines, strict=True):
        ax.plot(x, np.exp(line.log_prob(x[:, None])), label=words(mixture, values))
    ax.set(xlim=(low, high), xlabel=axis_title(mixture, coordinate), ylabel="density")
    top = max(float(np.max(line.get_ydata())) for line in ax.lines)
    ax.set_ylim(0, top * (1.1 + 0.07 * len(ax.lines)))  # room for the legend above the curves
    ax.legend(loc="upper right", fontsize="small")
    return ax


def conditional_map(
    mixture: Mixture,
    coordinates: Sequence[Coordinate],
    ax: Axes | None = None,
    *,
    given: Given | None = None,
    limits: tuple[Limits, Limits] | None = None,
    bins: int = 300,
    cmap: str = "Blues",
) -> Axes:
    """The density of the second coordinate at each value of the first, with its median and its 16 and 84 % quantiles.

    Each column is relative to its highest value, so that sparse ones are as readable as crowded ones.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    coordinates : sequence of str or int
        The coordinate along x, and the one whose density is shown along y.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    given : dict, optional
        Values at which other coordinates are held: {label or number: value}.
    limits : tuple, optional
        The interval that is shown, (low, high), or one for each axis; by default what holds nearly all of the
        density.
    bins : int, default 300
        Points of the grid along an axis.
    cmap : str, default "Blues"
        A colour map of matplotlib.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on.
    """
    mixture = at(mixture, given)
    pair = some(mixture, coordinates, 2)
    ax = new_axes() if ax is None else ax
    wide, high = limits or (span(pair, 0), span(pair, 1))
    x, y, density = on_grid(pair, wide, high, bins)
    top = density.max(axis=0)
    ax.pcolormesh(x, y, density / np.where(top > 0, top, 1.0), cmap=cmap, vmin=0, vmax=1, rasterized=True)
    whole = flattened(known(pair))  # quantiles are of rows of the background too, as the colours are
    for q, style in LINES.items():
        ax.plot(x, _quantile(whole, x, q), style, color="k", lw=1.0, label=f"{100 * q:.0f} %")
    ax.set(xlim=wide, ylim=high)
    ax.legend(loc="best", framealpha=0.8)
    return name_axes(ax, mixture, coordinates)


def words(mixture: Mixture, given: Given) -> str:
    """Given values as a title says them: "bp_rp = 0.8 mag, parallax = 2 mas"."""
    return ", ".join(f"{name_of(mixture, a)} = {v:.4g} {unit_of(mixture, a)}".rstrip() for a, v in given.items())


def _quantile(pair: Mixture, x: Array, q: float) -> Array:
    """The quantile (n,) of the second coordinate at each x (n,): rows that miss only the second."""
    rows = np.stack([x, np.full(len(x), np.nan)], axis=1)
    return pair.posterior(rows).marginal([1]).quantile(q)[:, 0]


def _place(mixture: Mixture, coordinate: Coordinate, given: Given) -> int:
    """Where a coordinate is once the given ones are gone."""
    a, gone = mixture.indices(coordinate)[0], mixture.indices(list(given))
    if a in gone:
        raise ValueError(f"{name_of(mixture, a)} is among the given values: nothing is left to draw")
    return a - sum(b < a for b in gone)


def _widest(lines: Sequence[Mixture]) -> Limits:
    ends = np.array([span(line, 0) for line in lines])
    return float(ends[:, 0].min()), float(ends[:, 1].max())
