"""Grouping: which of several groups a row belongs to, by a column: bins of its numbers, or its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

Array = np.ndarray
MOST = 1000  # groups
NO_VALUE = "missing"


@dataclass(frozen=True)
class Grouping:
    """Groups by what a column holds: between edges, with a last group for missing values, or by its values.

    Parameters
    ----------
    name : str
        The column.
    edges : tuple of float
        Where one bin ends and the next begins, ascending; a number on an edge belongs to the upper bin.
    values : tuple
        The values, where there are no edges.
    coordinate : int, optional
        Which of the rows' own coordinates the column is, where it is one.

    Examples
    --------
    >>> Grouping("mag", (13.0, 15.0)).names
    ('mag < 13', '13 <= mag < 15', '15 <= mag', 'mag missing')
    """

    name: str
    edges: tuple[float, ...] = ()
    values: tuple[Any, ...] = ()
    coordinate: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What the groups are."""
        if not self.edges:
            return tuple(f"{self.name} = {value}" for value in self.values)
        shown = [f"{edge:g}" for edge in self.edges]
        inner = [f"{low} <= {self.name} < {high}" for low, high in pairwise(shown)]
        return (f"{self.name} < {shown[0]}", *inner, f"{shown[-1]} <= {self.name}", f"{self.name} {NO_VALUE}")

    def index(self, column: Any) -> Array:
        """The group of each row.

        Parameters
        ----------
        column : array-like (n,)
            The column.

        Returns
        -------
        numpy.ndarray (n,)
            Whole numbers.
        """
        values = np.ma.filled(np.ma.asarray(column).astype(float), np.nan) if self.edges else np.asarray(column)
        if self.edges:
            return np.where(np.isnan(values), len(self.edges) + 1, np.searchsorted(self.edges, values, "right"))
        places = {value: number for number, value in enumerate(self.values)}
        index = np.array([places.get(value, -1) for value in _plain(values)], dtype=np.int64)
        if len(index) and index.min() < 0:
            row = int(np.flatnonzero(index < 0)[0])
            known = ", ".join(str(value) for value in self.values[:8])
            raise ValueError(f"row {row} has {self.name} = {values[row]!r}, and the groups are of {known}")
        return index

    def as_json(self) -> dict[str, Any]:
        """What a file keeps."""
        kept: dict[str, Any] = {"name": self.name, "edges": list(self.edges), "values": list(self.values)}
        return kept if self.coordinate is None else {**kept, "coordinate": self.coordinate}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Grouping:
        """The grouping that a file keeps.

        Parameters
        ----------
        kept : mapping
            As :meth:`as_json` made it.

        Returns
        -------
        Grouping
        """
        edges, values = (kept.get(name, ()) for name in ("edges", "values"))
        known = all(isinstance(value, (str, int, float)) for value in values)
        coordinate = kept.get("coordinate")
        if not known or not isinstance(kept["name"], str) or type(coordinate) not in (int, type(None)):
            raise ValueError(f"no rows can be grouped by {str(kept)[:80]}")
        return cls(kept["name"], checked_edges(edges) if edges else (), tuple(values), coordinate)


def by_values(name: str, column: Any, coordinate: int | None = None) -> Grouping:
    """A group for each value that a column has.

    >>> by_values("survey", ["a", "b", "a"]).values
    ('a', 'b')
    """
    values = sorted(set(_plain(np.asarray(column))), key=lambda value: (str(type(value)), value))
    if len(values) > MOST:
        raise ValueError(f"{name} has {len(values)} values: give bins= to make groups of them")
    if any(value is None or value != value for value in values):
        raise ValueError(f"{name} is missing in some rows: give bins=, which has a group for those, or fill it")
    return Grouping(name, values=tuple(values), coordinate=coordinate)


def checked_edges(bins: Sequence[float]) -> tuple[float, ...]:
    """Edges of bins, finite and ascending."""
    edges = tuple(float(edge) for edge in bins)
    if not edges or not np.isfinite(edges).all() or any(a >= b for a, b in pairwise(edges)):
        raise ValueError(f"bins must be the edges between groups, ascending, got {list(bins)!r}")
    return edges


def _plain(values: Array) -> list[Any]:
    return np.asarray(values).tolist()
