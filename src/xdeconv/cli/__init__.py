"""The command ``xdeconv``, one file per command, in the order of a user's day.

Nothing heavy is imported until a command runs, so that --help answers at once. It imports all other rooms."""

from __future__ import annotations

import os

from .app import app, run

# The order in which --help lists the commands.
# isort: off
from . import demo, simulate, prepare, info
from . import fit, select, errors, bootstrap, check
from . import score, posterior, members, classify, condition, sample
from . import plot, explore, export
# isort: on

ARROW_ROOM = "MIMALLOC_ARENA_RESERVE", "65536"
"""KiB that Arrow takes at a time. By default it takes 1 GiB for its first number, which counts against `ulimit -d`."""

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
    os.environ.setdefault(*ARROW_ROOM)
    run(last=True)
