"""What a fit tells of itself, epoch by epoch."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from ..mixture.facts import table


@dataclass(frozen=True)
class Epoch:
    """One pass over the data.

    Parameters
    ----------
    epoch : int
        Its number.
    seconds : float
        Since the start of the fit.
    loglik : float
        Mean log-likelihood per unit of row weight that the pass itself met: of the mixture before the step for batch
        EM, the running mean over the steps for minibatch methods.
    validation : float, optional
        The same of the rows held out, of the mixture after the pass.
    restart : int, default 0
        The start that it belongs to.
    moved : int, optional
        How many components a search for better optima moved before the pass; None when there was no search.
    note : str, default ""
        What was done beside: moves, a pass repeated in float64.
    """

    epoch: int
    seconds: float
    loglik: float
    validation: float | None = None
    restart: int = 0
    moved: int | None = None
    note: str = ""


class Callback(Protocol):
    """What :func:`xdeconv.fit` calls after each epoch: a function, or an object with this one method."""

    def __call__(self, epoch: Epoch, /) -> None:
        """Take note of an epoch.

        Parameters
        ----------
        epoch : Epoch
            The one that has just ended.
        """


@dataclass(frozen=True)
class CSVLogger:
    """A callback that writes each epoch as a line of a CSV file; a resumed fit continues the file.

    Parameters
    ----------
    path : str or path
        The file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "epochs.csv"
    >>> CSVLogger(path)(Epoch(0, 0.5, -3.25))
    >>> print(path.read_text())
    epoch,seconds,loglik,validation,restart,moved,note
    0,0.5,-3.25,,0,,
    <BLANKLINE>
    """

    path: str | os.PathLike[str]

    def __call__(self, epoch: Epoch) -> None:
        """Write one line."""
        names = [field.name for field in fields(Epoch)]
        first = epoch.epoch == 0 and epoch.restart == 0
        with open(self.path, "w" if first else "a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if first:
                writer.writerow(names)
            writer.writerow([getattr(epoch, name) for name in names])


KEPT = ("epoch", "restart", "loglik", "validation", "moved")


def columns(records: Sequence[Epoch]) -> dict[str, list[Any]]:
    """Records as JSON, for a model to remember. Without seconds: the same fit writes the same file.

    >>> columns([Epoch(0, 0.5, -2.0), Epoch(1, 0.9, -1.0)])["loglik"]
    [-2.0, -1.0]
    """
    return {name: [getattr(record, name) for record in records] for name in KEPT}


def remembered(meta: Mapping[str, Any]) -> tuple[Epoch, ...]:
    """The records that a model's meta remembers, none when it has none; their seconds are NaN."""
    kept = table(meta, "history")
    lists = [kept.get(name) for name in KEPT]
    if not all(isinstance(known, list) for known in lists):
        return ()
    lines = list(zip(*lists, strict=False))
    if not all(_is_number(part, name) for line in lines for name, part in zip(KEPT, line, strict=True)):
        return ()
    return tuple(Epoch(epoch, float("nan"), loglik, validation, restart, moved)
                 for epoch, restart, loglik, validation, moved in lines)  # fmt: skip


def _is_number(part: Any, name: str) -> bool:
    if part is None:
        return name in ("validation", "moved")
    return isinstance(part, int if name in ("epoch", "restart", "moved") else (int, float))
