"""Fits that tests run in one process and, as a program, in several: the same rows, the same settings.

RANK=r WORLD_SIZE=w MASTER_ADDR=... MASTER_PORT=... python ranks.py ROWS.parquet FOLDER
"""

import sys
from pathlib import Path

import numpy as np
import torch

import xdeconv as xd
from xdeconv.system.ranks import process_group, rank

COLUMNS = ("parallax", "pmra", "pmdec")
BOX = xd.Uniform([-20.0, -100.0, -100.0], [20.0, 100.0, 100.0])


def rows(path):
    return xd.open(path, columns=COLUMNS, memory=False, where="astrometric_params_solved > 3")


def bright(path):
    return xd.open(path, columns=COLUMNS, memory=False, where="astrometric_params_solved > 3 & parallax > 0.5")


def kept(X):
    return X[:, 0] > 0.5


def arrays(path):
    return rows(path).load().batch


CASES = {
    "batch": lambda path: xd.fit(arrays(path), 3, moves="none", epochs=8, tol=0, device="cpu"),
    "stream": lambda path: xd.fit(rows(path), 3, moves="none", epochs=4, tol=0, cache="none", device="cpu"),
    "held": lambda path: xd.fit(
        rows(path), mixture=guess(path), moves="none", epochs=4, tol=0, cache="host", device="cpu"
    ),
    "moves": lambda path: xd.fit(
        arrays(path), 4, epochs=14, moves=xd.Moves(rounds=2, sweeps=2), validation=0.2, tol=0, device="cpu"
    ),
    "background": lambda path: xd.fit(rows(path), 3, moves="none", epochs=6, tol=0, background=BOX, device="cpu"),
    "inflation": lambda path: xd.fit(
        rows(path),
        2,
        moves="none",
        epochs=6,
        tol=0,
        device="cpu",
        inflation=xd.Inflation(by="phot_g_mean_mag", bins=[18.0]),
    ),
    "cut": lambda path: xd.fit(
        bright(path), 2, moves="none", epochs=8, tol=0, selection=xd.Cut("parallax", above=0.5), device="cpu"
    ),
    "function": lambda path: xd.fit(bright(path), 1, selection=kept, device="cpu"),
    "minibatch": lambda path: xd.fit(
        arrays(path), mixture=guess(path), method=xd.EM(step=0.2), batch_rows=300, epochs=3, tol=0, device="cpu"
    ),
}


def guess(path):
    return xd.fit(arrays(path), 3, moves="none", epochs=2, tol=0, device="cpu").mixture


def main(path, folder):
    torch.set_num_threads(1)
    with process_group("cpu", timeout=60):
        for name, fit in CASES.items():
            result = fit(path)
            result.mixture.save(Path(folder) / f"{name}.{rank()}.safetensors")
            scores = [result.loglik, np.nan if result.validation is None else result.validation]
            np.save(Path(folder) / f"{name}.{rank()}.npy", [*scores, len(result.notes)])


if __name__ == "__main__":
    main(*sys.argv[1:])
