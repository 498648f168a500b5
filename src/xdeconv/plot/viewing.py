"""Which part of a coordinate a picture shows: where the density is, and the rows if there are any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from ..mixture._mixture import Mixture
from ..mixture.background import Uniform
from ..mixture.coordinates import Coordinate
from .flattening import flattened

Array = np.ndarray
Limits = tuple[float, float]

TAIL = 0.001  # of the probability, beyond each end of an axis
MARGIN = 0.1  # of what is shown, on either side: contours of two coordinates reach further than one coordinate tells
HEAVY = 0.01  # weight of a background whose box an axis must not cut off
BLUR = 0.2  # variance that is added, in steps of a grid
POINTS, EACH = 40_000, 1000  # of the whole density, and of one component at most


def view(mixture: Mixture, coordinate: Coordinate, tail: float = TAIL) -> Limits:
    """The interval of a coordinate to draw: where its density is highest, all but twice ``tail``, with a margin.

    Of a narrow component more standard deviations are shown than of a wide one of little weight. The box of a
    background is shown whole.
    """
    line = mixture.marginal([coordinate])
    inside = _components(line)
    points, shares = _points(inside)
    density = blurred(inside, np.array([np.ptp(points) / EACH or 1.0])).log_prob(points[:, None])
    order = np.argsort(-density)
    shown = points[order][np.cumsum(shares[order]) - shares[order] < 1 - 2 * tail]
    low, high = shown.min(), shown.max()
    if isinstance(line.background, Uniform) and line.background_weight >= HEAVY:
        low, high = min(low, *line.background.low), max(high, *line.background.high)
    low, high = _apart(low, high)
    margin = MARGIN * (high - low)
    return low - margin, high + margin


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


def span(mixture: Mixture, coordinate: Coordinate, tail: float = 0.003) -> Limits:
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
    points, shares = _points(flattened(known(mixture.marginal([coordinate]))))
    order = np.argsort(points)
    low, high = np.interp([tail, 1 - tail], np.cumsum(shares[order]), points[order])
    return _apart(low, high)


def with_rows(limits: Limits, values: Array, tail: float = 0.01) -> Limits:
    """Limits widened to hold all but ``tail`` of the observed values at each end."""
    seen = values[np.isfinite(values)]
    if not len(seen):
        return limits
    low, high = np.quantile(seen, [tail, 1 - tail])
    return min(limits[0], float(low)), max(limits[1], float(high))


def within(values: Array, wide: Limits, high: Limits) -> Array:
    """Which rows (n, 2) are in view."""
    low, top = np.transpose([wide, high])
    return np.asarray(((values >= low) & (values <= top)).all(axis=1))


def blurred(pair: Mixture, step: Array) -> Mixture:
    """The mixture a little wider: what is narrower than a step (d,) of a grid is not lost between its points."""
    return pair.with_(covariances=pair.covariances + np.diag(BLUR * np.square(step)), structure="full")


def known(line: Mixture) -> Mixture:
    """The mixture without a background of which nobody knows where it is."""
    beside = line.background
    return line.with_(meta={}) if isinstance(beside, (Mixture, Uniform)) else line.with_(meta={}, background=None)


def _components(line: Mixture) -> Mixture:
    """The mixture without a box, which has ends of its own."""
    return flattened(line.with_(meta={}, background=None) if isinstance(line.background, Uniform) else known(line))


def _points(line: Mixture) -> tuple[Array, Array]:
    """Points of one coordinate and their shares of the probability, as many of each component."""
    each = min(EACH, max(20, POINTS // line.k))
    z = ndtri((np.arange(each) + 0.5) / each)
    points = line.means + np.sqrt(line.covariances[:, 0]) * z
    return points.ravel(), np.repeat(line.weights / each, each)


def _apart(low: float, high: float) -> Limits:
    return (float(low), float(high)) if high > low else (float(low) - 0.5, float(high) + 0.5)
