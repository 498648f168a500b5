"""The command ``xdeconv``: nothing heavy is imported until a command runs, so that --help answers at once."""

from __future__ import annotations

from . import explore, files, fit, models, plot, rows, select
from .app import app, run

__all__ = ["app", "explore", "files", "fit", "main", "models", "plot", "rows", "select"]


def main() -> None:
    """The command line."""
    run()
