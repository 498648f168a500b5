"""Showing how a fit goes, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..system.progress import progress_of_call
from .history import Callback, Epoch


def describe_epoch(record: Epoch, speed: float | None = None) -> str:
    """One line about an epoch; ``speed`` is in rows per second."""
    held_out = "" if record.validation is None else f"  held out {record.validation:.4f}"
    rate = "" if speed is None else f"  {speed:,.0f} rows/s"
    note = f"  {record.note}" if record.note else ""
    return f"epoch {record.epoch + 1}  log-likelihood {record.loglik:.4f}{held_out}{rate}{note}"


class _Speed:
    """Rows per second, from one epoch to the next."""

    def __init__(self, rows: int | None) -> None:
        self.rows, self.last = rows, float("inf")

    def __call__(self, record: Epoch) -> float | None:
        passed, self.last = record.seconds - self.last, record.seconds
        return None if self.rows is None or passed <= 0 else self.rows / passed


@contextmanager
def show_progress(verbose: bool | None, epochs: int | None, rows: int | None = None) -> Iterator[Callback]:
    """A callback that shows each epoch on standard error; ``rows`` of an epoch, if known, give the speed.

    With ``verbose`` None it is shown on a terminal or in a notebook alone, and only of a fit that takes long.

    The count is of the epochs of all restarts, of which there are ``epochs``, or None where nobody knows before it has
    converged; a fit that resumes counts from where it had been.
    """
    speed, resumed = _Speed(rows), True
    with progress_of_call(verbose, epochs) as progress:

        def show(record: Epoch) -> None:
            nonlocal resumed
            before, resumed = record.epoch if resumed else 0, False
            progress.update(describe_epoch(record, speed(record)), done=1 + before)

        yield show
