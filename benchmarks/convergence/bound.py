"""The least that errors of parameters can be: the Cramér-Rao bound, by the scatter of the truth's scores."""

from __future__ import annotations

import numpy as np
import torch

import xdeconv as xd
from xdeconv.methods.fixed import Fixed
from xdeconv.rows.batch import Batch
from xdeconv.rows.data import ArraySource
from xdeconv.studies.beside import PLAIN
from xdeconv.studies.gradients import Gradients
from xdeconv.studies.information import information
from xdeconv.studies.sandwich import Sandwich
from xdeconv.studies.standard_errors import Errors

ROUNDING = 1e-12  # of the largest eigenvalue: the one way that changes nothing, a shift of all logits, has none


def least_errors(truth: xd.Mixture, batch: Batch) -> np.ndarray:
    """Standard errors of weights, means and covariances that one row would leave, from many rows of the truth.

    The Fisher information is the mean outer product of scores at the truth. The curvature would do as well, but of rows
    that noise drowns a million are too few for it to be positive definite.
    """
    parameters = truth.tensors("cpu")
    L = torch.linalg.cholesky(parameters.covariances)
    there = information(ArraySource(batch), parameters, L, None, Fixed())
    inverse = batch.n * torch.linalg.pinv(there.J, hermitian=True, rtol=ROUNDING)
    sandwich = Sandwich(there.chart, there.free, inverse, inverse.new_zeros(len(inverse), 0), 0.0)
    errors = Errors(truth, (), sandwich, Gradients(truth, there.chart, there.free, Fixed(), PLAIN))
    return np.concatenate([errors.weights, errors.means.ravel(), errors.covariances.ravel()])
