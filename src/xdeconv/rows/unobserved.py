"""Rows that never show a coordinate, which are refused before a fit."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .batch import Batch
from .checks import named


def shown(batch: Batch) -> Tensor:
    """Which latent coordinates (d,) some row with weight shows.

    >>> shown(Batch.from_arrays([[1.0, float("nan")]])).tolist()
    [True, False]
    """
    if not batch.missing and batch.projection is None and batch.weight is None:
        return torch.full((len(batch.x),), batch.n > 0)
    seen = ~batch.x.isnan() if batch.weight is None else ~batch.x.isnan() & (batch.weight > 0)
    if batch.projection is not None:
        seen = ((batch.projection != 0) & seen[:, None]).any(0)
    return seen.any(1).cpu()


def among(rows: str, weighted: bool, part: bool) -> str:
    """Which rows do not show a coordinate, for an error: those without weight and those held out do not count.

    >>> among("any row", True, True)
    'any row with weight that is not held out'
    """
    return rows + (" with weight" if weighted else "") + (" that is not held out" if part else "")


def refuse_unobserved(
    batch: Batch, labels: Sequence[str] | None = None, part: bool = False, seen: Tensor | None = None
) -> None:
    """Refuse rows of which one latent coordinate is never seen: nothing can be learned of it.

    Parameters
    ----------
    batch : Batch
        The rows; those without weight do not count.
    labels : sequence of str, optional
        Names of the d coordinates.
    part : bool, default False
        Whether other rows are held out.
    seen : torch.Tensor (d,), optional
        What rows show, where they are more than those of the batch.

    Examples
    --------
    >>> refuse_unobserved(Batch.from_arrays([[1.0, float("nan")]]), ["a", "b"])
    Traceback (most recent call last):
    ...
    ValueError: b has no observed value in any row: leave it out
    """
    empty = (~(shown(batch) if seen is None else seen)).nonzero()[:, 0].tolist()
    if batch.n and empty:
        which = among("any row", batch.weight is not None, part)
        raise ValueError(f"{named(labels, empty[0])} has no observed value in {which}: leave it out")
