"""Rows whose density cannot be computed, which are refused by their number."""

from __future__ import annotations

from torch import Tensor

WHY = "its noise and a covariance are both singular, its values overflow, or every component is ruled out"


class NoDensity(ValueError):
    """A row whose density cannot be computed."""

    def __init__(self, row: int, count: int) -> None:
        self.row, self.count = row, count
        super().__init__(f"row {row} has no density ({count} such rows): {WHY}")

    def within(self, name: str, before: int = 0) -> ValueError:
        """The same of a table, where so many rows come before those that were looked at."""
        return ValueError(f"row {before + self.row} of {name} has no density: {WHY}")


def refuse_undefined(values: Tensor, first: int = 0) -> Tensor:
    """Answers about rows as they are, unless one cannot be computed; ``first`` is the number of the first row.

    A logarithm (n,) of -inf is one that cannot: Gaussians are 0 nowhere, but squares of distances overflow.
    """
    bad = values.isnan() | values.isneginf() if values.ndim == 1 else values.isnan().any(1)
    if bool(bad.any()):
        raise NoDensity(first + int(bad.nonzero()[0, 0]), int(bad.sum()))
    return values


def refuse_singular(b: Tensor, component: Tensor, first: int) -> None:
    """Refuse pairs whose conditional means (m, d) are NaN; rows, from ``first`` on, have a pair of each component."""
    bad = b.isnan().any(1)
    if not bool(bad.any()):
        return
    pair, k = int(bad.nonzero()[0, 0]), int(component.max()) + 1
    row, which = first + pair // k, int(component[pair])
    raise ValueError(f"row {row} has no posterior: its noise and component {which} are both singular")
