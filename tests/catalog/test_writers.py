"""Writers: row groups that are encoded side by side make one file, the same whatever the number of threads."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from xdeconv.catalog import writers


def blocks(rows: int, size: int = 700) -> list[pa.RecordBatch]:
    """Numbers with nulls, names that repeat, truths, and whole numbers."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=rows)
    columns = {f"v{a}": pa.array(values + a, mask=rng.random(rows) < 0.2) for a in range(20)}  # more than 15 columns
    columns |= {"name": pa.array([f"star {i % 7}" for i in range(rows)]), "id": pa.array(np.arange(rows))}
    columns |= {"bright": pa.array(values > 0, mask=values > 2), "list": pa.array([[1.0, 2.0]] * rows)}
    table = pa.table(columns).replace_schema_metadata({"made by": "a test"})
    return table.to_batches(max_chunksize=size)


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch):
    monkeypatch.setattr(writers, "GROUP_ROWS", 1000)


def test_the_file_is_the_same_whatever_the_number_of_threads(tmp_path, monkeypatch):
    written = {}
    for threads in (1, 2, 5):
        monkeypatch.setattr(writers, "threads", lambda threads=threads: threads)
        path = tmp_path / f"{threads}.parquet"
        assert writers.write_blocks(path, iter(blocks(25_300))) == 25_300
        written[threads] = path.read_bytes()
    assert written[1] == written[2] == written[5]


def test_every_row_group_is_where_the_footer_says(tmp_path):
    some, path = blocks(25_300), tmp_path / "a.parquet"
    writers.write_blocks(path, some)
    file, whole = pq.ParquetFile(path), pa.Table.from_batches(some)
    assert file.read().equals(whole)
    assert file.schema_arrow.metadata == whole.schema.metadata
    assert file.metadata.num_rows == 25_300
    assert file.metadata.num_row_groups > 15
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    starts = np.cumsum([0, *sizes])
    for i in (0, 9, len(sizes) - 1):
        assert file.read_row_group(i).equals(whole.slice(starts[i], sizes[i]))
    column = file.metadata.row_group(3).column(file.metadata.row_group(3).num_columns - 4)
    assert column.path_in_schema == "name"
    assert column.dictionary_page_offset > 0
    assert column.statistics.min == "star 0"
    assert column.statistics.max == "star 6"


@pytest.mark.parametrize("rows", [1, 999, 1000, 1001])
def test_any_number_of_rows(tmp_path, rows):
    some = blocks(rows)
    writers.write_blocks(tmp_path / "a.parquet", some)
    assert pq.read_table(tmp_path / "a.parquet").equals(pa.Table.from_batches(some))


def test_row_groups_of_many_columns_have_fewer_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "GROUP_BYTES", 100_000)
    some = blocks(3000, size=100)  # about 210 bytes per row
    writers.write_blocks(tmp_path / "a.parquet", some)
    metadata = pq.ParquetFile(tmp_path / "a.parquet").metadata
    assert max(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)) == 500
    assert pq.read_table(tmp_path / "a.parquet").equals(pa.Table.from_batches(some))


def test_a_table_without_rows_has_its_columns(tmp_path):
    empty = blocks(3)[0].slice(0, 0)
    assert writers.write_blocks(tmp_path / "a.parquet", [empty, empty]) == 0
    assert pq.read_table(tmp_path / "a.parquet").equals(pa.Table.from_batches([empty]))


def test_halves_are_written_as_others_can_read_them(tmp_path):
    halves = pa.record_batch({"x": np.arange(5, dtype=np.float16), "y": np.arange(5.0)})
    writers.write_blocks(tmp_path / "a.parquet", [halves])
    group = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    assert ["BYTE_STREAM_SPLIT" in group.column(i).encodings for i in range(2)] == [False, True]
    assert pq.read_table(tmp_path / "a.parquet")["x"].to_pylist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_every_block_may_have_a_dictionary_of_its_own(ending, tmp_path):
    """As row groups of a Parquet file that pandas wrote have."""
    path = tmp_path / f"a.{ending}"
    each = [[f"band {i}", "band 9"] * 300 for i in range(3)]
    some = [pa.record_batch({"band": pa.array(names).dictionary_encode()}) for names in each]
    assert writers.write_blocks(path, some) == 1800
    read = {"parquet": pq.read_table, "arrow": pa.feather.read_table, "csv": pa.csv.read_csv}[ending]
    assert read(path)["band"].to_pylist() == [name for names in each for name in names]


def test_what_another_library_reads_of_it(tmp_path):
    polars = pytest.importorskip("polars")
    some = [block.drop_columns(["list"]) for block in blocks(5000)]
    writers.write_blocks(tmp_path / "a.parquet", some)
    found = polars.read_parquet(tmp_path / "a.parquet", use_pyarrow=False)
    assert found.equals(polars.from_arrow(pa.Table.from_batches(some)))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv"])
def test_a_problem_halfway_leaves_what_was_there(tmp_path, name):
    def failing():
        yield from (block.drop_columns(["list"]) for block in blocks(5000))
        raise ValueError("row 5000 is bad")

    (tmp_path / name).write_text("before")
    with pytest.raises(ValueError, match="row 5000 is bad"):
        writers.write_blocks(tmp_path / name, failing())
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "before"
