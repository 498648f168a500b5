"""How many components: the regret of the choice where K is known, and what choosing among 1 to 64 costs.

Regret is how much better, on 50,000 fresh rows, the best number of components would have been than the one chosen by
the plain call `xd.select(X, sizes)`; mixtures of all numbers come from one walk over all rows. The cost is processor
time of `xd.select(X)` over that of one plain fit of 64 components to as many rows as a fold has, per fold. Runs add to
a file of records (`--keep`), so that parts can be run apart.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

import xdeconv as xd
from benchmarks.common import results as report
from benchmarks.common.machine import about
from benchmarks.common.problems import gaia_fields
from xdeconv.fitting.choosing.trials import Choosing
from xdeconv.rows.data import as_source

from . import cluster

FRESH, MOST, FIELD_ROWS, LARGEST = 50_000, 12, 20_000, 64
KINDS = ("apart", "overlapping")
APART, NOISE = 3.0, 0.37  # widths; the mean variance of the noise


def truth(seed: int, kind: str) -> tuple[xd.Mixture, int]:
    """One to eight components in one to three dimensions, and how many rows to draw.

    Those that overlap may be more than the rows can tell; those apart lie three widths, noise included, away.
    """
    rng = np.random.default_rng([seed, 1])
    k, d = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    A = rng.normal(size=(k, d, d + 1))
    V = A @ A.transpose(0, 2, 1) / (d + 1) + 0.1 * np.eye(d)
    weights, n = rng.dirichlet(np.full(k, 5.0)), int(rng.choice([600, 2000]))
    means, spread = 4.0 * rng.normal(size=(k, d)), 4.0
    while kind == "apart" and _nearest(means, V) < APART:
        spread *= 1.05
        means = spread * rng.normal(size=(k, d))
    return xd.Mixture(weights, means, V), n


def _nearest(means: np.ndarray, V: np.ndarray) -> float:
    """The least distance of two means, in standard deviations of either along the line between them."""
    found = [np.inf]
    for i, j in combinations(range(len(means)), 2):
        away = means[i] - means[j]
        found.append(float(np.sqrt(away @ np.linalg.solve((V[i] + V[j]) / 2 + NOISE * np.eye(len(away)), away))))
    return min(found)


def drawn(mixture: xd.Mixture, n: int, seed: int) -> xd.Batch:
    """Noisy rows of a truth."""
    noise = np.random.default_rng([seed, n]).uniform(0.1, 1.0, size=(n, mixture.d)) ** 2
    return xd.Batch.from_arrays(mixture.sample(n, seed=seed, noise=noise), noise)


def regret(seed: int, kind: str, fresh_rows: int = FRESH, most: int = MOST) -> dict[str, Any]:
    """One data set of known K."""
    mixture, n = truth(seed, kind)
    batch, fresh = drawn(mixture, n, seed), drawn(mixture, fresh_rows, seed + 10_000)
    sizes = range(1, most + 1)
    chosen = xd.select(batch, sizes, seed=seed)
    walk = Choosing(xd.fit, {"seed": seed}, [(as_source(batch), as_source(fresh))], "held-out", "best").run(sizes)
    own = chosen.result.mixture.score(fresh)  # type: ignore[union-attr]
    best = max(own, float(walk.verdict.means.max()))
    return {"what": "regret", "kind": kind, "seed": seed, "known": mixture.k, "d": mixture.d, "rows": n,
            "chosen": chosen.best, "regret": best - own,
            "of the known K": best - float(walk.verdict.means[mixture.k - 1])}  # fmt: skip


def cost(path: Path, rows: int = FIELD_ROWS, largest: int = LARGEST) -> dict[str, Any]:
    """Processor time of choosing among 1 to 64 on Gaia fields, and of one plain fit of 64 per fold."""
    train = gaia_fields(path).train
    order = np.sort(np.random.default_rng(0).permutation(train.n)[:rows])
    batch = train.rows(torch.from_numpy(order))
    fold = batch.rows(slice(0, rows * 4 // 5))
    xd.fit(fold.rows(slice(0, 2000)), 8)  # compiles
    began = time.process_time()
    plain = xd.fit(fold, largest)
    one = time.process_time() - began
    began = time.process_time()
    found = xd.select(batch)
    all_ = time.process_time() - began
    return {"what": "cost", "plain": one, "all": all_, "chosen": found.best, "tried": len(found.table),
            "ratio": all_ / (5 * one), "loglik": plain.loglik, "last": found.result.loglik}  # type: ignore[union-attr]  # fmt: skip


def table(records: list[dict[str, Any]]) -> str:
    """The tables of all records."""
    text = []
    lines = [line for kind in KINDS for line in _regrets(kind, [r for r in records if r.get("kind") == kind])]
    if lines:
        head = ["components", "choice", "data sets", "mean regret [nat per row]", "median", "largest", "the known K"]
        text.append(report.table(head, lines))
    costs = [r for r in records if r["what"] == "cost"]
    if costs:
        head = ["rows", "numbers tried", "chosen", "plain fit of 64 [s]", "choosing [s]", "choosing / (5 folds x fit)"]
        lines = [[f"{FIELD_ROWS:,}", str(r["tried"]), str(r["chosen"]), f"{r['plain']:.1f}", f"{r['all']:.1f}",
                  f"{r['ratio']:.2f}"] for r in costs[-1:]]  # fmt: skip
        text.append(report.table(head, lines))
    return "\n\n".join([*text, *filter(None, [cluster.table(records)])])


def _regrets(kind: str, sets: list[dict[str, Any]]) -> list[list[str]]:
    if not sets:
        return []
    right = 100 * np.mean([r["chosen"] == r["known"] for r in sets])
    both = [[f"{np.mean(x):.5f}", f"{np.median(x):.5f}", f"{np.max(x):.5f}"]
            for x in ([r["regret"] for r in sets], [r["of the known K"] for r in sets])]  # fmt: skip
    return [[kind, "xd.select", str(len(sets)), *both[0], f"{right:.0f} %"],
            [kind, "always the known K", str(len(sets)), *both[1], ""]]  # fmt: skip


def main() -> None:
    """Measure what is not measured yet, print the tables, and write them where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.selecting", description=__doc__)
    parser.add_argument("--sets", type=int, default=40, help="data sets of known K, of each kind")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--clusters", type=int, default=5, help="data sets of a cluster in a field, of each share")
    parser.add_argument("--fields", type=Path, help="gaia_edr3_fields.parquet")
    parser.add_argument("--keep", type=Path, default=Path("selecting.jsonl"), help="file that records are added to")
    parser.add_argument("--write", action="store_true", help="write the tables to RESULTS.md")
    chosen = parser.parse_args()
    logging.getLogger("xdeconv").setLevel(logging.ERROR)
    records = [json.loads(text) for text in chosen.keep.read_text().splitlines()] if chosen.keep.exists() else []
    done = {(r["kind"], r["seed"]) for r in records if r["what"] == "regret"}
    todo = [(kind, seed) for kind in chosen.kinds for seed in range(chosen.sets) if (kind, seed) not in done]
    work = [partial(regret, seed, kind) for kind, seed in todo]
    done = {(r["share"], r["seed"]) for r in records if r["what"] == "cluster"}
    stars = [(share, seed) for share in cluster.SHARES for seed in range(chosen.clusters) if (share, seed) not in done]
    work += [partial(cluster.measure, share, seed) for share, seed in stars]
    work += [] if chosen.fields is None else [partial(cost, chosen.fields)]
    for measure in work:
        records.append(measure())
        with chosen.keep.open("a") as file:
            file.write(json.dumps(records[-1]) + "\n")
    print(table(records))
    if chosen.write:
        body = f"`python -m benchmarks.selecting`, processor time. {report.describe(about())}\n\n{table(records)}"
        report.write_section("Choosing the number of components", body)
