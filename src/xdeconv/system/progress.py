"""Showing how long work goes: a bar on a terminal or in a notebook, plain lines in a log file, nothing unless asked."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar, Token
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
    lines : bool
        Whether a log file gets lines, where there is neither a terminal nor a notebook.
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
        self,
        total: int | None = None,
        *,
        shown: bool = True,
        delay: float = 2.0,
        every_step: bool = False,
        lines: bool = True,
    ) -> None:
        self.total, self.shown, self.delay, self.every_step = total, shown, delay, every_step
        self.lines = lines
        self.done = 0
        self.text = "starting"
        self.began = time.monotonic()
        self.view: View | None = None
        self.lock = threading.RLock()
        self.timer: threading.Timer | None = None
        self.token: Token[Progress | None] | None = None

    def __enter__(self) -> Self:
        self.began = time.monotonic()
        if self.shown or _CURRENT.get() is None:  # work inside other work that is watched says what it does there
            self.token = _CURRENT.set(self)
        if self.shown and self.delay > 0:
            self.timer = threading.Timer(self.delay, self._show)
            self.timer.daemon = True
            self.timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.token is not None:
            _CURRENT.reset(self.token)
        with self.lock, _whoever_hears():
            self.shown = False
            if self.view is not None:
                view, self.view = self.view, None
                view.close()

    def update(self, text: str, done: int = 0, total: int | None = None) -> None:
        """Say what happens now, how much more is ``done``, and the new ``total`` if it has changed."""
        self.done += done
        self.total = self.total if total is None else total
        self.text = text
        if time.monotonic() - self.began >= self.delay:
            self._show(done > 0)

    def _show(self, step: bool = False) -> None:
        with self.lock, _whoever_hears():
            if not self.shown:
                return
            if self.view is None:
                self.view = _view(self.began, self.every_step, self.lines)
            self.view.show(printable(self.text), self.done, self.total, step)


def _whoever_hears() -> AbstractContextManager[None]:
    """No work ends because nobody can be told of it: a full disk under a log, a terminal that has gone."""
    return suppress(OSError, ValueError)


_CURRENT: ContextVar[Progress | None] = ContextVar("xdeconv_progress", default=None)


def progress_of_call(verbose: bool | None, total: int | None, every_step: bool = False) -> Progress:
    """The progress of a user's call: always shown, never, or where somebody watches and it takes long (None).

    A call inside work that is shown already shows nothing of its own.
    """
    outer = _CURRENT.get()
    if verbose is not None:
        return Progress(total, shown=bool(verbose), delay=0.0, every_step=every_step)
    return Progress(total, shown=outer is None or not outer.shown, every_step=every_step, lines=False)


def tell(text: str) -> None:
    """Say what the work is doing now, where somebody is watching it.

    Examples
    --------
    >>> with Progress(shown=False) as progress:
    ...     tell("reading")
    >>> progress.text
    'reading'
    """
    progress = _CURRENT.get()
    if progress is not None:
        progress.update(text)


def _view(began: float, every_step: bool, lines: bool) -> View:
    if in_notebook():
        return _Notebook(began)
    if sys.stderr is not None and sys.stderr.isatty():
        return _Bar(began)
    return _Lines(began, every_step) if lines else _Nothing()


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
        wide = 30 if console.width >= 110 else 10 if console.width >= 90 else 5  # the text is worth more
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
        self.said = {"text/plain": f"{count(done, total)}  {time.monotonic() - self.began:.0f} s  {text}"}
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


class _Nothing:
    """Where nobody watches and nobody asked."""

    def show(self, text: str, done: int, total: int | None, step: bool) -> None:
        pass

    def close(self) -> None:
        pass


class _Lines:
    """Lines of a log file: one every few seconds, and where it is wanted one for each step."""

    def __init__(self, began: float, every_step: bool) -> None:
        self.began, self.every_step = began, every_step
        self.last = {True: -LINE_SECONDS, False: -LINE_SECONDS}  # of a line about a step, and about what comes between

    def show(self, text: str, done: int, total: int | None, step: bool) -> None:
        now = time.monotonic()
        latest = self.last[True] if step else max(self.last.values())
        if sys.stderr is None or not ((step and self.every_step) or now - latest >= LINE_SECONDS):
            return
        self.last[step] = now
        sys.stderr.write(f"{now - self.began:8.1f} s  {count(done, total)}  {text}\n")
        sys.stderr.flush()

    def close(self) -> None:
        pass


@contextmanager
def telling() -> Iterator[None]:
    """What was told before is told again after this, where something else was told meanwhile.

    Examples
    --------
    >>> with Progress(shown=False) as progress:
    ...     tell("searching")
    ...     with telling():
    ...         tell("compiling")
    ...     progress.text
    'searching'
    """
    progress = _CURRENT.get()
    before = "" if progress is None else progress.text
    yield
    if progress is not None and progress.text != before:
        progress.update(before)
