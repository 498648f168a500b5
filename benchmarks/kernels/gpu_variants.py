"""Which form of many dimensions is fastest on this GPU: python -m benchmarks.kernels.gpu_variants [--seconds 85].

Every form of the kernels for more than ten dimensions, in 12, 16, 20, 32 and 64 of them, float32 and float64: sums of
rows made for it are compared with the reference in float64, memory that kernels write to being NaN before, then calls
are timed, the densities of all pairs and their sums also apart. Lines are printed as they are measured; a form that
cannot be compiled, or is wrong, has a line that says so. Forms are compiled side by side, those of most interest first.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import patch

import torch

from benchmarks.common import machine
from benchmarks.kernels.dimensions import operations
from benchmarks.kernels.gpu import DENSE, GPU, Theta, made_up, milliseconds
from xdeconv import kernels
from xdeconv.kernels.cuda import compiling, cores, large, lines, registers, tiles
from xdeconv.kernels.cuda.cores import Cores
from xdeconv.kernels.cuda.lines import Lines
from xdeconv.kernels.cuda.registers import Registers
from xdeconv.kernels.cuda.tiles import Tiles
from xdeconv.kernels.options import Options
from xdeconv.rows.batch import Batch

ROWS, FEW, COMPONENTS = 1 << 17, 1 << 15, 64  # few rows above 32 dimensions
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
Make = Callable[..., object]  # pairs of parameters and a batch
KERNELS = ("joint", "moments")


@dataclass(frozen=True)
class Case:
    """One form in so many dimensions and a type of number."""

    d: int
    dtype: torch.dtype
    name: str
    make: Make

    def __str__(self) -> str:
        return f"d = {self.d:2d}  {str(self.dtype).removeprefix('torch.')}  {self.name}"


def chosen_before(*parameters: object) -> object:
    """Registers, lines or tiles, as they are chosen without tensor cores."""
    batch: Batch = parameters[-1]  # type: ignore[assignment]
    form = lines.form_for(batch)
    if registers.fits(batch):
        return Registers.of(*parameters)  # type: ignore[arg-type]
    return Tiles.of(*parameters) if form is None else Lines.of(*parameters, form)  # type: ignore[arg-type]


def by_cores(form: cores.Form) -> Make:
    return lambda *parameters: Cores.of(*parameters, form)  # type: ignore[arg-type]


def cases() -> Iterator[Case]:
    """Those of most interest first."""
    every = [(d, dtype) for d in (64, 32, 20, 16, 12) for dtype in (torch.float64, torch.float32)]
    first = {64: (1, False), 32: (2, True), 20: (4, True), 16: (4, True), 12: (4, True)}
    others = {64: [(1, True)], 32: [(1, True), (4, True), (4, False)], 20: [(2, True)], 16: [(2, True)], 12: []}
    for wide in (False, True):
        for d, dtype in every:
            yield _of_cores(d, dtype, *first[d], wide)
    for d in (16, 14):
        yield Case(d, torch.float64, "registers", Registers.of)
    for d, dtype in every:
        yield Case(d, dtype, "as before", chosen_before)
    for d, dtype in every:
        for pairs, kept in others[d]:
            yield _of_cores(d, dtype, pairs, kept, True)
    for d, dtype in every:
        yield _of_cores(d, dtype, *first[d], True, warps=1)


def _of_cores(d: int, dtype: torch.dtype, pairs: int, kept: bool, wide: bool, warps: int = 4) -> Case:
    name = f"{pairs} pairs, sums in {'registers' if kept else 'shared memory'}, {16 if wide else 8} x 8, {warps} warps"
    return Case(d, dtype, name, by_cores(cores.Form(pairs, kept, wide, warps)))


@cache
def problem(d: int, dtype: torch.dtype) -> tuple[Theta, Batch]:
    theta, batch = made_up(ROWS if d <= 32 else FEW, COMPONENTS, d)
    return theta, batch.to(dtype=dtype)


@cache
def small(d: int, dtype: torch.dtype) -> tuple[Theta, Batch, kernels.Stats]:
    """Rows to check with, and their sums."""
    theta, batch = made_up(301, 5, d)
    batch = replace(batch, x=batch.x + torch.randn_like(batch.x)).to(dtype=dtype)
    exact = batch.to(dtype=torch.float64)
    return theta, batch, kernels.accumulate(*(t.double() for t in theta), exact, Options(backend="reference"))


@contextmanager
def by(make: Make, poisoned: bool = False) -> Iterator[None]:
    """All pairs by one form; what is new in memory is NaN, if asked."""
    fresh = torch.Tensor.new_empty
    with ExitStack() as stack:
        stack.enter_context(patch.object(large, "_compiled", make))
        if poisoned:
            stack.enter_context(
                patch.object(torch.Tensor, "new_empty", lambda t, *s, **kind: fresh(t, *s, **kind).fill_(torch.nan))
            )
        yield


def error(case: Case) -> float:
    """The largest error of any sum, relative to the sums' size."""
    theta, batch, right = small(case.d, case.dtype)
    with by(case.make, poisoned=True):
        ours = large.accumulate(*theta, batch, DENSE, launch=None)  # type: ignore[arg-type]
    pairs = [(getattr(ours, name), getattr(right, name)) for name in ("loglik", "q", "g", "G")]
    errors = [float((a - b).abs().max()) / max(batch.n, float(b.abs().max())) for a, b in pairs]
    return max(errors) if all(e == e for e in errors) else float("nan")


def compile_both(case: Case) -> None:
    """The kernels that a case takes, and nothing launched."""
    theta, batch, _ = small(case.d, case.dtype)
    pairs = case.make(*theta, batch)
    if isinstance(pairs, Cores):
        cores.kernel_for("joint", pairs.blocks, pairs.form, pairs.rows)
    elif isinstance(pairs, Lines):
        lines.kernel_for("joint", pairs.dim, pairs.form, pairs.rows)
    elif isinstance(pairs, Tiles):
        tiles.kernel_for("joint", pairs.layout, pairs.rows)
    elif isinstance(pairs, Registers):
        registers.kernel_for("joint", pairs.d, pairs.rows)


def measured(case: Case) -> dict[str, object]:
    """The error, and milliseconds of a call and of its parts."""
    wrong = error(case)
    if not wrong < TOLERANCE[case.dtype]:
        raise ValueError(f"wrong by {wrong:.1e}")
    theta, batch = problem(case.d, case.dtype)
    with by(case.make):
        taken = milliseconds(lambda: large.accumulate(*theta, batch, DENSE, launch=None), 3)  # type: ignore[arg-type]
        part = next(large._slices(batch, COMPONENTS))
        pairs = case.make(*theta, part)
        share = torch.full((COMPONENTS, part.n), 1 / COMPONENTS, dtype=case.dtype, device=GPU)
        times = [milliseconds(call, 2) * batch.n / part.n for call in (pairs.log_joint, partial(pairs.moments, share))]  # type: ignore[attr-defined]
    rate = operations(case.d) * batch.n * COMPONENTS / taken / 1e9
    return {"error": wrong, "ms": taken, "TFLOP/s": rate, **dict(zip(KERNELS, times, strict=True))}


def line(case: Case, ready: Future[None]) -> dict[str, object]:
    """What came of a case, whatever that is."""
    try:
        ready.result()
        found = measured(case)
    except Exception as why:  # one form that fails must not hide the others
        found = {"failed": f"{type(why).__name__}: {str(why).strip()[:200]}"}
    shown = ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in found.items()
    )
    print(f"{case}: {shown}", flush=True)
    return {"d": case.d, "dtype": str(case.dtype), "form": case.name, **found}


def binary(source: str, options: list[str]) -> bytes:
    """What a process compiles."""
    return compiling.compiled(source, options)


@contextmanager
def in_processes(count: int) -> Iterator[None]:
    """Whatever is compiled is compiled by other processes, which were there before the GPU was touched."""
    with ProcessPoolExecutor(count, get_context("fork")) as pool:
        list(pool.map(abs, range(4 * count)))
        with patch.object(compiling, "compiled", lambda *what: pool.submit(binary, *what).result()):
            yield


def go_on_after(failed: int, end: float, options: argparse.Namespace) -> None:
    """Where a form left the GPU in a state that no later call survives, the others run in a process of their own."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        left = ["--seconds", str(end - time.monotonic()), "--first", str(failed + 1), "--out", str(options.out)]
        dimensions = ["--dimensions", *map(str, options.dimensions)]
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.kernels.gpu_variants", *left, *dimensions])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu_variants.json"))
    parser.add_argument("--seconds", type=float, default=85.0, help="forms not begun by then are left out")
    parser.add_argument("--dimensions", type=int, nargs="+", default=[12, 14, 16, 20, 32, 64])
    parser.add_argument("--first", type=int, default=0, help="forms to leave out: they are in the file")
    options = parser.parse_args()
    with in_processes(min(14, len(os.sched_getaffinity(0)))):
        measure_all(options)


def measure_all(options: argparse.Namespace) -> None:
    """A line for each form, as long as there is time."""
    end = time.monotonic() + options.seconds
    table = json.loads(options.out.read_text()) if options.first else []
    torch.zeros(1, device=GPU)
    print(machine.about(), flush=True)
    wanted = [case for case in cases() if case.d in options.dimensions][options.first :]
    for d, dtype in {(case.d, case.dtype) for case in wanted}:
        small(d, dtype)
    pool = ThreadPoolExecutor(8)
    futures = [pool.submit(compile_both, case) for case in wanted]
    for number, (case, ready) in enumerate(zip(wanted, futures, strict=True), options.first):
        if time.monotonic() < end:
            table.append(line(case, ready))
            options.out.write_text(json.dumps(table, indent=1))
            go_on_after(number, end, options)
    pool.shutdown(wait=False, cancel_futures=True)


if __name__ == "__main__":
    main()
