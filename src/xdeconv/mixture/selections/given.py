"""What users give for selection=, cuts, their conditions or a function, as the selection that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .completeness import Completeness
from .contract import Selecting
from .cuts import Cuts, Edge

SUFFIX = "_over_error"


@dataclass(frozen=True)
class Cut:
    """Rows were kept where one observed coordinate lies between two edges, for ``selection=`` of :func:`xdeconv.fit`.

    Parameters
    ----------
    coordinate : str or int
        A label or the index of a coordinate; ``NAME_over_error`` is NAME divided by the row's own error of it.
    above, below : float, optional
        The edges, in the units of the coordinate, or in errors; at least one.
    over_error : bool, default False
        Whether edges are in errors, for a coordinate that is named otherwise.

    Examples
    --------
    >>> Cut("parallax_over_error", above=5)
    Cut('parallax_over_error', above=5)
    """

    coordinate: str | int
    above: float | None = None
    below: float | None = None
    over_error: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.coordinate, bool) or not isinstance(self.coordinate, (str, int)):
            raise ValueError(f"a Cut needs the label or the index of a coordinate, got {self.coordinate!r}")
        for name, edge in (("above", self.above), ("below", self.below)):
            if edge is not None and (isinstance(edge, (bool, str)) or not np.isfinite(edge)):
                raise ValueError(f"{name} of a Cut must be a finite number, got {edge!r}")
        if self.above is None and self.below is None:
            raise ValueError(f"Cut({self.coordinate!r}) cuts nothing: give above= or below=")
        if self.above is not None and self.below is not None and not self.above < self.below:
            raise ValueError(f"Cut({self.coordinate!r}) keeps nothing: above={self.above:g} and below={self.below:g}")

    def __repr__(self) -> str:
        sides = [
            f"{name}={edge:g}" for name, edge in (("above", self.above), ("below", self.below)) if edge is not None
        ]
        words = [repr(self.coordinate), *sides, *(["over_error=True"] if self.over_error else [])]
        return f"Cut({', '.join(words)})"


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


def resolved(cuts: Sequence[Cut], labels: Sequence[str] | None, d: int) -> Cuts:
    """Cuts on coordinates by index, of a model with labels."""
    edges: list[Edge] = []
    for cut in cuts:
        a, by_error = _place(cut, labels, d)
        for value, lower in ((cut.above, True), (cut.below, False)):
            if value is not None:
                edges.append(Edge(a, lower, *((0.0, float(value)) if by_error else (float(value), 0.0))))
    return Cuts(tuple(edges))


def _place(cut: Cut, labels: Sequence[str] | None, d: int) -> tuple[int, bool]:
    """The coordinate that a cut is on, and whether its edges are in errors."""
    name = cut.coordinate
    if isinstance(name, int):
        if not 0 <= name < d:
            raise ValueError(f"selection cuts on column {name} and the data have {d}")
        return name, cut.over_error
    known = list(labels or ())
    if name in known:
        return known.index(name), cut.over_error
    if name.endswith(SUFFIX) and name.removesuffix(SUFFIX) in known:
        return known.index(name.removesuffix(SUFFIX)), True
    columns = f"the columns are {known}" if known else f"the data have no names: give labels=, or an index below {d}"
    raise ValueError(f"selection cuts on {name!r}, and {columns}: what was cut on must be fitted too")


def parsed(text: str) -> list[Cut]:
    """Cuts that are written as conditions, joined by & or "and".

    >>> parsed("parallax_over_error > 5 & phot_g_mean_mag < 20")
    [Cut('parallax_over_error', above=5), Cut('phot_g_mean_mag', below=20)]
    """
    return [_condition(part, text) for part in text.replace(" and ", "&").split("&")]


def _condition(part: str, text: str) -> Cut:
    for sign, word in ((">=", "above"), ("<=", "below"), (">", "above"), ("<", "below")):
        name, there, number = part.partition(sign)
        if there:
            try:
                edge: dict[str, Any] = {word: float(number)}
            except ValueError:
                break
            return Cut(name.strip().strip('"`').removeprefix("(").strip(), **edge)
    raise ValueError(f"{part.strip()!r} in {text!r} is not NAME > NUMBER or NAME < NUMBER")
