"""Naming what rows leave undetermined: where the 95 % interval of a weight, a variance or a factor reaches zero."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..mixture._mixture import Mixture
from ..mixture.coordinates import names_or_numbers

Array = np.ndarray
SHOWN = 5  # that a line names
WIDE = 1 / 1.96  # standard error over value: the interval of 95 % reaches zero


def log_widths(mixture: Mixture) -> Array:
    """Logarithms of variances (k, d + 1): of each coordinate, and along the narrowest axis of each component."""
    along = np.einsum("kaa->ka", mixture.covariances)
    narrowest = np.linalg.eigvalsh(_scaled(mixture))[:, :1]
    return np.log(np.maximum(np.concatenate([along, narrowest], axis=1), 1e-300))


def undetermined(mixture: Mixture, weights: Array, means: Array, widths: Array) -> tuple[str, ...]:
    """Weights, means and widths that the rows leave open, a line of each kind, given standard errors.

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
    lines = (_line("weight", _weights(mixture, weights)), _means(mixture, means), *_widths(mixture, widths))
    return tuple(line for line in lines if line)


def background_undetermined(mixture: Mixture, error: float) -> tuple[str, ...]:
    """Whether the rows leave the weight of the background open, in a line, given its standard error.

    Parameters
    ----------
    mixture : Mixture
        The fit.
    error : float
        The standard error.

    Returns
    -------
    tuple of str
    """
    relative = error / max(mixture.background_weight, 1e-300)
    return (_line("weight", [("the background", relative)]),) if relative > WIDE else ()


def factors_undetermined(mixture: Mixture, errors: Array) -> tuple[str, ...]:
    """Factors on errors, and jitters, that the rows leave open, in a line, given their standard errors (groups, p).

    Parameters
    ----------
    mixture : Mixture
        The fit.
    errors : numpy.ndarray
        Standard errors.

    Returns
    -------
    tuple of str
    """
    inflation = mixture.inflation
    if inflation is None:
        return ()
    relative = errors / np.maximum(inflation.values, 1e-300)
    items = [(f"{_name(mixture, a)}, {inflation.groups[g]}", relative[g, a])
             for g, a in np.argwhere(relative > WIDE) if inflation.rows[g : g + 1] != (0.0,)]  # fmt: skip
    line = _line("factor on errors", items)
    return (line,) if line else ()


def _weights(mixture: Mixture, errors: Array) -> list[tuple[str, float]]:
    if mixture.k == 1:
        return []
    relative = errors / np.maximum(mixture.weights, 1e-300)
    return [(f"component {j}", relative[j]) for j in np.flatnonzero(relative > WIDE)]


def _means(mixture: Mixture, errors: Array) -> str:
    whole = np.sqrt(np.diag(mixture.covariance()))
    wide = np.argwhere(errors > WIDE * whole)
    said = [f"component {j} in {_name(mixture, a)} (its error is {errors[j, a]:.2g})" for j, a in wide]
    return f"the rows leave undetermined the mean of {_some(said)}" if said else ""


def _widths(mixture: Mixture, errors: Array) -> Iterator[str]:
    wide = errors[:, :-1] > WIDE
    yield _line("width", [(f"component {j} in {_name(mixture, a)}", errors[j, a]) for j, a in np.argwhere(wide)])
    sides = np.flatnonzero(~wide.any(1) & (errors[:, -1] > WIDE))
    yield _line("width", [(f"component {j} across its narrowest side ({_axis(mixture, int(j))})", errors[j, -1])
                          for j in sides])  # fmt: skip


def _axis(mixture: Mixture, j: int) -> str:
    axis = np.linalg.eigh(_scaled(mixture)[j])[1][:, 0]
    return ", ".join(f"{axis[a]:+.2f} {_name(mixture, a)}" for a in np.argsort(-np.abs(axis))[:3])


def _line(what: str, items: list[tuple[str, float]]) -> str:
    """One line for all that is open of a kind; an empty one where nothing is."""
    said = [f"{where} ({_size(relative)})" for where, relative in items]
    return f"the rows leave undetermined the {what} of {_some(said)}" if said else ""


def _size(relative: float) -> str:
    return f"its relative error is {relative:.0%}" if relative < 1e3 else "they say nothing of it"


def _some(said: list[str]) -> str:
    more = f" and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
    return ", of ".join(said[:SHOWN]) + more


def _name(mixture: Mixture, a: int) -> str:
    return names_or_numbers(mixture.labels, mixture.d)[a]


def _scaled(mixture: Mixture) -> Array:
    """Covariances (k, d, d) in units of the mixture's own standard deviations, so that units do not matter."""
    scale = np.sqrt(np.maximum(np.diag(mixture.covariance()), 1e-300))
    return mixture.covariances / scale[:, None] / scale
