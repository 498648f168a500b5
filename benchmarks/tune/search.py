"""Step size, batch size and prior of the minibatch methods, searched for on held-out rows: how far off are defaults?

python -m benchmarks.tune [--data gaia.parquet] [--rows 20000] [--k 16] [--trials 30] [--out FOLDER]

The search is optuna's (pip install 'xdeconv[tune]'). ``--sampler qmc`` tries the points of a Sobol sequence instead and
needs nothing but SciPy: on a GPU machine, say, with --device cuda. Every trial is one fit of 20 epochs, without moves.
The best settings are fitted again with other seeds and scored on test rows, beside the defaults.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

import xdeconv as xd
from benchmarks.common import results as report
from benchmarks.common.machine import about
from benchmarks.paper.rows import PRESETS, Rows, Table
from xdeconv.fitting.initial import moments
from xdeconv.methods import suited_batch, suited_step

SLACK = 0.02  # nat that defaults may lose
TITLES = {"minibatch": "minibatch EM", "sgd": "SGD"}
SAMPLERS = ("optuna", "qmc")


@dataclass(frozen=True)
class Settings:
    """What is searched: the first step and its decay, rows of a batch, and the prior's w over the data's variance."""

    step: float
    batch_rows: int
    w: float

    def __str__(self) -> str:
        return f"first step {self.step:.3g}, {self.batch_rows} rows, w = {self.w:.1e} of the variance"


def schedule(step: float) -> xd.Decaying:
    """How the first step decays: as in the defaults."""
    return xd.Decaying(step)


def defaults(method: str, k: int, d: int) -> Settings:
    """What one gets unasked: no prior, and steps and batches that suit the size of the mixture."""
    if method == "minibatch":
        return Settings(suited_step(suited_batch(k, d), k, d).start, suited_batch(k, d), 0.0)
    return Settings(xd.SGD().rate.start, 512, 0.0)  # type: ignore[union-attr]


def ranges(rows: int) -> dict[str, tuple[float, float]]:
    """Logarithmic ranges of step, batch_rows and w."""
    return {"step": (1e-3, 1.0), "batch_rows": (64.0, max(128.0, rows / 16)), "w": (1e-9, 1e-3)}


@dataclass(frozen=True)
class Objective:
    """Fits of one method and their scores."""

    method: str
    rows: Rows
    k: int
    epochs: int
    variances: tuple[float, ...]

    def fit(self, s: Settings, seed: int) -> xd.Mixture:
        step = schedule(s.step)
        prior = xd.Prior(w=[s.w * self.rows.train.rows * v for v in self.variances]) if s.w else None
        method = xd.EM(step=step, prior=prior) if self.method == "minibatch" else xd.SGD(rate=step, prior=prior)
        train = self.rows.train
        where = {"device": str(train.batch.device), "epochs": self.epochs, "tol": 0.0, "seed": seed}
        return xd.fit(train, self.k, method=method, moves="none", batch_rows=s.batch_rows, **where).mixture  # type: ignore[arg-type]

    def __call__(self, s: Settings) -> float:
        """Validation log-likelihood per row; minus infinity where a fit fails."""
        try:
            return self.rows.scores(self.fit(s, 0))["validation"]
        except (ArithmeticError, ValueError) as problem:
            print(f"  {s}: {problem}")
            return -np.inf


def proposals(
    sampler: str, trials: int, bounds: dict[str, tuple[float, float]], score: Callable[[Settings], float]
) -> Iterator[tuple[Settings, float]]:
    """Trials one after the other, as optuna or a Sobol sequence chooses them, and their scores."""
    if sampler == "qmc":
        from scipy.stats import qmc

        low, high = (np.log([b[i] for b in bounds.values()]) for i in (0, 1))
        points = qmc.Sobol(len(bounds), seed=0).random_base2(int(np.ceil(np.log2(trials))))[:trials]
        for point in np.exp(low + points * (high - low)):
            settings = Settings(point[0], round(point[1]), point[2])
            yield settings, score(settings)
        return
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    for _ in range(trials):
        trial = study.ask()
        values = {name: trial.suggest_float(name, *bound, log=True) for name, bound in bounds.items()}
        settings = Settings(values["step"], round(values["batch_rows"]), values["w"])
        found = score(settings)
        study.tell(trial, max(found, -1e9))
        yield settings, found


def search(objective: Objective, a: argparse.Namespace) -> dict:
    """The best settings within the trials and the time, and how they and the defaults score on test rows."""
    began, tried = time.monotonic(), []
    for settings, score in proposals(a.sampler, a.trials, ranges(objective.rows.train.rows), objective):
        tried.append((settings, score))
        print(f"  {score:.4f}  {settings}", flush=True)
        if time.monotonic() - began > a.budget_seconds:
            break
    best = max(tried, key=lambda pair: pair[1])[0]
    standard = defaults(objective.method, objective.k, objective.rows.train.dim)
    scores = {
        name: [objective.rows.scores(objective.fit(s, seed))["test"] for seed in range(1, 1 + a.seeds)]
        for name, s in (("best", best), ("defaults", standard))
    }
    return {
        "method": objective.method, "trials": [{**asdict(s), "validation": v} for s, v in tried],
        "best": str(best), "defaults": str(standard), "test": scores,
        "loses": float(np.mean(scores["best"]) - np.mean(scores["defaults"])),
    }  # fmt: skip


def write(found: dict) -> None:
    """The section of RESULTS.md."""
    lines = []
    for one in found["searches"]:
        for name in ("best", "defaults"):
            scores = one["test"][name]
            spread = f" ± {np.std(scores, ddof=1):.3f}" if len(scores) > 1 else ""
            gap = f"{one['loses']:.3f}" + ("" if one["loses"] < SLACK else " (**more than 0.02**)")
            score = f"{np.mean(scores):.3f}{spread}"
            lines.append([TITLES[one["method"]], name, one[name], score, gap if name == "defaults" else ""])
    lines.append(["xd.fit", "as it comes", "batch EM with moves", f"{found['fit']:.3f}", ""])
    trials = ", ".join(f"{TITLES[s['method']]} {len(s['trials'])}" for s in found["searches"])
    body = [
        f"`python -m benchmarks.tune` on {report.describe(found['machine'])}",
        f"{found['data']}, preset paper-2019, K = {found['k']}, 20 epochs without moves, start and units as in xd.fit; "
        f"trials by {found['sampler']}: {trials}. Test log-likelihood per row over {found['seeds']} other seeds.",
        report.table(["method", "settings", "which are", "test", "defaults lose"], lines),
    ]
    report.write_section("Hyper-parameters", "\n\n".join(body))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, help="a table with the Gaia archive's names; by default rows are simulated"
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3, help="fits of the best settings and of the defaults")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--methods", nargs="+", default=list(TITLES), choices=list(TITLES))
    parser.add_argument("--sampler", default="optuna", choices=SAMPLERS)
    parser.add_argument("--budget-seconds", type=float, default=float("inf"), help="for the trials of each method")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=Path("tune.json"))
    parser.add_argument("--write", type=Path, help="only write RESULTS.md from what an earlier run saved here")
    a = parser.parse_args()
    if a.write:
        return write(json.loads(a.write.read_text()))
    rows = Table(a.data, a.rows, a.device).prepared(PRESETS[0])
    train = rows.train.batch
    spread = moments(train.x.T.double(), torch.ones(train.n, dtype=torch.float64, device=train.device))[1]
    variances = tuple((spread**2).tolist())
    searches = []
    for method in a.methods:
        print(TITLES[method], flush=True)
        searches.append(search(Objective(method, rows, a.k, a.epochs, variances), a))
        print({name: searches[-1][name] for name in ("best", "defaults", "test", "loses")}, flush=True)
    ours = rows.scores(xd.fit(rows.train, a.k, device=a.device).mixture)["test"]
    found = {"machine": about(), "data": rows.name, "k": a.k, "sampler": a.sampler, "seeds": a.seeds,
             "searches": searches, "fit": ours}  # fmt: skip
    a.out.write_text(json.dumps(found, indent=1) + "\n")
    return write(found)
