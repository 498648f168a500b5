"""Trials: the single fits of a longer study. They are shown as they pass, and kept so that a study can be resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
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
class Results(Kept):
    """Finished trials, in a file of JSON lines if there is a path: settings, then a line for each trial."""

    path: str | os.PathLike[str] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = json.loads(json.dumps(self.settings))  # as a file would give them back
        self.lines = [json.dumps({"format": FORMAT, "settings": self.settings})]
        if self.path is None:
            return
        if Path(self.path).exists():
            self._read(self.path)
        else:
            self._write()  # a path that cannot be written is better known before the first fit

    def keep(self, trial: Trial) -> None:
        """Add a trial; the file is whole at any time."""
        super().keep(trial)
        self.lines.append(_line(trial))
        self._write()

    def _write(self) -> None:
        if self.path is not None:
            write_atomically(self.path, ("\n".join(self.lines) + "\n").encode())

    def _read(self, path: str | os.PathLike[str]) -> None:
        try:
            head, *lines = Path(path).read_text(encoding="utf-8").splitlines()
            facts = json.loads(head)
            if facts["format"] != FORMAT:
                raise ValueError(f"its format is {facts['format']!r}, not {FORMAT!r}")
            settings, trials = dict(facts["settings"]), [_trial(line) for line in lines]
        except (ValueError, KeyError, TypeError) as problem:
            raise ValueError(f"{path} does not hold the results of a selection, or is damaged: {problem}") from problem
        refuse_other_settings(path, settings, self.settings)
        self.lines += lines
        self.trials = {trial.key: trial for trial in trials}


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
