"""Whether a model is right about rows that it has not seen: exact under the noisy model, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.special import ndtr, xlogy
from scipy.stats import binom, norm

from ..kernels import reference
from ..mixture._mixture import Mixture
from ..mixture.background import Uniform
from ..mixture.coordinates import Coordinate
from ..mixture.selections.contract import Selecting
from ..rows.batch import Batch
from .axes import Array, axis_title, covariances_of, explain, name_axes, name_of, new_axes, rows_of, some, values_of
from .convolving import GROUPS, NUMBERS, distribution, grouped
from .flattening import flattened
from .kept import kept_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWS = 50  # for each row that was selected: probabilities are even whatever their number
BAND = 0.99  # of right models' bars lie in the band
RIGHT = f"{BAND:.0%} of a right model".replace("%", " %")
EVEN = 12**-0.5  # standard deviation of numbers that are even between 0 and 1
SCATTER = 15**-0.5 / 2  # of that, over samples of n, times the root of n
MOST_OF_BOX = 2  # dimensions of a box that Gaussians can stand for
FINEST = 8  # columns that a cell of the map of misfit may be cut into


def pit(
    mixture: Mixture, X: Any, noise: Any = None, projection: Any = None, *, error: Any = None, predicted: bool = False
) -> Array:
    """The probability of a value below the one observed, each coordinate by itself.

    It is sum_j alpha_j Phi((x - m_j) / sqrt(V_j + S)) with the row's own noise S: even between 0 and 1 if the model is
    right and the noise is what it is said to be. Of a mixture with a selection it is given that the row was kept: the
    place of the value among those of 50 rows with its noise that the selection keeps, and even between them.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    X : array-like (n, p), table or Batch
        Noisy rows; NaN is missing.
    noise : array-like, optional
        Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
    projection : array-like (n, p, d), optional
        Matrices through which each row sees the true values.
    error : array-like, optional
        Standard deviations (n, p) or (p,), instead of ``noise``.
    predicted : bool, default False
        Whether each value is judged by what the row's other values predict of it: a radial velocity by the proper
        motion, say.

    Returns
    -------
    numpy.ndarray (n, p)
        Probabilities; NaN where the value is missing.

    Examples
    --------
    >>> from xdeconv import Mixture
    >>> pit(Mixture([1.0], [[0.0]], [[[3.0]]]), [[0.0], [1.96 * 2]], noise=[[1.0], [1.0]]).round(3)
    array([[0.5  ],
           [0.975]])
    """
    batch = mixture.widened(mixture.batch(X, noise, projection, error=error))
    if predicted:
        return _predicted(mixture, batch)
    if mixture.selection is not None:
        return _among_kept(mixture, mixture.selection, batch)
    chunks = batch.chunks(max(1, NUMBERS // mixture.k))
    return np.concatenate([_probabilities(mixture, chunk) for chunk in chunks])


def calibration(
    mixture: Mixture,
    data: Any,
    coordinates: Sequence[Coordinate] | None = None,
    *,
    noise: Any = None,
    error: Any = None,
    bins: int = 20,
    groups: int = 5,
    size: float = 2.6,
) -> Array:
    """A histogram of :func:`pit` of held-out rows for each coordinate, over the band of a right model.

    Bars are relative to an even distribution; 99 % of a right model's lie in the grey band. Bars high at both ends: the
    model is too narrow, or errors are larger than they say. High in the middle: too wide. A slope: shifted. Missing
    values are left out; the title says how many values were there.

    Where errors differ from row to row, the panel below has the spread of the same probabilities for values of small,
    middling and large errors; that of a right model is 0.289. A model that was fitted with errors that are too small is
    wider than the truth, so that all values together look right: those of small errors then lie too close (below the
    band), and those of large errors too far (above it). ``inflation=`` of :func:`xdeconv.fit` puts that right.

    Parameters
    ----------
    mixture : Mixture
        The density of the true values.
    data : array-like (n, d), table or Batch
        Held-out rows; NaN is missing.
    coordinates : sequence of str or int, optional
        Which coordinates; all by default.
    noise : array-like, optional
        Variances (n, p) or covariances (n, p, p) of the rows; (p,) or (1, p, p) when all rows share them.
    error : array-like, optional
        Standard deviations (n, p) or (p,), instead of ``noise``.
    bins : int, default 20
        Bars of each histogram.
    groups : int, default 5
        Groups of values by the size of their errors, as they are quoted; 0 for no panel below.
    size : float, default 2.6
        Inches of each axes.

    Returns
    -------
    numpy.ndarray (d,)
        One axes per coordinate, of its histogram; the panels below are further axes of the same figure.
    """
    chosen = mixture.indices(range(mixture.d) if coordinates is None else coordinates)
    batch = rows_of(mixture, data, noise, error)
    u, wide = pit(mixture, batch)[:, chosen], min(len(chosen), 4)
    errors = np.sqrt(np.einsum("npp->np", covariances_of(batch, chosen)))
    below = groups > 0 and bool((np.ptp(errors, axis=0) > 0).any())
    tall = -(-len(chosen) // wide)
    both = np.atleast_1d(new_axes(tall * (1 + below), wide, size)).reshape(tall, 1 + below, wide)
    axes = both[:, 0].ravel()
    for ax in [*axes[len(chosen) :], *both[:, 1:].ravel()]:
        ax.set_axis_off()
    for i, a in enumerate(chosen):
        seen = u[np.isfinite(u[:, i]), i]
        _uniform(axes[i], seen, bins)
        axes[i].set_title(f"{name_of(mixture, a)}: {len(seen):,} values", fontsize="small")
        axes[i].set_xlabel("probability of less")
        if below and np.ptp(errors[:, i]) > 0:
            kept = np.isfinite(u[:, i])
            _by_error(both[:, 1].ravel()[i], seen, errors[kept, i], groups, axis_title(mixture, a))
    axes[0].set_ylabel("rows / expected")
    explain(axes[0])
    return axes[: len(chosen)]


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


def _predicted(mixture: Mixture, batch: Batch) -> Array:
    """pit of each value given the others of its row."""
    if mixture.selection is not None:
        raise ValueError("values of rows that were selected are not predicted: ask with_(selection=None)")
    if isinstance(mixture.background, Uniform) and mixture.d > MOST_OF_BOX:
        raise ValueError(f"values beside a box of {mixture.d} dimensions are not predicted: ask with_(background=None)")
    parts = reference.hidden_one_by_one(flattened(mixture).tensors("cpu"), batch)
    below = [(log_weights.softmax(1) * torch.special.ndtr(z)).sum(1) for log_weights, z in parts]
    return torch.where(batch.x.T.isnan(), torch.nan, torch.cat(below)).numpy()


def _among_kept(mixture: Mixture, selection: Selecting, batch: Batch) -> Array:
    """pit of rows that were selected."""
    rng, x = np.random.default_rng(0), batch.x.T.double().numpy()
    below = np.where(np.isnan(x), np.nan, rng.random(x.shape))
    for _ in range(DRAWS):
        below += selection.drawn_rows(mixture.drawn, batch, rng) < x
    return below / (DRAWS + 1)


def _probabilities(mixture: Mixture, batch: Batch) -> Array:
    """pit of one chunk of rows."""
    x, whole = batch.x.T.double().numpy(), mixture if batch.projection is None else flattened(mixture)
    S = np.einsum("npp->np", batch.covariance().double().numpy())
    probabilities = np.full(x.shape, np.nan)
    for a in range(batch.p):
        seen = np.isfinite(x[:, a])
        weights = whole.weights
        if batch.projection is None:
            line = flattened(mixture.marginal([a]))
            weights, m, V = line.weights, line.means[:, 0], line.covariances[:, 0, 0]
        else:
            R = batch.projection[a].T.double().numpy()[seen]
            m, V = R @ whole.means.T, np.einsum("nd,kde,ne->nk", R, whole.covariances, R)
        noise = np.broadcast_to(S[:, a], len(x))[seen]
        probabilities[seen, a] = distribution(weights, m, np.maximum(V, 0.0) + noise[:, None], x[seen, a])
    return probabilities


def _uniform(ax: Axes, u: Array, bins: int) -> None:
    """Bars relative to even ones, and the band in which a right model's would lie."""
    n = max(len(u), 1)
    low, high = binom.interval(BAND, n, 1 / bins)
    ax.axhspan(low * bins / n, high * bins / n, color="0.85", lw=0, label=RIGHT)
    ax.axhline(1.0, color="0.4", lw=0.8)
    heights = np.histogram(u, bins=bins, range=(0, 1))[0] * bins / n
    ax.stairs(heights, np.linspace(0, 1, bins + 1), color="tab:blue", lw=1.4, baseline=None)
    top = max(heights.max(initial=0.0), high * bins / n)
    ax.set(xlim=(0, 1), ylim=(0, max(1.15 * top, 2.0)), xticks=[0, 0.5, 1])


def _by_error(ax: Axes, u: Array, errors: Array, groups: int, title: str) -> None:
    """The spread of probabilities in groups of equal numbers of values, by the size of their errors, over its band."""
    parts = [part for part in np.array_split(np.argsort(errors, kind="stable"), groups) if len(part) > 1]
    middle, spread = ([np.median(errors[part]) for part in parts], [np.std(u[part]) for part in parts])
    half = [norm.ppf((1 + BAND) / 2) * SCATTER / np.sqrt(len(part)) for part in parts]
    ax.set_axis_on()
    ax.fill_between(middle, EVEN - np.array(half), EVEN + np.array(half), color="0.85", lw=0)
    ax.axhline(EVEN, color="0.4", lw=0.8)
    ax.plot(middle, spread, "o-", color="tab:blue", ms=4, lw=1.2)
    most = max([0.03, *(1.3 * abs(s - EVEN) for s in spread), *half])
    ax.locator_params(axis="x", nbins=4)
    ax.xaxis.set_major_formatter("{x:.3g}")  # no power of ten beside the axis, where its title is
    ax.set(ylim=(EVEN - most, EVEN + most), xlabel=f"error of {title}", ylabel="spread of probabilities")


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
