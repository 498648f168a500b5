"""The weak prior that columns without noise get: components must not shrink onto single values.

Without noise the likelihood has no upper bound: a component that shrinks onto one value gains for ever. Columns that
are written with few digits invite it, since many rows share each value. With ``m`` rows to a value and ``h`` from one
value to the next, w = m h^2 / 12 leaves a component that holds only the rows of one value the variance of rounding,
and a broad one as it is. A column of values that differ gets the weight of d + 2 rows with a millionth of its spread.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..methods.prior import Prior
from ..rows.batch import Batch
from ..rows.data import Source

SAMPLE_ROWS = 1 << 14
LEAST = 1e-12  # of a column's variance: narrower components may be real, as where columns depend on each other
SAME = 1e-9  # of a column's spread: values nearer than this are one
COMMON = 0.05  # quantile of the steps from one value to the next: most are one unit of the last digit, some several
SHARED = 2.0  # rows to a value: with fewer, values do not repeat because they are rounded


def weak_prior(source: Source, seed: int = 0) -> Prior | None:
    """The prior on covariances for columns whose noise is zero or below their rounding; None where no column is."""
    sample = source.sample(SAMPLE_ROWS, seed)
    if sample.projection is not None:
        return None
    x = sample.x.double().cpu().numpy()
    weight = sample.weights("cpu").numpy()
    each = max(source.rows, 1) / max(sample.n, 1)
    w = [_column(*pair, weight, each, sample.p) for pair in zip(x, typical_noise(sample), strict=True)]
    return Prior(w=tuple(w), c=0.0) if any(w) else None


def describe_weak_prior(prior: Prior, labels: Sequence[str] | None) -> str:
    """What a fit says of it."""
    w = prior.w if isinstance(prior.w, tuple) else (prior.w,)
    names = [labels[a] if labels else str(a) for a, value in enumerate(w) if value]
    which = f"column {names[0]} has" if len(names) == 1 else f"columns {', '.join(names)} have"
    shown = ", ".join(f"{value:.3g}" for value in w)
    return f"{which} no noise to speak of: a weak prior keeps components from shrinking onto values, w = ({shown})"


def typical_noise(batch: Batch) -> np.ndarray:
    """The median variance (p,) of the noise of observed values; 0 where there is none."""
    seen = ~batch.x.isnan().cpu().numpy()
    variances = np.broadcast_to(batch.variances().double().cpu().numpy(), seen.shape)
    return np.array([np.median(v[s]) if s.any() else 0.0 for v, s in zip(variances, seen, strict=True)])


def _column(x: np.ndarray, noise: float, weight: np.ndarray, each: float, p: int) -> float:
    """w of one column of values, of which each stands for ``each`` rows; 0 where its noise is enough.

    A row that weighs as much as two is taken as two.
    """
    seen = ~np.isnan(x) & (weight > 0)
    x, weight = x[seen], weight[seen]
    mean = float(np.average(x, weights=weight)) if len(x) else 0.0
    variance = float(np.average((x - mean) ** 2, weights=weight)) if len(x) else 0.0
    if variance == 0.0:
        return 0.0
    values, place = np.unique(np.round((x - mean) / (SAME * np.sqrt(variance))), return_inverse=True)
    counted, weighed = (_sharing(np.bincount(place, weights=a)) for a in (np.ones(len(x)), weight))
    rows = 1 + each * (counted - 1)  # that share a value, of all
    heavy = rows * weighed / counted  # what they weigh
    step = SAME * np.sqrt(variance) * float(np.quantile(np.diff(values), COMMON)) if len(values) > 1 else 0.0
    rounding = step**2 / 12 if max(rows, heavy) >= SHARED else 0.0
    if noise > 0.0:
        return heavy * rounding if noise < rounding else 0.0
    return max(heavy * rounding, (p + 2) * LEAST * variance)


def _sharing(counts: np.ndarray) -> float:
    """How many rows have the value of a row, on average over rows."""
    return float((counts * counts).sum() / counts.sum())
