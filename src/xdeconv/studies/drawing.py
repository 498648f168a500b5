"""Some rows of many, to judge a model by, and the columns that they are grouped by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..catalog.stream import CatalogSource
from ..mixture._mixture import Mixture
from ..rows.batch import Batch, concatenate
from ..rows.data import Source

Array = np.ndarray
TEXTS = 20  # that rows are grouped by
ROWS = 50_000  # rows that are enough to tell: more are sampled


def drawn(
    mixture: Mixture, asked: Source | Batch, by: Mapping[str, Any] | Sequence[str] | None, seed: int
) -> tuple[Batch, dict[str, Array]]:
    """At most ``ROWS`` rows, and what they are grouped by: those that are asked for, or columns of theirs."""
    if by is not None and not isinstance(by, Mapping):
        return _with_columns(asked, by, seed)
    batch = mixture.batch(asked.sample(ROWS, seed) if isinstance(asked, Source) and by is None else asked)
    columns = {name: _column(name, values, batch.n) for name, values in (by or {}).items()}
    if batch.n <= ROWS:
        return batch, columns
    some = np.sort(np.random.default_rng(seed).permutation(batch.n)[:ROWS])
    return batch.rows(torch.from_numpy(some)), {name: values[some] for name, values in columns.items()}


def _with_columns(asked: Source | Batch, names: Sequence[str], seed: int) -> tuple[Batch, dict[str, Array]]:
    """Some rows of a catalogue, and columns of the same rows as numbers."""
    if not isinstance(asked, CatalogSource):
        raise ValueError(
            f"by={names!r} names columns, which rows without a table do not have: give by={{name: values}}"
        )
    rng, share = np.random.default_rng(seed), min(1.0, ROWS / max(asked.rows, 1))
    batches: list[Batch] = []
    values: dict[str, list[Array]] = {name: [] for name in names}
    for batch, passed in asked.passes(tuple(names)):
        some = np.flatnonzero(rng.random(batch.n) <= share)
        batches.append(batch.rows(torch.from_numpy(some)))
        for name in names:
            values[name].append(_numbers(passed.column(name), name)[some])
    if not batches:
        raise ValueError("there are no rows to check by")
    return concatenate(batches), {name: np.concatenate(parts) for name, parts in values.items()}


def _numbers(column: Any, name: str) -> Array:
    """A column as numbers, or as the texts that it holds."""
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype == object and all(isinstance(value, (str, type(None))) for value in values.tolist()):
        return _texts(name, values)
    try:
        return np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError):
        raise ValueError(f"{name!r}, which rows are to be grouped by, is not a column of numbers or text") from None


def _texts(name: str, values: Array) -> Array:
    """Texts that group rows, which names of rows do not."""
    different = len({value for value in values.tolist() if value is not None})
    if different > TEXTS:
        raise ValueError(
            f"{name!r}, which rows are to be grouped by, has {different:,} different texts: at most {TEXTS}"
        )
    return values


def _column(name: str, values: Any, n: int) -> Array:
    array = np.asarray(values)
    array = _texts(name, array.astype(object)) if array.dtype.kind in "OUT" else array.astype(np.float64)
    if array.shape != (n,):
        raise ValueError(f"by={name!r} has shape {array.shape} and there are {n} rows")
    return array
