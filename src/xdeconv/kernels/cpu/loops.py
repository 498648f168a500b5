"""The loop over the tiles of a chunk of rows: compiled for each number type, with bounds or not, for every kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ...system.keeping import compiled_loop, inner
from .lanes import VECTOR_BYTES
from .scratch import LEVELS, LOG_JOINT, LOG_PROB, PATTERNS, SUMS, WINDOW, signature
from .tiles import (  # fmt: skip
    BACK,
    CONSTANT,
    CUT,
    LARGEST,
    NORM,
    SHARE,
    SIX,
    TAIL,
    TAILS,
    TILE,
    TOTAL,
    UNSEEN,
    cuts,
    fingerprint,
    lost,
)

WORTH, PAUSE = 0.35, 15  # a bound that leaves more than this share of a tile's pairs is not tried for some tiles
NEAR = 40.0  # its exp is far from the largest number


@intrinsic
def _call(typing: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """Call the compiled step at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        step = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 6)
        builder.call(builder.inttoptr(arguments[0], step.as_pointer()), arguments[1:])
        return context.get_dummy_value()

    return types.void(types.int64, *SIX), generate


@inner
def _sort_by_noise(x, noise, spread, window, rows, full, keys, counts, order):  # type: ignore[no-untyped-def]
    """Order a window's rows by what they miss and by the size of their noise: one bound then serves a tile well."""
    for key in range(len(counts)):
        counts[key] = 0
    for i in range(rows):
        level, pattern = 0.0, 0
        for a in range(len(spread)):
            if x[a, window + i] == x[a, window + i]:
                level += noise[a * (a + 3) // 2 if full else a, window + i] * spread[a]
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


@inner
def _fill(x, noise, projection, weight, unit, background, window, first, rows, block, order, table, state):  # type: ignore[no-untyped-def]
    """Copy a tile of rows one after the other, filled up to whole groups with the last row at no weight."""
    p = len(unit)
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
    for i in range(block if background.size else 0):
        state[BACK, i] = background[window + order[first + min(i, rows - 1)]] + state[CONSTANT, i]
    for a in range(len(noise)):
        for i in range(block):
            table[i, p + a] = noise[a, window + order[first + min(i, rows - 1)]]
    for a in range(len(projection)):
        for i in range(block):
            table[i, p + len(noise) + a] = projection[a, window + order[first + min(i, rows - 1)]]


@inner
def _bound_noise(log_alpha, pivots, least, most, noise, offsets):  # type: ignore[no-untyped-def]
    """At least every row's noise (d) of a tile, and at least every log alpha - log |T| / 2 (k)."""
    for j in range(len(log_alpha)):
        offsets[j] = log_alpha[j]
    for a in range(len(noise)):
        low, high = least[a, 0], most[a, 0]
        for lane in range(most.shape[1]):
            low, high = min(low, least[a, lane]), max(high, most[a, lane])
        noise[a] = high
        for j in range(len(pivots)):
            if high < UNSEEN:
                offsets[j] -= pivots[j, a]
            elif low < UNSEEN:
                offsets[j] -= min(pivots[j, a], 0)


@inner
def _add_prior(prior, label, window, first, rows, order, joint):  # type: ignore[no-untyped-def]
    for i in range(rows):
        row = window + order[first + i]
        line = label[row] if label.size else row
        for j in range(prior.shape[1]):
            if prior[line, j] == -np.inf:  # ruled out, even where the component failed
                joint[j, i] = -np.inf
            else:
                joint[j, i] += prior[line, j]


@inner
def _find_largest(step, joint_at, state_at, state, k, groups, block):  # type: ignore[no-untyped-def]
    for i in range(block):
        state[LARGEST, i] = state[BACK, i]
    _call(step, joint_at, k, groups, state_at, 0, 0)


@inner
def _cut_of_rows(total, tail, budget, first_cut, k, i):  # type: ignore[no-untyped-def]
    """The exp below which a row's entries together lose no more than the budget."""
    cut = first_cut
    for t in range(TAILS):
        if tail[TAIL + t, i] <= budget * total:
            return max(cut, budget * total / k)
        cut *= 0.25
    return budget * total / k


@cache
def loop(bits: int, bounds: bool) -> Callable[..., None]:
    """The compiled loop for a number type; see ``chunk`` for what it takes.

    ``bounds``: pairs are bounded before they are computed. Without them half as much is compiled.
    """
    size, W, mark = bits // 8, VECTOR_BYTES * 8 // bits, fingerprint()
    line_bytes, budget, first_cut = TILE * size, lost(bits), cuts(bits)[0]

    # fmt: off
    def chunk(  # type: ignore[no-untyped-def]
        steps, shape, at, memory, components, pivots, x, noise, projection, weight, prior, label, unit, spread,
        background, start, stop, log_prob, log_joint, sums, totals,
    ):
        # fmt: on
        """Rows start to stop: log_prob (n,), log_joint (n, k), or sums (k, ...) and totals (rows, loglik)."""
        k, state, order, count, wait = len(pivots) + 0 * mark, memory.state, memory.order, memory.count, 0
        d = len(memory.noise)  # gathering a row costs about 3 / d of computing it
        for i in range(TILE):
            state[BACK, i] = -np.inf
        for window in range(start, stop, WINDOW):
            window_rows = min(WINDOW, stop - window)
            if bounds:
                _sort_by_noise(x, noise, spread, window, window_rows, shape.full, memory.keys, memory.counts, order)
            else:
                for i in range(window_rows):
                    order[i] = i
            for first in range(0, window_rows, shape.tile):
                rows = min(shape.tile, window_rows - first)
                groups = -(-rows // W)
                block = groups * W
                _fill(x, noise, projection, weight, unit, background, window, first, rows, block, order, memory.table,
                      state)  # fmt: skip
                _call(steps.groups_of_table, at.table, at.every, block, at.rows, 0, at.work)

                # Bound every pair from above, every row's total from below, by the pair with the highest bound.
                near = False  # whether that pair is close enough to the row's largest to stand for it
                bounded = wait == 0
                wait, survivors = max(wait - 1, 0), 0
                if bounds and bounded:
                    for a in range(len(memory.noise)):
                        for lane in range(W):
                            memory.least[a, lane] = np.inf
                            memory.most[a, lane] = 0
                    _call(steps.noise_range, at.rows, groups, at.least, at.most, 0, at.work)
                    _bound_noise(components[:, shape.offset], pivots, memory.least, memory.most, memory.noise,
                                 memory.offsets)  # fmt: skip
                    for j in range(0, k, W):
                        _call(steps.bounds, at.components, at.every + j * 4, at.noise, at.offsets + j * size,
                              at.bound + j * shape.component_bytes, at.work)  # fmt: skip
                    for i in range(block):
                        state[LARGEST, i] = -np.inf
                    for j in range(k):
                        component, line = at.bound + j * shape.component_bytes, at.joint + j * line_bytes
                        _call(steps.bound_of_rows, at.rows, groups, component, line, at.state, at.work)
                    if prior.size:
                        _add_prior(prior, label, window, first, rows, order, memory.joint)
                        _find_largest(steps.largest, at.joint, at.state, state, k, groups, block)
                    _call(steps.best, at.joint, k, groups, at.state, at.best, 0)
                    _call(steps.joint_of_best, at.rows, groups, at.components, at.best, at.state + CUT * line_bytes,
                          at.work)  # fmt: skip
                    near = True
                    for i in range(block):
                        if prior.size and i < rows:
                            row = window + order[first + i]
                            state[CUT, i] += prior[label[row] if label.size else row, memory.best[i]]
                        if not state[LARGEST, i] < state[CUT, i] + NEAR:
                            near = False
                        state[LARGEST, i] = state[BACK, i] if state[BACK, i] > state[CUT, i] else state[CUT, i]
                        state[CUT, i] = state[LARGEST, i] + math.log(budget / k)

                # log alpha N of every pair, or of those that are not skipped.
                for j in range(k):
                    component, line = at.components + j * shape.component_bytes, at.joint + j * line_bytes
                    if bounds and bounded:
                        _call(steps.chosen, line, groups, at.state, at.index, at.count, 0)
                        survivors += count[0]
                    if bounds and bounded and (d + 3) * count[0] < d * block:
                        _call(steps.groups_of_table, at.table, at.index, count[0], at.some, 0, at.work)
                        _call(steps.joint_of_rows, at.some, -(-count[0] // W), component, at.values, 0, at.work)
                        _call(steps.scattered, at.values, at.index, count[0], line, 0, 0)
                    else:
                        _call(steps.joint_of_rows, at.rows, groups, component, line, 0, at.work)
                if bounds and survivors > WORTH * k * block:
                    wait = PAUSE
                if prior.size:
                    _add_prior(prior, label, window, first, rows, order, memory.joint)
                if shape.want == LOG_JOINT:
                    for i in range(rows):
                        for j in range(k):
                            log_joint[window + order[first + i], j] = memory.joint[j, i] - state[CONSTANT, i]
                    continue

                # The total of every row.
                if not near:
                    _find_largest(steps.largest, at.joint, at.state, state, k, groups, block)
                for i in range(block):
                    if state[LARGEST, i] == -np.inf or (prior.size and np.isnan(state[LARGEST, i])):
                        state[LARGEST, i] = 0
                    state[TOTAL, i] = 0
                    for t in range(TAILS):
                        state[TAIL + t, i] = 0
                for i in range(block if background.size else 0):  # most rows have none, and pay nothing for it
                    state[TOTAL, i] = math.exp(state[BACK, i] - state[LARGEST, i])
                _call(steps.exponentials, at.joint, k, groups, at.state, 0, 0)
                _call(steps.logarithms, groups, at.state, 0, 0, 0, 0)
                if shape.want == LOG_PROB:
                    for i in range(rows):
                        log_prob[window + order[first + i]] = state[NORM, i] - state[CONSTANT, i]
                    continue

                # The sums of every component, over all rows or over those that it is responsible for.
                for i in range(block):
                    if i < rows:
                        totals[0] += state[SHARE, i]
                        totals[1] += state[SHARE, i] * (np.float64(state[NORM, i]) - state[CONSTANT, i])
                    if not (prior.size and np.isnan(state[TOTAL, i])):  # or components ruled out would be NaN
                        state[SHARE, i] /= state[TOTAL, i]
                    state[CUT, i] = _cut_of_rows(state[TOTAL, i], state, budget, first_cut, k, i)
                for j in range(k):
                    component, line = at.components + j * shape.component_bytes, at.joint + j * line_bytes
                    lanes = at.lanes + j * shape.sums_bytes
                    _call(steps.responsible, line, groups, at.state, at.index, at.count, 0)
                    if shape.skip and (d + 3) * count[0] < d * block:
                        _call(steps.groups_of_table, at.table, at.index, count[0], at.some, 0, at.work)
                        _call(steps.gathered, line, at.index, count[0], at.values, 0, 0)
                        _call(steps.sums_of_rows, at.some, -(-count[0] // W), component, at.values, lanes, at.work)
                    else:
                        _call(steps.sums_of_rows, at.rows, groups, component, line, lanes, at.work)
            if shape.want == SUMS:
                for j in range(k):
                    for s in range(sums.shape[1]):
                        for lane in range(memory.lanes.shape[2]):
                            sums[j, s] += memory.lanes[j, s, lane]
                            memory.lanes[j, s, lane] = 0

    chunk.__qualname__ = f"chunk_float{bits}" + bounds * "_bounds"  # an index of its own on disk, as for the steps
    number = types.float32 if bits == 32 else types.float64
    return compiled_loop(chunk, signature(number), f"the loop over rows, float{bits}{bounds * ', with bounds'}")
