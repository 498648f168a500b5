"""Assembling: raw columns into the values and the noise that kernels want, checked on the way, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rows.batch import packed_size
from .assembly_kernel import APART, CONSTANT, DIAGONAL, DOUBLE, FULL, NO_NOISE, SAME, SINGLE, assemble_into
from .bad_rows import ROUNDING, SLACK
from .expressions import Columns
from .recipe import Evaluated, Frame, Recipe

Array = np.ndarray
STRIP = 1 << 14  # rows whose intermediate columns stay in the processor's cache
MODES = {"none": NO_NOISE, "shared": NO_NOISE, "diagonal": DIAGONAL, "full": FULL}


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
) -> Assembled:
    """The rows of all parts, from ``start`` on into ``room``. With a frame, they are in its coordinates."""
    kind, p = recipe.kind, len(recipe.features)
    lengths = [len(next(iter(part.values()))) for part in parts]
    n = sum(lengths)
    x, noise = room or blank(recipe, n)
    seen = _Seen(np.empty(n, bool), np.tile([np.inf, -np.inf], (p, 1)), np.zeros(2, np.int64))
    wires: Wires | None = None
    done = 0
    for part, length in zip(parts, lengths, strict=True):
        for first in range(0, length, STRIP):
            strip = recipe.evaluate({name: column[first : first + STRIP] for name, column in part.items()})
            wires = wires or _wired(strip)
            _strip(strip, wires, frame, MODES[kind], x, noise, start, done + first, seen)
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
    strip: Evaluated, wires: Wires, frame: Frame | None, mode: int, x: Array, noise: Array, start: int, done: int,
    seen: _Seen,
) -> None:  # fmt: skip
    """A few rows into their places."""
    p, n = len(strip.x), len(strip.x[0])
    slopes = [slope for each in strip.slopes for slope in each.values()]
    held, address, kinds, numbers = _lines(
        [*strip.x, *strip.deviations.values(), *strip.correlations.values(), *slopes]
    )
    shift, scale = (np.zeros(p), np.ones(p)) if frame is None else (frame.shift, frame.scale)
    assemble_into(x.dtype == np.float32)(
        address, kinds, numbers, wires.sizes, wires.first, wires.source, wires.slope, wires.link, wires.pairs,
        wires.coupled, shift, scale, mode, np.array([1 + ROUNDING, SLACK]), start + done, n, x,
        noise if mode != NO_NOISE else x[:0], seen.doubtful[done:], seen.spans, seen.counts,
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

    sizes     numbers of features, sources and correlations
    first     (p + 1,) where the parts of each feature begin
    source    number of each part's source
    slope     line of each part's slope
    link      (parts, parts) how two parts' sources are correlated
    pairs     (correlations, 2) sources
    coupled   features whose noise is not independent of all others
    """

    sizes: Array
    first: Array
    source: Array
    slope: Array
    link: Array
    pairs: Array
    coupled: Array


def _wired(strip: Evaluated) -> Wires:
    sources = {name: i for i, name in enumerate(strip.deviations)}
    known = {pair: c for c, pair in enumerate(strip.correlations)}
    parts = [(a, source) for a, slopes in enumerate(strip.slopes) for source in slopes]
    link = np.array([[_between(s, t, known) for _, t in parts] for _, s in parts], np.int64)
    link = link.reshape(len(parts), len(parts))
    owner = np.array([a for a, _ in parts], np.int64)
    before = len(strip.x) + len(sources) + len(known)
    linked = {a for i, a in enumerate(owner) for j, b in enumerate(owner) if a != b and link[i, j] != APART}
    unknown = len(sources)  # a correlation of a source that no feature has
    pairs = [[sources.get(s, unknown), sources.get(t, unknown)] for s, t in known]
    return Wires(
        sizes=np.array([len(strip.x), len(sources), len(known)]),
        first=np.searchsorted(owner, np.arange(len(strip.x) + 1)).astype(np.int64),
        source=np.array([sources[s] for _, s in parts], np.int64),
        slope=before + np.arange(len(parts), dtype=np.int64),
        link=link,
        pairs=np.array(pairs, np.int64).reshape(len(pairs), 2),
        coupled=np.array(sorted(linked), np.int64),
    )


def _between(s: str, t: str, known: Mapping[tuple[str, str], int]) -> int:
    return SAME if s == t else known.get((s, t), known.get((t, s), APART))
