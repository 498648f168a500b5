"""Checks of settings: a number that is not one is refused where it is said, not where it is used."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from torch import Tensor


def number(value: Any, name: str, least: float = 0.0) -> float:
    """A finite number of at least ``least``.

    >>> number(0.5, "c of a prior")
    0.5
    >>> number(float("inf"), "c of a prior")
    Traceback (most recent call last):
    ...
    ValueError: c of a prior must be a finite number of at least 0, got inf
    """
    plain = isinstance(value, Real) or (isinstance(value, (np.ndarray, Tensor)) and value.ndim == 0)
    if isinstance(value, bool) or not plain or not least <= float(value) < np.inf:
        raise ValueError(f"{name} must be a finite number of at least {least:g}, got {value!r}")
    return float(value)


def variances(value: Any, name: str) -> float | tuple[float, ...]:
    """One variance, or one for each coordinate, of anything that holds numbers.

    >>> variances([1, 2.5], "w of a prior")
    (1.0, 2.5)
    """
    if (
        isinstance(value, (Sequence, np.ndarray, Tensor))
        and not isinstance(value, (str, bytes))
        and np.ndim(value) == 1
    ):
        values = tuple(number(one, name) for one in np.asarray(value).tolist())
        if not values:
            raise ValueError(f"{name} must be a number, or one for each coordinate, got {value!r}")
        return values
    return number(value, name)


def per_dimension(value: float | Sequence[float], d: int, name: str) -> tuple[float, ...]:
    """One number for each of d coordinates."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * d
    if len(values) != d:
        raise ValueError(f"{name} has {len(values)} variances and the rows have {d} dimensions")
    return values
