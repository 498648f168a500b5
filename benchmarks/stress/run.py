"""Stress: what takes minutes and must hold all the same. Each part writes its own section of RESULTS.md.

python -m benchmarks.stress --part damage --inputs 50000    damaged files of every kind, given to every command
python -m benchmarks.stress --part kills --times 50         kill -9 in fit, select, bootstrap and prepare
python -m benchmarks.stress --part changes                  files that change under every reader
python -m benchmarks.stress --part forks                    fits in children of every kind, after fits in their parent
python -m benchmarks.stress --part limits                   another user, little memory, full disks, clocks that jump
python -m benchmarks.stress --part components               1,500 and 2,000 components, with moves
python -m benchmarks.stress --part soak --minutes 30        streamed minibatch EM: memory and rate stay flat
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.common.machine import about
from benchmarks.common.results import describe, table, write_section
from benchmarks.stress import changes, damage, forks, kills, limits, long

Part = Callable[[Path, argparse.Namespace], tuple[list[list[str]], list[str]]]
PARTS: dict[str, tuple[Part, str, list[str], str]] = {
    "damage": (damage.part, "Stress: damaged files", damage.HEADER, " --inputs {inputs}"),
    "kills": (kills.part, "Stress: kill -9 and resume", kills.HEADER, " --times {times}"),
    "changes": (changes.part, "Stress: files that change", changes.HEADER, ""),
    "forks": (forks.part, "Stress: fits in child processes", forks.HEADER, ""),
    "limits": (limits.part, "Stress: users, memory, disks and clocks", limits.HEADER, ""),
    "components": (long.components, "Stress: many components", long.COMPONENTS, ""),
    "soak": (long.soak, "Stress: soak", long.SOAK, " --minutes {minutes:g} --rows {rows}"),
}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(PARTS), required=True)
    parser.add_argument("--inputs", type=int, default=50_000, help="damage: how many inputs")
    parser.add_argument("--times", type=int, default=50, help="kills: how often")
    parser.add_argument("--minutes", type=float, default=30.0, help="soak: how long")
    parser.add_argument("--rows", type=int, default=500_000, help="soak: rows of an epoch")
    parser.add_argument("--device", default="cpu", help="soak: cpu or cuda")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="print, and leave RESULTS.md as it is")
    arguments = parser.parse_args()
    run, title, header, options = PARTS[arguments.part]
    folder = Path(tempfile.mkdtemp(prefix="xdeconv-stress-"))
    began = time.monotonic()
    try:
        rows, remarks = run(folder, arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    said = f"`python -m benchmarks.stress --part {arguments.part}{options.format(**vars(arguments))}`"
    text = "\n".join([f"{said} on {describe(about())}", "", f"{time.monotonic() - began:.0f} s.", "",
                      table(header, rows), *([""] if remarks else []), *remarks])  # fmt: skip
    print(text)
    if not arguments.dry:
        write_section(title, text)
