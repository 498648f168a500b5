"""What users give for selection=, as the selection function that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .completeness import Completeness
from .contract import Selecting
from .cuts import Cut, resolved


def as_selecting(selection: Any, labels: Sequence[str] | None, d: int) -> Selecting | None:
    """What a user gave for selection=: cuts, a function, or what a model carries."""
    if selection is None or isinstance(selection, Selecting):
        return selection
    some = [selection] if isinstance(selection, Cut) else selection
    if isinstance(some, (list, tuple)) and some and all(isinstance(one, Cut) for one in some):
        return resolved(some, labels, d)
    if callable(selection) and not isinstance(selection, type):
        return Completeness(selection)
    wanted = "an xd.Cut(...), a list of them, an xd.Completeness(...), or a function of rows to probabilities"
    raise ValueError(f"selection must be {wanted}, got {selection!r}")
