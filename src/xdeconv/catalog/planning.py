"""The plan of a preparation: what a store is made of, in how many shards, and whether one begun before is the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..system.files import write_atomically
from ..system.machine import boot
from .expressions import Condition
from .finding import require
from .readers import Table, rows_of

SHARD_ROWS = 1 << 20  # of a shard of many
LEAST_ROWS = 1 << 16
FEW = 64  # shards and runs where there are less of such sizes: so that many threads end at about the same time
RUN_BYTES = (1 << 24, 1 << 27)  # at least and at most
NUMBER_BYTES = 4  # of most numbers: a guess that only sets how many runs there are
TEXT_BYTES_A_ROW = 300  # a guess that only sets how many shards a text file of unknown length is given


@dataclass(frozen=True)
class Plan:
    """What a preparation does; resuming one must mean the same plan.

    inputs are what changes when a file does, of each; reading is what the store remembers for xd.open.
    """

    inputs: list[dict[str, Any]]
    columns: list[str]
    where: str | None
    seed: int
    shards: int
    key: str | None
    run_bytes: int
    reading: dict[str, Any]


def plan_of(
    table: Table, columns: Sequence[str] | None, where: str | None, seed: int, rows: int | None, run_bytes: int | None,
    reading: dict[str, Any],
) -> Plan:  # fmt: skip
    """What is to be done, where no size was said by the number of rows: whatever the number of threads."""
    chosen = list(dict.fromkeys(columns)) if columns else list(table.columns)
    require((*chosen, *(() if where is None else Condition(where).names)), table.columns, table.name)
    stamp = table.stamp()
    inputs = stamp.get("files", [stamp])
    known = rows_of(table)
    total = sum(file.get("size", 0) for file in inputs) // TEXT_BYTES_A_ROW if known is None else known
    key = "random_index" if "random_index" in table.columns else None
    shards = max(1, -(-total // (rows or SHARD_ROWS)), 0 if rows else min(FEW, total // LEAST_ROWS))
    least, most = RUN_BYTES
    waiting = run_bytes or min(max(least, total * (len(chosen) + 2) * NUMBER_BYTES // FEW), most)
    return Plan(inputs, chosen, where, seed, shards, key, waiting, reading)


def begin(work: Path, plan: Plan) -> None:
    """Begin a preparation, or make sure that the one begun here is the same."""
    path, start = work / "plan.json", work / "start"
    now = (boot() or "").encode()
    if path.exists():
        refuse_other(json.loads(path.read_text()), plan, f"{work.parent} holds an unfinished preparation",
                      "delete it first")  # fmt: skip
        if not (start.exists() and start.read_bytes() == now):  # what was not on disk may be lost, and look whole
            for run in work.glob("run-*"):
                run.unlink()
            write_atomically(start, now)
        return
    if any(work.parent.iterdir()):
        raise ValueError(f"{work.parent} is not empty and not a store: choose another folder")
    work.mkdir(parents=True, exist_ok=True)
    write_atomically(start, now)
    write_atomically(path, json.dumps(asdict(plan)).encode())


def refuse_other(before: Mapping[str, Any], plan: Plan, what: str, remedy: str) -> None:
    """Refuse a plan that is not the one before; a file that changed is named."""
    now = json.loads(json.dumps(asdict(plan)))
    if before == now:
        return
    if {**before, "inputs": None} == {**now, "inputs": None}:
        stamps = {file.get("file"): file for file in before["inputs"] if isinstance(file, dict)}
        changed = [file.get("file") for file in now["inputs"] if stamps.get(file.get("file")) != file]
        if changed and len(stamps) == len(now["inputs"]) and changed[0] in stamps:
            raise ValueError(f"{what} of {changed[0]} as it was before it changed: {remedy}")
    raise ValueError(f"{what} of something else: {remedy}")
