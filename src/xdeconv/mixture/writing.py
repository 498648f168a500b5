"""A mixture for files and for other programs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

import torch

from ..system.files import save_tensors
from . import exchange, storing
from .components import Components

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture


class Writing(Components):
    """How a mixture leaves this program, and comes from another."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file, float64; the old file stays whole until the new one is.

        Parameters
        ----------
        path : str or path
            The file to write.
        """
        saved = storing.saved(self)
        save_tensors(path, "mixture", saved.arrays, saved.facts, saved.features)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write for other programs.

        Parameters
        ----------
        path : str or path
            The file to write: .npz, or .fits with a line for each component.
        """
        exchange.export(self._exchanged, path)

    def to_sklearn(self) -> GaussianMixture:
        """A fitted :class:`sklearn.mixture.GaussianMixture` of the same density, which knows no noise.

        >>> from xdeconv import Mixture
        >>> Mixture([1.0], [[0.0]], [[[4.0]]]).to_sklearn().score_samples([[0.0]]).round(3)
        array([-1.612])
        """
        return exchange.to_sklearn(self._exchanged)

    def to_torch(self) -> torch.distributions.MixtureSameFamily:
        """The density of the true values as a :class:`torch.distributions.MixtureSameFamily`, float64.

        >>> from xdeconv import Mixture
        >>> Mixture([1.0], [[3.0]], [[[4.0]]]).to_torch().mean
        tensor([3.], dtype=torch.float64)
        """
        return exchange.to_torch(self._exchanged)

    def to_numpyro(self) -> Any:
        """The density of the true values as a distribution of NumPyro, where that is installed."""
        return exchange.to_numpyro(self._exchanged)

    @classmethod
    def from_sklearn(cls, model: Any, labels: Any = None, units: Any = None) -> Self:
        """The density of a fitted model of scikit-learn's.

        Parameters
        ----------
        model : GaussianMixture, BayesianGaussianMixture or XDGMM
            Of any covariance type.
        labels, units : sequence of str, optional
            Names and units of the coordinates; labels by default those that the model was fitted with.

        Returns
        -------
        Mixture
        """
        return cls(**exchange.from_sklearn(model, labels)._replace(units=units)._asdict())

    @property
    def _exchanged(self) -> exchange.Exchanged:
        if self.background is not None:
            raise ValueError("other programs' mixtures have no background: for the components, with_(background=None)")
        if self.tails is not None:
            raise ValueError("other programs' mixtures have no tails: gaussians() is the same density without")
        return exchange.Exchanged(
            self.weights, self.means, self.covariances, self.labels, self.units, dict(self.meta or {}), self.structure
        )
