"""Where a mixture's density has its maxima: closed-form gradients and Hessians, and a climb that never goes down."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ._mixture import Mixture

Array = np.ndarray
Surface = Callable[[Array], tuple[float, Array, Array]]
"""The height, gradient (d,) and Hessian (d, d) of a function at a point (d,)."""

SAME = 1e-3  # maxima closer than this times the longest step are one
ARRIVED = 1e-7  # a Newton step this many times shorter than the longest ends the climb


def log_density(mixture: Mixture) -> Surface:
    """The log-density of a mixture as a surface."""
    inverse = np.linalg.inv(mixture.covariances)
    log_det = np.linalg.slogdet(2 * np.pi * mixture.covariances).logabsdet
    log_scale = np.log(np.maximum(mixture.weights, 1e-300)) - 0.5 * log_det

    def surface(v: Array) -> tuple[float, Array, Array]:
        away = mixture.means - v
        pull = np.einsum("kde,ke->kd", inverse, away)
        joint = log_scale - 0.5 * (pull * away).sum(1)
        height = float(np.logaddexp.reduce(joint))
        r = np.exp(joint - height)
        gradient = r @ pull
        bend = np.einsum("k,kd,ke->de", r, pull, pull) - np.einsum("k,kde->de", r, inverse)
        return height, gradient, bend - np.outer(gradient, gradient)

    return surface


def log_excess(mixture: Mixture) -> Surface:
    """The logarithm of a mixture's density over that of one Gaussian with its mean and covariance, as a surface."""
    density, alone = log_density(mixture), log_density(one_gaussian(mixture))

    def surface(v: Array) -> tuple[float, Array, Array]:
        (height, gradient, hessian), (h, g, H) = density(v), alone(v)
        return height - h, gradient - g, hessian - H

    return surface


def one_gaussian(mixture: Mixture) -> Mixture:
    """The Gaussian with the mean and covariance of a mixture."""
    return Mixture(np.ones(1), mixture.mean()[None], mixture.covariance()[None], mixture.labels, mixture.units)


def climb(surface: Surface, start: Array, longest: float = 1.0, steps: int = 500) -> Array | None:
    """The maximum (d,) reached from ``start`` by uphill steps no longer than ``longest``; None where there is none."""
    v = np.array(start, dtype=float)
    height, gradient, hessian = surface(v)
    for _ in range(steps):
        curvature, axes = np.linalg.eigh(hessian)
        step = axes @ ((axes.T @ gradient) / np.maximum(np.abs(curvature), 1e-12))
        length = np.linalg.norm(step)
        if length < ARRIVED * longest:
            return v if curvature.max() < 0 else None
        step *= min(1.0, longest / length)
        while surface(v + step)[0] < height and np.any(v + step != v):
            step /= 2
        v = v + step
        height, gradient, hessian = surface(v)
    return None


def find_maxima(surface: Surface, starts: Array, longest: float = 1.0) -> Array:
    """The different maxima (m, d) that climbing from the starts (s, d) reaches, highest first."""
    maxima: list[Array] = []
    for top in (climb(surface, start, longest) for start in starts):
        if top is not None and all(np.linalg.norm(top - other) > SAME * longest for other in maxima):
            maxima.append(top)
    highest_first = sorted(maxima, key=lambda v: -surface(v)[0])
    return np.array(highest_first).reshape(-1, np.shape(starts)[1])
