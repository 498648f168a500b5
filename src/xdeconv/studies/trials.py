"""Trials: the single fits of a longer study. They are shown as they pass, and kept so that a study can be resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..fitting.choosing.trials import Kept, Show, Trial
from ..fitting.state import refuse_other_settings
from ..mixture._mixture import Mixture
from ..mixture.storing import restored, saved
from ..system.files import write_atomically
from ..system.progress import progress_of_call

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT = "xdeconv selection 2"


@dataclass
class Results:
    """A file of JSON lines: the settings of a study, then a line for each finished trial."""

    path: Path
    lines: list[str]

    def add(self, trial: Trial) -> None:
        """Add a trial; the file is whole at any time."""
        self.lines.append(_line(trial))
        self.write()

    def write(self) -> None:
        """Write all there is."""
        write_atomically(self.path, ("\n".join(self.lines) + "\n").encode())


def kept_in(path: str | os.PathLike[str] | None, settings: dict[str, Any]) -> Kept:
    """Finished trials: those of a file, which takes more, or a place in memory for them."""
    if path is None:
        return Kept()
    settings = json.loads(json.dumps(settings))  # as a file would give them back
    results = Results(Path(path), [json.dumps({"format": FORMAT, "settings": settings})])
    if not results.path.exists():
        results.write()  # a path that cannot be written is better known before the first fit
        return Kept(write=results.add)
    lines, trials = _read(path, settings)
    results.lines += lines
    return Kept({trial.key: trial for trial in trials}, results.add)


def _read(path: str | os.PathLike[str], settings: dict[str, Any]) -> tuple[list[str], list[Trial]]:
    try:
        head, *lines = Path(path).read_text(encoding="utf-8").splitlines()
        facts = json.loads(head)
        if facts["format"] != FORMAT:
            raise ValueError(f"its format is {facts['format']!r}, not {FORMAT!r}")
        theirs, trials = dict(facts["settings"]), [_trial(line) for line in lines]
    except (ValueError, KeyError, TypeError) as problem:
        raise ValueError(f"{path} does not hold the results of a selection, or is damaged: {problem}") from problem
    refuse_other_settings(path, theirs, settings)
    return lines, trials


@contextmanager
def show_trials(verbose: bool | None, total: int) -> Iterator[Show]:
    """A function that shows trials on standard error: a bar on a terminal, plain lines in a log file, or nothing."""
    with progress_of_call(verbose, total, every_step=True) as progress:
        yield progress.update


def new_axes() -> Axes:
    """Axes of a new figure; the figure is ``axes.figure``."""
    try:
        from matplotlib.figure import Figure
    except ImportError as problem:
        raise ImportError("pictures need matplotlib: pip install 'xdeconv[plot]'") from problem
    return Figure(figsize=(5.5, 4.0), layout="constrained").subplots()


def _line(trial: Trial) -> str:
    kept = saved(trial.mixture.with_(meta={}))
    arrays = {name: array.tolist() for name, array in kept.arrays.items()}
    return json.dumps({**vars(trial), "mixture": {"arrays": arrays, "facts": kept.facts}})


def _trial(line: str) -> Trial:
    facts = json.loads(line)
    arrays = {name: np.array(values) for name, values in facts["mixture"]["arrays"].items()}
    return Trial(**{**facts, "mixture": restored(Mixture, arrays, facts["mixture"]["facts"])})
