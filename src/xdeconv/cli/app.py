"""The application that commands register with, what it says, and how it ends: one line and an exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn, Self

import typer

from ..system import memory
from ..system.machine import stop_signals
from ..system.text import one_line, printable

EXIT_CODES = {
    0: "done",
    1: "refused: the data, the columns or the model are not what the command needs",
    2: "the command line is wrong",
    3: "a file cannot be read or written, or is damaged",
    4: "the fit met numerical trouble",
    5: "out of memory, or an error that nobody foresaw: --traceback shows where",
    130: "interrupted, by Ctrl-C or a signal; what a fit had reached is saved",
    141: "the reader of standard output has gone",
}
EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."
DAMAGED = ("zlib.error", "_lzma.LZMAError", "zipfile.BadZipFile", "struct.error", "builtins.EOFError",
           "xml.parsers.expat.ExpatError")  # fmt: skip
DAMAGED_FILE = "xdeconv.system.files.DamagedFile"  # whose text says all, in a module that --help need not wait for
REFUSALS = (ValueError, ImportError)
UsageProblem: Any = typer.BadParameter.__mro__[2]  # of whichever Click this Typer has: its own, or the package
TRACEBACK = "--traceback"


class Stop(Exception):
    """The end of a command, with an exit code and a line, or none."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text)
        self.code, self.text = code, text


class _Ended(Exception):
    """Carries past Typer what it would end with words of its own."""


class _Commands(typer.core.TyperGroup):
    """All commands; interrupts, files that end early and pipes are left to :func:`run`."""

    def invoke(self, context: Any) -> Any:
        try:
            return super().invoke(context)
        except (KeyboardInterrupt, EOFError, OSError) as problem:
            raise _Ended from problem


app = typer.Typer(
    name="xdeconv",
    cls=_Commands,
    help="Extreme deconvolution: the density of the true values behind noisy, incomplete data.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        tell(f"xdeconv {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Say the version, and end.", callback=_version, is_eager=True)
    ] = False,
    traceback: Annotated[
        bool, typer.Option(TRACEBACK, help="Show where an error comes from. Also after a command's name.")
    ] = False,
) -> None:
    """Options of the program itself."""


def say(text: str = "") -> None:
    """A line about what happens, on standard error, if there is one: standard output is for results."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(printable(text, keep="\n") + "\n")
        sys.stderr.flush()


def tell(text: str = "") -> None:
    """A line of the result, on standard output."""
    if sys.stdout is None:
        raise OSError("standard output is closed: there is nowhere to write the result to")
    try:
        sys.stdout.write(printable(text) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        raise Stop(141) from None


def _forget_stdout() -> None:
    """Python writes what is left when it ends, and must not complain again."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _warned(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning of the library as a line of its own."""
    say(f"warning: {one_line(str(message))}")


def stop(code: int, text: str) -> NoReturn:
    """End the command with a message and an exit code."""
    raise Stop(code, text)


def code_of(problem: BaseException) -> int:
    """The exit code that an exception stands for."""
    if isinstance(problem, KeyboardInterrupt):
        return 130
    if isinstance(problem, Stop):
        return problem.code
    name = f"{type(problem).__module__}.{type(problem).__qualname__}"
    if memory.short(problem):
        return 5
    if isinstance(problem, OSError) or name in (*DAMAGED, DAMAGED_FILE):
        return 3
    if isinstance(problem, ArithmeticError):
        return 4
    return 1 if isinstance(problem, REFUSALS) else 5


def text_of(problem: BaseException) -> str:
    """One line about an exception; its type too where the text alone would say little."""
    if isinstance(problem, KeyboardInterrupt):
        return "interrupted"
    if memory.short(problem):
        why = one_line(str(problem))
        said = "there is not enough memory" + (f" ({why})" if why else "")
        return why if why and type(problem) is MemoryError else said  # one of ours, which says what for
    text = one_line(_words(problem))
    foreseen = code_of(problem) != 5 and f"{type(problem).__module__}.{type(problem).__qualname__}" not in DAMAGED
    return text if foreseen and text else f"{type(problem).__name__}: {text}".rstrip(": ")


def _words(problem: BaseException) -> str:
    """What went wrong: of a system's error without its number, of a missing key without quotes."""
    if isinstance(problem, KeyError) and problem.args:
        return str(problem.args[0])
    if not isinstance(problem, OSError) or problem.strerror is None:
        return str(problem)
    return problem.strerror if problem.filename is None else f"{problem.filename}: {problem.strerror}"


def run(arguments: Sequence[str] | None = None, *, last: bool = False) -> NoReturn:
    """Run the command line; problems become one line and an exit code, or a trace if one is asked for.

    ``last`` says that the process ends afterwards: no signal disturbs it then.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    ours = words[: words.index("--")] if "--" in words else words
    traced = TRACEBACK in ours or bool(os.environ.get("XDECONV_TRACEBACK"))
    if TRACEBACK in ours:
        words = [word for word in ours if word != TRACEBACK] + words[len(ours) :]
    try:
        with _Signals(last) as signals, warnings.catch_warnings():
            warnings.showwarning = _warned
            code = _code(words, traced, signals)
    except KeyboardInterrupt:  # one more, which came while the first was being said: by now none is heard
        code = 130
    if last and code == 130:
        _leave(code)
    raise SystemExit(code)


def _leave(code: int) -> NoReturn:
    """End now: after a second Ctrl-C threads may still read or compute, which Python's own end would abort."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _code(words: list[str], traced: bool, signals: _Signals) -> int:
    try:
        code = app(words, standalone_mode=False)
        signals.deaf = True
        return code if isinstance(code, int) else 0
    except UsageProblem as problem:
        problem.message = printable(problem.message, keep="\n")
        with contextlib.suppress(OSError, ValueError):  # as in say()
            problem.show()
        return int(problem.exit_code)
    except BaseException as problem:
        signals.deaf = True
        if isinstance(problem, SystemExit):
            raise
        return _end((problem.__cause__ or problem) if isinstance(problem, _Ended) else problem, traced)


def _end(problem: BaseException, traced: bool) -> int:
    """Say what happened; the exit code."""
    first = _interrupt_behind(problem)
    if traced and not isinstance(problem, (Stop, KeyboardInterrupt)):
        import traceback

        say("".join(traceback.format_exception(problem)).rstrip())
    elif not isinstance(first, Stop) or first.text:
        hint = f" (xdeconv {TRACEBACK} shows where)" if _unforeseen(first) else ""
        say(f"xdeconv: {text_of(first)}{hint}")
    ranks = sys.modules.get("xdeconv.system.ranks")
    if ranks is not None and ranks.joined():  # a group that has lost a rank may abort while Python ends
        os._exit(code_of(first))
    return code_of(first)


def _unforeseen(problem: BaseException) -> bool:
    return code_of(problem) == 5 and not memory.short(problem)


def _interrupt_behind(problem: BaseException) -> BaseException:
    """The interrupt in whose wake nobody foresaw a problem, such as a lock that a second Ctrl-C left unlocked."""
    earlier: BaseException | None = problem
    while _unforeseen(problem) and earlier is not None:
        if isinstance(earlier, KeyboardInterrupt):
            return earlier
        earlier = earlier.__cause__ or earlier.__context__
    return problem


class _Signals:
    """Signals that ask to end do what Ctrl-C does, until the command has ended and is ``deaf``.

    A fit saves its checkpoint then, and no partial file is left. A signal that comes while Python drops an object is
    raised where nothing can hear it: it is sent again.
    """

    def __init__(self, last: bool) -> None:
        self.last, self.deaf = last, False
        self.before: dict[int, Any] = {}
        self.unheard = sys.unraisablehook

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            sys.unraisablehook = self._unheard
            handlers = {number: signal.getsignal(number) for number in stop_signals()}
            self.before = {n: h for n, h in handlers.items() if h not in (signal.SIG_IGN, None)}  # nohup ignores one
            for number in self.before:
                signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        self.deaf, sys.unraisablehook = True, self.unheard
        for number, handler in self.before.items():
            signal.signal(number, signal.SIG_IGN if self.last else handler)

    def _unheard(self, lost: Any) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            self.unheard(lost)
        elif not self.deaf:  # a little later: what is raised here would be lost again
            again = threading.Timer(0.01, signal.raise_signal, [signal.SIGINT])
            again.daemon = True
            again.start()

    def _heard(self, number: int, frame: Any) -> None:
        if not self.deaf:
            raise KeyboardInterrupt
