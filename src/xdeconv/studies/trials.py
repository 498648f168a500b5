"""Trials: the single fits of a longer study. They are shown as they pass, and kept so that a study can be resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..fitting.choosing.trials import Kept, Trial
from ..fitting.one_of_many import Show
from ..fitting.state import refuse_other_settings
from ..mixture._mixture import Mixture
from ..mixture.storing import restored, saved
from ..system.checksums import checksum
from ..system.files import MALFORMED, locked, write_atomically
from ..system.progress import progress_of_call
from ..system.ranks import rank

if TYPE_CHECKING:
    from ..mixture.selections.contract import Selecting

FORMAT = "xdeconv selection 3"  # lines of 2 had no checksums


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


def alone(path: str | os.PathLike[str] | None) -> AbstractContextManager[None]:
    """The file of results held against other selections, which would take each other's trials out of it."""
    return nullcontext() if path is None or rank() > 0 else locked(path, "selection")


def kept_in(path: str | os.PathLike[str] | None, settings: dict[str, Any], selection: Selecting | None) -> Kept:
    """Finished trials: those of a file, which takes more, or a place in memory for them.

    The ``selection`` of their mixtures is given, since it may be a function, which no file can hold.
    """
    if path is None:
        return Kept()
    settings = json.loads(json.dumps(settings))  # as a file would give them back
    results = Results(Path(path), [json.dumps({"format": FORMAT, "settings": settings})])
    if not results.path.exists():
        results.write()  # a path that cannot be written is better known before the first fit
        return Kept(write=results.add)
    if not results.path.is_file():
        raise OSError(f"{path} is a folder, a pipe or a device: name a file for the results")
    lines, trials = _read(path, settings)
    results.lines += lines
    known = (replace(trial, mixture=trial.mixture.with_(selection=selection)) for trial in trials)
    return Kept({trial.key: trial for trial in known}, results.add)


def _read(path: str | os.PathLike[str], settings: dict[str, Any]) -> tuple[list[str], list[Trial]]:
    try:
        head, *lines = Path(path).read_text(encoding="utf-8").splitlines()
        facts = json.loads(head)
        if facts["format"] != FORMAT:
            raise ValueError(f"its format is {facts['format']!r}, that of this xdeconv is {FORMAT!r}")
        theirs, trials = dict(facts["settings"]), [_trial(line) for line in lines]
    except MALFORMED as problem:
        raise ValueError(f"{path} does not hold the results of a selection, or is damaged: {problem}") from problem
    refuse_other_settings(path, theirs, settings)
    return lines, trials


@contextmanager
def show_trials(verbose: bool | None, total: int) -> Iterator[Show]:
    """A function that shows trials on standard error: a bar on a terminal, plain lines in a log file, or nothing."""
    with progress_of_call(verbose, total, every_step=True) as progress:
        yield progress.update


def _line(trial: Trial) -> str:
    """A trial and its checksum as JSON."""
    kept = saved(trial.mixture.with_(meta={}))
    arrays = {name: array.tolist() for name, array in kept.arrays.items()}
    facts = {**vars(trial), "mixture": {"arrays": arrays, "facts": kept.facts}}
    return json.dumps({**facts, "checksum": checksum(json.dumps(facts))})


def _trial(line: str) -> Trial:
    facts = json.loads(line)
    if facts.pop("checksum") != checksum(json.dumps(facts)):
        raise ValueError("a line is not what was written: delete it, and its trial is made again")
    arrays = {name: np.array(values) for name, values in facts["mixture"]["arrays"].items()}
    return Trial(**{**facts, "mixture": restored(Mixture, arrays, facts["mixture"]["facts"])})
