"""The steps of ``tiles`` for dimensions that are known at run time: few to compile, for every size.

They take what those take and, last, the address of a header with the dimensions and with room to work in. Pairs are
bounded from above by their leading coordinates: a distance only grows with further ones, and the pivots of T are at
least those of V.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ...system.keeping import kept, say_compiling
from .blocks import BLOCK, Blocked
from .lanes import ADDRESS, INDEX, Lanes
from .moments import prepared, seen
from .panels import SIDE, Pair, Variables, Writer
from .sums import sums_of_rows
from .tiles import LARGEST, SIX, TILE, _cfunc, fingerprint
from .whitening import joint_shared


def joint_of_rows(emit: Writer, rows: Any, groups: Any, component: Any, joint: Any, *_: Any) -> None:
    """log alpha N of one component and neighbouring rows."""
    if emit.kind.noise == "shared":
        return joint_shared(emit, rows, groups, component, joint)
    with emit.range(ADDRESS(0), emit.times(groups, emit.parts)) as t:
        pair = prepared(emit, emit.part(rows, t, emit.header["slots"]), component)
        emit.store(_log_joint(emit, pair, _after_matrix(emit, component)), emit.at(joint, t, emit.width))
    return None


def joint_of_best(emit: Writer, rows: Any, groups: Any, components: Any, best: Any, out: Any, _: Any) -> None:
    """log alpha N of neighbouring rows, each with a component of its own."""
    own, numbers = emit.header["own"], emit.header["component_numbers"]
    blocks = emit.builder.udiv(numbers, ADDRESS(emit.piece))
    with emit.range(ADDRESS(0), groups) as group:
        index = emit.builder.add(best, emit.times(group, 4 * emit.group))
        _transposed(emit, components, numbers, index, blocks, own, None)
        for part in range(emit.parts):
            t = emit.plus(emit.times(group, emit.parts), part)
            row = emit.part(rows, t, emit.header["slots"])
            component = emit.plus(own, part * emit.width * emit.size)
            offset = emit.load(emit.at(component, emit.header["offset"], emit.group))
            value = _log_joint(emit, prepared(emit, row, component, emit.group), offset)
            emit.store(value, emit.at(out, t, emit.width))


def bound_of_rows(emit: Writer, rows: Any, groups: Any, component: Any, joint: Any, state: Any, _: Any) -> None:
    """At least log alpha N of one component and neighbouring rows, and the largest so far of each row."""
    with emit.range(ADDRESS(0), emit.times(groups, emit.parts)) as t:
        pair = prepared(emit, emit.part(rows, t, emit.header["slots"]), component)
        leading = emit.header["leading"]
        value = _log_joint(emit, pair, _after_matrix(emit, component), leading) - _rest(emit, component, leading)
        at = emit.at(state, t, emit.width)
        old = emit.load(at, LARGEST * TILE)
        emit.store(value, emit.at(joint, t, emit.width))
        emit.store(emit.largest(value, old), at, LARGEST * TILE)


def nothing(emit: Writer, *_: Any) -> None:
    """No noise of a whole tile is needed where each row's own bounds it."""


def _log_joint(emit: Writer, pair: Pair, offset: Lanes, blocks: Any = None) -> Lanes:
    """Of all coordinates, or of some leading blocks of them."""
    distance, determinant = pair.factor(blocks)
    return emit.constant(-0.5) * (distance[0, 0] + determinant.value()) + offset


def _after_matrix(emit: Writer, component: Any, place: int = 0) -> Lanes:
    """log alpha, or half the logarithm of the pivots of V after the leading ones, or of one of them."""
    return emit.broadcast(emit.at(component, emit.header["offset"]), place)


def _rest(emit: Writer, component: Any, leading: Any) -> Lanes:
    """Half of log |V| of the observed coordinates after the leading blocks, given those before: at most that of T."""
    if not emit.kind.missing:
        return _after_matrix(emit, component, 1)
    pivots = emit.plus(emit.at(component, emit.header["offset"]), 2 * emit.size)
    total = Variables(emit, {(0, 0): emit.zero})
    with emit.range(leading, emit.blocks("latent")) as i:
        at, observed = emit.at(pivots, i, BLOCK), seen(emit, i)
        total[0, 0] = sum((observed[r] * emit.broadcast(at, r) for r in SIDE), total[0, 0])
    return total[0, 0]


def groups_of_table(emit: Writer, table: Any, index: Any, count: Any, rows: Any, *_: Any) -> None:
    """The rows that an index of ``count`` names become groups of rows, number by number."""
    numbers = emit.header["row_numbers"]
    blocks = emit.builder.udiv(numbers, ADDRESS(emit.piece))
    groups = emit.builder.udiv(emit.plus(count, emit.group - 1), ADDRESS(emit.group))
    with emit.range(ADDRESS(0), groups) as group:
        places = emit.builder.add(index, emit.times(group, 4 * emit.group))
        out = emit.at(rows, emit.builder.mul(group, emit.header["slots"]), emit.group)
        _transposed(emit, table, numbers, places, blocks, out, emit.header["destinations"])


def _transposed(
    emit: Writer, table: Any, numbers: Any, index: Any, blocks: Any, out: Any, destinations: Any | None
) -> None:
    """The numbers of the table rows that a group of indices names, each to its destination or one after the other."""
    places = [emit.builder.load(emit._pointer(index, lane, INDEX), align=4) for lane in range(emit.group)]
    starts = [emit.at(table, emit.builder.mul(emit.builder.zext(place, ADDRESS), numbers)) for place in places]
    for first in range(0, emit.group, emit.piece):
        with emit.range(ADDRESS(0), blocks) as block:
            here = [emit.at(start, block, emit.piece) for start in starts[first : first + emit.piece]]
            square = emit._transpose(partial(emit._load_half, here, 0))
            for a, column in enumerate(square):
                place = emit.plus(emit.times(block, emit.piece), a)
                if destinations is not None:
                    slot = emit._pointer(emit.builder.add(destinations, emit.times(place, 4)), 0, INDEX)
                    place = emit.builder.zext(emit.builder.load(slot, align=4), ADDRESS)
                at = emit._pointer(emit.at(out, place, emit.group), first, column.type)
                emit.builder.store(column, at, align=emit.size)


STEPS: dict[str, Callable[..., None]] = {step.__name__: step for step in (
    groups_of_table, joint_of_rows, joint_of_best, sums_of_rows, bound_of_rows, nothing,
)}  # fmt: skip
INSTEAD = {"noise_range": "nothing", "bounds": "nothing"}


@cache
def compiled(kind: Blocked, step: str) -> int:
    """The address of a step for a kind of data of any dimensions, compiled now unless the disk has it."""
    return _compiled(kind.code, INSTEAD.get(step, step))


@cache
def _compiled(code: str, step: str) -> int:
    mark = fingerprint()

    def run(a, b, c, d, e, f):  # type: ignore[no-untyped-def]
        _emit(code, step, mark, a, b, c, d, e, f)

    run.__qualname__ = f"large {step} {code}".replace(" ", "_")
    made = kept(lambda keep: _cfunc(types.void(*SIX), cache=keep, nopython=True, error_model="numpy")(run))
    return int(made.address)


@intrinsic(prefer_literal=True)
def _emit(typing: Any, code: Any, step: Any, mark: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """The instructions of a step, in place of a call."""
    kind, write = Blocked.parse(code.literal_value), STEPS[step.literal_value]

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        say_compiling(f"many dimensions ({code.literal_value})")
        write(Writer(builder, kind, arguments[-1]), *arguments[3:])
        return context.get_dummy_value()

    return types.void(code, step, mark, *SIX), generate
