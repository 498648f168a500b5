"""What the folder of a reader of the pages holds: small files under the names that the pages use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import xdeconv as xd

ROWS = 1500
KINEMATIC = (["parallax", "pmra", "pmdec"], ["mas", "mas/yr", "mas/yr"])


def fill(folder: Path) -> None:
    """Write all of it."""
    stars = xd.simulate.gaia(ROWS, seed=3).to_table()
    (folder / "gaia").mkdir()
    for number, first in enumerate(range(0, ROWS, 500)):
        pq.write_table(stars.slice(first, 500), folder / "gaia" / f"part-{number}.parquet")
    with pa.CompressedOutputStream(str(folder / "gaia" / "part.csv.gz"), "gzip") as file:
        pyarrow.csv.write_csv(stars.slice(0, 500), file)
    pq.write_table(stars, folder / "stars.parquet")
    pq.write_table(xd.simulate.gaia(400, seed=4).to_table(), folder / "held-out.parquet")
    _photometry(folder)
    _kinematics(folder)


def _photometry(folder: Path) -> None:
    stars = xd.Mixture([1.0], [[19.0, 0.6]], [np.diag([1.0, 0.2])], labels=["g", "g_r"], units=["mag", "mag"])
    quasars = xd.Mixture([1.0], [[20.0, 0.1]], [np.diag([0.5, 0.05])], labels=["g", "g_r"], units=["mag", "mag"])
    stars.save(folder / "stars.safetensors")
    quasars.save(folder / "quasars.safetensors")
    values = np.concatenate([stars.sample(200, seed=0), quasars.sample(100, seed=1)])
    error = np.full(len(values), 0.05)
    table = {"g": values[:, 0], "g_r": values[:, 1], "g_error": error, "g_r_error": error}
    pq.write_table(pa.table(table), folder / "sky.parquet")


def _kinematics(folder: Path) -> None:
    labels, units = KINEMATIC
    xd.Mixture([1.0], [[1.0, -2.0, -2.0]], [np.diag([0.1, 0.2, 0.2])], labels, units).save(
        folder / "cluster.safetensors"
    )
    xd.Mixture([1.0], [[1.0, 0.0, -1.0]], [np.diag([1.0, 50.0, 50.0])], labels, units).save(
        folder / "field.safetensors"
    )
