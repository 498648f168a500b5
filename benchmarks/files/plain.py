"""Plain readers: the columns that are needed, all of them in memory at the end, as users of each library read them.

There are three yardsticks. What a library gives by itself is a table of Arrow's for Parquet, Arrow IPC and CSV, and
NumPy arrays for FITS, HDF5 and .npy. :func:`as_arrays` makes NumPy arrays of the former too, with NaN for what is
missing, as anybody needs who computes with them. By itself an Arrow IPC file is copied to memory and nothing is looked
at, and so are the arrays of HDF5 and .npy. :func:`summed` adds up each column, so that every value was looked at once,
as whoever checks rows must: of formats whose bytes are only copied it is the fair yardstick. No file is memory-mapped
but FITS, whose columns are then copied.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_parquet(path: Path, columns: list[str]) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    return pa.concat_tables([pq.ParquetFile(file).read(columns=columns) for file in files])


def read_arrow(path: Path, columns: list[str]) -> Any:
    import pyarrow.feather

    return pyarrow.feather.read_table(path, columns=columns, memory_map=False)


def read_csv(path: Path, columns: list[str]) -> Any:
    import pyarrow.csv

    return pyarrow.csv.read_csv(path, convert_options=pyarrow.csv.ConvertOptions(include_columns=columns))


def read_fits(path: Path, columns: list[str]) -> Any:
    """Every column as an array of the machine's own byte order."""
    from astropy.io import fits

    with fits.open(path, memmap=True) as file:
        table = file[1].data
        return {name: table[name].astype(table[name].dtype.newbyteorder("=")) for name in columns}


def read_hdf5(path: Path, columns: list[str]) -> Any:
    import h5py

    with h5py.File(path, "r") as file:
        return {name: file[name][:] for name in columns}


def read_npy(path: Path, columns: list[str]) -> Any:
    """Every column as an array of its own."""
    import numpy as np

    table = np.load(path)
    return {name: np.ascontiguousarray(table[name]) for name in columns}


def as_arrays(table: Any) -> Any:
    """The columns as NumPy arrays with NaN for what is missing, which some readers give at once."""
    return table if isinstance(table, dict) else {name: table.column(name).to_numpy() for name in table.column_names}


def summed(table: Any) -> float:
    """The sum of all columns, for which each value is looked at."""
    import numpy as np
    import pyarrow.compute as pc

    if isinstance(table, dict):
        return sum(float(np.add.reduce(column, dtype=np.float64)) for column in table.values())
    return sum(float(pc.sum(table.column(name)).as_py() or 0) for name in table.column_names)
