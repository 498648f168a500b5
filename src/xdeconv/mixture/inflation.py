"""What a user asks for of errors that may be too small: factors on them, or jitters, for all rows or groups of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..rows.grouping import checked_edges


@dataclass(frozen=True)
class Inflation:
    """Factors on errors that a fit finds, for ``inflation=`` of :func:`xdeconv.fit`.

    Parameters
    ----------
    by : str or array-like (n,), optional
        Groups of rows that have factors of their own: a column's name, or what it would hold. By default one group.
    bins : sequence of float, optional
        Edges that cut the numbers of ``by`` into groups, such as magnitudes; without, each value is a group.
    of : sequence of str or int, optional
        The observed coordinates whose errors are inflated; all by default.
    jitter : sequence, optional
        Values of ``by`` (with ``bins``, numbers of bins) whose errors get a variance added instead of a factor. Some
        group must have none.

    Examples
    --------
    >>> Inflation(by="phot_g_mean_mag", bins=[13, 15])
    Inflation(by='phot_g_mean_mag', bins=(13.0, 15.0), of=None, jitter=())
    """

    by: Any = None
    bins: Sequence[float] | None = None
    of: Sequence[Any] | None = None
    jitter: Sequence[Any] = ()

    def __post_init__(self) -> None:
        if self.bins is not None:
            object.__setattr__(self, "bins", checked_edges(self.bins))
        if self.bins is not None and self.by is None:
            raise ValueError("Inflation(bins=...) needs by=, the column that they cut")
        if isinstance(self.of, str):
            raise ValueError(f"of must be a list of coordinates, such as [{self.of!r}], got {self.of!r}")
        if isinstance(self.jitter, (bool, str)) or not isinstance(self.jitter, Iterable):
            raise ValueError(f"jitter must be a list of groups, as by= has them, got {self.jitter!r}")
        object.__setattr__(self, "jitter", tuple(self.jitter))
        if self.jitter and self.by is None:
            raise ValueError(
                "a jitter that all rows have widens components alike, and no row can tell the two apart: "
                "give by= and the groups that have it; one group must have none"
            )

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Inflation) and repr(self) == repr(other))

    def __hash__(self) -> int:
        return hash(repr(self))
