"""Damaged files of every kind, given to every command that reads them: one line and an exit code, never a traceback.

Inputs are numbered: an input's kind of file, damage and command follow from its number and the seed alone. They run in
processes of their own, a few thousand each, with bounded memory, so that a crash ends nothing but is counted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.stress import files
from benchmarks.stress.calls import called, defect
from benchmarks.stress.files import CHECKED, SUFFIXES, Sound, make

CHUNK = 5000
SPARE_BYTES = 6 << 30  # of addresses, beyond what the libraries have taken when they are loaded
SLOW = 20.0  # seconds
HEADER = ["file", "inputs", "refused", "read, as undamaged", "read, other values", "defects"]
FIT = ("-c", "x,y", "-k", "1", "--epochs", "1", "--moves", "none", "--validation", "0")
DATA: dict[str, tuple[int, tuple[str, ...]]] = {
    "score": (8, ("score", "MODEL", "FILE")),
    "info": (8, ("info", "FILE")),
    "posterior": (6, ("posterior", "MODEL", "FILE", "-o", "out.parquet", "--force")),
    "members": (4, ("members", "MODEL", "FILE", "-o", "out.parquet", "--force")),
    "classify": (4, ("classify", "FILE", "--model", "a=MODEL", "--model", "b=MODEL", "-o", "out.parquet", "--force")),
    "fit": (4, ("fit", "FILE", *FIT, "-o", "out.safetensors", "--force")),
    "fit --stream": (2, ("fit", "FILE", *FIT, "-o", "out.safetensors", "--force", "--stream")),
    "fit --where": (2, ("fit", "FILE", *FIT, "--where", "x > -9", "-o", "out.safetensors", "--force")),
    "prepare": (3, ("prepare", "FILE", "-c", "x,y", "out.store")),
    "select": (1, ("select", "FILE", "-c", "x,y", "-k", "1", "--criterion", "bic", "--epochs", "1")),
    "bootstrap": (1, ("bootstrap", "MODEL", "FILE", "--draws", "2", "--epochs", "1")),
    "errors": (2, ("errors", "MODEL", "FILE")),
    "check": (1, ("check", "MODEL", "FILE")),
    "plot": (1, ("plot", "MODEL", "--calibration", "FILE", "-o", "out.png", "--force")),
}
MODELS: dict[str, tuple[int, tuple[str, ...]]] = {
    "info": (6, ("info", "FILE")),
    "score": (3, ("score", "FILE", "ROWS")),
    "condition": (4, ("condition", "FILE", "x=1")),
    "sample": (3, ("sample", "FILE", "-o", "out.csv", "--force", "-n", "10")),
    "export": (3, ("export", "FILE", "-o", "out.npz", "--force")),
    "posterior": (2, ("posterior", "FILE", "ROWS", "-o", "out.parquet", "--force")),
    "explore": (1, ("explore", "FILE", "-o", "out.html", "--force")),
    "plot": (1, ("plot", "FILE", "-o", "out.png", "--force")),
}
RESUMED, SELECTED = (tuple({"CHECKPOINT": "FILE", "RESULTS": "FILE"}.get(w, w) for w in words)
                     for words in (files.FIT, files.SELECT))  # fmt: skip
OTHERS: dict[str, dict[str, tuple[int, tuple[str, ...]]]] = {
    "checkpoint": {"fit --resume": (1, (*RESUMED, "--epochs", "3", "--resume", "-o", "out.safetensors", "--force"))},
    "results": {"select": (1, SELECTED)},
    "config": {"fit": (1, ("fit", "ROWS", "--config", "FILE", "-o", "out.safetensors", "--force"))},
    "model": MODELS,
}  # fmt: skip


REWRITTEN = ("checkpoint", "results")  # by the command that reads them

# Damage


def bit(data: bytearray, rng: random.Random) -> None:
    """One bit."""
    at = rng.randrange(len(data))
    data[at] ^= 1 << rng.randrange(8)


def cut(data: bytearray, rng: random.Random) -> None:
    """The end is lost."""
    del data[rng.randrange(len(data)) :]


def swap(data: bytearray, rng: random.Random) -> None:
    """Two pieces have changed places."""
    size = rng.randint(1, max(1, min(64, len(data) // 3)))
    one, other = sorted(rng.randrange(len(data) - size + 1) for _ in range(2))
    data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]


def header(data: bytearray, rng: random.Random) -> None:
    """Some bytes near the beginning or the end, where formats describe themselves, are others."""
    for _ in range(rng.randint(1, 8)):
        near = rng.randrange(min(256, len(data)))
        data[near if rng.random() < 0.7 else len(data) - 1 - near] = rng.choice([0, 0xFF, 0x30, rng.randrange(256)])


DAMAGES: dict[str, Callable[[bytearray, random.Random], None]] = {
    "bit": bit,
    "cut": cut,
    "swap": swap,
    "header": header,
}


# Inputs


def combinations(sounds: list[Sound]) -> list[tuple[Sound, str, str, tuple[str, ...]]]:
    """Every kind of file with every damage and every command, cheap commands several times."""
    found = []
    for sound, damage in itertools.product(sounds, DAMAGES):
        for name, (times, words) in OTHERS.get(sound.kind, DATA).items():
            found += [(sound, damage, name, words)] * times
    return found


def work(folder: Path, seed: int, numbers: range) -> None:
    """Run some inputs in this process: a line of JSON each, flushed, so that a crash loses nothing."""
    sounds = make(folder)
    every = combinations(sounds)
    undamaged = {sound.kind: values(sound) for sound in sounds}
    os.chdir(folder)
    _build_once()
    _bound_memory()
    for number in numbers:
        rng = random.Random(f"{seed} {number}")
        sound, damage, name, words = every[random.Random(f"order {seed} {number}").randrange(len(every))]
        if number < len(every):
            sound, damage, name, words = every[number]
        print(json.dumps({"number": number, "kind": sound.kind, "damage": damage, "command": name}), flush=True)
        print(json.dumps({"number": number, **tried(sound, damage, words, rng, undamaged[sound.kind])}), flush=True)


def tried(sound: Sound, damage: str, words: tuple[str, ...], rng: random.Random, right: Any) -> dict[str, Any]:
    """Damage a file, run a command on it, and put the file right again."""
    import shutil

    content = sound.path.read_bytes()
    data = bytearray(content)
    DAMAGES[damage](data, rng)
    sound.path.write_bytes(bytes(data))
    known = {"FILE": str(sound.read), "ROWS": "rows.parquet"}
    first = values(sound) if sound.kind in REWRITTEN else None
    began = time.process_time()
    try:
        code, err, problem = called([known.get(w, w.replace("MODEL", "sound.safetensors")) for w in words])
        found = {"code": code, "error": err.strip()[-300:], "defect": defect(code, err, problem)}
        if code == 0 and bytes(data) != content:
            read = first or values(sound)
            same = read in (right, "refused")  # a command that reads descriptions alone did not see the damage
            same |= sound.kind == "results" and all(trial in right for trial in read)  # those that were lost are made
            found["same"] = same
            if not same and sound.kind in CHECKED:
                found["defect"] = "other values were read from a file with a checksum"
    finally:
        sound.path.write_bytes(content)
        shutil.rmtree("out.store", ignore_errors=True)
    seconds = time.process_time() - began
    if seconds > SLOW:
        found["defect"] = found["defect"] or f"took {seconds:.0f} s"
    return found


def values(sound: Sound) -> Any:
    """What is read from a file, as something to compare; None where it cannot be read, or has no rows."""
    import xdeconv as xd
    from xdeconv.fitting.state import load_state
    from xdeconv.studies.trials import kept_in

    try:
        with contextlib.redirect_stderr(io.StringIO()):
            if sound.kind == "model":
                mixture = xd.load(sound.path)
                return [mixture.weights.tolist(), mixture.means.tolist(), mixture.covariances.tolist()]
            if sound.kind == "checkpoint":
                state = load_state(sound.path)
                return [state.epoch, *(tensor.tolist() for tensor in state.learner.values())]
            if sound.kind == "results":
                settings = json.loads(sound.path.read_text().splitlines()[0])["settings"]
                trials = kept_in(sound.path, settings, None).trials
                return [[key, trial.score, trial.mixture.means.tolist()] for key, trial in trials.items()]
            if sound.kind in SUFFIXES or sound.kind in ("manifest", "shard"):
                batch = xd.open(sound.read, ["x", "y"]).load().batch
                return [batch.x.numpy().tobytes(), None if batch.noise is None else batch.noise.numpy().tobytes()]
    except (ValueError, OSError):
        return "refused"
    return None


def _build_once() -> None:
    """Typer builds all commands again for every call, which takes longer than most of them."""
    from importlib import import_module

    import typer

    import_module("xdeconv.cli")  # which registers all commands
    commands = import_module("xdeconv.cli.app")
    commands.app = typer.main.get_command(commands.app)


def _bound_memory() -> None:
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (taken + SPARE_BYTES, taken + SPARE_BYTES))


# The part


def part(folder: Path, arguments: argparse.Namespace) -> tuple[list[list[str]], list[str]]:
    """The table, and every defect in a line."""
    seen: Counter[tuple[str, str]] = Counter()
    codes: Counter[Any] = Counter()
    remarks, kinds = [], dict[str, None]()
    for found in until_interrupted(results(folder, arguments.inputs, arguments.seed)):
        kind = found["kind"]
        kinds[kind] = None
        codes[found["code"]] += 1
        seen[kind, "inputs"] += 1
        seen[kind, outcome(found)] += 1
        if found["defect"]:
            place = f"{kind}, {found['damage']}, {found['command']}, input {found['number']}"
            remarks.append(f"- {place}: {found['defect']}; {found['error']}")
    columns = ("inputs", "refused", "same", "other", "defects")
    lines = [[kind, *(f"{seen[kind, column]:,}" for column in columns)] for kind in kinds]
    total = ["all", *(f"{sum(seen[kind, column] for kind in kinds):,}" for column in columns)]
    ended = "Exit codes: " + ", ".join(f"{code} {count:,}" for code, count in sorted(codes.items(), key=str)) + "."
    return [*lines, total], [ended, *remarks]


def until_interrupted(found: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What comes until Ctrl-C: the table is then of the inputs so far."""
    with contextlib.suppress(KeyboardInterrupt):
        yield from found


def outcome(found: dict[str, Any]) -> str:
    """What came of an input, in a word."""
    if found["defect"]:
        return "defects"
    if found["code"]:
        return "refused"
    return "same" if found.get("same", True) else "other"


def results(folder: Path, inputs: int, seed: int) -> Iterator[dict[str, Any]]:
    """What came of every input; a process that dies is followed by one that begins after the input it died of."""
    start = 0
    while start < inputs:
        stop = min(start + CHUNK, inputs)
        place = Path(tempfile.mkdtemp(dir=folder))
        command = [sys.executable, "-m", "benchmarks.stress.damage", str(place), str(seed), str(start), str(stop)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            begun: dict[str, Any] = {}
            for line in process.stdout:
                found = json.loads(line)
                if "code" not in found:
                    begun = found
                    continue
                yield {**begun, **found}
                start, begun = found["number"] + 1, {}
        if begun:
            yield {
                **begun,
                "code": process.returncode,
                "defect": f"the process died ({process.returncode})",
                "error": "",
            }
            start = begun["number"] + 1
        elif start < stop:
            raise RuntimeError(f"inputs {start} to {stop}: the process ended with {process.returncode}")


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), range(int(sys.argv[3]), int(sys.argv[4])))
