"""Stress: what takes minutes and must hold all the same. Each part writes its own section of RESULTS.md.

python -m benchmarks.stress --part damage --inputs 50000    damaged files of every kind, given to every command
python -m benchmarks.stress --part kills --times 50         kill -9 in fit, select, bootstrap and prepare
python -m benchmarks.stress --part changes                  files that change under every reader
python -m benchmarks.stress --part forks                    fits in children of every kind, after fits in their parent
python -m benchmarks.stress --part limits                   another user, little memory, full disks, clocks that jump
python -m benchmarks.stress --part components               1,500 and 2,000 components, with moves
python -m benchmarks.stress --part stream --minutes 30      streamed minibatch EM: memory and rate stay flat
python -m benchmarks.stress --part soak --minutes 8         many kinds of work in one process (--device cuda)

What was found on another machine is kept there by --json FILE, and put into RESULTS.md here by --write FILE.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common.machine import about
from benchmarks.common.results import describe, table, write_section
from benchmarks.stress import changes, damage, forks, kills, limits, long, soak

Part = Callable[[Path, argparse.Namespace], tuple[list[list[str]], list[str]]]
PARTS: dict[str, tuple[Part, str, list[str], str]] = {
    "damage": (damage.part, "Stress: damaged files", damage.HEADER, " --inputs {inputs} --seed {seed}"),
    "kills": (kills.part, "Stress: kill -9 and resume", kills.HEADER, " --times {times} --seed {seed} --kinds {kinds}"),
    "changes": (changes.part, "Stress: files that change", changes.HEADER, ""),
    "forks": (forks.part, "Stress: fits in child processes", forks.HEADER, ""),
    "limits": (limits.part, "Stress: users, memory, disks and clocks", limits.HEADER, ""),
    "components": (long.components, "Stress: many components", long.COMPONENTS, ""),
    "stream": (long.stream, "Stress: a stream for long", long.STREAM, " --minutes {minutes:g}"),
    "soak": (soak.part, "Stress: soak", soak.HEADER, " --minutes {minutes:g} --device {device}"),
}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--part", choices=list(PARTS))
    what.add_argument("--write", type=Path, help="put into RESULTS.md what --json kept, and run nothing")
    parser.add_argument("--inputs", type=int, default=50_000, help="damage: how many inputs")
    parser.add_argument("--times", type=int, default=50, help="kills: how often")
    parser.add_argument("--kinds", nargs="*", choices=["fit", "select", "bootstrap", "prepare"], help="kills: of what")
    parser.add_argument("--minutes", type=float, default=8.0, help="stream and soak: how long")
    parser.add_argument("--rows", type=int, help="stream: rows of an epoch; soak: rows of a fit")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="stream and soak: where")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="keep what was found in a file")
    parser.add_argument("--dry", action="store_true", help="print, and leave RESULTS.md as it is")
    arguments = parser.parse_args()
    outcome = ran(arguments) if arguments.part else json.loads(arguments.write.read_text())
    if arguments.json:
        arguments.json.write_text(json.dumps(outcome, indent=1))
    print(text_of(outcome))
    if not arguments.dry and not arguments.json:
        write_section(title_of(outcome), text_of(outcome))


def ran(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a part found, as it is kept in a file."""
    run, _, header, options = PARTS[arguments.part]
    folder = Path(tempfile.mkdtemp(prefix="xdeconv-stress-"))
    began = time.monotonic()
    try:
        rows, remarks = run(folder, arguments)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    words = {**vars(arguments), "kinds": " ".join(arguments.kinds or [])}
    said = f"python -m benchmarks.stress --part {arguments.part}{options.format(**words)}".removesuffix(" --kinds ")
    return {"part": arguments.part, "command": said, "machine": about(), "seconds": time.monotonic() - began,
            "header": header, "rows": rows, "remarks": remarks}  # fmt: skip


def title_of(outcome: dict[str, Any]) -> str:
    """The section of a part; a soak of a CPU stands beside that of a GPU."""
    return PARTS[outcome["part"]][1] + (" on a CPU" if outcome["command"].endswith("--device cpu") else "")


def text_of(outcome: dict[str, Any]) -> str:
    """A section of RESULTS.md."""
    remarks = outcome["remarks"]
    return "\n".join([f"`{outcome['command']}` on {describe(outcome['machine'])}", "", f"{outcome['seconds']:.0f} s.",
                      "", table(outcome["header"], outcome["rows"]), *([""] if remarks else []), *remarks])  # fmt: skip
