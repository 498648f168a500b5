"""Parameters: what kernels need of a mixture, and nothing else; and what they may be told of its covariances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Parameters(NamedTuple):
    """Log-weights (k,), means (k, d) and covariances (k, d, d) of k Gaussians, on one device; or of many, (..., k).

    It unpacks into three tensors: ``kernels.log_prob(*parameters, batch)``.

    Parameters
    ----------
    log_weights : torch.Tensor (k,)
        Logarithms of the weights.
    means : torch.Tensor (k, d)
        Means.
    covariances : torch.Tensor (k, d, d)
        Covariances.

    Examples
    --------
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
        """The same parameters on another device or in another type.

        Parameters
        ----------
        device : torch.device or str, optional
            Where to.
        dtype : torch.dtype, optional
            In which type.

        Returns
        -------
        Parameters
            The same numbers.
        """
        return Parameters(*(tensor.to(device=device, dtype=dtype) for tensor in self))

    def pick(self, which: Tensor | list[int]) -> Parameters:
        """Some components, or sets of them, by index.

        Parameters
        ----------
        which : torch.Tensor or list of int
            Their indices.

        Returns
        -------
        Parameters
            Of these.
        """
        return Parameters(*(tensor[which] for tensor in self))


def stacked(several: Sequence[Parameters], dim: int = 0) -> Parameters:
    """Several parameters of one shape beside each other, along a new axis."""
    return Parameters(*(torch.stack(parts, dim) for parts in zip(*several, strict=True)))


def apart(parameters: Parameters) -> list[Parameters]:
    """What :func:`stacked` was given, along the first axis."""
    return [Parameters(*parts) for parts in zip(*parameters, strict=True)]


class Factors(NamedTuple):
    """Covariances V = F F^T + diag(D) of k factor analysers: loadings F (k, d, r) and variances of their own D (k, d).

    >>> Factors(torch.ones(1, 2, 1), torch.tensor([[1.0, 2.0]])).covariances()
    tensor([[[2., 1.],
             [1., 3.]]])
    """

    loadings: Tensor
    own: Tensor

    def covariances(self) -> Tensor:
        """V (k, d, d)."""
        return self.loadings @ self.loadings.mT + torch.diag_embed(self.own)

    def to(self, device: torch.device | str) -> Factors:
        """The same on a device."""
        return Factors(self.loadings.to(device), self.own.to(device))
