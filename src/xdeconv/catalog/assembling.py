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
    """

    x: Array
    noise: Array | None
    doubtful: Array
    spans: Array
    empty: int


def assemble(
    recipe: Recipe,
    parts: Sequence[Columns],
    frame: Frame | None = None,
    new: Callable[[tuple[int, int]], Array] = np.empty,
) -> Assembled:
    """The rows of all parts. With a frame, values and noise are in its coordinates; ``new`` makes the arrays."""
    kind, p = recipe.kind, len(recipe.features)
    lengths = [len(next(iter(part.values()))) for part in parts]
    n = sum(lengths)
    x = new((p, n))
    lines = {"none": 0, "shared": p, "diagonal": p, "full": packed_size(p)}[kind]
    noise = new((lines, 1 if kind == "shared" else n))
    found = Assembled(x, None if kind == "none" else noise, np.empty(n, bool), _no_spans(p), 0)
    empty = start = 0
    wires: Wires | None = None
    for part, length in zip(parts, lengths, strict=True):
        for first in range(0, length, STRIP):
            strip = recipe.evaluate({name: column[first : first + STRIP] for name, column in part.items()})
            wires = wires or _wired(strip)
            empty += _strip(strip, wires, frame, MODES[kind], found, noise, start + first)
        start += length
    if kind == "shared" and n:
        noise[:, 0] = _constants(recipe, parts[0]) if frame is None else _constants(recipe, parts[0]) / frame.scale**2
    return Assembled(x, found.noise, found.doubtful, found.spans, empty)


def _no_spans(p: int) -> Array:
    return np.tile([np.inf, -np.inf], (p, 1))


def _constants(recipe: Recipe, columns: Columns) -> Array:
    return recipe.evaluate({name: column[:1] for name, column in columns.items()}).constants()


def _strip(
    strip: Evaluated, wires: Wires, frame: Frame | None, mode: int, out: Assembled, noise: Array, start: int
) -> int:
    """A few rows into their places; how many have nothing observed."""
    p, n = len(strip.x), len(strip.x[0])
    slopes = [slope for each in strip.slopes for slope in each.values()]
    held, address, kinds, numbers = _lines([*strip.x, *strip.deviations.values(), *strip.correlations.values(), *slopes])
    shift, scale = (np.zeros(p), np.ones(p)) if frame is None else (frame.shift, frame.scale)
    target = noise if mode != NO_NOISE else out.x[:0]
    found = assemble_into(out.x.dtype.type)(
        address, kinds, numbers, wires.sizes, wires.first, wires.source, wires.slope, wires.link, wires.pairs,
        wires.coupled, shift, scale, mode, np.array([1 + ROUNDING, SLACK]), start, n, out.x, target, out.doubtful,
        out.spans,
    )  # fmt: skip
    del held  # the arrays must live until here
    return int(found)


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
