"""The corner plot: every coordinate against every other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..mixture._mixture import Mixture
from ..mixture.coordinates import Coordinate
from .axes import Array, Given, at, covariances_of, explain, new_axes, rows_of, scatter, thin, values_of
from .components import ellipses
from .densities import density_2d, marginal_1d
from .kept import expect_kept, kept_rows
from .viewing import Limits, views

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OVER_DATA = (0.1, 0.3, 0.5, 0.68, 0.8, 0.9, 0.95, 0.99)


def corner(
    mixture: Mixture,
    data: Any = None,
    coordinates: Sequence[Coordinate] | None = None,
    *,
    noise: Any = None,
    error: Any = None,
    given: Given | None = None,
    limits: Any = None,
    components: bool = False,
    size: float = 2.2,
    points: int = 5000,
    bins: int = 100,
) -> Array:
    """A triangle of axes: marginals on the diagonal, pairs below it, over rows of data.

    Rows are grey, the density of the true values blue. With ``noise`` or ``error`` the diagonal shows too, dashed in
    red, what the model expects of the noisy values; of a mixture with a selection, of those that were kept.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    data : array-like (n, d), table or Batch, optional
        Noisy rows; NaN is missing.
    coordinates : sequence of str or int, optional
        Which coordinates; all by default.
    noise : array-like, optional
        Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
    error : array-like, optional
        Standard deviations (n, p) or (p,), instead of ``noise``.
    given : dict, optional
        Values at which other coordinates are held: {label or number: value}.
    limits : dict, optional
        Ends of axes: {coordinate: (low, high)} of some; by default what shows every component of some weight.
    components : bool, default False
        Whether the components are drawn too.
    size : float, default 2.2
        Inches of each axes.
    points : int, default 5000
        At most so many rows are drawn.
    bins : int, default 100
        Points of the grid along an axis.

    Returns
    -------
    numpy.ndarray (d, d)
        The axes; those above the diagonal are empty.
    """
    if given and data is not None:
        raise ValueError("rows do not lie at the given values: draw data or given, not both")
    mixture = at(mixture, given)
    chosen = mixture.indices(range(mixture.d) if coordinates is None else coordinates)
    axes = np.atleast_2d(new_axes(len(chosen), len(chosen), size))
    batch = None if data is None else rows_of(mixture, data, noise, error)
    rows = np.empty((0, len(chosen))) if batch is None else values_of(batch, chosen)
    noisy = batch is not None and batch.noise is not None
    S = covariances_of(mixture.widened(batch), chosen) if noisy and batch is not None else None
    limits = views(mixture, chosen, limits, rows)
    few = rows[thin(len(rows), points)]
    kept = kept_rows(mixture, batch) if batch is not None and mixture.selection is not None else None
    for i, a in enumerate(chosen):
        values = rows[:, i] if len(rows) else None
        variances = None if S is None or kept is not None else S[:, i, i]
        marginal_1d(mixture, a, axes[i, i], data=values, noise=variances, limits=limits[i], components=components)
        if kept is not None:
            expect_kept(axes[i, i], kept[:, a], limits[i])
        axes[i, i].set(ylabel="", yticks=[])
        for j, b in enumerate(chosen[:i]):
            _pair(mixture, (b, a), axes[i, j], few[:, [j, i]], (limits[j], limits[i]), components, bins)
    _tidy(axes)
    explain(axes[0, 0])
    return axes


def _pair(
    mixture: Mixture, pair: Sequence[int], ax: Axes, rows: Array, limits: tuple[Limits, Limits], components: bool,
    bins: int,
) -> None:  # fmt: skip
    if len(rows):
        scatter(ax, rows, zorder=0)
        density_2d(mixture, pair, ax, limits=limits, bins=bins, enclosed=OVER_DATA, alpha=0.75)
    else:
        density_2d(mixture, pair, ax, limits=limits, bins=bins)
    if components:
        ellipses(mixture, pair, ax, linewidth=1.2)


def _tidy(axes: Array) -> None:
    """Nothing above the diagonal; numbers and names only at the left and at the foot."""
    for ax in axes[np.triu_indices(len(axes), 1)]:
        ax.set_axis_off()
    for ax in axes.flat:
        ax.label_outer()
        ax.tick_params(labelsize="small")
        ax.xaxis.set_tick_params(rotation=45)
        ax.locator_params(axis="x", nbins=4)
    for ax in axes[np.tril_indices(len(axes), -1)]:
        ax.locator_params(axis="y", nbins=4)
    axes[0, 0].figure.align_labels()
