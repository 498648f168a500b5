"""The edges of formats: masks, units of several files, names, dates, large numbers, damage and bombs."""

import contextlib
import gzip
import io
import signal
import subprocess
import sys
import textwrap
import tracemalloc
import zipfile
from decimal import Decimal

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits
from astropy.table import MaskedColumn, QTable, Table
from astropy.units import Unit

import xdeconv as xd
from xdeconv.catalog._open import open as open_catalog
from xdeconv.catalog.blocks import Part
from xdeconv.catalog.readers import ReadError, open_table, rows_of
from xdeconv.catalog.readers.lengths import batch_lengths
from xdeconv.catalog.readers.text import read_header
from xdeconv.rows.batch import Batch
from xdeconv.rows.units import factor

EXACT = dict.fromkeys("xyz")


def values(data, columns=("x",), **options):
    return open_catalog(data, list(columns), error=dict.fromkeys(columns), **options).load().batch.x.numpy()


# Masks


def masked():
    table = Table({"x": MaskedColumn([1.0, -9999.0, 3.0], mask=[0, 1, 0], unit="mas"), "y": [4.0, 5.0, 6.0]})
    table["n"] = MaskedColumn([1, -9999, 3], mask=[0, 1, 0])
    table["y"].unit = "deg"
    return table


SERIALISED = {
    "a.hdf5": lambda t, path: t.write(path, path="data", serialize_meta=True),
    "b.parquet": lambda t, path: t.write(path),
    "c.ecsv": lambda t, path: t.write(path, serialize_method="data_mask"),
    "d.ecsv": lambda t, path: t.write(path),
    "e.fits": lambda t, path: t.write(path),
    "f.vot": lambda t, path: t.write(path, format="votable"),
}


@pytest.mark.parametrize("name", SERIALISED)
@pytest.mark.parametrize("kind", [Table, QTable])
def test_masks_of_astropy_are_missing_values(name, kind, tmp_path):
    SERIALISED[name](kind(masked()), tmp_path / name)
    table = open_table(tmp_path / name)
    assert table.columns == ("x", "y", "n")
    assert dict(table.units) == {"x": "mas", "y": "deg"}
    assert np.array_equal(values(tmp_path / name, "xyn"), [[1, np.nan, 3], [4, 5, 6], [1, np.nan, 3]], equal_nan=True)


@pytest.mark.parametrize("kind", [Table, QTable])
def test_a_single_row_of_astropy_is_told_how_it_is_given(kind):
    table = kind({"x": [1.0, 2.0], "x_error": [0.1, 0.1]})
    with pytest.raises(ValueError, match=r"no columns of one number per row: a single row is given as table\[5:6\]"):
        open_catalog(table[0], ["x"])
    assert open_catalog(table[0:1], ["x"]).rows == 1


def test_masks_in_a_table_that_pandas_read(tmp_path):
    masked().write(tmp_path / "a.parquet")
    assert np.isnan(values(pd.read_parquet(tmp_path / "a.parquet"), "xn")[:, 1]).all()


@pytest.mark.parametrize(("scale", "zero"), [(0.5, 0.0), (1.0, 32768.0), (0.1, 7.0), (1.0, 0.0)])
@pytest.mark.parametrize("packed", [False, True])
def test_nulls_of_scaled_fits_columns_are_missing(scale, zero, packed, tmp_path):
    raw = np.array([1, -99, 3], dtype=">i2")
    column = fits.Column("x", "I", array=np.zeros(3, "i2"), null=-99)
    table = fits.BinTableHDU.from_columns([column, fits.Column("y", "D", array=np.arange(3.0), unit="mag")])
    table.writeto(tmp_path / "a.fits")
    with fits.open(tmp_path / "a.fits", mode="update", do_not_scale_image_data=True) as file:
        if scale != 1:
            file[1].header["TSCAL1"] = scale
        if zero:
            file[1].header["TZERO1"] = zero
    with fits.open(tmp_path / "a.fits") as file:
        at = file[1].fileinfo()["datLoc"]
    content = bytearray((tmp_path / "a.fits").read_bytes())
    for i in range(3):
        content[at + 10 * i : at + 10 * i + 2] = raw[i : i + 1].tobytes()
    name = "a.fits.gz" if packed else "a.fits"
    (tmp_path / name).write_bytes(gzip.compress(bytes(content)) if packed else bytes(content))
    found = values(tmp_path / name, "xy")
    assert np.allclose(found, [[scale + zero, np.nan, 3 * scale + zero], [0, 1, 2]], equal_nan=True)


def test_types_of_fits_columns(tmp_path):
    ids = np.array([2**63 + 5, 7, 2**64 - 1], dtype="u8")
    columns = {"id": ids, "u": np.array([1, 65535, 3], "u2"), "flag": np.array([True, False, True])}
    columns |= {"name": np.array(["a", "bc", "d"]), "b": np.array([1, 2, 255], "u1"), "f": np.arange(3, dtype="f4")}
    Table(columns).write(tmp_path / "a.fits")
    table = open_table(tmp_path / "a.fits")
    found = next(table.read(table.pieces[0], list(columns))).to_pydict()
    assert {name: list(v) for name, v in found.items()} == {name: v.tolist() for name, v in columns.items()}


# Several files


def write_fits(path, unit, x):
    table = Table({"x": x})
    table["x"].unit = unit
    table.write(path)


def write_ecsv(path, unit, x):
    table = Table({"x": x})
    table["x"].unit = unit
    table.write(path, format="ascii.ecsv")


def write_parquet(path, unit, x):
    pq.write_table(pa.table([x], schema=pa.schema([pa.field("x", pa.float64(), metadata={"unit": unit})])), path)


def write_arrow(path, unit, x):
    schema = pa.schema([pa.field("x", pa.float64(), metadata={"unit": unit})])
    with pa.ipc.new_file(str(path), schema) as writer:
        writer.write_table(pa.table([x], schema=schema))


def write_hdf5(path, unit, x):
    with h5py.File(path, "w") as file:
        file["x"] = x
        file["x"].attrs["unit"] = unit


WRITERS = {"fits": write_fits, "ecsv": write_ecsv, "parquet": write_parquet, "arrow": write_arrow, "h5": write_hdf5}


@pytest.mark.parametrize("kind", WRITERS)
def test_units_of_every_file_count(kind, tmp_path):
    WRITERS[kind](tmp_path / f"a.{kind}", "mas", np.array([1.0, 2.0]))
    WRITERS[kind](tmp_path / f"b.{kind}", "arcsec", np.array([3.0]))
    files = str(tmp_path / f"*.{kind}")
    assert open_catalog(files, ["x"], error={"x": None}).units == ("mas",)
    assert np.allclose(values(files), [[1, 2, 3000]])
    WRITERS[kind](tmp_path / f"c.{kind}", "km", np.array([3.0]))
    with pytest.raises(ReadError, match=rf"c\.{kind}: x is in 'km' here and in 'mas' in other files"):
        values(files)


@pytest.mark.parametrize("kind", WRITERS)
def test_units_of_files_behind_one_that_says_none_count(kind, tmp_path):
    """Of text files, those of the first alone were looked at: mas and arcsec stood beside each other."""
    for name, unit, x in (("a", "", [1.0, 2.0]), ("b", "mas", [3.0]), ("c", "arcsec", [4.0])):
        WRITERS[kind](tmp_path / f"{name}.{kind}", unit, np.array(x))
    with pytest.warns(UserWarning, match=rf"a\.{kind} does not say the units of x, as other files do"):
        source = xd.open(str(tmp_path / f"*.{kind}"), ["x"], error={"x": None})
    assert source.units == ("mas",)
    assert np.allclose(source.load().batch.x, [[1, 2, 3, 4000]])


def test_a_parsec_has_a_thousand_milliparsecs_and_a_millionth_of_a_megaparsec():
    """Both were called mpc, and a milliparsec was a megaparsec."""
    assert factor("mpc", "pc", "x") == pytest.approx(1e-3)
    assert factor("Mpc", "pc", "x") == pytest.approx(1e6)
    astropy = {name: float(Unit(name).to(Unit("kpc"))) for name in ("pc", "mpc", "Mpc")}
    assert {name: factor(name, "kpc", "x") for name in astropy} == pytest.approx(astropy)


@pytest.mark.filterwarnings("ignore:.*does not say the units of x")
@pytest.mark.parametrize("kind", WRITERS)
def test_a_second_file_without_a_column_is_named(kind, tmp_path):
    WRITERS[kind](tmp_path / f"a.{kind}", "mas", np.array([1.0, 2.0]))
    WRITERS[kind](tmp_path / f"b.{kind}", "mas", np.array([1.0, 2.0]))
    first, second = open_table(tmp_path / f"a.{kind}"), open_table(tmp_path / f"b.{kind}")
    assert first.columns == second.columns == ("x",)
    content = (tmp_path / f"b.{kind}").read_bytes()
    del content, first, second
    if kind == "parquet":
        pq.write_table(pa.table({"y": [1.0]}), tmp_path / "b.parquet")
    elif kind == "fits":
        Table({"y": [1.0]}).write(tmp_path / "b.fits", overwrite=True)
    elif kind == "ecsv":
        Table({"y": [1.0]}).write(tmp_path / "b.ecsv", overwrite=True)
    elif kind == "h5":
        with h5py.File(tmp_path / "b.h5", "w") as file:
            file["y"] = [1.0]
    else:
        with pa.ipc.new_file(str(tmp_path / "b.arrow"), pa.schema([("y", pa.float64())])) as writer:
            writer.write_table(pa.table({"y": [1.0]}))
    with pytest.raises(ReadError, match=rf"b\.{kind}.*'?x'?"):
        values(str(tmp_path / f"*.{kind}"))


# Names


def test_datasets_of_the_same_name_are_told_apart(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a/x"], file["b/x"], file["y"] = np.zeros(3), np.ones(3), np.full(3, 2.0)
    assert open_table(tmp_path / "a.h5").columns == ("a/x", "b/x", "y")
    assert values(tmp_path / "a.h5", ["b/x", "y"])[:, 0].tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"no column 'x': did you mean"):
        values(tmp_path / "a.h5")


def test_two_tables_in_one_file_are_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("first", "second"):
            file[name] = np.rec.fromarrays([np.zeros(3)], names="x")
    with pytest.raises(ReadError, match=r"holds 2 tables \(first, second\)"):
        open_table(tmp_path / "a.h5")


def test_columns_of_the_same_name_are_refused_where_they_are_used(tmp_path):
    (tmp_path / "a.csv").write_text("x,y,x\n1,2,3\n")
    assert values(tmp_path / "a.csv", "y").tolist() == [[2]]
    pq.write_table(pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0]), pa.array([3.0])], names=["x", "y", "x"]),
                   tmp_path / "a.parquet")  # fmt: skip
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(ValueError, match=r"has 2 columns called 'x': names must be unique"):
            values(tmp_path / name)
        with pytest.raises(ValueError, match="2 columns called 'x'"):
            values(tmp_path / name, "y", where="x > 1")
    frame = pd.DataFrame(np.ones((3, 4)), columns=["x", "y", "x", "s"]).astype({"s": "str"})
    assert np.array_equal(values(frame, "y").ravel(), np.ones(3))
    with pytest.raises(ValueError, match="pandas table has 2 columns called 'x': names must be unique"):
        values(frame)
    with pytest.raises(ValueError, match="must be unique"):
        xd.fit(pd.DataFrame(np.ones((3, 2)), columns=["x", "x"]), 1)


@pytest.mark.parametrize(("head", "delimiter"), [("# x,y\n", ","), ("# made by hand\n#x y\n", " "), ("# x\ty\n", "\t")])
def test_names_in_a_comment_are_names(head, delimiter, tmp_path):
    (tmp_path / "a.txt").write_text(head + delimiter.join(["1.5", "2"]) + "\n" + delimiter.join(["-3e2", "nan"]) + "\n")
    assert open_table(tmp_path / "a.txt").columns == ("x", "y")
    assert np.array_equal(values(tmp_path / "a.txt", "xy"), [[1.5, -300], [2, np.nan]], equal_nan=True)


@pytest.mark.parametrize("delimiter", [",", "\t", " "])
def test_names_in_a_comment_are_names_of_rows_with_text_in_them(delimiter, tmp_path):
    rows = [["# name", "x", "y"], ["M5-star", "1.5", "2"], ["other", "3", "nan"]]
    (tmp_path / "a.txt").write_text("\n".join(delimiter.join(row) for row in rows) + "\n")
    assert open_table(tmp_path / "a.txt").columns == ("name", "x", "y")
    assert np.array_equal(values(tmp_path / "a.txt", "xy"), [[1.5, 3], [2, np.nan]], equal_nan=True)
    (tmp_path / "b.csv").write_text("# two,words\nname,x\na,1.5\n")
    assert open_table(tmp_path / "b.csv").columns == ("name", "x")


def test_columns_aligned_by_spaces_are_said_to_be_that(tmp_path):
    (tmp_path / "a.txt").write_text("#    x      y\n   1.5    2.0\n   3.0    4.0\n")
    with pytest.raises(ReadError, match="has columns that are aligned by spaces: write it as CSV"):
        open_table(tmp_path / "a.txt")


def test_names_by_numpy(tmp_path):
    np.savetxt(tmp_path / "a.txt", np.array([[1.0, 2.0], [3.0, 4.0]]), header="x y")
    assert values(tmp_path / "a.txt", "xy").tolist() == [[1, 3], [2, 4]]


def test_rows_without_names_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("1.5,2\n3,4\n")
    with pytest.raises(ReadError, match=r"a\.csv has no line of column names: its first line, '1\.5,2', is numbers"):
        open_table(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("# a comment of no use\n1.5,2\n3,4\n")
    with pytest.raises(ReadError, match="no line of column names"):
        open_table(tmp_path / "b.csv")
    pd.DataFrame(np.ones((2, 3))).to_csv(tmp_path / "c.csv", index=False)
    assert open_table(tmp_path / "c.csv").columns == ("0", "1", "2")


@pytest.mark.parametrize("packed", [False, True])
def test_a_mark_at_the_beginning_is_no_name(packed, tmp_path):
    content = b"\xef\xbb\xbfx,y\n1,2\n3,4\n"
    name = "a.csv.gz" if packed else "a.csv"
    (tmp_path / name).write_bytes(gzip.compress(content) if packed else content)
    assert values(tmp_path / name, "xy").tolist() == [[1, 3], [2, 4]]


def test_a_text_column_is_named(tmp_path):
    columns = {"x": np.arange(3.0), "name": np.array(["a", "b", "c"])}
    for data in (columns, pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns), Table(columns)):
        with pytest.raises(ValueError, match=r"column name is text, such as 'a'"):
            values(data, ["x", "name"])
        with pytest.raises(ValueError, match=r"X cannot be read as numbers: column name"):
            xd.fit(data, 1)
    pd.DataFrame(columns).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ReadError, match=r"a\.csv cannot be read after row 0: .*column name: .*'a'"):
        values(tmp_path / "a.csv", ["x", "name"])
    with pytest.raises(ValueError, match="column name is text"):
        open_catalog({**columns, "x_error": columns["name"]}, ["x"], error={"x": "name"}).load()


# Rows of pandas


def test_rows_of_pandas_are_paired_by_their_index():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"], index=np.arange(40) + 100)
    error = pd.DataFrame(rng.uniform(0.1, 1, size=(40, 2)), columns=["a", "b"], index=X.index)
    weight = pd.Series(rng.uniform(size=40), index=X.index)
    order = rng.permutation(40)
    right = Batch.from_arrays(X, error=error, weight=weight)
    mixed = Batch.from_arrays(X, error=error.iloc[order], weight=weight.iloc[order])
    assert np.array_equal(right.noise, mixed.noise)
    assert np.array_equal(right.weight, mixed.weight)
    for wrong in ({"error": error.reset_index(drop=True)}, {"weight": weight.reset_index(drop=True)},
                  {"noise": error.set_axis(np.zeros(40))}):  # fmt: skip
        with pytest.raises(ValueError, match=r"the index of (error|weight|noise) is not that of the rows"):
            Batch.from_arrays(X, **wrong)
    assert np.array_equal(Batch.from_arrays(X, error=error.to_numpy()).noise, right.noise)
    with pytest.raises(ValueError, match="the index of error is not that of the rows"):
        xd.fit(X, 1, error=error.reset_index(drop=True))


def test_a_background_of_pandas_is_paired_by_its_index():
    rng = np.random.default_rng(0)
    X, density = pd.DataFrame(rng.normal(size=(60, 1)), columns=["x"]), pd.Series(rng.normal(-3, 1, size=60))
    right = xd.fit(X, 1, error=[0.1], background=density).mixture
    mixed = xd.fit(X, 1, error=[0.1], background=density.iloc[rng.permutation(60)]).mixture
    assert mixed.background_weight == right.background_weight
    with pytest.raises(ValueError, match="the index of background is not that of the rows"):
        xd.fit(X, 1, error=[0.1], background=density.set_axis(np.arange(60) + 5))


@pytest.mark.parametrize("read", [lambda t: values(t, "xy"), lambda t: Batch.from_arrays(t).x.numpy()])
def test_columns_of_pandas_are_paired_by_their_index(read):
    x, y = pd.Series([1.0, 2.0, 3.0]), pd.Series([4.0, 5.0, 6.0], index=[2, 1, 0])
    assert read({"x": x, "y": y}).tolist() == [[1, 2, 3], [6, 5, 4]]
    with pytest.raises(ValueError, match="index of column y is not that of the rows"):
        read({"x": x, "y": y.set_axis([7, 8, 9])})


# Numbers that are none


DATES = np.array(["2020-01-01", "NaT"], dtype="M8[ns]")


@pytest.mark.parametrize(
    "make", [dict, pd.DataFrame, pl.DataFrame, pa.table], ids=["dict", "pandas", "polars", "arrow"]
)
@pytest.mark.parametrize("dates", [DATES, pd.to_timedelta([1, None]).to_numpy()], ids=["dates", "times"])
def test_dates_are_not_numbers(make, dates):
    with pytest.raises(ValueError, match=r"column x (has dates or times|is of type (timestamp|duration))"):
        xd.fit(make({"x": dates}), 1)
    with pytest.raises(ValueError, match=r"column x (has dates or times|is of type (timestamp|duration))"):
        values(make({"x": dates}))


def test_dates_in_arrays_are_not_numbers():
    for array in (DATES[:, None], np.array([[pd.Timestamp("2020-01-01")]], dtype=object)):
        with pytest.raises(ValueError, match="X has dates or times"):
            xd.fit(array, 1)


LARGE = np.array([1, 2**53 + 1, 5])
KEPT = np.array([1, 2**60, -(2**54)])


@pytest.mark.parametrize("make", [lambda x: {"x": x}, lambda x: pd.DataFrame({"x": x}),
                                  lambda x: pl.DataFrame({"x": x}), lambda x: pa.table({"x": x}),
                                  lambda x: Table({"x": x}),
                                  lambda x: pa.table({"x": pa.array([*x.tolist(), None])}),
                                  lambda x: pl.DataFrame({"x": [*x.tolist(), None]}),
                                  lambda x: pd.DataFrame({"x": pd.array([*x.tolist(), None], dtype="Int64")})],
                         ids=["dict", "pandas", "polars", "arrow", "astropy", "nulls", "polars nulls",
                              "pandas nulls"])  # fmt: skip
def test_whole_numbers_that_would_change_are_refused(make):
    for read in (values, lambda t: Batch.from_arrays(t).x.numpy()):
        with pytest.raises(ValueError, match=r"column x has the whole number 9007199254740993"):
            read(make(LARGE))
        assert read(make(KEPT))[0, :3].tolist() == KEPT.tolist()


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical, pl.Enum(["A", "B"])], ids=str)
def test_categories_of_polars_are_text(kind, tmp_path):
    table = pl.DataFrame({"x": [1.0, 2.0, 3.0], "s": ["A", None, "B"]}).with_columns(pl.col("s").cast(kind))
    table.write_parquet(tmp_path / "rows.parquet")
    table.write_ipc(tmp_path / "rows.arrow")
    for rows in (table, table.lazy(), tmp_path / "rows.parquet", tmp_path / "rows.arrow"):
        assert values(rows, where="s == 'B'").tolist() == [[3.0]]
        passed = [some for _, some in open_catalog(rows, ["x"], error={"x": None}).passes(("s",))]
        assert pa.Table.from_batches(passed)["s"].to_pylist() == ["A", None, "B"]
    with pytest.raises(ValueError, match="column s is text, such as 'A'"):
        open_catalog(table, ["s"], error={"s": None}).load()


def test_whole_numbers_of_arrays_and_lists():
    for array in (LARGE[:, None], [[2**53 + 1]], np.array([[2**64 - 1]], dtype="u8"), [[2**70 + 1]],
                  pd.Series(LARGE).to_frame(0)):  # fmt: skip
        with pytest.raises(ValueError, match="X has the whole number"):
            Batch.from_arrays(array)
    assert Batch.from_arrays([[2**63]]).x[0, 0] == 2.0**63


def test_identifiers_with_gaps_are_compared_exactly_or_refused():
    ids = pa.array([2**62, None, 2**62 + 2**10], pa.int64())
    table = pa.table({"id": ids, "x": [1.0, 2.0, 3.0]})
    assert values(table, where=f"id == {2**62 + 2**10}").tolist() == [[3.0]]
    odd = table.set_column(0, "id", pa.array([2**62 + 1, None, 2**62], pa.int64()))
    with pytest.raises(ValueError, match="column id has the whole number"):
        values(odd, where=f"id == {2**62}")


# Damage


@pytest.mark.filterwarnings("ignore::astropy.utils.exceptions.AstropyUserWarning")  # of damaged headers
@pytest.mark.parametrize("write", ["fits.gz", "csv.gz", "ecsv.gz", "vot.gz", "npz"])
def test_no_flipped_bit_gives_other_values(write, tmp_path):
    """The checksum that a compressed file has is looked at: each flip is refused or changes nothing."""
    rng = np.random.default_rng(0)
    table = Table({"x": rng.normal(size=300), "y": rng.normal(size=300)})
    plain = io.BytesIO()
    if write == "npz":
        np.savez_compressed(plain, x=np.asarray(table["x"]), y=np.asarray(table["y"]))
        content = plain.getvalue()
    else:
        kind = {"fits.gz": "fits", "csv.gz": "ascii.csv", "ecsv.gz": "ascii.ecsv", "vot.gz": "votable"}[write]
        target = tmp_path / "plain"
        table.write(target, format=kind)
        content = gzip.compress(target.read_bytes())
    path = tmp_path / f"rows.{write}"
    path.write_bytes(content)
    right = values(path, "xy")
    refused = 0
    for at in np.linspace(0, len(content) - 1, 60).astype(int):
        damaged = bytearray(content)
        damaged[at] ^= 1 << int(rng.integers(8))
        path = tmp_path / f"{at}.{write}"
        path.write_bytes(bytes(damaged))
        try:
            assert np.array_equal(values(path, "xy"), right)
        except (ReadError, ValueError) as problem:
            refused += 1
            assert path.name in str(problem)  # noqa: PT017
    assert refused > 30


# Bombs


XML = {
    "cell": (b'<FIELD name="x" datatype="double"/><DATA><TABLEDATA><TR><TD>', b"1"),
    "attribute": (b'<FIELD name="', b"x"),
    "elements": (b"", b"<GROUP>"),
    "parameters": (b"", b'<PARAM name="x" datatype="int" value="1"/>'),
    "comment": (b"<!--", b"x"),
}


def bomb(kind, path):
    if kind == "line":
        with gzip.open(path, "wb", compresslevel=9) as file:
            for _ in range(1000):
                file.write(b"x" * 1_000_000)
    elif kind == "header":
        with gzip.open(path, "wb", compresslevel=6) as file:
            file.write(b"".join(f"{card:<80}".encode() for card in ("SIMPLE  =                    T",
                       "BITPIX  =                    8", "NAXIS   =                    0")))  # fmt: skip
            for _ in range(500):
                file.write(b"COMMENT x".ljust(80) * 12000)
    elif kind == "comments":
        with gzip.open(path, "wb", compresslevel=9) as file:
            for _ in range(200):
                file.write(b"# nothing here\n" * 300_000)
    elif kind == "batch":
        column = pa.array(np.zeros(60_000_000))
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(path, pa.schema([("x", pa.float64())]), options=options) as file:
            file.write_batch(pa.record_batch({"x": column}))
    elif kind in XML:
        before, again = XML[kind]
        with gzip.open(path, "wb", compresslevel=9) as file:
            file.write(b"<VOTABLE><RESOURCE><TABLE>" + before)
            for _ in range(600):
                file.write(again * (1_000_000 // len(again)))
    else:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (150_000_000,)})
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("x.npy", "w", force_zip64=True) as file,
        ):
            file.write(header.getvalue())
            for _ in range(1200):
                file.write(bytes(1_000_000))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("kind", "name"),
    [("line", "a.csv.gz"), ("comments", "b.csv.gz"), ("zeros", "c.npz"), ("header", "d.fits.gz"),
     *((kind, "e.vot.gz") for kind in XML)],
)  # fmt: skip
def test_a_small_file_takes_little_memory_to_open(kind, name, tmp_path):
    bomb(kind, tmp_path / name)
    code = """
        import resource, sys
        import astropy.io.fits, numpy, pyarrow.csv
        from xdeconv.catalog._open import open_source
        from xdeconv.catalog.readers import open_table, rows_of
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            table = open_table(sys.argv[1])
            next(table.read(table.pieces[0], ["x"]))
        except OSError as problem:
            print(problem)
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < 200  # MiB


def endless(path):
    """A file of a few kilobytes that says that it has 10^12 rows."""
    rows = 10**12
    if path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("x", shape=(rows,), dtype="f8", chunks=(1 << 16,))
    elif path.suffix in (".npy", ".npz"):
        kind, shape = ("<f8", (rows, 0)) if path.stem == "narrow" else ([("x", "S0")], (rows,))
        header = io.BytesIO()
        words = {"descr": kind if path.suffix == ".npy" else "|V0", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, words)
        if path.suffix == ".npy":
            path.write_bytes(header.getvalue())
        else:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("x.npy", header.getvalue())
    else:
        Table({"x": np.zeros(0)}).write(path)
        content = path.read_bytes().replace(b"NAXIS2  =                    0", b"NAXIS2  =        1000000000000")
        content = content.replace(b"NAXIS1  =                    8", b"NAXIS1  =                    0")
        path.write_bytes(content.replace(b"'D       '", b"'0D      '"))


@pytest.mark.parametrize("shape", [(0, 10**12), (0, 2, 10**12), (1, 10_001)], ids=str)
def test_names_are_not_made_up_for_any_number_of_columns(tmp_path, shape):
    """128 bytes of .npy, of no rows and 10^12 columns, had taken all memory there is."""
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
        file.write(bytes(80_008 * shape[0]))
    with _little_and_soon(), pytest.raises(ReadError, match=r"a\.npy has shape .* more than 10,000 columns"):
        open_table(tmp_path / "a.npy")


def test_groups_within_groups_have_an_end(tmp_path):
    """HDF5 itself walks through 3,000 of them, a file of 3 MB, for 12 seconds."""
    for depth, name in ((90, "sound.hdf5"), (110, "deep.hdf5")):
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("g/" * depth + "x", data=np.arange(3.0))
    assert xd.open(tmp_path / "sound.hdf5", ["x"], error={"x": None}).rows == 3
    with pytest.raises(ReadError, match=r"deep\.hdf5 has groups within groups, more than 100 deep"):
        xd.open(tmp_path / "deep.hdf5", ["x"], error={"x": None})


@pytest.mark.parametrize("name", ["a.npy", "narrow.npy", "a.npz", "a.fits"])
def test_rows_that_take_no_bytes_are_refused(name, tmp_path):
    endless(tmp_path / name)
    with _little_and_soon(), pytest.raises(ReadError, match=f"{name} is damaged"):
        open_table(tmp_path / name)


def test_a_small_file_of_very_many_rows_takes_little_memory(tmp_path):
    endless(tmp_path / "a.h5")
    with _little_and_soon():
        table = open_table(tmp_path / "a.h5")
    assert rows_of(table) == 10**12


@contextlib.contextmanager
def _little_and_soon():
    """At most 32 MiB, and no more than 20 seconds."""

    def ring(*_):
        raise AssertionError("it takes too long")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(20)
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_record_batch_is_not_unpacked_to_be_counted(tmp_path):
    bomb("batch", tmp_path / "a.arrow")
    before = pa.total_allocated_bytes(), pa.default_memory_pool().max_memory()
    table = open_table(tmp_path / "a.arrow")
    assert [piece.rows for piece in table.pieces] == [60_000_000]
    assert pa.default_memory_pool().max_memory() <= max(before) + (1 << 20)


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_record_batches_have_the_rows_that_arrow_says(compression, tmp_path):
    path, lengths = tmp_path / "a.arrow", [100, 0, 1, 899]
    rows = pa.record_batch({"x": np.arange(900.0), "s": pa.array(["a", "b", None] * 300), "n": pa.nulls(900)})
    with pa.ipc.new_file(path, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as file:
        for length in lengths:
            file.write_batch(rows.slice(0, length))
    assert list(batch_lengths(str(path), 4)) == lengths
    assert [piece.rows for piece in open_table(path).pieces] == [100, 1, 899]


def test_record_batches_of_damaged_files_are_refused_or_counted(tmp_path):
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, pa.schema([("x", pa.float64())])) as file:
        file.write_batch(pa.record_batch({"x": np.arange(50.0)}))
    content = path.read_bytes()
    for at in range(len(content)):
        for bit in (1, 64, 128):
            path.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
            with contextlib.suppress(ReadError):
                assert all(0 <= rows < 2**31 for rows in batch_lengths(str(path), 1))


def test_an_npz_that_promises_more_rows_than_it_has_is_refused_when_it_is_opened(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(800))
    with pytest.raises(ReadError, match=r"a\.npz is damaged .* not as many numbers as its header says"):
        open_table(tmp_path / "a.npz")


def test_rows_of_a_part_are_counted_in_little_memory():
    part = Part(3, 0.0, 0.01)
    assert part.count(2, 200_000) == int(part.mask(2, np.arange(200_000)).sum())
    tracemalloc.start()
    counted = part.count(1, 5_000_000)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert counted == pytest.approx(50_000, rel=0.02)
    assert most < 8 << 20  # 40 MB would be a number per row


def test_a_long_header_is_still_a_header(tmp_path):
    names = [f"column_{i}" for i in range(20_000)]
    (tmp_path / "a.csv").write_text(",".join(names) + "\n" + ",".join(["1"] * 20_000) + "\n")
    assert len(read_header(str(tmp_path / "a.csv")).columns) == 20_000


# Files that name other files


@pytest.mark.parametrize("kind", ["external", "virtual", "link of vaex"])
def test_a_column_in_another_file_is_not_read(kind, tmp_path):
    np.arange(4.0).tofile(tmp_path / "secret")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = np.arange(4.0)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        if kind == "external":
            file.create_dataset("x", (4,), "f8", external=[(str(tmp_path / "secret"), 0, h5py.h5f.UNLIMITED)])
        elif kind == "virtual":
            layout = h5py.VirtualLayout((4,), "f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", shape=(4,))
            file.create_virtual_dataset("x", layout)
        else:
            file["table/columns/x/data"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")
    with pytest.raises(ReadError, match=r"a\.h5: the numbers of x lie in another file, which is not read"):
        values(tmp_path / "a.h5")


def test_a_virtual_column_of_the_same_file_is_read(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["part"] = np.arange(3.0)
        layout = h5py.VirtualLayout((3,), "f8")
        layout[:] = h5py.VirtualSource(file["part"])
        file.create_virtual_dataset("x", layout)
    assert values(tmp_path / "a.h5").tolist() == [[0, 1, 2]]


STREAMED = """<?xml version="1.0"?><VOTABLE version="1.3"><RESOURCE><TABLE><FIELD name="x" datatype="double"/>
<DATA><BINARY><STREAM href="{}"/></BINARY></DATA></TABLE></RESOURCE></VOTABLE>"""


@pytest.mark.parametrize("ending", ["vot", "vot.gz"])
def test_rows_of_a_votable_are_fetched_from_nowhere(ending, tmp_path):
    np.arange(4.0).astype(">f8").tofile(tmp_path / "secret")
    for place in (f"file://{tmp_path / 'secret'}", "http://127.0.0.1:9/rows"):
        content = STREAMED.format(place).encode("utf-16" if ending == "vot" else "utf-8")
        (tmp_path / f"a.{ending}").write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
        with pytest.raises(ReadError, match=r"its rows lie elsewhere \(href of a STREAM\), which is not read"):
            values(tmp_path / f"a.{ending}")


def test_a_column_whose_name_was_damaged_is_not_just_gone(tmp_path):
    """Names in the directory of a zip file have no checksum."""
    np.savez(tmp_path / "a.npz", x=np.arange(3.0), x_error=np.ones(3))
    content = (tmp_path / "a.npz").read_bytes()
    at = content.rindex(b"x_error.npy")
    (tmp_path / "a.npz").write_bytes(content[:at] + b"x_error.nqy" + content[at + 11 :])
    with pytest.raises(ReadError, match=r"a\.npz is damaged or not a NumPy file: it holds 'x_error\.nqy'"):
        values(tmp_path / "a.npz")


SHORT = [RuntimeError("can't start new thread"), pa.ArrowMemoryError("malloc of size 9 failed")]


@pytest.mark.parametrize("problem", SHORT, ids=["threads", "Arrow"])
def test_a_file_is_not_blamed_where_memory_is_short(tmp_path, monkeypatch, problem):
    pq.write_table(pa.table({"x": [1.0, 2.0], "x_error": [0.1, 0.1]}), tmp_path / "rows.parquet")

    def fails(*_, **__):
        raise problem

    monkeypatch.setattr(pq, "read_metadata", fails)
    with pytest.raises((MemoryError, OSError), match=r"not enough memory to read|needs more memory than there is, or"):
        xd.open(tmp_path / "rows.parquet", ["x"])


def test_a_file_without_units_beside_one_with_units_is_said(tmp_path):
    from xdeconv.catalog.readers.arrow import with_units

    table = pa.table({"x": [1.0, 2.0], "x_error": [0.1, 0.1], "other": [1.0, 1.0]})
    schema = with_units(table.schema, {"x": "mas", "x_error": "mas", "other": "km"})
    pq.write_table(table.cast(schema), tmp_path / "a.parquet")
    pq.write_table(table, tmp_path / "b.parquet")
    with pytest.warns(UserWarning, match=r"b\.parquet does not say the units of x, x_error, .*unit=\{'x': 'mas'\}"):
        source = xd.open(tmp_path, ["x"])
    assert "b.parquet does not say the units of x, x_error" in source.notes[0]
    assert xd.open(tmp_path, ["x"], unit={"x": "mas", "x_error": "mas"}).notes == ()
    assert xd.open(tmp_path / "b.parquet", ["x"]).notes == ()


WHOLE = [0, 1, 2, 3, 4, 5, 6, 2**53 + 1]
NOT_NUMBERS = {
    "whole": (pa.array(WHOLE), r"a.parquet, row 7 in row group 2: column x has the whole number 9007199254740993"),
    "decimals": (pa.array([Decimal(w) for w in WHOLE]), r"a.parquet, row 7 in row group 2: column x has the whole"),
    "large": (pa.array([Decimal(2**80 + w) for w in WHOLE]), r"a.parquet.*column x has a whole number of more than 64"),
    "text": (pa.array(list("12345678")), r"a.parquet: column x is text, such as '1'"),
    "lists": (pa.array([[1.0]] * 8), r"a.parquet: column x is of type list"),
}


@pytest.mark.parametrize("kind", NOT_NUMBERS)
def test_what_is_not_a_number_is_said_with_its_file_and_row(kind, tmp_path):
    values, said = NOT_NUMBERS[kind]
    pq.write_table(pa.table({"x": values}), tmp_path / "a.parquet", row_group_size=3)
    with pytest.raises(ValueError, match=said):
        xd.open(tmp_path / "a.parquet", ["x"], error={"x": 0.1}).load()


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_whole_numbers_of_text_that_would_change_are_refused(suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    rows = ["1.5,1", "1e300,2", f"{2**60},3", ",4", f"-{2**54},5"]
    pd.DataFrame([row.split(",") for row in rows], columns=["x", "y"]).to_csv(path, index=False)
    kept = values(path)[0]
    np.testing.assert_array_equal(kept, [1.5, 1e300, 2.0**60, np.nan, -(2.0**54)])
    pd.DataFrame([row.split(",") for row in [*rows, f"{2**53 + 1},6"]], columns=["x", "y"]).to_csv(path, index=False)
    with pytest.raises(ValueError, match=rf"a{suffix}, row 5: column x has the whole number 9007199254740993, which"):
        values(path)


def test_decimals_are_numbers(tmp_path):
    table = pa.table({"x": [Decimal("1.25"), None, Decimal("-3.5")], "n": [Decimal(1), None, Decimal(-4)]})
    pq.write_table(table, tmp_path / "a.parquet")
    batch = xd.open(tmp_path / "a.parquet", ["x", "n"], error={"x": 0.1, "n": 0.1}).load().batch
    np.testing.assert_array_equal(batch.x, [[1.25, np.nan, -3.5], [1.0, np.nan, -4.0]])


def test_an_empty_name_is_not_the_folder_one_is_in(tmp_path, monkeypatch):
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "a.parquet")
    monkeypatch.chdir(tmp_path)
    for name in ("", ["a.parquet", ""]):
        with pytest.raises(FileNotFoundError, match="is empty"):
            xd.open(name, ["x"])


def test_fields_of_a_votable_with_the_same_name_are_refused_where_they_are_used(tmp_path):
    fields = "".join(f'<FIELD name="{name}" datatype="double"/>' for name in "xxy")
    rows = "<TR><TD>1</TD><TD>2</TD><TD>3</TD></TR>"
    (tmp_path / "a.vot").write_text(f'<VOTABLE version="1.3"><RESOURCE><TABLE>{fields}<DATA><TABLEDATA>{rows}'
                                    "</TABLEDATA></DATA></TABLE></RESOURCE></VOTABLE>")  # fmt: skip
    with pytest.raises(ValueError, match="2 columns called 'x'"):
        values(tmp_path / "a.vot")
    np.testing.assert_array_equal(values(tmp_path / "a.vot", ["y"]), [[3.0]])


def test_a_column_of_several_numbers_is_said_with_its_file(tmp_path):
    column = fits.Column("x", "2D", array=np.ones((3, 2)))
    fits.BinTableHDU.from_columns([column]).writeto(tmp_path / "a.fits")
    with pytest.raises(ValueError, match=r"a.fits: column x has the format 2D"):
        values(tmp_path / "a.fits")


@pytest.mark.parametrize("card", ["TSCAL1", "TZERO1"])
def test_a_scaled_whole_number_that_a_float_would_change_is_refused(tmp_path, card):
    """2^53 + 1 with TZERO 1 was read as 2^53."""
    raw = np.array([7, 2**53 + 1, 2**53 + 1], ">i8")
    table = fits.BinTableHDU.from_columns([fits.Column("x", "K", array=raw, null=7)])
    table.header[card] = {"TSCAL1": 2.0, "TZERO1": 1.0}[card]
    table.writeto(tmp_path / "a.fits")
    with pytest.raises(ValueError, match=r"a.fits, row 1: column x has the whole number 9007199254740993"):
        values(tmp_path / "a.fits")


@pytest.mark.parametrize("null", ["---", "  ---", None])
def test_nulls_of_ascii_tables_in_fits_are_missing(tmp_path, null):
    """Whole numbers that were null or blank were read as 0."""
    path = tmp_path / "a.fits"
    columns = [fits.Column(name, kind, array=np.arange(1, 4)) for name, kind in (("x", "I6"), ("y", "F6.1"))]
    fits.TableHDU.from_columns(columns).writeto(path)
    whole = bytearray(path.read_bytes())
    with fits.open(path) as file:
        start, width = file[1].fileinfo()["datLoc"], file[1].header["NAXIS1"]
    whole[start + width : start + 2 * width] = ((null or "").ljust(6) + (null or "").ljust(width - 6)).encode()
    if null is not None:
        end = whole.index(b"END     ", whole.index(b"XTENSION"))
        cards = b"".join(f"TNULL{i}  = '{null}'".encode().ljust(80) for i in (1, 2)) + b"END".ljust(80)
        whole[end : end + len(cards)] = cards
    path.write_bytes(bytes(whole))
    np.testing.assert_array_equal(values(path, ["x", "y"]), [[1, np.nan, 3], [1, np.nan, 3]])


def test_floats_of_more_than_64_bits_are_numbers(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3, dtype=np.longdouble))
    np.testing.assert_array_equal(values(tmp_path / "a.npz"), [[0.0, 1.0, 2.0]])


# Several tables in a file of FITS


@pytest.fixture
def several(tmp_path):
    """Two files of two tables each, and an image between them; the second table is what is wanted."""
    for file in ("a", "b"):
        first = fits.BinTableHDU(Table({"id": np.arange(2)}), name="LIST")
        image = fits.ImageHDU(np.zeros((3, 3)))
        second = fits.BinTableHDU(Table({"x": np.arange(3.0), "y": np.ones(3)}), name="STARS")
        fits.HDUList([fits.PrimaryHDU(), first, image, second]).writeto(tmp_path / f"{file}.fits")
    return tmp_path


def test_a_table_of_several_is_chosen_by_its_name_or_number(several):
    for name in ("a.fits[STARS]", "a.fits[stars]", "a.fits[3]"):
        assert values(str(several / name), "xy").tolist() == [[0, 1, 2], [1, 1, 1]]
    assert values(str(several / "*.fits[STARS]")).shape == (1, 6)
    assert open_table(str(several / "a.fits[LIST]")).columns == ("id",)
    packed = several / "c.fits.gz"
    packed.write_bytes(gzip.compress((several / "a.fits").read_bytes()))
    assert values(f"{packed}[STARS]").tolist() == [[0, 1, 2]]


def test_a_table_that_is_not_there_is_said_with_those_that_are(several):
    with pytest.raises(ReadError, match=r"a\.fits has no table GALAXIES: its tables are LIST, STARS"):
        open_table(str(several / "a.fits[GALAXIES]"))
    with pytest.raises(ValueError, match="the same table must be chosen of all files"):
        open_table([str(several / "a.fits[STARS]"), str(several / "b.fits")])


def test_the_first_of_several_tables_is_not_read_without_a_word(several):
    with pytest.raises(ValueError, match=r"several tables, and the first, LIST, is read: a\.fits\[STARS\] is the next"):
        values(several / "a.fits")
    with pytest.raises(ValueError, match=r"a\.fits and 1 more has several tables"):
        values(str(several / "*.fits"))
    assert "several tables" in xd.open(several / "a.fits", ["id"], error={"id": None}).notes[0]
    assert not open_table(str(several / "a.fits[STARS]")).notes


def test_a_text_table_behind_another_is_read(tmp_path):
    first = fits.TableHDU.from_columns([fits.Column("x", "F8.2", array=np.zeros(2))], name="A")
    second = fits.TableHDU.from_columns([fits.Column("x", "F8.2", array=np.full(3, 2.5))], name="B")
    fits.HDUList([fits.PrimaryHDU(), first, second]).writeto(tmp_path / "a.fits")
    assert values(str(tmp_path / "a.fits[B]"), "x").tolist() == [[2.5] * 3]
