"""Showing how long work goes: a bar on a terminal or in a notebook, plain lines in a log file, nothing unless asked."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from .text import printable

if TYPE_CHECKING:
    from rich.progress import Task, TaskID
    from rich.text import Text

LINE_SECONDS = 5.0  # between two lines of a log file
NOTEBOOK_SECONDS = 0.2


class View(Protocol):
    """Where progress is shown."""

    def show(self, text: str, done: int, total: int | None, step: bool) -> None:
        """Show a text and a count; ``step`` says that the count has just risen."""

    def close(self) -> None:
        """Nothing more is to come."""


class Progress:
    """How far work is, on standard error, as a context.

    Parameters
    ----------
    total : int, optional
        How much there is to do, if known; ``update`` may say it later.
    shown : bool
        Whether to show anything at all.
    delay : float
        Seconds before anything is shown: short work stays silent.
    every_step : bool
        Whether a log file gets a line whenever the count rises, and not only every few seconds.

    Examples
    --------
    >>> with Progress(total=2, shown=False) as progress:
    ...     progress.update("the first half", done=1)
    ...     progress.update("the second half", done=1)
    >>> progress.done
    2
    """

    def __init__(
        self, total: int | None = None, *, shown: bool = True, delay: float = 2.0, every_step: bool = False
    ) -> None:
        self.total, self.shown, self.delay, self.every_step = total, shown, delay, every_step
        self.done = 0
        self.began = time.monotonic()
        self.view: View | None = None

    def __enter__(self) -> Self:
        self.began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.view is not None:
            self.view.close()
            self.view = None

    def update(self, text: str, done: int = 0, total: int | None = None) -> None:
        """Say what happens now, how much more is ``done``, and the new ``total`` if it has changed."""
        self.done += done
        self.total = self.total if total is None else total
        if not self.shown or time.monotonic() - self.began < self.delay:
            return
        if self.view is None:
            self.view = _view(self.began, self.every_step)
        self.view.show(printable(text), self.done, self.total, done > 0)


def _view(began: float, every_step: bool) -> View:
    if in_notebook():
        return _Notebook(began)
    return _Bar(began) if sys.stderr is not None and sys.stderr.isatty() else _Lines(began, every_step)


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel, whose pages can be written again in place."""
    module = sys.modules.get("IPython")
    return module is not None and type(module.get_ipython()).__name__ == "ZMQInteractiveShell"


def count(done: int, total: int | None) -> str:
    """How much is done of how much, with thousands separated.

    >>> count(1200, 5000), count(3, None)
    ('1,200/5,000', '3')
    """
    return f"{done:,}" if total is None else f"{done:,}/{total:,}"


class _Bar:
    """A bar, count and time that keep their room, and a text that is cut where the terminal ends."""

    def __init__(self, began: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column
        from rich.text import Text

        class Said(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(task.description, no_wrap=True, overflow="ellipsis")

        class Elapsed(TimeElapsedColumn):
            max_refresh = 1.0

        console = Console(stderr=True)
        wide = 30 if console.width >= 110 else 10
        fixed = Column(no_wrap=True)
        self.bar = RichProgress(
            BarColumn(bar_width=wide, table_column=fixed),
            TextColumn("{task.fields[count]}", markup=False, table_column=Column(no_wrap=True)),
            Elapsed(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
            Said(table_column=Column(no_wrap=False, ratio=None)),
            console=console,
        )
        self.bar.start()
        self.task: TaskID = self.bar.add_task("starting", total=None, count="")
        self.bar.tasks[0].start_time = began

    def show(self, text: str, done: int, total: int | None, step: bool) -> None:
        self.bar.update(self.task, completed=done, total=total, description=text, count=count(done, total))

    def close(self) -> None:
        self.bar.stop()


class _Notebook:
    """One output that is written again in place."""

    def __init__(self, began: float) -> None:
        self.began, self.last, self.handle = began, 0.0, None
        self.said: dict[str, Any] = {}

    def show(self, text: str, done: int, total: int | None, step: bool) -> None:
        self.said = _page(f"{count(done, total)}  {time.monotonic() - self.began:.0f} s  {text}")
        if time.monotonic() - self.last >= NOTEBOOK_SECONDS:
            self._write()

    def _write(self) -> None:
        from IPython.display import display

        self.last = time.monotonic()
        if self.handle is None:
            self.handle = display(self.said, raw=True, display_id=True)
        else:
            self.handle.update(self.said, raw=True)

    def close(self) -> None:
        if self.said:
            self._write()


def _page(text: str) -> dict[str, Any]:
    return {"text/plain": text}


class _Lines:
    """Lines of a log file: one every few seconds, and where it is wanted one for each step."""

    def __init__(self, began: float, every_step: bool) -> None:
        self.began, self.every_step, self.last = began, every_step, -LINE_SECONDS

    def show(self, text: str, done: int, total: int | None, step: bool) -> None:
        now = time.monotonic()
        if sys.stderr is None or not ((step and self.every_step) or now - self.last >= LINE_SECONDS):
            return
        self.last = now
        sys.stderr.write(f"{now - self.began:8.1f} s  {count(done, total)}  {text}\n")
        sys.stderr.flush()

    def close(self) -> None:
        pass
