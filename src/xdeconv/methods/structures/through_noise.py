"""Coordinates of covariances that rows see through noise.

Complete data would hold q / 2 tr(V^-1 dV V^-1 dV) of information on a covariance; rows with noise hold about q / 2
tr(M dV M dV), M being the mean of R^T T^-1 R over rows. Let V = B B^T with B^T M B = diag(s): s_a is 1 where a
component is much wider than the noise and V_a / T_a, next to nothing, where it is much narrower. Of the logarithm of
that width rows know 2 q s_a^2, not the 2 q of complete data: EM's step, which believes the latter, is s_a^2 times too
short.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from ...kernels.parameters import Factors
from ..inverse import inverse_of
from .coordinates import Coordinates
from .relative import covariances_at, gradient_at

Sight = Callable[[Tensor], Tensor]
"""From covariances (k, d, d) to the mean information of a row on each mean (k, d, d): V^-1 without noise."""
FAINT = 1e-4  # of all rows: what is known of a number at least, so that a standard error is no longer than steps can be
LEAST = 1e-7  # of a variance as rows see it: widths become no smaller, so that covariances stay positive definite
UNSEEN = 1e-14  # of what complete data would tell: with less, none of the rows that were looked at sees an axis
RARELY = 2.0**-8  # of the rows, about one of those that were looked at: how many may see such an axis all the same
VANISHED = 0.1  # of a width at the anchor


@dataclass(frozen=True)
class ThroughNoise(Coordinates):
    """Log-Cholesky factors C of V = B C C^T B^T, each by the square root of the information that rows have of it.

    With H = B^T G B that is 2 (q s_a^2 + |H_aa|) on the log-diagonal and q s_a s_b + |H_aa| below it: the slope H_aa is
    curvature of a logarithm, too.
    """

    basis: Tensor  # B (k, d, d)
    share: Tensor  # s (k, d)
    roots: Tensor  # (k, d (d + 1) / 2)

    @classmethod
    def around(cls, L: Tensor, seen: Tensor, rows: Tensor, G: Tensor) -> Self:
        """The coordinates whose origin is V = L L^T, given M (k, d, d), q (k,) and the sums G there; NaN where L is."""
        share, basis = _axes(L, seen)
        told = share.clamp(min=LEAST)
        pull = (basis.mT @ G @ basis).diagonal(dim1=1, dim2=2).abs()
        a, b = _triangle(L)
        known = rows[:, None] * told[:, a] * told[:, b] + pull[:, a]
        known = torch.maximum(torch.where(a == b, 2.0, 1.0).to(known) * known, FAINT * rows.sum())
        return cls(basis, share, known.sqrt())

    @classmethod
    def blank(cls, V: Tensor) -> Self:
        """Coordinates of as many covariances (k, d, d), to be restored."""
        return cls(V, V[:, 0], V[:, *_triangle(V)])

    @property
    def size(self) -> int:
        """d (d + 1) / 2 for each component."""
        return self.roots.numel()

    @property
    def units(self) -> Tensor:
        """What means are moved by (k, d, d): A with A A^T = M^-1."""
        return self.basis / self.share.sqrt()[:, None, :]

    @cached_property
    def condition(self) -> float:
        """How many times more complete data would know of the width that noise hides most."""
        return 1 / float(self._told.amin()) ** 2

    def at(self, y: Tensor) -> tuple[Tensor, Factors | None]:
        """V = B C C^T B^T."""
        return covariances_at(self.basis, self._entries(y), self._least), None

    def gradient(self, y: Tensor, G: Tensor, free: Tensor) -> Tensor:
        """B^T G B C, times C on the diagonal."""
        on_entries = gradient_at(self.basis, self._entries(y), self._least, G)
        return (on_entries * free[:, None] / self.roots).reshape(-1)

    def most(self, y: Tensor) -> Tensor:
        """The largest logarithm of a width, as a part of what makes it as wide as noise, or what is added to one."""
        return (y.view_as(self.roots).abs() * self._largest).amax()

    def strayed(self, y: Tensor) -> bool:
        """Whether a width has all but vanished: its logarithm would hide what is to be gained if it grew again."""
        return bool((y.view_as(self.roots) < self._vanished).any())

    def unscaled(self, y: Tensor) -> Tensor:
        """The entries of C below its diagonal, and logarithms on it."""
        return self._entries(y).reshape(-1)

    def free(self, components: Tensor) -> Tensor:
        """As many for each component."""
        return components.repeat_interleave(self.roots.shape[1])

    def scaled(self, scale: Tensor) -> Self:
        """C is the same, B in other units."""
        return replace(self, basis=scale[:, None] * self.basis)

    def _entries(self, y: Tensor) -> Tensor:
        """The same for each component (k, d (d + 1) / 2)."""
        return y.view_as(self.roots) / self.roots

    @cached_property
    def _least(self) -> Tensor:
        """The least that C may have on its diagonal (k, d), which the anchor itself has not reached."""
        return (0.999 * LEAST / self._told).sqrt()

    @cached_property
    def _largest(self) -> Tensor:
        """What a number (k, d (d + 1) / 2) is multiplied by where changes are compared."""
        a, b = _triangle(self.basis)
        share = self._told[:, a]
        enough = (share.reciprocal().log1p() / 2).clamp(min=1.0)
        return torch.where(a == b, 1 / enough, share.sqrt()) / self.roots

    @cached_property
    def _vanished(self) -> Tensor:
        """Below which number (k, d (d + 1) / 2) a width has all but vanished."""
        a, b = _triangle(self.basis)
        return torch.where(a == b, math.log(VANISHED) * self.roots, -torch.inf)

    @cached_property
    def _told(self) -> Tensor:
        """Shares (k, d) that are not too small to compute with."""
        return self.share.clamp(min=LEAST)


def complete_data(covariances: Tensor) -> Tensor:
    """What rows without noise would see of them: a chart in which the gradient is EM's own step."""
    return inverse_of(covariances)


def _axes(L: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Shares (k, d), axes that rows see best first, and these axes B (k, d, d) with V = B B^T; NaN where L is.

    An axis that no row sees has no units of its own: those of a share of 0 were 1e150 times its width.
    """
    inside = L.mT @ seen @ L
    sound = inside.isfinite().all(2, keepdim=True).all(1, keepdim=True)
    share, turn = torch.linalg.eigh(torch.where(sound, inside, 0.0).cpu())
    share = torch.where(share < UNSEEN, RARELY, share).clamp(max=1.0)
    share, turn = share.flip(-1).to(L.device), turn.flip(-1).to(L.device)
    return share, torch.where(sound, L @ turn, torch.nan)


def _triangle(matrices: Tensor) -> tuple[Tensor, Tensor]:
    d = matrices.shape[-1]
    a, b = torch.tril_indices(d, d, device=matrices.device)
    return a, b
