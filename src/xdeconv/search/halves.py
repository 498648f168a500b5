"""Halves of a Gaussian: what its two sides along an axis look like."""

from __future__ import annotations

import torch
from torch import Tensor

APART = (2 / torch.pi) ** 0.5  # of a standard deviation: where the mean of half a Gaussian is


def half_shifts(covariances: Tensor) -> Tensor:
    """Shifts (..., d, d), one per axis in rising order of variance: the halves are at mean +- shift.

    The axes are those of the correlation matrix, so that units do not matter. Both halves have the covariance
    V - shift shift^T, so that together they have the moments of the whole.

    Parameters
    ----------
    covariances : Tensor
        (..., d, d), positive semi-definite.

    Returns
    -------
    Tensor
        (..., d, d); the shift along axis a is ``[..., a, :]``.

    Examples
    --------
    >>> half_shifts(torch.diag(torch.tensor([4.0]))[None]).round(decimals=2).abs()
    tensor([[[1.6000]]])
    """
    spread = covariances.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
    safe = torch.where(spread > 0, spread, 1.0)
    correlations = covariances / safe[..., :, None] / safe[..., None, :]
    values, vectors = torch.linalg.eigh(correlations)
    axes = safe[..., :, None] * vectors * values.clamp(min=0).sqrt()[..., None, :]
    return APART * axes.mT
