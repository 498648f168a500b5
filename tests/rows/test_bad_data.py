"""Data as they come: files that change, odd types, no rows, one row, impossible rows far down; all named."""

import decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import xdeconv as xd
from xdeconv.catalog import stream
from xdeconv.catalog.readers import Piece, ReadError, Table
from xdeconv.cli import app

RNG = np.random.default_rng(0)
N = 300
COLUMNS = {
    "id": np.arange(N), "x": RNG.normal(size=N), "x_error": RNG.uniform(0.1, 0.5, size=N),
    "y": RNG.normal(size=N), "y_error": RNG.uniform(0.1, 0.5, size=N), "x_y_corr": RNG.uniform(-0.5, 0.5, size=N),
}  # fmt: skip


@pytest.fixture
def path(tmp_path):
    pq.write_table(pa.table(COLUMNS), tmp_path / "rows.parquet", row_group_size=50)
    return tmp_path / "rows.parquet"


def passes(source):
    return sum(batch.n for batch in source.batches(0))


# Questions


@pytest.mark.parametrize("numbers", [1, 10, 1000])
def test_rows_are_asked_few_at_a_time_where_much_is_made_of_them(numbers, path, monkeypatch):
    """And a bad row is found, and left out, whichever part it is in, in this pass and in the next."""
    table = pa.table({**COLUMNS, "y_error": np.where(np.arange(N) == 77, -1.0, COLUMNS["y_error"])})
    pq.write_table(table, path, row_group_size=50)
    monkeypatch.setattr(stream, "ANSWER_BYTES", 8 * (5 + 10) * 20)  # 20 rows of which an answer makes ten numbers
    source = xd.open(path, ["x", "y"], memory=False, bad_rows="drop", where="id != 3")
    asked = list(source.asked(["id"], lambda batch, kept: (batch, kept), numbers))
    assert max(batch.n for batch, _ in asked) == {1: 50, 10: 17, 1000: 1}[numbers]
    ids = np.concatenate([kept.column("id").to_numpy() for _, kept in asked])
    assert ids.tolist() == [i for i in range(N) if i not in (3, 77)]
    np.testing.assert_array_equal(np.concatenate([batch.x[0].numpy() for batch, _ in asked]), COLUMNS["x"][ids])
    assert passes(source) == N - 2
    assert source.notes == ("1 rows with impossible errors were dropped",)


# Files that change


def test_a_parquet_file_that_shrinks(path):
    source = xd.open(path, ["x", "y"], memory=False)
    assert passes(source) == N
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ReadError, match=r"rows\.parquet cannot be read: it has changed since it was opened"):
        passes(source)


def test_a_parquet_file_that_is_replaced_in_the_midst_of_a_pass(path):
    source = xd.open(path, ["x", "y"], memory=False)
    table = source.table
    blocks = table.read(table.pieces[0], ["x"])
    next(blocks)
    pq.write_table(pa.table({"x": np.zeros(7)}), path)
    with pytest.raises(ReadError, match="has changed"):
        list(table.read(table.pieces[1], ["x"]))


def test_a_parquet_file_that_vanishes(path):
    source = xd.open(path, ["x", "y"], memory=False)
    path.unlink()
    with pytest.raises(ReadError, match=r"rows\.parquet"):
        passes(source)


def test_a_file_that_is_cut_under_an_open_reader_is_no_crash(path):
    """A memory map would end the process with SIGBUS."""
    import os

    rows = 200_000
    pq.write_table(pa.table({"x": RNG.normal(size=rows), "y": RNG.normal(size=rows)}), path, compression="none")
    table = xd.open(path, ["x", "y"], error={"x": None, "y": None}, memory=False).table
    blocks = table.read(table.pieces[0], ["x", "y"])
    next(blocks)
    os.truncate(path, 100)
    try:
        read = sum(block.num_rows for block in blocks)
    except ReadError as problem:
        assert "rows.parquet" in str(problem)  # noqa: PT017
    else:
        assert read < rows  # what was read ahead


# Types


@pytest.mark.parametrize(
    "convert",
    [
        lambda v: pa.array([decimal.Decimal(str(round(a, 6))) for a in v], pa.decimal128(18, 6)),
        lambda v: pa.array(v, pa.float32()),
        lambda v: pa.array(v.astype(np.float16)),
        lambda v: pa.DictionaryArray.from_arrays(np.arange(len(v)) % 9, pa.array(np.round(v[:9], 3))),
    ],
)
def test_numbers_of_any_type(convert, path):
    table = pa.table(COLUMNS).set_column(1, "x", convert(COLUMNS["x"]))
    pq.write_table(table, path)
    try:
        batch = xd.open(path, ["x", "y"]).load().batch
    except ValueError as problem:
        assert "column x is of type dictionary" in str(problem)  # noqa: PT017
        return
    np.testing.assert_allclose(batch.x[0].numpy(), np.asarray(table["x"].to_numpy(), dtype=float), rtol=1e-6)


def test_words_are_refused_by_name(path):
    pq.write_table(pa.table({**COLUMNS, "x": [f"star {i}" for i in range(N)]}), path)
    with pytest.raises(ValueError, match=r"column x\b|star 0"):
        xd.open(path, ["x", "y"]).load()


def test_big_endian_and_extension_arrays():
    import pandas

    big = {name: values.astype(values.dtype.newbyteorder(">")) for name, values in COLUMNS.items()}
    right = xd.open(COLUMNS, ["x", "y"]).load().batch
    np.testing.assert_array_equal(xd.open(big, ["x", "y"]).load().batch.x, right.x)
    frame = pandas.DataFrame(COLUMNS).convert_dtypes()
    frame.loc[3, "x"] = pandas.NA
    found = xd.open(frame, ["x", "y"]).load().batch.x.numpy()
    assert np.isnan(found[0, 3])
    np.testing.assert_array_equal(np.delete(found, 3, axis=1), np.delete(right.x.numpy(), 3, axis=1))
    plain = frame[["x", "y"]]
    assert bool(xd.Batch.from_arrays(plain).x[0, 3].isnan())


# How many rows


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow"])
def test_no_rows_and_one_row(suffix, tmp_path):
    from xdeconv.catalog.writers import write_blocks

    target = tmp_path / f"rows.{suffix}"
    one = pa.RecordBatch.from_pydict({name: values[:1] for name, values in COLUMNS.items()})
    write_blocks(target, [one])
    assert xd.fit(xd.open(target, ["x", "y"]), 1, epochs=2).mixture.means[0, 0] == pytest.approx(COLUMNS["x"][0])
    write_blocks(target, [one.slice(0, 0)])
    with pytest.raises((ValueError, OSError), match=r"rows"):
        xd.fit(xd.open(target, ["x", "y"]), 1, epochs=2)


def test_a_column_that_is_all_missing(path):
    pq.write_table(pa.table({**COLUMNS, "y": np.full(N, np.nan)}), path)
    for memory in (True, False):
        with pytest.raises(ValueError, match=r"y has no observed value in any row of .*rows\.parquet: leave it out"):
            xd.fit(xd.open(path, ["x", "y"], memory=memory), 2, epochs=3)
    result = xd.fit(xd.open(path, ["x", "y"], empty="keep"), 2, epochs=3)
    assert np.isfinite(result.loglik)
    assert np.isfinite(result.mixture.covariances).all()
    right = xd.fit(xd.open(path, ["x"]), mixture=result.mixture.marginal(["x"]), epochs=1)
    assert right.history[0].loglik == pytest.approx(result.loglik, rel=1e-9)


@pytest.mark.parametrize("memory", [True, False])
def test_a_column_that_only_rows_show_that_do_not_count(path, memory):
    """Rows without weight, and rows that are dropped: a mean of 0 was made up for it."""
    y, weight, error = np.full(N, np.nan), np.ones(N), np.full(N, 0.1)
    y[3], weight[3] = 1.0, 0.0
    pq.write_table(pa.table({**COLUMNS, "y": y, "w": weight}), path)
    with pytest.raises(ValueError, match=r"y has no observed value in any row of .*rows\.parquet with weight: leave"):
        xd.fit(xd.open(path, ["x", "y"], weight="w", memory=memory), 1, epochs=2)
    error[3] = -1.0
    pq.write_table(pa.table({**COLUMNS, "y": y, "y_error": error}), path)
    with pytest.raises(ValueError, match=r"y has no observed value in any row of .*rows\.parquet: leave it out"):
        xd.fit(xd.open(path, ["x", "y"], bad_rows="drop", memory=memory), 1, epochs=2)


@pytest.mark.parametrize("memory", [None, True, False])
def test_a_value_that_is_not_defined_is_refused_in_every_row_group(path, memory):
    """Rows held in memory were looked at in the first row group, however many there were."""
    x = np.abs(COLUMNS["x"]) + 1.0
    x[N - 3] = -1.0
    pq.write_table(pa.table({**COLUMNS, "x": x}), path, row_group_size=N // 4)
    with pytest.raises(ValueError, match=rf"row {N - 3} in row group 3: bright is not defined"):
        xd.fit(xd.open(path, ["bright", "y"], derive={"bright": "log10(x)"}, memory=memory), 1, epochs=2)


@pytest.mark.slow
def test_null_identifiers_stay_null(path, tmp_path):
    ids = pa.array([None if i % 7 == 0 else 2**62 + i for i in range(N)], pa.int64())
    pq.write_table(pa.table({**COLUMNS, "id": ids}), path)
    model, out = tmp_path / "m.safetensors", tmp_path / "scores.parquet"
    xd.fit(xd.open(path, ["x", "y"]), 2, epochs=2).mixture.save(model)
    found = CliRunner().invoke(app, ["posterior", str(model), str(path), "-o", str(out), "--keep", "id"])
    assert found.exit_code == 0, found.output
    assert pq.read_table(out)["id"].to_pylist() == ids.to_pylist()


# Impossible rows


class FarDown(Table):
    """A table whose second piece begins at row 12,345,600: as a long file would say it."""

    name, columns, units, shuffled = "catalogue.parquet", tuple(COLUMNS), {}, False
    pieces = (Piece("catalogue.parquet", "row group", 7, N, 12_345_600),)

    def __init__(self, change):
        self.data = {name: values.astype(float) for name, values in COLUMNS.items()}
        change(self.data)

    def read(self, piece, columns, floats=()):
        yield pa.RecordBatch.from_pydict({name: self.data[name] for name in columns})


def put(name, value):
    def change(data):
        data[name][78] = value

    return change


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("x_error", np.nan, "x_error is missing or infinite although x is observed"),
        ("y_error", -0.1, "y_error is negative"),
        ("x_y_corr", -1.2, "x_y_corr is not a correlation"),
        ("x", np.inf, "x is infinite"),
    ],
)
def test_file_row_and_column_are_named(column, value, message):
    table = FarDown(put(column, value))
    with pytest.raises(ValueError, match=rf"catalogue\.parquet, row 12345678 in row group 7: {message}"):
        xd.fit(xd.open(table, ["x", "y"]), 2)
    source = xd.open(table, ["x", "y"], bad_rows="drop")
    assert xd.fit(source, 2, epochs=2).mixture.meta["fit"]["rows"] == N - 1
    assert source.notes == ("1 rows with impossible errors were dropped",)


def test_a_covariance_that_is_not_positive_definite():
    columns = {**COLUMNS, "z": RNG.normal(size=N), "z_error": np.full(N, 0.1)}
    columns |= {"x_z_corr": np.full(N, 0.1), "y_z_corr": np.full(N, 0.1), "x_y_corr": COLUMNS["x_y_corr"].copy()}
    for name, value in (("x_y_corr", 0.99), ("x_z_corr", 0.99), ("y_z_corr", -0.99)):
        columns[name][78] = value
    with pytest.raises(ValueError, match="row 78: errors have correlations that no covariance can have"):
        xd.open(columns, ["x", "y", "z"]).load()


def test_the_command_refuses_or_counts(path, tmp_path):
    bad = {**COLUMNS, "x_error": COLUMNS["x_error"].copy()}
    bad["x_error"][[5, 120, 299]] = -1.0
    pq.write_table(pa.table(bad), path, row_group_size=50)
    command = ["fit", str(path), "--columns", "x,y", "-k", "1", "-o", str(tmp_path / "m.safetensors"), "--epochs", "2"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code != 0
    assert "rows.parquet, row 5 in row group 0: x_error is negative" in str(refused.exception)
    dropped = CliRunner().invoke(app, [*command, "--bad-rows", "drop"])
    assert dropped.exit_code == 0, dropped.output
    assert "3 rows with impossible errors were dropped" in dropped.output
    assert xd.load(tmp_path / "m.safetensors").meta["notes"][:1] == ["3 rows with impossible errors were dropped"]
