"""The posterior of one component and W rows: where the true value lies, seen from the row, and how sure that is.

With T = V + S, M = T^-1 and w = M (x - m), a value that is observed lies -S w from the row, and one that is missing at
m + V w. The covariance is S M V where the first of two values is observed, and V - V M V where both are missing: no
difference of large numbers but the one that a missing value brings with it, however small S is.

With a projection, w = R^T M (x - R m) and K = V R^T M: the value lies at m + V w, and the covariance is
(I - K R) V (I - K R)^T + K S K^T.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba.core import cgutils

from . import pairs as numba_pairs
from .kinds import Kind, packed
from .lanes import ADDRESS, Emitter, Lanes
from .pairs import Load, Pair, total

Matrix = Sequence[Sequence[Lanes]]
Moments = tuple[list[Lanes], list[Lanes]]


def numbers(kind: Kind) -> int:
    """Numbers of what was found out of a row: weight, place, packed spread, and what fills whole registers."""
    return -(-(1 + kind.d + packed(kind.d, 0)) // kind.piece) * kind.piece


def add_posteriors(
    emit: Emitter, kind: Kind, rows: Any, groups: Any, component: Any, weights: Any, index: Any, found: Any
) -> None:
    """Merge (West 1979) the posteriors of some rows under one component, by responsibilities, with what was found.

    ``index`` names the lines of ``found`` that neighbouring ``rows`` have; lanes that only fill a group have a line
    that nobody reads.
    """
    size, one, zero = numbers(kind), emit.constant(1.0), emit.constant(0.0)
    with cgutils.for_range(emit.builder, groups) as loop:
        at = emit.at(rows, loop.index, kind.row_numbers * emit.width)
        place, spread = posterior(
            emit, kind, lambda a: emit.load(at, a * emit.width), lambda a: emit.broadcast(component, a)
        )
        lines = emit.builder.add(index, emit.builder.mul(loop.index, ADDRESS(4 * emit.width)))
        r = emit.load(emit.at(weights, loop.index, emit.width))
        old = emit.rows(found, size, lines)
        whole = old[0] + r
        step = whole.compare("==", zero).where(zero, r / whole)
        apart = r * (one - step)
        away = [b - mean for b, mean in zip(place, old[1:], strict=False)]
        far = [apart * y for y in away]
        new = [whole, *(mean + step * y for mean, y in zip(old[1:], away, strict=False))]
        triangle = [(a, b) for a in range(kind.d) for b in range(a + 1)]
        new += [
            before + r * B + far[a] * away[b]
            for before, B, (a, b) in zip(old[1 + kind.d :], spread, triangle, strict=False)
        ]
        emit.scatter_rows(new + [zero] * (size - len(new)), found, lines)


def posterior(emit: Emitter, kind: Kind, row: Load, component: Load) -> Moments:
    """Place (d) and packed covariance."""
    pair = numba_pairs.factored(emit, kind, row, component)
    w, lower = numba_pairs._inverse(emit, kind, pair, emit.constant(1.0))
    M = _full(lower)
    V = _symmetric(kind.d, lambda a, b: component(kind.d + packed(a, b)))
    m = [component(a) for a in range(kind.d)]
    if kind.projected:
        return _projected(emit, kind, _noise(emit, kind, row, pair), pair, m, V, w, M)
    if pair.observed is None:
        return _observed(kind, _noise(emit, kind, row, pair), V, w, M)
    return _partly(emit, kind, _noise(emit, kind, row, pair), pair.observed, m, V, w, M)


def _observed(kind: Kind, S: Matrix, V: Matrix, w: list[Lanes], M: Matrix) -> Moments:
    SM = _noise_times(kind, S, M)
    place = [-_row_times(kind, S, a, w) for a in range(kind.d)]
    return place, [_dot(SM[a], V[b]) for a in range(kind.d) for b in range(a + 1)]


def _partly(
    emit: Emitter, kind: Kind, S: Matrix, seen: list[Lanes], m: list[Lanes], V: Matrix, w: list[Lanes], M: Matrix
) -> Moments:
    d, zero = range(kind.d), emit.constant(0.0)
    X = [[seen[a].where(S[a][b], -V[a][b]) for b in d] for a in d]  # V's columns of missing values meet zeros of M
    place = [seen[a].where(zero, m[a]) - _dot(X[a], w) for a in d]
    XM = _product(X, M)
    XMV = _product(XM, V)
    return place, [
        seen[a].where(XMV[a][b], seen[b].where(XMV[b][a], V[a][b] + XMV[a][b])) for a in d for b in range(a + 1)
    ]


def _projected(
    emit: Emitter, kind: Kind, S: Matrix, pair: Pair, m: list[Lanes], V: Matrix, w: list[Lanes], M: Matrix
) -> Moments:
    assert pair.R is not None
    d, VR = range(kind.d), _product(V, _turned(pair.R))
    K = _product(VR, M)
    KR = _product(K, pair.R)
    away = [[emit.constant(float(a == b)) - KR[a][b] for b in d] for a in d]
    place = [m[a] + _dot(VR[a], w) for a in d]
    away_V, KS = _product(away, V), _noise_columns(kind, K, S)
    return place, [_dot(away_V[a], away[b]) + _dot(KS[a], K[b]) for a in d for b in range(a + 1)]


# Small matrices of lanes


def _noise(emit: Emitter, kind: Kind, row: Load, pair: Pair) -> Matrix:
    """S, 0 where a value is missing; of diagonal noise nothing but the diagonal is read."""
    zero = emit.constant(0.0)

    def entry(a: int, b: int) -> Lanes:
        if kind.noise != "full" and a != b:
            return zero
        value = row(kind.p + (packed(a, b) if kind.noise == "full" else a))
        return value if pair.observed is None else (pair.observed[a] & pair.observed[b]).where(value, zero)

    return _symmetric(kind.p, entry)


def _noise_times(kind: Kind, S: Matrix, M: Matrix) -> Matrix:
    if kind.noise == "full":
        return _product(S, M)
    return [[S[a][a] * entry for entry in line] for a, line in enumerate(M)]


def _noise_columns(kind: Kind, K: Matrix, S: Matrix) -> Matrix:
    if kind.noise == "full":
        return _product(K, S)
    return [[entry * S[b][b] for b, entry in enumerate(line)] for line in K]


def _row_times(kind: Kind, S: Matrix, a: int, w: list[Lanes]) -> Lanes:
    return _dot(S[a], w) if kind.noise == "full" else S[a][a] * w[a]


def _symmetric(size: int, entry: Any) -> Matrix:
    lower = [[entry(a, b) for b in range(a + 1)] for a in range(size)]
    return _full(lower)


def _full(lower: Matrix) -> Matrix:
    """A symmetric matrix from the lines of its lower triangle."""
    return [[lower[max(a, b)][min(a, b)] for b in range(len(lower))] for a in range(len(lower))]


def _turned(A: Matrix) -> Matrix:
    return [list(column) for column in zip(*A, strict=True)]


def _product(A: Matrix, B: Matrix) -> Matrix:
    columns = _turned(B)
    return [[_dot(line, column) for column in columns] for line in A]


def _dot(a: Sequence[Lanes], b: Sequence[Lanes]) -> Lanes:
    return total([x * y for x, y in zip(a, b, strict=True)])
