"""The same rows in each format, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

COLUMNS = ["ra", "dec", "parallax", "pmra", "pmdec", "bp_rp", "phot_g_mean_mag"]
SMALL_FILES = 32


def parquet(folder: Path, rows: int) -> Path:
    from xdeconv.catalog.writers import write_blocks
    from xdeconv.simulate._gaia import gaia_tables

    path = folder / f"sky-{rows}.parquet"
    if not path.exists():
        write_blocks(path, (b for table in gaia_tables(rows, 1) for b in table.to_batches()))
    return path


def needed(path: Path) -> list[str]:
    from xdeconv.catalog._open import open_source

    return list(open_source(str(path), COLUMNS).recipe.columns)


def directory(path: Path) -> Path:
    """Many small Parquet files."""
    import pyarrow.parquet as pq

    folder = path.with_suffix(".many")
    if not folder.exists():
        folder.mkdir()
        table = pq.read_table(path, columns=needed(path))
        step = -(-table.num_rows // SMALL_FILES)
        for i in range(SMALL_FILES):
            pq.write_table(table.slice(i * step, step), folder / f"part-{i:03d}.parquet", compression="zstd")
    return folder


def hats(path: Path) -> Path:
    """The same files in the layout of a HATS catalogue."""
    folder = path.with_suffix(".hats")
    if not folder.exists():
        target = folder / "dataset" / "Norder=2" / "Dir=0"
        target.mkdir(parents=True)
        for i, file in enumerate(sorted(directory(path).iterdir())):
            shutil.copy(file, target / f"Npix={i}.parquet")
        (folder / "properties").write_text("catalog_name = sky\n")
    return folder


def other(path: Path, suffix: str) -> Path:
    """The needed columns as FITS, CSV, Arrow, HDF5 or .npy."""
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet as pq

    target = path.with_suffix(suffix)
    if target.exists():
        return target
    table = pq.read_table(path, columns=needed(path))
    if suffix == ".csv":
        pyarrow.csv.write_csv(table, target)
    elif suffix == ".arrow":
        pyarrow.feather.write_feather(table, target, compression="uncompressed")
    else:
        write_arrays({name: table.column(name).to_numpy() for name in table.column_names}, target)
    return target


def write_arrays(arrays: dict, target: Path) -> None:
    """Columns of arrays as FITS, HDF5 (one dataset each) or .npy (a structured array)."""
    import h5py
    import numpy as np
    from astropy.table import Table

    if target.suffix == ".npy":
        np.save(target, Table(arrays).as_array())
    elif target.suffix == ".hdf5":
        with h5py.File(target, "w") as file:
            for name, values in arrays.items():
                file[name] = values
    else:
        Table(arrays).write(target)
