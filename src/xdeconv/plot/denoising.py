"""Rows before and after: what was measured, and what the model makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..mixture._mixture import Mixture
from ..mixture.coordinates import Coordinate
from .axes import Array, covariances_of, explain, name_axes, new_axes, some, thin, values_of
from .components import outlines
from .densities import enclosing_levels, on_grid, percents
from .viewing import span, with_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BEFORE, AFTER = "tab:red", "tab:blue"
CONTOURS = (0.5, 0.9)


def denoised(
    mixture: Mixture,
    data: Any,
    coordinates: Sequence[Coordinate],
    *,
    noise: Any = None,
    error: Any = None,
    points: int = 200,
    seed: int = 0,
    bins: int = 150,
) -> Array:
    """Rows as measured and as denoised, each with its one-sigma ellipse, over the model's density.

    All coordinates of ``data`` help to denoise the two that are drawn. A row that misses one of the two is drawn only
    after, and the title says how many there are; rows with a projection measure neither of them, and are drawn after.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    data : array-like (n, d), table or Batch
        Noisy rows; NaN is missing.
    coordinates : sequence of str or int
        The two coordinates to draw.
    noise : array-like, optional
        Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
    error : array-like, optional
        Standard deviations (n, p) or (p,), instead of ``noise``.
    points : int, default 200
        At most so many rows are drawn, by lot.
    seed : int, default 0
        Of the lot.
    bins : int, default 150
        Points of the grid along an axis.

    Returns
    -------
    numpy.ndarray (2,)
        The two axes; (1,) for rows with a projection.
    """
    some(mixture, coordinates, 2)
    chosen = mixture.indices(coordinates)
    rows = mixture.batch(data, noise, error=error)
    if not rows.n:
        raise ValueError("data has no rows to denoise")
    import torch

    rows = rows.rows(torch.from_numpy(thin(rows.n, points, seed)))
    before = np.empty((0, 2)) if rows.projection is not None else values_of(rows, chosen)
    posterior = mixture.posterior(rows).marginal(chosen)
    after, V = posterior.mean(), posterior.covariance()
    limits = [with_rows(with_rows(span(mixture, a), before[:, i]), after[:, i]) for i, a in enumerate(chosen)]
    axes = np.ravel(new_axes(1, 2 if len(before) else 1, 4.4, sharex=True, sharey=True))
    if len(before):
        _measured(axes[0], before, covariances_of(mixture.widened(rows), chosen))
    _points(axes[-1], after, V, AFTER, "denoised, 1σ")
    axes[-1].set_title(f"denoised: {rows.n} rows", fontsize="medium")
    pair = some(mixture, chosen, 2)
    for ax in axes:
        _contours(ax, pair, limits, bins)
        ax.set(xlim=limits[0], ylim=limits[1])
        name_axes(ax, mixture, chosen).label_outer()
    explain(axes[0])
    return axes


def _measured(ax: Axes, values: Array, covariances: Array) -> None:
    """Rows (n, 2) as they were measured, and how many of them miss a value."""
    seen = np.isfinite(values).all(axis=1)
    _points(ax, values[seen], covariances[seen], BEFORE, "measured, 1σ")
    lost = int((~seen).sum())
    ax.set_title(f"measured: {seen.sum()} rows" + (f" ({lost} miss a value)" if lost else ""), fontsize="medium")


def _points(ax: Axes, means: Array, covariances: Array, color: str, name: str) -> None:
    from matplotlib.collections import LineCollection

    alpha = float(np.clip(30 / max(len(means), 1), 0.15, 0.6))
    curves = list(outlines(means, covariances))
    ax.add_collection(LineCollection(curves, colors=color, lw=0.6, alpha=alpha, zorder=2))
    ax.plot(means[:, 0], means[:, 1], ".", color=color, ms=4, mew=0, zorder=3)
    ax.plot([], [], ".-", color=color, lw=0.6, ms=4, mew=0, label=name)


def _contours(ax: Axes, pair: Mixture, limits: Sequence[tuple[float, float]], bins: int) -> None:
    x, y, density = on_grid(pair, limits[0], limits[1], bins)
    levels = enclosing_levels(density, CONTOURS)
    ax.contour(x, y, density, levels=levels, colors="0.3", linewidths=0.8, alpha=0.7, zorder=1)
    shares = " and ".join(percents(density, levels, CONTOURS))
    ax.plot([], [], color="0.3", lw=0.8, label=f"true density: {shares} % within contours")
