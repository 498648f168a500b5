"""The true values of some rows under some components: one Gaussian for each pair."""

from __future__ import annotations

import torch
from torch import Tensor

from ..rows.batch import Batch
from .parameters import Parameters


def conditionals(parameters: Parameters, batch: Batch, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """b (m, d), B (m, d, d) and the squared Mahalanobis distance (m,) of some pairs of rows i and components j.

    B is (I - K R) V (I - K R)^T + K S K^T with K = V R^T T^-1: a sum of squares, positive however small S is. All are
    NaN where T has no Cholesky factor.
    """
    _, m, V = parameters
    observed = ~batch.x.T.isnan()
    seen = observed.to(m.dtype)
    R = (
        torch.eye(batch.p, dtype=m.dtype, device=m.device)
        if batch.projection is None
        else batch.projection.permute(2, 0, 1)
    )
    R = seen[:, :, None] * R
    S = batch.covariance() * seen[:, :, None] * seen[:, None, :]
    x = torch.where(observed, batch.x.T, 0.0)
    gaps, R, S, m, V = torch.diag_embed(1 - seen)[i], R[i], S[i], m[j], V[j]
    RV = R @ V
    L, failed = torch.linalg.cholesky_ex(RV @ R.mT + S + gaps)
    L = torch.where((failed > 0)[:, None, None], torch.nan, L)
    residual = (x[i, :, None] - R @ m[:, :, None]) * seen[i, :, None]
    gain = torch.cholesky_solve(RV, L).mT
    z = torch.linalg.solve_triangular(L, residual, upper=False)[..., 0]
    away = torch.eye(parameters.d, dtype=m.dtype, device=m.device) - gain @ R
    B = away @ V @ away.mT + gain @ S @ gain.mT
    return m + (gain @ residual)[..., 0], (B + B.mT) / 2, (z * z).sum(-1)
