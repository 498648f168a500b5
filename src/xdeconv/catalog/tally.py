"""Tally: what reading a catalogue has met so far, shared by all parts of it and by all threads that read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from . import positions
from .blocks import Block, Part

log = logging.getLogger("xdeconv")
Array = np.ndarray
RA_EDGE, POLE = 10.0, 85.0  # degrees
Key = tuple[Part | None, tuple[int, ...] | None]  # of a source: which rows of which pieces


@dataclass
class Tally:
    """Counts and remarks.

    rows      of each source that was counted
    checked   by (piece, part, first row, rows) of every block that was looked at: the places of its bad rows
    skipped   damaged parts that were left out
    observed  of each source, which features have a value in some row that counts
    samples   of each source that was surveyed, the rows that samples come from, if there are any
    weights   of each source that was surveyed, its weight and how many rows have nothing observed
    """

    rows: dict[Key, int] = field(default_factory=dict)
    checked: dict[tuple[int, Part | None, int, int], Array] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    said: set[str] = field(default_factory=set)
    edges: dict[str, tuple[float, float]] = field(default_factory=dict)
    observed: dict[Key, Array] = field(default_factory=dict)
    samples: dict[Key, Block | None] = field(default_factory=dict)
    weights: dict[Key, tuple[float, float]] = field(default_factory=dict)

    @property
    def dropped(self) -> int:
        """How many rows were dropped."""
        places = [(piece, row) for (piece, *_), bad in list(self.checked.items()) for row in bad.tolist()]
        return len(set(places))

    def say(self, text: str) -> None:
        """Log a warning once."""
        if text not in self.said:
            self.said.add(text)
            log.warning(text)

    def watch(self, key: Key, labels: Sequence[str], known: Sequence[str], spans: Array, shown: Array) -> None:
        """Features that rows which count have shown; plain ra that wraps, and rows near a pole."""
        self.observed[key] = self.observed.get(key, False) | shown
        there = spans[:, 0] <= spans[:, 1]
        for name, (low, high) in [(n, s) for n, s, seen in zip(labels, spans, there, strict=True) if seen]:
            position, longitude = _on_sky(name, tuple(known))
            if longitude:
                self._longitude(name, low, high)
            elif position and max(-low, high) > POLE:
                self.say(f"rows lie near a pole (|{name}| > {POLE:g} degrees), where plain longitude is singular")

    def add(self, key: Key, other: Tally) -> None:
        """What another rank has met, of one source."""
        self.checked.update(other.checked)
        self.skipped.update(other.skipped)
        if key in other.observed:
            self.observed[key] = self.observed.get(key, False) | other.observed[key]
        for text in sorted(other.said):
            self.say(text)
        for name, (low, high) in other.edges.items():
            self._longitude(name, low, high)

    def _longitude(self, name: str, low: float, high: float) -> None:
        before = self.edges.get(name, (np.inf, -np.inf))
        least, most = self.edges[name] = (min(before[0], float(low)), max(before[1], float(high)))
        if least < RA_EDGE and most > 360 - RA_EDGE:
            self.say(f"{name} straddles 0/360 degrees, where a density of plain {name} is cut in two: "
                     "see derive= and xd.sky for other coordinates")  # fmt: skip


@lru_cache(maxsize=256)
def _on_sky(name: str, known: tuple[str, ...]) -> tuple[bool, bool]:
    """Whether a column is a position, and whether it is a longitude; asked for once per block of rows."""
    return positions.is_position(name, known), positions.is_longitude(name, known)
