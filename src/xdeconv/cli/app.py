"""The application that commands register with, what it says, and its exit codes."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import typer

EXIT_CODES = {
    0: "done",
    1: "refused: the data, the columns or the model are not what the command needs",
    2: "the command line is wrong",
    3: "a file cannot be read or written, or is damaged",
    4: "the fit met numerical trouble",
    130: "interrupted; what a fit had reached is saved",
}
EPILOG = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."

app = typer.Typer(
    name="xdeconv",
    help="Extreme deconvolution: the density of the true values behind noisy, incomplete data.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def say(text: str = "") -> None:
    """A line about what happens, on standard error: standard output is for results."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def tell(text: str = "") -> None:
    """A line of the result, on standard output."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def stop(code: int, text: str) -> NoReturn:
    """End the command with a message and an exit code."""
    say(f"xdeconv: {text}")
    raise typer.Exit(code)


def code_of(problem: BaseException) -> int:
    """The exit code that an exception stands for."""
    if isinstance(problem, KeyboardInterrupt):
        return 130
    if isinstance(problem, OSError):
        return 3
    return 4 if isinstance(problem, ArithmeticError) else 1


def run(arguments: list[str] | None = None) -> Any:
    """Run the command line; problems become one line and an exit code, unless XDECONV_TRACEBACK is set."""
    import os

    try:
        app(arguments)
    except (ValueError, OSError, ArithmeticError, ImportError, MemoryError, KeyboardInterrupt) as problem:
        if os.environ.get("XDECONV_TRACEBACK"):
            raise
        text = "interrupted" if isinstance(problem, KeyboardInterrupt) else str(problem)
        say(f"xdeconv: {text}")
        ranks = sys.modules.get("xdeconv.system.ranks")
        if ranks is not None and ranks.joined():  # a group that has lost a rank may abort while Python ends
            os._exit(code_of(problem))
        raise SystemExit(code_of(problem)) from None
