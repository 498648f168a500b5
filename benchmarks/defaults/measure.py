"""Why the defaults are what they are: which start ends best, and which step and batch sizes reach EM's likelihood.

python -m benchmarks.defaults --fields gaia_edr3_fields.parquet --tycho tycho2.parquet --simulated 200000
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

import xdeconv as xd
from benchmarks.common import results as report
from benchmarks.common.machine import about
from benchmarks.common.problems import Split, gaia_fields, simulated, tycho
from benchmarks.defaults.growing import grown

PLAIN: dict = {"method": xd.EM(accelerate=False), "moves": "none"}  # EM as published

K = 64
PASSES = (2, 5, 10, 20)
STARTS = {
    f"{coordinates} coordinates, {covariances} covariances": xd.Start(coordinates=coordinates, covariances=covariances)
    for coordinates in ("scaled", "raw")
    for covariances in ("clusters", "identity", "scaled")
} | {
    "k-means++ seeding alone": xd.Start(centers="kmeans++"),
    "random rows": xd.Start(centers="random"),
    "random rows, scaled covariances": xd.Start(centers="random", covariances="scaled"),
}
OTHER_STARTS = ("grown by splitting", "annealed")
STEPS = {f"EM, {step!r}": xd.EM(step=step) for step in (
    0.01, xd.Stepped(0.01, {10: 0.5}), xd.Decaying(0.03), xd.Decaying(0.1), xd.Decaying(0.3),
    xd.Decaying(0.57, power=0.8), xd.Decaying(1.0, power=0.8),
)} | {f"SGD, {rate!r}": xd.SGD(rate=rate) for rate in (
    0.01, xd.Stepped(0.01, {10: 0.1}), xd.Decaying(0.005), xd.Decaying(0.01), xd.Decaying(0.02), xd.Decaying(0.05),
)}  # fmt: skip
BATCHES = (128, 512, 2048, 8192)


def open_table(name: str, paths: argparse.Namespace) -> Split:
    """One of the tables that fits are tried on."""
    if name == "gaia fields":
        return gaia_fields(paths.fields, right_units=True)
    return tycho(paths.tycho) if name == "tycho-2" else simulated(paths.simulated)


def from_start(split: Split, name: str, seed: int, search: bool) -> float:
    """Held-out likelihood of EM to convergence from a start, or of the default fit with its moves."""
    how: dict = {"seed": seed, "validation": split.held_out, "patience": 1000}
    how |= {} if search else {"method": xd.EM(), "epochs": 500}
    if name in STARTS:
        return xd.fit(split.train, K, start=STARTS[name], **how).validation
    make = _grown if name == OTHER_STARTS[0] else _annealed
    return xd.fit(split.train, mixture=make(split.train, seed), **how).validation


def _grown(train: xd.Batch, seed: int) -> xd.Mixture:
    """From one component to K by splitting what fits worst, with a few EM passes at each size."""
    mixture = xd.fit(train, 1, **PLAIN, epochs=3, seed=seed).mixture
    pool = train.rows(torch.from_numpy(np.random.default_rng(seed).permutation(train.n)[:20_000]))
    while mixture.k < K:
        mixture = grown(mixture, min(2 * mixture.k, K), pool)
        mixture = xd.fit(train, mixture=mixture, **PLAIN, epochs=15).mixture
    return mixture


def _annealed(train: xd.Batch, seed: int) -> xd.Mixture:
    """K-means, then EM with noise added that falls from the data's own variance to none."""
    spread = np.nanvar(train.x.cpu().numpy(), axis=1)
    mixture = xd.fit(train, K, **PLAIN, epochs=1, seed=seed).mixture
    d = train.d
    place = [a * (a + 1) // 2 + a for a in range(d)] if train.noise.shape[0] > d else list(range(d))
    for share in (0.3, 0.1, 0.03, 0.01, 0.003):
        noise = train.noise.clone()
        noise[place] += torch.from_numpy(share * spread)[:, None]
        mixture = xd.fit(replace(train, noise=noise), mixture=mixture, **PLAIN, epochs=15).mixture
    return mixture


def by_steps(split: Split, name: str, batch_rows: int, seed: int) -> list[float]:
    """Held-out likelihood after some numbers of passes of a minibatch method, no moves."""
    found = xd.fit(
        split.train, K, method=STEPS[name], moves="none", batch_rows=batch_rows, epochs=PASSES[-1], seed=seed, tol=0.0,
        validation=split.held_out, patience=1000,
    )  # fmt: skip
    best = np.maximum.accumulate([record.validation for record in found.history])
    return [float(best[p - 1]) for p in PASSES]


def _one(task: tuple) -> tuple[str, object]:
    kind, table, paths, *rest = task
    torch.set_num_threads(1)
    try:
        split = open_table(table, paths)
        value: object = from_start(split, *rest) if kind == "starts" else by_steps(split, *rest)
    except Exception as problem:
        value = f"{type(problem).__name__}: {problem}"
    return json.dumps([kind, table, *rest]), value


def tasks(paths: argparse.Namespace) -> list[tuple]:
    """Everything to be run, as arguments."""
    tables = [name for name, given in (("gaia fields", paths.fields), ("tycho-2", paths.tycho),
                                       ("simulated", paths.simulated)) if given]  # fmt: skip
    found: list[tuple] = []
    if "starts" in paths.parts:
        found += [("starts", t, paths, name, seed, search) for t in tables for name in (*STARTS, *OTHER_STARTS)
                  for seed in range(paths.seeds) for search in (False, True)]  # fmt: skip
    if "steps" in paths.parts:
        steps = [t for t in tables if t != "tycho-2"]
        found += [("steps", t, paths, name, rows, seed) for t in steps for name in STEPS for rows in BATCHES
                  for seed in range(min(2, paths.seeds))]  # fmt: skip
    return found


def write(saved: dict) -> None:
    """The section of RESULTS.md."""
    found = {tuple(json.loads(key)): value for key, value in saved["found"].items()}
    body = [f"`python -m benchmarks.defaults` on {report.describe(saved['machine'])}"]
    names = sorted({key[2] for key in found if key[0] == "starts"})
    for table in sorted({key[1] for key in found}):
        rows = [[name, _over(found, table, name, False), _over(found, table, name, True)] for name in names]
        if any(row[1] != "-" for row in rows):
            body.append(f"Starts, {table}, k = {K}: held-out log-likelihood per row, mean (worst) over seeds.")
            body.append(report.table(["start", "EM to convergence", "default fit, with moves"], rows))
        rows = [[name, str(size), *_after(found, table, name, size)] for name in STEPS for size in BATCHES]
        rows = [row for row in rows if row[2:]]
        if rows:
            body.append(f"Steps, {table}, k = {K}, default start, no moves: held-out log-likelihood after passes.")
            body.append(report.table(["method", "rows per step", *map(str, PASSES)], rows))
    report.write_section("Defaults: starts, steps and batch sizes", "\n\n".join(body))


def _over(found: dict, table: str, name: str, search: bool) -> str:
    values = [v for key, v in found.items() if key[:3] == ("starts", table, name) and key[4] == search]
    numbers = [v for v in values if isinstance(v, float)]
    if not values:
        return "-"
    failed = f", {len(values) - len(numbers)} failed" if len(numbers) < len(values) else ""
    return (f"{np.mean(numbers):.3f} ({np.min(numbers):.3f})" if numbers else "") + failed


def _after(found: dict, table: str, name: str, size: int) -> list[str]:
    values = [v for key, v in found.items() if key[:4] == ("steps", table, name, size)]
    numbers = [v for v in values if isinstance(v, list)]
    if not numbers:
        return ["failed"] * len(PASSES) if values else []
    return [f"{value:.3f}" for value in np.mean(numbers, axis=0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fields", type=Path)
    parser.add_argument("--tycho", type=Path)
    parser.add_argument("--simulated", type=int, default=0, help="rows")
    parser.add_argument("--parts", nargs="*", default=["starts", "steps"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("defaults.json"))
    parser.add_argument("--write", type=Path, nargs="*", help="only write RESULTS.md from what earlier runs saved here")
    arguments = parser.parse_args()
    if arguments.write:
        runs = [json.loads(path.read_text()) for path in arguments.write]
        write({**runs[-1], "found": {key: value for run in runs for key, value in run["found"].items()}})
        return
    saved: dict = {"machine": about(), "found": {}}
    with ProcessPoolExecutor(arguments.workers, mp_context=get_context("spawn")) as pool:
        for key, value in pool.map(_one, tasks(arguments)):
            saved["found"][key] = value
            arguments.out.write_text(json.dumps(saved, indent=1))
    write(saved)
