"""A sum of arrays that arrive in any order, added up in their own, so that its bits do not depend on threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np


class InOrder:
    """Sums of numbered parts; only those whose turn has not come yet are kept.

    >>> sums = InOrder([np.zeros(2)])
    >>> sums.add(1, [np.ones(2)])
    >>> sums.totals, len(sums.waiting)
    ([array([0., 0.])], 1)
    >>> sums.add(0, [np.ones(2)])
    >>> sums.totals, len(sums.waiting)
    ([array([2., 2.])], 0)
    """

    def __init__(self, totals: Sequence[np.ndarray]) -> None:
        self.totals = list(totals)
        self.waiting: dict[int, Sequence[np.ndarray]] = {}
        self.added = 0
        self._lock = threading.Lock()

    def add(self, number: int, parts: Sequence[np.ndarray]) -> None:
        """Add the arrays of one part, and of those that waited for it."""
        with self._lock:
            self.waiting[number] = parts
            while self.added in self.waiting:
                for total, part in zip(self.totals, self.waiting.pop(self.added), strict=True):
                    total += part
                self.added += 1
