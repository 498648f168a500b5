"""Assembling: raw columns into the values and the noise that kernels want, checked on the way, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..rows.batch import packed_size
from ..rows.tables import Inexact
from .assembly_kernel import CONSTANT, DOUBLE, NOWHERE, SAME, SINGLE, assemble_into
from .bad_rows import ROUNDING, SLACK
from .evaluating import Columns
from .recipe import Evaluated, Frame, Recipe

Array = np.ndarray
STRIP = 1 << 16  # rows whose intermediate columns are made at a time
LIMITS = np.array([1 + ROUNDING, SLACK / 2])  # half of what is too much for :func:`.bad_rows.bad_rows`, which decides


@dataclass(frozen=True)
class Assembled:
    """Rows as a Batch wants them, and what was seen on the way.

    x, noise   values (p, n) with NaN for missing; packed, diagonal, one column, or None
    doubtful   (n,) rows that may be impossible: what is said of a row exactly is :func:`.bad_rows.bad_rows`'s to say
    spans      (p, 2) least and largest value of each feature, in the user's units; (inf, -inf) where it has none
    empty      how many rows have nothing observed
    partial    how many rows miss something
    """

    x: Array
    noise: Array | None
    doubtful: Array
    spans: Array
    empty: int
    partial: int


def blank(recipe: Recipe, n: int, new: Callable[[tuple[int, int]], Array] = np.empty) -> tuple[Array, Array]:
    """Room for the values and the noise of n rows."""
    p = len(recipe.features)
    lines = {"none": 0, "shared": p, "diagonal": p, "full": packed_size(p)}[recipe.kind]
    return new((p, n)), new((lines, 1 if recipe.kind == "shared" else n))


def assemble(
    recipe: Recipe,
    parts: Sequence[Columns],
    frame: Frame | None = None,
    room: tuple[Array, Array] | None = None,
    start: int = 0,
    look: bool = True,
) -> Assembled:
    """The rows of all parts, from ``start`` on into ``room``. With a frame, they are in its coordinates.

    Who does not ``look`` at them again, in two thirds of the time, learns nothing of doubtful rows and of spans.
    """
    kind, p = recipe.kind, len(recipe.features)
    lengths = [len(next(iter(part.values()))) for part in parts]
    n = sum(lengths)
    x, noise = room or blank(recipe, n)
    seen = _Seen(np.empty(n, bool), np.tile([np.inf, -np.inf], (p, 1)), np.zeros(2, np.int64))
    done = 0
    for part, length in zip(parts, lengths, strict=True):
        for first in range(0, length, STRIP):
            try:
                strip = recipe.evaluate({name: column[first : first + STRIP] for name, column in part.items()})
            except Inexact as problem:
                raise problem.later(done + first) from problem
            _strip(strip, kind, frame, x, noise, start, done + first, seen, look)
        done += length
    if kind == "shared" and n:
        noise[:, 0] = _constants(recipe, parts) / (1.0 if frame is None else frame.scale**2)
    return Assembled(x, None if kind == "none" else noise, seen.doubtful, seen.spans, *map(int, seen.counts))


@dataclass(frozen=True)
class _Seen:
    doubtful: Array
    spans: Array
    counts: Array


def _constants(recipe: Recipe, parts: Sequence[Columns]) -> Array:
    some = next(part for part in parts if len(next(iter(part.values()))))
    return recipe.evaluate({name: column[:1] for name, column in some.items()}).constants()


def _strip(
    strip: Evaluated, kind: str, frame: Frame | None, x: Array, noise: Array, start: int, done: int, seen: _Seen,
    look: bool,
) -> None:  # fmt: skip
    """A few rows into their places."""
    p, n = len(strip.x), len(strip.x[0])
    wires = _wired(tuple(map(tuple, strip.slopes)), tuple(strip.deviations), tuple(strip.correlations), kind)
    slopes = [slope for each in strip.slopes for slope in each.values()]
    held, address, kinds, numbers = _lines(
        [*strip.x, *strip.deviations.values(), *strip.correlations.values(), *slopes]
    )
    shift, scale = (np.zeros(p), np.ones(p)) if frame is None else (frame.shift, frame.scale)
    assemble_into(x.dtype == np.float32)(
        address, kinds, numbers, wires.sizes, wires.first, wires.source, wires.slope, wires.entries, wires.terms,
        wires.pairs, shift, scale, LIMITS, start + done, n, look, x, noise, seen.doubtful[done:], seen.spans,
        seen.counts,
    )  # fmt: skip
    del held  # the arrays must live until here


def _lines(values: Sequence[Any]) -> tuple[list[Array], Array, Array, Array]:
    """Arrays and numbers as the kernel takes them: what is to be kept alive, addresses, kinds, numbers."""
    held: list[Array] = []
    table = np.zeros((2, len(values)), np.int64)
    numbers = np.zeros(len(values))
    for i, value in enumerate(values):
        if isinstance(value, (int, float)) or value.ndim == 0:
            table[1, i], numbers[i] = CONSTANT, value
            continue
        held.append(np.ascontiguousarray(value))
        table[0, i] = held[-1].__array_interface__["data"][0]
        table[1, i] = SINGLE if value.dtype == np.float32 else DOUBLE
    return held, table[0], table[1], numbers


@dataclass(frozen=True)
class Wires:
    """Which noise source acts on which feature, as tables. A part is a feature and a source.

    sizes     numbers of features, sources, correlations, and features whose noise is not independent of all others
    first     (p + 1,) where the parts of each feature begin
    source    number of each part's source
    slope     line of each part's slope
    entries   (lines of noise, 3) where the terms of each begin and end, and its place among those with pivots
    terms     (terms, 3) two parts and how their sources are correlated
    pairs     (correlations, 2) sources
    """

    sizes: Array
    first: Array
    source: Array
    slope: Array
    entries: Array
    terms: Array
    pairs: Array


Pair = tuple[str, str]  # of sources
Entry = tuple[int, int]  # of the covariances: two features
Term = tuple[int, int, int]


@lru_cache(maxsize=64)
def _wired(slopes: tuple[tuple[str, ...], ...], names: tuple[str, ...], known: tuple[Pair, ...], kind: str) -> Wires:
    """The tables of features with these sources each, of all sources, and of those that are correlated."""
    sources = {name: i for i, name in enumerate(names)}
    parts = [(a, source) for a, own in enumerate(slopes) for source in own]
    places = _entries(len(slopes), kind)
    terms = _terms(parts, {pair: c for c, pair in enumerate(known)}, places)
    coupled = sorted(
        {a for entry, some in zip(places, terms, strict=True) if some and len({*entry}) == 2 for a in entry}
    )
    ends = np.cumsum([0, *map(len, terms)])
    entries = [[ends[e], ends[e + 1], _place(entry, coupled)] for e, entry in enumerate(places)]
    unknown = len(sources)  # a correlation of a source that no feature has
    pairs = [[sources.get(s, unknown), sources.get(t, unknown)] for s, t in known]
    return Wires(
        sizes=np.array([len(slopes), len(sources), len(known), len(coupled)], np.int64),
        first=np.cumsum([0, *map(len, slopes)]).astype(np.int64),
        source=np.array([sources[s] for _, s in parts], np.int64),
        slope=len(slopes) + len(sources) + len(known) + np.arange(len(parts), dtype=np.int64),
        entries=np.array(entries, np.int64).reshape(len(entries), 3),
        terms=np.array([term for some in terms for term in some], np.int64).reshape(ends[-1], 3),
        pairs=np.array(pairs, np.int64).reshape(len(pairs), 2),
    )


def _entries(p: int, kind: str) -> list[Entry]:
    """The entries of the noise that each row has of its own, in their order."""
    if kind == "full":
        return [(a, b) for a in range(p) for b in range(a + 1)]
    return [(a, a) for a in range(p)] if kind == "diagonal" else []


def _terms(parts: Sequence[tuple[int, str]], known: Mapping[Pair, int], pairs: Sequence[Entry]) -> list[list[Term]]:
    """Of each entry of the noise, the pairs of parts that it is the sum of, and how their sources are correlated."""
    return [[(i, j, between) for i, (c, s) in enumerate(parts) if c == a for j, (d, t) in enumerate(parts) if d == b
             if (between := _between(s, t, known)) is not None] for a, b in pairs]  # fmt: skip


def _between(s: str, t: str, known: Mapping[Pair, int]) -> int | None:
    return SAME if s == t else known.get((s, t), known.get((t, s)))


def _place(pair: tuple[int, int], coupled: Sequence[int]) -> int:
    """Where an entry is in the packed triangle of the features that are coupled."""
    if pair[0] not in coupled or pair[1] not in coupled:
        return NOWHERE
    a, b = coupled.index(pair[0]), coupled.index(pair[1])
    return packed_size(a) + b
