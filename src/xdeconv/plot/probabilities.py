"""The probability of a value below the one observed, exact under the noisy model, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..kernels import reference
from ..mixture._mixture import Mixture
from ..mixture.background import Uniform
from ..mixture.selections.contract import Selecting
from ..rows.batch import Batch
from .axes import Array
from .convolving import NUMBERS, distribution
from .flattening import flattened

if TYPE_CHECKING:
    pass

DRAWS = 50  # for each row that was selected: probabilities are even whatever their number
MOST_OF_BOX = 2  # dimensions of a box that Gaussians can stand for


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
