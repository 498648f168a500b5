"""A mixture and its background as Gaussians alone: good enough to draw, where a picture adds up components."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..mixture._mixture import Mixture
from ..mixture.background import Uniform

EACH = 24  # Gaussians along each side of a box, whose edges are blurred by one in so many


def flattened(mixture: Mixture) -> Mixture:
    """The same density as one mixture of Gaussians; a box in one or two dimensions becomes a grid of narrow ones.

    >>> from xdeconv import Uniform
    >>> line = Mixture([1.0], [[0.0]], [[[1.0]]], background=Uniform(-5.0, 5.0), background_weight=0.5)
    >>> flattened(line).k, float(np.exp(flattened(line).log_prob([[4.0]]))[0].round(3))
    (25, 0.05)
    """
    mixture = mixture.gaussians()
    beside = mixture.background
    if beside is None:
        return mixture
    inner = flattened(beside) if isinstance(beside, Mixture) else _grid(beside) if isinstance(beside, Uniform) else None
    if inner is None:
        raise ValueError("the background was given as log-densities of rows: draw with_(background=None)")
    b = mixture.background_weight
    return replace(
        mixture,
        weights=np.concatenate([(1 - b) * mixture.weights, b * inner.weights]),
        means=np.concatenate([mixture.means, inner.means]),
        covariances=np.concatenate([mixture.covariances, inner.covariances]),
        background=None,
        background_weight=0.0,
    )


def _grid(box: Uniform) -> Mixture:
    low, high = np.array(box.low), np.array(box.high)
    places = np.stack(np.meshgrid(*[(np.arange(EACH) + 0.5) / EACH] * box.d), -1).reshape(-1, box.d)
    V = np.diag(((high - low) / EACH) ** 2)
    return Mixture(
        np.full(len(places), 1 / len(places)), low + places * (high - low), np.broadcast_to(V, (len(places), *V.shape))
    )
