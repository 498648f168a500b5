"""The loop over the tiles of a chunk of rows: compiled once for each number type, for every kind of data."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from .numba_lanes import REGISTER_BYTES, VECTOR_BYTES
from .numba_pairs import Kind
from .numba_tiles import (
    CONSTANT, CUT, LARGEST, NORM, SHARE, SIX, STATES, TAIL, TAILS, TILE, TOTAL, UNSEEN, compiled, cuts, fingerprint, lost, notice,
)  # fmt: skip

WINDOW = 4096  # rows that are sorted by their noise, and whose sums are added up in the kernel's type
LEVELS, PATTERNS = 256, 16
NEAR = 40.0  # exp of it is far from the largest number
LOG_PROB, LOG_JOINT, SUMS = range(3)


class Scratch(NamedTuple):
    """Memory of one thread."""

    state: Any  # (STATES, TILE)
    table: Any  # (TILE, row numbers): rows one after the other
    rows: Any  # the same in groups of W rows, column by column
    joint: Any  # (k, TILE): log alpha N, later exp, later responsibilities
    some: Any  # groups of the rows that one component needs
    values: Any  # (TILE,): their entries of joint
    bound: Any  # (k, component numbers): components that bound a tile
    least: Any  # (d, W): the least noise of a tile, lane by lane
    most: Any  # (d, W): the most
    noise: Any  # (d,): at least the noise of every row of a tile
    offsets: Any  # (k,): of the bounding components
    lanes: Any  # (k, sums, numbers of a register)
    order: Any  # (WINDOW,): rows in the order of their noise
    keys: Any  # (WINDOW,)
    counts: Any  # (LEVELS PATTERNS + 1,)
    every: Any  # (TILE or more,): 0, 1, 2 ...
    index: Any  # (TILE + 2 W,): places in a tile
    best: Any  # (TILE,): components
    count: Any  # (1,)


class Places(NamedTuple):
    """Addresses of the scratch memory that steps read and write."""

    state: Any
    table: Any
    rows: Any
    joint: Any
    some: Any
    values: Any
    bound: Any
    least: Any
    most: Any
    noise: Any
    offsets: Any
    lanes: Any
    every: Any
    index: Any
    best: Any
    count: Any
    components: Any


class Steps(NamedTuple):
    """Addresses of compiled steps, 0 for those that are not needed."""

    groups_of_table: int
    joint_of_rows: int
    largest: int = 0
    exponentials: int = 0
    logarithms: int = 0
    responsible: int = 0
    sums_of_rows: int = 0
    gathered: int = 0
    noise_range: int = 0
    bounds: int = 0
    bound_of_rows: int = 0
    best: int = 0
    joint_of_best: int = 0
    chosen: int = 0
    scattered: int = 0


class Shape(NamedTuple):
    """What is wanted and how: whole numbers that the loop reads."""

    want: int
    skip: int
    bounded: int
    full: int
    component_numbers: int
    sums: int


def steps(kind: Kind, want: int, skip: bool, bounded: bool) -> Steps:
    """The steps that are needed, compiled."""
    plain, need = kind.plain, {}
    if want != LOG_JOINT:
        exponentials = "exponentials_and_tails" if want == SUMS and skip else "exponentials"
        need = {"largest": compiled(plain, "largest"), "exponentials": compiled(plain, exponentials)}
        need["logarithms"] = compiled(plain, "logarithms")
    if want == SUMS:
        need |= {"responsible": compiled(plain, "responsible"), "sums_of_rows": compiled(kind, "sums_of_rows")}
        need["gathered"] = compiled(plain, "gathered")
    if bounded:
        need |= {name: compiled(kind, name) for name in ("noise_range", "bounds", "bound_of_rows", "joint_of_best")}
        need |= {name: compiled(plain, name) for name in ("best", "chosen", "scattered")}
    return Steps(compiled(kind, "groups_of_table"), compiled(kind, "joint_of_rows"), **need)


def scratch(kind: Kind, k: int, new: Callable[[int, np.dtype], np.ndarray]) -> Scratch:
    """Scratch memory from ``new(numbers, dtype)``; nothing reads what nothing has written."""
    lines, W = -(-k // kind.width) * kind.width, kind.width

    def numbers(*shape: int) -> np.ndarray:
        return new(math.prod(shape), np.dtype(f"f{kind.bits // 8}")).reshape(shape)

    def indices(size: int) -> np.ndarray:
        return new(size, np.dtype(np.int32))

    result = Scratch(
        numbers(STATES, TILE), numbers(TILE, kind.row_numbers), numbers(TILE * kind.row_numbers), numbers(k, TILE),
        numbers(TILE * kind.row_numbers), numbers(TILE), numbers(lines, kind.component_numbers),
        numbers(kind.d, W), numbers(kind.d, W), numbers(kind.d), numbers(lines), numbers(k, kind.sums, kind.piece),
        indices(WINDOW), indices(WINDOW), indices(LEVELS * PATTERNS + 1), indices(max(TILE, lines)),
        indices(TILE + 2 * W), indices(TILE), new(1, np.dtype(np.int64)),
    )  # fmt: skip
    result.every[:] = np.arange(len(result.every))
    result.lanes[:] = 0
    return result


def places(memory: Scratch, components: np.ndarray) -> Places:
    """The addresses of scratch memory and of the table of components."""
    fields = {name: getattr(memory, name).ctypes.data for name in Places._fields if name != "components"}
    return Places(**fields, components=components.ctypes.data)


@intrinsic
def _call(typing: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """Call the compiled step at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        step = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 6)
        builder.call(builder.inttoptr(arguments[0], step.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(types.int64, *SIX), generate


@njit(nogil=True, error_model="numpy")
def _sort_by_noise(x, noise, spread, first, rows, full, memory):  # type: ignore[no-untyped-def]
    """Order some rows by what they miss and by the size of their noise, so that one bound serves a tile well."""
    keys, counts, order = memory.keys, memory.counts, memory.order
    for key in range(len(counts)):
        counts[key] = 0
    for i in range(rows):
        level, pattern = 0.0, 0
        for a in range(len(spread)):
            if x[a, first + i] == x[a, first + i]:
                level += noise[a * (a + 3) // 2 if full else a, first + i] * spread[a]
            else:
                pattern += (2 * a + 1) * (a + 3)
        octave = 4.0 * math.log2(level) + 160.0 if level > 1e-12 else 0.0
        keys[i] = pattern % PATTERNS * LEVELS + int(min(max(octave, 0.0), LEVELS - 1.0))
        counts[keys[i] + 1] += 1
    for key in range(len(counts) - 1):
        counts[key + 1] += counts[key]
    for i in range(rows):
        order[counts[keys[i]]] = i
        counts[keys[i]] += 1


@njit(nogil=True, error_model="numpy")
def _fill(x, noise, projection, weight, unit, window, first, rows, block, memory):  # type: ignore[no-untyped-def]
    """Copy a tile of rows one after the other, filled up to whole groups with the last row at no weight."""
    p, table, state, order = len(unit), memory.table, memory.state, memory.order
    for i in range(block):
        row = window + order[first + min(i, rows - 1)]
        state[CONSTANT, i] = 0
        state[SHARE, i] = 0 if i >= rows else weight[row] if weight.size else 1
    for a in range(p):
        for i in range(block):
            value = x[a, window + order[first + min(i, rows - 1)]]
            table[i, a] = value
            if value == value:
                state[CONSTANT, i] += unit[a]
    for a in range(len(noise)):
        for i in range(block):
            table[i, p + a] = noise[a, window + order[first + min(i, rows - 1)]]
    for a in range(len(projection)):
        for i in range(block):
            table[i, p + len(noise) + a] = projection[a, window + order[first + min(i, rows - 1)]]


@njit(nogil=True, error_model="numpy")
def _bound(components, pivots, last, memory):  # type: ignore[no-untyped-def]
    """At least every row's noise (d) of a tile, and at least every log alpha - log |T| / 2 (k)."""
    offsets = memory.offsets
    for j in range(len(components)):
        offsets[j] = components[j, last]
    for a in range(len(memory.noise)):
        memory.noise[a] = memory.most[a].max()
        seen_by_all, seen_by_none = memory.noise[a] < UNSEEN, memory.least[a].min() >= UNSEEN
        for j in range(len(pivots)):
            if seen_by_all:
                offsets[j] -= pivots[j, a]
            elif not seen_by_none:
                offsets[j] -= min(pivots[j, a], 0)


@njit(nogil=True, error_model="numpy")
def _add_prior(prior, label, window, first, rows, memory):  # type: ignore[no-untyped-def]
    for i in range(rows):
        row = window + memory.order[first + i]
        line = label[row] if label.size else row
        for j in range(prior.shape[1]):
            memory.joint[j, i] += prior[line, j]


@njit(nogil=True, error_model="numpy")
def _finish(total, tail, share, budget, first_cut, ratio, k):  # type: ignore[no-untyped-def]
    """A row's weight over its total, and the entry below which its entries together lose no more than the budget."""
    cut = first_cut
    for t in range(TAILS):
        if tail[t] <= budget * total:
            return share / total, max(cut, budget * total / k)
        cut *= ratio
    return share / total, budget * total / k


@cache
def loop(bits: int) -> Callable[..., None]:
    """The compiled loop for a number type; see ``chunk`` for what it takes."""
    number = types.float32 if bits == 32 else types.float64
    size, W, mark = bits // 8, VECTOR_BYTES * 8 // bits, fingerprint()
    line_size, piece = TILE * size, REGISTER_BYTES // size
    budget, first_cut, ratio = lost(bits), cuts(bits)[0], cuts(bits)[1] / cuts(bits)[0]

    def chunk(
        steps, shape, at, memory, components, pivots, x, noise, projection, weight, prior, label, unit, spread,
        start, stop, log_prob, log_joint, sums, totals,
    ):  # type: ignore[no-untyped-def]  # fmt: skip
        """Rows start to stop: log_prob (n,), log_joint (n, k), or sums (k, ...) and totals (rows, loglik)."""
        k, step_size = len(pivots) + 0 * mark, shape.component_numbers * size
        state, count = memory.state, memory.count
        for window in range(start, stop, WINDOW):
            window_rows = min(WINDOW, stop - window)
            if shape.bounded:
                _sort_by_noise(x, noise, spread, window, window_rows, shape.full, memory)
            else:
                for i in range(window_rows):
                    memory.order[i] = i
            for first in range(0, window_rows, TILE):
                rows = min(TILE, window_rows - first)
                groups = -(-rows // W)
                block = groups * W
                _fill(x, noise, projection, weight, unit, window, first, rows, block, memory)
                _call(steps.groups_of_table, at.table, at.every, block, at.rows, 0, 0)

                near = False  # whether a lower bound of each row's largest entry is close enough to serve instead
                if shape.bounded:
                    memory.least[:] = np.inf
                    memory.most[:] = 0
                    _call(steps.noise_range, at.rows, groups, at.least, at.most, 0, 0)
                    _bound(components, pivots, shape.sums - 1, memory)
                    for j in range(0, k, W):
                        _call(
                            steps.bounds, at.components, at.every + j * 4, at.noise, at.offsets + j * size,
                            at.bound + j * step_size, 0,
                        )  # fmt: skip
                    for i in range(block):
                        state[LARGEST, i] = -np.inf
                    for j in range(k):
                        line = at.joint + j * line_size
                        _call(steps.bound_of_rows, at.rows, groups, at.bound + j * step_size, line, at.state, 0)
                    if prior.size:
                        _add_prior(prior, label, window, first, rows, memory)
                        for i in range(block):
                            state[LARGEST, i] = -np.inf
                        _call(steps.largest, at.joint, k, groups, at.state, 0, 0)
                    _call(steps.best, at.joint, k, groups, at.state, at.best, 0)
                    _call(steps.joint_of_best, at.rows, groups, at.components, at.best, at.state + CUT * line_size, 0)
                    near = True
                    for i in range(block):
                        if prior.size and i < rows:
                            row = window + memory.order[first + i]
                            state[CUT, i] += prior[label[row] if label.size else row, memory.best[i]]
                        if not state[LARGEST, i] < state[CUT, i] + NEAR:
                            near = False
                        state[LARGEST, i] = state[CUT, i]
                        state[CUT, i] += math.log(budget / k)
                for j in range(k):
                    component, line = at.components + j * step_size, at.joint + j * line_size
                    if shape.bounded:
                        _call(steps.chosen, line, groups, at.state, at.index, at.count, 0)
                    if shape.bounded and 4 * count[0] < 3 * block:
                        _call(steps.groups_of_table, at.table, at.index, count[0], at.some, 0, 0)
                        _call(steps.joint_of_rows, at.some, -(-count[0] // W), component, at.values, 0, 0)
                        _call(steps.scattered, at.values, at.index, count[0], line, 0, 0)
                    else:
                        _call(steps.joint_of_rows, at.rows, groups, component, line, 0, 0)
                if prior.size:
                    _add_prior(prior, label, window, first, rows, memory)
                if shape.want == LOG_JOINT:
                    for i in range(rows):
                        for j in range(k):
                            log_joint[window + memory.order[first + i], j] = memory.joint[j, i] - state[CONSTANT, i]
                    continue

                if not near:
                    for i in range(block):
                        state[LARGEST, i] = -np.inf
                    _call(steps.largest, at.joint, k, groups, at.state, 0, 0)
                for i in range(block):
                    if state[LARGEST, i] == -np.inf:
                        state[LARGEST, i] = 0
                    state[TOTAL, i] = 0
                    for t in range(TAILS):
                        state[TAIL + t, i] = 0
                _call(steps.exponentials, at.joint, k, groups, at.state, 0, 0)
                _call(steps.logarithms, groups, at.state, 0, 0, 0, 0)
                if shape.want == LOG_PROB:
                    for i in range(rows):
                        log_prob[window + memory.order[first + i]] = state[NORM, i] - state[CONSTANT, i]
                    continue

                for i in range(block):
                    totals[0] += state[SHARE, i]
                    if i < rows:
                        totals[1] += state[SHARE, i] * (np.float64(state[NORM, i]) - state[CONSTANT, i])
                    state[SHARE, i], state[CUT, i] = _finish(
                        state[TOTAL, i], state[TAIL:, i], state[SHARE, i], budget, first_cut, ratio, k
                    )
                for j in range(k):
                    component, line = at.components + j * step_size, at.joint + j * line_size
                    lanes = at.lanes + j * shape.sums * piece * size
                    _call(steps.responsible, line, groups, at.state, at.index, at.count, 0)
                    if shape.skip and 4 * count[0] < 3 * block:
                        _call(steps.groups_of_table, at.table, at.index, count[0], at.some, 0, 0)
                        _call(steps.gathered, line, at.index, count[0], at.values, 0, 0)
                        _call(steps.sums_of_rows, at.some, -(-count[0] // W), component, at.values, lanes, 0)
                    else:
                        _call(steps.sums_of_rows, at.rows, groups, component, line, lanes, 0)
            if shape.want == SUMS:
                for j in range(k):
                    for s in range(shape.sums):
                        for lane in range(piece):
                            sums[j, s] += memory.lanes[j, s, lane]
                            memory.lanes[j, s, lane] = 0

    with notice(f"all dimensions, float{bits}"):
        return njit(_signature(number), nogil=True, cache=True, error_model="numpy")(chunk)


def _signature(number: Any) -> Any:
    whole = types.int64

    def array(kind: Any, axes: int, layout: str = "C") -> Any:
        return types.Array(kind, axes, layout)

    axes = {"state": 2, "table": 2, "joint": 2, "bound": 2, "least": 2, "most": 2, "lanes": 3}
    integers = {name: types.int32 for name in ("order", "keys", "counts", "every", "index", "best")} | {"count": whole}
    memory = [array(integers.get(name, number), axes.get(name, 1)) for name in Scratch._fields]
    return types.void(
        types.NamedUniTuple(whole, len(Steps._fields), Steps), types.NamedUniTuple(whole, len(Shape._fields), Shape),
        types.NamedUniTuple(whole, len(Places._fields), Places), types.NamedTuple(memory, Scratch),
        array(number, 2), array(number, 2), array(number, 2, "A"), array(number, 2, "A"), array(number, 2, "A"),
        array(number, 1, "A"), array(number, 2, "A"), array(whole, 1, "A"), array(types.float64, 1),
        array(types.float64, 1), whole, whole,
        array(number, 1), array(number, 2), array(types.float64, 2), array(types.float64, 1),
    )  # fmt: skip
