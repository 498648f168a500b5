"""Checkpoint: the file that a fit saves to, how often, and whether it resumes from it."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from numbers import Real

from ..system.files import locked, refuse_foreign
from ..system.ranks import rank


@dataclass(frozen=True)
class Checkpoint:
    """Where a fit saves what it knows, so that it can be resumed to the same bits.

    Parameters
    ----------
    path : str or path
        The file; a fit never writes over a file of another kind.
    every : float, default 10.0
        Seconds between saves; 0 saves after every pass. The last pass of a fit is always saved.
    resume : bool, default False
        Whether to resume from the file. Without a file yet the fit starts from the beginning, so that the same call
        serves the first run and those after an interrupt; a checkpoint of other rows or settings is refused.

    Examples
    --------
    >>> Checkpoint("gaia.checkpoint", every=60, resume=True)
    Checkpoint(path='gaia.checkpoint', every=60, resume=True)
    """

    path: str | os.PathLike[str]
    every: float = 10.0
    resume: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.path, (str, os.PathLike)):
            raise ValueError(f"a checkpoint is saved to a file: path must be its name, got {self.path!r}")
        if (
            isinstance(self.every, bool)
            or not isinstance(self.every, Real)
            or not 0 <= float(self.every) < float("inf")
        ):
            raise ValueError(
                f"every, the seconds between saves of a checkpoint, must be at least 0, got {self.every!r}"
            )

    def alone(self) -> AbstractContextManager[None]:
        """The file held against other fits, by the one rank that writes it; a file of another kind is refused."""
        if rank() > 0:
            return nullcontext()
        if not self.resume:  # which reads it first, and says what is wrong with it
            refuse_foreign(self.path, "checkpoint")
        return locked(self.path)


def as_checkpoint(checkpoint: Checkpoint | str | os.PathLike[str] | None) -> Checkpoint | None:
    """What a user gave: a Checkpoint, or just its path."""
    return checkpoint if checkpoint is None or isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
