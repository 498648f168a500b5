"""What is read by whom in a fit of two ranks; run as a module, it is one of them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from benchmarks.files.making import COLUMNS

WORLD = 2


def shared(path: Path) -> str:
    """A table of the row groups that each rank reads, by phase."""
    from benchmarks.common import results

    told = [json.loads(process.communicate()[0].splitlines()[-1]) for process in begun(path)]
    lines = [
        [phase, *(", ".join(map(str, groups)) or "-" for groups in each), str(len(set(each[0]) & set(each[1])))]
        for phase, each in zip(("survey", "first pass", "second pass"), zip(*told, strict=True), strict=True)
    ]
    return results.table(
        ["phase", "row groups that rank 0 reads", "row groups that rank 1 reads", "read by both"], lines
    )


def begun(path: Path) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    known = {**os.environ, "WORLD_SIZE": str(WORLD), "LOCAL_WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": port}  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.files.ranks", str(path)]
    return [subprocess.Popen(command, env={**known, "RANK": str(r), "LOCAL_RANK": str(r)}, stdout=subprocess.PIPE,
                             text=True) for r in range(WORLD)]  # fmt: skip


def one(path: str) -> None:
    """A rank: the row groups that it reads until a frame is known, in the first pass, and in the second."""
    import xdeconv as xd
    from xdeconv.catalog.readers.parquet import ParquetTable
    from xdeconv.fitting.workspace import Workspace
    from xdeconv.system.ranks import process_group

    read, groups, phases = ParquetTable.read, [], []
    made = Workspace.of

    def noted(self, piece, columns, floats=()):
        groups.append(piece.index)
        return read(self, piece, columns, floats)

    def ended(_: object = None) -> None:
        phases.append(sorted(groups))
        groups.clear()

    def of(*words):
        ended()
        return made(*words)

    ParquetTable.read, Workspace.of = noted, of
    with process_group("cpu", timeout=600):
        xd.fit(xd.open(path, COLUMNS, memory=False), 8, moves="none", epochs=2, tol=0, device="cpu",
               method=xd.EM(accelerate=False), callback=ended)  # fmt: skip
    print(json.dumps(phases[:3]))


if __name__ == "__main__":
    one(sys.argv[1])
