"""The plain call on twelve small problems, beside 50 restarts of plain EM on the same rows.

Training: the plain call's total log-likelihood (with the prior that both have, if any) minus the best of the restarts.
Held out: its mean over 20,000 rows that no fit saw, minus the median of the restarts. The worst of the seeds counts.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import xdeconv as xd
from benchmarks.common import results as report
from benchmarks.common.machine import about

from .problems import PROBLEMS, Problem

UNSEEN = 20_000
SLACK = 0.1  # nats: what a converged fit may have left


def measure(problem: Problem, restarts: int, seeds: int) -> tuple[list[float], list[float]]:
    """Training and held-out differences of the plain call, for each of its seeds."""
    rng = np.random.default_rng(2026)
    rows, unseen = problem.draw(problem.n, rng), problem.draw(UNSEEN, rng)
    plain = [xd.fit(rows, problem.k, moves="none", seed=1000 + s) for s in range(restarts)]
    best = max(fit.loglik for fit in plain)
    middle = float(np.median([fit.mixture.score(unseen) for fit in plain]))
    ours = [xd.fit(rows, problem.k, seed=s) for s in range(seeds)]
    return [problem.n * (fit.loglik - best) for fit in ours], [fit.mixture.score(unseen) - middle for fit in ours]


def main() -> None:
    """Measure, print the table, and write it where asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small", description=__doc__)
    parser.add_argument("--problems", nargs="*", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--restarts", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write the table to RESULTS.md")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    lines, trained, held = [], 0, 0
    for name in chosen.problems:
        training, unseen = measure(PROBLEMS[name], chosen.restarts, chosen.seeds)
        trained += min(training) > -SLACK
        held += min(unseen) > -0.005
        problem = PROBLEMS[name]
        lines.append([name, f"{problem.n:,}", str(problem.k), " ".join(f"{t:+.1f}" for t in training),
                      " ".join(f"{u:+.4f}" for u in unseen)])  # fmt: skip
        print(*lines[-1], sep="  ", flush=True)
    text = report.table(["problem", "rows", "k", "training, nats", "held out, per row"], lines)
    text += f"\n\nTraining at least the best restart in {trained} of {len(lines)}; held out within 0.005 in {held}."
    print(text)
    if chosen.write:
        report.write_section("Small data", f"`python -m benchmarks.small`. {report.describe(about())}\n\n{text}")
