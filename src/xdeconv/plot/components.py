"""Components as ellipses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..mixture._mixture import Mixture
from ..mixture.coordinates import Coordinate
from ..mixture.matrices import square_root
from .axes import COMPONENT, Array, Given, at, crowding, name_axes, new_axes, opacity, some

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def ellipses(
    mixture: Mixture,
    coordinates: Sequence[Coordinate],
    ax: Axes | None = None,
    *,
    given: Given | None = None,
    sigma: float = 1.0,
    color: Any = COMPONENT,
    linewidth: float = 1.6,
) -> Axes:
    """An ellipse of ``sigma`` standard deviations for each component; the heavier, the more opaque.

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
    sigma : float, default 1.0
        Standard deviations that an ellipse spans.
    color : colour of matplotlib, optional
        Of all ellipses.
    linewidth : float, default 1.6
        Of all ellipses, in points.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on.
    """
    view = None if ax is None else (ax.get_xlim(), ax.get_ylim(), bool(ax.collections))
    mixture = at(mixture, given)
    pair = some(mixture, coordinates, 2)
    ax = new_axes() if ax is None else ax
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    colors = np.tile(to_rgba(color), (pair.k, 1))
    colors[:, 3] *= opacity(pair.weights)
    order = np.argsort(pair.weights)
    curves = outlines(pair.means, pair.covariances, sigma)[order]
    width = linewidth * max(crowding(pair.weights), 0.4)
    ax.add_collection(LineCollection(list(curves), colors=colors[order], lw=width, zorder=2.5))
    ax.plot([], [], color=color, lw=linewidth, label=f"components, {sigma:g}σ")
    if view is not None and view[2]:
        ax.set(xlim=view[0], ylim=view[1])
    else:
        ax.autoscale_view()
    return name_axes(ax, mixture, coordinates)


def outlines(means: Array, covariances: Array, sigma: float = 1.0) -> Array:
    """Ellipses (n, 65, 2) of ``sigma`` standard deviations about means (n, 2) with covariances (n, 2, 2)."""
    around = np.linspace(0, 2 * np.pi, 65)
    circle = sigma * np.stack([np.cos(around), np.sin(around)])
    return (means[:, :, None] + square_root(covariances) @ circle).transpose(0, 2, 1)
