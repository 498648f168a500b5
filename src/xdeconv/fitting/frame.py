"""Frame: the coordinates of a fit, (v - shift) / scale, which no user ever sees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..mixture._mixture import Mixture
from ..rows.data import Source
from .initial import SAMPLE_ROWS, fit_gaussian, latent_rows, moments


@dataclass(frozen=True)
class Frame:
    """Shift and scale (d,) of each latent coordinate, float64 on the CPU."""

    shift: Tensor
    scale: Tensor

    @classmethod
    def of(cls, source: Source, standardize: bool, single: bool, seed: int) -> Frame:
        """The frame that suits some rows: scaled if asked for, and centred where the number type needs it."""
        ones = torch.ones(source.dim).double()
        if not standardize and not single:
            return cls(0 * ones, ones)
        sample = source.sample(SAMPLE_ROWS, seed)
        if not standardize and sample.projection is not None:
            return cls(0 * ones, ones)
        if sample.projection is None:
            shift, scale = moments(*latent_rows(sample, None))
            return cls(shift.cpu(), scale.cpu() if standardize else ones)
        gaussian = fit_gaussian(sample)
        spread = np.sqrt(np.maximum(np.diagonal(gaussian.covariances[0]), 1e-300))
        return cls(torch.from_numpy(gaussian.means[0].copy()), torch.from_numpy(spread))

    @classmethod
    def around(cls, mixture: Mixture) -> Frame:
        """The frame in which a mixture as a whole has mean 0 and, where it has any width, variance 1."""
        variance = torch.from_numpy(np.diag(mixture.covariance()).copy())
        return cls(torch.from_numpy(mixture.mean()), torch.where(variance > 0, variance, 1.0).sqrt())

    @property
    def inward(self) -> tuple[np.ndarray, np.ndarray]:
        """The shift and scale (d,) by which ``transformed`` takes what is of the user's coordinates into these."""
        return (-self.shift / self.scale).numpy(), (1 / self.scale).numpy()

    def into(self, mixture: Mixture) -> Mixture:
        """A mixture of the user's in these coordinates."""
        return mixture.transformed(*self.inward)

    def out_of(self, mixture: Mixture) -> Mixture:
        """A mixture of these coordinates in the user's."""
        return mixture.transformed(self.shift.numpy(), self.scale.numpy())

    def variances_out(self, variances: tuple[float, ...]) -> list[float]:
        """Variances of these coordinates in the user's."""
        return [value * float(s) ** 2 for value, s in zip(variances, self.scale, strict=True)]
