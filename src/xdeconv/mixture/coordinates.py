"""Coordinates of a mixture: their names and units, by label or index, and linear combinations of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..rows import checks, units
from ..rows import tables as tabular

Array = np.ndarray
Coordinate = str | int
Names = tuple[str, ...] | None


def checked_names(names: Any, d: int, what: str, unique: bool) -> Names:
    """Names of d coordinates as a tuple, each there once if they must be unique."""
    if names is None:
        return None
    texts = () if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)
    if len(texts) != d:
        raise ValueError(f"{what} must name {d} coordinates, got {names!r}")
    if not all(isinstance(name, str) for name in texts):
        raise ValueError(f"{what} must be words, got {list(texts)}")
    texts = tuple(str(name) for name in texts)
    if unique and len(set(texts)) < d:
        raise ValueError(f"{what} must be unique, got {list(texts)}")
    return texts


def names_or_numbers(names: Sequence[str] | None, d: int) -> list[str]:
    """Names of d coordinates, or x0, x1, ... where they have none.

    >>> names_or_numbers(None, 2)
    ['x0', 'x1']
    """
    return list(names or (f"x{a}" for a in range(d)))


def indices(coordinates: Sequence[Coordinate] | Coordinate, labels: Names, d: int) -> list[int]:
    """Positions of coordinates given by label or index."""
    wanted = [coordinates] if isinstance(coordinates, (str, int, np.integer)) else list(coordinates)
    places = [_index(c, labels, d) for c in wanted]
    if len(set(places)) < len(places):
        raise ValueError(f"a coordinate is named twice in {wanted}")
    if not places:
        raise ValueError("no coordinate is named")
    return places


def _index(coordinate: Coordinate, labels: Names, d: int) -> int:
    if isinstance(coordinate, str):
        if not labels or coordinate not in labels:
            known = f"its labels are {list(labels)}" if labels else "it has no labels"
            raise ValueError(f"the mixture has no coordinate {coordinate!r}: {known}")
        return labels.index(coordinate)
    whole = isinstance(coordinate, (int, np.integer)) and not isinstance(coordinate, bool)
    if not whole or not -d <= coordinate < d:
        raise ValueError(f"coordinate {coordinate!r} is neither a label nor an index below {d}")
    return int(coordinate) % d


def numbers(given: Iterable[Any], at: Sequence[int], labels: Names, wanted: Names, what: str) -> Array:
    """One number for each of some coordinates, in the mixture's units where it has one of its own."""
    made = []
    for a, value in zip(at, given, strict=True):
        name = labels[a] if labels else f"coordinate {a}"
        number = checks.to_array(tabular.astropy_column(value), f"the {what} of {name}")
        if number.ndim:
            raise ValueError(f"the {what} of {name} must be one number, got shape {number.shape}: rows are asked about "
                             "by mixture.posterior(rows)")  # fmt: skip
        theirs, ours = tabular.unit_of(value), wanted[a] if wanted else ""
        made.append(float(number) * (units.factor(theirs, ours, name) if theirs and ours else 1.0))
    return np.array(made)


def coefficients(direction: Any, labels: Names, d: int, n: int) -> Array:
    """A linear combination as coefficients (1, d), or those of each of n rows (n, d).

    From {label or index: coefficient}, d numbers, or d numbers per row.
    """
    if isinstance(direction, Mapping):
        line = np.zeros(d)
        line[indices(list(direction), labels, d)] = checks.to_array(list(direction.values()), "direction")
    else:
        line = checks.to_array(direction, "direction")
    if line.shape not in ((d,), (n, d)):
        raise ValueError(f"direction must be {d} numbers, a dict {{label: coefficient}} or of shape ({n}, {d}), one "
                         f"per row; got shape {line.shape}")  # fmt: skip
    rows = line.reshape(-1, d)
    bad = np.flatnonzero(~np.isfinite(rows).all(1) | ~rows.any(1))
    if bad.size:
        where = f" (row {bad[0]})" if line.ndim == 2 else ""
        raise ValueError("direction must have finite coefficients that are not all zero, "
                         f"got {rows[bad[0]].tolist()}{where}")  # fmt: skip
    return np.array(rows)
