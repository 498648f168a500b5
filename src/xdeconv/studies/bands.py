"""Bands: a density on a grid, and how far it may be off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plot.axes import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray
LEVELS = (0.16, 0.84)


@dataclass(frozen=True)
class Band:
    """A density on a grid (m,), and the quantiles (levels, m) of what it may be there."""

    grid: Array
    density: Array
    levels: tuple[float, ...]
    quantiles: Array

    def plot(self, ax: Axes | None = None, color: Any = "tab:blue") -> Axes:
        """The density as a line, the space between the outermost quantiles shaded."""
        ax = new_axes(size=(5.0, 4.0)) if ax is None else ax
        ax.fill_between(self.grid, self.quantiles.min(0), self.quantiles.max(0), color=color, alpha=0.3, linewidth=0)
        ax.plot(self.grid, self.density, color=color)
        return ax


def checked_grid(grid: Any) -> Array:
    """Finite values (m,)."""
    x = np.asarray(grid, dtype=np.float64)
    if x.ndim != 1 or not np.isfinite(x).all():
        raise ValueError(f"grid must be finite values of shape (m,), got shape {x.shape}")
    return x


def checked_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """Probabilities."""
    if not all(0 <= level <= 1 for level in levels):
        raise ValueError(f"levels are probabilities between 0 and 1, got {tuple(levels)}")
    return tuple(levels)
