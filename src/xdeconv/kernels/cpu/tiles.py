"""The steps that a tile of rows goes through, each compiled by itself and called by address.

A step takes six whole numbers, mostly addresses. ``rows`` are groups of W rows, each column by column; ``table`` are
the same rows one after the other; ``joint`` (k, TILE) holds log alpha N, and later its exp; ``state`` is one line of
TILE numbers for each of the names below. Steps load before they store, because a store holds up a later load whose
address agrees with its own in the last twelve bits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...system.checksums import checksum
from ...system.keeping import kept, say_compiling
from . import pairs as numba_pairs
from .kinds import TILE, Kind, Unrolled
from .lanes import ADDRESS, Emitter, Lanes, WideEmitter
from .pairs import Load
from .posterior_pairs import add_posteriors

log = logging.getLogger("xdeconv")

LARGEST, TOTAL, NORM, SHARE, CUT, CONSTANT, BACK, TAIL = range(8)
TAILS = 3
STATES = TAIL + TAILS
UNSEEN = 1e30  # the variance of a missing value, in bounds only
SIX = (types.int64,) * 6
_cfunc: Any = numba.cfunc  # its annotations know no options


def lost(bits: int) -> float:
    """The part of a row's mass that skipping may lose."""
    return 2.0**-24 if bits == 32 else 2.0**-40


def cuts(bits: int) -> list[float]:
    """Responsibilities, relative to a row's largest, at which the mass below is measured."""
    return [lost(bits) * 4.0**-i for i in range(TAILS)]


def joint_of_rows(emit: Emitter, kind: Kind, rows: Any, groups: Any, component: Any, joint: Any, *_: Any) -> None:
    """log alpha N of one component and neighbouring rows."""
    with cgutils.for_range(emit.builder, groups) as loop:
        row = emit.at(rows, loop.index, kind.row_numbers * emit.width)
        value = numba_pairs.log_joint(emit, kind, _columns(emit, row), _constants(emit, component))
        emit.store(value, emit.at(joint, loop.index, emit.width))


def joint_of_best(
    emit: Emitter, kind: Kind, rows: Any, groups: Any, components: Any, best: Any, out: Any, _: Any
) -> None:
    """log alpha N of neighbouring rows, each with a component of its own."""
    with cgutils.for_range(emit.builder, groups) as loop:
        row = emit.at(rows, loop.index, kind.row_numbers * emit.width)
        columns = emit.rows(components, kind.component_numbers, _index_at(emit, best, loop.index))
        value = numba_pairs.log_joint(emit, kind, _columns(emit, row), columns.__getitem__)
        emit.store(value, emit.at(out, loop.index, emit.width))


def sums_of_rows(
    emit: Emitter, kind: Kind, rows: Any, groups: Any, component: Any, joint: Any, sums: Any, _: Any
) -> None:
    """Add the sums of one component and neighbouring rows with responsibilities ``joint`` to lanes."""
    with cgutils.for_range(emit.builder, groups) as loop:
        row = emit.at(rows, loop.index, kind.row_numbers * emit.width)
        r = emit.load(emit.at(joint, loop.index, emit.width))
        _add(emit, numba_pairs.sums(emit, kind, _columns(emit, row), _constants(emit, component), r), sums)


def noise_range(emit: Emitter, kind: Kind, rows: Any, groups: Any, least: Any, most: Any, *_: Any) -> None:
    """Least and most, lane by lane, of the row sums of |S|, diagonal matrices with which are at least S."""
    with cgutils.for_range(emit.builder, groups) as loop:
        row = _columns(emit, emit.at(rows, loop.index, kind.row_numbers * emit.width))
        for a in range(kind.d):
            if kind.noise == "full":
                entries = [row(kind.d + numba_pairs.packed(max(a, b), min(a, b))) for b in range(kind.d)]
            else:
                entries = [row(kind.d + a)]
            size = numba_pairs.total([emit.magnitude(entry) for entry in entries])
            size = row(a).compare("==", row(a)).where(size, emit.constant(UNSEEN))
            emit.store(emit.smallest(size, emit.load(least, a * emit.width)), least, a * emit.width)
            emit.store(emit.largest(size, emit.load(most, a * emit.width)), most, a * emit.width)


def bounds(emit: Emitter, kind: Kind, components: Any, index: Any, noise: Any, offsets: Any, out: Any, _: Any) -> None:
    """W components that bound those of an index from above for every row of a tile with at most this noise (d)."""
    columns = emit.rows(components, kind.component_numbers, index)
    inverse = numba_pairs.bound(emit, kind, columns.__getitem__, _constants(emit, noise))
    emit.store_rows([*columns[: kind.d], *inverse, emit.load(offsets), *columns[kind.offset + 1 :]], out)


def bound_of_rows(
    emit: Emitter, kind: Kind, rows: Any, groups: Any, component: Any, joint: Any, state: Any, _: Any
) -> None:
    """log alpha N of a bounding component and neighbouring rows, and the largest so far of each row."""
    with cgutils.for_range(emit.builder, groups) as loop:
        row, at = emit.at(rows, loop.index, kind.row_numbers * emit.width), emit.at(state, loop.index, emit.width)
        old = emit.load(at, LARGEST * TILE)
        value = numba_pairs.log_joint_shared(emit, kind, _columns(emit, row), _constants(emit, component))
        emit.store(value, emit.at(joint, loop.index, emit.width))
        emit.store(emit.largest(value, old), at, LARGEST * TILE)


def groups_of_table(emit: Emitter, kind: Kind, table: Any, index: Any, count: Any, rows: Any, *_: Any) -> None:
    """The rows that an index of ``count`` names become groups of W rows, column by column."""
    with _groups(emit, index, count) as (group, places):
        out = emit.at(rows, group, kind.row_numbers * emit.width)
        emit.copy_rows(table, kind.row_numbers, places, out, kind.used_numbers)


def gathered(emit: Emitter, kind: Kind, line: Any, index: Any, count: Any, out: Any, *_: Any) -> None:
    """The numbers that an index of ``count`` names, one after the other, filled up to whole groups with 0."""
    with _groups(emit, index, count) as (group, places):
        remaining = emit.builder.sub(count, emit.builder.mul(group, ADDRESS(emit.width)))
        value = emit.lanes_below(remaining).where(emit.gather(line, places), emit.constant(0.0))
        emit.store(value, emit.at(out, group, emit.width))


def scattered(emit: Emitter, kind: Kind, values: Any, index: Any, count: Any, line: Any, *_: Any) -> None:
    """Numbers one after the other go where an index of ``count``, filled up with row 0, says."""
    with _groups(emit, index, count) as (group, places):
        emit.scatter(emit.load(emit.at(values, group, emit.width)), line, places)


def largest(emit: Emitter, kind: Kind, joint: Any, k: Any, groups: Any, state: Any, *_: Any) -> None:
    """The largest entry of each row."""
    with _pairs(emit, joint, k, groups) as (value_at, group):
        at = emit.at(state, group, emit.width)
        emit.store(emit.largest(emit.load(value_at), emit.load(at, LARGEST * TILE)), at, LARGEST * TILE)


def best(emit: Emitter, kind: Kind, joint: Any, k: Any, groups: Any, state: Any, best: Any, _: Any) -> None:
    """The component that has each row's largest entry."""
    with cgutils.for_range(emit.builder, groups) as loop:
        top = emit.load(emit.at(state, loop.index, emit.width), LARGEST * TILE)
        index = emit.index_variable()
        with cgutils.for_range(emit.builder, k) as inner:
            value = emit.load(emit.at(emit.at(joint, inner.index, TILE), loop.index, emit.width))
            emit.replace_index(index, value.compare("==", top), inner.index)
        emit.store_index(index, _index_at(emit, best, loop.index))


def exponentials(emit: Emitter, kind: Kind, joint: Any, k: Any, groups: Any, state: Any, *_: Any) -> None:
    """exp of the distance to each row's largest entry, and their sum."""
    _exponentials(emit, joint, k, groups, state, [])


def exponentials_and_tails(emit: Emitter, kind: Kind, joint: Any, k: Any, groups: Any, state: Any, *_: Any) -> None:
    """exp of the distance to each row's largest entry, their sum, and the sums of those below each cut."""
    _exponentials(emit, joint, k, groups, state, cuts(kind.bits))


def _exponentials(emit: Emitter, joint: Any, k: Any, groups: Any, state: Any, cuts: list[float]) -> None:
    with _pairs(emit, joint, k, groups) as (value_at, group):
        at = emit.at(state, group, emit.width)
        sums = [emit.load(at, line * TILE) for line in (TOTAL, *range(TAIL, TAIL + len(cuts)))]
        value = emit.exp(emit.load(value_at) - emit.load(at, LARGEST * TILE))
        small = [value.compare("<", emit.constant(cut)).where(value, emit.constant(0.0)) for cut in cuts]
        emit.store(value, value_at)
        emit.store(sums[0] + value, at, TOTAL * TILE)
        for i, part in enumerate(small):
            emit.store(sums[1 + i] + part, at, (TAIL + i) * TILE)


def logarithms(emit: Emitter, kind: Kind, groups: Any, state: Any, *_: Any) -> None:
    """The logarithm of each row's total, with its largest entry added."""
    with cgutils.for_range(emit.builder, groups) as loop:
        at = emit.at(state, loop.index, emit.width)
        emit.store(emit.log(emit.load(at, TOTAL * TILE)) + emit.load(at, LARGEST * TILE), at, NORM * TILE)


def chosen(emit: Emitter, kind: Kind, joint: Any, groups: Any, state: Any, index: Any, count: Any, _: Any) -> None:
    """The index of rows that are not below their cut; the others become -inf."""
    with _selection(emit, groups, index, count) as (group, add):
        value_at = emit.at(joint, group, emit.width)
        value = emit.load(value_at)
        keep = ~value.compare("<", emit.load(emit.at(state, group, emit.width), CUT * TILE))
        emit.store(
            value + keep.where(emit.constant(0.0), emit.constant(-math.inf)), value_at
        )  # a select would be a slow masked store
        add(keep)


def responsible(emit: Emitter, kind: Kind, joint: Any, groups: Any, state: Any, index: Any, count: Any, _: Any) -> None:
    """The index of rows whose exp is not below their cut, and that exp times the row's share as responsibility."""
    with _selection(emit, groups, index, count) as (group, add):
        value_at, at = emit.at(joint, group, emit.width), emit.at(state, group, emit.width)
        value, share, cut = emit.load(value_at), emit.load(at, SHARE * TILE), emit.load(at, CUT * TILE)
        emit.store(value * share, value_at)
        add(~value.compare("<", cut))


STEPS = {step.__name__: step for step in (
    groups_of_table, joint_of_rows, joint_of_best, sums_of_rows, noise_range, bounds, bound_of_rows,
    gathered, scattered, largest, best, exponentials, exponentials_and_tails, logarithms, chosen, responsible,
    add_posteriors,
)}  # fmt: skip


@cache
def compiled(kind: Kind, step: str) -> int:
    """The address of a step for a kind of data, compiled now unless the disk has it."""
    code, mark = kind.code, fingerprint()

    def run(a, b, c, d, e, f):  # type: ignore[no-untyped-def]
        _emit(code, step, mark, a, b, c, d, e, f)

    run.__qualname__ = f"{step} {code}".replace(" ", "_")  # an index of its own: processes must not share numbers
    made = kept(lambda keep: _cfunc(types.void(*SIX), cache=keep, nopython=True, error_model="numpy")(run))
    return int(made.address)


def for_what(kind: Unrolled) -> str:
    """What a kind's steps are for, as people are told; some serve rows of all dimensions.

    >>> for_what(Unrolled(6, 6, "diagonal", False, False, 64)), for_what(Unrolled(6, 6, "full", True, False, 32).plain)
    ('d = 6, diagonal noise, float64', 'all dimensions, float32')
    """
    rows = "all dimensions" if kind == kind.plain else f"d = {kind.d}, {kind.noise} noise"
    return f"{rows}, float{kind.bits}"


@intrinsic(prefer_literal=True)
def _emit(typing: Any, code: Any, step: Any, mark: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """The instructions of a step, in place of a call."""
    kind, write = Unrolled.parse(code.literal_value), STEPS[step.literal_value]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        say_compiling(for_what(kind))
        write(WideEmitter(builder, kind.bits), kind, *arguments[3:])
        return context.get_dummy_value()

    return types.void(code, step, mark, *SIX), generate


@cache
def fingerprint() -> int:
    """Changes with the files whose instructions end up in a compiled step: Numba's cache looks at one only."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return checksum(*(file.read_bytes() for file in files))


def _columns(emit: Emitter, address: Any) -> Load:
    return lambda column: emit.load(address, column * emit.width)


def _constants(emit: Emitter, address: Any) -> Load:
    return lambda column: emit.broadcast(address, column)


def _index_at(emit: Emitter, index: Any, group: Any) -> Any:
    return emit.builder.add(index, emit.builder.mul(group, ADDRESS(4 * emit.width)))


def _add(emit: Emitter, terms: list[Lanes], lanes: Any) -> None:
    for i, term in enumerate(terms):
        emit.add_folded(term, lanes, i * emit.piece)


@contextmanager
def _groups(emit: Emitter, index: Any, count: Any) -> Iterator[tuple[Any, Any]]:
    """Loop over an index of rows, W at a time: the group, and the address of its indices."""
    builder = emit.builder
    groups = builder.udiv(builder.add(count, ADDRESS(emit.width - 1)), ADDRESS(emit.width))
    with cgutils.for_range(builder, groups) as loop:
        yield loop.index, _index_at(emit, index, loop.index)


@contextmanager
def _pairs(emit: Emitter, joint: Any, k: Any, groups: Any) -> Iterator[tuple[Any, Any]]:
    """Loop over components and groups of rows: the address of their entries, and the group."""
    with cgutils.for_range(emit.builder, k) as outer, cgutils.for_range(emit.builder, groups) as inner:
        yield emit.at(emit.at(joint, outer.index, TILE), inner.index, emit.width), inner.index


@contextmanager
def _selection(emit: Emitter, groups: Any, index: Any, count: Any) -> Iterator[tuple[Any, Callable[[Lanes], None]]]:
    """Loop over groups of rows with a function that adds some of a group's rows to an index, filled up with row 0."""
    builder = emit.builder
    counter = cgutils.alloca_once_value(builder, ADDRESS(0))
    with cgutils.for_range(builder, groups) as loop:

        def add(chosen: Lanes) -> None:
            have = builder.load(counter)
            place = builder.add(index, builder.mul(have, ADDRESS(4)))
            more = emit.compress(chosen, builder.mul(loop.index, ADDRESS(emit.width)), place)
            builder.store(builder.add(have, more), counter)

        yield loop.index, add
    have = builder.load(counter)
    emit.clear_indices(builder.add(index, builder.mul(have, ADDRESS(4))))
    emit.store_count(have, count)
