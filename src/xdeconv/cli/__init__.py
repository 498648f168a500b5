"""The command ``xdeconv``: nothing heavy is imported until a command runs, so that --help answers at once."""

from __future__ import annotations

from . import files, fit, models, rows, select
from .app import app, run

__all__ = ["app", "files", "fit", "main", "models", "rows", "select"]


def main() -> None:
    """The command line."""
    run()
