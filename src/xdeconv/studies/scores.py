"""Judging a mixture: which rows a fit may see, which rows judge it, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from .. import kernels
from ..fitting.beside import beside
from ..mixture._mixture import Mixture
from ..rows.batch import Batch
from ..rows.data import ArraySource, Source, as_source, permutation


def mean_log_prob(
    mixture: Mixture, source: Source, device: Any = None, dtype: Any = None, options: kernels.Options | None = None
) -> tuple[float, float, float]:
    """Mean log-likelihood per unit of weight over a source, its standard error, and the weight of all rows."""
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    kind = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    kind = kind or (torch.float32 if chosen.type == "cuda" else torch.float64)
    shift, variance = mixture.mean(), np.diag(mixture.covariance())
    scale = np.sqrt(np.where(variance > 0, variance, 1.0))
    source = beside(source, mixture.background)
    moved = source.standardized(torch.from_numpy(shift), torch.from_numpy(scale), chosen, kind).arranged(None, 0)
    parameters = mixture.transformed(-shift / scale, 1 / scale).tensors(chosen)
    sums = torch.zeros(4, dtype=torch.float64, device=chosen)
    for batch in moved.batches(0):
        found = kernels.log_prob(*parameters, batch, options or kernels.Options()).double()
        w = torch.ones_like(found) if batch.weight is None else batch.weight.double()
        sums += torch.stack([w.sum(), w @ w, w @ found, w @ found**2])
    weight, squares, total, total_squares = sums.tolist()
    if weight <= 0:
        raise ValueError("the rows that judge have no weight: give some of them a weight above 0")
    mean = total / weight
    spread = max(total_squares / weight - mean**2, 0.0) ** 0.5
    return mean, spread * squares**0.5 / weight, weight


def parts_of(
    source: Source, criterion: str, folds: int, validation: Any, seed: int
) -> tuple[list[tuple[Source, Source]], dict[str, Any]]:
    """Rows to fit and rows that judge, for each trial of a number of components; and the settings that say so."""
    if criterion == "cv":
        return _folds(source, folds, seed), {"folds": folds}
    if criterion != "held-out":
        return [(source, source)], {}
    if isinstance(validation, float):
        return [source.split(validation, seed)], {"validation": validation}
    judge = as_source(Batch.from_arrays(**validation) if isinstance(validation, Mapping) else validation)
    if judge.dim != source.dim:
        raise ValueError(f"validation has {judge.dim} dimensions and the data {source.dim}")
    return [(source, judge)], {"validation": judge.stamp()}


def _folds(source: Source, folds: int, seed: int) -> list[tuple[Source, Source]]:
    if not isinstance(source, ArraySource):
        raise ValueError(f"cross-validation needs rows in memory and {type(source).__name__} streams them: "
                         "use criterion='held-out', or read fewer rows")  # fmt: skip
    if not isinstance(folds, int) or not 2 <= folds <= source.rows:
        raise ValueError(f"folds must be a whole number from 2 to the number of rows, {source.rows}, got {folds!r}")
    place = permutation(source.rows, seed, -2).to(source.batch.device) % folds
    chosen = [((place != fold).nonzero()[:, 0], (place == fold).nonzero()[:, 0]) for fold in range(folds)]
    return [(_rows(source, train), _rows(source, judge)) for train, judge in chosen]


def _rows(source: ArraySource, which: torch.Tensor) -> ArraySource:
    return replace(source, batch=source.batch.rows(which))
