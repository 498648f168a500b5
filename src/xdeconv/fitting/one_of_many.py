"""One fit of many: shown under its name, which its trouble has too; an interrupt of one ends them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..rows.data import Source
from .history import Epoch
from .progress import describe_epoch
from .rescue import NumericalTrouble
from .result import FitResult

Fit = Callable[..., FitResult]
Show = Callable[[str, int], None]
"""Called with a text, and 1 when one of many is done, 0 before."""


def one_of_many(fit: Fit, name: str, show: Show, source: Source, **settings: Any) -> FitResult:
    """``fit(source, **settings)``; a callback of the user's own hears of each epoch as well."""
    user = settings.get("callback")

    def callback(record: Epoch) -> None:
        show(f"{name}: {describe_epoch(record)}", 0)
        if user is not None:
            user(record)

    try:
        result = fit(source, **{**settings, "callback": callback, "verbose": False})
    except NumericalTrouble as trouble:
        raise NumericalTrouble(f"{name}: {trouble}") from trouble
    if result.interrupted:
        raise KeyboardInterrupt
    return result
