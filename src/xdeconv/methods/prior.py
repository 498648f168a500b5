"""One prior for every method: inverse-Wishart on covariances, Dirichlet on weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real

import torch
from torch import Tensor

from .checks import number, per_dimension, variances
from .constants import per_coordinate
from .inverse import inverse_and_log_det


@dataclass(frozen=True)
class Prior:
    """log p = sum_j [-c/2 log|V_j| - 1/2 tr(w V_j^-1)] + (concentration - 1) sum_j log alpha_j.

    With c = 1 batch EM gives V = (sum + w I) / (q + 1), as in Bovy et al. (2011). It means the same in every method.

    Parameters
    ----------
    w : float or sequence of float, default 0.0
        A variance in the user's units, one for all coordinates or one per coordinate.
    c : float, default 1.0
        It counts as so many rows.
    concentration : float, default 1.0
        Of the Dirichlet prior on weights; below 1 it favours few components.

    Examples
    --------
    >>> Prior(w=0.01).standardized([1.0, 10.0]).w
    (0.01, 0.0001)
    """

    w: float | Sequence[float] = 0.0
    c: float = 1.0
    concentration: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.concentration, Real) and self.concentration <= 0:
            raise ValueError(f"concentration of a prior must be above 0, got {self.concentration!r}")
        checked = {"w": variances(self.w, "w of a prior"), "c": number(self.c, "c of a prior")}
        checked["concentration"] = number(self.concentration, "concentration of a prior")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def standardized(self, scale: Sequence[float]) -> Prior:
        """The same prior for coordinates divided by ``scale``.

        Parameters
        ----------
        scale : sequence of float
            One per coordinate.

        Returns
        -------
        Prior
            With w in these coordinates.
        """
        w = per_dimension(self.w, len(scale), "w of the prior")
        return replace(self, w=tuple(value / s**2 for value, s in zip(w, scale, strict=True)))

    def scaled(self, share: float) -> Prior:
        """The prior's share for a part of the data.

        Parameters
        ----------
        share : float
            Of the weight of all rows.

        Returns
        -------
        Prior
            So much weaker.
        """
        w = tuple(value * share for value in self.w) if isinstance(self.w, tuple) else float(self.w) * share  # type: ignore[arg-type]
        return Prior(w, self.c * share, 1 + (self.concentration - 1) * share)

    def matrix(self, V: Tensor) -> Tensor:
        """w as a (d, d) matrix.

        Parameters
        ----------
        V : torch.Tensor (k, d, d)
            Covariances.

        Returns
        -------
        torch.Tensor (d, d)
            On the device and in the type of V.
        """
        return torch.diag_embed(per_coordinate(self.w, V))

    def covariances(self, V: Tensor, mass: Tensor, step: Tensor | float) -> Tensor:
        """The EM update: covariances blended with w.

        Parameters
        ----------
        V : torch.Tensor (k, d, d)
            Covariances.
        mass : torch.Tensor (k,)
            Rows that each component holds.
        step : torch.Tensor or float
            Size of the EM step.

        Returns
        -------
        torch.Tensor (k, d, d)
            Covariances.
        """
        blended = (mass[:, None, None] * V + step * self.matrix(V)) / (mass + step * self.c)[:, None, None]
        return torch.where((mass > 0)[:, None, None], blended, V)

    def weights(self, mass: Tensor, total: Tensor | float, step: Tensor | float, k: int) -> Tensor:
        """The EM update of weights, of k components and perhaps a background, from mean responsibilities.

        Parameters
        ----------
        mass : torch.Tensor (k,) or (k + 1,)
            Mean responsibilities.
        total : float
            Weight of all rows.
        step : torch.Tensor or float
            Size of the EM step.
        k : int
            How many of them are components.

        Returns
        -------
        torch.Tensor
            Weights, which add up to 1.
        """
        if self.concentration == 1:
            return mass
        alpha = (total * mass + step * self.on_masses(mass, k)).clamp(min=0)
        return alpha / alpha.sum()

    def on_masses(self, mass: Tensor, k: int) -> Tensor:
        """What the prior adds to the rows of each weight: nothing to those of a background, which comes last.

        Parameters
        ----------
        mass : torch.Tensor (k,) or (k + 1,)
            One per weight.
        k : int
            How many of them are components.

        Returns
        -------
        torch.Tensor
            One per weight.
        """
        added = torch.full_like(mass, self.concentration - 1)
        added[k:] = 0.0
        return added

    def gradient(self, inverse: Tensor) -> Tensor:
        """What the prior adds to G.

        Parameters
        ----------
        inverse : torch.Tensor (k, d, d)
            Inverse covariances.

        Returns
        -------
        torch.Tensor (k, d, d)
            Of all rows.
        """
        return (inverse * per_coordinate(self.w, inverse)) @ inverse - self.c * inverse

    def log_density(self, weights: Tensor, V: Tensor) -> Tensor:
        """Log-density of weights and covariances, without its constant; NaN where a covariance has none.

        Parameters
        ----------
        weights : torch.Tensor (..., k)
            Weights.
        V : torch.Tensor (..., k, d, d)
            Covariances.

        Returns
        -------
        torch.Tensor (...)
            A number, or one for each of several mixtures.
        """
        inverse, log_det = inverse_and_log_det(V)
        trace = (inverse.diagonal(0, -2, -1) * per_coordinate(self.w, V)).sum(-1)
        on_covariances = -0.5 * (self.c * log_det + trace).sum(-1)
        if self.concentration == 1:
            return on_covariances
        alive = weights > 0
        return on_covariances + (self.concentration - 1) * torch.where(alive, weights, 1.0).log().sum(-1)
