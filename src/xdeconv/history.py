"""What a fit tells of itself, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Epoch:
    """One pass over the data.

    ``loglik`` is the mean log-likelihood per unit of row weight that the pass itself met: of the mixture before the
    step for batch EM, the running mean over the steps for minibatch methods. ``validation`` is of the mixture after
    the pass; ``seconds`` count from the start of the fit. ``moved`` is how many components a search for better optima
    moved before the pass, None when there was no search.
    """

    epoch: int
    seconds: float
    loglik: float
    validation: float | None = None
    restart: int = 0
    moved: int | None = None
    note: str = ""


Callback = Callable[[Epoch], None]
"""Called after each epoch."""
