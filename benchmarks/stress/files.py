"""A sound file of every kind that xdeconv reads: rows of x and y with errors in all formats, models, a store."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.stress.calls import called

ROWS = 64
COLUMNS = ("x", "y")
SUFFIXES = (
    "parquet",
    "arrow",
    "csv",
    "csv.gz",
    "ecsv",
    "tsv",
    "fits",
    "fits.gz",
    "vot",
    "vot.gz",
    "hdf5",
    "npy",
    "npz",
)
CHECKED = ("csv.gz", "fits.gz", "vot.gz", "npz", "manifest", "shard", "model", "checkpoint", "results")
"""Kinds of files with a checksum: a damage that is not noticed is a defect."""


OURS = {"MODEL": "damaged.safetensors", "CHECKPOINT": "fit.checkpoint", "RESULTS": "results.jsonl"}
FIT = ("fit", "rows.parquet", "-c", "x,y", "-k", "2", "--moves", "none", "--checkpoint", "CHECKPOINT")
SELECT = ("select", "rows.parquet", "-c", "x,y", "-k", "1,2", "--results", "RESULTS", "--epochs", "2")
MAKING = ((*FIT, "--epochs", "2", "-o", "MODEL"), SELECT)


@dataclass(frozen=True)
class Sound:
    """A sound file of a kind, and what commands are given to read it: itself, or the folder that it is in."""

    kind: str
    path: Path
    read: Path


def rows(seed: int = 0) -> dict[str, np.ndarray]:
    """Values and errors that every format can hold."""
    rng = np.random.default_rng(seed)
    found: dict[str, np.ndarray] = {"source_id": np.arange(ROWS)}
    for name in COLUMNS:
        found[name] = rng.normal(size=ROWS)
        found[f"{name}_error"] = rng.uniform(0.1, 0.3, size=ROWS)
    return found


def write(path: Path, columns: dict[str, np.ndarray]) -> None:
    """The rows in the format that a name says."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from astropy.table import Table

    kind = next(suffix for suffix in sorted(SUFFIXES, key=len, reverse=True) if path.name.endswith("." + suffix))
    if kind == "parquet":
        pq.write_table(pa.table(columns), path)
    elif kind == "arrow":
        with pa.ipc.new_file(str(path), pa.table(columns).schema) as writer:
            writer.write_table(pa.table(columns))
    elif kind == "npz":
        np.savez_compressed(path, **columns)
    elif kind == "npy":
        np.save(path, np.rec.fromarrays(list(columns.values()), names=list(columns)))
    elif kind.endswith(".gz"):
        plain = path.with_name("plain." + kind.removesuffix(".gz"))
        write(plain, columns)
        path.write_bytes(gzip.compress(plain.read_bytes()))
    else:
        formats = {"csv": "ascii.csv", "ecsv": "ascii.ecsv", "tsv": "ascii.tab", "vot": "votable", "hdf5": "hdf5"}
        more: dict[str, Any] = {"path": "rows", "serialize_meta": True} if kind == "hdf5" else {}
        Table(columns).write(path, format=formats.get(kind, kind), overwrite=True, **more)


def make(folder: Path) -> list[Sound]:
    """All kinds, under a folder."""
    from xdeconv.catalog.store import prepare

    columns = rows()
    found = []
    for suffix in SUFFIXES:
        path = folder / f"rows.{suffix}"
        write(path, columns)
        found.append(Sound(suffix, path, path))
    store = prepare(folder / "rows.parquet", folder / "store")
    shard = next(p for p in store.iterdir() if p.name.startswith("shard"))
    found += [Sound("manifest", store / "manifest.json", store), Sound("shard", shard, store)]
    made = {name: folder / file for name, file in OURS.items()}
    for words in MAKING:
        code, err, _ = called(
            [str(made.get(word, folder / word if word == "rows.parquet" else word)) for word in words]
        )
        assert code == 0, err
    shutil.copy(made["MODEL"], folder / "sound.safetensors")
    config = folder / "config.toml"
    config.write_text('columns = ["x", "y"]\ncomponents = 2\nepochs = 2\n[fit]\nmoves = "none"\nvalidation = 0.0\n')
    kinds = {"model": made["MODEL"], "checkpoint": made["CHECKPOINT"], "results": made["RESULTS"], "config": config}
    return [*found, *(Sound(kind, path, path) for kind, path in kinds.items())]
