"""Files that change while they are read: every format and every change ends in an error that names the file.

Each case runs in a process of its own: a memory map of a file that shrinks would end it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from benchmarks.stress.files import SUFFIXES, rows, write

HEADER = ["format", "changes", "refused by name", "read on", "died"]
CHANGES = ("other rows, same size", "one bit", "cut", "grown", "removed", "another file moved there", "a folder")
SEEN = "cannot be read", "has changed", "is damaged", "readable file", "No such file", "Is a directory"


def change(path: Path, how: str) -> None:
    """Change a file that is being read."""
    content = path.read_bytes()
    if how == "other rows, same size":
        time = path.stat().st_mtime_ns
        write(path, rows(seed=1))
        os.utime(path, ns=(time + 1000, time + 1000))
    elif how == "one bit":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif how == "cut":
        os.truncate(path, len(content) // 2)
    elif how == "grown":
        path.write_bytes(content + content)
    elif how == "removed":
        path.unlink()
    elif how == "another file moved there":
        other = path.with_name("other" + path.name)
        write(other, rows(seed=2))
        os.replace(other, path)
    else:
        path.unlink()
        path.mkdir()


def tried(path: Path, how: str) -> str:
    """A streamed fit during which a file changes; what came of it."""
    import xdeconv as xd

    path.parent.mkdir()
    write(path, rows())
    source = xd.open(path, ["x", "y"], memory=False)

    def after(record: xd.Epoch) -> None:
        if record.epoch == 1:
            change(path, how)

    try:
        xd.fit(source, 1, method=xd.EM(), epochs=4, tol=0, moves="none", cache="none", callback=after)
    except (OSError, ValueError) as problem:
        named = path.name in str(problem) and any(word in str(problem) for word in SEEN)
        return "refused by name" if named else f"refused: {problem}"
    return "read on"


def part(folder: Path, arguments: argparse.Namespace) -> tuple[list[list[str]], list[str]]:
    """Every format with every change."""
    lines, remarks = [], []
    for suffix in SUFFIXES:
        done = outcomes(folder, suffix)
        remarks += [f"- {suffix}, {how}: {said}" for how, said in done.items() if said != "refused by name"]
        seen = Counter(done.values())
        died = sum(said.startswith("died") for said in done.values())
        lines.append([suffix, str(len(done)), str(seen["refused by name"]), str(seen["read on"]), str(died)])
    return lines, remarks


def outcomes(folder: Path, suffix: str) -> dict[str, str]:
    """What came of every change, in processes of their own: one for all, unless it dies."""
    found: dict[str, str] = {}
    while len(found) < len(CHANGES):
        command = [sys.executable, "-m", "benchmarks.stress.changes", str(folder), suffix, str(len(found))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        for line in done.stdout.splitlines():
            found[CHANGES[len(found)]] = line
        if len(found) < len(CHANGES):
            found[CHANGES[len(found)]] = f"died with {done.returncode}"
    return found


if __name__ == "__main__":
    place, kind, first = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    for number in range(first, len(CHANGES)):
        print(tried(place / f"{kind}-{number}" / f"rows.{kind}", CHANGES[number]), flush=True)
