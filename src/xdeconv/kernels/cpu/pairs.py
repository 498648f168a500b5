"""The algebra of one component and W rows, written once for every dimension and kind of data.

Rows and components are tables of numbers with the same head, so that T = V + S is one sum per entry:

    row        x (p) | S packed (p (p + 1) / 2), variances (p), or nothing | R (p d)
    component  m (d) | V packed (d (d + 1) / 2), or L^-1 packed when all rows share T = L L^T | log alpha (- log |L|)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .kinds import Kind, Unrolled, packed
from .lanes import Emitter, Lanes

Load = Callable[[int], Lanes]


@dataclass
class Pair:
    """L D L^T = T with unit L, z = L^-1 (x - R m), the observed coordinates and R, of one component and W rows."""

    L: list[list[Lanes]]
    D: list[Lanes]
    inverse_D: list[Lanes]
    z: list[Lanes]
    observed: list[Lanes] | None
    R: list[list[Lanes]] | None

    @property
    def distance(self) -> Lanes:
        """Squared Mahalanobis distance."""
        return total([z * z * i for z, i in zip(self.z, self.inverse_D, strict=True)])


def total(terms: Sequence[Lanes]) -> Lanes:
    result = terms[0]
    for term in terms[1:]:
        result = result + term
    return result


def factored(emit: Emitter, kind: Kind, row: Load, component: Load) -> Pair:
    """Form and factor T for W rows, line by line: a line stays in registers and every entry is stored once."""
    T, z, observed, R = _moments(emit, kind, row, component)
    p, one = kind.p, emit.constant(1.0)
    L: list[list[Lanes]] = [[one] * p for _ in range(p)]
    D: list[Lanes] = []
    inverse_D: list[Lanes] = []
    for a in range(p):
        line = T(a)
        for b in range(a):
            for c in range(b):
                line[b] = line[b] - L[b][c] * line[c]
        for c in range(a):
            L[a][c] = line[c] * inverse_D[c]
            line[a] = line[a] - L[a][c] * line[c]
            z[a] = z[a] - L[a][c] * z[c]
        D.append(line[a])
        inverse_D.append(one / line[a])
    return Pair(L, D, inverse_D, z, observed, R)


def _moments(emit: Emitter, kind: Kind, row: Load, component: Load) -> tuple[Any, ...]:
    """Lines of T = R V R^T + S with the identity where values are missing, x - R m, what is observed, and R."""
    d, p = kind.d, kind.p
    x, m = [row(a) for a in range(p)], [component(a) for a in range(d)]
    zero, one = emit.constant(0.0), emit.constant(1.0)
    seen = [x[a].compare("==", x[a]) for a in range(p)] if kind.missing else None
    R: list[list[Lanes]] | None = None
    RV: list[list[Lanes]] = []
    if kind.projected:
        start = p + kind.noise_numbers
        R = [[row(start + a * d + e) for e in range(d)] for a in range(p)]
        V = [[component(d + packed(max(e, f), min(e, f))) for f in range(d)] for e in range(d)]
        RV = [[total([R[a][f] * V[f][e] for f in range(d)]) for e in range(d)] for a in range(p)]
        m = [total([R[a][e] * m[e] for e in range(d)]) for a in range(p)]

    def entry(a: int, b: int) -> Lanes:
        value = component(d + packed(a, b)) if R is None else total([RV[a][e] * R[b][e] for e in range(d)])
        if kind.noise == "full" or a == b:
            value = value + row(p + (packed(a, b) if kind.noise == "full" else a))
        return value if seen is None else (seen[a] & seen[b]).where(value, one if a == b else zero)

    def line(a: int) -> list[Lanes]:
        return [entry(a, b) for b in range(a + 1)]

    z = [x[a] - m[a] for a in range(p)]
    if seen is not None:
        z = [seen[a].where(z[a], zero) for a in range(p)]
        R = None if R is None else [[seen[a].where(entry, zero) for entry in R[a]] for a in range(p)]
    return line, z, seen, R


def whitened(emit: Emitter, kind: Kind, row: Load, component: Load) -> list[Lanes]:
    """L^-1 (x - m), 0 for x where it is missing, with an L that all rows share."""
    d = kind.d
    z = [row(a) - component(a) for a in range(d)]
    if kind.missing:
        z = [y.compare("==", y).where(y, emit.constant(0.0)) for y in z]
    return [total([component(d + packed(a, b)) * z[b] for b in range(a + 1)]) for a in range(d)]


def log_joint_shared(emit: Emitter, kind: Kind, row: Load, component: Load) -> Lanes:
    """log alpha N without the constant of its observed count, with a T that all rows share."""
    distance = total([y * y for y in whitened(emit, kind, row, component)])
    return emit.constant(-0.5) * distance + component(kind.offset)


def log_joint(emit: Emitter, kind: Kind, row: Load, component: Load) -> Lanes:
    """log alpha N(x | R m, T) without the constant of its observed count; NaN where T fails."""
    if kind.noise == "shared":
        return log_joint_shared(emit, kind, row, component)
    half, offset = emit.constant(-0.5), component(kind.offset)
    pair = factored(emit, kind, row, component)
    least = pair.D[0]
    for pivot in pair.D[1:]:
        least = pivot.compare("<", least).where(pivot, least)  # a NaN pivot makes the distance NaN
    fine = least.compare(">", emit.constant(1.2e-38 if kind.bits == 32 else 2.3e-308))
    value = half * (pair.distance + emit.log_product(pair.D)) + offset
    return fine.where(value, emit.constant(float("nan")))


def bound(emit: Emitter, kind: Kind, component: Load, noise: Load) -> list[Lanes]:
    """L^-1 packed of W components, L L^T = V + N with N (d) at least the noise of every row of a tile.

    (x - m)^T (V + N)^-1 (x - m) is at most the distance under the row's own noise.
    """
    d, one = kind.d, emit.constant(1.0)
    start = Unrolled(d, d, "diagonal", False, False, kind.bits)
    pair = factored(emit, start, lambda column: noise(column - d) if column >= d else one, component)
    root = [emit.sqrt(inverse) for inverse in pair.inverse_D]
    X = [[one] * d for _ in range(d)]
    for b in range(d):
        for a in range(b + 1, d):
            X[a][b] = -total([pair.L[a][c] * X[c][b] for c in range(b, a)])
    return [X[a][b] * root[a] for a in range(d) for b in range(a + 1)]


def sums(emit: Emitter, kind: Kind, row: Load, component: Load, r: Lanes) -> list[Lanes]:
    """r, r w (d) and r (w w^T - M) packed; r, r y and r y y^T, y = L^-1 (x - m), where all rows share T = L L^T."""
    d = kind.d
    triangle = [(a, b) for a in range(d) for b in range(a + 1)]
    if kind.noise == "shared":
        w = whitened(emit, kind, row, component)
        rw = [r * y for y in w]
        return [r, *rw, *(rw[a] * w[b] for a, b in triangle)]
    pair = factored(emit, kind, row, component)
    w, rM = _projected(kind, pair, r) if kind.projected else _inverse(emit, kind, pair, r)
    rw = [r * y for y in w]
    found = [r, *rw, *(rw[a] * w[b] - rM[a][b] for a, b in triangle)]
    return found + _slopes(emit, kind, row, pair, r, (w, rM)) if kind.slopes else found


def _slopes(
    emit: Emitter, kind: Kind, row: Load, pair: Pair, r: Lanes, own: tuple[list[Lanes], list[list[Lanes]]]
) -> list[Lanes]:
    """r (S (w w^T - T^-1))_aa of the observed coordinates, w = T^-1 (x - R m)."""
    p = kind.p
    w, rM = _inverse(emit, kind, pair, r) if kind.projected else own
    rw = [r * y for y in w]
    if kind.noise == "diagonal":
        return [row(p + a) * (rw[a] * w[a] - rM[a][a]) for a in range(p)]
    pairs = [[(max(a, b), min(a, b)) for b in range(p)] for a in range(p)]
    return [total([row(p + packed(a, b)) * (rw[a] * w[b] - rM[a][b]) for a, b in line]) for line in pairs]


def _inverse(emit: Emitter, kind: Kind, pair: Pair, r: Lanes) -> tuple[list[Lanes], list[list[Lanes]]]:
    """w = T^-1 (x - R m) and r T^-1, column by column from the last, as T^-1 L = L^-T D^-1 is triangular."""
    d, L, zero = kind.p, pair.L, emit.constant(0.0)
    w: list[Lanes] = [zero] * d
    M: list[list[Lanes]] = [[zero] * d for _ in range(d)]
    for c in reversed(range(d)):
        later = range(c + 1, d)
        for a in later:
            M[a][c] = -total([M[max(a, b)][min(a, b)] * L[b][c] for b in later])
        w[c], M[c][c] = pair.z[c] * pair.inverse_D[c], r * pair.inverse_D[c]
        for b in later:
            w[c] = w[c] - L[b][c] * w[b]
            M[c][c] = M[c][c] - L[b][c] * M[b][c]
    if pair.observed is not None:
        for c in range(d):
            M[c][c] = pair.observed[c].where(M[c][c], zero)
    return w, M


def _projected(kind: Kind, pair: Pair, r: Lanes) -> tuple[list[Lanes], list[list[Lanes]]]:
    """w = A^T D^-1 z and r A^T D^-1 A with A = L^-1 R."""
    assert pair.R is not None
    A = [list(line) for line in pair.R]
    p, d = kind.p, kind.d
    for a in range(p):
        for c in range(a):
            A[a] = [A[a][e] - pair.L[a][c] * A[c][e] for e in range(d)]
    B = [[entry * pair.inverse_D[a] for entry in A[a]] for a in range(p)]
    w = [total([B[a][e] * pair.z[a] for a in range(p)]) for e in range(d)]
    rB = [[r * entry for entry in line] for line in B]
    M = [[total([rB[a][e] * A[a][f] for a in range(p)]) for f in range(e + 1)] for e in range(d)]
    return w, M
