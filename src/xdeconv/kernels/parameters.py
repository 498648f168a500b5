"""Parameters: what kernels need of a mixture, and nothing else."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Parameters(NamedTuple):
    """Log-weights (k,), means (k, d) and covariances (k, d, d) of k Gaussians, on one device; or of many, (..., k).

    It unpacks into three tensors: ``kernels.log_prob(*parameters, batch)``.

    >>> parameters = Parameters(torch.zeros(1), torch.zeros(1, 2), torch.eye(2)[None])
    >>> parameters.k, parameters.d
    (1, 2)
    >>> parameters.to(dtype=torch.float64).means.dtype
    torch.float64
    """

    log_weights: Tensor
    means: Tensor
    covariances: Tensor

    @property
    def k(self) -> int:
        """Number of components."""
        return self.means.shape[-2]

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return self.means.shape[-1]

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Parameters:
        """The same parameters on another device or in another type."""
        return Parameters(*(tensor.to(device=device, dtype=dtype) for tensor in self))

    def pick(self, which: Tensor | list[int]) -> Parameters:
        """Some components, or sets of them, by index."""
        return Parameters(*(tensor[which] for tensor in self))
