"""Rows that never show a coordinate, which are refused before a fit."""

from __future__ import annotations

from collections.abc import Sequence

from .batch import Batch
from .checks import named


def refuse_unobserved(batch: Batch, labels: Sequence[str] | None = None) -> None:
    """Refuse rows of which one latent coordinate is never seen: nothing can be learned of it.

    Parameters
    ----------
    batch : Batch
        The rows; those without weight do not count.
    labels : sequence of str, optional
        Names of the d coordinates.

    Examples
    --------
    >>> refuse_unobserved(Batch.from_arrays([[1.0, float("nan")]]), ["a", "b"])
    Traceback (most recent call last):
    ...
    ValueError: b has no observed value in any row: leave it out
    """
    seen = ~batch.x.isnan() if batch.weight is None else ~batch.x.isnan() & (batch.weight > 0)
    if batch.projection is not None:
        seen = ((batch.projection != 0) & seen[:, None]).any(0)
    empty = (~seen.any(1)).nonzero()[:, 0].tolist()
    if batch.n and empty:
        which = "any row" if batch.weight is None else "any row with weight"
        raise ValueError(f"{named(labels, empty[0])} has no observed value in {which}: leave it out")
