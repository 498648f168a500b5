"""Rows of several record batches together and in another order, column by column, in memory that is used again.

The system clears the pages of fresh memory first, for one thread of a process at a time. Where each thread asks for
hundreds of megabytes again and again, all wait for that a third of the time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numba import types

from ..system.keeping import compiled_loop
from .readers.nulls import with_nans

if TYPE_CHECKING:
    import pyarrow as pa

SPARE = 1.1  # times as much room as the first rows need: the next are about as many
MOST = 1 << 32  # rows whose places are numbers of 32 bits


class Room(threading.local):
    """Memory by name, of each thread its own."""

    def __init__(self) -> None:
        self.lines: dict[str, np.ndarray] = {}

    def line(self, name: str, dtype: np.dtype, n: int) -> np.ndarray:
        """Room for n numbers, with whatever is in it."""
        size = n * dtype.itemsize
        if name not in self.lines or len(self.lines[name]) < size:
            self.lines[name] = np.empty(int(SPARE * size), np.uint8)
        return self.lines[name][:size].view(dtype)


def common(schemas: Sequence[pa.Schema], name: str) -> pa.Schema:
    """Types that hold the columns of all schemas, or an error that names the table and the column."""
    import pyarrow as pa

    bare = [schema.remove_metadata() for schema in schemas]
    if all(schema == bare[0] for schema in bare):
        return bare[0]
    try:
        return pa.unify_schemas(bare, promote_options="permissive")
    except (pa.ArrowException, TypeError) as problem:
        text = f"{name} has rows that do not go together ({problem}): leave that column out, or write its files alike"
        raise ValueError(text) from problem


def cast(batch: pa.RecordBatch, schema: pa.Schema, name: str) -> pa.RecordBatch:
    """Rows in the types of a schema, where no value changes by that."""
    import pyarrow as pa

    try:
        return batch if batch.schema == schema else batch.cast(schema)
    except pa.ArrowException as problem:
        pairs = [(old, new) for old, new in zip(batch.schema, schema, strict=True) if old.type != new.type]
        kinds = ", ".join(f"{old.name} is {old.type} in some rows and must be {new.type}" for old, new in pairs)
        raise ValueError(f"{name}: {kinds} ({problem}): leave it out, or write its files alike") from problem


def ordered(batches: Sequence[pa.RecordBatch], order: np.ndarray, room: Room) -> pa.RecordBatch:
    """All rows of one schema, in an order, until the thread asks again. Nulls of floats become NaN."""
    import pyarrow as pa

    schema = batches[0].schema
    places = order.astype(np.uint32) if len(order) < MOST else order
    columns = [_ordered([batch.column(i) for batch in batches], places, f"{i}", room) for i in range(len(schema))]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _ordered(parts: list[pa.Array], places: np.ndarray, name: str, room: Room) -> pa.Array:
    import pyarrow as pa

    kind = parts[0].type
    whole = pa.types.is_integer(kind) and not any(part.null_count for part in parts)
    if not (whole or pa.types.is_floating(kind)):
        return pa.concat_arrays([part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part
                                 for part in parts]).take(pa.array(places))  # fmt: skip
    dtype = np.dtype(kind.to_pandas_dtype())
    together = room.line("", dtype, sum(map(len, parts)))
    ends = np.cumsum([len(part) for part in parts])
    for part, end in zip(parts, ends.tolist(), strict=True):
        _copied(part, together[end - len(part) : end])
    out = room.line(name, dtype, len(places))
    gather(together, places, out)
    return pa.array(out, type=kind)


def _copied(part: pa.Array, out: np.ndarray) -> None:
    """The numbers, NaN for nulls, which Arrow makes in three times as long."""
    if part.null_count and out.dtype in (np.float32, np.float64):
        with_nans(part, out.dtype == np.float32, out)
    else:
        np.copyto(out, part.to_numpy(zero_copy_only=False), casting="no")


def gather(values: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """out[i] = values[places[i]]; NumPy takes twice as long."""
    size = values.itemsize
    if size not in (4, 8) or places.dtype != np.uint32:
        np.take(values, places, out=out, mode="clip")
    else:
        _compiled(8 * size)(values.view(f"u{size}"), places, out.view(f"u{size}"))


@cache
def _compiled(bits: int) -> Callable[..., None]:
    number = types.uint32 if bits == 32 else types.uint64
    signature = types.void(number[::1], types.uint32[::1], number[::1])
    return compiled_loop(_gather, signature, "rows in another order")


def _gather(values, places, out):  # type: ignore[no-untyped-def]
    for i in range(len(places)):
        out[i] = values[places[i]]
