"""A cluster in a field: what pairing rows is worth where single rows differ far more than numbers of components do.

Parallaxes and proper motions of 5,500 stars with errors of Gaia's size, of which some are members of a cluster as
narrow as M5 at its published place (the table of docs/gaia.md). Between K = 2 and K = 8, and among 1 to 12: what the
plain call takes, what one standard error of the best score would take (unpaired), and the regret of both on fresh rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import xdeconv as xd
from benchmarks.common import results as report
from xdeconv.fitting.choosing.trials import Choosing
from xdeconv.rows.data import as_source

ROWS, FRESH, MOST = 5500, 50_000, 12
SHARES = (0.55, 0.1, 0.03)  # of members
M5, WIDTH = (0.134, 4.08, -9.87), (0.0, 0.05, 0.05)  # parallax [mas], proper motion [mas/yr]


def stars(share: float, seed: int, n: int) -> xd.Batch:
    """Noisy rows of members and field."""
    rng = np.random.default_rng([seed, n])
    error = 0.02 + 0.35 * 10 ** (0.25 * (np.clip(20 - rng.exponential(1.7, n), 11, 20) - 19))
    error = error[:, None] * [1.0, 1.1, 1.1]
    field = np.stack([rng.lognormal(-0.7, 0.7, n), rng.normal(-3.5, 6, n), rng.normal(-5, 6, n)], axis=1)
    true = np.where(rng.random((n, 1)) < share, M5 + WIDTH * rng.normal(size=(n, 3)), field)
    return xd.Batch.from_arrays(true + error * rng.normal(size=(n, 3)), error**2)


def unpaired(found: xd.Selection) -> int:
    """The smallest number whose score is within the standard error of the best one's."""
    best = max(found.table, key=lambda record: record.score)
    return min(r.components for r in found.table if r.score >= best.score - (best.standard_error or 0.0))


def measure(share: float, seed: int, fresh_rows: int = FRESH, most: int = MOST) -> dict[str, Any]:
    """One data set."""
    batch, fresh, sizes = stars(share, seed, ROWS), stars(share, seed + 10_000, fresh_rows), range(1, most + 1)
    two, found = xd.select(batch, (2, 8), seed=seed), xd.select(batch, sizes, seed=seed)
    walk = Choosing(xd.fit, {"seed": seed}, [(as_source(batch), as_source(fresh))], "held-out", "best").run(sizes)
    own, means = found.result.mixture.score(fresh), walk.verdict.means  # type: ignore[union-attr]
    best, other = max(own, float(means.max())), unpaired(found)
    worse = two.table[0]
    return {"what": "cluster", "share": share, "seed": seed, "of two": two.best, "of two, unpaired": unpaired(two),
            "paired errors": -worse.difference / (worse.difference_error or np.inf), "chosen": found.best,
            "regret": best - own, "unpaired": other, "unpaired regret": best - float(means[other - 1])}  # fmt: skip


def table(records: list[dict[str, Any]]) -> str:
    """A line per share of members; nothing where there is no record."""
    head = ["members", "data sets", "K = 8 above K = 2 [paired errors]", "taken of the two", "unpaired", "of 1 to 12",
            "regret [nat per row]", "unpaired", "regret"]  # fmt: skip
    lines = []
    for share in SHARES:
        sets = [r for r in records if r.get("share") == share]
        if sets:
            lines.append([f"{100 * share:.0f} %", str(len(sets)), _span([r["paired errors"] for r in sets], ".1f"),
                          *(_span([r[name] for r in sets], "d") for name in ("of two", "of two, unpaired", "chosen")),
                          f"{np.mean([r['regret'] for r in sets]):.5f}", _span([r["unpaired"] for r in sets], "d"),
                          f"{np.mean([r['unpaired regret'] for r in sets]):.5f}"])  # fmt: skip
    return report.table(head, lines) if lines else ""


def _span(values: list[Any], form: str) -> str:
    low, high = (f"{value:{form}}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
