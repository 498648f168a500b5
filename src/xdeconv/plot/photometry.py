"""The colour-magnitude diagram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..mixture._mixture import Mixture
from ..mixture.coordinates import Coordinate
from .axes import (  # fmt: skip
    ON_DARK,
    Array,
    Given,
    at,
    covariances_of,
    name_axes,
    new_axes,
    rows_of,
    scatter,
    some,
    thin,
    values_of,
)
from .components import ellipses
from .densities import enclosing_levels, on_grid, percents
from .viewing import Limits, views

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("bp_rp", "g_rp", "bp_g", "b_v", "g_r", "g_i", "bt_vt", "j_k")
MAGNITUDES = ("phot_g_mean_mag", "mg", "m_g", "absolute_magnitude", "absmag", "g_mag", "gmag", "vt_mag", "vmag",
              "hp_mag")  # fmt: skip
DEEPEST = 1e3  # from the highest density to the lowest that is shown
CONTOURS = (0.1, 0.3, 0.5, 0.7, 0.9)


def colour_magnitude(
    mixture: Mixture,
    coordinates: Sequence[Coordinate] | None = None,
    ax: Axes | None = None,
    *,
    data: Any = None,
    noise: Any = None,
    error: Any = None,
    given: Given | None = None,
    limits: Any = None,
    components: bool = False,
    bins: int = 300,
    points: int = 5000,
    cmap: str = "magma",
) -> Axes:
    """The density of a colour and a magnitude, bright at the top, on a logarithmic scale.

    With ``data``, a second axes to its left has the noisy rows on the same limits, a cross showing the typical error
    where ``noise`` or ``error`` is given.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    coordinates : sequence of str or int, optional
        Colour and magnitude; by default the first that the labels name, such as bp_rp and phot_g_mean_mag.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    data : array-like (n, d), table or Batch, optional
        Noisy rows; NaN is missing.
    noise : array-like, optional
        Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
    error : array-like, optional
        Standard deviations (n, p) or (p,), instead of ``noise``.
    given : dict, optional
        Values at which other coordinates are held: {label or number: value}.
    limits : dict, optional
        Ends of axes: {coordinate: (low, high)} of some; by default what shows every component of some weight.
    components : bool, default False
        Whether each component is drawn as an ellipse of one standard deviation.
    bins : int, default 300
        Points of the grid along an axis.
    points : int, default 5000
        At most so many rows are drawn.
    cmap : str, default "magma"
        A colour map of matplotlib.

    Returns
    -------
    matplotlib.axes.Axes
        The axes of the density.
    """
    if given and data is not None:
        raise ValueError("rows do not lie at the given values: draw data or given, not both")
    mixture = at(mixture, given)
    colour, magnitude = mixture.indices(_photometry(mixture) if coordinates is None else coordinates)
    pair = some(mixture, [colour, magnitude], 2)
    rows = None if data is None else rows_of(mixture, data, noise, error)
    values = np.empty((0, 2)) if rows is None else values_of(rows, [colour, magnitude])
    wide, high = views(mixture, [colour, magnitude], limits, values, tail=0.001)
    if ax is None:
        axes = new_axes(1, 1 if rows is None else 2, 4.4, sharex=True, sharey=True)
        ax = axes if rows is None else axes[0, 1]
        if rows is not None:
            _rows(axes[0, 0], values, covariances_of(mixture.widened(rows), [colour, magnitude]), points)
            name_axes(axes[0, 0], mixture, [colour, magnitude]).set_title("noisy rows", fontsize="medium")
            ax.set_title("true values", fontsize="medium")
    elif rows is not None:
        _rows(ax, values, covariances_of(mixture.widened(rows), [colour, magnitude]), points)
    _density(ax, pair, wide, high, bins, cmap)
    if components:
        ellipses(pair, [0, 1], ax, color=ON_DARK)
    ax.set(xlim=wide, ylim=high[::-1])
    return name_axes(ax, mixture, [colour, magnitude])


def _density(ax: Axes, pair: Mixture, wide: Limits, high: Limits, bins: int, cmap: str) -> None:
    from matplotlib.colors import LogNorm

    x, y, density = on_grid(pair, wide, high, bins)
    top = density.max()
    norm = LogNorm(top / DEEPEST, top, clip=True)
    ax.pcolormesh(x, y, np.maximum(density, top / DEEPEST), norm=norm, cmap=cmap, rasterized=True)
    levels = enclosing_levels(density, CONTOURS)
    ax.contour(x, y, density, levels=levels, colors="w", linewidths=0.6, alpha=0.7)
    shares = " to ".join(percents(density, levels, CONTOURS)[:: max(len(levels) - 1, 1)])
    ax.plot([], [], color="0.75", lw=0.8, label=f"true density (log scale): {shares} % within contours")


def _rows(ax: Axes, values: Array, S: Array, points: int) -> None:
    """Rows as dots, and a cross for the median error."""
    scatter(ax, values[thin(len(values), points)])
    sd = np.sqrt(np.median(np.einsum("naa->na", S), axis=0)) if len(S) else np.zeros(2)
    if sd.any():
        x, y = np.nanquantile(values[:, 0], 0.95), np.nanquantile(values[:, 1], 0.1)
        ax.errorbar([x], [y], xerr=sd[:1], yerr=sd[1:], color="tab:red", capsize=2, label="median error")


def colour_and_magnitude(labels: Sequence[str]) -> list[str]:
    """The colour and the magnitude among the labels, or fewer."""
    known = {label.lower().replace("-", "_"): label for label in labels}
    chosen = [next((known[name] for name in names if name in known), None) for names in (COLOURS, MAGNITUDES)]
    return [name for name in chosen if name is not None]


def _photometry(mixture: Mixture) -> list[str]:
    chosen = colour_and_magnitude(mixture.labels or ())
    if len(chosen) < 2:
        what = f"the model has {list(mixture.labels)}" if mixture.labels else "the model has no labels"
        raise ValueError(
            "which coordinates are colour and magnitude? Say coordinates=[COLOUR, MAGNITUDE], or --coordinates "
            f"COLOUR,MAGNITUDE; {what}"
        )
    return chosen
