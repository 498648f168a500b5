"""One JSON file that an experiment is appended to, run by run, so that it can be made in parts."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Run = dict[str, Any]
KEY = ("data", "preset", "method", "k", "seed")


@dataclass(frozen=True)
class Store:
    """The runs in a file; each is known by its data, preset, method, k and seed."""

    path: Path

    def runs(self) -> list[Run]:
        """All runs so far."""
        return json.loads(self.path.read_text())["runs"] if self.path.exists() else []

    def has(self, **key: object) -> bool:
        """Whether a run was made."""
        return any(all(run[name] == key[name] for name in KEY) for run in self.runs())

    def add(self, run: Run) -> None:
        """Append a run; the file is whole at any moment."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"runs": [*self.runs(), run]}, indent=1) + "\n")
        os.replace(fresh, self.path)

    def join(self, other: Store) -> None:
        """Append the runs of another file that are not in this one."""
        for run in other.runs():
            if not self.has(**{name: run[name] for name in KEY}):
                self.add(run)

    def expected_seconds(self, method: str, k: int, data: str) -> float:
        """What a run should take: as the last of its kind and size, or in proportion to k; 0 when nothing is known."""
        known = {run["k"]: run["seconds"] for run in self.runs() if (run["method"], run["data"]) == (method, data)}
        if not known:
            return 0.0
        nearest = min(known, key=lambda other: abs(other - k))
        return known[nearest] * max(1.0, k / nearest)


def slug(name: str) -> str:
    """A name for files."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
