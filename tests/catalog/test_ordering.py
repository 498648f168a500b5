"""Rows of several batches in another order, in memory that is used again."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from xdeconv.catalog.ordering import Room, gather, ordered

COLUMNS = {
    "single": pa.array([1.5, None, 3.0, -4.0], pa.float32()),
    "double": pa.array([1.0, 2.0, None, 4.0], pa.float64()),
    "half": pa.array(np.array([1.0, 2.0, 3.0, 4.0], np.float16)),
    "whole": pa.array([1, 2, 3, 2**53 + 1], pa.int64()),
    "small": pa.array([1, 2, 3, 4], pa.uint8()),
    "gaps": pa.array([1, None, 3, 4], pa.int32()),
    "text": pa.array(["a", None, "c", "d"]),
    "flag": pa.array([True, False, None, True]),
    "day": pa.array([datetime.date(2020, 1, day) for day in range(1, 5)]),
}
ORDER = np.array([5, 0, 3, 3, 7])


def test_every_kind_of_column_comes_in_the_order():
    batch = pa.RecordBatch.from_pydict(COLUMNS)
    found = ordered([batch, batch.slice(0, 4)], ORDER, Room())
    assert found.schema == batch.schema
    for name, column in COLUMNS.items():
        right = pa.concat_arrays([column, column]).take(pa.array(ORDER))
        if pa.types.is_floating(column.type):
            np.testing.assert_array_equal(found.column(name).to_numpy(), right.to_numpy(zero_copy_only=False))
            assert found.column(name).null_count == 0
        else:
            assert found.column(name).equals(right)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nulls_of_parts_that_begin_anywhere_are_found(kind):
    column = pa.array([None if i % 3 == 1 else float(i) for i in range(50)], kind)
    parts = [pa.RecordBatch.from_arrays([column.slice(start, 11)], ["x"]) for start in (0, 3, 13, 39)]
    found = ordered(parts, np.arange(44)[::-1], Room()).column(0).to_numpy()
    right = np.concatenate([part.column(0).to_numpy(zero_copy_only=False) for part in parts])[::-1]
    np.testing.assert_array_equal(found, right)


def test_memory_is_used_again_and_grows_where_rows_are_more():
    room, batch = Room(), pa.RecordBatch.from_pydict({"x": np.arange(4.0)})
    first = ordered([batch], np.array([3, 1]), room).column(0)
    assert first.to_pylist() == [3.0, 1.0]
    again = ordered([batch], np.array([0, 2]), room).column(0)
    assert first.to_pylist() == again.to_pylist() == [0.0, 2.0]
    more = ordered([batch] * 5, np.arange(20)[::-1], room).column(0)
    assert more.to_pylist() == np.tile(np.arange(4.0), 5)[::-1].tolist()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "u1", "i4", "i8"])
def test_gathered_numbers_are_those_of_numpy(dtype):
    rng = np.random.default_rng(0)
    values, places = rng.integers(0, 100, 1000).astype(dtype), rng.integers(0, 1000, 500)
    found = np.empty(500, dtype)
    gather(values, places.astype(np.uint32), found)
    np.testing.assert_array_equal(found, values[places])
