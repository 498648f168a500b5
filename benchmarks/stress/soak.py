"""A long process of many kinds of work: what it holds and takes stays flat, and answers are the same bits.

It runs where only a part of the libraries is installed, and on a GPU: ``--device cuda``.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from benchmarks.stress.long import anonymous
from benchmarks.stress.soak_tasks import TASKS, Desk, asked

HEADER = ["what", "first fifth of the rounds", "last fifth", "flat"]
SEEDS = 2  # the rounds that warm up, and after which seeds come again
ROWS = {"cpu": 1500, "cuda": 20_000}
MIB = 2**20


@dataclass(frozen=True)
class Look:
    """What a process holds after a round, and what the round took."""

    wall: float
    busy: float
    host: float
    files: int
    threads: int
    allocated: float = 0.0
    reserved: float = 0.0
    used: float = 0.0


@dataclass
class Seen:
    """All that a soak saw so far."""

    first: dict[tuple[str, int], bytes] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, list[str]] = field(default_factory=dict)
    other: dict[str, int] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    answers: int = 0
    again: int = 0


def part(folder: Path, arguments: argparse.Namespace) -> tuple[list[list[str]], list[str]]:
    """Every task in turn until the minutes are over; a round that they cut off is left out of the table."""
    with silent():
        return _part(folder, arguments)


@contextmanager
def silent() -> Iterator[None]:
    """Nothing is told of fits that are cancelled or in trouble."""
    log = logging.getLogger("xdeconv")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def _part(folder: Path, arguments: argparse.Namespace) -> tuple[list[list[str]], list[str]]:
    desk = Desk(arguments.device, arguments.rows or ROWS[arguments.device], folder)
    seen, end, number = Seen(), time.monotonic() + 60 * arguments.minutes, 0
    while time.monotonic() < end:
        began = time.monotonic(), time.process_time()
        for name in TASKS:
            if time.monotonic() < end:
                ask(name, desk, number % SEEDS, seen)
        if time.monotonic() < end:
            seen.looks.append(look(desk.device, *began))
            print(f"round {number}: {seen.looks[-1]}", flush=True)
        number += 1
    return rows_of(seen, desk.device), remarks_of(seen, desk)


def ask(name: str, desk: Desk, seed: int, seen: Seen) -> None:
    """One task, and whether it answers as it did before."""
    if name in seen.skipped:
        return
    seen.answers += 1
    try:
        found = asked(name, desk, seed).tobytes()
    except ImportError as problem:
        seen.skipped[name] = problem.name or str(problem)
        seen.answers -= 1
    except Exception as problem:
        seen.failed.setdefault(name, []).append(f"{type(problem).__name__}: {problem}"[:300])
    else:
        seen.again += (name, seed) in seen.first
        if seen.first.setdefault((name, seed), found) != found:
            seen.other[name] = seen.other.get(name, 0) + 1


def look(device: str, wall: float, busy: float) -> Look:
    """What this process holds now."""
    gc.collect()
    gpu: tuple[float, ...] = ()
    if device == "cuda":
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        gpu = torch.cuda.memory_allocated() / MIB, torch.cuda.memory_reserved() / MIB, (total - free) / MIB
    threads = len(os.listdir("/proc/self/task"))
    spent = time.monotonic() - wall, time.process_time() - busy
    return Look(*spent, anonymous() / MIB, len(os.listdir("/proc/self/fd")), threads, *gpu)


def rows_of(seen: Seen, device: str) -> list[list[str]]:
    """The first and the last fifth of the rounds after those that warm up."""
    looks = seen.looks[SEEDS:]
    if not looks:
        return [["rounds", str(len(seen.looks)), "too few to compare", "**no**"]]
    fifth = max(1, len(looks) // 5)
    ends = looks[:fifth], looks[-fifth:]
    rows = [["rounds", str(len(seen.looks)), f"{SEEDS} of them warm up", ""],
            compared("host memory (MiB)", ends, lambda one: one.host, 50.0),
            compared("open descriptors", ends, lambda one: one.files, 0),
            compared("threads", ends, lambda one: one.threads, 0),
            compared("seconds of a round", ends, lambda one: one.wall, 0.1, relative=True),
            compared("CPU seconds of a round", ends, lambda one: one.busy, 0.1, relative=True)]  # fmt: skip
    if device == "cuda":
        rows[2:2] = [compared("GPU memory in tensors (MiB)", ends, lambda one: one.allocated, 1.0),
                     compared("GPU memory reserved by torch (MiB)", ends, lambda one: one.reserved, 0.1, relative=True),
                     compared("GPU memory in use (MiB)", ends, lambda one: one.used, 0.1, relative=True)]  # fmt: skip
    return rows


def compared(what: str, ends: Sequence[list[Look]], of: Callable[[Look], float], more: float,
             relative: bool = False) -> list[str]:  # fmt: skip
    """A line: medians of both ends, and whether the last is larger than the first by no more than this."""
    first, last = (statistics.median(of(one) for one in part) for part in ends)
    flat = last <= first * (1 + more) if relative else last <= first + more
    return [what, f"{first:,.1f}", f"{last:,.1f}", "yes" if flat else "**no**"]


def remarks_of(seen: Seen, desk: Desk) -> list[str]:
    """What was asked and answered, what failed, what differed and what was not asked."""
    lines = [f"{seen.answers:,} tasks of {len(TASKS) - len(seen.skipped)} kinds on {desk.n:,} rows; "
             f"{seen.again:,} were asked again with the same seed, of which {sum(seen.other.values())} gave other bits "
             f"than the first time; {sum(map(len, seen.failed.values()))} failed.", ""]  # fmt: skip
    lines += [f"- other bits: {name}, {count} times" for name, count in seen.other.items()]
    lines += [f"- failed {len(all_)} times: {name}: {all_[0]}" for name, all_ in seen.failed.items()]
    missing = np.unique(list(seen.skipped.values())).tolist()
    if seen.skipped:
        lines.append(f"- not asked ({', '.join(missing)} not installed there): {', '.join(seen.skipped)}")
    return lines
