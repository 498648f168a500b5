"""Carried: the numbers of a fit that belong to no component, a tail's nu and factors on errors, as one vector."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...mixture._mixture import Mixture
from ...mixture.inflated import Inflated
from ...mixture.tails import StudentT


@dataclass(frozen=True)
class Carried:
    """Tails and factors on errors; ``numbers`` (m,) are those of the tails, then those of the factors."""

    tails: StudentT | None = None
    inflation: Inflated | None = None

    @property
    def numbers(self) -> Tensor:
        """Where they are now."""
        parts = [part.numbers for part in (self.tails, self.inflation) if part is not None]
        return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)

    def at(self, numbers: Tensor) -> Carried:
        """The same with the numbers that a fit has come to."""
        tails, inflation = self.tails, self.inflation
        first = 0 if tails is None else len(tails.numbers)
        return Carried(
            None if tails is None else tails.at(numbers[:first]),
            None if inflation is None else inflation.at(numbers[first:]),
        )

    def of(self, mixture: Mixture) -> Carried:
        """Those of a mixture, where it has them, else these."""
        return Carried(mixture.tails or self.tails, mixture.inflation or self.inflation)

    def put_on(self, mixture: Mixture) -> Mixture:
        """A mixture that carries them."""
        return mixture.with_(tails=self.tails, inflation=self.inflation)
