"""Aim: what the components of a search may look like: a prior, and a structure of covariances beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from ..kernels.parameters import Parameters
from ..methods.prior import Prior
from ..methods.structures import FULL, Structure


@dataclass(frozen=True)
class Aim(Prior):
    """A prior, or none (w = c = 0), for components whose covariances have a structure.

    ``alone`` is true in trials of a few components, where a covariance that all components share is not theirs to move.
    """

    covariance: Structure = FULL
    alone: bool = False

    def scaled(self, share: float) -> Aim:
        """The prior's share for a part of the data, and the structure."""
        return Aim(**vars(super().scaled(share)), covariance=self.covariance, alone=self.alone)


def aim_of(prior: Prior | None, covariance: Structure) -> Prior | None:
    """A prior with a structure; full covariances need no more than the prior."""
    if covariance == FULL:
        return prior
    return Aim(**vars(prior or Prior(w=0.0, c=0.0)), covariance=covariance)


def structure_of(prior: Prior | None) -> Structure:
    """The structure of an aim; full for a plain prior."""
    return prior.covariance if isinstance(prior, Aim) else FULL


def in_trial(prior: Prior | None) -> Prior | None:
    """The same for a trial of a few components."""
    return replace(prior, alone=True) if isinstance(prior, Aim) else prior


def shaped(V: Tensor, rows: Tensor, before: Tensor, prior: Prior | None) -> Tensor:
    """Covariances (g, m, d, d) of groups of components with rows (g, m) as the structure wants them."""
    structure = structure_of(prior)
    if structure == FULL:
        return V
    if not structure.shared:
        return structure.roughly(V.flatten(0, 1), rows.flatten()).view_as(V)
    if isinstance(prior, Aim) and prior.alone:
        return before
    share = rows / rows.sum(1, keepdim=True).clamp(min=1e-300)
    return (share[..., None, None] * V).sum(1, keepdim=True).expand_as(V)


def begun(start: Parameters, shared: Tensor, prior: Prior | None) -> Parameters:
    """The start (g, m, ...) of trials, of the structure; ``shared`` (t, d, d) is of t trials, g / t ways of each."""
    ways = len(start.means) // max(1, len(shared))
    before = shared.repeat_interleave(ways, dim=0)[:, None].expand_as(start.covariances)
    V = shaped(start.covariances, start.log_weights.exp(), before, prior)
    return start._replace(covariances=V)
