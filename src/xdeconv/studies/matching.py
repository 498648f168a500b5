"""Which component of a refit is which of the fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from ..methods.structures.through_noise import Sight
from ..mixture._mixture import Mixture
from ..mixture.distances import bhattacharyya


def matched(mixture: Mixture, to: Mixture, sight: Sight | None = None) -> Mixture:
    """The mixture with its components in the order that is nearest to another's, by the sum of distances.

    ``sight`` tells what rows see of covariances: widths that noise hides say nothing of which component is which.

    >>> V = np.ones((2, 1, 1))
    >>> a, b = Mixture([0.3, 0.7], [[0.0], [9.0]], V), Mixture([0.6, 0.4], [[8.0], [1.0]], V)
    >>> matched(b, to=a).weights
    array([0.4, 0.6])
    """
    apart = bhattacharyya(to.means, _seen(to, sight), mixture.means, _seen(mixture, sight))
    order = linear_sum_assignment(apart)[1]
    weights, means, V = (a[order] for a in (mixture.weights, mixture.means, mixture.covariances))
    return replace(mixture, weights=weights, means=means, covariances=V)


def _seen(mixture: Mixture, sight: Sight | None) -> np.ndarray:
    """Covariances (k, d, d) as rows see them: a row behind noise S holds V + S of a component."""
    if sight is None:
        return mixture.covariances
    information = sight(torch.tensor(mixture.covariances)).numpy()
    if not np.isfinite(information).all():  # a covariance that cannot be factored, of a coordinate without noise
        return mixture.covariances
    return np.linalg.pinv(information, hermitian=True)
