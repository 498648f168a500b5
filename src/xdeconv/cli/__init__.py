"""The command ``xdeconv``, one file per command, in the order of a user's day.

Nothing heavy is imported until a command runs, so that --help answers at once. It imports all other rooms."""

from __future__ import annotations

from .app import app, run

# The order in which --help lists the commands.
# isort: off
from . import demo, simulate, prepare, info
from . import fit, select, errors, bootstrap, check
from . import score, posterior, members, classify, condition, sample
from . import plot, explore, export
# isort: on

__all__ = [
    "app",
    "bootstrap",
    "check",
    "classify",
    "condition",
    "demo",
    "errors",
    "explore",
    "export",
    "fit",
    "info",
    "main",
    "members",
    "plot",
    "posterior",
    "prepare",
    "run",
    "sample",
    "score",
    "select",
    "simulate",
]


def main() -> None:
    """The command line."""
    run(last=True)
