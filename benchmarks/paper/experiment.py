"""The experiment of Ritchie & Murray (2019), "Scalable Extreme Deconvolution", made again by one command.

python -m benchmarks.paper                        everything, simulated rows, as far as the time goes: run it again
python -m benchmarks.paper --data gaia.parquet    a real table with the paper's seven columns
python -m benchmarks.paper --floor                is SGD's lead in the paper the covariance floor?
python -m benchmarks.paper --reference            what the truth would score
python -m benchmarks.paper --report               tables and figures from what was saved; no GPU needed
python -m benchmarks.paper --quick                a small setting that asserts the shape of the result

Every run is appended to paper.json in the folder of --out and is not made twice.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

import xdeconv as xd
from benchmarks.common.machine import about
from benchmarks.paper import methods
from benchmarks.paper.rows import PRESETS, Rows, Table, true_values
from benchmarks.paper.store import Run, Store, slug

COMPONENTS = (64, 128, 256, 512)
MANY_SEEDS_UNTIL = 128  # components
PICTURE = ("xdeconv", 256, 0)  # the model whose sky is drawn
REFERENCE_SEED = 7
SKY_ROWS = 100_000


@dataclass
class Session:
    """One call: where rows come from, where runs go, and how much time there is."""

    table: Table
    store: Store
    budget: float
    recipes: Mapping[str, methods.Recipe] = field(default_factory=methods.recipes)
    alone: bool = True  # whether nothing else runs on the device: seconds count only then
    began: float = field(default_factory=time.monotonic)
    prepared: dict[str, Rows] = field(default_factory=dict)
    warm: set[tuple[str, str, int]] = field(default_factory=set)
    machine: dict[str, object] = field(default_factory=about)

    def rows(self, preset: str) -> Rows:
        """The rows as a preset prepares them, once."""
        if preset not in self.prepared:
            self.prepared[preset] = self.table.prepared(preset)
        return self.prepared[preset]

    def time_for(self, method: str, k: int) -> bool:
        """Whether a run is expected to fit into what is left of the budget."""
        expected = self.store.expected_seconds(method, k, self.table.name)
        return time.monotonic() - self.began + 1.2 * expected <= self.budget

    def run(self, preset: str, method: str, k: int, seed: int) -> Run:
        """Make one run and save it."""
        rows, recipe = self.rows(preset), self.recipes[method]
        if (preset, method, k) not in self.warm:
            first = not any(name == method for _, name, _ in self.warm)
            methods.warm_up(recipe, rows, k, moves=first)
            self.warm.add((preset, method, k))
        result, seconds = methods.timed(lambda: methods.fitted(recipe, rows.train, k, seed))
        run = self.described(preset, method, k, seed) | {
            "seconds": seconds, "alone": self.alone, "epochs": len(result.history),
            **rows.scores(result.mixture), "notes": list(result.notes), "curve": curve(result) if seed == 0 else [],
        }  # fmt: skip
        if (method, k, seed) == PICTURE and preset == PRESETS[0]:
            self.keep_for_figure_2(result.mixture, rows)
        self.store.add(run)
        return run

    def keep_for_figure_2(self, mixture: xd.Mixture, rows: Rows) -> None:
        """Save the model, and where on the sky some rows lie."""
        path = self.store.path.parent / slug(self.table.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        mixture.save(path.with_suffix(".safetensors"))
        np.save(path.with_suffix(".npy"), rows.validation.batch.x[:2, :SKY_ROWS].cpu().numpy().astype(np.float32))

    def reference(self, k: int, rows: int) -> None:
        """A large mixture of the simulator's true values, and how it scores the noisy rows of each preset."""
        device = self.table.device
        values = true_values(rows, REFERENCE_SEED, device)
        result, seconds = methods.timed(lambda: xd.fit(values, k, device=device))
        for preset in PRESETS:
            run = self.described(preset, "truth", k, 0) | {
                "seconds": seconds, "alone": self.alone, "epochs": len(result.history),
                **self.rows(preset).scores(result.mixture),
                "notes": [f"fitted to {rows:,} true values", *result.notes], "curve": [],
            }  # fmt: skip
            self.store.add(run)
            tell(run)

    def described(self, preset: str, method: str, k: int, seed: int) -> Run:
        """What identifies a run, and where it was made."""
        rows = {"train": self.rows(preset).train.rows, "validation": self.rows(preset).validation.rows}
        key = {"data": self.table.name, "preset": preset, "method": method, "k": k, "seed": seed}
        return {**key, "rows": rows, "machine": self.machine}


def curve(result: xd.FitResult) -> list[tuple[float, float]]:
    """Seconds since the fit began and the mean log-likelihood that each epoch met on its way."""
    return [(round(epoch.seconds, 3), epoch.loglik) for epoch in result.history]


Planned = tuple[str, str, int, int]  # preset, method, k, seed


def planned(a: argparse.Namespace) -> Iterator[Planned]:
    """The runs in their order: every method and k with the first seed, then with the second, and so on."""
    for seed in range(max(a.seeds, a.seeds_large)):
        for k in a.components:
            for method in a.methods:
                if seed < (a.seeds if k <= MANY_SEEDS_UNTIL else a.seeds_large):
                    yield PRESETS[0], method, k, seed


def floor_runs(a: argparse.Namespace) -> Iterator[Planned]:
    """EM and SGD with the same floor and without one, as the text prepares rows and as the code does."""
    for seed in range(2):
        for preset in PRESETS:
            for method in (*methods.FLOOR_QUESTION, "minibatch", "sgd"):
                yield preset, method, a.floor_k, seed


def make(session: Session, plan: Iterator[Planned]) -> None:
    """All runs of a plan that are not there yet, until the time is up."""
    for preset, method, k, seed in plan:
        if session.store.has(data=session.table.name, preset=preset, method=method, k=k, seed=seed):
            continue
        if not session.time_for(method, k):
            print(f"the budget of {session.budget:.0f} s ends before {method}, k = {k}, seed {seed}: run again")
            return
        tell(session.run(preset, method, k, seed))


def tell(run: Run) -> None:
    """One line about a run."""
    print(
        f"{run['data']}  {run['preset']:<16} {run['method']:<16} k = {run['k']:<4} seed {run['seed']}  "
        f"validation {run['validation']:.4f}  {run['seconds']:.1f} s  {'; '.join(run['notes'])}",
        flush=True,
    )


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", type=Path, help="a table with the Gaia archive's names; by default rows are simulated")
    add("--rows", type=int, default=2_000_000, help="how many to simulate")
    add("--methods", nargs="+", default=list(methods.EXPERIMENT), choices=list(methods.TITLES))
    add("--components", type=int, nargs="+", default=list(COMPONENTS))
    add("--seeds", type=int, default=10, help=f"runs of each at up to {MANY_SEEDS_UNTIL} components")
    add("--seeds-large", type=int, default=3, help="runs of each beyond")
    add("--from-seed", type=int, default=0, help="leave out the seeds before")
    add("--until-seed", type=int, default=1000, help="leave out this seed and those after")
    add("--beside", action="store_true", help="others use the device at the same time: seconds will not count")
    add("--join", type=Path, nargs="+", help="only add the runs in these folders to those in --out")
    add("--budget-seconds", type=float, default=float("inf"), help="begin no run that would end later")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--floor", action="store_true", help="the runs that settle the question of the floor, instead")
    add("--floor-k", type=int, default=128)
    add("--reference", action="store_true", help="the score of the truth, instead")
    add("--reference-k", type=int, default=1024)
    add("--reference-rows", type=int, default=8_000_000)
    add("--report", action="store_true", help="write tables and figures, instead")
    add("--docs", type=Path, help="with --report: the folder of docs whose paper.md is to show them")
    add("--quick", action="store_true", help="a small setting on a CPU that asserts the shape of the result")
    add("--out", type=Path, default=Path("paper"))
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> None:
    a = parse(words)
    store = Store(a.out / "paper.json")
    if a.quick:
        from benchmarks.paper.quick import quick

        quick(a.out)
    elif a.report:
        from benchmarks.paper.report import report

        report(store, a.docs)
    elif a.join:
        for folder in a.join:
            store.join(Store(folder / "paper.json"))
    else:
        session = Session(Table(a.data, a.rows, a.device), store, a.budget_seconds, alone=not a.beside)
        if a.reference:
            key = {"data": session.table.name, "preset": PRESETS[-1], "method": "truth", "k": a.reference_k, "seed": 0}
            if a.data is not None:
                raise SystemExit("the truth of a real table is not known: --reference is for simulated rows")
            if not store.has(**key):
                session.reference(a.reference_k, a.reference_rows)
        else:
            plan = floor_runs(a) if a.floor else planned(a)
            make(session, (run for run in plan if a.from_seed <= run[3] < a.until_seed))
