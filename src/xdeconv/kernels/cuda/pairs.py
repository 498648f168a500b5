"""The algebra of one row and one component, for lanes that hold rows, components or pairs alike.

Small matrices are tuples of values, unrolled at compile time; symmetric ones are packed lower triangles. The factor L
of T holds 1 / L_aa on its diagonal. Every multiply-add is an explicit fma and kernels are compiled without fusion, so
that all kernels round log(alpha N) alike: the responsibility of a row a million sd away depends on its last bit.
"""

# ruff: noqa: RUF005 (in kernels, tuples can be joined but not unpacked)
# mypy: disable-error-code="assignment, no-untyped-def, var-annotated"
from __future__ import annotations

from .memory import COMPILED
from .triton_import import constant, jit, libdevice, tl

LOWEST = constant(-3.0e38)  # below every log-density, yet finite: a component of weight 0 leaves it alone
HALF_LOG2_E = constant(0.7213475204444817)
LOG2_E = constant(1.4426950408889634)
LN_2 = constant(0.6931471805599453)


@jit()
def subtract(a, b, c):
    """c - a b in one instruction: Triton's unary minus is a subtraction, a factor of -1 a free modifier."""
    return tl.fma(a * -1.0, b, c)


@jit()
def scaled(x, FACTOR: tl.constexpr, y):
    """FACTOR x + y; as an operand of fma a literal would be rounded to float32."""
    return tl.fma(x, tl.zeros_like(x) + FACTOR, y)


@jit()
def with_prior(value, prior):
    """The natural log-prior added to a log2; a pair that it rules out is -inf, whatever its component is."""
    return tl.where(prior == float("-inf"), float("-inf"), scaled(prior, LOG2_E, value))


@jit()
def residual_of(x, seen, R, m, P: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr, PROJECTED: tl.constexpr):
    """x - R m, zero where a value is missing."""
    out = ()
    for a in tl.static_range(P):
        if PROJECTED:
            value = x[a]
            for c in tl.static_range(D):
                value = subtract(R[a * D + c], m[c], value)
        else:
            value = x[a] - m[a]
            if MASKED:
                value = value * seen[a]
        out = out + (value,)
    return out


@jit()
def projected(R, V, P: tl.constexpr, D: tl.constexpr):
    """R V, (p, d)."""
    out = ()
    for a in tl.static_range(P):
        for c in tl.static_range(D):
            value = R[a * D] * V[c * (c + 1) // 2]
            for e in tl.static_range(1, D):
                if e > c:
                    value = tl.fma(R[a * D + e], V[e * (e + 1) // 2 + c], value)
                else:
                    value = tl.fma(R[a * D + e], V[c * (c + 1) // 2 + e], value)
            out = out + (value,)
    return out


@jit()
def covariance_of(
    V, RV, seen, S, R, FROM: tl.constexpr, TO: tl.constexpr, D: tl.constexpr,
    NOISE: tl.constexpr, MASKED: tl.constexpr, PROJECTED: tl.constexpr,
):  # fmt: skip
    """Lines FROM to TO of T = R V R^T + S, packed; a missing value's line is that of the identity."""
    out = ()
    for a in tl.static_range(FROM, TO):
        for b in tl.static_range(a + 1):
            if PROJECTED:
                value = RV[a * D] * R[b * D]
                for e in tl.static_range(1, D):
                    value = tl.fma(RV[a * D + e], R[b * D + e], value)
                if NOISE == 2:
                    value = value + S[a * (a + 1) // 2 + b]
                elif NOISE == 1 and a == b:
                    value = value + S[a]
            else:
                value = V[a * (a + 1) // 2 + b]
                if MASKED:
                    if NOISE == 2:
                        value = tl.fma(value, seen[a] * seen[b], S[a * (a + 1) // 2 + b])
                    elif a == b:
                        value = tl.fma(value, seen[a], S[a])
                    else:
                        value = value * (seen[a] * seen[b])
                elif NOISE == 2:
                    value = value + S[a * (a + 1) // 2 + b]
                elif NOISE == 1 and a == b:
                    value = value + S[a]
            out = out + (value,)
    return out


@jit()
def factor(T, residual, L, z, FROM: tl.constexpr, TO: tl.constexpr):
    """Lines FROM to TO of the Cholesky factor and of z = L^-1 residual; a failed pivot is NaN from there on."""
    OFFSET: tl.constexpr = FROM * (FROM + 1) // 2
    for a in tl.static_range(FROM, TO):
        value = residual[a]
        pivot = T[a * (a + 1) // 2 + a - OFFSET]
        for b in tl.static_range(a):
            entry = T[a * (a + 1) // 2 + b - OFFSET]
            for c in tl.static_range(b):
                entry = subtract(L[a * (a + 1) // 2 + c], L[b * (b + 1) // 2 + c], entry)
            entry = entry * L[b * (b + 1) // 2 + b]
            L = L + (entry,)
            pivot = subtract(entry, entry, pivot)
            value = subtract(entry, z[b], value)
        inverse = tl.rsqrt(pivot)
        L = L + (inverse,)
        z = z + (value * inverse,)
    return L, z


@jit()
def square(z, FROM: tl.constexpr, TO: tl.constexpr):
    total = z[FROM] * z[FROM]
    for a in tl.static_range(FROM + 1, TO):
        total = tl.fma(z[a], z[a], total)
    return total


@jit()
def log2(x, DOUBLE: tl.constexpr):
    """The hardware's logarithm in float32: as good as the rounding of its result."""
    if COMPILED and not DOUBLE:
        return libdevice.fast_log2f(x)
    else:
        return tl.log2(x)


@jit()
def log2_root_inverse(L, FROM: tl.constexpr, TO: tl.constexpr, DOUBLE: tl.constexpr):
    """Sum of log2 (1 / L_aa): few logarithms, of products too short to leave the range of the type."""
    GROUP: tl.constexpr = 10 if DOUBLE else 3
    total = log2(L[FROM * (FROM + 1) // 2 + FROM], DOUBLE)
    if TO - FROM > 1:
        for start in tl.static_range(FROM, TO, GROUP):
            product = L[start * (start + 1) // 2 + start]
            for a in tl.static_range(start + 1, start + GROUP if start + GROUP < TO else TO):
                product = product * L[a * (a + 1) // 2 + a]
            if start == FROM:
                total = log2(product, DOUBLE)
            else:
                total = total + log2(product, DOUBLE)
    return total


@jit()
def whiten(A, residual, D: tl.constexpr):
    """z = A residual for a lower triangular A: one factor serves all rows."""
    z = ()
    for a in tl.static_range(D):
        value = A[a * (a + 1) // 2] * residual[0]
        for b in tl.static_range(1, a + 1):
            value = tl.fma(A[a * (a + 1) // 2 + b], residual[b], value)
        z = z + (value,)
    return z


@jit()
def pair(
    offset, m, V, x, seen, S, R, P: tl.constexpr, D: tl.constexpr, NOISE: tl.constexpr, MASKED: tl.constexpr,
    PROJECTED: tl.constexpr, SHARED: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    """log2 (alpha N) without the row's constant, L and z."""
    residual = residual_of(x, seen, R, m, P, D, MASKED, PROJECTED)
    if SHARED:
        L = V
        z = whiten(V, residual, D)
        log2_joint = scaled(square(z, 0, D), -HALF_LOG2_E, offset)
    else:
        RV = ()
        if PROJECTED:
            RV = projected(R, V, P, D)
        T = covariance_of(V, RV, seen, S, R, 0, P, D, NOISE, MASKED, PROJECTED)
        L, z = factor(T, residual, (), (), 0, P)
        log2_joint = scaled(square(z, 0, P), -HALF_LOG2_E, log2_root_inverse(L, 0, P, DOUBLE) + offset)
    return log2_joint, L, z


@jit()
def absorb(top, total, value):
    """A running log-sum-exp2 kept as its largest term and the sum relative to it, with one exponential.

    The exponential comes back too: of the value, or of the old largest term where the value is larger, relative to
    the new largest term.
    """
    small = tl.exp2(tl.abs(value - top) * -1.0)
    higher = value > top
    return tl.where(higher, value, top), tl.where(higher, tl.fma(total, small, 1.0), total + small), small


@jit()
def add_pair(
    sums, root, L, z, R, seen, P: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr, PROJECTED: tl.constexpr,
    SHARED: tl.constexpr,
):  # fmt: skip
    """Adds r, r w and r (w w^T - M) to the packed sums, with root = sqrt r; when shared, r, r z and r z z^T.

    B = root L^-1 R is formed line by line: then root w = B^T z and r M = B^T B.
    """
    q = tl.fma(root, root, sums[0])
    w = ()
    G = ()
    for c in tl.static_range(D * (D + 1) // 2):
        G = G + (sums[1 + D + c],)
    if SHARED:
        for a in tl.static_range(D):
            w = w + (root * z[a],)
    else:
        B = ()
        for c in tl.static_range(P):
            line = ()
            for a in tl.static_range(D):
                if PROJECTED:
                    value = root * R[c * D + a]
                    for b in tl.static_range(c):
                        value = subtract(L[c * (c + 1) // 2 + b], B[b * D + a], value)
                    value = value * L[c * (c + 1) // 2 + c]
                elif a < c:
                    value = L[c * (c + 1) // 2 + a] * B[a * D + a]
                    for b in tl.static_range(a + 1, c):
                        value = tl.fma(L[c * (c + 1) // 2 + b], B[b * D + a], value)
                    value = (value * -1.0) * L[c * (c + 1) // 2 + c]
                elif a == c:
                    value = root * L[c * (c + 1) // 2 + c]
                    if MASKED:
                        value = value * seen[c]
                else:
                    value = 0.0
                line = line + (value,)
            B = B + line
            new_w = ()
            new_G = ()
            for a in tl.static_range(D):
                if PROJECTED or a <= c:
                    if c == 0 or (not PROJECTED and a == c):
                        new_w = new_w + (line[a] * z[c],)
                    else:
                        new_w = new_w + (tl.fma(line[a], z[c], w[a]),)
                else:
                    new_w = new_w + (0.0,)
                for b in tl.static_range(a + 1):
                    if PROJECTED or a <= c:
                        new_G = new_G + (subtract(line[a], line[b], G[a * (a + 1) // 2 + b]),)
                    else:
                        new_G = new_G + (G[a * (a + 1) // 2 + b],)
            w = new_w
            G = new_G
    out = (q,)
    for a in tl.static_range(D):
        out = out + (tl.fma(root, w[a], sums[1 + a]),)
    for a in tl.static_range(D):
        for b in tl.static_range(a + 1):
            out = out + (tl.fma(w[a], w[b], G[a * (a + 1) // 2 + b]),)
    return out
