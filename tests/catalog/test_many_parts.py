"""Catalogues of very many row groups, files or partitions: what is done for each does not grow with their number."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

import xdeconv as xd
from xdeconv.catalog import blocks as blocks_of_rows
from xdeconv.catalog import writers
from xdeconv.catalog.blocks import Block, gathered, pooled
from xdeconv.catalog.readers import numpy_files, open_table
from xdeconv.catalog.readers import table as tables
from xdeconv.rows import cutting
from xdeconv.system import streams

MANY = 2000


class Rows:
    """So many rows of a file, a batch or a record batch, looked at as often as ``looks`` says."""

    def __init__(self, looks):
        self.looks = looks

    @property
    def n(self):
        self.looks.append(1)
        return 1

    num_rows = nbytes = n


def test_a_thread_looks_at_few_streams_to_find_the_next(monkeypatch):
    looks = []

    class Watched(streams._Stream):
        @property
        def ended(self):
            looks.append(1)
            return self.__dict__.get("over", False)

        @ended.setter
        def ended(self, value):
            self.__dict__["over"] = value

    monkeypatch.setattr(streams, "_Stream", Watched)
    assert list(streams.in_order([lambda i=i: iter([i]) for i in range(MANY)], int, 2)) == list(range(MANY))
    assert len(looks) < 40 * MANY


@pytest.mark.parametrize("cut", [gathered, lambda some, rows: cutting.pooled(some, rows), writers._tables])
def test_rows_that_wait_are_counted_once(cut):
    looks = []
    some = (Rows(looks) for _ in range(MANY))
    parts = cut("schema", some) if cut is writers._tables else cut(some, 10 * MANY)
    try:
        list(parts)
    except TypeError:  # of Arrow, which is to make a table of them
        assert cut is writers._tables
    assert MANY <= len(looks) <= 3 * MANY


def test_rows_of_a_pool_are_counted_once(monkeypatch):
    looks = []

    class Watched(Block):
        @property
        def n(self):
            looks.append(1)
            return len(self.position)

    monkeypatch.setattr(blocks_of_rows, "join", lambda waiting: waiting[0])
    some = (Watched({}, 0, np.arange(1)) for _ in range(MANY))
    assert len(list(pooled(some, 10 * MANY, 1))) == 1
    assert len(looks) <= 3 * MANY


def test_pieces_are_told_apart_once(monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_ROWS", 10)
    monkeypatch.setattr(numpy_files, "BLOCK_ROWS", 10)
    columns = {"x": np.arange(100.0), "x_error": np.full(100, 0.1)}
    for data in (columns, pa.table(columns)):
        table = open_table(data)
        assert table.pieces is table.pieces
        source = xd.open(table, ["x"], memory=False)
        reader = source._reader
        assert source._pieces is source._pieces
        assert reader.numbers is reader.numbers


def test_partitions_are_planned_once(monkeypatch):
    dask = pytest.importorskip("dask")
    import dask.dataframe as dd
    import pandas as pd

    from xdeconv.catalog.readers import dask as reading

    assert dask
    frame = dd.from_pandas(pd.DataFrame({"x": np.arange(60.0), "x_error": np.full(60, 0.1)}), npartitions=6)
    source = xd.open(frame, ["x"], memory=False)
    calls, told = itertools.count(), []
    delayed, to_delayed = reading._delayed, type(frame).to_delayed

    def counted(self, *args, **words):
        next(calls)
        return to_delayed(self, *args, **words)

    def noted(function):
        return lambda *args: (told.append(args), delayed(function)(*args))[1]

    monkeypatch.setattr(type(frame), "to_delayed", counted)
    monkeypatch.setattr(reading, "_delayed", noted)
    assert sum(batch.n for batch in source.batches(0)) == 60
    assert float(source.sum(lambda batch: batch.x.sum())) == np.arange(60.0).sum()
    assert next(calls) == 1
    assert len(told) == 6
    assert not [part for args in told for part in args if isinstance(part, tuple) and len(part) == 6]
