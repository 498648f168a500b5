"""Where fits end: several seeds of each case, held-out log-likelihood per row and seconds.

python -m benchmarks.optima --fields gaia_edr3_fields.parquet --tycho tycho2.parquet --seeds 10 --out optima.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import xdeconv as xd
from benchmarks.common import results as report
from benchmarks.common.machine import about
from benchmarks.common.problems import Split, gaia_fields, separated_truth, simulated, tycho
from xdeconv.methods import suited_batch, suited_step


def default(split: Split, k: int, seed: int, train: object = None, **more: object) -> xd.FitResult:
    """xd.fit as it comes: the held-out rows are scored afterwards, and choose nothing."""
    found = xd.fit(train or split.train, k, seed=seed, **more)
    return replace(found, validation=found.mixture.score(split.held_out))


def em_alone(split: Split, k: int, seed: int) -> xd.FitResult:
    """Batch EM to convergence from the same start."""
    return default(split, k, seed, moves="none")


def single(split: Split, k: int, seed: int) -> xd.FitResult:
    """The same in float32, the number type of GPUs."""
    return default(split, k, seed, dtype="float32")


def minibatch(split: Split, k: int, seed: int, train: object = None) -> xd.FitResult:
    """Minibatch EM with stochastic moves, from rows in memory."""
    rows = suited_batch(k, split.train.d)
    method = xd.EM(step=suited_step(rows, k, split.train.d))
    return default(split, k, seed, train, method=method, batch_rows=rows, epochs=20)


def gradients(split: Split, k: int, seed: int, train: object = None) -> xd.FitResult:
    """SGD with stochastic moves, from rows in memory."""
    return default(split, k, seed, train, method=xd.SGD(), batch_rows=512, epochs=20)


def minibatch_streamed(split: Split, k: int, seed: int) -> xd.FitResult:
    """Minibatch EM with stochastic moves, from a file that is read again in every pass."""
    return minibatch(split, k, seed, split.stream)


def gradients_streamed(split: Split, k: int, seed: int) -> xd.FitResult:
    """SGD with stochastic moves, from a file that is read again in every pass."""
    return gradients(split, k, seed, split.stream)


FITS = {
    "default": default, "float32": single, "em": em_alone, "minibatch": minibatch, "sgd": gradients,
    "minibatch-streamed": minibatch_streamed, "sgd-streamed": gradients_streamed,
}  # fmt: skip


def recovered(truth: xd.Mixture, seed: int) -> tuple[int, float]:
    """Components of a separated truth that a fit finds, and seconds."""
    rng = np.random.default_rng(100 + seed)
    noise = 0.2 * rng.lognormal(size=(20_000, 2))
    X = truth.sample(20_000, seed=seed, noise=noise)
    began = time.perf_counter()
    found = xd.fit(X, truth.k, noise=noise, seed=seed).mixture
    distance = np.linalg.norm(truth.means[:, None] - found.means, axis=2)
    near = {int(row.argmin()) for row in distance if row.min() < 1.5}
    return len(near), time.perf_counter() - began


def measure(fit: Callable[[int], xd.FitResult], seeds: int, limit: float, cones: xd.Batch | None) -> dict[str, object]:
    """Held-out scores and seconds over seeds, until the time is up."""
    scores, seconds, notes, fits = [], [], set(), []
    began = time.perf_counter()
    for seed in range(seeds):
        if time.perf_counter() - began > limit:
            break
        start = time.perf_counter()
        found = fit(seed)
        scores.append(found.validation)
        notes |= set(found.notes)
        fits.append(found)
        seconds.append(time.perf_counter() - start)
    apart = {"best and worst": where_apart(fits, cones)} if cones is not None and len(fits) > 1 else {}
    return {
        "seeds": len(scores), "mean": float(np.mean(scores)), "worst": float(np.min(scores)),
        "best": float(np.max(scores)), "scores": scores, "seconds": float(np.median(seconds)), "notes": sorted(notes),
        **apart,
    }  # fmt: skip


def where_apart(fits: list[xd.FitResult], held_out: xd.Batch) -> dict[str, object]:
    """Where on the sky the best of some fits beats the worst: nats per row of each cone, and components in it."""
    from sklearn.cluster import DBSCAN

    best, worst = max(fits, key=lambda f: f.validation).mixture, min(fits, key=lambda f: f.validation).mixture
    ra, dec = held_out.x[:2].numpy()
    place = np.stack([ra * np.cos(np.radians(dec)), dec], axis=1)
    cone = DBSCAN(eps=1.0, min_samples=5).fit(place).labels_
    apart = best.log_prob(held_out) - worst.log_prob(held_out)
    names = np.unique(cone[cone >= 0])
    centers = np.array([[np.median(ra[cone == c]), np.median(dec[cone == c])] for c in names])
    sums = np.array([apart[cone == c].sum() for c in names]) / len(apart)
    own = [_components_near(mixture, centers) for mixture in (best, worst)]
    return {
        "apart": float(apart.mean()), "cones": len(names), "gain by cone": np.sort(sums)[::-1].tolist(),
        "components of best": own[0][np.argsort(-sums)].tolist(),
        "components of worst": own[1][np.argsort(-sums)].tolist(),
    }  # fmt: skip


def _components_near(mixture: xd.Mixture, centers: np.ndarray) -> np.ndarray:
    """How many components of at most a cone's width have their mean in each cone."""
    narrow = np.sqrt(mixture.covariances[:, 1, 1]) < 2.0
    away = mixture.means[:, None, :2] - centers
    away[..., 0] *= np.cos(np.radians(centers[:, 1]))
    return ((np.linalg.norm(away, axis=2) < 2.0) & narrow[:, None]).sum(0)


def joined(runs: list[dict]) -> dict:
    """Several runs as one; each case says which commit it belongs to, and later runs replace earlier ones."""
    found: dict = {}
    for run in runs:
        commit = run["machine"]["commit"]
        found |= {name: value if name == "machine" else {"commit": commit} | value for name, value in run.items()}
    return found


def write(found: dict) -> None:
    """The section of RESULTS.md."""
    rows = [
        [name, str(r["seeds"]), f"{r['mean']:.3f}", f"{r['worst']:.3f}", f"{r['best']:.3f}",
         "-" if r["seconds"] is None else f"{r['seconds']:.1f}", r["commit"]]
        for name, r in found.items() if "scores" in r
    ]  # fmt: skip
    body = [
        f"`python -m benchmarks.optima` on {report.describe(found['machine'])}",
        "Held-out log-likelihood per row in raw units; seconds are the median over seeds of a whole fit, - if others "
        "ran beside it.",
        report.table(["case", "seeds", "mean", "worst", "best", "seconds", "commit"], rows),
    ]
    if "truth of 20" in found:
        truth = found["truth of 20"]
        counts = truth["recovered"]
        body.append(f"A separated truth of 20: all recovered with {counts.count(20)} of {len(counts)} seeds.")
    for name, seen in ((name, r["best and worst"]) for name, r in found.items() if "best and worst" in r):
        gains, most = np.array(seen["gain by cone"]), 5
        ours, theirs = (np.array(seen[f"components of {which}"]) for which in ("best", "worst"))
        body.append(
            f"{name}: best and worst seed are {seen['apart']:.3f} apart. Of {seen['cones']} cones, {most} where "
            f"the best is better give {gains[:most].sum():+.3f}, {most} where it is worse {gains[-most:].sum():+.3f}; "
            f"in the former it has {ours[:most].sum()} narrow components against {theirs[:most].sum()}, in the latter "
            f"{ours[-most:].sum()} against {theirs[-most:].sum()}."
        )
    where = "a GPU" if found["machine"]["gpu"] else "a CPU"
    report.write_section(f"Optima on {where}", "\n\n".join(body))


def main() -> None:
    torch.manual_seed(0)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fields", type=Path)
    parser.add_argument("--tycho", type=Path)
    parser.add_argument("--simulated", type=int, default=0, help="rows")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--units", nargs="*", default=["paper", "right"], help="of the position errors of the fields")
    parser.add_argument("--k", type=int, nargs="*", default=[64])
    parser.add_argument("--cases", nargs="*", default=[*FITS, "truth"])
    parser.add_argument("--limit", type=float, default=1e9, help="seconds for each case")
    parser.add_argument("--out", type=Path, default=Path("optima.json"))
    parser.add_argument("--write", type=Path, nargs="*", help="only write RESULTS.md from what earlier runs saved here")
    arguments = parser.parse_args()
    if arguments.write:
        write(joined([json.loads(path.read_text()) for path in arguments.write]))
        return
    tables: dict[str, Split] = {}
    if arguments.fields:
        named = {"paper": "gaia fields", "right": "gaia fields, right units"}
        tables |= {named[u]: gaia_fields(arguments.fields, right_units=u == "right") for u in arguments.units}
    if arguments.tycho:
        tables["tycho-2"] = tycho(arguments.tycho)
    if arguments.simulated:
        tables["simulated"] = simulated(arguments.simulated)
    results: dict[str, object] = {"machine": about()}
    for name, split in tables.items():
        default(split.__class__(split.train.rows(slice(0, 2000)), split.held_out), 8, 0, epochs=12)  # compile
        for k in arguments.k:
            for case in (c for c in arguments.cases if c in FITS):
                if case != "default" and name != "gaia fields":
                    continue
                key = f"{name}, k = {k}, {case}"
                cones = split.held_out if case == "default" and name.startswith("gaia fields") else None
                results[key] = measure(lambda s: FITS[case](split, k, s), arguments.seeds, arguments.limit, cones)  # noqa: B023
                print(key, {n: v for n, v in results[key].items() if n != "scores"}, flush=True)
                arguments.out.write_text(json.dumps(results, indent=1))
    if "truth" in arguments.cases:
        truth = separated_truth()
        counts = [recovered(truth, seed) for seed in range(arguments.seeds)]
        results["truth of 20"] = {
            "recovered": [c for c, _ in counts],
            "seconds": float(np.median([s for _, s in counts])),
        }
        print("truth of 20", results["truth of 20"], flush=True)
        arguments.out.write_text(json.dumps(results, indent=1))
    write(joined([results]))
