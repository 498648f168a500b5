"""Showing how a fit goes: a bar on a terminal, plain lines in a log file, nothing unless asked."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .history import Callback, Epoch

LINE_SECONDS = 5.0


def describe_epoch(record: Epoch, speed: float | None = None) -> str:
    """One line about an epoch; ``speed`` is in rows a second."""
    held_out = "" if record.validation is None else f"  held out {record.validation:.4f}"
    rate = "" if speed is None else f"  {speed:.3g} rows/s"
    note = f"  {record.note}" if record.note else ""
    return f"epoch {record.epoch + 1}  log-likelihood {record.loglik:.4f}{held_out}{rate}{note}"


class _Speed:
    """Rows a second, from one epoch to the next."""

    def __init__(self, rows: int | None) -> None:
        self.rows, self.last = rows, float("inf")

    def __call__(self, record: Epoch) -> float | None:
        passed, self.last = record.seconds - self.last, record.seconds
        return None if self.rows is None or passed <= 0 else self.rows / passed


@contextmanager
def show_progress(verbose: bool, epochs: int, rows: int | None = None) -> Iterator[Callback]:
    """A callback that shows each epoch on standard error; ``rows`` of an epoch, if known, give the speed."""
    if not verbose:
        yield lambda record: None
    elif sys.stderr.isatty():
        yield from _bar(epochs, _Speed(rows))
    else:
        yield _Lines(_Speed(rows))


def _bar(epochs: int, speed: _Speed) -> Iterator[Callback]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(bar_width=30), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("starting", total=epochs)

        def show(record: Epoch) -> None:
            bar.update(task, advance=1, description=describe_epoch(record, speed(record)))

        yield show


class _Lines:
    """At most one line every few seconds."""

    def __init__(self, speed: _Speed) -> None:
        self.last, self.speed = -LINE_SECONDS, speed

    def __call__(self, record: Epoch) -> None:
        speed = self.speed(record)
        if time.monotonic() - self.last >= LINE_SECONDS:
            self.last = time.monotonic()
            sys.stderr.write(f"{record.seconds:8.1f} s  {describe_epoch(record, speed)}\n")
            sys.stderr.flush()
