"""The compiled half of assembling: lines of columns into values and packed noise, checked on the way, in one pass.

A line is a column of numbers as it was read or computed, float32 or float64, or one number for all rows. Rows go in
blocks that stay in the processor's nearest cache; loops over rows are innermost, so that they are vectorised.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic

from ..kernels.cpu.keeping import kept

BLOCK = 256  # rows of a block
SINGLE, DOUBLE, CONSTANT = 0, 1, 2  # kinds of lines
SAME, APART = -2, -1  # parts of one source; parts of sources without a correlation. Else the correlation's number
NO_NOISE, DIAGONAL, FULL = 0, 1, 2


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:
    """An address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


@njit(nogil=True, error_model="numpy")
def _load(address, kind, number, start, m, out):  # type: ignore[no-untyped-def]
    """Some rows of a line as float64."""
    if kind == CONSTANT:
        for i in range(m):
            out[i] = number
    elif kind == DOUBLE:
        wide = carray(_pointer(address), start + m, np.float64)
        for i in range(m):
            out[i] = wide[start + i]
    else:
        narrow = carray(_pointer(address), start + m, np.float32)
        for i in range(m):
            out[i] = narrow[start + i]


@njit(nogil=True, error_model="numpy")
def _values(v, shift, scale, m, out, observed, anything, whole, doubt, low, high):  # type: ignore[no-untyped-def]
    """One feature: into the frame, and which rows have it; infinities are doubtful."""
    for i in range(m):
        seen = 1 if v[i] == v[i] else 0
        observed[i] = seen
        anything[i] |= seen
        whole[i] &= seen
        doubt[i] |= 1 if np.abs(v[i]) == np.inf else 0
        low[i] = v[i] if v[i] < low[i] else low[i]
        high[i] = v[i] if v[i] > high[i] else high[i]
        out[i] = (v[i] - shift) / scale


@njit(nogil=True, error_model="numpy")
def _part(slope, sd, factor, m, observed, uses, doubt, out):  # type: ignore[no-untyped-def]
    """Slope times deviation of a feature and a source, 0 where the value is missing; impossible errors are doubtful."""
    for i in range(m):
        uses[i] |= observed[i]
        doubt[i] |= observed[i] if not (sd[i] >= 0.0 and sd[i] < np.inf) else 0
        part = (slope[i] * factor) * sd[i]
        out[i] = part if observed[i] else 0.0


@njit(nogil=True, error_model="numpy")
def _known(r, m, left, right, most, doubt):  # type: ignore[no-untyped-def]
    """A correlation, 0 where there is none; one that is impossible, or lacking where it is needed, is doubtful."""
    for i in range(m):
        doubt[i] |= left[i] & right[i] if not (np.abs(r[i]) <= most) else 0
        r[i] = r[i] if r[i] == r[i] else 0.0


@njit(nogil=True, error_model="numpy")
def _entry(first, a, b, source, link, u, correlations, m, out):  # type: ignore[no-untyped-def]
    """One entry of the covariances: the sum over pairs of parts."""
    empty = True
    for s in range(first[a], first[a + 1]):
        for t in range(first[b], first[b + 1]):
            between = link[s, t]
            if between == APART:
                continue
            left, right = u[s], u[t]
            if between == SAME:
                if empty:
                    for i in range(m):
                        out[i] = left[i] * right[i]
                else:
                    for i in range(m):
                        out[i] += left[i] * right[i]
            else:
                r = correlations[between]
                if empty:
                    for i in range(m):
                        out[i] = left[i] * right[i] * r[i]
                else:
                    for i in range(m):
                        out[i] += left[i] * right[i] * r[i]
            empty = False
    if empty:
        for i in range(m):
            out[i] = 0.0


@njit(nogil=True, error_model="numpy")
def _store(line, m, out):  # type: ignore[no-untyped-def]
    for i in range(m):
        out[i] = line[i]


@njit(nogil=True, error_model="numpy")
def _pivots(coupled, cov, m, slack, factor, doubt):  # type: ignore[no-untyped-def]
    """A Cholesky factorisation of all rows at once; a negative pivot is doubtful."""
    for p in range(len(coupled)):
        for q in range(p + 1):
            line = coupled[p] * (coupled[p] + 1) // 2 + coupled[q]
            value = factor[p * (p + 1) // 2 + q]
            whole = cov[line]
            for i in range(m):
                value[i] = whole[i]
            for c in range(q):
                left, right = factor[p * (p + 1) // 2 + c], factor[q * (q + 1) // 2 + c]
                for i in range(m):
                    value[i] -= left[i] * right[i]
            if p == q:
                for i in range(m):
                    doubt[i] |= 1 if value[i] < -slack * whole[i] else 0
                    value[i] = np.sqrt(value[i] if value[i] > 0.0 else 0.0)
            else:
                root = factor[q * (q + 1) // 2 + q]
                for i in range(m):
                    quotient = value[i] / root[i]
                    value[i] = quotient if root[i] > 0.0 else 0.0


def _assemble(  # type: ignore[no-untyped-def]
    lines, kinds, numbers, sizes, first, source, slope, link, pairs, coupled, shift, scale, mode, limits,
    start, n, x, noise, doubtful, spans, counts,
):  # fmt: skip
    """n rows into x[:, start:] and noise[:, start:]; which are doubtful, spans of features, counts of rows.

    The counts are of rows without any value, and of rows that miss one.
    """
    p, sources, correlated = sizes[0], sizes[1], sizes[2]
    parts, many = len(source), len(lines)
    work = np.empty((many, BLOCK))
    u = np.empty((parts, BLOCK))
    cov = np.empty((p * (p + 1) // 2, BLOCK))
    factor = np.empty((len(coupled) * (len(coupled) + 1) // 2, BLOCK))
    observed = np.empty((p, BLOCK), np.int64)
    uses = np.empty((sources + 1, BLOCK), np.int64)  # the last is of sources that act on no feature
    anything, whole, doubt = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    low, high = np.full((p, BLOCK), np.inf), np.full((p, BLOCK), -np.inf)
    empty = partial = 0
    for block in range(0, n, BLOCK):
        m = min(BLOCK, n - block)
        at = start + block
        for line in range(many):
            _load(lines[line], kinds[line], numbers[line], block, m, work[line])
        anything[:] = 0
        whole[:] = 1
        doubt[:] = 0
        uses[:] = 0
        for a in range(p):
            _values(
                work[a], shift[a], scale[a], m, x[a, at : at + m], observed[a], anything, whole, doubt, low[a], high[a]
            )
            for s in range(first[a], first[a + 1]):
                _part(work[slope[s]], work[p + source[s]], 1.0 / scale[a], m, observed[a], uses[source[s]], doubt, u[s])
        for c in range(correlated):
            left, right = uses[pairs[c, 0]], uses[pairs[c, 1]]
            _known(work[p + sources + c], m, left, right, limits[0], doubt)
        if mode != NO_NOISE:
            for a in range(p):
                for b in range(a + 1 if mode == FULL else 1):
                    line = a * (a + 1) // 2 + b if mode == FULL else a
                    _entry(first, a, b if mode == FULL else a, source, link, u, work[p + sources :], m, cov[line])
                    _store(cov[line], m, noise[line, at : at + m])
        if mode == FULL and len(coupled) > 0:
            _pivots(coupled, cov, m, limits[1], factor, doubt)
        for i in range(m):
            doubtful[block + i] = doubt[i] != 0
            empty += 1 - anything[i]
            partial += 1 - whole[i]
    for a in range(p):
        spans[a, 0] = min(spans[a, 0], low[a].min())
        spans[a, 1] = max(spans[a, 1], high[a].max())
    counts[0] += empty
    counts[1] += partial


@cache
def assemble_into(single: bool) -> Any:
    """The compiled loop for values in float32, or in float64."""
    kind = types.float32 if single else types.float64
    whole, flags, floats = types.int64[::1], types.boolean[::1], types.float64[::1]
    signature = types.void(
        whole, whole, floats, whole, whole, whole, whole, types.int64[:, ::1], types.int64[:, ::1], whole, floats,
        floats, types.int64, floats, types.int64, types.int64, kind[:, ::1], kind[:, ::1], flags,
        types.float64[:, ::1], whole,
    )  # fmt: skip
    return kept(lambda keep: njit(signature, nogil=True, cache=keep, error_model="numpy")(_assemble))
