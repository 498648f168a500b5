"""One large file after the other question: what a user waits for, step by step, the most important steps first.

Kernels are compiled before, by the same calls on a small file. Each step is said as soon as it is done, and the table
of all is written again each time, so that nothing is lost where time runs out: then it says what was not reached.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.files.making import COLUMNS

SMALL_ROWS, EPOCHS, HELD_OUT = 1 << 18, 3, 100_000
HEAD = ["what", "seconds", "M rows per second", "cores busy", "asked, of 20 M rows"]
ASKED = {
    "simulate to Parquet": "3 M rows/s with a GPU, 1 with 16 cores",
    "fit from Parquet: until the first pass is done": "6 s",
    "score": "5 s",
    "prepare": "5 M rows/s on 16 cores, 1 on 2",
    "fit from a store: until the first pass is done": "4 s",
    "a pass, streamed from the store, kept nowhere": "25 M rows/s",
    "posterior means and covariances to Parquet": "25 s",
}


class TimeUp(KeyboardInterrupt):
    """The budget is spent: whatever runs ends as it does on Ctrl-C."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Interrupt what is inside after so many seconds, and again until it ends: a fit takes the first as its own end."""

    def stop(*_: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), 3.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class Steps:
    """The lines of the table, and where they are written."""

    device: str
    rows: int
    k: int
    folder: Path
    out: Path
    lines: list[list[str]] = field(default_factory=list)

    def add(self, what: str, rows: int, seconds: float, cores: float) -> None:
        """A line that is done."""
        self.lines.append([what, f"{seconds:.2f}", f"{rows / seconds / 1e6:.2f}", f"{cores / seconds:.1f}",
                           ASKED.get(what, "")])  # fmt: skip
        print("  ".join(self.lines[-1]), flush=True)
        self.write("")

    @contextmanager
    def timed(self, what: str, rows: int) -> Iterator[None]:
        """Time what is inside, of so many rows."""
        began, used = time.perf_counter(), time.process_time()
        yield
        self.add(what, rows, time.perf_counter() - began, time.process_time() - used)

    def write(self, said: str) -> None:
        """The table so far, as RESULTS.md has it."""
        from benchmarks.common import machine, results

        command = f"`python -m benchmarks.files --device {self.device} --rows {self.rows}`"
        head = f"{command}, k = {self.k}, on {results.describe(machine.about())}"
        body = "\n\n".join([head, results.table(HEAD, self.lines), *([said] if said else [])])
        (self.out / "files-large.md").write_text(f"## Files: a large one\n\n{body}\n")


def run(device: str, rows: int, k: int, seconds: float, folder: Path, out: Path) -> None:
    """All steps, as far as they come in so many seconds."""
    out.mkdir(parents=True, exist_ok=True)
    steps, said = Steps(device, rows, k, folder, out), ""
    try:
        with at_most(seconds):
            for work in (compile_, parquet_, store_, posterior_):
                work(steps)
    except KeyboardInterrupt:
        done = {line[0] for line in steps.lines}
        said = f"Stopped after {seconds:g} s. Not reached: {'; '.join(what for what in ASKED if what not in done)}."
        print(said, flush=True)
    steps.write(said)


def compile_(steps: Steps) -> None:
    """The same calls on a small file, so that kernels are compiled: the same types, gaps and number of components."""
    few, store, rows = steps.folder / "small.parquet", steps.folder / "small.store", min(SMALL_ROWS, steps.rows // 4)
    with steps.timed(f"the same calls for {rows:,} rows, which compiles kernels", rows):
        simulate(steps.device, rows, few)
        model = fitted(steps, few, rows, ignored)
        model.score(few, device=steps.device)
        model.save(steps.folder / "model.safetensors")
        denoise(steps, few)
        prepared(few, store)
        fitted(steps, store, rows, ignored, cache="none")


def parquet_(steps: Steps) -> None:
    """A Parquet file is made, fitted and scored."""
    path = steps.folder / "large.parquet"
    with steps.timed("simulate to Parquet", steps.rows):
        simulate(steps.device, steps.rows, path)
    model = first_pass(steps, path, "Parquet")
    with steps.timed("score", steps.rows):
        model.score(path, device=steps.device)
    model.save(steps.folder / "model.safetensors")


def store_(steps: Steps) -> None:
    """A store is made, fitted, and streamed."""
    path, store = steps.folder / "large.parquet", steps.folder / "large.store"
    with steps.timed("prepare", steps.rows):
        prepared(path, store)
    first_pass(steps, store, "a store")
    ends: list[tuple[float, float]] = []
    fitted(steps, store, steps.rows, lambda _: ends.append((time.perf_counter(), time.process_time())), "none")
    (began, used), (ended, spent) = ends[-2:]
    steps.add("a pass, streamed from the store, kept nowhere", steps.rows, ended - began, spent - used)


def posterior_(steps: Steps) -> None:
    """The rows of the Parquet file are denoised."""
    with steps.timed("posterior means and covariances to Parquet", steps.rows):
        denoise(steps, steps.folder / "large.parquet")


def simulate(device: str, rows: int, path: Path) -> None:
    from xdeconv.catalog.writers import write_blocks
    from xdeconv.simulate._gaia import gaia_tables

    write_blocks(path, (block for table in gaia_tables(rows, 1, device=device) for block in table.to_batches()))


def prepared(path: Path, store: Path) -> None:
    from xdeconv.catalog.store import prepare

    shutil.rmtree(store, ignore_errors=True)
    prepare(str(path), store, reading={"columns": COLUMNS})


def ignored(_: str) -> None:
    """Told of what nobody times."""


def fitted(steps: Steps, path: Path, rows: int, told: Callable[[str], None], cache: Any = None) -> Any:
    """The mixture of a fit without moves; ``told`` hears of frames that are known and passes that are done."""
    import xdeconv as xd
    from xdeconv.fitting.workspace import Workspace

    made = Workspace.of

    def of(*words: Any) -> Any:
        told("frame")
        return made(*words)

    Workspace.of = of
    cache = cache or ("device" if steps.device == "cuda" else None)  # as 20 M rows are, and no few held in memory
    try:
        source = xd.open(str(path), COLUMNS, memory=False)
        result = xd.fit(source, steps.k, moves="none", method="em", epochs=EPOCHS, tol=0, device=steps.device,
                        cache=cache, validation=min(0.1, HELD_OUT / rows), callback=lambda _: told("pass"))  # fmt: skip
    finally:
        Workspace.of = made
    if result.interrupted:
        raise TimeUp
    return result.mixture


def first_pass(steps: Steps, path: Path, name: str) -> Any:
    """Two lines of a fit, until rows were looked at and until the first pass is done; its mixture."""
    seen: dict[str, tuple[float, float]] = {}
    began, used = time.perf_counter(), time.process_time()

    def told(what: str) -> None:
        seen.setdefault(what, (time.perf_counter() - began, time.process_time() - used))

    model = fitted(steps, path, steps.rows, told)
    steps.add(f"fit from {name}: until rows were looked at", steps.rows, *seen["frame"])
    steps.add(f"fit from {name}: until the first pass is done", steps.rows, *seen["pass"])
    return model


def denoise(steps: Steps, path: Path) -> None:
    """What the command ``posterior`` does with the model that was saved."""
    from xdeconv.cli.posterior import posterior

    posterior(str(steps.folder / "model.safetensors"), [str(path)], steps.folder / "denoised.parquet",
              device=steps.device, force=True)  # fmt: skip
