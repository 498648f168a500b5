"""The experiment in small, on a CPU, and what must be true of it whatever the seed.

There are a hundred times fewer rows than in the paper and twenty times fewer updates, so steps are longer: SGD moves in
raw units, degrees among them, and would not arrive.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from benchmarks.paper import methods
from benchmarks.paper.experiment import Session, tell
from benchmarks.paper.report import chosen, report
from benchmarks.paper.rows import PRESETS, Table
from benchmarks.paper.store import Run, Store

ROWS, SMALL, LARGE = 20_000, 4, 12
BATCH_ROWS, STEP, RATE = 100, 5e-2, 0.1
APART = 0.5  # nat


def quick(out: Path, seed: int = 0) -> list[Run]:
    """Two sizes of each method, the report, and the assertions; the runs."""
    recipes = methods.recipes(BATCH_ROWS, STEP, RATE)
    store = Store(out / "quick.json")
    store.path.unlink(missing_ok=True)
    session = Session(Table(None, ROWS, "cpu"), store, float("inf"), recipes)
    began = time.monotonic()
    for k in (SMALL, LARGE):
        for method in methods.EXPERIMENT:
            tell(session.run(PRESETS[0], method, k, seed))
    assert_shape(store.runs())
    report(store, None)
    print(f"the result has the shape of the paper's ({time.monotonic() - began:.0f} s)")
    return store.runs()


def assert_shape(runs: list[Run]) -> None:
    """Likelihood rises with k, the three methods agree, and ours is at least as good as the best of them."""
    score = {
        (m, k): float(np.mean(chosen(runs, m, k, "validation"))) for m in methods.EXPERIMENT for k in (SMALL, LARGE)
    }
    three = [score[m, LARGE] for m in methods.EXPERIMENT[:3]]
    for method in methods.EXPERIMENT:
        few, many = score[method, SMALL], score[method, LARGE]
        assert many > few, f"{method}: {few:.3f} with {SMALL} components and {many:.3f} with {LARGE}"
    assert max(three) - min(three) < APART, f"the three methods are apart: {three}"
    ours = score["xdeconv", LARGE]
    assert ours >= max(three), f"xdeconv {ours:.4f} against {three}"
