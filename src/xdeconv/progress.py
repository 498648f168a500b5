"""Showing how a fit goes: a bar on a terminal, plain lines in a log file, nothing unless asked."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .history import Callback, Epoch

LINE_SECONDS = 5.0


def describe_epoch(record: Epoch) -> str:
    """One line about an epoch."""
    held_out = "" if record.validation is None else f"  held out {record.validation:.4f}"
    note = f"  {record.note}" if record.note else ""
    return f"epoch {record.epoch + 1}  log-likelihood {record.loglik:.4f}{held_out}{note}"


@contextmanager
def show_progress(verbose: bool, epochs: int) -> Iterator[Callback]:
    """A callback that shows each epoch on standard error."""
    if not verbose:
        yield lambda record: None
    elif sys.stderr.isatty():
        yield from _bar(epochs)
    else:
        yield _Lines()


def _bar(epochs: int) -> Iterator[Callback]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(bar_width=30), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("starting", total=epochs)

        def show(record: Epoch) -> None:
            bar.update(task, advance=1, description=describe_epoch(record))

        yield show


class _Lines:
    """At most one line every few seconds."""

    def __init__(self) -> None:
        self.last = -LINE_SECONDS

    def __call__(self, record: Epoch) -> None:
        if time.monotonic() - self.last >= LINE_SECONDS:
            self.last = time.monotonic()
            sys.stderr.write(f"{record.seconds:8.1f} s  {describe_epoch(record)}\n")
            sys.stderr.flush()
