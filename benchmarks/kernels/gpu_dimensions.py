"""How fast pairs of 2 to 128 dimensions are on a GPU: python -m benchmarks.kernels.gpu_dimensions [--out FILE.json].

Operations are counted as d^3 + 4 d^2 per pair of row and component, whatever is really computed. Nothing is timed
before it agrees with the reference. python -m benchmarks.kernels --gpu-dimensions FILE.json puts it into RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from benchmarks.common import machine, results
from benchmarks.kernels.dimensions import neighbours, operations
from benchmarks.kernels.gpu import DENSE, GPU, Theta, made_up, milliseconds
from xdeconv import kernels
from xdeconv.kernels.options import Options
from xdeconv.rows.batch import Batch

ROWS, FEW, COMPONENTS = 1 << 17, 1 << 15, 64  # few rows above 32 dimensions
EVERY = [12, 16, 20, 32, 64, *range(2, 12), 13, 14, 15, 17, 18, 19, 21, 24, 28, 33, 36, 40, 48, 56, 65, 80, 96, 128]
TARGETS = {"float32": 10.0, "float64": 4.0}  # TFLOP/s in 12, 16, 20, 32 and 64 dimensions
Line = dict[str, float]


def error(theta: Theta, batch: Batch) -> float:
    """The largest error of any sum over some rows, relative to the sums' size."""
    few = batch.rows(slice(0, 256))
    exact = few.to(device="cpu", dtype=torch.float64)
    right = kernels.accumulate(*(t.cpu().double() for t in theta), exact, Options(backend="reference"))
    ours = kernels.accumulate(*theta, few, DENSE)
    pairs = [(getattr(ours, name).cpu(), getattr(right, name)) for name in ("loglik", "q", "g", "G")]
    return max(float((a - b).abs().max()) / max(few.n, float(b.abs().max())) for a, b in pairs)


def measured(d: int, dtype: torch.dtype) -> Line:
    """Seconds to the first sums, milliseconds of later ones, and TFLOP/s."""
    n = ROWS if d <= 32 else FEW
    theta, batch = made_up(n, COMPONENTS, d)
    batch = batch.to(dtype=dtype)
    began = time.perf_counter()
    kernels.accumulate(*theta, batch, DENSE)
    torch.cuda.synchronize()
    first, wrong = time.perf_counter() - began, error(theta, batch)
    if not wrong < 1e-4:
        raise SystemExit(f"d = {d}: the kernels are wrong (relative error {wrong:.1e}): no times from them")
    taken = milliseconds(lambda: kernels.accumulate(*theta, batch, DENSE), 5)
    pairs = n * COMPONENTS
    return {"d": d, "first": first, "ms": taken, "ns": 1e6 * taken / pairs, "rate": operations(d) * pairs / taken / 1e9}


def section(found: dict) -> str:
    """The text of RESULTS.md."""
    lines = {kind: {int(line["d"]): line for line in found[kind]} for kind in TARGETS}
    over = neighbours({d: line["rate"] for d, line in lines["float32"].items()})
    rows = [[str(d), *_cells(lines, d), f"{over.get(d, 1.0):.2f}"] for d in sorted(lines["float32"])]
    head = [
        "d",
        "float32, TFLOP/s",
        "ns a pair",
        "first sums, s",
        "float64, TFLOP/s",
        "ns a pair",
        "over the best neighbour",
    ]
    about = f"`python -m benchmarks.kernels.gpu_dimensions` on {results.describe(found['machine'])}"
    how = "Full noise, all sums, no skipping, 64 components, 2^17 rows (2^15 above 32 dimensions)."
    left = [str(d) for d in sorted(EVERY) if d not in lines["float32"]]
    ended = [f"The run ended by its limit of seconds before d = {', '.join(left)}."] if left else []
    return "\n\n".join([about, how, *ended, results.table(head, rows)])


def _cells(lines: dict[str, dict[int, Line]], d: int) -> list[str]:
    single, double = lines["float32"][d], lines["float64"].get(d)
    cells = [f"{single['rate']:.2f}", f"{single['ns']:.3f}", f"{single['first']:.2f}"]
    return cells + (["-", "-"] if double is None else [f"{double['rate']:.2f}", f"{double['ns']:.3f}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu_dimensions.json"))
    parser.add_argument("--dimensions", type=int, nargs="+", default=EVERY)
    parser.add_argument("--seconds", type=float, default=300.0, help="dimensions not begun by then are left out")
    options = parser.parse_args()
    torch.zeros(1, device=GPU)
    found: dict = {"machine": machine.about(), **{kind: [] for kind in TARGETS}}
    end = time.monotonic() + options.seconds
    for d in options.dimensions:
        for kind in TARGETS:
            if time.monotonic() < end:
                found[kind].append(measured(d, getattr(torch, kind)))
                print(kind, {name: round(value, 3) for name, value in found[kind][-1].items()}, flush=True)
                options.out.write_text(json.dumps(found, indent=1))
    print(section(found), file=sys.stderr)


if __name__ == "__main__":
    main()
