"""Parameters: a mixture as kernels want it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Parameters(NamedTuple):
    """Log-weights (..., k), means (..., k, d) and covariances (..., k, d, d)."""

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
        """The same on another device or in another type."""
        return Parameters(*(t.to(device=device, dtype=dtype) for t in self))

    def pick(self, which: Tensor | list[int]) -> Parameters:
        """Some components, or sets of them, by index."""
        return Parameters(*(t[which] for t in self))
