"""What a model says of noisy rows: its density and its distribution with each row's own noise, in closed form."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from ..mixture._mixture import Mixture
from .flattening import flattened

Array = np.ndarray
GROUPS = 64  # of rows with nearly the same noise
NUMBERS = 1 << 21  # in the largest array of a chunk


def noisy_density(line: Mixture, x: Array, variances: Array, groups: int = GROUPS) -> Array:
    """The density of noisy values under a mixture of one coordinate: the mean over the noise of the rows.

    Rows are put in at most ``groups`` groups of nearly the same noise; with fewer rows it is exact.

    Parameters
    ----------
    line : Mixture
        A mixture of one coordinate.
    x : numpy.ndarray (m,)
        Where the density is wanted.
    variances : numpy.ndarray (n,)
        The noise of each row.
    groups : int, optional
        At most so many groups.

    Returns
    -------
    numpy.ndarray (m,)
        The density.
    """
    total, line = np.zeros(len(x)), flattened(line)
    for share, S in grouped(np.asarray(variances, dtype=float)[:, None, None], groups):
        sd = np.sqrt(line.covariances[:, 0, 0] + S[0, 0])
        sd = np.maximum(sd, 1e-9 * np.ptp(x))  # what has no width has no finite density: as narrow as can be drawn
        z = (x[:, None] - line.means[:, 0]) / sd
        total += share * np.exp(-0.5 * z * z) @ (line.weights / (sd * np.sqrt(2 * np.pi)))
    return total


def grouped(S: Array, groups: int = GROUPS) -> list[tuple[float, Array]]:
    """Covariances (n, c, c) as at most ``groups`` pairs of (share of the rows, mean covariance), alike ones together.

    Groups are halved at the median of whatever differs most among the logarithms of the variances and the correlations.
    """
    parts = [np.arange(len(S))]
    features = _features(S)
    while len(parts) < groups:
        spreads = [np.ptp(features[part], axis=0).max() * len(part) if len(part) > 1 else 0.0 for part in parts]
        widest = int(np.argmax(spreads))
        if spreads[widest] == 0:
            break
        parts[widest : widest + 1] = _halves(features, parts[widest])
    return [(len(part) / len(S), S[part].mean(axis=0)) for part in parts]


def _halves(features: Array, part: Array) -> list[Array]:
    """A group cut in two at the median of its widest feature; never an empty half."""
    values = features[part][:, np.ptp(features[part], axis=0).argmax()]
    low = values <= np.median(values)
    if low.all():
        low = values < values.max()
    return [part[low], part[~low]]


def _features(S: Array) -> Array:
    """Logarithms of the variances and correlations (n, c (c + 1) / 2)."""
    variance = np.einsum("naa->na", S)
    tiny = np.sqrt(np.finfo(float).tiny) + 1e-6 * variance.max(axis=0, initial=0.0)
    a, b = np.tril_indices(S.shape[1], -1)
    correlation = S[:, a, b] / np.sqrt((variance[:, a] + tiny[a]) * (variance[:, b] + tiny[b]))
    return np.concatenate([np.log(variance + tiny), correlation], axis=1)


def distribution(weights: Array, means: Array, variances: Array, x: Array) -> Array:
    """P(value <= x_i) (n,) of mixtures of one coordinate: means and variances (n, k), or (k,) for all rows alike.

    A component without any spread counts half where x is its mean.
    """
    away, sd = x[:, None] - means, np.sqrt(variances)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = away / sd
    return ndtr(np.where(np.isnan(z), 0.0, z)) @ weights
