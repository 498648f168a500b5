"""How large the noise of each value is, apart from the value itself.

A velocity across the sky is x = (v + n) / (1 + s e), with a parallax that is off by s e of itself: its quoted variance,
S(x) = A + B x + C x^2, grows with the value, so that rows of large noise are rows of large values. Their probabilities

    F(x) = sum_j alpha_j Phi((x - m_j) / sqrt(V_j + S(x)))

are even all the same, since x is less than a number y where v + n - s e y is, which is a Gaussian of variance S(y). But
rows are to be grouped by S at one value for all, and a density of x is dF/dx, of which N(x | m, V + S) is a part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..mixture._mixture import Mixture
from ..rows.batch import Batch
from ..rows.data import Source

Array = np.ndarray


@dataclass(frozen=True)
class Sizes:
    """The size of the noise of values (n, p), by which rows are grouped.

    deviations   standard deviations: as quoted, or those that the row would have ``at`` one value
    slopes       of the quoted variances by the values; None where they are not known to depend on them
    at           (p,) the one value of each coordinate, or None
    """

    deviations: Array
    slopes: Array | None = None
    at: Array | None = None

    @classmethod
    def of(cls, mixture: Mixture, asked: Source | Batch, drawn: Callable[[Source], Batch], batch: Batch) -> Sizes:
        """Of the rows of a batch, which ``drawn`` takes from what was asked about."""
        if not isinstance(asked, Source) or asked.with_noise_at(0.0) is None:
            return cls(np.sqrt(_variances(mixture, batch)))
        x = batch.x.T.double().numpy()
        seen = np.isfinite(x)
        at = np.sqrt((np.where(seen, x, 0.0) ** 2).sum(axis=0) / np.maximum(seen.sum(axis=0), 1))
        far = float(np.nanmax(at, initial=1.0))
        low, middle, high = (_variances(mixture, drawn(_noise_at(asked, v))) for v in (-far, 0.0, far))
        B, C = (high - low) / (2 * far), (high + low - 2 * middle) / (2 * far**2)
        return cls(np.sqrt(np.maximum(middle + C * at**2, 0.0)), B + 2 * C * x, at)

    def named(self, name: str, a: int, units: Sequence[str] | None) -> str:
        """What groups of rows are by."""
        if self.at is None or not self._grow(a):
            return f"error of {name}"
        return f"error of {name} at {self.at[a]:.3g} {units[a] if units else ''}".rstrip()

    def slope(self, a: int) -> Array | None:
        """The slopes (n,) of value ``a``; None where its noise does not depend on it."""
        return self.slopes[:, a] if self.slopes is not None and self._grow(a) else None

    def _grow(self, a: int) -> bool:
        return self.slopes is not None and bool((np.nan_to_num(self.slopes[:, a]) != 0).any())


def _noise_at(source: Source, value: float) -> Source:
    at = source.with_noise_at(value)
    assert at is not None
    return at


def _variances(mixture: Mixture, batch: Batch) -> Array:
    S = mixture.widened(batch).covariance().double().diagonal(dim1=1, dim2=2)
    return S.expand(batch.n, batch.p).numpy()
