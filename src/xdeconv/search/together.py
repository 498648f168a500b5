"""The rows that matter for some components together, each once: merged from lists that are in order, compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import types

from ..system.keeping import compiled_loop


def rows_together(
    starts: np.ndarray, rows: np.ndarray, shares: np.ndarray, touched: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows (e,), one group after the other, what all its components have of each (e,), and where groups start (g + 1,).

    Parameters
    ----------
    starts : numpy.ndarray (k + 1,)
        Where each component's entries begin in ``rows``.
    rows : numpy.ndarray
        The rows of each component, in order.
    shares : numpy.ndarray
        What it has of each.
    touched : numpy.ndarray (g, m)
        The components of each group.

    Returns
    -------
    tuple of numpy.ndarray
    """
    most = int(np.diff(starts)[touched].sum())
    merged, total = np.empty(most, np.int64), np.empty(most)
    ends = np.zeros(len(touched) + 1, np.int64)
    _compiled()(starts.astype(np.int64), rows.astype(np.int64), shares, touched, merged, total, ends)
    return merged[: ends[-1]], total[: ends[-1]], ends


@cache
def _compiled() -> Callable[..., None]:
    whole, real = types.int64, types.float64
    signature = types.void(whole[::1], whole[::1], real[::1], whole[:, ::1], whole[::1], real[::1], whole[::1])
    return compiled_loop(_merge, signature, "neighbourhoods")


def _merge(starts, rows, shares, touched, merged, total, ends):  # type: ignore[no-untyped-def]
    g, m = touched.shape
    at, count = np.empty(m, np.int64), 0
    for group in range(g):
        for j in range(m):
            at[j] = starts[touched[group, j]]
        while True:
            row = -1
            for j in range(m):
                if at[j] < starts[touched[group, j] + 1] and (row < 0 or rows[at[j]] < row):
                    row = rows[at[j]]
            if row < 0:
                break
            merged[count], total[count] = row, 0.0
            for j in range(m):
                if at[j] < starts[touched[group, j] + 1] and rows[at[j]] == row:
                    total[count] += shares[at[j]]
                    at[j] += 1
            count += 1
        ends[group + 1] = count
