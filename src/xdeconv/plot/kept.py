"""What a model with a selection expects of rows that were kept: draws with the noise of the very rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..mixture._mixture import Mixture
from ..rows.batch import Batch
from .axes import NOISY, Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .viewing import Limits

DRAWN = 500_000  # rows in all, of which each of the data has the same number
MOST = 50  # draws of a row
BARS = 60


def kept_rows(mixture: Mixture, batch: Batch) -> Array:
    """Rows (draws n, d) that the selection keeps, with the noise of those of a batch; NaN where they miss a value."""
    if mixture.selection is None:
        raise ValueError("the mixture has no selection")
    rng, missing = np.random.default_rng(0), np.isnan(batch.x.T.double().numpy())
    draws = int(np.clip(DRAWN // max(batch.n, 1), 1, MOST))
    each = [mixture.selection.drawn_rows(mixture.drawn, batch, rng) for _ in range(draws)]
    return np.concatenate([np.where(missing, np.nan, rows) for rows in each])


def expect_kept(ax: Axes, values: Array, limits: Limits) -> None:
    """The density of rows kept as dashed steps."""
    low, high = limits
    seen = values[np.isfinite(values)]
    share = np.histogram(seen, bins=BARS, range=limits)[0] * BARS / ((high - low) * max(len(seen), 1))
    edges = np.linspace(low, high, BARS + 1)
    ax.stairs(share, edges, color=NOISY, ls="--", lw=1.0, label="expected with noise, of rows kept")
