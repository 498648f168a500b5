"""The sums over rows that everything which learns reads, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Stats:
    """Sums over rows for k components in d dimensions, float64, in one flat tensor.

    ``rows`` is the sum of row weights, ``loglik`` the weighted log-likelihood, and with r, w, M as in
    :mod:`xdeconv.kernels`, ``q = sum r`` (k,), ``g = sum r w`` (k, d) and ``G = sum r (w w^T - M)`` (k, d, d).
    Where ``whole`` is false, G is right only where covariances F F^T + D read it: in G F and in its diagonal.
    Stats form a commutative monoid under ``+``: batches, threads, devices and machines all merge the same way.

    >>> Stats.zeros(2, 3).G.shape
    torch.Size([2, 3, 3])
    """

    packed: Tensor
    k: int
    d: int
    whole: bool = True

    @staticmethod
    def size(k: int, d: int) -> int:
        """Length of the flat tensor."""
        return 2 + k * (1 + d + d * d)

    @classmethod
    def zeros(cls, k: int, d: int, device: torch.device | str = "cpu") -> Stats:
        """The neutral element."""
        return cls(torch.zeros(cls.size(k, d), dtype=torch.float64, device=device), k, d)

    @property
    def rows(self) -> Tensor:
        return self.packed[0]

    @property
    def loglik(self) -> Tensor:
        return self.packed[1]

    @property
    def q(self) -> Tensor:
        return self.packed[2 : 2 + self.k]

    @property
    def g(self) -> Tensor:
        start = 2 + self.k
        return self.packed[start : start + self.k * self.d].view(self.k, self.d)

    @property
    def G(self) -> Tensor:
        return self.packed[2 + self.k * (1 + self.d) :].view(self.k, self.d, self.d)

    def __add__(self, other: Stats) -> Stats:
        if (self.k, self.d) != (other.k, other.d):
            raise ValueError(f"cannot add Stats of (k, d) = {(self.k, self.d)} and {(other.k, other.d)}")
        return Stats(self.packed + other.packed, self.k, self.d, self.whole and other.whole)
