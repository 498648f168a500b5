"""Shares: what components have of rows, of the pairs that matter, by loops that are compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import types

from ..system.keeping import compiled_loop


@dataclass(frozen=True)
class Shares:
    """Pairs of row and component, component by component, each component's rows in order.

    starts   (k + 1,) where each component's pairs begin
    rows     (e,)     the row of each pair
    values   (e,)     its responsibility
    overlap  (k, k)   sum_i w_i r_ia r_ib
    """

    starts: np.ndarray
    rows: np.ndarray
    values: np.ndarray
    overlap: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray, components: np.ndarray, values: np.ndarray, weight: np.ndarray, k: int) -> Shares:
        """From pairs that come row by row, and the weight of each row."""
        starts, overlap = np.zeros(k + 1, np.int64), np.zeros((k, k))
        ordered, kept = np.empty(len(rows), np.int64), np.empty(len(rows))
        rows, components = np.ascontiguousarray(rows), np.ascontiguousarray(components)
        _by_component()(rows, components, values, weight, starts, np.zeros(k, np.int64), ordered, kept, overlap)
        return cls(starts, ordered, kept, overlap)

    @property
    def components(self) -> np.ndarray:
        """The component (e,) of each pair."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def together(self, touched: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For g sets of components: rows (e,), each once per set, what all have of it (e,), and starts (g + 1,)."""
        components = np.array([c for some in touched for c in some], dtype=np.int64)
        sizes = np.cumsum([0, *map(len, touched)])
        most = int(np.diff(self.starts)[components].sum())
        merged, total = np.empty(most, np.int64), np.empty(most)
        ends = np.zeros(len(touched) + 1, np.int64)
        _together()(self.starts, self.rows, self.values, components, sizes, merged, total, ends)
        return merged[: ends[-1]], total[: ends[-1]], ends


whole, real = types.int64, types.float64


@cache
def _by_component() -> Callable[..., None]:
    lists = (*[whole[::1]] * 2, *[real[::1]] * 2, *[whole[::1]] * 3, real[::1], real[:, ::1])
    return compiled_loop(_order, types.void(*lists), "responsibilities")


def _order(rows, components, values, weight, starts, place, ordered, kept, overlap):  # type: ignore[no-untyped-def]
    k, count = len(starts) - 1, len(rows)
    for at in range(count):
        starts[components[at] + 1] += 1
    for j in range(k):
        starts[j + 1] += starts[j]
    first = 0
    for j in range(k):  # a slice, a copy or a new array would take as long to compile as all of this
        place[j] = starts[j]
    for at in range(count):
        j = components[at]
        ordered[place[j]], kept[place[j]] = rows[at], values[at]
        place[j] += 1
        if rows[at] != rows[first]:
            first = at
        for other in range(first, at + 1):
            overlap[components[other], j] += weight[rows[at]] * values[other] * values[at]
    for a in range(k):
        for b in range(a):
            overlap[a, b] += overlap[b, a]
            overlap[b, a] = overlap[a, b]


@cache
def _together() -> Callable[..., None]:
    lists = (whole[::1], whole[::1], real[::1], whole[::1], whole[::1], whole[::1], real[::1], whole[::1])
    return compiled_loop(_merge, types.void(*lists), "neighbourhoods")


def _merge(starts, rows, values, components, sizes, merged, total, ends):  # type: ignore[no-untyped-def]
    at, count = np.empty(len(components), np.int64), 0
    for c in range(len(components)):
        at[c] = starts[components[c]]
    for group in range(len(sizes) - 1):
        these = range(sizes[group], sizes[group + 1])
        while True:
            row = -1
            for c in these:
                if at[c] < starts[components[c] + 1] and (row < 0 or rows[at[c]] < row):
                    row = rows[at[c]]
            if row < 0:
                break
            merged[count], total[count] = row, 0.0
            for c in these:
                if at[c] < starts[components[c] + 1] and rows[at[c]] == row:
                    total[count] += values[at[c]]
                    at[c] += 1
            count += 1
        ends[group + 1] = count
