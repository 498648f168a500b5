"""Whether a model is right about rows that it has not seen, coordinate by coordinate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import binom, norm

from ..mixture._mixture import Mixture
from ..mixture.coordinates import Coordinate
from .axes import Array, axis_title, covariances_of, explain, name_of, new_axes, rows_of
from .probabilities import pit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAND = 0.99  # of right models' bars lie in the band
RIGHT = f"{BAND:.0%} of a right model".replace("%", " %")
EVEN = 12**-0.5  # standard deviation of numbers that are even between 0 and 1
SCATTER = 15**-0.5 / 2  # of that, over samples of n, times the root of n


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
