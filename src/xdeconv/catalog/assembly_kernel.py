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

from ..system.keeping import inner, kept

BLOCK = 1024  # rows of a block
SINGLE, DOUBLE, CONSTANT = 0, 1, 2  # kinds of lines
SAME = -1  # a term of one source with itself. Else the number of the correlation between two sources
NOWHERE = -1  # the place of an entry that no pivot is made of


@intrinsic
def _pointer(typing: Any, address: Any) -> Any:
    """An address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


@inner
def _line(base, k):  # type: ignore[no-untyped-def]
    """The k-th line of numbers from an address on. An address has no owner to be counted, as a slice has."""
    return carray(_pointer(base + k * (8 * BLOCK)), BLOCK, np.float64)


@inner
def _whole(base, k):  # type: ignore[no-untyped-def]
    return carray(_pointer(base + k * (8 * BLOCK)), BLOCK, np.int64)


@inner
def _narrow(address, start):  # type: ignore[no-untyped-def]
    return carray(_pointer(address + 4 * start), BLOCK, np.float32)


@inner
def _wide(address, start):  # type: ignore[no-untyped-def]
    return carray(_pointer(address + 8 * start), BLOCK, np.float64)


@inner
def _value(v, shift, scale, m, x, low, high, count, doubt):  # type: ignore[no-untyped-def]
    """One feature: into the frame, how many a row has, and its span; infinities are doubtful."""
    for i in range(m):
        value = np.float64(v[i])
        count[i] += 1 if value == value else 0
        doubt[i] |= 1 if np.abs(value) == np.inf else 0
        low[i] = value if value < low[i] else low[i]
        high[i] = value if value > high[i] else high[i]
        x[i] = (value - shift) / scale


@inner
def _moved(v, shift, scale, m, x, count):  # type: ignore[no-untyped-def]
    """The same of a narrow column without a look at it; of wide ones it would save little."""
    for i in range(m):
        value = np.float64(v[i])
        count[i] += 1 if value == value else 0
        x[i] = (value - shift) / scale


@inner
def _part(sd, slope, m, x, out, uses, doubt):  # type: ignore[no-untyped-def]
    """Slope times deviation of a feature and a source, 0 where the value is missing; impossible errors are doubtful."""
    for i in range(m):
        seen = 1 if x[i] == x[i] else 0
        width = np.float64(sd[i])
        uses[i] |= seen
        doubt[i] |= seen if not (width >= 0.0 and width < np.inf) else 0
        out[i] = slope * width if seen else 0.0


@inner
def _plain(sd, slope, m, x, out):  # type: ignore[no-untyped-def]
    """The same without a look at it."""
    for i in range(m):
        width = np.float64(sd[i])
        out[i] = slope * width if x[i] == x[i] else 0.0


@inner
def _times(slope, factor, m, x, out):  # type: ignore[no-untyped-def]
    """A deviation times a slope that each row has of its own, 0 where the value is missing."""
    for i in range(m):
        product = (np.float64(slope[i]) * factor) * out[i]
        out[i] = product if x[i] == x[i] else 0.0


@inner
def _known(r, m, out, left, right, most, doubt):  # type: ignore[no-untyped-def]
    """A correlation, 0 where there is none; one that is impossible, or lacking where it is needed, is doubtful."""
    for i in range(m):
        value = np.float64(r[i])
        doubt[i] |= left[i] & right[i] if not (np.abs(value) <= most) else 0
        out[i] = value if value == value else 0.0


@inner
def _there(r, m, out):  # type: ignore[no-untyped-def]
    """The same without a look at it."""
    for i in range(m):
        value = np.float64(r[i])
        out[i] = value if value == value else 0.0


@inner
def _entry(left, right, r, correlated, m, out):  # type: ignore[no-untyped-def]
    """An entry of the covariances that is one product of two parts and their correlation, where it is to stay."""
    if correlated:
        for i in range(m):
            out[i] = left[i] * right[i] * r[i]
    else:
        for i in range(m):
            out[i] = left[i] * right[i]


@inner
def _term(left, right, r, correlated, more, m, out):  # type: ignore[no-untyped-def]
    """The product of two parts and their correlation: an entry of the covariances, or what it adds to one."""
    if correlated and more:
        for i in range(m):
            out[i] += left[i] * right[i] * r[i]
    elif correlated:
        for i in range(m):
            out[i] = left[i] * right[i] * r[i]
    elif more:
        for i in range(m):
            out[i] += left[i] * right[i]
    else:
        for i in range(m):
            out[i] = left[i] * right[i]


@inner
def _store(line, m, out):  # type: ignore[no-untyped-def]
    for i in range(m):
        out[i] = line[i]


@inner
def _fill(number, m, out):  # type: ignore[no-untyped-def]
    for i in range(m):
        out[i] = number


@inner
def _less(value, left, right, m):  # type: ignore[no-untyped-def]
    for i in range(m):
        value[i] -= left[i] * right[i]


@inner
def _scaled(value, factor, m):  # type: ignore[no-untyped-def]
    for i in range(m):
        value[i] *= factor[i]


@inner
def _root(pivot, diagonal, slack, m, out, doubt):  # type: ignore[no-untyped-def]
    """What a column of the factor is scaled by, 0 where nothing is left; a negative pivot is doubtful."""
    for i in range(m):
        doubt[i] |= 1 if pivot[i] < -slack * diagonal[i] else 0
        root = 1.0 / np.sqrt(pivot[i])
        out[i] = root if pivot[i] > 0.0 else 0.0


@inner
def _pivots(size, base, cov, roots, spare, m, slack, doubt):  # type: ignore[no-untyped-def]
    """A Cholesky factorisation of all rows at once, in place."""
    diagonal = _line(base, spare)
    for p in range(size):
        own = cov + p * (p + 1) // 2
        _store(_line(base, own + p), m, diagonal)
        for q in range(p + 1):
            other, value = cov + q * (q + 1) // 2, _line(base, own + q)
            for c in range(q):
                _less(value, _line(base, own + c), _line(base, other + c), m)
            if q < p:
                _scaled(value, _line(base, roots + q), m)
        _root(_line(base, own + p), diagonal, slack, m, _line(base, roots + p), doubt)


def _assemble(  # type: ignore[no-untyped-def]
    address, kinds, numbers, sizes, first, source, slope, entries, terms, pairs, shift, scale, limits, start, n, look,
    x, noise, doubtful, spans, counts,
):  # fmt: skip
    """n rows into x[:, start:] and noise[:, start:]; which are doubtful, spans of features, counts of rows.

    The counts are of rows without any value, and of rows that miss one. Where nobody is to look
    at them again, what is said of doubtful rows and of spans means nothing.
    """
    p, sources, correlated, coupled = sizes[0], sizes[1], sizes[2], sizes[3]
    known = len(source)  # the number of the first line of correlations, and so on; parts come first
    cov = known + correlated
    roots = cov + coupled * (coupled + 1) // 2
    low = roots + coupled
    high = low + p
    spare = high + p
    lines = np.empty((spare + 1, BLOCK))
    uses = np.empty((sources + 1, BLOCK), np.int64)  # the last is of sources that act on no feature
    count, doubt = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    lines[low:high] = np.inf
    lines[high:spare] = -np.inf
    base, used = lines.ctypes.data, uses.ctypes.data
    empty = partial = 0
    for block in range(0, n, BLOCK):
        m = min(BLOCK, n - block)
        at = start + block
        count[:] = 0
        doubt[:] = 0
        uses[:] = 0
        for a in range(p):
            values, lo, hi = x[a, at : at + m], _line(base, low + a), _line(base, high + a)
            if kinds[a] == SINGLE and not look:
                _moved(_narrow(address[a], block), shift[a], scale[a], m, values, count)
            elif kinds[a] == SINGLE:
                _value(_narrow(address[a], block), shift[a], scale[a], m, values, lo, hi, count, doubt)
            elif kinds[a] == DOUBLE:
                _value(_wide(address[a], block), shift[a], scale[a], m, values, lo, hi, count, doubt)
            else:
                _fill(numbers[a], m, _line(base, spare))
                _value(_line(base, spare), shift[a], scale[a], m, values, lo, hi, count, doubt)
            for s in range(first[a], first[a + 1]):
                sd, by, factor = p + source[s], slope[s], 1.0 / scale[a]
                even = numbers[by] * factor if kinds[by] == CONSTANT else 1.0
                part, use = _line(base, s), _whole(used, source[s])
                if kinds[sd] == SINGLE and not look:
                    _plain(_narrow(address[sd], block), even, m, values, part)
                elif kinds[sd] == SINGLE:
                    _part(_narrow(address[sd], block), even, m, values, part, use, doubt)
                elif kinds[sd] == DOUBLE:
                    _part(_wide(address[sd], block), even, m, values, part, use, doubt)
                else:
                    _fill(numbers[sd], m, _line(base, spare))
                    _part(_line(base, spare), even, m, values, part, use, doubt)
                if kinds[by] == SINGLE:
                    _times(_narrow(address[by], block), factor, m, values, part)
                elif kinds[by] == DOUBLE:
                    _times(_wide(address[by], block), factor, m, values, part)
        for c in range(correlated):
            left, right, r = _whole(used, pairs[c, 0]), _whole(used, pairs[c, 1]), p + sources + c
            out = _line(base, known + c)
            if kinds[r] == SINGLE and not look:
                _there(_narrow(address[r], block), m, out)
            elif kinds[r] == SINGLE:
                _known(_narrow(address[r], block), m, out, left, right, limits[0], doubt)
            elif kinds[r] == DOUBLE:
                _known(_wide(address[r], block), m, out, left, right, limits[0], doubt)
            else:
                _fill(numbers[r], m, out)
                _known(out, m, out, left, right, limits[0], doubt)
        for e in range(len(entries)):
            here, there, place = entries[e, 0], entries[e, 1], entries[e, 2]
            if here == there:
                _fill(0.0, m, noise[e, at : at + m])
                continue
            if there - here == 1 and (place == NOWHERE or not look):
                left, right, r = terms[here, 0], terms[here, 1], known + max(terms[here, 2], 0)
                apart, at_once = terms[here, 2] != SAME, noise[e, at : at + m]
                _entry(_line(base, left), _line(base, right), _line(base, r), apart, m, at_once)
                continue
            out = _line(base, spare if place == NOWHERE else cov + place)
            for t in range(here, there):
                r, apart = _line(base, known + max(terms[t, 2], 0)), terms[t, 2] != SAME
                _term(_line(base, terms[t, 0]), _line(base, terms[t, 1]), r, apart, t > here, m, out)
            _store(out, m, noise[e, at : at + m])
        if look:
            _pivots(coupled, base, cov, roots, spare, m, limits[1], doubt)
        for i in range(m):
            doubtful[block + i] = doubt[i] != 0
            empty += 1 if count[i] == 0 else 0
            partial += 1 if count[i] < p else 0
    for a in range(p):
        spans[a, 0] = min(spans[a, 0], lines[low + a].min())
        spans[a, 1] = max(spans[a, 1], lines[high + a].max())
    counts[0] += empty
    counts[1] += partial


@cache
def assemble_into(single: bool) -> Any:
    """The compiled loop for values in float32, or in float64."""
    kind = types.float32 if single else types.float64
    whole, table, floats = types.int64[::1], types.int64[:, ::1], types.float64[::1]
    signature = types.void(
        whole, whole, floats, whole, whole, whole, whole, table, table, table, floats, floats, floats, types.int64,
        types.int64, types.boolean, kind[:, ::1], kind[:, ::1], types.boolean[::1], types.float64[:, ::1], whole,
    )  # fmt: skip
    return kept(lambda keep: njit(signature, nogil=True, cache=keep, error_model="numpy")(_assemble))
