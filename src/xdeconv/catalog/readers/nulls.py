"""Nulls: columns of floats whose missing values a bitmap tells, as arrays with NaN, at a sixth of Arrow's price."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit, types

from ...system.keeping import kept

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray


def with_nans(column: pa.Array, single: bool, out: Array | None = None) -> Array:
    """A column of float32 or float64 of which some are null, in memory of its own or in ``out``.

    >>> import pyarrow as pa
    >>> with_nans(pa.array([1.5, None, 2.5], pa.float32()), single=True)
    array([1.5, nan, 2.5], dtype=float32)
    """
    kind = np.float32 if single else np.float64
    valid, data = column.buffers()
    first, end = column.offset, column.offset + len(column)
    out = np.empty(len(column), kind) if out is None else out
    _spread(single)(
        np.frombuffer(data, kind, end)[first:], np.frombuffer(valid, np.uint8)[first >> 3 :], first & 7, out
    )
    return out


def _chosen(values, bits, skip, out):  # type: ignore[no-untyped-def]
    missing = out.dtype.type(np.nan)
    whole = len(out) >> 3 if skip == 0 else 0
    for byte in range(whole):  # eight values at once: of float32 a loop over bits took five times as long
        some = bits[byte]
        for j in range(8):
            value = values[8 * byte + j]  # read whatever the bit says: a branch that follows the bits is slow too
            out[8 * byte + j] = value if some & (1 << j) else missing
    for i in range(8 * whole, len(out)):
        place = np.uint64(i + skip)  # of a bit; whole numbers without a sign need no look for negative ones
        value = values[i]
        there = (bits[place >> np.uint64(3)] >> (place & np.uint64(7))) & np.uint64(1)
        out[i] = value if there else missing


@cache
def _spread(single: bool) -> Any:
    """The compiled loop."""
    number = types.float32 if single else types.float64
    fixed = types.Array(number, 1, "C", readonly=True)
    bits = types.Array(types.uint8, 1, "C", readonly=True)
    signature = types.void(fixed, bits, types.int64, number[::1])
    return kept(lambda keep: njit(signature, nogil=True, cache=keep, error_model="numpy")(_chosen))
