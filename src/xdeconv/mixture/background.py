"""Backgrounds: what else makes rows beside a mixture's components, a density that is known but for its weight."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..rows import checks
from ..rows.batch import Batch
from .boxes import log_convolved_box

Array = np.ndarray
REACH = 5.0  # standard deviations of a row's noise


class Background(ABC):
    """A density of true values in d dimensions that is not fitted."""

    @property
    @abstractmethod
    def d(self) -> int:
        """Number of dimensions."""

    @abstractmethod
    def log_density(self, batch: Batch) -> Tensor:
        """Log-density of noisy rows.

        Parameters
        ----------
        batch : Batch
            Noisy rows.

        Returns
        -------
        torch.Tensor (n,)
            Float64, gaps marginalised.
        """

    @abstractmethod
    def transformed(self, shift: Array, scale: Array) -> Background:
        """That of shift + scale * v.

        Parameters
        ----------
        shift, scale : array (d,)
            Of each coordinate.

        Returns
        -------
        Background
            Of the other coordinates.
        """

    @abstractmethod
    def restricted(self, keep: Sequence[int]) -> Background:
        """That of some coordinates.

        Parameters
        ----------
        keep : sequence of int
            Which.

        Returns
        -------
        Background
            Their marginal.
        """

    @abstractmethod
    def given(self, row: Batch, rest: Sequence[int]) -> Background:
        """That of some true coordinates, given one noisy row of the others.

        Parameters
        ----------
        row : Batch
            One row.
        rest : sequence of int
            The coordinates that are wanted.

        Returns
        -------
        Background
            Of the wanted ones.
        """

    @abstractmethod
    def drawn(self, size: int, rng: np.random.Generator) -> Array:
        """Draws of true values.

        Parameters
        ----------
        size : int
            How many.
        rng : numpy.random.Generator
            Where from.

        Returns
        -------
        numpy.ndarray (size, d)
            True values.
        """


@dataclass(frozen=True, init=False)
class Uniform(Background):
    """A box of true values that are all alike, a background of :func:`xdeconv.fit`.

    Each row sees it through its own noise: exactly where that is diagonal, to 1e-6 with correlations up to three
    dimensions, and to 1e-3 above (of itself, where it is more than 1e-6).

    Parameters
    ----------
    low, high : array_like
        (d,) each: the box, in the order of the columns.

    Examples
    --------
    >>> Uniform([0.0, -1.0], [10.0, 1.0])
    Uniform(low=(0.0, -1.0), high=(10.0, 1.0))
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __init__(self, low: Any, high: Any) -> None:
        ends = [np.atleast_1d(checks.to_array(value, name)) for name, value in (("low", low), ("high", high))]
        if ends[0].ndim != 1 or ends[0].shape != ends[1].shape:
            raise ValueError(f"Uniform needs low and high of one length, got shapes {ends[0].shape}, {ends[1].shape}")
        for a, (least, most) in enumerate(zip(*ends, strict=True)):
            if not (np.isfinite(least) and np.isfinite(most) and least < most):
                raise ValueError(f"Uniform needs low < high: coordinate {a} goes from {least:g} to {most:g}")
        object.__setattr__(self, "low", tuple(ends[0].tolist()))
        object.__setattr__(self, "high", tuple(ends[1].tolist()))

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return len(self.low)

    def log_density(self, batch: Batch) -> Tensor:
        """Log-density (n,) of noisy rows, float64, gaps marginalised."""
        if batch.projection is not None:
            raise ValueError("a Uniform background has no density for projected rows: give log-densities per row")
        low, high = (torch.tensor(edge, dtype=torch.float64, device=batch.device) for edge in (self.low, self.high))
        seen = (~batch.x.isnan()).double()
        return log_convolved_box(low, high, batch) - (high - low).log() @ seen

    def beyond(self, batch: Batch) -> Tensor:
        """Which rows lie so far outside the box that they cannot be of it: by more than five times their errors.

        Parameters
        ----------
        batch : Batch
            Noisy rows.

        Returns
        -------
        torch.Tensor (n,)
            Booleans.
        """
        low, high = (
            torch.tensor(edge, dtype=batch.x.dtype, device=batch.device)[:, None] for edge in (self.low, self.high)
        )
        reach = REACH * batch.variances().sqrt()
        return ((batch.x < low - reach) | (batch.x > high + reach)).any(0)

    def transformed(self, shift: Array, scale: Array) -> Uniform:
        """That of shift + scale * v."""
        ends = np.sort([shift + scale * np.array(self.low), shift + scale * np.array(self.high)], axis=0)
        return Uniform(*ends)

    def restricted(self, keep: Sequence[int]) -> Uniform:
        """That of some coordinates."""
        return Uniform([self.low[a] for a in keep], [self.high[a] for a in keep])

    def given(self, row: Batch, rest: Sequence[int]) -> Uniform:
        """That of some true coordinates, which know nothing of the others."""
        return self.restricted(rest)

    def drawn(self, size: int, rng: np.random.Generator) -> Array:
        """Draws (size, d) of true values."""
        return rng.uniform(self.low, self.high, size=(size, self.d))


@dataclass(frozen=True)
class Rows(Background):
    """A background that was given as log-densities of the rows of a fit: it has no density elsewhere."""

    @property
    def d(self) -> int:
        """Not known."""
        return 0

    def log_density(self, batch: Batch) -> Tensor:
        """That of the rows, where they carry it."""
        if batch.background is None:
            raise _no_density("give background=, the log-densities of these rows")
        return batch.background.double()

    def transformed(self, shift: Array, scale: Array) -> Rows:
        """The same: it belongs to rows."""
        return self

    def restricted(self, keep: Sequence[int]) -> Rows:
        """Nothing is known of some coordinates alone."""
        raise _no_density("for the components alone, take with_(background=None)")

    def given(self, row: Batch, rest: Sequence[int]) -> Rows:
        """Nothing is known of rows that are not those of the fit."""
        raise _no_density("for the components alone, take with_(background=None)")

    def drawn(self, size: int, rng: np.random.Generator) -> Array:
        """Nothing can be drawn."""
        raise _no_density("for draws of the components alone, take with_(background=None)")


def _no_density(remedy: str) -> ValueError:
    known = "the background was given as log-densities of the rows of the fit, and has none elsewhere"
    return ValueError(f"{known}: {remedy}")
