"""Real and simulated tables that several benchmarks fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch

import xdeconv as xd
from xdeconv import Batch, Mixture
from xdeconv.simulate import _gaia as simulate

PAPER = ("ra", "dec", "parallax", "pmra", "pmdec", "bp_rp", "phot_g_mean_mag")
ASTROMETRY = PAPER[:5]


@dataclass(frozen=True)
class Split:
    """Training rows and held-out rows, in the user's units, float64 on the CPU."""

    train: Batch
    held_out: Batch
    stream: Any = None  # the training rows as a source that is read again in every pass, where a table has one


def gaia_fields(path: Path, right_units: bool = False) -> Split:
    """The paper's seven columns with correlations; position errors in mas taken as degrees unless ``right_units``.

    Colour and magnitude have variance 1e-2. The first 80 % of the rows train.
    """
    table = _columns(path)
    X = np.stack([table[name] for name in PAPER], axis=1)
    error = {name: table[f"{name}_error"].copy() for name in ASTROMETRY}
    if right_units:
        error["ra"] = error["ra"] / 3.6e6 / np.cos(np.radians(table["dec"]))
        error["dec"] = error["dec"] / 3.6e6
    S = np.zeros((len(X), 7, 7))
    for a, first in enumerate(ASTROMETRY):
        S[:, a, a] = error[first] ** 2
        for b, second in enumerate(ASTROMETRY[:a]):
            S[:, a, b] = S[:, b, a] = table[f"{second}_{first}_corr"] * error[first] * error[second]
    S[:, 5, 5] = S[:, 6, 6] = 1e-2
    split = _split(X, np.nan_to_num(S))
    return split if right_units else replace(split, stream=_fields_stream(path, split.train.n))


def _fields_stream(path: Path, rows: int) -> xd.CatalogSource:
    """The first rows in a Parquet file of their own, with the same noise, never held in memory."""
    import pyarrow.parquet as pq

    train = Path(mkdtemp(prefix="xdeconv-fields-")) / "train.parquet"
    pq.write_table(pq.read_table(path).slice(0, rows), train)
    return xd.open(
        train, PAPER, error=dict.fromkeys(PAPER[5:], 0.1), unit={"ra_error": "deg", "dec_error": "deg"}, cos_dec=False,
        memory=False,
    )  # fmt: skip


def tycho(path: Path) -> Split:
    """Tycho-2: positions, proper motions and two magnitudes with diagonal noise; positions in degrees."""
    table = _columns(path)
    names = ("ra", "dec", "pmra", "pmdec", "bt_mag", "vt_mag")
    X = np.stack([table[name] for name in names], axis=1)
    error = np.stack([table[f"{name}_error"] for name in names], axis=1)
    error[:, 0] /= 3.6e6 * np.cos(np.radians(table["dec"]))
    error[:, 1] /= 3.6e6
    X[~(error > 0)] = np.nan
    return _split(X, np.nan_to_num(error) ** 2)


def simulated(rows: int, seed: int = 0) -> Split:
    """Rows of the simulated sky."""
    batch = simulate.gaia(rows, seed=seed).batch.to(dtype=torch.float64)
    cut = int(0.8 * rows)
    return Split(batch.rows(slice(0, cut)), batch.rows(slice(cut, rows)))


def separated_truth(k: int = 20, seed: int = 0) -> Mixture:
    """Components in two dimensions that hardly overlap, of unequal weight, size and shape."""
    rng = np.random.default_rng(seed)
    places = np.stack(np.meshgrid(np.arange(5), np.arange(5)), -1).reshape(-1, 2)[rng.permutation(25)[:k]]
    A = rng.normal(size=(k, 2, 2))
    V = 0.3 * (A @ A.transpose(0, 2, 1) + 0.3 * np.eye(2)) * rng.lognormal(0, 0.5, size=(k, 1, 1))
    return Mixture(rng.dirichlet(np.full(k, 4.0)), 12.0 * places + rng.normal(size=(k, 2)), V)


def _split(X: np.ndarray, noise: np.ndarray) -> Split:
    cut = int(0.8 * len(X))
    return Split(Batch.from_arrays(X[:cut], noise[:cut]), Batch.from_arrays(X[cut:], noise[cut:]))


def _columns(path: Path) -> dict[str, np.ndarray]:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    return {name: table[name].to_numpy().astype(np.float64) for name in table.column_names if name != "source_id"}
