"""Gauss and Legendre's rule: nodes and weights of integrals of smooth functions."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor


def gauss_legendre(count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes (count,) between -1 and 1 and their weights (count,), in the type and on the device of a tensor."""
    nodes, weights = (torch.tensor(part, dtype=like.dtype, device=like.device) for part in _rule(count))
    return nodes, weights


@lru_cache
def _rule(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(count)
