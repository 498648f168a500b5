"""Aim: what the components of a search are to be: their prior, the structure of their covariances, their tails."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..kernels.parameters import Parameters
from ..methods.prior import Prior
from ..methods.structures import FULL, Structure
from ..mixture.tails import StudentT


@dataclass(frozen=True)
class Aim:
    """A prior, or none, a structure of covariances, and tails, or none, with a nu that a search does not change.

    ``alone`` is true in trials of a few components, where a covariance that all components share is not theirs to move.
    """

    prior: Prior | None = None
    covariance: Structure = FULL
    alone: bool = False
    tails: StudentT | None = None

    def scaled(self, share: float) -> Aim:
        """The same for a part of the data: so much of the prior."""
        return replace(self, prior=None if self.prior is None else self.prior.scaled(share))

    def in_trial(self) -> Aim:
        """The same for a trial of a few components."""
        return replace(self, alone=True)

    def log_density(self, parameters: Parameters) -> Tensor:
        """Log-prior (...) of one mixture's components, or of those of several."""
        log_weights, _, V = parameters
        if self.prior is None:
            return torch.zeros(log_weights.shape[:-1], dtype=torch.float64)
        return self.prior.log_density(log_weights.exp(), V)

    def updated(self, V: Tensor, rows: Tensor, before: Tensor) -> Tensor:
        """Covariances (g, m, d, d) of an EM step, of components with rows (g, m), as prior and structure want them."""
        if self.prior is not None:
            V = self.prior.covariances(V.flatten(0, 1), rows.flatten(), 1.0).view_as(V)
        return self.shaped((V + V.mT) / 2, rows, before)

    def shaped(self, V: Tensor, rows: Tensor, before: Tensor) -> Tensor:
        """Covariances (g, m, d, d) of groups of components with rows (g, m) as the structure wants them."""
        if self.covariance == FULL:
            return V
        if not self.covariance.shared:
            return self.covariance.roughly(V.flatten(0, 1), rows.flatten()).view_as(V)
        if self.alone:
            return before
        share = rows / rows.sum(1, keepdim=True).clamp(min=1e-300)
        return (share[..., None, None] * V).sum(1, keepdim=True).expand_as(V)

    def begun(self, start: Parameters, shared: Tensor) -> Parameters:
        """The start (g, m, ...) of trials, shaped; ``shared`` (t, d, d) is of t trials, g / t ways of each."""
        ways = len(start.means) // max(1, len(shared))
        before = shared.repeat_interleave(ways, dim=0)[:, None].expand_as(start.covariances)
        V = self.shaped(start.covariances, start.log_weights.exp(), before)
        return start._replace(covariances=V)


ANY = Aim()
"""Gaussian components with full covariances, and no prior."""
