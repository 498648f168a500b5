"""The loop over the tiles of a chunk of rows: compiled once for each number type, for every kind of data."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from .numba_lanes import VECTOR_BYTES
from .numba_pairs import Kind
from .numba_tiles import (
    CONSTANT,
    CUT,
    LARGEST,
    NORM,
    SHARE,
    SIX,
    STATES,
    TAIL,
    TAILS,
    TILE,
    TOTAL,
    compiled,
    cuts,
    lost,
)

WINDOW = 4096  # rows that are sorted by their noise, and whose sums are added up in the kernel's type
LEVELS, PATTERNS = 256, 16
UNSEEN = 1e30  # the variance of a value that some row of a tile misses, in bounds only
LOG_PROB, LOG_JOINT, SUMS = range(3)
(
    GROUPS_OF_TABLE, JOINT_OF_ROWS, LARGEST_OF_ROWS, EXPONENTIALS, LOGARITHMS, RESPONSIBLE, SUMS_OF_ROWS, SUMS_OF_TABLE,
    EXPONENTIALS_AND_TAILS, BOUNDS, BOUND_OF_ROWS, JOINT_OF_BEST, CHOSEN, JOINT_OF_TABLE,
) = range(14)  # fmt: skip
"""Places of the steps in the table of addresses."""


def steps(kind: Kind, want: int, skip: bool, bounded: bool) -> np.ndarray:
    """The addresses of the steps that are needed, 0 for the others."""
    addresses = np.zeros(14, np.int64)

    def need(place: int, kind: Kind, name: str) -> None:
        addresses[place] = compiled(kind, name)

    need(GROUPS_OF_TABLE, kind, "groups_of_table")
    need(JOINT_OF_ROWS, kind, "joint_of_rows")
    if want != LOG_JOINT:
        need(LARGEST_OF_ROWS, kind.plain, "largest")
        need(EXPONENTIALS, kind.plain, "exponentials")
        need(LOGARITHMS, kind.plain, "logarithms")
    if want == SUMS:
        need(RESPONSIBLE, kind.plain, "responsible")
        need(SUMS_OF_ROWS, kind, "sums_of_rows")
        if skip:
            need(EXPONENTIALS_AND_TAILS, kind.plain, "exponentials_and_tails")
            need(SUMS_OF_TABLE, kind, "sums_of_table")
    if bounded:
        need(BOUNDS, kind.bound, "bounds")
        need(BOUND_OF_ROWS, kind.bound, "joint_of_rows")
        need(JOINT_OF_BEST, kind, "joint_of_best")
        need(CHOSEN, kind.plain, "chosen")
        need(JOINT_OF_TABLE, kind, "joint_of_table")
    return addresses


@intrinsic
def _call(typing: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """Call the compiled step at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        step = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 6)
        builder.call(builder.inttoptr(arguments[0], step.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(types.int64, *SIX), generate


def scratch_sizes(kind: Kind, k: int) -> tuple[int, int]:
    """How many numbers and how many indices of scratch memory one thread needs."""
    lines = -(-k // kind.width) * kind.width
    numbers = TILE * (STATES + 2 * kind.row_numbers + k + kind.bound.row_numbers + 1)
    numbers += lines * (kind.component_numbers + 1) + k * kind.sums * kind.width
    return numbers, 2 * WINDOW + LEVELS * PATTERNS + 1 + 2 * TILE + 2 * kind.width


@njit(nogil=True, error_model="numpy")
def _sort_by_noise(x, noise, spread, first, rows, full, counts, order):  # type: ignore[no-untyped-def]
    """Order some rows by what they miss and by the size of their noise, so that one bound serves a tile well."""
    keys = order[WINDOW:]
    counts[:] = 0
    for i in range(rows):
        level, pattern = 0.0, 0
        for a in range(len(spread)):
            if x[a, first + i] == x[a, first + i]:
                level += noise[a * (a + 3) // 2 if full else a, first + i] * spread[a]
            else:
                pattern += (2 * a + 1) * (a + 3)
        octave = 4.0 * math.log2(level) + 160.0 if level > 1e-12 else 0.0
        key = pattern % PATTERNS * LEVELS + int(min(max(octave, 0.0), LEVELS - 1.0))
        keys[i] = key
        counts[key + 1] += 1
    for key in range(LEVELS * PATTERNS):
        counts[key + 1] += counts[key]
    for i in range(rows):
        order[counts[keys[i]]] = i
        counts[keys[i]] += 1


@njit(nogil=True, error_model="numpy")
def _fill(x, noise, projection, weight, unit, first, order, rows, block, stride, table, state):  # type: ignore[no-untyped-def]
    """Copy a tile of rows one after the other, filled up to whole groups with the last row at no weight."""
    p = len(unit)
    for i in range(block):
        row = first + order[min(i, rows - 1)]
        line = table[i * stride : (i + 1) * stride]
        constant = 0.0
        for a in range(p):
            line[a] = x[a, row]
            if x[a, row] == x[a, row]:
                constant += unit[a]
        for a in range(len(noise)):
            line[p + a] = noise[a, row]
        for a in range(len(projection)):
            line[p + len(noise) + a] = projection[a, row]
        for a in range(p + len(noise) + len(projection), stride):
            line[a] = 0
        state[CONSTANT, i] = constant
        state[SHARE, i] = 0 if i >= rows else weight[row] if weight.size else 1


@njit(nogil=True, error_model="numpy")
def _bound(log_alpha, pivots, d, full, block, stride, W, table, clean, clean_stride, most, offsets):  # type: ignore[no-untyped-def]
    """What bounds a tile: at least every row's noise (d), at least every log alpha - log |T| / 2 (k), x without NaN."""
    k = len(pivots)
    for j in range(k):
        offsets[j] = log_alpha[j]
    for a in range(d):
        seen = 0
        largest = 0.0
        for i in range(block):
            line = table[i * stride : (i + 1) * stride]
            if line[a] == line[a]:
                seen += 1
                around = 0.0
                if full:
                    for b in range(d):
                        around += abs(line[d + (a * (a + 1) // 2 + b if a >= b else b * (b + 1) // 2 + a)])
                else:
                    around = line[d + a]
                largest = max(largest, around)
        whole = seen == block
        most[a] = largest if whole else UNSEEN
        for i in range(block):
            clean[(i // W * clean_stride + a) * W + i % W] = table[i * stride + a] if whole else 0
        for j in range(k):
            if whole:
                offsets[j] -= pivots[j, a]
            elif seen > 0:
                offsets[j] -= min(pivots[j, a], 0)


@njit(nogil=True, error_model="numpy")
def _add_prior(prior, label, first, order, rows, k, joint):  # type: ignore[no-untyped-def]
    for i in range(rows):
        row = first + order[i]
        line = prior[label[row] if label.size else row]
        for j in range(k):
            joint[j, i] += line[j]


@cache
def loop(bits: int, mark: int) -> Callable[..., None]:
    """The compiled loop for a number type; see ``chunk`` for what it takes."""
    number = types.float32 if bits == 32 else types.float64
    size, W = bits // 8, VECTOR_BYTES * 8 // bits
    budget, first_cut, cut_ratio = lost(bits), cuts(bits)[0], cuts(bits)[1] / cuts(bits)[0]
    columns, line = types.Array(number, 2, "A"), types.Array(number, 1, "A")
    signature = types.void(
        types.int64[::1], types.int64[::1], types.Array(number, 2, "C"), types.Array(number, 2, "C"),
        columns, columns, columns, line, columns, types.Array(types.int64, 1, "A"), types.float64[::1], types.float64[::1],
        types.int64, types.int64, types.Array(number, 1, "C"), types.int32[::1],
        types.Array(number, 1, "C"), types.Array(number, 2, "C"), types.float64[:, ::1], types.float64[::1],
    )  # fmt: skip

    def chunk(
        steps, shape, components, pivots, x, noise, projection, weight, prior, label, unit, spread,
        start, stop, scratch, whole, log_prob, log_joint, sums, totals,
    ):  # type: ignore[no-untyped-def]  # fmt: skip
        """Rows start to stop: log_prob (n,), log_joint (n, k), or sums (k, ...) and totals (rows, loglik)."""
        want, skip, bounded, full, d, stride, clean_stride, component_stride, sum_numbers = (
            shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6], shape[7], shape[8],
        )  # fmt: skip
        k = len(pivots)
        used = mark * 0
        state = scratch[used : used + STATES * TILE].reshape((STATES, TILE))
        used += STATES * TILE
        table = scratch[used : used + TILE * stride]
        used += TILE * stride
        rows_at = scratch[used:].ctypes.data
        used += TILE * stride
        joint = scratch[used : used + k * TILE].reshape((k, TILE))
        used += k * TILE
        clean = scratch[used : used + TILE * clean_stride]
        used += TILE * clean_stride
        bound = scratch[used : used + len(components) * component_stride]
        used += len(components) * component_stride
        most = scratch[used : used + TILE]
        used += TILE
        offsets = scratch[used : used + len(components)]
        used += len(components)
        lanes = scratch[used : used + k * sum_numbers * W]
        order, counts = whole[: 2 * WINDOW], whole[2 * WINDOW : 2 * WINDOW + LEVELS * PATTERNS + 1]
        best = whole[len(order) + len(counts) : len(order) + len(counts) + TILE]
        index_at = whole[len(order) + len(counts) + TILE :].ctypes.data
        count = np.zeros(1, np.int64)
        count_at, joint_at, state_at, lanes_at = (
            count.ctypes.data,
            joint.ctypes.data,
            state.ctypes.data,
            lanes.ctypes.data,
        )
        table_at, best_at, components_at = table.ctypes.data, best.ctypes.data, components.ctypes.data
        log_alpha = components[:, sum_numbers - 1]
        lanes[:] = 0
        line_size = TILE * size

        for window in range(start, stop, WINDOW):
            window_rows = min(WINDOW, stop - window)
            if bounded:
                _sort_by_noise(x, noise, spread, window, window_rows, full, counts, order)
            else:
                for i in range(window_rows):
                    order[i] = i
            for first in range(0, window_rows, TILE):
                rows = min(TILE, window_rows - first)
                groups = -(-rows // W)
                block = groups * W
                places = order[first:]
                _fill(x, noise, projection, weight, unit, window, places, rows, block, stride, table, state)
                _call(steps[GROUPS_OF_TABLE], table_at, groups, rows_at, 0, 0, 0)

                if bounded:
                    _bound(log_alpha, pivots, d, full, block, stride, W, table, clean, clean_stride, most, offsets)
                    for j in range(0, k, W):
                        _call(
                            steps[BOUNDS], components_at, j, most.ctypes.data, offsets.ctypes.data, bound.ctypes.data, 0
                        )
                    for j in range(k):
                        _call(
                            steps[BOUND_OF_ROWS], clean.ctypes.data, groups,
                            bound.ctypes.data + j * component_stride * size, joint_at + j * line_size, 0, 0,
                        )  # fmt: skip
                    if prior.size:
                        _add_prior(prior, label, window, places, rows, k, joint)
                    state[LARGEST, :block] = -np.inf
                    best[:block] = 0
                    _call(steps[LARGEST_OF_ROWS], joint_at, k, groups, state_at, best_at, 0)
                    _call(steps[JOINT_OF_BEST], rows_at, groups, components_at, best_at, state_at + CUT * line_size, 0)
                    for i in range(block):
                        state[CUT, i] += math.log(budget / k)
                    if prior.size:
                        for i in range(rows):
                            row = window + places[i]
                            state[CUT, i] += prior[label[row] if label.size else row, best[i]]
                for j in range(k):
                    component_at = components_at + j * component_stride * size
                    if bounded:
                        _call(steps[CHOSEN], joint_at + j * line_size, groups, state_at, index_at, count_at, 0)
                        if 4 * count[0] < 3 * block:
                            _call(
                                steps[JOINT_OF_TABLE],
                                table_at,
                                index_at,
                                count[0],
                                component_at,
                                joint_at + j * line_size,
                                0,
                            )
                            continue
                    _call(steps[JOINT_OF_ROWS], rows_at, groups, component_at, joint_at + j * line_size, 0, 0)
                if prior.size:
                    _add_prior(prior, label, window, places, rows, k, joint)
                if want == LOG_JOINT:
                    for i in range(rows):
                        for j in range(k):
                            log_joint[window + places[i], j] = joint[j, i] - state[CONSTANT, i]
                    continue

                state[LARGEST, :block] = -np.inf
                _call(steps[LARGEST_OF_ROWS], joint_at, k, groups, state_at, best_at, 0)
                for i in range(block):
                    if state[LARGEST, i] == -np.inf:
                        state[LARGEST, i] = 0
                state[TOTAL, :block] = 0
                state[TAIL:, :block] = 0
                exponentials = EXPONENTIALS_AND_TAILS if skip and want == SUMS else EXPONENTIALS
                _call(steps[exponentials], joint_at, k, groups, state_at, 0, 0)
                _call(steps[LOGARITHMS], groups, state_at, 0, 0, 0, 0)
                if want == LOG_PROB:
                    for i in range(rows):
                        log_prob[window + places[i]] = state[NORM, i] - state[CONSTANT, i]
                    continue

                for i in range(rows):
                    totals[0] += state[SHARE, i]
                    totals[1] += state[SHARE, i] * (np.float64(state[NORM, i]) - state[CONSTANT, i])
                for i in range(block):
                    total = state[TOTAL, i]
                    state[SHARE, i] /= total
                    state[CUT, i] = budget * total / k
                    cut = first_cut
                    for t in range(TAILS):
                        if state[TAIL + t, i] <= budget * total:
                            state[CUT, i] = max(cut, state[CUT, i])
                            break
                        cut *= cut_ratio
                for j in range(k):
                    component_at = components_at + j * component_stride * size
                    here, sums_at = joint_at + j * line_size, lanes_at + j * sum_numbers * W * size
                    _call(steps[RESPONSIBLE], here, groups, state_at, index_at, count_at, 0)
                    if skip and 4 * count[0] < 3 * block:
                        _call(steps[SUMS_OF_TABLE], table_at, index_at, count[0], component_at, here, sums_at)
                    else:
                        _call(steps[SUMS_OF_ROWS], rows_at, groups, component_at, here, sums_at, 0)
            if want == SUMS:
                for j in range(k):
                    for s in range(sum_numbers):
                        for lane in range(W):
                            sums[j, s] += lanes[(j * sum_numbers + s) * W + lane]
                            lanes[(j * sum_numbers + s) * W + lane] = 0

    return njit(signature, nogil=True, cache=True, error_model="numpy")(chunk)
