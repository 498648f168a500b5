"""A yardstick that shares only the sums with a fit: SciPy's L-BFGS-B on logits, means and log-Cholesky factors."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import minimize

import xdeconv as xd
from xdeconv import kernels
from xdeconv.rows.batch import Batch

EVALUATIONS = 5000


def best_from(mixture: xd.Mixture, batch: Batch) -> float:
    """The largest log-likelihood of a batch that L-BFGS-B reaches from a mixture."""
    k, d = mixture.means.shape
    below, diagonal = np.tril_indices(d), np.arange(d)

    def unpacked(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        logits, means, entries = np.split(theta, [k, k + k * d])
        L = np.zeros((k, d, d))
        L[:, *below] = entries.reshape(k, -1)
        L[:, diagonal, diagonal] = np.exp(L[:, diagonal, diagonal])
        return logits, means.reshape(k, d), L

    def descent(theta: np.ndarray) -> tuple[float, np.ndarray]:
        logits, means, L = unpacked(theta)
        log_weights = logits - np.logaddexp.reduce(logits)
        tensors = (torch.from_numpy(a) for a in (log_weights, means, L @ L.transpose(0, 2, 1)))
        stats = kernels.accumulate(*tensors, batch)
        on_factor = stats.G.numpy() @ L
        on_factor[:, diagonal, diagonal] *= L[:, diagonal, diagonal]
        on_logits = stats.q.numpy() - float(stats.rows) * np.exp(log_weights)
        gradient = np.concatenate([on_logits, stats.g.numpy().ravel(), on_factor[:, *below].ravel()])
        return -float(stats.loglik), -gradient

    L = np.linalg.cholesky(mixture.covariances)
    L[:, diagonal, diagonal] = np.log(L[:, diagonal, diagonal])
    theta = np.concatenate([np.log(mixture.weights), mixture.means.ravel(), L[:, *below].ravel()])
    limits = {"maxiter": EVALUATIONS, "maxfun": EVALUATIONS, "maxcor": 50, "ftol": 1e-15, "gtol": 1e-4}
    return -float(minimize(descent, theta, jac=True, method="L-BFGS-B", options=limits).fun)
