"""Where in two coordinates a model expects other rows than there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.special import ndtr, xlogy

from ..mixture._mixture import Mixture
from ..mixture.coordinates import Coordinate
from .axes import Array, covariances_of, name_axes, name_of, new_axes, rows_of, some, values_of
from .convolving import GROUPS, NUMBERS, grouped
from .flattening import flattened
from .kept import kept_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FINEST = 8  # columns that a cell of the map of misfit may be cut into


def misfit(
    mixture: Mixture,
    data: Any,
    coordinates: Sequence[Coordinate],
    ax: Axes | None = None,
    *,
    noise: Any = None,
    error: Any = None,
    bins: int = 32,
    limit: float = 5.0,
) -> Axes:
    """Where in two coordinates there are more rows than the noisy model expects (red), or fewer (blue).

    The colour is the signed root of the deviance of each cell's count: as if in standard deviations, correct for few
    rows too. Expected counts are the model with the noise of the very rows, of a mixture with a selection those that it
    keeps; rows that miss a value are left out. The
    title has the root mean square of all cells: 1 for a right model.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    data : array-like (n, d), table or Batch
        Noisy rows; NaN is missing.
    coordinates : sequence of str or int
        The two coordinates.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.
    noise : array-like, optional
        Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
    error : array-like, optional
        Standard deviations (n, p) or (p,), instead of ``noise``.
    bins : int, default 32
        Cells along each axis.
    limit : float, default 5.0
        The value at which the colours end.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on.
    """
    some(mixture, coordinates, 2)
    chosen = mixture.indices(coordinates)
    batch = rows_of(mixture, data, noise, error)
    values, S = values_of(batch, chosen), covariances_of(mixture.widened(batch), chosen)
    seen = np.isfinite(values).all(axis=1)
    if not seen.any():
        raise ValueError(f"no row has both {' and '.join(name_of(mixture, a) for a in chosen)}")
    values, S = values[seen], S[seen]
    edges = [_edges(values[:, i], bins) for i in range(2)]
    observed = np.histogram2d(values[:, 0], values[:, 1], bins=edges)[0]
    if mixture.selection is None:
        expected = len(values) * cell_probability(mixture.marginal(chosen), edges, S)
    else:
        kept = kept_rows(mixture, batch.rows(torch.from_numpy(np.flatnonzero(seen))))[:, chosen]
        expected = np.maximum(np.histogram2d(kept[:, 0], kept[:, 1], bins=edges)[0], 0.5) * len(values) / len(kept)
    z = _deviance(observed, expected)
    ax = new_axes(1, 1, 4.6) if ax is None else ax
    blank = np.ma.masked_where((expected < 0.5) & (observed == 0), z)
    drawn = ax.pcolormesh(*edges, blank.T, cmap="RdBu_r", vmin=-limit, vmax=limit, rasterized=True)
    ax.figure.colorbar(drawn, ax=ax, extend="both", label="rows beyond expectation [σ]")
    rms = np.sqrt(np.mean(blank.compressed() ** 2)) if blank.count() else 0.0
    ax.set_title(f"{len(values):,} rows, root mean square {rms:.2f}", fontsize="medium")
    return name_axes(ax, mixture, chosen)


def cell_probability(pair: Mixture, edges: Sequence[Array], S: Array, groups: int = GROUPS) -> Array:
    """Probability (a, b) of each cell between edges (a + 1,) and (b + 1,), the mean over rows with noise S (n, 2, 2).

    Exact along the second coordinate; along the first each cell is cut finely enough for the narrowest components.
    Rows with nearly the same noise are taken together.
    """
    total, pair = np.zeros((len(edges[0]) - 1, len(edges[1]) - 1)), flattened(pair)
    for share, noise in grouped(S, groups):
        total += share * _cells(pair.weights, pair.means, pair.covariances + noise, edges)
    return total


def _edges(values: Array, bins: int) -> Array:
    """Edges that hold all but two in a thousand of the values at each end."""
    low, high = np.quantile(values, [0.002, 0.998])
    return np.linspace(low, high, bins + 1) if high > low else np.linspace(low - 0.5, high + 0.5, bins + 1)


def _cells(weights: Array, means: Array, T: Array, edges: Sequence[Array]) -> Array:
    """Probabilities of cells under one mixture: columns of x by their middle, y by its conditional distribution."""
    sd = np.sqrt(T[:, 0, 0])
    width = edges[0][1] - edges[0][0]
    cuts = int(np.clip(np.ceil(width / (0.7 * np.quantile(sd, 0.05))), 2, FINEST)) if sd.all() else FINEST
    fine = np.linspace(edges[0][0], edges[0][-1], cuts * (len(edges[0]) - 1) + 1)
    step, sd = fine[1] - fine[0], np.maximum(sd, np.finfo(float).tiny)
    in_column = np.diff(ndtr((fine - means[:, :1]) / sd[:, None]), axis=1) * weights[:, None]
    slope = T[:, 1, 0] / sd**2
    rest = np.sqrt(np.maximum(T[:, 1, 1] - slope * T[:, 1, 0], np.finfo(float).tiny))
    middle = means[:, 1:] + slope[:, None] * ((fine[1:] + fine[:-1]) / 2 - means[:, :1])
    spread = np.hypot(rest, slope * min(step, 1e300) / np.sqrt(12))  # the slope within a column
    total = np.zeros((len(fine) - 1, len(edges[1]) - 1))
    for part in np.array_split(np.arange(len(weights)), -(-in_column.size * len(edges[1]) // NUMBERS)):
        below = ndtr((edges[1] - middle[part, :, None]) / spread[part, None, None])
        total += np.einsum("kx,kxy->xy", in_column[part], np.diff(below, axis=2))
    return total.reshape(-1, cuts, total.shape[1]).sum(axis=1)


def _deviance(observed: Array, expected: Array) -> Array:
    """The signed root of a Poisson count's deviance."""
    E = np.maximum(expected, 1e-12)
    deviance = 2 * (xlogy(observed, observed / E) - (observed - E))
    return np.sign(observed - E) * np.sqrt(np.maximum(deviance, 0.0))
