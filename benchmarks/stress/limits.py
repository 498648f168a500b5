"""A user who may write nowhere, 2 GiB of memory, disks that fill in every writer, and clocks that jump."""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.stress.calls import called, defect
from benchmarks.stress.files import make

HEADER = ["what", "expected", "seen"]
FIT = ("fit", "rows.parquet", "-c", "x,y", "-k", "2", "--epochs", "2", "--moves", "none", "--validation", "0")
MEMORY = 2 << 30
LARGE = 2_000_000  # rows, of 2 values and errors: 64 MB
NOBODY = 65534
WRITERS: dict[str, tuple[str, ...]] = {
    "fit": (*FIT, "-o", "TARGET.safetensors"),
    "fit --checkpoint": (*FIT, "-o", "sound2.safetensors", "--checkpoint", "TARGET.checkpoint"),
    "score --per-row": ("score", "sound.safetensors", "rows.parquet", "--per-row", "TARGET.parquet"),
    "posterior, Parquet": ("posterior", "sound.safetensors", "rows.parquet", "-o", "TARGET.parquet"),
    "posterior, Arrow": ("posterior", "sound.safetensors", "rows.parquet", "-o", "TARGET.arrow"),
    "posterior, CSV": ("posterior", "sound.safetensors", "rows.parquet", "-o", "TARGET.csv"),
    "posterior, CSV.gz": ("posterior", "sound.safetensors", "rows.parquet", "-o", "TARGET.csv.gz"),
    "members": ("members", "sound.safetensors", "rows.parquet", "-o", "TARGET.parquet"),
    "sample": ("sample", "sound.safetensors", "-o", "TARGET.parquet", "-n", "1000"),
    "condition": ("condition", "sound.safetensors", "x=1", "-o", "TARGET.safetensors"),
    "export, npz": ("export", "sound.safetensors", "-o", "TARGET.npz"),
    "export, FITS": ("export", "sound.safetensors", "-o", "TARGET.fits"),
    "select --results": (
        "select",
        "rows.parquet",
        "-c",
        "x,y",
        "-k",
        "1",
        "--epochs",
        "2",
        "--results",
        "TARGET.jsonl",
    ),
    "plot": ("plot", "sound.safetensors", "-o", "TARGET.png"),
    "explore": ("explore", "sound.safetensors", "-o", "TARGET.html"),
    "prepare": ("prepare", "rows.parquet", "TARGET.store"),
    "simulate": ("simulate", "gaia", "--rows", "1000", "-o", "TARGET.parquet"),
}
PROGRAM = """
import sys
import numpy as np
import xdeconv as xd
X = np.random.default_rng(0).normal(size=(300, 2))
mixture = xd.fit(X, 2, error=[0.1, 0.1], epochs=3, checkpoint=sys.argv[1] + "/c").mixture
mixture.save(sys.argv[1] + "/m.safetensors")
print(mixture.means.tolist())
"""


def part(folder: Path, arguments: argparse.Namespace) -> tuple[list[list[str]], list[str]]:
    """All four."""
    make(folder)
    with chdir(folder):
        return [*unprivileged(folder), *little_memory(folder), *full_disks(folder), *jumping_clocks(folder)], []


# An unprivileged user


def unprivileged(folder: Path) -> list[list[str]]:
    """A fit by a user whose home is not there, from an installation that is not his: the same mixture."""
    if os.getuid() != 0:
        return [["an unprivileged user", "the same mixture", "not run: only root can become another user"]]
    own = folder / "nobody"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    folder.chmod(0o755)
    right = _program([], folder, os.environ)
    capability = "+dac_read_search"  # an interpreter in somebody's home can be read, and nothing can be written
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", f"--inh-caps={capability}",
              f"--ambient-caps={capability}"]  # fmt: skip
    seen = _program(become, own, {**os.environ, "HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent"})
    return [["an unprivileged user", "the same mixture", "the same mixture" if seen == right else f"**{seen}**"]]


def _program(before: list[str], folder: Path, environment: Any) -> str:
    command = [*before, sys.executable, "-c", PROGRAM, str(folder)]
    environment = {name: value for name, value in environment.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=folder)
    return done.stdout if done.returncode == 0 else done.stderr.strip()[-300:]


# Memory


def little_memory(folder: Path) -> list[list[str]]:
    """Commands with 2 GiB of data: all of them end, with rows of which one copy takes 64 MB."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    names = ("x", "y", "x_error", "y_error")
    pq.write_table(pa.table({name: rng.uniform(0.1, 1.0, LARGE) for name in names}), folder / "large.parquet")
    fit = ("fit", "large.parquet", "-c", "x,y", "-k", "8", "--epochs", "2", "--moves", "none", "--force")
    cases = {
        "fit": (*fit, "-o", "large.safetensors"),
        "fit --stream": (*fit, "-o", "large.safetensors", "--stream"),
        "fit, minibatch-em": (*fit, "-o", "large.safetensors", "--method", "minibatch-em"),
        "posterior": ("posterior", "large.safetensors", "large.parquet", "-o", "large-out.parquet", "--force"),
        "prepare": ("prepare", "large.parquet", "large.store"),
    }
    found = []
    for name, words in cases.items():
        command = [sys.executable, "-m", "xdeconv", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=_two_gibibytes)
        ended = f"exit code {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1][-200:]}"
        said = "done" if done.returncode == 0 else f"**{ended}**"
        found.append([f"2 GiB of memory, {LARGE:,} rows: {name}", "done", said])
    return found


def _two_gibibytes() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


# Disks


def full_disks(folder: Path) -> list[list[str]]:
    """Every writer on a disk that fills: exit code 3 and one line, what was there unchanged, nothing partial left."""
    ways: dict[str, Callable[[Path], Any]] = {"files of at most 200 bytes": _short_files}
    if os.getuid() == 0:
        ways["a disk of 4 KiB"] = _small_disk
    found = []
    for way, limited in ways.items():
        for name, words in WRITERS.items():
            place = folder / "full"
            place.mkdir(exist_ok=True)
            with limited(place):
                found.append([f"{way}: {name}", "one line, exit code 3", _written(place, words)])
    return found


def _written(place: Path, words: tuple[str, ...]) -> str:
    target = next(word for word in words if "TARGET" in word).replace("TARGET", str(place / "target"))
    code, err, problem = called([word.replace("TARGET", str(place / "target")) for word in words])
    wrong = defect(code, err, problem)
    left = [path.name for path in place.iterdir() if path.name != "lost+found"]
    if not wrong and code == 3 and (not left or target.endswith("store")):
        return "one line, exit code 3"
    return f"**{wrong or f'exit code {code}'}; left: {left}; {err.strip()[-200:]}**"


@contextmanager
def _short_files(place: Path) -> Iterator[None]:
    """No file may grow beyond 200 bytes, as on a full disk or beyond a quota."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, heard)
        _empty(place)


@contextmanager
def _small_disk(place: Path) -> Iterator[None]:
    """A file system of one page, which is taken."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(place)], check=True)
    (place / "lost+found").write_bytes(bytes(4096))
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)
        _empty(place)


def _empty(place: Path) -> None:
    import shutil

    shutil.rmtree(place)


# Clocks


def jumping_clocks(folder: Path) -> list[list[str]]:
    """A clock that jumps by a year with every look, and files from 1970 and 2100: the same bits."""
    import xdeconv as xd

    def fit(name: str) -> tuple[list[Any], Any]:
        checkpoint = xd.Checkpoint(folder / name, every=0.0)
        result = xd.fit(xd.open("rows.csv", ["x", "y"], memory=False), 2, epochs=5, tol=0, moves="none",
                        cache="none", checkpoint=checkpoint)  # fmt: skip
        return result.mixture.means.tolist(), result.history

    right, _ = fit("steady")
    found = []
    for name, year in {"forwards": 3.15e7, "backwards": -3.15e7}.items():
        with _clock(year):
            means, history = fit(f"jump-{name}")
        fine = means == right and all(record.seconds >= 0 for record in history)
        found.append([f"a clock that jumps {name}", "the same bits", "the same bits" if fine else "**others**"])
    for year, seconds in {"1970": 0, "2100": 4_102_444_800}.items():
        os.utime("rows.csv", (seconds, seconds))
        fine = fit(f"file-{year}")[0] == right
        found.append([f"a file of {year}", "the same bits", "the same bits" if fine else "**others**"])
    return found


@contextmanager
def _clock(step: float) -> Iterator[None]:
    """The time of day jumps at every look; the monotonic clock is what it is."""
    real, looks = time.time, [0]

    def jumping() -> float:
        looks[0] += 1
        return real() + step * looks[0]

    time.time = jumping
    try:
        yield
    finally:
        time.time = real
