"""The inverse of a matrix from its Cholesky factor; on a GPU by operations that a CUDA graph can record."""

from __future__ import annotations

import torch
from torch import Tensor


def inverse_of(L: Tensor) -> Tensor:
    """(L L^T)^-1 of factors (..., d, d)."""
    if not L.is_cuda:
        return torch.cholesky_inverse(L)
    eye = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device).expand_as(L)
    A = torch.linalg.solve_triangular(L, eye, upper=False)
    return A.mT @ A
