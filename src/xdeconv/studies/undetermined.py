"""Naming what rows leave undetermined: where the 95 % interval of a weight or a variance reaches zero."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..mixture._mixture import Mixture

Array = np.ndarray
WIDE = 1 / 1.96  # standard error over value: the interval of 95 % reaches zero


def log_widths(mixture: Mixture) -> Array:
    """Logarithms of variances (k, d + 1): of each coordinate, and along the narrowest axis of each component."""
    along = np.einsum("kaa->ka", mixture.covariances)
    narrowest = np.linalg.eigvalsh(_scaled(mixture))[:, :1]
    return np.log(np.maximum(np.concatenate([along, narrowest], axis=1), 1e-300))


def undetermined(mixture: Mixture, weights: Array, means: Array, widths: Array) -> tuple[str, ...]:
    """A line for each weight, place or width that the rows leave open, given standard errors.

    Parameters
    ----------
    mixture : Mixture
        The fit.
    weights, means : numpy.ndarray
        Standard errors (k,) and (k, d).
    widths : numpy.ndarray
        Standard errors (k, d + 1) of :func:`log_widths`.

    Returns
    -------
    tuple of str
    """
    return tuple(line for j in range(mixture.k) for line in _of_component(mixture, j, weights[j], means[j], widths[j]))


def _of_component(mixture: Mixture, j: int, weight: float, means: Array, widths: Array) -> Iterator[str]:
    names = mixture.labels or [f"x{a}" for a in range(mixture.d)]
    if mixture.k > 1 and weight > WIDE * mixture.weights[j]:
        yield _said(f"the weight of component {j}", weight / max(mixture.weights[j], 1e-300))
    whole = np.sqrt(np.diag(mixture.covariance()))
    for a in np.flatnonzero(means > WIDE * whole):
        yield f"the rows leave the mean of component {j} in {names[a]} undetermined: its error is {means[a]:.2g}"
    wide = np.flatnonzero(widths[:-1] > WIDE)
    for a in wide:
        yield _said(f"the width of component {j} in {names[a]}", widths[a])
    if not len(wide) and widths[-1] > WIDE:
        axis = np.linalg.eigh(_scaled(mixture)[j])[1][:, 0]
        along = ", ".join(f"{axis[a]:+.2f} {names[a]}" for a in np.argsort(-np.abs(axis))[:3])
        yield _said(f"the width of component {j} across its narrowest side ({along})", widths[-1])


def _said(what: str, relative: float) -> str:
    error = f"its relative error is {relative:.0%}" if relative < 1e3 else "they say nothing of it"
    return f"the rows leave {what} undetermined: {error}"


def _scaled(mixture: Mixture) -> Array:
    """Covariances (k, d, d) in units of the mixture's own standard deviations, so that units do not matter."""
    scale = np.sqrt(np.maximum(np.diag(mixture.covariance()), 1e-300))
    return mixture.covariances / scale[:, None] / scale
