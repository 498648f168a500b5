"""The sums over rows that everything which learns reads, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Stats:
    """Sums over rows for k components in d dimensions, float64, in one flat tensor.

    ``rows`` is the sum of row weights, ``loglik`` the weighted log-likelihood, and with r, w, M as in
    :mod:`xdeconv.kernels`, ``q = sum r`` (k,), ``g = sum r w`` (k, d) and ``G = sum r (w w^T - M)`` (k, d, d).
    Where ``whole`` is false, G is right only where covariances F F^T + D read it: in G F and in its diagonal.
    Of ``extra`` numbers that belong to no component (a factor on errors, a tail's nu), ``slopes`` are the derivatives
    of loglik and ``certainty`` the information that complete data would hold. Of components with ``heavy`` tails, which
    are several of scales c, ``pull`` is sum r / c (k,): what their means weigh rows by.
    Where rows were selected, ``rows`` counts those that were rejected too, which are ``unseen``; ``seen`` does not.
    Stats form a commutative monoid under ``+``: batches, threads, devices and machines all merge the same way.

    Parameters
    ----------
    packed : torch.Tensor
        All sums, float64.
    k, d : int
        Components and dimensions.
    whole : bool, default True
        Whether all of G is right.
    extra : int, default 0
        Numbers that belong to no component.
    heavy : bool, default False
        Whether components have heavy tails.
    unseen : bool, default False
        Whether the last number is the weight of the rows that a selection rejected.

    Examples
    --------
    >>> Stats.zeros(2, 3).G.shape
    torch.Size([2, 3, 3])
    """

    packed: Tensor
    k: int
    d: int
    whole: bool = True
    extra: int = 0
    heavy: bool = False
    unseen: bool = False

    @staticmethod
    def size(k: int, d: int, extra: int = 0, heavy: bool = False, unseen: bool = False) -> int:
        """Length of the flat tensor.

        Parameters
        ----------
        k, d : int
            Components and dimensions.
        extra : int, default 0
            Numbers that belong to no component.
        heavy : bool, default False
            Whether components have heavy tails.
        unseen : bool, default False
            Whether rows were selected.

        Returns
        -------
        int
            How many numbers.
        """
        return 2 + k * (1 + d + d * d) + 2 * extra + k * heavy + unseen

    @classmethod
    def zeros(cls, k: int, d: int, device: torch.device | str = "cpu") -> Stats:
        """The neutral element.

        Parameters
        ----------
        k, d : int
            Components and dimensions.
        device : torch.device or str, default "cpu"
            Where they live.

        Returns
        -------
        Stats
            Of no rows.
        """
        return cls(torch.zeros(cls.size(k, d), dtype=torch.float64, device=device), k, d)

    def to(self, device: torch.device | str) -> Stats:
        """The same sums on a device.

        Parameters
        ----------
        device : torch.device or str
            Where.

        Returns
        -------
        Stats
        """
        return replace(self, packed=self.packed.to(device))

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
        start = 2 + self.k * (1 + self.d)
        return self.packed[start : start + self.k * self.d**2].view(self.k, self.d, self.d)

    @property
    def slopes(self) -> Tensor:
        return self.packed[self.size(self.k, self.d) :][: self.extra]

    @property
    def certainty(self) -> Tensor:
        return self.packed[self.size(self.k, self.d) :][self.extra : 2 * self.extra]

    @property
    def pull(self) -> Tensor:
        return self.packed[self.size(self.k, self.d, self.extra) :][: self.k * self.heavy]

    @property
    def seen(self) -> Tensor:
        """The weight of the rows that there are."""
        return self.rows - self.packed[-1] if self.unseen else self.rows

    def complete(self, total: float) -> Tensor | float:
        """The weight of a data set with the rows that a selection rejected, as many as for these.

        Parameters
        ----------
        total : float
            Without them.

        Returns
        -------
        torch.Tensor or float
        """
        return total * self.rows / self.seen.clamp(min=1e-300) if self.unseen else total

    def for_em(self) -> Stats:
        """Sums with which the update of Gaussian components is EM's for heavy ones too.

        With Q the pull, delta = V g / Q and V' = V + (V G V - Q delta delta^T) / q: as g q / Q and
        G + (q - Q) g g^T / Q^2 would have it.
        """
        if not self.heavy:
            return self
        q, Q = self.q, self.pull.clamp(min=1e-300)
        g = self.g * (q / Q)[:, None]
        G = self.G + ((q - Q) / Q**2)[:, None, None] * self.g[:, :, None] * self.g[:, None, :]
        return Stats(torch.cat([self.packed[:2], q, g.flatten(), G.flatten()]), self.k, self.d, self.whole)

    def with_numbers(self, slopes: Tensor, certainty: Tensor) -> Stats:
        """The same with more numbers that belong to no component, after those that there are.

        Parameters
        ----------
        slopes, certainty : torch.Tensor (m,)
            Of the numbers.

        Returns
        -------
        Stats
        """
        base = self.packed[: self.size(self.k, self.d)]
        rest = self.packed[self.size(self.k, self.d, self.extra) :]
        packed = torch.cat([base, self.slopes, slopes, self.certainty, certainty, rest])
        return replace(self, packed=packed, extra=self.extra + len(slopes))

    def without_numbers(self) -> Stats:
        """The same without those."""
        rest = self.packed[self.size(self.k, self.d, self.extra) :]
        return replace(self, packed=torch.cat([self.packed[: self.size(self.k, self.d)], rest]), extra=0)

    def masses(self, weights: int) -> Tensor:
        """Rows of each weight.

        Parameters
        ----------
        weights : int
            k, or k + 1 with a background.

        Returns
        -------
        torch.Tensor (weights,)
            q, and the background's rows, which are all others.
        """
        if weights == self.k:
            return self.q
        return torch.cat([self.q, (self.rows - self.q.sum()).clamp(min=0.0)[None]])

    def __add__(self, other: Stats) -> Stats:
        ours, theirs = ((s.k, s.d, s.extra, s.heavy, s.unseen) for s in (self, other))
        if ours != theirs:
            raise ValueError(f"cannot add Stats of (k, d) = {(self.k, self.d)} and {(other.k, other.d)}")
        return replace(self, packed=self.packed + other.packed, whole=self.whole and other.whole)
