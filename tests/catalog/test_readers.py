"""Readers: the same rows whatever the format, units, nulls, and damaged files."""

import os
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.table import MaskedColumn, Table

from catalogues import FEATURES, arrow_table, gaia_like
from xdeconv.catalog._open import open as open_catalog
from xdeconv.catalog.readers import ReadError, open_table, rows_of
from xdeconv.catalog.readers.text import read_header
from xdeconv.rows.units import tidy

COLUMNS = gaia_like(400)
TABLE = arrow_table(COLUMNS)
UNITS = {"ra": "deg", "dec": "deg", "ra_error": "mas", "parallax": "mas", "pmra": "mas/yr"}


def astropy_table() -> Table:
    table = Table({name: MaskedColumn(v, mask=np.isnan(v)) for name, v in COLUMNS.items()})
    for name, unit in UNITS.items():
        table[name].unit = unit
    return table


def write_parquet(folder: Path) -> Path:
    pq.write_table(TABLE, folder / "rows.parquet", row_group_size=150)
    return folder / "rows.parquet"


def write_directory(folder: Path) -> Path:
    for i, start in enumerate(range(0, 400, 40)):
        pq.write_table(TABLE.slice(start, 40), folder / f"part{i}.parquet")
    return folder


def write_hats(folder: Path) -> Path:
    """Partitions as HATS lays them out, with its side files."""
    for i, start in enumerate(range(0, 400, 200)):
        leaf = folder / "dataset" / "Norder=1" / "Dir=0" / f"Npix={i + 8}.parquet"
        leaf.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(TABLE.slice(start, 200), leaf, compression="zstd", use_dictionary=False,
                       column_encoding=dict.fromkeys(FEATURES, "BYTE_STREAM_SPLIT"))  # fmt: skip
    pq.write_table(TABLE.slice(0, 5), folder / "dataset" / "data_thumbnail.parquet")
    pq.write_metadata(TABLE.schema, folder / "dataset" / "_common_metadata")
    (folder / "hats.properties").write_text("obs_collection=test\n")
    return folder


def write_arrow(folder: Path) -> Path:
    with pa.ipc.new_file(str(folder / "rows.arrow"), TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=90)
    return folder / "rows.arrow"


def write_gaia_csv(folder: Path) -> Path:
    """Gaia's bulk dialect: ECSV with commas and the word null, gzipped."""
    import gzip

    lines = ["# %ECSV 1.0", "# ---", "# delimiter: ','", "# datatype:"]
    for name, v in COLUMNS.items():
        lines += ["# -", f"#   name: {name}", f"#   datatype: {v.dtype}", "#   description: 'a, unit: of none'"]
        lines += [f"#   unit: {UNITS[name]}"] if name in UNITS else []
    lines += ["# meta: {name: nothing}", ",".join(COLUMNS)]
    for row in zip(*COLUMNS.values(), strict=True):
        lines.append(",".join("null" if np.isnan(v) else repr(v.item()) for v in row))
    with gzip.open(folder / "GaiaSource.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    return folder / "GaiaSource.csv.gz"


def write_plain_csv(folder: Path) -> Path:
    pd.DataFrame(COLUMNS).to_csv(folder / "rows.csv", index=False, float_format="%.17g")
    return folder / "rows.csv"


def write_ecsv(folder: Path) -> Path:
    astropy_table().write(folder / "rows.ecsv", format="ascii.ecsv")
    return folder / "rows.ecsv"


def write_fits(folder: Path) -> Path:
    astropy_table().write(folder / "rows.fits")
    return folder / "rows.fits"


def write_votable(folder: Path) -> Path:
    astropy_table().write(folder / "rows.vot", format="votable")
    return folder / "rows.vot"


def write_vaex(folder: Path) -> Path:
    with h5py.File(folder / "rows.hdf5", "w") as file:
        for name, v in COLUMNS.items():
            group = file.create_group(f"table/columns/{name}")
            group["data"] = v
            if name in UNITS:
                group.attrs["unit"] = UNITS[name]
    return folder / "rows.hdf5"


def write_flat_hdf5(folder: Path) -> Path:
    with h5py.File(folder / "rows.h5", "w") as file:
        for name, v in COLUMNS.items():
            file[name] = v.astype(v.dtype.newbyteorder(">"))
    return folder / "rows.h5"


def write_astropy_hdf5(folder: Path) -> Path:
    Table(COLUMNS).write(folder / "compound.hdf5", path="rows", format="hdf5")
    return folder / "compound.hdf5"


def write_npz(folder: Path) -> Path:
    np.savez(folder / "rows.npz", **COLUMNS)
    return folder / "rows.npz"


def write_npy(folder: Path) -> Path:
    kinds = [(name, v.dtype) for name, v in COLUMNS.items()]
    np.save(folder / "rows.npy", np.rec.fromarrays(list(COLUMNS.values()), dtype=kinds))
    return folder / "rows.npy"


WRITERS = [write_parquet, write_directory, write_hats, write_arrow, write_gaia_csv, write_plain_csv, write_ecsv,
           write_fits, write_votable, write_vaex, write_flat_hdf5, write_astropy_hdf5, write_npz,
           write_npy]  # fmt: skip
OBJECTS = {
    "pyarrow": lambda: TABLE,
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "polars": lambda: pl.from_arrow(TABLE),
    "astropy": astropy_table,
    "quantities": lambda: Table({n: v * 1.0 if n == "ruwe" else v for n, v in COLUMNS.items()}),
    "dict": lambda: COLUMNS,
    "structured": lambda: np.rec.fromarrays(list(COLUMNS.values()), names=list(COLUMNS)),
}


def whole(data):
    source = open_catalog(data, FEATURES, memory=False)
    return source, source.load().batch


EXPECTED = whole(TABLE)[1]


def same(batch):
    assert np.allclose(batch.x, EXPECTED.x, rtol=1e-13, atol=0, equal_nan=True)
    assert np.allclose(batch.noise, EXPECTED.noise, rtol=1e-12, atol=0)
    assert batch.missing


@pytest.mark.parametrize("write", WRITERS, ids=lambda f: f.__name__.removeprefix("write_"))
def test_every_file_gives_the_same_batches(write, tmp_path):
    source, batch = whole(write(tmp_path))
    same(batch)
    assert source.rows == 400


@pytest.mark.parametrize("name", OBJECTS)
def test_every_table_in_memory_gives_the_same_batches(name):
    same(whole(OBJECTS[name]())[1])


@pytest.mark.parametrize("write", [write_gaia_csv, write_ecsv, write_fits, write_votable, write_vaex])
def test_units_come_from_the_file(write, tmp_path):
    table = open_table(write(tmp_path))
    assert {name: tidy(table.units[name]) for name in UNITS} == UNITS
    assert set(table.columns) == set(COLUMNS)


def test_globs_are_read_in_natural_order(tmp_path):
    write_directory(tmp_path)
    (tmp_path / "part10.parquet").write_bytes((tmp_path / "part9.parquet").read_bytes())
    table = open_table(str(tmp_path / "part*.parquet"))
    assert [Path(piece.file).stem for piece in table.pieces][-2:] == ["part9", "part10"]
    assert rows_of(table) == 440


def test_a_colon_in_the_name_of_a_file_makes_no_uri_of_it(tmp_path, monkeypatch):
    """A Parquet file called run:1.parquet was said to be damaged: pyarrow looked for a file system called run."""
    monkeypatch.chdir(tmp_path)
    write_parquet(tmp_path)
    for name in ("run:1.parquet", "s3:x.parquet"):
        (tmp_path / name).write_bytes((tmp_path / "rows.parquet").read_bytes())
        table = open_table(name)
        assert rows_of(table) == sum(batch.num_rows for piece in table.pieces for batch in table.read(piece, ["ra"]))


def test_identifiers_stay_whole(tmp_path):
    for write in (write_gaia_csv, write_parquet, write_fits, write_vaex):
        table = open_table(write(tmp_path))
        found = np.concatenate(
            [b.column("source_id").to_numpy() for p in table.pieces for b in table.read(p, ["source_id"])]
        )
        assert found.dtype.kind == "i"
        assert (found == COLUMNS["source_id"]).all()


def test_unnamed_columns_of_an_array():
    source = open_catalog(np.arange(12.0).reshape(4, 3), error=dict.fromkeys(["x0", "x1", "x2"]))
    assert source.labels == ("x0", "x1", "x2")
    assert open_catalog(np.arange(12.0).reshape(4, 3), ["u", "v", "w"], error=dict.fromkeys("uvw")).labels == (
        "u",
        "v",
        "w",
    )
    with pytest.raises(ValueError, match="name each of its columns"):
        open_catalog(np.arange(12.0).reshape(4, 3), ["u", "v"])


def test_a_csv_whose_first_rows_are_whole_numbers_or_empty(tmp_path):
    rows = ["x,y"] + ["1,"] * 300_000 + ["2.5,3.5"]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    batch = open_catalog(tmp_path / "rows.csv", ["x", "y"], error={"x": None, "y": None}).load().batch
    assert batch.x[:, -1].tolist() == [2.5, 3.5]
    assert batch.x[1, 0].isnan()


@pytest.mark.filterwarnings("ignore:File may have been truncated")
@pytest.mark.parametrize("write", WRITERS, ids=lambda f: f.__name__.removeprefix("write_"))
def test_damaged_files_are_named(write, tmp_path):
    path = write(tmp_path)
    path = next(iter(sorted(path.rglob("*[0-9].parquet")))) if path.is_dir() else path
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 3])
    if path.suffix in (".csv", ".ecsv"):  # text that ends early is shorter, unless it ends within a row
        path.write_bytes(content[: len(content) // 3] + b"\n1,2\n")
    with pytest.raises((ReadError, ValueError), match=path.name):
        whole(tmp_path if path.suffix == ".parquet" and path.name != "rows.parquet" else path)


def test_a_damaged_row_group_is_named_or_skipped(tmp_path):
    path = write_parquet(tmp_path)
    offset = pq.ParquetFile(path).metadata.row_group(1).column(2).data_page_offset
    content = bytearray(path.read_bytes())
    content[offset : offset + 400] = b"\xff" * 400
    path.write_bytes(bytes(content))
    with pytest.raises(ReadError, match="row group 1"):
        whole(path)
    source = open_catalog(path, FEATURES, skip_bad_files=True, memory=False)
    assert source.load().rows == 250
    assert source.notes == ("1 damaged files or parts were skipped",)


def test_damaged_files_can_be_skipped(tmp_path):
    write_directory(tmp_path)
    (tmp_path / "part3.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(ReadError, match=r"part3\.parquet"):
        open_catalog(tmp_path, FEATURES)
    source = open_catalog(tmp_path, FEATURES, skip_bad_files=True)
    assert source.load().rows == 360
    assert source.notes == ("1 damaged files or parts were skipped",)


def test_damaged_files_of_other_formats_can_be_skipped(tmp_path):
    write_arrow(tmp_path)
    (tmp_path / "zzz.arrow").write_bytes(b"nonsense")
    with pytest.raises(ReadError, match=r"zzz\.arrow"):
        open_catalog(tmp_path, FEATURES)
    source = open_catalog(tmp_path, FEATURES, skip_bad_files=True)
    assert source.load().rows == 400
    assert source.notes == ("1 damaged files or parts were skipped",)


def test_nothing_to_read():
    with pytest.raises(FileNotFoundError, match="no readable file"):
        open_table("nowhere/*.parquet")
    with pytest.raises(ValueError, match="cannot read a table from"):
        open_table(3)


def test_unknown_suffix(tmp_path):
    (tmp_path / "rows.xyz").write_text("x\n1\n")
    with pytest.raises(ValueError, match=r"rows.xyz: cannot tell the format"):
        open_table(tmp_path / "rows.xyz")


def test_files_of_different_formats(tmp_path):
    for name in ("a.csv", "b.parquet", "c.csv"):
        (tmp_path / name).write_text("x\n1\n")
    with pytest.raises(ValueError, match=r"a\.csv and .*b\.parquet are of different formats"):
        open_table([tmp_path / name for name in ("a.csv", "b.parquet", "c.csv")])


def test_header_of_an_ecsv_of_astropy(tmp_path):
    header = read_header(str(write_ecsv(tmp_path)))
    assert header.delimiter == " "
    assert header.types["source_id"] == "int64"
    assert header.columns == tuple(COLUMNS)


VIZIER = """#
#   VizieR Astronomical Server vizier.cds.unistra.fr
#INFO\t-out.max=unlimited
Plx\te_Plx\tBP-RP\tRA_ICRS\tDE_ICRS
mas\tmas\tmag\tdeg\tdeg
-------\t------\t-----\t----\t----
 0.5000\t0.1000\t  1.2\t10.0\t20.0
       \t0.1000\t  0.2\t10.1\t20.1
 0.7000\t0.1000\t     \t10.2\t20.2

"""


def test_a_table_as_vizier_writes_it(tmp_path):
    (tmp_path / "asu.tsv").write_text(VIZIER)
    rows = open_catalog(tmp_path / "asu.tsv", columns=["Plx"]).load().batch
    assert np.array_equal(rows.x, [[0.5, np.nan, 0.7]], equal_nan=True)
    assert open_catalog(tmp_path / "asu.tsv", columns=["Plx"], where="`BP-RP` > 1").rows == 1
    offsets = open_catalog(
        tmp_path / "asu.tsv", ["xi", "eta"], derive="tangent:10,20", error={"RA_ICRS": 1, "DE_ICRS": 1}
    )
    assert np.allclose(offsets.load().batch.x[1], [0, 0.1, 0.2], atol=2e-4)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("empty", ["", " "])
def test_empty_lines_above_the_names_are_skipped(tmp_path, empty, end):
    """VizieR's pages write one below the words of the query, above #RESOURCE; the names were taken from it."""
    first, names, rest = VIZIER.partition("Plx\te_Plx")
    text = f"{first}#\n{empty}\n#RESOURCE=yCat_1355\n#Column\tPlx\t(F9.4)\tParallax\n{empty}\n{names}{rest}"
    (tmp_path / "asu.tsv").write_bytes(text.replace("\n", end).encode())
    source = open_catalog(tmp_path / "asu.tsv", columns=["Plx", "RA_ICRS"], error={"RA_ICRS": None})
    rows = source.load().batch
    assert source.units == ("mas", "deg")
    assert np.array_equal(rows.x, [[0.5, np.nan, 0.7], [10.0, 10.1, 10.2]], equal_nan=True)


def test_an_empty_line_below_names_in_a_comment_is_skipped(tmp_path):
    (tmp_path / "a.txt").write_text("\n# x y\n\n1.0 2.0\n3.0 4.0\n")
    rows = open_catalog(tmp_path / "a.txt", columns=["y"], error={"y": 0.1}).load().batch
    assert np.array_equal(rows.x, [[2.0, 4.0]])


def test_comments_between_and_after_rows_are_no_rows(tmp_path):
    """A file of VizieR ends with #END#; what begins a second table is refused."""
    path = tmp_path / "asu.tsv"
    path.write_text(VIZIER.replace(" 0.7000", "# a remark\n 0.7000") + "#END#\n")
    assert np.array_equal(open_catalog(path, columns=["Plx"]).load().batch.x, [[0.5, np.nan, 0.7]], equal_nan=True)
    path.write_text(VIZIER + "#Table\tI_239_other:\n" + VIZIER)
    with pytest.raises(ReadError, match=r"asu\.tsv cannot be read .*got \d: #Table"):
        open_catalog(path, columns=["Plx"]).load()


@pytest.mark.parametrize("write", ["vaex", "flat", "compound"])
def test_a_piece_of_hdf5_comes_in_blocks(write, tmp_path, monkeypatch):
    writers = {"vaex": write_vaex, "flat": write_flat_hdf5, "compound": write_astropy_hdf5}
    monkeypatch.setattr("xdeconv.catalog.readers.hdf5.BLOCK_ROWS", 30)
    monkeypatch.setattr("xdeconv.catalog.readers.hdf5.PIECE_ROWS", 120)
    table = open_table(writers[write](tmp_path))
    blocks = [block for piece in table.pieces for block in table.read(piece, ["ra"])]
    assert [piece.rows for piece in table.pieces] == [120, 120, 120, 40]
    assert [block.num_rows for block in blocks] == [30] * 13 + [10]
    np.testing.assert_array_equal(np.concatenate([block.column(0).to_numpy() for block in blocks]), COLUMNS["ra"])


# Names


def test_a_file_that_is_named_twice_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("x\n1\n")
    for names in (["a.csv", "./a.csv"], ["a.csv", "*.csv"], [".", "b.csv"]):
        with pytest.raises(ValueError, match=r"[ab]\.csv is named twice"):
            open_table(names)
    assert len(open_table(["a.csv", "b.csv"]).pieces) == 2


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_file_and_a_link_to_it_are_one(link, tmp_path):
    """Its rows counted twice."""
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    link(tmp_path / "a.csv", tmp_path / "b.csv")
    for given in (str(tmp_path / "*.csv"), str(tmp_path), [tmp_path / "b.csv", tmp_path / "a.csv"]):
        with pytest.raises(ValueError, match=r"[ab]\.csv is .*[ab]\.csv under another name"):
            open_table(given)
    (tmp_path / "b.csv").unlink()
    (tmp_path / "b.csv").write_text("x,y\n1,2\n")
    assert len(open_table(str(tmp_path)).pieces) == 2


def test_the_users_folder_and_file_urls_are_paths(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "a b.csv").write_text("x\n1\n")
    for name in ("~/a b.csv", "~/*.csv", (tmp_path / "a b.csv").as_uri()):
        assert len(open_table(name).pieces) == 1


@pytest.mark.parametrize("name", ["s3://bucket/a.parquet", "https://host/a.fits", "gs://bucket/*.parquet"])
def test_what_is_not_on_this_machine_is_said_to_be_that(name):
    with pytest.raises(ValueError, match="is not on this machine: copy it here"):
        open_table(name)


# Text


PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@pytest.mark.parametrize("ending", PACKED)
def test_compressed_text(ending, tmp_path):
    pytest.importorskip("pyarrow")
    text = "x,x_error,note\n" + "".join(f'{i},0.1,"a, ""{i}"""\n' for i in range(50_000))
    path = tmp_path / f"a.csv{ending}"
    with pa.CompressedOutputStream(str(path), PACKED[ending]) as file:
        file.write(text.encode())
    source = open_catalog(path, ["x"], memory=False)
    assert np.array_equal(source.load().batch.x[0], np.arange(50_000.0))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ReadError, match=r"a\.csv"):
        open_catalog(path, ["x"], memory=False).load()


def test_delimiters_within_quoted_names_are_none(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('"name, first; last",x,"x, error"\n"Smith, J",1,0.5\n"O""Neill",2,0.5\n')
    assert open_table(path).columns == ("name, first; last", "x", "x, error")
    source = open_catalog(path, ["x"], error={"x": "x, error"})
    assert source.load().batch.x.tolist() == [[1, 2]]
